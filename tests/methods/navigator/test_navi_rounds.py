"""Decisions and rounds by hand: what is forgiven, what may be called, what is observed, what a failure leaves."""

from __future__ import annotations

import itertools
from typing import Any

import histories as h
import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from navi_script import ask, do, say, seek, shown

from langgraph_toolmem.navigator.decide.decision import (
    DECIDER_LIMITS,
    NaviDecision,
    NaviRecord,
    Retrieved,
    closing_messages,
    decider_messages,
    due,
    new_record,
    problem_of,
    request_at,
)
from langgraph_toolmem.navigator.decide.rounds import (
    decided,
    observed,
)
from langgraph_toolmem.runs.tools import read_tools

SPECS = read_tools([h.schema("a", "x", "n:integer"), h.schema("b", "y"), h.schema("c", "z"), h.schema("d", "y")])


def made(*parts: dict[str, Any]) -> NaviDecision:
    return NaviDecision.model_validate({"sub_intents": list(parts)})


def record(*candidates: str, **changes: Any) -> NaviRecord:
    made: Any = {**new_record("do it"), "candidates": list(candidates or SPECS), **changes}
    return made  # type: ignore[no-any-return]


def round_(before: NaviRecord, *parts: dict[str, Any]) -> NaviRecord:
    ids = itertools.count(len(before["outcomes"]))
    return decided(before, made(*parts), SPECS, lambda: f"call-{next(ids)}")


def answered(before: NaviRecord, *texts: str, failed: bool = False) -> NaviRecord:
    status: Any = "error" if failed else "success"
    calls = before["pending"]["calls"]
    answers = [ToolMessage(t, tool_call_id=c["id"], status=status) for t, c in zip(texts, calls, strict=True)]
    return observed(before, answers)[0]


def notes(after: NaviRecord) -> str:
    return "\n".join(after["history"][-1]["observed"])


def test_a_model_may_leave_out_what_is_empty_and_give_parameters_as_an_object() -> None:
    part = made({"action": " Execute", "api": "f", "parameters": {"a": 1}, "text": None}).sub_intents[0]
    assert (part.action, part.rank, part.text, part.arguments) == ("execute", 1, "", {"a": 1})
    assert made({"action": "execute", "api": "f", "parameters": ""}).sub_intents[0].arguments == {}


def test_the_lowest_rank_is_done_first_and_answers_up_to_it_are_noted() -> None:
    decision = made(say("late", 3), do("b", 2), say("known", 1), do("c", 2), do("d", 4))
    now, later = due(decision)
    assert [(part.action, part.rank) for part in now] == [("execute", 2), ("answer", 1), ("execute", 2)]
    assert [part.rank for part in later] == [3, 4]
    assert not decision.final
    final = made(say("b", 2), say("a", 1), say("a", 3))
    assert final.final
    assert final.answer == "a\n\nb"
    assert due(final) == (final.sub_intents, [])


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([], "empty"),
        ([say("")], "answer needs text"),
        ([ask(" ")], "clarify needs text"),
        ([seek("")], "recall"),
        ([do("")], "name of an api"),
        ([{**do("f"), "parameters": "[1]"}], "JSON object"),
        ([{**do("f"), "parameters": "{"}], "JSON object"),
        ([say("x")] * (DECIDER_LIMITS.intents + 1), "at most"),
    ],
    ids=["none", "no answer", "no question", "no recall", "no api", "list", "broken", "many"],
)
def test_what_is_useless_is_refused_with_the_reason(parts: list[dict[str, Any]], why: str) -> None:
    assert why in problem_of(made(*parts))


def test_calls_of_one_rank_go_together_and_the_rest_waits() -> None:
    after = round_(record(), do("a", x="1"), do("b", y="2"), do("c", 2, z="3"), do("a", x="1"))
    assert [(c["tool"], c["args"]) for c in after["pending"]["calls"]] == [("a", {"x": "1"}), ("b", {"y": "2"})]
    assert len({c["id"] for c in after["pending"]["calls"]}) == 2
    assert after["waiting"] == ["[2] : execute c"]
    assert (after["decisions"], after["idle"]) == (1, 0)


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (do("a", y="1"), "missing parameter 'x'. Its parameters: x, n."),
        (do("a", x="1", q="1"), "unknown parameter 'q'"),
        (do("a", x="1", n="many"), "parameter 'n'"),
        (do("e"), "e was not called: it is no candidate API"),
        (do("c", z="1"), "c was not called: it is no candidate API"),
    ],
    ids=["missing", "unknown", "type", "no such tool", "no candidate"],
)
def test_a_call_that_cannot_be_right_is_an_observation(part: dict[str, Any], why: str) -> None:
    after = round_(record("a", "b"), part)
    assert after["pending"]["calls"] == []
    assert why in notes(after)
    assert after["idle"] == 1


def test_a_search_that_brings_nothing_new_is_no_progress() -> None:
    old = Retrieved(query="r", chains=[], tools=["a"])
    after = record("a", "b")
    for number in (1, 2):
        after, _ = observed(round_(after, seek(str(number))), [], [old])
        assert "found nothing new" in notes(after)
        assert after["idle"] == number
    assert "searched for before" in notes(round_(after, seek("r")))
    fresh: Retrieved = {**old, "query": "s", "tools": ["c"]}
    after, _ = observed(round_(after, seek("s")), [], [fresh])
    assert after["candidates"] == ["c", "a", "b"]
    assert after["idle"] == 0


def test_the_prompt_shows_the_last_three_pairs_and_the_current_observation() -> None:
    now = record()
    for n in range(6):
        now = answered(round_(now, do("a", x=str(n))), f"result {n}")
    messages = decider_messages(now, SPECS, [HumanMessage("earlier"), HumanMessage("do it")], extra="Today is Monday.")
    text = messages[1].text
    assert text.count("## Before") == 3
    assert "Today is Monday." in messages[0].text
    parts = shown(messages)
    assert parts["Current observation"] == 'a({"x": "5"}) -> ok: result 5'
    assert all(f"result {n}" in parts["Calls that were made"] for n in range(6))
    assert parts["Earlier in the conversation"] == "User: earlier"
    assert parts["Request"] == "do it"


@pytest.mark.slow
def test_a_prompt_has_a_bound_whatever_comes_back() -> None:
    huge, now = "z" * 100_000, record("a", "b", "c", "d")
    for turn in range(5):
        calls = [do("a", x=f"{huge}{turn}{n}") for n in range(20)]
        now = round_(now, *calls, ask(huge), say(huge), {**do("b", 2, y=huge), "intent": huge, "analysis": huge})
        answers = [ToolMessage(huge, tool_call_id=call["id"]) for call in now["pending"]["calls"]]
        now, _ = observed(now, answers, [], [huge])
    messages = [HumanMessage(huge), AIMessage(huge), HumanMessage(huge), AIMessage(huge)]
    texts = [decider_messages(now, SPECS, messages)[1].text, closing_messages(now, messages, "why")[1].text]
    assert all(len(text) < 220_000 for text in texts), [len(text) for text in texts]


def test_what_only_reads_may_be_read_again_after_a_change() -> None:
    specs = read_tools([h.reading("list_items", "x"), h.reading("get_item", "x"), h.schema("add_item", "x")])

    def step(before: NaviRecord, part: dict[str, Any], *texts: str, failed: bool = False) -> NaviRecord:
        decision = NaviDecision.model_validate({"sub_intents": [part]})
        ids = (f"{before['decisions']}-{n}" for n in itertools.count())
        after = decided(before, decision, specs, lambda: next(ids))
        assert len(after["pending"]["calls"]) == len(texts), notes(after)
        return answered(after, *texts, failed=failed) if texts else after

    now = step(record(*specs), do("list_items", x="1"), "a")
    now = step(step(now, do("list_items", x="1")), do("get_item", x="1"), "a")
    now = step(now, do("list_items", x="1"))
    now = step(now, do("add_item", x="b"), "added")
    now = step(now, do("list_items", x="1"), "a, b")
    now = step(now, do("list_items", x="1"))
    assert "-> " not in notes(now)
    assert "ok: a, b" in notes(now), "it is the latest outcome that is told"
    step(step(now, do("add_item", x="c"), "added"), do("add_item", x="b"))
    failing = step(record(*specs), do("list_items", x="1"), "a")
    step(step(failing, do("add_item", x="b"), "no", failed=True), do("list_items", x="1"))


def test_the_request_is_the_users_latest_words_or_else_the_latest_there_are() -> None:
    summary = HumanMessage("what was", additional_kwargs={"lc_source": "summarization"})
    user, assistant, answer = HumanMessage("do it"), AIMessage("a task"), ToolMessage("result", tool_call_id="1")
    assert request_at([user, summary, assistant]) == 0
    assert request_at([summary, assistant]) == 0
    assert request_at([SystemMessage("be kind"), assistant, AIMessage(""), answer]) == 1
    assert request_at([AIMessage("")]) is None
