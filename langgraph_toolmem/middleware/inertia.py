"""The shortcut as middleware: answers in the model's place when the record says it may."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from langchain.agents.middleware import AgentMiddleware, ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.proposal import Decision
from langgraph_toolmem.inertia.settings import SWITCHED_OFF, settings_policy
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.nodes.inertia import shortcut_message
from langgraph_toolmem.turn.host import ErrorLog, config_of, emit, run_id_of, user_id_of
from langgraph_toolmem.turn.offered import OfferedTools
from langgraph_toolmem.turn.providers import PROVIDER_RULES, ProviderRule, checked_rules, refusal_of, refusal_text
from langgraph_toolmem.turn.recording import whose
from langgraph_toolmem.turn.telemetry import note_decision

logger = logging.getLogger("langgraph_toolmem.middleware")

ROLE: Final = "inertia"
MODEL_CALL_COUNTS: Final = ("run_model_call_count", "thread_model_call_count")
"""Where ModelCallLimitMiddleware counts. It adds one after each model step, a shortcut's too."""
_FREE_CHOICE: Final = (None, "auto", "any", "required")


class InertiaMiddleware(AgentMiddleware[Any, Any, Any]):
    """Learns what is new in the run before each model call, then makes the next call itself or lets the model.

    Put it first, so that a skipped step also skips the model calls of other middleware around the model. What
    comes after the model (human approval, limits) treats its calls like any other. A shortcut is never taken to
    a tool that this step does not offer to the model, nor where the request forces a choice of tools.

    Args:
        memory: the memory.
        policy: when to act; the memory's own if None.
        recorded: a `RecorderMiddleware` is in the same agent.
        rules: models whose API refuses turns that they did not make; they get no shortcut.
        force: take shortcuts with such models all the same.
        fallbacks: other models that may get the history, such as those of a ModelFallbackMiddleware.
        name: of the middleware, unique in the agent.
    """

    def __init__(
        self,
        memory: ToolMemory,
        *,
        policy: InertiaPolicy | None = None,
        recorded: bool = False,
        rules: Iterable[ProviderRule] = PROVIDER_RULES,
        force: bool = False,
        fallbacks: Iterable[Any] = (),
        name: str | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(memory, ToolMemory):
            raise ConfigurationError(f"{type(self).__name__} takes a ToolMemory, not {type(memory).__name__}.")
        if policy is not None and not isinstance(policy, InertiaPolicy):
            raise ConfigurationError(f"policy is an InertiaPolicy, not {type(policy).__name__}.")
        self.memory = memory
        self.policy = policy
        self._recorded = recorded
        checked = checked_rules(rules)
        self._rules = () if force else checked
        self._fallbacks = tuple(fallbacks)
        self._name = name or type(self).__name__
        self._errors = ErrorLog(self._name, logger)
        self._offered = OfferedTools()

    @property
    def name(self) -> str:
        """Of the middleware, in traces and Studio."""
        return self._name

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Answers with a call of its own, or has the model called."""
        answer = None
        try:
            policy = self._policy(request)
            if policy is None:
                self._tell(Decision(None, SWITCHED_OFF), request)
            else:
                decision = self.memory.before_model(request.state["messages"], **self._options(request, policy))
                answer = self._answer(decision, policy, request)
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
        return handler(request) if answer is None else answer

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Answers with a call of its own, or has the model called."""
        answer = None
        try:
            policy = self._policy(request)
            if policy is None:
                self._tell(Decision(None, SWITCHED_OFF), request)
            else:
                options = self._options(request, policy)
                decision = await self.memory.abefore_model(request.state["messages"], **options)
                answer = self._answer(decision, policy, request)
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
        return await handler(request) if answer is None else answer

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        """Sees an error that nobody on the way caught: it ends the run, and the call failed for good."""
        try:
            return handler(request)
        except GraphBubbleUp:
            raise
        except Exception:
            try:
                self.memory.gave_up(request.state["messages"], request.tool_call["id"] or "", **whose(request))
            except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
                self._errors.failed(error)
            raise

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Sees an error that nobody on the way caught: it ends the run, and the call failed for good."""
        try:
            return await handler(request)
        except GraphBubbleUp:
            raise
        except Exception:
            try:
                call_id = request.tool_call["id"] or ""
                await self.memory.agave_up(request.state["messages"], call_id, **whose(request))
            except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
                self._errors.failed(error)
            raise

    def _policy(self, request: ModelRequest[Any]) -> InertiaPolicy | None:
        return settings_policy(getattr(request.runtime, "context", None), self.policy or self.memory.policy)

    def _options(self, request: ModelRequest[Any], policy: InertiaPolicy) -> dict[str, Any]:
        config = config_of()
        return {
            "run_id": run_id_of(config, request.runtime),
            "user_id": user_id_of(config, request.runtime),
            "policy": policy,
            "tools": self._offered.of(request.tools),
            "recorded": self._recorded,
            "forbidden": self._forbidden(request),
        }

    def _forbidden(self, request: ModelRequest[Any]) -> str:
        if request.tool_choice not in _FREE_CHOICE:
            return "the request settles which tools may be called: the model is asked"
        for model in (request.model, *self._fallbacks):
            if rule := refusal_of(model, request.model_settings, self._rules):
                return refusal_text(rule)
        return ""

    def _answer(
        self, decision: Decision, policy: InertiaPolicy, request: ModelRequest[Any]
    ) -> ExtendedModelResponse[Any] | None:
        self._tell(decision, request)
        if not decision.acts or decision.proposal is None:
            return None
        message: AIMessage = shortcut_message(decision.proposal, announce=policy.announces)
        state: Mapping[str, Any] = request.state
        counts = {name: state.get(name, 0) - 1 for name in MODEL_CALL_COUNTS}
        return ExtendedModelResponse(ModelResponse(result=[message]), Command(update=counts))

    def _tell(self, decision: Decision, request: ModelRequest[Any]) -> None:
        note_decision(ROLE, decision)
        emit(request.runtime, {"node": ROLE, **decision.to_event()})
