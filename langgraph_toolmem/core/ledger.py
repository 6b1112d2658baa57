"""The ledger: items that a method showed to the model, whether the model followed them, and how the run ended.

A method shows an item before one model turn, or for the whole run. The turn shows whether the model followed it, and
the run's feedback how it ended; feedback may change. Feedback counts for an item with a tool once the model called that
tool, and for any other item because it was shown. Counts per method and item are increments, so that processes add up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from langgraph_toolmem.base.caches import drop_oldest
from langgraph_toolmem.core.users import user_digest
from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.events import GOOD, Event, Forgotten, PlainRecord, Record, Verdict
from langgraph_toolmem.graph.tool_graph import Handler, Table, ToolGraph
from langgraph_toolmem.runs.run import Turn

if TYPE_CHECKING:
    from langgraph_toolmem.core.core import Evidence


@dataclass(frozen=True, slots=True)
class LedgerLimits:
    """Sizes of the ledger.

    Attributes:
        turns: turns with shown items that are not learned yet; the oldest are dropped.
        runs: runs whose items are kept; feedback on an older run is not counted.
        records: items of a method with a record; those shown first are dropped.
    """

    turns: int = 4_096
    runs: int = 10_000
    records: int = 200_000


LEDGER_LIMITS: Final = LedgerLimits()
FIGURES: Final = ("shown", "followed", "right", "runs", "helped", "hurt")


class ItemStats(NamedTuple):
    shown: int = 0  # turns, or runs, before which it was shown
    followed: int = 0  # turns
    right: int = 0  # of these
    helped: int = 0  # runs that count for it and ended well
    hurt: int = 0


NO_TRACK: Final = ItemStats()
ALL: Final = ""
"""The key of the sums over all items of a method."""


@dataclass(slots=True)
class Shown(Event):
    """Items (by id) were shown to the model, each with the tool that it suggests, or None.

    `turn` is the key of the coming model turn; None if they were shown for the whole run.
    """

    kind = "shown"
    method: str
    run: str
    turn: str | None
    items: dict[str, str | None]
    user: str | None


@dataclass(slots=True)
class Followed(Event):
    """The model followed these items of a method in a turn; right is 1 if that went well, otherwise 0."""

    kind = "followed"
    method: str
    run: str
    turn: str
    ids: list[str]
    right: int
    user: str | None


@dataclass(slots=True)
class TracksDropped(Event):
    kind = "tracks_dropped"
    method: str
    items: list[str]


@dataclass(slots=True)
class ItemCounts(PlainRecord):
    """The figures of `ItemStats` before they are rounded: feedback may count in part."""

    shown: float = 0
    followed: float = 0
    right: float = 0
    helped: float = 0
    hurt: float = 0

    def add(self, figure: str, amount: float) -> None:
        setattr(self, figure, getattr(self, figure) + amount)

    def minus(self, other: ItemCounts) -> ItemCounts:
        return ItemCounts(
            self.shown - other.shown,
            self.followed - other.followed,
            self.right - other.right,
            self.helped - other.helped,
            self.hurt - other.hurt,
        )

    def rounded(self) -> ItemStats:
        """Return whole numbers >= 0: fractions of feedback count once they add up to one."""
        return ItemStats(*[max(0, int(count + 1e-6)) for count in self.to_plain()])


@dataclass(slots=True)
class WaitingItems(PlainRecord):
    """Items of a method that were shown before a turn which is not learned yet.

    Attributes:
        run: of the turn.
        user: digest of its user; "" if unknown.
        tools: item -> the tool that it suggests, or None.
    """

    run: str
    user: str
    tools: dict[str, str | None] = field(default_factory=dict)


@dataclass(slots=True)
class ItemsOfRun(PlainRecord):
    """Items for which the feedback on a run counts.

    Attributes:
        user: digest of its user; "" if unknown.
        counted: method -> item -> the feedback that was counted: its weight, negative if it was bad, None before any.
    """

    user: str
    counted: dict[str, dict[str, float | None]] = field(default_factory=dict)


class LedgerTable(Table):
    """Records of shown items and their outcome. Callers must hold the graph's lock.

    Attributes:
        turns: turn -> method -> its items, until the turn is learned.
        runs: by run.
        sums: method -> FIGURES: model turns with shown items, those in which an item was followed, in which that
            went well; runs whose feedback counts for items, good and bad ones.
        records: method -> item -> its figures; ALL: their sums.
    """

    name = "ledger"
    parts: ClassVar = {
        "turns": shapes.RowsOf(
            shapes.RowsOf(shapes.RecordOf((shapes.TEXT, shapes.TEXT, shapes.RowsOf(shapes.OrNone(shapes.TEXT)))))
        ),
        "runs": shapes.RowsOf(
            shapes.RecordOf((shapes.TEXT, shapes.RowsOf(shapes.RowsOf(shapes.OrNone(shapes.NUMBER)))))
        ),
        "sums": shapes.RowsOf(shapes.RowsOf(shapes.NUMBER, needs=frozenset(FIGURES))),
        "records": shapes.RowsOf(shapes.RowsOf(shapes.numbers(len(ItemStats._fields)), needs=frozenset({ALL}))),
    }
    record_kinds: ClassVar = {"turns": WaitingItems, "runs": ItemsOfRun, "records": ItemCounts}

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.turns: dict[str, dict[str, WaitingItems]] = {}
        self.runs: dict[str, ItemsOfRun] = {}
        self.sums: dict[str, dict[str, float]] = {}
        self.records: dict[str, dict[str, ItemCounts]] = {}

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {
            Shown: self._show,
            Followed: self._follow,
            Verdict: self._judge_again,
            TracksDropped: self._drop_tracks,
        }

    def track(self, method: str, item: str) -> ItemStats:
        """Return the record of an item."""
        counts = self.records.get(method, {}).get(item)
        if counts is None:
            return NO_TRACK
        return counts.rounded()

    def shown_in(self, run: str, method: str) -> dict[str, float | None]:
        """Return the items of a method for which the feedback on a run counts; see `runs`."""
        return self._methods_of(run).get(method, {})

    def waiting(self, turn: str, method: str) -> dict[str, str | None]:
        """Return a method's items for a turn that is not learned yet; see `Ledger.items`."""
        waiting = self.turns.get(turn, {}).get(method)
        if waiting is None:
            return {}
        return dict(waiting.tools)

    def followed(self, turn: Turn) -> Record:
        """Return the record of the items that the model followed in a turn."""
        record: Record = []
        # Only calls that worked as the model wrote them are right: a person's edit says that the call was not.
        for method, waiting in self.turns.get(turn.key, {}).items():
            suggested = set(waiting.tools.values())
            called: set[str] = set()
            right = 0
            for step in turn.steps:
                if step.tool in suggested:
                    called.add(step.tool)
                    if step.status == "ok" and not step.review:
                        right = 1
            ids = [key for key, tool in waiting.tools.items() if tool in called]
            user = waiting.user or self.graph.owner(waiting.run)
            record.append(Followed(method, waiting.run, turn.key, ids, right, user))
        return record

    def _methods_of(self, run: str) -> dict[str, dict[str, float | None]]:
        if run not in self.runs:
            return {}
        return self.runs[run].counted

    def _count(self, method: str, figure: str, amount: int = 1) -> None:
        self.sums.setdefault(method, dict.fromkeys(FIGURES, 0))[figure] += amount

    def _add(self, method: str, item: str, figure: str, amount: float = 1) -> None:
        records = self.records.setdefault(method, {ALL: ItemCounts()})
        for key in (item, ALL):
            records.setdefault(key, ItemCounts()).add(figure, amount)
        if len(records) > LEDGER_LIMITS.records:
            # The sums are made first, so they are the oldest, and must be kept.
            oldest, second = islice(records, 2)
            if oldest == ALL:
                oldest = second
            self._drop_tracks(method, [oldest])

    def _drop_tracks(self, method: str, items: list[str]) -> None:
        records = self.records.get(method, {})
        for item in items:
            if item == ALL or item not in records:
                continue
            # The sums are over the items that are there.
            records[ALL] = records[ALL].minus(records.pop(item))

    def _show(self, method: str, run: str, turn: str | None, items: dict[str, str | None], user: str | None) -> None:
        if turn is not None:
            waiting = self.turns.setdefault(turn, {})
            # A method may show items to a turn in several parts, by several steps: the turn counts once.
            if method not in waiting:
                self._count(method, "shown")
            known = waiting.setdefault(method, WaitingItems(run, user or "")).tools
            new = items.keys() - known.keys()
            known.update(items)
            drop_oldest(self.turns, LEDGER_LIMITS.turns)
        else:
            new = items.keys() - self.shown_in(run, method).keys()
        for key in sorted(new):
            self._add(method, key, "shown")
        self._await_verdict(method, run, [key for key, tool in items.items() if tool is None], user)

    def _follow(self, method: str, run: str, turn: str, ids: list[str], right: int, user: str | None) -> None:
        waiting = self.turns.get(turn, {})
        waiting.pop(method, None)
        if not waiting:
            self.turns.pop(turn, None)
        self._count(method, "followed", int(bool(ids)))
        self._count(method, "right", right)
        for key in ids:
            self._add(method, key, "followed")
            self._add(method, key, "right", right)
        self._await_verdict(method, run, ids, user)

    def _await_verdict(self, method: str, run: str, ids: Collection[str], user: str | None) -> None:
        if not ids:
            return
        items = self.runs.setdefault(run, ItemsOfRun(user or "")).counted.setdefault(method, {})
        if not items:
            self._count(method, "runs")
        for key in ids:
            items.setdefault(key, None)
        self._judge(run)
        drop_oldest(self.runs, LEDGER_LIMITS.runs)

    def _judge_again(self, run: str, *_: object) -> None:
        self._judge(run)

    def _judge(self, run: str) -> None:
        feedback = self.graph.verdict(run)
        if feedback is None:
            return
        new = feedback.weight
        if feedback.score < GOOD:
            new = -new
        for method, items in self._methods_of(run).items():
            self._count_run(method, items.values(), new)
            self._credit(method, items, new)

    def _count_run(self, method: str, counted: Collection[float | None], new: float) -> None:
        """Count a run of a method as helped or hurt, in place of the outcome that was counted before."""
        before = {_figure_of(weight) for weight in counted if weight is not None}
        if before != {_figure_of(new)}:
            for figure in before:
                self._count(method, figure, -1)
            self._count(method, _figure_of(new))

    def _credit(self, method: str, items: dict[str, float | None], new: float) -> None:
        """Count feedback for items, in place of the feedback that was counted before."""
        for key, counted in items.items():
            if counted == new:
                continue
            if counted is not None:
                self._add(method, key, _figure_of(counted), -abs(counted))
            self._add(method, key, _figure_of(new), abs(new))
            # Counted feedback is kept, so that later feedback first subtracts it.
            items[key] = new

    def forget(self, gone: Forgotten) -> int:
        for run, items in list(self.runs.items()):
            if gone.has(run, items.user):
                del self.runs[run]
        for turn, methods in list(self.turns.items()):
            for method, waiting in list(methods.items()):
                if gone.has(waiting.run, waiting.user):
                    del methods[method]
            if not methods:
                del self.turns[turn]
        return 0


def _figure_of(weight: float) -> str:
    """Return the figure in which feedback counts, by its weight: negative if the run ended badly."""
    if weight > 0:
        return "helped"
    return "hurt"


class Ledger:
    """The ledger of a memory, for its methods. Safe to use from several threads."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._table = evidence.register(LedgerTable)

    def items(self, turn: str, method: str) -> dict[str, str | None]:
        """Return a method's items for a turn that is not learned yet: id -> the suggested tool, or None."""
        with self._evidence.lock:
            return self._table.waiting(turn, method)

    def shown(
        self,
        method: str,
        items: Mapping[str, str | None],
        *,
        run: str,
        turn: str | None = None,
        user_id: str | None = None,
    ) -> None:
        """Record that the model sees these items (see `Shown`); a repetition for the same turn or run counts once."""
        with self._evidence.lock:
            known: Collection[str] = self._table.shown_in(run, method)
            if turn is not None:
                known = self._table.waiting(turn, method)
            new = {key: tool for key, tool in items.items() if key not in known}
            if new:
                user = user_digest(user_id) or self._table.graph.owner(run)
                self._evidence.apply(None, [Shown(method, run, turn, new, user)], user=user, run=run)

    def followed(self, turn: Turn) -> Record:
        """Return the record of the items that the model followed in a turn."""
        with self._evidence.lock:
            return self._table.followed(turn)

    def tracked(self, method: str) -> bool:
        """Return True if an item of a method has a record."""
        return bool(self._table.records.get(method))

    def tracks(self, method: str, items: Iterable[str]) -> list[ItemStats]:
        """Return the records of items; for ALL the sums over the items of the method."""
        with self._evidence.lock:
            return [self._table.track(method, item) for item in items]

    def drop(self, method: str, items: Collection[str]) -> None:
        """Delete the records of items."""
        with self._evidence.lock:
            dropped = [item for item in items if self._table.track(method, item) != NO_TRACK]
            if dropped:
                self._evidence.apply(None, [TracksDropped(method, dropped)])

    def figures(self, method: str) -> dict[str, int]:
        """Return `FIGURES` of a method in whole numbers."""
        with self._evidence.lock:
            sums = self._table.sums.get(method) or dict.fromkeys(FIGURES, 0)
            return {name: int(number) for name, number in sums.items()}
