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
from langgraph_toolmem.runs.run import SUMMARY_TOOL, ExecutedCall
from langgraph_toolmem.sit.evidence import START, Edge, SITEvidence, TransitionSeen, result_in_words, state_words
from langgraph_toolmem.sit.suggest import SITPolicy, Suggestion, Vote, suggest

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


COMBINED = SITPolicy()
PAPER = SITPolicy.paper()
BOTH = pytest.mark.parametrize("policy", [PAPER, COMBINED])


def after_a(**edges: tuple[float, float, float, float]) -> dict[str, Edge]:
    """Edges out of "a": uses in good runs, Σ 1/n, uses in bad and in open runs."""
    return {target: Edge(*cell) for target, cell in edges.items()}


def votes(*pairs: tuple[str, float]) -> list[Vote]:
    return [Vote(similarity, tool) for tool, similarity in sorted(pairs, key=lambda pair: -pair[1])]


def asked(
    row: Mapping[str, Edge] | None = None,
    near: Sequence[Vote] = (),
    policy: SITPolicy = COMBINED,
    **how: Any,
) -> list[Suggestion]:
    return suggest(row or {}, near, policy=policy, source="a", text="x", **how)


def tools_of(found: Sequence[Suggestion]) -> list[str]:
    return [each.tool for each in found]


# --- habits ---


def test_an_edge_weighs_its_uses_and_more_in_short_runs() -> None:
    rows = after_a(b=(2, 1 / 2 + 1 / 4, 0, 0), c=(2, 1 / 5 + 1 / 5, 0, 0))
    first, second = asked(rows, policy=PAPER)
    assert tools_of([first, second]) == tools_of(asked(rows)) == ["b", "c"]
    assert first.score == pytest.approx(2.75 / (2.75 + 2.4 + 2))
    assert (first.kind, first.runs, first.success, first.similarity) == ("procedural", 2, 1.0, None)
    assert first.evidence == "came next 2 of 4 times after a in successful runs"
    assert tools_of(asked(after_a(c=(1, 1, 0, 0), b=(1, 1 / 3, 0, 0)), policy=PAPER)) == ["c", "b"]


@pytest.mark.parametrize("policy", [PAPER, COMBINED.with_(unlabelled=0.0)])
def test_only_successful_runs_teach(policy: SITPolicy) -> None:
    rows = after_a(b=(0, 0, 2, 0), c=(0, 0, 0, 1))
    assert asked(rows, policy=policy) == []
    (only,) = asked(rows, policy=policy.with_(unlabelled=0.2))
    assert (only.tool, only.runs, only.success) == ("c", 0, None)
    assert only.evidence == "came next after a in runs that nobody judged"


def test_runs_without_feedback_count_less_the_more_often_their_edge_was_judged_bad() -> None:
    rows = after_a(b=(0, 0, 2, 4), c=(0, 0, 0, 4))
    weights = {target: edge.weight(unlabelled=0.3) for target, edge in rows.items()}
    assert weights == pytest.approx({"b": 4 * 0.3 / 3, "c": 4 * 0.3})
    assert tools_of(asked(rows)) == ["c", "b"]


# --- states ---


def test_the_papers_rule_ranks_by_the_best_similarity_and_fills_up_with_weight() -> None:
    rows, near = after_a(b=(5, 5, 0, 0), d=(1, 1, 0, 0)), votes(("c", 0.6), ("d", 0.3), ("c", 0.1))
    found = asked(rows, near, PAPER, k=3)
    assert [(each.tool, each.kind) for each in found] == [("c", "episodic"), ("d", "episodic"), ("b", "procedural")]
    assert [each.score for each in found[:2]] == [0.6, 0.3]
    assert tools_of(asked(rows, votes(("d", 0.3)), PAPER)) == ["d", "b"]


def test_votes_and_odds_by_hand() -> None:
    rows, near = after_a(b=(1, 0.5, 0, 0)), votes(("b", 0.5), ("c", 0.6), ("c", 0.55))  # p(b) = 1.5 / (1.5 + 1)
    vote_b, vote_c = math.exp(-0.8), 1 + math.exp(-0.4)
    total = vote_b + vote_c + 1.5 * (1 - 0.6**2) / 0.6**2
    odds_b = (1 + vote_b / total / 0.02) ** 1.7 * (1 + 0.6 / 0.01) ** 0.2
    odds_c = (1 + vote_c / total / 0.02) ** 1.7
    odds_d = math.exp(3.8 * 0.04 / 0.05 * (1 - 0.6**2))
    every = odds_b + odds_c + odds_d + 1  # and "e", of which nothing is known

    found = asked(rows, near, available=["b", "c", "d", "e"], search=lambda _: [("d", 0.04), ("e", 0.02)], k=9)
    assert {each.tool: each.score for each in found} == pytest.approx(
        {"b": odds_b / every, "c": odds_c / every, "d": odds_d / every}
    )
    assert [(each.tool, each.kind) for each in found] == [("c", "episodic"), ("b", "episodic"), ("d", "search")]
    assert found[0].evidence == "came next in 2 of the 3 most similar past states (60% alike)"
    assert found[1].evidence == "came next in 1 of the 3 most similar past states (50% alike)"
    assert found[2].evidence == "its description fits the request"


def test_a_state_votes_by_the_feedback_on_its_run() -> None:
    near = [Vote(0.7, "b", 0.3, judged=False), Vote(0.7, "c")]
    assert tools_of(asked(near=near)) == ["c", "b"]
    assert asked(near=near)[1].evidence.endswith("not judged)")
    assert tools_of(asked(near=[Vote(0.7, "b", 0.0, judged=False), Vote(0.7, "c")])) == ["c"]
    [alone], [full] = asked(near=[Vote(0.7, "b", 0.3, judged=False)]), asked(near=votes(("b", 0.7)))
    assert alone.score == full.score  # where nobody judged anything, votes count in full


# --- search, and what may be called ---


def test_a_tool_without_evidence_is_left_to_the_search() -> None:
    hits = [("b", 0.9), ("c", 0.5), ("d", 0.1)]
    for policy in (COMBINED, PAPER):
        found = asked(policy=policy, search=lambda _: iter(hits))
        assert tools_of(found) == ["b", "c"]
        assert {each.kind for each in found} == {"search"}
    rows = after_a(b=(1, 1, 0, 0), c=(1, 0.5, 0, 0))
    assert tools_of(asked(rows, policy=PAPER, search=lambda _: 1 / 0)) == ["b", "c"]  # type: ignore[arg-type, return-value]
    assert tools_of(asked(rows, policy=PAPER, k=3, search=lambda _: [("d", 1.0)])) == ["b", "c", "d"]


@pytest.mark.parametrize("hits", [[], [("d", 0.0), ("e", 0.0)], [("d", -1.0)]])
def test_hits_that_share_nothing_say_nothing(hits: list[tuple[str, float]]) -> None:
    assert asked(search=lambda _: hits) == []


@BOTH
def test_tools_that_are_not_available_are_never_suggested(policy: SITPolicy) -> None:
    rows, near = after_a(b=(1, 1, 0, 0), d=(1, 1, 0, 0)), votes(("b", 0.9), ("c", 0.5), (SUMMARY_TOOL, 0.8))
    how: dict[str, Any] = {"policy": policy, "search": lambda _: [("b", 1.0), (SUMMARY_TOOL, 0.9)], "k": 9}
    assert {*tools_of(asked(rows, near, available=["c", "d", SUMMARY_TOOL], **how))} == {"c", "d"}
    assert SUMMARY_TOOL not in tools_of(asked(rows, near, **how))
    assert asked(rows, near, available=[], **how) == []


NAMES = st.sampled_from("abcde")
COUNTS = st.tuples(*[st.integers(0, 3)] * 4)


@settings(max_examples=120)
@given(
    row=st.dictionaries(NAMES, COUNTS, max_size=4),
    near=st.lists(st.tuples(NAMES, st.floats(0, 1)), max_size=5),
    hits=st.lists(st.tuples(NAMES, st.floats(-1, 1)), max_size=4),
    available=st.none() | st.sets(NAMES),
    k=st.integers(0, 4),
    policy=st.sampled_from([PAPER, COMBINED]),
)
def test_whatever_is_known_the_answer_is_sound(
    row: dict[str, tuple[int, ...]],
    near: list[tuple[str, float]],
    hits: list[tuple[str, float]],
    available: set[str] | None,
    k: int,
    policy: SITPolicy,
) -> None:
    edges = {target: Edge(*cell) for target, cell in row.items()}
    how: dict[str, Any] = {"policy": policy, "available": available, "search": lambda _: hits}
    found, every = asked(edges, votes(*near), k=k, **how), asked(edges, votes(*near), k=9, **how)
    assert tools_of(found) == tools_of(every)[:k]
    assert len({each.tool for each in found}) == len(found) <= k
    assert available is None or set(tools_of(found)) <= available
    assert all(each.evidence and isinstance(each.score, float) and math.isfinite(each.score) for each in found)
    if policy is COMBINED:
        assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
        assert sum(each.score for each in every) <= 1
