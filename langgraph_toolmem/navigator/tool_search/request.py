"""A request as it is searched: whole, by sentences and by clauses, each with its stems."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from langgraph_toolmem.navigator.tool_search.index import Floats
from langgraph_toolmem.text.requests import MAX_REQUEST_CHARS, is_small_talk, split_clauses
from langgraph_toolmem.text.tools import USUAL, stems


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it is searched.

    Attributes:
        texts: the request, its sentences, its clauses; each with words that tell something.
        sentences: how many of them are sentences.
        words: the stems of each.
        clauses: for each of them the numbers of the clauses that it consists of, counted from 0.
    """

    texts: tuple[str, ...]
    sentences: int
    words: tuple[tuple[str, ...], ...]
    clauses: tuple[tuple[int, ...], ...] = ()

    @property
    def embedded(self) -> tuple[str, ...]:
        """Return the clauses, for an embedder. Whole and sentences are composed of their vectors, see `composed`."""
        return self.texts[1 + self.sentences :]

    def composed(self, vectors: Sequence[Sequence[float]]) -> Floats:
        """(P, D) of length 1: the vectors of the clauses, before them those of whole and sentences.

        A text's vector is the sum of its clauses', each weighed by its number of telling words. Embedding each text
        by itself costs three times as much and finds no more.
        """
        own = np.asarray(vectors, dtype=np.float32)
        lengths = np.array([len(words) for words in self.words[1 + self.sentences :]], dtype=np.float32)
        own_scaled = own * lengths[:, np.newaxis]
        longer = [own_scaled[list(parts)].sum(axis=0) for parts in self.clauses[: 1 + self.sentences]]
        found = np.vstack([*longer, own])
        scaled: Floats = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9)
        return scaled


def read(query: str) -> Asked:
    """A request as it is searched: whole, its sentences, its clauses; without pieces that ask for nothing."""
    pieces = split_clauses(query)
    whole = query[:MAX_REQUEST_CHARS], stems(query[:MAX_REQUEST_CHARS])
    if not whole[1] or is_small_talk(query, USUAL):
        return Asked((), 0, ())
    sentences = _telling(pieces.sentences) or [whole]
    parts = _telling(pieces.clauses) or sentences
    everything = [whole, *sentences, *parts]
    places = {text: place for place, (text, _) in enumerate(parts)}
    all_parts = tuple(range(len(parts)))
    # A sentence beyond the last clause that is looked at stands for the whole.
    inside = [tuple(places[text] for text in split_clauses(s).clauses if text in places) for s, _ in sentences]
    return Asked(
        tuple(text for text, _ in everything),
        len(sentences),
        tuple(tuple(found) for _, found in everything),
        (all_parts, *(each or all_parts for each in inside), *((place,) for place in all_parts)),
    )


def _telling(texts: Iterable[str]) -> list[tuple[str, list[str]]]:
    return [(text, found) for text in texts if (found := stems(text)) and not is_small_talk(text, USUAL)]
