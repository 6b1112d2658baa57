"""Atoms in the memory: kept of runs that went well, found, booked when they are followed, and forgotten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import histories as h
import pytest

from langgraph_toolmem import (
    Atoms,
    InputError,
    ToolMemory,
)
from langgraph_toolmem.atoms.atoms import Atom, make_atom
from langgraph_toolmem.atoms.record import FAILED_AFTER, IGNORED_AFTER, AtomRecord
from langgraph_toolmem.atoms.retrieve import AtomHit
from langgraph_toolmem.runs.trajectory import parse_run

PER_USER = ("toolmem", "{user_id}")
TOOLS = [
    {**h.schema("find_order", "order_id"), "description": "Look an order up."},
    {**h.schema("send_mail", "to subject"), "description": "Send a mail to somebody."},
]


def order(number: int = 17, whom: str = "ann@example.org", *, last: bool = True) -> list[Any]:
    """A run that looks an order up and mails about it."""
    found = h.call("find_order", {"order_id": f"W{number}"}, {"order_id": f"W{number}", "email": whom})
    mail = h.call("send_mail", {"to": whom, "subject": "order"}, "sent")
    return h.history(asking(number), found, *([mail, h.words()] if last else []))


def asking(number: int = 17) -> list[Any]:
    return [h.user(f"Find order W{number} and mail the customer about it")]


def found(memory: ToolMemory, goal: str = "find order <ID>", **how: Any) -> list[AtomHit]:
    return memory.atoms.search(goal, slots=["ORDER_ID", "EMAIL"], **how)


def show(
    memory: ToolMemory, messages: list[Any], hits: list[AtomHit], thread_id: str, user_id: str | None = None
) -> None:
    """The model gets to see these atoms before its next turn."""
    memory.atoms.note_shown(memory.core.read(messages, thread_id), hits, user_id)


def tools_of(hits: list[AtomHit]) -> list[str]:
    return sorted(hit.tool for hit in hits)


def holding(folder: Path, word: str) -> list[str]:
    return [str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and word.encode() in p.read_bytes()]


def refund(**more: Any) -> Atom:
    given: dict[str, Any] = {"state": "the order is known", "goal": "refund the order", "tool": "refund"}
    given |= {"arguments": {"order": "<ORDER_ID>", "mode": "full"}, "required_slots": ["ORDER_ID"]}
    return make_atom(**{**given, **more})


# --- runs become atoms ---


def test_steps_of_good_runs_are_found_in_the_next_process(tmp_path: Path) -> None:
    with ToolMemory(tmp_path, tools=TOOLS, methods=[Atoms(keep=True)]) as memory:
        memory.finish(order(), thread_id="1", success=True)
        hits = found(memory)
        assert tools_of(hits) == ["find_order", "send_mail"]
    with ToolMemory(tmp_path, tools=TOOLS, read_only=True) as memory:
        assert found(memory) == hits
        assert hits[0].tool == "find_order"
        assert hits[0].atom.arguments == {"order_id": "<ORDER_ID>"}
        assert hits[0].score > 0.5
        (filled,) = memory.atoms.search("find order <ID>", slots={"ORDER_ID": ["W1", "W2"]}, k=1)
        assert filled.filled == {"order_id": "W2"}


def test_nothing_is_kept_until_atoms_are_wanted(tmp_path: Path) -> None:
    with ToolMemory(tmp_path / "off", tools=TOOLS, methods=[Atoms(keep=False)]) as memory:
        assert found(memory) == []
        memory.finish(order(), thread_id="1", success=True, wait=True)
        assert found(memory) == []
    assert not (tmp_path / "off" / "chroma").exists()
    with ToolMemory(tmp_path / "default", tools=TOOLS) as memory:
        memory.finish(order(), thread_id="1", success=True)
        assert found(memory) == []  # from here on
        memory.finish(order(18), thread_id="2", success=True)
        assert tools_of(found(memory)) == ["find_order", "send_mail"]


def test_verdicts_decide_and_may_change(tmp_path: Path) -> None:
    with ToolMemory(tmp_path, tools=TOOLS, methods=[Atoms(keep=True)]) as memory:
        memory.finish(order(), thread_id="1")
        assert found(memory) == []
        memory.feedback("1", score=1.0)
        assert len(found(memory)) == 2
        memory.feedback("1", score=0.0)
        assert found(memory) == []
        memory.finish(order(), thread_id="1", success=True)
        assert len(found(memory)) == 2
        memory.finish(order(), thread_id="1", success=False)
        assert found(memory) == []
        memory.finish(order(), thread_id="2", success=False)
        with pytest.raises(InputError, match="No thread 'unknown'"):
            memory.feedback("unknown", score=1.0)
        assert found(memory) == []
        memory.feedback("1", score=0.9)
    with ToolMemory(tmp_path, tools=TOOLS, methods=[Atoms()]) as memory:
        assert {hit.atom.value for hit in found(memory)} == {0.9}


def test_a_thread_that_goes_on_counts_each_step_once(tmp_path: Path) -> None:
    with ToolMemory(tmp_path, tools=TOOLS, methods=[Atoms(keep=True)]) as memory:
        first = order(17)
        memory.finish(first, thread_id="1", success=True)
        memory.finish(first, thread_id="1", success=True)
        assert [hit.atom.visits for hit in found(memory)] == [1, 1]
        memory.finish([*first, *order(18)], thread_id="1", success=True)
        assert [hit.atom.visits for hit in found(memory)] == [2, 2]
        memory.finish(order(19), thread_id="2", success=True)
        assert found(memory)[0].atom.visits == 3
        report = memory.report()["atoms"]
        assert (report["made"], report["learned"]) == (2, 3)


def test_recorded_runs_become_atoms_in_one_go(tmp_path: Path) -> None:
    runs = [
        (parse_run(order(n), thread_id=f"r{n}"), score, None) for n, score in ((1, 1.0), (2, 1.0), (3, 0.0), (4, None))
    ]
    with ToolMemory(tmp_path, tools=TOOLS, methods=[Atoms()]) as memory:
        assert memory.import_runs(runs)["atoms"] == memory.import_runs(runs)["atoms"] == 4
        assert [hit.atom.visits for hit in found(memory)] == [2, 2]
        memory.feedback("r4", score=1.0)
        memory.feedback("r1", score=0.0)
        memory.feedback("r2", score=0.0)
        assert [hit.atom.visits for hit in found(memory)] == [1, 1]


# --- atoms from elsewhere ---


def test_an_atoms_tool_is_found_among_those_at_hand() -> None:
    with ToolMemory.ephemeral(methods=[Atoms()]) as memory:
        memory.atoms.keep([refund(about="Pay back what an order has cost.", arguments={"order": "<ORDER_ID>"})])
        other = {**h.schema("pay_back", "order"), "description": "Pay back what an order has cost."}
        ask = {"slots": {"ORDER_ID": "W9"}, "state": "the order is known"}
        (hit,) = memory.atoms.search("refund the order", tools=[other], **ask)
        assert (hit.tool, hit.filled) == ("pay_back", {"order": "W9"})
        assert 0.5 <= hit.likeness < 1.0
        assert memory.atoms.search("refund the order", tools=[], **ask) == []
        assert len(memory.atoms.search(["greet", "refund the order"], **ask)) == 1


# --- records ---


def test_hints_are_booked_when_shown_followed_and_led_to_success(tmp_path: Path) -> None:
    with ToolMemory(tmp_path, tools=TOOLS, methods=[Atoms(keep=True)]) as memory:
        memory.finish(order(), thread_id="1", success=True)
        hits = found(memory)
        ids = {hit.tool: hit.atom.id for hit in hits}
        for number, success in ((2, True), (3, False)):
            show(memory, asking(number), hits, str(number))
            show(memory, asking(number), hits, str(number))  # asked again: the same turn
            memory.finish(order(number), thread_id=str(number), success=success)
        assert memory.atoms.records(ids.values()) == {
            ids["find_order"]: AtomRecord(2, 2, 1, 1),
            ids["send_mail"]: AtomRecord(2, 0, 0),
        }
        memory.feedback("2", score=0.0)
        assert memory.atoms.records(ids.values())[ids["find_order"]] == AtomRecord(2, 2, 0, 2)
        memory.feedback("3", score=1.0)
        memory.feedback("3", score=1.0)
        report = memory.report()
        figures = {"shown": 2, "followed": 2, "right": 2, "runs": 2, "helped": 1, "hurt": 1}
        assert figures.items() <= report["atoms"].items()
        assert "followed in 2 runs; of these went well 1, badly 1" in str(report)
        assert json.loads(json.dumps(report.to_dict()))["sections"]["atoms"]["helped"] == 1
    with ToolMemory(tmp_path, tools=TOOLS, methods=[Atoms()]) as memory:
        assert memory.atoms.records(ids.values())[ids["find_order"]] == AtomRecord(2, 2, 1, 1)
        memory.feedback("3", score=0.0)  # in another process
    with ToolMemory(tmp_path, tools=TOOLS, methods=[Atoms()]) as memory:
        assert memory.atoms.records(ids.values())[ids["find_order"]] == AtomRecord(2, 2, 0, 2)


async def test_atoms_that_nobody_follows_are_shown_no_longer() -> None:
    async with ToolMemory.ephemeral(tools=TOOLS, methods=[Atoms(keep=True)]) as memory:
        memory.finish(order(), thread_id="1", success=True)
        hits = found(memory)
        for number in range(IGNORED_AFTER):
            show(memory, asking(number), hits[:1], f"n{number}")
        assert tools_of(found(memory)) == [hits[1].tool]
        assert (await memory.atoms.arecords([hits[0].atom.id]))[hits[0].atom.id].misleads


@pytest.mark.slow
def test_only_verdicts_say_that_an_atom_misleads(tmp_path: Path) -> None:
    with ToolMemory(tmp_path, tools=TOOLS, methods=[Atoms(keep=True)]) as memory:
        memory.finish(order(), thread_id="1", success=True)
        hits = [hit for hit in found(memory) if hit.tool == "find_order"]
        runs = range(100, 102 + IGNORED_AFTER)
        for number in runs:
            show(memory, asking(number), hits, str(number))
            memory.finish(order(number), thread_id=str(number))
        assert "find_order" in tools_of(found(memory))  # followed each time, and nobody gave a verdict
        for number in runs[:FAILED_AFTER]:
            memory.feedback(str(number), score=0.0)
        assert "find_order" not in tools_of(found(memory))
        memory.feedback(str(runs[0]), score=1.0)  # a second look
        assert "find_order" in tools_of(found(memory))
