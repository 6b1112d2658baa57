"""Terms as numbers: what a term is packs into 64 bits, and those that were entered get numbers counted from 0.

A term is a word, or a pair of neighbouring ones, the edge of the text among them. A word's code says whether it is a
usual one, so that a term alone says what it counts: its `looks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.words import wording
from langgraph_toolmem.words.wording import MAX_TERMS, PAIR, STOP

NONE: Final = 0
EDGE: Final = 2
"""In the place of a word's code: none (a term that is no pair), and the edge of the text."""
BITS: Final = 30
MERGED: Final = 20_000
"""New terms kept apart, so that a few cost little in a large index."""
LOOKS: Final = np.array([1.0, STOP, PAIR, PAIR * STOP])
"""What a term counts by its `looks`."""
_ONES: Final = (1 << BITS) - 1

Keys = npt.NDArray[np.int64]
Ints = npt.NDArray[np.intp]
Numbers = npt.NDArray[np.int32]


class Words:
    """Codes of words; odd ones are usual. Not safe for threads by itself."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def enter(self, text: str) -> list[int]:
        """The words of a text, new ones among them."""
        codes, found = self._codes, []
        for word in wording.tokens(text):
            code = codes.get(word)
            if code is None:
                code = codes[word] = self._code(word, 0)
            found.append(code)
        return found

    def read(self, text: str) -> list[int]:
        """The words of a text; those that were never entered have codes that only this text has."""
        fresh: dict[str, int] = {}
        found = []
        for word in wording.tokens(text):
            code = self._codes.get(word) or fresh.get(word)
            if code is None:
                code = fresh[word] = self._code(word, len(fresh))
            found.append(code)
        return found

    def _code(self, word: str, further: int) -> int:
        return EDGE + 2 + 2 * (len(self._codes) + further) + wording.is_usual(word)


def terms_of(words: Sequence[int], *, pairs: bool) -> list[int]:
    """The different terms of a text, given the codes of its words; at most MAX_TERMS."""
    found = [code << BITS for code in words]
    if found and pairs:
        found += [one << BITS | two for one, two in zip((EDGE, *words), (*words, EDGE), strict=True)]
    return list(dict.fromkeys(found))[:MAX_TERMS]


def looks(terms: Keys) -> npt.NDArray[np.uint8]:
    """For each term its place in LOOKS; a pair is usual if both words are, which the edge never is."""
    second = terms & _ONES
    pair = second != NONE
    usual = (terms >> BITS & 1) & np.where(pair, second & 1, 1)
    found: npt.NDArray[np.uint8] = (2 * pair + usual).astype(np.uint8)
    return found


class TermNumbers:
    """Numbers of terms. Not safe for threads by itself."""

    def __init__(self) -> None:
        none = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
        self._sorted: list[tuple[Keys, Numbers]] = [none, none]  # the first is large and rarely changed

    def __len__(self) -> int:
        return sum(len(keys) for keys, _ in self._sorted)

    def find(self, terms: Keys) -> Numbers:
        """Their numbers; −1 for those that were never entered."""
        found = np.full(len(terms), -1, dtype=np.int32)
        for keys, numbers in self._sorted:
            if len(keys):
                places = np.minimum(np.searchsorted(keys, terms), len(keys) - 1)
                there = keys[places] == terms
                found[there] = numbers[places[there]]
        return found

    def enter(self, terms: Keys) -> tuple[Numbers, Keys]:
        """Their numbers, and those terms that are new in the order of their numbers."""
        different, first, where = np.unique(terms, return_index=True, return_inverse=True)
        numbers = self.find(different)
        missing = np.flatnonzero(numbers < 0)
        came = missing[np.argsort(first[missing])]
        numbers[came] = np.arange(len(self), len(self) + len(came), dtype=np.int32)
        if len(missing):
            large, small = self._sorted
            small = _merged(small, (different[missing], numbers[missing]))
            if len(small[0]) > max(MERGED, len(large[0]) // 10):
                large, small = _merged(large, small), (small[0][:0], small[1][:0])
            self._sorted = [large, small]
        return numbers[where], different[came]


def _merged(one: tuple[Keys, Numbers], other: tuple[Keys, Numbers]) -> tuple[Keys, Numbers]:
    places = np.searchsorted(one[0], other[0])
    return np.insert(one[0], places, other[0]), np.insert(one[1], places, other[1])
