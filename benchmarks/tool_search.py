"""Does the search find all the tools a request needs? Ours against what one would use instead, on real APIs.

``python -m benchmarks.tool_search``; definitions: README.md in this folder.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Final

import numpy as np
import numpy.typing as npt
from rich.table import Table

from benchmarks import command, conclude, lines_of, load, present, show
from benchmarks.recall import embedder_named, held_out, missing, turns
from langgraph_toolmem.navigator.tool_search import ToolSearcher
from langgraph_toolmem.runs.tools import ToolSpec, read_tools
from langgraph_toolmem.text.embedders import Embedder
from langgraph_toolmem.text.wording import kit_name, kit_of, split_clauses
from langgraph_toolmem.text.words import telling_stems, words

CATALOGUE: Final = "toolbench_catalog"
BUILT_IN: Final = "ours, built-in"
OURS: Final = "ours, MiniLM"
TARGETS: Final = {BUILT_IN: (72, 53, 68, 78, 10), OURS: (78, 60, 76, 86, 60)}
"""R@5, C@5, C@10, C@20 in percent, and p50 in milliseconds."""
DEPTH: Final = 20
RANK_OFFSET: Final = 60

Rank = Callable[[str], list[str]]
"""From a request to names of tools, best first."""


# --- requests ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """A request and the tools that it needs.

    Attributes:
        group: requests of one group share tools or wording: all of a group are on one side of the split.
        relevant: names of the tools it needs.
    """

    text: str
    group: str
    relevant: frozenset[str]

    @property
    def held_out(self) -> bool:
        """On the side from which no constant was fitted."""
        return held_out(self.group)


@dataclass(frozen=True)
class Episode:
    """One user message and the tools called after it, in order; all episodes of a task are on one side of a split."""

    task: str
    request: str
    tools: tuple[str, ...]


def tools_of(data: Path, name: str) -> list[ToolSpec]:
    """Read the tools of a set."""
    return list(read_tools(load(data / name / "tools.json")).values())


def requests(data: Path) -> list[Request]:
    """Read the requests of the catalogue, with their groups."""
    found = lines_of(data / CATALOGUE / "queries.jsonl")
    kits = {each.name: kit_of(each) for each in tools_of(data, CATALOGUE)}
    groups = joined_kits([[kits[tool] for tool in row["relevant"]] for row in found])
    return [Request(row["query"], group, frozenset(row["relevant"])) for row, group in zip(found, groups, strict=True)]


def episodes(data: Path, name: str) -> list[Episode]:
    """Read the episodes of a set, without calls of tools that it does not list."""
    known = {each.name for each in tools_of(data, name)}
    found = [
        Episode(row["task"], request, tuple(tool for tool in tools if tool in known))
        for row in lines_of(data / name / "trajectories.jsonl")
        for request, tools in turns(row["messages"])
    ]
    return [each for each in found if each.tools]


def halves(found: Sequence[Episode], seed: int) -> tuple[list[Episode], list[Episode]]:
    """Two halves at random, split by task."""
    tasks = list(dict.fromkeys(each.task for each in found))
    random.Random(seed).shuffle(tasks)
    first = set(tasks[: len(tasks) // 2])
    return [each for each in found if each.task in first], [each for each in found if each.task not in first]


def joined_kits(rows: Sequence[Sequence[str]]) -> list[str]:
    """For each row a name of the component it is in: rows that share a key, directly or not, have the same."""
    parents: dict[str, str] = {}

    def root(key: str) -> str:
        parents.setdefault(key, key)
        while parents[key] != key:
            key = parents[key]
        return key

    for row in rows:
        for key in sorted(set(row)):
            parents[root(key)] = root(min(row))
    return [root(row[0]) for row in rows]


# --- what one would use instead ---------------------------------------------------------------------------------


def full_text(spec: ToolSpec) -> str:
    """Name, description, parameters, category and toolkit."""
    names = " ".join(words(spec.name))
    return " ".join([names, spec.description, " ".join(spec.properties), spec.category, kit_name(spec)])


class BM25:
    """Okapi BM25 (k1 1.5, b 0.75) over stems without stop words."""

    def __init__(self, texts: Sequence[str]) -> None:
        found = [Counter(telling_stems(text)) for text in texts]
        lengths = np.array([each.total() for each in found], dtype=np.float64)
        rest = 1.5 * (0.25 + 0.75 * lengths / lengths.mean())
        lists: dict[str, list[tuple[int, float]]] = {}
        for place, counts in enumerate(found):
            for word, n in counts.items():
                lists.setdefault(word, []).append((place, n * 2.5 / (n + rest[place])))
        self._size = len(texts)
        self._lists = {
            word: (
                np.array([place for place, _ in each]),
                np.array([part for _, part in each]) * math.log(1 + (len(texts) - len(each) + 0.5) / (len(each) + 0.5)),
            )
            for word, each in lists.items()
        }

    def scores(self, text: str) -> npt.NDArray[np.float64]:
        """One per text."""
        found = np.zeros(self._size)
        for word in telling_stems(text):
            if word in self._lists:
                places, parts = self._lists[word]
                found[places] += parts
        return found


def order(scores: npt.NDArray[np.floating]) -> list[int]:
    """Places by falling score."""
    return [int(place) for place in np.argsort(-scores, kind="stable")]


def fused(rankings: Sequence[Sequence[int]]) -> list[int]:
    """Reciprocal rank fusion: Σ 1 / (60 + rank)."""
    scores = np.zeros(len(rankings[0]))
    for ranking in rankings:
        scores[list(ranking)] += 1 / (RANK_OFFSET + np.arange(1, len(ranking) + 1))
    return order(scores)


def best_ranks(rankings: Sequence[Sequence[int]]) -> list[int]:
    """Each place by the best rank it has anywhere."""
    best = np.full(len(rankings[0]), len(rankings[0]), dtype=np.float64)
    for ranking in rankings:
        ranks = np.empty(len(ranking))
        ranks[list(ranking)] = np.arange(len(ranking))
        best = np.minimum(best, ranks)
    return order(-best)


def yardsticks(tools: Sequence[ToolSpec], embedder: Embedder | None) -> dict[str, Rank]:
    """The rankings of others."""
    names = [each.name for each in tools]
    texts = [full_text(each) for each in tools]
    lexical = BM25(texts)

    def named(places: Sequence[int]) -> list[str]:
        return [names[place] for place in places]

    found: dict[str, Rank] = {"BM25": lambda query: named(order(lexical.scores(query)))}
    if embedder is None:
        return found
    short = np.array(embedder.embed_documents([f"{each.name}: {each.description}" for each in tools]))
    full = np.array(embedder.embed_documents(texts))

    def near(matrix: npt.NDArray[np.float64], asked: Sequence[str]) -> list[list[int]]:
        return [order(row) for row in np.array(embedder.embed_documents(list(asked))) @ matrix.T]

    def hybrid(query: str) -> list[int]:
        return fused([order(lexical.scores(query)), near(full, [query])[0]])

    def in_clauses(query: str) -> list[int]:
        pieces = split_clauses(query)
        parts = list(dict.fromkeys((query, *pieces.sentences, *pieces.clauses)))
        each = [
            fused([order(lexical.scores(part)), dense]) for part, dense in zip(parts, near(full, parts), strict=True)
        ]
        return fused([each[0], best_ranks(each[1:] or each)])

    found["MiniLM, name + description (bigtool's way)"] = lambda query: named(near(short, [query])[0])
    found["MiniLM + BM25, fused"] = lambda query: named(hybrid(query))
    found["MiniLM + BM25, fused, with clauses"] = lambda query: named(in_clauses(query))
    return found


# --- ours -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Score:
    """Percent of one method on one part of the requests, and the p50 of a query in milliseconds."""

    method: str
    part: str
    r5: float
    c5: float
    c10: float
    c20: float
    p50: float


def ours(tools: Sequence[ToolSpec], embedder: Embedder | None) -> Rank:
    """Our search as a ranking."""
    search = ToolSearcher(tools, embedder=embedder)
    return lambda query: [found.name for found in search.search(query, DEPTH)]


def measure(method: str, rank: Rank, asked: Sequence[Request]) -> list[Score]:
    """A method on all requests, and on those from which no constant was fitted."""
    rank(asked[0].text)
    rows = []
    for each in asked:
        begun = time.perf_counter()
        found = rank(each.text)
        taken = 1000 * (time.perf_counter() - begun)
        r5 = len(each.relevant & set(found[:5])) / len(each.relevant)
        rows.append((each.held_out, r5, *(each.relevant <= set(found[:k]) for k in (5, 10, 20)), taken))
    answer = []
    for part, kept in (("all", rows), ("held out", [row for row in rows if row[0]])):
        if kept:
            r5, c5, c10, c20 = (100 * fmean(float(row[place]) for row in kept) for place in (1, 2, 3, 4))
            answer.append(Score(method, part, r5, c5, c10, c20, median(row[5] for row in kept)))
    return answer


# --- what is printed --------------------------------------------------------------------------------------------


def table(scores: Sequence[Score], tools: int, asked: int) -> Table:
    """All methods side by side."""
    answer = Table(title=f"{asked} requests over {tools} tools, percent", title_justify="left")
    answer.add_column("method", no_wrap=True)
    answer.add_column("requests")
    for label in ("R@5", "C@5", "C@10", "C@20", "p50 ms"):
        answer.add_column(label, justify="right")
    for score in scores:
        figures = [f"{value:.1f}" for value in (score.r5, score.c5, score.c10, score.c20)]
        answer.add_row(score.method if score.part == "all" else "", score.part, *figures, f"{score.p50:.1f}")
    return answer


def verdicts(scores: Sequence[Score]) -> list[tuple[bool, str]]:
    """Return the targets and whether each holds."""
    found = []
    for score in scores:
        if score.method not in TARGETS:
            continue
        *least, most = TARGETS[score.method]
        values = (score.r5, score.c5, score.c10, score.c20)
        for label, value, bound in zip(("R@5", "C@5", "C@10", "C@20"), values, least, strict=True):
            found.append((value >= bound, f"{score.method}, {score.part}: {label} {value:.1f} >= {bound}"))
        if score.part == "all":
            found.append((score.p50 <= most, f"{score.method}: p50 {score.p50:.1f} ms <= {most}"))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = command("tool_search", __doc__)
    parser.add_argument("--no-model", action="store_true", help="without all-MiniLM-L6-v2")
    options = parser.parse_args(arguments)
    if not present(options, [CATALOGUE], queries=True):
        return 0
    embedder = None
    if not options.no_model:
        if why := missing("MiniLM"):
            print(f"skipped: MiniLM: {why}")
        else:
            embedder = embedder_named("MiniLM")
    tools, asked = tools_of(options.data, CATALOGUE), requests(options.data)
    methods = {**yardsticks(tools, embedder), BUILT_IN: ours(tools, None)}
    if embedder is not None:
        methods[OURS] = ours(tools, embedder)
    scores = [score for method, rank in methods.items() for score in measure(method, rank, asked)]
    show(table(scores, len(tools), len(asked)))
    return conclude(verdicts(scores), {"scores": [asdict(score) for score in scores]}, options.json)


if __name__ == "__main__":
    sys.exit(main())
