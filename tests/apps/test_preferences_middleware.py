"""Preference guiding in real ``create_agent`` agents: users, shortcuts, people, other filters, sync and async."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from agents import WAYS
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    LLMToolSelectorMiddleware,
    ModelRequest,
    SummarizationMiddleware,
)
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import Runnable, RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from parcels import COURIER_DESK, NAMES, ParcelDesk, calling, dislike_fast, offered_in, past_run, rate, request, script
from pydantic import BaseModel

from langgraph_toolmem import RecallPolicy, ToolMemory
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.entries.preferences import SaidPreference, SaidPreferences, tool_prefix
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.nodes import PreferenceGuide
from langgraph_toolmem.runs.run import SUMMARY_TOOL
from langgraph_toolmem.testing import ScriptedChatModel

pytestmark = pytest.mark.usefixtures("nothing_failed")
BOTH = pytest.mark.parametrize("way", WAYS)
ALL = ["find_parcel", "fast_courier", "cheap_courier"]
LEFT = ["find_parcel", "cheap_courier"]


@pytest.fixture
def desk() -> ParcelDesk:
    return ParcelDesk()


@pytest.fixture
def memory(desk: ParcelDesk) -> Iterator[ToolMemory]:
    with ToolMemory.ephemeral(tools=desk.tools) as made:
        yield made


def guided(memory: ToolMemory, **options: Any) -> list[Any]:
    return tool_memory_middleware(memory, shortcut=False, preferences=PreferenceGuide(memory, **options))


class LookupFailedError(Exception):
    """What a look-up raises in a test."""


class Lookups:
    """Counts the look-ups of a memory, or makes them fail."""

    def __init__(self, memory: ToolMemory, monkeypatch: pytest.MonkeyPatch, fail: Exception | None = None) -> None:
        self.asked: list[str | None] = []
        real = memory.entries.asking_preferences

        def preferences(query: Any, **options: Any) -> Any:
            self.asked.append(options.get("user_id"))
            if fail is not None:
                raise fail
            return real(query, **options)

        monkeypatch.setattr(memory.entries, "asking_preferences", preferences)


class Agent:
    """An agent at the parcel desk; `offers` are the tools that each model call got."""

    def __init__(
        self,
        desk: ParcelDesk,
        middleware: Sequence[Any],
        *,
        tools: Sequence[Any] | None = None,
        model: Any = script,
        **options: Any,
    ) -> None:
        self.model = ScriptedChatModel(script=model)
        options.setdefault("checkpointer", InMemorySaver())
        self.graph: Any = create_agent(
            self.model, list(desk.tools if tools is None else tools), middleware=list(middleware), **options
        )

    async def ask(self, payload: Any, way: str, *, thread: str = "t", **configurable: Any) -> dict[str, Any]:
        config: Any = {"configurable": {"thread_id": thread, **configurable}}
        if isinstance(payload, str):
            payload = {"messages": [HumanMessage(request(payload))]}
        found: dict[str, Any] = (
            self.graph.invoke(payload, config) if way == "sync" else await self.graph.ainvoke(payload, config)
        )
        return found

    async def events(self, name: str, way: str, *, thread: str = "t") -> list[dict[str, Any]]:
        config: Any = {"configurable": {"thread_id": thread}}
        feed = {"messages": [HumanMessage(request(name))]}
        if way == "sync":
            parts = list(self.graph.stream(feed, config, stream_mode="custom"))
        else:
            parts = [part async for part in self.graph.astream(feed, config, stream_mode="custom")]
        return [part["toolmem"] for part in parts if part["toolmem"]["node"] == "preferences"]

    @property
    def offers(self) -> list[list[str]]:
        return [offered_in(call.tools) for call in self.model.calls]


# --- what is left out ---


@BOTH
async def test_a_tool_that_was_rated_badly_is_not_offered(memory: ToolMemory, desk: ParcelDesk, way: str) -> None:
    agent = Agent(desk, guided(memory))
    await agent.ask("Zoe", way, thread="before")
    assert desk.sent_by == ["fast_courier"]
    dislike_fast(memory)
    await agent.ask("Zoe", way, thread="after")
    assert desk.sent_by == ["fast_courier", "cheap_courier"]
    assert agent.offers == [ALL] * 3 + [LEFT] * 3


@BOTH
async def test_one_bad_rating_leaves_all_tools_and_so_does_another_kind_of_request(
    memory: ToolMemory, desk: ParcelDesk, way: str
) -> None:
    rate(memory, True, "cheap_courier")
    rate(memory, False, "fast_courier")
    agent = Agent(desk, guided(memory), model=lambda messages, tools: AIMessage("Hi"))
    await agent.ask("Zoe", way)
    rate(memory, False, "fast_courier")
    other = {"messages": [HumanMessage("How many people live in Lisbon?")]}
    await agent.ask(other, way, thread="other")
    await agent.ask("Zoe", way, thread="same")
    assert agent.offers == [ALL, ALL, LEFT]


@BOTH
async def test_ratings_of_one_user_change_nothing_for_another(desk: ParcelDesk, way: str) -> None:
    with ToolMemory.ephemeral(tools=desk.tools, namespace=("toolmem", "{user_id}")) as memory:
        dislike_fast(memory, "ann@example.com")
        agent = Agent(desk, guided(memory))
        await agent.ask("Zoe", way, thread="1", user_id="bob")
        await agent.ask("Zoe", way, thread="2", user_id="ann@example.com")
        await agent.ask("Zoe", way, thread="3", langgraph_user_id="ann@example.com")
        assert desk.sent_by == ["fast_courier", "cheap_courier", "cheap_courier"]


@BOTH
async def test_without_a_user_nothing_is_left_out_where_one_is_needed(
    desk: ParcelDesk, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ToolMemory.ephemeral(tools=desk.tools, namespace=("toolmem", "{user_id}")) as memory:
        dislike_fast(memory, "ann")
        agent = Agent(desk, guided(memory))
        await agent.ask("Zoe", way)
        assert agent.offers == [ALL] * 3
        errors = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
        said = [text.partition(" (logged once)")[0] for text in errors]
        assert said == ["PreferenceGuide failed and is passed over", "ToolMemoryInside failed and is passed over"]


@BOTH
async def test_in_a_shared_namespace_the_ratings_of_the_user_count(
    memory: ToolMemory, desk: ParcelDesk, way: str
) -> None:
    dislike_fast(memory, "ann")
    agent = Agent(desk, guided(memory))
    await agent.ask("Zoe", way, thread="1", user_id="bob")
    await agent.ask("Zoe", way, thread="2", user_id="ann")
    assert agent.offers == [ALL] * 3 + [LEFT] * 3


@BOTH
async def test_a_domain_is_left_out_as_a_whole(way: str) -> None:
    desk = ParcelDesk()
    tools = [
        t.model_copy(update={"name": f"{'desk' if 'find' in t.name else 'courier'}__{t.name}"}) for t in desk.tools
    ]
    post = tools[-1].model_copy(update={"name": "post__letter"})
    with ToolMemory.ephemeral(tools=tools) as memory:
        for i, (courier, good) in enumerate(
            [("courier__fast_courier", False), ("courier__cheap_courier", False), ("post__letter", True)]
        ):
            run = past_run(i, courier, name=NAMES[i])
            memory.finish(run, thread_id=f"run-{i}", success=good, wait=True)
        for domain_of, left in ((None, 4), (tool_prefix, 2)):
            agent = Agent(
                desk,
                guided(memory, domain_of=domain_of),
                tools=[*tools, post],
                model=lambda messages, tools: AIMessage("Hi"),
            )
            await agent.ask("Zoe", way, thread=str(left))
            assert len(agent.offers[0]) == left
        assert agent.offers[0] == ["desk__find_parcel", "post__letter"]


@BOTH
async def test_where_nothing_would_be_left_all_tools_are(memory: ToolMemory, desk: ParcelDesk, way: str) -> None:
    dislike_fast(memory)
    agent = Agent(
        desk,
        guided(memory),
        tools=desk.tools[1:2],
        model=lambda messages, tools: AIMessage("Hi"),
    )
    [event] = await agent.events("Zoe", way)
    assert agent.offers == [["fast_courier"]]
    assert event["kept"] == {"fast_courier": "rated badly in 2 similar runs, well in none, but no tool would be left"}


@BOTH
async def test_keep_names_tools_that_stay(memory: ToolMemory, desk: ParcelDesk, way: str) -> None:
    dislike_fast(memory)
    agent = Agent(desk, guided(memory, keep=["fast_courier"]))
    await agent.ask("Zoe", way)
    assert agent.offers == [ALL] * 3


@BOTH
async def test_a_policy_says_which_requests_are_alike(memory: ToolMemory, desk: ParcelDesk, way: str) -> None:
    dislike_fast(memory)
    agent = Agent(desk, guided(memory, policy=RecallPolicy(kind="fixed", n=1)))
    await agent.ask("Zoe", way)
    assert agent.offers == [ALL] * 3, "one run is no preference"


# --- once per user turn ---


@BOTH
async def test_it_looks_once_per_user_turn(
    memory: ToolMemory, desk: ParcelDesk, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dislike_fast(memory)
    looks = Lookups(memory, monkeypatch)
    agent = Agent(desk, guided(memory))
    await agent.ask("Zoe", way)
    assert (len(looks.asked), len(agent.offers)) == (1, 3)
    await agent.ask("Yan", way)
    assert (len(looks.asked), len(agent.offers)) == (2, 6)
    await agent.ask("Zoe", way, thread="other")
    assert (len(looks.asked), len(agent.offers)) == (3, 9)


@BOTH
async def test_a_verdict_that_comes_meanwhile_counts_from_the_next_turn_on(
    memory: ToolMemory, desk: ParcelDesk, way: str
) -> None:
    rate(memory, True, "cheap_courier")
    rate(memory, False, "fast_courier")

    def rating(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        if len(agent.model.calls) == 1:
            rate(memory, False, "fast_courier")
        return script(messages, tools)

    agent = Agent(desk, guided(memory), model=rating)
    await agent.ask("Zoe", way)
    await agent.ask("Zoe", way)
    assert agent.offers == [ALL] * 3 + [LEFT] * 3


@BOTH
async def test_a_turn_stays_one_when_its_history_is_summarised(
    memory: ToolMemory, desk: ParcelDesk, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dislike_fast(memory)
    looks = Lookups(memory, monkeypatch)
    summary = SummarizationMiddleware(
        ScriptedChatModel(script=lambda messages, tools: AIMessage("Zoe wants her parcel sent.")),
        trigger=("messages", 3),
        keep=("messages", 2),
    )
    answers = iter(
        [calling("find_parcel", {"name": "Zoe"}, 1), calling("find_parcel", {"name": "Zoe"}, 2), AIMessage("Done.")]
    )
    agent = Agent(desk, [summary, *guided(memory)], model=lambda messages, tools: next(answers))
    state = await agent.ask("Zoe", way)
    assert not any(m.text == request("Zoe") for m in state["messages"])
    assert agent.offers == [LEFT] * 3
    assert len(looks.asked) == 1


# --- what is never touched ---


@BOTH
async def test_tools_of_the_provider_stay_unless_the_ratings_name_them(
    memory: ToolMemory, desk: ParcelDesk, way: str
) -> None:
    dislike_fast(memory)
    search: dict[str, Any] = {"type": "web_search"}
    agent = Agent(desk, guided(memory), tools=[*desk.tools, search])
    await agent.ask("Zoe", way)
    assert agent.offers == [[*LEFT, "web_search"]] * 3
    dicts = [{"type": "function", "function": {"name": name, "description": name}} for name in ALL]
    agent = Agent(desk, guided(memory), tools=dicts, model=lambda messages, tools: AIMessage("Hi"))
    await agent.ask("Zoe", way)
    assert agent.offers == [LEFT]


class Verdict(BaseModel):
    """What came of it."""

    sent: bool


@BOTH
async def test_the_tool_of_a_structured_answer_stays_and_gets_no_blame(
    memory: ToolMemory, desk: ParcelDesk, way: str
) -> None:
    def with_verdict(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        answer = script(messages, tools)
        return answer if answer.tool_calls else calling("Verdict", {"sent": True}, len(messages), messages[0].id)

    agent = Agent(desk, guided(memory), model=with_verdict, response_format=ToolStrategy(Verdict))
    rate(memory, True, "cheap_courier")
    for i in range(2):
        state = await agent.ask(NAMES[i], way, thread=f"bad-{i}")
        memory.finish(state["messages"], thread_id=f"bad-{i}", success=False, wait=True)
    names = {p.name for p in memory.entries.preferences(request("Zoe")) if not p.liked}
    assert names >= {"fast_courier", "Verdict"}, "otherwise this shows nothing"
    state = await agent.ask("Zoe", way, thread="then")
    assert state["structured_response"] == Verdict(sent=True)
    assert agent.offers[-1] == [*LEFT, "Verdict"]


@BOTH
async def test_a_tool_that_the_request_insists_on_stays(memory: ToolMemory, desk: ParcelDesk, way: str) -> None:
    class Insisting(AgentMiddleware[Any, Any, Any]):
        def __init__(self, choice: Any) -> None:
            super().__init__()
            self.choice = choice

        def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[..., Any]) -> Any:
            return handler(request.override(tool_choice=self.choice))

        async def awrap_model_call(self, request: ModelRequest[Any], handler: Callable[..., Any]) -> Any:
            return await handler(request.override(tool_choice=self.choice))

    dislike_fast(memory)
    for choice, offer in (
        ("fast_courier", ALL),
        ({"type": "function", "function": {"name": "fast_courier"}}, ALL),
        ({"type": "tool", "name": "fast_courier"}, ALL),
        ("find_parcel", LEFT),
        ("any", LEFT),
    ):
        agent = Agent(desk, [Insisting(choice), *guided(memory)], model=lambda messages, tools: AIMessage("Hi"))
        await agent.ask("Zoe", way)
        assert agent.offers == [offer], choice


@BOTH
async def test_an_agent_without_tools_is_not_looked_up_for(
    memory: ToolMemory, desk: ParcelDesk, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Lookups(memory, monkeypatch)
    agent = Agent(desk, guided(memory), tools=[], model=lambda messages, tools: AIMessage("Hi"))
    await agent.ask("Zoe", way)
    assert (agent.offers, looks.asked) == ([[]], [])


# --- the hint ---


@BOTH
@pytest.mark.parametrize(
    ("how", "offer", "told"),
    [("tell", ALL, ["prefer cheap_courier", "avoid fast_courier"]), ("both", LEFT, ["prefer cheap_courier"])],
    ids=["tell", "both"],
)
async def test_the_model_may_be_told_instead(
    memory: ToolMemory, desk: ParcelDesk, how: Any, offer: list[str], told: list[str], way: str
) -> None:
    dislike_fast(memory)
    rate(memory, True, "cheap_courier")
    agent = Agent(desk, guided(memory, how=how), system_prompt="You are kind.")
    state = await agent.ask("Zoe", way)
    assert agent.offers == [offer] * 3
    for call in agent.model.calls:
        text = call.messages[0].text
        assert text.startswith("You are kind.")
        assert "\nHow this user rated tools" in text
        assert re.findall(r"^- (\w+ \w+):", text, re.MULTILINE) == told
    assert not any("How this user rated" in m.text for m in state["messages"])


# --- with a model ---


class Reader(ScriptedChatModel):
    """Reads ratings: says what it was told to say."""

    said: list[SaidPreference] = []  # noqa: RUF012 - a pydantic field
    asked: list[str] = []  # noqa: RUF012

    def with_structured_output(self, schema: Any, **options: Any) -> Runnable[Any, Any]:
        def answer(messages: list[BaseMessage]) -> SaidPreferences:
            self.asked.append(messages[-1].text)
            return SaidPreferences(preferences=self.said)

        assert schema is SaidPreferences
        return RunnableLambda(answer)


@BOTH
async def test_a_model_may_read_the_ratings(memory: ToolMemory, desk: ParcelDesk, way: str) -> None:
    dislike_fast(memory)
    said = SaidPreference(
        kind="tool", name="fast_courier", liked=False, runs=[1, 2], text="Finds the fast courier dear."
    )
    reader = Reader(script=[], said=[said], asked=[])
    agent = Agent(desk, guided(memory, model=reader))
    [event] = await agent.events("Zoe", way)
    assert agent.offers == [LEFT] * 3
    assert len(reader.asked) == 1
    assert request("Zoe") in reader.asked[0]
    assert event["left_out"]["fast_courier"].endswith('in words: "Finds the fast courier dear."')
    silent = Agent(desk, guided(memory, model=Reader(script=[], said=[], asked=[])))
    await silent.ask("Zoe", way)
    assert silent.offers == [ALL] * 3, "what the counts say is for the model to judge"


# --- telling, failing ---


@BOTH
async def test_one_event_per_user_turn_says_what_is_left_out_and_why(
    memory: ToolMemory, desk: ParcelDesk, way: str
) -> None:
    dislike_fast(memory)
    agent = Agent(desk, guided(memory))
    [event] = await agent.events("Zoe", way)
    assert event["left_out"] == {"fast_courier": "rated badly in 2 similar runs, well in none"}
    assert event["kept"] == {}
    assert [p["name"] for p in event["preferences"]] == ["fast_courier"]
    assert json.loads(json.dumps(event)) == event
    assert len(await agent.events("Yan", way)) == 1


@BOTH
@pytest.mark.parametrize("error", [StorageError("gone"), LookupFailedError("odd")], ids=["storage", "odd"])
async def test_a_memory_that_fails_leaves_all_tools_and_is_not_asked_again_in_the_turn(
    memory: ToolMemory,
    desk: ParcelDesk,
    error: Exception,
    way: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    dislike_fast(memory)
    looks = Lookups(memory, monkeypatch, error)
    agent = Agent(desk, guided(memory))
    await agent.ask("Zoe", way)
    assert agent.offers == [ALL] * 3
    assert len(looks.asked) == 1
    await agent.ask("Yan", way)
    assert len(looks.asked) == 2
    assert len([r for r in caplog.records if r.levelno >= logging.ERROR]) == 1


@BOTH
async def test_a_model_that_fails_is_the_hosts_own_affair(memory: ToolMemory, desk: ParcelDesk, way: str) -> None:
    def broken(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        raise LookupFailedError("the host's")

    dislike_fast(memory)
    with pytest.raises(LookupFailedError, match="the host's"):
        await Agent(desk, guided(memory), model=broken).ask("Zoe", way)


# --- beside others ---


@BOTH
async def test_no_shortcut_goes_to_a_tool_that_is_left_out(memory: ToolMemory, desk: ParcelDesk, way: str) -> None:
    for i in range(24):
        memory.observe(past_run(f"warm-{i}", "fast_courier", name=NAMES[i % len(NAMES)]), thread_id=f"warm-{i}")
    dislike_fast(memory)
    made = {}
    for preferences in (False, True):
        agent = Agent(desk, tool_memory_middleware(memory, shortcut=COURIER_DESK, preferences=preferences))
        state = await agent.ask("Ann", way, thread=str(preferences))
        calls = [m for m in state["messages"] if isinstance(m, AIMessage) and m.tool_calls]
        made[preferences] = [(m.tool_calls[0]["name"], "toolmem" in m.additional_kwargs) for m in calls]
    assert made[False] == [("find_parcel", True), ("fast_courier", True)]
    assert made[True] == [("find_parcel", True), ("cheap_courier", False)]


@BOTH
async def test_the_summary_tool_stays(memory: ToolMemory, desk: ParcelDesk, way: str) -> None:
    dislike_fast(memory)
    middleware = tool_memory_middleware(memory, preferences=True, suggest=True, shortcut=False)
    agent = Agent(desk, middleware)
    await agent.ask("Zoe", way)
    assert [sorted(offer) for offer in agent.offers] == [sorted([*LEFT, SUMMARY_TOOL])] * 3
    assert "fast_courier" not in "".join(call.messages[0].text for call in agent.model.calls)


def choosing(*names: str) -> ScriptedChatModel:
    """A selector's model that chooses these of what it may choose from."""

    def choose(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        offered = re.findall(r'"const": "(\w+)"', json.dumps(tools[0]))
        made = {"tools": [name for name in names if name in offered]}
        return calling(tools[0]["function"]["name"], made)

    return ScriptedChatModel(script=choose)


@BOTH
async def test_an_llm_selector_chooses_among_what_is_left(memory: ToolMemory, desk: ParcelDesk, way: str) -> None:
    dislike_fast(memory)
    selector = LLMToolSelectorMiddleware(model=choosing("fast_courier", "cheap_courier"))
    inside = tool_memory_middleware(memory, inside=[selector], preferences=True, shortcut=False)
    outside = [LLMToolSelectorMiddleware(model=choosing("fast_courier", "cheap_courier")), *guided(memory)]
    for middleware in (inside, outside):
        agent = Agent(desk, middleware, model=lambda messages, tools: AIMessage("Hi"))
        await agent.ask("Zoe", way)
        assert agent.offers == [["cheap_courier"]]


@BOTH
async def test_what_a_selector_always_includes_stays(memory: ToolMemory, desk: ParcelDesk, way: str) -> None:
    dislike_fast(memory)
    options: dict[str, Any] = {"always_include": ["fast_courier"], "model": choosing("find_parcel")}
    middleware = tool_memory_middleware(
        memory, inside=[LLMToolSelectorMiddleware(**options)], preferences=True, shortcut=False
    )
    agent = Agent(desk, middleware, model=lambda messages, tools: AIMessage("Hi"))
    await agent.ask("Zoe", way)
    assert agent.offers == [["find_parcel", "fast_courier"]]
    # Without it the selector refuses to work: that is what the assembly spares the host.
    alone = Agent(desk, [*guided(memory), LLMToolSelectorMiddleware(**options)])
    with pytest.raises(ValueError, match="always_include not found"):
        await alone.ask("Zoe", way)


@BOTH
async def test_a_person_may_still_choose_what_is_left_out(memory: ToolMemory, desk: ParcelDesk, way: str) -> None:
    dislike_fast(memory)
    person = HumanInTheLoopMiddleware({"cheap_courier": {"allowed_decisions": ["approve", "edit"]}})
    agent = Agent(desk, tool_memory_middleware(memory, inside=[person], preferences=True, shortcut=False))
    state = await agent.ask("Zoe", way)
    [waiting] = state["__interrupt__"]
    [asked] = waiting.value["action_requests"]
    assert asked["name"] == "cheap_courier"
    edited = {"name": "fast_courier", "args": asked["args"]}
    state = await agent.ask(Command(resume={"decisions": [{"type": "edit", "edited_action": edited}]}), way)
    assert desk.sent_by == ["fast_courier"]
    assert agent.offers == [LEFT] * 3
    assert state["messages"][-1].text == "It is on its way."
