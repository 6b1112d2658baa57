"""One file for what a memory keeps beside its graph: opening, damage, versions, what came before, several processes."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.core.users import user_digest
from langgraph_toolmem.graph.operations import Forgotten
from langgraph_toolmem.navigator.decide.recording import DecisionLog
from langgraph_toolmem.offline.discovery.state import DiscoveryState
from langgraph_toolmem.stores.cold_start import BootstrapState, forget_user
from langgraph_toolmem.stores.database import NAME, Database, look
from langgraph_toolmem.stores.job_queue import JobQueue

ANN = str(user_digest("ann"))

# The tables as the version before made them, each in a file of its own.
JOBS = """
CREATE TABLE jobs (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL,
    line TEXT NOT NULL, user TEXT NOT NULL, payload TEXT NOT NULL, answer TEXT, due REAL NOT NULL,
    owner TEXT NOT NULL DEFAULT '', lease REAL NOT NULL DEFAULT 0, takes INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0, error TEXT NOT NULL DEFAULT '', given_up INTEGER NOT NULL DEFAULT 0);
CREATE TABLE forgettings (number INTEGER PRIMARY KEY AUTOINCREMENT);
CREATE TABLE places (run TEXT PRIMARY KEY, namespace TEXT NOT NULL, user TEXT NOT NULL);
CREATE INDEX jobs_line ON jobs (line, seq);
"""
TURNS = """
CREATE TABLE turns (seq INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL, task TEXT NOT NULL, step INTEGER NOT NULL,
    prompt TEXT NOT NULL, same TEXT NOT NULL, user TEXT NOT NULL, time REAL NOT NULL, final INTEGER NOT NULL,
    calls INTEGER NOT NULL, failed INTEGER, left_out INTEGER NOT NULL, body BLOB NOT NULL, UNIQUE (run, step, prompt));
CREATE INDEX turns_user ON turns (user);
"""
QUERIES = """
CREATE TABLE queries (seq INTEGER PRIMARY KEY AUTOINCREMENT, scope TEXT NOT NULL, user TEXT NOT NULL,
    id TEXT NOT NULL UNIQUE, text TEXT NOT NULL, tools TEXT NOT NULL, kind TEXT NOT NULL,
    stage TEXT NOT NULL DEFAULT 'waiting', tries INTEGER NOT NULL DEFAULT 0, deaths INTEGER NOT NULL DEFAULT 0,
    entry TEXT, answer TEXT, judged INTEGER NOT NULL DEFAULT 0, outcome TEXT NOT NULL DEFAULT '',
    error TEXT NOT NULL DEFAULT '');
CREATE TABLE spent (scope TEXT NOT NULL, purpose TEXT NOT NULL, calls INTEGER NOT NULL, tokens INTEGER NOT NULL,
    PRIMARY KEY (scope, purpose));
CREATE INDEX queries_stage ON queries (scope, stage, seq);
"""


@contextmanager
def written_before(path: Path, tables: str, version: int = 1) -> Iterator[sqlite3.Connection]:
    """A file as the version before left it."""
    path.parent.mkdir(exist_ok=True)
    with closing(sqlite3.connect(path)) as file:
        file.executescript(f"PRAGMA journal_mode = WAL; PRAGMA user_version = {version}; {tables}")
        with file:
            yield file


def old_queue(folder: Path, keys: str = "abc", version: int = 1) -> Path:
    with written_before(folder / JobQueue.before, JOBS, version) as file:
        for key in keys:
            file.execute(
                "INSERT INTO jobs (id, kind, line, user, payload, due, takes) VALUES (?, 'k', 'l', ?, ?, 5, 1)",
                (key, ANN, json.dumps({"text": f"secret of {key}"})),
            )
        file.execute("INSERT INTO places VALUES ('run', '[\"toolmem\", \"x\"]', ?)", (ANN,))
        file.execute("INSERT INTO forgettings (number) VALUES (7)")
    return folder / JobQueue.before


def queue(folder: Path) -> JobQueue:
    return JobQueue(folder, now=time.time)


def decision(step: int, text: str = "x") -> dict[str, Any]:
    said = {"sub_intents": [{"rank": 0, "intent": "x", "action": "answer", "text": text}]}
    return {"messages": [{"role": "user", "content": text}], "decision": said, "thread_id": "r", "step": step}


def ids(jobs: JobQueue) -> list[str]:
    """Takes and does all jobs."""
    found = []
    while (job := jobs.take()) is not None:
        found.append(job.id)
        jobs.done(job)
    return found


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


# --- one file ---


def test_all_owners_are_in_one_file(tmp_path: Path) -> None:
    with queue(tmp_path) as jobs, DecisionLog(tmp_path) as log, BootstrapState(tmp_path, ("toolmem",)) as state:
        jobs.put("1", {})
        log(decision(1))
        state.add("a request", ["a"], "one")
        with Database(tmp_path) as file:
            names = {name for (name,) in file.ask("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert names - {"sqlite_sequence"} == {"jobs", "places", "forgettings", "turns", "queries", "spent"}
    assert set(files(tmp_path)) == {NAME}


def test_what_an_owner_forgets_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    with queue(tmp_path) as jobs, DecisionLog(tmp_path) as log, BootstrapState(tmp_path, (), user="u") as state:
        jobs.put("1", {}, user="u")
        log({**decision(1), "user_id": "ann"})
        state.add("a request", [], "one")
        assert jobs.forget("u") == 1
        assert (len(log), len(state.all())) == (1, 1)
        assert log.forget(Forgotten(ANN)) == 1
        assert len(state.all()) == 1
        assert forget_user(tmp_path, "u") == 1
        assert state.all() == []
        jobs.put("2", {})
        log(decision(2))
        assert ids(jobs) == ["2"]
        assert [turn.step for turn in log.turns()] == [2]


@pytest.mark.parametrize("seed", range(3))
def test_no_copy_of_what_is_forgotten_stays_in_a_page_or_the_log(tmp_path: Path, seed: int) -> None:
    """Pages that are split and merged keep copies: of these, tens were left where deleting was all that was done."""
    dice = random.Random(seed)
    with queue(tmp_path) as jobs:
        for _ in range(75):
            with jobs.writing() as database:
                for _ in range(40):
                    user = dice.choice("uv")
                    text = f"{'private' if user == 'u' else 'common'}-{dice.random()}"
                    row = (text, dice.choice("abc") + text, user, text * dice.randrange(1, 30))
                    database.execute(
                        "INSERT INTO jobs (id, kind, line, user, payload, due) VALUES (?, '', ?, ?, ?, 0)", row
                    )
                    database.execute("INSERT INTO places VALUES (?, ?, ?)", (f"{dice.random()}", text, user))
                    at = dice.randrange(3000)
                    if dice.random() < 0.4:
                        database.execute("DELETE FROM jobs WHERE seq = ?", (at,))
                    answer = "private" * dice.randrange(1, 50)
                    database.execute("UPDATE jobs SET answer = ? WHERE seq = ? AND user = 'u'", (answer, at))
        left = jobs.pending()
        assert 0 < jobs.forget("u") < left
        assert not [name for name, content in files(tmp_path).items() if b"private" in content]
        assert jobs.pending() > 0


# --- the files of the version before ---


def test_old_files_are_taken_over_and_go(tmp_path: Path) -> None:
    old_queue(tmp_path)
    with written_before(tmp_path / DecisionLog.before, TURNS) as file:
        for step in (1, 2):
            row = ("r", "t", step, "p", "s", ANN, 3.0, 0, 2, None, 1, b"x")
            file.execute(f"INSERT INTO turns VALUES (NULL, {', '.join('?' * 12)})", row)
    with queue(tmp_path) as jobs:
        assert not jobs.empty
        assert jobs.forgettings == 7
        assert (jobs.place_of("run"), jobs.owner_of("run")) == (("toolmem", "x"), ANN)
        job = jobs.take()
        assert job is not None
        assert (job.id, job.payload, job.takes, job.user) == ("a", {"text": "secret of a"}, 2, ANN)
        assert jobs.take() is None  # of one line, as it was
        jobs.done(job)
        assert ids(jobs) == ["b", "c"]
    assert set(files(tmp_path)) == {NAME, DecisionLog.before}  # who is not asked for waits
    with DecisionLog(tmp_path) as log:
        assert [(turn.step, turn.calls, turn.failed, turn.left_out) for turn in log.turns()] == [
            (1, 2, None, 1),
            (2, 2, None, 1),
        ]
        assert log.forget(Forgotten(ANN)) == 2
    assert set(files(tmp_path)) == {NAME}


def test_a_cold_start_goes_on_behind_the_old_file(tmp_path: Path) -> None:
    with BootstrapState(tmp_path / "new", ("toolmem",)) as state:
        state.add("One", ["a"], "one")
        state.add("Two", ["a", "b"], "several")
        state.spend("invent", calls=2, tokens=30)
        queries = state.all()
        rows = state.ask("SELECT scope, user, id, text, tools, kind FROM queries")
        scope = rows[0][0]
    with written_before(tmp_path / BootstrapState.before, QUERIES) as file:
        file.executemany("INSERT INTO queries (scope, user, id, text, tools, kind) VALUES (?, ?, ?, ?, ?, ?)", rows)
        file.execute("INSERT INTO spent VALUES (?, 'invent', 2, 30)", (scope,))
    with BootstrapState(tmp_path, ("toolmem",)) as state:
        assert state.all() == queries
        assert state.spent() == (2, 30)
        assert not state.add("One", ["a"], "one")
    assert not (tmp_path / BootstrapState.before).exists()


def test_forgetting_a_user_reaches_old_files_nobody_opened(tmp_path: Path) -> None:
    with ToolMemory(tmp_path) as memory:
        memory.finish([("user", "x")], thread_id="r", user_id="ann")
    old_queue(tmp_path)
    with written_before(tmp_path / BootstrapState.before, QUERIES) as file:
        row = ("s", ANN, "i", "secret request", "[]", "one")
        file.execute("INSERT INTO queries (scope, user, id, text, tools, kind) VALUES (?, ?, ?, ?, ?, ?)", row)
    with ToolMemory(tmp_path) as memory:
        memory.forget(user_id="ann")
        assert not [name for name, content in files(tmp_path).items() if b"secret" in content]


def test_what_was_taken_over_is_not_taken_over_again(tmp_path: Path) -> None:
    """A process that is killed before it deletes the old file has its jobs not done twice."""
    kept = tmp_path / "kept"
    shutil.copy2(old_queue(tmp_path), kept)
    with queue(tmp_path) as jobs:
        assert ids(jobs) == ["a", "b", "c"]
    shutil.copy2(kept, tmp_path / JobQueue.before)
    with queue(tmp_path) as jobs:
        assert jobs.pending() == 0
    assert not (tmp_path / JobQueue.before).exists()
    old_queue(tmp_path, "defg")  # the version before was at work again
    with queue(tmp_path) as jobs:
        assert ids(jobs) == ["d", "e", "f", "g"]


KILLED = """
import os, sys, time
from pathlib import Path
from langgraph_toolmem.stores.job_queue import JobQueue
at, calls = int(sys.argv[2]), 0
def stop(*_):
    global calls
    calls += 1
    if calls == at:
        os._exit(9)
unlink = Path.unlink
Path.unlink = lambda path, **how: (stop(), unlink(path, **how))
queue = JobQueue(Path(sys.argv[1]), now=time.time)
queue.put("new", {})
while (job := queue.take()) is not None:
    queue.done(job)
"""


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_process_may_be_killed_while_it_deletes_the_old_file(tmp_path: Path, at: int) -> None:
    old_queue(tmp_path)
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(at)]
    assert subprocess.run(command, check=False).returncode == 9
    with queue(tmp_path) as jobs:
        assert ids(jobs) == ["a", "b", "c"]
    assert set(files(tmp_path)) == {NAME}


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
def test_a_process_that_is_killed_at_any_moment_loses_nothing_old(tmp_path: Path) -> None:
    keys = [str(number) for number in range(3000)]
    dice = random.Random(1)
    for round_ in range(3):
        folder = tmp_path / str(round_)
        with written_before(folder / JobQueue.before, JOBS) as file:
            rows = [(key, json.dumps({"text": key * 300})) for key in keys]
            sql = "INSERT INTO jobs (id, kind, line, user, payload, due) VALUES (?, 'k', '', 'u', ?, 5)"
            file.executemany(sql, rows)
        code = (
            "import sys, time; from pathlib import Path; from langgraph_toolmem.stores.job_queue import JobQueue\n"
            "print('go', flush=True); queue = JobQueue(Path(sys.argv[1]), now=time.time); queue.revive()"
        )
        process = subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(dice.uniform(0, 0.06))
        process.kill()
        process.communicate()
        with queue(folder) as jobs:
            assert jobs.pending() == len(keys)
            assert [key for (key,) in jobs.ask("SELECT id FROM jobs ORDER BY seq")] == keys
        assert set(files(folder)) == {NAME}


WORKER = """
import sys, time
from pathlib import Path
from langgraph_toolmem.stores.job_queue import JobQueue
print("ready", flush=True)
sys.stdin.readline()
queue = JobQueue(Path(sys.argv[1]), now=time.time)
while (job := queue.take()) is not None:
    assert queue.done(job)
    print(job.id, flush=True)
"""


def test_two_processes_take_an_old_file_over_at_once(tmp_path: Path) -> None:
    with written_before(tmp_path / JobQueue.before, JOBS) as file:
        sql = "INSERT INTO jobs (id, kind, line, user, payload, due) VALUES (?, 'k', '', '', '{}', 5)"
        file.executemany(sql, [(str(number),) for number in range(300)])
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-c", WORKER, str(tmp_path)]
    workers = [subprocess.Popen(command, text=True, **pipes) for _ in range(2)]
    for each in workers:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in workers:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    said = [each.communicate(timeout=60) for each in workers]
    assert [error for _, error in said] == ["", ""]
    assert sorted(int(key) for out, _ in said for key in out.split()) == list(range(300))
    assert set(files(tmp_path)) == {NAME}


def test_a_damaged_old_file_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / JobQueue.before).write_bytes(b"not a database at all " * 100)
    with queue(tmp_path) as jobs:
        jobs.put("1", {})
        assert ids(jobs) == ["1"]
    assert set(files(tmp_path)) == {NAME, f"{JobQueue.before}.corrupt-1"}
    assert "reflections.db is damaged; set aside as reflections.db.corrupt-1" in caplog.text


def test_an_old_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    before = old_queue(tmp_path, version=9)
    content = before.read_bytes()
    with queue(tmp_path) as jobs, pytest.raises(StorageError, match="newer"):
        jobs.put("1", {})
    assert before.read_bytes() == content


def test_looking_takes_nothing_over(tmp_path: Path) -> None:
    old_queue(tmp_path)
    before = files(tmp_path)
    with JobQueue(tmp_path, now=time.time, read_only=True) as jobs:
        assert jobs.pending() == 3
        assert jobs.place_of("run") == ("toolmem", "x")
        assert files(tmp_path) == before
        jobs.put("d", {})  # what a reader puts is for the process that writes to the folder
        assert jobs.pending() == 4
    assert set(files(tmp_path)) == {NAME}


def test_an_old_search_is_gone_on_with_in_its_own_file(tmp_path: Path) -> None:
    answers = """
        CREATE TABLE answers (scope TEXT NOT NULL, task TEXT NOT NULL, question TEXT NOT NULL, answer TEXT NOT NULL,
            PRIMARY KEY (scope, task, question));
    """
    with written_before(tmp_path / DiscoveryState.name, QUERIES + answers) as file:
        file.execute("INSERT INTO answers VALUES ('words', '', 'an atom', '{\"answer\": 3}')")
    for _ in range(2):
        with DiscoveryState(tmp_path, "scope") as state:
            assert state.words("an atom") == {"answer": 3}
            state.add("task", (), "one")
            assert len(state.all()) == 1
    assert set(files(tmp_path)) == {DiscoveryState.name}


# --- what it is not ---


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    for mark, tables in (("", "CREATE TABLE bookmarks (x)"), ("PRAGMA application_id = 5", "CREATE TABLE jobs (x)")):
        with closing(sqlite3.connect(tmp_path / NAME)) as file:
            file.executescript(f"{mark}; {tables}")
        content = files(tmp_path)
        with queue(tmp_path) as jobs, pytest.raises(StorageError, match="another program; move it away"):
            jobs.put("1", {})
        assert files(tmp_path) == content
        (tmp_path / NAME).unlink()


def test_a_newer_file_is_left_alone_by_who_looks_too(tmp_path: Path) -> None:
    with queue(tmp_path) as jobs:
        jobs.put("1", {})
    with closing(sqlite3.connect(tmp_path / NAME)) as file:
        file.execute("PRAGMA user_version = 99")
    content = files(tmp_path)
    with pytest.raises(StorageError, match=r"newer version of this package \(format 99\); update it"):
        look(tmp_path, JobQueue.before, "SELECT * FROM jobs")
    for owner in (queue(tmp_path), DecisionLog(tmp_path)):
        with owner, pytest.raises(StorageError, match="newer"):
            owner.ask("SELECT 1")
    assert files(tmp_path) == content


# --- damage ---


def spoil(path: Path, page: int, size: int = 4096) -> None:
    content = bytearray(path.read_bytes())
    assert len(content) > page * size
    content[page * size : (page + 1) * size] = os.urandom(size)
    path.write_bytes(content)


def root_of(folder: Path, table: str) -> int:
    with closing(sqlite3.connect(folder / NAME)) as file:
        return int(file.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0])


def test_a_damaged_page_of_its_tables_is_found_when_it_is_opened(tmp_path: Path) -> None:
    with queue(tmp_path) as jobs:
        for number in range(100):
            jobs.put(str(number), {"text": "x" * 1000})
    spoil(tmp_path / NAME, root_of(tmp_path, "jobs") - 1)
    damaged = files(tmp_path)[NAME]
    with queue(tmp_path) as jobs:
        assert jobs.pending() == 0
        jobs.put("1", {})
        assert ids(jobs) == ["1"]
    assert files(tmp_path)[f"{NAME}.corrupt-1"] == damaged


def test_damage_that_is_found_in_use_is_set_aside_at_the_next(tmp_path: Path) -> None:
    with queue(tmp_path) as jobs, queue(tmp_path) as another:
        for number in range(100):
            jobs.put(str(number), {"text": "x" * 1000})
        another.put("x", {})
        with another.opened() as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for page in range(1, (tmp_path / NAME).stat().st_size // 4096):
            spoil(tmp_path / NAME, page)
        with pytest.raises(StorageError, match="malformed"):
            jobs.revive()
        jobs.put("1", {})
        assert ids(jobs) == ["1"]
        assert another.pending() == 0
        another.put("2", {})
        assert ids(jobs) == ["2"]
    assert (tmp_path / f"{NAME}.corrupt-1").exists()


def test_damage_of_free_pages_is_set_aside_too(tmp_path: Path) -> None:
    with queue(tmp_path) as jobs:
        for number in range(100):
            jobs.put(str(number), {"text": "x" * 9000})
        ids(jobs)
    spoil(tmp_path / NAME, int.from_bytes(files(tmp_path)[NAME][32:36], "big") - 1)
    with queue(tmp_path) as jobs:
        assert jobs.pending() == 0  # it is none of its tables
        with pytest.raises(StorageError, match="malformed"):
            jobs.put("1", {"text": "x" * 90_000})
        jobs.put("2", {"text": "x" * 90_000})
        assert ids(jobs) == ["2"]
    assert (tmp_path / f"{NAME}.corrupt-1").exists()


def test_who_has_it_open_goes_on_in_the_new_file(tmp_path: Path) -> None:
    with queue(tmp_path) as jobs, queue(tmp_path) as another:
        jobs.put("old", {})
        os.replace(tmp_path / NAME, tmp_path / "away")  # noqa: PTH105 - as the package does
        for ending in ("-wal", "-shm"):
            os.replace(tmp_path / f"{NAME}{ending}", tmp_path / f"away{ending}")  # noqa: PTH105
        another.put("new", {})
        jobs.put("newer", {})
        assert jobs.pending() == another.pending() == 2
    with queue(tmp_path) as jobs:
        assert ids(jobs) == ["new", "newer"]
