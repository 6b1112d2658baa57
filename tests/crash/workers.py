"""Many workers, one memory, servers that die and hang: is anything lost, and does anybody wait?

    PYTHONPATH=.:tests python tests/crash/workers.py

It starts a real Postgres and a real ``chroma run`` on loopback. Processes with threads run agents whose model answers
after a while; one of them is killed (SIGKILL) now and then and begins again, and both servers are stopped and started,
and hang (SIGSTOP). Every run that was acknowledged must be there in a fresh worker, once. The same agents run without a
memory for comparison. Then fresh workers open memories of three sizes.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from servers import Postgres, chroma_run, postgres_run

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.memory import default_methods
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel

TURNS: Final = 4
"""Of each run: three calls, and the answer."""
CALLS: Final = ("find_customer", "latest_order", "add_note")
SPACE: Final = ("workers",)
MOST_FAILURES: Final = 20
RATIO, LONGEST, OPENING, LARGE_OPENING = 1.5, 0.150, 5.0, 30.0
"""The targets: p99 of a step beside that without a memory; seconds of a step while stores hang; of opening a memory of
100,000 runs, and of 1,000,000 by extrapolation."""


@tool
def find_customer(name: str) -> str:
    """Find a customer by name."""
    return json.dumps({"customer_id": f"C-{name}"})


@tool
def latest_order(customer_id: str) -> str:
    """The latest order of a customer."""
    return json.dumps({"order_id": customer_id.replace("C-", "O-")})


@tool
def add_note(order_id: str) -> str:
    """Add a note to an order."""
    return json.dumps({"saved": order_id})


TOOLS: Final = (find_customer, latest_order, add_note)
READS: Final = ("find_customer", "latest_order")


def asked(run: int) -> HumanMessage:
    """What the user of a run wants."""
    return HumanMessage(f"Please add a note to the latest order of customer{run % 97}", id=f"user-{run}")


def answer(run: int, messages: Sequence[BaseMessage]) -> AIMessage:
    """What the model of a run says next; the same whenever it is asked."""
    done = sum(isinstance(each, ToolMessage) for each in messages)
    name = f"answer-{run}-{done}"
    if done == len(CALLS):
        return AIMessage("It is done.", id=name)
    customer = f"customer{run % 97}"
    args = [{"name": customer}, {"customer_id": f"C-{customer}"}, {"order_id": f"O-{customer}"}][done]
    return AIMessage("", id=name, tool_calls=[{"name": CALLS[done], "args": args, "id": f"{run}-{done}"}])


def history(run: int) -> list[BaseMessage]:
    """A whole run."""
    messages: list[BaseMessage] = [asked(run)]
    while True:
        messages.append(said := answer(run, messages))
        if not said.tool_calls:
            return messages
        call = said.tool_calls[0]
        result = TOOLS[CALLS.index(call["name"])].invoke(call["args"])
        messages.append(ToolMessage(result, tool_call_id=call["id"], name=call["name"]))


@contextmanager
def memory_at(dsn: str, port: int, folder: Path | None, space: tuple[str, ...] = SPACE) -> Iterator[ToolMemory]:
    """A worker's memory."""
    import chromadb
    from chromadb.config import Settings
    from langgraph.store.postgres import PostgresStore
    from psycopg.rows import dict_row
    from psycopg_pool import ConnectionPool

    how = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    check = ConnectionPool.check_connection
    with ConnectionPool(dsn, min_size=1, max_size=3, kwargs=how, check=check, timeout=5) as pool:
        store = PostgresStore(pool)  # type: ignore[arg-type]
        client = chromadb.HttpClient(host="127.0.0.1", port=port, settings=Settings(anonymized_telemetry=False))
        with ToolMemory(folder, TOOLS, reads=READS, store=store, chroma=client, graph_namespace=space) as memory:
            yield memory


class Steps:
    """Appends to a file what happened, line by line, so that a kill loses nothing that was said."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, kind: str, *values: object) -> None:
        """One line."""
        os.write(self._file, (json.dumps([kind, *values]) + "\n").encode())


def read_steps(folder: Path) -> list[list[Any]]:
    """What all workers noted."""
    lines = [line for each in sorted(folder.glob("*.steps")) for line in each.read_text().splitlines()]
    return [json.loads(line) for line in lines if line.endswith("]")]


def runner(memory: ToolMemory | None, args: argparse.Namespace, note: Callable[..., None]) -> Callable[[int], None]:
    """Has an agent do a run; each step is noted: its beginning, and its time without that of the model.

    Not those of each thread's first run: what is imported late, and compiled, costs every process a second once.
    """
    ready: dict[int, float] = {}
    cold = set[int]()

    def step(run: int) -> None:
        note("cold" if run in cold else "step", ready[run], time.time() - ready[run])

    def script(messages: list[BaseMessage], _: Any) -> AIMessage:
        run = next(int(each.id[5:]) for each in messages if each.id and each.id.startswith("user-"))
        step(run)
        time.sleep(args.wait)
        ready[run] = time.time()
        return answer(run, messages)

    inside = () if memory is None else tool_memory_middleware(memory, shortcut=False, recall=True, suggest=True)
    model = ScriptedChatModel(script=script)
    agent = create_agent(model, list(TOOLS), middleware=list(inside))

    def go(run: int) -> None:
        if len(cold) < args.threads:
            cold.add(run)
        ready[run] = time.time()
        state = agent.invoke({"messages": [asked(run)]}, {"configurable": {"thread_id": f"run-{run}"}})
        if memory is not None:
            memory.finish(state["messages"], thread_id=f"run-{run}", success=True)
        step(run)
        note("done", run)

    return go


def work(args: argparse.Namespace) -> None:
    """One worker: its share of the runs, but for those that are done."""
    logging.disable(logging.CRITICAL)
    note = Steps(args.folder / f"{args.slot}.steps").note
    done = {line[1] for line in read_steps(args.folder) if line[0] == "done"}
    todo = [run for run in range(args.slot, args.runs, args.processes) if run not in done]
    with ExitStack() as last:
        kept = args.folder / f"memory-{args.slot}"
        memory = None if args.dsn == "" else last.enter_context(memory_at(args.dsn, args.port, kept))
        with ThreadPoolExecutor(args.threads) as threads:
            list(threads.map(runner(memory, args, note), todo))
        if memory is not None:
            memory.flush(timeout=120)
            note("problems", *memory.report().problems)
    note("cpu", sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))


class Load:
    """Processes that work, and are begun again when they were killed."""

    def __init__(self, args: argparse.Namespace, folder: Path, dsn: str = "", port: int = 0) -> None:
        self._command = [sys.executable, __file__, "--folder", str(folder)]
        self._command += ["--dsn", dsn, "--port", str(port), "--runs", str(args.runs), "--wait", str(args.wait)]
        self._command += ["--processes", str(args.processes), "--threads", str(args.threads)]
        self._folder = folder
        self._slots = [self._begin(slot) for slot in range(args.processes)]
        self.kills = self.failures = 0

    def _begin(self, slot: int) -> subprocess.Popen[bytes]:
        with (self._folder / f"{slot}.err").open("ab") as errors:
            return subprocess.Popen([*self._command, "--slot", str(slot)], stderr=errors)

    def kill(self, slot: int) -> None:
        """One is killed, if it works still, and begins again."""
        if self._slots[slot].poll() is None:
            self._slots[slot].kill()
            self._slots[slot].wait()
            self.kills += 1
            self._slots[slot] = self._begin(slot)

    @property
    def works(self) -> bool:
        """Whether anybody does; who failed, as a server was not there when it began, begins again."""
        for slot in [slot for slot, each in enumerate(self._slots) if each.poll()]:
            self.failures += 1
            if self.failures > MOST_FAILURES:
                raise RuntimeError((self._folder / f"{slot}.err").read_text()[-2000:])
            self._slots[slot] = self._begin(slot)
        return any(each.poll() is None for each in self._slots)

    def end(self) -> None:
        """Nobody works any more."""
        for each in self._slots:
            each.kill()
            each.wait()


def trouble(args: argparse.Namespace, postgres: Postgres, chroma: Chroma, load: Load) -> list[tuple[float, float]]:
    """Kills, restarts and hangs until all is done; when something hung."""
    draw, hung = random.Random(args.seed), list[tuple[float, float]]()
    restarts = [lambda: postgres_again(postgres), chroma.again]
    events: list[Callable[[], None] | None] = [*[None, None] * args.hangs, *restarts]
    while load.works and not any(line[0] == "step" for line in read_steps(args.home)):
        time.sleep(0.1)  # they begin
    begun, killed = time.monotonic(), time.monotonic()
    pause = max(1.0, args.runs * TURNS * args.wait / (args.processes * args.threads) / (len(events) + 1))
    for number, event in enumerate(events, 1):
        while load.works and time.monotonic() < begun + number * pause:
            time.sleep(0.1)
            if time.monotonic() - killed > args.kill_every:
                load.kill(draw.randrange(args.processes))
                killed = time.monotonic()
        if event is not None:
            event()
            continue
        send = postgres.signal if number % 2 else chroma.signal
        send(signal.SIGSTOP)
        stopped = time.time()
        time.sleep(args.hang_seconds)
        send(signal.SIGCONT)
        hung.append((stopped, time.time()))
    deadline = time.monotonic() + args.limit
    while load.works and time.monotonic() < deadline:
        time.sleep(0.1)
        left = args.runs - sum(line[0] == "done" for line in read_steps(args.home))
        if left and time.monotonic() - killed > args.kill_every:  # else they only write what waits
            load.kill(draw.randrange(args.processes))
            killed = time.monotonic()
    return hung


def postgres_again(postgres: Postgres) -> None:
    """Ends the server at once, and starts it."""
    postgres.stop()
    postgres.start()


class Chroma:
    """A ``chroma run`` that can be ended and started."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._stack = folder, ExitStack()
        self.port, self._process = self._stack.enter_context(chroma_run(folder))

    def again(self) -> None:
        """Ends the server, and starts it."""
        self._stack.close()
        _, self._process = self._stack.enter_context(chroma_run(self._folder, self.port))

    def signal(self, number: int) -> None:
        """SIGSTOP, and it answers nothing; SIGCONT."""
        self._process.send_signal(number)

    def close(self) -> None:
        """Ends it."""
        self._stack.close()


def p99(values: Sequence[float]) -> float:
    """The value that one in a hundred exceeds."""
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]


def steps_of(folder: Path) -> list[tuple[float, float]]:
    """When each step began, and how long it took without the model."""
    return [(line[1], line[2]) for line in read_steps(folder) if line[0] == "step"]


def loaded(args: argparse.Namespace, postgres: Postgres, chroma: Chroma, home: Path) -> dict[str, Any]:
    """The load without a memory, then with one and with trouble, then what a fresh worker finds."""
    plain, ours = home / "plain", home / "ours"
    found: dict[str, Any] = {}
    for folder in (plain, ours):
        folder.mkdir()
        load = Load(args, folder, *(() if folder is plain else (postgres.dsn, chroma.port)))
        try:
            args.home = folder
            hung = [] if folder is plain else trouble(args, postgres, chroma, load)
            while folder is plain and load.works:
                time.sleep(0.1)
            if load.works:
                print("the load did not end within --limit: what follows is of a part, cut off", file=sys.stderr)
        finally:
            load.end()
        found["kills"] = load.kills
        done = sum(line[0] == "done" for line in read_steps(folder))
        print(f"{folder.name}: {done} runs, {load.kills} kills", file=sys.stderr)
    done = {line[1] for line in read_steps(ours) if line[0] == "done"}
    before, after = ([each + args.wait for _, each in steps_of(folder)] for folder in (plain, ours))
    while_hung = [took for begun, took in steps_of(ours) if any(a - took <= begun <= b for a, b in hung)]
    with memory_at(postgres.dsn, chroma.port, None) as fresh:
        report = fresh.report()
        entries = fresh.core.vectors.scoped(("toolmem",)).count("entries")
    found |= {"runs": len(done), "turns": report.turns, "judged": report.runs_judged, "entries": entries}
    found["exact"] = (
        found["turns"] == TURNS * len(done) and found["judged"] == found["entries"] == len(done) == args.runs
    )
    found |= {"p99_without": p99(before), "p99_with": p99(after), "steps_hung": len(while_hung)}
    found["longest_hung"] = max(while_hung, default=0.0)
    found["longest"] = max(took for _, took in steps_of(ours))
    return found


def opened(args: argparse.Namespace, postgres: Postgres) -> list[dict[str, float]]:
    """What opening costs at each size."""
    from langgraph.store.postgres import PostgresStore

    found = []
    for size in args.sizes:
        with PostgresStore.from_conn_string(postgres.dsn) as store:
            where: dict[str, Any] = {"store": store, "graph_namespace": ("size", str(size)), "tools": TOOLS}
            methods = [each for each in default_methods() if each.name in ("inertia", "navigator")]
            with ToolMemory(None, methods=methods, **where) as memory:
                begun = time.process_time()
                for run in range(size):
                    memory.finish(history(run), thread_id=f"run-{run}", success=True)
                learned = time.process_time() - begun
                time.sleep(1.1)
                memory.observe([])
                time.sleep(args.settle)  # a snapshot that is under way
            methods = [each for each in default_methods() if each.name in ("inertia", "navigator")]
            wall, begun = time.monotonic(), time.process_time()
            with ToolMemory(None, methods=methods, **where) as fresh:
                took = {"cpu": time.process_time() - begun, "wall": time.monotonic() - wall}
                assert fresh.report().turns == TURNS * size
        found.append({"runs": size, "learning_cpu": learned, **took})
        print(f"opening {size:,} runs: {took['cpu']:.2f} s of CPU", file=sys.stderr)
    return found


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--runs", type=int, default=80)
    parser.add_argument("--wait", type=float, default=0.3, help="seconds that the model takes")
    parser.add_argument("--kill-every", type=float, default=20.0)
    parser.add_argument("--hangs", type=int, default=1, help="of each server")
    parser.add_argument("--hang-seconds", type=float, default=4.0)
    parser.add_argument("--sizes", type=int, nargs=3, default=[100, 200, 400], help="runs, for opening")
    parser.add_argument("--settle", type=float, default=3.0)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for the end of the load")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    for name, kind in (("--folder", Path), ("--dsn", str), ("--port", int), ("--slot", int)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.folder is not None:
        work(args)
        return
    with tempfile.TemporaryDirectory() as folder, postgres_run() as postgres:
        from langgraph.store.postgres import PostgresStore

        with PostgresStore.from_conn_string(postgres.dsn) as store:
            store.setup()
        (Path(folder) / "chroma").mkdir()
        chroma = Chroma(Path(folder) / "chroma")
        try:
            load = loaded(args, postgres, chroma, Path(folder))
            sizes = opened(args, postgres)
        finally:
            chroma.close()
    tell(args, load, sizes)


def tell(args: argparse.Namespace, load: dict[str, Any], sizes: list[dict[str, float]]) -> None:
    """Prints what was found."""
    first, last = sizes[0], sizes[-1]
    slope = (last["cpu"] - first["cpu"]) / (last["runs"] - first["runs"])
    large = {runs: last["cpu"] + max(0.0, slope) * (runs - last["runs"]) for runs in (100_000, 1_000_000)}
    ratio = load["p99_with"] / load["p99_without"]
    print(f"{args.processes} processes x {args.threads} threads, {load['runs']} runs, {load['kills']} kills")
    print(f"a fresh worker has {load['turns']} turns, {load['judged']} verdicts, {load['entries']} entries")
    plain = load["p99_without"]
    print(f"p99 of a step after each thread's first run: {load['p99_with']:.3f} s, without a memory {plain:.3f} s")
    longest, at_all = (f"{load[each] * 1000:.0f} ms without the model" for each in ("longest_hung", "longest"))
    print(f"longest step of {load['steps_hung']} while a store hung: {longest}; at all: {at_all}")
    for each in sizes:
        told = f"opening {each['runs']:,.0f} runs: {each['cpu']:.2f} s of CPU, {each['wall']:.2f} by the clock"
        print(f"{told}; learning them: {each['learning_cpu']:.1f} s of CPU")
    targets = {
        "every acknowledged run is there, once": load["exact"],
        f"p99 is at most {RATIO} times that without": ratio <= RATIO,
        f"no step above {LONGEST * 1000:.0f} ms while a store hangs": load["longest_hung"] <= LONGEST,
        f"100,000 runs open within {OPENING:.0f} s, by extrapolation {large[100_000]:.1f}": large[100_000] <= OPENING,
        f"1,000,000 within {LARGE_OPENING:.0f} s, by extrapolation {large[1_000_000]:.1f}": (
            large[1_000_000] <= LARGE_OPENING
        ),
    }
    for what, holds in targets.items():
        print(f"{'holds ' if holds else 'MISSED'}  {what}")
    if args.json:
        args.json.write_text(json.dumps({"load": load, "sizes": sizes, "targets": targets}, indent=1))


if __name__ == "__main__":
    main()
