"""The contract of a step: in a graph and in an agent, sync and async, the same; broken, it is passed over."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, get_args

import histories as h
import pytest
from desk import EAGER, NAMES, Desk, expected, history, request, script, shortcuts
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from lessons import Lessons, LessonStep
from plugs import APART, KINDS, make, memory_of
from shells import WAYS, App, agent_of, graph_of

from langgraph_toolmem import SIT, Atoms, Entries, Inertia, Navigator, ToolMemory
from langgraph_toolmem.atoms.step import PlanHints
from langgraph_toolmem.entries.steps import Preferences, Recall, Reflection
from langgraph_toolmem.extend import Method, Step, StepNode
from langgraph_toolmem.inertia.step import Shortcut
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.navigator.deferred import RevealTools, ToolSearch
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
from langgraph_toolmem.turn.step import StepRunner

ASKED = request("Zoe")
SAID = "A note was missing."


class Plug(NamedTuple):
    """A step: its method and node, how many events it sends in a run, and options with which it says something."""

    method: type[Method]
    node: Callable[..., StepNode] | None
    events: int
    options: dict[str, Any]


def tools() -> list[Any]:
    return Desk().tools


STEPS: dict[type[Step[Any]], Plug] = {
    Shortcut: Plug(Inertia, partial(InertiaShortcut, tools=tools()), 4, {"policy": EAGER}),
    Suggest: Plug(SIT, SITSummary, 4, {}),
    RevealTools: Plug(Navigator, ToolRetriever, 1, {"tools": tools(), "search": ToolSearch(k=1)}),
    Recall: Plug(Entries, MemoryRecall, 1, {}),
    Preferences: Plug(Entries, PreferenceGuide, 1, {}),
    Reflection: Plug(Entries, ReflectionWriter, 1, {}),
    PlanHints: Plug(Atoms, SGAPlanner, 4, {}),
    LessonStep: Plug(Lessons, None, 0, {}),
}
each_step = pytest.mark.parametrize("kind", STEPS, ids=lambda kind: kind.__name__)
BUILDS = ("graph", "agent")
PAIRS = [("graph", "sync", True), ("graph", "async", False), ("agent", "sync", False), ("agent", "async", True)]
"""How an app is built and run and whether it has a saver: each two of them together, once."""


def all_steps(kind: Any = Step) -> set[Any]:
    return {each for sub in kind.__subclasses__() for each in {sub, *all_steps(sub)}}


def test_every_step_of_the_package_and_of_the_example_is_among_them() -> None:
    ours = {each for each in all_steps() if each.__module__.startswith(("langgraph_toolmem.", "lessons"))}
    assert ours == set(STEPS)
    assert {plug.method for plug in STEPS.values()} == set(KINDS)


@each_step
def test_a_step_says_what_it_is(kind: Any) -> None:
    with memory_of(None, make(STEPS[kind].method)) as memory:
        step = step_of(memory, kind)
        assert step.role
        assert step.about
        assert step.scope in get_args(Scope)
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
    node.step, node.runner = step, StepRunner(step)
    return node


def experienced(kind: Any, *, user: str | None = None, **options: Any) -> ToolMemory:
    """A memory with the step's method that has something to say: runs that went well, and some that did not."""
    base = next(each for each in kind.__mro__ if each in STEPS)
    # The navigator keeps no runs of its own: it reads those of the others.
    methods = {STEPS[base].method, *([Entries] if base is RevealTools else [])}
    memory = memory_of(None, *map(make, methods), **options)
    for number in range({Shortcut: 8, RevealTools: 8, Reflection: 0}.get(base, 4)):
        whole, bad = history(number), base in (Preferences, LessonStep)
        run = [*whole[:3], AIMessage("That was all.")] if bad else whole
        how: dict[str, Any] = {"success": not bad, "comment": SAID if bad else None, "user_id": user}
        memory.finish(run, thread_id=f"w-{number}", **how)
        if base is RevealTools:  # words that all requests share tell nothing
            other = h.history(
                h.user(f"Water plant {number} in the hall"), h.call("water", {"plant": number}), h.words()
            )
            memory.finish(other, thread_id=f"o-{number}", success=True, user_id=user)
    assert memory.flush()
    return memory


def app_of(memory: ToolMemory, kind: Any, build: str, says: Any = None, **made: Any) -> App:
    """An app with the step; `made` are options of the compiled graph or of `create_agent`."""
    desk, step = Desk(), step_of(memory, kind)
    says = says or (words if step.ends else script)
    if build == "agent":
        return agent_of(memory, desk, says, steps=[step], made=made)
    node = node_of(memory, kind, step)
    if not step.ends:
        if isinstance(node, InertiaShortcut) and kind is Shortcut:
            return graph_of(memory, desk, says, shortcut=EAGER, **made)
        return graph_of(memory, desk, says, node, more_tools=step.tools, **made)
    model, builder = ScriptedChatModel(script=says), StateGraph[Any, Any, Any, Any](MemoryState)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    node.add_to(builder)
    builder.add_edge(START, "agent")
    builder.add_edge("agent", step.role)
    builder.add_edge(step.role, END)
    return App(builder.compile(**{"checkpointer": InMemorySaver(), **made}), model, desk)


def words(messages: list[Any], offered: list[Any]) -> AIMessage:
    return AIMessage("It is checked.")


async def run(app: App, way: str, thread: str = "t", **configurable: Any) -> list[Any]:
    state = await app.ask({"messages": [HumanMessage(ASKED, id="asked")]}, way, thread=thread, **configurable)
    found: list[Any] = state["messages"]
    return found


def shown(app: App, messages: Sequence[Any]) -> tuple[Any, ...]:
    """What came of a step in a run: the hints, the tools offered, and the calls made in the model's place."""
    offered = [sorted(tool["function"]["name"] for tool in call.tools) for call in app.model.calls]
    return app.hints(), offered, len(shortcuts(messages)), len(messages)


@each_step
async def test_the_same_reaches_the_model_in_a_graph_and_an_agent_sync_and_async_with_a_saver_and_without(
    kind: Any, nothing_failed: None
) -> None:
    seen = []
    for build, way, saved in PAIRS:
        saver = InMemorySaver() if saved else None
        with experienced(kind) as memory:
            app = app_of(memory, kind, build, checkpointer=saver)
            messages = await run(app, way, thread=f"{build} {way}")
            assert memory.flush()
            entries = [each.query for each in memory.entries.recall(ASKED)] if kind is Reflection else []
            hints, offered, made, length = shown(app, messages)
            seen.append((hints, [] if kind is Reflection else offered, made, length, entries))
            assert not any(isinstance(each, SystemMessage) for each in messages), "a hint is never stored"
    assert seen[1:] == seen[:1] * 3
    hints, offered, skipped, length, entries = seen[0]
    first = {*offered[0]} if offered else set()
    told = {
        Shortcut: skipped,
        RevealTools: "add_note" in hints[0] and "add_note" not in first,
        Preferences: "find_customer" not in first,
        Reflection: entries == [ASKED],
        LessonStep: SAID in hints[0],
        PlanHints: all(hints[:3]),
    }
    assert told.get(kind, all(hints)), seen[0]
    assert length == (2 if kind is Reflection else 8)


def broken(kind: Any, point: str, failures: list[str]) -> Any:
    def fail(self: Any, *_: Any) -> Any:
        failures.append(point)
        raise RuntimeError(f"{point} is broken")

    return type(f"Broken{kind.__name__}", (kind,), {point: fail})


POINTS = [(kind, point) for kind in STEPS for point in (["on_end"] if kind.ends else ["compute", "render"])]


@pytest.mark.parametrize(("kind", "point"), POINTS)
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("way", WAYS)
async def test_a_step_that_fails_is_logged_once_and_the_model_is_called_all_the_same(
    kind: Any, point: str, build: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    failures: list[str] = []
    with memory_of(None, make(STEPS[kind].method)) as memory:
        app = app_of(memory, broken(kind, point, failures), build)
        messages = await run(app, way)
        assert (len(app.model.calls), len(messages)) == ((1, 2) if kind.ends else (4, 8))
        assert not shortcuts(messages)
        assert app.hints() == [""] * len(app.model.calls)
    assert failures
    logged = [each for each in caplog.records if each.levelno >= logging.WARNING and each.name.startswith("langgraph_")]
    assert len(logged) == 1
    assert "failed and is passed over (logged once): RuntimeError" in logged[0].getMessage()


SHOWN = {kind: plug for kind, plug in STEPS.items() if not kind.ends}
each_shown = pytest.mark.parametrize("kind", SHOWN, ids=lambda kind: kind.__name__)
ALL_WAYS = [(build, way) for build in BUILDS for way in WAYS]
LENGTH = {True: 2, False: 8}
"""Messages of a run, by whether the step is one for its end."""


async def test_where_nothing_is_known_the_request_is_as_it_was(nothing_failed: None) -> None:
    for kind in SHOWN.keys() - {RevealTools, Suggest}:  # which go by the tools' descriptions, too
        for build, way in ALL_WAYS:
            with memory_of(None, make(STEPS[kind].method)) as memory:
                app = app_of(memory, kind, build)
                messages = await run(app, way)
                plain = [sorted(each.name for each in app.desk.tools)] * 4
                assert shown(app, messages) == ([""] * 4, plain, 0, 8), (kind, build, way)


@each_step
async def test_each_decision_is_one_event_without_a_word_of_other_runs(kind: Any, nothing_failed: None) -> None:
    seen = []
    for build, way in ALL_WAYS:
        with experienced(kind) as memory:
            app = app_of(memory, kind, build)
            events = await app.events({"messages": [HumanMessage(ASKED, id="asked")]}, way, kind.role)
            assert len(events) == STEPS[kind].events, (build, way)
            assert kind is Suggest or not [name for name in NAMES if name in json.dumps(events)]
            seen.append([sorted(event) for event in events])
    assert seen[1:] == seen[:1] * 3


@each_step
async def test_a_memory_that_is_closed_stops_nobody(kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    for build, way in ALL_WAYS:
        memory = experienced(kind)
        app = app_of(memory, kind, build)
        memory.close()
        assert len(await run(app, way)) == LENGTH[kind.ends]
        assert "Error" not in "".join(app.hints())


def counting(kind: Any, looks: list[str]) -> Any:
    def compute(self: Any, call: Any) -> Any:
        looks.append(call.thread_id)
        return kind.compute(self, call)

    return type(f"Counting{kind.__name__}", (kind,), {"compute": compute})


@each_shown
async def test_it_looks_once_in_its_scope_and_anew_when_the_user_speaks(kind: Any, nothing_failed: None) -> None:
    for build, way in ALL_WAYS:
        looks: list[str] = []
        with experienced(kind) as memory:
            app = app_of(memory, counting(kind, looks), build)
            await run(app, way)
            once = 1 if kind.scope == "turn" else 4
            assert len(looks) == once, (build, way)
            await app.ask(request("Yan"), way)
            assert len(looks) == 2 * once, (build, way)


class Without(AgentMiddleware[Any, Any, Any]):
    """The host's own choice of tools."""

    def wrap_model_call(self, asked: Any, handler: Any) -> Any:
        return handler(asked.override(tools=[each for each in asked.tools if each.name != "find_customer"]))

    async def awrap_model_call(self, asked: Any, handler: Any) -> Any:
        return await handler(asked.override(tools=[each for each in asked.tools if each.name != "find_customer"]))


class Twice(AgentMiddleware[Any, Any, Any]):
    """The host's own retry: each model call is made twice."""

    def wrap_model_call(self, asked: Any, handler: Any) -> Any:
        handler(asked)
        return handler(asked)

    async def awrap_model_call(self, asked: Any, handler: Any) -> Any:
        await handler(asked)
        return await handler(asked)


@each_shown
@pytest.mark.parametrize("way", WAYS)
async def test_a_model_call_that_is_retried_gets_the_same_again(kind: Any, way: str, nothing_failed: None) -> None:
    looks: list[str] = []
    with experienced(kind) as memory:
        desk, step = Desk(), step_of(memory, counting(kind, looks))
        app = agent_of(memory, desk, script, steps=[step], outer=[Twice()])
        messages = await run(app, way)
        hints = app.hints()
        assert len(messages) == 8
        assert hints[::2] == hints[1::2]
        each_time = kind.scope == "call"
        assert len(looks) == (1 if kind.scope == "turn" else 8 if each_time else 4)


@each_shown
async def test_a_thread_that_pauses_goes_on_in_another_process_as_if_it_had_not(
    kind: Any, nothing_failed: None
) -> None:
    with experienced(kind) as memory:
        app = app_of(memory, kind, "agent")
        whole = shown(app, await run(app, "sync"))
    for build, way in ALL_WAYS:
        saver = InMemorySaver()
        with experienced(kind) as memory:
            paused = app_of(memory, kind, build, checkpointer=saver, interrupt_before=["tools"])
            await run(paused, way)
            assert not paused.desk.done
        with experienced(kind) as memory:
            app = app_of(memory, kind, build, checkpointer=saver)
            state = await app.ask(None, way)
        app.model.calls[:0] = paused.model.calls
        assert shown(app, state["messages"]) == whole, (build, way)


@each_step
async def test_users_are_kept_apart(kind: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Others, one without a name, and who had all forgotten see no word of a user's runs."""
    for build, way in ALL_WAYS:
        with experienced(kind, user="ann", namespace=APART) as memory:
            app = app_of(memory, kind, build)
            seen: dict[str, Any] = {}
            for thread, user in (("1", "ben"), ("2", None), ("3", "ann"), ("4", "ann")):
                if thread == "4":
                    assert memory.forget(user_id="ann")
                    assert memory.flush()
                app.model.calls.clear()
                messages = await run(app, way, thread, **({} if user is None else {"user_id": user}))
                assert len(messages) == LENGTH[kind.ends]
                seen[thread] = shown(app, messages)[:2]
                assert user == "ann" or not [name for name in NAMES if name in "".join(app.hints())]
            if kind in (Recall, Preferences, LessonStep):
                assert seen["1"] == seen["2"] == seen["4"] != seen["3"], (build, way)


@pytest.mark.parametrize("kind", [Shortcut, Suggest, PlanHints], ids=lambda kind: kind.__name__)
async def test_what_a_step_does_not_offer_is_neither_called_nor_suggested(kind: Any, nothing_failed: None) -> None:
    for way in WAYS:
        with experienced(kind) as memory:
            middleware = tool_memory_middleware(memory, steps=[step_of(memory, kind)], shortcut=False)
            desk, model = Desk(), ScriptedChatModel(script=script)
            app = App(create_agent(model, desk.tools, middleware=[Without(), *middleware]), model, desk)
            messages = await run(app, way)
            assert "find_customer" not in app.hints()[0]
            assert "find_customer" not in [each.tool_calls[0]["name"] for each in shortcuts(messages)]


INSIDE = [kind for kind, plug in SHOWN.items() if plug.method is not Inertia]


@pytest.mark.parametrize("kind", INSIDE, ids=lambda kind: kind.__name__)
async def test_what_the_shortcut_answers_is_not_looked_up_for(kind: Any, nothing_failed: None) -> None:
    looks: list[str] = []
    with memory_of(None, make(Inertia), make(STEPS[kind].method)) as memory:
        for number in range(12):
            memory.finish(history(number), thread_id=f"w-{number}", success=True)
        assert memory.flush()
        app = agent_of(memory, Desk(), script, steps=[step_of(memory, counting(kind, looks))], shortcut=EAGER)
        assert len(shortcuts(await run(app, "sync"))) == 3
        assert len(looks) == len(app.model.calls) == 1


@pytest.mark.parametrize("kind", [kind for kind, plug in STEPS.items() if plug.node], ids=lambda kind: kind.__name__)
def test_a_node_reads_the_messages_under_any_key_and_without_room_it_lets_the_run_go_on(
    kind: Any, nothing_failed: None
) -> None:
    asked, updates = [HumanMessage(ASKED, id="asked")], []
    for key in ("messages", "chat"):
        with experienced(kind) as memory:
            plug = STEPS[kind]
            assert plug.node
            given = {name: value for name, value in plug.options.items() if name != "policy" or kind is Shortcut}
            node = plug.node(memory, messages_key=key, **given)
            update = node.invoke({key: asked})
            told = repr({name.replace("chat", "messages"): value for name, value in (update or {}).items()})
            updates.append(re.sub(r"call_\w+", "", told))
            builder = StateGraph(MessagesState)
            plug.node(memory, **given).add_to(builder)
            builder.add_edge(START, node.role)
            assert builder.compile().invoke({"messages": asked})["messages"][:1] == asked
    assert kind.ends or len(updates[0]) > 2
    assert updates[0] == updates[1]


@each_shown
async def test_threads_side_by_side_keep_apart(kind: Any, nothing_failed: None) -> None:
    for build in BUILDS:
        with experienced(kind) as memory:
            app = app_of(memory, kind, build)
            asked = {name: app.ask(request(name), "async", thread=name) for name in (*NAMES[:3], "Zoe", "Yan")}
            states = await asyncio.gather(*asked.values())
            for name, state in zip(asked, states, strict=True):
                calls = [call for each in state["messages"] for call in getattr(each, "tool_calls", ())]
                assert [(call["name"], call["args"]) for call in calls] == expected(name)


@pytest.mark.parametrize("build", BUILDS)
async def test_an_error_of_a_tool_goes_its_way_though_the_memory_breaks_and_each_kind_is_logged_once(
    build: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Away(Desk):
        def did(self, tool_name: str, /, **args: Any) -> None:
            raise ConnectionError(f"{tool_name} is away")

    count = iter(range(100))

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"secret number {next(count)}")

    for way in WAYS:
        with memory_of(None, make(Inertia)) as memory:
            for point in ("executed", "before_model", "gave_up", "observe", "finish"):
                monkeypatch.setattr(memory.core.lifecycle, point, broken)
            app = (agent_of if build == "agent" else graph_of)(memory, Away(), script)
            caplog.clear()
            for thread in "ab":
                if build == "agent":
                    with pytest.raises(ConnectionError, match="find_customer is away"):
                        await run(app, way, thread)
                else:  # its `ToolNode` answers with the error, and the script tries each call once
                    assert "is away" in "".join(each.text for each in await run(app, way, thread))
            logged = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
            assert 1 <= len(logged) <= 3
            assert "secret" not in "".join(logged)
