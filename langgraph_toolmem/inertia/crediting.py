"""Records of predictions for the evidence graph: turns that begin, hits and misses, calls made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from langgraph_toolmem.base.text import digest
from langgraph_toolmem.graph.events import Count, Record, ToolCount
from langgraph_toolmem.graph.state import WORDS, RunState, windows
from langgraph_toolmem.inertia.budget import AUDITED, SHADOWED, Acted, Checked
from langgraph_toolmem.inertia.estimator import Weighed
from langgraph_toolmem.inertia.evidence import RulesJudged, TurnOpened
from langgraph_toolmem.inertia.novelty import RequestCompared
from langgraph_toolmem.inertia.proposal import RULE_PREFIX, Decision, calls_text
from langgraph_toolmem.runs.run import Turn

MOST_STANDS_FOR: Final = 20
"""Calls that one audit stands for at most, however few are audited."""


def open_turn(
    state: RunState, turn: str, decision: Decision, user: str | None, hour: int | None = None, *, audit: bool = False
) -> Record:
    """Return the record of a model turn that begins now, so that one whose end is never reported counts too.

    Args:
        state: the run before the turn.
        turn: its key.
        decision: what was decided about it.
        user: digest of the user.
        hour: since 1970.
        audit: the call would have been made, and the model is asked by chance.
    """
    checked = 0 if not decision.would_act else AUDITED if audit else SHADOWED
    judged = plain_judged(decision)
    return [TurnOpened(turn, windows(state), [rules for _, _, rules, *_ in judged], judged, checked, user, hour)]


def begin_shortcut(decision: Decision, turn: int) -> Record:
    """The record of a call that is made now, in model turn number `turn`: the misses to expect from it."""
    return [Acted(turn, int(option.changes), 1 - decision.confidence) for option in decision.options[:1]]


def call_digest(tool: str, args_text: str) -> str:
    """Short identity of a call, so that the record of predictions holds no argument text."""
    return digest("call", tool, args_text)


def plain_judged(decision: Decision) -> list[list[Any]]:
    """The judged candidates in plain containers: tool, digest of the call, rules, readable rule, confidence,
    features, whether it changes something, and how unlike past ones the request is."""
    return [
        [
            option.tool,
            call_digest(option.tool, calls_text(option.calls)),
            list(option.records),
            option.rule,
            option.probability if position else decision.confidence,
            option.columns,
            int(option.changes),
            option.unlike and list(option.unlike),
        ]
        for position, option in enumerate(decision.options)
        if option.rule
    ]


def credit_judged(
    turn: Turn, judged: list[list[Any]], *, would_act: int, audit_rate: float, hour: int | None, number: int
) -> Record:
    """Hit or miss for every candidate of model turn `number`.

    What a person rejected is a miss, what one put in its place the truth. `would_act`: AUDITED or SHADOWED if the best
    of them would have been made, else 0.
    """
    record: Record = []
    truth = _truth(turn)
    examples = [[features, int(call == truth)] for _, call, _, _, _, features, *_ in judged if features]
    if examples:
        record.append(Weighed(number, examples))
    for position, (tool, call, rules, rule, _, _, changes, unlike) in enumerate(judged):
        hit = int(call == truth)
        named = [RULE_PREFIX + rule] if position == 0 and rule else []
        # Of the calls that are made, a share is audited: each audit stands for the others, which nobody checks.
        stands_for = min(MOST_STANDS_FOR, round(1 / audit_rate)) if audit_rate and would_act == AUDITED else 1
        record += [RulesJudged(list(rules), hit, 1 if position else stands_for), RulesJudged(named, hit)]
        if position == 0 and tool != WORDS:
            record.append(ToolCount(tool, "hits" if hit else "misses"))
            if hit and unlike is not None:
                record.append(RequestCompared(number, tool, unlike))
            if would_act:
                outcome = "right" if hit else "wrong"
                record += [Count(outcome, 1, hour), ToolCount(tool, outcome)]
                record.append(Checked(number, changes, 1 - hit, would_act))
    return record


def _truth(turn: Turn) -> str:
    """Digest of what the model did, as one candidate may foresee it; "" for what none can."""
    if not turn.steps:
        return call_digest(WORDS, "")
    tools = {step.tool for step in turn.steps}
    if len(tools) > 1 or any(step.review == "rejected" for step in turn.steps):
        return ""
    return call_digest(tools.pop(), calls_text(step.args for step in turn.steps))


def credit_shortcut(turn: Turn, asked: Sequence[str], hour: int | None, *, changes: int, number: int) -> Record:
    """A turn that the shortcut took is credited by its outcome only, for the tools that it asked for."""
    statuses = {step.status for step in turn.steps}
    # Stopped: a person or a limit kept the call from being executed.
    outcome = "acted_ok" if statuses == {"ok"} else "acted_stopped" if "rejected" in statuses else "acted_failed"
    failed = [Acted(number, changes, 0.0, 1)] if outcome == "acted_failed" else []
    return [Count(outcome, 1, hour), *failed, *(ToolCount(tool, outcome) for tool in asked)]
