"""Where `ToolMemory` keeps what a decider was asked and what it decided, for fine-tuning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from langgraph_toolmem._core import MemoryCore
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.base.namespaces import has_user, user_digest
from langgraph_toolmem.graph.evidence import AUTHOR, OWNER, SCORE

if TYPE_CHECKING:
    from langgraph_toolmem.navigator.decide.recording import DecisionLog

DECISIONS_FILE: Final = "decisions.db"


class KeepingDecisions(MemoryCore):
    """The log of decisions: nothing is recorded until it is given to a subgraph."""

    @property
    def decisions(self) -> DecisionLog:
        """The log of decisions, for ``create_navi_subgraph(..., on_decision=memory.decisions)``.

        Opt-in, as it keeps prompts, and so what users said, in the memory's folder; `forget` deletes a user's turns.
        ``toolmem export --sft`` writes them out for fine-tuning.
        """
        with self._lock:
            if self._made_decisions is None:
                if self._closed:
                    raise StorageError("The memory is closed. Make a new one to go on.")
                from langgraph_toolmem.navigator.decide.recording import (
                    DecisionLog,  # SQLite: only when decisions are kept
                )

                self._made_decisions = DecisionLog(
                    self._root,
                    now=self._now,
                    verdict_of=self._verdict_of,
                    owner_of=self._graph.owner,
                    needs_user=has_user(self.namespace),
                    read_only=self._store.read_only,
                )
            return self._made_decisions

    def _verdict_of(self, run: str, user: str) -> float | None:
        """The verdict on a run, unless it is another user's run with the same id that was judged."""
        with self._lock:
            entry = self._graph.runs.get(run)
        if entry is None or (user and entry[AUTHOR] not in (None, user)):
            return None
        score: float | None = entry[SCORE]
        return score

    def _forget_decisions(self, user_id: str) -> int:
        """Deletes the turns of a user; before the graph forgets whose runs are whose."""
        if self._made_decisions is None and (self._root is None or not (self._root / DECISIONS_FILE).exists()):
            return 0
        user = str(user_digest(user_id))
        with self._lock:
            own = [run for run, entry in self._graph.runs.items() if entry[OWNER] == user]
        return self.decisions.forget(user, own)

    def _close_decisions(self) -> None:
        if self._made_decisions is not None:
            self._made_decisions.close()
