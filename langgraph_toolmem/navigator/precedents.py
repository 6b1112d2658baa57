"""Tools used together in recorded runs: for a similar request, and before a given tool.

An episode is one user message with its consequences: the request, and the called tools.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.caches import drop_oldest
from langgraph_toolmem.core.method import PastRun, PastRuns
from langgraph_toolmem.navigator.tool_search import Floats, ToolHit, ToolSearcher, WordIndex, probability
from langgraph_toolmem.text.wording import REQUEST_LIMITS, kit_name, kit_of
from langgraph_toolmem.text.words import telling_stems


@dataclass(frozen=True, slots=True)
class VoteRules:
    """The way similar requests vote for tools.

    Attributes:
        nearest: similar requests that vote.
        sharpness: a request of similarity s votes with s to this power.
        doubt: votes for no tool: few and distant requests are weak evidence.
        lift: addition to the logarithm of the odds for a vote of 1, as fitted for chains.
    """

    nearest: int = 10
    sharpness: float = 2.0
    doubt: float = 0.05
    lift: float = 5.0


VOTES: Final = VoteRules()
MAX_PRECEDENTS: Final = 2_000
"""Limit of read past runs, the latest."""
MAX_SCOPES: Final = 64
"""Limit of user scopes with precedents in RAM; the latest used."""

WEIGHTS: Final[Floats] = np.array([5.5, 2.0, 5.0, 2.5], dtype=np.float32)
"""Weights of the request, the same toolkit, similar requests, and common use. Round numbers: fitted weights, and
further signals (came before, gives an input, a trained link), gained nothing.
"""
INTERCEPT: Final = -1.7
COMPANIONS: Final = 5
"""Number of tools that fit the request best, whose common use counts like the target's."""


class _Episode(NamedTuple):
    words: tuple[str, ...]
    tools: frozenset[str]
    number: int


class Precedents:
    """Episodes, counted. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threads.lock()
        self._uses: Counter[str] = Counter()
        self._together: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._kept: dict[object, _Episode] = {}
        self._clear()

    def _clear(self) -> None:
        self._requests = WordIndex()
        # By number of the request; empty if the episode was removed, because an index does not remove texts.
        self._tools: list[frozenset[str]] = []

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, tools: Iterable[str], request: str = "", *, key: str | None = None) -> None:
        """Add an episode, or replace one with its key; an episode without calls is ignored."""
        called, words = frozenset(tools), tuple(telling_stems(request[: REQUEST_LIMITS.chars]))
        # An episode without a key replaces no other.
        own_key: object = key
        if key is None:
            own_key = object()
        with self._lock:
            self._remove(own_key)
            if called:
                self._kept[own_key] = _Episode(words, called, self._enter(words, called))
                self._count(called, 1)

    def remove(self, keys: Iterable[object]) -> None:
        """Remove episodes; unknown keys are ignored."""
        with self._lock:
            for key in keys:
                self._remove(key)

    def keep_latest(self, most: int) -> None:
        """Remove the oldest episodes until this number is left."""
        # A dict keeps the order of insertion, and a replaced episode goes to the end.
        surplus = max(0, len(self._kept) - most)
        self.remove(list(self._kept)[:surplus])

    def votes(self, request: str) -> dict[str, float]:
        """Return the tools that were called for similar requests, with their share of the votes."""
        words = telling_stems(request[: REQUEST_LIMITS.chars])
        with self._lock:
            if not words or not self._tools:
                return {}
            near = self._requests.nearest(words)
            votes: defaultdict[str, float] = defaultdict(float)
            total = VOTES.doubt
            for number in islice(self._voters(near), VOTES.nearest):
                weight = float(near[number]) ** VOTES.sharpness
                total += weight
                for tool in self._tools[number]:
                    votes[tool] += weight
            return {tool: weight / total for tool, weight in votes.items()}

    def _voters(self, near: Floats) -> Iterator[int]:
        """Yield the numbers of the requests that share words with a new one, the most similar first."""
        for number in np.argsort(-near, kind="stable"):
            # An index does not remove texts: those of removed episodes have no tools.
            if self._tools[number] and near[number]:
                yield number

    def lift(self, request: str) -> dict[str, float]:
        """Return the additions to the logarithm of the odds that `ToolSearcher.search` takes as `lift`."""
        # Runs of other tasks lift R@5 of new ones from 69.0 to 84.8 (office), and by -.2 to 9.8 on three other sets.
        return {tool: VOTES.lift * vote for tool, vote in self.votes(request).items()}

    def company(self, tool: str) -> dict[str, float]:
        """Return the share of a tool's episodes in which each other tool was called too."""
        with self._lock:
            # One more use than counted: a tool that was called once is weak evidence.
            uses = self._uses[tool] + 1
            return {name: count / uses for name, count in self._together[tool].items()}

    def _remove(self, key: object) -> None:
        known = self._kept.pop(key, None)
        if known is None:
            return
        self._count(known.tools, -1)
        self._tools[known.number] = frozenset()
        # If more than half of the index is of removed episodes, it is rebuilt.
        if len(self._tools) > 64 + 2 * len(self._kept):
            self._clear()
            for other, episode in self._kept.items():
                self._kept[other] = episode._replace(number=self._enter(episode.words, episode.tools))

    def _enter(self, words: tuple[str, ...], tools: frozenset[str]) -> int:
        self._tools.append(tools)
        return self._requests.add(words)

    def _count(self, tools: Collection[str], sign: int) -> None:
        for tool in tools:
            self._uses[tool] += sign
            others = self._together[tool]
            for name in tools:
                if name != tool:
                    others[name] += sign
            gone = [name for name, count in others.items() if not count]
            for name in gone:
                del others[name]


def called_before(
    search: ToolSearcher,
    query: str,
    target: str,
    k: int,
    *,
    precedents: Precedents,
    available: Collection[str] | None = None,
    exclude: Collection[str] = (),
) -> list[ToolHit]:
    """Return the k tools most likely called before a target, best first; never the target itself.

    Four signals: how well a tool fits the request, whether it is of the target's toolkit, whether similar requests
    called it, and whether it was called together with the target or with the tools that fit the request best.

    Args:
        precedents: recorded runs.
        available: names that may be found. Defaults to all.
        exclude: names that are not found.
    """
    # A copy: another thread may add or remove tools meanwhile.
    specs = dict(search.specs)
    scores, kit = search.scores(query), kit_of(specs[target])
    fit = _distance_to_best(scores, specs.keys() - {target})
    company = _company(target, fit, precedents)
    votes = precedents.votes(query)
    logits: dict[str, float] = {}
    for name in fit:
        if name in exclude:
            continue
        if available is not None and name not in available:
            continue
        same_kit = bool(kit) and kit_of(specs[name]) == kit
        signals = np.array((fit[name] / 5, same_kit, votes.get(name, 0.0), company.get(name, 0.0)))
        logits[name] = sum((WEIGHTS * signals).tolist())
    likeliest = sorted(logits, key=logits.__getitem__, reverse=True)[:k]
    hits: list[ToolHit] = []
    for name in likeliest:
        hits.append(ToolHit(name, probability(logits[name] + INTERCEPT), kit_name(specs[name])))
    return hits


def _distance_to_best(scores: Mapping[str, float], names: Collection[str]) -> dict[str, float]:
    """Return the score of each of some tools minus the highest of theirs: 0 for the best one, less for others."""
    best = max((scores[name] for name in names if name in scores), default=0.0)
    distances: dict[str, float] = {}
    for name, score in scores.items():
        if name in names:
            distances[name] = score - best
    return distances


def _company(target: str, fit: Mapping[str, float], precedents: Precedents) -> dict[str, float]:
    """Return how often each tool was called with the target, or with a tool that fits the request best."""
    likely = {target: 1.0}
    # Odds relative to the best: common use with a tool that barely fits counts little.
    for name in sorted(fit, key=fit.__getitem__, reverse=True)[:COMPANIONS]:
        likely[name] = float(np.exp(fit[name]))
    company: defaultdict[str, float] = defaultdict(float)
    for other, weight in likely.items():
        for name, share in precedents.company(other).items():
            company[name] = max(company[name], weight * share)
    return company


class _FollowedRuns(NamedTuple):
    """Past runs, the version up to which they were read, and their precedents."""

    runs: PastRuns
    version: int
    precedents: Precedents


class PrecedentCache:
    """The precedents of each user scope, in step with its past runs. Not safe for threads: the owner holds a lock."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, ...], _FollowedRuns] = {}

    def of(self, scope: tuple[str, ...], runs: PastRuns) -> Precedents:
        """Return the precedents of a scope (its namespace)."""
        followed = self._kept.pop(scope, None)
        # Runs that were read again since have other versions.
        if followed is None or followed.runs != runs:
            followed = _FollowedRuns(runs, 0, Precedents())
        precedents = followed.precedents
        new = runs.changes(followed.version, MAX_PRECEDENTS)
        if new.whole:
            precedents = Precedents()
        precedents.remove(new.gone)
        for run in sorted(new.runs, key=_time_and_id)[-MAX_PRECEDENTS:]:
            called = run.tools
            # A failed run is not a precedent, and replaces its earlier version.
            if run.failed:
                called = ()
            precedents.add(called, run.request, key=run.id)
        precedents.keep_latest(MAX_PRECEDENTS)
        # Put at the end, so that the first scope is the least recently used.
        self._kept[scope] = _FollowedRuns(runs, new.version, precedents)
        drop_oldest(self._kept, MAX_SCOPES)
        return precedents


def _time_and_id(run: PastRun) -> tuple[float, str]:
    return run.time, run.id
