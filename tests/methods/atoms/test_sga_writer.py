"""Atoms worded by a chat model where they are made: in the memory's background, on import, in a discovery."""

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
from langgraph_toolmem.atoms.writer import AtomWriter
from langgraph_toolmem.cli import app

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
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIStubServer]:
    with OpenAIStubServer(reply) as started:
        monkeypatch.setenv("OPENAI_BASE_URL", started.url)
        monkeypatch.setenv("OPENAI_API_KEY", "x")
        yield started


def away() -> Any:
    """A model whose server does not answer."""
    with OpenAIStubServer(reply) as gone:
        return make_chat_model(gone, max_retries=0)


def order(number: int) -> list[Any]:
    whom = f"c{number}@example.org"
    return h.history(
        h.user(f"Find order W{number} and mail the customer about it"),
        h.call("find_order", {"order_id": f"W{number}"}, {"order_id": f"W{number}", "email": whom}),
        h.call("send_mail", {"to": whom, "tone": "kind"}, "sent"),
        h.words(),
    )


def atoms(memory: ToolMemory, **how: Any) -> dict[str, Atom]:
    memory.flush()
    found = memory.atoms.all(**how)
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
        found = atoms(memory)
        assert {atom.visits for atom in found.values()} == {2}
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


def test_while_the_model_is_away_atoms_are_there_without_it(tmp_path: Path) -> None:
    model = away()
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


def test_a_bound_and_errors_leave_the_model_free_atom(server: OpenAIStubServer) -> None:
    from langgraph_toolmem.atoms.extract import Extractor
    from langgraph_toolmem.runs.tools import read_tools
    from langgraph_toolmem.runs.trajectory import parse_run

    steps = Extractor(read_tools(TOOLS)).steps(parse_run(order(1)))
    assert [(each.step.tool, each.request[:13]) for each in steps] == [
        ("find_order", "Find order W1"),
        ("send_mail", "Find order W1"),
    ]
    writer = AtomWriter(make_chat_model(server, max_retries=0), most=1)
    assert [writer.write(each).goal == each.atom.goal for each in steps] == [False, True]
    assert writer.calls == 1
    assert AtomWriter(away()).write(steps[0]) == steps[0].atom
