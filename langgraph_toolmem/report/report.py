"""What the memory has done so far, in numbers and in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from langgraph_toolmem.core.ledger import LedgerTable
from langgraph_toolmem.graph.contexts import SEPARATOR
from langgraph_toolmem.graph.evidence import HIT, MISS, EvidenceGraph
from langgraph_toolmem.graph.operations import GOOD, HOUR
from langgraph_toolmem.graph.tables import CountTable
from langgraph_toolmem.inertia.evidence import InertiaEvidence
from langgraph_toolmem.inertia.proposal import RULE_PREFIX
from langgraph_toolmem.inertia.record import budget_left, misses_estimated, turns_seen
from langgraph_toolmem.report.savings import Period, TokenPrice, money_in_words, time_in_words
from langgraph_toolmem.sit.evidence import SITEvidence

_MAX_RULES = 50


@dataclass(frozen=True)
class ToolReport:
    """One tool.

    Attributes:
        calls: executed calls, whoever chose them.
        failed: of these, how many failed.
        skipped: calls made without asking the model.
        right: checked proposals that were exactly what the model did.
        wrong: checked proposals that were not.
    """

    calls: int = 0
    failed: int = 0
    skipped: int = 0
    right: int = 0
    wrong: int = 0


@dataclass(frozen=True)
class RuleReport:
    """The record of one kind of prediction: after `after`, `tool` with arguments from `sources`."""

    after: str
    tool: str
    sources: str
    hits: int
    misses: int


@dataclass(frozen=True)
class HintReport:
    """The record of one kind of advice to the model.

    Attributes:
        offered: model turns before which the model was told something.
        followed: of these, in how many it called one of the tools named.
        right: of these, in how many such a call went well.
    """

    offered: int = 0
    followed: int = 0
    right: int = 0


@dataclass(frozen=True)
class RecallReport:
    """The record of past runs that were shown to the model.

    Attributes:
        runs: runs in which some were shown.
        helped: of these, runs that went well.
        hurt: of these, runs that went wrong.
    """

    runs: int = 0
    helped: int = 0
    hurt: int = 0


@dataclass(frozen=True)
class AtomsReport:
    """Atoms, and the runs in which the model followed one that it was shown.

    Attributes:
        made: different atoms that were kept, from the beginning; those dropped or forgotten since are counted too.
        learned: runs whose steps were kept as atoms; they count once their verdict is good.
        runs: runs in which the model followed an atom.
        helped: of these, runs that went well.
        hurt: of these, runs that went wrong.
    """

    made: int = 0
    learned: int = 0
    runs: int = 0
    helped: int = 0
    hurt: int = 0


@dataclass(frozen=True)
class ReflectionReport:
    """What is written in the background: entries, verdicts and critiques.

    Attributes:
        pending: waiting or being written.
        failing: of these, tried before without success.
        given_up: failed too often; see ``toolmem doctor``.
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
        skipped_stopped: of these, how many were not executed, because a person or a limit stopped them.
        right: proposals checked against the model (shadow and audit) that were exactly what it did.
        wrong: proposals checked that were not.
        precision: right / (right + wrong); None before any check.
        wrong_per_100: estimated misses per 100 model turns, calls made unchecked included.
        budget_open: whether the budget of misses has room under the memory's policy.
        tokens_saved: tokens of the skipped LLM calls, estimated by the mean of the calls made; None if the
            messages carry no usage.
        input_tokens_saved, output_tokens_saved: the same, apart.
        money_saved: what these tokens would have cost; None without a price or without usage.
        currency: of `money_saved`; None without a price.
        runs_with_shortcut, runs_judged, runs_good: runs in which the shortcut acted; runs with a verdict;
            of these, the good ones.
        judged_with_shortcut, good_with_shortcut: the same among runs in which the shortcut acted.
        tools: per tool.
        rules: kinds of predictions with their record, most used first.
        periods: the hours in which something happened, oldest first.
        hints: by method, what was suggested to the model and what became of it; ``sit``: next tools, ``sga``: atoms.
        runs_waiting: runs without a verdict; they teach no suggestions, unless a `SITPolicy` counts them.
        summaries: states of runs that were put into words and stored for suggestions, from the beginning; those that
            were merged, retired or forgotten since are counted too.
        summaries_waiting: such states that wait for the verdict on their run.
        entries: finished runs that were kept for recall, from the beginning; those dropped or forgotten since are
            counted too.
        recall: what became of runs that were shown some of them.
        atoms: how many atoms were kept, and what became of runs that followed some of them.
        reflections: what is still being written.
        problems: what went wrong with storage, if anything.
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
    wrong_per_100: float = 0.0
    budget_open: bool = True
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
    rules: tuple[RuleReport, ...] = ()
    periods: tuple[Period, ...] = ()
    hints: Mapping[str, HintReport] = field(default_factory=dict)
    runs_waiting: int = 0
    summaries: int = 0
    summaries_waiting: int = 0
    entries: int = 0
    recall: RecallReport = field(default_factory=RecallReport)
    atoms: AtomsReport = field(default_factory=AtomsReport)
    reflections: ReflectionReport = field(default_factory=ReflectionReport)
    problems: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON."""
        return asdict(self)

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

    def _came_to_nothing(self) -> str:
        stopped = f", {self.skipped_stopped:,} stopped before they were executed" if self.skipped_stopped else ""
        return f"{self.skipped_failed:,} of these calls failed{stopped}"

    def tools_by_use(self) -> list[tuple[str, ToolReport]]:
        """The tools, those first that were skipped most, then those called most."""
        return sorted(self.tools.items(), key=lambda item: (-item[1].skipped, -item[1].calls, item[0]))

    def sentences(self) -> list[str]:
        """The whole memory in a few sentences."""
        lines = [
            f"{self.turns:,} model turns seen, {self.skipped:,} of them taken without the model"
            + (f" ({self._came_to_nothing()})." if self.skipped else "."),
        ]
        if self.precision is None:
            lines.append("No proposal has been checked against the model yet.")
        else:
            lines.append(
                f"Of {self.right + self.wrong:,} proposals checked against the model, {self.right:,} were exactly "
                f"what it did ({self.precision:.1%}); about {self.wrong_per_100:.2f} wrong per 100 turns."
            )
        if not self.budget_open:
            lines.append("The budget of misses has no room: the model is asked until it has.")
        lines += self._savings()
        if self.runs_judged:
            lines.append(
                f"Runs with a verdict: {self.runs_good:,} of {self.runs_judged:,} good; with shortcuts "
                f"{self.good_with_shortcut:,} of {self.judged_with_shortcut:,}."
            )
        return [*lines, *self._advice()]

    def _advice(self) -> list[str]:
        lines = [
            f"{hint_in_words(method)}: suggested before {hint.offered:,} model turns, followed in {hint.followed:,} "
            f"of them, and {hint.right:,} of these calls went well."
            for method, hint in self.hints.items()
        ]
        if self.summaries or self.summaries_waiting:
            waiting = f"; waiting for a verdict: {self.summaries_waiting:,}" if self.summaries_waiting else ""
            lines.append(f"States of runs stored in words, for suggestions: {self.summaries:,}{waiting}.")
        if self.runs_waiting and (lines or self.runs_judged):
            lines.append(f"Runs without a verdict: {self.runs_waiting:,}; only successful ones teach suggestions.")
        return lines + self._recollection()

    def _recollection(self) -> list[str]:
        lines = []
        if self.entries:
            shown = self.recall
            went = _how_they_went(shown.helped, shown.hurt)
            lines.append(f"Past runs kept for recall: {self.entries:,}; shown in {shown.runs:,} runs{went}.")
        if self.atoms.made:
            atoms = self.atoms
            went = _how_they_went(atoms.helped, atoms.hurt)
            lines.append(f"Atoms made of what went well: {atoms.made:,}; followed in {atoms.runs:,} runs{went}.")
        if self.reflections.pending:
            failing = f", {self.reflections.failing:,} of them failed before" if self.reflections.failing else ""
            lines.append(f"Entries and critiques still to be written: {self.reflections.pending:,}{failing}.")
        if self.reflections.given_up:
            lines.append(f"Given up after many failures: {self.reflections.given_up:,}; see `toolmem doctor`.")
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
            early = _share_skipped([p for p in self.periods if p.start < middle])
            late = _share_skipped([p for p in self.periods if p.start >= middle])
            lines.append(
                f"From {time_in_words(first)} to {time_in_words(end)} (UTC): {early:.1%} of the turns taken without "
                f"the model in the first half of that time, {late:.1%} in the second."
            )
        return lines


def _how_they_went(helped: int, hurt: int) -> str:
    return f"; of these went well {helped:,}, badly {hurt:,}" if helped + hurt else ""


def hint_in_words(method: str) -> str:
    """A kind of advice, in words."""
    return _HINTS.get(method, method)


_HINTS: Final = {"sga": "Atoms", "sit": "Next tools"}


def _share_skipped(periods: list[Period]) -> float:
    turns = sum(period.turns for period in periods)
    return sum(period.skipped for period in periods) / turns if turns else 0.0


def make_report(
    graph: EvidenceGraph,
    max_wrong_per_100: float | None,
    problems: tuple[str, ...],
    price: TokenPrice | None = None,
    reflections: ReflectionReport | None = None,
) -> Report:
    """Reads the record out of the graph; `price` turns the tokens saved into money."""
    counters = graph.counters

    def number(name: str) -> int:
        return int(counters.get(name, 0))

    right, wrong = number("right"), number("wrong")
    skipped = number("acted_ok") + number("acted_failed") + number("acted_stopped")
    with_usage = number("turns_with_tokens")
    turns = turns_seen(counters)
    tokens_in, tokens_out = number("tokens_in"), number("tokens_out")
    saved_in = skipped * tokens_in / with_usage if with_usage else None
    saved_out = skipped * tokens_out / with_usage if with_usage else None
    saved = saved_in + saved_out if saved_in is not None and saved_out is not None else None
    money = price.of(saved_in, saved_out) if price and saved_in is not None and saved_out is not None else None
    sit, ledger = graph.register(SITEvidence), graph.register(LedgerTable)
    recalled, atoms = ledger.figures_of("entries"), ledger.figures_of("atoms")
    verdicts = [(entry[0] > 0, float(entry[1]) >= GOOD) for entry in graph.runs.values() if entry[1] is not None]
    return Report(
        turns=turns,
        calls=number("calls"),
        answers=number("answers"),
        skipped=skipped,
        skipped_failed=number("acted_failed"),
        skipped_stopped=number("acted_stopped"),
        right=right,
        wrong=wrong,
        precision=right / (right + wrong) if right + wrong else None,
        wrong_per_100=100 * misses_estimated(counters) / turns if turns else 0.0,
        budget_open=budget_left(counters, max_wrong_per_100),
        tokens_saved=_rounded(saved),
        input_tokens_saved=_rounded(saved_in),
        output_tokens_saved=_rounded(saved_out),
        money_saved=money,
        currency=price.currency if price else None,
        runs_with_shortcut=sum(entry[0] > 0 for entry in graph.runs.values()),
        runs_judged=len(verdicts),
        runs_good=sum(good for _, good in verdicts),
        judged_with_shortcut=sum(acted for acted, _ in verdicts),
        good_with_shortcut=sum(acted and good for acted, good in verdicts),
        tools={name: _tool(graph, name) for name in sorted({*graph.tools, *graph.by_tool}) if _known(graph, name)},
        rules=_rules(graph.register(InertiaEvidence).rules),
        periods=_periods(graph.periods),
        hints=_hints(ledger),
        runs_waiting=sit.walks.waiting(),
        summaries=number("summaries"),
        summaries_waiting=sit.waiting(),
        entries=number("entries"),
        recall=RecallReport(*(int(recalled[name]) for name in _BY_RUN)),
        atoms=AtomsReport(number("atoms"), number("atoms_runs"), *(int(atoms[name]) for name in _BY_RUN)),
        reflections=reflections or ReflectionReport(),
        problems=problems,
    )


def _rounded(number: float | None) -> int | None:
    return None if number is None else round(number)


_BY_RUN: Final = ("runs", "helped", "hurt")
_BY_TURN: Final = ("shown", "followed", "right")
_KEYS: Final = {"atoms": "sga"}
"""How the report calls the hints of a method, where it is not by its name."""


def _hints(ledger: LedgerTable) -> dict[str, HintReport]:
    found = {_KEYS.get(method, method): figures for method, figures in ledger.figures.items() if figures["shown"]}
    return {key: HintReport(*(int(figures[name]) for name in _BY_TURN)) for key, figures in sorted(found.items())}


def _periods(hours: Mapping[str, Mapping[str, float]]) -> tuple[Period, ...]:
    found = []
    for hour, counters in hours.items():

        def number(name: str, counters: Mapping[str, float] = counters) -> int:
            return int(counters.get(name, 0))

        found.append(
            Period(
                start=int(hour) * HOUR,
                turns=turns_seen(counters),
                skipped=number("acted_ok") + number("acted_failed") + number("acted_stopped"),
                skipped_failed=number("acted_failed"),
                right=number("right"),
                wrong=number("wrong"),
                input_tokens=number("tokens_in"),
                output_tokens=number("tokens_out"),
            )
        )
    return tuple(sorted(found, key=lambda period: period.start))


def _known(graph: EvidenceGraph, name: str) -> bool:
    entry = graph.tools.get(name, {})
    return bool(entry.get("ok") or entry.get("failed") or name in graph.by_tool)


def _tool(graph: EvidenceGraph, name: str) -> ToolReport:
    entry, record = graph.tools.get(name, {}), graph.by_tool.get(name, {})
    return ToolReport(
        calls=int(entry.get("ok", 0) + entry.get("failed", 0)),
        failed=int(entry.get("failed", 0)),
        skipped=int(sum(record.get(name, 0) for name in ("acted_ok", "acted_failed", "acted_stopped"))),
        right=int(record.get("right", 0)),
        wrong=int(record.get("wrong", 0)),
    )


def _rules(record: CountTable) -> tuple[RuleReport, ...]:
    found = []
    for key, row in record.rows.items():
        if key.startswith(RULE_PREFIX) and (cell := row.get("")):
            after, tool, sources = key[len(RULE_PREFIX) :].split(SEPARATOR)
            found.append(RuleReport(after, tool, sources, int(cell[HIT]), int(cell[MISS])))
    found.sort(key=lambda r: (-(r.hits + r.misses), r.after, r.tool, r.sources))
    return tuple(found[:_MAX_RULES])
