"""One file for what a memory keeps beside its graph: opening, damage, versions, several processes."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from queues import pending, put, take

from langgraph_toolmem.core.jobs import JobQueue
from langgraph_toolmem.stores.database import NAME


def queue(folder: Path) -> JobQueue:
    return JobQueue(folder, now=time.time)


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


# --- damage ---


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
