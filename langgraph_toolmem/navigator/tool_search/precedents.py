"""Tools used together in recorded runs: before a given tool, and for a similar request.

An episode is what followed one user message: the tools that were called, in order. Nothing here is believed on thin
evidence. How often a tool came before another is a share that starts at how often it is used at all, and similar
requests count by how often they were right before: each episode is first foretold from those before it, then learned.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.base import threads
from langgraph_toolmem.core.method import PastRuns
from langgraph_toolmem.navigator.tool_search.index import K1, WordIndex
from langgraph_toolmem.text.requests import MAX_REQUEST_CHARS
from langgraph_toolmem.text.tools import Fields, stems

Floats = npt.NDArray[np.float64]

PRIOR: Final = 1.0
"""Episodes with the target that the general use of a tool counts for."""
NEAREST: Final = 10
"""Similar requests that vote."""
SHARPNESS: Final = 2.0
"""A request of similarity s votes with s to this power."""
DOUBT: Final = 0.05
"""Votes for nothing: few and distant requests say little."""
LIFT: Final = 5.0
"""What a vote of 1 adds to the logarithm of the odds; as it was fitted for chains."""
STEPS: Final = 4
"""Grades of similarity that have a record of their own."""
TRUST: Final = (2.0, 4.0)
"""Votes that were right, and all votes, before the first one was checked."""


MOST: Final = 2_000
"""Past runs that are looked at, the latest: each new one is foretold from the others, which takes longer with more."""
MAX_SCOPES: Final = 64
"""Scopes of users whose precedents are in RAM; those that were asked for last."""


class _Episode(NamedTuple):
    place: int | None  # of the request in the index; None: it says nothing
    words: tuple[str, ...]
    earlier: dict[str, frozenset[str]]  # tool -> those called before its last call


class Precedents:
    """Episodes, counted. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threads.lock()
        self._uses: Counter[str] = Counter()
        self._before: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._together: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._episodes = 0
        self._requests = WordIndex()
        self._tools: list[frozenset[str]] = []
        self._kept: dict[object, _Episode] = {}
        self._right = [TRUST[0]] * STEPS
        self._votes = [TRUST[1]] * STEPS

    def __len__(self) -> int:
        return self._episodes

    def add(self, tools: Sequence[str], request: str = "", *, key: str | None = None) -> None:
        """One more episode: the tools called, in order, and what the user asked for. No call, nothing learned.

        Args:
            key: under which it can be removed; one of the same key goes first.
        """
        earlier: dict[str, frozenset[str]] = {}
        seen: dict[str, None] = {}
        for tool in tools:
            earlier[tool] = frozenset(seen) - {tool}  # before its last call
            seen[tool] = None
        words = tuple(stems(request[:MAX_REQUEST_CHARS]))
        with self._lock:
            known = None if key is None else self._kept.get(key)
            if known is not None and (known.words, known.earlier) == (words, earlier):
                return
            self._remove(key)
            if not tools:
                return
            if words:
                self._check(words, seen.keys())
            self._kept[object() if key is None else key] = _Episode(self._place(words, seen), words, earlier)
            self._count(earlier, 1)

    def remove(self, key: str) -> None:
        """An episode less; none of that key is no error. What it said of how far votes can be trusted stays."""
        with self._lock:
            self._remove(key)

    def keep_latest(self, most: int) -> None:
        """The first that came go until so many are left."""
        with self._lock:
            for key in list(self._kept)[: max(0, len(self._kept) - most)]:
                self._remove(key)

    def rates(self, names: Sequence[str]) -> Rates:
        """Return how likely each of some tools is called before, or with, another one."""
        return Rates(self, names)

    def votes(self, request: str) -> dict[str, float]:
        """Tools that were called for similar requests, each 0 to 1, weighed by how often such votes were right."""
        words = tuple(stems(request[:MAX_REQUEST_CHARS]))
        with self._lock:
            found, step = self._vote(words)
            trust = self._right[step] / self._votes[step]
            return {tool: trust * share for tool, share in found.items()}

    def lift(self, request: str) -> dict[str, float]:
        """LIFT times `votes`: what `ToolSearch.search` takes as `lift`."""
        return {tool: LIFT * vote for tool, vote in self.votes(request).items()}

    def _remove(self, key: object) -> None:
        known = self._kept.pop(key, None)
        if known is None:
            return
        self._count(known.earlier, -1)
        if known.place is not None:
            self._requests.remove(known.place)
            self._tools[known.place] = frozenset()
        if len(self._tools) > 64 + 2 * len(self._kept):
            self._requests, self._tools = WordIndex(), []
            for other, each in self._kept.items():
                self._kept[other] = each._replace(place=self._place(each.words, each.earlier))

    def _place(self, words: tuple[str, ...], tools: Iterable[str]) -> int | None:
        """Return where a request is among those that can be searched; None if it has no telling word."""
        if not words:
            return None
        self._tools.append(frozenset(tools))
        return self._requests.add(Fields((), words, (), (), (), ()), 0)

    def _count(self, earlier: Mapping[str, frozenset[str]], sign: int) -> None:
        self._episodes += sign
        for tool, others in earlier.items():
            self._uses[tool] += sign
            for table, names in ((self._before, others), (self._together, earlier.keys() - {tool})):
                for name in names:
                    table[tool][name] += sign
                    if not table[tool][name]:
                        del table[tool][name]

    def _check(self, words: Sequence[str], called: Collection[str]) -> None:
        found, step = self._vote(words)
        self._votes[step] += sum(found.values())
        self._right[step] += sum(share for tool, share in found.items() if tool in called)

    def _vote(self, words: Sequence[str]) -> tuple[Mapping[str, float], int]:
        if not words or not self._tools:
            return {}, 0
        answer = self._requests.ask([words])
        # A text of average length and itself have 1 / (1 + k1) of what repeating it for ever would have.
        near = answer.texts[0] / max(float(answer.most[0]) / (1 + K1), 1e-6)
        best = np.argsort(-near, kind="stable")[:NEAREST]
        votes: dict[str, float] = {}
        total = DOUBT
        for place in best:
            weight = min(1.0, float(near[place])) ** SHARPNESS
            total += weight
            for tool in self._tools[place]:
                votes[tool] = votes.get(tool, 0.0) + weight
        step = min(STEPS - 1, int(STEPS * min(1.0, float(near[best[0]]))))
        return {tool: weight / total for tool, weight in votes.items() if weight}, step


class Rates:
    """See `Precedents.rates`."""

    def __init__(self, precedents: Precedents, names: Sequence[str]) -> None:
        self._precedents = precedents
        self._places = {name: place for place, name in enumerate(names)}
        with precedents._lock:
            uses, episodes = precedents._uses, precedents._episodes
            self._usual = np.array([uses[name] + 0.5 for name in names], dtype=np.float64) / (episodes + 1)

    def before(self, target: str) -> Floats:
        """For each name, how likely it is called before the target, where that is called.

        (N(name before target) + PRIOR · p(name)) / (N(target) + PRIOR), with p(name) the share of all episodes that
        call it.
        """
        return self._of(self._precedents._before, target)

    def together(self, other: str) -> Floats:
        """For each name, how likely it is called in an episode with another tool; as `before`."""
        return self._of(self._precedents._together, other)

    def _of(self, table: Mapping[str, Mapping[str, int]], tool: str) -> Floats:
        found = PRIOR * self._usual
        with self._precedents._lock:
            for name, times in table.get(tool, {}).items():
                if name in self._places:
                    found[self._places[name]] += times
            found /= self._precedents._uses[tool] + PRIOR
        return found


class PrecedentCache:
    """The precedents of each user scope, in step with its past runs. Not safe for threads: the owner holds a lock."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, ...], tuple[PastRuns, int, Precedents]] = {}

    def of(self, scope: tuple[str, ...], runs: PastRuns) -> Precedents:
        """The precedents of a scope (its namespace)."""
        followed, version, precedents = self._kept.pop(scope, (runs, 0, Precedents()))
        if followed != runs:  # they were read anew since: versions say nothing
            version, precedents = 0, Precedents()
        new = runs.changes(version, MOST)
        if new.whole:
            precedents = Precedents()
        for key in new.gone:
            precedents.remove(key)
        for run in sorted(new.runs, key=lambda run: (run.time, run.id))[-MOST:]:
            precedents.add(() if run.failed else run.tools, run.request, key=run.id)
        precedents.keep_latest(MOST)
        self._kept[scope] = runs, new.version, precedents
        if len(self._kept) > MAX_SCOPES:
            del self._kept[next(iter(self._kept))]
        return precedents

    def forget(self, scope: tuple[str, ...]) -> None:
        """Drop what is in RAM of a scope."""
        self._kept.pop(scope, None)
