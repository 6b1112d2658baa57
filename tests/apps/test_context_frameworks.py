"""Look-ups before the model in agents of deepagents and langgraph-supervisor: the run equals the plain one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, ModelCallLimitMiddleware, ToolCallLimitMiddleware
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from task_desk import CONTEXT, KNOWN, SHADOW, TaskDesk, memory_that_knows, shape

from langgraph_toolmem import PrefetchedContext, ToolMemory
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel, call_tool

pytestmark = pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
Build = Callable[[TaskDesk, ToolMemory, bool | PrefetchedContext], Any]


def approving(app: Any, name: str) -> dict[str, Any]:
    """Ask, approve each call that waits for it, and return what the run left."""
    config: Any = {"configurable": {"thread_id": name}, "recursion_limit": 60}
    state = app.invoke({"messages": [("user", f"Close the tasks of {name}")]}, config)
    stops: list[Any] = []
    while state.get("__interrupt__"):
        [stop] = state["__interrupt__"]
        stops.append([request["name"] for request in stop.value["action_requests"]])
        decisions = [{"type": "approve"}] * len(stop.value["action_requests"])
        state = app.invoke(Command(resume={"decisions": decisions}), config)
    kept = app.get_state(config)
    return {
        "stops": stops,
        "history": shape(kept.values["messages"]),
        "checkpoints": len(list(app.get_state_history(config))),
        "limits": {name: value for name, value in kept.values.items() if name.endswith("_count")},
        "files": kept.values.get("files"),
    }


def compared(
    build: Build, learned: Callable[[TaskDesk], ToolMemory], prepare: Callable[[TaskDesk], None] | None = None
) -> tuple[list[Any], list[int]]:
    """Return what the run left without look-ups before the model and with them, and how often the model was asked."""
    left, asked = [], []
    for context in (False, CONTEXT):
        desk = TaskDesk()
        memory = learned(desk)
        if prepare is not None:
            prepare(desk)
        app = build(desk, memory, context)
        desk.ran.clear()
        before = len(desk.model.calls)
        left.append({**approving(app, "Zoe"), "executed": list(desk.ran)})
        asked.append(len(desk.model.calls) - before)
    return left, asked


# --- deepagents ---


def deep(**options: Any) -> Build:
    """Return how a deep agent is built."""
    deepagents = pytest.importorskip("deepagents")
    gated = options.get("interrupt_on", {})

    def build(desk: TaskDesk, memory: ToolMemory, context: bool | PrefetchedContext) -> Any:
        middleware = tool_memory_middleware(memory, outer=[], gated=gated, shortcut=SHADOW, context=context)
        return deepagents.create_deep_agent(
            desk.model, desk.tools(), middleware=middleware, checkpointer=InMemorySaver(), **options
        )

    return build


@pytest.mark.parametrize(
    ("options", "saved", "stops"),
    [
        ({}, 2, []),
        ({"interrupt_on": {"close_tasks": True}}, 2, [["close_tasks"]]),
        ({"interrupt_on": {"list_tasks": True}}, 1, [["list_tasks"]]),
        ({"system_prompt": "Close tasks.", "name": "clerk"}, 2, []),
    ],
    ids=["plain", "approved change", "approved look-up", "prompt and name"],
)
def test_deep_agent(options: dict[str, Any], saved: int, stops: list[Any]) -> None:
    (plain, with_context), asked = compared(deep(**options), memory_that_knows)
    assert with_context == plain
    assert plain["stops"] == stops
    assert asked == [4, 4 - saved]


def test_a_result_that_a_deep_agent_moves_into_a_file_is_not_used() -> None:
    def prepare(desk: TaskDesk) -> None:
        desk.result = "%s " + "words " * 40_000

    (plain, with_context), asked = compared(deep(), memory_that_knows, prepare)
    for left in (plain, with_context):
        assert len(left["files"]) == 1, "the long result went to a file"
        assert max(len(text) for _, _, text, *_ in left["history"]) < 5_000
    # The texts differ: the file is named after the id of the call.
    named = [[(kind, name, calls) for kind, name, _, calls, _ in left["history"]] for left in (plain, with_context)]
    assert named[0] == named[1]
    assert plain["checkpoints"] == with_context["checkpoints"]
    assert with_context["executed"] == [*plain["executed"][:1], *plain["executed"][1:2] * 2, *plain["executed"][2:]]
    assert asked == [4, 3], "the short look-up before it is made"


def test_subagent_of_a_deep_agent() -> None:
    """The memory is at the model of a subagent, which a task of the main agent starts."""
    deepagents = pytest.importorskip("deepagents")

    def build(desk: TaskDesk, memory: ToolMemory, context: bool | PrefetchedContext) -> Any:
        clerk = {
            "name": "clerk",
            "description": "Closes tasks.",
            "system_prompt": "Close tasks.",
            "model": desk.model,
            "tools": desk.tools(),
            "middleware": tool_memory_middleware(memory, outer=[], shortcut=SHADOW, context=context),
        }
        main = ScriptedChatModel(script=main_answer)
        return deepagents.create_deep_agent(main, [], subagents=[clerk], checkpointer=InMemorySaver())

    def main_answer(messages: list[BaseMessage], _: Any) -> AIMessage:
        if isinstance(messages[-1], ToolMessage):
            return AIMessage("All done.")
        return call_tool("task", description=messages[-1].text, subagent_type="clerk")

    (plain, with_context), asked = compared(build, memory_that_knows)
    assert with_context == plain
    assert [name for name, _ in plain["executed"]] == ["find_person", "list_tasks", "close_tasks"]
    assert asked == [4, 2]


# --- langgraph-supervisor ---


def supervised(outer: Callable[[], list[Any]] = list, **options: Any) -> Build:
    """Return how a supervisor with one clerk is built."""
    supervisor = pytest.importorskip("langgraph_supervisor")

    def build(desk: TaskDesk, memory: ToolMemory, context: bool | PrefetchedContext) -> Any:
        middleware = tool_memory_middleware(memory, outer=outer(), shortcut=SHADOW, context=context)
        clerk = create_agent(desk.model, desk.tools(), middleware=middleware, name="clerk")
        boss = ScriptedChatModel(script=boss_answer)
        app = supervisor.create_supervisor([clerk], model=boss, **options)
        return app.compile(checkpointer=InMemorySaver())

    return build


def boss_answer(messages: list[BaseMessage], _: Any) -> AIMessage:
    """Return what the supervisor does: hand over, and end once the clerk is back."""
    latest = max(index for index, message in enumerate(messages) if message.type == "human")
    handed = any(getattr(message, "name", None) == "transfer_to_clerk" for message in messages[latest:])
    return AIMessage("All done.") if handed else call_tool("transfer_to_clerk")


def learned_at(build: Build) -> Callable[[TaskDesk], ToolMemory]:
    """Return how a memory learns the requests of `KNOWN` in the app itself, where each follows a handoff."""

    def learned(desk: TaskDesk) -> ToolMemory:
        memory = ToolMemory.ephemeral(reads={"find_person", "list_tasks"})
        app = build(desk, memory, False)
        for name in KNOWN:
            approving(app, name)
        return memory

    return learned


SUPERVISED: list[Any] = [
    (list, {}, []),
    (list, {"output_mode": "full_history"}, []),
    (lambda: [HumanInTheLoopMiddleware({"close_tasks": True})], {}, [["close_tasks"]]),
    (lambda: [ToolCallLimitMiddleware(tool_name="close_tasks", run_limit=1)], {}, []),
    (lambda: [ModelCallLimitMiddleware(run_limit=9, exit_behavior="end")], {}, []),
]
WAYS = ["last message", "full history", "approved change", "one tool limited", "model calls limited"]


@pytest.mark.parametrize(("outer", "options", "stops"), SUPERVISED, ids=WAYS)
def test_agent_of_a_supervisor(outer: Callable[[], list[Any]], options: dict[str, Any], stops: list[Any]) -> None:
    """The first look-up follows a handoff, which may change what it reads: only the second is made early."""
    build = supervised(outer, **options)
    (plain, with_context), asked = compared(build, learned_at(build))
    assert with_context == plain
    assert plain["stops"] == stops
    assert asked == [4, 3]
