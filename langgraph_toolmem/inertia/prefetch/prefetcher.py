"""The work of prefetch around a model call: before it, at its answer, and if it fails."""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool

from langgraph_toolmem.inertia.counters import SERVED, WASTED
from langgraph_toolmem.inertia.forecast import InertiaForecast, forecast_of
from langgraph_toolmem.inertia.guards import may_write
from langgraph_toolmem.inertia.prefetch.batch import (
    AnswerListener,
    Branch,
    PrefetchBatch,
    last_answer,
    namespace_of,
    position_of,
)
from langgraph_toolmem.inertia.prefetch.choice import Lookup, choose, least_probability
from langgraph_toolmem.inertia.prefetch.registry import Registry
from langgraph_toolmem.inertia.prefetch.settings import Prefetch
from langgraph_toolmem.inertia.prefetch.task import Host, PrefetchTask
from langgraph_toolmem.inertia.prefetch.tools import AgentTools, Interceptors
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import canon_args
from langgraph_toolmem.turn.ask import loop_of_run
from langgraph_toolmem.turn.host import ErrorLog, config_of, emit, warn_once
from langgraph_toolmem.turn.step import Call

logger = logging.getLogger("langgraph_toolmem.prefetch")

FREE_CHOICE: Final = (None, "auto", "any", "required")
"""Values of ``tool_choice`` under which any tool may be called."""
# Graphs that run many requests at once begin several model calls before the first tool call.
UNWATCHED_CALLS: Final = 32
"""Model calls of graphs with prefetching before a watched tool call has been seen."""
NO_CONFIG: Final = "Nothing is prefetched in async runs: before Python 3.11 the config of an async run cannot be read."
UNWATCHED: Final = (
    "Nothing is prefetched in this graph: its tools are not executed by a ToolNode(tools, wrap_tool_call="
    "recorder.wrap_tool_call, awrap_tool_call=recorder.awrap_tool_call), so that no result could be served."
)
NO_PLACE: Final = (
    "Nothing is prefetched in a graph without a thread id (a checkpointer), a user id or ids of messages: all three "
    "say whose result it is."
)


class Prefetcher:
    """Prefetches look-ups around model calls.

    Args:
        registry: of the look-ups.
        settings: which look-ups, and how many.
        interceptors: the host's code around tool calls.
        recorded: True if results are certainly served, because the memory is at the tools too.
    """

    def __init__(
        self, registry: Registry, settings: Prefetch, interceptors: Interceptors, *, recorded: bool = False
    ) -> None:
        self.registry, self._settings, self._recorded = registry, settings, recorded
        self._errors = ErrorLog("prefetch", logger)
        self._tools = AgentTools(settings, interceptors, logger)

    def begin(self, call: Call) -> PrefetchBatch | None:
        """Begin the most likely look-ups of a model call, and listen to its answer."""
        with self._errors:
            return self._begin(call)
        return None

    def _begin(self, call: Call) -> PrefetchBatch | None:
        loop, config = loop_of_run(), config_of()
        branch = Branch(call.owner, namespace_of(config))
        self.registry.waste_over(branch)
        forecast = forecast_of(call)
        if forecast is None:
            return None
        if loop is not None and config is None:
            warn_once(NO_CONFIG)
            return None
        allowed = self._allowed(call, forecast)
        if not allowed.tools or not self._may_be_served(call, allowed.tools):
            return None
        host = Host(config, call.runtime, loop, contextvars.copy_context())
        batch = PrefetchBatch(branch, allowed.changes)
        # With a forced tool only the streamed answer shows the call.
        if call.tool_choice in FREE_CHOICE:
            likely = choose(forecast.decision.predicted, self._least_probability(), allowed.may_call)
            self._start(batch, allowed.tools, host, likely)

        def streamed(tool: str, args: dict[str, Any]) -> None:
            lookup = Lookup(tool, args, canon_args(args))
            # An agent repeats a call since the user spoke because its answer may have changed.
            if lookup.key not in batch.tasks and allowed.may_call(tool, args) and not _was_made(call.messages, lookup):
                self._start(batch, allowed.tools, host, [lookup])

        batch.listener = AnswerListener(allowed.changes, streamed, self._errors)
        if batch.tasks:
            self.registry.unseen += 1
        return batch

    def _may_be_served(self, call: Call, tools: Container[str]) -> bool:
        """Return True unless the graph executes its tools where the memory does not see it."""
        registry = self.registry
        if self._recorded or registry.watched:
            return True
        # A wrapped model without a Recorder made 9 look-ups in 30 requests whose results it could not serve.
        if was_executed(call.messages, tools):
            registry.unseen = UNWATCHED_CALLS
        if registry.unseen >= UNWATCHED_CALLS:
            warn_once(UNWATCHED)
            return False
        return True

    def _allowed(self, call: Call, forecast: InertiaForecast) -> AllowedCalls:
        """Return the calls that may be prefetched at a model call."""
        core = self.registry.core
        with core.lock:
            specs = core.catalogue.marked(call.tools)
            return AllowedCalls(self._tools.available(call, core, specs, forecast.policy), specs)

    def _least_probability(self) -> float:
        core = self.registry.core
        with core.lock:
            counters = core.graph.counters
            return least_probability(self._settings, counters.get(SERVED, 0.0), counters.get(WASTED, 0.0))

    def _start(
        self, batch: PrefetchBatch, tools: Mapping[str, BaseTool], host: Host, lookups: Iterable[Lookup]
    ) -> None:
        started = []
        for lookup in lookups:
            task = PrefetchTask(lookup, tools[lookup.tool], self._settings.timeout)
            if not self.registry.begin(task, host, self._settings.workers):
                break
            batch.tasks[lookup.key] = task
            probability = round(lookup.probability, 4)
            started.append({"tool": lookup.tool, "args": dict(lookup.args), "probability": probability})
        if started:
            emit(host.runtime, {"node": "prefetch", "started": started}, on=self.registry.core.events)

    def answered(self, batch: PrefetchBatch, answer: Sequence[Any]) -> list[Any]:
        """Discard the calls that the answer does not ask for; the rest is kept for this run's own copy of the
        answer.
        """
        messages = list(answer)
        with self._errors:
            position = last_answer(messages)
            wanted = AIMessage("") if position is None else messages[position]
            self.registry.waste(batch.match(wanted))
            if batch.tasks and position is not None:
                # LangChain's model cache returns the same object to all callers, and a batch belongs to one object.
                messages[position] = wanted.model_copy()
                self.registry.keep(batch, messages[position])
        return messages

    def dropped(self, batch: PrefetchBatch) -> None:
        """Stop the tasks of a model call that failed or was cancelled. It takes no lock and counts nothing, so it is
        safe anywhere.
        """
        for task in batch.tasks.values():
            task.future.cancel()

    def begin_unseen(self, call: Call) -> None:
        """Begin the most likely look-ups of a plain graph, in which the answer is seen when its calls are executed."""
        if forecast_of(call) is None:
            return
        registry = self.registry
        before = call.messages[-1] if call.messages else None
        position = position_of(call.owner, before)
        if position is None:
            warn_once(NO_PLACE)
            return
        batch = self.begin(call)
        if batch is not None and batch.tasks:
            registry.keep(batch, position)


@dataclass(frozen=True, slots=True)
class AllowedCalls:
    """The calls that may be prefetched at a model call.

    Attributes:
        tools: that may be called, by name.
        specs: of all available tools.
    """

    tools: Mapping[str, BaseTool]
    specs: Mapping[str, ToolSpec]

    def may_call(self, tool: str, args: Mapping[str, Any]) -> bool:
        """Return True if a tool may be called with these arguments."""
        return tool in self.tools and self.specs[tool].problem(args) is None

    def changes(self, tool: str) -> bool:
        """Return True if a tool may change something."""
        return tool not in self.specs or may_write(tool, self.specs)


def was_executed(messages: Sequence[Any], tools: Container[str]) -> bool:
    """Return True if the latest message is a result of one of the tools: the call has been executed."""
    # Other results may be the graph's own words: an agent that hands over answers its call without a tool node.
    return bool(messages) and isinstance(messages[-1], ToolMessage) and messages[-1].name in tools


def _was_made(messages: Sequence[Any], lookup: Lookup) -> bool:
    """Return True if an equal call was made since the user spoke."""
    for message in reversed(messages):
        if isinstance(message, HumanMessage):
            return False
        for call in getattr(message, "tool_calls", ()):
            if (call["name"], canon_args(call["args"])) == lookup.key:
                return True
    return False
