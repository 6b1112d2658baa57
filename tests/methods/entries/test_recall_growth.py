"""Recall where many requests are worded alike: it reads as many rows of thousands as of some hundreds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from orders import order

from langgraph_toolmem import Entries, ToolMemory
from langgraph_toolmem.stores.indexed import IndexedVectors


def test_recall_reads_as_many_rows_of_many_requests_that_are_alike_as_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking for more and more of them took 6 ms at 300 runs, and 33 at 3,000."""
    wanted: list[int] = []
    query = IndexedVectors.query

    def counted(self: IndexedVectors, kind: str, text: str | Sequence[float], *, k: int, **how: Any) -> Any:
        found = query(self, kind, text, k=k, **how)
        wanted.append(k)
        return found

    monkeypatch.setattr(IndexedVectors, "query", counted)
    asked = dict[int, int]()
    with ToolMemory.ephemeral(methods=[Entries()]) as memory:
        for number in range(400):
            memory.finish(order("ann", f"p{number % 50}"), thread_id=f"t{number}")
            if number + 1 in (80, 400):
                memory.flush()
                wanted.clear()
                found = memory.entries.recall("Send order p3 of ann")
                asked[number + 1] = sum(wanted)
                assert found[0].query == "Send order p3 of ann"
    assert 0 < asked[400] <= 1.5 * asked[80]
