"""Discovery as people use it: worlds, tools, requests and models that are not as one would wish."""

from __future__ import annotations

import datetime
import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import test_discovery_model as asking
from langchain_core.messages import AIMessage, BaseMessage
from pydantic import BaseModel
from rooms import KEYS, SPECS, TASK, Keeper, Rooms, Script, call

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.offline.coldstart import Budget
from langgraph_toolmem.offline.discovery import (
    Discovery,
    EnvironmentCall,
    Observation,
    SearchSettings,
    Task,
)
from langgraph_toolmem.offline.discovery.search import Arm, Proposal, Search, State, chosen, needed
from langgraph_toolmem.offline.discovery.world import Cursor, Taken
from langgraph_toolmem.testing import ScriptedChatModel


def found_by(world: Any, task: Task = TASK, **options: Any) -> Any:
    """The report, and the tools on the best path of the one task."""
    with Discovery(world, [task], policy=Keeper(), **options) as discovery:
        report = discovery.run()
        (found,) = discovery.found()
    return report, [taken.call.tool for taken in found.path]


def arm(prior: float, visits: int, mean: float) -> Arm:
    return Arm(call("ring_bell"), prior, visits=visits, total=mean * visits)


def test_ucb_is_worked_out_by_hand() -> None:
    first, second = arm(0.9, 1, 0.0), arm(0.1, 0, 0.0)
    assert chosen([first, second], 1, SearchSettings(), random.Random(0)) is first
    assert chosen([first, second], 1, SearchSettings(selection="ucb"), random.Random(0)) is second
    settings = SearchSettings(selection="ucb", exploration=1.0)
    often, seldom = arm(0.5, 8, 0.6), arm(0.5, 2, 0.2)
    # ln 10 = 2.303: 0.6 + √(2.303 / 8) = 1.137 against 0.2 + √(2.303 / 2) = 1.273
    assert 0.6 + math.sqrt(math.log(10) / 8) == pytest.approx(1.137, abs=1e-3)
    assert chosen([often, seldom], 10, settings, random.Random(0)) is seldom
    # With half of the exploration: 0.868 against 0.737
    assert chosen([often, seldom], 10, SearchSettings(selection="ucb", exploration=0.5), random.Random(0)) is often


@pytest.mark.parametrize("selection", ["prior", "ucb"])
def test_without_patience_all_iterations_are_made(selection: Any) -> None:
    opened = call("open_safe", 2.0, key_id=KEYS["Cellar"])
    lamps = [call("light_lamp", 1.0, lamp_id=f"lamp_{n}") for n in range(6)]

    def iterations(patience: int | None) -> int:
        cursor = Cursor(Rooms(), TASK)
        settings = SearchSettings(iterations=20, patience=patience, selection=selection)
        search = Search(cursor, Script(opened, *lamps), SPECS, lambda _s, _a: bool(cursor.success()), settings=settings)
        return search.run().iterations

    assert (iterations(0), iterations(4), iterations(None)) == (1, 5, 20)


FIND = call("find_key", 9.0, name="Cellar")
OPEN = call("open_safe", 1.0, key_id="key_22")


class Ordered(Script):
    """Proposes one call after the other."""

    def propose(self, state: State) -> Sequence[Proposal]:
        return [self.proposals[len(state.taken)]]


class Key(BaseModel):
    id: str
    name: str


class Colour(Enum):
    RED = "red"


@dataclass
class Drawer:
    keys: list[Key]


class Typed(Rooms):
    """Its answers are objects, with dates, sets and bytes in them."""

    def step(self, call: EnvironmentCall) -> Observation:
        found = super().step(call)
        if call.tool != "find_key" or not found.output["keys"]:
            return found
        drawer = Drawer([Key(**each) for each in found.output["keys"]])
        more = {"at": datetime.date(2026, 3, 1), "in": {"a"}, "raw": b"x", "odd": math.nan, 7: Colour.RED}
        return Observation({"drawer": drawer, **more})


def test_answers_may_be_objects(tmp_path: Path) -> None:
    with Discovery(Typed(), [TASK], policy=Ordered(FIND, OPEN), folder=tmp_path) as discovery:
        assert discovery.run().solved == 1
        first, last = discovery.found()[0].path
    assert last.call == EnvironmentCall("open_safe", {"key_id": "key_22"})
    assert first.observation.output == {
        "drawer": {"keys": [{"id": "key_22", "name": "Cellar"}]},
        "at": "2026-03-01",
        "in": ["a"],
        "raw": "eA==",
        "odd": "NaN",
        "7": "red",
    }


def test_an_answer_that_contains_itself_or_goes_very_deep_is_a_text() -> None:
    ring: dict[str, Any] = {"id": 1}
    ring["self"] = ring
    deep: Any = 1
    for _ in range(900):
        deep = [deep]

    class Odd(Rooms):
        def step(self, call: EnvironmentCall) -> Observation:
            return Observation([ring, deep][len(self.log) % 2])

    cursor = Cursor(Odd(), TASK)
    cursor.reset()
    for _ in range(2):
        json.dumps(cursor.make(EnvironmentCall("find_key", {"name": "x"}), reads=True).observation.output)


def test_an_answer_that_is_no_observation_is_said_at_once() -> None:
    class Raw(Rooms):
        def step(self, call: EnvironmentCall) -> Any:
            return super().step(call).output

    with pytest.raises(ConfigurationError, match=r"gives an Observation.* and not dict"):
        found_by(Raw())


def test_a_world_that_raises_on_a_call_is_told_what_to_do() -> None:
    class Raising(Rooms):
        def step(self, call: EnvironmentCall) -> Observation:
            raise KeyError("drawer")

    with Discovery(Raising(), [TASK], policy=Keeper()) as discovery:
        report = discovery.run()
    assert report.failed == 1
    (said,) = report.errors
    assert "step() raised KeyError on a call of find_key" in said
    assert "ok=False" in said


def test_what_a_long_text_told_was_needed() -> None:
    long = "Lorem ipsum dolor sit amet. " * 40 + "The one for the cellar is key_22."
    told = Taken(EnvironmentCall("find_key", {"name": "Cellar"}), Observation(long))
    idle = Taken(EnvironmentCall("find_key", {"name": "Garden"}), Observation(long.replace("key_22", "key_11")))
    opened = Taken(EnvironmentCall("open_safe", {"key_id": "key_22"}), Observation("ok"))
    reads = {"find_key": True}
    assert needed((told, opened), reads, "Open it") == (told, opened)
    assert needed((idle, told, opened), reads, "Open the cellar") == (told, opened)
    assert needed((told, opened), reads, "Open it with key_22") == (opened,)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_spent_budget_is_no_error_of_a_callback(workers: int, caplog: pytest.LogCaptureFixture) -> None:
    tasks = [Task(f"t{n}", TASK.request, TASK.data) for n in range(3)]
    model = ScriptedChatModel(script=asking.script)
    budget = Budget(model_calls=2)
    with Discovery(Rooms, tasks, model=model, budget=budget, workers=workers) as discovery:
        report = discovery.run()
    assert (report.model_calls, report.stopped) == (2, "all of 2 model calls are made")
    if workers == 1:  # two that ask at the same moment may still be refused by the callback
        assert "RefusedError" not in caplog.text


def test_what_a_model_says_unreadably_or_at_once_is_no_way() -> None:
    def refuse(messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]]) -> AIMessage:
        raise type("OpenAIRefusalError", (Exception,), {})("I would rather not.")

    def finish(messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]]) -> AIMessage:
        name = tools[0]["function"]["name"]
        said: dict[str, Any] = {"thought": "", "completed": True, "finished": True, "answer": "done", "calls": []}
        if name == "PlanAnswer":
            said = {"analysis": "", "strategy": "", "steps": [], "tools": [], "focus": ""}
        return AIMessage("", tool_calls=[{"name": name, "args": said, "id": "c", "type": "tool_call"}])

    for script in (refuse, finish, lambda *_: AIMessage("I would rather not.")):
        model = ScriptedChatModel(script=script)
        with Discovery(Rooms(), [TASK], model=model) as discovery:
            report = discovery.run()
        assert (report.solved, report.failed) == (0, 0)
        assert report.model_calls < 30
