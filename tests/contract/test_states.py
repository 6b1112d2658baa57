"""The contract of a table: its state is a tree, because a snapshot refuses a list or dictionary in two places."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from desk import EAGER, NAMES
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import BaseTool, ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from plugs import KINDS, make, work

from langgraph_toolmem import Bound, InertiaPolicy, ToolMemory
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.stores.snapshot import dumps
from langgraph_toolmem.testing import ScriptedChatModel


@tool
def find_person(name: str, tags: list[str]) -> str:
    """Find a person."""
    return json.dumps({"id": f"P-{name}", "tags": tags, "orders": [{"order": f"O-{name}", "lines": [1, 2]}]})


@tool
def find_orders(person_id: str) -> str:
    """Find the orders of a person."""
    if person_id.endswith(NAMES[2]):
        raise ToolException("this person is locked")
    return json.dumps([{"order": f"O-{person_id}", "parts": ["a", "b"]}])


@tool
def find_notes(person_id: str) -> str:
    """Find the notes about a person."""
    return json.dumps([{"note": f"about {person_id}", "tags": ["old", "new"]}])


@tool
def add_note(person_id: str, notes: list[dict[str, Any]]) -> str:
    """Add notes about a person."""
    return json.dumps({"saved": [person_id, notes]})


TOOLS: list[BaseTool] = [find_person, find_orders, find_notes, add_note]
find_orders.handle_tool_error = True


def clerk(messages: list[BaseMessage], _tools: Any) -> AIMessage:
    """Look a person up, then orders and notes at once, then write, then answer."""
    asked = max(place for place, message in enumerate(messages) if isinstance(message, HumanMessage))
    name = messages[asked].text.split()[-1]
    stage = sum(isinstance(message, AIMessage) for message in messages[asked:])
    person = f"P-{name}"
    stages: list[list[tuple[str, dict[str, Any]]]] = [
        [("find_person", {"name": name, "tags": ["vip", name]})],
        [("find_orders", {"person_id": person}), ("find_notes", {"person_id": person})],
        [("add_note", {"person_id": person, "notes": [{"tags": [name]}]})],
    ]
    if stage >= len(stages):
        return AIMessage(f"{name} is done.")
    calls = []
    for number, (called, args) in enumerate(stages[stage]):
        calls.append({"name": called, "args": args, "id": f"call-{len(messages)}-{number}", "type": "tool_call"})
    return AIMessage("", tool_calls=calls)


class Walked:
    """The states of a memory at all moments of its agents' runs: some parts are empty again when a run ends."""

    def __init__(self, memory: ToolMemory) -> None:
        self.memory = memory
        self.parts: set[str] = set()
        self.filled: set[str] = set()
        self.shared: set[str] = set()

    def look(self) -> None:
        state = self.memory.core.graph.to_state()
        self.shared.update(shared(state))
        for table, parts in state["tables"].items():
            for name, content in parts.items():
                self.parts.add(f"{table}.{name}")
                if content:
                    self.filled.add(f"{table}.{name}")

    def answer(self, messages: list[BaseMessage], tools: Any) -> AIMessage:
        self.look()
        return clerk(messages, tools)

    def run_agents(self) -> None:
        """Let agents with all steps run, with good and bad ends and feedback."""
        for name, options in OPTIONS.items():
            agent: Any = create_agent(
                ScriptedChatModel(script=self.answer),
                TOOLS,
                middleware=tool_memory_middleware(self.memory, name=name, **options),
                checkpointer=InMemorySaver(),
                name=name,
            )
            for number in range(14):
                thread, user = f"{name}-{number // 2}", f"user-{number // 2 % 2}"
                config = {"configurable": {"thread_id": thread, "user_id": user}}
                request = f"Please tell me everything about {NAMES[number % len(NAMES)]}"
                agent.invoke({"messages": [HumanMessage(request)]}, config)
                self.memory.feedback(thread, score=float(number % 3 > 0), comment="It was late.", user_id=user)
                self.look()


OPTIONS: dict[str, dict[str, Any]] = {
    "eager": {"shortcut": EAGER, "prefetch": True, "recall": True, "suggest": True},
    "shadow": {"shortcut": InertiaPolicy(shadow=True)},
    "writer": {"shortcut": EAGER.with_(writes=Bound(0.3, None), may_write={"add_note"}), "reflect": True},
    "careful": {"context": True, "planning": True, "preferences": True, "tool_search": True},
}


SELDOM_FILLED = {
    "agents.wrong",
    "changes.made",
    "context.blocks",
    "context.pending",
    "corrections.sources",
    "navigator.left",
    "trials.runs",
    "trials.sums",
}
"""These parts may stay empty here: they need look-ups before the model, wrong calls, or a hundred requests."""


def shared(value: Any, where: str = "state", known: dict[int, str] | None = None) -> Iterator[str]:
    """Yield the pairs of places that hold the same container."""
    known = {} if known is None else known
    if not isinstance(value, (dict, list)):
        return
    if id(value) in known:
        yield f"{where} is {known[id(value)]}"
        return
    known[id(value)] = where
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    for name, part in parts:
        yield from shared(part, f"{where}[{name!r}]", known)


def test_the_walk_finds_what_a_snapshot_refuses() -> None:
    same = ["a"]
    assert list(shared({"x": [same, ["a"]], "y": {"z": same}})) == ["state['y']['z'] is state['x'][0]"]
    assert list(shared([[], {}, []])) == []


def test_no_two_places_of_a_state_hold_the_same_container() -> None:
    with ToolMemory(None, TOOLS, [make(kind) for kind in KINDS], reads={"find_*"}, holdout=0.1) as memory:
        work(memory, user="ann", word="zanzibar")
        walked = Walked(memory)
        walked.run_agents()
        assert memory.flush()
        memory.forget(user_id="ann")
        walked.look()
        assert not walked.shared
        assert walked.parts - walked.filled <= SELDOM_FILLED, "an empty part is not checked"
        assert dumps(memory.core.graph.to_state())
