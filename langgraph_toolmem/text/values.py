"""The values that a text contains, and texts as a source of argument values.

A date, a telephone number or a file is recognised by its form alone (`Look`), names of people and things by their
capitals or a possessive. The caller chooses the kinds to look for (`RANKED`, `WHOLE_VALUES`, `KINDS`). A kind that is
not looked for may be taken for another one: a telephone number for a number.

A value that the model copied from a text is described by its place ("the word after *order number*", "the first token
shaped #A9999999"), so that it can be found again in another text. So the words of a `Text` keep their signs ("#W17",
"a.b@c.de"), their accents and their places, which `text.words.words` removes.

"Pay Anna Petit 12.50" contains "Anna", "Anna Petit" and "Anna Petit 12.50" after "pay". The memory learns which of them
a tool takes, so each possible end of a value has a name, its *extent*.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias

from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.text.words import LEXICON, has_digit, word_set

Kind: TypeAlias = Literal[
    "EMAIL", "URL", "DATE", "TIME", "AMOUNT", "PERCENT", "ID", "NUMBER", "PHONE", "FILE", "TEXT", "NAME", "DAY", "QUOTE"
]
"""TEXT: in quotes, or a secret. DAY: a weekday. QUOTE: in quotes, before the kind of the quoted text is known."""
WHOLE_VALUES: Final[frozenset[Kind]] = frozenset(
    {"EMAIL", "URL", "DATE", "TIME", "AMOUNT", "PERCENT", "ID", "NUMBER", "PHONE", "FILE"}
)
"""Kinds that the form of a value shows without the text around it."""
RANKED: Final[frozenset[Kind]] = WHOLE_VALUES | {"DAY"}
"""Kinds that are removed before requests are compared: they vary within one kind of request."""
KINDS: Final[frozenset[Kind]] = WHOLE_VALUES | {"TEXT", "NAME"}
"""All kinds. A weekday is a DATE here."""
PLAIN: Final[frozenset[Kind]] = frozenset({"EMAIL", "URL", "DATE", "TIME", "PHONE", "AMOUNT"})
"""Kinds that the form of a value shows, for any name of its parameter."""
MAX_CHARS: Final = 6000
"""Characters of a text that are read."""


class TextValue(NamedTuple):
    """A value in a text: its kind and its place."""

    kind: Kind
    text: str
    start: int
    end: int


class _Taken:
    """The characters of a text that belong to found values."""

    def __init__(self, length: int) -> None:
        self._flags = bytearray(length)

    def add(self, start: int, end: int) -> None:
        self._flags[start:end] = b"\1" * (end - start)

    def overlaps(self, start: int, end: int) -> bool:
        return any(self._flags[start:end])


@cached(mebibytes=6)
def values_in(text: str, kinds: frozenset[Kind] = KINDS) -> tuple[TextValue, ...]:
    """Return the values of some kinds in a text, in order; they do not overlap.

    At most 400, of the first MAX_CHARS characters. A text in quotes is one value: TEXT if its form shows no other kind.

    >>> [(v.kind, v.text) for v in values_in("Mail ann@x.org the file 'a.txt' by Friday")]
    [('EMAIL', 'ann@x.org'), ('FILE', 'a.txt'), ('DATE', 'Friday')]
    """
    max_values = 400
    text = text[:MAX_CHARS]
    values = list(_by_looks(text, kinds))
    if "NAME" in kinds:
        values += _names_between(text, values)
        values.sort(key=_start_of)
    return tuple(values[:max_values])


def _start_of(value: TextValue) -> int:
    return value.start


def _by_looks(text: str, kinds: frozenset[Kind]) -> Iterator[TextValue]:
    pattern, kind_by_group = scanner(kinds)
    for match in pattern.finditer(text):
        group = match.lastindex or 0
        kind = kind_by_group[group]
        if kind in ("QUOTE", "TEXT", "NAME"):
            group = _inner_group(match, group)
        if kind == "QUOTE":
            kind = kind_of(match[group]) or "TEXT"
        yield TextValue(kind, match[group], *match.span(group))


def _inner_group(match: re.Match[str], outer: int) -> int:
    """Return the number of the group within a look that contains the value."""
    group = outer + 1
    while match.start(group) < 0:
        group += 1
    return group


def _names_between(text: str, values: list[TextValue]) -> list[TextValue]:
    """Return the names in a text outside the found values."""
    taken = _Taken(len(text))
    for value in values:
        taken.add(value.start, value.end)
    names: list[TextValue] = []
    for start, end in name_spans(text):
        if start < end and not taken.overlaps(start, end):
            names.append(TextValue("NAME", text[start:end], start, end))
    return names


@cached(mebibytes=2)
def kind_of(value: str) -> Kind | Literal[""]:
    """Return the kind of a whole value, one of WHOLE_VALUES; "" for words. A datetime is a DATE.

    >>> kind_of("2024-05-01 10:00:00"), kind_of("#W1234567"), kind_of("in progress")
    ('DATE', 'ID', '')
    """
    longest = 200  # characters: a longer text is words
    stripped = value.strip()
    if not stripped or len(stripped) > longest:
        return ""
    pattern, kind_by_group = scanner(WHOLE_VALUES)
    if match := pattern.fullmatch(stripped):
        return kind_by_group[match.lastindex or 0]
    # A code of any form, such as "A/12": it is the whole value, so no text around it can mislead.
    if " " not in stripped and has_digit(stripped):
        return "ID"
    return ""


def delexicalised(text: str, types: Mapping[str, str] | None = None) -> str:
    """Return the text with its values replaced by their types in angle brackets.

    >>> delexicalised("Return #W1234567 to ann@x.org", {"#W1234567": "ORDER_ID"})
    'Return <ORDER_ID> to <EMAIL>'

    Args:
        text: any text.
        types: types of known values, by value, including values without a typical form.
    """
    text = text[:MAX_CHARS]
    labels: dict[str, str] = {}
    if types is not None:
        for known, label in types.items():
            labels[known.lower()] = label
    slots: list[_TextSlot] = []
    taken = _Taken(len(text))
    for value in values_in(text):
        slots.append(_TextSlot(value.start, value.end, labels.get(value.text.lower(), value.kind)))
        taken.add(value.start, value.end)
    low = lowered(text)
    # Then the known values of any form; one inside of a recognised value is a part of that.
    for known in _longest_first(labels):
        for start in _whole(known, low):
            end = start + len(known)
            if not taken.overlaps(start, end):
                taken.add(start, end)
                slots.append(_TextSlot(start, end, labels[known]))
    parts: list[str] = []
    end_of_last = 0
    for slot in sorted(slots):
        parts += [text[end_of_last : slot.start], f"<{slot.label}>"]
        end_of_last = slot.end
    parts.append(text[end_of_last:])
    return " ".join("".join(parts).split())


class _TextSlot(NamedTuple):
    """A span of a text that a label replaces."""

    start: int
    end: int
    label: str


def _longest_first(values: Mapping[str, str]) -> list[str]:
    """Return the values that are long enough to search in a text; equally long ones by alphabet."""
    # One or two letters occur in other texts by chance.
    by_alphabet = sorted([value for value in values if len(value) > 2])
    return sorted(by_alphabet, key=len, reverse=True)


def lowered(text: str) -> str:
    """Return the text in lower case, each character in its place: the few that would become two are unchanged."""
    low = text.lower()
    if len(low) == len(text):
        return low
    # "İ" becomes "i" and a dot.
    return "".join(map(_lowered_char, text))


def _lowered_char(char: str) -> str:
    low = char.lower()
    if len(low) > 1:
        return char
    return low


def _whole(value: str, text: str) -> Iterator[int]:
    """Yield the positions of a value in a text as whole words."""
    # `str.find`, because `re` would keep an expression made of the value, which may be personal, in its cache.
    start = text.find(value)
    while start >= 0:
        end = start + len(value)
        if _is_of_word(text, start - 1) or _is_of_word(text, end):
            start = text.find(value, start + 1)
        else:
            yield start
            start = text.find(value, end)


def _is_of_word(text: str, place: int) -> bool:
    return 0 <= place < len(text) and (text[place].isalnum() or text[place] == "_")


# --- texts as a source ---


class WordSpan(NamedTuple):
    """The first and the last word of a part of a text."""

    first: int
    last: int


_WORD = re.compile(r"'s\b|[#@$]?\w(?:(?:(?!'s\b)[\w@.\-/:+&'])*\w)?|[^\w\s]")


@dataclass
class Text:
    """A tokenised text. `words[i]` is in lower case and spans `starts[i]:ends[i]` of `raw`."""

    raw: str
    words: list[str]
    starts: list[int]
    ends: list[int]

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """Word -> its indices."""
        places: dict[str, list[int]] = {}
        for index, word in enumerate(self.words):
            places.setdefault(word, []).append(index)
        return places

    @cached_property
    def shapes(self) -> dict[str, list[str]]:
        """Shape -> the original words that have it, in order."""
        by_shape: dict[str, list[str]] = {}
        for start, end in zip(self.starts, self.ends, strict=True):
            word = self.raw[start:end]
            shape = shape_of(word)
            if shape:
                by_shape.setdefault(shape, []).append(word)
        return by_shape

    def span(self, first: int, last: int) -> str:
        """Return the original text from word `first` to word `last`, both included."""
        return self.raw[self.starts[first] : self.ends[last]]

    def find(self, value: str) -> WordSpan | None:
        """Return the word span whose text equals `value`, ignoring case, or None."""
        # Longer values are prose, not values that a request names.
        max_chars, max_words = 400, 40
        if len(value) > max_chars:
            return None
        wanted = read_text(value).words
        if not wanted or len(wanted) > max_words:
            return None
        for first in self.places.get(wanted[0], ()):
            end = first + len(wanted)
            # Words are compared in lower case; the caller compares the case.
            if self.words[first:end] == wanted:
                return WordSpan(first, end - 1)
        return None


def _bytes_of_words(raw: str) -> int:
    # Bytes of a `Text` for each of its characters, with the tables that are made from it later (measured).
    bytes_a_character = 50
    return bytes_a_character * min(len(raw), MAX_CHARS)


@cached(mebibytes=8, weigh=_bytes_of_words)
def read_text(raw: str) -> Text:
    """Tokenise a text; the result is shared, so do not change it."""
    raw = raw[:MAX_CHARS]
    words, starts, ends = [], [], []
    for match in _WORD.finditer(raw):
        words.append(match.group().lower())
        starts.append(match.start())
        ends.append(match.end())
    return Text(raw, words, starts, ends)


def is_word(token: str) -> bool:
    """Return True if a token is more than a punctuation mark."""
    return len(token) > 1 or token.isalnum()


@cached(mebibytes=2)
def shape_of(token: str) -> str | None:
    """Return the shape of an identifier-like token: e-mail, date, or its letters and digits classed one by one.

    Plain words have no shape: "the first lower-case word" is not specific.
    """
    if not token:
        return None
    kind = kind_of(token)
    if kind == "EMAIL":
        return "<email>"
    if kind == "DATE" and token[4:5] == "-":
        if len(token) > 10:
            return "<datetime>"
        return "<date>"
    if "/" in token or "\\" in token:
        return "<path>"
    return _shape_by_signs(token, kind)


def _shape_by_signs(token: str, kind: str) -> str | None:
    if not has_digit(token):
        return _shape_without_digits(token, kind)
    if not token.isdigit():
        return _shape_with_digits(token, kind)
    if len(token) > 3:
        return f"<digits{len(token)}>"
    return "<number>"


def _shape_with_digits(token: str, kind: str) -> str:
    is_plain_number = kind == "NUMBER" and token[0] != "#" and token[-1].isdigit()
    if is_plain_number or kind in ("AMOUNT", "PERCENT"):
        return "<number>"
    digits_classed = re.sub(r"\d", "9", token)
    capitals_classed = re.sub("[A-Z]", "A", digits_classed)
    return re.sub("[a-z]", "a", capitals_classed)


def _shape_without_digits(token: str, kind: str) -> str | None:
    if token[0] in "#@$":
        return token[0] + "<word>"
    if kind == "FILE":
        return "<file>"
    if "_" in token:
        return "<underscored>"
    return None


@cached(mebibytes=1)
def dates_in(raw: str) -> tuple[str, ...]:
    """Return the dates named by month and day in a text, in order: ``"11-21"`` for *November 21st* or *21 Nov*."""
    dates: list[str] = []
    for value in values_in(raw, frozenset({"DATE"})):
        date = _month_and_day(value.text.lower())
        if date:
            dates.append(date)
    return tuple(dates)


def _month_and_day(date: str) -> str:
    """Return a date as "MM-DD"; "" if month or day is missing."""
    for word in re.finditer(r"[a-z]+", date):
        if word[0] not in MONTHS:
            continue
        day = re.search(r"(?<!\d)\d\d?(?!\d)", f"{date[: word.start()]} {date[word.end() :]}")
        if day is None or not 1 <= int(day[0]) <= 31:
            return ""
        return f"{MONTHS[word[0]]:02d}-{int(day[0]):02d}"
    return ""


@cached(mebibytes=4)
def pieces_of(text: str) -> frozenset[str]:
    """Return the runs of letters and digits of a text, in lower case."""
    return frozenset([piece.lower() for piece in re.findall(r"\w+", text)])


# --- extents ---

Extent: TypeAlias = Literal["first", "last", "name", "joined", "numbered", "token"]
Span: TypeAlias = tuple[int, int]
UNTIL: Final = ">"
"""Begins an extent that ends before a known word: ``">please"``, ``">."`` for a mark or the end."""
TEXT_END: Final = "."
"""Written for a punctuation mark, or the end of a line."""
A_NUMBER: Final = "#"
"""Written for a number or an identifier."""


def is_name(token: str) -> bool:
    """Return True for a word with a capital, or of a script without capitals.

    >>> is_name("Anna"), is_name("王伟"), is_name("anna"), is_name("12.50")
    (True, True, False, False)
    """
    if has_digit(token):
        return False
    for char in token:
        if _marks_name(char):
            return True
    return False


def _marks_name(char: str) -> bool:
    """Return True for a capital, or a letter of a script without capitals."""
    return char.isupper() or (char.isalpha() and char.lower() == char.upper())


@cached(mebibytes=2)
def extents(raw: str, start: int) -> dict[Extent, Span]:
    """Return the possible extents of a value that begins at word `start` of a text; {} if only the words
    after it can show its end.

    >>> text = "Pay Maria del Carmen 12.50"
    >>> read_text(text).span(*extents(text, 1)["joined"])
    'Maria del Carmen'
    """
    text = read_text(raw)
    first = _original(text, start)
    if has_digit(first):
        return {"token": (start, start), "numbered": (start, _run(text, start, numbers=True))}
    if not is_name(first):
        return {}
    end = _run(text, start, numbers=False)
    return {
        "first": (start, start),
        "last": (end, end),
        "name": (start, end),
        "joined": (start, _joined(text, end)),
        "numbered": (start, _run(text, start, numbers=True)),
    }


def is_open(text: Text, first: int, last: int, *, first_word: bool = False) -> bool:
    """Return True if a name continues before or after a span, so that the span may be a part of it.

    The first word of a text always has a capital; it counts with `first_word`.
    """
    if not is_name(_original(text, last)) and not is_name(_original(text, first)):
        return False
    end = _joined(text, _run(text, last, numbers=False))
    # "Maria" continues in "Maria del Carmen".
    if end > last:
        return True
    earliest = 1
    if first_word:
        earliest = 0
    return first > earliest and _adjacent(text, first - 1) and is_name(_original(text, first - 1))


def name_start(text: Text, index: int) -> int:
    """Return the first word of the names that end with a word, or continue after it."""
    while index > 0 and is_name(_original(text, index)) and is_name(_original(text, index - 1)):
        if not _adjacent(text, index - 1):
            break
        index -= 1
    return index


def right_of(text: Text, last: int) -> str:
    """Return the word after a span, as `UNTIL` extents write it."""
    if last + 1 >= len(text.words) or not _adjacent(text, last):
        return TEXT_END
    following = text.words[last + 1]
    if not is_word(following):
        return TEXT_END
    # The following number belongs to the request, not to the place.
    if has_digit(following):
        return A_NUMBER
    return following


def after_name(text: Text, last: int) -> str:
    """Return the word after a name that ends with word `last`, if it may belong to the name; otherwise ""."""
    if last + 1 >= len(text.words) or not is_name(_original(text, last)):
        return ""
    if is_name(_original(text, last + 1)):
        return ""
    following = right_of(text, last)
    if following in (TEXT_END, A_NUMBER):
        return ""
    return following


def until(text: Text, start: int, right: str) -> Span | None:
    """Return the span from word `start` to the word before `right`; None if `right` does not follow soon."""
    max_words = 6  # of a value: in a longer text the word may be unrelated
    for last in range(start, min(start + max_words, len(text.words))):
        if not is_word(text.words[last]):
            return None
        following = right_of(text, last)
        if following == right:
            return start, last
        if following == TEXT_END:
            return None
    return None


def _original(text: Text, index: int) -> str:
    return text.raw[text.starts[index] : text.ends[index]]


def _adjacent(text: Text, index: int) -> bool:
    """Return True if word `index` and the next one are in one line."""
    return "\n" not in text.raw[text.ends[index] : text.starts[index + 1]]


def _run(text: Text, start: int, *, numbers: bool) -> int:
    """Return the last word of the names (and numbers) that follow each other from `start` on."""
    last = start
    while last + 1 < len(text.words) and _adjacent(text, last):
        token = _original(text, last + 1)
        belongs = is_name(token) or (numbers and has_digit(token))
        if not belongs:
            break
        last += 1
    return last


def _joined(text: Text, end: int) -> int:
    """Return the last word of a name that continues after joiners: "Maria" -> "Maria del Carmen"."""
    while True:
        following = _after_joiners(text, end)
        if following is None:
            return end
        end = _run(text, following, numbers=False)


def _after_joiners(text: Text, end: int) -> int | None:
    """Return the word at which a name continues after one or two joiners, in the same line."""
    max_joiners = 2  # "Count of the Alps"
    following = end + 1
    while following < len(text.words) and following - end <= max_joiners and _joins(text, following):
        following += 1
    has_joiners = following > end + 1
    if not has_joiners or following >= len(text.words) or not is_name(_original(text, following)):
        return None
    for index in range(end, following):
        if not _adjacent(text, index):
            return None
    return following


def _joins(text: Text, index: int) -> bool:
    """Return True for a word that may be inside a name: "del", "van", "of", "&"."""
    max_letters = 3
    token = text.words[index]
    # "Johnson & Johnson".
    if token == "&":
        return True
    return token.isalpha() and len(token) <= max_letters and not is_name(_original(text, index))


# --- looks: one regular expression for each kind of value ---


def _month_numbers() -> dict[str, int]:
    names = "january february march april may june july august september october november december"
    numbers = {"sept": 9}
    for number, name in enumerate(names.split(), start=1):
        numbers[name] = number
        numbers[name[:3]] = number
    return numbers


MONTHS: Final = _month_numbers()
"""Number of a month by its English name or abbreviation in lower case."""
WEEKDAYS: Final = word_set("monday tuesday wednesday thursday friday saturday sunday")


class Look(NamedTuple):
    """The form of one kind of value.

    Attributes:
        kind: the kind of the values. A QUOTE may contain a value of any kind.
        pattern: a regular expression. If it has a group, the group is the value.
    """

    kind: Kind
    pattern: str


class Scanner(NamedTuple):
    """The looks of some kinds in one expression.

    Attributes:
        pattern: the expression.
        kinds: the kind of each group of the pattern, by the number of the group. Group 0 is not used.
    """

    pattern: re.Pattern[str]
    kinds: list[Kind]


@lru_cache
def scanner(kinds: frozenset[Kind]) -> Scanner:
    """Return one expression for several kinds. Of two values that begin at the same place, the first look counts."""
    patterns: list[str] = []
    by_group: list[Kind] = ["QUOTE"]
    for look in _looks():
        kind = look.kind
        if kind == "DAY" and kinds == KINDS:
            kind = "DATE"
        wanted = kind in kinds or (kind == "QUOTE" and "TEXT" in kinds)
        if not wanted:
            continue
        patterns.append(f"({look.pattern})")
        # The groups within a look have its kind, so that `lastindex` of a match gives it.
        by_group += [kind] * (1 + re.compile(look.pattern).groups)
    # One expression for all kinds reads a text once. No look begins within a word of plain letters.
    pattern = re.compile(rf"(?<![a-zA-Z])(?:{'|'.join(patterns)})", re.IGNORECASE | re.DOTALL)
    return Scanner(pattern, by_group)


def _looks() -> tuple[Look, ...]:
    """Return the looks of all kinds, in the order in which they are tried: a date is not a telephone number.

    Repeats are bounded, and a look begins only where it cannot have begun a sign earlier: otherwise a text of equal
    signs takes quadratic time (tests/unit/test_linear_expressions.py).
    """
    iso_date = r"\d{4}-\d\d?-\d\d?"
    clock = r"\d\d?:\d\d(?::\d\d(?:\.\d+)?)?"
    day_of_month = r"\d\d?(?:st|nd|rd|th)?"
    of_year = r"(?:(?:,|\s+of)?\s+\d{4}\b)?"
    month = _any_of(MONTHS)
    weekday = _any_of(WEEKDAYS)
    currency_code = _any_of(word_set("usd eur gbp jpy chf cad aud inr rmb cny"))
    currency = rf"(?:US|A|C)?[$€£¥₹]|{currency_code}\b"
    return (
        Look("QUOTE", _quoted()),
        # A secret after its name, without the mark that ends the sentence.
        Look(
            "TEXT",
            r"\b(?:password|passcode|passphrase|pin|secret|api[ _-]?key|access token|cvv|otp)(?:\s+is|\s*[:=])\s*"
            r"(?=[^\s\"'“‘`<])(\S*[^\s.,;:!?)])",
        ),
        Look("EMAIL", r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64})+"),
        Look("URL", r"\bhttps?://[^\s<>\"')\]]*[^\s<>\"')\].,;:!?]|(?<![\w@/.])www\.[\w-]+\.[^\s,;]*[^\s,;.:!?)'\"]"),
        # ISO, figures, "3rd of May 2024", "May 3", "in May": a month alone may be a verb or a name.
        Look(
            "DATE",
            rf"(?<![\w-]){iso_date}(?:[T ]{clock}(?:Z|[+-]\d\d:?\d\d)?)?(?![\w-])"
            r"|(?<![\w.])(?:\d{4}(?P<s>[./])\d\d?(?P=s)\d\d?|\d\d?(?P<t>[./-])\d\d?(?P=t)(?:19|20)?\d\d)(?![\w/]|\.\d)"
            rf"|(?<!\w){day_of_month}\s+(?:of\s+)?{month}(?!\w)\.?{of_year}"
            rf"|(?<!\w){month}(?:\.?\s+{day_of_month}\b(?:,?\s+\d{{4}}\b)?|[.,]?\s+\d{{4}}\b)"
            rf"|(?:(?<=\bin )|(?<=\bsince )|(?<=\bof )){month}(?!\w|\s+\d)",
        ),
        Look("DAY", rf"\b{weekday}s?\b"),
        # A card's number is one value, not four numbers.
        Look("ID", r"(?<![\w.])(?:\d{4}[ -]){3}\d{4}(?!\w)"),
        Look(
            "PHONE",
            r"(?<![\w-])(?:\+\d[\d ().-]{6,16}\d|\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}|0\d{1,5}[/ -]\d{5,9})(?![\w-])",
        ),
        Look("TIME", rf"\b{clock}(?:\s*[ap]\.?m\b\.?)?|\b\d{{1,2}}\s*[ap]\.?m\b\.?"),
        Look("PERCENT", r"(?<![\w.,])\d+(?:[.,]\d+)?\s*(?:%|percent\b)"),
        Look(
            "AMOUNT",
            rf"(?<!\w)(?=[a-z]{{0,3}}\W?\s?\d)(?:{currency})\s?\d[\d.,]*k?(?<![.,])(?!\w)"
            r"|(?<![\w#])(?<!\d[.,])(?<![.,][.,])\d(?:[\d.,]*\d)?k?\s?"
            rf"(?:[$€£¥₹]|(?:dollars?|euros?|pounds?|cents?|bucks|rupees?|{currency_code})\b)",
        ),
        Look(
            "FILE",
            r"(?<![\w@/.~-])(?:[\w~-]*/)*[\w~-]+\.(?=[a-z])[a-z0-9]{2,5}\b(?!@)|(?<![\w:/])~?(?:/[\w.-]+)+",
        ),
        # "30-minute" is a number with a unit, and would be an id otherwise.
        Look("NUMBER", r"(?<!\w)(?=[\w-]{3})\d+[-_]?[a-z]{1,9}(?![\w-])"),
        # Letters and digits together; below three signs in capitals only: "Q1", "12B".
        Look("ID", r"(?<!\w)#?(?=[a-z_-]{0,63}\d)(?=[\d_-]{0,63}[a-z])[\w-]{3,64}"),
        Look("ID", r"(?-i:(?<![\w#.-])#?(?:[A-Z]{1,3}\d{1,4}[A-Z]?|\d{1,3}[A-Z])(?![\w-]))"),
        Look("NUMBER", r"(?<!\w)#?\d[\d,]*(?:\.\d+)?\b"),
        Look("NAME", r"(?<![\w@.])@(\w[\w.-]{1,38}\w)"),
    )


def _quoted() -> str:
    """Return an expression for a text in quotes, with the text as a group."""

    def between(opening: str, closing: str, space: str = "") -> str:
        return rf"{opening}{space}([^{opening}]{{1,2000}}?){space}{closing}"

    def between_equal(sign: str) -> str:
        # A third sign may only be inside a word ("don't"), so that one text is not read as two quotes.
        return rf"{sign}((?:[^{sign}]|(?<=\w){sign}(?=\w)){{1,2000}}?){sign}"

    same = [between_equal("'"), between_equal('"'), between_equal("`")]
    pairs = "|".join([*same, between("“", "”"), between("‘", "’"), between("„", "“")])
    brackets = "|".join([between("«", "»", r"\s?"), between("「", "」"), between("『", "』")])
    return rf"(?<!\w)(?:{pairs})(?!\w)|{brackets}"


def _any_of(names: Iterable[str]) -> str:
    """Return an expression for any of the names, longer ones first: an alternation takes the first that matches."""
    return f"(?:{'|'.join(sorted(names, key=len, reverse=True))})"


# --- names ---


def _letters() -> tuple[str, str]:
    """Return the upper and lower case of Latin, Greek and Cyrillic for a class: `re` has no classes for them."""
    upper, lower = "A-Z", "a-z"
    for letter in map(chr, range(0xC0, 0x590)):
        if letter.isupper():
            upper += letter
        elif letter.islower():
            lower += letter
    return upper, lower


_UPPER, _LOWER = _letters()
# Repeats are bounded so that a text of equal signs takes linear time (tests/unit/test_linear_expressions.py).
_CAPITALISED = re.compile(
    rf"\b[{_UPPER}][\w'-]{{0,60}}?[{_LOWER}][\w'-]*"
    rf"(?:\s+(?:(?:of|de|van|von|la|di|da|al|bin|ibn)\s+(?:(?:der|den|la)\s+)?)?[{_UPPER}][\w'-]*)*"
)
# A first name with an inner capital: "McDonald", "O'Neil".
_INNER_CAPITAL = re.compile(rf"(?:Mac|Mc|O['’]|[DL]['’])[{_UPPER}][{_LOWER}]+")
_SENTENCE_BEGINS = re.compile(r"(?:^|[.!?:;\n•*-])\s{0,6}[\"'“‘(]{0,6}$")
_OWNER = re.compile(r"\b([a-z][\w-]{2,60})['’]s\b")


def name_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of the names in a text, those with a capital first; a span may be empty."""
    for match in _CAPITALISED.finditer(text):
        yield _without_common_words(text, match.start(), match.end())
    for match in _OWNER.finditer(text):
        if match[1] not in LEXICON.not_owners:
            yield match.span(1)


def _without_common_words(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a span without leading words that are not names, and without a possessive 's at its end."""
    # The first word of a sentence always has a capital; only an inner capital counts: "McDonald".
    begins_sentence = _SENTENCE_BEGINS.search(text[max(0, start - 6) : start]) is not None
    is_skipped = begins_sentence and not _INNER_CAPITAL.match(text, start)
    while start < end:
        word, space, _ = text[start:end].partition(" ")
        is_common = word[:1].islower() or word.lower().replace("’", "'") in LEXICON.no_names
        if not is_skipped and not is_common:
            break
        start += len(word) + len(space)
        is_skipped = False
    if text[start:end].endswith(("'s", "’s")):
        end -= 2
    return start, end
