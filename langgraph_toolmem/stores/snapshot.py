"""Files with one plain value, such as ``graph.pickle``: replaced as a whole, read without running code.

Plain means ``dict``, ``list``, ``str``, ``int``, ``float``, ``bool``, ``None`` and ``bytes``, as a tree. A file is a
header (mark, format, length, BLAKE2b checksum) and a pickle of protocol 4. The checksum detects accidents. Against a
hostile file every opcode is checked before unpickling (`check_opcodes`). Refused are:

- globals, calls, persistent ids, and memo slots chosen by the file (7 bytes of ``LONG_BINPUT`` take 4 GB);
- tuples: as a key, a tuple that is nested a million times deep overflows the stack when it is hashed;
- a container that occurs in two places, or in itself: a walk through 60 such levels never ends;
- whole numbers of many bytes with the same hash: as keys of one dictionary they take quadratic time;
- more RAM than 32 times the file;
- values nested more than 2,000 levels deep.
"""

from __future__ import annotations

import gc
import hashlib
import io
import marshal
import os
import pickle
import struct
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from langgraph_toolmem.base.errors import GraphFileError

SNAPSHOT_FORMAT: Final = 9
MAX_SNAPSHOT_BYTES: Final = 1 << 30
_MAGIC: Final = b"\x93TOOLMEM"
_HEADER: Final = struct.Struct("<8sHQ16s")  # mark, format, length and checksum of the payload


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> NoReturn:
        raise GraphFileError(f"a {type(obj).__qualname__} is no plain value and cannot be stored")


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise GraphFileError(f"refused: the file asks for {module_name}.{global_name}")


def dumps(value: Any) -> bytes:
    """Return the bytes of a file; raise GraphFileError if an object in it is not plain, or nested too deeply."""
    out = io.BytesIO(bytes(_HEADER.size))
    out.seek(_HEADER.size)
    try:
        _Pickler(out, protocol=4).dump(value)
    except RecursionError:
        raise GraphFileError("the value is nested too deeply, or contains itself") from None
    data = out.getbuffer()
    payload = data[_HEADER.size :]
    data[: _HEADER.size] = _HEADER.pack(_MAGIC, SNAPSHOT_FORMAT, len(payload), _checksum(payload))
    return bytes(data)


def loads(data: bytes) -> Any:
    """Return the value of a file; raise GraphFileError if it is damaged, hostile, or of another format."""
    if len(data) < _HEADER.size:
        raise GraphFileError(f"truncated: {len(data)} bytes, the header alone has {_HEADER.size}")
    mark, version, length, checksum = _HEADER.unpack_from(data)
    if mark != _MAGIC:
        raise GraphFileError("the first bytes are not those of a memory's file")
    if version != SNAPSHOT_FORMAT:
        raise GraphFileError(f"it has format {version}, and this release reads format {SNAPSHOT_FORMAT} alone")
    # A copy: the check reads bytes faster than a view, and the unpickler copies a view too.
    payload = data[_HEADER.size :]
    if len(payload) != length or _checksum(payload) != checksum:
        raise GraphFileError("damaged: the checksum is wrong")
    check_opcodes(payload)
    try:
        value = _Unpickler(io.BytesIO(payload)).load()
        marshal.dumps(value)  # the quickest way to limit its depth
    except GraphFileError:
        raise
    except Exception as error:  # a malformed pickle may raise almost any error: KeyError, IndexError, EOFError, ...
        raise GraphFileError(f"not a readable pickle: {type(error).__name__}") from error
    return value


def check(data: bytes) -> None:
    """Raise GraphFileError if `loads` would refuse the bytes of a file that `dumps` made."""
    check_opcodes(data[_HEADER.size :])


@contextmanager
def no_collections() -> Iterator[None]:
    """Make many lasting containers without the garbage collector, whose passes over them would double the time."""
    was_on = gc.isenabled()
    # Opening 100,000 events takes 0.76 s, with the collector 1.3 s.
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if not gc.get_freeze_count():  # otherwise the host froze its own objects
                gc.freeze()
                gc.unfreeze()  # into the oldest generation: the next quick collection does not scan them
            gc.enable()


def read_file(path: Path) -> Any:
    """Return the value of a file. May raise OSError, or GraphFileError if it cannot be used."""
    if path.stat().st_size > MAX_SNAPSHOT_BYTES:
        raise GraphFileError(f"larger than {MAX_SNAPSHOT_BYTES:,} bytes, more than is ever read")
    return loads(path.read_bytes())


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file in one step: a reader, or a crash, finds the old bytes or the new ones. May raise OSError."""
    os.replace(write_draft(path, data), path)  # noqa: PTH105 - the tests make this very call fail
    # The new name is on the disk once its folder is.
    _sync_folder(path.parent)


def write_draft(path: Path, data: bytes) -> Path:
    """Write ``<name>.<anything>.tmp`` next to a file, which it is to replace; return its path. May raise OSError."""
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    binary: int = getattr(os, "O_BINARY", 0)  # Windows would translate line ends otherwise
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | binary, 0o666)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        # Before it is renamed: after a crash of the machine the new name could be that of an empty file.
        os.fsync(fd)
    finally:
        os.close(fd)
    return draft


def free_name(path: Path) -> Path:
    """Return the first of ``<name>.corrupt-1``, ``-2``, ... that does not exist."""
    number = 1
    while True:
        free = path.with_name(f"{path.name}.corrupt-{number}")
        if not free.exists():
            return free
        number += 1


def _sync_folder(folder: Path) -> None:
    try:
        fd = os.open(folder, os.O_RDONLY)
    except OSError:
        return  # Windows has no way to
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _checksum(payload: bytes | memoryview) -> bytes:
    return hashlib.blake2b(payload, digest_size=16).digest()


# --- opcodes ---


def _fixed_lengths() -> list[int]:
    lengths = [0] * 256
    for opcode in (pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.MARK):
        lengths[opcode[0]] = 1
    for opcode in (pickle.APPEND, pickle.APPENDS, pickle.SETITEM, pickle.SETITEMS):
        lengths[opcode[0]] = 1
    lengths[pickle.BININT1[0]] = 2
    lengths[pickle.BININT2[0]] = 3
    lengths[pickle.BININT[0]] = 5
    lengths[pickle.BINFLOAT[0]] = 9
    lengths[pickle.FRAME[0]] = 9
    return lengths


@dataclass(frozen=True, slots=True)
class PlainOpcodes:
    """The opcodes that plain values need; pickletools describes them.

    Attributes:
        fixed: by opcode, its length with the argument; 0: not of a fixed length.
        empty_list, empty_dict: begin an empty container.
        short: a text after a length of one byte.
        long: other texts and bytes, by the width of the length before them.
        numbers: whole numbers, by the width of the length before them.
        gets: of a value that was memoized, by the width of its slot.
        memoize: puts the last value into the next slot of the memo.
        frame: before the length of the frame.
    """

    fixed: Sequence[int] = field(default_factory=_fixed_lengths)
    empty_list: int = pickle.EMPTY_LIST[0]
    empty_dict: int = pickle.EMPTY_DICT[0]
    short: int = pickle.SHORT_BINUNICODE[0]
    long: Mapping[int, int] = field(
        default_factory={
            pickle.SHORT_BINBYTES[0]: 1,
            pickle.BINUNICODE[0]: 4,
            pickle.BINBYTES[0]: 4,
            pickle.BINUNICODE8[0]: 8,
            pickle.BINBYTES8[0]: 8,
        }.copy
    )
    numbers: Mapping[int, int] = field(default_factory={pickle.LONG1[0]: 1, pickle.LONG4[0]: 4}.copy)
    gets: Mapping[int, int] = field(default_factory={pickle.BINGET[0]: 1, pickle.LONG_BINGET[0]: 4}.copy)
    memoize: int = pickle.MEMOIZE[0]
    frame: int = pickle.FRAME[0]
    stop: int = pickle.STOP[0]


PLAIN_OPCODES: Final = PlainOpcodes()


def check_opcodes(data: bytes) -> None:
    """Raise GraphFileError unless a pickle contains only plain values and is safe to load."""
    if data[:2] != pickle.PROTO + bytes([4]):
        raise GraphFileError("not a pickle of protocol 4")
    try:
        found = _walk(data, 2)
    except IndexError:
        raise GraphFileError("truncated pickle") from None
    _check_numbers(found.numbers)
    ram = 64 * found.containers
    # A file may use 1 MiB, and 32 bytes for each of its own; snapshots use about 5.
    if ram > (1 << 20) + 32 * len(data):
        raise GraphFileError(f"refused: {len(data)} bytes that ask for {ram} in RAM")
    if found.end != len(data):
        raise GraphFileError(f"{len(data) - found.end} bytes after the end of the pickle")


@dataclass(frozen=True, slots=True)
class _Found:
    """The end of a pickle, the number of its containers, and its whole numbers of many bytes."""

    end: int
    containers: int
    numbers: list[bytes]


def _walk(data: bytes, start: int) -> _Found:
    """Go from opcode to opcode up to the stop; IndexError if the data end before it."""
    # One loop with local names, the frequent opcodes first: it runs once for every value of a snapshot, before the
    # snapshot is used. The 840,000 opcodes of 10,000 events take 96 ms; as a `memoryview`, and with a set for each kind
    # of opcode, they took 114.
    opcodes = PLAIN_OPCODES
    fixed, memoize, short, gets = opcodes.fixed, opcodes.memoize, opcodes.short, opcodes.gets
    empty_list, empty_dict = opcodes.empty_list, opcodes.empty_dict
    made = 0  # containers
    memo = bytearray()  # 1 for a container
    put = memo.append
    numbers: list[bytes] = []
    at = start
    while True:
        op = data[at]
        if step := fixed[op]:
            at += step
        elif op == empty_list or op == empty_dict:  # noqa: SIM109 - a tuple would be made for each opcode
            made += 1
            at += 1
            if data[at] == memoize:
                put(1)
                at += 1
        elif op == short:
            at += 2 + data[at + 1]
            if data[at] == memoize:
                put(0)
                at += 1
        elif op in gets:
            begin = at + 1
            at = begin + gets[op]
            if memo[int.from_bytes(data[begin:at], "little")]:
                raise GraphFileError("refused: a container that occurs in two places")
        elif op in opcodes.numbers:
            begin = at + 1 + opcodes.numbers[op]
            at = begin + int.from_bytes(data[at + 1 : begin], "little")
            numbers.append(data[begin:at])
        elif op in opcodes.long:
            at = _end_of_long(data, at, opcodes.long[op])
            if data[at] == memoize:
                put(0)
                at += 1
        elif op == opcodes.stop:
            return _Found(at + 1, made, numbers)
        else:
            raise GraphFileError(f"refused: opcode {op:#04x} at byte {at} is not one of plain values")


def _end_of_long(data: bytes, at: int, width: int) -> int:
    begin = at + 1 + width
    end = begin + int.from_bytes(data[at + 1 : begin], "little")
    if data[end] == PLAIN_OPCODES.frame:  # the pickler puts 64 KiB and more between two frames
        # Without this no snapshot with 8,192 records or more could be written: their keys are one such text.
        end += PLAIN_OPCODES.fixed[PLAIN_OPCODES.frame]
    return end


def _check_numbers(numbers: Sequence[bytes]) -> None:
    """Raise GraphFileError if more than 50 different whole numbers have the same hash."""
    hashes: Counter[int] = Counter()
    for number in set(numbers):
        hashes[hash(int.from_bytes(number, "little", signed=True))] += 1
    if max(hashes.values(), default=0) > 50:
        raise GraphFileError("refused: whole numbers that share a hash")
