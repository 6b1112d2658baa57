"""The connection to Chroma: opened at first use, one writing process per folder, errors in plain words.

- `ChromaConnection.client` opens Chroma. Importing it takes about a second.
- All connections of a process to one folder share one client. It is closed and opened again when too many collections
  are in use, when deleted rows are cleared from the disk, and when another process has written.
- Embedded Chroma takes one writing process. The first write takes ``chroma.lock``; the process holds it until the last
  connection to the folder is closed. Other processes read.
- A process that is forked while Chroma is open cannot use it, since Chroma's threads are gone there.
"""

from __future__ import annotations

import ctypes
import gc
import inspect
import itertools
import logging
import os
import sqlite3
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet, WeakValueDictionary

import filelock

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import ConfigurationError, MissingExtraError, StorageError, ToolMemoryError
from langgraph_toolmem.stores.remote import Remote, RemoteClient, is_remote

DATABASE: Final = "chroma.sqlite3"
LOCK: Final = "chroma.lock"
LONGEST_NAME: Final = 60  # characters, and some to spare below 63, the limit of older servers
MAX_IN_USE: Final = 64
"""Collections that Chroma may keep open. Its own limit is a fifth of the process's file limit, with four files and some
megabytes each: too much for a host with many users."""
REFRESH_SECONDS: Final = 30.0
"""Interval at which a reading process looks for changes by other processes."""
AT_ONCE: Final = 500  # rows deleted at once
MAX_ROWS: Final = 4_096
"""Rows in RAM, of all kinds and users of a folder."""
_FINAL, _DRAFT, _REPLACED = ".v2", ".new", ".old"  # ends of collection names
_HEADER: Final = struct.Struct("<i4Q")  # of an index: version, start, capacity, rows, bytes of a row

logger = logging.getLogger("langgraph_toolmem.stores.chroma")

_numbers = itertools.count(1)
_begun_in: list[int] = []
"""The process that opened Chroma first. Its threads serve all folders and do not survive a fork."""


def collection_name(prefix: str, kind: str, namespace: tuple[str, ...]) -> str:
    """Return a name that Chroma accepts, different for every kind and namespace.

    Letters and digits stay, any other byte is written ``-xx``. A name that would be too long is a digest.

    >>> collection_name("tm", "tools", ("toolmem", "a@b"))
    'tm.tools.toolmem.a-40b.v2'
    """
    name = ".".join([prefix, *(_escape(part) for part in (kind, *namespace))]) + _FINAL
    if len(name) <= LONGEST_NAME:
        return name
    return f"{prefix}-h.{blake2b(name.encode(), digest_size=20).hexdigest()}{_FINAL}"


def _escape(part: str) -> str:
    written = "".join(
        chr(byte) if chr(byte).isalnum() and byte < 128 else f"-{byte:02x}"
        for byte in part.encode("utf-8", "surrogatepass")
    )
    return written or "-"  # no escape is a single dash, so an empty part is distinct


def draft_name(name: str) -> str:
    """Return the name under which a collection is rebuilt."""
    return name.removesuffix(_FINAL) + _DRAFT


def replaced_name(name: str) -> str:
    """Return the name of a collection that another replaced, until it is deleted."""
    return name.removesuffix(_FINAL) + _REPLACED


def final_name(name: str) -> str | None:
    """Return the name that a collection has after its rebuilding; None for one that was replaced."""
    return None if name.endswith(_REPLACED) else name.removesuffix(_DRAFT).removesuffix(_FINAL) + _FINAL


def is_not_found(error: BaseException | None) -> bool:
    """Return True if Chroma says that a collection does not exist, else False."""
    from chromadb.errors import NotFoundError

    return isinstance(error, NotFoundError)


def delete_collection(client: Any, name: str) -> None:
    """Delete a collection if it exists, its rows first.

    Chroma 1.5 keeps the list-valued metadata of a collection that is deleted with rows in it, and gives that metadata
    to rows that are added later to any collection.
    """
    try:
        collection = client.get_collection(name, embedding_function=None)
        while ids := collection.get(limit=AT_ONCE, include=[])["ids"]:
            collection.delete(ids=ids)
        client.delete_collection(name)
    except Exception as error:
        if not is_not_found(error):
            raise


class Gate:
    """A lock that many threads share, or one has alone. A thread that has passed may pass again."""

    def __init__(self) -> None:
        self._changed = threads.condition()
        self.forked()
        threads.at_fork(self)

    def forked(self) -> None:
        """Reset the gate in a forked process."""
        self._inside, self._is_closed, self._here = 0, False, threading.local()

    @property
    def is_inside(self) -> bool:
        """Return True if this thread has passed, else False."""
        return bool(getattr(self._here, "depth", 0))

    @contextmanager
    def passed(self) -> Iterator[None]:
        """Share the gate; wait for a thread that has it alone."""
        depth = getattr(self._here, "depth", 0)
        with self._changed:
            self._changed.wait_for(lambda: depth or not self._is_closed)
            self._inside += 1
        self._here.depth = depth + 1
        try:
            yield
        finally:
            self._here.depth = depth
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Have the gate alone; wait for the threads inside. A thread that has passed must not call this."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_closed)
            self._is_closed = True
            self._changed.wait_for(lambda: not self._inside)
        try:
            yield
        finally:
            with self._changed:
                self._is_closed = False
                self._changed.notify_all()


class RowCache:
    """Rows that were read last, as their reader made them: part and item by collection and id."""

    def __init__(self) -> None:
        self._lock = threads.lock()
        self._rows: OrderedDict[tuple[str, str], tuple[str, Any]] = OrderedDict()
        self._state: object = None
        self._changes = 0

    def known(self, name: str, ids: Iterable[str], state: object) -> tuple[int, dict[str, tuple[str, Any]]]:
        """Return a number for `keep`, and the rows with these ids that are here.

        `state`: of the files (`ChromaConnection.state`). If it is another one, all rows are dropped.
        """
        with self._lock:
            if state != self._state:
                self._clear()
                self._state = state
            found = {key: row for key in ids if (row := self._rows.get((name, key))) is not None}
            for key in found:
                self._rows.move_to_end((name, key))
            return self._changes, found

    def keep(self, name: str, rows: Mapping[str, tuple[str, Any]], changes: int) -> None:
        """Keep rows, unless something was written since `known` gave that number."""
        with self._lock:
            if changes == self._changes:
                self._rows.update(((name, key), row) for key, row in rows.items())
                while len(self._rows) > MAX_ROWS:
                    self._rows.popitem(last=False)

    def drop(self, name: str = "", ids: Iterable[str] | None = None) -> None:
        """Drop rows that were written, or all."""
        with self._lock:
            if ids is None:
                self._clear()
            self._changes += 1
            for key in ids or ():
                self._rows.pop((name, key), None)

    def _clear(self) -> None:
        self._rows.clear()
        self._changes += 1


class _Shared:
    """The client that all connections of this process to one folder share, and the right to write."""

    def __init__(self) -> None:
        self.client: Any = None
        self.users: WeakSet[ChromaConnection] = WeakSet()
        self.gate, self.lock = Gate(), threads.rlock()
        self.writer: filelock.BaseFileLock | None = None
        self.in_use: set[str] = set()
        self.state: object = None  # of the database file, when this process looked at it last
        self.looked = 0.0  # by time.monotonic
        self.rows = RowCache()
        threads.at_fork(self)

    def forked(self) -> None:
        """Leave lock and client to the parent process.

        The client must never be freed here: Chroma would wait for threads of the parent, and the child never end.
        """
        for each in (self.writer, self.client):
            if each is not None:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
        self.writer = None


_folders: WeakValueDictionary[str, _Shared] = WeakValueDictionary()
_folders_lock = threads.lock()


class ChromaConnection:
    """One Chroma: embedded in a folder, in memory, or a given client.

    Args:
        folder: holds the embedded database; made if needed. None: in memory.
        client: a synchronous chromadb client to use instead. It is never closed here.
        read_only: never write.
        limits: for calls to a server (`Remote`).

    Raises:
        ConfigurationError: the client is an asynchronous one.
    """

    def __init__(
        self, folder: Path | None, client: Any | None = None, *, read_only: bool = False, **limits: float
    ) -> None:
        if inspect.isawaitable(client) or inspect.iscoroutinefunction(getattr(client, "get_collection", None)):
            raise ConfigurationError(
                "`chroma` cannot be an AsyncHttpClient. Give chromadb.HttpClient(...); "
                "the memory's async methods call it in threads."
            )
        self.folder = folder
        self.given = client
        self.ephemeral = folder is None and client is None
        # All in-memory clients of a process see one database: a number keeps their collections apart.
        self.prefix = f"tm{next(_numbers)}" if self.ephemeral else "tm"
        self.remote = Remote(self.where, **limits) if client is not None and is_remote(client) else None
        self.read_only = read_only
        self.problems: list[str] = []
        """Damage that was found, one sentence each, for a person."""
        self._closed = False
        self._process = 0  # that used a given client first
        with _folders_lock:
            key = f"#{next(_numbers)}" if folder is None else os.path.realpath(folder)
            self._shared = _folders.setdefault(key, _Shared())
            self._shared.users.add(self)

    @property
    def where(self) -> str:
        """The place, for error messages."""
        if self.given is not None:
            return f"Chroma ({type(self.given).__name__} given by the application)"
        return "Chroma in memory" if self.folder is None else f"Chroma in {self.folder}"

    @property
    def empty(self) -> bool:
        """True if nothing can be stored here yet, so that a question need not open Chroma."""
        if self._shared.client is not None or self._closed or self.given is not None:
            return False
        return self.folder is None or not os.access(self.folder, os.F_OK)  # one that cannot be seen raises nothing

    @property
    def shared(self) -> bool:
        """True if other processes may write now."""
        return self.given is not None or (self.folder is not None and self._shared.writer is None)

    @property
    def rows(self) -> RowCache:
        """Rows in RAM; valid while no other process writes (`state`)."""
        return self._shared.rows

    def state(self) -> object:
        """Return another value after every write by another process to the folder."""
        return None if self.folder is None or self._shared.writer is not None else _state(self.folder)

    def owns(self, name: str) -> bool:
        """Return True if a collection of that name may be this memory's (its label decides), else False."""
        return name.startswith((f"{self.prefix}.", f"{self.prefix}-h."))

    # --- opening and closing ---

    def client(self) -> Any:
        """Return the client, and open it if it is not open.

        Raises:
            StorageError: the connection is closed, Chroma cannot be opened, or was opened before a fork.
        """
        self._check()
        shared = self._shared
        if shared.client is None:
            with shared.lock:
                if shared.client is None:
                    shared.client = self._opened()
        return shared.client

    def _check(self) -> None:
        if self._closed:
            raise StorageError(f"{self.where} is closed. Make a new memory to go on.")
        if self._forked():
            raise StorageError(
                f"{self.where}: Chroma was in use before this process was forked and cannot be used in the child. "
                "Make and use memories after the fork only, or share one server: `chroma run` and "
                "chroma=chromadb.HttpClient(...)."
            )

    def _forked(self) -> bool:
        begun = _begun_in[0] if _begun_in and self.given is None else self._process
        return begun not in (0, os.getpid())

    def _opened(self) -> Any:
        self._process = os.getpid()
        if self.given is not None:
            return self.given if self.remote is None else RemoteClient(self.given, self.remote)
        with self._translated("open"):  # not through the gate: who closes it waits for this lock
            try:
                import chromadb
                from chromadb.api.shared_system_client import SharedSystemClient
                from chromadb.config import Settings
            except ImportError as error:
                raise MissingExtraError("Text that is searched by meaning", "memory") from error
            if not _begun_in:
                _begun_in.append(self._process)
            settings = Settings(anonymized_telemetry=False)  # a fresh one each time: Chroma changes it
            if self.folder is None:
                return chromadb.EphemeralClient(settings=settings)
            self.folder.mkdir(parents=True, exist_ok=True)
            self._quarantine(self.folder)
            self._shared.state, self._shared.looked = _state(self.folder), time.monotonic()
            try:
                return chromadb.PersistentClient(path=self.folder, settings=settings)
            except BaseException:
                if all(each.client is None for each in list(_folders.values())):
                    SharedSystemClient.clear_system_cache()  # else Chroma keeps what it could not open
                raise

    def _quarantine(self, folder: Path) -> None:
        """Rename a folder whose database is none, and begin an empty one."""
        try:
            with closing(sqlite3.connect((folder / DATABASE).absolute().as_uri() + "?mode=ro", uri=True)) as database:
                database.execute("SELECT count(*) FROM sqlite_master")
        except sqlite3.OperationalError:
            return  # there is none yet, or it is locked
        except sqlite3.DatabaseError as error:
            if self.read_only:
                raise
            self._take_lock()
            aside = free_name(folder)
            folder.rename(aside)
            folder.mkdir()
            self.problems.append(f"{DATABASE} was damaged ({error}); its folder was renamed to {aside.name}")
            logger.warning("%s: %s", self.where, self.problems[-1])

    def close(self) -> None:
        """Release files, threads and what is only in memory; a given client stays open. Twice is harmless."""
        shared = self._shared
        self._closed = True
        with shared.lock:
            shared.users.discard(self)
            if self._forked():
                return
            if shared.users:
                if all(each.read_only for each in shared.users):
                    self._release()
                return
            if shared.client is not None and self.ephemeral:
                for name in shared.in_use:
                    with suppress(Exception):  # it may be gone already
                        delete_collection(shared.client, name)
        try:
            self._let_go()
        finally:
            self._release()

    def _release(self) -> None:
        writer, self._shared.writer = self._shared.writer, None
        if writer is not None:
            with suppress(OSError):
                writer.release()

    def _let_go(self, *, vacuum: bool = False) -> None:
        """Close the client; the next call opens it again."""
        shared = self._shared
        if shared.gate.is_inside:
            return
        with shared.gate.closed(), shared.lock, self._translated("close"):
            client, shared.client = shared.client, None
            shared.in_use.clear()
            if client is None or self.given is not None:
                return
            if (close := getattr(client, "close", None)) is not None:  # missing in the oldest chromadb supported
                close()
            if self.folder is None or shared.writer is None or not self.folder.exists():
                return
            if vacuum:
                del client, close
                gc.collect()  # an unreferenced part of Chroma may still write its files
                with closing(sqlite3.connect(self.folder / DATABASE, isolation_level=None)) as database:
                    database.execute("VACUUM")
            _blank_unused_rows(self.folder)

    # --- reading and writing ---

    def may_write(self) -> bool:
        """Return True if this process holds the right to write or could take it now, else False."""
        if self.read_only or self._closed or self._forked():
            return False
        with self._shared.lock:
            if self.given is not None or self.folder is None or self._shared.writer is not None:
                return True
            try:
                self._take_lock()
            except StorageError:
                return False
            self._release()
        return True

    def begin_write(self) -> None:
        """Take the right to write, and keep it until `close`.

        Raises:
            StorageError: another process writes, or this connection is read-only.
        """
        self._check()
        if self.read_only:
            raise StorageError(f"{self.where} is open read-only.")
        shared = self._shared
        if self.given is not None or self.folder is None or shared.writer is not None:
            return
        with shared.lock:
            self._take_lock()
            stale = shared.client is not None and shared.state != _state(self.folder)
        if stale:
            self._let_go()

    def _take_lock(self) -> None:
        if self.folder is None or self._shared.writer is not None:
            return
        lock = filelock.FileLock(self.folder.parent / LOCK, thread_local=False)
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0.1, poll_interval=0.02)  # `may_write` of another process holds it for a moment
        except filelock.Timeout:
            raise StorageError(
                f"{self.where}: another process writes there. Its texts can be read; to write from several processes, "
                "share one server: `chroma run` and chroma=chromadb.HttpClient(...)."
            ) from None
        except (OSError, NotImplementedError) as error:
            raise StorageError(f"{self.where}: {self.folder.parent / LOCK} cannot be locked: {error}") from error
        self._shared.writer = lock

    def use(self, name: str) -> None:
        """Note that a collection is open; see `relieve`."""
        self._shared.in_use.add(name)

    def relieve(self) -> None:
        """Close the embedded database if too many collections are open, or another process has written to it."""
        shared = self._shared
        if self.folder is None or shared.client is None or shared.gate.is_inside or self._forked():
            return
        stale = len(shared.in_use) > MAX_IN_USE
        if shared.writer is None and time.monotonic() - shared.looked >= REFRESH_SECONDS:
            shared.looked = time.monotonic()
            stale = stale or shared.state != _state(self.folder)
        if stale:
            self._let_go()

    def vacuum(self) -> None:
        """Overwrite what was deleted from the embedded database. Chroma is closed for that.

        Raises:
            StorageError: another process writes, or the file cannot be rewritten.
        """
        if self.folder is not None and self.folder.exists():
            self.begin_write()
            self.client()  # raises in a forked process and after `close`
            self._let_go(vacuum=True)

    @contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Translate what Chroma raises inside to a `StorageError` that says where and what to do.

        All work with Chroma is done inside, so that `vacuum` can wait for it.
        """
        with self._shared.gate.passed(), self._translated(doing):
            yield

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        try:
            with threads.native():
                yield
        except ToolMemoryError:
            raise
        except BaseException as error:
            # A panic in Chroma's Rust part is a BaseException, yet nobody asked the program to stop.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            lines = str(error).strip().splitlines() or [""]
            raise StorageError(
                f"{self.where}: could not {doing}: {type(error).__name__}: {lines[0]}. {self._advice()}"
            ) from error

    def _advice(self) -> str:
        if self.given is not None:
            return "Check that the server runs and that the client's host, port, tenant and database are right."
        if self.folder is None:
            return "Nothing on disk is affected."
        return (
            "Check that the folder can be read and written. If files are damaged: "
            f"`toolmem doctor --memory {self.folder.parent} --rebuild`."
        )


def free_name(folder: Path) -> Path:
    """Return a name for a damaged folder, next to it, that is not taken."""
    names = (folder.with_name(f"{folder.name}.corrupt-{n}") for n in itertools.count(1))
    return next(name for name in names if not name.exists())


def _state(folder: Path) -> object:
    found = []
    for name in (DATABASE, f"{DATABASE}-wal"):
        with suppress(OSError):
            stat = (folder / name).stat()
            found.append((stat.st_size, stat.st_mtime_ns, stat.st_ino))
    return found


def _blank_unused_rows(folder: Path) -> None:
    """Overwrite the room for later rows in the files of indexes. Chroma is closed.

    hnswlib writes this room uncleared: it holds pieces of the process's memory, forgotten texts among them (measured:
    in 12 of 60 new indexes).
    """
    for header in folder.glob("*/header.bin"):
        data = header.read_bytes()
        _, _, capacity, rows, width = _HEADER.unpack(data.ljust(_HEADER.size, b"\0")[: _HEADER.size])
        for name, size in (("data_level0.bin", width), ("length.bin", 4)):
            file = header.with_name(name)
            if rows <= capacity and file.exists() and file.stat().st_size == capacity * size:
                os.truncate(file, rows * size)
                os.truncate(file, capacity * size)
