"""Seconds of model calls and processor time of the memory: what is counted, and what the report makes of it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import tool

from langgraph_toolmem import InertiaPolicy, ToolMemory
from langgraph_toolmem.core.core import CPU_SECONDS, MOST_PENDING, Costs
from langgraph_toolmem.extend import Method, Step
from langgraph_toolmem.graph.events import Record
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.models import with_tool_memory
from langgraph_toolmem.report.report import MeanCall, Saved, TokenPrice, number_in_words, seconds_in_words
from langgraph_toolmem.testing import ScriptedChatModel, call_tool

BURNED = 0.03
"""Processor seconds that a step takes at each model call."""


def written(record: Record) -> dict[str, float]:
    return {event.plain()[1]: event.plain()[2] for event in record}


def test_sums_are_written_together_and_only_once() -> None:
    records: list[Record] = []
    costs = Costs(records.append)
    for _ in range(MOST_PENDING - 1):
        costs.waited(0.5, calls=True)
    assert not records
    costs.waited(2.0, calls=False)
    [record] = records
    assert written(record) == {
        "model_seconds_calls": 0.5 * (MOST_PENDING - 1),
        "timed_calls": MOST_PENDING - 1,
        "model_seconds_words": 2.0,
        "timed_words": 1,
    }
    costs.flush()
    assert len(records) == 1, "nothing is written twice"


def test_a_forked_child_leaves_the_sums_to_its_parent() -> None:
    records: list[Record] = []
    costs = Costs(records.append)
    costs.waited(1.0, calls=True)
    costs.forked()
    costs.flush()
    assert not records


def test_processor_time_is_counted_also_of_a_block_that_raises() -> None:
    records: list[Record] = []
    ticks = iter([10.0, 10.25])
    costs = Costs(records.append, cpu=lambda: next(ticks))
    with pytest.raises(ValueError, match="broken"), costs.working():
        raise ValueError("broken")
    costs.flush()
    assert written(records[0]) == {CPU_SECONDS: 0.25}


# --- means and words ---


def test_saved_calls_are_priced_at_the_mean_call_that_asks_for_tools() -> None:
    """Two calls of 1 s, one answer of 4 s: three saved calls would have taken 3 s."""
    counters = {"model_seconds_calls": 2.0, "timed_calls": 2, "model_seconds_words": 4.0, "timed_words": 1}
    tokens = {"tokens_in": 3_000, "tokens_out": 300, "turns_with_tokens": 3}
    mean = MeanCall.of(counters | tokens)
    assert mean.waited == 6.0
    saved = mean.cost_of(3, TokenPrice(1.0, 10.0))
    assert saved == Saved(3, seconds=3.0, input_tokens=3_000, output_tokens=300, money=pytest.approx(0.006))
    assert saved.in_words(9.0, "EUR") == (
        "3.0 s of 9.0 s waiting for the model, 3,000 input and 300 output tokens, 0.0060 EUR"
    )
    assert MeanCall.of({}).cost_of(3, TokenPrice(1.0, 10.0)).in_words(None, "EUR") == ""


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0031, "3 ms"), (3.14, "3.1 s"), (48.4, "48 s"), (300, "5 min"), (9_000, "2.5 h")],
)
def test_seconds_in_words(seconds: float, words: str) -> None:
    assert seconds_in_words(seconds) == words


@pytest.mark.parametrize(("number", "words"), [(8_100, "8,100"), (1_234_567, "1.2 M")])
def test_numbers_in_words(number: float, words: str) -> None:
    assert number_in_words(number) == words


# --- a whole agent ---


class Busy(Step["Burn"]):
    role: ClassVar[str] = "busy"
    about: ClassVar[str] = "takes processor time"

    def compute(self, call: Any) -> Any:
        end = time.thread_time() + BURNED
        while time.thread_time() < end:
            pass
        return None


class Burn(Method):
    """A method that does nothing but take processor time."""

    name: ClassVar[str] = "burn"
    steps: ClassVar[tuple[type[Any], ...]] = (Busy,)


@tool
def find_order(order: str) -> str:
    """Look an order up."""
    return f"{order} is open"


def script(messages: list[BaseMessage], tools: Any) -> AIMessage:
    if messages[-1].type == "tool":
        return AIMessage("Done.")
    return call_tool("find_order", order=messages[-1].text.split()[-1])


RUNS = 4
MODEL_CALLS = 2 * RUNS


def in_middleware(memory: ToolMemory) -> Any:
    return create_agent(
        ScriptedChatModel(script=script), [find_order], middleware=tool_memory_middleware(memory, shortcut=False)
    )


def in_the_model(memory: ToolMemory) -> Any:
    return create_agent(
        with_tool_memory(ScriptedChatModel(script=script), memory, tools=[find_order], shortcut=False), [find_order]
    )


@pytest.mark.parametrize("build", [in_middleware, in_the_model])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_memorys_processor_time_is_counted_sync_and_async(build: Any, asynchronous: bool) -> None:
    with ToolMemory.ephemeral(reads={"find_*"}, methods=[Burn()]) as memory:
        agent = build(memory)
        for number in range(RUNS):
            request = {"messages": [("user", f"Check O-{number}")]}
            config: Any = {"configurable": {"thread_id": str(number)}}
            if asynchronous:
                asyncio.run(agent.ainvoke(request, config))
            else:
                agent.invoke(request, config)
        report = memory.report()
    assert MODEL_CALLS * BURNED <= report.cpu_seconds <= 3 * MODEL_CALLS * BURNED
    assert report.cpu_seconds_behind < BURNED
    assert any("of processor time" in line for line in report.worth())


def test_waiting_for_the_model_is_counted_and_kept_on_disk(tmp_path: Path) -> None:
    """Each model call that asks for a tool takes 2 s by the memory's clock, each answer in words 5 s."""
    with ToolMemory(tmp_path, reads={"find_*"}) as memory:
        now = [0.0]
        memory.core.costs.clock = lambda: now[0]

        def slow(messages: list[BaseMessage], tools: Any) -> AIMessage:
            answer = script(messages, tools)
            now[0] += 2.0 if answer.tool_calls else 5.0
            return answer

        model = ScriptedChatModel(script=slow)
        middleware = tool_memory_middleware(memory, shortcut=InertiaPolicy(shadow=True))
        agent = create_agent(model, [find_order], middleware=middleware)
        for number in range(40):
            agent.invoke({"messages": [("user", f"Check O-{number}")]}, {"configurable": {"thread_id": str(number)}})
        [shadow] = memory.report().shadow
    with ToolMemory(tmp_path) as memory:
        report = memory.report()
    assert report.model_seconds == 40 * 7.0 == now[0]
    assert report.shadow == (shadow,)
    assert shadow.would_save.calls > 20
    assert shadow.would_save.seconds == 2.0 * shadow.would_save.calls
