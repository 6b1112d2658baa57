"""Remembering: what went wrong with a request is shown to the model when a similar request comes.

Run it: ``python -m examples.remembering``. A user says that a run was wrong, a critic (a chat model) finds out why, and
the next request of the kind has both in its prompt.
"""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_toolmem import Entries, ToolMemory, default_methods
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel, call_tool


def time_zone(name: str) -> str:
    """Return the hours from UTC of a person."""
    return {"Ben": "2"}[name]


def book_call(name: str, hour_utc: int) -> str:
    """Book a call at an hour in UTC."""
    return f"The call with {name} is booked at {hour_utc}:00 UTC."


def reply(messages: list[BaseMessage], _: Any) -> AIMessage:
    """Answer as a model would: book nine o'clock, unless the prompt says to ask for the time zone first."""
    results = [message.text for message in messages if message.type == "tool"]
    warned = any("Ask for the time zone" in message.text for message in messages)
    if results and "booked" in results[-1]:
        return AIMessage(results[-1])
    if warned and not results:
        return call_tool("time_zone", name="Ben")
    return call_tool("book_call", name="Ben", hour_utc=9 - int(results[0]) if results else 9)


def criticise(_: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
    """Answer as a critic would: fill in the form."""
    wrong, instead = "The hour is local time.", "Ask for the time zone, then convert the hour."
    return call_tool(tools[0]["function"]["name"], went_wrong=wrong, call=1, instead=instead)


model = ScriptedChatModel(script=reply)
memory = ToolMemory.ephemeral(methods=default_methods(Entries(critic=ScriptedChatModel(script=criticise))))
middleware = tool_memory_middleware(memory, recall=True)
agent: Any = create_agent(model, [time_zone, book_call], middleware=middleware, checkpointer=InMemorySaver())


if __name__ == "__main__":  # handle two requests of one kind, with feedback between them
    for thread_id in ("monday", "friday"):
        feed = {"messages": [("user", f"Book a call with Ben on {thread_id} at 9, his time")]}
        print(agent.invoke(feed, {"configurable": {"thread_id": thread_id}})["messages"][-1].text)
        if thread_id == "monday":
            memory.feedback(thread_id, score=0.0, comment="he was asleep")
            memory.flush()  # only here: the critique is written in the background
    print(f"\nThe prompt of the second run:\n{model.calls[-1].messages[0].text}")
