"""The queue of background jobs: tables of the memory's database. A job is on disk before `JobQueue.put` returns.

Several threads and processes may use the queue at once. A job is taken for a short time, its lease. When the lease is
over, because its process was killed, the job can be taken again. `Job.takes` counts how often a job was taken: whoever
reports on a job shows that number, and an outdated one changes nothing. All methods block for the disk.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.stores.database import Database

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
        payload TEXT NOT NULL,
        run TEXT NOT NULL,
        user TEXT NOT NULL,
        namespace TEXT NOT NULL,
        line TEXT NOT NULL,
        due REAL NOT NULL,
        lease REAL NOT NULL DEFAULT 0,
        takes INTEGER NOT NULL DEFAULT 0,
        attempts INTEGER NOT NULL DEFAULT 0,
        error TEXT NOT NULL DEFAULT '',
        given_up INTEGER NOT NULL DEFAULT 0,
        answer TEXT,
        UNIQUE (given_up, kind, seq),
        UNIQUE (line, given_up, seq)
    """,
    "places": "run TEXT PRIMARY KEY, namespace TEXT NOT NULL, user TEXT NOT NULL",
}
_WANTED: Final = "given_up = 0 AND kind IN (SELECT value FROM json_each(:kinds)) AND seq <= :upto"
_FIRST: Final = """(line = '' OR NOT EXISTS (
    SELECT 1 FROM jobs AS older WHERE older.line = jobs.line AND older.given_up = 0 AND older.seq < jobs.seq
))"""
# No job is put off or leased for an hour: if it seems so, the clock was set back.
_DUE: Final = "(due <= :now OR due > :now + 3600)"
_LEASED: Final = "(lease > :now AND lease <= :now + 3600)"
_FREE: Final = f"{_WANTED} AND {_FIRST} AND {_DUE} AND NOT {_LEASED}"
_CHOSEN: Final = "seq IN (SELECT value FROM json_each(:chosen))"
_HELD: Final = "id = ? AND takes = ? AND lease > 0"
_ABOUT: Final = "(user = :user AND :user > '' OR run IN (SELECT value FROM json_each(:runs)))"
_EVER: Final = 2**62


class Job(NamedTuple):
    """A job. The fields from `answer` on are known once it was taken."""

    id: str  # one whose id waits already is not put again
    kind: str  # selects the code that does it
    payload: Mapping[str, Any]  # JSON values
    run: str = ""  # digest of the run it is about
    user: str = ""  # digest of the user it is about
    namespace: tuple[str, ...] = ()  # of the run's rows; kept for `JobQueue.place_of`
    line: str = ""  # jobs of one line are done one after the other, in the order they were put; "" for no order
    after: float = 0.0  # seconds before it is due
    answer: str | None = None  # kept by `JobQueue.save`
    takes: int = 0  # how often it was taken
    attempts: int = 0  # how often it failed


class JobQueue(Database):
    """Jobs on disk, or in RAM without a folder; `now` is in seconds since 1970.

    Every method raises `StorageError` if the file cannot be used.
    """

    tables = TABLES

    def __init__(self, folder: Path | None, *, now: Callable[[], float], read_only: bool = False) -> None:
        super().__init__(folder, read_only=read_only)
        self._now = now

    def put(self, jobs: Sequence[Job]) -> int:
        """Put jobs in one transaction; return how many are new. Jobs that were given up before start again."""
        now = self._now()
        rows = [
            (each.id, each.kind, json.dumps(each.payload), each.run, each.user, json.dumps(each.namespace), each.line)
            for each in jobs
        ]
        self.note_places([each[3:6] for each in jobs if each.run and each.namespace])
        with self.writing() as database:
            [(waiting,)] = database.execute("SELECT count(*) FROM jobs WHERE given_up = 0")
            if waiting >= MAX_WAITING:
                raise StorageError(
                    f"{waiting:,} jobs wait to be done, and no more are taken: `toolmem doctor` says which, and why."
                )
            database.executemany("DELETE FROM jobs WHERE id = ? AND given_up = 1", [(each.id,) for each in jobs])
            names = "id, kind, payload, run, user, namespace, line, due"
            return database.executemany(
                f"INSERT INTO jobs ({names}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
                [(*row, now + each.after) for row, each in zip(rows, jobs, strict=True)],
            ).rowcount

    def take(
        self, kinds: Iterable[str], *, most: int = 1, upto: int = _EVER, lease: float = LEASE_SECONDS
    ) -> list[Job]:
        """Lease the oldest job of some kinds that is due and was put up to a place (`last`), with others of its kind.

        A job that was taken before, and so failed or lost its process, is taken alone.
        """
        asked = self._asked(kinds, upto)
        with self.writing() as database:
            free = f"SELECT seq, kind, takes FROM jobs WHERE {_FREE}"
            found = database.execute(f"{free} ORDER BY seq LIMIT 1", asked).fetchall()
            if found and most > 1 and not found[0][2]:
                asked["kinds"] = json.dumps([found[0][1]])
                found = database.execute(f"{free} AND takes = 0 ORDER BY seq LIMIT {most}", asked).fetchall()
            if not found:
                return []
            how = {"chosen": json.dumps([seq for seq, *_ in found]), "lost": MAX_LOST, "lease": self._now() + lease}
            lost = database.execute(
                f"""UPDATE jobs SET given_up = 1, error = 'damaged, or taken too often without an end'
                WHERE {_CHOSEN} AND (takes - attempts >= :lost OR NOT json_valid(payload))""",
                how,
            ).rowcount
            rows = database.execute(
                f"""UPDATE jobs SET takes = takes + 1, lease = :lease WHERE {_CHOSEN} AND given_up = 0
                RETURNING seq, id, kind, payload, run, user, namespace, line, answer, takes, attempts""",
                how,
            ).fetchall()
        if lost:
            logger.error("%d jobs were given up: damaged, or taken %d times in vain", lost, MAX_LOST)
        return [
            Job(key, kind, json.loads(payload), run, user, tuple(json.loads(namespace)), line, 0.0, *rest)
            for _, key, kind, payload, run, user, namespace, line, *rest in sorted(rows)
        ]

    def free(self) -> None:
        """End all leases: nobody else does jobs."""
        with self.writing() as database:
            database.execute("UPDATE jobs SET lease = 0 WHERE lease > 0")

    def save(self, job: Job, answer: str) -> bool:
        """Keep an answer for whoever takes the job next; return True if the job is still held, else False."""
        with self.writing() as database:
            held = (answer, job.id, job.takes)
            return database.execute(f"UPDATE jobs SET answer = ? WHERE {_HELD}", held).rowcount == 1

    def done(self, jobs: Iterable[Job]) -> list[Job]:
        """Delete jobs that are done; return those that are not held any more."""
        with self.writing() as database:
            sql = f"DELETE FROM jobs WHERE {_HELD}"
            return [job for job in jobs if database.execute(sql, (job.id, job.takes)).rowcount == 0]

    def retry(self, job: Job, after: float, error: str = "", *, give_up: bool = False) -> None:
        """Put back a job that failed, for so many seconds; `error` is no text of a user. Given up, it is only kept."""
        sql = f"UPDATE jobs SET lease = 0, attempts = attempts + 1, due = ?, error = ?, given_up = ? WHERE {_HELD}"
        last = "SELECT seq FROM jobs WHERE given_up = 1 ORDER BY seq DESC LIMIT 1 OFFSET ?"
        with self.writing() as database:
            database.execute(sql, (self._now() + after, error, give_up, job.id, job.takes))
            if give_up:
                database.execute(f"DELETE FROM jobs WHERE given_up = 1 AND seq <= ({last})", (MAX_GIVEN_UP,))

    def revive(self) -> int:
        """Have everything that was given up tried again, as if new; return how many."""
        sql = "UPDATE jobs SET given_up = 0, attempts = 0, takes = 0, lease = 0, due = ? WHERE given_up = 1"
        with self.writing() as database:
            return database.execute(sql, (self._now(),)).rowcount

    # --- counting ---

    @property
    def last(self) -> int:
        """The place of the latest job."""
        return sum(seq or 0 for (seq,) in self.ask("SELECT max(seq) FROM jobs"))

    def unsettled(self, kinds: Iterable[str], upto: int) -> bool:
        """Return True if jobs that were put up to a place are leased or can be taken, else False."""
        sql = f"SELECT 1 FROM jobs WHERE {_WANTED} AND ({_LEASED} OR {_DUE} AND {_FIRST}) LIMIT 1"
        return bool(self.ask(sql, self._asked(kinds, upto)))

    def next_due(self, kinds: Iterable[str]) -> float | None:
        """Return the seconds until a job can be taken, 0 for now; None if none waits."""
        when = f"CASE WHEN {_LEASED} THEN lease WHEN {_DUE} THEN :now ELSE due END"
        asked = self._asked(kinds)
        found = self.ask(f"SELECT min({when}) FROM jobs WHERE {_WANTED} AND {_FIRST}", asked)
        return max(0.0, found[0][0] - asked["now"]) if found and found[0][0] is not None else None

    def report(self) -> dict[str, int]:
        """Return ``{"pending": n, "failing": pending ones that failed before, "given_up": n}``."""
        sql = "SELECT sum(given_up = 0), sum(given_up = 0 AND attempts > 0), sum(given_up) FROM jobs"
        [counts] = self.ask(sql) or [(0, 0, 0)]
        return {name: count or 0 for name, count in zip(("pending", "failing", "given_up"), counts, strict=True)}

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

    def note_places(self, places: Sequence[tuple[str, str, tuple[str, ...]]]) -> None:
        """Keep, for later feedback, the user's digest ("" if it is not known) and the namespace of runs."""
        if not places:
            return
        with self.writing() as database:
            database.executemany(
                """INSERT OR REPLACE INTO places SELECT :run, :namespace,
                coalesce(nullif(:user, ''), (SELECT user FROM places WHERE run = :run), '')""",
                [{"run": run, "user": user, "namespace": json.dumps(namespace)} for run, user, namespace in places],
            )
            database.execute("DELETE FROM places WHERE rowid <= (SELECT max(rowid) FROM places) - ?", (MAX_PLACES,))

    def place_of(self, run: str) -> tuple[tuple[str, ...] | None, str]:
        """Return the namespace of a run's rows, None if it is not known, and the digest of its user, or "".

        Nothing is known if the file cannot be read.
        """
        with suppress(StorageError):
            for namespace, user in self.ask("SELECT namespace, user FROM places WHERE run = ?", (run,)):
                return tuple(json.loads(namespace)), user
        return None, ""

    def forget(self, user: str, *, runs: Collection[str] = (), before: float | None = None) -> int:
        """Delete jobs about a user or runs, or given up and due `before`, from the disk too; return how many.

        Raises:
            StorageError: another process reads the file all the time; do it again.
        """
        asked = {"user": user, "runs": json.dumps(list(runs)), "before": before}
        with self.writing() as database:
            deleted = database.execute(f"DELETE FROM jobs WHERE {_ABOUT} OR given_up = 1 AND due < :before", asked)
            database.execute(f"DELETE FROM places WHERE {_ABOUT}", asked)
        self.scrub()
        return deleted.rowcount

    def _asked(self, kinds: Iterable[str], upto: int = _EVER) -> dict[str, Any]:
        return {"now": self._now(), "kinds": json.dumps(list(kinds)), "upto": upto}
