"""Atoms as values: identity, merging, plain form."""

from __future__ import annotations

from typing import Any

import pytest

from langgraph_toolmem.atoms.atoms import (
    MAX_SOURCES,
    MAX_WORDINGS,
    Atom,
    Wording,
    from_plain,
    make_atom,
    merge,
    merge_all,
    to_plain,
)
from langgraph_toolmem.base.errors import InputError


def atom(**changes: Any) -> Atom:
    given: dict[str, Any] = {
        "state": "nothing is known yet",
        "goal": "find the order",
        "tool": "get_order",
        "arguments": {"order_id": "<ORDER_ID>", "view": "short"},
        "required_slots": ["ORDER_ID"],
        "about": "The details of an order.",
        "sources": ["run-1"],
    }
    return make_atom(**(given | changes))


def test_the_call_and_its_needs_make_the_identity_not_the_words():
    assert atom().id == atom(goal="look the order up", state="the user spoke", value=0.5, sources=()).id
    assert atom().id == atom(arguments={"view": "short", "order_id": "<ORDER_ID>"}).id
    different = [
        atom(),
        atom(tool="get_parcel"),
        atom(arguments={"order_id": "<ORDER_ID>", "view": "long"}),
        atom(required_slots=["ORDER_ID", "DATE"]),
    ]
    assert len({each.id for each in different}) == 4


def test_merging_adds_visits_and_weighs_the_value():
    merged = merge(atom(value=1.0, visits=3, produces=["DATE"]), atom(value=0.2, sources=["run-0"], origin="search"))
    assert merged.visits == 4
    assert merged.value == pytest.approx(0.8)
    assert merged.sources == ("run-0", "run-1")
    assert merged.origin == "search"
    assert merged.produces == ("DATE",)
    assert merged.wordings == (Wording("nothing is known yet", "find the order", 4),)


def test_the_most_usual_wording_comes_first():
    merged = merge_all([atom(), atom(goal="look it up"), atom(goal="look it up")])
    assert len(merged) == 1
    assert merged[0].goal == "look it up"
    assert [(each.goal, each.visits) for each in merged[0].wordings] == [("look it up", 2), ("find the order", 1)]


def test_wordings_and_sources_are_bounded_and_the_usual_ones_stay():
    rare = [atom(goal=f"goal {i}", sources=[f"run {i:03}"]) for i in range(50)]
    (merged,) = merge_all([*rare, atom(goal="usual"), atom(goal="usual")])
    assert len(merged.wordings) == MAX_WORDINGS
    assert merged.goal == "usual"
    assert len(merged.sources) == MAX_SOURCES
    assert merged.visits == 52


def test_different_atoms_are_not_merged():
    with pytest.raises(InputError, match="one id"):
        merge(atom(), atom(tool="other"))
    assert [each.tool for each in merge_all([atom(), atom(tool="other"), atom()])] == ["get_order", "other"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tool": ""}, "tool"),
        ({"tool": None}, "None is no text"),
        ({"value": 1.5}, "between 0 and 1"),
        ({"value": float("nan")}, "between 0 and 1"),
        ({"visits": 0}, "visits"),
        ({"origin": "guess"}, "origin"),
        ({"required_slots": "DATE"}, "list of texts"),
        ({"wordings": [["only a state"]]}, "no atom"),
        ({"state": 5}, "text"),
    ],
)
def test_what_is_no_atom_is_refused_with_a_reason(change: dict[str, Any], said: str):
    with pytest.raises(InputError, match=said):
        from_plain(to_plain(atom()) | change)


def test_texts_are_one_line_and_bounded():
    made = atom(state="two\nlines   here", goal="x" * 5000)
    assert made.state == "two lines here"
    assert len(made.goal) == 600
