"""The private hint: it is for one model call, and it never becomes part of the conversation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from pydantic import BaseModel, Field

from langgraph_toolmem.turn.hints import HINTS, has_hint, memory_prompt, merge_hints, new_hint, turn_of
from langgraph_toolmem.turn.shown import FRAME

HELLO = [HumanMessage("Hello", id="1")]


def texts(state: Any, **options: Any) -> list[str]:
    found = [message.text for message in memory_prompt(state, **options)]
    assert all(text.startswith(FRAME + "\n") for text in found)
    return [text.removeprefix(FRAME + "\n") for text in found]


def test_a_hint_is_read_at_the_point_it_is_for() -> None:
    state = {"messages": HELLO, **new_hint("sit", "Call search.", HELLO)}
    [message] = memory_prompt(state)
    assert isinstance(message, SystemMessage)
    assert message.text == f"{FRAME}\nCall search."
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
    assert texts({"messages": HELLO, HINTS: both}) == ["It was dark.\nCall read."]
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


# --- hints for a whole user turn ---

WORK = [AIMessage("Looking", id="2"), ToolMessage("found", tool_call_id="c", id="3")]


def turn_hint(messages: list[Any], text: str = "It was dark.") -> dict[str, Any]:
    return dict(new_hint("recall", text, messages, scope="turn"))


def test_a_turn_hint_holds_until_the_user_speaks_again() -> None:
    hint = turn_hint(HELLO)
    for messages in (HELLO, [*HELLO, *WORK], [*HELLO, *WORK, AIMessage("Done", id="4")]):
        assert texts({"messages": messages, **hint}) == ["It was dark."]
        assert has_hint({"messages": messages, **hint}, "recall")
    later = [*HELLO, *WORK, HumanMessage("And now?", id="5")]
    assert texts({"messages": later, **hint}) == []
    assert not has_hint({"messages": later, **hint}, "recall")


def test_that_there_is_nothing_to_say_is_a_hint_too() -> None:
    state = {"messages": HELLO, **turn_hint(HELLO, "")}
    assert has_hint(state, "recall")
    assert not has_hint(state, "sit")
    assert texts(state) == []


def test_has_hint_knows_the_other_scope_and_other_states() -> None:
    state = {"messages": HELLO, **new_hint("sit", "Call search.", HELLO)}
    assert has_hint(state, "sit")
    assert not has_hint({**state, "messages": [*HELLO, *WORK]}, "sit")
    assert has_hint({"chat": HELLO, **turn_hint(HELLO)}, "recall", messages_key="chat")
    assert not has_hint(HELLO, "recall")
    assert not has_hint({"messages": HELLO, HINTS: None}, "recall")


def test_hints_of_both_scopes_are_one_message() -> None:
    both = merge_hints(turn_hint(HELLO)[HINTS], new_hint("sit", "Call search.", HELLO)[HINTS])
    assert texts({"messages": HELLO, HINTS: both}) == ["It was dark.\nCall search."]
    assert texts({"messages": [*HELLO, *WORK], HINTS: both}) == ["It was dark."]


YES = {"role": "user", "content": "yes"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([HumanMessage("yes", id="1")], [HumanMessage("yes", id="2")]),
        ([HumanMessage("yes", id="1")], [HumanMessage("no", id="1")]),  # edited
        ([YES], [YES, {"role": "assistant", "content": "ok"}, YES]),
        ([("user", "yes")], [("user", "no")]),
        (["yes"], ["no"]),
        ([ChatMessage("yes", role="user")], [ChatMessage("no", role="user")]),
        ([HumanMessage([{"type": "text", "text": "a"}])], [HumanMessage([{"type": "text", "text": "b"}])]),
    ],
    ids=["ids", "edited", "dicts", "pairs", "texts", "roles", "blocks"],
)
def test_turns_are_told_apart_in_every_form_of_messages(one: list[Any], other: list[Any]) -> None:
    assert turn_of(one)
    assert turn_of(one) == turn_of([*one, ("ai", "hm")])
    assert turn_of(one) != turn_of(other)
    assert turn_of(other)


def test_trimming_and_summarising_do_not_end_a_turn() -> None:
    old = [HumanMessage("Good day", id="0"), AIMessage("Good day", id="00")]
    hint = turn_hint([*old, *HELLO])
    assert texts({"messages": [*HELLO, *WORK], **hint}) == ["It was dark."]
    summary = HumanMessage(
        "Here is a summary of the conversation to date: x", additional_kwargs={"lc_source": "summarization"}
    )
    assert turn_of([summary]) == ""
    assert texts({"messages": [summary, *WORK], **hint}) == ["It was dark."]
    assert texts({"messages": [summary, *WORK, HumanMessage("More", id="9")], **hint}) == []
    assert texts({"messages": [], **hint}) == []
