"""The order desk among many other tools, for tests of what a model is offered."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from desk import Desk, call_id, this_turn, warm
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool, StructuredTool

from langgraph_toolmem import ToolMemory

THINGS = ("invoice", "ticket", "contract", "meeting", "vehicle", "room")
DEEDS = ("create", "update", "archive", "export", "approve")
DESK = ["find_customer", "latest_order", "add_note"]
NOTE = "Add a note to the order"
"""A request whose words fit `add_note`; what that one needs, the two others give."""


def plain(name: str, about: str, *parameters: str, func: Any = None) -> BaseTool:
    """A tool that does nothing."""
    schema = {"type": "object", "properties": {p: {"type": "string"} for p in parameters}, "required": [*parameters]}
    act = func or (lambda **args: json.dumps({"done": True, **args}))
    return StructuredTool(name=name, description=about, args_schema=schema, func=act)


def crowd() -> list[BaseTool]:
    """30 tools that have nothing to do with the desk."""
    return [plain(f"{d}_{t}", f"{d.capitalize()} a {t}.", f"{t}_id") for d in DEEDS for t in THINGS]


def crowded(desk: Desk) -> list[BaseTool]:
    """The desk's tools among the crowd."""
    others = crowd()
    return [*others[:15], *desk.tools, *others[15:]]


def knowing(tools: Sequence[BaseTool], runs: int = 12, **options: Any) -> ToolMemory:
    """A memory that has seen the desk at work."""
    memory = ToolMemory.ephemeral(tools=tools, **options)
    warm(memory, runs)
    return memory


def calling(messages: Sequence[BaseMessage], *calls: tuple[str, dict[str, Any]]) -> AIMessage:
    """A message with these calls."""
    made = [
        {"name": name, "args": args, "id": call_id(len(messages), index, name), "type": "tool_call"}
        for index, (name, args) in enumerate(calls)
    ]
    return AIMessage("", tool_calls=made)  # type: ignore[arg-type]


def steps(*turns: Any) -> Any:
    """A scripted agent: in each user turn these calls one after the other (name, args), then "Done."."""

    def script(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        _, answers = this_turn(messages)
        number = sum(m.type == "human" for m in messages) - 1
        plan = turns[min(number, len(turns) - 1)]
        return calling(messages, plan[len(answers)]) if len(answers) < len(plan) else AIMessage("Done.")

    return script
