"""Entries as rows of Chroma, and how they come there: written, judged and criticised in the background.

- The user's words are compared; entries with feedback are found apart from those without.
- One entry per run. The same run put again changes nothing; reported with more calls, feedback or a critique, the new
  replaces the old (`Entry.joined`). A run of one user never replaces that of another.
- An entry is retired, that is no longer shown, when runs that were shown it failed significantly more often than
  half the time and than runs that were shown others (`hurts`).
- Where there are too many, those nobody judged go first, then the least useful, then the oldest.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from langgraph_toolmem.base.text import digest, shortened
from langgraph_toolmem.core.jobs import Job, NotYetError, by_namespace
from langgraph_toolmem.core.ledger import ItemStats
from langgraph_toolmem.core.method import EndedRun
from langgraph_toolmem.core.rows import RowKind, Rows
from langgraph_toolmem.core.users import User
from langgraph_toolmem.entries.critique import Critic, Critique
from langgraph_toolmem.entries.entry import MAX_CRITIQUE, Entry, entry_id, entry_of
from langgraph_toolmem.stores.vectors import Hit, VectorItem
from langgraph_toolmem.text.embedders import clean

if TYPE_CHECKING:
    from langgraph_toolmem.core.core import Core

logger = logging.getLogger("langgraph_toolmem.entries")

PARTS = JUDGED, UNJUDGED = "judged", "unjudged"
"""Parts of the collection."""
WRITE, JUDGE, CRITIQUE = "write", "judge", "critique"
"""Kinds of jobs: an entry, feedback on it, a critique."""
JUDGE_TRIES: Final = 8
"""Feedback on a run that has no entry waits for it so often: about two minutes."""
SIMILAR: Final = 3
"""Entries with similar requests that a critic reads with one."""
SURE: Final = 2.3
"""Standard deviations by which failures have to be more than usual for their entry to be retired."""
_ASIDE: Final = ("id", "query", "recalled", "helped", "hurt", "retired")


class EntryKind(RowKind[Entry]):
    """See the module."""

    name: ClassVar[str] = "entries"

    def row(self, item: Entry) -> VectorItem:
        plain = {name: value for name, value in item.to_dict().items() if name not in _ASIDE}
        owners = tuple(digest for digest in (item.user, item.run) if digest)
        return VectorItem(item.id, item.query, plain, UNJUDGED if item.score is None else JUDGED, owners)

    def item(self, row: Hit) -> Entry:
        return Entry.from_dict({**row.metadata, "id": row.id, "query": row.text})

    def joined(self, old: Entry, new: Entry) -> Entry | None:
        if old.user and new.user and old.user != new.user:
            logger.warning("a run was reported by two users; the entry of the first stays")
            return None
        return old.joined(new)

    def tracked(self, item: Entry, track: ItemStats, others: ItemStats) -> Entry:
        usual = (others.hurt + 1) / (others.helped + others.hurt + 2)
        bad = hurts(track.helped, track.hurt, usual)
        return replace(item, recalled=track.shown, helped=track.helped, hurt=track.hurt, retired=bad)

    def retired(self, item: Entry) -> bool:
        return item.retired

    def worth(self, item: Entry) -> tuple[bool, float, float]:
        tried = max(item.recalled, item.helped + item.hurt)
        return item.score is not None, (item.helped + 1) / (tried + 2), item.time


EntryRows: TypeAlias = Rows[Entry]


def hurts(helped: int, hurt: int, usual: float) -> bool:
    """Return True if a record retires an entry: more failures than a share p = max(½, usual) of its runs.

    They are more by at least SURE standard deviations of the binomial. Half the runs at least, since an entry that is
    shown for hard requests sees more failures than others. So six failures and no success retire it, or eight of nine.

    Args:
        helped: runs that were shown it and went well.
        hurt: runs that were shown it and failed.
        usual: share of failures of the other entries, each run counted once for each that it was shown.
    """
    runs, p = helped + hurt, max(0.5, usual)
    return hurt > runs * p and hurt - runs * p >= SURE * math.sqrt(runs * p * (1 - p))


class EntryKeeping:
    """The entries of a memory, and the work of keeping them.

    Args:
        core: of the memory.
        critic: writes critiques of runs that went wrong; None: there are none.
    """

    def __init__(self, core: Core, critic: Critic | None) -> None:
        self._core, self._critic = core, critic
        self.rows: EntryRows = core.rows(EntryKind())

    def entry_of(self, ended: EndedRun) -> Entry | None:
        """Return the entry of a run; None if the user said nothing."""
        core, run = self._core, ended.run
        # Where nobody is named now, `forget` must find it by who was named before.
        owner = core.owner_of(run.digest, ended.user.digest) or None
        said: dict[str, Any] = {"user": owner, "score": ended.score, "comment": ended.comment}
        return entry_of(run, run_digest=run.digest, now=core.now(), **said)

    def put(self, entry: Entry, user: User) -> None:
        """Put an entry into the queue; it is on disk when this returns."""
        namespace = user.namespace
        where: dict[str, Any] = {"run": entry.run, "user": entry.user, "ordering_key": digest(*namespace, entry.run)}
        self._core.jobs.put(WRITE, {"entry": entry.to_dict()}, **where, namespace=namespace)
        self._core.count_once(entry.id, "entries")

    def put_verdict(self, run: str, score: float, comment: str | None, user: str, namespace: tuple[str, ...]) -> None:
        """Put feedback on a run that has its entry into the queue."""
        payload = {"score": score, "comment": comment or ""}
        order = digest(*namespace, run)
        self._core.jobs.put(JUDGE, payload, run=run, user=user, namespace=namespace, ordering_key=order)

    def import_runs(self, user: User, runs: Sequence[EndedRun]) -> int:
        """Store entries of runs of a namespace that were learned already; return how many of the runs have one."""
        entries = self._keep([entry for entry in map(self.entry_of, runs) if entry is not None], user)
        if entries:
            self._core.jobs.queue.note_namespaces([(entry.run, entry.user, user.namespace) for entry in entries])
        if self._critic is not None:  # those too that have no critique from before there was a critic
            for entry in self.rows.all(user):
                self._ask_for_critique(entry, user.namespace)
        return len(entries)

    def _keep(self, entries: Iterable[Entry], user: User) -> list[Entry]:
        """Store entries; return what stands now, without those that another user reported."""
        kept = [entry for entry in self.rows.put(entries, user) if entry is not None]
        for entry in kept:
            self._core.count_once(entry.id, "entries")
        return kept

    # --- in the background ---

    def write(self, jobs: Sequence[Job]) -> None:
        """Store the entries of jobs, all of a namespace at once."""
        for user, some in by_namespace(jobs):
            for entry in self._keep([Entry.from_dict(job.payload["entry"]) for job in some], user):
                self._ask_for_critique(entry, user.namespace)

    def unwrite(self, job: Job) -> None:
        """Remove the entry of a job whose user was forgotten meanwhile."""
        self.rows.forget_of(job.run, _user(job))

    def judge(self, jobs: Sequence[Job]) -> None:
        """Add feedback to entries."""
        for job in jobs:
            said, user = job.payload, _user(job)
            how = partial(Entry.with_verdict, score=said["score"], comment=said["comment"], user=user.digest or "")
            kept = self.rows.change([entry_id(job.run)], how, user)
            if not kept:
                raise NotYetError("no entry of that run", tries=JUDGE_TRIES)
            self._ask_for_critique(kept[0], user.namespace)

    def criticise(self, job: Job) -> str:
        """Return the critic's answer as JSON; "" if there is nothing to criticise any more."""
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
        """Store a critique in its entry, unless the entry is gone or has another verdict now."""
        if not job.answer:
            return
        found, of = Critique.model_validate_json(job.answer), job.payload["verdict"]

        def with_critique(entry: Entry) -> Entry:
            if not entry.failed or entry.verdict != of:
                return entry
            text = shortened(clean(found.text(entry)), MAX_CRITIQUE)
            return replace(entry, critique=text, critique_of=of, blamed=clean(found.blamed(entry)))

        self.rows.change([job.payload["entry"]], with_critique, _user(job))

    def _ask_for_critique(self, entry: Entry, namespace: tuple[str, ...]) -> None:
        if self._critic is not None and entry.wants_critique:
            payload = {"entry": entry.id, "verdict": entry.verdict}
            key = digest(CRITIQUE, *namespace, entry.id, entry.verdict)
            where: dict[str, Any] = {"run": entry.run, "user": entry.user, "namespace": namespace}
            self._core.jobs.put(CRITIQUE, payload, **where, key=key, ordering_key="")


def _user(job: Job) -> User:
    return User(None, job.user or None, job.namespace)
