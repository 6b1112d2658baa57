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
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from langgraph_toolmem.atoms.atoms import Atom, AtomRecord, from_plain, merge_all, storable, to_plain
from langgraph_toolmem.atoms.extract import MOST_CHOICES, Extracted, Extractor, GivenValue
from langgraph_toolmem.atoms.models import AtomWriter
from langgraph_toolmem.atoms.retrieve import (
    AtomHit,
    AtomQuestion,
    NearAtom,
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

GOOD, OTHER = "good", "other"
"""Parts of the collection: atoms that a good run supports, and those that wait for one."""


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


class SupportedAtom(NamedTuple):
    """An atom with what a run contributes to it."""

    atom: Atom
    support: Support


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
        good = [support for support in self.supports if support.good]
        if not good:
            return None
        visits = sum(support.visits for support in good)
        value = sum((support.score or 0.0) * support.visits for support in good) / visits
        return replace(self.part, value=min(1.0, value), visits=visits)

    def with_supports(self, supports: Sequence[Support]) -> StoredAtom | None:
        """Return the atom on other supports; None if they are none."""
        if not supports:
            return None
        return StoredAtom(self.part, tuple(supports))


AtomRows: TypeAlias = Rows[StoredAtom]


class AtomKind(RowKind[StoredAtom]):
    """See the module.

    Attributes:
        max_supports: runs kept per atom, the latest good ones before others.
    """

    name: ClassVar[str] = "atoms"
    max_supports: ClassVar[int] = 32

    def row(self, item: StoredAtom) -> VectorItem:
        """See `RowKind`."""
        owners: set[str] = set()
        for support in item.supports:
            owners |= {support.run, support.user}
        owners.discard("")
        is_good = any(support.good for support in item.supports)
        plain = {"atom": to_plain(item.part), "supports": [list(support) for support in item.supports]}
        text = item.part.goal or item.part.tool
        return VectorItem(item.part.id, text, plain, GOOD if is_good else OTHER, tuple(sorted(owners)))

    def item(self, row: Hit) -> StoredAtom:
        """See `RowKind`."""
        part = from_plain(row.metadata["atom"])
        supports = tuple([Support(*fields) for fields in row.metadata["supports"]])
        if part.id != row.id or not supports:
            raise InputError(f"The row {row.id} is damaged: it holds the atom {part.id} on {len(supports)} supports.")
        return StoredAtom(part, supports)

    def joined(self, old: StoredAtom, new: StoredAtom) -> StoredAtom:
        """See `RowKind`. A run put again never gives less, and a missing score takes none away."""
        by_owner = {(support.run, support.user): support for support in old.supports}
        for support in new.supports:
            owner = (support.run, support.user)
            before = by_owner.pop(owner, None)  # the latest stand last
            if before is not None and support.run:
                by_owner[owner] = _put_again(before, support)
            else:
                by_owner[owner] = support
        kept = list(by_owner.values())
        if len(kept) > self.max_supports:

            def least_worth(support: Support) -> tuple[bool, float]:
                return support.good, support.time

            kept.remove(min(kept, key=least_worth))
        return StoredAtom(new.part, tuple(kept))

    def without(self, item: StoredAtom, owner: str) -> StoredAtom | None:
        """See `RowKind`."""
        return item.with_supports([support for support in item.supports if owner not in (support.run, support.user)])

    def since(self, item: StoredAtom, before: float) -> StoredAtom | None:
        """See `RowKind`: older runs support it no longer."""
        left = [support for support in item.supports if support.time >= before]
        if len(left) == len(item.supports):
            return item
        return item.with_supports(left)


def _put_again(before: Support, again: Support) -> Support:
    """Return the support of a run that is put again: with more steps, or with feedback."""
    score = before.score if again.score is None else again.score
    if score == before.score and again.visits <= before.visits:
        return before
    return again._replace(score=score, visits=max(again.visits, before.visits))


def put(rows: AtomRows, atoms: Iterable[SupportedAtom], user: User) -> int:
    """Store atoms with their supports, or join them with those that are there; return how many are new.

    If it fails, do it again.
    """
    items = []
    for supported in atoms:
        without_counts = replace(supported.atom, visits=1, value=1.0)
        items.append(StoredAtom(without_counts, (supported.support,)))
    ids = [item.part.id for item in items]
    known = {stored.part.id for stored in rows.get(ids, user)}
    rows.put(items, user)
    return len(set(ids) - known)


def judge(rows: AtomRows, run: str, score: float, user: User) -> None:
    """Change the score of a run (its digest), of one user if `user` is named."""

    def with_score(item: StoredAtom) -> StoredAtom:
        supports = []
        for support in item.supports:
            if support.run == run and (not user.digest or support.user in ("", user.digest)):
                supports.append(support._replace(score=score))
            else:
                supports.append(support)
        return replace(item, supports=tuple(supports))

    rows.change([stored.part.id for stored in rows.of(run, user)], with_score, user)


def reword(rows: AtomRows, run: str, worded: Mapping[str, Atom], user: User) -> bool:
    """Put other atoms in the place of those (by id) that a run (its digest) gave; return True if there were any."""
    moved = []
    for stored in rows.get(list(worded), user):
        for support in stored.supports:
            if support.run == run:
                moved.append(SupportedAtom(worded[stored.part.id], support))
    put(rows, moved, user)
    kept = {atom.id for atom in worded.values()}

    def without_run(item: StoredAtom) -> StoredAtom | None:
        return item.with_supports([support for support in item.supports if support.run != run])

    rows.change([key for key in worded if key not in kept], without_run, user)
    return bool(moved)


class NearGoal(NamedTuple):
    """The atoms near to a goal, at a version of the rows."""

    version: int
    atoms: list[NearAtom]


class AtomSearch:
    """Finds atoms of a memory, without calls that mislead. Safe to use from several threads.

    Attributes:
        longlist: atoms that are compared for each goal; four times as many if they are of too few tools.
    """

    longlist: ClassVar[int] = 64

    def __init__(self, rows: AtomRows, misleads: Callable[[User, str], bool]) -> None:
        self._rows, self._misleads = rows, misleads
        self._lock = threads.lock()
        self._kept: dict[tuple[tuple[str, ...], str, int], NearGoal] = {}

    def __call__(
        self,
        user: User,
        question: AtomQuestion,
        *,
        k: int = 3,
        beta: float = 0.3,
        resolve: Resolve = by_name,
        plain: bool = False,
    ) -> list[AtomHit]:
        """Return the atoms that fit best; arguments as for `ranked`. Raises StorageError if Chroma or embedder fail."""

        def allowed(atom: Atom) -> Resolved | None:
            if not plain and self._misleads(user, atom.call):
                return None
            return resolve(atom)

        for most in (self.longlist, 4 * self.longlist):
            best: dict[str, NearAtom] = {}
            for goal in dict.fromkeys(question.goals):
                for near in self._near(user, goal, most):
                    known = best.get(near.atom.id)
                    if known is None or known.to_goal < near.to_goal:
                        best[near.atom.id] = near
            hits = ranked(best.values(), question, k=k, beta=beta, resolve=allowed, plain=plain)
            if len(hits) >= k or most >= self._rows.size(user) or self._rows.waits_little:
                break
        return hits

    def _near(self, user: User, goal: str, most: int) -> list[NearAtom]:
        key, version = (user.namespace, goal, most), self._rows.version(user)
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None and kept.version == version:
            return kept.atoms
        by_words = self._rows.embedder.builtin
        near = []
        for row in self._rows.near(goal, user, k=most, part=GOOD):
            atom = row.item.atom
            if atom is not None:
                cosine = None if by_words else row.similarity
                near.append(NearAtom(atom, to_goal(goal, atom, cosine)))
        most_goals = 512
        with self._lock:
            self._kept.pop(key, None)
            self._kept[key] = NearGoal(version, near)
            if len(self._kept) > most_goals:
                del self._kept[next(iter(self._kept))]
        return near

    def forget(self) -> None:
        """Drop the atoms near to goals."""
        with self._lock:
            self._kept.clear()


class ImportedAtoms(NamedTuple):
    """The runs (digests) that have atoms, and the number of steps of good ones."""

    runs: list[str]
    good_steps: int


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
        records = {}
        for call, track in zip(calls, tracks, strict=True):
            records[call] = AtomRecord(track.shown, track.followed, track.helped, track.hurt)
        return records

    def _misleads(self, user: User, call: str) -> bool:
        return self._core.ledger.tracked(self.rows.kind.name) and self.records(user, [call])[call].misleads

    # --- making them ---

    def extracted(self, run: Run) -> list[Extracted]:
        """Return the atoms of one run, not merged."""
        with self._core.lock:
            if self._extractor is None or self._extractor.specs != self._core.catalogue.specs:
                self._extractor = Extractor(dict(self._core.catalogue.specs), habits=self._habits)
            extractor = self._extractor
        storable_steps: list[Extracted] = []
        for step in extractor.steps(run):
            try:
                storable_steps.append(step._replace(atom=storable(step.atom)))
            except InputError as error:  # one call that cannot be kept must not keep the others
                logger.debug("a step is not kept as an atom: %s", type(error).__name__)
        return storable_steps

    def _habits(self, tool: str, path: str) -> dict[str, GivenValue]:
        """See `extract.Habits`: in all runs that the memory has seen; parts of nested arguments have none.

        Of more values than a choice has none is constant, so the others are not read.
        """
        graph, slot = self._core.graph, slot_key(tool, path)
        given: dict[str, GivenValue] = {}
        with self._core.lock:
            for text, counts in graph.values.row(slot).items():
                value = decode_value(text)
                if value is not ABSENT:
                    contributors = graph.value_contributors.of(slot, text)
                    runs = 0 if contributors is None else len(contributors.runs)
                    given[canon(value)] = GivenValue(counts[0], runs)
                if len(given) > MOST_CHOICES:
                    break
        return given

    # --- keeping them ---

    def put_run(self, ended: EndedRun, user: str) -> bool:
        """Put the atoms of a run into the queue; return True if it has any."""
        run, steps = ended.run, self.extracted(ended.run)
        if not steps:
            return False
        namespace = ended.user.namespace
        merged = merge_all([step.atom for step in steps])
        payload = {"score": ended.score, "time": self._core.now(), "atoms": [to_plain(atom) for atom in merged]}
        self._core.jobs.put("atoms", payload, run=run.digest, user=user, namespace=namespace)
        if self._writer is not None:
            plain_steps = [{**step._asdict(), "atom": to_plain(step.atom)} for step in steps]
            self._core.jobs.put("wording", {"steps": plain_steps}, run=run.digest, user=user, namespace=namespace)
        return True

    def put_score(self, run: str, score: float, user: str, namespace: tuple[str, ...]) -> None:
        """Put feedback on a run that has its atoms into the queue."""
        self._core.jobs.put("atoms", {"score": score}, run=run, user=user, namespace=namespace)

    def store(self, user: User, atoms: Sequence[SupportedAtom]) -> None:
        """Store atoms now."""
        if not atoms:
            return
        new = put(self.rows, atoms, user)
        if new:
            self._core.count("atoms", new)

    def import_runs(self, runs: Sequence[EndedRun]) -> ImportedAtoms:
        """Store the atoms of runs of one namespace."""
        now, good_steps = self._core.now(), 0
        atoms: list[SupportedAtom] = []
        owners: dict[str, str] = {}
        for ended in runs:
            run, owner = ended.run.digest, ended.user.digest or ""
            for atom in merge_all([step.atom for step in self.extracted(ended.run)]):
                owners[run] = owner
                atoms.append(SupportedAtom(atom, Support(run, owner, ended.score, now, atom.visits)))
                if ended.score is not None:
                    good_steps += atom.visits
        if atoms:
            user = runs[0].user
            self.store(user, atoms)
            self._core.jobs.queue.note_namespaces([(run, owner, user.namespace) for run, owner in owners.items()])
        return ImportedAtoms(list(owners), good_steps)

    # --- in the background ---

    def do(self, jobs: Sequence[Job]) -> None:
        """Store the atoms of runs, all of a namespace at once, and feedback on them."""
        for user, same_namespace in by_namespace(jobs, _namespace_of):
            atoms: list[SupportedAtom] = []
            for job in same_namespace:
                atoms += _atoms_of(job)
            self.store(user, atoms)
            for job in same_namespace:
                if "atoms" not in job.payload:
                    judge(self.rows, job.run, job.payload["score"], _user(job))

    def undo(self, job: Job) -> None:
        """Remove the atoms of a job whose user was forgotten meanwhile."""
        self.rows.forget_of(job.run, _user(job))

    def word(self, job: Job) -> str:
        """Return what the model says of the steps of a run, as JSON."""
        if self._writer is None:
            return dumps([])
        plain: list[dict[str, Any] | None] = []
        for step in _steps_of(job):
            atom = self._writer.words(step)
            plain.append(None if atom is None else to_plain(atom))
        return dumps(plain)

    def take_words(self, job: Job) -> None:
        """Put the worded atoms into the place of the others."""
        said = json.loads(job.answer or "[]")
        worded: dict[str, Atom] = {}
        for step, plain in zip(_steps_of(job), said, strict=False):
            if plain:
                worded[step.atom.id] = storable(from_plain(plain))
        if worded and not reword(self.rows, job.run, worded, _user(job)):
            # After three failures they were forgotten meanwhile.
            raise NotYetError("the atoms of that run are not stored yet", tries=4)


def _atoms_of(job: Job) -> list[SupportedAtom]:
    payload = job.payload
    atoms = []
    for plain in payload.get("atoms", ()):
        atom = from_plain(plain)
        support = Support(job.run, job.user, payload["score"], payload["time"], atom.visits)
        atoms.append(SupportedAtom(atom, support))
    return atoms


def _steps_of(job: Job) -> list[Extracted]:
    return [Extracted(**{**plain, "atom": from_plain(plain["atom"])}) for plain in job.payload["steps"]]


def _namespace_of(job: Job) -> tuple[str, ...]:
    return job.namespace


def _user(job: Job) -> User:
    return User(None, job.user or None, job.namespace)
