"""The queue of background jobs: tables of the memory's database. A job is on disk before `JobQueue.put` returns.

Several threads and processes may use the queue at once. A job is taken for a short time, its lease. When the lease is
over, because its process was killed, the job can be taken again. `Job.takes` counts how often a job was taken: whoever
reports on a job shows that number, and an outdated one changes nothing. All methods block for the disk.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from langgraph_toolmem.base.errors import InputError, StorageError
from langgraph_toolmem.stores.database import Database, Values

logger = logging.getLogger("langgraph_toolmem.stores.job_queue")

LEASE_SECONDS: Final = 30.0
MAX_LOST: Final = 20
"""A job that was taken so often and neither done nor failed is given up: it may be what ends the process."""
MAX_WAITING, MAX_GIVEN_UP = 100_000, 10_000
"""More waiting jobs are refused; of jobs that were given up, the oldest are deleted."""
MAX_PLACES: Final = 200_000
TABLES: Final[Mapping[str, str]] = {
    "jobs": """
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        kind TEXT NOT NULL,
        line TEXT NOT NULL,
        user TEXT NOT NULL,
        due REAL NOT NULL,
        lease REAL NOT NULL DEFAULT 0,
        takes INTEGER NOT NULL DEFAULT 0,
        attempts INTEGER NOT NULL DEFAULT 0,
        error TEXT NOT NULL DEFAULT '',
        given_up INTEGER NOT NULL DEFAULT 0,
        answer TEXT,
        payload TEXT NOT NULL,
        UNIQUE (given_up, kind, seq),
        UNIQUE (line, given_up, seq)
    """,
    "forgettings": "number INTEGER PRIMARY KEY AUTOINCREMENT",
    "places": "run TEXT PRIMARY KEY, namespace TEXT NOT NULL, user TEXT NOT NULL",
}
_RUN: Final = "iif(json_valid(payload), json_extract(payload, '$.run'), '')"
_WANTED: Final = "given_up = 0 AND (:kinds IS NULL OR kind IN (SELECT value FROM json_each(:kinds)))"
_FIRST: Final = """(line = '' OR NOT EXISTS (
    SELECT 1 FROM jobs AS older WHERE older.line = jobs.line AND older.given_up = 0 AND older.seq < jobs.seq
))"""
# No job is put off or leased for an hour: if it seems so, the clock was set back.
_DUE: Final = "(due <= :now OR due > :now + 3600)"
_LEASED: Final = "(lease > :now AND lease <= :now + 3600)"
_FREE: Final = f"{_WANTED} AND {_FIRST} AND {_DUE} AND NOT {_LEASED} AND seq <= :upto"
_COLUMNS: Final = "id, kind, payload, user, answer, takes, attempts, error"
_HELD: Final = "id = ? AND takes = ? AND lease > 0"
_EVER: Final = 2**62


class NewJob(NamedTuple):
    """A job to be put.

    Attributes:
        key: its id; a job whose id waits already is not put again.
        payload: JSON values.
        kind: selects the code that does it.
        line: jobs of one line are done one after the other, in the order they were put; "" for no order.
        user: digest of the user it is about, or "".
        after: seconds before it is due.
        place: digest of a run and the namespace of its rows, kept for `JobQueue.place_of`.
    """

    key: str
    payload: Mapping[str, Any]
    kind: str = ""
    line: str = ""
    user: str = ""
    after: float = 0.0
    place: tuple[str, Sequence[str]] | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it was taken, for the `takes`-th time, after `attempts` that failed.

    `answer` is what `JobQueue.save` kept; `error` is the reason of the last failure, without text of a user.
    """

    id: str
    kind: str
    payload: dict[str, Any] = field(default_factory=dict)
    user: str = ""
    answer: str | None = None
    takes: int = 0
    attempts: int = 0
    error: str = ""


class JobQueue(Database):
    """Jobs on disk, or in RAM without a folder. Every method raises `StorageError` if the file cannot be used.

    Args:
        folder: the memory's folder; made with the first job.
        now: seconds since 1970.
        lease: seconds after which a job that was taken and not finished can be taken again.
        read_only: see `Database`.
    """

    tables = TABLES

    def __init__(
        self, folder: Path | None, *, now: Callable[[], float], lease: float = LEASE_SECONDS, read_only: bool = False
    ) -> None:
        super().__init__(folder, read_only=read_only)
        self._now, self.lease = now, lease
        self._taken: dict[str, int] = {}  # by id, the `takes` of jobs that this object has taken

    def put(self, key: str, payload: Mapping[str, Any], **how: Any) -> bool:
        """Put one `NewJob`; return True if it is new, else False."""
        return self.put_all([NewJob(key, payload, **how)]) == 1

    def put_all(self, jobs: Sequence[NewJob]) -> int:
        """Put jobs in one transaction; return how many are new. Jobs that were given up before start again.

        Raises:
            InputError: a job has no id, or its payload holds other than JSON values.
            StorageError: `MAX_WAITING` jobs wait already.
        """
        now, rows = self._now(), []
        for each in jobs:
            if not each.key:
                raise InputError("A job needs an id.")
            try:
                text = json.dumps(dict(each.payload), ensure_ascii=True)
            except (TypeError, ValueError) as error:
                raise InputError(f"A job's payload holds JSON values only: {error}.") from error
            rows.append((each.key, each.kind, each.line, each.user, now + each.after, text))
        with self.writing() as database:
            [(waiting,)] = database.execute("SELECT count(*) FROM jobs WHERE given_up = 0")
            if waiting >= MAX_WAITING:
                raise StorageError(
                    f"{waiting:,} jobs wait to be done, and no more are taken: `toolmem doctor` says which, and why."
                )
            _note_places(database, [(*each.place, each.user) for each in jobs if each.place is not None])
            database.executemany("DELETE FROM jobs WHERE id = ? AND given_up = 1", [(each.key,) for each in jobs])
            sql = "INSERT INTO jobs (id, kind, line, user, due, payload) VALUES (?, ?, ?, ?, ?, ?)"
            return database.executemany(f"{sql} ON CONFLICT (id) DO NOTHING", rows).rowcount

    def take(self, kinds: Collection[str] | None = None, *, most: int = 1, upto: int = _EVER) -> list[Job]:
        """Lease the oldest job that is due, with others of its kind; return [] if there is none.

        A job that was taken before, and so failed or lost its process, is taken alone.

        Args:
            kinds: only these; None for all.
            most: how many jobs of the kind.
            upto: only jobs that were put up to here (`last`).
        """
        if self.empty:
            return []
        asked = {"now": self._now(), "upto": upto, **_kinds(kinds)}
        found = "SELECT seq, kind, takes FROM jobs WHERE"
        with self.writing() as database:
            first = database.execute(f"{found} {_FREE} ORDER BY seq LIMIT 1", asked).fetchone()
            if first is None:
                return []
            chosen = [first[0]]
            if most > 1 and not first[2]:
                asked |= _kinds([first[1]])
                more = database.execute(f"{found} {_FREE} AND takes = 0 ORDER BY seq LIMIT {most}", asked)
                chosen = [seq for seq, *_ in more]
            rows = database.execute(
                f"UPDATE jobs SET takes = takes + 1, lease = ? WHERE seq IN (SELECT value FROM json_each(?)) "
                f"RETURNING seq, json_valid(payload), {_COLUMNS}",
                (self._now() + self.lease, json.dumps(chosen)),
            ).fetchall()
            jobs, lost = list[Job](), list[Job]()
            for _, valid, *row in sorted(rows):
                job = _job(row)
                (jobs if valid and job.takes - job.attempts <= MAX_LOST else lost).append(job)
            sql = "UPDATE jobs SET given_up = 1, error = 'damaged, or taken too often without an end' WHERE id = ?"
            database.executemany(sql, [(job.id,) for job in lost])
        for job in lost:
            logger.error("a %r job was given up: damaged, or taken %d times in vain", job.kind, job.takes - 1)
        self._taken.update((job.id, job.takes) for job in jobs)
        return jobs or self.take(kinds, most=most, upto=upto)

    def renew(self, jobs: Iterable[Job]) -> None:
        """Lease jobs for longer."""
        with self.writing() as database:
            rows = [(self._now() + self.lease, job.id, job.takes) for job in jobs]
            database.executemany(f"UPDATE jobs SET lease = ? WHERE {_HELD}", rows)

    def free(self) -> None:
        """End all leases: nobody else does jobs."""
        with self.writing() as database:
            database.execute("UPDATE jobs SET lease = 0 WHERE lease > 0")

    def held(self, jobs: Sequence[Job]) -> list[Job]:
        """Return those jobs that are there and that nobody took since."""
        keys = json.dumps([job.id for job in jobs])
        sql = "SELECT id, takes FROM jobs WHERE lease > 0 AND id IN (SELECT value FROM json_each(?))"
        found = dict(self.ask(sql, (keys,)))
        return [job for job in jobs if found.get(job.id) == job.takes]

    def save(self, job: Job, answer: str) -> bool:
        """Keep an answer for whoever takes the job next; return True if the job is still held, else False."""
        with self.writing() as database:
            held = (answer, job.id, job.takes)
            return database.execute(f"UPDATE jobs SET answer = ? WHERE {_HELD}", held).rowcount == 1

    def done(self, jobs: Iterable[Job]) -> list[Job]:
        """Delete jobs that are done; return those that are not held any more."""
        lost = []
        with self.writing() as database:
            for job in jobs:
                if database.execute(f"DELETE FROM jobs WHERE {_HELD}", (job.id, job.takes)).rowcount == 0:
                    lost.append(job)
                self._taken.pop(job.id, None)
        return lost

    def retry(self, job: Job, after: float, *, limit: int | None = None, error: str = "") -> bool:
        """Put back a job that failed.

        Args:
            job: as it was taken.
            after: seconds from now.
            limit: failures after which it is given up: kept, but not taken again. None for no limit.
            error: the reason; no text of a user.

        Returns:
            True if it will be tried again, else False.
        """
        given_up = limit is not None and job.attempts + 1 >= limit
        sql = f"UPDATE jobs SET lease = 0, attempts = attempts + 1, due = ?, error = ?, given_up = ? WHERE {_HELD}"
        with self.writing() as database:
            row = (self._now() + after, error, given_up, job.id, job.takes)
            changed = database.execute(sql, row).rowcount == 1
            last = "SELECT seq FROM jobs WHERE given_up = 1 ORDER BY seq DESC LIMIT 1 OFFSET ?"
            if given_up:
                database.execute(f"DELETE FROM jobs WHERE given_up = 1 AND seq <= ({last})", (MAX_GIVEN_UP,))
        self._taken.pop(job.id, None)
        return changed and not given_up

    # --- counting ---

    @property
    def last(self) -> int:
        """The place of the latest job."""
        return sum(seq or 0 for (seq,) in self.ask("SELECT max(seq) FROM jobs"))

    def pending(self, kinds: Collection[str] | None = None) -> int:
        """Return how many jobs wait or are leased."""
        return self._count(_WANTED, _kinds(kinds))

    def unsettled(self, kinds: Collection[str], upto: int) -> bool:
        """Return True if jobs that were put up to a place are leased or can be taken, else False."""
        sql = f"{_WANTED} AND seq <= :upto AND ({_LEASED} OR {_DUE} AND {_FIRST})"
        return self._count(sql, {"now": self._now(), "upto": upto, **_kinds(kinds)}) > 0

    def next_due(self, kinds: Collection[str] | None = None) -> float | None:
        """Return the seconds until a job can be taken, 0 for now; None if none waits."""
        when = f"CASE WHEN {_LEASED} THEN lease WHEN {_DUE} THEN :now ELSE due END"
        sql = f"SELECT min({when}) FROM jobs WHERE {_WANTED} AND {_FIRST}"
        now = self._now()
        found = [due for (due,) in self.ask(sql, {"now": now, **_kinds(kinds)}) if due is not None]
        return max(0.0, found[0] - now) if found else None

    def given_up(self) -> list[Job]:
        """Return the jobs that failed too often, oldest first."""
        return [_job(row) for row in self.ask(f"SELECT {_COLUMNS} FROM jobs WHERE given_up = 1 ORDER BY seq")]

    def revive(self) -> int:
        """Have everything that was given up tried again, as if new; return how many."""
        if self.empty:
            return 0
        sql = "UPDATE jobs SET given_up = 0, attempts = 0, takes = 0, lease = 0, due = ? WHERE given_up = 1"
        with self.writing() as database:
            return database.execute(sql, (self._now(),)).rowcount

    def report(self) -> dict[str, int]:
        """Return ``{"pending": n, "failing": pending ones that failed before, "given_up": n}``."""
        wanted = {"pending": "given_up = 0", "failing": "given_up = 0 AND attempts > 0", "given_up": "given_up = 1"}
        return {name: self._count(where) for name, where in wanted.items()}

    def troubles(self) -> list[str]:
        """Return up to five sentences on jobs that failed."""
        sql = """
            SELECT kind, given_up, error, count(*) AS number FROM jobs WHERE given_up = 1 OR attempts > 0
            GROUP BY kind, given_up, error ORDER BY number DESC LIMIT 5
        """
        said = {0: "wait and were tried without success", 1: "were given up"}
        return [
            f"{number:,} {kind} jobs {said[up]} ({why or 'no reason known'})" for kind, up, why, number in self.ask(sql)
        ]

    # --- runs and users ---

    def note_places(self, runs: Sequence[tuple[str, str]], namespace: Sequence[str]) -> None:
        """Keep the namespace and the user's digest ("" for nobody) of runs, for later feedback."""
        with self.writing() as database:
            _note_places(database, [(run, namespace, user) for run, user in runs])

    def place_of(self, run: str) -> tuple[str, ...] | None:
        """Return the namespace of a run's rows; None if that was not kept."""
        found = self.ask("SELECT namespace FROM places WHERE run = ?", (run,))
        return tuple(json.loads(found[0][0])) if found else None

    def owner_of(self, run: str) -> str:
        """Return the digest of the user whose run it is; "" for nobody, or if that was not kept."""
        found = self.ask("SELECT user FROM places WHERE run = ?", (run,))
        return found[0][0] if found else ""

    @property
    def forgettings(self) -> int:
        """How often any process called `forget`."""
        return sum(number or 0 for (number,) in self.ask("SELECT max(number) FROM forgettings"))

    def forget(self, user: str, *, runs: Collection[str] = (), before: float | None = None) -> int:
        """Delete all jobs about a user or about runs, from the disk too; return how many.

        Args:
            user: digest of the user; "" for runs only.
            runs: digests.
            before: jobs that were given up and were due before that time are deleted, too.

        Raises:
            InputError: nothing is named.
            StorageError: another process reads the file all the time; do it again.
        """
        if not user and not runs and before is None:
            raise InputError("Whose jobs are to be forgotten?")
        if self.empty:
            return 0
        asked = {"user": user, "runs": json.dumps(list(runs)), "before": before}
        named = "(user = :user AND :user > '' OR {} IN (SELECT value FROM json_each(:runs)))"
        with self.writing() as database:
            which = f"{named.format(_RUN)} OR given_up = 1 AND due < :before"
            deleted = database.execute(f"DELETE FROM jobs WHERE {which}", asked).rowcount
            database.execute(f"DELETE FROM places WHERE {named.format('run')}", asked)
            database.execute("INSERT INTO forgettings DEFAULT VALUES")
            database.execute("DELETE FROM forgettings WHERE number < (SELECT max(number) FROM forgettings)")
        self.scrub()
        return deleted

    def close(self) -> None:
        """Give back the jobs that are leased to this object, and close the file. Twice is harmless."""
        taken, self._taken = self._taken, {}
        if taken and not self.empty:
            with contextlib.suppress(StorageError), self.writing() as database:
                database.executemany("UPDATE jobs SET lease = 0 WHERE id = ? AND takes = ?", list(taken.items()))
        super().close()

    def forked(self) -> None:
        """Leave the leases to the parent process."""
        self._taken = {}

    def _count(self, where: str, values: Values = ()) -> int:
        return sum(number for (number,) in self.ask(f"SELECT count(*) FROM jobs WHERE {where}", values))


def _note_places(database: sqlite3.Connection, places: Iterable[tuple[str, Sequence[str], str]]) -> None:
    rows = [(run, json.dumps(list(namespace)), user) for run, namespace, user in places]
    database.executemany("INSERT OR REPLACE INTO places VALUES (?, ?, ?)", rows)
    database.execute("DELETE FROM places WHERE rowid <= (SELECT max(rowid) FROM places) - ?", (MAX_PLACES,))


def _kinds(kinds: Collection[str] | None) -> dict[str, Any]:
    return {"kinds": None if kinds is None else json.dumps(list(kinds))}


def _job(row: Sequence[Any]) -> Job:
    key, kind, payload, *rest = row
    found: dict[str, Any] = {}
    with contextlib.suppress(ValueError, TypeError):  # damaged
        found = dict(json.loads(payload))
    return Job(key, kind, found, *rest)
