"""The test of novelty: is a request similar enough to past ones to act on them?

Per tool the record keeps how unlike the requests were, before which a prediction of it was right, to those before that
had led to the same. A request that is more unlike than nearly all of those is unfamiliar, and the model is asked: a
one-sided conformal test (Vovk et al. 2005, Algorithmic Learning in a Random World, ch. 2). Where all requests are
worded alike one new word is enough; where people write as they like, much is let pass.

The test compares the wording without the values that become arguments: what the user said, and the words that this
answers ("Yes please" alone says nothing). Before a tool that changes something both must be familiar from one past
request. A word that negates, asks or makes conditions, in one of some languages, and that none of the requests before
had, makes any request unfamiliar. In other languages such a word is a new one like any other.
"""

from __future__ import annotations

import json
import re
import unicodedata
from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

from langgraph_toolmem.graph.cases import CaseIndex, Neighbour
from langgraph_toolmem.graph.events import Event
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.graph.tool_graph import Handler, Table, ToolGraph
from langgraph_toolmem.inertia.candidates import Candidate
from langgraph_toolmem.inertia.reasons import Reason
from langgraph_toolmem.runs.values import canon
from langgraph_toolmem.text.meaning import VERBS
from langgraph_toolmem.text.words import STOP_WORDS, words

LEVEL: Final = 0.1
"""Significance level of the test: the share of the familiar requests that it may refuse."""
WRITE_LEVEL: Final = 0.2
"""The same where something may be changed."""
KEPT: Final = 64
"""Latest right predictions of a tool whose requests are remembered."""
ENOUGH: Final = 8
"""Right predictions of a tool from which its own requests are asked, not those of all tools."""
_TURNING: Final = """
    not never no don't dont doesn't isn't won't cannot can't without unless except instead if whether should
    would why nicht nie kein keine ohne wenn falls ob soll sollte warum statt pas jamais sans si faut-il
    pourquoi nunca sin debería non mai senza dovrebbe perché não sem deveria niet nooit geen zonder als
"""
TURNING: Final = frozenset((*_TURNING.split(), "?"))
"""Words that negate, ask or make conditions: English, German, French, Spanish, Italian, Portuguese, Dutch."""
_UNSPACED: Final = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Scripts that write no space between words: characters and their pairs stand in for words."""
_MARKS: Final = r"\u0591-\u05c7\u064b-\u065f\u0900-\u0dff"
"""Vowel signs that are no letters to `re`, and the scripts of which they are a part."""
_LETTER: Final = rf"(?:[^\W{_UNSPACED}]|[{_MARKS}])"
_WORD: Final = re.compile(rf"{_LETTER}+(?:['-]{_LETTER}+)*|[{_UNSPACED}]+|\?")
_FOLLOWING: Final = re.compile(r"(?<=[\w,;:] )\w\w+")
_CLAUSE: Final = re.compile(r"[.,;:!?\n]+(?:\s+|$)")
_NO_SPACE: Final = re.compile(f"[{_UNSPACED}]")


class Unlike(NamedTuple):
    """Distances of a request from past ones that led to a tool; each from 0 (the same) to 1.

    Attributes:
        request: Dice distance of its wording to the nearest one's.
        new: share of its words that none of them had.
        asked: distance of the words that it answers to those that the nearest one answered.
    """

    request: float
    new: float = 0.0
    asked: float = 0.0


SAME: Final = Unlike(0.0)


@dataclass(slots=True)
class RequestCompared(Event):
    """A prediction of a tool was right in a model turn, before a request that was so unlike those before (`Unlike`)."""

    kind = "request_compared"
    turn: int
    tool: str
    unlike: list[float]


class NoveltyRecord(Table):
    """Distances of requests whose predictions were right from the requests before them.

    Attributes:
        spread: tool ("" for all) -> [model turn, *Unlike] of the latest KEPT.
    """

    name = "novelty"
    parts = ("spread",)

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.spread: dict[str, list[list[float]]] = {}

    def handlers(self) -> Mapping[type[Event], Handler]:
        """See `Table`."""
        return {RequestCompared: self._add}

    def _add(self, turn: int, tool: str, unlike: Sequence[float]) -> None:
        for key in (tool, ""):
            seen = self.spread.setdefault(key, [])
            insort(seen, [turn, *(round(value, 4) for value in unlike)])
            del seen[:-KEPT]

    def share(self, tool: str, unlike: Unlike | None, measure: str = "request") -> float:
        """The conformal p-value of one measure: the share of the tool's known requests that are at least as unlike.

        It is 1 for a request that is not unlike at all. It is 0 for one that shares no word with the known ones, or
        turns them round: none of these vouches for another.
        """
        value = 1.0 if unlike is None else getattr(unlike, measure)
        if value >= 1 or value == 0:
            return float(value == 0)
        seen: Sequence[list[float]] = self.spread.get(tool, ())
        if len(seen) < ENOUGH:
            seen = self.spread.get("", ())
        at, least = 1 + Unlike._fields.index(measure), round(value, 4)
        return sum(other[at] >= least for other in seen) / (len(seen) + 1) if len(seen) >= ENOUGH else 0.0

    def refusal(self, tool: str, unlike: Unlike | None, *, changes: bool = False, looked: bool = True) -> str:
        """Return why a request is taken for an unfamiliar one; "" if it is one of those that the record is about.

        Args:
            tool: the predicted tool.
            unlike: see `Novelty.of`.
            changes: whether the tool may change something.
            looked: whether the latest output looks as it did before one of them (`Novelty.looked`).
        """
        if unlike is None:
            return Reason("unfamiliar", f"no request before that went on with {tool} went the same way so far")
        level = WRITE_LEVEL if changes else LEVEL
        for measure in Unlike._fields if changes else ("request",):
            if self.share(tool, unlike, measure) <= level:
                what = "request is" if measure in ("request", "new") else "words before the request are"
                value = getattr(unlike, measure)
                return Reason(
                    "unfamiliar", f"the {what} worded unlike those that went on with {tool} before ({value:.2f})"
                )
        if looked or not changes:
            return ""
        return Reason("unfamiliar", f"the latest answer looks unlike those that went on with {tool} before")


class Novelty:
    """Distance of a request from the nearest past requests, by their next tools.

    Args:
        state: the run before the model's turn.
        neighbours: past requests that went the same way so far.
        cases: which calls they were followed by.
    """

    def __init__(self, state: RunState, neighbours: Sequence[Neighbour], cases: CaseIndex) -> None:
        self._cases = cases
        self._asks = bool(state.user_key)
        self._text, self._asked = state.user.raw, state.asked
        self._called = [step.args for step in state.since_user]
        self._near = [(near, cases.arguments(near.case_id)) for near in neighbours]

    def of(self, candidate: Candidate, *, changes: bool = False) -> Unlike | None:
        """Compare the request with those that went on with the candidate's tool.

        A request turns the known ones round, which is a distance of 1, if a word of TURNING is in none of them, or if
        by then each of them left over fewer names and numbers that no call had taken up: "with Ann and Bob" is not
        "with Ann". So it is if something may be changed and a word that all of them had, or that all of them answered,
        is missing from a reply, or a word is there that no reply, or nothing that was answered, ever had.

        Returns:
            None if no past request went on with the tool, as for a message without text; SAME in a run without a
            user's message.
        """
        if not self._asks:
            return SAME
        others = [(near, every) for near, every in self._near if near.tool == candidate.following]
        if not others:
            return None
        calls = (*self._called, *candidate.calls)
        request = _compare(self._text, calls, [(near.text, near.made, every) for near, every in others], changes)
        if not changes:
            return Unlike(1.0 if request.turned else min(request.distances))
        asked = _compare(self._asked, calls, [(near.asked, near.made, every) for near, every in others], changes)
        replies = bool(self._asked) or all(near.asked for near, _ in others)
        other_reply = replies and (request.lacks or self._unseen(request, candidate.tool))
        other_words = asked.lacks or self._unseen(asked, candidate.tool, asked=True)
        own, before = min(zip(request.distances, asked.distances, strict=True), key=sum)
        return Unlike(
            1.0 if request.turned or other_reply else own,
            len(request.new) / max(1, len(request.words)),
            1.0 if asked.turned or other_words else before,
        )

    def _unseen(self, compared: _Compared, tool: str, *, asked: bool = False) -> bool:
        """Return True if a word is in no past text before a call of the tool, the further ones included."""
        return not all(self._cases.known(word, tool, asked=asked) for word in compared.new)

    def familiar(self, candidate: Candidate) -> bool:
        """Return True if a look-up may run ahead of the model: no part of the request turns round just this call.

        A part is what stands between two punctuation marks. It turns a call round if it has a word of TURNING that none
        of the past requests before the tool had, and has a value of the call, or all of the tool's name but its verb:
        "do not capture the payment of O-5". A message without text is unfamiliar.
        """
        if not self._asks or not self._text.strip():
            return not self._asks
        others = [_words(near.text) for near, _ in self._near if near.tool == candidate.following]
        about = {part for args in candidate.calls for value in args.values() for part in _parts(canon(value))}
        name = " ".join(word for word in words(candidate.tool) if word not in VERBS and word not in STOP_WORDS)
        named = frozenset(words(name, stems=True))
        for clause in _CLAUSE.split(self._text):
            parts = frozenset(_parts(clause))
            turning = parts & TURNING
            is_meant = not about.isdisjoint(parts) or (named and named.issubset(words(clause, stems=True)))
            if turning and is_meant and not any(turning <= other for other in others):
                return False
        return True

    def looked(self, candidate: Candidate) -> bool:
        """Return True if before the candidate's tool the latest output has looked as it does now, after one of them."""
        return not self._asks or any(near.looked for near, _ in self._near if near.tool == candidate.following)


class _Compared(NamedTuple):
    """A text beside others: its distances, its words, those that none had, and whether it turns them round.

    `lacks`: a word, name or number that all of them had is missing.
    """

    distances: list[float]
    words: frozenset[str]
    new: frozenset[str]
    turned: bool
    lacks: bool


_Past = tuple[str, tuple[str, ...], tuple[str, ...]]
"""A past text, the arguments of the calls so far and the next ones, and those of all calls, as JSON."""


def _compare(text: str, calls: Sequence[Mapping[str, Any]], past: Sequence[_Past], numbers: bool) -> _Compared:
    own, left = wording(text, calls), left_over(text, calls, numbers=numbers)
    others = [_wording_of(other, every) for other, _, every in past]
    over = [_left_over_of(other, made, numbers) for other, made, _ in past]
    turning = own & TURNING
    turned = bool(turning) and not any(turning <= other for other in others)
    more = bool(left) and not any(len(left) <= len(other) for other in over)
    had = (other | more_of for other, more_of in zip(others, over, strict=True))
    return _Compared(
        [len(own ^ other) / max(1, len(own) + len(other)) for other in others],
        own,
        own.difference(*others),
        turned or more,
        not frozenset.intersection(*had) <= own | left,
    )


def wording(text: str, calls: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the words of a text that are no values: none of calls, no names within a sentence, nothing with a digit.

    A question mark is no part of a value, and a word of TURNING no name however it is written ("do NOT pay"). Where
    nothing is left ("2", a thumb), the parts of the text that are in no call are.
    """
    given = [canon(value) for args in calls for value in args.values()]
    for value in given:
        if _NO_SPACE.search(value):
            text = text.replace(value, " ")
    values = frozenset[str]().union(*map(_words, given)) - {"?"}
    left = _words(text) - values - (_names(text) - TURNING)
    taken = [value.lower() for value in given if value]
    return left or frozenset(part for part in text.lower().split() if not any(value in part for value in taken))


def left_over(text: str, calls: Iterable[Mapping[str, Any]], *, numbers: bool) -> frozenset[str]:
    """Return the names of a text that no call has taken up; with `numbers` whatever has a digit, too."""
    found = _names(text) | (_numbers(text) if numbers else frozenset())
    return found - {word for args in calls for value in args.values() for word in _parts(canon(value))}


@lru_cache(maxsize=4096)
def _left_over_of(text: str, calls: tuple[str, ...], numbers: bool) -> frozenset[str]:
    return left_over(text, map(json.loads, calls), numbers=numbers)


@lru_cache(maxsize=4096)
def _wording_of(text: str, calls: tuple[str, ...]) -> frozenset[str]:
    return wording(text, map(json.loads, calls))


@lru_cache(maxsize=8192)
def _parts(text: str) -> tuple[str, ...]:
    """The words of a text in order, with numbers; what is written without spaces is one."""
    text = unicodedata.normalize("NFKC", text).lower().replace("’", "'").replace("؟", "?")
    return tuple(_WORD.findall(text))


@lru_cache(maxsize=8192)
def _words(text: str) -> frozenset[str]:
    found = set[str]()
    for part in _parts(text):
        if _NO_SPACE.match(part):
            found.update(part, (one + two for one, two in pairwise(part)))
        elif not any(map(str.isdigit, part)):
            found.add(part)
    return frozenset(found)


@lru_cache(maxsize=4096)
def _names(text: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _FOLLOWING.findall(text) if word[0].isupper())


@lru_cache(maxsize=4096)
def _numbers(text: str) -> frozenset[str]:
    return frozenset(part for part in _parts(text) if any(map(str.isdigit, part)))
