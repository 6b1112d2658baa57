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

    Put it after middleware that asks for approval, so that a person is not asked about a stopped call: hooks after the
    model run from the last to the first.

    Args:
        guard: the guard. If None, a guard without a memory.
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
    """Return the update with the agent's next step."""
    if update is None:
        return None
    # An answer at the end says why the run ends; otherwise the model reads the notes next.
    if isinstance(update["messages"][-1], AIMessage):
        return {**update, "jump_to": "end"}
    return {**update, "jump_to": "model"}
