"""Which terms texts have, and which texts have a term.

The terms of all texts lie one behind the other. The other way round they are sorted in segments of neighbouring texts:
the last texts wait until there are enough of them for one, and segments of like size become one, so that each text is
sorted a few times at most. What waits is looked through.
"""

from __future__ import annotations

from array import array
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Numbers = npt.NDArray[np.int32]
Whole = npt.NDArray[np.integer[Any]]
"""Numbers of any width."""

WAITING: Final = 20_000
"""Entries of the last texts that are looked through."""
SEGMENT: Final = 4_000_000
"""Entries of one segment at most."""
_NUMBER: Final = (1 << 32) - 1


class _Segment(NamedTuple):
    first: int  # text
    end: int
    terms: Numbers  # the different ones, sorted
    starts: Numbers
    texts: Numbers


class Postings:
    """Terms of texts; numbers of texts count up. Not safe for threads by itself."""

    def __init__(self) -> None:
        self._flat = array("i")
        self._starts = array("q", [0])
        self.segments: list[_Segment] = []

    def __len__(self) -> int:
        return len(self._starts) - 1

    def add(self, terms: Numbers, sizes: npt.NDArray[np.int64]) -> None:
        """More texts: their terms one behind the other, and how many each has."""
        self._starts.frombytes((np.cumsum(sizes) + self._starts[-1]).astype(np.int64).tobytes())
        self._flat.frombytes(terms.tobytes())

    def entries(self, texts: Whole) -> tuple[Ints, Numbers]:
        """All terms of some texts, each with the place of its text among them."""
        starts = np.frombuffer(self._starts, dtype=np.int64)
        begin, size = starts[texts], starts[texts + 1] - starts[texts]
        flat = np.frombuffer(self._flat, dtype=np.int32) if self._flat else np.empty(0, dtype=np.int32)
        return np.repeat(np.arange(len(texts)), size), flat[_ranges(begin, size)]

    def sums(self, terms: Numbers, weights: Floats, budget: int) -> Floats:
        """What texts get for having terms, shape (texts,).

        Args:
            terms: different ones, sorted.
            weights: what each gives.
            budget: entries that are read, those of the terms that give most first. A term that has more than are
                left is passed over: there may be a rarer one that gives less.
        """
        self.sort()
        places = [np.searchsorted(each.terms, terms) for each in self.segments]
        begins = [_start(each, place) for each, place in zip(self.segments, places, strict=True)]
        sizes = [
            np.where(_has(each, place, terms), _start(each, place + 1) - begin, 0)
            for each, place, begin in zip(self.segments, places, begins, strict=True)
        ]
        often = np.zeros(len(terms), dtype=np.int64)
        for size in sizes:
            often += size
        chosen = _affordable(often, weights, budget)
        texts = [
            each.texts[_ranges(begin[chosen], size[chosen])]
            for each, begin, size in zip(self.segments, begins, sizes, strict=True)
        ]
        given = [np.repeat(weights[chosen], size[chosen]) for size in sizes]
        first = self._sorted_until()
        owner, has = self.entries(np.arange(first, len(self)))
        place, found = _among(has, terms[chosen])
        order = np.argsort(place[found], kind="stable")  # as in segments, that sums are the same to the last digit
        texts.append((owner[found][order] + first).astype(np.int32))
        given.append(weights[chosen][place[found][order]])
        sums = np.bincount(np.concatenate(texts), np.concatenate(given), minlength=len(self))
        return sums.astype(np.float64, copy=False)

    def sort(self) -> None:
        """What waits becomes a segment if there is enough of it."""
        first = self._sorted_until()
        while self._entries(first, len(self)) > WAITING:
            starts = np.frombuffer(self._starts, dtype=np.int64)
            end = int(np.searchsorted(starts, starts[first] + SEGMENT, side="right")) - 1
            end = min(max(end, first + 1), len(self))
            del starts  # the array cannot grow while it is looked at
            while self.segments and self._alike(first, end):
                first = self.segments.pop().first
            self.segments.append(self._sorted(first, end))
            first = end

    def _sorted_until(self) -> int:
        return self.segments[-1].end if self.segments else 0

    def _alike(self, first: int, end: int) -> bool:
        """Whether the last segment and these texts become one."""
        last, new = len(self.segments[-1].texts), self._entries(first, end)
        return last <= 2 * new and last + new <= SEGMENT

    def _entries(self, first: int, end: int) -> int:
        return self._starts[end] - self._starts[first]

    def _sorted(self, first: int, end: int) -> _Segment:
        owner, terms = self.entries(np.arange(first, end))
        both = terms.astype(np.int64) << 32
        both |= owner
        both.sort()  # of plain numbers, several times as quick as their order
        terms = (both >> 32).astype(np.int32)
        begins = np.flatnonzero(np.concatenate(([True], terms[1:] != terms[:-1])))
        starts = np.concatenate((begins, [len(terms)])).astype(np.int32)
        both &= _NUMBER
        both += first
        return _Segment(first, end, terms[begins], starts, both.astype(np.int32))


def _among(values: Numbers, some: Numbers) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Where values stand among some that are sorted, and whether they do."""
    if not len(some):
        return np.zeros(len(values), dtype=np.intp), np.zeros(len(values), dtype=np.bool_)
    places = np.minimum(np.searchsorted(some, values), len(some) - 1)
    return places, some[places] == values


def _start(segment: _Segment, places: Ints) -> Numbers:
    return segment.starts[np.minimum(places, len(segment.terms))]


def _has(segment: _Segment, places: Ints, terms: Numbers) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = segment.terms[np.minimum(places, len(segment.terms) - 1)] == terms
    return found


def _affordable(often: npt.NDArray[np.int64], weights: Floats, budget: int) -> Ints:
    """Places of the terms that are read, in their order; the one that gives most is always read."""
    chosen: list[int] = []
    for place in np.argsort(-weights, kind="stable").tolist():
        if chosen and often[place] > budget:
            continue
        budget -= int(often[place])
        chosen.append(place)
    return np.array(sorted(chosen), dtype=np.intp)


def _ranges(begin: Whole, size: Whole) -> npt.NDArray[np.int64]:
    """The numbers from each beginning on, as many as each size says, one behind the other."""
    ends = np.cumsum(size, dtype=np.int64)
    found: npt.NDArray[np.int64] = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(begin - ends + size, size)
    return found
