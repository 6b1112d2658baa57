"""Records of tools: one for each name, and one more for every other tool of that name with other parameters.

Two agents may have different tools of one name: ``search(query)`` and ``search(customer_id, limit)``. What is known of
the one is wrong for the other. The first tool of a name has its record under the name. A tool whose parameters (names,
types) differ has its own under the name and a digest of its parameters. In the evidence graph a record's name stands
wherever a tool's name does; outside of it there are only tools.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, TypeAlias

from langgraph_toolmem.base.text import digest
from langgraph_toolmem.runs.run import ExecutedCall, Turn, UserMessage
from langgraph_toolmem.runs.tools import ToolSpec

Shape: TypeAlias = Mapping[str, frozenset[str]]
"""Parameter -> the JSON types of its values; none if the schema does not say."""

_APART: Final = re.compile(r"~[0-9a-f]{6}$")
_JSON_TYPES: Final = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


def tool_of(record: str) -> str:
    """Return the name of the tool that a record is about."""
    return _APART.sub("", record) if "~" in record else record


def is_apart(record: str) -> bool:
    """Return True for the record of a tool whose name had other parameters first."""
    return "~" in record and _APART.search(record) is not None


def name_apart(tool: str, shape: Shape) -> str:
    """Return the name of the record of a tool whose name has a record with other parameters."""
    parameters = [f"{name} {' '.join(sorted(types))}" for name, types in sorted(shape.items())]
    return f"{tool}~{digest('parameters', *parameters)[:6]}"


def shape_of(spec: ToolSpec) -> Shape:
    """Return names and types of a tool's parameters."""
    return {name: _types(schema) for name, schema in spec.properties.items()}


def are_alike(one: Shape, other: Shape) -> bool:
    """Return True if two tools have the same parameters; a type that is not said fits all."""
    if one.keys() != other.keys():
        return False
    return all(not types or not other[name] or types == other[name] for name, types in one.items())


def _types(schema: Mapping[str, Any]) -> frozenset[str]:
    declared = schema.get("type")
    if isinstance(declared, str):
        found = {declared}
    elif isinstance(declared, list):
        found = {each for each in declared if isinstance(each, str)}
    elif branches := [*schema.get("anyOf", ()), *schema.get("oneOf", ())]:
        each = [_types(branch) if isinstance(branch, Mapping) else frozenset[str]() for branch in branches]
        found = set[str]().union(*each) if all(each) else set()
    else:
        choices = schema.get("enum", [schema["const"]] if "const" in schema else [])
        found = {_JSON_TYPES.get(type(choice), "null") for choice in choices}
    # Whether an optional argument may be null is written in several ways.
    return frozenset(found - {"null"}) if found != {"null"} else frozenset(found)


@dataclass(frozen=True)
class ToolRecords:
    """The records of calls, as one agent sees them.

    Attributes:
        offered: tool -> its record, for the tools of the agent whose record has not their name.
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
        if step.args.keys() <= records.get(own, {}).keys():
            return own
        return next((name for name, shape in records.items() if step.args.keys() <= shape.keys()), own)

    def read(self, event: UserMessage | Turn) -> UserMessage | Turn:
        """Return an event with records in place of tools; the same event if no call has another name."""
        if not (self.known or self.offered) or isinstance(event, UserMessage):
            return event
        records = [self.of(step) for step in event.steps]
        if all(record == step.tool for record, step in zip(records, event.steps, strict=True)):
            return event
        steps = [replace(step, tool=record) for record, step in zip(records, event.steps, strict=True)]
        return replace(event, steps=tuple(steps))

    @cached_property
    def apart(self) -> frozenset[str]:
        """The records that have not the name of their tool."""
        known = [record for records in self.known.values() for record in records if is_apart(record)]
        return frozenset((*known, *self.offered.values()))

    def with_records(self, tools: frozenset[str]) -> frozenset[str]:
        """Return names of tools, and the names of their records."""
        return tools | {record for record in self.apart if tool_of(record) in tools}

    def in_words(self, text: str) -> str:
        """Return a text with tools in place of their records."""
        for record in self.apart:
            text = text.replace(record, tool_of(record))
        return text


ALIKE: Final = ToolRecords()
"""No name has several records."""


def as_called(turn: Turn) -> Turn:
    """Return a turn with the tools in place of their records; the inverse of `ToolRecords.read`."""
    if not any(is_apart(step.tool) for step in turn.steps):
        return turn
    return replace(turn, steps=tuple(replace(step, tool=tool_of(step.tool)) for step in turn.steps))


ReadEvent: TypeAlias = "Callable[[UserMessage | Turn], UserMessage | Turn]"


def as_it_is(event: UserMessage | Turn) -> UserMessage | Turn:
    """Return an event unchanged."""
    return event
