"""The loop guard as middleware. It needs no memory."""

from __future__ import annotations

from typing import Any

from langchain.agents.middleware import AgentMiddleware, TracePolicy, hook_config, omit_payload
from langchain_core.messages import AIMessage

from langgraph_toolmem.nodes.loop_guard import LoopGuard
from langgraph_toolmem.turn.host import config_of


class LoopGuardMiddleware(AgentMiddleware[Any, Any, Any]):
    """A `LoopGuard` in an agent, right after the model::

        agent = create_agent(model, tools, middleware=[*yours, LoopGuardMiddleware()])

    Put it behind middleware that asks for approval, so that a held call is not asked for: hooks after the model run
    from the last to the first.

    Args:
        guard: with arguments of its own; None: a guard without a memory.
        name: of the middleware, unique in the agent.
    """

    name = ""
    trace_policy = TracePolicy(process_inputs=omit_payload)

    def __init__(self, guard: LoopGuard | None = None, *, name: str = "LoopGuard") -> None:
        super().__init__()
        self.name, self._guard = name, guard or LoopGuard()

    @hook_config(can_jump_to=["model", "end"])
    def after_model(self, state: Any, runtime: Any) -> Any:
        return _with_way_on(self._guard.invoke(state, config_of()))

    @hook_config(can_jump_to=["model", "end"])
    async def aafter_model(self, state: Any, runtime: Any) -> Any:
        return _with_way_on(await self._guard.ainvoke(state, config_of()))


def _with_way_on(update: Any) -> Any:
    """Return the update with where the agent goes on."""
    if update is None:
        return None
    # An answer at the end says why the run ends; otherwise the notes are there for the model to read.
    if isinstance(update["messages"][-1], AIMessage):
        return {**update, "jump_to": "end"}
    return {**update, "jump_to": "model"}
