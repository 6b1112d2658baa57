"""Faults of machines: kills, damaged files, full disks, no file handles. The host goes on, and every loss is reported.

Each trial breaks one thing, drawn by its seed, in a process of its own. Then another process opens the folder: every
acknowledged run is there with its feedback and its entry, unless `report().problems` or `toolmem doctor` names a
loss; nothing of one user is shown to another; an agent's run goes as it goes without the memory.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from desk import Desk, build, history
from queues import put, take

from langgraph_toolmem import Entries, ToolMemory
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.cli.health import examine
from langgraph_toolmem.core import jobs as job_queue
from langgraph_toolmem.core.jobs import JobQueue, Jobs
from langgraph_toolmem.stores.chroma import DATABASE

USERS = ("ann", "bob")
RUNS, LEARNED = 6, 12
"""Runs that the folder holds before something breaks, and runs that a process learns if nothing stops it."""
KINDS = ("kill", "file", "full", "handles")


def run_of(user: str, number: int | str) -> list[Any]:
    """A run as it goes without a memory; its words are this user's alone."""
    return history(int(digest("run", f"{user} {number}")[:8], 16), f"{user}-secret-{number}")


def opened(folder: Path) -> ToolMemory:
    return ToolMemory(folder, tools=Desk().tools, namespace=("toolmem", "{user_id}"))


def taught(memory: ToolMemory, seed: int, number: int) -> None:
    """Learn one run and its feedback."""
    user, thread = USERS[number % 2], f"{seed}-{number}"
    run = run_of(user, thread)
    memory.observe(run[:-1], thread_id=thread, user_id=user)
    memory.finish(run, thread_id=thread, user_id=user, success=number % 3 > 0)


# --- what a process does while something breaks ---


def learn(folder: Path, kind: str, seed: int) -> list[str]:
    """Learn runs and write down which were acknowledged; return what the memory reports."""
    chance = random.Random(seed)
    with opened(folder) as memory, folder.with_suffix(".acks").open("a") as acks:
        memory.inertia.predict(run_of("bob", "x")[:1], user_id="bob")
        if kind == "full":
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (chance.randrange(4_000, 400_000),) * 2)
        if kind == "handles":
            used = len(list(Path("/proc/self/fd").iterdir()))
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (used + chance.randrange(3), most))
        for number in range(LEARNED):
            taught(memory, seed, number)
            with suppress(OSError):
                acks.write(f"{number}\n")
                acks.flush()
        return list(memory.report().problems)


def damage(folder: Path, chance: random.Random) -> None:
    """Damage one file of a folder."""
    file = chance.choice(sorted(each for each in folder.rglob("*") if each.is_file() and each.stat().st_size))
    data = bytearray(file.read_bytes())
    at, how = chance.randrange(len(data)), chance.choice(("flipped", "flipped", "cut", "overwritten", "gone"))
    if how == "flipped":
        data[at] ^= 1 << chance.randrange(8)
    elif how == "cut":
        del data[at:]
    elif how == "overwritten":
        data[at : at + 4096] = chance.randbytes(min(4096, len(data) - at))
    file.unlink() if how == "gone" else file.write_bytes(data)


# --- what is there afterwards ---


def look(folder: Path, _: str, seed: int) -> dict[str, Any]:
    """Return the view of another process: missing runs, foreign values, and whether the host's run changed."""
    acks = folder.with_suffix(".acks")
    done = [int(line) for line in acks.read_text().split("\n")[:-1]] if acks.exists() else []
    wanted = [(-1, number) for number in range(RUNS)] + [(seed, number) for number in done]
    said = list(examine(folder)["problems"])
    with opened(folder) as memory:
        memory.flush(timeout=100)
        lost = {f"{first}-{number}": why for first, number in wanted if (why := missing(memory, first, number))}
        shown = repr([memory.entries.recall(run_of("bob", "y")[0].content, user_id="bob")])
        shown += repr(memory.inertia.explain(run_of("bob", "y")[:1], user_id="bob"))
        hosted = [host(memory)]
        memory.flush(timeout=100)
        said += memory.report().problems
    with opened(folder) as again:
        hosted.append(host(again))
    plain = [each.content for each in run_of("bob", "new")]
    return {"lost": lost, "foreign": "ann-secret" in shown, "differs": hosted != [plain] * 2, "said": said}


def missing(memory: ToolMemory, seed: int, number: int) -> str:
    """Return the missing part of a run; "" if it is whole."""
    user, thread, core = USERS[number % 2], f"{seed}-{number}", memory.core
    run = next(iter(core.episodes.runs(thread)), None)
    if run is None:
        return "steps"
    if core.graph.score(run) != float(number % 3 > 0):
        return "verdict"
    return "" if memory.entries.rows.of(run, core.users.of(user)) else "entry"


def host(memory: ToolMemory) -> list[Any]:
    """The messages of an agent's run with the shortcut."""
    graph, _ = build(memory, Desk().tools, recorder=False)
    config = {"configurable": {"thread_id": "host", "user_id": "bob"}}
    return [each.content for each in graph.invoke({"messages": run_of("bob", "new")[:1]}, config)["messages"]]


# --- trials ---


def child(what: Callable[[Path, str, int], Any], folder: Path, kind: str, seed: int) -> None:
    """Do it in a process of its own, which leaves what it saw and said next to the folder."""
    sys.stderr = folder.with_suffix(".log").open("a")
    made = json.dumps(what(folder, kind, seed))
    with suppress(OSError):
        folder.with_suffix(f".{what.__name__}").write_text(made)


def run_in_child(what: Callable[..., Any], folder: Path, kind: str, seed: int, *, kill: float | None = None) -> Any:
    """Return what the process found, if it could write it; `kill`: seconds after its first acknowledged run."""
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "chromadb.api.rust", "desk", "queues", "langgraph_toolmem.cli.health"])
    process = context.Process(target=child, args=(what, folder, kind, seed))
    process.start()
    if kill is not None:
        acks = folder.with_suffix(".acks")
        while process.exitcode is None and not (acks.exists() and acks.stat().st_size):
            time.sleep(0.01)
        time.sleep(kill)
        process.kill()
    process.join(300)
    if process.exitcode is None:
        process.kill()
        process.join()
        pytest.fail("it hangs")
    log = folder.with_suffix(".log")
    assert process.exitcode == 0 or kill is not None, log.read_text()[-4_000:] if log.exists() else process.exitcode
    found = folder.with_suffix(f".{what.__name__}")
    with suppress(OSError, ValueError):
        return json.loads(found.read_text())
    return None


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("faults") / "template"
    with opened(where) as memory:
        for number in range(RUNS):
            taught(memory, -1, number)
        memory.flush()
    return where


@pytest.mark.parametrize("seed", [0, 2, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 43))])
def test_a_fault_loses_nothing_without_a_word(template: Path, tmp_path: Path, seed: int) -> None:
    chance, kind = random.Random(seed), KINDS[seed % len(KINDS)]
    folder, said = tmp_path / "trial", []
    shutil.copytree(template, folder)
    if kind == "file":
        damage(folder, chance)
    else:
        kill = chance.random() * 0.3 if kind == "kill" else None
        said = run_in_child(learn, folder, kind, seed, kill=kill) or []
    seen = run_in_child(look, folder, kind, seed)
    assert (seen["foreign"], seen["differs"]) == (False, False)
    assert not seen["lost"] or said or seen["said"]


# --- single faults ---


def test_a_database_of_chroma_that_is_none_is_renamed_and_said(tmp_path: Path) -> None:
    with ToolMemory(tmp_path, methods=[Entries()]) as memory:
        memory.finish(run_of("ann", "old"), thread_id="old", success=True, wait=True)
    (tmp_path / "chroma" / DATABASE).write_bytes(b"no database" * 1000)
    assert any(DATABASE in problem for problem in examine(tmp_path)["problems"])
    with ToolMemory(tmp_path, methods=[Entries()]) as memory:
        memory.finish(run_of("ann", "new"), thread_id="new", success=True, wait=True)
        assert len(list(memory.entries.rows.all(memory.core.users.of(None)))) == 2, "the rows are in memory.db"
        assert any("chroma.corrupt-1" in problem for problem in memory.report().problems)
    assert any("chroma.corrupt-1" in problem for problem in examine(tmp_path)["problems"])


def test_what_waits_is_bounded_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_queue, "JOB_LIMITS", replace(job_queue.JOB_LIMITS, waiting=3))
    monkeypatch.setattr(Jobs, "begin", lambda *_: None)
    with ToolMemory(tmp_path, methods=[Entries()]) as memory:
        for number in range(6):
            memory.finish(run_of("ann", number), thread_id=str(number), success=True)
        assert memory.report().jobs.pending == 3
        said = "Nothing of a finished run could be put into the queue: 3 jobs wait"
        assert any(each.startswith(said) for each in memory.report().problems)
        queue = memory.core.jobs.queue
        for _ in range(3):
            [job] = queue.take(["write"])
            queue.retry(job, 0.0, "OSError at somewhere", dead=True)
        assert "3 write jobs were given up (OSError at somewhere)" in memory.report().problems


def test_jobs_are_done_although_the_clock_was_set_back(tmp_path: Path) -> None:
    now = [1e9]
    with JobQueue(tmp_path, now=lambda: now[0]) as queue:
        put(queue, "a")
        [job] = take(queue)
        queue.retry(job, 60)
        put(queue, "b")
        now[0] -= 1e6
        assert queue.next_due(["k"]) == 0
        assert [job.id for _ in "ab" for job in take(queue)] == ["a", "b"]
