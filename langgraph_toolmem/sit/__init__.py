"""SIT: the next tools, by the continuations of similar states (SIT-Graph, arXiv 2512.07287).

Tool graphs know which tool usually follows which (procedural), memories recall whole episodes (episodic). Here both are
evidence for a tool: how often it came next after the same steps, and the **states** in which runs called it. A state is
the request with the words of the latest result, or of the summary that the agent wrote with the *summary tool*. The
present state is compared with the states of past runs at the same place. A suggestion is advice in the model's context,
never a command.

Requests are looked up in the index of the shortcut (`graph.cases`), and usual order in its counts: the method itself
keeps only transitions. Feedback is applied when a state is read, so it may change at any time. Observing and importing
a run have the same effect.

==================  ===============================================================
``SIT``             this method: what is learned and suggested
``evidence``        transitions of runs, and past states similar to the present
``suggest``         the three kinds of evidence, weighed; ``SITPolicy``
``step``            suggestions at a model call; the summary tool
==================  ===============================================================

The rule as published is in `papers.sit_graph`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from langgraph_toolmem.base.checks import is_count, policy_given
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.threads import async_variant
from langgraph_toolmem.core.method import LearnedTurn, Method, Section, shown_in_words
from langgraph_toolmem.core.users import NOBODY, Owner
from langgraph_toolmem.graph.events import GOOD
from langgraph_toolmem.graph.state import PARALLEL, WORDS, RunState, ToolRecords, tool_of, windows
from langgraph_toolmem.runs.tools import side_effects
from langgraph_toolmem.sit.evidence import NearState, SITEvidence, near_states, source_of, transitions
from langgraph_toolmem.sit.suggest import Hits, SITPolicy, Suggestion, Vote, by_record, hits_by_record, of_tool
from langgraph_toolmem.sit.suggest import suggest as weigh
from langgraph_toolmem.text.wording import tool_text
from langgraph_toolmem.text.words import LexicalIndex

if TYPE_CHECKING:
    from langgraph_toolmem.core.core import Core
    from langgraph_toolmem.graph.events import Record
    from langgraph_toolmem.graph.tool_graph import Table
    from langgraph_toolmem.runs.run import Run
    from langgraph_toolmem.runs.tools import ToolSpec


@dataclass(frozen=True, slots=True)
class RunShares:
    """The shares of good runs and of runs without feedback; the rest went badly."""

    good: float
    unjudged: float


@dataclass(frozen=True, slots=True)
class Advice:
    """Suggestions for the model's next turn in a run."""

    suggestions: tuple[Suggestion, ...]
    run: Run
    user_id: str | None


class SIT(Method):
    """The method that suggests the next tools from past runs.

    Args:
        policy: how next tools are suggested.
    """

    name: ClassVar[str] = "sit"
    most_candidates: ClassVar[int] = 50
    """Limit of candidates: of a search by description, and of the suggestions from which look-ups are chosen."""
    tables: ClassVar[tuple[type[Table], ...]] = (SITEvidence,)

    def __init__(self, policy: SITPolicy | None = None) -> None:
        self.policy = policy_given(policy, SITPolicy) or SITPolicy()
        self._indexed: Mapping[str, ToolSpec] | None = None
        self._index = LexicalIndex(())

    def open(self, core: Core) -> None:
        super().open(core)
        self.evidence = core.register(SITEvidence)

    def suggest(
        self,
        messages: Any,
        *,
        summary: str | None = None,
        k: int | None = None,
        available: Collection[str] | None = None,
        policy: SITPolicy | None = None,
        thread_id: str | None = None,
        user_id: str | None = None,
    ) -> list[Suggestion]:
        """Return the tools that may come next, best first: at most k, an empty list without evidence.

        Evidence is the continuations of similar past states, the usual successors, and the words of the request. Runs
        without feedback count less than successful ones, failed runs do not count. A destructive tool that was called
        already for the request is left out.

        Args:
            messages: the history so far.
            summary: the present state in words, if the agent wrote it.
            k: number of suggestions. Defaults to the policy's (2).
            available: names of the tools that may be suggested. Defaults to all known tools.
            policy: how the evidence is used. Defaults to the method's own.
            thread_id, user_id: of the run.

        Raises:
            MessageError: `messages` cannot be read.
            NamespaceError: the namespace needs a user id.
            ConfigurationError: an argument is invalid.
        """
        _check(summary, k, available, policy)
        core = self.core
        run = core.read(messages, thread_id)
        core.users.of(user_id)  # raises NamespaceError where a user has to be named
        # Other processes may have learned since; not under the lock, since a shared store may take its time.
        core.refresh()
        return self.suggest_for(core.state_of(run), summary=summary, k=k, available=available, policy=policy)

    asuggest = async_variant(suggest)

    def advise(
        self,
        messages: Any,
        owner: Owner = NOBODY,
        *,
        summary: str | None = None,
        available: Collection[str] | None = None,
        policy: SITPolicy | None = None,
        tools: Mapping[str, ToolSpec] | None = None,
    ) -> Advice:
        """Return the suggestions for a model: likely tools that are declared to only read.

        The paper's policy names any tool. Arguments and errors are those of `suggest`.

        Args:
            owner: thread and user of the run.
            tools: the tools of this step, as `read_tools` reads them. Defaults to the memory's.
        """
        _check(summary, None, available, policy)
        core = self.core
        policy = policy or self.policy
        run, user = core.read(messages, owner.thread_id), core.users.of(owner.user_id)
        if tools is not None:
            core.catalogue.adopt(tools)
        core.refresh()
        as_published = policy.kind == "paper"
        k = policy.k
        # All tools with evidence: the most likely may be changes, which are left out below.
        if not as_published:
            k = self.most_candidates
        suggestions = self.suggest_for(
            core.state_of(run, tools),
            summary=summary,
            k=k,
            available=available,
            policy=policy,
            names=core.catalogue.records(tools),
        )
        if not as_published:
            suggestions = _look_ups(suggestions, core.catalogue.marked(tools))
        # On recorded runs a quarter to a half of all suggestions scored less, and one in ten of those was right.
        likely = [suggestion for suggestion in suggestions if suggestion.score >= 0.1]
        return Advice(tuple(likely[: policy.k]), run, user.id)

    def note_shown(self, advice: Advice, tools: Collection[str]) -> None:
        """Record that the model sees the advice on these tools before its next turn."""
        run = advice.run
        # Without a next turn the advice cannot be followed; see `Run.next_key`.
        if run.next_key is None or self.core.read_only or not tools:
            return
        self.core.know(run)
        items: dict[str, str | None] = {tool: tool for tool in tools}
        self.core.ledger.shown(self.name, items, run=run.digest, turn=run.next_key, user_id=advice.user_id)

    def suggest_for(
        self,
        state: RunState,
        *,
        summary: str | None = None,
        k: int | None = None,
        available: Collection[str] | None = None,
        policy: SITPolicy | None = None,
        names: ToolRecords | None = None,
    ) -> list[Suggestion]:
        """Return the suggestions for the state of a run; `names` are the records of its tools."""
        policy = policy or self.policy
        names = names or self.core.catalogue.records()
        summary = (summary or "").strip()
        if k is None:
            k = policy.k
        allowed = by_record(self._allowed(available, state), names)
        hits = hits_by_record(self._described(state.user.raw or summary), names)
        # The search above works without the lock; from here on the graph is read, which other threads change.
        with self.core.lock:
            suggestions = self._suggested(state, policy, summary, hits, allowed, k)
        return [of_tool(suggestion, names) for suggestion in suggestions]

    def _described(self, text: str) -> Hits:
        """Return the known tools whose descriptions fit a text, with scores."""
        known = self.core.catalogue.specs
        if not known:
            return []
        return self._tool_index(known).search(text, k=self.most_candidates)

    def _suggested(
        self,
        state: RunState,
        policy: SITPolicy,
        summary: str,
        hits: Hits,
        allowed: Collection[str] | None,
        k: int,
    ) -> list[Suggestion]:
        source = source_of(state)
        if policy.kind == "paper":
            from langgraph_toolmem.papers.sit_graph import suggest_as_published

            return suggest_as_published(
                self.evidence, source, summary, hits, good=self._good_share, available=allowed, k=k
            )
        near = near_states(state, source, self.evidence, summary=summary)
        # Usual order is counted over all runs, so it is left out if only good runs may count.
        habits: Mapping[str, float] = {}
        if policy.unlabelled:
            habits = self._habits(state)
        votes = self._votes(near, policy)
        return weigh(habits, votes, hits, k=k, unlabelled=policy.unlabelled, available=allowed)

    def _votes(self, near: Iterable[NearState], policy: SITPolicy) -> Iterator[Vote]:
        """Yield past states weighted by the feedback on their runs, lazily: only the first ones are read."""
        for past in near:
            shares = self._shares(past.seen.run)
            weight = shares.good + shares.unjudged * policy.unlabelled
            yield Vote(past.similarity, past.seen.target, weight, judged=shares.good > 0)

    def _good_share(self, run: str) -> float:
        return self._shares(run).good

    def _shares(self, run: str) -> RunShares:
        # Read at each suggestion, not when the run is learned: feedback may come later, and change.
        verdict = self.core.graph.verdict(run)
        if verdict is None:
            return RunShares(0.0, 1.0)
        if verdict.score >= GOOD:
            return RunShares(verdict.weight, 1.0 - verdict.weight)
        # A bad run does not count, because it is unknown which of its calls was wrong.
        return RunShares(0.0, 0.0)

    def _habits(self, state: RunState) -> dict[str, float]:
        """Return how often models called each tool after the same two last symbols, for all outcomes of the runs."""
        # The last two symbols: hit@2 on multi-turn calls (bfcl) is 79.2 after one, 80.3 after two, 80.0 after three.
        calls: dict[str, float] = defaultdict(float)
        after_two = windows(state)[2]
        for symbol, counts in self.core.graph.successors.row(after_two).items():
            # An answer in words is not a tool.
            tool = symbol.removeprefix(PARALLEL)
            if tool and symbol != WORDS:
                calls[tool] += sum(counts)
        return calls

    def _allowed(self, available: Collection[str] | None, state: RunState) -> Collection[str] | None:
        """Return the tools without the destructive ones that were called already for the request.

        If `available` is None, these are the tools that the memory knows, if it knows any.
        """
        known = self.core.catalogue.specs
        if available is None and known:
            available = known.keys()
        # Deleted data cannot be restored: a second deletion is the model's own decision.
        marked = self.core.catalogue.marked()
        gone = set()
        for step in state.since_episode:
            tool = tool_of(step.tool)
            if step.status == "ok" and tool in marked and side_effects(marked[tool]) == "destroys":
                gone.add(tool)
        if available is None or not gone:
            return available
        return set(available) - gone

    def _tool_index(self, specs: Mapping[str, ToolSpec]) -> LexicalIndex:
        """Return the index of all descriptions, made again when a tool has changed."""
        if self._indexed != specs:
            index = LexicalIndex((spec.name, tool_text(spec)) for spec in specs.values())
            # The index first: another thread that finds the new specs must find their index.
            self._index = index
            self._indexed = dict(specs)
        return self._index

    def turn(self, learned: LearnedTurn) -> Record:
        return list(transitions(learned))

    def report(self) -> Section | None:
        with self.core.lock:
            shown, runs = self.core.ledger.figures(self.name), self.evidence.runs
            states, waiting = 0, 0
            for run, transitions_of_run in runs.items():
                states += len(transitions_of_run)
                waiting += self.core.graph.verdict(run) is None
        lines = list(shown_in_words("Next tools", shown))
        if lines and waiting:
            lines.append(f"Runs without feedback: {waiting:,}; successful ones teach suggestions more than these.")
        return Section("Next tools", {**shown, "states": states, "runs_waiting": waiting}, tuple(lines))


def _look_ups(suggestions: list[Suggestion], marked: Mapping[str, ToolSpec]) -> list[Suggestion]:
    """Return the suggestions of tools that are declared to only read, because hints never propose a change."""
    look_ups = []
    for suggestion in suggestions:
        spec = marked.get(suggestion.tool)
        if spec is not None and side_effects(spec) == "reads":
            look_ups.append(suggestion)
    return look_ups


def _check(summary: Any, k: Any, available: Any, policy: Any) -> None:
    if summary is not None and not isinstance(summary, str):
        raise ConfigurationError(f"`summary` must be a text, got {type(summary).__name__}.")
    if k is not None and not is_count(k, 1):
        raise ConfigurationError(f"`k` must be a whole number from 1, got {k!r}.")
    policy_given(policy, SITPolicy)
    if available is not None and not _are_names(available):
        raise ConfigurationError(f"`available` must be a collection of tool names, got {available!r}.")


def _are_names(names: Any) -> bool:
    # A single name is a collection of letters, and letters are no tools.
    if not isinstance(names, Collection) or isinstance(names, str):
        return False
    return all(isinstance(name, str) for name in names)
