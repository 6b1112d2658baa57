"""Tool search in an agent: innermost around the model, so that everything else sees calls of the real tools."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest
from langchain_core.messages import AIMessage

from langgraph_toolmem.navigator.deferred import DeferredTools, Offer
from langgraph_toolmem.runs.run import CALL_TOOL, SEARCH_TOOL
from langgraph_toolmem.runs.tools import name_of
from langgraph_toolmem.turn import env_mode
from langgraph_toolmem.turn.host import ErrorLog
from langgraph_toolmem.turn.middleware import answered, insisted_on, turn_of_response

logger = logging.getLogger("langgraph_toolmem.middleware")


class ToolSearchMiddleware(AgentMiddleware[Any, Any, Any]):
    """Offers the model what `DeferredTools` says, and reads its calls. Where that fails, all tools are offered."""

    def __init__(self, deferred: DeferredTools, name: str) -> None:
        super().__init__()
        self._deferred, self._name = deferred, name
        self._errors = ErrorLog(name, logger)

    @property
    def name(self) -> str:
        """Of the middleware, in traces and Studio."""
        return self._name

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Asks with few tools."""
        offer = self._offer(request)
        return self._taken(request, offer, handler(_asked(request, offer)))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """Asks with few tools."""
        offer = await asyncio.to_thread(self._offer, request)  # it may ask an embedder
        return await asyncio.to_thread(self._taken, request, offer, await handler(_asked(request, offer)))

    def _offer(self, request: ModelRequest[Any]) -> Offer:
        try:
            if env_mode.shows():
                insisted = frozenset(insisted_on(request))
                return self._deferred.offer(request.tools, request.messages, request.model, insisted=insisted)
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
        return Offer(
            [tool for tool in request.tools if name_of(tool) not in (SEARCH_TOOL, CALL_TOOL)], request.messages
        )

    def _taken(self, request: ModelRequest[Any], offer: Offer, response: Any) -> Any:
        if offer.way is None:
            return response
        try:
            insisted = frozenset(insisted_on(request))
            messages = turn_of_response(response)
            read = [
                self._deferred.take(m, request.tools, insisted=insisted) if isinstance(m, AIMessage) else m
                for m in messages
            ]
            if any(new is not message for new, message in zip(read, messages, strict=True)):
                response = answered(response, read)
            for message in read:
                if isinstance(message, AIMessage):
                    self._deferred.note(offer, message, request.tools, request.messages)
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
        return response


def _asked(request: ModelRequest[Any], offer: Offer) -> ModelRequest[Any]:
    return request.override(tools=offer.tools, messages=offer.messages)
