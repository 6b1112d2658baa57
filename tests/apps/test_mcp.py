"""Tools of a real MCP server over stdio, through langchain-mcp-adapters: read right, checked, learned, guarded."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from mcp import ClientSession
from places import ROOT, TESTS
from pydantic import AnyUrl

from langgraph_toolmem.runs.run import Turn
from langgraph_toolmem.runs.tools import ToolSpec, read_tools
from langgraph_toolmem.runs.trajectory import parse_run

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVER = {
    "transport": "stdio",
    "command": sys.executable,
    "args": [str(TESTS / "mcp_server.py")],
    "cwd": str(ROOT),
}
Calls = list[tuple[str, dict[str, Any]]]


class Server:
    """The running server: its tools, and what it really executed."""

    def __init__(self, session: ClientSession, tools: list[BaseTool]) -> None:
        self.session = session
        self.tools = tools

    async def done(self) -> Calls:
        (content,) = (await self.session.read_resource(AnyUrl("desk://done"))).contents
        return [(call["tool"], call["args"]) for call in json.loads(content.text)]  # type: ignore[union-attr]

    async def call(self, tool: str, args: dict[str, Any]) -> ToolMessage:
        """One call, made by a ToolNode."""
        builder = StateGraph(MessagesState)
        builder.add_node("tools", ToolNode(self.tools))
        builder.add_edge(START, "tools")
        asked = AIMessage("", tool_calls=[{"name": tool, "args": args, "id": "call_1", "type": "tool_call"}])
        state = await builder.compile().ainvoke({"messages": [asked]})
        answer = state["messages"][-1]
        assert isinstance(answer, ToolMessage)
        return answer


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Server]:
    """One server process for all tests here. A task of its own holds the session: it must end where it began."""
    started: asyncio.Future[Server] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()

    async def hold() -> None:
        client = MultiServerMCPClient({"desk": SERVER})  # type: ignore[dict-item]
        try:
            async with client.session("desk") as session:
                started.set_result(Server(session, await load_mcp_tools(session)))
                await stop.wait()
        except BaseException as error:
            if not started.done():
                started.set_exception(error)
            raise

    task = asyncio.create_task(hold())
    yield await started
    stop.set()
    await asyncio.wait_for(task, 30)


@pytest.fixture
def specs(server: Server) -> dict[str, ToolSpec]:
    return read_tools(server.tools)


# --- what is read


async def test_annotations_become_effects(specs: dict[str, ToolSpec]) -> None:
    assert {name: (s.read_only, s.destructive, s.idempotent) for name, s in specs.items()} == {
        "find_customer": (True, None, None),
        "list_tickets": (True, None, None),
        "get_ticket": (True, None, None),
        "search_tickets": (True, None, None),
        "add_comment": (False, False, None),
        "set_priority": (False, False, True),
        "merge_tickets": (False, True, None),
        "delete_ticket": (False, True, None),
        "opening_hours": (None, None, None),
    }


# --- what is checked


@pytest.mark.parametrize(
    ("tool", "args", "words"),
    [
        ("set_priority", {"ticket_id": "T-1-2", "priority": "high"}, None),
        ("set_priority", {"ticket_id": 5, "priority": "high"}, "parameter 'ticket_id'"),
        ("set_priority", {"ticket_id": "T-1-2", "priority": "urgent"}, "parameter 'priority'"),
        ("set_priority", {"ticket_id": "T-1-2"}, "missing parameter 'priority'"),
        ("search_tickets", {"wanted": {"words": ["paper"], "priority": None}, "limit": 2}, None),
        ("search_tickets", {"wanted": {"words": ["paper", 5]}}, "parameter 'wanted.words.1'"),
        ("search_tickets", {"wanted": {}, "limit": 51}, "parameter 'limit'"),
    ],
)
async def test_dict_schemas_are_checked_as_the_server_checks_them(
    server: Server, specs: dict[str, ToolSpec], tool: str, args: dict[str, Any], words: str | None
) -> None:
    problem = specs[tool].problem(args)
    assert problem is None if words is None else words in str(problem)
    before = len(await server.done())
    answer = await server.call(tool, args)
    assert answer.status == ("success" if words is None else "error")
    assert len(await server.done()) == before + (words is None)


async def test_answers_are_values(server: Server) -> None:
    found = await server.call("find_customer", {"name": "Ann"})
    assert isinstance(found.content, list)  # content blocks, each with an id drawn at random
    listed = await server.call("list_tickets", {"customer_id": "C-7"})
    read = await server.call("get_ticket", {"ticket_id": "T-7-1"})
    unknown = await server.call("set_priority", {"ticket_id": "T-7-1", "priority": "x"})
    assert [steps_of(answer) for answer in (found, listed, read)] == [
        ("ok", {"customer_id": found.artifact["structured_content"]["customer_id"], "name": "Ann"}),
        ("ok", listed.artifact["structured_content"]["result"]),
        ("ok", "T-7-1, password forgotten: please have a look at it."),
    ]
    assert len(steps_of(listed)[1]) == 2
    assert steps_of(unknown)[0] != "ok"


def steps_of(answer: ToolMessage) -> tuple[str, Any]:
    asked = AIMessage("", tool_calls=[{"name": str(answer.name), "args": {}, "id": answer.tool_call_id}])
    turn = parse_run([HumanMessage("x"), asked, answer]).events[-1]
    assert isinstance(turn, Turn)
    return turn.steps[0].status, turn.steps[0].output


# --- what is learned, and what is done with it
