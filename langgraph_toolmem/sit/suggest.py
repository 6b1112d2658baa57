"""Suggestions of the next tool by similar states, by usual order, and by the request.

Three kinds of evidence for a candidate tool t, each of which can be missing:

- **habit** (procedural): p(t) = w(t) / (Σ w + number of targets), with w = N + Σ 1/n the edges' weights out of
  the last tool;
- **states** (episodic): the NEAREST past states most similar to the present one (`evidence.near_states`) vote for what
  came next in them. The i-th, of similarity s_i, has w_i = e^(−SHARPNESS·(s_1 − s_i)) votes times its run's weight,
  and what nobody has seen yet 1.5·(1 − s_1²) / s_1², the more the less alike the nearest state is:
  v(t) = Σ_{i: target t} w_i / (Σ_i w_i + 1.5·(1 − s_1²) / s_1²);
- **words** (search): r(t), how well the description fits the request, 0 to 1 between the weakest and the best hit,
  times S / (S + 0.01) for the best hit's score S (a hit that shares next to nothing with the request says nothing),
  times 1 − s_1² (the more alike a known state, the less; s_1² is ½ where there is none).

A transition counts as much as the feedback on its run; without feedback, `unlabelled` times (good + 1) / (good + bad +
1) of the uses of its edge. If no state that votes has feedback, they count in full.

The paper ranks by the best similarity of an edge and fills up with the heaviest edges (`SITPolicy.paper`). Here the
three are brought to one scale first, the log of a share:

    z(t) = 1.7·ln(1 + v(t) / 0.02) + 0.2·ln(1 + p(t) / 0.01) + 3.8·r(t)

a conditional logit model with three weights; score(t) = e^z(t) / Σ e^z is its probability of t being next, among all
tools that are available (z is 0 for one that nothing speaks for).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

from langgraph_toolmem.base.checks import expect, is_count, is_share
from langgraph_toolmem.graph.state import START
from langgraph_toolmem.runs.run import SUMMARY_TOOL
from langgraph_toolmem.sit.evidence import Edge

Search = Callable[[str], Iterable[tuple[str, float]]]
"""From a text to (tool, score) pairs. A score of 0 means that nothing is shared, one near 1 that all is."""
Kind = Literal["episodic", "procedural", "search"]

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
        runs: uses of this transition in successful runs.
        success: share of its judged uses that belong to successful runs; None if none has feedback.
        similarity: of the most similar past state that led to it.
    """

    tool: str
    kind: Kind
    score: float
    evidence: str
    runs: int
    success: float | None
    similarity: float | None = None


@dataclass(slots=True)
class _Candidate:
    """Evidence for one tool."""

    votes: float = 0.0
    voters: int = 0
    judged: bool = False  # one of the voters at least
    similarity: float | None = None
    share: float = 0.0
    weight: float = 0.0
    good: float = 0.0
    bad: float = 0.0
    relevance: float = 0.0


def suggest(
    row: Mapping[str, Edge],
    votes: Sequence[Vote],
    *,
    policy: SITPolicy,
    source: str = START,
    text: str = "",
    search: Search | None = None,
    available: Collection[str] | None = None,
    k: int | None = None,
) -> list[Suggestion]:
    """Return the k likeliest next tools, best first; fewer if nothing speaks for more.

    Args:
        row: edges out of the last tool, by target.
        votes: past states, the most similar first.
        policy: how the evidence is used.
        source: the last tool, or START.
        text: the request, for the search.
        search: finds tools by their descriptions.
        available: the tools that may be called; None: all.
        k: how many, if not the policy's.
    """
    found, combined = _Evidence(source, available), policy.kind == "combined"
    k = max(policy.k if k is None else k, 0)
    found.add_habits(row, policy)
    found.add_states(votes, policy)
    if search is not None and (combined or len(found.candidates) < k):
        found.add_words(text, search)
    return found.by_odds(k) if combined else found.by_kind(k)


class _Evidence:
    """The candidates with their evidence, and two ways to rank them."""

    def __init__(self, source: str, available: Collection[str] | None) -> None:
        self.candidates: dict[str, _Candidate] = {}
        self._source, self._available = source, available
        self._uses = 0.0  # successful uses of all edges
        self._voters, self._votes = 0, 0.0
        self._similarity = math.sqrt(0.5)  # of the nearest state; this where there is none

    def _allowed(self, tool: str) -> bool:
        return tool != SUMMARY_TOOL and (self._available is None or tool in self._available)

    def _candidate(self, tool: str) -> _Candidate:
        return self.candidates.setdefault(tool, _Candidate())

    def add_habits(self, row: Mapping[str, Edge], policy: SITPolicy) -> None:
        weights = {target: edge.weight(policy.unlabelled) for target, edge in row.items()}
        total = sum(weights.values()) + sum(weight > 0 for weight in weights.values())
        self._uses = sum(edge.good for edge in row.values())
        for target, weight in weights.items():
            if weight > 0 and self._allowed(target):
                found = self._candidate(target)
                found.share, found.weight = weight / total, weight
                found.good, found.bad = row[target].good, row[target].bad

    def add_states(self, votes: Iterable[Vote], policy: SITPolicy) -> None:
        votes = [vote for vote in votes if vote.weight > 0 and self._allowed(vote.tool)]
        # Votes that all lack feedback count in full among themselves.
        full = 1.0 if any(vote.judged for vote in votes) else policy.unlabelled or 1.0
        for vote in votes:
            self._similarity = votes[0].similarity
            found = self._candidate(vote.tool)
            number = vote.weight / full * math.exp(-SHARPNESS * (self._similarity - vote.similarity))
            found.votes += number
            found.voters += 1
            found.judged = found.judged or vote.judged
            if found.similarity is None:
                found.similarity = vote.similarity
            self._votes += number
            self._voters += 1

    def add_words(self, text: str, search: Search) -> None:
        hits = [(tool, score) for tool, score in search(text) if self._allowed(tool)] if text.strip() else []
        scores = [score for _, score in hits]
        if not hits or (highest := max(scores)) <= 0:
            return
        lowest = min(scores)
        say = highest / (highest + FAINT) * max(0.0, 1 - self._similarity**2)
        for tool, score in hits:
            fit = (score - lowest) / (highest - lowest) if highest > lowest else 1.0
            if fit > 0:
                self._candidate(tool).relevance = say * fit

    def by_odds(self, k: int) -> list[Suggestion]:
        """Return the best k by the probability that the three kinds of evidence give together."""
        parts = {tool: self._parts(candidate) for tool, candidate in self.candidates.items()}
        odds = {tool: math.exp(sum(part.values())) for tool, part in parts.items()}
        others = 0 if self._available is None else len({*self._available} - odds.keys() - {SUMMARY_TOOL})
        total = sum(odds.values()) + max(others, 1)
        order = sorted(odds, key=lambda tool: (-odds[tool], -self.candidates[tool].weight, tool))
        return [
            self._suggestion(tool, max(parts[tool], key=parts[tool].__getitem__), odds[tool] / total)
            for tool in order[:k]
            if odds[tool] > 1
        ]

    def _parts(self, candidate: _Candidate) -> dict[Kind, float]:
        """Return what each kind of evidence adds to the log-odds. The first of equals gives the suggestion its kind."""
        alike = max(self._similarity, LEAST_SIMILARITY) ** 2
        votes = candidate.votes / (self._votes + UNSEEN * (1 - alike) / alike) if candidate.votes else 0.0
        found: dict[Kind, float] = {
            "episodic": math.log1p(votes / LEAST_VOTE),
            "procedural": math.log1p(candidate.share / LEAST_SHARE),
            "search": candidate.relevance,
        }
        return {kind: WEIGHTS[kind] * value for kind, value in found.items()}

    def by_kind(self, k: int) -> list[Suggestion]:
        """Return the best k as published: by the best similarity, then the heaviest edges, then the descriptions."""
        scored: list[tuple[int, float, float, str, Kind, float]] = []
        for tool, found in self.candidates.items():
            if found.similarity is not None:
                scored.append((0, -found.similarity, -found.weight, tool, "episodic", found.similarity))
            elif found.weight > 0:
                scored.append((1, -found.weight, 0.0, tool, "procedural", found.share))
            else:
                scored.append((2, -found.relevance, 0.0, tool, "search", found.relevance))
        return [self._suggestion(tool, kind, score) for *_, tool, kind, score in sorted(scored)[:k]]

    def _suggestion(self, tool: str, kind: Kind, score: float) -> Suggestion:
        found = self.candidates[tool]
        judged = found.good + found.bad
        return Suggestion(
            tool=tool,
            kind=kind,
            score=float(score),
            evidence=self._in_words(kind, found),
            runs=round(found.good),
            success=found.good / judged if judged else None,
            similarity=found.similarity,
        )

    def _in_words(self, kind: Kind, found: _Candidate) -> str:
        if kind == "search":
            return "its description fits the request"
        if kind == "episodic":
            states = "state" if self._voters == 1 else "states"
            alike = f"{found.similarity:.0%} alike{'' if found.judged else ', not judged'}"
            return f"came next in {found.voters} of the {self._voters} most similar past {states} ({alike})"
        where = "at the start" if self._source == START else f"after {self._source}"
        good, uses, bad = (round(number) for number in (found.good, self._uses, found.bad))
        times = f"{good} of {max(good, uses)} times {where} in successful runs"
        failed = f", {bad} times in failed ones" if bad else ""
        return f"came next {times if good else f'{where} in runs that nobody judged'}{failed}"
