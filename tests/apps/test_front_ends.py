"""What a front end reads of a run: its own events, updates that are dicts, and the words of its own model."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer

from langgraph_toolmem import ConfigurationError, SGASettings, ToolMemory
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel, call_tool


def find_person(name: str) -> str:
    """Look up a person."""
    get_stream_writer()({"type": "progress", "text": name})
    return f"usr_{name.lower()}"


def says(messages: list[Any], _: Any) -> AIMessage:
    human = next(message for message in reversed(messages) if message.type == "human")
    return call_tool("find_person", name=human.text.split()[-1]) if messages[-1].type != "tool" else AIMessage("Found.")


def agent_with(memory: ToolMemory, **features: Any) -> Any:
    middleware = tool_memory_middleware(memory, **features)
    model = ScriptedChatModel(script=says)
    return create_agent(model, [find_person], checkpointer=InMemorySaver(), middleware=middleware)


def streamed(agent: Any, thread: str) -> list[Any]:
    feed, config = {"messages": [("user", "Id of Ann")]}, {"configurable": {"thread_id": thread, "user_id": "u"}}
    return list(agent.stream(feed, config, stream_mode=["custom", "updates"]))


@pytest.mark.parametrize("events", [False, True])
def test_events_can_be_switched_off_alone_and_no_update_is_none(events: bool) -> None:
    with ToolMemory.ephemeral(reads={"find_*"}, events=events) as memory:
        agent = agent_with(memory, recall=True, suggest=True, planning=True, prefetch=True, tool_search=True)
        chunks = [chunk for number in range(12) for chunk in streamed(agent, str(number))]
        custom = [chunk for mode, chunk in chunks if mode == "custom"]
        assert any("toolmem" in chunk for chunk in custom) is events
        assert sum(chunk == {"type": "progress", "text": "Ann"} for chunk in custom) == 12
        assert all(isinstance(update, dict) for mode, chunk in chunks if mode == "updates" for update in chunk.values())
        assert set(agent.get_state({"configurable": {"thread_id": "0"}}).values) == {"messages"}
        assert memory.report().turns == 24
    with pytest.raises(ConfigurationError, match="`events` must be True or False"):
        ToolMemory.ephemeral(events="no")


class Heard(BaseCallbackHandler):
    """Counts the runs of models."""

    def __init__(self) -> None:
        self.models = 0

    def on_chat_model_start(self, *_: Any, **__: Any) -> None:
        self.models += 1


async def test_the_planners_words_are_no_event_of_the_run_and_tracers_see_them() -> None:
    planner = ScriptedChatModel(script=lambda _, __: AIMessage("PLANNED"))
    with ToolMemory.ephemeral(reads={"find_*"}) as memory:
        agent = agent_with(memory, shortcut=False, planning=SGASettings(model=planner))
        heard, said = Heard(), list[str]()
        for number in range(4):
            config: Any = {"configurable": {"thread_id": str(number)}, "callbacks": [heard]}
            feed = {"messages": [("user", "Id of Ann")]}
            events = [event async for event in agent.astream_events(feed, config, version="v2")]
            said += [str(event["data"]) for event in events if event["event"].startswith("on_chat_model")]
            memory.feedback(str(number), score=1.0)
            assert memory.flush()
        assert planner.calls
        assert said
        assert not any("PLANNED" in each for each in said)
        assert heard.models == 8 + len(planner.calls)
