"""What `toolmem import` does: runs are learned and kept for recall, and what those that teach teach is stored."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import typer

from langgraph_toolmem.base.errors import InputError, StorageError, ToolMemoryError
from langgraph_toolmem.base.namespaces import has_user
from langgraph_toolmem.cli.tables import count
from langgraph_toolmem.cli.terminal import note, progress
from langgraph_toolmem.runs.trajectory import Run, parse_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from langchain_core.language_models import BaseChatModel

    from langgraph_toolmem import ToolMemory
    from langgraph_toolmem._importing import Write
    from langgraph_toolmem.atoms.writer import AtomWriter
    from langgraph_toolmem.runs.logs import LoggedRun

BATCH = 200
"""Runs whose entries and summaries are stored in one go."""
Judged = tuple[Run, "float | None", "str | None"]
"""A run, with the score of its verdict and a word on it."""
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
        written: states that were put into words.
        stored: states that were stored, those that the agents wrote included.
        model_calls: calls of a model that it took.
        left: states that have no words yet.
    """

    entries: int = 0
    atom_steps: int = 0
    atom_calls: int = 0
    teaching: int = 0
    unlabelled: int = 0
    written: int = 0
    stored: int = 0
    model_calls: int = 0
    left: int = 0
    _waiting: dict[str | None, list[str]] = field(default_factory=dict, repr=False)
    _kept: dict[str | None, list[Judged]] = field(default_factory=dict, repr=False)

    def states(self) -> dict[str, int]:
        """What became of states, in plain values."""
        others = ("entries", "atom_steps", "atom_calls")
        return {name: value for name, value in vars(self).items() if isinstance(value, int) and name not in others}

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
                'No run is labelled successful ("success": true), so none teaches which tools to suggest.'
                + (" With --unlabelled WEIGHT those without a label do." if self.unlabelled else "")
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
        StorageError: entries, summaries or atoms cannot be stored. Summaries wait in the memory, the others come with
            the next import; if another embedder made those that are there, nothing was learned.
        ToolMemoryError: the model failed. What was learned and written before is kept.
    """
    runs = list(runs)
    if has_user(memory.namespace) and (nobody := next((run for run in runs if run.user_id is None), None)):
        raise InputError(f"line {nobody.line} of the log has no 'user_id', which the namespace needs")
    if entries or atoms or summaries.by != NONE:
        memory.check_summaries()
    done = Imported()
    with progress("learning", len(runs), show=show) as update:
        for number, logged in enumerate(runs, start=1):
            _learn(memory, logged, summaries, done)
            if entries:
                score = None if logged.success is None else float(logged.success)
                done._kept.setdefault(logged.user_id, []).append((_read(logged), score, None))
            if number % BATCH == 0:
                with suppress(StorageError):  # if it lasts, it is told at the end, when all is learned
                    _store(memory, summaries, done)
            update(number)
    _store(memory, summaries, done)
    if atoms:
        good = [logged for logged in runs if logged.success]
        if writer is not None and summaries.asks and _at_a_terminal() and good:
            question = f"Steps of {count(len(good), 'successful run')} to be worded by a chat model, one call each"
            writer = writer if typer.confirm(f"{question} new kind of step. Go on?", err=True) else None
        _make_atoms(memory, good, done, writer, show=show)
    if summaries.model is not None:
        teaching = [run for run in runs if _teaches(run, summaries)]
        _have_written(memory, teaching, summaries, summaries.model, done, show=show)
    return done


def _learn(memory: ToolMemory, logged: LoggedRun, summaries: Summaries, done: Imported) -> None:
    run = _read(logged)
    memory.learn_run(run, user_id=logged.user_id, success=logged.success)
    if _teaches(logged, summaries):
        done.teaching += 1
        if summaries.by == EXTRACTIVE:
            done.written += memory.learn_states(run, user_id=logged.user_id)
    done.unlabelled += logged.success is None
    _note_waiting(memory, logged, done)


def _store(memory: ToolMemory, summaries: Summaries, done: Imported) -> None:
    try:
        for user, runs in list(done._kept.items()):
            done.entries += memory.keep_entries(runs, user_id=user)
            del done._kept[user]
    except StorageError as error:
        raise StorageError(f"runs could not be kept for recall; import again: {error}") from error
    try:
        for user, waiting in done._waiting.items():
            done.stored += memory.keep_states(waiting, user_id=user, unlabelled=summaries.unlabelled > 0)
    except StorageError as error:
        raise StorageError(f"the states of runs wait in the memory, they cannot be stored: {error}") from error
    done._waiting.clear()


def _make_atoms(
    memory: ToolMemory, runs: list[LoggedRun], done: Imported, writer: AtomWriter | None, *, show: bool
) -> None:
    """Atoms of successful runs; what never varies over all of them stays literal."""
    from langgraph_toolmem.atoms.mask import Habits

    habits = Habits(map(_read, runs))
    by_user: dict[str | None, list[LoggedRun]] = {}
    for logged in runs:
        by_user.setdefault(logged.user_id, []).append(logged)
    made = 0
    with progress("making atoms", len(runs), show=show) as update:
        for user, theirs in by_user.items():
            for start in range(0, len(theirs), BATCH):
                part = theirs[start : start + BATCH]
                judged = ((_read(logged), 1.0) for logged in part)
                try:
                    done.atom_steps += memory.learn_atoms(judged, user_id=user, habits=habits, writer=writer)
                except StorageError as error:
                    raise StorageError(f"atoms could not be kept; import again: {error}") from error
                update(made := made + len(part))
    done.atom_calls = 0 if writer is None else writer.calls


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

    missing = [(logged, memory.unwritten(_read(logged), user_id=logged.user_id)) for logged in runs]
    needed = sum(states for _, states in missing)
    calls = min(needed, summaries.max_calls)
    if not calls or not _agreed(summaries, needed, calls):
        done.left = needed
        return
    write = _Bounded(partial(write_state, model), calls)
    try:
        with progress("writing", calls, show=show) as write.told, suppress(_EnoughError):
            for logged, states in missing:
                if states:
                    _note_waiting(memory, logged, done)
                    memory.learn_states(_read(logged), user_id=logged.user_id, write=write)
    except ToolMemoryError:
        raise
    except Exception as error:
        _store(memory, summaries, done)
        said = f"{type(error).__name__}: {error}"[:300]
        raise ToolMemoryError(
            f"{summaries.by} failed after {count(write.calls, 'call')} ({said}). "
            "What was learned and written is kept; import again to go on."
        ) from error
    done.model_calls, done.written, done.left = write.calls, write.written, needed - write.calls
    _store(memory, summaries, done)


def _note_waiting(memory: ToolMemory, logged: LoggedRun, done: Imported) -> None:
    done._waiting.setdefault(logged.user_id if has_user(memory.namespace) else None, []).append(logged.thread_id)


class _EnoughError(Exception):
    """No more model calls."""


class _Bounded:
    """A writer that counts its calls, tells of them, and ends at a bound."""

    def __init__(self, write: Write, most: int) -> None:
        self.calls = self.written = 0
        self.told: Callable[[int], None] = lambda _calls: None
        self._write, self._most = write, most

    def __call__(self, history: Run) -> str | None:
        if self.calls >= self._most:
            raise _EnoughError
        text = self._write(history)
        self.calls += 1
        self.written += bool(text)
        self.told(self.calls)
        return text


def _agreed(summaries: Summaries, needed: int, calls: int) -> bool:
    """Says what it will cost; a person at a terminal is asked."""
    bound = "" if calls == needed else f", {calls:,} of which are written now (--max-model-calls)"
    cost = f"{count(needed, 'state')} to be written by {summaries.by}, one call each{bound}"
    if summaries.asks and _at_a_terminal():
        return typer.confirm(f"{cost}. Go on?", err=True)
    note(cost)
    return True


def _at_a_terminal() -> bool:
    return sys.stdin.isatty()


def _read(logged: LoggedRun) -> Run:
    return parse_run(logged.messages, thread_id=logged.thread_id)


def _teaches(logged: LoggedRun, summaries: Summaries) -> bool:
    return summaries.unlabelled > 0 if logged.success is None else logged.success
