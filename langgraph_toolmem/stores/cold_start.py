"""How far a cold start is: each invented request, what became of it, and what was spent.

Tables of the memory's database. Every change is on disk when its method returns, so a process that is killed goes on
where it was: a request is run again only if its run had not come to an end. What a run left behind is kept until its
entry is written, and then wiped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.stores.database import Database, held_in

MOST_DEATHS: Final = 3
"""A request during whose run the process died so often is given up: it may be what ends the process."""

Stage = Literal["waiting", "running", "ran", "done", "failed"]
Outcome = Literal["", "good", "wrong", "unjudged", "empty"]

TABLES: Final[Mapping[str, str]] = {
    "queries": """
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
        error TEXT NOT NULL DEFAULT '',
        UNIQUE (scope, stage, seq)
    """,
    "spent": """
        scope TEXT NOT NULL,
        purpose TEXT NOT NULL,
        calls INTEGER NOT NULL,
        tokens INTEGER NOT NULL,
        PRIMARY KEY (scope, purpose)
    """,
}
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


class BootstrapState(Database):
    """The requests of one namespace, and what they cost. Safe to use from several threads.

    One process at a time: whoever writes to the memory's folder holds its lock.
    Every method raises `StorageError` if the file cannot be used.

    Args:
        folder: the memory's; None: in RAM.
        namespace: where the entries go; each has requests of its own.
        user: digest of the user whose entries they become, or "".
    """

    tables = TABLES

    def __init__(self, folder: Path | None, namespace: tuple[str, ...], *, user: str = "") -> None:
        super().__init__(folder)
        self._scope, self._user = digest("bootstrap", *namespace), user
        with self.opened():  # a file that cannot be used is told before anything is spent
            pass

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
        found = self._select("stage = ? AND id NOT IN (SELECT value FROM json_each(?))", stage, json.dumps([*but]))
        return found[0] if found else None

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
        return len(self._update("stage = 'waiting', deaths = 0, error = ''", "stage = 'failed'"))

    def begin(self, query: Query) -> Query:
        """Its run begins, in a fresh thread. Returns the request with its new `thread_id`."""
        return _query(self._update("stage = 'running', tries = tries + 1", "id = ?", query.id)[0])

    def again(self, query: Query) -> None:
        """Its run was broken off and is to be done another time."""
        self._update("stage = 'waiting'", "id = ?", query.id)

    def ran(self, query: Query, entry: dict[str, Any], answer: str, *, judged: bool) -> None:
        """Its run is over. From now on it is never run again."""
        self._update(
            "stage = 'ran', entry = ?, answer = ?, judged = ?, deaths = 0",
            "id = ?",
            *(json.dumps(entry), answer, int(judged), query.id),
        )

    def judged(self, query: Query, entry: dict[str, Any]) -> None:
        """The entry has its verdict."""
        self._update("entry = ?, judged = 1", "id = ?", json.dumps(entry), query.id)

    def holds(self, query: Query) -> bool:
        """Whether the request is there; its user may have been forgotten."""
        return bool(self._select("id = ?", query.id))

    def unjudged(self, query: Query) -> int:
        """The judge failed; returns how often it did for this request."""
        return int(self._update("deaths = deaths + 1", "id = ?", query.id, returning="deaths")[0][0])

    def done(self, query: Query, outcome: Outcome) -> None:
        """The entry is written, or there is nothing to write. What the run left behind is wiped."""
        wiped = "entry = NULL, answer = NULL, error = ''"
        self._update(f"stage = 'done', outcome = ?, {wiped}", "id = ?", outcome, query.id)

    def failed(self, query: Query, error: str) -> None:
        """Its run failed."""
        self._update("stage = 'failed', error = ?", "id = ?", error, query.id)

    def counts(self) -> dict[str, int]:
        """How many requests there are by stage, and of those that are done by outcome."""
        what = "CASE stage WHEN 'done' THEN outcome ELSE stage END"
        sql = f"SELECT {what}, count(*) FROM queries WHERE scope = ? GROUP BY 1"
        return dict(self.ask(sql, (self._scope,)))

    # --- what was spent ---

    def spent(self, purpose: str | None = None) -> tuple[int, int]:
        """Model calls and tokens so far, of one purpose or of all."""
        sql = "SELECT calls, tokens FROM spent WHERE scope = ? AND (? IS NULL OR purpose = ?)"
        found = self.ask(sql, (self._scope, purpose, purpose))
        return sum(calls for calls, _ in found), sum(tokens for _, tokens in found)

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
        with self.opened():  # one thread at a time
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
        self.scrub()
        return found

    def _select(self, where: str, *values: Any) -> list[Query]:
        sql = f"SELECT {_COLUMNS} FROM queries WHERE scope = ? AND {where} ORDER BY seq"
        return [_query(row) for row in self.ask(sql, (self._scope, *values))]

    def _update(self, change: str, where: str, *values: Any, returning: str = _COLUMNS) -> list[tuple[Any, ...]]:
        sql = f"UPDATE queries SET {change} WHERE {where} AND scope = ? RETURNING {returning}"
        with self.writing() as database:
            return database.execute(sql, (*values, self._scope)).fetchall()


def forget_user(folder: Path, user: str) -> int:
    """Deletes what a cold start for a user (digest) left in the folder; returns how many requests.

    Raises:
        StorageError: the file cannot be used.
    """
    if held_in(folder) is None:
        return 0
    with BootstrapState(folder, ()) as state:
        with state.writing() as database:
            scopes = database.execute("SELECT DISTINCT scope FROM queries WHERE user = ?", (user,)).fetchall()
            found = database.execute("DELETE FROM queries WHERE user = ?", (user,)).rowcount
            database.executemany("DELETE FROM spent WHERE scope = ?", scopes)
        state.scrub()  # whatever was found: the last time it may have failed behind this point
    return found


def _query(row: tuple[Any, ...]) -> Query:
    key, text, tools, kind, stage, tries, entry, answer, judged, outcome, error = row
    kept = None if entry is None else json.loads(entry)
    done = (answer or "", bool(judged), outcome, error)
    return Query(key, text, tuple(json.loads(tools)), kind, stage, tries, kept, *done)
