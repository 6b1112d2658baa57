"""What recorded runs add: chains completed, and searches with the runs of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final
from zlib import crc32

from benchmarks.tool_search_data import Episode, Request, episodes, halves, requests, tools_of
from benchmarks.tool_search_fit import precedents
from benchmarks.tool_search_rivals import RANK_OFFSET, yardsticks
from langgraph_toolmem.navigator.tool_search.precedents import Precedents
from langgraph_toolmem.navigator.tool_search.prerequisites import PrerequisiteSearch
from langgraph_toolmem.navigator.tool_search.search import ToolSearch
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.embedders import Embedder

Complete = Callable[[str, str], list[str]]
"""From a request and a target to names of tools, best first."""

BUILT_IN: Final = "ours, built-in"
OURS: Final = "ours, MiniLM"


@dataclass(frozen=True)
class ChainScore:
    """Percent of chains of which all upstream tools are among the first 5 and 10."""

    name: str
    method: str
    part: str
    c5: float
    c10: float
    chains: int


def chain_methods(
    tools: Sequence[ToolSpec], embedder: Embedder | None, known: Sequence[Episode]
) -> dict[str, Complete]:
    """By name, from (request, target) to names of tools."""
    alone = yardsticks(tools, embedder)
    query_alone = alone["BM25" if embedder is None else "MiniLM + BM25, fused"]
    together: dict[str, Counter[str]] = {}
    before: dict[str, Counter[str]] = {}
    for episode in known:
        for place, tool in enumerate(episode.tools):
            before.setdefault(tool, Counter()).update(sorted({*episode.tools[:place]} - {tool}))
        for tool in dict.fromkeys(episode.tools):
            together.setdefault(tool, Counter()).update(sorted({*episode.tools} - {tool}))

    def with_counts(table: Mapping[str, Counter[str]], request: str, target: str) -> list[str]:
        # Tools without a count have no rank in the history: ranked anyhow, they would drown what was found.
        scores = {name: 1 / (RANK_OFFSET + rank) for rank, name in enumerate(query_alone(request), start=1)}
        for rank, (name, _) in enumerate(table.get(target, Counter[str]()).most_common(), start=1):
            scores[name] += 1 / (RANK_OFFSET + rank)
        return sorted(scores, key=lambda name: -scores[name])

    found: dict[str, Complete] = {
        "query alone": lambda request, _target: query_alone(request),
        "+ co-occurrence": lambda request, target: with_counts(together, request, target),
        "+ came before": lambda request, target: with_counts(before, request, target),
    }
    for label, model in (("ours, built-in", None), (OURS, embedder)):
        if model is None and label == OURS:
            continue
        search = ToolSearch(tools, embedder=model)
        for suffix, chains in (
            (", no history", PrerequisiteSearch(search)),
            ("", PrerequisiteSearch(search, precedents(known))),
        ):
            found[label + suffix] = completed(chains)
    return found


def completed(chains: PrerequisiteSearch) -> Complete:
    """Our chains as a ranking."""
    return lambda request, target: [each.name for each in chains.search(request, target, 10)]


def measure_chains(data: Path, name: str, embedder: Embedder | None, seeds: Sequence[int]) -> list[ChainScore]:
    """Every chain of a set, with the other half of the runs as history, mean over splits."""
    tools, everything = tools_of(data, name), episodes(data, name)
    rows: dict[str, list[tuple[bool, bool, bool, bool]]] = {}
    for seed in seeds:
        first, second = halves(everything, seed)
        for asked, known in ((first, second), (second, first)):
            methods = chain_methods(tools, embedder, known)
            links = {(each.target, tool) for each in known for tool in each.upstream}
            links |= {(b, a) for each in known for i, b in enumerate(each.tools) for a in each.tools[:i]}
            for each in asked:
                if not each.upstream:
                    continue
                seen = all((each.target, tool) in links for tool in each.upstream)
                for method, rank in methods.items():
                    found = [tool for tool in rank(each.request, each.target) if tool != each.target]
                    hits = [each.upstream <= set(found[:k]) for k in (5, 10)]
                    rows.setdefault(method, []).append((hits[0], hits[1], seen, each.held_out))
    answer = []
    for method, found_rows in rows.items():
        parts = {
            "all": found_rows,
            "held out": [row for row in found_rows if row[3]],
            "seen": [row for row in found_rows if row[2]],
            "unseen": [row for row in found_rows if not row[2]],
        }
        answer += [
            ChainScore(name, method, part, 100 * fmean(r[0] for r in kept), 100 * fmean(r[1] for r in kept), len(kept))
            for part, kept in parts.items()
            if kept
        ]
    return answer


@dataclass(frozen=True)
class HistoryScore:
    """Percent of a search without and with the runs of other requests: R@5 and C@5.

    Attributes:
        split: "repeated": the other half at random; "new": requests of the same group are never in the history.
    """

    name: str
    method: str
    split: str
    r5: float
    c5: float
    r5_with: float
    c5_with: float


def measure_history(data: Path, name: str, embedder: Embedder | None) -> list[HistoryScore]:
    """Each half with the other one as history."""
    asked = requests(data, name)
    search = ToolSearch(tools_of(data, name), embedder=embedder)
    keys: dict[str, Callable[[Request], str]] = {"repeated": lambda each: each.text, "new": lambda each: each.group}
    answer = []
    for split, key in keys.items():
        rows = []
        for side in (0, 1):
            history = Precedents()
            for each in asked:
                if crc32(key(each).encode()) % 2 != side:
                    history.add(sorted(each.relevant), each.text)
            for each in asked:
                if crc32(key(each).encode()) % 2 == side:
                    row: list[float] = []
                    for lift in (None, history.lift(each.text)):
                        found = {tool.name for tool in search.search(each.text, 5, lift=lift)}
                        row += [len(each.relevant & found) / len(each.relevant), each.relevant <= found]
                    rows.append(row)
        if not rows:
            continue
        figures = [100 * fmean(row[place] for row in rows) for place in range(4)]
        method = "ours, built-in" if embedder is None else OURS
        answer.append(HistoryScore(name, method, split, *figures))
    return answer
