"""Recall in real ``create_agent`` agents: once per user turn, for its user alone, beside all else."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
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

from langgraph_toolmem import SIT, Entries, RecallPolicy, SITPolicy, ToolMemory, default_methods
from langgraph_toolmem.entries.render import NOTHING
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.nodes import MemoryRecall
from langgraph_toolmem.testing import OpenAIStubServer, ScriptedChatModel, make_chat_model
from langgraph_toolmem.turn import memo
from langgraph_toolmem.turn.call import Call
from langgraph_toolmem.turn.shown import AFTERWARDS, FRAME, MOST, tokens_in

pytestmark = pytest.mark.usefixtures("nothing_failed")
BOTH = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def memory() -> Iterator[ToolMemory]:
    with ToolMemory.ephemeral(methods=default_methods(Entries(critic=critic))) as made:
        yield made


def recalling(memory: ToolMemory, **options: Any) -> list[Any]:
    return tool_memory_middleware(memory, shortcut=False, recall=MemoryRecall(memory, **options))


@dataclass
class Context:
    user_id: str | None = None


class Agent:
    """An agent with recall, or with other middleware; stream events are in `events`."""

    def __init__(self, memory: ToolMemory, tools: Sequence[Any], *, model: Any = None, **options: Any) -> None:
        self.model = model or ScriptedChatModel(script=script)
        options.setdefault("middleware", recalling(memory))
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
    assert [m["role"] for m in sent["messages"]] == ["system", "user", "user"]  # the host's prompt stays as it is
    assert sent["messages"][0]["content"] == "You are kind."
    assert sent["messages"][2]["content"].startswith(f"{FRAME}\n{HEAD}")
    assert ADVICE in sent["messages"][2]["content"]


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
    assert [text.count(HEAD) for text in texts] == [1, 1, 1]
    assert texts[0].startswith("You are kind." if prompt else FRAME)
    assert texts[1] == texts[2] != texts[0]  # a short form at later calls
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
    memory.entries.lessons.undo(memory.entries.lessons()[0].id)
    two = RecallPolicy(kind="fixed", n=2)
    for recall, shown, budget in (
        (two, 2, MOST),
        (MemoryRecall(memory, policy=two), 2, MOST),
        (MemoryRecall(memory, budget=100), 1, 130),
        (MemoryRecall(memory, unjudged=True), 3, MOST),
    ):
        middleware = tool_memory_middleware(memory, shortcut=False, recall=recall)
        agent = Agent(memory, MailRoom().tools, middleware=middleware)
        await agent.ask(REQUEST.format("Zoe"), "sync", thread=repr((shown, budget, recall)))
        assert prompts(agent.model)[0].count("Request: ") == shown
        assert tokens_in(prompts(agent.model)[0]) <= budget


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
    assert [ADVICE in prompt for prompt in prompts(agent.model)] == [True, True, True]
    assert len(set(prompts(agent.model)[1:])) == 1
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
    middleware = [retry, *recalling(memory)]
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
    agent = Agent(memory, room.tools, model=model, middleware=[summarise, *recalling(memory)])
    state = await agent.ask(REQUEST.format("Zoe"), way)
    assert state["messages"][0].additional_kwargs == {"lc_source": "summarization"}
    assert [HEAD in prompt for prompt in prompts(model)] == [True] * 4
    assert len(set(prompts(model)[1:])) == 1
    assert len(recalls(agent.events)) == 1


def test_what_was_looked_up_is_kept_for_the_turns_used_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memo, "MAX_TURNS", 2)
    kept = memo.Memo("turn")

    def put(thread: str | None, text: str, found: str, *more: Any) -> Any:
        return kept.put(Call([HumanMessage(text), *more], thread), 0, found).found

    def get(thread: str | None, text: str, *more: Any, user: str | None = None, forgettings: int = 0) -> Any:
        found = kept.get(Call([HumanMessage(text), *more], thread, user), forgettings)
        return None if found is None else found.found

    put("a", "x", "ax")
    assert put("a", "x", "another") == "ax"
    put("b", "x", "bx")
    assert get("a", "x") == "ax"
    put("c", "x", "")
    assert [get(thread, "x") for thread in "abc"] == ["ax", None, ""]
    assert get("a", "x", user="ann") is None
    assert get("a", "y") is None
    assert get("a", "x", forgettings=1) is None
    work = AIMessage("hm")
    for found in ("one", "two"):
        put(None, "x", found)
        assert get(None, "x") is None  # it begins: another run
        assert get(None, "x", work) == found


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

    monkeypatch.setattr(memory.entries, "recollect", broken)
    room = MailRoom()
    agent = Agent(memory, room.tools)
    for _ in range(2):
        state = await agent.ask(REQUEST.format("Zoe"), way)
        assert state["messages"][-1].text == "The mail to Zoe is sent."
    assert room.done == CARELESS * 2
    assert len(asked) == 2
    failed = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert len(failed) == 1
    assert failed[0].startswith("MemoryRecall failed")
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
    failed = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert [text.split()[0] for text in failed] == ["MemoryRecall", "ToolMemoryInside"]
    assert all("needs a user id" in text for text in failed)


# --- beside the shortcut and the others ---


@BOTH
async def test_a_skipped_step_looks_nothing_up(way: str) -> None:
    desk = Desk()
    with ToolMemory.ephemeral(tools=desk.tools) as memory:
        for i in range(30):
            memory.finish(history(i), thread_id=f"warm-{i}", success=True)
        assert memory.flush()
        stack = tool_memory_middleware(memory, recall=True, shortcut=EAGER)
        agent = Agent(memory, desk.tools, model=ScriptedChatModel(script=desk_script), middleware=stack)
        await agent.ask(request("Zoe"), way)
        assert len(desk.done) == 3
        assert len(agent.model.calls) == 1  # the closing words
        assert HEAD in prompts(agent.model)[0]
        assert len(recalls(agent.events)) == 1


@BOTH
async def test_beside_suggestions_the_next_step_comes_first_after_the_first_call(way: str) -> None:
    desk = Desk()
    with ToolMemory.ephemeral(tools=desk.tools, methods=default_methods(SIT(SITPolicy()))) as memory:
        for i in range(5):
            memory.finish(history(i), thread_id=f"warm-{i}", success=True)
        assert memory.flush()
        stack = tool_memory_middleware(memory, recall=True, suggest=True, shortcut=False)
        agent = Agent(memory, desk.tools, model=ScriptedChatModel(script=desk_script), middleware=stack)
        await agent.ask(request("Zoe"), way)
        assert all(text in prompts(agent.model)[0] for text in (HEAD, "Likely next tools"))
        for prompt in prompts(agent.model)[1:3]:
            assert prompt.find("Likely next tools") >= 0
            assert prompt.find(HEAD) == -1 or prompt.find("Likely next tools") < prompt.find(HEAD)
            assert tokens_in(prompt) <= AFTERWARDS


async def test_two_in_one_agent_each_say_theirs(memory: ToolMemory) -> None:
    teach(memory)
    few, many = MemoryRecall(memory, budget=160), MemoryRecall(memory)
    both = tool_memory_middleware(memory, shortcut=False, recall=few, steps=[many.step])
    agent = Agent(memory, MailRoom().tools, middleware=both)
    await agent.ask(REQUEST.format("Zoe"), "sync")
    assert prompts(agent.model)[0].count(HEAD) == 2
