"""What recorded runs say about which tools are used together: before a given tool, and for a similar request.

An episode is what followed one user message: the tools that were called, in order. Nothing here is believed on thin
evidence. How often a tool came before another is a share that starts at how often it is used at all, and similar
requests count by how often they were right before: each episode is first foretold from those before it, then learned.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.navigator import clauses
from langgraph_toolmem.navigator.search_index import K1, WordIndex
from langgraph_toolmem.navigator.search_text import Fields, stems

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


class Precedents:
    """Episodes, counted. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uses: Counter[str] = Counter()
        self._before: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._together: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._episodes = 0
        self._requests = WordIndex()
        self._tools: list[frozenset[str]] = []
        self._right = [TRUST[0]] * STEPS
        self._votes = [TRUST[1]] * STEPS

    def __len__(self) -> int:
        return self._episodes

    def add(self, tools: Sequence[str], request: str = "") -> None:
        """One more episode: the tools called, in order, and what the user asked for. No call, nothing learned."""
        if not tools:
            return
        called = frozenset(tools)
        with self._lock:
            words = tuple(stems(request[: clauses.MAX_CHARS]))
            if words:
                self._check(words, called)
                self._requests.add(Fields((), words, (), (), (), ()), 0)
                self._tools.append(called)
            self._episodes += 1
            self._uses.update(called)
            seen: dict[str, None] = {}
            earlier: dict[str, frozenset[str]] = {}
            for tool in tools:
                earlier[tool] = frozenset(seen) - {tool}  # before its last call
                seen[tool] = None
            for tool, others in earlier.items():
                self._before[tool].update(others)
                self._together[tool].update(called - {tool})

    def seen(self, target: str) -> int:
        """Episodes in which a tool was called."""
        return self._uses[target]

    def before(self, target: str, names: Sequence[str]) -> Floats:
        """For each name, how likely it is called before the target, where that is called.

        (N(name before target) + PRIOR · p(name)) / (N(target) + PRIOR), with p(name) the share of all episodes that
        call it.
        """
        return self.rates(names).before(target)

    def together(self, other: str, names: Sequence[str]) -> Floats:
        """For each name, how likely it is called in an episode with another tool; as `before`."""
        return self.rates(names).together(other)

    def rates(self, names: Sequence[str]) -> Rates:
        """The same for several questions about one list of names."""
        return Rates(self, names)

    def votes(self, request: str) -> dict[str, float]:
        """Tools that were called for similar requests, each 0 to 1, weighed by how often such votes were right."""
        words = tuple(stems(request[: clauses.MAX_CHARS]))
        with self._lock:
            found, step = self._vote(words)
            trust = self._right[step] / self._votes[step]
            return {tool: trust * share for tool, share in found.items()}

    def lift(self, request: str) -> dict[str, float]:
        """LIFT times `votes`: what `ToolSearch.search` takes as `lift`."""
        return {tool: LIFT * vote for tool, vote in self.votes(request).items()}

    def record(self) -> list[tuple[float, float]]:
        """Votes that were right, and all votes, by grade of similarity, the least first; TRUST included."""
        with self._lock:
            return list(zip(self._right, self._votes, strict=True))

    def _check(self, words: Sequence[str], called: frozenset[str]) -> None:
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
    """How likely each of some tools is called before, or with, another one."""

    def __init__(self, precedents: Precedents, names: Sequence[str]) -> None:
        self._precedents = precedents
        self._places = {name: place for place, name in enumerate(names)}
        with precedents._lock:
            uses, episodes = precedents._uses, precedents._episodes
            self._usual = np.array([uses[name] + 0.5 for name in names], dtype=np.float64) / (episodes + 1)

    def before(self, target: str) -> Floats:
        """As `Precedents.before`."""
        return self._of(self._precedents._before, target)

    def together(self, other: str) -> Floats:
        """As `Precedents.together`."""
        return self._of(self._precedents._together, other)

    def _of(self, table: Mapping[str, Mapping[str, int]], tool: str) -> Floats:
        found = PRIOR * self._usual
        with self._precedents._lock:
            for name, times in table.get(tool, {}).items():
                if name in self._places:
                    found[self._places[name]] += times
            found /= self._precedents._uses[tool] + PRIOR
        return found
