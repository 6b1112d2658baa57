"""Nodes of the dependency graph: tools, and parameters that several inputs and outputs share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.meaning import EntityRoute, Port, canonical, inputs_of, outputs_of, route_of, verb_of
from langgraph_toolmem.text.words import LEXICON, stem

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
    def nouns(self) -> frozenset[str]:
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
