from __future__ import annotations

import json
from typing import Any

import pytest
from openai_server import OpenAIStubServer, make_chat_model

from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.entries.entry import ENTRY_LIMITS, Critique, Entry, EntryCall, bounded, critique, entry_id
from langgraph_toolmem.runs.tools import read_tools

TOOLS = read_tools(
    [
        {
            "name": "mail.send",
            "description": "Sends a mail.\n  At once.",
            "parameters": {
                "type": "object",
                "properties": {"to": {"type": "string"}, "at": {"type": ["string", "null"]}},
                "required": ["to"],
            },
        },
        {"name": "people.find", "description": "Finds people.", "parameters": {"type": "object", "properties": {}}},
    ]
)
SAID = {"went_wrong": "The address was invented.", "call": 2, "instead": "Take the address from people.find."}


def entry(name: str = "1", **fields: Any) -> Entry:
    run = digest("run", name)
    fields.setdefault("query", "Mail the report to Ann")
    return Entry(entry_id(run), run, **{"calls": (), "score": 0.0, **fields})


FAILED = entry(
    calls=(
        EntryCall("people.find", {"name": "Ann"}, "ok", "[]"),
        EntryCall("mail.send", {"to": "ann@example.org"}, "failed", "unknown address"),
    ),
    comment="She never got it.",
)


def prompt(server: OpenAIStubServer) -> tuple[str, str]:
    system, human = server.requests[-1]["messages"]
    return system["content"], human["content"]


def test_a_model_says_what_went_wrong_and_reads_all_it_needs() -> None:
    similar = [
        entry("2", query="Mail Ben", score=1.0, calls=(EntryCall("people.find", {"name": "Ben"}, "ok"),)),
        entry("3", query="Mail Cleo", score=0.0, comment="no", critique="Look her up first."),
        entry("4", query="Mail Dora", score=None),
    ]
    with OpenAIStubServer(lambda request: json.dumps(SAID)) as server:
        found = critique(make_chat_model(server), FAILED, TOOLS, similar)
        system, human = prompt(server)
        assert server.requests[-1]["response_format"]["type"] == "json_schema"
    assert found == Critique(**SAID)
    assert found.text(FAILED) == (
        "What went wrong: The address was invented.\n"
        "Where: call 2, mail.send.\n"
        "Instead: Take the address from people.find."
    )
    assert found.blamed(FAILED) == "mail.send"
    assert "there is a mistake" in system
    for word in ("order", "invented", "wrong value", "nor from a tool", "times", "unless", "contradict", "short"):
        assert word in system
    assert "Mail the report to Ann" in human
    assert "She never got it." in human
    assert '1. people.find({"name": "Ann"}) [ok] → []' in human
    assert '2. mail.send({"to": "ann@example.org"}) [failed] → unknown address' in human
    assert "- mail.send(to: string, at?: string): Sends a mail. At once." in human
    assert '- "Mail Ben" (went well). Calls: people.find(name="Ben")' in human
    assert "Look her up first." in human
    assert '"Mail Dora" (not judged)' in human


@pytest.mark.parametrize("answer", ['{"went_wrong": " ", "call": 0, "instead": ""}', "I think it went fine."])
def test_an_answer_that_is_no_critique_is_an_error(answer: str) -> None:
    with OpenAIStubServer(lambda request: answer) as server, pytest.raises(InputError, match="no critique"):
        critique(make_chat_model(server), FAILED, TOOLS)


def test_lines_are_cut_before_they_are_left_out() -> None:
    assert bounded(["a", "b"]) == "a\nb"
    cut = bounded(["x" * 5000] * 4, 2000)
    assert len(cut) <= 2000
    assert cut.count("cut from 5000") == 4
    fewer = bounded([f"{n} " + "x" * 500 for n in range(100)], 2000)
    assert len(fewer) <= 2000
    assert fewer.startswith("0 ")
    assert "\n99 " in fewer
    assert "lines left out" in fewer


def test_a_critique_is_short_and_blames_only_what_is_there() -> None:
    long = Critique(went_wrong="a\n\n b " * 500, call=99, instead="c " * 500)
    text = long.text(FAILED)
    assert len(text) <= ENTRY_LIMITS.critique
    assert "Where" not in text
    assert long.blamed(FAILED) == ""
    assert len(text.splitlines()) == 2
    assert Critique(went_wrong="", call=0, instead="Do it.").text(FAILED) == "Instead: Do it."
    assert Critique(went_wrong="x", call=-1, instead="").blamed(FAILED) == ""
