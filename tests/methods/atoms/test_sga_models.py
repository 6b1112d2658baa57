"""Atoms worded by a chat model: what of its answer is taken, when it is asked, and what happens without one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import histories as h
import pytest
from openai_server import OpenAIStubServer, make_chat_model
from typer.testing import CliRunner

from langgraph_toolmem import Atoms, ToolMemory
from langgraph_toolmem.atoms.atoms import Atom
from langgraph_toolmem.atoms.extract import Extracted, Extractor
from langgraph_toolmem.atoms.models import AtomWriter, Pattern, Typed, worded
from langgraph_toolmem.cli import app
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.testing import ScriptedChatModel

SPECS = read_tools([h.schema("weather", "place unit when", "stops:array") | {"description": "The weather of a place."}])
REQUEST = "What will it be like in Rome on 2024-05-01? Ask Kim (kim@x.org)"
ARGS = {"place": "Rome", "unit": "metric", "when": "2024-05-01", "stops": ["A1", "B2"]}
SAID = {
    "state": "A place and a day are known.",
    "goal": "find out what the sky will be like",
    "arguments": [{"path": "place", "type": "CITY"}, {"path": "unit", "type": ""}, {"path": "when", "type": "DAY"}],
}


def step() -> Extracted:
    run = h.run_of(h.user(REQUEST), h.call("weather", ARGS, {"sky": "clear"}))
    (found,) = Extractor(SPECS).steps(run)
    return found


def applied(**changes: Any) -> Atom:
    return worded(step(), Pattern.model_validate(SAID | changes))


@pytest.mark.parametrize("text", ["look up Rome", "call weather", "see 2024-05-01", "tell Kim", "to kim@x.org", "  "])
def test_a_text_with_a_value_or_a_tool_in_it_is_not_taken(text: str) -> None:
    atom = applied(goal=text, state=text)
    assert (atom.goal, atom.state) == (step().atom.goal, step().atom.state)
    assert atom.arguments["place"] == "<CITY>"


def test_a_value_that_was_taken_out_stays_out_and_names_of_types_are_mended() -> None:
    untouched = applied(arguments=[{"path": "place", "type": ""}, {"path": "no.such", "type": "X"}])
    assert untouched.arguments == step().atom.arguments
    said = [Typed(path="place", type="<big city!>"), Typed(path="unit", type="UNIT"), Typed(path="when", type="X" * 99)]
    atom = applied(arguments=said)
    assert [atom.arguments[name] for name in ("place", "unit", "when")] == ["<BIG_CITY>", "<UNIT>", "<DATE>"]


def test_an_answer_that_cannot_be_read_is_asked_for_once_more(caplog: pytest.LogCaptureFixture) -> None:
    model = ScriptedChatModel(script=["I cannot say Rome.", '{"state": 5}'])
    assert AtomWriter(model).words(step()) is None
    assert len(model.calls) == 2
    assert "model-free atom is kept" in caplog.text
    assert "Rome" not in caplog.text


# --- in the memory's background ---

TOOLS = [
    {**h.schema("find_order", "order_id"), "description": "Look an order up."},
    {**h.schema("send_mail", "to tone"), "description": "Send a mail to somebody."},
]
GOALS = {"order_id": "see what was ordered", "to": "let the customer know"}


def reply(request: dict[str, Any]) -> str:
    """A model that words goals, and takes the tone of a mail for a value of the day."""
    asked = request["messages"][-1]["content"]
    paths = re.findall(r"^(\w+) = ", asked, re.MULTILINE)
    types = [{"path": path, "type": {"tone": "TONE"}.get(path, "")} for path in paths]
    return json.dumps({"state": "An order is asked about.", "goal": GOALS[paths[0]], "arguments": types})


@pytest.fixture
def server() -> Iterator[OpenAIStubServer]:
    with OpenAIStubServer(reply) as started:
        yield started


def order(number: int) -> list[Any]:
    whom = f"c{number}@example.org"
    return h.history(
        h.user(f"Find order W{number} and mail the customer about it"),
        h.call("find_order", {"order_id": f"W{number}"}, {"order_id": f"W{number}", "email": whom}),
        h.call("send_mail", {"to": whom, "tone": "kind"}, "sent"),
        h.words(),
    )


def atoms(memory: ToolMemory) -> dict[str, Atom]:
    memory.flush()
    found = memory.atoms.all()
    assert len({atom.tool for atom in found}) == len(found)
    return {atom.tool: atom for atom in found}


def test_each_kind_of_step_is_asked_about_once(tmp_path: Path, server: OpenAIStubServer) -> None:
    with ToolMemory(tmp_path, tools=TOOLS, methods=[Atoms(keep=True, model=make_chat_model(server))]) as memory:
        memory.finish(order(1), thread_id="1", success=True)
        found = atoms(memory)
        assert (found["find_order"].goal, found["send_mail"].goal) == (GOALS["order_id"], GOALS["to"])
        assert found["find_order"].state == "An order is asked about."
        assert dict(found["send_mail"].arguments) == {"to": "<EMAIL>", "tone": "<TONE>"}
        assert len(server.requests) == 2
        memory.finish(order(2), thread_id="2", success=True)
        memory.finish(order(2), thread_id="2", success=True)
        assert {atom.visits for atom in atoms(memory).values()} == {2}
        assert len(server.requests) == 2
        hit = memory.atoms.search("let the customer know", slots={"EMAIL": "x@y.org"}, k=1)[0]
        assert hit.filled == {"to": "x@y.org", "tone": "<TONE>"}
        memory.feedback("1", score=0.0)
        assert {atom.visits for atom in atoms(memory).values()} == {1}
        memory.feedback("2", score=0.0)
        assert atoms(memory) == {}
        memory.feedback("2", score=1.0)
        assert atoms(memory)["send_mail"].arguments["tone"] == "<TONE>"
    with ToolMemory(tmp_path, tools=TOOLS, methods=[Atoms()]) as memory:
        assert atoms(memory)["find_order"].goal == GOALS["order_id"]


def test_while_the_model_is_away_atoms_are_there_without_it(tmp_path: Path, forked_checks: None) -> None:
    with OpenAIStubServer(reply) as gone:
        model = make_chat_model(gone, max_retries=0)
    with ToolMemory(tmp_path, tools=TOOLS, methods=[Atoms(keep=True, model=model)]) as memory:
        memory.finish(order(1), thread_id="1", success=True)
        hits = memory.atoms.search("find order <ID>", slots=["ORDER_ID"])
        assert {hit.tool for hit in hits} == {"find_order", "send_mail"}
    said = CliRunner().invoke(app, ["doctor", "--memory", str(tmp_path)]).stdout
    assert "wording: 1" in said
    assert "Atoms(model=...)" in said
    with OpenAIStubServer(reply) as again:  # the next process asks
        with ToolMemory(tmp_path, tools=TOOLS, methods=[Atoms(model=make_chat_model(again))]) as memory:
            assert memory.flush()
            assert atoms(memory)["find_order"].goal == GOALS["order_id"]
        assert len(again.requests) == 2
