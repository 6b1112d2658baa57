"""Past requests and the calls that followed them: the search for the nearest, and the transfer of their values.

The nearest cases are found through an inverted index over words and word pairs with bounded postings. A value of an old
call is carried over by aligning the old request's wording with the new one and making the same replacements in it.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, pairwise, repeat
from typing import Any, Final, NamedTuple

from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.events import Forgotten, PlainRecord, plain_of, records_of
from langgraph_toolmem.graph.state import RunState, parallel
from langgraph_toolmem.runs.values import ABSENT
from langgraph_toolmem.text.values import dates_in, read_text
from langgraph_toolmem.text.words import words


@dataclass(frozen=True, slots=True)
class CaseLimits:
    """Limits of kept and compared requests.

    Attributes:
        cases: kept requests; the oldest are dropped.
        postings: latest requests that are found by one term.
        terms: heaviest terms of a request that are looked up.
        asked_terms: the same for the words before it.
        longlist: requests that are read, by shared words.
        shortlist: this times k of those with the same calls are compared in both directions.
        queries: requests whose look-up is kept.
        calls: kept calls of a request.
        words: compared words of a request: the differences of two texts of 6,000 equal signs took 5 s.
        asked_words: latest compared words before a request.
    """

    cases: int = 20_000
    postings: int = 64
    terms: int = 80
    asked_terms: int = 20
    longlist: int = 96
    shortlist: int = 2
    queries: int = 16
    calls: int = 24
    words: int = 400
    asked_words: int = 100


CASE_LIMITS: Final = CaseLimits()


@dataclass(slots=True)
class CaseCall(PlainRecord):
    """A call that followed a past request.

    Attributes:
        tool: its tool.
        args: its arguments as JSON.
        status: as of an `ExecutedCall`.
        sources: per argument, descriptors of the sources that had its value, as JSON; None for a call of the memory,
            which is not learned.
        further: other calls of the same turn.
    """

    tool: str
    args: str
    status: str
    sources: str | None
    further: int

    @property
    def rank(self) -> tuple[bool, str, str, str, str, int]:
        """The sort key of two calls at one position: the lower one is kept, in any order of arrival."""
        # Of a fork the model's call is kept, not the memory's: False comes before True.
        return self.sources is None, self.tool, self.args, self.status, self.sources or "", self.further


@dataclass(slots=True)
class PastCase(PlainRecord):
    """A past request, the words that it answers, and its calls.

    Attributes:
        text: the request; "" until it is known: its calls may come before it.
        user: digest of its user, if known.
        calls: position -> call.
        answers: positions at which the model answered in words.
        asked: the words that the request answers.
    """

    text: str = ""
    user: str | None = None
    calls: dict[int, CaseCall] = field(default_factory=dict)
    answers: dict[int, None] = field(default_factory=dict)
    asked: str = ""

    def to_plain(self) -> list[Any]:
        return [self.text, self.user, plain_of(self.calls), self.answers, self.asked]

    @classmethod
    def from_plain(cls, plain: list[Any]) -> PastCase:
        text, user, plain_calls, answers, asked = plain
        return cls(text, user, records_of(CaseCall, plain_calls), answers, asked)

    def begins_with(self, prefix: Sequence[tuple[str, str]]) -> bool:
        """Return True if the first calls are these (tool, status)."""
        if prefix:
            # The last call distinguishes most requests; only matching ones are compared in full.
            last = self.calls.get(len(prefix) - 1)
            if last is None or (last.tool, last.status) != prefix[-1]:
                return False
        for position, expected in enumerate(prefix):
            call = self.calls.get(position)
            if call is None or (call.tool, call.status) != expected:
                return False
        return True

    def knows_choice_at(self, position: int) -> bool:
        """Return True if the model's own choice at a position is known: a call, or an answer in words."""
        call = self.calls.get(position)
        if call is None:
            return position in self.answers
        # A call of the memory is not evidence about the model's choice.
        return call.sources is not None


CASES: Final = shapes.RowsOf(
    shapes.RecordOf(
        (
            shapes.TEXT,
            shapes.OrNone(shapes.TEXT),
            shapes.RowsOf(
                shapes.RecordOf(
                    (shapes.TEXT, shapes.JSON_OBJECT, shapes.TEXT, shapes.OrNone(shapes.JSON_OBJECT), shapes.WHOLE)
                ),
                key=shapes.WHOLE,
            ),
            shapes.RowsOf(shapes.NOTHING, key=shapes.WHOLE),
            shapes.TEXT,
        )
    )
)
"""The shape of `CaseIndex.cases`."""


@dataclass(frozen=True)
class Neighbour:
    """A past request near this one, and its next call.

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
        args: dict[str, Any] = json.loads(self.call)
        return args

    @cached_property
    def carried(self) -> dict[str, Any]:
        """The arguments for the new request (`carry_over`)."""
        carried = {}
        for name, value in self.args.items():
            carried[name] = carry_over(value, self.text, self.request).value
        return carried


@cached(mebibytes=24)
def _terms(text: str) -> tuple[str, ...]:
    """Return the different words and word pairs of a request."""
    words = read_text(text).words[: CASE_LIMITS.words]
    pairs = [f"{first} {second}" for first, second in pairwise(words)]
    return tuple(dict.fromkeys([*words, *pairs]))


@cached(mebibytes=8)
def _asked_terms(asked: str) -> tuple[str, ...]:
    """Return the words that a request answers, distinct from its own."""
    latest = words(asked)[-CASE_LIMITS.asked_words :]
    # The mark separates them from the request's own words in the common index.
    return tuple(dict.fromkeys([f"\x1f{word}" for word in latest]))


class _Weights(dict[int, float]):
    """Number of requests with a term -> its weight.

    A term seen at most once weighs 0.25: it is a name or a number more often than a sign of another request. Any other
    term weighs at least 0.5: if all requests are of one kind, its usual words still identify the kind.
    """

    def __init__(self, requests: int) -> None:
        super().__init__({0: 0.25, 1: 0.25})
        self.requests = requests

    def __missing__(self, seen: int) -> float:
        weight = self[seen] = max(math.log((self.requests + 1) / (seen + 0.5)), 0.5)
        return weight


class SimilarCase(NamedTuple):
    """A past request (its id) and its similarity, 0 to 1."""

    similarity: float
    case_id: str


class _Query:
    """One request's look-up, kept until the next request is indexed, because its further turns repeat it."""

    def __init__(self, own: Mapping[str, float], before: Mapping[str, float], ranked: list[str]) -> None:
        self.own, self.before, self.ranked = own, before, ranked
        self.norm, self.norm_before = sum(own.values()), sum(before.values())
        self.similarities: dict[str, float] = {}
        self.similar: list[SimilarCase] = []


class CaseIndex:
    """Bounded memory of past requests. If there are too many, the oldest are dropped.

    It is a separate index: requests are added and removed one by one and compared in both directions (Dice
    coefficient), while BM25 of `LexicalIndex` measures how well a fixed set of texts answers a query.

    On disk a request is ``[text, user, calls, answers, asked]``, with ``calls`` ``{position: [tool, args, status,
    sources, further]}`` and ``answers`` ``{position: None}``.
    """

    def __init__(self, max_cases: int = CASE_LIMITS.cases) -> None:
        self.max_cases = max_cases
        self.cases: dict[str, PastCase] = {}
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
        case.text, case.user, case.asked = text, user, asked
        # Its calls may have come before it: kept in the order of the requests, as in a rebuilt index.
        self.cases[case_id] = self.cases.pop(case_id)
        self._index(case_id, case)

    def knows(self, case_id: str) -> bool:
        case = self.cases.get(case_id)
        return case is not None and bool(case.text)

    def _case(self, case_id: str) -> PastCase:
        case = self.cases.get(case_id)
        if case is None:
            case = self.cases[case_id] = PastCase()
            if len(self.cases) > self.max_cases:
                # The new one is the last, so the first is the oldest.
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

        Of two calls at one position (a fork), the same one is kept in any order.
        """
        if position >= CASE_LIMITS.calls:
            return
        # As JSON: with it, and the garbage collector off, opening 100,000 events took .76 s in place of 1.3.
        known_sources = None if sources is None else json.dumps(sources, separators=(",", ":"))
        call = CaseCall(tool, args, status, known_sources, further)
        calls = self._case(case_id).calls
        other = calls.get(position)
        if other is None or call.rank < other.rank:
            calls[position] = call

    def end(self, case_id: str, position: int) -> None:
        self._case(case_id).answers[position] = None

    def remove(self, case_id: str) -> None:
        self._queries.clear()
        case = self.cases.pop(case_id)
        try:
            for term in _all_terms(case):
                self._seen[term] -= 1
                posted = self._postings[term]
                if case_id in posted:  # it may have been dropped from a full posting
                    posted.remove(case_id)
                if not self._seen[term]:
                    del self._postings[term], self._seen[term]
        except KeyError:
            # Ctrl-C between two lines of `_index` leaves terms without a count.
            self._rebuild()

    def forget(self, gone: Forgotten) -> int:
        mine = [case_id for case_id, case in self.cases.items() if gone.has(case_id, case.user)]
        for case_id in mine:
            del self.cases[case_id]
        if mine:
            # Requests that were dropped from a full posting return, as in an index that is loaded from the disk.
            self._rebuild()
        return len(mine)

    def of_user(self, user: str) -> set[str]:
        own = set()
        for case_id, case in self.cases.items():
            if case.user == user:
                own.add(case_id)
        return own

    def _rebuild(self) -> None:
        self._queries.clear()
        self._postings, self._seen = {}, {}
        for case_id, case in self.cases.items():
            self._index(case_id, case)

    def _index(self, case_id: str, case: PastCase) -> None:
        # A new request changes the weights of terms, and so the kept similarities.
        self._queries.clear()
        longest = CASE_LIMITS.postings
        for term in _all_terms(case):
            posted = self._postings.setdefault(term, [])
            posted.append(case_id)
            self._seen[term] = self._seen.get(term, 0) + 1
            if len(posted) > longest:
                del posted[0]

    # --- reading ---

    def _weigh(self, terms: tuple[str, ...]) -> dict[str, float]:
        # A weight depends only on two counts, so terms that were seen equally often share it.
        if self._weights.requests != len(self.cases):
            self._weights = _Weights(len(self.cases))
        # `map` runs in C: 80 terms are weighed at every request, and many more of long ones.
        weights = map(self._weights.__getitem__, map(self._seen.get, terms, repeat(0)))
        return dict(zip(terms, weights, strict=False))

    def _similarity(self, own: Mapping[str, float], norm: float, terms: tuple[str, ...]) -> float:
        """Return the weighted Dice coefficient of two requests' words and word pairs, from 0 to 1."""
        # Each request is compared with up to 96 others, so both sums run in C.
        theirs = sum(map(self._weights.__getitem__, map(self._seen.__getitem__, terms)))
        shared = sum([own[term] for term in terms if term in own])
        return 2 * shared / (norm + theirs)

    def near(self, state: RunState, *, k: int) -> list[Neighbour]:
        """Return the nearest past requests with the same calls so far as a run, most similar first."""
        if not state.user_key or not state.user.raw.strip():
            return []
        prefix = [(step.tool, step.status) for step in state.since_user]
        return self.nearest(state.user.raw, prefix, k=k, exclude=state.user_key, asked=state.asked)

    def nearest(
        self, text: str, prefix: Sequence[tuple[str, str]], *, k: int = 3, exclude: str = "", asked: str = ""
    ) -> list[Neighbour]:
        """Return the nearest past requests whose first calls (tool, status) equal `prefix`, most similar first.

        A request that answered other words than `asked` counts less.
        """
        query = self._query(text, asked)
        position = len(prefix)
        same_way: list[SimilarCase] = []
        for case_id in query.ranked:
            case = self.cases[case_id]
            if case_id == exclude or not case.begins_with(prefix) or not case.knows_choice_at(position):
                continue
            same_way.append(SimilarCase(self._compared(query, case_id), case_id))
            # `ranked` counts shared words, not the other words: more than `k` are compared in both directions.
            if len(same_way) >= CASE_LIMITS.shortlist * k:
                break

        def most_similar_first(near: SimilarCase) -> float:
            return -near.similarity

        same_way.sort(key=most_similar_first)
        return [self._neighbour(near, position, text) for near in same_way[:k]]

    def similar(self, text: str, asked: str = "") -> list[SimilarCase]:
        """Return past requests that share words with one."""
        query = self._query(text, asked)
        if not query.similar:
            for case_id in query.ranked:
                query.similar.append(SimilarCase(self._compared(query, case_id), case_id))
        return query.similar

    def _query(self, text: str, asked: str) -> _Query:
        """Return the look-up of a request: its weights, and the requests that share most with it."""
        key = digest(text, asked)
        query = self._queries.get(key)
        if query is not None:
            return query
        own, before = self._weigh(_terms(text)), self._weigh(_asked_terms(asked))
        scores: dict[str, float] = defaultdict(float)
        heaviest = self._heaviest(own, CASE_LIMITS.terms) + self._heaviest(before, CASE_LIMITS.asked_terms)
        for weight, term in heaviest:
            for case_id in self._postings[term]:
                scores[case_id] += weight
        if not scores.keys() <= self.cases.keys():
            # Ctrl-C within `remove` leaves postings of a deleted request.
            self._rebuild()
            return self._query(text, asked)
        ranked = sorted(scores, key=scores.__getitem__, reverse=True)[: CASE_LIMITS.longlist]
        # The model calls of a turn repeat the look-up. The threads of a host take turns, so a few are kept.
        if len(self._queries) >= CASE_LIMITS.queries:
            self._queries.clear()
        query = self._queries[key] = _Query(own, before, ranked)
        return query

    def _compared(self, query: _Query, case_id: str) -> float:
        near = query.similarities.get(case_id)
        if near is None:
            case = self.cases[case_id]
            near = self._similarity(query.own, query.norm, _terms(case.text))
            if query.before or case.asked:
                # "Yes" to another question is another request: without a shared word in the question, it counts half.
                before = self._similarity(query.before, query.norm_before, _asked_terms(case.asked))
                near *= 0.5 + (1 - 0.5) * before
            query.similarities[case_id] = near
        return near

    def alike(self, state: RunState) -> Iterator[str]:
        """Yield the past requests that share most words with a run's latest one, for any continuation."""
        for case_id in self._query(state.user.raw, state.asked).ranked:
            if case_id != state.user_key:
                yield case_id

    def led_to(self, case_id: str, tool: str) -> bool:
        """Return True if the model called a tool after a request: calls of the memory do not make a request
        familiar.
        """
        for call in self.cases[case_id].calls.values():
            if call.tool == tool and call.sources is not None:
                return True
        return False

    def having(self, term: str) -> list[str]:
        """Return the latest requests with a term, oldest first: a word as `text.values.read_text` gives it."""
        return self._postings.get(term, [])

    def went_without(self, case_id: str, tool: str) -> bool:
        """Return True if a request was answered without a call of the tool by the model or the memory."""
        case = self.cases[case_id]
        if not case.answers:
            return False
        for call in case.calls.values():
            if call.tool == tool:
                return False
        return True

    def _heaviest(self, weights: Mapping[str, float], most: int) -> list[tuple[float, str]]:
        """Return the heaviest terms of a past request; of equally heavy ones the last by alphabet."""
        known = [(weight, term) for term, weight in weights.items() if term in self._postings]
        if len(known) <= most:
            return known
        return sorted(known, reverse=True)[:most]

    def _neighbour(self, near: SimilarCase, position: int, request: str) -> Neighbour:
        case = self.cases[near.case_id]
        call = case.calls.get(position)
        # The model answered in words there.
        if call is None:
            return Neighbour(
                similarity=near.similarity,
                case_id=near.case_id,
                text=case.text,
                tool=None,
                call="{}",
                sources={},
                request=request,
                made=self.arguments(near.case_id),
                asked=case.asked,
            )
        sources = {} if call.sources is None else json.loads(call.sources)
        return Neighbour(
            similarity=near.similarity,
            case_id=near.case_id,
            text=case.text,
            tool=_called_at(case, position, call),
            call=call.args,
            sources=sources,
            request=request,
            made=self.arguments(near.case_id, position + call.further),
            asked=case.asked,
        )

    def arguments(self, case_id: str, last: int = CASE_LIMITS.calls) -> tuple[str, ...]:
        """Return the arguments of a request's calls, up to position `last`, as JSON."""
        return tuple([call.args for position, call in self.cases[case_id].calls.items() if position <= last])

    def to_plain(self) -> dict[str, list[Any]]:
        return plain_of(self.cases)

    def load(self, plain: Mapping[str, list[Any]]) -> None:
        """Replace all requests by those that `to_plain` wrote."""
        # The index itself is not on disk: it is rebuilt from the requests.
        self.cases = records_of(PastCase, plain)
        self._rebuild()


def _all_terms(case: PastCase) -> Iterator[str]:
    return chain(_terms(case.text), _asked_terms(case.asked))


def _called_at(case: PastCase, position: int, call: CaseCall) -> str:
    """Return the tool of a call, or the symbol of all calls of its turn."""
    if not call.further:
        return call.tool
    tools = []
    for other in range(position, position + call.further + 1):
        known = case.calls.get(other)
        # A call after the last kept one counts as a call of another tool.
        tools.append("" if known is None else known.tool)
    return parallel(tools)


# --- carrying values over ---


@cached(mebibytes=4)
def replacements(old: str, new: str) -> tuple[tuple[str, str], ...]:
    """Return the differing wording: (old part, new part) pairs, longest old part first."""
    old_text, new_text = read_text(old), read_text(new)
    pairs: list[tuple[str, str]] = []
    # `autojunk` would leave out the frequent words of a text with 200 words or more.
    matcher: Any = difflib.SequenceMatcher(None, old_text.words[: CASE_LIMITS.words], (), autojunk=False)
    # `set_seq2` would find the words' positions again for each old request that is compared with the new one.
    matcher.b, matcher.b2j = new_text.words[: CASE_LIMITS.words], _places_of(new)
    for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        if tag != "replace":
            continue
        pairs.append((old_text.span(old_start, old_end - 1), new_text.span(new_start, new_end - 1)))
        words_replaced = old_end - old_start
        if words_replaced == new_end - new_start and words_replaced > 1:
            # "Ann Smith" for "Bob Jones" also replaces a first name: a value may have only that.
            for offset in range(words_replaced):
                old_word, new_word = old_start + offset, new_start + offset
                pairs.append((old_text.span(old_word, old_word), new_text.span(new_word, new_word)))

    def longest_first(pair: tuple[str, str]) -> int:
        old_part, _ = pair
        return -len(old_part)

    return tuple(sorted(dict.fromkeys(pairs), key=longest_first))


@cached(mebibytes=2)
def _places_of(text: str) -> dict[str, list[int]]:
    matcher: Any = difflib.SequenceMatcher(None, (), read_text(text).words[: CASE_LIMITS.words], autojunk=False)
    places: dict[str, list[int]] = matcher.b2j
    return places


@cached(mebibytes=4)
def _forms(old: str, new: str) -> list[tuple[str, str]]:
    """Return the possible spellings of old and new wording in a value."""
    forms = [
        (old, new),
        (old.lower(), new.lower()),
        (old.capitalize(), new.capitalize()),
        (old.title(), new.title()),
        (_identifier(old), _identifier(new)),
    ]
    # "November 21" is "11-21" within an ISO date.
    return forms + list(zip(dates_in(old), dates_in(new), strict=False))


def _identifier(text: str) -> str:
    return text.lower().replace(" ", "_")


class Carried(NamedTuple):
    """A value of an old request for a new one, and True if a part of it was replaced."""

    value: Any
    changed: bool


def carry_over(value: Any, old: str, new: str) -> Carried:
    """Return an old argument value for the new request."""
    if value is ABSENT or isinstance(value, bool) or value is None:
        return Carried(value, False)
    if isinstance(value, list):
        return _carried_items(value, old, new)
    if isinstance(value, dict):
        members = _carried_items(list(value.values()), old, new)
        return Carried(dict(zip(value, members.value, strict=True)), members.changed)
    return _carried_text(value, old, new)


def _carried_items(values: Sequence[Any], old: str, new: str) -> Carried:
    items, changed = [], False
    for value in values:
        carried = carry_over(value, old, new)
        items.append(carried.value)
        changed = changed or carried.changed
    return Carried(items, changed)


def _carried_text(value: Any, old: str, new: str) -> Carried:
    text = str(value)
    for before, after in replacements(old, new):
        for form, replacement in _forms(before, after):
            place = _place_in(text, form, is_as_written=form == before)
            if place is not None:
                carried = text[:place] + replacement + text[place + len(form) :]
                return Carried(_like(value, carried), True)
    return Carried(value, False)


def _place_in(text: str, form: str, *, is_as_written: bool) -> int | None:
    """Return where a part of the old request stands in a value, or None.

    One or two letters may be part of other words. They count as the whole value, as two signs of East Asian scripts,
    which are a name (東京), and as a word that the request writes with a capital (Li).
    """
    is_long = len(form) > 2 or (len(form) == 2 and all(_is_east_asian(sign) for sign in form))
    if is_long or form == text:
        place = text.find(form)
        return None if place < 0 else place
    if is_as_written and len(form) == 2 and form[0].isupper():
        word = re.search(rf"(?<!\w){re.escape(form)}(?!\w)", text)
        return None if word is None else word.start()
    return None


def _is_east_asian(sign: str) -> bool:
    kana_and_ideographs, hangul = "\u3040" <= sign <= "\u9fff", "\uac00" <= sign <= "\ud7a3"
    return kana_and_ideographs or hangul


def _like(original: Any, text: str) -> Any:
    if isinstance(original, str):
        return text
    try:
        # "Show 7 mails": a number stays a number. "Show many mails" makes a text of it.
        return type(original)(text)
    except ValueError:
        return text
