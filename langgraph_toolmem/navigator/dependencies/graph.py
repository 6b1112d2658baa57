"""The tool dependency graph: API nodes and parameter nodes (NaviAgent, arXiv 2506.19500, section 2).

A parameter node stands for all inputs and outputs that mean the same [P]: those with one alias, else those with the
same words and shape [O]. (In the paper an embedder finds those that mean the same; with all-MiniLM-L6-v2 that made no
plan of six recorded sets right.) Structural edges lead from a parameter to the APIs that take it and from an API to the
parameters it gives. Behavioural edges are counts in `History` and are read when a link is weighed. Adding or removing a
tool touches its own ports only, and the order of tools does not matter.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Final

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.navigator.dependencies.links import Link
from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.meaning import (
    GENERIC,
    IDENTIFIERS,
    PEOPLE,
    PREPOSITIONS,
    READING,
    SECRETS,
    STRICT_VERBS,
    Port,
    Route,
    canonical,
    entity_of,
    inputs_of,
    outputs_of,
    resource,
    route_of,
    verb_of,
)
from langgraph_toolmem.text.words import rarity, stem

logger = logging.getLogger("langgraph_toolmem.navigator.dependencies.graph")

MAX_PRODUCERS: Final = 64
"""Producers of one parameter that are weighed for one consumer: those whose tools' names share words with it first."""
NEXT_TO_A_ROUTE: Final = 8
"""The same where the paths of the tools say who gives it."""
MAX_LISTS: Final = 8
_RARE: Final = 500  # a word in more tool names than this does not tell which belong together
_VAGUE: Final = 0.3
_SAME_NAME: Final = 0.8
"""Fit of a list that has the collection's name and stands elsewhere in the hierarchy of paths, and of an operation that
the input's description names."""
_REST_OF_NAME: Final = 0.5
_UNCLEAR, _WRITES, _DESTROYS = 0.85, 0.6, 0.2
_APART: Final = 0.6
"""Part of the fit that does not depend on whether two tools' names are akin."""

Key = tuple[frozenset[str], str]
"""Words and shape of a parameter; with an alias, that name and "alias"."""


class Cluster:
    """A parameter node: the inputs and outputs that mean the same.

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

    @property
    def id(self) -> str:
        """Return its words and shape as a text; unlike that of every other one."""
        words, shape = self.key
        label = " ".join(sorted(words, key=lambda word: (word in GENERIC, word)))
        return label if shape == "scalar" else f"{label} ({shape})"

    @property
    def vague(self) -> bool:
        """Return True if nothing says of what its members are the id, name, count ..."""
        return self.key[1] != "alias" and self.key[0] <= GENERIC


@dataclass(frozen=True)
class ApiNode:
    """A tool. Its ports are read where a plan comes near: a thousand tools have tens of thousands of them.

    Attributes:
        spec: the tool.
        seen: path -> JSON types of results that runs showed; None if it gives nothing to others (`exclude`).
        words: what its name says, as stems, and its tags.
        producer_prior: factor for what it gives, 0 to 1: to read is better than to write something in order to get an
            id, and to destroy is worst [O].
        route: its HTTP route, if it has one.
    """

    spec: ToolSpec
    seen: Mapping[str, Iterable[str]] | None
    words: frozenset[str]
    producer_prior: float
    route: Route | None = None

    @cached_property
    def inputs(self) -> tuple[Port, ...]:
        """The values that a call takes."""
        return self.read()[0]

    @cached_property
    def outputs(self) -> tuple[Port, ...]:
        """The values that a call gives."""
        return self.read()[1]

    @cached_property
    def needs(self) -> tuple[Port, ...]:
        """The inputs that a call must have."""
        return tuple(port for port in self.inputs if port.required)

    def read(self) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
        """Return its inputs and outputs, and keep none."""
        inputs = tuple({port.path: port for port in inputs_of(self.spec)}.values())
        return inputs, () if self.seen is None else outputs_of(self.spec, self.seen, inputs)

    @property
    def nouns(self) -> frozenset[str]:
        """Return the words of its path."""
        return frozenset(() if self.route is None else canonical(self.route.path.replace("{}", "")))


class ToolDependencyGraph:
    """APIs, parameters, and who can give what to whom.

    Reading it from several threads is fine while nobody changes it; who changes it guards that with a lock.

    Args:
        specs: the tools. Of two with the same name the later counts, and the log says so.
        aliases: "tool.path" of an input or output -> the name of its parameter; equal names are one parameter.
        observed: tool -> path -> JSON types of results that runs showed; see `note_outputs`.

    Attributes:
        left_out: the tools that give nothing to others, by `exclude`.
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
        self._aliases = dict(aliases or {})
        self._observed: dict[str, dict[str, frozenset[str]]] = {
            tool: {path: frozenset(types) for path, types in paths.items()} for tool, paths in (observed or {}).items()
        }
        self._lists: dict[str, dict[str, None]] = {}  # path -> tools that read the collection there
        self._of_caller: dict[str, dict[str, None]] = {}  # path of a collection -> tools that read the caller's element
        self._lists_of: dict[str, dict[str, None]] = {}  # last word of what is listed -> tools
        self._in_slots: dict[str, dict[str, None]] = {}  # path -> tools that take an element of the collection there
        self._names_in_slot: dict[str, set[str]] = {}  # path -> names of that element, as they are asked for
        self._linked: dict[tuple[str, str], dict[tuple[str, str], None]] = {}  # input -> outputs by documents; "": any
        self._by_word: dict[str, dict[str, None]] = {}
        self._keys: dict[str, set[Key]] = {}  # of a tool's ports, as they were when it was added
        self._rarities: dict[frozenset[str], float] = {}  # of words together, as they are asked for
        self.left_out: frozenset[str] = frozenset()
        self.update(specs)

    def __len__(self) -> int:
        return len(self.apis)

    def __contains__(self, tool: object) -> bool:
        return tool in self.apis

    def update(self, specs: Iterable[ToolSpec]) -> None:
        """Add tools; one takes the place of the one with its name."""
        given = list(specs)
        twice = [name for name, count in Counter(spec.name for spec in given).items() if count > 1]
        if twice:
            logger.warning("%d tools have the name of another one (%s); the later counts", len(twice), twice[0])
        for spec in given:
            self._add(self._node(spec))

    def note_outputs(self, tool: str, outputs: Mapping[str, Iterable[str]]) -> None:
        """Set what runs showed of a tool's results, in place of what was known before.

        Args:
            tool: its name; it need not be here yet.
            outputs: path -> JSON types, as `text.schema.paths_of` gives them. Never values.
        """
        known = self._observed.get(tool, {})
        found = {path: frozenset(types) for path, types in outputs.items()}
        if found != known:
            self._observed[tool] = found
            if tool in self.apis:
                self.update([self.apis[tool].spec])

    def exclude(self, tools: Collection[str]) -> None:
        """Have these tools, and no others, give nothing to others. One can still plan for them [O]."""
        changed, self.left_out = self.left_out.symmetric_difference(tools), frozenset(tools)
        self.update(self.apis[tool].spec for tool in sorted(changed) if tool in self.apis)

    @property
    def observed(self) -> dict[str, dict[str, list[str]]]:
        """Return tool -> path -> JSON types of the results it gave."""
        return {tool: {path: sorted(types) for path, types in paths.items()} for tool, paths in self._observed.items()}

    def api(self, tool: str) -> ApiNode:
        """Return a tool's node.

        Raises:
            ConfigurationError: there is no such tool.
        """
        node = self.apis.get(tool)
        if node is None:
            raise ConfigurationError(f"There is no tool {tool!r} in the dependency graph of {len(self.apis)} tools.")
        return node

    def key_of(self, port: Port) -> Key:
        """Return the key of the parameter node that a port belongs to, whether there is one or not."""
        alias = self._aliases.get(f"{port.tool}.{port.path}") if self._aliases else None
        if alias is not None:
            return frozenset((alias,)), "alias"
        return port.meaning.words, port.meaning.shape

    def cluster_of(self, port: Port) -> Cluster:
        """Return the parameter node of a port of this graph."""
        return self.clusters[self.key_of(port)]

    def links_into(self, port: Port, history: History | None = None) -> list[Link]:
        """Return what can give a value to an input, by structure and by flows seen in runs; in no particular order.

        Args:
            port: an input of a tool of this graph.
            history: counts of the past; flows between values that do not look alike come from there.
        """
        links = {(link.producer, link.output): link for link in self._by_route(port) if self._may_feed(link, port)}
        most = NEXT_TO_A_ROUTE if any(link.fit == 1.0 for link in links.values()) else MAX_PRODUCERS
        for link in self._structural(port, self.cluster_of(port), most):
            if not self._may_feed(link, port):
                continue
            before = links.get((link.producer, link.output))
            if before is None or before.fit < link.fit:
                links[link.producer, link.output] = link
        if not links and port.meaning.words & IDENTIFIERS:
            links = {(link.producer, link.output): link for link in self._by_rest_of_name(port)}
        for flow, _ in () if history is None else history.flows_into(port.tool, port.parameter):
            if flow.source in self.apis and flow.source not in self.left_out:
                found = Link(flow.source, flow.path, port.tool, port.path, 0.0, "flow")
                links.setdefault((flow.source, flow.path), found)
        return list(links.values())

    def _may_feed(self, link: Link, port: Port) -> bool:
        """Return False for what a record of a collection says, where a call adds to the collection or changes it.

        A new call's number comes from the request, not from an old call, and who is banned is not among those who are
        banned already. What runs showed (flows) is not asked here.
        """
        consumer, producer = self.apis[port.tool].route, self.apis[link.producer].route
        if consumer is None or producer is None:
            return True
        slot = consumer.slots.get(port.path)
        if producer.of_caller and not consumer.reads and slot is not None and consumer.path == f"{slot}/{{}}":
            return False  # whom to delete is not who asks for it
        if not consumer.writes_content:
            return True
        if slot is not None:
            of_the_collection = producer.path in (slot, f"{slot}/{{}}") and not _is_own_id(link.output)
            return not (consumer.method == "PUT" and of_the_collection and _adds_member(port, consumer))
        if resource(producer.path)[-1:] != resource(consumer.path)[-1:]:  # a managed company is a company
            return True
        if port.meaning.words & IDENTIFIERS and not port.meaning.words & SECRETS:
            return not _is_of_another(port, resource(consumer.path)) or producer.path != consumer.path
        return bool(port.meaning.words & _OF_A_STATE)

    def nouns(self, tool: str) -> tuple[str, ...]:
        """Return the words of what a tool is about."""
        node = self.apis[tool]
        found = resource(node.route.path) if node.route is not None else ()
        return found or tuple(filter(None, (entity_of(tool),)))

    def affinity(self, one: str, other: str) -> float:
        """Return how much of their names two tools share, rare words weighing more; 0 to 1."""
        words, others = self.apis[one].words, self.apis[other].words
        shared = words & others
        return min(1.0, self._rarity(shared) / min(self._rarity(words), self._rarity(others))) if shared else 0.0

    def _rarity(self, words: frozenset[str]) -> float:
        found = self._rarities.get(words)
        if found is None:
            found = sum(rarity(len(self._by_word[word]), len(self.apis)) for word in words) + 1e-9
            self._rarities[words] = found
        return found

    def _structural(self, port: Port, cluster: Cluster, most: int) -> Iterator[Link]:
        """Yield links from the outputs of a cluster to an input, of at most so many tools."""
        count = len(cluster.producers) - (port.tool in cluster.producers)
        if count <= 0:
            return
        share = (_VAGUE if cluster.vague else 1.0) / (1 + math.log2(count) / 4)
        for tool in self._chosen(port.tool, cluster.producers, most):
            node = self.apis[tool]
            fit = node.producer_prior * share * (_APART + (1 - _APART) * self.affinity(tool, port.tool))
            for path in cluster.producers[tool]:
                yield Link(tool, path, port.tool, port.path, fit)

    def _by_route(self, port: Port) -> Iterator[Link]:
        """Yield links by the hierarchy of paths, or of a document: to pick an element one lists its collection."""
        for tool, path in self._linked.get((port.tool, port.path), ()):
            if tool in self.apis and tool not in self.left_out:
                output = None if path else self._element(tool, port, ())
                fit = 1.0 if path else _SAME_NAME
                yield Link(tool, output.path if output else path, port.tool, port.path, fit, "route")
        node = self.apis.get(port.tool)
        if node is None or node.route is None:
            return
        collection = node.route.slots.get(port.path)
        if collection is not None:
            where, nouns = collection, resource(collection)
        elif port.meaning.words & IDENTIFIERS:
            level = port.path.replace("[]", "").rsplit(".", 1)[-1]
            where, nouns = node.route.path, tuple(word for word in canonical(level) if word not in IDENTIFIERS)
        else:
            return
        here = [tool for tool in self._lists.get(collection or "", ()) if tool != port.tool]
        others = [tool for tool in self._namesakes(nouns, node) if tool != port.tool and tool not in here]
        own = [tool for tool in self._of_caller.get(collection or "", ()) if tool != port.tool]
        others.sort(key=lambda tool: (-_shared(self._path(tool), where), len(self._path(tool)), tool))
        for fit, tools in ((1.0, here), (_SAME_NAME, [*own, *others[:MAX_LISTS]])):
            for tool in tools:
                output = self._element(tool, port, nouns)
                if output is not None:
                    yield Link(tool, output.path, port.tool, port.path, fit, "route")

    def _by_rest_of_name(self, port: Port) -> Iterator[Link]:
        """Yield links for an id that nothing gives by its whole name: `ancestor_folder_id` by folders.

        The first rest of the name that says something counts. What somebody is in a record (`requester_id`) is a user,
        and tables that a record has (`cmdb_tables[].id`) have the ids of its tables.
        """
        node = self.apis[port.tool]
        ids = port.meaning.words & IDENTIFIERS
        nouns = self._nouns_of(port)
        rests = [nouns[start:] for start in range(len(nouns))]
        if PEOPLE.intersection(nouns[-1:]):
            rests += [("user",), ("member",)]
        for rest in rests:
            links = [
                Link(tool, output.path, port.tool, port.path, _REST_OF_NAME, "route")
                for tool in self._namesakes(rest, node)[:MAX_LISTS]
                if tool != port.tool and (output := self._element(tool, port, rest)) is not None
            ]
            cluster = self.clusters.get((frozenset((*rest, *ids)), port.meaning.shape))
            if cluster is not None and cluster.producers:
                links += self._structural(port, cluster, NEXT_TO_A_ROUTE)
            links = [link for link in links if self._may_feed(link, port)] or list(self._parts_of_parents(port, rest))
            if links:
                yield from links
                return

    def _nouns_of(self, port: Port) -> tuple[str, ...]:
        """Return the words of what an input is the id of: by its name, by what is around it, or by its path."""
        levels = port.path.replace("[]", "").split(".")
        route = self.apis[port.tool].route
        collection = route.slots.get(port.path, route.path) if route is not None else ""
        for said in (*map(canonical, reversed(levels)), resource(collection)):
            nouns = tuple(word for word in said if word not in IDENTIFIERS)
            if nouns:
                return nouns
        return ()

    def _parts_of_parents(self, port: Port, nouns: tuple[str, ...]) -> Iterator[Link]:
        """Yield links from lists in the records that a path goes through, `integration.cmdb_tables[].id`."""
        route = self.apis[port.tool].route
        collection = route.slots.get(port.path, "") if route is not None else ""
        for parent in _parents(collection):
            for tool in self._lists.get(parent, ()):
                for output in self.apis[tool].outputs:
                    element, _, level = output.path.rpartition(".")
                    of = canonical(element.rpartition(".")[2].removesuffix("[]"))
                    if element.endswith("[]") and of[-len(nouns) :] == nouns and _is_identifier(level):
                        yield Link(tool, output.path, port.tool, port.path, _REST_OF_NAME, "route")

    def _namesakes(self, nouns: tuple[str, ...], consumer: ApiNode) -> list[str]:
        """Return tools that list what some nouns name, in full or as its consumer's own path says the rest of it."""
        found = []
        for tool in self._lists_of.get(nouns[-1], ()) if nouns else ():
            listed = resource(self._path(tool))
            rest = set(listed[: -len(nouns)])
            if listed[-len(nouns) :] == nouns and rest <= consumer.nouns:
                found.append(tool)
        return found

    def _path(self, tool: str) -> str:
        route = self.apis[tool].route
        return "" if route is None else route.path

    def _element(self, tool: str, port: Port, nouns: tuple[str, ...]) -> Port | None:
        """Return the part of a list that names one of its elements as an input does, if there is one.

        First the part that is called as the input is, unless that is the name of the thing alone: then the part that
        other operations address an element by, then an id, and a name last.
        """
        names = self._slot_names(port, tool, nouns)
        ranked = []
        for output in self.apis[tool].outputs:
            if _types_agree(output, port):
                rank = _rank_of_part(output, port, nouns, names)
                if rank:
                    same_kind = bool(output.leaf.types & port.leaf.types) + (output.leaf.format == port.leaf.format)
                    ranked.append((rank, same_kind, -output.path.count("."), output))
        return max(ranked, key=lambda found: found[:3])[3] if ranked else None

    def _slot_names(self, port: Port, tool: str, nouns: tuple[str, ...]) -> frozenset[str]:
        """Return the names that operations have for an element of what a tool lists, and for an input in its place."""
        route = self.apis[port.tool].route
        collection = route.slots.get(port.path, "") if route is not None else ""
        names = {_last_level(port.path), *self._names_behind(collection), *self._names_behind(self._path(tool))}
        return frozenset(name for name in names if not set(canonical(name)) <= set(nouns))

    def _names_behind(self, collection: str) -> set[str]:
        """Return the names of the parameter that follows a path."""
        names = self._names_in_slot.get(collection)
        if names is None:
            names = set[str]()
            for tool in self._in_slots.get(collection, ()):
                route = self.apis[tool].route
                names.update(name for name, place in (route.slots if route else {}).items() if place == collection)
            self._names_in_slot[collection] = names
        return names

    def _chosen(self, consumer: str, producers: Collection[str], most: int) -> list[str]:
        if len(producers) <= most + 1:
            return [tool for tool in producers if tool != consumer]
        chosen: dict[str, None] = {}
        words = sorted(self.apis[consumer].words, key=lambda word: (len(self._by_word[word]), word))
        for word in words:
            row = self._by_word[word]
            if len(row) <= _RARE:
                chosen.update((tool, None) for tool in row if tool in producers and tool != consumer)
        for tool in producers:
            if len(chosen) >= most:
                break
            if tool != consumer:
                chosen[tool] = None
        return list(chosen)[:most]

    def _node(self, spec: ToolSpec) -> ApiNode:
        words = {stem(word) for word in canonical(spec.name) if word not in GENERIC | PREPOSITIONS | STRICT_VERBS} | {
            f"#{tag}" for tag in spec.tags
        }
        # A watch never answers, so it gives nothing to others.
        gives = spec.name not in self.left_out and not spec.streams
        seen = self._observed.get(spec.name, {}) if gives else None
        return ApiNode(spec, seen, frozenset(words), _producer_prior(spec), route_of(spec.route))

    def _add(self, node: ApiNode) -> None:
        name = node.spec.name
        self.remove(name)
        keys = self._keys[name] = set()
        for port in chain(*node.read()):
            key = self.key_of(port)
            cluster = self.clusters.get(key)
            if cluster is None:
                cluster = self.clusters[key] = Cluster(key)
            keys.add(cluster.key)
            side = cluster.producers if port.direction == "out" else cluster.consumers
            side[name] = (*side.get(name, ()), port.path)
        self.apis[name] = node
        for table, key in self._entries(node):
            table.setdefault(key, {})[name] = None
        links = () if node.spec.streams else (node.spec.returns or {}).get("x-links", ())
        for consumer, parameter, path in links:
            self._linked.setdefault((consumer, parameter), {})[name, path] = None

    def remove(self, tool: str) -> None:
        """Remove a tool, but not what was observed of it; one that is unknown is no error."""
        self._rarities = {}
        self._names_in_slot = {}
        node = self.apis.pop(tool, None)
        if node is None:
            return
        for key in self._keys.pop(tool):
            cluster = self.clusters[key]
            cluster.producers.pop(tool, None)
            cluster.consumers.pop(tool, None)
            if not cluster.producers and not cluster.consumers:
                del self.clusters[key]
        for table, key in self._entries(node):
            row = table[key]
            del row[tool]
            if not row:
                del table[key]

    def _entries(self, node: ApiNode) -> Iterator[tuple[dict[Any, dict[str, None]], Any]]:
        """Yield each index that a tool stands in, and its key there."""
        for word in node.words:
            yield self._by_word, word
        for collection in set(node.route.slots.values()) if node.route is not None else ():
            yield self._in_slots, collection
        if node.route is not None and node.route.reads and not node.spec.streams:
            yield self._lists, node.route.path
            if node.route.of_caller:
                yield self._of_caller, node.route.path.rpartition("/")[0]
            if node.route.lists:
                yield self._lists_of, (resource(node.route.path) or ("",))[-1]


def _producer_prior(spec: ToolSpec) -> float:
    if spec.destructive:
        return _DESTROYS
    reads = spec.read_only
    if reads is None:
        verb = verb_of(spec.name)
        reads = verb in READING if verb else None
    return _UNCLEAR if reads is None else 1.0 if reads else _WRITES


def _last_level(path: str) -> str:
    return path.replace("[]", "").rsplit(".", 1)[-1]


def _rank_of_part(output: Port, port: Port, nouns: tuple[str, ...], names: Collection[str]) -> int:
    """Return how well a part of an element addresses it as an input wants, 0 for not at all.

    Args:
        output: the part.
        port: the input.
        nouns: words of what the collection is of.
        names: names that operations have for an element, without those that only say what it is.
    """
    words, wanted, level = output.meaning.words, port.meaning.words, _last_level(output.path)
    rest = wanted.difference(nouns)  # the "number" of an issue_number
    is_bare = not rest and set(canonical(_last_level(port.path))) <= set(nouns)
    if level == _last_level(port.path) and not is_bare:
        return 6
    if words == wanted and not is_bare:
        return 5
    if level in names:
        return 4
    if words & IDENTIFIERS and (words - IDENTIFIERS <= set(nouns) or words.difference(nouns) == rest):
        return 3
    if words == wanted or (rest and words.difference(nouns) == rest):
        return 2
    return 1 if words & (rest | IDENTIFIERS) else 0


_OF_A_STATE: Final = frozenset({"version", "etag", "revision"})
"""Words of content that a change has to repeat from the record that it changes."""


def _is_of_another(port: Port, collection: tuple[str, ...]) -> bool:
    """Return True for the id of a thing that a collection is not of: the user of a membership."""
    of = port.meaning.words - IDENTIFIERS - {"parent"}
    return bool(of) and not of & set(collection)


def _is_own_id(output: str | None) -> bool:
    """Return True for the id of an element itself (``entries[].id``), not of what it has (``[].user.id``)."""
    place, _, level = (output or "").rpartition(".")
    return place.endswith("[]") and _is_identifier(level)


def _is_identifier(level: str) -> bool:
    return set(canonical(level)) <= IDENTIFIERS


def _parents(path: str) -> Iterator[str]:
    """Yield the paths in front of a path, nearest first.

    >>> list(_parents("/users/{}/tables"))
    ['/users/{}', '/users']
    """
    while path := path.rpartition("/")[0]:
        yield path


def _adds_member(port: Port, consumer: Route) -> bool:
    """Return True if a PUT puts one thing into a collection of others: a user among the bans."""
    collection = consumer.slots[port.path]
    return consumer.path == f"{collection}/{{}}" and _is_of_another(port, resource(collection))


def _shared(one: str, other: str) -> int:
    """Return how many parts two paths have in common from the beginning."""
    pairs = zip(one.split("/"), other.split("/"), strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(one.count("/"), other.count("/")) + 1)


def _types_agree(output: Port, wanted: Port) -> bool:
    """Return True if a value may become another one; a text may be a number, and who says no type may be anything."""
    if output.meaning.shape != wanted.meaning.shape:
        return not (output.leaf.types and wanted.leaf.types)
    return True
