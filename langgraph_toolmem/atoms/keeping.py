"""Keeping of atoms: they are extracted as a run ends, then stored and worded in the background."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from langgraph_toolmem.atoms.atoms import Atom, AtomRecord, from_plain, merge_all, storable, to_plain
from langgraph_toolmem.atoms.extract import Extracted, Extractor
from langgraph_toolmem.atoms.models import AtomWriter
from langgraph_toolmem.atoms.retrieve import AtomSearch
from langgraph_toolmem.atoms.rows import AtomKind, AtomRows, Support, judge, put, reword
from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.core.jobs import Job, NotYetError, by_namespace
from langgraph_toolmem.core.method import EndedRun
from langgraph_toolmem.core.users import User
from langgraph_toolmem.graph.learning import decode_value
from langgraph_toolmem.graph.state import slot_key
from langgraph_toolmem.runs.run import Run
from langgraph_toolmem.runs.values import ABSENT, canon

if TYPE_CHECKING:
    from langgraph_toolmem.core.core import Core

logger = logging.getLogger("langgraph_toolmem.atoms")

ATOMS, WORDING = "atoms", "wording"
"""Kinds of jobs: atoms are stored or their score changes, and they are worded by a chat model."""
WAITS: Final = 3
"""Failures after which a wording no longer waits for its atoms, which were forgotten."""


class AtomKeeping:
    """The atoms of a memory, and the work of keeping them. Made when atoms are first used.

    Args:
        core: of the memory.
        writer: words atoms with a chat model; None: they are read off runs and schemas.
    """

    def __init__(self, core: Core, writer: AtomWriter | None) -> None:
        self._core, self._writer = core, writer
        self.rows: AtomRows = core.rows(AtomKind())
        self.search = AtomSearch(self.rows, self._misleads)
        self._extractor: Extractor | None = None

    def records(self, user: User, calls: Sequence[str]) -> dict[str, AtomRecord]:
        """Return the records of calls (`Atom.call`) of a user."""
        tracks = self._core.ledger.tracks(self.rows.method, [self.rows.key(call, user) for call in calls])
        found = (AtomRecord(track.shown, track.followed, track.helped, track.hurt) for track in tracks)
        return dict(zip(calls, found, strict=True))

    def _misleads(self, user: User, call: str) -> bool:
        return self._core.ledger.tracked(self.rows.method) and self.records(user, [call])[call].misleads

    # --- making them ---

    def extracted(self, run: Run) -> list[Extracted]:
        """Return the atoms of one run, not merged."""
        with self._core.lock:
            if self._extractor is None or self._extractor.specs != self._core.catalogue.specs:
                self._extractor = Extractor(dict(self._core.catalogue.specs), habits=self._habits)
            extractor = self._extractor
        found: list[Extracted] = []
        for each in extractor.steps(run, source=""):
            try:
                found.append(each._replace(atom=storable(each.atom)))
            except InputError as error:  # one call that cannot be kept must not keep the others
                logger.debug("a step is not kept as an atom: %s", type(error).__name__)
        return found

    def _habits(self, tool: str, path: str) -> dict[str, tuple[float, int]]:
        """See `extract.Habits`: in all runs that the memory has seen; parts of nested arguments have none."""
        graph, slot = self._core.graph, slot_key(tool, path)
        with self._core.lock:
            contributors = graph.value_contributors.rows.get(slot, {})
            return {
                canon(known): (cell[0], len(contributors[text][0]) if text in contributors else 0)
                for text, cell in graph.values.row(slot).items()
                if (known := decode_value(text)) is not ABSENT
            }

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
        for user, some in by_namespace(jobs):
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
        return json.dumps([None if each is None else to_plain(each) for each in said])

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
