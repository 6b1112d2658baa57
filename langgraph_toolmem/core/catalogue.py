"""The tools of a memory: those given, those that hosts had at hand, and what is known of others from before."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from langgraph_toolmem.graph.evidence import EvidenceGraph
from langgraph_toolmem.graph.operations import Record, ToolDescribed
from langgraph_toolmem.runs.run import OWN_TOOLS
from langgraph_toolmem.runs.tool_note import changes_of, spec_of
from langgraph_toolmem.runs.tools import ToolSpec

MAX_ADOPTED: Final = 64
"""Sets of tools of hosts that are not looked at again."""


class Catalogue:
    """Safe to use from several threads, under the memory's lock.

    Args:
        graph: what calls and earlier processes showed of tools.
        given: the tools as given to the memory; None: nobody gave any.
        describe: keeps what is new about tools; None: nothing is kept.
        lock: of the memory.
    """

    def __init__(
        self,
        graph: EvidenceGraph,
        given: Mapping[str, ToolSpec] | None,
        *,
        describe: Callable[[Record], object] | None,
        lock: threading.RLock,
    ) -> None:
        self._graph, self._describe, self._lock = graph, describe, lock
        self._given = None if given is None else dict(given)
        self._of_hosts: dict[str, ToolSpec] = {}
        self._adopted: list[Mapping[str, ToolSpec]] = [] if given is None else [given]
        self._inferred: dict[str, tuple[int, ToolSpec]] = {}
        self._described: dict[str, tuple[Any, ToolSpec]] = {}
        if given is not None:
            self._note(given)

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

    @property
    def known(self) -> Mapping[str, ToolSpec]:
        """The tools at hand; of a memory that nobody gave any, those that were described to it before, or called."""
        with self._lock:
            if self._adopted:
                return self.specs
            specs = dict(self.specs)
            for name, entry in self._graph.tools.items():
                if (parameters := entry.get("parameters")) is not None:
                    before, text = self._described.get(name), entry.get("description", "")
                    if before is None or before[0] is not parameters or before[1].description != text:
                        before = self._described[name] = parameters, spec_of(name, entry)
                    specs[name] = before[1]
            return specs

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
            if self._given is not None:
                self._given = {**tools, **self._given}
            self._of_hosts |= tools
            self._note(tools)

    def _note(self, specs: Mapping[str, ToolSpec]) -> None:
        """Notes the tools themselves, so that the graph can be read without them."""
        if self._describe is None:
            return
        known = self._graph.tools
        record: Record = [
            ToolDescribed(name, new) for name, spec in specs.items() if (new := changes_of(spec, known.get(name, {})))
        ]
        if record:
            self._describe(record)


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
    return ToolSpec(name=name, description="", parameters=schema)


def infer_spec(name: str, entry: Mapping[str, Any]) -> ToolSpec:
    """What the observed calls of a tool show of its schema: parameters always given are required."""
    seen = entry.get("parameters_seen", {})
    calls = entry.get("calls_read", 0)
    properties = tuple((p, next(iter(kinds)) if len(kinds) == 1 else "") for p, kinds in seen.items())
    return _spec(name, properties, frozenset(p for p, kinds in seen.items() if sum(kinds.values()) >= calls))
