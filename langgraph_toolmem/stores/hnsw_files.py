"""The files in which Chroma keeps its nearest-neighbour graph (hnswlib), as far as they hold what they should not.

hnswlib allocates room for rows to come without clearing it, and writes it to disk as it is, when the first row of a
collection is written and whenever the room is made larger. So the unused part of its files holds pieces of the memory
of the process: texts that were in use before, a forgotten user's among them.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

_VERSION: Final = 1
_HEADER: Final = struct.Struct("<i4Q")  # version, offset of level 0, capacity, rows, bytes per row of level 0
_BYTES_PER_LENGTH: Final = 4


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
    header = segment / "header.bin"
    start = header.read_bytes()[: _HEADER.size] if header.exists() else b""
    if len(start) < _HEADER.size:
        return
    version, _, capacity, rows, bytes_per_row = _HEADER.unpack(start)
    if version != _VERSION or rows > capacity:
        return
    for name, width in (("length.bin", _BYTES_PER_LENGTH), ("data_level0.bin", bytes_per_row)):
        file = segment / name
        size = file.stat().st_size if file.exists() else 0
        unused = size - rows * width
        if unused > 0 and width and unused % width == 0:
            with file.open("r+b") as opened:
                opened.truncate(rows * width)
                opened.truncate(size)
