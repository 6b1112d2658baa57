"""The terms of the entries by number, how many entries have each, and what it weighs by that alone."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.entries import weights
from langgraph_toolmem.entries.weights import Floats, Ids
from langgraph_toolmem.words import wording


class Vocabulary:
    """Terms as numbers. A term that no entry has any more is forgotten; `recycle` makes its number free."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._terms: list[str] = []
        self._seen = array("i")
        self._looks = array("d")
        self._paired = array("b")
        self._retired: list[int] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._terms)

    def enter(self, terms: Iterable[str]) -> Ids:
        """The numbers of an entry's terms; each is seen once more."""
        ids = np.fromiter(map(self._number, terms), dtype=np.int32)
        for term in ids:
            self._seen[term] += 1
        return ids

    def leave(self, ids: Ids) -> None:
        """Each of these is seen once less. A word that nothing has any more does not stay in RAM."""
        for term in ids:
            self._seen[term] -= 1
            if not self._seen[term]:
                del self._numbers[self._terms[term]]
                self._terms[term] = ""
                self._retired.append(int(term))

    def recycle(self) -> None:
        """Numbers of forgotten terms can be given again: nobody has noted anything under them any more."""
        self._free += self._retired
        self._retired.clear()

    def split(self, terms: Iterable[str]) -> tuple[Ids, float]:
        """The numbers of those terms that entries have, and what the others weigh by their looks."""
        known: list[int] = []
        unknown = 0.0
        for term in terms:
            number = self._numbers.get(term)
            if number is None:
                unknown += weights.UNSEEN * _looks(term)
            else:
                known.append(number)
        return np.array(known, dtype=np.int32), unknown

    def base(self, ids: Ids | slice, entries: int) -> Floats:
        """Rarity among so many entries times looks."""
        seen = np.frombuffer(self._seen, dtype=np.int32)[ids].astype(np.float64)
        looks = np.frombuffer(self._looks, dtype=np.float64)[ids]
        found: Floats = weights.rarity(seen, entries) * looks
        return found

    def paired(self) -> npt.NDArray[np.bool_]:
        """By number, whether a term is a pair."""
        return np.frombuffer(self._paired, dtype=np.int8).astype(bool)

    def _number(self, term: str) -> int:
        known = self._numbers.get(term)
        if known is not None:
            return known
        if self._free:
            number = self._free.pop()
        else:
            number = len(self._terms)
            self._terms.append("")
            self._seen.append(0)
            self._looks.append(0.0)
            self._paired.append(0)
        self._numbers[term], self._terms[number] = number, term
        self._looks[number], self._paired[number] = _looks(term), " " in term
        return number


def _looks(term: str) -> float:
    return (wording.PAIR if " " in term else 1.0) * (wording.STOP if wording.is_usual(term) else 1.0)
