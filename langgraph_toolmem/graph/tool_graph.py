"""The evidence graph: everything the memory has learned, and the increments by which it learns (`graph.events`).

The graph itself has the data that all methods share: tools, their successors, sources of arguments, past requests,
counters, runs and their feedback. The additional data of one method is a `Table`, registered under a name of its own.

Counts are in bounded tables of plain containers, with constant time per look-up. They commute until a bound is reached;
at a bound the rows with the least evidence are dropped first, older before newer.
"""

from __future__ import annotations

import heapq
import struct
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, TypeVar

from langgraph_toolmem.base.caches import drop_oldest
from langgraph_toolmem.graph import events as op
from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.cases import CASES, CaseIndex
from langgraph_toolmem.graph.events import (
    Event,
    Forgotten,
    Plain,
    PlainRecord,
    Record,
    plain_of,
    plain_parts,
    reader,
    record_parts,
    records_of,
    without,
)
from langgraph_toolmem.graph.shapes import CellShape
from langgraph_toolmem.graph.state import slot_key

SUCCESSOR_COLUMNS: Final = ("model_ok", "model_failed", "shortcut_ok", "shortcut_failed")
HIT, MISS = 0, 1

OPEN: Final = "?"
"""Successor of a context whose model turn began without a known end."""
TURNS_OPEN: Final = "turns_open"
"""Counter of the turns that began without a known end; the others are in ``turns``."""
MAX_SOURCES: Final = 32
"""Sources kept per slot."""

Handler = Callable[..., object]
T = TypeVar("T", bound="Table")


@dataclass(frozen=True, slots=True)
class GraphLimits:
    """Bounds of the evidence graph.

    Attributes:
        contexts: contexts whose successors are counted.
        slots: slots whose sources, values and contributors are kept.
        values: values of a slot.
        seen: keys of observations.
        runs: runs with their feedback.
        waiting: events kept for tables that are not registered. The oldest are dropped.
    """

    contexts: int = 60_000
    slots: int = 20_000
    values: int = 12
    seen: int = 2_000_000
    runs: int = 50_000
    waiting: int = 10_000


GRAPH_LIMITS: Final = GraphLimits()


@dataclass(slots=True)
class KeptRun(PlainRecord):
    """A run (an episode). On disk it is the list of these fields.

    Attributes:
        shortcuts: shortcuts taken.
        score: the feedback, 0 to 1, or None.
        comment: the comment of the feedback.
        owner: digest of the run's user, if known.
        author: digest of the user who gave the feedback, if known.
        weight: weight of the feedback, up to 1.
        when: time of the feedback, in seconds since 1970.
    """

    shortcuts: int = 0
    score: float | None = None
    comment: str | None = None
    owner: str | None = None
    author: str | None = None
    weight: float = 0.0
    when: float = 0.0


class CountTable:
    """``key -> {item -> [count, …]}``: a vector of counters for each item.

    Args:
        max_rows: limit of keys; at a tenth more, those with the smallest total are dropped.
        width: counters of an item.
        max_items: items per key; a new one replaces the rarest.
    """

    __slots__ = ("max_items", "max_rows", "rows", "width")

    def __init__(self, max_rows: int, *, width: int = 1, max_items: int = 12) -> None:
        self.max_rows, self.width, self.max_items = max_rows, width, max_items
        self.rows: dict[str, dict[str, list[float]]] = {}

    def add(self, key: str, item: str, column: int = 0, amount: float = 1) -> None:
        row = self.rows.get(key)
        if row is None:
            # Sorting all rows for each new one would be slow: a tenth is dropped at once.
            if len(self.rows) >= self.max_rows * 1.1:
                self._shrink()
            row = self.rows[key] = {}
        counters = row.get(item)
        if counters is None:
            if len(row) >= self.max_items:
                # Of equally rare items the first, which is the oldest.
                del row[_rarest(row)]
            counters = row[item] = [0] * self.width
        counters[column] += amount

    def row(self, key: str) -> dict[str, list[float]]:
        return self.rows.get(key) or {}

    def _shrink(self) -> None:
        totals = {key: sum(map(sum, row.values())) for key, row in self.rows.items()}
        excess = len(self.rows) - self.max_rows
        # Of equal totals the first comes first: the older one.
        for key in heapq.nsmallest(excess, totals, key=totals.__getitem__):
            del self.rows[key]

    def to_plain(self) -> dict[str, dict[str, list[float]]]:
        return self.rows

    def load(self, plain: dict[str, dict[str, list[float]]]) -> None:
        """Replace all rows by plain ones of the shape `shapes.counts`."""
        self.rows = plain


def _rarest(row: Mapping[str, list[float]]) -> str:
    def total(item: str) -> float:
        return sum(row[item])

    return min(row, key=total)


@dataclass(slots=True)
class Contributors(PlainRecord):
    """The runs and users that an item comes from: up to 3 of each.

    The smallest digests are kept, so that the result does not depend on the order of arrival.
    """

    runs: list[str] = field(default_factory=list)
    users: list[str] = field(default_factory=list)

    def add(self, run: str, user: str | None) -> None:
        _note(self.runs, run)
        if user is not None:
            _note(self.users, user)

    def lose(self, gone: Forgotten) -> bool:
        """Delete a user, or runs; return True if one of them was a contributor."""
        before = len(self.users) + len(self.runs)
        if gone.user:
            self.users = [user for user in self.users if user != gone.user]
        else:
            self.runs = [run for run in self.runs if run not in gone.runs]
        return len(self.users) + len(self.runs) < before

    def left(self, gone: Forgotten) -> bool:
        """Return True if a contributor of the forgotten kind is left."""
        if gone.user:
            return bool(self.users)
        return bool(self.runs)


def _note(digests: list[str], digest: str) -> None:
    if digest not in digests:
        digests.append(digest)
        # A few are enough to show that one is left after a forgetting; the smallest, whatever the order of arrival.
        digests.sort()
        del digests[3:]


class ContributorTable:
    """``key -> item -> contributors``. On disk an item is ``[runs, users]``."""

    __slots__ = ("max_items", "max_rows", "rows")

    def __init__(self, max_rows: int, *, max_items: int = 64) -> None:
        self.max_rows, self.max_items = max_rows, max_items
        self.rows: dict[str, dict[str, Contributors]] = {}

    def add(self, key: str, item: str, run: str, user: str | None) -> None:
        row = self.rows.get(key)
        if row is None:
            # Contributors of a slot have no total to compare: the oldest slot is dropped.
            row = self.rows[key] = {}
            drop_oldest(self.rows, self.max_rows)
        contributors = row.get(item)
        if contributors is None:
            if len(row) >= self.max_items:
                del row[_least_supported(row)]
            contributors = row[item] = Contributors()
        contributors.add(run, user)

    def of(self, key: str, item: str) -> Contributors | None:
        """Return the contributors of an item; None if it is unknown."""
        return self.rows.get(key, {}).get(item)

    def forget(self, gone: Forgotten) -> int:
        """Delete a user, or runs, as contributors; return the number of items that lost one."""
        return len(self._lose(gone))

    def _lose(self, gone: Forgotten) -> list[tuple[str, str]]:
        lost = []
        for key, row in self.rows.items():
            for item, contributors in list(row.items()):
                if contributors.lose(gone):
                    lost.append((key, item))
                    if not contributors.left(gone):
                        del row[item]
        return lost

    def forget_items(self, gone: Forgotten, table: CountTable, counted: Callable[[str], bool]) -> int:
        """Delete contributors like `forget`, and the items of `table` that have none left.

        `counted`: True for items with contributors. In a full row, which may have dropped contributors, an item without
        one may belong to any user: it is deleted as well and counts as removed.
        """
        full = {key for key, row in self.rows.items() if len(row) >= self.max_items}
        lost = self._lose(gone)
        without_any = {place for place in lost if self.of(*place) is None}
        if not without_any and not full:
            return len(lost)
        removed = len(lost)
        for narrow, row in table.rows.items():
            # Counts after a certain symbol are under the slot and that symbol.
            key = narrow.partition("\x1e")[0]
            is_full = key in full
            for item in list(row):
                if is_full and counted(item) and self.of(key, item) is None:
                    removed += 1
                    del row[item]
                elif (key, item) in without_any:
                    del row[item]
        return removed

    def to_plain(self) -> dict[str, dict[str, list[list[str]]]]:
        return {key: plain_of(row) for key, row in self.rows.items()}

    def load(self, plain: dict[str, dict[str, list[list[str]]]]) -> None:
        """Replace all rows by plain ones of the shape `shapes.CONTRIBUTORS`."""
        self.rows = {key: records_of(Contributors, row) for key, row in plain.items()}


def _least_supported(row: Mapping[str, Contributors]) -> str:
    def runs(item: str) -> int:
        return len(row[item].runs)

    return min(row, key=runs)


class _Parts:
    """Attributes that are the state of an object; see `Table`."""

    parts: ClassVar[Mapping[str, CellShape]] = {}
    record_kinds: ClassVar[Mapping[str, type[PlainRecord]]] = {}

    def to_state(self) -> dict[str, Any]:
        state = {}
        for name in self.parts:
            part = getattr(self, name)
            if isinstance(part, (CountTable, ContributorTable)):
                part = part.to_plain()
            elif name in self.record_kinds:
                part = plain_parts(part)
            state[name] = part
        return state

    def load(self, state: dict[str, Any]) -> None:
        for name in self.parts:
            part = getattr(self, name)
            if isinstance(part, (CountTable, ContributorTable)):
                part.load(state[name])
            elif name in self.record_kinds:
                setattr(self, name, record_parts(self.record_kinds[name], state[name]))
            else:
                setattr(self, name, state[name])


def _add(rows: dict[str, dict[str, Any]], tool: str, name: str, amount: float) -> None:
    """Add to a counter of a tool."""
    entry = rows.setdefault(tool, {})
    entry[name] = entry.get(name, 0) + amount


class Table(_Parts):
    """One part of the memory's data in the evidence graph. Override what you need.

    Attributes:
        name: its place in the snapshot.
        parts: the attributes that are its state, plain containers or tables of counts, each with the shape of its plain
            values. Values of another shape in a snapshot are left out before `load`.
        record_kinds: the parts that are records in dictionaries of any depth, each with the kind of its records.
    """

    name: ClassVar[str]

    def __init__(self, graph: ToolGraph) -> None:
        self.graph = graph

    def handlers(self) -> Mapping[type[Event], Handler]:
        """Return the functions that apply its events; it may also read events of other tables, after they were applied
        there.
        """
        return {}

    def forget(self, gone: Forgotten) -> int:
        """Delete the data of a user, or of runs; return the number of removed items. Pure counts are kept."""
        return 0


class ToolGraph(_Parts):
    """Tools, successor statistics, argument sources, past requests, counters and runs; and tables registered by
    methods.

    The data of an unregistered table is kept until it is registered: its state as it was read, and its latest events in
    order. At a bound the rows with the least evidence are dropped; of requests, runs, hours and keys the oldest.

    Attributes:
        left_out: names of the rows of tables with a wrong shape, since the list was last emptied.
    """

    parts: ClassVar = {
        "tools": shapes.RowsOf(op.TOOL_NOTE),
        "counters": shapes.RowsOf(shapes.NUMBER),
        "by_tool": shapes.RowsOf(shapes.RowsOf(shapes.NUMBER)),
        "successors": shapes.counts(len(SUCCESSOR_COLUMNS)),
        "sources": shapes.counts(2),
        "values": shapes.counts(1),
        "value_contributors": shapes.CONTRIBUTORS,
        "descriptor_contributors": shapes.CONTRIBUTORS,
        "places": shapes.CONTRIBUTORS,
    }
    _others: ClassVar = {
        "runs": shapes.RowsOf(
            shapes.RecordOf(
                (
                    shapes.WHOLE,
                    shapes.OrNone(shapes.NUMBER),
                    shapes.OrNone(shapes.TEXT),
                    shapes.OrNone(shapes.TEXT),
                    shapes.OrNone(shapes.TEXT),
                    shapes.NUMBER,
                    shapes.NUMBER,
                )
            )
        ),
        "cases": CASES,
        "seen": shapes.Whatever(bytes),
        "tables": shapes.RowsOf(shapes.ANYTHING),
        "waiting": shapes.ListOf(shapes.Whatever(list)),
    }

    def __init__(self, tables: Iterable[type[Table]] = ()) -> None:
        self.tools: dict[str, dict[str, Any]] = {}
        limits = GRAPH_LIMITS
        self.successors = CountTable(limits.contexts, width=len(SUCCESSOR_COLUMNS))
        self.sources = CountTable(limits.slots, width=2, max_items=MAX_SOURCES)
        self.values = CountTable(limits.slots, max_items=limits.values)
        self.value_contributors = ContributorTable(limits.slots)
        self.descriptor_contributors = ContributorTable(limits.slots)
        # Slot -> source in prompt or context -> digests of the values that it had when it was right, and users.
        self.places = ContributorTable(limits.slots)
        self.cases = CaseIndex()
        self.counters: dict[str, float] = {}
        self.by_tool: dict[str, dict[str, float]] = {}
        self.runs: dict[str, KeptRun] = {}
        self._seen: dict[int, None] = {}
        self._tables: dict[str, Table] = {}
        self._unclaimed: dict[str, Any] = {}
        self._waiting: deque[Plain] = deque(maxlen=limits.waiting)
        self.left_out: list[str] = []
        self._kinds: dict[str, type[Event]] = {}
        self._handlers: dict[type[Event], list[Handler]] = {op.Unknown: [self._waiting.append]}
        self._handle(
            {
                op.Successor: self._add_successor,
                op.Outcome: self._add_outcome,
                op.Repeat: self._add_repeat,
                op.Arguments: self._add_arguments,
                op.ToolDescribed: self._add_note,
                op.Sources: self._add_sources,
                op.Value: self._add_value,
                op.Request: self.cases.open,
                op.RequestCall: self.cases.add_call,
                op.RequestEnd: self.cases.end,
                op.Count: self.count,
                op.ToolCount: self._count_of_tool,
                op.RunSeen: self._add_run,
                op.Verdict: self._add_verdict,
                op.UserForgotten: self.forget_user,
                op.RunsForgotten: self._forget_runs,
            }
        )
        # Tables come after the graph's own events, because they may read these after they were applied.
        for kind in tables:
            self.register(kind)

    # --- tables registered by methods ---

    def register(self, kind: type[T]) -> T:
        """Return the table of a kind: the registered one, otherwise a new one with the data kept for it.

        Raises:
            ValueError: a table of another kind has the same name.
        """
        known = self._tables.get(kind.name)
        if isinstance(known, kind):
            return known
        if known is not None:
            raise ValueError(f"two tables are called {kind.name!r}: {type(known).__name__} and {kind.__name__}")
        table = kind(self)
        # First its handlers, which the events that waited for it need.
        self._handle(table.handlers())
        self._tables[kind.name] = table
        self._fill(table)
        return table

    def _handle(self, handlers: Mapping[type[Event], Handler]) -> None:
        for kind, handler in handlers.items():
            if self._kinds.setdefault(kind.kind, kind) is not kind:
                raise ValueError(f"two events are called {kind.kind!r}")
            self._handlers.setdefault(kind, []).append(handler)

    def _fill(self, table: Table) -> None:
        state = self._unclaimed.pop(table.name, None)
        try:
            if state is not None:
                fitting, left_out = shapes.fitting(state, table.parts, type(table)(self).to_state())
                for part in left_out:
                    self.left_out.append(f"{table.name}.{part}")
                table.load(fitting)
        finally:
            # One pass: an event of a table that is not registered yet waits again, at the end.
            for _ in range(len(self._waiting)):
                # Events that cannot be applied are left out: they are from a file.
                with suppress(TypeError, ValueError, LookupError, AttributeError):
                    self.apply(None, [self.event_of(self._waiting.popleft())])

    @property
    def tables(self) -> Collection[Table]:
        return self._tables.values()

    # --- keys of observations ---

    def event_of(self, plain: Any, fitting: Collection[str] = ()) -> Event:
        """Return the event that was written as plain values; those of the kinds `fitting` were compared before.

        Raises:
            TypeError, LookupError: it is not an event, or its fields do not have the shapes of its kind.
        """
        if not (isinstance(plain, list) and isinstance(plain[0], str)):
            raise TypeError("an event is a list that begins with its kind")
        kind = self._kinds.get(plain[0])
        if kind is None:
            return op.Unknown(plain)
        if plain[0] not in fitting and not op.have_shape(kind, [plain]):
            raise TypeError(f"a field of {kind.kind} has another shape")
        return kind(*plain[1:])

    def fitting_kinds(self, plain: Iterable[Any]) -> set[str]:
        """Return the kinds of events, written as plain values, whose events all have their shape.

        Comparing 10,000 rows kind by kind takes a third of the time of comparing each event.
        """
        by_kind: dict[str, list[Plain]] = {}
        for event in plain:
            if isinstance(event, list) and event and isinstance(event[0], str):
                by_kind.setdefault(event[0], []).append(event)
        fitting = set()
        for name, events in by_kind.items():
            kind = self._kinds.get(name)
            if kind is not None and op.have_shape(kind, events):
                fitting.add(name)
        return fitting

    def has_seen(self, key: str) -> bool:
        """Return True if an observation with this key (16 hex digits) was applied."""
        return int(key, 16) in self._seen

    def apply(self, key: str | None, record: Record) -> bool:
        """Apply a record; return False without a change if its key was seen before."""
        if key is not None:
            # An int takes 36 bytes, its 16 digits 65, and 2 million keys are kept.
            number = int(key, 16)
            if number in self._seen:
                return False
            self._seen[number] = None
            drop_oldest(self._seen, GRAPH_LIMITS.seen)
        for event in record:
            kind = type(event)
            values = reader(kind)(event)
            for handler in self._handlers[kind]:
                handler(*values)
        return True

    # --- the events ---

    def _add_successor(self, contexts: list[str], following: str, column: int) -> None:
        for context in contexts:
            self.successors.add(context, following, column)

    def _add_outcome(self, tool: str, status: str, *_: object) -> None:
        _add(self.tools, tool, status, 1)

    def _add_repeat(self, tool: str, repeated: int) -> None:
        _add(self.tools, tool, "repeats", repeated)

    def _add_note(self, tool: str, note: Mapping[str, Any]) -> None:
        self.tools.setdefault(tool, {}).update(note)

    def _count_of_tool(self, tool: str, counter: str, amount: float) -> None:
        _add(self.by_tool, tool, counter, amount)

    def _add_arguments(self, tool: str, types: Mapping[str, str], given: list[str], user: str | None) -> None:
        entry = self.tools.setdefault(tool, {})
        # "given" counts names whose value was not in an earlier output.
        for parameter in given:
            counts = entry.setdefault("given", {})
            counts[parameter] = counts.get(parameter, 0) + 1
        entry["calls_read"] = entry.get("calls_read", 0) + 1
        known = entry.setdefault("parameters_seen", {})
        # "parameters_of" names the only user of a name outside all schemas: it may be a person's name, as a key of an
        # object.
        whose = entry.setdefault("parameters_of", {})
        for parameter, kind in types.items():
            if parameter not in known and user:
                whose[parameter] = user
            elif whose.get(parameter, user) != user:
                del whose[parameter]
            kinds = known.setdefault(parameter, {})
            kinds[kind] = kinds.get(kind, 0) + 1

    def _add_sources(
        self, slot: str, previous: str, judged: dict[str, int], user: str | None, agreed: dict[str, str]
    ) -> None:
        # Counted after the previous symbol as well: a value may come from another place there.
        narrow = f"{slot}\x1e{previous}"
        for descriptor, hit in judged.items():
            column = MISS
            if hit:
                column = HIT
            self.sources.add(slot, descriptor, column)
            self.sources.add(narrow, descriptor, column)
            # Constants and the nearest request ("c", "n") contain no words of users.
            if user is not None and "|" in descriptor:
                self.descriptor_contributors.add(slot, descriptor, "", user)
        for descriptor, value in agreed.items():
            self.places.add(slot, descriptor, value, user)

    def _add_value(self, slot: str, previous: str, value: str, run: str, user: str | None) -> None:
        self.values.add(slot, value)
        self.values.add(f"{slot}\x1e{previous}", value)
        self.value_contributors.add(slot, value, run, user)

    def count(self, counter: str, amount: float = 1) -> None:
        # A negative amount subtracts the count of an open turn.
        self.counters[counter] = self.counters.get(counter, 0) + amount

    def _add_run(self, run: str, shortcuts: int, user: str | None) -> None:
        record = self.runs.setdefault(run, KeptRun())
        record.shortcuts += shortcuts
        if user is not None:
            # The smaller one, so that the order of arrival does not matter.
            if record.owner is not None:
                user = min(user, record.owner)
            record.owner = user
        # The first of the dictionary came earliest.
        drop_oldest(self.runs, GRAPH_LIMITS.runs)

    def _add_verdict(
        self, run: str, score: float, comment: str | None, user: str | None, weight: float, when: float
    ) -> None:
        self._add_run(run, 0, None)
        new = op.Verdict(run, score, comment, user, weight, when)
        current = self.verdict(run)
        # Workers may apply feedback in any order: the one with the highest rank is kept.
        if current is None or new.rank > current.rank:
            record = self.runs[run]
            record.score, record.comment, record.author = score, comment, user
            record.weight, record.when = weight, when

    # --- owners ---

    def owner(self, run: str) -> str | None:
        record = self.runs.get(run)
        if record is None:
            return None
        return record.owner

    @property
    def mixes_users(self) -> bool:
        """True if values of several threads are kept, and the users of all runs are unknown."""
        # One run with a user is enough: the host names them.
        for record in self.runs.values():
            if record.owner is not None:
                return False
        threads: set[str] = set()
        for row in self.value_contributors.rows.values():
            for contributors in row.values():
                if contributors.users:
                    return False
                threads.update(contributors.runs)
        return len(threads) > 1

    @property
    def turns(self) -> int:
        """Model turns: learned turns, and turns that began without a known end."""
        return int(self.counters.get("turns", 0) + self.counters.get(TURNS_OPEN, 0))

    def verdict(self, run: str) -> op.Verdict | None:
        """Return the kept feedback on a run, or None."""
        record = self.runs.get(run)
        if record is None or record.score is None:
            return None
        return op.Verdict(run, record.score, record.comment, record.author, record.weight, record.when)

    def score(self, run: str) -> float | None:
        record = self.runs.get(run)
        if record is None:
            return None
        return record.score

    def went_well(self, run: str) -> bool:
        """Return True if the feedback on a run is good."""
        score = self.score(run)
        return score is not None and score >= op.GOOD

    def belongings(self, user: str) -> set[str]:
        own = self.cases.of_user(user)
        for run, record in self.runs.items():
            if record.owner == user:
                own.add(run)
        return own

    def forget_user(self, user: str) -> int:
        return self.forget(Forgotten(user, self.belongings(user)))

    def _forget_runs(self, runs: Iterable[str]) -> int:
        return self.forget(Forgotten(runs=frozenset(runs)))

    def forget(self, gone: Forgotten) -> int:
        """Delete requests, runs, and values and wordings without another user or thread.

        Return the number of removed items. Pure counts (which tool follows which) are kept.
        """
        removed = self.cases.forget(gone)
        removed += self.value_contributors.forget_items(gone, self.values, counted=_is_value)
        removed += self.descriptor_contributors.forget_items(gone, self.sources, counted=_has_place)
        if gone.user:
            removed += self._forget_places(gone.user)
            removed += self._forget_parameters(gone.user)
        removed += self._forget_run_records(gone)
        names = {gone.user, *gone.runs} - {""}
        # Tables and events of methods that are not registered here lose all rows that name the user.
        self._unclaimed = without(self._unclaimed, names)
        waiting = without(list(self._waiting), names)
        # The handler of unknown events is this deque's own `append`, so the deque is never replaced.
        self._waiting.clear()
        self._waiting.extend(waiting)
        for table in self._tables.values():
            removed += table.forget(gone)
        return removed

    def _forget_run_records(self, gone: Forgotten) -> int:
        removed = 0
        for run, record in list(self.runs.items()):
            if gone.has(run, record.owner):
                del self.runs[run]
                removed += 1
            elif gone.user and record.author == gone.user:
                # Feedback that this user gave on another's run: the score is kept without its author.
                record.comment, record.author = None, None
                removed += 1
        return removed

    def _forget_places(self, user: str) -> int:
        """Delete the record of places with a value of a user, because the digests are not assigned to users."""
        removed = 0
        for row in self.places.rows.values():
            for descriptor, contributors in list(row.items()):
                if user in contributors.users:
                    del row[descriptor]
                    removed += 1
        return removed

    def _forget_parameters(self, user: str) -> int:
        """Delete names of arguments that only this user's calls had and that are in no schema: they may be people's
        names.
        """
        slots = set()
        for tool, entry in self.tools.items():
            whose = entry.get("parameters_of", {})
            declared = (entry.get("parameters") or {}).get("properties") or {}
            for parameter in [name for name, owner in whose.items() if owner == user]:
                del whose[parameter]
                if parameter not in declared:
                    slots.add(slot_key(tool, parameter))
                    for counter in ("parameters_seen", "given"):
                        entry.get(counter, {}).pop(parameter, None)
        if slots:
            self._forget_slots(slots)
        return len(slots)

    def _forget_slots(self, slots: Collection[str]) -> None:
        for table in vars(self).values():
            if not isinstance(table, (CountTable, ContributorTable)):
                continue
            for key in list(table.rows):
                if key.partition("\x1e")[0] in slots:
                    del table.rows[key]

    # --- persistence ---

    def to_state(self) -> dict[str, Any]:
        return super().to_state() | {
            "runs": plain_of(self.runs),
            "cases": self.cases.to_plain(),
            "seen": struct.pack(f"<{len(self._seen)}Q", *self._seen),
            # With the state of tables whose methods are not registered here.
            "tables": self._unclaimed | {name: table.to_state() for name, table in self._tables.items()},
            "waiting": list(self._waiting),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Replace everything except tables that are not in the state; raise GraphFileError if it has another shape."""
        shapes.refuse(state, {**self.parts, **self._others})
        super().load(state)
        self.runs = records_of(KeptRun, state["runs"])
        self.cases.load(state["cases"])
        # Each of up to 2 million keys takes 8 bytes of the snapshot, not 16 digits.
        count = len(state["seen"]) // struct.calcsize("Q")
        self._seen = dict.fromkeys(struct.unpack(f"<{count}Q", state["seen"]))
        self._unclaimed = dict(state["tables"])
        self._waiting.clear()
        self._waiting.extend(state["waiting"])
        for table in self._tables.values():
            self._fill(table)


def _is_value(item: str) -> bool:
    """Return True: each value of a slot has contributors."""
    del item
    return True


def _has_place(source: str) -> bool:
    """Return True for sources with contributors; constants and the nearest request have none."""
    return "|" in source
