"""Sources of an argument's value, as short descriptors that can be evaluated again in another run.

    i|TOOL|PARAM            the latest input PARAM of TOOL
    o|TOOL|PATH             the scalar at JSON path PATH in TOOL's latest output
    l|TOOL|PATH*|next       the first element of a list that the slot has not used yet (loops), for a list that was
                            read since the user's latest message: since then
    l|TOOL|PATH*|rest       all elements that the slot has not used yet, for parallel calls; at least two
    ua|WORDS|EXTENT         the text after WORDS in the user's text, up to the end by `text.extents`
    us|SHAPE, ud|FORMAT     the next token of that shape, a date in it
    td|INDEX|DAYS|TIME      a date of the user's text, so many days later, written with a time of day
    od|TOOL|PATH|DAYS|TIME  a date at a JSON path in TOOL's latest output, likewise
    pa|WORDS|RIGHT          the whole text between WORDS and RIGHT in one line of the system prompt
    pd|INDEX|DAYS|TIME      a date of the prompt, so many days later, written with a time of day
    xf|FIELD                a field of the run's context
    xd|FIELD|DAYS|TIME      a date in a field of the context

A slot is a (tool, parameter) pair. `discover` finds the descriptors of a value, `evaluate` is its inverse, and
`describe` returns a descriptor as a text.

A prompt is searched and never split into words: tokenising 88 kB takes 6 ms, searching it for a value .05 ms. Only
digests of prompt and context survive the process (`SeenDigests`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.runs.run import ModelInput, Primitive
from langgraph_toolmem.runs.values import ABSENT, VALUE_LIMITS, canon
from langgraph_toolmem.text.values import (
    MONTHS,
    UNTIL,
    Text,
    dates_in,
    extents,
    is_word,
    name_start,
    read_text,
    right_of,
    shape_of,
    until,
)

if TYPE_CHECKING:
    from langgraph_toolmem.graph.state import RunState


def evaluate(descriptor: str, state: RunState, slot: tuple[str, str]) -> Any:
    """Return the value of a source in this run, or ABSENT. The value is not cast to the parameter's type."""
    kind, tool, rest = _parsed(descriptor)
    if kind[0] in "px":
        return state.seen.value_at(descriptor)
    if kind in ("td", "od"):
        return _date_from(descriptor, state)
    if kind == "i":
        return state.inputs.get((tool, rest), ABSENT)
    if kind[0] == "u":
        return _from_user(kind[1], rest, state, slot)
    seen = state.latest_output(tool)
    if seen is None:
        return ABSENT
    if kind == "o":
        return seen.scalars.get(rest, ABSENT)
    return _list_value(rest, seen.lists, state.used_of_list(slot, state.outputs[tool]))


def _from_user(kind: str, rest: str, state: RunState, slot: tuple[str, str]) -> Any:
    """Return the value of a source in the latest user message that has one: "yes" has none."""
    for text in (state.user, *state.past_users):
        # A message that is a picture has no words.
        if text.words:
            value = _from_text(kind, rest, text, state.used.get(slot))
            if value is not ABSENT:
                return value
    return ABSENT


class Descriptor(NamedTuple):
    """The parts of a descriptor; the tool is "" if it is not named."""

    kind: str
    tool: str
    rest: str


@cached(mebibytes=4)
def _parsed(descriptor: str) -> Descriptor:
    kind, _, rest = descriptor.partition("|")
    if kind[0] == "u":
        return Descriptor(kind, "", rest)
    if kind == "i":
        # The name of a parameter cannot contain "|", but the name of a tool may.
        tool, _, parameter = rest.rpartition("|")
        return Descriptor(kind, tool, parameter)
    tool, _, path = rest.partition("|")
    return Descriptor(kind, tool, path)


def is_derived(descriptor: str) -> bool:
    """Return True for a date so many days before or after another date of the run."""
    if not descriptor.startswith(("td|", "od|", "pd|", "xd|")):
        return False
    # With no day between, it is the date itself.
    return descriptor.rsplit("|", 2)[1] != "0"


def _date_from(descriptor: str, state: RunState) -> Any:
    kind, _, rest = descriptor.partition("|")
    source, days, written = rest.rsplit("|", 2)
    day = None
    if kind == "td":
        dates = full_dates(state.user.raw)
        if int(source) < len(dates):
            day = dates[int(source)]
    else:
        tool, _, path = source.partition("|")
        seen = state.latest_output(tool)
        if seen is not None:
            day = day_of(seen.scalars.get(path))
    if day is None:
        return ABSENT
    return later(day, days, written)


def words_before(descriptor: str) -> str:
    """Return the words that a value follows in the user's text; "" for other sources."""
    if not descriptor.startswith("ua|"):
        return ""
    return descriptor[3:].rpartition("|")[0]


def _list_value(rest: str, lists: Mapping[str, list[Any]], used: Collection[str]) -> Any:
    path, how = rest.split("|")
    values = lists.get(path)
    if not values:
        return ABSENT
    if how == "next":
        return _next_element(values, used)
    unused: dict[Any, None] = {}
    for value in values:
        if isinstance(value, (str, int, float)) and canon(value) not in used:
            unused[value] = None
    # One remaining element is one call, which "next" gives.
    if len(unused) < 2:
        return ABSENT
    return list(unused)


def _next_element(values: Sequence[Any], used: Collection[str]) -> Any:
    """Return the first element of a list that the slot has not used yet, or ABSENT."""
    for value in values:
        if canon(value) not in used:
            return value
    return ABSENT


def _from_text(kind: str, rest: str, text: Text, used: frozenset[str] | None) -> Any:
    if kind != "s":
        return _placed(kind, rest, text.raw)
    unused = _first_unused(text.shapes.get(rest, ()), used)
    if unused is None:
        return ABSENT
    return unused


@cached(mebibytes=4)
def _placed(kind: str, rest: str, raw: str) -> Any:
    text = read_text(raw)
    if kind == "d":
        return _date_in(rest, text)
    words, _, extent = rest.rpartition("|")
    left = words.split(" ")
    for place in text.places.get(left[-1], ()):
        if len(left) > 1 and (place == 0 or text.words[place - 1] != left[0]):
            continue
        if place + 1 >= len(text.words):
            continue
        if extent.startswith(UNTIL):
            span = until(text, place + 1, extent[len(UNTIL) :])
        else:
            span = extents(raw, place + 1).get(extent)  # type: ignore[call-overload]
        if span is not None:
            return text.span(*span)
    return ABSENT


def _date_in(template: str, text: Text) -> Any:
    """Return the first date of a text in a template: an ISO date without month and day, ``2023-%s 00:00:00``."""
    dates = dates_in(text.raw)
    if not dates:
        return ABSENT
    return template.replace("%s", dates[0])


# --- finding the sources of a value ---


def discover(value: Any, state: RunState, slot: tuple[str, str]) -> list[str]:
    """Return the descriptors of an argument's value in this run; each evaluates to it."""
    text = canon(value)
    sources = []
    for source in _candidates(value, state, slot):
        # An earlier text may have another value at the same place, and a list the value as another type.
        if from_input(source) or canon(evaluate(source, state, slot)) == text:
            sources.append(source)
    return sources


def _candidates(value: Any, state: RunState, slot: tuple[str, str]) -> list[str]:
    # Two equal truth values do not prove a source, and a list has no place of its own.
    if isinstance(value, (list, dict, bool)) or value is None:
        return []
    text = canon(value)
    if not text or len(text) > VALUE_LIMITS.characters:
        return []
    sources = _in_inputs(text, state) + _in_outputs(text, state, slot) + _in_messages(text, state, slot)
    places = state.seen.places(text, derived=not sources)
    # A date that is in the run itself is not derived from another date.
    if not sources and not places and _is_iso(text):
        return _near_dates(text, state)
    return sources + places


def _in_inputs(text: str, state: RunState) -> list[str]:
    sources = []
    for (tool, parameter), given in state.input_texts.items():
        if given == text and _plain(tool, parameter):
            sources.append(f"i|{tool}|{parameter}")
    return sources


def _in_messages(text: str, state: RunState, slot: tuple[str, str]) -> list[str]:
    used = state.used.get(slot)
    # The latest message with the value: older ones may have it elsewhere.
    for said in (state.user, *state.past_users):
        spots = _in_text(text, said, used)
        if spots:
            return [f"u{spot}" for spot in spots]
    return []


def _is_iso(text: str) -> bool:
    return re.match(r"\d{4}-\d\d-\d\d", text) is not None


def _near_dates(text: str, state: RunState) -> list[str]:
    """Return the dates of the user's text and of outputs from which a date may be derived."""
    most_sources = 8  # an output with a date in each of its fields would fill the slot
    sources = []
    for number, day in enumerate(full_dates(state.user.raw)):
        distance = from_date(text, day)
        if distance:
            sources.append(f"td|{number}|{distance}")
    for index in state.recent_outputs():
        tool = state.steps[index].tool
        if not _plain(tool):
            continue
        for path, value in state.observation(index).scalars.items():
            known = day_of(value)
            if known is None or not _plain(path):
                continue
            distance = from_date(text, known)
            if distance:
                sources.append(f"od|{tool}|{path}|{distance}")
    return sources[:most_sources]


def _plain(*names: str) -> bool:
    """Return True if names can be parts of a descriptor."""
    return "|" not in "".join(names)


def _in_outputs(text: str, state: RunState, slot: tuple[str, str]) -> list[str]:
    sources: list[str] = []
    for index in state.recent_outputs():
        tool, seen = state.steps[index].tool, state.observation(index)
        if not _plain(tool):
            continue
        used = state.used_of_list(slot, index)
        for path, scalar in seen.scalars.items():
            if canon(scalar) == text:
                sources.append(f"o|{tool}|{path}")
        for path, values in seen.lists.items():
            if _plain(path) and canon(_next_element(values, used)) == text:
                sources.append(f"l|{tool}|{path}|next")
    return sources


def _first_unused(values: Sequence[str], used: frozenset[str] | None) -> str | None:
    for value in values:
        if not used or value not in used:
            return value
    return None


def _in_text(value: str, text: Text, used: frozenset[str] | None) -> list[str]:
    """Return the places of a value in a user's text, as descriptors without their first letter."""
    if not text.words:
        return []
    span = text.find(value)
    if span is None:
        return _date_template(value, text)
    if text.span(*span) != value:
        # In another case: the source would give the text's own letters.
        return []
    return _places(text, *span, used)


def _date_template(value: str, text: Text) -> list[str]:
    """Return the source of an ISO date whose month and day the text names; [] for any other value."""
    if _is_iso(value) and "|" not in value:
        template = f"{value[:5]}%s{value[10:]}"
        if _date_in(template, text) == value:
            return [f"d|{template}"]
    return []


def _places(text: Text, first: int, last: int, used: frozenset[str] | None) -> list[str]:
    spots: list[str] = []
    if all(map(is_word, text.words[first : last + 1])):
        spots = _after_words(text, first, last)
    value = text.span(first, last)
    if first == last:
        shape = shape_of(value)
        if shape and _first_unused(text.shapes[shape], used):
            spots.append(f"s|{shape}")
    # The same words may occur earlier, before another value.
    return [spot for spot in spots if _from_text(spot[0], spot[2:], text, used) == value]


def _after_words(text: Text, first: int, last: int) -> list[str]:
    """Return the places of a span by the words before it and its extent."""
    ends: list[str] = []
    for extent, span in extents(text.raw, first).items():
        if span == (first, last):
            ends.append(extent)
    if not ends:
        ends.append(f"{UNTIL}{right_of(text, last)}")
    spots = []
    for left in _lefts(text, first):
        for end in ends:
            spots.append(f"a|{left}|{end}")
    # The last word of a name is described by the words before the whole name.
    start = name_start(text, first)
    if start < first and extents(text.raw, start).get("last") == (first, last):
        for left in _lefts(text, start):
            spots.append(f"a|{left}|last")
    return spots


def _lefts(text: Text, first: int) -> list[str]:
    """Return the word before a span, and the two words before it."""
    words = text.words
    lefts = []
    if first > 1:
        lefts.append(f"{words[first - 2]} {words[first - 1]}")
    # A mark alone occurs at many places of a text.
    if first == 1 or (first > 1 and is_word(words[first - 1])):
        lefts.append(words[first - 1])
    return [left for left in lefts if _plain(left)]


# --- texts ---


def describe(descriptor: str) -> str:
    """Return a source in words, for people."""
    without_place = {
        "c": "its most frequent value",
        "cp": "its most frequent value at this point",
        "n": "the nearest past request, its values replaced by this request's",
        "w": "the call that followed the same calls before",
        "env": "the environment adapter",
        "goal": "the user's goal",
    }
    if descriptor in without_place:
        return without_place[descriptor]
    kind, _, rest = descriptor.partition("|")
    if kind in ("i", "o", "l"):
        return _describe_call(kind, rest)
    if from_input(descriptor) or kind in ("td", "od"):
        return _describe_input(kind, rest)
    if kind == "ua":
        left, _, extent = rest.rpartition("|")
        return f"{_describe_extent(extent)} after “{left}” in the user's words"
    if kind == "ud":
        return "the date in the user's words"
    return f"the next token of the form {rest} in the user's words"


def _describe_call(kind: str, rest: str) -> str:
    """Return a value of an earlier call in words."""
    if kind == "i":
        tool, _, parameter = rest.rpartition("|")
        return f"the same value as {parameter} of the earlier call to {tool}"
    if kind == "o":
        tool, _, path = rest.partition("|")
        return _place(path, tool)
    tool, path, how = rest.split("|")
    which = "for each call one unused element"
    if how == "next":
        which = "the next unused element"
    return f"{which} of {_place(path, tool)}"


def _place(path: str, tool: str) -> str:
    """Return a place in a tool's result as a text; ``$`` is the whole result."""
    inside = path.removeprefix("$").removeprefix(".")
    if not inside:
        return f"the result of {tool}"
    return f"{inside} in the result of {tool}"


def _describe_extent(extent: str) -> str:
    in_words = {
        "first": "the first word of the name",
        "last": "the last word of the name",
        "name": "the name",
        "joined": "the whole name",
        "numbered": "the name and the numbers",
        "token": "the number",
    }
    if extent in in_words:
        return in_words[extent]
    right = extent[len(UNTIL) :]
    ends = {".": "a mark or the end", "#": "a number"}.get(right, f"“{right}”")
    return f"the words before {ends}"


def _describe_input(kind: str, rest: str) -> str:
    first, _, last = rest.rpartition("|")
    if kind == "pa":
        end = f"“{last}”"
        if last == LINE_END:
            end = "the end of the line"
        return f"the text between “{first}” and {end} in the prompt"
    if kind == "xf":
        return f"the context's {rest}"
    source, days, _ = rest.rsplit("|", 2)
    tool, _, path = source.partition("|")
    of = {
        "pd": "the prompt's date",
        "xd": f"the date in the context's {source}",
        "td": "the date in the user's words",
        "od": f"the date in {path} of the output of {tool}",
    }[kind]
    if days == "0":
        return of
    return f"{of} and {int(days):+d} days"


# --- system prompt and run context ---


LINE_END: Final = "$"
"""Marks the end of a line after a value."""


@dataclass(frozen=True, slots=True)
class InputLimits:
    """Bounds of reading prompt and context.

    Attributes:
        value: characters of a value in a prompt.
        around: characters of a prompt on either side of a value that are read.
        places: read places of a value.
        tries: read occurrences of a place's longest word.
        marks: marks between a value and the word before it, and that word.
        dates: different dates of a prompt that are sources.
        days: days between a date and one that is derived from it. With 0, look-ups of 160 office runs with their prompt
            (522 turns) were right .57 and wrong .77 times per 100 turns; with 14, 1.34 and .57.
        fields: fields of the context that are sources.
        field_chars: characters of such a field.
    """

    value: int = 80
    around: int = 80
    places: int = 4
    tries: int = 64
    marks: int = 4
    dates: int = 3
    days: int = 14
    fields: int = 64
    field_chars: int = 200


INPUT_LIMITS: Final = InputLimits()


class SeenInput:
    """Prompt and context of one model call, in RAM.

    Args:
        model_input: of one model call. If it is not complete, prompt and context give no values.
    """

    def __init__(self, model_input: ModelInput) -> None:
        self.fields: Mapping[str, Primitive] = {}
        self._text = ""
        if model_input.complete:
            self.fields = _fields_of(model_input.context)
            self._text = model_input.system
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
        years = {f"{day.year:04}" for day in self.dates}
        for value in self.fields.values():
            day = day_of(value)
            if day is not None:
                years.add(f"{day.year:04}")
        return years

    def value_at(self, descriptor: str) -> Any:
        """Return the value of a source, or ABSENT."""
        # ABSENT is kept as well: most sources of a slot have no value in this input.
        value = self._values.get(descriptor)
        if value is None:
            value = self._values[descriptor] = self._read(descriptor)
        return value

    def agrees(self, descriptor: str, text: str) -> bool | None:
        """Return True if a source has exactly this value (as `canon` writes it); None if it has no value."""
        value = self.value_at(descriptor)
        if value is ABSENT:
            return None
        return canon(value) == text

    def places(self, text: str, *, derived: bool = True) -> list[str]:
        """Return the sources that have a value, each of which evaluates to it; with `derived`, dates near it too."""
        if not text or len(text) > INPUT_LIMITS.value:
            return []
        sources = self._in_fields(text) + self._between(text)
        # A date that is in the prompt itself is not also one "so many days later".
        if derived and not sources:
            sources += self._derived(text)
        # Two similar lines have two values between the same words: such a place gives neither.
        return [descriptor for descriptor in dict.fromkeys(sources) if self.agrees(descriptor, text)]

    def digests(self, descriptors: Iterable[str]) -> SeenDigests:
        """Return the part of the input that may be stored: digests of the values at known places."""
        # All fields are kept, because a field that is right for the first time has no descriptor in the graph yet.
        fields = [f"xf|{name}" for name in self.fields if "|" not in name]
        digests = {}
        for descriptor in dict.fromkeys([*descriptors, *fields]):
            value = self.value_at(descriptor)
            if value is not ABSENT:
                digests[descriptor] = value_digest(descriptor, canon(value))
        return SeenDigests(digests)

    # --- reading ---

    def _read(self, descriptor: str) -> Any:
        kind, _, rest = descriptor.partition("|")
        if kind == "xf":
            return self.fields.get(rest, ABSENT)
        if kind == "pa":
            left, _, right = rest.rpartition("|")
            return self._slot(left, right)
        first, days, written = rest.split("|")
        day: date | None = None
        if kind == "xd":
            day = day_of(self.fields.get(first))
        elif int(first) < len(self.dates):
            day = self.dates[int(first)]
        if day is None:
            return ABSENT
        return later(day, days, written)

    def _slot(self, left: str, right: str) -> Any:
        """Return the value between two words; ABSENT if there are several."""
        place = _between_words(left, right)
        value: Any = ABSENT
        # `str.find` passes a prompt of 88 kB in .05 ms; the expression is tried only near the word.
        position = self._text.find(place.needle)
        # A prompt may contain a frequent word thousands of times: then the place has no value.
        for _ in range(INPUT_LIMITS.tries):
            if position < 0:
                return value
            begin = max(0, position - INPUT_LIMITS.around)
            end = position + len(place.needle) + INPUT_LIMITS.around + INPUT_LIMITS.value
            for match in place.pattern.finditer(self._text, begin, end):
                # A match around another occurrence of the word is tried in its own turn.
                if match.start(1) <= position < match.end(1):
                    # "Order O-1 is open" and "Order O-2 is open": the words are ambiguous.
                    if value not in (ABSENT, match[2]):
                        return ABSENT
                    value = match[2]
            position = self._text.find(place.needle, position + 1)
        return ABSENT

    def _in_fields(self, text: str) -> list[str]:
        """Return the fields of the context with a value."""
        sources = []
        for name, value in self.fields.items():
            if "|" not in name and canon(value) == text:
                sources.append(f"xf|{name}")
        return sources

    def _between(self, text: str) -> list[str]:
        """Return the places of a value between two words."""
        sources: list[str] = []
        start = -1
        for _ in range(INPUT_LIMITS.places):
            start = self._text.find(text, start + 1)
            if start < 0:
                break
            end = start + len(text)
            if _is_whole(self._text, start, end):
                sources += self._around(start, end)
        return sources

    def _around(self, start: int, end: int) -> list[str]:
        # Only the line of the value identifies its place: the next line may be another record.
        around = INPUT_LIMITS.around
        line_before = self._text[max(0, start - around) : start].rsplit("\n", 1)[-1]
        line_after = self._text[end : end + around].split("\n", 1)[0]
        before = _words_of(line_before)
        after = _words_of(line_after)
        right = LINE_END
        if after:
            right = after[0]
        sources = []
        for left in _wordings_before(before):
            if _plain(left, right):
                sources.append(f"pa|{left}|{right}")
        return sources

    def _derived(self, text: str) -> list[str]:
        """Return the dates that a date may be derived from."""
        days: dict[str, date] = {}
        for index, day_of_prompt in enumerate(self.dates):
            days[f"pd|{index}"] = day_of_prompt
        for name, value in self.fields.items():
            day = day_of(value)
            if day is not None and "|" not in name:
                days[f"xd|{name}"] = day
        sources = []
        for source, day in days.items():
            distance = from_date(text, day)
            if distance:
                sources.append(f"{source}|{distance}")
        return sources


@dataclass(frozen=True, slots=True)
class SeenDigests:
    """The stored part of an input: it shows whether known places had the model's value.

    Attributes:
        values: descriptor of a source -> `value_digest` of its value.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, Primitive] = field(default_factory=dict, init=False)
    """The values of fields are not kept."""

    def years(self) -> set[str]:
        """Return an empty set: dates are not kept."""
        return set()

    def value_at(self, descriptor: str) -> Any:
        """Return ABSENT: the values themselves are not kept."""
        return ABSENT

    def agrees(self, descriptor: str, text: str) -> bool | None:
        """See `SeenInput.agrees`."""
        known = self.values.get(descriptor)
        if known is None:
            return None
        return known == value_digest(descriptor, text)

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
"""The input of a turn whose prompt and context were not kept."""


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


def _bytes_of_input(system: str, context: tuple[tuple[str, Primitive], ...], complete: bool) -> int:
    del context, complete
    return 2 * len(system) + 1000


# The weight of an input is that of its prompt: the values at its places are read later.
@cached(mebibytes=8, weigh=_bytes_of_input)
def _read_input(system: str, context: tuple[tuple[str, Primitive], ...], complete: bool) -> SeenInput:
    return SeenInput(ModelInput(system, dict(context), complete))


def _fields_of(context: Mapping[str, Primitive]) -> dict[str, Primitive]:
    fields = {}
    for name, value in list(context.items())[: INPUT_LIMITS.fields]:
        # A longer text is a document, not a value.
        if not isinstance(value, str) or 0 < len(value) <= INPUT_LIMITS.field_chars:
            fields[name] = value
    return fields


def _wordings_before(words: Sequence[str]) -> list[str]:
    """Return the word nearest to the end with the marks after it, and the same with the word before it."""
    # Marks alone do not identify a place: `= "` comes before each attribute of a tag.
    nearest = -1
    for index, word in enumerate(words):
        if is_word(word):
            nearest = index
    if nearest < 0 or len(words) - nearest > INPUT_LIMITS.marks:
        return []
    wordings = [" ".join(words[nearest:])]
    if nearest > 0 and is_word(words[nearest - 1]):
        # With one more word the place differs from others after the same word.
        wordings.append(" ".join(words[nearest - 1 :]))
    return wordings


def _words_of(text: str) -> list[str]:
    """Return the words and marks of a text as they are written."""
    read = read_text(text)
    return [text[start:end] for start, end in zip(read.starts, read.ends, strict=True)]


class BetweenWords(NamedTuple):
    """A place in a prompt.

    Attributes:
        needle: the longest word before the value: it is searched first.
        pattern: its groups are the words before the value, and the value.
    """

    needle: str
    pattern: re.Pattern[str]


@cached()
def _between_words(left: str, right: str) -> BetweenWords:
    words = left.split(" ")
    space = r"[^\S\n]*"  # within a line
    before = f"({space.join(map(re.escape, words))})"
    if left[0].isalnum():
        before = rf"(?<!\w){before}"
    if left[-1].isalnum():
        before = rf"{before}(?!\w)"
    if right == LINE_END:
        stop = r"(?:\n|\Z)"
    else:
        stop = re.escape(right)
        # "v1.2" does not end at its own dot.
        if right[-1].isalnum() or right in ".,:-/@'":
            stop = rf"{stop}(?!\w)"
    value = rf"(\S(?:[^\n]{{0,{INPUT_LIMITS.value - 2}}}?\S)??)"
    pattern = re.compile(f"{before}{space}{value}(?={space}{stop})")
    return BetweenWords(max(words, key=len), pattern)


def _is_whole(text: str, start: int, end: int) -> bool:
    """Return True if a span ends at word boundaries on both sides."""
    cut_before = start > 0 and _in_word(text[start - 1]) and text[start].isalnum()
    cut_after = end < len(text) and _in_word(text[end]) and text[end - 1].isalnum()
    return not cut_before and not cut_after


def _in_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def from_date(text: str, known: date) -> str:
    """Return the derivation of a written date from another, as ``DAYS|TIME``, or ""."""
    # Without a time of day, or with the first or last minute of it: any other time is not the date's.
    time = r"(?:[T ](?:00:00|23:59)(?::(?:00|59))?(?:\.0+)?(?:Z|[+-]\d\d:?\d\d)?)?"
    match = re.match(rf"(\d{{4}}-\d\d-\d\d)({time})$", text)
    day = day_of(text)
    if match is None or day is None:
        return ""
    days = (day - known).days
    if abs(days) > INPUT_LIMITS.days:
        return ""
    return f"{days}|{match[2]}"


def later(day: date, days: str, written: str) -> str:
    """Return the date so many days later, with a time of day; the inverse of `from_date`."""
    return (day + timedelta(int(days))).isoformat() + written


def day_of(value: Any) -> date | None:
    """Return the day of a date or a time in ISO's format."""
    # `fromisoformat` reads "20260305" on Python 3.11 and later, but refuses it on 3.10.
    if not isinstance(value, str) or not re.match(r"\d{4}-\d\d-\d\d(?!\d)", value):
        return None
    try:
        return date.fromisoformat(value[:10])
    except ValueError:
        return None


class DatePattern(NamedTuple):
    """A way to write a date, with the groups of its year, month and day."""

    pattern: re.Pattern[str]
    year: int
    month: int
    day: int


@cache
def _date_patterns() -> tuple[DatePattern, ...]:
    month = "|".join(sorted(MONTHS, key=len, reverse=True))
    iso = r"(?<!\d)(\d{4})-(\d\d)-(\d\d)(?!\d)"
    month_first = rf"\b({month})\.?\s+(\d\d?)(?:st|nd|rd|th)?,?\s+(\d{{4}})\b"
    day_first = rf"\b(\d\d?)(?:st|nd|rd|th|\.)?\s+(?:of\s+)?({month})\.?,?\s+(\d{{4}})\b"
    return (
        DatePattern(re.compile(iso), year=1, month=2, day=3),
        DatePattern(re.compile(month_first), year=3, month=1, day=2),
        DatePattern(re.compile(day_first), year=3, month=2, day=1),
    )


def full_dates(text: str) -> list[date]:
    """Return the first different dates of a text, in order. Only the text around a year is parsed."""
    dates: dict[date, None] = {}
    # Years of this century are searched first: only the expressions would take 15 ms for a prompt of 88 kB, this takes
    # .1.
    position = text.find("20")
    while position >= 0 and len(dates) < INPUT_LIMITS.dates:
        # "v2024" and "12024" are not years.
        if text[position : position + 4].isdigit() and not text[position - 1 : position].isalnum():
            # Before a year there may be "21st of September, ", after it the rest of an ISO date.
            window = text[max(0, position - 24) : position + 11].lower()
            for written in _date_patterns():
                day = _date_at(window, min(position, 24), written)
                if day is not None:
                    dates[day] = None
        position = text.find("20", position + 2)
    return list(dates)


def _date_at(window: str, year_at: int, written: DatePattern) -> date | None:
    """Return the date whose year begins at a position of a text, if it is valid."""
    for match in written.pattern.finditer(window):
        if match.start(written.year) == year_at:
            month = match[written.month]
            try:
                return date(int(match[written.year]), MONTHS.get(month) or int(month), int(match[written.day]))
            except ValueError:
                return None
    return None
