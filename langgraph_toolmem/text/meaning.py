"""Meanings of parameters: words taken from a name, its place, its description and its tool.

``city``, ``city_name`` and ``name`` ("Name of a city") mean the same; ``id`` of ``create_ticket``'s output and
``ticket_id`` do too. Roles are separate from the meaning: ``origin_city`` and ``destination_city`` are both a city,
with the roles "from" and "to". The inputs and outputs of a tool are its ports: single values with a place and a
meaning.

The words themselves are in `text.words.LEXICON`. The rules are our own choice [O]; the paper clusters parameters by
embeddings of their descriptions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.text.schema import Described, Leaf, leaves_of
from langgraph_toolmem.text.words import LEXICON, words

PATH_SLOT: Final = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True, slots=True)
class EntityRoute:
    """One route.

    Attributes:
        method: in upper case.
        path: with ``{}`` in place of each parameter: two routes that differ only in parameter names are one.
        slots: parameter -> the path before it.
    """

    method: str
    path: str
    slots: dict[str, str]

    @property
    def reads(self) -> bool:
        """True if a call is read-only by the method."""
        return self.method in ("GET", "HEAD")

    @property
    def streams(self) -> bool:
        """True if an answer does not end: a watch, or a stream."""
        parts = self.path.split("/")
        return "watch" in parts or parts[-1] == "stream"

    @property
    def of_caller(self) -> bool:
        """True if it is about the caller: ``/users/me``."""
        return _means_caller(self.path.rpartition("/")[2])

    @property
    def lists(self) -> bool:
        """True if it reads a collection: its path ends in a name."""
        return self.reads and not self.path.endswith("{}") and not self.of_caller

    @property
    def writes_content(self) -> bool:
        """True if a call sends content, for a new or an existing element."""
        return self.method in ("POST", "PUT", "PATCH")


@cached(mebibytes=8)
def route_of(text: str) -> EntityRoute | None:
    """Return the route of a `ToolSpec.route`; None for ""."""
    method, _, path = text.partition(" ")
    if not path:
        return None
    path = path.split("?", 1)[0].rstrip("/")
    # "/orders.json" is about orders, too.
    path = re.sub(r"\.(?:json|xml|csv)$", "", path)
    slots: dict[str, str] = {}
    for slot in PATH_SLOT.finditer(path):
        before = path[: slot.start()]
        slots[slot[1]] = PATH_SLOT.sub("{}", before).rstrip("/")
    return EntityRoute(method, PATH_SLOT.sub("{}", path), slots)


def names_in(text: str) -> str:
    """Return the parts of a `ToolSpec.route` that are not parameters.

    >>> names_in("GET /repos/{owner}/pull-requests/{number}")
    ' repos  pull-requests '
    """
    return PATH_SLOT.sub("", text.partition(" ")[2]).replace("/", " ")


Shape = Literal["scalar", "flag", "object"]
Role = Literal["from", "to", ""]


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of one value.

    Attributes:
        words: the words of the meaning, singular; never empty.
        role: "from", "to" or "": the side of the value if there are two of a kind.
        shape: scalar (texts and numbers are one: many interfaces send numbers as texts), flag or object.
        vague: True if the owner of the id, name, count … is unknown.
        named: True if the meaning comes from its own name, not from the words around it.
    """

    words: frozenset[str]
    role: Role = ""
    shape: Shape = "scalar"
    vague: bool = False
    named: bool = True


def meaning_of(leaf: Leaf, tool: str, route: str = "") -> Meaning:
    """Return the meaning of a parameter or of a part of an output.

    Args:
        leaf: the value.
        tool: name of the tool it belongs to.
        route: HTTP method and path of the tool, or ""; its nouns count more than those of the name.
    """
    levels = leaf.path.replace("[]", "").split(".")
    shape = _shape(leaf)
    named = _named(levels[-1], shape)
    if named is not None:
        return named
    levels = [level for level in levels if level]
    own = OwnWords((), "")
    if levels:
        own = _own_words(levels[-1])
    heads = own.words or ("result",)
    nouns = _generic_owner(heads, _surroundings(leaf, levels, own.words, tool, route_of(route)))
    if not nouns:
        return _shared(frozenset(heads), own.role, shape, True)
    # "Name of a city" means the same as "city".
    kept = [head for head in heads if head != "name"]
    return _shared(frozenset((*nouns, *kept)), own.role, shape, False, False)


class _Surroundings(NamedTuple):
    """The words around a value with a generic name, which may name the owner of the id, name, count …

    Attributes:
        places: words of the levels above it, from the outermost.
        description: its description, "" if a path is more specific.
        owner: words of its tool's subject.
    """

    places: list[tuple[str, ...]]
    description: str
    owner: tuple[str, ...]


def _surroundings(
    leaf: Leaf, levels: list[str], own: tuple[str, ...], tool: str, way: EntityRoute | None
) -> _Surroundings:
    above: list[tuple[str, ...]] = []
    for level in levels[:-1]:
        said = _own_words(level).words
        if said:
            above.append(said)
    entity = entity_of(tool)
    owner: tuple[str, ...] = ()
    if entity:
        owner = (entity,)
    if way is None:
        return _Surroundings([said[-1:] for said in above], leaf.description, owner)
    owner = _resource_of_ids(way.path, own) or owner
    if leaf.path in way.slots:
        # A parameter of the path belongs to the part before it.
        above = []
        owner = resource(way.slots[leaf.path]) or owner
    # A path is more specific than a description, and its nouns have several words.
    return _Surroundings([owner, *above], "", owner)


def _resource_of_ids(path: str, own: Sequence[str]) -> tuple[str, ...]:
    """Return the words of the subject of a bare id's path: the id of ``/messages/content`` is a message's."""
    subject = resource(path)
    parent, _, last = path.rpartition("/")
    is_part = LEXICON.generic.issuperset(subject) and last.lower() == "_".join(subject)
    if is_part and LEXICON.identifiers.issuperset(own):
        return resource(parent) or subject
    return subject


@cached(mebibytes=8)
def _named(name: str, shape: Shape) -> Meaning | None:
    """Return the meaning of a value with a specific name; None if the name is generic."""
    own = _own_words(name)
    if not own.words or LEXICON.generic.issuperset(own.words):
        return None
    kept = [word for word in own.words if word != "name"]
    return _shared(frozenset(kept or own.words), own.role, shape)


# Thousands of values mean the same.
_shared = cached(mebibytes=8)(Meaning)


def _generic_owner(heads: Sequence[str], around: _Surroundings) -> tuple[str, ...]:
    """Return the owner of an id or name: the level above it, a noun of its description, or its tool's noun."""
    # The innermost level is the most specific: `order.items[].id` is an item's.
    for nouns in reversed(around.places):
        if not LEXICON.generic.issuperset(nouns):
            return nouns
    noun = _noun_in(around.description, heads[-1])
    if noun:
        return (noun,)
    if set(around.owner) <= set(heads):
        return ()
    return around.owner


@cached(mebibytes=8)
def resource(path: str) -> tuple[str, ...]:
    """Return the words of a path's subject, its last name that is not a verb, or ().

    >>> resource("/repos/{}/pull-requests/{}/close"), resource("/rooms.listMembers")
    (('pull', 'request'), ('member',))
    >>> resource("/users/me"), resource("/inbound/update-route"), resource("/uploads")
    (('user',), ('route',), ('upload',))
    """
    for part in reversed(path.split("/")):
        # "/users/me" is about a user.
        if "{}" in part or _means_caller(part):
            continue
        pieces = re.split("[.:]", part)
        nouns = _nouns_of_part(pieces)
        # "uploads" are things, "upload" is an action.
        is_plural = len(nouns) == 1 and pieces[-1].lower() == f"{nouns[0]}s"
        if nouns and (is_plural or not LEXICON.path_verbs.issuperset(nouns)):
            return nouns
    return ()


def _nouns_of_part(pieces: Sequence[str]) -> tuple[str, ...]:
    """Return the words of one part of a path, without its verb."""
    last = canonical(pieces[-1])
    if len(pieces) > 1:
        # users.list, rooms.listMembers: the last piece is a method.
        objects: tuple[str, ...] = ()
        if last and last[0] in LEXICON.verbs:
            objects = last[1:]
        return objects or canonical(pieces[-2])
    if len(last) > 1 and last[0] in LEXICON.path_verbs:
        objects = last[1:]
        # change-status: the status of the part before it.
        if LEXICON.generic.issuperset(objects):
            return ()
        return objects
    return last


def _means_caller(part: str) -> bool:
    said = words(part)
    return len(said) == 1 and said[0] in LEXICON.caller


class OwnWords(NamedTuple):
    """The meaningful words of a name, and its role."""

    words: tuple[str, ...]
    role: Role


@cached(mebibytes=8)
def _own_words(name: str) -> OwnWords:
    all_words = canonical(name)
    role: Role = ""
    own: list[str] = []
    for word in all_words:
        side = _side_of(word)
        # "start" alone is a value, in "start_date" it is a role.
        if side and word != all_words[-1]:
            role = role or side
        else:
            own.append(word)
    if len(own) > 1:
        own = [word for word in own if not _is_noise(word)] or own
    return OwnWords(tuple(dict.fromkeys(own)) or all_words, role)


def _side_of(word: str) -> Role:
    if word in LEXICON.from_side:
        return "from"
    if word in LEXICON.to_side:
        return "to"
    return ""


def _is_noise(word: str) -> bool:
    """Return True for a noise word, if there are others; one Chinese character is a word, one letter is not."""
    return word in LEXICON.noise or (len(word) == 1 and word.isascii())


@cached(mebibytes=8)
def canonical(name: str) -> tuple[str, ...]:
    """Return the words of a name: singular, in lower case, one spelling each.

    >>> canonical("customerIDs"), canonical("lat")
    (('customer', 'id'), ('latitude',))
    """
    # By words alone: an embedder that merged names of one meaning (all-MiniLM-L6-v2, cosine >= 0.9) left the share of
    # right plans of six recorded sets as it was.
    most_words = 12
    # "customerIDs" would be split into "I" and "Ds".
    return tuple(canonical_words(words(name.replace("IDs", "Ids"))[:most_words]))


@cached(mebibytes=8)
def singular(word: str) -> str:
    """Return the singular of an English noun; anything else stays as it is."""
    if len(word) < 4 or not word.isascii() or not word.endswith("s") or word.endswith(("ss", "us", "is", "news")):
        return word
    if word.endswith("ies"):
        # "Cities" are of a city, "movies" of a movie.
        keeps_ie = word in ("movies", "cookies", "calories", "zombies", "selfies", "series", "species", "rookies")
        if keeps_ie or len(word) < 5:
            return word[:-1]
        return word[:-3] + "y"
    if word.endswith(("sses", "ches", "shes", "xes", "zes")):
        return word[:-2]
    return word[:-1]


@cached(mebibytes=8)
def entity_of(tool: str) -> str:
    """Return the noun of a tool's subject, or "".

    >>> [entity_of(name) for name in ("get_order_details", "contacts.search", "Search_Book_By_Keyword", "sort")]
    ['order', 'contact', 'book', '']
    """
    for word in reversed(_after_verbs(_subject(canonical(tool)))):
        if len(word) > 1 and word not in LEXICON.no_entities:
            return word
    return ""


def _subject(name: Iterable[str]) -> list[str]:
    """Return the words of a name up to a preposition, without verbs at the end: "search book" of "search book by
    keyword".
    """
    phrase: list[str] = []
    for word in name:
        if phrase and word in LEXICON.prepositions:
            break
        phrase.append(word)
    while len(phrase) > 1 and phrase[-1] in LEXICON.strict_verbs:
        phrase.pop()
    return phrase


def _after_verbs(phrase: Sequence[str]) -> Sequence[str]:
    begin = 0
    for index, word in enumerate(phrase[:-1]):
        # After a verb, "order" and "list" are nouns.
        if word in LEXICON.strict_verbs or (begin == 0 and word in LEXICON.verbs):
            begin = index + 1
    return phrase[begin:]


@cached(mebibytes=8)
def verb_of(tool: str) -> str:
    """Return the first verb in a tool's name, or ""."""
    for word in canonical(tool):
        if word in LEXICON.verbs:
            return word
    return ""


@cached(mebibytes=8)
def _noun_in(description: str, head: str) -> str:
    """Return the owner of a `head` in a description: the visitor in "ID of the visitor" and "the visitor's ID"."""
    # "'s" becomes a piece of its own, which is not a word.
    max_words = 40
    said = [word for word in canonical_words(words(description)[:max_words]) if word != "s"]
    for index, word in enumerate(said):
        if word != head:
            continue
        # "ID of the new visitor": the owner is within a few words. "Visitor's ID": it is the word before.
        if said[index + 1 : index + 2] in (["of"], ["for"]):
            noun = _first_noun(said[index + 2 : index + 8])
        else:
            noun = _first_noun(said[max(0, index - 1) : index])
        if noun:
            return noun
    return ""


def canonical_words(plain: Iterable[str]) -> list[str]:
    """Return separate words: singular, one spelling each."""
    canonical_forms = []
    for word in plain:
        noun = singular(word)
        canonical_forms.append(LEXICON.aliases.get(noun, noun))
    return canonical_forms


def _first_noun(said: Sequence[str]) -> str:
    for word in said:
        if word in LEXICON.prepositions or word in ("that", "which", "where"):
            return ""
        if word not in LEXICON.noise and word not in LEXICON.generic and word.isalpha() and len(word) > 2:
            # A verb in place of the owner: the owner is not named.
            if word in LEXICON.strict_verbs:
                return ""
            return word
    return ""


def _shape(leaf: Leaf) -> Shape:
    if leaf.types == {"boolean"}:
        return "flag"
    if leaf.types and leaf.types <= {"object", "array"} and not leaf.path.endswith("[]"):
        return "object"
    return "scalar"


# --- ports ---


class Port(NamedTuple):
    """One input or one part of the output of a tool.

    Attributes:
        tool: name of the tool.
        path: place of the value: ``city``, ``address.zip``, ``items[].id``, "" for the whole output.
        direction: "in" or "out".
        leaf: its schema.
        meaning: its meaning.
    """

    tool: str
    path: str
    direction: Literal["in", "out"]
    leaf: Leaf
    meaning: Meaning

    @property
    def parameter(self) -> str:
        return self.path.split(".", 1)[0].removesuffix("[]")

    @property
    def level(self) -> str:
        """Return the last part of its path: "id" for ``items[].id``."""
        return self.path.replace("[]", "").rsplit(".", 1)[-1]

    @property
    def required(self) -> bool:
        return self.leaf.required

    @property
    def key(self) -> tuple[str, str, str]:
        """Return its identity."""
        return (self.tool, self.direction, self.path)


def inputs_of(spec: Described) -> tuple[Port, ...]:
    """Return the inputs of a call; values inside objects are ports of their own."""
    most_inputs = 64
    leaves = leaves_of(spec.parameters, limit=most_inputs, depth=4)
    ports = []
    for leaf in leaves:
        if leaf.path:
            ports.append(_port(spec, leaf, "in"))
    return tuple(ports)


def outputs_of(
    spec: Described, observed: Mapping[str, Iterable[str]] | None = None, inputs: Iterable[Port] | None = None
) -> tuple[Port, ...]:
    """Return the outputs of a call.

    Args:
        spec: the tool. Its declared output comes first.
        observed: path -> JSON types of observed results; see `schema.paths_of`.
        inputs: its `inputs_of`, if they were read before.

    Returns:
        One port per path. If the output is unknown or has no fields, a tool gives
        an id of its subject; and so does a tool whose route lists a collection without a declared list.
    """
    most_outputs = 40
    ports: dict[str, Port] = {}
    declared = leaves_of(spec.returns, limit=most_outputs)
    for leaf in declared:
        if leaf.path or leaf.types:
            ports[leaf.path] = _port(spec, leaf, "out")
    for path, types in (observed or {}).items():
        if path not in ports:
            ports[path] = _port(spec, Leaf(path, frozenset(types)), "out")
    # Documents of APIs often declare an object without its fields.
    if "id" not in ports:
        implied = _implied_id(spec, declared, ports, inputs)
        if implied is not None:
            ports["id"] = implied
    return tuple(ports.values())


def _implied_id(
    spec: Described, declared: Sequence[Leaf], ports: Mapping[str, Port], inputs: Iterable[Port] | None
) -> Port | None:
    """Return the undeclared id of an output; None if the output is declared, or the tool takes that id."""
    lists_undeclared = _lists_undeclared(route_of(spec.route), ports)
    if not lists_undeclared and not all(map(_says_nothing, ports.values())):
        return None
    implied = _implied_by(declared, spec)
    if not implied:
        return None
    # A tool that takes an id does not find it; a list takes ids as filters.
    if lists_undeclared:
        inputs = ()
    elif inputs is None:
        inputs = inputs_of(spec)
    for port in (*ports.values(), *inputs):
        if port.meaning.words == implied:
            return None
    return Port(spec.name, "id", "out", Leaf("id"), Meaning(implied, named=False))


def _lists_undeclared(way: EntityRoute | None, ports: Iterable[str]) -> bool:
    """Return True if a route reads a collection, but its outputs (paths) have no list."""
    if way is None or not way.lists:
        return False
    for path in ports:
        if "[]" in path:
            return False
    return True


def _says_nothing(port: Port) -> bool:
    """Return True for an object without properties, a truth value, or a value that is called "result"."""
    if port.meaning.shape != "scalar":
        return "." not in port.path
    return port.meaning.words <= {"result", "data", "response", "output", entity_of(port.tool)}


def _implied_by(declared: Iterable[Leaf], spec: Described) -> frozenset[str]:
    """Return the id that an output seems to contain: by the name of its only thing ("event"), or by the tool."""
    for leaf in declared:
        meaning = meaning_of(leaf, spec.name, spec.route)
        is_thing = meaning.named and not meaning.vague and meaning.shape != "flag"
        if is_thing and len(meaning.words) == 1:
            return meaning.words | {"id"}
    way = route_of(spec.route)
    entity = entity_of(spec.name)
    owner: tuple[str, ...] = ()
    if way is not None:
        owner = resource(way.path)
    elif entity and verb_of(spec.name):
        owner = (entity,)
    if not owner:
        return frozenset()
    return frozenset({*owner, "id"})


def _port(spec: Described, leaf: Leaf, direction: Literal["in", "out"]) -> Port:
    return Port(spec.name, leaf.path, direction, leaf, meaning_of(leaf, spec.name, spec.route))
