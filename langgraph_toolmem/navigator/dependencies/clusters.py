"""Parameters of many tools merged into clusters of one meaning, one after another and without comparing all pairs.

A value joins, in this order [O]:

1. the cluster of its alias, a name that the program gave it;
2. the cluster of the same words and shape;
3. given an embedder: the nearest cluster, from a stated cosine on, if both or neither are identifiers;
4. a new one.

By words alone, clusters are the same in whatever order tools come.

Every member keeps the reason it is there, so that a cluster can be explained. Words are
looked up in inverted indexes: what one value costs does not depend on the number of clusters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, Literal

from langgraph_toolmem.text.meaning import GENERIC, IDENTIFIERS, Port
from langgraph_toolmem.text.words import stem

if TYPE_CHECKING:
    from langgraph_toolmem.navigator.dependencies.vectors import ParameterVectors

Reason = Literal["first", "words", "embedding", "alias"]

_REASONS: Final[dict[Reason, str]] = {
    "first": "opened the cluster",
    "words": "same words",
    "embedding": "similar meaning (embedder)",
    "alias": "alias",
}
_EXAMPLES: Final = 3
_HUB: Final = 1_000
"""A word that so many clusters share tells none of them apart."""


class Cluster:
    """One parameter node: the ports that mean the same.

    Attributes:
        id: a number that is never given twice.
        label: what it is called.
        words: the words its members share.
        members: port -> why it is here, by the port's key.
        producers: tool -> its outputs here.
        consumers: tool -> its inputs here.
    """

    __slots__ = ("consumers", "id", "label", "members", "named", "producers", "words")

    def __init__(self, number: int, label: str, words: frozenset[str], *, named: bool = False) -> None:
        self.id = number
        self.label = label
        self.words = words
        self.named = named
        self.members: dict[tuple[str, str, str], tuple[Port, Reason]] = {}
        self.producers: dict[str, list[Port]] = {}
        self.consumers: dict[str, list[Port]] = {}

    def __repr__(self) -> str:
        return f"Cluster({self.id}, {self.label!r}, {len(self.members)} members)"

    @property
    def vague(self) -> bool:
        """Nothing says of what its members are the id, name, count …"""
        return not self.named and self.words <= GENERIC

    def add(self, port: Port, reason: Reason) -> None:
        """Takes a port in."""
        self.members[port.key] = (port, reason)
        side = self.producers if port.direction == "out" else self.consumers
        side.setdefault(port.tool, []).append(port)

    def discard(self, port: Port) -> None:
        """Lets a port go."""
        if self.members.pop(port.key, None) is None:
            return
        side = self.producers if port.direction == "out" else self.consumers
        side[port.tool] = [other for other in side[port.tool] if other.key != port.key]
        if not side[port.tool]:
            del side[port.tool]

    def explain(self) -> str:
        """Why these ports are one parameter, in a few lines."""
        lines = [
            f"{self.label}: {sum(map(len, self.consumers.values()))} inputs of {len(self.consumers)} tools, "
            f"{sum(map(len, self.producers.values()))} outputs of {len(self.producers)} tools"
        ]
        by_reason: dict[Reason, list[Port]] = {}
        for port, reason in self.members.values():
            by_reason.setdefault(reason, []).append(port)
        for reason, ports in by_reason.items():
            shown = ", ".join(f"{port.tool}.{port.path or '(result)'}" for port in ports[:_EXAMPLES])
            more = f" and {len(ports) - _EXAMPLES} more" if len(ports) > _EXAMPLES else ""
            lines.append(f"  {_REASONS[reason]}: {shown}{more}")
        return "\n".join(lines)


class Clusters:
    """All parameter nodes.

    Args:
        aliases: "tool.path" of an input or output -> the name of its parameter.
        vectors: meanings of parameters; None: words alone.
    """

    def __init__(self, aliases: Mapping[str, str] | None = None, *, vectors: ParameterVectors | None = None) -> None:
        self.aliases = dict(aliases or {})
        self.by_id: dict[int, Cluster] = {}
        self.of_port: dict[tuple[str, str, str], Cluster] = {}
        self._keys: dict[tuple[frozenset[str], str], Cluster] = {}
        self._named: dict[str, Cluster] = {}
        self._stems: dict[str, dict[int, float]] = {}
        self._vectors = vectors
        self._centres: dict[str, list[int]] = {}  # text -> clusters whose first port with a vector has it
        self._centre_of: dict[int, str] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self.by_id)

    def prepare(self, ports: Iterable[Port], *, again: bool = True) -> None:
        """Embeds the meanings of many ports at once; see `ParameterVectors.prepare`."""
        if self._vectors is not None:
            self._vectors.prepare(ports, again=again)

    def add(self, port: Port) -> Cluster:
        """Puts a port into its cluster and returns that."""
        alias = self._alias(port)
        if alias is not None:
            cluster = self._named.get(alias)
            if cluster is None:
                cluster = self._named[alias] = self._new(alias, port.meaning.words, named=True)
            reason: Reason = "alias"
        else:
            found, reason = self._find(port)
            cluster = found or self._open(port)
        cluster.add(port, reason)
        self.of_port[port.key] = cluster
        if not cluster.named and cluster.id not in self._centre_of and (near := self._near(port)):
            self._centre_of[cluster.id] = near[0]
            self._centres.setdefault(near[0], []).append(cluster.id)
        return cluster

    def remove(self, port: Port) -> None:
        """Takes a port out; a cluster that is left empty goes."""
        cluster = self.of_port.pop(port.key, None)
        if cluster is None:
            return
        cluster.discard(port)
        if cluster.members:
            return
        del self.by_id[cluster.id]
        self._named.pop(cluster.label, None) if cluster.named else self._close(cluster)
        for word in _stems(cluster.words):
            row = self._stems[word]
            del row[cluster.id]
            if not row:
                del self._stems[word]
        if (text := self._centre_of.pop(cluster.id, None)) is not None:
            self._centres[text].remove(cluster.id)

    def find(self, port: Port) -> Cluster | None:
        """The cluster a port would join; None if it would open one. Nothing changes."""
        alias = self._alias(port)
        return self._named.get(alias) if alias is not None else self._find(port)[0]

    def near(self, port: Port, k: int = 5) -> list[tuple[Cluster, float]]:
        """Clusters that share words with a port without being its own, most similar first, with a cosine from 0 to 1.

        Words that few clusters have weigh more; those that more than 1,000 have are not looked at.
        """
        own = self.of_port.get(port.key)
        total = len(self.by_id) + 1
        scores: dict[int, float] = {}
        length = 0.0
        for word in _stems(port.meaning.words | port.meaning.context):
            row = self._stems.get(word, {})
            idf = math.log1p(total / (1 + len(row)))
            length += idf * idf
            if len(row) <= _HUB:
                for number in row:
                    scores[number] = scores.get(number, 0.0) + idf * idf
        if own is not None:
            scores.pop(own.id, None)
        ranked = [
            (self.by_id[number], score / (math.sqrt(length) * self._length(number, total)))
            for number, score in scores.items()
        ]
        ranked.sort(key=lambda found: (-found[1], found[0].id))
        return [(cluster, min(1.0, score)) for cluster, score in ranked[:k] if score > 0]

    def _alias(self, port: Port) -> str | None:
        return self.aliases.get(f"{port.tool}.{port.path}")

    def _length(self, number: int, total: int) -> float:
        found = 0.0
        for word in _stems(self.by_id[number].words):
            found += math.log1p(total / (1 + len(self._stems[word]))) ** 2
        return math.sqrt(found) or 1.0

    def _find(self, port: Port) -> tuple[Cluster | None, Reason]:
        meaning = port.meaning
        if found := self._keys.get((meaning.words, meaning.shape)):
            return found, "words"
        for text in self._near(port):
            for number in self._centres.get(text, ()):
                if _may_join(self.by_id[number], port):
                    return self.by_id[number], "embedding"
        return None, "first"

    def _open(self, port: Port) -> Cluster:
        cluster = self._new(port.meaning.label, port.meaning.words)
        self._keys[port.meaning.words, port.meaning.shape] = cluster
        return cluster

    def _near(self, port: Port) -> list[str]:
        return [] if self._vectors is None or port.meaning.vague else self._vectors.near(port)

    def _new(self, label: str, words: frozenset[str], *, named: bool = False) -> Cluster:
        cluster = self.by_id[self._next] = Cluster(self._next, label, words, named=named)
        for word in _stems(words):
            self._stems.setdefault(word, {})[self._next] = 1.0
        self._next += 1
        return cluster

    def _close(self, cluster: Cluster) -> None:
        for shape in ("scalar", "flag", "object"):
            if self._keys.get((cluster.words, shape)) is cluster:
                del self._keys[cluster.words, shape]


def _may_join(cluster: Cluster, port: Port) -> bool:
    first = next(iter(cluster.members.values()))[0].meaning
    return first.shape == port.meaning.shape and bool(cluster.words & IDENTIFIERS) == bool(
        port.meaning.words & IDENTIFIERS
    )


def _stems(words: Iterable[str]) -> list[str]:
    return sorted({stem(word) for word in words})
