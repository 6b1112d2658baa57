"""The report on a memory, in numbers and sentences: the core's counters, and a section for each method."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any, Final

from langgraph_toolmem.base.checks import expect, is_number
from langgraph_toolmem.base.intervals import lower_limit, percentage
from langgraph_toolmem.base.text import shortened
from langgraph_toolmem.core.episodes import Episode
from langgraph_toolmem.core.method import Section
from langgraph_toolmem.graph.events import GOOD
from langgraph_toolmem.graph.tool_graph import ToolGraph

_SKIPPED: Final = ("acted_ok", "acted_failed", "acted_stopped")
"""Counters of turns that the shortcut took."""
_MAX_PRICE: Final = 1e12
MAX_LINES: Final = 40
MAX_AGENTS: Final = 5
"""Agents that the printed report describes, those seen last."""
MAX_CHANGES: Final = 5
"""Changes that the printed report shows; the page has more."""
FEW: Final = 20
"""Checks below which the report gives no share."""
RIGHT: Final = 0.95
"""Share of right checks below which the wrong ones are worth a look."""


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
        for name in ("input", "output", *(() if self.cached is None else ("cached",))):
            price = f"money per million tokens, from 0 to {_MAX_PRICE:.0e}"
            expect(self, name, price, lambda value: is_number(value) and 0 <= value <= _MAX_PRICE)
        expect(self, "currency", "a name such as 'USD'", lambda name: str.isprintable(name) and bool(name.strip()))

    def of(self, input_tokens: float, output_tokens: float, cached_tokens: float = 0) -> float:
        """Return the price of so many tokens; `cached_tokens` of the input come from the provider's cache."""
        less = 0 if self.cached is None else cached_tokens * (self.input - self.cached)
        return (input_tokens * self.input - less + output_tokens * self.output) / 1_000_000


def money_in_words(amount: float, currency: str | None) -> str:
    """Format an amount of money: "1,234.50 USD"; small ones to a hundredth of a cent: "0.0042 USD"."""
    return f"{amount:,.{2 if amount >= 1 or not amount else 4}f} {currency or ''}".rstrip()


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
        dead: jobs that failed too often; see ``toolmem doctor``.
    """

    pending: int = 0
    failing: int = 0
    dead: int = 0


@dataclass(frozen=True)
class Arm:
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

    memory: Arm = field(default_factory=Arm)
    held_out: Arm = field(default_factory=Arm)

    def sentences(self) -> list[str]:
        """Return the comparison in sentences; a figure that one side lacks is left out."""
        ours, without = self.memory, self.held_out
        lines = [
            f"Held out, without hints and without calls in the model's place: {without.episodes:,} of "
            f"{ours.episodes + without.episodes:,} episodes."
        ]
        if ours.judged and without.judged:
            lines.append(
                f"Success with the memory in {ours.good:,} of {ours.judged:,} judged episodes "
                f"({percentage(ours.good, ours.judged)}), without in {without.good:,} of {without.judged:,} "
                f"({percentage(without.good, without.judged)})."
            )
        for name, mine, other, digits in (
            ("Model calls", ours.model_calls, without.model_calls, 2),
            ("Tokens", ours.tokens, without.tokens, 0),
        ):
            if mine is not None and other is not None:
                lines.append(f"{name} per episode with the memory {mine:,.{digits}f}, without {other:,.{digits}f}.")
        return lines


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
        money_saved: their price; None without a price or without usage.
        currency: of `money_saved`; None without a price.
        runs_judged, runs_good: runs with feedback; of these, the good ones.
        judged_with_shortcut, good_with_shortcut: the same among runs in which the shortcut acted.
        tools: per tool.
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
    money_saved: float | None = None
    currency: str | None = None
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
        lines, tools = self.lines()[: MAX_LINES - 2], self.tools_by_use()
        width = max((len(name) for name in self.tools), default=0)
        room = min(len(tools), MAX_LINES - 1 - len(lines))
        for name, tool in tools[:room]:
            lines.append(
                f"  {name:<{width}}  {tool.calls:>6,} calls  {tool.skipped:>6,} skipped  "
                f"checked: {tool.right:,} right, {tool.wrong:,} wrong"
            )
        return "\n".join([*lines, *([f"  and {len(tools) - room:,} tools more"] if len(tools) > room else [])])

    def lines(self) -> list[str]:
        """Return all but the tools: the judgement, problems, what to review, and what each method says."""
        lines = [self.headline(), *(f"Problem: {problem}" for problem in self.problems), *self.setup()]
        lines += [f"Withdrawn: {each}" for each in self.withdrawn()]
        changes = self["inertia"].get("changes", ())
        lines += [
            f"Changed by the memory: {each['tool']}({shortened(each['args'], 60)}) in "
            f"{'thread ' + each['thread'] if each['thread'] else 'a run without a thread'}: {each['status']}"
            for each in changes[:MAX_CHANGES]
        ]
        lines += [f"and {len(changes) - MAX_CHANGES:,} changes more"] if len(changes) > MAX_CHANGES else []
        return lines + self.sentences()

    def headline(self) -> str:
        """Return one sentence with a judgement: what was saved, how often it was right, and whether to trust it."""
        if not self.turns:
            return "Nothing was seen yet."
        of, saved = self.right + self.wrong, f"Saved {self.skipped:,} of {self.turns:,} model calls"
        if not of:
            return f"{saved}; nothing was checked yet: too early to trust it."
        least = f", at least {math.floor(100 * lower_limit(self.right, of))} %" if of >= FEW else ""
        kinds = self["inertia"].get("checks_by_kind") or {"it": {"checks": of, "right": self.right}}
        return f"{saved}; {self.right:,} of {of:,} checks right{least}; {_trust(kinds)}."

    def setup(self) -> list[str]:
        """Return how the memory is set up: mode, policy, and what tools are declared to do."""
        found = self["inertia"]
        if "mode" not in found:
            return []
        reads, writes = found["declared"]
        if not found.get("agents"):
            return [
                f"Mode: {found['mode']}; policy: {found['kind']}. Declared: {reads:,} tools that only read, {writes:,} "
                "that may write without the model."
            ]
        lines = [_agent_in_words(agent) for agent in found["agents"][:MAX_AGENTS]]
        if len(found["agents"]) > MAX_AGENTS:
            lines.append(f"and {len(found['agents']) - MAX_AGENTS:,} agents or policies more")
        return [*lines, f"Declared: {reads:,} tools that only read."]

    def withdrawn(self) -> list[str]:
        """Return what the memory may not do at present, although the policy allows it."""
        found = self["inertia"]
        lines = [f"{tool}: a person refused or edited such a call" for tool in found.get("refused", ())]
        if found.get("budget_open") is False:
            lines.append("calls in the model's place: the budget of misses is used up")
        return lines

    def tools_by_use(self) -> list[tuple[str, ToolReport]]:
        """Return the tools, most skipped first, then most called."""
        return sorted(self.tools.items(), key=lambda item: (-item[1].skipped, -item[1].calls, item[0]))

    def sentences(self) -> list[str]:
        """Return the facts behind the headline, in a few sentences."""
        lines = []
        if self.skipped_failed or self.skipped_stopped:
            lines.append(
                f"Of the calls made without the model {self.skipped_failed:,} failed and {self.skipped_stopped:,} were "
                "stopped before they were executed."
            )
        if self.tokens_saved is not None:
            money = "" if self.money_saved is None else money_in_words(self.money_saved, self.currency)
            lines.append(f"About {self.tokens_saved:,} tokens saved{money and f', worth about {money}'}.")
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
        if self.jobs.dead:
            lines.append(f"Given up after many failures: {self.jobs.dead:,}; see `toolmem doctor`.")
        return lines


def _agent_in_words(agent: Mapping[str, Any]) -> str:
    """Return mode, policy and result of one agent."""
    name = f"Agent {agent['name']!r}" if agent["name"] else "Agent without a name"
    writes = f"may write without the model: {', '.join(agent['may_write'])}" if agent["may_write"] else "may not write"
    never = f"; never without the model: {', '.join(agent['never'])}" if agent["never"] else ""
    return (
        f"{name}: {agent['mode']}; policy: {agent['kind']}; {writes}{never}. It saved {agent['saved']:,} of "
        f"{agent['turns']:,} model calls."
    )


def _trust(kinds: Mapping[str, Mapping[str, Any]]) -> str:
    """Return which kinds of calls, such as reads and writes, can be trusted by their checks."""
    found: dict[str, list[str]] = {"look at what was wrong with": [], "too early to trust": [], "trust": []}
    for kind, record in kinds.items():
        of, right = record["checks"], record["right"]
        if not of:
            continue
        word = "too early to trust" if of < FEW else "trust" if right >= RIGHT * of else "look at what was wrong with"
        found[word].append(kind)
    return "; ".join(f"{word} {' and '.join(those)}" for word, those in found.items() if those)


def make_report(
    graph: ToolGraph,
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
    money = saved = None
    if with_usage:
        each_in, each_out = skipped * tokens_in / with_usage, skipped * tokens_out / with_usage
        saved = round(each_in + each_out)
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
        tokens_saved=saved,
        money_saved=money,
        currency=price.currency if price else None,
        runs_judged=len(verdicts),
        runs_good=sum(good for _, good in verdicts),
        judged_with_shortcut=sum(acted for acted, _ in verdicts),
        good_with_shortcut=sum(acted and good for acted, good in verdicts),
        tools={name: _tool(graph, name) for name in sorted({*graph.tools, *graph.by_tool}) if _known(graph, name)},
        sections=sections,
        holdout=holdout,
        jobs=JobsReport(**jobs),
        problems=problems,
    )


def _known(graph: ToolGraph, name: str) -> bool:
    entry = graph.tools.get(name, {})
    return bool(entry.get("ok") or entry.get("failed") or name in graph.by_tool)


def _tool(graph: ToolGraph, name: str) -> ToolReport:
    entry, record = graph.tools.get(name, {}), graph.by_tool.get(name, {})
    return ToolReport(
        calls=int(entry.get("ok", 0) + entry.get("failed", 0)),
        failed=int(entry.get("failed", 0)),
        skipped=int(sum(record.get(name, 0) for name in _SKIPPED)),
        right=int(record.get("right", 0)),
        wrong=int(record.get("wrong", 0)),
    )


# --- episodes with the memory against held-out ones ---


def compare(episodes: Iterable[Episode]) -> HoldoutReport:
    """Sum up the episodes of each side."""
    sides: tuple[list[Episode], list[Episode]] = ([], [])
    for each in episodes:
        sides[each.held].append(each)
    return HoldoutReport(*map(_arm, sides))


def _arm(episodes: Sequence[Episode]) -> Arm:
    judged = [each.good for each in episodes if each.good is not None]
    calls = [each.calls for each in episodes if each.calls]
    tokens = [each.tokens for each in episodes if each.tokens]
    return Arm(
        episodes=len(episodes),
        judged=len(judged),
        good=sum(good >= GOOD for good in judged),
        model_calls=fmean(calls) if calls else None,
        tokens=fmean(tokens) if tokens else None,
    )
