"""Programs that never close their memory: their exit status is their own, and no acknowledged run is lost."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from children import Child, run

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.base import threads

ENDS = {
    "end": 0,
    "exception": 1,
    "exit": 3,
    "signal": 4,
    "worker": 5,
    "child": 6,
    "kernel": 0,
    "server": -signal.SIGTERM,
}
"""The exit status of each way to end; uvicorn, asked to end, shuts down and then ends by that signal."""
STARTING, WRITING = (2, 0.0), (10, 1.0)
"""Runs, and seconds to wait: Chroma is being imported, and rows are being written."""
MOMENTS = [("end", STARTING), *((end, WRITING) for end in ENDS)]
PROGRAM = """
import asyncio, os, signal, sys, time
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph_toolmem import ToolMemory

folder, end, runs, wait = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])

def finish(memory, number):
    call = {"name": "find_order", "args": {"order": f"o-{number}"}, "id": f"c{number}"}
    memory.finish([
        HumanMessage(f"Where is order o-{number}?"),
        AIMessage("", tool_calls=[call]),
        ToolMessage(f'{{"state": "s{number % 5}"}}', tool_call_id=call["id"]),
        AIMessage("It is on its way."),
    ], thread_id=f"t{number}", success=True)
    os.write(1, f"t{number}\\n".encode())

def work():
    global memory
    memory = ToolMemory(folder)
    for number in range(runs):
        finish(memory, number)
    time.sleep(wait)

def status_of(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

if end == "end":
    work()
elif end == "exception":
    work()
    raise RuntimeError("the program's own")
elif end == "exit":
    work()
    sys.exit(3)
elif end == "signal":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(4))
    work()
    time.sleep(60)
elif end == "worker":
    child = os.fork()
    if not child:
        work()
        sys.exit(5)
    sys.exit(status_of(child))
elif end == "child":
    work()
    child = os.fork()
    if not child:
        memory.view()
        sys.exit(6)
    sys.exit(status_of(child))
elif end == "kernel":
    async def kernel(cells):
        for cell in cells:
            exec(cell, globals())
            await asyncio.sleep(0)
    asyncio.run(kernel(["work()", "last = memory.report()"]))
elif end == "server":
    import uvicorn
    memory = ToolMemory(folder)
    async def app(scope, receive, send):
        if scope["type"] != "lifespan":
            return
        await receive()
        for number in range(runs):
            await asyncio.to_thread(finish, memory, number)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
    uvicorn.run(app, port=0, log_level="warning")
"""
THREADS = """
import atexit, sys, threading, time
from langgraph_toolmem.base import threads
threads.STOP_SECONDS = 0.05

def native():
    with threads.native():
        time.sleep(0.5)
        print("out", flush=True)

def late():
    time.sleep(0.2)
    try:
        with threads.native():
            print("in", flush=True)
    except Exception as error:
        print(type(error).__name__, flush=True)

class Owner:
    def stop(self, end):
        print("told", flush=True)
        raise ValueError("nobody else minds")

@atexit.register
def after():
    with threads.native():  # the main thread may close what it likes
        print("after", flush=True)

owner = Owner()
threads.at_exit(owner)
threads.at_exit(owner)
for do in (native, late):
    threads.start(do.__name__, do)
atexit.register(print, "before", flush=True)
sys.exit(7)
"""


def missing(memory: ToolMemory, thread: str) -> str:
    """The piece of a finished run that is not there; "" if all are."""
    runs = memory.core.episodes.runs(thread)
    if len(runs) != 1:
        return "steps"
    [run] = runs
    if memory.core.graph.score(run) != 1.0:
        return "verdict"
    return "" if memory.entries.rows.of(run, memory.core.users.of(None)) else "entry"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "moment"), MOMENTS, ids=lambda value: value if isinstance(value, str) else str(value[0])
)
def test_a_program_that_does_not_close_its_memory(tmp_path: Path, end: str, moment: tuple[int, float]) -> None:
    if (end in ("worker", "child") and not hasattr(os, "fork")) or (sys.platform == "win32" and ENDS[end] in (4, -15)):
        pytest.skip("no such end here")
    if end == "server" and importlib.util.find_spec("uvicorn") is None:
        pytest.skip("uvicorn is not installed")
    runs, wait = moment
    child = Child(PROGRAM, tmp_path / "memory", end, runs, wait, fresh=moment == STARTING)
    hangs = threading.Timer(120.0, child.kill)
    hangs.start()
    acknowledged = [child.line()]
    if end in ("signal", "server"):
        time.sleep(wait)
        os.kill(child.pid, signal.SIGTERM)
    last = time.monotonic()
    for line in iter(child.lines.get, None):
        acknowledged.append(line)
        last = time.monotonic() + (0.0 if end in ("signal", "server") else wait)
    status = child.wait()
    seconds = time.monotonic() - last
    hangs.cancel()
    assert status == ENDS[end], child.stderr[-2_000:]
    assert len(acknowledged) == runs or end == "signal"
    assert acknowledged[0]
    assert seconds < threads.NATIVE_SECONDS
    with ToolMemory(tmp_path / "memory") as memory:
        memory.flush()
        assert {thread: missing(memory, thread) for thread in acknowledged} == dict.fromkeys(acknowledged, "")


def test_native_code_is_awaited_and_only_the_main_thread_enters_it_later() -> None:
    done = run(THREADS)
    assert (done.returncode, done.stdout.split()) == (7, ["before", "told", "StorageError", "out", "after"]), (
        done.stderr
    )
