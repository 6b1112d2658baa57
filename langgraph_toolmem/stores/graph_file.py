"""The evidence graph on disk: a snapshot and an append-only journal in one folder, one writing process.

======================  ========================================================================
``graph.pickle``        snapshot: ``{"generation": g, "state": ...}`` as a plain pickle
``graph.journal``       records that came after snapshot g; its header carries g as well
``graph.lock``          held by the writing process (see `folder_lock`), with ``graph.holder``
``*.corrupt-<n>``       what could not be read; set aside, never deleted
======================  ========================================================================

Whoever reads takes the snapshot of generation s and applies the journal of generation j unless j < s: such a
journal is contained in the snapshot already, because ``compact`` replaces the snapshot first and the journal
after it. Both files are only ever replaced as a whole, and the journal is read before the snapshot, so that a
reader beside a writer sees a state that existed.

What an acknowledged ``append`` survives: the end of the process at any moment. The end of the machine as well
with ``fsync="always"``; with the default ``"snapshot"`` what the operating system had not written by itself
since the last snapshot may be lost; with ``"never"`` the snapshot too.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, Final, Literal

from langgraph_toolmem.base import locks
from langgraph_toolmem.base.errors import GraphFileError, StorageError
from langgraph_toolmem.stores import disk, journal, plain_pickle
from langgraph_toolmem.stores.folder_lock import FolderLock
from langgraph_toolmem.stores.journal import Loaded
from langgraph_toolmem.stores.plain_pickle import FormatVersionError, NotPlainError

SNAPSHOT: Final = "graph.pickle"
JOURNAL: Final = "graph.journal"

_RETRY_EVERY: Final = 100  # appends from one attempt to use a failed disk to the next
_MIN_JOURNAL: Final = 1 << 20

_log = logging.getLogger("langgraph_toolmem.graph_file")


class GraphFile:
    """Snapshot and journal of the evidence graph in one folder.

    A disk that fails never stops the caller: it is logged once, `degraded` says why, and ``append`` and
    ``compact`` return False until an attempt succeeds again. All methods may be called from several threads.

    Args:
        folder: made if it is missing.
        fsync: when to wait for the disk; see the module.
        read_only: take no lock and write nothing; works beside a writing process.
        max_journal_bytes: journal size from which ``should_compact`` is true.

    Attributes:
        degraded: why nothing is written at present; None while all is well (and for `read_only`).
        problems: everything that went wrong so far, one sentence each, for a person.

    Raises:
        LockedError: another process, or another object of this one, writes to the folder.
        StorageError: there is a file where the folder should be.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        fsync: Literal["never", "snapshot", "always"] = "snapshot",
        read_only: bool = False,
        max_journal_bytes: int = 16 << 20,
    ) -> None:
        self.folder: Final = Path(folder)
        self.degraded: str | None = None
        self.problems: list[str] = []
        self._fsync: Final = fsync != "never"
        self._max_journal: Final = max_journal_bytes
        self._mutex = locks.rlock()
        self._process = os.getpid()
        self._lock: FolderLock | None = None
        self._journal = disk.AppendFile(self.folder / JOURNAL, fsync_start=self._fsync, fsync_append=fsync == "always")
        self._generation = 0
        self._snapshot_size = 0
        self._unsaved = 0  # records handed in that are in no file
        self._attempts = 0  # appends since the disk failed
        self._compact_from = 0  # journal size below which compacting is not asked for again
        self._may_write = not read_only
        self._loaded = False
        if not read_only:
            try:
                self._lock = FolderLock(self.folder)
            except (FileExistsError, NotADirectoryError) as error:
                raise StorageError(f"{self.folder} cannot be a memory folder: {error.strerror}") from None
            except OSError as error:
                self._give_up(f"the folder cannot be written to: {error.strerror or error}")

    def __enter__(self) -> GraphFile:
        """The object itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    # -- reading --

    def load(self) -> Loaded:
        """Read snapshot and journal and get ready to append. Call it once, before anything else.

        Nothing on the disk makes it raise: see `Loaded.problems`.
        """
        with self._mutex:
            before = len(self.problems)
            # The order matters beside a writer: see the module.
            log = self._read(JOURNAL)
            state, generation = self._load_snapshot()
            records = self._load_journal(log, generation, has_state=state is not None)
            self._loaded = True
            return Loaded(state, records, self.problems[before:])

    def _read(self, name: str) -> bytes | None:
        try:
            with (self.folder / name).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size > plain_pickle.MAX_BYTES + (1 << 10):
                    self._give_up(f"{name} has {size} bytes, more than is ever read; it is left where it is")
                    return None
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._give_up(f"{name} cannot be read ({error}); it is left where it is")
            return None

    def _load_snapshot(self) -> tuple[dict[str, Any] | None, int]:
        data = self._read(SNAPSHOT)
        if data is None:
            return None, 0
        try:
            state, generation = plain_pickle.snapshot(data)
        except FormatVersionError as error:
            self._give_up(f"{SNAPSHOT}: {error}. It is left where it is")
            return None, 0
        except GraphFileError as error:
            self._problem(f"{SNAPSHOT} cannot be used ({error}); what it held is lost unless it is repaired")
            self._set_aside(SNAPSHOT, SNAPSHOT)
            return None, 0
        self._snapshot_size = len(data)
        return state, generation

    def _load_journal(self, data: bytes | None, generation: int, *, has_state: bool) -> list[Any]:
        self._generation = generation
        if data is None:
            self._start_journal()
            return []
        try:
            found = journal.parse(data)
        except FormatVersionError as error:
            self._give_up(f"{JOURNAL}: {error}. It is left where it is")
            return []
        if found.generation is None:
            self._problem(f"{JOURNAL}: {found.why}; none of its records can be read")
            if found.ending == "corrupt":
                self._set_aside(JOURNAL, "journal.unknown")
            self._start_journal()
            return []
        if found.generation < generation:
            # A crash between the two steps of compact: the snapshot holds these records.
            self._start_journal()
            return []
        if found.generation > generation:
            present = f"{SNAPSHOT} is number {generation}" if has_state else f"there is no readable {SNAPSHOT}"
            self._problem(
                f"{JOURNAL} follows snapshot number {found.generation}, but {present}: what was learned "
                "before the journal is lost, its own records are used"
            )
        self._generation = found.generation
        if found.ending == "torn":
            self._problem(f"{JOURNAL}: {found.why} ({len(data) - found.end} bytes) and dropped")
        if pieces := [*found.damaged, *([(found.end, len(data))] * (found.ending == "corrupt"))]:
            where = ", ".join(f"{start:,}" for start, _ in pieces[:5])
            self._problem(
                f"{JOURNAL}: {found.why}, at byte {where}; what is damaged is lost, all other records are used"
            )
            self._keep_damaged(b"".join(data[start:end] for start, end in pieces))
        if not self._may_write:
            self._journal.size = found.end
        elif found.damaged:
            self._start_journal(found.records)
        else:
            try:
                self._journal.resume(found.end)
            except OSError as error:
                self._degrade(error)
        return found.records

    def refuse_snapshot(self, why: str) -> None:
        """Set the snapshot aside that ``load`` returned: its content cannot be used. Later records can be kept."""
        with self._mutex:
            self._problem(f"{SNAPSHOT} cannot be used ({why}); what it held is lost unless it is repaired")
            self._set_aside(SNAPSHOT, SNAPSHOT)
            self._snapshot_size = 0

    # -- writing --

    def append(self, record: Any) -> bool:
        """Write one plain record behind the others.

        Returns:
            True once the operating system has it (the disk, with ``fsync="always"``), so that the end of this
            process cannot lose it. False if it is only in RAM; the next ``compact`` that succeeds saves it.

        Raises:
            RuntimeError: ``load`` was not called before.
        """
        if not self._writing():
            return False
        with self._mutex:
            if self.degraded is not None:
                self._attempts += 1
                if self._attempts % _RETRY_EVERY:
                    self._unsaved += 1
                    return False
            if not self._journal.there and not self._begin_again():
                return False
            try:
                self._journal.append(journal.frame(record))
            except NotPlainError as error:
                self._problem(f"a record was not stored: {error}", logging.ERROR)
                return False
            except OSError as error:
                self._unsaved += 1
                self._degrade(error)
                return False
            self.degraded = None
            return True

    @property
    def should_compact(self) -> bool:
        """True if the journal outgrew its limit or the snapshot, or if a disk error kept records out."""
        if not self._may_write or self.degraded is not None:
            return False
        size = self._journal.size
        limit = min(self._max_journal, max(_MIN_JOURNAL, self._snapshot_size))
        return size >= self._compact_from and (self._unsaved > 0 or size > limit)

    def compact(self, state: dict[str, Any]) -> bool:
        """Replace the snapshot by `state` and start an empty journal.

        `state` must contain every record appended so far: hold the lock that guards it from before it is read
        until this returns.

        Returns:
            True if the new snapshot is on disk; False if nothing was changed.

        Raises:
            RuntimeError: ``load`` was not called before.
        """
        if not self._writing():
            return False
        with self._mutex:
            following = self._generation + 1
            try:
                data = plain_pickle.dumps({"generation": following, "state": state})
            except NotPlainError as error:
                self._compact_from = self._journal.size + _MIN_JOURNAL  # the same state would fail again
                self._problem(f"the snapshot was not stored: {error}", logging.ERROR)
                return False
            try:
                disk.replace_file(self.folder / SNAPSHOT, data, fsync=self._fsync)
                self._replaced(following, len(data))
            except OSError as error:
                self._degrade(error)
                return False
            except BaseException:
                self._after_interrupt(following)
                raise
            return True

    def _replaced(self, generation: int, size: int) -> None:
        self._generation, self._snapshot_size = generation, size
        self._unsaved = self._compact_from = 0
        self.degraded = None
        # The old journal is ignored from here on; if a new one cannot be made now, `append` tries again
        # and acknowledges nothing before.
        self._start_journal()

    def _after_interrupt(self, following: int) -> None:
        """Looks which snapshot is there, and with it which journal would be read."""
        try:
            _, generation, size = self._snapshot()
            if generation == following:
                self._replaced(following, size)
        except BaseException:
            self._give_up("interrupted while the snapshot was replaced")
            raise

    def _snapshot(self) -> tuple[dict[str, Any] | None, int, int]:
        path = self.folder / SNAPSHOT
        data = path.read_bytes() if path.exists() else b""
        return (*plain_pickle.snapshot(data), len(data)) if data else (None, 0, 0)

    def again(self) -> Loaded | None:
        """What the folder holds of what was handed in; None if that is not all of it."""
        with self._mutex:
            if not self._writing() or self.degraded is not None or self._unsaved:
                return None
            try:
                state, generation, _ = self._snapshot()
                found = journal.parse((self.folder / JOURNAL).read_bytes()[: self._journal.size])
            except (OSError, GraphFileError):
                return None
            whole = Loaded(state, found.records if (found.generation or 0) >= generation else [], [])
            return None if found.why else whole

    def size(self) -> dict[str, int]:
        """Bytes of the two files: ``{"snapshot": ..., "journal": ...}``."""
        with self._mutex:
            return {"snapshot": self._snapshot_size, "journal": self._journal.size}

    def close(self) -> None:
        """Close the journal and release the lock. May be called twice."""
        if os.getpid() != self._process:
            return
        with self._mutex:
            self._may_write = False
            self._journal.close()
            lock, self._lock = self._lock, None
            if lock is not None:
                lock.release()

    def _writing(self) -> bool:
        """False if nothing may be written. Takes no mutex: in a fork it may be held for ever."""
        if not self._may_write:
            return False
        if os.getpid() != self._process:
            self._give_up("the folder belongs to the parent of this forked process; open the memory after forking")
            return False
        if not self._loaded:
            raise RuntimeError("GraphFile.load() has to come first: without it, what the folder holds would be lost")
        return True

    def _start_journal(self, records: list[Any] | None = None) -> None:
        if self._may_write:
            content = b"".join((journal.header(self._generation), *map(journal.frame, records or ())))
            try:
                self._journal.start(content)
            except OSError as error:
                self._degrade(error)

    def _begin_again(self) -> bool:
        """Somebody removed the journal: what it held goes into the next snapshot, unless the folder is another's."""
        if self._journal.path.exists() or not self.folder.exists():
            self._give_up("the folder was removed or replaced while the memory had it open; open it anew to keep more")
        else:
            self._problem(f"{JOURNAL} was removed while the memory had it open; it is begun again")
            self._unsaved += 1
            self._start_journal()
        return self._may_write

    def _set_aside(self, name: str, stem: str) -> None:
        if self._may_write:
            try:
                kept = next(disk.free_names(self.folder, stem))
                (self.folder / name).rename(kept)
            except OSError as error:
                self._give_up(f"{name} could not be set aside ({error}); it is left where it is")
            else:
                self._problem(f"{name} was renamed to {kept.name}")

    def _keep_damaged(self, rest: bytes) -> None:
        if self._may_write:
            try:
                kept = next(disk.free_names(self.folder, f"journal.{self._generation}"))
                disk.replace_file(kept, rest, fsync=self._fsync)
            except OSError as error:
                self._give_up(f"damaged records of {JOURNAL} could not be set aside ({error}); it is left as it is")
            else:
                self._problem(f"{len(rest)} damaged bytes of {JOURNAL} were moved to {kept.name}")

    # -- saying what is wrong --

    def _problem(self, text: str, level: int = logging.WARNING) -> None:
        """Log it and keep it, the first time it is said."""
        if text not in self.problems:
            self.problems.append(text)
            _log.log(level, "%s: %s", self.folder, text)

    def _degrade(self, error: OSError) -> None:
        """The disk failed: go on in RAM and try again later."""
        if self.degraded is None:
            self._attempts = 0
        self.degraded = f"the disk refused to write: {error.strerror or error}"
        self._problem(f"{self.degraded}; the memory goes on in RAM")

    def _give_up(self, reason: str) -> None:
        """Nothing may be written to the folder any more, whatever the disk does."""
        self._may_write = False
        self.degraded = reason
        self._journal.close()
        self._problem(f"{reason}; the memory goes on in RAM")
