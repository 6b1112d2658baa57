"""The worker of jobs, with the entries of a memory as its work: critiques, failures, forgetting, batches, threads."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from queues import Clock, pending, put

from langgraph_toolmem import Entries, ToolMemory
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.core import jobs
from langgraph_toolmem.core.jobs import Job, JobQueue
from langgraph_toolmem.core.users import User
from langgraph_toolmem.entries import ENTRIES_JOBS
from langgraph_toolmem.entries.entry import Critique, Entry, EntryCall, entry_id
from langgraph_toolmem.graph.events import Forgotten
from langgraph_toolmem.stores.database import NAME

ME = ("toolmem", "me")
HERE = User(None, None, ME)


def entry(name: str, **fields: Any) -> Entry:
    run = digest("run", name)
    made = {"calls": (EntryCall("find", {"name": name}, "ok", "7"),), "user": "u", **fields}
    return Entry(entry_id(run), run, f"find {name}", **made)


class Scripted:
    """A critic that counts, and fails as often as it is told."""

    def __init__(self, *errors: BaseException) -> None:
        self.asked: list[str] = []
        self.similar: list[list[str]] = []
        self.errors = list(errors)
        self.before: Callable[[], object] = lambda: None

    def __call__(self, entry: Entry, similar: Sequence[Entry]) -> Critique:
        self.asked.append(entry.query)
        self.similar.append([each.query for each in similar])
        self.before()
        if self.errors:
            raise self.errors.pop(0)
        return Critique(went_wrong=f"{entry.query} {len(self.asked)}", call=1, instead="Look.")


@pytest.fixture
def clock() -> Clock:
    return Clock()


def work(made: jobs.Jobs) -> float | None:
    """Do all jobs that are due, and those that they put."""
    while (after := made.work()) == 0:
        pass
    return after


class Office:
    """A memory of entries alone, and its work by hand."""

    def __init__(self, folder: Path | None, now: Callable[[], float], critic: Any = None) -> None:
        self.memory = ToolMemory(folder, methods=[Entries(critic=critic)], namespace=ME, now=now)
        self.jobs, self.entries = self.memory.core.jobs, self.memory.entries
        self.queue, self.rows = self.jobs.queue, self.memory.entries.rows

    def kept(self, namespace: tuple[str, ...] = ME) -> list[Entry]:
        return list(self.rows.all(User(None, None, namespace), retired=True))

    def write(self, entry: Entry, namespace: tuple[str, ...] = ME) -> None:
        self.entries.put(entry, User(None, entry.user, namespace))

    def judge(self, run: str, score: float, comment: str = "", namespace: tuple[str, ...] = ME) -> None:
        said = {"score": score, "comment": comment}
        self.jobs.put(
            ENTRIES_JOBS.judge, said, run=run, user="u", namespace=namespace, ordering_key=digest(*namespace, run)
        )

    def __enter__(self) -> Office:
        return self

    def __exit__(self, *_: object) -> None:
        self.memory.close()


Opens = Callable[..., Office]


@pytest.fixture
def opens(tmp_path: Path, clock: Clock) -> Iterator[Opens]:
    """Opens the folder, with a critic or without; the one that was open is closed."""
    opened: list[Office] = []

    def opens(critic: Any = None, now: Callable[[], float] = clock) -> Office:
        for each in opened:
            each.memory.close()
        opened.append(Office(tmp_path, now, critic))
        return opened[-1]

    yield opens
    for each in opened:
        each.memory.close()


# critiques


@pytest.mark.usefixtures("by_hand")
def test_no_critique_is_asked_for_twice(opens: Opens) -> None:
    critic = Scripted()
    office = opens(critic)
    for score in (0.0, 0.0, 0.2, None):
        office.write(entry("ann", score=score))
        work(office.jobs)
    office.judge(entry("ann").run, 0.1)
    work(office.jobs)
    assert critic.asked == ["find ann"]
    [kept] = office.kept()
    office.jobs.put("critique", {"entry": kept.id, "feedback": kept.feedback_key}, namespace=ME)
    work(office.jobs)
    assert critic.asked == ["find ann"]
    office.judge(entry("ann").run, 0.1, "wrong house")  # more is known now
    work(office.jobs)
    assert len(critic.asked) == 2
    [kept] = office.kept()
    assert "find ann 2" in kept.critique


@pytest.mark.usefixtures("by_hand")
def test_an_answer_that_was_given_is_not_asked_for_again(opens: Opens, clock: Clock) -> None:
    """A kill between the model's answer and the entry is a failure of the writing, seen from here."""
    critic = Scripted()
    office = opens(critic)
    original = office.rows.change
    office.rows.change = failing  # type: ignore[method-assign]
    office.write(entry("ann", score=0.0))
    assert work(office.jobs) == pytest.approx(1.0)
    assert office.kept()[0].critique == ""
    office.rows.change = original  # type: ignore[method-assign]
    clock.seconds += 2
    assert work(office.jobs) is None
    assert critic.asked == ["find ann"]
    assert "find ann 1" in office.kept()[0].critique


def failing(*args: Any, **options: Any) -> Any:
    raise StorageError("disk full")


@pytest.mark.usefixtures("by_hand")
def test_without_a_critic_nothing_is_asked_and_jobs_for_one_wait(opens: Opens, clock: Clock) -> None:
    critic = Scripted(TimeoutError("no answer"))
    office = opens(critic)
    office.write(entry("ann", score=0.0))
    work(office.jobs)
    without = opens()
    ben = entry("ben", score=0.0, comment="not him")
    without.write(ben)
    assert work(without.jobs) is None
    assert without.jobs.flush(timeout=1)
    assert pending(without.queue) == 1  # ann's, for who has a critic
    later = opens(critic)
    later.write(ben)  # one that is reported again is criticised now
    clock.seconds += 2
    work(later.jobs)
    assert sorted(critic.asked) == ["find ann", "find ann", "find ben"]
    assert all(each.critique for each in later.kept())


# failing


@pytest.mark.usefixtures("by_hand")
def test_a_verdict_waits_for_its_entry_and_is_dropped_without(opens: Opens, clock: Clock) -> None:
    office = opens()
    office.judge(entry("ann").run, 0.0)
    office.judge(digest("run", "never"), 0.0)
    work(office.jobs)
    office.rows.put([entry("ann")], HERE)  # by another process
    while (wait := work(office.jobs)) is not None:
        clock.seconds += wait
    assert [each.score for each in office.kept()] == [0.0]
    assert office.jobs.queue.report() == {"pending": 0, "failing": 0, "dead": 0}


def test_a_thread_survives_whatever_the_critic_raises(opens: Opens) -> None:
    class Odd(BaseException):
        """As langmem's ConfigurationError: no Exception."""

    critic = Scripted(Odd("odd"))
    office = opens(critic, time.time)
    office.write(entry("ann", score=0.0))
    assert office.jobs.flush(timeout=30)
    assert len(critic.asked) == 2


# forgetting


@pytest.mark.usefixtures("by_hand")
def test_what_is_being_done_for_a_forgotten_user_is_not_written(opens: Opens) -> None:
    critic = Scripted()
    office = opens(critic)

    def forget() -> None:
        office.jobs.forget(Forgotten("u"))
        office.rows.forget_of("u", HERE)

    critic.before = forget
    office.write(entry("ann", score=0.0))
    office.write(entry("ben", user="v"))
    work(office.jobs)
    assert [each.query for each in office.kept()] == ["find ben"]
    assert pending(office.queue) == 0


@pytest.mark.usefixtures("by_hand")
def test_another_process_that_forgets_while_an_entry_is_written_wins(
    opens: Opens, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = opens()
    original = office.rows.put

    def put(given: list[Entry], user: User, **how: Any) -> list[Entry | None]:
        with JobQueue(tmp_path, now=clock) as another:
            another.forget("u")
        return original(given, user, **how)

    monkeypatch.setattr(office.rows, "put", put)
    office.write(entry("ann"))
    work(office.jobs)
    assert office.kept() == []
    assert pending(office.queue) == 0


# batches


class Numbers:
    """Jobs that note what they were given at once."""

    def __init__(self, folder: Path | None, bad: int = -1, **how: Any) -> None:
        self.jobs, self.bad = jobs.Jobs(folder, now=time.time, **how), bad
        self.batches: list[list[int]] = []
        self.error: Exception = ValueError("bad")
        self.jobs.handle("n", self.do)

    def do(self, given: Sequence[Job]) -> None:
        self.batches.append([job.payload["n"] for job in given])
        if self.bad in self.batches[-1]:
            raise self.error

    def put(self, *numbers: int) -> None:
        for number in numbers:
            self.jobs.put("n", {"n": number}, ordering_key="")

    def close(self) -> None:
        self.jobs.close()
        self.jobs.queue.close()


@pytest.mark.usefixtures("by_hand")
@pytest.mark.parametrize("error", [ValueError("bad"), StorageError("refused")])
def test_a_job_that_fails_holds_up_no_other(error: Exception) -> None:
    with closing(Numbers(None, bad=2)) as numbers:
        numbers.error = error
        numbers.put(*range(4))
        work(numbers.jobs)
        assert numbers.batches == [[0, 1, 2, 3], [0], [1], [2], [3]]
        assert numbers.jobs.queue.report() == {"pending": 1, "failing": 1, "dead": 0}


def test_one_transaction_and_one_embedding_call_for_the_entries_of_many_runs(
    opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    office = opens(None, time.time)
    asked: list[int] = []
    embedder = office.memory.core.vectors.embedder
    original = type(embedder).embed_documents
    monkeypatch.setattr(
        type(embedder), "embed_documents", lambda self, texts: asked.append(len(texts)) or original(self, texts)
    )
    with office.jobs.together():
        for name in "abcdefgh":
            office.write(entry(name, user=name))
    assert office.jobs.flush()
    assert asked == [8]
    assert len(office.kept()) == 8


# processes, threads


def test_who_may_not_work_leaves_jobs_to_who_may(tmp_path: Path) -> None:
    may = False
    with closing(Numbers(tmp_path, may_work=lambda: may)) as one, closing(Numbers(tmp_path)) as other:
        one.put(1, 2)
        assert not one.jobs.settle(timeout=30)
        assert not one.jobs.flush(timeout=0.3)
        other.put(3)
        assert one.jobs.flush(timeout=30)
        assert (one.batches, sorted(chain(*other.batches))) == ([], [1, 2, 3])
        one.put(4)
        may = True  # the other one ended
        assert one.jobs.flush(timeout=30)
        assert one.jobs.settle()


def test_each_time_a_process_becomes_the_writer_it_takes_the_jobs_of_a_killed_one(tmp_path: Path) -> None:
    """It was so at the first time only, and a recall waited ten seconds for jobs that a killed process had taken."""
    new_writer = iter([True, False, True])
    numbers = Numbers(tmp_path, take_over=lambda: next(new_writer, False))
    with closing(JobQueue(tmp_path, now=time.time)) as killed, closing(numbers):
        for number in range(2):
            put(killed, f"n{number}", kind="n", payload={"n": number})
            assert len(killed.take(["n"])) == 1
            assert numbers.jobs.settle(timeout=30)
            assert numbers.batches[number:] == [[number]]


def test_a_process_that_is_refused_the_right_to_write_leaves_the_jobs(tmp_path: Path) -> None:
    def refuse() -> bool:
        raise StorageError("another process writes there")

    with closing(Numbers(tmp_path, take_over=refuse)) as numbers:
        numbers.put(1)
        assert numbers.jobs.work() == jobs.JOB_LIMITS.idle_seconds
        assert numbers.batches == []


def test_closed_jobs_end_their_thread_and_are_kept(opens: Opens) -> None:
    before = set(threading.enumerate())
    office = opens(None, time.time)
    office.write(entry("ann"))
    assert office.jobs.flush()
    office.jobs.close()
    assert set(threading.enumerate()) <= before
    office.write(entry("ben"))  # safe on disk, for the next
    assert not office.jobs.flush(timeout=5)
    assert pending(office.queue) == 1
    office.jobs.close()


def test_closing_waits_no_longer_than_told(opens: Opens, monkeypatch: pytest.MonkeyPatch) -> None:
    held = threading.Event()
    critic = Scripted()
    critic.before = lambda: held.wait(30)
    office = opens(critic, time.time)
    office.write(entry("ann", score=0.0))
    while not critic.asked:
        held.wait(0.01)
    monkeypatch.setattr(jobs, "JOB_LIMITS", replace(jobs.JOB_LIMITS, close_seconds=0.05))
    office.jobs.close()
    assert not held.is_set()
    [thread] = [each for each in threading.enumerate() if each.name == "toolmem-slow"]
    held.set()
    thread.join(30)
    assert "find ann" in office.kept()[0].critique  # what was begun was ended


def test_the_thread_goes_on_after_an_error(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(jobs, "JOB_LIMITS", replace(jobs.JOB_LIMITS, idle_seconds=0.01))
    with closing(Numbers(None)) as numbers:
        with monkeypatch.context() as patched:
            patched.setattr(JobQueue, "take", failing)
            numbers.put(1)
            while "background writing failed" not in caplog.text:
                time.sleep(0.01)
        assert numbers.jobs.flush()
    assert caplog.text.count("background writing failed") == 1


TIMES = ["9e999", "-9e999", "1e308", "'soon'", "x'ff'"]
"""What may stand in place of a time; SQLite has no NaN."""


@pytest.mark.parametrize("cell", TIMES)
@pytest.mark.parametrize("column", ["due", "lease"])
def test_a_job_whose_time_is_none_is_done(tmp_path: Path, column: str, cell: str) -> None:
    with JobQueue(tmp_path, now=time.time) as queue:
        assert put(queue, "strange")
        assert put(queue, "usual")
    with closing(sqlite3.connect(tmp_path / NAME, isolation_level=None)) as database:
        database.execute(f"UPDATE jobs SET {column} = {cell} WHERE id = 'strange'")
    done: list[Job] = []
    made = jobs.Jobs(tmp_path, now=time.time)
    made.handle("k", done.extend)
    made.begin()
    assert made.flush(timeout=20)
    made.close()
    assert {job.id for job in done} == {"strange", "usual"}


def test_a_thread_whose_work_another_one_took_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited for a time that never comes, which `wait` refused: "timestamp out of range"."""
    ended: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", ended.append)
    started: list[threading.Thread] = []
    start = jobs.threads.start

    def interrupted(name: str, do: Callable[[], object]) -> threading.Thread:
        started.append(start(name, do))
        if len(started) == 1:
            raise KeyboardInterrupt
        return started[-1]

    monkeypatch.setattr(jobs.threads, "start", interrupted)
    done: list[Job] = []
    made = jobs.Jobs(tmp_path, now=time.time)
    made.handle("k", done.extend)
    with pytest.raises(KeyboardInterrupt):
        made.put("k", {"number": 1})
    made.put("k", {"number": 2})
    assert made.flush(timeout=20)
    for thread in started:
        thread.join(20)
    assert [thread.is_alive() for thread in started] == [False, False]
    assert ended == []
    made.put("k", {"number": 3})
    assert made.flush(timeout=20)
    made.close()
    assert [job.payload["number"] for job in done] == [1, 2, 3]
