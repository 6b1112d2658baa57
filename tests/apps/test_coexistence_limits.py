"""``create_agent`` with limits, retries, errors, fallbacks and blockers: the memory changes nothing but model calls."""

from __future__ import annotations

import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from agents import WAYS, both, build_agent, same_calls
from desk import EAGER, NAMES, Desk, call_id, expected, number, script, shortcuts, this_turn, thread, warm
from langchain.agents import AgentState
from langchain.agents.middleware import (
    AgentMiddleware,
    ModelCallLimitMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    ToolCallLimitMiddleware,
    ToolErrorMiddleware,
    ToolRetryMiddleware,
)
from langchain.agents.middleware.model_call_limit import ModelCallLimitExceededError, ModelCallLimitState
from langchain.agents.middleware.tool_call_limit import ToolCallLimitExceededError
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.testing import ScriptedChatModel

SHADOW = EAGER.with_(shadow=True)
LOOKED_UP = expected(NAMES[0])[:2]


class Grown:
    """What the memory learned since this was made."""

    def __init__(self, memory: ToolMemory | None) -> None:
        assert memory is not None
        self._memory = memory
        self._outcomes = {name: self._now(name) for name in ("find_customer", "latest_order", "add_note")}
        self._report = memory.report()

    def outcomes(self, tool_name: str) -> dict[str, int]:
        """How often a call was executed or not, by status; what did not grow is left out."""
        before, now = self._outcomes[tool_name], self._now(tool_name)
        return {status: now[status] - before[status] for status in now if now[status] != before[status]}

    def __getattr__(self, name: str) -> int:
        """A number of the report, grown."""
        grown: int = getattr(self._memory.report(), name) - getattr(self._report, name)
        return grown

    def _now(self, tool_name: str) -> dict[str, int]:
        entry = self._memory.core.graph.tools.get(tool_name, {})
        return {status: int(entry.get(status, 0)) for status in ("ok", "failed", "rejected", "unanswered")}


# --- limits on tool calls ---


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("limited", [None, "add_note"], ids=["all-tools", "one-tool"])
@pytest.mark.parametrize("exit_behavior", ["continue", "end", "error"])
@pytest.mark.parametrize("policy", [EAGER, SHADOW], ids=["shortcut", "model"])
async def test_tool_call_limit(way: str, limited: str | None, exit_behavior: Any, policy: Any) -> None:
    """The note is one too many: of three calls in the request, or in the thread."""
    limit: dict[str, Any] = {"run_limit": 2} if limited is None else {"thread_limit": 1, "tool_name": limited}
    ours, theirs = both(lambda: [ToolCallLimitMiddleware(exit_behavior=exit_behavior, **limit)], policy=policy)
    config = thread("limited")
    if limited is not None:
        for agent in (ours, theirs):
            await agent.run(1, way, config=config)
    grown = Grown(ours.memory)
    ends = []
    for agent in (ours, theirs):
        if exit_behavior == "error":
            with pytest.raises(ToolCallLimitExceededError):
                await agent.run(0, way, config=config)
            ends.append(agent.graph.get_state(config).values)
        else:
            ends.append(await agent.run(0, way, config=config))
    same_calls(ours.desk, theirs.desk)
    assert ours.desk.done[-2:] == LOOKED_UP
    made = shortcuts(ends[0]["messages"])
    assert bool(made) == (policy is EAGER)
    assert not made or made[-1].tool_calls[0]["name"] == "add_note", "the blocked call was a shortcut"
    assert ends[0]["messages"][-1].text == ends[1]["messages"][-1].text
    if exit_behavior == "error":
        assert grown.outcomes("add_note") == {}, "nobody knows yet what becomes of the call"
        return

    # The next request of the thread is stopped in the same way. Where the limit ended the run, its last turn is
    # learned when the thread goes on; what the limit said in the model's place is no answer of the model.
    for agent in (ours, theirs):
        await agent.run(2, way, config=config)
    same_calls(ours.desk, theirs.desk)
    went_on = exit_behavior == "continue"
    assert grown.outcomes("add_note") == {"rejected": 2 if went_on else 1}
    assert grown.answers == (2 if went_on else 0)
    assert grown.outcomes("find_customer") == {"ok": 2}
    assert grown.skipped_failed == grown.wrong == 0
    assert (grown.right > 0) == (policy is SHADOW)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("exit_behavior", ["end", "error"])
async def test_a_shortcut_is_not_a_model_call(way: str, exit_behavior: Any) -> None:
    """Two model calls are allowed. Three calls by shortcuts and one answer are one."""
    ours, theirs = both(lambda: [ModelCallLimitMiddleware(run_limit=2, exit_behavior=exit_behavior)])
    end = await ours.run(0, way)
    assert ours.desk.done == expected(NAMES[0])
    assert len(shortcuts(end["messages"])) == 3
    assert end["messages"][-1].text == f"The order of {NAMES[0]} is checked."
    if exit_behavior == "error":
        with pytest.raises(ModelCallLimitExceededError):
            await theirs.run(0, way)
    else:
        stopped = await theirs.run(0, way)
        assert stopped["messages"][-1].text.startswith("Model call limits exceeded")
    assert theirs.desk.done == LOOKED_UP, "without the memory the limit ends the run"


@pytest.mark.parametrize("way", WAYS)
async def test_real_model_calls_are_counted_with_and_without_shortcuts(way: str) -> None:
    """Each request needs two model calls here; the third one is over the thread's limit."""
    policy = EAGER.with_(never={"latest_order"})
    ours, _ = both(lambda: [ModelCallLimitMiddleware(thread_limit=4, run_limit=2)], policy=policy)
    config = thread("counted")
    for i in range(2):
        end = await ours.run(i, way, config=config)
        assert end["messages"][-1].text.endswith("is checked.")
        assert ours.graph.get_state(config).values["thread_model_call_count"] == ours.model_calls == 2 * (i + 1)
    end = await ours.run(2, way, config=config)
    assert end["messages"][-1].text.startswith("Model call limits exceeded")
    assert ours.model_calls == 4


def test_the_counts_of_model_call_limit_have_the_names_we_take_one_off() -> None:
    from langgraph_toolmem.turn.middleware import MODEL_CALL_COUNTS

    assert set(MODEL_CALL_COUNTS) <= set(ModelCallLimitState.__annotations__)
    counting = {name for name in ModelCallLimitState.__annotations__ if name.endswith("_count")}
    assert counting == set(MODEL_CALL_COUNTS)


@pytest.mark.parametrize("way", WAYS)
async def test_a_limit_without_shortcuts_is_kept_as_before(way: str) -> None:
    ours, theirs = both(lambda: [ModelCallLimitMiddleware(run_limit=2)], policy=SHADOW)
    grown = Grown(ours.memory)
    for i in range(2):
        ends = [await agent.run(i, way, config=thread("limited")) for agent in (ours, theirs)]
        assert ends[0]["messages"][-1].text == ends[1]["messages"][-1].text
        assert ends[0]["messages"][-1].text.startswith("Model call limits exceeded")
    same_calls(ours.desk, theirs.desk)
    assert ours.model_calls == theirs.model_calls == 4
    assert grown.answers == 0, "what the limit said is no answer of the model"


# --- tools that fail ---


class Unreliable(Desk):
    """The order of each customer is found only at the n-th attempt."""

    def __init__(self, fails: int) -> None:
        super().__init__()
        self.fails = fails
        self.before_failing: Callable[[], object] = lambda: None
        self._attempts: dict[str, int] = {}

    @property
    def tools(self) -> list[BaseTool]:
        @tool
        def latest_order(customer_id: str) -> str:
            """The latest order of a customer."""
            self.did("latest_order", customer_id=customer_id)
            self._attempts[customer_id] = self._attempts.get(customer_id, 0) + 1
            if self._attempts[customer_id] <= self.fails:
                self.before_failing()
                raise ConnectionError("no line to the orders")
            return json.dumps({"order_id": customer_id.replace("C-", "O-"), "state": "shipped"})

        return [latest_order if known.name == "latest_order" else known for known in super().tools]


def retry(**options: Any) -> ToolRetryMiddleware:
    return ToolRetryMiddleware(initial_delay=0.0, jitter=False, **options)


def tell_model(error: Exception, _request: ToolCallRequest) -> str:
    return f"{type(error).__name__}: try something else"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("policy", [EAGER, SHADOW], ids=["shortcut", "model"])
@pytest.mark.parametrize(
    ("fails", "inside", "outcomes"),
    [
        pytest.param(2, lambda: [retry(max_retries=3)], {"ok": 1, "failed": 2}, id="retry-helps"),
        pytest.param(9, lambda: [retry(max_retries=2)], {"failed": 3}, id="retry-gives-up"),
        pytest.param(9, lambda: [ToolErrorMiddleware(tell_model)], {"failed": 1}, id="error-told"),
        pytest.param(
            9,
            lambda: [ToolErrorMiddleware(tell_model), retry(max_retries=1, on_failure="error")],
            {"failed": 2},
            id="retry-then-error-told",
        ),
        pytest.param(1, lambda: [ToolErrorMiddleware(tell_model), retry(max_retries=1)], {"ok": 1, "failed": 1}),
    ],
)
async def test_each_attempt_is_counted_once(
    way: str, policy: Any, fails: int, inside: Callable[[], list[Any]], outcomes: dict[str, int]
) -> None:
    ours, theirs = both(inside, desk=lambda: Unreliable(fails), policy=policy)
    grown = Grown(ours.memory)
    ends = [await agent.run(0, way) for agent in (ours, theirs)]
    same_calls(ours.desk, theirs.desk)
    assert ends[0]["messages"][-1].text == ends[1]["messages"][-1].text
    attempts = [name for name, _ in ours.desk.done].count("latest_order")
    assert attempts == sum(outcomes.values())
    assert grown.outcomes("latest_order") == outcomes
    assert grown.outcomes("find_customer") == grown.outcomes("add_note") == {"ok": 1}
    assert grown.skipped_failed == (1 if policy is EAGER and "ok" not in outcomes else 0)
    if policy is EAGER:
        assert "latest_order" in {m.tool_calls[0]["name"] for m in shortcuts(ends[0]["messages"])}
        assert ours.model_calls < theirs.model_calls
    else:
        assert shortcuts(ends[0]["messages"]) == []
        assert ours.model_calls == theirs.model_calls


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("policy", [EAGER, SHADOW], ids=["shortcut", "model"])
@pytest.mark.parametrize("inside", [tuple, lambda: [retry(max_retries=1, on_failure="error")]], ids=["bare", "retry"])
async def test_a_failed_call_that_ends_the_run_is_learned_at_once_and_the_thread_goes_on(
    way: str, policy: Any, inside: Callable[[], Any]
) -> None:
    attempts = 1 if inside is tuple else 2
    ours, theirs = both(inside, desk=lambda: Unreliable(attempts), policy=policy)
    grown = Grown(ours.memory)
    for agent in (ours, theirs):
        with pytest.raises(ConnectionError):
            await agent.run(0, way)
    same_calls(ours.desk, theirs.desk)
    assert grown.outcomes("latest_order") == {"failed": attempts}, "learned as the run died"
    assert grown.skipped_failed == (1 if policy is EAGER else 0)

    ends = [await agent.ask(None, thread("thread-0"), way) for agent in (ours, theirs)]
    same_calls(ours.desk, theirs.desk)
    assert ends[0]["messages"][-1].text == ends[1]["messages"][-1].text == f"The order of {NAMES[0]} is checked."
    assert bool(shortcuts(ends[0]["messages"])) == (policy is EAGER)
    assert grown.outcomes("latest_order") == {"failed": attempts, "ok": 1}, "and then it was found after all"
    assert grown.outcomes("add_note") == {"ok": 1}


@pytest.mark.parametrize("way", WAYS)
async def test_resuming_what_fails_again_counts_each_attempt(way: str) -> None:
    ours, theirs = both(desk=lambda: Unreliable(3))
    grown = Grown(ours.memory)
    for agent in (ours, theirs):
        with pytest.raises(ConnectionError):
            await agent.run(0, way)
        for _ in range(2):
            with pytest.raises(ConnectionError):
                await agent.ask(None, thread("thread-0"), way)
        await agent.ask(None, thread("thread-0"), way)
    same_calls(ours.desk, theirs.desk)
    assert grown.outcomes("latest_order") == {"failed": 3, "ok": 1}
    assert grown.skipped_failed == 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("policy", [EAGER, SHADOW], ids=["shortcut", "model"])
@pytest.mark.parametrize("told", [True, False], ids=["told", "run-died"])
async def test_a_failed_attempt_is_counted_once_across_processes(
    tmp_path: Path, way: str, policy: Any, told: bool
) -> None:
    """The process ends right after the tool failed; another one goes on with the thread."""
    inside = [ToolErrorMiddleware(tell_model)] if told else []
    desk, saver = Unreliable(1), InMemorySaver()
    with ToolMemory(tmp_path, tools=desk.tools) as memory:
        warm(memory)
        grown = Grown(memory)
        agent = build_agent(memory, desk, inside=inside, checkpointer=saver, policy=policy)
        if told:
            state = await agent.run(0, way, interrupt_after=["tools"])
            state = await agent.ask(None, thread("thread-0"), way, interrupt_after=["tools"])
            assert state["messages"][-1].status == "error"
        else:
            with pytest.raises(ConnectionError):
                await agent.run(0, way)
        assert grown.outcomes("latest_order") == {"failed": 1}
    with ToolMemory(tmp_path, tools=desk.tools) as memory:
        grown = Grown(memory)
        end = await build_agent(memory, desk, inside=inside, checkpointer=saver, policy=policy).ask(
            None, thread("thread-0"), way
        )
        assert end["messages"][-1].text.endswith("is checked.")
        assert bool(shortcuts(end["messages"])) == (policy is EAGER)
        assert grown.outcomes("latest_order") == ({} if told else {"ok": 1})


# --- a model that fails ---


class Moody:
    """The desk's script, by a model that is down the first times it is asked."""

    def __init__(self, fails: int) -> None:
        self.fails = fails
        self.asked = 0

    def __call__(self, messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        self.asked += 1
        if self.asked <= self.fails:
            raise ConnectionError("the model is down")
        return script(messages, tools)


def moody(fails: int) -> Callable[[], ScriptedChatModel]:
    return lambda: ScriptedChatModel(script=Moody(fails))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "inside",
    [
        pytest.param(
            lambda: [ModelRetryMiddleware(max_retries=2, initial_delay=0.0, jitter=False, on_failure="error")],
            id="retry",
        ),
        pytest.param(lambda: [ModelFallbackMiddleware(ScriptedChatModel(script=script))], id="fallback"),
    ],
)
@pytest.mark.parametrize("policy", [EAGER.with_(never={"latest_order"}), SHADOW], ids=["shortcut", "model"])
async def test_a_failing_model_is_tried_again_as_before(way: str, inside: Callable[[], Any], policy: Any) -> None:
    ours, theirs = both(inside, model=moody(2), policy=policy)
    grown = Grown(ours.memory)
    ends = [await agent.run(0, way) for agent in (ours, theirs)]
    same_calls(ours.desk, theirs.desk)
    assert ends[0]["messages"][-1].text == ends[1]["messages"][-1].text == f"The order of {NAMES[0]} is checked."
    skipped = 0 if policy is SHADOW else 2
    assert len(shortcuts(ends[0]["messages"])) == grown.skipped == skipped
    assert grown.turns == 4
    assert grown.wrong == 0
    assert grown.answers == 1
    assert grown.calls == 3 - skipped


@pytest.mark.parametrize("way", WAYS)
async def test_words_in_a_failed_models_place_are_not_learned(way: str) -> None:
    def inside() -> list[Any]:
        return [ModelRetryMiddleware(max_retries=1, initial_delay=0.0, jitter=False, on_failure="continue")]

    ours, theirs = both(inside, model=moody(2))
    grown = Grown(ours.memory)
    ends = [await agent.run(0, way) for agent in (ours, theirs)]
    assert (ours.desk.done, theirs.desk.done) == (expected(NAMES[0]), []), "the calls were made before it failed"
    assert ends[0]["messages"][-1].text == ends[1]["messages"][-1].text
    assert ends[0]["messages"][-1].text.startswith("Model call failed after 2 attempts")
    await ours.run(1, way, config=thread("thread-0"))
    assert grown.answers == 1


@pytest.mark.parametrize("way", WAYS)
async def test_a_run_that_a_failing_model_ended_goes_on(way: str) -> None:
    ours, theirs = both(model=moody(1), policy=EAGER.with_(never={"latest_order"}))
    grown = Grown(ours.memory)
    for agent in (ours, theirs):
        with pytest.raises(ConnectionError):
            await agent.run(0, way)
    ends = [await agent.ask(None, thread("thread-0"), way) for agent in (ours, theirs)]
    same_calls(ours.desk, theirs.desk)
    assert len(shortcuts(ends[0]["messages"])) == 2
    assert (grown.turns, grown.calls, grown.answers, grown.skipped, grown.wrong) == (4, 1, 1, 2, 0)


# --- tools that return a Command ---


class Pages(AgentState[Any]):
    """State with a key that a tool writes."""

    page: str


class CommandDesk(Desk):
    """Looking up an order also puts it into the state."""

    @property
    def tools(self) -> list[BaseTool]:
        @tool
        def latest_order(customer_id: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
            """The latest order of a customer."""
            self.did("latest_order", customer_id=customer_id)
            order = customer_id.replace("C-", "O-")
            told = ToolMessage(json.dumps({"order_id": order, "state": "shipped"}), tool_call_id=tool_call_id)
            return Command(update={"messages": [told], "page": order})

        return [latest_order if known.name == "latest_order" else known for known in super().tools]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("policy", [EAGER, SHADOW], ids=["shortcut", "model"])
async def test_a_tool_may_return_a_command(way: str, policy: Any) -> None:
    named = policy.with_(may_write={"latest_order"})  # it steers the run: its name does not help
    ours, theirs = both(desk=CommandDesk, policy=named, state_schema=Pages)
    grown = Grown(ours.memory)
    ends = [await agent.run(0, way) for agent in (ours, theirs)]
    same_calls(ours.desk, theirs.desk)
    assert ends[0]["page"] == ends[1]["page"] == f"O-{number(NAMES[0])}"
    assert len(shortcuts(ends[0]["messages"])) == (2 if policy is EAGER else 0)
    assert grown.outcomes("latest_order") == {"ok": 1}
    assert grown.right == (0 if policy is EAGER else 2)


# --- blocked is not failed ---


class Blocker(AgentMiddleware[Any, Any, Any]):
    """Answers one tool's calls itself: whatever it says, the tool was not executed."""

    def __init__(self, blocked: str, text: str = "Sorry, the warehouse is closed on Sundays.") -> None:
        super().__init__()
        self._blocked = blocked
        self._text = text

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        return self._answer(request) or handler(request)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        return self._answer(request) or await handler(request)

    def _answer(self, request: ToolCallRequest) -> ToolMessage | None:
        if request.tool_call["name"] != self._blocked:
            return None
        return ToolMessage(self._text, tool_call_id=request.tool_call["id"], status="error")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("policy", [EAGER, SHADOW, None], ids=["shortcut", "model", "cold"])
@pytest.mark.parametrize("blocked", ["latest_order", "add_note"])
async def test_a_blocked_call_was_not_executed_and_did_not_fail(way: str, policy: Any, blocked: str) -> None:
    ours, theirs = both(lambda: [Blocker(blocked)], policy=policy or EAGER, runs=0 if policy is None else 24)
    grown = Grown(ours.memory)
    ends = [await agent.run(0, way) for agent in (ours, theirs)]
    same_calls(ours.desk, theirs.desk)
    assert blocked not in {name for name, _ in ours.desk.done}
    assert ends[0]["messages"][-1].text == ends[1]["messages"][-1].text
    assert grown.outcomes(blocked) == {"rejected": 1}
    assert grown.skipped_failed == 0
    assert bool(shortcuts(ends[0]["messages"])) == (policy is EAGER)
    if policy is EAGER:
        assert blocked in {m.tool_calls[0]["name"] for m in shortcuts(ends[0]["messages"])}


@pytest.mark.parametrize("way", WAYS)
async def test_an_error_that_the_tool_itself_returns_is_a_failure(way: str) -> None:
    """The same text and status as the blocker's, but the tool was executed."""

    class Closed(Desk):
        @property
        def tools(self) -> list[BaseTool]:
            @tool
            def latest_order(customer_id: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> ToolMessage:
                """The latest order of a customer."""
                self.did("latest_order", customer_id=customer_id)
                return ToolMessage("Sorry, the warehouse is closed.", tool_call_id=tool_call_id, status="error")

            return [latest_order if known.name == "latest_order" else known for known in super().tools]

    ours, theirs = both(desk=Closed)
    grown = Grown(ours.memory)
    end = await ours.run(0, way)
    await theirs.run(0, way)
    same_calls(ours.desk, theirs.desk)
    assert len(shortcuts(end["messages"])) >= 2
    assert grown.outcomes("latest_order") == {"failed": 1}
    assert grown.skipped_failed == 1


# --- parallel calls ---


def two_at_once(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
    """Finds the customer, then looks the order up and writes a note in one turn."""
    user, answers = this_turn(messages)
    if len(answers) != 1:
        return AIMessage("Both are done.") if answers else script(messages, tools)
    name = user.text.split(" order of ")[1].split()[0]
    wanted = [expected(name)[1], ("add_note", {"order_id": f"O-{number(name)}", "note": "checked"})]
    made: list[Any] = [
        {"name": n, "args": args, "id": call_id(user.id, i), "type": "tool_call"} for i, (n, args) in enumerate(wanted)
    ]
    return AIMessage("", tool_calls=made)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("fails", "inside", "order", "note"),
    [
        pytest.param(9, lambda: [ToolErrorMiddleware(tell_model)], {"failed": 1}, {"ok": 1}, id="one-fails"),
        pytest.param(1, lambda: [retry(max_retries=2)], {"failed": 1, "ok": 1}, {"ok": 1}, id="one-is-retried"),
        pytest.param(0, lambda: [Blocker("add_note")], {"ok": 1}, {"rejected": 1}, id="one-is-blocked"),
        pytest.param(
            9,
            lambda: [Blocker("add_note"), ToolErrorMiddleware(tell_model)],
            {"failed": 1},
            {"rejected": 1},
            id="one-fails-one-is-blocked",
        ),
        pytest.param(
            0,
            lambda: [ToolCallLimitMiddleware(run_limit=2)],
            {"ok": 1},
            {"rejected": 1},
            id="one-is-over-the-limit",
        ),
    ],
)
async def test_parallel_calls_are_told_apart(
    way: str, fails: int, inside: Callable[[], list[Any]], order: dict[str, int], note: dict[str, int]
) -> None:
    policy = EAGER.with_(never={"latest_order", "add_note"})
    ours, theirs = both(
        inside,
        desk=lambda: Unreliable(fails),
        model=lambda: ScriptedChatModel(script=two_at_once),
        policy=policy,
    )
    grown = Grown(ours.memory)
    end = await ours.run(0, way)
    await theirs.run(0, way)
    same_calls(ours.desk, theirs.desk, ordered=False)
    assert len(shortcuts(end["messages"])) == 1
    assert end["messages"][-1].text == "Both are done."
    assert grown.outcomes("latest_order") == order
    assert grown.outcomes("add_note") == note


class NoteKept(InMemorySaver):
    """Lets others wait until the answer of the note is in the checkpoint.

    The error of one call cancels the others of its turn, with an agent of any kind: an answer that is not kept yet is
    lost, and when the thread goes on its tool is called once more.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kept = threading.Event()

    def put_writes(self, config: Any, writes: Any, *args: Any) -> None:
        super().put_writes(config, writes, *args)
        messages = [m for _, value in writes if isinstance(value, list) for m in value]
        if any(isinstance(m, ToolMessage) and m.name == "add_note" for m in messages):
            self._kept.set()

    def wait(self) -> None:
        assert self._kept.wait(60)


@pytest.mark.parametrize("way", WAYS)
async def test_one_of_two_parallel_calls_ends_the_run_and_the_thread_goes_on(way: str) -> None:
    policy = EAGER.with_(never={"latest_order", "add_note"})
    ours, theirs = both(desk=lambda: Unreliable(1), model=lambda: ScriptedChatModel(script=two_at_once), policy=policy)
    grown = Grown(ours.memory)
    for agent in (ours, theirs):
        agent.graph.checkpointer = NoteKept()
        agent.desk.before_failing = agent.graph.checkpointer.wait  # type: ignore[attr-defined]
        with pytest.raises(ConnectionError):
            await agent.run(0, way)
        end = await agent.ask(None, thread("thread-0"), way)
        assert end["messages"][-1].text == "Both are done."
    same_calls(ours.desk, theirs.desk, ordered=False)
    assert grown.outcomes("latest_order") == {"failed": 1, "ok": 1}
    assert grown.outcomes("add_note") == {"ok": 1}


# --- all at once ---


@pytest.mark.parametrize("way", WAYS)
async def test_a_thread_of_many_requests_behind_everything(way: str) -> None:
    """Limits, retries and errors together, many requests in one thread, learned exactly once each."""

    def inside() -> list[Any]:
        return [
            ModelCallLimitMiddleware(thread_limit=100),
            ToolCallLimitMiddleware(thread_limit=100),
            ToolErrorMiddleware(tell_model),
            retry(max_retries=1),
            ModelRetryMiddleware(max_retries=1, initial_delay=0.0, jitter=False),
        ]

    ours, theirs = both(inside, desk=lambda: Unreliable(1))
    grown = Grown(ours.memory)
    requests = 8
    for i in range(requests):
        for agent in (ours, theirs):
            await agent.run(i, way, config=thread("long"))
    same_calls(ours.desk, theirs.desk)
    assert grown.outcomes("latest_order") == {"ok": requests, "failed": requests}
    assert grown.outcomes("find_customer") == grown.outcomes("add_note") == {"ok": requests}
    assert grown.turns == grown.skipped + ours.model_calls == 4 * requests
    assert grown.skipped > requests
    assert grown.wrong == 0
    assert ours.graph.get_state(thread("long")).values["thread_model_call_count"] == ours.model_calls
