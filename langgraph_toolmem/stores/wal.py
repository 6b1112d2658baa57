"""The log of a SQLite file (``memory.db-wal``): truncated or damaged frames, and the frames after them.

A frame is a page with a checksum that includes those of all frames before it. SQLite reads the frames up to the first
wrong one, and ignores the others silently. Its index (``memory.db-shm``) still has the number of committed frames, and
each later frame can be checked by the checksum in the frame before it. The format:
https://www.sqlite.org/fileformat2.html#walformat and https://www.sqlite.org/walformat.html.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_WAL_BYTES: Final = 64 << 20
"""A longer log is not read: a page takes some 20 microseconds, and SQLite keeps a log at 4 MB if it can."""
_LOG_HEAD: Final = struct.Struct(">8I")  # mark, format, size of a page, checkpoint, salts, checksum
_FRAME_HEAD: Final = struct.Struct(">6I")  # number of the page, pages after a commit (else 0), salts, checksum

Pair = tuple[int, int]


@dataclass(slots=True)
class LostFrames:
    """Frames that SQLite leaves out: `number` of them; `image` is the database with all whole frames."""

    number: int
    image: bytes


@dataclass(slots=True)
class _Head:
    """The beginning of a log; `order` of its bytes is that of `struct`."""

    page_size: int
    salts: Pair
    checksum: Pair
    order: str
    whole: bool


@dataclass(slots=True)
class _Frame:
    page: int
    commits: bool
    content: memoryview
    whole: bool


def find_lost_frames(path: Path) -> LostFrames | None:
    """Return the frames that SQLite will leave out when it opens a database, or None.

    Call it while this process has no connection to the file.
    """
    try:
        committed, salts = _read_index(Path(f"{path}-shm"))
        log_file = Path(f"{path}-wal")
        if not _LOG_HEAD.size < log_file.stat().st_size <= MAX_WAL_BYTES:
            return None
        log = memoryview(log_file.read_bytes())
    except OSError:
        return None
    head = _read_head(log)
    if not head.whole:
        if salts is None:
            return None
        head.salts = salts
        head.page_size = _page_size(path)
    if head.page_size not in [1 << power for power in range(9, 17)]:
        return None
    frames = list(_frames(log, head))
    wanted = _last_commit(frames)
    if head.salts == salts:
        wanted = max(committed, wanted)
    taken = 0  # by SQLite
    if head.whole:
        taken = _last_commit(_whole_beginning(frames))
    if wanted <= taken:
        return None
    size = head.page_size
    return LostFrames(wanted - taken, _image(path.read_bytes(), size, frames[:wanted]))


def _read_head(log: memoryview) -> _Head:
    little_endian, big_endian = 0x377F0682, 0x377F0683
    mark, _, size, _, *rest = _LOG_HEAD.unpack_from(log)
    order = ">" if mark == big_endian else "<"
    checksum = (rest[2], rest[3])
    whole = mark in (little_endian, big_endian) and summed(order, (0, 0), log[:24]) == checksum
    return _Head(size, (rest[0], rest[1]), checksum, order, whole)


def _page_size(path: Path) -> int:
    with path.open("rb") as file:
        size = int.from_bytes(file.read(18)[16:], "big")
    return 1 << 16 if size == 1 else size


def _read_index(path: Path) -> tuple[int, Pair | None]:
    """Return the number of committed frames and the salts of their log; (0, None) if the index cannot be used."""
    length = 48  # of the head, which is there twice
    try:
        with path.open("rb") as file:
            heads = file.read(2 * length)
    except OSError:
        return 0, None
    first, second = heads[:length], heads[length:]
    if len(second) < length or first != second:  # another process is writing it
        return 0, None
    # The salts are in the byte order of the log, other fields in that of the machine.
    return struct.unpack_from("=I", first, 16)[0], struct.unpack_from(">2I", first, 32)


def _frames(log: memoryview, head: _Head) -> Iterator[_Frame]:
    """Yield the frames of one generation of the log. A restarted log still contains older frames at its end."""
    step = _FRAME_HEAD.size + head.page_size
    places = range(_LOG_HEAD.size, len(log) - step + 1, step)
    own = 0  # number of frames up to the last one of this generation
    for number, start in enumerate(places, 1):
        if _FRAME_HEAD.unpack_from(log, start)[2:4] == head.salts:
            own = number
    before = head.checksum
    for start in places[:own]:
        page, after, *rest = _FRAME_HEAD.unpack_from(log, start)
        content = log[start + _FRAME_HEAD.size : start + step]
        salts, stored = (rest[0], rest[1]), (rest[2], rest[3])
        checksum = summed(head.order, summed(head.order, before, log[start : start + 8]), content)
        yield _Frame(page, after > 0, content, checksum == stored and salts == head.salts)
        before = stored


def summed(order: str, start: Pair, data: memoryview) -> Pair:
    """Return SQLite's checksum of a text of 32-bit words.

    SQLite adds two words at a time: ``first += word + second``, then ``second += next_word + first``. So of N words the
    j-th counts F(N−1−j) times in the first sum and F(N−j) times in the second, with Fibonacci's numbers F. Two products
    take 10 µs a page. Adding word by word took 150: 2.5 s of a log of 64 MB, at each opening.
    """
    import numpy as np  # imported where it is used

    words = np.frombuffer(data, dtype=f"{order}u4").astype(np.uint32)
    numbers = _fibonacci_from_end(len(words))
    before, last, after = map(int, numbers[[2, 1, 0]])
    first = int(words @ numbers[2:]) + before * start[0] + last * start[1]
    second = int(words @ numbers[1:-1]) + last * start[0] + after * start[1]
    return first & 0xFFFFFFFF, second & 0xFFFFFFFF


@lru_cache(maxsize=8)
def _fibonacci_from_end(words: int) -> NDArray[Any]:
    """Return F(N+1), F(N), ... F(0) modulo 2^32 for N words."""
    import numpy as np  # imported where it is used

    numbers = [0, 1]
    while len(numbers) < words + 2:
        numbers.append((numbers[-2] + numbers[-1]) & 0xFFFFFFFF)
    return np.array(numbers[::-1], dtype=np.uint32)


def _whole_beginning(frames: list[_Frame]) -> list[_Frame]:
    for number, frame in enumerate(frames):
        if not frame.whole:
            return frames[:number]
    return frames


def _last_commit(frames: list[_Frame]) -> int:
    """Return the number of frames up to the last whole one that ends a transaction."""
    last = 0
    for number, frame in enumerate(frames, 1):
        if frame.whole and frame.commits:
            last = number
    return last


def _image(database: bytes, size: int, frames: list[_Frame]) -> bytes:
    image = bytearray(database)
    for frame in frames:
        end = frame.page * size
        if frame.whole and 0 < end <= MAX_WAL_BYTES + len(database):
            image.extend(bytes(max(0, end - len(image))))
            image[end - size : end] = frame.content
    image[18:20] = b"\x01\x01"  # a database that has no log
    return bytes(image)
