"""Records of tools: one for each name, and one more for every other tool of that name with other parameters.

Two agents may have different tools of one name: ``search(query)`` and ``search(customer_id, limit)``. Evidence about
one is wrong for the other. The first tool of a name has its record under the name. A tool with different parameters
(names, types) has its own record under the name and a digest of its parameters. The evidence graph uses names of
records as names of tools; outside of it there are only tools.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import is_
from typing import Any, Final, TypeAlias

from langgraph_toolmem.base.text import digest
from langgraph_toolmem.runs.run import ExecutedCall, Turn, UserMessage
from langgraph_toolmem.runs.tools import ToolSpec

Shape: TypeAlias = Mapping[str, frozenset[str]]
"""Parameter -> the JSON types of its values; empty if the schema has none."""


def tool_of(record: str) -> str:
    """Return the name of a record's tool."""
    if "~" not in record:
        return record
    return re.sub(r"~[0-9a-f]{6}$", "", record)


def is_apart(record: str) -> bool:
    """Return True for the record of a tool whose name was first used with other parameters."""
    return "~" in record and tool_of(record) != record


def name_apart(tool: str, shape: Shape) -> str:
    """Return the name of a separate record, for a tool whose name has a record with other parameters."""
    parameters = []
    for name in sorted(shape):
        types = " ".join(sorted(shape[name]))
        parameters.append(f"{name} {types}")
    # The digest is the same in every process, so all workers use one record.
    return f"{tool}~{digest('parameters', *parameters)[:6]}"


def shape_of(spec: ToolSpec) -> Shape:
    """Return names and types of a tool's parameters."""
    return {name: _types(schema) for name, schema in spec.properties.items()}


def are_alike(one: Shape, other: Shape) -> bool:
    """Return True if two tools have the same parameters; a missing type equals all types."""
    if one.keys() != other.keys():
        return False
    for name, types in one.items():
        # A server may leave out a type that another version declares.
        if types and other[name] and types != other[name]:
            return False
    return True


def _types(schema: Mapping[str, Any]) -> frozenset[str]:
    types = _declared_types(schema)
    if types == {"null"}:
        return types
    # Pydantic writes `str | None` with "null", other libraries leave the parameter out of ``required``.
    return types - {"null"}


def _declared_types(schema: Mapping[str, Any]) -> frozenset[str]:
    declared = schema.get("type")
    if isinstance(declared, str):
        return frozenset({declared})
    if isinstance(declared, list):
        return frozenset([name for name in declared if isinstance(name, str)])
    branches = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
    if branches:
        return _types_of_branches(branches)
    choices: list[Any] = []
    if "const" in schema:
        choices = [schema["const"]]
    return frozenset([_json_type(choice) for choice in schema.get("enum", choices)])


def _types_of_branches(branches: list[Any]) -> frozenset[str]:
    """Return the types of all branches; empty if one of them has none."""
    types = frozenset[str]()
    for branch in branches:
        if not isinstance(branch, Mapping):
            return frozenset()
        of_branch = _types(branch)
        if not of_branch:
            return frozenset()
        types |= of_branch
    return types


def _json_type(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


@dataclass(frozen=True)
class ToolRecords:
    """The records of calls, as one agent sees them.

    Attributes:
        offered: tool -> its record, for the agent's tools whose record has another name.
        known: tool -> the shapes of all its records, for names with several.
    """

    offered: Mapping[str, str] = field(default_factory=dict)
    known: Mapping[str, Mapping[str, Shape]] = field(default_factory=dict)

    def of(self, step: ExecutedCall) -> str:
        """Return the record of a call: that of the agent's tool, unless the arguments are another's."""
        own = self.offered.get(step.tool, step.tool)
        records = self.known.get(step.tool)
        if records is None:
            return own
        # A thread may contain calls of another agent with another tool of the same name. Optional arguments may be
        # missing; unknown arguments are another tool's.
        if step.args.keys() <= records.get(own, {}).keys():
            return own
        for name, shape in records.items():
            if step.args.keys() <= shape.keys():
                return name
        return own

    def read(self, event: UserMessage | Turn) -> UserMessage | Turn:
        """Return an event with records in place of tools; the same event if all names are equal."""
        if not (self.known or self.offered) or isinstance(event, UserMessage):
            return event
        steps = []
        for step in event.steps:
            record = self.of(step)
            if record != step.tool:
                step = replace(step, tool=record)
            steps.append(step)
        return _with_steps(event, steps)

    @cached_property
    def apart(self) -> frozenset[str]:
        """The records with another name than their tool's."""
        apart = set(self.offered.values())
        for records in self.known.values():
            for record in records:
                if is_apart(record):
                    apart.add(record)
        return frozenset(apart)

    def with_records(self, tools: frozenset[str]) -> frozenset[str]:
        """Return names of tools, and the names of their records."""
        records = set()
        for record in self.apart:
            if tool_of(record) in tools:
                records.add(record)
        return tools | records

    def in_words(self, text: str) -> str:
        """Return a text with tools in place of their records."""
        for record in self.apart:
            text = text.replace(record, tool_of(record))
        return text


ALIKE: Final = ToolRecords()
"""All names have one record."""


def as_called(turn: Turn) -> Turn:
    """Return a turn with the tools in place of their records; the inverse of `ToolRecords.read`."""
    steps = []
    for step in turn.steps:
        if is_apart(step.tool):
            step = replace(step, tool=tool_of(step.tool))
        steps.append(step)
    return _with_steps(turn, steps)


def _with_steps(turn: Turn, steps: Sequence[ExecutedCall]) -> Turn:
    """Return a turn with other calls; the same turn if all are its own, because a thread's fold recognises it by
    identity.
    """
    if all(map(is_, steps, turn.steps)):
        return turn
    return replace(turn, steps=tuple(steps))


ReadEvent: TypeAlias = "Callable[[UserMessage | Turn], UserMessage | Turn]"


def as_it_is(event: UserMessage | Turn) -> UserMessage | Turn:
    """Return an event unchanged."""
    return event
