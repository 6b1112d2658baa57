"""A chat model that asks the memory first: the memory at the model for any graph.

The wrapped model is a copy whose class is a subclass of the model's own. Providers' rules and prompt caches look at a
model's class (``isinstance(model, ChatAnthropic)``), so a model that does something else before it generates must stay
an instance of it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeVar
from uuid import uuid4

from langchain_core.globals import get_llm_cache
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, SystemMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig, ensure_config
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import BaseTool
from pydantic import PrivateAttr

from langgraph_toolmem.atoms.step import SGASettings
from langgraph_toolmem.base.checks import names_given, with_known_options
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.entries import RecallPolicy
from langgraph_toolmem.inertia.context import PrefetchedContext
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.prefetch import Prefetch
from langgraph_toolmem.inertia.speculative import Interceptors
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.models.at_model import (
    AskOptions,
    AtModel,
    MemoryOptions,
    ModelAnswer,
    ModelAsk,
    Surroundings,
    steps_for,
)
from langgraph_toolmem.nodes.steps import (
    InertiaShortcut,
    MemoryRecall,
    PreferenceGuide,
    Recorder,
    SGAPlanner,
    SITSummary,
    checked,
    executable_tools,
)
from langgraph_toolmem.runs.tools import ToolLike, name_of
from langgraph_toolmem.sit.suggest import SITPolicy
from langgraph_toolmem.turn.ask import Proceed, StepGenerator, adrive, adrive_stream, drive, drive_stream, setting
from langgraph_toolmem.turn.host import env_mode, owner_of_run, runtime_of, warn_once
from langgraph_toolmem.turn.step import Call, Step, model_input_of, seen_messages

Model = TypeVar("Model", bound=BaseChatModel)
V = TypeVar("V")
CALLER_UNKNOWN: Final = (
    "%s was called without a config, so its thread and user are unknown and the memory is not asked. Call it inside a "
    "graph, or pass the node's config: model.invoke(messages, config). (Async nodes before Python 3.11 must pass it.)"
)
WITHOUT_TOOLS: Final = (
    "%s was given no tools that can be executed (LangChain tools or functions): it learns, and calls none in the "
    "model's place. Pass the tools that are executed: with_tool_memory(model, memory, tools=[...])."
)
_FORCED: Final = "forced"
"""Represents a provider's own setting that forces a tool call."""
_BUSY: ContextVar[bool] = ContextVar("toolmem_model_is_asked", default=False)
"""True while the model itself is asked: its calls of its own methods do not ask the memory."""
_GIVEN: ContextVar[RunnableConfig | None] = ContextVar("toolmem_given_config", default=None)
"""The config that the caller passed to ``invoke`` or ``stream``."""


@with_known_options
def with_tool_memory(
    model: Model,
    memory: ToolMemory,
    *,
    tools: Iterable[ToolLike] = (),
    gated: Iterable[str] = (),
    shortcut: bool | InertiaPolicy | InertiaShortcut = True,
    prefetch: bool | Prefetch = False,
    context: bool | PrefetchedContext = False,
    recall: bool | RecallPolicy | MemoryRecall = False,
    suggest: bool | SITPolicy | SITSummary = False,
    planning: bool | SGASettings | SGAPlanner = False,
    preferences: bool | PreferenceGuide = False,
    steps: Iterable[Step[Any]] = (),
    name: str = "ToolMemory",
) -> Model:
    """Return a copy of a chat model that asks the memory first, for any graph.

    The copy is an instance of the model's own class, so ``bind_tools``, ``with_structured_output``, streaming, retries
    and prompt caching work as before. It asks the memory only if tools are bound::

        model = with_tool_memory(ChatOpenAI(model="gpt-5.1"), memory, tools=tools)
        agent = create_react_agent(model, tools, checkpointer=checkpointer)

    Thread and user come from the run's config. An answer is learned when the next model call of its thread shows it, or
    a minute later, at `ToolMemory.flush` or `close`. Results of prefetched look-ups are served by a `Recorder` on the
    same memory: ``ToolNode(tools, wrap_tool_call=recorder.wrap_tool_call, awrap_tool_call=recorder.awrap_tool_call)``.
    With an LLM cache the memory is not asked, because the cache would keep its calls as the model's.

    Args:
        model: a chat model, before tools are bound to it; also one of ``init_chat_model(configurable_fields=...)``.
        memory: the memory; models and agents may share one.
        tools: the tools that are executed, with their marks. The memory calls no other tool.
        gated: names of tools that must not run before their call went through an approval or ``interrupt_before``.
        shortcut: see `tool_memory_middleware`, also for the other features.
        prefetch: see there.
        context: see there. It begins after the first tool call that passed a `Recorder`.
        recall: see there.
        suggest: see there; the summary tool is left out.
        planning: see there.
        preferences: see there.
        steps: of methods of your own, asked after the memory's.
        name: for the log.

    Raises:
        ConfigurationError: an argument is invalid, such as a model with bound tools.
    """
    checked(memory, "with_tool_memory")
    made_at_call = is_configurable(model)
    if not (made_at_call or isinstance(model, BaseChatModel)):
        raise ConfigurationError(
            f"with_tool_memory takes a chat model, not {type(model).__name__}. Wrap the chat model first, then bind "
            "tools, retries or fallbacks to it."
        )
    executed: dict[str, BaseTool] = {}
    for tool in executable_tools(tools).tools:
        if isinstance(tool, BaseTool):
            executed[tool.name] = tool
    # In an app with its tools in other modules, 1,150 model calls saved none, and nothing said why. It is no error:
    # without tools the memory still learns, and other models of it may act.
    if not executed and (shortcut or prefetch or context):
        warn_once(WITHOUT_TOOLS, name)
    around = Surroundings(
        interceptors=Interceptors(tools=frozenset(names_given("gated", gated))),
        takes_tools=False,
    )
    options = MemoryOptions(
        shortcut=shortcut,
        prefetch=prefetch,
        context=context,
        recall=recall,
        suggest=suggest,
        planning=planning,
        reflect=False,
        preferences=preferences,
        steps=steps,
    )
    wanted = steps_for(memory, around, options)
    # Reads the schemas once; raises here, not in a run. Graphs that bind a few of their tools at a time would have the
    # others reported as unknown, and their marks would count from their first binding only.
    memory.core.catalogue.adopt(memory.core.catalogue.offered(executed.values()))
    at_model = AtModel(memory.core, wanted, Recorder(memory), name=name)
    behind = ModelMemory(at_model, executed, name)
    if made_at_call:
        wrapped: Model = configurable_with(model, behind)
        return wrapped
    return copy_with(model, _MIXINS, behind)


class ModelMemory:
    """The memory behind one wrapped model.

    Args:
        at_model: the steps.
        tools: the executed tools by name.
        name: for the log.
    """

    def __init__(self, at_model: AtModel, tools: Mapping[str, BaseTool], name: str) -> None:
        self.at_model, self.name = at_model, name
        self._tools = tools

    def begin(self, model: BaseChatModel, messages: Sequence[BaseMessage], kwargs: Mapping[str, Any]) -> _Turn | None:
        """Return the model call as the memory sees it; None if the memory is not asked."""
        # Without tools the call is not a step of an agent: a summarizer, or a structured answer, may use the same
        # model.
        if _BUSY.get() or not kwargs.get("tools") or env_mode() == "off" or _is_cached(model):
            return None
        # Without thread and user, runs of different people would be treated as one.
        given = _GIVEN.get()
        if not (given or {}).get("configurable") and var_child_runnable_config.get() is None:
            warn_once(CALLER_UNKNOWN, self.name)
            return None
        with self.at_model.errors:
            return self._turn(model, messages, kwargs, ensure_config(given))
        return None

    def _turn(
        self, model: BaseChatModel, messages: Sequence[BaseMessage], kwargs: Mapping[str, Any], config: RunnableConfig
    ) -> _Turn:
        system = _system_of(messages)
        others = [message for message in messages if message is not system]
        runtime = runtime_of(config)
        # The executed tool if it is known: the bound tool is a schema, without the marks of the tool.
        offered: list[Any] = []
        for bound in _bound_tools(kwargs["tools"]):
            offered.append(self._tools.get(name_of(bound) or "", bound))
        settings = dict(kwargs)
        settings.pop("tools")
        settings.pop("tool_choice", None)
        call = Call(
            list(others),
            owner_of_run(config, runtime),
            {"messages": others},
            runtime,
            tools=self.at_model.core.catalogue.offered(offered),
            offered=offered,
            model=model,
            settings=settings,
            tool_choice=_tool_choice(kwargs),
            model_input=model_input_of(
                system,
                seen_messages(others, others),
                runtime,
                private=self.at_model.core.private,
                # There is no code of the host between here and the provider.
                complete=True,
            ),
        )
        return _Turn(self.at_model, call, ModelAsk(system, others, list(kwargs["tools"]), settings))


def _system_of(messages: Sequence[BaseMessage]) -> SystemMessage | None:
    for message in messages:
        if isinstance(message, SystemMessage):
            return message
    return None


class _Turn:
    """One model call of a wrapped model.

    Attributes:
        costs: of the memory.
        streamed: True if the chunks of the answer have left already.
        listener: to the streamed answer, for prefetch; None without a listener.
    """

    def __init__(self, at_model: AtModel, call: Call, ask: ModelAsk) -> None:
        self._at_model, self._call, self._ask = at_model, call, ask
        self.costs = at_model.core.costs
        self.streamed = False
        self.listener: Any = None

    def body(self) -> StepGenerator[Any]:
        """Return the memory's own call, or the model's answer. The generator is sent the model's result, or its joined
        chunks.
        """

        def ask_model(ask: ModelAsk, how: AskOptions) -> StepGenerator[ModelAnswer]:
            self.streamed, self.listener = how.streams, how.listener
            response: ChatResult | ChatGenerationChunk | None = yield Proceed(ask, streams=how.streams)
            if isinstance(response, ChatResult):
                message = response.generations[0].message
            elif response is None:
                message = AIMessage("")  # a stream without chunks
            else:
                message = message_of(response)
            return ModelAnswer([message], response)

        return (yield from self._at_model.around(self._call, self._ask, ask_model))

    def changed(self, ask: ModelAsk, kwargs: Mapping[str, Any]) -> tuple[list[BaseMessage], dict[str, Any]]:
        """Return messages and settings for the model, with the memory's changes."""
        messages: list[BaseMessage] = []
        if ask.system is not None:
            messages.append(ask.system)
        messages += ask.messages
        changed = {**kwargs, **ask.settings}
        # The mark of the cache is a setting; with a hint it moves to the message before the hint.
        for name in self._ask.settings:
            if name not in ask.settings:
                del changed[name]
        # The memory only removes tools; unchanged, they are the host's own object, as it bound them.
        if len(ask.tools) != len(kwargs["tools"]):
            changed["tools"] = ask.tools
        return messages, changed

    def hear(self, chunk: ChatGenerationChunk, run_id: Any) -> None:
        """Pass a chunk of the model's answer on to the listener."""
        if self.listener is not None:
            self.listener.on_llm_new_token(chunk.text, chunk=chunk, run_id=run_id)


# --- the model's class with the memory in it ---


@dataclass(frozen=True, slots=True)
class Mixins:
    """The classes that come before a chat model's own.

    Attributes:
        attribute: private attribute of the model that they read.
        generates: has ``_generate`` and ``_agenerate``.
        streams: has ``_stream``. Left out for a model without it, because LangChain would conclude that the model can
            stream.
        streams_async: has ``_astream``; likewise.
    """

    attribute: str
    generates: type
    streams: type
    streams_async: type


class _Invokes:
    """Keeps the caller's config, and asks the memory before the model generates an answer."""

    _toolmem: Any

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002
        with setting(_GIVEN, config):
            return super().invoke(input, config, **kwargs)  # type: ignore[misc]

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002
        with setting(_GIVEN, config):
            return await super().ainvoke(input, config, **kwargs)  # type: ignore[misc]

    def stream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:  # noqa: A002
        yield from _within(super().stream(input, config, **kwargs), _GIVEN, config)  # type: ignore[misc]

    async def astream(
        self,
        input: Any,  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        async for chunk in _awithin(super().astream(input, config, **kwargs), _GIVEN, config):  # type: ignore[misc]
            yield chunk

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        generate: Callable[..., ChatResult] = super()._generate  # type: ignore[misc]
        turn = _turn_of(self, messages, kwargs)
        if turn is None:
            return generate(messages, stop=stop, run_manager=run_manager, **kwargs)

        def ask_model(ask: ModelAsk) -> ChatResult:
            seen, changed = turn.changed(ask, kwargs)
            with setting(_BUSY, True):
                return generate(seen, stop=stop, run_manager=run_manager, **changed)

        answer: Any = drive(turn.body, ask_model, costs=turn.costs)
        return _result_of(answer)

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        generate: Callable[..., Any] = super()._agenerate  # type: ignore[misc]
        turn = _turn_of(self, messages, kwargs)
        if turn is None:
            result: ChatResult = await generate(messages, stop=stop, run_manager=run_manager, **kwargs)
            return result

        async def ask_model(ask: ModelAsk) -> ChatResult:
            seen, changed = turn.changed(ask, kwargs)
            with setting(_BUSY, True):
                result: ChatResult = await generate(seen, stop=stop, run_manager=run_manager, **changed)
            return result

        answer: Any = await adrive(turn.body, ask_model, costs=turn.costs)
        return _result_of(answer)


class _Streams:
    """The same for a model that streams. For LangChain, a model with ``_stream`` can stream."""

    _toolmem: Any

    def _stream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        stream: Callable[..., Iterator[ChatGenerationChunk]] = super()._stream  # type: ignore[misc]
        turn = _turn_of(self, messages, kwargs)
        if turn is None:
            yield from stream(messages, stop=stop, run_manager=run_manager, **kwargs)
            return
        run_id = getattr(run_manager, "run_id", None) or uuid4()

        def ask_model(ask: ModelAsk) -> Iterator[ChatGenerationChunk]:
            seen, changed = turn.changed(ask, kwargs)
            chunks = stream(seen, stop=stop, run_manager=run_manager, **changed)
            for chunk in _within(chunks, _BUSY, True):
                turn.hear(chunk, run_id)
                yield chunk

        answer: Any = yield from drive_stream(turn.body, ask_model, joined, costs=turn.costs)
        if not turn.streamed:
            yield _answer_chunk(answer)


class _AsyncStreams:
    """The same for a model with its own async code to stream."""

    _toolmem: Any

    async def _astream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        stream: Callable[..., AsyncIterator[ChatGenerationChunk]] = super()._astream  # type: ignore[misc]
        turn = _turn_of(self, messages, kwargs)
        if turn is None:
            async for chunk in stream(messages, stop=stop, run_manager=run_manager, **kwargs):
                yield chunk
            return
        run_id = getattr(run_manager, "run_id", None) or uuid4()
        answers: list[ModelAnswer] = []

        async def ask_model(ask: ModelAsk) -> AsyncIterator[ChatGenerationChunk]:
            seen, changed = turn.changed(ask, kwargs)
            chunks = stream(seen, stop=stop, run_manager=run_manager, **changed)
            async for chunk in _awithin(chunks, _BUSY, True):
                turn.hear(chunk, run_id)
                yield chunk

        async for chunk in adrive_stream(turn.body, ask_model, joined, answers.append, costs=turn.costs):
            yield chunk
        if not turn.streamed:
            yield _answer_chunk(answers[0])


_MIXINS: Final = Mixins("_toolmem", _Invokes, _Streams, _AsyncStreams)


def _turn_of(model: Any, messages: Sequence[BaseMessage], kwargs: Mapping[str, Any]) -> _Turn | None:
    """Return the model call as the memory of a copy sees it; None if the memory is not asked."""
    memory: ModelMemory | None = model._toolmem
    # A copy of the class that pydantic made, such as by validation, is without a memory.
    if memory is None:
        return None
    return memory.begin(model, messages, kwargs)


def copy_with(model: Model, mixins: Mixins, value: Any) -> Model:
    """Return a copy of a chat model, of a subclass with the same name.

    Args:
        model: is left as it is.
        mixins: of the subclass.
        value: of the mixins' attribute.
    """
    copied: Model = copy.copy(model)
    # Not by pydantic's own `__setattr__`, which accepts only fields and may forbid changes.
    object.__setattr__(copied, "__class__", _subclass(type(model), mixins))
    private = dict(getattr(copied, "__pydantic_private__", None) or {})
    private[mixins.attribute] = value
    object.__setattr__(copied, "__pydantic_private__", private)
    return copied


# One class for each model class, so that copies of two models are of the same type, as the models are.
@lru_cache(maxsize=128)
def _subclass(base: type[BaseChatModel], mixins: Mixins) -> type[BaseChatModel]:
    before: list[type] = [mixins.generates]
    if base._stream is not BaseChatModel._stream:
        before.append(mixins.streams)
    if base._astream is not BaseChatModel._astream:
        before.append(mixins.streams_async)
    # With the name of the model's class: traces, serializers and providers' checks by name see the same model.
    members = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "__annotations__": {mixins.attribute: Any},
        mixins.attribute: PrivateAttr(default=None),
    }
    # pydantic's metaclass makes the private attribute.
    make: Any = type(base)
    made: type[BaseChatModel] = make(base.__name__, (*before, base), members)
    return made


# --- models that are made at each call ---


def is_configurable(model: Any) -> bool:
    """Return True for a model that ``init_chat_model`` made with fields that a run's config sets."""
    # LangChain's class is private, and langchain itself is not a requirement. Without these two names a model is
    # refused, as any other runnable is.
    has_factory = callable(getattr(type(model), "_model", None))
    return has_factory and "_queued_declarative_operations" in getattr(model, "__dict__", {})


class _MadeAtCall:
    """A configurable model whose chat model, made at each call, has the memory in it.

    LangChain repeats ``bind_tools`` and the like on the chat model that it makes. Here the chat model is first copied
    with the memory.
    """

    _toolmem: ModelMemory
    _queued_declarative_operations: Sequence[tuple[str, tuple[Any, ...], dict[str, Any]]]

    def _model(self, config: RunnableConfig | None = None) -> Any:
        bare = _copy_as(type(self), self)
        bare._queued_declarative_operations = []
        made = copy_with(super(_MadeAtCall, bare)._model(config), _MIXINS, self._toolmem)  # type: ignore[misc]
        for name, args, kwargs in self._queued_declarative_operations:
            made = getattr(made, name)(*args, **kwargs)
        return made

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)  # type: ignore[misc]
        if name not in _QUEUED:
            return found

        def queue(*args: Any, **kwargs: Any) -> Any:
            return configurable_with(found(*args, **kwargs), self._toolmem)

        return queue

    def with_config(self, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        return configurable_with(super().with_config(config, **kwargs), self._toolmem)  # type: ignore[misc]


_QUEUED: Final = ("bind_tools", "with_structured_output")
"""The methods whose calls LangChain queues until the chat model is made."""


def configurable_with(model: Any, memory: ModelMemory) -> Any:
    """Return a copy of a configurable model whose chat models ask a memory first."""
    base: Any = type(model)
    copied = _copy_as(_configurable_subclass(base), model)
    copied._toolmem = memory
    return copied


def _copy_as(kind: type[Any], model: Any) -> Any:
    # `copy.copy` asks the empty copy for `__setstate__`, and LangChain's `__getattr__` then never ends.
    copied = object.__new__(kind)
    vars(copied).update(vars(model))
    return copied


@lru_cache(maxsize=8)
def _configurable_subclass(base: type) -> type[Any]:
    if issubclass(base, _MadeAtCall):
        return base
    # LangChain's class is abstract, so its metaclass makes the subclass.
    make: Any = type(base)
    members = {"__module__": base.__module__, "__qualname__": base.__qualname__}
    made: type[Any] = make(base.__name__, (_MadeAtCall, base), members)
    return made


# --- contexts ---

_EXHAUSTED: Final = object()


def _within(chunks: Iterator[Any], variable: ContextVar[V], value: V) -> Iterator[Any]:
    """Yield chunks, each made while a context variable has a value; their reader does not see the value."""
    # A reader may ask this or another model between two chunks: that call must not find these values.
    while True:
        with setting(variable, value):
            chunk = next(chunks, _EXHAUSTED)
        if chunk is _EXHAUSTED:
            return
        yield chunk


async def _awithin(chunks: AsyncIterator[Any], variable: ContextVar[V], value: V) -> AsyncIterator[Any]:
    while True:
        with setting(variable, value):
            try:
                chunk = await chunks.__anext__()
            except StopAsyncIteration:
                return
        yield chunk


# --- requests and answers ---


def _is_cached(model: BaseChatModel) -> bool:
    """Return True if answers of the model are kept in an LLM cache."""
    # None: the model uses the global cache, if one is set.
    if model.cache is None:
        return get_llm_cache() is not None
    return bool(model.cache)


def _bound_tools(bound: Iterable[Any]) -> Iterator[Any]:
    """Yield the tools that are bound to a model, in the form of its provider."""
    for tool in bound:
        declared = None
        # Google binds all functions as one tool.
        if isinstance(tool, Mapping):
            declared = tool.get("function_declarations") or tool.get("functionDeclarations")
        if isinstance(declared, Sequence):
            yield from declared
        else:
            yield tool


def _tool_choice(kwargs: Mapping[str, Any]) -> Any:
    choice = kwargs.get("tool_choice")
    # Anthropic's form.
    if isinstance(choice, Mapping) and choice.get("type") in ("auto", "any"):
        return choice["type"]
    # Google's form: it is not read, so it counts as forced, and the memory does not act in the model's place.
    if choice is None and kwargs.get("tool_config") is not None:
        return _FORCED
    return choice


def _result_of(answer: ModelAnswer) -> ChatResult:
    """Return the model's result, or one for the memory's own call."""
    [message], response = answer.messages, answer.response
    # The memory's own call has no response; a kept answer may have the response of a stream.
    if not isinstance(response, ChatResult):
        return ChatResult(generations=[ChatGeneration(message=message, generation_info=_info_of(response))])
    generation = response.generations[0]
    # The memory may have changed the message, such as calls by `call_tool`; tokens and the rest stay the model's.
    if message is not generation.message:
        response.generations[0] = ChatGeneration(message=message, generation_info=generation.generation_info)
    return response


def _info_of(response: ChatResult | ChatGenerationChunk | None) -> dict[str, Any] | None:
    """Return the further fields of the model's response, such as the reason why it ended."""
    if response is None:
        return None
    if isinstance(response, ChatResult):
        return response.generations[0].generation_info
    return response.generation_info


def _answer_chunk(answer: ModelAnswer) -> ChatGenerationChunk:
    """Return the memory's own call, or a kept answer, as one chunk."""
    [message] = answer.messages
    return chunk_of(message, _info_of(answer.response))


# --- whole answers as chunks ---


def chunk_of(message: BaseMessage, generation_info: dict[str, Any] | None = None) -> ChatGenerationChunk:
    """Return a whole answer as the one chunk of a stream."""
    # Chunks carry arguments as JSON text, also those of a whole call.
    pieces = []
    for index, call in enumerate(getattr(message, "tool_calls", ())):
        pieces.append(tool_call_chunk(name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=index))
    chunk = AIMessageChunk(
        content=message.content,
        additional_kwargs=message.additional_kwargs,
        response_metadata=message.response_metadata,
        id=message.id,
        tool_call_chunks=pieces,
        usage_metadata=getattr(message, "usage_metadata", None),
        chunk_position="last",
    )
    return ChatGenerationChunk(message=chunk, generation_info=generation_info)


def message_of(chunk: ChatGenerationChunk) -> AIMessage:
    """Return the joined chunks of a stream as an answer."""
    message = chunk.message
    return AIMessage(
        content=message.content,
        additional_kwargs=message.additional_kwargs,
        response_metadata=message.response_metadata,
        tool_calls=getattr(message, "tool_calls", []),
        id=message.id,
        usage_metadata=getattr(message, "usage_metadata", None),
    )


def joined(before: ChatGenerationChunk | None, chunk: ChatGenerationChunk) -> ChatGenerationChunk:
    """Return the chunks of a stream so far, joined; `before` is None for the first."""
    if before is None:
        return chunk
    return before + chunk
