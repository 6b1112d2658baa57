"""The tools that have to be called before a given one: what completes a chain.

Known are the request and the tool it ends with. Seven signals are weighed: how well a tool fits the request
(`ToolSearch`), how often it came before the target in recorded runs, whether similar requests called it and whether
it was called together with what else fits the request (`Precedents`), whether it gives out what the target takes in,
whether both are of one toolkit, and how likely it feeds the target as far as that was learned (`navigator.learned`).
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from langgraph_toolmem.base import threads
from langgraph_toolmem.navigator.tool_search.hit import ToolHit, largest_first
from langgraph_toolmem.navigator.tool_search.index import Floats
from langgraph_toolmem.navigator.tool_search.precedents import Precedents, Rates
from langgraph_toolmem.navigator.tool_search.search import ToolSearch
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.tools import kit_name, kit_of
from langgraph_toolmem.text.words import stem, words

SIGNALS: Final = (
    "request",
    "came before",
    "gives what it takes",
    "same toolkit",
    "similar requests",
    "came with",
    "learned link",
)
WEIGHTS: Final[Floats] = np.array([5.55, 0.38, 0.43, 2.03, 5.06, 2.51, 0.0], dtype=np.float32)
"""Fitted like those of `ranking`, on one half of the tasks of two public sets of recorded calls."""
WEIGHTS_WITH_LINKS: Final[Floats] = np.array([5.38, 0.37, 0.59, 2.52, 5.57, 2.28, 1.26], dtype=np.float32)
"""The same where links were learned."""
_ODDS: Final = (1.2, -1.47)
_ODDS_WITH_LINKS: Final = (1.15, -2.18)
FOUND: Final = 6
"""Tools that fit the request best, whose company is looked at."""
MAX_DEPTH: Final = 8
MAX_OUTPUTS: Final = 200
ENOUGH: Final = 2.5
"""Rarity from which a shared word makes two names the same: "id" alone does not."""
OPTIONAL: Final = 0.5
"""What an optional parameter counts."""


class PrerequisiteSearch:
    """Finds what comes before a tool. Follows the tools of the search it is given. Safe for threads.

    Args:
        precedents: recorded runs; None: there are none.
    """

    def __init__(self, search: ToolSearch, precedents: Precedents | None = None) -> None:
        self.tools = search
        self.precedents = precedents if precedents is not None else Precedents()
        self._outputs = _Outputs()
        self._lock = threads.lock()

    def note_outputs(self, paths: Mapping[str, Iterable[str]]) -> None:
        """Return what runs showed of results, beside what schemas declare: tool -> paths such as ``items[].order_id``.

        Takes the place of what was noted of these tools before.
        """
        with self._lock:
            self._outputs.note(paths)

    def search(
        self,
        query: str,
        target: str,
        k: int = 10,
        *,
        exclude: Collection[str] = (),
        precedents: Precedents | None = None,
        likely: Mapping[str, float] | None = None,
    ) -> list[ToolHit]:
        """The k tools most likely called before the target, best first; never the target itself.

        Args:
            exclude: names that are not looked for.
            precedents: recorded runs for this question; those of the search if None.
            likely: how likely tools feed the target, as far as that was learned.

        Raises:
            KeyError: there is no tool of that name.
        """
        return self._ranked(query, target, self.tools.sums(query), k, exclude, precedents, likely or {})

    async def asearch(
        self,
        query: str,
        target: str,
        k: int = 10,
        *,
        exclude: Collection[str] = (),
        precedents: Precedents | None = None,
        likely: Mapping[str, float] | None = None,
    ) -> list[ToolHit]:
        """Async variant of `search`."""
        return self._ranked(query, target, await self.tools.asums(query), k, exclude, precedents, likely or {})

    def signals(self, query: str, target: str, likely: Mapping[str, float] | None = None) -> tuple[list[str], Floats]:
        """Names of the tools (N) and their signals (7, N) as SIGNALS, for fitting the weights."""
        return self._signals(query, target, self.tools.sums(query), self.precedents, likely or {})

    def _signals(
        self,
        query: str,
        target: str,
        fit: tuple[list[str], Floats],
        precedents: Precedents,
        likely: Mapping[str, float],
    ) -> tuple[list[str], Floats]:
        names, sums = fit
        specs = self.tools.specs()
        wanted = specs[target]
        names = [name for name in names if name in specs]
        if len(names) != len(sums):  # a tool went in between
            sums = np.array([value for name, value in zip(fit[0], sums, strict=True) if name in specs])
        others = np.array([name != target for name in names])
        best = float(sums[others].max(initial=-math.inf)) if others.any() else 0.0
        with self._lock:
            self._outputs.follow(specs)
            given = self._outputs.giving(wanted)
        kit = kit_of(wanted)
        votes, rates = precedents.votes(query), precedents.rates(names)
        found = np.stack(
            [
                (sums - best) / 5,
                np.log(rates.before(target)),
                np.array([given.get(name, 0.0) for name in names]),
                np.array([bool(kit) and kit_of(specs[name]) == kit for name in names]),
                np.array([votes.get(name, 0.0) for name in names]),
                self._company(target, names, rates, np.exp(np.minimum(sums - best, 0))),
                np.array([likely.get(name, 0.0) for name in names]),
            ]
        ).astype(np.float32)
        return names, found

    def _company(self, target: str, names: list[str], rates: Rates, likely: Floats) -> Floats:
        """max over the likeliest others u of likely(u) · p(called with u)."""
        likely = np.where(np.array([name == target for name in names]), 1.0, likely)
        best = np.zeros(len(names))
        for place in np.argsort(-likely, kind="stable")[:FOUND]:
            best = np.maximum(best, likely[place] * rates.together(names[place]))
        found: Floats = best.astype(np.float32)
        return found

    def _ranked(
        self,
        query: str,
        target: str,
        fit: tuple[list[str], Floats],
        k: int,
        exclude: Collection[str],
        precedents: Precedents | None,
        likely: Mapping[str, float],
    ) -> list[ToolHit]:
        given = self.precedents if precedents is None else precedents
        names, found = self._signals(query, target, fit, given, likely)
        weights = WEIGHTS_WITH_LINKS if likely else WEIGHTS
        scores = weights @ found
        barred = {target, *exclude}
        order = [int(place) for place in np.argsort(-scores, kind="stable") if names[place] not in barred]
        specs = self.tools.specs()
        return [
            ToolHit(
                names[place],
                probability(float(scores[place]), links=bool(likely)),
                self.tools.text(names[place]),
                kit_name(specs[names[place]]),
                "",
                largest_first(
                    {label: float(part) for label, part in zip(SIGNALS, weights * found[:, place], strict=True)}
                ),
            )
            for place in order[: max(k, 0)]
            if names[place] in specs
        ]


def probability(score: float, *, links: bool = False) -> float:
    """That a tool of this weighted sum comes before the target; see `ranking.probability`."""
    slope, intercept = _ODDS_WITH_LINKS if links else _ODDS
    return 1 / (1 + math.exp(-max(-50.0, min(50.0, slope * score + intercept))))


class _Outputs:
    """Names of what tools give out, declared or seen, by their words."""

    def __init__(self) -> None:
        self._seen: dict[str, list[str]] = {}
        self._stale: set[str] = set()  # tools of which something else was noted since they were read
        self._clear()

    def _clear(self) -> None:
        self._specs: dict[str, ToolSpec] = {}
        self._words: dict[str, set[str]] = {}  # of inputs and outputs, by tool
        self._owners: list[str] = []
        self._parts: list[frozenset[str]] = []  # of each output
        self._at: dict[str, array[int]] = {}  # word -> outputs
        self._uses: Counter[str] = Counter()  # tools that have a word in an input or output

    def note(self, paths: Mapping[str, Iterable[str]]) -> None:
        """See `PrerequisiteSearch.note_outputs`."""
        for tool, each in paths.items():
            names = sorted({part for path in each for part in path.replace("[]", "").split(".") if part})
            if names != self._seen.get(tool, []):
                self._seen[tool] = names
                self._stale.add(tool)

    def follow(self, specs: Mapping[str, ToolSpec]) -> None:
        """These are the tools now. What a tool that went gave out is passed over until half of all is such."""
        gone = {name for name, spec in self._specs.items() if specs.get(name) is not spec or name in self._stale}
        self._stale.clear()
        for name in gone:
            del self._specs[name]
            self._uses.subtract(self._words.pop(name))
        if gone:
            self._owners = ["" if owner in gone else owner for owner in self._owners]
        if self._owners.count("") * 2 > len(self._owners):
            self._clear()
        for name in specs.keys() - self._specs.keys():
            spec = specs[name]
            given = {*outputs(spec), *self._seen.get(name, ())}
            self._specs[name] = spec
            self._words[name] = {word for said in (*spec.properties, *given) for word in _parts(said)}
            self._uses.update(self._words[name])
            for parts in {_parts(output) for output in given} - {frozenset()}:
                for word in parts:
                    self._at.setdefault(word, array("i")).append(len(self._parts))
                self._parts.append(parts)
                self._owners.append(name)

    def giving(self, target: ToolSpec) -> dict[str, float]:
        """By tool, how well one of its outputs fits one of the target's parameters by name, 0 to 1.

        Twice the shared rarity over the rarity of both names (Dice), less where what is shared is usual.
        """
        best: dict[str, float] = {}
        for name, schema in target.properties.items():
            if "enum" in schema or schema.get("type") == "boolean":
                continue  # a choice, not a value that another tool gives
            wanted = _parts(name)
            shared: dict[int, float] = {}
            for word in wanted:
                rarity = self._rarity(word)
                for place in self._at.get(word, ()):
                    shared[place] = shared.get(place, 0.0) + rarity
            whole = sum(map(self._rarity, wanted))
            for place, common in shared.items():
                owner = self._owners[place]
                if not owner or owner == target.name:
                    continue
                dice = 2 * common / (whole + sum(map(self._rarity, self._parts[place])))
                fit = dice * min(1.0, common / ENOUGH) * (1.0 if name in target.required else OPTIONAL)
                if fit > best.get(owner, 0.0):
                    best[owner] = fit
        return best

    def _rarity(self, word: str) -> float:
        return math.log(1 + len(self._specs) / (self._uses[word] + 0.5))


def outputs(spec: ToolSpec) -> list[str]:
    """Names of the fields that a tool declares to give out, however deep; at most MAX_OUTPUTS."""
    return [name for _, name in zip(range(MAX_OUTPUTS), _names(spec.returns, 0), strict=False)]


def _names(schema: Any, depth: int) -> Iterator[str]:
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        for name, inner in properties.items():
            yield str(name)
            yield from _names(inner, depth + 1)
    yield from _names(schema.get("items"), depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        choices = schema.get(key)
        if isinstance(choices, list):
            for choice in choices:
                yield from _names(choice, depth + 1)


def _parts(name: str) -> frozenset[str]:
    return frozenset(stem(word) for word in words(name))
