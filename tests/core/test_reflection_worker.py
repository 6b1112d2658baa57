from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from langgraph_toolmem.base.errors import InputError, MissingExtraError, StorageError
from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.core import jobs as workers
from langgraph_toolmem.core.jobs import ReflectionWorker
from langgraph_toolmem.entries.critique import Critique, ModelCritic
from langgraph_toolmem.entries.entry import Call, Entry, entry_id
from langgraph_toolmem.entries.store import EntryStore
from langgraph_toolmem.search.embedders import resolve_embedder
from langgraph_toolmem.stores import executors
from langgraph_toolmem.stores.executors import LangmemExecutor, ThreadExecutor, Work
from langgraph_toolmem.stores.job_queue import JobQueue
from langgraph_toolmem.stores.vectors import VectorStore
from langgraph_toolmem.testing import OpenAIStubServer, make_chat_model

LEXICAL = resolve_embedder(None)
ME = ("toolmem", "me")


def entry(name: str, **fields: Any) -> Entry:
    run = digest("run", name)
    made = {"calls": (Call("find", {"name": name}, "ok", "7"),), "user": "u", **fields}
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


class ByHand:
    """An executor that does nothing by itself."""

    def __init__(self) -> None:
        self.woken: list[str] = []

    def start(self, work: Work) -> None:
        self.work = work

    def wake(self, key: str = "", after: float = 0.0) -> None:
        self.woken.append(key)

    def close(self, timeout: float | None = None) -> None:
        self.closed = True


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[EntryStore]:
    with VectorStore(tmp_path, embedder=LEXICAL, namespace=ME) as vectors:
        yield EntryStore(vectors, now=clock)


@pytest.fixture
def queue(tmp_path: Path, clock: Clock) -> Iterator[JobQueue]:
    with JobQueue(tmp_path, now=clock) as made:
        yield made


def by_hand(queue: JobQueue, store: EntryStore, critic: Any = None, **options: Any) -> ReflectionWorker:
    return ReflectionWorker(queue, store, critic, executor=ByHand(), **options)


# in the background


def test_runs_verdicts_and_critiques_are_written_in_the_background(tmp_path: Path) -> None:
    def reply(request: dict[str, Any]) -> str:
        [query] = re.findall(r"find \w+", str(request["messages"][-1]["content"]))[:1]
        return json.dumps({"went_wrong": f"{query} failed.", "call": 1, "instead": "Look."})

    with (
        OpenAIStubServer(reply) as server,
        VectorStore(tmp_path, embedder=LEXICAL, namespace=ME) as vectors,
        JobQueue(tmp_path, now=time.time) as queue,
    ):
        store = EntryStore(vectors, now=time.time)
        with ReflectionWorker(queue, store, ModelCritic(make_chat_model(server), {})) as worker:
            worker.write(entry("ann", score=1.0))
            worker.write(entry("ben", score=0.0))
            worker.write(entry("cleo"))
            worker.judge(entry("cleo").run, 0.0, "not her", user="u")
            worker.write(entry("ben", score=0.0))
            assert worker.flush(timeout=60)
            assert worker.report() == {"pending": 0, "failing": 0, "given_up": 0}
        found = {each.query: each for each in EntryStore(vectors, now=time.time).all()}
        asked = len(server.requests)
    assert {query: each.score for query, each in found.items()} == {"find ann": 1.0, "find ben": 0.0, "find cleo": 0.0}
    assert found["find ann"].critique == ""
    assert found["find ben"].critique == "What went wrong: find ben failed.\nWhere: call 1, find.\nInstead: Look."
    assert found["find cleo"].blamed == "find"
    assert asked == 2


def test_writing_waits_for_nobody(queue: JobQueue, store: EntryStore) -> None:
    held = threading.Event()
    critic = Scripted()
    critic.before = lambda: held.wait(30)
    with ReflectionWorker(queue, store, critic) as worker:
        worker.write(entry("ann", score=0.0))
        while not critic.asked:
            held.wait(0.01)
        for name in "abc":
            worker.write(entry(name))
        while queue.pending() > 1:  # entries do not wait behind the critique
            held.wait(0.01)
        assert len(store) == 4
        assert not worker.flush(timeout=0.05)
        held.set()
        assert worker.flush()
    assert len(store) == 4


async def test_the_async_twins(queue: JobQueue, store: EntryStore) -> None:
    with ReflectionWorker(queue, store, Scripted()) as worker:
        await worker.awrite(entry("ann"))
        await worker.ajudge(entry("ann").run, 0.0, "no")
        assert await worker.aflush()
    [kept] = store.all()
    assert kept.critique
    assert kept.comment == "no"


def test_what_a_former_process_left_is_done_at_the_start(queue: JobQueue, store: EntryStore) -> None:
    left = by_hand(queue, store)
    left.write(entry("ann"))
    left.close()
    assert len(store) == 0
    with ReflectionWorker(queue, store) as worker:
        worker.start()
        assert worker.flush()
    assert len(store) == 1


def test_an_unused_worker_makes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    store = EntryStore(VectorStore(folder, embedder=LEXICAL, namespace=ME), now=time.time)
    before = threading.active_count()
    with JobQueue(folder, now=time.time) as queue, ReflectionWorker(queue, store, Scripted()) as worker:
        worker.start()
        assert worker.flush()
        assert worker.forget("u") == 0
        assert threading.active_count() == before
    assert not folder.exists()


def test_entries_go_where_their_namespace_says(tmp_path: Path, queue: JobQueue, clock: Clock) -> None:
    with VectorStore(tmp_path, embedder=LEXICAL, namespace=("toolmem",)) as vectors:
        stores: dict[tuple[str, ...], EntryStore] = {}

        def of(namespace: tuple[str, ...]) -> EntryStore:
            return stores.setdefault(namespace, EntryStore(vectors.scoped(namespace), now=clock))

        critic = Scripted()
        worker = by_hand(queue, of, critic)  # type: ignore[arg-type]
        for name in ("a@b.c", "ü/x"):
            worker.write(entry(name, score=0.0), namespace=("toolmem", name))
            worker.judge(entry(name).run, 0.0, "late", namespace=("toolmem", name))
        assert worker.work() is None
        assert {space[1]: [each.query for each in store.all()] for space, store in stores.items()} == {
            "a@b.c": ["find a@b.c"],
            "ü/x": ["find ü/x"],
        }
        assert critic.similar == [[], []]  # nobody else's


# critiques


def test_no_critique_is_asked_for_twice(queue: JobQueue, store: EntryStore) -> None:
    critic = Scripted()
    worker = by_hand(queue, store, critic)
    for score in (0.0, 0.0, 0.2, None):
        worker.write(entry("ann", score=score))
        worker.work()
    worker.judge(entry("ann").run, 0.1)
    worker.work()
    assert critic.asked == ["find ann"]
    [kept] = store.all()
    queue.put("again", {"namespace": [], "entry": kept.id, "verdict": kept.verdict}, kind="critique")
    worker.work()
    assert critic.asked == ["find ann"]
    worker.judge(entry("ann").run, 0.1, "wrong house")  # more is known now
    worker.work()
    assert len(critic.asked) == 2
    [kept] = store.all()
    assert "find ann 2" in kept.critique


def test_good_bad_and_good_again_ends_good(queue: JobQueue, store: EntryStore) -> None:
    critic = Scripted()
    worker = by_hand(queue, store, critic)
    worker.write(entry("ann"))
    for score in (1.0, 0.0, 1.0):
        worker.judge(entry("ann").run, score, user="u")
    worker.work()
    assert critic.asked == []  # it was good again when the critic's turn came
    assert [each.score for each in store.all()] == [1.0]


def test_an_answer_that_was_given_is_not_asked_for_again(queue: JobQueue, store: EntryStore) -> None:
    """A kill between the model's answer and the entry is a failure of the writing, seen from here."""
    critic = Scripted()
    worker = by_hand(queue, store, critic)
    original = store.set_critique
    store.set_critique = failing  # type: ignore[method-assign,assignment]
    worker.write(entry("ann", score=0.0))
    assert worker.work() == pytest.approx(1.0)
    assert store.all()[0].critique == ""
    store.set_critique = original  # type: ignore[method-assign]
    queue._now.seconds += 2  # type: ignore[attr-defined]
    assert worker.work() is None
    assert critic.asked == ["find ann"]
    assert "find ann 1" in store.all()[0].critique


def failing(*args: Any, **options: Any) -> Any:
    raise StorageError("disk full")


def test_similar_entries_are_shown_to_the_critic(queue: JobQueue, store: EntryStore) -> None:
    store.put_many([replace(entry(name), query=f"find {name} in the office") for name in "abcd"])
    critic = Scripted()
    by_hand(queue, store, critic).write(entry("ann in the office", score=0.0))
    by_hand(queue, store, critic, similar=lambda store, entry: store.all()[:1]).work()
    worker = by_hand(queue, store, critic)
    worker.write(entry("ben in the office", score=0.0))
    worker.work()
    assert [len(each) for each in critic.similar] == [1, 3]
    assert "find ben in the office" not in critic.similar[1]


def test_without_a_critic_nothing_is_asked_and_jobs_for_one_wait(queue: JobQueue, store: EntryStore) -> None:
    critic = Scripted(TimeoutError("no answer"))
    with_one = by_hand(queue, store, critic)
    with_one.write(entry("ann", score=0.0))
    with_one.work()
    without = by_hand(queue, store)
    without.write(entry("ben", score=0.0))
    assert without.work() is None
    assert without.flush(timeout=1)
    assert without.catch_up() == 0
    assert queue.pending() == 1  # ann's, for who has a critic
    later = by_hand(queue, store, critic)
    assert later.catch_up() == 1  # ben's is new
    queue._now.seconds += 2  # type: ignore[attr-defined]
    later.work()
    assert sorted(critic.asked) == ["find ann", "find ann", "find ben"]
    assert all(each.critique for each in store.all())
    assert later.catch_up() == 0


# failing


def test_a_critic_that_fails_is_asked_later_and_at_last_given_up(
    queue: JobQueue, store: EntryStore, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    critic = Scripted(*[TimeoutError("find ann is secret")] * 99)
    worker = by_hand(queue, store, critic)
    worker.write(entry("ann", score=0.0))
    waits = []
    while (wait := worker.work()) is not None:
        waits.append(wait)
        clock.seconds += wait
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert len(critic.asked) == workers.CRITIQUE_TRIES
    assert worker.report() == {"pending": 0, "failing": 0, "given_up": 1}
    [given_up] = queue.given_up()
    assert "TimeoutError" in given_up.error
    assert "secret" not in given_up.error
    assert "secret" not in caplog.text
    assert "given up" in caplog.text
    assert [each.critique for each in store.all()] == [""]
    assert worker.flush(timeout=1)
    critic.errors.clear()
    assert queue.revive() == 1
    worker.work()
    assert store.all()[0].critique


def test_entries_wait_for_the_database_as_long_as_it_takes(
    queue: JobQueue, store: EntryStore, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    worker = by_hand(queue, store)
    with monkeypatch.context() as patched:
        patched.setattr(store, "put", failing)
        worker.write(entry("ann"))
        worker.judge(entry("ann").run, 0.0)
        for _ in range(30):
            wait = worker.work()
            assert wait is not None
            assert 1 <= wait <= workers.LONGEST_WAIT
            clock.seconds += wait
        assert len([r for r in caplog.records if r.levelname == "WARNING"]) == 1  # told once
    worker.work()
    assert [each.score for each in store.all()] == [0.0]


def test_what_cannot_be_read_is_given_up_at_once(queue: JobQueue, store: EntryStore) -> None:
    queue.put("broken", {"namespace": [], "entry": {"no": "entry"}}, kind="write", line="x")
    worker = by_hand(queue, store)
    worker.write(entry("ann"))
    assert worker.work() is None
    assert [job.id for job in queue.given_up()] == ["broken"]
    assert len(store) == 1


def test_a_verdict_waits_for_its_entry_and_is_dropped_without(queue: JobQueue, store: EntryStore, clock: Clock) -> None:
    worker = by_hand(queue, store)
    worker.judge(entry("ann").run, 0.0)
    worker.judge(digest("run", "never"), 0.0)
    worker.work()
    store.put(entry("ann"))  # by another process
    while (wait := worker.work()) is not None:
        clock.seconds += wait
    assert [each.score for each in store.all()] == [0.0]
    assert worker.report() == {"pending": 0, "failing": 0, "given_up": 0}
    with pytest.raises(InputError, match="score"):
        worker.judge("r", 7)


def test_jobs_of_one_run_keep_their_order_when_one_fails(
    queue: JobQueue, store: EntryStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = by_hand(queue, store)
    worker.write(entry("ann", score=1.0))
    with monkeypatch.context() as patched:
        patched.setattr(store, "put", failing)
        worker.work()
    worker.judge(entry("ann").run, 0.0)
    worker.write(entry("ben"))
    worker.work()
    assert [each.query for each in store.all()] == ["find ben"]
    clock.seconds += 2
    worker.work()
    assert {each.query: each.score for each in store.all()} == {"find ann": 0.0, "find ben": None}


def test_a_thread_survives_whatever_the_critic_raises(queue: JobQueue, store: EntryStore) -> None:
    class Odd(BaseException):
        """As langmem's ConfigurationError: no Exception."""

    queue._now = time.time
    critic = Scripted(Odd("odd"))
    with ReflectionWorker(queue, store, critic) as worker:
        worker.write(entry("ann", score=0.0))
        assert worker.flush(timeout=30)
    assert len(critic.asked) == 2


# forgetting


def test_what_is_being_done_for_a_forgotten_user_is_not_written(queue: JobQueue, store: EntryStore) -> None:
    critic = Scripted()
    worker = by_hand(queue, store, critic)

    def forget() -> None:
        worker.forget("u")
        store.forget_user("u")

    critic.before = forget
    worker.write(entry("ann", score=0.0))
    worker.write(entry("ben", user="v"))
    worker.work()
    assert [each.query for each in store.all()] == ["find ben"]
    assert queue.pending() == 0


def test_a_critique_is_not_written_for_a_user_whom_another_process_forgets(
    queue: JobQueue, store: EntryStore, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = by_hand(queue, store, Scripted())
    original = queue.save

    def save(*args: Any) -> bool:
        saved = original(*args)
        with JobQueue(tmp_path, now=clock) as another:
            another.forget("u")  # its entries are next
        return saved

    monkeypatch.setattr(queue, "save", save)
    worker.write(entry("ann", score=0.0))
    worker.work()
    assert [each.critique for each in store.all()] == [""]


def test_another_process_that_forgets_while_an_entry_is_written_wins(
    queue: JobQueue, store: EntryStore, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = by_hand(queue, store)
    original = store.put

    def put(given: Entry) -> Entry | None:
        with JobQueue(tmp_path, now=clock) as another:
            another.forget("u")
        return original(given)

    monkeypatch.setattr(store, "put", put)
    worker.write(entry("ann"))
    worker.work()
    assert store.all() == []
    assert queue.pending() == 0


def test_an_entry_stays_that_another_process_finished(
    queue: JobQueue, store: EntryStore, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = by_hand(queue, store)
    original = store.put

    def put(given: Entry) -> Entry | None:
        clock.seconds += 10_000  # the lease is over, another process takes the job and does it
        with JobQueue(tmp_path, now=clock) as another:
            job = another.take()
            assert job is not None
            another.done(job)
        return original(given)

    monkeypatch.setattr(store, "put", put)
    worker.write(entry("ann"))
    worker.work()
    assert [each.query for each in store.all()] == ["find ann"]


# executors


def test_a_closed_worker_ends_its_thread_and_keeps_the_jobs(queue: JobQueue, store: EntryStore) -> None:
    before = set(threading.enumerate())
    worker = ReflectionWorker(queue, store)
    worker.write(entry("ann"))
    assert worker.flush()
    assert set(threading.enumerate()) - before
    worker.close()
    assert set(threading.enumerate()) <= before
    worker.write(entry("ben"))  # safe on disk, for the next
    assert not worker.flush(timeout=5)
    assert queue.pending() == 1
    worker.close()


def test_a_thread_with_nothing_to_do_ends_and_another_begins_when_it_is_needed() -> None:
    done: list[float] = []
    executor = ThreadExecutor(poll=0.02)
    before = set(threading.enumerate())
    for expected in (1, 2):
        executor.start(lambda: done.append(0.0))
        executor.wake()
        end = time.monotonic() + 20
        while set(threading.enumerate()) - before and time.monotonic() < end:
            time.sleep(0.01)
        assert set(threading.enumerate()) <= before
        assert len(done) >= expected
    executor.close()
    executor.wake()
    assert set(threading.enumerate()) <= before


def test_closing_waits_no_longer_than_told(queue: JobQueue, store: EntryStore) -> None:
    held = threading.Event()
    critic = Scripted()
    critic.before = lambda: held.wait(30)
    before = set(threading.enumerate())
    worker = ReflectionWorker(queue, store, critic)
    worker.write(entry("ann", score=0.0))
    while not critic.asked:
        held.wait(0.01)
    worker.close(timeout=0.05)
    assert not held.is_set()
    [thread] = [each for each in threading.enumerate() if each.name == "toolmem-reflection" and each not in before]
    held.set()
    thread.join(30)
    assert "find ann" in store.all()[0].critique  # what was begun was ended


def test_a_thread_waits_until_something_is_due_and_goes_on_after_an_error(caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Semaphore(0)
    answers: list[Any] = [StorageError("away"), 0.01, None]
    executor = ThreadExecutor(poll=60)

    def work() -> float | None:
        done.release()
        answer = answers.pop(0) if answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    original = executors.POLL_SECONDS
    try:
        executors.POLL_SECONDS = 0.01  # type: ignore[misc]
        executor.start(work)
        executor.start(work)
        for _ in range(3):  # the error, the one after it, the one that was due
            assert done.acquire(timeout=30)
        assert not done.acquire(timeout=0.2)
        executor.wake(after=0.01)
        assert done.acquire(timeout=30)
    finally:
        executors.POLL_SECONDS = original  # type: ignore[misc]
        executor.close(30)
    assert caplog.text.count("background writing failed") == 1
    executor.start(work)
    executor.wake()
    assert not done.acquire(timeout=0.1)


def test_langmem_missing_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langmem", None)
    with pytest.raises(MissingExtraError, match=r"langgraph-toolmem\[langmem\]"):
        LangmemExecutor()


def test_langmem_keeps_the_time(queue: JobQueue, store: EntryStore) -> None:
    pytest.importorskip("langmem")
    queue._now = time.time
    critic = Scripted(TimeoutError("once"))
    executor = LangmemExecutor(quiet=0.2)
    with ReflectionWorker(queue, store, critic, executor=executor) as worker:
        for name in "abc":
            worker.write(entry(name, score=0.0))
            worker.write(entry(name))
        assert worker.flush(timeout=60)
    assert len(store) == 3
    assert all(each.critique for each in store.all())
    assert len(critic.asked) == 4
    executor.wake()
    executor.close()


def test_an_import_loads_neither_chroma_nor_langmem() -> None:
    code = """
import sys
import langgraph_toolmem.core.jobs
print(sorted({"chromadb", "langmem", "langchain", "torch", "openai"} & {name.split(".")[0] for name in sys.modules}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
