"""Planning as middleware: steps that worked elsewhere stand in the system message of the model call they are for."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from langchain.agents import AgentState
from langchain.agents.middleware import AgentMiddleware, ExtendedModelResponse, ModelRequest, ModelResponse
from langchain.agents.middleware.types import PrivateStateAttr
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command
from typing_extensions import NotRequired

from langgraph_toolmem.atoms.rules import Complaint
from langgraph_toolmem.atoms.settings import BUDGET, SGASettings, When
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.middleware.inertia import MODEL_CALL_COUNTS
from langgraph_toolmem.middleware.sit import with_hint
from langgraph_toolmem.nodes.sga import (
    check_model,
    complaint_text,
    complaints_of,
    tell,
    tell_guard,
    without_own,
)
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.turn.hints import PLANNING, Planning, merge_planning, place_of, planning_now
from langgraph_toolmem.turn.host import ErrorLog, config_of, run_id_of, user_id_of
from langgraph_toolmem.turn.offered import OfferedTools
from langgraph_toolmem.turn.per_turn import PerTurn, TurnKey

if TYPE_CHECKING:
    from langgraph_toolmem.atoms.planning import Planned

logger = logging.getLogger("langgraph_toolmem.middleware")

Complaints = list[tuple[str, Complaint]]


class PlanningAgentState(AgentState[Any]):
    """The agent's state with the private key for what is known."""

    toolmem_planning: NotRequired[Annotated[Planning, PrivateStateAttr, merge_planning]]


class SGAMiddleware(AgentMiddleware[Any, Any, Any]):
    """Shows the model single steps that worked at such a point of other runs, in the system message of that call alone.

    The steps are atoms (`memory.search_atoms`); see `SGAPlanner` for how they are found. Only steps of tools that this
    model call offers are shown, so what chains or preferences leave out gives no hint. What is known is kept in the
    agent's private state, and is still there when messages were trimmed or summarised. A model call that is retried
    gets the same hints.

    Put it inside the shortcut (``tool_memory_middleware(memory, planning=True)`` does): a skipped step needs no hints.

    Args:
        memory: the memory.
        model: says where the run stands and what comes next, in one structured call: a chat model or
            ``"provider:model"``. None: that is read off the messages, without a model call.
        when: the model is asked before each model call of the agent ("step"), when what is open has changed or a call
            has failed ("goal"), or once per user turn ("turn").
        k: patterns shown, at most.
        beta: weight of what is known against words, 0 to 1.
        budget: tokens of the patterns at most.
        rules: add the decision rules to the patterns: no identical repeat, a change after a failure.
        guard: if the model's answer repeats a call of the run without a change, ask it once more with the complaint.
            The second answer is let pass whatever it is, and if asking again fails, the first one. At most one model
            call more per step, which a ``ModelCallLimitMiddleware`` counts; what was streamed of the first answer stays
            streamed.
        name: of the middleware, unique in the agent.

    Raises:
        ConfigurationError: an argument cannot work.
    """

    state_schema = PlanningAgentState

    def __init__(
        self,
        memory: ToolMemory,
        *,
        model: BaseChatModel | str | None = None,
        when: When = "step",
        k: int = 3,
        beta: float = 0.3,
        budget: int = BUDGET,
        rules: bool = True,
        guard: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(memory, ToolMemory):
            raise ConfigurationError(f"{type(self).__name__} takes a ToolMemory, not {type(memory).__name__}.")
        from langgraph_toolmem.atoms.planning import HintPlanner  # numpy: only when planning is used

        self.memory = memory
        self.settings = SGASettings(check_model(model), when, k, beta, budget, rules, guard)
        self._name = name or type(self).__name__
        self._errors = ErrorLog(self._name, logger)
        self._planner = HintPlanner(memory, self.settings, failed=self._errors.failed)
        self._offered = OfferedTools()
        self._turns: PerTurn[list[_Kept]] = PerTurn(memory)

    @property
    def name(self) -> str:
        """Of the middleware, in traces and Studio."""
        return self._name

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Adds the hints and has the model called."""
        planned, asked, more = None, request, 0
        try:
            step = self._step(request)
            planned = step.again
            if planned is None:
                fresh = self._planner.plan(
                    request.state["messages"], step.specs, planning_now(request.state), **step.who
                )
                planned = self._keep(step, fresh, request)
            asked = _hinted(request, planned.text)
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
        response = handler(asked)
        if found := self._complaints(request, response):
            try:
                second = handler(_hinted(asked, complaint_text(found)))
                more = 1
            except GraphBubbleUp:
                raise
            except Exception:  # noqa: BLE001 - there is an answer, and the host has its own ways with errors
                tell_guard(found, "not answered", request.runtime)
            else:
                response = self._second(request, found, second)
        return _extended(request, response, planned, more)  # type: ignore[no-any-return]

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Adds the hints and has the model called."""
        planned, asked, more = None, request, 0
        try:
            step = self._step(request)
            planned = step.again
            if planned is None:
                kept = planning_now(request.state)
                fresh = await self._planner.aplan(request.state["messages"], step.specs, kept, **step.who)
                planned = self._keep(step, fresh, request)
            asked = _hinted(request, planned.text)
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
        response = await handler(asked)
        if found := self._complaints(request, response):
            try:
                second = await handler(_hinted(asked, complaint_text(found)))
                more = 1
            except GraphBubbleUp:
                raise
            except Exception:  # noqa: BLE001 - as above
                tell_guard(found, "not answered", request.runtime)
            else:
                response = self._second(request, found, second)
        return _extended(request, response, planned, more)  # type: ignore[no-any-return]

    def _step(self, request: ModelRequest[Any]) -> _Step:
        config = config_of()
        who = {"run_id": run_id_of(config, request.runtime), "user_id": user_id_of(config, request.runtime)}
        specs = without_own(self._offered.of(request.tools))
        messages = request.state["messages"]
        key = self._turns.key(messages, **who)
        place = place_of(messages)
        kept = self._turns.get(key)
        again = kept[0].planned if kept and kept[0].place == place and kept[0].names == frozenset(specs) else None
        return _Step(specs, who, key, place, again)

    def _keep(self, step: _Step, planned: Planned, request: ModelRequest[Any]) -> Planned:
        tell(planned, request.runtime)
        self._turns.put(step.key, [])[:] = [_Kept(step.place, frozenset(step.specs), planned)]
        return planned

    def _complaints(self, request: ModelRequest[Any], response: Any) -> Complaints:
        if not self.settings.guard:
            return []
        try:
            run = self.memory._read(request.state["messages"], run_id_of(config_of(), request.runtime))
            return complaints_of(run, _messages(response), self._offered.of(request.tools))
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
            return []

    def _second(self, request: ModelRequest[Any], found: Complaints, second: Any) -> Any:
        again = self._complaints(request, second)
        tell_guard(found, "passed" if again else "changed", request.runtime)
        return second


class _Kept(NamedTuple):
    """What was planned for a model call."""

    place: str
    names: frozenset[str]
    planned: Planned


class _Step(NamedTuple):
    """A model call: the tools offered at it, whose it is, where it is kept, and what was planned for it before."""

    specs: dict[str, ToolSpec]
    who: dict[str, str | None]
    key: TurnKey
    place: str
    again: Planned | None


def _hinted(request: ModelRequest[Any], text: str) -> ModelRequest[Any]:
    return request.override(system_message=with_hint(request.system_message, text)) if text else request


def _messages(response: Any) -> list[Any]:
    """The messages of a model response, whatever form the next middleware gave it."""
    if isinstance(response, ExtendedModelResponse):
        response = response.model_response
    return [response] if isinstance(response, AIMessage) else list(response.result)


def _extended(request: ModelRequest[Any], response: Any, planned: Planned | None, more: int) -> Any:
    """The response with what is to be kept in the private state, and `more` model calls counted."""
    state: Mapping[str, Any] = request.state
    update: dict[str, Any] = {name: state.get(name, 0) + more for name in MODEL_CALL_COUNTS if more}
    if planned is not None and planned.record != planning_now(state):
        update[PLANNING] = planned.record
    if not update or isinstance(response, ExtendedModelResponse):
        return response  # the latter has a command of its own; the messages tell again what is known
    if isinstance(response, AIMessage):
        response = ModelResponse(result=[response])
    return ExtendedModelResponse(response, Command(update=update))
