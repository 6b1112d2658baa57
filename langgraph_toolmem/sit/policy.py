"""Settings of suggestions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from langgraph_toolmem.base.checks import expect, is_count, is_share
from langgraph_toolmem.base.errors import ConfigurationError


@dataclass(frozen=True)
class SITPolicy:
    """Settings of suggestions.

    Attributes:
        kind: ``combined`` weighs three kinds of evidence. ``paper`` ranks the states that an agent summarised first,
            then the heaviest edges.
        k: tools suggested. Two were best in the paper: one over-constrains, three add noise.
        unlabelled: weight of a run without feedback, relative to one that went well; less on edges that were judged
            bad (`Edge.trust`). At 0 such runs do not teach.
    """

    kind: Literal["combined", "paper"] = "combined"
    k: int = 2
    unlabelled: float = 0.3

    def __post_init__(self) -> None:
        """Check types and ranges. Raises ConfigurationError that names the field and what is expected."""
        expect(self, "kind", "'combined' or 'paper'", lambda v: v in ("combined", "paper"))
        expect(self, "k", "a whole number from 1", lambda v: is_count(v, 1))
        expect(self, "unlabelled", "a share from 0 to 1", is_share)

    @classmethod
    def paper(cls, **changes: Any) -> SITPolicy:
        """Return SIT-Graph's rule: summarised states before edges, k = 2, only good runs teach."""
        return cls(**{"kind": "paper", "unlabelled": 0.0, **changes})

    def with_(self, **changes: Any) -> SITPolicy:
        """Return a copy with some fields changed."""
        return replace(self, **changes)


def checked(policy: SITPolicy | None) -> SITPolicy | None:
    """Return a policy as it was given, if at all. Raises ConfigurationError if it is something else."""
    if policy is not None and not isinstance(policy, SITPolicy):
        raise ConfigurationError(f"`policy` must be a SITPolicy, got {type(policy).__name__}.")
    return policy
