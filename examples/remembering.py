"""Remembering: what went wrong with a request is shown to the model when one like it comes.

Run it: ``python -m examples.remembering``. Asked for a call "at 9, local time there", the model books 9 o'clock UTC.
The user says that it was wrong, a critic finds out why, and the next request of the kind has both in its prompt.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver

from examples.desk import calling, show
from langgraph_toolmem import Entries, ToolMemory, default_methods
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel

HOURS_FROM_UTC = {"Ann": -8, "Ben": 2}
REQUEST = "Book a call with {} at 9, local time there"


@tool
def time_zone(name: str) -> dict[str, int]:
    """The time zone somebody lives in."""
    return {"hours_from_utc": HOURS_FROM_UTC[name]}


@tool
def book_call(name: str, hour_utc: int) -> dict[str, Any]:
    """Book a call at an hour in UTC."""
    return {"booked": name, "hour_utc": hour_utc}


TOOLS: list[BaseTool] = [time_zone, book_call]


def reply(messages: list[BaseMessage], _: list[dict[str, Any]]) -> AIMessage:
    """The model: does the obvious, unless its prompt tells it better."""
    [request] = [m.text for m in messages if isinstance(m, HumanMessage)]
    name = next(name for name in HOURS_FROM_UTC if name in request)
    results = [json.loads(m.text) for m in messages if isinstance(m, ToolMessage)]
    warned = any("Ask for the time zone" in m.text for m in messages if m.type == "system")
    if results and "booked" in results[-1]:
        return AIMessage(f"The call with {name} is booked.")
    if warned and not results:
        return calling("time_zone", name=name)
    return calling("book_call", name=name, hour_utc=9 - (results[-1]["hours_from_utc"] if results else 0))


def criticise(_: list[BaseMessage], tools: Sequence[dict[str, Any]]) -> AIMessage:
    """The critic, a chat model too: it reads the run and the user's comment, and fills in the form it is given."""
    [form] = [each["function"]["name"] for each in tools]
    return calling(
        form,
        went_wrong="The hour is local time, and was booked as UTC.",
        call=1,
        instead="Ask for the time zone, then convert the hour.",
    )


def main() -> None:
    """Two requests of one kind, with a verdict between them."""
    model = ScriptedChatModel(script=reply)
    with ToolMemory.ephemeral(
        tools=TOOLS, methods=default_methods(Entries(critic=ScriptedChatModel(script=criticise)))
    ) as memory:
        agent: Any = create_agent(
            model,
            TOOLS,
            middleware=tool_memory_middleware(memory, recall=True, reflect=True),
            checkpointer=InMemorySaver(),  # the thread's id is the run's
        )

        def ask(name: str) -> None:
            feed = {"messages": [("user", REQUEST.format(name))]}
            show(agent.invoke(feed, {"configurable": {"thread_id": f"call-with-{name}"}})["messages"])

        ask("Ann")
        memory.feedback("call-with-Ann", score=0.0, comment="she was asleep")  # an hour later, from whatever process
        memory.flush()  # only here: the critique is written in the background
        ask("Ben")
        print(f"\nWhat the model was shown the second time:\n\n{model.calls[-1].messages[0].text}\n\n{memory.report()}")


if __name__ == "__main__":
    main()
