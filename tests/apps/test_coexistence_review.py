"""``create_agent`` with a person who reviews calls: shortcuts are gated like any other call, and learned rightly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest
from agents import WAYS, Agent, both, build_agent, same_calls
from desk import EAGER, NAMES, Desk, call_id, expected, number, script, shortcuts, this_turn, thread, warm
from langchain.agents.middleware import HumanInTheLoopMiddleware, ToolErrorMiddleware
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import BaseTool, ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.graph.learning import decode_value
from langgraph_toolmem.graph.state import slot_key
from langgraph_toolmem.testing import ScriptedChatModel

Mode = Literal["batched", "per_call"]
MODES: tuple[Mode, ...] = ("batched", "per_call")
PAIRS = (("sync", "batched"), ("async", "per_call"))
"""Each way and each mode once, where nothing hangs on the combination."""
SHADOW = EAGER.with_(shadow=True)
ORDER = f"O-{number(NAMES[0])}"
LOOKED_UP = expected(NAMES[0])[:2]
ALL = ["approve", "edit", "reject", "respond"]

APPROVE = {"type": "approve"}
REJECT = {"type": "reject"}
REJECT_WHY = {"type": "reject", "message": "Ask the customer first."}
RESPOND = {"type": "respond", "message": "I wrote it on paper."}
EDIT = {
    "type": "edit",
    "edited_action": {"name": "add_note", "args": {"order_id": ORDER, "note": "seen by a person"}},
}
ANOTHER_TOOL = {"type": "edit", "edited_action": {"name": "escalate", "args": {"order_id": ORDER}}}


class ReviewedDesk(Desk):
    """A desk with two more tools that the script does not call by itself."""

    @property
    def tools(self) -> list[BaseTool]:
        @tool
        def escalate(order_id: str) -> str:
            """Hand an order to a person."""
            self.did("escalate", order_id=order_id)
            return json.dumps({"handed_over": True})

        @tool
        def log_failure(order_id: str) -> str:
            """Log that something about an order failed."""
            self.did("log_failure", order_id=order_id)
            return json.dumps({"logged": True})

        log_failure.tags = ["read_only"]
        return [*super().tools, escalate, log_failure]


def reviewer(mode: Mode, *gated: str, **options: Any) -> list[Any]:
    config = {"allowed_decisions": ALL}
    return [HumanInTheLoopMiddleware(dict.fromkeys(gated, config), interrupt_mode=mode, **options)]  # type: ignore[misc]


def answer(state: dict[str, Any], mode: Mode, *decisions: dict[str, Any]) -> Command[Any]:
    """What a person hands in for the interrupts of a paused run."""
    paused = state["__interrupt__"]
    if mode == "batched":
        assert len(paused) == 1
        assert len(paused[0].value["action_requests"]) == len(decisions)
        return Command(resume={"decisions": list(decisions)})
    return Command(resume={p.id: d for p, d in zip(paused, decisions, strict=True)})


async def reviewed(agent: Agent, mode: Mode, way: str, decision: dict[str, Any], run: int = 0) -> dict[str, Any]:
    """One request up to the gated note, and on with a decision."""
    before = len(agent.desk.done)
    state = await agent.run(run, way)
    assert agent.desk.done[before:] == expected(NAMES[run % len(NAMES)])[:2], "executed before the person decided"
    assert await_name(state, mode) == "add_note"
    return await agent.ask(answer(state, mode, decision), thread(f"thread-{run}"), way)


def await_name(state: dict[str, Any], mode: Mode) -> str:
    """The tool a paused run wants to call."""
    (paused,) = state["__interrupt__"]
    name: str = paused.value["action_requests"][0]["name"] if mode == "batched" else paused.value["name"]
    return name


class Grown:
    """What the memory learned since this was made."""

    def __init__(self, memory: ToolMemory) -> None:
        self._memory = memory
        self._outcomes = {name: self._outcomes_of(name) for name in ("latest_order", "add_note", "escalate")}
        self._values = {name: self._values_of(*name.split(".")) for name in ("add_note.note", "escalate.order_id")}
        self._report = memory.report()
        self._after = self._edges()

    def look_at(self, memory: ToolMemory) -> None:
        """Goes on with the same memory, opened anew."""
        self._memory = memory

    def outcomes(self, tool_name: str) -> dict[str, float]:
        return _more(self._outcomes[tool_name], self._outcomes_of(tool_name))

    def values(self, slot: str) -> dict[str, float]:
        return _more(self._values[slot], self._values_of(*slot.split(".")))

    def edges(self) -> dict[str, float]:
        """Successors of ``latest_order`` that were chosen by the model or by a person."""
        return _more(self._after, self._edges())

    def report(self, name: str) -> int:
        grown: int = getattr(self._memory.report(), name) - getattr(self._report, name)
        return grown

    def of_tool(self, tool_name: str, name: str) -> int:
        before, now = self._report.tools.get(tool_name), self._memory.report().tools.get(tool_name)
        return (getattr(now, name) if now else 0) - (getattr(before, name) if before else 0)

    def _outcomes_of(self, tool_name: str) -> dict[str, float]:
        entry = self._memory.core.graph.tools.get(tool_name, {})
        return {status: entry.get(status, 0) for status in ("ok", "failed", "rejected", "unanswered")}

    def _values_of(self, tool_name: str, parameter: str) -> dict[str, float]:
        row = self._memory.core.graph.values.row(slot_key(tool_name, parameter))
        return {decode_value(value): cell[0] for value, cell in row.items()}

    def _edges(self) -> dict[str, float]:
        """After any one call of latest_order; WORDS and such left out."""
        row = self._memory.core.graph.successors.row("w1\x1flatest_order")
        return {name: cell[0] + cell[1] for name, cell in row.items() if not name.startswith("<")}


def _more(before: dict[str, float], now: dict[str, float]) -> dict[str, float]:
    grown = {name: now[name] - before.get(name, 0) for name in now}
    return {name: amount for name, amount in grown.items() if amount}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("decision", "outcomes", "values", "wrong"),
    [
        pytest.param(APPROVE, {"ok": 1}, {}, 0, id="approve"),
        pytest.param(EDIT, {"ok": 1}, {"seen by a person": 1}, 1, id="edit"),
        pytest.param(REJECT, {"rejected": 1}, {}, 1, id="reject"),
        pytest.param(REJECT_WHY, {"rejected": 1}, {}, 1, id="reject-with-reason"),
        pytest.param(RESPOND, {"ok": 1}, {}, 0, id="respond"),
    ],
)
async def test_a_shortcut_to_a_gated_tool_waits_for_the_person(
    way: str, mode: Mode, decision: dict[str, Any], outcomes: dict[str, int], values: dict[str, int], wrong: int
) -> None:
    ours, theirs = both(lambda: reviewer(mode, "add_note"))
    assert ours.memory is not None
    grown = Grown(ours.memory)
    end = await reviewed(ours, mode, way, decision)
    plain_end = await reviewed(theirs, mode, way, decision)

    same_calls(ours.desk, theirs.desk)
    assert end["messages"][-1].text == plain_end["messages"][-1].text
    assert len(shortcuts(end["messages"])) == 3
    assert (ours.model_calls, theirs.model_calls) == (1, 4)
    assert grown.outcomes("add_note") == outcomes
    assert grown.values("add_note.note") == values
    assert grown.edges() == ({"add_note": 1} if decision is EDIT else {})
    assert grown.report("skipped") == 3
    assert grown.report("skipped_failed") == 0
    assert grown.report("wrong") == grown.of_tool("add_note", "wrong") == wrong
    assert ours.memory.view().tools["add_note"].failed == 0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("notice", [True, False], ids=["notice", "no-notice"])
@pytest.mark.parametrize(
    ("decision", "outcomes", "values", "booked"),
    [
        pytest.param(APPROVE, {"ok": 1}, {"checked": 1}, (3, 0), id="approve"),
        pytest.param(EDIT, {"ok": 1}, {"seen by a person": 1}, (2, 1), id="edit"),
        pytest.param(REJECT, {"rejected": 1}, {}, (2, 1), id="reject"),
        pytest.param(RESPOND, {"ok": 1}, {"checked": 1}, (3, 0), id="respond"),
    ],
)
async def test_a_call_of_the_model_is_learned_as_the_person_let_it_run(
    way: str,
    mode: Mode,
    notice: bool,
    decision: dict[str, Any],
    outcomes: dict[str, int],
    values: dict[str, int],
    booked: tuple[int, int],
) -> None:
    said: dict[str, Any] = {} if notice else {"edit_notice": None}
    ours, theirs = both(lambda: reviewer(mode, "add_note", **said), policy=SHADOW)
    assert ours.memory is not None
    grown = Grown(ours.memory)
    end = await reviewed(ours, mode, way, decision)
    await reviewed(theirs, mode, way, decision)

    same_calls(ours.desk, theirs.desk)
    assert shortcuts(end["messages"]) == []
    assert ours.model_calls == theirs.model_calls == 4
    assert grown.outcomes("add_note") == outcomes
    assert grown.values("add_note.note") == values
    assert (grown.report("right"), grown.report("wrong")) == booked
    assert grown.of_tool("add_note", "wrong") == booked[1]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("notice", [True, False], ids=["notice", "no-notice"])
@pytest.mark.parametrize("policy", [EAGER, SHADOW], ids=["shortcut", "model"])
async def test_another_tool_put_in_place_is_what_is_learned(way: str, notice: bool, policy: Any) -> None:
    said: dict[str, Any] = {} if notice else {"edit_notice": None}
    ours, theirs = both(lambda: reviewer("batched", "add_note", **said), desk=ReviewedDesk, policy=policy)
    assert ours.memory is not None
    grown = Grown(ours.memory)
    end = await reviewed(ours, "batched", way, ANOTHER_TOOL)
    await reviewed(theirs, "batched", way, ANOTHER_TOOL)

    same_calls(ours.desk, theirs.desk)
    assert ours.desk.done == [*LOOKED_UP, ("escalate", {"order_id": ORDER})]
    assert len(shortcuts(end["messages"])) == (3 if policy is EAGER else 0)
    assert grown.outcomes("escalate") == {"ok": 1}
    assert grown.outcomes("add_note") == {}
    assert grown.values("escalate.order_id") == {ORDER: 1}
    assert grown.values("add_note.note") == {}
    assert grown.edges() == {"escalate": 1}
    assert grown.report("wrong") == 1
    assert grown.of_tool("add_note", "wrong") == 1, "the proposal that missed was of add_note"
    assert grown.of_tool("escalate", "wrong") == grown.of_tool("escalate", "skipped") == 0


@pytest.mark.parametrize("mode", MODES)
async def test_an_edit_that_changes_nothing_is_an_approval(mode: Mode) -> None:
    ours, theirs = both(lambda: reviewer(mode, "add_note"))
    assert ours.memory is not None
    grown = Grown(ours.memory)
    same = {"type": "edit", "edited_action": {"name": "add_note", "args": {"order_id": ORDER, "note": "checked"}}}
    end = await reviewed(ours, mode, "async", same)
    await reviewed(theirs, mode, "async", same)
    same_calls(ours.desk, theirs.desk)
    assert grown.outcomes("add_note") == {"ok": 1}
    assert grown.report("wrong") == 0

    from_messages = ToolMemory.ephemeral(tools=ours.desk.tools)
    warm(from_messages)
    grown = Grown(from_messages)
    from_messages.finish(end["messages"], thread_id="the log of it")
    assert grown.report("skipped") == 3
    assert grown.report("wrong") == 0


@pytest.mark.parametrize(("way", "mode"), PAIRS)
@pytest.mark.parametrize("notice", [True, False], ids=["notice", "no-notice"])
@pytest.mark.parametrize(
    ("decision", "outcomes", "values"),
    [
        pytest.param(APPROVE, {"ok": 1}, {}, id="approve"),
        pytest.param(EDIT, {"ok": 1}, {"seen by a person": 1}, id="edit"),
        pytest.param(REJECT, {"rejected": 1}, {}, id="reject"),
    ],
)
async def test_the_process_may_end_while_the_person_thinks(
    tmp_path: Path,
    way: str,
    mode: Mode,
    notice: bool,
    decision: dict[str, Any],
    outcomes: dict[str, int],
    values: dict[str, int],
) -> None:
    said: dict[str, Any] = {} if notice else {"edit_notice": None}
    saver, desk = InMemorySaver(), Desk()

    def inside() -> list[Any]:
        return reviewer(mode, "add_note", **said)

    with ToolMemory(tmp_path, tools=desk.tools) as memory:
        warm(memory)
        paused = await build_agent(memory, desk, inside=inside(), checkpointer=saver).run(0, way)
        assert len(shortcuts(paused["messages"])) == 3
        assert desk.done == LOOKED_UP
    with ToolMemory(tmp_path, tools=desk.tools) as memory:
        grown = Grown(memory)
        agent = build_agent(memory, desk, inside=inside(), checkpointer=saver)
        end = await agent.ask(answer(paused, mode, decision), thread("thread-0"), way)
        assert agent.model_calls == 1
        assert end["messages"][-1].text.endswith("is checked.")
        learned = (grown.outcomes("add_note"), grown.values("add_note.note"), grown.report("wrong"))
        state = memory.core.graph.to_state()
    assert learned == (outcomes, values, 0 if decision is APPROVE else 1)
    with ToolMemory(tmp_path, tools=desk.tools) as memory:
        assert memory.core.graph.to_state() == state

    plain = build_agent(None, inside=inside())
    await reviewed(plain, mode, way, decision)
    same_calls(desk, plain.desk)


@pytest.mark.parametrize("mode", MODES)
async def test_what_is_rejected_each_time_is_no_longer_proposed(mode: Mode) -> None:
    ours, theirs = both(lambda: reviewer(mode, "add_note"), runs=12)
    made = []
    for run in range(12):
        end = await reviewed(ours, mode, "async", REJECT, run)
        await reviewed(theirs, mode, "async", REJECT, run)
        made.append([m.tool_calls[0]["name"] for m in shortcuts(end["messages"])])
    same_calls(ours.desk, theirs.desk)
    assert made[0] == ["find_customer", "latest_order", "add_note"]
    assert made[-1] == ["find_customer", "latest_order"]
    assert ours.memory is not None
    assert ours.memory.view().tools["add_note"].failed == 0


# --- parallel calls ---


def two_notes(messages: list[BaseMessage], _tools: list[dict[str, Any]]) -> AIMessage:
    """Finds the customer, then writes a note and asks for the order in one turn."""
    user, answers = this_turn(messages)
    if len(answers) != 1:
        return script(messages, _tools) if not answers else AIMessage("Both are done.")
    name = user.text.split(" order of ")[1].split()[0]
    wanted = [expected(name)[1], ("add_note", {"order_id": f"O-{number(name)}", "note": "asked for"})]
    made: list[Any] = [
        {"name": n, "args": args, "id": call_id(user.id, i), "type": "tool_call"} for i, (n, args) in enumerate(wanted)
    ]
    return AIMessage("", tool_calls=made)


class NoLine(ReviewedDesk):
    """Orders cannot be looked up."""

    @property
    def tools(self) -> list[BaseTool]:
        @tool
        def latest_order(customer_id: str) -> str:
            """The latest order of a customer."""
            self.did("latest_order", customer_id=customer_id)
            raise ConnectionError("no line to the orders")

        return [latest_order if known.name == "latest_order" else known for known in super().tools]


@pytest.mark.parametrize(("way", "mode"), PAIRS)
@pytest.mark.parametrize(
    ("decision", "outcomes", "values"),
    [
        pytest.param(APPROVE, {"ok": 1}, {"asked for": 1}, id="approve"),
        pytest.param(EDIT, {"ok": 1}, {"seen by a person": 1}, id="edit"),
        pytest.param(REJECT, {"rejected": 1}, {}, id="reject"),
    ],
)
@pytest.mark.parametrize("restart", [False, True], ids=["one-process", "restart"])
@pytest.mark.parametrize("kind", [ReviewedDesk, NoLine], ids=["other-ok", "other-fails"])
async def test_one_of_two_parallel_calls_is_gated(
    tmp_path: Path,
    way: str,
    mode: Mode,
    decision: dict[str, Any],
    outcomes: dict[str, int],
    values: dict[str, int],
    restart: bool,
    kind: type[ReviewedDesk],
) -> None:
    """The customer is found by a shortcut; then the model makes two calls, and only one waits for the person."""
    policy, saver = EAGER.with_(never={"latest_order", "add_note"}), InMemorySaver()

    def agent(knows: ToolMemory | None, at: Desk, checkpointer: InMemorySaver) -> Agent:
        inside = [*reviewer(mode, "add_note"), ToolErrorMiddleware(lambda error, _request: type(error).__name__)]
        model = ScriptedChatModel(script=two_notes)
        return build_agent(knows, at, inside=inside, model=model, policy=policy, checkpointer=checkpointer)

    desk, plain = kind(), kind()
    memory = ToolMemory(tmp_path, tools=desk.tools)
    warm(memory)
    before = Grown(memory)
    ours, theirs = agent(memory, desk, saver), agent(None, plain, InMemorySaver())
    paused = [await one.run(0, way) for one in (ours, theirs)]
    assert "add_note" not in {name for name, _ in desk.done}
    same_calls(desk, plain, ordered=False)
    assert len(shortcuts(paused[0]["messages"])) == 1
    assert before.outcomes("add_note") == {}
    if restart:
        memory.close()
        memory = ToolMemory(tmp_path, tools=desk.tools)
        ours = agent(memory, desk, saver)
    for one, state in zip((ours, theirs), paused, strict=True):
        end = await one.ask(answer(state, mode, decision), thread("thread-0"), way)
        assert end["messages"][-1].text == "Both are done."
    same_calls(desk, plain, ordered=False)
    before.look_at(memory)
    assert before.outcomes("add_note") == outcomes
    assert before.values("add_note.note") == values
    assert before.outcomes("latest_order") == ({"failed": 1} if kind is NoLine else {"ok": 1})
    memory.close()


# --- after a refusal ---


def logs_failures(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
    """Like the desk's script, but where the note failed it is logged; where a person or a rule refused it, not."""
    user, answers = this_turn(messages)
    if len(answers) == 3 and answers[-1].status == "error" and "disk" in answers[-1].text:
        name = user.text.split(" order of ")[1].split()[0]
        call = {"name": "log_failure", "args": {"order_id": f"O-{number(name)}"}, "id": call_id(user.id, "log")}
        return AIMessage("", tool_calls=[{**call, "type": "tool_call"}])  # type: ignore[list-item]
    if len(answers) == 4:
        return AIMessage("It failed and is logged.")
    return script(messages, tools)


class FullDisk(ReviewedDesk):
    """Every note fails."""

    @property
    def tools(self) -> list[BaseTool]:
        @tool
        def add_note(order_id: str, note: str) -> str:
            """Add a note to an order."""
            self.did("add_note", order_id=order_id, note=note)
            raise ToolException("The disk is full.")

        add_note.handle_tool_error = True
        return [add_note, *(known for known in super().tools if known.name != "add_note")]


async def test_a_refusal_is_for_the_model_to_read_not_a_failure_like_others() -> None:
    """After a failed note the failure was always logged. A person's refusal looks like a failure, but is none."""
    desk, plain = ReviewedDesk(), ReviewedDesk()
    memory = ToolMemory.ephemeral(tools=desk.tools)
    model = ScriptedChatModel(script=logs_failures)
    teacher = build_agent(memory, FullDisk(), model=model, policy=SHADOW)
    for run in range(20):
        await teacher.run(run)
    report = memory.report()
    assert report.tools["log_failure"].right > 5, "the memory knows what follows a failed note"

    def agent(knows: ToolMemory | None, at: Desk) -> Agent:
        inside = reviewer("batched", "add_note")
        return build_agent(knows, at, inside=inside, model=ScriptedChatModel(script=logs_failures), policy=EAGER)

    ours, theirs = agent(memory, desk), agent(None, plain)
    for one in (ours, theirs):
        end = await reviewed(one, "batched", "async", REJECT, 24)
        assert end["messages"][-1].text.endswith("is checked.")
    same_calls(desk, plain)
    assert ours.model_calls < theirs.model_calls
