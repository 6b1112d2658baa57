"""The connection to Chroma: opened late, closed cleanly, guarded against forks, its errors in plain words.

Chroma is imported at the first call of `ChromaConnection.client`; that takes about a second.
"""

from __future__ import annotations

import gc
import inspect
import itertools
import logging
import os
import shutil
import sqlite3
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from langgraph_toolmem.base import exits, locks
from langgraph_toolmem.base.errors import ConfigurationError, MissingExtraError, StorageError, ToolMemoryError
from langgraph_toolmem.stores import salvage
from langgraph_toolmem.stores.gate import Gate
from langgraph_toolmem.stores.hnsw_files import blank_all_unused_rows
from langgraph_toolmem.stores.integrity import ASIDE, Integrity, as_noted
from langgraph_toolmem.stores.remote import Remote, RemoteClient, is_remote

LONGEST_NAME = 60  # characters, and some to spare below 63, the limit of older servers
MAX_IN_USE = 64
"""Collections that Chroma is allowed to keep open. It would keep up to a fifth of the process's file limit, with four
files and some megabytes each: too much for a host with many users."""
AT_ONCE = 500  # rows deleted at once
_FINAL, _DRAFT, _REPLACED = ".v2", ".new", ".old"  # ends of collection names

_DAMAGED = "malformed", "not a database"
logger = logging.getLogger("langgraph_toolmem.stores.chroma")

_numbers = itertools.count(1)
_open: dict[str, tuple[int, int, Integrity | None]] = {}
"""What is open in this process: place -> (process id, how often, which indexes may be used)."""
_open_lock = locks.lock()
_begun_in: set[int] = set()
"""The process in which Chroma was opened first. Its threads are for all folders, and do not cross a fork."""


def collection_name(prefix: str, kind: str, namespace: tuple[str, ...]) -> str:
    """A name Chroma takes, different for every kind and namespace.

    Letters and digits stay, any other byte is written ``-xx``; a name that would get too long is a digest.

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
    return written or "-"  # no escape is a single dash, so an empty part is told apart


def draft_name(name: str) -> str:
    """The name under which a collection is rebuilt."""
    return name.removesuffix(_FINAL) + _DRAFT


def replaced_name(name: str) -> str:
    """The name of a collection whose place another took, until it is deleted."""
    return name.removesuffix(_FINAL) + _REPLACED


def is_replaced(name: str) -> bool:
    """Return whether another collection took this one's place."""
    return name.endswith(_REPLACED)


def final_name(name: str) -> str:
    """The name a collection has, or will have when its rebuilding is done."""
    return name.removesuffix(_DRAFT) + _FINAL if name.endswith(_DRAFT) else name


def is_not_found(error: BaseException | None) -> bool:
    """Whether Chroma says that a collection is not there (any more)."""
    from chromadb.errors import NotFoundError

    return isinstance(error, NotFoundError)


def delete_collection(client: Any, name: str) -> None:
    """Delete a collection, its rows first: else Chroma (1.5) keeps their list-valued metadata, whose owners they would
    become of rows that come later, in any collection."""
    collection = client.get_collection(name, embedding_function=None)
    while ids := collection.get(limit=AT_ONCE, include=[])["ids"]:
        collection.delete(ids=ids)
    client.delete_collection(name)


class ChromaConnection:
    """One Chroma: embedded in a folder, in memory, or a client somebody made.

    Args:
        folder: where the embedded database lives; made if needed. ``None``: in memory.
        client: a synchronous chromadb client to use instead; it is never closed here.
        read_only: another process may have the folder open and write to it.
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
        self.ephemeral = folder is None and client is None
        # All in-memory clients of a process see one database: a number keeps their collections apart.
        self.prefix = f"tm{next(_numbers)}" if self.ephemeral else "tm"
        self.given = client
        self.remote = Remote(self.where, **limits) if client is not None and is_remote(client) else None
        self.read_only = read_only
        self.integrity: Integrity | None = None
        """Of a folder's indexes, while it is open."""
        self._client: Any | None = None
        self._process: int | None = None
        self._closed = False
        self._lock = locks.lock()
        self._gate = Gate()
        self._in_use: set[str] = set()
        self._doubted = False  # it said that its database is damaged
        self.lost: Path | None = None
        """What was set aside as damaged, until what can be read of it is put back (`reembed.restore`)."""
        self.restoring = locks.rlock()
        self.problems: list[str] = []
        """What was damaged, one sentence each, for a person."""

    @property
    def where(self) -> str:
        """The place, for error messages."""
        if self.given is not None:
            return f"Chroma ({type(self.given).__name__} given by the application)"
        return "Chroma in memory" if self.folder is None else f"Chroma in {self.folder}"

    @property
    def empty(self) -> bool:
        """Whether nothing can be stored here yet, so that a question need not open Chroma."""
        if self._client is not None or self._closed or self.given is not None:
            return False
        return self.folder is None or not os.access(self.folder, os.F_OK)  # one that cannot be seen raises nothing

    def owns(self, name: str) -> bool:
        """Whether a collection of that name may be this memory's; its label decides."""
        return name.startswith((f"{self.prefix}.", f"{self.prefix}-h."))

    def client(self) -> Any:
        """The client, opened if it is not.

        Raises:
            StorageError: it is closed, cannot be opened, or was opened before this process was forked.
        """
        process = os.getpid()
        if self._process is not None and self._process != process:
            raise self._forked()
        if self._client is None:
            with self._lock:
                if self._closed:
                    raise StorageError(f"{self.where} is closed. Make a new memory to go on.")
                if self._client is None:
                    self._client = self._opened(process)
                    self._process = process
        return self._client

    def _opened(self, process: int) -> Any:
        if self.given is not None:
            return self.given if self.remote is None else RemoteClient(self.given, self.remote)
        key = str(self.folder)
        with _open_lock:
            _, times, integrity = _open.get(key, (process, 0, None))
            _begun_in.update(() if _begun_in else (process,))
            if process not in _begun_in:
                raise self._forked()
            with self._translated("open"):  # not through the gate: who closes it wants the lock held here
                try:
                    import chromadb
                    from chromadb.api.shared_system_client import SharedSystemClient
                    from chromadb.config import Settings
                except ImportError as error:
                    raise MissingExtraError("Text that is searched by meaning", "memory") from error

                # A fresh Settings each time: Chroma changes the object it is given.
                settings = Settings(anonymized_telemetry=False)
                if self.folder is None:
                    client = chromadb.EphemeralClient(settings=settings)
                    # What is in memory of one that nobody closes would stay for good, some megabytes.
                    weakref.finalize(self, _abandoned, client, process, self._in_use).atexit = False
                else:
                    self.folder.mkdir(parents=True, exist_ok=True)
                    if not times:
                        if not self.read_only:
                            self._mend(self.folder)
                            blank_all_unused_rows(self.folder)  # a process that was killed could not
                        integrity = Integrity(self.folder, read_only=self.read_only)
                    try:
                        client = chromadb.PersistentClient(path=self.folder, settings=settings)
                    except BaseException:
                        if not _open:  # Chroma goes on with what it could not open, and fails otherwise the next time
                            SharedSystemClient.clear_system_cache()
                        raise
            _open[key] = (process, times + 1, integrity)
            self.integrity = integrity
        return client

    def _mend(self, folder: Path) -> None:
        """A damaged database is set aside; one that is as it was at the last close is not looked at."""
        if (self._doubted or not as_noted(folder)) and (why := salvage.damage(folder)) is not None:
            aside = salvage.set_aside(folder)
            self.problems.append(
                f"{salvage.DATABASE} was damaged ({why}) and set aside as {aside.name}; what can be read of it is put "
                "into a new one"
            )
            logger.error("%s: %s", self.where, self.problems[-1])
            folder.mkdir()
        self._doubted, self.lost = False, salvage.lost(folder)

    def restored(self) -> None:
        """What could be read is put back."""
        self.lost = None
        if self.folder is not None:
            (self.folder.parent / salvage.MARK).unlink(missing_ok=True)

    def _forked(self) -> StorageError:
        return StorageError(
            f"{self.where}: Chroma was in use before this process was forked and cannot be used in the child. "
            "Make and use memories after the fork only, or share one server: `chroma run` and "
            "chroma=chromadb.HttpClient(...)."
        )

    def close(self) -> None:
        """Release files, threads and what is only in memory; a client that was given stays open. Twice is harmless."""
        with self._lock:
            client, self._client, self._closed = self._client, None, True
            if client is not None and self.given is None and self._process == os.getpid():
                for name in self._in_use if self.ephemeral else ():
                    with suppress(Exception):  # gone already
                        delete_collection(client, name)
                self._let_go(client)

    def _let_go(self, client: Any) -> None:
        """Closes a client that was opened here. The caller holds the lock."""
        self._in_use.clear()
        with _open_lock, self._translated("close"):
            key = str(self.folder)
            owner, times, integrity = _open.get(key, (os.getpid(), 1, None))
            if times > 1:
                _open[key] = (owner, times - 1, integrity)
            else:
                _open.pop(key, None)
            close = getattr(client, "close", None)  # missing in the oldest chromadb supported
            if close is not None:
                close()
            if times <= 1:
                self._settle()

    def _settle(self) -> None:
        """Chroma let go of its files."""
        if self.folder is not None and not self.read_only:
            blank_all_unused_rows(self.folder)
            if self.integrity is not None:
                with suppress(OSError, StorageError):  # what is not noted is looked at more closely next time
                    self.integrity.note()

    def _too_much(self) -> bool:
        return self._doubted or len(self._in_use) > MAX_IN_USE

    def uses(self, name: str) -> None:
        """A collection is opened; see `relieve`."""
        self._in_use.add(name)

    def relieve(self) -> None:
        """Closes the embedded database if too many collections are open, or it said that it is damaged; it is opened
        again when needed."""
        if not self._too_much() or self.folder is None or self.given is not None or self._gate.is_inside:
            return
        with self._gate.closed(), self._lock:
            client = self._client
            if client is not None and self._too_much() and self._process == os.getpid():
                self._client = None
                self._let_go(client)

    def vacuum(self) -> None:
        """Free room in the embedded database is overwritten; it is closed for that, and opened again when needed.

        Raises:
            StorageError: another memory of this process has it open, or the file cannot be rewritten.
        """
        if self.folder is None or self.given is not None or not self.folder.exists():
            return
        self.client()  # a forked process and a closed memory are told here
        with self._gate.closed(), self._lock:
            with _open_lock:
                if _open.get(str(self.folder), (0, 0, None))[1] > 1:
                    raise StorageError(f"{self.where} is open in another memory of this process. Close that one first.")
                client, self._client = self._client, None
                _open.pop(str(self.folder), None)
            with self._translated("vacuum"):
                if (close := getattr(client, "close", None)) is not None:
                    close()
                del client, close
                gc.collect()  # what is let go of may still write its files
                with closing(sqlite3.connect(self.folder / "chroma.sqlite3", isolation_level=None)) as database:
                    database.execute("VACUUM")
                shutil.rmtree(self.folder.parent / ASIDE, ignore_errors=True)
                self._settle()

    @contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Whatever Chroma raises inside comes out as a `StorageError` that says where and what to do.

        Everything that is done with Chroma is done inside, so that `vacuum` can wait for it.
        """
        with self._gate.passed(), self._translated(doing):
            yield

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        try:
            with exits.native():
                yield
        except ToolMemoryError:
            raise
        except BaseException as error:
            # A panic in Chroma's Rust part is a BaseException, yet nobody asked the program to stop.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            lines = str(error).strip().splitlines() or [""]
            self._doubted = self._doubted or any(each in str(error) for each in _DAMAGED)
            raise StorageError(
                f"{self.where}: could not {doing}: {type(error).__name__}: {lines[0]}. {self._advice()}"
            ) from error

    def _advice(self) -> str:
        if self.given is not None:
            return "Check that the server runs and that the client's host, port, tenant and database are right."
        if self.folder is None:
            return "Nothing on disk is affected."
        return "Check that the folder can be read and written and no other process uses it (`toolmem doctor`)."


def _abandoned(client: Any, process: int, names: set[str]) -> None:
    """A connection in memory is gone: closed, or nobody did that. Not here, where any lock may be held."""
    if names and process == os.getpid():
        with suppress(RuntimeError):  # the process ends
            exits.start("toolmem-abandoned", partial(_close, client, process, names))


def _close(client: Any, process: int, names: set[str]) -> None:
    left = ChromaConnection(None)
    left._client, left._process, left._in_use = client, process, names
    with suppress(StorageError):
        left.close()
