"""One writing process per memory folder: a lock of the operating system, and a note of who holds it."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Final

import filelock

from langgraph_toolmem.base.errors import LockedError

LOCK: Final = "graph.lock"
HOLDER: Final = "graph.holder"


class FolderLock:
    """Holds the folder from construction to ``release``, or to the end of the process, however it ends.

    Args:
        folder: made if it is missing.

    Raises:
        LockedError: somebody else holds it.
        OSError: the folder cannot be made or written to, or its file system has no locks.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._process = os.getpid()
        # The lock belongs to the process: any thread may release it.
        lock = filelock.FileLock(folder / LOCK, thread_local=False)
        try:
            # `is_held` looks at the lock by taking it for a moment; that moment must not refuse a writer.
            lock.acquire(timeout=0.1, poll_interval=0.02)
        except filelock.Timeout:
            pid = holder(folder)
            who = "another process" if pid is None else f"the process with pid {pid}"
            if pid == self._process:
                who = "this very process, which has it open already"
            raise LockedError(
                f"{folder} is written to by {who}. Close the other memory with `memory.close()`, or restart the kernel "
                "if this is a notebook. Or choose another folder, share one memory between workers with store=..., or "
                "open the folder with read_only=True."
            ) from None
        except NotImplementedError as error:
            raise OSError(f"no file locks here: {error}") from error
        self._lock: filelock.BaseFileLock | None = lock
        with contextlib.suppress(OSError):  # a note for people; the lock does not need it
            (folder / HOLDER).write_text(json.dumps({"pid": self._process}) + "\n", encoding="utf-8")

    def release(self) -> None:
        """Let go. Does nothing in a forked child: it shares the lock with its parent."""
        lock, self._lock = self._lock, None
        if lock is None or os.getpid() != self._process:
            return
        with contextlib.suppress(OSError):
            (self._folder / HOLDER).unlink()
        with contextlib.suppress(OSError):
            lock.release()


def holder(folder: Path) -> int | None:
    """The pid that the note in the folder names; None if there is no readable note."""
    try:
        pid = json.loads((folder / HOLDER).read_text(encoding="utf-8"))["pid"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pid if isinstance(pid, int) else None


def is_held(folder: Path) -> bool | None:
    """Whether a process holds the folder's lock; None where that cannot be told without writing."""
    if sys.platform == "win32":
        return None
    import fcntl

    try:
        fd = os.open(folder / LOCK, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(fd)  # releases it
    return False
