"""What the tests of the memory in real LangGraph apps share."""

from __future__ import annotations

import inspect
import logging
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


@pytest.fixture
def nothing_failed(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The memory logged no error: failing open would hide it. A test that takes `caplog` looks for itself."""
    yield
    if "caplog" not in inspect.signature(request.function).parameters:
        logged = [r for r in caplog.get_records("call") if r.name.startswith("langgraph_toolmem")]
        assert not [r.getMessage() for r in logged if r.levelno >= logging.ERROR]
