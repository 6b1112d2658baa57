"""Tool search in real agents: the list of tools and the prompt's prefix stay, and everything else sees real calls."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import httpx
import httpx2
import pytest
from crowd import DESK, NOTE, calling, crowded, knowing, steps
from desk import Desk
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ToolCallLimitMiddleware,
    wrap_tool_call,
)
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command
from pydantic import BaseModel
from shells import agent_of

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.navigator.deferred import ToolSearch
from langgraph_toolmem.navigator.providers import form_for, revealed_in
from langgraph_toolmem.nodes import MemoryState, ToolRetriever, messages_with_hints
from langgraph_toolmem.testing import ScriptedChatModel

FIND = ("search_tools", {"query": "find a customer, add a note to an order"})


def call(name: str, /, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return "call_tool", {"name": name, "arguments": arguments}


STEPS = [FIND, call("find_customer", name="Ann"), call("latest_order", customer_id="C-1")]
ADD = call("add_note", order_id="O-1", note="checked")
IDS = itertools.count()
BROKEN = "failed and is passed over"
with_anthropic = pytest.mark.xdist_group("anthropic")
"""Importing Anthropic's client takes two seconds: one worker does, when it comes to these tests."""


@pytest.fixture
def memory() -> Iterator[ToolMemory]:
    with ToolMemory.ephemeral(tools=crowded(Desk())) as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_breaks(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert BROKEN not in caplog.text


def agent_with(memory: ToolMemory, model: Any, *, tools: Any = None, **options: Any) -> Any:
    desk = SimpleNamespace(tools=crowded(Desk()) if tools is None else tools)
    return agent_of(memory, desk, model, **{"tool_search": True, **options}).graph


def graph_with(memory: ToolMemory, model: Any, *, node: bool = True, **options: Any) -> Any:
    tools = crowded(Desk())
    retriever = ToolRetriever(memory, tools, **options)

    def agent(state: Any) -> Any:
        offer = retriever.offer(messages_with_hints(state, model), model)
        return {"messages": [retriever.take(model.bind_tools(offer.tools).invoke(offer.messages))]}

    builder: Any = StateGraph(MemoryState)
    builder.add_node("agent", agent)
    builder.add_node("tools", ToolNode([*tools, *retriever.tools]))
    if node:
        retriever.add_to(builder)
        builder.add_edge(START, retriever.role)
        builder.add_edge(retriever.role, "agent")
    else:
        builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return builder.compile(checkpointer=InMemorySaver())


BUILDS: dict[str, Any] = {"agent": agent_with, "graph": graph_with, "no node": partial(graph_with, node=False)}
THREAD: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 60}


def ask(agent: Any, text: Any = NOTE) -> dict[str, Any]:
    found: dict[str, Any] = agent.invoke(text if not isinstance(text, str) else {"messages": [("user", text)]}, THREAD)
    return found


def made_calls(state: Any) -> list[str]:
    return [each["name"] for m in state["messages"] if isinstance(m, AIMessage) for each in m.tool_calls]


def same_prefix(prompts: list[list[Any]]) -> None:
    """Each prompt begins with the one before."""
    assert len(prompts) > 10
    for before, after in itertools.pairwise(prompts):
        assert json.dumps(after[: len(before)]) == json.dumps(before)


# --- models over HTTP, one for each way ---


def openai_items(body: dict[str, Any], plan: list[Any]) -> list[dict[str, Any]]:
    """The output items of the next step, as the Responses API makes them."""
    said = max((i for i, item in enumerate(body["input"]) if is_user(item)), default=0)
    done = sum(item.get("type") in ("function_call_output", "tool_search_output") for item in body["input"][said:])
    made = {"id": f"item_{next(IDS)}", "call_id": f"call_{next(IDS)}", "status": "completed"}
    if done >= len(plan):
        said_last = [{"type": "output_text", "text": "Done.", "annotations": []}]
        return [made | {"type": "message", "role": "assistant", "content": said_last}]
    name, arguments = plan[done]
    if name == "search_tools" and any(each["type"] == "tool_search" for each in body["tools"]):
        return [made | {"type": "tool_search_call", "execution": "client", "arguments": arguments}]
    return [made | {"type": "function_call", "name": name, "arguments": json.dumps(arguments)}]


def is_user(item: dict[str, Any]) -> bool:
    return item.get("role") == "user"


def responses_model(name: str, plan: list[Any], bodies: list[dict[str, Any]], **options: Any) -> ChatOpenAI:
    def answer(request: Any) -> Any:
        body = json.loads(request.content)
        bodies.append(body)
        return httpx.Response(
            200,
            json={
                "id": f"r{next(IDS)}",
                "object": "response",
                "created_at": 0,
                "model": name,
                "status": "completed",
                "output": openai_items(body, plan),
            },
        )

    transport = httpx.MockTransport(answer)
    return ChatOpenAI(
        model=name,
        api_key="x",
        use_responses_api=True,
        http_client=httpx.Client(transport=transport),
        http_async_client=httpx.AsyncClient(transport=transport),
        max_retries=0,
        **options,
    )


def claude(name: str, **options: Any) -> Any:
    from langchain_anthropic import ChatAnthropic

    return ChatAnthropic(model_name=name, api_key="x", **options)  # type: ignore[call-arg,arg-type]


def claude_model(plan: list[Any], bodies: list[dict[str, Any]], name: str = "claude-opus-4-8") -> Any:
    import anthropic

    def answer(request: Any) -> Any:
        body = json.loads(request.content)
        bodies.append(body)
        done = 0
        for message in body["messages"]:
            blocks = message["content"] if isinstance(message["content"], list) else []
            results = sum(block["type"] == "tool_result" for block in blocks)
            done = done + results if message["role"] == "assistant" or results else 0
        content: Any = [{"type": "text", "text": "Done."}]
        if done < len(plan):
            used, arguments = plan[done]
            content = [{"type": "tool_use", "id": f"toolu_{next(IDS)}", "name": used, "input": arguments}]
        reason = "tool_use" if done < len(plan) else "end_turn"
        return httpx2.Response(
            200,
            json={
                "id": f"m{next(IDS)}",
                "type": "message",
                "role": "assistant",
                "model": name,
                "content": content,
                "stop_reason": reason,
                "stop_sequence": None,
                "usage": {"input_tokens": 1, "output_tokens": 1},
            },
        )

    model = claude(name, max_retries=0, max_tokens_to_sample=1000)
    transport = httpx2.MockTransport(answer)
    model.__dict__["_client"] = anthropic.Anthropic(api_key="x", http_client=httpx2.Client(transport=transport))
    model.__dict__["_async_client"] = anthropic.AsyncAnthropic(
        api_key="x", http_client=httpx2.AsyncClient(transport=transport)
    )
    return model


DIRECT = [FIND, ("find_customer", {"name": "Ann"}), ("latest_order", {"customer_id": "C-1"})]
WAYS: dict[str, Any] = {
    "tool_search": lambda bodies: responses_model("gpt-5.4", DIRECT, bodies),
    "anthropic": lambda bodies: claude_model(DIRECT, bodies),
    "portable": lambda bodies: responses_model("gpt-5.4", STEPS, bodies, base_url="http://gateway.test/v1"),
}


def in_input(body: dict[str, Any]) -> list[Any]:
    """The messages of a request, without Anthropic's mark of the cache, which moves on."""
    messages = json.loads(json.dumps(body.get("input", body.get("messages"))))
    for message in messages:
        for block in message["content"] if isinstance(message.get("content"), list) else []:
            block.pop("cache_control", None)
    return messages


@with_anthropic
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("way", WAYS)
async def test_tools_and_prefix_are_equal_over_requests(memory: ToolMemory, way: str, build: str) -> None:
    bodies: list[dict[str, Any]] = []
    model = WAYS[way](bodies)
    assert form_for(model) == way
    app = BUILDS[build](memory, model)
    for number in range(4):
        text = {"messages": [("user", f"{NOTE} {number}")]}
        state = await app.ainvoke(text, THREAD) if number % 2 else app.invoke(text, THREAD)
    assert len({json.dumps(body["tools"]) for body in bodies}) == 1
    same_prefix([in_input(body) for body in bodies])
    assert made_calls(state) == ["search_tools", "find_customer", "latest_order"] * 4
    stays = json.dumps([message.content for message in state["messages"]])
    assert "tool_reference" not in stays
    assert "tool_search" not in stays
    if way == "anthropic":
        assert sum(each.get("defer_loading", False) for each in bodies[0]["tools"]) == 33
        assert "tool_reference" in json.dumps(bodies[-1]["messages"])
    elif way != "portable":
        kinds = [item.get("type") for item in bodies[-1]["input"]]
        assert {"tool_search_call", "tool_search_output"} <= {*kinds}


# --- what else stands in an agent ---


def scripted(*turns: Any) -> ScriptedChatModel:
    return ScriptedChatModel(script=steps(*turns))


def offered(model: ScriptedChatModel) -> list[list[str]]:
    return [[each.get("function", each).get("name", each["type"]) for each in call.tools] for call in model.calls]


DELETED: list[str] = []


@tool
def delete_file(path: str) -> str:
    """Delete a file for good."""
    DELETED.append(path)
    return "deleted"


@pytest.mark.parametrize("decision", ["approve", "edit", "reject"])
@pytest.mark.parametrize("place", ["before", "outer"])
def test_a_guarded_tool_stops_for_a_person(memory: ToolMemory, decision: str, place: str) -> None:
    DELETED.clear()
    guard = HumanInTheLoopMiddleware(interrupt_on={"delete_file": True})
    model = scripted([("search_tools", {"query": "delete a file"}), call("delete_file", path="a")])
    tools = [*crowded(Desk()), delete_file]
    agent = agent_with(memory, model, tools=tools, **{place: [guard]})
    state = ask(agent, "Delete a")
    assert not DELETED
    (request,) = state["__interrupt__"][0].value["action_requests"]
    assert (request["name"], request["args"]) == ("delete_file", {"path": "a"})
    answer: dict[str, Any] = {"type": decision}
    if decision == "edit":
        answer["edited_action"] = {"name": "delete_file", "args": {"path": "b"}}
    state = ask(agent, Command(resume={"decisions": [answer]}))
    assert {"approve": ["a"], "edit": ["b"], "reject": []}[decision] == DELETED
    assert state["messages"][-1].text == "Done."


def test_limits_and_the_recorder_see_the_real_tool(memory: ToolMemory) -> None:
    seen: list[str] = []

    @wrap_tool_call
    def watch(request: Any, handler: Any) -> Any:
        seen.append(request.tool_call["name"])
        return handler(request)

    find = call("find_customer", name="Ann")
    limit = ToolCallLimitMiddleware(tool_name="find_customer", run_limit=1)
    agent = agent_with(memory, scripted([FIND, find, find, find]), outer=[watch, limit])
    ask(agent)
    memory.flush()
    assert seen == ["search_tools", "find_customer"]
    assert {*memory.view().tools} & {"search_tools", "call_tool", "find_customer"} == {"find_customer"}


async def test_calls_without_the_model_are_call_tool_in_the_prompt() -> None:
    desk = Desk()
    with knowing(crowded(desk), 30) as memory:
        model = scripted([*STEPS, ADD])
        agent = agent_with(memory, model, tools=crowded(desk), shortcut=True)
        await agent.ainvoke({"messages": [("user", NOTE)]}, THREAD)
    names = {each["name"] for c in model.calls for m in c.messages if isinstance(m, AIMessage) for each in m.tool_calls}
    assert names <= {"search_tools", "call_tool"}
    assert {m.name for c in model.calls for m in c.messages if isinstance(m, ToolMessage)} <= names


WRONG: list[tuple[Any, str, str]] = [
    (call("find_custmer", name="Ann"), "call_tool", "'find_customer'"),
    (call("call_tool", name="find_customer"), "call_tool", "called directly"),
    (call("search_tools", query="x"), "call_tool", "called directly"),
    (("call_tool", {"name": "find_customer", "arguments": '{"name": "Ann"}'}), "find_customer", ""),
    (("call_tool", {"name": "find_customer", "arguments": "{"}), "call_tool", "JSON object"),
    (("call_tool", {}), "call_tool", ""),
    (call("archive_vehicle", vehicle="7"), "call_tool", "vehicle_id"),
    (("latest_ordr", {"customer_id": "C-1"}), "call_tool", "'latest_order'"),
    (("latest_order", {"customer_id": "C-1"}), "latest_order", ""),
    (call("latest_order"), "latest_order", ""),
]


def test_what_cannot_be_called_is_answered(memory: ToolMemory) -> None:
    model = scripted([made for made, _, _ in WRONG])
    answers = [m for m in ask(agent_with(memory, model))["messages"] if isinstance(m, ToolMessage)]
    for answer, (made, name, said) in zip(answers, WRONG, strict=True):
        assert answer.name == name, made
        assert said in answer.text
    assert [answer.status for answer in answers].count("success") == 2
    assert len(offered(model)[0]) == 2


@with_anthropic
def test_the_model_changes_within_a_thread(memory: ToolMemory) -> None:
    made = {"checkpointer": InMemorySaver()}
    bodies: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for way in [*WAYS, *WAYS]:
        state = ask(agent_with(memory, WAYS[way](bodies[way]), made=made))
    assert len([m for m in state["messages"] if m.text == "Done."]) == 6
    assert not [m for m in state["messages"] if isinstance(m, ToolMessage) and m.status == "error"]
    for way, sent in bodies.items():
        assert len({json.dumps(body["tools"]) for body in sent}) == 1
        if way != "anthropic":
            assert "tool_reference" not in json.dumps(sent)
        else:
            assert not {"tool_search_call", "tool_search_output"} & {*json.dumps(sent).split('"')}


def test_after_a_summary_nothing_is_revealed(memory: ToolMemory) -> None:
    agent = agent_with(memory, scripted([*STEPS, ADD], [ADD, *STEPS]))
    state = ask(agent)
    assert {*revealed_in(state["messages"])} >= {*DESK}
    summary = HumanMessage("Here is a summary of the conversation to date: a note was added.")
    agent.update_state(THREAD, {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), summary]})
    state = ask(agent, "And another one")
    assert made_calls(state)[0] == "add_note"
    assert {*revealed_in(state["messages"])} >= {*DESK}
    assert state["messages"][-1].text == "Done."


def test_a_failed_search_answers_and_the_run_goes_on(
    memory: ToolMemory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def down(*_: Any, **__: Any) -> Any:
        raise OSError("down")

    monkeypatch.setattr(memory.navigator.tool_search, "search", down)
    for way in WAYS:
        bodies: list[dict[str, Any]] = []
        state = ask(agent_with(memory, WAYS[way](bodies)))
        assert state["messages"][-1].text == "Done."
        assert "could not be searched (OSError)" in state["messages"][2].text
        outputs = [item for item in bodies[-1].get("input", []) if item.get("type") == "tool_search_output"]
        assert [item["tools"] for item in outputs] == ([[]] if way == "tool_search" else [])
    assert BROKEN in caplog.text
    caplog.clear()


@with_anthropic
@pytest.mark.parametrize("place", ["before", "outer"])
def test_a_cache_mark_never_stands_on_a_deferred_tool(memory: ToolMemory, place: str) -> None:
    from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware

    bodies: list[dict[str, Any]] = []
    ask(agent_with(memory, claude_model(DIRECT, bodies), **{place: [AnthropicPromptCachingMiddleware()]}))
    for body in bodies:
        marked = [each for each in body["tools"] if "cache_control" in each]
        assert [each["name"] for each in marked] == ["search_tools"]
        assert not [each for each in marked if each.get("defer_loading")]


class Answer(BaseModel):
    """The structured answer."""

    text: str


def test_always_provider_tools_and_structured_answers_stay(memory: ToolMemory) -> None:
    tools = [*crowded(Desk()), {"type": "web_search_preview"}]
    model = ScriptedChatModel(script=lambda messages, _: calling(messages, ("Answer", {"text": "yes"})))
    options: Any = {"tool_search": ToolSearch(always=["approve_room", "nobody"])}
    agent = agent_with(memory, model, tools=tools, made={"response_format": ToolStrategy(Answer)}, **options)
    assert ask(agent)["structured_response"] == Answer(text="yes")
    assert offered(model) == [["approve_room", "web_search_preview", "search_tools", "call_tool", "Answer"]]


class AddsATool(AgentMiddleware[Any, Any, Any]):
    """Adds a tool to each request and runs it: `create_agent` does not know it."""

    def __init__(self, added: Any) -> None:
        super().__init__()
        self.added = added

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(request.override(tools=[*request.tools, self.added]))

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        if request.tool_call["name"] == self.added.name:
            request = request.override(tool=self.added)
        return handler(request)


def test_a_tool_that_is_added_at_run_time_is_found_and_called(memory: ToolMemory) -> None:
    weighed = []

    @tool
    def weigh_parcel(parcel: str) -> str:
        """Weigh a parcel on the scale."""
        weighed.append(parcel)
        return f"{parcel} weighs 3 kg"

    find = ("search_tools", {"query": "weigh a parcel on the scale"})
    model = scripted([find, call("weigh_parcel", parcel="P1")])
    state = ask(agent_with(memory, model, outer=[AddsATool(weigh_parcel)]))
    [found] = [message for message in state["messages"] if message.type == "tool" and message.name == "search_tools"]
    assert "weigh_parcel" in found.text
    assert weighed == ["P1"]


def test_few_tools_are_all_offered(memory: ToolMemory) -> None:
    model = scripted([])
    ask(agent_with(memory, model, tools=Desk().tools))
    assert offered(model) == [[each.name for each in Desk().tools]]


# --- which way ---


@with_anthropic
@pytest.mark.parametrize(
    ("make_model", "way"),
    [
        (partial(ChatOpenAI, model="gpt-5.4", api_key="x"), "tool_search"),
        (partial(ChatOpenAI, model="gpt-6", api_key="x"), "tool_search"),
        (partial(ChatOpenAI, model="gpt-5.4", api_key="x", use_responses_api=False), "portable"),
        (partial(ChatOpenAI, model="gpt-5.4", api_key="x", base_url="http://127.0.0.1:1/v1"), "portable"),
        (partial(ChatOpenAI, model="gpt-4.1", api_key="x", use_responses_api=True), "portable"),
        (partial(claude, "claude-opus-4-8"), "anthropic"),
        (partial(claude, "claude-sonnet-4-20250514"), "portable"),
        (partial(claude, "claude-haiku-4-5-20251001"), "anthropic"),
        (partial(claude, "claude-opus-5", base_url="http://127.0.0.1:1"), "portable"),
        (lambda: None, "portable"),
    ],
)
def test_auto_trusts_the_url_and_the_name(make_model: Any, way: str) -> None:
    assert form_for(make_model()) == way
