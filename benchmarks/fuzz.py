"""Damaged and hostile folders: does any of them hang the host, end it, or cost more than was damaged?

    python -m benchmarks.fuzz [--files 10000] [--seed 0] [--json FILE]

Each trial takes the folder of a memory with all methods, closed or as a kill leaves it, and changes one file by its
seed: bits, pages and cuts of ``memory.db``, the snapshots and the files of Chroma; a pickle with a right checksum and
hostile content; SQL run in ``memory.db`` or in Chroma's database by another program; cells of the rows of texts. A
child process opens the folder, predicts, recalls, plans, runs an agent with all features, learns, reports, closes
the memory and opens it again. A process does twenty trials, or as many as it survives. Counted are:

- hangs: trials of more than 5 seconds of the processor;
- ends: trials in which the process ended, the agent raised, or opening or closing did, but for `StorageError` of an
  unchanged file;
- raised: trials in which a developer's call (`predict`, `recall`, `report`) raised; steps of agents catch that;
- lost events: those that lie on no page that was changed, and are gone;
- silent losses: those that no problem of the report announces;
- later events: those learned after the damage that are gone at the next opening;
- rows: those that are gone, or are not recalled, though Chroma's files alone were damaged.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import random
import shutil
import signal
import sqlite3
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from rich.table import Table

from benchmarks import command, conclude, show
from benchmarks.apart import in_child, in_child_with_imports
from langgraph_toolmem import Atoms, StorageError, ToolMemory, default_methods
from langgraph_toolmem.core.jobs import Job, JobQueue
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.stores import snapshot
from langgraph_toolmem.stores.database import NAME
from langgraph_toolmem.stores.events import INSERT_EVENT, OLDER_SNAPSHOT, SNAPSHOT, EventRow
from langgraph_toolmem.testing import ScriptedChatModel, call_tool

PAGE: Final = 4096
MARKS: Final = 160
SNAPSHOTS: Final = (40, 80, 120)
"""Events after which a snapshot is written."""
HANG_SECONDS: Final = 5.0
KILL_SECONDS: Final = 60
TRIALS_OF_A_PROCESS: Final = 20
"""Chroma keeps some 3 MB of each folder that a process opened."""
LATER: Final = 3
PEOPLE: Final = ("Ann", "Ben", "Cleo", "Dora", "Emil", "Finn", "Gita", "Hugo")
ROWS: Final = 8
"""Runs whose entries are to be recalled."""
CHROMA: Final = "chroma"


@dataclass(slots=True)
class Template:
    """A folder to damage: `pages` are those of the event behind each mark, `shared` those that all marks need."""

    folder: Path
    pages: dict[int, int] = field(default_factory=dict)
    shared: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Trial:
    """One trial and its outcome."""

    seed: int
    kind: str = ""
    ended: str = ""
    seconds: float = 0.0
    lost: int = 0
    lost_elsewhere: int = 0
    silent: int = 0
    later: int = 0
    rows: int = 0
    raised: str = ""
    refused: bool = False

    @property
    def bad(self) -> bool:
        """True if it is one of those that must not be."""
        lost = self.lost_elsewhere or self.silent or self.later or self.rows
        return bool(self.ended or lost or self.seconds > HANG_SECONDS)


# --- folders ---


def mark_of(number: int) -> str:
    return f"mark {number:03} " + "." * 300


def request_of(number: int) -> str:
    return f"find the order of {PEOPLE[number % len(PEOPLE)]} {number}"


def run_of(number: int) -> list[Any]:
    call = {"id": f"c{number}", "type": "function", "function": {"name": "find", "arguments": f'{{"x": {number}}}'}}
    return [
        ("user", request_of(number)),
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": f"O-{number}"},
        ("assistant", "Done."),
    ]


def find(x: int) -> str:
    """Find an order."""
    return f"O-{x}"


def answer_of(messages: list[Any], tools: list[Any]) -> AIMessage:
    """The model of the agent: one look-up, then an answer."""
    del tools
    asked = messages[-1]
    return call_tool("find", x=int(asked.text.split()[-1])) if asked.type == "human" else AIMessage("Done.")


def opened(folder: Path) -> ToolMemory:
    return ToolMemory(folder, [find], reads={"find"}, methods=default_methods(Atoms(keep=True)))


def run_agent(memory: ToolMemory, number: int) -> None:
    """Run an agent with all features once; raise RuntimeError if it does not answer."""
    features: Any = dict.fromkeys(("recall", "suggest", "planning", "reflect", "prefetch", "preferences"), True)
    middleware = tool_memory_middleware(memory, outer=[], loop_guard=True, **features)
    agent = create_agent(ScriptedChatModel(script=answer_of), [find], middleware=middleware)
    asked: Any = {"messages": [("user", request_of(number))]}
    found = agent.invoke(asked, {"configurable": {"thread_id": f"agent {number}"}})
    if found["messages"][-1].text != "Done.":
        raise RuntimeError("the agent did not answer")


def make_templates(place: Path) -> list[Template]:
    """Return a folder that was closed, and one that was copied while it was open.

    A process of its own makes them: Chroma cannot be used by children of a process that has used it.
    """
    in_child_with_imports(lambda: make_folders(place), place / "modules.json")
    return [described(place / "closed"), Template(place / "killed", shared=set(range(1, 1_000)))]


def make_folders(place: Path) -> None:
    with opened(place / "live") as memory:
        for number in range(ROWS):
            memory.finish(run_of(number), thread_id=str(number), success=True)
        for number in range(ROWS, ROWS + 2):
            run_agent(memory, number)
        ask(memory, Trial(0))
        memory.flush()
        for mark in range(MARKS):
            memory.core.count(mark_of(mark))
            if mark in SNAPSHOTS:
                memory.core.store.snapshot()
        with JobQueue(place / "live", now=time.time) as queue:
            queue.put([Job(f"job {number}", "nobody", {"text": f"of job {number}"}) for number in range(20)])
        shutil.copytree(place / "live", place / "killed")
    shutil.copytree(place / "live", place / "closed")


def described(folder: Path) -> Template:
    """Find the pages of the table of events."""
    file = folder / NAME
    with closing(sqlite3.connect(file)) as database:
        (root,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events'").fetchone()
        seqs = database.execute("SELECT seq, body FROM events").fetchall()
    data, found = file.read_bytes(), Template(folder, shared={1})
    of_row = dict(leaves(data, root, found.shared))
    for seq, body in seqs:
        for kind, *values in json.loads(body):
            if kind == "count" and str(values[0]).startswith("mark "):
                found.pages[int(values[0][5:8])] = of_row[seq]
    return found


def leaves(data: bytes, page: int, inner: set[int]) -> Iterator[tuple[int, int]]:
    """Yield row numbers of a table with their pages; https://www.sqlite.org/fileformat2.html#b_tree_pages."""
    start = (page - 1) * PAGE
    head = start + (100 if page == 1 else 0)
    kind, cells = data[head], int.from_bytes(data[head + 3 : head + 5], "big")
    size = 12 if kind == 5 else 8
    places = struct.unpack_from(f">{cells}H", data, head + size)
    if kind == 5:
        inner.add(page)
        children = [int.from_bytes(data[start + place : start + place + 4], "big") for place in places]
        for child in [*children, int.from_bytes(data[head + 8 : head + 12], "big")]:
            yield from leaves(data, child, inner)
        return
    for place in places:
        _, at = varint(data, start + place)
        number, _ = varint(data, at)
        yield number, page


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    while data[at] & 0x80:
        value = value << 7 | data[at] & 0x7F
        at += 1
    return value << 7 | data[at], at + 1


# --- damage ---


def change_bytes(data: bytearray, chance: random.Random) -> tuple[str, set[int]]:
    """Change the bytes of a file; return how, and the pages that changed."""
    pages = max(1, len(data) // PAGE)
    how = chance.choice(["bit", "bit", "bit", "bits", "cut", "zeros", "noise", "another page", "swapped", "longer"])
    page = chance.randrange(pages)
    other = chance.randrange(pages)
    span, from_other = slice(page * PAGE, page * PAGE + PAGE), slice(other * PAGE, other * PAGE + PAGE)
    changed = {page + 1}
    if how in ("bit", "bits"):
        places = [chance.randrange(len(data)) for _ in range(1 if how == "bit" else 8)]
        for at in places:
            data[at] ^= 1 << chance.randrange(8)
        changed = {at // PAGE + 1 for at in places}
    elif how == "cut":
        del data[chance.randrange(len(data)) :]
        changed = set(range(len(data) // PAGE + 1, pages + 1))
    elif how == "zeros":
        data[span] = bytes(len(data[span]))
    elif how == "noise":
        data[span] = chance.randbytes(len(data[span]))
    elif how == "another page":
        data[span] = data[from_other]
    elif how == "swapped":
        data[span], data[from_other] = data[from_other], data[span]
        changed |= {other + 1}
    else:
        data += chance.randbytes(chance.randrange(1, 3 * PAGE))
        changed = set()
    return how, changed


OPCODES: Final = b"]}(NK\x8c\x88\x89aesu\x94hjGM.)\x85\x86\x87t\x8a\x8b\x95B0cRi\x82\x93"


def hostile_pickle(state: dict[str, Any], chance: random.Random) -> bytes:
    """Return a file with a right checksum: opcodes by chance, a bomb, or a state with strange parts."""
    how = chance.randrange(3)
    if how == 0:
        payload = b"\x80\x04" + bytes(chance.choice(OPCODES) for _ in range(chance.randrange(1, 400))) + b"."
    elif how == 1:
        number = chance.choice([60, 3_000, 200_000])
        small = min(number, 200)
        payload = chance.choice(
            [
                b"\x80\x04})" + b"\x85" * number + b"Ns.",
                b"\x80\x04" + b"]" * number + b"a" * (number - 1) + b".",
                b"\x80\x04](]\x94" + b"".join(b"](h%ch%ce\x94" % (n, n) for n in range(small)) + b"e.",
                b"\x80\x04](" + b"]" * number + b"e.",
                b"\x80\x04](" + b"".join(b"h%c" % (n % 256) for n in range(number)) + b"e.",
                b"\x80\x04\x8b" + struct.pack("<i", chance.choice([-1, number, 2**31 - 1])) + b"\1" * number + b".",
            ]
        )
    else:
        mutated = mutate(state, chance, 0.02)
        payload = pickle.dumps({"upto": chance.choice([0, 5, 2**40, -1, "x", None]), "state": mutated}, 4)
    head = struct.pack("<8sHQ", b"\x93TOOLMEM", snapshot.SNAPSHOT_FORMAT, len(payload))
    return head + hashlib.blake2b(payload, digest_size=16).digest() + payload


STRANGE: Final[list[Callable[[], Any]]] = [
    lambda: None, lambda: -1, lambda: 2**70, lambda: 1e308, lambda: float("nan"), lambda: "", lambda: "x" * 10_000,
    lambda: [], lambda: {}, lambda: b"\0", lambda: True, lambda: [[[[]]]], lambda: {"a": {"b": [1, None]}},
]  # fmt: skip


def mutate(value: Any, chance: random.Random, share: float) -> Any:
    """Return a plain value with some of its parts replaced."""
    if chance.random() < share:
        return chance.choice(STRANGE)()
    if isinstance(value, dict):
        return {key: mutate(item, chance, share) for key, item in value.items()}
    if isinstance(value, list):
        return [mutate(item, chance, share) for item in value]
    return value


LONG: Final = "(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n FROM c)"
TABLES: Final = ("events", "jobs", "meta", "namespaces", "rows", "collections", "stale")
CELLS: Final = (
    "NULL", "-1", "9223372036854775807", "1e308", "'x'", "x'ff00'", "CAST(x'ff' AS TEXT)", "zeroblob(99999)", "'[[]]'",
    "'{}'", "''", "randomblob(50)", "9e999", "'NaN'",
)  # fmt: skip


def hostile_sql(chance: random.Random) -> list[str]:
    """Return what a stranger runs in the file."""
    table = chance.choice(TABLES)
    columns = {
        "events": ("key", "user", "run", "body", "checksum", "origin", "number", "seq"),
        "jobs": ("seq", "kind", "payload", "namespace", "due", "lease", "takes", "attempts", "dead", "answer"),
        "meta": ("name", "value"),
        "namespaces": ("run", "namespace", "user"),
        "rows": ("number", "first", "collection", "id", "key", "part", "owners", "text", "metadata"),
        "collections": ("name", "kind", "namespace", "changed", "indexed", "turn", "doomed"),
        "stale": ("number", "collection", "key"),
    }[table]
    cell, column = chance.choice(CELLS), chance.choice(columns)
    some = f"rowid % {chance.randrange(2, 9)} = 0"
    return chance.choice(
        [
            [f"UPDATE OR IGNORE {table} SET {column} = {cell} WHERE {some}"],
            [f"UPDATE OR IGNORE {table} SET {column} = {cell} WHERE {some}"],
            [f"ALTER TABLE {table} RENAME TO other", f"CREATE VIEW {table} AS SELECT * FROM {LONG}"],
            [f"CREATE TRIGGER t AFTER INSERT ON {table} BEGIN INSERT INTO meta SELECT n, n FROM {LONG}; END"],
            [f"CREATE TRIGGER t BEFORE DELETE ON {table} BEGIN SELECT RAISE(ABORT, 'no'); END"],
            [f"CREATE INDEX i ON {table} (length(hex(zeroblob(1e8))))"],
            [f"ALTER TABLE {table} ADD COLUMN more AS (hex(zeroblob(4e8)))"],
            [f"ALTER TABLE {table} ADD COLUMN more CHECK (more IS NULL OR length(hex(zeroblob(4e8))))"],
            [f"ALTER TABLE {table} DROP COLUMN {column}"],
            [f"DROP TABLE {table}"],
            ["CREATE TABLE foreign_one (a)", "INSERT INTO foreign_one VALUES (1)"],
            ["CREATE VIRTUAL TABLE f USING fts5(a)"],
            [f"UPDATE sqlite_sequence SET seq = {cell}"],
            ["DELETE FROM sqlite_sequence"],
            [f"INSERT OR REPLACE INTO meta VALUES ('upto', {cell})"],
            [f"PRAGMA user_version = {chance.randrange(9)}"],
            [f"PRAGMA application_id = {chance.choice([0, 7])}"],
            ["PRAGMA writable_schema = ON", f"UPDATE sqlite_master SET rootpage = {chance.randrange(1, 12)} "
             f"WHERE name = '{table}'"],
            ["PRAGMA writable_schema = ON", f"UPDATE sqlite_master SET sql = replace(sql, 'TEXT', 'BLOB') "
             f"WHERE name = '{table}'"],
        ]
    )  # fmt: skip


def strange_body(chance: random.Random) -> str:
    """Return the body of an event: JSON of any shape, or none."""
    known = ["count", "run_seen", "verdict", "request", "request_call", "successor", "user_forgotten", "arguments", "-"]
    values = [chance.choice([*STRANGE[:8], STRANGE[10], STRANGE[11]])() for _ in range(chance.randrange(6))]
    text = json.dumps([[chance.choice(known), *values]], default=str)
    return chance.choice([text, text, text[: len(text) // 2], "[" * 50_000, text.replace("1e+308", "1e999")])


def strange_rows(database: sqlite3.Connection, chance: random.Random) -> None:
    """Change cells of rows of texts: values of their metadata, and of the JSON in it."""
    for number, text in database.execute("SELECT number, metadata FROM rows").fetchall():
        metadata = json.loads(text)
        for name, value in metadata.items():
            if isinstance(value, str) and value.startswith("{") and chance.random() < 0.5:
                metadata[name] = json.dumps(mutate(json.loads(value), chance, 0.2), default=str)
        changed = mutate(metadata, chance, 0.1)
        database.execute(
            "UPDATE rows SET metadata = ? WHERE number = ?",
            (json.dumps(changed, default=str).replace("1e+308", chance.choice(["1e999", "1e308", "NaN"])), number),
        )


def strange_jobs(database: sqlite3.Connection, chance: random.Random) -> None:
    """Put jobs of our kinds with payloads of others."""
    kinds = ("index", "forget rows", "write", "judge", "atoms")
    names = "id, kind, payload, run, user, namespace, ordering_key, due"
    for number in range(20):
        payload = {"collection": 3, "user": None, "runs": [], "entry": "x", "score": 2, "steps": [1]}
        text = json.dumps(mutate(payload, chance, 0.5), default=str)
        columns = (f"strange {number}", chance.choice(kinds), text)
        database.execute(f"INSERT INTO jobs ({names}) VALUES (?, ?, ?, 'r', '', '[\"toolmem\"]', '', 0)", columns)


def hostile_chroma(database: sqlite3.Connection, chance: random.Random) -> None:
    """Run SQL in Chroma's database, as another program might."""
    names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    table = chance.choice([name for name in names if not name.startswith("sqlite_")])
    columns = [row[1] for row in database.execute(f"PRAGMA table_info('{table}')")]
    statement = chance.choice(
        [
            f"DELETE FROM '{table}'",
            f"DELETE FROM '{table}' WHERE rowid % 3 = 0",
            f"DROP TABLE '{table}'",
            f"UPDATE OR IGNORE '{table}' SET '{chance.choice(columns)}' = {chance.choice(CELLS)}",
            f"UPDATE OR IGNORE '{table}' SET '{chance.choice(columns)}' = {chance.choice(CELLS)}",
            f"CREATE TRIGGER t AFTER INSERT ON '{table}' BEGIN SELECT RAISE(ABORT, 'no'); END",
        ]
    )
    database.execute(statement)


CONTENTS: Final[dict[str, tuple[str, Callable[[sqlite3.Connection, random.Random], None]]]] = {
    "texts": (NAME, strange_rows),
    "jobs": (NAME, strange_jobs),
    "chroma sql": (f"{CHROMA}/chroma.sqlite3", hostile_chroma),
}
"""Changes of what tables hold: the file, and what makes them."""


def damage_chroma(folder: Path, chance: random.Random) -> str:
    """Damage one of Chroma's files, or remove it; return how."""
    files = sorted(file for file in (folder / CHROMA).rglob("*") if file.is_file())
    file = chance.choice([*files, folder / CHROMA / "chroma.sqlite3"])
    if chance.random() < 0.1:
        file.unlink()
        return f"{CHROMA}: no {file.name}"
    data, how = bytearray(file.read_bytes()), "longer"
    if data:
        how, _ = change_bytes(data, chance)
    else:
        data += chance.randbytes(5_000)
    file.write_bytes(data)
    return f"{CHROMA}: {file.name} {how}"


KINDS: Final = (
    *(NAME, NAME, NAME, SNAPSHOT, OLDER_SNAPSHOT, "sql", "sql", "rows", "pickle", "pickle"),
    *(CHROMA, CHROMA, CHROMA, *CONTENTS),
)


def damage(folder: Path, chance: random.Random) -> tuple[str, set[int] | None]:
    """Damage a copy of the folder; return how, and the pages of ``memory.db`` that changed (None: any)."""
    logs = sorted(file.name for file in folder.glob(f"{NAME}-*"))
    name = chance.choice([*KINDS, *logs, *logs])
    if name == CHROMA:
        return damage_chroma(folder, chance), set()
    if name in CONTENTS:
        where, change = CONTENTS[name]
        with closing(sqlite3.connect(folder / where, isolation_level=None)) as database, suppress(sqlite3.Error):
            change(database, chance)
        return name, set()
    if name == "pickle":
        state = snapshot.read_file(folder / SNAPSHOT)["state"]
        (folder / chance.choice([SNAPSHOT, OLDER_SNAPSHOT])).write_bytes(hostile_pickle(state, chance))
        return name, None
    if name in ("sql", "rows"):
        with closing(sqlite3.connect(folder / NAME, isolation_level=None)) as database, suppress(sqlite3.Error):
            if name == "rows":
                for _ in range(20):
                    database.execute(INSERT_EVENT, EventRow(None, "", "", strange_body(chance)).columns())
                return name, set()
            for statement in hostile_sql(chance):
                database.execute(statement)
        return name, None
    file = folder / name
    data = bytearray(file.read_bytes())
    how, pages = change_bytes(data, chance)
    file.write_bytes(data)
    return f"{name}: {how}", pages if name == NAME else None if name in logs else set()


# --- trials ---

COUNTED: Final = ("lost", "lost_elsewhere", "silent", "later", "rows")


def marks_of(memory: ToolMemory) -> set[int]:
    memory.core.refresh()
    counters = memory.core.graph.counters
    return {mark for mark in range(MARKS) if counters.get(mark_of(mark)) == 1}


def asked(trial: Trial, call: Callable[[], object]) -> None:
    """Make a developer's call. Steps of an agent catch what it raises."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - counted
        trial.raised = f"{type(error).__name__}: {error}"[:200]


def ask(memory: ToolMemory, trial: Trial) -> None:
    """Ask all methods."""
    said = [("user", request_of(3))]
    asked(trial, lambda: memory.inertia.predict(said))
    asked(trial, lambda: memory.sit.suggest(said))
    asked(trial, lambda: memory.navigator.plan(request_of(3)))
    asked(trial, lambda: memory.atoms.all())
    asked(trial, lambda: memory.entries.recall(request_of(3)))


def use(memory: ToolMemory, trial: Trial) -> None:
    """Ask all methods, run an agent and learn."""
    ask(memory, trial)
    run_agent(memory, 98)
    asked(trial, lambda: memory.observe(run_of(99), thread_id="99"))
    if trial.kind.startswith(CHROMA):
        # A collection whose own mark is damaged is refused, as another program's would be: a call that raised.
        asked(trial, lambda: count_missing(trial, memory))


def count_missing(trial: Trial, memory: ToolMemory) -> None:
    """Note the entries that are gone, or are not recalled."""
    trial.rows = missing_rows(memory)


def missing_rows(memory: ToolMemory) -> int:
    """Return how many entries are gone, or are not recalled by their own request."""
    memory.flush(timeout=KILL_SECONDS / 2)
    user = memory.core.users.of(None)
    kept = {entry.query for entry in memory.entries.rows.all(user)}
    missing = 0
    for number in range(ROWS):
        text = request_of(number)
        found = [hit.item.query for hit in memory.entries.rows.near(text, user, k=4, part="judged")]
        missing += text not in kept or text not in found
    return missing


def live(template: Template, folder: Path, trial: Trial) -> None:
    """Damage the folder and use it as a host does."""
    shutil.copytree(template.folder, folder)
    trial.kind, pages = damage(folder, random.Random(trial.seed))
    before = (folder / NAME).read_bytes() if (folder / NAME).exists() else b""
    begun = time.process_time()
    try:
        memory = opened(folder)
    except StorageError:
        trial.refused = before == (folder / NAME).read_bytes()
        trial.ended = "" if trial.refused else "the constructor raised and changed the file"
        return
    with memory:
        use(memory, trial)
        for number in range(LATER):
            memory.core.count(f"later {number}")
        memory.flush(timeout=2)
        left = marks_of(memory)
        asked(trial, lambda: str(memory.report()))
        problems = list(memory.core.problems())
    with opened(folder) as memory:
        left &= marks_of(memory)
        counters = memory.core.graph.counters
        trial.later = sum(counters.get(f"later {number}") != 1 for number in range(LATER))
        problems += memory.core.problems()
    trial.seconds = time.process_time() - begun
    lost = set(range(MARKS)) - left
    trial.lost = len(lost)
    if pages is not None and not pages & template.shared:
        trial.lost_elsewhere = sum(template.pages.get(mark, 0) not in pages for mark in lost)
    # Nobody can tell a snapshot of a right shape and checksum from the true one.
    trial.silent = 0 if problems or trial.kind == "pickle" else len(lost)


def attempt(template: Template, folder: Path, trial: Trial) -> None:
    """Do a trial, and note what raised."""
    signal.alarm(KILL_SECONDS)
    try:
        live(template, folder, trial)
    except Exception as error:  # noqa: BLE001 - counted
        trial.ended = f"{type(error).__name__}: {error}"[:300]
    signal.alarm(0)
    shutil.rmtree(folder, ignore_errors=True)


def attempts(templates: Sequence[Template], place: Path, seeds: Sequence[int]) -> list[Trial]:
    """Do trials one after another in a process of their own; end with the one that ends the process."""
    answers = place / "answers.jsonl"
    answers.unlink(missing_ok=True)

    def do() -> None:
        with answers.open("a") as file:
            for seed in seeds:
                trial = Trial(seed)
                attempt(templates[seed % len(templates)], place / f"trial-{seed}", trial)
                print(json.dumps(asdict(trial)), file=file, flush=True)

    begun = time.monotonic()
    status = in_child(do)
    lines = answers.read_text().splitlines()
    trials = [Trial(**json.loads(line)) for line in lines]
    if len(trials) < len(seeds):
        seed = seeds[len(trials)]
        seconds = time.monotonic() - begun
        trials.append(Trial(seed, ended=f"signal {status & 127}", seconds=seconds))
        shutil.rmtree(place / f"trial-{seed}", ignore_errors=True)
    return trials


def campaign(templates: Sequence[Template], place: Path, seeds: Sequence[int]) -> Iterator[Trial]:
    """Yield the trials of all seeds.

    A process takes half the time for a trial from its second one on: it has compiled its expressions and has Chroma
    loaded. A trial that is bad as one of several is done again alone, so that the other folders are no part of it.
    """
    done = 0
    while done < len(seeds):
        trials = attempts(templates, place, seeds[done : done + TRIALS_OF_A_PROCESS])
        done += len(trials)
        for trial in trials:
            yield trial
            if trial.bad:
                [alone] = attempts(templates, place, [trial.seed])
                print(f"alone: {alone}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = command("fuzz", __doc__, recorded=False)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first file")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as place:
        templates = make_templates(Path(place))
        seeds = range(options.seed, options.seed + options.files)
        trials = list[Trial]()
        for trial in campaign(templates, Path(place), seeds):
            trials.append(trial)
            if trial.bad or trial.raised:
                print(trial, file=sys.stderr, flush=True)
    bad = [each for each in trials if each.bad]
    columns = (
        "files",
        "ended",
        "hangs",
        "most s",
        "lost",
        "elsewhere",
        "silent",
        "later lost",
        "rows",
        "raised",
        "refused",
    )
    table = Table("", *columns)
    kinds = Counter(each.kind.partition(":")[0] for each in trials)
    for kind in kinds:
        some = [each for each in trials if each.kind.partition(":")[0] == kind]
        hangs = sum(each.seconds > HANG_SECONDS for each in some)
        sums = [sum(getattr(each, name) for each in some) for name in COUNTED]
        ended, refused = sum(bool(each.ended) for each in some), sum(each.refused for each in some)
        raised = sum(bool(each.raised) for each in some)
        longest = max(each.seconds for each in some)
        table.add_row(kind, *map(str, (len(some), ended, hangs, f"{longest:.2f}", *sums, raised, refused)))
    show(table)
    checks = [
        (not any(each.ended for each in trials), "no file ends the host"),
        (all(each.seconds <= HANG_SECONDS for each in trials), f"no file takes more than {HANG_SECONDS} s"),
        (not any(each.lost_elsewhere for each in trials), "no event is lost that was not damaged"),
        (not any(each.silent for each in trials), "no loss is silent"),
        (not any(each.later for each in trials), "what is learned later is kept"),
        (not any(each.rows for each in trials), "no damage of Chroma's files costs a row"),
    ]
    figures = {"files": len(trials), "bad": [asdict(each) for each in bad]}
    return conclude(checks, figures, options.json)


if __name__ == "__main__":
    sys.exit(main())
