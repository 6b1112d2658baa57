"""Atoms as rows in Chroma: one row per wording, which is compared by its sub-goal.

An atom stands on its *supports*, the runs that took the step, and is found while one of them went well. A run put again
changes nothing; put with more steps or with feedback, it replaces what it gave before. Forgetting a user or a run takes
its supports, and the atom with the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Final, NamedTuple, TypeAlias

from langgraph_toolmem.atoms.atoms import MAX_SOURCES, Atom, from_plain, to_plain
from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.core.rows import RowKind, Rows
from langgraph_toolmem.core.users import User
from langgraph_toolmem.graph.events import GOOD as GOOD_SCORE
from langgraph_toolmem.stores.vectors import Hit, VectorItem

GOOD, OTHER = "good", "other"
"""Parts of the collection: atoms that a good run supports, and those that wait for one."""
MAX_SUPPORTS: Final = 32
"""Runs kept per atom, the latest good ones before others."""


class Support(NamedTuple):
    """One run's contribution to an atom.

    Attributes:
        run: digest of the run; "" for atoms that were handed over, such as those of a search.
        user: digest of the user, or "".
        score: feedback on the run, None if there is none; the value of what was handed over.
        time: when it was stored, in seconds since 1970.
        visits: steps of the run.
    """

    run: str = ""
    user: str = ""
    score: float | None = None
    time: float = 0.0
    visits: int = 1

    @property
    def good(self) -> bool:
        """Return True if it counts."""
        return not self.run or (self.score is not None and self.score >= GOOD_SCORE)


@dataclass(frozen=True)
class StoredAtom:
    """An atom as it is kept.

    Attributes:
        part: the atom without counts.
        supports: at least one, by run and user.
    """

    part: Atom
    supports: tuple[Support, ...]

    @cached_property
    def atom(self) -> Atom | None:
        """The atom as its good supports make it; None if there is none."""
        good = [each for each in self.supports if each.good]
        if not good:
            return None
        visits = sum(each.visits for each in good)
        value = sum((each.score or 0.0) * each.visits for each in good) / visits
        runs = {each.run for each in good if each.run}
        sources = tuple(sorted(runs | set(self.part.sources))[:MAX_SOURCES])
        return replace(self.part, value=min(1.0, value), visits=visits, sources=sources)


AtomRows: TypeAlias = Rows[StoredAtom]


class AtomKind(RowKind[StoredAtom]):
    """See the module."""

    name: ClassVar[str] = "atoms"

    def row(self, item: StoredAtom) -> VectorItem:
        """See `RowKind`."""
        owners = {owner for each in item.supports for owner in (each.run, each.user) if owner}
        part = GOOD if any(each.good for each in item.supports) else OTHER
        plain = {"atom": to_plain(item.part), "supports": [list(each) for each in item.supports]}
        return VectorItem(item.part.id, item.part.goal or item.part.tool, plain, part, tuple(sorted(owners)))

    def item(self, row: Hit) -> StoredAtom:
        """See `RowKind`."""
        part = from_plain(row.metadata["atom"])
        supports = tuple(Support(*each) for each in row.metadata["supports"])
        if part.id != row.id or not supports:
            raise InputError(f"The row {row.id} is damaged: it holds the atom {part.id} on {len(supports)} supports.")
        return StoredAtom(part, supports)

    def joined(self, old: StoredAtom, new: StoredAtom) -> StoredAtom:
        """See `RowKind`. A run put again never gives less, and a missing score takes none away."""
        now = {(each.run, each.user): each for each in old.supports}
        for each in new.supports:
            before = now.pop((each.run, each.user), None)
            if before is not None and each.run:
                score = before.score if each.score is None else each.score
                same = score == before.score and each.visits <= before.visits
                each = before if same else each._replace(score=score, visits=max(each.visits, before.visits))
            now[each.run, each.user] = each
        kept = list(now.values())
        if len(kept) > MAX_SUPPORTS:
            kept.remove(min(kept, key=lambda each: (each.good, each.time)))
        return StoredAtom(replace(new.part, sources=new.part.sources or old.part.sources), tuple(kept))

    def without(self, item: StoredAtom, owner: str) -> StoredAtom | None:
        """See `RowKind`."""
        return _of(item, [each for each in item.supports if owner not in (each.run, each.user)])

    def since(self, item: StoredAtom, before: float) -> StoredAtom | None:
        """See `RowKind`: older runs support it no longer."""
        left = [each for each in item.supports if each.time >= before]
        return item if len(left) == len(item.supports) else _of(item, left)

    def worth(self, item: StoredAtom) -> tuple[bool, float]:
        """See `RowKind`: atoms without a good run go first, then the oldest."""
        return any(each.good for each in item.supports), max(each.time for each in item.supports)


def _of(item: StoredAtom, supports: list[Support]) -> StoredAtom | None:
    if not supports:
        return None
    named = item.part.sources if any(not each.run for each in supports) else ()  # of what was handed over
    return StoredAtom(replace(item.part, sources=named), tuple(supports))


def put(rows: AtomRows, atoms: Iterable[tuple[Atom, Support]], user: User) -> int:
    """Store atoms with their supports, or join them with those that are there; return how many are new.

    If it fails, do it again.
    """
    items = [
        StoredAtom(replace(atom, visits=1, value=1.0, sources=() if each.run else atom.sources), (each,))
        for atom, each in atoms
    ]
    known = {each.part.id for each in rows.get([item.part.id for item in items], user)}
    rows.put(items, user)
    return len({item.part.id for item in items} - known)


def judge(rows: AtomRows, run: str, score: float, user: User) -> None:
    """Change the score of a run (its digest), of one user if `user` is named."""

    def with_score(item: StoredAtom) -> StoredAtom:
        mine = (each.run == run and (not user.digest or each.user in ("", user.digest)) for each in item.supports)
        supports = [each._replace(score=score) if own else each for each, own in zip(item.supports, mine, strict=True)]
        return replace(item, supports=tuple(supports))

    rows.change([each.part.id for each in rows.of(run, user)], with_score, user)


def reword(rows: AtomRows, run: str, worded: Mapping[str, Atom], user: User) -> bool:
    """Put other atoms in the place of those (by id) that a run (its digest) gave; return True if there were any."""
    moved = [
        (worded[stored.part.id], each)
        for stored in rows.get(list(worded), user)
        for each in stored.supports
        if each.run == run
    ]
    put(rows, moved, user)
    kept = {atom.id for atom in worded.values()}

    def without_run(item: StoredAtom) -> StoredAtom | None:
        return _of(item, [each for each in item.supports if each.run != run])

    rows.change([key for key in worded if key not in kept], without_run, user)
    return bool(moved)
