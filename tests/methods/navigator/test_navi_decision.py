"""Decisions: what is forgiven, what is not, and what is done first."""

from __future__ import annotations

from typing import Any

import pytest
from navi_script import ask, do, say, seek

from langgraph_toolmem.navigator.decide.decision import MAX_INTENTS, Decision, due, problem_of


def made(*parts: dict[str, Any]) -> Decision:
    return Decision.model_validate({"sub_intents": list(parts)})


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
        ([say("x")] * (MAX_INTENTS + 1), "at most"),
    ],
    ids=["none", "no answer", "no question", "no recall", "no api", "list", "broken", "many"],
)
def test_what_is_useless_is_refused_with_the_reason(parts: list[dict[str, Any]], why: str) -> None:
    assert why in problem_of(made(*parts))
