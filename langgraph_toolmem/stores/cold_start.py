"""How far a cold start is, on disk: each invented request, what became of it, and what was spent.

One SQLite file, ``bootstrap.db``, in the memory's folder. Every change is on disk when its method returns, so a process
that is killed goes on where it was: a request is run again only if its run had not come to an end. What a run left
behind is kept until its entry is written, and then wiped.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.base.keys import digest

NAME: Final = "bootstrap.db"
FORMAT: Final = 1
MOST_DEATHS: Final = 3
"""A request during whose run the process died so often is given up: it may be what ends the process."""

Stage = Literal["waiting", "running", "ran", "done", "failed"]
Outcome = Literal["", "good", "wrong", "unjudged", "empty"]

_SCHEMA: Final = (
    """
    CREATE TABLE IF NOT EXISTS queries (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        scope TEXT NOT NULL,
        user TEXT NOT NULL,
        id TEXT NOT NULL UNIQUE,
        text TEXT NOT NULL,
        tools TEXT NOT NULL,
        kind TEXT NOT NULL,
        stage TEXT NOT NULL DEFAULT 'waiting',
        tries INTEGER NOT NULL DEFAULT 0,
        deaths INTEGER NOT NULL DEFAULT 0,
        entry TEXT,
        answer TEXT,
        judged INTEGER NOT NULL DEFAULT 0,
        outcome TEXT NOT NULL DEFAULT '',
        error TEXT NOT NULL DEFAULT ''
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS spent (
        scope TEXT NOT NULL,
        purpose TEXT NOT NULL,
        calls INTEGER NOT NULL,
        tokens INTEGER NOT NULL,
        PRIMARY KEY (scope, purpose)
    )
    """,
    "CREATE INDEX IF NOT EXISTS queries_stage ON queries (scope, stage, seq)",
)
_COLUMNS: Final = "id, text, tools, kind, stage, tries, entry, answer, judged, outcome, error"


@dataclass(frozen=True, slots=True)
class Query:
    """One invented request.

    Attributes:
        id: its identity.
        text: what a user would say.
        tools: the tools that it needs, as the model that invented it thinks.
        kind: "one" or "several": how many tools it was to need.
        stage: ``waiting``; ``running``; ``ran``: its run is over, its entry not written; ``done``; ``failed``.
        tries: how often its run was begun.
        entry: what is to become of the run, as JSON values; None before it is over and after the entry is written.
        answer: the agent's last words.
        judged: whether the verdict in the entry is final.
        outcome: of a request that is done: ``good``, ``wrong``, ``unjudged``, or ``empty`` (no tool was called, and
            nobody said that this was wrong).
        error: why it failed.
    """

    id: str
    text: str
    tools: tuple[str, ...] = ()
    kind: str = "one"
    stage: Stage = "waiting"
    tries: int = 0
    entry: dict[str, Any] | None = None
    answer: str = ""
    judged: bool = False
    outcome: Outcome = ""
    error: str = ""

    @property
    def thread_id(self) -> str:
        """Identity of the present run: a thread that nobody had before."""
        return f"bootstrap-{self.id}-{self.tries}"


class BootstrapState:
    """The requests of one namespace, and what they cost. Safe to use from several threads.

    One process at a time: whoever writes to the memory's folder holds its lock.
    Every method raises `StorageError` if the file cannot be used.

    Args:
        folder: the memory's; None: in RAM.
        namespace: where the entries go; each has requests of its own.
        user: digest of the user whose entries they become, or "".
        name: of the file.
    """

    def __init__(self, folder: Path | None, namespace: tuple[str, ...], *, user: str = "", name: str = NAME) -> None:
        self._path = None if folder is None else folder / name
        self._scope, self._user = digest("bootstrap", *namespace), user
        self._lock = threading.RLock()
        self._database: sqlite3.Connection | None = None
        self._closed = False
        with self.opened():  # a file that cannot be used is told before anything is spent
            pass

    def __enter__(self) -> BootstrapState:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- requests ---

    def add(self, text: str, tools: Sequence[str], kind: str) -> bool:
        """A new request waits; False if it is there already."""
        key = digest("query", self._scope, text)
        with self.writing() as database:
            found = database.execute(
                "INSERT OR IGNORE INTO queries (scope, user, id, text, tools, kind) VALUES (?, ?, ?, ?, ?, ?)",
                (self._scope, self._user, key, text, json.dumps(list(tools)), kind),
            )
            return found.rowcount == 1

    def all(self) -> list[Query]:
        """All requests, the oldest first."""
        return self._select("1 = 1")

    def next(self, stage: Stage, *, but: Collection[str] = ()) -> Query | None:
        """The oldest request at a stage, ids in `but` left out."""
        return next((query for query in self._select("stage = ?", stage) if query.id not in but), None)

    def recover(self) -> int:
        """Takes back what a process that is gone was running; returns how many requests that were."""
        with self.writing() as database:
            found = database.execute(
                "UPDATE queries SET deaths = deaths + 1, stage = 'waiting' WHERE scope = ? AND stage = 'running'",
                (self._scope,),
            ).rowcount
            database.execute(
                "UPDATE queries SET stage = 'failed', error = ? WHERE scope = ? AND stage = 'waiting' AND deaths >= ?",
                (f"the process ended {MOST_DEATHS} times while it was run", self._scope, MOST_DEATHS),
            )
        return found

    def retry_failed(self) -> int:
        """Has requests whose run failed wait again; returns how many."""
        return self._update("stage = 'waiting', deaths = 0, error = '' WHERE stage = 'failed'")

    def begin(self, query: Query) -> Query:
        """Its run begins, in a fresh thread. Returns the request with its new `thread_id`."""
        self._update("stage = 'running', tries = tries + 1 WHERE id = ?", query.id)
        return self._select("id = ?", query.id)[0]

    def again(self, query: Query) -> None:
        """Its run was broken off and is to be done another time."""
        self._update("stage = 'waiting' WHERE id = ?", query.id)

    def ran(self, query: Query, entry: dict[str, Any], answer: str, *, judged: bool) -> None:
        """Its run is over. From now on it is never run again."""
        self._update(
            "stage = 'ran', entry = ?, answer = ?, judged = ?, deaths = 0 WHERE id = ?",
            *(json.dumps(entry), answer, int(judged), query.id),
        )

    def judged(self, query: Query, entry: dict[str, Any]) -> None:
        """The entry has its verdict."""
        self._update("entry = ?, judged = 1 WHERE id = ?", json.dumps(entry), query.id)

    def holds(self, query: Query) -> bool:
        """Whether the request is there; its user may have been forgotten."""
        return bool(self._select("id = ?", query.id))

    def unjudged(self, query: Query) -> int:
        """The judge failed; returns how often it did for this request."""
        self._update("deaths = deaths + 1 WHERE id = ?", query.id)
        with self.opened() as database:
            return int(database.execute("SELECT deaths FROM queries WHERE id = ?", (query.id,)).fetchone()[0])

    def done(self, query: Query, outcome: Outcome) -> None:
        """The entry is written, or there is nothing to write. What the run left behind is wiped."""
        self._update(
            "stage = 'done', outcome = ?, entry = NULL, answer = NULL, error = '' WHERE id = ?", outcome, query.id
        )

    def failed(self, query: Query, error: str) -> None:
        """Its run failed."""
        self._update("stage = 'failed', error = ? WHERE id = ?", error, query.id)

    def counts(self) -> dict[str, int]:
        """How many requests there are by stage, and of those that are done by outcome."""
        what = "CASE stage WHEN 'done' THEN outcome ELSE stage END"
        sql = f"SELECT {what}, count(*) FROM queries WHERE scope = ? GROUP BY 1"
        with self.opened() as database:
            return dict(database.execute(sql, (self._scope,)).fetchall())

    # --- what was spent ---

    def spent(self, purpose: str | None = None) -> tuple[int, int]:
        """Model calls and tokens so far, of one purpose or of all."""
        with self.opened() as database:
            found = database.execute(
                "SELECT coalesce(sum(calls), 0), coalesce(sum(tokens), 0) FROM spent "
                "WHERE scope = ? AND (? IS NULL OR purpose = ?)",
                (self._scope, purpose, purpose),
            ).fetchone()
        return int(found[0]), int(found[1])

    def spend(self, purpose: str, *, calls: int = 0, tokens: int = 0) -> None:
        """Adds to what was spent."""
        with self.writing() as database:
            database.execute(
                "INSERT INTO spent (scope, purpose, calls, tokens) VALUES (?, ?, ?, ?) ON CONFLICT (scope, purpose) "
                "DO UPDATE SET calls = calls + excluded.calls, tokens = tokens + excluded.tokens",
                (self._scope, purpose, calls, tokens),
            )

    def spend_within(self, budget: Callable[[int, int], str], purpose: str, calls: int) -> str:
        """Adds calls, unless the budget for these calls and tokens is spent: then it says why."""
        with self._lock:
            if why := budget(*self.spent()):
                return why
            self.spend(purpose, calls=calls)
        return ""

    # --- the end ---

    def clear(self) -> int:
        """Forgets the requests and what they cost; returns how many requests there were."""
        with self.writing() as database:
            found = database.execute("DELETE FROM queries WHERE scope = ?", (self._scope,)).rowcount
            database.execute("DELETE FROM spent WHERE scope = ?", (self._scope,))
        self._scrub()
        return found

    def close(self) -> None:
        """Closes the file. Twice is harmless."""
        with self._lock:
            database, self._database, self._closed = self._database, None, True
            if database is not None:
                database.close()

    def _select(self, where: str, *values: Any) -> list[Query]:
        sql = f"SELECT {_COLUMNS} FROM queries WHERE scope = ? AND {where} ORDER BY seq"
        with self.opened() as database:
            return [_query(row) for row in database.execute(sql, (self._scope, *values)).fetchall()]

    def _update(self, change: str, *values: Any) -> int:
        what, where = change.split(" WHERE ")
        with self.writing() as database:
            sql = f"UPDATE queries SET {what} WHERE {where} AND scope = ?"
            return database.execute(sql, (*values, self._scope)).rowcount

    def _scrub(self) -> None:
        with self.opened() as database:
            database.execute("VACUUM")
            busy = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if busy:
            raise StorageError(f"{self._path or NAME} is in use; old pages are still on disk. Do it again.")

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The database for one transaction."""
        with self.opened() as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
                database.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    database.execute("ROLLBACK")
                raise

    @contextmanager
    def opened(self) -> Iterator[sqlite3.Connection]:
        """The database, to be read."""
        with self._lock:
            try:
                if self._closed:  # a thread that was left alone may come late
                    raise sqlite3.ProgrammingError("it is closed")
                if self._database is None:
                    self._database = _connect(self._path)
                yield self._database
            except (sqlite3.Error, OSError) as error:
                where = "the state of the cold start" if self._path is None else str(self._path)
                raise StorageError(
                    f"{where} cannot be used: {error}. Check that it can be read and written and that the disk is not "
                    "full; if it is damaged, delete it: entries that were written stay."
                ) from error


def forget_user(folder: Path, user: str) -> int:
    """Deletes what a cold start for a user (digest) left in the folder; returns how many requests.

    Raises:
        StorageError: the file cannot be used.
    """
    if not (folder / NAME).exists():
        return 0
    with BootstrapState(folder, ()) as state:
        with state.writing() as database:
            scopes = database.execute("SELECT DISTINCT scope FROM queries WHERE user = ?", (user,)).fetchall()
            found = database.execute("DELETE FROM queries WHERE user = ?", (user,)).rowcount
            database.executemany("DELETE FROM spent WHERE scope = ?", scopes)
        state._scrub()  # whatever was found: the last time it may have failed behind this point
    return found


def _query(row: tuple[Any, ...]) -> Query:
    key, text, tools, kind, stage, tries, entry, answer, judged, outcome, error = row
    return Query(
        id=key,
        text=text,
        tools=tuple(json.loads(tools)),
        kind=kind,
        stage=stage,
        tries=tries,
        entry=None if entry is None else json.loads(entry),
        answer=answer or "",
        judged=bool(judged),
        outcome=outcome,
        error=error,
    )


def _connect(path: Path | None) -> sqlite3.Connection:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    place = ":memory:" if path is None else str(path)
    # Callbacks of models come from any thread; the lock lets one in at a time.
    database = sqlite3.connect(place, timeout=30.0, isolation_level=None, check_same_thread=False)
    try:
        database.execute("PRAGMA secure_delete = ON")
        _check_format(database.execute("PRAGMA user_version").fetchone()[0], place)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA:
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {FORMAT}")
        database.execute("COMMIT")
    except BaseException:
        database.close()
        raise
    return database


def _check_format(found: int, place: str) -> None:
    if found > FORMAT:
        raise StorageError(f"{place} was written by a newer version of this package (format {found}); update it.")
