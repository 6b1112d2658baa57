"""`toolmem atoms`: what is kept for planning, what a goal brings up, and how hints fared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import histories as h
import pytest
from typer.testing import CliRunner

from langgraph_toolmem import Atoms, ToolMemory, default_methods
from langgraph_toolmem.atoms.record import FAILED_AFTER
from langgraph_toolmem.cli import app
from langgraph_toolmem.runs.trajectory import parse_run

TOOLS = [
    {**h.schema("find_order", "order_id"), "description": "Look an order up."},
    {**h.schema("send_mail", "to"), "description": "Send a mail to somebody."},
]


def order(number: int) -> list[Any]:
    whom = f"c{number}@example.org"
    return h.history(
        h.user(f"Find order W{number} and mail the customer about it"),
        h.call("find_order", {"order_id": f"W{number}"}, {"order_id": f"W{number}", "email": whom}),
        h.call("send_mail", {"to": whom}, "sent"),
        h.words(),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with ToolMemory(tmp_path / "memory", tools=TOOLS, methods=default_methods(Atoms(keep=True))) as memory:
        for number in (17, 18, 19):
            memory.finish(order(number), thread_id=str(number), success=True)
        memory.flush()
    return tmp_path / "memory"


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["atoms", *map(str, arguments)])


def answer(*arguments: object) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_all_atoms_in_words(folder: Path) -> None:
    result = run("--memory", folder)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert sorted(line[:2] for line in lines if line[0] != " ") == ["1.", "2."]
    assert "find_order(order_id=<ORDER_ID>)" in result.stdout
    assert "needs: ORDER_ID; gives: " in result.stdout
    assert lines.count("   from 3 steps of runs, value 1.00; shown 0 times, followed 0") == 2
    assert run("--memory", folder, "-k", 1).stdout.splitlines()[-1] == "1 more atom; --most shows more"


def test_what_a_goal_brings_up_with_what_is_known_in_place(folder: Path) -> None:
    found = answer("find the order", "--memory", folder, "--known", "order_id=W99", "--known", "EMAIL", "-k", 1)
    assert found["atoms"] == 2
    [hit] = found["shown"]
    assert (hit["atom"]["tool"], hit["filled"]) == ("find_order", {"order_id": "W99"})
    assert hit["feasibility"] == pytest.approx(1.0, abs=1e-4)
    with ToolMemory(folder, read_only=True) as memory:
        [same] = memory.atoms.search("find the order", slots={"ORDER_ID": "W99", "EMAIL": "x"}, k=1)
    assert hit["score"] == pytest.approx(same.score)
    said = run("find the order", "--memory", folder, "--known", "ORDER_ID=W99").stdout
    assert 'find_order(order_id="W99")' in said
    assert "   score " in said
    unknown = answer("mail them", "--memory", folder, "--known", "EMAIL")
    assert next(each for each in unknown["shown"] if each["atom"]["tool"] == "send_mail")["filled"]["to"] == "<EMAIL>"


def test_one_that_misleads_is_listed_and_not_found(folder: Path) -> None:
    with ToolMemory(folder, tools=TOOLS) as memory:
        for number in range(50, 50 + FAILED_AFTER):
            hits = [
                hit for hit in memory.atoms.search("find the order", slots=["ORDER_ID"]) if hit.tool == "find_order"
            ]
            memory.atoms.note_shown(parse_run(order(number)[:1], thread_id=str(number)), hits, None)
            memory.finish(order(number), thread_id=str(number), success=False)
    listed = {each["atom"]["tool"]: each["record"] for each in answer("--memory", folder)["shown"]}
    assert listed["find_order"]["misleads"]
    assert (listed["find_order"]["followed"], listed["find_order"]["failed"]) == (FAILED_AFTER, FAILED_AFTER)
    assert "it misleads: agents are shown it no longer" in run("--memory", folder).stdout
    found = answer("find the order", "--memory", folder)["shown"]
    assert [each["atom"]["tool"] for each in found] == ["send_mail"]


def test_beside_a_process_that_writes(folder: Path) -> None:
    with ToolMemory(folder, tools=TOOLS):
        assert answer("--memory", folder)["atoms"] == 2


def test_nothing_there(tmp_path: Path) -> None:
    ToolMemory(tmp_path).close()
    assert run("--memory", tmp_path).stdout.splitlines() == ["No atoms yet."]
    assert answer("find it", "--memory", tmp_path) == {"goal": "find it", "atoms": 0, "shown": []}


def test_of_a_user(tmp_path: Path) -> None:
    with ToolMemory(
        tmp_path, tools=TOOLS, methods=default_methods(Atoms(keep=True)), namespace=("desk", "{user_id}")
    ) as memory:
        memory.finish(order(17), thread_id="17", success=True, user_id="ann")
    mine = ("--memory", tmp_path, "--namespace", "desk/{user_id}")
    assert answer(*mine, "--user-id", "ann")["atoms"] == 2
    assert answer(*mine, "--user-id", "ben")["atoms"] == 0
    refused = run(*mine)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "user" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((" ",), "the goal is empty"),
        (("--known", "ORDER_ID"), "--known and --state are for a goal"),
        (("find it", "--known", "=W1"), "--known takes TYPE or TYPE=VALUE"),
        (("--most", "0"), "--most"),
    ],
    ids=["empty", "no goal", "no type", "none"],
)
def test_mistakes_are_one_line(folder: Path, arguments: tuple[str, ...], said: str) -> None:
    result = run(*arguments, "--memory", folder)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_no_memory(tmp_path: Path) -> None:
    result = run("--memory", tmp_path / "none")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "there is no memory at" in result.stderr


async def test_the_async_twin(folder: Path) -> None:
    async with ToolMemory(folder, read_only=True) as memory:
        assert await memory.atoms.aall() == memory.atoms.all()
