"""Inertia: predicts the next tool call before the model is asked (AutoTool, arXiv 2511.14650).

Tool calls follow low-entropy patterns, so past runs predict the next tool **and its arguments**. The paper scores the
successors of the last tools (CIPS) and fills arguments from the data flow. Here predictions are first made silently.
Before each model turn the candidates are weighed; then a logistic regression learns from the model's answer the
probability that a call equals the model's *exactly*. A call is made without the model only above a threshold, within a
budget of misses, and for a familiar request.

==================  ==========================================================
``Inertia``         this method: its decisions and their results
``calibrated``      the default decision, in order: the situation, the candidates with their arguments, the vetoes
                    without a record; AutoTool's own is `papers.autotool`
``confidence``      the estimator's probability of each candidate, and the budget of calls that may be wrong
``novelty``         requests unlike those of the record
``selection``       words of the request that select another value than the likeliest
``cases``           values in past outputs that speak against a call
``corrections``     calls that the model corrected, sources that were wrong
``policy``          when to act, and what no record excuses: repeats, changes not named …
``decision``        the answer, its reason, and what traces show of it
``record``          hits and misses, calls made, as events of the evidence graph
``review``          agents, wrong calls and changes for a person to review; the section of the memory's report
``step``            the shortcut at a model call, and the settings that a host's context changes
``prefetch``        look-ups that run while the model is asked
``context``         look-ups that are made before the model is asked
``needed``          look-ups that the model makes later in the run
``exchange``        their execution, and the answers kept meanwhile
``speculative``     one call apart from the run, and the tools that qualify
==================  ==========================================================
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from langgraph_toolmem.base.checks import LogLine
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.text import digest, fraction_of
from langgraph_toolmem.base.threads import async_variant
from langgraph_toolmem.core.catalogue import suggested, undeclared_line
from langgraph_toolmem.core.method import LearnedTurn, Method, Section
from langgraph_toolmem.core.users import NOBODY, Owner
from langgraph_toolmem.graph.events import Count, ToolCount
from langgraph_toolmem.graph.sources import NOTHING_SEEN, SeenDigests, read_input
from langgraph_toolmem.graph.state import RunState, ToolRecords, as_called, tool_of
from langgraph_toolmem.graph.tool_graph import Table
from langgraph_toolmem.inertia.calibrated import (
    NEIGHBOURS,
    Calibrated,
    CallContexts,
    Similarity,
    Situation,
    followed,
    least_likely,
)
from langgraph_toolmem.inertia.cases import SURE, Cases, Guess, learn_case
from langgraph_toolmem.inertia.confidence import SHADOWED, Budget, Checked, Estimator
from langgraph_toolmem.inertia.context import (
    ContextHeldOut,
    ContextMade,
    ContextRecord,
    ContextShown,
    PrefetchedContext,
)
from langgraph_toolmem.inertia.corrections import Corrections, call_made, judge_sources, settle
from langgraph_toolmem.inertia.decision import Decision, Option, Proposal, Refusal, call_digests, of_tools
from langgraph_toolmem.inertia.exchange import ContextStore
from langgraph_toolmem.inertia.needed import NeededLookups
from langgraph_toolmem.inertia.novelty import Familiar
from langgraph_toolmem.inertia.policy import InertiaPolicy, credit_varied, may_write, misnamed, undeclared, with_records
from langgraph_toolmem.inertia.prefetch import Registry
from langgraph_toolmem.inertia.record import (
    MOST_STANDS_FOR,
    InertiaEvidence,
    JudgedCall,
    PredictionOutcome,
    TurnClosed,
    TurnOpened,
    begin_shortcut,
    credit_correction,
    credit_judged,
    credit_repeated_failure,
    credit_shortcut,
    failing_share,
    judged_calls,
    open_turn,
)
from langgraph_toolmem.inertia.review import AUDIT, SHADOW_CHECK, AgentPolicy, Agents, Changes, check_of, section_of
from langgraph_toolmem.inertia.speculative import REVIEWED
from langgraph_toolmem.runs.run import UNSEEN, ModelInput, Run, Turn
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.text.embedders import description_similarity
from langgraph_toolmem.turn.step import given_input

if TYPE_CHECKING:
    from langgraph_toolmem.core.core import Core
    from langgraph_toolmem.graph.cases import Neighbour
    from langgraph_toolmem.graph.events import Record
    from langgraph_toolmem.runs.tools import ToolSpec


logger = logging.getLogger("langgraph_toolmem.inertia")


class Inertia(Method):
    """The method that predicts the next tool call, and makes it without the model if past runs leave little doubt.

    Args:
        policy: the policy whose record is kept; nodes may use another one.
        seed: of the draw of audits.

    Raises:
        ConfigurationError: `policy` is not an InertiaPolicy.
    """

    name: ClassVar[str] = "inertia"
    tables: ClassVar[tuple[type[Table], ...]] = (
        InertiaEvidence,
        CallContexts,
        Estimator,
        Familiar,
        Budget,
        Cases,
        Corrections,
        Changes,
        ContextRecord,
        Agents,
    )

    def __init__(
        self,
        policy: InertiaPolicy | None = None,
        *,
        seed: int = 0,
    ) -> None:
        if policy is not None and not isinstance(policy, InertiaPolicy):
            raise ConfigurationError(f"`policy` must be an InertiaPolicy, got {type(policy).__name__}.")
        self.policy = policy or InertiaPolicy()
        self._seed = seed
        self._logged: set[object] = set()

    def open(self, core: Core) -> None:
        """Register the tables."""
        super().open(core)
        self.prefetched, self.contexts = Registry(core), ContextStore(core)
        self.evidence, self.budget = core.register(InertiaEvidence), core.register(Budget)
        self.cases, self.changes = core.register(Cases), core.register(Changes)
        self.corrections = core.register(Corrections)
        self.context = core.register(ContextRecord)
        self.agents = core.register(Agents)
        self._estimator = core.register(Estimator)
        self.needed = NeededLookups()
        core.texts.register(self.needed.forget)
        self._calibrated = Calibrated(core)
        self.similarity: Similarity = description_similarity(core.vectors.embedder, core.catalogue.given or {})

    # --- deciding ---

    def predict(
        self,
        messages: Any,
        *,
        policy: InertiaPolicy | None = None,
        user_id: str | None = None,
        system: str | None = None,
        context: Any = None,
    ) -> Proposal | None:
        """Return the next call, if the policy would propose one, without learning.

        Args:
            messages: the history, as `ToolMemory.observe` takes it.
            policy: when to act. Defaults to the method's own.
            user_id: the user of the run.
            system: the whole system prompt that the model will see. If None, it is unknown, and no value is taken from
                it.
            context: the run's context, as `ToolMemory.observe` takes it.

        Returns:
            A proposal (`act` says whether the policy would make the call without asking the model), or None;
            `explain` says why.

        Raises:
            ConfigurationError: `system` is not a text.
            MessageError: `messages` cannot be read.
            NamespaceError: the namespace needs a user id.
        """
        return self.explain(messages, policy=policy, user_id=user_id, system=system, context=context).proposal

    def explain(
        self,
        messages: Any,
        *,
        policy: InertiaPolicy | None = None,
        user_id: str | None = None,
        system: str | None = None,
        context: Any = None,
    ) -> Decision:
        """Return the decision of `predict`: the proposal or the reason against one, and the weighed candidates."""
        core = self.core
        model_input = given_input(system, context, core.private)
        run = core.read(messages)
        core.users.of(user_id)
        with core.lock:
            if not run.awaiting_model:
                return Decision(None, _not_our_turn(run))
            state = core.state_of(run)
            state.seen = read_input(model_input)
            specs, names = core.catalogue.recorded(), core.catalogue.records()
            situation = self.situation_of(state, policy=policy or self.policy, specs=specs, names=names)
            return of_tools(self.decide(situation), names)

    apredict, aexplain = async_variant(predict), async_variant(explain)

    def begin_turn(
        self,
        messages: Any,
        owner: Owner = NOBODY,
        *,
        policy: InertiaPolicy | None = None,
        tools: Mapping[str, ToolSpec] | None = None,
        recorded: bool = False,
        forbidden: Refusal | None = None,
        model_input: ModelInput = UNSEEN,
        agent: AgentPolicy | None = None,
        lookups: Collection[str] = (),
    ) -> Decision:
        """Learn the new turns, decide about the coming model turn, and record that it begins.

        A turn whose end is never reported counts as "the model did something else", so the record is right in a graph
        without a recorder too.

        Args:
            messages: the history, as `ToolMemory.observe` takes it.
            owner: thread and user of the run.
            policy: when to act. Defaults to the method's own.
            tools: the available tools at this step, as `read_tools` reads them. Defaults to the memory's own.
            recorded: True if a recorder reports the executions of this turn: a call that it does not report was not
                executed.
            forbidden: the reason why calls must not be made here at any confidence, or None.
            model_input: the model's input besides the messages.
            agent: the agent that asks, for the report. Defaults to an unnamed one with this policy.
            lookups: tools that are looked up before the model is asked, so the shortcut does not call them.

        Raises:
            MessageError: `messages` cannot be read.
            NamespaceError: the namespace needs a user id.
        """
        core, chosen = self.core, policy or self.policy
        run, user = core.read(messages, owner.thread_id), core.users.of(owner.user_id)
        # Not under the lock: it may wait for a shared store.
        core.refresh()
        with core.lock:
            if tools is not None:
                core.catalogue.adopt(tools)
            state = core.lifecycle.learn(run, user, specs=tools, inertia={"policy": chosen}).state
            if not run.awaiting_model or run.next_key is None:
                return Decision(None, _not_our_turn(run))
            self._log_declarations(chosen, tools)
            core.lifecycle.inputs.note(run.next_key, model_input)
            state.seen = read_input(model_input)
            specs, names = core.catalogue.recorded(tools), core.catalogue.records(tools)
            core.lifecycle.asked.note(run.next_key, names)
            decision = self.decide(self.situation_of(state, policy=chosen, specs=specs, names=names))
            by_context = _is_for_context(decision, lookups)
            if forbidden is not None:
                decision = decision.held(forbidden)
            elif by_context:
                decision = decision.held(Refusal("context", "it is looked up before the model is asked"))
            # A call of this turn that the recorder does not report was held back: it was not executed.
            if recorded:
                core.executions.begins(run.next_key)
            asking = agent or AgentPolicy("", chosen)
            found_by = _check_of_turn(decision, chosen, asking, forbidden, by_context=by_context)
            self._record_beginning(decision, state, run, user.digest, asking, found_by)
        # After the lock, and never an error of the model call: a job may wait longer without harm.
        core.log_and_continue("could not look for waiting jobs", core.jobs.poll)
        return of_tools(decision, names)

    def _record_beginning(
        self, decision: Decision, state: RunState, run: Run, user: str | None, agent: AgentPolicy, found_by: str
    ) -> None:
        """Record that a model turn begins, once: with a call in the model's place, or as a turn of the model."""
        core, turn = self.core, run.next_key or ""
        if decision.acts:
            record = self._shortcut_begins(decision, state, run, user, agent)
            core.apply(digest("shortcut", turn), record, user=user, run=run.digest)
        elif not self.evidence.knows(turn):
            record = self._model_turn_begins(decision, state, run, user, agent, found_by)
            core.apply(None, record, user=user, run=run.digest)

    def _shortcut_begins(
        self, decision: Decision, state: RunState, run: Run, user: str | None, agent: AgentPolicy
    ) -> Record:
        """Return the record of a turn in which a call is made without the model."""
        record = begin_shortcut(decision, self.core.graph.turns)
        record += call_made(decision, state.user_key, run.digest, user)
        return record + self.agents.begun(agent, self.core.hour(), acted=True)

    def _model_turn_begins(
        self, decision: Decision, state: RunState, run: Run, user: str | None, agent: AgentPolicy, found_by: str
    ) -> Record:
        """Return the record of a turn that the model takes.

        `found_by`: SHADOW_CHECK or AUDIT if the model's answer checks the proposed call, otherwise "".
        """
        hour, turn = self.core.hour(), run.next_key or ""
        record = open_turn(self.core.graph, state, turn, decision, user, audit=found_by == AUDIT)
        record += self.agents.begun(agent, hour, acted=False)
        if found_by and decision.proposal is not None:
            record.append(check_of(decision.proposal, run, user, agent, hour, found_by=found_by))
        return record

    def foresee(
        self,
        messages: Sequence[Any],
        owner: Owner,
        *,
        policy: InertiaPolicy,
        tools: Mapping[str, ToolSpec] | None,
        model_input: ModelInput,
    ) -> Decision:
        """Return the decision about the model turn after messages that are not in a state yet, without learning."""
        run = parse_run(messages, thread_id=owner.thread_id)
        with self.core.lock:
            if not run.awaiting_model:
                return Decision(None, _not_our_turn(run))
            names = self.core.catalogue.records(tools)
            state = RunState.of(run, names.read)
            state.seen = read_input(model_input)
            specs = self.core.catalogue.recorded(tools)
            situation = self.situation_of(state, policy=policy, specs=specs, names=names)
            return of_tools(self.decide(situation), names)

    def holds_out(self, messages: Sequence[Any], lookup: Option, settings: PrefetchedContext, owner: Owner) -> bool:
        """Return True if a look-up before a model turn is held out, drawn at random like audits, and record it then."""
        core, user = self.core, self.core.users.of(owner.user_id).digest
        with core.lock:
            share = self.context.held_out_share(settings)
            if self._draw("context", len(messages)) >= share:
                return False
            run = core.read(messages, owner.thread_id)
            stands_for = min(MOST_STANDS_FOR, round(1 / share))
            noted = ContextHeldOut(run.next_key or "", call_digests(lookup.tool, lookup.calls), stands_for, user)
            core.apply(None, [noted], user=user, run=run.digest)
            return True

    def lookups(self, decision: Decision) -> list[Option]:
        """Return the predicted turns with the probability that their calls are needed, likeliest first.

        A call is needed if the model makes it before something changes.
        """
        import numpy as np

        predicted = decision.predicted
        if not predicted:
            return []
        columns = np.array([option.columns for option in predicted], dtype=np.float64)
        with self.core.lock:
            probabilities = self._estimator.probabilities(columns, "needed")
        options = []
        for option, probability in zip(predicted, probabilities.tolist(), strict=True):
            options.append(replace(option, probability=probability))
        return sorted(options, key=least_likely)

    def shown(self, messages: Sequence[Any], owner: Owner) -> None:
        """Record that the model answers at this turn after it read the look-up that was predicted for it."""
        core, user = self.core, self.core.users.of(owner.user_id).digest
        with core.lock:
            run = core.read(messages, owner.thread_id)
            core.apply(None, [ContextShown(run.next_key or "", user)], user=user, run=run.digest)

    def looked_up(self, made: int, risk: float, vain: int) -> None:
        """Record the look-ups before a model turn, once the model has answered."""
        with self.core.lock:
            self.core.apply(None, [ContextMade(self.core.graph.turns, made, round(risk, 4), vain)])

    def is_open(self, turn: str) -> bool:
        """Return True if a model turn began here and its end is not known yet."""
        with self.core.lock:
            return turn in self.evidence.open_turns

    def situation_of(
        self,
        state: RunState,
        *,
        policy: InertiaPolicy,
        specs: Mapping[str, ToolSpec],
        names: ToolRecords,
        chosen_by: Sequence[str] | None = None,
    ) -> Situation:
        """Return a model turn with all evidence about it. The caller must hold the lock.

        Args:
            state: the run.
            policy: when to act.
            specs: the available tools, by the names of their records. The decision has these names.
            names: the names of the records.
            chosen_by: who chose the calls so far. Defaults to the run's own record.
        """
        # Published rules do not use past requests, so the search is skipped.
        graph, policy = self.core.graph, with_records(policy, names)
        if chosen_by is None:
            chosen_by = [step.chosen_by for step in state.steps]
        neighbours: Sequence[Neighbour] = ()
        if policy.published_rule() is None:
            neighbours = graph.cases.near(state, k=NEIGHBOURS)
        return Situation(
            graph=graph,
            state=state,
            neighbours=neighbours,
            specs=specs,
            policy=policy,
            constants=self.core.constants,
            today=self.core.hour() // 24,
            draw=self._draw("audit", state.user.raw, len(state.steps)),
            evidence=self.evidence,
            budget=self.budget,
            chosen_by=chosen_by,
            similarity=self.similarity,
        )

    def decide(self, situation: Situation) -> Decision:
        """Return the decision before one model turn. The caller must hold the lock."""
        rule = situation.policy.published_rule() or self._calibrated.decide
        return rule(situation)

    def _log_declarations(self, policy: InertiaPolicy, tools: Mapping[str, ToolSpec] | None) -> None:
        """Log once per set of tools which tools the developer's declarations cover, and which are undeclared."""
        most_logged = 256  # a host that makes its tools again for each call would fill log and memory
        key: object = id(tools)
        if tools is None:
            key = ("all", len(self.core.catalogue.specs))
        if key in self._logged or len(self._logged) >= most_logged:
            return
        self._logged.add(key)
        for line in self._lines_on_declarations(policy, tools):
            if line.text and line.text not in self._logged:
                logger.log(line.level, line.text)
                self._logged.add(line.text)

    def _lines_on_declarations(self, policy: InertiaPolicy, tools: Mapping[str, ToolSpec] | None) -> Iterator[LogLine]:
        """Yield lines for the log; a text may be ""."""
        catalogue = self.core.catalogue
        specs = {**catalogue.known, **(tools or {})}
        whole = catalogue.given is not None
        yield from misnamed(policy, specs, whole=whole)
        yield from catalogue.declarations.lines(catalogue.marked(specs), whole=whole)
        available = catalogue.marked(tools)
        missing = undeclared(available, policy)
        reading = suggested(available[name] for name in missing)
        # Without a suggestion there is nothing to paste: all undeclared tools are meant to change something.
        level = logging.DEBUG
        if reading:
            level = logging.WARNING
        yield LogLine(level, undeclared_line(missing, reading))

    def _draw(self, kind: str, *parts: str | int) -> float:
        """Return a number from 0 to 1 that depends on the seed, the turns seen so far and the parts of a history."""
        # Not on ids, which are drawn anew in every process: equal histories give equal decisions.
        return fraction_of(kind, self._seed, self.core.graph.turns, *parts)

    # --- learning ---

    def turn(self, learned: LearnedTurn) -> Record:
        """Return the result of the prediction before a turn that the model made or the shortcut took."""
        state, turn, number = learned.state, learned.turn, self.core.graph.turns
        chosen_by = self._chosen_by(learned)
        record = self._closed(turn)
        outcome = self._outcome(learned)
        record += outcome.record
        record += self.context.learned(as_called(turn))
        if turn.chosen_by == "model":
            record += self.agents.compared(turn)
            record += credit_repeated_failure(state, turn, graph=self.core.graph, number=number)
            record += self._corrected(learned, outcome, number)
        record += self.needed.learned(learned, outcome.judged, number, self.context.pending.get(turn.key))
        record += learn_case(self.cases, learned, _guess(outcome, learned), number)
        record += followed(state, turn, learned.thread, learned.user)
        for step in turn.steps:
            if step.review:
                record.append(ToolCount(step.tool, REVIEWED))
        record += credit_varied(state, learned.specs)
        record += self.changes.record(learned)
        # Calls that would have been shortcuts count as such for the caps of the paper's policy.
        chooser = "shortcut" if outcome.acts else turn.chosen_by
        chosen_by.extend([chooser] * len(turn.steps))
        return record

    def _outcome(self, learned: LearnedTurn) -> PredictionOutcome:
        """Return the prediction before a turn, compared with the turn."""
        turn = learned.turn
        opened = self.evidence.open_turns.get(turn.key)
        # A log does not have the prompt. The values at its known places were kept when the turn began.
        if opened is not None and learned.state.seen is NOTHING_SEEN:
            learned.state.seen = SeenDigests.of(opened.seen)
        if turn.chosen_by == "shortcut":
            return self._shortcut_outcome(learned)
        if turn.chosen_by == "context" or not self.context.stands_for(turn.key):
            # The model read the predicted look-up, so its answer does not check the prediction.
            return PredictionOutcome()
        if opened is not None:
            return self._opened_outcome(learned, opened)
        return self._unopened_outcome(learned)

    def _shortcut_outcome(self, learned: LearnedTurn) -> PredictionOutcome:
        """Return the outcome of a turn that the shortcut took."""
        turn, graph = learned.turn, self.core.graph
        asked = [step.tool for step in turn.steps]
        changes = int(any(_changes(tool, learned) for tool in asked))
        outcome = PredictionOutcome()
        if any(step.review for step in turn.steps):
            # A person reviewed the call and did not let it pass: the check failed.
            decision = self._decide_again(learned)
            if decision.options:
                asked = [decision.options[0].tool]  # the step has the tool that replaced it
            outcome.stopped = asked[0]
            outcome.record += self._credit(learned, judged_calls(decision), would_act=0)
            outcome.record += [Count("wrong"), ToolCount(outcome.stopped, "wrong")]
            outcome.record += self.agents.stopped(learned, outcome.stopped)
            # Not an audit: it was not drawn at random, and would not be a fair sample of the calls made.
            outcome.record.append(Checked(graph.turns, changes, 1, SHADOWED))
        failed = {step.tool for step in turn.steps if step.status == "failed"}
        fails_anyway = max((failing_share(graph, tool) for tool in failed), default=0.0)
        outcome.record += credit_shortcut(turn, asked, changes=changes, number=graph.turns, fails_anyway=fails_anyway)
        return outcome

    def _opened_outcome(self, learned: LearnedTurn, opened: TurnOpened) -> PredictionOutcome:
        """Return the outcome of a turn with a recorded beginning, given the calls that were predicted then."""
        judged = opened.judged_calls()
        if self._policy_of(learned).published_rule() is None:
            learned.neighbours = self.core.graph.cases.near(learned.state, k=NEIGHBOURS)
        record = self._credit(learned, judged, would_act=opened.would_act)
        return PredictionOutcome(record, judged, would_act=bool(opened.would_act))

    def _unopened_outcome(self, learned: LearnedTurn) -> PredictionOutcome:
        """Return the outcome of a turn without a recorded beginning, such as one in a log: it is predicted now."""
        decision = self._decide_again(learned)
        judged = judged_calls(decision)
        record = self._credit(learned, judged, would_act=int(decision.would_act))
        on_turn = learned.options.get(self.name, {}).get("on_turn")
        if on_turn is not None:
            on_turn(learned.turn, decision)
        return PredictionOutcome(record, judged, would_act=decision.would_act, acts=decision.acts)

    def _decide_again(self, learned: LearnedTurn) -> Decision:
        situation = self.situation_of(
            learned.state,
            policy=self._policy_of(learned),
            specs=learned.specs,
            names=self.core.catalogue.records(),
            chosen_by=self._chosen_by(learned),
        )
        learned.neighbours = situation.neighbours
        return self.decide(situation)

    def _credit(self, learned: LearnedTurn, judged: Sequence[JudgedCall], *, would_act: int) -> Record:
        return credit_judged(
            learned.turn,
            judged,
            would_act=would_act,
            audit_rate=self._policy_of(learned).audit_rate,
            number=self.core.graph.turns,
            stands_for=self.context.stands_for(learned.turn.key),
        )

    def _policy_of(self, learned: LearnedTurn) -> InertiaPolicy:
        policy: InertiaPolicy | None = learned.options.get(self.name, {}).get("policy")
        return policy or self.policy

    def _corrected(self, learned: LearnedTurn, outcome: PredictionOutcome, number: int) -> Record:
        """Return the events by which a model turn checks the memory's calls before it, and the sources of values."""
        settled = settle(self.corrections, learned, number)
        record = settled.record
        for call in settled.wrong:
            record += credit_correction(call, number)
            record += self.agents.corrected(learned, call)
        if outcome.judged:
            likeliest = outcome.judged[0]
            # A call that a person edited is not the model's.
            steps = [step for step in learned.turn.steps if step.tool == likeliest.tool and not step.review]
            wrong = outcome.would_act and likeliest.confidence >= SURE
            record += judge_sources(self.corrections, likeliest.values, steps, number, wrong=wrong)
        return record

    def repeated(self, learned: LearnedTurn) -> Record:
        """Learn from a fork: the turn began again, and the model acted the same way."""
        turn = learned.turn
        self._chosen_by(learned).extend([turn.chosen_by] * len(turn.steps))
        return [*self._closed(turn), *self.changes.record(learned)]

    def _chosen_by(self, learned: LearnedTurn) -> list[str]:
        """Return who chose the calls before a turn, as counted in this pass."""
        before: list[str] = [step.chosen_by for step in learned.state.steps]
        chosen_by: list[str] = learned.scratch.setdefault(self.name, before)
        return chosen_by

    def _closed(self, turn: Turn) -> Record:
        return [TurnClosed(turn.key)] if turn.key in self.evidence.open_turns else []

    def report(self) -> Section | None:
        """Return the share of right proposals of each kind, and whether the budget of misses has room."""
        with self.core.lock:
            return section_of(self)


def _changes(tool: str, learned: LearnedTurn) -> bool:
    """Return True if a tool that is available in a turn may change something."""
    return tool in learned.specs and may_write(tool, learned.specs)


def _guess(outcome: PredictionOutcome, learned: LearnedTurn) -> Guess | None:
    """Return the tool that was expected in a turn; None without a checked prediction."""
    if outcome.stopped:
        return Guess(outcome.stopped, 1.0, _changes(outcome.stopped, learned), stopped=True)
    if not outcome.judged:
        return None
    likeliest = outcome.judged[0]
    return Guess(likeliest.tool, likeliest.confidence, _changes(likeliest.tool, learned))


def _check_of_turn(
    decision: Decision, policy: InertiaPolicy, agent: AgentPolicy, forbidden: Refusal | None, *, by_context: bool
) -> str:
    """Return SHADOW_CHECK or AUDIT if the model's answer checks a call that would be made; otherwise ""."""
    if not decision.would_act or forbidden is not None:
        return ""
    if agent.policy.shadow:
        return SHADOW_CHECK
    if policy.shadow or by_context:
        return ""
    return AUDIT


def _is_for_context(decision: Decision, lookups: Collection[str]) -> bool:
    """Return True if the proposed call is one that is looked up before the model is asked.

    Look-ups that may be stale are not made there, so they stay with the shortcut: in a supervisor's graph, each agent
    begins right after a handoff. With `context=True` and without this rule, such a graph saved 0 model calls instead of
    one in five.
    """
    if decision.proposal is None:
        return False
    return tool_of(decision.proposal.tool) in lookups and not decision.options[0].stale


def _not_our_turn(run: Run) -> Refusal:
    if run.next_key is None:
        return Refusal("not_the_models_turn", "tool calls are pending: it is not the model's turn")
    return Refusal("not_the_models_turn", "the model has answered: the run is over until the user speaks")
