"""The ledger of what was shown, followed and how it ended; and feedback of several workers, in whatever order."""

from __future__ import annotations

import copy
import itertools
import threading
from dataclasses import replace
from typing import Any

import pytest
from desk import history
from histories import FAILED, call, calls, run_of, user, words
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem import Atoms, Entries, ToolMemory
from langgraph_toolmem.core import ledger
from langgraph_toolmem.core.ledger import FIGURES, LEDGER_LIMITS, ItemStats, Ledger, LedgerTable, Shown
from langgraph_toolmem.core.users import user_digest
from langgraph_toolmem.graph.events import Event, Record, RunSeen, Verdict
from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.runs.run import Turn
from langgraph_toolmem.sit.evidence import SITEvidence, TransitionSeen

# --- shown and followed ---


class Kept:
    """A ledger on a graph."""

    def __init__(self) -> None:
        self.graph = ToolGraph()
        self.lock = threading.RLock()
        self.register = self.graph.register
        self.ledger = Ledger(self)  # type: ignore[arg-type]
        self.table = self.graph.register(LedgerTable)
        self.times = itertools.count(1.0)

    def apply(self, key: str | None, record: Record, *, user: str | None = None, run: str = "") -> bool:
        return self.graph.apply(key, record)

    def follow(self, turn: Turn) -> None:
        self.graph.apply(None, self.ledger.followed(turn))

    def judge(self, run: str, score: float) -> None:
        self.graph.apply(None, [Verdict(run, score, None, None, 1.0, next(self.times))])

    def sums(self, item: str) -> tuple[int, ...]:
        """The record of an item: shown, followed, right, helped, hurt. Only one method has it in these tests."""
        tracks = (self.ledger.tracks(method, [item])[0] for method in self.table.records)
        return tuple(sum(column) for column in zip(*tracks, strict=True)) or (0,) * 5

    def figures(self, method: str = "sit") -> tuple[float, ...]:
        return tuple(self.ledger.figures(method)[name] for name in FIGURES)


@pytest.fixture
def kept() -> Kept:
    return Kept()


def turn_of(*parts: object) -> Turn:
    turn = run_of(user("Go."), *parts).events[1]
    assert isinstance(turn, Turn)
    return turn


OK, BAD, NONE = turn_of(call("a")), turn_of(call("a", {}, FAILED)), turn_of(words())


@pytest.mark.parametrize(
    ("turn", "figures", "items"),
    [
        (OK, (1, 1, 1, 1, 0, 0), [(1, 1, 1, 0, 0), (1, 0, 0, 0, 0)]),
        (BAD, (1, 1, 0, 1, 0, 0), [(1, 1, 0, 0, 0), (1, 0, 0, 0, 0)]),
        (NONE, (1, 0, 0, 0, 0, 0), [(1, 0, 0, 0, 0), (1, 0, 0, 0, 0)]),
        (
            turn_of(calls([("b", {}, FAILED), ("a", {}, "ok")])),
            (1, 1, 1, 1, 0, 0),
            [(1, 1, 1, 0, 0), (1, 1, 1, 0, 0)],
        ),
    ],
    ids=["right", "failed", "words", "both"],
)
def test_what_was_shown_before_a_turn_is_followed_by_it(kept, turn, figures, items):
    for _ in range(2):  # shown again, it counts once
        kept.ledger.shown("sit", {"x": "a", "y": "b"}, run="r", turn=turn.key)
    assert kept.ledger.items(turn.key, "sit") == {"x": "a", "y": "b"}
    kept.follow(turn)
    assert kept.ledger.followed(turn) == []

    assert kept.figures() == figures
    assert [kept.sums("x"), kept.sums("y")] == items
    assert kept.table.turns == {}


def test_an_item_counts_for_the_verdict_as_it_was_shown_or_followed(kept):
    kept.ledger.shown("entries", {"e": None}, run="r")
    kept.ledger.shown("atoms", {"followed": "a", "passed over": "b"}, run="r", turn=OK.key)
    kept.follow(OK)
    kept.judge("r", 1.0)

    assert [kept.sums(item)[3:] for item in ("e", "followed", "passed over")] == [(1, 0), (1, 0), (0, 0)]


def test_what_a_forgotten_user_was_shown_is_gone_and_counted(kept):
    for who in ("ann", "bob"):
        kept.ledger.shown("entries", {"e": None}, run=f"of {who}", user_id=who)
        kept.ledger.shown("sit", {"x": "a"}, run=f"of {who}", turn=f"turn of {who}", user_id=who)
    kept.graph.apply(None, [RunSeen("nobody said so", 0, user_digest("ann"))])
    kept.ledger.shown("entries", {"e": None}, run="nobody said so")
    kept.graph.forget_user(str(user_digest("ann")))

    assert (list(kept.table.runs), list(kept.table.turns)) == (["of bob"], ["turn of bob"])
    assert (kept.figures("entries")[3], kept.figures("sit")[0]) == (3, 2)


def test_turns_and_runs_are_bounded(kept, monkeypatch):
    monkeypatch.setattr(ledger, "LEDGER_LIMITS", replace(LEDGER_LIMITS, turns=2, runs=2))
    for i in range(4):
        kept.ledger.shown("sit", {"x": "a"}, run=f"r{i}", turn=f"t{i}")
        kept.ledger.shown("entries", {"e": None}, run=f"r{i}")

    assert (list(kept.table.turns), list(kept.table.runs)) == (["t2", "t3"], ["r2", "r3"])
    kept.judge("r0", 1.0)
    assert kept.sums("e") == (4, 0, 0, 0, 0)


def test_records_are_bounded_and_dropped(kept, monkeypatch):
    monkeypatch.setattr(ledger, "LEDGER_LIMITS", replace(LEDGER_LIMITS, records=3))
    kept.ledger.shown("entries", {"first": None}, run="q")
    kept.ledger.shown("entries", {"e": None, "f": None}, run="r")
    assert kept.ledger.tracks("entries", ["first", "e", ledger.ALL]) == [
        ItemStats(), ItemStats(shown=1), ItemStats(shown=2),
    ]  # fmt: skip
    kept.ledger.drop("entries", ["e", "nobody"])
    assert kept.ledger.tracks("entries", ["e", "f", ledger.ALL]) == [
        ItemStats(),
        ItemStats(shown=1),
        ItemStats(shown=1),
    ]


# --- feedback ---


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
    graph = ToolGraph([SITEvidence, LedgerTable])
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
        assert (found.score, found.author, found.weight) == (expected.score, expected.user, expected.weight)


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
