"""Preference guiding by hand: which tools are left out, and which stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from langgraph_toolmem.entries.entry import Entry, EntryCall, entry_id
from langgraph_toolmem.entries.preferences import Preference, left_out, preferences
from langgraph_toolmem.runs.run import SUMMARY_TOOL

OFFERED = ("fast", "slow", "mail")
BAD, GOOD = 0.0, 1.0
Rated = tuple[float, str]


def runs(*rated: Rated, blamed: str = "") -> list[Entry]:
    """Entries from ``(score, "tool tool")``."""
    return [
        Entry(
            id=entry_id(str(i)),
            run=str(i),
            query="Find it",
            calls=tuple(EntryCall(tool, {}, "ok") for tool in tools.split()),
            time=float(i),
            score=score,
            blamed=blamed,
        )
        for i, (score, tools) in enumerate(rated)
    ]


def out(rated: Sequence[Rated], offered: Sequence[str] = OFFERED, blamed: str = "", **options: Any) -> list[str]:
    return list(left_out(preferences(runs(*rated, blamed=blamed)), offered, **options))


@pytest.mark.parametrize(
    ("rated", "how", "expected"),
    [
        ([], {}, []),
        ([(BAD, "fast")], {}, []),
        ([(BAD, "fast")] * 2, {}, ["fast"]),
        ([(BAD, "fast")] * 2 + [(GOOD, "fast")], {}, []),
        ([(BAD, "old")] * 2, {}, []),  # not offered
        # tools that were only rated badly together are not told apart, unless a run of its own or a critique does
        ([(BAD, "fast mail")] * 2, {}, []),
        ([(BAD, "fast mail")] * 2, {"blamed": "fast"}, ["fast"]),
        ([(BAD, "fast mail")] * 2 + [(BAD, "fast")], {}, ["fast"]),
        ([(BAD, "fast"), (BAD, "fast mail"), (BAD, "mail")], {}, ["fast", "mail"]),
        ([(BAD, "find fast")] * 2 + [(GOOD, "find slow")], {"offered": ("find", *OFFERED)}, ["fast"]),
        # something is always left; the summary tool does nothing in the world
        ([(BAD, "fast")] * 2 + [(BAD, "slow")] * 2, {}, ["fast", "slow"]),
        ([(BAD, "fast")] * 2 + [(BAD, "slow")] * 2, {"offered": ["fast", "slow"]}, []),
        ([(BAD, "fast")] * 2 + [(BAD, "slow")] * 2, {"offered": ["fast", "slow", SUMMARY_TOOL]}, []),
        ([(BAD, "fast")] * 2, {"offered": ()}, ["fast"]),  # nobody knows what is offered
        ([(BAD, "fast")] * 2, {"offered": ("fast", "fast", "slow")}, ["fast"]),
        # what is to be kept stays, and gets no blame
        ([(BAD, "fast")] * 2, {"keep": ["fast"]}, []),
        ([(BAD, "fast todo")] * 2, {"offered": (*OFFERED, "todo"), "keep": ["todo"]}, ["fast"]),
        ([(BAD, "fast")] * 2, {"offered": ["fast", "slow"], "keep": ["slow"]}, ["fast"]),
        ([(BAD, f"fast {SUMMARY_TOOL}")] * 2, {"offered": (*OFFERED, SUMMARY_TOOL)}, ["fast"]),
    ],
)
def test_which_tools_are_left_out(rated: list[Rated], how: dict[str, Any], expected: list[str]) -> None:
    assert out(rated, **how) == expected


def counted(found: list[Preference]) -> dict[str, tuple[bool, int, int]]:
    return {each.tool: (each.liked, each.ratings, each.against) for each in found}


def test_two_ratings_in_one_direction_make_a_preference() -> None:
    entries = runs((BAD, "a b"), (BAD, "a c c"), (GOOD, "b c"), (GOOD, "b d"), (GOOD, "b"))
    assert counted(preferences(entries[:3])) == {"a": (False, 2, 0)}
    assert counted(preferences(entries)) == {"a": (False, 2, 0), "b": (True, 3, 1)}
    assert preferences(entries)[1].entries == (entries[0].id, entries[1].id)
    assert preferences(entries[:1] * 5) == []  # one run is one rating
    split = runs((BAD, "a"), (BAD, "a"), (GOOD, "a"), (0.2, "a"))
    assert (preferences(split[:3]), counted(preferences(split))) == ([], {"a": (False, 3, 1)})


def test_only_ratings_of_that_user_and_of_executed_calls_count() -> None:
    mine = [replace(each, user="u") for each in runs((BAD, "a"), (BAD, "a"))]
    others = [replace(each, user="v") for each in mine]
    assert preferences(others, user="u") == preferences([mine[0], others[1]], user="u") == []
    assert counted(preferences([mine[0], others[1]])) == {"a": (False, 2, 0)}
    assert preferences([replace(each, score=None) for each in mine]) == []
    blocked = [replace(each, calls=(EntryCall("a", {}, "rejected"), EntryCall("b", {}, "unanswered"))) for each in mine]
    assert preferences(blocked) == []
    unknown = runs((BAD, "a b"), (BAD, "a b"), blamed="never called")
    assert counted(preferences(unknown)) == {"a": (False, 2, 0), "b": (False, 2, 0)}
