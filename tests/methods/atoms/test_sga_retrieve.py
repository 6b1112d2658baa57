"""Which atoms fit: the hybrid score, what is filled, tools at hand, words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from histories import schema

from langgraph_toolmem.atoms.atoms import Atom, make_atom, merge
from langgraph_toolmem.atoms.known import Known
from langgraph_toolmem.atoms.resolve import LEAST, Resolver
from langgraph_toolmem.atoms.retrieve import filled, fitting
from langgraph_toolmem.atoms.rows import query_text, text_of
from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.runs.tools import read_tools

NOTHING = "known: only what the user said. done: nothing yet"


def atom(tool: str, goal: str, *needs: str, state: str = NOTHING, about: str = "", **changes: Any) -> Atom:
    arguments = {need.lower(): f"<{need}>" for need in needs}
    given: dict[str, Any] = {"state": state, "goal": goal, "tool": tool, "arguments": arguments, "about": about}
    return make_atom(**(given | {"required_slots": needs} | changes))


CANCEL = atom("cancel_order", "cancel the order <ORDER_ID>", "ORDER_ID", about="Cancel a pending order.")
RETURN = atom("return_order", "return the order <ORDER_ID>", "ORDER_ID", "USER_ID", about="Return a delivered order.")
LIST = atom("list_orders", "show all the orders", about="List all orders of the shop.")
ATOMS = (CANCEL, RETURN, LIST)


# --- the score -----------------------------------------------------------------------------------------------


def test_the_score_is_the_papers():
    for hit in fitting(ATOMS, NOTHING, "cancel the order", {"ORDER_ID"}, k=3, beta=0.3, eps=1e-5):
        needed = len(hit.atom.required_slots)
        known = sum(slot == "ORDER_ID" for slot in hit.atom.required_slots)
        assert hit.feasibility == (pytest.approx(known / (needed + 1e-5)) if needed else 1.0)
        assert hit.score == pytest.approx(0.7 * hit.similarity + 0.3 * hit.feasibility)


def test_what_needs_nothing_is_feasible_and_what_needs_something_unknown_is_not():
    hits = {hit.tool: hit.feasibility for hit in fitting(ATOMS, NOTHING, "the order")}
    assert hits == {"list_orders": 1.0, "cancel_order": 0.0, "return_order": 0.0}


def test_an_atom_is_found_by_any_of_its_wordings_and_by_what_its_tool_does():
    merged = merge(CANCEL, replace(CANCEL, goal="call the purchase off", wordings=()))
    for goal in ("call my purchase off", "cancel the order", "something that is pending"):
        assert fitting([merged, RETURN, LIST], NOTHING, goal, {"ORDER_ID"}, beta=0.0)[0].tool == "cancel_order"


def test_a_prior_lifts_and_sinks():
    one, other = atom("a", "do it"), atom("b", "do it")
    both = [one, other]
    assert fitting(both, NOTHING, "do it", priors={other.id: 0.1})[0].tool == "b"
    assert fitting(both, NOTHING, "do it", priors={one.id: -0.1})[0].tool == "b"


def test_one_atom_of_each_tool_unless_all_are_wanted():
    other = replace(CANCEL, id="another")
    atoms, known = [CANCEL, other, LIST], {"ORDER_ID"}
    assert [hit.tool for hit in fitting(atoms, NOTHING, "cancel the order", known)] == ["cancel_order", "list_orders"]
    every = fitting(atoms, NOTHING, "cancel the order", known, one_per_tool=False)
    assert [hit.tool for hit in every] == ["cancel_order", "cancel_order", "list_orders"]


@pytest.mark.parametrize("wrong", [{"beta": -0.1}, {"beta": 1.1}, {"eps": -1.0}])
def test_what_is_out_of_range_is_refused(wrong: dict[str, float]):
    with pytest.raises(InputError, match="beta lies between"):
        fitting(ATOMS, NOTHING, "cancel", **wrong)  # type: ignore[arg-type]


# --- what is filled ------------------------------------------------------------------------------------------


def test_known_values_are_put_into_the_pattern_and_other_slots_stay():
    known = Known({"ORDER_ID": ["#W1A", "#W2B"], "CITY": ["Rome"]})
    pattern = {"order": "<ORDER_ID>", "to": {"city": "<CITY>", "zip": "<ZIPCODE>"}, "ids": ["<ORDER_ID>"], "all": True}
    assert filled(pattern, known) == {
        "order": "#W2B", "to": {"city": "Rome", "zip": "<ZIPCODE>"}, "ids": ["#W2B"], "all": True,
    }  # fmt: skip
    assert filled(pattern, None) == pattern
    hit = fitting(ATOMS, NOTHING, "cancel the order", known)[0]
    assert hit.filled == {"order_id": "#W2B"}
    assert hit.atom.arguments == {"order_id": "<ORDER_ID>"}


# --- tools at hand -------------------------------------------------------------------------------------------

RENAMED = read_tools(
    [
        schema("fn_1", "order_id") | {"description": "Cancel a pending order."},
        schema("fn_2", "order_id user_id") | {"description": "Return a delivered order."},
        schema("fn_3") | {"description": "The weather of a place."},
    ]
)


def test_an_atoms_tool_is_found_by_what_it_does_where_names_differ():
    known = {"ORDER_ID", "USER_ID"}
    hits = fitting(ATOMS, NOTHING, "cancel the order", known, tools=RENAMED)
    assert [(hit.atom.tool, hit.tool) for hit in hits] == [("cancel_order", "fn_1"), ("return_order", "fn_2")]
    assert all(LEAST <= hit.likeness <= 1.0 for hit in hits)


def test_a_name_goes_before_a_description():
    tools = {**RENAMED, **read_tools([schema("cancel_order", "x")])}
    found = Resolver(tools).resolve(CANCEL)
    assert found is not None
    assert (found.tool, found.likeness) == ("cancel_order", 1.0)


def test_parameters_tell_tools_with_like_descriptions_apart():
    tools = read_tools(
        [
            schema("fn_a", "query page") | {"description": "Cancel a pending order."},
            schema("fn_b", "order_id") | {"description": "Cancel a pending order."},
        ]
    )
    found = Resolver(tools).resolve(CANCEL)
    assert found is not None
    assert found.tool == "fn_b"


def test_a_tool_that_is_not_at_hand_is_not_offered():
    resolver = Resolver(RENAMED)
    assert resolver.resolve(LIST) is None
    assert resolver.resolve(atom("unknown", "x")) is None
    assert Resolver({}).resolve(CANCEL) is None


# --- words --------------------------------------------------------------------------------------------------


def test_likeness_by_hand():
    [hit] = fitting([atom("a", "alpha", state="beta", about="gamma")], "beta", "alpha")
    assert hit.similarity == pytest.approx(0.5 + 0.4)
    [hit] = fitting([atom("a", "alpha", state="beta", about="gamma")], "alpha", "gamma")
    assert hit.similarity == pytest.approx(0.1), "a word of the state is no word of the goal"


def test_cosines_of_an_embedding_model_take_the_place_of_words():
    hits = fitting([CANCEL, LIST], NOTHING, ["x", "y"], {"ORDER_ID"}, cosines={CANCEL.id: 0.9, LIST.id: 0.4})
    assert [(hit.tool, hit.similarity) for hit in hits] == [("cancel_order", 0.9), ("list_orders", 0.4)]


def test_an_embedder_gets_the_usual_wordings_in_one_text():
    merged = merge(CANCEL, replace(CANCEL, goal="call it off", wordings=()))
    assert text_of(merged) == f"call it off\n{NOTHING}\ncancel the order <ORDER_ID>\n{NOTHING}"
    assert (query_text("s", "a"), query_text("", "a"), text_of(atom("t", "", state=""))) == ("a\ns", "a", "t")
