"""The retrieval node: which tools the model is offered for a request, as complete chains."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.memory import ToolMemory
from langgraph_toolmem.navigator.arguments import check_selection
from langgraph_toolmem.navigator.select.candidates import (
    MOST,
    Progress,
    find_reroutes,
    progress_of,
    turn_candidates,
)
from langgraph_toolmem.navigator.select.search_tool import SearchTool
from langgraph_toolmem.navigator.select.selection import Selection, select_tools
from langgraph_toolmem.navigator.tool_search.hit import TARGETS
from langgraph_toolmem.nodes.base import MemoryNode
from langgraph_toolmem.nodes.preferences import guided_tools, name_of
from langgraph_toolmem.runs.run import OWN_TOOLS, SEARCH_TOOL
from langgraph_toolmem.runs.tools import ToolLike, read_tools
from langgraph_toolmem.turn.hints import Offered, avoided_now, new_offered, offered_now
from langgraph_toolmem.turn.host import emit, run_id_of, runtime_of, user_id_of
from langgraph_toolmem.turn.telemetry import annotate

ROLE: Final = "chains"

T = TypeVar("T")


class ToolRetriever(MemoryNode):
    """Finds the tools that the user's request needs, as complete chains, for a graph with many tools.

    A chain is a tool that fits the request with all those that give what it needs; chains come first, other tools
    that fit fill up to `most`. Stands in the loop before the model: it looks once per user turn, and when a call
    failed it adds the tools of another way. The model's node binds what is offered; `retriever.tool` is the search
    tool, with which the model asks for more in words::

        builder = StateGraph(MemoryState)
        retriever = ToolRetriever(memory, tools)
        builder.add_node("retriever", retriever)
        builder.add_edge(START, "retriever")
        builder.add_edge("retriever", "agent")
        builder.add_node("tools", ToolNode([*tools, retriever.tool]))
        builder.add_edge("tools", "retriever")
        ...
        model.bind_tools(offered_tools(state, [*tools, retriever.tool])).invoke(state["messages"])

    In front of an `InertiaShortcut`, no shortcut goes to a tool that is not offered. With no more than `most` tools
    nothing is left out.

    Args:
        memory: the memory.
        tools: the agent's tools.
        most: tools that are offered for a request, at most; what a failure or a search brings comes on top.
        targets: tools that fit best and bring their chain.
        always: names of tools that are always offered.
        messages_key: key of the messages in the host's state.
        name: of the node in traces.

    Raises:
        ConfigurationError: an argument cannot work.
    """

    role = ROLE
    about = "chooses the tools that the model is offered; calls no model"

    def __init__(
        self,
        memory: ToolMemory,
        tools: Iterable[ToolLike],
        *,
        most: int = MOST,
        targets: int = TARGETS,
        always: Iterable[str] = (),
        messages_key: str = "messages",
        name: str | None = None,
    ) -> None:
        super().__init__(memory, messages_key=messages_key, name=name)
        self.always = check_selection(most, targets, always)
        self.most, self.targets = most, targets
        specs = read_tools(tools)
        if SEARCH_TOOL in specs:
            raise ConfigurationError(f"{SEARCH_TOOL!r} is the name of the search tool; none of the tools may have it.")
        self.tools = {name: spec for name, spec in specs.items() if name not in OWN_TOOLS}
        self.tool = SearchTool(
            navigator=memory.navigator, names_of=lambda _: self.tools.keys(), targets=targets, messages_key=messages_key
        )
        memory.adopt(self.tools)

    def _run(self, state: Any, config: RunnableConfig | None) -> Any:
        runtime = runtime_of(config)
        found = self._found(state, run_id_of(config, runtime), user_id_of(config, runtime))
        return self._answer(found, state, runtime)

    async def _arun(self, state: Any, config: RunnableConfig | None) -> Any:
        runtime = runtime_of(config)
        found = await asyncio.to_thread(self._found, state, run_id_of(config, runtime), user_id_of(config, runtime))
        return self._answer(found, state, runtime)

    def _found(self, state: Any, run_id: str | None, user_id: str | None) -> tuple[Selection, Progress] | None:
        """What is to be offered now, and where the run stands; None if nothing is new."""
        if len(self.tools) <= self.most:
            return None
        known = offered_now(state, messages_key=self.messages_key)
        where = progress_of(self.memory._read(self._messages(state), run_id))
        if known is not None and where.failed <= set(known.get("failed", ())):
            return None
        self.memory.adopt(self.tools)
        out = avoided_now(state, messages_key=self.messages_key) or {}
        names = [name for name in self.tools if name not in out]
        navigator = self.memory.navigator
        found = turn_candidates(navigator, where, names, most=self.most, targets=self.targets, user_id=user_id)
        reroutes = find_reroutes(navigator, found, where.called, names)
        chosen = select_tools(
            found.plan,
            found.hits,
            most=self.most,
            always=self.always,
            called=where.called,
            reroutes=reroutes,
            asked={} if known is None else known["tools"],
            earlier=where.earlier,
            available=names,
        )
        return chosen, where

    def _answer(self, found: tuple[Selection, Progress] | None, state: Any, runtime: Runtime[Any] | None) -> Any:
        if found is None:
            return None
        chosen, where = found
        annotate({"toolmem.node": ROLE, "toolmem.offered": len(chosen.tools), "toolmem.of": len(self.tools)})
        emit(runtime, {"node": ROLE, **chosen.to_event(len(self.tools))})
        return new_offered(chosen.tools, self._messages(state), where.failed)


def offered_tools(state: Any, tools: Iterable[T], *, messages_key: str = "messages") -> list[T]:
    """The tools that a `ToolRetriever` offers in this user turn: what the model's node binds.

    ::

        model.bind_tools(offered_tools(state, [*tools, retriever.tool]))

    What a `PreferenceGuide` leaves out is left out here too.

    Args:
        state: the state, with the key `toolmem_offered` (see `MemoryState`). Without it all tools are offered.
        tools: the tools of this step; those without a name, and the memory's own, are always offered.
        messages_key: key of the messages.

    Returns:
        The tools in their order. All of them but the search tool where nothing was chosen.
    """
    there = guided_tools(state, tools, messages_key=messages_key)
    offered: Offered | None = offered_now(state, messages_key=messages_key)
    if offered is None:
        return [each for each in there if not isinstance(each, SearchTool)]
    names = {*offered["tools"], *OWN_TOOLS}
    return [each for each in there if (name := name_of(each)) is None or name in names]
