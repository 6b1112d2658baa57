"""How records of the evidence graph are written in journal and shared log: ``[key, [[kind, *fields], ...]]``."""

from __future__ import annotations

from typing import Any

from langgraph_toolmem.graph.evidence import EvidenceGraph
from langgraph_toolmem.graph.operations import Record


def write(key: str | None, record: Record) -> list[Any]:
    """A record as journal and shared log hold it."""
    return [key, [operation.plain() for operation in record]]


def read(entry: Any, graph: EvidenceGraph) -> tuple[str | None, Record]:
    """Key and record of what was written.

    Raises:
        TypeError, ValueError, LookupError, AttributeError: it is no record.
    """
    key, record = entry
    return key, [graph.operation(operation) for operation in record]
