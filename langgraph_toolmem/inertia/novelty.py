"""Requests unlike those of the record.

Per tool the record keeps, of each request before which a prediction of the tool was right, the share of words that the
most similar requests before it that led to the tool did not have. A request with a larger share of new words than
nearly all of those is unfamiliar, and the model is asked: a one-sided conformal test (Vovk et al. 2005, Algorithmic
Learning in a Random World, ch. 2). Where all requests are worded alike one new word is enough; where people write as
they like, most is let pass.

The test compares the wording, without the values that become arguments. It does not see that one new word turns the
request round: "don't". So the model is asked where a word stood only in requests without the call, more often than by
chance (at the same level, which the words of the request share), and where a new word negates, withdraws or postpones
(`text.denial`).

A call that changes something asks for more: no word of the request is new, nor of the words that the request answers
("Yes please" alone says nothing); no word is missing that all those requests had; and no more names and numbers are
left over than before: "with Ann and Bob" is not "with Ann".
"""

from __future__ import annotations

import json
import re
from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.graph.cases import CaseIndex, Neighbour
from langgraph_toolmem.graph.events import Event
from langgraph_toolmem.graph.state import WORDS, RunState
from langgraph_toolmem.graph.tool_graph import Handler, Table, ToolGraph
from langgraph_toolmem.inertia.candidates import Candidate
from langgraph_toolmem.inertia.decision import Reason
from langgraph_toolmem.runs.values import canon
from langgraph_toolmem.text.denial import DENYING
from langgraph_toolmem.text.requests import left_over, names_within
from langgraph_toolmem.text.values import MAX_CHARS, read_text
from langgraph_toolmem.text.words import words

LEVEL: Final = 0.05
"""Significance level of the test: the share of the familiar requests that it may refuse."""
KEPT: Final = 64
"""Latest right predictions of a tool whose requests are remembered."""
ENOUGH: Final = 8
"""Right predictions before the test says anything. The requests of all tools count like as many of the tool's own."""
MOST_WITHOUT: Final = 0.5
"""Share of the most similar requests that did without a look-up, from which a word says nothing. Where a model asks
back first, the request that it answers has the words and not the look-up. Without it retail reads fell from 10.5 to 9.6
per 100 turns, with it to 9.9."""
ALIKE: Final = 16
"""Most similar past requests that led to a tool: what a request is compared with."""

_QUESTION: Final = re.compile("[?؟？]")


@dataclass(slots=True)
class RequestCompared(Event):
    """A prediction of a tool was right in a model turn, before a request with this share of new words."""

    kind = "request_compared"
    turn: int
    tool: str
    new: float


class NoveltyRecord(Table):
    """Shares of new words in requests whose predictions were right.

    Attributes:
        spread: tool ("" for all) -> [model turn, share] of the latest KEPT.
    """

    name = "novelty"
    parts = ("spread",)

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.spread: dict[str, list[list[float]]] = {}

    def handlers(self) -> Mapping[type[Event], Handler]:
        """See `Table`."""
        return {RequestCompared: self._add}

    def _add(self, turn: int, tool: str, new: float) -> None:
        for key in (tool, ""):
            seen = self.spread.setdefault(key, [])
            insort(seen, [turn, round(new, 4)])
            del seen[:-KEPT]

    def share(self, tool: str, new: float | None) -> float:
        """Return the conformal p-value: the share of the tool's known requests with at least this share of new words.

        It is 1 without new words, and 0 where all words are new.
        """
        if new is None or new >= 1:
            return 0.0
        if new == 0:
            return 1.0
        new = round(new, 4)
        own, every = (self.spread.get(key, ()) for key in (tool, ""))
        of_all, of_own = (sum(other >= new for _, other in seen) for seen in (every, own))
        if len(every) < ENOUGH:
            return 0.0
        return (of_own + ENOUGH * of_all / (len(every) + 1)) / (len(own) + ENOUGH)

    def refusal(self, tool: str, new: float | None) -> str:
        """Return why a request is unfamiliar; "" if it is one of those that the record is about."""
        if new is None:
            return Reason("unfamiliar", f"no similar request before led to {tool}")
        if self.share(tool, new) > LEVEL:
            return ""
        text = f"the request is worded unlike those that led to {tool} before ({new:.0%} of its words are new)"
        return Reason("unfamiliar", text)


class Novelty:
    """The wording of a request, next to that of past requests: `neighbours` went the same way so far."""

    def __init__(self, state: RunState, neighbours: Sequence[Neighbour], cases: CaseIndex) -> None:
        self._state, self._cases, self._near = state, cases, neighbours
        self._asks = bool(state.user_key)
        self._text, self._asked = state.user.raw, state.asked
        self._called = [_said(value) for step in state.since_user for value in step.args.values()]
        self._pasts: dict[tuple[str, bool], list[frozenset[str]]] = {}

    def new_words(self, candidate: Candidate) -> float | None:
        """Return the share of words that none of the most similar requests that led to the tool had.

        Returns:
            None if there is no such request; 0 in a run without a user's message.
        """
        if not self._asks:
            return 0.0
        own, past = wording(self._text, (*self._called, *_values(candidate))), self._past(candidate.tool)
        return len(own.difference(*past)) / max(1, len(own)) if past else None

    def _past(self, tool: str, *, asked: bool = False) -> list[frozenset[str]]:
        if (tool, asked) not in self._pasts:
            led = (each for each in self._cases.alike(self._state) if tool == WORDS or self._cases.led_to(each, tool))
            texts = ((self._cases.cases[each][4 if asked else 0], each) for each in islice(led, ALIKE))
            self._pasts[tool, asked] = [_read(text, self._cases.arguments(each))[0] for text, each in texts]
        return self._pasts[tool, asked]

    def against(self, candidate: Candidate) -> str:
        """Return why a word of the request speaks against a look-up; "" if none does.

        A word that past requests with the look-up had never does. Any other does that negates, withdraws or postpones,
        or that is in so many requests without the look-up that this is no chance, given how many of the most similar
        ones did without it.
        """
        if not self._asks:
            return ""
        tool = candidate.tool
        all_words = wording(self._text, (*self._called, *_values(candidate)))
        own = all_words.difference(*self._past(tool))
        level = LEVEL / max(1, len(all_words))  # Bonferroni: without it airline reads fell from 4.2 to 3.2 per 100
        for term in dict.fromkeys(read_text(self._text).words):
            unknown = own & (_words(term) or {term})
            if not unknown:
                continue
            having = self._cases.having(term)
            if any(self._cases.led_to(case_id, tool) for case_id in having):
                continue
            if not unknown.isdisjoint(DENYING):
                return Reason("unfamiliar", f"the request may be to do without {tool}: {term!r} is new before it")
            without = sum(self._cases.went_without(case_id, tool) for case_id in having)
            share = self._share_without(tool) if without else 1.0
            if share < MOST_WITHOUT and share**without <= level:
                return Reason("unfamiliar", f"only requests that did without {tool} had {term!r} before")
        return ""

    def _share_without(self, tool: str) -> float:
        """Return the share of the most similar past requests that were answered without a tool."""
        similar = list(self._cases.alike(self._state))
        without = sum(self._cases.went_without(case_id, tool) for case_id in similar)
        return without / max(1, len(similar))

    def strange(self, candidate: Candidate) -> str:
        """Return why something may not be changed after this request; "" if all of it was there before."""
        if not self._asks:
            return ""
        tool, calls = candidate.tool, (*self._called, *_values(candidate))
        near = [each for each in self._near if each.tool == candidate.following]
        if not near:
            return Reason("unfamiliar", f"no request before that went on with {tool} went the same way so far")
        for asked, text in ((False, self._text), (True, self._asked)):
            own, left = wording(text, calls), left_over(text, calls)
            read = [_read(each.asked if asked else each.text, each.made) for each in near]
            same = frozenset.intersection(*(a | b for a, b in read))
            replies = asked or bool(self._asked) or all(each.asked for each in near)
            new = own.difference(*(past for past, _ in read), *self._past(tool, asked=asked))
            if new or (replies and not same <= own | left) or (left and all(len(left) > len(over) for _, over in read)):
                what = "words before the request are" if asked else "request is"
                return Reason("unfamiliar", f"the {what} worded unlike those that went on with {tool} before")
        return ""


def _values(candidate: Candidate) -> list[str]:
    return [_said(value) for args in candidate.calls for value in args.values()]


def _said(value: Any) -> str:
    """Return the beginning of a value as text: as much as is read of a request."""
    return canon(value)[:MAX_CHARS]


def wording(text: str, values: Iterable[str]) -> frozenset[str]:
    """Return the words of a text that are no values: none of calls, no names within a sentence, nothing with a digit.

    A question mark is a word. Where nothing is left ("2", a thumb), the parts of the text that are in no call are.
    """
    values = [value for value in values if value]
    rest = text
    for value in values:
        if len(value) > 1:
            rest = rest.replace(value, " ")
    left = _words(rest).difference(*map(_words, values), names_within(text)) | set(_QUESTION.findall(text)[:1])
    taken = [value.lower() for value in values]
    return left or frozenset(part for part in text.lower().split() if not any(value in part for value in taken))


@cached(mebibytes=8)
def _read(text: str, calls: tuple[str, ...]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the wording of a past text, and what is left over, given the arguments of its calls as JSON."""
    values = [_said(value) for args in map(json.loads, calls) for value in args.values()]
    return wording(text, values), left_over(text, values)


@cached(mebibytes=4)
def _words(text: str) -> frozenset[str]:
    return frozenset(word for word in words(text) if not any(map(str.isdigit, word)))
