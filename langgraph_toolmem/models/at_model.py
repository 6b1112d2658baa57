"""The memory at the model: one body for the middleware of an agent and for a wrapped chat model.

The body (`AtModel`) comes first, then its features, from the options of `tool_memory_middleware` and
`with_tool_memory`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar, cast

from langchain_core.messages import AIMessage, SystemMessage
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest

from langgraph_toolmem.atoms.step import SGASettings
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.core.core import Core
from langgraph_toolmem.core.open_calls import CallOwner, OpenCall, owner_of_call
from langgraph_toolmem.entries import RecallPolicy
from langgraph_toolmem.inertia import Inertia
from langgraph_toolmem.inertia.context import PrefetchedContext
from langgraph_toolmem.inertia.exchange import ContextLookups, Exchange, LookupStep, RequestParts
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.prefetch import Prefetch, Prefetcher
from langgraph_toolmem.inertia.speculative import Interceptors
from langgraph_toolmem.inertia.step import Shortcut
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.navigator.deferred import DeferredTools, Offer, RevealTools, ToolSearch
from langgraph_toolmem.nodes.loop_guard import LoopGuard
from langgraph_toolmem.nodes.steps import (
    InertiaShortcut,
    MemoryRecall,
    PreferenceGuide,
    Recorder,
    ReflectionWriter,
    SGAPlanner,
    SITSummary,
    ToolRetriever,
    method_of,
    owner_of,
)
from langgraph_toolmem.runs.run import CALL_TOOL, SEARCH_TOOL, Run
from langgraph_toolmem.runs.tools import name_of
from langgraph_toolmem.runs.trajectory import ThreadHistory
from langgraph_toolmem.sit.suggest import SITPolicy
from langgraph_toolmem.turn.ask import StepGenerator
from langgraph_toolmem.turn.hints import StepOutput, composed, placed, turn_of
from langgraph_toolmem.turn.host import ErrorLog, is_active
from langgraph_toolmem.turn.step import Call, Step, StepNode, StepRunner

logger = logging.getLogger("langgraph_toolmem.models")

P = ParamSpec("P")
T = TypeVar("T")

_NOT_OVER: Final = (GraphBubbleUp, CancelledError)
"""An interrupt, a drain, a cancelled call: the run is not over, or its caller gave it up. It is not a failure of a tool
or a model.
"""


@dataclass(slots=True)
class ModelAsk:
    """The parts of a request to the model that the memory may change."""

    system: SystemMessage | None
    messages: list[Any]
    tools: list[Any]
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The answer at the model.

    Attributes:
        messages: of the answer.
        response: the complete response of the host's model; None if the memory answers in the model's place.
        counts: True if the memory's message counts as a model call of the host, in its limits.
    """

    messages: list[Any]
    response: Any = None
    counts: bool = False


@dataclass(frozen=True, slots=True)
class AskOptions:
    """Options of one question to the model.

    Attributes:
        listener: to its answer.
        streams: If False, the answer is not streamed to the user while it is made.
    """

    listener: Any = None
    streams: bool = True


AskModel: TypeAlias = Callable[[ModelAsk, AskOptions], StepGenerator[ModelAnswer]]
"""Asks the host's model."""


class AtModel:
    """The steps of a memory at one agent's model. Its own errors never reach the host's run.

    Args:
        core: of the memory.
        steps: in the order in which they are asked.
        recorder: reports executions, and serves prefetched results.
        name: of the middleware or the wrapped model, for the log.
    """

    def __init__(self, core: Core, steps: Sequence[Step[Any]], recorder: Recorder, *, name: str) -> None:
        self.core, self.recorder = core, recorder
        self.errors = ErrorLog(name, logger)
        self.tools = [tool for step in steps for tool in step.tools]
        self._runners = [StepRunner(step) for step in steps]
        self._prefetcher: Prefetcher | None = None
        self._context: ContextLookups | None = None
        shortcut = _shortcut_of(steps)
        if shortcut is not None:
            self._prefetcher, self._context = shortcut.prefetcher, shortcut.context
        self._deferred: DeferredTools | None = None
        for step in steps:
            if isinstance(step, RevealTools):
                self._deferred = step.deferred

    # --- a model call ---

    def around(self, call: Call, ask: ModelAsk, ask_model: AskModel) -> StepGenerator[ModelAnswer]:
        """Return the memory's own call, or the model's answer.

        Args:
            call: the model call, as the memory sees it.
            ask: the request, as the host made it.
            ask_model: asks the host's model.
        """
        owner, turn = self._owner_of(call), turn_of(call.messages)
        # The answer may still be replaced, and an error handled: both are learned once the state shows the outcome.
        open_call = OpenCall(owner, self._history(call), call.model_input)
        request = RequestParts(ask.system, ask.messages, ask.tools, ask.settings, call.model, call.tool_choice)
        with self.errors:
            self._begin(call, owner, turn)
        # The model has answered for look-ups that leave one by one: each of them has a model call that does not ask the
        # model.
        kept = self._or_log(self._kept_answer, call, request)
        if kept is not None:
            self._note_answer(open_call, turn, kept.messages)
            return kept
        outputs: list[StepOutput] = []
        for runner in self._runners:
            output = yield from runner.output(call)
            if output.answer is not None:
                self._note_answer(open_call, turn, [output.answer])
                return ModelAnswer([output.answer])
            ask = self._without(ask, call, output)
            outputs.append(output)
        # After all steps: a call in place of the model needs no hints, and all hints are in one message.
        ask = self._or_log(self._hinted, ask, call, outputs) or ask
        try:
            answer = yield from self._ask_or_look_up(ask, call, request, ask_model)
        except Exception as error:
            # A retry or a fallback of the host may handle the error: it is pending until the thread continues.
            if not isinstance(error, _NOT_OVER):
                self._model_failed(open_call, turn, call, error)
            raise
        self._note_answer(open_call, turn, answer.messages)
        return answer

    def _ask_or_look_up(
        self, ask: ModelAsk, call: Call, request: RequestParts, ask_model: AskModel
    ) -> StepGenerator[ModelAnswer]:
        """Return the model's answer, or the first look-up made before it: the others and the answer are kept."""
        exchange = yield from self._looked_up(call)
        if not exchange.steps:
            return (yield from self._ask_and_prefetch(ask, call, ask_model))
        answer = yield from self._ask_with(exchange, ask, call, ask_model)
        # It is empty by now if the provider refused the look-ups.
        if not exchange.steps:
            return answer
        return self._or_log(self._first_look_up, call, request, exchange, answer) or answer

    def _ask_and_prefetch(self, ask: ModelAsk, call: Call, ask_model: AskModel) -> StepGenerator[ModelAnswer]:
        """Ask the model, and run likely look-ups while it answers."""
        prefetcher = self._prefetcher
        if prefetcher is None or not is_active():
            return (yield from self._ask(ask, call, ask_model, AskOptions()))
        batch = prefetcher.begin(call)
        if batch is None:
            return (yield from self._ask(ask, call, ask_model, AskOptions()))
        try:
            answer = yield from self._ask(ask, call, ask_model, AskOptions(batch.listener))
        # Also if the caller gave the call up: work that was started for it must end.
        except BaseException:
            prefetcher.dropped(batch)
            raise
        return replace(answer, messages=prefetcher.answered(batch, answer.messages))

    def _ask(self, ask: ModelAsk, call: Call, ask_model: AskModel, how: AskOptions) -> StepGenerator[ModelAnswer]:
        """Ask the model, with the tools that tool search offers it."""
        offer = self._offer(ask, call)
        offered = replace(ask, tools=offer.tools, messages=self._readable(call, offer.messages))
        costs = self.core.costs
        # Only the model's time, so that the report does not count the memory's own work as waiting.
        begun = costs.clock()
        answer = yield from ask_model(offered, how)
        costs.waited(costs.clock() - begun, calls=_asks_for_tools(answer.messages))
        messages = self._or_log(self._with_real_calls, answer.messages, offer, ask, call) or answer.messages
        return replace(answer, messages=messages)

    # --- look-ups before the model ---

    def _looked_up(self, call: Call) -> StepGenerator[Exchange]:
        if self._context is None:
            return Exchange()
        with self.errors:
            return (yield from self._context.look_up(call))
        return Exchange()

    def _ask_with(
        self, exchange: Exchange, ask: ModelAsk, call: Call, ask_model: AskModel
    ) -> StepGenerator[ModelAnswer]:
        """Ask the model with the look-ups after its messages, then as quoted data, then without.

        The next form is tried if the provider refuses the request.
        """
        assert self._context is not None
        shown = replace(ask, messages=[*ask.messages, *exchange.messages()])
        while self._context.may_show(call):
            quoted = self._context.quotes(call)
            try:
                # Not streamed: the look-ups leave before the answer, and chunks cannot be taken back.
                return (yield from self._ask(shown, call, ask_model, AskOptions(streams=False)))
            except Exception as error:
                if isinstance(error, _NOT_OVER) or not self._context.refused(call, error, quoted=quoted):
                    raise
        exchange.steps.clear()
        return (yield from self._ask(ask, call, ask_model, AskOptions()))

    def _readable(self, call: Call, messages: list[Any]) -> list[Any]:
        """Return the messages in the form that the provider accepts: without turns that the model did not make, if it
        refuses them.
        """
        if self._context is None:
            return messages
        readable = self._or_log(self._context.readable, call, messages)
        return messages if readable is None else readable

    def _first_look_up(self, call: Call, request: RequestParts, exchange: Exchange, answer: ModelAnswer) -> ModelAnswer:
        assert self._context is not None
        step = self._context.answered(call, request, exchange, answer)
        return answer if step is None else ModelAnswer([step.call_message()], counts=True)

    def _kept_answer(self, call: Call, request: RequestParts) -> ModelAnswer | None:
        """Return the kept answer to this request: the next look-up, or the model's answer."""
        if self._context is None:
            return None
        kept = self._context.waiting(call, request)
        if isinstance(kept, LookupStep):
            return ModelAnswer([kept.call_message()], counts=True)
        assert kept is None or isinstance(kept, ModelAnswer)
        return kept

    def _owner_of(self, call: Call) -> CallOwner:
        # By the state's messages if there are any: the host's middleware may trim those of the request, and the first
        # one identifies a run without a thread id.
        messages = None
        if isinstance(call.state, Mapping):
            messages = call.state.get("messages")
        return owner_of_call(call.owner, messages or call.messages)

    def _history(self, call: Call) -> ThreadHistory:
        assert isinstance(call.messages, ThreadHistory)
        return call.messages

    def _begin(self, call: Call, owner: CallOwner, turn: str) -> None:
        """Learn the earlier calls that the state shows, and record that a model call begins."""
        core = self.core
        core.open_calls.begin(owner, turn, call.messages)
        new = core.lifecycle.before_model(
            call.messages,
            call.owner,
            recorded=call.recorded,
            model_input=call.model_input,
        )
        if new:
            self.recorder.learned(new, call)
        call.held_out = is_active() and core.held_out(call.messages, call.thread_id)

    def _note_answer(self, open_call: OpenCall, turn: str, answer: Sequence[Any]) -> None:
        with self.errors:
            open_call.answer = answer
            self.core.open_calls.answered(open_call, turn)

    def _without(self, ask: ModelAsk, call: Call, output: StepOutput) -> ModelAsk:
        """Return the request without the tools that a step removed, and record the remaining ones in the call."""
        if not output.left_out:
            return ask
        left = [tool for tool in ask.tools if name_of(tool) not in output.left_out]
        # Later steps must not choose a tool that the model is not offered.
        if len(left) == len(ask.tools):
            return ask
        call.offered, call.tools = left, self.core.catalogue.offered(left)
        return replace(ask, tools=left)

    def _hinted(self, ask: ModelAsk, call: Call, outputs: Sequence[StepOutput]) -> ModelAsk:
        # Read only if hints need the run, because parsing it costs time at each model call.
        def read() -> Run:
            return self.core.read(call.messages, call.thread_id)

        text = composed(outputs, call.messages, read=read)
        if not text:
            return ask
        system, messages, settings = placed(
            text, system=ask.system, messages=ask.messages, model=call.model, settings=ask.settings
        )
        return replace(ask, system=system, messages=messages, settings=dict(settings))

    # --- tool search ---

    def _offer(self, ask: ModelAsk, call: Call) -> Offer:
        """Return the tools that the model is offered, and the messages that fit them; all tools without tool search."""
        if self._deferred is None:
            return Offer(ask.tools, ask.messages)
        with self.errors:
            if is_active():
                return self._deferred.offer(
                    ask.tools, ask.messages, call.model, insisted=call.insisted, thread_id=call.thread_id
                )
        # Switched off, or failed: the model gets all tools, without the two of the search.
        return Offer([tool for tool in ask.tools if name_of(tool) not in (SEARCH_TOOL, CALL_TOOL)], ask.messages)

    def _with_real_calls(self, answer: list[Any], offer: Offer, ask: ModelAsk, call: Call) -> list[Any]:
        """Return an answer with calls of the real tools."""
        if self._deferred is None or offer.form is None:
            return answer
        taken: list[Any] = []
        for message in answer:
            # The model calls tools by `call_tool`; the host knows only the real tools.
            if isinstance(message, AIMessage):
                message = self._deferred.take(message, ask.tools, insisted=call.insisted)
                self._deferred.note(offer, message, ask.tools, ask.messages)
            taken.append(message)
        return taken

    # --- the end of a run, and errors ---

    def end(self, call: Call) -> StepGenerator[Any]:
        """Learn the last answer, and run the steps that act at the end of a run."""
        # The end of a run shows its last answer: it is the last chance to learn it.
        with self.errors:
            call.messages = self.core.open_calls.end(self._owner_of(call), call.messages)
            new = self.core.lifecycle.observe(call.messages, call.owner)
            if new:
                self.recorder.learned(new, call)
        for runner in self._runners:
            if runner.step.ends:
                yield from runner.at_end(call)
        with self.errors:
            self.core.costs.flush()

    def _model_failed(self, open_call: OpenCall, turn: str, call: Call, error: Exception) -> None:
        def ends() -> None:
            self._run_failed(call, error, None)

        with self.errors:
            self.core.open_calls.failed(open_call, turn, ends)

    def tool_returned(self, request: ToolCallRequest, messages: Sequence[Any]) -> None:
        """Record that a tool call returned: a retry handled its earlier errors. `messages`: before the call."""
        with self.errors:
            open_call = self._open_call_of(request, messages)
            if open_call is not None:
                self.core.open_calls.tool_returned(open_call, request.tool_call["id"] or "")

    def tool_failed(self, request: ToolCallRequest, error: Exception, messages: list[Any]) -> None:
        """Record that a tool call raised: the run ends unless an outer middleware handles the error.

        Args:
            request: of the tool call.
            error: that it raised.
            messages: of the state before the call, which the tool may have replaced.
        """
        if isinstance(error, _NOT_OVER):
            return
        with self.errors:
            owner = owner_of(request)
            call_id = request.tool_call["id"] or ""
            open_call = self._open_call_of(request, messages)
            # Another process asked the model, or the call was settled already.
            if open_call is None:
                open_call = OpenCall(owner_of_call(owner, messages), ThreadHistory(messages))
                self.core.open_calls.answered(open_call, turn_of(messages))

            def ends() -> None:
                self.core.lifecycle.gave_up(messages, call_id, owner)
                self._run_failed(Call(messages, owner), error, call_id)

            self.core.open_calls.tool_failed(open_call, call_id, ends)

    def _open_call_of(self, request: ToolCallRequest, messages: Sequence[Any]) -> OpenCall | None:
        owner = owner_of_call(owner_of(request), messages)
        return self.core.open_calls.of_tool_call(owner, request.tool_call["id"] or "")

    def _run_failed(self, call: Call, error: Exception, failed_call: str | None) -> None:
        for runner in self._runners:
            if runner.step.ends:
                with runner.step.errors:
                    runner.step.on_error(call, error, failed_call)

    def _or_log(self, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Return the result of `do`; None if it fails."""
        with self.errors:
            return do(*args, **kwargs)
        return None


def _shortcut_of(steps: Sequence[Step[Any]]) -> Shortcut | None:
    for step in steps:
        if isinstance(step, Shortcut):
            return step
    return None


def _asks_for_tools(answer: Sequence[Any]) -> bool:
    return any(getattr(message, "tool_calls", ()) for message in answer)


# --- features, from the options ---


NO_INTERCEPTORS: Final = Interceptors()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The host's code around the memory.

    Attributes:
        models: models that may be asked besides the agent's own, such as fallbacks.
        interceptors: everything that may hold a tool call back.
        always: names of tools that are always offered.
        tools: names of tools of the host's middleware.
        recorded: True if the memory is at the tools too, and serves the results of look-ups.
        takes_tools: True if the memory may give the agent tools of its own, such as the summary tool.
    """

    models: tuple[Any, ...] = ()
    interceptors: Interceptors = NO_INTERCEPTORS
    always: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    recorded: bool = False
    takes_tools: bool = True


@dataclass(frozen=True, slots=True)
class FeatureKind:
    """The values that the option of a feature takes, besides True and False.

    Attributes:
        node: class of the node that the feature is made of.
        settings: class of its settings; None if it has none.
        argument: the node's argument for the settings.
    """

    node: type[StepNode]
    settings: type | None = None
    argument: str = ""

    @property
    def classes(self) -> tuple[type, ...]:
        """The classes of the option's values."""
        return (self.node,) if self.settings is None else (self.settings, self.node)


FEATURES: Final[Mapping[str, FeatureKind]] = {
    "shortcut": FeatureKind(InertiaShortcut, InertiaPolicy, "policy"),
    "recall": FeatureKind(MemoryRecall, RecallPolicy, "policy"),
    "suggest": FeatureKind(SITSummary, SITPolicy, "policy"),
    "planning": FeatureKind(SGAPlanner, SGASettings, "settings"),
    "reflect": FeatureKind(ReflectionWriter),
    "preferences": FeatureKind(PreferenceGuide),
    "tool_search": FeatureKind(ToolRetriever, ToolSearch, "search"),
}
"""Features with a node of their own."""
SETTINGS: Final[Mapping[str, type]] = {
    "prefetch": Prefetch,
    "context": PrefetchedContext,
    "loop_guard": LoopGuard,
}
"""Features that work within another node, or next to the memory."""
READERS: Final = ("recall", "planning", "preferences")
"""Features that read the runs kept by `reflect`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOptions:
    """The features of a memory at a model; `tool_memory_middleware` describes each.

    Raises:
        ConfigurationError: an option is neither True nor False nor of an accepted class.
    """

    shortcut: bool | InertiaPolicy | InertiaShortcut = True
    prefetch: bool | Prefetch = False
    context: bool | PrefetchedContext = False
    recall: bool | RecallPolicy | MemoryRecall = False
    suggest: bool | SITPolicy | SITSummary = False
    planning: bool | SGASettings | SGAPlanner = False
    reflect: bool | ReflectionWriter | None = None
    preferences: bool | PreferenceGuide = False
    tool_search: bool | ToolSearch | ToolRetriever = False
    loop_guard: bool | LoopGuard = False
    steps: Iterable[Step[Any]] = ()

    def __post_init__(self) -> None:
        """Checks types, and turns `reflect` on for the features that read the kept runs."""
        if self.reflect is None:
            # Otherwise a beginner's `recall=True` would never find a run, because runs would not be kept.
            object.__setattr__(self, "reflect", self._reads_kept_runs())
        for feature, kind in FEATURES.items():
            _check_option(feature, getattr(self, feature), kind.classes)
        for feature, settings in SETTINGS.items():
            _check_option(feature, getattr(self, feature), (settings,))
        steps = tuple(self.steps)
        for step in steps:
            if not isinstance(step, Step):
                raise ConfigurationError(f"`steps` must be instances of Step, got {step!r}.")
        object.__setattr__(self, "steps", steps)

    def _reads_kept_runs(self) -> bool:
        return any(self.has(feature) for feature in READERS)

    def has(self, feature: str) -> bool:
        """Return True if a feature is switched on."""
        return getattr(self, feature) is not False

    def node(self, feature: str, memory: ToolMemory, **arguments: Any) -> StepNode | None:
        """Return the node of a feature: the one that was given, or made of its settings; None if it is off.

        Args:
            feature: one of `FEATURES`.
            memory: of the node.
            arguments: further ones of a node that is made here.
        """
        given, kind = getattr(self, feature), FEATURES[feature]
        if given is False:
            return None
        if isinstance(given, kind.node):
            return given
        if given is not True:
            arguments[kind.argument] = given
        node: Any = kind.node
        made: StepNode = node(memory, **arguments)
        return made


def _check_option(feature: str, given: Any, classes: tuple[type, ...]) -> None:
    if not isinstance(given, (bool, *classes)):
        kinds = " or ".join([known.__name__ for known in classes])
        raise ConfigurationError(f"`{feature}` must be True, False or an instance of {kinds}, got {given!r}.")


def steps_for(memory: ToolMemory, around: Surroundings, options: MemoryOptions) -> list[Step[Any]]:
    """Return the steps of the features, in the order in which they are asked at a model call.

    Preferences come first, so that the shortcut never calls a tool that they leave out. Hints come after the shortcut,
    because a skipped model call does not need them.

    Raises:
        ConfigurationError: a feature needs a method that the memory does not have.
    """
    nodes = [
        options.node("reflect", memory),
        options.node("preferences", memory, keep=around.always),
        _shortcut(memory, around, options),
        options.node("recall", memory),
        options.node("suggest", memory, summary_tool=around.takes_tools),
        options.node("planning", memory),
        options.node("tool_search", memory, always=[*around.always, *around.tools]),
    ]
    asked: list[Step[Any]] = [node.step for node in nodes if node is not None]
    # A step that was given with arguments of its own takes the place of the one its method would make.
    given_kinds = {type(step) for step in options.steps}
    for method in memory.core.listeners:
        for kind in method.steps:
            if kind not in given_kinds:
                asked.append(kind(method))
    return [*asked, *options.steps]


def _shortcut(memory: ToolMemory, around: Surroundings, options: MemoryOptions) -> StepNode | None:
    """Return the node of the shortcut; in shadow mode if only look-ups before the model need its decisions."""
    alone = _feature_on_decisions(options)
    if alone and not options.has("shortcut"):
        policy = method_of(memory, Inertia, alone).policy
        # It predicts and never acts: the look-ups are chosen by its decisions.
        options = replace(options, shortcut=policy.with_(shadow=True))
    # Without tools of its own: here the model call has the tools that the request offers.
    node = options.node("shortcut", memory, tools=())
    if node is not None:
        step = cast("Shortcut", node.step)
        step.models = (*step.models, *around.models)
        step.enable_prefetch(options.prefetch, around.interceptors, recorded=around.recorded)
        step.enable_context(options.context, around.interceptors, recorded=around.recorded)
    return node


def _feature_on_decisions(options: MemoryOptions) -> str:
    """Return a feature that is on and needs the shortcut's decisions; "" if there is none."""
    for feature in ("prefetch", "context"):
        if options.has(feature):
            return feature
    return ""
