"""What the tests of the memory in real LangGraph apps share."""

from __future__ import annotations

import gc
import inspect
import logging
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, wraps
from traceback import walk_stack
from types import SimpleNamespace
from typing import Any

import children
import pytest
import trained
from desk import Desk
from hypothesis import settings
from typer.main import get_command

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.core.jobs import Jobs
from langgraph_toolmem.stores import inspection
from langgraph_toolmem.turn import host

settings.register_profile("load", deadline=None)  # timing never decides a test
settings.load_profile("load")


def pytest_configure() -> None:
    """Make the command line once: made for each command, it takes longer than most of them."""
    pytest.MonkeyPatch().setattr("typer.testing._get_command", cache(get_command))


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: some of the time is waiting for servers, children and deadlines."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests that share a fixture of a module in one worker: each worker would make it anew."""
    for item in items:
        if not isinstance(item, pytest.Function) or item.get_closest_marker("xdist_group"):
            continue
        for definitions in item._fixtureinfo.name2fixturedefs.values():  # noqa: SLF001 - there is no public way
            fixture = definitions[-1]
            if fixture.scope in ("module", "session") and fixture.baseid.endswith(".py"):
                item.add_marker(pytest.mark.xdist_group(f"{fixture.baseid} {fixture.argname}"))
                break


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Thousands of tests and all modules are looked at no more by each garbage collection."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    trained.remove_folders()


@pytest.fixture(autouse=True)
def nothing_told_yet() -> None:
    """What is logged once in a process is logged once in a test: the order of the tests decides nothing."""
    host.warned.clear()


@pytest.fixture(autouse=True)
def closed_afterwards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Memories in RAM that a test leaves open: as long as one is, Chroma frees nothing that others had."""
    made: list[ToolMemory] = []
    ephemeral = ToolMemory.ephemeral.__func__

    @wraps(ephemeral)
    def noted(cls: type[ToolMemory], **options: Any) -> ToolMemory:
        memory = ephemeral(cls, **options)
        if not _importing():
            made.append(memory)
        return memory

    monkeypatch.setattr(ToolMemory, "ephemeral", classmethod(noted))
    yield
    for each in made:
        with suppress(Exception):  # what a test broke
            each.close()
    trained.close_copies()


def _importing() -> bool:
    """Is a module being imported? What an example makes then is there for all tests that come after."""
    return any(frame.f_globals.get("__name__") == "importlib._bootstrap" for frame, _ in walk_stack(None))


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def memory(desk: Desk) -> Iterator[ToolMemory]:
    with ToolMemory.ephemeral(tools=desk.tools) as made:
        yield made


@pytest.fixture
def knowing() -> ToolMemory:
    """A memory that knows twelve runs of the desk."""
    return trained.knowing_desk()


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are done when the test calls `Jobs.work`, and not before."""
    monkeypatch.setattr(Jobs, "begin", lambda self, after=0.0: False)


@pytest.fixture
def forked_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """`toolmem doctor` opens collections in a forked process: an interpreter of its own imports Chroma for a second."""

    def check(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        *_interpreter, module, folder = command
        code = f"import pathlib, sys; from {module} import _check; _check(pathlib.Path(sys.argv[1]))"
        return children.run(code, folder)

    forking = SimpleNamespace(run=check, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(inspection, "subprocess", forking)


@pytest.fixture
def nothing_failed(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The memory logged no error: failing open would hide it. A test that takes `caplog` looks for itself."""
    yield
    if "caplog" not in inspect.signature(request.function).parameters:
        logged = [r for r in caplog.get_records("call") if r.name.startswith("langgraph_toolmem")]
        assert not [r.getMessage() for r in logged if r.levelno >= logging.ERROR]
