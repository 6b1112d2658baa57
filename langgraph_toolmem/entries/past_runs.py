"""Entries as past runs, for methods that learn from what was asked and called."""

from __future__ import annotations

from dataclasses import dataclass

from langgraph_toolmem.core.past_runs import PastRun, PastRunChanges
from langgraph_toolmem.entries.store import EntryStore


@dataclass(frozen=True)
class EntryRuns:
    """The runs that the entries of a store are about."""

    store: EntryStore

    def changes(self, since: int) -> PastRunChanges:
        """As `core.past_runs.PastRuns` has it."""
        new = self.store.changes(since)
        runs = [
            PastRun(
                entry.id,
                entry.query,
                tuple(call.tool for call in entry.calls if call.status == "ok"),
                entry.failed,
                entry.time,
            )
            for entry, _ in new.entries
        ]
        return PastRunChanges(new.version, new.whole, runs, new.gone)
