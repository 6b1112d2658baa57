"""Several workers on one store: in memory, with threads, and on a real Postgres server."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.store.base import BaseStore, Op, Result
from langgraph.store.memory import InMemoryStore

from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.stores.shared_log import SharedLog, encode_label, encode_namespace

NAMESPACE = ("toolmem", "graph")
AWKWARD = {
    "text": "nul \x00, lone \ud800, dots a.b, 雪",
    "numbers": [0, -1, 1.5, 1e300, 2**70, True, None],
    "nested": {"": {"k": []}},
}


def log(store: BaseStore, worker: str, namespace: tuple[str, ...] = NAMESPACE) -> SharedLog:
    return SharedLog(store, namespace, worker=worker)


# -- behaviour that must be the same on every store --


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A Postgres server of its own on the loopback address; yields its connection string."""
    if os.name != "posix" or os.getuid() != 0:
        pytest.skip("starting a Postgres server of our own takes root on a POSIX system")
    programs = _postgres_programs()
    folder = Path(tempfile.mkdtemp(prefix="toolmem-pg-"))  # pytest's own folders are closed to other users
    shutil.chown(folder, "postgres", "postgres")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def as_postgres(program: str, *arguments: str) -> None:
        command = ["runuser", "-u", "postgres", "--", str(programs / program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=90)
        assert done.returncode == 0, done.stdout + done.stderr

    data = str(folder / "data")
    options = f"-h 127.0.0.1 -p {port} -c fsync=off -c unix_socket_directories={folder}"
    try:
        as_postgres("initdb", "-D", data, "-A", "trust", "-E", "UTF8", "--no-sync")
        as_postgres("pg_ctl", "-D", data, "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
        finally:
            as_postgres("pg_ctl", "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _postgres_programs() -> Path:
    def found() -> list[Path]:
        return sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))

    if not found():
        if shutil.which("apt-get") is None:
            pytest.skip("no Postgres server and no apt-get to install one")
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        install = ["apt-get", "install", "-y", "--no-install-recommends", "postgresql"]
        for command, seconds in ((["apt-get", "update"], 30), (install, 70)):
            try:
                done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=seconds)
            except subprocess.TimeoutExpired:
                pytest.skip(f"{' '.join(command)} took too long")
            if done.returncode:
                pytest.skip(f"{' '.join(command)} failed: {done.stderr.strip()[-200:]}")
    if not found() or shutil.which("runuser") is None:
        pytest.skip("no Postgres server")
    return found()[-1].parent


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


def test_a_worker_sees_the_others_records_once_and_in_order(store: BaseStore) -> None:
    a, b = log(store, "a"), log(store, "b")
    assert a.poll() == b.poll() == []
    for number in range(40):  # more than one look
        assert a.append({"from": "a", "n": number})
    assert b.append(["b", 0])
    assert b.poll() == [{"from": "a", "n": number} for number in range(40)]
    assert b.poll() == []
    assert a.poll() == [["b", 0]]
    assert a.append("later")
    assert b.poll() == ["later"]
    assert a.poll() == []


def test_after_a_restart_the_first_poll_returns_the_own_log_too_and_writing_goes_on_behind_it(
    store: BaseStore,
) -> None:
    first = log(store, "a")
    for number in range(37):
        assert first.append(number)
    second, reader = log(store, "a"), log(store, "b")
    assert second.append("new")
    assert second.poll() == list(range(37))
    assert second.poll() == []
    assert reader.poll() == [*range(37), "new"]
    assert log(store, "a").poll() == [*range(37), "new"]


def test_values_come_back_as_they_were_whatever_they_hold(store: BaseStore) -> None:
    assert log(store, "a").append(AWKWARD)
    assert log(store, "b").poll() == [AWKWARD]


def test_namespaces_and_worker_names_do_not_leak_into_each_other(store: BaseStore) -> None:
    names = [
        ("u1",),
        ("u10",),
        ("u1", "x"),
        ("u_",),
        ("u%",),
        ("a.b",),
        ("a", "b"),
        ("",),
        ("langgraph",),
        ("u=2E",),
    ]
    for name in names:
        assert log(store, "w.1@host", name).append(list(name)), name
        assert log(store, "", name).append("from the nameless"), name
    for name in names:
        assert log(store, "reader", name).poll() == ["from the nameless", list(name)], name


def test_four_threads_as_workers_lose_and_repeat_nothing(store: BaseStore) -> None:
    seen: dict[str, list[Any]] = {}
    ready = threading.Barrier(4)

    def work(name: str) -> None:
        mine = log(store, name)
        seen[name] = []
        ready.wait()
        for number in range(50):
            assert mine.append([name, number])
            if number % 7 == 0:
                seen[name] += mine.poll()
        ready.wait()
        seen[name] += mine.poll()

    _in_threads([lambda name=name: work(name) for name in "abcd"])
    for reader in "abcd":
        for writer in "abcd":
            expected = [] if writer == reader else [[writer, number] for number in range(50)]
            assert [record for record in seen[reader] if record[0] == writer] == expected


def test_threads_of_one_worker_share_its_log_without_gaps(store: BaseStore) -> None:
    mine = log(store, "a")
    answers: list[bool] = []
    _in_threads([lambda n=n: answers.extend(mine.append([n, i]) for i in range(25)) for n in range(4)])
    assert answers == [True] * 100
    records = log(store, "b").poll()
    assert sorted(records) == [[n, i] for n in range(4) for i in range(25)]
    for n in range(4):
        assert [i for m, i in records if m == n] == list(range(25))


async def test_threads_of_coroutines_do_the_same(store: BaseStore) -> None:
    a, b = log(store, "a"), log(store, "b")
    assert await asyncio.gather(*(asyncio.to_thread(a.append, number) for number in range(20))) == [True] * 20
    assert sorted(await asyncio.to_thread(b.poll)) == list(range(20))


async def test_an_async_store_is_called_from_a_thread(server: str) -> None:
    aio = pytest.importorskip("langgraph.store.postgres.aio")
    async with aio.AsyncPostgresStore.from_conn_string(server) as store:
        await store.setup()
        assert await asyncio.to_thread(log(store, "a", ("aio",)).append, {"x": 1})
        assert await asyncio.to_thread(log(store, "b", ("aio",)).poll) == [{"x": 1}]


def test_nothing_is_indexed(store: BaseStore) -> None:
    embedded: list[list[str]] = []

    def embed(texts: list[str]) -> list[list[float]]:
        embedded.append(list(texts))
        return [[1.0] for _ in texts]

    indexed = InMemoryStore(index={"dims": 1, "embed": embed})
    assert log(indexed, "a").append("text")
    assert log(indexed, "b").poll() == ["text"]
    assert embedded == []


# -- a store that fails --


class FlakyStore(InMemoryStore):
    """Fails while `down`: before it writes, or (`late`) after it wrote, as a lost answer looks like."""

    down = late = False
    calls = 0

    def batch(self, ops: Any) -> list[Result]:
        self.calls += 1
        done: list[Op] = list(ops)
        if self.down and not self.late:
            raise ConnectionError("no store")
        result = super().batch(done)
        if self.down:
            raise ConnectionError("answer lost")
        return result


@pytest.mark.parametrize("late", [False, True])
def test_a_failing_store_is_logged_once_and_what_was_kept_is_sent_later_in_order(
    late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store = FlakyStore()
    mine, reader = log(store, "a"), log(store, "b")
    assert mine.append(0)
    store.down, store.late = True, late
    with caplog.at_level(logging.WARNING):
        assert [mine.append(number) for number in range(1, 30)] == [False] * 29
        assert mine.poll() == []
    assert len([r for r in caplog.records if "append" in r.getMessage()]) == 1
    assert store.calls < 30  # it does not knock at every call
    store.down = False
    assert any(mine.append(number) for number in range(30, 100))
    got = reader.poll()
    assert got == list(range(len(got)))
    assert len(got) > 30


def test_rewriting_is_done_or_says_that_it_is_not() -> None:
    store = FlakyStore()
    mine = log(store, "a")
    for number in range(5):
        assert mine.append(number)
    store.put((*NAMESPACE, "log", "a"), "000000000002", {"nothing": "readable"})
    assert mine.rewrite(lambda record: -1 if record == 3 else record) == 1
    assert log(store, "b").poll() == [0, 1, -1, 4]
    store.down = True
    for _ in range(3):
        with pytest.raises(StorageError, match="could not be rewritten"):
            mine.rewrite(lambda record: 7)
    assert not mine.append(5)
    store.down = False
    assert mine.rewrite(lambda record: 7) == 5, "at once, however long append would still wait, and with what waited"
    assert log(store, "c").poll() == [7] * 5


def test_a_poll_that_fails_half_way_neither_loses_nor_repeats() -> None:
    class Half(InMemoryStore):
        left = 1 << 30

        def batch(self, ops: Any) -> list[Result]:
            self.left -= 1
            if self.left < 0:
                raise ConnectionError("gone")
            return super().batch(ops)

    store = Half()
    reader = log(store, "reader")
    assert reader.poll() == []
    for worker in "abc":
        mine = log(store, worker)
        assert all(mine.append([worker, number]) for number in range(100))
    got: list[Any] = []
    for number in range(300):
        store.left = 3 + number % 5  # calls until it fails
        got += reader.poll()
    assert sorted(got) == [[worker, number] for worker in "abc" for number in range(100)]


def test_when_too_many_wait_the_newest_are_refused_and_the_rest_arrives() -> None:
    store = FlakyStore()
    mine = log(store, "a")
    store.down = True
    for number in range(1200):
        assert not mine.append(number)
    store.down = False
    for _ in range(70):  # it is in a pause now; the first of these that may call the store sends all of it
        mine.append("later")
    got = log(store, "b").poll()
    assert got[:1000] == list(range(1000))
    assert set(got[1000:]) == {"later"}


@pytest.mark.parametrize("record", [{1, 2}, object(), b"bytes", {"x": {("tuple",): 1}}])
def test_what_is_not_json_is_refused_and_stops_nothing(record: Any, caplog: pytest.LogCaptureFixture) -> None:
    store = InMemoryStore()
    mine = log(store, "a")
    assert mine.append(record) is False
    assert "not JSON" in caplog.text
    assert mine.append("fine")
    assert log(store, "b").poll() == ["fine"]


def test_a_foreign_item_in_a_log_is_skipped_and_said(caplog: pytest.LogCaptureFixture) -> None:
    store = InMemoryStore()
    mine = log(store, "a")
    assert mine.append(1)
    store.put((*NAMESPACE, "log", "a"), f"{1:012d}", {"something": "else"})
    assert log(store, "b").poll() == [1]
    assert "cannot be read" in caplog.text


def test_two_workers_of_one_name_are_told(caplog: pytest.LogCaptureFixture) -> None:
    store = InMemoryStore()
    one, two = log(store, "same"), log(store, "same")
    assert one.poll() == two.poll() == []
    assert one.append("one")
    assert "another worker uses the name" not in caplog.text
    assert two.poll() == ["one"]
    assert "another worker uses the name" in caplog.text
    assert two.append("two")
    assert log(store, "b").poll() == ["one", "two"]


# -- names --


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.sampled_from("a.=2E\0é"), max_size=4), min_size=2, max_size=2, unique=True))
def test_labels_are_acceptable_and_stay_different(labels: list[str]) -> None:
    one, two = (encode_label(label) for label in labels)
    assert one != two
    assert one
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
