"""A chat model with the memory in it, in graphs that know nothing of the memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, cast

import pytest
from desk import EAGER, NAMES, Desk, expected, request, script, shortcuts
from desk import build as build_graph
from langchain.chat_models import init_chat_model
from langchain_core.caches import InMemoryCache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, convert_to_messages
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command
from openai_server import OpenAIStubServer, make_chat_model
from pydantic import BaseModel
from shells import build_agent
from trained import knowing_desk

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.inertia.speculative import SERVED
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.models import with_tool_memory
from langgraph_toolmem.nodes import Recorder
from langgraph_toolmem.runs.run import ModelInput
from langgraph_toolmem.testing import ScriptedChatModel

pytestmark = pytest.mark.usefixtures("nothing_failed")


def react(model: Any, desk: Desk, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from langgraph.prebuilt import create_react_agent

        return create_react_agent(model, desk.tools, checkpointer=InMemorySaver(), **options)


def several_tool_nodes(model: Any, desk: Desk, **_: Any) -> Any:
    """Each tool has a node of its own, and the model's node goes there by a Command."""
    bound = model.bind_tools(desk.tools)

    def agent(state: MessagesState) -> Command[Any]:
        answer = bound.invoke(state["messages"])
        way_on = answer.tool_calls[0]["name"] if answer.tool_calls else END
        return Command(goto=way_on, update={"messages": [answer]})

    builder: Any = StateGraph(MessagesState)
    builder.add_node("agent", agent, destinations=(*(tool.name for tool in desk.tools), END))
    for tool in desk.tools:
        builder.add_node(tool.name, ToolNode([tool]))
        builder.add_edge(tool.name, "agent")
    builder.add_edge(START, "agent")
    return builder.compile(checkpointer=InMemorySaver())


def functional(model: Any, desk: Desk, **_: Any) -> Any:
    bound, by_name = model.bind_tools(desk.tools), {tool.name: tool for tool in desk.tools}

    @task
    def ask(messages: list[BaseMessage]) -> BaseMessage:
        return cast("BaseMessage", bound.invoke(messages))

    @entrypoint(checkpointer=InMemorySaver())
    def agent(given: dict[str, Any]) -> dict[str, Any]:
        messages = convert_to_messages(given["messages"])
        while (answer := cast("AIMessage", ask(messages).result())).tool_calls:
            messages = [*messages, answer, *(by_name[call["name"]].invoke(call) for call in answer.tool_calls)]
        return {"messages": [*messages, answer]}

    return agent


GRAPHS: dict[str, Callable[..., Any]] = {
    "react": react,
    "several tool nodes": several_tool_nodes,
    "functional": functional,
}


def asked(number: int) -> dict[str, Any]:
    return {"messages": [HumanMessage(request(NAMES[number % len(NAMES)]), id=f"a0d3c1{number:026x}")]}


def config(number: int) -> dict[str, Any]:
    return {"configurable": {"thread_id": f"t{number}"}}


@pytest.fixture
def known() -> ToolMemory:
    return knowing_desk(24)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream", "astream"])
async def test_any_graph_makes_the_same_calls_with_fewer_model_calls(graph: str, way: str, known: ToolMemory) -> None:
    desk, model = Desk(), ScriptedChatModel(script=script)
    app = GRAPHS[graph](with_tool_memory(model, known, tools=desk.tools, shortcut=EAGER), desk)
    for number in range(3):
        if way == "invoke":
            app.invoke(asked(number), config(number))
        elif way == "ainvoke":
            await app.ainvoke(asked(number), config(number))
        elif way == "stream":
            list(app.stream(asked(number), config(number), stream_mode="messages"))
        else:
            assert [part async for part in app.astream(asked(number), config(number), stream_mode="messages")]
    assert desk.done == [call for number in range(3) for call in expected(NAMES[number])]
    assert len(model.calls) == 3, "only the answers in words are the model's"
    known.flush()
    report = known.report()
    assert (report.turns, report.skipped) == (24 * 4 + 12, 9)


def test_without_the_tools_a_warning_says_that_no_call_is_saved(caplog: pytest.LogCaptureFixture) -> None:
    model = ScriptedChatModel(script=script)
    memory = ToolMemory.ephemeral(reads={"find_*"})
    with_tool_memory(model, memory, name="Desk", shortcut=False, recall=True)
    with_tool_memory(model, memory, name="Desk", tools=Desk().tools)
    assert not caplog.records
    with_tool_memory(model, memory, name="Desk")
    (warning,) = caplog.messages
    assert warning.startswith("Desk was given no tools")


def test_the_given_tools_are_known_before_they_are_bound(caplog: pytest.LogCaptureFixture) -> None:
    """A graph with a few of its tools at each step (assistants of their own, tools found by a search)."""
    caplog.set_level("INFO", "langgraph_toolmem")
    desk = Desk()
    memory = ToolMemory.ephemeral(reads={"find_customer", "latest_order", "add_*"})
    model = with_tool_memory(ScriptedChatModel(script=script), memory, tools=desk.tools)
    first, *_ = desk.tools
    model.bind_tools([first]).invoke(request("Ann"), {"configurable": {"thread_id": "1"}})
    memory.close()
    assert set(memory.core.catalogue.known) == {tool.name for tool in desk.tools}
    assert "no tool seen so far has that name" not in caplog.text


def test_an_answer_is_learned_once_the_thread_or_the_memory_goes_on() -> None:
    desk, model = Desk(), ScriptedChatModel(script=script)
    with ToolMemory.ephemeral(tools=desk.tools) as memory:
        app = react(with_tool_memory(model, memory, tools=desk.tools), desk)
        app.invoke(asked(0), config(0))
        assert memory.report().answers == 0, "it may still be replaced"
        app.invoke(asked(1), config(0))
        assert memory.report().answers == 1
        memory.flush()
        assert memory.report().answers == 2


class Weather(BaseModel):
    """The weather."""

    city: str


def test_the_copy_is_the_models_own_kind_and_keeps_its_ways(known: ToolMemory) -> None:
    def reply(body: dict[str, Any]) -> AIMessage | str:
        if body.get("tool_choice"):
            call = {"name": "Weather", "args": {"city": "Rome"}, "id": "call_1", "type": "tool_call"}
            return AIMessage("", tool_calls=[call])
        return script(convert_to_messages(body["messages"]), [])

    with OpenAIStubServer(reply=reply) as server:
        plain = make_chat_model(server)
        model = with_tool_memory(plain, known, tools=Desk().tools, shortcut=EAGER)
        assert isinstance(model, ChatOpenAI)
        assert type(model).__name__ == "ChatOpenAI"
        structured = model.with_structured_output(Weather, method="function_calling")
        assert structured.invoke("Where?", config(0)) == Weather(city="Rome")
        bound = model.bind_tools(Desk().tools).with_retry(stop_after_attempt=2)
        answer = bound.invoke([HumanMessage(request("Ann"))], config(1))
        assert shortcuts([answer])
        assert len(server.requests) == 1, "the structured answer is the model's, the call is the memory's"
        chunks = list(model.bind_tools(Desk().tools).stream([HumanMessage(request("Ben"))], config(2)))
        whole: Any = chunks[0]
        for chunk in chunks[1:]:
            whole += chunk
        assert [(call["name"], call["args"]) for call in whole.tool_calls] == [("find_customer", {"name": "Ben"})]
        assert shortcuts([whole])
        assert not shortcuts([plain.bind_tools(Desk().tools).invoke([HumanMessage(request("Ann"))], config(3))])


def test_the_memory_steps_aside(known: ToolMemory, caplog: pytest.LogCaptureFixture) -> None:
    script_model = ScriptedChatModel(script=script)
    model = with_tool_memory(script_model, known, tools=Desk().tools, shortcut=EAGER)
    words = [HumanMessage(request("Ann"))]

    def answered(asks: Any, *given: Any) -> bool:
        before = len(script_model.calls)
        asks.invoke(words, *given)
        return len(script_model.calls) > before

    assert answered(model, config(0)), "no tools are bound: a summarizer"
    assert answered(model.bind_tools(Desk().tools)), "no config: nobody knows whose run it is"
    assert "without a config" in caplog.text
    cached = with_tool_memory(
        script_model.model_copy(update={"cache": InMemoryCache()}), known, tools=Desk().tools, shortcut=EAGER
    )
    assert answered(cached.bind_tools(Desk().tools), config(1))
    assert not answered(model.bind_tools(Desk().tools), config(2))


@pytest.mark.parametrize("given", [ScriptedChatModel(script=script).bind_tools([]), "openai:gpt-4.1", None])
def test_what_is_no_chat_model_is_refused(given: Any, known: ToolMemory) -> None:
    with pytest.raises(ConfigurationError, match="takes a chat model"):
        with_tool_memory(given, known)


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream", "astream"])
async def test_a_model_that_a_runs_config_chooses_asks_the_memory(way: str, known: ToolMemory) -> None:
    desk = Desk()

    def reply(body: dict[str, Any]) -> AIMessage:
        return script(convert_to_messages(body["messages"]), [])

    with OpenAIStubServer(reply=reply) as server:
        fields = ("model", "model_provider")
        chosen: Any = init_chat_model(configurable_fields=fields, base_url=server.url, api_key="unused")
        wrapped = with_tool_memory(chosen, known, tools=desk.tools, shortcut=EAGER)
        assert type(wrapped.bind_tools(desk.tools)).__name__ == type(chosen).__name__
        bound = wrapped.bind_tools(desk.tools).with_config(tags=["of this run"])

        async def answered(asks: Any, number: int) -> AIMessage:
            settings = {"configurable": {"thread_id": f"t{number}", **OPENAI}}
            words = [HumanMessage(request(NAMES[number]))]
            if way == "invoke":
                return cast("AIMessage", asks.invoke(words, settings))
            if way == "ainvoke":
                return cast("AIMessage", await asks.ainvoke(words, settings))
            if way == "stream":
                chunks = list(asks.stream(words, settings))
            else:
                chunks = [chunk async for chunk in asks.astream(words, settings)]
            whole = chunks[0]
            for chunk in chunks[1:]:
                whole += chunk
            return cast("AIMessage", whole)

        assert shortcuts([await answered(bound, 0)])
        assert not server.requests
        assert not shortcuts([await answered(chosen.bind_tools(desk.tools), 1)])
        assert [sent["model"] for sent in server.requests] == ["gpt-4.1"]


OPENAI = {"model": "gpt-4.1", "model_provider": "openai"}


# --- the model's input ---


class Spy:
    """Keeps the input of each decision."""

    def __init__(self, memory: ToolMemory, monkeypatch: pytest.MonkeyPatch) -> None:
        self.inputs: list[ModelInput] = []
        decide = memory.inertia.begin_turn

        def begin_turn(*args: Any, **kwargs: Any) -> Any:
            self.inputs.append(kwargs["model_input"])
            return decide(*args, **kwargs)

        monkeypatch.setattr(memory.inertia, "begin_turn", begin_turn)


def test_a_wrapped_model_sees_the_prompt_and_what_is_added(known: ToolMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(known, monkeypatch)
    model = with_tool_memory(ScriptedChatModel(script=script), known, tools=Desk().tools)
    react(model, Desk(), prompt="The customer is C17.").invoke(asked(0), config(0))
    assert {(seen.system, seen.complete) for seen in spy.inputs} == {("The customer is C17.", True)}


def test_an_agents_memory_sees_what_middleware_in_front_writes(
    known: ToolMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import dataclass

    from langchain.agents import create_agent
    from langchain.agents.middleware import dynamic_prompt, wrap_model_call

    @dataclass
    class Context:
        tenant: str
        page: int = 3
        secret: Any = None

    @dynamic_prompt
    def prompt(request: Any) -> str:
        return f"Tenant {request.runtime.context.tenant}."

    @wrap_model_call
    def note(request: Any, handler: Any) -> Any:
        messages = [HumanMessage("(Today is Friday.)"), *request.messages]
        return handler(request.override(messages=messages))

    spy = Spy(known, monkeypatch)
    agent: Any = create_agent(
        cast("BaseChatModel", ScriptedChatModel(script=script)),
        Desk().tools,
        middleware=tool_memory_middleware(known, outer=[prompt, note]),
        context_schema=Context,
    )
    agent.invoke(asked(0), context=Context("acme"))
    seen = spy.inputs[0]
    assert seen.system == "Tenant acme.\n(Today is Friday.)"
    assert (seen.context, seen.complete) == ({"tenant": "acme", "page": 3}, True)


def test_a_memory_that_is_not_last_says_that_it_does_not_see_all(
    known: ToolMemory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from langchain.agents import create_agent
    from langchain.agents.middleware import dynamic_prompt

    @dynamic_prompt
    def late(request: Any) -> str:
        return "Tenant acme."

    spy = Spy(known, monkeypatch)
    agent: Any = create_agent(
        cast("BaseChatModel", ScriptedChatModel(script=script)),
        Desk().tools,
        middleware=[*tool_memory_middleware(known, name="Early"), late],
    )
    agent.invoke(asked(0))
    assert not any(seen.complete for seen in spy.inputs)
    assert caplog.text.count("Early is not the last middleware") == 1


def looked_up_graph(memory: ToolMemory, desk: Desk, recorder: Recorder | None, **options: Any) -> Any:
    """Return a graph with a wrapped model; without a recorder the memory does not see its tools."""
    model = with_tool_memory(
        ScriptedChatModel(script=script), memory, tools=desk.tools, shortcut=False, **options
    ).bind_tools(desk.tools)
    hooks: Any = {}
    if recorder is not None:
        hooks = {"wrap_tool_call": recorder.wrap_tool_call, "awrap_tool_call": recorder.awrap_tool_call}

    def agent(state: MessagesState) -> Any:
        return {"messages": [model.invoke([SystemMessage("Be kind."), *state["messages"]])]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("agent", agent)
    builder.add_node("tools", ToolNode(desk.tools, **hooks))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    builder.add_edge("tools", "agent")
    return builder.compile(checkpointer=InMemorySaver())


def warm_desk() -> tuple[Desk, ToolMemory]:
    return Desk(), knowing_desk(24)


def test_a_recorder_serves_what_a_wrapped_model_prefetched() -> None:
    desk, memory = warm_desk()
    graph = looked_up_graph(memory, desk, Recorder(memory), prefetch=True)
    where = {"configurable": {"thread_id": "t", "user_id": "ann"}}
    graph.invoke(asked(0), where)
    assert desk.done == expected(NAMES[0]), "each look-up was executed once"
    assert memory.core.counter(SERVED) >= 2


@pytest.mark.parametrize("feature", ["prefetch", "context"])
def test_without_a_recorder_look_ups_end_at_the_first_unseen_tool_call(
    feature: str, caplog: pytest.LogCaptureFixture
) -> None:
    desk, memory = warm_desk()
    graph = looked_up_graph(memory, desk, None, **{feature: True})
    for number in range(4):
        graph.invoke(asked(number), {"configurable": {"thread_id": str(number), "user_id": "ann"}})
    needed = [call for number in range(4) for call in expected(NAMES[number])]
    assert len(desk.done) <= len(needed) + (feature == "prefetch"), "one look-up before the first tool call, in vain"
    assert len([line for line in caplog.messages if "wrap_tool_call" in line]) == 1


@pytest.mark.parametrize("feature", ["prefetch", "context"])
def test_with_a_recorder_the_first_model_call_is_no_reason_for_a_warning(
    feature: str, caplog: pytest.LogCaptureFixture
) -> None:
    desk, memory = warm_desk()
    graph = looked_up_graph(memory, desk, Recorder(memory), **{feature: True})
    graph.invoke(asked(0), {"configurable": {"thread_id": "t", "user_id": "ann"}})
    assert "wrap_tool_call" not in caplog.text


@pytest.mark.parametrize("build", ["middleware", "model", "node"])
def test_a_request_with_a_picture_is_the_models(build: str, known: ToolMemory) -> None:
    """Requests with the same words had none: the memory does not read what it shows."""
    desk, model = Desk(), ScriptedChatModel(script=script)
    if build == "middleware":
        app = build_agent(known, desk, model=model).graph
    elif build == "model":
        app = react(with_tool_memory(model, known, tools=desk.tools, shortcut=EAGER), desk)
    else:
        app, _ = build_graph(known, desk.tools, model, policy=EAGER)
    picture = {"type": "image", "url": "https://example.com/a.png"}
    for blocks, model_calls in (([], 1), ([picture], 4)):
        before = len(model.calls)
        content = [{"type": "text", "text": request("Ann")}, *blocks]
        app.invoke({"messages": [HumanMessage(content)]}, config(model_calls))
        assert len(model.calls) - before == model_calls
