"""The log of a SQLite file (``memory.db-wal``): frames that were cut off or damaged, and what lies behind them.

A frame is a page with a checksum that includes those of all frames before it. SQLite takes the frames up to the first
wrong one, and says nothing of the others. Its index (``memory.db-shm``) still knows how many frames were committed, and
each later frame can be checked by the checksum that stands in the frame before it.
The format: https://www.sqlite.org/fileformat2.html#walformat and https://www.sqlite.org/walformat.html.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 64 << 20
"""A longer log is not looked at: each page takes 50 microseconds, and SQLite keeps a log at 4 MB if it can."""
_PAGE_SIZES: Final = frozenset(1 << power for power in range(9, 17))
_LITTLE_ENDIAN, _BIG_ENDIAN = 0x377F0682, 0x377F0683
_LOG_HEAD: Final = struct.Struct(">8I")  # mark, format, size of a page, checkpoint, salts, checksum
_FRAME_HEAD: Final = struct.Struct(">6I")  # number of the page, pages after a commit (else 0), salts, checksum
_INDEX_BYTES: Final = 48
_ROLLBACK_JOURNAL: Final = b"\x01\x01"
"""Bytes 18 and 19 of a database that has no log."""

Pair = tuple[int, int]


@dataclass(slots=True)
class LostFrames:
    """Frames that SQLite leaves out: `number` of them; `image` is the database with all frames that are whole."""

    number: int
    image: bytes


@dataclass(slots=True)
class _Frame:
    page: int
    commits: bool
    content: memoryview
    whole: bool


def find_lost_frames(path: Path) -> LostFrames | None:
    """Return the frames that SQLite will leave out when it opens a database; None if it will take all.

    Call it while this process has no connection to the file.
    """
    try:
        committed, salts = _read_index(Path(f"{path}-shm"))
        log_file = Path(f"{path}-wal")
        if not _LOG_HEAD.size < log_file.stat().st_size <= MAX_BYTES:
            return None
        log = memoryview(log_file.read_bytes())
    except OSError:
        return None
    mark, _, size, _, *rest = _LOG_HEAD.unpack_from(log)
    in_head, checksum = (rest[0], rest[1]), (rest[2], rest[3])
    order = ">" if mark == _BIG_ENDIAN else "<"
    whole_head = mark in (_LITTLE_ENDIAN, _BIG_ENDIAN) and summed(order, (0, 0), log[:24]) == checksum
    if not whole_head and salts is not None:
        in_head, size = salts, _page_size(path)
    elif not whole_head:
        return None
    if size not in _PAGE_SIZES:
        return None
    frames = list(_frames(log, size, in_head, checksum, order))
    known = committed if in_head == salts else 0
    taken = _last_commit(_whole_beginning(frames)) if whole_head else 0
    wanted = max(known, _last_commit(frames))
    if wanted <= taken:
        return None
    return LostFrames(wanted - taken, _image(path.read_bytes(), size, frames[:wanted]))


def _page_size(path: Path) -> int:
    with path.open("rb") as file:
        size = int.from_bytes(file.read(18)[16:], "big")
    return 1 << 16 if size == 1 else size


def _read_index(path: Path) -> tuple[int, Pair | None]:
    """Return the number of committed frames and the salts of their log; (0, None) if the index cannot be used."""
    try:
        with path.open("rb") as file:
            head = file.read(2 * _INDEX_BYTES)
    except OSError:
        return 0, None
    first, second = head[:_INDEX_BYTES], head[_INDEX_BYTES:]
    if len(second) < _INDEX_BYTES or first != second:  # it is being written
        return 0, None
    # The salts are in the byte order of the log, all else in that of the machine.
    return struct.unpack_from("=I", first, 16)[0], struct.unpack_from(">2I", first, 32)


def _frames(log: memoryview, size: int, salts: Pair, before: Pair, order: str) -> Iterator[_Frame]:
    """Yield the frames of one generation of the log. A log that began anew still holds older frames at its end."""
    step = _FRAME_HEAD.size + size
    places = range(_LOG_HEAD.size, len(log) - step + 1, step)
    own = [at for at in places if _FRAME_HEAD.unpack_from(log, at)[2:4] == salts]
    for at in places[: places.index(own[-1]) + 1] if own else ():
        page, after, *rest = _FRAME_HEAD.unpack_from(log, at)
        content = log[at + _FRAME_HEAD.size : at + step]
        stored = rest[2], rest[3]
        checksum = summed(order, summed(order, before, log[at : at + 8]), content)
        yield _Frame(page, after > 0, content, checksum == stored and (rest[0], rest[1]) == salts)
        before = stored


def summed(order: str, start: Pair, data: memoryview) -> Pair:
    """Return SQLite's checksum of a text of 32-bit words."""
    first, second = start
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for one, other in zip(words, words, strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second


def _whole_beginning(frames: list[_Frame]) -> list[_Frame]:
    broken = (number for number, frame in enumerate(frames) if not frame.whole)
    return frames[: next(broken, len(frames))]


def _last_commit(frames: list[_Frame]) -> int:
    """Return the number of frames up to the last one that is whole and ends a transaction."""
    return max((number for number, frame in enumerate(frames, 1) if frame.whole and frame.commits), default=0)


def _image(database: bytes, size: int, frames: list[_Frame]) -> bytes:
    image = bytearray(database)
    for frame in frames:
        end = frame.page * size
        if frame.whole and 0 < end <= MAX_BYTES + len(database):
            image.extend(bytes(max(0, end - len(image))))
            image[end - size : end] = frame.content
    image[18:20] = _ROLLBACK_JOURNAL
    return bytes(image)
