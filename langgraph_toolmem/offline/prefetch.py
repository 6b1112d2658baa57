"""Prefetching replayed from logs: calls are chosen as in a run, and nothing is executed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from langgraph_toolmem.inertia.decision import Decision
from langgraph_toolmem.inertia.guards import may_write
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.prefetch import Prefetch
from langgraph_toolmem.inertia.prefetch.qualify import Lookup, choose, least_probability
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.runs.run import Run, Turn
from langgraph_toolmem.runs.values import canon_args


@dataclass
class PrefetchTally:
    """Predicted look-ups prefetched in a replay. Turns that the shortcut would have taken count as the model's, too.

    Attributes:
        settings: which calls are prefetched.
        tool_seconds: duration of a call; None: as long as the model call before it.
        reads: calls of reading tools that the model made.
        ready: of these, prefetched with equal arguments and over before `Prefetch.timeout`.
        wasted: calls that were prefetched and not asked for.
        seconds_saved: of waiting. Calls of one turn run side by side: it saves time if all of them were prefetched.
        seconds: of model calls and tool calls without prefetching.
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
        """Count one model turn; return what was prefetched, with True if it was served.

        Args:
            memory: before it learns the turn.
            policy: says which tools read.
            turn: what the model did.
            decision: what was predicted.
            model_seconds: duration of the model call; None: that of a tool call, or one second.
        """
        settings, specs = self.settings, memory.core.catalogue.marked()

        def reads(tool: str) -> bool:
            return tool in specs and not may_write(tool, specs)

        def may(tool: str, args: Mapping[str, Any]) -> bool:
            named = settings.tools is None or tool in settings.tools
            return named and reads(tool) and specs[tool].problem(args) is None

        least = least_probability(settings, self.ready, self.wasted)
        model = model_seconds if model_seconds is not None else 1.0 if self.tool_seconds is None else self.tool_seconds
        tool = model if self.tool_seconds is None else self.tool_seconds
        asked = [(step.tool, canon_args(step.args)) for step in turn.steps]
        self.reads += sum(reads(name) for name, _ in asked)
        serves = tool <= settings.timeout and all(reads(name) for name, _ in asked)
        found = [
            (lookup, serves and lookup.key in asked) for lookup in choose(decision.predicted, settings, least, may)
        ]
        served = sum(ready for _, ready in found)
        self.ready += served
        self.wasted += len(found) - served
        self.seconds += model + (tool if asked else 0.0)
        if served and served == len(asked):
            self.seconds_saved += min(model, tool)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON."""
        plain = asdict(self)
        del plain["settings"]
        return {name: value if value is None else round(value, 3) for name, value in plain.items()}


def model_seconds(run: Run, messages: Sequence[Mapping[str, Any]], times: Sequence[float] | None) -> dict[str, float]:
    """Return the duration of the model call of each turn (its key), from the seconds since the start of each message.

    {} if they do not say.
    """
    if times is None or len(times) != len(messages):
        return {}
    answers = [index for index, message in enumerate(messages) if message.get("role") in ("assistant", "ai")]
    turns = [event for event in run.events if isinstance(event, Turn)]
    if len(turns) != len(answers):
        return {}
    took = ((turn.key, times[at] - times[at - 1]) for turn, at in zip(turns, answers, strict=True) if at)
    return {key: seconds for key, seconds in took if seconds >= 0}
