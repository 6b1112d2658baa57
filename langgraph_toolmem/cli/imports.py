"""Learning from recorded runs: `toolmem import`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langgraph_toolmem.base.errors import InputError, StorageError
from langgraph_toolmem.base.text import count
from langgraph_toolmem.cli.terminal import progress
from langgraph_toolmem.runs.run import Run
from langgraph_toolmem.runs.trajectory import parse_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from langgraph_toolmem.atoms.writer import AtomWriter
    from langgraph_toolmem.memory import ToolMemory
    from langgraph_toolmem.runs.logs import LoggedRun

BATCH = 200
"""Runs that are taken in at one go."""


@dataclass(frozen=True)
class Wanted:
    """Parts of an import beside calls and the states before them."""

    entries: bool = True
    atoms: bool = True
    writer: AtomWriter | None = None


@dataclass
class Imported:
    """Numbers of an import: runs kept, steps in atoms, runs without a label."""

    entries: int = 0
    atom_steps: int = 0
    atom_model_calls: int = 0
    unlabelled: int = 0

    def sentences(self) -> Iterator[str]:
        """Say it to a person."""
        if self.entries:
            yield f"Kept {count(self.entries, 'run')} for recall."
        if self.atom_steps:
            yield f"Made atoms of {count(self.atom_steps, 'step')} of successful runs, for planning."
        if self.atom_model_calls:
            yield f"It took {count(self.atom_model_calls, 'model call')}."


def import_runs(memory: ToolMemory, runs: Sequence[LoggedRun], wanted: Wanted, *, show: bool) -> Imported:
    """Learn runs, and keep them for recall.

    Raises:
        InputError: a run has no user id, and the namespace needs one; nothing was learned.
        StorageError: entries or atoms cannot be stored: import again. If another embedder made those that
            are there, nothing was learned.
        ToolMemoryError: the model failed. What was learned and written before is kept.
    """
    from langgraph_toolmem.atoms.mask import Habits

    core = memory.core
    if core.users.apart and (nobody := next((run for run in runs if run.user_id is None), None)):
        raise InputError(f"line {nobody.line} of the log has no 'user_id', which the namespace needs")
    core.vectors.check()
    done = Imported(unlabelled=sum(run.success is None for run in runs))
    good = (_read(run) for run in runs if run.success)
    options: dict[str, dict[str, Any] | None] = {
        "entries": {} if wanted.entries else None,
        "atoms": {"habits": Habits(good), "writer": wanted.writer} if wanted.atoms else None,
    }
    _learn(memory, runs, options, done, show=show)
    if wanted.writer is not None:
        done.atom_model_calls = wanted.writer.calls
    return done


def _learn(
    memory: ToolMemory,
    runs: Sequence[LoggedRun],
    options: Mapping[str, Mapping[str, Any] | None],
    done: Imported,
    *,
    show: bool,
) -> None:
    """Import runs part by part; what could not be stored is tried once more when all is learned."""

    def take(part: Iterable[LoggedRun]) -> None:
        judged = [(_read(run), None if run.success is None else float(run.success), run.user_id) for run in part]
        kept = memory.import_runs(judged, options)
        done.entries += kept.get("entries", 0)
        done.atom_steps += kept.get("atoms", 0)

    again: list[Sequence[LoggedRun]] = []
    with progress("learning", len(runs), show=show) as update:
        for start in range(0, len(runs), BATCH):
            part = runs[start : start + BATCH]
            try:
                take(part)
            except StorageError:
                again.append(part)
            update(start + len(part))
    for part in again:
        try:
            take(part)
        except StorageError as error:
            raise StorageError(f"the runs are learned, but not all could be kept; import again: {error}") from error


def _read(logged: LoggedRun) -> Run:
    return parse_run(logged.messages, thread_id=logged.thread_id)
