"""`Office`: the sandbox. Its tools change its own data and nothing else; a reset brings everything back."""

from __future__ import annotations

import copy
import random
import threading
from typing import Any

from langchain_core.tools import StructuredTool, ToolException

from .data import TODAY, Database, make_database, make_id, make_metrics
from .tools import DOMAINS, Access, Spec

__all__ = ["ALTERNATIVES", "TODAY", "Office"]

ALTERNATIVES: dict[str, tuple[str, ...]] = {
    "find_person": ("search_directory",),
    "list_emails": ("search_mailbox",),
    "read_email": ("export_email",),
    "list_events": ("read_calendar",),
    "search_customers": ("lookup_account",),
    "get_metric": ("query_metric",),
    "search_files": ("list_files",),
    "complete_task": ("update_task",),
    "assign_task": ("update_task",),
}
"""Tools that can stand in for one that fails: same effect or same knowledge, other arguments and output."""


class Office:
    """An office with people, mail, a calendar, customers, tasks, metrics and files.

    Args:
        seed: what is in it; the same seed gives the same office, ids included.
    """

    def __init__(self, seed: int = 0) -> None:
        """See the class."""
        self._lock = threading.RLock()
        self._failures: dict[str, _Failures] = {}
        self.seed = seed
        self.reset()

    def reset(self, seed: int | None = None) -> None:
        """Bring back the first day; another seed gives another office. Injected failures are taken out."""
        with self._lock:
            self.seed = self.seed if seed is None else seed
            self._database: Database = copy.deepcopy(_fresh(self.seed))
            self._metrics = make_metrics(self.seed)
            self._made = 0
            self._failures.clear()

    def state(self) -> Database:
        """A copy of everything tools can change: collection -> id -> record. Equal states compare equal."""
        with self._lock:
            return copy.deepcopy(self._database)

    def snapshot(self) -> tuple[Database, int]:
        """What `restore` takes: the state, and how many ids were given."""
        with self._lock:
            return self.state(), self._made

    def restore(self, kept: tuple[Database, int]) -> None:
        """Bring back what `snapshot` kept."""
        with self._lock:
            self._database, self._made = copy.deepcopy(kept[0]), kept[1]

    def inject(
        self, tool: str, *, failures: int | None = None, probability: float | None = None, seed: int = 0
    ) -> None:
        """Make a tool fail, before it has any effect.

        Args:
            tool: its name.
            failures: the next n calls fail.
            probability: each call fails with this probability, drawn from `seed`.
            seed: seed of the draws.

        Raises:
            ValueError: no such tool, or neither or both of `failures` and `probability` given.
        """
        if tool not in {spec.name for domain in DOMAINS for spec in domain}:
            raise ValueError(f"the office has no tool {tool!r}")
        if (failures is None) == (probability is None):
            raise ValueError("give either failures or probability")
        with self._lock:
            self._failures[tool] = _Failures(failures or 0, probability or 0.0, random.Random(seed))

    def tools(self) -> list[StructuredTool]:
        """The tools, bound to this office. Errors come back as ``Error: …`` with status "error"."""
        access = Access(self._database_now, self._new_id, lambda: self._metrics)
        return [self._bind(spec, access) for domain in DOMAINS for spec in domain]

    def _bind(self, spec: Spec, access: Access) -> StructuredTool:
        function = spec.bind(access)

        def run(**arguments: Any) -> Any:
            with self._lock:
                planned = self._failures.get(spec.name)
                if planned is not None and planned.strikes():
                    raise ToolException(f"Error: {spec.name} is not available at the moment.")
                # A copy: a later call must not change what an earlier one returned.
                return copy.deepcopy(function(**arguments))

        return StructuredTool.from_function(
            run,
            name=spec.name,
            args_schema=spec.schema,
            description=spec.description,
            tags=list(spec.tags) or None,
            handle_tool_error=True,
        )

    def _database_now(self) -> Database:
        return self._database

    def _new_id(self, prefix: str, *parts: object) -> str:
        self._made += 1
        return make_id(prefix, self._made, *parts)


class _Failures:
    def __init__(self, count: int, probability: float, rng: random.Random) -> None:
        self.count, self.probability, self.rng = count, probability, rng

    def strikes(self) -> bool:
        if self.count > 0:
            self.count -= 1
            return True
        return self.probability > 0 and self.rng.random() < self.probability


_cache: dict[int, Database] = {}


def _fresh(seed: int) -> Database:
    # Making an office takes a few milliseconds, a reset happens before every task.
    if seed not in _cache:
        _cache[seed] = make_database(seed)
    return _cache[seed]
