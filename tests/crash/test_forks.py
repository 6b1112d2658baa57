"""A memory that was made before its process forked (``gunicorn --preload``, Celery's prefork, ``multiprocessing``)."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from children import run
from desk import EAGER, Desk, history, request, warm
from langchain_core.messages import HumanMessage

from langgraph_toolmem import StorageError, ToolMemory
from langgraph_toolmem.base import threads
from langgraph_toolmem.stores.vectors import VectorItem

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="fork"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]
ZOE = [HumanMessage(request("Zoe"), id="zoe")]
ALONE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import test_forks
test_forks.alone(sys.argv[2], Path(sys.argv[3]))
"""


def in_a_process_of_its_own(test: Callable[[Path], None]) -> Callable[[Path], None]:
    """Runs a test so that no thread which another test left behind holds anything while it forks."""

    @wraps(test)
    def begun(tmp_path: Path) -> None:
        done = run(ALONE, Path(__file__).parent, test.__name__, tmp_path)
        assert done.returncode == 0, done.stderr[-4_000:]

    return begun


def alone(name: str, folder: Path) -> None:
    """Does what the test of that name says, in the process that was begun for it."""
    globals()[name].__wrapped__(folder)


def in_a_child(do: Callable[..., None], *args: Any) -> None:
    """Does something in a forked process; it fails, or hangs, here."""
    child = multiprocessing.get_context("fork").Process(target=do, args=args, daemon=True)
    child.start()
    child.join(20)
    code = child.exitcode
    if code is None:
        child.kill()
    assert code == 0, "it hangs" if code is None else "it failed"


@contextmanager
def held_elsewhere() -> Iterator[None]:
    """Another thread holds all locks, as if it were in the middle of its work."""
    inside, over = threading.Event(), threading.Event()

    def hold() -> None:
        with ExitStack() as held:
            for each in list(threads.locks_in_use):
                if each.acquire(timeout=0.2):  # else somebody else holds it already
                    held.callback(each.release)
            inside.set()
            over.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(10)
    try:
        yield
    finally:
        over.set()
        thread.join()


def learns(memory: ToolMemory, desk: Desk) -> None:
    assert memory.inertia.predict(ZOE, policy=EAGER) is not None
    before = memory.report().turns
    memory.finish(history(3, "Zoe"), thread_id=f"child {os.getpid()}", success=True)
    assert memory.report().turns == before + 4
    memory.feedback("warm-1003", score=0.0)
    with pytest.raises(StorageError, match="after the fork"):
        memory.entries.recall(request("Ann"))
    memory.close()


@in_a_process_of_its_own
def test_a_child_learns_and_its_parent_knows_it(tmp_path: Path) -> None:
    desk = Desk()
    with ToolMemory(tmp_path, tools=desk.tools) as memory:
        warm(memory, 13)
        memory.finish(history(4), thread_id="judged", success=True)
        assert memory.flush()
        for _ in range(2):
            with held_elsewhere():
                in_a_child(learns, memory, desk)
        memory.finish(history(5), thread_id="parent", success=True)
        assert memory.report().turns == 4 * 17
        memory.core.jobs.begin()  # it looks into the queue every half minute by itself
        assert memory.flush()
        assert [memory.core.graph.score(run) for run in memory.core.graph.runs].count(0.0) == 1
        assert len(list(memory.entries.rows.all(memory.core.users.of(None)))) == 17, "the parent writes its entries"
    with ToolMemory(tmp_path, tools=desk.tools) as again:
        assert again.report().turns == 4 * 17
        assert not again.core.problems()


def refused(folder: Path, desk: Desk) -> None:
    with ToolMemory(folder, tools=desk.tools) as memory:
        memory.finish(history(0), thread_id="a", success=True)
        assert memory.report().turns == 4, "the graph is its own"
        assert not memory.flush(timeout=0.5), "entries wait on disk for a process that can write them"
        memory.core.vectors.upsert("notes", [VectorItem("a", "text", {})])  # a row, for that process to index
        with pytest.raises(StorageError, match="after the fork"):
            memory.core.vectors.query("notes", "text", k=1)


@in_a_process_of_its_own
def test_a_child_of_a_parent_that_used_chroma_is_told(tmp_path: Path) -> None:
    desk = Desk()
    with ToolMemory(tmp_path / "parent", tools=desk.tools) as memory:
        memory.finish(history(1), thread_id="a", success=True)
        assert memory.flush()
        in_a_child(refused, tmp_path / "child", desk)
    with ToolMemory(tmp_path / "child", tools=desk.tools) as after:
        assert after.flush()
        assert after.entries.recall(request("Ann"))


PRELOAD = """
import os, sys
from desk import Desk, history, request
from langgraph_toolmem import ToolMemory

folder = sys.argv[1]
memory = ToolMemory(f"{folder}/app", tools=Desk().tools)  # as an app that is preloaded
workers = []
for number in range(1):
    worker = os.fork()
    if not worker:
        with ToolMemory(f"{folder}/{number}", tools=Desk().tools) as own:
            own.finish(history(number), thread_id="a", success=True)
            assert own.flush(timeout=100) and own.entries.recall(request("Ann")) and not own.core.problems()
        os._exit(0)
    workers.append(worker)
codes = [os.waitpid(worker, 0)[1] for worker in workers]
memory.finish(history(5), thread_id="a", success=True)
assert memory.flush(timeout=100)
memory.close()
raise SystemExit(any(codes))
"""


def test_workers_of_a_preloaded_app_make_their_own(tmp_path: Path) -> None:
    done = run(PRELOAD, tmp_path)
    assert done.returncode == 0, done.stderr


def in_ram(memory: ToolMemory) -> None:
    memory.finish(history(3, "Zoe"), thread_id="child")
    assert memory.report().turns == 8
    memory.close()


@in_a_process_of_its_own
def test_a_memory_in_ram_goes_on_by_itself(tmp_path: Path) -> None:
    with ToolMemory.ephemeral(tools=Desk().tools) as memory:
        warm(memory, 1)
        in_a_child(in_ram, memory)
        assert memory.report().turns == 4
