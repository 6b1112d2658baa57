"""What becomes of predictions, as operations of the evidence graph: turns that begin, hits and misses, calls made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.graph.operations import Count, Record, ToolCount
from langgraph_toolmem.graph.state import RunState, windows
from langgraph_toolmem.inertia.evidence import RulesJudged, TurnOpened
from langgraph_toolmem.inertia.proposal import RULE_PREFIX, Decision
from langgraph_toolmem.runs.run import Turn
from langgraph_toolmem.runs.values import canon_args


def open_turn(state: RunState, turn: str, decision: Decision, user: str | None, hour: int | None = None) -> Record:
    """The record of a model turn that begins now, so that one whose end is never reported counts too."""
    rules = [list(j.rules) for j in decision.judged]
    return [TurnOpened(turn, windows(state), rules, plain_judged(decision), decision.would_act, user, hour)]


def begin_shortcut(decision: Decision) -> Record:
    """The record of a call that is made now: the misses to expect from it."""
    return [Count("acted_risk", 1 - j.confidence) for j in decision.judged[:1]]


def call_digest(tool: str, args_text: str) -> str:
    """Short identity of a call, so that the record of predictions holds no argument text."""
    return digest("call", tool, args_text)


def plain_judged(decision: Decision) -> list[list[Any]]:
    """The judged candidates in plain containers: tool, digest of the call, rules, readable rule, confidence."""
    return [[j.tool, call_digest(j.tool, j.args_text), list(j.rules), j.rule, j.confidence] for j in decision.judged]


def credit_judged(turn: Turn, judged: list[list[Any]], *, would_act: bool, hour: int | None) -> Record:
    """Hit or miss for every candidate. What a person rejected is a miss, what one put in its place the truth."""
    record: Record = []
    truth = ""
    if len(turn.steps) == 1 and turn.steps[0].review != "rejected":
        truth = call_digest(turn.steps[0].tool, canon_args(turn.steps[0].args))
    for position, (tool, call, rules, rule, confidence) in enumerate(judged):
        hit = int(call == truth)
        named = [RULE_PREFIX + rule] if position == 0 and rule else []
        record.append(RulesJudged([*rules, *named], hit))
        if position == 0:
            record.append(ToolCount(tool, "hits" if hit else "misses"))
            if would_act:
                outcome = "right" if hit else "wrong"
                record += [Count(outcome, 1, hour), ToolCount(tool, outcome), Count("checked_risk", 1 - confidence)]
    return record


def credit_shortcut(turn: Turn, asked: Sequence[str], hour: int | None) -> Record:
    """A turn that the shortcut took is credited by its outcome only, for the tools that it asked for."""
    statuses = {step.status for step in turn.steps}
    # Stopped: a person or a limit kept the call from being executed.
    outcome = "acted_ok" if statuses == {"ok"} else "acted_stopped" if "rejected" in statuses else "acted_failed"
    return [Count(outcome, 1, hour), *(ToolCount(tool, outcome) for tool in asked)]
