"""Look-ups that run while the model is asked, in real agents and graphs: as without, but sooner."""

from __future__ import annotations

import asyncio
import gc
import logging
import operator
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import openai_server
import pytest
from crowd import calling
from desk import NAMES, Desk, build, expected, script, thread
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ModelRetryMiddleware,
    ToolCallLimitMiddleware,
)
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, convert_to_messages
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolCallId, tool
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import InjectedState, ToolRuntime
from langgraph.types import Command, Send, interrupt
from openai_server import OpenAIStubServer, make_chat_model
from places import ROOT, TESTS
from shells import WAYS, App, asked, build_agent
from trained import knowing_desk
from typing_extensions import TypedDict

from langgraph_toolmem import Inertia, InertiaPolicy, Prefetch, ToolMemory
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel
from langgraph_toolmem.turn import host
from langgraph_toolmem.turn.ask import StepGenerator, Wait, drive, loop_of_run

LIKELY = Prefetch(min_probability=0.5)
"""Throws nothing away on the desk."""
READS = InertiaPolicy(never={"add_note"}, shadow=True)
"""Never makes a call itself: every call is the model's."""


def reading(*tags: str, **options: Any) -> Callable[[Callable[..., Any]], BaseTool]:
    """A tool that is marked as reading."""

    def make(function: Callable[..., Any]) -> BaseTool:
        made: BaseTool = tool(**options)(function)
        made.tags = ["read_only", *tags]
        return made

    return make


class Faulty(Desk):
    """A desk on which something happens in each call: told the tool, its arguments and how often it was called so."""

    def __init__(self, happens: Callable[[str, dict[str, Any], int], None] = lambda *_: None) -> None:
        super().__init__()
        self.happens = happens

    def did(self, tool_name: str, /, **args: Any) -> None:
        super().did(tool_name, **args)
        self.happens(tool_name, args, self.done.count((tool_name, args)))


def answering(*calls: tuple[str, dict[str, Any]]) -> Callable[[list[BaseMessage], Any], AIMessage]:
    """A model that makes these calls at once, always under the same ids, and then answers."""

    def answers(messages: list[BaseMessage], tools: Any) -> AIMessage:
        return AIMessage("Done.") if isinstance(messages[-1], ToolMessage) else calling(messages, *calls)

    return answers


def parallel(*calls: tuple[str, dict[str, Any]]) -> Any:
    return ScriptedChatModel(script=answering(*calls))


@pytest.fixture(autouse=True)
def nothing_logged_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "warned", set())


@pytest.fixture
def memory() -> Iterator[ToolMemory]:
    with knowing_desk(16, lambda folder: ToolMemory(folder, Desk().tools, [Inertia()]), "default policy") as opened:
        yield opened


def agent_of(memory: ToolMemory | None, desk: Desk | None = None, prefetch: Any = True, **options: Any) -> App:
    return build_agent(memory, desk, **{"policy": READS, "prefetch": prefetch, **options})


def told(memory: ToolMemory) -> dict[str, Any]:
    found: dict[str, Any] = memory.report().sections["inertia"].figures.get("prefetch", {})
    return found


def plain(messages: list[BaseMessage]) -> list[Any]:
    """Messages but for their ids."""
    return [
        (m.type, m.content, getattr(m, "tool_calls", None), getattr(m, "artifact", None), getattr(m, "status", None))
        for m in messages
    ]


class LastSeen(BaseCallbackHandler):
    """What a host's callbacks hear of tools and models."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.tags: list[list[str]] = []

    def on_tool_start(self, serialized: dict[str, Any], input_str: str, **kwargs: Any) -> None:
        self.events.append(f"start {serialized['name']} {input_str}")
        self.tags.append(kwargs.get("tags") or [])

    def on_tool_end(self, output: Any, **_: Any) -> None:
        self.events.append(f"end {output.content}")

    def on_chat_model_start(self, *_: Any, **__: Any) -> None:
        self.events.append("model")


@pytest.mark.parametrize("way", WAYS)
async def test_the_run_is_as_without_and_each_look_up_is_made_once(memory: ToolMemory, way: str) -> None:
    def writes(tool_name: str, args: dict[str, Any], _: int) -> None:
        get_stream_writer()({"wrote": tool_name})

    without, ahead = agent_of(None, Faulty(writes)), agent_of(memory, Faulty(writes), LIKELY)
    for number in range(3):
        heard, found = [LastSeen(), LastSeen()], []
        for agent, ear in zip((without, ahead), heard, strict=True):
            config: Any = {**thread(f"t{number}"), "callbacks": [ear]}
            modes = ["custom", "values"]
            if way == "sync":
                chunks = list(agent.graph.stream(asked(number), config, stream_mode=modes))
            else:
                chunks = [chunk async for chunk in agent.graph.astream(asked(number), config, stream_mode=modes)]
            found.append(
                [
                    plain(chunk["messages"]) if mode == "values" else chunk
                    for mode, chunk in chunks
                    if "toolmem" not in chunk
                ]
            )
        assert {"wrote": "find_customer"} in found[0]
        assert [each for n, each in enumerate(found[1]) if n == 0 or each != found[1][n - 1]] == found[0]
        assert heard[0].events == heard[1].events
        assert ["toolmem.prefetch" in tags for tags in heard[1].tags] == [True, True, False]
    assert Counter(map(str, without.desk.done)) == Counter(map(str, ahead.desk.done))
    figures = told(memory)
    assert (figures["started"], figures["served"], figures["wasted"]) == (6, 6, 0)
    assert figures["seconds_saved"] > 0


async def test_what_the_model_does_not_ask_for_is_thrown_away_unheard(memory: ToolMemory) -> None:
    def happens(tool_name: str, args: dict[str, Any], _: int) -> None:
        get_stream_writer()({"wrote": tool_name})
        GenericFakeChatModel(messages=iter([AIMessage("inner words")])).invoke("think")

    model = ScriptedChatModel(script=lambda *_: AIMessage("I would rather not."))
    agent, heard = agent_of(memory, Faulty(happens), model=model), LastSeen()
    config: Any = {**thread("t"), "callbacks": [heard]}
    found = [chunk async for chunk in agent.graph.astream(asked(1), config, stream_mode=["custom", "messages"])]
    assert heard.events == ["model"]
    assert [chunk for mode, chunk in found if mode == "custom" and "toolmem" not in chunk] == []
    assert not any("inner" in str(chunk) for mode, chunk in found if mode == "messages")
    assert (told(memory)["started"], told(memory)["wasted"]) == (1, 1)


async def test_look_ups_of_a_failed_model_call_are_begun_again_with_its_retry(memory: ToolMemory) -> None:
    failures = [ConnectionError("gone")]

    def flaky(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        if failures:
            raise failures.pop()
        return script(messages, tools)

    retry = ModelRetryMiddleware(max_retries=2, initial_delay=0.0, jitter=False)
    agent = agent_of(memory, model=ScriptedChatModel(script=flaky), before=[retry])
    state = await agent.run(1)
    assert plain(state["messages"]) == plain((await agent_of(None).run(1))["messages"])
    find, *rest = expected(NAMES[1])
    assert Counter(map(str, agent.desk.done)) == Counter(map(str, [find, find, *rest]))
    assert told(memory)["served"] == 2


# --- nobody gets another's data -------------------------------------------------------------------------------------


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("way", WAYS)
async def test_nobody_gets_what_was_looked_up_for_another(memory: ToolMemory, way: str, cached: bool) -> None:
    @reading()
    def find_customer(name: str, config: RunnableConfig) -> str:
        """Find a customer by name."""
        return str(config["configurable"]["secret"])

    model = ScriptedChatModel(script=answering(expected("Ann")[0]), cache=InMemoryCache() if cached else None)
    agent = agent_of(memory, tools=[find_customer], model=model, checkpointer=None)
    message = HumanMessage(asked(0)["messages"][0].text, id="one and the same")

    async def ask(number: int) -> str:
        config = {"configurable": {"secret": f"secret of {number}"}}
        payload = {"messages": [message]}
        if way == "sync":
            state = await asyncio.to_thread(agent.graph.invoke, payload, config)
        else:
            state = await agent.graph.ainvoke(payload, config)
        return str(state["messages"][2].content)

    answers = await asyncio.gather(*map(ask, range(24)))
    assert answers == [f"secret of {number}" for number in range(24)]
    assert told(memory)["served"] >= 12


# --- faults ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hangs", "again"), [(False, 2), (True, 1)])
async def test_a_look_up_that_fails_or_hangs_ahead_is_made_again(memory: ToolMemory, hangs: bool, again: int) -> None:
    never = threading.Event()

    def happens(tool_name: str, args: dict[str, Any], times: int) -> None:
        if times == 1 and hangs and tool_name == "find_customer":
            never.wait(20)
        elif times == 1 and not hangs and tool_name != "add_note":
            raise RuntimeError("not now")

    agent = agent_of(memory, Faulty(happens), Prefetch(timeout=0.2, workers=1) if hangs else True)
    state = await agent.run(1)
    never.set()
    assert plain(state["messages"]) == plain((await agent_of(None).run(1))["messages"])
    name = NAMES[1]
    assert Counter(map(str, agent.desk.done)) == Counter(map(str, [*expected(name), *expected(name)[:again]]))
    # The one worker hangs: nothing queues behind it.
    assert (told(memory)["started"], told(memory)["served"]) == (again, 0)


async def test_a_sync_hook_never_waits_for_the_event_loop_that_it_runs_in() -> None:
    async def look_up() -> None:
        """Work for this loop, which goes on after the hook."""

    def hook() -> StepGenerator[float]:
        began = time.monotonic()
        yield Wait(work, 5, loop)
        return time.monotonic() - began

    loop = asyncio.get_running_loop()
    work = asyncio.run_coroutine_threadsafe(look_up(), loop)
    assert drive(hook) < 1
    await asyncio.wrap_future(work)


async def test_an_async_look_up_runs_in_the_runs_own_loop_and_is_cancelled_with_it(memory: ToolMemory) -> None:
    began, cancelled, loops, inner = asyncio.Event(), asyncio.Event(), set(), set()

    @reading()
    async def find_customer(name: str) -> str:
        """Find a customer by name."""
        loops.add(asyncio.get_running_loop())
        inner.add(loop_of_run())
        began.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return name

    class Slow(ScriptedChatModel):
        async def _agenerate(self, *args: Any, **kwargs: Any) -> Any:
            await began.wait()
            if wait:
                await asyncio.sleep(30)
            return await super()._agenerate(*args, **kwargs)

    wait = False
    words = Slow(script=lambda *_: AIMessage("No."))
    await agent_of(memory, tools=[find_customer], model=words).run(1)
    await asyncio.wait_for(cancelled.wait(), 5)  # the model has answered in words
    assert loops == {asyncio.get_running_loop()}
    assert inner == {None}  # an agent that the tool calls without `await` must not wait for this loop
    wait = True
    began.clear()
    cancelled.clear()
    run = asyncio.create_task(agent_of(memory, tools=[find_customer], model=words).run(2))
    await began.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    del run
    gc.collect()
    await asyncio.wait_for(cancelled.wait(), 5)


# --- gates ----------------------------------------------------------------------------------------------------------


class Refuses(AgentMiddleware[Any, Any, Any]):
    """A permission check of the host."""

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        return ToolMessage("not allowed", tool_call_id=request.tool_call["id"], status="error")


class Looks(AgentMiddleware[Any, Any, Any]):
    def after_model(self, state: Any, runtime: Any) -> None:
        return None


@pytest.mark.parametrize(
    "gate",
    [
        Refuses(),
        Looks(),
        HumanInTheLoopMiddleware({"find_customer": True, "latest_order": True}),
        ToolCallLimitMiddleware(run_limit=0),
    ],
    ids=lambda gate: gate.name,
)
def test_nothing_runs_before_a_gate(memory: ToolMemory, gate: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        agent = agent_of(memory, outer=[gate])
        for number in range(2):
            agent.graph.invoke(asked(number), thread(f"t{number}"))
    assert told(memory) == {}
    if isinstance(gate, Looks):
        assert len(agent.desk.done) == 6
    else:
        assert agent.desk.done == []
    lines = [line for line in caplog.messages if line.startswith("prefetch has nothing to do")]
    assert len(lines) == 1
    assert "find_customer, latest_order" in lines[0]


def test_a_tool_that_is_named_runs_ahead_of_a_gate_unless_it_is_gated_itself(memory: ToolMemory) -> None:
    named = Prefetch(tools={"find_customer", "latest_order"})
    agent = agent_of(memory, prefetch=named, outer=[HumanInTheLoopMiddleware({"latest_order": True})])
    agent.graph.invoke(asked(1), thread("t"))
    agent.graph.invoke(Command(resume={"decisions": [{"type": "approve"}]}), thread("t"))
    assert set(told(memory)["by_tool"]) == {"find_customer"}
    assert Counter(map(str, agent.desk.done)) == Counter(map(str, expected(NAMES[1])))


def test_a_tool_that_asks_a_person_is_left_alone(memory: ToolMemory) -> None:
    @reading()
    def find_customer(name: str) -> str:
        """Find a customer by name."""
        return f'{{"customer_id": "{interrupt("which?")}", "name": "{name}"}}'

    agent = agent_of(memory, tools=[find_customer, *Desk().tools[1:]])
    for number in range(2):
        config = thread(f"t{number}")
        state = agent.graph.invoke(asked(number), config)
        assert state["__interrupt__"][0].value == "which?"
        state = agent.graph.invoke(Command(resume="C-9"), config)
        assert '"C-9"' in state["messages"][2].content
    assert told(memory)["by_tool"]["find_customer"]["started"] == 1
    assert told(memory)["by_tool"]["find_customer"]["served"] == 0


# --- which tools, and when ------------------------------------------------------------------------------------------


@reading()
def with_state(name: str, state: Annotated[dict[str, Any], InjectedState]) -> str:
    """Takes state."""
    return name


@reading()
def with_id(name: str, call: Annotated[str, InjectedToolCallId]) -> str:
    """Takes the id of its call."""
    return name


@reading()
def with_runtime(name: str, runtime: ToolRuntime) -> str:
    """Takes the runtime."""
    return name


@reading()
def steers(name: str) -> Command[Any]:
    """Steers."""
    return Command()


@reading("no-prefetch")
def costly(name: str) -> str:
    """Costs money."""
    return name


@reading()
def free(name: str, config: RunnableConfig) -> str:
    """Free."""
    return name


def test_the_developer_is_told_which_tools_qualify_and_why_others_do_not(
    memory: ToolMemory, caplog: pytest.LogCaptureFixture
) -> None:
    offered: list[BaseTool] = [with_state, with_id, with_runtime, steers, costly, free, *Desk().tools]
    with caplog.at_level(logging.DEBUG):
        agent = agent_of(memory, tools=offered)
        for number in range(2):
            agent.graph.invoke(asked(number), thread(f"t{number}"))
    told = {record.getMessage(): record.levelname for record in caplog.records if "refetched" in record.getMessage()}
    may, others = told
    assert may == "Prefetched while the model is asked: find_customer, free, latest_order."
    assert told == {may: "INFO", others: "DEBUG"}
    for name in ("with_state", "with_id", "with_runtime", "steers", "costly", "add_note"):
        assert name in others


def with_a_change(desk: Desk) -> list[BaseTool]:
    """The desk's tools, with a note that is marked as destructive."""
    find, order, note = desk.tools
    note.tags = ["destructive"]
    return [find, order, note]


def test_nothing_is_served_beside_a_call_that_changes_something(memory: ToolMemory) -> None:
    find, _, note = expected(NAMES[1])
    desk = Desk()
    agent = agent_of(memory, desk, model=parallel(find, note), tools=with_a_change(desk))
    agent.graph.invoke(asked(1), thread("t"))
    assert Counter(map(str, agent.desk.done))[str(find)] == 2
    assert told(memory)["served"] == 0


@pytest.mark.parametrize(("shortcut", "served"), [(False, 3), (InertiaPolicy.paper(shadow=True), 0)])
def test_look_ups_run_ahead_without_the_shortcut_and_not_under_the_papers_policy(
    memory: ToolMemory, shortcut: Any, served: int
) -> None:
    agent = agent_of(memory, tools=[free, *Desk().tools], policy=shortcut)
    state = agent.graph.invoke(asked(1), thread("t"))
    assert told(memory).get("served", 0) == served
    assert not any("toolmem" in m.additional_kwargs for m in state["messages"])


# --- in plain graphs ------------------------------------------------------------------------------------------------


class Branches(TypedDict):
    """Work for branches that run at the same time, and their answers."""

    numbers: list[int]
    number: int
    ends: Annotated[list[str], operator.add]


def graph_of(memory: ToolMemory, tools: Any, model: Any = None, *, watched: bool = True) -> Any:
    how: Any = {"policy": READS, "prefetch": LIKELY, "watched": watched, "checkpointer": InMemorySaver()}
    return build(memory, tools, model, **how)[0]


def of_user(number: int, user: str | None = "ann") -> Any:
    return {"configurable": {"thread_id": f"t{number}", **({} if user is None else {"user_id": user})}}


@pytest.mark.parametrize("made", [lambda made: made, lambda made: made.func], ids=["tools", "functions"])
async def test_a_graph_serves_where_thread_user_and_message_are_known(memory: ToolMemory, made: Any) -> None:
    desk = Desk()
    graph = graph_of(memory, list(map(made, desk.tools)))
    for number in range(3):
        state = await graph.ainvoke(asked(number), of_user(number))
        assert state["messages"][-1].text == f"The order of {NAMES[number]} is checked."
    assert Counter(map(str, desk.done)) == Counter(str(step) for n in range(3) for step in expected(NAMES[n]))
    assert (told(memory)["started"], told(memory)["served"]) == (6, 6)


def test_branches_of_one_thread_keep_what_each_other_looked_up(memory: ToolMemory) -> None:
    desk, together = Desk(), threading.Barrier(4)

    class Together(ScriptedChatModel):
        """Answers once every branch has begun its look-ups."""

        def _generate(self, *given: Any, **options: Any) -> Any:
            together.wait(timeout=30)
            return super()._generate(*given, **options)

    how: Any = {"policy": READS, "prefetch": LIKELY, "watched": True}
    branch = build(memory, desk.tools, Together(script=script), **how)[0]
    builder = StateGraph(Branches)
    builder.add_node("branch", lambda state: {"ends": [branch.invoke(asked(state["number"]))["messages"][-1].text]})
    builder.add_conditional_edges(START, lambda state: [Send("branch", {"number": n}) for n in state["numbers"]])
    graph = builder.compile(checkpointer=InMemorySaver())
    for numbers in ([0, 1, 2, 3], [4, 5, 6, 7]):
        end = graph.invoke({"numbers": numbers, "ends": []}, of_user(numbers[0]))
        assert end["ends"] == [f"The order of {NAMES[number]} is checked." for number in numbers]
    assert Counter(map(str, desk.done)) == Counter(str(step) for n in range(8) for step in expected(NAMES[n]))
    assert (told(memory)["started"], told(memory)["served"]) == (16, 16)


@pytest.mark.parametrize("user", [None, ""])
def test_a_graph_runs_nothing_ahead_where_it_is_not_known_whose_it_is(
    memory: ToolMemory, user: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        graph_of(memory, Desk().tools).invoke(asked(1), of_user(1, user))
    assert told(memory) == {}
    assert len(caplog.messages) == 1


async def test_in_graphs_nobody_gets_anothers_result(memory: ToolMemory) -> None:
    """One thread id and one call id for all: only the users differ."""

    @tool
    def find_customer(name: str, config: RunnableConfig) -> str:
        """Find a customer by name."""
        return f"secret of {config['configurable']['user_id']}"

    graphs = [graph_of(memory, [find_customer], parallel(expected("Ann")[0])) for _ in range(12)]
    message = HumanMessage(asked(0)["messages"][0].text, id="one and the same")

    async def run(number: int) -> str:
        state = await graphs[number].ainvoke({"messages": [message]}, of_user(0, f"user {number}"))
        return str(state["messages"][2].content)

    assert await asyncio.gather(*map(run, range(12))) == [f"secret of user {number}" for number in range(12)]
    assert told(memory)["served"] == 12


async def test_mcp_tools_run_in_the_loop_of_their_session(memory: ToolMemory) -> None:
    server: Any = {"transport": "stdio", "command": sys.executable, "args": [str(TESTS / "mcp_desk.py")]}
    client = MultiServerMCPClient({"desk": {**server, "cwd": str(ROOT)}})
    async with client.session("desk") as session:
        agent = agent_of(memory, tools=await load_mcp_tools(session), prefetch=LIKELY, checkpointer=None)
        state = await agent.graph.ainvoke(asked(1))
    assert state["messages"][-1].text == f"The order of {NAMES[1]} is checked."
    assert (told(memory)["started"], told(memory)["served"]) == (1, 1)


def test_a_graph_that_could_serve_nothing_runs_ahead_no_more(
    memory: ToolMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("langgraph_toolmem.inertia.prefetch.UNWATCHED_CALLS", 2)
    desk = Desk()
    graph = graph_of(memory, desk.tools, ScriptedChatModel(script=lambda *_: AIMessage("No.")), watched=False)
    for number in range(4):
        graph.invoke(asked(number), of_user(number))
    assert [name for name, _ in desk.done] == ["find_customer"] * 2


# --- streamed answers -----------------------------------------------------------------------------------------------


UNLIKELY = Prefetch(min_probability=1.0)
"""Prefetches nothing that is predicted."""


@pytest.mark.parametrize("way", WAYS)
async def test_nothing_streamed_begins_from_a_changing_call_on(memory: ToolMemory, way: str) -> None:
    find, order, note = expected(NAMES[1])
    desk = Desk()
    agent = agent_of(memory, desk, UNLIKELY, model=parallel(note, find, order), tools=with_a_change(desk))
    await agent.parts(asked(1), way, "messages", "values")
    assert Counter(map(str, desk.done)) == Counter(map(str, (note, find, order)))
    assert told(memory) == {}


@pytest.mark.parametrize("way", WAYS)
async def test_an_equal_call_since_the_user_spoke_is_not_begun_by_the_stream(memory: ToolMemory, way: str) -> None:
    find, *_ = expected(NAMES[1])

    def twice(messages: list[BaseMessage], _: Any) -> AIMessage:
        return AIMessage("Done.") if len(messages) == 5 else calling(messages, find)

    agent = agent_of(memory, None, UNLIKELY, model=ScriptedChatModel(script=twice))
    await agent.parts(asked(1), way, "messages", "values")
    assert agent.desk.done == [find, find]
    assert (told(memory)["started"], told(memory)["served"]) == (1, 1)


@pytest.mark.parametrize("way", WAYS)
async def test_a_real_chat_model_that_streams(memory: ToolMemory, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server sends the end of an answer once both look-ups have begun."""
    calls = expected("Ann")[:1] + expected("Ben")[:1]
    begun, waited = threading.Event(), []
    whole = openai_server.stream

    def slow(*args: Any, **kwargs: Any) -> Iterator[dict[str, Any]]:
        for event in whole(*args, **kwargs):
            if event["choices"] and event["choices"][0]["finish_reason"] == "tool_calls":
                waited.append(begun.wait(5))
            yield event

    def both(*_: Any) -> None:
        if len(desk.done) == 2:
            begun.set()

    desk = Faulty(both)
    monkeypatch.setattr(openai_server, "stream", slow)
    with OpenAIStubServer(reply=lambda asked: answering(*calls)(convert_to_messages(asked["messages"]), [])) as server:
        agent = agent_of(memory, desk, UNLIKELY, model=make_chat_model(server, streaming=True))
        state = await agent.run(0, way)
        await agent.model.root_async_client.close()
    assert waited == [True]
    assert sorted(map(str, desk.done)) == sorted(map(str, calls))
    assert state["messages"][-1].text == "Done."
    assert (told(memory)["started"], told(memory)["served"]) == (2, 2)


def test_the_log_says_whose_approval_the_memory_waits_for(
    memory: ToolMemory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "warned", set())
    gates = {"add_note": True}  # as for create_deep_agent(interrupt_on=...)
    with caplog.at_level(logging.INFO):
        tool_memory_middleware(memory, prefetch=True, gated=gates)
        tool_memory_middleware(memory, prefetch=True, outer=[HumanInTheLoopMiddleware({"latest_order": True})])
    said = [line for line in caplog.messages if "before its approval" in line]
    assert [line.rpartition(": ")[2] for line in said] == ["add_note.", "latest_order."]
