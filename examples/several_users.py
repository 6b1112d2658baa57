"""One memory for several users: which tool follows which is shared, values and past runs are not.

Run it: ``python -m examples.several_users``. The namespace has a place for the user's id; it comes from the context.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import dynamic_prompt
from langchain_core.messages import AIMessage, BaseMessage

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel, call_tool


@dataclass
class Context:
    """The user of a run: ``agent.invoke(..., context=Context("ann"))``."""

    user_id: str


def open_parcels(account: str) -> str:
    """Return where the parcels of an account are."""
    return f"The parcels of {account} are on their way."


@dynamic_prompt
def profile(request: Any) -> str:
    """Write the system message; the memory never reads it."""
    return f"The user's account is A-{request.runtime.context.user_id}"


def reply(messages: list[BaseMessage], _: Any) -> AIMessage:
    """Answer as a model would: look at the parcels of the user's account."""
    if messages[-1].type == "tool":
        return AIMessage(messages[-1].text)
    return call_tool("open_parcels", account=messages[0].text.split()[-1])


model = ScriptedChatModel(script=reply)
memory = ToolMemory.ephemeral(reads={"open_parcels"}, namespace=("toolmem", "{user_id}"))
middleware = tool_memory_middleware(memory, outer=[profile])
agent: Any = create_agent(model, [open_parcels], middleware=middleware, context_schema=Context)


if __name__ == "__main__":  # let Ann ask 80 times, then Bob; forget Ann, and let her ask again
    for number, user_id in enumerate([*["ann"] * 80, "bob", "ann"]):
        if number == 81:
            print(f"Forgetting Ann removes {memory.forget(user_id='ann')} pieces.")
        before = len(model.calls)
        state = agent.invoke({"messages": [("user", "Where are my parcels?")]}, context=Context(user_id))
        if number in (0, 79, 80, 81):
            print(f"{user_id}: {state['messages'][-1].text} ({len(model.calls) - before} model calls)")
