"""Past requests and the calls that followed them; the nearest ones, and their values carried over.

The nearest cases are found through an inverted index over words and word pairs with bounded postings. A value of an old
call is carried over by aligning the old request's wording with the new one and making the same replacements in it.
"""

from __future__ import annotations

import difflib
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, repeat
from typing import Any, Final

from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.graph.events import Forgotten
from langgraph_toolmem.graph.state import RunState, parallel
from langgraph_toolmem.runs.values import ABSENT
from langgraph_toolmem.text.values import dates_in, read_text
from langgraph_toolmem.text.words import words

MAX_CASES: Final = 20_000
MAX_POSTINGS: Final = 64
MAX_TERMS: Final = 80
MAX_ASKED_TERMS: Final = 20
"""Terms of the words before a request by which others are looked up."""
ASKED_WORDS: Final = 100
MAX_CALLS: Final = 24
_LONGLIST: Final = 96
"""Requests looked at, by shared words."""
_SHORTLIST: Final = 2
"""Times k of them that went the same way are compared both ways."""
MAX_WORDS: Final = 400
"""Words of a request that are compared: the differences of two texts of 6,000 equal signs took 5 s."""
MAX_QUERIES: Final = 16
OTHER_ASKED: Final = 0.5
"""Weight of a request that answered words of which it shares none."""
UNSEEN: Final = 0.25
"""Weight of a word seen once at most: a name or a number more often than a sign of another request."""
USUAL: Final = 0.5
"""Least weight of any other word: where all requests are of one kind, its usual words still tell the kind."""


@dataclass(frozen=True)
class Neighbour:
    """A past request near this one, and what came next in it.

    Attributes:
        text: the past request; `asked`: the words that it answered; `request`: the request that it is near to.
        tool: the next tool; `parallel`: several calls at once; None: the model answered in words.
        call: its arguments as JSON; `made`: those of the calls before it, too.
        sources: per argument, descriptors of the sources that had its value then.
    """

    similarity: float
    case_id: str
    text: str
    tool: str | None
    call: str
    sources: Mapping[str, list[str]]
    request: str
    made: tuple[str, ...]
    asked: str = ""

    @cached_property
    def args(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.call)
        return found

    @cached_property
    def carried(self) -> dict[str, Any]:
        """The arguments in the terms of the new request (`carry_over`)."""
        return {name: carry_over(value, self.text, self.request)[0] for name, value in self.args.items()}


@cached(mebibytes=24)
def _terms(text: str) -> tuple[str, ...]:
    words = read_text(text).words[:MAX_WORDS]
    pairs = [f"{a} {b}" for a, b in pairwise(words)]
    return tuple(dict.fromkeys([*words, *pairs]))


@cached(mebibytes=8)
def _asked_terms(asked: str) -> tuple[str, ...]:
    """Return the words that a request answers, distinct from its own."""
    return tuple(dict.fromkeys(f"\x1f{word}" for word in words(asked)[-ASKED_WORDS:]))


class _Weights(dict[int, float]):
    """Number of requests with a term -> its weight. A term seen once at most is usually a name or a number."""

    def __init__(self, requests: int) -> None:
        super().__init__({0: UNSEEN, 1: UNSEEN})
        self.requests = requests

    def __missing__(self, seen: int) -> float:
        weight = self[seen] = max(math.log((self.requests + 1) / (seen + 0.5)), USUAL)
        return weight


class _Query:
    """One request's look-up, kept until the next request is indexed: its further turns ask the same."""

    def __init__(self, own: Mapping[str, float], before: Mapping[str, float], ranked: list[str]) -> None:
        self.own, self.before, self.ranked = own, before, ranked
        self.norm, self.norm_before = sum(own.values()), sum(before.values())
        self.similarities: dict[str, float] = {}
        self.similar: list[tuple[float, str]] = []


class CaseIndex:
    """Bounded memory of past requests. Oldest cases leave first once there are more than MAX_CASES."""

    def __init__(self, max_cases: int = MAX_CASES) -> None:
        self.max_cases = max_cases
        #: case id -> [text, user, calls, answers, asked], calls: {position: [tool, args JSON, status, sources,
        #: further]}, answers in words: {position: None}
        #: sources are JSON, None for a call that the shortcut made; text is "" until the request itself is known
        self.cases: dict[str, list[Any]] = {}
        self._postings: dict[str, list[str]] = {}
        self._seen: dict[str, int] = {}
        self._weights = _Weights(0)
        self._queries: dict[str, _Query] = {}  # by digest

    # --- writing ---

    def open(self, case_id: str, text: str, user: str | None, asked: str = "") -> None:
        """Add a request and the words that it answers, unless it is known."""
        if not text or self.knows(case_id):
            return
        case = self._case(case_id)
        case[0], case[1], case[4] = text, user, asked
        # Its calls may have come before it: in order of the requests, as an index that is rebuilt has them.
        self.cases[case_id] = self.cases.pop(case_id)
        self._index(case_id, text, asked)

    def knows(self, case_id: str) -> bool:
        return bool(self.cases.get(case_id, ("",))[0])

    def _case(self, case_id: str) -> list[Any]:
        case = self.cases.get(case_id)
        if case is None:
            case = self.cases[case_id] = ["", None, {}, {}, ""]
            if len(self.cases) > self.max_cases:
                self.remove(next(iter(self.cases)))
        return case

    def add_call(
        self,
        case_id: str,
        position: int,
        tool: str,
        args: str,
        status: str,
        sources: dict[str, list[str]] | None,
        further: int,
    ) -> None:
        """Add the call at `position` after the request; `further` other calls were made in the same turn.

        Of two calls at one position (a fork), the same one stays in any order.
        """
        if position < MAX_CALLS:
            calls = self._case(case_id)[2]
            known = None if sources is None else json.dumps(sources, separators=(",", ":"))
            call = [tool, args, status, known, further]
            calls[position] = min(
                calls.get(position, call), call, key=lambda c: (c[3] is None, *c[:3], c[3] or "", c[4])
            )

    def end(self, case_id: str, position: int) -> None:
        self._case(case_id)[3][position] = None

    def remove(self, case_id: str) -> None:
        self._queries.clear()
        text, _, _, _, asked = self.cases.pop(case_id)
        try:
            for term in (*_terms(text), *_asked_terms(asked)):
                self._seen[term] -= 1
                posted = self._postings[term]
                if case_id in posted:
                    posted.remove(case_id)
                if not self._seen[term]:
                    del self._postings[term], self._seen[term]
        except KeyError:  # an interrupt left the index torn
            self._rebuild()

    def forget(self, gone: Forgotten) -> int:
        mine = [case_id for case_id, case in self.cases.items() if gone.has(case_id, case[1])]
        for case_id in mine:
            del self.cases[case_id]
        if mine:
            self._rebuild()  # requests that had to leave a full posting come back
        return len(mine)

    def of_user(self, user: str) -> set[str]:
        return {case_id for case_id, case in self.cases.items() if case[1] == user}

    def _rebuild(self) -> None:
        self._queries.clear()
        self._postings, self._seen = {}, {}
        for case_id, case in self.cases.items():
            self._index(case_id, case[0], case[4])

    def _index(self, case_id: str, text: str, asked: str) -> None:
        self._queries.clear()
        for term in (*_terms(text), *_asked_terms(asked)):
            posted = self._postings.setdefault(term, [])
            posted.append(case_id)
            self._seen[term] = self._seen.get(term, 0) + 1
            if len(posted) > MAX_POSTINGS:
                del posted[0]

    # --- reading ---

    def _weigh(self, terms: tuple[str, ...]) -> dict[str, float]:
        if self._weights.requests != len(self.cases):
            self._weights = _Weights(len(self.cases))
        return dict(zip(terms, map(self._weights.__getitem__, map(self._seen.get, terms, repeat(0))), strict=False))

    def _similarity(self, own: Mapping[str, float], norm: float, terms: tuple[str, ...]) -> float:
        """Return the weighted Dice coefficient of two requests' words and word pairs, from 0 to 1."""
        theirs = sum(map(self._weights.__getitem__, map(self._seen.__getitem__, terms)))
        return 2 * sum([own[term] for term in terms if term in own]) / (norm + theirs)

    def near(self, state: RunState, *, k: int) -> list[Neighbour]:
        """Return the nearest past requests with the same calls so far as a run, most similar first."""
        if not state.user_key or not state.user.raw.strip():
            return []
        prefix: list[tuple[str, str]] = [(step.tool, step.status) for step in state.since_user]
        return self.nearest(state.user.raw, prefix, k=k, exclude=state.user_key, asked=state.asked)

    def nearest(
        self, text: str, prefix: list[tuple[str, str]], *, k: int = 3, exclude: str = "", asked: str = ""
    ) -> list[Neighbour]:
        """Return the nearest past requests whose calls so far (tool, status) equal `prefix`, most similar first.

        A request that answered other words than `asked` counts less.
        """
        query = self._query(text, asked)
        position = len(prefix)
        found: list[tuple[float, str]] = []
        for case_id in query.ranked:
            if case_id == exclude:
                continue
            calls, answers = self.cases[case_id][2:4]
            if prefix and ((last := calls.get(position - 1)) is None or (last[0], last[2]) != prefix[-1]):
                continue  # most requests: the others are looked at in full
            if not _went(calls, prefix):
                continue
            if position in calls:
                if calls[position][3] is None:
                    continue
            elif position not in answers:
                continue
            found.append((self._compared(query, case_id), case_id))
            if len(found) >= _SHORTLIST * k:
                break
        found.sort(key=lambda item: -item[0])
        return [self._neighbour(similarity, case_id, position, text) for similarity, case_id in found[:k]]

    def similar(self, text: str, asked: str = "") -> list[tuple[float, str]]:
        """Return past requests that share words with one, each with its similarity, 0 to 1."""
        query = self._query(text, asked)
        if not query.similar:
            query.similar = [(self._compared(query, case_id), case_id) for case_id in query.ranked]
        return query.similar

    def _query(self, text: str, asked: str) -> _Query:
        """Return what is known of a request: its weights, and the requests that share most with it."""
        key = digest(text, asked)
        query = self._queries.get(key)
        if query is not None:
            return query
        own, before = self._weigh(_terms(text)), self._weigh(_asked_terms(asked))
        scores: dict[str, float] = defaultdict(float)
        for weight, term in (*self._heaviest(own, MAX_TERMS), *self._heaviest(before, MAX_ASKED_TERMS)):
            for case_id in self._postings[term]:
                scores[case_id] += weight
        if not scores.keys() <= self.cases.keys():  # an interrupt left the index torn
            self._rebuild()
            return self._query(text, asked)
        ranked = sorted(scores, key=scores.__getitem__, reverse=True)[:_LONGLIST]
        if len(self._queries) >= MAX_QUERIES:
            self._queries.clear()
        query = self._queries[key] = _Query(own, before, ranked)
        return query

    def _compared(self, query: _Query, case_id: str) -> float:
        near = query.similarities.get(case_id)
        if near is None:
            text, _, _, _, asked = self.cases[case_id]
            near = self._similarity(query.own, query.norm, _terms(text))
            if query.before or asked:
                before = self._similarity(query.before, query.norm_before, _asked_terms(asked))
                near *= OTHER_ASKED + (1 - OTHER_ASKED) * before
            query.similarities[case_id] = near
        return near

    def alike(self, state: RunState) -> Iterator[str]:
        """Yield the past requests that share most words with a run's latest one, whatever they led to."""
        return (case_id for case_id in self._query(state.user.raw, state.asked).ranked if case_id != state.user_key)

    def led_to(self, case_id: str, tool: str) -> bool:
        """Return True if the model called a tool after a request: a call of the memory's own makes nothing familiar."""
        calls = self.cases[case_id][2].values()
        return bool([call for call in calls if call[0] == tool and call[3] is not None])

    def having(self, term: str) -> list[str]:
        """Return the latest requests with a term, oldest first: a word as `text.values.read_text` gives it."""
        return self._postings.get(term, [])

    def went_without(self, case_id: str, tool: str) -> bool:
        """Return True if a request was answered, and neither the model nor the memory called a tool for it."""
        calls, answers = self.cases[case_id][2:4]
        return bool(answers) and all(call[0] != tool for call in calls.values())

    def _heaviest(self, weights: Mapping[str, float], most: int) -> list[tuple[float, str]]:
        known = [(weight, term) for term, weight in weights.items() if term in self._postings]
        return sorted(known, reverse=True)[:most] if len(known) > most else known

    def _neighbour(self, similarity: float, case_id: str, position: int, request: str) -> Neighbour:
        text, _, calls, _, asked = self.cases[case_id]
        if position not in calls:
            return Neighbour(similarity, case_id, text, None, "{}", {}, request, self.arguments(case_id), asked)
        tool, args, _, sources, further = calls[position]
        if further:
            # One that is not known (further than MAX_CALLS) is taken for another tool.
            tool = parallel(calls.get(i, ("",))[0] for i in range(position, position + further + 1))
        made = self.arguments(case_id, position + further)
        return Neighbour(similarity, case_id, text, tool, args, json.loads(sources), request, made, asked)

    def arguments(self, case_id: str, last: int = MAX_CALLS) -> tuple[str, ...]:
        """Return the arguments of a request's calls, up to position `last`, as JSON."""
        return tuple([call[1] for at, call in self.cases[case_id][2].items() if at <= last])

    def load(self, cases: dict[str, list[Any]]) -> None:
        self.cases = cases
        self._rebuild()


def _went(calls: Mapping[int, list[Any]], prefix: list[tuple[str, str]]) -> bool:
    """Return True if a request's first calls are these (tool, status)."""
    for position, expected in enumerate(prefix):
        call = calls.get(position)
        if call is None or (call[0], call[2]) != expected:
            return False
    return True


# --- carrying values over -------------------------------------------------------------------------------


@cached(mebibytes=4)
def replacements(old: str, new: str) -> tuple[tuple[str, str], ...]:
    """Return the differing wording: (old part, new part) pairs, longest old part first."""
    a, b = read_text(old), read_text(new)
    pairs: list[tuple[str, str]] = []
    matcher: Any = difflib.SequenceMatcher(None, a.words[:MAX_WORDS], (), autojunk=False)
    # As `set_seq2` would find them, once for all old requests.
    matcher.b, matcher.b2j = b.words[:MAX_WORDS], _places_of(new)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "replace":
            continue
        pairs.append((a.span(i1, i2 - 1), b.span(j1, j2 - 1)))
        if i2 - i1 == j2 - j1 > 1:
            pairs += [(a.span(i, i), b.span(j, j)) for i, j in zip(range(i1, i2), range(j1, j2), strict=True)]
    return tuple(sorted(dict.fromkeys(pairs), key=lambda p: -len(p[0])))


@cached(mebibytes=2)
def _places_of(text: str) -> dict[str, list[int]]:
    matcher: Any = difflib.SequenceMatcher(None, (), read_text(text).words[:MAX_WORDS], autojunk=False)
    places: dict[str, list[int]] = matcher.b2j
    return places


@cached(mebibytes=4)
def _forms(old: str, new: str) -> list[tuple[str, str]]:
    cases = (str, str.lower, str.capitalize, str.title, lambda text: text.lower().replace(" ", "_"))
    return [*((each(old), each(new)) for each in cases), *zip(dates_in(old), dates_in(new), strict=False)]


def carry_over(value: Any, old: str, new: str) -> tuple[Any, bool]:
    """Return an old argument value in the new request's terms, and True if anything in it was replaced."""
    if value is ABSENT or isinstance(value, bool) or value is None:
        return value, False
    if isinstance(value, list):
        parts = [carry_over(v, old, new) for v in value]
        return [p[0] for p in parts], any(p[1] for p in parts)
    if isinstance(value, dict):
        items = {k: carry_over(v, old, new) for k, v in value.items()}
        return {k: v[0] for k, v in items.items()}, any(v[1] for v in items.values())
    text = str(value)
    for before, after in replacements(old, new):
        for form, replacement in _forms(before, after):
            if form == text or (len(form) > 2 and form in text):
                return _like(value, text.replace(form, replacement, 1)), True
    return value, False


def _like(original: Any, text: str) -> Any:
    if isinstance(original, str):
        return text
    try:
        return type(original)(text)
    except ValueError:
        return text
