"""A cold start: requests are invented, run in the sandbox once each, judged, and become entries that can be dropped."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph
from openai_server import OpenAIStubServer, make_chat_model

from examples.office import Office, build_graph, make_tasks, reply
from langgraph_toolmem import ToolMemory
from langgraph_toolmem.base.errors import ConfigurationError, NamespaceError, StorageError, ToolMemoryError
from langgraph_toolmem.core.users import User, user_digest
from langgraph_toolmem.offline.coldstart import (
    BOOTSTRAP,
    Bootstrap,
    BootstrapBudget,
    InventedQuery,
    Sandbox,
    drop,
    least_used,
    usable,
)
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.testing import ScriptedChatModel

TASKS = {task.request: task for task in make_tasks(300)}
BROKEN = "cancel_meeting"
"""Kind of task that the office's agent is said to get wrong."""
REQUESTS = [next(text for text, task in TASKS.items() if task.kind == kind) for kind in (
    "read_latest", "task_from_email", "answer_latest", "cancel_meeting", "write_to", "forward_latest"
)]  # fmt: skip
REQUESTS += [task.request for task in make_tasks(60, seed=9) if task.request not in TASKS][:2]
TOOLS = [{"name": name, "description": name, "parameters": {"type": "object", "properties": {}}} for name in ("a", "b")]


def assistant(messages: Sequence[BaseMessage], _: Any) -> AIMessage:
    said = reply(messages)
    calls = [{**call, "id": f"{len(messages)} {n}"} for n, call in enumerate(said.tool_calls)]
    return said.model_copy(update={"tool_calls": calls})


def make_office() -> Sandbox:
    office = Office()

    def verdict(query: str, _: list[BaseMessage]) -> bool | None:
        if (task := TASKS.get(query)) is None:
            return None
        return task.checker(office) and task.kind != BROKEN

    graph = build_graph(ScriptedChatModel(script=assistant), office.tools()).compile()
    return Sandbox(graph, tools=office.tools(), reset=office.reset, verdict=verdict)


class Inventor:
    """What the server answers: the next requests to those who want some, a verdict to those who want one."""

    def __init__(self, *, tools: Sequence[str] = ("find_person", "a")) -> None:
        self.requests, self.tools = list(REQUESTS), list(tools)
        self.verdicts: dict[str, str] = {}
        self.judged: list[str] = []

    def __call__(self, request: dict[str, Any]) -> str:
        asked = str(request["messages"][-1]["content"])
        if request["response_format"]["json_schema"]["name"] == "Judgement":
            query = asked.split("---\n")[1].strip()
            self.judged.append(query)
            return json.dumps({"why": "I say so.", "done": self.verdicts.get(query, "yes")})
        taken, self.requests = self.requests[:3], self.requests[3:]
        return json.dumps({"queries": [{"text": text, "tools": self.tools} for text in taken]})


class Toy:
    """An agent without LangChain: one call of a tool for each request, and what the test wants to go wrong."""

    def __init__(self, step: Callable[[str], Any] = lambda _: None) -> None:
        self.step = step
        self.seen: list[str] = []
        self.threads: list[str] = []
        self.users: list[str | None] = []

    def invoke(self, state: dict[str, Any], config: Any) -> Any:
        text = state["messages"][0].text
        self.seen.append(text)
        self.threads.append(config["configurable"]["thread_id"])
        self.users.append(config["configurable"].get("user_id"))
        given = self.step(text)
        if given is not None:
            return given
        call = {"name": "a", "args": {"of": text}, "id": f"call_{len(self.seen)}", "type": "tool_call"}
        usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
        asked = AIMessage("", tool_calls=[call], usage_metadata=usage)
        return {"messages": [*state["messages"], asked, ToolMessage("1", tool_call_id=call["id"]), AIMessage("Done.")]}


@pytest.fixture
def inventor() -> Iterator[tuple[Inventor, Any, OpenAIStubServer]]:
    reply = Inventor()
    with OpenAIStubServer(reply) as server:
        yield reply, make_chat_model(server, max_retries=0), server


def entries(memory: ToolMemory, *namespace: str) -> list[Any]:
    return list(memory.entries.rows.all(User(None, None, namespace or ("toolmem",)), retired=True))


def bootstrap(memory: ToolMemory, sandbox: Any, model: Any = None, **options: Any) -> Bootstrap:
    model = ScriptedChatModel(script=[]) if model is None else model
    if not isinstance(sandbox, Sandbox):
        sandbox = Sandbox(sandbox, tools=TOOLS)
    return Bootstrap(memory, sandbox, model, **{"budget": BootstrapBudget(queries=len(REQUESTS)), **options})


async def test_requests_are_invented_run_in_the_sandbox_and_become_entries(tmp_path, inventor):
    _, model, server = inventor
    office = make_office()
    steps: list[Any] = []
    with ToolMemory(tmp_path, tools=office.tools) as memory:
        made = bootstrap(memory, office, model)
        with pytest.raises(ConfigurationError, match="arun"):
            made.run()  # in a running loop
        done = await made.arun(steps.append)
        found = {entry.query: entry for entry in entries(memory)}
        recalled = memory.entries.recall(REQUESTS[1])
        turns = memory.report().turns
    expected = {text: TASKS[text].kind != BROKEN for text in REQUESTS if text in TASKS}
    assert set(found) == set(REQUESTS)
    assert {text: found[text].good for text in expected} == expected
    assert len(expected) > 1
    assert all(entry.made_by == BOOTSTRAP and entry.calls for entry in found.values())
    assert [call.tool for call in found[REQUESTS[1]].calls][:3] == ["find_person", "list_emails", "read_email"]
    assert REQUESTS[1] in [entry.query for entry in recalled]
    assert (done.run, done.failed, done.empty, done.stopped) == (8, 0, 0, "")
    assert done.unjudged == sum(text not in TASKS for text in REQUESTS)
    assert len(server.requests) == 3
    assert done.model_calls > 3 + 20
    assert done.tokens == server.usage["total_tokens"]  # the office's own model tells no usage
    assert [step.run for step in steps] == sorted(step.run for step in steps)
    assert turns == 0  # nothing is learned from invented runs but entries


def test_the_judge_is_asked_where_the_sandbox_has_no_verdict(inventor):
    reply, model, _ = inventor
    reply.verdicts = {REQUESTS[0]: "no", REQUESTS[1]: "unsure"}
    toy = Toy()
    sandbox = Sandbox(toy, TOOLS, verdict=lambda query, _: {REQUESTS[3]: 0.25, REQUESTS[4]: True}.get(query))
    with ToolMemory.ephemeral() as memory:
        made = bootstrap(memory, sandbox, model, judge=model)
        done = made.run()
        found = {entry.query: (entry.score, entry.comment) for entry in entries(memory)}
    assert found[REQUESTS[0]] == (0.0, "I say so.")
    assert found[REQUESTS[1]] == (None, "")
    assert found[REQUESTS[2]] == (1.0, "I say so.")
    assert found[REQUESTS[3]] == (0.25, "")
    assert found[REQUESTS[4]] == (1.0, "")
    assert set(reply.judged) == set(REQUESTS) - {REQUESTS[3], REQUESTS[4]}
    assert (done.good, done.wrong, done.unjudged) == (5, 2, 1)


async def test_verdict_and_reset_may_be_coroutines_and_a_broken_verdict_is_none(inventor):
    _, model, _ = inventor
    reset: list[int] = []

    async def back() -> None:
        await asyncio.sleep(0)
        reset.append(1)

    async def verdict(query: str, _: Any) -> Any:
        if query == REQUESTS[0]:
            raise KeyError("no such task")
        return 7 if query == REQUESTS[1] else query != REQUESTS[2]

    sandbox = Sandbox(Toy(), TOOLS, back, verdict)
    with ToolMemory.ephemeral() as memory:
        made = bootstrap(memory, sandbox, model)
        done = await made.arun()
        found = {entry.query: entry.score for entry in entries(memory)}
    assert len(reset) == 8
    assert [found[text] for text in REQUESTS[:4]] == [None, None, 0.0, 1.0]
    assert any("KeyError" in error for error in done.errors)
    assert any("A verdict must be true" in error for error in done.errors)


@pytest.mark.parametrize(("verdict", "kept"), [("yes", False), ("unsure", False), ("no", True)])
def test_a_run_without_calls_is_remembered_if_that_was_wrong(inventor, verdict, kept):
    reply, model, _ = inventor
    reply.verdicts = {REQUESTS[0]: verdict}
    toy = Toy(lambda text: {"messages": [HumanMessage(text), AIMessage("Done.")]} if text == REQUESTS[0] else None)
    with ToolMemory.ephemeral() as memory:
        made = bootstrap(memory, toy, model, judge=model)
        done = made.run()
        assert (done.empty, done.wrong, done.good) == (int(not kept), int(kept), 7)
        assert (REQUESTS[0] in [entry.query for entry in entries(memory)]) == kept


def test_runs_that_fail_are_counted_and_gone_on_and_run_again_when_asked(inventor):
    _, model, _ = inventor
    broken = True

    def step(text: str) -> Any:
        if broken and text == REQUESTS[0]:
            return {"messages": [HumanMessage(text)], "__interrupt__": ["May I?"]}
        if broken and text == REQUESTS[1]:
            raise ValueError("the tool broke")
        if broken and text == REQUESTS[3]:
            return {"answer": "42"}
        return {"messages": [HumanMessage(text), AIMessage("I will not.")]} if text == REQUESTS[5] else None

    toy = Toy(step)
    with ToolMemory.ephemeral() as memory:
        made = bootstrap(memory, toy, model)
        done = made.run()
        assert (done.failed, done.empty, done.unjudged) == (3, 1, 4)
        assert done.errors == (
            "InputError: the agent waits for a person (interrupt)",
            "ValueError: the tool broke",
            "InputError: the agent returned no list of messages under 'messages', but dict",
        )
        broken = False
        done = bootstrap(memory, toy, model).run()  # a later session counts what became an entry
        assert (done.run, done.failed) == (4, 0)


@pytest.mark.parametrize(
    ("fails", "match", "seen"),
    [
        ("agent", "5 runs in a row failed or could not be judged, the last with ZeroDivisionError", 5),
        ("judge", "the last with OpenAIInvalidRequestError", 5),
        ("reset", "The sandbox could not be reset", 0),
        ("inventor", "The model that invents requests failed", 0),
    ],
)
def test_what_always_fails_ends_it_and_what_was_done_is_kept(inventor, fails, match, seen):
    reply, model, server = inventor

    def answer(request: dict[str, Any]) -> str:
        asked = "judge" if request["response_format"]["json_schema"]["name"] == "Judgement" else "inventor"
        return reply(request) if asked != fails else str(1 / 0)

    server.reply = answer
    toy = Toy((lambda _: 1 / 0) if fails == "agent" else lambda _: None)
    sandbox = Sandbox(toy, TOOLS, (lambda: 1 / 0) if fails == "reset" else None)
    with ToolMemory.ephemeral() as memory:
        made = bootstrap(memory, sandbox, model, judge=model)
        with pytest.raises(ToolMemoryError, match=match):
            made.run()
        assert len(toy.seen) == seen
        assert memory.flush()
        assert len(entries(memory)) == (seen if fails == "judge" else 0)


class Interrupted(Toy):
    """An agent in whose work the process is interrupted after so many requests."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    async def ainvoke(self, state: dict[str, Any], config: Any) -> Any:
        given = self.invoke(state, config)
        if len(self.seen) > self.most:
            raise KeyboardInterrupt
        return given


def test_interrupted_at_any_request_a_later_session_goes_on_and_runs_none_again(tmp_path, inventor):
    reply, model, _ = inventor
    finished: list[str] = []
    for most in (0, 3, 99):
        reply.requests = list(REQUESTS)

        toy = Interrupted(most)
        with ToolMemory(tmp_path) as memory:
            assert bootstrap(memory, toy, model).progress().run == len(finished)
            with suppress(KeyboardInterrupt):
                bootstrap(memory, toy, model).run()
        assert not {*finished} & {*toy.seen}
        finished += toy.seen[:most]
    assert finished == REQUESTS
    with ToolMemory(tmp_path) as memory:
        assert memory.flush()
        assert sorted(entry.query for entry in entries(memory)) == sorted(REQUESTS)


async def test_a_run_that_takes_too_long_is_broken_off(inventor):
    _, model, _ = inventor
    ended: list[str] = []

    class Slow(Toy):
        async def ainvoke(self, state: dict[str, Any], config: Any) -> Any:
            try:
                if state["messages"][0].text == REQUESTS[0]:
                    await asyncio.sleep(60)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise
            return Toy.invoke(self, state, config)

    toy = Slow()
    budget = BootstrapBudget(queries=2, seconds_per_run=0.8)
    with ToolMemory.ephemeral() as memory:
        made = bootstrap(memory, toy, model, budget=budget)
        done = await made.arun()
    assert (done.failed, done.unjudged) == (1, 1)
    assert done.errors[0].startswith("TimeoutError")
    assert ended == ["cancelled"]


def test_dropping_takes_what_was_made_and_nothing_else(tmp_path, inventor):
    _, model, _ = inventor
    own = [("user", "Mine"), AIMessage("", tool_calls=[{"name": "a", "args": {}, "id": "c1"}]), AIMessage("Done.")]
    with ToolMemory(tmp_path) as memory:
        memory.finish(own, thread_id="mine", success=True)
        made = bootstrap(memory, Toy(), model)
        made.run()
        assert len(entries(memory)) == 9
        assert drop(memory) == 8
        assert bootstrap(memory, Toy(), model).progress().run == 0
        assert [entry.query for entry in entries(memory)] == ["Mine"]
        assert drop(memory) == 0
    assert not any(REQUESTS[0].encode() in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


def test_each_user_has_requests_and_entries_of_their_own(tmp_path, inventor):
    reply, model, _ = inventor
    with ToolMemory(tmp_path, namespace=("toolmem", "{user_id}")) as memory:
        with pytest.raises(NamespaceError):
            bootstrap(memory, Toy(), model)
        for user in ("ann@example.com", "bob/../x"):
            reply.requests = list(REQUESTS)
            toy = Toy()
            made = bootstrap(memory, toy, model, user_id=user)
            assert made.run().run == 8
            assert (toy.seen, toy.users) == (REQUESTS, [user] * 8)
        assert len(entries(memory, "toolmem", "ann@example.com")) == 8
        assert {entry.user for entry in entries(memory, "toolmem", "bob/../x")} == {user_digest("bob/../x")}
        with pytest.raises(NamespaceError):
            drop(memory)
        assert drop(memory, user_id="ann@example.com") == 8
        assert len(entries(memory, "toolmem", "bob/../x")) == 8


def test_an_agent_with_the_memory_plugged_in_makes_no_second_entry(inventor):
    _, model, _ = inventor
    with ToolMemory.ephemeral() as memory:
        builder = StateGraph(MessagesState)

        def work(state: MessagesState) -> dict[str, Any]:
            call = {"name": "a", "args": {}, "id": f"call_{hash(state['messages'][0].text):x}", "type": "tool_call"}
            done = [AIMessage("", tool_calls=[call]), ToolMessage("1", tool_call_id=call["id"]), AIMessage("Done.")]
            return {"messages": done}

        def own(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
            memory.finish(state["messages"], thread_id=config["configurable"]["thread_id"], wait=True)
            return {}

        builder.add_node("work", work)
        builder.add_node("own", own)
        builder.add_edge(START, "work")
        builder.add_edge("work", "own")
        sandbox = Sandbox(builder.compile(), TOOLS, verdict=lambda *_: True)
        made = bootstrap(memory, sandbox, model)
        assert made.run().good == 8
        assert [entry.score for entry in entries(memory)] == [1.0] * 8
        assert drop(memory) == 8
        assert entries(memory) == []


def test_what_cannot_work_is_told_before_anything_is_done(tmp_path):
    with ToolMemory(tmp_path) as memory:
        memory.finish([("user", "x"), AIMessage("y")], success=False)
        with pytest.raises(ConfigurationError, match="must have invoke or ainvoke"):
            Sandbox(object(), TOOLS)
        with pytest.raises(ConfigurationError, match="at least one tool"):
            bootstrap(memory, Sandbox(Toy(), []))
        with ToolMemory(tmp_path, read_only=True) as reader, pytest.raises(StorageError, match="read-only"):
            bootstrap(reader, Toy())


# --- inventing ---

SPECS = read_tools(
    [
        {"name": name, "description": name, "parameters": {"type": "object", "properties": {}}}
        for name in ("find_person", "sendEmail", "search", "book_room")
    ]
)


def invented(text: str, *tools: str) -> InventedQuery:
    return InventedQuery(text=text, tools=list(tools or ("find_person",)))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Search the files for last year's budget", True),  # a plain word
        ("Ask ann@example.com whether room [4] is free", True),
        ("Book the room for 3 people <ann@example.com>", True),
        ("Please use find_person to get me Ann's number", False),
        ("Let sendEmail write to Ann about lunch", False),
        ("Write to [recipient] that I am late", False),
        ("Write to <name> that I am late today", False),
        ("Write to {person} that I am late today", False),
        ("Ann?", False),
        ("Ann " * 300, False),
        ("please   delete the FILE notes.txt", False),  # nearly a known one
        ("Cancel order 18", True),
    ],
)
def test_requests_that_nobody_would_write_are_rejected(text: str, kept: bool) -> None:
    found = usable([invented(text)], SPECS, ["Delete the file notes.txt", "Cancel order 17"])
    assert [each.text for each in found] == ([text] if kept else [])


def test_the_tools_that_came_up_least_are_next() -> None:
    known = [invented("1", "find_person", "search"), invented("2", "book_room")]
    assert least_used(SPECS, known, random.Random(0))[0] == "sendEmail"
