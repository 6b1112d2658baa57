"""Words to tools: what each piece of a request finds, as arrays over all tools.

One list per word holds the tools that have it, with five numbers each: how often it is in the tool's text (name,
description, parameters, toolkit, category), whether it is in the name, in the description, in the name of the
toolkit, and how often it is in the descriptions of the parameters. Pairs of neighbouring words have lists of their
own. Nothing depends on the number of tools before a question is asked, so a tool is added by appending.

BM25: S. Robertson, H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, eq. 3.15.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.text.tools import Fields

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

K1: Final = 1.2
B: Final = 0.75
NAME, DESCRIPTION, TOOLKIT = range(3)
"""Fields of which is asked how much of them a request has."""
_WIDTH: Final = 5  # text, name, description, toolkit, described
_TEXT, _FLAGS, _DESCRIBED = 0, 1, 4


class IndexAnswer(NamedTuple):
    """The answer to a request; N tools, K toolkits, P pieces.

    Attributes:
        texts: (P, N) BM25 of each piece and each tool's text.
        described: (N,) BM25 of the whole request and the descriptions of the parameters.
        kits: (K,) BM25 of the whole request and the texts of a toolkit's tools taken together.
        covered: (3, N) which share of the field's words, weighed by rarity, the request has; see NAME and so on.
        pairs: (N,) how many pairs of neighbouring words the request and the tool share, weighed by rarity.
        most: (P,) BM25 of each piece and a text that repeats it for ever; words that no tool has count as the rarest.
    """

    texts: Floats
    described: Floats
    kits: Floats
    covered: Floats
    pairs: Floats
    most: Floats


class _List:
    __slots__ = ("numbers", "tools")

    def __init__(self) -> None:
        self.tools = array("i")
        self.numbers = array("f")


class WordIndex:
    """The words of the tools. A tool is a number that is not used again.

    A removed one stays in the lists, counts for nothing, and finds nothing; the owner makes a new index when too many
    are such. Not safe for threads: the owner holds a lock.
    """

    def __init__(self) -> None:
        self.kit = array("i")
        self._lists: dict[str, _List] = {}
        self._numbers: dict[str, int] = {}  # word -> place in _uses
        self._uses = array("i")  # tools that have a word in their text
        self._pairs: dict[tuple[str, str], array[int]] = {}
        self._alive = array("f")  # 1, or 0 for a tool that was removed
        self._there = 0
        self._own: list[tuple[str, ...]] = []  # the different words of each tool's text
        self._lengths = array("f")
        self._described = array("f")
        self._words = [array("i") for _ in range(3)]  # per field, the different words of all tools in a row
        self._starts = [array("i") for _ in range(3)]
        self._kits = 0
        self._weights: Floats | None = None  # (3, N) Σ idf of each field's words

    def __len__(self) -> int:
        return len(self.kit)

    def add(self, fields: Fields, kit: int) -> int:
        """One more tool, of a toolkit with that number; returns the tool's own."""
        place = len(self.kit)
        text = Counter((*fields.name, *fields.description, *fields.parameters, *fields.toolkit, *fields.category))
        described = Counter(fields.described)
        flags = [frozenset(part) for part in (fields.name, fields.description, fields.toolkit)]
        for word in text.keys() | described.keys():
            found = self._lists.get(word)
            if found is None:
                found = self._lists[word] = _List()
                self._numbers[word] = len(self._uses)
                self._uses.append(0)
            found.tools.append(place)
            found.numbers.extend((text[word], *(float(word in flag) for flag in flags), described[word]))
            self._uses[self._numbers[word]] += word in text
        for pair in {pair for part in (fields.name, fields.description, fields.toolkit) for pair in pairwise(part)}:
            self._pairs.setdefault(pair, array("i")).append(place)
        for flag, row, starts in zip(flags, self._words, self._starts, strict=True):
            starts.append(len(row))
            row.extend(self._numbers[word] for word in flag)
        self.kit.append(kit)
        self._kits = max(self._kits, kit + 1)
        self._lengths.append(text.total())
        self._described.append(described.total())
        self._own.append(tuple(text))
        self._alive.append(1.0)
        self._there += 1
        self._weights = None
        return place

    def remove(self, place: int) -> None:
        """The tool of that number is none any more."""
        if not self._alive[place]:
            return
        for word in self._own[place]:
            self._uses[self._numbers[word]] -= 1
        self._own[place] = ()
        self._alive[place] = self._lengths[place] = self._described[place] = 0.0
        self._there -= 1
        self._weights = None

    def ask(self, pieces: Sequence[Sequence[str]]) -> IndexAnswer:
        """Return what the pieces of a request find; each is its stems, and the first is the request as a whole."""
        tools = len(self)
        kit = np.frombuffer(self.kit, dtype=np.int32)
        counts = [Counter(piece) for piece in pieces]
        answer = IndexAnswer(
            texts=np.zeros((len(pieces), tools), dtype=np.float32),
            described=np.zeros(tools, dtype=np.float32),
            kits=np.zeros(self._kits, dtype=np.float32),
            covered=np.zeros((3, tools), dtype=np.float32),
            pairs=np.zeros(tools, dtype=np.float32),
            most=np.array([self._most(count) for count in counts], dtype=np.float32),
        )
        if not self._there:
            return answer
        lengths, described = (np.frombuffer(part, dtype=np.float32) for part in (self._lengths, self._described))
        in_kits = np.bincount(kit, weights=lengths, minlength=self._kits).astype(np.float32)
        rest, rest_described = _rest(lengths, self._there), _rest(described, self._there)
        rest_kits = _rest(in_kits, int(np.count_nonzero(in_kits)))
        alive = np.frombuffer(self._alive, dtype=np.float32)
        gone = self._there < tools
        for word in dict.fromkeys(word for piece in pieces for word in piece):
            listed = self._lists.get(word)
            if listed is None:
                continue
            at = np.frombuffer(listed.tools, dtype=np.int32)
            numbers = np.frombuffer(listed.numbers, dtype=np.float32).reshape(-1, _WIDTH)
            if gone:
                numbers = numbers * alive[at, np.newaxis]
            idf = self._idf(self._uses[self._numbers[word]])
            often = numbers[:, _TEXT]
            part = idf * (K1 + 1) * often / (often + rest[at])
            for row, count in enumerate(counts):
                if times := count[word]:
                    answer.texts[row, at] += math.sqrt(times) * part
            whole = math.sqrt(counts[0][word])
            if not whole:
                continue
            answer.covered[:, at] += idf * numbers[:, _FLAGS:_DESCRIBED].T
            often = numbers[:, _DESCRIBED]
            answer.described[at] += idf * (K1 + 1) * often / (often + rest_described[at])
            often = np.bincount(kit[at], weights=numbers[:, _TEXT], minlength=self._kits).astype(np.float32)
            answer.kits[:] += whole * idf * (K1 + 1) * often / (often + rest_kits)
        answer.covered[:] /= self._field_weights()
        for pair in set(pairwise(pieces[0])) if pieces else ():
            where = self._pairs.get(pair)
            if where is not None:
                at = np.frombuffer(where, dtype=np.int32)
                with_it = float(alive[at].sum())
                answer.pairs[at] += alive[at] * math.log(1 + self._there / max(with_it, 1.0))
        return answer

    def _most(self, piece: Counter[str]) -> float:
        uses = ((self._numbers.get(word), times) for word, times in piece.items())
        idfs = (self._idf(0 if number is None else self._uses[number]) * math.sqrt(times) for number, times in uses)
        return (K1 + 1) * sum(idfs)

    def _idf(self, uses: int) -> float:
        return math.log(1 + (self._there - uses + 0.5) / (uses + 0.5))

    def _field_weights(self) -> Floats:
        if self._weights is None:
            uses = np.frombuffer(self._uses, dtype=np.int32).astype(np.float64)
            idf = np.log(1 + (self._there - uses + 0.5) / (uses + 0.5))
            weights = np.empty((3, len(self)), dtype=np.float32)
            for row, (words, starts) in enumerate(zip(self._words, self._starts, strict=True)):
                # One cumulative sum instead of reduceat, which gives empty rows the value of the next one.
                total = np.concatenate(([0.0], np.cumsum(idf[np.frombuffer(words, dtype=np.int32)])))
                bounds = np.append(np.frombuffer(starts, dtype=np.int32), len(words))
                weights[row] = np.diff(total[bounds])
            self._weights = np.maximum(weights, 1e-6)
        return self._weights


def _rest(lengths: Floats, there: int) -> Floats:
    mean = float(lengths.sum()) / max(there, 1) or 1.0
    found: Floats = (K1 * (1 - B + B * lengths / mean)).astype(np.float32)
    return found
