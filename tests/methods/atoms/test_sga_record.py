"""The record of an atom and what it is worth."""

from __future__ import annotations

import pytest

from langgraph_toolmem.atoms.atoms import make_atom
from langgraph_toolmem.atoms.record import GATE, PULL, SLOW, USUAL, AtomRecord, prior


def test_without_a_record_nothing_is_said():
    assert AtomRecord().usefulness == 0.5
    assert prior(make_atom(state="", goal="x", tool="a", arguments={}, value=0.5)) == 0.0


def test_the_formula_by_hand():
    atom = make_atom(state="", goal="x", tool="a", arguments={}, value=1.0, visits=8)
    record = AtomRecord(8, 2, 1, 3)
    assert record.usefulness == pytest.approx((1 + 1) / (4 + 2))
    by_verdicts = (1 / 3 - 0.5) * 4 / (4 + GATE)
    by_use = (2 / 8 - USUAL) * 8 / (8 + SLOW)
    assert prior(atom, record) == pytest.approx(PULL * (by_verdicts + by_use + 0.5 * 8 / (8 + GATE)))


def test_what_nobody_judged_counts_neither_way():
    atom = make_atom(state="", goal="x", tool="a", arguments={}, value=0.5)
    assert prior(atom, AtomRecord(60, 60)) == prior(atom) == 0.0
    assert prior(atom, AtomRecord(60, 60, 3, 0)) > 0.0 > prior(atom, AtomRecord(60, 60, 0, 3))


@pytest.mark.parametrize(
    ("record", "misleads"),
    [
        ((0, 0, 0, 0), False),
        ((19, 0, 0, 0), False),
        ((20, 0, 0, 0), True),  # nobody takes it up
        ((39, 1, 1, 0), False),
        ((40, 1, 1, 0), True),
        ((500, 400, 0, 0), False),  # nobody gave a verdict
        ((500, 400, 0, 5), False),
        ((500, 400, 0, 6), True),
        ((500, 400, 4, 29), False),
        ((500, 400, 4, 30), True),
    ],
)
def test_an_atom_misleads_that_fails_too_often_or_is_never_followed(record: tuple[int, ...], misleads: bool):
    assert AtomRecord(*record).misleads is misleads
