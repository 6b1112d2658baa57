"""The event log and its snapshot: several processes, kills, damaged and hostile files, a disk that fails."""

from __future__ import annotations

import gc
import hashlib
import os
import pickle
import random
import shutil
import sqlite3
import struct
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from children import Child
from hypothesis import given, settings
from hypothesis import strategies as st

from langgraph_toolmem.base.errors import GraphFileError, StorageError
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.base.threads import rlock
from langgraph_toolmem.graph.events import Count, Forgotten, Record, RunSeen, Verdict
from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.stores import database, events, snapshot
from langgraph_toolmem.stores.database import NAME, query_readonly, refuse_remote
from langgraph_toolmem.stores.events import INSERT_EVENT, OLDER_SNAPSHOT, SNAPSHOT, EventRow, EventStore, inspect_folder

ONE: Record = [Count("n")]
SECRET = "the words of Ann"
IMPORT = "import sys\nsys.path.append(sys.argv[2])\nfrom test_event_log import *\n"


class Locked(EventStore):
    """Holds the lock as a memory does."""

    def append(self, *args: Any, **options: Any) -> bool:
        with self.lock:
            return super().append(*args, **options)

    def refresh(self) -> None:
        with self.lock:
            super().refresh()

    def forget(self, gone: Forgotten) -> int:
        with self.lock:
            return super().forget(gone)


def opened(folder: Path | None, **options: Any) -> EventStore:
    return Locked(folder, lock=rlock(), **options)


@contextmanager
def store(folder: Path | None, **options: Any) -> Iterator[EventStore]:
    made = opened(folder, **options)
    try:
        yield made
    finally:
        made.close()


def count(log: EventStore) -> int:
    log.refresh()
    return int(log.graph.counters.get("n", 0))


def add(log: EventStore, *keys: object) -> None:
    for key in keys:
        assert log.append(digest("key", str(key)), ONE)


def reopened(folder: Path) -> tuple[int, list[str]]:
    with store(folder) as log:
        return count(log), log.problems


# --- several writers ---


def test_threads_with_stores_of_their_own_lose_and_repeat_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "EVENT_LIMITS", replace(events.EVENT_LIMITS, snapshot_every=40))

    def work(name: int) -> None:
        with store(tmp_path) as log:
            for number in range(100):
                log.append(digest(str(name), str(number)), ONE)
                log.append(digest("all", str(number)), ONE)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert reopened(tmp_path) == (500, [])
    assert (tmp_path / OLDER_SNAPSHOT).exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_parent_its_children_and_another_process_keep_all(tmp_path: Path) -> None:
    other = Child(
        f"{IMPORT}with store(Path(sys.argv[1])) as log:\n    [log.append(None, ONE) for _ in range(200)]",
        tmp_path,
        Path(__file__).parent,
    )
    with store(tmp_path) as log:
        log.append(None, ONE)
        children = []
        for _ in range(2):
            child = os.fork()
            if not child:
                for _ in range(200):
                    log.append(None, ONE)
                os._exit(0 if count(log) >= 201 else 1)
            children.append(child)
        for _ in range(200):
            log.append(None, ONE)
        assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
        assert other.wait() == 0, other.stderr
        assert count(log) == 801
    assert reopened(tmp_path) == (801, [])


def test_who_lags_behind_deleted_rows_reads_the_graph_anew(tmp_path: Path) -> None:
    told = []
    with store(tmp_path) as one, store(tmp_path) as late:
        late.at_reload.append(lambda: told.append(1))
        add(one, *range(10))
        assert count(late) == 10
        add(one, *range(10, 20))
        one.snapshot()
        add(one, *range(20, 30))
        one.snapshot()
        add(one, *range(30, 35))
        one.snapshot()
        add(late, 99)
        assert (count(late), count(one)) == (36, 36)
    assert told
    assert reopened(tmp_path) == (36, [])


def test_reading_only_follows_and_writes_nothing(tmp_path: Path) -> None:
    now = [0.0]
    with store(tmp_path) as log:
        add(log, 1)
        with store(tmp_path, read_only=True, clock=lambda: now[0]) as reader:
            before = {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
            assert reader.append(None, ONE), "in RAM"
            assert {file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()} == before
        with store(tmp_path, read_only=True, clock=lambda: now[0]) as reader:
            add(log, 2)
            now[0] += 10
            assert count(reader) == 2
    with store(tmp_path / "nothing", read_only=True) as reader:
        assert count(reader) == 0
    assert not (tmp_path / "nothing").exists()


def test_a_network_file_system_and_a_file_are_refused(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nserver:/x {tmp_path}/far nfs4 rw 0 0\n")
    refuse_remote(tmp_path / "near", mounts)
    with pytest.raises(StorageError, match=r"network file system \(nfs4\).*store="):
        refuse_remote(tmp_path / "far" / "memory", mounts)
    with pytest.raises(StorageError, match="cannot be a memory folder"):
        opened(mounts)


# --- forgetting ---


def test_what_is_forgotten_leaves_every_file_and_every_process(tmp_path: Path) -> None:
    ann = "a" * 16
    with store(tmp_path) as one, store(tmp_path) as two:
        for number in range(3):
            one.append(None, [RunSeen(f"run {number}", 0, ann if number else None)], user=ann, run=f"run {number}")
            one.append(None, [Verdict(f"run {number}", 1.0, SECRET, ann)], user=ann)
            one.snapshot()
        assert two.graph.runs == {}
        two.refresh()
        assert len(two.graph.runs) == 3
        gone = Forgotten(ann, one.graph.belongings(ann))
        assert one.forget(gone)
        one.erase()
        two.refresh()
        for each in (one, two):
            assert SECRET not in repr(each.graph.to_state())
            assert ann not in repr(each.graph.runs)
        assert not any(SECRET.encode() in file.read_bytes() for file in tmp_path.iterdir())
        add(two, 1)
        assert count(one) == 1
    with store(tmp_path) as again:
        assert list(again.graph.runs) == ["run 0"]
        assert count(again) == 1


def test_loading_leaves_garbage_collection_as_the_host_set_it(tmp_path: Path) -> None:
    filled(tmp_path)
    for on, frozen in ((True, False), (False, False), (True, True)):
        before = gc.get_freeze_count()
        try:
            (gc.enable if on else gc.disable)()
            if frozen and not before:
                gc.freeze()
            count_ = gc.get_freeze_count()
            assert (reopened(tmp_path)[0], gc.isenabled(), gc.get_freeze_count()) == (40, on, count_)
        finally:
            gc.enable()
            if not before:
                gc.unfreeze()


# --- damage ---


def filled(folder: Path) -> int:
    """Three snapshots and rows behind them; how many events."""
    log = opened(folder)
    for number in range(40):
        log.append(None, [*ONE, Count(f"words {number} " + "x" * 500)])
        if number in (10, 20, 30):
            log.snapshot()
    assert log.database is not None
    log.database.close()  # as if it were killed
    return 40


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    at = len(data) // 2
    data[at : at + 64] = random.Random(1).randbytes(64)
    path.write_bytes(data)


def rubbish(path: Path) -> None:
    path.write_bytes(b"no such thing " * 1000)


def another_format(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[8:10] = struct.pack("<H", snapshot.SNAPSHOT_FORMAT + 1)
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [cut, rubbish, Path.unlink])
def test_without_the_log_the_last_snapshot_stands_and_learning_goes_on(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    filled(tmp_path)
    damage(tmp_path / NAME)
    with store(tmp_path) as log:
        found = count(log)
        assert 31 <= found <= 40
        assert found == 40 or any(NAME in problem for problem in log.problems)
        add(log, *range(7))
    assert reopened(tmp_path)[0] == found + 7


def of_many_pages(folder: Path) -> bytearray:
    """Fill ``memory.db`` with 200 events, a few on each page; return its bytes."""
    log = opened(folder)
    for number in range(200):
        log.append(None, [*ONE, Count(f"number {number} " + "y" * 700)])
    assert log.database is not None
    log.database.close()
    return bytearray((folder / NAME).read_bytes())


def page_of(data: bytearray, number: int) -> slice:
    start = data.index(b"number %d " % number) // 4096 * 4096
    return slice(start, start + 4096)


def numbers_of(log: EventStore) -> set[int]:
    return {int(name.split()[1]) for name in log.graph.counters if name.startswith("number ")}


def with_a_damaged_page(folder: Path) -> None:
    data = of_many_pages(folder)
    at = page_of(data, 100).start
    data[at : at + 16] = b"?" * 16
    (folder / NAME).write_bytes(data)


def test_a_damaged_page_costs_its_rows_alone(tmp_path: Path) -> None:
    with_a_damaged_page(tmp_path)
    with store(tmp_path) as again:
        for _ in range(3):
            again.append(None, ONE)  # the damage is met here at the latest
            again.refresh()
        assert count(again) >= 3
    found, _ = reopened(tmp_path)
    assert 180 <= found <= 203
    assert (tmp_path / f"{NAME}.corrupt-1").exists()


def test_pages_that_changed_places_cost_themselves_alone(tmp_path: Path) -> None:
    data = of_many_pages(tmp_path)
    low, high = page_of(data, 60), page_of(data, 140)
    on_them = {number for number in range(200) if page_of(data, number) in (low, high)}
    data[low], data[high] = data[high], data[low]
    (tmp_path / NAME).write_bytes(data)
    with store(tmp_path) as log:
        count(log)
        assert set(range(200)) - numbers_of(log) <= on_them
        assert any("events " in problem and "cannot be read" in problem for problem in log.problems)


def test_rows_that_are_gone_are_named_by_their_numbers(tmp_path: Path) -> None:
    with store(tmp_path) as log:
        add(log, *range(12))
    with closing(sqlite3.connect(tmp_path / NAME, isolation_level=None)) as elsewhere:
        elsewhere.execute("DELETE FROM events WHERE seq IN (3, 4, 5, 9)")
    (tmp_path / SNAPSHOT).unlink(missing_ok=True)
    found, problems = reopened(tmp_path)
    assert found == 8
    assert problems == [f"events of {NAME} are missing: number 3 to 5, 9"]
    with store(tmp_path) as log:
        add(log, "later")
    assert reopened(tmp_path)[0] == 9


def test_a_kill_while_rows_are_salvaged_leaves_a_file_that_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_a_damaged_page(tmp_path)

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(database, "readable_rows", interrupt)
    with pytest.raises(KeyboardInterrupt):
        opened(tmp_path).close()
    monkeypatch.undo()
    assert (tmp_path / f"{NAME}.corrupt-1").exists()
    with store(tmp_path) as again:
        add(again, 1)
        assert again.problems == []


def test_both_files_gone_it_begins_anew(tmp_path: Path) -> None:
    filled(tmp_path)
    for name in (SNAPSHOT, OLDER_SNAPSHOT, NAME):
        rubbish(tmp_path / name)
    with store(tmp_path) as log:
        assert count(log) == 0
        add(log, 1)
        assert len(log.problems) >= 2
    assert reopened(tmp_path)[0] == 1


@pytest.mark.parametrize("gone", ["folder", "file"])
def test_what_is_removed_while_it_is_open_is_noticed(tmp_path: Path, gone: str) -> None:
    folder = tmp_path / "m"
    with store(folder) as log:
        add(log, *range(5))
        if gone == "folder":
            shutil.rmtree(folder)
        else:
            for file in folder.glob(f"{NAME}*"):
                file.unlink()
        add(log, *range(5, 8))
        assert count(log) == 8
        log.snapshot() if gone == "file" else None
    if gone == "folder":
        assert not folder.exists()
        assert any("removed" in problem for problem in log.problems)
    else:
        assert reopened(folder) == (8, [])


@pytest.mark.parametrize(
    "body", ["", "3", "[3]", '[["count"]]', '[["count",{},1,null]]', '[["of the future",1]]', "[" * 99]
)
def test_a_strange_row_is_left_out(tmp_path: Path, body: str) -> None:
    with store(tmp_path) as log:
        add(log, 1)
    with closing(sqlite3.connect(tmp_path / NAME)) as file:
        file.execute(INSERT_EVENT, EventRow(None, "", "", body).columns())
        file.commit()
    with store(tmp_path) as log:
        add(log, 2)
        assert count(log) == 2
        assert ["number 2 (key none" in problem for problem in log.problems] == ([] if "future" in body else [True])
    assert reopened(tmp_path)[0] == 2


CELLS = [  # of a damaged row, as SQL
    "body = CAST(x'5b5b22ff' AS TEXT)",  # no UTF-8
    "body = replace(body, 'n', 'm')",  # one bit of a letter
    "key = 'words of Ann'",
    "key = CAST(x'ff' AS TEXT)",
    "user = 7",
    "run = x'00'",
    "body = zeroblob(9)",
    "checksum = 'text'",
    "checksum = 1e300",
]


@pytest.mark.parametrize("cell", CELLS)
def test_a_damaged_row_costs_itself_alone(tmp_path: Path, cell: str, caplog: pytest.LogCaptureFixture) -> None:
    with store(tmp_path) as log:
        add(log, *range(9))
    with closing(sqlite3.connect(tmp_path / NAME)) as file:
        file.execute(f"UPDATE events SET {cell} WHERE seq = 5")
        file.commit()
    assert inspect_folder(tmp_path)["events"]["damaged"] == [5]
    with store(tmp_path) as log:
        assert count(log) == 8
        add(log, 10, 11)
        assert count(log) == 10
        [problem] = log.problems
        assert "number 5 (key " in problem
    found, problems = reopened(tmp_path)
    assert (found, problems) == (10, [problem])
    assert "Ann" not in caplog.text
    assert "words" not in problem


# --- kills and interrupts ---

KILLED = """
events.EVENT_LIMITS = replace(events.EVENT_LIMITS, snapshot_every=7)
log = opened(Path(sys.argv[1]))
print(int(log.graph.counters.get("n", 0)), flush=True)
for _ in range(100_000):
    log.append(None, ONE)
    print(int(log.graph.counters["n"]), flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
def test_kill_9_at_random_moments_loses_nothing_acknowledged(tmp_path: Path) -> None:
    chance, acknowledged = random.Random(3), 0
    for _ in range(6):
        child = Child(IMPORT + KILLED, tmp_path, Path(__file__).parent)
        begun = int(child.line())
        assert acknowledged <= begun <= acknowledged + 1
        for _ in range(chance.randrange(60)):
            acknowledged = int(child.line())
        acknowledged = max([begun, acknowledged, *map(int, child.kill())])
    assert reopened(tmp_path)[0] in (acknowledged, acknowledged + 1)


@pytest.mark.parametrize("moment", range(1, 5))
def test_a_snapshot_that_is_interrupted_anywhere_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    filled(tmp_path)
    left, real = moment, os.replace

    def replace(*args: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise KeyboardInterrupt
        real(*args)
        if left == -1:
            raise KeyboardInterrupt

    log = opened(tmp_path)
    monkeypatch.setattr(os, "replace", replace)
    for _ in range(2):
        with suppress(KeyboardInterrupt):
            log.snapshot()
    monkeypatch.undo()
    add(log, 1)
    assert count(log) == 41
    assert reopened(tmp_path) == (41, [])


# --- a disk that fails ---


def test_a_full_disk_is_said_once_and_what_waited_is_stored_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    with store(tmp_path, clock=lambda: now[0]) as log, store(tmp_path) as other:
        add(log, 1)
        monkeypatch.setattr(events.EventLog, "writing", lambda *_: (_ for _ in ()).throw(_full()))
        add(log, 2, 3)
        now[0] += 60
        add(log, 4)
        assert count(log) == 4
        with pytest.raises(StorageError, match="3 events wait"):
            log.snapshot()
        assert len(caplog.records) == len(log.problems) == 1
        assert "disk is full" in log.problems[0]
        monkeypatch.undo()
        now[0] += 60
        add(log, 5)
        add(other, 6)
        assert (count(log), count(other)) == (6, 6)
    assert reopened(tmp_path) == (6, [])


def _full() -> StorageError:
    error = StorageError("memory.db cannot be used")
    error.__cause__ = sqlite3.OperationalError("database or disk is full")
    return error


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    filled(folder)
    folder.chmod(0o500)
    try:
        with pytest.raises(StorageError, match=r"cannot be written\. Choose a folder"):
            store(folder)
        with store(folder, fallback="memory") as log:
            add(log, 1)
            assert count(log) == 41
            assert log.problems
    finally:
        folder.chmod(0o700)


# --- hostile files ---


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("echo pwned > pwned",)


def _by_persistent_id() -> bytes:
    from io import BytesIO

    class Persistent(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            return "pwned" if isinstance(obj, Evil) else None

    out = BytesIO()
    Persistent(out, protocol=4).dump({"x": Evil()})
    return out.getvalue()


HOSTILE = {
    "os.system": pickle.dumps(Evil(), 4),
    "protocol 0": pickle.dumps(Evil(), 0),
    "persistent id": _by_persistent_id(),
    "a class": pickle.dumps(Path, 4),
    "extension code": b"\x80\x04\x82\xf0)R.",
    "memo bomb": b"\x80\x04Nr\xff\xff\xff\x7f.",
    "length bomb": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 60) + b".",
    "negative length": b"\x80\x04\x8b\xff\xff\xff\xff.",
    "buffer": b"\x80\x04\x97.",
    "no stop": b"\x80\x04]",
    "goes on": b"\x80\x04].]",
    "empty stack": b"\x80\x04.",
    "memo never written": b"\x80\x04h\x05.",
    "unhashable key": b"\x80\x04}]Ns.",
    "append to nothing": b"\x80\x04K\x05a.",
    "set": pickle.dumps({1}, 4),
    "a tuple": pickle.dumps((1, "a"), 4),
    "a tuple nested deep as a key": b"\x80\x04})" + b"\x85" * 200_000 + b"Ns.",
    "tuples of the same tuple as a key": b"\x80\x04})\x94" + b"".join(b"h%c\x86\x94" % n for n in range(60)) + b"Ns.",
    "lists of the same list": b"\x80\x04](]\x94" + b"".join(b"](h%ch%ce\x94" % (n, n) for n in range(40)) + b"e.",
    "a list in itself": b"\x80\x04]\x94h\x00a.",
    "a list memoized when it is filled": b"\x80\x04]Na\x94h\x00a.",
    "lists nested deep": b"\x80\x04" + b"]" * 3_000 + b"a" * 2_999 + b".",
    "numbers that share a hash": b"\x80\x04}("
    + b"".join(b"\x8a\x0b%bN" % (n * (2**61 - 1)).to_bytes(11, "little") for n in range(2**20, 2**20 + 99))
    + b"u.",
    "lists": b"\x80\x04](" + b"]" * 100_000 + b"e.",
    "tuples": b"\x80\x04](" + b"N\x85\x85\x85\x85\x85\x85" * 20_000 + b"e.",
    "empty": b"",
}


def enveloped(payload: bytes) -> bytes:
    head = struct.pack("<8sHQ", b"\x93TOOLMEM", snapshot.SNAPSHOT_FORMAT, len(payload))
    return head + hashlib.blake2b(payload, digest_size=16).digest() + payload


STATE = ToolGraph().to_state()
NO_STATES = [
    {},
    {name: part for name, part in STATE.items() if name != "runs"},
    *(STATE | part for part in ({"tools": 7}, {"counters": [1]}, {"successors": 5}, {"cases": []}, {"tables": [1]})),
    STATE | {"seen": b"123456789"},
]


NO_SNAPSHOTS = [3, [], {}, {"upto": 1}, *({"upto": 1, "state": state} for state in NO_STATES)]
CONTENTS = {
    "empty": b"",
    **{f"hostile: {kind}": enveloped(payload) for kind, payload in HOSTILE.items()},
    **{f"bare: {kind}": payload for kind, payload in HOSTILE.items()},
    **{f"no snapshot {number}": snapshot.dumps(value) for number, value in enumerate(NO_SNAPSHOTS)},
}


@pytest.mark.parametrize("damage", [cut, spoil, rubbish, Path.unlink, another_format, *CONTENTS])
def test_a_damaged_or_hostile_snapshot_loses_and_runs_nothing(
    tmp_path: Path, damage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "m"
    events_ = filled(folder)
    if damage in CONTENTS:
        (folder / SNAPSHOT).write_bytes(CONTENTS[damage])
        if "snapshot" not in damage:
            with pytest.raises(GraphFileError):
                snapshot.loads(CONTENTS[damage])
    else:
        damage(folder / SNAPSHOT)
    for _ in range(2):
        found, problems = reopened(folder)
        assert found == events_
    assert not problems, "it was said once"
    if damage is not Path.unlink:
        assert [each["file"] for each in inspect_folder(folder)["quarantined"]] == [f"{SNAPSHOT}.corrupt-1"]
    assert not (tmp_path / "pwned").exists()


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers() | st.binary(), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(plain)
def test_plain_values_come_back(value: Any) -> None:
    data = snapshot.dumps(value)
    snapshot.check(data)
    found = snapshot.loads(data)
    assert (found, repr(found)) == (value, repr(value))


@settings(max_examples=200)
@given(st.binary(max_size=80))
def test_any_bytes_are_a_plain_value_or_refused(payload: bytes) -> None:
    with suppress(GraphFileError):
        snapshot.loads(enveloped(b"\x80\x04" + payload))


def test_a_state_that_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    """The rows that it would replace stay."""
    with store(tmp_path) as log:
        add(log, 1)
        log.graph.tools["of a foreign table"] = {"key": (1, 2)}
        with pytest.raises(GraphFileError):
            log.snapshot()
        assert not (tmp_path / SNAPSHOT).exists()
    assert reopened(tmp_path) == (1, [])


@pytest.mark.parametrize("value", [object(), {"a": [Path()]}, [print]], ids=["object", "path", "function"])
def test_what_is_not_plain_is_refused(value: Any) -> None:
    with pytest.raises(GraphFileError, match="no plain value"):
        snapshot.dumps(value)


def test_a_value_in_itself_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(GraphFileError, match="nested too deeply"):
        snapshot.dumps(deep)


def test_a_database_of_another_program_or_release_is_left_alone(tmp_path: Path) -> None:
    for change, said in (
        ("PRAGMA user_version = 99", "a newer version"),
        ("PRAGMA user_version = 1", "an older version"),
        ("PRAGMA application_id = 7", "another program"),
    ):
        folder = tmp_path / said
        filled(folder)
        with closing(sqlite3.connect(folder / NAME)) as file:
            file.execute(change)
        another_format(folder / SNAPSHOT)
        content = {file: file.read_bytes() for file in folder.iterdir()}
        with pytest.raises(StorageError, match=said):
            opened(folder)
        with pytest.raises(StorageError, match=said):
            query_readonly(folder / NAME, "SELECT * FROM events")
        assert {file: file.read_bytes() for file in folder.iterdir()} == content
