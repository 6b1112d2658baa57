"""What `toolmem import` does: runs are learned and kept for recall, and what those that teach teach is stored."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from langgraph_toolmem.base.errors import InputError, StorageError, ToolMemoryError
from langgraph_toolmem.base.text import count
from langgraph_toolmem.cli.terminal import at_a_terminal, note, progress
from langgraph_toolmem.core.listener import EndedRun, Import
from langgraph_toolmem.runs.trajectory import Run, parse_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from langchain_core.language_models import BaseChatModel

    from langgraph_toolmem.atoms.mask import Habits
    from langgraph_toolmem.atoms.writer import AtomWriter
    from langgraph_toolmem.memory import ToolMemory
    from langgraph_toolmem.runs.logs import LoggedRun
    from langgraph_toolmem.sit.states import Write

BATCH = 200
"""Runs that are taken in at one go."""
NONE, EXTRACTIVE = "none", "extractive"


@dataclass(frozen=True)
class Summaries:
    """Where summaries come from, for runs whose agent wrote none.

    Attributes:
        by: "none", "extractive", or "provider:model".
        model: the model, if it is one.
        max_calls: model calls at most.
        asks: a person is asked before the first model call, if there is one at a terminal.
        unlabelled: weight of runs without a verdict, from 0 (they do not teach) to 1.
    """

    by: str = EXTRACTIVE
    model: BaseChatModel | None = None
    max_calls: int = 500
    asks: bool = True
    unlabelled: float = 0.0


@dataclass
class Imported:
    """What an import did.

    Attributes:
        entries: runs that have an entry now, for recall.
        atom_steps: steps of successful runs that stand in atoms now.
        atom_calls: calls of a model that worded atoms.
        teaching: runs that teach suggestions.
        unlabelled: runs without a verdict.
        stored: states that were stored, those that the agents wrote included.
        model_calls: calls of a model that it took.
        left: states that have no words yet.
    """

    entries: int = 0
    atom_steps: int = 0
    atom_calls: int = 0
    teaching: int = 0
    unlabelled: int = 0
    stored: int = 0
    model_calls: int = 0
    left: int = 0

    def states(self) -> dict[str, int]:
        """What became of states, in plain values."""
        others = ("entries", "atom_steps", "atom_calls")
        return {name: value for name, value in vars(self).items() if name not in others}

    def sentences(self, summaries: Summaries) -> list[str]:
        """What it did, for a person."""
        kept = [f"Kept {count(self.entries, 'run')} for recall."] if self.entries else []
        if self.atom_steps:
            how = f" (worded with {count(self.atom_calls, 'model call')})" if self.atom_calls else ""
            kept.append(f"Made atoms of {count(self.atom_steps, 'step')} of successful runs, for planning{how}.")
        return kept + self._of_states(summaries)

    def _of_states(self, summaries: Summaries) -> list[str]:
        if not self.teaching:
            return [
                'No run is labelled successful ("success": true), so no state of one is stored for suggestions.'
                + (" With --unlabelled WEIGHT those without a label are." if self.unlabelled else "")
            ]
        lines = []
        if self.stored:
            how = f" ({count(self.model_calls, 'call')} of {summaries.by})" if self.model_calls else ""
            lines.append(
                f"Stored {count(self.stored, 'new state')} of {count(self.teaching, 'run')} in words, from which next "
                f"tools are suggested{how}."
            )
        if summaries.unlabelled and self.unlabelled:
            lines.append(
                f"{count(self.unlabelled, 'run')} without a verdict teach too; for their share in what usually comes "
                f"next, give the agent's memory SITPolicy(unlabelled={summaries.unlabelled:g})."
            )
        if self.left:
            lines.append(f"{count(self.left, 'state')} without words so far: import again to go on.")
        return lines


def import_runs(
    memory: ToolMemory,
    runs: Iterable[LoggedRun],
    summaries: Summaries,
    *,
    entries: bool = True,
    atoms: bool = True,
    writer: AtomWriter | None = None,
    show: bool,
) -> Imported:
    """Learns runs, keeps them for recall, and stores the states of those that teach.

    Args:
        memory: the memory.
        runs: read and checked.
        summaries: where summaries come from.
        entries: whether they are kept for recall.
        atoms: whether the steps of successful ones become atoms.
        writer: words atoms with a chat model.
        show: draw progress, if there is a terminal.

    Raises:
        InputError: a run has no user id, and the namespace needs one; nothing was learned.
        StorageError: entries, summaries or atoms cannot be stored: import again. If another embedder made those that
            are there, nothing was learned.
        ToolMemoryError: the model failed. What was learned and written before is kept.
    """
    runs = list(runs)
    core = memory.core
    if core.users.apart and (nobody := next((run for run in runs if run.user_id is None), None)):
        raise InputError(f"line {nobody.line} of the log has no 'user_id', which the namespace needs")
    if entries or atoms or summaries.by != NONE:
        core.vectors.check()
    done = Imported(unlabelled=sum(logged.success is None for logged in runs))
    teaching = [logged for logged in runs if _teaches(logged, summaries)]
    done.teaching = len(teaching)
    good = [logged for logged in runs if logged.success]
    if writer is not None and summaries.asks and at_a_terminal() and good:
        question = f"Steps of {count(len(good), 'successful run')} to be worded by a chat model, one call each"
        writer = writer if typer.confirm(f"{question} new kind of step. Go on?", err=True) else None
    options: dict[str, dict[str, Any] | None] = {
        "entries": {} if entries else None,
        "sit": {"write": summaries.by == EXTRACTIVE, "unlabelled": summaries.unlabelled > 0},
        "atoms": {"habits": _habits(good), "writer": writer} if atoms else None,
    }
    _take_in(memory, runs, options, done, show=show)
    done.atom_calls = 0 if writer is None else writer.calls
    if summaries.model is not None:
        _have_written(memory, teaching, summaries, summaries.model, done, show=show)
    return done


def _habits(runs: Iterable[LoggedRun]) -> Habits:
    """What never varies over all of them."""
    from langgraph_toolmem.atoms.mask import Habits

    return Habits(map(_read, runs))


def _take_in(
    memory: ToolMemory,
    runs: list[LoggedRun],
    options: Mapping[str, Mapping[str, Any] | None],
    done: Imported,
    *,
    show: bool,
) -> None:
    """Part by part; what could not be stored is tried once more, when all is learned."""
    again: list[list[LoggedRun]] = []
    parts = [runs[start : start + BATCH] for start in range(0, len(runs), BATCH)]
    with progress("learning", len(runs), show=show) as update:
        learned = 0
        for part in parts:
            try:
                _take_in_part(memory, part, options, done)
            except StorageError:
                again.append(part)
            update(learned := learned + len(part))
    for part in again:
        try:
            _take_in_part(memory, part, options, done)
        except StorageError as error:
            raise StorageError(f"the runs are learned, but not all could be kept; import again: {error}") from error


def _take_in_part(
    memory: ToolMemory, runs: list[LoggedRun], options: Mapping[str, Mapping[str, Any] | None], done: Imported
) -> None:
    scores = (None if logged.success is None else float(logged.success) for logged in runs)
    judged = [(_read(logged), score, logged.user_id) for logged, score in zip(runs, scores, strict=True)]
    kept = memory.take_in(judged, options)
    done.entries += kept.get("entries", 0)
    done.stored += kept.get("sit", 0)
    done.atom_steps += kept.get("atoms", 0)


def _have_written(
    memory: ToolMemory,
    runs: list[LoggedRun],
    summaries: Summaries,
    model: BaseChatModel,
    done: Imported,
    *,
    show: bool,
) -> None:
    """Has a model write what is missing, run by run, within its bound."""
    from langgraph_toolmem.sit.write import write_state

    states = memory.sit.states
    found = [
        EndedRun(episode, memory.core.users.of(logged.user_id))
        for logged in runs
        for episode in _read(logged).episodes()
    ]
    missing = [(each, number) for each in found if (number := states.unwritten(each.run, each.user))]
    needed = sum(number for _, number in missing)
    calls = min(needed, summaries.max_calls)
    if not calls or not _agreed(summaries, needed, calls):
        done.left = needed
        return
    write = _Bounded(partial(write_state, model), calls)
    unlabelled = {"unlabelled": summaries.unlabelled > 0}
    begun: list[EndedRun] = []
    try:
        with progress("writing", calls, show=show) as write.told, suppress(_EnoughError):
            for each, _ in missing:
                begun.append(each)
                states.write_states(each.run, each.user, write=write)
    except ToolMemoryError:
        raise
    except Exception as error:
        done.stored += memory.sit.imported(Import(begun, unlabelled))
        said = f"{type(error).__name__}: {error}"[:300]
        raise ToolMemoryError(
            f"{summaries.by} failed after {count(write.calls, 'call')} ({said}). "
            "What was learned and written is kept; import again to go on."
        ) from error
    done.model_calls, done.left = write.calls, needed - write.calls
    done.stored += memory.sit.imported(Import(begun, unlabelled))


class _EnoughError(Exception):
    """No more model calls."""


class _Bounded:
    """A writer that counts its calls, tells of them, and ends at a bound."""

    def __init__(self, write: Write, most: int) -> None:
        self.calls = 0
        self.told: Callable[[int], None] = lambda _calls: None
        self._write, self._most = write, most

    def __call__(self, history: Run) -> str | None:
        if self.calls >= self._most:
            raise _EnoughError
        text = self._write(history)
        self.calls += 1
        self.told(self.calls)
        return text


def _agreed(summaries: Summaries, needed: int, calls: int) -> bool:
    """Says what it will cost; a person at a terminal is asked."""
    bound = "" if calls == needed else f", {calls:,} of which are written now (--max-model-calls)"
    cost = f"{count(needed, 'state')} to be written by {summaries.by}, one call each{bound}"
    if summaries.asks and at_a_terminal():
        return typer.confirm(f"{cost}. Go on?", err=True)
    note(cost)
    return True


def _read(logged: LoggedRun) -> Run:
    return parse_run(logged.messages, thread_id=logged.thread_id)


def _teaches(logged: LoggedRun, summaries: Summaries) -> bool:
    return summaries.unlabelled > 0 if logged.success is None else logged.success
