"""Which requests are asked for, what the model is told, and which of its requests are taken."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from langgraph_toolmem.offline.coldstart import (
    BATCH,
    Budget,
    InventedQuery,
    Spending,
    Wanted,
    choose,
    invent,
    what_next,
)
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.testing import OpenAIStubServer
from langgraph_toolmem.testing.server import make_chat_model

TOOLS = read_tools(
    [
        {"name": name, "description": about, "parameters": {"type": "object", "properties": {}}}
        for name, about in [
            ("find_person", "Finds a colleague."),
            ("sendEmail", "Sends an e-mail."),
            ("search", "Searches the files."),
            ("book_room", "Books a room."),
        ]
    ]
)


def invented(text: str, *tools: str) -> InventedQuery:
    return InventedQuery(text=text, tools=list(tools or ("find_person",)))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Search the files for last year's budget", ""),  # a plain word
        ("Ask ann@example.com whether room [4] is free", ""),
        ("Book the room for 3 people <ann@example.com>", ""),
        ("Please use find_person to get me Ann's number", "names a tool"),
        ("Can you FIND_PERSON Ann Lee for me?", "names a tool"),
        ("Let sendEmail write to Ann about lunch", "names a tool"),
        ("Use the search tool for last year's budget", "names a tool"),
        ("Call `search` for last year's budget", "names a tool"),
        ("Run search(budget) for me right now", "names a tool"),
        ("Write to [recipient] that I am late", "holds a placeholder"),
        ("Write to <name> that I am late today", "holds a placeholder"),
        ("Write to {person} that I am late today", "holds a placeholder"),
        ("Write to XXX that I am late today", "holds a placeholder"),
        ("Ann?", "too short or too long"),
        ("Ann " * 300, "too short or too long"),
    ],
)
def test_what_nobody_would_write_is_left_out(text: str, why: str) -> None:
    found = choose([invented(text)], TOOLS, [])
    assert (len(found[0]), found[1]) == ((0, Counter({why: 1})) if why else (1, Counter()))


def test_tools_that_there_are_not_are_taken_off_and_none_left_is_no_request() -> None:
    found = choose(
        [invented("Who is Ann Lee's manager?", "find_person", "fly", "find_person"), invented("Fly me to Rome", "fly")],
        TOOLS,
        [],
    )
    assert found[0] == [InventedQuery(text="Who is Ann Lee's manager?", tools=["find_person"])]
    assert found[1] == Counter({"needs no tool there is": 1})


def test_near_duplicates_are_left_out_of_one_answer_and_of_what_is_known() -> None:
    texts = [
        "Book a table for two at Luigi's tomorrow at 7pm",
        "Please book a table for 2 at Luigi's tomorrow at 7 pm",
        "Please   delete the file\ncalled notes.txt",
        "Cancel order 18",
    ]
    found = choose(map(invented, texts), TOOLS, ["Delete the file notes.txt", "Cancel order 17"])
    assert [each.text for each in found[0]] == [texts[0], texts[3]]
    assert found[1] == Counter({"nearly repeats another": 2})


def test_every_tool_comes_up_and_the_kinds_have_their_shares() -> None:
    more = [{"name": f"tool_{n}", "description": f"Does {n}.", "parameters": {"type": "object"}} for n in range(15)]
    tools = {**TOOLS, **read_tools(more)}
    known: list[InventedQuery] = []
    kinds: list[str] = []
    while len(known) < 60:
        wanted = what_next(known, tools, missing=60 - len(known), several=0.25, rng=random.Random(len(known)))
        assert wanted.count == len(wanted.tools) <= BATCH
        kinds.append(wanted.kind)
        for number, name in enumerate(wanted.tools):
            also = ("find_person",) if wanted.kind == "several" else ()
            known.append(invented(f"{len(known)} {number}", name, *also))
    assert {name for each in known for name in each.tools} == set(tools)
    assert sum(len(each.tools) > 1 for each in known) / len(known) == pytest.approx(0.25, abs=0.1)


def test_what_comes_next_depends_on_the_seed_alone() -> None:
    def drawn(seed: int) -> Wanted:
        return what_next([], TOOLS, missing=2, several=0.5, rng=random.Random(seed))

    assert drawn(1) == drawn(1)
    assert len({drawn(seed).tools for seed in range(20)}) > 5
    assert what_next([], TOOLS, missing=2, several=0.0, rng=random.Random(0)).kind == "one"
    one = {"search": TOOLS["search"]}
    assert what_next([], one, missing=2, several=1.0, rng=random.Random(0)).kind == "one"


def test_a_model_invents_through_structured_output() -> None:
    answers = [
        json.dumps({"queries": [{"text": "Where does Ann Lee sit?", "tools": ["find_person"]}]}),
        "I would rather not.",
        json.dumps({"requests": []}),
    ]
    with OpenAIStubServer(lambda _: answers.pop(0)) as server:
        model = make_chat_model(server)
        wanted = Wanted("one", 1, ("find_person",))
        found = [invent(model, wanted, TOOLS, [], config=Spending(Budget()).config()) for _ in range(3)]
        told = server.requests[0]
    assert [len(queries) for queries, _ in found] == [1, 0, 0]
    assert found[0][0][0].text == "Where does Ann Lee sit?"
    assert [left_out["unreadable"] for _, left_out in found] == [0, 1, 1]
    assert told["response_format"]["json_schema"]["name"] == "InventedQueries"
    assert "find_person" in told["messages"][1]["content"]
