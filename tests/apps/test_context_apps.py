"""Look-ups before the model: the run equals the plain one, and the model is asked less."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    HumanInTheLoopMiddleware,
    ModelCallLimitMiddleware,
    PIIMiddleware,
    SummarizationMiddleware,
    ToolCallLimitMiddleware,
    ToolRetryMiddleware,
    after_model,
    dynamic_prompt,
)
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage, convert_to_messages
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt
from openai_server import OpenAIStubServer, make_chat_model
from pydantic import BaseModel
from task_desk import CONTEXT, SHADOW, TaskDesk, memory_that_knows, reading_memory, shape, teach

from langgraph_toolmem import PrefetchedContext, ToolMemory
from langgraph_toolmem.inertia.exchange import HEAD
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.models import with_tool_memory
from langgraph_toolmem.nodes import Recorder
from langgraph_toolmem.testing import ScriptedChatModel, call_tool
from langgraph_toolmem.turn import host


class Done(BaseModel):
    """The end."""

    done: bool


class Compared:
    """One agent without the look-ups, and one with them."""

    def __init__(
        self,
        outer: Callable[[], list[Any]] = list,
        *,
        context: bool | PrefetchedContext = CONTEXT,
        tool_options: dict[str, Any] | None = None,
        prepare: Callable[[TaskDesk], None] = lambda desk: None,
        **options: Any,
    ) -> None:
        self.desks, self.agents, self.prepare = [TaskDesk(), TaskDesk()], list[Any](), prepare
        for desk, how in zip(self.desks, (False, context), strict=True):
            memory = memory_that_knows()
            middleware = tool_memory_middleware(memory, outer=outer(), shortcut=SHADOW, context=how)
            self.agents.append(
                create_agent(
                    desk.model,
                    desk.tools(**(tool_options or {})),
                    middleware=middleware,
                    checkpointer=InMemorySaver(),
                    name="clerk",
                    **options,
                )
            )

    def run(self, do: Callable[[Any, Any], Any] | None = None) -> tuple[Any, Any]:
        """Return what both runs did: what `do` returns, the history, the executions and the number of checkpoints."""
        found = []
        for agent, desk in zip(self.agents, self.desks, strict=True):
            self.prepare(desk)
            config: Any = {"configurable": {"thread_id": "new"}, "recursion_limit": 40}
            try:
                result = do(agent, config) if do is not None else ask(agent, config)
            except Exception as error:  # noqa: BLE001 - compared
                result = repr(error)
            state = agent.get_state(config)
            found.append(
                {
                    "result": result,
                    "history": shape(state.values["messages"]),
                    "executed": list(desk.ran),
                    "checkpoints": len(list(agent.get_state_history(config))),
                    "next": state.next,
                    "limits": {name: value for name, value in state.values.items() if name.endswith("_count")},
                    "out": state.values.get("structured_response"),
                }
            )
        return found[0], found[1]

    @property
    def asked(self) -> tuple[int, int]:
        """Return how often both models were asked."""
        return len(self.desks[0].model.calls), len(self.desks[1].model.calls)


REQUEST: Any = {"messages": [("user", "Close the tasks of Zoe")]}


def ask(agent: Any, config: Any) -> None:
    """Ask once."""
    agent.invoke(REQUEST, config)


def approve(agent: Any, config: Any) -> list[bool]:
    """Ask, and approve whatever is to be approved."""
    paused = []
    state = agent.invoke(REQUEST, config)
    while state.get("__interrupt__"):
        paused.append(True)
        state = agent.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config)
    return paused


def reject_first(agent: Any, config: Any) -> list[str]:
    """Ask, and reject the first call that is to be approved."""
    agent.invoke(REQUEST, config)
    agent.invoke(Command(resume={"decisions": [{"type": "reject", "message": "Not now."}]}), config)
    return []


def steps_before_tools(agent: Any, config: Any) -> int:
    """Ask, and go on at each stop."""
    agent.invoke(REQUEST, config)
    stops = 0
    while agent.get_state(config).next:
        stops += 1
        agent.invoke(None, config)
    return stops


def updates(agent: Any, config: Any) -> list[Any]:
    """Ask with a stream of updates."""
    found = []
    for update in agent.stream(REQUEST, config, stream_mode="updates"):
        for node, values in update.items():
            found.append((node, shape((values or {}).get("messages", []))))
    return found


def asked_async(agent: Any, config: Any) -> None:
    """Ask in async code."""
    asyncio.run(agent.ainvoke(REQUEST, config))


@dynamic_prompt
def prompt(request: Any) -> str:
    """A system prompt."""
    return f"There are tasks. {len(request.tools)} tools."


@dynamic_prompt
def prompt_with_the_time(request: Any) -> str:
    """As the templates of LangGraph write it."""
    return f"There are tasks. System time: {datetime.now(timezone.utc).isoformat()}"


def human(*tools: str) -> Any:
    return HumanInTheLoopMiddleware(interrupt_on=dict.fromkeys(tools, True))


def summaries() -> Any:
    model = ScriptedChatModel(script=lambda messages, tools: AIMessage("Close the tasks of Zoe"))
    return SummarizationMiddleware(model=model, trigger=("messages", 40), keep=("messages", 20))


SAVED = [
    ("plain", list, None, 2),
    ("approved change", lambda: [human("close_tasks")], approve, 2),
    ("rejected change", lambda: [human("close_tasks")], reject_first, 2),
    ("approved look-up", lambda: [human("list_tasks")], approve, 1),
    ("rejected look-up", lambda: [human("list_tasks")], reject_first, 1),
    ("one tool limited", lambda: [ToolCallLimitMiddleware(tool_name="close_tasks", run_limit=1)], None, 2),
    ("model calls limited", lambda: [ModelCallLimitMiddleware(run_limit=3, exit_behavior="end")], None, 2),
    ("retries", lambda: [ToolRetryMiddleware(max_retries=2, initial_delay=0, jitter=False)], None, 2),
    ("prompt", lambda: [prompt], None, 2),
    ("prompt with the time", lambda: [prompt_with_the_time], None, 2),
    ("redacted requests", lambda: [PIIMiddleware("email")], None, 2),
    ("summaries", lambda: [summaries()], None, 2),
    ("updates", list, updates, 2),
    ("async", list, asked_async, 2),
]


@pytest.mark.parametrize(("outer", "do", "saved"), [case[1:] for case in SAVED], ids=[case[0] for case in SAVED])
def test_equals_the_plain_run(outer: Any, do: Any, saved: int) -> None:
    compared = Compared(outer)
    plain, with_context = compared.run(do)
    assert with_context == plain
    alone, asked = compared.asked
    assert alone - asked == saved


def test_a_sync_call_in_async_code_waits_for_its_look_ups() -> None:
    """As in a notebook or an async handler: without the wait, each look-up was executed twice and saved nothing."""

    def in_async_code(agent: Any, config: Any) -> None:
        async def handle() -> None:
            ask(agent, config)

        asyncio.run(handle())

    def slow(desk: TaskDesk) -> None:
        desk.seconds = 0.05

    compared = Compared(prepare=slow)
    plain, with_context = compared.run(in_async_code)
    assert with_context == plain
    alone, asked = compared.asked
    assert alone - asked == 2


def test_stops_before_each_tool() -> None:
    compared = Compared(interrupt_before=["tools"])
    plain, with_context = compared.run(steps_before_tools)
    assert with_context == plain
    assert plain["result"] == 3
    assert compared.asked == (4, 2)


def person_between(approval: Callable[[], Any], desk: TaskDesk, memory: ToolMemory) -> Any:
    """Return a plain graph in which somebody approves every tool call in a node of its own, unseen by the memory."""
    recorder, tools = Recorder(memory), desk.tools()
    model = with_tool_memory(desk.model, memory, tools=tools, shortcut=SHADOW, context=CONTEXT).bind_tools(tools)

    def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", think)
    graph.add_node("approval", lambda state: approval())
    graph.add_node("tools", ToolNode(tools, wrap_tool_call=recorder.wrap_tool_call))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition, {"tools": "approval", "__end__": "__end__"})
    graph.add_edge("approval", "tools")
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=InMemorySaver())


def run_through(app: Any, thread: str, desk: TaskDesk) -> list[str]:
    """Run to the end; return what was executed before the pause in which its call was seen."""
    config: Any = {"configurable": {"thread_id": thread}}
    desk.ran.clear()
    app.invoke(REQUEST, config)
    early = []
    while app.get_state(config).next:
        last = app.get_state(config).values["messages"][-1]
        done = len([m for m in app.get_state(config).values["messages"] if isinstance(m, ToolMessage)])
        early += [call["name"] for call in last.tool_calls if len(desk.ran) > done]
        go_on = Command(resume="yes") if app.get_state(config).interrupts else None
        app.invoke(go_on, config)
    return early


def test_the_report_does_not_say_that_look_ups_before_the_model_saved_nothing() -> None:
    desk, memory = TaskDesk(), memory_that_knows()
    middleware = tool_memory_middleware(memory, outer=[], context=CONTEXT)
    app = create_agent(desk.model, desk.tools(), middleware=middleware, checkpointer=InMemorySaver())
    for number in range(6):
        ask(app, {"configurable": {"thread_id": f"{number}"}})
    report = memory.report()
    assert report["inertia"]["context"]["saved"] > 0
    assert "It saved" not in str(report)
    whys = {each["tool"]: each["why"] for each in report["inertia"]["unskipped"]}
    assert whys["find_person"] == whys["list_tasks"]
    assert whys["list_tasks"].startswith("its look-ups are made before the model")


@pytest.mark.parametrize("pause", ["interrupt_before", "a node that asks a person"])
def test_a_pause_before_a_call_withdraws_its_look_up(pause: str) -> None:
    """What the graph does between the model and its tools cannot be seen. One pause shows it."""
    desk, memory = TaskDesk(), reading_memory()
    teach(memory)  # in this process: in a new one, the first request looks up one call less
    if pause == "interrupt_before":
        middleware = tool_memory_middleware(memory, outer=[], shortcut=SHADOW, context=CONTEXT)
        options: Any = {"checkpointer": InMemorySaver(), "interrupt_before": ["tools"]}
        app = create_agent(desk.model, desk.tools(), middleware=middleware, **options)
    else:
        app = person_between(lambda: interrupt("May it?") and {}, desk, memory)
    early = [run_through(app, f"{n}", desk) for n in range(4)]
    assert early[0], "nothing was looked up: the test shows nothing"
    assert early[1:] == [[], [], []]
    assert memory.report()


def test_no_pause_withdraws_nothing() -> None:
    desk = TaskDesk()
    memory = memory_that_knows()
    app = person_between(dict, desk, memory)
    asked = []
    for n in range(4):
        before = len(desk.model.calls)
        assert run_through(app, f"{n}", desk) == []
        asked.append(len(desk.model.calls) - before)
    assert asked[-1] == 2


OFF = [
    ("all calls limited", lambda: [ToolCallLimitMiddleware(run_limit=2, exit_behavior="continue")]),
    ("redacted results", lambda: [PIIMiddleware("email", apply_to_tool_results=True)]),
    ("unknown", lambda: [Unknown()]),
    ("after the model", lambda: [unknown_after]),
]


class Unknown(AgentMiddleware[Any, Any, Any]):
    """Wraps tool calls."""

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        """Shorten the result."""
        return handler(request)


@after_model
def unknown_after(state: Any, runtime: Any) -> None:
    """Look at the answer."""


@pytest.mark.parametrize("outer", [case[1] for case in OFF], ids=[case[0] for case in OFF])
def test_what_may_change_a_result_or_stop_a_call_turns_it_off(outer: Any) -> None:
    compared = Compared(outer)
    plain, with_context = compared.run()
    assert with_context == plain
    assert compared.asked[0] == compared.asked[1]


def test_direct_return() -> None:
    compared = Compared(tool_options={"return_direct": True})
    plain, with_context = compared.run()
    assert with_context == plain
    assert compared.asked == (2, 1)


@pytest.mark.parametrize("strategy", [ToolStrategy, ProviderStrategy])
def test_structured_answer(strategy: Any) -> None:
    def prepare(desk: TaskDesk) -> None:
        by_tool = strategy is ToolStrategy
        desk.last = lambda: call_tool("Done", done=True) if by_tool else AIMessage('{"done": true}')

    compared = Compared(prepare=prepare, response_format=strategy(Done))
    plain, with_context = compared.run()
    assert with_context == plain
    assert plain["out"] == Done(done=True)


def test_edited_results_of_the_history_ask_anew() -> None:
    """Clearing old results changes the request, so the kept answer is not given for it."""
    compared = Compared(lambda: [ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=1, keep=1)])])
    plain, with_context = compared.run()
    assert with_context == plain


def test_an_edited_call_is_executed() -> None:
    class Edits(AgentMiddleware[Any, Any, Any]):
        def after_model(self, state: Any, runtime: Any) -> Any:
            last = state["messages"][-1]
            calls = [
                {**call, "args": {"person_id": "P-Bob"}} for call in last.tool_calls if call["name"] == "list_tasks"
            ]
            return {"messages": [last.model_copy(update={"tool_calls": calls})]} if calls else None

    named = PrefetchedContext(held_out=0, tools=frozenset({"find_person", "list_tasks"}))
    compared = Compared(lambda: [Edits()], context=named)
    plain, with_context = compared.run()
    assert with_context["history"] == plain["history"]
    assert ("list_tasks", "P-Bob") in with_context["executed"]
    assert compared.asked[1] < compared.asked[0]


def test_a_failing_look_up_is_left_to_the_graph() -> None:
    def prepare(desk: TaskDesk) -> None:
        desk.fails = 2

    compared = Compared(prepare=prepare)
    plain, with_context = compared.run()
    assert plain["result"] == with_context["result"] == "RuntimeError('the list is down')"
    assert with_context["history"] == plain["history"]


def test_a_long_result_is_not_used() -> None:
    def prepare(desk: TaskDesk) -> None:
        desk.result = "x" * 20_000 + "%s"

    compared = Compared(prepare=prepare)
    plain, with_context = compared.run()
    assert with_context["history"] == plain["history"]
    reads = [len(message.text) for message in compared.desks[1].model.calls[0].messages]
    assert max(reads) < 1000


def test_a_refused_exchange_is_asked_without_it() -> None:
    def prepare(desk: TaskDesk) -> None:
        desk.refuses = True

    compared = Compared(prepare=prepare)
    plain, with_context = compared.run()
    assert with_context["history"] == plain["history"]


@pytest.mark.parametrize(
    ("as_data", "takes", "requests", "saved"),
    [(None, "data", 1, 2), (None, "nothing", 2, 0), (False, "data", 1, 0), (True, "data", 0, 2)],
    ids=["then as data", "nothing at all", "no data wanted", "data at once"],
)
def test_a_provider_that_refuses_turns_of_others(as_data: bool | None, takes: str, requests: int, saved: int) -> None:
    """A real client and real HTTP: 400 for a turn that the model did not make, and for quoted data too."""
    shapes = []
    for context in (False, PrefetchedContext(held_out=0, as_data=as_data)):
        desk, refused = TaskDesk(), list[str]()
        with OpenAIStubServer(reply=PickyProvider(desk, takes, refused)) as server:
            memory = memory_that_knows()
            agent = create_agent(
                make_chat_model(server),
                desk.tools(),
                middleware=tool_memory_middleware(memory, outer=[], shortcut=SHADOW, context=context),
                checkpointer=InMemorySaver(),
            )
            asked = []
            for name in ("Zoe", "Yan"):
                config: Any = {"configurable": {"thread_id": name}}
                before = len(server.requests)
                state = agent.invoke({"messages": [("user", f"Close the tasks of {name}")]}, config)
                shapes.append((shape(state["messages"]), len(list(agent.get_state_history(config)))))
                asked.append(len(server.requests) - before)
        if context is False:
            assert asked == [4, 4]
        else:
            assert len(refused) == requests, "a provider is tried once"
            assert asked == [4 - saved + requests, 4 - saved]
    assert shapes[:2] == shapes[2:]


class PickyProvider:
    """Knows the calls that it made, and refuses requests with others.

    Args:
        desk: what its model does.
        takes: "data" if it reads quoted data, "nothing" if it refuses that too.
        refused: the reasons, in order.
    """

    def __init__(self, desk: TaskDesk, takes: str, refused: list[str]) -> None:
        self.desk, self.takes, self.refused = desk, takes, refused
        self.own: set[str] = set()

    def __call__(self, request: dict[str, Any]) -> AIMessage:
        """Answer, or raise what the server sends as a 400."""
        messages = convert_to_messages([self._read(each) for each in request["messages"]])
        foreign = [call["id"] for each in messages for call in getattr(each, "tool_calls", ())]
        if not self.own.issuperset(foreign):
            self._refuse("a turn that the model did not make")
        if self.takes == "nothing" and any(each.text.startswith(HEAD) for each in messages):
            self._refuse("quoted data")
        answer = self.desk.answer(self._unquoted(messages), None)
        for number, call in enumerate(answer.tool_calls):
            call["id"] = f"own-{len(self.own)}-{number}"
        self.own.update(str(call["id"]) for call in answer.tool_calls)
        return answer

    def _refuse(self, reason: str) -> None:
        self.refused.append(reason)
        raise ValueError(reason)

    @staticmethod
    def _read(message: dict[str, Any]) -> dict[str, Any]:
        return {**message, "content": message.get("content") or ""}

    @staticmethod
    def _unquoted(messages: list[BaseMessage]) -> list[BaseMessage]:
        """Return the messages as the model understands them: quoted calls are calls that were made."""
        found: list[BaseMessage] = []
        for message in messages:
            if not message.text.startswith(HEAD):
                found.append(message)
                continue
            for line in message.text.split("\n")[1:]:
                call = json.loads(line)
                found.append(call_tool(call["tool"], **call["arguments"]))
        return found


def test_an_edited_result_asks_anew() -> None:
    compared = Compared()
    compared.run()
    agent, desk = compared.agents[1], compared.desks[1]
    config: Any = {"configurable": {"thread_id": "new"}}
    states = list(agent.get_state_history(config))
    after_first = next(state for state in reversed(states) if len(state.values.get("messages", ())) == 3)
    result = after_first.values["messages"][-1]
    other = ToolMessage(
        json.dumps({"person_id": "P-Ann"}), tool_call_id=result.tool_call_id, id=result.id, name=result.name
    )
    fork = agent.update_state(after_first.config, {"messages": [other]})
    before = len(desk.model.calls)
    state = agent.invoke(None, fork)
    assert state["messages"][2].text == other.text
    assert len(desk.model.calls) > before


def test_no_token_of_the_answer_before_its_calls() -> None:
    compared = Compared()
    agent, config = compared.agents[1], {"configurable": {"thread_id": "new"}}
    seen: list[str] = []
    for message, _ in agent.stream(REQUEST, config, stream_mode="messages"):
        kind = message.tool_call_chunks if hasattr(message, "tool_call_chunks") else getattr(message, "tool_calls", [])
        seen += [call["name"] for call in kind if call["name"]] or [message.type[:2] + ":" + message.text[:4]]
    names = [each for each in seen if each in ("find_person", "list_tasks", "close_tasks")]
    assert names == ["find_person", "list_tasks", "close_tasks"]
    assert compared.asked[1] == 2


# --- a wrapped model in a graph of one's own ---


def graph_of(desk: TaskDesk, memory: ToolMemory, context: bool | PrefetchedContext) -> Any:
    tools, recorder = desk.tools(), Recorder(memory)
    model = with_tool_memory(desk.model, memory, tools=tools, shortcut=SHADOW, context=context).bind_tools(tools)

    def agent(state: MessagesState) -> Any:
        return {"messages": [model.invoke(state["messages"])]}

    async def aagent(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    from langchain_core.runnables import RunnableLambda

    builder = StateGraph(MessagesState)
    builder.add_node("agent", RunnableLambda(agent, aagent))
    node = ToolNode(tools, wrap_tool_call=recorder.wrap_tool_call, awrap_tool_call=recorder.awrap_tool_call)
    builder.add_node("tools", node)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return builder.compile(checkpointer=InMemorySaver())


@pytest.mark.parametrize("how", ["invoke", "async", "messages"])
def test_wrapped_model(how: str) -> None:
    found = []
    for context in (False, CONTEXT):
        desk = TaskDesk()
        memory = memory_that_knows()
        graph, config = graph_of(desk, memory, context), {"configurable": {"thread_id": "new"}}
        graph.invoke({"messages": [("user", "Close the tasks of Ann")]}, {"configurable": {"thread_id": "first"}})
        desk.ran.clear()
        before = len(desk.model.calls)
        if how == "invoke":
            graph.invoke(REQUEST, config)
        elif how == "async":
            asyncio.run(graph.ainvoke(REQUEST, config))
        else:
            list(graph.stream(REQUEST, config, stream_mode="messages"))
        state = graph.get_state(config).values["messages"]
        found.append((shape(state), list(desk.ran), len(list(graph.get_state_history(config)))))
        asked = len(desk.model.calls) - before
        assert asked == (2 if context else 4)
    assert found[0] == found[1]


def test_tools_that_are_made_twice_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A function that makes the tools is called for the model and again for the ToolNode."""
    monkeypatch.setattr(host, "warned", set())
    desk, memory = TaskDesk(), memory_that_knows()
    made, made_again = desk.tools(), desk.tools()
    agent = with_tool_memory(desk.model, memory, tools=made, shortcut=SHADOW, context=CONTEXT).bind_tools(made)
    recorder = Recorder(memory)
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [agent.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode(made_again, wrap_tool_call=recorder.wrap_tool_call))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    graph = builder.compile(checkpointer=InMemorySaver())
    for thread in ("first", "second"):
        graph.invoke(REQUEST, {"configurable": {"thread_id": thread}})
    assert "A result of find_person was prefetched and not served" in caplog.text


@pytest.mark.parametrize("option", ["context", "prefetch"])
def test_tools_without_a_recorder_are_warned_of_also_where_results_have_no_name(
    option: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The functional API executes tools in tasks of its own, which often leave out the name of a result."""
    monkeypatch.setattr(host, "warned", set())
    desk, memory = TaskDesk(), memory_that_knows()
    tools = {made.name: made for made in desk.tools()}
    options: Any = {"shortcut": SHADOW, option: True}
    model = with_tool_memory(desk.model, memory, tools=tools.values(), **options).bind_tools(list(tools.values()))

    @entrypoint(checkpointer=InMemorySaver())
    def agent(messages: list[BaseMessage]) -> str:
        while True:
            answer = model.invoke(messages)
            if not answer.tool_calls:
                return str(answer.text)
            messages = [*messages, answer]
            for call in answer.tool_calls:
                messages.append(ToolMessage(tools[call["name"]].invoke(call["args"]), tool_call_id=call["id"]))

    asked: Any = convert_to_messages(REQUEST["messages"])
    assert agent.invoke(asked, {"configurable": {"thread_id": "new"}}) == "All tasks are closed."
    assert "wrap_tool_call=recorder.wrap_tool_call" in caplog.text
