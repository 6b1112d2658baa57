"""What a memory keeps in the tables of its evidence graph: the one place where tests look inside."""

from __future__ import annotations

from langgraph.store.base import BaseStore

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.core.ledger import ALL, ItemCounts, ItemStats, LedgerTable
from langgraph_toolmem.graph.events import Forgotten
from langgraph_toolmem.inertia.record import InertiaEvidence
from langgraph_toolmem.navigator.evidence import NavigatorEvidence
from langgraph_toolmem.sit.evidence import SITEvidence


def episode(thread_id: str, asked: str) -> str:
    """Digest of the episode that begins with a message without an id."""
    return digest("episode", digest("user", digest("run", thread_id), "", asked, 0))


def inertia(memory: ToolMemory) -> InertiaEvidence:
    return memory.core.graph.register(InertiaEvidence)


def sit(memory: ToolMemory) -> SITEvidence:
    return memory.core.graph.register(SITEvidence)


def navigator(memory: ToolMemory) -> NavigatorEvidence:
    return memory.core.graph.register(NavigatorEvidence)


def ledger(memory: ToolMemory) -> LedgerTable:
    return memory.core.graph.register(LedgerTable)


def give_records(memory: ToolMemory, method: str, tracks: dict[str, ItemStats]) -> None:
    """Gives items of a method records, in a snapshot."""
    records = ledger(memory).records.setdefault(method, {ALL: ItemCounts()})
    for item, track in tracks.items():
        for key in (item, ALL):
            for figure, amount in track._asdict().items():
                records.setdefault(key, ItemCounts()).add(figure, amount)
    memory.core.store.forget(Forgotten("nobody"))  # rewrites the snapshot


def kept_in(store: BaseStore) -> str:
    """All that a shared store holds."""
    return repr([item.dict() for item in store.search((), limit=10**6)])
