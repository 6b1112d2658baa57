"""The part of `ToolMemory` for recorded runs: their states are put into words afterwards, and stored many at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from langgraph_toolmem._core import MAX_DRAFT
from langgraph_toolmem._learning import Learning
from langgraph_toolmem._summaries import stored_key
from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.base.namespaces import user_digest
from langgraph_toolmem.graph.operations import GOOD, Count
from langgraph_toolmem.runs.trajectory import Run, Turn
from langgraph_toolmem.sit.evidence import LATER, Draft, DraftsTaken
from langgraph_toolmem.sit.extract import extractive_summary
from langgraph_toolmem.sit.transitions import Transition, transitions

if TYPE_CHECKING:
    from langgraph_toolmem.sit.store import SummaryStore

Write = Callable[[Run], str | None]
"""Puts the state after a history into words; None or "": it has none."""


class Importing(Learning):
    """Teaches suggestions from logs; see `toolmem import`. The run itself is learned with `learn_run`."""

    def check_summaries(self) -> None:
        """Makes sure that summaries can be stored beside those that are there.

        Raises:
            EmbedderChangedError: another embedder made those.
        """
        self._vectors.check()

    def unwritten(self, run: Run, *, user_id: str | None = None) -> int:
        """How many states of a run nobody has put into words: as often `learn_states` asks its writer.

        Args:
            run: as `parse_run` reads it.
            user_id: whose run it is.

        Raises:
            NamespaceError: the namespace needs a user id.
            StorageError: the summaries that are there cannot be read.
        """
        self._check_user(user_id)
        turns = _turns(run)
        return len({turns[each.key] for each in self._unwritten(run, transitions(run), user_id)})

    def learn_states(self, run: Run, *, user_id: str | None = None, write: Write | None = None) -> int:
        """Puts the states of a run into words, where neither the agent nor anybody else did.

        They wait with the run, until `keep_states`, `finish` or `feedback` stores them.

        Args:
            run: as `parse_run` reads it.
            user_id: whose run it is.
            write: writes a state, given the history up to it; the built-in extract of the history if None. What it
                raises is raised; states that were written before that are kept.

        Returns:
            How many states were put into words.

        Raises:
            NamespaceError: the namespace needs a user id.
            StorageError: the summaries that are there cannot be read.
        """
        self._check_user(user_id)
        found = transitions(run, summarise=extractive_summary if write is None else None)
        new = self._unwritten(run, found, user_id)
        turns, written = _turns(run), dict[int, str]()
        for each in new:
            turn = turns[each.key]
            if turn not in written:
                text = each.summary if write is None else write(_history(run, turn))
                written[turn] = (text or "").strip()
            made = replace(each, summary=written[turn], made_by="extractive" if write is None else "model")
            self._draft(run, made, user_id)
        return sum(bool(text) for text in written.values())

    def keep_states(self, run_ids: Iterable[str], *, user_id: str | None = None, unlabelled: bool = False) -> int:
        """Stores the summaries that wait with these runs, if their verdict is good, in one go; else takes them away.

        Args:
            run_ids: as given to `parse_run`.
            user_id: whose runs they are.
            unlabelled: those of runs without a verdict too, whatever the memory's `SITPolicy` says.

        Returns:
            How many were stored.

        Raises:
            NamespaceError: the namespace needs a user id.
            StorageError: they could not be stored; they go on waiting.
        """
        from langgraph_toolmem.sit.summary import NewSummary

        self._check_user(user_id)
        runs = dict.fromkeys(digest("run", run_id) for run_id in run_ids)
        with self._lock:
            before = self._forgettings
            waiting = {run: self._mine(run, user_id) for run in runs if self._teaches(run, unlabelled)}
            bad = [run for run in runs if run in self._walked.drafts and self._is_bad(run)]
        for run in bad:
            self._settle(run, user_id)
        new = [
            NewSummary(place, target, text, key=step, run=run, user=owner or None, made_by=made_by)
            for run, drafts in waiting.items()
            for step, (place, target, text, made_by, owner) in drafts.items()
            if step != LATER
        ]
        if not new:
            return 0
        store = self._summary_store(user_id)
        with self._lock:
            for run in waiting:
                self._apply(stored_key(run), [])
        kept = sum(each is not None for each in store.add_many(new))
        with self._lock:
            changed = [run for run in waiting if before != self._forgettings or not self._teaches(run, unlabelled)]
            if not changed:
                gone = [DraftsTaken(run, list(drafts)) for run, drafts in waiting.items() if drafts]
                self._apply(None, [*gone, Count("summaries", kept)])
        for run in changed:  # forgotten or judged anew in between
            store.forget_run(run)
        return kept

    def _teaches(self, run: str, unlabelled: bool) -> bool:
        score = self._graph.score(run)
        return unlabelled if score is None else score >= GOOD

    def _is_bad(self, run: str) -> bool:
        score = self._graph.score(run)
        return score is not None and score < GOOD

    def _unwritten(self, run: Run, found: Iterable[Transition], user_id: str | None) -> list[Transition]:
        """Those whose state nobody has put into words: not the agent, not an import, not the memory as it looked on."""
        name = run.digest
        store: SummaryStore | None = None if self._vectors.empty else self._summary_store(user_id)
        with self._lock:
            drafts: Mapping[str, object] = self._walked.drafts.get(name, {})
            new = [
                each
                for each in found
                if each.made_by != "tool" and each.key not in drafts and not self._graph.has_seen(_written(each))
            ]
        return new if store is None else [each for each in new if not store.stands(each.place, each.target, each.key)]

    def _draft(self, run: Run, made: Transition, user_id: str | None) -> None:
        text = (made.summary or "")[:MAX_DRAFT]
        draft = Draft(run.digest, made.key, made.place, made.target, text, made.made_by, user_digest(user_id))
        with self._lock:
            self._apply(_written(made), [draft] if text else [])


def _written(transition: Transition) -> str:
    """The key that says that the state before a call was put into words once."""
    return digest("written", transition.key)


def _turns(run: Run) -> dict[str, int]:
    """Where the turns of calls are among the events."""
    return {step.key: i for i, event in enumerate(run.events) if isinstance(event, Turn) for step in event.steps}


def _history(run: Run, turn: int) -> Run:
    """The run up to a turn."""
    key = run.events[turn].key
    return replace(run, events=run.events[:turn], next_key=key)
