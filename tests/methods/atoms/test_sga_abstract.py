"""Atoms worded by a chat model: what of its answer is taken, and what happens without one."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from histories import atoms_of, call, run_of, schema, user
from openai_server import OpenAIStubServer, make_chat_model

from langgraph_toolmem.atoms.abstract import Pattern, Typed, abstracted, applied
from langgraph_toolmem.atoms.atoms import Atom
from langgraph_toolmem.runs.run import ExecutedCall, Turn
from langgraph_toolmem.runs.tools import read_tools

SPECS = read_tools([schema("weather", "place unit when", "stops:array") | {"description": "The weather of a place."}])
REQUEST = "What will it be like in Rome on 2024-05-01?"
ARGS = {"place": "Rome", "unit": "metric", "when": "2024-05-01", "stops": ["A1", "B2"]}
RUN = run_of(user(REQUEST), call("weather", ARGS, {"sky": "clear"}))
SAID = {
    "state": "A place and a day are known.",
    "goal": "find out what the sky will be like",
    "arguments": [{"path": "place", "type": "CITY"}, {"path": "unit", "type": ""}, {"path": "when", "type": "DATE"}],
}


def step() -> ExecutedCall:
    (turn,) = (event for event in RUN.events if isinstance(event, Turn))
    return turn.steps[0]


def draft() -> Atom:
    (atom,) = atoms_of(RUN, SPECS)
    return atom


def answer(**changes: Any) -> Pattern:
    return Pattern.model_validate(SAID | changes)


@pytest.mark.slow
def test_the_model_words_state_and_goal_and_names_the_slots():
    with OpenAIStubServer(lambda request: json.dumps(SAID)) as server:
        atom = abstracted(make_chat_model(server), draft(), step(), request=REQUEST, known=["NAME", "DATE"])
        (request,) = server.requests
    system, human = (message["content"] for message in request["messages"])
    assert request["response_format"]["type"] == "json_schema"
    assert (atom.state, atom.goal) == (SAID["state"], SAID["goal"])
    assert atom.arguments == {
        "place": "<CITY>",
        "unit": "metric",
        "when": "<DATE>",
        "stops": draft().arguments["stops"],
    }
    assert (atom.tool, atom.about, atom.sources) == ("weather", "The weather of a place.", ("r",))
    assert atom.id != draft().id
    assert "never an instruction" in system
    for said in (REQUEST, "NAME, DATE", 'place = "Rome"', "stops[] = ", "The weather of a place."):
        assert said in human


def test_what_must_be_known_keeps_the_name_under_which_it_is_known():
    assert draft().required_slots == ("DATE",)
    atom = applied(
        answer(arguments=[{"path": "when", "type": "DAY"}, {"path": "place", "type": "CITY"}]), draft(), step()
    )
    assert atom.required_slots == ("DATE",)
    assert (atom.arguments["when"], atom.arguments["place"]) == ("<DATE>", "<CITY>")


@pytest.mark.parametrize("text", ["look up Rome", "call weather", "see 2024-05-01", "  "])
def test_a_text_with_a_value_or_a_tool_in_it_is_not_taken(text: str):
    atom = applied(answer(goal=text, state=text), draft(), step())
    assert (atom.goal, atom.state) == (draft().goal, draft().state)
    assert atom.arguments["place"] == "<CITY>"


def test_a_value_that_was_taken_out_stays_out_whatever_the_model_says():
    atom = applied(answer(arguments=[{"path": "place", "type": ""}, {"path": "no.such", "type": "X"}]), draft(), step())
    assert atom.arguments == draft().arguments


def test_names_of_types_are_mended():
    said = [Typed(path="place", type="<big city!>"), Typed(path="unit", type="UNIT"), Typed(path="when", type="X" * 99)]
    atom = applied(answer(arguments=said), draft(), step())
    assert atom.arguments["place"] == "<BIG_CITY>"
    assert atom.arguments["unit"] == "<UNIT>"
    assert atom.arguments["when"] == "<DATE>"


@pytest.mark.parametrize("reply", ["I cannot say.", '{"state": 5}', ""])
def test_an_answer_that_does_not_parse_leaves_the_atom_as_it_is(reply: str, caplog: pytest.LogCaptureFixture):
    with OpenAIStubServer(lambda request: reply) as server, caplog.at_level(logging.WARNING):
        assert abstracted(make_chat_model(server), draft(), step(), request=REQUEST) == draft()
    assert "model-free atom is kept" in caplog.text or reply == ""
    assert "Rome" not in caplog.text
