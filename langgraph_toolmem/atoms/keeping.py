"""Keeping of atoms: as rows in Chroma, one per wording; their search; and the work in the background.

A row is compared by its sub-goal. An atom stands on its *supports*, the runs that took the step, and is found while one
of them went well. A run put again changes nothing; put with more steps or with feedback, it replaces what it gave
before. Forgetting a user or a run takes its supports, and the atom with the last one.

Likeness to a goal does not change within an episode, so it is kept; a later turn compares states only.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias

from langgraph_toolmem.atoms.atoms import Atom, AtomRecord, from_plain, merge_all, storable, to_plain
from langgraph_toolmem.atoms.extract import FEW, Extracted, Extractor
from langgraph_toolmem.atoms.models import AtomWriter
from langgraph_toolmem.atoms.retrieve import (
    BETA,
    AtomHit,
    AtomQuestion,
    K,
    Resolve,
    Resolved,
    by_name,
    ranked,
    to_goal,
)
from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.base.jsontext import dumps
from langgraph_toolmem.core.jobs import Job, NotYetError
from langgraph_toolmem.core.method import EndedRun
from langgraph_toolmem.core.rows import RowKind, Rows
from langgraph_toolmem.core.users import User, by_namespace
from langgraph_toolmem.graph.events import GOOD as GOOD_SCORE
from langgraph_toolmem.graph.provenance import decode_value
from langgraph_toolmem.graph.state import slot_key
from langgraph_toolmem.runs.run import Run
from langgraph_toolmem.runs.values import ABSENT, canon
from langgraph_toolmem.stores.vectors import Hit, VectorItem

if TYPE_CHECKING:
    from langgraph_toolmem.core.core import Core

logger = logging.getLogger("langgraph_toolmem.atoms")

ATOMS, WORDING = "atoms", "wording"
"""Kinds of jobs: atoms are stored or their score changes, and they are worded by a chat model."""
WAITS: Final = 3
"""Failures after which a wording no longer waits for its atoms, which were forgotten."""
LONGLIST: Final = 64
"""Atoms that are compared for each goal of a question; four times as many if they are of too few tools."""
MAX_GOALS: Final = 512
"""Goals whose atoms are kept, the latest."""
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
        return replace(self.part, value=min(1.0, value), visits=visits)


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
        return StoredAtom(new.part, tuple(kept))

    def without(self, item: StoredAtom, owner: str) -> StoredAtom | None:
        """See `RowKind`."""
        return _of(item, [each for each in item.supports if owner not in (each.run, each.user)])

    def since(self, item: StoredAtom, before: float) -> StoredAtom | None:
        """See `RowKind`: older runs support it no longer."""
        left = [each for each in item.supports if each.time >= before]
        return item if len(left) == len(item.supports) else _of(item, left)


def _of(item: StoredAtom, supports: list[Support]) -> StoredAtom | None:
    return StoredAtom(item.part, tuple(supports)) if supports else None


def put(rows: AtomRows, atoms: Iterable[tuple[Atom, Support]], user: User) -> int:
    """Store atoms with their supports, or join them with those that are there; return how many are new.

    If it fails, do it again.
    """
    items = [StoredAtom(replace(atom, visits=1, value=1.0), (each,)) for atom, each in atoms]
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


class AtomSearch:
    """Finds atoms of a memory, without calls that mislead. Safe to use from several threads."""

    def __init__(self, rows: AtomRows, misleads: Callable[[User, str], bool]) -> None:
        self._rows, self._misleads = rows, misleads
        self._lock = threads.lock()
        self._kept: dict[tuple[tuple[str, ...], str, int], tuple[int, list[tuple[Atom, float]]]] = {}

    def __call__(
        self,
        user: User,
        question: AtomQuestion,
        *,
        k: int = K,
        beta: float = BETA,
        resolve: Resolve = by_name,
        plain: bool = False,
    ) -> list[AtomHit]:
        """Return the atoms that fit best; arguments as for `ranked`. Raises StorageError if Chroma or embedder fail."""

        def allowed(atom: Atom) -> Resolved | None:
            return None if not plain and self._misleads(user, atom.call) else resolve(atom)

        for most in (LONGLIST, 4 * LONGLIST):
            found: dict[str, tuple[Atom, float]] = {}
            for goal in dict.fromkeys(question.goals):
                for atom, like in self._near(user, goal, most):
                    if atom.id not in found or found[atom.id][1] < like:
                        found[atom.id] = atom, like
            hits = ranked(found.values(), question, k=k, beta=beta, resolve=allowed, plain=plain)
            if len(hits) >= k or most >= self._rows.size(user) or self._rows.waits_little:
                break
        return hits

    def _near(self, user: User, goal: str, most: int) -> list[tuple[Atom, float]]:
        key, version = (user.namespace, goal, most), self._rows.version(user)
        with self._lock:
            kept, found = self._kept.get(key, (-1, []))
        if kept == version:
            return found
        by_words = self._rows.embedder.builtin
        near = self._rows.near(goal, user, k=most, part=GOOD)
        atoms = [(each.item.atom, None if by_words else each.similarity) for each in near]
        found = [(atom, to_goal(goal, atom, cosine)) for atom, cosine in atoms if atom is not None]
        with self._lock:
            self._kept.pop(key, None)
            self._kept[key] = version, found
            if len(self._kept) > MAX_GOALS:
                del self._kept[next(iter(self._kept))]
        return found

    def forget(self) -> None:
        """Drop the atoms near to goals."""
        with self._lock:
            self._kept.clear()


class AtomKeeping:
    """The atoms of a memory, and the work of keeping them. Made when atoms are first used."""

    def __init__(self, core: Core, writer: AtomWriter | None) -> None:
        self._core, self._writer = core, writer
        self.rows: AtomRows = core.rows(AtomKind())
        self.search = AtomSearch(self.rows, self._misleads)
        core.texts.register(self.search.forget)
        self._extractor: Extractor | None = None

    def records(self, user: User, calls: Sequence[str]) -> dict[str, AtomRecord]:
        """Return the records of calls (`Atom.call`) of a user."""
        tracks = self._core.ledger.tracks(self.rows.kind.name, [self.rows.key(call, user) for call in calls])
        found = (AtomRecord(track.shown, track.followed, track.helped, track.hurt) for track in tracks)
        return dict(zip(calls, found, strict=True))

    def _misleads(self, user: User, call: str) -> bool:
        return self._core.ledger.tracked(self.rows.kind.name) and self.records(user, [call])[call].misleads

    # --- making them ---

    def extracted(self, run: Run) -> list[Extracted]:
        """Return the atoms of one run, not merged."""
        with self._core.lock:
            if self._extractor is None or self._extractor.specs != self._core.catalogue.specs:
                self._extractor = Extractor(dict(self._core.catalogue.specs), habits=self._habits)
            extractor = self._extractor
        found: list[Extracted] = []
        for each in extractor.steps(run):
            try:
                found.append(each._replace(atom=storable(each.atom)))
            except InputError as error:  # one call that cannot be kept must not keep the others
                logger.debug("a step is not kept as an atom: %s", type(error).__name__)
        return found

    def _habits(self, tool: str, path: str) -> dict[str, tuple[float, int]]:
        """See `extract.Habits`: in all runs that the memory has seen; parts of nested arguments have none.

        Of more than `FEW` values none is constant, so the others are not read.
        """
        graph, slot = self._core.graph, slot_key(tool, path)
        found: dict[str, tuple[float, int]] = {}
        with self._core.lock:
            contributors = graph.value_contributors.rows.get(slot, {})
            for text, cell in graph.values.row(slot).items():
                if (known := decode_value(text)) is not ABSENT:
                    found[canon(known)] = cell[0], len(contributors[text][0]) if text in contributors else 0
                if len(found) > FEW:
                    break
        return found

    # --- keeping them ---

    def put_run(self, ended: EndedRun, user: str) -> bool:
        """Put the atoms of a run into the queue; return True if it has any."""
        run, read = ended.run, self.extracted(ended.run)
        where: dict[str, Any] = {"run": run.digest, "user": user, "namespace": ended.user.namespace}
        if read:
            atoms = [to_plain(each) for each in merge_all(each.atom for each in read)]
            payload = {"score": ended.score, "time": self._core.now(), "atoms": atoms}
            self._core.jobs.put(ATOMS, payload, **where)
        if read and self._writer is not None:
            steps = [{**each._asdict(), "atom": to_plain(each.atom)} for each in read]
            self._core.jobs.put(WORDING, {"steps": steps}, **where)
        return bool(read)

    def put_score(self, run: str, score: float, user: str, namespace: tuple[str, ...]) -> None:
        """Put feedback on a run that has its atoms into the queue."""
        self._core.jobs.put(ATOMS, {"score": score}, run=run, user=user, namespace=namespace)

    def store(self, user: User, atoms: Sequence[tuple[Atom, Support]]) -> None:
        """Store atoms now."""
        if atoms and (new := put(self.rows, atoms, user)):
            self._core.count("atoms", new)

    def import_runs(self, runs: Sequence[EndedRun]) -> tuple[list[str], int]:
        """Store the atoms of runs of one namespace; return the runs that have any, and the number of good steps."""
        now, steps = self._core.now(), 0
        atoms: list[tuple[Atom, Support]] = []
        owners: dict[str, str] = {}
        for each in runs:
            read, owner = merge_all(one.atom for one in self.extracted(each.run)), each.user.digest or ""
            if read:
                owners[each.run.digest] = owner
                steps += 0 if each.score is None else sum(atom.visits for atom in read)
            atoms += [(atom, Support(each.run.digest, owner, each.score, now, atom.visits)) for atom in read]
        if atoms:
            self.store(runs[0].user, atoms)
            self._core.jobs.queue.note_namespaces(
                [(run, owner, runs[0].user.namespace) for run, owner in owners.items()]
            )
        return list(owners), steps

    # --- in the background ---

    def do(self, jobs: Sequence[Job]) -> None:
        """Store the atoms of runs, all of a namespace at once, and feedback on them."""
        for user, some in by_namespace(jobs, lambda job: job.namespace):
            self.store(user, [each for job in some for each in _atoms_of(job)])
            for job in some:
                if "atoms" not in job.payload:
                    judge(self.rows, job.run, job.payload["score"], _user(job))

    def undo(self, job: Job) -> None:
        """Remove the atoms of a job whose user was forgotten meanwhile."""
        self.rows.forget_of(job.run, _user(job))

    def word(self, job: Job) -> str:
        """Return what the model says of the steps of a run, as JSON."""
        said = [self._writer.words(each) for each in _steps_of(job)] if self._writer is not None else []
        return dumps([None if each is None else to_plain(each) for each in said])

    def take_words(self, job: Job) -> None:
        """Put the worded atoms into the place of the others."""
        said = json.loads(job.answer or "[]")
        pairs = zip(_steps_of(job), said, strict=False)
        worded: Mapping[str, Atom] = {step.atom.id: storable(from_plain(plain)) for step, plain in pairs if plain}
        if worded and not reword(self.rows, job.run, worded, _user(job)):
            raise NotYetError("the atoms of that run are not stored yet", tries=WAITS + 1)


def _atoms_of(job: Job) -> list[tuple[Atom, Support]]:
    said = job.payload
    atoms = map(from_plain, said.get("atoms", ()))
    return [(atom, Support(job.run, job.user, said["score"], said["time"], atom.visits)) for atom in atoms]


def _steps_of(job: Job) -> list[Extracted]:
    return [Extracted(**{**plain, "atom": from_plain(plain["atom"])}) for plain in job.payload["steps"]]


def _user(job: Job) -> User:
    return User(None, job.user or None, job.namespace)
