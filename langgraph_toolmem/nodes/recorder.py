"""The recorder node: learns and does nothing else."""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import RunnableConfig

from langgraph_toolmem.host import emit, run_id_of, runtime_of, user_id_of
from langgraph_toolmem.nodes.base import MemoryNode


class Recorder(MemoryNode):
    """Learns what is new in the run. Put it before END, so that the last answer is seen too.

    Works anywhere in a graph, alone or beside an `InertiaShortcut`; each executed call teaches once.
    """

    role = "recorder"

    def _run(self, state: Any, config: RunnableConfig | None) -> Any:
        runtime = runtime_of(config)
        new = self.memory.observe(self._messages(state), run_id=run_id_of(config), user_id=user_id_of(config, runtime))
        emit(runtime, {"node": self.role, "learned_turns": new})

    async def _arun(self, state: Any, config: RunnableConfig | None) -> Any:
        runtime = runtime_of(config)
        new = await self.memory.aobserve(
            self._messages(state), run_id=run_id_of(config), user_id=user_id_of(config, runtime)
        )
        emit(runtime, {"node": self.role, "learned_turns": new})
