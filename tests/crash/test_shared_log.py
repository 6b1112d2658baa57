"""Several workers on one store: in memory, with threads, and on a real Postgres server."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from children import run
from desk import Desk, history
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.store.base import BaseStore, Op, Result
from langgraph.store.memory import InMemoryStore
from langgraph_toolmem.stores.log_reader import Restart
from langgraph_toolmem.stores.log_store import LogStore, decode_label, encode_label, encode_namespace
from langgraph_toolmem.stores.shared_log import SharedLog

from benchmarks.servers import MissingError, postgres_run
from langgraph_toolmem import ToolMemory
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.graph.operations import Forgotten
from langgraph_toolmem.stores import compaction
from langgraph_toolmem.stores.remote import Remote

NAMESPACE = ("toolmem", "graph")
AWKWARD = {
    "text": "nul \x00, lone \ud800, dots a.b, 雪",
    "numbers": [0, -1, 1.5, 1e300, 2**70, True, None],
    "nested": {"": {"k": []}},
}


Worker = Callable[..., SharedLog]


class Heap:
    """What records are folded into here: a list of them."""

    def __init__(self, state: dict[str, Any] | None) -> None:
        self.records: list[Any] = [] if state is None else list(state["records"])

    def add(self, record: Any) -> None:
        self.records.append(record)

    def to_state(self) -> dict[str, Any]:
        return {"records": self.records}


def without_user(gone: Forgotten, record: Any) -> Any:
    return {"gone": True} if isinstance(record, dict) and record.get("of") == gone.user else record


@pytest.fixture
def log() -> Iterator[Worker]:
    """Makes workers, which are closed at the end."""
    made: list[SharedLog] = []

    def make(store: BaseStore, namespace: tuple[str, ...] = NAMESPACE, **how: Any) -> SharedLog:
        made.append(SharedLog(store, namespace, fold=Heap, redact=without_user, **{"patience": 5.0, **how}))
        return made[-1]

    yield make
    for each in made:
        each.close()


def poll(worker: SharedLog, seconds: float = 5.0) -> list[Any]:
    """What a worker does not know yet; of a snapshot what is in it."""
    worker.look(seconds)
    found: list[Any] = []
    for each in worker.taken():
        if isinstance(each, Restart):
            found = [*each.state["records"], *each.records, *worker.unsent(each)]
        else:
            found.append(each)
    return found


def append(worker: SharedLog, *records: Any) -> bool:
    for record in records:
        assert worker.append(record)
    return worker.sync(5.0)


# -- behaviour that must be the same on every store --


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The connection string of a Postgres server."""
    try:
        with postgres_run() as postgres:
            yield postgres.dsn
    except MissingError as why:
        pytest.skip(str(why))


@pytest.fixture(params=["memory", "postgres"])
def store(request: pytest.FixtureRequest) -> Iterator[BaseStore]:
    if request.param == "memory":
        yield InMemoryStore()
        return
    postgres = pytest.importorskip("langgraph.store.postgres", reason="langgraph-checkpoint-postgres is missing")
    with postgres.PostgresStore.from_conn_string(request.getfixturevalue("server")) as opened:
        opened.setup()
        opened.conn.execute("TRUNCATE store")
        yield opened


def test_a_worker_sees_the_others_records_once_and_in_order(store: BaseStore, log: Worker) -> None:
    a, b = log(store), log(store)
    assert poll(a) == poll(b) == []
    assert append(a, *({"from": "a", "n": number} for number in range(40)))
    assert append(b, ["b", 0])
    assert poll(b) == [{"from": "a", "n": number} for number in range(40)]
    assert poll(b) == []
    assert poll(a) == [["b", 0]]
    assert append(a, "later", AWKWARD)
    assert poll(b) == ["later", AWKWARD]
    assert poll(log(store)) in (
        [*poll_all(40), "later", AWKWARD, ["b", 0]],
        [["b", 0], *poll_all(40), "later", AWKWARD],
    )


def poll_all(count: int) -> list[Any]:
    return [{"from": "a", "n": number} for number in range(count)]


def test_namespaces_do_not_leak_into_each_other(store: BaseStore, log: Worker) -> None:
    names = [("u1",), ("u10",), ("u1", "x"), ("u_",), ("u%",), ("a.b",), ("a", "b"), ("",), ("langgraph",), ("u=2E",)]
    for name in names:
        assert append(log(store, name), list(name)), name
    for name in names:
        assert poll(log(store, name)) == [list(name)], name


def test_four_threads_as_workers_lose_and_repeat_nothing(store: BaseStore, log: Worker) -> None:
    seen: dict[str, list[Any]] = {}
    ready = threading.Barrier(4)

    def work(name: str) -> None:
        mine = log(store)
        seen[name] = []
        ready.wait()
        for number in range(50):
            mine.append([name, number])
            if number % 7 == 0:
                seen[name] += poll(mine)
        assert mine.sync(5.0)
        ready.wait()
        seen[name] += poll(mine)

    _in_threads([lambda name=name: work(name) for name in "abcd"])
    for reader in "abcd":
        for writer in "abcd":
            expected = [] if writer == reader else [[writer, number] for number in range(50)]
            assert [record for record in seen[reader] if record[0] == writer] == expected


def test_threads_of_one_worker_share_its_log_without_gaps(store: BaseStore, log: Worker) -> None:
    mine = log(store)
    _in_threads([lambda n=n: append(mine, *([n, i] for i in range(25))) for n in range(4)])
    records = poll(log(store))
    for n in range(4):
        assert [i for m, i in records if m == n] == list(range(25))


async def test_an_async_store_is_called_from_a_thread(server: str, log: Worker) -> None:
    aio = pytest.importorskip("langgraph.store.postgres.aio")
    async with aio.AsyncPostgresStore.from_conn_string(server) as store:
        await store.setup()
        a, b = log(store, ("aio",)), log(store, ("aio",))
        assert await asyncio.to_thread(append, a, {"x": 1})
        assert await asyncio.to_thread(poll, b) == [{"x": 1}]
        for each in (a, b):
            await asyncio.to_thread(each.close)


def same(found: list[Any], expected: list[Any]) -> bool:
    """Whatever the order."""
    return sorted(map(str, found)) == sorted(map(str, expected))


def test_a_snapshot_takes_the_place_of_logs_and_of_workers_that_ended(
    store: BaseStore, log: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "AGREE_SECONDS", 0.0)
    now = [1e9]
    reader = log(store, now=lambda: now[0])
    idle = log(store, now=lambda: now[0])
    assert append(idle, ["idle", 0])
    assert poll(idle) == []
    every: list[Any] = [["idle", 0]]
    for generation in range(5):
        for number in range(3):
            worker = log(store, now=lambda: now[0])
            records = [[generation, number, i] for i in range(4)]
            assert append(worker, *records)
            every += records
            worker.close()
        now[0] += 10
        there = LogStore(store, NAMESPACE, Remote("here"))
        assert compaction.compact(there, "c", Heap, lambda: now[0])
        assert same(poll(log(store)), every), "a fresh worker, from the snapshot"
    seen = poll(reader)
    assert same(seen, every)
    left = there.look()
    assert len(left.workers) <= 8, "of 15 that ended and some that read"
    assert len(left.snapshots) == 2
    # What an idle worker would have read is deleted: it begins anew, and nothing of its own is lost or doubled.
    idle.append(["idle", 1])
    assert same(poll(idle), [*every, ["idle", 1]])
    assert poll(idle) == []
    assert append(idle, ["idle", 2])
    assert poll(reader) == [["idle", 1], ["idle", 2]]


# -- a store that fails --


class FlakyStore(InMemoryStore):
    """Fails while `down`: before it writes, or (`late`) after it wrote, as a lost answer looks like. May hang, too."""

    down = late = False
    left = 1 << 30  # calls until it fails

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.open = threading.Event()
        self.open.set()

    def batch(self, ops: Any) -> list[Result]:
        done: list[Op] = list(ops)
        self.open.wait(60)
        self.left -= 1
        if (self.down and not self.late) or self.left < 0:
            raise ConnectionError("no store")
        result = super().batch(done)
        if self.down:
            raise ConnectionError("answer lost")
        return result


def test_nothing_is_indexed(log: Worker) -> None:
    def embed(texts: list[str]) -> list[list[float]]:
        raise AssertionError(texts)

    indexed = InMemoryStore(index={"dims": 1, "embed": embed})
    assert append(log(indexed), "text")
    assert poll(log(indexed)) == ["text"]


@pytest.mark.parametrize("late", [False, True])
def test_a_failing_store_is_logged_once_and_what_was_kept_is_sent_later_in_order(
    late: bool, log: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    store = FlakyStore()
    mine, reader = log(store), log(store)
    assert append(mine, 0)
    store.down, store.late = True, late
    with caplog.at_level(logging.WARNING):
        assert not append(mine, *range(1, 1300))
        assert not mine.look()
    assert len([r for r in caplog.records if "the store failed" in r.getMessage()]) == 1
    [problem] = mine.waiting()
    assert "1,299 records wait" in problem
    store.down = False
    assert mine.sync(5.0)
    assert not any("wait" in problem for problem in mine.waiting())
    assert poll(reader) == list(range(1300))


def test_a_store_that_hangs_holds_nobody_up_and_gets_all_when_it_goes_on(log: Worker) -> None:
    store = FlakyStore()
    mine, reader = log(store, deadline=0.2, patience=0.05), log(store)
    assert append(mine, 0)
    store.open.clear()
    begun = time.monotonic()
    for number in range(1, 21):
        mine.append(number)
        mine.sync()
        mine.look()
    assert time.monotonic() - begun < 1.0, "two moments of patience, and no more while it hangs"
    time.sleep(0.25)
    [problem] = mine.waiting()
    assert "has not answered" in problem
    assert "20 records wait" in problem
    with pytest.raises(StorageError, match="call again"):
        mine.rewrite(lambda record: record)
    store.open.set()
    assert mine.sync(5.0)
    assert poll(reader) == list(range(21))


LEFT = """
import os, sys
from pathlib import Path
from langgraph_toolmem.stores.shared_log import SharedLog

class Away:
    def batch(self, ops):
        raise ConnectionError("no store")

mine = SharedLog(Away(), ("toolmem", "graph"), folder=Path(sys.argv[1]), fold=None, redact=None)
for number in range(30):
    mine.append({"of": "ann" if number % 2 else "ben", "number": number})
os._exit(0)
"""


def test_what_waits_outlives_the_process_in_the_folder_and_is_sent_without_who_was_forgotten(
    log: Worker, tmp_path: Path
) -> None:
    store = InMemoryStore()
    reader = log(store)
    assert run(LEFT, tmp_path).returncode == 0
    reader.tell_forgotten({"forget": "ann"}, Forgotten("ann"))
    assert len(poll(log(store, folder=tmp_path))) == 31
    assert b"ann" not in b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert poll(reader) == [{"gone": True} if number % 2 else {"of": "ben", "number": number} for number in range(30)]


def test_what_was_taken_out_while_it_waited_is_not_sent_and_closing_sends_the_rest(log: Worker) -> None:
    store = FlakyStore()
    mine, reader = log(store), log(store)
    store.down = True
    for number in range(30):
        mine.append({"of": "ann" if number % 2 else "ben", "number": number})
    with pytest.raises(StorageError):
        mine.rewrite(lambda record: without_user(Forgotten("ann"), record))
    store.down = False
    assert mine.close()
    assert poll(reader) == [{"gone": True} if n % 2 else {"of": "ben", "number": n} for n in range(30)]


def test_a_memory_whose_store_was_away_for_a_while_sends_at_its_end() -> None:
    store = FlakyStore()
    with ToolMemory(None, tools=Desk().tools, store=store) as memory:
        store.down = True
        for number in range(5):
            memory.finish(history(number), thread_id=f"thread {number}")
        assert any("wait" in problem for problem in memory.report().problems)
        store.down = False
    with ToolMemory(None, tools=Desk().tools, store=store) as fresh:
        assert fresh.report().turns == 20


def test_rewriting_is_done_or_says_that_it_is_not(log: Worker) -> None:
    store = FlakyStore()
    mine = log(store)
    assert append(mine, *range(5))
    store.put((*NAMESPACE, "log", encode_label(mine.worker)), "000000000002", {"nothing": "readable"})
    assert mine.rewrite(lambda record: -1 if record == 3 else record) == 1
    assert poll(log(store)) == [0, 1, -1, 4]
    store.down = True
    with pytest.raises(StorageError, match="could not be rewritten"):
        mine.rewrite(lambda record: 7)
    store.down = False
    assert mine.rewrite(lambda record: 7) == 4
    assert poll(log(store)) == [7] * 4


def test_a_look_that_fails_half_way_neither_loses_nor_repeats(log: Worker) -> None:
    store = FlakyStore()
    reader = log(store)
    assert poll(reader) == []
    for worker in "abc":
        assert append(log(store), *([worker, number] for number in range(1500)))
    got: list[Any] = []
    for number in range(40):
        store.left = 1 + number % 3
        got += poll(reader)
    assert sorted(got) == [[worker, number] for worker in "abc" for number in range(1500)]
    store.left = 1 << 30


class Killed(BaseException):
    """Ends a compaction as the end of its process would."""


def test_a_compaction_that_is_killed_anywhere_loses_and_doubles_nothing(
    log: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "AGREE_SECONDS", 0.0)
    now, every = [1e9], []
    for at in itertools.count():
        store = FlakyStore()
        writer = log(store)
        every = []
        killed = False
        for generation in range(4):  # the fourth deletes logs, takes a snapshot away, and a worker that ended
            other = log(store)
            assert append(other, ["other", generation])
            assert append(writer, *([generation, number] for number in range(5)))
            every += [["other", generation], *([generation, number] for number in range(5))]
            other.close()
            now[0] += 1000
            there = LogStore(store, NAMESPACE, Remote("here"))
            if generation == 3:
                calls = itertools.count()
                real = there.batch

                def batch(ops: Any, calls: Any = calls, real: Any = real, at: int = at) -> Any:
                    if ops and next(calls) == at:
                        raise Killed
                    return real(ops)

                there.batch = batch  # type: ignore[method-assign]
            try:
                assert compaction.compact(there, "c", Heap, lambda: now[0])
            except Killed:
                killed = True
        assert same(poll(log(store)), every), at
        now[0] += 1000
        assert compaction.compact(LogStore(store, NAMESPACE, Remote("here")), "d", Heap, lambda: now[0])
        assert same(poll(log(store)), every), at
        if not killed:
            break
    assert at > 10


def test_two_that_compact_at_once_lose_and_double_nothing(log: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "AGREE_SECONDS", 0.0)
    monkeypatch.setattr(compaction, "lease", lambda *_: contextlib.nullcontext(1e12))
    store, every = InMemoryStore(), []
    for generation in range(8):
        worker = log(store)
        records = [[generation, number] for number in range(30)]
        assert append(worker, *records)
        every += records
        worker.close()

        def work(name: str) -> None:
            compaction.compact(LogStore(store, NAMESPACE, Remote("here")), name, Heap, lambda: 1e9)

        _in_threads([lambda n=n, g=generation: work(f"{n}-{g}") for n in "ab"])
        assert sorted(poll(log(store))) == sorted(every)


@pytest.mark.parametrize("record", [{1, 2}, object(), b"bytes", {"x": {("tuple",): 1}}])
def test_what_is_not_json_is_refused_and_stops_nothing(
    record: Any, log: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    store = InMemoryStore()
    mine = log(store)
    assert mine.append(record) is False
    assert "not JSON" in caplog.text
    assert append(mine, "fine")
    assert poll(log(store)) == ["fine"]


# -- names --


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.sampled_from("a.=2E\0é"), max_size=4), min_size=2, max_size=2, unique=True))
def test_labels_are_acceptable_and_stay_different(labels: list[str]) -> None:
    one, two = (encode_label(label) for label in labels)
    assert one != two
    assert one
    assert [decode_label(each) for each in (one, two)] == labels
    assert not set(".\0") & set(one)


def test_the_reserved_first_label_is_avoided() -> None:
    assert encode_namespace(("langgraph", "langgraph"))[0] != "langgraph"
    assert encode_namespace(("toolmem", "langgraph")) == ("toolmem", "langgraph")


def _in_threads(works: list[Any]) -> None:
    errors: list[BaseException] = []

    def guarded(work: Any) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - shown by the assertion
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
