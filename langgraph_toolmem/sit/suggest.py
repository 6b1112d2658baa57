"""Suggestions of the next tool by similar states, by usual order, and by the request.

Three kinds of evidence for a candidate tool t, each of which can be missing:

- **habit** (procedural): p(t) = w(t) / (Σ w + number of targets), with w = N + c·Σ 1/n the edges' weights out of
  the last tool;
- **states** (episodic): of the stored summaries on the candidate edges the `nearest` most similar to the present
  state vote for their edge's target. The i-th, of cosine s_i, has w_i = e^(−sharpness·(s_1 − s_i)) · n_i ·
  2·usefulness_i votes (n_i: how many transitions said this, weighed by their verdicts; usefulness is ½ without a
  record), habit has a tenth of one, and what nobody has seen yet 1.5·(1 − s_1²) / s_1², the more the less alike the
  nearest state is: v(t) = (Σ_{i: target t} w_i + 0.1·p(t)) / (Σ_i w_i + 0.1 + 1.5·(1 − s_1²) / s_1²);
- **words** (search): r(t), how well the description fits the request, 0 to 1 between the weakest and the best hit,
  times S / (S + 0.01) for the best hit's score S (a hit that shares next to nothing with the request says nothing),
  times 1 − s_1² (the more alike a known state, the less; s_1² is ½ where there is none).

A transition counts as much as the verdict on its run; without one, `unlabelled` times (good + 1) / (good + bad + 1) of
the uses of its edge: what was judged bad is no example where nobody said so either. Where no state that votes has a
verdict, they count in full. So few verdicts cost little, and few runs leave the word to the descriptions.

The paper ranks by the best cosine of an edge and fills up with the heaviest edges (`SITPolicy.paper`): cosines and
counts are on different scales and must not be mixed. Here they are brought to one scale first, the log of a share:

    z(t) = a·ln(1 + v(t) / 0.02) + b·ln(1 + p(t) / 0.01) + d·r(t)

a conditional logit model with three weights; score(t) = e^z(t) / Σ e^z is its probability of t being next, among all
tools that are available (z is 0 for one that nothing speaks for).

Where edges begin: at the last tool called, at each of them if the last turn made several calls. Right after a user's
message, summaries of other states in which a user had just spoken are looked at too, whatever tool came before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from langgraph_toolmem.graph.state import START, RunState
from langgraph_toolmem.runs.run import SUMMARY_TOOL, Run
from langgraph_toolmem.sit.evidence import Edge
from langgraph_toolmem.sit.extract import extractive_summary
from langgraph_toolmem.sit.policy import SITPolicy
from langgraph_toolmem.sit.transitions import just_asked, last_calls

if TYPE_CHECKING:
    from langgraph_toolmem.sit.rows import Match, StoredSummary

Search = Callable[[str], Iterable[tuple[str, float]]]
"""From a text to (tool, score) pairs. A score of 0 means that nothing is shared, one near 1 that all is."""
Kind = Literal["episodic", "procedural", "search"]

LEAST_COSINE: Final = 0.03
LEAST_VOTE: Final = 0.02
LEAST_SHARE: Final = 0.01
VOTES_OF_HABIT: Final = 0.1
FAINT: Final = 0.01
"""Score of a search's best hit at which its say is halved."""
UNSEEN: Final = 1.5
"""Votes for what nobody has seen yet, where the nearest state has a cosine of √½."""

Standing = Callable[[str], tuple[float, float]]
"""From a run (digest) to the share of it that counts as good, and the share that nobody judged, each 0 to 1."""


class Edges(Protocol):
    """Weights of the edges; `langgraph_toolmem.sit.evidence.Walks` is one."""

    def out_of(self, source: str) -> dict[str, Edge]:
        """The edges out of a tool (or START), by target."""


class Summaries(Protocol):
    """Stored state summaries; `langgraph_toolmem.sit.rows.Summaries` is one."""

    def embed(self, text: str) -> Any:
        """The query vector of a text; None for one without content."""

    def near(self, source: str, query: Any) -> Mapping[str, Match]:
        """For each target the most similar summary of its edge."""

    def nearest(self, source: str, query: Any, *, k: int) -> Sequence[Match]:
        """The k most similar summaries of the edges out of a source."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A tool that may come next, and why.

    Attributes:
        tool: its name.
        kind: the evidence that says most for it: similar states, usual successor, or its description.
        score: from 0 to 1. Of the combined policy a probability; of the paper's the cosine (``episodic``), the
            edge's share among the edges (``procedural``), the relative fit (``search``).
        evidence: one line to read.
        runs: uses of this transition in successful runs.
        success: share of its judged uses that belong to successful runs; None: none is judged.
        similarity: cosine of the most similar summary that led to it.
        summary: the text of that summary, `summary_id` its id.
    """

    tool: str
    kind: Kind
    score: float
    evidence: str
    runs: int
    success: float | None
    similarity: float | None = None
    summary: str | None = None
    summary_id: str | None = None


def suggest(
    run: Run,
    edges: Edges,
    summaries: Summaries | None = None,
    *,
    policy: SITPolicy | None = None,
    summary: str | None = None,
    available: Collection[str] | None = None,
    search: Search | None = None,
    k: int | None = None,
    state: RunState | None = None,
    standing: Standing = lambda _: (1.0, 0.0),
) -> list[Suggestion]:
    """The k likeliest next tools, best first; fewer if nothing speaks for more.

    Args:
        run: the history so far.
        edges: weights of the edges.
        summaries: the stored summaries; None: only the other two kinds of evidence. Its errors are not caught:
            without it the call answers with what there is.
        policy: how the evidence is used; `SITPolicy()` if None.
        summary: the present state in words, if the agent wrote it. Else, with ``recall="extractive"``, it is made
            from the history.
        available: the tools that may be called; None: all.
        search: finds tools by their descriptions.
        k: how many, if not the policy's.
        state: `run` folded, if that was done already.
        standing: of the runs behind the summaries; by default all went well.
    """
    policy = policy or SITPolicy()
    k = policy.k if k is None else k
    state = RunState.of(run) if state is None else state
    sources = last_calls(run)
    text = (summary or "").strip()
    if not text and policy.recall == "extractive":
        text = extractive_summary(state)
    allowed = _allowed(available)
    found = _Found(allowed)
    found.add_habits(sources, edges, policy)
    if text and summaries is not None:
        anywhere = just_asked(state) and policy.kind != "paper"  # the paper: those on the edges from the tool before
        places = dict.fromkeys([START, *sources] if anywhere else sources)
        found.add_states(text, places, summaries, policy, _Trust(edges, policy, standing))
    if search is not None and (policy.kind == "combined" or len(found.candidates) < k):
        found.add_words(state.user.raw or text, search)
    rank = _by_odds if policy.kind == "combined" else _by_kind
    return rank(found, policy, available)[: max(k, 0)]


def _allowed(available: Collection[str] | None) -> Callable[[str], bool]:
    names = None if available is None else frozenset(available)
    return lambda tool: tool != SUMMARY_TOOL and (names is None or tool in names)


@dataclass(slots=True)
class _Candidate:
    """Evidence for one tool."""

    votes: float = 0.0
    voters: int = 0
    judged: bool = False  # one of the voters at least
    best: Match | None = None
    share: float = 0.0
    weight: float = 0.0
    good: float = 0.0
    bad: float = 0.0
    relevance: float = 0.0


class _Found:
    """The candidates with their evidence."""

    def __init__(self, allowed: Callable[[str], bool]) -> None:
        self.candidates: dict[str, _Candidate] = {}
        self.sources: tuple[str, ...] = ()
        self.uses = 0.0  # successful uses of all edges out of the sources
        self.voters = 0
        self.votes = 0.0
        self.similarity = math.sqrt(0.5)  # of the nearest summary; this where there is none
        self._allowed = allowed

    def _candidate(self, tool: str) -> _Candidate:
        return self.candidates.setdefault(tool, _Candidate())

    def add_habits(self, sources: tuple[str, ...], edges: Edges, policy: SITPolicy) -> None:
        self.sources = sources
        for source in sources:
            row = edges.out_of(source)
            weights = {target: edge.weight(policy.c, policy.unlabelled) for target, edge in row.items()}
            total = sum(weights.values()) + sum(weight > 0 for weight in weights.values())
            self.uses += sum(row[target].good for target in row)
            for target, weight in weights.items():
                if weight > 0 and self._allowed(target):
                    found = self._candidate(target)
                    found.share += weight / total / len(sources)
                    found.weight += weight
                    found.good += row[target].good
                    found.bad += row[target].bad

    def add_states(
        self, text: str, places: Iterable[str], summaries: Summaries, policy: SITPolicy, trust: _Trust
    ) -> None:
        vector = summaries.embed(text)
        if vector is None:
            return
        if policy.kind == "paper":
            matches = [match for place in places for match in summaries.near(place, vector).values()]
        else:
            matches = [match for place in places for match in summaries.nearest(place, vector, k=policy.nearest)]
        matches = [match for match in matches if self._allowed(match.summary.target)]
        matches.sort(key=lambda match: -match.similarity)
        if policy.kind == "combined":
            del matches[policy.nearest :]
        weights = [trust.of(match.summary) for match in matches]
        # Votes that all are unjudged count in full among themselves.
        full = 1.0 if any(judged for _, judged in weights) else policy.unlabelled or 1.0
        for match, (weight, judged) in zip(matches, weights, strict=True):
            self.similarity = matches[0].similarity
            distance = self.similarity - match.similarity
            vote = weight / full * math.exp(-policy.sharpness * distance) * 2 * match.summary.usefulness
            found = self._candidate(match.summary.target)
            found.judged = found.judged or judged
            found.votes += vote
            found.voters += len(match.summary.uses)
            found.best = found.best or match
            self.votes += vote
            self.voters += len(match.summary.uses)

    def add_words(self, text: str, search: Search) -> None:
        hits = [(tool, score) for tool, score in search(text) if self._allowed(tool)] if text.strip() else []
        if not hits:
            return
        scores = [score for _, score in hits]
        highest, lowest = max(scores), min(scores)
        if highest <= 0:
            return
        say = highest / (highest + FAINT) * max(0.0, 1 - self.similarity**2)
        for tool, score in hits:
            fit = (score - lowest) / (highest - lowest) if highest > lowest else 1.0
            if fit > 0:
                found = self._candidate(tool)
                found.relevance = max(found.relevance, say * fit)


class _Trust:
    """Weights of summaries by the verdicts on their runs."""

    def __init__(self, edges: Edges, policy: SITPolicy, standing: Standing) -> None:
        self._out_of, self._unlabelled, self._standing = lru_cache(edges.out_of), policy.unlabelled, standing

    def of(self, summary: StoredSummary) -> tuple[float, bool]:
        """Return the number, and True if one of the runs went well."""
        edge = self._out_of(summary.source).get(summary.target)
        trust = self._unlabelled * (1.0 if edge is None else edge.trust)
        shares = [self._standing(use.run) for use in summary.uses]
        return sum(good + unjudged * trust for good, unjudged in shares), any(good > 0 for good, _ in shares)


# --- two ways to rank ------------------------------------------------------------------------------------------


def _by_odds(found: _Found, policy: SITPolicy, available: Collection[str] | None) -> list[Suggestion]:
    """By the probability that the three kinds of evidence give together."""
    parts = {tool: _parts(candidate, found, policy) for tool, candidate in found.candidates.items()}
    odds = {tool: math.exp(sum(part.values())) for tool, part in parts.items()}
    others = 0 if available is None else sum(tool not in odds for tool in set(available) - {SUMMARY_TOOL})
    total = sum(odds.values()) + max(others, 1)
    order = sorted(odds, key=lambda tool: (-odds[tool], -found.candidates[tool].weight, tool))
    return [
        _suggestion(tool, max(parts[tool], key=parts[tool].__getitem__), odds[tool] / total, found)
        for tool in order
        if odds[tool] > 1
    ]


def _parts(candidate: _Candidate, found: _Found, policy: SITPolicy) -> dict[Kind, float]:
    """Return what each kind of evidence adds to the log-odds. The first of equals gives the suggestion its kind."""
    habit = VOTES_OF_HABIT * candidate.share
    alike = max(found.similarity, LEAST_COSINE) ** 2
    votes = (candidate.votes + habit) / (found.votes + VOTES_OF_HABIT + UNSEEN * (1 - alike) / alike)
    states = policy.weight_states * math.log1p(votes / LEAST_VOTE)
    usual = policy.weight_habit * math.log1p(candidate.share / LEAST_SHARE)
    # Votes that are mostly habit's are habit, not memory of states.
    episodic = candidate.votes > habit
    return {
        "episodic": states if episodic else 0.0,
        "procedural": usual if episodic else usual + states,
        "search": policy.weight_words * candidate.relevance,
    }


def _by_kind(found: _Found, _policy: SITPolicy, _available: Collection[str] | None) -> list[Suggestion]:
    """As published: by the best cosine, then the heaviest edges; what is left by the descriptions."""

    def rank(tool: str) -> tuple[Any, ...]:
        candidate = found.candidates[tool]
        best = None if candidate.best is None else candidate.best.similarity
        relevance = candidate.relevance if best is None and candidate.weight <= 0 else 0.0
        return (best is None, -(best or 0.0), -candidate.weight, -relevance, tool)

    ranked = []
    for tool in sorted(found.candidates, key=rank):
        candidate = found.candidates[tool]
        if candidate.best is not None:
            ranked.append(_suggestion(tool, "episodic", candidate.best.similarity, found))
        elif candidate.weight > 0:
            ranked.append(_suggestion(tool, "procedural", candidate.share, found))
        else:
            ranked.append(_suggestion(tool, "search", candidate.relevance, found))
    return ranked


def _suggestion(tool: str, kind: Kind, score: float, found: _Found) -> Suggestion:
    candidate = found.candidates[tool]
    judged = candidate.good + candidate.bad
    best = candidate.best
    return Suggestion(
        tool=tool,
        kind=kind,
        score=float(score),
        evidence=_evidence(kind, candidate, found),
        runs=round(candidate.good),
        success=candidate.good / judged if judged else None,
        similarity=None if best is None else float(best.similarity),
        summary=None if best is None else best.summary.text,
        summary_id=None if best is None else best.summary.id,
    )


def _evidence(kind: Kind, candidate: _Candidate, found: _Found) -> str:
    """The strongest evidence first, the rest after it."""
    said: dict[Kind, str] = {}
    if candidate.best is not None:
        states = "state" if found.voters == 1 else "states"
        said["episodic"] = (
            f"{candidate.voters} of the {found.voters} most similar past {states} went on with it "
            f"(nearest: {candidate.best.similarity:.2f}{'' if candidate.judged else ', runs not judged'})"
        )
    if candidate.weight > 0:
        after = " or ".join("the start" if source == START else source for source in found.sources)
        good, uses, bad = (round(number) for number in (candidate.good, found.uses, candidate.bad))
        if good:
            said["procedural"] = f"came next {good} of {max(good, uses)} times after {after} in successful runs"
        else:
            said["procedural"] = f"came next after {after} in runs that nobody judged"
        if bad:
            said["procedural"] += f", {bad} times in failed ones"
    if candidate.relevance > 0:
        said["search"] = "its description fits the request"
    return "; ".join([said.pop(kind, ""), *said.values()]).strip("; ")
