"""A desk under other names, and a model that does what its hints say, for tests of the planner."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from desk import Desk, call_id, history, number, this_turn
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.tools import BaseTool, tool

from langgraph_toolmem import Atoms, ToolMemory, default_methods

HEAD = "Steps that worked"
_LINE = re.compile(r"^- .*?(\w+)\((.*)\)$", re.MULTILINE)
_ARGUMENT = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|<\w+>|[^,]+)')


class OtherDesk(Desk):
    """The same desk; only the names of its tools are others."""

    @property
    def tools(self) -> list[BaseTool]:
        @tool
        def lookup_client(name: str) -> str:
            """Find a customer by name."""
            self.did("lookup_client", name=name)
            return json.dumps({"customer_id": f"C-{number(name)}", "name": name})

        @tool
        def recent_purchase(customer_id: str) -> str:
            """The latest order of a customer."""
            self.did("recent_purchase", customer_id=customer_id)
            return json.dumps({"order_id": customer_id.replace("C-", "O-"), "state": "shipped"})

        @tool
        def write_remark(order_id: str, note: str) -> str:
            """Add a note to an order."""
            self.did("write_remark", order_id=order_id, note=note)
            return json.dumps({"saved": True})

        return [lookup_client, recent_purchase, write_remark]


OTHERS = {"find_customer": "lookup_client", "latest_order": "recent_purchase", "add_note": "write_remark"}


def taught(runs: int = 6, **options: Any) -> ToolMemory:
    """A memory with the atoms of that many runs of the desk; it does not know the other desk's tools."""
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
