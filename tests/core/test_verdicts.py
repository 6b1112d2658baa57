"""Verdicts of several workers: in whatever order they arrive, the same one stands everywhere."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
from desk import history
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem import Atoms, Entries, ToolMemory
from langgraph_toolmem.core.ledger import Ledger, Shown
from langgraph_toolmem.graph.events import Event, RunSeen, Verdict
from langgraph_toolmem.graph.tool_graph import AUTHOR, SCORE, WEIGHT, ToolGraph
from langgraph_toolmem.sit.evidence import SITEvidence, TransitionSeen

RUNS = ("r", "s")
VERDICTS = st.builds(
    Verdict,
    run=st.sampled_from(RUNS),
    score=st.sampled_from([0.0, 0.25, 1.0]),
    comment=st.sampled_from([None, "good", "bad"]),
    user=st.sampled_from([None, "ann", "bob"]),
    weight=st.sampled_from([0.5, 1.0]),  # their sums are exact
    when=st.sampled_from([1.0, 2.0, 3.0]),
)
SEEN: list[Event] = [
    operation
    for run in RUNS
    for operation in (
        RunSeen(run, 1, "ann"),
        Shown("entries", run, None, {"e": None}, "ann"),
        TransitionSeen(run, "1", "a", "b"),
        TransitionSeen(run, "2", "b", "c"),
    )
]


def state_after(operations: list[Event]) -> dict[str, Any]:
    graph = ToolGraph([SITEvidence, Ledger])
    for each in operations:
        graph.apply(None, [copy.deepcopy(each)])
    return graph.to_state()


@given(st.data())
@settings(max_examples=150)
def test_permuted_and_repeated_verdicts_make_the_same_graph(data: st.DataObject) -> None:
    given_ = data.draw(st.lists(VERDICTS, max_size=6))
    again = data.draw(st.lists(st.sampled_from(given_), max_size=3)) if given_ else []
    shuffled = data.draw(st.permutations([*SEEN, *given_, *again]))
    assert state_after(shuffled) == state_after([*SEEN, *given_])


@pytest.mark.parametrize(
    ("verdicts", "stands"),
    [
        ([Verdict("r", 1.0, None, "ann", 1.0, 1.0), Verdict("r", 0.0, None, "bob", 1.0, 2.0)], 1),
        ([Verdict("r", 1.0, None, "bob", 1.0, 1.0), Verdict("r", 0.0, None, "ann", 1.0, 2.0)], 1),
        ([Verdict("r", 0.0, None, "ann", 1.0, 1.0), Verdict("r", 0.0, None, "bob", 1.0, 1.0)], 1),
        ([Verdict("r", 0.0, None, "ann", 1.0, 1.0), Verdict("r", 1.0, None, "ann", 1.0, 1.0)], 1),
        ([Verdict("r", 0.0, None, "ann", 1.0, 1.0), Verdict("r", 1.0, None, "ann", 0.5, 2.0)], 0),
    ],
    ids=["later", "later one of another author", "author", "score", "share"],
)
def test_the_verdict_that_stands(verdicts: list[Verdict], stands: int) -> None:
    for order in itertools.permutations(verdicts):
        graph = ToolGraph()
        graph.apply(None, list(order))
        found, expected = graph.runs["r"], verdicts[stands]
        assert (found[SCORE], found[AUTHOR], found[WEIGHT]) == (expected.score, expected.user, expected.weight)


@pytest.mark.parametrize("now", [0.0, 1e9, -1e9])
def test_here_a_later_verdict_stands_whatever_the_clock_says(now: float) -> None:
    clock = [1e9]
    with ToolMemory.ephemeral(methods=[], now=lambda: clock[0]) as memory:
        memory.finish(history(4), thread_id="t", success=True)
        run = memory.core.episodes.named("t", None)
        for score in (0.0, 1.0, 0.0):
            clock[0] = 1e9 + now
            memory.feedback("t", score=score)
            assert memory.core.graph.score(run) == score


def test_a_verdict_that_comes_while_methods_are_told_of_the_end_reaches_all() -> None:
    class Hasty(Entries):
        name = "hasty"

        def ended(self, ended: Any) -> None:
            memory.core.lifecycle.note(ended.run.digest, 1.0, "fine", None)

        def judged(self, judged: Any) -> None:
            pass

    with ToolMemory.ephemeral(methods=[Hasty(), Atoms(keep=True)]) as memory:
        memory.finish(history(4, "Zoe"), thread_id="t", wait=True)
        assert {atom.tool for atom in memory.atoms.all()} == {"find_customer", "latest_order", "add_note"}
