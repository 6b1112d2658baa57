"""SIT: which tool comes next, by what similar states went on with (SIT-Graph, arXiv 2512.07287).

The idea: tool graphs know which tool usually follows which (procedural), memories recall whole episodes (episodic).
Here both hang on one graph: an edge from tool to tool has a weight, and **summaries of the states** in which runs took
it. The state of a run in words, written by the agent with the *summary tool* or taken from the history without a
model, is compared with the summaries on the edges out of the last tool; where they are alike, their targets are
suggested, otherwise what usually follows. A suggestion is advice in the model's context, never a command.

The states of an episode are stored in Chroma when it ends, judged or not. Verdicts count when a state is read: a run
that went badly does not teach, and its states are deleted. Observed and imported runs give the same rows.

==================  ===============================================================
``SIT``             this method: what is learned, stored and suggested
``evidence``        edges of runs and their weights, in the evidence graph; the report
``transitions``     steps of runs with the states before them
``extract``         a state in words, without a model
``rows``            summaries in Chroma
``suggest``         the three kinds of evidence, weighed; ``policy``
``step``            suggestions at a model call; the summary tool
==================  ===============================================================
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from langgraph_toolmem.base.errors import ConfigurationError, StorageError, describe_error
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.base.threads import async_variant
from langgraph_toolmem.core.jobs import by_namespace
from langgraph_toolmem.core.method import EndedRun, Import, JudgedRun, LearnedTurn, Method, Section
from langgraph_toolmem.core.users import User
from langgraph_toolmem.graph.events import GOOD, Count
from langgraph_toolmem.graph.state import START, RunState
from langgraph_toolmem.runs.run import Run, Turn
from langgraph_toolmem.runs.tools import side_effects
from langgraph_toolmem.sit.evidence import SITEvidence, TransitionSeen, section
from langgraph_toolmem.sit.extract import extractive_summary
from langgraph_toolmem.sit.policy import SITPolicy
from langgraph_toolmem.sit.suggest import Suggestion
from langgraph_toolmem.sit.suggest import suggest as weigh
from langgraph_toolmem.sit.transitions import last_calls, source_of, transitions
from langgraph_toolmem.text.tools import ToolIndex

if TYPE_CHECKING:
    from langgraph_toolmem.core.core import Core
    from langgraph_toolmem.core.jobs import Job
    from langgraph_toolmem.graph.events import Forgotten, Record
    from langgraph_toolmem.graph.tool_graph import Table
    from langgraph_toolmem.runs.tools import ToolSpec
    from langgraph_toolmem.sit.rows import StoredSummary, Summaries, SummaryRows

EDGE: Final = "edge:"
"""How an item begins that is no summary: the tool is suggested by its edge alone."""
STORE: Final = "summaries"
"""Kind of the jobs that store the states of a run, or delete them after a bad verdict."""
SETTLE_SECONDS: Final = 10.0
"""Seconds that `suggest` waits for what was finished just now and is being written."""
SEARCHED: Final = 50
"""Tools that a search by description gives as candidates."""


class Advice(NamedTuple):
    """Suggestions, and what could not be looked at for them ("" if all could)."""

    suggestions: list[Suggestion]
    missing: str = ""


class SIT(Method):
    """Suggests the next tools from past runs.

    Args:
        policy: how states are remembered and next tools suggested. With ``recall="extractive"``, the default, states
            that the agent did not summarise are put into words without a model.

    Attributes:
        in_use: states of observed episodes are stored. The one of `default_methods` stores nothing before suggestions
            are asked for, except of runs that are finished or imported.
    """

    name: ClassVar[str] = "sit"
    package: ClassVar[tuple[str, str] | None] = ("chromadb", "memory")
    tables: ClassVar[tuple[type[Table], ...]] = (SITEvidence,)

    def __init__(self, policy: SITPolicy | None = None) -> None:
        if policy is not None and not isinstance(policy, SITPolicy):
            raise ConfigurationError(f"policy is a SITPolicy, not {type(policy).__name__}.")
        self.policy, self.in_use = policy or SITPolicy(), True
        self._stored_as = self.policy
        self._rows: SummaryRows | None = None
        self._index: tuple[Mapping[str, ToolSpec], ToolIndex] | None = None

    def open(self, core: Core) -> None:
        """Takes its table and its kind of jobs."""
        super().open(core)
        self.evidence = core.register(SITEvidence)
        core.jobs.handle(STORE, self._store, undo=lambda job: self.rows.forget_of(job.run, _user(job)))

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
        teach, those without a verdict less, as the policy has it; failed ones do not. A destructive tool that was
        called already for the request is left out.

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
            shown: the model gets to see the suggestions now; they are in the ledger.
            tools: the tools at hand at this step, as `read_tools` reads them.
        """
        _check(summary, k, available, policy)
        core, chosen = self.core, policy or self.policy
        run, user = core.read(messages, thread_id), core.users.of(user_id)
        if tools is not None:
            core.catalogue.adopt(tools)
        self.in_use = True
        core.refresh()
        with core.lock:
            rows = {source: self.evidence.walks.out_of(source) for source in (START, *last_calls(run))}
        edges = SimpleNamespace(out_of=lambda source: rows.get(source, {}))
        state, known = core.state_of(run), core.catalogue.specs
        rest: dict[str, Any] = {
            "policy": chosen,
            "summary": summary,
            "available": self._allowed(known.keys() if available is None and known else available, state),
            "search": partial(self._tool_index(known).search, k=SEARCHED) if known else None,
            "k": k,
            "state": state,
            "standing": self._standing,
        }
        missing = ""
        try:
            found = weigh(run, edges, self._summaries(user, chosen), **rest)
        except StorageError as error:
            missing = f"the stored summaries could not be read ({describe_error(error)})"
            core.log_failure_and_continue("summaries could not be read", error)
            found = weigh(run, edges, None, **rest)
        if shown and run.next_key is not None and not core.read_only:
            self._show(run, run.next_key, found, user)
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
        return EDGE + suggestion.tool if known is None else self.rows.key(known, user)

    def _allowed(self, available: Collection[str] | None, state: RunState) -> Collection[str] | None:
        """Return the tools without the destructive ones that were called already for the request."""
        marked = self.core.catalogue.marked()
        done = {step.tool for step in state.since_episode if step.status == "ok" and step.tool in marked}
        gone = {tool for tool in done if side_effects(marked[tool]) == "destroys"}
        return available if available is None or not gone else set(available) - gone

    def _tool_index(self, specs: Mapping[str, ToolSpec]) -> ToolIndex:
        if self._index is None or self._index[0] != specs:
            index = ToolIndex()
            index.declare(specs)
            self._index = dict(specs), index
        return self._index[1]

    def _standing(self, run: str) -> tuple[float, float]:
        """Return the share of a run that counts as good, and the share that nobody judged."""
        with self.core.lock:
            score, weight = self.core.score_of(run), self.core.weight_of(run)
        return (0.0, 1.0) if score is None else (weight, 1.0 - weight) if score >= GOOD else (0.0, 0.0)

    def _summaries(self, user: User, policy: SITPolicy) -> Summaries | None:
        if self.core.vectors.empty:
            return None
        from langgraph_toolmem.sit.rows import Summaries

        def fits(item: StoredSummary) -> bool:
            shares = (self._standing(use.run) for use in item.uses)
            return any(good + policy.unlabelled * unjudged > 0 for good, unjudged in shares)

        return Summaries(self.rows, user, builtin=self.core.vectors.embedder.builtin, fits=fits)

    def store_for(self, policy: SITPolicy) -> None:
        """Store states of observed episodes from now on, as a step with this policy reads them."""
        self.in_use, self._stored_as = True, policy

    asuggest = async_variant(suggest)

    # --- what happens ---

    def turn(self, learned: LearnedTurn) -> Record:
        """The edge that the turn walked."""
        source = source_of(learned.state)
        ended_well = [step for step in learned.turn.steps if step.status == "ok"]
        return [TransitionSeen(learned.run, step.key, source, step.tool) for step in ended_well if source is not None]

    def learned(self, run: Run, user: User) -> None:
        """Have the states of episodes that were answered in words stored in the background."""
        if self.in_use and run.answered():
            for episode in run.episodes():
                if isinstance(last := episode.events[-1], Turn) and not last.steps:
                    self._queue(episode, user)

    def ended(self, ended: EndedRun) -> None:
        """Have the states of a finished episode stored in the background."""
        self._queue(ended.run, ended.user)

    def judged(self, judged: JudgedRun) -> None:
        """Have the states of a run that went badly deleted."""
        core, run = self.core, judged.run
        known, _ = core.jobs.queue.namespace_of(run)  # a reviewer may be named
        namespace = known or core.namespace_of(run, judged.user_id)
        if judged.score < GOOD and namespace is not None and not core.read_only and not core.vectors.empty:
            core.jobs.put(STORE, {}, run=run, user=core.owner_of(run), namespace=namespace)

    def imported(self, given: Import) -> int:
        """Store the states of recorded runs; return how many are new."""
        core, kept = self.core, 0
        for _, runs in given.by_namespace():
            before, user = core.forgettings, runs[0].user
            seen = {each.run.digest: core.has_seen(_stored_key(each.run)) for each in runs}
            bad = {run for run in seen if self._is_bad(run)}
            new = [each for each in runs if not seen[each.run.digest] and each.run.digest not in bad]
            states = [(each, self._states(each.run, each.user)) for each in new]
            if found := [state for _, some in states for state in some]:
                self._put(found, user)
            gone = [run for run in bad if seen[run]]  # a label was corrected
            for run in gone if before == core.forgettings else seen:  # one of them was forgotten meanwhile, perhaps
                self.rows.forget_of(run, user)
            kept += sum(self._note_stored(each.run, some, each.user) for each, some in states)
        return kept

    # --- storing ---

    def _states(self, episode: Run, user: User) -> list[dict[str, str]]:
        """Return the states of an episode before its calls, in words."""
        if user.digest is None and self.core.users.apart:
            return []  # nobody's: it could only end up with somebody else
        extract = extractive_summary if self._stored_as.recall == "extractive" else None
        return [
            {
                "source": each.source if self._stored_as.kind == "paper" else each.place,
                "target": each.target,
                "text": each.summary,
                "made_by": each.made_by,
                "key": each.key,
                "run": episode.digest,
                "user": self.core.owner_of(episode.digest, user.digest),
            }
            for each in transitions(episode, summarise=extract)
            if each.summary
        ]

    def _queue(self, episode: Run, user: User) -> None:
        core, key = self.core, _stored_key(episode)
        if core.read_only or core.has_seen(key) or self._is_bad(episode.digest):
            return
        if states := self._states(episode, user):
            owner = states[0]["user"]
            core.jobs.put(STORE, {"states": states}, run=episode.digest, user=owner, namespace=user.namespace)
        self._note_stored(episode, states, user)

    def _note_stored(self, episode: Run, states: Sequence[Any], user: User) -> int:
        """Note that the states of an episode are stored, or safe in the queue; return how many are new."""
        with self.core.lock:
            count: Record = [Count("summaries", len(states))] if states else []
            new = self.core.apply(_stored_key(episode), count, user=user.digest, run=episode.digest)
        return len(states) if new else 0

    def _store(self, jobs: Sequence[Job]) -> None:
        for user, some in by_namespace(jobs):
            self._put([state for job in some for state in job.payload.get("states", ())], user)
            for job in some:
                if self._is_bad(job.run):
                    self.rows.forget_of(job.run, user)

    def _put(self, states: Iterable[Mapping[str, str]], user: User) -> None:
        from langgraph_toolmem.sit.rows import StoredSummary, Use

        now = self.core.now()
        self.rows.put(
            (
                StoredSummary.of(
                    each["source"],
                    each["target"],
                    each["text"],
                    each["made_by"],
                    Use(each["key"], each["run"], each["user"], now),
                )
                for each in states
                if not self._is_bad(each["run"])
            ),
            user,
        )

    def _is_bad(self, run: str) -> bool:
        score = self.core.score_of(run)
        return score is not None and score < GOOD

    @property
    def rows(self) -> SummaryRows:
        """The summaries of all users; made when they are first used (numpy)."""
        with self.core.lock:
            if self._rows is None:
                from langgraph_toolmem.sit.rows import SummaryKind

                self._rows = self.core.rows(SummaryKind(), self.name)
            return self._rows

    def forget(self, user: User, gone: Forgotten) -> int:
        """Delete a user's summaries, or those of runs."""
        if self.core.vectors.empty:
            return 0
        from langgraph_toolmem.sit.rows import forget_words

        forget_words()
        return self.rows.forget(user, gone)

    def report(self) -> Section | None:
        """Return what was suggested and followed, and how many states are stored."""
        core = self.core
        with core.lock:
            return section(self.evidence.walks, core.graph.counters, core.ledger.figures(self.name))


def _stored_key(episode: Run) -> str:
    """The key that says that the states of an episode, as long as it is now, are stored."""
    return digest("states", episode.digest, str(len(episode.events)))


def _user(job: Job) -> User:
    return User(None, job.user or None, job.namespace)


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
