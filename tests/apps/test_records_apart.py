"""Two agents share a memory and have different tools of one name: each has a record of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.graph.state import ToolRecords, are_alike, is_apart, name_apart, shape_of, tool_of
from langgraph_toolmem.inertia.decision import Decision, Option, Proposal, Refusal, of_tools
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.testing import ScriptedChatModel

RUNS = 40


def of_orders(made: list[Any]) -> BaseTool:
    @tool("lookup")
    def lookup(order_id: str) -> str:
        """Look up an order."""
        made.append(order_id)
        return "sent"

    lookup.tags = ["read_only"]
    return lookup


def of_customers(made: list[Any]) -> BaseTool:
    @tool("lookup")
    def lookup(customer: str, limit: int) -> str:
        """Look up a customer."""
        made.append((customer, limit))
        return "found"

    lookup.tags = ["read_only"]
    return lookup


def asks_for(args_of: Callable[[str], dict[str, Any]]) -> Callable[[Sequence[Any], Any], AIMessage]:
    def script(messages: Sequence[Any], tools: Any) -> AIMessage:
        if messages[-1].type != "human":
            return AIMessage("done")
        args = args_of(messages[-1].text.split()[-1])
        return AIMessage("", tool_calls=[{"name": "lookup", "args": args, "id": f"m{len(messages)}"}])

    return script


class Two:
    """Two agents, and the calls that their tools had."""

    def __init__(self, memory: ToolMemory) -> None:
        self.orders: list[Any] = []
        self.customers: list[Any] = []
        self.memory, self.saver = memory, InMemorySaver()
        self.by_orders = self._agent(of_orders(self.orders), lambda word: {"order_id": word})
        self.by_customers = self._agent(of_customers(self.customers), lambda word: {"customer": word, "limit": 3})

    def _agent(self, its_tool: BaseTool, args_of: Callable[[str], dict[str, Any]]) -> Any:
        model = ScriptedChatModel(script=asks_for(args_of))
        middleware = tool_memory_middleware(self.memory)
        return create_agent(model, [its_tool], middleware=middleware, checkpointer=self.saver)

    def ask(self, agent: Any, text: str, thread: str) -> list[Any]:
        config = {"configurable": {"thread_id": thread, "user_id": "u"}}
        messages: list[Any] = agent.invoke({"messages": [("user", text)]}, config)["messages"]
        return [call for message in messages for call in getattr(message, "tool_calls", ())]


def test_each_tool_of_a_name_has_its_own_record() -> None:
    with ToolMemory.ephemeral() as memory:
        two = Two(memory)
        for number in range(RUNS):
            two.ask(two.by_orders, f"Look at O{1000 + number}", f"o{number}")
        before = dict(memory.core.graph.tools["lookup"])
        for number in range(RUNS):
            [call] = two.ask(two.by_customers, f"Look at C{2000 + number}", f"c{number}")
            assert (call["name"], call["args"]) == ("lookup", {"customer": f"C{2000 + number}", "limit": 3})
        known = memory.core.graph.tools
        [apart] = filter(is_apart, known)
        assert tool_of(apart) == "lookup"
        assert known["lookup"]["parameters_seen"].keys() == {"order_id"}
        assert known[apart]["parameters_seen"].keys() == {"customer", "limit"}
        assert known["lookup"]["ok"] == before["ok"]
        assert known[apart]["ok"] >= RUNS - 1
        for number in range(5):
            [call] = two.ask(two.by_orders, f"Look at O{3000 + number}", f"p{number}")
            assert (call["name"], call["args"]) == ("lookup", {"order_id": f"O{3000 + number}"})
        assert two.orders[-5:] == [f"O{3000 + number}" for number in range(5)]
        assert all(limit == 3 for _, limit in two.customers)


def test_agents_on_one_thread_teach_their_own_records() -> None:
    """The turn of one agent is learned when the other is asked."""
    with ToolMemory.ephemeral() as memory:
        two = Two(memory)
        for number in range(6):
            two.ask(two.by_orders, f"Look at O{number}", "both")
            two.ask(two.by_customers, f"Look at C{number}", "both")
        known = memory.core.graph.tools
        [apart] = filter(is_apart, known)
        assert known["lookup"]["parameters_seen"].keys() == {"order_id"}
        assert known[apart]["parameters_seen"].keys() == {"customer", "limit"}


def test_one_tool_has_no_second_record() -> None:
    with ToolMemory.ephemeral() as memory:
        two = Two(memory)
        for number in range(3):
            two.ask(two.by_orders, f"Look at O{number}", f"o{number}")
        assert not any(map(is_apart, memory.core.graph.tools))


def test_what_one_program_forbids_holds_for_all_records() -> None:
    with ToolMemory.ephemeral() as memory:
        gentle = spec(query="string")
        grave = ToolSpec("lookup", "", spec(account="string").parameters, destructive=True)
        reads = ToolSpec("lookup", "", gentle.parameters, read_only=True)
        memory.core.catalogue.adopt({"lookup": reads})
        memory.core.catalogue.adopt({"lookup": grave})
        offered = memory.core.catalogue.recorded({"lookup": reads})
        assert offered["lookup"].destructive is True
        [(record, marked)] = memory.core.catalogue.recorded({"lookup": grave}).items()
        assert is_apart(record)
        assert marked.read_only is not True


def spec(**types: str) -> ToolSpec:
    properties = {name: {"type": kind} for name, kind in types.items()}
    return ToolSpec("lookup", "", {"type": "object", "properties": properties})


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ({"a": {"type": "string"}}, {"a": {"type": "string", "description": "of an order"}}, True),
        ({"a": {"type": "string"}}, {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, True),
        ({"a": {"type": "string"}}, {"a": {"enum": ["x", "y"]}}, True),
        ({"a": {"type": "string"}}, {"a": {}}, True),
        ({"a": {"type": "string"}}, {"a": {"type": "integer"}}, False),
        ({"a": {"type": "string"}}, {"a": {"type": "string"}, "b": {"type": "string"}}, False),
        ({"a": {"type": "string"}}, {}, False),
    ],
)
def test_parameters_are_compared_by_names_and_types(one: Any, other: Any, alike: bool) -> None:
    shapes = [shape_of(ToolSpec("t", "", {"type": "object", "properties": each})) for each in (one, other)]
    assert are_alike(*shapes) is alike
    assert are_alike(*shapes[::-1]) is alike


def test_texts_and_policies_name_tools_and_records() -> None:
    record = name_apart("lookup", shape_of(spec(customer="string")))
    names = ToolRecords(offered={"lookup": record})
    assert tool_of(record) == "lookup"
    assert names.with_records(frozenset({"lookup", "pay"})) == {"lookup", "pay", record}
    assert names.in_words(f"{record} came next") == "lookup came next"
    held = Refusal("excluded", f"{record} is excluded by the policy")
    proposal = Proposal(record, {"customer": "C1"}, 0.9, f"{record} came next", hold=held)
    decision = of_tools(Decision(proposal, held, (Option(record, ({"customer": "C1"},), 0.9, held),)), names)
    assert decision.proposal is not None
    assert (decision.proposal.tool, decision.proposal.evidence) == ("lookup", "lookup came next")
    assert decision.refusal == decision.proposal.hold == Refusal("excluded", "lookup is excluded by the policy")
    assert [option.tool for option in decision.options] == ["lookup"]
