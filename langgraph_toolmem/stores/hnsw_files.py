"""The files in which Chroma keeps its nearest-neighbour graphs (hnswlib): what may be wrong with them, without Chroma.

hnswlib trusts its files: a wrong number in them is an address, and reading there ends the process. So they are looked
at before Chroma is let near them: `fingerprint` tells whether they are what was written, `flaw` whether they hang
together where nobody knows what was written.

hnswlib also allocates room for rows to come without clearing it, and writes it to disk as it is, when the first row of
a collection is written and whenever the room is made larger. So the unused part of its files holds pieces of the memory
of the process: texts that were in use before, a forgotten user's among them. `blank_unused_rows` clears it.

A segment is a folder: ``header.bin`` (a `Header`), ``data_level0.bin`` (per row its links, vector and label),
``link_lists.bin`` (per row the size of its links on higher levels, and those), ``length.bin`` (per row the vector's
length before it was made 1) and, once a thousand rows were written, ``index_metadata.pickle`` (ids and labels). Before
that Chroma does not read the others.
"""

from __future__ import annotations

import math
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

IDS: Final = "index_metadata.pickle"
FILES: Final = ("header.bin", "data_level0.bin", "length.bin", "link_lists.bin", IDS)
_VERSION: Final = 1
_BYTES_PER_LENGTH: Final = 4
_AT_ONCE: Final = 1 << 20  # bytes read at once
_TOLERANCE: Final = 1e-3  # of the square of a vector's length, which is one
_MOST_ROOM: Final = 16  # times what is used
_MOST_NEIGHBOURS: Final = 1 << 10
_MOST_SEARCHED: Final = 1 << 20


class Header(NamedTuple):
    """``header.bin``: an index's shape."""

    version: int
    start: int
    capacity: int
    rows: int
    row_bytes: int
    label_at: int
    vector_at: int
    top_level: int
    entry: int
    """The row a search begins at; it stands on the top level."""
    most_above: int
    """Links of a row on each higher level."""
    most_below: int
    """Links of a row on level 0."""
    m: int
    scale: float
    searched: int

    @classmethod
    def read(cls, segment: Path) -> Header | None:
        """``None`` if there is none, or one of another size."""
        file = segment / "header.bin"
        data = file.read_bytes() if file.exists() else b""
        return cls(*_HEADER.unpack(data)) if len(data) == _HEADER.size else None

    def is_sound(self, dimension: int) -> bool:
        """Whether the numbers agree with each other and with vectors of that length."""
        return (
            (self.version, self.start) == (_VERSION, 0)
            and 0 < self.rows <= self.capacity <= _MOST_ROOM * self.rows
            and 1 < self.m == self.most_above <= _MOST_NEIGHBOURS
            and self.most_below == 2 * self.m
            and self.vector_at == 4 + 4 * self.most_below
            and self.label_at == self.vector_at + 4 * dimension
            and self.row_bytes == self.label_at + 8
            and 0 <= self.entry < self.rows
            and self.top_level >= 0
            and math.isclose(self.scale, 1 / math.log(self.m), rel_tol=1e-9)
            and self.m <= self.searched <= _MOST_SEARCHED
        )


_HEADER: Final = struct.Struct("<i6Qii3QdQ")
_SIZE, _NUMBER = struct.Struct("<I"), struct.Struct("<i")


class _DamagedError(Exception):
    """What is wrong with a segment."""


def fingerprint(segment: Path) -> int:
    """A number that changes with any byte of the files, with high probability; about 3 GB a second.

    Raises:
        OSError: a file cannot be read.
    """
    found = 0
    room = memoryview(bytearray(_AT_ONCE))
    for name in FILES:
        file = segment / name
        found = zlib.crc32(f"{name} {file.stat().st_size if file.exists() else None}".encode(), found)
        if file.exists():
            with file.open("rb", buffering=0) as opened:
                while size := opened.readinto(room):
                    found = zlib.crc32(room[:size], found)
    return found


def flaw(segment: Path, dimension: int, ids: set[str], waiting: set[str]) -> str | None:
    """What is wrong with the files of a segment with cosine distance; ``None`` if Chroma may open it.

    A changed number within a vector, or a link to another row that exists, is not seen: it makes one answer worse.

    Args:
        dimension: of its vectors.
        ids: of the collection's rows.
        waiting: ids of rows that may differ: their last change is in Chroma's log, and not in these files yet.

    Raises:
        OSError: a file cannot be read.
    """
    missing = [name for name in FILES if not (segment / name).is_file()]
    if missing:
        return f"there is no {missing[0]}"
    header = Header.read(segment)
    if header is None or not header.is_sound(dimension):
        return "header.bin is damaged"
    if (segment / "data_level0.bin").stat().st_size < header.rows * header.row_bytes:
        return "data_level0.bin is cut off"
    try:
        kept = _ids((segment / IDS).read_bytes())
        labels = _rows(segment, header)
        _links_above(segment, header)
    except _DamagedError as wrong:
        return str(wrong)
    by_label = {label: key for key, label in kept["id_to_label"].items()}
    if by_label != kept["label_to_id"] or len(by_label) != len(kept["id_to_label"]) or labels != by_label.keys():
        return f"{IDS} does not fit the rows"
    if not kept["id_to_label"].keys() ^ ids <= waiting:
        return f"{IDS} does not fit chroma.sqlite3"
    return None


def _rows(segment: Path, header: Header) -> set[int]:
    """Looks at each row on level 0; labels of those that are not deleted."""
    import numpy as np

    row = np.dtype(
        {
            "names": ["links", "vector", "label"],
            "formats": [
                ("<u4", (1 + header.most_below,)),
                ("<f4", ((header.label_at - header.vector_at) // 4,)),
                "<u8",
            ],
            "offsets": [0, header.vector_at, header.label_at],
            "itemsize": header.row_bytes,
        }
    )
    lengths = np.fromfile(segment / "length.bin", "<f4", header.rows)
    if len(lengths) < header.rows or not (np.isfinite(lengths) & (lengths >= 0)).all():
        raise _DamagedError("length.bin is damaged")
    place = np.arange(header.most_below)
    labels, deleted = np.empty(header.rows, "<u8"), np.empty(header.rows, bool)
    at_once = max(1, _AT_ONCE // header.row_bytes)
    with (segment / "data_level0.bin").open("rb") as opened:
        for start in range(0, header.rows, at_once):
            wanted = min(at_once, header.rows - start)
            part = np.fromfile(opened, row, wanted)
            head, links, vectors = part["links"][:, 0], part["links"][:, 1:], part["vector"]
            count, mark = head & 0xFFFF, head >> 16
            square = np.einsum("ij,ij->i", vectors, vectors)
            empty = (square == 0) & (lengths[start : start + wanted] == 0)
            if (
                (count > header.most_below).any()
                or (mark > 1).any()
                or (np.where(place < count[:, None], links, 0) >= header.rows).any()
                or not (empty | (np.abs(square - 1) < _TOLERANCE)).all()
            ):
                raise _DamagedError("data_level0.bin is damaged")
            labels[start : start + wanted], deleted[start : start + wanted] = part["label"], mark == 1
    if len(np.unique(labels)) != header.rows:
        raise _DamagedError("data_level0.bin is damaged")
    return set(labels[~deleted].tolist())


def _links_above(segment: Path, header: Header) -> None:
    """Looks at the links on higher levels: each list's size, its count, and that who is named stands there too."""
    import numpy as np

    data = (segment / "link_lists.bin").read_bytes()
    width = 1 + header.most_above  # of one list
    if len(data) % 4:
        raise _DamagedError("link_lists.bin is damaged")
    numbers = np.frombuffer(data, "<u4")
    levels = np.zeros(header.rows, "i8")
    starts: list[int] = []
    on_level: list[int] = []
    at, words = 0, numbers.tolist()
    for row in range(header.rows):
        size = words[at] if at < len(words) else 1
        at += 1
        if size:
            lists, rest = divmod(size, 4 * width)
            if rest or lists > header.top_level or at + lists * width > len(words):
                raise _DamagedError("link_lists.bin is damaged")
            levels[row] = lists
            starts += range(at, at + lists * width, width)
            on_level += range(1, lists + 1)
            at += lists * width
    if at != len(words) or levels[header.entry] != header.top_level:
        raise _DamagedError("link_lists.bin is damaged")
    if starts:
        table: NDArray[np.uint32] = numbers[np.array(starts)[:, None] + np.arange(width)]
        count, links = table[:, :1], table[:, 1:]
        used = np.arange(header.most_above) < count
        known = np.where(used, links, header.entry)
        if (
            (count > header.most_above).any()
            or (known >= header.rows).any()
            or (levels[known] < np.array(on_level)[:, None]).any()
        ):
            raise _DamagedError("link_lists.bin is damaged")


def _ids(data: bytes) -> dict[str, dict[Any, Any]]:
    """``index_metadata.pickle``, read without the means to run anything or to take more memory than it has bytes.

    Chroma writes one dictionary of dictionaries, texts, whole numbers and None; anything else is damage.
    """
    try:
        found, end = _dictionary(data, 2)
        kept = {name: dict(found[name]) for name in ("id_to_label", "label_to_id")}
    except (ValueError, KeyError, TypeError, IndexError, struct.error, RecursionError) as error:
        raise _DamagedError(f"{IDS} is damaged") from error
    if data[:3] != b"\x80\x03}" or data[end:] != b".":
        raise _DamagedError(f"{IDS} is damaged")
    return kept


def _dictionary(data: bytes, at: int) -> tuple[dict[Any, Any], int]:
    """The dictionary at that place, and the place behind it."""
    items: list[Any] = []
    at += 1
    size, number = _SIZE.unpack_from, _NUMBER.unpack_from
    while data[at] == 0x28:  # a mark, keys and values, "set these"
        at += 1
        while (opcode := data[at]) != 0x75:
            at += 1
            if opcode == 0x58:  # a text
                start = at + 4
                at = start + size(data, at)[0]
                items.append(data[start:at].decode())
            elif opcode == 0x4A:  # a number of four bytes
                items.append(number(data, at)[0])
                at += 4
            elif opcode == 0x8A:  # a number of so many bytes
                start = at + 1
                at = start + data[at]
                items.append(int.from_bytes(data[start:at], "little", signed=True))
            elif opcode == 0x7D:
                value, at = _dictionary(data, at - 1)
                items.append(value)
            elif opcode == 0x4E:
                items.append(None)
            else:
                raise ValueError(f"opcode {opcode:#x}")
        at += 1
    return dict(zip(items[::2], items[1::2], strict=True)), at


def blank_all_unused_rows(folder: Path) -> None:
    """`blank_unused_rows` for every index in Chroma's folder.

    Raises:
        OSError: a file cannot be read or written.
    """
    for segment in folder.iterdir() if folder.exists() else ():
        if segment.is_dir():
            blank_unused_rows(segment)


def blank_unused_rows(segment: Path) -> None:
    """What lies behind the last row becomes a hole, read as zeros; a file of another format is left as it is.

    Args:
        segment: folder of one index; nothing may have it open.

    Raises:
        OSError: a file cannot be read or written.
    """
    header = Header.read(segment)
    if header is None or header.version != _VERSION or header.rows > header.capacity:
        return
    for name, width in (("length.bin", _BYTES_PER_LENGTH), ("data_level0.bin", header.row_bytes)):
        file = segment / name
        size = file.stat().st_size if file.exists() else 0
        unused = size - header.rows * width
        if unused > 0 and width and unused % width == 0:
            with file.open("r+b") as opened:
                opened.truncate(header.rows * width)
                opened.truncate(size)
