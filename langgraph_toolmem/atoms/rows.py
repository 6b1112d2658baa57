"""Atoms as rows: their usual wordings are compared; those that a good run supports are found apart from the others.

- An atom stands on its supports (`support`): it is found while one of them is good. The same run put again changes
  nothing; put with more, or judged anew, it takes the place of what it gave before.
- An atom that misleads (`AtomRecord.misleads`) is found no longer. It keeps its place, so that the next run that does
  the same does not bring it back.
- Where there are too many, those that mislead go first, then those that no good run supports, then those whose value
  and record say least for them, then those that were left alone for longest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Final, TypeAlias

from langgraph_toolmem.atoms.atoms import Atom, Wording, merge_all, wordings_of
from langgraph_toolmem.atoms.record import NO_RECORD, AtomRecord, prior
from langgraph_toolmem.atoms.support import (
    Support,
    added,
    from_plain_supports,
    judged,
    to_plain_supports,
    total,
    without,
)
from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.core.ledger import NO_TRACK, ItemStats
from langgraph_toolmem.core.rows import RowKind, Rows
from langgraph_toolmem.core.users import User
from langgraph_toolmem.stores.vectors import Hit, VectorItem

GOOD, OTHER = "good", "other"
"""Parts of the collection: atoms that a good run supports, and those that wait for one."""
COMPARED: Final = 4
"""Wordings of an atom that are compared, the most usual ones."""

Supports: TypeAlias = tuple[Support, ...]


@dataclass(frozen=True)
class StoredAtom:
    """An atom as it is kept. Its supports are read when they are asked for: a search does without.

    Attributes:
        id: of the atom.
        plain: its supports and the atom, in JSON values; see `stored`.
        record: results of its hints, by the ledger; no part of what is stored.
    """

    id: str
    plain: Mapping[str, Any]
    record: AtomRecord = NO_RECORD

    @cached_property
    def supports(self) -> Supports:
        """Return what it stands on, good or not; at least one."""
        return from_plain_supports(self.id, self.plain)

    @cached_property
    def atom(self) -> Atom | None:
        """The atom, if a good run supports it."""
        whole = self.plain.get("whole")
        if whole is None:
            return None
        plain = self.plain
        state, goal, value, visits, origin, sources, produces, said = whole
        wordings = tuple(Wording(*each) for each in said)
        slots, about, arguments = tuple(plain["required_slots"]), plain["about"], plain["arguments"]
        rest = origin, tuple(sources), tuple(produces), wordings
        return Atom(self.id, state, goal, slots, plain["tool"], arguments, about, value, visits, *rest)


def stored(key: str, supports: Supports) -> StoredAtom:
    """An atom on its supports."""
    plain, whole = to_plain_supports(supports), total(supports)
    if whole is not None:
        said = [list(each) for each in wordings_of(whole)]
        head = [whole.state, whole.goal, whole.value, whole.visits, whole.origin]
        plain["whole"] = [*head, list(whole.sources), list(whole.produces), said]
        plain["about"] = whole.about
    return StoredAtom(key, plain)


AtomRows: TypeAlias = Rows[StoredAtom]


class AtomKind(RowKind[StoredAtom]):
    """See the module."""

    name: ClassVar[str] = "atoms"

    def row(self, item: StoredAtom) -> VectorItem:
        """See `RowKind`."""
        whole = item.atom or merge_all(each.part for each in item.supports)[0]
        owners = {owner for each in item.supports for owner in (each.run, each.user) if owner}
        part = OTHER if item.atom is None else GOOD
        return VectorItem(item.id, text_of(whole), item.plain, part, tuple(sorted(owners)))

    def item(self, row: Hit) -> StoredAtom:
        """See `RowKind`."""
        item = StoredAtom(row.id, row.metadata)
        if item.atom is None and not item.supports:
            raise InputError(f"The atom {row.id} stands on nothing.")
        return item

    def joined(self, old: StoredAtom, new: StoredAtom) -> StoredAtom:
        """See `RowKind`."""
        now = old.supports
        for each in new.supports:
            now = added(now, each)
        return stored(old.id, now)

    def without(self, item: StoredAtom, owner: str) -> StoredAtom | None:
        """See `RowKind`."""
        left = without(without(item.supports, run=owner), user=owner)
        return stored(item.id, left) if left else None

    def since(self, item: StoredAtom, before: float) -> StoredAtom | None:
        """See `RowKind`: older runs support it no longer."""
        left = tuple(each for each in item.supports if each.time >= before)
        return item if len(left) == len(item.supports) else stored(item.id, left) if left else None

    def tracked(self, item: StoredAtom, track: ItemStats, others: ItemStats) -> StoredAtom:
        """See `RowKind`."""
        if track == NO_TRACK:
            return item
        return replace(item, record=record_of(track))

    def retired(self, item: StoredAtom) -> bool:
        """See `RowKind`."""
        return item.record.misleads

    def worth(self, item: StoredAtom) -> tuple[bool, float, float]:
        """See `RowKind`."""
        said = 0.0 if item.atom is None else prior(item.atom, item.record)
        return item.atom is not None, round(said, 9), max(each.time for each in item.supports)


def record_of(track: ItemStats) -> AtomRecord:
    """The record of an atom's hints."""
    return AtomRecord(track.shown, track.followed, track.helped, track.hurt)


def text_of(atom: Atom) -> str:
    """Return what an embedder gets of an atom: its usual wordings, each goal with its state."""
    said = dict.fromkeys(query_text(each.state, each.goal) for each in wordings_of(atom)[:COMPARED])
    return "\n".join(said) or atom.tool


def query_text(state: str, goal: str) -> str:
    """Return what an embedder gets of a question."""
    return f"{goal}\n{state}".strip()


def put(rows: AtomRows, supports: Iterable[Support], user: User, *, missing: bool = False) -> int:
    """Keeps atoms, or adds to those that are there; how many were not there. If it fails, do it again.

    With `missing`, an atom gets nothing of a run that it has something of, and the atoms that got something are
    counted.
    """
    given: dict[str, list[Support]] = {}
    for each in supports:
        given.setdefault(each.part.id, []).append(each)
    known = {each.id: each.supports for each in rows.get(list(given), user)}
    if missing:
        for key, old in known.items():
            given[key] = [each for each in given[key] if not any(each.replaces(other) for other in old)]
    items: list[StoredAtom] = []
    for key, more in given.items():
        own: Supports = ()
        for each in more:
            own = added(own, each)
        if own:
            items.append(stored(key, own))
    rows.put(items, user)
    return len(items) if missing else len(given.keys() - known.keys())


def judge(rows: AtomRows, run: str, score: float, user: User) -> int:
    """A verdict on a run (its digest), of a user if one is named; how many atoms it is about."""

    def with_verdict(item: StoredAtom) -> StoredAtom:
        return stored(item.id, judged(item.supports, run, score, user.digest or ""))

    return len(rows.change([each.id for each in rows.of(run, user)], with_verdict, user))


def reword(rows: AtomRows, run: str, made: Mapping[str, Atom], user: User) -> int:
    """Other atoms in the place of those (by id) that a run (its digest) gave; how many of these there were."""
    moved = [
        replace(each, part=replace(made[stored.id], visits=each.part.visits, sources=each.part.sources))
        for stored in rows.get(list(made), user)
        for each in stored.supports
        if each.run == run
    ]
    if moved:
        put(rows, moved, user)
        kept = {atom.id for atom in made.values()}

        def without_run(item: StoredAtom) -> StoredAtom | None:
            left = without(item.supports, run=run)
            return stored(item.id, left) if left else None

        rows.change([key for key in made if key not in kept], without_run, user)
    return len(moved)
