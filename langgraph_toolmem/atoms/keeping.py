"""Keeping of atoms: as rows in Chroma, one per wording; their search; and the work in the background.

A row is compared by its sub-goal. An atom has *supports*, the runs that took the step, and is found while one of them
went well. A run put again has no effect; put with more steps or with feedback, it replaces its earlier contribution.
Forgetting a user or a run removes its supports, and the atom with the last one.

Similarity to a goal does not change within an episode, so it is kept; later turns compare only states.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias

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
from langgraph_toolmem.base.caches import put_latest
from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.base.text import dumps
from langgraph_toolmem.core.jobs import Job, NotYetError
from langgraph_toolmem.core.method import EndedRun
from langgraph_toolmem.core.rows import RowKind, Rows
from langgraph_toolmem.core.users import User, by_namespace
from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.events import GOOD
from langgraph_toolmem.graph.provenance import decode_value
from langgraph_toolmem.graph.state import slot_key
from langgraph_toolmem.runs.run import Run
from langgraph_toolmem.runs.values import ABSENT, canon
from langgraph_toolmem.stores.vectors import Hit, VectorItem

if TYPE_CHECKING:
    from langgraph_toolmem.core.core import Core

logger = logging.getLogger("langgraph_toolmem.atoms")

GOOD_PART, OTHER_PART = "good", "other"
"""Parts of the collection: atoms that a good run supports, and those that wait for one."""


class Support(NamedTuple):
    """One run's contribution to an atom.

    Attributes:
        run: digest of the run; "" for atoms that were passed to `Atoms.keep`, such as those of a search.
        user: digest of the user, or "".
        score: feedback on the run, or None; the value of a passed atom.
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
        return not self.run or (self.score is not None and self.score >= GOOD)


_SUPPORTS: Final = shapes.ListOf(
    shapes.RecordOf((shapes.TEXT, shapes.TEXT, shapes.OrNone(shapes.NUMBER), shapes.NUMBER, shapes.WHOLE), least=0)
)


class SupportedAtom(NamedTuple):
    """An atom with a run's contribution to it."""

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
        """The atom with the counts of its good supports; None without one."""
        visits, rewards = 0, 0.0
        for support in self.supports:
            if support.good:
                visits += support.visits
                rewards += (support.score or 0.0) * support.visits
        if not visits:
            return None
        return replace(self.part, value=min(1.0, rewards / visits), visits=visits)

    def with_supports(self, supports: Sequence[Support]) -> StoredAtom | None:
        """Return the atom with other supports; None without supports."""
        if not supports:
            return None
        return StoredAtom(self.part, tuple(supports))

    def without_owner(self, owner: str) -> StoredAtom | None:
        """Return the atom without the supports of a run or a user (digest); None without a remaining one."""
        return self.with_supports([support for support in self.supports if owner not in (support.run, support.user)])


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
        supports: list[list[Any]] = []
        collection_part = OTHER_PART
        for support in item.supports:
            owners |= {support.run, support.user}
            supports.append(list(support))
            if support.good:
                collection_part = GOOD_PART
        owners.discard("")
        # A request without words has no goal, and some embedders refuse an empty text.
        text = item.part.goal or item.part.tool
        plain = {"atom": to_plain(item.part), "supports": supports}
        return VectorItem(item.part.id, text, plain, collection_part, tuple(sorted(owners)))

    def item(self, row: Hit) -> StoredAtom:
        """See `RowKind`."""
        part = from_plain(row.metadata["atom"])
        if not _SUPPORTS.fit([row.metadata["supports"]]):
            raise InputError(f"The row {row.id} is damaged: a support of its atom has a cell of another type.")
        supports = tuple([Support(*fields) for fields in row.metadata["supports"]])
        # The id is a digest of the atom, so it also detects changed texts.
        if part.id != row.id or not supports:
            raise InputError(f"The row {row.id} is damaged: it holds the atom {part.id} on {len(supports)} supports.")
        return StoredAtom(part, supports)

    def joined(self, old: StoredAtom, new: StoredAtom) -> StoredAtom:
        """See `RowKind`. A run put again never has fewer steps, and a missing score does not remove one."""
        by_owner = {(support.run, support.user): support for support in old.supports}
        for support in new.supports:
            owner = (support.run, support.user)
            # Removed first: a support that is put again comes last, as the latest.
            before = by_owner.pop(owner, None)
            if before is not None and support.run:
                by_owner[owner] = _put_again(before, support)
            else:
                by_owner[owner] = support
        kept = list(by_owner.values())
        # Without a limit, the row of a usual step would grow with every run, and each run rewrites it.
        if len(kept) > self.max_supports:
            kept.remove(min(kept, key=_good_then_late))
        return StoredAtom(new.part, tuple(kept))

    def without(self, item: StoredAtom, owner: str) -> StoredAtom | None:
        """See `RowKind`."""
        return item.without_owner(owner)

    def since(self, item: StoredAtom, before: float) -> StoredAtom | None:
        """See `RowKind`: older runs no longer support it."""
        left = [support for support in item.supports if support.time >= before]
        # The same object means that nothing changed, so that the row is not written.
        if len(left) == len(item.supports):
            return item
        return item.with_supports(left)


def _good_then_late(support: Support) -> tuple[bool, float]:
    return support.good, support.time


def _put_again(before: Support, again: Support) -> Support:
    """Return the support of a run that is put again: with more steps, or with feedback."""
    score = again.score
    if score is None:
        score = before.score
    # A continued thread is put at each end of a run, and jobs are done again after a crash: each step counts once.
    if score == before.score and again.visits <= before.visits:
        return before
    return again._replace(score=score, visits=max(again.visits, before.visits))


def put(rows: AtomRows, atoms: Iterable[SupportedAtom], user: User) -> int:
    """Store atoms with their supports, or join them with existing ones; return the number of new ones.

    If it fails, call it again.
    """
    items: list[StoredAtom] = []
    new: set[str] = set()
    for supported in atoms:
        # Counts are those of the supports. In the atom they would be stored twice, and differ from run to run.
        without_counts = replace(supported.atom, visits=1, value=1.0)
        items.append(StoredAtom(without_counts, (supported.support,)))
        new.add(without_counts.id)
    for stored in rows.get(list(new), user):
        new.discard(stored.part.id)
    rows.put(items, user)
    return len(new)


def judge(rows: AtomRows, run: str, score: float, user: User) -> None:
    """Change the score of a run (its digest), of one user if `user` is named."""

    def with_score(item: StoredAtom) -> StoredAtom:
        supports = []
        for support in item.supports:
            # Two users may have threads of one name, and so runs of one digest: feedback is for the user's own run.
            if support.run == run and (not user.digest or support.user in ("", user.digest)):
                supports.append(support._replace(score=score))
            else:
                supports.append(support)
        return replace(item, supports=tuple(supports))

    rows.change([stored.part.id for stored in rows.of(run, user)], with_score, user)


def reword(rows: AtomRows, run: str, worded: Mapping[str, Atom], user: User) -> bool:
    """Replace the atoms (by id) of a run (its digest); return True if there were any."""
    moved = []
    for stored in rows.get(list(worded), user):
        for support in stored.supports:
            if support.run == run:
                moved.append(SupportedAtom(worded[stored.part.id], support))
    # The new atoms come first: if the process ends in between, the job finds the old ones again and continues.
    put(rows, moved, user)
    replaced = set(worded)
    for atom in worded.values():
        replaced.discard(atom.id)

    def without_run(item: StoredAtom) -> StoredAtom | None:
        return item.with_supports([support for support in item.supports if support.run != run])

    rows.change(replaced, without_run, user)
    return bool(moved)


class NearGoal(NamedTuple):
    """The atoms near to a goal, at a version of the rows."""

    version: int
    atoms: list[NearAtom]


class GoalKey(NamedTuple):
    """A goal that was looked up, in a namespace, among so many atoms."""

    namespace: tuple[str, ...]
    goal: str
    most: int


class AtomSearch:
    """Finds atoms of a memory, without calls that mislead. Safe to use from several threads.

    Attributes:
        longlist: atoms that are compared for each goal; four times as many if they are of too few tools.
        most_goals: latest goals whose atoms are kept in RAM.
    """

    longlist: ClassVar[int] = 64
    most_goals: ClassVar[int] = 512

    def __init__(self, rows: AtomRows, misleads: Callable[[User, str], bool]) -> None:
        self._rows, self._misleads = rows, misleads
        self._lock = threads.lock()
        self._kept: dict[GoalKey, NearGoal] = {}

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

        # Atoms of one usual tool may fill the first list, and hide those of the available tools. The second search is
        # bounded too: without tools that fit, each step would read all atoms.
        for most in (self.longlist, 4 * self.longlist):
            near = self._nearest(user, question, most)
            hits = ranked(near, question, k=k, beta=beta, resolve=allowed, plain=plain)
            enough = len(hits) >= k or most >= self._rows.size(user)
            # A step waits only briefly for a server, so it searches once.
            if enough or self._rows.waits_little:
                break
        return hits

    def _nearest(self, user: User, question: AtomQuestion, most: int) -> Iterable[NearAtom]:
        """Return the atoms near to any goal of a question, each with the goal that it is nearest to."""
        best: dict[str, NearAtom] = {}
        for goal in dict.fromkeys(question.goals):
            for near in self._near(user, goal, most):
                known = best.get(near.atom.id)
                if known is None or known.to_goal < near.to_goal:
                    best[near.atom.id] = near
        return best.values()

    def _near(self, user: User, goal: str, most: int) -> list[NearAtom]:
        """Return the atoms near to one goal, from RAM if no row changed since they were looked up."""
        # The version is read before the rows: rows that change meanwhile are read again at the next look-up.
        key, version = GoalKey(user.namespace, goal, most), self._rows.version(user)
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None and kept.version == version:
            return kept.atoms
        by_words = self._rows.embedder.builtin
        near = []
        for row in self._rows.near(goal, user, k=most, part=GOOD_PART):
            atom = row.item.atom
            # The index may lag behind feedback: the runs of this row may no longer be good.
            if atom is None:
                continue
            cosine = None
            # With the built-in embedder, `to_goal` compares the words without the generic types.
            if not by_words:
                cosine = row.similarity
            near.append(NearAtom(atom, to_goal(goal, atom, cosine)))
        with self._lock:
            put_latest(self._kept, key, NearGoal(version, near), self.most_goals)
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
    """The atoms of a memory, and the work of keeping them. Made at the first use of atoms."""

    def __init__(self, core: Core, writer: AtomWriter | None) -> None:
        self._core, self._writer = core, writer
        self.rows: AtomRows = core.rows(AtomKind())
        self.search = AtomSearch(self.rows, self._misleads)
        core.texts.register(self.search.forget)
        self._extractor: Extractor | None = None

    def records(self, user: User, calls: Sequence[str]) -> dict[str, AtomRecord]:
        """Return the records of calls (`Atom.call`) of a user."""
        # By call, not by atom: a call that misleads does so in any wording.
        keys = [self.rows.key(call, user) for call in calls]
        tracks = self._core.ledger.tracks(self.rows.kind.name, keys)
        records = {}
        for call, track in zip(calls, tracks, strict=True):
            records[call] = AtomRecord(track.shown, track.followed, track.helped, track.hurt)
        return records

    def _misleads(self, user: User, call: str) -> bool:
        # A search calls this for each hit. Before the first shown atom, the keys are not computed.
        if not self._core.ledger.tracked(self.rows.kind.name):
            return False
        return self.records(user, [call])[call].misleads

    # --- making them ---

    def extracted(self, run: Run) -> list[Extracted]:
        """Return the atoms of one run, not merged."""
        specs = self._core.catalogue.specs
        with self._core.lock:
            if self._extractor is None or self._extractor.specs != specs:
                self._extractor = Extractor(dict(specs), habits=self._habits)
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

        With more values than a choice may have, none is constant, so the others are not read.
        """
        graph, slot = self._core.graph, slot_key(tool, path)
        given: dict[str, GivenValue] = {}
        with self._core.lock:
            for text, counts in graph.values.row(slot).items():
                value = decode_value(text)
                # A parameter that a call left out has no value.
                if value is ABSENT:
                    continue
                runs = 0
                contributors = graph.value_contributors.of(slot, text)
                if contributors is not None:
                    runs = len(contributors.runs)
                given[canon(value)] = GivenValue(counts[0], runs)
                if len(given) > MOST_CHOICES:
                    break
        return given

    # --- keeping them ---

    def put_run(self, ended: EndedRun, user: str) -> bool:
        """Put the atoms of a run into the queue; return True if there are any."""
        run, steps = ended.run, self.extracted(ended.run)
        if not steps:
            return False
        namespace = ended.user.namespace
        merged = merge_all([step.atom for step in steps])
        payload = {"score": ended.score, "time": self._core.now(), "atoms": [to_plain(atom) for atom in merged]}
        self._core.jobs.put("atoms", payload, run=run.digest, user=user, namespace=namespace)
        if self._writer is not None:
            # A job of its own: without the model, the atoms exist in the words of the run.
            wording = {"steps": [_step_to_plain(step) for step in steps]}
            self._core.jobs.put("wording", wording, run=run.digest, user=user, namespace=namespace)
        return True

    def put_score(self, run: str, score: float, user: str, namespace: tuple[str, ...]) -> None:
        """Put feedback on a run with atoms into the queue."""
        self._core.jobs.put("atoms", {"score": score}, run=run, user=user, namespace=namespace)

    def store(self, user: User, atoms: Sequence[SupportedAtom]) -> None:
        """Store atoms now."""
        if not atoms:
            return
        new = put(self.rows, atoms, user)
        if new:
            self._core.count("atoms", new)

    def import_runs(self, runs: Sequence[EndedRun], user: User) -> ImportedAtoms:
        """Store the atoms of runs of one namespace, that of `user`."""
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
            self.store(user, atoms)
            # Later feedback names only a run: the queue knows the namespace of its atoms.
            self._core.jobs.queue.note_namespaces([(run, owner, user.namespace) for run, owner in owners.items()])
        return ImportedAtoms(list(owners), good_steps)

    # --- in the background ---

    def do(self, jobs: Sequence[Job]) -> None:
        """Store the atoms of runs, all of a namespace at once, and feedback on them."""
        for user, same_namespace in by_namespace(jobs, attrgetter("namespace")):
            atoms: list[SupportedAtom] = []
            for job in same_namespace:
                atoms += _atoms_of(job)
            self.store(user, atoms)
            # Feedback comes after the atoms of the same batch: it may be on one of their runs.
            for job in same_namespace:
                if "atoms" not in job.payload:
                    judge(self.rows, job.run, job.payload["score"], job.owner)

    def undo(self, job: Job) -> None:
        """Remove the atoms of a job whose user was forgotten meanwhile."""
        self.rows.forget_of(job.run, job.owner)

    def word(self, job: Job) -> str:
        """Return the model's words for the steps of a run, as JSON."""
        if self._writer is None:
            return dumps([])
        plain: list[dict[str, Any] | None] = []
        for step in _steps_of(job):
            atom = self._writer.words(step)
            # None keeps the place: `take_words` reads the answers in the order of the steps.
            if atom is None:
                plain.append(None)
            else:
                plain.append(to_plain(atom))
        return dumps(plain)

    def take_words(self, job: Job) -> None:
        """Replace the other atoms by the worded ones.

        Raises:
            NotYetError: the run has no atoms yet.
        """
        said = json.loads(job.answer or "[]")
        worded: dict[str, Atom] = {}
        for step, plain in zip(_steps_of(job), said, strict=False):
            if plain:
                worded[step.atom.id] = storable(from_plain(plain))
        if worded and not reword(self.rows, job.run, worded, job.owner):
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


def _step_to_plain(step: Extracted) -> dict[str, Any]:
    plain = step._asdict()
    plain["atom"] = to_plain(step.atom)
    return plain


def _steps_of(job: Job) -> list[Extracted]:
    steps = []
    for plain in job.payload["steps"]:
        fields = dict(plain)
        fields["atom"] = from_plain(plain["atom"])
        steps.append(Extracted(**fields))
    return steps
