"""Ctrl-C and cancellation at any moment: what is half done is undone or done again, and everything goes on."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from desk import Desk, history, request
from queues import pending, put, take

from langgraph_toolmem import SIT, Inertia, ToolMemory
from langgraph_toolmem.core.jobs import JobQueue
from langgraph_toolmem.graph.cases import CaseIndex


def interrupt_at(line: int, where: str, do: Callable[[], object]) -> bool:
    """Does something, and interrupts it before the how manyth line of a file; False if it has not so many."""
    left = line

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        if where not in frame.f_code.co_filename:
            return None
        if event == "line":
            left -= 1
            if not left:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        do()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


class Interrupted(sqlite3.Connection):
    """A connection that is interrupted after, or before, the how manyth statement."""

    left = 0
    before = False

    def execute(self, *args: Any) -> sqlite3.Cursor:
        cls = type(self)
        cls.left -= 1
        if not cls.left and cls.before:
            raise KeyboardInterrupt
        found = super().execute(*args)
        if not cls.left:
            raise KeyboardInterrupt
        return found


@pytest.mark.parametrize("before", [False, True])
def test_a_queue_goes_on_after_an_interrupt_at_any_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **how: real(*args, **{**how, "factory": Interrupted}))
    monkeypatch.setattr(Interrupted, "before", before)
    acknowledged = {"first"}
    with JobQueue(tmp_path, now=lambda: 0.0) as queue, JobQueue(tmp_path, now=lambda: 0.0) as other:
        put(queue, "first")
        for number in range(1, 40):
            monkeypatch.setattr(Interrupted, "left", number)
            with contextlib.suppress(KeyboardInterrupt):
                put(queue, f"job {number}", run="run", namespace=("a",))
                pending(queue)
                [job] = take(queue)
                queue.retry(job, 0)
            monkeypatch.setattr(Interrupted, "left", 0)
            for each in (queue, other):  # another process is not kept out either
                assert put(each, f"after {number} {id(each)}")
                acknowledged.add(f"after {number} {id(each)}")
        kept = {key for (key,) in other.ask("SELECT id FROM jobs")}
    assert acknowledged <= kept
    assert kept - acknowledged <= {f"job {number}" for number in range(40)}


def test_a_transaction_whose_end_was_interrupted_too_ends_at_the_next(tmp_path: Path) -> None:
    with JobQueue(tmp_path, now=lambda: 0.0) as queue:
        put(queue, "first")
        with queue.opened() as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute("DELETE FROM jobs")
        assert put(queue, "second")
        assert pending(queue) == 2


@pytest.mark.parametrize("on_disk", [True, False])
def test_finish_interrupted_anywhere_and_done_again_is_as_if_it_had_not_been(tmp_path: Path, on_disk: bool) -> None:
    def made(folder: Path | None) -> ToolMemory:
        return ToolMemory(folder, tools=Desk().tools, methods=[Inertia(), SIT()], now=lambda: 1e9)

    interrupts = 0
    with made(tmp_path / "m" if on_disk else None) as memory, made(None) as twin:
        for number in range(12):
            messages, thread = history(number), f"thread {number}"
            line = 1 + number * 47 % (400 if number % 3 else 40)
            where = "graph/tool_graph.py" if number % 3 else "stores/events.py"
            interrupts += interrupt_at(line, where, lambda m=messages, t=thread: memory.finish(m, thread_id=t))  # type: ignore[misc]
            memory.finish(messages, thread_id=thread)
            twin.finish(messages, thread_id=thread)
        assert interrupts > 6
        cases, others = memory.core.graph.cases, twin.core.graph.cases
        assert cases.cases.keys() == others.cases.keys()
        if on_disk:  # what is there stands whole or not at all; in RAM a count may lack
            assert memory.view() == twin.view()
        for case in list(cases.cases):
            cases.remove(case)


def test_an_index_of_requests_torn_anywhere_is_made_anew() -> None:
    """A request is opened, then others until it leaves: whatever its opening left undone."""
    for line in range(1, 60):
        index = CaseIndex(max_cases=3)
        interrupt_at(line, "graph/cases.py", lambda index=index: index.open("torn", "please book a room", None))  # type: ignore[misc]
        for number in range(5):
            index.open(f"case {number}", f"a wholly different matter, number {number}", None)
        interrupt_at(line, "graph/cases.py", lambda index=index: index.remove("case 3"))  # type: ignore[misc]
        index.add_call("case 4", 0, "look", "{}", "ok", {}, 0)
        found = index.nearest("a wholly different matter, number 4", [])
        assert [each.case_id for each in found] == ["case 4"], line
        for case in list(index.cases):
            index.remove(case)


async def test_cancelled_it_is_done_all_the_same_and_the_next_goes_on(tmp_path: Path) -> None:
    memory = ToolMemory(tmp_path, tools=Desk().tools)
    for number in range(4):
        task = asyncio.create_task(memory.afinish(history(number), thread_id=f"thread {number}", success=True))
        await asyncio.sleep(0.002 * number)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    await memory.afinish(history(4), thread_id="thread 4", success=True)
    await asyncio.get_running_loop().shutdown_default_executor()
    assert memory.flush()
    assert memory.report().turns == 20
    assert memory.entries.recall(request("Ann"))
    memory.close()


def test_closing_that_is_interrupted_lets_go_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = ToolMemory(tmp_path, tools=Desk().tools)
    memory.finish(history(0), thread_id="a", success=True)
    assert memory.flush(), "no thread of this memory, which is never stopped, holds a job"

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(memory.core.jobs, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        memory.close()
    with ToolMemory(tmp_path, tools=Desk().tools) as again:
        assert again.report().turns == 4
        assert again.flush()
