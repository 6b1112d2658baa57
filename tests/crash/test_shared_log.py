"""Several workers on one store: in memory, with threads and processes, and on a real Postgres server."""

from __future__ import annotations

import asyncio
import itertools
import logging
import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from children import run
from langgraph.store.base import BaseStore, Result
from langgraph.store.memory import InMemoryStore
from servers import MissingError, postgres_run

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.base.threads import StepBudget, step
from langgraph_toolmem.core.core import Evidence
from langgraph_toolmem.core.users import Users
from langgraph_toolmem.graph.events import Count, Forgotten, Request, RunSeen
from langgraph_toolmem.stores import shared, shared_items
from langgraph_toolmem.stores.events import EventStore
from langgraph_toolmem.stores.shared import SharedLog
from langgraph_toolmem.stores.shared_items import SHARED_LIMITS

NAMESPACE = ("toolmem", "graph")
ANN, BEN = "a" * 16, "b" * 16
SECRET = "quetzalcoatl"


class Worker(Evidence):
    """One process with its graph."""

    def __init__(
        self, store: BaseStore, folder: Path | None = None, namespace: tuple[str, ...] = NAMESPACE, **how: Any
    ) -> None:
        events = EventStore(folder, lock=threads.rlock(), shared=True)
        now = how.pop("now", time.time)
        super().__init__(events, Users(("toolmem",)), now=now, read_only=False)
        self.log = self.shared_log = SharedLog(
            store, namespace, events, **{"now": now, "deadline": 5.0, "patience": 5.0, **how}
        )

    def learn(self, number: int, user: str = BEN, text: str = "a request") -> None:
        """One observation with a key, and one without."""
        name = f"{number:016x}"
        with self.lock:
            record = [Request(name, f"{text} {number}", user), Count("turns"), RunSeen(name, 1, user)]
            self.apply(name, record, user=user, run=name)
            self.apply(None, [Count("others")], user=user, run=name)

    def content(self, *, at_once: bool = True) -> Any:
        """All that the graph holds, whatever the order in which it came."""
        self.refresh(at_once=at_once)
        with self.lock:
            state = self.graph.to_state()
        cases = sorted(repr(each) for each in state["cases"].items())
        return dict(state["counters"]), dict(sorted(state["runs"].items())), cases

    def turns(self) -> tuple[int, int]:
        self.refresh(at_once=True)
        return self.counter("turns"), self.counter("others")

    def name(self) -> str:
        assert self.store.database is not None
        return str(self.store.database.ask("SELECT value FROM meta WHERE name = 'worker'")[0][0])

    def sent(self) -> bool:
        return self.log.wait_sent(5.0)

    def kill(self) -> None:
        """End it as `kill -9` would."""
        self.log.closed, self.log.thread = True, None
        assert self.store.database is not None
        self.store.database.close()


def limit(monkeypatch: pytest.MonkeyPatch, **changed: Any) -> None:
    """Change limits of the exchange."""
    for module in (shared, shared_items):
        monkeypatch.setattr(module, "SHARED_LIMITS", replace(shared.SHARED_LIMITS, **changed))


Make = Callable[..., Worker]


@pytest.fixture
def worker() -> Iterator[Make]:
    """Makes workers, which are closed at the end."""
    made: list[Worker] = []

    def make(*args: Any, **how: Any) -> Worker:
        made.append(Worker(*args, **how))
        return made[-1]

    yield make
    for each in made:
        if not each.log.closed:
            each.close_store()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, poll_seconds=0.0)


def settled(*workers: Worker) -> Any:
    """What all of them hold in the end."""
    for _ in range(50):
        contents = [each.content() for each in workers]
        if all(each == contents[0] for each in contents) and all(each.sent() for each in workers):
            return contents[0]
        time.sleep(0.02)
    raise AssertionError(contents)


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


def items(store: BaseStore, kind: str = "") -> list[Any]:
    """What is in the store, below the namespace of these tests."""
    found: list[Any] = []
    while page := store.search((*NAMESPACE, *((kind,) if kind else ())), limit=500, offset=len(found)):
        found += page
    return found


def everything(store: BaseStore, *folders: Path) -> str:
    held = [str(path.read_bytes()) for folder in folders for path in folder.rglob("*") if path.is_file()]
    return " ".join([*(str(each.value) for each in items(store)), *held])


@pytest.mark.parametrize("every", [1, 30], ids=["many snapshots", "few"])
@pytest.mark.parametrize("kept", [True, False], ids=["folder", "RAM"])
def test_workers_converge_in_whatever_order_they_look(
    store: BaseStore, worker: Make, kept: bool, every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, snapshot_every=every)
    workers = [worker(store, tmp_path / str(n) if kept else None) for n in range(3)]
    draw = random.Random(every)
    for number in range(60):
        draw.choice(workers).learn(number // 2)  # half of them twice, by others
        if draw.random() < 0.3:
            draw.choice(workers).refresh(at_once=True)
    assert all(each.sent() for each in workers)
    contents = [each.content() for each in workers]
    assert contents[0] == contents[1] == contents[2] == worker(store).content()
    assert contents[0][0]["turns"] == 30
    assert contents[0][0]["others"] == 60


def test_namespaces_do_not_leak_into_each_other(store: BaseStore, worker: Make) -> None:
    labels = ("u1", "u10", "u_", "u%", "a", "a.b", "", "langgraph", "u=2E", "u.")
    names = [*((label,) for label in labels), ("u1", "x"), ("a", "b")]
    for number, name in enumerate(names):
        mine = worker(store, namespace=name)
        for each in range(number + 1):
            mine.learn(each)
        assert mine.sent(), name
    for number, name in enumerate(names):
        assert worker(store, namespace=name).turns() == (number + 1, number + 1), name


def test_items_of_others_and_strange_ones_are_left_alone(worker: Make) -> None:
    def embed(texts: list[str]) -> list[list[float]]:
        raise AssertionError(texts)  # nothing of the memory's is indexed

    store = InMemoryStore(index={"dims": 1, "embed": embed})
    store.put(("mine",), "key", {"value": 1}, index=False)
    store.put((*NAMESPACE, "workers"), "strange", {"worker": True}, index=False)
    one = worker(store)
    one.learn(1, text="nul \x00, lone \ud800, dots a.b, 雪")
    assert one.sent()
    store.put((*NAMESPACE, "log", one.name()), "000000000001", {"nothing": "readable"}, index=False)
    assert worker(store).turns() == (1, 0)
    assert store.get(("mine",), "key") is not None


async def test_an_async_store_is_called_from_a_thread(server: str, worker: Make) -> None:
    aio = pytest.importorskip("langgraph.store.postgres.aio")
    async with aio.AsyncPostgresStore.from_conn_string(server) as store:
        await store.setup()
        one, two = (worker(store, namespace=("aio",)) for _ in range(2))
        one.learn(1)
        assert await asyncio.to_thread(one.sent)
        assert await asyncio.to_thread(two.turns) == (1, 1)
        for each in (one, two):
            await asyncio.to_thread(each.close_store)


# -- folders --


def test_a_folder_goes_on_where_it_was_and_fetches_only_what_is_new(worker: Make, tmp_path: Path) -> None:
    store = FlakyStore()
    one, two = worker(store), worker(store, tmp_path)
    for number in range(5):
        one.learn(number)
    assert one.sent()
    assert two.turns() == (5, 5)
    two.learn(5)
    two.kill()
    one.learn(6)
    assert one.sent()
    store.got.clear()
    again = worker(store, tmp_path)
    assert again.turns() == (7, 7)
    assert len([key for space, key in store.got if space[-2] == "log"]) == 2, "two events"
    assert one.turns() == (7, 7)
    assert worker(store).turns() == (7, 7)


def test_what_a_folder_learned_alone_is_brought_into_an_empty_store(worker: Make, tmp_path: Path) -> None:
    alone = EventStore(tmp_path, lock=threads.rlock())
    for _ in range(3):
        alone.append(None, [Count("turns")])
        alone.snapshot()
    assert alone.database is not None
    assert alone.database.ask("SELECT count(*) FROM events") < [(3,)]
    alone.close()
    store = InMemoryStore()
    one = worker(store, tmp_path)
    one.learn(7)
    assert one.turns() == worker(store).turns() == (4, 1)


def test_a_copied_folder_becomes_a_worker_of_its_own(worker: Make, tmp_path: Path) -> None:
    store = InMemoryStore()
    one = worker(store, tmp_path / "one")
    one.learn(1)
    assert one.turns() == (1, 1)
    one.close_store()
    (tmp_path / "two").mkdir()
    for path in (tmp_path / "one").iterdir():
        (tmp_path / "two" / path.name).write_bytes(path.read_bytes())
    one, two = (worker(store, tmp_path / name) for name in ("one", "two"))
    one.learn(2)
    assert one.turns() == (2, 2)
    two.learn(3)
    assert two.turns() == one.turns() == (3, 3)
    assert one.name() != two.name()


def test_a_folder_that_was_restored_from_a_backup_overwrites_nothing(worker: Make, tmp_path: Path) -> None:
    store = InMemoryStore()
    one = worker(store, tmp_path)
    one.learn(1)
    assert one.sent()
    one.close_store()
    backup = {path: path.read_bytes() for path in tmp_path.iterdir()}
    one = worker(store, tmp_path)
    for number in (2, 3, 4):
        one.learn(number)
    assert one.sent()
    one.close_store()
    for path, content in backup.items():
        path.write_bytes(content)  # the same inode
    alone = EventStore(tmp_path, lock=threads.rlock())
    alone.append(None, [Count("turns")])
    alone.close()
    assert worker(store, tmp_path).turns() == worker(store).turns() == (5, 4)


TWO = """
import sys
sys.path[:0] = ["tests", "tests/crash"]
from pathlib import Path
from test_shared_log import Worker
class Away:
    def batch(self, ops):
        raise ConnectionError
two = Worker(Away(), Path(sys.argv[1]), patience=0.0)
for number in range(10, 20):
    two.learn(number)
two.store.refresh()
print(two.graph.counters["turns"])
"""


def test_processes_of_one_folder_are_one_worker(worker: Make, tmp_path: Path) -> None:
    store = InMemoryStore()
    one, same = (worker(store, tmp_path) for _ in range(2))
    one.learn(1)
    same.learn(2)
    assert one.turns() == same.turns() == (2, 2)
    assert one.sent()
    other = worker(store)
    other.learn(3)
    assert other.sent()
    assert one.turns() == same.turns() == (3, 3)
    done = run(TWO, tmp_path)
    assert done.stdout.split() == ["13"], done.stderr
    assert one.turns() == same.turns() == other.turns() == (13, 13)
    assert len(items(store, "workers")) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize("kept", [True, False], ids=["folder", "RAM"])
def test_a_forked_child_sends_and_fetches_by_itself(worker: Make, kept: bool, tmp_path: Path) -> None:
    store = InMemoryStore()  # the child has a copy of it
    one = worker(store, tmp_path if kept else None)
    one.learn(1)
    assert one.turns() == (1, 1)
    name = one.name()

    def child() -> None:
        one.learn(2)
        assert one.sent()
        assert one.turns() == worker(store).turns() == (2, 2)
        assert (one.name() == name) == kept, "without a folder it is another worker"

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(20)
    assert process.exitcode == 0
    assert one.turns() == ((2, 2) if kept else (1, 1))


@pytest.mark.parametrize("kept", [True, False], ids=["folder", "RAM"])
def test_a_worker_that_lags_takes_the_snapshot_and_keeps_its_own(
    worker: Make, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, snapshot_every=20)
    store = FlakyStore()
    one, lags = worker(store), worker(store, tmp_path if kept else None)
    beside = worker(store, tmp_path) if kept else lags
    lags.learn(1000)
    assert lags.turns() == beside.turns() == (1, 1)
    if kept:
        beside.log.close()  # it only looks into the folder
    for number in range(100):
        one.learn(number)
        one.refresh(at_once=True)
    log = [each for each in items(store, "log") if each.namespace[-1] == one.name()]
    assert len(log) < 100, "logs are trimmed"
    assert len({each.namespace for each in items(store, "snapshot")}) == 2
    store.down = True
    lags.learn(1001)
    store.down = False
    assert lags.turns() == beside.turns() == one.turns() == (102, 102)
    assert lags.content() == beside.content() == one.content() == worker(store).content()
    lags.learn(1002)
    assert lags.sent()
    assert beside.turns() == one.turns() == (103, 103)
    if kept:
        lags.kill()
        assert worker(store, tmp_path).turns() == (103, 103)


def test_workers_that_are_gone_are_taken_off_the_list_and_may_come_back(
    worker: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, snapshot_every=8)
    store, clock = InMemoryStore(), [1e9]
    for number in range(5):
        brief = worker(store, tmp_path if number == 0 else None, now=lambda: clock[0])
        brief.learn(number)
        brief.close_store()
    clock[0] += 3 * SHARED_LIMITS.dead_seconds
    one = worker(store, now=lambda: clock[0])
    for number in range(10, 40):
        one.learn(number)
        one.refresh(at_once=True)
    assert len(items(store, "workers")) == 1
    back = worker(store, tmp_path, now=lambda: clock[0])
    assert back.turns() == (35, 35)
    back.learn(50)
    assert back.sent()
    assert back.turns() == one.turns() == worker(store, now=lambda: clock[0]).turns() == (36, 36)


# -- forgetting --


def test_what_is_forgotten_leaves_the_store_all_graphs_and_all_folders(worker: Make, tmp_path: Path) -> None:
    store = InMemoryStore()
    folders = [tmp_path / name for name in ("one", "two", "lost", "late")]
    one, two, lost, late = (worker(store, folder) for folder in folders)
    ram = worker(store)
    for number, each in enumerate((one, two, lost, ram, late)):
        each.learn(number, ANN, SECRET)
        each.learn(number + 10)
        assert each.sent()
    for each in (one, two, ram):
        assert each.turns() == (10, 10)
    for each in (lost, late):
        each.log.closed = True  # they learn on, and reach nobody
        each.learn(100 + (each is late), ANN, SECRET)
    lost.kill()
    one.forget(Forgotten(ANN, frozenset(one.graph.belongings(ANN))))
    assert SECRET not in everything(store, folders[0])
    late.close_store()
    late, lost = worker(store, folders[3]), worker(store, folders[2])
    for each in (late, lost, two, ram, one, late):
        each.refresh(at_once=True)
        assert each.log.wait(lambda each=each: not each.log.erase, 5.0)
    counts = {each.turns() for each in (one, two, ram, late, lost, worker(store))}
    assert len(counts) == 1, "counts hold nothing of a person"
    assert one.content() == two.content() == ram.content() == late.content() == lost.content()
    assert len(one.content()[2]) == 5, "the others' requests"
    for each in (one, two, lost, late):
        each.close_store()
    assert SECRET not in everything(store, *folders)


def test_what_was_sent_while_another_forgets_does_not_come_back(worker: Make) -> None:
    store = InMemoryStore()
    one, two, three = (worker(store) for _ in range(3))
    assert one.turns() == two.turns() == (0, 0)
    gate, real = threading.Event(), one.log.snapshots.write

    def late(*args: Any) -> bool:
        two.learn(2, ANN, SECRET)  # after `one` has looked, and before `two` reads the note
        assert two.sent()
        assert three.turns() == (1, 1)
        gate.set()
        return real(*args)

    one.log.snapshots.write = late  # type: ignore[method-assign]
    one.forget(Forgotten(ANN))
    assert gate.is_set()
    assert settled(one, two, three)[1:] == ({}, [])
    assert settled(one, two, worker(store))[1:] == ({}, [])
    assert SECRET not in everything(store)


class Gate:
    """A store that holds one call of one worker."""

    def __init__(self, store: BaseStore) -> None:
        self.store, self.left = store, 1 << 30
        self.held, self.go = threading.Event(), threading.Event()

    def batch(self, ops: Any) -> list[Result]:
        self.left -= 1
        if self.left == 0:
            self.held.set()
            self.go.wait(20)
        return self.store.batch(ops)


@pytest.mark.parametrize("at", range(1, 13))
def test_a_snapshot_writer_that_hangs_does_not_undo_what_another_forgets(
    at: int, worker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = InMemoryStore()
    gate = Gate(store)
    one, slow = worker(store), worker(gate)
    one.learn(1, ANN, SECRET)
    slow.learn(2, BEN)
    assert one.sent()
    assert slow.sent()
    assert slow.turns() == one.turns() == (2, 2)
    limit(monkeypatch, snapshot_every=1)
    gate.left = at
    slow.learn(3, BEN)
    threading.Thread(target=slow.refresh, kwargs={"at_once": True}).start()
    hangs = gate.held.wait(0.5)
    limit(monkeypatch, snapshot_every=1 << 30)
    one.forget(Forgotten(ANN, frozenset(one.graph.belongings(ANN))))
    gate.go.set()
    assert hangs or at > 5
    for _ in range(3):
        slow.refresh(at_once=True)
        one.refresh(at_once=True)
    assert SECRET not in repr(settled(one, slow, worker(store)))
    one.learn(4)
    assert SECRET not in everything(store)
    assert SECRET not in repr(settled(one, slow, worker(store)))


def test_workers_that_forget_at_once_all_succeed(worker: Make) -> None:
    store = InMemoryStore()
    workers = [worker(store) for _ in range(3)]
    users = ["a" * 16, "b" * 16, "c" * 16]
    for number, (each, user) in enumerate(zip(workers, users, strict=True)):
        each.learn(number, user, SECRET)
        each.learn(number + 10, "d" * 16)
        assert each.sent()
    for each in workers:
        assert each.turns() == (6, 6)

    def forget(each: Worker, user: str) -> None:
        each.forget(Forgotten(user, frozenset(each.graph.belongings(user))))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(forget, workers, users, timeout=30))
    assert len(settled(*workers, worker(store))[2]) == 3
    assert SECRET not in everything(store)


@pytest.mark.parametrize("at", range(1, 12))
def test_a_worker_that_is_killed_while_it_forgets_can_do_so_again(at: int, worker: Make, tmp_path: Path) -> None:
    store = FlakyStore()
    one, two = worker(store, tmp_path), worker(store)
    for number, each in enumerate((one, two)):
        each.learn(number, ANN, SECRET)
        each.learn(number + 10)
        assert each.sent()
    assert one.turns() == two.turns() == (4, 4)
    store.left = at
    try:
        one.forget(Forgotten(ANN))
    except StorageError:
        one.kill()
        store.left = 1 << 30
        one = worker(store, tmp_path)
        one.forget(Forgotten(ANN))
    store.left = 1 << 30
    assert len(settled(one, two, worker(store))[2]) == 2
    assert one.log.wait(lambda: not one.log.erase, 5.0)
    one.close_store()
    assert SECRET not in everything(store, tmp_path)


def test_a_user_who_comes_back_is_learned_again(worker: Make, tmp_path: Path) -> None:
    store = InMemoryStore()
    one, two = worker(store, tmp_path), worker(store)
    one.learn(1, ANN)
    one.forget(Forgotten(ANN, frozenset(one.graph.belongings(ANN))))
    assert two.turns() == (1, 1)
    two.learn(2, ANN)
    one.learn(3, ANN)
    assert one.sent()
    assert two.sent()
    one.close_store()
    for each in (worker(store, tmp_path), two, worker(store)):
        assert len(each.content()[2]) == 2


def test_runs_are_forgotten_elsewhere_too(worker: Make) -> None:
    store = InMemoryStore()
    one, two = worker(store), worker(store)
    one.learn(1, "", SECRET)
    two.learn(2, "")
    assert one.sent()
    assert two.sent()
    assert one.turns() == two.turns() == (2, 2)
    two.forget(Forgotten("", frozenset({f"{1:016x}"})))
    assert one.content() == two.content() == worker(store).content()
    assert len(one.content()[2]) == 1
    assert SECRET not in everything(store)


# -- round trips --


class Counting(InMemoryStore):
    calls = 0

    def batch(self, ops: Any) -> list[Result]:
        self.calls += 1
        return super().batch(ops)


def test_a_step_costs_one_round_trip_between_two_looks(worker: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, poll_seconds=60.0)
    store = Counting()
    one, two = worker(store), worker(store)
    for number in range(20):
        if number == 10:
            assert one.turns() == two.turns() == (10, 10)
            two.forget(Forgotten(ANN, frozenset(two.graph.belongings(ANN))))  # `one` sends on before it looks
            assert two.sent()
        before = store.calls
        with step(StepBudget()):
            one.refresh()
            one.learn(number, ANN, SECRET)
        assert store.calls - before <= (1 if number else 5), number
    assert settled(one, two, worker(store))[2] == []
    assert SECRET not in everything(store)


@pytest.mark.parametrize("at", range(2, 9))
def test_a_killed_writer_of_a_snapshot_blocks_nobody_for_longer_than_its_lease(
    at: int, worker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, part_bytes=64)  # many parts
    store, clock = FlakyStore(), [1e9]
    one, two = (worker(store, now=lambda: clock[0]) for _ in range(2))
    for number, each in enumerate((one, two)):
        each.learn(number)
        assert each.sent()
    assert one.turns() == two.turns() == (2, 2)
    store.left = at
    with pytest.raises(StorageError):
        one.forget(Forgotten(ANN))
    one.kill()
    store.left = 1 << 30
    clock[0] += SHARED_LIMITS.lease_seconds + 1
    two.forget(Forgotten(BEN, frozenset(two.graph.belongings(BEN))))
    assert two.turns() == worker(store, now=lambda: clock[0]).turns() == (2, 2)
    assert len({each.namespace for each in items(store, "snapshot")}) == 1


class Stopped(InMemoryStore):
    """Its caller stands still for a while before the first part of a snapshot is written."""

    def __init__(self, clock: list[float]) -> None:
        super().__init__()
        self.clock = clock

    def batch(self, ops: Any) -> list[Result]:
        done = list(ops)
        if any(getattr(each, "namespace", ())[-2:-1] == ("snapshot",) for each in done):
            self.clock[0] += SHARED_LIMITS.lease_seconds + 1
        return super().batch(done)


def test_a_writer_that_was_stopped_for_longer_than_its_lease_gives_up(worker: Make) -> None:
    clock = [1e9]
    store = Stopped(clock)
    one = worker(store, now=lambda: clock[0])
    one.learn(1)
    assert one.turns() == (1, 1)
    with pytest.raises(StorageError):
        one.forget(Forgotten(ANN))
    one.kill()
    assert not any(each.value["done"] for each in items(store, "index"))
    assert clock[0] > 1e9


# -- a store that fails --


class FlakyStore(InMemoryStore):
    """Fails while `down`: before it writes, or (`late`) after it wrote, as a lost answer looks like. May hang, too."""

    down = late = False
    left = 1 << 30  # calls until it fails

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.open = threading.Event()
        self.open.set()
        self.got: list[tuple[tuple[str, ...], str]] = []

    def batch(self, ops: Any) -> list[Result]:
        done: list[Any] = list(ops)
        self.open.wait(60)
        self.left -= 1
        if (self.down and not self.late) or self.left < 0:
            raise ConnectionError("no store")
        self.got += [(each.namespace, each.key) for each in done if type(each).__name__ == "GetOp"]
        result = super().batch(done)
        if self.down:
            raise ConnectionError("answer lost")
        return result


@pytest.mark.parametrize("late", [False, True])
def test_a_failing_store_is_logged_once_and_gets_all_later(
    late: bool, worker: Make, caplog: pytest.LogCaptureFixture
) -> None:
    store = FlakyStore()
    mine, reader = worker(store), worker(store)
    mine.learn(0)
    assert mine.turns() == reader.turns() == (1, 1)
    store.down, store.late = True, late
    with caplog.at_level(logging.WARNING):
        for number in range(1, 600):
            mine.learn(number)
        mine.refresh(at_once=True)
        assert not mine.sent()
    assert len([each for each in caplog.records if "the store failed" in each.getMessage()]) == 1
    [problem] = mine.log.waiting()
    assert "1,198 events wait" in problem
    with pytest.raises(StorageError, match="call forget again"):
        mine.forget(Forgotten(ANN))
    store.down = False
    assert mine.turns() == reader.turns() == (600, 600)
    assert mine.log.wait(lambda: not mine.log.waiting(), 5.0)


def test_a_store_that_hangs_holds_nobody_up_and_gets_all_when_it_goes_on(worker: Make) -> None:
    store = FlakyStore()
    mine, reader = worker(store, deadline=0.2, patience=0.05), worker(store)
    mine.learn(0)
    assert mine.turns() == (1, 1)
    store.open.clear()
    begun = time.monotonic()
    for number in range(1, 21):
        with step(StepBudget()):
            mine.learn(number)
            mine.refresh()
    assert time.monotonic() - begun < 1.0, "two moments of patience, and no more while it hangs"
    time.sleep(0.25)
    [problem] = mine.log.waiting()
    assert "has not answered" in problem
    assert "events wait in RAM" in problem
    with pytest.raises(StorageError, match="call forget again"):
        mine.forget(Forgotten(ANN))
    store.open.set()
    assert mine.sent()
    assert reader.turns() == (21, 21)


def test_a_step_without_a_folder_waits_until_the_store_has_what_it_learned(worker: Make, tmp_path: Path) -> None:
    store = InMemoryStore()
    ram, kept = worker(store), worker(store, tmp_path)
    with step(StepBudget()):
        ram.learn(1)
    assert len(items(store, "log")) == 2
    waits = StepBudget()
    with step(waits):
        kept.learn(2)
    assert waits.waited == 0.0


def test_a_store_that_fails_anywhere_loses_and_repeats_nothing(
    worker: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call in turn fails: while sending, fetching, writing a snapshot, deleting, forgetting."""
    limit(monkeypatch, snapshot_every=8)
    limit(monkeypatch, first_pause=0.001)
    for at in itertools.count(0, 3):
        store = FlakyStore()
        one, two = worker(store, tmp_path / f"one-{at}"), worker(store)
        assert one.turns() == two.turns() == (0, 0)
        store.left = at
        for number in range(20):
            each = (one, two)[number % 2]
            each.learn(number, (ANN, BEN)[number % 4 == 0], SECRET if number % 4 else "words")
            each.refresh(at_once=True)
        failed, store.left = store.left < 0, 1 << 30
        if at % 2:
            one.kill()
            one = worker(store, tmp_path / f"one-{at}")
        assert settled(one, two)[0] == {"turns": 20, "others": 20}, at
        two.forget(Forgotten(ANN, frozenset(two.graph.belongings(ANN))))
        assert settled(one, two, worker(store))[0] == {"turns": 20, "others": 20}, at
        assert one.log.wait(lambda one=one: not one.log.erase, 5.0)
        one.close_store()
        two.close_store()
        assert SECRET not in everything(store, tmp_path / f"one-{at}"), at
        if not failed:
            break
    assert at > 20
