"""`create_agent` with a memory: two lines more, and look-ups are made without the model.

Run it: ``python -m examples.agent``. The scripted model stands in for yours, such as "openai:gpt-5.1".
"""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import tool

from langgraph_toolmem import InertiaSettings, ToolMemory
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel, call_tool


@tool
def find_customer(name: str) -> str:
    """Return the id of a customer."""
    return f"C-{name}"


@tool
def latest_order(customer_id: str) -> str:
    """Return the state of a customer's latest order."""
    return f"The order of {customer_id} is shipped."


def reply(messages: list[BaseMessage], _: Any) -> AIMessage:
    """Answer as a model would: find the customer, look at the order, say it."""
    results = [message.text for message in messages if message.type == "tool"]
    if not results:
        return call_tool("find_customer", name=messages[0].text.split()[-1])
    return call_tool("latest_order", customer_id=results[0]) if len(results) == 1 else AIMessage(results[1])


model = ScriptedChatModel(script=reply)
memory = ToolMemory.ephemeral(reads={"find_*", "latest_*"})  # new; ToolMemory("./.toolmem", ...) keeps it
agent: Any = create_agent(
    model,
    [find_customer, latest_order],
    middleware=tool_memory_middleware(memory),  # new; with middleware of yours: (memory, outer=[yours])
    context_schema=InertiaSettings,  # lets Studio set shadow mode or a precision for a run
)


if __name__ == "__main__":  # handle 100 requests, and show who chose the calls of the first and of the last one
    for number in range(100):
        before = len(model.calls)
        agent.invoke({"messages": [("user", f"Where is the order of customer{number}")]})
        if number in (0, 99):
            print(f"request {number + 1}: {len(model.calls) - before} model calls")
    print(memory.report())
