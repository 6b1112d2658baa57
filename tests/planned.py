"""A memory with atoms of the desk, and a model that does what its hints say, for tests of the planner."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from desk import Desk, call_id, history, this_turn
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage

from langgraph_toolmem import Atoms, ToolMemory, default_methods

HEAD = "Steps that worked"
_LINE = re.compile(r"^- .*?(\w+)\((.*)\)$", re.MULTILINE)
_ARGUMENT = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|<\w+>|[^,]+)')


def taught(runs: int = 6, **options: Any) -> ToolMemory:
    """A memory with the atoms of that many runs of the desk."""
    memory = ToolMemory.ephemeral(tools=Desk().tools, methods=default_methods(Atoms(keep=True)), **options)
    for i in range(runs):
        memory.finish(history(i), thread_id=f"taught-{i}", success=True)
    assert memory.flush()
    return memory


def hint_of(messages: Sequence[BaseMessage]) -> str:
    """What the system message of a prompt says."""
    return "\n".join(message.text for message in messages if isinstance(message, SystemMessage))


def patterns(text: str) -> list[tuple[str, dict[str, str]]]:
    """The hints in a prompt: tool and arguments, those that are not known as ``<SLOT>``."""
    found = []
    for line in _LINE.finditer(text):
        args = {name: json.loads(value) if value[0] == '"' else value for name, value in _ARGUMENT.findall(line[2])}
        found.append((line[1], args))
    return found


def obedient(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
    """A model that knows nothing but its hints: it makes the first call that they name, with the name of the request.

    Without hints it gives up; after three answers it is done.
    """
    user, answers = this_turn(messages)
    name = user.text.split(" order of ")[1].split()[0]
    told = patterns(hint_of(messages))
    if len(answers) == 3:
        return AIMessage(f"The order of {name} is checked.")
    if not told:
        return AIMessage("I do not know how.")
    wanted, args = told[0]
    args = {key: name if value == "<CUSTOMER>" else value for key, value in args.items()}
    made = {"name": wanted, "args": args, "id": call_id(user.id, user.text, len(messages)), "type": "tool_call"}
    return AIMessage("", tool_calls=[made])  # type: ignore[list-item]


def plan_call(**parts: Any) -> AIMessage:
    """A planner's answer by tool calling."""
    given = {"thought": "t", "new_facts": [], "state": "", "available_slots": [], "next_goal": "", **parts}
    return AIMessage("", tool_calls=[{"name": "PlannedStep", "args": given, "id": "call_plan", "type": "tool_call"}])
