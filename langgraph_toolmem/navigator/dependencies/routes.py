"""Links by the paths of HTTP routes: the operation that lists the collection from which an input picks an element.

``GET /orders`` lists the elements that ``/orders/{order_id}`` picks. If the path does not show it, a document's
``x-links``, a list of the same name elsewhere, or the rest of the input's name (`ancestor_folder_id`) does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from langgraph_toolmem.navigator.dependencies.links import Link
from langgraph_toolmem.navigator.dependencies.nodes import ApiNode
from langgraph_toolmem.text.meaning import EntityRoute, Port, canonical, resource
from langgraph_toolmem.text.words import LEXICON

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
        self._lists_of: dict[str, dict[str, None]] = {}  # last word of what is listed -> tools
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
        if not consumer.writes_content:
            return True
        return _may_be_content(port, producer, consumer)

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
            if listed[-len(nouns) :] == nouns and rest <= consumer.nouns:
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
        names = {_last_level(port.path)}
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
        return _SoughtCollection("", route.path, _without_identifiers(canonical(_last_level(port.path))))
    return None


def _may_fill_slot(link: Link, port: Port, producer: EntityRoute, consumer: EntityRoute, slot: str) -> bool:
    """Return False for a value that a path must not take from this producer."""
    addressed = f"{slot}/{{}}"
    # The user to delete is not the caller.
    if producer.of_caller and not consumer.reads and consumer.path == addressed:
        return False
    if consumer.method != "PUT" or not consumer.writes_content:
        return True
    of_the_collection = producer.path in (slot, addressed) and not _is_own_id(link.output)
    return not (of_the_collection and _adds_member(port, consumer))


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

    `nouns` say what the collection is of; `names` are those that operations have for an element and that say more.
    """
    words, wanted, level = output.meaning.words, port.meaning.words, _last_level(output.path)
    own = words.difference(nouns)
    rest = wanted.difference(nouns)  # the "number" of an issue_number
    is_bare = not rest and set(canonical(_last_level(port.path))) <= set(nouns)
    if not is_bare:
        if level == _last_level(port.path):
            return 6
        if words == wanted:
            return 5
    if level in names:
        return 4
    if words & LEXICON.identifiers:
        is_plain_id = words - LEXICON.identifiers <= set(nouns)
        if is_plain_id or own == rest:
            return 3
    if words == wanted or (rest and own == rest):
        return 2
    if words & (rest | LEXICON.identifiers):
        return 1
    return 0


def _without_identifiers(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for word in words if word not in LEXICON.identifiers)


def _last_level(path: str) -> str:
    return path.replace("[]", "").rsplit(".", 1)[-1]


def _is_of_another(port: Port, collection: tuple[str, ...]) -> bool:
    """Return True for the id of another thing than the collection's elements: the user of a membership."""
    things = port.meaning.words - LEXICON.identifiers - {"parent"}
    return bool(things) and not things & set(collection)


def _is_own_id(output: str | None) -> bool:
    """Return True for the id of an element itself (``entries[].id``), not of its parts (``[].user.id``)."""
    place, _, level = (output or "").rpartition(".")
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
    if output.meaning.shape != wanted.meaning.shape:
        return not (output.leaf.types and wanted.leaf.types)
    return True
