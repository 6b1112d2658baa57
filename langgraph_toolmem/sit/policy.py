"""Settings of suggestions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from langgraph_toolmem.base.checks import expect, is_number, options_named
from langgraph_toolmem.base.errors import ConfigurationError


@options_named
@dataclass(frozen=True)
class SITPolicy:
    """Settings of suggestions.

    Attributes:
        kind: ``combined`` weighs three kinds of evidence. ``paper`` ranks the states that an agent summarised first,
            then the heaviest edges.
        k: tools suggested. Two were best in the paper: one over-constrains, three add noise.
        c: weight of the bonus for short runs: an edge weighs N + c·Σ 1/n over its N successful uses, n being the
            length of each run.
        unlabelled: weight of a run without feedback, relative to one that went well; less on edges that were judged
            bad (`Edge.trust`). At 0 such runs do not teach.
        nearest: combined: past states that vote.
        sharpness: combined: a state that is less similar by d than the most similar one has e^(−sharpness·d) of a vote.
        weight_states, weight_habit, weight_words: combined: weights of similar states, of edges, and of the fit of a
            tool's description to the request. They were chosen on recorded runs; see benchmarks/README.md.
    """

    kind: Literal["combined", "paper"] = "combined"
    k: int = 2
    c: float = 1.0
    unlabelled: float = 0.3
    nearest: int = 30
    sharpness: float = 8.0
    weight_states: float = 1.7
    weight_habit: float = 0.2
    weight_words: float = 3.8

    def __post_init__(self) -> None:
        """Check types and ranges. Raises ConfigurationError that names the field and what is expected."""
        expect(self, "kind", "'combined' or 'paper'", lambda v: v in ("combined", "paper"))
        for name in ("k", "nearest"):
            expect(self, name, "a whole number from 1", lambda v: type(v) is int and v >= 1)
        for name in ("c", "sharpness", "weight_states", "weight_habit", "weight_words"):
            expect(self, name, "a number from 0", lambda v: is_number(v) and v >= 0)
        expect(self, "unlabelled", "a share from 0 to 1", lambda v: is_number(v) and 0 <= v <= 1)

    @classmethod
    def paper(cls, **changes: Any) -> SITPolicy:
        """Return SIT-Graph's rule: summarised states before edges, k = 2, c = 1, only good runs teach."""
        return cls(**{"kind": "paper", "unlabelled": 0.0, **changes})

    def with_(self, **changes: Any) -> SITPolicy:
        """Return a copy with some fields changed."""
        return replace(self, **changes)


def checked(policy: SITPolicy | None) -> SITPolicy | None:
    """Return a policy as it was given, if at all. Raises ConfigurationError if it is something else."""
    if policy is not None and not isinstance(policy, SITPolicy):
        raise ConfigurationError(f"`policy` must be a SITPolicy, got {type(policy).__name__}.")
    return policy


__all__ = ["SITPolicy", "checked"]
