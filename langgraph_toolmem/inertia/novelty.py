"""Unfamiliar requests.

For each tool and each request with a right prediction of the tool, the record keeps the share of new words: words that
the most similar earlier requests that led to the tool did not have. A request with a larger share of new words than
nearly all of those is unfamiliar, and the model is asked: a one-sided conformal test (Vovk et al. 2005, Algorithmic
Learning in a Random World, ch. 2). If all requests are worded alike, one new word is enough; if people write freely,
most requests pass.

The test compares the wording, without the values that become arguments. It does not see that one new word, such as
"don't", reverses the request. So the model is asked if a word occurred only in requests without the call, more often
than by chance (at the same level, which the words of the request share), and if a new word negates, withdraws or
postpones (`text.words.DENYING`).

A call that changes something needs more: all words of the request are known, and all words of the question that it
answers ("Yes please" depends on the question); it has every word that all those requests had; and it leaves no more
names and numbers unused than before: "with Ann and Bob" is not "with Ann".
"""

from __future__ import annotations

import json
import re
from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.cases import CaseIndex, Neighbour
from langgraph_toolmem.graph.events import Event
from langgraph_toolmem.graph.state import WORDS, RunState
from langgraph_toolmem.graph.tool_graph import Handler, Table, ToolGraph
from langgraph_toolmem.inertia.decision import Option, Refusal
from langgraph_toolmem.runs.values import canon
from langgraph_toolmem.text.values import MAX_CHARS, read_text
from langgraph_toolmem.text.wording import left_over, names_within
from langgraph_toolmem.text.words import DENYING, words

if TYPE_CHECKING:
    from langgraph_toolmem.inertia.calibrated import Candidate, Situation

LEVEL: Final = 0.05
"""Significance level of the test: share of the familiar requests that it may refuse."""
# With one, look-ups were wrong .31 and .42 times per 100 turns in place of .16 and .21 (8 APIs, airline; see
# `inertia.calibrated`). With 32, those in the airline were right 3.4 times in place of 4.0.
LEAST_WORDINGS: Final = 8
"""Right predictions that the test needs. The requests of all tools together count like as many of the tool's own."""

_QUESTION: Final = re.compile("[?؟？]")


class PastWording(NamedTuple):
    """The words of a past text that are not values, and the names and numbers that its calls did not use."""

    words: frozenset[str]
    left: frozenset[str]


class FamiliarRequest(NamedTuple):
    """A request with a right prediction: the model turn, and the share of words that were new then."""

    turn: int
    new: float


@dataclass(slots=True)
class RequestCompared(Event):
    """A prediction of a tool was right in a model turn, before a request with this share of new words."""

    kind = "request_compared"
    turn: int
    tool: str
    new: float


class Familiar(Table):
    """Leaves a call to the model for an unfamiliar request, given those whose predictions were right.

    Attributes:
        spread: tool ("" for all) -> its latest requests, with their shares of new words.
        most_requests: limit of kept requests of a tool.
    """

    name = "novelty"
    parts: ClassVar = {"spread": shapes.RowsOf(shapes.ListOf(shapes.numbers(2)))}
    most_requests: ClassVar[int] = 64

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.spread: dict[str, list[FamiliarRequest]] = {}

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {RequestCompared: self._add}

    def _add(self, turn: int, tool: str, new: float) -> None:
        for key in (tool, ""):
            familiar = self.spread.setdefault(key, [])
            # Sorted by turn: the same requests are kept for any order of the events.
            insort(familiar, FamiliarRequest(turn, round(new, 4)))
            del familiar[: -self.most_requests]

    def to_state(self) -> dict[str, Any]:
        spread = {}
        for tool, familiar in self.spread.items():
            spread[tool] = [list(request) for request in familiar]
        return {"spread": spread}

    def load(self, state: dict[str, Any]) -> None:
        spread = {}
        for tool, rows in state["spread"].items():
            spread[tool] = [FamiliarRequest(*fields) for fields in rows]
        self.spread = spread

    def share(self, tool: str, new: float | None) -> float:
        """Return the conformal p-value: the share of the tool's known requests with at least this share of new words.

        It is 1 without new words, and 0 if all words are new.
        """
        if new is None or new >= 1:
            return 0.0
        if new == 0:
            return 1.0
        of_tool = self.spread.get(tool, [])
        of_all = self.spread.get("", [])
        # With fewer right predictions the memory knows too few wordings to treat a new word as usual.
        if len(of_all) < LEAST_WORDINGS:
            return 0.0
        new = round(new, 4)  # as it is kept, so that an equal share compares as equal
        by_all = LEAST_WORDINGS * _at_least(of_all, new) / (len(of_all) + 1)
        return (_at_least(of_tool, new) + by_all) / (len(of_tool) + LEAST_WORDINGS)

    def refuse(self, candidate: Option, situation: Situation) -> Refusal | None:
        """Refuse a call for a request with too many new words; before a change, any word that decides."""
        tool, new = candidate.tool, candidate.new_words
        if new is None:
            return Refusal("unfamiliar", f"no similar request before led to {tool}")
        # A test at level .05 refuses about one familiar request in twenty.
        if self.share(tool, new) <= LEVEL:
            text = f"the request is worded unlike those that led to {tool} before ({new:.0%} of its words are new)"
            return Refusal("unfamiliar", text)
        # The test lets one new word pass where people write as they like. Before a change that word may be "never".
        if not candidate.changes:
            return None
        return situation.novelty.unknown_wording(candidate)


class Denial:
    """Leaves a look-up to the model after a new word that negates, withdraws or postpones."""

    def refuse(self, candidate: Option, situation: Situation) -> Refusal | None:
        # Before a change `Familiar` compares every word.
        if candidate.changes:
            return None
        return situation.novelty.denying_word(candidate)


class DecidingWords:
    """Leaves a look-up to the model after a word that only requests without this look-up had."""

    def refuse(self, candidate: Option, situation: Situation) -> Refusal | None:
        # Before a change `Familiar` has compared every word already.
        if candidate.changes:
            return None
        return situation.novelty.deciding_word(candidate)


def _at_least(familiar: Sequence[FamiliarRequest], new: float) -> int:
    """Count the requests with at least this share of new words."""
    return sum(request.new >= new for request in familiar)


class Novelty:
    """The wording of a request, compared with past requests: `neighbours` had the same calls so far."""

    def __init__(self, state: RunState, neighbours: Sequence[Neighbour], cases: CaseIndex) -> None:
        self._state, self._cases, self._near = state, cases, neighbours
        self._asks = bool(state.user_key)
        self._text, self._asked = state.user.raw, state.asked
        self._called: list[str] = []
        for step in state.since_user:
            self._called += _values(step.args)
        self._pasts: dict[tuple[str, bool], list[frozenset[str]]] = {}

    def new_words(self, candidate: Candidate) -> float | None:
        """Return the share of the request's words that all of the most similar requests that led to the tool lack.

        Returns:
            None without such a request; 0 in a run without a user's message.
        """
        # A run without a user's message (a job, a timer) has no wording to compare.
        if not self._asks:
            return 0.0
        past = self._past(candidate.tool)
        if not past:
            return None
        own = wording(self._text, self._values_with(candidate.calls))
        return len(own.difference(*past)) / max(1, len(own))

    def _values_with(self, calls: Iterable[Mapping[str, Any]]) -> list[str]:
        """Return the values of this request's calls so far, and of further ones."""
        values = list(self._called)
        for args in calls:
            values += _values(args)
        return values

    def _past(self, tool: str, *, asked: bool = False) -> list[frozenset[str]]:
        """Return the wording of the most similar requests that led to a tool.

        `asked`: the wording of the requests that they replied to.
        """
        known = self._pasts.get((tool, asked))
        if known is not None:
            return known
        alike = 16  # most similar past requests that led to the tool, which a request is compared with
        wordings: list[frozenset[str]] = []
        for case_id in self._cases.alike(self._state):
            if tool == WORDS or self._cases.led_to(case_id, tool):
                case = self._cases.cases[case_id]
                text = case.asked if asked else case.text
                wordings.append(_read(text, self._cases.arguments(case_id)).words)
                if len(wordings) == alike:
                    break
        self._pasts[tool, asked] = wordings
        return wordings

    def denying_word(self, best: Option) -> Refusal | None:
        """Refuse a look-up with the word that negates, withdraws or postpones it; None if there is none.

        A word of past requests with the look-up is no such word.
        """
        if not self._asks:
            return None
        # "Don't" and "cancel" need no record: the first request with them must not be misread.
        denying = self._unknown(best) & DENYING
        for term in self._terms_of(denying):
            if not self._led_to(best.tool, term):
                text = f"the request may be to do without {best.tool}: {term!r} is new before it"
                return Refusal("denied", text)
        return None

    def deciding_word(self, best: Option) -> Refusal | None:
        """Refuse a look-up with the word that only requests without it had; None if there is none.

        It is in more requests without the look-up than chance explains, given the share of the most similar requests
        without it. A word of past requests with the look-up never forbids it.
        """
        if not self._asks:
            return None
        # Bonferroni: each word is a test of its own. Without it airline look-ups fell from 4.2 to 3.2 per 100 turns.
        level = LEVEL / max(1, len(wording(self._text, self._values_with(best.calls))))
        for term in self._terms_of(self._unknown(best)):
            refused = self._decides_against(best.tool, term, level)
            if refused is not None:
                return refused
        return None

    def _unknown(self, best: Option) -> frozenset[str]:
        """Return the words of the request that no similar request with the tool had."""
        return wording(self._text, self._values_with(best.calls)).difference(*self._past(best.tool))

    def _terms_of(self, wanted: frozenset[str]) -> list[str]:
        """Return the terms of the request with one of these words, in their order."""
        if not wanted:
            return []
        terms = []
        for term in dict.fromkeys(read_text(self._text).words):
            if not wanted.isdisjoint(_words(term) or {term}):
                terms.append(term)
        return terms

    def _led_to(self, tool: str, term: str) -> bool:
        """Return True if a past request with this word led to a tool: one is enough."""
        return any(self._cases.led_to(case_id, tool) for case_id in self._cases.having(term))

    def _decides_against(self, tool: str, term: str, level: float) -> Refusal | None:
        """Return why a word that was in no similar request with the look-up forbids it; None if it does not."""
        if self._led_to(tool, term):
            return None
        having = self._cases.having(term)
        without = sum(self._cases.went_without(case_id, tool) for case_id in having)
        if not without:
            return None
        # If a model asks a question first, the request before the question has the words but not the look-up. Without
        # this share retail look-ups fell from 10.5 to 9.6 per 100 turns, with it to 9.9.
        most_without = 0.5
        share = self._share_without(tool)
        # The probability that all requests with the word were without the look-up, if the word is irrelevant.
        if share < most_without and share**without <= level:
            return Refusal("denied", f"only requests that did without {tool} had {term!r} before")
        return None

    def _share_without(self, tool: str) -> float:
        """Return the share of the most similar past requests that were answered without a tool."""
        similar = list(self._cases.alike(self._state))
        without = sum(self._cases.went_without(case_id, tool) for case_id in similar)
        return without / max(1, len(similar))

    def unknown_wording(self, best: Option) -> Refusal | None:
        """Refuse a change after a request of which any wording is unknown; None if all of it is known."""
        if not self._asks:
            return None
        tool = best.tool
        # The nearest requests had the same calls so far: a request that led to the tool by other calls confirms words,
        # not the change at this point.
        near = [neighbour for neighbour in self._near if neighbour.tool == best.following]
        if not near:
            return Refusal("unfamiliar", f"no request before that went on with {tool} went the same way so far")
        values = self._values_with(best.calls)
        replies = bool(self._asked) or all(neighbour.asked for neighbour in near)
        past = [_read(neighbour.text, neighbour.made) for neighbour in near]
        if _differs(self._text, values, past, self._past(tool), replies=replies):
            return Refusal("unfamiliar", f"the request is worded unlike those that went on with {tool} before")
        # "Yes please" after "Shall I cancel it?" has only known words; the question is compared as well.
        past = [_read(neighbour.asked, neighbour.made) for neighbour in near]
        if _differs(self._asked, values, past, self._past(tool, asked=True), replies=True):
            text = f"the words before the request are worded unlike those that went on with {tool} before"
            return Refusal("unfamiliar", text)
        return None


def _differs(
    text: str, values: Sequence[str], past: Sequence[PastWording], familiar: Iterable[frozenset[str]], *, replies: bool
) -> bool:
    """Return True if a text has a new word, lacks a word of all past ones (in replies), or leaves more values
    unused.
    """
    own = wording(text, values)
    left = left_over(text, values)
    new = own.difference(*familiar)
    missing, most_left = past[0].words | past[0].left, 0
    for request in past:
        new = new.difference(request.words)
        missing = missing.intersection(request.words | request.left)
        most_left = max(most_left, len(request.left))
    missing = missing.difference(own, left)
    # A whole request may have fewer words. In a reply the missing word may be the "yes".
    if new or (replies and missing):
        return True
    # "With Ann and Bob" has known words only, and a name that is not among the values.
    return len(left) > most_left


def _values(args: Mapping[str, Any]) -> list[str]:
    """Return the values of a call as texts, each cut at the length that is read of a request."""
    return [canon(value)[:MAX_CHARS] for value in args.values()]


def wording(text: str, values: Iterable[str]) -> frozenset[str]:
    """Return the words of a text that are not values: without values of calls, names within a sentence, and words with
    a digit.

    A question mark is a word. If nothing is left ("2", a thumb), return the parts of the text that are not in a call.
    """
    rest = text
    value_words: set[str] = set()
    given = [value for value in values if value]
    for value in given:
        value_words |= _words(value)
        # A value of one character ("I") would cut pieces out of other words.
        if len(value) > 1:
            rest = rest.replace(value, " ")
    left = _words(rest).difference(value_words, names_within(text))
    # "Delivered?" asks for a look-up, "Delivered" reports. Only the question mark differs.
    question = _QUESTION.search(text)
    if question is not None:
        left |= {question.group()}
    return left or _parts_without(text.lower(), given)


def _parts_without(text: str, values: Iterable[str]) -> frozenset[str]:
    """Return the parts of a text between spaces that contain none of some values."""
    taken = [value.lower() for value in values]
    unused = []
    for part in text.split():
        if not any(value in part for value in taken):
            unused.append(part)
    return frozenset(unused)


@cached(mebibytes=8)
def _read(text: str, calls: tuple[str, ...]) -> PastWording:
    """Return the wording of a past text and its unused values, given the arguments of its calls as JSON."""
    values: list[str] = []
    for call in calls:
        values += _values(json.loads(call))
    return PastWording(wording(text, values), left_over(text, values))


@cached(mebibytes=4)
def _words(text: str) -> frozenset[str]:
    # Words with a digit are ids, dates and amounts: each request has its own.
    without_digits = set()
    for word in words(text):
        if not any(character.isdigit() for character in word):
            without_digits.add(word)
    return frozenset(without_digits)
