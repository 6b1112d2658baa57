"""The shortcut for ``langgraph.prebuilt.create_react_agent``, whose agent node cannot be walked around."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.runtime import Runtime

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.proposal import Decision
from langgraph_toolmem.inertia.settings import SWITCHED_OFF, settings_policy
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.nodes.inertia import shortcut_message
from langgraph_toolmem.runs.tools import ToolLike, read_tools
from langgraph_toolmem.turn.host import ErrorLog, config_of, emit, read_key, run_id_of, user_id_of
from langgraph_toolmem.turn.providers import PROVIDER_RULES, ProviderRule, checked_rules, refusal_of, refusal_text
from langgraph_toolmem.turn.telemetry import note_decision

logger = logging.getLogger("langgraph_toolmem.nodes")

ROLE = "inertia"


def shortcut_model(
    memory: ToolMemory,
    model: BaseChatModel,
    tools: Sequence[ToolLike],
    *,
    policy: InertiaPolicy | None = None,
    messages_key: str = "messages",
    rules: Iterable[ProviderRule] = PROVIDER_RULES,
    force: bool = False,
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

    Raises:
        ConfigurationError: an argument cannot work.
    """
    chooser = _Chooser(memory, model, tools, policy, messages_key, rules, force=force)

    def select(state: Any, runtime: Runtime[Any]) -> Runnable[LanguageModelInput, Any]:
        return chooser.select(state, runtime)

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
) -> Callable[[Any, Runtime[Any]], Any]:
    """Async twin of `shortcut_model`: the memory works in a thread, and the graph must be run async."""
    chooser = _Chooser(memory, model, tools, policy, messages_key, rules, force=force)

    async def select(state: Any, runtime: Runtime[Any]) -> Runnable[LanguageModelInput, Any]:
        return await chooser.aselect(state, runtime)

    return select


class _Chooser:
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
    ) -> None:
        if not isinstance(memory, ToolMemory):
            raise ConfigurationError(f"shortcut_model takes a ToolMemory, not {type(memory).__name__}.")
        if not isinstance(model, BaseChatModel):
            raise ConfigurationError(
                f"shortcut_model takes a chat model with no tools bound yet, not {type(model).__name__}."
            )
        if policy is not None and not isinstance(policy, InertiaPolicy):
            raise ConfigurationError(f"policy is an InertiaPolicy, not {type(policy).__name__}.")
        self._memory = memory
        self._specs = read_tools(tools)
        at_hand: list[Any] = list(tools)
        self._bound: Runnable[LanguageModelInput, Any] = model.bind_tools(at_hand)
        self._policy = policy
        self._messages_key = messages_key
        checked = checked_rules(rules)
        rule = None if force else refusal_of(model, None, checked)
        self._forbidden = "" if rule is None else refusal_text(rule)
        self._errors = ErrorLog("shortcut_model", logger)

    def select(self, state: Any, runtime: Runtime[Any]) -> Runnable[LanguageModelInput, Any]:
        try:
            if (policy := self._policy_of(runtime)) is None:
                return self._tell(Decision(None, SWITCHED_OFF), self._memory.policy, runtime)
            decision = self._memory.before_model(self._messages(state), **self._options(runtime, policy))
            return self._tell(decision, policy, runtime)
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
            return self._bound

    async def aselect(self, state: Any, runtime: Runtime[Any]) -> Runnable[LanguageModelInput, Any]:
        try:
            if (policy := self._policy_of(runtime)) is None:
                return self._tell(Decision(None, SWITCHED_OFF), self._memory.policy, runtime)
            decision = await self._memory.abefore_model(self._messages(state), **self._options(runtime, policy))
            return self._tell(decision, policy, runtime)
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
            return self._bound

    def _messages(self, state: Any) -> list[Any]:
        return list(read_key(state, self._messages_key) or ())

    def _policy_of(self, runtime: Runtime[Any]) -> InertiaPolicy | None:
        return settings_policy(getattr(runtime, "context", None), self._policy or self._memory.policy)

    def _options(self, runtime: Runtime[Any], policy: InertiaPolicy) -> dict[str, Any]:
        config = config_of()
        return {
            "run_id": run_id_of(config, runtime),
            "user_id": user_id_of(config, runtime),
            "policy": policy,
            "tools": self._specs,
            "forbidden": self._forbidden,
        }

    def _tell(
        self, decision: Decision, policy: InertiaPolicy, runtime: Runtime[Any]
    ) -> Runnable[LanguageModelInput, Any]:
        note_decision(ROLE, decision)
        emit(runtime, {"node": ROLE, **decision.to_event()})
        if not decision.acts or decision.proposal is None:
            return self._bound
        message = shortcut_message(decision.proposal, announce=policy.announces)
        return _said(message)


def _said(message: AIMessage) -> Runnable[LanguageModelInput, Any]:
    """Something to invoke in the model's place that says this message."""

    def say(_: LanguageModelInput, config: RunnableConfig) -> AIMessage:  # noqa: ARG001 - the form a Runnable takes
        return message

    return RunnableLambda(say, name="toolmem shortcut")
