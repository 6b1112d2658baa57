"""Settings of recall, as a frozen dataclass with a plain-dict form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final, Literal, get_args

from langgraph_toolmem.base.checks import check_fields, expect, is_count, is_number, options_named

RecallKind = Literal["calibrated", "paper", "gap", "threshold", "fixed"]
KINDS: Final = get_args(RecallKind)


@options_named
@dataclass(frozen=True)
class RecallPolicy:
    """How many past runs are recalled.

    Attributes:
        kind: ``calibrated``: as many as maximise the expected F1 of what is recalled, none if that is the best
            guess. ``paper``: MemToolAgent's dynamic n, where the similarities fall fastest. ``gap``: Adaptive-k, all
            before the largest drop between neighbours. ``threshold``: all with at least that similarity.
            ``fixed``: always the same number.
        max_n: never more than so many.
        caution: calibrated: how much more showing something useless costs than showing nothing where something
            useful was there. 1 weighs them alike, as F1 does; at 2 entries are shown only if twice as sure.
        radius: paper: R, neighbours on each side over which the slope is taken.
        prominence: paper: how far a peak of the slope has to stand out.
        peak: paper: which peak counts, from 1. The paper takes the first, the second for personalisation.
        offset: paper: n counts from the top of the list. Otherwise it is the index among the slopes, which begin at
            place R of the list, so that n is smaller by R.
        fallback: paper: n where there is no peak.
        least: threshold: the least similarity.
        n: fixed: how many.
    """

    kind: RecallKind = "calibrated"
    max_n: int = 10
    caution: float = 1.0
    radius: int = 10
    prominence: float = 1e-5
    peak: int = 1
    offset: bool = True
    fallback: int = 5
    least: float = 0.6
    n: int = 3

    def __post_init__(self) -> None:
        """Checks types and ranges. Raises ConfigurationError that names the field and what is expected."""
        kinds = ", ".join(map(repr, KINDS))
        expect(self, "kind", f"one of {kinds}", lambda v: v in KINDS)
        for name in ("max_n", "radius", "peak"):
            expect(self, name, "a whole number from 1", lambda v: is_count(v, 1))
        for name in ("fallback", "n"):
            expect(self, name, "a whole number from 0", lambda v: is_count(v, 0))
        expect(self, "caution", "a number above 0", lambda v: is_number(v) and v > 0)
        expect(self, "prominence", "a number from 0", lambda v: is_number(v) and v >= 0)
        expect(self, "offset", "true or false", lambda v: isinstance(v, bool))
        expect(self, "least", "a similarity from -1 to 1", lambda v: is_number(v) and -1 <= v <= 1)

    @classmethod
    def paper(cls, **changes: Any) -> RecallPolicy:
        """MemToolAgent as published: R = 10, prominence = 1e-5, first peak."""
        return cls(**{"kind": "paper", "max_n": 50, **changes})

    def with_(self, **changes: Any) -> RecallPolicy:
        """A copy with some fields changed."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> RecallPolicy:
        """The inverse of `to_dict`. ``{"kind": "paper"}`` alone means `paper()`.

        Raises:
            ConfigurationError: an unknown field, named, or a value that cannot be.
        """
        check_fields("RecallPolicy", set(plain), {f.name for f in fields(cls)})
        return cls.paper(**plain) if plain.get("kind") == "paper" else cls(**plain)


__all__ = ["RecallKind", "RecallPolicy"]
