"""One file for what a memory keeps beside its graph: opening, damage, versions, several processes."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from queues import pending, put, take

from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.core.jobs import JobQueue
from langgraph_toolmem.navigator.decide.recording import DecisionLog
from langgraph_toolmem.stores.database import NAME, query_readonly


def queue(folder: Path) -> JobQueue:
    return JobQueue(folder, now=time.time)


def decisions(folder: Path) -> DecisionLog:
    graph, users = SimpleNamespace(owner=lambda _: None), SimpleNamespace(apart=False)
    core: Any = SimpleNamespace(folder=folder, read_only=False, now=time.time, graph=graph, users=users)
    return DecisionLog(core)


def ids(jobs: JobQueue) -> list[str]:
    """Takes and does all jobs."""
    found = []
    while taken := take(jobs):
        found += [job.id for job in taken]
        jobs.done(taken)
    return found


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


# --- one file ---


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
                        "INSERT INTO jobs (id, kind, run, namespace, ordering_key, user, payload, due) "
                        "VALUES (?, '', '', '', ?, ?, ?, 0)",
                        row,
                    )
                    database.execute("INSERT INTO namespaces VALUES (?, ?, ?)", (f"{dice.random()}", text, user))
                    at = dice.randrange(3000)
                    if dice.random() < 0.4:
                        database.execute("DELETE FROM jobs WHERE seq = ?", (at,))
                    answer = "private" * dice.randrange(1, 50)
                    database.execute("UPDATE jobs SET answer = ? WHERE seq = ? AND user = 'u'", (answer, at))
        left = pending(jobs)
        assert 0 < jobs.forget("u") < left
        assert not [name for name, content in files(tmp_path).items() if b"private" in content]
        assert pending(jobs) > 0


# --- what it is not ---


def test_a_newer_file_is_left_alone_by_who_looks_too(tmp_path: Path) -> None:
    with queue(tmp_path) as jobs:
        put(jobs, "1", {})
    with closing(sqlite3.connect(tmp_path / NAME)) as file:
        file.execute("PRAGMA user_version = 99")
    content = files(tmp_path)
    with pytest.raises(StorageError, match=r"newer version of this package \(format 99\); update it"):
        query_readonly(tmp_path / NAME, "SELECT * FROM jobs")
    for owner in (queue(tmp_path), decisions(tmp_path)):
        with owner, pytest.raises(StorageError, match="newer"):
            owner.ask("SELECT 1")
    assert files(tmp_path) == content


# --- damage ---


def spoil(path: Path, page: int, size: int = 4096) -> None:
    content = bytearray(path.read_bytes())
    assert len(content) > page * size
    content[page * size : (page + 1) * size] = os.urandom(size)
    path.write_bytes(content)


def test_damage_that_is_found_in_use_is_set_aside_at_the_next(tmp_path: Path) -> None:
    with queue(tmp_path) as jobs, queue(tmp_path) as another:
        for number in range(100):
            put(jobs, str(number), {"text": "x" * 1000})
        put(another, "x", {})
        with another.opened() as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        for page in range(1, (tmp_path / NAME).stat().st_size // 4096):
            spoil(tmp_path / NAME, page)
        with pytest.raises(StorageError, match="malformed"):
            jobs.requeue()
        put(jobs, "1", {})
        assert ids(jobs) == ["1"]
        assert pending(another) == 0
        put(another, "2", {})
        assert ids(jobs) == ["2"]
    assert (tmp_path / f"{NAME}.corrupt-1").exists()


def test_who_has_it_open_goes_on_in_the_new_file(tmp_path: Path) -> None:
    with queue(tmp_path) as jobs, queue(tmp_path) as another:
        put(jobs, "old", {})
        os.replace(tmp_path / NAME, tmp_path / "away")  # noqa: PTH105 - as the package does
        for ending in ("-wal", "-shm"):
            os.replace(tmp_path / f"{NAME}{ending}", tmp_path / f"away{ending}")  # noqa: PTH105
        put(another, "new", {})
        put(jobs, "newer", {})
        assert pending(jobs) == pending(another) == 2
    with queue(tmp_path) as jobs:
        assert ids(jobs) == ["new", "newer"]
