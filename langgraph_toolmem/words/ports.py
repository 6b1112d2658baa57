"""The inputs and outputs of a tool as ports: single values with a place and a meaning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from langgraph_toolmem.words.meaning import Meaning, entity_of, implied_words, meaning_of, verb_of
from langgraph_toolmem.words.schema import Described, Leaf, leaves_of

Origin = Literal["declared", "observed", "implied"]

MAX_INPUTS = 64
TRUST = {"declared": 1.0, "observed": 1.0, "implied": 0.7}
"""How much of a link's fit is left by where its output is known from [O]."""


@dataclass(frozen=True, slots=True)
class Port:
    """One input or one part of the output of a tool.

    Attributes:
        tool: name of the tool.
        path: where the value stands: ``city``, ``address.zip``, ``items[].id``, "" for the whole output.
        direction: "in" or "out".
        leaf: what its schema says.
        meaning: what it means.
        origin: declared in a schema, observed in results, or implied by the tool's name.
    """

    tool: str
    path: str
    direction: Literal["in", "out"]
    leaf: Leaf
    meaning: Meaning
    origin: Origin = "declared"

    @property
    def parameter(self) -> str:
        """The parameter of the call that it lies in."""
        return self.path.split(".", 1)[0].removesuffix("[]")

    @property
    def required(self) -> bool:
        """Whether a call must have it."""
        return self.leaf.required

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from every other port."""
        return (self.tool, self.direction, self.path)


def inputs_of(spec: Described) -> tuple[Port, ...]:
    """The values a call takes; values inside of objects are ports of their own."""
    leaves = leaves_of(spec.parameters, limit=MAX_INPUTS, depth=4)
    return tuple(_port(spec.name, leaf, "in", "declared") for leaf in leaves if leaf.path)


def outputs_of(spec: Described, observed: Mapping[str, Iterable[str]] | None = None) -> tuple[Port, ...]:
    """The values a call gives.

    Args:
        spec: the tool. Its declared output comes first.
        observed: path -> JSON types of results that were seen; see `result_paths.paths_of`.

    Returns:
        One port per path. A tool that is named after an id (``find_user_id``) gives one, declared or not; if nothing
        is declared or was seen, or no more than that something comes back, so does any other tool: an id of what
        it is about.
    """
    ports: dict[str, Port] = {}
    declared = leaves_of(spec.returns) if spec.returns is not None else []
    for leaf in declared:
        if leaf.path or leaf.types:
            ports[leaf.path] = _port(spec.name, leaf, "out", "declared")
    for path, types in (observed or {}).items():
        if path not in ports:
            ports[path] = _port(spec.name, Leaf(path, frozenset(types)), "out", "observed")
    said = implied_words(spec.name)
    if all(_says_nothing(port) for port in ports.values()):
        said = said or _implied_by(declared, spec.name)
    # What takes an id does not find it.
    known = {port.meaning.words for port in (*ports.values(), *inputs_of(spec))}
    if said and said not in known and "id" not in ports:
        ports["id"] = Port(spec.name, "id", "out", Leaf("id"), Meaning(said, source="tool"), "implied")
    return tuple(ports.values())


def _says_nothing(port: Port) -> bool:
    """An object without properties, or a value that is called "result": no more than that something comes back."""
    if port.meaning.shape == "object":
        return "." not in port.path
    return port.meaning.words <= {"result", "data", "response", "output", entity_of(port.tool)}


def _implied_by(declared: Iterable[Leaf], tool: str) -> frozenset[str]:
    """An id of what the output is about: by its description ("events: matching events"), else by the tool's name."""
    for leaf in declared:
        meaning = meaning_of(leaf, tool)
        if meaning.source == "name" and not meaning.vague and len(meaning.words) == 1:
            return meaning.words | {"id"}
    owner = entity_of(tool) if verb_of(tool) else ""
    return frozenset({owner, "id"}) if owner else frozenset()


def _port(tool: str, leaf: Leaf, direction: Literal["in", "out"], origin: Origin) -> Port:
    return Port(tool, leaf.path, direction, leaf, meaning_of(leaf, tool), origin)
