"""Learning from recorded runs: `toolmem import`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from langgraph_toolmem.base.errors import InputError, StorageError, ToolMemoryError
from langgraph_toolmem.base.text import count
from langgraph_toolmem.cli.terminal import progress
from langgraph_toolmem.core.method import EndedRun, Import
from langgraph_toolmem.runs.run import Run
from langgraph_toolmem.runs.trajectory import parse_run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from langchain_core.language_models import BaseChatModel

    from langgraph_toolmem.atoms.writer import AtomWriter
    from langgraph_toolmem.memory import ToolMemory
    from langgraph_toolmem.runs.logs import LoggedRun

BATCH = 200
"""Runs that are taken in at one go."""
BUILT_IN = ("none", "extractive")
"""Values of `--summaries` beside a model."""


@dataclass(frozen=True)
class Wanted:
    """What an import keeps beside the calls; runs without a verdict teach if `unlabelled` is above 0."""

    summaries: str = "extractive"
    model: BaseChatModel | None = None
    max_calls: int = 500
    unlabelled: float = 0.0
    entries: bool = True
    atoms: bool = True
    writer: AtomWriter | None = None


@dataclass
class Imported:
    """Numbers of an import: runs kept, steps in atoms, runs that teach, states stored and still to be written."""

    entries: int = 0
    atom_steps: int = 0
    atom_model_calls: int = 0
    teaching: int = 0
    unlabelled: int = 0
    stored: int = 0
    model_calls: int = 0
    left: int = 0

    def sentences(self) -> Iterator[str]:
        """Say it to a person."""
        if self.entries:
            yield f"Kept {count(self.entries, 'run')} for recall."
        if self.atom_steps:
            yield f"Made atoms of {count(self.atom_steps, 'step')} of successful runs, for planning."
        if not self.teaching:
            yield 'No run is labelled successful ("success": true), so no state is stored for suggestions.'
        if self.stored:
            states, runs = count(self.stored, "new state"), count(self.teaching, "run")
            yield f"Stored {states} of {runs} in words, from which next tools are suggested."
        if calls := self.model_calls + self.atom_model_calls:
            yield f"It took {count(calls, 'model call')}."
        if self.left:
            yield f"{count(self.left, 'state')} without words so far: import again to go on."


def import_runs(memory: ToolMemory, runs: Sequence[LoggedRun], wanted: Wanted, *, show: bool) -> Imported:
    """Learn runs, keep them for recall, and store the states of those that teach.

    Raises:
        InputError: a run has no user id, and the namespace needs one; nothing was learned.
        StorageError: entries, summaries or atoms cannot be stored: import again. If another embedder made those that
            are there, nothing was learned.
        ToolMemoryError: the model failed. What was learned and written before is kept.
    """
    from langgraph_toolmem.atoms.mask import Habits

    core = memory.core
    if core.users.apart and (nobody := next((run for run in runs if run.user_id is None), None)):
        raise InputError(f"line {nobody.line} of the log has no 'user_id', which the namespace needs")
    if wanted.entries or wanted.atoms or wanted.summaries != "none":
        core.vectors.check()
    teaching = [run for run in runs if (wanted.unlabelled > 0 if run.success is None else run.success)]
    done = Imported(teaching=len(teaching), unlabelled=sum(run.success is None for run in runs))
    good = (_read(run) for run in runs if run.success)
    teaches = {"unlabelled": wanted.unlabelled > 0}
    options: dict[str, dict[str, Any] | None] = {
        "entries": {} if wanted.entries else None,
        "sit": {"write": wanted.summaries == "extractive", **teaches},
        "atoms": {"habits": Habits(good), "writer": wanted.writer} if wanted.atoms else None,
    }
    _learn(memory, runs, options, done, show=show)
    if wanted.writer is not None:
        done.atom_model_calls = wanted.writer.calls
    if wanted.model is not None:
        _have_written(memory, teaching, wanted.model, wanted, done, teaches, show=show)
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
        done.stored += kept.get("sit", 0)
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


def _have_written(
    memory: ToolMemory,
    runs: Iterable[LoggedRun],
    model: BaseChatModel,
    wanted: Wanted,
    done: Imported,
    teaches: Mapping[str, Any],
    *,
    show: bool,
) -> None:
    """Have a model write the states that have no words, run by run, within its bound."""
    from langgraph_toolmem.sit.write import write_state

    states, users = memory.sit.states, memory.core.users
    found = [EndedRun(episode, users.of(run.user_id)) for run in runs for episode in _read(run).episodes()]
    missing = [(each, number) for each in found if (number := states.unwritten(each.run, each.user))]
    needed = sum(number for _, number in missing)
    begun: list[EndedRun] = []

    def write(model: BaseChatModel, told: Callable[[int], None], history: Run) -> str | None:
        if done.model_calls >= wanted.max_calls:
            raise _EnoughError
        text = write_state(model, history)
        done.model_calls += 1
        told(done.model_calls)
        return text

    try:
        with progress("writing", min(needed, wanted.max_calls), show=show) as update, suppress(_EnoughError):
            for each, _ in missing:
                begun.append(each)
                states.write_states(each.run, each.user, write=partial(write, model, update))
    except ToolMemoryError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}"[:300]
        raise ToolMemoryError(
            f"{wanted.summaries} failed after {count(done.model_calls, 'call')} ({said}). "
            "What was learned and written is kept; import again to go on."
        ) from error
    finally:
        done.left = needed - done.model_calls
        done.stored += memory.sit.imported(Import(begun, teaches))


class _EnoughError(Exception):
    """No more model calls."""


def _read(logged: LoggedRun) -> Run:
    return parse_run(logged.messages, thread_id=logged.thread_id)
