"""Access to Chroma: opening and closing, the right to write, processes and forks; names and labels of collections.

**Processes.** Embedded Chroma supports one writing process. The first write locks ``chroma.lock`` until the process's
last store on the folder is closed. Other processes read. A process's stores on one folder share a client. It is closed
and opened again when too many collections are open, when deleted rows are cleared from the disk, and when another
process has written. A process that is forked while Chroma is open cannot use it, because Chroma's threads are missing.

**Collections.** One per kind ("tools", "entries", ...) and namespace, so that users are kept apart. Each carries a
`CollectionLabel` that names the embedder of its vectors: those of two embedders cannot be compared. To rewrite one
(`VectorStore.scrub`), so that a crash loses nothing: write ``name.new``, rename ``name.v2`` to ``name.old``, rename
``name.new`` to ``name.v2``, delete ``name.old``. A ``name.new`` next to ``name.v2`` is unfinished; without ``name.v2``
it is complete and only needs renaming.
"""

from __future__ import annotations

import ctypes
import gc
import inspect
import itertools
import json
import logging
import math
import os
import re
import sqlite3
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakSet, WeakValueDictionary

import filelock

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.caches import put_latest
from langgraph_toolmem.base.errors import (
    ConfigurationError,
    EmbedderChangedError,
    MissingExtraError,
    StorageError,
    ToolMemoryError,
)
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.stores.database import opened_readonly
from langgraph_toolmem.stores.remote import Remote, RemoteClient, is_remote
from langgraph_toolmem.stores.snapshot import free_name

if TYPE_CHECKING:
    from langgraph_toolmem.stores.row_table import IndexProgress
    from langgraph_toolmem.text.embedders import Embedder


DATABASE: Final = "chroma.sqlite3"
LOCK_ADVICE: Final = "Delete it if it is a folder or of another user, and put the memory on a disk that knows locks."


@dataclass(frozen=True, slots=True)
class ChromaLimits:
    """Waits and sizes of the work with Chroma.

    Attributes:
        lock_seconds: wait for the right to write; a process that checks the lock takes it briefly.
        look_seconds: wait for the right to write, if a process only checks whether it is free.
        busy_seconds: wait for another process that writes to the files of Chroma, or opens them.
        reopen_seconds: a process that reads opens Chroma again at most this often.
        open_collections: collections that Chroma may keep open. Its own limit is a fifth of the process's file limit,
            with four files and some megabytes each: too much for a host with many users.
        cached_items: items in RAM, of all kinds and users of a folder.
        batch: rows per call. Chroma takes 5461, a server's limit on the size of a request may be lower.
        page: rows, or collections, that are read or deleted at once.
    """

    lock_seconds: float = 0.1
    look_seconds: float = 0.02
    busy_seconds: float = 2.0
    reopen_seconds: float = 1.0
    open_collections: int = 64
    cached_items: int = 4_096
    batch: int = 1000
    page: int = 500


CHROMA_LIMITS: Final = ChromaLimits()

logger = logging.getLogger(__name__)

_numbers = itertools.count(1)
_begun_in: set[int] = set()
"""The process that opened an embedded Chroma. Chroma's threads serve all folders and do not survive a fork."""


def is_failure_of_chroma(error: StorageError) -> bool:
    """Return True for a failure of Chroma, False for one of an embedder, another file or the caller."""
    return type(error.__cause__).__module__.startswith(("chromadb", "pyo3"))


def delete_collection(client: Any, name: str) -> None:
    """Delete a collection if it exists; its rows first: otherwise Chroma 1.5 gives their lists of metadata to later
    rows.
    """
    try:
        collection = client.get_collection(name, embedding_function=None)
        while ids := collection.get(limit=CHROMA_LIMITS.page, include=[])["ids"]:
            collection.delete(ids=ids)
        client.delete_collection(name)
    except Exception as error:
        if not is_not_found(error):
            raise


@dataclass(frozen=True, slots=True)
class CachedItem:
    """An item made from a row, and the number of the row's write."""

    number: int
    item: Any


class ItemCache:
    """Items of rows that were read last, by collection and id. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threads.lock()
        self._items: OrderedDict[tuple[str, str], CachedItem] = OrderedDict()

    def known(self, name: str, numbers: Mapping[str, int]) -> dict[str, Any]:
        """Return the items of unchanged rows, by id; `numbers`: of their latest writes."""
        items: dict[str, Any] = {}
        with self._lock:
            for key, number in numbers.items():
                cached = self._items.get((name, key))
                if cached is not None and cached.number == number:
                    items[key] = cached.item
                    self._items.move_to_end((name, key))
        return items

    def keep(self, name: str, key: str, number: int, item: Any) -> None:
        with self._lock:
            put_latest(self._items, (name, key), CachedItem(number, item), CHROMA_LIMITS.cached_items)

    def forget(self) -> None:
        """Drop all items."""
        with self._lock:
            self._items.clear()

    def drop(self, name: str) -> None:
        """Drop the items of a collection."""
        with self._lock:
            for place in list(self._items):
                if place[0] == name:
                    del self._items[place]


@dataclass(frozen=True, slots=True)
class OpenCollection:
    """A collection of the open client, and its label."""

    collection: Any
    label: CollectionLabel


class SharedClient:
    """The client that all stores of this process on one folder share, its collections, and the right to write.

    Attributes:
        client: of Chroma, None while it is closed.
        process: that opened the client.
        collections: open collections, by name.
        uses: an event per store, set when the store is closed.
        inside: number of threads that use the client, so that it is not closed.
        writer: the right to write, while this process owns it.
        is_new_writer: this process took it since `take_over` was asked last.
        state: writes of all indexes when this process opened the client (`RowTable.turns`).
        opened: when the client was opened, by ``time.monotonic``.
        seen: states of indexes when their collections were opened, by name.
        counted: collections whose texts this process counted.
        indexing: locked during a change of an index.
        gate: locked around `busy`.
    """

    def __init__(self) -> None:
        self.client: Any = None
        self.process = 0
        self.collections: dict[str, OpenCollection] = {}
        self.uses: WeakSet[threading.Event] = WeakSet()
        self.lock = threads.rlock()
        self.changed = threads.condition()
        self.inside: set[int] = set()
        self.closing = False
        self.writer: filelock.BaseFileLock | None = None
        self.is_new_writer = False
        self.state = 0
        self.opened = -math.inf
        self.seen: dict[str, IndexProgress] = {}
        self.items = ItemCache()
        self.counted: set[str] = set()
        self.indexing = threads.rlock()
        self.gate = threads.rlock()
        self.busy: filelock.BaseFileLock | None = None
        threads.at_fork(self)

    def forked(self) -> None:
        # The client must never be freed here: Chroma would wait for threads of the parent, and the child would never
        # end.
        for inherited in (self.writer, self.busy, self.client):
            if inherited is not None:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))
        self.writer = None
        self.busy = None
        self.inside = set()
        self.closing = False


_clients: WeakValueDictionary[str, SharedClient] = WeakValueDictionary()
_clients_lock = threads.lock()


def no_turns() -> int:
    """Return 0: writes of other processes are not counted."""
    return 0


class ChromaAccess:
    """A store's access to Chroma, opened at first use. Safe to use from several threads.

    Args:
        folder: the memory's folder. None without a client means in memory, where two stores share nothing.
        client: a synchronous chromadb client (``HttpClient``) instead of the embedded Chroma; it is never closed here.
        read_only: If True, do not write.
        turns: returns how often any process wrote to the embedded Chroma.
        problems: takes damage that is found. Defaults to a list of its own.

    Attributes:
        given: True if the client was given: other processes may write to the same Chroma.
        folder: of the embedded Chroma on disk.
        where: name of this Chroma in messages.
        problems: damage, one sentence each, for a person.
        remote: the server, if the client belongs to one.
        prefix: beginning of the names of this memory's collections.
        closed: set by `close`.
        shared: the client with its state.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        client: Any | None = None,
        read_only: bool = False,
        turns: Callable[[], int] = no_turns,
        problems: list[str] | None = None,
    ) -> None:
        if inspect.isawaitable(client) or inspect.iscoroutinefunction(getattr(client, "get_collection", None)):
            raise ConfigurationError(
                "`chroma` cannot be an AsyncHttpClient. Give chromadb.HttpClient(...); "
                "the memory's async methods call it in threads."
            )
        self.read_only = read_only
        if problems is None:
            problems = []
        self.problems = problems
        self.given = client is not None
        self._given_client = client
        self._turns = turns
        self.folder: Path | None = None
        if folder is not None and not self.given:
            self.folder = folder / "chroma"
        self.where, self._advice = _in_words(folder, client)
        self.remote: Remote | None = None
        if self.given and is_remote(client):
            self.remote = Remote(self.where)
        self.prefix = "tm"
        if self._in_memory:
            # All in-memory clients of a process see one database: a number keeps their collections apart.
            self.prefix = f"tm{next(_numbers)}"
        self.closed = threading.Event()
        self.shared = self._share()

    def _share(self) -> SharedClient:
        """Return the client that this store shares with others of the process on its folder, or its own."""
        place = f"#{next(_numbers)}"
        if self.folder is not None:
            place = os.path.realpath(self.folder)
        with _clients_lock:
            shared = _clients.setdefault(place, SharedClient())
            shared.uses.add(self.closed)
        return shared

    @property
    def _in_memory(self) -> bool:
        return self.folder is None and not self.given

    @property
    def others_may_write(self) -> bool:
        """True if other processes may write to the same Chroma now."""
        return self.given or (self.folder is not None and self.shared.writer is None)

    @property
    def empty(self) -> bool:
        """True if the store must be empty, so that a search need not open Chroma."""
        if self.shared.client is not None or self.closed.is_set() or self.given:
            return False
        return self.folder is None or not os.access(self.folder, os.F_OK)  # a folder that cannot be read does not raise

    def say(self, problem: str) -> None:
        """Report damage, once."""
        if problem not in self.problems:
            self.problems.append(problem)
            logger.warning("%s: %s", self.where, problem)

    # --- opening ---

    @contextmanager
    def opened(self, doing: str) -> Iterator[Any]:
        """Yield the client, opened at first use. It is not closed inside; errors name the place and a remedy."""
        self.refuse_if_closed()
        shared = self.shared
        if self.folder is not None and shared.client is not None:
            if len(shared.collections) > CHROMA_LIMITS.open_collections:
                self.close_client()
        with self._inside():
            self._open_client()
            with self._translated(doing):
                yield shared.client

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """Keep the client from being closed by another thread."""
        shared, thread = self.shared, threading.get_ident()
        with shared.changed:
            nested = thread in shared.inside  # in a finalizer or a signal handler
            while shared.closing and not nested:
                shared.changed.wait()
            shared.inside.add(thread)
        try:
            yield
        finally:
            if not nested:
                with shared.changed:
                    shared.inside.discard(thread)
                    shared.changed.notify_all()

    def _open_client(self) -> None:
        """Open the client unless it is open; the thread is inside."""
        shared = self.shared
        if shared.client is None:
            with shared.lock, self._translated("open"):
                # Another thread may have opened it while this one waited for the lock.
                if shared.client is None:
                    shared.client = self._open()

    def refuse_if_closed(self) -> None:
        """Raise StorageError if the store was closed, or Chroma was opened before a fork."""
        if self.closed.is_set():
            raise StorageError(f"{self.where} is closed. Make a new memory to go on.")
        if self.is_forked():
            raise StorageError(
                f"{self.where}: Chroma was in use before this process was forked and cannot be used in the child. "
                "Make and use memories after the fork only, or share one server: `chroma run` and "
                "chroma=chromadb.HttpClient(...)."
            )

    def is_forked(self) -> bool:
        """Return True if a parent process opened Chroma."""
        # An embedded Chroma of any folder counts: its threads serve all of them.
        begun = self.shared.process if self.given else next(iter(_begun_in), 0)
        return begun not in (0, os.getpid())

    def _open(self) -> Any:
        shared = self.shared
        shared.process = os.getpid()
        if self.given and self.remote is None:
            return self._given_client
        if self.remote is not None:
            return RemoteClient(self._given_client, self.remote)
        try:
            import chromadb
            from chromadb.api.shared_system_client import SharedSystemClient
            from chromadb.config import Settings
        except ImportError as error:
            raise MissingExtraError("Text that is searched by meaning", "memory") from error
        _begun_in.add(shared.process)
        if self.folder is None:
            # A process has one Chroma in memory, and refuses a second client with other settings. So the settings are
            # those of the host's client, or the defaults, with which the host's own client opens later.
            shared_systems: Mapping[str, Any] = getattr(SharedSystemClient, "_identifier_to_system", {})
            in_memory = shared_systems.get("ephemeral")
            return chromadb.EphemeralClient(settings=Settings() if in_memory is None else in_memory.settings)
        return self._open_folder(self.folder)

    def _open_folder(self, folder: Path) -> Any:
        """Return a new client on a folder; a damaged one is renamed first."""
        import chromadb
        from chromadb.api.shared_system_client import SharedSystemClient

        settings = _settings().model_copy()  # Chroma changes it
        folder.mkdir(parents=True, exist_ok=True)
        self._quarantine(folder)
        # Counted before the files are read: writes meanwhile are noticed later.
        self.shared.state = self._turns()
        self.shared.opened = time.monotonic()
        try:
            with self.alone():
                return chromadb.PersistentClient(path=folder, settings=settings)
        except BaseException:
            if all(each.client is None for each in list(_clients.values())):
                SharedSystemClient.clear_system_cache()  # otherwise Chroma keeps the files that it could not open
            raise

    def _quarantine(self, folder: Path) -> None:
        """Rename a folder without a valid database, and begin an empty one."""
        try:
            with closing(opened_readonly(folder / DATABASE)) as database:
                database.execute("SELECT count(*) FROM sqlite_master")
        except sqlite3.OperationalError:
            return  # the file does not exist yet, or is locked
        except sqlite3.DatabaseError as error:
            if self.read_only:
                raise
            self._take_lock(CHROMA_LIMITS.lock_seconds)
            aside = free_name(folder)
            folder.rename(aside)
            folder.mkdir()
            self.say(f"{DATABASE} was damaged ({error}); its folder was renamed to {aside.name}")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep files of the embedded Chroma from being opened here while another process writes them, and vice versa.

        The thread is inside (`opened`), or no thread is.

        Raises:
            StorageError: another process writes them for longer than `ChromaLimits.busy_seconds`.
        """
        shared = self.shared
        with shared.gate:
            path = None if self.folder is None else self.folder.parent / "chroma.busy"
            if path is None or (self.read_only and not path.exists()):
                yield
                return
            if shared.busy is None:
                shared.busy = filelock.FileLock(path, thread_local=False)
            lock = shared.busy
            try:
                lock.acquire(timeout=CHROMA_LIMITS.busy_seconds, poll_interval=0.005)
            except filelock.Timeout:
                raise StorageError(f"{self.where} is being written by another process; ask again.") from None
            except (OSError, NotImplementedError):  # the folder cannot be written by any process
                yield
                return
            try:
                yield
            finally:
                lock.release()

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        try:
            with threads.native():
                yield
        except ToolMemoryError:
            raise
        except BaseException as error:
            # A panic in Chroma's Rust part is a BaseException, but not a request to stop the program.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            # The first line: the backtrace of a panic follows it.
            message = str(error).strip().partition("\n")[0]
            raise StorageError(
                f"{self.where}: could not {doing}: {type(error).__name__}: {message}. {self._advice}"
            ) from error

    # --- closing ---

    def close(self) -> None:
        """Close Chroma; texts in memory are lost. Calling it twice is harmless; a given client stays open."""
        shared = self.shared
        self.closed.set()
        with shared.lock:
            shared.uses.discard(self.closed)
            if shared.uses or self.is_forked():
                return
            if shared.client is not None and self._in_memory:
                # All in-memory clients of the process share one database, which stays.
                for name in shared.collections:
                    with suppress(Exception):  # it may be deleted already
                        delete_collection(shared.client, name)
        try:
            self.close_client()
        finally:
            self._release()

    def close_client(self, *, vacuum: bool = False) -> None:
        """Close the client when no thread is inside; the next call opens it again."""
        if self.is_forked():
            return  # closing would wait for threads of the parent
        if not self._begin_closing():
            return
        shared = self.shared
        try:
            with shared.lock, self._translated("close"):
                client, shared.client = shared.client, None
                shared.collections.clear()
                shared.seen.clear()
                if client is None or self.given:
                    return
                if not self.is_writing() or self.folder is None or not self.folder.exists():
                    _close(client)
                    return
                with self.alone():
                    _close(client)
                    del client  # its files are cleaned, so nothing of it may be left that writes them
                    _clean(self.folder, vacuum=vacuum)
        finally:
            with shared.changed:
                shared.closing = False
                shared.changed.notify_all()

    def _begin_closing(self) -> bool:
        """Keep threads out of the client and wait for those inside; return False if this thread is one of them."""
        shared = self.shared
        with shared.changed:
            if threading.get_ident() in shared.inside:
                return False
            while shared.closing:
                shared.changed.wait()
            shared.closing = True
            while shared.inside:
                shared.changed.wait()
        return True

    # --- the right to write ---

    def may_write(self) -> bool:
        """Return True if this process writes to the folder (until it closes it), or could begin to write now."""
        if self.read_only or self.closed.is_set() or self.is_forked():
            return False
        with self.shared.lock:
            if self.given or not self.others_may_write:
                return True
            # Taken and given back: a file lock of another process can only be seen by trying.
            try:
                self._take_lock(CHROMA_LIMITS.look_seconds)
            except StorageError:
                return False
            self._release()
        return True

    def is_writing(self) -> bool:
        """Return True if this process has the right to write to an embedded Chroma on disk, and keeps it."""
        return self.shared.writer is not None

    def take_over(self) -> bool:
        """Take the right to write where only one process has it; return True once for each time it was taken.

        Raises:
            StorageError: another process has it.
        """
        if self.given or self.folder is None:
            return False
        self.begin_write()
        shared = self.shared
        with shared.lock:
            was_new, shared.is_new_writer = shared.is_new_writer, False
        return was_new

    def begin_write(self) -> None:
        """Take the right to write, and keep it until `close`; raise StorageError if another process has it."""
        self.refuse_if_closed()
        if self.read_only:
            raise StorageError(f"{self.where} is open read-only.")
        shared = self.shared
        if self.folder is None or shared.writer is not None:
            return
        with shared.lock:
            self._take_lock(CHROMA_LIMITS.lock_seconds)
            others_wrote = shared.client is not None and shared.state != self._turns()
        # Its index in RAM lacks their rows, and would be written without them.
        if others_wrote:
            self.close_client()

    def _take_lock(self, seconds: float) -> None:
        if self.folder is None or self.shared.writer is not None:
            return
        path = self.folder.parent / "chroma.lock"
        # Of the process, not of the thread: the memory may be closed in another one than wrote first.
        lock = filelock.FileLock(path, thread_local=False)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=seconds, poll_interval=0.005)
        except filelock.Timeout:
            raise StorageError(
                f"{self.where}: another process writes there. Its texts can be read. If that process (an old notebook, "
                "say) no longer uses its memory, call close() there. To write from several processes, share one "
                "server: `chroma run` and chroma=chromadb.HttpClient(...)."
            ) from None
        except (OSError, NotImplementedError) as error:
            problem = f"{path} cannot be locked ({error}), so nothing is written to Chroma"
            self.say(problem)
            raise StorageError(f"{problem}. {LOCK_ADVICE}") from error
        self.shared.writer, self.shared.is_new_writer = lock, True

    def _release(self) -> None:
        writer, self.shared.writer = self.shared.writer, None
        with suppress(OSError):
            if writer is not None:
                writer.release()


class _PlaceInWords(NamedTuple):
    """The name of a Chroma in messages, and advice for a person if it fails."""

    where: str
    advice: str


def _in_words(folder: Path | None, client: Any | None) -> _PlaceInWords:
    if client is not None:
        return _PlaceInWords(
            f"Chroma ({type(client).__name__} given by the application)",
            "Check that the server runs and that the client's host, port, tenant and database are right.",
        )
    if folder is None:
        return _PlaceInWords("Chroma in memory", "Nothing on disk is affected.")
    return _PlaceInWords(
        f"Chroma in {folder / 'chroma'}",
        "Check that the folder can be read and written. If files are damaged: "
        f"`toolmem doctor --memory {folder} --rebuild`.",
    )


@cache
def _settings() -> Any:
    """Return Chroma's settings of this environment; reading them takes 7 ms, a fifth of opening a folder."""
    from chromadb.config import Settings

    return Settings(anonymized_telemetry=False)


def _close(client: Any) -> None:
    if hasattr(client, "close"):  # missing in the oldest chromadb
        client.close()


def _clean(folder: Path, *, vacuum: bool) -> None:
    """Remove deleted texts from the indexes of a closed Chroma; `vacuum`: from its database too."""
    if vacuum:
        gc.collect()  # an unreferenced part of Chroma may still write its files
        with closing(sqlite3.connect(folder / DATABASE, isolation_level=None)) as database:
            database.execute("VACUUM")
    _blank_unused_rows(folder)


def _blank_unused_rows(folder: Path) -> None:
    """Overwrite the free space for later rows in the files of indexes; Chroma is closed. hnswlib leaves pieces of the
    process's memory there, including forgotten texts (measured: in 12 of 60 new indexes).
    """
    layout = struct.Struct("<i4Q")  # beginning of a header: version, start, capacity, rows, bytes of a row
    for header in folder.glob("*/header.bin"):
        data = header.read_bytes().ljust(layout.size, b"\0")
        _, _, capacity, rows, width = layout.unpack_from(data)
        for name, size in (("data_level0.bin", width), ("length.bin", 4)):
            file = header.with_name(name)
            if rows <= capacity and file.exists() and file.stat().st_size == capacity * size:
                # Cut off and extended again: the file system fills the new end with zeros.
                os.truncate(file, rows * size)
                os.truncate(file, capacity * size)


@dataclass(frozen=True, slots=True)
class CollectionLabel:
    """A collection's kind and namespace, and the embedder of its vectors; kept as its metadata."""

    kind: str
    namespace: tuple[str, ...]
    embedder: str
    dimension: int

    @staticmethod
    def from_metadata(metadata: Mapping[str, Any] | None) -> CollectionLabel | None:
        """Return the label in a collection's metadata; None if this package did not make the collection."""
        try:
            kind, namespace, embedder, dimension = json.loads((metadata or {})["toolmem"])
            return CollectionLabel(kind, tuple(namespace), embedder, dimension)
        except (KeyError, TypeError, ValueError):
            return None

    def to_metadata(self) -> dict[str, str]:
        """Return a collection's metadata with the label."""
        return {"toolmem": json.dumps([self.kind, self.namespace, self.embedder, self.dimension])}

    def check(self, embedder: Embedder, where: str, dimension: int | None = None) -> None:
        """Raise EmbedderChangedError if the embedder, or the length of its vectors, is not that of the stored ones."""
        if self.embedder == embedder.name and dimension in (None, self.dimension):
            return
        now = embedder.name
        if dimension is not None:
            now = f"{embedder.name} ({dimension} numbers)"
        raise EmbedderChangedError(
            f"{where}: the stored vectors were made by {self.embedder} ({self.dimension} numbers), the embedder is "
            f"now {now}. Go back to the previous embedder, or embed all texts again with this one: "
            "`toolmem doctor --memory FOLDER --reembed SPEC`."
        )


def is_not_found(error: BaseException | None) -> bool:
    """Return True if Chroma has no such collection."""
    from chromadb.errors import NotFoundError

    return isinstance(error, NotFoundError)


def collection_name(prefix: str, kind: str, namespace: tuple[str, ...]) -> str:
    # Chroma allows few characters in a name, and a namespace may have any.
    readable = re.sub("[^a-zA-Z0-9]", "-", kind)[:20] or "-"
    return f"{prefix}.{readable}.{digest(kind, *namespace)}.v2"


def draft_name(name: str) -> str:
    """Return the name under which a collection is rewritten."""
    return name.removesuffix(".v2") + ".new"


def replaced_name(name: str) -> str:
    """Return the name of a collection that was rewritten, until it is deleted."""
    return name.removesuffix(".v2") + ".old"


def find_collection(client: Any, name: str) -> Any | None:
    """Return the collection of that name, or None. A complete draft gets its name."""
    collection = _get(client, name)
    if collection is None:
        collection = _get(client, draft_name(name))
        if collection is not None:
            collection.modify(name=name)
    return collection


def _get(client: Any, name: str) -> Any | None:
    try:
        return client.get_collection(name, embedding_function=None)
    except Exception as error:
        if not is_not_found(error):
            raise
    return None


def create_collection(client: Any, name: str, label: CollectionLabel) -> Any:
    """Return a new collection, or the one of this name if another worker made it too."""
    # Rows of a collection after which Chroma writes its index to disk. Waiting rows are put into the index again at
    # each opening of the collection: with Chroma's default of 1,000, a first search takes 15 ms for 100 rows and 150
    # for 1,000. Writing the index of 100,000 rows takes 0.1 s.
    waiting = 64
    # Links of a row in the index. With Chroma's default of 16, parts of its graph cannot be reached where texts are
    # alike: of 385 texts "Send order bak of ann", 85 were not reached, with 64 up to 4 (of 1,000: 33), with 96 mostly
    # none and seldom up to 3, as Chroma adds the rows of a batch in parallel. Among 10,000 other texts a search takes a
    # tenth to a quarter longer, with 128 twice as long.
    links = 96
    hnsw = {"space": "cosine", "sync_threshold": waiting, "batch_size": waiting, "max_neighbors": links}
    return client.get_or_create_collection(
        name, embedding_function=None, metadata=label.to_metadata(), configuration={"hnsw": hnsw}
    )
