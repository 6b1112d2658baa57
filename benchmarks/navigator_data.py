"""What the navigator is measured on: gold data flows, and catalogues of any size."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from langgraph_toolmem.navigator.history import Flow, History
from langgraph_toolmem.runs.messages import output_of_text
from langgraph_toolmem.runs.tools import ToolSpec, read_tools
from langgraph_toolmem.text.schema import is_table

_SHORTEST: Final = 3
"""Values with fewer characters stand in many places by chance."""


@dataclass(frozen=True)
class GoldFlow:
    """One argument of one recorded call that came out of earlier calls.

    Attributes:
        task: runs of one task are never on both sides of a split.
        group: part of the data set.
        sources: (tool, path) of the outputs that hold the value; a path "?" was not declared.
        consumer: tool that took it.
        parameter: where it went.
    """

    task: str
    group: str
    sources: frozenset[tuple[str, str]]
    consumer: str
    parameter: str


def specs_of(folder: Path) -> dict[str, ToolSpec]:
    """The tools of a data set; of two with the same name the first."""
    tools = json.loads((folder / "tools.json").read_text(encoding="utf-8"))
    return read_tools({tool["function"]["name"]: tool for tool in reversed(tools)}.values())


def nestful_flows(folder: Path) -> list[GoldFlow]:
    """The gold data-flow edges of NESTFUL between tools of the catalogue."""
    specs = specs_of(folder)
    found = []
    for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines():
        query = json.loads(line)
        calls = query["calls"]
        for edge in query["edges"]:
            source, target = calls[edge["from"]]["name"], calls[edge["to"]]["name"]
            if source in specs and target in specs:
                where = frozenset({(source, edge["output"].replace("[0]", "[]"))})
                found.append(GoldFlow(query["id"], query["group"], where, target, edge["param"]))
    return found


def nestful_histories(folder: Path) -> dict[bool, History]:
    """What the queries of each half teach, by whether `measured` says so of them."""
    queries = [json.loads(line) for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    halves: dict[bool, History] = {}
    for half in (False, True):
        uses: Counter[str] = Counter()
        steps: Counter[tuple[str, str]] = Counter()
        flows: Counter[Flow] = Counter()
        given: Counter[tuple[str, str]] = Counter()
        for query in queries:
            if measured(query["id"]) is not half:
                continue
            calls = query["calls"]
            fed = {(edge["to"], edge["param"]) for edge in query["edges"]}
            for edge in query["edges"]:
                source, target = calls[edge["from"]]["name"], calls[edge["to"]]["name"]
                steps[source, target] += 1
                flows[Flow(source, edge["output"].replace("[0]", "[]"), target, edge["param"])] += 1
            for index, call in enumerate(calls):
                uses[call["name"]] += 1
                given.update((call["name"], name) for name in call["arguments"] if (index, name) not in fed)
        halves[half] = History(uses=uses, transitions=steps, flows=flows, given=given)
    return halves


def recorded_histories(folder: Path, flows: Iterable[GoldFlow]) -> dict[bool, History]:
    """What the runs of each half teach, by whether `measured` says so of their tasks; of sources each has a share."""
    halves: dict[bool, History] = {}
    runs = [json.loads(line) for line in (folder / "trajectories.jsonl").read_text(encoding="utf-8").splitlines()]
    for half in (False, True):
        uses: Counter[str] = Counter()
        steps: Counter[tuple[str, str]] = Counter()
        given: Counter[tuple[str, str]] = Counter()
        fed: dict[Flow, float] = defaultdict(float)
        for run in runs:
            if measured(run["task"]) is half:
                calls = [call for message in run["messages"] for call in message.get("tool_calls") or ()]
                names = [call["function"]["name"] for call in calls]
                uses.update(names)
                steps.update(pairwise(names))
                given.update((name, key) for name, call in zip(names, calls, strict=True) for key in _arguments(call))
        for flow in flows:
            if measured(flow.task) is half:
                given[flow.consumer, flow.parameter] -= 1
                for source, path in flow.sources:
                    fed[Flow(source, path, flow.consumer, flow.parameter)] += 1 / len(flow.sources)
        halves[half] = History(uses=uses, transitions=steps, flows=fed, given=+given)
    return halves


def recorded_flows(folder: Path) -> tuple[list[GoldFlow], list[tuple[str, str, Any]]]:
    """Arguments whose value another tool gave earlier in the run and that no user said; and all outputs.

    Returns:
        The flows, and (task, tool, output) of every call.
    """
    flows: list[GoldFlow] = []
    outputs: list[tuple[str, str, Any]] = []
    for line in (folder / "trajectories.jsonl").read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        said = ""
        places: dict[str, set[tuple[str, str]]] = {}
        names: dict[str, str] = {}
        for message in run["messages"]:
            if message["role"] == "user":
                said += " " + str(message["content"])
            for call in message.get("tool_calls") or ():
                names[call["id"]] = call["function"]["name"]
                for name, value in _arguments(call).items():
                    for text in _texts(value):
                        tool = names[call["id"]]
                        others = frozenset(place for place in places.get(text, ()) if place[0] != tool)
                        if others and text not in said:
                            flows.append(GoldFlow(run["task"], folder.name, others, tool, name))
                            break
            if message["role"] == "tool":
                output = output_of_text(str(message["content"]))
                tool = names[message["tool_call_id"]]
                outputs.append((run["task"], tool, output))
                for path, text in _scalars(output, ""):
                    places.setdefault(text, set()).add((tool, path))
    return flows, outputs


def measured(task: str) -> bool:
    """Whether a task is measured on. What the others show may be learned; they were looked at when rules were made."""
    return crc32(task.encode()) % 2 == 0


def catalogue(base: Sequence[ToolSpec], count: int, *, own_parameters: bool) -> list[ToolSpec]:
    """The base catalogue and as many renamed copies of it as are needed for `count` tools.

    Args:
        base: real tools.
        count: how many are wanted.
        own_parameters: the copies' parameters and outputs get a word of the copy too, so that clusters multiply like
            tools; else copies share the clusters, which then have many producers.
    """
    found: dict[str, ToolSpec] = {}
    copy = 0
    while len(found) < count:
        for spec in base[: count - len(found)]:
            made = spec if copy == 0 else _renamed(spec, _word(copy), own_parameters)
            found[made.name] = made
        copy += 1
    return list(found.values())


def _renamed(spec: ToolSpec, word: str, own_parameters: bool) -> ToolSpec:
    made = replace(spec, name=f"{word}_{spec.name}")
    if not own_parameters:
        return made
    properties = {f"{word}_{name}": schema for name, schema in spec.properties.items()}
    parameters = {**spec.parameters, "properties": properties, "required": [f"{word}_{n}" for n in spec.required]}
    returns = spec.returns
    if returns is not None and isinstance(returns.get("properties"), Mapping):
        returns = {**returns, "properties": {f"{word}_{name}": s for name, s in returns["properties"].items()}}
    return replace(made, parameters=parameters, returns=returns)


def _word(number: int) -> str:
    letters = "bcdfghklmn"
    return "zu" + "".join(f"{letters[int(digit)]}a" for digit in str(number))


def _arguments(call: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        found = json.loads(call["function"]["arguments"])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _texts(value: Any) -> Iterable[str]:
    """The value, or those of a list, as texts that are no chance matches."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, (str, int, float)) and not isinstance(one, bool) and len(str(one)) >= _SHORTEST:
            yield str(one)


def _scalars(value: Any, path: str) -> Iterable[tuple[str, str]]:
    """(path, text) of every value in an output, paths as `result_paths.paths_of` names them."""
    if isinstance(value, dict) and value:
        table = is_table(value)
        for key, inner in value.items():
            yield from _scalars(inner, f"{path}[]" if table else f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for inner in value:
            yield from _scalars(inner, f"{path}[]")
    else:
        for text in _texts(value):
            yield path, text
