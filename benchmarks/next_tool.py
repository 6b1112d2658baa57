"""Recorded runs as questions: which tool came next? And what one would answer without a memory of states."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from langgraph_toolmem.graph.state import START, RunState
from langgraph_toolmem.runs.logs import LoggedRun, load_runs
from langgraph_toolmem.runs.run import Run, Turn
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.similarity import LexicalEmbedder, LexicalIndex
from langgraph_toolmem.text.tools import tool_text

HITS: Final = 20
"""Tools that a search of the descriptions gives."""


RIVALS: Final = 1024
"""Numbers of the vectors that the yardsticks compare by: more than the memory keeps."""


@dataclass(frozen=True)
class Point:
    """A model turn with a call: what is known before it, and the tool that was called first in it."""

    run: Run
    state: RunState
    tool: str


@dataclass(frozen=True)
class Hits:
    """Share of the turns, in percent, whose tool is the first suggestion, and among the first two."""

    first: float
    two: float


Method = Callable[[Point], Sequence[str]]


# --- recorded turns -----------------------------------------------------------------------------------------


def runs_of(folder: Path, *, limit: int | None = None) -> tuple[LoggedRun, ...] | None:
    """The runs of a set; None if it has none. Of queries with their gold calls, runs in which every answer is "ok"."""
    if (folder / "trajectories.jsonl").is_file():
        return load_runs(folder / "trajectories.jsonl", limit=limit).runs
    if not (folder / "queries.jsonl").is_file():
        return None
    lines = (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()[:limit]
    queries = [json.loads(line) for line in lines]
    return tuple(
        LoggedRun(number, query["id"], _played(query), success=True, task=query["query"])
        for number, query in enumerate(queries, start=1)
        if "calls" in query
    ) or None  # fmt: skip


def _played(query: Mapping[str, Any]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": query["query"]}]
    for number, call in enumerate(query["calls"]):
        function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
        made = {"id": f"call_{number}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": "", "tool_calls": [made]})
        messages.append({"role": "tool", "tool_call_id": made["id"], "content": "ok"})
    return messages


def points(run: Run) -> Iterator[Point]:
    """The turns of a run in which the model calls a tool."""
    for index, event in enumerate(run.events):
        if isinstance(event, Turn) and event.steps:
            before = replace(run, events=run.events[:index])
            yield Point(before, RunState.of(before), event.steps[0].tool)


def measure(methods: Mapping[str, Method], runs: Sequence[Run]) -> dict[str, Hits]:
    """How often each method is right."""
    first, two, count = Counter[str](), Counter[str](), 0
    for run in runs:
        for point in points(run):
            count += 1
            for name, method in methods.items():
                answer = list(method(point))[:2]
                first[name] += point.tool in answer[:1]
                two[name] += point.tool in answer
    return {name: Hits(100 * first[name] / max(count, 1), 100 * two[name] / max(count, 1)) for name in methods}


# --- what one would use instead -----------------------------------------------------------------------------


def successors(history: Sequence[Run], order: int) -> Method:
    """The most frequent tool after the last `order` tools; less known contexts are filled up from shorter ones."""
    counts: dict[tuple[str, ...], Counter[str]] = {}
    for run in history:
        for point in points(run):
            for context in _contexts(point.state, order):
                counts.setdefault(context, Counter())[point.tool] += 1

    def guess(point: Point) -> list[str]:
        rows = (counts.get(context, Counter()) for context in _contexts(point.state, order))
        return list(dict.fromkeys(tool for row in rows for tool, _ in row.most_common(2)))

    return guess


def _contexts(state: RunState, order: int) -> list[tuple[str, ...]]:
    tools = [START, *state.tools]
    return [tuple(tools[-length:]) for length in range(order, 0, -1) if length <= len(tools)]


def description_search(specs: Mapping[str, ToolSpec]) -> Callable[[str], list[tuple[str, float]]]:
    """Tools whose descriptions fit a text, with their scores."""
    index = LexicalIndex((name, tool_text(spec)) for name, spec in specs.items())
    return lru_cache(maxsize=4096)(lambda text: index.search(text, HITS))


def nearest_request(history: Sequence[Run]) -> Method:
    """What was called in the same place after the most similar user messages."""
    embed = lru_cache(maxsize=4096)(LexicalEmbedder(RIVALS).embed_query)
    followed: dict[str, tuple[str, list[str]]] = {}
    for run in history:
        for point in points(run):
            followed.setdefault(point.state.user_key, (point.state.user.raw, []))[1].append(point.tool)
    calls = [tools for _, tools in followed.values()]
    matrix = np.array([embed(text) for text, _ in followed.values()], dtype=np.float32)

    def guess(point: Point) -> list[str]:
        place = len(point.state.since_user)
        if not calls:
            return []
        order = np.argsort(-(matrix @ np.array(embed(point.state.user.raw), dtype=np.float32)), kind="stable")
        found = (calls[i][place] for i in order if place < len(calls[i]))
        return _first(found, 2)

    return guess


def _first(names: Iterator[str], many: int) -> list[str]:
    found: dict[str, None] = {}
    for name in names:
        found[name] = None
        if len(found) == many:
            break
    return list(found)
