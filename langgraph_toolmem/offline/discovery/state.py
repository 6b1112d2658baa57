"""How far a discovery is, on disk: the result of each task, what was spent, and what models answered.

A database like the memory's, ``discovery.db``, in the folder of what is found. A task's outcome is on disk when its
search is over, and is never searched again. A search that was killed begins again from its task's own seed; what models
had answered it is read from the file, so it comes to where it was without asking them twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from langgraph_toolmem.offline.coldstart.state import BootstrapState, Query

NAME: Final = "discovery.db"
_WORDS: Final = "words"


class DiscoveryState(BootstrapState):
    """The tasks of one discovery, and what they cost. Safe to use from several threads; one process at a time.

    Every method raises `StorageError` if the file cannot be used.

    Args:
        folder: where the file is; None: in RAM.
        scope: digest of what makes outcomes comparable: tools, seed, settings, policy.
    """

    tables: ClassVar[Mapping[str, str]] = {
        **BootstrapState.tables,
        "answers": """
            scope TEXT NOT NULL,
            task TEXT NOT NULL,
            question TEXT NOT NULL,
            answer TEXT NOT NULL,
            PRIMARY KEY (scope, task, question)
        """,
    }
    name = NAME

    def __init__(self, folder: Path | None, scope: str) -> None:
        super().__init__(folder, ("discovery", scope))

    def finish(self, query: Query, outcome: dict[str, Any]) -> None:
        """The search of a task is over: its outcome is kept, what models answered is no longer needed."""
        self.ran(query, outcome, "", judged=True)
        with self.writing() as database:
            database.execute("DELETE FROM answers WHERE scope = ? AND task = ?", (self._scope, query.id))

    def others(self) -> int:
        """Return how many outcomes the file holds of other tools, seeds, settings or models."""
        found = self.ask("SELECT count(*) FROM queries WHERE stage = 'ran' AND scope != ?", (self._scope,))
        return int(found[0][0])

    def answer(self, query: Query, question: str) -> Any:
        """Return what a model answered to this question of this task; None if it was not asked."""
        return self._known(self._scope, query.id, question)

    def answered(self, query: Query, question: str, answer: Any) -> None:
        """A model has answered."""
        self._note(self._scope, query.id, question, answer)

    def words(self, atom: str) -> Any:
        """Return a model's words on the steps with this model-free atom (its id): {"answer": …}; None if not asked.

        Of whatever settings the search was: the words are about the step.
        """
        return self._known(_WORDS, "", atom)

    def worded(self, atom: str, answer: Any) -> None:
        """A model has said something of a step."""
        self._note(_WORDS, "", atom, {"answer": answer})

    def _known(self, *question: str) -> Any:
        found = self.ask("SELECT answer FROM answers WHERE scope = ? AND task = ? AND question = ?", question)
        return json.loads(found[0][0]) if found else None

    def _note(self, scope: str, task: str, question: str, answer: Any) -> None:
        with self.writing() as database:
            database.execute(
                "INSERT OR REPLACE INTO answers (scope, task, question, answer) VALUES (?, ?, ?, ?)",
                (scope, task, question, json.dumps(answer)),
            )
