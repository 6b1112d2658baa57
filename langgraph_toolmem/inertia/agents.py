"""Record of the agents that use a memory: the policy of each, the calls it saved, and its results in shadow mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Final

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.text import as_text, canonical, digest, shortened
from langgraph_toolmem.core.method import LearnedTurn
from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.events import HOUR, Event, Forgotten, Record
from langgraph_toolmem.graph.tool_graph import Handler, Table, ToolGraph
from langgraph_toolmem.inertia.corrections import CallMade
from langgraph_toolmem.inertia.decision import Decision, Proposal, Refusal, calls_text
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.runs.run import Turn

MAX_AGENTS: Final = 64
"""Agents that are kept, those seen last."""
MAX_CHECKS: Final = 4_096
"""Calls that wait for the model's answer to check them."""
MAX_WRONG: Final = 100
"""Wrong calls that are kept, the newest ones."""
MAX_TEXT: Final = 300
"""Characters of such a call's arguments, and of the model's act."""
SHADOW: Final = "in shadow mode"
AUDIT: Final = "checked by chance"
CORRECTED: Final = "corrected by the model"
STOPPED: Final = "stopped by a person"
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
        """The mode in words."""
        if not self.policy.shadow:
            return "acting"
        return "prefetching look-ups, nothing is called in the model's place" if self.prefetch else "shadow"


@lru_cache(maxsize=MAX_AGENTS)
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
    """A call would be made here, and the model is asked all the same: its answer checks the call.

    Attributes:
        turn: key of the model turn.
        found_by: SHADOW, or AUDIT.
        agent: key of the agent.
        run, user: digests of the run and of its user.
        hour: since 1970.
        thread: name of the thread.
        tool: of the call.
        call: digest of tool and arguments.
        args: the arguments for a person to read.
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
    """The model's act in a turn where a call would have been made; `right` is 1 if it was this call."""

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
class AgentRow:
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
        """Return the agent's policy; None if this version cannot read it."""
        try:
            policy = InertiaPolicy.from_dict(self.policy)
        except (ConfigurationError, TypeError):  # stored by another version: the report goes on without it
            return None
        return AgentPolicy(self.name, policy, bool(self.prefetch))


class Agents(Table):
    """The agents of a memory, calls whose check is open, and wrong calls.

    Attributes:
        rows: key of an agent -> its counts.
        checks: key of a model turn -> the call that its answer checks.
        wrong: key of a model turn -> the call that was wrong in it.
    """

    name = "agents"
    parts: ClassVar = {
        "rows": shapes.RowsOf(shapes.fields_of(AgentRow)),
        "checks": shapes.RowsOf(shapes.fields_of(CheckOpened, 1)),
        "wrong": shapes.RowsOf(shapes.fields_of(WrongCall, 1)),
    }

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.rows: dict[str, AgentRow] = {}
        self.checks: dict[str, CheckOpened] = {}
        self.wrong: dict[str, WrongCall] = {}

    def handlers(self) -> Mapping[type[Event], Handler]:
        """See `Table`."""
        return {
            AgentSeen: self._see,
            AgentTurn: self._count,
            CheckOpened: self._open,
            CheckEnded: self._check,
            WrongCall: self._note_wrong,
        }

    def _row(self, agent: str) -> AgentRow:
        row = self.rows.setdefault(agent, AgentRow())
        if len(self.rows) > MAX_AGENTS:
            del self.rows[min(self.rows, key=lambda key: self.rows[key].hour)]
        return row

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
        if len(self.checks) > MAX_CHECKS:
            del self.checks[next(iter(self.checks))]

    def _check(self, turn: str, right: int, instead: str) -> None:
        opened = self.checks.pop(turn, None)
        if opened is None:
            return
        if opened.found_by == SHADOW:
            row = self._row(opened.agent)
            row.checks += 1
            row.right += right
        if not right:
            self._note_wrong(
                turn,
                opened.found_by,
                opened.agent,
                opened.run,
                opened.user,
                opened.hour,
                opened.thread,
                opened.tool,
                opened.args,
                instead,
            )

    def _note_wrong(self, turn: str, *fields: Any) -> None:
        self.wrong[turn] = WrongCall(turn, *fields)
        if len(self.wrong) > MAX_WRONG:
            del self.wrong[next(iter(self.wrong))]

    def forget(self, gone: Forgotten) -> int:
        """See `Table`."""
        wrong = {turn: call for turn, call in self.wrong.items() if not _is_gone(gone, call)}
        checks = {turn: opened for turn, opened in self.checks.items() if not _is_gone(gone, opened)}
        removed = len(self.wrong) - len(wrong) + len(self.checks) - len(checks)
        self.wrong, self.checks = wrong, checks
        return removed

    def to_state(self) -> dict[str, Any]:
        """See `Table`."""
        rows = {
            key: [row.hour, row.name, row.policy, row.prefetch, row.turns, row.acted, row.checks, row.right]
            for key, row in self.rows.items()
        }
        opened = {turn: list(each.values()[1:]) for turn, each in self.checks.items()}
        wrong = {turn: list(call.values()[1:]) for turn, call in self.wrong.items()}
        return super().to_state() | {"rows": rows, "checks": opened, "wrong": wrong}

    def load(self, state: dict[str, Any]) -> None:
        """See `Table`."""
        super().load(state)
        self.rows = {key: AgentRow(*fields) for key, fields in state["rows"].items()}
        self.checks = {turn: CheckOpened(turn, *fields) for turn, fields in state["checks"].items()}
        self.wrong = {turn: WrongCall(turn, *fields) for turn, fields in state["wrong"].items()}

    # --- records ---

    def begun(self, agent: AgentPolicy, hour: int, *, acted: bool) -> Record:
        """Return the record of a model turn that begins; an agent is noted again once a day."""
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
        tools = {step.tool for step in turn.steps}
        same = len(tools) == 1 and _call_digest(tools.pop(), [step.args for step in turn.steps]) == opened.call
        return [CheckEnded(turn.key, int(same), act_in_words(turn))]

    def corrected(self, learned: LearnedTurn, call: CallMade) -> Record:
        """Return the record of a call of the memory that the model corrected in a turn."""
        args = ""
        for step in learned.state.since_user:
            if step.tool == call.tool and step.chosen_by == "shortcut":
                args = canonical(step.args)
        return [_wrong_in(learned, CORRECTED, call.tool, args, act_in_words(learned.turn))]

    def stopped(self, learned: LearnedTurn, tool: str) -> Record:
        """Return the record of a call of the memory that a person refused or edited."""
        [step, *_] = learned.turn.steps
        instead = act_in_words(learned.turn) if step.review == "edited" else "refused"
        return [_wrong_in(learned, STOPPED, tool, canonical(step.args), instead)]

    # --- reported ---

    def figures(self) -> list[dict[str, Any]]:
        """Return the agents for the report, those seen last first."""
        found = []
        for key, row in sorted(self.rows.items(), key=lambda item: (-item[1].hour, item[1].name)):
            given = row.given() if row.policy else None
            if given is None:
                continue
            found.append(
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
        return found

    def wrong_calls(self) -> list[dict[str, Any]]:
        """Return the calls that were wrong or would have been, newest first."""
        return [
            {
                "found_by": call.found_by,
                "agent": call.agent,
                "hour": call.hour,
                "thread": call.thread,
                "tool": call.tool,
                "args": call.args,
                "instead": call.instead,
            }
            for call in reversed(self.wrong.values())
        ]

    def policies(self) -> list[InertiaPolicy]:
        """Return the policies of the agents, those seen last first."""
        rows = sorted(self.rows.values(), key=lambda row: -row.hour)
        agents = [row.given() for row in rows if row.policy]
        return [agent.policy for agent in agents if agent is not None]


def check_of(
    proposal: Proposal,
    turn: str,
    agent: AgentPolicy,
    *,
    found_by: str,
    run: str,
    user: str | None,
    hour: int,
    thread: str,
) -> Record:
    """Return the record of a call that is not made, so that the model's answer checks it."""
    args = shortened(", ".join(as_text(dict(args)) for args in proposal.calls), MAX_TEXT)
    call = _call_digest(proposal.tool, proposal.calls)
    return [CheckOpened(turn, found_by, agent.key, run, user, hour, thread, proposal.tool, call, args)]


def would_save(decision: Decision, agent: AgentPolicy, forbidden: Refusal | None) -> bool:
    """Return True if only shadow mode keeps a call from being made."""
    return decision.would_act and agent.policy.shadow and forbidden is None


def _call_digest(tool: str, calls: Sequence[Mapping[str, Any]]) -> str:
    return digest("call", tool, calls_text(calls))


def act_in_words(turn: Turn) -> str:
    """Return what a turn did, for a person: "find_order({...}), ..." or "an answer in words"."""
    calls = ", ".join(f"{step.tool}({canonical(step.args)})" for step in turn.steps)
    return shortened(calls or "an answer in words", MAX_TEXT)


def _wrong_in(learned: LearnedTurn, found_by: str, tool: str, args: str, instead: str) -> WrongCall:
    owner = (learned.run, learned.user, learned.hour, learned.thread_id)
    return WrongCall(learned.turn.key, found_by, "", *owner, tool, shortened(args, MAX_TEXT), instead)


def _is_gone(gone: Forgotten, call: CheckOpened | WrongCall) -> bool:
    too_old = gone.before is not None and call.hour * HOUR < gone.before
    return too_old or gone.has(call.run, call.user)
