"""Tools that may do what a failed one does, by what they are said to do: the tool's own text is the query.

Two rankings are joined: the cosine of the two tools' words, those of names, descriptions and parameters, rare ones
weighing more; and what a search of the memory finds with the failed tool's description. What only reads never takes
the place of what writes, nor the other way round. No schema of outputs is needed and no history, so this works from the
first run on, where a graph of parameters knows nothing yet.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from langgraph_toolmem.runs.tools import ToolSpec, side_effects
from langgraph_toolmem.text.meaning import READING, STRICT_VERBS, canonical, canonical_words, verb_of
from langgraph_toolmem.text.words import STOP_WORDS, stem, words

MOST: Final = 8
"""Fallbacks that a failure brings, at most."""
LEAST: Final = 0.08
"""Cosine from which two tools have anything to do with each other."""
POOL: Final = 600
"""Among so many tools all are compared; among more, as many as a search finds."""
MAX_TEXT: Final = 1_000
_RANK: Final = 10
"""Constant of the reciprocal rank fusion: 1 / (10 + rank)."""
_PARAMETERS: Final = 0.5
"""Weight of a word of a parameter, against one of the name or the description."""
_ANY: Final = STRICT_VERBS.union(STOP_WORDS)

Search = Callable[[str, int], Sequence[str]]
"""What finds the names of tools for a text, the best first, so many at most."""


class Fallbacks:
    """Finds tools that may take the place of a failed one.

    Args:
        specs: the tools by name.
        search: searches among them; it answers with nothing where it fails.
    """

    def __init__(self, specs: Mapping[str, ToolSpec], search: Search) -> None:
        self._specs, self._search = specs, search
        self._bags: dict[str, Mapping[str, float]] = {}

    def of(self, tool: str, allowed: Collection[str], *, most: int = MOST) -> list[str]:
        """Return the tools that are most like one, the most similar first; none with other side effects.

        Args:
            tool: which one is to be replaced.
            allowed: names of the tools that are looked at.
            most: so many at most.
        """
        spec = self._specs.get(tool)
        if spec is None:
            return []
        found = [name for name in self._search(_text(spec), POOL) if name in self._specs]
        there = [name for name in (self._specs if len(self._specs) <= POOL else found) if name in allowed]
        kin = [name for name in there if name != tool and _akin(spec, self._specs[name])]
        scores = self._cosines(tool, kin)
        similar = [name for name in sorted(kin, key=lambda name: -scores[name]) if scores[name] >= LEAST]
        searched = [name for name in found if scores.get(name, 0.0) >= LEAST]
        joined: Counter[str] = Counter()
        for ranking in (similar, searched):
            for rank, name in enumerate(ranking):
                joined[name] += 1 / (_RANK + rank)  # type: ignore[assignment]
        return sorted(joined, key=lambda name: (-joined[name], name))[:most]

    def _cosines(self, tool: str, others: Sequence[str]) -> dict[str, float]:
        bags = {name: self._bag(name) for name in (tool, *others)}
        shared = Counter(word for bag in bags.values() for word in bag)
        rarity = {word: math.log(1 + len(bags) / count) for word, count in shared.items()}
        own = {word: weight * rarity[word] for word, weight in bags[tool].items()}
        length = _length(own.values())
        found = {}
        for name in others:
            bag = {word: weight * rarity[word] for word, weight in bags[name].items()}
            product = sum(weight * bag[word] for word, weight in own.items() if word in bag)
            found[name] = product / ((length * _length(bag.values())) or 1.0)
        return found

    def _bag(self, tool: str) -> Mapping[str, float]:
        """Word -> weight, by how often it is said; words of any text and verbs of any tool are left out."""
        bag = self._bags.get(tool)
        if bag is None:
            spec, counts = self._specs[tool], dict[str, float]()
            said = [(canonical(spec.name), 1.0), (_words(spec.description), 1.0)]
            for name, schema in spec.properties.items():
                said += [(canonical(name), _PARAMETERS), (_words(str(schema.get("description", ""))), _PARAMETERS)]
            for text, weight in said:
                for word in text:
                    if word not in _ANY:
                        counts[stem(word)] = counts.get(stem(word), 0.0) + weight
            bag = self._bags[tool] = {word: 1 + math.log(1 + count) for word, count in counts.items()}
        return bag


def _akin(one: ToolSpec, other: ToolSpec) -> bool:
    """Return True if two tools do the same to the world. If nobody declared them, their verbs have to agree as well."""
    effects = side_effects(one)
    if effects != side_effects(other) or effects != "changes":
        return effects == side_effects(other)
    verbs = [verb in READING for spec in (one, other) if (verb := verb_of(spec.name))]
    return len(set(verbs)) < 2


def _text(spec: ToolSpec) -> str:
    return " ".join(f"{spec.name} {spec.description}".split())[:MAX_TEXT]


def _words(text: str) -> Sequence[str]:
    return canonical_words(words(text[:MAX_TEXT]))


def _length(weights: Collection[float]) -> float:
    return math.sqrt(sum(weight * weight for weight in weights))
