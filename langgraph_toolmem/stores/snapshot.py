"""Files with one plain value, such as ``graph.pickle``: replaced as a whole, read without running code.

Plain means ``dict``, ``list``, ``str``, ``int``, ``float``, ``bool``, ``None`` and ``bytes``, as a tree. A file is a
header (mark, format, length, BLAKE2b checksum) and a pickle of protocol 4. The checksum detects accidents. Against a
hostile file `check_opcodes` runs before unpickling; values nested more than 2,000 levels deep are refused too.
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

from langgraph_toolmem.base.errors import GraphFileError
from langgraph_toolmem.stores.opcodes import check_opcodes

SNAPSHOT_FORMAT: Final = 8
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
    payload = memoryview(data)[_HEADER.size :]
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
    _sync_folder(path.parent)


def write_draft(path: Path, data: bytes) -> Path:
    """Write ``<name>.<anything>.tmp`` next to a file, which it is to replace; return its path. May raise OSError."""
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    binary: int = getattr(os, "O_BINARY", 0)  # Windows would translate line ends otherwise
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | binary, 0o666)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
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


def _checksum(payload: memoryview) -> bytes:
    return hashlib.blake2b(payload, digest_size=16).digest()


def check(data: bytes) -> None:
    """Raise GraphFileError if `loads` would refuse the bytes of a file that `dumps` made."""
    check_opcodes(memoryview(data)[_HEADER.size :])
