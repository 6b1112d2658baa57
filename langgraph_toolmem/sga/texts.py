"""Short texts in three fields, and which of them a question is like: an inverted index.

A row is a bag of terms: word stems of a sub-goal, of a state and of what the tool does, and pairs of neighbouring ones.
The fields are kept apart: a goal is compared with goals and with descriptions, a state with states. A term weighs by
its field and its rarity,

    w(t) = factor of the field · looks(t) · ln(1 + N / n(t)),

and rows are compared by the cosine of these vectors. In a large index the LONGLIST rows that share most with the
question are found first, by its rarest terms, until BUDGET entries of the index were read; only their cosines are
computed.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.recall import wording
from langgraph_toolmem.recall.weights import PAIR, STOP

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

STATE: Final = 0.8
"""Factor of the state's words, where those of the goal have 1."""
ABOUT: Final = 0.5
"""Factor of the words of the tool's description."""
BUDGET: Final = 100_000
"""Entries of the index read for one question."""
LONGLIST: Final = 512
"""Rows whose cosine is computed."""
GROWTH: Final = 0.1
"""Share of changed rows after which rarities are counted again; at once below SMALL rows."""
SMALL: Final = 2_000
_MARKS: Final = {"\x01": "state", "\x02": "about"}
_STATE, _ABOUT = _MARKS
_UNKNOWN: Final = 0.1
"""Share that words which no row has count in the length of a question: most are names."""


class Near(NamedTuple):
    """Rows and their cosines with a question, shape (rows,); of several goals the best."""

    rows: Ints
    cosines: Floats


class TextRows:
    """Rows of terms. Row numbers count up and are never given twice. Not safe for threads by itself."""

    def __init__(self, *, state: float = STATE, about: float = ABOUT) -> None:
        self._factors = {_STATE: state, _ABOUT: about}
        self._numbers: dict[str, int] = {}
        self._base = array("d")
        self._uses = array("i")
        self._postings: list[array[int]] = []
        self._flat = array("i")
        self._starts = array("q", [0])
        self._alive = array("b")
        self._there = 0
        self._changes = 0
        self._counted = -1
        self._rarity: Floats = np.empty(0)
        self._inverse: Floats = np.empty(0)

    def __len__(self) -> int:
        return self._there

    @property
    def end(self) -> int:
        """One more than the highest row number."""
        return len(self._alive)

    def add(self, state: str, goal: str, about: str = "") -> int:
        """One more row; its number."""
        number = self.end
        for term in fields(state, goal, about):
            known = self._numbers.get(term)
            if known is None:
                known = self._numbers[term] = len(self._base)
                self._base.append(self._factors.get(term[0], 1.0) * _looks(term))
                self._uses.append(0)
                self._postings.append(array("i"))
            self._uses[known] += 1
            self._postings[known].append(number)
            self._flat.append(known)
        self._starts.append(len(self._flat))
        self._alive.append(1)
        self._there += 1
        self._changes += 1
        return number

    def remove(self, number: int) -> None:
        """Takes a row out; one that is out already is no error."""
        if not self._alive[number]:
            return
        self._alive[number] = 0
        for term in self._flat[self._starts[number] : self._starts[number + 1]]:
            self._uses[term] -= 1
        self._there -= 1
        self._changes += 1

    def near(self, state: str, goals: Sequence[str]) -> Near:
        """Cosines with the rows that share most with a state and one of the goals; with all rows of a small index."""
        self._count_if_due()
        questions = [self._question(fields(state, goal, goal)) for goal in goals]
        rows = self._candidates(questions)
        if not len(rows):
            return Near(rows, np.empty(0))
        starts = np.frombuffer(self._starts, dtype=np.int64)
        begin, size = starts[rows], starts[rows + 1] - starts[rows]
        ends = np.cumsum(size)
        places = np.arange(int(ends[-1])) + np.repeat(begin - ends + size, size)
        terms = np.frombuffer(self._flat, dtype=np.int32)[places]
        owner = np.repeat(np.arange(len(rows)), size)
        best = np.zeros(len(rows))
        weights = np.zeros(len(self._base))
        for ids, squares in questions:
            weights[ids] = squares
            np.maximum(best, np.bincount(owner, weights[terms], minlength=len(rows)), out=best)
            weights[ids] = 0.0
        return Near(rows, np.minimum(best * self._inverse[rows], 1.0))

    def _question(self, terms: Sequence[str]) -> tuple[Ints, Floats]:
        """Numbers of the terms that rows have, and what each adds to the cosine with a row of length 1."""
        known = [number for term in terms if (number := self._numbers.get(term)) is not None and self._uses[number]]
        unknown = sum(
            (self._factors.get(term[0], 1.0) * _looks(term)) ** 2
            for term in terms
            if (number := self._numbers.get(term)) is None or not self._uses[number]
        )
        ids = np.array(known, dtype=np.intp)
        squares = self._weights(ids) ** 2
        length = math.sqrt(float(squares.sum()) + _UNKNOWN * unknown * math.log(1 + self._there) ** 2)
        return ids, squares / length if length else squares

    def _candidates(self, questions: Sequence[tuple[Ints, Floats]]) -> Ints:
        alive = np.frombuffer(self._alive, dtype=np.int8)
        if self.end <= LONGLIST:
            return np.flatnonzero(alive)
        ids = np.concatenate([ids for ids, _ in questions])
        parts = np.concatenate([parts for _, parts in questions])
        different, where = np.unique(ids, return_inverse=True)
        if not len(different):
            return np.empty(0, dtype=np.intp)
        shares = np.bincount(where, parts)
        arrays: list[npt.NDArray[np.int32]] = []
        taken: list[float] = []
        read = 0
        for place in np.argsort(-shares, kind="stable"):
            posted = np.frombuffer(self._postings[different[place]], dtype=np.int32)
            if arrays and read + len(posted) > BUDGET:
                continue  # a usual term; there may be a rarer one of less weight
            read += len(posted)
            arrays.append(posted)
            taken.append(float(shares[place]))
        sums = np.bincount(np.concatenate(arrays), np.repeat(taken, [len(each) for each in arrays]))
        reached: Floats = sums * self._inverse[: len(sums)]
        found = np.flatnonzero((reached > 0) & (alive[: len(sums)] > 0))
        if len(found) > LONGLIST:
            found = found[np.argpartition(-reached[found], LONGLIST)[:LONGLIST]]
            found.sort()
        return found

    def _weights(self, ids: Ints) -> Floats:
        rarity = np.full(len(ids), math.log(1 + self._there))
        counted = ids < len(self._rarity)
        rarity[counted] = self._rarity[ids[counted]]
        weights: Floats = rarity * np.frombuffer(self._base, dtype=np.float64)[ids]
        return weights

    def _count_if_due(self) -> None:
        """Rarities and lengths again, whenever enough has changed; lengths of new rows always."""
        least = 0 if self._there < SMALL else GROWTH * self._counted
        if self._counted < 0 or self._changes > least:
            uses = np.maximum(np.frombuffer(self._uses, dtype=np.int32), 1)
            self._rarity = np.log(1 + self._there / uses)
            self._inverse = self._inverse_lengths(0)
            self._counted, self._changes = self._there, 0
        elif len(self._inverse) < self.end:
            self._inverse = np.concatenate([self._inverse, self._inverse_lengths(len(self._inverse))])

    def _inverse_lengths(self, first: int) -> Floats:
        starts = np.frombuffer(self._starts, dtype=np.int64)[first:]
        terms = np.frombuffer(self._flat, dtype=np.int32)[starts[0] : starts[-1]].astype(np.intp)
        total = np.concatenate(([0.0], np.cumsum(self._weights(terms) ** 2)))
        squares = np.diff(total[starts - starts[0]])
        inverse: Floats = 1 / np.sqrt(np.maximum(squares, 1e-12))
        return inverse


def fields(state: str, goal: str, about: str) -> list[str]:
    """The terms of a row: words and pairs of goal and state, words of the description."""
    return [
        *wording.terms(goal),
        *(_STATE + term for term in wording.terms(state)),
        *(_ABOUT + term for term in wording.terms(about) if " " not in term),
    ]


@lru_cache(maxsize=65_536)
def _looks(term: str) -> float:
    plain = term.lstrip(_STATE + _ABOUT)
    return (PAIR if " " in plain else 1.0) * (STOP if wording.is_usual(plain) else 1.0)
