"""Replays: tiny logs by hand, then recorded runs; the report that a memory gives; the inertia of a workload."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest
from histories import FAILED, call, calls, history, reading, schema, user, words
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from places import DATA

from langgraph_toolmem import Inertia, InertiaPolicy, ToolMemory, default_methods
from langgraph_toolmem.cli.tables import replay_in_words
from langgraph_toolmem.inertia.confidence import FIRST
from langgraph_toolmem.inertia.decision import Decision
from langgraph_toolmem.offline.replay import InertiaMeter, InertiaTest, is_right, replay
from langgraph_toolmem.runs.logs import load_runs
from langgraph_toolmem.runs.run import Turn
from langgraph_toolmem.runs.tools import read_tools

FREE = InertiaPolicy().with_(max_wrong_per_100=None, audit_rate=0.0)
TOOLS = [reading("find", "name"), reading("open", "id")]


class Logged(NamedTuple):
    messages: list[Any]
    thread_id: str
    user_id: str | None = None


def visit(name: str) -> list[Any]:
    return history(
        user(f"Open the file of {name}"), call("find", {"name": name}, {"id": f"id-{name}"}),
        call("open", {"id": f"id-{name}"}), words(),
    )  # fmt: skip


def visits(count: int) -> list[Logged]:
    return [Logged(visit(f"Name{i}"), f"run{i}") for i in range(count)]


def test_a_tiny_log_by_hand():
    runs = [
        Logged(history(user("Go."), call("a"), call("b"), words()), "1"),
        Logged(history(user("Go."), calls([("a", {}, "ok"), ("b", {}, FAILED)]), words()), "2"),
        Logged(history(user("Hello"), words("Hi!")), "3"),
    ]
    report = replay(runs)

    assert (report.runs, report.turns, report.calls, report.words) == (3, 6, 4, 3)
    assert (report.right, report.wrong, report.yield_per_100, report.wrong_per_100) == (0, 0, 0, 0)
    assert {name: tally.calls for name, tally in report.by_tool.items()} == {"a": 2, "b": 2}
    assert report.chains == [(("a", "b"), 2)]


def test_calls_that_a_memory_made_are_counted_apart():
    """A log of an agent with the memory: without a word on them, a third of its calls was missing."""
    look_up = AIMessage(
        "",
        tool_calls=[{"name": "find", "args": {"name": "Ann"}, "id": "c1"}],
        additional_kwargs={"toolmem": {"by": "shortcut"}},
    )
    found = ToolMessage("id-Ann", tool_call_id="c1")
    own = [HumanMessage("Open the file of Ann"), look_up, found, AIMessage("Here it is.")]
    report = replay([Logged(visit("Bob"), "1"), Logged(own, "2")], tools=TOOLS)
    assert (report.turns, report.calls, report.by_memory) == (4, 2, 1)
    assert "Left out: 1 call that a memory made in the model's place." in replay_in_words(report)
    assert report.to_dict()["by_memory"] == 1


def test_an_agent_in_a_loop_saves_nothing():
    """What it does over and over is easily foreseen; nobody wants it done faster."""
    loop = [call("help", {"why": "stuck"}, "An agent will come.") for _ in range(50)]
    runs = [Logged(history(user("Go."), *loop, words()), "1")]
    report = replay(runs, tools=[schema("help", "why")], reads={"help"}, policy=FREE.with_(allow_repeats={"help"}))

    assert (report.turns, report.stuck) == (51, 48)
    assert report.right + report.wrong <= 2
    assert report.to_dict()["yield_per_100"] == pytest.approx(100 * report.right / 3)


def test_writing_tools_that_would_be_called_are_listed():
    schemas = [schema("find", "name"), schema("open", "id")]
    reading, writing = (
        replay(visits(40), tools=schemas, reads=read, policy=FREE.with_(may_write=write))
        for read, write in ((("find", "open"), ()), (("find",), ("open",)))
    )
    assert reading.right
    assert reading.writing == []
    assert writing.writing == ["open"]


def test_nothing_to_replay():
    report = replay([])

    assert (report.runs, report.turns, report.yield_per_100, report.wrong_per_100) == (0, 0, 0.0, 0.0)
    assert json.loads(json.dumps(report.to_dict()))["chains"] == []
    with ToolMemory.ephemeral(methods=[Inertia()]) as memory:
        empty = memory.report()
    assert (empty.turns, empty.precision, empty.saved.calls, empty.tools) == (0, None, 0, {})
    assert json.loads(json.dumps(empty.to_dict()))["sections"]["inertia"]["unskipped"] == []


def test_a_log_that_repeats_itself_is_foreseen():
    decisions: list[tuple[Turn, Decision]] = []
    done: list[str] = []
    report = replay(
        visits(40),
        tools=TOOLS,
        policy=FREE,
        on_turn=lambda turn, decision: decisions.append((turn, decision)),
        on_run=lambda run: done.append(run.thread_id),
    )

    assert report.wrong == 0
    assert report.right > 30
    assert report.right == sum(decision.acts and is_right(turn, decision) for turn, decision in decisions)
    assert report.yield_per_100 == pytest.approx(100 * report.right / 120)
    assert report.by_tool["find"].right + report.by_tool["open"].right == report.right
    assert len(decisions) == report.turns == 120
    assert done == [f"run{i}" for i in range(40)]
    assert json.loads(json.dumps(report.to_dict()))["right"] == report.right


def test_a_call_that_the_model_would_not_have_made_is_wrong():
    surprise = Logged(history(user("Open the file of Zoe"), words("No.")), "no")
    report = replay([*visits(40), surprise], tools=TOOLS, policy=FREE)

    assert report.wrong == 1
    assert report.by_tool["find"].wrong == 1
    assert report.wrong_per_100 == pytest.approx(100 / 121)


def test_a_replay_starts_empty_and_is_repeatable():
    first, second = (replay(visits(30), tools=TOOLS, policy=FREE) for _ in range(2))

    assert first == second


def test_a_memory_that_has_learned_already_goes_on():
    with ToolMemory.ephemeral(tools=TOOLS) as memory:
        replay(visits(40), memory=memory, policy=FREE)
        late = replay([Logged(visit("Zoe"), "late")], memory=memory, policy=FREE)
        again = replay([Logged(visit("Zoe"), "late")], memory=memory, policy=FREE)

        assert (late.right, late.turns) == (2, 3)
        assert again.turns == 0  # learned already
        assert memory.observe(visit("Yan"), thread_id="open")  # the memory was not closed


def test_names_that_end_alike_are_different_tools():
    runs = [Logged(history(user("Go."), call("read"), call("a"), call("x"), words()), str(i)) for i in range(2)]
    runs += [Logged(history(user("Go."), call("ad"), call("a"), words()), f"ad{i}") for i in range(2)]

    assert set(replay(runs).chains) == {(("read", "a", "x"), 2), (("ad", "a"), 2)}


@pytest.mark.parametrize(
    "name",
    [
        "tau_retail_gold",
        *(pytest.param(each, marks=pytest.mark.long) for each in ("workbench_gpt4", "bfcl_v3_multi_turn")),
    ],
)
def test_recorded_runs_stay_within_the_budget(name: str):
    folder = DATA / name
    if not folder.exists():
        pytest.skip(f"recorded runs are not there: {folder}")
    runs = list(load_runs(folder / "trajectories.jsonl").runs)
    random.Random(0).shuffle(runs)
    tools = json.loads((folder / "tools.json").read_text())
    names = frozenset(read_tools(tools))
    policy = InertiaPolicy(may_write=names, allow_destructive=names)
    wrong: list[bool] = []

    def count(turn: Turn, decision: Decision) -> None:
        wrong.append(decision.acts and not is_right(turn, decision))
        assert sum(wrong[-300:]) <= 6, "twice the rate in any window"

    report = replay(runs[: math.ceil(len(runs) / 3)], tools=tools, policy=policy, on_turn=count)

    assert (report.turns, report.wrong) == (len(wrong), sum(wrong))
    assert report.turns > 300
    assert report.right >= report.wrong
    assert report.wrong <= FIRST + report.turns / 100


# --- the report of a memory ---


def test_checked_proposals_are_counted_right_and_wrong():
    with ToolMemory.ephemeral(tools=TOOLS, methods=default_methods(Inertia(FREE.with_(shadow=True)))) as memory:
        for run in visits(40):
            memory.finish(run.messages, thread_id=run.thread_id)
        before = memory.report()
        assert (before.wrong, before.precision) == (0, 1.0)
        assert before.right > 30
        memory.finish(history(user("Open the file of Zoe"), words("No.")), thread_id="no")
        report = memory.report()

    assert (report.right, report.wrong) == (before.right, 1)
    assert report.precision == pytest.approx(before.right / (before.right + 1))
    shadow = report["inertia"]["shadow_checks"]
    assert (shadow["checks"] - shadow["right"], report["inertia"]["audits"]["checks"]) == (1, 0)
    assert report.tools["find"].wrong == 1
    assert report.skipped == 0


# --- inertia of a workload ---


runs = st.lists(st.lists(st.sampled_from("abcd"), max_size=8), max_size=12)


def measured(sequences: Iterable[Iterable[str]]) -> InertiaTest:
    meter = InertiaMeter()
    for sequence in sequences:
        meter.add(sequence)
    return meter.result()


def test_code_length_by_hand():
    # Order 0 codes a (certain: something new), a (½: a again), b (¼: n = 2, one tool seen, escape 1/4).
    result = measured([["a", "a", "b"]])

    assert result.bits_by_order[0] * 3 == pytest.approx(0 + 1 + 2)
    # Order 1: (start) and (a) are new contexts for the first two calls, so order 0 codes them; then after a
    # came a once: P(b) = 0 + 1/2 · P_0(b) = 1/8.
    assert result.bits_by_order[1] * 3 == pytest.approx(0 + 1 + 3)
    # Order 2: (start, a) and (a, a) are new contexts too.
    assert result.bits_by_order[2] * 3 == pytest.approx(0 + 1 + 3)


def test_a_gain_that_may_be_chance_is_not_called_inertia():
    result = measured([["a", "b"]] * 2)

    assert result.gain > 0
    assert not result.has_inertia
    assert result.verdict.startswith("Too little to tell")


@settings(max_examples=60)
@given(runs)
def test_all_is_finite_and_fit_for_json(sequences):
    result = measured(sequences)

    assert all(math.isfinite(bits) and bits >= 0 for bits in result.bits_by_order)
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["verdict"] == result.verdict


@settings(max_examples=60)
@given(runs, st.lists(st.sampled_from("abcd"), max_size=4))
def test_the_code_is_a_probability_distribution(sequences, prefix):
    """Over the tools seen so far and one never seen, the probabilities sum to one at every order."""

    def bits(*last: str) -> list[float]:
        result = measured([*sequences, [*prefix, *last]])
        return [length * result.calls for length in result.bits_by_order]

    before = bits()
    seen = {tool for run in [*sequences, prefix] for tool in run}
    for order in range(3):
        total = sum(2 ** -(bits(tool)[order] - before[order]) for tool in [*seen, "never seen"])
        assert total == pytest.approx(1)
