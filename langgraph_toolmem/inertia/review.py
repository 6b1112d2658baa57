"""Records for a person to review, and the shortcut's part of the report.

In this order: the agents that use a memory, with the policy of each, the calls it saved, its results in shadow mode and
its wrong calls; the changes that the memory made in the model's place; the report on the record of predictions, on
tools that are not skipped, and on prefetched look-ups.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from langgraph_toolmem.base.caches import drop_oldest
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.text import as_text, canonical, digest, shortened
from langgraph_toolmem.core.catalogue import named, suggested, undeclared_line
from langgraph_toolmem.core.method import LearnedTurn, Section, TextTable
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
from langgraph_toolmem.graph.state import tool_of
from langgraph_toolmem.graph.tool_graph import Handler, Table, ToolGraph
from langgraph_toolmem.inertia.confidence import Budget
from langgraph_toolmem.inertia.corrections import CallMade
from langgraph_toolmem.inertia.decision import Proposal, call_digests, digests_of_turn
from langgraph_toolmem.inertia.policy import InertiaPolicy, changing, may_write, undeclared, why_never
from langgraph_toolmem.inertia.speculative import REVIEWED, SECONDS, SERVED, WASTED
from langgraph_toolmem.runs.run import ExecutedCall, Run, Turn
from langgraph_toolmem.runs.tools import ToolSpec, side_effects

if TYPE_CHECKING:
    from langgraph_toolmem.inertia import Inertia


SHADOW_CHECK: Final = "in shadow mode"
AUDIT: Final = "checked by chance"
CORRECTED_BY_THE_MODEL: Final = "corrected by the model"
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
        calls: digests of tool and arguments (`decision.call_digests`); `args` are for a person to read.
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
    calls: list[str]
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
        drop_oldest(self.checks, self.most_checks)

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
        drop_oldest(self.wrong, self.most_wrong)

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
        right = digests_of_turn(turn) == opened.calls
        return [CheckEnded(turn.key, int(right), act_in_words(turn))]

    def corrected(self, learned: LearnedTurn, call: CallMade) -> Record:
        """Return the record of a call of the memory that the model corrected in a turn."""
        # `CallMade` has only digests; the arguments for a person to read are in the run.
        args = ""
        for step in learned.state.since_user:
            if step.tool == call.tool and step.chosen_by == "shortcut":
                args = canonical(step.args)
        return [_wrong_in(learned, CORRECTED_BY_THE_MODEL, call.tool, args, act_in_words(learned.turn))]

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
    calls, turn, thread = call_digests(proposal.tool, proposal.calls), run.next_key or "", run.thread_id or ""
    return CheckOpened(turn, found_by, agent.key, run.digest, user, hour, thread, proposal.tool, calls, args)


def act_in_words(turn: Turn) -> str:
    """Return a turn as a text for people: "find_order({...}), ..." or "an answer in words"."""
    calls = [f"{step.tool}({canonical(step.args)})" for step in turn.steps]
    return shortened(", ".join(calls) or "an answer in words", MAX_TEXT)


def _wrong_in(learned: LearnedTurn, found_by: str, tool: str, args: str, instead: str) -> WrongCall:
    run, user, hour, thread = learned.run, learned.user, learned.hour, learned.thread_id
    args = shortened(args, MAX_TEXT)
    return WrongCall(learned.turn.key, found_by, "", run, user, hour, thread, tool, args, instead)


# --- changes that the memory made ---


MAX_TEXT: Final = 300
"""Characters of the arguments and of the result of a call that a report shows."""


@dataclass(slots=True)
class ChangeMade(Event):
    """A call that may have changed something was made without the model.

    Attributes:
        call: its id.
        hour: since 1970.
        thread: name of the thread.
    """

    kind = "change_made"
    call: str
    run: str
    user: str | None
    hour: int
    thread: str
    tool: str
    args: str
    status: str
    result: str


class Changes(Table):
    """The newest changes.

    Attributes:
        made: id of the call -> its change, oldest first.
        most: limit of kept changes.
    """

    name = "changes"
    parts: ClassVar = {"made": shapes.RowsOf(shapes.fields_of(ChangeMade, 1))}
    most: ClassVar[int] = 100

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.made: dict[str, ChangeMade] = {}

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {ChangeMade: self._add}

    def _add(self, call: str, *fields: Any) -> None:
        self.made[call] = ChangeMade(call, *fields)
        drop_oldest(self.made, self.most)

    def to_state(self) -> dict[str, Any]:
        return {"made": rows_of(self.made)}

    def load(self, state: dict[str, Any]) -> None:
        self.made = events_of(ChangeMade, state["made"])

    def forget(self, gone: Forgotten) -> int:
        removed = [call for call, change in self.made.items() if gone.has(change.run, change.user, change.hour)]
        for call in removed:
            del self.made[call]
        return len(removed)

    def figures(self) -> list[dict[str, Any]]:
        """Return the changes for the report, newest first."""
        figures = []
        for change in reversed(self.made.values()):
            figures.append(
                {
                    "hour": change.hour,
                    "thread": change.thread,
                    "tool": change.tool,
                    "args": change.args,
                    "status": change.status,
                    "result": change.result,
                }
            )
        return figures

    def record(self, learned: LearnedTurn) -> Record:
        """Return the changes of a turn that the memory took, if they are new or have a result now."""
        record: Record = []
        if learned.turn.chosen_by != "shortcut":
            return record
        for step in learned.turn.steps:
            # A tool without a current description is listed too: a person should see it rather than miss it.
            only_reads = step.tool in learned.specs and not may_write(step.tool, learned.specs)
            if only_reads:
                continue
            change = self._change(learned, step)
            # A turn is reported again with its results, and again after a fork: one row per call.
            known = self.made.get(step.key)
            if known is None or (change.result and not known.result):
                record.append(change)
        return record

    def _change(self, learned: LearnedTurn, step: ExecutedCall) -> ChangeMade:
        """Return a change with its result; its owner and time are those of the first report, if there was one."""
        run, user, hour, thread = learned.run, learned.user, learned.hour, learned.thread_id
        # The fork of a thread has another run, and the change was made once, by the first.
        known = self.made.get(step.key)
        if known is not None:
            run, user, hour, thread = known.run, known.user, known.hour, known.thread
        args = shortened(canonical(step.args), MAX_TEXT)
        result = shortened(as_text(step.output or ""), MAX_TEXT)
        return ChangeMade(step.key, run, user, hour, thread, step.tool, args, step.status, result)


# --- the report ---


MOST_ROWS: Final = 10
"""Rows of a table."""


def section_of(inertia: Inertia) -> Section:
    """Return the checks of predictions, the state of the budget, and tools that are not skipped. The caller locks.

    The memory's own policy is used until an agent has asked. A tool is held back if all agents hold it back.
    """
    core, policy, agents, budget = inertia.core, inertia.policy, inertia.agents, inertia.budget
    graph, specs = core.graph, core.catalogue.marked()
    policies = sorted(agents.policies() or [policy], key=_is_shadow)
    figures = budget.figures(policies[0])
    refused = _never_called(specs, policies)
    missing = _undeclared_for_all(specs, policies)
    figures |= {
        "unknown_reads": list(core.catalogue.declarations.unknown(core.catalogue.known)),
        "undeclared": missing,
        "suggested": suggested(specs[name] for name in missing),
        "never_skipped": refused,
    }
    looked_up = inertia.context.figures()
    if looked_up["made"] or looked_up["held_out"]:
        figures["context"] = looked_up
    idle = _unskipped(graph, budget, policies, specs, figures)
    wrong = agents.wrong_calls()
    prefetched, prefetch_table = _prefetched(graph)
    tables = (_table_of_unskipped(idle), _table_of_refused(refused, idle), _table_of_wrong(wrong), *prefetch_table)
    figures |= {
        "mode": "shadow, nothing is called" if policy.shadow else "acting",
        "kind": policy.kind,
        "agents": agents.figures(),
        "wrong_calls": wrong,
        "declared": _declared(specs, policies),
        "refused": _reviewed(graph, specs),
        "unskipped": idle,
        "changing": changing(specs),
        "changes": inertia.changes.figures(),
        **prefetched,
    }
    return Section("Shortcut and prefetch", figures, tuple(_sentences(figures)), tables)


def _is_shadow(policy: InertiaPolicy) -> bool:
    return policy.shadow


def _never_called(specs: Mapping[str, ToolSpec], policies: Sequence[InertiaPolicy]) -> dict[str, str]:
    """Return the tools that all policies forbid to call without the model, each with the reason."""
    reasons = {}
    for name, spec in sorted(specs.items()):
        reason = _refused(spec, policies)
        if reason:
            reasons[name] = reason
    return reasons


def _undeclared_for_all(specs: Mapping[str, ToolSpec], policies: Sequence[InertiaPolicy]) -> list[str]:
    """Return the tools that all policies hold back because they are undeclared."""
    first, *others = [undeclared(specs, policy) for policy in policies]
    return [name for name in first if all(name in names for names in others)]


def _declared(specs: Mapping[str, ToolSpec], policies: Sequence[InertiaPolicy]) -> list[int]:
    """Return the number of tools declared to read, and of changing tools that the policies name."""
    named_tools: set[str] = set()
    for policy in policies:
        named_tools |= policy.may_write
    reading = sum(spec.read_only is True for spec in specs.values())
    return [reading, len(named_tools & specs.keys())]


def _reviewed(graph: ToolGraph, specs: Mapping[str, ToolSpec]) -> list[str]:
    """Return the tools with a call that a person refused or edited."""
    reviewed = set()
    for record, counts in graph.by_tool.items():
        if counts.get(REVIEWED):
            reviewed.add(tool_of(record))
    return sorted(reviewed & specs.keys())


def _table_of_unskipped(idle: Sequence[Mapping[str, Any]]) -> TextTable:
    rows = []
    for row in idle:
        rows.append((row["tool"], f"{row['calls']:,}", f"{row['skipped']:,}", row["why"], row["todo"] or "–"))
    columns = ("tool", "calls", "skipped", "why", "what to do")
    return TextTable("Called often, seldom without the model", columns, tuple(rows))


def _table_of_refused(refused: Mapping[str, str], idle: Sequence[Mapping[str, Any]]) -> TextTable:
    shown = {row["tool"] for row in idle}
    rows = []
    for tool, reason in refused.items():
        if tool not in shown:
            rows.append((tool, reason.removeprefix(f"{tool} ")))
    return TextTable("Never called without the model", ("tool", "why"), tuple(rows))


def _table_of_wrong(wrong: Sequence[Mapping[str, Any]]) -> TextTable:
    rows = []
    for row in wrong[:MOST_ROWS]:
        rows.append((row["thread"], row["tool"], row["args"], row["instead"], row["found_by"]))
    return TextTable("Wrong calls", ("thread", "tool", "arguments", "right", "found"), tuple(rows))


def _refused(spec: ToolSpec, policies: Sequence[InertiaPolicy]) -> str:
    """Return why all policies forbid to call a tool without the model; "" if one permits it."""
    reason = ""
    for policy in policies:
        never = why_never(spec, policy)
        if never is None:
            return ""
        reason = reason or never.text
    return reason


def _most_open(spec: ToolSpec, policies: Sequence[InertiaPolicy]) -> InertiaPolicy:
    """Return the policy that holds a tool back least; policies that act come first."""
    for policy in policies:
        if why_never(spec, policy) is None:
            return policy
    return policies[0]


def _sentences(figures: Mapping[str, Any]) -> list[str]:
    """Return the figures for a person: of the checks, of declarations, of look-ups."""
    return [*_sentences_on_checks(figures), *_sentences_on_tools(figures), *_sentences_on_lookups(figures)]


def _sentences_on_checks(figures: Mapping[str, Any]) -> list[str]:
    lines = []
    audits, shadow = figures["audits"], figures["shadow_checks"]
    if audits["checks"] and shadow["checks"]:  # the report's own line has their sum
        lines.append(
            f"While acting, {audits['right']:,} of {audits['checks']:,} checked by chance were right: at least "
            f"{math.floor(100 * audits['at_least'])} %. Without acting, {shadow['right']:,} of {shadow['checks']:,}."
        )
    if not figures["budget_open"]:
        lines.append("The budget of misses has no room: the model is asked until it has.")
    return lines


def _sentences_on_tools(figures: Mapping[str, Any]) -> list[str]:
    lines = []
    declare = undeclared_line(figures["undeclared"], figures["suggested"])
    if declare:
        lines.append(declare)
    unknown = figures["unknown_reads"]
    if unknown:
        lines.append(f"ToolMemory(reads=...) names {named(unknown)}, but no tool seen so far fits.")
    return lines


def _sentences_on_lookups(figures: Mapping[str, Any]) -> list[str]:
    lines = []
    prefetched = figures.get("prefetch")
    if prefetched:
        lines.append(
            f"Look-ups prefetched while the model was asked: {prefetched['started']:,}; {prefetched['served']:,} of "
            f"them were what it asked for, {prefetched['wasted']:,} were thrown away; "
            f"{prefetched['seconds_saved']:,.1f} seconds of waiting saved."
        )
    looked_up = figures.get("context")
    if looked_up:
        lines.append(
            f"Look-ups made before the model was asked: {looked_up['made']:,}; model calls saved: "
            f"{looked_up['saved']:,}; made again by the model: {looked_up['made_again']:,}. Of "
            f"{looked_up['held_out']:,} that were held out to check, the model made {looked_up['held_out_right']:,}."
        )
    return lines


# --- tools that are called often and rarely without the model ---


def _unskipped(
    graph: ToolGraph,
    budget: Budget,
    policies: Sequence[InertiaPolicy],
    specs: Mapping[str, ToolSpec],
    figures: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return the most called tools with less than half of their calls made without the model.

    Each has its name, calls, those `skipped` of them, and `why` and `todo`: the obstacle and its remedy.
    """
    called_often = 5  # a rarely called tool saves little
    unskipped: list[dict[str, Any]] = []
    for tool, entry in graph.tools.items():
        calls = int(entry.get("ok", 0) + entry.get("failed", 0))
        record = graph.by_tool.get(tool, {})
        skipped = int(sum(record.get(f"acted_{end}", 0) for end in ("ok", "failed", "stopped")))
        if calls < called_often or 2 * skipped >= calls:
            continue
        name = tool_of(tool)
        if name in specs:
            policy = _most_open(specs[name], policies)
            bar = budget.bar(policy, changes=may_write(name, specs))
            obstacle = _obstacle(name, specs[name], figures, record, policy, bar)
        else:
            obstacle = Obstacle("guard: it is not among the tools", "name it in tools=")
        unskipped.append(
            {"tool": tool, "calls": calls, "skipped": skipped, "why": obstacle.why, "todo": obstacle.remedy}
        )
    return sorted(unskipped, key=_most_calls)[:MOST_ROWS]


def _most_calls(row: Mapping[str, Any]) -> tuple[int, str]:
    return -row["calls"], row["tool"]


class Obstacle(NamedTuple):
    """The reason why calls of a tool are not skipped, and its remedy; "" if none is needed."""

    why: str
    remedy: str = ""


def _obstacle(
    tool: str,
    spec: ToolSpec,
    figures: Mapping[str, Any],
    record: Mapping[str, float],
    policy: InertiaPolicy,
    bar: float,
) -> Obstacle:
    """Return the first obstacle: the remedy of a later one has no effect before the first is removed."""
    few = 10  # least number of predictions of a meaningful record
    hits, misses = int(record.get("hits", 0)), int(record.get("misses", 0))
    predictions = hits + misses
    never = figures["never_skipped"].get(tool)
    if never:
        return Obstacle(f"guard: {never.removeprefix(tool).strip()}", _remedy(tool, spec, policy))
    if policy.shadow:
        return Obstacle("shadow mode", "InertiaPolicy(shadow=False) when the record is good enough")
    # They have no record of their own: 153 calls of one tool, of which most were made so, counted as never skipped.
    if "context" in figures and side_effects(spec) == "reads":
        return Obstacle("its look-ups are made before the model is asked, and are not counted by tool")
    if not figures["budget_open"]:
        return Obstacle("budget: the allowed misses are used up", "wait, or allow a larger max_wrong_per_100")
    if predictions < few:
        import_logs = "import logs: toolmem import runs.jsonl --memory FOLDER"
        return Obstacle(f"below the bar: only {predictions} predictions so far", import_logs)
    share = f"{hits:,} of {predictions:,} predictions were exactly right"
    if hits < bar * predictions:
        return Obstacle(f"below the bar of {bar:.0%}: {share}", "prefetch=True saves its waiting all the same")
    return Obstacle(f"{share}; single calls may be below the bar of {bar:.0%}")


def _remedy(tool: str, spec: ToolSpec, policy: InertiaPolicy) -> str:
    """Return the setting that permits a tool without the model; "" if there is none, or the policy excludes the
    tool.
    """
    if tool in policy.never or policy.only is not None or spec.controls:
        return ""
    writes = f'InertiaPolicy(may_write={{"{tool}"}}'
    if side_effects(spec) == "destroys":
        return f'{writes}, allow_destructive={{"{tool}"}})'
    return f'if it only reads: ToolMemory(reads={{"{tool}"}}); otherwise {writes})'


# --- prefetched look-ups ---


def _prefetched(graph: ToolGraph) -> tuple[dict[str, Any], tuple[TextTable, ...]]:
    """Return the figures of prefetched look-ups, in total and by tool, and their table; empty without any."""
    by_tool: dict[str, dict[str, float]] = {}
    served = wasted = 0.0
    seconds = []
    for tool, record in sorted(graph.by_tool.items()):
        if record.get(SERVED) or record.get(WASTED):
            counts = _counted(record.get(SERVED, 0.0), record.get(WASTED, 0.0), record.get(SECONDS, 0.0))
            by_tool[tool] = counts
            served += counts["served"]
            wasted += counts["wasted"]
            seconds.append(counts["seconds_saved"])
    if not by_tool:
        return {}, ()
    rows = []
    for tool, counts in by_tool.items():
        started, seconds_saved = f"{counts['started']:,}", f"{counts['seconds_saved']:,.1f}"
        rows.append((tool, started, f"{counts['served']:,}", f"{counts['wasted']:,}", seconds_saved))
    columns = ("tool", "prefetched", "served", "thrown away", "seconds saved")
    table = TextTable("Look-ups prefetched", columns, tuple(rows))
    total = _counted(served, wasted, sum(seconds))
    return {"prefetch": {**total, "by_tool": by_tool}}, (table,)


def _counted(served: float, wasted: float, seconds: float) -> dict[str, float]:
    counts = {"started": int(served + wasted), "served": int(served), "wasted": int(wasted)}
    return {**counts, "seconds_saved": round(seconds, 3)}
