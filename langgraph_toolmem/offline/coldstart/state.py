"""Progress of a cold start: its invented requests, their outcome, and the cost.

Every change is on disk when its method returns, so a killed process resumes: a request runs again only if its run was
not over. Data of a run is kept until its entry is written, and then wiped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from langgraph_toolmem.base.text import digest
from langgraph_toolmem.stores.cold_start import ColdStartTables

MOST_DEATHS: Final = 3
"""Process deaths during a request's run after which it is given up: it may cause them."""

Stage = Literal["waiting", "running", "ran", "done", "failed"]
Outcome = Literal["", "good", "wrong", "unjudged", "empty"]

_COLUMNS: Final = "id, text, tools, kind, stage, tries, entry, answer, judged, outcome, error"


@dataclass(frozen=True, slots=True)
class Query:
    """One invented request.

    Attributes:
        id: its identity.
        text: the user's words.
        tools: the tools that it needs, according to the model that invented it.
        kind: "one" or "several": the number of tools it should need.
        stage: ``waiting``; ``running``; ``ran``: its run is over, its entry not written; ``done``; ``failed``.
        tries: number of runs.
        entry: the run's entry as JSON values, from the end of the run until it is written.
        answer: the agent's last words.
        judged: True if the score in the entry is final.
        outcome: of a finished request: ``good``, ``wrong``, ``unjudged``, or ``empty`` (no tool was called, and
            nobody said that this was wrong).
        error: reason of a failure.
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
        """Fresh thread of the present run."""
        return f"bootstrap-{self.id}-{self.tries}"


class BootstrapState(ColdStartTables):
    """The requests of one namespace and their cost. Safe to use from several threads.

    One process at a time: the writer of a memory's folder holds its lock. Every method raises `StorageError` if the
    file cannot be used.

    Args:
        folder: the memory's; None for RAM.
        namespace: of the entries; each has its own requests.
        user: digest of the entries' user, or "".
    """

    def __init__(self, folder: Path | None, namespace: tuple[str, ...], *, user: str = "") -> None:
        super().__init__(folder)
        self._scope, self._user = digest("bootstrap", *namespace), user
        with self.opened():  # a file that cannot be used fails before anything is spent
            pass

    # --- requests ---

    def add(self, text: str, tools: Sequence[str], kind: str) -> bool:
        """Add a waiting request; return False if it is there already."""
        key = digest("query", self._scope, text)
        with self.writing() as database:
            found = database.execute(
                "INSERT OR IGNORE INTO queries (scope, user, id, text, tools, kind) VALUES (?, ?, ?, ?, ?, ?)",
                (self._scope, self._user, key, text, json.dumps(list(tools)), kind),
            )
            return found.rowcount == 1

    def all(self) -> list[Query]:
        """Return all requests, the oldest first."""
        return self._select("1 = 1")

    def next(self, stage: Stage, *, but: Collection[str] = ()) -> Query | None:
        """Return the oldest request at a stage, except for the ids in `but`."""
        found = self._select("stage = ? AND id NOT IN (SELECT value FROM json_each(?))", stage, json.dumps([*but]))
        return found[0] if found else None

    def recover(self) -> int:
        """Requeue the running requests of a process that is gone; return their number."""
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
        """Requeue failed requests; return their number."""
        return len(self._update("stage = 'waiting', deaths = 0, error = ''", "stage = 'failed'"))

    def begin(self, query: Query) -> Query:
        """Start its run; return the request with its new `thread_id`."""
        return _query(self._update("stage = 'running', tries = tries + 1", "id = ?", query.id)[0])

    def again(self, query: Query) -> None:
        """Requeue an interrupted request."""
        self._update("stage = 'waiting'", "id = ?", query.id)

    def ran(self, query: Query, entry: dict[str, Any], answer: str, *, judged: bool) -> None:
        """Store the end of its run, which is never repeated."""
        self._update(
            "stage = 'ran', entry = ?, answer = ?, judged = ?, deaths = 0",
            "id = ?",
            *(json.dumps(entry), answer, int(judged), query.id),
        )

    def judged(self, query: Query, entry: dict[str, Any]) -> None:
        """Store the scored entry."""
        self._update("entry = ?, judged = 1", "id = ?", json.dumps(entry), query.id)

    def holds(self, query: Query) -> bool:
        """Return True if the request is there; its user may have been forgotten."""
        return bool(self._select("id = ?", query.id))

    def unjudged(self, query: Query) -> int:
        """Count a failure of the judge; return their number for this request."""
        return int(self._update("deaths = deaths + 1", "id = ?", query.id, returning="deaths")[0][0])

    def done(self, query: Query, outcome: Outcome) -> None:
        """Finish a request whose entry is written or needless, and wipe the data of its run."""
        wiped = "entry = NULL, answer = NULL, error = ''"
        self._update(f"stage = 'done', outcome = ?, {wiped}", "id = ?", outcome, query.id)

    def failed(self, query: Query, error: str) -> None:
        """Mark its run as failed."""
        self._update("stage = 'failed', error = ?", "id = ?", error, query.id)

    def counts(self) -> dict[str, int]:
        """Count requests by stage, finished ones by outcome."""
        what = "CASE stage WHEN 'done' THEN outcome ELSE stage END"
        sql = f"SELECT {what}, count(*) FROM queries WHERE scope = ? GROUP BY 1"
        return dict(self.ask(sql, (self._scope,)))

    # --- what was spent ---

    def spent(self, purpose: str | None = None) -> tuple[int, int]:
        """Return model calls and tokens so far, of one purpose or of all."""
        sql = "SELECT calls, tokens FROM spent WHERE scope = ? AND (? IS NULL OR purpose = ?)"
        found = self.ask(sql, (self._scope, purpose, purpose))
        return sum(calls for calls, _ in found), sum(tokens for _, tokens in found)

    def spend(self, purpose: str, *, calls: int = 0, tokens: int = 0) -> None:
        """Add to the cost."""
        with self.writing() as database:
            database.execute(
                "INSERT INTO spent (scope, purpose, calls, tokens) VALUES (?, ?, ?, ?) ON CONFLICT (scope, purpose) "
                "DO UPDATE SET calls = calls + excluded.calls, tokens = tokens + excluded.tokens",
                (self._scope, purpose, calls, tokens),
            )

    def spend_within(self, budget: Callable[[int, int], str], purpose: str, calls: int) -> str:
        """Add calls, unless the budget is spent: then return the reason."""
        with self.opened():  # one thread at a time
            if why := budget(*self.spent()):
                return why
            self.spend(purpose, calls=calls)
        return ""

    # --- the end ---

    def clear(self) -> int:
        """Delete the requests and their cost; return the number of requests."""
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


def _query(row: tuple[Any, ...]) -> Query:
    key, text, tools, kind, stage, tries, entry, answer, judged, outcome, error = row
    kept = None if entry is None else json.loads(entry)
    done = (answer or "", bool(judged), outcome, error)
    return Query(key, text, tuple(json.loads(tools)), kind, stage, tries, kept, *done)
