"""Tools of an MCP server: its annotations say which only read, so nothing has to be declared.

Run it: ``python -m examples.mcp_tools`` (extra `mcp`). It starts itself as the server.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.sessions import StdioConnection
from langchain_mcp_adapters.tools import load_mcp_tools
from mcp.server.fastmcp import FastMCP
from mcp.types import ToolAnnotations

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel, call_tool


def serve() -> None:
    """Serve two tools over stdio."""
    server = FastMCP("tickets", log_level="WARNING")

    @server.tool(annotations=ToolAnnotations(readOnlyHint=True))
    def find_ticket(customer: str) -> str:
        return f"T-{customer}"

    @server.tool(annotations=ToolAnnotations(destructiveHint=True))
    def delete_ticket(ticket: str) -> str:
        return f"{ticket} is deleted."

    server.run()


def reply(messages: list[BaseMessage], _: Any) -> AIMessage:
    """Answer as a model would: find the ticket, then delete it."""
    results = [m.content_blocks[0].get("text", "") for m in messages if m.type == "tool"]
    if not results:
        return call_tool("find_ticket", customer=messages[0].text.split()[-1])
    return call_tool("delete_ticket", ticket=results[0]) if len(results) == 1 else AIMessage("Deleted.")


async def main() -> None:
    """Handle 60 requests: the look-ups are made without the model, the deleting is not."""
    server = StdioConnection(transport="stdio", command=sys.executable, args=[__file__, "serve"], env=dict(os.environ))
    client = MultiServerMCPClient({"tickets": server})
    async with client.session("tickets") as session:  # one for all calls; `get_tools()` starts a server for each
        tools = await load_mcp_tools(session)
        with ToolMemory.ephemeral(tools=tools) as memory:
            agent: Any = create_agent(ScriptedChatModel(script=reply), tools, middleware=tool_memory_middleware(memory))
            for number in range(60):
                await agent.ainvoke({"messages": [("user", f"Delete the ticket of customer{number}")]})
            print(memory.report())


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else asyncio.run(main())
