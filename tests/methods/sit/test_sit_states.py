"""Edges of runs with their weights, and states: by hand on small histories, and for any order of arrival."""

from __future__ import annotations

from typing import Any

import pytest
from histories import FAILED, call, calls, history, user, words
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem import SIT, ToolMemory
from langgraph_toolmem.graph.events import Forgotten
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.runs.run import SUMMARY_TOOL, ExecutedCall
from langgraph_toolmem.sit.evidence import Edge, SITEvidence, TransitionSeen
from langgraph_toolmem.sit.states import START, result_in_words, state_words

NOT_EXECUTED = "Error: b is not a valid tool, try one of [a, c]."


def summarize(text: str) -> list[Any]:
    return call(SUMMARY_TOOL, {"summary": text}, "noted")


def learned(*parts: Any, cut: int = 0) -> list[TransitionSeen]:
    with ToolMemory.ephemeral(methods=[SIT()]) as memory:
        memory.observe(history(*parts)[cut:], thread_id="r")
        return list(memory.sit.evidence.transitions())


def edges(*parts: Any, cut: int = 0) -> list[tuple[str, str]]:
    return [(each.source, each.target) for each in learned(*parts, cut=cut)]


# --- transitions ---


@pytest.mark.parametrize(
    ("parts", "cut", "expected"),
    [
        ([call("a"), call("b"), call("a"), words()], 0, [(START, "a"), ("a", "b"), ("b", "a")]),
        # a failed call is no target, but what follows it is learned
        ([call("a"), call("b", {}, FAILED), call("c"), words()], 0, [(START, "a"), ("b", "c")]),
        ([call("a"), call("b", {}, NOT_EXECUTED), call("c"), words()], 0, [(START, "a"), ("a", "c")]),
        # calls of one turn have the same source
        (
            [call("a"), calls([("b", {}, 1), ("c", {}, 2)]), call("d"), words()],
            0,
            [(START, "a"), ("a", "b"), ("a", "c"), ("c", "d")],
        ),
        # a new request begins at the start, a reply does not
        ([call("a"), words(), user("book a room"), call("b"), words()], 0, [(START, "a"), (START, "b")]),
        ([call("a"), words("Which one?"), user("y"), call("b"), words()], 0, [(START, "a"), ("a", "b")]),
        # where the head is missing the first source is unknown
        ([call("a"), call("b"), call("c"), words()], 3, [("b", "c")]),
        ([call("a"), summarize("so far"), call("b"), words()], 0, [(START, "a"), ("a", "b")]),
    ],
)
def test_which_edges_a_run_has(parts: list[Any], cut: int, expected: list[tuple[str, str]]) -> None:
    assert edges(user("x"), *parts, cut=cut) == expected


def test_a_state_is_the_request_with_the_summary_or_the_latest_result() -> None:
    [first, second, third] = learned(
        user("x"), call("a", {}, {"open": True}), call("b"), summarize("the phone is abroad"), call("c"), words()
    )
    assert len({each.request for each in (first, second, third)}) == 1
    assert [each.asked for each in (first, second, third)] == [True, False, False]
    assert [each.written for each in (first, second, third)] == [False, False, True]
    assert (first.words, len(second.words), len(third.words)) == ([], 3, 2)


@pytest.mark.parametrize(
    ("output", "looks"),
    [
        ([], "ok []"),
        ([{"id": 7, "open": True}, {}], "ok [{'id': 'open': True}, ...]"),
        ("Email sent.", "ok 'Email sent.'"),
        (17, "ok"),
        (None, "ok"),
        ({"name": "Ann Lee", "mail": "ann7@example.com"}, "ok {'mail': 'name': 'Ann Lee'}"),
    ],
)
def test_a_result_in_words(output: Any, looks: str) -> None:
    assert result_in_words(ExecutedCall("t", {}, output, "ok", "model", "", "k")) == looks


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=60)
@given(JSON, st.none() | st.text())
def test_the_words_of_anything_are_bounded(output: Any, summary: str | None) -> None:
    state = RunState()
    state.since_user = [ExecutedCall("t", {}, output, "ok", "model", "", "k")]
    assert len(state_words(state, summary)) <= 24


# --- weights ---


def walked(table: SITEvidence, run: str, *tools: str) -> None:
    for i, (source, target) in enumerate(zip((START, *tools), tools, strict=False)):
        table.add(run, f"{run}{i}", source, target, "request")


@pytest.fixture
def table() -> SITEvidence:
    return ToolGraph().register(SITEvidence)


def test_short_successful_runs_weigh_more(table: SITEvidence) -> None:
    walked(table, "short", "a", "b")
    walked(table, "long", "a", "c", "d", "b")
    walked(table, "twice", "a", "a", "a")
    for run in ("short", "long", "twice"):
        table.judge(run, 1.0)
    out = table.out_of("a")
    assert out["b"].weight() == 1 + 1 / 2
    assert out["c"].weight() == 1 + 1 / 4
    assert table.out_of(START)["a"] == Edge(3, pytest.approx(1 / 2 + 1 / 4 + 1 / 3), 0, 0)
    assert out["a"] == Edge(2, pytest.approx(2 / 3), 0, 0)


def test_runs_that_failed_or_have_no_feedback_until_it_changes(table: SITEvidence) -> None:
    walked(table, "bad", "a", "b")
    walked(table, "open", "a", "c")
    table.judge("bad", 0.2)
    out = table.out_of("a")
    assert out["b"] == Edge(0, 0, 1, 0)
    assert (out["c"].weight(), out["c"].weight(unlabelled=0.3), table.figures()["runs_waiting"]) == (0, 0.3, 1)
    table.judge("bad", 1)
    assert table.out_of("a")["b"] == Edge(1, 0.5, 0, 0)


def test_transitions_are_found_by_request_until_their_run_is_forgotten_or_too_old(
    table: SITEvidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked(table, "r", "a", "b")
    walked(table, "s", "c")
    assert {each.target for each in table.transitions_of("request")} == {"a", "b", "c"}
    again = ToolGraph().register(SITEvidence)
    again.load(table.to_state())
    assert again.transitions_of("request") == table.transitions_of("request")
    table.forget(Forgotten(runs={"r"}))
    assert [each.run for each in table.transitions_of("request")] == ["s"]
    monkeypatch.setattr("langgraph_toolmem.sit.evidence.MAX_RUNS", 1)
    walked(table, "t", "d")
    assert [each.run for each in table.transitions_of("request")] == ["t"]


tools = st.sampled_from("abc")
steps = st.lists(
    st.tuples(st.sampled_from("xyz"), st.sampled_from("123456"), tools, tools), max_size=12, unique_by=lambda s: s[:2]
)
scores = st.dictionaries(st.sampled_from("xyz"), st.sampled_from([0.0, 1.0]))


@settings(max_examples=60)
@given(st.data(), steps, scores)
def test_the_order_of_arrival_does_not_matter(
    data: st.DataObject, made: list[tuple[str, ...]], said: dict[str, float]
) -> None:
    operations = [("add", *s) for s in made] + [("judge", run, score) for run, score in said.items()]
    one, other = (ToolGraph().register(SITEvidence) for _ in range(2))
    for table, order in ((one, operations), (other, data.draw(st.permutations(operations)))):
        for name, *arguments in order:
            getattr(table, name)(*arguments)
            getattr(table, name)(*arguments)  # again
    for source in "abc":
        rows = one.out_of(source), other.out_of(source)
        for target in {*rows[0], *rows[1]}:
            assert tuple(one.edge(source, target)) == pytest.approx(tuple(other.edge(source, target)))
