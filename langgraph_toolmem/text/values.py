"""The values that stand in a text, by their looks, and texts as a source of argument values.

Each kind is known by its shape: mail address, link, date, weekday, time, percentage, amount of money, telephone number,
file, identifier, number, what stands in quotes, and names by their capitals, an "@" or a possessive. Who reads a text
says which kinds are looked for (`RANKED`, `WHOLE`, `KINDS`); what is not looked for may be taken for something else: a
telephone number for a number.

A value that the model copied from a text is described by where it stood ("the word after *order number*", "the first
token shaped #A9999999"), so that it can be found again in another text. So the words of a `Text` keep their signs
("#W17", "a.b@c.de"), their accents and their places, which `text.words.words` takes away.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.text.words import word_set

_MONTHS: Final = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
MONTHS: Final = {form: n for n, name in enumerate(_MONTHS, start=1) for form in (name, name[:3])} | {"sept": 9}
"""Number of a month by its English name or abbreviation in lower case."""
WEEKDAYS: Final = word_set("monday tuesday wednesday thursday friday saturday sunday")


def _any_of(names: Iterable[str]) -> str:
    return f"(?:{'|'.join(sorted(names, key=len, reverse=True))})"


_MONTH_NAME: Final = _any_of(MONTHS)
_WEEKDAY: Final = _any_of(WEEKDAYS)

EMAIL, URL, DATE, TIME, AMOUNT, PERCENT, ID, NUMBER = (
    "EMAIL", "URL", "DATE", "TIME", "AMOUNT", "PERCENT", "ID", "NUMBER",
)  # fmt: skip
PHONE, FILE, TEXT, NAME, DAY = "PHONE", "FILE", "TEXT", "NAME", "DAY"
"""TEXT: in quotes, or a secret. DAY: a weekday."""
_QUOTE: Final = "QUOTE"
"""A value of any kind, TEXT if it has no other."""
WHOLE: Final = frozenset({EMAIL, URL, DATE, TIME, AMOUNT, PERCENT, ID, NUMBER, PHONE, FILE})
"""Kinds that the form of a value shows without the text around it."""
RANKED: Final = WHOLE | {DAY}
"""Kinds that are removed before requests are compared: they vary within one kind of request."""
KINDS: Final = WHOLE | {TEXT, NAME}
"""All kinds: a weekday is a DATE unless it is looked for by itself."""
PLAIN: Final = frozenset({EMAIL, URL, DATE, TIME, PHONE, AMOUNT})
"""Kinds that the form of a value shows whatever the name of its parameter."""

MAX_CHARS: Final = 6000
MAX_VALUES: Final = 400
_LONGEST: Final = 200
"""Characters of a whole value; longer ones are words."""
_SAME: Final = "|".join(rf"{sign}((?:[^{sign}]|(?<=\w){sign}(?=\w)){{1,2000}}?){sign}" for sign in ("'", '"', "`"))
"""Between two equal signs: a third one stands only within a word ("don't"), so no text is read for two quotes."""


def _between(opening: str, closing: str, space: str = "") -> str:
    return rf"{opening}{space}([^{opening}]{{1,2000}}?){space}{closing}"


_PAIRS: Final = "|".join((_SAME, _between("“", "”"), _between("‘", "’"), _between("„", "“")))
_BRACKETS: Final = "|".join((_between("«", "»", r"\s?"), _between("「", "」"), _between("『", "』")))
_QUOTED: Final = rf"(?<!\w)(?:{_PAIRS})(?!\w)|{_BRACKETS}"
_ISO: Final = r"\d{4}-\d\d?-\d\d?"
_CLOCK: Final = r"\d\d?:\d\d(?::\d\d(?:\.\d+)?)?"
_DAY_OF_MONTH: Final = r"\d\d?(?:st|nd|rd|th)?"
_OF_YEAR: Final = r"(?:(?:,|\s+of)?\s+\d{4}\b)?"
_CODES: Final = word_set("usd eur gbp jpy chf cad aud inr rmb cny")
_CURRENCY: Final = rf"(?:US|A|C)?[$€£¥₹]|{_any_of(_CODES)}\b"
_LOOKS: Final = (
    (_QUOTE, _QUOTED),
    (
        TEXT,
        r"\b(?:password|passcode|passphrase|pin|secret|api[ _-]?key|access token|cvv|otp)(?:\s+is|\s*[:=])\s*"
        r"(?=[^\s\"'“‘`<])(\S*[^\s.,;:!?)])",
    ),
    (EMAIL, r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64})+"),
    (URL, r"\bhttps?://[^\s<>\"')\]]*[^\s<>\"')\].,;:!?]|(?<![\w@/.])www\.[\w-]+\.[^\s,;]*[^\s,;.:!?)'\"]"),
    (
        DATE,
        rf"(?<![\w-]){_ISO}(?:[T ]{_CLOCK}(?:Z|[+-]\d\d:?\d\d)?)?(?![\w-])"
        r"|(?<![\w.])(?:\d{4}(?P<s>[./])\d\d?(?P=s)\d\d?|\d\d?(?P<t>[./-])\d\d?(?P=t)(?:19|20)?\d\d)(?![\w/]|\.\d)"
        rf"|(?<!\w){_DAY_OF_MONTH}\s+(?:of\s+)?{_MONTH_NAME}(?!\w)\.?{_OF_YEAR}"
        rf"|(?<!\w){_MONTH_NAME}(?:\.?\s+{_DAY_OF_MONTH}\b(?:,?\s+\d{{4}}\b)?|[.,]?\s+\d{{4}}\b)"
        rf"|(?:(?<=\bin )|(?<=\bsince )|(?<=\bof )){_MONTH_NAME}(?!\w|\s+\d)",
    ),
    (DAY, rf"\b{_WEEKDAY}s?\b"),
    (ID, r"(?<![\w.])(?:\d{4}[ -]){3}\d{4}(?!\w)"),  # a card
    (PHONE, r"(?<![\w-])(?:\+\d[\d ().-]{6,16}\d|\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}|0\d{1,5}[/ -]\d{5,9})(?![\w-])"),
    (TIME, rf"\b{_CLOCK}(?:\s*[ap]\.?m\b\.?)?|\b\d{{1,2}}\s*[ap]\.?m\b\.?"),
    (PERCENT, r"(?<![\w.,])\d+(?:[.,]\d+)?\s*(?:%|percent\b)"),
    (
        AMOUNT,
        rf"(?<!\w)(?=[a-z]{{0,3}}\W?\s?\d)(?:{_CURRENCY})\s?\d[\d.,]*k?(?<![.,])(?!\w)"
        r"|(?<![\w#])(?<!\d[.,])(?<![.,][.,])\d(?:[\d.,]*\d)?k?\s?"
        rf"(?:[$€£¥₹]|(?:dollars?|euros?|pounds?|cents?|bucks|rupees?|{_any_of(_CODES)})\b)",
    ),
    (
        FILE,
        r"(?<![\w@/.~-])(?:[\w~-]*/)*[\w~-]+\.(?=[a-z])[a-z0-9]{2,5}\b(?!@)|(?<![\w:/])~?(?:/[\w.-]+)+",
    ),
    (NUMBER, r"(?<!\w)(?=[\w-]{3})\d+[-_]?[a-z]{1,9}(?![\w-])"),  # 30-minute
    (ID, r"(?<!\w)#?(?=[a-z_-]{0,63}\d)(?=[\d_-]{0,63}[a-z])[\w-]{3,64}"),
    (ID, r"(?-i:(?<![\w#.-])#?(?:[A-Z]{1,3}\d{1,4}[A-Z]?|\d{1,3}[A-Z])(?![\w-]))"),
    (NUMBER, r"(?<!\w)#?\d[\d,]*(?:\.\d+)?\b"),
    (NAME, r"(?<![\w@.])@(\w[\w.-]{1,38}\w)"),
)
"""Kinds and their looks. Of two that begin at the same place the first counts; a group is the value within."""
_SCRIPTS: Final = "".join(map(chr, range(0xC0, 0x590)))
_UPPER: Final = "A-Z" + "".join(filter(str.isupper, _SCRIPTS))
_LOWER: Final = "a-z" + "".join(filter(str.islower, _SCRIPTS))
_NAME = re.compile(
    rf"\b[{_UPPER}][\w'-]{{0,60}}?[{_LOWER}][\w'-]*"
    rf"(?:\s+(?:(?:of|de|van|von|la|di|da|al|bin|ibn)\s+(?:(?:der|den|la)\s+)?)?[{_UPPER}][\w'-]*)*"
)
_INNER = re.compile(rf"(?:Mac|Mc|O['’]|[DL]['’])[{_UPPER}][{_LOWER}]+")
_OWNER = re.compile(r"\b([a-z][\w-]{2,60})['’]s\b")
_NOT_OWNERS: Final = word_set(
    "it that what there here let who how where when she everyone everybody someone somebody one today tomorrow "
    "yesterday week month year day company team user customer system world"
)
_NO_NAMES: Final = word_set(
    "i i'm i'd i've i'll also otherwise additionally furthermore moreover afterwards subsequently finally next then "
    "once after before if when while since please thanks thank hello hi hey dear ok okay yes no not you your we our "
    "it it's its he she they this that these those there here what who how which where why can could would should the "
    "an and or but for to from in on at with by as my me let let's do does did is are was were be been"
)
_BEGINS = re.compile(r"(?:^|[.!?:;\n•*-])\s{0,6}[\"'“‘(]{0,6}$")


class Value(NamedTuple):
    """A value in a text: its kind, and where it stands."""

    kind: str
    text: str
    start: int
    end: int


def _shown(kind: str, kinds: frozenset[str]) -> str:
    """Return what a value of a kind is called; "" if it is not looked for."""
    if kind == DAY and kinds == KINDS:
        return DATE
    return kind if (TEXT if kind == _QUOTE else kind) in kinds else ""


@lru_cache
def scanner(kinds: frozenset[str]) -> tuple[re.Pattern[str], list[str]]:
    """Return the pattern of some kinds, and the kind that each of its groups has."""
    looks = [(shown, look) for kind, look in _LOOKS if (shown := _shown(kind, kinds))]
    either = "|".join(f"({look})" for _, look in looks)
    pattern = re.compile(rf"(?<![a-zA-Z])(?:{either})", re.IGNORECASE | re.DOTALL)
    return pattern, ["", *(kind for kind, look in looks for _ in range(1 + re.compile(look).groups))]


@cached(mebibytes=6)
def values_in(text: str, kinds: frozenset[str] = KINDS) -> tuple[Value, ...]:
    """Return the values of some kinds in a text, in order; they do not overlap.

    At most MAX_VALUES, of the first MAX_CHARS characters. What stands in quotes is one value: TEXT if its looks tell no
    other kind.

    >>> [(v.kind, v.text) for v in values_in("Mail ann@x.org the file 'a.txt' by Friday")]
    [('EMAIL', 'ann@x.org'), ('FILE', 'a.txt'), ('DATE', 'Friday')]
    """
    text = text[:MAX_CHARS]
    found = list(_by_looks(text, kinds))
    if NAME in kinds:
        taken = bytearray(len(text))
        for value in found:
            taken[value.start : value.end] = b"\1" * (value.end - value.start)
        found += (Value(NAME, text[a:b], a, b) for a, b in _names(text) if a < b and not any(taken[a:b]))
        found.sort(key=lambda value: value.start)
    return tuple(found[:MAX_VALUES])


def _by_looks(text: str, kinds: frozenset[str]) -> Iterator[Value]:
    pattern, by_group = scanner(kinds)
    for match in pattern.finditer(text):
        group = match.lastindex or 0
        kind = by_group[group]
        if kind in (_QUOTE, TEXT, NAME):  # the value is a group within
            group = next(inner for inner in range(group + 1, len(by_group)) if match.start(inner) >= 0)
            kind = (kind_of(match[group]) or TEXT) if kind == _QUOTE else kind
        yield Value(kind, match[group], *match.span(group))


def _names(text: str) -> Iterator[tuple[int, int]]:
    for match in _NAME.finditer(text):
        start, end = match.span()
        # The first word of a sentence has a capital anyway.
        begins = _BEGINS.search(text[max(0, start - 6) : start]) is not None and not _INNER.match(text, start)
        while start < end:
            first, space, _ = text[start:end].partition(" ")
            if not (begins or first[:1].islower() or first.lower().replace("’", "'") in _NO_NAMES):
                break
            start, begins = start + len(first) + len(space), False
        yield start, end - (2 if text[start:end].endswith(("'s", "’s")) else 0)
    yield from (match.span(1) for match in _OWNER.finditer(text) if match[1] not in _NOT_OWNERS)


def delexicalised(text: str, types: Mapping[str, str] | None = None) -> str:
    """Return the text with its values replaced by their types in angle brackets.

    >>> delexicalised("Return #W1234567 to ann@x.org", {"#W1234567": "ORDER_ID"})
    'Return <ORDER_ID> to <EMAIL>'

    Args:
        text: any text.
        types: types of known values, by value, also of those that looks do not tell.
    """
    types = {value.lower(): label for value, label in (types or {}).items()}
    text = text[:MAX_CHARS]
    spans = [(value.start, value.end, types.get(value.text.lower(), value.kind)) for value in values_in(text)]
    taken = bytearray(len(text))
    for start, end, _ in spans:
        taken[start:end] = b"\1" * (end - start)
    low = lowered(text)
    hidden = [value for value in types if len(value) > 2 and value in low]
    for known in sorted(hidden, key=lambda value: (-len(value), value)):
        for start in _whole(known, low):
            end = start + len(known)
            if not any(taken[start:end]):
                taken[start:end] = b"\1" * len(known)
                spans.append((start, end, types[known]))
    spans.sort()
    parts: list[str] = []
    end = 0
    for start, stop, label in spans:
        parts += [text[end:start], f"<{label}>"]
        end = stop
    return " ".join("".join([*parts, text[end:]]).split())


def lowered(text: str) -> str:
    """Return the text in lower case, each character in its place: the few that become two stay as they are."""
    low = text.lower()
    if len(low) == len(text):
        return low
    return "".join([char.lower() if len(char.lower()) == 1 else char for char in text])


def _whole(value: str, text: str) -> Iterator[int]:
    """Yield the places at which a value stands in a text, not within a word. No expression is made of the value:
    `re` would keep it."""
    start = text.find(value)
    while start >= 0:
        end = start + len(value)
        inside = _is_of_word(text, start - 1) or _is_of_word(text, end)
        if not inside:
            yield start
        start = text.find(value, start + 1 if inside else end)


def _is_of_word(text: str, place: int) -> bool:
    return 0 <= place < len(text) and (text[place].isalnum() or text[place] == "_")


@cached(mebibytes=2)
def kind_of(value: str) -> str:
    """Return the kind of a whole value, one of WHOLE; "" for words. A datetime is a DATE.

    >>> kind_of("2024-05-01 10:00:00"), kind_of("#W1234567"), kind_of("in progress")
    ('DATE', 'ID', '')
    """
    stripped = value.strip()
    if not stripped or len(stripped) > _LONGEST:
        return ""
    pattern, by_group = scanner(WHOLE)
    if match := pattern.fullmatch(stripped):
        return by_group[match.lastindex or 0]
    return ID if " " not in stripped and any(char.isdigit() for char in stripped) else ""


MAX_SPAN_WORDS: Final = 40

_WORD = re.compile(r"'s\b|[#@$]?\w(?:(?:(?!'s\b)[\w@.\-/:+&'])*\w)?|[^\w\s]")
_PIECE = re.compile(r"\w+")
_DATES: Final = frozenset({DATE})
BYTES_A_CHARACTER: Final = 50
"""Bytes of a `Text`, with the tables that are made of it later, for each of its characters (measured)."""


@dataclass
class Text:
    """A tokenised text. `words[i]` is lower-cased and spans `starts[i]:ends[i]` of `raw`."""

    raw: str
    words: list[str]
    starts: list[int]
    ends: list[int]

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """Word -> the indices at which it stands."""
        found: dict[str, list[int]] = {}
        for index, word in enumerate(self.words):
            found.setdefault(word, []).append(index)
        return found

    @cached_property
    def shapes(self) -> dict[str, list[str]]:
        """Shape -> the original words that have it, in order."""
        found: dict[str, list[str]] = {}
        for start, end in zip(self.starts, self.ends, strict=True):
            if shape := shape_of(self.raw[start:end]):
                found.setdefault(shape, []).append(self.raw[start:end])
        return found

    def span(self, first: int, last: int) -> str:
        """Return the original text from word `first` to word `last`, both included."""
        return self.raw[self.starts[first] : self.ends[last]]

    def find(self, value: str) -> tuple[int, int] | None:
        """Return the word span whose text equals `value`, ignoring case; None if it does not stand there whole."""
        wanted = read_text(value).words if len(value) <= 400 else []
        if not wanted or len(wanted) > MAX_SPAN_WORDS:
            return None
        n = len(wanted)
        for i in self.places.get(wanted[0], ()):
            if self.words[i : i + n] == wanted:
                return i, i + n - 1
        return None


def _bytes_of_words(raw: str) -> int:
    return BYTES_A_CHARACTER * min(len(raw), MAX_CHARS)


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

    Plain words have no shape: "the first lower-case word" tells nothing.
    """
    if not token:
        return None
    kind = kind_of(token)
    if kind == EMAIL:
        return "<email>"
    if kind == DATE and token[4:5] == "-":
        return "<datetime>" if len(token) > 10 else "<date>"
    if "/" in token or "\\" in token:
        return "<path>"
    if not any(c.isdigit() for c in token):
        if token[0] in "#@$":
            return token[0] + "<word>"
        if kind == FILE:
            return "<file>"
        return "<underscored>" if "_" in token else None
    if token.isdigit():
        return f"<digits{len(token)}>" if len(token) > 3 else "<number>"
    if kind in (AMOUNT, PERCENT) or (kind == NUMBER and token[0] != "#" and token[-1].isdigit()):
        return "<number>"
    return re.sub("[a-z]", "a", re.sub("[A-Z]", "A", re.sub(r"\d", "9", token)))


_MONTH = re.compile(r"[a-z]+")
_DAY = re.compile(r"(?<!\d)\d\d?(?!\d)")


@cached(mebibytes=1)
def dates_in(raw: str) -> tuple[str, ...]:
    """Return the dates named by month and day in a text, in order: ``"11-21"`` for *November 21st* or *21 Nov*."""
    found: list[str] = []
    for value in values_in(raw, _DATES):
        low = value.text.lower()
        month = next((word for word in _MONTH.finditer(low) if word[0] in MONTHS), None)
        day = None if month is None else _DAY.search(f"{low[: month.start()]} {low[month.end() :]}")
        if month is not None and day is not None and 1 <= int(day[0]) <= 31:
            found.append(f"{MONTHS[month[0]]:02d}-{int(day[0]):02d}")
    return tuple(found)


@cached(mebibytes=4)
def pieces_of(text: str) -> frozenset[str]:
    """Return the runs of letters and digits of a text, in lower case."""
    return frozenset(piece.lower() for piece in _PIECE.findall(text))
