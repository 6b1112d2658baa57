"""What the predictor is measured against: a back-off n-gram over calls, and an exact cache.

Both see the same runs in the same order as the predictor, predict before each model turn and learn after it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from langgraph_toolmem.graph.state import PARALLEL, START, WORDS
from langgraph_toolmem.runs.run import Run, Turn, UserMessage
from langgraph_toolmem.runs.values import canon_args

Call = tuple[str, str]
"""Tool and canonical arguments. WORDS and PARALLEL stand for turns that are no single call."""

ORDERS: Final = (3, 2, 1)
_NO_CALL: Final = (WORDS, PARALLEL)


def call_of(turn: Turn) -> Call:
    """What a model turn was, as a successor."""
    if not turn.steps:
        return (WORDS, "")
    if len(turn.steps) > 1:
        return (PARALLEL, "")
    return (turn.steps[0].tool, canon_args(turn.steps[0].args))


@dataclass(frozen=True)
class Guess:
    """One prediction before one model turn.

    Attributes:
        call: the call foreseen; None: no proposal (nothing known, or words foreseen).
        confidence: share of the call among what was seen in this context, n / (N + 1).
        known: all calls ever seen in this context.
    """

    call: Call | None
    confidence: float
    known: frozenset[Call]

    @classmethod
    def none(cls) -> Guess:
        """Nothing is known."""
        return cls(None, 0.0, frozenset())


class Yardstick(Protocol):
    """Predicts the turns of runs one after another."""

    def replay(self, run: Run) -> Iterator[tuple[Turn, Guess]]:
        """Each model turn with the guess before it; the turn is learned when the next is asked for."""


class _Counts:
    """Successor counts per context; among equal counts the one seen last wins."""

    def __init__(self) -> None:
        self._rows: dict[Hashable, dict[Call, int]] = {}

    def guess(self, context: Hashable) -> Guess | None:
        row = self._rows.get(context)
        if row is None:
            return None
        count = max(row.values())
        call = next(c for c in reversed(row) if row[c] == count)
        known = frozenset(c for c in row if c[0] not in _NO_CALL)
        if call[0] in _NO_CALL:
            return Guess(None, 0.0, known)
        return Guess(call, count / (sum(row.values()) + 1), known)

    def add(self, context: Hashable, call: Call) -> None:
        row = self._rows.setdefault(context, {})
        row[call] = row.pop(call, 0) + 1


class BackOffNGram:
    """The next concrete call after the longest known context.

    Contexts, the first known one counts: the last 3, 2, 1 concrete calls, then the last 3, 2, 1, 0 tools. The
    start of the run and a turn in words are symbols in both sequences; further user messages are passed over.
    """

    def __init__(self) -> None:
        self._counts = _Counts()

    def replay(self, run: Run) -> Iterator[tuple[Turn, Guess]]:
        """Each model turn with the guess before it; the turn is learned when the next is asked for."""
        history: list[Call] = [(START, "")]
        for event in run.events:
            if isinstance(event, UserMessage):
                continue
            contexts = list(_contexts(history))
            found = (self._counts.guess(context) for context in contexts)
            yield event, next((guess for guess in found if guess is not None), Guess.none())
            for context in contexts:
                self._counts.add(context, call_of(event))
            history += [(step.tool, canon_args(step.args)) for step in event.steps] or [(WORDS, "")]


def _contexts(history: list[Call]) -> Iterator[Hashable]:
    """The n-gram's contexts, the most telling first."""
    for size in ORDERS:
        if len(history) >= size:
            yield ("calls", *history[-size:])
    for size in ORDERS:
        if len(history) >= size:
            yield ("tools", *(tool for tool, _ in history[-size:]))
    yield ("any",)


class ExactCache:
    """Same user texts and same calls so far: the same next call."""

    def __init__(self) -> None:
        self._counts = _Counts()

    def replay(self, run: Run) -> Iterator[tuple[Turn, Guess]]:
        """Each model turn with the guess before it; the turn is learned when the next is asked for."""
        so_far: tuple[Hashable, ...] = ()
        for event in run.events:
            if isinstance(event, UserMessage):
                so_far += (event.text,)
                continue
            yield event, self._counts.guess(so_far) or Guess.none()
            self._counts.add(so_far, call_of(event))
            so_far += tuple((step.tool, canon_args(step.args)) for step in event.steps) or ((WORDS, ""),)
