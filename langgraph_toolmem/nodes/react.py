"""The shortcut for ``langgraph.prebuilt.create_react_agent``, whose agent node cannot be walked around."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.runtime import Runtime

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.inertia import Inertia
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.prefetch.settings import Prefetch
from langgraph_toolmem.inertia.step import Shortcut
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.nodes.of_memory import method_of
from langgraph_toolmem.runs.tools import ToolLike, read_tools
from langgraph_toolmem.turn import switch
from langgraph_toolmem.turn.ahead import Ahead
from langgraph_toolmem.turn.ask import adrive, drive
from langgraph_toolmem.turn.call import Call
from langgraph_toolmem.turn.host import ErrorLog, config_of, emit, read_key, thread_id_of, user_id_of
from langgraph_toolmem.turn.providers import PROVIDER_RULES, ProviderRule

logger = logging.getLogger("langgraph_toolmem.nodes")


def shortcut_model(
    memory: ToolMemory,
    model: BaseChatModel,
    tools: Sequence[ToolLike],
    *,
    policy: InertiaPolicy | None = None,
    messages_key: str = "messages",
    rules: Iterable[ProviderRule] = PROVIDER_RULES,
    force: bool = False,
    prefetch: bool | Prefetch = False,
) -> Callable[[Any, Runtime[Any]], Any]:
    """A dynamic model: at each step either the model with its tools, or the call that the memory makes in its place.

    A hook before the model can add to the prompt but not skip the model, so the shortcut sits where
    ``create_react_agent`` asks for the model. Give it the recorder as ``post_model_hook``::

        recorder = Recorder(memory)
        create_react_agent(shortcut_model(memory, model, tools), tools, post_model_hook=recorder)

    For graphs that run async, take `ashortcut_model`.

    Args:
        memory: the memory.
        model: a chat model, its tools not bound yet.
        tools: the tools, as given to ``create_react_agent``.
        policy: when to act; the memory's own if None.
        messages_key: key of the messages in the state.
        rules: models whose API refuses turns that they did not make; they get no shortcut.
        force: take shortcuts with such models all the same.
        prefetch: run likely look-ups while the model is asked (`Prefetch` says which). Served by a ``ToolNode`` with
            the recorder's `wrap_tool_call`, as of an `InertiaShortcut`; the tools are then that node's::

                node = ToolNode(tools, wrap_tool_call=recorder.wrap_tool_call, awrap_tool_call=recorder.awrap_tool_call)
                tools = list(node.tools_by_name.values())
                create_react_agent(shortcut_model(memory, model, tools, prefetch=True), node, post_model_hook=recorder)

    Raises:
        ConfigurationError: an argument cannot work.
    """
    choice = _Choice(memory, model, tools, policy, messages_key, rules, force=force, prefetch=prefetch)

    def select(state: Any, runtime: Runtime[Any]) -> Runnable[LanguageModelInput, Any]:
        return drive(lambda: choice.made(state, runtime))

    return select


def ashortcut_model(
    memory: ToolMemory,
    model: BaseChatModel,
    tools: Sequence[ToolLike],
    *,
    policy: InertiaPolicy | None = None,
    messages_key: str = "messages",
    rules: Iterable[ProviderRule] = PROVIDER_RULES,
    force: bool = False,
    prefetch: bool | Prefetch = False,
) -> Callable[[Any, Runtime[Any]], Any]:
    """Async twin of `shortcut_model`: the memory works in a thread, and the graph must be run async."""
    choice = _Choice(memory, model, tools, policy, messages_key, rules, force=force, prefetch=prefetch)

    async def select(state: Any, runtime: Runtime[Any]) -> Runnable[LanguageModelInput, Any]:
        return await adrive(lambda: choice.made(state, runtime))

    return select


class _Choice:
    def __init__(
        self,
        memory: ToolMemory,
        model: BaseChatModel,
        tools: Sequence[ToolLike],
        policy: InertiaPolicy | None,
        messages_key: str,
        rules: Iterable[ProviderRule],
        *,
        force: bool,
        prefetch: bool | Prefetch,
    ) -> None:
        method = method_of(memory, Inertia, "shortcut_model")
        if not isinstance(model, BaseChatModel):
            raise ConfigurationError(
                f"shortcut_model takes a chat model with no tools bound yet, not {type(model).__name__}."
            )
        self._step = Shortcut(method, policy=policy, models=(model,), rules=rules, force=force)
        self._step.run_ahead(prefetch, messages_key=messages_key)
        self._specs = read_tools(tools)
        self._tools = list(tools)
        at_hand: list[Any] = list(tools)
        self._bound: Runnable[LanguageModelInput, Any] = model.bind_tools(at_hand)
        self._messages_key = messages_key
        self._errors = ErrorLog("shortcut_model", logger)

    def made(self, state: Any, runtime: Runtime[Any]) -> Runnable[LanguageModelInput, Any]:
        """The model, or the call in its place."""
        if switch.mode() == "off":
            return self._bound
        try:
            config = config_of()
            call = Call(
                list(read_key(state, self._messages_key) or ()),
                thread_id_of(config, runtime),
                user_id_of(config, runtime),
                state,
                self._messages_key,
                runtime,
                tools=self._specs,
                offered=self._tools,
            )
            call.held_out = switch.shows() and self._step.core.held_out(call.messages, call.thread_id)
            said = self._step.say(call, self._step.look(call))
            emit(runtime, {"node": self._step.role, **(said.event or {})})
            if said.answer is not None:
                return _said(said.answer)
            ahead = self._step.ahead if switch.shows() else None
            under_way = None if ahead is None else ahead.begin(call)
            return self._bound if ahead is None or under_way is None else _Watched(self._bound, ahead, under_way, call)
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
            return self._bound


class _Watched(Runnable[LanguageModelInput, Any]):
    """The model, whose answer is told to who works ahead of it."""

    def __init__(self, model: Runnable[LanguageModelInput, Any], ahead: Ahead, under_way: Any, call: Call) -> None:
        self._model, self._ahead, self._under_way, self._call = model, ahead, under_way, call

    def invoke(self, input: LanguageModelInput, config: RunnableConfig | None = None, **options: Any) -> Any:  # noqa: A002 - Runnable's name
        with self._watching():
            return self._ahead.answered(self._under_way, [self._model.invoke(input, config, **options)])[0]

    async def ainvoke(self, input: LanguageModelInput, config: RunnableConfig | None = None, **options: Any) -> Any:  # noqa: A002
        with self._watching():
            answer = await self._model.ainvoke(input, config, **options)
            return (await asyncio.to_thread(self._ahead.answered, self._under_way, [answer]))[0]

    @contextmanager
    def _watching(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            self._ahead.failed(self._under_way, self._call)
            raise
        except BaseException:
            self._ahead.dropped(self._under_way)
            raise


def _said(message: AIMessage) -> Runnable[LanguageModelInput, Any]:
    """Something to invoke in the model's place that says this message."""

    def say(_: LanguageModelInput, config: RunnableConfig) -> AIMessage:  # noqa: ARG001 - the form a Runnable takes
        return message

    return RunnableLambda(say, name="toolmem shortcut")
