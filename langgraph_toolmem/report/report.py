"""The report on a memory, in numbers and sentences: the core's counters, and a section for each method.

The cost of model calls, and of those that were saved, is in seconds of waiting, tokens and money (`Saved`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any, Final

from langgraph_toolmem.base.checks import expect, is_number
from langgraph_toolmem.base.intervals import lower_limit, percentage
from langgraph_toolmem.base.text import shortened
from langgraph_toolmem.core.core import CALL_SECONDS, CPU_BEHIND, CPU_SECONDS, TIMED_CALLS, TIMED_WORDS, WORD_SECONDS
from langgraph_toolmem.core.method import Section
from langgraph_toolmem.core.trials import Episode
from langgraph_toolmem.graph.events import GOOD
from langgraph_toolmem.graph.tool_graph import ToolGraph

_MAX_PRICE: Final = 1e12
"""Money per million tokens; a larger number is a mistake."""


@dataclass(frozen=True)
class TokenPrice:
    """The price of a model's tokens.

    Attributes:
        input: money per million input tokens.
        output: money per million output tokens.
        cached: money per million input tokens that the provider reads from its cache. Defaults to `input`.
        currency: its name for display.

    Raises:
        ConfigurationError: a price is not a number from 0 to 1e12, or the currency has no name.
    """

    input: float
    output: float
    currency: str = "USD"
    cached: float | None = None

    def __post_init__(self) -> None:
        names = ["input", "output"]
        if self.cached is not None:
            names.append("cached")
        for name in names:
            expect(self, name, f"money per million tokens, from 0 to {_MAX_PRICE:.0e}", _is_price)
        expect(self, "currency", "a name such as 'USD'", _is_printable_name)

    def of(self, input_tokens: float, output_tokens: float, cached_tokens: float = 0) -> float:
        """Return the price of so many tokens; `cached_tokens` of the input come from the provider's cache."""
        # `input_tokens` has the cached ones in it, as the usage of LangChain's messages does.
        less = 0.0
        if self.cached is not None:
            less = cached_tokens * (self.input - self.cached)
        return (input_tokens * self.input - less + output_tokens * self.output) / 1_000_000


def _is_price(value: Any) -> bool:
    return is_number(value) and 0 <= value <= _MAX_PRICE


def _is_printable_name(value: Any) -> bool:
    return str.isprintable(value) and bool(value.strip())


@dataclass(frozen=True)
class Saved:
    """Model calls that were saved, or would have been.

    Attributes:
        calls: their number.
        seconds: of waiting for the model; None if no model call was timed.
        input_tokens, output_tokens: None if the messages carry no usage.
        money: None without a price or without usage.
    """

    calls: int
    seconds: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    money: float | None = None

    def in_words(self, waiting: float | None, currency: str | None) -> str:
        """Return "3.1 s of 15 s waiting, 1.2 M input and 8,100 output tokens, 3.20 USD"; "" if nothing is known.

        Args:
            waiting: seconds of waiting for the model with and without these calls.
            currency: of the money.
        """
        parts = []
        if self.seconds is not None and waiting is not None:
            parts.append(f"{seconds_in_words(self.seconds)} of {seconds_in_words(waiting)} waiting for the model")
        if self.input_tokens is not None and self.output_tokens is not None:
            given, made = number_in_words(self.input_tokens), number_in_words(self.output_tokens)
            parts.append(f"{given} input and {made} output tokens")
        if self.money is not None:
            parts.append(money_in_words(self.money, currency))
        return ", ".join(parts)


NOTHING_SAVED: Final = Saved(0)


@dataclass(frozen=True)
class MeanCall:
    """The mean model call of a memory's record.

    Attributes:
        seconds: of a call whose answer asks for tools: only such calls are saved. None without a timed call.
        input_tokens, output_tokens, cached_tokens: of all calls with usage; None if there are none.
        waited: seconds of all timed model calls; None without a timed call.
    """

    seconds: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    cached_tokens: float = 0.0
    waited: float | None = None

    @classmethod
    def of(cls, counters: Mapping[str, float]) -> MeanCall:
        """Read the means out of the counters of the evidence graph."""
        seconds = given = made = waited = None
        cached = 0.0
        # Calls that were answered with text have a mean of their own: they are never saved.
        timed = counters.get(TIMED_CALLS, 0)
        if timed:
            seconds = counters.get(CALL_SECONDS, 0.0) / timed
        # Not the same as `timed`: an agent that only answered with text has waited, but has no mean of saved calls.
        if timed + counters.get(TIMED_WORDS, 0):
            waited = counters.get(CALL_SECONDS, 0.0) + counters.get(WORD_SECONDS, 0.0)
        with_usage = counters.get("turns_with_tokens", 0)
        if with_usage:
            given = counters.get("tokens_in", 0) / with_usage
            made = counters.get("tokens_out", 0) / with_usage
            cached = counters.get("tokens_cached", 0) / with_usage
        return cls(seconds, given, made, cached, waited)

    def cost_of(self, calls: int, price: TokenPrice | None) -> Saved:
        """Return the cost of so many calls."""
        # Estimated by the mean of the calls made: a saved call has neither seconds nor tokens of its own.
        seconds = given = made = money = None
        if self.seconds is not None:
            seconds = calls * self.seconds
        if self.input_tokens is not None and self.output_tokens is not None:
            given, made = round(calls * self.input_tokens), round(calls * self.output_tokens)
            if price is not None:
                of_one = price.of(self.input_tokens, self.output_tokens, self.cached_tokens)
                money = calls * of_one
        return Saved(calls, seconds, given, made, money)


# --- texts ---


def money_in_words(amount: float, currency: str | None) -> str:
    """Format an amount of money: "1,234.50 USD"; small ones to a hundredth of a cent: "0.0042 USD"."""
    digits = 2
    if 0 < amount < 1:
        digits = 4
    return f"{amount:,.{digits}f} {currency or ''}".rstrip()


def seconds_in_words(seconds: float) -> str:
    """Format a duration: "850 ms", "3.1 s", "48 s", "12 min", "3.4 h"."""
    if seconds < 1:
        return f"{1000 * seconds:,.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:,.1f} h"


def number_in_words(number: float) -> str:
    """Format a number: "8,100", "1.2 M"."""
    if number < 1_000_000:
        return f"{number:,.0f}"
    return f"{number / 1_000_000:,.1f} M"


# --- the report ---

_SKIPPED: Final = ("acted_ok", "acted_failed", "acted_stopped")
"""Counters of turns that the shortcut took."""


@dataclass(frozen=True, slots=True)
class ReportLimits:
    """Sizes of the printed report, and thresholds of its summary. The page shows more.

    Attributes:
        lines: of the whole report.
        agents: number of described agents, those seen last.
        changes: number of shown changes by the memory.
        wrong: number of shown wrong calls.
        threads: number of threads that a sentence names.
        few_checks: checks below which the report gives no share.
        right: share of right checks below which the report points to the wrong calls.
    """

    lines: int = 40
    agents: int = 5
    changes: int = 5
    wrong: int = 5
    threads: int = 5
    few_checks: int = 20
    right: float = 0.95


REPORT_LIMITS: Final = ReportLimits()


@dataclass(frozen=True)
class ToolReport:
    """One tool.

    Attributes:
        calls: executed calls, the model's and the shortcut's.
        failed: of these, how many failed.
        skipped: calls made without asking the model.
        right, wrong: checked proposals that equalled the model's call, or did not.
    """

    calls: int = 0
    failed: int = 0
    skipped: int = 0
    right: int = 0
    wrong: int = 0


@dataclass(frozen=True)
class JobsReport:
    """Background work.

    Attributes:
        pending: jobs waiting or running.
        failing: of these, those that failed before.
        dead: jobs that failed too often; see ``toolmem doctor``.
    """

    pending: int = 0
    failing: int = 0
    dead: int = 0


@dataclass(frozen=True)
class ShadowReport:
    """One agent in shadow mode.

    Attributes:
        agent: its name; "" if it has none.
        turns: its model turns.
        would_save: model calls that the memory would have saved.
        wrong: calls that it would have made and the model did not make. They save nothing.
        writes: True if the policy names tools that may change something.
        threads: of the wrong calls, newest first.
    """

    agent: str
    turns: int
    would_save: Saved
    wrong: int = 0
    writes: bool = False
    threads: tuple[str, ...] = ()

    def in_words(self, waiting: float | None, currency: str | None) -> str:
        """Return the possible savings of the agent and its wrong calls in one or two sentences."""
        name, kind = "the agent", "look-ups"
        if self.agent:
            name = f"agent {self.agent!r}"
        if self.writes:
            kind = "calls"
        about = self.would_save.in_words(waiting, currency)
        if about:
            about = f" (about {about})"
        line = (
            f"In shadow mode {name} would have saved {self.would_save.calls:,} of {self.turns:,} model calls{about}, "
            f"with {self.wrong:,} {kind} in vain."
        )
        if self.threads:
            most = REPORT_LIMITS.threads
            line += f" Wrong in thread {', '.join(self.threads[:most])}"
            if len(self.threads) > most:
                line += " and others"
            line += "."
        return line


@dataclass(frozen=True)
class Side:
    """Episodes of one side.

    Attributes:
        episodes: number of episodes in which the memory was asked, or would have been.
        judged, good: of these, those with feedback, and with good feedback.
        model_calls: mean per episode; None if there are none.
        tokens: likewise, in and out, of episodes whose messages carry usage.
    """

    episodes: int = 0
    judged: int = 0
    good: int = 0
    model_calls: float | None = None
    tokens: float | None = None


@dataclass(frozen=True)
class HoldoutReport:
    """Episodes with the memory and without."""

    memory: Side = field(default_factory=Side)
    held_out: Side = field(default_factory=Side)

    def sentences(self) -> list[str]:
        """Return the comparison in sentences, without figures that one side does not have."""
        ours, without = self.memory, self.held_out
        lines = [
            f"Held out, without hints and without calls in the model's place: {without.episodes:,} of "
            f"{ours.episodes + without.episodes:,} episodes."
        ]
        # Figures of one side alone compare nothing.
        if ours.judged and without.judged:
            lines.append(
                f"Success with the memory in {ours.good:,} of {ours.judged:,} judged episodes "
                f"({percentage(ours.good, ours.judged)}), without in {without.good:,} of {without.judged:,} "
                f"({percentage(without.good, without.judged)})."
            )
        if ours.model_calls is not None and without.model_calls is not None:
            lines.append(
                f"Model calls per episode with the memory {ours.model_calls:,.2f}, without {without.model_calls:,.2f}."
            )
        if ours.tokens is not None and without.tokens is not None:
            lines.append(f"Tokens per episode with the memory {ours.tokens:,.0f}, without {without.tokens:,.0f}.")
        return lines


@dataclass(frozen=True)
class Report:
    """The record of a memory.

    Attributes:
        turns: model turns seen, shortcuts included.
        calls: tool calls that the model chose.
        answers: turns that the model answered with text.
        skipped: LLM calls skipped: turns that the shortcut took.
        skipped_failed: of these, how many of the calls failed.
        skipped_stopped: of these, how many calls a person or a limit stopped before they were executed.
        right, wrong: proposals checked against the model (shadow and audit) that equalled its call, or did not.
        precision: right / (right + wrong); None before the first check.
        saved: model calls that the memory saved, with their seconds, tokens and money, estimated by the mean of the
            calls made.
        model_seconds: seconds of waiting for the model; None if no model call was timed.
        cpu_seconds: processor time that the memory took while runs waited for it, without Chroma's own threads.
        cpu_seconds_behind: processor time of its work in the background.
        currency: of the money; None without a price.
        shadow: the agents in shadow mode whose calls were checked.
        runs_judged, runs_good: runs with feedback; of these, the good ones.
        judged_with_shortcut, good_with_shortcut: the same for runs in which the shortcut acted.
        tools: per tool.
        sections: each method's part, by its name; ``report["sit"]`` has its figures.
        holdout: episodes with the memory compared with held-out episodes; None without ``holdout=``.
        jobs: background work.
        problems: storage problems, if any.
    """

    turns: int = 0
    calls: int = 0
    answers: int = 0
    skipped: int = 0
    skipped_failed: int = 0
    skipped_stopped: int = 0
    right: int = 0
    wrong: int = 0
    precision: float | None = None
    saved: Saved = NOTHING_SAVED
    model_seconds: float | None = None
    cpu_seconds: float = 0.0
    cpu_seconds_behind: float = 0.0
    currency: str | None = None
    shadow: tuple[ShadowReport, ...] = ()
    runs_judged: int = 0
    runs_good: int = 0
    judged_with_shortcut: int = 0
    good_with_shortcut: int = 0
    tools: Mapping[str, ToolReport] = field(default_factory=dict)
    sections: Mapping[str, Section] = field(default_factory=dict)
    holdout: HoldoutReport | None = None
    jobs: JobsReport = field(default_factory=JobsReport)
    problems: tuple[str, ...] = ()

    def __getitem__(self, method: str) -> Mapping[str, Any]:
        """Return the figures of a method; empty if it has none."""
        if method not in self.sections:
            return {}
        return self.sections[method].figures

    @property
    def waiting(self) -> float | None:
        """Return the seconds of waiting for the model that a run without the memory has."""
        if self.model_seconds is None:
            return None
        # The saved calls never happened: their seconds are those of the mean call.
        return self.model_seconds + (self.saved.seconds or 0.0)

    def hints(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield title and figures ("shown", "followed", "right") of the methods that showed hints."""
        for section in self.sections.values():
            if section.figures.get("shown") and "followed" in section.figures:
                yield section.title, section.figures

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        plain = asdict(self)
        # Only the figures: sentences and tables repeat them for people.
        plain["sections"] = {name: section["figures"] for name, section in plain["sections"].items()}
        return plain

    def __str__(self) -> str:
        # Two lines are left for the tools: the most used one, and the number of the others.
        lines = self.lines()[: REPORT_LIMITS.lines - 2]
        tools = self.tools_by_use()
        width = max(map(len, self.tools), default=0)
        room = min(len(tools), REPORT_LIMITS.lines - 1 - len(lines))
        for name, tool in tools[:room]:
            lines.append(
                f"  {name:<{width}}  {tool.calls:>6,} calls  {tool.skipped:>6,} skipped  "
                f"checked: {tool.right:,} right, {tool.wrong:,} wrong"
            )
        if len(tools) > room:
            lines.append(f"  and {len(tools) - room:,} tools more")
        return "\n".join(lines)

    def lines(self) -> list[str]:
        """Return all lines except the tools: summary, problems, calls to review, and the sentences of each method."""
        # Problems and the memory's own changes come before the figures, because the report is cut at its end.
        lines = [self.headline()]
        for problem in self.problems:
            lines.append(f"Problem: {problem}")
        lines += self.worth()
        lines += self.setup()
        for withdrawal in self.withdrawn():
            lines.append(f"Withdrawn: {withdrawal}")
        lines += self._changes()
        lines += self._wrong_calls()
        return lines + self.sentences()

    def _changes(self) -> list[str]:
        """Return the changes that the memory made without the model."""
        changes, most = self["inertia"].get("changes", ()), REPORT_LIMITS.changes
        lines = []
        for change in changes[:most]:
            call = f"{change['tool']}({shortened(change['args'], 60)})"
            lines.append(f"Changed by the memory: {call} in {_thread(change)}: {change['status']}")
        if len(changes) > most:
            lines.append(f"and {len(changes) - most:,} changes more")
        return lines

    def _wrong_calls(self) -> list[str]:
        """Return the calls that turned out wrong, with the right ones."""
        wrong, most = self["inertia"].get("wrong_calls", ()), REPORT_LIMITS.wrong
        lines = []
        for row in wrong[:most]:
            call = f"{row['tool']}({shortened(row['args'], 60)})"
            lines.append(f"Wrong, {row['found_by']}: {call} in {_thread(row)}; right: {shortened(row['instead'], 80)}")
        if len(wrong) > most:
            lines.append(f"and {len(wrong) - most:,} wrong calls more")
        return lines

    def headline(self) -> str:
        """Return the summary in one sentence: savings, share of right calls, and whether to trust the memory."""
        if not self.turns:
            return "Nothing was seen yet."
        checks = self.right + self.wrong
        saved = self._savings()
        if not checks:
            return f"{saved}; nothing was checked yet: too early to trust it."
        # The lower limit of the share, not the share: 20 of 20 right checks do not mean 100 %.
        least = ""
        if checks >= REPORT_LIMITS.few_checks:
            least = f", at least {math.floor(100 * lower_limit(self.right, checks))} %"
        kinds = self["inertia"].get("checks_by_kind") or {"it": {"checks": checks, "right": self.right}}
        return f"{saved}; {self.right:,} of {checks:,} checks right{least}; {_trust(kinds)}."

    def _savings(self) -> str:
        """Return the saved model calls, with those that shadow mode would have saved."""
        would_save, watched = 0, 0
        for agent in self.shadow:
            would_save += agent.would_save.calls
            watched += agent.turns
        # "Saved 0 of 200" read as a failure if every agent was in shadow mode.
        if self.shadow and not self.saved.calls:
            return f"Would have saved {would_save:,} of {watched:,} model calls in shadow mode"
        if self._watches_only():
            return f"Watched {self.turns:,} model calls in shadow mode"
        saved = f"Saved {self.saved.calls:,} of {self.turns:,} model calls"
        if would_save:
            saved += f", and would have saved {would_save:,} more in shadow mode"
        return saved

    def _watches_only(self) -> bool:
        """Return True if all agents are in shadow mode."""
        modes = {agent["mode"] for agent in self["inertia"].get("agents", ())}
        return modes == {"shadow"} and not self.saved.calls

    def worth(self) -> list[str]:
        """Return the memory's savings or possible savings, and the processor time that it used."""
        lines = []
        about = self.saved.in_words(self.waiting, self.currency)
        if self.saved.calls and about:
            lines.append(f"Saved about {about}.")
        for agent in self.shadow:
            lines.append(agent.in_words(self.waiting, self.currency))
        if self.cpu_seconds:
            took = f"The memory took {seconds_in_words(self.cpu_seconds)} of processor time"
            if self.turns:
                took += f", {1000 * self.cpu_seconds / self.turns:.1f} ms a model call"
            if self.cpu_seconds_behind:
                took += f", and {seconds_in_words(self.cpu_seconds_behind)} in the background"
            lines.append(f"{took}.")
        return lines

    def setup(self) -> list[str]:
        """Return the memory's settings: mode, policy, and the declared side effects of tools."""
        inertia = self["inertia"]
        if "mode" not in inertia:
            return []
        reads, writes = inertia["declared"]
        agents, most = inertia.get("agents", ()), REPORT_LIMITS.agents
        if not agents:
            return [
                f"Mode: {inertia['mode']}; policy: {inertia['kind']}. Declared: {reads:,} tools that only read, "
                f"{writes:,} that may write without the model."
            ]
        # Each agent has its own policy: two agents on one memory may differ in mode and in the tools that they may
        # call.
        before_the_model = inertia.get("context", {}).get("saved", 0)
        lines = [_agent_in_words(agent, before_the_model=before_the_model) for agent in agents[:most]]
        if len(agents) > most:
            lines.append(f"and {len(agents) - most:,} agents or policies more")
        lines.append(f"Declared: {reads:,} tools that only read.")
        return lines

    def withdrawn(self) -> list[str]:
        """Return the calls that the memory may not make at present, although the policy allows them."""
        inertia = self["inertia"]
        lines = []
        for tool in inertia.get("refused", ()):
            lines.append(f"{tool}: a person refused or edited such a call")
        # `is False`: without the shortcut the figure does not exist.
        if inertia.get("budget_open") is False:
            lines.append("calls in the model's place: the budget of misses is used up")
        return lines

    def tools_by_use(self) -> list[tuple[str, ToolReport]]:
        """Return the tools with their names, most skipped first, then most called."""

        def most_skipped_first(name: str) -> tuple[int, int, str]:
            tool = self.tools[name]
            return -tool.skipped, -tool.calls, name

        return [(name, self.tools[name]) for name in sorted(self.tools, key=most_skipped_first)]

    def sentences(self) -> list[str]:
        """Return the facts behind the headline, in a few sentences."""
        lines: list[str] = []
        if self.skipped_failed or self.skipped_stopped:
            lines.append(
                f"Of the calls made without the model {self.skipped_failed:,} failed and {self.skipped_stopped:,} were "
                "stopped before they were executed."
            )
        if self.runs_judged:
            lines.append(
                f"Runs with feedback: {self.runs_good:,} of {self.runs_judged:,} good; with shortcuts "
                f"{self.good_with_shortcut:,} of {self.judged_with_shortcut:,}."
            )
        if self.holdout is not None:
            lines += self.holdout.sentences()
        for section in self.sections.values():
            lines += section.sentences
        # At the end: the report is cut there, and `toolmem doctor` shows the jobs too.
        if self.jobs.pending:
            pending = f"Entries and critiques still to be written: {self.jobs.pending:,}"
            if self.jobs.failing:
                pending += f", {self.jobs.failing:,} of them failed before"
            lines.append(f"{pending}.")
        if self.jobs.dead:
            lines.append(f"Given up after many failures: {self.jobs.dead:,}; see `toolmem doctor`.")
        return lines


def _thread(row: Mapping[str, Any]) -> str:
    if not row["thread"]:
        return "a run without a thread"
    return f"thread {row['thread']}"


def _agent_in_words(agent: Mapping[str, Any], *, before_the_model: int) -> str:
    """Return mode, policy and result of one agent.

    `before_the_model`: model calls that look-ups before the model saved, for all agents.
    """
    name, writes, never = "Agent without a name", "may not write", ""
    if agent["name"]:
        name = f"Agent {agent['name']!r}"
    if agent["may_write"]:
        writes = f"may write without the model: {', '.join(agent['may_write'])}"
    if agent["never"]:
        never = f"; never without the model: {', '.join(agent['never'])}"
    result = f"It saved {agent['saved']:,} of {agent['turns']:,} model calls."
    # Which agent they saved is not counted: "it saved 1 of 482" was said of an agent that saved 191 of 672.
    if before_the_model:
        result = f"It acted in the model's place at {agent['saved']:,} of {agent['turns']:,} model turns."
    # "It saved 0" would read as a failure of an agent in shadow mode.
    if agent["mode"] == "shadow" and not agent["saved"]:
        result = f"It watched {agent['turns']:,} model calls."
    return f"{name}: {agent['mode']}; policy: {agent['kind']}; {writes}{never}. {result}"


def _trust(kinds: Mapping[str, Mapping[str, Any]]) -> str:
    """Return which kinds of calls, such as reads and writes, can be trusted by their checks."""
    # Reads and writes are separate: many checks of look-ups prove nothing about changes. The worst result comes first.
    judged: dict[str, list[str]] = {"look at what was wrong with": [], "too early to trust": [], "trust": []}
    for kind, record in kinds.items():
        checks = record["checks"]
        if not checks:
            continue
        if checks < REPORT_LIMITS.few_checks:
            word = "too early to trust"
        elif record["right"] >= REPORT_LIMITS.right * checks:
            word = "trust"
        else:
            word = "look at what was wrong with"
        judged[word].append(kind)
    parts = []
    for word, names in judged.items():
        if names:
            parts.append(f"{word} {' and '.join(names)}")
    return "; ".join(parts)


def make_report(
    graph: ToolGraph,
    sections: Mapping[str, Section],
    jobs: Mapping[str, int],
    problems: tuple[str, ...],
    price: TokenPrice | None = None,
    holdout: HoldoutReport | None = None,
) -> Report:
    """Make the report from the graph; `price` turns saved tokens into money."""
    counters = graph.counters

    def number(name: str) -> int:
        return int(counters.get(name, 0))

    right, wrong = number("right"), number("wrong")
    skipped = sum(map(number, _SKIPPED))
    precision = None
    if right + wrong:
        precision = right / (right + wrong)
    inertia: Mapping[str, Any] = {}
    if "inertia" in sections:
        inertia = sections["inertia"].figures
    # Look-ups before the model save calls too, but the shortcut took none of these turns.
    before_the_model = inertia.get("context", {}).get("saved", 0)
    mean = MeanCall.of(counters)
    currency = None
    if price is not None:
        currency = price.currency
    feedback = _feedback(graph)
    return Report(
        turns=graph.turns,
        calls=number("calls"),
        answers=number("answers"),
        skipped=skipped,
        skipped_failed=number("acted_failed"),
        skipped_stopped=number("acted_stopped"),
        right=right,
        wrong=wrong,
        precision=precision,
        saved=mean.cost_of(skipped + before_the_model, price),
        model_seconds=mean.waited,
        cpu_seconds=counters.get(CPU_SECONDS, 0.0),
        cpu_seconds_behind=counters.get(CPU_BEHIND, 0.0),
        currency=currency,
        shadow=_in_shadow(inertia, mean, price),
        runs_judged=feedback.judged,
        runs_good=feedback.good,
        judged_with_shortcut=feedback.judged_with_shortcut,
        good_with_shortcut=feedback.good_with_shortcut,
        tools=_tools(graph),
        sections=sections,
        holdout=holdout,
        jobs=JobsReport(**jobs),
        problems=problems,
    )


@dataclass(slots=True)
class _Feedback:
    """Numbers of runs with feedback; the fields are those of `Report`."""

    judged: int = 0
    good: int = 0
    judged_with_shortcut: int = 0
    good_with_shortcut: int = 0


def _feedback(graph: ToolGraph) -> _Feedback:
    feedback = _Feedback()
    for run in graph.runs.values():
        if run.score is None:
            continue
        went_well = run.score >= GOOD
        feedback.judged += 1
        feedback.good += went_well
        if run.shortcuts > 0:
            feedback.judged_with_shortcut += 1
            feedback.good_with_shortcut += went_well
    return feedback


def _in_shadow(inertia: Mapping[str, Any], mean: MeanCall, price: TokenPrice | None) -> tuple[ShadowReport, ...]:
    """Return the agents in shadow mode whose calls were checked."""
    reports = []
    for agent in inertia.get("agents", ()):
        # An agent that acted and was never checked in shadow mode has no possible savings.
        record = agent["shadow"]
        if not record["checks"]:
            continue
        # A dict: each thread once, and the newest first, as the wrong calls are.
        threads: dict[str, None] = {}
        for row in inertia["wrong_calls"]:
            if row["agent"] == agent["key"] and row["thread"]:
                threads[row["thread"]] = None
        # Wrong calls save nothing: the model has to be asked anyway.
        would_save = mean.cost_of(record["right"], price)
        writes = bool(agent["may_write"])
        reports.append(ShadowReport(agent["name"], agent["turns"], would_save, record["wrong"], writes, tuple(threads)))
    return tuple(reports)


def _tools(graph: ToolGraph) -> dict[str, ToolReport]:
    """Return the tools that were called, or predicted and checked, by name."""
    tools = {}
    for name in sorted({*graph.tools, *graph.by_tool}):
        tool = _tool(graph, name)
        # The graph also has tools whose calls were never executed.
        if tool.calls or name in graph.by_tool:
            tools[name] = tool
    return tools


def _tool(graph: ToolGraph, name: str) -> ToolReport:
    entry, record = graph.tools.get(name, {}), graph.by_tool.get(name, {})
    skipped = 0.0
    for counter in _SKIPPED:
        skipped += record.get(counter, 0)
    return ToolReport(
        calls=int(entry.get("ok", 0) + entry.get("failed", 0)),
        failed=int(entry.get("failed", 0)),
        skipped=int(skipped),
        right=int(record.get("right", 0)),
        wrong=int(record.get("wrong", 0)),
    )


# --- episodes with the memory against held-out ones ---


def compare(episodes: Iterable[Episode]) -> HoldoutReport:
    """Sum up the episodes of each side."""
    with_memory: list[Episode] = []
    held_out: list[Episode] = []
    for episode in episodes:
        if episode.held:
            held_out.append(episode)
        else:
            with_memory.append(episode)
    return HoldoutReport(_side_of(with_memory), _side_of(held_out))


def _side_of(episodes: Sequence[Episode]) -> Side:
    judged, good = 0, 0
    calls, tokens = [], []
    for episode in episodes:
        if episode.score is not None:
            judged += 1
            good += episode.score >= GOOD
        # An episode without calls or without usage does not change the mean; as 0 it would favour its side.
        if episode.calls:
            calls.append(episode.calls)
        if episode.tokens:
            tokens.append(episode.tokens)
    return Side(len(episodes), judged, good, _mean(calls), _mean(tokens))


def _mean(numbers: Sequence[float]) -> float | None:
    if not numbers:
        return None
    return fmean(numbers)
