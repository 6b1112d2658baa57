"""Settings of states and suggestions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from langgraph_toolmem.base.checks import expect, is_number, options_named


@options_named
@dataclass(frozen=True)
class SITPolicy:
    """Settings of the suggestions.

    Attributes:
        kind: ``combined``: three kinds of evidence, weighed. ``paper``: the most similar summaries first, filled up
            with the heaviest edges.
        k: tools suggested. Two were best in the paper: one over-constrains, three add noise.
        recall: where the summary of the present state comes from if the agent wrote none. ``extractive``: from the
            history, without a model call; summaries of other runs are made in the same way. ``tool``: there is
            none then.
        c: weight of the bonus for short runs: an edge weighs N + c·Σ 1/n over the N successful uses, n being the
            length of each run.
        unlabelled: what a run without a verdict counts, of one that went well: its uses of edges, and the votes of its
            states; less on edges that were judged bad (`Edge.trust`). At 0 such runs do not teach.
        nearest: combined: stored summaries that vote.
        sharpness: combined: how fast a vote fades with distance. A summary whose cosine is d below that of the most
            similar one has e^(−sharpness·d) of its vote.
        weight_states, weight_habit, weight_words: combined: weights of the three kinds of evidence, that is votes of
            the similar states, weights of the edges, fit of the tool's description to what is still open.

    The last four were chosen on the history halves of three recorded sets; see benchmarks/README.md.
    """

    kind: Literal["combined", "paper"] = "combined"
    k: int = 2
    recall: Literal["extractive", "tool"] = "extractive"
    c: float = 1.0
    unlabelled: float = 0.3
    nearest: int = 30
    sharpness: float = 16.0
    weight_states: float = 1.35
    weight_habit: float = 0.2
    weight_words: float = 3.8

    def __post_init__(self) -> None:
        """Checks types and ranges. Raises ConfigurationError that names the field and what is expected."""
        expect(self, "kind", "'combined' or 'paper'", lambda v: v in ("combined", "paper"))
        expect(self, "recall", "'extractive' or 'tool'", lambda v: v in ("extractive", "tool"))
        for name in ("k", "nearest"):
            expect(self, name, "a whole number from 1", lambda v: type(v) is int and v >= 1)
        for name in ("c", "sharpness", "weight_states", "weight_habit", "weight_words"):
            expect(self, name, "a number from 0", lambda v: is_number(v) and v >= 0)
        expect(self, "unlabelled", "a share from 0 to 1", lambda v: is_number(v) and 0 <= v <= 1)

    @classmethod
    def paper(cls, **changes: Any) -> SITPolicy:
        """SIT-Graph as published: recall by a tool, episodic before procedural, k = 2, c = 1, only good runs teach."""
        return cls(**{"kind": "paper", "recall": "tool", "unlabelled": 0.0, **changes})

    def with_(self, **changes: Any) -> SITPolicy:
        """A copy with some fields changed."""
        return replace(self, **changes)


__all__ = ["SITPolicy"]
