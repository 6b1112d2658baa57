"""Short texts in three fields, and which of them a question is like.

A row is a bag of terms: word stems of a sub-goal, of a state and of what the tool does, and pairs of neighbouring ones.
The fields are kept apart: a goal is compared with goals and with descriptions, a state with states. A term weighs by
its field and its rarity (`bags`), and rows are compared by the cosine of these vectors. As the fields have no terms in
common, what a question and a row share is the sum over the fields, and a state or a description that many rows have is
compared once.

In a large index all rows are compared roughly: the goals' most telling terms, until BUDGET entries of the index were
read, of several goals what any of them has. Only of the LONGLIST best rows the cosines are computed; `Look` gives the
next ones where these do not suffice.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.atoms.bags import Asked, Bags
from langgraph_toolmem.atoms.postings import Floats, Ints, Numbers, Whole
from langgraph_toolmem.atoms.term_numbers import Words

STATE: Final = 0.8
"""Factor of the state's words, where those of the goal have 1."""
ABOUT: Final = 0.5
"""Factor of the words of the tool's description."""
BUDGET: Final = 200_000
"""Entries of the index of goals read for one question."""
LONGLIST: Final = 1_024
"""Rows whose cosine is computed at once."""
GROWTH: Final = 0.1
"""Share of changed rows after which rarities are counted again; at once below SMALL rows."""
SMALL: Final = 2_000
SAMPLE: Final = 16
"""Of so many rows one tells how high the best ones are."""
UNKNOWN: Final = 0.1
"""Share that words which no row has count in the length of a question: most are names."""


class NearText(NamedTuple):
    """Rows and their cosines with a question, shape (rows,); of several goals the best."""

    rows: Ints
    cosines: Floats


class Look:
    """Rows by how high they may come, the best ones first.

    Args:
        rough: a first guess at each row's score, shape (rows,); below 0 for those that are out. Changed by `skip`.
        exact: the cosines of some rows.
        whole: all rows with a guess from 0 on are given at once.
    """

    def __init__(self, rough: npt.NDArray[Any], exact: Callable[[Ints], Floats], *, whole: bool) -> None:
        self._rough, self._exact, self._whole = rough, exact, whole

    def best(self) -> NearText:
        """The best rows that were not skipped, by number: at most LONGLIST, unless all are wanted."""
        rows = np.flatnonzero(self._rough >= 0.0) if self._whole else _best(self._rough)
        return NearText(rows, self._exact(rows))

    def skip(self, rows: npt.NDArray[Any]) -> bool:
        """Takes rows out, by number or as one truth value for each; whether others may be left to look at."""
        self._rough[rows] = -1.0
        return not self._whole


class TextRows:
    """Rows of terms. Row numbers count up and are never given twice. Not safe for threads by itself."""

    def __init__(self, *, state: float = STATE, about: float = ABOUT) -> None:
        words = Words()
        self._goals = Bags(words, once=True)  # the number of a goal is that of its row
        self._states = Bags(words, state)
        self._abouts = Bags(words, about, pairs=False)
        self._groups: dict[tuple[int, int, int], int] = {}  # a state, a description and a kind: many rows have the same
        self._state_of, self._about_of, self._kind_of = array("i"), array("i"), array("i")  # by group
        self._group_of, self._alive = array("i"), array("b")  # by row
        self._there = 0
        self._changes = 0
        self._counted = -1
        self._inverse: Floats = np.empty(0)
        self._rough: npt.NDArray[np.float32] = np.empty(0, dtype=np.float32)
        """The same for a first look."""

    def __len__(self) -> int:
        return self._there

    @property
    def there(self) -> npt.NDArray[np.bool_]:
        """For each row number, whether the row is still there."""
        return np.frombuffer(self._alive, dtype=np.bool_)

    @property
    def end(self) -> int:
        """One more than the highest row number."""
        return len(self._alive)

    def add(self, state: str, goal: str, about: str = "", kind: int = 0) -> int:
        """One more row; its number. What its `kind` means is the caller's: see `look`."""
        number = self._goals.add(goal)
        key = self._states.add(state), self._abouts.add(about), kind
        group = self._groups.setdefault(key, len(self._groups))
        if group == len(self._kind_of):
            for column, value in zip((self._state_of, self._about_of, self._kind_of), key, strict=True):
                column.append(value)
        self._group_of.append(group)
        self._alive.append(1)
        self._there += 1
        self._changes += 1
        return number

    def remove(self, number: int) -> None:
        """Takes a row out; one that is out already is no error."""
        if not self._alive[number]:
            return
        self._alive[number] = 0
        self._goals.drop(number)
        self._states.drop(self._state_of[self._group_of[number]])
        self._abouts.drop(self._about_of[self._group_of[number]])
        self._there -= 1
        self._changes += 1

    def near(self, state: str, goals: Sequence[str]) -> NearText:
        """Cosines with the rows that are most like a state and one of the goals; with all rows of a small index."""
        return self.look(state, goals).best()

    def look(self, state: str, goals: Sequence[str], *, times: float = 1.0, plus: Floats | None = None) -> Look:
        """The rows by how like they are to a state and one of the goals; all at once of a small index.

        Args:
            state: where the run stands.
            goals: what may be next.
            times: factor of the cosine where the best rows are chosen …
            plus: … and what is added to it then, by the rows' kind.
        """
        self.settle()
        asked = self._states.asked(state)
        questions = [(self._goals.asked(goal), self._abouts.asked(goal)) for goal in goals]
        lengths = [1 / length if (length := self._length(asked, *each)) else 1.0 for each in questions]
        whole = self.end <= LONGLIST
        if whole:
            rough = np.where(self.there, np.float32(0), np.float32(-1))
        else:
            rough = self._guess(asked, questions, lengths, times, plus)
        return Look(rough, partial(self._cosines, asked, questions, lengths), whole=whole)

    def _cosines(
        self, asked: Asked, questions: Sequence[tuple[Asked, Asked]], lengths: Sequence[float], rows: Ints
    ) -> Floats:
        goal = self._goals.exact(rows, [(each.ids, each.squares) for each, _ in questions])
        groups = _array(self._group_of)[rows]
        about = self._shared(self._abouts, self._about_of, groups, [(each.ids, each.squares) for _, each in questions])
        said = self._shared(self._states, self._state_of, groups, [(asked.ids, asked.squares)])
        best: Floats = ((goal + about + said) * np.array(lengths)[:, None]).max(axis=0, initial=0.0)
        return np.minimum(best * self._inverse[rows], 1.0)

    @staticmethod
    def _shared(bags: Bags, of: array[int], groups: Whole, questions: Sequence[tuple[Numbers, Floats]]) -> Floats:
        """As `Bags.exact`, each different text once."""
        texts, place = np.unique(_array(of)[groups], return_inverse=True)
        found: Floats = bags.exact(texts, questions)[:, place]
        return found

    def _length(self, *asked: Asked) -> float:
        unknown = UNKNOWN * math.log(1 + self._there) ** 2
        return math.sqrt(sum(float(each.squares.sum()) + unknown * each.unknown for each in asked))

    def _guess(
        self,
        asked: Asked,
        questions: Sequence[tuple[Asked, Asked]],
        lengths: Sequence[float],
        times: float,
        plus: Floats | None,
    ) -> npt.NDArray[np.float32]:
        ids, squares = _joined([each for each, _ in questions], lengths)
        rough = self._goals.dots(ids, squares, BUDGET)
        ids, squares = _joined([each for _, each in questions], lengths)
        shared = self._abouts.dots(ids, squares, sys.maxsize)[_array(self._about_of)]
        said = self._states.dots(asked.ids, asked.squares * max(lengths, default=1.0), sys.maxsize)
        shared += said[_array(self._state_of)]
        groups = _array(self._group_of)
        rough += shared[groups]
        rough *= self._rough
        if plus is not None:
            rough *= np.float32(times)
            rough += plus.astype(np.float32)[_array(self._kind_of)][groups]
        if self._there < self.end:
            rough[~self.there] = -1.0
        return rough

    def settle(self) -> None:
        """Enters new rows, and counts rarities again where enough has changed. What is asked next waits for it."""
        least = 0 if self._there < SMALL else GROWTH * self._counted
        if self._counted < 0 or self._changes > least:
            for bags in (self._goals, self._states, self._abouts):
                bags.count(self._there)
            self._inverse = self._inverse_lengths(0)
            self._counted, self._changes = self._there, 0
            self._rough = self._inverse.astype(np.float32)
        elif len(self._inverse) < self.end:
            self._inverse = np.concatenate([self._inverse, self._inverse_lengths(len(self._inverse))])
            self._rough = self._inverse.astype(np.float32)

    def _inverse_lengths(self, first: int) -> Floats:
        squares = self._goals.lengths(np.arange(first, self.end))
        groups = _array(self._group_of)[first:]
        squares += self._states.lengths(_array(self._state_of)[groups])
        squares += self._abouts.lengths(_array(self._about_of)[groups])
        found: Floats = 1 / np.sqrt(np.maximum(squares, 1e-12))
        return found


def _array(numbers: array[int]) -> Numbers:
    return np.frombuffer(numbers, dtype=np.int32)


def _joined(asked: Sequence[Asked], lengths: Sequence[float]) -> tuple[Numbers, Floats]:
    """The different terms of several questions, each with the most that it gives to one of them."""
    if not asked:
        return np.empty(0, dtype=np.int32), np.empty(0)
    ids = np.concatenate([each.ids for each in asked])
    parts = np.concatenate([each.squares * length for each, length in zip(asked, lengths, strict=True)])
    different, where = np.unique(ids, return_inverse=True)
    most = np.zeros(len(different))
    np.maximum.at(most, where, parts)
    return different, most


def _best(rough: npt.NDArray[Any]) -> Ints:
    """The LONGLIST highest, by number; of equal ones the first."""
    sample = rough[::SAMPLE]
    wanted = min(len(sample), 2 * LONGLIST // SAMPLE)
    least = float(np.partition(sample, len(sample) - wanted)[len(sample) - wanted]) if wanted else 0.0
    found = np.flatnonzero(rough >= max(least, 0.0))
    if len(found) < LONGLIST:
        found = np.flatnonzero(rough >= 0.0)
    if len(found) > LONGLIST:
        values = rough[found]
        least = np.partition(values, len(found) - LONGLIST)[len(found) - LONGLIST]
        above = found[values > least]
        found = np.sort(np.concatenate((above, found[values == least][: LONGLIST - len(above)])))
    return found
