"""How like the wordings of an atom are to a question, by their words.

A wording is a bag of terms in three fields: word stems of a sub-goal, of a state and of what the tool does, and pairs
of neighbouring ones. The fields are kept apart: a goal is compared with goals and with descriptions, a state with
states. A term weighs

    w(t) = factor of the field · looks(t) · ln(1 + N / n(t)),

N wordings in all, n(t) of them with the term; how rare terms are is learned from a sample. Compared is the cosine.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from langgraph_toolmem.atoms.atoms import Atom, wordings_of
from langgraph_toolmem.text.requests import forget_texts, term_weight, terms_of

STATE: Final = 0.8
"""Factor of the state's words, where those of the goal have 1."""
ABOUT: Final = 0.5
"""Factor of the words of the tool's description."""
UNKNOWN: Final = 0.1
"""Share that words which no wording has count in the length of a question: most are names."""
WORDINGS: Final = 32
"""Wordings of an atom that are compared, the most usual ones."""
MAX_LENGTHS: Final = 100_000
"""Texts whose length is remembered."""
_GOAL, _STATE, _ABOUT = 0, 1, 2
_FACTORS: Final = (1.0, STATE, ABOUT)

Text = tuple[int, str]
"""A field and a text in it."""


class Rarity:
    """The squared weight of each term, by how many wordings have it. Safe to use from several threads.

    Args:
        atoms: a sample.
    """

    def __init__(self, atoms: Iterable[Atom] = ()) -> None:
        self.rows, seen = 0, tuple(Counter[str]() for _ in _FACTORS)
        for atom in atoms:
            for fields in _rows(atom):
                self.rows += 1
                for field, text in fields:
                    seen[field].update(_terms(field, text))
        self.of = tuple(_Squares(*each, self.rows) for each in zip(_FACTORS, seen, strict=True))
        self._lengths: dict[Text, float] = {}

    def length(self, field: int, text: str) -> float:
        """The squared length of a text in a field."""
        found = self._lengths.get((field, text))
        if found is None:
            if len(self._lengths) > MAX_LENGTHS:
                self._lengths = {}
                for each in self.of:
                    each.clear()
            found = self._lengths[field, text] = sum(map(self.of[field].__getitem__, _terms(field, text)))
        return found


class _Squares(dict[str, float]):
    """The squared weights of the terms of one field, made when they are asked for."""

    def __init__(self, factor: float, seen: Counter[str], rows: int) -> None:
        super().__init__()
        self.seen, self._factor, self._rows = seen, factor, rows

    def __missing__(self, term: str) -> float:
        rarity = math.log1p(self._rows / max(1, self.seen[term]))
        found = self[term] = (self._factor * term_weight(term) * rarity) ** 2
        return found

    def asked(self, terms: Iterable[str]) -> float:
        """The squared length of a part of a question: what no wording has counts little."""
        unknown = UNKNOWN * math.log(1 + self._rows) ** 2 * self._factor**2
        return sum(self[term] if term in self.seen else unknown * term_weight(term) ** 2 for term in terms)


class Question:
    """A state and goals, compared with atoms.

    Args:
        state: where the run stands.
        goals: what may be next.
        rarity: of terms.
    """

    def __init__(self, state: str, goals: Sequence[str], rarity: Rarity) -> None:
        self._rarity = rarity
        asked = [[_terms(field, goal) for goal in goals] for field in (_GOAL, _ABOUT)]
        self._asked = {_GOAL: asked[0], _STATE: [_terms(_STATE, state)] * len(goals), _ABOUT: asked[1]}
        parts = [map(rarity.of[field].asked, terms) for field, terms in self._asked.items()]
        self._lengths = [math.sqrt(sum(each)) or 1.0 for each in zip(*parts, strict=True)]
        self._shared: dict[Text, list[float]] = {}

    def cosine(self, atom: Atom) -> float:
        """Of the best of its wordings with the best of the goals."""
        best = 0.0
        for goal, state, about in _rows(atom):
            length = sum(self._rarity.length(*text) for text in (goal, state, about))
            shared = zip(self._share(*goal), self._share(*state), self._share(*about), self._lengths, strict=True)
            highest = max((sum(parts) / own for *parts, own in shared), default=0.0)
            if highest:
                best = max(best, highest / math.sqrt(length))
        return min(best, 1.0)

    def _share(self, field: int, text: str) -> list[float]:
        """What a text has in common with each of the goals, or with the state."""
        found = self._shared.get((field, text))
        if found is None:
            terms, square = _terms(field, text), self._rarity.of[field].__getitem__
            found = self._shared[field, text] = [sum(map(square, terms & each)) for each in self._asked[field]]
        return found


def _rows(atom: Atom) -> Iterator[tuple[Text, Text, Text]]:
    """Goal, state and description of each of its wordings."""
    about = atom.about.partition(". ")[0]
    for each in wordings_of(atom)[:WORDINGS]:
        yield (_GOAL, each.goal), (_STATE, each.state), (_ABOUT, about)


@lru_cache(maxsize=16_384)
def _terms(field: int, text: str) -> frozenset[str]:
    found = terms_of(text)
    return frozenset(found if field != _ABOUT else (term for term in found if " " not in term))


def forget_words() -> None:
    """Nothing of a text is remembered any more."""
    _terms.cache_clear()
    term_weight.cache_clear()
    forget_texts()
