"""The few writes the memory makes, each safe at any moment: replace a file, append to one, set one aside."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final

_BINARY: Final[int] = getattr(os, "O_BINARY", 0)  # Windows would translate line ends otherwise


def replace_file(path: Path, data: bytes, *, fsync: bool) -> None:
    """Give the file this content in one step: a reader or a crash finds the old bytes or the new, no mix.

    Raises:
        OSError: the old file is still there, untouched.
    """
    temporary = path.with_name(path.name + ".tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _BINARY, 0o666)
    try:
        _write_all(fd, data)
        if fsync:
            os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(temporary, path)  # noqa: PTH105 - the tests make this very call fail
    if fsync:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Ask the disk to remember renames in the folder. Where that is not possible, nothing can be done."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def free_names(folder: Path, stem: str) -> Iterator[Path]:
    """``<stem>.corrupt-1``, ``-2``, ... as far as nothing of that name exists."""
    for number in count(1):
        path = folder / f"{stem}.corrupt-{number}"
        if not path.exists():
            yield path


class AppendFile:
    """A file that only grows, and whose end is always that of the last complete write.

    A write that fails half-way is undone before the next one: the file is opened again and cut at `size`. How
    to get the file open is decided by ``start`` or ``resume`` and carried out by them, or by a later
    ``append`` if the disk did not let them.

    Attributes:
        size: bytes written completely.
    """

    def __init__(self, path: Path, *, fsync_start: bool, fsync_append: bool) -> None:
        self.path: Final = path
        self.size = 0
        self._fsync_start: Final = fsync_start
        self._fsync_append: Final = fsync_append
        self._fd: int | None = None
        self._content: bytes | None = None  # to replace the file by, before anything is appended

    def start(self, content: bytes) -> None:
        """Replace the file by this content and append after it. Raises OSError; ``append`` will try again."""
        self.close()
        self._content = content
        self._open()

    def resume(self, size: int) -> None:
        """Cut the existing file at `size` and append there. Raises OSError; ``append`` will try again."""
        self.close()
        self._content, self.size = None, size
        self._open()

    def append(self, data: bytes) -> None:
        """Write all of it. Raises OSError; then none of it counts."""
        if self._fd is None:
            self._open()
        assert self._fd is not None
        try:
            _write_all(self._fd, data)
            if self._fsync_append:
                os.fsync(self._fd)
        except BaseException:
            self.close()
            raise
        self.size += len(data)

    @property
    def there(self) -> bool:
        """Whether the file that is open still has a name; True if none is open."""
        return self._fd is None or os.fstat(self._fd).st_nlink > 0

    def close(self) -> None:
        """Close the file; a later ``append`` opens it again."""
        fd, self._fd = self._fd, None
        if fd is not None:
            with contextlib.suppress(OSError):
                os.close(fd)

    def __del__(self) -> None:
        """Close the file of an object that nobody closed."""
        self.close()

    def _open(self) -> None:
        if self._content is not None:
            replace_file(self.path, self._content, fsync=self._fsync_start)
            self.size = len(self._content)
            self._content = None
        fd = os.open(self.path, os.O_RDWR | _BINARY)
        try:
            if os.fstat(fd).st_size != self.size:
                os.ftruncate(fd, self.size)
            os.lseek(fd, 0, os.SEEK_END)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
