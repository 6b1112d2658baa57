"""Edges that a run walked, and its states in words: by hand on small histories, and for any history."""

from __future__ import annotations

from typing import Any

import pytest
from histories import FAILED, call, calls, history, run_of, user, words
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.runs.run import SUMMARY_TOOL, ExecutedCall, Run, Turn
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.sit.extract import MIN_CHARS, describe_result, extractive_summary, open_request
from langgraph_toolmem.sit.transitions import START, Transition, last_calls, transitions

NOT_EXECUTED = "Error: b is not a valid tool, try one of [a, c]."


def edges(run: Run) -> list[tuple[str, str]]:
    return [(each.source, each.target) for each in transitions(run)]


def state_of(*parts: Any) -> RunState:
    return RunState.of(run_of(*parts))


def steps_of(run: Run) -> list[ExecutedCall]:
    return [step for event in run.events if isinstance(event, Turn) for step in event.steps]


def summarize(text: str) -> list[Any]:
    return call(SUMMARY_TOOL, {"summary": text}, "noted")


# --- transitions ----------------------------------------------------------------------------------------------


def test_consecutive_tools_are_joined_and_the_first_comes_from_the_start():
    run = run_of(user("x"), call("a"), call("b"), call("a"), words())
    assert edges(run) == [(START, "a"), ("a", "b"), ("b", "a")]
    assert [each.key for each in transitions(run)] == [step.key for step in steps_of(run)]


def test_a_failed_call_is_no_target_but_what_follows_it_is_learned():
    assert edges(run_of(user("x"), call("a"), call("b", {}, FAILED), call("c"))) == [(START, "a"), ("b", "c")]
    assert edges(run_of(user("x"), call("b", {}, FAILED), call("b"))) == [("b", "b")]


def test_a_call_that_was_never_executed_is_passed_over():
    assert edges(run_of(user("x"), call("a"), call("b", {}, NOT_EXECUTED), call("c"))) == [(START, "a"), ("a", "c")]


def test_calls_of_one_turn_have_the_same_source():
    run = run_of(user("x"), call("a"), calls([("b", {}, 1), ("c", {}, 2)]), call("d"))
    assert edges(run) == [(START, "a"), ("a", "b"), ("a", "c"), ("c", "d")]


def test_after_a_users_message_the_summary_is_kept_with_those_of_other_beginnings():
    run = run_of(user("x"), call("a"), words("Which one?"), user("y"), call("b"), call("c"))
    first, second, third = transitions(run, summarise=lambda state: state.user.raw)
    assert (first.source, first.asked, first.place) == (START, True, START)
    assert (second.source, second.asked, second.place, second.summary) == ("a", True, START, "y")
    assert (third.source, third.asked, third.place) == ("b", False, "b")


def test_a_new_request_begins_at_the_start():
    run = run_of(user("x"), call("a"), words(), user("book a room"), call("b"), call("c"))
    assert edges(run) == [(START, "a"), (START, "b"), ("b", "c")]
    assert [edge for episode in run.episodes() for edge in edges(episode)] == edges(run)


def test_where_the_head_is_missing_the_first_edge_is_unknown():
    tail = history(user("x"), call("a"), call("b"), call("c"))[3:]  # begins with the model's second turn
    run = parse_run(tail, thread_id="r")
    assert run.truncated
    assert edges(run) == [("b", "c")]
    assert last_calls(parse_run([], thread_id="r")) == (START,)


def test_the_summary_tool_is_no_node_and_its_text_lies_on_the_edge_around_it():
    run = run_of(user("x"), call("a"), summarize("  the phone is abroad "), call("b"), call("c"))
    found = transitions(run, summarise=lambda _: "made")
    assert [(each.source, each.target, each.summary, each.made_by) for each in found] == [
        (START, "a", "made", "extractive"),
        ("a", "b", "the phone is abroad", "tool"),
        ("b", "c", "made", "extractive"),
    ]
    assert SUMMARY_TOOL not in {name for each in found for name in (each.source, each.target)}
    assert last_calls(run_of(user("x"), call("a"), summarize("s"))) == ("a",)


def test_without_a_summary_there_is_no_author():
    run = run_of(user("x"), call("a"))
    assert transitions(run) == [Transition(START, "a", None, steps_of(run)[0].key, "", asked=True)]
    assert transitions(run, summarise=lambda _: "  ")[0].made_by == ""
    assert transitions(run, summarise=lambda _: "s")[0].made_by == "extractive"


def test_the_state_that_is_summed_up_is_the_one_before_the_call():
    seen: list[list[str]] = []
    transitions(run_of(user("x"), call("a"), call("b")), summarise=lambda state: seen.append(list(state.tools)) or "s")
    assert seen == [[], ["a"]]


def test_where_the_next_edges_begin():
    assert last_calls(run_of(user("x"))) == (START,)
    assert last_calls(run_of(user("x"), call("a"), words("Which one?"), user("y"))) == ("a",)
    assert last_calls(run_of(user("x"), call("a"), words(), user("y"))) == (START,)
    assert last_calls(run_of(user("x"), calls([("b", {}, 1), ("c", {}, 2), ("b", {}, 3)]))) == ("b", "c")
    assert last_calls(run_of(user("x"), call("a"), call("b", {}, FAILED))) == ("b",)
    assert last_calls(run_of(user("x"), call("a"), call("b", {}, NOT_EXECUTED))) == ("a",)


MOVES = st.lists(
    st.one_of(
        st.just([user("and now?")]),
        st.just([words()]),
        st.just(summarize("so far")),
        st.builds(lambda tool, output: call(tool, {"n": 1}, output), st.sampled_from("abc"), st.just("ok")),
        st.builds(lambda tool: call(tool, {}, FAILED), st.sampled_from("abc")),
        st.just(calls([("a", {}, 1), ("b", {}, 2)])),
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(MOVES)
def test_what_comes_later_changes_no_transition(moves: list[Any]):
    whole = transitions(run_of(user("x"), *moves))
    for length in range(len(moves)):
        before = transitions(run_of(user("x"), *moves[:length]))
        assert whole[: len(before)] == before
    assert len({each.key for each in whole}) == len(whole)
    assert all(each.target != SUMMARY_TOOL != each.source for each in whole)


# --- the state in words ---------------------------------------------------------------------------------------

ORDERS = "Cancel order #W17, please. Then change the address of #W18 to 5 Elm Street."


def test_what_is_open_is_what_no_call_took_a_value_from():
    assert (
        open_request(state_of(user(ORDERS)))
        == "Cancel order #W17, please. Then change the address of #W18 to 5 Elm Street."
    )
    asked = [user(ORDERS), call("cancel_order", {"order": {"ids": ["#W17"]}}, {"status": "cancelled"})]
    assert open_request(state_of(*asked)) == "Then change the address of #W18 to 5 Elm Street."
    failed = [user(ORDERS), call("cancel_order", {"id": "#W17"}, FAILED)]
    assert "#W17" in open_request(state_of(*failed))
    done = [*asked, call("change_address", {"id": "#W18"})]
    assert open_request(state_of(*done)) == ""


def test_the_account_by_hand():
    answer = {"id": "#W17", "status": "cancelled", "refund": 12.5, "gift": False, "items": [1, 2], "log": []}
    state = state_of(user(ORDERS), call("get_order", {}, FAILED), call("cancel_order", {"id": "#W17"}, answer))
    assert extractive_summary(state).splitlines() == [
        f"Asked: {ORDERS}",
        "Still open: Then change the address of #W18 to 5 Elm Street.",
        "Done: get_order failed; cancel_order",
        "Last result: id, status cancelled, refund, gift false, items several, log none",
    ]


@pytest.mark.parametrize(
    ("output", "looks"),
    [
        ([], "none"),
        ([{"id": 7, "open": True}], "one, id, open true"),
        ([1, 2, 3], "several"),
        ("Email sent.", "Email sent."),
        (17, "a number"),
        (True, "true"),
        ({}, "nothing"),
        ({"name": "Ann Lee", "mail": "ann@example.com", "note": None}, "name Ann Lee, mail, note null"),
    ],
)
def test_results_are_told_by_their_looks(output: Any, looks: str):
    step = ExecutedCall("t", {}, output, "ok", "model", "", "k")
    assert describe_result(step) == looks


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=3000), st.lists(JSON, max_size=3), st.integers(0, 1200))
def test_an_account_of_anything_keeps_its_bound(text: str, outputs: list[Any], bound: int):
    state = RunState()
    state.user = RunState.of(run_of(user(text))).user
    for number, output in enumerate(outputs):
        step = ExecutedCall(
            "tool" * 20, {"value": output}, output, "ok" if number % 2 else "failed", "model", "", str(number)
        )
        state.steps.append(step)
        state.since_user.append(step)
    account = extractive_summary(state, max_chars=bound)
    assert len(account) <= max(bound, MIN_CHARS)
    assert account or not (text.strip() or outputs)


def test_of_a_long_request_the_beginning_is_kept_and_the_rest_has_room():
    text = "Book the flight. " + "I like window seats. " * 400
    account = extractive_summary(state_of(user(text), call("search", {"q": "flight"}, {"found": True})))
    assert account.startswith("Asked: Book the flight. I like")
    assert "Still open: I like" in account
    assert account.endswith("Done: search\nLast result: found true")
    assert len(account) <= 800
