"""Catalogues of real tools, requests with the tools they need, and chains to complete."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from langgraph_toolmem.runs.tools import ToolSpec, read_tools
from langgraph_toolmem.text.tools import kit_of

CATALOGUE: Final = "toolbench_catalog"
CHAINS: Final = ("nestful", "bfcl_v3_multi_turn")
OTHERS: Final = ("nestful", "bfcl_v3_multi_turn", "workbench_gold")
"""Small sets that have a say in the fit of the weights, so that these do not follow one catalogue alone."""


@dataclass(frozen=True)
class Request:
    """A request and what it needs.

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
        return crc32(self.group.encode()) % 2 == 1


@dataclass(frozen=True)
class Episode:
    """What followed one user message.

    Attributes:
        task: all episodes of a task are on one side of a split.
        tools: called, in order.
    """

    task: str
    request: str
    tools: tuple[str, ...]

    @property
    def held_out(self) -> bool:
        """On the side from which no constant was fitted."""
        return crc32(self.task.encode()) % 2 == 1

    @property
    def target(self) -> str:
        """The tool called last."""
        return self.tools[-1]

    @property
    def upstream(self) -> frozenset[str]:
        """The others."""
        return frozenset(self.tools) - {self.target}


def tools_of(data: Path, name: str) -> list[ToolSpec]:
    """The tools of a set."""
    return list(read_tools(json.loads((data / name / "tools.json").read_text(encoding="utf-8"))).values())


def requests(data: Path, name: str) -> list[Request]:
    """The requests of a set, with their groups."""
    if name == CATALOGUE:
        rows = _rows(data / name / "queries.jsonl")
        kits = {each.name: kit_of(each) for each in tools_of(data, name)}
        groups = joined_kits([[kits[tool] for tool in row["relevant"]] for row in rows])
        return [
            Request(row["query"], group, frozenset(row["relevant"])) for row, group in zip(rows, groups, strict=True)
        ]
    if name == "nestful":
        rows = [row for row in _rows(data / name / "queries.jsonl") if not row["unknown_tools"]]
        return [Request(row["query"], "|".join(sorted(row["relevant"])), frozenset(row["relevant"])) for row in rows]
    found: dict[str, Request] = {}
    for row in _rows(data / name / "trajectories.jsonl"):
        called = frozenset(tool for _, tools in _turns(row["messages"]) for tool in tools)
        if called:
            found[row["task"]] = Request(row["task"], row.get("template", row["task"]), called)
    return list(found.values())


def episodes(data: Path, name: str) -> list[Episode]:
    """The episodes of a set, without calls of tools that it does not list."""
    known = {each.name for each in tools_of(data, name)}

    def episode(task: str, request: str, tools: Iterable[str]) -> Episode:
        return Episode(task, request, tuple(tool for tool in tools if tool in known))

    if name == "nestful":
        found = [
            episode(row["query"], row["query"], [call["name"] for call in row["calls"]])
            for row in _rows(data / name / "queries.jsonl")
        ]
    else:
        found = [
            episode(row["task"], request, tools)
            for row in _rows(data / name / "trajectories.jsonl")
            for request, tools in _turns(row["messages"])
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


def _turns(messages: Sequence[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = []
    for message in messages:
        if message["role"] == "user":
            found.append((message["content"], []))
        elif message["role"] == "assistant" and found:
            found[-1][1].extend(call["function"]["name"] for call in message.get("tool_calls") or ())
    return found


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
