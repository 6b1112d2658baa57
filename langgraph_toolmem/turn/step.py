"""A model call as a step sees it, and the step itself: the work of a method.

A step is written once; a graph sees it as a node (`StepNode`) and an agent as middleware, sync and async. Both run it
with `StepRunner`, once in its scope; the runner logs and suppresses its errors.

The request comes last: the state's messages as the model sees them, and the rest of its input as a `ModelInput`.
"""

from __future__ import annotations

import dataclasses
import logging
from abc import ABC
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.graph import StateGraph

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.caches import KeptTexts, drop_oldest
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.base.threads import SharedByCopies
from langgraph_toolmem.core.core import Core, Costs
from langgraph_toolmem.core.method import Method
from langgraph_toolmem.core.users import NOBODY, Owner, user_digest
from langgraph_toolmem.runs.run import UNSEEN, ModelInput, Primitive, text_of
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.trajectory import ThreadHistory
from langgraph_toolmem.runs.values import VALUE_LIMITS
from langgraph_toolmem.turn.ask import StepGenerator, adrive, drive
from langgraph_toolmem.turn.hints import (
    NO_OUTPUT,
    Line,
    Scope,
    StepOutput,
    Witness,
    left_out_now,
    new_hint,
    point_of,
    turn_of,
)
from langgraph_toolmem.turn.host import (
    ErrorLog,
    annotate,
    emit,
    env_mode,
    is_active,
    owner_of_run,
    read_key,
    runtime_of,
)

logger = logging.getLogger("langgraph_toolmem.steps")

M = TypeVar("M", bound=Method)


class Forecast:
    """A step's prediction of the model's answer. The predicting method defines the fields in a subclass."""

    __slots__ = ()


@dataclass(slots=True)
class Call:
    """The model call that comes next.

    Attributes:
        messages: the history; a list becomes a `ThreadHistory`.
        owner: the thread, if the host has a checkpointer, and the user, if known.
        state: the host's state.
        runtime: of the graph; None outside a graph.
        tools: specs of the offered tools that the agent executes, by name; None if unknown.
        offered: all offered tools, as the request has them.
        insisted: names of tools that the request requires.
        model: the called model, if known.
        settings: of the request.
        tool_choice: of the request.
        recorded: True if a recorder reports executions.
        left_out: tools that an earlier step removed, each with the reason.
        held_out: True if the episode runs without the memory (`core.episodes`).
        model_input: the model's input besides the messages.
        forecast: a step's prediction of the model's answer, for work that begins before it.
    """

    messages: list[Any]
    owner: Owner = NOBODY
    state: Any = None
    runtime: Any = None
    tools: Mapping[str, ToolSpec] | None = None
    offered: Sequence[Any] = ()
    insisted: frozenset[str] = frozenset()
    model: Any = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    tool_choice: Any = None
    recorded: bool = False
    left_out: Mapping[str, str] = field(default_factory=dict)
    held_out: bool = False
    model_input: ModelInput = UNSEEN
    forecast: Forecast | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.messages, ThreadHistory):
            self.messages = ThreadHistory(self.messages)

    @property
    def thread_id(self) -> str | None:
        """Return the thread; None if the host has no checkpointer."""
        return self.owner.thread_id

    @property
    def user_id(self) -> str | None:
        """Return the user; None if unknown."""
        return self.owner.user_id

    @property
    def context(self) -> Any:
        """Return the context of the host's run."""
        return getattr(self.runtime, "context", None)

    def allows(self, tool: str) -> bool:
        """Return True unless an earlier step removed the tool."""
        return tool not in self.left_out


class Step(SharedByCopies, ABC, Generic[M]):
    """A method's step at a model call. Override `compute`, and the others as needed.

    Attributes:
        role: name of its node, its hint and its events.
        about: its purpose in one line, for Studio and traces.
        scope: how long the result of `compute` is valid.
        ends: True if the step acts at the end of a run (`on_end`, `on_error`).
        learns: True if it also runs, silently, in episodes that are held out and in ``TOOLMEM=shadow``.
        tools: tools that it gives the agent.
        method: the method that the step belongs to.
    """

    role: ClassVar[str]
    about: ClassVar[str]
    scope: Scope = "call"
    ends: ClassVar[bool] = False
    learns: ClassVar[bool] = False
    tools: Sequence[BaseTool] = ()

    def __init__(self, method: M) -> None:
        self.method = method
        #: Logs suppressed errors; a node puts its own log here.
        self.errors = ErrorLog(type(self).__name__, logger)

    @property
    def core(self) -> Core:
        """Return the core of the memory."""
        return self.method.core

    def compute(self, call: Call) -> Any | StepGenerator[Any]:
        """Return a result that is valid for the step's scope: a `StepOutput`, or an input of `render`.

        A step that asks a model is a generator that yields `Ask` and is sent the answer.
        """
        return NO_OUTPUT

    def render(self, call: Call, found: Any) -> StepOutput:
        """Return the output at this model call, made of the result of `compute`. It runs at every model call, so keep
        it fast.
        """
        if isinstance(found, StepOutput):
            return found
        return NO_OUTPUT

    def record(self, write: Callable[[], object]) -> None:
        """Write a record of the model's input; an error is logged, and the model is asked anyway."""
        with self.errors:
            write()

    def on_trial(self, call: Call, lines: Sequence[Line]) -> list[Line]:
        """Return the lines whose items may be shown; items that are known to help come first (`core.trials`)."""
        if not lines:
            return []
        with self.errors:
            core = self.core
            state = core.state_of(core.read(call.messages, call.thread_id))
            standings = core.trials.standings(self.method.name, state, [line.item for line in lines if line.item])
            helpful: list[Line] = []
            others: list[Line] = []
            for line in lines:
                standing = standings.get(line.item)
                if standing == "helps":
                    helpful.append(line)
                elif standing not in ("hurts", "idle"):
                    others.append(line)
            return helpful + others
        return list(lines)

    def drawn(self, call: Call, lines: Sequence[Line]) -> list[Line]:
        """Return the lines that are not withheld in this episode, and record the draws."""
        items = [line.item for line in lines if line.item]
        if not items:
            return list(lines)
        # A draw that is not recorded cannot be compared later: if the record fails, all lines are shown.
        with self.errors:
            core = self.core
            run = core.read(call.messages, call.thread_id)
            user = user_digest(call.user_id)
            withheld = core.trials.draw(self.method.name, run, core.state_of(run), items, user)
            return [line for line in lines if line.item not in withheld]
        return list(lines)

    def on_end(self, call: Call) -> StepOutput | StepGenerator[StepOutput]:
        """Act at the end of the run."""
        return NO_OUTPUT

    def on_error(self, call: Call, error: Exception, failed_call: str | None) -> None:
        """Act at an error that ended the run: of the model, or of a tool (id of its call)."""


# --- running a step ---

MAX_TURNS: Final = 256


class StepRunner:
    """Runs a step at model calls, once in its scope, and suppresses its errors."""

    def __init__(self, step: Step[Any]) -> None:
        self.step = step
        self._memo = Memo(step.scope, step.core.texts)

    def output(self, call: Call) -> StepGenerator[StepOutput]:
        """Return the step's output at a model call; NO_OUTPUT if it fails, or must be silent."""
        step = self.step
        if (call.held_out or not is_active()) and not step.learns:
            return NO_OUTPUT
        # Read before `compute`: a user may be forgotten while it works with their texts.
        purges = step.core.texts.purges
        with step.errors:
            kept = yield from self._result(call, purges)
            if kept.broken:
                return NO_OUTPUT
            output = step.render(call, kept.result)
            # A kept result is rendered at each call of its scope, and the stream gets each event once.
            if output.event is not None and output.event != kept.event:
                kept.event = output.event
                report(step.role, output, call.runtime, events=step.core.events)
            return output
        # Only after an error: a step that failed is not tried again at each model call of its scope.
        with step.errors:
            self._memo.put(call, None, purges, broken=True)
        return NO_OUTPUT

    def _result(self, call: Call, purges: int) -> StepGenerator[Kept]:
        """Return the step's result that is valid now: the kept one, otherwise a computed one."""
        kept = self._memo.get(call)
        if kept is not None:
            return kept
        result = self.step.compute(call)
        if isinstance(result, Generator):
            result = yield from result
        return self._memo.put(call, result, purges)

    def at_end(self, call: Call) -> StepGenerator[Any]:
        with self.step.errors:
            output = self.step.on_end(call)
            if isinstance(output, Generator):
                output = yield from output
            report(self.step.role, output, call.runtime, events=self.step.core.events)


def report(role: str, output: StepOutput, runtime: Any, *, events: bool) -> None:
    """Write an output's stream event, unless `events` is False, and its notes on the current span."""
    if output.notes:
        annotate({"toolmem.node": role, **output.notes})
    if output.event is not None:
        emit(runtime, {"node": role, **output.event}, on=events)


@dataclass(slots=True)
class Kept:
    """A kept result of a step.

    Attributes:
        result: of `compute`.
        point: the point of the run and the offered tools for which it is valid; None for the whole user turn.
        event: the latest event that reported it.
        broken: True if `compute` failed: the step is silent in this scope.
    """

    result: Any
    point: tuple[str, frozenset[str]] | None
    event: Any = None
    broken: bool = False


class _MemoKey(NamedTuple):
    """The owner and the user's message (`turn_of`) that a result belongs to."""

    owner: Owner
    turn: str


class Memo(SharedByCopies):
    """Keeps a step's results for the `MAX_TURNS` user turns used last. Safe to use from several threads.

    A result is found by the thread, the user and the user's message. If a summary replaced that message, the user has
    not spoken since, so the thread's latest result stays valid. Without a thread id (no checkpointer) a run that begins
    with the same message again is another run, and results for messages without ids are not kept: another conversation
    may have the same words. After a user was forgotten all results are computed again.

    Args:
        scope: of the step; with "call" results are not kept.
        texts: the memory's texts in RAM, of which the results are a part.
    """

    def __init__(self, scope: Scope, texts: KeptTexts) -> None:
        self._scope, self._texts = scope, texts
        self._lock = threads.lock()
        self._kept: OrderedDict[_MemoKey, Kept] = OrderedDict()
        texts.register(self.forget)

    def forget(self) -> None:
        """Drop all results."""
        with self._lock:
            self._kept.clear()

    def get(self, call: Call) -> Kept | None:
        """Return the result for this call; None if there is none."""
        if self._scope == "call" or _begins(call):
            return None
        turn = turn_of(call.messages)
        if not turn and call.thread_id is None:
            return None
        with self._lock:
            key = self._key(call.owner, turn)
            kept = self._kept.get(key)
            if kept is None or kept.point not in (None, self._point(call)):
                return None
            self._kept.move_to_end(key)
            return kept

    def _key(self, owner: Owner, turn: str) -> _MemoKey:
        """Return the key of a user's message; without one ("") the key of the thread's latest result."""
        if not turn:
            # A summary replaced the message, so the user has not spoken since.
            for known in reversed(self._kept):
                if known.owner == owner:
                    return known
        return _MemoKey(owner, turn)

    def put(self, call: Call, result: Any, purges: int, *, broken: bool = False) -> Kept:
        """Keep a result, and return the valid one: if another thread was faster, its result.

        Args:
            purges: of the texts when the computation began. If a user was forgotten since, the result is not kept.
        """
        kept = Kept(result, self._point(call), broken=broken)
        if self._scope == "call":
            return kept
        key = _MemoKey(call.owner, turn_of(call.messages))
        with self._lock:
            if purges != self._texts.purges:
                return kept
            if self._scope == "point" or _begins(call) or broken:
                self._kept[key] = kept
            # Branches of a graph compute side by side: the model must read one result in all of them.
            kept = self._kept.setdefault(key, kept)
            self._kept.move_to_end(key)
            drop_oldest(self._kept, MAX_TURNS)
            return kept

    def _point(self, call: Call) -> tuple[str, frozenset[str]] | None:
        if self._scope != "point":
            return None
        return point_of(call.messages), frozenset(call.tools or ())


def _begins(call: Call) -> bool:
    """Return True if earlier results must not be used: a run without a thread id that begins, or that has no ids."""
    if call.thread_id is not None:
        return False
    if not call.messages:
        return True
    last = call.messages[-1]
    return isinstance(last, HumanMessage) or not getattr(last, "id", None)


# --- as a node of a graph ---


class MemoryNode(Runnable[Any, Any]):
    """A node over a memory. It never raises into the host's run.

    Each kind of error inside is logged once, and the node returns no update.

    Args:
        role: name of the node in a graph if no other is given, and in events.
        about: its purpose, for Studio.
        messages_key: key of the messages in the host's state.

    Attributes:
        costs: counts the processor time of the node, if it belongs to a memory.
    """

    costs: Costs | None = None

    def __init__(self, role: str, about: str, *, messages_key: str = "messages") -> None:
        self.role, self.about = role, about
        self.messages_key = messages_key
        self.name = type(self).__name__
        self.errors = ErrorLog(self.name, logger)

    def add_to(self, builder: StateGraph[Any, Any, Any, Any], name: str | None = None, **options: Any) -> None:
        """Add the node to a graph, with metadata that describe it in Studio and traces.

        Args:
            builder: the graph.
            name: of the node; its role if None.
            options: of ``add_node``; `metadata` given here takes precedence.
        """
        metadata = {"toolmem": self.role, "toolmem_about": self.about, **(options.pop("metadata", None) or {})}
        builder.add_node(name or self.role, self, metadata=metadata, **options)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002 - Runnable's name
        if env_mode() == "off":
            return None
        with self.errors:
            return drive(self._body_of(input, config), costs=self.costs)
        return None

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> Any:  # noqa: A002
        if env_mode() == "off":
            return None
        with self.errors:
            return await adrive(self._body_of(input, config), costs=self.costs)
        return None

    def _body_of(self, state: Any, config: RunnableConfig | None) -> Callable[[], Any | StepGenerator[Any]]:
        def body() -> Any | StepGenerator[Any]:
            return self.body(state, config)

        return body

    def body(self, state: Any, config: RunnableConfig | None) -> Any | StepGenerator[Any]:
        """Return the update of the state. In an async graph it runs in a thread."""
        raise NotImplementedError

    def call_of(self, state: Any, config: RunnableConfig | None) -> Call:
        """Return the model call that comes after this node.

        Raises:
            ConfigurationError: the state has no messages under `messages_key`.
        """
        messages = read_key(state, self.messages_key)
        if messages is None:
            raise ConfigurationError(
                f"The state has no {self.messages_key!r}. Pass messages_key=… to {type(self).__name__}."
            )
        runtime = runtime_of(config)
        return Call(
            messages,
            owner_of_run(config, runtime),
            state=state,
            runtime=runtime,
            left_out=left_out_now(state, messages_key=self.messages_key),
        )


class StepNode(MemoryNode):
    """A step as a node: its hint goes into the graph's private state.

    Args:
        step: the step.
        messages_key: see `MemoryNode`.
    """

    def __init__(self, step: Step[Any], *, messages_key: str = "messages") -> None:
        super().__init__(step.role, step.about, messages_key=messages_key)
        self.step = step
        self.costs = step.core.costs
        step.errors = self.errors
        self.runner = StepRunner(step)
        self._witnesses = deque[Witness](maxlen=MAX_TURNS)

    def body(self, state: Any, config: RunnableConfig | None) -> StepGenerator[Any]:
        call = self.call_of(state, config)
        if self.step.ends:
            yield from self.runner.at_end(call)
            return None
        core = self.step.core
        call.held_out = is_active() and core.held_out(call.messages, call.thread_id)
        output = yield from self.runner.output(call)
        if output.hint:  # feedback on the hint finds its episode, also without a recorder

            def note_thread() -> None:
                core.know(core.read(call.messages, call.thread_id))

            core.log_and_continue("could not note a thread", note_thread)
        if output is NO_OUTPUT:
            return None
        return self.update(call, output)

    def update(self, call: Call, output: StepOutput) -> Any:
        """Return the update of the state for a step's output."""
        seen = ""
        if output.seen is not None:
            lines = [line.text for line in output.hint]
            witness = Witness(output.seen, digest("witness", self.role, point_of(call.messages), *lines))
            self._witnesses.append(witness)
            seen = witness.token
        return new_hint(self.role, output, call.messages, self.step.scope, seen=seen)


# --- the request as the model sees it ---


_LIMIT: Final = 64
"""Fields of a context that are read."""


class SeenMessages(NamedTuple):
    """Messages of a request.

    Attributes:
        own: those of the host's state, trimmed and redacted as the model sees them.
        added: texts that are in this request only: system messages, notes, examples.
    """

    own: list[Any]
    added: list[str]


def seen_messages(state: Sequence[Any], request: Sequence[Any]) -> SeenMessages:
    """Return the messages of a request, separated by whether the host's state has them.

    A message of the state is known by its id, also where its text was redacted.

    Args:
        state: messages of the host's state.
        request: messages of the request to the model.
    """
    # The usual case, without reading the messages: they were neither trimmed nor extended.
    if len(state) == len(request) and all(map(is_, state, request)):
        return SeenMessages(list(request), [])
    ids = {message.id for message in state if isinstance(message, BaseMessage) and message.id}
    objects = set(map(id, state))
    own: list[Any] = []
    added: list[str] = []
    for message in request:
        if id(message) in objects or getattr(message, "id", None) in ids:
            own.append(message)
        else:
            added.append(text_of(message.content, separator="\n"))
    return SeenMessages(own, added)


def model_input_of(
    system: SystemMessage | None,
    messages: SeenMessages,
    runtime: Any,
    *,
    private: Collection[str],
    complete: bool,
) -> ModelInput:
    """Return the model's input besides the state's messages.

    Args:
        system: the system message of the request.
        messages: of the request.
        runtime: of the graph; its context is part of the input.
        private: fields of the context that are not read.
        complete: True if the memory is the last before the model.
    """
    parts: list[str] = []
    if system is not None:
        parts.append(text_of(system.content, separator="\n"))
    # Classes are asked once each: `isinstance` of a pydantic class takes .5 ms for 1,000 messages.
    kinds = {type(message) for message in messages.own}
    of_system = {kind for kind in kinds if issubclass(kind, SystemMessage)}
    if of_system:
        for message in messages.own:
            if type(message) in of_system:
                parts.append(text_of(message.content, separator="\n"))
    parts += messages.added
    return ModelInput(
        system="\n".join(part for part in parts if part),
        context=primitives_of(getattr(runtime, "context", None), private),
        complete=complete,
    )


def given_input(system: str | None, context: Any, private: Collection[str]) -> ModelInput:
    """Return the input that a developer reports with a run.

    Args:
        system: the whole system prompt; None if it is unknown.
        context: of the run; None without a context.
        private: fields of the context that are not read.

    Raises:
        ConfigurationError: `system` is not a text.
    """
    if system is not None and not isinstance(system, str):
        raise ConfigurationError(f"`system` must be the text of the prompt, got {type(system).__name__}.")
    if system is None and context is None:
        return UNSEEN
    return ModelInput((system or "")[: VALUE_LIMITS.message], primitives_of(context, private), complete=True)


def primitives_of(context: Any, private: Collection[str]) -> dict[str, Primitive]:
    """Return the primitive fields of a run's context, a dataclass, a pydantic model or a dict, without private ones."""
    primitives: dict[str, Primitive] = {}
    for name, value in _fields_of(context):
        # A whole document in the context is too long for an argument of a call.
        if isinstance(value, str) and len(value) > VALUE_LIMITS.message:
            continue
        is_read = isinstance(name, str) and name not in private and len(primitives) < _LIMIT
        if is_read and isinstance(value, (str, int, float, bool)):
            primitives[name] = value
    return primitives


def _fields_of(context: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(context, Mapping):
        return context.items()
    if dataclasses.is_dataclass(context) and not isinstance(context, type):
        return [(field.name, getattr(context, field.name, None)) for field in dataclasses.fields(context)]
    fields: Mapping[str, Any] = getattr(context, "__dict__", {})
    return fields.items()
