"""Environments: LangChain tools, synchronous or not, on a sandbox; a cold start's sandbox; recorded runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.tools import StructuredTool, ToolException, tool
from rooms import Script

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.offline.coldstart import Sandbox
from langgraph_toolmem.offline.discovery import (
    Discovery,
    Environment,
    EnvironmentCall,
    Proposal,
    RecordedEnvironment,
    State,
    Task,
    ToolsEnvironment,
)
from langgraph_toolmem.offline.discovery.adapters import NOT_RECORDED, of_sandbox
from langgraph_toolmem.offline.discovery.environment import Cursor
from langgraph_toolmem.runs.trajectory import parse_run

TASK = Task("t1", "Put three marbles into the jar", {"marbles": 3})


class Jar:
    def __init__(self) -> None:
        self.marbles = 0
        self.loops: list[Any] = []

    def tools(self) -> list[Any]:
        @tool
        def put(count: int) -> dict[str, int]:
            """Put marbles into the jar."""
            if count > 5:
                raise ToolException("Error: too many.")
            self.marbles += count
            return {"marbles": self.marbles}

        async def look() -> dict[str, int]:
            self.loops.append(asyncio.get_running_loop())
            await asyncio.sleep(0)
            return {"marbles": self.marbles}

        def smash() -> str:
            """Smash the jar."""
            raise RuntimeError("no hammer")

        put.handle_tool_error = True
        return [put, StructuredTool.from_function(coroutine=look, description="Look into the jar."), smash]


def jar_environment(jar: Jar, **more: Any) -> ToolsEnvironment:
    def reset(task: Task) -> None:
        jar.marbles = 0

    return ToolsEnvironment(jar.tools(), reset=reset, success=lambda task: jar.marbles == task.data["marbles"], **more)


def test_tools_are_executed_whether_they_are_synchronous_or_not() -> None:
    jar = Jar()
    world = jar_environment(jar)
    assert isinstance(world, Environment)
    world.reset(TASK)
    assert world.step(EnvironmentCall("put", {"count": 2})).output == {"marbles": 2}
    assert world.step(EnvironmentCall("look", {})).output == {"marbles": 2}
    assert world.step(EnvironmentCall("look", {})).ok
    assert jar.loops[0] is jar.loops[1]  # connections belong to a loop
    assert world.success() is False
    world.step(EnvironmentCall("put", {"count": 1}))
    assert world.success() is True
    world.reset(TASK)
    assert jar.marbles == 0
    world.close()
    world.close()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (EnvironmentCall("put", {"count": 9}), "too many"),
        (EnvironmentCall("put", {"count": "many"}), "valid"),
        (EnvironmentCall("smash", {}), "no hammer"),
        (EnvironmentCall("shake", {}), "no tool 'shake'"),
    ],
    ids=["tool error", "arguments", "raises", "unknown"],
)
def test_what_goes_wrong_is_an_observation(call: EnvironmentCall, said: str) -> None:
    world = jar_environment(Jar())
    world.reset(TASK)
    found = world.step(call)
    assert not found.ok
    assert said in str(found.output)


def test_the_sandbox_may_be_asynchronous() -> None:
    jar = Jar()

    async def reset() -> None:
        jar.marbles = 0

    async def success(task: Task) -> bool:
        return jar.marbles == 3

    world = ToolsEnvironment(jar.tools(), reset=reset, success=success)
    jar.marbles = 7
    world.reset(TASK)
    world.step(EnvironmentCall("put", {"count": 3}))
    assert world.success() is True
    world.close()


def test_a_way_back_needs_both_ends() -> None:
    with pytest.raises(ConfigurationError, match="both snapshot and restore"):
        jar_environment(Jar(), snapshot=lambda: 1)
    with pytest.raises(ConfigurationError, match="cannot be executed"):
        ToolsEnvironment([{"name": "put", "parameters": {}}], reset=lambda: None)


def test_a_cursor_goes_back_by_snapshot_or_by_making_calls_again() -> None:
    for snapshots in (False, True):
        jar = Jar()
        more: dict[str, Any] = {}
        if snapshots:
            more = {"snapshot": lambda j=jar: j.marbles, "restore": lambda kept, j=jar: setattr(j, "marbles", kept)}
        cursor = Cursor(jar_environment(jar, **more), TASK)
        cursor.reset()
        one = cursor.make(EnvironmentCall("put", {"count": 1}), reads=False)
        cursor.keep()
        two = cursor.make(EnvironmentCall("put", {"count": 2}), reads=False)
        assert cursor.success() == 1.0
        assert cursor.go((one,))
        assert jar.marbles == 1
        assert cursor.go((one, two))
        assert jar.marbles == 3
        assert cursor.steps == 2
        assert cursor.replayed == (1 if snapshots else 2)
        assert cursor.resets == (1 if snapshots else 2)
        assert cursor.go(())
        assert jar.marbles == 0


def test_the_sandbox_of_a_cold_start_can_be_searched() -> None:
    jar = Jar()
    seen: list[Any] = []

    def verdict(query: str, messages: list[Any]) -> bool:
        seen.append([message.type for message in messages])
        return query == TASK.request and jar.marbles == 3

    class Agent:
        def invoke(self, state: Any, config: Any) -> Any:
            raise AssertionError("the agent is not asked")

    sandbox = Sandbox(Agent(), tools=jar.tools(), reset=lambda: setattr(jar, "marbles", 0), verdict=verdict)
    world = of_sandbox(sandbox)
    world.reset(TASK)
    world.step(EnvironmentCall("put", {"count": 3}))
    assert world.success() is True
    assert seen == [["human", "ai", "tool"]]
    with pytest.raises(ConfigurationError, match="reset"):
        of_sandbox(Sandbox(Agent(), tools=jar.tools()))


def run(request: str, *calls: tuple[str, dict[str, Any], Any]) -> Any:
    messages: list[dict[str, Any]] = [{"role": "user", "content": request}]
    for number, (name, args, output) in enumerate(calls):
        asked = {"id": f"c{number}", "name": name, "args": args, "type": "tool_call"}
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [asked]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": str(output)},
        ]
    return parse_run(messages, thread_id=request + str(len(calls)))


SCHEMAS = [
    {"name": name, "description": about, "tags": tags, "parameters": {"type": "object", "properties": {
        key: {"type": "string", "description": text} for key, text in parameters.items()}}}
    for name, about, tags, parameters in [
        ("find_order", "Find an order of a customer.", ["read_only"], {"name": "Name of the customer."}),
        ("cancel_order", "Cancel an order.", [], {"order_id": "Id of the order."}),
        ("send_note", "Send a note.", [], {"text": "Text."}),
    ]
]  # fmt: skip
GOOD = run(
    "Cancel the order of Ann Lee",
    ("find_order", {"name": "Ann Lee"}, '{"order": {"id": "ord_77"}}'),
    ("cancel_order", {"order_id": "ord_77"}, '{"status": "cancelled"}'),
)
WRONG = run(
    "Cancel the order of Ann Lee",
    ("find_order", {"name": "Ann Lee"}, '{"order": {"id": "ord_77"}}'),
    ("send_note", {"text": "I am sorry."}, "sent"),
)


def test_recorded_runs_are_a_world() -> None:
    world = RecordedEnvironment([(GOOD, True), (WRONG, False)], SCHEMAS)
    assert isinstance(world, Environment)
    (task,) = world.tasks
    world.reset(task)
    assert [call.tool for call in world.possible()] == ["find_order"]
    assert world.step(EnvironmentCall("cancel_order", {"order_id": "ord_77"})).output == NOT_RECORDED
    found = world.step(EnvironmentCall("find_order", {"name": "Ann Lee"}))
    assert (found.ok, found.output) == (True, {"order": {"id": "ord_77"}})
    kept = world.snapshot()
    assert {call.tool for call in world.possible()} == {"cancel_order", "send_note"}
    world.step(EnvironmentCall("send_note", {"text": "I am sorry."}))
    assert world.success() is False
    world.restore(kept)
    world.step(EnvironmentCall("cancel_order", {"order_id": "ord_77"}))
    assert world.success() is True
    world.reset(Task("x", "Something nobody asked for"))
    assert world.possible() == []


def test_recorded_runs_are_searched_and_become_atoms() -> None:
    world = RecordedEnvironment([(WRONG, False), (GOOD, True)], SCHEMAS)

    class Recorded(Script):
        def propose(self, state: State, possible: Any) -> Any:
            return [Proposal("call", 1.0, each) for each in possible]

    with Discovery(world, world.tasks, policy=Recorded()) as discovery:
        report = discovery.run()
        atoms = {atom.tool: atom for atom in discovery.atoms()}
    assert (report.progress.solved, report.atoms) == (1, 2)
    assert set(atoms) == {"find_order", "cancel_order"}
    assert list(atoms["cancel_order"].arguments.values()) == ["<ORDER_ID>"]
    assert atoms["cancel_order"].origin == "search"
    assert atoms["cancel_order"].sources == ("run-1",)
    assert 0.9 < atoms["cancel_order"].value < 1
