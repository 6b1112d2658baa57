"""How entries come to be kept: written, judged and criticised in the background."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from langgraph_toolmem.base.text import digest
from langgraph_toolmem.core.jobs import NotYetError, by_namespace
from langgraph_toolmem.core.method import EndedRun
from langgraph_toolmem.core.users import User
from langgraph_toolmem.entries.critique import Critic, Critique
from langgraph_toolmem.entries.entry import Entry, entry_of
from langgraph_toolmem.entries.recall import Recall
from langgraph_toolmem.entries.rows import PARTS, EntryKind, EntryRows, judge, keep, set_critique
from langgraph_toolmem.runs.run import Run

if TYPE_CHECKING:
    from langgraph_toolmem.core.core import Core
    from langgraph_toolmem.stores.job_queue import Job

WRITE, JUDGE, CRITIQUE = "write", "judge", "critique"
"""Kinds of jobs: an entry, a verdict on it, a critique."""
JUDGE_TRIES: Final = 8
"""A verdict on a run that has no entry waits for it so often: about two minutes."""
SIMILAR: Final = 3
"""Entries with similar requests that a critic sees beside one."""

Namespace = tuple[str, ...]


class EntryKeeping:
    """The entries of a memory, and the work of keeping them. Made when entries are first used (numpy).

    Args:
        core: of the memory.
        critic: writes critiques of runs that went wrong; None: there are none.
    """

    def __init__(self, core: Core, critic: Critic | None) -> None:
        self._core, self._critic = core, critic
        self.rows: EntryRows = core.rows(EntryKind())
        self.recall = Recall(self.rows, dense=not core.vectors.embedder.builtin)

    def put_run(self, run: Run, user: User, score: float | None, comment: str | None) -> bool:
        """Puts a run into the queue; whether there is something to keep."""
        core = self._core
        # Where nobody is named now, `forget` must find it by who was named before.
        owner = core.owner_of(run.digest, user.digest) or None
        entry = entry_of(run, run_digest=run.digest, now=core.now(), user=owner, score=score, comment=comment)
        if entry is not None:
            self.put(entry, user)
        return entry is not None

    def put(self, entry: Entry, user: User) -> None:
        """Puts an entry into the queue; it is on disk when this returns."""
        namespace = user.namespace
        line = digest(*namespace, entry.run)
        where: dict[str, Any] = {"run": entry.run, "user": entry.user}
        self._core.jobs.put(WRITE, {"entry": entry.to_dict()}, **where, namespace=namespace, line=line)
        self._core.count_once(entry_key(entry.run), "entries")

    def put_verdict(self, run: str, score: float, comment: str | None, user: str, namespace: Namespace) -> None:
        """Puts a verdict on a run into the queue that has its entry."""
        payload = {"score": score, "comment": comment or ""}
        self._core.jobs.put(JUDGE, payload, run=run, user=user, namespace=namespace, line=digest(*namespace, run))

    def import_runs(self, user: User, runs: Sequence[EndedRun], made_by: str) -> int:
        """Entries of runs of a namespace that were read already, here and now; how many of the runs have one."""
        core, now = self._core, self._core.now()
        made = (
            entry_of(
                each.run,
                run_digest=each.run.digest,
                now=now,
                user=each.user.digest,
                score=each.score,
                comment=each.comment,
                made_by=made_by,
            )
            for each in runs
        )
        stored = keep(self.rows, [entry for entry in made if entry is not None], user)
        entries = [entry for entry in stored if entry is not None]
        namespace = user.namespace
        if entries:
            core.jobs.queue.note_places([(entry.run, entry.user, namespace) for entry in entries])
        for entry in entries:
            core.count_once(entry_key(entry.run), "entries")
        if self._critic is not None:  # those too that have no critique from before there was a critic
            for entry in self.rows.all(user):
                self._ask_for_critique(entry, namespace)
        return len(entries)

    # --- in the background ---

    def write(self, jobs: Sequence[Job]) -> None:
        """Store the entries of jobs, all of a namespace at once."""
        for user, some in by_namespace(jobs):
            entries = [Entry.from_dict(job.payload["entry"]) for job in some]
            for entry, kept in zip(entries, keep(self.rows, entries, user), strict=True):
                if kept is not None:
                    self._ask_for_critique(kept, user.namespace)
                self._core.count_once(entry_key(entry.run), "entries")  # if the process ended before it was counted

    def unwrite(self, job: Job) -> None:
        """Take away the entry of a job whose user was forgotten meanwhile."""
        self.rows.forget_of(job.run, _user(job))

    def judge(self, jobs: Sequence[Job]) -> None:
        """Add verdicts to their entries."""
        for job in jobs:
            said, user = job.payload, _user(job)
            kept = judge(self.rows, job.run, said["score"], said["comment"], user)
            if kept is None:
                raise NotYetError("no entry of that run", tries=JUDGE_TRIES)
            self._ask_for_critique(kept, user.namespace)

    def criticise(self, job: Job) -> str:
        """The critic's answer as JSON; "" if there is nothing to criticise any more."""
        user = _user(job)
        entry = next(iter(self.rows.get([job.payload["entry"]], user)), None)
        if self._critic is None or entry is None or not entry.wants_critique:
            return ""
        if entry.verdict != job.payload["verdict"]:
            return ""
        near = [each for part in PARTS for each in self.rows.near(entry.query, user, k=SIMILAR + 1, part=part)]
        near.sort(key=lambda each: -each.similarity)
        similar = [each.item for each in near if each.id != entry.id]
        return self._critic(entry, similar[:SIMILAR]).model_dump_json()

    def take_critique(self, job: Job) -> None:
        """Puts a critique into its entry."""
        user = _user(job)
        entry = next(iter(self.rows.get([job.payload["entry"]], user)), None)
        if not job.answer or entry is None:
            return
        found, of = Critique.model_validate_json(job.answer), job.payload["verdict"]
        set_critique(self.rows, entry.id, found.text(entry), user, of=of, blamed=found.blamed(entry))

    def _ask_for_critique(self, entry: Entry, namespace: Namespace) -> None:
        if self._critic is not None and entry.wants_critique:
            payload = {"entry": entry.id, "verdict": entry.verdict}
            key = digest(CRITIQUE, *namespace, entry.id, entry.verdict)
            where: dict[str, Any] = {"run": entry.run, "user": entry.user, "namespace": namespace}
            self._core.jobs.put(CRITIQUE, payload, **where, key=key, line="")


def entry_key(run: str) -> str:
    """The key that says that a run has its entry."""
    return digest("entry", run)


def _user(job: Job) -> User:
    return User(None, job.user or None, job.namespace)
