"""Which atoms fit: the hybrid score, tools at hand, changes of the index."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from histories import schema
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem.atoms import retrieve, texts
from langgraph_toolmem.atoms.atoms import Atom, make_atom, merge
from langgraph_toolmem.atoms.known import Known
from langgraph_toolmem.atoms.resolve import LEAST, Resolver
from langgraph_toolmem.atoms.retrieve import AtomIndex, filled, query_texts, texts_of
from langgraph_toolmem.atoms.texts import TextRows
from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.words import wording
from langgraph_toolmem.words.wording import PAIR, STOP

NOTHING = "known: only what the user said. done: nothing yet"


def atom(tool: str, goal: str, *needs: str, state: str = NOTHING, about: str = "", **changes: Any) -> Atom:
    arguments = {need.lower(): f"<{need}>" for need in needs}
    given: dict[str, Any] = {"state": state, "goal": goal, "tool": tool, "arguments": arguments, "about": about}
    return make_atom(**(given | {"required_slots": needs} | changes))


CANCEL = atom("cancel_order", "cancel the order <ORDER_ID>", "ORDER_ID", about="Cancel a pending order.")
RETURN = atom("return_order", "return the order <ORDER_ID>", "ORDER_ID", "USER_ID", about="Return a delivered order.")
LIST = atom("list_orders", "show all the orders", about="List all orders of the shop.")
ATOMS = (CANCEL, RETURN, LIST)


def index_of(*atoms: Atom) -> AtomIndex:
    index = AtomIndex()
    for each in atoms or ATOMS:
        index.add(each)
    return index


# --- the score -----------------------------------------------------------------------------------------------


def test_the_score_is_the_papers():
    for hit in index_of().search(NOTHING, "cancel the order", {"ORDER_ID"}, k=3, beta=0.3, eps=1e-5):
        needed = len(hit.atom.required_slots)
        known = sum(slot == "ORDER_ID" for slot in hit.atom.required_slots)
        assert hit.feasibility == (pytest.approx(known / (needed + 1e-5)) if needed else 1.0)
        assert hit.score == pytest.approx(0.7 * hit.similarity + 0.3 * hit.feasibility)


def test_what_needs_nothing_is_feasible_and_what_needs_something_unknown_is_not():
    hits = {hit.tool: hit.feasibility for hit in index_of().search(NOTHING, "the order")}
    assert hits == {"list_orders": 1.0, "cancel_order": 0.0, "return_order": 0.0}


def test_feasibility_decides_between_equals():
    one, other = atom("a", "do it", "CITY"), atom("b", "do it", "DATE")
    index = index_of(one, other)
    assert [hit.tool for hit in index.search(NOTHING, "do it", {"CITY"})] == ["a", "b"]
    assert [hit.tool for hit in index.search(NOTHING, "do it", {"DATE"})] == ["b", "a"]
    one_score, other_score = (hit.score for hit in index.search(NOTHING, "do it", {"DATE"}, beta=0.0))
    assert one_score == pytest.approx(other_score)


def test_the_goal_decides_where_all_is_known():
    index = index_of()
    known = {"ORDER_ID", "USER_ID"}
    for goal, tool in (("please cancel it", "cancel_order"), ("I want to return it", "return_order")):
        assert index.search(NOTHING, goal, known)[0].tool == tool


def test_the_state_decides_where_the_goal_is_the_same():
    first = atom("look", "cancel the order", state="known: email. done: nothing yet")
    second = atom("act", "cancel the order", state="known: order id. done: The details of an order. result: one")
    index = index_of(first, second)
    assert index.search("known: email. done: nothing yet", "cancel the order")[0].tool == "look"
    assert index.search("known: order id. done: The details of an order", "cancel the order")[0].tool == "act"


def test_an_atom_is_found_by_any_of_its_wordings_and_by_what_its_tool_does():
    merged = merge(CANCEL, replace(CANCEL, goal="call the purchase off", wordings=()))
    index = index_of(merged, RETURN, LIST)
    for goal in ("call my purchase off", "cancel the order", "something that is pending"):
        assert index.search(NOTHING, goal, {"ORDER_ID", "USER_ID"}, beta=0.0)[0].tool == "cancel_order"


def test_of_several_goals_the_best_fitting_one_counts():
    index = index_of()
    single = index.search(NOTHING, "return the order", {"ORDER_ID", "USER_ID"})[0]
    several = index.search(NOTHING, ["my name is Ann", "return the order"], {"ORDER_ID", "USER_ID"})[0]
    assert (several.atom.id, several.score) == (single.atom.id, pytest.approx(single.score))


def test_a_prior_lifts_and_sinks():
    one, other = atom("a", "do it"), atom("b", "do it")
    index = index_of(one, other)
    assert index.search(NOTHING, "do it", priors={other.id: 0.1})[0].tool == "b"
    assert index.search(NOTHING, "do it", priors={one.id: -0.1})[0].tool == "b"


def test_one_atom_of_each_tool_unless_all_are_wanted():
    other = replace(CANCEL, id="another")
    index = index_of(CANCEL, other, LIST)
    known = {"ORDER_ID"}
    assert [hit.tool for hit in index.search(NOTHING, "cancel the order", known)] == ["cancel_order", "list_orders"]
    every = index.search(NOTHING, "cancel the order", known, one_per_tool=False)
    assert [hit.tool for hit in every] == ["cancel_order", "cancel_order", "list_orders"]
    hits = index.search(NOTHING, "cancel the order", known, exclude=[CANCEL.id])
    assert hits[0].atom.id == "another"


def test_nothing_is_found_where_there_is_nothing():
    assert AtomIndex().search(NOTHING, "cancel") == []
    assert index_of().search(NOTHING, []) == []
    assert index_of().search(NOTHING, "cancel", k=0) == []
    assert len(index_of().search("", "", k=5)) == 3  # feasibility alone still tells


@pytest.mark.parametrize("wrong", [{"beta": -0.1}, {"beta": 1.1}, {"eps": -1.0}])
def test_what_is_out_of_range_is_refused(wrong: dict[str, float]):
    with pytest.raises(InputError, match="beta lies between"):
        index_of().search(NOTHING, "cancel", **wrong)  # type: ignore[arg-type]


# --- what is filled ------------------------------------------------------------------------------------------


def test_known_values_are_put_into_the_pattern_and_other_slots_stay():
    known = Known({"ORDER_ID": ["#W1A", "#W2B"], "CITY": ["Rome"]})
    pattern = {"order": "<ORDER_ID>", "to": {"city": "<CITY>", "zip": "<ZIPCODE>"}, "ids": ["<ORDER_ID>"], "all": True}
    assert filled(pattern, known) == {
        "order": "#W2B", "to": {"city": "Rome", "zip": "<ZIPCODE>"}, "ids": ["#W2B"], "all": True,
    }  # fmt: skip
    assert filled(pattern, None) == pattern
    hit = index_of().search(NOTHING, "cancel the order", known)[0]
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
    hits = index_of().search(NOTHING, "cancel the order", known, tools=RENAMED)
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


# --- changes of the index ------------------------------------------------------------------------------------


def test_an_atom_is_replaced_by_the_one_with_its_id():
    index = index_of()
    index.add(merge(CANCEL, replace(CANCEL, goal="call it off", wordings=())))
    assert len(index) == 3
    found = index.get(CANCEL.id)
    assert found is not None
    assert found.visits == 2
    assert index.search(NOTHING, "call it off", {"ORDER_ID"})[0].atom.visits == 2


def test_a_removed_atom_is_not_found_again():
    index = index_of()
    assert index.remove(CANCEL.id)
    assert not index.remove(CANCEL.id)
    assert CANCEL.id not in index
    assert [hit.tool for hit in index.search(NOTHING, "cancel the order", {"ORDER_ID"})] == [
        "list_orders",
        "return_order",
    ]


def test_it_answers_as_a_new_one_after_many_changes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(retrieve, "LONGLIST", 4)
    draw = random.Random(3)
    index = AtomIndex()
    there: dict[str, Atom] = {}
    for step in range(300):
        made = atom(f"tool_{draw.randrange(12)}", f"do thing number {draw.randrange(40)}", *draw.sample(["A", "B"], 1))
        if draw.random() < 0.4:
            index.remove(made.id)
            there.pop(made.id, None)
        else:
            index.add(replace(made, visits=step + 1))
            there.pop(made.id, None)
            there[made.id] = replace(made, visits=step + 1)
    fresh = index_of(*there.values())
    assert {each.id for each in index.every()} == set(there)
    for number in range(0, 40, 7):
        one, other = (
            sorted(
                (round(hit.score, 9), hit.atom.id)
                for hit in each.search(NOTHING, f"thing number {number}", {"A"}, k=99)
            )
            for each in (index, fresh)
        )
        assert one == other


WORDS = st.lists(st.sampled_from(["cancel", "order", "the", "refund", "please", "item"]), max_size=4).map(" ".join)
CHANGES = st.lists(
    st.tuples(st.integers(0, 6), WORDS, WORDS, WORDS, st.sampled_from([(), ("A",), ("A", "B")]), st.booleans()),
    min_size=1,
    max_size=14,
)


def scan(atoms: Sequence[Atom], state: str, goals: Sequence[str], types: set[str]) -> list[tuple[float, str]]:
    """The formulas of `retrieve` and `bags`, atom by atom; of equal scores the first atom first."""

    def terms(state: str, goal: str, about: str) -> dict[tuple[str, str], float]:
        fields = (("goal", goal, 1.0), ("state", state, texts.STATE), ("about", about, texts.ABOUT))
        return {
            (name, term): factor * (PAIR if " " in term else 1.0) * (STOP if wording.is_usual(term) else 1.0)
            for name, text, factor in fields
            for term in wording.terms(text)
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


@settings(max_examples=150, deadline=None)
@given(CHANGES, WORDS, st.lists(WORDS, min_size=1, max_size=3))
@pytest.mark.slow
def test_a_small_index_answers_as_an_exact_scan_after_any_changes(changes: Any, state: str, goals: list[str]):
    index = AtomIndex()
    there: dict[str, Atom] = {}
    for number, where, goal, about, needs, stays in changes:
        made = replace(atom("t", goal, *needs, state=where, about=about), id=str(number))
        if not stays:
            assert index.remove(made.id) == (there.pop(made.id, None) is not None)
            index.search(where, goal)  # rarities are counted in between
            continue
        index.add(made)
        before = there.get(made.id)
        if before is None or retrieve.found_by(before) != retrieve.found_by(made):
            there.pop(made.id, None)  # its row is a new one, the last
        there[made.id] = made
    hits = index.search(state, goals, {"A"}, k=99, one_per_tool=False)
    exact = scan(list(there.values()), state, goals, {"A"})
    assert [hit.atom.id for hit in hits] == [key for _, key in exact]
    assert [hit.score for hit in hits] == pytest.approx([score for score, _ in exact], abs=1e-8)
    assert [hit.atom.id for hit in index.search(state, goals, {"A"}, k=2, one_per_tool=False)] == [
        key for _, key in exact[:2]
    ]


def test_equal_atoms_come_in_the_order_of_their_rows_in_a_large_index_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(texts, "LONGLIST", 32)
    index = AtomIndex()
    for number in range(500):
        index.add(atom(f"t{number}", "cancel the order" if number % 3 else "return it"))
    hits = index.search(NOTHING, "cancel the order", k=40)
    assert [hit.tool for hit in hits] == [f"t{number}" for number in range(500) if number % 3][:40]


# --- words in a large index ----------------------------------------------------------------------------------


def test_the_longlist_finds_what_all_rows_find(monkeypatch: pytest.MonkeyPatch):
    draw = random.Random(1)
    vocabulary = ["".join(letters) for letters in itertools.product("bdfgk", "aeiou", "lmnprt", "o")]
    rows = TextRows()
    for _ in range(400):
        rows.add(" ".join(draw.choices(vocabulary[:20], k=4)), " ".join(draw.choices(vocabulary, k=5)), "about it")
    asked = [(" ".join(draw.choices(vocabulary[:20], k=4)), " ".join(draw.choices(vocabulary, k=5))) for _ in range(20)]
    exact = [rows.near(state, [goal]) for state, goal in asked]
    monkeypatch.setattr(texts, "LONGLIST", 50)
    same = 0
    for (state, goal), whole in zip(asked, exact, strict=True):
        part = rows.near(state, [goal])
        assert len(part.rows) <= 50
        cosines = dict(zip(whole.rows.tolist(), whole.cosines.tolist(), strict=True))
        assert all(
            cosines[row] == pytest.approx(cosine) for row, cosine in zip(part.rows.tolist(), part.cosines, strict=True)
        )
        same += int(whole.rows[whole.cosines.argmax()]) in part.rows
    assert same == 20


def test_cosines_by_hand():
    rows = TextRows(state=1.0, about=0.0)
    rows.add("", "alpha")
    rows.add("", "beta")
    near = rows.near("", ["alpha"])
    assert near.cosines.tolist() == [pytest.approx(1.0), 0.0]
    assert rows.near("alpha", [""]).cosines.max() == 0.0  # a word of the state is no word of the goal


def test_a_word_that_no_row_has_counts_little():
    rows = TextRows()
    rows.add("", "alpha beta")
    whole = rows.near("", ["alpha beta"]).cosines[0]
    with_name = rows.near("", ["alpha beta zorblax"]).cosines[0]
    assert 0.7 < with_name / whole < 1.0


# --- an embedder ---------------------------------------------------------------------------------------------


def unit(*values: float) -> list[float]:
    return (np.array(values) / np.linalg.norm(values)).tolist()


def test_vectors_take_the_place_of_words():
    index = AtomIndex()
    index.add(CANCEL, [unit(1, 0)])
    index.add(LIST, [unit(0, 1)])
    hits = index.search(NOTHING, ["x", "y"], {"ORDER_ID"}, vectors=[unit(1, 1), unit(1, 0.1)])
    assert [hit.tool for hit in hits] == ["cancel_order", "list_orders"]
    assert hits[0].similarity == pytest.approx(unit(1, 0.1)[0])
    assert index.remove(CANCEL.id)
    assert [hit.tool for hit in index.search(NOTHING, "x", vectors=[unit(1, 0)])] == ["list_orders"]


def test_vectors_stay_with_their_atoms_when_rows_are_numbered_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(retrieve, "LONGLIST", 2)
    index = AtomIndex()
    index.add(CANCEL, [unit(1, 0, 0)])
    for turn in range(30):
        index.add(replace(LIST, visits=turn + 1), [unit(0, 1, turn)])
    assert len(index) == 2
    hits = index.search(NOTHING, "x", {"ORDER_ID"}, vectors=[unit(1, 0, 0)], beta=0.0)
    assert [(hit.tool, round(hit.similarity, 6)) for hit in hits] == [("cancel_order", 1.0), ("list_orders", 0.0)]


def test_vectors_are_for_all_or_for_none():
    index = index_of()
    with pytest.raises(InputError, match="have no vectors"):
        index.add(replace(CANCEL, id="n"), [unit(1, 0)])
    with pytest.raises(InputError, match="or neither"):
        index.search(NOTHING, "x", vectors=[unit(1, 0)])
    dense = AtomIndex()
    dense.add(CANCEL, [unit(1, 0)])
    with pytest.raises(InputError, match="needs them too"):
        dense.add(LIST)
    with pytest.raises(InputError, match="one dimension"):
        dense.add(LIST, [unit(1, 0, 0)])
    with pytest.raises(InputError, match="2 numbers each"):
        dense.search(NOTHING, "x", vectors=[unit(1, 0, 0)])
    assert len(dense) == 1


def test_an_embedder_gets_one_text_for_each_wording_and_goal():
    merged = merge(CANCEL, replace(CANCEL, goal="call it off", wordings=()))
    assert texts_of(merged) == [f"call it off\n{NOTHING}", f"cancel the order <ORDER_ID>\n{NOTHING}"]
    assert query_texts("s", ["a", "b"]) == ["a\ns", "b\ns"]
