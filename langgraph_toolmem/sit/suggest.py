"""Suggestions of the next tool by similar states, by usual order, and by the request.

A candidate tool t has up to three kinds of evidence:

- **habit** (procedural): p(t) = n(t) / (Σ n + number of targets), with n how often a model called t after the same two
  last symbols of a run (`graph.state.windows`);
- **states** (episodic): the 30 past states most similar to the present one (`evidence.near_states`) vote for the tool
  that came next in them. The i-th, of similarity s_i, has w_i = e^(−8·(s_1 − s_i)) votes times its run's weight. Unseen
  tools together have 1.5·(1 − s_1²) / s_1² votes, which grow as the nearest state is less similar: v(t) = Σ_{i: target
  t} w_i / (Σ_i w_i + 1.5·(1 − s_1²) / s_1²);
- **words** (search): r(t), how well the description fits the request, 0 to 1 between the weakest and the best hit,
  times S / (S + 0.01) for the best hit's score S (a hit that shares almost nothing with the request has no weight),
  times 1 − s_1² (so that similar known states outweigh it; s_1² is ½ without a state).

The three are brought to one scale, the log of a share:

    z(t) = 1.7·ln(1 + v(t) / 0.02) + 0.2·ln(1 + p(t) / 0.01) + 3.8·r(t)

a conditional logit model with three weights; score(t) = e^z(t) / Σ e^z is its probability of t being next, among all
tools that are available (z is 0 for a tool without evidence).

`EvidenceScale` holds these numbers. The paper's ranking is in `papers.sit_graph`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from langgraph_toolmem.base.checks import checks_options, expect, is_positive_count, is_share
from langgraph_toolmem.graph.state import ToolRecords, tool_of
from langgraph_toolmem.runs.run import SUMMARY_TOOL

EvidenceKind = Literal["episodic", "procedural", "search"]
Hits: TypeAlias = Sequence[tuple[str, float]]
"""Tools whose descriptions fit the request, with scores. 0 means no shared words, close to 1 all of them."""


@dataclass(frozen=True, slots=True)
class EvidenceScale:
    """Parameters of the score. All were chosen together, on two splits of two sets of recorded runs (docs/figures.md,
    "Suggestions").

    Attributes:
        nearest: past states that vote.
        sharpness: how fast votes fall with the distance to the most similar state.
        episodic, procedural, search: weights of the three kinds of evidence.
        least_similarity: a nearest state counts as at least so similar.
        least_vote, least_share: v and p that count as one unit.
        faint: score of a search's best hit at which its weight is halved.
        unseen: votes for unseen tools, if the nearest state has a similarity of √½.
        no_state: similarity that is assumed without a state.
    """

    nearest: int = 30
    # Between 4 and 12, it moves hit@2 by less than a point.
    sharpness: float = 8.0
    # Weights of habits and descriptions by maximum likelihood on the history halves of three sets; the weight of states
    # on two splits of two sets.
    episodic: float = 1.7
    procedural: float = 0.2
    search: float = 3.8
    least_similarity: float = 0.03
    least_vote: float = 0.02
    least_share: float = 0.01
    faint: float = 0.01
    unseen: float = 1.5
    no_state: float = math.sqrt(0.5)


SCALE: Final = EvidenceScale()


@checks_options
@dataclass(frozen=True)
class SITPolicy:
    """Settings of suggestions.

    Attributes:
        kind: ``combined`` weighs three kinds of evidence. ``paper`` ranks the states that an agent summarised first,
            then the heaviest edges.
        k: number of suggested tools. Two were best in the paper: one over-constrains, three add noise.
        unlabelled: weight of a run without feedback, relative to a good one. At 0 only good runs count.
    """

    # On eight APIs the paper's order has the next tool among two in 32.5 % of the turns, this one in 79.8 %
    # (`papers.sit_graph`).
    kind: Literal["combined", "paper"] = "combined"
    k: int = 2
    # At 0, with feedback on a tenth of the runs, hit@2 fell by 20 points and more.
    unlabelled: float = 0.3

    def __post_init__(self) -> None:
        expect(self, "kind", "'combined' or 'paper'", _is_kind)
        expect(self, "k", "a whole number from 1", is_positive_count)
        expect(self, "unlabelled", "a share from 0 to 1", is_share)

    @classmethod
    def paper(cls, **changes: Any) -> SITPolicy:
        """Return SIT-Graph's rule: summarised states before edges, k = 2, only good runs teach."""
        changes.setdefault("kind", "paper")
        changes.setdefault("unlabelled", 0.0)
        return cls(**changes)


def _is_kind(value: Any) -> bool:
    return value in ("combined", "paper")


class Vote(NamedTuple):
    """A past state: its similarity, the tool that came next, its run's weight, and True if its run went well."""

    similarity: float
    tool: str
    weight: float = 1.0
    judged: bool = True


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A tool that may come next, with its evidence.

    Attributes:
        tool: its name.
        kind: its strongest evidence: similar states, usual successor, or its description.
        score: from 0 to 1: for the combined policy a probability; for the paper's the similarity (``episodic``), the
            edge's share among the edges (``procedural``), the relative fit (``search``).
        evidence: this evidence in words.
    """

    tool: str
    kind: EvidenceKind
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
    """Return the k most likely next tools, best first; fewer if fewer have evidence.

    Args:
        habits: how often each tool came next after the same last symbols.
        votes: past states, the most similar first; the first 30 with a weight count.
        hits: tools whose descriptions fit the request.
        k: how many.
        unlabelled: weight of a state without feedback. If all states lack feedback, all count in full.
        available: the tools that may be called. Defaults to all.
    """
    weighed = WeighedEvidence(habits, _first_votes(votes, available), hits, unlabelled, available)
    odds = weighed.odds()
    # Tools without evidence have odds of 1 each. At least one counts, so that no suggestion is certain.
    others = 0
    if available is not None:
        others = len({*available} - odds.keys() - {SUMMARY_TOOL})
    total = sum(odds.values()) + max(others, 1)

    # By name last, so that of tools with equal evidence every process suggests the same ones.
    def by_odds(tool: str) -> tuple[float, float, str]:
        return -odds[tool], -habits.get(tool, 0), tool

    suggestions = []
    for tool in sorted(odds, key=by_odds)[:k]:
        # At 1, the tool has no evidence.
        if odds[tool] > 1:
            kind = weighed.strongest(tool)
            suggestions.append(Suggestion(tool, kind, odds[tool] / total, weighed.in_words(tool, kind)))
    return suggestions


def _first_votes(votes: Iterable[Vote], available: Collection[str] | None) -> list[Vote]:
    """Return the votes of the most similar states. Less similar states are not read."""
    # `votes` is lazy: each vote reads the feedback on a run, and a usual request has thousands of states.
    counted: list[Vote] = []
    for vote in votes:
        if vote.weight > 0 and may_suggest(vote.tool, available):
            counted.append(vote)
            if len(counted) == SCALE.nearest:
                break
    return counted


class WeighedEvidence:
    """The evidence for each tool, brought to one scale.

    Attributes:
        parts: tool -> kind of evidence -> its part of z.
    """

    def __init__(
        self,
        habits: Mapping[str, float],
        votes: Sequence[Vote],
        hits: Hits,
        unlabelled: float,
        available: Collection[str] | None,
    ) -> None:
        self.parts: dict[str, dict[EvidenceKind, float]] = defaultdict(dict)
        self._habits, self._votes = habits, votes
        self._all_habits = sum(habits.values())
        nearest = SCALE.no_state
        if votes:
            nearest = votes[0].similarity
        self._add_votes(nearest, unlabelled)
        self._add_habits(available)
        allowed = []
        for tool, score in hits:
            if may_suggest(tool, available):
                allowed.append((tool, score))
        for tool, fit in relative_fit(allowed, nearest).items():
            self.parts[tool]["search"] = SCALE.search * fit

    def _add_votes(self, nearest: float, unlabelled: float) -> None:
        alike = max(nearest, SCALE.least_similarity) ** 2
        # If all votes lack feedback, all count in full: at .3, descriptions would outweigh them.
        full_weight = 1.0
        if unlabelled and not _any_judged(self._votes):
            full_weight = unlabelled
        shares: dict[str, float] = defaultdict(float)
        for vote in self._votes:
            closeness = math.exp(-SCALE.sharpness * (nearest - vote.similarity))
            shares[vote.tool] += vote.weight / full_weight * closeness
        all_votes = sum(shares.values()) + SCALE.unseen * (1 - alike) / alike
        for tool, share in shares.items():
            self.parts[tool]["episodic"] = SCALE.episodic * math.log1p(share / all_votes / SCALE.least_vote)

    def _add_habits(self, available: Collection[str] | None) -> None:
        uses = self._all_habits + len(self._habits)
        for tool, times in self._habits.items():
            if may_suggest(tool, available):
                self.parts[tool]["procedural"] = SCALE.procedural * math.log1p(times / uses / SCALE.least_share)

    def odds(self) -> dict[str, float]:
        """Return e^z of each tool with evidence."""
        odds = {}
        for tool, parts in self.parts.items():
            odds[tool] = math.exp(sum(parts.values()))
        return odds

    def strongest(self, tool: str) -> EvidenceKind:
        """Return the strongest kind of evidence for a tool."""
        parts = self.parts[tool]
        return max(parts, key=parts.__getitem__)

    def in_words(self, tool: str, kind: EvidenceKind) -> str:
        if kind == "search":
            return description_fits()
        if kind == "procedural":
            return f"came next {self._habits[tool]:.0f} of {self._all_habits:.0f} times after the same steps"
        mine = [vote for vote in self._votes if vote.tool == tool]
        similar = f"{mine[0].similarity:.0%} alike"
        if not _any_judged(mine):
            similar += ", not judged"
        states = "states"
        if len(self._votes) == 1:
            states = "state"
        return f"came next in {len(mine)} of the {len(self._votes)} most similar past {states} ({similar})"


def _any_judged(votes: Iterable[Vote]) -> bool:
    return any(vote.judged for vote in votes)


def description_fits() -> str:
    """Return the evidence of a search in words."""
    return "its description fits the request"


def hits_by_record(hits: Hits, names: ToolRecords) -> Hits:
    """Return the hits of a search with the names of the tools' records."""
    # Tools of one name with other parameters have records of other names, and the evidence is by record.
    if not names.apart:
        return hits
    return [(names.offered.get(tool, tool), score) for tool, score in hits]


def by_record(tools: Collection[str] | None, names: ToolRecords) -> Collection[str] | None:
    """Return the names of the records of some tools; None for all."""
    if tools is None or not names.apart:
        return tools
    return {names.offered.get(tool, tool) for tool in tools}


def of_tool(suggestion: Suggestion, names: ToolRecords) -> Suggestion:
    """Return a suggestion of a tool, given one of its record (`graph.state.ToolRecords`)."""
    if not names.apart:
        return suggestion
    return replace(suggestion, tool=tool_of(suggestion.tool), evidence=names.in_words(suggestion.evidence))


def may_suggest(tool: str, available: Collection[str] | None) -> bool:
    # The summary tool returns these suggestions itself, and does not act on the world.
    return tool != SUMMARY_TOOL and (available is None or tool in available)


def relative_fit(hits: Hits, nearest: float) -> dict[str, float]:
    """Return r of tools found by their descriptions, given the similarity of the nearest state."""
    scores = [score for _tool, score in hits]
    highest = max(scores, default=0.0)
    if highest <= 0:
        return {}
    lowest = min(scores)
    spread = highest - lowest
    # A description that shares one usual word with the request may be the best hit too, but is weak evidence.
    say = highest / (highest + SCALE.faint) * max(0.0, 1 - nearest**2)
    fits = {}
    for tool, score in hits:
        if not spread:
            fits[tool] = say
        elif score > lowest:
            fits[tool] = say * ((score - lowest) / spread)
    return fits
