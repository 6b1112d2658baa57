"""What the tests of the memory in real LangGraph apps share."""

from __future__ import annotations

import gc
import inspect
import logging
from collections.abc import Iterator

import pytest
from desk import Desk

from langgraph_toolmem import ToolMemory, inertia
from langgraph_toolmem.inertia.confidence import at_once


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Thousands of tests and all modules are looked at no more by each garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def fitted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the confidence is corrected by is fitted when it is due: a thread would be done sooner or later."""
    monkeypatch.setattr(inertia, "in_thread", at_once)


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
