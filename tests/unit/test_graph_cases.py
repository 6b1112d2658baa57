"""Past requests: the nearest ones, and values carried over from old wording to new."""

from __future__ import annotations

from typing import Any

import pytest

from langgraph_toolmem.graph.cases import CASE_LIMITS, CaseIndex, carry_over
from langgraph_toolmem.graph.events import Forgotten
from langgraph_toolmem.runs.values import ABSENT
from langgraph_toolmem.stores.snapshot import dumps, loads


def add(
    index: CaseIndex,
    case: str,
    position: int,
    tool: str,
    *,
    args: str = "{}",
    status: str = "ok",
    sources: dict[str, list[str]] | Any | None = ...,
    further: int = 0,
) -> None:
    """One call of a case; with nothing said, an ordinary one of the model."""
    found = {} if sources is ... else sources
    index.add_call(case, position, tool, args, status, found, further)


def index_with(*texts: str, user: str | None = None) -> CaseIndex:
    index = CaseIndex()
    for i, text in enumerate(texts):
        index.open(f"case{i}", text, user)
        add(index, f"case{i}", 0, "search", args=f'{{"q":"{i}"}}', sources={"q": ["ua|for|1"]})
        index.end(f"case{i}", 1)
    return index


def test_the_most_similar_request_comes_first():
    index = index_with("Cancel the order of Ann", "Mail the report to Bo", "Cancel the order of Bo")
    found = index.nearest("Cancel the order of Cy", [], k=2)

    assert {near.case_id for near in found} == {"case0", "case2"}
    assert found[0].similarity >= found[1].similarity > 0
    assert (found[0].tool, found[0].sources) == ("search", {"q": ["ua|for|1"]})
    assert index.nearest("zzz", []) == []
    assert index.nearest("Cancel the order of Ann", [])[0].similarity == pytest.approx(1)
    assert "case0" not in {near.case_id for near in index.nearest("Cancel the order of Ann", [], exclude="case0")}


def test_only_requests_that_went_the_same_way_are_near():
    index = index_with("Cancel the order of Ann")
    index.open("failed", "Cancel the order of Bo", None)
    add(index, "failed", 0, "search", status="failed")
    add(index, "failed", 1, "retry")

    assert [n.tool for n in index.nearest("Cancel the order", [("search", "ok")])] == [None]
    assert [n.tool for n in index.nearest("Cancel the order", [("search", "failed")])] == ["retry"]
    assert index.nearest("Cancel the order", [("other", "ok")]) == []
    assert index.nearest("Cancel the order", [("search", "failed"), ("retry", "ok")]) == []


def test_of_the_same_reply_the_one_to_the_same_question_is_nearest():
    index = CaseIndex()
    for case, asked in (("keep", "Shall I keep it?"), ("cancel", "Shall I cancel it?"), ("none", "")):
        index.open(case, "Yes please", None, asked)
        add(index, case, 0, f"{case}_order")

    found = index.nearest("Yes please", [], asked="Shall I cancel it?")
    assert found[0].tool == "cancel_order"
    assert [near.similarity for near in found] == [pytest.approx(1), pytest.approx(0.75, abs=0.2), pytest.approx(0.5)]
    assert index.led_to("keep", "keep_order")


@pytest.mark.parametrize(
    ("calls", "tool"),
    [
        ([("aaa", {}, 0), ("zzz", {}, 0)], "aaa"),
        ([("aaa", None, 0), ("zzz", {}, 0)], "zzz"),  # the model's before the shortcut's
        ([("aaa", {}, 0), ("aaa", {}, 1)], "aaa"),
    ],
)
def test_of_a_fork_one_call_stays_whatever_the_order(calls: list[tuple[str, Any, int]], tool: str):
    states = []
    for order in (calls, calls[::-1]):
        index = CaseIndex()
        index.open("c", "Cancel the order", None)
        for name, sources, further in order:
            add(index, "c", 0, name, sources=sources, further=further)
        states.append(index.cases)

    assert states[0] == states[1]
    assert index.nearest("Cancel the order", [])[0].tool == tool


def test_a_shortcut_is_part_of_the_way_but_not_followed():
    index = CaseIndex()
    index.open("c", "Cancel the order", None)
    add(index, "c", 0, "search", sources=None)
    add(index, "c", 1, "cancel")

    assert index.nearest("Cancel the order", []) == []
    assert index.nearest("Cancel the order", [("search", "ok")])[0].tool == "cancel"


def test_calls_of_a_request_are_bounded():
    index = index_with("Cancel the order")
    add(index, "case0", CASE_LIMITS.calls, "late")

    assert list(index.cases["case0"].calls) == [0]


def test_postings_and_cases_are_bounded_and_the_oldest_leave():
    index = CaseIndex(max_cases=100)
    for i in range(150):
        index.open(f"case{i}", f"Cancel order {i}", None)

    assert len(index.cases) == 100
    assert "case49" not in index.cases
    add(index, "case149", 0, "search")
    assert [n.case_id for n in index.nearest("Cancel order 149", [])] == ["case149"]
    for i in range(50, 150):
        add(index, f"case{i}", 0, "search")
    assert len(index.nearest("Cancel order", [], k=100)) == CASE_LIMITS.postings


def test_a_forgotten_user_leaves_nothing():
    index = index_with("Cancel the order of Ann", user="A")
    index.open("other", "Mail Bo", "B")

    assert index.forget(Forgotten("A")) == 1
    assert index.nearest("Cancel the order of Ann", []) == []
    assert "ann" not in str(index.cases).lower()
    assert "ann" not in repr(vars(index)).lower()
    assert list(index.cases) == ["other"]


@pytest.mark.parametrize(
    ("value", "old", "new", "carried"),
    [
        ("Ann", "Mail Ann now", "Mail Bo now", "Bo"),
        ("ann", "Mail Ann now", "Mail Bo now", "bo"),
        ("dear ann smith", "Mail Ann Smith now", "Mail Bo Jones now", "dear bo jones"),
        ("ann_smith", "Mail Ann Smith now", "Mail Bo Jones now", "bo_jones"),
        ("2024-11-21", "Book November 21 please", "Book December 3 please", "2024-12-03"),
        (5, "Show 5 mails", "Show 7 mails", 7),
        (2.5, "Pay 2.5 euros", "Pay 3.5 euros", 3.5),
        (["Ann", "x"], "Mail Ann now", "Mail Bo now", ["Bo", "x"]),
        ({"to": "Ann"}, "Mail Ann now", "Mail Bo now", {"to": "Bo"}),
        (5, "Show 5 mails", "Show many mails", "many"),
        # Short names within a value: "mayor of 東京" was asked for again where Paris was meant.
        ("mayor of 東京", "Who is the mayor of 東京?", "Who is the mayor of Paris?", "mayor of Paris"),
        ("서울 weather", "Weather in 서울?", "Weather in Αθήνα?", "Αθήνα weather"),
        ("mail of Li", "Find the mail of Li", "Find the mail of Ann", "mail of Ann"),
    ],
)
def test_values_are_carried_over(value: Any, old: str, new: str, carried: Any):
    assert carry_over(value, old, new) == (carried, True)


def test_short_words_within_other_words_stay():
    assert carry_over("Lisa, to go", "Find Li, to go", "Find Ann, of go") == ("Lisa, to go", False)


@pytest.mark.parametrize("value", ["Cy", 5, True, None, ABSENT, [], {}])
def test_what_the_wording_does_not_mention_stays(value: Any):
    assert carry_over(value, "Mail Ann now", "Mail Bo now") == (value, False)


def test_an_index_is_what_its_requests_make_it():
    """Evicted, forgotten, told of backwards: the index equals one that is rebuilt from the requests."""
    index = CaseIndex(max_cases=CASE_LIMITS.postings + 20)
    for i in range(CASE_LIMITS.postings + 50):
        if i % 4 == 0:
            index.end(f"case{i}", 0)  # another worker's log tells of the end first
        if i % 4 == 0 and i > 4:
            index.open(f"case{i - 4}", f"Cancel the order {i - 4}", "ann" if i % 3 else "bob")
        if i % 4:
            index.open(f"case{i}", f"Cancel the order {i}", "ann" if i % 3 else "bob")
    for _ in range(2):
        again = CaseIndex(index.max_cases)
        again.load(loads(dumps(index.to_plain())))  # type: ignore[arg-type]
        assert vars(again) == vars(index)
        assert list(again.cases) == list(index.cases)
        index.forget(Forgotten("ann"))
    assert sum(map(index.knows, index.cases)) < CASE_LIMITS.postings
