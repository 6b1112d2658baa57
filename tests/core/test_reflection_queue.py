"""The queue of jobs: order, leases, batches, retries, forgetting, several processes."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from children import Child
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from langgraph_toolmem.base.errors import InputError, StorageError
from langgraph_toolmem.stores import job_queue
from langgraph_toolmem.stores.job_queue import Job, JobQueue, NewJob


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["disk", "ram"])
def queue(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[JobQueue]:
    with JobQueue(tmp_path if request.param == "disk" else None, now=clock, lease=60) as made:
        yield made


def taken(queue: JobQueue, *kinds: str) -> Job:
    [job] = queue.take(kinds or None)
    return job


def ids(jobs: list[Job]) -> list[str]:
    return [job.id for job in jobs]


def test_jobs_come_in_order_and_go_when_done(queue: JobQueue) -> None:
    assert queue.empty
    assert queue.take() == []
    assert queue.next_due() is None
    assert queue.put("1", {"a": [1, "ü"]}, kind="k", user="u")
    assert queue.put("2", {})
    assert not queue.put("1", {"other": 1})
    assert (queue.pending(), queue.last) == (2, 2)
    first = taken(queue)
    assert (first.id, first.payload, first.kind, first.user, first.takes) == ("1", {"a": [1, "ü"]}, "k", "u", 1)
    assert taken(queue).id == "2"
    assert queue.take() == []
    assert queue.held([first]) == [first]
    assert queue.done([first]) == []
    assert queue.done([first]) == [first]
    assert queue.held([first]) == []
    assert queue.pending() == 1
    assert queue.put("1", {})  # done and gone: a new one


def test_kinds_are_taken_and_counted_apart(queue: JobQueue) -> None:
    queue.put("1", {}, kind="x")
    queue.put("2", {}, kind="y", after=5)
    assert queue.take(["y"]) == []
    assert queue.next_due(["y"]) == 5
    assert queue.pending(["x", "y"]) == 2
    assert queue.pending(["z"]) == queue.pending([]) == 0
    assert queue.unsettled(["x", "y"], 2)
    assert not queue.unsettled(["x", "y"], 0)
    assert not queue.unsettled(["y"], 2)
    assert taken(queue, "x", "y").id == "1"
    assert queue.unsettled(["x"], 1)


def test_a_batch_is_of_one_kind_and_has_one_job_of_each_line(queue: JobQueue, clock: Clock) -> None:
    jobs = [NewJob(f"{kind}{i}", {}, kind, line) for i, (kind, line) in enumerate(["xa", "xb", "ya", "xa", "xc"])]
    jobs += [NewJob(f"x{i}", {}, "x") for i in (5, 6, 7)]
    assert queue.put_all(jobs) == 8
    assert ids(batch := queue.take(most=4, upto=7)) == ["x0", "x1", "x4", "x5"]
    assert ids(queue.take(most=4, upto=7)) == ["x6"]
    assert queue.take(most=4, upto=7) == []
    assert queue.done(batch) == []
    assert ids(queue.take(most=4)) == ["y2"], "the oldest that is free"


def test_what_was_taken_before_is_taken_alone(queue: JobQueue, clock: Clock) -> None:
    queue.put_all([NewJob(str(i), {}) for i in range(6)])
    assert len(queue.take(most=3)) == 3  # by a process that dies
    clock.seconds += 60
    assert [ids(queue.take(most=6)) for _ in range(5)] == [["0"], ["1"], ["2"], ["3", "4", "5"], []]


def test_jobs_of_one_line_wait_for_each_other(queue: JobQueue, clock: Clock) -> None:
    for key in ("a1", "a2", "b1"):
        queue.put(key, {}, line=key[0])
    first = taken(queue)
    assert taken(queue).id == "b1"
    assert queue.take() == []
    queue.retry(first, 30)
    assert queue.take() == []
    assert queue.next_due() == 30  # not now: what is due waits for its line
    clock.seconds += 30
    first = taken(queue)
    assert first.id == "a1"
    assert not queue.retry(first, 0, limit=1, error="no")
    assert taken(queue).id == "a2"  # a line goes on behind what was given up


def test_a_lease_ends_and_an_outdated_one_changes_nothing(queue: JobQueue, clock: Clock) -> None:
    queue.put("1", {})
    late = taken(queue)
    clock.seconds += 59
    assert queue.take() == []
    assert queue.next_due() == 1
    queue.renew([late])
    assert queue.next_due() == 60
    clock.seconds += 60
    again = taken(queue)
    assert again.takes == 2
    assert queue.held([late]) == []
    queue.renew([late])
    assert not queue.save(late, "x")
    assert not queue.retry(late, 0)
    assert queue.done([late]) == [late]
    assert queue.save(again, "y")
    assert queue.retry(again, 0, error="E")
    third = taken(queue)
    assert (third.answer, third.attempts, third.error) == ("y", 1, "E")


def test_what_fails_too_often_is_given_up_kept_and_can_be_revived(queue: JobQueue) -> None:
    queue.put("1", {"a": 1}, kind="k")
    assert queue.retry(taken(queue), 0, limit=2)
    assert queue.report() == {"pending": 1, "failing": 1, "given_up": 0}
    assert not queue.retry(taken(queue), 0, limit=2, error="TimeoutError")
    assert queue.take() == []
    assert queue.report() == {"pending": 0, "failing": 0, "given_up": 1}
    assert queue.troubles() == ["1 k jobs were given up (TimeoutError)"]
    [kept] = queue.given_up()
    assert (kept.id, kept.payload, kept.attempts, kept.error) == ("1", {"a": 1}, 2, "TimeoutError")
    assert queue.revive() == 1
    assert (taken(queue).attempts, queue.given_up()) == (0, [])
    queue.put("2", {})
    assert not queue.retry(taken(queue), 0, limit=1)
    assert queue.put("2", {"new": 1})
    assert taken(queue).payload == {"new": 1}


def test_what_never_ends_or_is_damaged_is_given_up(
    queue: JobQueue, clock: Clock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_queue, "MAX_LOST", 5)
    queue.put("1", {}, kind="k")
    for _ in range(5):
        assert queue.take()
        clock.seconds += 60
    queue.put_all([NewJob("2", {}), NewJob("3", {})])
    with queue.writing() as database:
        database.execute("UPDATE jobs SET payload = '{' WHERE id = '2'")
    assert taken(queue).id == "3"
    assert ids(queue.given_up()) == ["1", "2"]
    assert "given up" in caplog.text


def test_bad_input_is_refused(queue: JobQueue) -> None:
    with pytest.raises(InputError, match="id"):
        queue.put("", {})
    with pytest.raises(InputError, match="JSON"):
        queue.put_all([NewJob("0", {}), NewJob("1", {"a": {1}})])
    with pytest.raises(InputError, match="Whose"):
        queue.forget("")
    assert queue.empty


def test_jobs_survive_and_closing_gives_back(tmp_path: Path, clock: Clock) -> None:
    with JobQueue(tmp_path / "sub", now=clock) as queue:
        assert queue.take() == []
        assert queue.forget("u") == queue.pending() == 0
        assert not (tmp_path / "sub").exists()
        queue.put("1", {"a": 1})
        queue.save(taken(queue), "answer")
    with pytest.raises(StorageError, match="closed"):
        queue.put("2", {})
    with JobQueue(tmp_path / "sub", now=clock) as queue, queue.opened() as database:
        assert not queue.empty
        job = taken(queue)
        assert (job.payload, job.answer, job.takes) == ({"a": 1}, "answer", 2)
        assert database.execute("PRAGMA synchronous").fetchone()[0] == 2, "a job that was put outlives a power cut"


def on_disk(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())


def test_what_is_forgotten_is_gone_from_the_disk(tmp_path: Path, clock: Clock) -> None:
    with JobQueue(tmp_path, now=clock) as queue:
        for number in range(200):
            queue.put(f"{number}", {"text": f"private-{number % 2} " * 50}, user=f"u{number % 2}")
        queue.save(taken(queue), "private-0 answered")
        queue.done([taken(queue)])
        assert b"private-0" in on_disk(tmp_path)
        before = queue.forgettings
        assert queue.forget("u0") == 100
        assert b"private-0" not in on_disk(tmp_path)
        assert b"private-1" in on_disk(tmp_path)
        assert queue.pending() == 99
        assert queue.forget("u1") == 99
        assert b"private-1" not in on_disk(tmp_path)  # of the one that was done, too
        assert queue.forget("u1") == 0
        assert queue.forgettings == before + 3


# --- several processes ---

WORKER = """
import sys, time
from pathlib import Path
from langgraph_toolmem.stores.job_queue import JobQueue
with JobQueue(Path(sys.argv[1]), now=time.time, lease=float(sys.argv[2])) as queue:
    for number in range(50):
        queue.put(f"{sys.argv[3]}-{number}", {"n": number}, line=str(number % 9))
    print("put", flush=True)
    while jobs := queue.take(most=8):
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
        while jobs := queue.take(most=64):
            assert len(jobs) == 1 or not set(ids(jobs)) & set(held)
            left += ids(jobs)
            assert queue.done(jobs) == []
    assert set(held) <= set(left)
    assert sorted([*done, *left]) == sorted(f"{name}-{n}" for name in ("dies", "one", "two") for n in range(50))


def iter_lines(child: Child) -> list[str]:
    assert child.wait() == 0, child.stderr
    return list(iter(child.lines.get, None))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_puts_jobs_and_leaves_those_of_its_parent(tmp_path: Path, clock: Clock) -> None:
    with JobQueue(tmp_path, now=clock) as queue:
        queue.put("1", {})
        held = taken(queue)
        if (child := os.fork()) == 0:
            try:
                queue.forked()
                queue.put("from the child", {})
                queue.close()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert queue.held([held]) == [held]
        assert taken(queue).id == "from the child"


def test_several_threads_and_connections_do_each_job_once(tmp_path: Path, clock: Clock) -> None:
    done: list[str] = []

    def work(me: int) -> None:
        with JobQueue(tmp_path, now=clock) as mine:
            for number in range(25):
                mine.put(f"{me}-{number}", {}, line=str(number % 3))
            while jobs := mine.take(most=4):
                assert mine.done(jobs) == []
                done.extend(ids(jobs))

    threads = [threading.Thread(target=work, args=(me,)) for me in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with JobQueue(tmp_path, now=clock) as rest:
        while jobs := rest.take(most=4):  # a line may have been held by who came last
            done += ids(jobs)
            rest.done(jobs)
    assert sorted(done) == sorted(f"{me}-{n}" for me in range(3) for n in range(25))


class QueueMachine(RuleBasedStateMachine):
    """The queue against a list in RAM: order, lines, leases, retries, giving up, reopening."""

    jobs = Bundle("jobs")

    def __init__(self) -> None:
        super().__init__()
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.queue = self.opened()
        self.model: list[dict[str, Any]] = []

    def opened(self) -> JobQueue:
        return JobQueue(Path(self.folder.name), now=self.clock, lease=10)

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
        new = known is None or known["given_up"]
        assert self.queue.put(key, {"of": user}, line=line, user=user) == new
        if new:
            self.model = [job for job in self.model if job is not known]
            job = {"id": key, "line": line, "user": user, "due": self.clock(), "held": 0, "lease": 0.0, "takes": 0}
            self.model.append({**job, "attempts": 0, "given_up": False, "answer": None})

    @rule(target=jobs)
    def take(self) -> Any:
        job, expected, lines = next(iter(self.queue.take()), None), None, set()
        for each in self.model:
            if each["given_up"]:
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
        assert bool(self.queue.held([job])) == (known is not None)
        text = text.encode("utf-8", "ignore").decode()
        assert self.queue.save(job, text) == (known is not None)
        if known is not None:
            known["answer"] = text

    @rule(job=consumes(jobs))
    def done(self, job: Job) -> None:
        known = self.held(job)
        assert (self.queue.done([job]) == []) == (known is not None)
        self.model = [each for each in self.model if each is not known]

    @rule(job=consumes(jobs), after=st.integers(0, 20), limit=st.sampled_from([None, 1, 2]))
    def retry(self, job: Job, after: int, limit: int | None) -> None:
        known = self.held(job)
        gives_up = limit is not None and job.attempts + 1 >= limit
        assert self.queue.retry(job, after, limit=limit) == (known is not None and not gives_up)
        if known is not None:
            known.update(held=0, due=self.clock() + after, attempts=job.attempts + 1, given_up=gives_up)

    @rule(seconds=st.integers(1, 12))
    def wait(self, seconds: int) -> None:
        self.clock.seconds += seconds

    @rule()
    def reopen(self) -> None:
        self.queue.close()
        self.queue = self.opened()
        for job in self.model:
            job["held"] = 0

    @rule(user=st.sampled_from("uv"))
    def forget(self, user: str) -> None:
        assert self.queue.forget(user) == sum(job["user"] == user for job in self.model)
        self.model = [job for job in self.model if job["user"] != user]

    @rule()
    def revive(self) -> None:
        assert self.queue.revive() == sum(job["given_up"] for job in self.model)
        for job in self.model:
            if job["given_up"]:
                job.update(given_up=False, attempts=0, takes=0, due=self.clock(), held=0)

    @invariant()
    def counts(self) -> None:
        assert self.queue.pending() == sum(not job["given_up"] for job in self.model)
        assert {job.id for job in self.queue.given_up()} == {job["id"] for job in self.model if job["given_up"]}


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
