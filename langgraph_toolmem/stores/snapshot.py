"""Files that hold one plain value, ``graph.pickle`` above all: replaced as a whole, read without running anything.

Plain means ``dict``, ``list``, ``str``, ``int``, ``float``, ``bool``, ``None`` and ``bytes``, as a tree. A file is a
header (mark, format, length, BLAKE2b checksum) and a pickle of protocol 4. The checksum finds accidents. Against a
hostile file every opcode is compared with those that plain values need before anything is unpickled. Refused are:

- globals, calls, persistent ids, and memo slots chosen by the file (7 bytes of ``LONG_BINPUT`` take 4 GB);
- tuples: as a key, a tuple that is nested a million times deep overflows the stack when it is hashed;
- a container that stands in two places, or in itself: whoever walks through 60 such levels never ends;
- whole numbers of many bytes that share a hash: as keys of one dictionary they take quadratic time;
- more RAM than `MULTIPLE` times the file, and values that are nested more than 2,000 levels deep.
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
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final, NoReturn

from langgraph_toolmem.base.errors import GraphFileError

FORMAT: Final = 8
MAX_BYTES: Final = 1 << 30
FREE, MULTIPLE = 1 << 20, 32
"""Bytes of RAM that any file may ask for, and for each of its own bytes; snapshots ask for about 5."""
SHARED: Final = "refused: a container that stands in two places"
MAX_ALIKE: Final = 50
"""Different whole numbers of many bytes with one hash."""

_MARK: Final = b"\x93TOOLMEM"
_HEAD: Final = struct.Struct("<8sHQ16s")  # mark, format, length and checksum of the payload
_BEGINNING: Final = bytes((pickle.PROTO[0], 4))
_BINARY: Final[int] = getattr(os, "O_BINARY", 0)  # Windows would translate line ends otherwise


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> NoReturn:
        raise GraphFileError(f"a {type(obj).__qualname__} is no plain value and cannot be stored")


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise GraphFileError(f"refused: the file asks for {module_name}.{global_name}")


def dumps(value: Any) -> bytes:
    """Return the bytes of a file; raise GraphFileError if an object in it is not plain, or nested too deeply."""
    out = io.BytesIO(bytes(_HEAD.size))
    out.seek(_HEAD.size)
    try:
        _Pickler(out, protocol=4).dump(value)
    except RecursionError:
        raise GraphFileError("the value is nested too deeply, or contains itself") from None
    data = out.getbuffer()
    payload = data[_HEAD.size :]
    data[: _HEAD.size] = _HEAD.pack(_MARK, FORMAT, len(payload), _checksum(payload))
    return bytes(data)


def loads(data: bytes) -> Any:
    """Return the value of a file; raise GraphFileError if it is damaged, hostile, or of another format."""
    if len(data) < _HEAD.size:
        raise GraphFileError(f"truncated: {len(data)} bytes, the header alone has {_HEAD.size}")
    mark, version, length, checksum = _HEAD.unpack_from(data)
    if mark != _MARK:
        raise GraphFileError("the first bytes are not those of a memory's file")
    if version != FORMAT:
        raise GraphFileError(f"it has format {version}, and this release reads format {FORMAT} alone")
    payload = memoryview(data)[_HEAD.size :]
    if len(payload) != length or _checksum(payload) != checksum:
        raise GraphFileError("damaged: the checksum is wrong")
    _check_opcodes(payload)
    try:
        value = _Unpickler(io.BytesIO(payload)).load()
        marshal.dumps(value)  # the quickest way to limit its depth
    except GraphFileError:
        raise
    except Exception as error:  # a malformed pickle raises nearly anything: KeyError, IndexError, EOFError, ...
        raise GraphFileError(f"not a readable pickle: {type(error).__name__}") from error
    return value


@contextmanager
def no_collections() -> Iterator[None]:
    """Make many lasting containers without the garbage collector, whose passes over them would double the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if not gc.get_freeze_count():  # else the host froze its own objects
                gc.freeze()
                gc.unfreeze()  # into the oldest generation: the next quick collection does not look at them
            gc.enable()


def read_file(path: Path) -> Any:
    """Return the value of a file. May raise OSError, or GraphFileError if it cannot be used."""
    if path.stat().st_size > MAX_BYTES:
        raise GraphFileError(f"larger than {MAX_BYTES:,} bytes, more than is ever read")
    return loads(path.read_bytes())


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file in one step: a reader, or a crash, finds the old bytes or the new ones. May raise OSError."""
    os.replace(write_draft(path, data), path)  # noqa: PTH105 - the tests make this very call fail
    _sync_folder(path.parent)


def write_draft(path: Path, data: bytes) -> Path:
    """Write ``<name>.<anything>.tmp`` next to a file, which it is to replace; return its path. May raise OSError."""
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _BINARY, 0o666)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        os.fsync(fd)
    finally:
        os.close(fd)
    return draft


def free_name(path: Path) -> Path:
    """Return the first of ``<name>.corrupt-1``, ``-2``, ... that does not exist."""
    names = (path.with_name(f"{path.name}.corrupt-{number}") for number in count(1))
    return next(each for each in names if not each.exists())


def _sync_folder(folder: Path) -> None:
    try:
        fd = os.open(folder, os.O_RDONLY)
    except OSError:
        return  # Windows has no way to
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _checksum(payload: memoryview) -> bytes:
    return hashlib.blake2b(payload, digest_size=16).digest()


# -- the opcodes that plain values need; pickletools describes them --

_STOP: Final = pickle.STOP[0]
_MEMOIZE: Final = pickle.MEMOIZE[0]
_FRAME: Final = pickle.FRAME[0]
_FIXED: Final = [0] * 256  # length of the opcode with its argument; 0: see the tables below
for _op in (
    pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.MARK, pickle.APPEND, pickle.APPENDS, pickle.SETITEM,
    pickle.SETITEMS,
):  # fmt: skip
    _FIXED[_op[0]] = 1
_FIXED[pickle.BININT1[0]] = 2
_FIXED[pickle.BININT2[0]] = 3
_FIXED[pickle.BININT[0]] = 5
_FIXED[pickle.BINFLOAT[0]] = _FIXED[pickle.FRAME[0]] = 9
_CONTAINERS: Final = frozenset({pickle.EMPTY_DICT[0], pickle.EMPTY_LIST[0]})
_SHORT: Final = frozenset({pickle.SHORT_BINUNICODE[0], pickle.SHORT_BINBYTES[0]})
_GET, _LONG_GET = pickle.BINGET[0], pickle.LONG_BINGET[0]
_LONG: Final = {  # bytes of the length that stands before a text, or bytes
    pickle.BINUNICODE[0]: 4,
    pickle.BINBYTES[0]: 4,
    pickle.BINUNICODE8[0]: 8,
    pickle.BINBYTES8[0]: 8,
}
_NUMBERS: Final = {pickle.LONG1[0]: 1, pickle.LONG4[0]: 4}  # likewise before a whole number


def check(data: bytes) -> None:
    """Raise GraphFileError if `loads` would refuse the bytes of a file that `dumps` made."""
    _check_opcodes(memoryview(data)[_HEAD.size :])


def _check_opcodes(data: memoryview) -> None:
    fixed, containers, short, memoize = _FIXED, _CONTAINERS, _SHORT, _MEMOIZE
    made = 0  # containers
    memo = bytearray()  # 1 for a container
    numbers: list[memoryview] = []
    if data[:2] != _BEGINNING:
        raise GraphFileError("not a pickle of protocol 4")
    at = 2
    try:
        while True:
            op = data[at]
            if step := fixed[op]:
                at += step
            elif op in short:
                at += 2 + data[at + 1]
                if data[at] == memoize:
                    memo.append(0)
                    at += 1
            elif op in containers:
                made += 1
                at += 1
                if data[at] == memoize:
                    memo.append(1)
                    at += 1
            elif op == _GET:
                if memo[data[at + 1]]:
                    raise GraphFileError(SHARED)
                at += 2
            elif op == _LONG_GET:
                if memo[int.from_bytes(data[at + 1 : at + 5], "little")]:
                    raise GraphFileError(SHARED)
                at += 5
            elif op in _LONG:
                width = _LONG[op]
                at += 1 + width + int.from_bytes(data[at + 1 : at + 1 + width], "little")
                if data[at] == _FRAME:  # the pickler puts 64 KiB and more between two frames
                    at += fixed[_FRAME]
                if data[at] == memoize:
                    memo.append(0)
                    at += 1
            elif op in _NUMBERS:
                begin = at + 1 + _NUMBERS[op]
                at = begin + int.from_bytes(data[at + 1 : begin], "little")
                numbers.append(data[begin:at])
            elif op == _STOP:
                break
            else:
                raise GraphFileError(f"refused: opcode {op:#04x} at byte {at} is not one of plain values")
    except IndexError:
        raise GraphFileError("truncated pickle") from None
    hashes = Counter(hash(int.from_bytes(each, "little", signed=True)) for each in set(numbers))
    if any(alike > MAX_ALIKE for alike in hashes.values()):
        raise GraphFileError("refused: whole numbers that share a hash")
    if 64 * made > FREE + MULTIPLE * len(data):
        raise GraphFileError(f"refused: {len(data)} bytes that ask for {64 * made} in RAM")
    if at + 1 != len(data):
        raise GraphFileError(f"{len(data) - at - 1} bytes after the end of the pickle")
