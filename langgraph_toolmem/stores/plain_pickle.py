"""Pickles that hold plain values only and can run nothing.

Plain means ``dict``, ``list``, ``tuple``, ``str``, ``int``, ``float``, ``bool``, ``None`` and ``bytes``,
exactly: no subclass, no set, no NumPy scalar. Two layers:

- ``encode`` / ``decode``: a bare pickle of protocol 4. Before it is unpickled, every opcode is compared with
  the short list that plain values need; globals, extension codes, persistent ids, calls and memo slots chosen
  by the file are refused at that point, so nothing of the file has been acted upon yet. The unpickler refuses
  globals and persistent ids once more.
- ``dumps`` / ``loads``: the same in an envelope with magic, format version, length and BLAKE2b checksum. The
  envelope is laid out alike in every format version, so that another version can be told from damage.

The checksum finds accidents; the opcode list is what stands against a hostile file.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import io
import pickle
import struct
from collections.abc import Iterator
from typing import Any, Final, NoReturn

from langgraph_toolmem.base.errors import GraphFileError

FORMAT_VERSION: Final = 6
"""Of every file; one with another number is left where it is."""
MAX_BYTES: Final = 1 << 30
"""Larger files are refused unread, and larger values are not written."""
MULTIPLE: Final = 32
"""A pickle may not ask for more RAM than so many times its size, beyond `FREE`; snapshots ask for about 5 times."""
FREE: Final = 1 << 20

_MAGIC: Final = b"\x93TOOLMEM"
_HEAD: Final = struct.Struct("<8sHQ")  # magic, format version, length of the payload
_DIGEST_BYTES: Final = 16
_OVERHEAD: Final = _HEAD.size + _DIGEST_BYTES
_PLAIN: Final = frozenset({dict, list, tuple, str, int, float, bool, type(None), bytes})
_PROTOCOL: Final = 4
BEGINNING: Final = bytes((pickle.PROTO[0], _PROTOCOL))
"""Of every bare pickle."""


class FormatVersionError(GraphFileError):
    """The file is whole, but its format version is not that of this release.

    Attributes:
        version: the version found in the file.
    """

    def __init__(self, message: str, *, version: int) -> None:
        super().__init__(message)
        self.version = version


class NotPlainError(GraphFileError, TypeError):
    """A value to be stored is not made of plain containers; the message says where."""


def dumps(value: Any) -> bytes:
    """The value in its envelope.

    Raises:
        NotPlainError: something in it is not plain or nested too deeply, or the whole exceeds ``MAX_BYTES``.
    """
    payload = encode(value)
    head = _HEAD.pack(_MAGIC, FORMAT_VERSION, len(payload))
    return b"".join((head, _digest(head, payload), payload))


def snapshot(data: bytes) -> tuple[dict[str, Any], int]:
    """State and generation of a snapshot; see `loads`.

    Raises:
        GraphFileError: it is not one.
    """
    value = loads(data)
    if type(value) is dict and type(value.get("state")) is dict and type(value.get("generation")) is int:
        return value["state"], value["generation"]
    raise GraphFileError("it holds something other than a snapshot")


def loads(data: bytes) -> Any:
    """The value of an envelope.

    Raises:
        FormatVersionError: it has another format version.
        GraphFileError: it is truncated, damaged or hostile.
    """
    version, payload = _open_envelope(data)
    require_version(version)
    with without_gc():
        return decode(payload)


def require_version(version: int) -> None:
    """Refuse a format version other than ``FORMAT_VERSION``.

    Raises:
        FormatVersionError: it is another one.
    """
    if version != FORMAT_VERSION:
        raise FormatVersionError(
            f"it has format version {version}, and this release of langgraph-toolmem reads version {FORMAT_VERSION} "
            "alone. Use the release that wrote it, or another folder",
            version=version,
        )


def encode(value: Any) -> bytes:
    """A bare pickle of a plain value.

    Raises:
        NotPlainError: something in it is not plain or nested too deeply, or the whole exceeds ``MAX_BYTES``.
    """
    out = io.BytesIO()
    try:
        _PlainPickler(out, protocol=_PROTOCOL).dump(value)
        data = out.getvalue()
        # The C pickler writes sets, byte arrays and tuples that contain themselves without asking anybody.
        _check_opcodes(data)
    except RecursionError:
        raise NotPlainError("the value is nested too deeply, or contains itself") from None
    except GraphFileError:
        raise NotPlainError(_where_not_plain(value)) from None
    if len(data) > MAX_BYTES:
        raise NotPlainError(f"the value takes {len(data)} bytes; the limit is {MAX_BYTES}")
    return data


def decode(data: bytes) -> Any:
    """The value of a bare pickle, without running anything of it.

    Raises:
        GraphFileError: it is damaged, or asks for something other than plain values.
    """
    _check_opcodes(data)
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    except GraphFileError:
        raise
    except Exception as error:  # a malformed pickle raises nearly anything: KeyError, IndexError, EOFError, ...
        raise GraphFileError(f"not a readable pickle: {error!r}") from error


@contextlib.contextmanager
def without_gc() -> Iterator[None]:
    """Switch the cyclic garbage collector off while many containers are made: it nearly doubles the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _PlainPickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> NoReturn:
        raise NotPlainError(type(obj).__name__)


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise GraphFileError(f"refused: the file asks for {module_name}.{global_name}")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise GraphFileError(f"refused: the file asks for an object by persistent id {pid!r:.60}")


def _digest(head: bytes, payload: bytes | memoryview) -> bytes:
    digest = hashlib.blake2b(head, digest_size=_DIGEST_BYTES)
    digest.update(payload)
    return digest.digest()


def _open_envelope(data: bytes) -> tuple[int, bytes]:
    if len(data) > MAX_BYTES + _OVERHEAD:
        raise GraphFileError(f"{len(data)} bytes; files above {MAX_BYTES} bytes are refused")
    if len(data) < _OVERHEAD:
        raise GraphFileError(f"truncated: {len(data)} bytes, the header alone has {_OVERHEAD}")
    magic, version, length = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise GraphFileError("not a graph file: the first bytes are not its mark")
    payload = data[_OVERHEAD:]
    if len(payload) != length:
        raise GraphFileError(f"truncated or overlong: {len(payload)} bytes of payload, {length} announced")
    if _digest(data[: _HEAD.size], payload) != data[_HEAD.size : _OVERHEAD]:
        raise GraphFileError("damaged: the checksum is wrong")
    return version, payload


# -- the opcodes that plain values need; pickletools describes them --

_STOP: Final = pickle.STOP[0]
_FIXED: Final = [0] * 256  # length of the opcode with its argument; 0: see the two tables below
for _op in (
    pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.EMPTY_DICT, pickle.EMPTY_LIST, pickle.EMPTY_TUPLE,
    pickle.MARK, pickle.APPEND, pickle.APPENDS, pickle.SETITEM, pickle.SETITEMS, pickle.TUPLE, pickle.TUPLE1,
    pickle.TUPLE2, pickle.TUPLE3, pickle.MEMOIZE,
):  # fmt: skip
    _FIXED[_op[0]] = 1
_FIXED[pickle.BININT1[0]] = _FIXED[pickle.BINGET[0]] = 2
_FIXED[pickle.BININT2[0]] = 3
_FIXED[pickle.BININT[0]] = _FIXED[pickle.LONG_BINGET[0]] = 5
_FIXED[pickle.BINFLOAT[0]] = _FIXED[pickle.FRAME[0]] = 9
_ASKS: Final = [0] * 256  # bytes in RAM that an opcode makes, of those that make more than they take
for _made, _bytes in (
    (pickle.EMPTY_DICT, 64), (pickle.EMPTY_LIST, 64), (pickle.SETITEM, 168), (pickle.SETITEMS, 168), (pickle.TUPLE, 56),
    (pickle.TUPLE1, 56), (pickle.TUPLE2, 64), (pickle.TUPLE3, 72), (pickle.MARK, 8), (pickle.MEMOIZE, 8),
    (pickle.NONE, 8), (pickle.NEWTRUE, 8), (pickle.NEWFALSE, 8), (pickle.EMPTY_TUPLE, 8), (pickle.BINGET, 8),
    (pickle.BININT1, 8), (pickle.BININT2, 32), (pickle.BININT, 32), (pickle.BINFLOAT, 32),
):  # fmt: skip
    _ASKS[_made[0]] = _bytes
_SHORT: Final = frozenset({pickle.SHORT_BINUNICODE[0], pickle.SHORT_BINBYTES[0], pickle.LONG1[0]})
_LONG: Final = {
    pickle.BINUNICODE[0]: 4,
    pickle.BINBYTES[0]: 4,
    pickle.LONG4[0]: 4,
    pickle.BINUNICODE8[0]: 8,
    pickle.BINBYTES8[0]: 8,
}


def _check_opcodes(data: bytes) -> None:
    """Raise GraphFileError if the pickle has an opcode that plain values do not need, or goes on after it."""
    fixed, short, asked, asks = _FIXED, _SHORT, 0, _ASKS
    if data[:2] != BEGINNING:
        raise GraphFileError(f"not a pickle of protocol {_PROTOCOL}")
    at = 2
    try:
        while True:
            op = data[at]
            if step := fixed[op]:
                at += step
                asked += asks[op]
            elif op in short:
                at += 2 + data[at + 1]
            elif op in _LONG:
                width = _LONG[op]
                at += 1 + width + int.from_bytes(data[at + 1 : at + 1 + width], "little")
            elif op == _STOP:
                break
            else:
                raise GraphFileError(f"refused: opcode {op:#04x} at byte {at} is not one of plain values")
    except IndexError:
        raise GraphFileError("truncated pickle") from None
    if asked > FREE + MULTIPLE * len(data):
        raise GraphFileError(f"refused: {len(data)} bytes that ask for {asked} in RAM")
    if at + 1 != len(data):
        raise GraphFileError(f"{len(data) - at - 1} bytes after the end of the pickle")


def _where_not_plain(value: Any) -> str:
    """Path and type of the first value that is not plain. Only walked when storing failed."""
    trail: list[tuple[str, Any]] = [("value", value)]
    seen: set[int] = set()
    while trail:
        path, at = trail.pop()
        if type(at) not in _PLAIN:
            kind = f"{type(at).__module__}.{type(at).__qualname__}"
            return f"{path} is a {kind}; only plain containers, text and numbers can be stored"
        if id(at) in seen:
            continue
        if type(at) is dict:
            seen.add(id(at))
            for key, item in at.items():
                trail.extend(((f"key {key!r:.60} of {path}", key), (f"{path}[{key!r:.60}]", item)))
        elif type(at) in (list, tuple):
            seen.add(id(at))
            trail.extend((f"{path}[{index}]", item) for index, item in enumerate(at))
    return "the value contains itself"
