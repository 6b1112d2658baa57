"""The half of `ToolMemory` that suggests: which tools may come next, and why."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, NamedTuple

from langgraph_toolmem._learning import Learning
from langgraph_toolmem._summaries import EDGE
from langgraph_toolmem.base.errors import ConfigurationError, StorageError
from langgraph_toolmem.base.failures import describe_error
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.runs.run import Run
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.sit.policy import SITPolicy
from langgraph_toolmem.sit.suggest import Suggestion
from langgraph_toolmem.sit.suggest import suggest as weigh
from langgraph_toolmem.sit.transitions import last_calls
from langgraph_toolmem.sit.walks import Edge

SEARCHED = 50
"""Tools that a search by description gives as candidates."""
METHOD = "sit"
MAX_WRITTEN = 4_096
"""Summaries whose turn has not come yet, in RAM."""


class Advice(NamedTuple):
    """Suggestions, and what could not be looked at for them ("" if all could)."""

    suggestions: list[Suggestion]
    missing: str = ""


class Suggesting(Learning):
    """Suggests the next tools from successful runs."""

    def suggest(
        self,
        messages: Any,
        *,
        summary: str | None = None,
        k: int | None = None,
        available: Collection[str] | None = None,
        policy: SITPolicy | None = None,
        user_id: str | None = None,
    ) -> list[Suggestion]:
        """The tools that may come next, best first (SIT-Graph, arXiv 2512.07287).

        What similar past states went on with, what usually follows, what the request asks for. Only successful
        runs teach (`finish`, `feedback`), unless the policy counts those without a verdict.

        Args:
            messages: the history so far.
            summary: the present state in words, if the agent wrote it; otherwise, with the default policy, it is
                taken from the history without a model.
            k: how many; the policy's (2) if None.
            available: names of the tools that may be suggested; all known ones if None.
            policy: how the evidence is used; the memory's own if None.
            user_id: whose run it is.

        Returns:
            At most k; empty if nothing speaks for any. Chroma failing leaves its part out.

        Raises:
            MessageError: `messages` cannot be read.
            NamespaceError: the namespace needs a user id.
            ConfigurationError: an argument cannot work.
        """
        return self.advise(
            messages, summary=summary, k=k, available=available, policy=policy, user_id=user_id
        ).suggestions

    def advise(
        self,
        messages: Any,
        *,
        summary: str | None = None,
        k: int | None = None,
        available: Collection[str] | None = None,
        policy: SITPolicy | None = None,
        run_id: str | None = None,
        user_id: str | None = None,
        offered: bool = False,
        tools: Mapping[str, ToolSpec] | None = None,
    ) -> Advice:
        """As `suggest`, and says what could not be looked at. This is what nodes call.

        Args:
            messages: the history so far.
            summary, k, available, policy, user_id: as for `suggest`.
            run_id: identity of the run (a thread id).
            offered: the model gets to see the suggestions now; whether it follows them is booked, and a summary is
                kept for the turn that comes.
            tools: the tools at hand at this step, as `read_tools` reads them.
        """
        if summary is not None and not isinstance(summary, str):
            raise ConfigurationError(f"summary is a text, not {type(summary).__name__}.")
        if k is not None and not (type(k) is int and k >= 1):
            raise ConfigurationError(f"k is a whole number from 1, not {k!r}.")
        if policy is not None and not isinstance(policy, SITPolicy):
            raise ConfigurationError(f"policy is a SITPolicy, not {type(policy).__name__}.")
        available = _names(available)
        run = self._read(messages, run_id)
        self._check_user(user_id)
        chosen = policy or self.sit
        with self._lock:
            if tools is not None:
                self._adopt(tools)
            self.remember_states(chosen)
            self._store.refresh()
            edges = _Edges({source: self._walked.walks.out_of(source) for source in last_calls(run)})
            known = self._engine.specs
        if available is None and known:
            available = known.keys()
        search = partial(self._tool_index.search, k=SEARCHED) if known else None
        rest: dict[str, Any] = {
            "policy": chosen,
            "summary": summary,
            "available": available,
            "search": search,
            "k": k,
            "state": RunState.of(run),
        }
        missing = ""
        try:
            found = weigh(run, edges, self._summary_store(user_id), **rest)
        except StorageError as error:
            missing = f"the stored summaries could not be read ({describe_error(error)})"
            self._quietly("summaries could not be read", _raiser(error))
            found = weigh(run, edges, None, **rest)
        if offered and run.next_key is not None and not self._store.read_only:
            self._show(run, run.next_key, found, user_id)
            self._note_written(run.next_key, summary)
        return Advice(found, missing)

    def remember_states(self, policy: SITPolicy | None = None) -> None:
        """From now on, states of runs are put into words, to be kept if the run turns out well.

        A policy that compares only what was written by a model does without.
        """
        self._remembers_states |= (policy or self.sit).recall == "extractive"

    def _show(self, run: Run, turn: str, suggestions: list[Suggestion], user_id: str | None) -> None:
        """Notes what the model is shown before a turn; shown again, as after the summary tool, it adds to that."""
        before = self._ledger.items(turn, METHOD)
        edges = {tool for key, tool in before.items() if key.startswith(EDGE)}
        named = {*before.values()} - edges  # with a summary of their own
        new = {each.summary_id or EDGE + each.tool: each.tool for each in suggestions if each.tool not in named}
        self._ledger.shown(METHOD, new, run=run.digest, turn=turn, user_id=user_id)
        self._ledger.flush()

    def _note_written(self, turn: str, summary: str | None) -> None:
        """A summary that the agent's model wrote outside its history goes with the turn that comes."""
        if summary is not None and (text := summary.strip()):
            with self._lock:
                self._written[turn] = text
                if len(self._written) > MAX_WRITTEN:
                    del self._written[next(iter(self._written))]


def _names(available: Collection[str] | None) -> Collection[str] | None:
    """Raises ConfigurationError if it is no collection of names."""
    try:
        fine = available is None or (not isinstance(available, str) and all(isinstance(n, str) for n in available))
    except TypeError:
        fine = False
    if not fine:
        raise ConfigurationError(f"available is a collection of tool names, not {available!r}.")
    return available


class _Edges:
    """The edges out of a few tools, as they were at one moment."""

    def __init__(self, rows: dict[str, dict[str, Edge]]) -> None:
        self._rows = rows

    def out_of(self, source: str) -> dict[str, Edge]:
        return self._rows.get(source, {})


def _raiser(error: Exception) -> Any:
    def again() -> None:
        raise error

    return again
