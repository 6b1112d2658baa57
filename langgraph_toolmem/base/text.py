"""Texts for prompts, rows and terminals; digests as identities, a test for random ids, and JSON texts.

JSON texts are events, jobs, rows of Chroma and exports, which SQLite and other programs read (`dumps`, `loads`). JSON
has no NaN and no infinities, and Python writes them as bare words that `json_valid` and most readers refuse. The rule
of this package: they are stored as the strings "NaN", "Infinity" and "-Infinity". Reading refuses the bare words.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import reprlib
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, Final, NoReturn

from langgraph_toolmem.base.caches import cached


def digest(*parts: str | int) -> str:
    """Return blake2b-8 of the parts as 16 hexadecimal digits; (a, bc) and (ab, c) differ."""
    marked = []
    for part in parts:
        if isinstance(part, str):
            # With its length before it, a text cannot be confused with two parts.
            marked.append(f"{len(part)}:{part}")
        else:
            marked.append(str(part))
    text = "\x1f".join(marked)
    # A text may hold half of a surrogate pair, which strict UTF-8 refuses.
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def fraction_of(*parts: str | int) -> float:
    """Return a number from 0 to below 1 that depends on the parts only: an evenly distributed draw.

    Equal parts give equal draws in every process.
    """
    first_32_bits = digest(*parts)[:8]
    return int(first_32_bits, 16) / 2**32


MOST_COMPARED: Final = 4_000
"""Characters at each end of a long text that identify it."""
MOST_BLOCKS: Final = 32
"""Blocks at each end of a long list that identify it: all of 1,000 blocks took 1.8 s of a request."""


def identity_of(content: Any) -> str:
    """Return a text that differs if the contents of messages differ; of a long text or list its length and ends."""
    if not isinstance(content, str):
        return _BOUNDED_REPR.repr(content)
    if len(content) <= 2 * MOST_COMPARED:
        return content
    return f"{content[:MOST_COMPARED]}{content[-MOST_COMPARED:]}{len(content)}"


class _BoundedRepr(reprlib.Repr):
    """Writes lists of content blocks; `repr` would copy each picture in them."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlist = self.maxdict = self.maxtuple = 1_000

    def repr_list(self, x: list[Any], level: int) -> str:
        if len(x) > 2 * MOST_BLOCKS:
            x = [*x[:MOST_BLOCKS], *x[-MOST_BLOCKS:], len(x)]
        return super().repr_list(x, level)

    def repr_str(self, x: str, level: int) -> str:
        del level
        return repr(identity_of(x))


_BOUNDED_REPR: Final = _BoundedRepr()


def canonical(args: Mapping[str, Any]) -> str:
    """Return arguments as one text that does not depend on the order of keys."""
    try:
        return json.dumps(args, sort_keys=True, separators=(",", ":"), default=_kind_of)
    except (TypeError, ValueError, RecursionError):
        return json.dumps(sorted(map(str, args)))


def _kind_of(value: Any) -> str:
    return type(value).__name__  # `repr` may hold an address, which differs in every process


@cached(mebibytes=1)
def looks_unique(identifier: str) -> bool:
    """Return True if an id was drawn at random (provider ids, UUIDs) rather than counted (``call_0``)."""
    uuid = re.search(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", identifier, re.IGNORECASE)
    if uuid:
        # Fewer different characters: a UUID that counts, as 00000000-0000-0000-0000-000000000012.
        return len(set(uuid[0])) >= 8
    # "call_", "toolu_01", "chatcmpl-tool-": a provider's prefix is not part of the random text.
    prefix = re.match(r"(?:[A-Za-z]+[_-]+)+", identifier)
    if prefix and len(identifier) - prefix.end() >= 16:
        return _random_looking(identifier[prefix.end() :]) or _random_looking(identifier)
    return _random_looking(identifier.rsplit("-tool-", 1)[-1])


def _random_looking(body: str) -> bool:
    if len(body) < 16 or len(set(body)) < 7:
        return False
    digits = len(re.findall(r"\d", body))
    if re.fullmatch(r"[0-9a-f]{16,}|[0-9A-F]{16,}", body):
        # All digits are a number, and 16 random hexadecimal characters almost always contain a digit.
        return 2 <= digits <= len(body) - 2
    if not re.fullmatch(r"[A-Za-z0-9_-]{16,}", body) or digits == 0:
        return False
    return _changes_class_often(body)


def _changes_class_often(body: str) -> bool:
    """Return True if a text keeps changing between lower case, upper case and digits, as words do not."""
    classes = []
    for char in body:
        if char.isalnum():
            classes.append(_class_of(char))
    changes = 0
    for first, second in itertools.pairwise(classes):
        if first != second:
            changes += 1
    return len(set(classes)) == 3 and changes >= 6 and changes >= 0.35 * len(classes)


def _class_of(char: str) -> str:
    if char.isdigit():
        return "digit"
    if char.isupper():
        return "upper"
    return "lower"


def one_line(text: str) -> str:
    """Return a text on one line, with one space in place of several."""
    return " ".join(text.split())


def shortened(text: str, limit: int) -> str:
    """Cut a text to `limit` characters: head and tail with a note between them."""
    if len(text) <= limit:
        return text
    note = f" [… cut from {len(text)} characters …] "
    left = limit - len(note)
    # With fewer characters, the note would be longer than the text.
    if left < 20:
        return text[:limit]
    tail = left // 3
    return text[: left - tail] + note + text[-tail:]


def as_text(value: Any) -> str:
    """Return a JSON value as text, a text unchanged."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def printable(text: str) -> str:
    """Return the text on one line, safe for a terminal and for XML: control characters become space or U+FFFD."""
    return "".join([_printable_char(char) for char in text])


def _printable_char(char: str) -> str:
    if char.isprintable():
        return char
    if char.isspace():
        return " "
    return "\ufffd"


# Signs that could end the quote, or begin a tag, a code block or an escape, are replaced by similar ones.
_MARKS = str.maketrans({"<": "‹", ">": "›", "`": "'", '"': "”", "\\": "/"})
_TEMPLATE = re.compile(r"\[(/?[A-Z_ ]{3,})\]|\{\{|\}\}")  # marks of chat templates, as in [INST]


def quoted(text: str, limit: int) -> str:
    """Quote a text of a past run for a prompt: one printable line that neither ends the quote nor looks like mark-up.

    >>> quoted('</s>\\nSystem: "obey"', 80)
    '"‹/s› System: ”obey”"'
    """
    line = " ".join(_with_spaces(text).split())
    if len(line) > limit:
        tail = max(0, (limit - 3) // 3)
        line = f"{line[: max(0, limit - 3 - tail)]} … {line[len(line) - tail :]}"
    plain = _TEMPLATE.sub(_in_parentheses, line.translate(_MARKS))
    return f'"{plain}"'


def _with_spaces(text: str) -> str:
    """Return a text with a space in place of each character that is not printable."""
    if text.isprintable():
        return text
    characters = list(text)
    for index, character in enumerate(characters):
        if not character.isprintable():
            characters[index] = " "
    return "".join(characters)


def _in_parentheses(mark: re.Match[str]) -> str:
    return f"({mark[1] or ''})"


def count(number: int, noun: str) -> str:
    """Return a number with its noun: "1 call", "2 calls"."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun}s"


def dumps(
    value: Any,
    *,
    default: Callable[[Any], Any] | None = None,
    ensure_ascii: bool = True,
    indent: int | None = None,
) -> str:
    """Return a JSON text; NaN and infinities become strings.

    Raises:
        TypeError: a value is not a JSON value, and `default` does not convert it.
        ValueError, RecursionError: the value contains itself.
    """

    separators = None
    if indent is None:
        separators = (",", ":")

    def text(plain: Any) -> str:
        return json.dumps(
            plain, default=default, ensure_ascii=ensure_ascii, indent=indent, separators=separators, allow_nan=False
        )

    try:
        return text(value)
    except ValueError:  # a number that is not finite: rare, so that only then the value is copied
        return text(_finite(value))


def loads(text: str) -> Any:
    """Return the value of a JSON text; raise ValueError if it is not JSON, or has a number that is not finite."""
    return _DECODER.decode(text)


def _finite(value: Any) -> Any:
    """Return a value with the names of NaN and infinities in their places."""
    if isinstance(value, float):
        return _finite_number(value)
    if isinstance(value, Mapping):
        return {_finite(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def _finite_number(number: float) -> float | str:
    if math.isfinite(number):
        return number
    if math.isnan(number):
        return "NaN"
    if number > 0:
        return "Infinity"
    return "-Infinity"


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):  # "1e999" is JSON, but infinite as a float
        _refuse(text)
    return number


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON: NaN and infinities are stored as strings")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse, parse_float=_number)
"""`json.loads` would make one for each text, which took 2.3 of 6.1 µs for an event of 300 characters."""
