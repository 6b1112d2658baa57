"""Discovery as people use it: worlds, tools, requests and models that are not as one would wish."""

from __future__ import annotations

import datetime
import itertools
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import test_discovery_model as asking
from langchain_core.messages import AIMessage, BaseMessage
from places import ROOT
from pydantic import BaseModel
from rooms import KEYS, SPECS, TASK, TOOLS, Rooms, Script, call

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.offline.coldstart import Budget
from langgraph_toolmem.offline.discovery import (
    Discovery,
    EnvironmentCall,
    Observation,
    RecordedEnvironment,
    SearchSettings,
    Task,
    load_environment,
    read_tasks,
)
from langgraph_toolmem.offline.discovery.environment import Cursor, Taken
from langgraph_toolmem.offline.discovery.harvest import needed
from langgraph_toolmem.offline.discovery.plain import CUT, as_plain
from langgraph_toolmem.offline.discovery.plain_policy import COMBINATIONS, PlainPolicy
from langgraph_toolmem.offline.discovery.policy import Proposal
from langgraph_toolmem.offline.discovery.selection import chosen
from langgraph_toolmem.offline.discovery.states import Goal, State, resources_of
from langgraph_toolmem.offline.discovery.tree import Search
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.testing import OpenAIStubServer, ScriptedChatModel
from langgraph_toolmem.testing.server import make_chat_model

TEXT = {"type": "string"}
STATUS = ("error", "success")


def found_by(world: Any, task: Task = TASK, **options: Any) -> Any:
    """The report, and the tools on the best path of the one task."""
    with Discovery(world, [task], **options) as discovery:
        report = discovery.run()
        (found,) = discovery.found()
    return report, [taken.call.tool for taken in found.path]


# --- which action is taken ------------------------------------------------------------------------------------


@dataclass
class Arm:
    prior: float
    visits: int
    mean: float


def test_ucb_takes_what_was_never_taken_in_the_policys_order() -> None:
    settings = SearchSettings(selection="ucb")
    arms = [Arm(0.1, 3, 0.9), Arm(0.2, 0, 0.0), Arm(0.7, 0, 0.0)]
    assert chosen(arms, 3, settings, random.Random(0)) is arms[1]


def test_ucb_is_worked_out_by_hand() -> None:
    settings = SearchSettings(selection="ucb", exploration=1.0)
    often, seldom = Arm(0.5, 8, 0.6), Arm(0.5, 2, 0.2)
    # ln 10 = 2.303: 0.6 + √(2.303 / 8) = 1.137 against 0.2 + √(2.303 / 2) = 1.273
    assert 0.6 + math.sqrt(math.log(10) / 8) == pytest.approx(1.137, abs=1e-3)
    assert chosen([often, seldom], 10, settings, random.Random(0)) is seldom
    # With half of the exploration: 0.868 against 0.737
    assert chosen([often, seldom], 10, SearchSettings(selection="ucb", exploration=0.5), random.Random(0)) is often


def test_the_prior_counts_by_default() -> None:
    first, second = Arm(0.9, 1, 0.0), Arm(0.1, 0, 0.0)
    assert chosen([first, second], 1, SearchSettings(), random.Random(0)) is first
    assert chosen([first, second], 1, SearchSettings(selection="ucb"), random.Random(0)) is second


def test_the_papers_settings() -> None:
    paper = SearchSettings.paper()
    assert (paper.selection, paper.patience, paper.iterations, paper.depth) == ("ucb", None, 50, 10)
    assert (paper.exploration, paper.length_weight) == (1.41, 0.1)


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


# --- worlds that a newcomer writes ----------------------------------------------------------------------------


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
        more = {"at": datetime.date(2026, 3, 1), "in": {"b", "a"}, "raw": b"x", "odd": math.nan, 7: Colour.RED}
        return Observation({"drawer": drawer, **more})


def test_answers_may_be_objects(tmp_path: Path) -> None:
    with Discovery(Typed(), [TASK], folder=tmp_path) as discovery:
        assert discovery.run().progress.solved == 1
        first, last = discovery.found()[0].path
    assert last.call == EnvironmentCall("open_safe", {"key_id": "key_22"})
    assert first.observation.output == {
        "drawer": {"keys": [{"id": "key_22", "name": "Cellar"}]},
        "at": "2026-03-01",
        "in": ["a", "b"],
        "raw": "eA==",
        "odd": "nan",
        "7": "red",
    }


def test_json_values_are_left_as_they_are() -> None:
    value: dict[str, Any] = {"a": [1, 2.5, None, True, "x", {"b": []}]}
    assert as_plain(value) is value


def test_an_answer_that_contains_itself_or_goes_very_deep_is_cut() -> None:
    ring: dict[str, Any] = {"id": 1}
    ring["self"] = ring
    assert as_plain(ring) == {"id": 1, "self": CUT}
    deep: Any = 1
    for _ in range(5_000):
        deep = [deep]
    assert len(json.dumps(as_plain(deep))) < 200


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

    with Discovery(Raising(), [TASK]) as discovery:
        report = discovery.run()
    assert report.progress.failed == 1
    (said,) = report.errors
    assert "step() raised KeyError on a call of find_key" in said
    assert "ok=False" in said


class Looking(Rooms):
    """Its tasks are done by looking things up."""

    def reset(self, task: Task) -> None:
        super().reset(task)
        self.asked: set[str] = set()

    def step(self, call: EnvironmentCall) -> Observation:
        self.asked.add(str(call.args.get("name", "")))
        return super().step(call)

    def success(self) -> bool:
        return {"Cellar", "Garden"} <= self.asked if "both" in self.names else "Cellar" in self.asked

    names = ""


def test_a_task_that_is_done_by_looking_something_up() -> None:
    _, path = found_by(Looking())
    assert path == ["find_key"]


def test_a_task_that_is_done_by_looking_two_things_up() -> None:
    class Both(Looking):
        names = "both"

    with Discovery(Both(), [Task("t", "Find the Cellar key and the Garden key.", {"key": "Cellar"})]) as discovery:
        report = discovery.run()
        (found,) = discovery.found()
    assert report.progress.solved == 1
    assert sorted(taken.call.args["name"] for taken in found.path) == ["Cellar", "Garden"]


def test_what_a_long_text_told_was_needed() -> None:
    long = "Lorem ipsum dolor sit amet. " * 40 + "The one for the cellar is key_22."
    told = Taken(EnvironmentCall("find_key", {"name": "Cellar"}), Observation(long))
    idle = Taken(EnvironmentCall("find_key", {"name": "Garden"}), Observation(long.replace("key_22", "key_11")))
    opened = Taken(EnvironmentCall("open_safe", {"key_id": "key_22"}), Observation("ok"))
    reads = {"find_key": True}
    assert needed((told, opened), reads, "Open it") == (told, opened)
    assert needed((idle, told, opened), reads, "Open the cellar") == (told, opened)
    assert needed((told, opened), reads, "Open it with key_22") == (opened,)


def test_changes_without_which_a_path_ends_as_well_are_left_out() -> None:
    class Tolerant(Rooms):
        def success(self) -> bool:
            return self.wanted in self.opened

    world = Tolerant()
    cursor = Cursor(world, TASK)
    lamp = call("light_lamp", 5.0, lamp_id="lamp_1")
    other = call("light_lamp", 4.0, lamp_id="lamp_2")
    opened = call("open_safe", 3.0, key_id=KEYS["Cellar"])

    class Order(Script):
        def propose(self, state: State, possible: Sequence[EnvironmentCall] | None) -> Sequence[Proposal]:
            return [(lamp, other, opened)[len(state.taken)]]

    search = Search(cursor, Order(), SPECS, lambda _s, _a: bool(cursor.success()), settings=SearchSettings(patience=0))
    best = search.run().paths[0]
    assert [taken.call.tool for taken in best.taken] == ["open_safe"]
    assert best.reward == SearchSettings().reward(1)


def test_where_nothing_promising_is_left_the_rest_is_tried_once() -> None:
    opened = call("open_safe", 1.0, key_id=KEYS["Cellar"])

    class Late(Script):
        asked = 0

        def widen(self, state: State) -> Sequence[Proposal]:
            self.asked += 1
            return [opened, *self.proposals]

    policy = Late(call("ring_bell"))
    cursor = Cursor(Rooms(), TASK)
    search = Search(cursor, policy, SPECS, lambda _s, _a: bool(cursor.success()), settings=SearchSettings(depth=2))
    assert search.run().solved
    assert [taken.call.tool for taken in search.outcome.paths[0].taken] == ["open_safe"]
    assert policy.asked == 1


def test_a_recorded_run_goes_on_behind_a_call_that_failed() -> None:
    tools = [{**tool, "parameters": {"type": "object"}} for tool in TOOLS]
    calls = [("open_safe", "key_9", "Error: no such key."), ("open_safe", "key_22", '{"safe": "open"}')]
    messages: list[dict[str, Any]] = [{"role": "user", "content": TASK.request}]
    for number, (name, key, output) in enumerate(calls):
        asked = {"id": f"c{number}", "name": name, "args": {"key_id": key}, "type": "tool_call"}
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [asked]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": output, "status": STATUS[number]},
        ]
    world = RecordedEnvironment([(parse_run(messages, thread_id="r"), True)], tools)
    with Discovery(world, world.tasks) as discovery:
        assert discovery.run().progress.solved == 1
        (found,) = discovery.found()
    assert [taken.call.args["key_id"] for taken in found.path] == ["key_22"]


def test_a_recorded_run_may_have_made_the_same_call_twice() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Light the lamp and put it out again."}]
    for number in range(2):
        asked = {"id": f"c{number}", "name": "light_lamp", "args": {"lamp_id": "lamp_1"}, "type": "tool_call"}
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [asked]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": '{"lamp": []}'},
        ]
    world = RecordedEnvironment([(parse_run(messages, thread_id="r"), True)], TOOLS)
    with Discovery(world, world.tasks) as discovery:
        assert discovery.run().progress.solved == 1
        assert len(discovery.found()[0].path) == 2


def test_an_empty_text_is_no_identifier() -> None:
    assert resources_of(EnvironmentCall("echo", {"text": "", "to": "file_1"})) == ("file_1",)


# --- tools and requests ---------------------------------------------------------------------------------------


def schema(name: str, about: str, /, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": about, "parameters": parameters}


class Once:
    """A world that is done once a call has these arguments."""

    def __init__(self, tools: list[dict[str, Any]], **wanted: Any) -> None:
        self.tools, self.wanted = tools, wanted

    def reset(self, task: Task) -> None:
        self.done = False

    def step(self, call: EnvironmentCall) -> Observation:
        self.done = self.done or all(call.args.get(key) == value for key, value in self.wanted.items())
        return Observation({"ok": True})

    def success(self) -> bool:
        return self.done


PEOPLE = {"type": "array", "items": {"type": "string", "format": "email"}}
ITEM = {"type": "object", "properties": {"sku": TEXT, "count": {"type": "integer"}}, "required": ["sku", "count"]}
PLACE = {"type": "object", "properties": {"email": {**TEXT, "description": "E-mail address."}}, "required": ["email"]}


@pytest.mark.parametrize(
    ("tool", "request_", "wanted"),
    [
        (schema("ring_bell", "Ring the bell."), "Ring the bell", {}),
        (
            schema("invite_people", "Invite people.", emails=PEOPLE),
            "Invite ann@x.org and bob@x.org",
            {"emails": ["ann@x.org", "bob@x.org"]},
        ),
        (
            schema("add_items", "Add items to a cart.", items={"type": "array", "items": ITEM}),
            "Add 3 of sku_12 to the cart",
            {"items": [{"sku": "sku_12", "count": 3}]},
        ),
        (schema("send_parcel", "Send a parcel.", to=PLACE), "Send a parcel: ann@x.org", {"to": {"email": "ann@x.org"}}),
        (
            schema("suche_kunde", "Sucht Kunden.", name=TEXT),
            "Suche den Kunden Jürgen Müller",
            {"name": "Jürgen Müller"},
        ),
        (schema("найти_клиента", "Находит клиента.", имя=TEXT), "Найди клиента Иван Петров", {"имя": "Иван Петров"}),
        (schema("find_customer", "按姓名查找客户", name=TEXT), "查找客户“王小明”", {"name": "王小明"}),
        (schema("ring_bell", "Ring the bell."), "Ring the bell for Ann Lee. " * 500, {}),
    ],
    ids=["nothing", "list", "objects", "nested", "german", "russian", "chinese", "long"],
)
def test_requests_and_schemas_of_all_sorts(tool: dict[str, Any], request_: str, wanted: dict[str, Any]) -> None:
    report, path = found_by(Once([tool], **wanted), Task("t", request_))
    assert path == [tool["name"]]
    assert report.errors == ()


def test_a_tool_with_many_inputs_has_not_all_combinations_of_values() -> None:
    inputs = {
        f"{name}_name": TEXT for name in ("red", "blue", "green", "black", "white", "grey", "pink", "gold", "tan")
    }
    specs = read_tools([schema("make_thing", "Make a thing.", **inputs)])
    names = "Ann Lee, Bob Ray, Carl Fox, Dora Moss, Eve Stone, Finn Rock, Gus Hill and Hal Dale"
    state = State(Task("t", f"Make a thing with {names}")).at(Goal("make it"))
    proposals = PlainPolicy(specs).propose(state, None)  # 8⁹ combinations are too many to look at
    assert 0 < len(proposals) <= COMBINATIONS


def test_those_whom_the_user_named_are_invited_together() -> None:
    tools = [
        {**schema("find_person", "Find a colleague.", name=TEXT), "tags": ["read_only"]},
        schema("create_event", "Create an event.", attendees=PEOPLE),
    ]

    class Desk(Once):
        def step(self, call: EnvironmentCall) -> Observation:
            if call.tool == "create_event":
                return super().step(call)
            first = str(call.args["name"]).split()[0].lower()
            return Observation({"people": [{"name": call.args["name"], "email": f"{first}@x.org"}]})

    world = Desk(tools, attendees=["ann@x.org", "bob@x.org"])
    with Discovery(world, [Task("t", "Create an event with Ann Lee and Bob Ray.")]) as discovery:
        discovery.run()
        (found,) = discovery.found()
    assert sorted(taken.call.tool for taken in found.path) == ["create_event", "find_person", "find_person"]


# --- models ---------------------------------------------------------------------------------------------------


def says(answer: Callable[[str], dict[str, Any]]) -> ScriptedChatModel:
    def script(messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]]) -> AIMessage:
        name = tools[0]["function"]["name"]
        return AIMessage("", tool_calls=[{"name": name, "args": answer(name), "id": "c", "type": "tool_call"}])

    return ScriptedChatModel(script=script)


PLAN = {"analysis": "", "strategy": "", "steps": ["a", "b", "c"], "tools": []}
ACT = {"thought": "", "completed": False, "finished": False, "answer": "", "calls": []}


def test_a_model_that_only_plans_is_stopped() -> None:
    numbers = itertools.count()

    def answer(name: str) -> dict[str, Any]:
        return {**PLAN, "focus": f"goal {next(numbers)}"} if name == "PlanAnswer" else {**ACT, "completed": True}

    report, path = found_by(Rooms(), model=says(answer))
    assert path == ["find_key", "open_safe"]
    assert report.progress.model_calls < 30


def test_a_model_that_is_done_before_it_began_is_not_believed() -> None:
    def answer(name: str) -> dict[str, Any]:
        return {**PLAN, "focus": ""} if name == "PlanAnswer" else {**ACT, "finished": True, "answer": "done"}

    _, path = found_by(Rooms(), model=says(answer))
    assert path == ["find_key", "open_safe"]


class OpenAIRefusalError(Exception):
    """As clients raise it where a model refuses to answer."""


def refuse(messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]]) -> AIMessage:
    raise OpenAIRefusalError("I would rather not.")


def test_a_refusal_is_an_answer_that_cannot_be_read() -> None:
    report, path = found_by(Rooms(), model=ScriptedChatModel(script=refuse))
    assert path == ["find_key", "open_safe"]
    assert report.unread > 0
    assert report.progress.failed == 0


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "not json", '{"calls": 1}'], ids=["none", "list", "null", "no", "half"]
)
def test_answers_of_a_server_that_cannot_be_read(text: str) -> None:
    with OpenAIStubServer(lambda _request: text) as server:
        report, path = found_by(Rooms(), model=make_chat_model(server))
    assert path == ["find_key", "open_safe"]
    assert report.unread == report.progress.model_calls > 0


def test_a_judge_that_refuses_says_nothing() -> None:
    judge = ScriptedChatModel(script=refuse)
    report, path = found_by(asking.Undecided(), judge=judge, settings=SearchSettings(iterations=4))
    assert (path, report.progress.failed) == ([], 0)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_spent_budget_is_no_error_of_a_callback(workers: int, caplog: pytest.LogCaptureFixture) -> None:
    tasks = [Task(f"t{n}", TASK.request, TASK.data) for n in range(3)]
    model = ScriptedChatModel(script=asking.script)
    budget = Budget(model_calls=2)
    with Discovery(Rooms, tasks, model=model, budget=budget, workers=workers) as discovery:
        report = discovery.run()
    assert (report.progress.model_calls, report.stopped) == (2, "all of 2 model calls are made")
    if workers == 1:  # two that ask at the same moment may still be refused by the callback
        assert "RefusedError" not in caplog.text


def test_other_line_ends_inside_of_a_task(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    text = "Tell\u2028Ann\x85 it\x1c is\u2029 done"
    lines = [json.dumps({"id": str(n), "request": text}, ensure_ascii=False) for n in range(2)]
    file.write_bytes("\r\n".join([*lines, ""]).encode())
    assert [task.request for task in read_tasks(file)] == [text, text]


# --- what is kept ---------------------------------------------------------------------------------------------


def test_what_was_found_otherwise_is_told_and_not_mixed(tmp_path: Path) -> None:
    with Discovery(Rooms(), [TASK], folder=tmp_path) as discovery:
        assert discovery.run().others == 0
    with Discovery(Rooms(), [TASK], folder=tmp_path, seed=1) as discovery:
        assert (discovery.report().others, discovery.progress().done) == (1, 0)
        assert discovery.run().to_dict()["others"] == 1


def test_another_environment_with_the_same_tools_is_another_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "two_worlds.py").write_text("from rooms import Rooms as One, WithSnapshots as Two\n", encoding="utf-8")
    done = []
    for name in ("One", "Two", "One"):
        world = load_environment(f"two_worlds:{name}", folder=tmp_path)
        with Discovery(world, [TASK], folder=tmp_path / "kept") as discovery:
            done.append(discovery.progress().done)
            discovery.run()
    assert done == [0, 0, 1]


CHILD = """
from test_discovery_runner import office, office_tasks
from langgraph_toolmem.atoms.atoms import to_plain
from langgraph_toolmem.offline.discovery import Discovery
import json
with Discovery(office, office_tasks(2), seed=3) as discovery:
    discovery.run()
    print(json.dumps([to_plain(atom) for atom in discovery.atoms()]))
"""


def test_another_process_finds_the_same_atoms() -> None:
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "offline")])
    said = [
        subprocess.run(
            [sys.executable, "-c", CHILD],
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "77")
    ]
    assert said[0] == said[1]
    assert len(json.loads(said[0])) > 1
