"""The events of the evidence graph.

An observation becomes a *record*, a list of events. Applying a record is the only way the graph changes, so learning
live, recovering after a crash, merging other workers and replaying logs are one mechanism. Events commute: records
make the same graph in any order. A method defines events of its own next to its table (`graph.tool_graph.Table`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

from typing_extensions import Self

from langgraph_toolmem.graph.shapes import (
    NUMBER,
    TEXT,
    WHOLE,
    CellShape,
    ListOf,
    NamedFields,
    OrNone,
    RecordOf,
    RowsOf,
    Whatever,
    fields_of,
)

HOUR: Final = 3600
"""Seconds; hours and days are counted from 1970 on, in UTC."""
GOOD: Final = 0.5
"""Least score of good feedback."""

Plain: TypeAlias = "list[Any]"


@dataclass(slots=True)
class Event:
    """One change of the evidence graph. Its fields are plain values, in the order in which they are written.

    A field called `user` is the digest of the user it comes from, if that is known. The row of the event log
    (`stores.events`) names run and user too: an observation belongs to one run, and so to one user.
    """

    kind: ClassVar[str]
    """Its name in files and logs."""
    cells: ClassVar[Mapping[str, CellShape]] = {}
    """Shapes of fields of which the type says too little."""

    def values(self) -> tuple[Any, ...]:
        return reader(type(self))(self)

    def plain(self) -> Plain:
        """Return its kind and fields; the inverse of `ToolGraph.event_of`."""
        return [self.kind, *reader(type(self))(self)]


Record: TypeAlias = list[Event]


_FIELD_READERS: Final[dict[type[Any], Callable[[Any], tuple[Any, ...]]]] = {}


def reader(kind: type[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that reads the fields of a dataclass in C: all events of a memory pass it when it is opened."""
    read = _FIELD_READERS.get(kind)
    if read is None:
        names = [declared.name for declared in fields(kind)]
        read = attrgetter(*names)
        if len(names) == 1:
            # `attrgetter` returns a tuple for several names only.
            read = _one_value(read)
        _FIELD_READERS[kind] = read
    return read


def _one_value(getter: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    def read(event: Any) -> tuple[Any, ...]:
        return (getter(event),)

    return read


_SHAPES: Final[dict[type[Event], RecordOf]] = {}


def have_shape(kind: type[Event], events: Collection[Plain]) -> bool:
    """Return True if all events of a kind, as plain values, have the fields that it declares: they are from a file."""
    if kind not in _SHAPES:
        declared = fields_of(kind)
        # The name of the kind stands before the fields.
        _SHAPES[kind] = RecordOf((TEXT, *declared.columns), declared.shortest + 1)
    return _SHAPES[kind].fit(events)


E = TypeVar("E", bound=Event)


def rows_of(events: Mapping[str, Event]) -> dict[str, Plain]:
    """Return events by their first field in plain containers, as a table keeps them in a snapshot."""
    rows = {}
    for key, event in events.items():
        _first, *others = event.values()
        rows[key] = others
    return rows


def events_of(kind: type[E], rows: Mapping[str, Plain]) -> dict[str, E]:
    """Return the inverse of `rows_of`."""
    make: Callable[..., E] = kind
    return {key: make(key, *fields) for key, fields in rows.items()}


@dataclass(slots=True)
class PlainRecord:
    """A record of a table. On disk it is the list of its fields, in their order."""

    def to_plain(self) -> Plain:
        return list(reader(type(self))(self))

    @classmethod
    def from_plain(cls, fields: Plain) -> Self:
        """Return the inverse of `to_plain`."""
        make: Callable[..., Self] = cls
        return make(*fields)


K = TypeVar("K", bound=Hashable)
R = TypeVar("R", bound=PlainRecord)


def plain_of(records: Mapping[K, PlainRecord]) -> dict[K, Plain]:
    """Return the records of a table in plain containers."""
    return {key: record.to_plain() for key, record in records.items()}


def records_of(kind: type[R], rows: Mapping[K, Plain]) -> dict[K, R]:
    """Return the inverse of `plain_of`."""
    return {key: kind.from_plain(fields) for key, fields in rows.items()}


def plain_parts(part: Any) -> Any:
    """Return records in dictionaries of any depth as plain values."""
    if isinstance(part, PlainRecord):
        return part.to_plain()
    return {key: plain_parts(inner) for key, inner in part.items()}


def record_parts(kind: type[PlainRecord], plain: Any) -> Any:
    """Return the inverse of `plain_parts`."""
    if isinstance(plain, list):
        return kind.from_plain(plain)
    return {key: record_parts(kind, inner) for key, inner in plain.items()}


@dataclass(frozen=True)
class Forgotten:
    """Data to delete: a user with all their runs, runs alone, or everything older than a time.

    Attributes:
        user: digest of the user; "": delete the runs of any user.
        runs: digests of runs, and of their requests and threads.
        before: seconds since 1970; older items that have a time of their own are deleted.
    """

    user: str = ""
    runs: Collection[str] = frozenset()
    before: float | None = None

    def has(self, run: str, user: str | None, hour: int | None = None) -> bool:
        """Return True if data of a run, and of a user and an hour if known, is to be deleted."""
        if hour is not None and self.before is not None and hour * HOUR < self.before:
            return True
        if not self.user:
            return run in self.runs
        # Another user's data in a run of this user stays.
        return user == self.user or (not user and run in self.runs)


def without(plain: Any, names: Collection[str]) -> Any:
    """Return plain containers of an unknown table without the rows that contain one of the names."""
    # The table is unknown here, so a row with a name is deleted as a whole.
    if isinstance(plain, dict):
        rows = {}
        for key, row in plain.items():
            if key not in names and not _mentions(row, names):
                rows[key] = without(row, names)
        return rows
    if isinstance(plain, list):
        items = []
        for row in plain:
            if not _mentions(row, names):
                items.append(without(row, names))
        return items
    return plain


def _mentions(row: Any, names: Collection[str]) -> bool:
    """Return True if a row itself contains a name, not only a row in it."""
    leaves: Iterable[Any] = (row,)
    if isinstance(row, dict):
        leaves = row.values()
    elif isinstance(row, (list, tuple)):
        leaves = row
    for leaf in leaves:
        if isinstance(leaf, str) and leaf in names:
            return True
    return False


@dataclass(slots=True)
class Unknown(Event):
    """An event of a table that is not registered here, as it was read."""

    kind = ""
    content: Plain

    def plain(self) -> Plain:
        return self.content


# --- tools, what follows what, and where arguments come from ---


@dataclass(slots=True)
class Successor(Event):
    """The successor of contexts (`graph.state.windows`); `column` is an index of `tool_graph.SUCCESSOR_COLUMNS`."""

    kind = "successor"
    contexts: list[str]
    following: str
    column: int


@dataclass(slots=True)
class Outcome(Event):
    """The end of a call: "ok", "failed", "rejected"…, the tool called before it, and the hour, if known."""

    kind = "outcome"
    tool: str
    status: str
    after: str | None = None
    hour: int | None = None


@dataclass(slots=True)
class Repeat(Event):
    """A call of a tool; `repeated` is 1 if the run had an identical call before, else 0."""

    kind = "repeat"
    tool: str
    repeated: int


@dataclass(slots=True)
class Arguments(Event):
    """JSON types of a call's arguments; `given`: parameters whose value no earlier output of the run had."""

    kind = "arguments"
    tool: str
    types: dict[str, str]
    given: list[str] = field(default_factory=list)
    user: str | None = None


TOOL_NOTE: Final = NamedFields(
    {
        "description": TEXT,
        "parameters": Whatever(dict),
        "returns": OrNone(Whatever(dict)),
        "tags": ListOf(TEXT),
        **dict.fromkeys(("toolkit", "category", "route"), TEXT),
        **dict.fromkeys(("read_only", "destructive", "idempotent", "controls"), OrNone(WHOLE)),
        "given": RowsOf(NUMBER),
        "parameters_seen": RowsOf(RowsOf(NUMBER)),
        "parameters_of": RowsOf(TEXT),
    },
    others=NUMBER,
)
"""A tool as it is kept: its note, arguments of its calls, and how many calls ended in which way."""


@dataclass(slots=True)
class ToolDescribed(Event):
    """A note on a tool (`runs.tools.changes_of`)."""

    kind = "tool_described"
    cells: ClassVar = {"note": TOOL_NOTE}
    tool: str
    note: dict[str, Any]


@dataclass(slots=True)
class Sources(Event):
    """Argument sources (`graph.sources`) that were right (1) or wrong (0) for a slot, and their user.

    Those with a ``|`` contain words of a text or a path, which may be a person's. `agreed` has, of the right ones in
    prompt and context, the digests of their values.
    """

    kind = "sources"
    slot: str
    previous: str
    judged: dict[str, int]
    user: str | None = None
    agreed: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Value(Event):
    """A value of a slot; `run` is the thread, one contributor."""

    kind = "value"
    slot: str
    previous: str
    value: str
    run: str
    user: str | None


# --- requests and the calls that followed them ---


@dataclass(slots=True)
class Request(Event):
    """A user's request, and the words that it answers (`RunState.asked`)."""

    kind = "request"
    request: str
    text: str
    user: str | None
    asked: str = ""


@dataclass(slots=True)
class RequestCall(Event):
    """The call at a position after a request; see `CaseIndex.add_call`."""

    kind = "request_call"
    request: str
    position: int
    tool: str
    args: str
    status: str
    sources: dict[str, list[str]] | None
    further: int


@dataclass(slots=True)
class RequestEnd(Event):
    """The model answered in words after so many calls."""

    kind = "request_end"
    request: str
    position: int


# --- counters, runs and feedback ---


@dataclass(slots=True)
class Count(Event):
    """An increment of a counter."""

    kind = "count"
    counter: str
    amount: float = 1


@dataclass(slots=True)
class ToolCount(Event):
    """A counter of one tool."""

    kind = "tool_count"
    tool: str
    counter: str
    amount: float = 1


@dataclass(slots=True)
class RunSeen(Event):
    """Shortcuts taken in a run, and its user."""

    kind = "run_seen"
    run: str
    shortcuts: int
    user: str | None


@dataclass(slots=True)
class Verdict(Event):
    """Feedback on a run: a score from 0 (bad) to 1 (good), the user who gave it, its weight up to 1, and its time."""

    kind = "verdict"
    run: str
    score: float
    comment: str | None
    user: str | None
    weight: float = 1.0
    when: float = 0.0

    @property
    def rank(self) -> tuple[float, float, str, float, str]:
        """The sort key of feedback on one run: the highest one is kept, in any order of arrival."""
        # User, score and comment break ties, so that two workers with equal times keep the same one.
        return self.weight, self.when, self.user or "", self.score, self.comment or ""


@dataclass(slots=True)
class UserForgotten(Event):
    """A user (digest) is forgotten."""

    kind = "user_forgotten"
    forgotten: str


@dataclass(slots=True)
class RunsForgotten(Event):
    """Runs, with their requests and threads (digests), are forgotten."""

    kind = "runs_forgotten"
    forgotten: list[str]
