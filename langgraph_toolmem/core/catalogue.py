"""The tools of a memory: given ones, tools of hosts, tools known from before, and the developer's declarations.

`Declarations` holds the names and shell patterns of ``ToolMemory(reads=...)``. `suggested` guesses from names and
descriptions which declarations are missing: a text to paste, on which nothing ever acts.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from operator import is_
from typing import Any, Final

from langchain_core.tools import BaseTool

from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.base.checks import names_given, nearest, unknown_name
from langgraph_toolmem.graph.events import Record, ToolDescribed
from langgraph_toolmem.graph.records import (
    ALIKE,
    Shape,
    ToolRecords,
    are_alike,
    is_apart,
    name_apart,
    shape_of,
    tool_of,
)
from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.runs.run import OWN_TOOLS
from langgraph_toolmem.runs.tools import (
    EFFECTS,
    ToolSpec,
    agreed,
    changes_of,
    grave_marks,
    read_tools,
    restricted,
    side_effects,
    spec_of,
    without_choices,
)
from langgraph_toolmem.text.lexicon import LEXICON
from langgraph_toolmem.text.words import stem, word_set, words

MAX_ADOPTED: Final = 64
"""Sets of tools of hosts that are recognised as known."""
MAX_TOOL_SETS: Final = 64
MAX_NAMED: Final = 20


class Declarations:
    """Names and shell patterns (`fnmatch.fnmatchcase`) of tools that only read.

    Raises:
        ConfigurationError: `reads` is no collection of texts.
    """

    def __init__(self, reads: Iterable[str] = ()) -> None:
        given = names_given("ToolMemory(reads=...)", reads)
        self._patterns = tuple(sorted(each for each in given if set(each) & set("*?[")))
        self._names = frozenset(given) - set(self._patterns)

    def cover(self, spec: ToolSpec) -> bool:
        """Return True if the tool is named, or matched and not marked as writing."""
        return spec.name in self._names or (spec.read_only is not False and self._matched(spec.name))

    def unknown(self, tools: Collection[str]) -> list[str]:
        """Return the names and patterns without a matching tool; an empty list before any tool is known."""
        if not tools:
            return []
        unmatched = [pattern for pattern in self._patterns if not any(fnmatchcase(name, pattern) for name in tools)]
        return sorted([*self._names - set(tools), *unmatched])

    def lines(self, specs: Mapping[str, ToolSpec], *, whole: bool) -> Iterator[tuple[int, str]]:
        """Yield lines for the log with their levels, given the tools with all their marks.

        If these are not the `whole` set, another agent may have further tools: the lines are then milder.
        """
        if not specs:
            return
        for name in sorted(self._names - set(specs)):
            meant = nearest(name, set(specs) - self._names)
            yield unknown_name("ToolMemory(reads=...)", name, meant, whole=whole)
        for pattern in self._patterns:
            matched = sorted(name for name in specs if fnmatchcase(name, pattern))
            level = logging.WARNING if whole and not matched else logging.INFO
            yield level, f"ToolMemory(reads=...): {pattern!r} matches {named(matched) or 'no tool'}."
        meant_to = (name for name in sorted(specs) if name in self._names or self._matched(name))
        if refused := [name for name in meant_to if side_effects(specs[name]) != "reads"]:
            yield (
                logging.WARNING,
                f"ToolMemory(reads=...) covers {named(refused)}, marked destructive, as writing, or as steering the "
                "run: the mark counts.",
            )

    def _matched(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self._patterns)


def named(names: Collection[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:MAX_NAMED]) + (", …" if len(shown) > MAX_NAMED else "")


@dataclass(slots=True)
class OfferedTools:
    """A step's tools as they were read. It keeps the tools: an id may be reused once its object is gone."""

    tools: list[BaseTool]
    specs: dict[str, ToolSpec]


def _identity_of(tool: BaseTool) -> Hashable:
    """Return what a tool shares with its copies."""
    schema = id(tool) if tool.args_schema is None else id(tool.args_schema)
    return type(tool), tool.name, tool.description, schema, tuple(tool.tags or ()), id(tool.metadata)


class Catalogue:
    """The tools of a memory. Safe to use from several threads.

    Args:
        given: the tools as given to the memory; None if nobody gave any.
        describe: stores notes on tools in the graph; None in a memory that only reads.
    """

    def __init__(
        self,
        graph: ToolGraph,
        given: Mapping[str, ToolSpec] | None,
        *,
        declarations: Declarations,
        describe: Callable[[Record], object] | None,
        lock: threading.RLock,
    ) -> None:
        self._graph, self._describe, self._lock = graph, describe, lock
        self.declarations, self._read_only = declarations, describe is None
        self._named: Mapping[str, ToolSpec] = {}
        self._given = None if given is None else {name: self._declared(spec) for name, spec in given.items()}
        self._named = {name: spec for name, spec in (self._given or {}).items() if spec.read_only}
        self._of_hosts: dict[str, ToolSpec] = {}
        self._adopted: list[Mapping[str, ToolSpec]] = [] if given is None else [given]
        self._inferred: dict[str, tuple[int, ToolSpec]] = {}
        self._described: dict[str, tuple[Any, ToolSpec]] = {}
        self._marked: dict[str, tuple[tuple[ToolSpec | None, ...], ToolSpec]] = {}
        self._offered: dict[tuple[int, ...], OfferedTools] = {}
        self._offered_alike: dict[tuple[Hashable, ...], OfferedTools] = {}
        self._read: dict[Hashable, ToolSpec] = {}
        self._counted: tuple[int, int] = (0, 0)
        self._several: Mapping[str, Mapping[str, Shape]] = {}
        self._of_records: dict[str, ToolSpec] = {}
        self._named_by_record: dict[str, tuple[ToolSpec, ToolSpec]] = {}
        self._records: dict[int, tuple[Mapping[str, ToolSpec], Mapping[str, Mapping[str, Shape]], ToolRecords]] = {}
        if given is not None:
            self._note(self._given or {})

    @property
    def given(self) -> Mapping[str, ToolSpec] | None:
        return self._given

    @property
    def specs(self) -> Mapping[str, ToolSpec]:
        """The tools that may be called: those given; otherwise those of hosts, and specs inferred from calls."""
        with self._lock:
            if self._given is not None:
                return self._given
            for name, entry in self._graph.tools.items():
                read = 0 if is_apart(name) else int(entry.get("calls_read", 0))
                if read and self._inferred.get(name, (0,))[0] != read:
                    self._inferred[name] = (read, infer_spec(name, entry))
            return {name: spec for name, (_, spec) in self._inferred.items()} | self._of_hosts

    def offered(self, tools: Iterable[Any]) -> dict[str, ToolSpec]:
        """Return those of a step's tools that the agent itself executes, by name; one dict for the same tools.

        Each is read once: reading the schemas of an agent's tools costs more than all its decisions.
        """
        executed = [tool for tool in tools if isinstance(tool, BaseTool)]
        offered = self._offered.get(tuple(map(id, executed)))
        if offered is not None:
            return offered.specs
        # Some middleware copies its tools for each call (ProviderToolSearch): a copy has the original's schema.
        identities = tuple(map(_identity_of, executed))
        offered = self._offered_alike.get(identities)
        if offered is not None:
            return offered.specs
        if len(self._offered) >= MAX_TOOL_SETS:
            self._offered, self._offered_alike, self._read = {}, {}, {}
        known = [self._read.get(identity, tool) for identity, tool in zip(identities, executed, strict=True)]
        specs = read_tools(known)
        self._read.update(zip(identities, specs.values(), strict=True))
        offered = OfferedTools(executed, specs)
        self._offered[tuple(map(id, executed))] = self._offered_alike[identities] = offered
        return offered.specs

    def marked(self, specs: Mapping[str, ToolSpec] | None = None) -> Mapping[str, ToolSpec]:
        """Return tools (`specs` by default) with the marks of the developer, of hosts and of the folder.

        A restrictive mark holds for every tool of its name. A permission holds for the tool that carries it, or for the
        name where the developer gave it to the memory: two agents may have different tools of one name. The folder
        describes tools that are known from their calls alone, and adds restrictive marks. The running program must
        declare itself that a tool only reads; a memory that is only read trusts the folder.
        """
        return _Marked(self.specs if specs is None else specs, self._with_marks)

    def _with_marks(self, spec: ToolSpec) -> ToolSpec:
        with self._lock:
            name = spec.name
            noted = self._noted(name)
            apart = (self._noted(record) for record in self._shapes().get(name, ()) if is_apart(record))
            now = (spec, (self._given or {}).get(name), self._of_hosts.get(name), *apart)
            origins = (*now, noted)
            record = self._record_of(spec) if name in self._shapes() else name
            known = self._marked.get(record)
            same = known is not None and len(known[0]) == len(origins) and all(map(is_, known[0], origins))
            if known is None or not same:
                # Choices may be private: the schema of a tool made for one user may hold their addresses.
                first = spec if spec.seen or noted is None else without_choices(noted)
                others = [each for each in (*now[1:], noted) if each is not None]
                known = self._marked[record] = origins, self._declared(restricted(first, others))
            return known[1]

    def _declared(self, spec: ToolSpec) -> ToolSpec:
        if spec.read_only or side_effects(spec) != "changes":
            return spec
        named = spec.read_only is None and spec.name in self._named
        if not named and not self.declarations.cover(spec):
            return spec
        return replace(spec, read_only=True)

    def _noted(self, name: str) -> ToolSpec | None:
        entry = self._graph.tools.get(name, {})
        if (parameters := entry.get("parameters")) is None:
            return None
        before = self._described.get(name)
        marks = [entry.get(field) for field in ("description", *EFFECTS)]
        if before is None or before[0] != (id(parameters), *marks):
            noted = spec_of(tool_of(name), entry)
            before = self._described[name] = (id(parameters), *marks), noted if self._read_only else grave_marks(noted)
        return before[1]

    @property
    def known(self) -> Mapping[str, ToolSpec]:
        """The available tools; without given tools or hosts, those known from before."""
        with self._lock:
            if self._adopted:
                return self.specs
            specs = dict(self.specs)
            noted = {name: self._noted(name) for name in self._graph.tools if not is_apart(name)}
            return specs | {name: spec for name, spec in noted.items() if spec is not None}

    def adopt(self, tools: Mapping[str, ToolSpec]) -> None:
        """Take in the tools of a host. Of two with one name the given one stays, otherwise the latest."""
        with self._lock:
            if any(known is tools for known in self._adopted):
                return
            given, tools = tools, without_own(tools)
            # A subset of a known set, such as the tools of one request, is nothing new.
            if any(all(known.get(name) == spec for name, spec in tools.items()) for known in self._adopted):
                return
            self._adopted = [*self._adopted[-MAX_ADOPTED:], given]
            self._take(tools)
            if self._given is not None:
                self._given = {**{name: self._of_hosts[name] for name in tools}, **self._given}

    def _take(self, tools: Mapping[str, ToolSpec]) -> None:
        # The latest description of each tool. Where nobody says which of two hosts' tools is meant, both are.
        known = self._of_hosts
        taken = {name: agreed(spec, known[name]) if name in known else spec for name, spec in tools.items()}
        known |= {name: self._declared(spec) for name, spec in taken.items()}
        self._note(taken)
        for spec in tools.values():
            self._of_records[self._record_of(spec)] = self._declared(spec)

    def _note(self, specs: Mapping[str, ToolSpec]) -> None:
        # The graph must be readable without the tools.
        if self._describe is None:
            return
        known = self._graph.tools
        record: Record = []
        for name, spec in specs.items():
            kept = self._record_of(spec)
            noted = self._noted(kept)  # restrictions stay, though other programs do not know them
            given = (self._given or {}).get(name, spec)
            as_given = given if self._record_of(given) == kept else spec  # a host may know less than the developer
            marked = self._declared(restricted(as_given, [each for each in (spec, noted) if each is not None]))
            if new := changes_of(marked, known.get(kept, {})):
                record.append(ToolDescribed(kept, new))
        if record:
            self._describe(record)

    # --- records of tools of one name ---

    def records(self, specs: Mapping[str, ToolSpec] | None = None) -> ToolRecords:
        """Return the names of the records of tools (`specs` by default), and the tools with several records."""
        with self._lock:
            several = self._shapes()
            if specs is None:
                return ALIKE if not several else self._records_of(self.specs, several)
            known = self._records.get(id(specs))
            if known is None or known[0] is not specs or known[1] is not several:
                if len(self._records) >= MAX_TOOL_SETS:
                    self._records.clear()
                known = self._records[id(specs)] = specs, several, self._records_of(specs, several)
            return known[2]

    def records_of(self, tool: str) -> Collection[str]:
        """Return the names of all records of a tool's name."""
        with self._lock:
            return self._shapes().get(tool, {tool: {}})

    def recorded(self, specs: Mapping[str, ToolSpec] | None = None, *, others: bool = False) -> Mapping[str, ToolSpec]:
        """Return tools as `marked` does, each named as its record; with `others` the tools of the other records too."""
        names, marked = self.records(specs), self.marked(specs)
        if names is ALIKE:
            return marked
        with self._lock:
            found = dict[str, ToolSpec]()
            for name in marked:
                record = names.offered.get(name, name)
                found[record] = self._as_record(marked[name], record)
            for records in names.known.values() if others else ():
                for record in records:
                    spec = self._of_records.get(record) or self._noted(record)
                    if spec is not None and record not in found:
                        found[record] = self._as_record(self._with_marks(spec), record)
            return found

    def _as_record(self, spec: ToolSpec, record: str) -> ToolSpec:
        if spec.name == record:
            return spec
        known = self._named_by_record.get(record)
        if known is None or known[0] is not spec:  # a spec compiles its schema once
            known = self._named_by_record[record] = spec, replace(spec, name=record)
        return known[1]

    def _records_of(self, specs: Mapping[str, ToolSpec], several: Mapping[str, Mapping[str, Shape]]) -> ToolRecords:
        records = {name: self._record_of(spec) for name, spec in specs.items()}
        offered = {name: record for name, record in records.items() if record != name}
        return ToolRecords(offered, several) if offered or several else ALIKE

    def _record_of(self, spec: ToolSpec) -> str:
        """Return the record of a tool: the first of its name with the same parameters, or a new one."""
        if not spec.seen:
            return spec.name
        shape = shape_of(spec)
        for record in (spec.name, *self._shapes().get(spec.name, ())):
            noted = self._noted(record)
            if noted is None or are_alike(shape, shape_of(noted)):
                return str(record)
        return name_apart(spec.name, shape)

    def _shapes(self) -> Mapping[str, Mapping[str, Shape]]:
        """Return the shapes of the records of every tool that has several."""
        tools = self._graph.tools
        if self._counted != (id(tools), len(tools)):
            self._counted = id(tools), len(tools)
            found = dict[str, dict[str, Shape]]()
            for record in filter(is_apart, tools):
                of_tool = found.setdefault(tool_of(record), {})
                for each in (tool_of(record), record):
                    noted = self._noted(each)
                    if noted is not None:
                        of_tool[each] = shape_of(noted)
            self._several = found
        return self._several


class _Marked(Mapping[str, ToolSpec]):
    """Tools that get their marks on first use: few of many are used."""

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
    return {name: spec for name, spec in specs.items() if name not in OWN_TOOLS}


@cached(mebibytes=4)
def _spec(name: str, properties: tuple[tuple[str, str], ...], required: frozenset[str]) -> ToolSpec:
    schema = {
        "type": "object",
        "properties": {p: ({"type": kind} if kind else {}) for p, kind in properties},
        "required": sorted(required),
    }
    return ToolSpec(name=name, description="", parameters=schema, seen=False)


def infer_spec(name: str, entry: Mapping[str, Any]) -> ToolSpec:
    shown = entry.get("parameters_seen", {})
    calls = entry.get("calls_read", 0)
    properties = tuple((p, next(iter(kinds)) if len(kinds) == 1 else "") for p, kinds in shown.items())
    required = frozenset(p for p, kinds in shown.items() if sum(kinds.values()) >= calls)
    return _spec(name, properties, required)


# --- suggestions ---

_ENDS: Final = frozenset({"search", "lookup", "query", "find"})
_STEMS: Final = frozenset(map(stem, LEXICON.changing)) | word_set("sent written paid bought sold withdrawn made kept")
_LANGUAGES: Final = word_set("sql cypher graphql sparql shell bash python javascript script command")
"""Words of tools that run a text in such a language."""
_PROGRAMS: Final = _LANGUAGES | word_set("code statement expression")
"""Parameters of such tools."""
_DATABASES: Final = word_set("database db warehouse bigquery snowflake postgres mysql sqlite mongo")
_PARTICLES: Final = word_set("out in off up")
"""Words that make another verb: ``check_out``, ``get_in``."""
_ACTS: Final = word_set("update change process")
"""Nouns of acts, at the end of a long name."""
LONGEST_OBJECT: Final = 2
"""Words of a name up to which such a noun is the object: ``get_update``."""
_THINGS: Final = word_set("order orders post posts book books change changes update updates schedule schedules process")
"""Verbs that are nouns as well: ``get_order``."""


def suggested(specs: Iterable[ToolSpec]) -> list[str]:
    """Return the names of tools that seem to only read, for a developer to check. Nothing may act on them."""
    return sorted(spec.name for spec in specs if side_effects(spec) == "changes" and _seems_to_read(spec))


def _seems_to_read(spec: ToolSpec) -> bool:
    # Its name says that it reads, and neither name nor description mentions a change, or code that it would run.
    last = words(re.split(r"[./:]|__", spec.name)[-1]) or [""]
    reads = spec.read_only is not False and (last[0] in LEXICON.reading or last[-1] in _ENDS)
    if not reads or _runs_code(spec, last) or last[-1] in _PARTICLES:
        return False
    if len(last) > LONGEST_OBJECT and last[-1] in _ACTS:  # list_price_update updates the price of a list
        return False
    return not (_tells_of_change(spec.name) or _tells_of_change(spec.description))


def _runs_code(spec: ToolSpec, name: Sequence[str]) -> bool:
    """Return True if a tool takes a program, such as SQL: its text may do anything."""
    if not _LANGUAGES.isdisjoint(name) or not _PROGRAMS.isdisjoint(map(str.lower, spec.properties)):
        return True
    queries = "query" in name and not _DATABASES.isdisjoint(name)
    return queries or not _LANGUAGES.isdisjoint(words(spec.description))


def _tells_of_change(text: str) -> bool:
    return any(stem(word) in _STEMS and word not in _THINGS for word in words(text))


def undeclared_line(names: Collection[str], reading: Iterable[str]) -> str:
    """Return the sentence on undeclared tools, and those of them that seem to only read; "" if there are none."""
    if not names:
        return ""
    are = "1 tool is" if len(names) == 1 else f"{len(names)} tools are"
    shown = ", ".join(f'"{name}"' for name in reading)
    declare = f" Check them; if they only read: reads={{{shown}}}" if shown else ""
    return f"{are} never called without the model: undeclared.{declare}"
