"""The memory in agents as hosts build them: the work is as without it, and each call is learned rightly."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple, cast

import pytest
from desk import (
    EAGER,
    NAMES,
    Desk,
    assert_answered,
    calling,
    expected,
    number,
    request,
    script,
    shortcuts,
    this_turn,
    thread,
    warm,
)
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    AutoModeMiddleware,
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    HumanInTheLoopMiddleware,
    ModelCallLimitMiddleware,
    ModelChoice,
    ModelFallbackMiddleware,
    ModelRefusalMiddleware,
    ModelRetryMiddleware,
    ModelRouterMiddleware,
    PIIMiddleware,
    ProviderToolSearchMiddleware,
    SummarizationMiddleware,
    ToolCallLimitMiddleware,
    ToolErrorMiddleware,
    ToolRetryMiddleware,
)
from langchain.agents.middleware.model_call_limit import ModelCallLimitExceededError
from langchain.agents.middleware.tool_call_limit import ToolCallLimitExceededError
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.decisions import ChoiceAnswer
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command
from pydantic import BaseModel
from shells import App, agent_of, asked, both, build_agent, same_calls
from trained import knowing_desk

from langgraph_toolmem import Entries, Inertia, ToolMemory
from langgraph_toolmem.core import catalogue
from langgraph_toolmem.graph.provenance import decode_value
from langgraph_toolmem.graph.state import slot_key
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel

pytestmark = pytest.mark.usefixtures("nothing_failed")

SHADOW = EAGER.with_(shadow=True)
each_policy = pytest.mark.parametrize("policy", [EAGER, SHADOW], ids=["shortcut", "model"])
LOOKED_UP = expected(NAMES[0])[:2]
ORDER = f"O-{number(NAMES[0])}"


def new_memory(path: Path | None = None, **options: Any) -> ToolMemory:
    options = {"methods": [Inertia(EAGER)], **options}
    return ToolMemory.ephemeral(**options) if path is None else ToolMemory(path, **options)


def pair(
    outer: Callable[[], Sequence[Any]] = tuple, *, desk: Callable[[], Desk] = Desk, runs: int = 24, **options: Any
) -> tuple[App, App]:
    """The same agent twice: with a memory that knows the desk, and without."""

    def make(folder: Path) -> ToolMemory:
        return new_memory(folder, tools=desk().tools, reads={"*"})

    memory = knowing_desk(runs, make, ("inertia", type(desk())))
    return both(outer, desk=desk, memory=memory, **options)


def calls_in(state: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(c["name"], c["args"]) for m in state["messages"] if isinstance(m, AIMessage) for c in m.tool_calls]


def made_in(state: dict[str, Any]) -> list[str]:
    """The tools called by shortcuts in the latest turn."""
    last = max(i for i, m in enumerate(state["messages"]) if isinstance(m, HumanMessage))
    return [m.tool_calls[0]["name"] for m in shortcuts(state["messages"][last:])]


async def alike(
    ours: App, theirs: App, *numbers: int, name: str | None = None, ordered: bool = True
) -> tuple[Any, Any]:
    """Runs both; what they do and say is the same. The last states, and the tools called by shortcuts."""
    made: Counter[str] = Counter()
    for i in numbers:
        state, plain = await ours.run(i, thread=name), await theirs.run(i, thread=name)
        assert calls_in(state) == calls_in(plain)
        assert state["messages"][-1].text == plain["messages"][-1].text
        assert_answered(state["messages"])
        made.update(made_in(state))
    same_calls(ours.desk, theirs.desk, ordered=ordered)
    return (state, plain), made


class Grown:
    """What the memory learned since this was made."""

    def __init__(self, memory: ToolMemory | None) -> None:
        assert memory is not None
        self.memory = memory
        self._outcomes = {name: self._outcomes_of(name) for name in ("find_customer", "latest_order", "add_note")}
        self._notes, self._report = self._notes_now(), memory.report()

    def __getattr__(self, name: str) -> int:
        grown: int = getattr(self.memory.report(), name) - getattr(self._report, name)
        return grown

    def outcomes(self, tool_name: str) -> dict[str, float]:
        """How often a call was executed or not, by status."""
        return _more(self._outcomes[tool_name], self._outcomes_of(tool_name))

    def notes(self) -> dict[str, float]:
        """The texts of notes."""
        return _more(self._notes, self._notes_now())

    def _outcomes_of(self, tool_name: str) -> dict[str, float]:
        entry = self.memory.core.graph.tools.get(tool_name, {})
        return {status: entry.get(status, 0) for status in ("ok", "failed", "rejected", "unanswered")}

    def _notes_now(self) -> dict[str, float]:
        row = self.memory.core.graph.values.row(slot_key("add_note", "note"))
        return {decode_value(value): cell[0] for value, cell in row.items()}


def _more(before: dict[str, float], now: dict[str, float]) -> dict[str, float]:
    return {name: now[name] - before.get(name, 0) for name in now if now[name] != before.get(name, 0)}


def name_in(messages: list[BaseMessage]) -> str:
    return this_turn(messages)[0].text.split(" order of ")[1].split()[0]


def swapped(tools: list[BaseTool], *others: BaseTool) -> list[BaseTool]:
    """The tools with others of the same names."""
    by_name = {each.name: each for each in others}
    return [by_name.get(each.name, each) for each in tools]


# --- the shapes that agents come in ---


class Verdict(BaseModel):
    """What came of it."""

    name: str
    checked: bool


def judge(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
    """The desk's script with a structured answer: through its tool if there is one, else as JSON text."""
    answer = script(messages, tools)
    if answer.tool_calls:
        return answer
    verdict = {"name": name_in(messages), "checked": True}
    if any(t["function"]["name"] == "Verdict" for t in tools):
        return calling("Verdict", verdict, len(messages))
    return AIMessage(json.dumps(verdict))


@pytest.mark.parametrize(("strategy", "name"), [(ToolStrategy, None), (ProviderStrategy, None), (ToolStrategy, "one")])
async def test_a_structured_answer_is_the_models_in_each_turn(strategy: Any, name: str | None) -> None:
    memory = new_memory()
    model = lambda: ScriptedChatModel(script=judge)  # noqa: E731
    ours, theirs = both(memory=memory, model=model, response_format=strategy(Verdict))
    made: Counter[str] = Counter()
    for i in range(20):
        (state, plain), found = await alike(ours, theirs, i, name=name)
        assert state["structured_response"] == plain["structured_response"] == Verdict(name=NAMES[i % 12], checked=True)
        made.update(found)
    assert set(made) == {"find_customer", "latest_order", "add_note"}
    assert ours.model_calls == 80 - made.total()
    assert theirs.model_calls == 80


@pytest.mark.parametrize("own", [None, True])
async def test_an_agent_within_a_graph_learns_each_turn_once(own: bool | None) -> None:
    memory = new_memory()
    agent = build_agent(memory, checkpointer=own)
    builder = StateGraph(MessagesState)
    builder.add_node("clerk", agent.graph)
    builder.add_edge(START, "clerk")
    builder.add_edge("clerk", END)
    graph = builder.compile(checkpointer=InMemorySaver())
    for i in range(20):
        state = await graph.ainvoke(asked(i), thread(f"thread-{i % 5}"))  # four turns in each thread
        assert_answered(state["messages"])
        assert len([m for m in state["messages"] if isinstance(m, HumanMessage)]) == i // 5 + 1
    assert agent.desk.done == [step for i in range(20) for step in expected(NAMES[i % 12])]
    report = memory.report()
    assert (report.turns, report.skipped) == (80, 80 - agent.model_calls)
    assert report.skipped > 0
    assert {c.calls for c in memory.view().tools.values()} == {20}


@pytest.mark.parametrize("named", [True, False], ids=["thread", "no thread"])
@pytest.mark.parametrize("fails", [False, True])
async def test_a_tool_may_replace_the_messages_of_its_injected_state(named: bool, fails: bool) -> None:
    """Deep agents delegate so: the state that the tool gets becomes the state of its subagent."""

    @tool
    def delegate(task: str, state: Annotated[dict[str, Any], InjectedState]) -> str:
        """Give a task to a subagent."""
        state["messages"] = [{"role": "user", "content": task}]
        if fails:
            raise ValueError("the subagent is busy")
        return f"{task}: done"

    def answers(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        if isinstance(messages[-1], ToolMessage):
            return AIMessage("Done.")
        calls = [{"name": "delegate", "args": {"task": part}, "id": f"{messages[-1].text}-{part}"} for part in "ab"]
        return AIMessage("", tool_calls=calls)

    memory = ToolMemory.ephemeral(tools=[delegate])
    middleware = tool_memory_middleware(
        memory, outer=[ToolErrorMiddleware(on_error=lambda error, request: str(error))], recall=True
    )
    agent = create_agent(ScriptedChatModel(script=answers), [delegate], middleware=middleware)
    for i in range(4):
        config = thread(f"thread-{i}") if named else {}
        state = await agent.ainvoke({"messages": [HumanMessage(f"Request {i}")]}, config)
        assert state["messages"][-1].text == "Done."
    report = memory.report()
    assert (report.turns, report.calls, report.answers) == (8, 8, 4)
    assert report.tools["delegate"].failed == (8 if fails else 0)


# --- middleware that changes what the model sees ---


@pytest.mark.parametrize(("keep", "made"), [(1, 3), (0, 1)])
async def test_only_tool_results_that_the_model_sees_give_values(keep: int, made: int) -> None:
    memory = new_memory(tools=Desk().tools)
    agent = build_agent(memory, outer=[ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=1, keep=keep)])])
    for i in range(20):
        state = await agent.run(i)
    assert agent.desk.done == [step for i in range(20) for step in expected(NAMES[i % 12])]
    assert len(shortcuts(state["messages"])) == made
    flows = {(f.source_tool, f.target_tool, f.parameter) for f in memory.view().dataflow if f.hits >= 2}
    wanted = {("find_customer", "latest_order", "customer_id"), ("latest_order", "add_note", "order_id")}
    assert flows & wanted == (wanted if keep else set())


@pytest.mark.parametrize(("trigger", "keep"), [(4, 1), (16, 10)])
async def test_a_summarised_thread_is_learned_call_by_call(trigger: int, keep: int) -> None:
    begun = requests = 0

    def knows_what_is_done(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        steps, done = expected(NAMES[requests % 12]), len(agent.desk.done) - begun
        return calling(*steps[done], begun, done) if done < len(steps) else AIMessage("It is checked.")

    memory, writer = new_memory(), ScriptedChatModel(script=lambda *_: AIMessage("Some orders were checked."))
    inside = [SummarizationMiddleware(writer, trigger=("messages", trigger), keep=("messages", keep))]
    agent = build_agent(memory, outer=inside, model=ScriptedChatModel(script=knows_what_is_done))
    for requests in range(30):
        begun = len(agent.desk.done)
        state = await agent.run(requests, thread="long")
        assert agent.desk.done[begun:] == expected(NAMES[requests % 12])
        assert len(state["messages"]) <= trigger + 2, "it was summarised"
    report = memory.report()
    assert (report.turns, report.skipped) == (120, 120 - agent.model_calls)
    assert (report.answers, report.calls) == (30, 90 - report.skipped)
    assert report.skipped >= 30, "shortcuts went on"
    assert {counts.ok for counts in memory.view().tools.values()} == {30}
    assert report.wrong == 0


# --- redaction ---

PRIVATE = "@private.example"


class Post(Desk):
    """A desk whose look-up of a customer gives an e-mail address."""

    @property
    def tools(self) -> list[BaseTool]:
        @tool
        def find_customer(name: str) -> str:
            """Find a customer by name."""
            self.did("find_customer", name=name)
            return json.dumps({"customer_id": f"C-{number(name)}", "mail": f"{name}.{number(name)}{PRIVATE}"})

        return swapped(super().tools, find_customer)


def talkative(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
    """The desk's script; it says too much."""
    made = script(messages, tools)
    return made.model_copy(update={"content": f"I am clerk.{name_in(messages)}{PRIVATE}. {made.text}"})


def letter(i: int) -> dict[str, Sequence[BaseMessage]]:
    said = asked(i)["messages"][0]
    return {"messages": [HumanMessage(f"{said.text}, written by {i}{PRIVATE}", id=said.id)]}


def assert_not_in_files(secret: str, folder: Path) -> None:
    files = [file for file in folder.rglob("*") if file.is_file() and file.stat().st_size]
    assert files, "something was written"
    assert not [file.name for file in files if secret.encode() in file.read_bytes()]


@pytest.mark.parametrize(("strategy", "threads"), [("redact", 30), ("mask", 30), ("hash", 1)])
async def test_the_memory_never_holds_what_was_redacted(strategy: str, threads: int, tmp_path: Path) -> None:
    memory = ToolMemory(tmp_path, reads={"*"})
    everywhere: Any = {"apply_to_input": True, "apply_to_output": True, "apply_to_tool_results": True}
    ours, theirs = (
        build_agent(
            each,
            Post(),
            outer=[PIIMiddleware("email", strategy=strategy, **everywhere)],
            model=ScriptedChatModel(script=talkative),
        )
        for each in (memory, None)
    )
    for i in range(30):
        state = await ours.ask(letter(i), "async", thread=str(i % threads))
        plain = await theirs.ask(letter(i), "async", thread=str(i % threads))
        assert [m.text for m in state["messages"] if isinstance(m, (HumanMessage, ToolMessage))] == [
            m.text for m in plain["messages"] if isinstance(m, (HumanMessage, ToolMessage))
        ]
        assert PRIVATE not in repr(state["messages"]), "the host redacts"
    same_calls(ours.desk, theirs.desk)
    report = memory.report()
    assert (report.turns, report.skipped) == (120, 120 - ours.model_calls)
    assert report.skipped >= 15
    assert {counts.calls for counts in memory.view().tools.values()} == {30}
    assert PRIVATE not in repr(memory.core.graph.to_state())
    memory.close()
    assert_not_in_files(PRIVATE, tmp_path)


# --- limits ---


@each_policy
@pytest.mark.parametrize("limit", [{"run_limit": 2}, {"thread_limit": 1, "tool_name": "add_note"}])
@pytest.mark.parametrize("exit_behavior", ["continue", "end", "error"])
async def test_a_call_over_the_limit_is_blocked_and_not_executed(limit: Any, exit_behavior: Any, policy: Any) -> None:
    """The note is one too many: of three calls in the request, or in the thread."""
    ours, theirs = pair(lambda: [ToolCallLimitMiddleware(exit_behavior=exit_behavior, **limit)], policy=policy)
    if "tool_name" in limit:
        await alike(ours, theirs, 1, name="limited")
    grown = Grown(ours.memory)
    if exit_behavior == "error":
        for agent in (ours, theirs):
            with pytest.raises(ToolCallLimitExceededError):
                await agent.run(0, thread="limited")
        same_calls(ours.desk, theirs.desk)
        assert grown.outcomes("add_note") == {}, "nobody knows yet what becomes of the call"
    else:
        _, made = await alike(ours, theirs, 0, name="limited")
        assert bool(made["add_note"]) == (policy is EAGER), "the blocked call was a shortcut"
    assert ours.desk.done[-2:] == LOOKED_UP
    if exit_behavior == "error":
        return

    # The next request of the thread is stopped in the same way. What the limit said in the model's place is no answer
    # of the model.
    await alike(ours, theirs, 2, name="limited")
    went_on = exit_behavior == "continue"
    assert grown.outcomes("add_note") == {"rejected": 2}
    assert grown.answers == (2 if went_on else 0)
    assert grown.outcomes("find_customer") == {"ok": 2}
    assert grown.skipped_failed == grown.wrong == 0
    assert (grown.right > 0) == (policy is SHADOW)


async def test_a_shortcut_is_not_a_model_call_of_the_limit() -> None:
    """Two model calls are allowed. Three calls by shortcuts and one answer are one."""
    ours, theirs = pair(lambda: [ModelCallLimitMiddleware(run_limit=2, exit_behavior="error")])
    end = await ours.run(0)
    assert end["messages"][-1].text == f"The order of {NAMES[0]} is checked."
    with pytest.raises(ModelCallLimitExceededError):
        await theirs.run(0)
    assert (ours.desk.done, theirs.desk.done) == (expected(NAMES[0]), LOOKED_UP)


# --- calls that fail, are blocked or refused ---


CLOSED = "Sorry, the warehouse is closed."


class Unreliable(Desk):
    """The order of each customer is found only at the n-th attempt; below 0 the tool answers with an error."""

    def __init__(self, fails: int) -> None:
        super().__init__()
        self.fails = fails
        self._attempts: Counter[str] = Counter()

    @property
    def tools(self) -> list[BaseTool]:
        @tool
        def latest_order(customer_id: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Any:
            """The latest order of a customer."""
            self.did("latest_order", customer_id=customer_id)
            self._attempts[customer_id] += 1
            if self.fails < 0:
                return ToolMessage(CLOSED, tool_call_id=tool_call_id, status="error")
            if self._attempts[customer_id] <= self.fails:
                raise ConnectionError("no line to the orders")
            return json.dumps({"order_id": customer_id.replace("C-", "O-"), "state": "shipped"})

        return swapped(super().tools, latest_order)


class Blocker(AgentMiddleware[Any, Any, Any]):
    """Answers one tool's calls itself: whatever it says, the tool was not executed."""

    def __init__(self, blocked: str) -> None:
        super().__init__()
        self._blocked = blocked

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        if request.tool_call["name"] != self._blocked:
            return await handler(request)
        return ToolMessage(CLOSED, tool_call_id=request.tool_call["id"], status="error")


def retry(**options: Any) -> ToolRetryMiddleware:
    return ToolRetryMiddleware(initial_delay=0.0, jitter=False, **options)


def tell_model(error: Exception, _request: ToolCallRequest) -> str:
    return f"{type(error).__name__}: try something else"


class Row(NamedTuple):
    """The host's middleware, how often the order's look-up fails, and what is counted of it and of the note."""

    inside: Callable[[], list[Any]]
    fails: int
    order: dict[str, int]
    note: dict[str, int] = {"ok": 1}  # noqa: RUF012


OUTCOMES = {
    "retry-helps": Row(lambda: [retry(max_retries=3)], 2, {"ok": 1, "failed": 2}),
    "retry-gives-up": Row(lambda: [retry(max_retries=2)], 9, {"failed": 3}),
    "error-told": Row(lambda: [ToolErrorMiddleware(tell_model)], 9, {"failed": 1}),
    "retry-then-error-told": Row(
        lambda: [ToolErrorMiddleware(tell_model), retry(max_retries=1, on_failure="error")], 9, {"failed": 2}
    ),
    "error-of-the-tool": Row(list, -1, {"failed": 1}),
    "blocked": Row(lambda: [Blocker("latest_order")], 0, {"rejected": 1}),
    "note-blocked": Row(lambda: [Blocker("add_note")], 0, {"ok": 1}, {"rejected": 1}),
}


@each_policy
@pytest.mark.parametrize("row", OUTCOMES)
async def test_each_attempt_is_counted_once_and_a_blocked_call_is_none(row: str, policy: Any) -> None:
    inside, fails, order, note = OUTCOMES[row]
    ours, theirs = pair(inside, desk=lambda: Unreliable(fails), policy=policy)
    grown = Grown(ours.memory)
    _, made = await alike(ours, theirs, 0)
    assert grown.outcomes("latest_order") == order
    assert grown.outcomes("add_note") == note
    assert grown.outcomes("find_customer") == {"ok": 1}
    failed = "failed" in order and "ok" not in order
    assert grown.skipped_failed == (1 if policy is EAGER and failed else 0)
    assert ("latest_order" in made) == (policy is EAGER)
    assert ours.model_calls == theirs.model_calls - made.total()


@pytest.mark.parametrize("told", [True, False], ids=["told", "run-died"])
async def test_a_failed_attempt_is_counted_once_across_processes(tmp_path: Path, told: bool) -> None:
    """The process ends right after the tool failed; another one goes on with the thread."""
    inside = [ToolErrorMiddleware(tell_model)] if told else []
    desk, saver = Unreliable(1 if told else 2), InMemorySaver()
    with new_memory(tmp_path, tools=desk.tools, reads={"*"}) as memory:
        warm(memory)
        grown = Grown(memory)
        agent = build_agent(memory, desk, outer=inside, checkpointer=saver)
        if told:
            await agent.graph.ainvoke(asked(0), thread("thread-0"), interrupt_after=["tools"])
            state = await agent.graph.ainvoke(None, thread("thread-0"), interrupt_after=["tools"])
            assert state["messages"][-1].status == "error"
        else:
            with pytest.raises(ConnectionError):
                await agent.run(0)
        assert grown.outcomes("latest_order") == {"failed": 1}
        await memory.aflush()
        assert told or grown.skipped_failed == 1, "nobody handled the error"
    with new_memory(tmp_path, tools=desk.tools, reads={"*"}) as memory:
        grown = Grown(memory)
        agent = build_agent(memory, desk, outer=inside, checkpointer=saver)
        if not told:
            with pytest.raises(ConnectionError):
                await agent.ask(None, "async", thread="thread-0")
            assert grown.outcomes("latest_order") == {"failed": 1}, "learned at once, as the first time"
        end = await agent.ask(None, "async", thread="thread-0")
        assert end["messages"][-1].text.endswith("is checked.")
        assert shortcuts(end["messages"])
        assert grown.outcomes("latest_order") == ({} if told else {"failed": 1, "ok": 1})


# --- a model that fails ---


async def test_words_in_a_failed_models_place_are_not_learned() -> None:
    failures = [ConnectionError("the model is down")] * 2

    def moody(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        if failures:
            raise failures.pop()
        return script(messages, tools)

    again = ModelRetryMiddleware(max_retries=1, initial_delay=0.0, jitter=False, on_failure="continue")
    ours, _ = pair(lambda: [again], model=lambda: ScriptedChatModel(script=moody))
    grown = Grown(ours.memory)
    await ours.run(0)
    assert ours.desk.done == expected(NAMES[0]), "the calls were made before it failed"
    await ours.run(1, thread="thread-0")
    assert grown.answers == 1


class CostCounter(AgentMiddleware[Any, Any, Any]):
    """Adds up the tokens of every message that stands in the model's place."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def after_model(self, state: Any, runtime: Any) -> None:
        self.total += state["messages"][-1].usage_metadata["total_tokens"]


async def test_a_host_that_adds_up_usage_goes_on() -> None:
    def says(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        answer = script(messages, tools)
        answer.usage_metadata = {"input_tokens": 90, "output_tokens": 10, "total_tokens": 100}
        return answer

    counters: list[CostCounter] = []

    def inside() -> list[Any]:
        counters.append(CostCounter())
        return counters[-1:]

    ours, theirs = pair(inside, model=lambda: ScriptedChatModel(script=says))
    _, made = await alike(ours, theirs, *range(6))
    assert sorted(counter.total for counter in counters) == [100 * ours.model_calls, 100 * theirs.model_calls]
    assert ours.model_calls == theirs.model_calls - made.total() < theirs.model_calls


# --- a person who reviews calls ---

APPROVE = {"type": "approve"}
REJECT = {"type": "reject"}
RESPOND = {"type": "respond", "message": "I wrote it on paper."}
SEEN = {"order_id": ORDER, "note": "seen by a person"}
EDIT = {"type": "edit", "edited_action": {"name": "add_note", "args": SEEN}}
UNCHANGED = {"type": "edit", "edited_action": {"name": "add_note", "args": {"order_id": ORDER, "note": "checked"}}}
ANOTHER_TOOL = {"type": "edit", "edited_action": {"name": "escalate", "args": {"order_id": ORDER}}}
decisions = pytest.mark.parametrize("decision", [APPROVE, EDIT, REJECT], ids=["approve", "edit", "reject"])


class ReviewedDesk(Desk):
    """A desk with a tool that the script does not call by itself."""

    @property
    def tools(self) -> list[BaseTool]:
        @tool
        def escalate(order_id: str) -> str:
            """Hand an order to a person."""
            self.did("escalate", order_id=order_id)
            return json.dumps({"handed_over": True})

        return [*super().tools, escalate]


def reviewer() -> list[Any]:
    """A person who is asked before each note."""
    return [HumanInTheLoopMiddleware({"add_note": {"allowed_decisions": ["approve", "edit", "reject", "respond"]}})]


def answer(state: dict[str, Any], decision: dict[str, Any]) -> Command[Any]:
    """What a person hands in for the interrupt of a paused run."""
    (paused,) = state["__interrupt__"]
    assert [asked["name"] for asked in paused.value["action_requests"]] == ["add_note"]
    return Command(resume={"decisions": [decision]})


async def reviewed(agent: App, decision: dict[str, Any], run: int = 0) -> dict[str, Any]:
    """One request up to the gated note, and on with a decision."""
    before = len(agent.desk.done)
    state = await agent.run(run)
    assert agent.desk.done[before:] == expected(NAMES[run % len(NAMES)])[:2], "executed before the person decided"
    return await agent.ask(answer(state, decision), "async", thread=f"thread-{run}")


@each_policy
@pytest.mark.parametrize(
    ("decision", "outcomes", "notes", "wrong"),
    [
        pytest.param(APPROVE, {"ok": 1}, {"checked": 1}, 0, id="approve"),
        pytest.param(UNCHANGED, {"ok": 1}, {"checked": 1}, 0, id="edit-nothing"),
        pytest.param(EDIT, {"ok": 1}, {"seen by a person": 1}, 1, id="edit"),
        pytest.param(REJECT, {"rejected": 1}, {}, 1, id="reject"),
        pytest.param(RESPOND, {"rejected": 1}, {}, 0, id="respond"),
        pytest.param(ANOTHER_TOOL, {}, {}, 1, id="another-tool"),
    ],
)
async def test_a_gated_call_waits_and_is_learned_as_the_person_let_it_run(
    policy: Any, decision: dict[str, Any], outcomes: dict[str, int], notes: dict[str, int], wrong: int
) -> None:
    ours, theirs = pair(reviewer, desk=ReviewedDesk, policy=policy)
    grown = Grown(ours.memory)
    end, plain = [await reviewed(agent, decision) for agent in (ours, theirs)]
    same_calls(ours.desk, theirs.desk)
    assert end["messages"][-1].text == plain["messages"][-1].text
    shortcut = policy is EAGER
    assert len(made_in(end)) == grown.skipped == (3 if shortcut else 0)
    assert (ours.model_calls, theirs.model_calls) == (1 if shortcut else 4, 4)
    assert grown.outcomes("add_note") == outcomes
    assert grown.notes() == ({} if shortcut and not wrong else notes), "nothing of its own is learned"
    assert grown.wrong == wrong
    assert grown.right == (0 if shortcut else 3 - wrong)
    assert (("escalate", {"order_id": ORDER}) in ours.desk.done) == (decision is ANOTHER_TOOL)
    assert grown.skipped_failed == ours.memory.view().tools["add_note"].failed == 0  # type: ignore[union-attr]


@decisions
async def test_the_process_may_end_while_the_person_thinks(tmp_path: Path, decision: Any) -> None:
    saver, desk = InMemorySaver(), Desk()
    with new_memory(tmp_path, tools=desk.tools) as memory:
        warm(memory)
        paused = await build_agent(memory, desk, outer=reviewer(), checkpointer=saver).run(0)
        assert len(shortcuts(paused["messages"])) == 3
        assert desk.done == LOOKED_UP
    with new_memory(tmp_path, tools=desk.tools) as memory:
        grown = Grown(memory)
        agent = build_agent(memory, desk, outer=reviewer(), checkpointer=saver)
        end = await agent.ask(answer(paused, decision), "async", thread="thread-0")
        assert agent.model_calls == 1
        assert end["messages"][-1].text.endswith("is checked.")
        assert grown.outcomes("add_note") == ({"rejected": 1} if decision is REJECT else {"ok": 1})
        assert grown.notes() == ({"seen by a person": 1} if decision is EDIT else {})
        assert grown.wrong == (0 if decision is APPROVE else 1)
        state = memory.core.graph.to_state()
    with new_memory(tmp_path, tools=desk.tools) as memory:
        assert memory.core.graph.to_state() == state
    note = {APPROVE["type"]: [expected(NAMES[0])[2]], EDIT["type"]: [("add_note", SEEN)]}.get(decision["type"], [])
    assert desk.done == [*LOOKED_UP, *note]


async def test_what_is_rejected_each_time_is_no_longer_proposed() -> None:
    ours, _ = pair(reviewer, runs=12)
    made = [made_in(await reviewed(ours, REJECT, run)) for run in range(12)]
    assert made[0] == ["find_customer", "latest_order", "add_note"]
    assert made[-1] == ["find_customer", "latest_order"]
    assert ours.memory.view().tools["add_note"].failed == 0  # type: ignore[union-attr]


# --- middleware that chooses, refuses or judges: LangChain 1.5 ---


class Decides:
    """A decision model that always gives the same answer, sync and async."""

    def __init__(self, **answer: Any) -> None:
        self.asked = 0
        self._answer = SimpleNamespace(**answer)

    def invoke(self, _: Any) -> Any:
        self.asked += 1
        return self._answer

    async def ainvoke(self, given: Any) -> Any:
        return self.invoke(given)


class Always(dict[str, Any]):
    """The same value for every key."""

    def __missing__(self, _: str) -> Any:
        return self["value"]


def refusing() -> Any:
    """A model whose every answer is a refusal."""

    def refuse(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        return AIMessage([{"type": "refusal", "refusal": "I must not."}])

    return ScriptedChatModel(script=refuse)


@pytest.mark.filterwarnings("ignore:.*is in beta.*")
async def test_a_router_chooses_the_model_of_a_turn() -> None:
    fast = ScriptedChatModel(script=script)
    choices = {"fast": ModelChoice(model=fast, criteria="Simple tasks.")}

    def router() -> list[Any]:
        classifier = Decides(
            choices=Always(
                value=ChoiceAnswer(type="choice", choice="fast", probabilities={"fast": 1.0}, confidence=1.0)
            )
        )
        return [ModelRouterMiddleware(choices=choices, instructions="Choose.", classifier=cast("Any", classifier))]

    ours, theirs = pair(router)
    _, made = await alike(ours, theirs, *range(4))
    assert made.total() == 12
    assert (ours.model_calls, theirs.model_calls, len(fast.calls)) == (0, 0, 4 + 16)


async def test_a_refusal_that_a_fallback_answers_is_learned_once() -> None:
    """The memory stands at each model: of the refusal it keeps nothing, and the run did not end."""
    memory = new_memory(tools=Desk().tools, reads={"*"}, methods=[Inertia(EAGER), Entries()])
    fallback = ScriptedChatModel(script=script)
    outer = [ModelFallbackMiddleware(fallback), ModelRefusalMiddleware()]
    agent = agent_of(memory, Desk(), refusing(), outer=outer, shortcut=False, reflect=True)
    for number_ in range(6):
        await agent.run(number_)
    assert agent.desk.done == [step for number_ in range(6) for step in expected(NAMES[number_])]
    memory.flush()
    report = memory.report()
    assert (report.turns, report.answers) == (24, 6)
    recalled = memory.entries.recall(request(NAMES[0]))
    assert recalled
    assert {entry.comment for entry in recalled} == {""}, "none says that the run ended with an error"


@pytest.mark.parametrize("risk", [0.0, 1.0])
async def test_auto_mode_judges_a_shortcut_like_any_call(risk: float) -> None:
    judges: list[Decides] = []

    def judged() -> list[Any]:
        judges.append(Decides(nouls=Always(value=SimpleNamespace(noul=risk))))
        return [AutoModeMiddleware(tools=["add_note"], classifier=cast("Any", judges[-1]))]

    ours, theirs = pair(judged)
    grown = Grown(ours.memory)
    _, made = await alike(ours, theirs, 0)
    assert made["add_note"] == 1
    assert [judge.asked for judge in judges] == [1, 1]
    assert grown.outcomes("add_note") == ({"rejected": 1} if risk else {"ok": 1})


async def test_tools_that_the_provider_searches_are_offered_and_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The middleware copies the deferred tools for each call."""
    read: list[int] = []
    real = catalogue.read_tools

    def counting(tools: Any) -> Any:
        read.append(len(tools))
        return real(tools)

    monkeypatch.setattr(catalogue, "read_tools", counting)

    class Provided(ScriptedChatModel):
        def _get_ls_params(self, *args: Any, **kwargs: Any) -> Any:
            return {**super()._get_ls_params(*args, **kwargs), "ls_provider": "openai"}

    ours, theirs = pair(
        lambda: [ProviderToolSearchMiddleware(searchable_tools=["latest_order"])],
        model=lambda: Provided(script=script),
    )
    before = len(read)
    _, made = await alike(ours, theirs, *range(6))
    assert made["latest_order"] == 6
    assert len(read) - before <= 2
