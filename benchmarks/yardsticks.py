"""Yardsticks: a back-off n-gram and an exact cache for whole calls, and simple methods for which tool comes next.

The first two see the same runs in the same order as the predictor, predict before each model turn and learn after it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from benchmarks import lines_of
from langgraph_toolmem.graph.state import PARALLEL, START, WORDS, RunState
from langgraph_toolmem.runs.logs import LoggedRun, load_runs
from langgraph_toolmem.runs.run import Run, Turn, UserMessage
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import canon_args
from langgraph_toolmem.text.embedders import LexicalEmbedder
from langgraph_toolmem.text.wording import tool_text
from langgraph_toolmem.text.words import LexicalIndex

Call = tuple[str, str]
"""Tool and canonical arguments. WORDS and PARALLEL stand for turns that are no single call."""

RIVALS: Final = 1024
"""Numbers of the vectors that the yardsticks compare by: more than the memory keeps."""
ORDERS: Final = (3, 2, 1)
_NO_CALL: Final = (WORDS, PARALLEL)


def call_of(turn: Turn) -> Call:
    """What a model turn was, as a successor."""
    if not turn.steps:
        return (WORDS, "")
    if len(turn.steps) > 1:
        return (PARALLEL, "")
    return (turn.steps[0].tool, canon_args(turn.steps[0].args))


@dataclass(frozen=True)
class Guess:
    """One prediction before one model turn.

    Attributes:
        call: the call foreseen; None: no proposal (nothing known, or words foreseen).
        confidence: share of the call among what was seen in this context, n / (N + 1).
        known: all calls ever seen in this context.
    """

    call: Call | None
    confidence: float
    known: frozenset[Call]

    @classmethod
    def none(cls) -> Guess:
        """Nothing is known."""
        return cls(None, 0.0, frozenset())


class Yardstick(Protocol):
    """Predicts the turns of runs one after another."""

    def replay(self, run: Run) -> Iterator[tuple[Turn, Guess]]:
        """Each model turn with the guess before it; the turn is learned when the next is asked for."""


class _Counts:
    """Successor counts per context; among equal counts the one seen last wins."""

    def __init__(self) -> None:
        self._rows: dict[Hashable, dict[Call, int]] = {}

    def guess(self, context: Hashable) -> Guess | None:
        row = self._rows.get(context)
        if row is None:
            return None
        count = max(row.values())
        call = next(c for c in reversed(row) if row[c] == count)
        known = frozenset(c for c in row if c[0] not in _NO_CALL)
        if call[0] in _NO_CALL:
            return Guess(None, 0.0, known)
        return Guess(call, count / (sum(row.values()) + 1), known)

    def add(self, context: Hashable, call: Call) -> None:
        row = self._rows.setdefault(context, {})
        row[call] = row.pop(call, 0) + 1


class BackOffNGram:
    """The next concrete call after the longest known context.

    Contexts, the first known one counts: the last 3, 2, 1 concrete calls, then the last 3, 2, 1, 0 tools. The
    start of the run and a turn in words are symbols in both sequences; further user messages are passed over.
    """

    def __init__(self) -> None:
        self._counts = _Counts()

    def replay(self, run: Run) -> Iterator[tuple[Turn, Guess]]:
        """Each model turn with the guess before it; the turn is learned when the next is asked for."""
        history: list[Call] = [(START, "")]
        for event in run.events:
            if isinstance(event, UserMessage):
                continue
            contexts = list(_contexts(history))
            found = (self._counts.guess(context) for context in contexts)
            yield event, next((guess for guess in found if guess is not None), Guess.none())
            for context in contexts:
                self._counts.add(context, call_of(event))
            history += [(step.tool, canon_args(step.args)) for step in event.steps] or [(WORDS, "")]


def _contexts(history: list[Call]) -> Iterator[Hashable]:
    """The n-gram's contexts, the most telling first."""
    for size in ORDERS:
        if len(history) >= size:
            yield ("calls", *history[-size:])
    for size in ORDERS:
        if len(history) >= size:
            yield ("tools", *(tool for tool, _ in history[-size:]))
    yield ("any",)


class ExactCache:
    """Same user texts and same calls so far: the same next call."""

    def __init__(self) -> None:
        self._counts = _Counts()

    def replay(self, run: Run) -> Iterator[tuple[Turn, Guess]]:
        """Each model turn with the guess before it; the turn is learned when the next is asked for."""
        so_far: tuple[Hashable, ...] = ()
        for event in run.events:
            if isinstance(event, UserMessage):
                so_far += (event.text,)
                continue
            yield event, self._counts.guess(so_far) or Guess.none()
            self._counts.add(so_far, call_of(event))
            so_far += tuple((step.tool, canon_args(step.args)) for step in event.steps) or ((WORDS, ""),)


# --- which tool comes next --------------------------------------------------------------------------------------


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


def runs_of(folder: Path, *, limit: int | None = None) -> tuple[LoggedRun, ...] | None:
    """The runs of a set; None if it has none. Of queries with their gold calls, runs in which every answer is "ok"."""
    if (folder / "trajectories.jsonl").is_file():
        return load_runs(folder / "trajectories.jsonl", limit=limit).runs
    if not (folder / "queries.jsonl").is_file():
        return None
    queries = lines_of(folder / "queries.jsonl")[:limit]
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


def measure(
    methods: Mapping[str, Method], runs: Sequence[Run], *, of: Collection[str] | None = None
) -> dict[str, Hits]:
    """How often each method is right before calls of these tools; None: of any."""
    first, two, count = Counter[str](), Counter[str](), 0
    for run in runs:
        for point in points(run):
            if of is not None and point.tool not in of:
                continue
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
            for context in _tool_contexts(point.state, order):
                counts.setdefault(context, Counter())[point.tool] += 1

    def guess(point: Point) -> list[str]:
        rows = (counts.get(context, Counter()) for context in _tool_contexts(point.state, order))
        return list(dict.fromkeys(tool for row in rows for tool, _ in row.most_common(2)))

    return guess


def _tool_contexts(state: RunState, order: int) -> list[tuple[str, ...]]:
    tools = [START, *state.tools]
    return [tuple(tools[-length:]) for length in range(order, 0, -1) if length <= len(tools)]


def description_search(specs: Mapping[str, ToolSpec]) -> Method:
    """The tools whose descriptions fit the latest user message best."""
    index = LexicalIndex((name, tool_text(spec)) for name, spec in specs.items())
    search = lru_cache(maxsize=4096)(lambda text: [name for name, _ in index.search(text, 2)])
    return lambda point: search(point.state.user.raw)


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
        return list(dict.fromkeys(found))[:2]

    return guess
