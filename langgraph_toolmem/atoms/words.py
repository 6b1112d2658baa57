"""Values in a text, found by their looks, and texts with their values taken out.

Common kinds are known by shape: mail address, URL, date, time, amount, percentage, identifier, number, phone number,
file, what stands in quotes, and names by their capitals, an "@" or a possessive. Dates in words ("tomorrow", "last 3
days") are dates. A value is given the type that stands beside it where one does: "order #W17", "my user id is 'U5'".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from langgraph_toolmem.words.features import words
from langgraph_toolmem.words.meaning import canonical_words
from langgraph_toolmem.words.text import shape_of
from langgraph_toolmem.words.vocabulary import word_set
from langgraph_toolmem.words.wording import is_usual, typed_values

MAX_CHARS: Final = 6000
MAX_VALUES: Final = 100
WINDOW: Final = 4
"""Words before a value that may say what it is."""

EMAIL, URL, DATE, TIME, AMOUNT, PERCENT, ID, NUMBER = (
    "EMAIL",
    "URL",
    "DATE",
    "TIME",
    "AMOUNT",
    "PERCENT",
    "ID",
    "NUMBER",
)
PHONE, FILE, TEXT, NAME = "PHONE", "FILE", "TEXT", "NAME"
KINDS: Final = frozenset({EMAIL, URL, DATE, TIME, AMOUNT, PERCENT, ID, NUMBER, PHONE, FILE, TEXT, NAME})
"""The common types."""
PLAIN: Final = frozenset({EMAIL, URL, DATE, TIME, PHONE, AMOUNT})
"""Types that the looks of a value tell for sure, whatever its parameter is called."""

_TYPES: Final = {
    "<mail>": EMAIL, "<url>": URL, "<date>": DATE, "<day>": DATE, "<time>": TIME, "<percent>": PERCENT,
    "<money>": AMOUNT, "<id>": ID, "<number>": NUMBER,
}  # fmt: skip
_UNIT: Final = r"(?:minute|hour|day|week|weekend|month|quarter|year|night|morning|afternoon|evening)s?"
_RELATIVE = re.compile(
    rf"\b(?:today|tonight|tomorrow|yesterday|(?:the\s+)?(?:next|last|past|previous|coming|following|this)"
    rf"\s+(?:\d+\s+|few\s+|couple\s+of\s+)?(?:{_UNIT}|(?:mon|tues|wednes|thurs|fri|satur|sun)day)"
    rf"|\d+\s+{_UNIT}\s+(?:ago|from\s+now))\b",
    re.IGNORECASE,
)
_ISO = re.compile(r"\d{4}-\d\d?-\d\d?(?:[T ]\d\d?:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?")
_MONTH: Final = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DATE = re.compile(
    r"(?<![\w.])(?:\d{4}([./])\d\d?\1\d\d?|\d\d?([./-])\d\d?\2(?:19|20)?\d\d)(?![\w/]|\.\d)"
    rf"|\b\d\d?(?:st|nd|rd|th)?\s+(?:of\s+)?{_MONTH}\s+\d{{4}}\b|\b{_MONTH},?\s+\d{{4}}\b"
    rf"|(?<=\bin ){_MONTH}(?!\w|\s+\d)|(?<=\bsince ){_MONTH}(?!\w|\s+\d)|(?<=\bof ){_MONTH}(?!\w|\s+\d)",
    re.IGNORECASE,
)
_CURRENCY: Final = r"(?:US|A|C)?[$€£¥₹]|(?:usd|eur|gbp|jpy|chf|cad|aud|inr|rmb|cny)\b"
_COUNTED: Final = (
    r"(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen|"
    r"(?:twen|thir|for|fif|six|seven|eigh|nine)ty|hundred|thousand|million)"
)
_AMOUNT = re.compile(
    rf"(?<!\w)(?:{_CURRENCY})\s?\d[\d.,]*k?(?<![.,])(?!\w)"
    rf"|(?<![\w#])(?:\d[\d.,]*k?|{_COUNTED}(?:[ -]{_COUNTED})*)\s?"
    r"(?:[$€£¥₹]|(?:dollars?|euros?|pounds?|cents?|bucks|rupees?|usd|eur|gbp|jpy|chf|cad|aud|inr|rmb|cny)\b)",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"(?<![\w.])(?:(?:\d{1,3}\.){3}\d{1,3}|(?:[\da-f]{2}[:-]){5}[\da-f]{2}|\d{3}-\d\d-\d{4}|(?:\d{4}[ -]){3}\d{4}"
    r"|[a-z]{2}\d\d(?: ?[\da-z]{4}){3,7}(?: ?[\da-z]{1,3})?)(?![\w]|\.\d)",
    re.IGNORECASE,
)
_SHORT_CODE = re.compile(r"(?<![\w#.-])#?(?:[A-Z]{1,3}\d{1,4}[A-Z]?|\d{1,3}[A-Z])(?![\w-])")
_WEB = re.compile(r"(?<![\w@/.])www\.[\w-]+\.[^\s,;]+", re.IGNORECASE)
_HANDLE = re.compile(r"(?<![\w@.])@(\w[\w.-]{1,38}\w)")
_TAG = re.compile(r"(?<![\w#&/])#([^\W\d_]\w{2,})")
_SECRET = re.compile(
    r"\b(?:password|passcode|passphrase|pin|secret|api[ _-]?key|access token|cvv|otp)(?:\s+is|\s*[:=])\s*"
    r"(?=[^\s\"'“‘`<])(\S*[^\s.,;:!?)])",
    re.IGNORECASE,
)
_QUOTED = re.compile(
    r"(?<!\w)(?:'(.{1,2000}?)'|\"(.{1,2000}?)\"|`(.{1,2000}?)`|“(.{1,2000}?)”|‘(.{1,2000}?)’)(?!\w)", re.DOTALL
)
_MEASURE = re.compile(r"\d+[-_]?[a-z]{1,9}s?", re.IGNORECASE)
_PHONE = re.compile(
    r"(?<![\w-])(?:\+\d[\d ().-]{6,16}\d|\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4}|0\d{1,5}[/ -]\d{5,9})(?![\w-])"
)
_FILE = re.compile(
    r"(?<![\w@/.])(?:[\w~-]*/)*[\w-]+\.(?=[a-z])[a-z0-9]{2,5}\b(?!@)|(?<![\w:/])~?(?:/[\w.-]+)+", re.IGNORECASE
)
_SCRIPTS: Final = "".join(map(chr, range(0xC0, 0x590)))
_UPPER: Final = "A-Z" + "".join(filter(str.isupper, _SCRIPTS))
_LOWER: Final = "a-z" + "".join(filter(str.islower, _SCRIPTS))
_NAME = re.compile(
    rf"\b[{_UPPER}][\w'-]*[{_LOWER}][\w'-]*(?:\s+(?:(?:of|de|van|von|la|di|da|al|bin|ibn)\s+(?:(?:der|den|la)\s+)?)?[{_UPPER}][\w'-]*)*"
)
_INNER = re.compile(rf"(?:Mac|Mc|O['’]|[DL]['’])[{_UPPER}][{_LOWER}]+")
_OWNER = re.compile(r"\b([a-z][\w-]{2,})['’]s\b")
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
_BEGINS = re.compile(r"(?:^|[.!?:;\n•*-])\s*[\"'“‘(]*$")
_UNDERSCORED = re.compile(r"(?<!\w)[A-Za-z]+(?:_[A-Za-z0-9]+)*_\d+\b")
_SLOT = re.compile(r"<[A-Z][A-Z0-9_]*>")


class Value(NamedTuple):
    """A value in a text: its kind, one of KINDS, and where it stands."""

    kind: str
    text: str
    start: int
    end: int


@lru_cache(maxsize=1024)
def values_in(text: str) -> tuple[Value, ...]:
    """The values of a text in order; they do not overlap. At most MAX_VALUES, of the first MAX_CHARS characters.

    >>> [(v.kind, v.text) for v in values_in("Mail ann@x.org the file 'a.txt' by last Friday")]
    [('EMAIL', 'ann@x.org'), ('FILE', 'a.txt'), ('DATE', 'last Friday')]
    """
    text = text[:MAX_CHARS]
    taken = bytearray(len(text))
    found: list[Value] = []

    def take(kind: str, start: int, end: int) -> None:
        if kind in (EMAIL, URL):
            end = start + len(text[start:end].rstrip(".,;:!?)'\""))
        if start < end and not any(taken[start:end]):
            found.append(Value(kind, text[start:end], start, end))
            taken[start:end] = b"\1" * (end - start)

    for start, end in quotes_in(text):
        take(kind_of(text[start:end]) or TEXT, start, end)
    for match in _SECRET.finditer(text):
        take(TEXT, *match.span(1))
    for kind, pattern in _FIRST:
        for match in pattern.finditer(text):
            take(kind, *match.span())
    for sort, start, end in typed_values(text):
        if _TYPES[sort] in (EMAIL, URL):
            take(_TYPES[sort], start, end)
    for match in _FILE.finditer(text):
        take(FILE, *match.span())
    for match in _UNDERSCORED.finditer(text):
        take(ID, *match.span())
    for sort, start, end in typed_values(text):
        take(NUMBER if sort == "<id>" and _MEASURE.fullmatch(text, start, end) else _TYPES[sort], start, end)
    for match in _SHORT_CODE.finditer(text):
        take(ID, *match.span())
    for kind, pattern in ((NAME, _HANDLE), (TEXT, _TAG)):
        for match in pattern.finditer(text):
            take(kind, *match.span(1))
    for match in _NAME.finditer(text):
        start, end = match.span()
        # The first word of a sentence has a capital anyway.
        begins = _BEGINS.search(text[max(0, start - 6) : start]) is not None and not _INNER.match(text, start)
        while True:
            first, space, _ = text[start:end].partition(" ")
            if not (begins or first[:1].islower() or first.lower().replace("’", "'") in _NO_NAMES):
                break
            start, begins = start + len(first) + len(space), False
            if not space:
                break
        take(NAME, start, end - (2 if text[start:end].endswith(("'s", "’s")) else 0))
    for match in _OWNER.finditer(text):
        if match[1] not in _NOT_OWNERS:
            take(NAME, *match.span(1))
    return tuple(sorted(found, key=lambda value: value.start)[:MAX_VALUES])


_FIRST: Final = (
    (URL, _WEB), (DATE, _ISO), (DATE, _DATE), (DATE, _RELATIVE), (ID, _CODE), (PHONE, _PHONE), (AMOUNT, _AMOUNT),
)  # fmt: skip
"""What is looked for before the types that requests are compared by."""


@lru_cache(maxsize=1024)
def quotes_in(text: str) -> tuple[tuple[int, int], ...]:
    """Where the parts of a text that stand in quotes begin and end, in order.

    >>> quotes_in("call it 'the plan'")
    ((9, 17),)
    """
    return tuple(match.span(match.lastindex or 0) for match in _QUOTED.finditer(text))


@lru_cache(maxsize=8192)
def kind_of(value: str) -> str:
    """The kind of a whole value; "" for words. A datetime is a DATE.

    >>> kind_of("2024-05-01 10:00:00"), kind_of("#W1234567"), kind_of("in progress")
    ('DATE', 'ID', '')
    """
    stripped = value.strip()
    if not stripped or len(stripped) > 200:
        return ""
    for kind, pattern in ((URL, _WEB), (DATE, _ISO), (DATE, _DATE), (ID, _CODE), (PHONE, _PHONE)):
        if pattern.fullmatch(stripped):
            return kind
    whole = next(((sort, a, b) for sort, a, b in typed_values(stripped) if (a, b) == (0, len(stripped))), None)
    if whole is not None and whole[0] != "<day>":
        return NUMBER if whole[0] == "<id>" and _MEASURE.fullmatch(stripped) else _TYPES[whole[0]]
    if _FILE.fullmatch(stripped):
        return FILE
    if " " not in stripped and any(char.isdigit() for char in stripped) and shape_of(stripped) is not None:
        return ID
    return ""


def labelled(text: str, value: Value, labels: Mapping[frozenset[str], str]) -> str:
    """The type that the words before a value give it; "" if they name none.

    Args:
        text: where the value stands.
        value: of `values_in`.
        labels: types by the words that make them up: {order, id} → ORDER_ID.
    """
    if value.kind in PLAIN or not labels:
        return ""
    # What stands in the sentence before says nothing of this value.
    before = canonical_words(words(_SENTENCES.split(text[max(0, value.start - 60) : value.start])[-1]))
    while before and before[-1] in _LINKS:
        before.pop()
    before = before[-(WINDOW if value.kind in (ID, NUMBER) else 2) :]
    near = set(before) | _JOINED.get(tuple(before[-2:]), frozenset())
    said = near | {"id"} if value.kind == ID else near
    fitting = [parts for parts in labels if parts <= said and parts & near]
    return labels[max(fitting, key=len)] if fitting else ""


_SENTENCES = re.compile(r"[.!?;]\s|\n")
_LINKS: Final = word_set("is are was be as of number nr no to the a an my his her their")
_JOINED: Final[Mapping[tuple[str, ...], frozenset[str]]] = {
    ("zip", "code"): frozenset({"zipcode"}),
    ("zipcode", "code"): frozenset({"zipcode"}),
}


def delexicalised(text: str, types: Mapping[str, str] | None = None, *, also: Iterable[str] = ()) -> str:
    """The text with its values replaced by their types in angle brackets.

    >>> delexicalised("Return #W1234567 to ann@x.org", {"#W1234567": "ORDER_ID"})
    'Return <ORDER_ID> to <EMAIL>'

    Args:
        text: any text.
        types: types of known values, by value, over what their looks say.
        also: further values to be replaced, which looks do not tell; those without a type become TEXT.
    """
    types = {value.lower(): label for value, label in (types or {}).items()}
    text = text[:MAX_CHARS]
    spans = [(value.start, value.end, types.get(value.text.lower(), value.kind)) for value in values_in(text)]
    low = text.lower()
    hidden = {value for value in also if len(value) > 2 and value.lower() in low}
    for each in sorted(hidden, key=lambda value: (-len(value), value)):
        spans += _spans_of(each, text, spans, types.get(each.lower(), TEXT))
    spans.sort()
    parts: list[str] = []
    end = 0
    for start, stop, label in spans:
        parts += [text[end:start], f"<{label}>"]
        end = stop
    return " ".join("".join([*parts, text[end:]]).split())


def _spans_of(value: str, text: str, taken: Collection[tuple[int, int, str]], label: str) -> list[tuple[int, int, str]]:
    pattern = re.compile(rf"(?<!\w){re.escape(value)}(?!\w)", re.IGNORECASE)
    return [
        (*match.span(), label)
        for match in pattern.finditer(text)
        if not any(start < match.end() and match.start() < end for start, end, _ in taken)
    ]


def names_in(mail: str) -> list[str]:
    """The words of a mail address that may be a person's names.

    >>> names_in("ann.lee2@x.org"), names_in("info@x.org")
    (['ann', 'lee'], [])
    """
    found = re.findall(r"[^\W\d_]{3,}", mail.partition("@")[0].lower())
    return [word for word in found if word not in _MAILBOXES and not is_usual(word)]


def is_in(value: str, text: str) -> bool:
    """Whether a value stands in a text as words of its own; both in lower case.

    >>> is_in("10", "the 10 best"), is_in("10", "the 100 best"), is_in("1500", "for $1,500")
    (True, False, True)
    """
    if value.isdigit() and len(value) > 3 and is_in(f"{int(value):,}", text):
        return True
    start = text.find(value)
    while start >= 0:
        end = start + len(value)
        before, after = text[start - 1 : start], text[end : end + 2]
        inner = after[:1] in ".,:" and after[1:].isdigit() and value[-1:].isdigit()
        longer = (before.isalnum() and value[:1].isalnum()) or (after[:1].isalnum() and value[-1:].isalnum())
        if not inner and not longer:
            return True
        start = text.find(value, start + 1)
    return False


_MAILBOXES: Final = word_set(
    "info mail email support help sales contact admin office team service news newsletter billing hello noreply reply "
    "customer user test example order booking account marketing finance legal press job career security root webmaster"
)


def slots_in(text: str) -> list[str]:
    """The types that stand in angle brackets in a text, in order.

    >>> slots_in("from <CITY> on <DATE>")
    ['CITY', 'DATE']
    """
    return [match[0][1:-1] for match in _SLOT.finditer(text)]
