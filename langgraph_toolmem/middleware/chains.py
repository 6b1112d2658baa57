"""The tools of a request as complete chains: each model call is offered what the request needs, and no more."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.agents.middleware.types import AgentState, PrivateStateAttr
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp
from typing_extensions import NotRequired

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.middleware.preferences import insisted_on
from langgraph_toolmem.navigator.arguments import check_selection
from langgraph_toolmem.navigator.select.candidates import (
    MOST,
    Candidates,
    find_reroutes,
    progress_of,
    turn_candidates,
)
from langgraph_toolmem.navigator.select.search_tool import SearchTool
from langgraph_toolmem.navigator.select.selection import Reroute, Selection, select_tools
from langgraph_toolmem.navigator.tool_search.hit import TARGETS
from langgraph_toolmem.runs.run import OWN_TOOLS
from langgraph_toolmem.turn.hints import Offered, merge_offered, offered_now
from langgraph_toolmem.turn.host import ErrorLog, config_of, emit, read_key, run_id_of, user_id_of
from langgraph_toolmem.turn.offered import OfferedTools
from langgraph_toolmem.turn.per_turn import PerTurn, TurnKey
from langgraph_toolmem.turn.telemetry import annotate

logger = logging.getLogger("langgraph_toolmem.middleware")

ROLE: Final = "chains"


class ChainState(AgentState[Any]):
    """The agent's state with the private key for what the model searched for."""

    toolmem_offered: NotRequired[Annotated[Offered, PrivateStateAttr, merge_offered]]


class ToolChainMiddleware(AgentMiddleware[Any, Any, Any]):
    """Offers the model the tools that the user's request needs, as complete chains, where an agent has many tools.

    Looks once per user turn. A chain is a tool that fits the request with all those that give what it needs; chains
    come first, other tools that fit fill up to `most`. When a call fails, the tools of another way join. With the
    tool `search_more_tools` the model asks for more in words, and what is found joins for the rest of the turn (kept in
    the agent's private state). An agent with no more than `most` tools is left alone.

    Tools of the provider, of a structured answer, the memory's own and one that the request insists on stay as they
    are. Tools of other middleware are tools like yours: name in `always` what has to be there.

    Put it in front of the shortcut (``tool_memory_middleware(memory, chains=True)`` does), so that no shortcut goes
    to a tool that is not offered, and behind preferences. An ``LLMToolSelectorMiddleware`` further inside chooses
    among what is offered; it refuses to work without the tools of its `always_include`, so name these in `always`.

    Args:
        memory: the memory.
        most: tools that are offered for a request, at most; what a failure, a search or a call brings comes on top.
        targets: tools that fit best and bring their chain.
        always: names of tools that are always offered.
        search_tool: give the agent the search tool. Without it all tools are offered where nothing fits.
        name: of the middleware, unique in the agent.

    Raises:
        ConfigurationError: an argument cannot work.
    """

    state_schema = ChainState

    def __init__(
        self,
        memory: ToolMemory,
        *,
        most: int = MOST,
        targets: int = TARGETS,
        always: Iterable[str] = (),
        search_tool: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(memory, ToolMemory):
            raise ConfigurationError(f"{type(self).__name__} takes a ToolMemory, not {type(memory).__name__}.")
        self.memory = memory
        self.always = check_selection(most, targets, always)
        self.most, self.targets = most, targets
        searching = SearchTool(navigator=memory.navigator, names_of=self._at_hand, targets=targets)
        self.tools = [searching] if search_tool else []
        self._name = name or type(self).__name__
        self._errors = ErrorLog(self._name, logger)
        self._offered = OfferedTools()
        self._turns: PerTurn[_Turn] = PerTurn(memory)

    @property
    def name(self) -> str:
        """Of the middleware, in traces and Studio."""
        return self._name

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Takes out what the request does not need and has the model called."""
        key, asked = None, request
        try:
            names = _filterable(request)
            if len(names) <= self.most:
                asked = _without_search(request)
            else:
                who = _who(request)
                key = self._turns.key(request.state["messages"], **who)
                asked = self._told(request, *self._choose(request, key, who, names))
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._failed(key, error)
        return handler(asked)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any]:
        """Takes out what the request does not need and has the model called."""
        key, asked = None, request
        try:
            names = _filterable(request)
            if len(names) <= self.most:
                asked = _without_search(request)
            else:
                who = _who(request)
                key = self._turns.key(request.state["messages"], **who)
                chosen = await asyncio.to_thread(self._choose, request, key, who, names)
                asked = self._told(request, *chosen)
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._failed(key, error)
        return await handler(asked)

    def _choose(
        self, request: ModelRequest[Any], key: TurnKey, who: dict[str, str | None], names: list[str]
    ) -> tuple[_Turn, Selection | None, list[str]]:
        """The turn and what is offered in it; None: all tools."""
        turn = self._turns.get(key) or self._turns.put(key, _Turn())
        if turn.broken:
            return turn, None, names
        with turn.lock:
            self.memory.adopt(self._offered.of(request.tools))
            where = progress_of(self.memory._read(request.state["messages"], who["run_id"]))
            # The messages of the turn may have been summarised away since the last look.
            turn.called |= where.called
            if turn.found is None or turn.names != frozenset(names):
                turn.names, turn.ways = frozenset(names), {}
                turn.found = turn_candidates(
                    self.memory.navigator,
                    where,
                    turn.names,
                    most=self.most,
                    targets=self.targets,
                    user_id=who["user_id"],
                )
            failed = frozenset(tool for tool, ok in turn.called.items() if not ok)
            if failed and failed not in turn.ways:
                turn.ways[failed] = find_reroutes(self.memory.navigator, turn.found, turn.called, turn.names)
            if not turn.found.hits and not self.tools:
                return turn, None, names
            known = offered_now(request.state)
            chosen = select_tools(
                turn.found.plan,
                turn.found.hits,
                most=self.most,
                always=self.always,
                called=turn.called,
                reroutes=turn.ways.get(failed, ()),
                asked=known["tools"] if known else {},
                earlier=where.earlier,
                available=turn.names,
            )
            return turn, chosen, names

    def _told(
        self, request: ModelRequest[Any], turn: _Turn, chosen: Selection | None, names: list[str]
    ) -> ModelRequest[Any]:
        if chosen is None:
            return _without_search(request)
        if chosen != turn.told:
            turn.told = chosen
            annotate({"toolmem.node": ROLE, "toolmem.offered": len(chosen.tools), "toolmem.of": len(names)})
            emit(request.runtime, {"node": ROLE, **chosen.to_event(len(names))})
        out = {name for name in names if name not in chosen.tools}
        left = [tool for tool in request.tools if not (isinstance(tool, BaseTool) and tool.name in out)]
        return request.override(tools=left)

    def _failed(self, key: TurnKey | None, error: Exception) -> None:
        self._errors.failed(error)
        if key is not None:  # what is broken is not asked again at every step of the turn
            turn = self._turns.get(key)
            if turn is None:
                self._turns.put(key, _Turn(broken=True))
            else:
                turn.broken = True

    def _at_hand(self, runtime: Any) -> Collection[str] | None:
        """The tools that may be found in the turn of a call; None if it is not known here (another process)."""
        if runtime is None:
            return None
        messages = read_key(runtime.state, "messages") or ()
        config: RunnableConfig | None = runtime.config or None
        key = self._turns.key(messages, run_id=run_id_of(config), user_id=user_id_of(config, runtime))
        turn = self._turns.get(key)
        return turn.names if turn is not None and turn.names else None


@dataclass
class _Turn:
    """What is known in a user turn.

    Attributes:
        names: the tools there are.
        found: what fits the request; None: nobody looked yet.
        called: tools called -> whether the last call went well.
        ways: tools that failed -> other ways.
        told: what was last offered.
        broken: something failed; all tools are offered.
    """

    names: frozenset[str] = frozenset()
    found: Candidates | None = None
    called: dict[str, bool] = field(default_factory=dict)
    ways: dict[frozenset[str], tuple[Reroute, ...]] = field(default_factory=dict)
    told: Selection | None = None
    broken: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


def _who(request: ModelRequest[Any]) -> dict[str, str | None]:
    config = config_of()
    return {"run_id": run_id_of(config, request.runtime), "user_id": user_id_of(config, request.runtime)}


def _filterable(request: ModelRequest[Any]) -> list[str]:
    """Names of the tools that may be taken out, in order."""
    stay = {*OWN_TOOLS, *insisted_on(request)}
    names = (tool.name for tool in request.tools if isinstance(tool, BaseTool))
    return [name for name in dict.fromkeys(names) if name not in stay]


def _without_search(request: ModelRequest[Any]) -> ModelRequest[Any]:
    """The request without the search tool: where all tools are offered there is nothing to search for."""
    left = [tool for tool in request.tools if not isinstance(tool, SearchTool)]
    return request if len(left) == len(request.tools) else request.override(tools=left)
