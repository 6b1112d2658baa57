"""Something that takes long, done in a thread, and waited for as long as one likes."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Background:
    """Does one thing at a time. Safe to use from several threads.

    Args:
        do: what takes long.
        name: of the thread.
    """

    def __init__(self, do: Callable[[], object], *, name: str) -> None:
        self._do, self._name = do, name
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def done(self, wait: float | None) -> bool:
        """Whether it is done, after `wait` seconds at most; it goes on. Asked again after that, it is done again.

        Raises:
            Exception: what it raised; it is tried again the next time.
        """
        with self._lock:
            if self._thread is None:
                self._failure = None
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            thread = self._thread
        thread.join(wait)
        if thread.is_alive():
            return False
        with self._lock:
            self._thread = None if self._thread is thread else self._thread
            if self._failure is not None:
                raise self._failure
        return True

    def _run(self) -> None:
        try:
            self._do()
        except Exception as error:  # noqa: BLE001 - told to who asks
            self._failure = error
