"""Suggestions of the next tool by similar states, by usual order, and by the request.

Three kinds of evidence for a candidate tool t, each of which can be missing:

- **habit** (procedural): p(t) = n(t) / (Σ n + number of targets), with n how often a model called t after the same two
  last symbols of a run (`graph.state.windows`);
- **states** (episodic): the NEAREST past states most similar to the present one (`evidence.near_states`) vote for what
  came next in them. The i-th, of similarity s_i, has w_i = e^(−SHARPNESS·(s_1 − s_i)) votes times its run's weight,
  and what nobody has seen yet 1.5·(1 − s_1²) / s_1², the more the less alike the nearest state is:
  v(t) = Σ_{i: target t} w_i / (Σ_i w_i + 1.5·(1 − s_1²) / s_1²);
- **words** (search): r(t), how well the description fits the request, 0 to 1 between the weakest and the best hit,
  times S / (S + 0.01) for the best hit's score S (a hit that shares next to nothing with the request says nothing),
  times 1 − s_1² (the more alike a known state, the less; s_1² is ½ where there is none).

The three are brought to one scale, the log of a share:

    z(t) = 1.7·ln(1 + v(t) / 0.02) + 0.2·ln(1 + p(t) / 0.01) + 3.8·r(t)

a conditional logit model with three weights; score(t) = e^z(t) / Σ e^z is its probability of t being next, among all
tools that are available (z is 0 for one that nothing speaks for).

The paper ranks otherwise: `sit.paper`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

from langgraph_toolmem.base.checks import checks_options, expect, is_count, is_share
from langgraph_toolmem.graph.records import ToolRecords, tool_of
from langgraph_toolmem.runs.run import SUMMARY_TOOL

Kind = Literal["episodic", "procedural", "search"]
Hits = Sequence[tuple[str, float]]
"""Tools whose descriptions fit the request, with scores. 0 means that nothing is shared, near 1 that all is."""

NEAREST: Final = 30
SHARPNESS: Final = 8.0
WEIGHTS: Final[Mapping[Kind, float]] = {"episodic": 1.7, "procedural": 0.2, "search": 3.8}
"""Chosen on recorded runs, as the next five; see benchmarks/README.md."""
LEAST_SIMILARITY: Final = 0.03
LEAST_VOTE: Final = 0.02
LEAST_SHARE: Final = 0.01
FAINT: Final = 0.01
"""Score of a search's best hit at which its say is halved."""
UNSEEN: Final = 1.5
"""Votes for what nobody has seen yet, where the nearest state has a similarity of √½."""
NO_STATE: Final = math.sqrt(0.5)
"""Similarity of the nearest state where there is none."""
FITS: Final = "its description fits the request"


@checks_options
@dataclass(frozen=True)
class SITPolicy:
    """Settings of suggestions.

    Attributes:
        kind: ``combined`` weighs three kinds of evidence. ``paper`` ranks the states that an agent summarised first,
            then the heaviest edges.
        k: tools suggested. Two were best in the paper: one over-constrains, three add noise.
        unlabelled: weight of a run without feedback, relative to one that went well. At 0 only runs that went well
            teach.
    """

    kind: Literal["combined", "paper"] = "combined"
    k: int = 2
    unlabelled: float = 0.3

    def __post_init__(self) -> None:
        expect(self, "kind", "'combined' or 'paper'", lambda v: v in ("combined", "paper"))
        expect(self, "k", "a whole number from 1", lambda v: is_count(v, 1))
        expect(self, "unlabelled", "a share from 0 to 1", is_share)

    @classmethod
    def paper(cls, **changes: Any) -> SITPolicy:
        """Return SIT-Graph's rule: summarised states before edges, k = 2, only good runs teach."""
        return cls(**{"kind": "paper", "unlabelled": 0.0, **changes})


class Vote(NamedTuple):
    """A past state: its similarity, the tool that came next, its run's weight, and True if its run went well."""

    similarity: float
    tool: str
    weight: float = 1.0
    judged: bool = True


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A tool that may come next, and why.

    Attributes:
        tool: its name.
        kind: the evidence that says most for it: similar states, usual successor, or its description.
        score: from 0 to 1. Of the combined policy a probability; of the paper's the similarity (``episodic``), the
            edge's share among the edges (``procedural``), the relative fit (``search``).
        evidence: this evidence in words.
    """

    tool: str
    kind: Kind
    score: float
    evidence: str


def suggest(
    habits: Mapping[str, float],
    votes: Iterable[Vote],
    hits: Hits = (),
    *,
    k: int,
    unlabelled: float = 1.0,
    available: Collection[str] | None = None,
) -> list[Suggestion]:
    """Return the k likeliest next tools, best first; fewer if nothing speaks for more.

    Args:
        habits: how often each tool came next after the same last symbols.
        votes: past states, the most similar first; the first NEAREST with a weight count.
        hits: tools whose descriptions fit the request.
        k: how many.
        unlabelled: weight of a state without feedback. States that all lack it count in full among themselves.
        available: the tools that may be called; None: all.
    """
    votes = list(islice((vote for vote in votes if vote.weight > 0 and may_suggest(vote.tool, available)), NEAREST))
    nearest = votes[0].similarity if votes else NO_STATE
    alike = max(nearest, LEAST_SIMILARITY) ** 2
    full = 1.0 if any(vote.judged for vote in votes) else unlabelled or 1.0
    shares: dict[str, float] = defaultdict(float)
    for vote in votes:
        shares[vote.tool] += vote.weight / full * math.exp(-SHARPNESS * (nearest - vote.similarity))
    seen, uses = sum(shares.values()) + UNSEEN * (1 - alike) / alike, sum(habits.values()) + len(habits)
    evidence: dict[Kind, dict[str, float]] = {
        "episodic": {tool: math.log1p(share / seen / LEAST_VOTE) for tool, share in shares.items()},
        "procedural": {
            tool: math.log1p(n / uses / LEAST_SHARE) for tool, n in habits.items() if may_suggest(tool, available)
        },
        "search": relative_fit([hit for hit in hits if may_suggest(hit[0], available)], nearest),
    }
    parts: dict[str, dict[Kind, float]] = defaultdict(dict)
    for kind, values in evidence.items():
        for tool, value in values.items():
            parts[tool][kind] = WEIGHTS[kind] * value
    odds = {tool: math.exp(sum(part.values())) for tool, part in parts.items()}
    others = 0 if available is None else len({*available} - odds.keys() - {SUMMARY_TOOL})
    total = sum(odds.values()) + max(others, 1)

    def in_words(tool: str, kind: Kind) -> str:
        if kind == "search":
            return FITS
        if kind == "procedural":
            return f"came next {habits[tool]:.0f} of {sum(habits.values()):.0f} times after the same steps"
        mine, states = [vote for vote in votes if vote.tool == tool], "state" if len(votes) == 1 else "states"
        judged = "" if any(vote.judged for vote in mine) else ", not judged"
        similar = f"{mine[0].similarity:.0%} alike{judged}"
        return f"came next in {len(mine)} of the {len(votes)} most similar past {states} ({similar})"

    order = sorted(odds, key=lambda tool: (-odds[tool], -habits.get(tool, 0), tool))
    best = [(tool, max(parts[tool], key=parts[tool].__getitem__)) for tool in order[:k] if odds[tool] > 1]
    return [Suggestion(tool, kind, odds[tool] / total, in_words(tool, kind)) for tool, kind in best]


def of_tool(suggestion: Suggestion, names: ToolRecords) -> Suggestion:
    """Return a suggestion of a tool, given one of its record (`graph.records`)."""
    if not names.apart:
        return suggestion
    return replace(suggestion, tool=tool_of(suggestion.tool), evidence=names.in_words(suggestion.evidence))


def may_suggest(tool: str, available: Collection[str] | None) -> bool:
    return tool != SUMMARY_TOOL and (available is None or tool in available)


def relative_fit(hits: Hits, nearest: float) -> dict[str, float]:
    """Return r of tools found by their descriptions, given the similarity of the nearest state."""
    scores = [score for _, score in hits]
    if not hits or (highest := max(scores)) <= 0:
        return {}
    lowest, say = min(scores), highest / (highest + FAINT) * max(0.0, 1 - nearest**2)
    spread = highest - lowest
    return {
        tool: say * ((score - lowest) / spread if spread else 1.0)
        for tool, score in hits
        if score > lowest or not spread
    }
