"""A supervisor's graph: it hands a thread over to an agent, and keeps only the last message of the agent's run."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel, call_tool

NAMES = ["Ann", "王伟", "Олег", "José", "Bo", "Sukarno"]
REQUESTS = 36
THREADS = 12


def handed(name: str) -> list[Any]:
    """The messages of a handoff, as langgraph-supervisor writes them."""
    call = {"name": name, "args": {}, "id": f"call_{uuid.uuid4().hex[:24]}", "type": "tool_call"}
    told = ToolMessage("Done.", name=name, tool_call_id=call["id"], id=str(uuid.uuid4()))
    return [AIMessage("", tool_calls=[call], id=str(uuid.uuid4())), told]


class Office:
    """A supervisor with one clerk, who looks a customer up and answers."""

    def __init__(self, memory: ToolMemory | None, **options: Any) -> None:
        self.looked_up: list[str] = []
        self.asked = 0

        def find_customer(name: str) -> str:
            """Find a customer."""
            self.looked_up.append(name)
            return f"customer {name}"

        middleware = [] if memory is None else tool_memory_middleware(memory, outer=[], **options)
        clerk = create_agent(
            ScriptedChatModel(script=self._clerk), [find_customer], middleware=middleware, name="clerk"
        )

        def hand_over(state: MessagesState) -> dict[str, Any]:
            there = handed("transfer_to_clerk")
            answer = clerk.invoke({"messages": [*state["messages"], *there]})["messages"][-1]
            return {"messages": [*there, answer, *handed("transfer_back_to_supervisor"), AIMessage("Anything else?")]}

        builder = StateGraph(MessagesState)
        builder.add_node("supervisor", hand_over)
        builder.add_edge(START, "supervisor")
        builder.add_edge("supervisor", END)
        self._app = builder.compile(checkpointer=InMemorySaver())

    def _clerk(self, messages: list[Any], _: Any) -> AIMessage:
        self.asked += 1
        latest = max(index for index, message in enumerate(messages) if isinstance(message, HumanMessage))
        found = [message for message in messages[latest:] if getattr(message, "name", None) == "find_customer"]
        if found:
            return AIMessage(f"This is {found[-1].text}.")
        return call_tool("find_customer", name=messages[latest].text.removeprefix("Who is ").removesuffix("?"))

    def serve(self) -> list[str]:
        """Serve the requests, several in a thread; return the answers."""
        answers = []
        for number in range(REQUESTS):
            config = {"configurable": {"thread_id": f"t{number % THREADS}"}}
            text = f"Who is {NAMES[number % len(NAMES)]}?"
            messages = self._app.invoke({"messages": [HumanMessage(text)]}, config)["messages"]
            answers.append(messages[-4].text)
        return answers


@pytest.mark.parametrize("options", [{}, {"context": True}, {"prefetch": True}], ids=str)
def test_an_agent_behind_a_handoff_is_learned_as_it_worked(options: dict[str, Any]) -> None:
    plain = Office(None)
    expected = plain.serve()
    assert plain.asked == 2 * REQUESTS
    with ToolMemory.ephemeral(reads={"find_customer"}) as memory:
        office = Office(memory, **options)
        answers = office.serve()
        report = memory.report()

    assert answers == expected
    assert office.looked_up == plain.looked_up
    assert office.asked <= 1.75 * REQUESTS, "look-ups after a handoff are made without the model"
    assert report.wrong == 0
    of_supervisor = REQUESTS - THREADS  # the last one of each thread is in no history that the clerk gets
    assert report.answers == REQUESTS + of_supervisor, "an answer that two histories show is learned once"
