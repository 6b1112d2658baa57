"""A tool that a human must approve: a call that the memory makes waits for the human like the model's.

Run it: ``python -m examples.human_approval``. A rejected or edited call counts as a wrong prediction.
"""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from langgraph_toolmem import Inertia, InertiaPolicy, ToolMemory, default_methods
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel, call_tool


def refund(order_id: str) -> str:
    """Pay the money back for an order."""
    return f"{order_id} is refunded."


def reply(messages: list[BaseMessage], _: Any = None) -> AIMessage:
    """Answer as a model would: refund the order that the user names, then say so."""
    if isinstance(messages[-1], ToolMessage):
        return AIMessage(messages[-1].text)
    return call_tool("refund", order_id=messages[0].text.split()[-1])


def past_run(order_id: str) -> list[BaseMessage]:
    """Return the messages of a run from before the memory."""
    request, call = HumanMessage(f"Please refund the order {order_id}"), call_tool("refund", order_id=order_id)
    return [request, call, ToolMessage(refund(order_id), tool_call_id=call.tool_calls[0]["id"]), AIMessage("Done.")]


# A changing tool must be named.
memory = ToolMemory.ephemeral(methods=default_methods(Inertia(InertiaPolicy(may_write=frozenset({"refund"})))))
approval = HumanInTheLoopMiddleware({"refund": True})
model = ScriptedChatModel(script=reply)
middleware = tool_memory_middleware(memory, outer=[approval])
agent: Any = create_agent(model, [refund], middleware=middleware, checkpointer=InMemorySaver())


if __name__ == "__main__":  # learn 150 runs, then let a human approve one call of the memory and reject another
    for number in range(150):
        memory.finish(past_run(f"O-{number}"), thread_id=f"past-{number}")
    for order_id, decision in (("O-700", {"type": "approve"}), ("O-800", {"type": "reject", "message": "Too late."})):
        config = {"configurable": {"thread_id": order_id}}
        state = agent.invoke({"messages": [("user", f"Please refund the order {order_id}")]}, config)
        print(f"{state['__interrupt__'][0].value['action_requests'][0]['args']} waits for a human")
        state = agent.invoke(Command(resume={"decisions": [decision]}), config)
        print(f"  {decision['type']}: {[message.text for message in state['messages'] if message.type == 'tool']}")
    print(memory.report())
