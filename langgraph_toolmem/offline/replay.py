"""Replay of logs: predict before each model turn, then reveal it.

The module also estimates the savings of prefetch without executing calls, and measures whether the workload has
inertia.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from langgraph_toolmem.base.text import canonical, count, digest
from langgraph_toolmem.core.catalogue import suggested
from langgraph_toolmem.inertia import Inertia
from langgraph_toolmem.inertia.decision import Decision, calls_text
from langgraph_toolmem.inertia.policy import InertiaPolicy, may_write, undeclared
from langgraph_toolmem.inertia.prefetch import Prefetch, choose, least_probability
from langgraph_toolmem.inertia.speculative import Lookup
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.runs.logs import LoggedRun
from langgraph_toolmem.runs.run import UNSEEN, ModelInput, Run, Turn
from langgraph_toolmem.runs.tools import ToolLike, ToolSpec
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.runs.values import canon_args

STUCK = 3
"""Number of times from which the same calls with the same results in one run are a loop, whose turns are not
counted.
"""


# --- the inertia of a workload ---

SURE_BITS: Final = math.log2(100)
"""A total gain below this (6.6 bits) is not significant.

A code beats the true one by b bits with a probability of at most 2^−b.
"""
_DISCOUNT: Final = 0.5

_Context = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class InertiaTest:
    """The result of an `InertiaMeter`.

    Attributes:
        runs: number of runs, also those without a tool call.
        calls: number of tool calls.
        bits_by_order: online code length in bits per call, knowing 0, 1 and 2 previous tools.
    """

    runs: int
    calls: int
    bits_by_order: tuple[float, float, float]

    @property
    def best_order(self) -> int:
        """Return how many previous tools to use: one more only if it saves over `SURE_BITS` in total."""
        best = 0
        for order in (1, 2):
            # In total bits, not per call: a large gain on a few calls may be random.
            if (self.bits_by_order[best] - self.bits_by_order[order]) * self.calls > SURE_BITS:
                best = order
        return best

    @property
    def gain(self) -> float:
        """Bits per call saved by the better of one and two previous tools; without a positive value they do not predict
        the next tool.
        """
        return self.bits_by_order[0] - min(self.bits_by_order[1:])

    @property
    def has_inertia(self) -> bool:
        """True if the gain over all calls is significant (`SURE_BITS`)."""
        return self.best_order > 0

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        if self.calls == 0:
            return "There are no tool calls to judge by."
        calls = count(self.calls, "tool call")
        if self.gain <= 0:
            return f"No inertia: over {calls}, knowing the previous tools did not help to guess the next one."
        share = f"{self.gain:.2f} of the {self.bits_by_order[0]:.2f} bits ({self.gain / self.bits_by_order[0]:.0%})"
        if not self.has_inertia:
            return (
                f"Too little to tell: the previous tools tell {share} that name the next one, which over {calls} may "
                "be chance."
            )
        if self.best_order == 1:
            return f"This workload has inertia: the previous tool tells {share} that name the next one."
        return f"This workload has inertia: the previous two tools tell {share} that name the next one."

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, with the result as a sentence."""
        return {
            "runs": self.runs,
            "calls": self.calls,
            "bits": list(self.bits_by_order),
            "gain": self.gain,
            "best_order": self.best_order,
            "has_inertia": self.has_inertia,
            "verdict": self.verdict,
        }


class InertiaMeter:
    """Measures the inertia of a workload: the bits of the next tool that the previous tools predict.

    Takes runs one after another: constant time a call, memory per distinct triple of tools. The measure is the online
    code length for contexts of 0, 1 and 2 previous tools (the run's start is one more symbol): each call is coded only
    with the calls before it, so learning has a cost. The question is that of section 3 of AutoTool (arXiv 2511.14650).
    With n calls seen in a context, n_s of them tool s, and d distinct tools among them,

        P_k(s | context) = max(n_s − ½, 0) / n  +  d / (2n) · P_{k−1}(s | one tool less)
        P_0(s)           = (n_s − ½) / n  for a tool seen before,      P_0(new tool) = d / (2n)

    that is interpolated absolute discounting (Ney, Essen and Kneser, Computer Speech and Language 8, 1994) with the
    discount ½ of PPM's method D (Howard, Brown University CS-93-28, 1993). The event "a tool never seen" is coded, but
    not its name, which costs the same at every order.
    """

    def __init__(self) -> None:
        self._runs = self._calls = 0
        self._bits = [0.0, 0.0, 0.0]
        self._seen: dict[_Context, Counter[str]] = {}

    def add(self, sequence: Iterable[str]) -> None:
        """Add one run: the names of its tools in the order of the calls, possibly none."""
        self._runs += 1
        before: tuple[str | None, str | None] = (None, None)
        for tool in sequence:
            contexts: tuple[_Context, ...] = ((), before[1:], before)
            p = 0.0
            # Coded first and counted then: a call must not predict itself.
            for order, context in enumerate(contexts):
                p = self._probability(context, tool, shorter=p, order=order)
                self._bits[order] -= math.log2(p)
            for context in contexts:
                self._seen.setdefault(context, Counter())[tool] += 1
            self._calls += 1
            before = (before[1], tool)

    def _probability(self, context: _Context, tool: str, *, shorter: float, order: int) -> float:
        """Return P_k(tool | context), given that of the context with one tool less (see the class)."""
        counts = self._seen.get(context)
        if counts is None and order == 0:  # the very first call is coded as "a tool never seen", which is certain
            return 1.0
        if counts is None:
            return shorter
        n, n_tool = counts.total(), counts[tool]
        escape = len(counts) * _DISCOUNT / n
        if order > 0:
            return max(n_tool - _DISCOUNT, 0.0) / n + escape * shorter
        if n_tool:
            return (n_tool - _DISCOUNT) / n
        return escape

    def result(self) -> InertiaTest:
        """Return the measurement so far."""
        n = max(self._calls, 1)
        return InertiaTest(self._runs, self._calls, (self._bits[0] / n, self._bits[1] / n, self._bits[2] / n))


# --- prefetching ---


@dataclass
class PrefetchTally:
    """Predicted look-ups that are prefetched in a replay. Turns that the shortcut would have taken count as the
    model's, too.

    Attributes:
        settings: of prefetch.
        tool_seconds: duration of a call. Defaults to the duration of the model call before it.
        reads: calls of reading tools that the model made.
        ready: of these, prefetched with equal arguments and over before `Prefetch.timeout`.
        wasted: calls that were prefetched and not asked for.
        seconds_saved: of waiting. Calls of one turn run in parallel: a turn saves time if all of its calls were
            prefetched.
        seconds: of model calls and tool calls without prefetch.
    """

    settings: Prefetch = field(default_factory=Prefetch)
    tool_seconds: float | None = 1.0
    reads: int = 0
    ready: int = 0
    wasted: int = 0
    seconds_saved: float = 0.0
    seconds: float = 0.0

    def credit(
        self, memory: ToolMemory, policy: InertiaPolicy, turn: Turn, decision: Decision, model_seconds: float | None
    ) -> list[tuple[Lookup, bool]]:
        """Count one model turn; return the prefetched calls, with True if they were served.

        Args:
            memory: before it learns the turn.
            policy: the policy of the replay.
            turn: the model's turn.
            decision: the prediction.
            model_seconds: duration of the model call. Defaults to that of a tool call, or one second.
        """
        allowed = _PrefetchRules(self.settings, memory.core.catalogue.marked())
        model, tool = self._durations(model_seconds)
        asked = [(step.tool, canon_args(step.args)) for step in turn.steps]
        look_ups = [step for step in turn.steps if allowed.reads(step.tool)]
        # A turn that also changes something may change the results of its look-ups.
        can_serve = tool <= self.settings.timeout and len(look_ups) == len(turn.steps)
        least = least_probability(self.settings, self.ready, self.wasted)
        prefetched = []
        served = 0
        for lookup in choose(decision.predicted, least, allowed.may_begin):
            is_served = can_serve and lookup.key in asked
            served += is_served
            prefetched.append((lookup, is_served))
        self.reads += len(look_ups)
        self.ready += served
        self.wasted += len(prefetched) - served
        self.seconds += model
        if asked:
            self.seconds += tool
        if served and served == len(asked):
            self.seconds_saved += min(model, tool)
        return prefetched

    def _durations(self, model_seconds: float | None) -> tuple[float, float]:
        """Return the seconds of a model call and of a tool call; if only one is known, both are equal."""
        model, tool = model_seconds, self.tool_seconds
        if model is None:
            model = tool
        if model is None:
            model = 1.0
        if tool is None:
            tool = model
        return model, tool

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON."""
        plain = asdict(self)
        del plain["settings"]
        for name, value in plain.items():
            if value is not None:
                plain[name] = round(value, 3)
        return plain


@dataclass(frozen=True, slots=True)
class _PrefetchRules:
    """The calls that prefetch may begin, as its settings and the declared tools allow."""

    settings: Prefetch
    specs: Mapping[str, ToolSpec]

    def reads(self, tool: str) -> bool:
        return tool in self.specs and not may_write(tool, self.specs)

    def may_begin(self, tool: str, args: Mapping[str, Any]) -> bool:
        is_named = self.settings.tools is None or tool in self.settings.tools
        return is_named and self.reads(tool) and self.specs[tool].problem(args) is None


def model_seconds(run: Run, messages: Sequence[Mapping[str, Any]], times: Sequence[float] | None) -> dict[str, float]:
    """Return the duration of the model call of each turn (its key), from the seconds since the start of each message.

    {} if they are incomplete.
    """
    if times is None or len(times) != len(messages):
        return {}
    answers = []
    for index, message in enumerate(messages):
        if message.get("role") in ("assistant", "ai"):
            answers.append(index)
    turns = [event for event in run.events if isinstance(event, Turn)]
    # The run leaves some messages out: then answers cannot be assigned to turns.
    if len(turns) != len(answers):
        return {}
    durations: dict[str, float] = {}
    for turn, index in zip(turns, answers, strict=True):
        if index > 0 and times[index] >= times[index - 1]:  # clocks of logs run backwards at times
            durations[turn.key] = times[index] - times[index - 1]
    return durations


# --- the replay ---


@dataclass
class ToolTally:
    """One tool in a replay: calls that the model made, and calls that would have been made without it.

    Attributes:
        changes: True if the latter may change something: the policy names the tool in `may_write`.
    """

    calls: int = 0
    right: int = 0
    wrong: int = 0
    changes: bool = False


@dataclass
class ReplayReport:
    """The result of a replay. A *wrong* call is one the model would not have made at that point.

    Attributes:
        runs, turns, calls, words: numbers of replayed runs, model turns, tool calls, and turns of text.
        stuck: turns in which the model made calls with results that the run had `STUCK` - 1 times before: an agent in a
            loop. They count neither as right nor as wrong.
        by_memory: calls that a memory made in these runs in the model's place; they count in no other number.
        right: model turns that would have been skipped with exactly the call the model made.
        wrong: model turns that would have been skipped with another call.
        by_tool: the same per tool.
        chains: the most frequent chains of tools and how often each occurred.
        inertia: whether the next tool depends on the tools before it.
        prefetch: the estimated savings of prefetch, if requested.
        undeclared: tools that were never called without the model, because they are undeclared.
        suggested: undeclared tools that seem to only read.
    """

    runs: int = 0
    turns: int = 0
    calls: int = 0
    words: int = 0
    stuck: int = 0
    by_memory: int = 0
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
        return self._per_100(self.right)

    @property
    def wrong_per_100(self) -> float:
        """Wrong calls per 100 model turns that are not stuck."""
        return self._per_100(self.wrong)

    def _per_100(self, calls: int) -> float:
        judged = self.turns - self.stuck
        if judged <= 0:
            return 0.0
        return 100 * calls / judged

    @property
    def writing(self) -> list[str]:
        """Tools that may change something and would have been called without the model."""
        writing = []
        for name in sorted(self.by_tool):
            if self.by_tool[name].changes:
                writing.append(name)
        return writing

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON."""
        plain = asdict(self)
        plain["chains"] = []
        for chain, times in self.chains:
            plain["chains"].append({"tools": list(chain), "count": times})
        if self.inertia is not None:
            plain["inertia"] = self.inertia.to_dict()
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
    system: str | None = None,
    memory: ToolMemory | None = None,
    on_run: Callable[[LoggedRun], None] | None = None,
    on_turn: Callable[[Turn, Decision], None] | None = None,
    prefetch: PrefetchTally | None = None,
    on_end: Callable[[ToolMemory], object] | None = None,
) -> ReplayReport:
    """Feed recorded runs in order to a memory that starts empty.

    Calls are not executed, and models are not asked. Before each model turn the memory decides; then it learns the
    turn. Every turn is checked, so audits are not needed.

    Args:
        runs: recorded runs, oldest first.
        tools: schemas of the tools. Defaults to the tools of the recorded calls.
        reads: names and patterns of the tools that only read, as for `ToolMemory`.
        policy: the policy to measure. Defaults to the calibrated policy.
        seed: of the memory.
        system: the system prompt of the recorded runs; "" for runs without one. If None, it is unknown, and no value is
            taken from it.
        memory: a memory that has learned already (`tools`, `reads` and `seed` are then unused).
        on_run: called after each run.
        on_turn: called with each turn and the decision before it.
        prefetch: counts the estimated savings of prefetch.
        on_end: called with the memory when all runs are learned.
    """
    own = memory is None
    memory = memory or ToolMemory.ephemeral(tools=tools, reads=reads, methods=[Inertia(seed=seed)])
    replaying = _Replay(memory, policy or InertiaPolicy(), system, prefetch, on_turn)
    try:
        for run in runs:
            replaying.add(run)
            if on_run is not None:
                on_run(run)
        report = replaying.result()
        if on_end is not None:
            on_end(memory)
    finally:
        # A given memory is the caller's, who may go on with it.
        if own:
            memory.close()
    return report


class _Replay:
    """A replay while its runs are fed to the memory."""

    def __init__(
        self,
        memory: ToolMemory,
        policy: InertiaPolicy,
        system: str | None,
        prefetch: PrefetchTally | None,
        on_turn: Callable[[Turn, Decision], None] | None,
    ) -> None:
        self._memory = memory
        # All turns are checked, so none is left to the model for a check.
        self._policy = policy.with_(audit_rate=0.0)
        self._model_input = UNSEEN
        # The office's dates are relative to a day that only its prompt names: with the prompt 5.2 of 100 turns are
        # right, without it 3.9.
        if system is not None:
            self._model_input = ModelInput(system, complete=True)
        self._prefetch = prefetch
        self._on_turn = on_turn
        self._report = ReplayReport(prefetch=prefetch)
        self._meter = InertiaMeter()
        self._chains = Counter[tuple[str, ...]]()
        self._made = Counter[str]()  # digests of the calls of the present run, with their results
        self._seconds: dict[str, float] = {}

    def add(self, run: LoggedRun) -> None:
        """Feed one run to the memory, turn by turn."""
        self._made.clear()
        parsed = parse_run(run.messages, thread_id=run.thread_id)
        if self._prefetch is not None:
            self._seconds = model_seconds(parsed, run.messages, run.times)
        core = self._memory.core
        user = core.users.of(run.user_id, warn=False)  # in a replay nobody shares by accident
        # The method decides about each turn before it learns it, and calls `_credit` in between.
        options = {"policy": self._policy, "on_turn": self._credit}
        core.lifecycle.learn(parsed, user, last_turn_too=True, model_input=self._model_input, inertia=options)
        self._add_names(parsed)
        self._report.runs += 1

    def _add_names(self, run: Run) -> None:
        names: list[str] = []
        for event in run.events:
            if isinstance(event, Turn):
                names += [step.tool for step in event.steps]
                if event.chosen_by != "model":
                    self._report.by_memory += len(event.steps)
        self._meter.add(names)
        for length in (2, 3, 4):
            for start in range(len(names) - length + 1):
                self._chains[tuple(names[start : start + length])] += 1

    def _credit(self, turn: Turn, decision: Decision) -> None:
        proposal, specs = decision.proposal, self._memory.core.catalogue.marked()
        changes = proposal is not None and may_write(proposal.tool, specs)
        _credit(self._report, turn, decision, stuck=_stuck(self._made, turn), changes=changes)
        if self._prefetch is not None:
            self._prefetch.credit(self._memory, self._policy, turn, decision, self._seconds.get(turn.key))
        if self._on_turn is not None:
            self._on_turn(turn, decision)

    def result(self) -> ReplayReport:
        """Return the report of all runs so far."""
        report, specs = self._report, self._memory.core.catalogue.marked()
        report.undeclared = undeclared(specs, self._policy)
        report.suggested = suggested([specs[name] for name in report.undeclared])
        report.inertia = self._meter.result()
        report.chains = _frequent(self._chains)
        return report


def _stuck(made: Counter[str], turn: Turn) -> bool:
    """Record the calls of a turn, and return True if all of them were made often enough before with the same
    results.
    """
    # With the results: calls of a poll are equal too, but their results change.
    stuck = bool(turn.steps)
    calls = []
    for step in turn.steps:
        call = digest(step.tool, canon_args(step.args), canonical(step.output))
        stuck = stuck and made[call] >= STUCK - 1
        calls.append(call)
    made.update(calls)
    return stuck


def _credit(report: ReplayReport, turn: Turn, decision: Decision, *, stuck: bool, changes: bool) -> None:
    report.turns += 1
    report.calls += len(turn.steps)
    report.words += not turn.steps
    report.stuck += stuck
    for step in turn.steps:
        report.by_tool.setdefault(step.tool, ToolTally()).calls += 1
    if stuck or not decision.acts or decision.proposal is None:
        return
    tally = report.by_tool.setdefault(decision.proposal.tool, ToolTally())
    tally.changes |= changes
    if is_right(turn, decision):
        report.right += 1
        tally.right += 1
    else:
        report.wrong += 1
        tally.wrong += 1


def is_right(turn: Turn, decision: Decision) -> bool:
    """Return True if the proposed calls are exactly those of the model."""
    proposal = decision.proposal
    if proposal is None or not turn.steps:
        return False
    for step in turn.steps:
        if step.tool != proposal.tool:
            return False
    return calls_text([step.args for step in turn.steps]) == calls_text(proposal.calls)


def _frequent(chains: Counter[tuple[str, ...]]) -> list[tuple[tuple[str, ...], int]]:
    """Return the ten most frequent chains, a longer one before its parts, without parts that occur only within it."""

    def rank(chain: tuple[str, ...]) -> tuple[int, int, tuple[str, ...]]:
        return -chains[chain], -len(chain), chain

    kept: dict[tuple[str, ...], int] = {}
    for chain in sorted(chains, key=rank):
        times = chains[chain]
        # A part that is as frequent as a longer chain occurs only within it.
        longer = [other for other in kept if kept[other] == times]
        if times > 1 and not any(_contains(other, chain) for other in longer):
            kept[chain] = times
        if len(kept) == 10:
            break
    return list(kept.items())


def _contains(longer: tuple[str, ...], chain: tuple[str, ...]) -> bool:
    size = len(chain)
    if len(longer) <= size:
        return False
    for start in range(len(longer) - size + 1):
        if longer[start : start + size] == chain:
            return True
    return False
