"""Environments: LangChain tools, synchronous or not, on a sandbox; a cold start's sandbox."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.tools import StructuredTool, ToolException, tool

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.offline.coldstart import Sandbox
from langgraph_toolmem.offline.discovery import (
    Environment,
    EnvironmentCall,
    Task,
    ToolsEnvironment,
)
from langgraph_toolmem.offline.discovery.world import Cursor, of_sandbox

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
