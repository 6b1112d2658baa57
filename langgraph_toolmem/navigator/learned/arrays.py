"""A file of arrays with a manifest, written whole or not at all: a model that is served without training again.

A checksum, then numpy's ``.npz`` without pickles: damage is found before anything is read, and a hostile file runs no
code.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.stores.snapshot import replace_file

FORMAT: Final = 1
MAX_BYTES: Final = 1 << 30
_MANIFEST: Final = "manifest"
_SUM: Final = 16

Array = npt.NDArray[Any]


def dumped(manifest: Mapping[str, Any], arrays: Mapping[str, Array]) -> bytes:
    """Return the bytes of a file; `manifest` holds JSON values."""
    said = json.dumps({**manifest, "format": FORMAT}).encode()
    file = io.BytesIO()
    kept: dict[str, Any] = {**arrays, _MANIFEST: np.frombuffer(said, dtype=np.uint8)}
    np.savez_compressed(file, **kept)
    data = file.getvalue()
    return _checksum(data) + data


def loaded(data: bytes, where: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return manifest and arrays. Raises StorageError if they are damaged or of a newer format."""
    if len(data) <= _SUM or _checksum(data[_SUM:]) != data[:_SUM]:
        raise StorageError(f"{where} is damaged: its checksum differs.")
    try:
        with np.load(io.BytesIO(data[_SUM:]), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        manifest = json.loads(arrays.pop(_MANIFEST).tobytes())
        form = int(manifest.pop("format"))
    except Exception as error:  # a strange file with a right checksum: zip and numpy raise anything
        raise StorageError(f"{where} cannot be read: {error}") from error
    if form > FORMAT:
        raise StorageError(f"{where} has format {form}; this version reads up to {FORMAT}. Update langgraph-toolmem.")
    return manifest, arrays


def save_arrays(path: Path, data: bytes) -> None:
    """Replace a file. Raises StorageError if the folder cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data, fsync=True)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error}. Check space and permissions.") from error


def read_arrays(path: Path) -> bytes | None:
    """Return the bytes of a file, if it exists. Raises StorageError if it is unreadable or too large."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise StorageError(f"{path} is larger than {MAX_BYTES:,} bytes; it is not read.")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error}. Check its permissions.") from error


def _checksum(data: bytes) -> bytes:
    return blake2b(data, digest_size=_SUM).digest()
