"""System prompt and run context as sources of argument values.

    pa|WORDS|RIGHT      what stands between WORDS and RIGHT in one line of the prompt, whole
    pd|INDEX|DAYS|TIME  a date of the prompt, so many days later, written with a time of day
    xf|FIELD            a field of the run's context
    xd|FIELD|DAYS|TIME  a date in a field of the context

A prompt is searched and never split into words: tokenising 88 kB takes 6 ms, searching it for a value .05 ms. What was
seen outlives the process as digests alone (`SeenDigests`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cached_property
from typing import Any, Final

from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.runs.model_input import ModelInput, Primitive
from langgraph_toolmem.runs.values import ABSENT, canon
from langgraph_toolmem.text.looks import MONTHS
from langgraph_toolmem.text.values import is_word, read_text

MAX_VALUE: Final = 80
"""Characters of a value in a prompt."""
MAX_PLACES: Final = 4
"""Places of a value in a prompt that are looked at."""
MAX_TRIES: Final = 64
"""Occurrences of a place's longest word that are looked at."""
MAX_MARKS: Final = 4
"""Marks between a value and the word before it, and that word."""
MAX_DATES: Final = 3
"""Different dates of a prompt that are sources."""
MAX_DAYS: Final = 14
"""Days between a date and one that is derived from it. With 0, look-ups of 160 office runs with
their prompt (522 turns) were right .57 and wrong .77 times per 100 turns; with 14, 1.34 and .57."""
MAX_FIELDS: Final = 64
MAX_FIELD: Final = 200
"""Characters of a field that is a source."""
END: Final = "$"
"""Stands for the end of a line, right of a value."""
_AROUND: Final = 80
_WITHIN: Final = ".,:-/@'"
"""Marks that may stand within a value."""
_TIME: Final = r"(?:[T ](?:00:00|23:59)(?::(?:00|59))?(?:\.0+)?(?:Z|[+-]\d\d:?\d\d)?)?"
_WRITTEN: Final = re.compile(rf"(\d{{4}}-\d\d-\d\d)({_TIME})$")
"""A date that is derived from another: with no time of day, or the first or last minute of it."""
_ISO: Final = re.compile(r"(?<!\d)(\d{4})-(\d\d)-(\d\d)(?!\d)")
_MONTH: Final = "|".join(sorted(MONTHS, key=len, reverse=True))
_NAMED: Final = re.compile(rf"\b({_MONTH})\.?\s+(\d\d?)(?:st|nd|rd|th)?,?\s+(\d{{4}})\b")
_DAY_FIRST: Final = re.compile(rf"\b(\d\d?)(?:st|nd|rd|th|\.)?\s+(?:of\s+)?({_MONTH})\.?,?\s+(\d{{4}})\b")


class SeenInput:
    """Prompt and context of one model call, in RAM.

    Args:
        model_input: of one model call. Where it is not complete, prompt and context give nothing.
    """

    def __init__(self, model_input: ModelInput) -> None:
        whole = model_input.complete
        self.fields = _fields_of(model_input.context) if whole else {}
        self._text = model_input.system if whole else ""
        self._values: dict[str, Any] = {}

    @property
    def chars(self) -> int:
        """Return the length of the prompt."""
        return len(self._text)

    @cached_property
    def dates(self) -> list[date]:
        """Return the first different dates of the prompt, in order."""
        return full_dates(self._text)

    def years(self) -> set[str]:
        """Return the years of all dates in prompt and context."""
        found = {f"{day.year:04}" for day in self.dates}
        for value in self.fields.values():
            if (day := day_of(value)) is not None:
                found.add(f"{day.year:04}")
        return found

    def value_at(self, descriptor: str) -> Any:
        """Return the value of a source, or ABSENT."""
        value = self._values.get(descriptor)
        if value is None:
            value = self._values[descriptor] = self._read(descriptor)
        return value

    def agrees(self, descriptor: str, text: str) -> bool | None:
        """Return True if a source has just this value (as `canon` writes it); None if it has none."""
        value = self.value_at(descriptor)
        return None if value is ABSENT else canon(value) == text

    def places(self, text: str, *, derived: bool = True) -> list[str]:
        """Return the sources that have a value, each of which evaluates to it; with `derived`, dates near it too."""
        if not text or len(text) > MAX_VALUE or not (self._text or self.fields):
            return []
        found = [f"xf|{name}" for name, value in self.fields.items() if "|" not in name and canon(value) == text]
        found += self._between(text)
        if derived and not found:
            found += self._derived(text)
        return [descriptor for descriptor in dict.fromkeys(found) if self.agrees(descriptor, text)]

    def digests(self, descriptors: Iterable[str]) -> SeenDigests:
        """Return what may be kept on disk of the input: digests of the values at known places."""
        kept = [*descriptors, *(f"xf|{name}" for name in self.fields if "|" not in name)]
        values = {each: self.value_at(each) for each in dict.fromkeys(kept)}
        known = {each: value_digest(each, canon(value)) for each, value in values.items() if value is not ABSENT}
        return SeenDigests(known)

    # --- reading ---

    def _read(self, descriptor: str) -> Any:
        kind, _, rest = descriptor.partition("|")
        if kind == "xf":
            return self.fields.get(rest, ABSENT)
        if kind == "pa":
            left, _, right = rest.rpartition("|")
            return self._slot(left, right)
        first, days, written = rest.split("|")
        day = day_of(self.fields.get(first)) if kind == "xd" else self._date(int(first))
        return ABSENT if day is None else later(day, days, written)

    def _date(self, index: int) -> date | None:
        return self.dates[index] if index < len(self.dates) else None

    def _slot(self, left: str, right: str) -> Any:
        """Return the value between two words; ABSENT if there are several: the words tell none of them."""
        needle, pattern = _slot_pattern(left, right)
        found: Any = ABSENT
        position = self._text.find(needle)
        for _ in range(MAX_TRIES):
            if position < 0:
                return found
            begin = max(0, position - _AROUND)
            for match in pattern.finditer(self._text, begin, position + len(needle) + _AROUND + MAX_VALUE):
                if match.start(1) <= position < match.end(1):
                    if found not in (ABSENT, match[2]):
                        return ABSENT
                    found = match[2]
            position = self._text.find(needle, position + 1)
        return ABSENT

    def _between(self, text: str) -> list[str]:
        """Return the places of a value between two words."""
        found, start = list[str](), -1
        for _ in range(MAX_PLACES):
            start = self._text.find(text, start + 1)
            if start < 0:
                break
            end = start + len(text)
            if _is_whole(self._text, start, end):
                found += self._around(start, end)
        return found

    def _around(self, start: int, end: int) -> list[str]:
        before = _words_of(self._text[max(0, start - _AROUND) : start].rsplit("\n", 1)[-1])
        after = _words_of(self._text[end : end + _AROUND].split("\n", 1)[0])[:1]
        right = after[0] if after else END
        # Marks alone tell no place: `= "` stands before each attribute of a tag.
        nearest = max((index for index, word in enumerate(before) if is_word(word)), default=-1)
        if nearest < 0 or len(before) - nearest > MAX_MARKS:
            return []
        lefts = [before[nearest:]]
        if nearest > 0 and is_word(before[nearest - 1]):
            lefts.append(before[nearest - 1 :])
        joined = [" ".join(left) for left in lefts]
        return [f"pa|{left}|{right}" for left in joined if "|" not in left and "|" not in right]

    def _derived(self, text: str) -> list[str]:
        """Return the dates that a date may be derived from."""
        sources = [(f"pd|{index}", known) for index, known in enumerate(self.dates)]
        for name, value in self.fields.items():
            if "|" not in name and (known := day_of(value)) is not None:
                sources.append((f"xd|{name}", known))
        return [f"{source}|{found}" for source, known in sources if (found := from_date(text, known))]


@dataclass(frozen=True, slots=True)
class SeenDigests:
    """The rest of an input on disk: enough to tell whether known places had the value that the model took.

    Attributes:
        values: descriptor of a source -> `value_digest` of its value.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, Primitive] = field(default_factory=dict, init=False)
    """The values of fields are not kept."""

    def years(self) -> set[str]:
        """Return nothing: dates are not kept."""
        return set()

    def value_at(self, descriptor: str) -> Any:
        """Return ABSENT: the values themselves are not kept."""
        return ABSENT

    def agrees(self, descriptor: str, text: str) -> bool | None:
        """See `SeenInput.agrees`."""
        known = self.values.get(descriptor)
        return None if known is None else known == value_digest(descriptor, text)

    def places(self, text: str, *, derived: bool = True) -> list[str]:
        """See `SeenInput.places`; only places that were known when the turn began are found again."""
        return [descriptor for descriptor in self.values if self.agrees(descriptor, text)]

    def plain(self) -> list[Any]:
        """Return plain containers for an event."""
        return [dict(self.values)]

    @classmethod
    def of(cls, plain: list[Any]) -> SeenDigests:
        """Return what `plain` wrote."""
        return cls(plain[0])


NOTHING_SEEN: Final = SeenDigests()
"""The input of a turn whose prompt and context nobody kept."""


def from_input(descriptor: str) -> bool:
    """Return True for a source in prompt or context."""
    return descriptor[0] in "px"


def value_digest(descriptor: str, text: str) -> str:
    """Return the digest of a value at one place; values of two places cannot be compared by it."""
    return digest("seen", descriptor, text)


def read_input(model_input: ModelInput) -> SeenInput:
    """Return a model's input as a source of values; equal ones are read once."""
    context = tuple(sorted(model_input.context.items()))
    return _read_input(model_input.system, context, model_input.complete)


@cached(mebibytes=8, weigh=lambda system, *_: 2 * len(system) + 1000)
def _read_input(system: str, context: tuple[tuple[str, Primitive], ...], complete: bool) -> SeenInput:
    return SeenInput(ModelInput(system, dict(context), complete))


def _fields_of(context: Mapping[str, Primitive]) -> dict[str, Primitive]:
    kept = list(context.items())[:MAX_FIELDS]
    return {name: value for name, value in kept if not isinstance(value, str) or 0 < len(value) <= MAX_FIELD}


def _words_of(text: str) -> list[str]:
    """Return the words and marks of a text as they are written."""
    read = read_text(text)
    return [text[start:end] for start, end in zip(read.starts, read.ends, strict=True)]


@cached()
def _slot_pattern(left: str, right: str) -> tuple[str, re.Pattern[str]]:
    """Return the longest word of `left`, and a pattern whose groups are `left` and the value behind it."""
    words = left.split(" ")
    before = r"[^\S\n]*".join(map(re.escape, words))
    begin = (r"(?<!\w)" if left[0].isalnum() else "") + f"({before})" + (r"(?!\w)" if left[-1].isalnum() else "")
    if right == END:
        stop = r"[^\S\n]*(?:\n|\Z)"
    else:
        goes_on = r"(?!\w)" if right[-1].isalnum() or right in _WITHIN else ""
        stop = r"[^\S\n]*" + re.escape(right) + goes_on
    value = rf"[^\S\n]*(\S(?:[^\n]{{0,{MAX_VALUE - 2}}}?\S)??)(?={stop})"
    return max(words, key=len), re.compile(begin + value)


def _is_whole(text: str, start: int, end: int) -> bool:
    """Return True if no word goes on at either end of a span."""
    cut_before = start > 0 and (text[start - 1].isalnum() or text[start - 1] == "_") and text[start].isalnum()
    cut_after = end < len(text) and (text[end].isalnum() or text[end] == "_") and text[end - 1].isalnum()
    return not cut_before and not cut_after


def from_date(text: str, known: date) -> str:
    """Return how a written date follows from another, as ``DAYS|TIME``; "" if it does not."""
    match = _WRITTEN.match(text)
    day = day_of(text) if match is not None else None
    if match is None or day is None:
        return ""
    days = (day - known).days
    return f"{days}|{match[2]}" if abs(days) <= MAX_DAYS else ""


def later(day: date, days: str, written: str) -> str:
    """Return the date so many days later, with a time of day; the inverse of `from_date`."""
    return (day + timedelta(int(days))).isoformat() + written


def day_of(value: Any) -> date | None:
    """Return the day of a date or a time in ISO's format."""
    if not isinstance(value, str) or not _ISO.match(value):
        return None
    try:
        return date.fromisoformat(value[:10])
    except ValueError:
        return None


def full_dates(text: str) -> list[date]:
    """Return the first different dates of a text, in order. Only what stands near a year is read closely."""
    found: dict[date, None] = {}
    position = text.find("20")
    while position >= 0 and len(found) < MAX_DATES:
        if text[position : position + 4].isdigit() and not text[position - 1 : position].isalnum():
            window, at = text[max(0, position - 24) : position + 11].lower(), min(position, 24)
            for pattern, order in ((_ISO, (1, 2, 3)), (_NAMED, (3, 1, 2)), (_DAY_FIRST, (3, 2, 1))):
                match = next((each for each in pattern.finditer(window) if each.start(order[0]) == at), None)
                day = None if match is None else _date_of(*(match[part] for part in order))
                if day is not None:
                    found[day] = None
        position = text.find("20", position + 2)
    return list(found)


def _date_of(year: str, month: str, day: str) -> date | None:
    try:
        return date(int(year), MONTHS[month] if month in MONTHS else int(month), int(day))
    except ValueError:
        return None
