"""The ledger: items that a method showed the model, whether it followed them, and how that run ended.

A method shows an item before one model turn, or for the whole run. The turn tells whether the model followed it, the
run's feedback how it ended; feedback may change. An item with a tool counts for the feedback once the model called that
tool, any other item because it was shown. Counts per method and item are increments, so that processes add up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from langgraph_toolmem.base import threads
from langgraph_toolmem.core.users import user_digest
from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.events import GOOD, Event, Forgotten, Record, Verdict
from langgraph_toolmem.graph.tool_graph import Handler, Table, ToolGraph
from langgraph_toolmem.runs.run import Turn

MAX_TURNS: Final = 4_096
"""Turns with shown items that are not learned yet; the oldest leave."""
MAX_RUNS: Final = 10_000
"""Runs whose items are kept; feedback on an older run counts for no item."""
MAX_RECORDS: Final = 200_000
"""Items of a method with a record; those that were shown first leave."""
FIGURES: Final = ("shown", "followed", "right", "runs", "helped", "hurt")


class ItemStats(NamedTuple):
    shown: int = 0  # turns, or runs, before which it was shown
    followed: int = 0  # turns
    right: int = 0  # of these
    helped: int = 0  # runs that count for it and ended well
    hurt: int = 0


NO_TRACK: Final = ItemStats()
_SHOWN, _FOLLOWED, _RIGHT, _HELPED, _HURT = range(5)
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


class Ledger(Table):
    """Records of shown items and their outcome. Its public methods are safe to use from several threads.

    Attributes:
        turns: turn -> method -> [run, user or "", {id: tool or None}], until the turn is learned.
        runs: run -> [user or "", {method: {id: counted feedback: None, its weight if good, minus its weight if bad}}].
        sums: method -> FIGURES: model turns with shown items, those in which an item was followed, in which that
            went well; runs whose feedback counts for items, good and bad ones.
        records: method -> item -> the numbers of its `ItemStats`; ALL: their sums.
        apply, lock: `Evidence.apply` and the graph's lock, from the core.
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

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.turns: dict[str, dict[str, list[Any]]] = {}
        self.runs: dict[str, list[Any]] = {}
        self.sums: dict[str, dict[str, float]] = {}
        self.records: dict[str, dict[str, list[float]]] = {}
        self.apply: Callable[..., bool] = lambda *_, **__: False
        self.lock: Any = threads.rlock()

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {
            Shown: self._show,
            Followed: self._follow,
            Verdict: lambda run, *_: self._judge(run),
            TracksDropped: self._drop_tracks,
        }

    def track(self, method: str, item: str) -> ItemStats:
        """Return the record of an item in whole numbers >= 0: fractions of feedback count once they add up to one."""
        found = self.records.get(method, {}).get(item)
        return NO_TRACK if found is None else ItemStats(*(max(0, int(count + 1e-6)) for count in found))

    def shown_in(self, run: str, method: str) -> dict[str, float | None]:
        """Return the items of a method for which the feedback on a run counts; see `runs`."""
        found: dict[str, float | None] = self.runs[run][1].get(method, {}) if run in self.runs else {}
        return found

    def _count(self, method: str, figure: str, amount: int = 1) -> None:
        self.sums.setdefault(method, dict.fromkeys(FIGURES, 0))[figure] += amount

    def _add(self, method: str, item: str, place: int, amount: float = 1) -> None:
        records = self.records.setdefault(method, {ALL: [0] * len(ItemStats._fields)})
        for key in (item, ALL):
            records.setdefault(key, [0] * len(ItemStats._fields))[place] += amount
        if len(records) > MAX_RECORDS:
            self._drop_tracks(method, [next(key for key in records if key != ALL)])

    def _drop_tracks(self, method: str, items: list[str]) -> None:
        records = self.records.get(method, {})
        for item in items:
            if item != ALL and (gone := records.pop(item, None)) is not None:
                records[ALL] = [whole - part for whole, part in zip(records[ALL], gone, strict=True)]

    def _show(self, method: str, run: str, turn: str | None, items: dict[str, str | None], user: str | None) -> None:
        if turn is not None:
            waiting = self.turns.setdefault(turn, {})
            if method not in waiting:
                self._count(method, "shown")
            known = waiting.setdefault(method, [run, user or "", {}])[2]
            new = items.keys() - known.keys()
            known.update(items)
            if len(self.turns) > MAX_TURNS:
                del self.turns[next(iter(self.turns))]
        else:
            new = items.keys() - self.shown_in(run, method).keys()
        for key in sorted(new):
            self._add(method, key, _SHOWN)
        self._await_verdict(method, run, [key for key, tool in items.items() if tool is None], user)

    def _follow(self, method: str, run: str, turn: str, ids: list[str], right: int, user: str | None) -> None:
        waiting = self.turns.get(turn, {})
        waiting.pop(method, None)
        if not waiting:
            self.turns.pop(turn, None)
        self._count(method, "followed", int(bool(ids)))
        self._count(method, "right", right)
        for key in ids:
            self._add(method, key, _FOLLOWED)
            self._add(method, key, _RIGHT, right)
        self._await_verdict(method, run, ids, user)

    def _await_verdict(self, method: str, run: str, ids: Collection[str], user: str | None) -> None:
        if not ids:
            return
        items = self.runs.setdefault(run, [user or "", {}])[1].setdefault(method, {})
        if not items:
            self._count(method, "runs")
        for key in ids:
            items.setdefault(key, None)
        self._judge(run)
        if len(self.runs) > MAX_RUNS:
            del self.runs[next(iter(self.runs))]

    def _judge(self, run: str) -> None:
        stands = self.graph.verdict(run)
        if stands is None:
            return
        new = stands.weight if stands.score >= GOOD else -stands.weight
        for method, items in self.runs[run][1].items() if run in self.runs else ():
            before = {counted > 0 for counted in items.values() if counted is not None}
            if before != {new > 0}:
                for helped in before:
                    self._count(method, "helped" if helped else "hurt", -1)
                self._count(method, "helped" if new > 0 else "hurt")
            for key, counted in items.items():
                if counted == new:
                    continue
                if counted is not None:
                    self._add(method, key, _HELPED if counted > 0 else _HURT, -abs(counted))
                self._add(method, key, _HELPED if new > 0 else _HURT, abs(new))
            items.update(dict.fromkeys(items, new))

    def forget(self, gone: Forgotten) -> int:
        for run in [run for run, (owner, _) in self.runs.items() if gone.has(run, owner)]:
            del self.runs[run]
        for waiting in self.turns.values():
            for method in [name for name, (run, owner, _) in waiting.items() if gone.has(run, owner)]:
                del waiting[method]
        self.turns = {turn: waiting for turn, waiting in self.turns.items() if waiting}
        return 0

    # --- for the core and the methods ---

    def items(self, turn: str, method: str) -> dict[str, str | None]:
        """Return a method's items for a turn that is not learned yet: id -> the suggested tool, or None."""
        with self.lock:
            waiting = self.turns.get(turn, {}).get(method)
            return {} if waiting is None else dict(waiting[2])

    def shown(
        self,
        method: str,
        items: Mapping[str, str | None],
        *,
        run: str,
        turn: str | None = None,
        user_id: str | None = None,
    ) -> None:
        """Record that the model sees these items (see `Shown`); a repetition for the same turn, or run, counts once."""
        with self.lock:
            known: Iterable[str] = self.shown_in(run, method) if turn is None else self.items(turn, method)
            new = {key: tool for key, tool in items.items() if key not in known}
            if new:
                user = user_digest(user_id) or self.graph.owner(run)
                self.apply(None, [Shown(method, run, turn, new, user)], user=user, run=run)

    def followed(self, turn: Turn) -> Record:
        record: Record = []
        with self.lock:
            for method, (run, user, items) in self.turns.get(turn.key, {}).items():
                steps = [step for step in turn.steps if step.tool in items.values()]
                called = {step.tool for step in steps}
                right = int(any(step.status == "ok" and not step.review for step in steps))
                ids = [key for key, tool in items.items() if tool in called]
                record.append(Followed(method, run, turn.key, ids, right, user or self.graph.owner(run)))
        return record

    def tracked(self, method: str) -> bool:
        return bool(self.records.get(method))

    def tracks(self, method: str, items: Iterable[str]) -> list[ItemStats]:
        """Return the records of items; for ALL the sums over the items of the method."""
        with self.lock:
            return [self.track(method, item) for item in items]

    def drop(self, method: str, items: Collection[str]) -> None:
        with self.lock:
            gone = [item for item in items if self.track(method, item) != NO_TRACK]
            if gone:
                self.apply(None, [TracksDropped(method, gone)])

    def figures(self, method: str) -> dict[str, int]:
        with self.lock:
            return {name: int(number) for name, number in (self.sums.get(method) or dict.fromkeys(FIGURES, 0)).items()}
