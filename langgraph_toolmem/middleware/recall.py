"""Recall as middleware: past runs stand in the system message of the model calls of a user's turn."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.entries.policy import RecallPolicy
from langgraph_toolmem.entries.recollection import Recollection
from langgraph_toolmem.entries.render import BUDGET, to_prompt
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.middleware.sit import with_hint
from langgraph_toolmem.nodes.recall import check_options, tell
from langgraph_toolmem.turn.host import ErrorLog, config_of, run_id_of, user_id_of
from langgraph_toolmem.turn.per_turn import PerTurn, TurnKey

logger = logging.getLogger("langgraph_toolmem.middleware")


class RecallMiddleware(AgentMiddleware[Any, Any, Any]):
    """Shows the model past runs with similar requests, in the system message and nowhere else.

    As many as are worth it, often none; those that went well and those that went wrong apart, the latter with their
    critique. It looks once per user turn, when the model is first asked in it, and every model call of the turn gets
    the same text. Put it inside the shortcut (`tool_memory_middleware` does): a skipped step needs no examples.

    Args:
        memory: the memory.
        policy: how many runs are worth showing; the memory's own if None.
        budget: tokens at most (a quarter of the text's length in UTF-8 is counted).
        unjudged: show runs that nobody judged too.
        name: of the middleware, unique in the agent.

    Raises:
        ConfigurationError: an argument cannot work.
    """

    def __init__(
        self,
        memory: ToolMemory,
        *,
        policy: RecallPolicy | None = None,
        budget: int = BUDGET,
        unjudged: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(memory, ToolMemory):
            raise ConfigurationError(f"{type(self).__name__} takes a ToolMemory, not {type(memory).__name__}.")
        self.memory = memory
        self.options = check_options(policy, budget, unjudged)
        self.budget = budget
        self._name = name or type(self).__name__
        self._errors = ErrorLog(self._name, logger)
        self._texts: PerTurn[str] = PerTurn(memory)

    @property
    def name(self) -> str:
        """Of the middleware, in traces and Studio."""
        return self._name

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Adds what is recalled and has the model called."""
        key, asked = None, request
        try:
            messages, who = request.state["messages"], self._who(request)
            key = self._texts.key(messages, **who)
            text = self._texts.get(key)
            if text is None:
                text = self._keep(key, self.memory.recollect(messages, **who, **self.options), request)
            asked = _hinted(request, text)
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._failed(key, error)
        return handler(asked)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Adds what is recalled and has the model called."""
        key, asked = None, request
        try:
            messages, who = request.state["messages"], self._who(request)
            key = self._texts.key(messages, **who)
            text = self._texts.get(key)
            if text is None:
                text = self._keep(key, await self.memory.arecollect(messages, **who, **self.options), request)
            asked = _hinted(request, text)
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._failed(key, error)
        return await handler(asked)

    def _who(self, request: ModelRequest[Any]) -> dict[str, Any]:
        config = config_of()
        return {"run_id": run_id_of(config, request.runtime), "user_id": user_id_of(config, request.runtime)}

    def _keep(self, key: TurnKey, found: Recollection, request: ModelRequest[Any]) -> str:
        tell(found, request.runtime)
        return self._texts.put(key, to_prompt(found, budget=self.budget))

    def _failed(self, key: TurnKey | None, error: Exception) -> None:
        self._errors.failed(error)
        if key is not None:
            self._texts.put(key, "")  # what is broken is not asked again at every step of the turn


def _hinted(request: ModelRequest[Any], text: str) -> ModelRequest[Any]:
    return request.override(system_message=with_hint(request.system_message, text)) if text else request
