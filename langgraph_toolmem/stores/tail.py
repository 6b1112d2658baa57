"""Following a graph file that another process writes. Nothing is ever written here.

The journal is read on from where the last look ended, so that a look costs what is new. The journal's file is held
open: when the writer replaces it, the rest of the old one is read first, and nothing in between is missed (on
Windows an open file could not be replaced, so it is opened for each look and that rest is lost). A new journal
means a new snapshot, which is read again as a whole: it may lack what somebody asked to be forgotten.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any, Final

from langgraph_toolmem.base.errors import GraphFileError, StorageError
from langgraph_toolmem.stores import journal, plain_pickle
from langgraph_toolmem.stores.graph_file import JOURNAL, SNAPSHOT
from langgraph_toolmem.stores.plain_pickle import FormatVersionError

_HOLD_OPEN: Final = os.name == "posix"


@dataclass(slots=True)
class TailChanges:
    """What a look found.

    Attributes:
        events: records that were appended since the last look; at the first look, those of the journal.
        state: the state to start from anew, if `fresh`; None: an empty one.
        fresh: whether what was known before is to be replaced by `state`.
        records: records to apply, after `state` if there is one.
        problems: what cannot be read, one sentence each, for a person.
    """

    events: list[Any] = field(default_factory=list)
    state: dict[str, Any] | None = None
    fresh: bool = False
    records: list[Any] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class GraphTail:
    """Follows the graph file of one folder.

    Args:
        folder: of the graph file; it must be there, its files need not.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._generation = -1  # of the state handed out last
        self._journal = _OpenJournal(folder / JOURNAL)

    def look(self) -> TailChanges:
        """What is new since the last look.

        Raises:
            StorageError: the folder is gone or cannot be read.
            FormatVersionError: a release with another format writes there.
        """
        changes = TailChanges()
        if not self._folder.is_dir():
            raise StorageError(f"{self._folder} is not there any more")
        try:
            # Two at most: a writer that replaces its journal all the time is followed at the next look.
            for _ in range(2):
                # First the question, then the rest: a file that was replaced is not written any more.
                replaced = self._journal.replaced()
                self._take(changes, self._journal.rest())
                before = self._journal.generation
                if not replaced or not self._journal.open():
                    break
                self._start_anew(changes, before, self._journal.rest())
            if self._generation < 0 and not changes.fresh and (self._folder / SNAPSHOT).exists():
                self._start_anew(changes, -1, [])
        except OSError as error:
            raise StorageError(f"{self._folder} cannot be read: {error.strerror or error}") from error
        if self._journal.problem:
            changes.problems.append(self._journal.problem)
        return changes

    def close(self) -> None:
        """Let go of the journal."""
        self._journal.close()

    def __enter__(self) -> GraphTail:
        """The object itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the journal."""
        self.close()

    def _take(self, changes: TailChanges, records: list[Any]) -> None:
        changes.events += records
        if self._journal.generation >= self._generation:
            changes.records += records

    def _start_anew(self, changes: TailChanges, before: int, records: list[Any]) -> None:
        """A new journal was opened and `records` read from it; now the snapshot, in this order (see `graph_file`)."""
        state, generation = self._read_snapshot(changes)
        changes.fresh, changes.state = True, state
        changes.records = records if self._journal.generation >= generation else []
        first_look = self._generation < 0
        if self._journal.generation > before >= 0 or (first_look and changes.records):
            changes.events += records
        self._generation = max(generation, 0)

    def _read_snapshot(self, changes: TailChanges) -> tuple[dict[str, Any] | None, int]:
        path = self._folder / SNAPSHOT
        try:
            if path.stat().st_size > plain_pickle.MAX_BYTES + (1 << 10):
                changes.problems.append(f"{SNAPSHOT} is larger than is ever read")
                return None, 0
            return plain_pickle.snapshot(path.read_bytes())
        except FileNotFoundError:
            return None, 0
        except FormatVersionError as error:
            raise FormatVersionError(f"{path}: {error}", version=error.version) from None
        except GraphFileError as error:
            changes.problems.append(f"{SNAPSHOT} cannot be used ({error})")
            return None, 0


class _OpenJournal:
    """One journal file, read on from where the last reading ended.

    Attributes:
        generation: of the journal that is being read; -1 before the first.
        problem: why nothing more can be read from it, "" while all is well.
    """

    def __init__(self, path: Path) -> None:
        self.generation = -1
        self.problem = ""
        self._path = path
        self._file: FileIO | None = None
        self._identity: tuple[int, int] | None = None
        self._end = 0  # behind the last record that was read
        self._damaged_at = -1  # size of the file when there was damage at `_end`

    def replaced(self) -> bool:
        """Whether another file than the one being read is in its place."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return False
        return self._identity != (status.st_dev, status.st_ino)

    def open(self) -> bool:
        """Turn to the file that is in place now; False if it has no whole header yet."""
        try:
            file = self._path.open("rb", buffering=0)
        except FileNotFoundError:
            return False
        try:
            head = file.read(journal.HEADER_BYTES)
            status = os.fstat(file.fileno())
            generation = journal.parse_header(head) if len(head) == journal.HEADER_BYTES else None
        except FormatVersionError as error:
            file.close()
            raise FormatVersionError(f"{self._path}: {error}", version=error.version) from None
        if generation is None:
            file.close()
            self.problem = f"{JOURNAL} has no readable header"
            return False
        self.close()
        self.generation = generation
        self._identity = (status.st_dev, status.st_ino)
        self._end, self._damaged_at, self.problem = journal.HEADER_BYTES, -1, ""
        if _HOLD_OPEN:
            self._file = file
        else:
            file.close()
        return True

    def rest(self) -> list[Any]:
        """The records behind those read so far, as far as they are whole."""
        if self._identity is None:
            return []
        if self._file is not None:
            return self._read(self._file)
        try:
            with self._path.open("rb", buffering=0) as file:
                status = os.fstat(file.fileno())
                return self._read(file) if self._identity == (status.st_dev, status.st_ino) else []
        except FileNotFoundError:
            return []

    def _read(self, file: FileIO) -> list[Any]:
        size = os.fstat(file.fileno()).st_size
        if size <= self._end or size == self._damaged_at:
            return []
        file.seek(self._end)
        data = file.read()
        records, end, ending, why = journal.parse_frames(data, 0)
        self._end += end
        # What is being written right now may look damaged for a moment: read again once the file has changed.
        self._damaged_at = size if ending == "corrupt" else -1
        self.problem = f"{JOURNAL}: {why}" if ending == "corrupt" else ""
        return records

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
