"""Links between tools to be foreseen: two folds by task, and what they are told from."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Final, NamedTuple
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
PLANTED: Final = {"planted": 0.5, "planted-opaque": 0.9}
"""Made catalogues, and the share of their tools whose words say nothing."""
MOST_ASKED: Final = 1_500
"""Links of a fold that are asked, by chance where there are more."""
RIVALS: Final = 512
"""Other producers of a consumer that a right one is ranked among, by chance where there are more."""
_FIRST: Final = ("tor", "mal", "ber", "san", "qui", "lor", "ven", "dax", "pim", "gar", "hol", "zet", "fun", "jar")
_LAST: Final = ("in", "ot", "eso", "ula", "ark", "om", "ido", "eph", "ast", "ung", "iro", "elk", "ump", "asi", "orn")
Pair = tuple[int, int]
Scores = Callable[[Ints], npt.NDArray[np.float64]]
"""(P, 2) producers and consumers -> (P,), more is likelier."""


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


class Catalogue(NamedTuple):
    """Tools, tasks, and the links that are true beside those of the tasks."""

    specs: Mapping[str, ToolSpec]
    tasks: Sequence[Task]
    true: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Fold:
    """What one half teaches and the other one asks.

    Attributes:
        graph, views, fits: the tools.
        known: (L, 2) links of the half that may be learned.
        asked: links of the other half.
        barred: links of either half, and those that are known to be true beside them: none is a negative.
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


def folds_of(of: Catalogue, embed: Embed) -> list[Fold]:
    """Both ways: what one half of the tasks shows, the other half is asked about."""
    specs, tasks, true = of
    graph = ToolDependencyGraph(specs.values())
    views = Views(graph.apis, embed)
    fits = StructuralFits(graph, views)
    halves = [[task for task in tasks if crc32(task.text.encode()) % 2 == half] for half in (0, 1)]
    found = []
    links = [sorted({_placed(views, link) for task in half for link in task.links}) for half in halves]
    barred = frozenset((*links[0], *links[1], *(_placed(views, link) for link in true)))
    for half in (0, 1):
        calls = [[views.places[call] for call in task.calls] for task in halves[1 - half]]
        together = {(a, b) for each in calls for a in each for b in each if a != b} - barred
        known = np.array(links[half], dtype=np.int64).reshape(-1, 2)
        asked = random.Random(half).sample(links[1 - half], min(MOST_ASKED, len(links[1 - half])))
        found.append(
            Fold(
                graph, views, fits, known, tuple(sorted(asked)), barred, tuple(sorted(together)), _history(halves[half])
            )
        )  # fmt: skip
    return found


def planted(opaque: float, tools: int, *, sorts: int = 200, areas: int = 20, seed: int = 0) -> Catalogue:
    """A catalogue with known links: a tool of an area takes and gives sorts of things, and feeds the tools of its area
    that take what it gives. The words of some tell nothing of area or sort: what they link to must tell.

    Args:
        opaque: share of such tools.
        tools: how many there are.
        sorts, areas: how many of each; tools draw theirs.
        seed: of every draw.

    Returns:
        The tools, tasks (a request each, that walks along two to four links), and all true links.
    """
    draw = random.Random(seed)
    things = [f"{a}{b}" for a, b in product(_FIRST, _LAST)][:sorts]
    specs, takes, gives = {}, defaultdict(list), []
    for number in range(tools):
        area, taken = draw.randrange(areas), draw.sample(range(sorts), draw.choice((1, 1, 2)))
        given = draw.randrange(sorts)
        dull = draw.random() < opaque
        verb = draw.choice(("get", "find", "create", "update", "list", "send"))
        name = f"svc_{number}" if dull else f"{verb}_{things[given]}_{number}"
        inputs = [f"arg{at}" if dull else f"{things[sort]}_id" for at, sort in enumerate(taken)]
        output = "value" if dull else f"{things[given]}_id"
        specs[name] = ToolSpec(
            name,
            "Calls the service."
            if dull
            else f"{verb.title()} a {things[given]} of the {things[-1 - area]} department.",
            {"type": "object", "properties": {each: {"type": "string"} for each in inputs}, "required": inputs},
            {"type": "object", "properties": {output: {"type": "string"}}},
            toolkit="" if dull else f"{things[-1 - area]} department",
        )
        for sort in taken:
            takes[area, sort].append(name)
        gives.append((name, area, given))
    after = {name: [each for each in takes[area, given] if each != name] for name, area, given in gives}
    starts = [name for name, then in after.items() if then]
    tasks = []
    for number in range(tools // 2):
        way = [draw.choice(starts)]
        while len(way) < 5 and after[way[-1]]:
            way.append(draw.choice(after[way[-1]]))
        links = frozenset((a, b) for a, b in pairwise(way) if a != b)
        tasks.append(Task(f"task {number}", links, tuple(way)))
    return Catalogue(specs, tasks, [(name, each) for name, then in after.items() for each in then])


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
    total, known = len(fold.views), np.sort(fold.known[:, 0] * len(fold.views) + fold.known[:, 1])

    def ranked(pairs: Ints) -> npt.NDArray[np.float64]:
        return scores(pairs) + 1e6 * np.isin(pairs[:, 0] * total + pairs[:, 1], known)

    asked, unseen = np.array(fold.asked), fold.unseen
    values, drawn = ranked(asked), np.split(ranked(np.concatenate(draws)), len(draws))
    shares = [np.array([above(value, each) for value in values]) for each in drawn]
    some = list(range(total)) if total <= RIVALS else sorted(random.Random(0).sample(range(total), RIVALS))
    others = {
        consumer: np.array([(a, consumer) for a in some if a != consumer and (a, consumer) not in fold.barred])
        for consumer in sorted(set(asked[unseen, 1].tolist()))
    }
    ends = np.cumsum([len(each) for each in others.values()])[:-1]
    columns = dict(zip(others, np.split(ranked(np.concatenate([*others.values()])), ends), strict=True))
    within, reciprocal = [], []
    for value, consumer in zip(values[unseen].tolist(), asked[unseen, 1].tolist(), strict=True):
        column = columns[consumer]
        within.append(above(value, column))
        ties = np.count_nonzero(column == value)
        reciprocal.append(1 / (1 + np.count_nonzero(column > value) + ties / 2))
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


def catalogue(data: Path, name: str, tools: int = 10_000) -> Catalogue:
    """A set: its tools, tasks and, of a made one of so many tools, all true links."""
    if name in PLANTED:
        return planted(PLANTED[name], tools)
    specs = specs_of(data / name)
    return Catalogue(specs, tasks_of(data / name, specs), [])
