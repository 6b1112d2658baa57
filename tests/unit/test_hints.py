"""Hints: for one model call or one user turn, in any state, never part of the conversation; and the memo of a step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from pydantic import BaseModel, Field

from langgraph_toolmem.base.caches import KeptTexts
from langgraph_toolmem.core.users import Owner
from langgraph_toolmem.turn import step
from langgraph_toolmem.turn.hints import (
    FRAME,
    HINTS,
    Line,
    Scope,
    StepOutput,
    composed,
    merge_hints,
    messages_with_hints,
    new_hint,
    turn_of,
)
from langgraph_toolmem.turn.step import Call

HELLO = [HumanMessage("Hello", id="1")]
WORK = [AIMessage("Looking", id="2"), ToolMessage("found", tool_call_id="c", id="3")]


def hint(messages: list[Any], text: str = "Call search.", role: str = "sit", scope: Scope = "call") -> dict[str, Any]:
    return new_hint(role, StepOutput(text), messages, scope)


def texts(state: Any, **options: Any) -> list[str]:
    hints = [each.text for each in messages_with_hints(state, **options) if isinstance(each, SystemMessage)]
    assert all(each.startswith(FRAME + "\n") for each in hints)
    return [each.removeprefix(FRAME + "\n") for each in hints]


@pytest.mark.parametrize(
    ("now", "shown"),
    [
        (HELLO, True),
        ([*HELLO, *WORK], False),
        ([HumanMessage("Hello", id="other")], False),
        ([], False),
    ],
)
def test_a_hint_is_read_at_the_point_it_is_for(now: list[Any], shown: bool) -> None:
    assert texts({"messages": now, **hint(HELLO)}) == (["Call search."] if shown else [])


def test_messages_without_ids_are_told_apart_by_their_content() -> None:
    """A list that is trimmed to a length stays as long as it was."""
    for make in (HumanMessage, lambda text: {"role": "user", "content": text}):
        made = hint([make("a")])
        assert texts({"messages": [make("a")], **made}) == ["Call search."]
        assert texts({"messages": [make("b")], **made}) == []


def test_hints_of_several_roles_and_scopes_are_one_message() -> None:
    both = merge_hints(hint(HELLO)[HINTS], hint(HELLO, "It was dark.", "recall", "turn")[HINTS])
    assert texts({"messages": HELLO, HINTS: both}) == ["It was dark.\nCall search."]
    assert texts({"messages": [*HELLO, *WORK], HINTS: both}) == ["It was dark."]
    assert texts({"messages": HELLO, HINTS: merge_hints(both, hint(HELLO, "")[HINTS])}) == ["It was dark."]
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
    assert texts(kind(messages=HELLO, **hint(HELLO))) == ["Call search."]
    assert texts(kind(messages=HELLO)) == texts(HELLO) == []
    assert texts({"chat": HELLO, **hint(HELLO)}, messages_key="chat") == ["Call search."]


SUMMARY = HumanMessage("Here is a summary: x", additional_kwargs={"lc_source": "summarization"})


@pytest.mark.parametrize(
    ("now", "shown"),
    [
        (HELLO, True),
        ([*HELLO, *WORK, AIMessage("Done", id="4")], True),
        ([*HELLO, *WORK, HumanMessage("And now?", id="5")], False),
        ([SUMMARY, *WORK], True),
        ([SUMMARY, *WORK, HumanMessage("More", id="9")], False),
        ([], False),
    ],
)
def test_a_turn_hint_holds_until_the_user_speaks_again(now: list[Any], shown: bool) -> None:
    made = hint([HumanMessage("Good day", id="0"), AIMessage("Good day", id="00"), *HELLO], scope="turn")
    assert texts({"messages": now, **made}) == (["Call search."] if shown else [])


YES = {"role": "user", "content": "yes"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([HumanMessage("yes", id="1")], [HumanMessage("yes", id="2")]),
        ([HumanMessage("yes", id="1")], [HumanMessage("no", id="1")]),  # edited
        ([YES], [YES, {"role": "assistant", "content": "ok"}, YES]),
        ([("user", "yes")], [("user", "no")]),
        (["yes"], ["no"]),
        ([HumanMessage([{"type": "text", "text": "a"}])], [HumanMessage([{"type": "text", "text": "b"}])]),
    ],
    ids=["ids", "edited", "dicts", "pairs", "texts", "blocks"],
)
def test_turns_are_told_apart_in_every_form_of_messages(one: list[Any], other: list[Any]) -> None:
    assert turn_of(one)
    assert turn_of(one) == turn_of([*one, ("ai", "hm")])
    assert turn_of(one) != turn_of(other)
    assert turn_of(other)
    assert turn_of([SUMMARY]) == ""


def test_hints_share_one_budget_the_most_confident_first_and_a_tool_is_named_once() -> None:
    long, sure = [Line(f"- {'x' * 300}{n}") for n in range(9)], [Line("- a: yes", "a"), Line("- b: yes", "b")]
    outputs = [
        StepOutput(lines=long, head="Long:", sure=0.1),
        StepOutput(lines=[Line("- a: no", "a"), Line("- c", "c")], head="Less:", sure=0.5),
        StepOutput(lines=sure, head="Sure:", sure=0.9),
    ]
    lines = composed(outputs, HELLO).splitlines()
    assert lines[:7] == [FRAME, "Sure:", "- a: yes", "- b: yes", "Less:", "- c", "Long:"]
    assert len(lines) == 7 + 4
    later = composed(outputs, [*HELLO, *WORK]).splitlines()
    assert later == [FRAME, "Sure:", "- a: yes", "- b: yes", "Less:", "- c", "Long:", long[0].text]
    assert composed([StepOutput(), StepOutput(head="Alone:")], HELLO) == ""


def test_a_result_is_kept_for_the_turns_used_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "MAX_TURNS", 2)
    texts = KeptTexts()
    kept = step.Memo("turn", texts)

    def put(thread: str | None, text: str, found: str, *more: Any) -> Any:
        return kept.put(Call([HumanMessage(text), *more], Owner(thread)), found, texts.purges).result

    def get(thread: str | None, text: str, *more: Any, user: str | None = None) -> Any:
        found = kept.get(Call([HumanMessage(text), *more], Owner(thread, user)))
        return None if found is None else found.result

    put("a", "x", "ax")
    assert put("a", "x", "another") == "ax"
    put("b", "x", "bx")
    assert get("a", "x") == "ax"
    put("c", "x", "")
    assert [get(thread, "x") for thread in "abc"] == ["ax", None, ""]
    assert get("a", "x", user="ann") is get("a", "y") is None
    assert kept.get(Call([SUMMARY], Owner("a"))).result == "ax"  # type: ignore[union-attr]
    assert kept.get(Call([SUMMARY])) is None
    for found in ("one", "two"):
        put(None, "x", found)
        assert get(None, "x") is None  # it begins: another run
        assert get(None, "x", AIMessage("hm", id="1")) == found
        assert get(None, "x", AIMessage("hm")) is None  # perhaps of another conversation


def test_nothing_is_kept_of_a_result_begun_before_somebody_was_forgotten() -> None:
    texts = KeptTexts()
    kept, asked = step.Memo("turn", texts), Call([HumanMessage("x", id="1")], Owner("a"))
    kept.put(asked, "before", texts.purges)
    begun = texts.purges
    texts.forget()
    assert kept.get(asked) is None
    kept.put(asked, "of the forgotten", begun)
    assert kept.get(asked) is None
