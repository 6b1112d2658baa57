from __future__ import annotations

import gc
import multiprocessing
import os
import socket
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from children import Child
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from langgraph_toolmem.base.errors import InputError, StorageError
from langgraph_toolmem.stores.database import NAME
from langgraph_toolmem.stores.job_queue import Job, JobQueue


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
    with JobQueue(tmp_path if request.param == "disk" else None, now=clock, lease=60, max_takes=5) as made:
        yield made


def taken(queue: JobQueue, *kinds: str) -> Job:
    job = queue.take(kinds or None)
    assert job is not None
    return job


def test_jobs_come_in_order_and_go_when_done(queue: JobQueue) -> None:
    assert queue.empty
    assert queue.take() is None
    assert queue.next_due() is None
    assert queue.put("1", {"a": [1, "ü"]}, kind="k", user="u")
    assert queue.put("2", {})
    assert not queue.put("1", {"other": 1})
    assert queue.pending() == 2
    first = taken(queue)
    assert (first.id, first.payload, first.kind, first.user, first.takes) == ("1", {"a": [1, "ü"]}, "k", "u", 1)
    assert taken(queue).id == "2"
    assert queue.take() is None
    assert queue.holds(first)
    assert queue.done(first)
    assert not queue.done(first)
    assert not queue.holds(first)
    assert queue.pending() == 1
    assert queue.put("1", {})  # done and gone: a new one


def test_kinds_are_taken_and_counted_apart(queue: JobQueue) -> None:
    queue.put("1", {}, kind="x")
    queue.put("2", {}, kind="y", after=5)
    assert queue.take(["y"]) is None
    assert queue.next_due(["y"]) == 5
    assert queue.pending(["x", "y"]) == 2
    assert queue.pending(["z"]) == queue.pending([]) == 0
    assert taken(queue, "x", "y").id == "1"


def test_jobs_of_one_line_wait_for_each_other(queue: JobQueue, clock: Clock) -> None:
    for key in ("a1", "a2", "b1"):
        queue.put(key, {}, line=key[0])
    first = taken(queue)
    assert taken(queue).id == "b1"
    assert queue.take() is None
    queue.retry(first, 30)
    assert queue.take() is None
    assert queue.next_due() == 30  # not now: what is due waits for its line
    clock.seconds += 30
    first = taken(queue)
    assert first.id == "a1"
    queue.done(first)
    assert taken(queue).id == "a2"


def test_a_line_goes_on_behind_what_was_given_up(queue: JobQueue) -> None:
    queue.put("a1", {}, line="a")
    queue.put("a2", {}, line="a")
    assert not queue.retry(taken(queue), 0, limit=1, error="no")
    assert taken(queue).id == "a2"


def test_a_lease_ends_and_who_had_it_is_told(queue: JobQueue, clock: Clock) -> None:
    queue.put("1", {})
    late = taken(queue)
    clock.seconds += 59
    assert queue.take() is None
    assert queue.next_due() == 1
    clock.seconds += 1
    again = taken(queue)
    assert again.takes == 2
    assert not queue.holds(late)
    assert not queue.save(late, "x")
    assert not queue.retry(late, 0)
    assert not queue.done(late)
    assert queue.save(again, "y")
    assert queue.retry(again, 0, error="E")
    third = taken(queue)
    assert (third.answer, third.attempts, third.error) == ("y", 1, "E")


def test_what_fails_too_often_is_given_up_kept_and_can_be_revived(queue: JobQueue) -> None:
    queue.put("1", {"a": 1})
    assert queue.retry(taken(queue), 0, limit=2)
    assert queue.report() == {"pending": 1, "failing": 1, "given_up": 0}
    assert not queue.retry(taken(queue), 0, limit=2, error="TimeoutError")
    assert queue.take() is None
    assert queue.report() == {"pending": 0, "failing": 0, "given_up": 1}
    [kept] = queue.given_up()
    assert (kept.id, kept.payload, kept.attempts, kept.error) == ("1", {"a": 1}, 2, "TimeoutError")
    assert queue.revive() == 1
    assert (taken(queue).attempts, queue.given_up()) == (0, [])
    queue.put("2", {})
    assert not queue.retry(taken(queue), 0, limit=1)
    assert queue.put("2", {"new": 1})
    assert taken(queue).payload == {"new": 1}


def test_what_never_ends_is_given_up(queue: JobQueue, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    queue.put("1", {}, kind="k")
    for _ in range(5):
        assert queue.take() is not None
        clock.seconds += 60
    queue.put("2", {})
    assert taken(queue).id == "2"
    assert [job.id for job in queue.given_up()] == ["1"]
    assert "given up" in caplog.text


def test_bad_input_is_told(queue: JobQueue) -> None:
    with pytest.raises(InputError, match="id"):
        queue.put("", {})
    with pytest.raises(InputError, match="JSON"):
        queue.put("1", {"a": {1}})
    with pytest.raises(InputError, match="Whose"):
        queue.forget("")
    assert queue.empty


def test_jobs_survive_and_closing_gives_back(tmp_path: Path, clock: Clock) -> None:
    with JobQueue(tmp_path / "sub", now=clock) as queue:
        assert queue.take() is None
        assert queue.forget("u") == queue.pending() == 0
        assert not (tmp_path / "sub").exists()
        queue.put("1", {"a": 1})
        queue.save(taken(queue), "answer")
    with pytest.raises(StorageError, match="closed"):
        queue.put("2", {})
    with JobQueue(tmp_path / "sub", now=clock) as queue:
        assert not queue.empty
        job = taken(queue)
        assert (job.payload, job.answer, job.takes) == ({"a": 1}, "answer", 2)


def test_the_file_is_durable_and_wipes_what_it_deletes(tmp_path: Path, clock: Clock) -> None:
    with JobQueue(tmp_path, now=clock) as queue:
        queue.put("1", {})
    with JobQueue(tmp_path, now=clock) as queue, queue.opened() as database:
        asked = ("journal_mode", "synchronous", "secure_delete")
        assert [database.execute(f"PRAGMA {name}").fetchone()[0] for name in asked] == ["wal", 2, 1]


def on_disk(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())


def test_what_is_forgotten_is_gone_from_the_disk(tmp_path: Path, clock: Clock) -> None:
    with JobQueue(tmp_path, now=clock) as queue:
        for number in range(200):
            queue.put(f"{number}", {"text": f"private-{number % 2} " * 50}, user=f"u{number % 2}")
        queue.save(taken(queue), "private-0 answered")
        done = taken(queue)
        queue.done(done)
        assert b"private-0" in on_disk(tmp_path)
        before = queue.forgettings
        assert queue.forget("u0") == 100
        assert b"private-0" not in on_disk(tmp_path)
        assert b"private-1" in on_disk(tmp_path)
        assert queue.forgettings > before
        assert queue.pending() == 99
        assert queue.forget("u1") == 99
        assert b"private-1" not in on_disk(tmp_path)  # of the one that was done, too
        more = queue.forgettings
        assert queue.forget("u1") == 0
        assert queue.forgettings > more


def test_a_damaged_file_is_set_aside(tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / NAME).write_bytes(b"not a database at all " * 100)
    with JobQueue(tmp_path, now=clock) as queue:
        assert queue.take() is None
        queue.put("1", {})
        assert queue.pending() == 1
    assert (tmp_path / f"{NAME}.corrupt-1").read_bytes().startswith(b"not a database")
    assert "set aside" in caplog.text


def test_a_newer_file_is_left_alone(tmp_path: Path, clock: Clock) -> None:
    with sqlite3.connect(tmp_path / NAME) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    queue = JobQueue(tmp_path, now=clock)
    with pytest.raises(StorageError, match="newer"):
        queue.put("1", {})
    assert not list(tmp_path.glob("*corrupt*"))


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be used"):
        JobQueue(tmp_path / "file" / "sub", now=clock).put("1", {})


ACKNOWLEDGED = """
import sys, time
from pathlib import Path
from langgraph_toolmem.stores.job_queue import JobQueue
queue = JobQueue(Path(sys.argv[1]), now=time.time)
queue.put("0", {})
queue.take()
for number in range(1, 10_000):
    queue.put(str(number), {"n": number})
    print(number, flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
def test_the_jobs_of_a_dead_process_are_there_and_free_at_once(tmp_path: Path) -> None:
    child = Child(ACKNOWLEDGED, tmp_path)
    for _ in range(20):
        child.line()
    last = max([20, *map(int, child.kill())])
    with JobQueue(tmp_path, now=lambda: 4e9, lease=1e9) as queue:
        assert queue.pending() in (last + 1, last + 2)
        assert [taken(queue).id for _ in range(last + 1)] == [str(n) for n in range(last + 1)]


def test_a_lease_of_this_process_stays_and_of_a_former_with_its_number_does_not(tmp_path: Path, clock: Clock) -> None:
    with JobQueue(tmp_path, now=clock) as one, JobQueue(tmp_path, now=clock) as two:
        one.put("1", {})
        held = taken(one)
        assert two.take() is None
        owned_by(f"{socket.gethostname()}|{os.getpid()}|another", tmp_path)  # by a process long gone
        assert taken(two).id == "1"
        assert not one.done(held)


def owned_by(owner: str, folder: Path) -> None:
    with closing(sqlite3.connect(folder / NAME)) as database, database:
        assert database.execute("UPDATE jobs SET owner = ?", (owner,)).rowcount == 1


def test_leases_of_another_computer_are_left_alone(tmp_path: Path, clock: Clock) -> None:
    with JobQueue(tmp_path, now=clock, lease=60) as queue:
        queue.put("1", {})
        taken(queue)
        owned_by("another-computer|1|x", tmp_path)
        assert queue.take() is None
        clock.seconds += 60
        assert queue.take() is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_has_a_connection_of_its_own(tmp_path: Path, clock: Clock) -> None:
    with JobQueue(tmp_path, now=clock) as queue:
        queue.put("1", {})
        held = taken(queue)
        child = multiprocessing.get_context("fork").Process(target=_in_the_child, args=(queue, held))
        child.start()
        child.join(30)
        assert child.exitcode == 0
        assert queue.holds(held)
        assert taken(queue).id == "from the child"


def _in_the_child(queue: JobQueue, held: Job) -> None:
    before = connections()
    assert not queue.holds(held)
    assert queue.put("from the child", {})
    assert connections() == before + 1, "the parent's is not let go of: that would close it"
    queue.close()


def connections() -> int:
    gc.collect()
    return sum(type(each) is sqlite3.Connection for each in gc.get_objects())


def test_several_threads_and_connections_do_each_job_once(tmp_path: Path, clock: Clock) -> None:
    done: list[str] = []
    errors: list[BaseException] = []

    def work(me: int) -> None:
        try:
            with JobQueue(tmp_path, now=clock) as mine:
                for number in range(25):
                    mine.put(f"{me}-{number}", {}, line=str(number % 3))
                    mine.put(f"all-{number}", {})
                while (job := mine.take()) is not None:
                    assert mine.done(job)
                    done.append(job.id)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            errors.append(error)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with JobQueue(tmp_path, now=clock) as rest:
        while (job := rest.take()) is not None:  # a line may have been held by who came last
            done.append(job.id)
            rest.done(job)
    mine = [key for key in done if not key.startswith("all")]
    assert sorted(mine) == sorted(f"{me}-{n}" for me in range(3) for n in range(25))
    assert {key for key in done if key.startswith("all")} == {f"all-{n}" for n in range(25)}


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
        return JobQueue(Path(self.folder.name), now=self.clock, lease=10, max_takes=1000)

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
        job, expected, lines = self.queue.take(), None, set()
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
        assert self.queue.holds(job) == (known is not None)
        text = text.encode("utf-8", "ignore").decode()
        assert self.queue.save(job, text) == (known is not None)
        if known is not None:
            known["answer"] = text

    @rule(job=consumes(jobs))
    def done(self, job: Job) -> None:
        known = self.held(job)
        assert self.queue.done(job) == (known is not None)
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
