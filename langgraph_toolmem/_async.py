"""The async twins of `ToolMemory`'s methods: the same code in a worker thread, since disk and locks block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from langgraph_toolmem._suggesting import Advice
    from langgraph_toolmem.atoms.atoms import Atom
    from langgraph_toolmem.atoms.known import Known
    from langgraph_toolmem.atoms.record import AtomRecord
    from langgraph_toolmem.atoms.retrieve import AtomHit
    from langgraph_toolmem.entries.entry import Entry
    from langgraph_toolmem.entries.policy import RecallPolicy
    from langgraph_toolmem.entries.preferences import Preference
    from langgraph_toolmem.entries.recollection import RecalledEntry, Recollection
    from langgraph_toolmem.inertia.policy import InertiaPolicy
    from langgraph_toolmem.inertia.proposal import Decision, Proposal
    from langgraph_toolmem.memory import ToolMemory
    from langgraph_toolmem.report.report import Report
    from langgraph_toolmem.report.savings import TokenPrice
    from langgraph_toolmem.runs.tools import ToolLike, ToolSpec
    from langgraph_toolmem.sit.policy import SITPolicy
    from langgraph_toolmem.sit.suggest import Suggestion

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
        wait: bool = False,
    ) -> int:
        """Async twin of `finish`."""
        return await asyncio.to_thread(
            _memory(self).finish,
            messages,
            run_id=run_id,
            success=success,
            comment=comment,
            user_id=user_id,
            wait=wait,
        )

    async def afeedback(
        self,
        run_id: str,
        *,
        score: float,
        comment: str | None = None,
        user_id: str | None = None,
        wait: bool = False,
    ) -> None:
        """Async twin of `feedback`."""
        await asyncio.to_thread(
            _memory(self).feedback, run_id, score=score, comment=comment, user_id=user_id, wait=wait
        )

    async def abroke_off(
        self, messages: Any, error: str, *, run_id: str | None = None, user_id: str | None = None
    ) -> bool:
        """Async twin of `broke_off`."""
        return await asyncio.to_thread(_memory(self).broke_off, messages, error, run_id=run_id, user_id=user_id)

    async def aflush(self, *, timeout: float | None = 60.0) -> bool:
        """Async twin of `flush`."""
        return await asyncio.to_thread(_memory(self).flush, timeout=timeout)

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
        tools: Mapping[str, ToolSpec] | None = None,
        recorded: bool = False,
        forbidden: str = "",
    ) -> Decision:
        """Async twin of `before_model`."""
        return await asyncio.to_thread(
            _memory(self).before_model,
            messages,
            run_id=run_id,
            user_id=user_id,
            policy=policy,
            tools=tools,
            recorded=recorded,
            forbidden=forbidden,
        )

    async def aafter_model(
        self, messages: Any, answer: Iterable[Any], *, run_id: str | None = None, user_id: str | None = None
    ) -> int:
        """Async twin of `after_model`."""
        return await asyncio.to_thread(_memory(self).after_model, messages, answer, run_id=run_id, user_id=user_id)

    async def aexecuted(
        self,
        messages: Any,
        call_id: str,
        *,
        tool: str,
        args: Mapping[str, Any],
        status: Literal["ok", "failed"],
        raised: bool = False,
        run_id: str | None = None,
        user_id: str | None = None,
    ) -> int:
        """Async twin of `executed`."""
        return await asyncio.to_thread(
            _memory(self).executed,
            messages,
            call_id,
            tool=tool,
            args=args,
            status=status,
            raised=raised,
            run_id=run_id,
            user_id=user_id,
        )

    async def agave_up(
        self, messages: Any, call_id: str, *, run_id: str | None = None, user_id: str | None = None
    ) -> int:
        """Async twin of `gave_up`."""
        return await asyncio.to_thread(_memory(self).gave_up, messages, call_id, run_id=run_id, user_id=user_id)

    async def asuggest(
        self,
        messages: Any,
        *,
        summary: str | None = None,
        k: int | None = None,
        available: Collection[str] | None = None,
        policy: SITPolicy | None = None,
        user_id: str | None = None,
    ) -> list[Suggestion]:
        """Async twin of `suggest`."""
        return await asyncio.to_thread(
            _memory(self).suggest,
            messages,
            summary=summary,
            k=k,
            available=available,
            policy=policy,
            user_id=user_id,
        )

    async def aadvise(
        self,
        messages: Any,
        *,
        summary: str | None = None,
        k: int | None = None,
        available: Collection[str] | None = None,
        policy: SITPolicy | None = None,
        run_id: str | None = None,
        user_id: str | None = None,
        offered: bool = False,
        tools: Mapping[str, ToolSpec] | None = None,
    ) -> Advice:
        """Async twin of `advise`."""
        return await asyncio.to_thread(
            _memory(self).advise,
            messages,
            summary=summary,
            k=k,
            available=available,
            policy=policy,
            run_id=run_id,
            user_id=user_id,
            offered=offered,
            tools=tools,
        )

    async def arecall(
        self,
        query: str,
        *,
        user_id: str | None = None,
        policy: RecallPolicy | None = None,
        k: int | None = None,
    ) -> list[Entry]:
        """Async twin of `recall`."""
        return await asyncio.to_thread(_memory(self).recall, query, user_id=user_id, policy=policy, k=k)

    async def aranked(
        self,
        query: str,
        *,
        user_id: str | None = None,
        policy: RecallPolicy | None = None,
        k: int | None = None,
        unjudged: bool = True,
        alike: int = 1,
        wait: float | None = None,
    ) -> list[RecalledEntry]:
        """Async twin of `ranked`."""
        return await asyncio.to_thread(
            _memory(self).ranked, query, user_id=user_id, policy=policy, k=k, unjudged=unjudged, alike=alike, wait=wait
        )

    async def arecollect(
        self,
        messages: Any,
        *,
        policy: RecallPolicy | None = None,
        run_id: str | None = None,
        user_id: str | None = None,
        unjudged: bool = False,
        offered: bool = False,
        budget: int | None = None,
    ) -> Recollection:
        """Async twin of `recollect`."""
        return await asyncio.to_thread(
            _memory(self).recollect,
            messages,
            policy=policy,
            run_id=run_id,
            user_id=user_id,
            unjudged=unjudged,
            offered=offered,
            budget=budget,
        )

    async def apreferences(
        self,
        query: Any,
        *,
        user_id: str | None = None,
        policy: RecallPolicy | None = None,
        domain_of: Callable[[str], str | None] | None = None,
        model: BaseChatModel | None = None,
        wait: float | None = None,
    ) -> list[Preference]:
        """Async twin of `preferences`."""
        return await asyncio.to_thread(
            _memory(self).preferences,
            query,
            user_id=user_id,
            policy=policy,
            domain_of=domain_of,
            model=model,
            wait=wait,
        )

    async def asearch_atoms(
        self,
        goal: str | Sequence[str],
        *,
        state: str = "",
        slots: Known | Mapping[str, Any] | Iterable[str] = (),
        k: int = 3,
        tools: Mapping[str, ToolSpec] | Iterable[ToolLike] | None = None,
        beta: float = 0.3,
        user_id: str | None = None,
        wait: float | None = None,
    ) -> list[AtomHit]:
        """Async twin of `search_atoms`."""
        return await asyncio.to_thread(
            _memory(self).search_atoms,
            goal,
            state=state,
            slots=slots,
            k=k,
            tools=tools,
            beta=beta,
            user_id=user_id,
            wait=wait,
        )

    async def akeep_atoms(self, atoms: Iterable[Atom], *, user_id: str | None = None) -> int:
        """Async twin of `keep_atoms`."""
        return await asyncio.to_thread(_memory(self).keep_atoms, atoms, user_id=user_id)

    async def aoffer_atoms(
        self,
        messages: Any,
        hits: Iterable[AtomHit],
        *,
        run_id: str | None = None,
        user_id: str | None = None,
    ) -> None:
        """Async twin of `offer_atoms`."""
        await asyncio.to_thread(_memory(self).offer_atoms, messages, hits, run_id=run_id, user_id=user_id)

    async def aatoms(self, *, user_id: str | None = None) -> list[Atom]:
        """Async twin of `atoms`."""
        return await asyncio.to_thread(_memory(self).atoms, user_id=user_id)

    async def aatom_records(self, ids: Iterable[str], *, user_id: str | None = None) -> dict[str, AtomRecord]:
        """Async twin of `atom_records`."""
        return await asyncio.to_thread(_memory(self).atom_records, ids, user_id=user_id)

    async def areport(self, *, price: TokenPrice | None = None) -> Report:
        """Async twin of `report`."""
        return await asyncio.to_thread(_memory(self).report, price=price)

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
