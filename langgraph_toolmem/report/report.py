"""The report on a memory, in numbers and sentences: the core's counters, and a section for each method."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from operator import itemgetter
from typing import Any, Final

from langgraph_toolmem.base.checks import is_number
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.intervals import ENOUGH, lower_limit, percentage
from langgraph_toolmem.core.method import Section
from langgraph_toolmem.graph.evidence import EvidenceGraph
from langgraph_toolmem.graph.operations import GOOD, HOUR
from langgraph_toolmem.graph.view import NewestRuns
from langgraph_toolmem.report.holdout import HoldoutReport

_SKIPPED: Final = ("acted_ok", "acted_failed", "acted_stopped")
"""Counters of turns that the shortcut took."""
_MAX_PRICE: Final = 1e12


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
        cached = self.input if self.cached is None else self.cached
        prices: dict[str, Any] = {"input": self.input, "output": self.output, "cached": cached}
        for name, value in prices.items():
            if not is_number(value) or not 0 <= value <= _MAX_PRICE:
                raise ConfigurationError(
                    f"TokenPrice: {name} is money per million tokens, from 0 to {_MAX_PRICE:.0e}, not {value!r}."
                )
        currency: object = self.currency
        if not isinstance(currency, str) or not currency.strip() or not currency.isprintable():
            raise ConfigurationError(f"TokenPrice: currency is a name such as 'USD', not {currency!r}.")

    def of(self, input_tokens: float, output_tokens: float, cached_tokens: float = 0) -> float:
        """Return the price of so many tokens; `cached_tokens` of the input come from the provider's cache."""
        less = 0 if self.cached is None else cached_tokens * (self.input - self.cached)
        return (input_tokens * self.input - less + output_tokens * self.output) / 1_000_000


@dataclass(frozen=True)
class Period:
    """One hour (UTC) in which something happened, or one run.

    Attributes:
        start: its first second, in seconds since 1970.
        turns: model turns, shortcuts included.
        skipped: turns that the shortcut took.
        skipped_failed: of these, how many of the calls failed.
        right, wrong: checked proposals that the model's call equalled, or not.
        input_tokens, output_tokens: usage of the model calls.
    """

    start: int
    turns: int = 0
    skipped: int = 0
    skipped_failed: int = 0
    right: int = 0
    wrong: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


def money_in_words(amount: float, currency: str | None) -> str:
    """Format an amount of money: "1,234.50 USD"; small ones to a hundredth of a cent: "0.0042 USD"."""
    return f"{amount:,.{2 if amount >= 1 or not amount else 4}f} {currency or ''}".rstrip()


def time_in_words(seconds: float) -> str:
    """Format seconds since 1970 in UTC: "2026-03-01 14:00"."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M")


@dataclass(frozen=True)
class ToolReport:
    """One tool.

    Attributes:
        calls: executed calls, the model's and the shortcut's.
        failed: of these, how many failed.
        skipped: calls made without asking the model.
        right, wrong: checked proposals that the model's call equalled, or not.
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
        given_up: jobs that failed too often; see ``toolmem doctor``.
    """

    pending: int = 0
    failing: int = 0
    given_up: int = 0


@dataclass(frozen=True)
class Report:
    """The record of a memory.

    Attributes:
        turns: model turns seen, shortcuts included.
        calls: tool calls that the model chose.
        answers: turns that the model answered in words.
        skipped: LLM calls skipped: turns that the shortcut took.
        skipped_failed: of these, how many of the calls failed.
        skipped_stopped: of these, how many calls a person or a limit stopped before they were executed.
        right, wrong: proposals checked against the model (shadow and audit) that its call equalled, or not.
        precision: right / (right + wrong); None before any check.
        tokens_saved: tokens of the skipped LLM calls, estimated by the mean of the calls made; None if the
            messages carry no usage.
        input_tokens_saved, output_tokens_saved: the same, apart.
        money_saved: their price; None without a price or without usage.
        currency: of `money_saved`; None without a price.
        runs_with_shortcut, runs_judged, runs_good: runs in which the shortcut acted; runs with feedback; of these,
            the good ones.
        judged_with_shortcut, good_with_shortcut: the same among runs in which the shortcut acted.
        tools: per tool.
        periods: the hours in which something happened, oldest first.
        newest_runs: the same for each of the newest runs (100), by the start of their first turn.
        sections: each method's part, by its name; ``report["sit"]`` has its figures.
        holdout: episodes with the memory against those held out; None without ``holdout=``.
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
    tokens_saved: int | None = None
    input_tokens_saved: int | None = None
    output_tokens_saved: int | None = None
    money_saved: float | None = None
    currency: str | None = None
    runs_with_shortcut: int = 0
    runs_judged: int = 0
    runs_good: int = 0
    judged_with_shortcut: int = 0
    good_with_shortcut: int = 0
    tools: Mapping[str, ToolReport] = field(default_factory=dict)
    periods: tuple[Period, ...] = ()
    newest_runs: tuple[Period, ...] = ()
    sections: Mapping[str, Section] = field(default_factory=dict)
    holdout: HoldoutReport | None = None
    jobs: JobsReport = field(default_factory=JobsReport)
    problems: tuple[str, ...] = ()

    def __getitem__(self, method: str) -> Mapping[str, Any]:
        """The figures of a method; empty if it has none."""
        section = self.sections.get(method)
        return {} if section is None else section.figures

    def hints(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield title and figures ("shown", "followed", "right") of the methods that showed hints."""
        for section in self.sections.values():
            if section.figures.get("shown") and "followed" in section.figures:
                yield section.title, section.figures

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        plain = asdict(self)
        plain["sections"] = {name: section["figures"] for name, section in plain["sections"].items()}
        return plain

    def __str__(self) -> str:
        """A few sentences and the tools."""
        lines = self.sentences()
        width = max((len(name) for name in self.tools), default=0)
        for name, tool in self.tools_by_use():
            lines.append(
                f"  {name:<{width}}  {tool.calls:>6,} calls  {tool.skipped:>6,} skipped  "
                f"checked: {tool.right:,} right, {tool.wrong:,} wrong"
            )
        return "\n".join([*lines, *(f"Problem: {problem}" for problem in self.problems)])

    def tools_by_use(self) -> list[tuple[str, ToolReport]]:
        """Return the tools, most skipped first, then most called."""
        return sorted(self.tools.items(), key=lambda item: (-item[1].skipped, -item[1].calls, item[0]))

    def sentences(self) -> list[str]:
        """Return the report in a few sentences."""
        stopped = f", {self.skipped_stopped:,} stopped before they were executed" if self.skipped_stopped else ""
        failed = f" ({self.skipped_failed:,} of these calls failed{stopped})" if self.skipped else ""
        lines = [f"{self.turns:,} model turns seen, {self.skipped:,} of them taken without the model{failed}."]
        if self.precision is None:
            lines.append("No proposal has been checked against the model yet.")
        else:
            checks = self.right + self.wrong
            limit = math.floor(100 * lower_limit(self.right, checks))
            lines.append(f"{self.right:,} of {checks:,} checks against the model right: at least {limit} %.")
        lines += self._savings()
        if self.runs_judged:
            lines.append(
                f"Runs with a verdict: {self.runs_good:,} of {self.runs_judged:,} good; with shortcuts "
                f"{self.good_with_shortcut:,} of {self.judged_with_shortcut:,}."
            )
        if self.holdout is not None:
            lines += self.holdout.sentences()
        for section in self.sections.values():
            lines += section.sentences
        if self.jobs.pending:
            failing = f", {self.jobs.failing:,} of them failed before" if self.jobs.failing else ""
            lines.append(f"Entries and critiques still to be written: {self.jobs.pending:,}{failing}.")
        if self.jobs.given_up:
            lines.append(f"Given up after many failures: {self.jobs.given_up:,}; see `toolmem doctor`.")
        return lines

    def _savings(self) -> list[str]:
        lines = []
        if self.tokens_saved is not None:
            money = ""
            if self.money_saved is not None:
                money = f", worth about {money_in_words(self.money_saved, self.currency)}"
            lines.append(f"About {self.tokens_saved:,} tokens saved{money}.")
        if len(self.periods) > 1:
            first, end = self.periods[0].start, self.periods[-1].start + HOUR
            middle = (first + end) / 2
            early = _skipped([p for p in self.periods if p.start < middle])
            late = _skipped([p for p in self.periods if p.start >= middle])
            lines.append(
                f"From {time_in_words(first)} to {time_in_words(end)} (UTC): {early} turns taken without the model in "
                f"the first half of that time, {late} in the second."
            )
        return lines


def _skipped(periods: list[Period]) -> str:
    turns, skipped = sum(period.turns for period in periods), sum(period.skipped for period in periods)
    share = f" ({percentage(skipped, turns, 1)})" if turns >= ENOUGH else ""
    return f"{skipped:,} of {turns:,}{share}"


def make_report(
    graph: EvidenceGraph,
    sections: Mapping[str, Section],
    jobs: Mapping[str, int],
    problems: tuple[str, ...],
    price: TokenPrice | None = None,
    holdout: HoldoutReport | None = None,
) -> Report:
    """Read the report out of the graph; `price` turns the tokens saved into money."""
    counters = graph.counters

    def number(name: str) -> int:
        return int(counters.get(name, 0))

    right, wrong = number("right"), number("wrong")
    skipped = sum(map(number, _SKIPPED))
    with_usage = number("turns_with_tokens")
    tokens_in, tokens_out = number("tokens_in"), number("tokens_out")
    money, saved = None, dict[str, int]()
    if with_usage:
        each_in, each_out = skipped * tokens_in / with_usage, skipped * tokens_out / with_usage
        saved = {"tokens_saved": round(each_in + each_out)}
        saved |= {"input_tokens_saved": round(each_in), "output_tokens_saved": round(each_out)}
        money = price.of(each_in, each_out, skipped * number("tokens_cached") / with_usage) if price else None
    verdicts = [(entry[0] > 0, float(entry[1]) >= GOOD) for entry in graph.runs.values() if entry[1] is not None]
    return Report(
        turns=graph.turns,
        calls=number("calls"),
        answers=number("answers"),
        skipped=skipped,
        skipped_failed=number("acted_failed"),
        skipped_stopped=number("acted_stopped"),
        right=right,
        wrong=wrong,
        precision=right / (right + wrong) if right + wrong else None,
        **saved,
        money_saved=money,
        currency=price.currency if price else None,
        runs_with_shortcut=sum(entry[0] > 0 for entry in graph.runs.values()),
        runs_judged=len(verdicts),
        runs_good=sum(good for _, good in verdicts),
        judged_with_shortcut=sum(acted for acted, _ in verdicts),
        good_with_shortcut=sum(acted and good for acted, good in verdicts),
        tools={name: _tool(graph, name) for name in sorted({*graph.tools, *graph.by_tool}) if _known(graph, name)},
        periods=_periods((int(hour) * HOUR, counters) for hour, counters in graph.periods.items()),
        newest_runs=_periods(graph.register(NewestRuns).runs.values()),
        sections=sections,
        holdout=holdout,
        jobs=JobsReport(**jobs),
        problems=problems,
    )


def _periods(counted: Iterable[Sequence[Any]]) -> tuple[Period, ...]:
    found = []
    for start, counters in sorted(counted, key=itemgetter(0)):

        def number(name: str, counters: Mapping[str, float] = counters) -> int:
            return int(counters.get(name, 0))

        found.append(
            Period(
                start=int(start),
                turns=number("turns"),
                skipped=sum(map(number, _SKIPPED)),
                skipped_failed=number("acted_failed"),
                right=number("right"),
                wrong=number("wrong"),
                input_tokens=number("tokens_in"),
                output_tokens=number("tokens_out"),
            )
        )
    return tuple(found)


def _known(graph: EvidenceGraph, name: str) -> bool:
    entry = graph.tools.get(name, {})
    return bool(entry.get("ok") or entry.get("failed") or name in graph.by_tool)


def _tool(graph: EvidenceGraph, name: str) -> ToolReport:
    entry, record = graph.tools.get(name, {}), graph.by_tool.get(name, {})
    return ToolReport(
        calls=int(entry.get("ok", 0) + entry.get("failed", 0)),
        failed=int(entry.get("failed", 0)),
        skipped=int(sum(record.get(name, 0) for name in _SKIPPED)),
        right=int(record.get("right", 0)),
        wrong=int(record.get("wrong", 0)),
    )
