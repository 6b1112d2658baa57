"""Programs that finish runs and never close their memory, and what is there afterwards.

Each one ends while the memory writes in the background: it comes to its end, raises, calls ``sys.exit``, is asked to
end by a signal, in a forked worker, in a child next to the memory, under uvicorn, in a kernel that executes cells.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from langgraph_toolmem import ToolMemory

ROOT: Final = Path(__file__).resolve().parent.parent
SECONDS: Final = 120.0
"""A program that has not ended after so long hangs."""
ENDS: Final = {
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
PROGRAM: Final = """
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


@dataclass
class Ended:
    """The end of one program.

    Attributes:
        end: the way it ended.
        runs: it was to finish.
        wait: seconds until its end, after the last run or, for one that was sent a signal, after the first.
        status: its exit status; that of SIGKILL if it did not end.
        seconds: that its end took at most, from the last run on, or from the signal.
        acknowledged: threads of the finished runs.
        lost: of those, which lack what.
        said: on stderr, the end of it.
    """

    end: str
    runs: int
    wait: float
    status: int = 0
    seconds: float = 0.0
    acknowledged: list[str] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)
    said: str = ""


def ended(folder: Path, end: str, runs: int, wait: float) -> Ended:
    """Runs one program with its memory in `folder`, and looks into that afterwards."""
    found = Ended(end, runs, wait)
    command = [sys.executable, "-c", PROGRAM, str(folder), end, str(runs), str(wait)]
    with (
        (folder.parent / f"{folder.name}.log").open("w+") as log,
        subprocess.Popen(
            command, cwd=ROOT, env=_environment(), stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        assert process.stdout is not None
        hangs = threading.Timer(SECONDS, process.kill)
        hangs.start()
        if end in ("signal", "server"):
            found.acknowledged = [process.stdout.readline().strip()]
            time.sleep(wait)
            process.send_signal(signal.SIGTERM)
        last = time.monotonic()
        for line in process.stdout:
            found.acknowledged.append(line.strip())
            if end not in ("signal", "server"):
                last = time.monotonic() + wait
        found.status = process.wait()
        hangs.cancel()
        found.seconds = time.monotonic() - last
        log.seek(0)
        found.said = log.read()[-2_000:]
    with ToolMemory(folder) as memory:
        memory.flush()
        for thread in found.acknowledged:
            if why := missing(memory, thread):
                found.lost[thread] = why
    return found


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}


def missing(memory: ToolMemory, thread: str) -> str:
    """The piece of a finished run that is not there; "" if all are."""
    core = memory.core
    runs = core.episodes.runs(thread)
    if len(runs) != 1:
        return "steps"
    [run] = runs
    if core.score_of(run) != 1.0:
        return "verdict"
    return "" if memory.entries.rows.of(run, core.users.of(None)) else "entry"
