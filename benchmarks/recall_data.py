"""Recorded requests, what counts as relevant to one, and the memory that each of them is asked of."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from langgraph_toolmem import Entries, ToolMemory
from langgraph_toolmem.entries.entry import Entry, EntryCall, entry_id
from langgraph_toolmem.text.embedders import Embedder

SIZES: Final = (0, 1, 2, 3, 5, 9)
QUERIES: Final = 300


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


def memory_of(requests: Sequence[Request], embedder: Embedder | None = None, *, judged: bool = True) -> ToolMemory:
    """A memory of these requests; `Entry.run` is the place."""
    memory = ToolMemory.ephemeral(methods=[Entries()], embeddings=embedder)
    entries = [
        Entry(
            entry_id(str(place)),
            str(place),
            each.text,
            tuple(EntryCall(tool, {}, "ok") for tool in each.tools),
            score=1.0 if judged else None,
        )
        for place, each in enumerate(requests)
    ]
    memory.entries.rows.put(entries, memory.core.users.of(None))
    return memory


# --- the sets ---------------------------------------------------------------------------------------------------


def by_template(folder: Path) -> list[Request]:
    """One run per task; relevant: made from the same template."""
    return _once(Request(row["task"], row["template"], _called(row["messages"])) for row in _rows(folder))


def by_calls(folder: Path) -> list[Request]:
    """One run per task; relevant: the same tools were called in the same order."""
    return _once(_of_calls(row["task"], _called(row["messages"])) for row in _rows(folder))


def by_calls_of_turns(folder: Path) -> list[Request]:
    """Each user turn by itself; relevant: the same tools were called in it in the same order."""
    return _once(
        _of_calls(text, _called(messages)) for row in _rows(folder) for text, messages in _turns(row["messages"])
    )


def by_gold_calls(folder: Path) -> list[Request]:
    """Queries with gold calls; relevant: the same tools in the same order."""
    return _once(_of_calls(row["query"], tuple(c["name"] for c in row["calls"])) for row in _rows(folder))


def by_gold_tools(folder: Path) -> list[Request]:
    """Queries with the tools they need; relevant: exactly the same tools."""
    return _once(_of_calls(row["query"], tuple(sorted(row["relevant"]))) for row in _rows(folder))


SETS: Final[dict[str, Callable[[Path], list[Request]]]] = {
    "workbench_gpt4": by_template,
    "workbench_gold": by_template,
    "bfcl_v3_multi_turn": by_calls_of_turns,
    "tau_retail_gold": by_calls,
    "nestful": by_gold_calls,
    "toolbench_catalog": by_gold_tools,
}


def source(folder: Path) -> Path:
    """The file with a set's runs or queries."""
    runs = folder / "trajectories.jsonl"
    return runs if runs.is_file() else folder / "queries.jsonl"


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    with source(folder).open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _once(requests: Iterator[Request]) -> list[Request]:
    found: dict[str, Request] = {}
    for request in requests:
        found.setdefault(request.text, request)
    return list(found.values())


def _of_calls(text: str, tools: tuple[str, ...]) -> Request:
    return Request(text, " → ".join(tools), tools)


def _called(messages: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(call["function"]["name"] for message in messages for call in message.get("tool_calls") or ())


def _turns(messages: Sequence[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    starts = [place for place, message in enumerate(messages) if message["role"] == "user"]
    for start, end in zip(starts, [*starts[1:], len(messages)], strict=True):
        yield messages[start]["content"], list(messages[start:end])


def shape(requests: Sequence[Request]) -> str:
    """How many requests and groups, for the table."""
    groups = Counter(request.group for request in requests)
    return f"{len(requests)} in {len(groups)}, {sum(n == 1 for n in groups.values())} alone"
