"""Jobs that outlive the process: what is put is on disk before `JobQueue.put` returns.

Tables of the memory's database; several processes may use them at once. A job is taken with a lease. It is free again
when the lease is over, or at once when the process that took it is known to be dead (on this computer; not on Windows).

Whoever finishes a job shows the job as it was taken: a lease that was lost in between is told by the answer False,
and then nothing is changed.

Everything here blocks for a disk write: call it in a thread where an event loop runs.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from langgraph_toolmem.base.errors import InputError, StorageError
from langgraph_toolmem.stores.database import Database, Values
from langgraph_toolmem.stores.owners import ended, is_dead, new_owner

logger = logging.getLogger("langgraph_toolmem.stores.job_queue")

MAX_PLACES: Final = 200_000
MAX_WAITING, MAX_GIVEN_UP = 100_000, 10_000
"""Jobs that wait, further ones are refused; and that were given up and are kept to be revived, the oldest leave."""
TABLES: Final[Mapping[str, str]] = {
    "jobs": """
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        kind TEXT NOT NULL,
        line TEXT NOT NULL,
        user TEXT NOT NULL,
        due REAL NOT NULL,
        owner TEXT NOT NULL DEFAULT '',
        lease REAL NOT NULL DEFAULT 0,
        takes INTEGER NOT NULL DEFAULT 0,
        attempts INTEGER NOT NULL DEFAULT 0,
        error TEXT NOT NULL DEFAULT '',
        given_up INTEGER NOT NULL DEFAULT 0,
        payload TEXT NOT NULL,
        answer TEXT,
        UNIQUE (line, seq),
        UNIQUE (owner, seq)
    """,
    "forgettings": "number INTEGER PRIMARY KEY AUTOINCREMENT",
    "places": "run TEXT PRIMARY KEY, namespace TEXT NOT NULL, user TEXT NOT NULL",
}
_RUN: Final = "iif(json_valid(payload), json_extract(payload, '$.run'), '')"
_WANTED: Final = "(:kinds IS NULL OR kind IN (SELECT value FROM json_each(:kinds)))"
_HEAD: Final = f"""
    given_up = 0 AND {_WANTED} AND (line = '' OR NOT EXISTS (
        SELECT 1 FROM jobs AS older WHERE older.line = jobs.line AND older.seq < jobs.seq AND older.given_up = 0
    ))
"""
_DUE: Final = "iif(due > :now + 3600, 0, due)"  # nobody puts jobs off for so long: the clock was set back
_LOST: Final = "(takes >= :most OR NOT json_valid(payload))"
_COLUMNS: Final = "id, kind, payload, user, answer, takes, attempts, error"
_TAKE: Final = f"""
    UPDATE jobs SET takes = takes + 1, lease = :now + :lease, given_up = {_LOST}, owner = iif({_LOST}, '', :me),
        error = iif({_LOST}, 'damaged, or taken too often without an end', error)
    WHERE seq = (
        SELECT seq FROM jobs WHERE {_HEAD} AND {_DUE} <= :now AND (owner = '' OR lease <= :now) ORDER BY seq LIMIT 1
    )
    RETURNING given_up, {_COLUMNS}
"""


@dataclass(frozen=True, slots=True)
class Job:
    """One job as it was taken.

    Attributes:
        id: its identity.
        kind: what is to be done.
        payload: JSON values.
        user: digest of the user it is about, or "".
        answer: what `JobQueue.save` kept, None before.
        takes: how often it was taken, this time included.
        attempts: how often it failed.
        error: why it failed the last time; no text of a user.
    """

    id: str
    kind: str
    payload: dict[str, Any]
    user: str = ""
    answer: str | None = None
    takes: int = 0
    attempts: int = 0
    error: str = ""


class JobQueue(Database):
    """Jobs on disk, or in RAM. Safe to use from several threads and processes.

    Every method raises `StorageError` if the file cannot be used.

    Args:
        folder: the memory's folder, made with the first job. None: in RAM.
        now: seconds since 1970.
        lease: seconds after which a job that was taken and not finished is free again.
        max_takes: a job that was taken so often and never finished is given up: it may be what ends the process.
        read_only: see `Database`.
    """

    tables = TABLES

    def __init__(
        self,
        folder: Path | None,
        *,
        now: Callable[[], float],
        lease: float = 900.0,
        max_takes: int = 50,
        read_only: bool = False,
    ) -> None:
        super().__init__(folder, read_only=read_only)
        self._now, self._lease, self._max_takes = now, lease, max_takes
        self._me: tuple[int, str] = (-1, "")

    def put(
        self,
        key: str,
        payload: Mapping[str, Any],
        *,
        kind: str = "",
        line: str = "",
        user: str = "",
        after: float = 0,
        place: tuple[str, Sequence[str]] | None = None,
    ) -> bool:
        """Adds a job, unless one of that id waits already. It is on disk when this returns.

        Args:
            key: id of the job; one that was given up is tried again. payload: JSON values.
            kind: what is to be done; see `take`.
            line: jobs of one line are done one after the other, in the order they were put.
            user: digest of the user it is about; see `forget`.
            after: seconds before it is due.
            place: digest of a run and the namespace of its entry, to be kept for `place_of`.

        Returns:
            Whether it is new.

        Raises:
            InputError: no id, or the payload holds no JSON values.
            StorageError: `MAX_WAITING` jobs wait already.
        """
        if not key:
            raise InputError("A job needs an id.")
        try:
            text = json.dumps(dict(payload), ensure_ascii=True)
        except (TypeError, ValueError) as error:
            raise InputError(f"A job's payload holds JSON values only: {error}.") from error
        with self.writing() as database:
            [(span,)] = database.execute("SELECT ifnull(max(seq) - min(seq), 0) FROM jobs")  # no less than there are
            if span >= MAX_WAITING and (waiting := self.pending()) >= MAX_WAITING:
                raise StorageError(
                    f"{waiting:,} jobs wait to be done, and no more are taken: `toolmem doctor` says which, and why."
                )
            if place is not None:
                _note_place(database, *place, user)
            database.execute("DELETE FROM jobs WHERE id = ? AND given_up = 1", (key,))
            added = database.execute(
                "INSERT INTO jobs (id, kind, line, user, payload, due) VALUES (?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (id) DO NOTHING",
                (key, kind, line, user, text, self._now() + after),
            )
            return added.rowcount == 1

    def note_places(self, runs: Sequence[tuple[str, str]], namespace: Sequence[str]) -> None:
        """Keeps where the entries of runs are, for a verdict of somebody who does not know; the latest `MAX_PLACES`.

        Args:
            runs: digests of each run and of its user, or "".
            namespace: of the store their entries are in.
        """
        with self.writing() as database:
            for run, user in runs:
                _note_place(database, run, namespace, user)

    def place_of(self, run: str) -> tuple[str, ...] | None:
        """The namespace of a run's entry, if that was kept."""
        found = self.ask("SELECT namespace FROM places WHERE run = ?", (run,))
        return tuple(json.loads(found[0][0])) if found else None

    def owner_of(self, run: str) -> str:
        """Digest of the user whose entry that run's is; "" if that was not kept, or it is nobody's."""
        found = self.ask("SELECT user FROM places WHERE run = ?", (run,))
        return found[0][0] if found else ""

    def lent(self, kinds: Collection[str] | None = None) -> int:
        """How many jobs are being done."""
        return self._count(f"owner > '' AND given_up = 0 AND {_WANTED}", _kinds(kinds))

    def take(self, kinds: Collection[str] | None = None) -> Job | None:
        """The oldest job that is due and free, with a lease; None if there is none.

        Args:
            kinds: only these.
        """
        if self.empty:
            return None
        with self.writing() as database:
            self._free_the_dead(database)
            asked = {"me": self._owner(), "now": self._now(), "lease": self._lease, "most": self._max_takes}
            found = database.execute(_TAKE, asked | _kinds(kinds)).fetchall()
        if not found:
            return None
        given_up, *row = found[0]
        job = _job(row)
        if not given_up:
            return job
        logger.error("a %r job was given up: damaged, or taken %d times in vain", job.kind, job.takes - 1)
        return self.take(kinds)

    def holds(self, job: Job) -> bool:
        """Whether the job is there and still lent to who took it like this."""
        return self._count("id = ? AND owner = ? AND takes = ?", (job.id, self._owner(), job.takes)) == 1

    @property
    def forgettings(self) -> int:
        """How often `forget` was called, in whatever process."""
        return max((number for (number,) in self.ask("SELECT number FROM forgettings")), default=0)

    def save(self, job: Job, answer: str) -> bool:
        """Keeps what was found out for the job, for whoever takes it next."""
        return self._change("UPDATE jobs SET answer = ? WHERE ", job, answer)

    def done(self, job: Job) -> bool:
        """The job is done and goes."""
        return self._change("DELETE FROM jobs WHERE ", job)

    def retry(self, job: Job, after: float, *, limit: int | None = None, error: str = "") -> bool:
        """The job failed and is free again later.

        Args:
            job: as it was taken.
            after: seconds from now.
            limit: after so many failures it is given up: kept, but not taken again. None: never.
            error: why; no text of a user.

        Returns:
            Whether it will be tried again.
        """
        given_up = limit is not None and job.attempts + 1 >= limit
        if given_up and self._count("given_up = 1") >= MAX_GIVEN_UP:
            with self.writing() as database:
                database.execute("DELETE FROM jobs WHERE seq = (SELECT min(seq) FROM jobs WHERE given_up = 1)")
        sql = "UPDATE jobs SET owner = '', attempts = attempts + 1, due = ?, error = ?, given_up = ? WHERE "
        changed = self._change(sql, job, self._now() + after, error, given_up)
        return changed and not given_up

    def pending(self, kinds: Collection[str] | None = None) -> int:
        """How many jobs are waiting or being done; those given up are not counted."""
        return self._count(f"given_up = 0 AND {_WANTED}", _kinds(kinds))

    def next_due(self, kinds: Collection[str] | None = None) -> float | None:
        """Seconds until a job may be there to be taken, 0 if now; None if none waits."""
        # Only heads of lines: the others wait for them.
        sql = f"SELECT min(CASE WHEN owner = '' THEN {_DUE} ELSE lease END) FROM jobs WHERE {_HEAD}"
        dues = [due for (due,) in self.ask(sql, {"now": self._now(), **_kinds(kinds)}) if due is not None]
        return max(0.0, dues[0] - self._now()) if dues else None

    def given_up(self) -> list[Job]:
        """Jobs that failed too often, oldest first; `revive` has them tried again."""
        return [_job(row) for row in self.ask(f"SELECT {_COLUMNS} FROM jobs WHERE given_up = 1 ORDER BY seq")]

    def revive(self) -> int:
        """Has everything that was given up tried again, as if new; returns how many."""
        if self.empty:
            return 0
        with self.writing() as database:
            sql = "UPDATE jobs SET given_up = 0, attempts = 0, takes = 0, due = ? WHERE given_up = 1"
            return database.execute(sql, (self._now(),)).rowcount

    def report(self) -> dict[str, int]:
        """``{"pending": n, "failing": pending ones that failed before, "given_up": n}``."""
        wanted = {"failing": "given_up = 0 AND attempts > 0", "given_up": "given_up = 1"}
        return {"pending": self.pending(), **{name: self._count(where) for name, where in wanted.items()}}

    def troubles(self) -> list[str]:
        """What waits after failures or was given up, and why: five sentences at most."""
        sql = """
            SELECT kind, given_up, error, count(*) AS number FROM jobs WHERE given_up = 1 OR attempts > 0
            GROUP BY kind, given_up, error ORDER BY number DESC LIMIT 5
        """
        said = {0: "wait and were tried without success", 1: "were given up"}
        return [
            f"{number:,} {kind} jobs {said[up]} ({why or 'no reason known'})" for kind, up, why, number in self.ask(sql)
        ]

    def forget(self, user: str, *, runs: Collection[str] = (), before: float | None = None) -> int:
        """Deletes all jobs about a user or about runs, from the file and its log too; returns how many.

        Args:
            user: digest of the user; "": only runs are meant.
            runs: digests.
            before: what was given up and was due before then goes too.

        Raises:
            InputError: nobody and nothing is named.
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
        """Gives back what was taken, closes the file. Twice is harmless."""
        process, owner = self._me
        if process == os.getpid() and not self.empty:
            with contextlib.suppress(StorageError), self.writing() as database:
                database.execute("UPDATE jobs SET owner = '' WHERE owner = ?", (owner,))
        super().close()
        ended(owner)

    def _owner(self) -> str:
        """This queue object in this process."""
        if self._me[0] != os.getpid():
            self._me = os.getpid(), new_owner()
        return self._me[1]

    def _change(self, sql: str, job: Job, *values: Any) -> bool:
        if self.empty:
            return False
        with self.writing() as database:
            held = (*values, job.id, self._owner(), job.takes)
            return database.execute(f"{sql}id = ? AND owner = ? AND takes = ?", held).rowcount == 1

    def _count(self, where: str, values: Values = ()) -> int:
        return sum(number for (number,) in self.ask(f"SELECT count(*) FROM jobs WHERE {where}", values))

    def _free_the_dead(self, database: sqlite3.Connection) -> None:
        owners = database.execute("SELECT DISTINCT owner FROM jobs WHERE owner > ''").fetchall()
        for (owner,) in owners:
            if owner != self._owner() and is_dead(owner):
                database.execute("UPDATE jobs SET owner = '' WHERE owner = ?", (owner,))


def _note_place(database: sqlite3.Connection, run: str, namespace: Sequence[str], user: str) -> None:
    text = json.dumps(list(namespace), ensure_ascii=True)
    database.execute("INSERT OR REPLACE INTO places VALUES (?, ?, ?)", (run, text, user))
    database.execute("DELETE FROM places WHERE rowid <= (SELECT max(rowid) FROM places) - ?", (MAX_PLACES,))


def _kinds(kinds: Collection[str] | None) -> dict[str, Any]:
    return {"kinds": None if kinds is None else json.dumps(list(kinds))}


def _job(row: Sequence[Any]) -> Job:
    key, kind, payload, *rest = row
    found: dict[str, Any] = {}
    with contextlib.suppress(ValueError, TypeError):  # damaged
        found = dict(json.loads(payload))
    return Job(key, kind, found, *rest)
