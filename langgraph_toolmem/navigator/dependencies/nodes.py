"""Nodes of the dependency graph: tools, and parameters that several inputs and outputs share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.lexicon import LEXICON
from langgraph_toolmem.text.meaning import EntityRoute, Port, canonical, inputs_of, outputs_of, route_of, verb_of
from langgraph_toolmem.text.words import stem

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
        """Return True if no tool has this parameter any more."""
        return not self.producers and not self.consumers

    @property
    def id(self) -> str:
        """Return its words and shape as a text; unlike that of every other one."""
        words, shape = self.key
        # What it is of comes first: "city name", not "name city".
        ordered = sorted(words - LEXICON.generic) + sorted(words & LEXICON.generic)
        label = " ".join(ordered)
        if shape == "scalar":
            return label
        return f"{label} ({shape})"

    @property
    def vague(self) -> bool:
        """Return True if nothing says of what its members are the id, name, count ..."""
        words, shape = self.key
        return shape != "alias" and words <= LEXICON.generic


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
    route: EntityRoute | None = None

    @classmethod
    def of(cls, spec: ToolSpec, seen: Mapping[str, Iterable[str]] | None) -> ApiNode:
        """Return the node of a tool."""
        # Verbs and prepositions are in the names of unrelated tools: they would make all of them akin.
        telling = set(canonical(spec.name)) - LEXICON.generic - LEXICON.prepositions - LEXICON.strict_verbs
        words = {stem(word) for word in telling}
        # Marked, so that a tag and a word of a name are never the same.
        for tag in spec.tags:
            words.add(f"#{tag}")
        return cls(spec, seen, frozenset(words), _producer_prior(spec), route_of(spec.route))

    @cached_property
    def inputs(self) -> tuple[Port, ...]:
        """The values that a call takes."""
        return self._read_inputs()

    @cached_property
    def outputs(self) -> tuple[Port, ...]:
        """The values that a call gives."""
        return self._outputs(self.inputs)

    @cached_property
    def needs(self) -> tuple[Port, ...]:
        """The inputs that a call must have."""
        return tuple(port for port in self.inputs if port.required)

    def ports(self) -> tuple[Port, ...]:
        """Return its inputs and outputs, and keep none."""
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
        """Return the path of the collection that an input picks an element of; "" if it picks none."""
        if self.route is None:
            return ""
        return self.route.slots.get(port.path, "")

    @property
    def nouns(self) -> frozenset[str]:
        """Return the words of its path."""
        return frozenset(canonical(self.path.replace("{}", "")))


def _producer_prior(spec: ToolSpec) -> float:
    # Our own choice [O]; figures of plans with it are in docs/figures.md. Of two tools that give an id, the one that
    # only reads has to win whatever their names say; a tool that does not say what it does is nearly as good.
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
