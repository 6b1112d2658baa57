"""The model's turn right after a call of the memory: what it says about the call, its values and the budget."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool

from langgraph_toolmem import InertiaPolicy, ToolMemory
from langgraph_toolmem.inertia.confidence import CAPACITY, INFLOW
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel, call_tool

FREE = InertiaPolicy().with_(max_wrong_per_100=None, audit_rate=0.0)


@dataclass
class Archive:
    """An agent that opens a client's file. Of some clients it wants another one's, which no message says."""

    memory: ToolMemory
    policy: InertiaPolicy | bool = True
    wanted: list[str] = field(default_factory=list)
    turns: int = 0
    requests: int = 0

    def __post_init__(self) -> None:
        model = ScriptedChatModel(script=self._answer)
        steps = tool_memory_middleware(self.memory, shortcut=self.policy)
        self.agent = create_agent(model, [self._tool()], middleware=steps)

    def _tool(self) -> BaseTool:
        @tool
        def find_client(name: str) -> str:
            """Look a client up."""
            return f"The file of {name}."

        return find_client

    def _answer(self, messages: list[BaseMessage], _: Any) -> AIMessage:
        asked = max(at for at, message in enumerate(messages) if isinstance(message, HumanMessage))
        found = [message.text for message in messages[asked:] if isinstance(message, ToolMessage)]
        missing = [name for name in self.wanted if f"The file of {name}." not in found]
        return call_tool("find_client", name=missing[0]) if missing else AIMessage("Here it is.")

    def ask(self, name: str, *wanted: str) -> list[str]:
        """Ask for a client's file; return the names that the memory looked up without the model."""
        self.wanted = list(wanted) or [name]
        said = {"messages": [("user", f"Open the file of {name}")]}
        self.requests += 1
        messages = self.agent.invoke(said, {"configurable": {"thread_id": f"t{self.requests}"}})["messages"]
        self.turns += sum(isinstance(message, AIMessage) for message in messages)
        marked = [message for message in messages if "toolmem" in message.additional_kwargs]
        return [call["args"]["name"] for message in marked for call in message.tool_calls]

    def expected(self, name: str) -> str:
        """Return the code of the decision on a request."""
        decision = self.memory.inertia.explain([("user", f"Open the file of {name}")], policy=FREE)
        return "acts" if decision.acts else decision.code

    @property
    def figures(self) -> dict[str, Any]:
        """Return the shortcut's figures."""
        return dict(self.memory.report()["inertia"])


def practised(memory: ToolMemory, policy: InertiaPolicy | bool, requests: int = 30) -> Archive:
    archive = Archive(memory, policy)
    for i in range(requests):
        archive.ask(f"Client{i}")
    return archive


def test_the_same_tool_with_other_arguments_right_after_is_a_miss_and_withdraws_the_source() -> None:
    with ToolMemory.ephemeral(reads={"find_client"}) as memory:
        archive = practised(memory, FREE)
        assert archive.figures["audits"]["checks"] == 0
        assert archive.ask("Ann", "Bob") == ["Ann"]
        found = archive.figures
        assert (found["corrected"], found["audits"]["checks"], found["audits"]["right"]) == (1, 1, 0)
        assert memory.report().wrong == 1
        assert archive.expected("Cem") == "source_withdrawn"
        assert archive.ask("Cem") == [], "the model is asked"
        assert archive.expected("Dora") == "acts", "its value was right once more"
        assert archive.figures["corrected"] == 1


def test_a_tool_that_the_model_calls_again_after_its_own_calls_is_not_corrected() -> None:
    with ToolMemory.ephemeral(reads={"find_client"}) as memory:
        archive = Archive(memory, FREE.with_(shadow=True))
        for i in range(40):
            archive.ask(f"Client{i}", *([f"Client{i}"] if i % 4 else [f"Client{i}", f"Partner{i}"]))
        acting = Archive(memory, FREE, requests=100)
        assert acting.ask("Ann", "Ann", "Bea") == ["Ann"]
        assert acting.figures["corrected"] == 0
        assert acting.expected("Cem") == "acts"


@pytest.mark.parametrize(("rate", "plain"), [(0.1, 0), (0.05, 0), (0.1, 40)])
def test_the_shortcut_stops_where_more_than_one_call_in_a_hundred_turns_is_wrong(rate: float, plain: int) -> None:
    draw = random.Random(1)
    with ToolMemory.ephemeral(reads={"find_client"}) as memory:
        archive = practised(memory, True, plain)
        begin, wrong_at, closed_at = archive.turns, list[int](), list[int]()
        for i in range(120):
            name = f"Person{i}"
            wanted = f"Other{i}" if draw.random() < rate else name
            looked_up = archive.ask(name, wanted)
            wrong_at += [archive.turns - begin for each in looked_up if each != wanted]
            if memory.inertia.budget.room(InertiaPolicy(), changes=False) <= 0:
                closed_at.append(archive.turns - begin)
        turns = archive.turns - begin
        assert wrong_at, "it is wrong without being stopped"
        assert closed_at[0] <= wrong_at[0] + 100
        assert len(wrong_at) < CAPACITY + 1 + INFLOW * turns / 100
        audits = archive.figures["audits"]
        assert audits["checks"] - audits["right"] >= len(wrong_at), "the report tells of every one"


def test_an_earlier_call_of_a_chain_is_not_corrected_by_a_later_look_up_of_the_same_tool() -> None:
    """Ann is looked up, her letters are listed, then Ben is looked up: three calls, all of them right."""

    @tool
    def find_client(name: str) -> dict[str, str]:
        """Look a client up."""
        return {"id": f"K-{name.upper()}"}

    @tool
    def list_letters(client_id: str) -> str:
        """List letters."""
        return f"Letters of {client_id}."

    def answer(messages: list[BaseMessage], _: Any) -> AIMessage:
        asked = max(at for at, message in enumerate(messages) if isinstance(message, HumanMessage))
        first, second = messages[asked].text.removeprefix("Forward the letter of ").split(" to ")
        chain = [
            call_tool("find_client", name=first),
            call_tool("list_letters", client_id=f"K-{first.upper()}"),
            call_tool("find_client", name=second),
            AIMessage("Done."),
        ]
        return chain[sum(isinstance(message, ToolMessage) for message in messages[asked:])]

    with ToolMemory.ephemeral(reads={"find_*", "list_*"}) as memory:
        model = ScriptedChatModel(script=answer)
        agent = create_agent(model, [find_client, list_letters], middleware=tool_memory_middleware(memory))
        draw = random.Random(0)
        for number in range(60):
            first, second = (
                f"{draw.choice('BCDFG')}a{draw.choice('lmnrt')}o{index}" for index in (number, number + 100)
            )
            agent.invoke(
                {"messages": [("user", f"Forward the letter of {first} to {second}")]},
                {"configurable": {"thread_id": f"t{number}"}},
            )
        figures = dict(memory.report()["inertia"])
        assert figures["corrected"] == 0
        assert memory.report().skipped >= 40
