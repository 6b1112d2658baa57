"""SIT: which tool comes next, by what similar states went on with (SIT-Graph, arXiv 2512.07287).

The idea: tool graphs know which tool usually follows which (procedural), memories recall whole episodes (episodic).
Here both hang on one graph: an edge from tool to tool has a weight, and **summaries of the states** in which
successful runs took it. The state of a run in words, written by the agent with the *summary tool* or taken from the
history without a model, is compared with the summaries on the edges out of the last tool; where they are alike, their
targets are suggested, else what usually follows. A suggestion is advice in the model's context, never a command.

Summaries wait in the evidence graph until their run has its verdict; those of successful runs then live in Chroma,
merged, bounded, retired when they mislead.

=======================  ==========================================================
``SIT``                  this method: what is learned, what waits, what is suggested
``section``              what it tells in the report
``walks``                edges of successful runs and their weights; ``evidence``: the table they are in
``suggest``              the three kinds of evidence, weighed; ``policy``
``transitions``          steps of runs with the states before them
``extract``, ``write``   a state in words: without a model, and with one
``rows``, ``summary``    summaries in Chroma
``states``               summaries that wait for a verdict
``tool``, ``step``       the summary tool; suggestions at a model call
=======================  ==========================================================
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from langgraph_toolmem.base.errors import ConfigurationError, StorageError, describe_error
from langgraph_toolmem.base.threads import async_variant
from langgraph_toolmem.core.method import EndedRun, Import, JudgedRun, LearnedTurn, Method, Section
from langgraph_toolmem.core.users import User
from langgraph_toolmem.graph.events import GOOD
from langgraph_toolmem.graph.state import START
from langgraph_toolmem.runs.run import Run
from langgraph_toolmem.sit.evidence import SITEvidence, TransitionSeen
from langgraph_toolmem.sit.policy import SITPolicy
from langgraph_toolmem.sit.section import section
from langgraph_toolmem.sit.states import SETTLE, WaitingStates
from langgraph_toolmem.sit.suggest import Suggestion
from langgraph_toolmem.sit.suggest import suggest as weigh
from langgraph_toolmem.sit.transitions import last_calls, source_of
from langgraph_toolmem.sit.walks import Edge

if TYPE_CHECKING:
    from langgraph_toolmem.core.core import Core
    from langgraph_toolmem.graph.events import Forgotten, Record
    from langgraph_toolmem.graph.tool_graph import Table
    from langgraph_toolmem.runs.tools import ToolSpec
    from langgraph_toolmem.sit.rows import Summaries

EDGE: Final = "edge:"
"""How an item begins that is no summary: the tool is suggested by its edge alone."""
SETTLE_SECONDS: Final = 10.0
"""Seconds that `suggest` waits for what was finished just now and is being written."""
SEARCHED: Final = 50
"""Tools that a search by description gives as candidates."""


class Advice(NamedTuple):
    """Suggestions, and what could not be looked at for them ("" if all could)."""

    suggestions: list[Suggestion]
    missing: str = ""


class SIT(Method):
    """Suggests the next tools from successful runs.

    Args:
        policy: how states are remembered and next tools suggested. With ``recall="extractive"``, the default, states
            are put into words from the first observation on.
    """

    name: ClassVar[str] = "sit"
    package: ClassVar[tuple[str, str] | None] = ("chromadb", "memory")
    tables: ClassVar[tuple[type[Table], ...]] = (SITEvidence,)

    def __init__(self, policy: SITPolicy | None = None) -> None:
        if policy is not None and not isinstance(policy, SITPolicy):
            raise ConfigurationError(f"policy is a SITPolicy, not {type(policy).__name__}.")
        self.policy, self._asked_for = policy or SITPolicy(), policy is not None

    def open(self, core: Core) -> None:
        """Takes its table and its kind of jobs."""
        super().open(core)
        self.evidence = core.register(SITEvidence)
        remembers = self.policy.recall == "extractive"
        self.states = WaitingStates(core, self.evidence, self.policy, remembers=remembers, used=self._asked_for)
        core.jobs.handle(SETTLE, self.states.do, undo=self.states.undo)

    # --- asking ---

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
        """The tools that may come next, best first.

        What similar past states went on with, what usually follows, what the request asks for. Successful runs
        teach, those without a verdict less, as the policy has it; failed ones do not.

        Args:
            messages: the history so far.
            summary: the present state in words, if the agent wrote it; otherwise, with the default policy, it is
                taken from the history without a model.
            k: how many; the policy's (2) if None.
            available: names of the tools that may be suggested; all known ones if None.
            policy: how the evidence is used; the method's own if None.
            user_id: whose run it is.

        Returns:
            At most k; empty if nothing speaks for any. Chroma failing leaves its part out.

        Raises:
            MessageError: `messages` cannot be read.
            NamespaceError: the namespace needs a user id.
            ConfigurationError: an argument cannot work.
        """
        self.states.take_up(self.core.users.of(user_id))
        self.core.jobs.settle(timeout=SETTLE_SECONDS)  # what was finished just now is found
        how: dict[str, Any] = {"summary": summary, "k": k, "available": available, "policy": policy}
        return self.advise(messages, **how, user_id=user_id).suggestions

    def advise(
        self,
        messages: Any,
        *,
        summary: str | None = None,
        k: int | None = None,
        available: Collection[str] | None = None,
        policy: SITPolicy | None = None,
        thread_id: str | None = None,
        user_id: str | None = None,
        shown: bool = False,
        tools: Mapping[str, ToolSpec] | None = None,
    ) -> Advice:
        """As `suggest`, and says what could not be looked at.

        Args:
            messages: the history so far.
            summary, k, available, policy, user_id: as for `suggest`.
            thread_id: the thread.
            shown: the model gets to see the suggestions now; they are in the ledger, and a summary is kept for the
                turn that comes.
            tools: the tools at hand at this step, as `read_tools` reads them.
        """
        _check(summary, k, available, policy)
        core, chosen = self.core, policy or self.policy
        run, user = core.read(messages, thread_id), core.users.of(user_id)
        if tools is not None:
            core.catalogue.adopt(tools)
        if policy is None or policy == self.states.policy:
            self.remember_states(chosen)
        self.states.take_up(user)
        core.refresh()
        with core.lock:
            edges = _Edges({source: self.evidence.walks.out_of(source) for source in (START, *last_calls(run))})
        known = core.catalogue.specs
        rest: dict[str, Any] = {
            "policy": chosen,
            "summary": summary,
            "available": known.keys() if available is None and known else available,
            "search": partial(self.states.tool_index(known).search, k=SEARCHED) if known else None,
            "k": k,
            "state": core.state_of(run),
            "weight_of": core.weight_of,
        }
        missing = ""
        try:
            found = weigh(run, edges, self._stored(user), **rest)
        except StorageError as error:
            missing = f"the stored summaries could not be read ({describe_error(error)})"
            core.log_failure_and_continue("summaries could not be read", error)
            found = weigh(run, edges, None, **rest)
        if shown and run.next_key is not None and not core.read_only:
            self._show(run, run.next_key, found, user)
            self.states.note_written(run.next_key, summary)
        return Advice(found, missing)

    def _show(self, run: Run, turn: str, suggestions: list[Suggestion], user: User) -> None:
        """Notes what the model is shown before a turn; shown again, as after the summary tool, it adds to that."""
        ledger = self.core.ledger
        self.core.know(run)
        before = ledger.items(turn, self.name)
        edges = {tool for key, tool in before.items() if key.startswith(EDGE)}
        named = {*before.values()} - edges  # with a summary of their own
        new: dict[str, str | None] = {
            self._item(each, user): each.tool for each in suggestions if each.tool not in named
        }
        ledger.shown(self.name, new, run=run.digest, turn=turn, user_id=user.id)

    def _item(self, suggestion: Suggestion, user: User) -> str:
        """Its name in the ledger."""
        known = suggestion.summary_id
        return EDGE + suggestion.tool if known is None else self.states.rows.key(known, user)

    def _stored(self, user: User) -> Summaries | None:
        return None if self.core.vectors.empty else self.states.of(user)

    def remember_states(self, policy: SITPolicy) -> None:
        """From now on, states of runs are kept as this policy has it, that of a step; and put into words, to be kept if
        the run turns out well, unless it compares only what was written by a model.
        """
        self.states.policy, self.states.used = policy, True
        self.states.remembers |= policy.recall == "extractive"

    asuggest = async_variant(suggest)

    # --- what happens ---

    def turn(self, learned: LearnedTurn) -> Record:
        """The edge that the turn walked, and the state before it in words, to be kept if the run turns out well."""
        source = source_of(learned.state)
        ended_well = [step for step in learned.turn.steps if step.status == "ok"]
        if source is None or not ended_well:
            self.states.drop_written(learned.turn.key)
            return []
        walked: Record = [TransitionSeen(learned.run, step.key, source, step.tool) for step in ended_well]
        extract = learned.options.get(self.name, {}).get("write", self.states.remembers)
        return walked + self.states.learned(learned, source, extract=extract)

    def learned(self, run: Run, user: User) -> None:
        """An episode that was answered in words may be over: its summaries go where its verdict says."""
        for episode in self.states.unsettled(run.answered()):
            self.states.settle(episode, user, anew=False)

    def ended(self, ended: EndedRun) -> None:
        """A run is over."""
        self.states.settle(ended.run.digest, ended.user)

    def judged(self, judged: JudgedRun) -> None:
        """A verdict came later."""
        core, named = self.core, judged.user_id
        if (namespace := core.place_of(judged.run, named)) is not None:
            owner = core.owner_of(judged.run, core.users.digest_of(named))
            self.states.settle(judged.run, User(named, owner or None, namespace))

    def imported(self, given: Import) -> int:
        """Stores the summaries that wait with these runs, if their verdict is good, in one go; else takes them away.

        Options: ``unlabelled``: those of runs without a verdict too, or not; as the policy has it if it is not given.
        ``write``: states that nobody put into words are, without a model.
        """
        unlabelled, kept = bool(given.options.get("unlabelled", self.policy.unlabelled > 0)), 0
        if given.options.get("write"):
            for each in given.runs:
                if unlabelled if each.score is None else each.score >= GOOD:
                    self.states.write_states(each.run, each.user)
        for _, runs in given.by_namespace():
            kept += self.states.keep([each.run.digest for each in runs], runs[0].user, unlabelled=unlabelled)
        return kept

    # --- keeping ---

    def forget(self, user: User, gone: Forgotten) -> int:
        """Removes a user's summaries, or those of runs. They are counted where they wait, not here."""
        self.states.forget_written()
        if self.core.vectors.empty:
            return 0
        from langgraph_toolmem.sit.rows import forget_words

        self.states.rows.forget(user, gone)
        forget_words()
        return 0

    def report(self) -> Section | None:
        """What was suggested and followed, and how many states are stored and wait."""
        core = self.core
        with core.lock:
            return section(self.evidence, core.graph.counters, core.ledger.figures(self.name))


class _Edges:
    """The edges out of a few tools, as they were at one moment."""

    def __init__(self, rows: dict[str, dict[str, Edge]]) -> None:
        self._rows = rows

    def out_of(self, source: str) -> dict[str, Edge]:
        return self._rows.get(source, {})


def _check(summary: Any, k: Any, available: Any, policy: Any) -> None:
    if summary is not None and not isinstance(summary, str):
        raise ConfigurationError(f"summary is a text, not {type(summary).__name__}.")
    if k is not None and not (type(k) is int and k >= 1):
        raise ConfigurationError(f"k is a whole number from 1, not {k!r}.")
    if policy is not None and not isinstance(policy, SITPolicy):
        raise ConfigurationError(f"policy is a SITPolicy, not {type(policy).__name__}.")
    try:
        fine = available is None or (not isinstance(available, str) and all(isinstance(n, str) for n in available))
    except TypeError:
        fine = False
    if not fine:
        raise ConfigurationError(f"available is a collection of tool names, not {available!r}.")
