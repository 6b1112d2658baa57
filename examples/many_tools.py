"""Many tools: the model finds those that a request needs with a search; its own list of tools never changes.

Run it: ``python -m examples.many_tools``. The search shows `find_customer` although it shares no word with the request:
`refund` needs an id, and past runs show where it comes from.
"""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, tool

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel, call_tool


@tool
def find_customer(name: str) -> dict[str, str]:
    """Look up a person by name."""
    return {"customer_id": f"C-{name}"}


@tool
def refund(customer_id: str) -> str:
    """Pay the money back for the latest order."""
    return f"{customer_id} has its money back."


def other(deed: str, thing: str) -> BaseTool:
    """Return a tool of another department."""
    schema = {"type": "object", "properties": {f"{thing}_id": {"type": "string"}}, "required": [f"{thing}_id"]}
    about = f"{deed.capitalize()} a {thing}."
    return StructuredTool(name=f"{deed}_{thing}", description=about, args_schema=schema, func=lambda **_: "done")


def past_run(name: str) -> list[BaseMessage]:
    """Return the messages of a run from before the search."""
    look, pay = call_tool("find_customer", name=name), call_tool("refund", customer_id=f"C-{name}")
    found = ToolMessage(f'{{"customer_id": "C-{name}"}}', tool_call_id=look.tool_calls[0]["id"])
    paid = ToolMessage("paid", tool_call_id=pay.tool_calls[0]["id"])
    return [HumanMessage(f"Refund the order of {name}"), look, found, pay, paid, AIMessage("Done.")]


others = [
    other(deed, thing) for deed in ("create", "delete", "list", "print") for thing in ("invoice", "room", "ticket")
]
tools = [find_customer, refund, *others]
script = [call_tool("search_tools", query="Refund the order of Ann"), AIMessage("I would call these two.")]
memory = ToolMemory.ephemeral(tools=tools)
middleware = tool_memory_middleware(memory, tool_search=True)
agent: Any = create_agent(ScriptedChatModel(script=script), tools, middleware=middleware)

if __name__ == "__main__":  # learn nine runs, then search
    for number in range(9):
        memory.finish(past_run(f"customer{number}"), thread_id=f"past-{number}", success=True)
    for message in agent.invoke({"messages": [("user", "Refund the order of Ann")]})["messages"]:
        print(f"{message.type}: {message.text or message.tool_calls}")
