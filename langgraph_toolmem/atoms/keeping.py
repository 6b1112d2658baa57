"""Keeping of atoms: they are extracted as a run ends, stored and worded in the background."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from langgraph_toolmem.atoms.atoms import Atom, from_plain, merge_all, to_plain
from langgraph_toolmem.atoms.extract import Extracted, Extractor
from langgraph_toolmem.atoms.mask import Habits
from langgraph_toolmem.atoms.retrieve import AtomSearch
from langgraph_toolmem.atoms.rows import AtomKind, AtomRows, judge, put, reword
from langgraph_toolmem.atoms.seen import SeenHabits
from langgraph_toolmem.atoms.support import Support, storable
from langgraph_toolmem.atoms.writer import AtomWriter, from_job, to_job, worded
from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.core.jobs import Job, NotYetError, by_namespace
from langgraph_toolmem.core.method import EndedRun
from langgraph_toolmem.core.users import User
from langgraph_toolmem.runs.run import Run

if TYPE_CHECKING:
    from langgraph_toolmem.core.core import Core

logger = logging.getLogger("langgraph_toolmem.atoms")

ATOMS, WORDING = "atoms", "wording"
"""Kinds of jobs: atoms are stored or judged, and worded by a chat model."""
WAITS: Final = 3
"""Failures after which a wording no longer waits for its atoms, which were forgotten or judged away."""
CHECK_SECONDS: Final = 2.0
"""Where several processes write to one Chroma, what was written is looked for again so long after."""

Namespace = tuple[str, ...]


class AtomKeeping:
    """The atoms of a memory, and the work of keeping them. Made when atoms are first used.

    Args:
        core: of the memory.
        writer: words atoms with a chat model; None: they are read off runs and schemas.
    """

    def __init__(self, core: Core, writer: AtomWriter | None) -> None:
        self._core, self.writer = core, writer
        self.rows: AtomRows = core.rows(AtomKind())
        self.search = AtomSearch(self.rows, dense=not core.vectors.embedder.builtin)
        self._extractor: tuple[Any, Habits | None, Extractor] | None = None

    # --- making them ---

    def extracted(self, run: Run, habits: Habits | None = None) -> list[Extracted]:
        """The atoms of one run, not merged; sources are named by digests, as thread ids may name a person.

        Args:
            run: as read.
            habits: what never varies; what the memory has seen if None.
        """
        with self._core.lock:
            specs, made = self._core.catalogue.specs, self._extractor
            if made is None or made[0] != specs or made[1] is not habits:
                extractor = Extractor(specs, habits=habits or SeenHabits(self._values_seen))
                self._extractor = made = dict(specs), habits, extractor
        found: list[Extracted] = []
        for each in made[2].steps(run, source=run.digest):
            try:
                found.append(each._replace(atom=storable(each.atom)))
            except InputError as error:  # one call that cannot be kept must not keep the others
                logger.debug("a step is not kept as an atom: %s", type(error).__name__)
        return found

    def _values_seen(self, slot: str) -> dict[str, tuple[float, int]]:
        """Return what a parameter was given: how often, and in how many runs."""
        graph = self._core.graph
        with self._core.lock:
            witnesses = graph.value_contributors.rows.get(slot, {})
            return {
                value: (cell[0], len(witnesses[value][0]) if value in witnesses else 0)
                for value, cell in graph.values.row(slot).items()
            }

    # --- keeping them ---

    def put_run(self, ended: EndedRun, user: str) -> bool:
        """Puts the atoms of a run into the queue; whether it has any."""
        run, namespace = ended.run, ended.user.namespace
        read = self.extracted(run)
        if not read:
            return False
        core = self._core
        atoms = [to_plain(each) for each in merge_all(each.atom for each in read)]
        payload = {"score": ended.score, "time": core.now(), "atoms": atoms, "worded": self.writer is not None}
        where: dict[str, Any] = {"run": run.digest, "user": user, "namespace": namespace}
        core.jobs.put(ATOMS, payload, **where)
        if self.writer is not None:
            steps = {each.atom.id: to_job(each) for each in reversed(read)}
            core.jobs.put(WORDING, {"steps": list(steps.values())}, **where)
        return True

    def put_verdict(self, run: str, score: float, user: str, namespace: Namespace) -> None:
        """Puts a verdict on a run into the queue that has its atoms."""
        self._core.jobs.put(ATOMS, {"score": score}, run=run, user=user, namespace=namespace)

    def store(self, user: User, supports: Sequence[Support]) -> None:
        """Stores atoms here and now."""
        if supports and (new := put(self.rows, supports, user)):
            self._core.count("atoms", new)

    def import_runs(
        self, runs: Sequence[EndedRun], habits: Habits | None, writer: AtomWriter | None
    ) -> tuple[list[str], int]:
        """Atoms of runs of one namespace that were read already, here and now.

        Returns:
            The runs that have any, and how many good steps.
        """
        now, writer = self._core.now(), writer or self.writer
        supports: list[Support] = []
        names: list[str] = []
        steps = 0
        for each in runs:
            read = self.extracted(each.run, habits)
            words = None if each.score is None else writer
            made = merge_all(one.atom if words is None else words.write(one) for one in read)
            if made:
                names.append(each.run.digest)
                steps += 0 if each.score is None else sum(one.visits for one in made)
                user = each.user.digest or ""
                supports += [Support(one, each.run.digest, user, each.score, now) for one in made]
        if supports:
            self.store(runs[0].user, supports)
            owners = {each.run.digest: each.user.digest or "" for each in runs}
            self._core.jobs.queue.note_namespaces([(name, owners[name], runs[0].user.namespace) for name in names])
        return names, steps

    # --- in the background ---

    def do(self, jobs: Sequence[Job]) -> None:
        """Store the atoms of runs, all of a namespace at once, and verdicts on them."""
        for user, some in by_namespace(jobs):
            self.store(user, [each for job in some if not job.payload.get("again") for each in _supports(job)])
            for job in some:
                said = job.payload
                if "atoms" not in said:
                    judge(self.rows, job.run, said["score"], _user(job))
                elif said.get("again"):
                    if put(self.rows, _supports(job), user, missing=True):
                        self._look_again(job)
                elif self._core.vectors.given and not said.get("worded"):
                    self._look_again(job)  # others may write to it; what is worded anew would be looked for in vain

    def undo(self, job: Job) -> None:
        """Take away the atoms of a job whose user was forgotten meanwhile."""
        self.rows.forget_of(job.run, _user(job))

    def _look_again(self, job: Job) -> None:
        said, key = job.payload, digest("again", job.id)
        after = CHECK_SECONDS * (1 + int(key[:2], 16) / 255)  # not when all others look too
        where: dict[str, Any] = {"run": job.run, "user": job.user, "namespace": job.namespace}
        self._core.jobs.put(ATOMS, {**said, "again": True}, **where, key=key, ordering_key="", after=after)

    def word(self, job: Job) -> str:
        """Return what the model says of the steps of a run, as JSON."""
        if self.writer is None:
            return "[]"
        said = [self.writer.pattern(from_job(plain)) for plain in job.payload["steps"]]
        return json.dumps([None if each is None else each.model_dump() for each in said])

    def take_words(self, job: Job) -> None:
        """Puts them into the atoms."""
        from langgraph_toolmem.atoms.abstract import Pattern

        made: dict[str, Atom] = {}
        for plain, said in zip(job.payload["steps"], json.loads(job.answer or "[]"), strict=True):
            if said is not None:
                each = from_job(plain)
                made[each.atom.id] = storable(worded(each, Pattern.model_validate(said)))
        if made and not reword(self.rows, job.run, made, _user(job)):
            raise NotYetError("the atoms of that run are not stored yet", tries=WAITS + 1)


def _supports(job: Job) -> list[Support]:
    said = job.payload
    made = map(from_plain, said.get("atoms", ()))
    return [Support(atom, job.run, job.user, said["score"], said["time"]) for atom in made]


def _user(job: Job) -> User:
    return User(None, job.user or None, job.namespace)
