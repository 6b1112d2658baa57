"""Does a program that never closes its memory end as it should?

    python tests/crash/exits.py
    python tests/crash/exits.py --programs 20 --seed 7 --json exits.json

Each program finishes runs and ends at a moment drawn by its seed, while the memory writes in the background: it comes
to its end, raises, calls ``sys.exit``, is asked to end by a signal, in a forked worker, in a child forked off beside
the memory, under uvicorn, in a kernel that executes cells. Its exit status has to be its own. Then the folder is opened
again: every run that was acknowledged has its steps, its verdict and its entry.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
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

    @property
    def is_good(self) -> bool:
        """Whether it ended with its own status, and nothing is lost."""
        return self.status == ENDS[self.end] and not self.lost


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


def one(where: Path, seed: int) -> Ended:
    """A program at a moment drawn by its seed."""
    chance = random.Random(seed)
    end = list(ENDS)[seed % len(ENDS)]
    wait = chance.choice((0.0, 0.3, 2.0)) * chance.random()
    return ended(where / f"program-{seed}", end, chance.randint(1, 40), wait)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; 0 if every program ended with its own status and nothing is lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(args.processes) as pool:
        seeds = range(args.seed, args.seed + args.programs)
        found = []
        for each in pool.map(partial(one, Path(folder)), seeds):
            found.append(each)
            if not each.is_good:
                print(f"{each.end}, {each.runs} runs, {each.wait:.2f} s: status {each.status}, lost {each.lost}")
            print(f"\r{len(found)} of {args.programs}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for end in ENDS:
        mine = [each for each in found if each.end == end]
        statuses = dict(Counter(each.status for each in mine))
        slowest = max((each.seconds for each in mine), default=0.0)
        print(f"{end:10} {len(mine):4} programs, exit statuses {statuses}, slowest end {slowest:.1f} s")
    acknowledged, lost = sum(len(each.acknowledged) for each in found), sum(len(each.lost) for each in found)
    own = sum(each.status == ENDS[each.end] for each in found)
    print(f"{own} of {len(found)} exit statuses are the program's own; {lost} of {acknowledged} acknowledged runs lost")
    if args.json:
        args.json.write_text(json.dumps([asdict(each) for each in found]))
    return 0 if all(each.is_good for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
