"""A log of SQLite whose frames were cut off or damaged: the loss is named, and what lies behind the damage is kept."""

from __future__ import annotations

import shutil
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from test_event_log import add, count, opened, store

from langgraph_toolmem.stores.database import NAME, find_lost_frames, summed

HEAD, FRAME = 32, 24 + 4096
WORD = st.integers(0, (1 << 32) - 1)


def killed(folder: Path, events: int) -> Path:
    """Return a copy of a folder as a kill leaves it: with a log and its index."""
    log = opened(folder / "live")
    add(log, *range(events))
    shutil.copytree(folder / "live", folder / "killed")
    log.close()
    return folder / "killed"


def frames(folder: Path) -> int:
    return ((folder / f"{NAME}-wal").stat().st_size - HEAD) // FRAME


def change(folder: Path, ending: str, edit: Callable[[bytearray], object]) -> None:
    file = folder / f"{NAME}{ending}"
    data = bytearray(file.read_bytes())
    edit(data)
    file.write_bytes(data)


def flip(at: int) -> Callable[[bytearray], object]:
    def edit(data: bytearray) -> None:
        data[at] ^= 1

    return edit


def test_a_whole_log_is_taken_without_a_word(tmp_path: Path) -> None:
    folder = killed(tmp_path, 30)
    assert find_lost_frames(folder / NAME) is None
    with store(folder) as log:
        assert (count(log), log.problems) == (30, [])


@pytest.mark.parametrize("cut", [1, 2, 10])
def test_frames_that_were_cut_off_are_named(tmp_path: Path, cut: int) -> None:
    folder = killed(tmp_path, 30)

    def edit(data: bytearray) -> None:
        del data[-cut * FRAME :]

    change(folder, "-wal", edit)
    lost = find_lost_frames(folder / NAME)
    assert lost is not None
    assert lost.number >= cut
    with store(folder) as log:
        before = count(log)
        assert 20 < before < 30 if cut == 10 else before in (29, 30)  # of the last event all but the index may be left
        [problem] = log.problems
        assert f"{lost.number:,} pages of {NAME}-wal" in problem
        add(log, "later")
    with store(folder) as log:
        assert (count(log), log.problems) == (before + 1, [])


@pytest.mark.parametrize("place", ["page", "checksum", "salt", "number", "the head of the log"])
def test_a_flipped_bit_costs_its_page_alone(tmp_path: Path, place: str) -> None:
    """All events are found: each later frame holds the page again."""
    folder = killed(tmp_path, 30)
    start = HEAD + frames(folder) // 2 * FRAME
    at = {"page": start + 4_000, "checksum": start + 20, "salt": start + 9, "number": start + 3}.get(place, 5)
    change(folder, "-wal", flip(at))
    with store(folder) as log:
        assert count(log) == 30
        assert [f"pages of {NAME}-wal" in problem for problem in log.problems] == [True]
        add(log, "later")
    with store(folder) as log:
        assert (count(log), log.problems) == (31, [])


def test_a_damaged_last_frame_is_named(tmp_path: Path) -> None:
    folder = killed(tmp_path, 30)
    change(folder, "-wal", flip(HEAD + (frames(folder) - 1) * FRAME + 4_000))
    with store(folder) as log:
        assert count(log) in (29, 30)
        assert len(log.problems) == 1


def test_without_the_index_a_cut_log_is_like_one_that_was_never_longer(tmp_path: Path) -> None:
    folder = killed(tmp_path, 30)
    (folder / f"{NAME}-shm").unlink()

    def edit(data: bytearray) -> None:
        del data[-FRAME // 2 :]

    change(folder, "-wal", edit)
    with store(folder) as log:
        assert count(log) in (28, 29)
        assert log.problems == []


def test_frames_of_a_transaction_without_an_end_are_no_loss(tmp_path: Path) -> None:
    folder = killed(tmp_path, 3)
    database = sqlite3.connect(folder / NAME, isolation_level=None)
    database.execute("PRAGMA cache_size = 2")
    database.execute("BEGIN IMMEDIATE")
    for number in range(50):
        database.execute("INSERT INTO meta VALUES (?, zeroblob(4000))", (f"x{number}",))
    shutil.copytree(folder, tmp_path / "again")
    database.close()
    assert frames(tmp_path / "again") > 20
    with store(tmp_path / "again") as log:
        assert (count(log), log.problems) == (3, [])


def test_the_checksum_is_sqlites(tmp_path: Path) -> None:
    data = memoryview((killed(tmp_path, 2) / f"{NAME}-wal").read_bytes())
    order = ">" if struct.unpack_from(">I", data)[0] & 1 else "<"
    assert summed(order, (0, 0), data[:24]) == struct.unpack_from(">2I", data, 24)


@given(
    st.binary(min_size=8, max_size=512).map(lambda data: data[: len(data) // 8 * 8]),
    st.tuples(WORD, WORD),
    st.sampled_from("<>"),
)
@example(b"\xff" * 65_536, ((1 << 32) - 1, (1 << 32) - 1), "<")
def test_the_checksum_is_as_if_summed_word_by_word(data: bytes, start: tuple[int, int], order: str) -> None:
    first, second = start
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for one, other in zip(words, words, strict=True):
        first = (first + one + second) % (1 << 32)
        second = (second + other + first) % (1 << 32)
    assert summed(order, start, memoryview(data)) == (first, second)
