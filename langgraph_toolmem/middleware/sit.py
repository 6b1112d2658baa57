"""Suggestions as middleware: the hint stands in the system message of the model call it is for."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import SystemMessage

from langgraph_toolmem._suggesting import Advice
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.nodes.sit import check_policy, tell
from langgraph_toolmem.runs.run import OWN_TOOLS
from langgraph_toolmem.sit.policy import SITPolicy
from langgraph_toolmem.sit.recall import arecall_summary, recall_summary
from langgraph_toolmem.sit.render import to_prompt
from langgraph_toolmem.sit.tool import SummaryTool
from langgraph_toolmem.turn.host import ErrorLog, config_of, run_id_of, user_id_of
from langgraph_toolmem.turn.offered import OfferedTools

logger = logging.getLogger("langgraph_toolmem.middleware")


class SITMiddleware(AgentMiddleware[Any, Any, Any]):
    """Tells the model which tools came next in similar situations, in the system message of that call alone.

    Adds the summary tool to the agent, so that the model can ask for more. Only tools that the step offers to the
    model are suggested. Put it inside the shortcut (`tool_memory_middleware` does): a skipped step needs no advice.

    Args:
        memory: the memory.
        policy: how states are compared; the memory's own if None.
        model: writes summaries with ``recall="auto"``; the agent's own model if None.
        summary_tool: give the agent the summary tool.
        name: of the middleware, unique in the agent.

    Raises:
        ConfigurationError: an argument cannot work.
    """

    def __init__(
        self,
        memory: ToolMemory,
        *,
        policy: SITPolicy | None = None,
        model: BaseChatModel | None = None,
        summary_tool: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(memory, ToolMemory):
            raise ConfigurationError(f"{type(self).__name__} takes a ToolMemory, not {type(memory).__name__}.")
        self.memory = memory
        self.policy = check_policy(memory, policy, model, own_model=True)
        self.model = model
        self.tools = [SummaryTool(memory=memory, policy=policy)] if summary_tool else []
        self._name = name or type(self).__name__
        self._errors = ErrorLog(self._name, logger)
        self._offered = OfferedTools()
        memory.remember_states(self.policy)

    @property
    def name(self) -> str:
        """Of the middleware, in traces and Studio."""
        return self._name

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Adds the hint and has the model called."""
        try:
            messages = request.state["messages"]
            summary = None
            if self.policy.recall == "auto":
                summary = recall_summary(self.model or request.model, messages, failed=self._errors.failed)
            advice = self.memory.advise(messages, **self._options(request, summary))
            asked = self._hinted(request, advice, summary)
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
            asked = request
        return handler(asked)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Adds the hint and has the model called."""
        try:
            messages = request.state["messages"]
            summary = None
            if self.policy.recall == "auto":
                model = self.model or request.model
                summary = await arecall_summary(model, messages, failed=self._errors.failed)
            advice = await self.memory.aadvise(messages, **self._options(request, summary))
            asked = self._hinted(request, advice, summary)
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
            asked = request
        return await handler(asked)

    def _options(self, request: ModelRequest[Any], summary: str | None) -> dict[str, Any]:
        config = config_of()
        return {
            "run_id": run_id_of(config, request.runtime),
            "user_id": user_id_of(config, request.runtime),
            "policy": self.policy,
            "summary": summary,
            "available": names_of(request.tools),
            "offered": True,
            "tools": self._offered.of(request.tools),
        }

    def _hinted(self, request: ModelRequest[Any], advice: Advice, summary: str | None) -> ModelRequest[Any]:
        tell(advice, summary, request.runtime)
        text = to_prompt(advice.suggestions, missing=advice.missing)
        return request.override(system_message=with_hint(request.system_message, text)) if text else request


def with_hint(message: SystemMessage | None, text: str) -> SystemMessage:
    """A system message with a hint after what it says already."""
    if message is None or not message.content:
        return SystemMessage(text)
    if isinstance(message.content, str):
        return message.model_copy(update={"content": f"{message.content}\n\n{text}"})
    return message.model_copy(update={"content": [*message.content, {"type": "text", "text": text}]})


def names_of(tools: Any) -> set[str]:
    """Names of the tools of a request that the agent executes."""
    return {name for tool in tools if isinstance(name := getattr(tool, "name", None), str) and name not in OWN_TOOLS}
