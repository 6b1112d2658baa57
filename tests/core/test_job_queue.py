"""The queue of jobs: order, leases, batches, retries, forgetting, several processes."""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from children import Child
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule
from queues import Clock, dead, pending, put, take

from langgraph_toolmem.core import jobs as job_queue
from langgraph_toolmem.core.jobs import Job, JobQueue
from langgraph_toolmem.stores.database import NAME


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["disk", "ram"])
def queue(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[JobQueue]:
    with JobQueue(tmp_path if request.param == "disk" else None, now=clock) as made:
        yield made


def taken(queue: JobQueue, *kinds: str) -> Job:
    [job] = take(queue, *kinds)
    return job


def ids(jobs: list[Job]) -> list[str]:
    return [job.id for job in jobs]


def test_kinds_are_taken_and_counted_apart(queue: JobQueue) -> None:
    assert queue.empty
    assert queue.next_due(["x"]) is None
    assert put(queue, "1", {"a": [1, "ü"]}, kind="x", user="u", run="r", namespace=("n", "u"))
    put(queue, "2", kind="y")
    queue.retry(taken(queue, "y"), 5)
    assert queue.last == 2
    assert not put(queue, "1", {"other": 1}, kind="x")
    assert take(queue, "y") == []
    assert queue.next_due(["y"]) == 5
    assert queue.next_due([]) is queue.next_due(["z"]) is None
    assert queue.unsettled(["x", "y"], 2)
    assert not queue.unsettled(["x", "y"], 0)
    assert not queue.unsettled(["y"], 2)
    assert taken(queue, "x", "y") == Job("1", "x", {"a": [1, "ü"]}, "r", "u", ("n", "u"), takes=1)
    assert queue.unsettled(["x"], 1)
    assert queue.namespace_of("r") == (("n", "u"), "u")
    queue.note_namespaces([("r", "", ("n", "v"))])
    assert queue.namespace_of("r") == (("n", "v"), "u"), "whose it is stays known"
    assert queue.namespace_of("s") == (None, "")


def test_a_batch_is_of_one_kind_and_has_one_job_of_each_line(queue: JobQueue) -> None:
    jobs = [Job(f"{of}{i}", of, {}, ordering_key=line) for i, (of, line) in enumerate(["xa", "xb", "ya", "xa", "xc"])]
    jobs += [Job(f"x{i}", "x", {}) for i in (5, 6, 7)]
    assert queue.put(jobs) == 8
    assert ids(batch := take(queue, "x", "y", most=4, upto=7)) == ["x0", "x1", "x4", "x5"]
    assert ids(take(queue, "x", "y", most=4, upto=7)) == ["x6"]
    assert take(queue, "x", "y", most=4, upto=7) == []
    assert queue.done(batch) == []
    assert ids(take(queue, "x", "y", most=4)) == ["y2"], "the oldest that is free"


def test_what_was_taken_before_is_taken_alone(queue: JobQueue, clock: Clock) -> None:
    queue.put([Job(str(i), "k", {}) for i in range(6)])
    assert len(take(queue, most=3, lease=60)) == 3  # by a process that dies
    clock.seconds += 60
    assert [ids(take(queue, most=6)) for _ in range(5)] == [["0"], ["1"], ["2"], ["3", "4", "5"], []]


def test_what_never_ends_or_is_damaged_is_given_up(
    queue: JobQueue, clock: Clock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_queue, "JOB_LIMITS", replace(job_queue.JOB_LIMITS, lost=5))
    put(queue, "1")
    for _ in range(5):
        assert take(queue, lease=60)
        clock.seconds += 60
    queue.put([Job("2", "k", {}), Job("3", "k", {})])
    with queue.writing() as database:
        database.execute("UPDATE jobs SET payload = '{' WHERE id = '2'")
    assert take(queue) == []
    assert ids(take(queue, most=2)) == ["3"]
    assert [key for key, *_ in dead(queue)] == ["1", "2"]
    assert "given up" in caplog.text


# --- the file ---


@pytest.mark.parametrize("seed", range(3))
def test_no_copy_of_what_is_forgotten_stays_in_a_page_or_the_log(tmp_path: Path, seed: int) -> None:
    """Pages that are split and merged keep copies: of these, tens were left where deleting was all that was done."""
    dice = random.Random(seed)
    with JobQueue(tmp_path, now=Clock()) as jobs:
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
        assert not [path.name for path in tmp_path.iterdir() if b"private" in path.read_bytes()]
        assert pending(jobs) > 0


def test_who_has_it_open_goes_on_in_the_new_file(tmp_path: Path, clock: Clock) -> None:
    with JobQueue(tmp_path, now=clock) as jobs, JobQueue(tmp_path, now=clock) as another:
        put(jobs, "old", {})
        os.replace(tmp_path / NAME, tmp_path / "away")  # noqa: PTH105 - as the package does
        for ending in ("-wal", "-shm"):
            os.replace(tmp_path / f"{NAME}{ending}", tmp_path / f"away{ending}")  # noqa: PTH105
        put(another, "new", {})
        put(jobs, "newer", {})
        assert pending(jobs) == pending(another) == 2
    with JobQueue(tmp_path, now=clock) as jobs:
        assert ids(take(jobs, most=9)) == ["new", "newer"]


# --- several processes ---

WORKER = """
import sys, time
from pathlib import Path
from langgraph_toolmem.core.jobs import Job, JobQueue
from langgraph_toolmem.stores.database import NAME
with JobQueue(Path(sys.argv[1]), now=time.time) as queue:
    for number in range(50):
        queue.put([Job(f"{sys.argv[3]}-{number}", "k", {"n": number}, ordering_key=str(number % 9))])
    print("put", flush=True)
    while jobs := queue.take(["k"], most=8, lease=float(sys.argv[2])):
        print(*(job.id for job in jobs), flush=True)
        if sys.argv[3] == "dies":
            time.sleep(60)
        assert queue.done(jobs) == []
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
def test_two_processes_share_the_jobs_and_those_of_a_killed_one_are_free_after_their_lease(tmp_path: Path) -> None:
    dies = Child(WORKER, tmp_path, 600, "dies")
    assert dies.line() == "put"
    held = dies.line().split()
    assert len(held) == 8
    dies.kill()
    both = [Child(WORKER, tmp_path, 600, name) for name in ("one", "two")]
    done = [key for child in both for line in [*iter_lines(child)] for key in line.split() if line != "put"]
    assert len(done) == len(set(done))
    assert not set(done) & set(held)
    with JobQueue(tmp_path, now=lambda: 4e9) as queue:
        left = []
        while jobs := take(queue, most=64):
            assert len(jobs) == 1 or not set(ids(jobs)) & set(held)
            left += ids(jobs)
            assert queue.done(jobs) == []
    assert set(held) <= set(left)
    assert sorted([*done, *left]) == sorted(f"{name}-{n}" for name in ("dies", "one", "two") for n in range(50))


def iter_lines(child: Child) -> list[str]:
    assert child.wait() == 0, child.stderr
    return list(iter(child.lines.get, None))


class QueueMachine(RuleBasedStateMachine):
    """The queue against a list in RAM: order, lines, leases, retries, giving up, reopening."""

    jobs = Bundle("jobs")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.queue = self.opened()
        self.model: list[dict[str, Any]] = []

    def opened(self) -> JobQueue:
        return JobQueue(Path(self.folder.name), now=self.clock)

    def teardown(self) -> None:
        self.queue.close()
        self.folder.cleanup()

    def found(self, key: str) -> dict[str, Any] | None:
        return next((job for job in self.model if job["id"] == key), None)

    def held(self, job: Job) -> dict[str, Any] | None:
        known = self.found(job.id)
        return known if known is not None and known["held"] == job.takes else None

    @rule(key=st.sampled_from("abcde"), line=st.sampled_from(["", "x", "y"]), user=st.sampled_from("uv"))
    def put(self, key: str, line: str, user: str) -> None:
        known = self.found(key)
        new = known is None or known["dead"]
        assert put(self.queue, key, {"of": user}, ordering_key=line, user=user) == new
        if new:
            self.model = [job for job in self.model if job is not known]
            job = {"id": key, "line": line, "user": user, "due": self.clock(), "held": 0, "lease": 0.0, "takes": 0}
            self.model.append({**job, "attempts": 0, "dead": False, "answer": None})

    @rule(target=jobs)
    def take(self) -> Any:
        job, expected, lines = next(iter(take(self.queue, lease=10)), None), None, set()
        for each in self.model:
            if each["dead"]:
                continue
            first = not each["line"] or each["line"] not in lines
            lines.add(each["line"])
            if first and each["due"] <= self.clock() and (not each["held"] or each["lease"] <= self.clock()):
                expected = each
                break
        assert (job and job.id) == (expected and expected["id"])
        if job is None or expected is None:
            return multiple()
        expected["takes"] += 1
        expected.update(held=expected["takes"], lease=self.clock() + 10)
        assert (job.takes, job.attempts) == (expected["takes"], expected["attempts"])
        assert (job.answer, job.payload) == (expected["answer"], {"of": expected["user"]})
        return job

    @rule(job=jobs, text=st.text(max_size=5))
    def save(self, job: Job, text: str) -> None:
        known = self.held(job)
        text = text.encode("utf-8", "ignore").decode()
        assert self.queue.save(job, text) == (known is not None)
        if known is not None:
            known["answer"] = text

    @rule(job=consumes(jobs))
    def done(self, job: Job) -> None:
        known = self.held(job)
        assert (self.queue.done([job]) == []) == (known is not None)
        self.model = [each for each in self.model if each is not known]

    @rule(job=consumes(jobs), after=st.integers(0, 20), gives_up=st.booleans())
    def retry(self, job: Job, after: int, gives_up: bool) -> None:
        known = self.held(job)
        self.queue.retry(job, after, dead=gives_up)
        if known is not None:
            known.update(held=0, due=self.clock() + after, attempts=job.attempts + 1, dead=gives_up)

    @rule(seconds=st.integers(1, 12))
    def wait(self, seconds: int) -> None:
        self.clock.seconds += seconds

    @rule()
    def reopen(self) -> None:
        self.queue.close()
        self.queue = self.opened()

    @rule(user=st.sampled_from("uv"))
    def forget(self, user: str) -> None:
        assert self.queue.forget(user) == sum(job["user"] == user for job in self.model)
        self.model = [job for job in self.model if job["user"] != user]

    @rule()
    def revive(self) -> None:
        assert self.queue.requeue() == sum(job["dead"] for job in self.model)
        for job in self.model:
            if job["dead"]:
                job.update(dead=False, attempts=0, takes=0, due=self.clock(), held=0)

    @invariant()
    def counts(self) -> None:
        assert pending(self.queue) == sum(not job["dead"] for job in self.model)
        assert {key for key, *_ in dead(self.queue)} == {job["id"] for job in self.model if job["dead"]}


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=25, stateful_step_count=25)
