"""SIT-Graph's rule as published (arXiv 2512.07287); by default `sit.suggest` combines three kinds of evidence.

The graph's nodes are tools. An edge from the last tool to a tool t has a weight and the summaries of states:

    (1) w(t) = N + c · Σ 1/n over the N successful runs that used the edge, n the length of each, c = 1            [P]
    (2) e(t) = the highest likeness of the present summary to one of the edge's                                    [P]

Where the agent summarised the present state, the edges with summaries come first, by (2); the others follow by (1), and
the two are never mixed [P]. If too few edges are left, tools follow whose descriptions fit the request [O]. k = 2 was
the paper's best number of suggestions. The paper compares embeddings by their cosine; here it is the Dice coefficient
of words, because a summary is kept as hashes of its words, which tell nothing of what a user said [O].

| | the paper (`SITPolicy.paper()`) | the default |
|---|---|---|
| order | summarised states, then edges, then descriptions | one probability from all three |
| a state is compared | if both sides have a summary | always: by the request and the latest result |
| runs that teach | successful ones | all but failed ones; a run without feedback counts 0.3 |
| edges begin at | the last tool | the last tool for states, the last two symbols for habits |
| kept transitions read for a suggestion | all | those of similar requests |
| next tool is the first / one of the two: 8 APIs (bfcl_v3_multi_turn) | 25.7 / 32.5 % | 65.3 / 79.8 % |
| office, GPT-4 (workbench_gpt4) | 33.9 / 50.3 % | 78.3 / 90.6 % |
| shop, ideal runs (tau_retail_gold) | 38.3 / 56.7 % | 67.1 / 83.7 % |

The last lines are of two splits (``python -m benchmarks.sit --seeds 2``). These recorded runs have no summaries, so (2)
cannot act there. Runs with written summaries are not measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

from langgraph_toolmem.sit.evidence import SITEvidence, TransitionSeen, dice, hashes
from langgraph_toolmem.sit.suggest import Hits, Suggestion, description_fits, may_suggest, relative_fit


def suggest_as_published(
    known: SITEvidence,
    source: str | None,
    summary: str,
    hits: Hits,
    *,
    good: Callable[[str], float],
    available: Collection[str] | None,
    k: int,
) -> list[Suggestion]:
    """Return the k best next tools.

    Args:
        known: the transitions.
        source: the last tool, or START; None if it is unknown.
        summary: the present state as the agent wrote it, or "".
        hits: tools whose descriptions fit the request.
        good: returns the weight of a run (its digest), 0 if it was not successful.
        available: the tools that may be called; None for all.
    """
    usable: list[TransitionSeen] = []
    for seen in known.transitions():
        if seen.source == source and may_suggest(seen.target, available) and good(seen.run) > 0:
            usable.append(seen)
    weights = _edge_weights(usable, known, good)
    similarities: dict[str, float] = {}
    if summary:
        similarities = _similarities(usable, summary)
    left: list[tuple[str, float]] = []
    for tool, fit in hits:
        if tool not in weights and may_suggest(tool, available):
            left.append((tool, fit))
    # One kind after the other: similarities and weights are on different scales, so they are not mixed.
    ranked = [
        *_summarised(similarities, weights),
        *_heaviest(weights, similarities, source),
        *_described(relative_fit(left, nearest=0.0)),
    ]
    return ranked[:k]


def _edge_weights(
    transitions: Iterable[TransitionSeen], known: SITEvidence, good: Callable[[str], float]
) -> dict[str, float]:
    """Return w (1) of each target, given the transitions of successful runs that begin at one source."""
    weights: dict[str, float] = defaultdict(float)
    counted: set[tuple[str, str]] = set()
    for seen in transitions:
        # N is a number of runs: one that used the transition twice counts once. Short runs count more, by 1/n.
        if (seen.run, seen.target) not in counted:
            counted.add((seen.run, seen.target))
            weights[seen.target] += good(seen.run) * (1 + 1 / len(known.runs[seen.run]))
    return weights


def _similarities(transitions: Iterable[TransitionSeen], summary: str) -> dict[str, float]:
    """Return e (2) of each target with a summarised state."""
    here = frozenset(hashes(summary))
    similarities: dict[str, float] = {}
    for seen in transitions:
        if seen.written:
            similarities[seen.target] = max(similarities.get(seen.target, 0.0), dice(here, seen.words))
    return similarities


def _summarised(similarities: Mapping[str, float], weights: Mapping[str, float]) -> list[Suggestion]:
    def by_similarity(tool: str) -> tuple[float, float, str]:
        return -similarities[tool], -weights[tool], tool

    suggestions = []
    for tool in sorted(similarities, key=by_similarity):
        alike = similarities[tool]
        suggestions.append(Suggestion(tool, "episodic", alike, f"came next in a summarised state ({alike:.0%} alike)"))
    return suggestions


def _heaviest(weights: Mapping[str, float], summarised: Collection[str], source: str | None) -> list[Suggestion]:
    def by_weight(tool: str) -> tuple[float, str]:
        return -weights[tool], tool

    # One more for each tool, so that a single seen tool does not get a score of 1.
    total = sum(weights.values()) + len(weights)
    suggestions = []
    for tool in sorted(weights, key=by_weight):
        if tool not in summarised:
            evidence = f"came next after {source} in successful runs"
            suggestions.append(Suggestion(tool, "procedural", weights[tool] / total, evidence))
    return suggestions


def _described(fits: Mapping[str, float]) -> list[Suggestion]:
    def by_fit(tool: str) -> tuple[float, str]:
        return -fits[tool], tool

    return [Suggestion(tool, "search", fits[tool], description_fits()) for tool in sorted(fits, key=by_fit)]
