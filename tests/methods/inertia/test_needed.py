"""Look-ups that the model makes later in the run: how likely they are needed."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from langgraph_toolmem import Inertia, ToolMemory
from langgraph_toolmem.core.method import LearnedTurn
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.inertia import needed
from langgraph_toolmem.inertia.decision import call_digests
from langgraph_toolmem.inertia.needed import NeededLookups
from langgraph_toolmem.inertia.record import JudgedCall
from langgraph_toolmem.runs.run import ExecutedCall, Turn
from langgraph_toolmem.runs.tools import ToolSpec

TOOLS = [
    {"name": name, "description": name, "parameters": {"type": "object", "properties": {"ref": {"type": "string"}}}}
    for name in ("get_order", "get_customer", "close")
]
READS = {"get_order", "get_customer"}


def message(tool: str, ref: str, number: int) -> list[dict[str, Any]]:
    """Return a call and its result."""
    function = {"name": tool, "arguments": json.dumps({"ref": ref})}
    call = {"id": f"{tool}-{number}", "type": "function", "function": function}
    asked = {"role": "assistant", "content": "", "tool_calls": [call]}
    return [asked, {"role": "tool", "tool_call_id": call["id"], "content": json.dumps({"state": "open"})}]


def request(ref: str) -> dict[str, Any]:
    return {"role": "user", "content": f"Is {ref} ready?"}


def run(ref: str, steps: Sequence[str]) -> list[dict[str, Any]]:
    """Return a run: tools that are called one after the other; "user" is a further message."""
    messages = [request(ref)]
    for number, step in enumerate(steps):
        if step == "user":
            messages += [{"role": "assistant", "content": "Which one?"}, {"role": "user", "content": "All of them."}]
        else:
            messages += message(step, ref, number)
    return [*messages, {"role": "assistant", "content": "Yes."}]


def learned(orders: Sequence[Sequence[str]], seed: int = 0) -> ToolMemory:
    """Return a memory that has seen each order of steps about as often."""
    memory = ToolMemory.ephemeral(methods=[Inertia()], tools=TOOLS, reads=READS)
    chance = random.Random(seed)
    for number in range(60):
        messages = run(f"R{number}", chance.choice(orders))
        memory.finish(messages, thread_id=f"t{number}")
    return memory


def estimates(memory: ToolMemory, tool: str) -> tuple[float, float]:
    """Return for a call at the beginning of a run: that it is the model's next turn, and that it is needed."""
    decision = memory.inertia.explain([request("R99")])
    [option] = [option for option in decision.predicted if option.tool == tool]
    [likely] = [option for option in memory.inertia.lookups(decision) if option.tool == tool]
    return option.probability, likely.probability


def test_two_look_ups_in_any_order_are_both_needed() -> None:
    with learned([("get_order", "get_customer"), ("get_customer", "get_order")]) as memory:
        for tool in ("get_order", "get_customer"):
            following, likely = estimates(memory, tool)
            assert following < 0.75
            assert likely > 0.9


def test_a_look_up_after_the_next_message_of_the_user_is_needed() -> None:
    with learned([("get_order", "user", "get_customer"), ("get_customer", "user", "get_order")]) as memory:
        following, likely = estimates(memory, "get_order")
        assert following < 0.75
        assert likely > 0.9


def test_a_look_up_after_a_change_was_not_needed_before_it() -> None:
    with learned([("get_order", "close"), ("close", "get_order")]) as memory:
        following, likely = estimates(memory, "get_order")
        assert likely == pytest.approx(following, abs=0.01)


def test_a_look_up_that_a_person_rejected_is_not_needed() -> None:
    rejected = Turn((look_up("rejected"),), "", "model", "t2", True)
    asked = Turn((look_up("ok"),), "", "model", "t2", True)
    judged = [JudgedCall("get_order", call_digests("get_order", [{"ref": "A"}]), [], columns=[0.0] * 8)]
    for turn, events in ((rejected, 0), (asked, 1)):
        lookups = NeededLookups()
        assert not lookups.learned(turn_of(Turn((), "Which one?", "model", "t1", True)), judged, 1, None)
        assert len(lookups.learned(turn_of(turn), [], 2, None)) == events


def look_up(status: Any) -> ExecutedCall:
    review: Any = "rejected" if status == "rejected" else ""
    return ExecutedCall("get_order", {"ref": "A"}, None, status, "model", "c", "k", review)


def turn_of(turn: Turn) -> LearnedTurn:
    specs = {"get_order": ToolSpec("get_order", "", {}, read_only=True)}
    return LearnedTurn(RunState(), turn, "run", "thread", None, specs, 0, {}, {})


def test_the_likeliest_look_up_comes_first() -> None:
    with learned([("get_order", "get_customer"), ("get_customer", "get_order"), ("get_customer",)]) as memory:
        likely = memory.inertia.lookups(memory.inertia.explain([request("R99")]))
        assert [option.probability for option in likely] == sorted((o.probability for o in likely), reverse=True)
        assert likely[0].tool == "get_customer"


def test_a_memory_that_is_read_again_estimates_the_same(tmp_path: Any) -> None:
    orders = [("get_order", "get_customer"), ("get_customer", "get_order")]
    folder = tmp_path / "memory"
    with ToolMemory(folder, TOOLS, methods=[Inertia()], reads=READS) as memory:
        for number in range(30):
            memory.finish(run(f"R{number}", orders[number % 2]), thread_id=f"t{number}")
        before = estimates(memory, "get_order")
    with ToolMemory(folder, TOOLS, methods=[Inertia()], reads=READS) as memory:
        assert estimates(memory, "get_order") == pytest.approx(before)


def test_few_look_ups_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needed, "MOST_RUNS", 2)
    monkeypatch.setattr(needed, "MOST_AWAITED", 1)
    with learned([("get_order", "get_customer"), ("get_customer", "get_order")]) as memory:
        awaited = memory.inertia.needed.awaited
        assert len(awaited) <= 2
        assert all(len(lookups) <= 1 for lookups in awaited.values())
        memory.forget(thread_id="t1")
