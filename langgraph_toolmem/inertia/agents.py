"""Record of the agents that use a memory: the policy of each, the calls it saved, and its results in shadow mode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Final

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.text import as_text, canonical, digest, shortened
from langgraph_toolmem.core.method import LearnedTurn
from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.events import (
    Event,
    Forgotten,
    PlainRecord,
    Record,
    events_of,
    plain_of,
    records_of,
    rows_of,
)
from langgraph_toolmem.graph.tool_graph import Handler, Table, ToolGraph
from langgraph_toolmem.inertia.changes import MAX_TEXT
from langgraph_toolmem.inertia.corrections import CallMade
from langgraph_toolmem.inertia.decision import Proposal, calls_digest, digest_of_turn
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.runs.run import Run, Turn

SHADOW_CHECK: Final = "in shadow mode"
AUDIT: Final = "checked by chance"
CORRECTED: Final = "corrected by the model"
STOPPED_BY_A_PERSON: Final = "stopped by a person"
"""The ways in which a wrong call is found."""


@dataclass(frozen=True, slots=True)
class AgentPolicy:
    """An agent, and the policy that it gave to the memory.

    Attributes:
        name: as in ``create_agent(name=...)``; "" if it has none.
        policy: the policy, before anything in one run tightens it.
        prefetch: True if the agent prefetches look-ups.
    """

    name: str
    policy: InertiaPolicy
    prefetch: bool = False

    @property
    def key(self) -> str:
        """The identity of name, policy and prefetch."""
        return _key_of(self)

    @property
    def mode(self) -> str:
        """The name of the mode."""
        if not self.policy.shadow:
            return "acting"
        if self.prefetch:
            return "prefetching look-ups, nothing is called in the model's place"
        return "shadow"


@lru_cache(maxsize=64)
def _key_of(agent: AgentPolicy) -> str:
    return digest("agent", agent.name, canonical(agent.policy.to_dict()), agent.prefetch)


@dataclass(slots=True)
class AgentSeen(Event):
    """An agent asked for a decision; `hour` is since 1970."""

    kind = "agent_seen"
    agent: str
    hour: int
    name: str
    policy: dict[str, Any]
    prefetch: int


@dataclass(slots=True)
class AgentTurn(Event):
    """A model turn of an agent began; `acted` is 1 if a call was made in the model's place."""

    kind = "agent_turn"
    agent: str
    acted: int


@dataclass(slots=True)
class CheckOpened(Event):
    """A call would be made here, and the model is asked anyway: its answer checks the call.

    Attributes:
        found_by: SHADOW_CHECK, or AUDIT.
        agent: key of the agent; `run` and `user` are digests, `hour` is since 1970.
        call: digest of tool and arguments; `args` are for a person to read.
    """

    kind = "check_opened"
    turn: str
    found_by: str
    agent: str
    run: str
    user: str | None
    hour: int
    thread: str
    tool: str
    call: str
    args: str


@dataclass(slots=True)
class CheckEnded(Event):
    """The model's act in a turn in which a call would have been made; `right` is 1 if it was this call."""

    kind = "check_ended"
    turn: str
    right: int
    instead: str


@dataclass(slots=True)
class WrongCall(Event):
    """A call that was wrong, or would have been; `instead` is the act of the model or of a person.

    The other attributes are those of `CheckOpened`.
    """

    kind = "wrong_call"
    turn: str
    found_by: str
    agent: str
    run: str
    user: str | None
    hour: int
    thread: str
    tool: str
    args: str
    instead: str


@dataclass(slots=True)
class AgentRow(PlainRecord):
    """Counts of an agent.

    Attributes:
        hour: when it was last seen, in hours since 1970.
        name, policy, prefetch: see `AgentPolicy`; the policy in its plain form.
        turns, acted: model turns, and those that the memory took.
        checks, right: calls compared in shadow mode, and those that the model made too.
    """

    hour: int = 0
    name: str = ""
    policy: dict[str, Any] = field(default_factory=dict)
    prefetch: int = 0
    turns: int = 0
    acted: int = 0
    checks: int = 0
    right: int = 0

    def given(self) -> AgentPolicy | None:
        """Return the agent's policy; None if it was not reported yet, or this version cannot read it."""
        if not self.policy:
            return None
        try:
            policy = InertiaPolicy.from_dict(self.policy)
        except (ConfigurationError, TypeError):  # stored by another version: the report leaves it out
            return None
        return AgentPolicy(self.name, policy, bool(self.prefetch))


class Agents(Table):
    """The agents of a memory, calls whose check is open, and wrong calls.

    Attributes:
        rows: key of an agent -> its counts.
        checks: key of a model turn -> the call that its answer checks.
        wrong: key of a model turn -> the call that was wrong in it.
        most_agents: limit of kept agents, those seen last.
        most_checks: limit of calls whose check is open.
        most_wrong: limit of kept wrong calls, the newest.
    """

    name = "agents"
    parts: ClassVar = {
        "rows": shapes.RowsOf(shapes.fields_of(AgentRow)),
        "checks": shapes.RowsOf(shapes.fields_of(CheckOpened, 1)),
        "wrong": shapes.RowsOf(shapes.fields_of(WrongCall, 1)),
    }
    most_agents: ClassVar[int] = 64
    most_checks: ClassVar[int] = 4_096
    most_wrong: ClassVar[int] = 100

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.rows: dict[str, AgentRow] = {}
        self.checks: dict[str, CheckOpened] = {}
        self.wrong: dict[str, WrongCall] = {}

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {
            AgentSeen: self._see,
            AgentTurn: self._count,
            CheckOpened: self._open,
            CheckEnded: self._check,
            WrongCall: self._note_wrong,
        }

    def _row(self, agent: str) -> AgentRow:
        # A turn may be counted before its agent is reported (workers read events in other orders): its hour is 0 until
        # then, so the oldest of the others leaves. With the newest compared too, a 65th agent never had a row.
        if agent not in self.rows and len(self.rows) >= self.most_agents:
            del self.rows[self._seen_last()[-1]]
        return self.rows.setdefault(agent, AgentRow())

    def _see(self, agent: str, hour: int, name: str, policy: dict[str, Any], prefetch: int) -> None:
        row = self._row(agent)
        row.hour = max(row.hour, hour)
        row.name, row.policy, row.prefetch = name, policy, prefetch

    def _count(self, agent: str, acted: int) -> None:
        row = self._row(agent)
        row.turns += 1
        row.acted += acted

    def _open(self, turn: str, *fields: Any) -> None:
        self.checks[turn] = CheckOpened(turn, *fields)
        if len(self.checks) > self.most_checks:
            del self.checks[next(iter(self.checks))]

    def _check(self, turn: str, right: int, instead: str) -> None:
        opened = self.checks.pop(turn, None)
        if opened is None:
            return
        # Audits are in the budget's figures. A shadow row says what an agent would save before it may act.
        if opened.found_by == SHADOW_CHECK:
            row = self._row(opened.agent)
            row.checks += 1
            row.right += right
        if not right:
            *shared, _call, args = opened.values()
            self._note_wrong(*shared, args, instead)

    def _note_wrong(self, turn: str, *fields: Any) -> None:
        self.wrong[turn] = WrongCall(turn, *fields)
        if len(self.wrong) > self.most_wrong:
            del self.wrong[next(iter(self.wrong))]

    def forget(self, gone: Forgotten) -> int:
        wrong = {turn: call for turn, call in self.wrong.items() if not gone.has(call.run, call.user, call.hour)}
        checks = {turn: call for turn, call in self.checks.items() if not gone.has(call.run, call.user, call.hour)}
        removed = len(self.wrong) - len(wrong) + len(self.checks) - len(checks)
        self.wrong, self.checks = wrong, checks
        return removed

    def to_state(self) -> dict[str, Any]:
        return {"rows": plain_of(self.rows), "checks": rows_of(self.checks), "wrong": rows_of(self.wrong)}

    def load(self, state: dict[str, Any]) -> None:
        rows = records_of(AgentRow, state["rows"])
        checks, wrong = events_of(CheckOpened, state["checks"]), events_of(WrongCall, state["wrong"])
        self.rows, self.checks, self.wrong = rows, checks, wrong

    # --- records ---

    def begun(self, agent: AgentPolicy, hour: int, *, acted: bool) -> Record:
        """Return the record of a model turn that begins; an agent is recorded again once a day."""
        # The policy is written once a day, not at each turn: it is the longest part of such a record.
        key = agent.key
        row = self.rows.get(key)
        record: Record = [AgentTurn(key, int(acted))]
        if row is None or not row.policy or hour // 24 > row.hour // 24:
            record.append(AgentSeen(key, hour, agent.name, agent.policy.to_dict(), int(agent.prefetch)))
        return record

    def compared(self, turn: Turn) -> Record:
        """Return the record of a model turn in which a call would have been made; empty for any other turn."""
        opened = self.checks.get(turn.key)
        if opened is None:
            return []
        right = digest_of_turn(turn) == opened.call
        return [CheckEnded(turn.key, int(right), act_in_words(turn))]

    def corrected(self, learned: LearnedTurn, call: CallMade) -> Record:
        """Return the record of a call of the memory that the model corrected in a turn."""
        # `CallMade` has only digests; the arguments for a person to read are in the run.
        args = ""
        for step in learned.state.since_user:
            if step.tool == call.tool and step.chosen_by == "shortcut":
                args = canonical(step.args)
        return [_wrong_in(learned, CORRECTED, call.tool, args, act_in_words(learned.turn))]

    def stopped(self, learned: LearnedTurn, tool: str) -> Record:
        """Return the record of a call of the memory that a person refused or edited."""
        [step, *_] = learned.turn.steps
        instead = act_in_words(learned.turn) if step.review == "edited" else "refused"
        return [_wrong_in(learned, STOPPED_BY_A_PERSON, tool, canonical(step.args), instead)]

    # --- reported ---

    def _seen_last(self) -> list[str]:
        """Return the keys of the agents, those seen last first."""

        def age(key: str) -> tuple[int, str]:
            return -self.rows[key].hour, self.rows[key].name

        return sorted(self.rows, key=age)

    def figures(self) -> list[dict[str, Any]]:
        """Return the agents for the report, those seen last first."""
        figures = []
        for key in self._seen_last():
            row = self.rows[key]
            given = row.given()
            if given is None:
                continue
            figures.append(
                {
                    "key": key,
                    "name": given.name,
                    "mode": given.mode,
                    "kind": given.policy.kind,
                    "may_write": sorted(given.policy.may_write),
                    "never": sorted(given.policy.never),
                    "turns": row.turns,
                    "saved": row.acted,
                    "shadow": {"checks": row.checks, "right": row.right, "wrong": row.checks - row.right},
                }
            )
        return figures

    def wrong_calls(self) -> list[dict[str, Any]]:
        """Return the calls that were wrong or would have been, newest first."""
        shown = ("found_by", "agent", "hour", "thread", "tool", "args", "instead")
        rows = []
        for call in reversed(self.wrong.values()):
            rows.append({field: getattr(call, field) for field in shown})
        return rows

    def policies(self) -> list[InertiaPolicy]:
        """Return the policies of the agents, those seen last first."""
        policies = []
        for key in self._seen_last():
            given = self.rows[key].given()
            if given is not None:
                policies.append(given.policy)
        return policies


def check_of(
    proposal: Proposal, run: Run, user: str | None, agent: AgentPolicy, hour: int, *, found_by: str
) -> CheckOpened:
    """Return the event of a call that is not made in the next turn of a run, so that the model's answer checks it."""
    texts = [as_text(dict(args)) for args in proposal.calls]
    args = shortened(", ".join(texts), MAX_TEXT)
    call, turn, thread = calls_digest(proposal.tool, proposal.calls), run.next_key or "", run.thread_id or ""
    return CheckOpened(turn, found_by, agent.key, run.digest, user, hour, thread, proposal.tool, call, args)


def act_in_words(turn: Turn) -> str:
    """Return a turn as a text for people: "find_order({...}), ..." or "an answer in words"."""
    calls = [f"{step.tool}({canonical(step.args)})" for step in turn.steps]
    return shortened(", ".join(calls) or "an answer in words", MAX_TEXT)


def _wrong_in(learned: LearnedTurn, found_by: str, tool: str, args: str, instead: str) -> WrongCall:
    run, user, hour, thread = learned.run, learned.user, learned.hour, learned.thread_id
    args = shortened(args, MAX_TEXT)
    return WrongCall(learned.turn.key, found_by, "", run, user, hour, thread, tool, args, instead)
