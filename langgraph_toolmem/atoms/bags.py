"""Texts of one field as bags of terms, and what a question has in common with each.

Many rows may have the same text, so a text is kept once with the number of its uses. A term weighs

    w(t) = factor of the field · looks(t) · ln(1 + N / n(t)),

N rows in all, n(t) of them with the term. How usual terms are is counted again by `count`; of terms that came since
the rarity is that of one which no row has.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.atoms.postings import Floats, Numbers, Postings, Whole
from langgraph_toolmem.atoms.term_numbers import LOOKS, TermNumbers, Words, looks, terms_of

MOST_WAITING: Final = 500_000
"""Terms that wait at most to be numbered together: many texts at once cost little each."""
CHUNK: Final = 65_536
"""Texts that are counted or measured at once: the terms of all take much room."""


class Asked(NamedTuple):
    """A question in one field.

    Attributes:
        ids: numbers of its terms that some text has, sorted.
        squares: their squared weights.
        unknown: Σ (w(t) / rarity)² of the terms that no text has.
    """

    ids: Numbers
    squares: Floats
    unknown: float


class Bags:
    """Texts, numbered from 0. One whose uses are 0 keeps its number. Not safe for threads by itself.

    Args:
        words: the words of all fields.
        factor: of the field.
        pairs: pairs of neighbouring words are terms too.
        once: texts are expected to be different: each `add` is a text of its own.
    """

    def __init__(self, words: Words, factor: float = 1.0, *, pairs: bool = True, once: bool = False) -> None:
        self._words, self._pairs, self._once = words, pairs, once
        self._factors = factor * LOOKS
        self._terms = TermNumbers()
        self._looks = array("B")  # by term
        self._postings = Postings()
        self._known: dict[str, int] = {}
        self._used = array("i")
        self._waiting = array("q")  # terms of texts that are not in the postings yet
        self._sizes = array("q")
        self._uses: Numbers = np.empty(0, dtype=np.int32)
        self._rarity: Floats = np.empty(0)
        self._rows = 0
        self._weights: Floats = np.empty(0)  # by term; 0 but while a question is compared

    def __len__(self) -> int:
        return len(self._used)

    def add(self, text: str) -> int:
        """One more use of a text; its number."""
        number = None if self._once else self._known.get(text)
        if number is None:
            number = len(self._used)
            if not self._once:
                self._known[text] = number
            found = terms_of(self._words.enter(text), pairs=self._pairs)
            self._waiting.extend(found)
            self._sizes.append(len(found))
            self._used.append(0)
            if len(self._waiting) > MOST_WAITING:
                self._take_in()
        self._used[number] += 1
        return number

    def drop(self, number: int) -> None:
        """One use less."""
        self._used[number] -= 1

    def count(self, rows: int) -> None:
        """How usual terms are, among so many rows; and sorts them."""
        self._take_in()
        self._postings.sort()
        used = np.frombuffer(self._used, dtype=np.int32)
        uses = np.zeros(len(self._looks))
        for start in range(0, len(self), CHUNK):
            owner, terms = self._postings.entries(np.arange(start, min(start + CHUNK, len(self))))
            uses += np.bincount(terms, used[start : start + CHUNK][owner], minlength=len(uses))
        self._uses = uses.astype(np.int32)
        self._rarity = np.log1p(rows / np.maximum(uses, 1))
        self._rows = rows

    def lengths(self, texts: Whole) -> Floats:
        """Squared lengths of some texts."""
        self._take_in()
        different, where = np.unique(texts, return_inverse=True)
        found = np.zeros(len(different))
        for start in range(0, len(different), CHUNK):
            owner, terms = self._postings.entries(different[start : start + CHUNK])
            part = np.bincount(owner, self._squares(terms))
            found[start : start + len(part)] = part
        return found[where]

    def asked(self, text: str) -> Asked:
        """A question's terms."""
        self._take_in()
        terms = np.array(terms_of(self._words.read(text), pairs=self._pairs), dtype=np.int64)
        numbers = self._terms.find(terms)
        known = numbers >= 0
        counted = known & (numbers < len(self._uses))
        known[counted] = self._uses[numbers[counted]] > 0
        ids = np.sort(numbers[known])
        return Asked(ids, self._squares(ids), float((self._factors[looks(terms[~known])] ** 2).sum()))

    def dots(self, ids: Numbers, squares: Floats, budget: int) -> npt.NDArray[np.float32]:
        """What each text has of some terms, shape (texts,); see `Postings.sums`."""
        self._take_in()
        return self._postings.sums(ids, squares, budget).astype(np.float32)

    def exact(self, texts: Whole, questions: Sequence[tuple[Numbers, Floats]]) -> Floats:
        """What some texts have of each question, shape (questions, texts)."""
        self._take_in()
        if len(self._weights) < len(self._looks):
            self._weights = np.zeros(len(self._looks) + len(self._looks) // 8)
        owner, terms = self._postings.entries(texts)
        found = np.zeros((len(questions), len(texts)))
        for number, (ids, squares) in enumerate(questions):
            self._weights[ids] = squares
            found[number] = np.bincount(owner, self._weights[terms], minlength=len(texts))
            self._weights[ids] = 0.0
        return found

    def _take_in(self) -> None:
        """Texts that wait are entered."""
        if not self._sizes:
            return
        ids, new = self._terms.enter(np.array(self._waiting, dtype=np.int64))
        sizes = np.array(self._sizes, dtype=np.int64)
        self._waiting, self._sizes = array("q"), array("q")
        self._looks.frombytes(looks(new).tobytes())
        self._postings.add(ids, sizes)

    def _squares(self, ids: Numbers) -> Floats:
        rarity = np.full(len(ids), math.log(1 + self._rows))
        counted = ids < len(self._rarity)
        rarity[counted] = self._rarity[ids[counted]]
        kinds = np.frombuffer(self._looks, dtype=np.uint8) if self._looks else np.empty(0, dtype=np.uint8)
        found: Floats = (rarity * self._factors[kinds[ids]]) ** 2
        return found
