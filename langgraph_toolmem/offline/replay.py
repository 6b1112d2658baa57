"""Replay of logs: predict before each model turn, then reveal it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from langgraph_toolmem.base.text import canonical, digest
from langgraph_toolmem.core.catalogue import suggested
from langgraph_toolmem.inertia import Inertia
from langgraph_toolmem.inertia.decision import Decision, calls_text
from langgraph_toolmem.inertia.guards import may_write, undeclared
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.offline.entropy import InertiaMeter, InertiaTest
from langgraph_toolmem.offline.prefetch import PrefetchTally, model_seconds
from langgraph_toolmem.runs.logs import LoggedRun
from langgraph_toolmem.runs.run import Turn
from langgraph_toolmem.runs.tools import ToolLike
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.runs.values import canon_args

STUCK = 3
"""From this time on that the same calls give the same results in one run, they are a loop that saves nothing."""

_CHAIN_LENGTHS = (2, 3, 4)
_CHAINS = 10


@dataclass
class ToolTally:
    """One tool in a replay: calls the model made, and calls that would have been made without it.

    Attributes:
        changes: the latter may have changed something: the policy names the tool in `may_write`.
    """

    calls: int = 0
    right: int = 0
    wrong: int = 0
    changes: bool = False


@dataclass
class ReplayReport:
    """The result of a replay. A *wrong* call is one the model would not have made at that point.

    Attributes:
        runs, turns, calls, words: how much was replayed: runs, model turns, tool calls, turns in words.
        stuck: turns in which the model made calls with results that the run had `STUCK` - 1 times before: an agent in a
            loop. They count neither as right nor as wrong.
        right: model turns that would have been skipped with exactly the call the model made.
        wrong: model turns that would have been skipped with another call.
        by_tool: the same per tool.
        chains: the most frequent chains of tools and how often each occurred.
        inertia: whether the next tool depends on the ones before it at all.
        prefetch: what running look-ups ahead would have saved, if that was asked.
        undeclared: tools that were never called without the model, because nobody declared them to only read.
        suggested: those of them that seem to only read.
    """

    runs: int = 0
    turns: int = 0
    calls: int = 0
    words: int = 0
    stuck: int = 0
    right: int = 0
    wrong: int = 0
    by_tool: dict[str, ToolTally] = field(default_factory=dict)
    chains: list[tuple[tuple[str, ...], int]] = field(default_factory=list)
    inertia: InertiaTest | None = None
    prefetch: PrefetchTally | None = None
    undeclared: list[str] = field(default_factory=list)
    suggested: list[str] = field(default_factory=list)

    @property
    def yield_per_100(self) -> float:
        """Right calls per 100 model turns that are not stuck."""
        return 100 * self.right / (self.turns - self.stuck) if self.turns > self.stuck else 0.0

    @property
    def wrong_per_100(self) -> float:
        """Wrong calls per 100 model turns that are not stuck."""
        return 100 * self.wrong / (self.turns - self.stuck) if self.turns > self.stuck else 0.0

    @property
    def writing(self) -> list[str]:
        """Tools that may change something and would have been called without the model."""
        return sorted(name for name, tally in self.by_tool.items() if tally.changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON."""
        plain = asdict(self)
        plain["chains"] = [{"tools": list(chain), "count": count} for chain, count in self.chains]
        plain["inertia"] = self.inertia.to_dict() if self.inertia else None
        del plain["prefetch"]
        if self.prefetch is not None:
            plain["prefetch"] = self.prefetch.to_dict()
        plain["yield_per_100"] = self.yield_per_100
        plain["wrong_per_100"] = self.wrong_per_100
        plain["writing"] = self.writing
        return plain


def replay(
    runs: Iterable[LoggedRun],
    *,
    tools: Iterable[ToolLike] | None = None,
    reads: Iterable[str] = (),
    policy: InertiaPolicy | None = None,
    seed: int = 0,
    memory: ToolMemory | None = None,
    on_run: Callable[[LoggedRun], None] | None = None,
    on_turn: Callable[[Turn, Decision], None] | None = None,
    prefetch: PrefetchTally | None = None,
    on_end: Callable[[ToolMemory], object] | None = None,
) -> ReplayReport:
    """Feeds recorded runs in order to a memory that starts empty.

    Nothing is executed and no model is asked. Before each model turn the memory decides; then the turn is
    shown to it. Every turn is checked, so audits play no part.

    Args:
        runs: recorded runs, oldest first.
        tools: schemas of the tools; None: what the calls show of them.
        reads: names and patterns of the tools that only read, as for `ToolMemory`.
        policy: the policy to judge; calibrated if None.
        seed: of the memory.
        memory: a memory that has learned already (`tools`, `reads` and `seed` are then unused).
        on_run: called after each run.
        on_turn: called with each turn and the decision before it.
        prefetch: counts what running look-ups ahead would have saved.
        on_end: called with the memory when all is learned.
    """
    own = memory is None
    memory = memory or ToolMemory.ephemeral(tools=tools, reads=reads, methods=[Inertia(seed=seed)])
    chosen = (policy or InertiaPolicy()).with_(audit_rate=0.0)
    report, meter, chains = ReplayReport(prefetch=prefetch), InertiaMeter(), Counter[tuple[str, ...]]()
    seconds: dict[str, float] = {}
    made = Counter[str]()

    def credit(turn: Turn, decision: Decision) -> None:
        proposal = decision.proposal
        changes = proposal is not None and may_write(proposal.tool, memory.core.catalogue.marked())
        _credit(report, turn, decision, stuck=_stuck(made, turn), changes=changes)
        if prefetch is not None:
            prefetch.credit(memory, chosen, turn, decision, seconds.get(turn.key))
        if on_turn is not None:
            on_turn(turn, decision)

    how = {"policy": chosen, "on_turn": credit}
    try:
        for run in runs:
            made.clear()
            parsed = parse_run(run.messages, thread_id=run.thread_id)
            if prefetch is not None:
                seconds = model_seconds(parsed, run.messages, getattr(run, "times", None))
            core = memory.core
            user = core.users.of(run.user_id, warn=False)  # in a replay nobody shares by accident
            core.lifecycle.learn(parsed, user, last_turn_too=True, inertia=how)
            names = [step.tool for event in parsed.events if isinstance(event, Turn) for step in event.steps]
            meter.add(names)
            for length in _CHAIN_LENGTHS:
                chains.update(tuple(names[i : i + length]) for i in range(len(names) - length + 1))
            report.runs += 1
            if on_run is not None:
                on_run(run)
        specs = memory.core.catalogue.marked()
        report.undeclared = undeclared(specs, chosen)
        report.suggested = suggested(specs[name] for name in report.undeclared)
        if on_end is not None:
            on_end(memory)
    finally:
        if own:
            memory.close()
    report.inertia = meter.result()
    report.chains = _frequent(chains)
    return report


def _stuck(made: Counter[str], turn: Turn) -> bool:
    """Return True if all calls of a turn were made, with the same results, often enough before. Notes them."""
    calls = [digest(step.tool, canon_args(step.args), canonical(step.output)) for step in turn.steps]
    stuck = bool(calls) and all(made[call] >= STUCK - 1 for call in calls)
    made.update(calls)
    return stuck


def _credit(report: ReplayReport, turn: Turn, decision: Decision, *, stuck: bool, changes: bool) -> None:
    report.turns += 1
    report.calls += len(turn.steps)
    report.words += not turn.steps
    for step in turn.steps:
        report.by_tool.setdefault(step.tool, ToolTally()).calls += 1
    report.stuck += stuck
    if decision.acts and decision.proposal is not None and not stuck:
        tally = report.by_tool.setdefault(decision.proposal.tool, ToolTally())
        tally.changes |= changes
        if is_right(turn, decision):
            report.right += 1
            tally.right += 1
        else:
            report.wrong += 1
            tally.wrong += 1


def is_right(turn: Turn, decision: Decision) -> bool:
    """Return True if the proposed calls are exactly those the model made."""
    proposal = decision.proposal
    return (
        proposal is not None
        and {step.tool for step in turn.steps} == {proposal.tool}
        and calls_text(step.args for step in turn.steps) == calls_text(proposal.calls)
    )


def _frequent(chains: Counter[tuple[str, ...]]) -> list[tuple[tuple[str, ...], int]]:
    """The most frequent chains, a longer one before its parts, and no part that occurs only within it."""
    kept: list[tuple[tuple[str, ...], int]] = []
    for chain, count in sorted(chains.items(), key=lambda item: (-item[1], -len(item[0]), item[0])):
        inside = any(count == other and _holds(longer, chain) for longer, other in kept)
        if count > 1 and not inside:
            kept.append((chain, count))
        if len(kept) == _CHAINS:
            break
    return kept


def _holds(longer: tuple[str, ...], chain: tuple[str, ...]) -> bool:
    size = len(chain)
    return len(longer) > size and any(longer[i : i + size] == chain for i in range(len(longer) - size + 1))
