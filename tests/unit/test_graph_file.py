"""The evidence graph on disk: what survives a crash at any moment, damage at any byte, and a hostile file."""

from __future__ import annotations

import copyreg
import errno
import hashlib
import logging
import os
import pickle
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import ROOT

from langgraph_toolmem.base.errors import GraphFileError, LockedError, StorageError
from langgraph_toolmem.stores import disk, journal, plain_pickle
from langgraph_toolmem.stores.graph_file import JOURNAL, SNAPSHOT, GraphFile
from langgraph_toolmem.stores.graph_report import inspect_folder
from langgraph_toolmem.stores.journal import Loaded
from langgraph_toolmem.stores.plain_pickle import FormatVersionError, NotPlainError

RECORDS: list[Any] = [
    {"n": 1, "w": ("<start>", "find")},
    ["x", 2.5, None, True, b"\0\xff"],
    "text \ud800",
    -(2**70),
    (),
]
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.text(), st.integers()), inner, max_size=4)
    ),
    max_leaves=12,
)


def written(folder: Path, records: list[Any], state: dict[str, Any] | None = None) -> None:
    with GraphFile(folder) as file:
        file.load()
        if state is not None:
            assert file.compact(state)
        for record in records:
            assert file.append(record)


def reopened(folder: Path, **options: Any) -> tuple[Loaded, GraphFile]:
    file = GraphFile(folder, **options)
    loaded = file.load()
    file.close()
    return loaded, file


def set_aside(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.corrupt-*"))


# -- what is written comes back --


def test_a_new_folder_is_empty_and_records_come_back_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    with GraphFile(folder) as file:
        assert file.load() == Loaded(None, [], [])
        assert [file.append(record) for record in RECORDS] == [True] * len(RECORDS)
        assert file.size() == {"snapshot": 0, "journal": (folder / JOURNAL).stat().st_size}
    loaded, _ = reopened(folder)
    assert loaded == Loaded(None, RECORDS, [])
    assert [type(record) for record in loaded.records] == [type(record) for record in RECORDS]


def test_a_snapshot_takes_the_place_of_the_records_before_it(tmp_path: Path) -> None:
    state = {"tools": {("a", "b"): [1, 2.0]}, "seen": {"x": b"1"}}
    with GraphFile(tmp_path) as file:
        file.load()
        file.append("before")
        assert file.compact(state)
        file.append("after")
        assert file.size()["snapshot"] == (tmp_path / SNAPSHOT).stat().st_size
    loaded, _ = reopened(tmp_path)
    assert loaded == Loaded(state, ["after"], [])
    assert not list(tmp_path.glob("*.tmp"))


def test_compacting_is_due_when_the_journal_outgrows_snapshot_or_limit(tmp_path: Path) -> None:
    with GraphFile(tmp_path, max_journal_bytes=3 << 20) as file:
        file.load()
        block = "x" * (1 << 18)
        for _ in range(4):
            assert not file.should_compact
            file.append(block)
        assert file.should_compact  # above 1 MiB, no snapshot yet
        file.compact({"s": "y" * (2 << 20)})
        for _ in range(8):
            assert not file.should_compact
            file.append(block)
        assert file.should_compact  # above the snapshot's 2 MiB
        file.compact({"s": "y" * (9 << 20)})
        for _ in range(12):
            assert not file.should_compact
            file.append(block)
        assert file.should_compact  # above max_journal_bytes


@pytest.mark.parametrize("fsync", ["never", "snapshot", "always"])
def test_fsync_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: Any) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(fd))
    with GraphFile(tmp_path, fsync=fsync) as file:
        file.load()
        synced.clear()
        file.append(1)
        file.append(2)
        assert len(synced) == (2 if fsync == "always" else 0)
        synced.clear()
        file.compact({})
        assert bool(synced) == (fsync != "never")


def test_loading_first_is_enforced_for_it_would_overwrite_what_is_there(tmp_path: Path) -> None:
    written(tmp_path, [1])
    with GraphFile(tmp_path) as file:
        with pytest.raises(RuntimeError, match=r"load\(\)"):
            file.append(2)
        with pytest.raises(RuntimeError, match=r"load\(\)"):
            file.compact({})
    assert reopened(tmp_path)[0].records == [1]


def test_threads_append_and_compact_without_mixing_records(tmp_path: Path) -> None:
    guard, state = threading.Lock(), {"seen": [0] * 4}
    with GraphFile(tmp_path) as file:
        file.load()

        def work(worker: int) -> None:
            for number in range(100):
                with guard:
                    state["seen"][worker] += 1
                    assert file.append(worker)
                    if number % 40 == 39:
                        assert file.compact(state)

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    loaded, _ = reopened(tmp_path)
    assert loaded.state is not None
    seen = loaded.state["seen"]
    for worker in loaded.records:
        seen[worker] += 1
    assert seen == [100] * 4


# -- a crash at any moment --

CHILD = """
import sys
from langgraph_toolmem.stores.graph_file import GraphFile
file = GraphFile(sys.argv[1])
loaded = file.load()
done = (loaded.state or {"seen": []})["seen"] + loaded.records
print("ready", file.problems, flush=True)
number = len(done)
while True:
    assert file.append(number)
    done.append(number)
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
    number += 1
    if number % 37 == 0:
        assert file.compact({"seen": done})
"""


@pytest.mark.slow
def test_kill_9_at_random_moments_loses_nothing_acknowledged(tmp_path: Path) -> None:
    pauses = [0.0, 0.0003, 0.001, 0.002, 0.003, 0.005, 0.008, 0.013, 0.02, 0.03, 0.04, 0.001, 0.006, 0.0, 0.015, 0.05]
    acknowledged = 0
    for pause in pauses:
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert child.stdout is not None
        assert child.stdout.readline().startswith("ready")
        time.sleep(pause)
        child.send_signal(signal.SIGKILL)
        lines = child.stdout.read().splitlines(keepends=True)
        child.stdout.close()
        child.wait()
        acknowledged = max([acknowledged, *(int(line) + 1 for line in lines if line.endswith("\n"))])

        loaded, _ = reopened(tmp_path, read_only=True)
        seen = (loaded.state or {"seen": []})["seen"] + loaded.records
        assert seen == list(range(len(seen)))
        assert len(seen) >= acknowledged
    assert acknowledged > 50
    assert set_aside(tmp_path) == []


def _journal_bytes(folder: Path) -> tuple[bytes, list[int]]:
    """A journal of RECORDS and the offsets behind the header and behind each record."""
    written(folder, RECORDS)
    ends = [journal.HEADER_BYTES]
    for record in RECORDS:
        ends.append(ends[-1] + len(journal.frame(record)))
    data = (folder / JOURNAL).read_bytes()
    assert len(data) == ends[-1]
    return data, ends


def test_cut_at_any_byte_the_whole_records_before_it_are_used(tmp_path: Path) -> None:
    data, ends = _journal_bytes(tmp_path)
    for cut in range(len(data)):
        (tmp_path / JOURNAL).write_bytes(data[:cut])
        with GraphFile(tmp_path, fsync="never") as file:
            loaded = file.load()
            whole = sum(end <= cut for end in ends[1:])
            assert loaded.records == RECORDS[:whole]
            assert bool(loaded.problems) == (cut not in ends)
            assert file.append("next")
        again, _ = reopened(tmp_path, fsync="never")
        assert again == Loaded(None, [*RECORDS[:whole], "next"], [])
    assert set_aside(tmp_path) == []


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_with_any_byte_changed_that_record_is_lost_and_no_other(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        original, ends = _journal_bytes(folder)
        at = data.draw(st.integers(0, len(original) - 1))
        change = data.draw(st.integers(1, 255))
        damaged = original[:at] + bytes([original[at] ^ change]) + original[at + 1 :]
        (folder / JOURNAL).write_bytes(damaged)
        hit = sum(end <= at for end in ends[1:])
        left = [*RECORDS[:hit], *RECORDS[hit + 1 :]] if at >= ends[0] else []
        with GraphFile(folder, fsync="never") as file:
            loaded = file.load()
            assert loaded.records == left
            assert loaded.problems
            assert file.append("next")
        (kept,) = set_aside(folder)
        assert (folder / kept).read_bytes() == (damaged[ends[hit] : ends[hit + 1]] if at >= ends[0] else damaged)
        assert kept == ("journal.0.corrupt-1" if at >= ends[0] else "journal.unknown.corrupt-1")
        assert reopened(folder)[0] == Loaded(None, [*left, "next"], [])


def test_a_crash_between_snapshot_and_journal_applies_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = GraphFile(tmp_path)
    file.load()
    file.append(1)
    with monkeypatch.context() as patch:
        patch.setattr(disk.AppendFile, "start", _raise_crash)
        with pytest.raises(Crash):
            file.compact({"sum": 1})
    file.close()
    assert journal.parse((tmp_path / JOURNAL).read_bytes()).records == [1]
    assert reopened(tmp_path, read_only=True)[0] == Loaded({"sum": 1}, [], [])
    written(tmp_path, [2])
    assert reopened(tmp_path)[0] == Loaded({"sum": 1}, [2], [])


class Crash(BaseException):
    pass


def _raise_crash(*_: Any) -> None:
    raise Crash


@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
def test_a_crash_or_error_inside_compact_before_the_replacement_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    with GraphFile(tmp_path) as file:
        file.load()
        file.compact({"v": 1})
        file.append("kept")
        with monkeypatch.context() as patch:
            patch.setattr(os, call, _full)
            assert not file.compact({"v": 2})
            assert file.degraded
        assert GraphFile(tmp_path, read_only=True).load() == Loaded({"v": 1}, ["kept"], [])
        assert file.compact({"v": 3})
        assert file.degraded is None
    assert reopened(tmp_path)[0] == Loaded({"v": 3}, [], [])


@pytest.mark.parametrize("when", ["before", "after", "journal"])
def test_after_an_interrupted_replacement_it_looks_what_is_there_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    real, calls = os.replace, list[Any]()

    def interrupted(*args: Any) -> None:
        calls.append(args)
        if when == "after" or (when == "journal" and len(calls) == 1):
            real(*args)
        if when != "journal" or len(calls) == 2:
            monkeypatch.setattr(os, "replace", real)
            raise Crash

    with GraphFile(tmp_path) as file:
        file.load()
        file.append("kept")
        monkeypatch.setattr(os, "replace", interrupted)
        with pytest.raises(Crash):
            file.compact({"v": 2})
        assert file.append("after")
        assert file.degraded is None
    expected = Loaded(None, ["kept", "after"], []) if when == "before" else Loaded({"v": 2}, ["after"], [])
    assert reopened(tmp_path)[0] == expected


def test_if_the_new_journal_cannot_be_made_nothing_is_acknowledged_into_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = disk.replace_file

    def only_snapshots(path: Path, data: bytes, *, fsync: bool) -> None:
        if path.name == JOURNAL:
            _full()
        real(path, data, fsync=fsync)

    with GraphFile(tmp_path) as file:
        file.load()
        file.append("in the snapshot")
        with monkeypatch.context() as patch:
            patch.setattr(disk, "replace_file", only_snapshots)
            assert file.compact({"v": 1})
            assert file.degraded
            assert not file.append("lost")
        assert [file.append("later") for _ in range(100)].count(True) == 2
        assert file.should_compact  # for the records that are in no file
    loaded, _ = reopened(tmp_path)
    assert loaded.state == {"v": 1}
    assert set(loaded.records) == {"later"}


def _full(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


# -- damaged, hostile, newer, older --


def test_a_snapshot_cut_or_changed_at_any_byte_is_set_aside_and_the_journal_used(tmp_path: Path) -> None:
    written(tmp_path, ["after"], {"x": ["some", "state", 12]})
    original, log = (tmp_path / SNAPSHOT).read_bytes(), (tmp_path / JOURNAL).read_bytes()
    for at in range(len(original)):
        changed = original[:at] + bytes([original[at] ^ 0x41]) + original[at + 1 :]
        for damaged in (original[:at], changed):
            (tmp_path / SNAPSHOT).write_bytes(damaged)
            (tmp_path / JOURNAL).write_bytes(log)
            with GraphFile(tmp_path, fsync="never") as file:
                loaded = file.load()
                assert loaded.state is None
                assert loaded.records == ["after"]
                assert SNAPSHOT in loaded.problems[0]
                assert "lost" in " ".join(loaded.problems)
                assert file.degraded is None
            assert (tmp_path / f"{SNAPSHOT}.corrupt-1").read_bytes() == damaged
            (tmp_path / f"{SNAPSHOT}.corrupt-1").unlink()


def test_files_set_aside_do_not_overwrite_each_other_and_learning_goes_on(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / SNAPSHOT).write_bytes(b"rubbish %d" % number)
        written(tmp_path, [], {"v": number})
    assert set_aside(tmp_path) == [f"{SNAPSHOT}.corrupt-1", f"{SNAPSHOT}.corrupt-2"]
    assert (tmp_path / f"{SNAPSHOT}.corrupt-1").read_bytes() == b"rubbish 1"
    assert reopened(tmp_path)[0].state == {"v": 2}


def test_an_older_snapshot_put_back_by_hand_keeps_the_journal_and_says_what_is_missing(tmp_path: Path) -> None:
    written(tmp_path, [], {"v": 1})
    old = (tmp_path / SNAPSHOT).read_bytes()
    written(tmp_path, ["r"], {"v": 2})
    (tmp_path / SNAPSHOT).write_bytes(old)
    loaded, _ = reopened(tmp_path)
    assert (loaded.state, loaded.records) == ({"v": 1}, ["r"])
    assert "follows snapshot number 2" in loaded.problems[0]


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("echo pwned > pwned",)


class ByEval:
    def __reduce__(self) -> Any:
        return eval, ("open('pwned', 'w')",)


class ByExtension:
    pass


def _by_persistent_id() -> bytes:
    class Persistent(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            return "pwned" if isinstance(obj, Evil) else None

    from io import BytesIO

    out = BytesIO()
    Persistent(out, protocol=4).dump({"x": Evil()})
    return out.getvalue()


def _make_file(_: Any = None) -> dict[str, Any]:
    Path("pwned").touch()
    return {}


HOSTILE = {
    "os.system": pickle.dumps(Evil(), 4),
    "protocol 0": pickle.dumps(Evil(), 0),
    "eval": pickle.dumps({"state": ByEval()}, 4),
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
    "empty": b"",
}


def _envelope(payload: bytes, version: int = plain_pickle.FORMAT_VERSION) -> bytes:
    head = struct.pack("<8sHQ", b"\x93TOOLMEM", version, len(payload))
    return head + hashlib.blake2b(head + payload, digest_size=16).digest() + payload


@pytest.mark.parametrize("payload", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_runs_nothing(
    payload: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    copyreg.add_extension(__name__, "_make_file", 0xF0)
    # The C unpickler keeps what a code once resolved to and does not ask find_class for it again.
    assert pickle.loads(b"\x80\x04\x82\xf0.") is _make_file
    try:
        with pytest.raises(GraphFileError):
            plain_pickle.loads(_envelope(payload))
        frame = struct.pack("<II", len(payload), zlib.crc32(payload))
        frame += struct.pack("<I", zlib.crc32(frame)) + payload
        assert journal.parse(journal.header(0) + frame).ending == "corrupt"
        folder = tmp_path / "memory"
        folder.mkdir()
        (folder / SNAPSHOT).write_bytes(_envelope(payload))
        (folder / JOURNAL).write_bytes(journal.header(0) + frame)
        with GraphFile(folder) as file:
            loaded = file.load()
            assert (loaded.state, loaded.records) == (None, [])
            assert file.append("goes on")
        assert set_aside(folder) == [f"{SNAPSHOT}.corrupt-1", "journal.0.corrupt-1"]
    finally:
        copyreg.remove_extension(__name__, "_make_file", 0xF0)
        copyreg.clear_extension_cache()  # type: ignore[attr-defined]
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    "value", [[1], {"state": {}}, {"state": [], "generation": 1}, {"generation": 1, "state": None}]
)
def test_a_plain_value_that_is_no_snapshot_is_set_aside(tmp_path: Path, value: Any) -> None:
    (tmp_path / SNAPSHOT).write_bytes(plain_pickle.dumps(value))
    assert reopened(tmp_path)[0].state is None
    assert set_aside(tmp_path) == [f"{SNAPSHOT}.corrupt-1"]


@pytest.mark.parametrize("version", [plain_pickle.FORMAT_VERSION - 1, plain_pickle.FORMAT_VERSION + 1])
@pytest.mark.parametrize("missing", [SNAPSHOT, JOURNAL, None])
def test_files_of_another_format_version_stay_where_they_are_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, missing: str | None
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(plain_pickle, "FORMAT_VERSION", version)
        written(tmp_path, ["r"], {"v": 1})
    if missing is not None:
        (tmp_path / missing).unlink()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with GraphFile(tmp_path) as file:
        loaded = file.load()
        assert (loaded.state, loaded.records) == (None, [])
        assert f"format version {version}" in loaded.problems[0]
        assert f"format version {version}" in (file.degraded or "")
        assert not file.append(1)
        assert not file.compact({"v": 2})
        assert not file.should_compact
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    report = inspect_folder(tmp_path)
    for name, part in ((SNAPSHOT, report["snapshot"]), (JOURNAL, report["journal"])):
        if name != missing:
            assert (part["readable"], part["format_version"]) == (False, version)
            assert f"format version {version}" in part["why"]


@pytest.mark.parametrize("version", [plain_pickle.FORMAT_VERSION - 1, plain_pickle.FORMAT_VERSION + 1])
def test_another_format_version_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(plain_pickle, "FORMAT_VERSION", version)
        snapshot, log = plain_pickle.dumps({"state": {}, "generation": 1}), journal.header(1)
    for read, data in ((plain_pickle.loads, snapshot), (plain_pickle.snapshot, snapshot), (journal.parse, log)):
        with pytest.raises(FormatVersionError) as caught:
            read(data)
        assert caught.value.version == version


# -- plain values --


@settings(max_examples=100, deadline=None)
@given(plain)
def test_plain_values_come_back_equal_and_of_the_same_types(value: Any) -> None:
    back = plain_pickle.loads(plain_pickle.dumps(value))
    assert back == value
    assert repr(back) == repr(value)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60) | plain.map(plain_pickle.encode).flatmap(
    lambda data: st.tuples(st.integers(2, max(2, len(data) - 1)), st.binary(max_size=3)).map(
        lambda change: data[: change[0]] + change[1] + data[change[0] + len(change[1]) :]
    )
))  # fmt: skip
def test_any_bytes_give_a_plain_value_or_a_graph_file_error(payload: bytes) -> None:
    try:
        value = plain_pickle.loads(_envelope(payload))
    except GraphFileError:
        return
    assert plain_pickle.loads(plain_pickle.dumps(value)) == value or value != value or "nan" in repr(value)


class Text(str):
    pass


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"a": [1, {"b": np.float64(1.0)}]}, "value['a'][1]['b'] is a numpy.float64"),
        ([np.int64(1)], "value[0] is a numpy.int64"),
        ((np.zeros(2),), "value[0] is a numpy.ndarray"),
        ({("k", np.str_("x")): 1}, "is a numpy.str_"),
        ([{1, 2}], "value[0] is a builtins.set"),
        (frozenset(), "value is a builtins.frozenset"),
        ([bytearray(b"x")], "value[0] is a builtins.bytearray"),
        (OrderedDict(a=1), "value is a collections.OrderedDict"),
        ({"x": defaultdict(int)}, "collections.defaultdict"),
        ([Text("x")], "value[0] is a"),
        ([len], "builtin_function_or_method"),
        ([Path("x")], "pathlib"),
        (1j, "complex"),
        (object, "builtins.type"),
    ],
    ids=repr,
)
def test_what_is_not_plain_is_refused_and_named(value: Any, where: str) -> None:
    with pytest.raises(NotPlainError) as caught:
        plain_pickle.dumps(value)
    assert where in str(caught.value)


def test_values_nested_without_end_are_refused() -> None:
    deep: Any = []
    for _ in range(200_000):
        deep = [deep]
    with pytest.raises(NotPlainError, match="too deeply"):
        plain_pickle.dumps(deep)
    inner: list[Any] = []
    around = (inner,)
    inner.append(around)
    with pytest.raises(NotPlainError, match="contains itself"):
        plain_pickle.dumps(around)


def test_absurd_sizes_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = plain_pickle.dumps("x" * 5000)
    monkeypatch.setattr(plain_pickle, "MAX_BYTES", 1000)
    with pytest.raises(GraphFileError, match="above 1000 bytes"):
        plain_pickle.loads(data)
    with pytest.raises(NotPlainError, match="the limit is 1000"):
        plain_pickle.dumps("x" * 5000)
    (tmp_path / SNAPSHOT).write_bytes(data)
    with GraphFile(tmp_path) as file:
        assert "more than is ever read" in file.load().problems[0]
        assert not file.compact({})
    assert (tmp_path / SNAPSHOT).read_bytes() == data


def test_what_is_not_plain_never_stops_the_caller(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with GraphFile(tmp_path) as file:
        file.load()
        assert not file.append({"score": np.float32(1)})
        assert not file.append({"score": np.float32(1)})
        assert not file.compact({"x": {1, 2}})
        assert file.degraded is None
        assert file.append("fine")
        assert not file.should_compact
    assert reopened(tmp_path)[0].records == ["fine"]
    messages = [r.getMessage() for r in caplog.records]
    assert len(messages) == 2
    assert "value['score'] is a numpy.float32" in messages[0]


# -- a disk that does not write --


def test_a_full_disk_is_logged_once_and_what_was_missed_is_saved_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = GraphFile(tmp_path)
    file.load()
    assert file.append("before")
    tried: list[int] = []

    def half(fd: int, data: Any) -> int:
        tried.append(fd)
        if len(tried) % 2:
            return real(fd, bytes(data)[:3])  # a full disk takes what fits
        return int(_full())

    real = os.write
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(os, "write", half)
        assert [file.append(number) for number in range(250)] == [False] * 250
        assert "No space left" in (file.degraded or "")
        assert not file.should_compact
        assert len(tried) == 6  # the first, and each 100th
    assert len(caplog.records) == 1
    answers = [file.append(number) for number in range(250, 360)]
    assert answers.count(True) == 60
    assert file.degraded is None
    assert file.should_compact
    loaded = GraphFile(tmp_path, read_only=True).load()
    assert loaded == Loaded(None, ["before", *range(300, 360)], [])
    assert file.compact({"all": 361})
    assert not file.should_compact
    file.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_really_full_device(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in (JOURNAL, SNAPSHOT):
        (tmp_path / (name + ".tmp")).symlink_to("/dev/full")
    with GraphFile(tmp_path) as file:
        file.load()
        assert not file.append(1)
        assert "No space left" in (file.degraded or "")
        assert not file.compact({"v": 1})
        assert not (tmp_path / SNAPSHOT).exists()
        for name in (JOURNAL, SNAPSHOT):
            (tmp_path / (name + ".tmp")).unlink()
        assert file.compact({"v": 2})
        assert file.append(2)
    assert reopened(tmp_path)[0] == Loaded({"v": 2}, [2], [])


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_read_only_folder_is_read_and_the_memory_goes_on_in_ram(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    written(tmp_path, ["r"], {"v": 1})
    _read_only_from_now_on(monkeypatch, number)
    with caplog.at_level(logging.WARNING), GraphFile(tmp_path) as file:
        assert file.load().state == {"v": 1}
        assert not any(file.append(number) for number in range(300))
        assert not file.compact({"v": 2})
        assert "cannot be written to" in (file.degraded or "")
    assert len(caplog.records) == 1
    monkeypatch.undo()
    assert reopened(tmp_path)[0] == Loaded({"v": 1}, ["r"], [])


def _read_only_from_now_on(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    real_open = os.open

    def open_(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(number, os.strerror(number))
        return real_open(path, flags, *arguments, **options)

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", open_)
    for name in ("rename", "replace", "mkdir", "unlink"):
        monkeypatch.setattr(os, name, refuse)


def test_what_cannot_be_set_aside_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / SNAPSHOT).write_bytes(b"rubbish")
    with GraphFile(tmp_path) as file:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", _full)
            file.load()
        assert "could not be set aside" in (file.degraded or "")
        assert not file.compact({"v": 1})
    assert (tmp_path / SNAPSHOT).read_bytes() == b"rubbish"

    journal_folder = tmp_path / "j"
    data, ends = _journal_bytes(journal_folder)
    damaged = data[: ends[1]] + b"\0" * 40 + data[ends[1] :]
    (journal_folder / JOURNAL).write_bytes(damaged)
    with GraphFile(journal_folder) as file:
        with monkeypatch.context() as patch:
            patch.setattr(disk, "replace_file", _full)
            assert file.load().records == RECORDS
        assert not file.append(1)
    assert (journal_folder / JOURNAL).read_bytes() == damaged


def test_an_unreadable_file_is_left_where_it_is(tmp_path: Path) -> None:
    (tmp_path / SNAPSHOT).mkdir()
    with GraphFile(tmp_path) as file:
        assert "cannot be read" in file.load().problems[0]
        assert not file.append(1)
        assert not file.compact({})
    assert (tmp_path / SNAPSHOT).is_dir()


def test_a_file_in_the_place_of_the_folder_is_the_developers_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    for folder in (tmp_path / "x", tmp_path / "x" / "y"):
        with pytest.raises(StorageError, match="cannot be a memory folder"):
            GraphFile(folder)


# -- two processes --


def test_a_second_writer_is_refused_with_the_pid_and_the_ways_out(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert child.stdout is not None
    try:
        assert child.stdout.readline().startswith("ready")
        os.kill(child.pid, signal.SIGSTOP)
        with pytest.raises(LockedError) as caught:
            GraphFile(tmp_path)
        for part in (
            str(tmp_path),
            f"pid {child.pid}",
            "memory.close()",
            "restart the kernel",
            "another folder",
            "store=",
            "read_only=True",
        ):
            assert part in str(caught.value)
        report = inspect_folder(tmp_path)
        assert (report["locked"], report["holder"]) == (True, child.pid)
        os.kill(child.pid, signal.SIGCONT)
        for _ in range(40):  # a reader beside the writer, which compacts all the time
            loaded, reader = reopened(tmp_path, read_only=True)
            seen = (loaded.state or {"seen": []})["seen"] + loaded.records
            assert seen == list(range(len(seen)))
            assert not reader.append(1)
            child.stdout.readline()
    finally:
        child.kill()
        child.stdout.close()
        child.wait()
    assert inspect_folder(tmp_path)["locked"] is False
    with GraphFile(tmp_path) as file:  # the lock went with the process
        assert len(file.load().records) >= 0
        assert file.append("mine")


def test_a_second_object_of_the_same_process_is_refused_until_the_first_is_closed(tmp_path: Path) -> None:
    first = GraphFile(tmp_path)
    with pytest.raises(LockedError, match="this very process"):
        GraphFile(tmp_path)
    closer = threading.Thread(target=first.close)
    closer.start()
    closer.join()
    first.close()
    with GraphFile(tmp_path) as second:
        assert second.load().records == []
    assert not second.append(1)


def test_reading_only_writes_nothing(tmp_path: Path) -> None:
    assert GraphFile(tmp_path / "missing", read_only=True).load() == Loaded(None, [], [])
    assert not (tmp_path / "missing").exists()
    data, ends = _journal_bytes(tmp_path)
    (tmp_path / JOURNAL).write_bytes(data[:-1])
    (tmp_path / SNAPSHOT).write_bytes(b"rubbish")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    file = GraphFile(tmp_path, read_only=True)
    loaded = file.load()
    assert loaded.records == RECORDS[:-1]
    assert len(loaded.problems) == 2
    assert (file.append(1), file.compact({}), file.should_compact, file.degraded) == (False, False, False, None)
    assert file.size()["journal"] == ends[-2]
    file.close()
    inspect_folder(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


FORKING = """
import os, sys
from langgraph_toolmem.stores.graph_file import GraphFile
file = GraphFile(sys.argv[1])
file.load()
file.append("parent before")
if (pid := os.fork()) == 0:
    answers = file.append("child"), file.compact({}), file.should_compact, "fork" in file.degraded
    file.close()
    os._exit(0 if answers == (False, False, False, True) else 1)
assert os.waitpid(pid, 0)[1] == 0
assert file.append("parent after")
try:
    GraphFile(sys.argv[1])
except Exception as error:
    print(type(error).__name__)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_writes_nothing_and_leaves_the_lock_with_its_parent(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORKING, str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stdout) == (0, "LockedError\n"), done.stderr
    assert reopened(tmp_path)[0].records == ["parent before", "parent after"]


# -- for toolmem doctor --


def test_inspecting_a_folder(tmp_path: Path) -> None:
    missing = inspect_folder(tmp_path / "missing")
    assert (missing["exists"], missing["snapshot"], missing["journal"], missing["locked"]) == (False, None, None, False)
    written(tmp_path, ["a", "b"], {"v": 1})
    report = inspect_folder(tmp_path)
    sizes = {name: (tmp_path / name).stat().st_size for name in (SNAPSHOT, JOURNAL)}
    fine = {"readable": True, "why": "", "format_version": plain_pickle.FORMAT_VERSION, "generation": 1}
    assert report["snapshot"] == {"bytes": sizes[SNAPSHOT], **fine}
    assert report["journal"] == {"bytes": sizes[JOURNAL], **fine, "records": 2}
    assert (report["locked"], report["holder"], report["set_aside"]) == (False, None, [])
    (tmp_path / SNAPSHOT).write_bytes(b"rubbish")
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(b"x")
    (tmp_path / f"{SNAPSHOT}.corrupt-1").write_bytes(b"12345")
    report = inspect_folder(tmp_path)
    assert not report["snapshot"]["readable"]
    assert "truncated" in report["snapshot"]["why"]
    assert (report["journal"]["readable"], report["journal"]["records"]) == (True, 2)
    assert "cut off" in report["journal"]["why"]
    assert report["set_aside"] == [{"file": f"{SNAPSHOT}.corrupt-1", "bytes": 5}]
