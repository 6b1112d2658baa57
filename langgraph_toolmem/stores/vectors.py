"""Texts that are searched by meaning, kept in Chroma: embedded in the memory's folder, in RAM, or on a server.

One collection per kind ("tools", "entries", ...) and namespace, so that users are kept apart. Vectors are always passed
in, so Chroma downloads no model. Each collection carries a `Label` that names the embedder of its vectors: those of two
embedders cannot be compared.

**Processes.** Embedded Chroma takes one writing process. The first write takes ``chroma.lock``; the process holds it
until its last store on the folder is closed. Other processes read. A process's stores on one folder share a client.
It is closed and opened again when too many collections are open, when deleted rows are cleared from the disk, and when
another process has written. A process that is forked while Chroma is open cannot use it: Chroma's threads are gone.

**Parts.** Texts of one part of a collection are searched apart from the others. Chroma's metadata filter gets slow with
size (p50 of a search among 5,000 rows: 14.6 ms, without it 3.0 ms), so all rows of a part p have a direction r(p) in
common. The index also loses rows behind many equal texts, so each row has a small direction n of its own, at right
angles to r. A vector v is stored as (v, 2·r + ε·n), scaled to length 1, and a question q asked as (q, 2·r). From the
cosine s of these follows that of the texts, c = s·√5·√(5 + ε²) − 4. Only where this finds too few rows of a part, the
filter finds the rest: the index may not reach a part of few rows among many others.

**Rewriting.** `scrub` rewrites a collection, and a crash loses nothing: write ``name.new``, rename ``name.v2`` to
``name.old``, rename ``name.new`` to ``name.v2``, delete ``name.old``. A ``name.new`` next to ``name.v2`` is unfinished;
without it, it is complete and lacks its name only.
"""

from __future__ import annotations

import copy
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar
from weakref import WeakSet, WeakValueDictionary

import filelock

from langgraph_toolmem.base import threads
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
from langgraph_toolmem.text.embedders import Embedder, clean

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from typing_extensions import Self

T = TypeVar("T")

DATABASE: Final = "chroma.sqlite3"
LOCK: Final = "chroma.lock"
LOCK_SECONDS, LOOK_SECONDS = 0.1, 0.02
"""Time to wait for the right to write, and to look for it: another process that looks has it for a moment."""
BUSY: Final = "chroma.busy"
BUSY_SECONDS: Final = 2.0
"""Time to wait for another process that writes to the files of Chroma, or opens them."""
MAX_IN_USE: Final = 64
"""Collections that Chroma may keep open. Its own limit is a fifth of the process's file limit, with four files and some
megabytes each: too much for a host with many users."""
REFRESH_SECONDS: Final = 30.0
"""Interval after which others may have changed what is on a server."""
MAX_ROWS: Final = 4_096
"""Items in RAM, of all kinds and users of a folder."""
BATCH: Final = 1000
"""Rows per call: Chroma takes 5461, a server's limit on the size of a request may be lower."""
PAGE: Final = 500
"""Rows, or collections, that are read or deleted at once."""
LOCK_ADVICE: Final = "Delete it if it is a folder or of another user, and put the memory on a disk that knows locks."
WAITING: Final = 64
"""Rows of a collection after which Chroma writes its index to disk. Rows that wait are put into the index again
whenever the collection is opened: with Chroma's default of 1,000, a first question takes 15 ms of 100 rows and 150 of
1,000. Writing the index of 100,000 rows takes 0.1 s."""
NEIGHBOURS: Final = 96
"""Links of a row in the index. With Chroma's default of 16, parts of its graph cannot be reached where texts are alike:
of 385 texts "Send order bak of ann", 85 were not found by themselves, with 64 up to 4 (of 1,000: 33), with 96 none.
Among 10,000 other texts a search takes a tenth to a quarter longer, with 128 twice as long."""
PART: Final = "part"
"""Key of a row's metadata: its part; not there if it has none."""
OWNERS: Final = "of"
"""Key of a row's metadata: digests of its users and runs."""
_HEADER: Final = struct.Struct("<i4Q")  # of an index: version, start, capacity, rows, bytes of a row
_WIDTH: Final = 64
_PULL: Final = 4.0
_SPREAD: Final = 0.2
_ASKED: Final = math.sqrt(1 + _PULL)
_KEPT: Final = math.sqrt(1 + _PULL + _SPREAD**2)

logger = logging.getLogger("langgraph_toolmem.stores.chroma")

_numbers = itertools.count(1)
_begun_in: set[int] = set()
"""The process that opened an embedded Chroma. Its threads serve all folders and do not survive a fork."""


@dataclass(frozen=True, slots=True)
class VectorItem:
    """One text to keep; the same id again replaces text and vector.

    Attributes:
        metadata: str, int, float, bool or lists of them, merged into what is there; a value None takes its key away.
        part: texts of one part are found together, apart from those of others; always one, or "" for all of a kind.
        owners: digests of the users and runs it comes from, so that it is found when one is forgotten; None: of the
            user who is named when it is kept.
    """

    id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    part: str = ""
    owners: tuple[str, ...] | None = None


class Hit(NamedTuple):
    """One stored text."""

    id: str
    text: str
    metadata: dict[str, Any]


class SearchHit(NamedTuple, Generic[T]):
    """An item that was found, the id of its row, and the cosine of its text and the query, -1 to 1."""

    item: T
    id: str
    similarity: float


class Label(NamedTuple):
    """A collection's kind and namespace, and the embedder of its vectors; kept as its metadata."""

    kind: str
    namespace: tuple[str, ...]
    embedder: str
    dimension: int

    @staticmethod
    def from_metadata(metadata: Mapping[str, Any] | None) -> Label | None:
        """Return the label in a collection's metadata; None if this package did not make the collection."""
        try:
            kind, namespace, embedder, dimension = json.loads((metadata or {})["toolmem"])
            return Label(kind, tuple(namespace), embedder, dimension)
        except (KeyError, TypeError, ValueError):
            return None

    def check(self, embedder: Embedder, where: str, dimension: int | None = None) -> None:
        """Raise EmbedderChangedError if the embedder, or the length of its vectors, is not that of the stored ones."""
        if self.embedder != embedder.name or dimension not in (None, self.dimension):
            now = embedder.name if dimension is None else f"{embedder.name} ({dimension} numbers)"
            raise EmbedderChangedError(
                f"{where}: the stored vectors were made by {self.embedder} ({self.dimension} numbers), the embedder is "
                f"now {now}. Go back to the previous embedder, or embed all texts again with this one: "
                "`toolmem doctor --memory FOLDER --reembed SPEC`."
            )


def collection_name(prefix: str, kind: str, namespace: tuple[str, ...]) -> str:
    return f"{prefix}.{re.sub('[^a-zA-Z0-9]', '-', kind)[:20] or '-'}.{digest(kind, *namespace)}.v2"


def _other_names(name: str) -> tuple[str, str]:
    """Return the names under which a collection is rewritten, and until it is deleted."""
    return name.removesuffix(".v2") + ".new", name.removesuffix(".v2") + ".old"


def _is_not_found(error: BaseException | None) -> bool:
    from chromadb.errors import NotFoundError

    return isinstance(error, NotFoundError)


def is_failure_of_chroma(error: StorageError) -> bool:
    """Return True if Chroma could not do something, False where an embedder, another file or the caller failed."""
    return type(error.__cause__).__module__.startswith(("chromadb", "pyo3"))


def _delete_collection(client: Any, name: str) -> None:
    """Delete a collection if it exists; its rows first: else Chroma 1.5 gives their lists of metadata to later rows."""
    try:
        collection = client.get_collection(name, embedding_function=None)
        while ids := collection.get(limit=PAGE, include=[])["ids"]:
            collection.delete(ids=ids)
        client.delete_collection(name)
    except Exception as error:
        if not _is_not_found(error):
            raise


class ItemCache:
    """Items of rows that were read last, by collection and id, each with the number of its row's latest write."""

    def __init__(self) -> None:
        self._lock = threads.lock()
        self._items: OrderedDict[tuple[str, str], tuple[int, Any]] = OrderedDict()

    def known(self, name: str, numbers: Mapping[str, int]) -> dict[str, Any]:
        """Return the items of rows that are as they were read, by id; `numbers`: of their latest writes."""
        items: dict[str, Any] = {}
        with self._lock:
            for key, number in numbers.items():
                kept = self._items.get((name, key))
                if kept is not None and kept[0] == number:
                    items[key] = kept[1]
                    self._items.move_to_end((name, key))
        return items

    def keep(self, name: str, key: str, number: int, item: Any) -> None:
        with self._lock:
            self._items.pop((name, key), None)
            self._items[name, key] = number, item
            if len(self._items) > MAX_ROWS:
                self._items.popitem(last=False)

    def forget(self) -> None:
        """Drop all items."""
        with self._lock:
            self._items.clear()

    def drop(self, name: str) -> None:
        with self._lock:
            for place in [place for place in self._items if place[0] == name]:
                del self._items[place]


class _Shared:
    """The client that all stores of this process on one folder share, its collections, and the right to write."""

    def __init__(self) -> None:
        self.client: Any = None
        self.process = 0  # that opened the client
        self.collections: dict[str, tuple[Any, Label]] = {}
        self.uses: WeakSet[threading.Event] = WeakSet()  # set when the store is closed
        self.lock, self.changed = threads.rlock(), threads.condition()
        self.inside: set[int] = set()  # threads that use the client, so that it is not closed
        self.closing = False
        self.writer: filelock.BaseFileLock | None = None
        self.state = 0  # of all indexes, when this process opened the client (`RowTable.turns`)
        self.opened = -math.inf  # the client, by time.monotonic
        self.turns: dict[str, int] = {}  # of the index, when its collection was opened (`Progress.turn`)
        self.items = ItemCache()
        self.counted: set[str] = set()  # collections whose texts this process counted
        self.indexing = threads.rlock()  # over a change of an index
        self.gate = threads.rlock()  # around `busy`
        self.busy: filelock.BaseFileLock | None = None
        threads.at_fork(self)

    def forked(self) -> None:
        # The client must never be freed here: Chroma would wait for threads of the parent, and the child never end.
        for each in (self.writer, self.busy, self.client):
            if each is not None:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
        self.writer, self.busy, self.inside, self.closing = None, None, set(), False


_folders: WeakValueDictionary[str, _Shared] = WeakValueDictionary()
_folders_lock = threads.lock()


class VectorStore:
    """Texts of one namespace by kind, found by meaning. Safe to use from several threads.

    Every method raises `StorageError` when Chroma or the embedder fails, and `EmbedderChangedError` when another
    embedder made the stored vectors. Of several processes on one folder one writes; see `may_write`.

    Args:
        folder: the memory's folder. None without a client: in memory, and two such stores share nothing.
        client: a synchronous chromadb client (``HttpClient``) instead of the embedded Chroma; it is never closed here.

    Attributes:
        given: True if the client was given: other processes may write to the same Chroma.
        problems: damage that was found, one sentence each, for a person.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        embedder: Embedder,
        client: Any | None = None,
        namespace: tuple[str, ...],
        read_only: bool = False,
    ) -> None:
        if inspect.isawaitable(client) or inspect.iscoroutinefunction(getattr(client, "get_collection", None)):
            raise ConfigurationError(
                "`chroma` cannot be an AsyncHttpClient. Give chromadb.HttpClient(...); "
                "the memory's async methods call it in threads."
            )
        self.embedder, self.namespace, self.read_only = embedder, namespace, read_only
        self.problems: list[str] = []
        self.given, self._given = client is not None, client
        self.folder = None if folder is None or self.given else folder / "chroma"
        if self.given:
            self.where = f"Chroma ({type(client).__name__} given by the application)"
            self._advice = "Check that the server runs and that the client's host, port, tenant and database are right."
        elif self.folder is None:
            self.where, self._advice = "Chroma in memory", "Nothing on disk is affected."
        else:
            self.where = f"Chroma in {self.folder}"
            self._advice = (
                "Check that the folder can be read and written. If files are damaged: "
                f"`toolmem doctor --memory {self.folder.parent} --rebuild`."
            )
        self.remote = Remote(self.where) if self.given and is_remote(client) else None
        # All in-memory clients of a process see one database: a number keeps their collections apart.
        self._prefix = f"tm{next(_numbers)}" if self.folder is None and not self.given else "tm"
        self._closed, self._owner = threading.Event(), True
        with _folders_lock:
            key = f"#{next(_numbers)}" if self.folder is None else os.path.realpath(self.folder)
            self._shared = _folders.setdefault(key, _Shared())
            self._shared.uses.add(self._closed)

    def forget_rows(self) -> None:
        """Drop the rows that are kept in RAM."""
        self._shared.items.forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def scoped(self, namespace: tuple[str, ...]) -> Self:
        """Return the same Chroma and embedder for another namespace. Cheap; closing it leaves this one open."""
        other = copy.copy(self)
        other.namespace, other._owner = namespace, False
        return other

    @property
    def shared(self) -> bool:
        """True if other processes may write to the same Chroma now."""
        return self.given or (self.folder is not None and self._shared.writer is None)

    @property
    def empty(self) -> bool:
        """True if nothing can be stored here yet, so that a question need not open Chroma."""
        if self._shared.client is not None or self._closed.is_set() or self.given:
            return False
        return self.folder is None or not os.access(self.folder, os.F_OK)  # one that cannot be seen raises nothing

    # --- opening and closing ---

    @contextmanager
    def _opened(self, doing: str) -> Iterator[Any]:
        """Yield the client, opened at first use. Nobody closes it inside; errors say where and what to do."""
        self._refuse()
        if self._is_stale():
            self._let_go()
        shared, me = self._shared, threading.get_ident()
        with shared.changed:
            nested = me in shared.inside  # in a finalizer or a signal handler
            shared.changed.wait_for(lambda: nested or not shared.closing)
            shared.inside.add(me)
        try:
            if shared.client is None:
                with shared.lock, self._translated("open"):
                    if shared.client is None:
                        shared.client = self._open()
            with self._translated(doing):
                yield shared.client
        finally:
            if not nested:
                with shared.changed:
                    shared.inside.discard(me)
                    shared.changed.notify_all()

    def _refuse(self) -> None:
        if self._closed.is_set():
            raise StorageError(f"{self.where} is closed. Make a new memory to go on.")
        if self._forked():
            raise StorageError(
                f"{self.where}: Chroma was in use before this process was forked and cannot be used in the child. "
                "Make and use memories after the fork only, or share one server: `chroma run` and "
                "chroma=chromadb.HttpClient(...)."
            )

    def _forked(self) -> bool:
        begun = self._shared.process if self.given else next(iter(_begun_in), 0)
        return begun not in (0, os.getpid())

    def _open(self) -> Any:
        shared = self._shared
        shared.process = os.getpid()
        if self.given:
            return self._given if self.remote is None else RemoteClient(self._given, self.remote)
        try:
            import chromadb
            from chromadb.api.shared_system_client import SharedSystemClient
            from chromadb.config import Settings
        except ImportError as error:
            raise MissingExtraError("Text that is searched by meaning", "memory") from error
        _begun_in.add(shared.process)
        settings = Settings(anonymized_telemetry=False)  # a fresh one each time: Chroma changes it
        if self.folder is None:
            return chromadb.EphemeralClient(settings=settings)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._quarantine(self.folder)
        shared.state, shared.opened = self._turns(), time.monotonic()
        try:
            with self._alone():
                return chromadb.PersistentClient(path=self.folder, settings=settings)
        except BaseException:
            if all(each.client is None for each in list(_folders.values())):
                SharedSystemClient.clear_system_cache()  # else Chroma keeps what it could not open
            raise

    def _quarantine(self, folder: Path) -> None:
        """Rename a folder whose database is none, and begin an empty one."""
        try:
            with closing(opened_readonly(folder / DATABASE)) as database:
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
            self._say(f"{DATABASE} was damaged ({error}); its folder was renamed to {aside.name}")

    def _say(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)
            logger.warning("%s: %s", self.where, problem)

    def close(self) -> None:
        """Let go of Chroma; what was in memory is gone. Twice is harmless; a given client stays open."""
        if not self._owner:
            return
        shared = self._shared
        self._closed.set()
        with shared.lock:
            shared.uses.discard(self._closed)
            if shared.uses or self._forked():
                return
            if shared.client is not None and self.folder is None and not self.given:
                for name in shared.collections:
                    with suppress(Exception):  # it may be gone already
                        _delete_collection(shared.client, name)
        try:
            self._let_go()
        finally:
            self._release()

    def _release(self) -> None:
        writer, self._shared.writer = self._shared.writer, None
        with suppress(OSError):
            if writer is not None:
                writer.release()

    def _let_go(self, *, vacuum: bool = False) -> None:
        """Close the client when no thread is inside; the next call opens it again."""
        shared = self._shared
        if self._forked():
            return  # closing would wait for threads of the parent
        with shared.changed:
            if threading.get_ident() in shared.inside:
                return
            shared.changed.wait_for(lambda: not shared.closing)
            shared.closing = True
            shared.changed.wait_for(lambda: not shared.inside)
        try:
            with shared.lock, self._translated("close"):
                client, shared.client = shared.client, None
                shared.collections.clear()
                shared.turns.clear()
                if client is None or self.given:
                    return
                close: Callable[[], None] = getattr(client, "close", lambda: None)  # missing in the oldest chromadb
                if self.folder is None or shared.writer is None or not self.folder.exists():
                    close()
                    return
                with self._alone():
                    close()
                    if vacuum:
                        del client, close
                        gc.collect()  # an unreferenced part of Chroma may still write its files
                        with closing(sqlite3.connect(self.folder / DATABASE, isolation_level=None)) as database:
                            database.execute("VACUUM")
                    _blank_unused_rows(self.folder)
        finally:
            with shared.changed:
                shared.closing = False
                shared.changed.notify_all()

    def _is_stale(self) -> bool:
        """Return True if too many collections are open."""
        shared = self._shared
        return self.folder is not None and shared.client is not None and len(shared.collections) > MAX_IN_USE

    def _turns(self) -> int:
        """Return how often any process wrote to an embedded Chroma."""
        return 0

    def may_write(self) -> bool:
        """Return True if this process writes to the folder (until it closes it), or could begin to now, else False."""
        if self.read_only or self._closed.is_set() or self._forked():
            return False
        with self._shared.lock:
            if not self.shared or self.given:
                return True
            try:
                self._take_lock(timeout=LOOK_SECONDS)
            except StorageError:
                return False
            self._release()
        return True

    @property
    def writes(self) -> bool:
        """True if this process has the right to write to an embedded Chroma on disk, and keeps it."""
        return self._shared.writer is not None

    def begin_write(self) -> None:
        """Take the right to write, and keep it until `close`; raise StorageError if another process has it."""
        self._refuse()
        if self.read_only:
            raise StorageError(f"{self.where} is open read-only.")
        shared = self._shared
        if self.folder is None or shared.writer is not None:
            return
        with shared.lock:
            self._take_lock()
            stale = shared.client is not None and shared.state != self._turns()
        if stale:
            self._let_go()

    def _take_lock(self, timeout: float = LOCK_SECONDS) -> None:
        if self.folder is None or self._shared.writer is not None:
            return
        lock = filelock.FileLock(self.folder.parent / LOCK, thread_local=False)
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=timeout, poll_interval=0.005)
        except filelock.Timeout:
            raise StorageError(
                f"{self.where}: another process writes there. Its texts can be read. If that process (an old notebook, "
                "say) no longer uses its memory, call close() there. To write from several processes, share one "
                "server: `chroma run` and chroma=chromadb.HttpClient(...)."
            ) from None
        except (OSError, NotImplementedError) as error:
            problem = f"{self.folder.parent / LOCK} cannot be locked ({error}), so nothing is written to Chroma"
            self._say(problem)
            raise StorageError(f"{problem}. {LOCK_ADVICE}") from error
        self._shared.writer = lock

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep files of the embedded Chroma from being opened here while another process writes them, and vice versa.

        The thread is inside (`_opened`), or no thread is.
        """
        shared = self._shared
        with shared.gate:
            path = None if self.folder is None else self.folder.parent / BUSY
            if path is None or (self.read_only and not path.exists()):
                yield
                return
            lock = shared.busy = shared.busy or filelock.FileLock(path, thread_local=False)
            try:
                lock.acquire(timeout=BUSY_SECONDS, poll_interval=0.005)
            except filelock.Timeout:
                raise StorageError(f"{self.where} is being written by another process; ask again.") from None
            except (OSError, NotImplementedError):  # nobody can write there either
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
            # A panic in Chroma's Rust part is a BaseException, yet nobody asked the program to stop.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            lines = str(error).strip().splitlines() or [""]
            raise StorageError(
                f"{self.where}: could not {doing}: {type(error).__name__}: {lines[0]}. {self._advice}"
            ) from error

    # --- writing ---

    def upsert(
        self,
        kind: str,
        items: Sequence[VectorItem],
        *,
        vectors: Mapping[str, Sequence[float]] | None = None,
        seen: int | None = None,
    ) -> None:
        """Keep texts. Of two items with one id the later counts. If it fails half-way, do it again.

        Args:
            kind: of the texts.
            items: the texts.
            vectors: those that are known already, by id.
            seen: `state` when what is replaced was read.

        Raises:
            MovedError: another process of the folder wrote to the collection since `seen`; nothing was changed.
        """
        known = dict(vectors or {})
        for batch in batches({item.id: item for item in items}.values(), BATCH):
            missing = [item for item in batch if item.id not in known]
            made = self.embedder.embed_documents([item.text for item in missing])
            known.update(zip((item.id for item in missing), made, strict=True))
            ids = [item.id for item in batch]
            columns: dict[str, Any] = {
                "embeddings": kept_vectors([known[key] for key in ids], ids, [item.part for item in batch]),
                "documents": [clean(item.text) for item in batch],
                "metadatas": [_metadata(item) for item in batch],
            }
            self._write(kind, "upsert", self.embedder.dimension(), ids=ids, **columns)

    def amend(self, kind: str, items: Sequence[VectorItem], *, seen: int | None = None) -> None:
        """Change metadata and parts of rows whose texts are as they were; what is gone stays gone. `seen`: as above."""
        for batch in batches(items, BATCH):
            ids, of = [item.id for item in batch], {item.id: item.part for item in batch}
            for page in self.pages(kind, ["embeddings", "metadatas"], ids=ids):
                was = [str((each or {}).get(PART, "")) for each in page["metadatas"]]
                rows = [row for row, key in enumerate(page["ids"]) if was[row] != of[key]]
                if rows:
                    moved = [page["ids"][row] for row in rows]
                    own_vectors = [own(page["embeddings"][row]) for row in rows]
                    vectors = kept_vectors(own_vectors, moved, [of[key] for key in moved])
                    self._write(kind, "update", ids=moved, embeddings=vectors)
            self._write(kind, "update", ids=ids, metadatas=[_metadata(item) or {} for item in batch])

    def delete(self, kind: str, ids: Sequence[str]) -> None:
        for batch in batches(ids, BATCH):
            self._write(kind, "delete", ids=batch)

    def drop(self, kind: str | None = None) -> None:
        """Delete a kind whole, or everything of this namespace; works after a change of embedder too."""
        if self.empty:
            return
        for each in self.kinds() if kind is None else [kind]:
            self.begin_write()
            name = self._name(each)
            with self._opened(f"delete {each!r}") as client:
                self._shared.collections.pop(name, None)
                for doomed in (name, *_other_names(name)):
                    _delete_collection(client, doomed)

    def scrub(self, kind: str) -> None:
        """Clear what was deleted of a kind from the disk too: Chroma keeps it in its log and in free room of its files.

        Nothing else may write to the kind meanwhile. On a server ``chroma vacuum`` does it.
        """
        if self.empty or self.folder is None:
            return
        self.begin_write()
        name, include = self._name(kind), ["metadatas", "embeddings"]
        draft, replaced = _other_names(name)
        with self._opened(f"rewrite {kind!r}") as client:
            source = self._collection(client, kind)
            if source is not None:
                _, label = self._shared.collections.pop(name)
                for doomed in (draft, replaced):
                    _delete_collection(client, doomed)
                new, offset = _create(client, draft, label), 0
                while (page := source.get(limit=PAGE, offset=offset, include=include))["ids"]:
                    new.upsert(**{column: page[column] for column in ("ids", *include)})
                    offset += len(page["ids"])
                source.modify(name=replaced)
                new.modify(name=name)
                _delete_collection(client, replaced)
        self._let_go(vacuum=True)

    # --- reading ---

    def query(
        self,
        kind: str,
        text: str | Sequence[float],
        *,
        k: int,
        part: str = "",
        read: Callable[[Hit], Any] = lambda hit: hit,
        same: int | None = None,
    ) -> list[SearchHit[Any]]:
        """Return the k rows of a part whose texts are most similar to `text`, or to its vector, best first.

        Args:
            kind: of the texts.
            text: the question, or its vector.
            k: how many.
            part: of the texts.
            read: makes an item of a row, None of a damaged one, which is left out; always the same for a kind.
            same: the rows of the k most similar *texts*, at most so many of each, the latest first; on a server k rows.
        """
        del same
        if k <= 0 or self.empty:
            return []
        vector = self.embedder.embed_query(text) if isinstance(text, str) else text
        asked = asked_vector(vector, part)
        include = ["documents", "metadatas", "distances"]

        def ask(where: Mapping[str, Any] | None, collection: Any) -> tuple[list[SearchHit[Any]], bool]:
            answer = collection.query(query_embeddings=[asked], n_results=k, where=where, include=include)
            [keys], [distances] = answer["ids"], answer["distances"]
            rows = _read({"ids": keys, **{name: answer[name][0] for name in include}}, read)
            found = [
                SearchHit(rows[key][1], key, cosine_of(1.0 - distance))
                for key, distance in zip(keys, distances, strict=True)
                if rows[key][0] == part and rows[key][1] is not None
            ]
            return found, len(keys) == k  # others crowd it out, or it has as many

        nothing: tuple[list[SearchHit[Any]], bool] = [], False
        found, is_full = self._on(kind, "search", partial(ask, None), nothing, len(vector))
        if part and is_full and len(found) < k:
            found, _ = self._on(kind, "search", partial(ask, {PART: part}), nothing)
        return found

    def state(self, kind: str) -> int | None:
        """Return a number that moves with every write to a kind by any process; None where nobody can tell."""
        del kind
        return None

    def get(self, kind: str, ids: Sequence[str] | None = None) -> list[Hit]:
        """Return the texts with these ids that are there, in the order asked; or all."""
        if ids is None:
            return list(self.each(kind))
        wanted = list(dict.fromkeys(ids))
        hits = {hit.id: hit for page in self.pages(kind, ids=wanted) for hit in _hits(page)}
        return [hits[key] for key in wanted if key in hits]

    def each(self, kind: str, *, owner: str = "", start: int = 0) -> Iterator[Hit]:
        """Yield texts in the order in which they came first, from one on; those of an owner (digest) if named."""
        for page in self.pages(kind, owner=owner, start=start):
            yield from _hits(page)

    def ids(self, kind: str, owner: str = "") -> list[str]:
        """Return the ids of all texts, or of those of an owner (digest)."""
        return [key for page in self.pages(kind, [], owner=owner, size=50 * BATCH) for key in page["ids"]]

    def pages(
        self,
        kind: str,
        include: Sequence[str] = ("documents", "metadatas"),
        *,
        ids: Sequence[str] | None = None,
        owner: str = "",
        start: int = 0,
        size: int = BATCH,
    ) -> Iterator[Mapping[str, Any]]:
        """Yield rows with these ids, or of an owner, or all from one on, in Chroma's columns, by pages."""
        offset, where = start, {OWNERS: {"$contains": owner}} if owner else None
        while ids is None or offset < len(ids):
            which: dict[str, Any] = {"limit": size, "offset": offset, "where": where}
            if ids is not None:
                which = {"ids": list(ids[offset : offset + size])}
            how = partial(lambda which, found: found.get(**which, include=list(include)), which)
            page = self._on(kind, "read", how, None)
            if page is None or (ids is None and not page["ids"]):
                return
            yield page
            offset += size

    def count(self, kind: str) -> int:
        return self._on(kind, "count", lambda found: int(found.count()), 0)

    def labels(self) -> set[Label]:
        """Return the labels of all collections of this memory, whatever their namespace."""
        found: set[Label] = set()
        if not self.empty:
            with self._opened("list the collections") as client:
                offset = 0
                while page := client.list_collections(limit=PAGE, offset=offset):
                    mine = (each.metadata for each in page if each.name.startswith(f"{self._prefix}."))
                    found.update(filter(None, map(Label.from_metadata, mine)))
                    offset += len(page)
        return found

    def names(self) -> set[tuple[str, tuple[str, ...]]]:
        """Return kind and namespace of all collections of this memory."""
        return {(label.kind, label.namespace) for label in self.labels()}

    def kinds(self) -> list[str]:
        return sorted(kind for kind, namespace in self.names() if namespace == self.namespace)

    def vectors_of(self, kind: str, texts: Mapping[str, str]) -> dict[str, Sequence[float]]:
        """Return the stored vectors of texts, given by id, that are there as given."""
        vectors: dict[str, Sequence[float]] = {}
        for page in self.pages(kind, ["documents", "embeddings"], ids=list(texts)):
            for key, document, vector in zip(page["ids"], page["documents"], page["embeddings"], strict=True):
                if document == clean(texts[key]):
                    vectors[key] = own(vector)
        return vectors

    def check(self) -> None:
        for label in self.labels():
            if label.namespace == self.namespace:
                label.check(self.embedder, self.where)

    # --- collections ---

    def _name(self, kind: str) -> str:
        return collection_name(self._prefix, kind, self.namespace)

    def _collection(self, client: Any, kind: str, dimension: int | None = None, *, make: bool = False) -> Any | None:
        """Return the collection, checked for vectors of that length; None if there is none and none is to be made."""
        name, label = self._name(kind), Label(kind, self.namespace, self.embedder.name, dimension or 0)
        known = self._shared.collections.get(name)
        if known is None:
            collection = _find(client, name) or (_create(client, name, label) if make else None)
            if collection is None:
                return None
            stored = Label.from_metadata(collection.metadata)
            if stored is None:
                raise StorageError(
                    f"{self.where}: the collection {name!r} was not made by this package. "
                    "Delete or rename it, or choose another namespace."
                )
            known = self._shared.collections[name] = collection, stored
        known[1].check(self.embedder, self.where, dimension)
        return known[0]

    def _write(self, kind: str, method: str, dimension: int | None = None, **columns: Any) -> None:
        if dimension is None and self.empty:
            return
        self.begin_write()
        action: Callable[[Any], object] = lambda collection: getattr(collection, method)(**columns)  # noqa: E731 - typed
        self._on(kind, "write", action, None, dimension, make=dimension is not None)

    def _on(
        self,
        kind: str,
        doing: str,
        action: Callable[[Any], T],
        missing: T,
        dimension: int | None = None,
        *,
        make: bool = False,
    ) -> T:
        """Do something with a collection; once more if another process replaced it meanwhile."""
        if self.empty and not make:
            return missing
        for last in (False, True):
            try:
                with self._opened(f"{doing} {kind!r}") as client:
                    collection = self._collection(client, kind, dimension, make=make)
                    return missing if collection is None else action(collection)
            except StorageError as error:
                if last or not _is_not_found(error.__cause__):
                    raise
                self._shared.collections.pop(self._name(kind), None)
        return missing


class TextVectors:
    """Vectors of texts about tools, made once: a next process with the same tools embeds nothing."""

    def __init__(self, vectors: VectorStore, kind: str) -> None:
        self._vectors, self._kind = vectors, kind

    def of(self, texts: Mapping[str, str]) -> dict[str, Sequence[float]]:
        """Return the vector of each text by name, as stored if the text is the same."""
        found = self._vectors.vectors_of(self._kind, texts)
        for batch in batches([name for name in texts if name not in found], BATCH):
            made = self._vectors.embedder.embed_documents([texts[name] for name in batch])
            vectors: dict[str, Sequence[float]] = dict(zip(batch, made, strict=True))
            if self._vectors.may_write():
                items = [VectorItem(name, texts[name]) for name in batch]
                self._vectors.upsert(self._kind, items, vectors=vectors)
            found |= vectors
        return found


def _find(client: Any, name: str) -> Any | None:
    """Return the collection of that name; None if there is none. A complete draft gets its name."""
    for each in (name, _other_names(name)[0]):
        try:
            collection = client.get_collection(each, embedding_function=None)
        except Exception as error:
            if not _is_not_found(error):
                raise
        else:
            if each != name:
                collection.modify(name=name)
            return collection
    return None


def _create(client: Any, name: str, label: Label) -> Any:
    hnsw = {"space": "cosine", "sync_threshold": WAITING, "batch_size": WAITING, "max_neighbors": NEIGHBOURS}
    how: dict[str, Any] = {"metadata": {"toolmem": json.dumps(label)}, "configuration": {"hnsw": hnsw}}
    return client.get_or_create_collection(name, embedding_function=None, **how)  # another worker may make it too


def _blank_unused_rows(folder: Path) -> None:
    """Overwrite the room for later rows in the files of indexes; Chroma is closed. hnswlib leaves pieces of the
    process's memory there, forgotten texts among them (measured: in 12 of 60 new indexes)."""
    for header in folder.glob("*/header.bin"):
        data = header.read_bytes()
        _, _, capacity, rows, width = _HEADER.unpack(data.ljust(_HEADER.size, b"\0")[: _HEADER.size])
        for name, size in (("data_level0.bin", width), ("length.bin", 4)):
            file = header.with_name(name)
            if rows <= capacity and file.exists() and file.stat().st_size == capacity * size:
                os.truncate(file, rows * size)
                os.truncate(file, capacity * size)


def own(vector: Sequence[float]) -> list[float]:
    """Return the text's own vector, of length 1, from a stored one."""
    return [float(value) * _KEPT for value in vector[:-_WIDTH]]


def _direction(name: str) -> NDArray[Any]:
    import numpy as np  # imported where it is used

    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=_WIDTH // 8).digest()
    made: NDArray[Any] = (np.unpackbits(np.frombuffer(digest, np.uint8)) * 2.0 - 1.0) / math.sqrt(_WIDTH)
    return made


_part_direction = lru_cache(maxsize=1024)(lambda part: _direction(f"part {part}"))


def kept_vectors(vectors: Sequence[Sequence[float]], ids: Sequence[str], parts: Sequence[str]) -> NDArray[Any]:
    """Return texts' vectors of length 1 as they are stored for rows of some parts."""
    import numpy as np  # imported where it is used

    common = np.array([_part_direction(part) for part in parts])
    rows = np.array([_direction(f"row {key}") for key in ids])
    along = (common * rows).sum(axis=1, keepdims=True)
    rest = _SPREAD / np.sqrt(np.maximum(1 - along**2, 1e-6))
    behind = (math.sqrt(_PULL) - rest * along) * common + rest * rows
    kept: NDArray[Any] = np.hstack([np.asarray(vectors, dtype=np.float64), behind]) / _KEPT
    return kept


def asked_vector(vector: Sequence[float], part: str) -> list[float]:
    """Return a question's vector of length 1 as the rows of a part are compared with it."""
    size = math.sqrt(_PULL)
    return [value / _ASKED for value in (*vector, *(size * each for each in _part_direction(part).tolist()))]


def cosine_of(similarity: float) -> float:
    return max(-1.0, min(1.0, similarity * _ASKED * _KEPT - _PULL))


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while batch := list(itertools.islice(rest, size)):
        yield batch


def _metadata(item: VectorItem) -> dict[str, Any] | None:
    # Chroma takes no empty metadata and its Rust part no lone surrogates.
    cleaned = {key: clean(value) if isinstance(value, str) else value for key, value in item.metadata.items()}
    owners = {OWNERS: list(item.owners)} if item.owners else {OWNERS: None} if item.owners is not None else {}
    return cleaned | owners | ({PART: item.part} if item.part else {}) or None


def _hits(page: Mapping[str, Any]) -> Iterator[Hit]:
    rows = zip(page["ids"], page["documents"], page["metadatas"], strict=True)
    return (Hit(key, text or "", dict(metadata or {})) for key, text, metadata in rows)


def _read(page: Mapping[str, Any], read: Callable[[Hit], Any]) -> dict[str, tuple[str, Any]]:
    return {hit.id: (hit.metadata.get(PART, ""), read(hit)) for hit in _hits(page)}
