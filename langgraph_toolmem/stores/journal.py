"""The journal's bytes: a header, then one frame a record. Values in, values out; no file is opened here.

Header: magic, format version, generation, CRC-32 of the three. Frame: length of the payload, its CRC-32,
CRC-32 of these two, then the payload (a plain pickle). Because the frame's head has a check of its own, its
length can be trusted: a frame that runs past the end of the file was cut off while it was written (*torn*),
and anything else that does not fit is damage (*corrupt*). Behind damage reading goes on at the next whole frame.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from langgraph_toolmem.base.errors import GraphFileError
from langgraph_toolmem.stores import plain_pickle

Ending: TypeAlias = Literal["clean", "torn", "corrupt"]

_MAGIC: Final = b"\x93TMJRNL\n"
_HEADER: Final = struct.Struct("<8sHQ")  # magic, format version, generation
_FRAME: Final = struct.Struct("<II")  # length and CRC-32 of the payload
_CRC: Final = struct.Struct("<I")
HEADER_BYTES: Final = _HEADER.size + _CRC.size
_FRAME_BYTES: Final = _FRAME.size + _CRC.size


@dataclass(frozen=True, slots=True)
class Journal:
    """What the bytes of a journal say.

    Attributes:
        generation: number of the snapshot that its records come after; None if the header is unreadable.
        records: those that can be read.
        end: offset behind the last readable record.
        ending: "clean"; "torn" if the last record was cut off; "corrupt" if there is damage at `end`.
        why: what is wrong at `end`, or where there is damage first; "" if nothing.
        damaged: where there is damage before `end`: offsets from and to.
    """

    generation: int | None
    records: list[Any]
    end: int
    ending: Ending
    why: str = ""
    damaged: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a folder held.

    Attributes:
        state: the snapshot's state; None if there is none or it cannot be used.
        records: what was appended after it, in order.
        problems: what was wrong and what was lost, one sentence each, for a person.
    """

    state: dict[str, Any] | None
    records: list[Any]
    problems: list[str]


def header(generation: int) -> bytes:
    """First bytes of a journal whose records come after the snapshot of that generation."""
    head = _HEADER.pack(_MAGIC, plain_pickle.FORMAT_VERSION, generation)
    return head + _CRC.pack(zlib.crc32(head))


def frame(record: Any) -> bytes:
    """One record, ready to be appended.

    Raises:
        NotPlainError: the record is not a plain value.
    """
    payload = plain_pickle.encode(record)
    head = _FRAME.pack(len(payload), zlib.crc32(payload))
    return b"".join((head, _CRC.pack(zlib.crc32(head)), payload))


def parse(data: bytes) -> Journal:
    """Read a journal, without what is damaged.

    Raises:
        FormatVersionError: it has another format version.
    """
    if len(data) < HEADER_BYTES:
        # The header is written in one go before any record: cut off inside it, nothing was acknowledged yet.
        return Journal(None, [], 0, "torn", "the header is cut off")
    generation = parse_header(data)
    if generation is None:
        return Journal(None, [], 0, "corrupt", "the header is damaged")
    records, end, ending, why = parse_frames(data, HEADER_BYTES)
    damaged: list[tuple[int, int]] = []
    first = why
    while ending == "corrupt" and (following := _next_frame(data, end)) is not None:
        damaged.append((end, following))
        more, end, ending, why = parse_frames(data, following)
        records += more
    return Journal(generation, records, end, ending, why or (first if damaged else ""), tuple(damaged))


def _next_frame(data: bytes, at: int) -> int | None:
    """Offset of the next whole frame behind a damaged one; None if there is none."""
    found = at + _FRAME_BYTES
    while (found := data.find(plain_pickle.BEGINNING, found + 1)) >= 0:
        head = found - _FRAME_BYTES
        length, check = _FRAME.unpack_from(data, head)
        if _CRC.unpack_from(data, head + _FRAME.size)[0] == zlib.crc32(data[head : head + _FRAME.size]):
            payload = data[found : found + length]
            if len(payload) == length and zlib.crc32(payload) == check:
                return head
    return None


def parse_header(data: bytes) -> int | None:
    """Generation of a journal that begins with these bytes; None if its header is damaged.

    Raises:
        FormatVersionError: it has another format version.
    """
    head = data[: _HEADER.size]
    magic, version, generation = _HEADER.unpack(head)
    if magic != _MAGIC or _CRC.unpack_from(data, _HEADER.size)[0] != zlib.crc32(head):
        return None
    plain_pickle.require_version(version)
    return int(generation)


def parse_frames(data: bytes, start: int) -> tuple[list[Any], int, Ending, str]:
    """The records from offset `start` on, as far as they are whole: records, end, ending, why (see `Journal`)."""
    with plain_pickle.without_gc():
        return _frames(data, start)


def _frames(data: bytes, at: int) -> tuple[list[Any], int, Ending, str]:
    records: list[Any] = []
    size = len(data)
    while at < size:
        start = at + _FRAME_BYTES
        if start > size:
            return records, at, "torn", "the last record is cut off"
        length, check = _FRAME.unpack_from(data, at)
        if _CRC.unpack_from(data, at + _FRAME.size)[0] != zlib.crc32(data[at : at + _FRAME.size]):
            return records, at, "corrupt", "the head of a record is damaged"
        if start + length > size:
            return records, at, "torn", "the last record is cut off"
        payload = data[start : start + length]
        if zlib.crc32(payload) != check:
            return records, at, "corrupt", "the checksum of a record is wrong"
        try:
            records.append(plain_pickle.decode(payload))
        except GraphFileError as error:
            return records, at, "corrupt", f"a record is not plain: {error}"
        at = start + length
    return records, at, "clean", ""
