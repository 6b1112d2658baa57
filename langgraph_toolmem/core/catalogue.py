"""The tools of a memory: those given, those that hosts had at hand, and what is known of others from before."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from langchain_core.tools import BaseTool

from langgraph_toolmem.core.declarations import Declarations
from langgraph_toolmem.graph.evidence import EvidenceGraph
from langgraph_toolmem.graph.operations import Record, ToolDescribed
from langgraph_toolmem.runs.run import OWN_TOOLS
from langgraph_toolmem.runs.tool_note import EFFECTS, changes_of, grave_marks, gravest, spec_of, without_choices
from langgraph_toolmem.runs.tools import ToolSpec, read_tools, side_effects

MAX_ADOPTED: Final = 64
"""Sets of tools of hosts that are not looked at again."""
MAX_TOOL_SETS: Final = 64
"""Whose schemas are remembered."""


class Catalogue:
    """Safe to use from several threads, under the memory's lock.

    Attributes:
        declarations: the tools that the developer declared to only read.

    Args:
        graph: what calls and earlier processes showed of tools.
        given: the tools as given to the memory; None: nobody gave any.
        declarations: the tools that the developer declared to only read.
        describe: keeps what is new about tools; None: nothing is kept.
        lock: of the memory.
    """

    def __init__(
        self,
        graph: EvidenceGraph,
        given: Mapping[str, ToolSpec] | None,
        *,
        declarations: Declarations,
        describe: Callable[[Record], object] | None,
        lock: threading.RLock,
    ) -> None:
        self._graph, self._describe, self._lock = graph, describe, lock
        self.declarations, self._looks = declarations, describe is None
        self._given = None if given is None else {name: self._declared(spec) for name, spec in given.items()}
        self._of_hosts: dict[str, ToolSpec] = {}
        self._adopted: list[Mapping[str, ToolSpec]] = [] if given is None else [given]
        self._inferred: dict[str, tuple[int, ToolSpec]] = {}
        self._described: dict[str, tuple[Any, ToolSpec]] = {}
        self._marked: dict[str, tuple[tuple[ToolSpec | None, ...], ToolSpec]] = {}
        self._heard: list[Mapping[str, ToolSpec]] = []
        self._offered: dict[tuple[int, ...], tuple[list[BaseTool], dict[str, ToolSpec]]] = {}
        self._read: dict[int, tuple[BaseTool, ToolSpec]] = {}
        if given is not None:
            self._note(self._given or {})

    @property
    def given(self) -> Mapping[str, ToolSpec] | None:
        """The tools as given to the memory; None: nobody gave any."""
        return self._given

    @property
    def specs(self) -> Mapping[str, ToolSpec]:
        """The tools that may be called: those given, those that hosts had at hand, else what the calls show."""
        with self._lock:
            if self._given is not None:
                return self._given
            for name, entry in self._graph.tools.items():
                read = int(entry.get("calls_read", 0))
                if read and self._inferred.get(name, (0,))[0] != read:
                    self._inferred[name] = (read, infer_spec(name, entry))
            return {name: spec for name, (_, spec) in self._inferred.items()} | self._of_hosts

    def offered(self, tools: Iterable[Any]) -> dict[str, ToolSpec]:
        """Those of a step's tools that the agent itself executes, by name; the same dict for the same tools.

        Each is read once: reading the schemas of an agent's tools costs more than all its decisions.
        """
        executed = [tool for tool in tools if isinstance(tool, BaseTool)]
        key = tuple(map(id, executed))
        found = self._offered.get(key)
        if found is None:
            if len(self._offered) >= MAX_TOOL_SETS:
                self._offered, self._read = {}, {}
            before = self._read
            specs = read_tools([before[id(tool)][1] if id(tool) in before else tool for tool in executed])
            # The tools are kept with it: an id may be used again once its object is gone.
            before |= {id(tool): (tool, spec) for tool, spec in zip(executed, specs.values(), strict=True)}
            found = self._offered[key] = executed, specs
        return found[1]

    def marked(self, specs: Mapping[str, ToolSpec] | None = None) -> Mapping[str, ToolSpec]:
        """Return tools with everything that anybody said of them: the developer, hosts, the folder.

        The folder describes tools that are known from their calls alone, and adds marks that forbid. That a tool only
        reads has to be declared by the program that is running. A memory that only looks takes the folder's word.

        Args:
            specs: the tools; None: `specs`.
        """
        return _Marked(self.specs if specs is None else specs, self._with_marks)

    def _with_marks(self, spec: ToolSpec) -> ToolSpec:
        with self._lock:
            name = spec.name
            told = self._told_of(name)
            now = (spec, (self._given or {}).get(name), self._of_hosts.get(name))
            said = (*now, told)
            known = self._marked.get(name)
            if known is None or any(old is not new for old, new in zip(known[0], said, strict=True)):
                # What may be chosen may be one user's: the schema of a tool made for him has his addresses.
                first = spec if spec.seen or told is None else without_choices(told)
                others = [each for each in (*now[1:], told) if each is not None]
                known = self._marked[name] = said, self._declared(gravest(first, others))
            return known[1]

    def _declared(self, spec: ToolSpec) -> ToolSpec:
        """Return a tool with the developer's word that it only reads, if there is one that counts."""
        if spec.read_only or side_effects(spec) != "changes" or not self.declarations.cover(spec):
            return spec
        return replace(spec, read_only=True)

    def _told_of(self, name: str) -> ToolSpec | None:
        """Return a tool as the folder describes it; None if it does not. See `marked` for the marks."""
        entry = self._graph.tools.get(name, {})
        if (parameters := entry.get("parameters")) is None:
            return None
        before = self._described.get(name)
        marks = [entry.get(field) for field in ("description", *EFFECTS)]
        if before is None or before[0] != (id(parameters), *marks):
            told = spec_of(name, entry)
            before = self._described[name] = (id(parameters), *marks), told if self._looks else grave_marks(told)
        return before[1]

    @property
    def known(self) -> Mapping[str, ToolSpec]:
        """The tools at hand; of a memory that nobody gave any, those that were described to it before, or called."""
        with self._lock:
            if self._adopted:
                return self.specs
            specs = dict(self.specs)
            told = {name: self._told_of(name) for name in self._graph.tools}
            return specs | {name: spec for name, spec in told.items() if spec is not None}

    def hear(self, tools: Mapping[str, ToolSpec]) -> None:
        """Takes in what is said of tools that may be all or some of those at hand."""
        with self._lock:
            if tools and not any(known is tools for known in self._heard):
                self._heard, tools = [*self._heard[-MAX_ADOPTED:], tools], without_own(tools)
                self._take(tools)

    def adopt(self, tools: Mapping[str, ToolSpec]) -> None:
        """Takes in tools that a host has at hand. Of two with one name the given one stays, else the latest."""
        with self._lock:
            if any(known is tools for known in self._adopted):
                return
            given, tools = tools, without_own(tools)
            # A part of what was taken in before, such as the tools of one request, is nothing new.
            if any(all(known.get(name) == spec for name, spec in tools.items()) for known in self._adopted):
                return
            self._adopted = [*self._adopted[-MAX_ADOPTED:], given]
            self._take(tools)
            if self._given is not None:
                self._given = {**{name: self._of_hosts[name] for name in tools}, **self._given}

    def _take(self, tools: Mapping[str, ToolSpec]) -> None:
        """Keep the latest description of each tool of a host, with the marks of those before."""
        known = self._of_hosts
        taken = {name: gravest(spec, [known[name]]) if name in known else spec for name, spec in tools.items()}
        known |= {name: self._declared(spec) for name, spec in taken.items()}
        self._note(taken)

    def _note(self, specs: Mapping[str, ToolSpec]) -> None:
        """Notes the tools themselves, so that the graph can be read without them."""
        if self._describe is None:
            return
        known = self._graph.tools
        record: Record = []
        for name, spec in specs.items():
            told = self._told_of(name)  # what somebody forbade stays forbidden, though others do not know of it
            as_given = (self._given or {}).get(name, spec)  # a host may know less of it than who opened the memory
            marked = self._declared(gravest(as_given, [each for each in (spec, told) if each is not None]))
            if new := changes_of(marked, known.get(name, {})):
                record.append(ToolDescribed(name, new))
        if record:
            self._describe(record)


class _Marked(Mapping[str, ToolSpec]):
    """Tools that get their marks when they are asked for: few of many are."""

    def __init__(self, specs: Mapping[str, ToolSpec], with_marks: Callable[[ToolSpec], ToolSpec]) -> None:
        self._specs, self._with_marks = specs, with_marks
        self._found: dict[str, ToolSpec] = {}

    def __getitem__(self, name: str) -> ToolSpec:
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = self._with_marks(self._specs[name])
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._specs

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)


def without_own(specs: Mapping[str, ToolSpec]) -> dict[str, ToolSpec]:
    """The tools that act on the world."""
    return {name: spec for name, spec in specs.items() if name not in OWN_TOOLS}


@lru_cache(maxsize=1024)
def _spec(name: str, properties: tuple[tuple[str, str], ...], required: frozenset[str]) -> ToolSpec:
    schema = {
        "type": "object",
        "properties": {p: ({"type": kind} if kind else {}) for p, kind in properties},
        "required": sorted(required),
    }
    return ToolSpec(name=name, description="", parameters=schema, seen=False)


def infer_spec(name: str, entry: Mapping[str, Any]) -> ToolSpec:
    """Return what the observed calls of a tool show of its schema: parameters always given are required."""
    shown = entry.get("parameters_seen", {})
    calls = entry.get("calls_read", 0)
    properties = tuple((p, next(iter(kinds)) if len(kinds) == 1 else "") for p, kinds in shown.items())
    required = frozenset(p for p, kinds in shown.items() if sum(kinds.values()) >= calls)
    return _spec(name, properties, required)
