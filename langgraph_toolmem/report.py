"""What the memory has done so far, in numbers and in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from langgraph_toolmem.graph.contexts import SEPARATOR
from langgraph_toolmem.graph.evidence import HIT, MISS, EvidenceGraph
from langgraph_toolmem.inertia.proposal import RULE_PREFIX
from langgraph_toolmem.inertia.record import budget_left, misses_estimated

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
class Report:
    """The record of a memory.

    Attributes:
        turns: model turns seen, shortcuts included.
        calls: tool calls that the model chose.
        answers: turns that the model answered in words.
        skipped: LLM calls skipped: turns that the shortcut took.
        skipped_failed: of these, how many of the calls failed.
        right: proposals checked against the model (shadow and audit) that were exactly what it did.
        wrong: proposals checked that were not.
        precision: right / (right + wrong); None before any check.
        wrong_per_100: estimated misses per 100 model turns, calls made unchecked included.
        budget_open: whether the budget of misses has room under the memory's policy.
        tokens_saved: tokens of the skipped LLM calls, estimated by the mean of the calls made; None if the
            messages carry no usage.
        runs_with_shortcut, runs_judged, runs_good: runs in which the shortcut acted; runs with a verdict;
            of these, the good ones.
        judged_with_shortcut, good_with_shortcut: the same among runs in which the shortcut acted.
        tools: per tool.
        rules: kinds of predictions with their record, most used first.
        problems: what went wrong with storage, if anything.
    """

    turns: int = 0
    calls: int = 0
    answers: int = 0
    skipped: int = 0
    skipped_failed: int = 0
    right: int = 0
    wrong: int = 0
    precision: float | None = None
    wrong_per_100: float = 0.0
    budget_open: bool = True
    tokens_saved: int | None = None
    runs_with_shortcut: int = 0
    runs_judged: int = 0
    runs_good: int = 0
    judged_with_shortcut: int = 0
    good_with_shortcut: int = 0
    tools: Mapping[str, ToolReport] = field(default_factory=dict)
    rules: tuple[RuleReport, ...] = ()
    problems: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        """A few sentences and the tools."""
        lines = [
            f"{self.turns:,} model turns seen, {self.skipped:,} of them taken without the model"
            + (f" ({self.skipped_failed:,} of these calls failed)." if self.skipped else "."),
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
        if self.tokens_saved is not None:
            lines.append(f"About {self.tokens_saved:,} tokens saved.")
        if self.runs_judged:
            lines.append(
                f"Runs with a verdict: {self.runs_good:,} of {self.runs_judged:,} good; with shortcuts "
                f"{self.good_with_shortcut:,} of {self.judged_with_shortcut:,}."
            )
        width = max((len(name) for name in self.tools), default=0)
        for name, tool in sorted(self.tools.items(), key=lambda item: (-item[1].skipped, -item[1].calls, item[0])):
            lines.append(
                f"  {name:<{width}}  {tool.calls:>6,} calls  {tool.skipped:>6,} skipped  "
                f"checked: {tool.right:,} right, {tool.wrong:,} wrong"
            )
        lines += [f"Problem: {problem}" for problem in self.problems]
        return "\n".join(lines)


def make_report(graph: EvidenceGraph, max_wrong_per_100: float | None, problems: tuple[str, ...]) -> Report:
    """Reads the record out of the graph."""
    counters = graph.counters

    def number(name: str) -> int:
        return int(counters.get(name, 0))

    right, wrong = number("right"), number("wrong")
    skipped = number("acted_ok") + number("acted_failed")
    with_usage = number("turns_with_tokens")
    turns = number("turns")
    verdicts = [(entry[0] > 0, float(entry[1]) >= 0.5) for entry in graph.runs.values() if entry[1] is not None]
    return Report(
        turns=turns,
        calls=number("calls"),
        answers=number("answers"),
        skipped=skipped,
        skipped_failed=number("acted_failed"),
        right=right,
        wrong=wrong,
        precision=right / (right + wrong) if right + wrong else None,
        wrong_per_100=100 * misses_estimated(counters) / turns if turns else 0.0,
        budget_open=budget_left(counters, max_wrong_per_100),
        tokens_saved=round(skipped * counters["tokens"] / with_usage) if with_usage else None,
        runs_with_shortcut=sum(entry[0] > 0 for entry in graph.runs.values()),
        runs_judged=len(verdicts),
        runs_good=sum(good for _, good in verdicts),
        judged_with_shortcut=sum(acted for acted, _ in verdicts),
        good_with_shortcut=sum(acted and good for acted, good in verdicts),
        tools={name: _tool(graph, name) for name in sorted({*graph.tools, *graph.by_tool}) if _known(graph, name)},
        rules=_rules(graph),
        problems=problems,
    )


def _known(graph: EvidenceGraph, name: str) -> bool:
    entry = graph.tools.get(name, {})
    return bool(entry.get("ok") or entry.get("failed") or name in graph.by_tool)


def _tool(graph: EvidenceGraph, name: str) -> ToolReport:
    entry, record = graph.tools.get(name, {}), graph.by_tool.get(name, {})
    return ToolReport(
        calls=int(entry.get("ok", 0) + entry.get("failed", 0)),
        failed=int(entry.get("failed", 0)),
        skipped=int(record.get("acted_ok", 0) + record.get("acted_failed", 0)),
        right=int(record.get("right", 0)),
        wrong=int(record.get("wrong", 0)),
    )


def _rules(graph: EvidenceGraph) -> tuple[RuleReport, ...]:
    found = []
    for key, row in graph.rules.rows.items():
        if key.startswith(RULE_PREFIX) and (cell := row.get("")):
            after, tool, sources = key[len(RULE_PREFIX) :].split(SEPARATOR)
            found.append(RuleReport(after, tool, sources, int(cell[HIT]), int(cell[MISS])))
    found.sort(key=lambda r: (-(r.hits + r.misses), r.after, r.tool, r.sources))
    return tuple(found[:_MAX_RULES])
