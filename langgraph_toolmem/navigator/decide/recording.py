"""Prompts and decisions of the decider, kept for fine-tuning. Opt-in: prompts hold what users said.

``memory.navigator.decisions`` is the memory's `DecisionLog`; the subgraph fills it::

    create_navi_subgraph(model, tools, memory, on_decision=memory.navigator.decisions)

and ``export_sft(memory.navigator.decisions, "train.jsonl")`` of `offline.finetuning` writes it out.

A table of the memory's database: what was recorded is on disk when the call returns, and several processes may record
at once. A turn is known by its run, its step and its prompt, so a node that runs again replaces what it recorded
before. Runs and users stand there as digests.
"""

from __future__ import annotations

import json
import logging
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from langgraph_toolmem.base.checks import is_count
from langgraph_toolmem.base.errors import ConfigurationError, InputError, StorageError, log_failure
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.core.users import user_digest
from langgraph_toolmem.graph.events import Forgotten
from langgraph_toolmem.stores.database import Database

logger = logging.getLogger("langgraph_toolmem.navigator.decide.recording")

MAX_TURNS: Final = 20_000
"""Turns that are kept; the oldest leave. A turn takes about 4 KB with a prompt of 9,000 characters."""
REST_SECONDS: Final = 10.0
"""After a failure of the disk, nothing is recorded for so long: a run must not wait for it at each step."""

TABLES: Final[Mapping[str, str]] = {
    "turns": """
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        run TEXT NOT NULL,
        task TEXT NOT NULL,
        step INTEGER NOT NULL,
        prompt TEXT NOT NULL,
        same TEXT NOT NULL,
        user TEXT NOT NULL,
        time REAL NOT NULL,
        final INTEGER NOT NULL,
        calls INTEGER NOT NULL,
        failed INTEGER,
        left_out INTEGER NOT NULL,
        body BLOB NOT NULL,
        UNIQUE (run, step, prompt),
        UNIQUE (user, seq)
    """
}


@dataclass(frozen=True, slots=True)
class DeciderTurn:
    """One recorded turn, without its texts (`DecisionLog.texts` has them).

    Attributes:
        number: grows with each turn that is recorded.
        run: digest of the run.
        task: digest of the request: equal for runs that were asked the same.
        step: which decision on the request it was, from 1.
        time: seconds since 1970.
        score: verdict on the run, 0 to 1; None if nobody judged it.
        calls: tool calls that it led to.
        failed: how many of these failed or were refused; None if that was never seen.
        left_out: parts of it that could not be done: no such API, wrong parameters, done before.
        final: whether it answered the user.
        same: equal for turns with equal prompt and equal decision.
    """

    number: int
    run: str
    task: str
    step: int
    time: float
    score: float | None
    calls: int
    failed: int | None
    left_out: int
    final: bool
    same: str

    @property
    def went_well(self) -> bool:
        """Return True if all it asked for was done and answered."""
        return self.left_out == 0 and self.failed == 0


class DecisionLog(Database):
    """Keeps decisions with their prompts; safe to use from several threads and processes.

    Called with what a decision hook gets, it never raises: what cannot be kept is logged once.

    Args:
        folder: the memory's; the file is made with the first decision. None: in RAM.
        now: seconds since 1970.
        verdict_of: run and user (digests; "" if nobody was named) to the verdict on the run.
        owner_of: run to the digest of the user whose run it is, where a decision names none.
        needs_user: decisions of nobody are not kept, as nobody could have them forgotten.
        read_only: nothing is recorded.
        most: turns that are kept.
    """

    tables = TABLES
    busy = 3.0  # the agent is running

    def __init__(
        self,
        folder: Path | None,
        *,
        now: Callable[[], float] = time.time,
        verdict_of: Callable[[str, str], float | None] = lambda _run, _user: None,
        owner_of: Callable[[str], str | None] = lambda _: None,
        needs_user: bool = False,
        read_only: bool = False,
        most: int = MAX_TURNS,
    ) -> None:
        if not is_count(most, 1):
            raise ConfigurationError(f"most is a whole number from 1, not {most!r}.")
        super().__init__(folder, read_only=read_only)
        self._now, self._verdict_of, self._owner_of = now, verdict_of, owner_of
        self._needs_user, self._most = needs_user, most
        self._rest_until = float("-inf")
        self._said: set[str] = set()

    # --- recording ---

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Keeps one decision: see `record`."""
        self._quietly(lambda: self.record(event))

    def observed(self, event: Mapping[str, Any]) -> None:
        """Note the results of the calls of the latest decision of a run.

        Args:
            event: ``{"run", "step", "calls": [{"tool", "status"}]}``; "ok" is the status of a call that went well.
        """
        self._quietly(lambda: self._note(event))

    def record(self, event: Mapping[str, Any]) -> bool:
        """Keeps one decision; it is on disk when this returns.

        Args:
            event: ``messages`` in chat format and the ``decision``; ``thread_id``, ``run`` (its digest), ``step``,
                ``request``, ``user_id``, ``calls`` and ``left_out`` (numbers) as far as they are known.

        Returns:
            Whether it was kept: not in a read-only memory, and not without a user where memory is kept apart by user.

        Raises:
            InputError: the event is not of this form.
            StorageError: the file cannot be written.
        """
        if self.read_only:
            self._say("nothing is recorded: the memory is read-only")
            return False
        messages, decision = _texts(event)
        prompt = json.dumps(messages)
        body = json.dumps([messages, decision])
        run = str(event.get("run") or digest("run", str(event.get("thread_id") or prompt)))
        user = user_digest(event.get("user_id") or None) or self._owner_of(run) or ""
        if self._needs_user and not user:
            self._say("a decision is not recorded: the namespace has a place for a user, and the run names none")
            return False
        request = event.get("request")
        calls = int(event.get("calls") or 0)
        row = (
            run,
            digest("task", prompt if request is None else str(request)),
            int(event.get("step") or 0),
            digest("prompt", prompt),
            digest("turn", body),
            user,
            self._now(),
            int(_is_final(decision)),
            calls,
            None if calls else 0,
            int(event.get("left_out") or 0),
            zlib.compress(body.encode("ascii"), 6),
        )
        with self.writing() as database:
            database.execute(
                "INSERT INTO turns (run, task, step, prompt, same, user, time, final, calls, failed, left_out, body) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run, step, prompt) DO UPDATE SET "
                "same = excluded.same, user = excluded.user, time = excluded.time, final = excluded.final, "
                "calls = excluded.calls, failed = excluded.failed, left_out = excluded.left_out, body = excluded.body",
                row,
            )
            database.execute("DELETE FROM turns WHERE seq <= (SELECT max(seq) FROM turns) - ?", (self._most,))
        return True

    def _note(self, event: Mapping[str, Any]) -> None:
        if self.read_only or self.empty:
            return
        failed = sum(call["status"] != "ok" for call in event["calls"])
        with self.writing() as database:
            database.execute(
                "UPDATE turns SET failed = ? WHERE calls > 0 AND seq = "
                "(SELECT seq FROM turns WHERE run = ? AND step = ? ORDER BY time DESC, seq DESC LIMIT 1)",
                (failed, str(event["run"]), int(event["step"])),
            )

    # --- looking ---

    def __len__(self) -> int:
        """Return how many turns are kept. Raises StorageError if the file cannot be read."""
        return sum(number for (number,) in self.ask("SELECT count(*) FROM turns"))

    def turns(self) -> list[DeciderTurn]:
        """All turns with the verdicts on their runs, in the order they were recorded.

        Raises:
            StorageError: the file cannot be read.
        """
        columns = "seq, run, task, step, time, calls, failed, left_out, final, same, user"
        return [
            DeciderTurn(seq, run, task, step, when, self._verdict_of(run, user), calls, failed, left, bool(final), same)
            for seq, run, task, step, when, calls, failed, left, final, same, user in self.ask(
                f"SELECT {columns} FROM turns ORDER BY seq"
            )
        ]

    def texts(self, turns: Iterable[DeciderTurn]) -> Iterator[tuple[list[dict[str, Any]], dict[str, Any]]]:
        """Prompt in chat format and decision of each of these turns; one that was deleted meanwhile is passed over.

        Raises:
            StorageError: the file cannot be read.
        """
        for turn in turns:
            found = self.ask("SELECT body FROM turns WHERE seq = ? AND same = ?", (turn.number, turn.same))
            if found:
                messages, decision = json.loads(zlib.decompress(found[0][0]))
                yield messages, decision

    # --- forgetting ---

    def forget(self, gone: Forgotten) -> int:
        """Deletes all turns of a user and of runs of theirs, of runs, or before a time, from the file and its log;
        returns how many.

        Raises:
            StorageError: another process reads the file all the time; do it again.
        """
        if self.empty:
            return 0
        theirs = "user = '' AND " if gone.user else ""
        with self.writing() as database:
            deleted = 0
            if gone.user:
                deleted += database.execute("DELETE FROM turns WHERE user = ?", (gone.user,)).rowcount
            if gone.before is not None:
                deleted += database.execute("DELETE FROM turns WHERE time < ?", (gone.before,)).rowcount
            for run in gone.runs:
                deleted += database.execute(f"DELETE FROM turns WHERE {theirs}run = ?", (run,)).rowcount
        if deleted or gone.before is None:
            self.scrub()
        return deleted

    def _quietly(self, keep: Callable[[], object]) -> None:
        if self._now() < self._rest_until:
            return
        try:
            keep()
        except Exception as error:  # noqa: BLE001 - whoever looks on must not stop the run
            if isinstance(error, StorageError):
                self._rest_until = self._now() + REST_SECONDS
            kind = type(error).__name__
            if kind not in self._said:
                self._said.add(kind)
                log_failure(logger, logging.ERROR, "a decision could not be recorded (logged once)", error=error)

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            logger.warning("%s", text)


def _texts(event: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    try:
        messages, decision = list(event["messages"]), dict(event["decision"])
        json.dumps([messages, decision])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"A decision comes as JSON values under 'messages' and 'decision': {error!r}.") from error
    return messages, decision


def _is_final(decision: Mapping[str, Any]) -> bool:
    parts = decision.get("sub_intents")
    return isinstance(parts, list) and all(isinstance(part, dict) and part.get("action") == "answer" for part in parts)
