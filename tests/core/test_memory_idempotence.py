"""Each executed call teaches once: told twice, resumed, forked, trimmed, summarised, from several nodes."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from desk import EAGER, Desk, build, history, request, run, warm
from kept import inertia
from langchain_core.messages import HumanMessage, convert_to_openai_messages
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_toolmem import InertiaPolicy, ToolMemory

SHADOW = InertiaPolicy(shadow=True)


def counts(memory: ToolMemory) -> tuple[int, int, int, dict[str, int]]:
    report = memory.report()
    return report.turns, report.calls, report.answers, {name: t.calls for name, t in report.tools.items()}


def once(runs: int) -> tuple[int, int, int, dict[str, int]]:
    names = ("find_customer", "latest_order", "add_note")
    return 4 * runs, 3 * runs, runs, dict.fromkeys(names, runs)


def test_piece_by_piece_and_at_once_teach_the_same(desk: Desk) -> None:
    with (
        ToolMemory.ephemeral(tools=desk.tools, now=lambda: 1_000_000.0) as memory,
        ToolMemory.ephemeral(tools=desk.tools, now=lambda: 1_000_000.0) as other,
    ):
        for i in range(8):
            messages = history(i)
            for n in range(len(messages) + 1):
                memory.observe(messages[:n], thread_id=str(i))
            other.observe(messages, thread_id=str(i))
        assert memory.view() == other.view()
        assert memory.report() == other.report()
        feed = [HumanMessage(request("Zoe"))]
        assert memory.inertia.explain(feed, policy=EAGER) == other.inertia.explain(feed, policy=EAGER)


def test_shortcut_node_recorder_and_observe_together(desk: Desk, memory: ToolMemory) -> None:
    graph, model = build(memory, desk.tools, policy=EAGER, checkpointer=InMemorySaver())
    for i in range(12):
        state = run(graph, i)
        assert memory.observe(state["messages"], thread_id=f"thread-{i}") == 0
        assert memory.finish(state["messages"], thread_id=f"thread-{i}", success=True) == 0
    report = memory.report()
    assert report.turns == 48
    assert report.skipped == 48 - len(model.calls) > 0
    assert report.runs_judged == report.runs_good == 12
    assert report.judged_with_shortcut == report.good_with_shortcut > 0
    assert not inertia(memory).open_turns


def as_pairs(messages: list[Any]) -> list[Any]:
    pairs = {"human": "user", "ai": "assistant"}
    return [m if m.type == "tool" or getattr(m, "tool_calls", ()) else (pairs[m.type], m.text) for m in messages]


@pytest.mark.parametrize("form", [convert_to_openai_messages, as_pairs], ids=["OpenAI", "pairs"])
def test_a_thread_that_is_shown_in_another_form_teaches_nothing_new(memory: ToolMemory, form: Any) -> None:
    messages = [*history(0, "Ann"), *history(1, "Ben")]
    for message in messages:
        message.id = None  # the other forms have no ids
    memory.observe(messages, thread_id="t")
    before = counts(memory)
    for shown in (form(messages), messages, form(messages[:4])):
        assert memory.finish(shown, thread_id="t", success=True) == 0
    assert counts(memory) == before


# --- ids that repeat ---


def counted(name: str) -> list[dict[str, Any]]:
    """A run as a self-hosted model leaves it: ids are counters, messages have no id."""
    text = json.dumps(convert_to_openai_messages(history(0, name)))
    for number, call_id in enumerate(dict.fromkeys(re.findall(r"call_[0-9a-f]{24}", text))):
        text = text.replace(call_id, f"call_{number}")
    found: list[dict[str, Any]] = json.loads(text)
    return found


def test_the_same_ids_without_a_run_id(memory: ToolMemory) -> None:
    assert memory.observe(counted("Ann")) == 4
    assert memory.observe(counted("Ben")) == 4
    assert memory.finish(counted("Ann"), success=True) == 0, "without a run id, the same request is the same run"
    assert counts(memory) == once(2)
    assert memory.report().runs_good == 1


def test_one_request_asked_twice_in_one_thread_with_counted_ids(memory: ToolMemory) -> None:
    assert memory.observe(counted("Ann") + counted("Ann"), thread_id="a") == 8
    assert counts(memory) == once(2)


def test_eight_threads_tell_of_the_same_runs(memory: ToolMemory) -> None:
    runs = [history(i) for i in range(8)]
    with ThreadPoolExecutor(8) as pool:
        new = list(pool.map(lambda i: memory.finish(runs[i % 8], thread_id=str(i % 8)), range(64)))
    assert sum(new) == 32
    assert counts(memory) == once(8)


def test_predicting_learns_nothing(memory: ToolMemory) -> None:
    warm(memory)
    memory.flush()
    before = memory.report(), memory.view()
    for n in range(9):
        memory.inertia.predict(history(3)[:n], policy=EAGER)
    assert (memory.report(), memory.view()) == before
