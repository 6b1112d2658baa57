"""Processes that are killed: is an acknowledged run ever lost, and how long does recall fail?

    python -m benchmarks.kills [--kills 1000] [--life 1.0] [--seed 0] [--json FILE]

Two processes share a folder, with all methods. Both finish runs and write a snapshot now and then. Again and again one
of them is killed (signal 9) at a random moment within `--life` seconds after the kill before, which may be while it
opens the folder, and another takes its place.
The process that is left recalls the last run that the killed one acknowledged. A folder lasts for 20 kills; then a
process opens it alone and looks for each acknowledged run in the graph and among the entries. Counted are:

- lost: runs whose `finish` had returned, and that are in the graph or among the entries no more;
- failed: the longest time that recall raised, or lacked a run that it had found before;
- found: the longest time until the last run of a killed process was recalled.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Semaphore
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from benchmarks import command, conclude, show
from benchmarks.apart import in_child_with_imports
from langgraph_toolmem import Atoms, ToolMemory, default_methods

USER: Final = "ann"
KILLS_OF_A_FOLDER: Final = 20
SNAPSHOT_EVERY: Final = 7
"""Runs of a process between two snapshots."""
PATIENCE: Final = 60.0
"""Seconds after which a run that is not recalled counts as lost to recall."""
MOST_FAILED: Final = 2.0
AHEAD: Final = 8
"""Runs that a process finishes before the campaign reads that it did. Without a limit a process finished 40 runs for
each kill, because the campaign waits for recall; two thirds of its processor time went there."""
CONSONANTS: Final = "bdfgklmnprstvz"


@dataclass(slots=True)
class Outcome:
    """Figures of one folder."""

    kills: int = 0
    acknowledged: int = 0
    lost: int = 0
    failed_seconds: float = 0.0
    found_seconds: float = 0.0


def request_of(number: int) -> str:
    """Return a request with a word of its own, so that similar ones are no nearer than it."""
    word = ""
    for _ in range(4):
        number, rest = divmod(number, len(CONSONANTS) * 5)
        word += CONSONANTS[rest // 5] + "aeiou"[rest % 5]
    return f"Send order {word} of {USER}"


def run_of(number: int) -> list[Any]:
    call = {"id": f"c{number}", "type": "function", "function": {"name": "find", "arguments": f'{{"x": {number}}}'}}
    return [
        ("user", request_of(number)),
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": f"O-{number}"},
        ("assistant", "Sent."),
    ]


def opened(folder: Path) -> ToolMemory:
    methods = default_methods(Atoms(keep=True))
    return ToolMemory(folder, reads={"find"}, methods=methods, namespace=("toolmem", "{user_id}"))


def first_use(folder: Path) -> None:
    with opened(folder) as memory:
        memory.finish(run_of(1), thread_id="1", success=True, user_id=USER)
        memory.entries.recall(request_of(1), user_id=USER)


# --- the processes ---


def work(folder: Path, first: int, pipe: Connection, unread: Semaphore) -> None:
    """Finish runs from a number on, and answer what is asked, until the process is killed."""
    logging.disable(logging.CRITICAL)
    memory = opened(folder)
    number = first
    while True:
        if pipe.poll():
            asked = pipe.recv()
            pipe.send(("recalled", recall(memory, asked)))
        if not unread.acquire(timeout=0.01):
            continue
        memory.finish(run_of(number), thread_id=f"thread {number}", success=True, user_id=USER)
        pipe.send(("finished", number))
        number += 1
        if number % SNAPSHOT_EVERY == 0:
            memory.core.store.snapshot()


def recall(memory: ToolMemory, numbers: Sequence[int]) -> list[tuple[float, float]]:
    """Recall each run; return the seconds in which recall failed by an error, and those until the run was found."""
    user = memory.core.users.of(USER)
    times = []
    for number in numbers:
        begun = time.monotonic()
        failed, found = 0.0, False
        while not found and time.monotonic() - begun < PATIENCE:
            try:
                memory.entries.recall(request_of(number), user_id=USER)
                hits = memory.entries.rows.near(request_of(number), user, k=8, part="judged")
                found = any(hit.item.query == request_of(number) for hit in hits)
            except Exception:  # noqa: BLE001 - counted
                failed = time.monotonic() - begun
            if not found:
                time.sleep(0.01)
        times.append((failed, time.monotonic() - begun))
    return times


def verify(folder: Path, pipe: Connection) -> None:
    """Send the numbers of the runs that are in the graph and among the entries of a folder."""
    logging.disable(logging.CRITICAL)
    with opened(folder) as memory:
        memory.flush(timeout=2 * PATIENCE)
        user = memory.core.users.of(USER)
        entries = {entry.query for entry in memory.entries.rows.all(user)}
        pipe.send((entries, len(memory.core.graph.runs)))


class Worker:
    """A process on the folder, and what it acknowledged."""

    def __init__(self, folder: Path, first: int) -> None:
        context = get_context("fork")
        self.pipe, inner = context.Pipe()
        self.unread = context.Semaphore(AHEAD)
        arguments = (folder, first, inner, self.unread)
        self.process: BaseProcess = context.Process(target=work, args=arguments, daemon=True)
        self.process.start()
        inner.close()
        self.finished: list[int] = []
        self.first = first

    def read(self, seconds: float) -> Any:
        """Read what it sends for so many seconds, or up to an answer, which is returned."""
        end = time.monotonic() + seconds
        with suppress(EOFError, ConnectionResetError):
            while self.pipe.poll(max(0.0, end - time.monotonic())):
                kind, value = self.pipe.recv()
                if kind == "recalled":
                    return value
                self.finished.append(value)
                self.unread.release()
        return None

    def ask(self, numbers: Sequence[int]) -> list[tuple[float, float]]:
        self.pipe.send(numbers)
        answer: list[tuple[float, float]] | None = self.read(2 * PATIENCE)
        if answer is None:
            raise RuntimeError("a process that was not killed does not answer")
        return answer

    def kill(self) -> None:
        if self.process.pid is not None:
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()
        self.read(0.0)
        self.pipe.close()


def campaign(folder: Path, kills: int, longest_life: float, chance: random.Random) -> Outcome:
    """Kill processes on one folder, with at most so many seconds from one kill to the next; return what was seen."""
    outcome, acknowledged, known = Outcome(kills), list[int](), list[int]()
    numbers = iter(range(0, 10_000_000, 10_000))
    workers = [Worker(folder, next(numbers)) for _ in range(2)]
    for _ in range(kills):
        victim, left = chance.sample(range(2), 2)
        workers[victim].read(chance.uniform(0.0, longest_life))
        workers[victim].kill()
        acknowledged += workers[victim].finished
        last = workers[victim].finished[-1:]
        workers[victim] = Worker(folder, next(numbers))
        before = known[-1:]  # recalled before, so it must be found at once
        times = workers[left].ask([*before, *last])
        for position, (failed, found) in enumerate(times):
            if position < len(before):
                failed = max(failed, found)
            else:
                outcome.found_seconds = max(outcome.found_seconds, found)
            outcome.failed_seconds = max(outcome.failed_seconds, failed)
        known += last
    for worker in workers:
        worker.kill()
        acknowledged += worker.finished
    pipe, inner = get_context("fork").Pipe()
    last_process = get_context("fork").Process(target=verify, args=(folder, inner), daemon=True)
    last_process.start()
    entries, runs = pipe.recv()
    last_process.join()
    missing = sum(request_of(number) not in entries for number in acknowledged)
    outcome.acknowledged = len(acknowledged)
    outcome.lost = max(missing, len(acknowledged) - runs)
    return outcome


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = command("kills", __doc__, recorded=False)
    parser.add_argument("--kills", type=int, default=1_000)
    parser.add_argument("--life", type=float, default=1.0, help="seconds from one kill to the next, at most")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        first = Path(place)
        in_child_with_imports(lambda: first_use(first / "memory"), first / "modules.json")
    chance, outcomes = random.Random(options.seed), list[Outcome]()
    while (left := options.kills - sum(each.kills for each in outcomes)) > 0:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            outcomes.append(campaign(Path(folder), min(left, KILLS_OF_A_FOLDER), options.life, chance))
            print(json.dumps(asdict(outcomes[-1])), file=sys.stderr, flush=True)
    table = Table("kills", "acknowledged runs", "lost", "recall failed, s at most", "found after, s at most")
    kills, acknowledged, lost = (
        sum(getattr(each, name) for each in outcomes) for name in ("kills", "acknowledged", "lost")
    )
    failed, found = (max(getattr(each, name) for each in outcomes) for name in ("failed_seconds", "found_seconds"))
    table.add_row(*map(str, (kills, acknowledged, lost)), f"{failed:.2f}", f"{found:.2f}")
    show(table)
    checks = [
        (lost == 0, "no acknowledged run is lost"),
        (failed <= MOST_FAILED, f"no recall fails for longer than {MOST_FAILED:.0f} s"),
    ]
    figures = {"kills": kills, "acknowledged": acknowledged, "lost": lost, "failed": failed, "found": found}
    return conclude(checks, figures, options.json)


if __name__ == "__main__":
    sys.exit(main())
