"""Links between tools to be foreseen: two folds by task, and what they are told from."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from benchmarks.navigator_data import specs_of
from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.navigator.learned.features import Fits
from langgraph_toolmem.navigator.learned.plain import above
from langgraph_toolmem.navigator.learned.scorer import StructuralFits
from langgraph_toolmem.navigator.learned.views import Embed, Ints, Views
from langgraph_toolmem.runs.tools import ToolSpec

SETS: Final = ("nestful", "bfcl_v3_multi_turn")
Pair = tuple[int, int]
Scores = npt.NDArray[np.float64]
"""(N, N): producer by consumer, more is likelier."""


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        text: the user's; it decides the fold.
        links: producer and consumer, each once.
        calls: in order.
    """

    text: str
    links: frozenset[tuple[str, str]]
    calls: tuple[str, ...]


@dataclass(frozen=True)
class Fold:
    """What one half teaches and the other one asks.

    Attributes:
        graph, views, fits: the tools.
        known: (L, 2) links of the half that may be learned.
        asked: links of the other half.
        barred: links of either half: none is a negative.
        together: pairs used in one task of the other half, that are no links.
        history: counts of the half that may be learned.
    """

    graph: ToolDependencyGraph
    views: Views
    fits: Fits
    known: Ints
    asked: tuple[Pair, ...]
    barred: frozenset[Pair]
    together: tuple[Pair, ...]
    history: History

    @property
    def unseen(self) -> npt.NDArray[np.bool_]:
        """Which of the asked links are not among the known ones."""
        known = set(map(tuple, self.known.tolist()))
        return np.array([pair not in known for pair in self.asked])


def tasks_of(folder: Path, specs: Mapping[str, ToolSpec]) -> list[Task]:
    """The tasks of a set. NESTFUL: its gold edges; recorded runs: calls one after another; catalogue: see there."""
    found = []
    if (folder / "trajectories.jsonl").is_file():
        for line in (folder / "trajectories.jsonl").read_text(encoding="utf-8").splitlines():
            run = json.loads(line)
            calls = [call["function"]["name"] for each in run["messages"] for call in each.get("tool_calls") or ()]
            found.append((run["task"], list(pairwise(calls)), calls))
    else:
        for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines():
            query = json.loads(line)
            calls = [call["name"] for call in query.get("calls", ())] or list(query["relevant"])
            found.append((query["query"], _edges(query, calls), calls))
    return [
        Task(
            text,
            frozenset((a, b) for a, b in links if a != b and a in specs and b in specs),
            tuple(call for call in calls if call in specs),
        )
        for text, links, calls in found
    ]


def _edges(query: Mapping[str, Any], calls: Sequence[str]) -> list[tuple[str, str]]:
    """Gold edges; of a query that names a set of tools only, each of its tools with each other one."""
    if "edges" in query:
        return [(calls[edge["from"]], calls[edge["to"]]) for edge in query["edges"]]
    return [(one, other) for one in calls for other in calls if one != other]


def folds_of(specs: Mapping[str, ToolSpec], tasks: Sequence[Task], embed: Embed) -> list[Fold]:
    """Both ways: what one half of the tasks shows, the other half is asked about."""
    graph = ToolDependencyGraph(specs.values())
    views = Views(graph.apis, embed)
    fits = StructuralFits(graph, views)
    halves = [[task for task in tasks if crc32(task.text.encode()) % 2 == half] for half in (0, 1)]
    found = []
    links = [sorted({_placed(views, link) for task in half for link in task.links}) for half in halves]
    barred = frozenset((*links[0], *links[1]))
    for half in (0, 1):
        calls = [[views.places[call] for call in task.calls] for task in halves[1 - half]]
        together = {(a, b) for each in calls for a in each for b in each if a != b} - barred
        known = np.array(links[half], dtype=np.int64).reshape(-1, 2)
        found.append(
            Fold(
                graph,
                views,
                fits,
                known,
                tuple(links[1 - half]),
                barred,
                tuple(sorted(together)),
                _history(halves[half]),
            )
        )
    return found


def _placed(views: Views, link: tuple[str, str]) -> Pair:
    return views.places[link[0]], views.places[link[1]]


def _history(tasks: Sequence[Task]) -> History:
    uses, transitions = Counter[str](), Counter[tuple[str, str]]()
    for task in tasks:
        uses.update(task.calls)
        transitions.update(task.links)
    return History(uses=uses, transitions=transitions)


def negatives(fold: Fold, seed: int) -> Ints:
    """One for each asked link: by turns a pair by chance and a hard one, never a link of either half."""
    rng, total = np.random.default_rng(seed), len(fold.views)
    kits = fold.views.labels["kit"]
    back = [(b, a) for a, b in fold.asked if (b, a) not in fold.barred]
    tools = [place for place in range(total) if kits[place] >= 0]

    def of_a_kit() -> Pair:
        one = tools[rng.integers(len(tools))]
        same = np.flatnonzero(kits == kits[one])
        return one, int(same[rng.integers(len(same))])

    def one_of(pairs: Sequence[Pair]) -> Callable[[], Pair]:
        return lambda: pairs[int(rng.integers(len(pairs)))]

    hard = [one_of(pairs) for pairs in (back, fold.together) if pairs] + ([of_a_kit] if tools else [])
    found: list[Pair] = []
    while len(found) < len(fold.asked):
        chance = len(found) % 2 == 0 or not hard
        pair = (int(rng.integers(total)), int(rng.integers(total))) if chance else hard[int(rng.integers(len(hard)))]()
        if pair[0] != pair[1] and pair not in fold.barred:
            found.append(pair)
    return np.array(found)


@dataclass(frozen=True)
class Figures:
    """How well a ranking does on one fold.

    Attributes:
        all, unseen: AUC over all asked links, and over those that were not known, mean of the draws of negatives.
        each: (draws,) of both, for intervals.
        within: for each unseen link, the share of other producers of its consumer that score less (AUC).
        reciprocal: for each unseen link, 1 / rank of its producer among those, other links left out (filtered MRR).
    """

    all: float
    unseen: float
    within: tuple[float, ...]
    reciprocal: tuple[float, ...]
    parts: tuple[tuple[float, ...], ...]


def figures(fold: Fold, scores: Scores, draws: Sequence[Ints]) -> Figures:
    """The figures of one ranking; links that are known come first whatever it says."""
    ranked = scores.copy()
    ranked[tuple(fold.known.T)] += 1e6
    asked, unseen = np.array(fold.asked), fold.unseen
    values = ranked[tuple(asked.T)]
    shares = [np.array([above(value, ranked[tuple(drawn.T)]) for value in values]) for drawn in draws]
    within, reciprocal = [], []
    for producer, consumer in asked[unseen].tolist():
        others = [a for a in range(len(ranked)) if a != consumer and (a, consumer) not in fold.barred]
        column = ranked[others, consumer]
        within.append(above(ranked[producer, consumer], column))
        ties = np.count_nonzero(column == ranked[producer, consumer])
        reciprocal.append(1 / (1 + np.count_nonzero(column > ranked[producer, consumer]) + ties / 2))
    mean = np.mean(shares, axis=0)
    return Figures(
        float(mean.mean()),
        float(mean[unseen].mean()),
        tuple(within),
        tuple(reciprocal),
        (tuple(mean.tolist()), tuple(mean[unseen].tolist())),
    )


def interval(values: Sequence[float], *, draws: int = 2_000, seed: int = 0) -> tuple[float, float]:
    """95 % bootstrap interval of a mean."""
    rng, given = np.random.default_rng(seed), np.asarray(values)
    means = given[rng.integers(len(given), size=(draws, len(given)))].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def catalogue(data: Path, name: str) -> tuple[dict[str, ToolSpec], list[Task]]:
    """A set: its tools and tasks."""
    specs = specs_of(data / name)
    return specs, tasks_of(data / name, specs)
