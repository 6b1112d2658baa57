"""Which past runs are worth recalling, and how many? Recall against what one would use instead, on recorded runs.

``python -m benchmarks.recall``; what is measured and how: README.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from benchmarks.recall_data import SETS, Request, Split, f1, held_out, memory_of, shape, source, split
from benchmarks.replay import DATA
from benchmarks.sit import embedder_named, missing
from langgraph_toolmem.entries.policy import RecallPolicy, dynamic_n
from langgraph_toolmem.entries.ranking import Match, PastRequest, Weights, rank
from langgraph_toolmem.entries.recall import LONGLIST
from langgraph_toolmem.text.embedders import Embedder
from langgraph_toolmem.text.requests import terms_of

MAIN: Final = "workbench_gpt4"
TARGETS: Final = {"calibrated": 0.78}
PARTS: Final = {"left-out groups": "left_out", "nothing relevant": "none", "something relevant": "some"}
FIXED: Final = (1, 2, 3, 5, 10)
THRESHOLDS: Final = tuple(round(0.02 * step, 2) for step in range(1, 50))
HEAD: Final = 50
"""How far down the list the number with hindsight is looked for."""

FIT_SEEDS: Final = range(100, 105)
"""Splits of which the constants are fitted; not those that are scored."""

Scores = npt.NDArray[np.float64]
Similarity = Callable[[Split], Scores]
"""Of every query of a split with every entry of its memory."""


@dataclass(frozen=True)
class Score:
    """F1 of one method on one set.

    Attributes:
        all: mean over all queries of all seeds.
        left_out: over those of the groups from which no constant was fitted.
        none: over those to which nothing is relevant: how often nothing was recalled.
        some: over the others.
        recalled: entries recalled, mean.
    """

    name: str
    method: str
    all: float
    left_out: float
    none: float
    some: float
    recalled: float


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
    paper = RecallPolicy.paper()
    return fixed | {
        "largest gap": lambda values: int(np.argmax(-np.diff(values))) + 1,
        "paper": lambda values: dynamic_n(values, paper),
        "paper, R = 5": lambda values: dynamic_n(values, paper.with_(radius=5)),
        "paper, second peak": lambda values: dynamic_n(values, paper.with_(peak=2)),
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


def calibrated(parts: Split, embedder: Embedder | None = None, *, judged: bool = True) -> list[list[int]]:
    """What the default policy recalls for each query, with the built-in embedder or another one."""
    with memory_of(parts.memory, embedder, judged=judged) as memory:
        return [[int(entry.run) for entry in memory.entries.recall(query.text)] for query in parts.queries]


def grouped(parts: Split) -> tuple[list[list[int]], float]:
    """The same, unjudged, where runs that say the same are shown as one: the entries behind it; lines a query."""
    with memory_of(parts.memory, judged=False) as memory:
        shown = [memory.entries.recollect([{"role": "user", "content": each.text}]).entries for each in parts.queries]
        found = [[int(run.run) for each in line for run in (each.entry, *each.others)] for line in shown]
        return found, fmean(map(len, shown))


# --- the constants of the default policy ------------------------------------------------------------------------


def examples(requests: Sequence[Request], similarity: Similarity) -> tuple[Scores, Scores]:
    """Features and relevance of what is weighed, for the queries whose groups are not left out."""
    features: list[Match] = []
    relevant: list[bool] = []
    for seed in FIT_SEEDS:
        parts = split(requests, seed)
        learned = Weights([terms_of(each.text) for each in parts.memory])
        for row, query in zip(similarity(parts), parts.queries, strict=True):
            if not held_out(query.group):
                near = [parts.memory[place] for place in np.argsort(-row, kind="stable")[:LONGLIST]]
                past = [PastRequest(terms_of(each.text), "\n".join(each.tools)) for each in near]
                found = rank(query.text, past, learned)
                features += found
                relevant += [near[match.place].group == query.group for match in found]
    return np.array([match[2:] for match in features]), np.array(relevant, dtype=np.float64)


def fit(sets: Mapping[str, Sequence[Request]], similarity: Similarity) -> Scores:
    """Coefficients and intercept by maximum likelihood; MAIN counts three times, each other set once."""
    found = [(name, *examples(sets[name], similarity)) for name in sets if name != "workbench_gold"]
    weights = [np.full(len(y), (3.0 if name == MAIN else 1.0) / len(y)) for name, _, y in found]
    x, y = np.vstack([x for _, x, _ in found]), np.concatenate([y for _, _, y in found])
    return logistic(x, y, np.concatenate(weights) / sum(map(np.sum, weights)))


def logistic(x: Scores, y: Scores, weight: Scores) -> Scores:
    """Weighted logistic regression by Newton's method, intercept last."""
    x = np.hstack([x, np.ones((len(x), 1))])
    found = np.zeros(x.shape[1])
    for _ in range(25):
        p = 1 / (1 + np.exp(-(x @ found)))
        bend = (x * (weight * p * (1 - p))[:, None]).T @ x + 1e-6 * np.eye(x.shape[1])
        found = found - np.linalg.solve(bend, x.T @ (weight * (p - y)))
    return found


def measure(name: str, requests: Sequence[Request], seeds: int, similarities: Mapping[str, Similarity]) -> list[Score]:
    """All methods on one set."""
    rows: dict[str, list[tuple[float, bool, bool, int]]] = {}

    def book(method: str, parts: Split, recalled: Sequence[Sequence[int]]) -> None:
        for query, chosen in zip(parts.queries, recalled, strict=True):
            relevant = parts.relevant(query)
            row = f1(chosen, relevant), held_out(query.group), not relevant, len(chosen)
            rows.setdefault(method, []).append(row)

    for seed in range(seeds):
        parts = split(requests, seed)
        book("nothing", parts, [[] for _ in parts.queries])
        book("calibrated", parts, calibrated(parts))
        book("calibrated, unjudged", parts, calibrated(parts, judged=False))
        runs, lines = grouped(parts)
        book("grouped, unjudged", parts, runs)
        print(f"{name}, seed {seed}: {lines:.2f} lines a query")
        for kind, similarity in similarities.items():
            values = similarity(parts)
            for rule, recalled in by_similarity(parts, values).items():
                book(f"{kind}: {rule}", parts, recalled)
            if kind == "MiniLM":
                book("calibrated, MiniLM", parts, calibrated(parts, embedder_named(kind)))
    scores = [_score(name, method, found) for method, found in rows.items()]
    kept = [score for score in scores if "threshold" not in score.method]
    for kind in similarities:
        best = max((s for s in scores if s.method.startswith(f"{kind}: threshold")), key=lambda s: s.all)
        kept.append(Score(**(asdict(best) | {"method": f"{kind}: best threshold with hindsight"})))
        kept += [s for s in scores if s.method == f"{kind}: threshold 0.60"]
    return kept


def _score(name: str, method: str, rows: Sequence[tuple[float, bool, bool, int]]) -> Score:
    def mean(values: Sequence[float]) -> float:
        return fmean(values) if values else 0.0

    return Score(
        name,
        method,
        all=mean([row[0] for row in rows]),
        left_out=mean([row[0] for row in rows if row[1]]),
        none=mean([row[0] for row in rows if row[2]]),
        some=mean([row[0] for row in rows if not row[2]]),
        recalled=mean([float(row[3]) for row in rows]),
    )


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
        answer.add_row(method, *(f"{s.all:.3f}" if (s := found.get((name, method))) else "" for name in names))
        if method in TARGETS:
            for label, field in PARTS.items():
                ours = [found.get((name, method)) for name in names]
                answer.add_row(f"  {label}", *("" if s is None else f"{getattr(s, field):.3f}" for s in ours))
    return answer


def verdicts(scores: Sequence[Score]) -> list[tuple[bool, str]]:
    """Whether what is asked of the default policy holds: rivals see what it sees."""
    found: list[tuple[bool, str]] = []
    for own in (score for score in scores if score.method in TARGETS):
        if own.name == MAIN:
            least = TARGETS[own.method]
            found.append((own.all >= least, f"{own.name}, {own.method}: F1 {own.all:.3f} >= {least}"))
            found.append(
                (own.left_out >= least, f"{own.name}, {own.method}, left-out groups: F1 {own.left_out:.3f} >= {least}")
            )
        rivals = [s for s in scores if s.name == own.name and ": " in s.method]
        rivals = [s for s in rivals if "MiniLM" not in s.method]
        for group in (
            [s for s in rivals if "hindsight" not in s.method],
            [s for s in rivals if "threshold with hindsight" in s.method],
        ):
            best = max(group, key=lambda s: s.all)
            found.append(
                (own.all > best.all, f"{own.name}, {own.method}: F1 {own.all:.3f} > {best.all:.3f} ({best.method})")
            )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recall", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5, help="number of splits (0, 1, …)")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS, help="folders with recorded runs")
    parser.add_argument("--embedders", nargs="*", default=["built-in", "MiniLM"], choices=["built-in", "MiniLM"])
    parser.add_argument("--data", type=Path, default=DATA, help="where the sets are")
    parser.add_argument("--fit", action="store_true", help="fit the constants of the relevance model and print them")
    parser.add_argument("--json", type=Path, dest="json_file", help="write every figure there")
    options = parser.parse_args(arguments)

    present: dict[str, list[Request]] = {}
    for name in options.sets:
        if source(options.data / name).is_file():
            present[name] = SETS[name](options.data / name)
        else:
            print(f"skipped: no recorded runs in {name} (looked for ../shared/data/{name})")
    similarities: dict[str, Similarity] = {"TF-IDF": tf_idf}
    for name in options.embedders:
        if why := missing(name):
            print(f"skipped: embedder {name}: {why}")
        else:
            similarities[name] = embedded(name)
    if options.fit:
        if (similarity := similarities.get("built-in")) is not None:
            *coefficients, intercept = fit(present, similarity)
            print(f"coefficients {[round(float(value), 2) for value in coefficients]}, intercept {intercept:.2f}")
        return 0

    scores: list[Score] = []
    console = Console(stderr=True)
    for name, requests in present.items():
        with console.status(name):
            scores += measure(name, requests, options.seeds, similarities)
    output = Console(width=None if sys.stdout.isatty() else 200)
    if scores:
        output.print(table(scores, {name: shape(requests) for name, requests in present.items()}, options.seeds))
    checks = verdicts(scores)
    for holds, text in checks:
        print(f"{'holds' if holds else 'MISSED'}  {text}")
    if options.json_file is not None:
        plain = {
            "scores": [asdict(score) for score in scores],
            "targets": [{"holds": holds, "target": text} for holds, text in checks],
        }
        options.json_file.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
