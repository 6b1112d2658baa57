"""The async twins of `ToolMemory`'s methods: the same code in a worker thread, since disk and locks block."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from langgraph_toolmem.inertia.proposal import Decision, Proposal
    from langgraph_toolmem.memory import ToolMemory
    from langgraph_toolmem.policy import InertiaPolicy
    from langgraph_toolmem.report import Report
    from langgraph_toolmem.stores.vectors import ToolHit

T = TypeVar("T", bound="AsyncTwins")


class AsyncTwins:
    """One ``a…`` method per blocking method of `ToolMemory`, with the same arguments, result and errors."""

    async def aobserve(self, messages: Any, *, run_id: str | None = None, user_id: str | None = None) -> int:
        """Async twin of `observe`."""
        return await asyncio.to_thread(_memory(self).observe, messages, run_id=run_id, user_id=user_id)

    async def afinish(
        self,
        messages: Any,
        *,
        run_id: str | None = None,
        success: bool | None = None,
        comment: str | None = None,
        user_id: str | None = None,
    ) -> int:
        """Async twin of `finish`."""
        return await asyncio.to_thread(
            _memory(self).finish, messages, run_id=run_id, success=success, comment=comment, user_id=user_id
        )

    async def afeedback(
        self, run_id: str, *, score: float, comment: str | None = None, user_id: str | None = None
    ) -> None:
        """Async twin of `feedback`."""
        await asyncio.to_thread(_memory(self).feedback, run_id, score=score, comment=comment, user_id=user_id)

    async def apredict(
        self, messages: Any, *, policy: InertiaPolicy | None = None, user_id: str | None = None
    ) -> Proposal | None:
        """Async twin of `predict`."""
        return await asyncio.to_thread(_memory(self).predict, messages, policy=policy, user_id=user_id)

    async def aexplain(
        self, messages: Any, *, policy: InertiaPolicy | None = None, user_id: str | None = None
    ) -> Decision:
        """Async twin of `explain`."""
        return await asyncio.to_thread(_memory(self).explain, messages, policy=policy, user_id=user_id)

    async def abefore_model(
        self,
        messages: Any,
        *,
        run_id: str | None = None,
        user_id: str | None = None,
        policy: InertiaPolicy | None = None,
    ) -> Decision:
        """Async twin of `before_model`."""
        return await asyncio.to_thread(
            _memory(self).before_model, messages, run_id=run_id, user_id=user_id, policy=policy
        )

    async def asearch_tools(self, query: str, *, k: int = 5) -> list[ToolHit]:
        """Async twin of `search_tools`."""
        return await asyncio.to_thread(_memory(self).search_tools, query, k=k)

    async def areport(self) -> Report:
        """Async twin of `report`."""
        return await asyncio.to_thread(_memory(self).report)

    async def aforget(self, *, user_id: str) -> int:
        """Async twin of `forget`."""
        return await asyncio.to_thread(_memory(self).forget, user_id=user_id)

    async def aclose(self) -> None:
        """Async twin of `close`."""
        await asyncio.to_thread(_memory(self).close)

    async def __aenter__(self: T) -> T:
        """The memory itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes it."""
        await self.aclose()


def _memory(twins: AsyncTwins) -> ToolMemory:
    return cast("ToolMemory", twins)
