"""Bounded counting tables: by hand, then order by property."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem.graph.tool_graph import ContributorTable, CountTable


def test_at_the_bound_the_rows_with_the_least_evidence_leave_older_first():
    table = CountTable(10)
    for i in range(11):
        table.add(f"k{i}", "x", amount=5 if i < 2 else 1)
    assert len(table.rows) == 11  # a tenth more than the bound is allowed

    table.add("new", "x")

    assert len(table.rows) == 11
    assert {"k0", "k1", "k3", "new"} <= table.rows.keys()
    assert "k2" not in table.rows


@given(st.integers(1, 40), st.lists(st.integers(0, 200), max_size=300))
@settings(max_examples=40)
def test_a_table_never_outgrows_its_bounds(bound: int, keys: list[int]):
    table = CountTable(bound, max_items=3)
    for key in keys:
        table.add(str(key % 97), str(key % 7))
        assert len(table.rows) <= bound * 1.1 + 1
    assert all(len(row) <= 3 for row in table.rows.values())


@given(st.lists(st.tuples(st.sampled_from("rstuv"), st.none() | st.sampled_from("ABCDE")), max_size=20), st.randoms())
@settings(max_examples=50)
def test_witnesses_commute_and_are_bounded(seen, random):
    first, second = ContributorTable(10), ContributorTable(10)
    for run, user in seen:
        first.add("k", "v", run, user)
    random.shuffle(seen)
    for run, user in seen:
        second.add("k", "v", run, user)

    assert first.rows == second.rows
    assert all(len(who) <= 3 for row in first.rows.values() for cell in row.values() for who in cell)


def test_witness_rows_and_items_are_bounded():
    table = ContributorTable(2, max_items=2)
    table.add("k", "twice", "r1", None)
    table.add("k", "twice", "r2", None)
    table.add("k", "once", "r1", None)
    table.add("k", "new", "r1", None)
    assert list(table.rows["k"]) == ["twice", "new"]

    table.add("l", "v", "r", None)
    table.add("m", "v", "r", None)
    assert list(table.rows) == ["l", "m"]
