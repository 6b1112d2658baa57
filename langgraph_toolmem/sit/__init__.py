"""SIT: which tool comes next, by what similar states went on with (SIT-Graph, arXiv 2512.07287).

Tool graphs know which tool usually follows which (procedural), memories recall whole episodes (episodic). Here both
speak for a tool: how often it came next after the same steps, and the **states** in which runs called it. A state is
the request with the words of the latest result, or of the summary that the agent wrote with the *summary tool*. The
present state is compared with those in which past runs stood at the same place. A suggestion is advice in the model's
context, never a command.

Requests are looked up in the index that the shortcut uses (`graph.cases`), and usual order in its counts: of its own
the method keeps only transitions. Feedback counts when a state is read, so it may change at any time. Observed and
imported runs give the same memory.

==================  ===============================================================
``SIT``             this method: what is learned and suggested
``evidence``        transitions of runs, and past states similar to the present
``suggest``         the three kinds of evidence, weighed; ``SITPolicy``
``paper``           the rule as published
``step``            suggestions at a model call; the summary tool
==================  ===============================================================
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from langgraph_toolmem.base.checks import is_count, policy_given
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.threads import async_variant
from langgraph_toolmem.core.method import LearnedTurn, Method, Section, shown_in_words
from langgraph_toolmem.graph.events import GOOD
from langgraph_toolmem.graph.records import ToolRecords, tool_of
from langgraph_toolmem.graph.state import PARALLEL, WORDS, RunState, windows
from langgraph_toolmem.runs.tools import side_effects
from langgraph_toolmem.sit.evidence import SITEvidence, TransitionSeen, near_states, source_of, transitions
from langgraph_toolmem.sit.paper import suggest_as_published
from langgraph_toolmem.sit.suggest import SITPolicy, Suggestion, Vote, of_tool
from langgraph_toolmem.sit.suggest import suggest as weigh
from langgraph_toolmem.text.tools import tool_text
from langgraph_toolmem.text.words import LexicalIndex

if TYPE_CHECKING:
    from langgraph_toolmem.core.core import Core
    from langgraph_toolmem.graph.events import Record
    from langgraph_toolmem.graph.tool_graph import Table
    from langgraph_toolmem.runs.run import Run
    from langgraph_toolmem.runs.tools import ToolSpec

SEARCHED: Final = 50
"""Tools that a search by description gives as candidates."""
WORTH: Final = 0.1
"""Score from which a suggestion is shown to a model: less likely ones are right in one of ten cases."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Suggestions for the model's next turn in a run."""

    suggestions: tuple[Suggestion, ...]
    run: Run
    user_id: str | None


class SIT(Method):
    """Suggests the next tools from past runs.

    Args:
        policy: how next tools are suggested.
    """

    name: ClassVar[str] = "sit"
    tables: ClassVar[tuple[type[Table], ...]] = (SITEvidence,)

    def __init__(self, policy: SITPolicy | None = None) -> None:
        self.policy = policy_given(policy, SITPolicy) or SITPolicy()
        self._index: tuple[Mapping[str, ToolSpec], LexicalIndex] | None = None

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
        """Return the tools that may come next, best first: at most k, none if nothing speaks for any.

        Evidence is what similar past states went on with, what usually follows, and what the request asks for. Runs
        without feedback teach less than successful ones, failed ones do not. A destructive tool that was called
        already for the request is left out.

        Args:
            messages: the history so far.
            summary: the present state in words, if the agent wrote it.
            k: how many; the policy's (2) if None.
            available: names of the tools that may be suggested; all known ones if None.
            policy: how the evidence is used; the method's own if None.
            thread_id, user_id: of the run.

        Raises:
            MessageError: `messages` cannot be read.
            NamespaceError: the namespace needs a user id.
            ConfigurationError: an argument cannot work.
        """
        _check(summary, k, available, policy)
        core = self.core
        run, _ = core.read(messages, thread_id), core.users.of(user_id)
        core.refresh()
        return self.suggest_for(core.state_of(run), summary=summary, k=k, available=available, policy=policy)

    asuggest = async_variant(suggest)

    def advise(
        self,
        messages: Any,
        *,
        summary: str | None = None,
        available: Collection[str] | None = None,
        policy: SITPolicy | None = None,
        thread_id: str | None = None,
        user_id: str | None = None,
        tools: Mapping[str, ToolSpec] | None = None,
    ) -> Advice:
        """Return the suggestions that a model may read: likely tools that are declared to only read.

        The paper's policy names any tool. Arguments and errors are those of `suggest`.

        Args:
            tools: the tools of this step, as `read_tools` reads them; those of the memory if None.
        """
        _check(summary, None, available, policy)
        core, policy = self.core, policy or self.policy
        run, user = core.read(messages, thread_id), core.users.of(user_id)
        if tools is not None:
            core.catalogue.adopt(tools)
        core.refresh()
        k = policy.k if policy.kind == "paper" else SEARCHED
        state = core.state_of(run, tools)
        how: dict[str, Any] = {"summary": summary, "k": k, "available": available, "policy": policy}
        found = self.suggest_for(state, names=core.catalogue.records(tools), **how)
        if policy.kind != "paper":
            marked = core.catalogue.marked(tools)
            found = [each for each in found if each.tool in marked and side_effects(marked[each.tool]) == "reads"]
        likely = [each for each in found if each.score >= WORTH]
        return Advice(tuple(likely[: policy.k]), run, user.id)

    def note_shown(self, advice: Advice, tools: Collection[str]) -> None:
        """Record that the model sees the advice on these tools before its next turn."""
        run = advice.run
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
        """Return the same for the state of a run; `names` are the records of its tools."""
        policy, names = policy or self.policy, names or self.core.catalogue.records()
        summary, k = (summary or "").strip(), policy.k if k is None else k
        known = self.core.catalogue.specs
        allowed = self._allowed(known.keys() if available is None and known else available, state)
        hits = self._tool_index(known).search(state.user.raw or summary, k=SEARCHED) if known else []
        if names.apart:
            hits = [(names.offered.get(tool, tool), score) for tool, score in hits]
            allowed = None if allowed is None else {names.offered.get(tool, tool) for tool in allowed}
        with self.core.lock:
            found = self._suggested(state, policy, summary, hits, allowed, k)
        return [of_tool(each, names) for each in found]

    def _suggested(
        self,
        state: RunState,
        policy: SITPolicy,
        summary: str,
        hits: list[tuple[str, float]],
        allowed: Collection[str] | None,
        k: int,
    ) -> list[Suggestion]:
        source = source_of(state)
        if policy.kind == "paper":
            good = lambda run: self._shares(run)[0]  # noqa: E731
            return suggest_as_published(self.evidence, source, summary, hits, good=good, available=allowed, k=k)
        near = near_states(state, source, self.evidence, summary=summary)
        votes = (self._vote(similarity, seen, policy) for similarity, seen in near)
        habits = self._habits(state) if policy.unlabelled else {}
        return weigh(habits, votes, hits, k=k, unlabelled=policy.unlabelled, available=allowed)

    def _vote(self, similarity: float, seen: TransitionSeen, policy: SITPolicy) -> Vote:
        """Weigh a state by the feedback on its run."""
        good, unjudged = self._shares(seen.run)
        return Vote(similarity, seen.target, good + unjudged * policy.unlabelled, good > 0)

    def _shares(self, run: str) -> tuple[float, float]:
        """Return the share of a run that went well, and the share of it that nobody judged."""
        stands = self.core.graph.verdict(run)
        if stands is None:
            return 0.0, 1.0
        return (stands.weight, 1.0 - stands.weight) if stands.score >= GOOD else (0.0, 0.0)

    def _habits(self, state: RunState) -> dict[str, float]:
        """Return how often models called each tool after the same two last symbols, whatever became of the runs."""
        found: dict[str, float] = defaultdict(float)
        for symbol, counts in self.core.graph.successors.row(windows(state)[2]).items():
            if symbol != WORDS and (tool := symbol.removeprefix(PARALLEL)):
                found[tool] += sum(counts)
        return found

    def _allowed(self, available: Collection[str] | None, state: RunState) -> Collection[str] | None:
        """Return the tools without the destructive ones that were called already for the request."""
        marked = self.core.catalogue.marked()
        done = {tool_of(step.tool) for step in state.since_episode if step.status == "ok"}
        gone = {tool for tool in done if tool in marked and side_effects(marked[tool]) == "destroys"}
        return available if available is None or not gone else set(available) - gone

    def _tool_index(self, specs: Mapping[str, ToolSpec]) -> LexicalIndex:
        if self._index is None or self._index[0] != specs:
            self._index = dict(specs), LexicalIndex((spec.name, tool_text(spec)) for spec in specs.values())
        return self._index[1]

    def turn(self, learned: LearnedTurn) -> Record:
        return list(transitions(learned))

    def report(self) -> Section | None:
        with self.core.lock:
            shown, runs = self.core.ledger.figures(self.name), self.evidence.runs
            waiting = sum(self.core.graph.verdict(run) is None for run in runs)
            kept = {"states": sum(map(len, runs.values())), "runs_waiting": waiting}
        lines = list(shown_in_words("Next tools", shown))
        if lines and waiting:
            lines.append(f"Runs without feedback: {waiting:,}; successful ones teach suggestions more than these.")
        return Section("Next tools", {**shown, **kept}, tuple(lines))


def _check(summary: Any, k: Any, available: Any, policy: Any) -> None:
    if summary is not None and not isinstance(summary, str):
        raise ConfigurationError(f"`summary` must be a text, got {type(summary).__name__}.")
    if k is not None and not is_count(k, 1):
        raise ConfigurationError(f"`k` must be a whole number from 1, got {k!r}.")
    policy_given(policy, SITPolicy)
    fine = isinstance(available, Collection) and not isinstance(available, str)
    if available is not None and not (fine and all(isinstance(name, str) for name in available)):
        raise ConfigurationError(f"`available` must be a collection of tool names, got {available!r}.")
