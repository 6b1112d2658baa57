"""`RecallMiddleware` in real ``create_agent`` agents: once per user turn, for its user alone, beside all else."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from agents import WAYS
from desk import EAGER, Desk, history, request
from desk import script as desk_script
from langchain.agents import create_agent
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    ModelRetryMiddleware,
    SummarizationMiddleware,
)
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from langgraph_toolmem.turn.per_turn import PerTurn
from mailroom import (
    ADVICE,
    CAREFUL,
    CARELESS,
    HEAD,
    PER_USER,
    REQUEST,
    MailRoom,
    critic,
    prompts,
    recalls,
    script,
    teach,
)

from langgraph_toolmem import SIT, ConfigurationError, Entries, RecallPolicy, SITPolicy, ToolMemory, default_methods
from langgraph_toolmem.entries.render import NOTHING, tokens_in
from langgraph_toolmem.middleware import (
    InertiaMiddleware,
    RecallMiddleware,
    RecorderMiddleware,
    ReflectionMiddleware,
    SITMiddleware,
    per_turn,
    tool_memory_middleware,
)
from langgraph_toolmem.testing import OpenAIStubServer, ScriptedChatModel, make_chat_model

pytestmark = pytest.mark.usefixtures("nothing_failed")
BOTH = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def memory() -> Iterator[ToolMemory]:
    with ToolMemory.ephemeral(methods=default_methods(Entries(critic=critic))) as made:
        yield made


@dataclass
class Context:
    user_id: str | None = None


class Agent:
    """An agent with recall, or with other middleware; stream events are in `events`."""

    def __init__(self, memory: ToolMemory, tools: Sequence[Any], *, model: Any = None, **options: Any) -> None:
        self.model = model or ScriptedChatModel(script=script)
        options.setdefault("middleware", [RecallMiddleware(memory)])
        options.setdefault("checkpointer", InMemorySaver())
        self.graph: Any = create_agent(self.model, list(tools), context_schema=Context, **options)
        self.events: list[Any] = []

    async def ask(self, payload: Any, way: str, *, thread: str | None = "t", **options: Any) -> Any:
        if isinstance(payload, str):
            payload = {"messages": [HumanMessage(payload)]}
        config: Any = {"configurable": {} if thread is None else {"thread_id": thread}}
        state: Any = None
        options = {"stream_mode": ["custom", "values"], **options}
        if way == "sync":
            parts = list(self.graph.stream(payload, config, **options))
        else:
            parts = [part async for part in self.graph.astream(payload, config, **options)]
        for mode, part in parts:
            if mode == "values":
                state = part
            else:
                self.events.append(part)
        return state


# --- what is shown ---


@BOTH
async def test_the_second_time_the_mistake_is_not_made_again(memory: ToolMemory, way: str) -> None:
    before, after = MailRoom(), MailRoom()
    await Agent(memory, before.tools).ask(REQUEST.format("Zoe"), way, thread="before")
    teach(memory)
    await Agent(memory, after.tools).ask(REQUEST.format("Zoe"), way, thread="after")
    assert before.done == CARELESS
    assert after.done == CAREFUL


@BOTH
async def test_a_real_chat_client_gets_it_on_the_wire(memory: ToolMemory, way: str) -> None:
    teach(memory)
    room = MailRoom()
    with OpenAIStubServer(reply=lambda request: "Hello.") as server:
        model = make_chat_model(server)
        agent = Agent(memory, room.tools, model=model, system_prompt="You are kind.")
        await agent.ask(REQUEST.format("Zoe"), way)
        await model.root_async_client.close()
        [sent] = server.requests
    assert [m["role"] for m in sent["messages"]] == ["system", "user"]
    assert sent["messages"][0]["content"].startswith(f"You are kind.\n\n{HEAD}")
    assert ADVICE in sent["messages"][0]["content"]


@BOTH
@pytest.mark.parametrize(
    "prompt",
    [None, "You are kind.", SystemMessage([{"type": "text", "text": "You are kind.", "cache_control": {"type": "x"}}])],
    ids=["none", "text", "blocks"],
)
async def test_it_stands_in_the_system_message_of_each_call_of_the_turn_and_nowhere_else(
    memory: ToolMemory, way: str, prompt: Any
) -> None:
    teach(memory)
    agent = Agent(memory, MailRoom().tools, system_prompt=prompt)
    state = await agent.ask(REQUEST.format("Zoe"), way)
    texts = prompts(agent.model)
    assert len(texts) == 3
    assert len(set(texts)) == 1
    assert texts[0].count(HEAD) == 1
    assert texts[0].startswith("You are kind." if prompt else HEAD)
    if isinstance(prompt, SystemMessage):
        assert [call.messages[0].content[0] for call in agent.model.calls] == [prompt.content[0]] * 3
    assert len(recalls(agent.events)) == 1
    assert HEAD not in "".join(m.text for m in state["messages"])
    config: Any = {"configurable": {"thread_id": "t"}}
    assert HEAD not in repr([s.values for s in agent.graph.get_state_history(config)])


@BOTH
async def test_at_each_user_turn_it_looks_again(memory: ToolMemory, way: str) -> None:
    teach(memory)
    agent = Agent(memory, MailRoom().tools)
    for name in ("Zoe", "Ida"):
        await agent.ask(REQUEST.format(name), way)
    assert len(agent.model.calls) == 6
    assert len(recalls(agent.events)) == 2


@BOTH
async def test_where_nothing_is_like_it_the_request_is_as_it_was(memory: ToolMemory, way: str) -> None:
    teach(memory)
    model = ScriptedChatModel(script=lambda messages, tools: AIMessage("Hello."))
    agent = Agent(memory, MailRoom().tools, model=model, system_prompt="You are kind.")
    await agent.ask("What is the weather like", way)
    assert prompts(model) == ["You are kind."]
    assert recalls(agent.events)[0]["reason"] == NOTHING


async def test_budget_policy_and_unjudged_runs(memory: ToolMemory) -> None:
    teach(memory)
    for options, shown in (
        ({"policy": RecallPolicy(kind="fixed", n=2)}, 2),
        ({"budget": 160}, 1),
        ({"unjudged": True}, 3),
    ):
        agent = Agent(memory, MailRoom().tools, middleware=[RecallMiddleware(memory, **options)])
        await agent.ask(REQUEST.format("Zoe"), "sync", thread=repr(options))
        assert prompts(agent.model)[0].count("Request: ") == shown
        assert tokens_in(prompts(agent.model)[0]) <= options.get("budget", 1500)


# --- once per user turn and run ---


@BOTH
async def test_a_paused_thread_goes_on_with_the_same(memory: ToolMemory, way: str) -> None:
    teach(memory)
    room = MailRoom()
    gate = HumanInTheLoopMiddleware(interrupt_on={"send_mail": True})
    agent = Agent(memory, room.tools, middleware=tool_memory_middleware(memory, inside=[gate], recall=True))
    state = await agent.ask(REQUEST.format("Zoe"), way)
    assert "__interrupt__" in state
    teach(memory, first=10)  # others finish meanwhile
    await agent.ask(Command(resume={"decisions": [{"type": "approve"}]}), way)
    assert room.done == CAREFUL
    assert len(set(prompts(agent.model))) == 1
    assert len(recalls(agent.events)) == 1


@BOTH
async def test_a_retried_model_call_is_not_looked_up_again(memory: ToolMemory, way: str) -> None:
    teach(memory)
    tries: list[int] = []

    def flaky(messages: Any, tools: Any) -> AIMessage:
        tries.append(1)
        if len(tries) == 1:
            raise TimeoutError
        return script(messages, tools)

    room = MailRoom()
    retry = ModelRetryMiddleware(max_retries=2, initial_delay=0.0, jitter=False)
    middleware = [retry, RecallMiddleware(memory)]
    agent = Agent(memory, room.tools, model=ScriptedChatModel(script=flaky), middleware=middleware)
    await agent.ask(REQUEST.format("Zoe"), way)
    assert room.done == CAREFUL
    assert len(tries) == 4
    assert len(recalls(agent.events)) == 1


@BOTH
async def test_without_threads_each_run_looks_for_itself(memory: ToolMemory, way: str) -> None:
    agent = Agent(memory, MailRoom().tools, checkpointer=None)
    message = HumanMessage(REQUEST.format("Zoe"), id="always-the-same")
    for known in (False, True):
        before = len(agent.model.calls)
        await agent.ask({"messages": [message]}, way, thread=None)
        assert {ADVICE in prompt for prompt in prompts(agent.model)[before:]} == {known}
        teach(memory)
    assert len(recalls(agent.events)) == 2


@BOTH
async def test_summarising_in_the_middle_of_a_turn_does_not_end_it(memory: ToolMemory, way: str) -> None:
    teach(memory)
    room = MailRoom()
    summarise = SummarizationMiddleware(
        ScriptedChatModel(script=lambda messages, tools: AIMessage("Somebody wants a mail.")),
        trigger=("messages", 4),
        keep=("messages", 2),
    )

    def by_turns(messages: list[Any], tools: Any) -> AIMessage:
        steps = [("find_address", {"name": "Zoe"}), ("find_address", {"name": "Ida"}), ("send_mail", {"to": "zoe"})]
        made = len(model.calls)
        if made == len(steps):
            return AIMessage("Sent.")
        name, args = steps[made]
        return AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"call_{made}"}])

    model = ScriptedChatModel(script=by_turns)
    agent = Agent(memory, room.tools, model=model, middleware=[summarise, RecallMiddleware(memory)])
    state = await agent.ask(REQUEST.format("Zoe"), way)
    assert state["messages"][0].additional_kwargs == {"lc_source": "summarization"}
    assert [HEAD in prompt for prompt in prompts(model)] == [True] * 4
    assert len(set(prompts(model))) == 1
    assert len(recalls(agent.events)) == 1


def test_what_was_looked_up_is_kept_for_the_turns_used_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(per_turn, "MAX_TURNS", 2)
    with ToolMemory.ephemeral() as memory:
        kept: PerTurn[str] = PerTurn(memory)

        def key(thread: str | None, text: str, user: str | None = None, *more: Any) -> Any:
            return kept.key([HumanMessage(text), *more], thread_id=thread, user_id=user)

        kept.put(key("a", "x"), "ax")
        assert kept.put(key("a", "x"), "another") == "ax"
        kept.put(key("b", "x"), "bx")
        assert kept.get(key("a", "x")) == "ax"
        kept.put(key("c", "x"), "")
        assert [kept.get(key(thread, "x")) for thread in "abc"] == ["ax", None, ""]
        assert kept.get(key("a", "x", "ann")) is None
        assert kept.get(key("a", "y")) is None
        memory.forget(user_id="somebody")
        assert kept.get(key("a", "x")) is None
        work = AIMessage("hm")
        kept.put(key(None, "x", None), "one")
        assert kept.get(key(None, "x", None)) is None  # it begins: another run
        assert kept.get(key(None, "x", None, work)) == "one"
        kept.put(key(None, "x", None), "two")
        assert kept.get(key(None, "x", None, work)) == "two"


def test_many_threads_at_once_each_get_their_own(memory: ToolMemory) -> None:
    teach(memory)
    agent = Agent(memory, MailRoom().tools)
    begin = threading.Barrier(8)

    def ask(i: int) -> Any:
        begin.wait()
        text = REQUEST.format("Zoe") if i % 2 else "what is the weather like to day"
        config: Any = {"configurable": {"thread_id": str(i)}}
        agent.graph.invoke({"messages": [HumanMessage(text)]}, config)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(8)))
    for call in agent.model.calls:
        wanted = any("meeting" in m.text for m in call.messages if m.type == "human")
        assert any(HEAD in m.text for m in call.messages if m.type == "system") is wanted


# --- users, and a memory that fails ---


@BOTH
async def test_users_do_not_see_each_others_runs(way: str) -> None:
    with ToolMemory.ephemeral(methods=default_methods(Entries(critic=critic)), namespace=PER_USER) as memory:
        teach(memory, user_id="ann@example.org")
        agent = Agent(memory, MailRoom().tools)
        for user, advised in (("ben@example.org", False), ("ann@example.org", True), ("ann", False)):
            asked = len(agent.model.calls)
            # One thread, whoever speaks: what one was shown is nobody else's.
            await agent.ask(REQUEST.format("Zoe"), way, context=Context(user))
            assert {ADVICE in prompt for prompt in prompts(agent.model)[asked:]} == {advised}, user


@BOTH
async def test_what_a_user_had_forgotten_is_not_shown_any_more_even_in_the_same_turn(way: str) -> None:
    with ToolMemory.ephemeral(methods=default_methods(Entries(critic=critic)), namespace=PER_USER) as memory:
        teach(memory, user_id="ann")
        agent = Agent(memory, MailRoom().tools, interrupt_before=["tools"])
        await agent.ask(REQUEST.format("Zoe"), way, context=Context("ann"))
        memory.forget(user_id="ann")
        await agent.ask(None, way, context=Context("ann"), interrupt_before=[])
        first, *others = prompts(agent.model)
        assert ADVICE in first
        assert others
        assert not any(others)


@BOTH
async def test_a_memory_that_fails_stops_nobody_and_is_asked_once_per_turn(
    memory: ToolMemory, way: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def broken(messages: Any, **_: Any) -> Any:
        asked.append(messages)
        raise RuntimeError("secret of a user")

    monkeypatch.setattr(memory, "recollect", broken)
    room = MailRoom()
    agent = Agent(memory, room.tools)
    for _ in range(2):
        state = await agent.ask(REQUEST.format("Zoe"), way)
        assert state["messages"][-1].text == "The mail to Zoe is sent."
    assert room.done == CARELESS * 2
    assert len(asked) == 2
    failed = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert len(failed) == 1
    assert failed[0].startswith("RecallMiddleware failed")
    assert "secret" not in failed[0]


@BOTH
async def test_without_the_user_the_namespace_needs_nothing_is_shown(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ToolMemory.ephemeral(methods=default_methods(Entries(critic=critic)), namespace=PER_USER) as memory:
        teach(memory, user_id="ann")
        agent = Agent(memory, MailRoom().tools)
        await agent.ask(REQUEST.format("Zoe"), way)
        assert prompts(agent.model) == [""] * 2
    [failed] = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert "needs a user id" in failed


# --- beside the shortcut and the others ---


@BOTH
async def test_a_skipped_step_looks_nothing_up(way: str) -> None:
    desk = Desk()
    with ToolMemory.ephemeral(tools=desk.tools) as memory:
        for i in range(30):
            memory.finish(history(i), thread_id=f"warm-{i}", success=True)
        assert memory.flush()
        stack = tool_memory_middleware(memory, recall=True, policy=EAGER)
        agent = Agent(memory, desk.tools, model=ScriptedChatModel(script=desk_script), middleware=stack)
        await agent.ask(request("Zoe"), way)
        assert len(desk.done) == 3
        assert len(agent.model.calls) == 1  # the closing words
        assert HEAD in prompts(agent.model)[0]
        assert len(recalls(agent.events)) == 1


@BOTH
async def test_beside_suggestions_recall_stands_first(way: str) -> None:
    desk = Desk()
    with ToolMemory.ephemeral(tools=desk.tools, methods=default_methods(SIT(SITPolicy()))) as memory:
        for i in range(5):
            memory.finish(history(i), thread_id=f"warm-{i}", success=True)
        assert memory.flush()
        stack = tool_memory_middleware(memory, recall=True, suggest=True, shortcut=False)
        agent = Agent(memory, desk.tools, model=ScriptedChatModel(script=desk_script), middleware=stack)
        await agent.ask(request("Zoe"), way)
        for prompt in prompts(agent.model)[:3]:
            assert 0 <= prompt.find(HEAD) < prompt.find("Likely next tools")


def test_the_order_of_the_whole_list(memory: ToolMemory) -> None:
    mine = ModelRetryMiddleware()
    full = tool_memory_middleware(memory, inside=[mine], suggest=True, recall=True, reflect=True)
    assert [type(m) for m in full] == [
        ReflectionMiddleware,
        InertiaMiddleware,
        ModelRetryMiddleware,
        RecallMiddleware,
        SITMiddleware,
        RecorderMiddleware,
    ]
    assert [type(m) for m in tool_memory_middleware(memory)] == [InertiaMiddleware, RecorderMiddleware]
    few = tool_memory_middleware(memory, recall=RecallPolicy.paper(), shortcut=False)
    assert [type(m) for m in few] == [RecallMiddleware, RecorderMiddleware]
    assert isinstance(few[0], RecallMiddleware)
    assert few[0].options["policy"] == RecallPolicy.paper()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (lambda memory: {"inside": [RecallMiddleware(memory)]}, r"inside\[0\] is the memory's own RecallMiddleware"),
        (lambda memory: {"inside": [ReflectionMiddleware(memory)]}, "the memory's own ReflectionMiddleware"),
        (lambda memory: {"recall": "paper"}, "recall is True, False or a RecallPolicy, not str"),
        (lambda memory: {"reflect": 1}, "reflect is True or False"),
    ],
    ids=["recall inside", "reflection inside", "recall", "reflect"],
)
def test_a_list_that_cannot_work_is_refused(
    memory: ToolMemory, options: Callable[[ToolMemory], dict[str, Any]], match: str
) -> None:
    with pytest.raises(ConfigurationError, match=match):
        tool_memory_middleware(memory, **options(memory))


def test_arguments_that_cannot_work_are_refused(memory: ToolMemory) -> None:
    for wrong in ({"budget": -1}, {"policy": SITPolicy()}, {"unjudged": None}):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            RecallMiddleware(memory, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="ToolMemory"):
        RecallMiddleware(None)  # type: ignore[arg-type]


async def test_two_in_one_agent_have_names_of_their_own(memory: ToolMemory) -> None:
    teach(memory)
    both = [RecallMiddleware(memory, name="few", budget=160), RecallMiddleware(memory, name="many")]
    agent = Agent(memory, MailRoom().tools, middleware=both)
    await agent.ask(REQUEST.format("Zoe"), "sync")
    assert prompts(agent.model)[0].count(HEAD) == 2
