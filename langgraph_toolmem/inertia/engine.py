"""The inertia engine: reads runs, decides, and turns what it sees into records. No I/O.

One pass over a run serves both: it books what would have been proposed before each new turn (hit or miss),
then learns the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.graph.cases import Neighbour
from langgraph_toolmem.graph.contexts import windows
from langgraph_toolmem.graph.evidence import EvidenceGraph
from langgraph_toolmem.graph.learning import learn_turn
from langgraph_toolmem.graph.operations import Count, Record, ToolCount
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.inertia import calibrated, paper
from langgraph_toolmem.inertia.candidates import near_requests
from langgraph_toolmem.inertia.evidence import InertiaEvidence, RulesJudged, TurnClosed, TurnOpened
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.proposal import RULE_PREFIX, Decision
from langgraph_toolmem.inertia.record import turns_seen
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.trajectory import Run, Turn
from langgraph_toolmem.runs.values import canon_args

Apply = Callable[[str | None, Record], bool]


class InertiaEngine:
    """Decides and learns over one evidence graph.

    Args:
        graph: read here; changed only through `apply` of the caller. Inertia's table is registered in it.
        specs: tools that may be called. None: what the observed calls show of them.
        similarity: (intuition, tool name, description) → cosine; for the paper's policy.
        seed: of the draw that picks audits.
    """

    def __init__(
        self,
        graph: EvidenceGraph,
        specs: Mapping[str, ToolSpec] | None,
        *,
        similarity: Callable[[str, str], float],
        seed: int = 0,
    ) -> None:
        self.graph = graph
        self.evidence = graph.register(InertiaEvidence)
        self._given = None if specs is None else dict(specs)
        self._adopted: dict[str, ToolSpec] = {}
        self._similarity = similarity
        self._seed = seed
        self._inferred: dict[str, tuple[int, ToolSpec]] = {}

    @property
    def specs(self) -> Mapping[str, ToolSpec]:
        """The tools that may be called: those given, those that hosts had at hand, else what the calls show."""
        if self._given is not None:
            return self._given
        for name, entry in self.graph.tools.items():
            read = int(entry.get("calls_read", 0))
            if read and self._inferred.get(name, (0,))[0] != read:
                self._inferred[name] = (read, infer_spec(name, entry))
        return {name: spec for name, (_, spec) in self._inferred.items()} | self._adopted

    def adopt(self, specs: Mapping[str, ToolSpec]) -> None:
        """Takes in tools that a host has at hand. Of two with one name the given one stays, else the latest."""
        if self._given is not None:
            self._given = {**specs, **self._given}
        self._adopted |= specs

    # --- deciding ---

    def decide(
        self,
        state: RunState,
        *,
        thought: str,
        policy: InertiaPolicy,
        user: str | None,
        chosen_by: Sequence[str] | None = None,
        specs: Mapping[str, ToolSpec] | None = None,
    ) -> tuple[Decision, Sequence[Neighbour]]:
        """The decision before one model turn, and the nearest past requests it looked at.

        Args:
            state: the run before the turn.
            thought: the agent's latest stated thought.
            policy: when to act.
            user: digest of the user, if known.
            chosen_by: who chose the run's calls so far; what the run says if None.
            specs: the tools at hand in this run; the engine's own if None.
        """
        specs = self.specs if specs is None else specs
        chosen = [step.chosen_by for step in state.steps] if chosen_by is None else chosen_by
        if policy.kind == "paper":
            decision = paper.decide(
                self.graph,
                state,
                rules=self.evidence.rules,
                specs=specs,
                policy=policy,
                intuition=thought,
                similarity=self._similarity,
                chosen_by=chosen,
                draw=self._draw(state) if policy.audit_rate else 1.0,
            )
            return decision, ()
        neighbours = near_requests(self.graph, state)
        decision = calibrated.decide(
            self.graph,
            state,
            neighbours,
            rules=self.evidence.rules,
            specs=specs,
            policy=policy,
            user=user,
            chosen_by=chosen,
            draw=self._draw(state),
        )
        return decision, neighbours

    def _draw(self, state: RunState) -> float:
        """A number from 0 to 1 that depends on the seed, the turns seen so far and where the run stands.

        Not on ids: they are drawn anew in every process, and the same history shall give the same decisions.
        """
        seen = turns_seen(self.graph.counters)
        return int(digest("audit", self._seed, seen, state.user.raw, len(state.steps))[:8], 16) / 0x100000000

    # --- learning ---

    def learn(
        self,
        run: Run,
        *,
        apply: Apply,
        policy: InertiaPolicy,
        user: str | None = None,
        last_turn_too: bool = False,
        on_turn: Callable[[Turn, Decision], None] | None = None,
        specs: Mapping[str, ToolSpec] | None = None,
        more: Callable[[RunState, Turn, str], Record] | None = None,
        again: Callable[[Turn], Record] | None = None,
        hour: int | None = None,
    ) -> tuple[RunState, int]:
        """Learns the turns of a run that were not learned before.

        Args:
            run: the run as read.
            apply: takes each record at once, so that the next turn sees it.
            policy: what the record is kept for: which proposals would have been acted on.
            user: digest of the user, if known.
            last_turn_too: learn the last turn although some of its calls have no answer.
            on_turn: told of each new turn of the model and what would have been decided before it.
            specs: the tools at hand in this run; the engine's own if None.
            more: further operations for a new turn, from the state before it and the run's digest.
            again: operations for a turn that is known: the model was asked again there and did the same.
            hour: now, in hours since 1970; None: nothing is counted by the hour or the day.

        Returns:
            The state after the run, and how many turns were new.
        """
        state = RunState(cut=run.truncated)
        at_hand = self.specs if specs is None else specs
        name, new = run.digest, 0
        thought = ""
        chosen_by: list[str] = []  # with the calls that would have been shortcuts counted as such
        for index, event in enumerate(run.events):
            # An answer at the head of a cut history: what it answered, and whether it was seen, cannot be told.
            headless = index == 0 and run.truncated and isinstance(event, Turn) and not event.steps
            if isinstance(event, Turn) and (event.settled or last_turn_too) and not headless:
                key, acts = turn_digest(event), False
                if not self.graph.has_seen(key):
                    new += 1
                    record, decision, neighbours = self._turn_record(
                        state, event, thought, policy, user, chosen_by, at_hand, hour
                    )
                    record += learn_turn(
                        self.graph,
                        state,
                        event,
                        specs=at_hand,
                        neighbours=neighbours,
                        run=name,
                        user=user,
                        hour=hour,
                    )
                    apply(key, record if more is None else [*record, *more(state, event, name)])
                    if decision is not None:
                        acts = decision.acts
                        if on_turn is not None:
                            on_turn(event, decision)
                elif record := [*self._close_turn(event), *(again(event) if again is not None else ())]:
                    # The model was asked again at a known place (a fork) and did the same again.
                    apply(None, record)
                chosen_by += ["shortcut" if acts else event.chosen_by] * len(event.steps)
                if event.chosen_by == "model" and event.text:
                    thought = event.text
            elif not isinstance(event, Turn):
                thought = ""
            state.push(event)
        return state, new

    def _turn_record(
        self,
        state: RunState,
        turn: Turn,
        thought: str,
        policy: InertiaPolicy,
        user: str | None,
        chosen_by: Sequence[str],
        specs: Mapping[str, ToolSpec],
        hour: int | None,
    ) -> tuple[Record, Decision | None, Sequence[Neighbour]]:
        """What became of the prediction before a turn, the decision if it is made now, and the nearest requests."""
        opened = self.evidence.open_turns.get(turn.key)
        record = self._close_turn(turn)
        if turn.chosen_by == "shortcut":
            asked = [step.tool for step in turn.steps]
            neighbours: Sequence[Neighbour] = ()
            if any(step.review for step in turn.steps):
                # A person looked at the call and did not let it pass: that is a check, and it missed.
                made, neighbours = self.decide(state, thought=thought, policy=policy, user=user, specs=specs)
                asked = [j.tool for j in made.judged[:1]] or asked  # the step has the tool that took its place
                record += book_judged(turn, plain_judged(made), would_act=False, hour=hour)
                record += [Count("wrong", 1, hour), ToolCount(asked[0], "wrong")]
            return record + book_shortcut(turn, asked, hour), None, neighbours
        if opened is not None:
            record += book_judged(turn, opened.judged, would_act=opened.would_act, hour=hour)
            return record, None, near_requests(self.graph, state) if policy.kind == "calibrated" else ()
        decision, neighbours = self.decide(
            state, thought=thought, policy=policy, user=user, chosen_by=chosen_by, specs=specs
        )
        record += book_judged(turn, plain_judged(decision), would_act=decision.would_act, hour=hour)
        return record, decision, neighbours

    def _close_turn(self, turn: Turn) -> Record:
        """The turn ended, if it is known to have begun."""
        return [TurnClosed(turn.key)] if turn.key in self.evidence.open_turns else []


def open_turn(state: RunState, turn: str, decision: Decision, user: str | None, hour: int | None = None) -> Record:
    """The record of a model turn that begins now, so that one whose end is never reported counts too."""
    rules = [list(j.rules) for j in decision.judged]
    return [TurnOpened(turn, windows(state), rules, plain_judged(decision), decision.would_act, user, hour)]


def begin_shortcut(decision: Decision) -> Record:
    """The record of a call that is made now: the misses to expect from it."""
    return [Count("acted_risk", 1 - j.confidence) for j in decision.judged[:1]]


def turn_digest(turn: Turn) -> str:
    """The key under which a turn is learned once: its executed calls, or its position if it has none."""
    if len(turn.steps) == 1:
        return turn.steps[0].key
    if turn.steps:
        return digest("calls", *(step.key for step in turn.steps))
    return digest("words", turn.key)


def call_digest(tool: str, args_text: str) -> str:
    """Short identity of a call, so that the record of predictions holds no argument text."""
    return digest("call", tool, args_text)


def plain_judged(decision: Decision) -> list[list[Any]]:
    """The judged candidates in plain containers: tool, digest of the call, rules, readable rule, confidence."""
    return [[j.tool, call_digest(j.tool, j.args_text), list(j.rules), j.rule, j.confidence] for j in decision.judged]


def book_judged(turn: Turn, judged: list[list[Any]], *, would_act: bool, hour: int | None) -> Record:
    """Hit or miss for every candidate. What a person rejected is a miss, what one put in its place the truth."""
    record: Record = []
    truth = ""
    if len(turn.steps) == 1 and turn.steps[0].review != "rejected":
        truth = call_digest(turn.steps[0].tool, canon_args(turn.steps[0].args))
    for position, (tool, call, rules, rule, confidence) in enumerate(judged):
        hit = int(call == truth)
        named = [RULE_PREFIX + rule] if position == 0 and rule else []
        record.append(RulesJudged([*rules, *named], hit))
        if position == 0:
            record.append(ToolCount(tool, "hits" if hit else "misses"))
            if would_act:
                outcome = "right" if hit else "wrong"
                record += [Count(outcome, 1, hour), ToolCount(tool, outcome), Count("checked_risk", 1 - confidence)]
    return record


def book_shortcut(turn: Turn, asked: Sequence[str], hour: int | None) -> Record:
    """A turn that the shortcut took is booked by its outcome only, for the tools that it asked for."""
    statuses = {step.status for step in turn.steps}
    # Stopped: a person or a limit kept the call from being executed.
    outcome = "acted_ok" if statuses == {"ok"} else "acted_stopped" if "rejected" in statuses else "acted_failed"
    return [Count(outcome, 1, hour), *(ToolCount(tool, outcome) for tool in asked)]


@lru_cache(maxsize=1024)
def _spec(name: str, properties: tuple[tuple[str, str], ...], required: frozenset[str]) -> ToolSpec:
    schema = {
        "type": "object",
        "properties": {p: ({"type": kind} if kind else {}) for p, kind in properties},
        "required": sorted(required),
    }
    return ToolSpec(name=name, description="", parameters=schema)


def infer_spec(name: str, entry: Mapping[str, Any]) -> ToolSpec:
    """What the observed calls of a tool show of its schema: parameters always given are required."""
    seen = entry.get("parameters_seen", {})
    calls = entry.get("calls_read", 0)
    properties = tuple((p, next(iter(kinds)) if len(kinds) == 1 else "") for p, kinds in seen.items())
    return _spec(name, properties, frozenset(p for p, kinds in seen.items() if sum(kinds.values()) >= calls))
