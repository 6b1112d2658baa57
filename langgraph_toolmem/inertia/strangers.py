"""Whether a request is one of those that the record is about: what a stranger asks is not answered from habit.

Per tool the record keeps how unlike the requests were, before which a prediction of it was right, to those before that
had led to the same. A request that is more unlike than nearly all of those is a stranger's, and the model is asked: a
one-sided conformal test (Vovk et al. 2005, Algorithmic Learning in a Random World, ch. 2). Where all requests are
worded alike one new word is enough; where people write as they like, much is let pass.

Compared is the wording without the values that become arguments. A word that negates, asks or makes conditions, in one
of some languages, and that none of the requests before had, makes any request a stranger's.
"""

from __future__ import annotations

import json
import re
from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final

from langgraph_toolmem.base.shapes import Shape, each, items, number, row
from langgraph_toolmem.graph.cases import CaseIndex, Neighbour
from langgraph_toolmem.graph.evidence import EvidenceGraph, Handler, Table
from langgraph_toolmem.graph.operations import Operation
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.inertia.candidates import Candidate
from langgraph_toolmem.runs.values import canon

LEVEL: Final = 0.1
"""Share of the known requests that may be taken for a stranger's."""
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
_NAME: Final = re.compile(r"(?<=[\w,;:] )[^\W\d_a-z]\w+")
_WORD: Final = re.compile(r"\w+(?:['-]\w+)*|\?")


@dataclass(slots=True)
class Likened(Operation):
    """A prediction of a tool was right in a model turn, before a request that was so unlike those before (0 to 1)."""

    kind = "likened"
    turn: int
    tool: str
    strangeness: float


class Likeness(Table):
    """How unlike to the ones before the requests were, before which predictions were right.

    Attributes:
        spread: tool ("" for all) -> [model turn, strangeness] of the latest KEPT.
    """

    name = "likeness"
    shapes: ClassVar[Mapping[str, Shape]] = {"spread": each(items(row(number, number)))}

    def __init__(self, graph: EvidenceGraph) -> None:
        super().__init__(graph)
        self.spread: dict[str, list[list[float]]] = {}

    def handlers(self) -> Mapping[type[Operation], Handler]:
        """See `Table`."""
        return {Likened: self._add}

    def _add(self, turn: int, tool: str, strangeness: float) -> None:
        for key in (tool, ""):
            seen = self.spread.setdefault(key, [])
            insort(seen, [turn, round(strangeness, 4)])
            del seen[:-KEPT]

    def share(self, tool: str, strangeness: float | None) -> float:
        """The conformal p-value: the share of the tool's known requests that are at least as strange; 1 for a request
        that is not strange at all, 0 for one that shares no word with them, or turns them round: of those none vouches
        for another."""
        if strangeness is None or strangeness >= 1:
            return 0.0
        if strangeness == 0:
            return 1.0
        seen: Sequence[list[float]] = self.spread.get(tool, ())
        if len(seen) < ENOUGH:
            seen = self.spread.get("", ())
        as_strange = round(strangeness, 4)
        alike = [other for _, other in seen if other >= as_strange]
        return len(alike) / (len(seen) + 1) if len(seen) >= ENOUGH else 0.0

    def refusal(self, tool: str, strangeness: float | None, *, changes: bool = False, looked: bool = True) -> str:
        """Why a request is taken for a stranger's; "" if it is one of those that the record is about.

        Args:
            tool: the tool foreseen.
            strangeness: see `Strangers.of`.
            changes: whether the tool may change something.
            looked: whether the latest output looks as it did before one of them (`Strangers.looked`).
        """
        if strangeness is None:
            return f"no request before that went on with {tool} went the same way so far"
        if self.share(tool, strangeness) <= (WRITE_LEVEL if changes else LEVEL):
            return f"the request is worded unlike those that went on with {tool} before ({strangeness:.2f})"
        return "" if looked or not changes else f"the latest answer looks unlike those that went on with {tool} before"


class Strangers:
    """How unlike a request is to the nearest past requests that went on with this or that.

    Args:
        state: the run before the model's turn.
        neighbours: past requests that went the same way so far.
        cases: which calls they were followed by.
    """

    def __init__(self, state: RunState, neighbours: Sequence[Neighbour], cases: CaseIndex) -> None:
        self._text = state.user.raw
        self._called = [step.args for step in state.since_user]
        self._near = [(n, _wording_of(n.text, cases.arguments(n.case_id))) for n in neighbours] if self._text else []

    def of(self, candidate: Candidate, *, changes: bool = False) -> float | None:
        """0 (the same wording) to 1; None if no past request went on with the candidate's tool; 0 without a request.

        It is the Dice distance to the most alike of those, without the values of calls; 1 if a word of TURNING is in
        none of them, or if by then each of them left over fewer names and numbers that no call had taken up: "with Ann
        and Bob" is not "with Ann".
        """
        if not self._text:
            return 0.0
        following = candidate.following
        others = [words for near, words in self._near if near.tool == following]
        if not others:
            return None
        calls = (*self._called, *candidate.calls)
        own = wording(self._text, calls)
        turning = own & TURNING
        if turning and not any(turning <= other for other in others):
            return 1.0
        left = left_over(self._text, calls, numbers=changes)
        before = (_left_over_of(near.text, near.made, changes) for near, _ in self._near if near.tool == following)
        if left and not any(len(left) <= len(other) for other in before):
            return 1.0
        return min(len(own ^ other) / max(1, len(own) + len(other)) for other in others)

    def looked(self, candidate: Candidate) -> bool:
        """Whether before the candidate's tool the latest output has looked as it does now, after one of them."""
        return not self._text or any(near.looked for near, _ in self._near if near.tool == candidate.following)


def wording(text: str, calls: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """The words of a request that are no values: none of calls, no names within a sentence, nothing with a digit.

    A question mark is no part of a value, and a word of TURNING no name however it is written ("do NOT pay").
    """
    values = {word for args in calls for value in args.values() for word in _words(canon(value))}
    return _words(text) - (values - {"?"}) - (_names(text) - TURNING)


def left_over(text: str, calls: Iterable[Mapping[str, Any]], *, numbers: bool) -> frozenset[str]:
    """The names of a request that no call has taken up; with `numbers` whatever has a digit, too."""
    found = _names(text) | (_numbers(text) if numbers else frozenset())
    return found - {word for args in calls for value in args.values() for word in _WORD.findall(canon(value).lower())}


@lru_cache(maxsize=4096)
def _left_over_of(text: str, calls: tuple[str, ...], numbers: bool) -> frozenset[str]:
    return left_over(text, map(json.loads, calls), numbers=numbers)


@lru_cache(maxsize=4096)
def _wording_of(text: str, calls: tuple[str, ...]) -> frozenset[str]:
    return wording(text, map(json.loads, calls))


@lru_cache(maxsize=8192)
def _words(text: str) -> frozenset[str]:
    found = _WORD.findall(text.lower().replace("’", "'"))
    return frozenset(word for word in found if not any(map(str.isdigit, word)))


@lru_cache(maxsize=4096)
def _names(text: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _NAME.findall(text))


@lru_cache(maxsize=4096)
def _numbers(text: str) -> frozenset[str]:
    return frozenset(word for word in _WORD.findall(text.lower()) if any(map(str.isdigit, word)))
