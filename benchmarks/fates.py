"""The fates of look-up turns in recorded runs: saved, or lost at a step of the prediction."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.graph.cases import Neighbour
from langgraph_toolmem.graph.provenance import Provenance
from langgraph_toolmem.graph.sources import read_input
from langgraph_toolmem.graph.state import PARALLEL, RunState
from langgraph_toolmem.inertia.calibrated import LEAST_SHARE, MAX_TOOLS, NEAREST, NEIGHBOURS, next_tools
from langgraph_toolmem.inertia.context import is_forbidden, next_lookup
from langgraph_toolmem.inertia.decision import Decision, Option, calls_text
from langgraph_toolmem.runs.run import ModelInput
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.runs.values import canon

SAVED: Final = "saved"
HELD_OUT: Final = "held out"
NO_STEP: Final = "no step left"
SEVERAL: Final = "several tools at once"
OTHER_TOOL: Final = "another tool"
NOT_SHOWN: Final = "value not shown"
NO_VALUE: Final = "no value"
WRONG: Final = "wrong arguments"
GUARD: Final = "guard"
LIKELIER: Final = "another is likelier"
BELOW: Final = "improbable"
CHAIN: Final = "improbable with those before it"
BUDGET: Final = "budget"
FATES: Final = (
    SAVED, HELD_OUT, NO_STEP, SEVERAL, OTHER_TOOL, NOT_SHOWN, NO_VALUE, WRONG, GUARD, LIKELIER, BELOW,
    CHAIN, BUDGET,
)  # fmt: skip
"""In the order of the tests: the first that applies is the fate of a turn."""


May = Callable[[str, Mapping[str, Any]], bool]


def calls_of(answer: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls of a recorded answer: the tool and its arguments."""
    functions = [call["function"] for call in answer.get("tool_calls") or []]
    return [(function["name"], json.loads(function["arguments"] or "{}")) for function in functions]


def is_next(lookup: Option, answer: Mapping[str, Any]) -> bool:
    """Return True if the answer makes exactly this turn's calls."""
    calls = calls_of(answer)
    if {tool for tool, _ in calls} != {lookup.tool}:
        return False
    return calls_text(args for _, args in calls) == calls_text(lookup.calls)


@dataclass(frozen=True)
class Asked:
    """A request to the model whose look-up turn was not saved.

    Attributes:
        history: of the run.
        thread: of the run.
        decision: about the turn.
        before: probability of the look-ups before it in this request.
        held_out: its look-up was predicted, and held out.
        no_step: the settings allow no further step.
    """

    history: Sequence[Mapping[str, Any]]
    thread: str
    decision: Decision
    before: float
    held_out: bool
    no_step: bool


class Fates:
    """Counts the fates of the look-up turns.

    Attributes:
        counts: of `FATES`.
        details: of the tools, parameters and codes behind them.
    """

    def __init__(self, memory: ToolMemory, reads: frozenset[str], seen: ModelInput, may: May, bar: float) -> None:
        self.counts, self.details = Counter[str](), Counter[str]()
        self._memory, self._reads, self._seen, self._may, self._bar = memory, reads, seen, may, bar

    def saved(self) -> None:
        """Count a turn that was saved."""
        self.counts[SAVED] += 1

    def lost(self, asked: Asked, answer: Mapping[str, Any]) -> None:
        """Count a turn of the model, if it consists of look-ups."""
        calls = calls_of(answer)
        if not calls or not all(tool in self._reads for tool, _ in calls):
            return
        fate, detail = self._fate(asked, answer, calls)
        self.counts[fate] += 1
        self.details[f"{fate}: {detail}"] += 1

    def _fate(
        self, asked: Asked, answer: Mapping[str, Any], calls: list[tuple[str, dict[str, Any]]]
    ) -> tuple[str, str]:
        tools = sorted({tool for tool, _ in calls})
        if asked.held_out:
            return HELD_OUT, tools[0]
        if asked.no_step:
            return NO_STEP, tools[0]
        if len(tools) > 1:
            return SEVERAL, " ".join(tools)
        likely = self._memory.inertia.lookups(asked.decision)
        same = [option for option in likely if option.tool == tools[0]]
        right = next((option for option in same if is_next(option, answer)), None)
        if right is not None:
            return self._of_right(right, likely, asked)
        return self._of_missing(asked, tools[0], [args for _, args in calls], same)

    def _of_right(self, right: Option, likely: Sequence[Option], asked: Asked) -> tuple[str, str]:
        """Return the fate of a turn that is among the candidates, likeliest first."""
        if right.stale:
            return GUARD, f"{right.tool} stale"
        if right.refused is not None and is_forbidden(right):
            return GUARD, f"{right.tool} {right.refused.code}"
        if not all(self._may(right.tool, args) for args in right.calls):
            return GUARD, f"{right.tool} schema"
        first = next_lookup(likely, self._may)
        if first is not right:
            return LIKELIER, right.tool
        detail = f"{right.tool} {right.probability:.1f}"
        if right.probability < self._bar:
            return BELOW, detail
        return (CHAIN if right.probability * asked.before < self._bar else BUDGET), detail

    def _of_missing(self, asked: Asked, tool: str, calls: list[dict[str, Any]], same: list[Option]) -> tuple[str, str]:
        """Return the fate of a turn that is not among the candidates."""
        core = self._memory.core
        run = parse_run(asked.history, thread_id=asked.thread)
        state = RunState.of(run, core.catalogue.records(None).read)
        state.seen = read_input(self._seen)
        neighbours = core.graph.cases.near(state, k=NEIGHBOURS)
        if not same and tool not in self._likely(state, neighbours):
            return OTHER_TOOL, tool
        provenance = Provenance(core.graph, state, core.constants, neighbours)
        properties = core.catalogue.marked(None)[tool].properties
        for args in calls:
            for name, value in args.items():
                if not provenance.may_use(tool, name, value, properties.get(name)):
                    return NOT_SHOWN, f"{tool}.{name}"
        if not same:
            return NO_VALUE, f"{tool} x{len(calls)}"
        return WRONG, f"{tool} {_difference(calls, same[0])}"

    def _likely(self, state: RunState, neighbours: Sequence[Neighbour]) -> set[str]:
        """Return the tools that candidates are made of."""
        shares = next_tools(self._memory.core.graph, state, neighbours[:NEAREST])
        least = LEAST_SHARE * max(shares.values(), default=0.0)
        specs = self._memory.core.catalogue.marked(None)
        ranked = sorted(shares, key=lambda item: (-shares[item], item))
        known = [item for item in ranked if shares[item] >= least and item.removeprefix(PARALLEL) in specs]
        return {item.removeprefix(PARALLEL) for item in known[:MAX_TOOLS]}


def _difference(calls: Sequence[Mapping[str, Any]], option: Option) -> str:
    """Return how a turn differs from the likeliest candidate of its tool."""
    if len(calls) != len(option.calls):
        return f"x{len(calls)}, not x{len(option.calls)}"
    if len(calls) > 1:
        return f"x{len(calls)}, other values"
    [args] = calls
    names = sorted({*args, *option.args})
    return " ".join(name for name in names if canon(args.get(name)) != canon(option.args.get(name)))
