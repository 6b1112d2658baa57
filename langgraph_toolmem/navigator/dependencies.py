"""The tool dependency graph: API nodes and parameter nodes (NaviAgent, arXiv 2506.19500, section 2).

A parameter node represents all inputs and outputs of the same meaning [P]: those with one alias, otherwise those with
the same words and shape [O]. (In the paper an embedder finds equal meanings; with all-MiniLM-L6-v2 this did not improve
a plan of six recorded sets.) Structural edges lead from a parameter to the APIs that take it and from an API to the
parameters it gives. Adding or removing a tool changes only its own ports, and the order of tools does not matter.

HTTP routes give further edges: ``GET /orders`` lists the elements that ``/orders/{order_id}`` picks. If the path does
not show it, a document's ``x-links``, a list of the same name elsewhere, or the rest of the input's name
(`ancestor_folder_id`) does.

Behavioural edges are counts in `History` and are read when a link is weighed. Structure and record give each link a
weight, a mean of the two in which structure counts as much as `PRIOR` uses [O]:

    w(i→j) = (n + PRIOR · COLD · fit) / (N(j) + PRIOR),    n = max(N(i→j), uses of this very flow)

Without a record that is ``COLD · fit``; with a long one N(i→j) / N(j), the paper's weight. So a plausible link that is
never used ranks below used links.

A trained table (`papers.naviagent.learned`) has a score p(o→i) of each link from output o to input i. It replaces
``COLD · fit`` if it is larger [O]. It only raises weights: training learns unseen links as unlikely, and lower weights
lost right chains.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

from langgraph_toolmem.base.checks import did_you_mean
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.navigator.evidence import Flow, History
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.meaning import (
    EntityRoute,
    Port,
    canonical,
    entity_of,
    inputs_of,
    outputs_of,
    resource,
    route_of,
    verb_of,
)
from langgraph_toolmem.text.words import LEXICON, rarity, stem

logger = logging.getLogger("langgraph_toolmem.navigator.dependencies")

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
        """Set the fields of a tool's results that runs showed, path -> JSON types, in place of earlier ones."""
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
            hint = did_you_mean(tool, self.apis)
            raise ConfigurationError(
                f"There is no tool {tool!r} in the dependency graph of {len(self.apis)} tools.{hint}"
            )
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
        """Return the links into an input, by structure and by flows seen in runs; in no particular order."""
        links = self._by_structure(port)
        # Names may have more words than the collection of the id (`ancestor_folder_id`): docs/figures.md, plans over
        # public APIs.
        if not links and port.meaning.words & LEXICON.identifiers:
            links = self._by_rest_of_name(port)
        by_output = {(link.producer, link.output): link for link in links}
        if history is not None:
            for link in self._seen(port, history):
                by_output.setdefault((link.producer, link.output), link)
        return list(by_output.values())

    def _by_structure(self, port: Port) -> list[Link]:
        """Return links by routes and by meaning; of two from one output, the better one."""
        by_output: dict[tuple[str, str], Link] = {}
        most = MAX_PRODUCERS
        for link in self._allowed(self._routes.links_into(port, self.left_out), port):
            by_output[link.producer, link.output] = link
            # If a path names the producer, words add little.
            if link.fit == 1.0:
                most = NEXT_TO_A_ROUTE
        for link in self._allowed(self._structural(port, self.cluster_of(port), most), port):
            before = by_output.get((link.producer, link.output))
            if before is None or before.fit < link.fit:
                by_output[link.producer, link.output] = link
        return list(by_output.values())

    def _allowed(self, links: Iterable[Link], port: Port) -> list[Link]:
        allowed: list[Link] = []
        for link in links:
            if self._routes.may_feed(link, port):
                allowed.append(link)
        return allowed

    def _seen(self, port: Port, history: History) -> Iterator[Link]:
        """Yield links of flows that runs showed."""
        for flow in history.flows_into(port.tool, port.parameter):
            if flow.source in self.apis and flow.source not in self.left_out:
                yield Link(flow.source, flow.path, port.tool, port.path, 0.0, "flow")

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
        others = (tool for tool in producers if tool != consumer)
        if len(producers) <= most + 1:
            return list(others)
        nearest: dict[str, None] = {}
        for tool in self._sharing_a_rare_word(consumer):
            if tool in producers and tool != consumer:
                nearest[tool] = None
        for tool in others:
            if len(nearest) >= most:
                break
            nearest[tool] = None
        return list(nearest)[:most]

    def _sharing_a_rare_word(self, tool: str) -> Iterator[str]:
        """Yield the tools whose names share a word with a tool's, by the rarest word first."""
        rare = 500  # a word in more tool names than this does not identify related tools
        for word in sorted(self.apis[tool].words, key=self._commonness):
            tools = self._by_word[word]
            if len(tools) <= rare:
                yield from tools

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
            allowed = self._allowed(links, port) or list(self._routes.parts_of_parents(port, rest))
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


# --- links by routes ---

MAX_LISTS: Final = 8
"""Limit of lists of the same name elsewhere in the hierarchy of paths."""
SAME_NAME: Final = 0.8
"""Fit of a list with the collection's name elsewhere in the hierarchy of paths, and of an operation that the input's
description names.
"""
REST_OF_NAME: Final = 0.5


class OutputOf(NamedTuple):
    """An output that a document links to an input; path "" if it names only the operation."""

    tool: str
    path: str


@dataclass(frozen=True, slots=True)
class _SoughtCollection:
    """The collection that an input picks an element of.

    Attributes:
        path: its path; "" if only the input's name identifies it.
        near: path whose beginning a list of the same name should share.
        nouns: words of its elements.
    """

    path: str
    near: str
    nouns: tuple[str, ...]


class RouteIndex:
    """The tools of a graph by the paths of their routes.

    Args:
        apis: the graph's tools by name; the graph changes this mapping object.
    """

    def __init__(self, apis: Mapping[str, ApiNode]) -> None:
        self._apis = apis
        # The values are ordered sets of tools: the order of tools must not depend on hashes.
        self._lists: dict[str, dict[str, None]] = {}  # path -> tools that read the collection there
        self._of_caller: dict[str, dict[str, None]] = {}  # path of a collection -> tools that read the caller's element
        self._lists_of: dict[str, dict[str, None]] = {}  # last word of the listed things -> tools
        self._in_slots: dict[str, dict[str, None]] = {}  # path -> tools that take an element of the collection there
        self._names_in_slot: dict[str, set[str]] = {}  # path -> names of that element, as they are asked for
        self._linked: dict[tuple[str, str], dict[OutputOf, None]] = {}  # input -> outputs, by documents

    def add(self, node: ApiNode) -> None:
        """Add a tool."""
        self._names_in_slot = {}
        for index, key in self._entries(node):
            index.setdefault(key, {})[node.spec.name] = None
        # The answer of a watch does not end, so its document's links are useless.
        if node.spec.streams or node.spec.returns is None:
            return
        for consumer, parameter, path in node.spec.returns.get("x-links", ()):
            self._linked.setdefault((consumer, parameter), {})[OutputOf(node.spec.name, path)] = None

    def remove(self, node: ApiNode) -> None:
        """Remove a tool; links of its document are kept, and ignored while the tool is missing."""
        self._names_in_slot = {}
        for index, key in self._entries(node):
            tools = index[key]
            del tools[node.spec.name]
            if not tools:
                del index[key]

    def _entries(self, node: ApiNode) -> Iterator[tuple[dict[str, dict[str, None]], str]]:
        """Yield each index that contains a tool, and its key there."""
        route = node.route
        if route is None:
            return
        for collection in set(route.slots.values()):
            yield self._in_slots, collection
        # The answer of a watch does not end, so a plan cannot take a value from it.
        if not route.reads or node.spec.streams:
            return
        yield self._lists, route.path
        if route.of_caller:
            yield self._of_caller, route.path.rpartition("/")[0]
        if route.lists:
            yield self._lists_of, (resource(route.path) or ("",))[-1]

    # --- links ---

    def links_into(self, port: Port, left_out: Collection[str]) -> Iterator[Link]:
        """Yield links by a document or by the hierarchy of paths: an element is picked from the list of its
        collection.
        """
        yield from self._documented(port, left_out)
        node = self._apis.get(port.tool)
        if node is None or node.route is None:
            return
        sought = _sought(port, node.route)
        if sought is None:
            return
        here = self._others(self._lists.get(sought.path, ()), port.tool)
        yield from self._elements(port, here, sought.nouns, 1.0)
        own = self._others(self._of_caller.get(sought.path, ()), port.tool)
        elsewhere = self._others(self._lists_named(sought.nouns, node), port.tool, here)
        nearest = sorted(elsewhere, key=self._distance_from(sought.near))
        yield from self._elements(port, [*own, *nearest[:MAX_LISTS]], sought.nouns, SAME_NAME)

    def _documented(self, port: Port, left_out: Collection[str]) -> Iterator[Link]:
        for output in self._linked.get((port.tool, port.path), ()):
            if output.tool not in self._apis or output.tool in left_out:
                continue
            if output.path:
                yield Link(output.tool, output.path, port.tool, port.path, 1.0, "route")
                continue
            # "As returned by GET /orders" names an operation: the part of its answer has to be found.
            element = self._element(output.tool, port, ())
            path = ""
            if element is not None:
                path = element.path
            yield Link(output.tool, path, port.tool, port.path, SAME_NAME, "route")

    def _others(self, tools: Iterable[str], consumer: str, taken: Collection[str] = ()) -> list[str]:
        return [tool for tool in tools if tool != consumer and tool not in taken]

    def _distance_from(self, path: str) -> Any:
        """Return a key that sorts lists by their common path, longest first, then by length, shortest first."""

        def distance(tool: str) -> tuple[int, int, str]:
            own = self._apis[tool].path
            return -_shared_levels(own, path), len(own), tool

        return distance

    def _elements(self, port: Port, tools: Iterable[str], nouns: tuple[str, ...], fit: float) -> Iterator[Link]:
        """Yield a link from each list whose elements have the part that an input wants."""
        for tool in tools:
            output = self._element(tool, port, nouns)
            if output is not None:
                yield Link(tool, output.path, port.tool, port.path, fit, "route")

    def named_by(self, port: Port, nouns: tuple[str, ...]) -> Iterator[Link]:
        """Yield links from lists of things named by some nouns, for an id without a producer of its whole name."""
        lists = self._lists_named(nouns, self._apis[port.tool])[:MAX_LISTS]
        yield from self._elements(port, self._others(lists, port.tool), nouns, REST_OF_NAME)

    def rests_of_name(self, port: Port) -> list[tuple[str, ...]]:
        """Return the collections that an input may be an id of, by ever shorter ends of its name: `ancestor_folder_id`,
        folders.
        """
        nouns = self._nouns_of(port)
        rests = [nouns[start:] for start in range(len(nouns))]
        # Without rests of names and parts of records, 94 % of DocuSign's plans lacked a value, and 17 % of Discord's. A
        # person's role in a record (`requester_id`) is a user.
        if nouns and nouns[-1] in LEXICON.people:
            rests += [("user",), ("member",)]
        return rests

    def parts_of_parents(self, port: Port, nouns: tuple[str, ...]) -> Iterator[Link]:
        """Yield links from lists in the records that a path goes through, `integration.cmdb_tables[].id`."""
        for parent in _parents(self._apis[port.tool].collection_of(port)):
            for tool in self._lists.get(parent, ()):
                for output in self._apis[tool].outputs:
                    element, _, level = output.path.rpartition(".")
                    if not element.endswith("[]") or not _is_identifier(level):
                        continue
                    thing = canonical(element.rpartition(".")[2].removesuffix("[]"))
                    if thing[-len(nouns) :] == nouns:
                        yield Link(tool, output.path, port.tool, port.path, REST_OF_NAME, "route")

    def may_feed(self, link: Link, port: Port) -> bool:
        """Return False for a field of a collection's record, if a call adds to the collection or changes it.

        A new call's number comes from the request, not from an old call, and a user to ban is not among the banned
        ones. Observed flows are not checked here.
        """
        consumer, producer = self._apis[port.tool].route, self._apis[link.producer].route
        if consumer is None or producer is None:
            return True
        slot = consumer.slots.get(port.path)
        if slot is not None:
            return _may_fill_slot(link, port, producer, consumer, slot)
        return not consumer.writes_content or _may_be_content(port, producer, consumer)

    # --- names ---

    def _nouns_of(self, port: Port) -> tuple[str, ...]:
        """Return the words of the thing that an input is an id of: by its name, by the object around it, or by its
        path.
        """
        levels = port.path.replace("[]", "").split(".")
        for level in reversed(levels):
            nouns = _without_identifiers(canonical(level))
            if nouns:
                return nouns
        route = self._apis[port.tool].route
        if route is None:
            return ()
        return _without_identifiers(resource(route.slots.get(port.path, route.path)))

    def _lists_named(self, nouns: tuple[str, ...], consumer: ApiNode) -> list[str]:
        """Return tools that list things named by some nouns, in full or with the rest in the consumer's own path."""
        if not nouns:
            return []
        lists = []
        for tool in self._lists_of.get(nouns[-1], ()):
            listed = resource(self._apis[tool].path)
            rest = set(listed[: -len(nouns)])
            if listed[-len(nouns) :] == nouns and rest <= consumer.path_words:
                lists.append(tool)
        return lists

    def _element(self, tool: str, port: Port, nouns: tuple[str, ...]) -> Port | None:
        """Return the part of a list that names one of its elements as an input does, if there is one.

        First the part with the input's name, unless that is only the name of the thing: then the part by which other
        operations address an element, then an id, and a name last.
        """
        names = self._slot_names(port, tool, nouns)
        best: Port | None = None
        best_order = (0, 0, 0)
        for output in self._apis[tool].outputs:
            if not _types_agree(output, port):
                continue
            rank = _rank_of_part(output, port, nouns, names)
            if not rank:
                continue
            same_kind = bool(output.leaf.types & port.leaf.types) + (output.leaf.format == port.leaf.format)
            # Of equal parts the outermost: `[].id` before `[].owner.id`.
            order = (rank, same_kind, -output.path.count("."))
            if best is None or order > best_order:
                best, best_order = output, order
        return best

    def _slot_names(self, port: Port, tool: str, nouns: tuple[str, ...]) -> frozenset[str]:
        """Return the operations' names for an element of a tool's list, and for an input in its place."""
        collection = self._apis[port.tool].collection_of(port)
        names = {port.level}
        names |= self._names_behind(collection)
        names |= self._names_behind(self._apis[tool].path)
        # The bare name of the thing (`order`) does not distinguish its id from its other parts.
        telling: set[str] = set()
        for name in names:
            if not set(canonical(name)) <= set(nouns):
                telling.add(name)
        return frozenset(telling)

    def _names_behind(self, collection: str) -> set[str]:
        """Return the names of the parameter that follows a path."""
        names = self._names_in_slot.get(collection)
        if names is None:
            names = self._names_in_slot[collection] = set()
            for tool in self._in_slots.get(collection, ()):
                route = self._apis[tool].route
                if route is None:
                    continue
                for name, place in route.slots.items():
                    if place == collection:
                        names.add(name)
        return names


def _sought(port: Port, route: EntityRoute) -> _SoughtCollection | None:
    collection = route.slots.get(port.path)
    if collection is not None:
        return _SoughtCollection(collection, collection, resource(collection))
    if port.meaning.words & LEXICON.identifiers:
        return _SoughtCollection("", route.path, _without_identifiers(canonical(port.level)))
    return None


def _may_fill_slot(link: Link, port: Port, producer: EntityRoute, consumer: EntityRoute, slot: str) -> bool:
    """Return False for a value that a path must not take from this producer."""
    addressed = f"{slot}/{{}}"
    # The user to delete is not the caller.
    if producer.of_caller and not consumer.reads and consumer.path == addressed:
        return False
    if consumer.method != "PUT" or not consumer.writes_content:
        return True
    # The user to ban is not among the banned ones (`bans[].user.id`).
    is_of_a_member = producer.path in (slot, addressed) and not _is_own_id(link.output)
    return not (is_of_a_member and _adds_member(port, consumer))


def _may_be_content(port: Port, producer: EntityRoute, consumer: EntityRoute) -> bool:
    """Return False for content of a change that an old record of the same collection must not give."""
    # Similar records have paths with equal ends: a managed company is a company.
    if resource(producer.path)[-1:] != resource(consumer.path)[-1:]:
        return True
    words = port.meaning.words
    if words & LEXICON.identifiers and not words & LEXICON.secrets:
        return not _is_of_another(port, resource(consumer.path)) or producer.path != consumer.path
    # A change has to repeat these from the record that it changes.
    return bool(words & {"version", "etag", "revision"})


def _rank_of_part(output: Port, port: Port, nouns: tuple[str, ...], names: Collection[str]) -> int:
    """Return how well a part of an element fits an input that addresses it; 0 if it does not.

    `nouns` are the words of the collection's elements; `names` are the operations' more specific names of an element.
    """
    words, wanted, level = output.meaning.words, port.meaning.words, output.level
    rest = wanted.difference(nouns)  # the "number" of an issue_number
    is_bare = not rest and set(canonical(port.level)) <= set(nouns)
    if not is_bare:
        if level == port.level:
            return 6
        if words == wanted:
            return 5
    if level in names:
        return 4
    return _rank_by_words(words, wanted, rest, set(nouns))


def _rank_by_words(words: frozenset[str], wanted: frozenset[str], rest: frozenset[str], nouns: set[str]) -> int:
    """Return the rank of a part with other names than the input: 3 for an id of the element, 0 without a relation.

    `rest` are the wanted words that do not name the element.
    """
    own = words.difference(nouns)
    if words & LEXICON.identifiers:
        is_plain_id = words - LEXICON.identifiers <= nouns
        if is_plain_id or own == rest:
            return 3
    if words == wanted or (rest and own == rest):
        return 2
    if words & (rest | LEXICON.identifiers):
        return 1
    return 0


def _without_identifiers(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for word in words if word not in LEXICON.identifiers)


def _is_of_another(port: Port, collection: tuple[str, ...]) -> bool:
    """Return True for the id of another thing than the collection's elements: the user of a membership."""
    things = port.meaning.words - LEXICON.identifiers - {"parent"}
    return bool(things) and not things & set(collection)


def _is_own_id(output: str) -> bool:
    """Return True for the id of an element itself (``entries[].id``), not of its parts (``[].user.id``)."""
    place, _, level = output.rpartition(".")
    return place.endswith("[]") and _is_identifier(level)


def _is_identifier(level: str) -> bool:
    return set(canonical(level)) <= LEXICON.identifiers


def _parents(path: str) -> Iterator[str]:
    """Yield the parents of a path, nearest first.

    >>> list(_parents("/users/{}/tables"))
    ['/users/{}', '/users']
    """
    while path := path.rpartition("/")[0]:
        yield path


def _adds_member(port: Port, consumer: EntityRoute) -> bool:
    """Return True if a PUT puts one thing into a collection of others: a user among the bans."""
    collection = consumer.slots[port.path]
    return consumer.path == f"{collection}/{{}}" and _is_of_another(port, resource(collection))


def _shared_levels(one: str, other: str) -> int:
    """Return how many levels two paths have in common from the beginning."""
    shared = 0
    for level, other_level in zip(one.split("/"), other.split("/"), strict=False):
        if level != other_level:
            break
        shared += 1
    return shared


def _types_agree(output: Port, wanted: Port) -> bool:
    """Return True if a value may become another one; a text may be a number, and a value without a type may be
    anything.
    """
    return output.meaning.shape == wanted.meaning.shape or not (output.leaf.types and wanted.leaf.types)


# --- nodes ---

Key = tuple[frozenset[str], str]
"""Words and shape of a parameter; with an alias, that name and "alias"."""


class Cluster:
    """A parameter node: inputs and outputs of the same meaning.

    Attributes:
        key: its words and shape.
        producers: tool -> paths of its outputs here.
        consumers: tool -> paths of its inputs here.
    """

    __slots__ = ("consumers", "key", "producers")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.producers: dict[str, tuple[str, ...]] = {}
        self.consumers: dict[str, tuple[str, ...]] = {}

    def add(self, port: Port) -> None:
        """Add an input or output."""
        side = self.consumers
        if port.direction == "out":
            side = self.producers
        side[port.tool] = (*side.get(port.tool, ()), port.path)

    def remove(self, tool: str) -> None:
        """Remove all inputs and outputs of a tool."""
        self.producers.pop(tool, None)
        self.consumers.pop(tool, None)

    @property
    def empty(self) -> bool:
        """Return True if the parameter has no tools."""
        return not self.producers and not self.consumers

    @property
    def id(self) -> str:
        """Return its words and shape as a unique text."""
        words, shape = self.key
        # The owner comes first: "city name", not "name city".
        ordered = sorted(words - LEXICON.generic) + sorted(words & LEXICON.generic)
        label = " ".join(ordered)
        if shape == "scalar":
            return label
        return f"{label} ({shape})"

    @property
    def vague(self) -> bool:
        """Return True if its members are an id, name, count ... of an unknown thing."""
        words, shape = self.key
        return shape != "alias" and words <= LEXICON.generic


@dataclass(frozen=True)
class ApiNode:
    """A tool. Its ports are read when a plan needs them: a thousand tools have tens of thousands of ports.

    Attributes:
        spec: the tool.
        seen: path -> JSON types of results that runs showed; None if it is not a producer (`exclude`).
        words: the stems of its name, and its tags.
        producer_prior: factor for its outputs, 0 to 1: reading is better than writing to get an id, and destroying is
            worst [O].
        route: its HTTP route, if it has one.
    """

    spec: ToolSpec
    seen: Mapping[str, Iterable[str]] | None
    words: frozenset[str]
    producer_prior: float
    route: EntityRoute | None = None

    @classmethod
    def of(cls, spec: ToolSpec, seen: Mapping[str, Iterable[str]] | None) -> ApiNode:
        """Return the node of a tool."""
        # Verbs and prepositions are in the names of unrelated tools: they would make all of them similar.
        telling = set(canonical(spec.name)) - LEXICON.generic - LEXICON.prepositions - LEXICON.strict_verbs
        words = {stem(word) for word in telling}
        # Marked, so that a tag and a word of a name are never the same.
        for tag in spec.tags:
            words.add(f"#{tag}")
        return cls(spec, seen, frozenset(words), _producer_prior(spec), route_of(spec.route))

    @cached_property
    def inputs(self) -> tuple[Port, ...]:
        """The inputs of a call."""
        return self._read_inputs()

    @cached_property
    def outputs(self) -> tuple[Port, ...]:
        """The outputs of a call."""
        return self._outputs(self.inputs)

    @cached_property
    def needs(self) -> tuple[Port, ...]:
        """The required inputs of a call."""
        return tuple(port for port in self.inputs if port.required)

    def ports(self) -> tuple[Port, ...]:
        """Return its inputs and outputs, without caching them."""
        inputs = self._read_inputs()
        return *inputs, *self._outputs(inputs)

    def _read_inputs(self) -> tuple[Port, ...]:
        # The branches of a composed schema may have a path in common; the last one counts.
        by_path = {port.path: port for port in inputs_of(self.spec)}
        return tuple(by_path.values())

    def _outputs(self, inputs: tuple[Port, ...]) -> tuple[Port, ...]:
        if self.seen is None:
            return ()
        return outputs_of(self.spec, self.seen, inputs)

    @property
    def path(self) -> str:
        """Return the path of its route; "" for a tool without one."""
        if self.route is None:
            return ""
        return self.route.path

    def collection_of(self, port: Port) -> str:
        """Return the path of the collection that an input picks an element of, or ""."""
        if self.route is None:
            return ""
        return self.route.slots.get(port.path, "")

    @property
    def path_words(self) -> frozenset[str]:
        """Return the words of its path."""
        return frozenset(canonical(self.path.replace("{}", "")))


def _producer_prior(spec: ToolSpec) -> float:
    # Our own choice [O]; figures of plans with it are in docs/figures.md. Of two tools that give an id, the one that
    # only reads has to win, for any names; a tool with unknown effects is almost as good.
    reading, unclear, changing, destroying = 1.0, 0.85, 0.6, 0.2
    if spec.destructive:
        return destroying
    reads = spec.read_only
    if reads is None:
        verb = verb_of(spec.name)
        if not verb:
            return unclear
        reads = verb in LEXICON.reading
    if reads:
        return reading
    return changing


# --- weights of links ---

PRIOR: Final = 2.0
"""Number of uses that structure, or a learned probability, counts for."""
COLD: Final = 0.6
"""Weight of a perfect fit without any record."""


class Link(NamedTuple):
    """A part of one tool's output that may become an input of another tool.

    Attributes:
        producer: tool whose output it is.
        output: path in that output.
        consumer: tool whose input it is.
        input: path of that input.
        fit: how well they fit by structure, 0 to 1.
        kind: "cluster": they have the same meaning; "route": the producer lists the collection that the input picks an
            element of, or its document links the two; "flow": seen in runs.
    """

    producer: str
    output: str
    consumer: str
    input: str
    fit: float
    kind: Literal["cluster", "route", "flow"] = "cluster"


LinkScores = Mapping[tuple[str, str, str, str], float]
"""Producer, its output, consumer, its input -> p, the score that training gave the link."""


def weight_of(link: Link, history: History, learned: LinkScores) -> float:
    """Return the weight of a link, 0 to 1; see the module."""
    uses = history.uses.get(link.consumer, 0.0)
    seen = 0.0
    if uses > 0:
        # A flow may be known without a transition: calls in between hide the producer.
        parameter = link.input.split(".", 1)[0].removesuffix("[]")
        flow = Flow(link.producer, link.output, link.consumer, parameter)
        in_order = history.weight(link.producer, link.consumer) * uses
        seen = min(uses, max(in_order, history.flows.get(flow, 0.0)))
    score = 0.0
    if learned:
        score = learned.get((link.producer, link.output, link.consumer, link.input), 0.0)
    return (seen + PRIOR * max(COLD * link.fit, score)) / (uses + PRIOR)
