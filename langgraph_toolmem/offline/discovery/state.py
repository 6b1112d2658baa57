"""How far a discovery is, on disk: what became of each task, what was spent, and what models answered.

One SQLite file, ``discovery.db``. A task's outcome is on disk when its search is over, and is never searched again. A
search that was killed begins again from its task's own seed; what models had answered it is read from the file, so it
comes to where it was without asking them twice.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from langgraph_toolmem.stores.cold_start import BootstrapState, Query

NAME: Final = "discovery.db"
_ANSWERS: Final = """
CREATE TABLE IF NOT EXISTS answers (
    scope TEXT NOT NULL,
    task TEXT NOT NULL,
    question TEXT NOT NULL,
    answer TEXT NOT NULL,
    PRIMARY KEY (scope, task, question)
)
"""
_WORDS: Final = "words"


class DiscoveryState(BootstrapState):
    """The tasks of one discovery, and what they cost. Safe to use from several threads; one process at a time.

    Every method raises `StorageError` if the file cannot be used.

    Args:
        folder: where the file is; None: in RAM.
        scope: digest of what makes outcomes comparable: tools, seed, settings, policy.
    """

    def __init__(self, folder: Path | None, scope: str) -> None:
        super().__init__(folder, ("discovery", scope), name=NAME)
        with self.writing() as database:
            database.execute(_ANSWERS)

    def finish(self, query: Query, outcome: dict[str, Any]) -> None:
        """The search of a task is over: its outcome is kept, what models answered is no longer needed."""
        self.ran(query, outcome, "", judged=True)
        with self.writing() as database:
            database.execute("DELETE FROM answers WHERE scope = ? AND task = ?", (self._scope, query.id))

    def others(self) -> int:
        """How many outcomes the file holds of other tools, seeds, settings or models."""
        with self.opened() as database:
            found = database.execute(
                "SELECT count(*) FROM queries WHERE stage = 'ran' AND scope != ?", (self._scope,)
            ).fetchone()
        return int(found[0])

    def answer(self, query: Query, question: str) -> Any:
        """What a model answered to this question of this task; None if it was not asked."""
        with self.opened() as database:
            found = database.execute(
                "SELECT answer FROM answers WHERE scope = ? AND task = ? AND question = ?",
                (self._scope, query.id, question),
            ).fetchone()
        return None if found is None else json.loads(found[0])

    def answered(self, query: Query, question: str, answer: Any) -> None:
        """A model has answered."""
        with self.writing() as database:
            database.execute(
                "INSERT OR REPLACE INTO answers (scope, task, question, answer) VALUES (?, ?, ?, ?)",
                (self._scope, query.id, question, json.dumps(answer)),
            )

    def words(self, atom: str) -> Any:
        """What a model said of the steps with this model-free atom (its id): {"answer": …}; None if it was not asked.

        Of whatever settings the search was: the words are about the step.
        """
        with self.opened() as database:
            found = database.execute(
                "SELECT answer FROM answers WHERE scope = ? AND task = ? AND question = ?", (_WORDS, "", atom)
            ).fetchone()
        return None if found is None else json.loads(found[0])

    def worded(self, atom: str, answer: Any) -> None:
        """A model has said something of a step."""
        with self.writing() as database:
            database.execute(
                "INSERT OR REPLACE INTO answers (scope, task, question, answer) VALUES (?, ?, ?, ?)",
                (_WORDS, "", atom, json.dumps({"answer": answer})),
            )
