"""Discovery: environments, the tree search on a tiny world, a chat model as policy and judge, and what is kept on disk.

The world: a safe that opens with a key, a lamp, and a bell that always fails.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import math
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import StructuredTool, ToolException, tool
from openai_server import OpenAIStubServer, make_chat_model
from pydantic import BaseModel

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.atoms.atoms import to_plain
from langgraph_toolmem.base.errors import ConfigurationError, ToolMemoryError
from langgraph_toolmem.offline.coldstart import BootstrapBudget
from langgraph_toolmem.papers.sga_mcts import (
    ActionProposal,
    Discovery,
    DiscoveryReport,
    Environment,
    EnvironmentCall,
    Goal,
    SearchSettings,
    State,
    Task,
    ToolObservation,
    ToolsEnvironment,
    Transition,
)
from langgraph_toolmem.papers.sga_mcts.model import ModelPolicy
from langgraph_toolmem.papers.sga_mcts.search import Cursor, Edge, Search, StoppedError, select
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.testing import ScriptedChatModel


def schema(name: str, about: str, /, *, reads: bool = False, **parameters: str) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    parameters_ = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"name": name, "description": about, "parameters": parameters_, "tags": ["read_only"] if reads else []}


TOOLS = [
    schema("find_key", "Find a key by the name on it.", reads=True, name="Name on the key."),
    schema("open_safe", "Open a safe with a key.", key_id='Id of the key, for example "key_1".'),
    schema("light_lamp", "Light or put out a lamp.", lamp_id='Id of the lamp, for example "lamp_1".'),
    schema("ring_bell", "Ring the bell."),
]
SPECS = read_tools(TOOLS)
KEYS = {"Garden": "key_11", "Cellar": "key_22"}
TASK = Task("t1", "Open the safe with the Cellar key.", {"key": "Cellar"})


class Rooms:
    """See the module. `log` has every call that was made, with "reset" in between."""

    tools = TOOLS

    def __init__(self) -> None:
        self.log: list[str] = []
        self.opened: list[str] = []
        self.lit: set[str] = set()
        self.wanted = ""

    def reset(self, task: Task) -> None:
        self.log.append("reset")
        self.opened, self.lit, self.wanted = [], set(), KEYS[task.data["key"]]

    def step(self, call: EnvironmentCall) -> ToolObservation:
        self.log.append(call.tool)
        if call.tool == "find_key":
            key = KEYS.get(str(call.args["name"]))
            return ToolObservation({"keys": [{"id": key, "name": call.args["name"]}] if key else []})
        if call.tool == "open_safe":
            if call.args["key_id"] not in KEYS.values():
                return ToolObservation("Error: no such key.", ok=False)
            self.opened.append(str(call.args["key_id"]))
            return ToolObservation({"safe": "open"})
        if call.tool == "light_lamp":
            self.lit ^= {str(call.args["lamp_id"])}
            return ToolObservation({"lamp": sorted(self.lit)})
        return ToolObservation("Error: the bell is broken.", ok=False)

    def success(self) -> bool | None:
        return self.opened == [self.wanted] and not self.lit


class Script:
    """A policy that always proposes the same calls, with a record of what it was asked."""

    def __init__(self, *proposals: ActionProposal, pivots: Sequence[ActionProposal] = ()) -> None:
        self.proposals, self.pivots = proposals, tuple(pivots)
        self.planned: list[State] = []
        self.reflected: list[str] = []

    def plan(self, state: State) -> Goal:
        self.planned.append(state)
        return Goal("open it", len(self.planned) - 1, 2)

    def propose(self, state: State) -> Sequence[ActionProposal]:
        return self.proposals

    def reflect(self, state: State, failed: Any) -> Sequence[ActionProposal]:
        self.reflected.append(failed.call.tool)
        return self.pivots


class Keeper(Script):
    """Looks up the key that the request names and opens the safe with it."""

    def propose(self, state: State) -> Sequence[ActionProposal]:
        found = [row["id"] for each in state.path for row in each.observation.output.get("keys", ())]
        names = [name for name in KEYS if name in state.task.request]
        return [*(call("open_safe", key_id=key) for key in found), *(call("find_key", name=name) for name in names)]


def call(tool_name: str, weight: float = 1.0, /, **args: str) -> ActionProposal:
    return ActionProposal("call", weight, EnvironmentCall(tool_name, args))


# --- environments ---


class Jar:
    """Tools of all kinds, and a jar of marbles that they change."""

    def __init__(self) -> None:
        self.marbles = 7
        self.loops: list[Any] = []

    def environment(self) -> ToolsEnvironment:
        @tool
        def put(count: int) -> dict[str, int]:
            """Put marbles into the jar."""
            if count > 5:
                raise ToolException("Error: too many.")
            self.marbles += count
            return {"marbles": self.marbles}

        async def look() -> dict[str, int]:
            self.loops.append(asyncio.get_running_loop())
            return {"marbles": self.marbles}

        def smash() -> str:
            """Smash the jar."""
            raise RuntimeError("no hammer")

        async def reset(task: Task) -> None:
            self.marbles = 0

        async def success(task: Task) -> bool:
            return bool(self.marbles == task.data["marbles"])

        put.handle_tool_error = True
        tools = [put, StructuredTool.from_function(coroutine=look, description="Look into the jar."), smash]
        return ToolsEnvironment(tools, reset=reset, success=success)


MARBLES = Task("t1", "Put three marbles into the jar", {"marbles": 3})


def test_sync_and_async_tools_are_executed() -> None:
    jar = Jar()
    world = jar.environment()
    assert isinstance(world, Environment)
    world.reset(MARBLES)
    assert world.step(EnvironmentCall("put", {"count": 2})).output == {"marbles": 2}
    assert [world.step(EnvironmentCall("look", {})) for _ in range(2)] == [ToolObservation({"marbles": 2})] * 2
    assert jar.loops[0] is jar.loops[1]  # connections belong to a loop
    assert world.success() is False
    world.step(EnvironmentCall("put", {"count": 1}))
    assert world.success() is True
    world.close()
    world.close()
    with pytest.raises(ConfigurationError, match="cannot be executed"):
        ToolsEnvironment([{"name": "put", "parameters": {}}], reset=lambda _: None)


@pytest.mark.parametrize(
    ("tool_name", "args", "reason"),
    [
        ("put", {"count": 9}, "too many"),
        ("put", {"count": "many"}, "valid"),
        ("smash", {}, "no hammer"),
        ("shake", {}, "no tool 'shake'"),
    ],
)
def test_a_failed_call_is_an_observation(tool_name: str, args: dict[str, Any], reason: str) -> None:
    world = Jar().environment()
    world.reset(MARBLES)
    found = world.step(EnvironmentCall(tool_name, args))
    assert not found.ok
    assert reason in str(found.output)
    world.close()


def test_a_cursor_returns_to_a_state_by_repeating_its_calls() -> None:
    world = Rooms()
    cursor = Cursor(world, TASK)
    cursor.go(())
    one = cursor.make(EnvironmentCall("light_lamp", {"lamp_id": "a"}))
    two = cursor.make(EnvironmentCall("light_lamp", {"lamp_id": "b"}))
    assert cursor.go((one,))
    assert (world.lit, cursor.replayed) == ({"a"}, 1)
    assert cursor.go((one, two))
    assert (world.lit, cursor.explored, cursor.replayed) == ({"a", "b"}, 2, 2)
    assert not cursor.make(EnvironmentCall("ring_bell", {})).observation.ok
    assert cursor.go((one, two))  # a failed call may have changed something
    assert world.log.count("reset") == 3


class Key(BaseModel):
    id: str


def test_answers_become_json_values() -> None:
    ring: dict[str, Any] = {"id": 1}
    ring["self"] = ring
    answers: list[Any] = [{"key": Key(id="k"), "at": datetime.date(2026, 3, 1), "raw": b"x", "odd": math.nan}, ring]

    class Odd(Rooms):
        def step(self, call: EnvironmentCall) -> ToolObservation:
            return ToolObservation(answers.pop(0))

    cursor = Cursor(Odd(), TASK)
    cursor.go(())
    made = [cursor.make(EnvironmentCall("find_key", {"name": "x"})).observation.output for _ in range(2)]
    assert made[0] == {"key": {"id": "k"}, "at": "2026-03-01", "raw": "eA==", "odd": "NaN"}
    assert isinstance(made[1], str)


# --- the search ---

FIND = call("find_key", 2.0, name="Cellar")
OPEN = call("open_safe", 1.0, key_id=KEYS["Cellar"])
WRONG = call("open_safe", 4.0, key_id=KEYS["Garden"])
LAMP = call("light_lamp", 1.0, lamp_id="lamp_1")
OTHER_LAMP = call("light_lamp", 1.0, lamp_id="lamp_2")
BELL = call("ring_bell", 3.0)
READS = {"find_key"}


def search(world: Rooms, policy: Script, *, cursor: Cursor | None = None, check: Any = None, **settings: Any) -> Search:
    cursor = cursor or Cursor(world, TASK, READS)
    check = check or (lambda _state, _answer: bool(cursor.success()))
    return Search(cursor, policy, READS, check, settings=SearchSettings(**settings), rng=random.Random(0))


def test_the_reward_is_that_of_the_paper() -> None:
    settings = SearchSettings.paper()
    assert (settings.reward(1), settings.reward(9)) == pytest.approx((0.9 + 0.1 / 2, 0.9 + 0.1 / 10))
    assert SearchSettings(length_weight=1.0).reward(3) == 0.25
    assert (settings.exploration, settings.iterations, settings.depth) == (1.41, 50, 10)


def edge(prior: float, visits: int, mean: float) -> Edge:
    return Edge(BELL, prior, visits=visits, total=mean * visits)


@pytest.mark.parametrize(
    ("selection", "exploration", "edges", "visits", "best"),
    [
        ("prior", 1.41, [(0.9, 1, 0.0), (0.1, 0, 0.0)], 1, 0),
        ("ucb", 1.41, [(0.9, 1, 0.0), (0.1, 0, 0.0)], 1, 1),  # untried first
        ("ucb", 1.0, [(0.5, 8, 0.6), (0.5, 2, 0.2)], 10, 1),  # ln 10 = 2.303: 0.6 + 0.537 against 0.2 + 1.073
        ("ucb", 0.5, [(0.5, 8, 0.6), (0.5, 2, 0.2)], 10, 0),  # 0.868 against 0.737
    ],
)
def test_u_is_worked_out_by_hand(
    selection: Any, exploration: float, edges: list[tuple[float, int, float]], visits: int, best: int
) -> None:
    made = [edge(*each) for each in edges]
    settings = SearchSettings(selection=selection, exploration=exploration)
    assert select(made, visits, settings, random.Random(0)) is made[best]


def test_the_shortest_path_wins_though_the_policy_prefers_others() -> None:
    found = search(Rooms(), Script(WRONG, FIND, OPEN)).run()
    assert [each.call.key for each in found.path] == [("open_safe", '{"key_id":"key_22"}')]
    assert found.reward == SearchSettings().reward(1)


def test_states_are_equal_by_what_is_known_and_what_was_changed() -> None:
    state = State(TASK, goal=Goal("x"))
    on, off = (Transition(EnvironmentCall("set", {"to": to}), ToolObservation("ok")) for to in ("on", "off"))
    ann, bob = (Transition(EnvironmentCall("find", {"q": q}), ToolObservation({"id": q})) for q in ("ann", "bob"))
    changed = state.after(on, reads=False)
    assert changed.after(off, reads=False).key != state.after(off, reads=False).after(on, reads=False).key
    known = state.after(ann, reads=True)
    assert known.after(bob, reads=True).key == state.after(bob, reads=True).after(ann, reads=True).key
    assert known.after(ann, reads=True).key == known.key != state.key
    assert state.after(on, reads=False).after(ann, reads=True).key == known.after(on, reads=False).key


def test_cycles_end_and_orders_of_reads_share_a_node() -> None:
    found = search(Rooms(), Script(FIND, call("find_key", 1.0, name="Garden")), iterations=50).run()
    assert not found.reward
    assert found.nodes == 4  # nothing, one key, the other, both
    assert found.iterations < 20  # all was tried


def test_after_a_failure_the_pivot_is_first() -> None:
    world = Rooms()
    policy = Script(BELL, LAMP, OTHER_LAMP, pivots=[OPEN])
    assert search(world, policy, iterations=2).run().reward
    assert world.log == ["reset", "ring_bell", "reset", "open_safe"]
    assert policy.reflected == ["ring_bell"]


def test_it_can_be_stopped_and_a_task_may_be_done_already() -> None:
    with pytest.raises(StoppedError):
        search(Rooms(), Script(LAMP)).run(lambda: True)
    policy = Script(LAMP)
    outcome = search(Rooms(), policy, check=lambda *_: True).run()
    assert (outcome.reward, outcome.path, outcome.iterations, policy.planned) == (1.0, (), 0, [])


def test_plan_and_finish_are_actions() -> None:
    cursor = Cursor(Rooms(), TASK, READS)
    policy = Script(ActionProposal("plan", 3.0), OPEN, ActionProposal("finish", 1.0, answer="It is open."))
    answers: set[str] = set()

    def check(state: State, answer: str) -> bool:
        answers.add(answer)
        return bool(cursor.success())

    settings = SearchSettings(depth=2)
    found = Search(cursor, policy, READS, check, stepwise=False, settings=settings, rng=random.Random(0))
    assert found.run().answer == "It is open."
    assert answers == {"It is open."}
    assert len(policy.planned) > 1
    assert {node.state.goal.number for node in found.nodes.values()} >= {0, 1}


# --- a chat model as policy and judge ---

FAST = SearchSettings(iterations=8, depth=4, patience=0)


def answer_to(name: str, text: str) -> dict[str, Any]:
    """Answer as a sensible model: ring the bell first, then use the key from the prompt."""
    if name == "PlanAnswer":
        return {
            "analysis": "A safe is to be opened.",
            "strategy": "Find the key.",
            "steps": ["find the key", "open the safe"],
            "focus": "open the safe" if "key_" in text.split("Calls so far")[-1] else "find the key",
            "tools": ["find_key", "open_safe", "ring_bell", "no_such_tool"],
        }
    if name == "ReflectAnswer":
        pivot = {"tool": "find_key", "arguments": '{"name": "Cellar"}', "likely": 0.9}
        return {"context": "The bell was rung.", "critique": "It is broken.", "alternatives": [pivot]}
    if name == "Judgement":
        return {"why": "The safe is open.", "done": "yes" if '"safe":"open"' in text.replace(" ", "") else "no"}
    if '"safe"' in text:
        return {"thought": "Done.", "completed": True, "finished": True, "answer": "The safe is open.", "calls": []}
    known = re.search(r"key_\d+(?=\",)", text.split("Calls so far")[-1])
    calls = [{"tool": "ring_bell", "arguments": "{}", "likely": 0.9}]
    if known:
        calls = [
            {"tool": "open_safe", "arguments": json.dumps({"key_id": known[0]}), "likely": 0.9},
            {"tool": "open_safe", "arguments": "{broken", "likely": 0.9},
            {"tool": "open_safe", "arguments": '{"lamp": 1}', "likely": 0.9},
            {"tool": "fly", "arguments": "{}", "likely": 0.9},
        ]
    return {"thought": "", "completed": False, "finished": False, "answer": "", "calls": calls}


def script(messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]]) -> AIMessage:
    name = tools[0]["function"]["name"]
    said = answer_to(name, messages[-1].text)
    usage = {"input_tokens": 90, "output_tokens": 10, "total_tokens": 100}
    return AIMessage(
        "", tool_calls=[{"name": name, "args": said, "id": "c", "type": "tool_call"}], usage_metadata=usage
    )


def reply(request: dict[str, Any]) -> str:
    name = request["response_format"]["json_schema"]["name"]
    return json.dumps(answer_to(name, str(request["messages"][-1]["content"])))


class Undecided(Rooms):
    """A world that cannot tell whether the task is done."""

    def success(self) -> bool | None:
        return None


def test_a_real_client_against_a_real_server() -> None:
    with OpenAIStubServer(reply) as server:
        model = make_chat_model(server)
        with Discovery(Undecided, [TASK], model=model, judge=model, settings=FAST) as discovery:
            report = discovery.run()
            (found,) = discovery.found()
        names = [request["response_format"]["json_schema"]["name"] for request in server.requests]
    assert found.answer == "The safe is open."
    assert [each.call.tool for each in found.path] == ["find_key", "open_safe"]
    assert names == ["PlanAnswer", "ActAnswer", "ReflectAnswer", "ActAnswer", "ActAnswer", "Judgement"]
    assert report.model_calls == len(names)
    assert report.tokens == server.usage["total_tokens"]


def test_calls_that_cannot_be_made_are_dropped() -> None:
    policy = ModelPolicy(ScriptedChatModel(script=script), SPECS, dict)  # type: ignore[arg-type]
    state = State(TASK, goal=Goal("open it"))
    output = {"keys": [{"id": KEYS["Cellar"], "name": "x"}]}
    known = Transition(EnvironmentCall("find_key", {"name": "Cellar"}), ToolObservation(output))
    proposals = policy.propose(state.after(known, reads=True))
    assert [(each.call and each.call.key) for each in proposals] == [("open_safe", '{"key_id":"key_22"}')]
    plan = policy.plan(State(TASK))
    assert plan == Goal("find the key", 0, 2, ("find_key", "open_safe", "ring_bell"))
    assert policy.plan(state).number == 1


@pytest.mark.parametrize("bound", [{"model_calls": 6}, {"tokens": 550}], ids=["calls", "tokens"])
@pytest.mark.parametrize("workers", [1, 2])
def test_the_budget_holds_and_a_later_session_continues(bound: dict[str, int], workers: int, tmp_path: Path) -> None:
    tasks = [TASK, Task("t2", "Open the safe with the Garden key.", {"key": "Cellar"})]
    model, options = ScriptedChatModel(script=script), {"settings": FAST, "workers": workers}
    with Discovery(Rooms, tasks, model=model, budget=BootstrapBudget(**bound), folder=tmp_path, **options) as discovery:
        report = discovery.run()
    assert report.stopped
    assert report.done < 2
    assert 6 <= report.model_calls <= 6 + workers - 1
    with Discovery(Rooms, tasks, model=model, folder=tmp_path, **options) as discovery:
        report = discovery.run()
        whole = discovery.found()
    assert (report.done, report.stopped) == (2, "")
    with Discovery(Rooms, tasks, model=model, **options) as discovery:
        discovery.run()
        assert discovery.found() == whole


async def test_it_runs_next_to_an_event_loop() -> None:
    with Discovery(Rooms, [TASK], model=ScriptedChatModel(script=script), settings=FAST) as discovery:
        assert (await discovery.arun()).solved == 1


# --- all together ---

TASKS = [Task(f"t{n}", f"Open the safe with the {key} key.", {"key": key}) for n, key in enumerate([*KEYS, *KEYS])]


def searched(environment: Any, tasks: Sequence[Task] = TASKS, **options: Any) -> Discovery:
    return Discovery(environment, tasks, policy=Keeper(), **options)


def test_tasks_become_atoms_without_values() -> None:
    with ToolMemory.ephemeral() as memory, searched(Rooms) as discovery:
        for _ in range(2):
            report = discovery.run(memory=memory)
            assert report.atoms == len(memory.atoms.all()) == 2
        atoms = discovery.atoms()
    assert (report.tasks, report.done, report.solved) == (4, 4, 4)
    by_tool = {atom.tool: atom for atom in atoms}
    assert set(by_tool) == {"find_key", "open_safe"}
    assert {str(value)[:1] for value in by_tool["open_safe"].arguments.values()} == {"<"}
    assert not {"key_11", "key_22", "Garden", "Cellar"} & set(json.dumps(list(map(to_plain, atoms))).split('"'))
    assert 0.9 < by_tool["find_key"].value <= 1
    assert report.explored > 2


@pytest.mark.parametrize("workers", [1, 3])
def test_interrupted_and_with_any_number_of_workers_the_result_is_the_same(workers: int, tmp_path: Path) -> None:
    def stop(now: DiscoveryReport) -> None:
        if now.done >= 1:
            raise KeyboardInterrupt

    with searched(Rooms, seed=3) as alone:
        alone.run()
        expected = (alone.found(), alone.atoms())
    for options in ({"seed": 1}, {"seed": 3, "settings": SearchSettings(iterations=9)}):
        with searched(Rooms, folder=tmp_path, **options) as other:  # kept apart in the same file
            other.run()
    with searched(Rooms, seed=3, workers=workers, folder=tmp_path) as first, pytest.raises(KeyboardInterrupt):
        first.run(stop)
    file = tmp_path / "discovery.jsonl"
    file.write_bytes(file.read_bytes()[:-9])  # as a kill cuts a line short
    done: list[int] = []
    with searched(Rooms, seed=3, workers=workers, folder=tmp_path) as second:
        second.run(lambda now: done.append(now.done))
        assert (second.found(), second.atoms()) == expected
    assert done == sorted(done)
    assert done[-1] == 4
    again = Rooms()
    with searched(lambda: again, seed=3, folder=tmp_path) as third:
        assert third.run().done == 4
    assert again.log == []
    with searched(Rooms, [Task("t0", "Another request", TASKS[0].data)], seed=3, folder=tmp_path) as fourth:
        assert fourth.report().done == 0


class Broken(Rooms):
    """Its world cannot be reset for some tasks."""

    def reset(self, task: Task) -> None:
        if task.id in ("t1", "dead"):
            raise OSError("the disk is gone")
        super().reset(task)


def test_an_environment_that_always_raises_ends_it() -> None:
    task = TASKS[1]
    tasks = [Task("t1", task.request, {"key": "Cellar", "n": n}) for n in range(1)]
    tasks += [Task("dead", task.request), *(Task(f"x{n}", task.request, {}) for n in range(9))]
    with searched(Broken, tasks) as discovery:
        with pytest.raises(ToolMemoryError, match="5 searches in a row failed"):
            discovery.run()
        assert discovery.report().failed == 5


def test_arguments_that_cannot_work_are_rejected() -> None:
    class Empty(Rooms):
        tools: list[Any] = []  # noqa: RUF012

    class Raw(Rooms):
        def step(self, call: EnvironmentCall) -> Any:
            return super().step(call).output

    for make, match in [
        (lambda: Discovery(Rooms, TASKS), "model="),
        (lambda: searched(Rooms, workers=0), "workers"),
        (lambda: searched(Rooms, [TASK, TASK]), "different ids"),
        (lambda: searched(lambda: object()), "An environment needs tools"),
        (lambda: searched(Empty), "no tools"),
        (lambda: searched(Raw).run(), "must return a ToolObservation, got dict"),
        (lambda: searched(Undecided).run(), "whether a task is done"),
    ]:
        with pytest.raises(ConfigurationError, match=match):
            make()
