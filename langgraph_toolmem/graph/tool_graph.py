"""The evidence graph: everything the memory has learned, and the increments by which it learns (`graph.events`).

The graph itself holds what all methods share: tools, what followed what, where arguments came from, past requests,
counters, runs and their verdicts. What one method keeps in addition is a `Table`, registered under a name of its own.

Counts are in bounded tables of plain containers, with constant time per look-up. They commute as long as no bound is
reached; at a bound the rows with the least evidence leave first, older before newer.
"""

from __future__ import annotations

import heapq
import struct
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any, ClassVar, Final, TypeVar

from langgraph_toolmem.base.errors import GraphFileError
from langgraph_toolmem.graph import events as op
from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.cases import CaseIndex
from langgraph_toolmem.graph.events import Event, Forgotten, Plain, Record, reader, without
from langgraph_toolmem.graph.state import slot_key

COLUMNS: Final = ("model_ok", "model_failed", "shortcut_ok", "shortcut_failed")
HIT, MISS = 0, 1

MAX_CONTEXTS: Final = 60_000
MAX_SLOTS: Final = 20_000
MAX_SEEN: Final = 2_000_000
MAX_SOURCES: Final = 32
MAX_RUNS: Final = 50_000
MAX_WAITING: Final = 10_000
"""Events kept for tables that are not registered; the oldest leave."""
SHORTCUTS, SCORE, COMMENT, OWNER, AUTHOR, WEIGHT, WHEN = range(7)
"""Columns of a run (an episode): shortcuts taken, verdict, the word on it, whose run it is, who gave the verdict, how
much that counts, when it was given."""
OPEN: Final = "?"
"""Successor of a context whose model turn began and whose end has not been seen."""

TURNS_OPEN: Final = "turns_open"
"""Counter of the turns that began and whose end has not been seen; the others are in ``turns``."""

Handler = Callable[..., object]
T = TypeVar("T", bound="Table")


MAX_SUCCESSORS: Final = 12
"""Successors kept per context; a new one replaces the rarest."""
ENOUGH: Final = 3
"""Contributors of an item that are kept."""


class CountTable:
    """``key -> {item -> [count, …]}`` with a cap on keys (at a tenth more, those with the smallest total leave) and on
    items per key."""

    __slots__ = ("max_items", "max_rows", "rows", "width")

    def __init__(self, max_rows: int, *, width: int = 1, max_items: int = MAX_SUCCESSORS) -> None:
        self.max_rows, self.width, self.max_items = max_rows, width, max_items
        self.rows: dict[str, dict[str, list[float]]] = {}

    def add(self, key: str, item: str, column: int = 0, amount: float = 1) -> None:
        row = self.rows.get(key)
        if row is None:
            if len(self.rows) >= self.max_rows * 1.1:
                self._shrink()
            row = self.rows[key] = {}
        cell = row.get(item)
        if cell is None:
            if len(row) >= self.max_items:
                del row[min(row, key=lambda i: sum(row[i]))]
            cell = row[item] = [0] * self.width
        cell[column] += amount

    def row(self, key: str) -> dict[str, list[float]]:
        return self.rows.get(key) or {}

    def _shrink(self) -> None:
        excess = len(self.rows) - self.max_rows
        totals = ((sum(map(sum, row.values())), i, key) for i, (key, row) in enumerate(self.rows.items()))
        for _, _, key in heapq.nsmallest(excess, totals):
            del self.rows[key]


class ContributorTable:
    """``key -> item -> contributors``: up to ENOUGH different runs and users each.

    The smallest digests stay, so that the result does not depend on the order of arrival.
    """

    __slots__ = ("max_items", "max_rows", "rows")

    def __init__(self, max_rows: int, *, max_items: int = 64) -> None:
        self.max_rows, self.max_items = max_rows, max_items
        self.rows: dict[str, dict[str, list[list[str]]]] = {}

    def add(self, key: str, item: str, run: str, user: str | None) -> None:
        row = self.rows.get(key)
        if row is None:
            if len(self.rows) >= self.max_rows:
                del self.rows[next(iter(self.rows))]
            row = self.rows[key] = {}
        cell = row.get(item)
        if cell is None:
            if len(row) >= self.max_items:
                del row[min(row, key=lambda i: len(row[i][0]))]
            cell = row[item] = [[], []]
        self._note(cell[0], run)
        if user is not None:
            self._note(cell[1], user)

    def runs(self, key: str, item: str) -> list[str]:
        """Return the runs that contributed an item."""
        cell = self.rows.get(key, {}).get(item)
        return [] if cell is None else cell[0]

    def _note(self, seen: list[str], who: str) -> None:
        if who not in seen:
            seen.append(who)
            seen.sort()
            del seen[ENOUGH:]

    def forget(self, gone: Forgotten) -> int:
        """Delete a user, or runs, as contributors; return the number of items that lost one."""
        return len(self._lose(gone))

    def _lose(self, gone: Forgotten) -> list[tuple[str, str]]:
        place, names = (1, {gone.user}) if gone.user else (0, gone.runs)
        lost = []
        for key, row in self.rows.items():
            for item in list(row):
                seen = row[item][place]
                left = [who for who in seen if who not in names]
                if len(left) < len(seen):
                    lost.append((key, item))
                    seen[:] = left
                    if not left:
                        del row[item]
        return lost

    def forget_items(
        self, gone: Forgotten, table: CountTable, *, counted: Callable[[str], bool] = lambda _: True
    ) -> int:
        """Delete contributors as `forget` does, and the items of `table` that have none left.

        `counted`: True for items that have contributors. In a full row, where some had to leave, such an item without
        one may be anybody's: it is deleted as well and counts as removed.
        """
        full = {key for key, row in self.rows.items() if len(row) >= self.max_items}
        before = self._lose(gone)
        removed = len(before)
        out = {(key, item) for key, item in before if item not in self.rows.get(key, {})}
        for narrow, row in table.rows.items() if out or full else ():
            key = narrow.partition("\x1e")[0]
            known = self.rows.get(key, {})
            for item in list(row):
                lost = key in full and item not in known and counted(item)
                if lost or (key, item) in out:
                    del row[item]
                    removed += lost
        return removed


class _Parts:
    parts: ClassVar[tuple[str, ...]] = ()

    def to_state(self) -> dict[str, Any]:
        return {name: getattr(part := getattr(self, name), "rows", part) for name in self.parts}

    def load(self, state: dict[str, Any]) -> None:
        for name in self.parts:
            part = getattr(self, name)
            if isinstance(part, CountTable):
                shapes.check_counts(state[name], part.width)
                part.rows = state[name]
            elif isinstance(part, ContributorTable):
                shapes.check_contributors(state[name])
                part.rows = state[name]
            else:
                setattr(self, name, state[name])


def _add(rows: dict[str, dict[str, Any]], tool: str, name: str, amount: float) -> None:
    entry = rows.setdefault(tool, {})
    entry[name] = entry.get(name, 0) + amount


def _check(state: Any, now: Mapping[str, Any], where: str = "") -> None:
    for name, part in now.items():
        found = state.get(name, _check) if isinstance(state, dict) else _check
        if found is _check or (isinstance(part, (dict, list, bytes)) and type(found) is not type(part)):
            raise GraphFileError(f"{where}{name} has not the shape of an evidence graph")


class Table(_Parts):
    """One part of the memory's data in the evidence graph. Override what you need.

    Attributes:
        name: its place in the snapshot.
        parts: names of the attributes that are its state: plain containers, or tables of counts.
    """

    name: ClassVar[str]

    def __init__(self, graph: ToolGraph) -> None:
        self.graph = graph

    def handlers(self) -> Mapping[type[Event], Handler]:
        """Return what applies its events; it may look at those of others too, after they were applied there."""
        return {}

    def forget(self, gone: Forgotten) -> int:
        """Delete what came from a user, or from runs; return the number of removed pieces. Pure counts stay."""
        return 0


class ToolGraph(_Parts):
    """Tools, successor statistics, argument sources, past requests, counters and runs; and tables of others.

    What belongs to a table that is not registered is kept: its state as it was read, its events in their order
    (MAX_WAITING of them), until somebody registers it. At a bound the rows with the least evidence leave (requests,
    runs, hours and keys: the oldest).
    """

    parts = (
        *("tools", "counters", "by_tool", "runs", "successors", "sources", "values"),
        *("value_contributors", "descriptor_contributors", "places"),
    )

    def __init__(self, tables: Iterable[type[Table]] = ()) -> None:
        self.tools: dict[str, dict[str, Any]] = {}
        self.successors = CountTable(MAX_CONTEXTS, width=len(COLUMNS))
        self.sources = CountTable(MAX_SLOTS, width=2, max_items=MAX_SOURCES)
        self.values = CountTable(MAX_SLOTS, max_items=12)
        self.value_contributors = ContributorTable(MAX_SLOTS)
        self.descriptor_contributors = ContributorTable(MAX_SLOTS)
        #: slot -> source in prompt or context -> digests of the values that it had when it was right, and users
        self.places = ContributorTable(MAX_SLOTS)
        self.cases = CaseIndex()
        self.counters: dict[str, float] = {}
        self.by_tool: dict[str, dict[str, float]] = {}
        self.runs: dict[str, list[Any]] = {}
        self._seen: dict[int, None] = {}
        self._tables: dict[str, Table] = {}
        self._unclaimed: dict[str, Any] = {}
        self._waiting: deque[Plain] = deque(maxlen=MAX_WAITING)
        self._kinds: dict[str, type[Event]] = {}
        self._handlers: dict[type[Event], list[Handler]] = {op.Unknown: [self._waiting.append]}
        self._handle(
            {
                op.Successor: self._add_successor,
                op.Outcome: lambda tool, status, *_: _add(self.tools, tool, status, 1),
                op.Repeat: lambda tool, repeated: _add(self.tools, tool, "repeats", repeated),
                op.Arguments: self._add_arguments,
                op.ToolDescribed: lambda tool, note: self.tools.setdefault(tool, {}).update(note),
                op.Sources: self._add_sources,
                op.Value: self._add_value,
                op.Request: self.cases.open,
                op.RequestCall: self.cases.add_call,
                op.RequestEnd: self.cases.end,
                op.Count: self.count,
                op.ToolCount: lambda tool, counter, amount: _add(self.by_tool, tool, counter, amount),
                op.RunSeen: self._add_run,
                op.Verdict: self._add_verdict,
                op.UserForgotten: self.forget_user,
                op.RunsForgotten: lambda runs: self.forget(Forgotten(runs=frozenset(runs))),
            }
        )
        for kind in tables:
            self.register(kind)

    # --- tables of others ---

    def register(self, kind: type[T]) -> T:
        """Return the table of a kind: the one that is there, else a new one with what was kept for it.

        Raises GraphFileError if what was kept for it has not its shape; it is registered and empty then.
        """
        known = self._tables.get(kind.name)
        if isinstance(known, kind):
            return known
        if known is not None:
            raise ValueError(f"two tables are called {kind.name!r}: {type(known).__name__} and {kind.__name__}")
        table = kind(self)
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
                _check(state, table.to_state(), f"{table.name}.")
                table.load(state)
        finally:
            for _ in range(len(self._waiting)):
                # What cannot be applied is left out: it is from a file.
                with suppress(TypeError, ValueError, LookupError, AttributeError):
                    self.apply(None, [self.event_of(self._waiting.popleft())])

    @property
    def tables(self) -> Collection[Table]:
        return self._tables.values()

    # --- what has been seen ---

    def event_of(self, plain: Any) -> Event:
        """Return the event that was written as plain values.

        Raises:
            TypeError, LookupError: it is none, or has not the fields of its kind with their types.
        """
        if not (isinstance(plain, list) and isinstance(plain[0], str)):
            raise TypeError("an event is a list that begins with its kind")
        kind = self._kinds.get(plain[0])
        if kind is None:
            return op.Unknown(plain)
        op.refuse_strange(kind, plain[1:])
        return kind(*plain[1:])

    def has_seen(self, key: str) -> bool:
        """Return True if an observation with this key (16 hex digits) was applied."""
        return int(key, 16) in self._seen

    def apply(self, key: str | None, record: Record) -> bool:
        """Apply a record; return False, and change nothing, if its key was seen before."""
        if key is not None:
            number = int(key, 16)
            if number in self._seen:
                return False
            self._seen[number] = None
            if len(self._seen) > MAX_SEEN:
                del self._seen[next(iter(self._seen))]
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

    def _add_arguments(self, tool: str, types: Mapping[str, str], given: list[str], user: str | None) -> None:
        # given: counts of names whose value no earlier output had; parameters_of: the only user of a name
        entry = self.tools.setdefault(tool, {})
        for parameter in given:
            counted = entry.setdefault("given", {})
            counted[parameter] = counted.get(parameter, 0) + 1
        entry["calls_read"] = entry.get("calls_read", 0) + 1
        known, whose = entry.setdefault("parameters_seen", {}), entry.setdefault("parameters_of", {})
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
        narrow = f"{slot}\x1e{previous}"
        for descriptor, hit in judged.items():
            column = HIT if hit else MISS
            self.sources.add(slot, descriptor, column)
            self.sources.add(narrow, descriptor, column)
            if user is not None and "|" in descriptor:
                self.descriptor_contributors.add(slot, descriptor, "", user)
        for descriptor, value in agreed.items():
            self.places.add(slot, descriptor, value, user)

    def _add_value(self, slot: str, previous: str, value: str, run: str, user: str | None) -> None:
        self.values.add(slot, value)
        self.values.add(f"{slot}\x1e{previous}", value)
        self.value_contributors.add(slot, value, run, user)

    def count(self, counter: str, amount: float = 1) -> None:
        self.counters[counter] = self.counters.get(counter, 0) + amount

    def _add_run(self, run: str, shortcuts: int, user: str | None) -> None:
        entry = self.runs.setdefault(run, [0, None, None, None, None, 0.0, 0.0])
        entry[SHORTCUTS] += shortcuts
        if user is not None:
            # The smaller one, so that the order of arrival does not matter.
            entry[OWNER] = user if entry[OWNER] is None else min(entry[OWNER], user)
        if len(self.runs) > MAX_RUNS:
            del self.runs[next(iter(self.runs))]

    def _add_verdict(
        self, run: str, score: float, comment: str | None, user: str | None, weight: float, when: float
    ) -> None:
        self._add_run(run, 0, None)
        new, stands = op.Verdict(run, score, comment, user, weight, when), self.verdict(run)
        if stands is None or new.rank > stands.rank:
            entry = self.runs[run]
            entry[SCORE], entry[COMMENT], entry[AUTHOR], entry[WEIGHT], entry[WHEN] = new.values()[1:]

    # --- whose it is ---

    def owner(self, run: str) -> str | None:
        entry = self.runs.get(run)
        return None if entry is None else entry[OWNER]

    @property
    def mixes_users(self) -> bool:
        """True if values of several threads are kept, and no user of any run is known."""
        if any(entry[OWNER] is not None for entry in self.runs.values()):
            return False
        threads: set[str] = set()
        for row in self.value_contributors.rows.values():
            for runs, users in row.values():
                if users:
                    return False
                threads.update(runs)
        return len(threads) > 1

    @property
    def turns(self) -> int:
        """Model turns: those learned, and those that began and whose end has not been seen."""
        return int(self.counters.get("turns", 0) + self.counters.get(TURNS_OPEN, 0))

    def verdict(self, run: str) -> op.Verdict | None:
        """Return the verdict that stands, if any."""
        entry = self.runs.get(run)
        if entry is None or entry[SCORE] is None:
            return None
        return op.Verdict(run, entry[SCORE], entry[COMMENT], entry[AUTHOR], entry[WEIGHT], entry[WHEN])

    def score(self, run: str) -> float | None:
        stands = self.verdict(run)
        return None if stands is None else stands.score

    def went_well(self, run: str) -> bool:
        """Return True if the feedback on a run is good."""
        score = self.score(run)
        return score is not None and score >= op.GOOD

    def belongings(self, user: str) -> set[str]:
        return self.cases.of_user(user) | {run for run, entry in self.runs.items() if entry[OWNER] == user}

    def forget_user(self, user: str) -> int:
        return self.forget(Forgotten(user, self.belongings(user)))

    def forget(self, gone: Forgotten) -> int:
        """Delete requests, runs, and values and wordings that were seen with nobody else, or in no other thread.

        Return the number of removed pieces. Pure counts (which tool follows which) stay.
        """
        removed = self.cases.forget(gone)
        removed += self.value_contributors.forget_items(gone, self.values)
        # Sources without a place (constants, the nearest request) have no contributors.
        removed += self.descriptor_contributors.forget_items(gone, self.sources, counted=lambda source: "|" in source)
        removed += self._forget_places(gone.user)
        if gone.user:
            removed += self._forget_parameters(gone.user)
        mine = [run for run, entry in self.runs.items() if gone.has(run, entry[OWNER])]
        for run in mine:
            del self.runs[run]
        for entry in self.runs.values():
            if gone.user and entry[AUTHOR] == gone.user:
                entry[COMMENT], entry[AUTHOR] = None, None
                removed += 1
        names = {gone.user, *gone.runs} - {""}
        self._unclaimed = without(self._unclaimed, names)
        waiting = without(list(self._waiting), names)
        self._waiting.clear()
        self._waiting.extend(waiting)
        return removed + len(mine) + sum(table.forget(gone) for table in self._tables.values())

    def _forget_places(self, user: str) -> int:
        """Delete what is known of places that had a value of a user: which of the digests is theirs is not kept."""
        removed = 0
        for row in self.places.rows.values():
            for descriptor in [name for name, (_, users) in row.items() if user and user in users]:
                del row[descriptor]
                removed += 1
        return removed

    def _forget_parameters(self, user: str) -> int:
        # Names of arguments that only this user's calls had and no schema has: they may be keyed by people's names.
        gone = set()
        for tool, entry in self.tools.items():
            whose, declared = entry.get("parameters_of", {}), (entry.get("parameters") or {}).get("properties") or {}
            for parameter in [name for name, owner in whose.items() if owner == user]:
                del whose[parameter]
                if parameter not in declared:
                    gone.add(slot_key(tool, parameter))
                    for name in ("parameters_seen", "given"):
                        entry.get(name, {}).pop(parameter, None)
        for table in [
            part for part in vars(self).values() if gone and isinstance(part, (CountTable, ContributorTable))
        ]:
            for key in [key for key in table.rows if key.partition("\x1e")[0] in gone]:
                del table.rows[key]
        return len(gone)

    # --- persistence ---

    def to_state(self) -> dict[str, Any]:
        return super().to_state() | {
            "cases": self.cases.cases,
            "seen": struct.pack(f"<{len(self._seen)}Q", *self._seen),
            "tables": self._unclaimed | {name: table.to_state() for name, table in self._tables.items()},
            "waiting": list(self._waiting),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Replace everything but tables that are not in the state; raise GraphFileError if it has not that shape."""
        _check(state, ToolGraph().to_state())
        shapes.check_entries(state["tools"])
        shapes.check_entries(state["by_tool"])
        shapes.check_numbers(chain.from_iterable(map(dict.values, state["by_tool"].values())))
        shapes.check_types(state["counters"], str)
        shapes.check_numbers(state["counters"].values())
        shapes.check_runs(state["runs"])
        shapes.check_cases(state["cases"])
        super().load(state)
        self.cases.load(state["cases"])
        self._seen = dict.fromkeys(each for (each,) in struct.iter_unpack("<Q", state["seen"]))
        self._unclaimed = dict(state["tables"])
        self._waiting.clear()
        self._waiting.extend(state["waiting"])
        for table in self._tables.values():
            self._fill(table)
