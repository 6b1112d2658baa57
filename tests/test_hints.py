"""The private hint: it is for one model call, and it never becomes part of the conversation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from langgraph_toolmem.hints import HINTS, MemoryState, memory_prompt, merge_hints, new_hint
from langgraph_toolmem.nodes import HintState

HELLO = [HumanMessage("Hello", id="1")]


def texts(state: Any, **options: Any) -> list[str]:
    return [message.text for message in memory_prompt(state, **options)]


def test_a_hint_is_read_at_the_point_it_is_for() -> None:
    state = {"messages": HELLO, **new_hint("sit", "Call search.", HELLO)}
    [message] = memory_prompt(state)
    assert isinstance(message, SystemMessage)
    assert message.text == "Call search."
    assert texts({**state, "messages": [*HELLO, AIMessage("Hi", id="2")]}) == []
    assert texts({**state, "messages": [HumanMessage("Hello", id="other")]}) == []
    assert texts({**state, "messages": []}) == []


def test_messages_without_ids_are_told_apart_by_what_they_say() -> None:
    """A list that is trimmed to a length stays as long as it was."""
    for one, other in (
        ([HumanMessage("a")], [HumanMessage("b")]),
        ([{"role": "user", "content": "a"}], [{"role": "user", "content": "b"}]),
    ):
        hint = new_hint("sit", "Call search.", one)
        assert texts({"messages": one, **hint}) == ["Call search."]
        assert texts({"messages": other, **hint}) == []


def test_hints_of_several_roles_are_one_message() -> None:
    both = merge_hints(new_hint("sit", "Call search.", HELLO)[HINTS], new_hint("recall", "It was dark.", HELLO)[HINTS])
    both = merge_hints(both, new_hint("sit", "Call read.", HELLO)[HINTS])
    assert texts({"messages": HELLO, HINTS: both}) == ["It was dark.\n\nCall read."]
    assert texts({"messages": HELLO, HINTS: merge_hints(both, new_hint("sit", "", HELLO)[HINTS])}) == ["It was dark."]
    assert merge_hints(None, None) == {}


@dataclass
class AsDataclass:
    messages: list[AnyMessage] = field(default_factory=list)
    toolmem_hints: dict[str, Any] = field(default_factory=dict)


class AsModel(BaseModel):
    messages: list[Any] = Field(default_factory=list)
    toolmem_hints: dict[str, Any] | None = None


@pytest.mark.parametrize("kind", [AsDataclass, AsModel, dict])
def test_any_kind_of_state(kind: Any) -> None:
    assert texts(kind(messages=HELLO, **new_hint("sit", "Call search.", HELLO))) == ["Call search."]
    assert texts(kind(messages=HELLO)) == []


def test_other_keys_and_states_without_hints() -> None:
    hint = new_hint("sit", "Call search.", HELLO)
    assert texts({"chat": HELLO, **hint}, messages_key="chat") == ["Call search."]
    assert texts({"messages": HELLO, HINTS: None}) == []
    assert texts(HELLO) == []
    assert texts(()) == []


def test_a_state_of_ones_own_takes_the_key_and_a_checkpoint_keeps_it() -> None:
    class Own(HintState):
        messages: list[Any]

    class Given(TypedDict):
        messages: list[Any]

    def hints(state: Own) -> Any:
        return new_hint("sit", "Call search.", state["messages"])

    seen: list[list[str]] = []

    def model(state: Own) -> Any:
        seen.append(texts(state))
        return {"messages": [*state["messages"], AIMessage("Hi", id="2")]}

    builder = StateGraph(Own, output_schema=Given)
    builder.add_node("hints", hints)
    builder.add_node("model", model)
    builder.add_edge(START, "hints")
    builder.add_edge("hints", "model")
    builder.add_edge("model", END)
    graph = builder.compile(checkpointer=InMemorySaver(), interrupt_before=["model"])
    config: Any = {"configurable": {"thread_id": "t"}}
    graph.invoke({"messages": HELLO}, config)
    answer = graph.invoke(None, config)
    assert seen == [["Call search."]]
    assert set(answer) == {"messages"}
    assert texts(graph.get_state(config).values) == []  # the model has spoken since


def test_memory_state_is_a_messages_state() -> None:
    assert {"messages", HINTS} == set(MemoryState.__annotations__) | set(HintState.__annotations__)
