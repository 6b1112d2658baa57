"""The office sandbox, its tasks and the scripted assistant: the parts of the demo."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from typer.testing import CliRunner

from examples.office import ALTERNATIVES, Office, Task, make_tasks
from examples.office.assistant import reply
from examples.office.check import added, changed, removed, state_is_right
from examples.office.plan import Call
from examples.office.runs import Outcome, lost, totals
from langgraph_toolmem.cli.app import app

TASKS = make_tasks(200, seed=0)
Messages = list[dict[str, Any]]


class Desk:
    """A fast loop without HTTP and LangGraph: the assistant, an office, and somebody who may make calls."""

    def __init__(self, office: Office) -> None:
        self.office = office
        self.tools = {tool.name: tool for tool in office.tools()}
        self.offered = [{"function": {"name": name}} for name in self.tools]
        self.turns = 0
        self._ids = itertools.count(1)

    def ask(self, messages: Messages) -> AIMessage:
        self.turns += 1
        return reply({"messages": messages, "tools": self.offered})

    def call(self, messages: Messages, calls: list[Call], text: str = "") -> None:
        """Append an assistant message with calls, and their results."""
        ids = [f"c{next(self._ids)}" for _ in calls]
        wire = [
            {"id": key, "function": {"name": call.tool, "arguments": json.dumps(call.args)}}
            for key, call in zip(ids, calls, strict=True)
        ]
        messages.append({"role": "assistant", "content": text, "tool_calls": wire})
        for key, call in zip(ids, calls, strict=True):
            output = self.tools[call.tool].invoke(call.args)
            content = output if isinstance(output, str) else json.dumps(output)
            messages.append({"role": "tool", "tool_call_id": key, "content": content})

    def solve(self, task: Task, before_turn: Callable[[Messages], None] = lambda _: None) -> Messages:
        """Work on a task until the assistant answers in words."""
        self.office.reset(task.seed)
        return self.go_on([{"role": "user", "content": task.request}], before_turn)

    def go_on(self, messages: Messages, before_turn: Callable[[Messages], None] = lambda _: None) -> Messages:
        for _ in range(40):
            before_turn(messages)
            answer = self.ask(messages)
            if not answer.tool_calls:
                messages.append({"role": "assistant", "content": answer.text})
                return messages
            self.call(messages, [Call(c["name"], c["args"]) for c in answer.tool_calls], answer.text)
        raise AssertionError("the assistant does not come to an end")


def made_calls(messages: Messages) -> list[str]:
    return [c["function"]["name"] for m in messages for c in m.get("tool_calls", ())]


# --- the office


def test_read_only_tools_change_nothing_and_all_others_do() -> None:
    office = Office(0)
    tools = {tool.name: tool for tool in office.tools()}
    used: Counter[str] = Counter()
    for task in TASKS[:100]:
        office.reset(task.seed)
        for call in task.script():
            before = office.state()
            tools[call.tool].invoke(call.args)
            read_only = "read_only" in (tools[call.tool].tags or ())
            assert (office.state() == before) is read_only, call
            used[call.tool] += 1
    assert len(used) >= 20


# --- the checker


def test_state_is_right_by_hand() -> None:
    before: Any = {"a": {"1": {"x": 1, "y": "Old"}, "2": {"x": 2}}, "b": {}}
    after: Any = {"a": {"1": {"x": 1, "y": "NEW "}}, "b": {"9": {"to": ["q", "p"], "text": "Hello there"}}}
    change = changed("a", "1", y="new")
    gone = removed("a", "2")
    new = added("b", {"text": ["hello"]}, to=["p", "q"])
    assert state_is_right(before, after, [new, gone, change])
    assert state_is_right(before, before, [])
    assert not state_is_right(before, after, [new, gone])  # one change too many
    assert not state_is_right(before, before, [gone])  # one that is missing
    assert not state_is_right(before, after, [new, gone, changed("a", "1", y="other")])
    assert not state_is_right(before, after, [new, gone, changed("a", "1", x=1)])  # y must not change then
    assert not state_is_right(before, after, [new, gone, changed("a", "2", y="new")])
    assert not state_is_right(before, after, [added("b", {"text": ["bye"]}), gone, change])
    assert not state_is_right(before, after, [new, new, change])
    assert state_is_right(before, after, [added("b", to=lambda value: len(value) == 2), gone, change])


# --- the tasks


# --- the assistant


def test_assistant_solves_all_tasks_as_the_script_does() -> None:
    desk = Desk(Office(7))
    thoughts = turns = 0
    for task in make_tasks(200, seed=7, office_seed=7):
        messages = desk.solve(task)
        assert task.checker(desk.office), task.request
        assert made_calls(messages) == [call.tool for call in task.script()]
        with_calls = [m for m in messages if m.get("tool_calls")]
        turns += len(with_calls)
        thoughts += sum(bool(m["content"]) for m in with_calls)
    assert 0.01 < thoughts / turns < 0.06


@pytest.mark.long
def test_assistant_takes_an_alternative_when_a_tool_is_down() -> None:
    desk = Desk(Office(0))
    for tool in ALTERNATIVES:
        affected = [task for task in TASKS if any(call.tool == tool for call in task.script())][:1]
        assert affected
        for task in affected:
            desk.solve(task, lambda _, tool=tool: desk.office.inject(tool, probability=1.0))  # type: ignore[misc]
            assert task.checker(desk.office), task.request


# --- the app


def outcome(key: str, *, calls: int, right: bool) -> Outcome:
    return Outcome(key, "kind", calls, 1, 100 * calls, 10 * calls, 0.5, right)


def test_totals_lost_and_printed_table() -> None:
    without = [outcome("a", calls=4, right=True), outcome("b", calls=2, right=False)]
    remembered = [outcome("a", calls=2, right=False), outcome("b", calls=1, right=True)]
    assert [o.id for o in lost(without, remembered)] == ["a"]
    total = totals(remembered)
    assert (total.tasks, total.llm_calls, total.tokens, total.right) == (2, 3, 330, 1)
    assert total.to_dict()["tokens"] == 330


def test_the_demo_saves_calls_and_makes_no_change_that_nobody_asked_for(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["demo", "--tasks", "60", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in done.output.splitlines() if "of 60" in line]
    assert [row[0] for row in rows] == ["none", "reads", "writes"]
    calls, saved = ([int(row[place]) for row in rows] for place in (1, 2))
    assert saved[0] == 0
    assert all(made + spared >= calls[0] for made, spared in zip(calls, saved, strict=True))
    assert [row[3] for row in rows[:2]] == ["0", "0"]
    assert [row[5] for row in rows[:2]] == ["60 of 60"] * 2
    assert len((tmp_path / "runs.jsonl").read_text(encoding="utf-8").splitlines()) == 60
