"""Atoms of whatever runs hold: nothing raises, nothing that was taken out is left."""

from __future__ import annotations

import json
from typing import Any

from histories import call, run_of, schema, user
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem.atoms.atoms import from_plain, merge_all, to_plain
from langgraph_toolmem.atoms.extract import Extractor
from langgraph_toolmem.atoms.known import Known
from langgraph_toolmem.atoms.retrieve import fitting
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.text.values import delexicalised, values_in

SPECS = read_tools([schema("get_order", "order_id"), schema("send", "recipient body", "count:integer")])
SCALARS = st.none() | st.booleans() | st.integers(-99, 99_999) | st.text(max_size=12) | st.just("ann@x.org")
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["get_order", "send", "other"]),
        st.dictionaries(st.sampled_from(["order_id", "recipient", "x"]), VALUES, max_size=3),
        VALUES,
    ),
    max_size=4,
)
TEXTS = st.text(max_size=80) | st.sampled_from(
    ["Cancel order #W17X. Mail ann@x.org 'a b', then go", "<A> <B_C> {}[]\\"]
)


def run_with(text: str, steps: list[tuple[str, dict[str, Any], Any]]) -> Any:
    return run_of(user(text), *(call(tool, args, output) for tool, args, output in steps))


@settings(max_examples=60, deadline=None)
@given(TEXTS)
def test_values_stand_where_they_say_in_any_text(text: str):
    values = values_in(text)
    end = 0
    for value in values:
        assert end <= value.start < value.end
        assert text[value.start : value.end] == value.text
        end = value.end
    assert "\n" not in delexicalised(text)


@settings(max_examples=60, deadline=None)
@given(TEXTS, STEPS)
def test_any_run_can_be_read_kept_and_asked_for(text: str, steps: list[tuple[str, dict[str, Any], Any]]):
    run = run_with(text, steps)
    extractor = Extractor(SPECS)
    atoms = [each.atom for each in extractor.steps(run)]
    assert len(atoms) == len(steps)
    kept = merge_all(atoms)
    for atom in kept:
        assert from_plain(json.loads(json.dumps(to_plain(atom)))) == atom
        assert "ann@x.org" not in json.dumps(atom.arguments)
    where, known = extractor.before(run)
    again = Known.from_plain(json.loads(json.dumps(known.to_plain())))
    assert again == known
    assert again.types == known.types
    for hit in fitting(kept, where.state, where.goals or ("",), known, tools=SPECS):
        assert 0.0 <= hit.similarity <= 1.0
        assert 0.0 <= hit.feasibility <= 1.0


@settings(max_examples=40, deadline=None)
@given(TEXTS, STEPS)
def test_reading_a_run_twice_gives_the_same(text: str, steps: list[tuple[str, dict[str, Any], Any]]):
    run = run_with(text, steps)
    assert Extractor(SPECS).steps(run) == Extractor(SPECS).steps(run)
