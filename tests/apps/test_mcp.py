"""Tools of a real MCP server over stdio, through langchain-mcp-adapters: effects, arguments and answers."""

from __future__ import annotations

import sys
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from mcp_desk import TOOLS
from places import TESTS

from langgraph_toolmem import InertiaPolicy, Prefetch
from langgraph_toolmem.inertia.speculative import Interceptors, qualified
from langgraph_toolmem.runs.run import Turn
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.runs.trajectory import parse_run

POLICY = InertiaPolicy()
CALLS: list[tuple[str, dict[str, Any], Any]] = [
    ("find_customer", {"name": "Ann"}, {"customer_id": "C-Ann", "name": "Ann"}),
    ("set_priority", {"ticket_id": "T-1", "priority": "high"}, "T-1 is high."),
    ("set_priority", {"ticket_id": 5, "priority": "high"}, "parameter 'ticket_id'"),
    ("set_priority", {"ticket_id": "T-1", "priority": "urgent"}, "parameter 'priority'"),
    ("set_priority", {"ticket_id": "T-1"}, "missing parameter 'priority'"),
    ("search_tickets", {"wanted": {"words": ["a", "b"], "priority": None}, "limit": 2}, "a\nb"),
    ("search_tickets", {"wanted": {"words": ["paper", 5]}}, "parameter 'wanted.words.1'"),
    ("search_tickets", {"wanted": {}, "limit": 51}, "parameter 'limit'"),
]
"""Calls, and what they give or what is wrong with them."""


async def passed_on(request: Any, handler: Any) -> Any:
    return await handler(request)


async def test_tools_of_a_server_are_read_checked_and_answered() -> None:
    command: Any = {"transport": "stdio", "command": sys.executable, "args": [str(TESTS / "mcp_desk.py")]}
    async with MultiServerMCPClient({"desk": command}).session("desk") as session:
        tools = await load_mcp_tools(session)
        specs = read_tools(tools)
        effects = {name: (spec.read_only, spec.destructive, spec.idempotent) for name, spec in specs.items()}
        assert effects == {tool.__name__: expected for tool, _, expected in TOOLS}
        kept, _ = qualified({tool.name: tool for tool in tools}, specs, POLICY, Prefetch(), Interceptors())
        assert "find_customer" in kept
        wrapped = await load_mcp_tools(session, tool_interceptors=[passed_on])
        kept, line = qualified({tool.name: tool for tool in wrapped}, specs, POLICY, Prefetch(), Interceptors())
        assert not kept
        assert "passed_on" in line
        builder = StateGraph(MessagesState)
        builder.add_node("tools", ToolNode(tools))
        builder.add_edge(START, "tools")
        graph = builder.compile()
        for name, args, expected in CALLS:
            asked = AIMessage("", tool_calls=[{"name": name, "args": args, "id": "call_1", "type": "tool_call"}])
            answer = (await graph.ainvoke({"messages": [asked]}))["messages"][-1]
            assert isinstance(answer, ToolMessage)
            turn = parse_run([HumanMessage("x"), asked, answer]).events[-1]
            assert isinstance(turn, Turn)
            problem = specs[name].problem(args)
            if answer.status == "success":
                assert problem is None
                assert (turn.steps[0].status, turn.steps[0].output) == ("ok", expected)
            else:
                assert expected in str(problem), "the specification refuses what the server refuses"
                assert turn.steps[0].status != "ok"
