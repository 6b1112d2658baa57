"""Tools of an MCP server: the memory looks things up without the model, and leaves the deleting to the model.

Run it: ``python -m examples.mcp_tools``. The server (`examples.mcp_server`) says of its tools which only read and
which destroy something; langchain-mcp-adapters hands that on, and the memory goes by it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.sessions import StdioConnection
from langchain_mcp_adapters.tools import load_mcp_tools

from examples.desk import NAMES, calling
from langgraph_toolmem import ToolMemory
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel

SERVER = StdioConnection(
    transport="stdio", command=sys.executable, args=[str(Path(__file__).with_name("mcp_server.py"))]
)


def reply(messages: Sequence[BaseMessage], _: Sequence[dict[str, Any]] = ()) -> AIMessage:
    """The model: find the customer, list the tickets, read the newest, delete it, answer."""
    name = next(m.text for m in messages if m.type == "human").split()[-1]
    # MCP answers in content blocks: one text block for an object, one for each item of a list.
    results = [[b["text"] for b in m.content_blocks if b["type"] == "text"] for m in messages if m.type == "tool"]
    if len(results) == 0:
        return calling("find_customer", name=name)
    if len(results) == 1:
        return calling("list_tickets", customer_id=json.loads(results[0][0])["customer_id"])
    if len(results) < 4:
        ticket_id = json.loads(results[1][0])["ticket_id"]
        return calling("get_ticket" if len(results) == 2 else "delete_ticket", ticket_id=ticket_id)
    return AIMessage(f"The newest ticket of {name} is deleted.")


def make_graph(model: BaseChatModel, tools: Sequence[BaseTool], memory: ToolMemory) -> Any:
    """An agent with a memory. MCP tools are async: it runs with ``ainvoke`` and ``astream``."""
    return create_agent(model, tools, middleware=tool_memory_middleware(memory))


async def handle(agent: Any, name: str, *, show: bool = False) -> None:
    """One request. Shows who chose each call, and why the memory left one to the model."""
    reason = ""
    request = {"messages": [("user", f"Delete the newest ticket of {name}")]}
    async for mode, event in agent.astream(request, stream_mode=["custom", "updates"]):
        if mode == "custom":
            reason = event["toolmem"].get("reason", reason)
            continue
        for message in event.get("model", {}).get("messages", ()) if show else ():
            for call in message.tool_calls:
                made = f"  {call['name']}({json.dumps(call['args'])})"
                if "toolmem" in message.additional_kwargs:
                    print(f"{made}  <- memory, no model call")
                else:
                    print(f"{made}  <- model\n      why: {reason}")


async def serve() -> None:
    """Starts the server and handles requests until the memory knows the way."""
    client = MultiServerMCPClient({"desk": SERVER})
    # One session for all calls; with `client.get_tools()` each call would start a server.
    async with client.session("desk") as session:
        tools = await load_mcp_tools(session)
        model = ScriptedChatModel(script=reply)
        with ToolMemory.ephemeral(tools=tools) as memory:
            agent = make_graph(model, tools, memory)
            for i in range(48):
                await handle(agent, f"{NAMES[i % len(NAMES)]}{i}")
            print("A request of a new customer:")
            await handle(agent, "Zoe", show=True)
            print(f"\nThe model was called {len(model.calls)} times, not {49 * 5} times.")
            print(memory.report())


def main() -> None:
    """Runs the example."""
    asyncio.run(serve())


if __name__ == "__main__":
    main()
