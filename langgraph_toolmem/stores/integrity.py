"""Damaged indexes of an embedded Chroma: found before Chroma opens them, and set aside.

Chroma ends the process where the files of an index are damaged, or hangs, or says nothing and has forgotten rows. So
each index that was written to disk is looked at before its first use:

- `note`, at a clean close, writes down each index's fingerprint and the number of the last change that is in it, which
  Chroma keeps in ``chroma.sqlite3``. The number is the same: the fingerprint has to be.
- The number is another one, or nothing was noted: a process wrote and was killed, or another program did. Then the
  files have to hang together, with each other and with the rows in ``chroma.sqlite3`` (`hnsw_files.flaw`).

What is damaged leaves Chroma's folder. The rows are in ``chroma.sqlite3``; their vectors are made again from their
texts (`reembed.mended`). Until then the index is one that was written and is not there, which the next process sees.

In a memory's folder: ``chroma/`` is Chroma's, ``indexes.json`` is the note, ``damaged/`` has what was set aside.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from langgraph_toolmem.base import locks
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.stores.hnsw_files import fingerprint, flaw
from langgraph_toolmem.stores.salvage import DATABASE, damage

FORMAT: Final = 1
NOTE: Final = "indexes.json"
ASIDE: Final = "damaged"
MOST_ASIDE: Final = 3
"""Damaged indexes that are kept; nobody needs them but who wants to know what happened."""
RETRY_SECONDS: Final = 60.0
"""After vectors could not be made again (the embedder does not answer), nobody waits for it so long."""

_INDEXES: Final = """
    SELECT collections.id, collections.name, segments.id, collections.dimension, max_seq_id.seq_id
    FROM collections
    JOIN segments ON segments.collection = collections.id AND segments.scope = 'VECTOR'
    JOIN max_seq_id ON max_seq_id.segment_id = segments.id
"""  # without a number the index was never written, and Chroma does not read it
_ROWS: Final = """
    SELECT embedding_id FROM embeddings JOIN segments ON segments.id = embeddings.segment_id
    WHERE segments.collection = ? AND segments.scope = 'METADATA'
"""
_BY_TOPIC: Final = "CREATE INDEX IF NOT EXISTS toolmem_waiting ON embeddings_queue (topic, seq_id)"
"""Chroma reads what waits of one collection whenever it opens it, and without this all that waits: 200 ms of 100,000
rows, of a thousand users or so, instead of 1 ms."""
_WAITING: Final = "SELECT DISTINCT topic, id FROM embeddings_queue"  # of all collections; Chroma empties it by and by


class Index(NamedTuple):
    """One index of Chroma's that was written to disk.

    Attributes:
        collection: whose it is, an id.
        segment: name of its folder.
        last: number of the last change that is in it.
    """

    collection: str
    name: str
    segment: str
    dimension: int
    last: str


class Integrity:
    """Which indexes in Chroma's folder may be opened. Made while Chroma is closed, for as long as it is open.

    Args:
        folder: Chroma's.
        read_only: another process may be writing: nothing is set aside or noted.

    Raises:
        StorageError: ``chroma.sqlite3`` is damaged, or not Chroma's.
        OSError: a file cannot be read.
    """

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        self._folder, self._read_only = folder, read_only
        self._lock = locks.lock()
        self.mending = locks.rlock()
        """Held while vectors are made again."""
        self._damaged: dict[str, str] = {}
        self._tried: dict[str, float] = {}
        self._noted = noted = _read_note(folder.parent / NOTE)
        with _database(folder) as database:
            indexes = _indexes(database)
            self._unseen = {
                index.collection: index for index in indexes if read_only or _as_noted(index, noted) is not None
            }
            changed = [index for index in indexes if index.collection not in self._unseen]
            for index, why in _flaws(database, folder, changed):
                self._set_aside(index, why)
        self.note()

    def flaw(self, collection: str) -> str | None:
        """What is wrong with the index of the collection with that id. To be asked before Chroma uses it.

        Raises:
            OSError: it cannot be read or set aside.
        """
        with self._lock:
            index = self._unseen.get(collection)
            if index is not None:
                why = self._look(index)
                if self._read_only and why is not None:
                    return why  # maybe it is being written
                if why is not None:
                    self._set_aside(index, why)
                del self._unseen[collection]
            return self._damaged.get(collection)

    def _look(self, index: Index) -> str | None:
        if _as_noted(index, self._noted) == fingerprint(self._folder / index.segment):
            return None
        if not self._read_only:
            return "its files are not as they were written"
        with _database(self._folder) as database:  # somebody may have written since
            return next((why for _, why in _flaws(database, self._folder, [index])), None)

    def may_mend(self, collection: str) -> bool:
        """Whether to try now; asking is trying."""
        now = time.monotonic()
        waited = now - self._tried.get(collection, -math.inf)
        if waited < RETRY_SECONDS:
            return False
        self._tried[collection] = now
        return True

    def mended(self, collection: str) -> None:
        """A collection has been made anew under another id."""
        with self._lock:
            self._damaged.pop(collection, None)

    def note(self) -> None:
        """Writes down what the indexes are like now. Chroma is closed.

        Raises:
            StorageError: ``chroma.sqlite3`` is damaged.
            OSError: a file cannot be read or written.
        """
        if self._read_only or not self._folder.exists():
            return
        with _database(self._folder) as database:
            indexes = [index for index in _indexes(database) if index.collection not in self._damaged]
            with suppress(sqlite3.OperationalError):  # no room: it goes without
                if database is not None:
                    database.execute(_BY_TOPIC)
        noted = {}
        for index in indexes:
            known = _as_noted(index, self._noted)
            if known is None:
                known = fingerprint(self._folder / index.segment)
            noted[index.segment] = index.last, known
        state = _state(self._folder)
        if (noted, state) != (self._noted, _database_noted(self._folder)):
            _write_note(self._folder.parent / NOTE, noted, state)
            self._noted = noted

    def inspect(self) -> list[str]:
        """What is wrong with which index, in sentences."""
        found = [(index.name, self.flaw(index.collection)) for index in list(self._unseen.values())]
        return [f"Chroma's index of the collection {name} is damaged: {why}" for name, why in found if why is not None]

    def _set_aside(self, index: Index, why: str) -> None:
        self._damaged[index.collection] = why
        segment = self._folder / index.segment
        if self._read_only or not segment.exists():
            return
        aside = self._folder.parent / ASIDE
        aside.mkdir(exist_ok=True)
        segment.rename(aside / f"{time.time_ns()}-{index.segment}")
        for old in set_aside(self._folder.parent)[:-MOST_ASIDE]:
            shutil.rmtree(old, ignore_errors=True)


def set_aside(memory: Path) -> list[Path]:
    """Indexes of a memory's folder that were damaged and set aside, oldest first."""
    return sorted((memory / ASIDE).glob("*-*"))


def inspect(memory: Path) -> list[str]:
    """What is wrong with the Chroma in a memory's folder, in sentences. Nothing is changed; nobody may be writing.

    Raises:
        OSError: a file cannot be read.
    """
    folder = memory / "chroma"
    try:
        if (said := damage(folder)) is not None:
            return [
                f"{folder / DATABASE} is damaged: {said}. Put back a copy of the folder; or go on: when the memory is "
                "next used, it is set aside, and what can be read of it is put into a new one"
            ]
        found = Integrity(folder, read_only=True).inspect()
    except StorageError as error:
        return [str(error).rstrip(".")]
    return [f"{each}. It is made again from its texts when the memory is next used" for each in found]


@contextmanager
def _database(folder: Path) -> Iterator[sqlite3.Connection | None]:
    """Chroma's own; ``None`` if there is none yet."""
    file = folder / DATABASE
    if not file.exists():
        yield None
        return
    try:
        with closing(sqlite3.connect(file)) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if tables and "migrations" not in tables:
                raise StorageError(f"{file} was not made by Chroma. Move it away, or choose another folder.")
            yield database if {"max_seq_id", "embeddings", "embeddings_queue"} <= tables else None
    except (sqlite3.Error, ValueError, TypeError, AttributeError) as error:  # the latter: of what was read
        raise StorageError(
            f"Chroma in {folder}: {file.name} cannot be read ({error}). If it is damaged, put back a copy of the "
            "folder, or move the folder away: the memory goes on with what the graph knows."
        ) from error


def _as_noted(index: Index, noted: Mapping[str, tuple[str, int]]) -> int | None:
    """The fingerprint it has to have; ``None`` if it was written since the note."""
    last, known = noted.get(index.segment, ("", 0))
    return known if last == index.last else None


def _indexes(database: sqlite3.Connection | None) -> list[Index]:
    found = [] if database is None else database.execute(_INDEXES).fetchall()
    # a segment is a folder's name, and may be moved: no path
    return [
        Index(owner, name, str(UUID(segment)), int(length or 0), str(last))
        for owner, name, segment, length, last in found
    ]


def _flaws(database: sqlite3.Connection | None, folder: Path, indexes: Sequence[Index]) -> Iterator[tuple[Index, str]]:
    if database is None or not indexes:
        return
    waiting: dict[str, set[str]] = defaultdict(set)
    for topic, key in database.execute(_WAITING):
        waiting[topic.rpartition("/")[2]].add(key)
    for index in indexes:
        ids = {key for (key,) in database.execute(_ROWS, [index.collection])}
        if why := flaw(folder / index.segment, index.dimension, ids, waiting[index.collection]):
            yield index, why


def _read_note(file: Path) -> dict[str, tuple[str, int]]:
    """Segment -> last change, fingerprint; nothing of a file that cannot be understood."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            return {}
        return {str(segment): (str(last), int(known)) for segment, (last, known) in data["indexes"].items()}
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def as_noted(folder: Path) -> bool:
    """Whether Chroma's database is the file that was there when it was closed last, by size and time."""
    return (state := _state(folder)) is not None and state == _database_noted(folder)


def _database_noted(folder: Path) -> list[int] | None:
    try:
        found = json.loads((folder.parent / NOTE).read_text(encoding="utf-8"))["database"]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return found if isinstance(found, list) else None


def _state(folder: Path) -> list[int] | None:
    try:
        found = (folder / DATABASE).stat()
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns]


def _write_note(file: Path, noted: dict[str, tuple[str, int]], state: list[int] | None) -> None:
    draft = file.with_suffix(f".{os.getpid()}.tmp")
    said = {"format": FORMAT, "indexes": noted, "database": state}
    draft.write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
    draft.replace(file)
