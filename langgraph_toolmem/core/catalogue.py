"""The tools of a memory: given ones, tools of hosts, tools known from before, and the developer's declarations.

`Declarations` holds the names and shell patterns of ``ToolMemory(reads=...)``. `suggested` guesses missing declarations
from names and descriptions: a text to paste, on which the memory never acts.
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
from langgraph_toolmem.base.checks import LogLine, names_given, nearest, unknown_name
from langgraph_toolmem.graph.events import Record, ToolDescribed
from langgraph_toolmem.graph.state import ALIKE, Shape, ToolRecords, are_alike, is_apart, name_apart, shape_of, tool_of
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
from langgraph_toolmem.text.words import LEXICON, stem, word_set, words

MAX_TOOL_SETS: Final = 64
"""Sets of tools that are recognised as known: of steps, and of hosts."""


class Declarations:
    """Names and shell patterns (`fnmatch.fnmatchcase`) of tools that only read.

    Raises:
        ConfigurationError: `reads` is not a collection of texts.
    """

    def __init__(self, reads: Iterable[str] = ()) -> None:
        given = names_given("ToolMemory(reads=...)", reads)
        patterns = {name for name in given if set(name) & set("*?[")}
        self._patterns = sorted(patterns)
        self._names = frozenset(given) - patterns

    def cover(self, spec: ToolSpec) -> bool:
        """Return True if the tool is named, or matched and not marked as writing."""
        if spec.name in self._names:
            return True
        # A pattern may match more than its author thought of, so it does not overrule the tool's own mark.
        return spec.read_only is not False and self._matched(spec.name)

    def unknown(self, tools: Collection[str]) -> list[str]:
        """Return the names and patterns without a matching tool; an empty list before the first tool is known."""
        if not tools:
            return []
        unknown = list(self._names - set(tools))
        for pattern in self._patterns:
            if not _matching(tools, pattern):
                unknown.append(pattern)
        return sorted(unknown)

    def lines(self, specs: Mapping[str, ToolSpec], *, whole: bool) -> Iterator[LogLine]:
        """Yield lines for the log, given the tools with all their marks.

        If these are not the `whole` set, another agent may have further tools: the lines are then milder.
        """
        if not specs:
            return
        for name in sorted(self._names - set(specs)):
            meant = nearest(name, set(specs) - self._names)
            yield unknown_name("ToolMemory(reads=...)", name, meant, whole=whole)
        for pattern in self._patterns:
            yield _line_on_pattern(pattern, _matching(specs, pattern), whole=whole)
        refused = self._refused(specs)
        if refused:
            yield LogLine(
                logging.WARNING,
                f"ToolMemory(reads=...) covers {named(refused)}, marked destructive, as writing, or as steering the "
                "run: the mark counts.",
            )

    def _refused(self, specs: Mapping[str, ToolSpec]) -> list[str]:
        """Return the tools that are named or matched, and marked as more than reading."""
        refused = []
        for name, spec in specs.items():
            if (name in self._names or self._matched(name)) and side_effects(spec) != "reads":
                refused.append(name)
        return refused

    def _matched(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self._patterns)


def _line_on_pattern(pattern: str, matched: Collection[str], *, whole: bool) -> LogLine:
    level = logging.INFO
    if whole and not matched:
        level = logging.WARNING
    return LogLine(level, f"ToolMemory(reads=...): {pattern!r} matches {named(matched) or 'no tool'}.")


def _matching(names: Iterable[str], pattern: str) -> list[str]:
    return [name for name in names if fnmatchcase(name, pattern)]


def named(names: Collection[str]) -> str:
    """Return names as a text: the first 20, and three dots for more."""
    shown = sorted(names)
    if len(shown) > 20:
        shown = [*shown[:20], "…"]
    return ", ".join(shown)


@dataclass(frozen=True, slots=True)
class InferredSpec:
    """A tool as its calls show it, and the number of calls that it was inferred from."""

    calls: int
    spec: ToolSpec


@dataclass(frozen=True, slots=True)
class NotedSpec:
    """A tool as the graph describes it, and the values that it was read from."""

    origin: tuple[Any, ...]
    spec: ToolSpec


@dataclass(frozen=True, slots=True)
class MarkedSpec:
    """A tool with all marks, and the specs that they are from."""

    origins: tuple[ToolSpec | None, ...]
    spec: ToolSpec

    def is_from(self, origins: Sequence[ToolSpec | None]) -> bool:
        """Return True if the marks are from these very specs."""
        return len(self.origins) == len(origins) and all(map(is_, self.origins, origins))


@dataclass(frozen=True, slots=True)
class RecordSpec:
    """A tool under the name of its record, and the spec that it was made of."""

    origin: ToolSpec
    spec: ToolSpec


@dataclass(frozen=True, slots=True)
class KnownRecords:
    """Names of records, and the tools and shapes that they were made of."""

    specs: Mapping[str, ToolSpec]
    several: Mapping[str, Mapping[str, Shape]]
    records: ToolRecords


@dataclass(slots=True)
class OfferedTools:
    """A step's tools as they were read. It keeps the tools: an id may be reused once its object is gone."""

    tools: list[BaseTool]
    specs: dict[str, ToolSpec]


def _identity_of(tool: BaseTool) -> Hashable:
    """Return the object that a tool shares with its copies."""
    schema = id(tool)
    if tool.args_schema is not None:
        schema = id(tool.args_schema)
    return type(tool), tool.name, tool.description, schema, tuple(tool.tags or ()), id(tool.metadata)


class Catalogue:
    """The tools of a memory. Safe to use from several threads.

    Args:
        given: the tools as given to the memory, or None.
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
        self._graph = graph
        self._describe = describe
        self._lock = lock
        self.declarations = declarations
        self._read_only = describe is None
        self._given: Mapping[str, ToolSpec] | None = None
        self._named: set[str] = set()  # given tools that only read
        self._adopted: list[Mapping[str, ToolSpec]] = []
        if given is not None:
            self._given = {name: self._declared(spec) for name, spec in given.items()}
            self._named = {name for name, spec in self._given.items() if spec.read_only}
            self._adopted = [given]
        self._of_hosts: dict[str, ToolSpec] = {}
        self._inferred: dict[str, InferredSpec] = {}
        self._described: dict[str, NotedSpec] = {}
        self._marked: dict[str, MarkedSpec] = {}
        self._offered: dict[tuple[int, ...], OfferedTools] = {}
        self._offered_alike: dict[tuple[Hashable, ...], OfferedTools] = {}
        self._read: dict[Hashable, ToolSpec] = {}
        self._counted: tuple[int, int] = (0, 0)  # identity and size of the graph's tools when last read
        self._several: Mapping[str, Mapping[str, Shape]] = {}
        self._of_records: dict[str, ToolSpec] = {}
        self._named_by_record: dict[str, RecordSpec] = {}
        self._records: dict[int, KnownRecords] = {}
        if self._given is not None:
            self._note(self._given)

    @property
    def given(self) -> Mapping[str, ToolSpec] | None:
        """The tools as given to the memory, with those of hosts; None if none were given."""
        return self._given

    @property
    def specs(self) -> Mapping[str, ToolSpec]:
        """The tools that may be called: those given; otherwise those of hosts, and specs inferred from calls."""
        with self._lock:
            if self._given is not None:
                return self._given
            self._infer_from_calls()
            inferred = {name: known.spec for name, known in self._inferred.items()}
            return inferred | self._of_hosts

    def _infer_from_calls(self) -> None:
        """Infer the specs of tools again whose number of calls has changed."""
        for name, entry in self._graph.tools.items():
            calls = int(entry.get("calls_read", 0))
            if not calls or is_apart(name):
                continue
            known = self._inferred.get(name)
            if known is None or known.calls != calls:
                self._inferred[name] = InferredSpec(calls, infer_spec(name, entry))

    def offered(self, tools: Iterable[Any]) -> dict[str, ToolSpec]:
        """Return the tools of a step that the agent itself executes, by name; the same dict for the same tools.

        Each tool is read once: reading the schemas of an agent's tools costs more than all its decisions.
        """
        # A provider's own tool is a dict: the provider executes it.
        executed = [tool for tool in tools if isinstance(tool, BaseTool)]
        objects = tuple(map(id, executed))
        offered = self._offered.get(objects)
        if offered is not None:
            return offered.specs
        # Some middleware copies its tools for each call (ProviderToolSearch): a copy has the original's schema.
        identities = tuple(map(_identity_of, executed))
        offered = self._offered_alike.get(identities)
        if offered is not None:
            return offered.specs
        if len(self._offered) >= MAX_TOOL_SETS:
            # Tools that are made again for each call must not accumulate.
            self._offered, self._offered_alike, self._read = {}, {}, {}
        known = [self._read.get(identity, tool) for identity, tool in zip(identities, executed, strict=True)]
        specs = read_tools(known)
        self._read.update(zip(identities, specs.values(), strict=True))
        offered = OfferedTools(executed, specs)
        self._offered[objects] = offered
        self._offered_alike[identities] = offered
        return offered.specs

    def marked(self, specs: Mapping[str, ToolSpec] | None = None) -> Mapping[str, ToolSpec]:
        """Return tools (`specs` by default) with the marks of the developer, of hosts and of the folder.

        A restrictive mark applies to every tool of its name. A permission applies to the tool that carries it, or to
        the name if the developer gave it to the memory: two agents may have different tools of one name. The folder
        describes tools that are known only from their calls, and adds restrictive marks. The running program must
        declare itself that a tool only reads; a memory that is only read trusts the folder.
        """
        if specs is None:
            specs = self.specs
        return _Marked(specs, self._with_marks)

    def _with_marks(self, spec: ToolSpec) -> ToolSpec:
        with self._lock:
            name = spec.name
            others = self._others_of_name(name)
            record = name
            if name in self._shapes():
                record = self._record_of(spec)
            # By identity of the specs, not by their schemas: this runs at each model call.
            known = self._marked.get(record)
            if known is not None and known.is_from([spec, *others]):
                return known.spec
            first, noted = spec, others[-1]
            if not spec.seen and noted is not None:
                # Choices may be private: the schema of a tool made for one user may hold their addresses.
                first = without_choices(noted)
            marked = self._declared(restricted(first, [other for other in others if other is not None]))
            self._marked[record] = MarkedSpec((spec, *others), marked)
            return marked

    def _others_of_name(self, name: str) -> list[ToolSpec | None]:
        """Return the tools of a name: given, of a host, of records apart, and as the graph describes it."""
        given = None
        if self._given is not None:
            given = self._given.get(name)
        others = [given, self._of_hosts.get(name)]
        for record in self._shapes().get(name, ()):
            if is_apart(record):
                others.append(self._noted(record))
        others.append(self._noted(name))
        return others

    def _declared(self, spec: ToolSpec) -> ToolSpec:
        if spec.read_only or side_effects(spec) != "changes":
            return spec
        named = spec.read_only is None and spec.name in self._named
        if not named and not self.declarations.cover(spec):
            return spec
        return replace(spec, read_only=True)

    def _noted(self, name: str) -> ToolSpec | None:
        """Return a tool as the graph describes it; None if it does not."""
        entry = self._graph.tools.get(name, {})
        parameters = entry.get("parameters")
        if parameters is None:
            return None
        origin = (id(parameters), *[entry.get(field) for field in ("description", *EFFECTS)])
        known = self._described.get(name)
        if known is None or known.origin != origin:
            spec = spec_of(tool_of(name), entry)
            if not self._read_only:  # the running program must declare itself that a tool only reads
                spec = grave_marks(spec)
            known = NotedSpec(origin, spec)
            self._described[name] = known
        return known.spec

    @property
    def known(self) -> Mapping[str, ToolSpec]:
        """The available tools; without given tools or hosts, those known from before."""
        with self._lock:
            if self._adopted:
                return self.specs
            specs = dict(self.specs)
            for name in self._graph.tools:
                if is_apart(name):  # a record of another tool of that name
                    continue
                noted = self._noted(name)
                if noted is not None:
                    specs[name] = noted
            return specs

    def adopt(self, tools: Mapping[str, ToolSpec]) -> None:
        """Add the tools of a host. Of two tools with one name the given one is kept, otherwise the latest."""
        with self._lock:
            if any(known is tools for known in self._adopted):
                return
            given, tools = tools, without_own(tools)
            # A subset of a known set, such as the tools of one request, is known already.
            if any(tools.items() <= known.items() for known in self._adopted):
                return
            self._adopted = [*self._adopted[-MAX_TOOL_SETS:], given]
            self._take(tools)
            if self._given is not None:
                of_hosts = {name: self._of_hosts[name] for name in tools}
                self._given = {**of_hosts, **self._given}

    def _take(self, tools: Mapping[str, ToolSpec]) -> None:
        # The latest description of each tool. If two hosts have a tool of that name, both may be meant.
        taken: dict[str, ToolSpec] = {}
        for name, spec in tools.items():
            before = self._of_hosts.get(name)
            if before is not None:
                spec = agreed(spec, before)
            taken[name] = spec
        for name, spec in taken.items():
            self._of_hosts[name] = self._declared(spec)
        self._note(taken)
        for spec in tools.values():
            self._of_records[self._record_of(spec)] = self._declared(spec)

    def _note(self, specs: Mapping[str, ToolSpec]) -> None:
        # The graph must be readable without the tools.
        if self._describe is None:
            return
        record: Record = []
        for spec in specs.values():
            kept = self._record_of(spec)
            changes = changes_of(self._to_note(spec, kept), self._graph.tools.get(kept, {}))
            if changes:
                record.append(ToolDescribed(kept, changes))
        if record:
            self._describe(record)

    def _to_note(self, spec: ToolSpec, record: str) -> ToolSpec:
        """Return a tool as its note is to describe it: as the developer gave it, with all restrictive marks."""
        best = spec
        given = (self._given or {}).get(spec.name)
        # A host may know less than the developer.
        if given is not None and self._record_of(given) == record:
            best = given
        restrictions = [spec]
        noted = self._noted(record)
        # Marks of earlier programs are kept, although this program does not know them.
        if noted is not None:
            restrictions.append(noted)
        return self._declared(restricted(best, restrictions))

    # --- records of tools of one name ---

    def records(self, specs: Mapping[str, ToolSpec] | None = None) -> ToolRecords:
        """Return the names of the records of tools (`specs` by default), and the tools with several records."""
        with self._lock:
            several = self._shapes()
            if specs is not None:
                return self._known_records(specs, several)
            if not several:
                return ALIKE
            return self._records_of(self.specs, several)

    def _known_records(self, specs: Mapping[str, ToolSpec], several: Mapping[str, Mapping[str, Shape]]) -> ToolRecords:
        """Return the names of the records of given tools, made once for each set of tools."""
        known = self._records.get(id(specs))
        # The id of a set that is gone may be reused: the objects themselves are compared.
        if known is None or known.specs is not specs or known.several is not several:
            if len(self._records) >= MAX_TOOL_SETS:
                self._records.clear()
            known = KnownRecords(specs, several, self._records_of(specs, several))
            self._records[id(specs)] = known
        return known.records

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
            recorded: dict[str, ToolSpec] = {}
            for name in marked:
                record = names.offered.get(name, name)
                recorded[record] = self._as_record(marked[name], record)
            if others:
                for records in names.known.values():
                    self._add_others(records, recorded)
            return recorded

    def _add_others(self, records: Iterable[str], recorded: dict[str, ToolSpec]) -> None:
        for record in records:
            spec = self._of_records.get(record) or self._noted(record)
            if spec is not None and record not in recorded:
                recorded[record] = self._as_record(self._with_marks(spec), record)

    def _as_record(self, spec: ToolSpec, record: str) -> ToolSpec:
        if spec.name == record:
            return spec
        known = self._named_by_record.get(record)
        if known is None or known.origin is not spec:  # a spec compiles its schema once
            known = RecordSpec(spec, replace(spec, name=record))
            self._named_by_record[record] = known
        return known.spec

    def _records_of(self, specs: Mapping[str, ToolSpec], several: Mapping[str, Mapping[str, Shape]]) -> ToolRecords:
        offered: dict[str, str] = {}
        for name, spec in specs.items():
            record = self._record_of(spec)
            if record != name:
                offered[name] = record
        if not offered and not several:
            return ALIKE
        return ToolRecords(offered, several)

    def _record_of(self, spec: ToolSpec) -> str:
        """Return the record of a tool: the first of its name with the same parameters, or a new one."""
        if not spec.seen:  # it is known only from its calls
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
            shapes: dict[str, dict[str, Shape]] = {}
            for record in tools:
                if not is_apart(record):
                    continue
                of_tool = shapes.setdefault(tool_of(record), {})
                for name in (tool_of(record), record):
                    noted = self._noted(name)
                    if noted is not None:
                        of_tool[name] = shape_of(noted)
            self._several = shapes
        return self._several


class _Marked(Mapping[str, ToolSpec]):
    """Tools that get their marks on first use: few of many are used."""

    def __init__(self, specs: Mapping[str, ToolSpec], with_marks: Callable[[ToolSpec], ToolSpec]) -> None:
        self._specs = specs
        self._with_marks = with_marks
        self._known: dict[str, ToolSpec] = {}

    def __getitem__(self, name: str) -> ToolSpec:
        marked = self._known.get(name)
        if marked is None:
            marked = self._with_marks(self._specs[name])
            self._known[name] = marked
        return marked

    def __contains__(self, name: object) -> bool:
        return name in self._specs

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)


def without_own(specs: Mapping[str, ToolSpec]) -> dict[str, ToolSpec]:
    """Return tools without the memory's own (search, summary), which are not learned."""
    return {name: spec for name, spec in specs.items() if name not in OWN_TOOLS}


@cached(mebibytes=4)
def _spec(name: str, properties: tuple[tuple[str, str], ...], required: frozenset[str]) -> ToolSpec:
    described = {parameter: {"type": kind} if kind else {} for parameter, kind in properties}
    schema = {"type": "object", "properties": described, "required": sorted(required)}
    return ToolSpec(name=name, description="", parameters=schema, seen=False)


def infer_spec(name: str, entry: Mapping[str, Any]) -> ToolSpec:
    """Return a tool as its calls show it: a parameter of one kind has that type, one in every call is required."""
    calls = entry.get("calls_read", 0)
    properties: list[tuple[str, str]] = []
    required: set[str] = set()
    for parameter, kinds in entry.get("parameters_seen", {}).items():
        kind, *others = kinds or [""]
        properties.append((parameter, "" if others else kind))
        if sum(kinds.values()) >= calls:
            required.add(parameter)
    return _spec(name, tuple(properties), frozenset(required))


# --- suggestions ---


@dataclass(frozen=True, slots=True)
class NameWords:
    """Words by which the name and description of a tool say whether it reads.

    Attributes:
        ends: last words of tools that read.
        changing: stems of words of change.
        languages: words of tools that run a text in such a language.
        programs: parameters of such tools.
        databases: a tool with one of these words and "query" runs a text too.
        particles: words that form another verb: ``check_out``, ``get_in``.
        acts: nouns of actions, at the end of a long name.
        things: verbs that are nouns as well: ``get_order``.
    """

    ends: frozenset[str] = frozenset({"search", "lookup", "query", "find"})
    changing: frozenset[str] = frozenset(map(stem, LEXICON.changing)) | word_set(
        "sent written paid bought sold withdrawn made kept"
    )
    languages: frozenset[str] = word_set("sql cypher graphql sparql shell bash python javascript script command")
    programs: frozenset[str] = word_set(
        "sql cypher graphql sparql shell bash python javascript script command code statement expression"
    )
    databases: frozenset[str] = word_set("database db warehouse bigquery snowflake postgres mysql sqlite mongo")
    particles: frozenset[str] = word_set("out in off up")
    acts: frozenset[str] = word_set("update change process")
    things: frozenset[str] = word_set(
        "order orders post posts book books change changes update updates schedule schedules process"
    )


_NAME_WORDS: Final = NameWords()


def suggested(specs: Iterable[ToolSpec]) -> list[str]:
    """Return the names of tools that seem to only read, for a developer to check. The memory never acts on them."""
    return sorted(spec.name for spec in specs if side_effects(spec) == "changes" and _seems_to_read(spec))


def _seems_to_read(spec: ToolSpec) -> bool:
    """Return True if the name says that a tool reads, and neither name nor description mentions a change or a
    program.
    """
    if spec.read_only is False:
        return False
    # Servers and toolkits put their own name in front: "github__get_issue", "shop.orders.list".
    own_name = re.split(r"[./:]|__", spec.name)[-1]
    name = words(own_name) or [""]
    first, last = name[0], name[-1]
    reads = first in LEXICON.reading or last in _NAME_WORDS.ends
    if not reads or last in _NAME_WORDS.particles or _runs_code(spec, name):
        return False
    # list_price_update updates the price of a list; in get_update the noun is the object.
    if len(name) > 2 and last in _NAME_WORDS.acts:
        return False
    return not (_tells_of_change(spec.name) or _tells_of_change(spec.description))


def _runs_code(spec: ToolSpec, name: Sequence[str]) -> bool:
    """Return True if a tool takes a program, such as SQL, which may do anything; `name`: the words of its name."""
    parameters = [parameter.lower() for parameter in spec.properties]
    if not _NAME_WORDS.languages.isdisjoint(name) or not _NAME_WORDS.programs.isdisjoint(parameters):
        return True
    if "query" in name and not _NAME_WORDS.databases.isdisjoint(name):
        return True
    return not _NAME_WORDS.languages.isdisjoint(words(spec.description))


def _tells_of_change(text: str) -> bool:
    for word in words(text):
        if stem(word) in _NAME_WORDS.changing and word not in _NAME_WORDS.things:
            return True
    return False


def undeclared_line(names: Collection[str], reading: Iterable[str]) -> str:
    """Return the sentence on undeclared tools, and those of them that seem to only read; "" if there are none."""
    if not names:
        return ""
    are = f"{len(names)} tools are"
    if len(names) == 1:
        are = "1 tool is"
    shown = ", ".join(f'"{name}"' for name in reading)
    line = f"{are} never called without the model: undeclared."
    if shown:
        line += f" Check them; if they only read: reads={{{shown}}}"
    return line
