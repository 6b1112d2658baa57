"""A gate that many threads pass at once, and that one can close while it works alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from langgraph_toolmem.base import locks


class Gate:
    """Open unless somebody works alone. A thread that is inside may pass again."""

    def __init__(self) -> None:
        self._changed = locks.condition()
        self.forked()
        locks.tell(self)

    def forked(self) -> None:
        """In a process that is forked off nobody is inside."""
        self._inside = 0
        self._is_closed = False
        self._here = threading.local()

    @property
    def is_inside(self) -> bool:
        """Whether this thread has passed."""
        return bool(getattr(self._here, "depth", 0))

    @contextmanager
    def passed(self) -> Iterator[None]:
        """Inside, nobody works alone; waits for who does."""
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
        """Inside, nobody else is; waits for those who are. Not for a thread that has passed."""
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
