"""What asking for entries, summaries and atoms costs with few and many rows, for one user and for many.

``python -m benchmarks.rows_scale``; what is measured and how: README.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any, Final

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.workload import Workload
from langgraph_toolmem import SIT, Atoms, Entries, Inertia, Navigator, SITPolicy, ToolMemory
from langgraph_toolmem.atoms.atoms import make_atom
from langgraph_toolmem.core.users import User
from langgraph_toolmem.entries.entry import Entry, EntryCall, entry_id
from langgraph_toolmem.entries.rows import keep
from langgraph_toolmem.graph.state import START
from langgraph_toolmem.sit.rows import add
from langgraph_toolmem.sit.summary import NewSummary

P50_MS, P95_MS, FIRST_S, MORE_MB, ENTRY_KB, FINISH_MS = 10.0, 25.0, 1.0, 400.0, 5.0, 15.0
"""What is asked for."""
KINDS: Final = ("entries", "summaries", "atoms")
BATCH: Final = 1_000
PER_USER: Final = ("toolmem", "{user_id}")
TOOLS: Final = 60


@dataclass(frozen=True)
class Cost:
    """What was measured.

    Attributes:
        kind, rows, users: rows of each user.
        first_s: seconds of the first question after opening, Chroma imported before.
        p50_ms, p95_ms: milliseconds of a question, each by another text.
        more_mb: resident after the questions, beyond an empty memory that was asked the same.
        row_kb: on disk per row.
        put_ms: writing one row, of `BATCH` written together.
    """

    kind: str
    rows: int
    users: int
    first_s: float
    p50_ms: float
    p95_ms: float
    more_mb: float
    row_kb: float
    put_ms: float


def texts(seed: int) -> Iterator[str]:
    """Requests with names, numbers and words of their own, so that no two are equal."""
    draw = random.Random(seed)
    words = [
        f"{a}{b}"
        for a in ("tor", "mal", "ber", "san", "qui", "lor", "ven", "dax")
        for b in ("in", "ot", "eso", "ula", "ark")
    ]
    for _, messages in Workload(200, seed=seed).runs(10**9):
        yield f"{messages[0]['content']} for {' '.join(draw.sample(words, 3))}, reference {draw.randrange(10**6)}"


def opened(folder: Path) -> ToolMemory:
    """A memory of the three kinds."""
    return ToolMemory(folder, methods=[SIT(SITPolicy()), Entries(), Atoms(keep=True)], namespace=PER_USER)


def fill(memory: ToolMemory, kind: str, user: User, said: Sequence[str], first: int) -> None:
    """Writes rows of one kind."""
    rows = memory.entries.rows
    if kind == "entries":
        calls = tuple(
            EntryCall(f"tool_{n}", {"id": f"A-{n}", "note": "as it was asked"}, "ok", "done: " + "x" * 80)
            for n in range(4)
        )
        made = [
            Entry(
                entry_id(f"run {user.id} {first + n}"),
                f"run {user.id} {first + n}",
                text,
                calls,
                score=1.0,
                time=float(first + n),
            )
            for n, text in enumerate(said)
        ]
        keep(rows, made, user)
    elif kind == "summaries":
        new = [
            NewSummary(
                START if n % 3 else f"tool_{n % TOOLS}",
                f"tool_{(n * 7) % TOOLS}",
                f"Asked: {text}\nDone: nothing yet",
                f"{user.id} {first + n}",
            )
            for n, text in enumerate(said)
        ]
        add(memory.sit.states.rows, new, user, now=0.0, merge_above=2.0, builtin=True)
    else:
        atoms = [
            make_atom(
                state="the customer is known", goal=text, tool=f"tool_{(first + n) % TOOLS}",
                arguments={"n": f"<ORDER_ID> {first + n}"}, required_slots=["ORDER_ID"], about="Does it.",
                sources=[f"r{first + n}"],
            )
            for n, text in enumerate(said)
        ]  # fmt: skip
        memory.atoms.keep(atoms, user_id=user.id)


def asking(memory: ToolMemory, kind: str, user: str) -> Callable[[str], Any]:
    """One question."""
    if kind == "entries":
        return lambda text: memory.entries.ranked(text, user_id=user, unjudged=False, settle=False)
    if kind == "summaries":
        return lambda text: memory.sit.advise([{"role": "user", "content": text}], user_id=user)
    return lambda text: memory.atoms.search(
        text, state="the customer is known", slots=["ORDER_ID"], user_id=user, settle=False
    )


def measured(folder: Path, kind: str, rows: int, users: int, samples: int) -> Cost:
    """One memory filled, closed, and asked by a process of its own."""
    source, writing = texts(0), 0.0
    names = [f"user{number}@example.org" for number in range(users)]
    with opened(folder) as memory:
        for name in track(names, description=f"{kind} {users} × {rows:,}", console=Console(stderr=True)):
            user = memory.core.users.of(name)
            for start in range(0, rows, BATCH):
                said = list(islice(source, min(BATCH, rows - start)))
                before = perf_counter()
                fill(memory, kind, user, said, start)
                writing += perf_counter() - before
    disk = sum(each.stat().st_blocks * 512 for each in folder.rglob("*") if each.is_file())
    with tempfile.TemporaryDirectory() as empty:
        with opened(Path(empty)) as memory:
            fill(memory, kind, memory.core.users.of(names[0]), list(islice(source, 2)), 0)
        bare = _child(Path(empty), kind, 1, samples)
    asked = _child(folder, kind, users, samples)
    return Cost(
        kind, rows, users, asked["first_s"], asked["p50_ms"], asked["p95_ms"], asked["ram_mb"] - bare["ram_mb"],
        disk / rows / users / 1e3, writing / rows / users * 1e3,
    )  # fmt: skip


def ask(folder: Path, kind: str, users: int, samples: int) -> dict[str, float]:
    """Opens a memory and asks; to be called in a process of its own."""
    import chromadb  # noqa: F401 - takes a second, whatever is opened

    source, draw = texts(1), random.Random(0)
    begun = perf_counter()
    with opened(folder) as memory:
        asking(memory, kind, "user0@example.org")(next(source))
        first = perf_counter() - begun
        took = []
        for text in islice(source, samples):
            question = asking(memory, kind, f"user{draw.randrange(users)}@example.org")
            before = perf_counter()
            question(text)
            took.append(1e3 * (perf_counter() - before))
        ram = int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6
    return {"first_s": first, "p50_ms": median(took), "p95_ms": quantiles(took, n=20)[18], "ram_mb": ram}


def _child(folder: Path, kind: str, users: int, samples: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.rows_scale", "--ask", str(folder), kind, str(users), str(samples)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def finish_ms(runs: int) -> float:
    """Milliseconds of `finish` of a run with 10 calls on the caller's thread, all methods on (median)."""
    took = []
    with tempfile.TemporaryDirectory() as folder:
        methods = [Inertia(), SIT(SITPolicy()), Navigator(), Entries(), Atoms(keep=True)]
        with ToolMemory(folder, methods=methods) as memory:
            for number, text in enumerate(islice(texts(2), runs)):
                messages: list[dict[str, Any]] = [{"role": "user", "content": text}]
                for call in range(10):
                    wanted = {"id": f"{number}-{call}", "type": "function"}
                    function = {"name": f"tool_{call}", "arguments": json.dumps({"id": f"A-{number}", "n": call})}
                    messages.append(
                        {"role": "assistant", "content": "", "tool_calls": [{**wanted, "function": function}]}
                    )
                    messages.append(
                        {"role": "tool", "tool_call_id": wanted["id"], "content": f'{{"id": "B-{number}-{call}"}}'}
                    )
                messages.append({"role": "assistant", "content": "Done."})
                memory.observe(messages, thread_id=str(number))  # as a recorder does while the run goes on
                before = perf_counter()
                memory.finish(messages, thread_id=str(number), success=True)
                took.append(1e3 * (perf_counter() - before))
                memory.flush()
    return median(took[len(took) // 5 :])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["--ask"]:
        print(json.dumps(ask(Path(given[1]), given[2], int(given[3]), int(given[4]))))
        return 0
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rows_scale", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--rows", type=int, nargs="*", default=[1_000, 100_000], help="of one user")
    parser.add_argument("--users", type=int, default=1_000, help="how many users with 100 rows each; 0: leave out")
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--finish", type=int, default=50, help="runs that are finished; 0: leave out")
    parser.add_argument("--json", type=Path, dest="json_file")
    options = parser.parse_args(given)
    sizes = [(rows, 1) for rows in options.rows] + ([(100, options.users)] if options.users else [])
    costs = []
    for kind in options.kinds:
        for rows, users in sizes:
            with tempfile.TemporaryDirectory() as folder:
                costs.append(measured(Path(folder), kind, rows, users, options.samples))
    table = Table(title="Rows in Chroma on disk, built-in embedder", title_justify="left")
    for head in ("kind", "rows", "users", "first", "p50", "p95", "RAM +", "disk/row", "write/row"):
        table.add_column(head, justify="right")
    for each in costs:
        table.add_row(
            each.kind, f"{each.rows:,}", f"{each.users:,}", f"{each.first_s:.2f} s", f"{each.p50_ms:.1f} ms",
            f"{each.p95_ms:.1f} ms", f"{each.more_mb:.0f} MB", f"{each.row_kb:.1f} KB", f"{each.put_ms:.2f} ms",
        )  # fmt: skip
    Console(width=120).print(table)
    checks = [check for each in costs for check in _checks(each)]
    if options.finish:
        finish = finish_ms(options.finish)
        checks.append((finish <= FINISH_MS, f"finish of a run with 10 calls: p50 {finish:.1f} ms <= {FINISH_MS:g}"))
    for holds, text in checks:
        print(f"{'holds' if holds else 'MISSED'}  {text}")
    if options.json_file is not None:
        plain = {"costs": [asdict(each) for each in costs], "targets": [{"holds": h, "target": t} for h, t in checks]}
        options.json_file.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    return 0


def _checks(cost: Cost) -> Iterator[tuple[bool, str]]:
    name = f"{cost.kind}, {cost.users:,} × {cost.rows:,}"
    yield cost.first_s <= FIRST_S, f"{name}: first after opening {cost.first_s:.2f} s <= {FIRST_S:g}"
    yield cost.p50_ms <= P50_MS, f"{name}: p50 {cost.p50_ms:.1f} ms <= {P50_MS:g}"
    yield cost.p95_ms <= P95_MS, f"{name}: p95 {cost.p95_ms:.1f} ms <= {P95_MS:g}"
    if cost.users == 1:
        yield cost.more_mb <= MORE_MB, f"{name}: {cost.more_mb:.0f} MB more RAM <= {MORE_MB:g}"
    if cost.kind == "entries" and cost.users == 1 and cost.rows > BATCH:
        yield cost.row_kb <= ENTRY_KB, f"{name}: {cost.row_kb:.1f} KB on disk each <= {ENTRY_KB:g}"


if __name__ == "__main__":
    sys.exit(main())
