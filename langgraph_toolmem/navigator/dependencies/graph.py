"""The tool dependency graph: API nodes and parameter nodes (NaviAgent, arXiv 2506.19500, section 2).

A parameter node represents all inputs and outputs of the same meaning [P]: those with one alias, otherwise those with
the same words and shape [O]. (In the paper an embedder finds equal meanings; with all-MiniLM-L6-v2 this did not improve
a plan of six recorded sets.) Structural edges lead from a parameter to the APIs that take it and from an API to the
parameters it gives. Behavioural edges are counts in `History` and are read when a link is weighed. Adding or removing a
tool changes only its own ports, and the order of tools does not matter.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.navigator.dependencies.links import Link
from langgraph_toolmem.navigator.dependencies.nodes import ApiNode, Cluster, Key
from langgraph_toolmem.navigator.dependencies.routes import RouteIndex
from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.meaning import Port, entity_of, resource
from langgraph_toolmem.text.words import LEXICON, rarity

logger = logging.getLogger("langgraph_toolmem.navigator.dependencies.graph")

MAX_PRODUCERS: Final = 64
"""Limit of producers of one parameter for one consumer: tools whose names share words with it come first."""
NEXT_TO_A_ROUTE: Final = 8
"""The same if the paths of the tools name the producer."""


class ToolDependencyGraph:
    """APIs, parameters, and the links between them.

    Several threads may read it while it is unchanged; changes need a lock.

    Args:
        specs: the tools. Of two with the same name the later is used, and the log says so.
        aliases: "tool.path" of an input or output -> the name of its parameter; equal names are one parameter.
        observed: tool -> path -> JSON types of results that runs showed; see `note_outputs`.

    Attributes:
        apis: the tools by name.
        clusters: the parameters by key.
        left_out: the tools that are not producers, by `exclude`.
    """

    def __init__(
        self,
        specs: Iterable[ToolSpec] = (),
        *,
        aliases: Mapping[str, str] | None = None,
        observed: Mapping[str, Mapping[str, Iterable[str]]] | None = None,
    ) -> None:
        self.apis: dict[str, ApiNode] = {}
        self.clusters: dict[Key, Cluster] = {}
        self.left_out: frozenset[str] = frozenset()
        self._aliases = dict(aliases or {})
        self._observed: dict[str, dict[str, frozenset[str]]] = {}
        for tool, paths in (observed or {}).items():
            self._observed[tool] = _frozen(paths)
        self._routes = RouteIndex(self.apis)
        self._by_word: dict[str, dict[str, None]] = {}
        self._keys: dict[str, set[Key]] = {}  # of a tool's ports, as they were when it was added
        self._rarities: dict[frozenset[str], float] = {}  # of words together, as they are asked for
        self.update(specs)

    def __len__(self) -> int:
        return len(self.apis)

    def __contains__(self, tool: object) -> bool:
        return tool in self.apis

    # --- tools ---

    def update(self, specs: Iterable[ToolSpec]) -> None:
        """Add tools; one takes the place of the one with its name."""
        given = list(specs)
        counts = Counter(spec.name for spec in given)
        twice = [name for name, count in counts.items() if count > 1]
        if twice:
            logger.warning("%d tools have the name of another one (%s); the later counts", len(twice), twice[0])
        for spec in given:
            self._add(spec)

    def _add(self, spec: ToolSpec) -> None:
        name = spec.name
        self.remove(name)
        seen: Mapping[str, Iterable[str]] | None = self._observed.get(name, {})
        # A watch never answers, so it is not a producer.
        if name in self.left_out or spec.streams:
            seen = None
        node = ApiNode.of(spec, seen)
        keys = self._keys[name] = set()
        for port in node.ports():
            key = self.key_of(port)
            cluster = self.clusters.get(key)
            if cluster is None:
                cluster = self.clusters[key] = Cluster(key)
            # The cluster's own key: tools keep thousands of keys, and equal ones would be kept several times.
            keys.add(cluster.key)
            cluster.add(port)
        self.apis[name] = node
        for word in node.words:
            self._by_word.setdefault(word, {})[name] = None
        self._routes.add(node)

    def remove(self, tool: str) -> None:
        """Remove a tool, but not its observations; an unknown name is ignored."""
        # Each tool counts in the rarity of words in names.
        self._rarities = {}
        node = self.apis.pop(tool, None)
        if node is None:
            return
        for key in self._keys.pop(tool):
            cluster = self.clusters[key]
            cluster.remove(tool)
            if cluster.empty:
                del self.clusters[key]
        for word in node.words:
            tools = self._by_word[word]
            del tools[tool]
            if not tools:
                del self._by_word[word]
        self._routes.remove(node)

    def note_outputs(self, tool: str, outputs: Mapping[str, Iterable[str]]) -> None:
        """Set what runs showed of a tool's results, path -> JSON types, in place of what was known before."""
        seen = _frozen(outputs)
        # Reading a tool's ports is slow: only if its results changed.
        if seen != self._observed.get(tool, {}):
            self._observed[tool] = seen
            if tool in self.apis:
                self.update([self.apis[tool].spec])

    def exclude(self, tools: Collection[str]) -> None:
        """Make exactly these tools non-producers. They can still be targets of a plan [O]."""
        changed = self.left_out.symmetric_difference(tools)
        self.left_out = frozenset(tools)
        # Added again, because an excluded tool has no outputs in the clusters.
        for tool in sorted(changed & self.apis.keys()):
            self._add(self.apis[tool].spec)

    @property
    def observed(self) -> dict[str, dict[str, list[str]]]:
        """Return tool -> path -> JSON types of its results."""
        observed = {}
        for tool, paths in self._observed.items():
            observed[tool] = {path: sorted(types) for path, types in paths.items()}
        return observed

    def api(self, tool: str) -> ApiNode:
        """Return a tool's node; raise ConfigurationError if there is none."""
        node = self.apis.get(tool)
        if node is None:
            raise ConfigurationError(f"There is no tool {tool!r} in the dependency graph of {len(self.apis)} tools.")
        return node

    # --- parameters ---

    def key_of(self, port: Port) -> Key:
        """Return the key of the parameter node of a port, even if the node does not exist."""
        if self._aliases:
            alias = self._aliases.get(f"{port.tool}.{port.path}")
            if alias is not None:
                return frozenset((alias,)), "alias"
        return port.meaning.words, port.meaning.shape

    def cluster_of(self, port: Port) -> Cluster:
        """Return the parameter node of a port of this graph."""
        return self.clusters[self.key_of(port)]

    # --- links ---

    def links_into(self, port: Port, history: History | None = None) -> list[Link]:
        """Return what can give a value to an input, by structure and by flows seen in runs; in no particular order."""
        links: dict[tuple[str, str], Link] = {}
        most = MAX_PRODUCERS
        for link in self._routes.links_into(port, self.left_out):
            if self._routes.may_feed(link, port):
                links[link.producer, link.output] = link
                # If a path names the producer, words add little.
                if link.fit == 1.0:
                    most = NEXT_TO_A_ROUTE
        for link in self._structural(port, self.cluster_of(port), most):
            if self._routes.may_feed(link, port):
                before = links.get((link.producer, link.output))
                if before is None or before.fit < link.fit:
                    links[link.producer, link.output] = link
        # Names may have more words than the collection of the id (`ancestor_folder_id`): docs/figures.md, plans over
        # public APIs.
        if not links and port.meaning.words & LEXICON.identifiers:
            for link in self._by_rest_of_name(port):
                links[link.producer, link.output] = link
        if history is not None:
            for flow in history.flows_into(port.tool, port.parameter):
                if flow.source in self.apis and flow.source not in self.left_out:
                    seen = Link(flow.source, flow.path, port.tool, port.path, 0.0, "flow")
                    links.setdefault((flow.source, flow.path), seen)
        return list(links.values())

    def _structural(self, port: Port, cluster: Cluster, most: int) -> Iterator[Link]:
        """Yield links from the outputs of a cluster to an input, of at most so many tools."""
        apart = 0.6  # part of the fit that does not depend on the similarity of two tools' names
        count = len(cluster.producers) - (port.tool in cluster.producers)
        if count <= 0:
            return
        # An unspecific id fits many inputs, and so do values of many tools.
        certainty = 1.0
        if cluster.vague:
            certainty = 0.3
        share = certainty / (1 + math.log2(count) / 4)
        for tool in self._nearest(port.tool, cluster.producers, most):
            node = self.apis[tool]
            fit = node.producer_prior * share * (apart + (1 - apart) * self.affinity(tool, port.tool))
            for path in cluster.producers[tool]:
                yield Link(tool, path, port.tool, port.path, fit)

    def _nearest(self, consumer: str, producers: Collection[str], most: int) -> list[str]:
        """Return at most so many producers: those whose names share a rare word with the consumer's first."""
        rare = 500  # a word in more tool names than this does not identify related tools
        if len(producers) <= most + 1:
            return [tool for tool in producers if tool != consumer]
        nearest: dict[str, None] = {}
        for word in sorted(self.apis[consumer].words, key=self._commonness):
            tools = self._by_word[word]
            if len(tools) > rare:
                continue
            for tool in tools:
                if tool in producers and tool != consumer:
                    nearest[tool] = None
        for tool in producers:
            if len(nearest) >= most:
                break
            if tool != consumer:
                nearest[tool] = None
        return list(nearest)[:most]

    def _commonness(self, word: str) -> tuple[int, str]:
        return len(self._by_word[word]), word

    def _by_rest_of_name(self, port: Port) -> list[Link]:
        """Return links for an id without a producer of its whole name, by the first shorter name that has some."""
        ids = port.meaning.words & LEXICON.identifiers
        for rest in self._routes.rests_of_name(port):
            links = list(self._routes.named_by(port, rest))
            cluster = self.clusters.get((frozenset((*rest, *ids)), port.meaning.shape))
            if cluster is not None:
                links += self._structural(port, cluster, NEXT_TO_A_ROUTE)
            allowed: list[Link] = []
            for link in links:
                if self._routes.may_feed(link, port):
                    allowed.append(link)
            if not allowed:
                allowed = list(self._routes.parts_of_parents(port, rest))
            if allowed:
                return allowed
        return []

    # --- names ---

    def nouns(self, tool: str) -> tuple[str, ...]:
        """Return the words of a tool's subject."""
        nouns = resource(self.apis[tool].path)
        if nouns:
            return nouns
        entity = entity_of(tool)
        if not entity:
            return ()
        return (entity,)

    def affinity(self, one: str, other: str) -> float:
        """Return how much of their names two tools share, rare words weighing more; 0 to 1."""
        words, others = self.apis[one].words, self.apis[other].words
        shared = words & others
        if not shared:
            return 0.0
        return min(1.0, self._rarity(shared) / min(self._rarity(words), self._rarity(others)))

    def _rarity(self, words: frozenset[str]) -> float:
        total = self._rarities.get(words)
        if total is None:
            rarities = [rarity(len(self._by_word[word]), len(self.apis)) for word in words]
            total = sum(rarities) + 1e-9  # a name without words of its own would divide by zero
            self._rarities[words] = total
        return total


def _frozen(paths: Mapping[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    return {path: frozenset(types) for path, types in paths.items()}
