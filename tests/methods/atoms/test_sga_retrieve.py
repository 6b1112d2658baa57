"""Which atoms fit: the hybrid score, what is filled, tools at hand, words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from histories import schema
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem.atoms import texts
from langgraph_toolmem.atoms.atoms import Atom, make_atom, merge
from langgraph_toolmem.atoms.known import Known
from langgraph_toolmem.atoms.resolve import LEAST, Resolver
from langgraph_toolmem.atoms.retrieve import filled, fitting
from langgraph_toolmem.atoms.rows import query_text, text_of
from langgraph_toolmem.atoms.texts import Question, Rarity
from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.text.requests import PAIR, STOP, is_usual, terms_of

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

WORDS = st.lists(st.sampled_from(["cancel", "order", "the", "refund", "please", "item"]), max_size=4).map(" ".join)
DRAWN = st.lists(
    st.tuples(WORDS, WORDS, WORDS, st.sampled_from([(), ("A",), ("A", "B")])),
    min_size=1,
    max_size=9,
)


def scan(atoms: Sequence[Atom], state: str, goals: Sequence[str], types: set[str]) -> list[tuple[float, str]]:
    """The formulas of `retrieve` and `texts`, atom by atom; of equal scores the first atom first."""

    def terms(state: str, goal: str, about: str) -> dict[tuple[str, str], float]:
        fields = (("goal", goal, 1.0), ("state", state, texts.STATE), ("about", about, texts.ABOUT))
        return {
            (name, term): factor * (PAIR if " " in term else 1.0) * (STOP if is_usual(term) else 1.0)
            for name, text, factor in fields
            for term in terms_of(text)
            if name != "about" or " " not in term
        }

    rows = [terms(each.state, each.goal, each.about) for each in atoms]
    uses = Counter(term for row in rows for term in row)

    def weigh(row: dict[tuple[str, str], float]) -> dict[tuple[str, str], float]:
        return {term: base * math.log(1 + len(rows) / uses[term]) for term, base in row.items() if uses[term]}

    found = []
    for number, (each, row) in enumerate(zip(atoms, map(weigh, rows), strict=True)):
        best = 0.0
        for goal in goals:
            bases = terms(state, goal, goal)
            own = weigh(bases)
            unknown = sum(base**2 for term, base in bases.items() if not uses[term]) * math.log(1 + len(rows)) ** 2
            length = math.sqrt(sum(weight**2 for weight in own.values()) + texts.UNKNOWN * unknown)
            lengths = length * math.sqrt(sum(weight**2 for weight in row.values()))
            shared = sum(weight**2 for term, weight in own.items() if term in row)
            best = max(best, shared / lengths if lengths else 0.0)
        needed = each.required_slots
        feasible = len(types & set(needed)) / (len(needed) + 1e-5) if needed else 1.0
        found.append((-round(0.7 * best + 0.3 * feasible, 9), number, each.id))
    return [(-score, key) for score, _, key in sorted(found)]


@settings(max_examples=80, deadline=None)
@given(DRAWN, WORDS, st.lists(WORDS, min_size=1, max_size=3))
def test_it_answers_as_an_exact_scan(drawn: Any, state: str, goals: list[str]):
    atoms = [
        replace(atom("t", goal, *needs, state=where, about=about), id=str(number))
        for number, (where, goal, about, needs) in enumerate(drawn)
    ]
    hits = fitting(atoms, state, goals, {"A"}, k=99, one_per_tool=False)
    exact = scan(atoms, state, goals, {"A"})
    assert [hit.atom.id for hit in hits] == [key for _, key in exact]
    assert [hit.score for hit in hits] == pytest.approx([score for score, _ in exact], abs=1e-8)
    assert hits[:2] == fitting(atoms, state, goals, {"A"}, k=2, one_per_tool=False)


def cosines(state: str, goal: str, *atoms: Atom) -> list[float]:
    question = Question(state, [goal], Rarity(atoms))
    return [question.cosine(each) for each in atoms]


def test_cosines_by_hand():
    alpha, beta = atom("a", "alpha", state=""), atom("b", "beta", state="")
    # A word and two pairs that half of the atoms have; the goal may be said of a description too, and is of none.
    asked, kept = math.log(3) ** 2 * (1.5 + texts.UNKNOWN * texts.ABOUT**2), math.log(3) ** 2 * 1.5
    assert cosines("", "alpha", alpha, beta) == [pytest.approx(kept / math.sqrt(asked * kept)), 0.0]
    assert cosines("alpha", "", alpha, beta) == [0.0, 0.0]  # a word of the state is no word of the goal


def test_how_rare_words_are_is_told_by_a_sample():
    usual = [atom("a", f"cancel number{number}") for number in range(9)]
    both = [atom("b", "cancel it"), atom("c", "refund it")]
    assert [hit.tool for hit in fitting(both, NOTHING, "cancel, refund")] == ["b", "c"]
    rarity = Rarity([*usual, *both])
    assert [hit.tool for hit in fitting(both, NOTHING, "cancel, refund", rarity=rarity)] == ["c", "b"]


def test_cosines_of_an_embedding_model_take_the_place_of_words():
    hits = fitting([CANCEL, LIST], NOTHING, ["x", "y"], {"ORDER_ID"}, cosines={CANCEL.id: 0.9, LIST.id: 0.4})
    assert [(hit.tool, hit.similarity) for hit in hits] == [("cancel_order", 0.9), ("list_orders", 0.4)]


def test_an_embedder_gets_the_usual_wordings_in_one_text():
    merged = merge(CANCEL, replace(CANCEL, goal="call it off", wordings=()))
    assert text_of(merged) == f"call it off\n{NOTHING}\ncancel the order <ORDER_ID>\n{NOTHING}"
    assert (query_text("s", "a"), query_text("", "a"), text_of(atom("t", "", state=""))) == ("a\ns", "a", "t")
