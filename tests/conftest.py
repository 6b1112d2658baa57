"""What the tests of the memory in real LangGraph apps share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from desk import Desk

from langgraph_toolmem import ToolMemory


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def memory(desk: Desk) -> Iterator[ToolMemory]:
    with ToolMemory.ephemeral(tools=desk.tools) as made:
        yield made
