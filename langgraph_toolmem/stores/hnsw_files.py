"""The files in which Chroma keeps its nearest-neighbour graph (hnswlib), as far as they hold what they should not.

hnswlib allocates room for rows to come without clearing it, and writes it to disk as it is. So the unused part of
its files holds pieces of the memory of the process: texts that were in use before.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

_VERSION: Final = 1
_HEADER: Final = struct.Struct("<i4Q")  # version, offset of level 0, capacity, rows, bytes per row of level 0
_BYTES_PER_LENGTH: Final = 4


def blank_unused_rows(segment: Path) -> None:
    """Overwrites with zeros what lies behind the last row; a file of another format is left as it is.

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
        unused = file.stat().st_size - rows * width if file.exists() else 0
        if unused > 0 and width and unused % width == 0:
            with file.open("r+b") as opened:
                opened.seek(rows * width)
                opened.write(bytes(unused))
