"""Inertia: the next tool call is often known before the model is asked (AutoTool, arXiv 2511.14650).

Tool calls follow low-entropy patterns, so past runs predict the next tool **and its arguments**. The paper scores the
successors of the last tools (CIPS) and fills arguments from the data flow. Here every prediction is made silently
first. Before each model turn the candidates are weighed; then a logistic regression learns from the model's answer how
probable it is that a call is *exactly* what the model would make. A call is made without the model only above a bar,
within a budget of misses, and for a request like those seen before.

==================  ==========================================================
``Inertia``         this method: its decisions and their results
``calibrated``      the default policy, in order; ``paper``: AutoTool's
``candidates``      what may come, and with which arguments
``estimator``       how likely each candidate is: one ridge logistic regression
``novelty``         requests unlike those of the record
``cases``           values in past outputs that speak against a call
``guards``          what no record excuses: repeats, changes not named …
``corrections``     calls that the model corrected, sources that were wrong
``budget``          the number of calls that may be wrong
``record``          hits and misses, calls made, as events of the evidence graph
``policy``          when to act; ``settings``: what a host's context changes
``decision``        the answer, its reason, and what traces show of it
``report``          the section of the memory's report
``agents``          the agents of a memory, and their results in shadow mode
``step``            the shortcut at a model call
``prefetch``        look-ups that run while the model is asked
``context``         look-ups that are made before the model is asked
``exchange``        their execution, and the answers kept meanwhile
==================  ==========================================================
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.base.threads import async_variant
from langgraph_toolmem.core.catalogue import suggested, undeclared_line
from langgraph_toolmem.core.method import LearnedTurn, Method, Section
from langgraph_toolmem.graph.events import Count, ToolCount
from langgraph_toolmem.graph.records import ToolRecords, as_called, tool_of
from langgraph_toolmem.graph.seen_input import NOTHING_SEEN, SeenDigests, read_input
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.graph.tool_graph import Table
from langgraph_toolmem.inertia import calibrated, guards, paper
from langgraph_toolmem.inertia.agents import AUDIT, SHADOW, AgentPolicy, Agents, check_of, would_save
from langgraph_toolmem.inertia.budget import SHADOWED, Budget, Checked
from langgraph_toolmem.inertia.candidates import NEIGHBOURS, CallContexts, followed
from langgraph_toolmem.inertia.cases import SURE, Cases, Guess, learn_case
from langgraph_toolmem.inertia.context import (
    ContextHeldOut,
    ContextMade,
    ContextRecord,
    ContextShown,
    PrefetchedContext,
    call_digest,
)
from langgraph_toolmem.inertia.corrections import Corrections, call_made, judge_sources, settle
from langgraph_toolmem.inertia.decision import Decision, Option, Proposal, Refusal, of_tools
from langgraph_toolmem.inertia.estimator import Estimator
from langgraph_toolmem.inertia.exchange import ContextStore
from langgraph_toolmem.inertia.guards import credit_varied, may_write
from langgraph_toolmem.inertia.novelty import NoveltyRecord
from langgraph_toolmem.inertia.policy import InertiaPolicy, PaperPolicy, with_records
from langgraph_toolmem.inertia.prefetch import Registry
from langgraph_toolmem.inertia.record import (
    MOST_STANDS_FOR,
    REVIEWED,
    Changes,
    InertiaEvidence,
    TurnClosed,
    begin_shortcut,
    credit_correction,
    credit_judged,
    credit_repeated_failure,
    credit_shortcut,
    failing_share,
    open_turn,
    plain_judged,
)
from langgraph_toolmem.inertia.report import section_of, with_context
from langgraph_toolmem.runs.model_input import UNSEEN, ModelInput
from langgraph_toolmem.runs.run import Run, Turn
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.text.embedders import description_similarity
from langgraph_toolmem.turn.seen import given_input

if TYPE_CHECKING:
    from langgraph_toolmem.core.core import Core
    from langgraph_toolmem.graph.cases import Neighbour
    from langgraph_toolmem.graph.events import Record
    from langgraph_toolmem.runs.tools import ToolSpec


MAX_TOLD: Final = 256
"""Sets of tools that are logged."""

ONLY_THE_MODEL_READS: Final = "the request holds a picture or file, which only the model reads"

logger = logging.getLogger("langgraph_toolmem.inertia")


class Inertia(Method):
    """Predicts the next tool call, and makes it without the model where past calls are clear enough.

    Args:
        policy: for which the record is kept; nodes may use another one.
        seed: of the draw of proposals that are audited.
    """

    name: ClassVar[str] = "inertia"
    tables: ClassVar[tuple[type[Table], ...]] = (
        InertiaEvidence,
        CallContexts,
        Estimator,
        NoveltyRecord,
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
            raise ConfigurationError(f"policy is an InertiaPolicy, not {type(policy).__name__}.")
        self.policy = policy or InertiaPolicy()
        self._seed = seed
        self._told: set[object] = set()

    def open(self, core: Core) -> None:
        """Register the tables."""
        super().open(core)
        self.prefetched, self.contexts = Registry(core), ContextStore(core)
        self.evidence, self.budget = core.register(InertiaEvidence), core.register(Budget)
        self.cases, self.changes = core.register(Cases), core.register(Changes)
        self.corrections = core.register(Corrections)
        self.context = core.register(ContextRecord)
        self.agents = core.register(Agents)
        self._tables = calibrated.Tables(
            self.evidence,
            core.register(CallContexts),
            core.register(NoveltyRecord),
            self.budget,
            self.cases,
            core.register(Estimator),
            self.corrections,
        )
        self.similarity: paper.Similarity = description_similarity(core.vectors.embedder, core.catalogue.given or {})

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
        """Return the next call, if the policy would propose one. Learns nothing.

        Args:
            messages: the history, as `ToolMemory.observe` takes it.
            policy: when to act. Defaults to the method's own.
            user_id: the user of the run.
            system: the whole system prompt that the model will see. None: it is unknown and gives no value.
            context: the run's context, as `ToolMemory.observe` takes it.

        Returns:
            A proposal (`act` says whether the policy would make the call without asking the model), or None;
            `explain` says why.

        Raises:
            ConfigurationError: `system` is no text.
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
        """Return the decision behind `predict`: the proposal or the reason for none, and the candidates weighed."""
        core = self.core
        model_input = given_input(system, context, core.private)
        run, user = core.read(messages), core.users.of(user_id)
        with core.lock:
            if not run.awaiting_model:
                return Decision(None, _not_our_turn(run))
            state = core.state_of(run)
            state.seen = read_input(model_input)
            specs, names = core.catalogue.recorded(), core.catalogue.records()
            decision, _ = self.decide(state, policy=policy or self.policy, user=user.digest, specs=specs, names=names)
            return of_tools(decision, names)

    apredict, aexplain = async_variant(predict), async_variant(explain)

    def begin_turn(
        self,
        messages: Any,
        *,
        thread_id: str | None = None,
        user_id: str | None = None,
        policy: InertiaPolicy | None = None,
        tools: Mapping[str, ToolSpec] | None = None,
        recorded: bool = False,
        forbidden: Refusal | None = None,
        model_input: ModelInput = UNSEEN,
        agent: AgentPolicy | None = None,
        lookups: Collection[str] = (),
    ) -> Decision:
        """Learn what is new, decide about the model turn that comes now, and note that it begins.

        A turn whose end is never reported counts as "the model did something else". So a graph without a recorder
        keeps an honest record too.

        Args:
            messages: the history, as `ToolMemory.observe` takes it.
            thread_id: the thread.
            user_id: the user of the run.
            policy: when to act. Defaults to the method's own.
            tools: the available tools at this step, as `read_tools` reads them. Defaults to the memory's own.
            recorded: True if a recorder reports the executions of this turn: a call that it does not report was not
                executed.
            forbidden: why no call may be made here at any confidence; None if one may.
            model_input: what the model sees besides the messages.
            agent: the agent that asks, for the report. Defaults to an unnamed one with this policy.
            lookups: tools that are looked up before the model is asked, so no call of them is made in its place.

        Raises:
            MessageError: `messages` cannot be read.
            NamespaceError: the namespace needs a user id.
        """
        core, chosen = self.core, policy or self.policy
        run, user = core.read(messages, thread_id), core.users.of(user_id)
        core.refresh()
        with core.lock:
            if tools is not None:
                core.catalogue.adopt(tools)
            state, _ = core.lifecycle.learn(run, user, specs=tools, inertia={"policy": chosen})
            if not run.awaiting_model or run.next_key is None:
                return Decision(None, _not_our_turn(run))
            self._log_declarations(chosen, tools)
            core.lifecycle.inputs.note(run.next_key, model_input)
            state.seen = read_input(model_input)
            specs, names = core.catalogue.recorded(tools), core.catalogue.records(tools)
            core.lifecycle.asked.note(run.next_key, names)
            decision, _ = self.decide(state, policy=chosen, user=user.digest, specs=specs, names=names)
            by_context = _is_for_context(decision, lookups)
            if forbidden is not None:
                decision = decision.held(forbidden)
            elif by_context:
                decision = decision.held(Refusal("context", "it is looked up before the model is asked"))
            if recorded:
                core.executions.begins(run.next_key)
            whose: dict[str, Any] = {"user": user.digest, "run": run.digest}
            asking = agent or AgentPolicy("", chosen)
            if decision.acts:
                begun = begin_shortcut(decision, core.graph.turns)
                begun += call_made(decision, state.user_key, run.digest, user.digest)
                begun += self.agents.begun(asking, core.hour(), acted=True)
                core.apply(digest("shortcut", run.next_key), begun, **whose)
            elif not self.evidence.knows(run.next_key):
                audit = decision.would_act and forbidden is None and not chosen.shadow and not by_context
                begun = open_turn(core.graph, state, run.next_key, decision, user.digest, audit=audit)
                begun += self.agents.begun(asking, core.hour(), acted=False)
                in_shadow = would_save(decision, asking, forbidden)
                if decision.proposal is not None and (in_shadow or audit):
                    begun += check_of(
                        decision.proposal,
                        run.next_key,
                        asking,
                        found_by=SHADOW if in_shadow else AUDIT,
                        hour=core.hour(),
                        thread=run.thread_id or "",
                        **whose,
                    )
                core.apply(None, begun, **whose)
        core.log_and_continue("could not look for waiting jobs", core.jobs.poll)
        return of_tools(decision, names)

    def foresee(
        self,
        messages: Sequence[Any],
        *,
        thread_id: str | None,
        user_id: str | None,
        policy: InertiaPolicy,
        tools: Mapping[str, ToolSpec] | None,
        model_input: ModelInput,
    ) -> Decision:
        """Return the decision about the model turn after messages that no state has yet. Learns and keeps nothing."""
        run, user = parse_run(messages, thread_id=thread_id), self.core.users.of(user_id)
        with self.core.lock:
            if not run.awaiting_model:
                return Decision(None, _not_our_turn(run))
            names = self.core.catalogue.records(tools)
            state = RunState.of(run, names.read)
            state.seen = read_input(model_input)
            specs = self.core.catalogue.recorded(tools)
            decision, _ = self.decide(state, policy=policy, user=user.digest, specs=specs, names=names)
            return of_tools(decision, names)

    def holds_out(
        self,
        messages: Sequence[Any],
        lookup: Option,
        settings: PrefetchedContext,
        *,
        thread_id: str | None,
        user_id: str | None,
    ) -> bool:
        """Return True if a look-up before a model turn is held out, drawn by chance as audits are; note it if so."""
        core, user = self.core, self.core.users.of(user_id).digest
        with core.lock:
            share = self.context.held_out_share(settings)
            draw = int(digest("context", self._seed, core.graph.turns, len(messages))[:8], 16) / 0x100000000
            if draw >= share:
                return False
            run = core.read(messages, thread_id)
            stands_for = min(MOST_STANDS_FOR, round(1 / share))
            noted = ContextHeldOut(run.next_key or "", call_digest(lookup.tool, lookup.calls), stands_for, user)
            core.apply(None, [noted], user=user, run=run.digest)
            return True

    def shown(self, messages: Sequence[Any], *, thread_id: str | None, user_id: str | None) -> None:
        """Note that the model answers at this turn after it read the look-up that was predicted for it."""
        core, user = self.core, self.core.users.of(user_id).digest
        with core.lock:
            run = core.read(messages, thread_id)
            core.apply(None, [ContextShown(run.next_key or "", user)], user=user, run=run.digest)

    def looked_up(self, made: int, risk: float, vain: int) -> None:
        """Note the look-ups before a model turn, once the model has answered."""
        with self.core.lock:
            self.core.apply(None, [ContextMade(self.core.graph.turns, made, round(risk, 4), vain)])

    def is_open(self, turn: str) -> bool:
        """Return True if a model turn began here and its end is not known yet."""
        with self.core.lock:
            return turn in self.evidence.open_turns

    def decide(
        self,
        state: RunState,
        *,
        policy: InertiaPolicy,
        user: str | None,
        specs: Mapping[str, ToolSpec],
        names: ToolRecords,
        chosen_by: Sequence[str] | None = None,
    ) -> tuple[Decision, Sequence[Neighbour]]:
        """Return the decision before one model turn, and the nearest past requests. The caller holds the lock.

        Args:
            state: the run.
            policy: when to act.
            user: digest of the user.
            specs: the available tools, by the names of their records. The decision has these names.
            names: the names of the records.
            chosen_by: who chose the calls so far. Defaults to what the run says.
        """
        graph, policy = self.core.graph, with_records(policy, names)
        if isinstance(policy, PaperPolicy):
            chosen = [step.chosen_by for step in state.steps] if chosen_by is None else chosen_by
            decision = paper.decide(
                graph,
                state,
                rules=self.evidence.rules,
                budget=self.budget,
                specs=specs,
                policy=policy,
                similarity=self.similarity,
                chosen_by=chosen,
                draw=self._draw(state),
            )
            if state.media:  # the paper's rules look at tools and arguments alone
                decision = Decision(None, Refusal("picture", ONLY_THE_MODEL_READS), decision.options)
            return decision, ()
        neighbours = graph.cases.near(state, k=NEIGHBOURS)
        turn = calibrated.ModelTurn(
            graph=graph,
            state=state,
            neighbours=neighbours,
            tables=self._tables,
            specs=specs,
            policy=policy,
            constants=self.core.constants,
            today=self.core.hour() // 24,
            draw=self._draw(state),
        )
        return calibrated.decide(turn), neighbours

    def _log_declarations(self, policy: InertiaPolicy, tools: Mapping[str, ToolSpec] | None) -> None:
        """Log once per set of tools what the developer's declarations cover, and what nobody declared."""
        catalogue = self.core.catalogue
        key = id(tools) if tools is not None else ("all", len(catalogue.specs))
        if key in self._told or len(self._told) >= MAX_TOLD:
            return
        known = {*catalogue.known, *(tools or ())}
        whole = catalogue.given is not None
        lines = list(guards.misnamed(policy, known, whole=whole))
        lines += catalogue.declarations.lines(catalogue.marked({**catalogue.known, **(tools or {})}), whole=whole)
        there = catalogue.marked(tools)
        missing = guards.undeclared(there, policy)
        reading = suggested(there[name] for name in missing)
        lines.append((logging.WARNING if reading else logging.DEBUG, undeclared_line(missing, reading)))
        for level, line in lines:
            if line and line not in self._told:
                logger.log(level, line)
                self._told.add(line)
        self._told.add(key)

    def _draw(self, state: RunState) -> float:
        """Return a number from 0 to 1 that depends on the seed, the turns seen so far and the state of the run.

        It does not depend on ids, which are drawn anew in every process: equal histories give equal decisions.
        """
        seen = self.core.graph.turns
        return int(digest("audit", self._seed, seen, state.user.raw, len(state.steps))[:8], 16) / 0x100000000

    # --- learning ---

    def turn(self, learned: LearnedTurn) -> Record:
        """Return the result of the prediction before a turn that the model made or the shortcut took."""
        options = learned.options.get(self.name, {})
        policy: InertiaPolicy = options.get("policy") or self.policy
        state, specs, names = learned.state, learned.specs, self.core.catalogue.records()
        turn, number = learned.turn, self.core.graph.turns
        credited: dict[str, Any] = {"audit_rate": policy.audit_rate, "number": number}
        chosen_by = self._chosen_by(learned)
        opened = self.evidence.open_turns.get(turn.key)
        if opened is not None and state.seen is NOTHING_SEEN:
            state.seen = SeenDigests.of(opened.seen)
        record, acts, judged, would_act = self._closed(turn), False, list[list[Any]](), 0

        def decide() -> Decision:
            decision, learned.neighbours = self.decide(
                state, policy=policy, user=learned.user, specs=specs, names=names, chosen_by=chosen_by
            )
            return decision

        def changes(tool: str) -> bool:
            return tool in specs and may_write(tool, specs)

        stopped, stands_for = "", self.context.stands_for(turn.key)
        credited["stands_for"] = stands_for
        if turn.chosen_by == "shortcut":
            asked = [step.tool for step in turn.steps]
            changing = int(any(map(changes, asked)))
            if any(step.review for step in turn.steps):
                # A person looked at the call and did not let it pass: that is a check, and it missed.
                made = decide()
                if made.options:
                    asked = [made.options[0].tool]  # the step has the tool that took its place
                stopped = asked[0]
                record += credit_judged(turn, plain_judged(made), would_act=0, **credited)
                record += [Count("wrong"), ToolCount(stopped, "wrong"), *self.agents.stopped(learned, stopped)]
                record.append(Checked(number, changing, 1, SHADOWED))
            failing = {step.tool for step in turn.steps if step.status == "failed"}
            share = max((failing_share(self.core.graph, tool) for tool in failing), default=0.0)
            record += credit_shortcut(turn, asked, changes=changing, number=number, fails_anyway=share)
        elif turn.chosen_by == "context" or not stands_for:
            pass  # the model read the look-up that was predicted: that says nothing about the prediction
        elif opened is not None:
            judged, would_act = opened.judged, opened.would_act
            record += credit_judged(turn, judged, would_act=would_act, **credited)
            if not isinstance(policy, PaperPolicy):
                learned.neighbours = self.core.graph.cases.near(state, k=NEIGHBOURS)
        else:
            decision = decide()
            judged = plain_judged(decision)
            would_act = int(decision.would_act)
            record += credit_judged(turn, judged, would_act=would_act, **credited)
            acts = decision.acts
            if (on_turn := options.get("on_turn")) is not None:
                on_turn(turn, decision)
        record += self.context.learned(as_called(turn))
        if turn.chosen_by == "model":
            record += self.agents.compared(turn)
            record += credit_repeated_failure(state, turn, graph=self.core.graph, number=number)
            record += self._corrected(learned, judged, number, checked=bool(would_act))
        guess: Guess | None = None
        if stopped:
            guess = Guess(stopped, 1.0, changes(stopped), stopped=True)
        elif judged:
            tool, _, _, confidence, *_ = judged[0]
            guess = Guess(tool, confidence, changes(tool))
        record += learn_case(self.cases, learned, guess, number)
        record += followed(state, turn, learned.thread, learned.user)
        record += [ToolCount(step.tool, REVIEWED) for step in turn.steps if step.review]
        record += credit_varied(state, specs)
        record += self.changes.record(learned)
        # Calls that would have been shortcuts count as such for the caps of the paper's policy.
        chosen_by += ["shortcut" if acts else turn.chosen_by] * len(turn.steps)
        return record

    def _corrected(self, learned: LearnedTurn, judged: list[list[Any]], number: int, *, checked: bool) -> Record:
        """Return the events by which a turn of the model judges the memory's calls before it, and sources of values.

        `checked`: the likeliest of the judged calls would have been made.
        """
        record, wrong = settle(self.corrections, learned, number)
        for call in wrong:
            record += credit_correction(call, number) + self.agents.corrected(learned, call)
        for tool, _, _, sure, *_, values in judged[:1]:
            steps = [step for step in learned.turn.steps if step.tool == tool and not step.review]
            counts = checked and sure >= SURE
            record += judge_sources(self.corrections, values, steps, number, wrong=counts)
        return record

    def repeated(self, learned: LearnedTurn) -> Record:
        """Learn from a fork: the turn began again, and the model did the same."""
        turn = learned.turn
        self._chosen_by(learned).extend([turn.chosen_by] * len(turn.steps))
        return [*self._closed(turn), *self.changes.record(learned)]

    def _chosen_by(self, learned: LearnedTurn) -> list[str]:
        """Return who chose the calls before a turn, as this pass counts."""
        found: list[str] = learned.scratch.setdefault(self.name, [step.chosen_by for step in learned.state.steps])
        return found

    def _closed(self, turn: Turn) -> Record:
        return [TurnClosed(turn.key)] if turn.key in self.evidence.open_turns else []

    def report(self) -> Section | None:
        """Return how often proposals were right, kind by kind, and whether the budget of misses has room."""
        with self.core.lock:
            specs = self.core.catalogue.marked()
            unknown = self.core.catalogue.declarations.unknown(self.core.catalogue.known)
            known = (self.core.graph, self.budget, self.policy, specs, self.changes, self.agents, unknown)
            return with_context(section_of(*known), self.context)


def _is_for_context(decision: Decision, lookups: Collection[str]) -> bool:
    """Return True if the proposed call is one that is looked up before the model is asked.

    What may be stale is not looked up there, so it stays with the shortcut: in a supervisor's graph, each agent begins
    right after a handoff, and with `context=True` no model call was saved in place of one in five.
    """
    if decision.proposal is None:
        return False
    return tool_of(decision.proposal.tool) in lookups and not decision.options[0].stale


def _not_our_turn(run: Run) -> Refusal:
    if run.next_key is None:
        return Refusal("not_the_models_turn", "tool calls are pending: it is not the model's turn")
    return Refusal("not_the_models_turn", "the model has answered: the run is over until the user speaks")
