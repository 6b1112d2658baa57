"""What running look-ups ahead would have saved, from logs alone: chosen as in a run, and nothing is executed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from langgraph_toolmem.inertia.guards import may_write
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.prefetch.qualify import Lookup, choose, least_probability
from langgraph_toolmem.inertia.prefetch.settings import Prefetch
from langgraph_toolmem.inertia.proposal import Decision
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.runs.run import Run, Turn
from langgraph_toolmem.runs.values import canon_args


class Credit(NamedTuple):
    """What was run ahead of one turn, and what of it the model asked for."""

    guesses: list[Lookup]
    served: list[Lookup]


@dataclass
class PrefetchTally:
    """Look-ups run ahead in a replay. Turns that the shortcut would have taken count as the model's, too.

    Attributes:
        settings: which calls are run ahead.
        tool_seconds: how long a call takes; None: as long as the model call before it.
        reads: calls of reading tools that the model made.
        ready: of these, what was run ahead exactly so, and over before it was given up (`Prefetch.timeout`).
        without_waiting: of these, what was over when the model had answered.
        wasted: calls that were run ahead and not asked for.
        seconds_saved: of waiting. Calls of one turn run side by side: it saves time if all of them were run ahead.
        seconds: of model calls and tool calls without running ahead.
    """

    settings: Prefetch = field(default_factory=Prefetch)
    tool_seconds: float | None = 1.0
    reads: int = 0
    ready: int = 0
    without_waiting: int = 0
    wasted: int = 0
    seconds_saved: float = 0.0
    seconds: float = 0.0

    def credit(
        self, memory: ToolMemory, policy: InertiaPolicy, turn: Turn, decision: Decision, model_seconds: float | None
    ) -> Credit:
        """One model turn.

        Args:
            memory: before it learns the turn.
            policy: says what reads.
            turn: what the model did.
            decision: what was foreseen.
            model_seconds: how long the model took; None if nobody knows: as long as a tool, or one second.
        """
        core, settings = memory.core, self.settings
        specs = core.catalogue.marked()

        def reads(tool: str) -> bool:
            return tool in specs and not may_write(tool, specs, policy)

        def may(tool: str, args: Mapping[str, Any]) -> bool:
            named = settings.tools is None or tool in settings.tools
            return named and reads(tool) and specs[tool].problem(args) is None

        least = least_probability(settings, self.ready, self.wasted)
        guesses = choose(decision.foreseen, settings, least, may)
        model = model_seconds if model_seconds is not None else 1.0 if self.tool_seconds is None else self.tool_seconds
        tool = model if self.tool_seconds is None else self.tool_seconds
        asked = [(step.tool, canon_args(step.args)) for step in turn.steps]
        self.reads += sum(reads(name) for name, _ in asked)
        changes = any(not reads(name) for name, _ in asked)
        served: list[Lookup] = []
        for guess in guesses:
            exact = (guess.tool, guess.text) in asked and not changes
            if exact and tool <= settings.timeout:
                asked.remove((guess.tool, guess.text))
                served.append(guess)
        self.ready += len(served)
        self.wasted += len(guesses) - len(served)
        self.without_waiting += len(served) if tool <= model else 0
        self.seconds += model + (tool if turn.steps else 0.0)
        if served and not asked:
            self.seconds_saved += min(model, tool)
        return Credit(guesses, served)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON."""
        return {
            "reads": self.reads,
            "ready": self.ready,
            "without_waiting": self.without_waiting,
            "wasted": self.wasted,
            "seconds_saved": round(self.seconds_saved, 3),
            "seconds": round(self.seconds, 3),
            "tool_seconds": self.tool_seconds,
        }


def model_seconds(run: Run, messages: Sequence[Mapping[str, Any]], times: Sequence[float] | None) -> dict[str, float]:
    """How long the model took for each turn (its key), from the times beside the messages; {} if they do not tell.

    Args:
        run: the messages, read.
        messages: as they were written.
        times: seconds since the start, beside each message.
    """
    if times is None or len(times) != len(messages):
        return {}
    answers = [index for index, message in enumerate(messages) if message.get("role") in ("assistant", "ai")]
    turns = [event for event in run.events if isinstance(event, Turn)]
    if len(turns) != len(answers):
        return {}
    took = ((turn.key, times[at] - times[at - 1]) for turn, at in zip(turns, answers, strict=True) if at)
    return {key: seconds for key, seconds in took if seconds >= 0}
