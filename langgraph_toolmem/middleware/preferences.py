"""Preference guiding as middleware: tools that this user rated badly on similar requests are not offered."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langgraph.errors import GraphBubbleUp

from langgraph_toolmem._recalling import PATIENCE
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.entries.guide import DomainOf, Guidance, guide, to_prompt
from langgraph_toolmem.entries.policy import RecallPolicy
from langgraph_toolmem.entries.preferences import Preference
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.middleware.sit import with_hint
from langgraph_toolmem.nodes.preferences import How, check_guiding, name_of, tell
from langgraph_toolmem.turn.host import ErrorLog, config_of, run_id_of, user_id_of
from langgraph_toolmem.turn.per_turn import PerTurn, TurnKey

logger = logging.getLogger("langgraph_toolmem.middleware")

_NO_TOOL: Final = (None, "auto", "any", "required", "none")
"""Values of ``tool_choice`` that name no tool."""


class PreferenceMiddleware(AgentMiddleware[Any, Any, Any]):
    """Takes the tools out of a model request that this user rated badly on similar requests.

    Looks once per user turn. Without a model the ratings are counted; see `langgraph_toolmem.entries.guide` for the
    rules: at least two ratings, and something has to be left. Tools of the provider without a name, the summary
    tool, tools of a structured answer and a tool that the request insists on stay.

    Put it in front of the shortcut (``tool_memory_middleware(memory, preferences=True)`` does), so that no shortcut
    goes to a tool that is left out. An ``LLMToolSelectorMiddleware`` further inside chooses among what is left; it
    refuses to work without the tools of its `always_include`, so name these in `keep`.

    Args:
        memory: the memory.
        how: "leave_out": what is avoided is left out. "tell": nothing is left out, and the system message says what
            the user likes and avoids. "both".
        domain_of: the domain of a tool, such as `tool_prefix`; without it only tools are looked at.
        model: reads the ratings and says in words what is preferred (one call per user turn); they are counted if
            None.
        policy: which requests are alike; the memory's own if None.
        keep: names of tools that are never left out.
        name: of the middleware, unique in the agent.

    Raises:
        ConfigurationError: an argument cannot work.
    """

    def __init__(
        self,
        memory: ToolMemory,
        *,
        how: How = "leave_out",
        domain_of: DomainOf | None = None,
        model: BaseChatModel | None = None,
        policy: RecallPolicy | None = None,
        keep: Iterable[str] = (),
        name: str | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(memory, ToolMemory):
            raise ConfigurationError(f"{type(self).__name__} takes a ToolMemory, not {type(memory).__name__}.")
        self.memory = memory
        self.how, self._options, self.keep = check_guiding(how, domain_of, model, policy, keep)
        self._name = name or type(self).__name__
        self._errors = ErrorLog(self._name, logger)
        self._turns: PerTurn[_Turn] = PerTurn(memory)

    @property
    def name(self) -> str:
        """Of the middleware, in traces and Studio."""
        return self._name

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Takes tools out and has the model called."""
        key, asked = None, request
        try:
            messages, who = request.state["messages"], self._who(request)
            key = self._turns.key(messages, **who)
            turn = self._turns.get(key) if request.tools else _NOTHING
            if turn is None:
                found = self.memory.preferences(messages, user_id=who["user_id"], wait=PATIENCE, **self._options)
                turn = self._turns.put(key, _Turn(found))
            asked = self._guided(request, turn)
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._failed(key, error)
        return handler(asked)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Takes tools out and has the model called."""
        key, asked = None, request
        try:
            messages, who = request.state["messages"], self._who(request)
            key = self._turns.key(messages, **who)
            turn = self._turns.get(key) if request.tools else _NOTHING
            if turn is None:
                found = await self.memory.apreferences(messages, user_id=who["user_id"], wait=PATIENCE, **self._options)
                turn = self._turns.put(key, _Turn(found))
            asked = self._guided(request, turn)
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._failed(key, error)
        return await handler(asked)

    def _who(self, request: ModelRequest[Any]) -> dict[str, str | None]:
        config = config_of()
        return {"run_id": run_id_of(config, request.runtime), "user_id": user_id_of(config, request.runtime)}

    def _failed(self, key: TurnKey | None, error: Exception) -> None:
        self._errors.failed(error)
        if key is not None:
            self._turns.put(key, _Turn([]))  # what is broken is not asked again at every step of the turn

    def _guided(self, request: ModelRequest[Any], turn: _Turn) -> ModelRequest[Any]:
        names = [name for tool in request.tools if (name := name_of(tool)) is not None]
        domain_of, keep = self._options["domain_of"], self.keep | set(insisted_on(request))
        guidance = Guidance() if self.how == "tell" else guide(turn.found, names, domain_of=domain_of, keep=keep)
        if guidance != turn.told:
            turn.told = guidance
            tell(turn.found, guidance, request.runtime)
        changes: dict[str, Any] = {}
        if guidance.left_out:
            changes["tools"] = [tool for tool in request.tools if name_of(tool) not in guidance.left_out]
        if self.how != "leave_out":
            text = to_prompt(turn.found, names, domain_of=domain_of, left_out=guidance.left_out)
            if text:
                changes["system_message"] = with_hint(request.system_message, text)
        return request.override(**changes) if changes else request


@dataclass
class _Turn:
    """What is known in a user turn, and what was last told of it."""

    found: list[Preference]
    told: Guidance | None = None


_NOTHING: Final = _Turn([], Guidance())


def insisted_on(request: ModelRequest[Any]) -> Iterator[str]:
    """Names of the tools that the request cannot do without."""
    choice = request.tool_choice
    if isinstance(choice, Mapping):
        choice = name_of(dict(choice))
    if choice not in _NO_TOOL and isinstance(choice, str):
        yield choice
    for spec in getattr(request.response_format, "schema_specs", None) or ():
        yield spec.name
