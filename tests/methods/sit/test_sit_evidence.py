"""States, edges and the weighing of evidence, by hand and for anything."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from histories import FAILED, call, calls, history, user, words
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem import SIT, ToolMemory
from langgraph_toolmem.graph.events import Forgotten
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.papers.sit_graph import suggest_as_published
from langgraph_toolmem.runs.run import SUMMARY_TOOL, ExecutedCall
from langgraph_toolmem.sit.evidence import START, SITEvidence, TransitionSeen, hashes, result_in_words, state_words
from langgraph_toolmem.sit.suggest import Hits, Suggestion, Vote, suggest

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
@given(JSON, st.text())
def test_the_words_of_anything_are_bounded(output: Any, summary: str) -> None:
    state = RunState()
    state.since_user = [ExecutedCall("t", {}, output, "ok", "model", "", "k")]
    assert len(state_words(state, summary)) <= 24


def walked(table: SITEvidence, run: str, *tools: str, written: bool = False) -> None:
    for i, (source, target) in enumerate(zip((START, *tools), tools, strict=False)):
        seen = TransitionSeen(run, f"{run}{i}", source, target, "request", False, hashes("router down"), written)
        table.add(seen)


@pytest.fixture
def table() -> SITEvidence:
    return ToolGraph().register(SITEvidence)


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
    monkeypatch.setattr(SITEvidence, "max_runs", 1)
    walked(table, "t", "d")
    assert [each.run for each in table.transitions_of("request")] == ["t"]


# --- the default policy ---


def votes(*pairs: tuple[str, float]) -> list[Vote]:
    return [Vote(similarity, tool) for tool, similarity in sorted(pairs, key=lambda pair: -pair[1])]


def asked(
    habits: Mapping[str, float] | None = None, near: Sequence[Vote] = (), hits: Hits = (), **how: Any
) -> list[Suggestion]:
    return suggest(habits or {}, near, hits, **{"k": 2, "unlabelled": 0.3, **how})


def tools_of(found: Sequence[Suggestion]) -> list[str]:
    return [each.tool for each in found]


def test_votes_and_odds_by_hand() -> None:
    near = votes(("b", 0.5), ("c", 0.6), ("c", 0.55))
    vote_b, vote_c = math.exp(-0.8), 1 + math.exp(-0.4)
    total = vote_b + vote_c + 1.5 * (1 - 0.6**2) / 0.6**2
    odds_b = (1 + vote_b / total / 0.02) ** 1.7 * (1 + 0.75 / 0.01) ** 0.2  # p(b) = 3 / (3 + 1)
    odds_c = (1 + vote_c / total / 0.02) ** 1.7
    odds_d = math.exp(3.8 * 0.04 / 0.05 * (1 - 0.6**2))
    every = odds_b + odds_c + odds_d + 1  # and "e", of which nothing is known
    found = asked({"b": 3}, near, [("d", 0.04), ("e", 0.02)], available=["b", "c", "d", "e"], k=9)
    assert {each.tool: each.score for each in found} == pytest.approx(
        {"b": odds_b / every, "c": odds_c / every, "d": odds_d / every}
    )
    assert [(each.tool, each.kind, each.evidence) for each in found] == [
        ("c", "episodic", "came next in 2 of the 3 most similar past states (60% alike)"),
        ("b", "episodic", "came next in 1 of the 3 most similar past states (50% alike)"),
        ("d", "search", "its description fits the request"),
    ]
    [usual] = asked({"b": 3, "c": 1}, k=1)
    assert (usual.tool, usual.kind) == ("b", "procedural")
    assert usual.evidence == "came next 3 of 4 times after the same steps"


def test_a_state_votes_by_the_feedback_on_its_run() -> None:
    near = [Vote(0.7, "b", 0.3, judged=False), Vote(0.7, "c")]
    assert tools_of(asked(near=near)) == ["c", "b"]
    assert asked(near=near)[1].evidence.endswith("not judged)")
    [alone], [full] = asked(near=[Vote(0.7, "b", 0.3, judged=False)]), asked(near=votes(("b", 0.7)))
    assert alone.score == full.score  # where nobody judged anything, votes count in full


def test_a_tool_without_evidence_is_left_to_the_search() -> None:
    found = asked(hits=[("b", 0.9), ("c", 0.5), ("d", 0.1)])
    assert [(each.tool, each.kind) for each in found] == [("b", "search"), ("c", "search")]
    for hits in ([], [("d", 0.0), ("e", 0.0)], [("d", -1.0)]):
        assert asked(hits=hits) == [], "hits that share nothing say nothing"


NAMES = st.sampled_from([*"abcde", SUMMARY_TOOL])


@settings(max_examples=120)
@given(
    habits=st.dictionaries(NAMES, st.integers(1, 3), max_size=4),
    near=st.lists(st.tuples(NAMES, st.floats(0, 1)), max_size=5),
    hits=st.lists(st.tuples(NAMES, st.floats(-1, 1)), max_size=4),
    available=st.none() | st.sets(NAMES),
    k=st.integers(0, 4),
)
def test_whatever_is_known_the_answer_is_sound(
    habits: dict[str, int], near: list[tuple[str, float]], hits: Hits, available: set[str] | None, k: int
) -> None:
    found, every = (asked(habits, votes(*near), hits, available=available, k=n) for n in (k, 9))
    assert tools_of(found) == tools_of(every)[:k]
    assert len({each.tool for each in every}) == len(every)
    assert set(tools_of(every)) <= ({*"abcde"} if available is None else available - {SUMMARY_TOOL})
    assert all(each.evidence and isinstance(each.score, float) and math.isfinite(each.score) for each in every)
    assert [each.score for each in every] == sorted((each.score for each in every), reverse=True)
    assert sum(each.score for each in every) <= 1


# --- the paper's ---


def published(table: SITEvidence, summary: str = "", hits: Hits = (), **how: Any) -> list[tuple[str, str, float]]:
    good: Any = lambda run: float(run != "bad")  # noqa: E731
    options: dict[str, Any] = {"good": good, "available": None, "k": 9, **how}
    found = suggest_as_published(table, "a", summary, hits, **options)
    return [(each.tool, each.kind, each.score) for each in found]


def test_the_papers_edges_weigh_their_successful_runs_and_short_ones_more(table: SITEvidence) -> None:
    for run, *tools in (["short", "a", "b"], ["long", "a", "c", "d", "b"], ["twice", "a", "a", "a"], ["bad", "a", "e"]):
        walked(table, run, *tools)
    weights = {"b": 1 + 1 / 2, "a": 1 + 1 / 3, "c": 1 + 1 / 4}  # "twice" used a → a twice, and is one run
    total = sum(weights.values()) + 3
    expected = [(tool, "procedural", pytest.approx(weight / total)) for tool, weight in weights.items()]
    assert published(table) == expected
    assert published(table, "router down") == expected, "nobody summarised"
    filled = published(table, hits=[("b", 1.0), ("d", 1.0), (SUMMARY_TOOL, 1.0)], available=["b", "d", SUMMARY_TOOL])
    assert [each[:2] for each in filled] == [("b", "procedural"), ("d", "search")]


def test_the_papers_rule_puts_summarised_states_first_the_most_similar_ahead(table: SITEvidence) -> None:
    walked(table, "r", "a", "b", written=True)
    for run in "stu":
        walked(table, run, "a", "c")
    table.add(TransitionSeen("v", "v0", "a", "d", "request", False, hashes("router is slow"), True))
    assert published(table, "The router is down", k=3) == [
        ("b", "episodic", 1.0), ("d", "episodic", 0.5), ("c", "procedural", pytest.approx(4.5 / 11)),
    ]  # fmt: skip
