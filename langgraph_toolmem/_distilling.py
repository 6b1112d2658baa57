"""The part of `ToolMemory` that makes atoms of runs: they are extracted as a run ends, and stored in the background."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from langgraph_toolmem._reflecting import Reflecting
from langgraph_toolmem._summaries import REFRESH_SECONDS
from langgraph_toolmem.atoms.atoms import Atom, from_plain, merge_all, to_plain
from langgraph_toolmem.base.errors import InputError, StorageError
from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.base.namespaces import has_user, resolve, user_digest
from langgraph_toolmem.graph.evidence import AUTHOR, SCORE
from langgraph_toolmem.graph.operations import GOOD, Count
from langgraph_toolmem.runs.trajectory import Run

if TYPE_CHECKING:
    from langgraph_toolmem.atoms.extract import Extracted
    from langgraph_toolmem.atoms.library import AtomLibrary
    from langgraph_toolmem.atoms.mask import Habits
    from langgraph_toolmem.atoms.support import Support
    from langgraph_toolmem.atoms.writer import AtomWriter
    from langgraph_toolmem.core.jobs import OtherWork, SlowWork
    from langgraph_toolmem.stores.job_queue import Job

logger = logging.getLogger("langgraph_toolmem.atoms")

ATOMS, WORDING = "atoms", "wording"
"""The kinds of background work: atoms are stored, and worded by a chat model."""
WAITS: Final = 3
"""Failures after which a wording no longer waits for its atoms, which were forgotten or judged away."""
CHECK_SECONDS: Final = 2.0
"""Where several processes write to one Chroma, what was written is looked for again so long after."""


class Distilling(Reflecting):
    """Keeps the steps of runs that went well as atoms. Chroma or the queue failing stops nobody."""

    def learn_atoms(
        self,
        runs: Iterable[tuple[Run, float | None]],
        *,
        user_id: str | None = None,
        habits: Habits | None = None,
        writer: AtomWriter | None = None,
    ) -> int:
        """Atoms of runs that were read already, here and now; doing it again changes nothing. For imports.

        Args:
            runs: each with the score of its verdict, if there is one; those without one wait for it.
            user_id: whose runs they are.
            habits: what never varies; what the memory has seen if None.
            writer: words them with a chat model, here and now; the memory's own (`atom_model`) if None.

        Returns:
            How many steps of good runs they stand for.

        Raises:
            NamespaceError: the namespace needs a user id.
            StorageError: they could not be stored, or the memory is read-only.
        """
        from langgraph_toolmem.atoms.support import Support

        self._check_user(user_id)
        namespace, user = resolve(self.namespace, user_id), user_digest(user_id) or ""
        if self._store.read_only:
            raise StorageError("A memory opened with read_only=True keeps nothing: do this where it is written.")
        now, writer = self._now(), writer or self._atom_writer
        supports: list[Support] = []
        names: list[str] = []
        steps = 0
        for run, score in runs:
            name = run.digest
            if score is not None and score < GOOD:
                continue
            read = self._extracted(run, name, habits)
            made = merge_all(each.atom if writer is None else writer.write(each) for each in read)
            if not made:
                continue
            names.append(name)
            steps += 0 if score is None else sum(each.visits for each in made)
            supports += [Support(each, name, user, score, now) for each in made]
        if supports:
            self._put_in(namespace, supports)
            self._queue.note_places([(name, user) for name in names], namespace)
            with self._lock:
                for name in names:
                    self._apply(atoms_key(name), [Count("atoms_runs")])
        return steps

    @property
    def _atoms(self) -> AtomLibrary:
        with self._lock:
            if self._made_atoms is None:
                self._refuse_if_closed()
                from langgraph_toolmem.atoms.library import AtomLibrary  # numpy: only when atoms are used

                refresh = REFRESH_SECONDS if self._shared or self._store.read_only else None
                how: dict[str, Any] = {"refresh": refresh, "read_only": self._store.read_only}
                self._made_atoms = AtomLibrary(self._vectors, now=self._now, **how)
            return self._made_atoms

    def _learn_atoms_from_now_on(self) -> None:
        if self._keeps_atoms is None:
            self._keeps_atoms = True

    def _extracted(self, run: Run, name: str, habits: Habits | None = None) -> list[Extracted]:
        """The atoms of one run, not merged; sources are named by digests, as thread ids may name a person."""
        from langgraph_toolmem.atoms.extract import Extractor
        from langgraph_toolmem.atoms.seen import SeenHabits
        from langgraph_toolmem.atoms.support import storable

        with self._lock:
            specs, made = self._engine.specs, self._extractor
            if made is None or made[0] != specs or made[1] is not habits:
                extractor = Extractor(specs, habits=habits or SeenHabits(self._values_seen))
                self._extractor = made = dict(specs), habits, extractor
        extractor = made[2]
        found: list[Extracted] = []
        for each in extractor.steps(run, source=name):
            try:
                found.append(each._replace(atom=storable(each.atom)))
            except InputError as error:  # one call that cannot be kept must not keep the others
                logger.debug("a step is not kept as an atom: %s", type(error).__name__)
        return found

    def _values_seen(self, slot: str) -> dict[str, tuple[float, int]]:
        """What a parameter was given: how often, and in how many runs."""
        with self._lock:
            witnesses = self._graph.value_witnesses.rows.get(slot, {})
            return {
                value: (cell[0], len(witnesses[value][0]) if value in witnesses else 0)
                for value, cell in self._graph.values.row(slot).items()
            }

    def _put_in(self, namespace: tuple[str, ...], supports: Sequence[Support]) -> None:
        new = self._atoms.store(namespace).put(supports)
        if new:
            with self._lock:
                self._apply(None, [Count("atoms", new)])

    def _keep_entry(self, run: Run, user_id: str | None) -> None:
        """A run is over: its atoms are put into the queue too."""
        super()._keep_entry(run, user_id)
        if not self._store.read_only:
            self._quietly("atoms could not be kept", partial(self._put_atoms, run, user_id))

    def _put_atoms(self, run: Run, user_id: str | None) -> None:
        name = run.digest
        with self._lock:
            verdict = self._graph.runs.get(name)
            there = self._graph.has_seen(atoms_key(name))
        if not (there or self._keeps_atoms):
            return
        author = None if verdict is None else verdict[AUTHOR]
        user = user_digest(user_id) or self._graph.owner(name) or author or ""
        score = None if verdict is None or author not in (None, user) else verdict[SCORE]
        namespace = resolve(self.namespace, user_id)
        if score is not None and score < GOOD:
            if there:
                self._judge_atoms_later(name, score, user, namespace)
            return
        if not self._keeps_atoms:  # what it has is judged, nothing is added
            if score is not None:
                self._judge_atoms_later(name, score, user, namespace)
            return
        read = self._extracted(run, name)
        if not read:
            return
        _ = self._atoms  # made now: the job may be done while the memory is being closed
        atoms = [to_plain(each) for each in merge_all(each.atom for each in read)]
        payload = {"score": score, "time": self._now(), "atoms": atoms, "worded": self._atom_writer is not None}
        self._worker.put(ATOMS, payload, run=name, user=user, namespace=namespace, placed=True)
        if self._atom_writer is not None:
            from langgraph_toolmem.atoms.writer import to_job

            steps = {each.atom.id: to_job(each) for each in reversed(read)}
            self._worker.put(WORDING, {"steps": list(steps.values())}, run=name, user=user, namespace=namespace)
        with self._lock:
            self._apply(atoms_key(name), [Count("atoms_runs")])

    def _judge_entry(self, run: str, score: float, comment: str | None, user_id: str | None) -> None:
        """A verdict that comes when the run may have its atoms already."""
        super()._judge_entry(run, score, comment, user_id)
        with self._lock:
            there = self._graph.has_seen(atoms_key(run))
        if there and not self._store.read_only:
            self._quietly("a verdict could not be added to atoms", partial(self._put_judgement, run, score, user_id))

    def _put_judgement(self, run: str, score: float, user_id: str | None) -> None:
        namespace = self._namespace_of(run, user_id)
        if namespace is not None:
            self._judge_atoms_later(run, score, self._whose(run, user_id), namespace)

    def _judge_atoms_later(self, run: str, score: float, user: str, namespace: tuple[str, ...]) -> None:
        _ = self._atoms
        self._worker.put(ATOMS, {"score": score}, run=run, user=user, namespace=namespace)

    def _other_work(self) -> dict[str, OtherWork]:
        return {**super()._other_work(), ATOMS: self._do_atoms}

    def _do_atoms(self, job: Job) -> Callable[[], object]:
        """Stores the atoms of a run, or a verdict on them; returns what undoes it."""
        from langgraph_toolmem.atoms.support import Support

        payload = job.payload
        run, score, store = payload["run"], payload["score"], self._atoms.store(tuple(payload["namespace"]))
        if "atoms" in payload:
            made = (from_plain(plain) for plain in payload["atoms"])
            given = [Support(atom, run, job.user, score, payload["time"]) for atom in made]
            if payload.get("again"):
                look_again = store.put(given, missing=True) > 0
            else:
                self._put_in(tuple(payload["namespace"]), given)
                # Others may write to it. What is worded anew is looked for in vain.
                look_again = self._vectors._connection.given is not None and not payload.get("worded")
            if look_again:
                key = digest("again", job.id)
                after = CHECK_SECONDS * (1 + int(key[:2], 16) / 255)  # not when all others look too
                self._queue.put(key, {**payload, "again": True}, kind=ATOMS, user=job.user, after=after)
        else:
            store.judge(run, score, user=job.user)
        return partial(store.forget_run, run)

    def _slow_work(self) -> dict[str, SlowWork]:
        own: dict[str, SlowWork] = {} if self._atom_writer is None else {WORDING: (self._word, self._take_words)}
        return {**super()._slow_work(), **own}

    def _word(self, job: Job) -> str:
        """What the model says of the steps of a run, as JSON."""
        from langgraph_toolmem.atoms.writer import from_job

        if self._atom_writer is None:
            return "[]"
        said = [self._atom_writer.pattern(from_job(plain)) for plain in job.payload["steps"]]
        return json.dumps([None if each is None else each.model_dump() for each in said])

    def _take_words(self, job: Job, answer: str) -> None:
        from langgraph_toolmem.atoms.abstract import Pattern
        from langgraph_toolmem.atoms.support import storable
        from langgraph_toolmem.atoms.writer import from_job, worded

        made: dict[str, Atom] = {}
        for plain, said in zip(job.payload["steps"], json.loads(answer), strict=True):
            if said is not None:
                each = from_job(plain)
                made[each.atom.id] = storable(worded(each, Pattern.model_validate(said)))
        store = self._atoms.store(tuple(job.payload["namespace"]))
        if made and not store.reword(job.payload["run"], made) and job.attempts < WAITS:
            raise StorageError("The atoms of that run are not stored yet.")

    # --- forgetting and closing ---

    def _forget_atoms(self, user_id: str) -> int:
        """Raises StorageError if something is still there."""
        if self._vectors.empty:
            return 0
        namespace = resolve(self.namespace, user_id)
        store = self._atoms.store(namespace)
        removed = store.drop() if has_user(self.namespace) else store.forget_user(str(user_digest(user_id)))
        store.scrub()
        self._atoms.leave(namespace)
        return removed

    def _close_reflection(self) -> None:
        super()._close_reflection()
        if self._made_atoms is not None:
            self._quietly("the record of atoms could not be written", self._made_atoms.close)


def atoms_key(run: str) -> str:
    """The key that says that a run has its atoms."""
    return digest(ATOMS, run)
