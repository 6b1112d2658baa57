"""The contract of a step: in a graph and in an agent, sync and async, the same; broken, it is passed over."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple, get_args

import pytest
from desk import EAGER, Desk, history, request, script, shortcuts
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from plugs import KINDS, make, memory_of
from shells import WAYS, App, agent_of, graph_of

from examples.own_method.lessons import Lessons, LessonStep
from langgraph_toolmem import SIT, Atoms, Entries, Inertia, Navigator, ToolMemory
from langgraph_toolmem.atoms.step import PlanHints
from langgraph_toolmem.entries.steps import Preferences, Recall, Reflection
from langgraph_toolmem.extend import Method, Step, StepNode
from langgraph_toolmem.inertia.step import Shortcut
from langgraph_toolmem.navigator.step import SelectTools
from langgraph_toolmem.nodes import (
    InertiaShortcut,
    MemoryRecall,
    MemoryState,
    PreferenceGuide,
    ReflectionWriter,
    SGAPlanner,
    SITSummary,
    ToolRetriever,
)
from langgraph_toolmem.sit.step import Suggest
from langgraph_toolmem.testing import ScriptedChatModel
from langgraph_toolmem.turn.hints import Scope
from langgraph_toolmem.turn.step import Place

ASKED = request("Zoe")
SAID = "A note was missing."


class Plug(NamedTuple):
    """A step: its method, its node, and options with which it has something to say at the desk."""

    method: type[Method]
    node: Callable[..., StepNode] | None
    options: dict[str, Any]


def tools() -> list[Any]:
    return Desk().tools


STEPS: dict[type[Step[Any]], Plug] = {
    Shortcut: Plug(Inertia, InertiaShortcut, {"policy": EAGER}),
    Suggest: Plug(SIT, SITSummary, {}),
    SelectTools: Plug(Navigator, ToolRetriever, {"tools": tools(), "most": 2, "targets": 1}),
    Recall: Plug(Entries, MemoryRecall, {}),
    Preferences: Plug(Entries, PreferenceGuide, {"tools": tools(), "how": "both"}),
    Reflection: Plug(Entries, ReflectionWriter, {}),
    PlanHints: Plug(Atoms, SGAPlanner, {}),
    LessonStep: Plug(Lessons, None, {}),
}
each_step = pytest.mark.parametrize("kind", STEPS, ids=lambda kind: kind.__name__)
BUILDS = ("graph", "agent")


def all_steps(kind: Any = Step) -> set[Any]:
    return {each for sub in kind.__subclasses__() for each in {sub, *all_steps(sub)}}


def test_every_step_of_the_package_and_of_the_example_is_among_them() -> None:
    ours = {each for each in all_steps() if each.__module__.startswith(("langgraph_toolmem.", "examples.own_method."))}
    assert ours == set(STEPS)
    assert {plug.method for plug in STEPS.values()} == set(KINDS)


@each_step
def test_a_step_says_what_it_is(kind: Any) -> None:
    with memory_of(None, make(STEPS[kind].method)) as memory:
        step = step_of(memory, kind)
        assert step.role
        assert step.about
        assert step.scope in get_args(Scope)
        assert step.place in get_args(Place)
        assert step.core is memory.core
        builder: Any = StateGraph(MemoryState)
        node_of(memory, kind, step).add_to(builder)
        about = builder.nodes[step.role].metadata
        assert about == {"toolmem": step.role, "toolmem_about": step.about}


def step_of(memory: ToolMemory, kind: Any) -> Any:
    base = next(each for each in kind.__mro__ if each in STEPS)
    return kind(memory.method(STEPS[base].method.name), **STEPS[base].options)


def node_of(memory: ToolMemory, kind: Any, step: Step[Any]) -> StepNode:
    """The node of a step, with this one in it."""
    base = next(each for each in kind.__mro__ if each in STEPS)
    make_node = STEPS[base].node
    node = StepNode(step) if make_node is None else make_node(memory)
    node.step = step
    return node


def experienced(kind: Any) -> ToolMemory:
    """A memory with the step's method that has something to say: runs that went well, and some that did not."""
    base = next(each for each in kind.__mro__ if each in STEPS)
    memory = memory_of(None, make(STEPS[base].method))
    for number in range({Shortcut: 12, Reflection: 0}.get(base, 6)):
        whole, bad = history(number), base in (Preferences, LessonStep)
        run = [*whole[:3], AIMessage("That was all.")] if bad else whole
        memory.finish(run, thread_id=f"w-{number}", success=not bad, comment=SAID if bad else None)
    assert memory.flush()
    return memory


def app_of(memory: ToolMemory, kind: Any, build: str, says: Any = script) -> App:
    desk, step = Desk(), step_of(memory, kind)
    if build == "agent":
        return agent_of(memory, desk, says, steps=[step])
    node = node_of(memory, kind, step)
    if not step.ends:
        if isinstance(node, InertiaShortcut) and kind is Shortcut:
            return graph_of(memory, desk, says, shortcut=EAGER)
        return graph_of(memory, desk, says, node, more_tools=step.tools)
    model, builder = ScriptedChatModel(script=says), StateGraph[Any, Any, Any, Any](MemoryState)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    node.add_to(builder)
    builder.add_edge(START, "agent")
    builder.add_edge("agent", step.role)
    builder.add_edge(step.role, END)
    return App(builder.compile(), model, desk)


async def run(app: App, way: str) -> list[Any]:
    state = await app.ask({"messages": [HumanMessage(ASKED, id="asked")]}, way)
    found: list[Any] = state["messages"]
    return found


@each_step
async def test_the_same_reaches_the_model_in_a_graph_and_in_an_agent_sync_and_async(
    kind: Any, nothing_failed: None
) -> None:
    seen = []
    for build in BUILDS:
        for way in WAYS:
            with experienced(kind) as memory:
                app = app_of(memory, kind, build, [AIMessage("It is checked.")] if kind is Reflection else script)
                messages = await run(app, way)
                assert memory.flush()
                entries = [each.query for each in memory.entries.recall(ASKED)] if kind is Reflection else []
                offered = [sorted(tool["function"]["name"] for tool in call.tools) for call in app.model.calls]
                made = [len(shortcuts(messages)), len(messages)]
                seen.append((app.hints(), offered if kind is not Reflection else [], made, entries))
    assert seen[1:] == seen[:1] * 3
    hints, offered, (skipped, said), entries = seen[0]
    first = {*offered[0]} if offered else set()
    told = {
        Shortcut: skipped,
        SelectTools: "add_note" not in first,
        Preferences: "find_customer" not in first,
        Reflection: entries == [ASKED],
        LessonStep: SAID in hints[0],
        PlanHints: all(hints[:3]),
    }
    assert told.get(kind, all(hints)), seen[0]
    assert said == (2 if kind is Reflection else 8)


def broken(kind: Any, point: str, failures: list[str]) -> Any:
    def fail(self: Any, *_: Any) -> Any:
        failures.append(point)
        raise RuntimeError(f"{point} is broken")

    return type(f"Broken{kind.__name__}", (kind,), {point: fail})


POINTS = [(kind, point) for kind in STEPS for point in (["over"] if kind.ends else ["look", "say"])]


@pytest.mark.parametrize(("kind", "point"), POINTS)
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("way", WAYS)
async def test_a_step_that_fails_is_logged_once_and_the_model_is_called_all_the_same(
    kind: Any, point: str, build: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    failures: list[str] = []
    with memory_of(None, make(STEPS[kind].method)) as memory:
        answers = [AIMessage("It is checked.")] if kind.ends else script
        app = app_of(memory, broken(kind, point, failures), build, answers)
        messages = await run(app, way)
        assert (len(app.model.calls), len(messages)) == ((1, 2) if kind.ends else (4, 8))
        assert not shortcuts(messages)
        assert app.hints() == [""] * len(app.model.calls)
    assert failures
    logged = [each for each in caplog.records if each.levelno >= logging.WARNING and each.name.startswith("langgraph_")]
    assert len(logged) == 1
    assert "failed and is passed over (logged once): RuntimeError" in logged[0].getMessage()
