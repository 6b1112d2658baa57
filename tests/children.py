"""Processes of their own for tests; what they print is read as it comes."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

from places import ROOT, TESTS


class Child:
    """A process that runs a program.

    Args:
        code: the program.
        argv: its arguments.
    """

    def __init__(self, code: str, *argv: Any) -> None:
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(TESTS)])}
        command = [sys.executable, "-W", "ignore", "-c", code, *map(str, argv)]
        pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self._process = subprocess.Popen(command, cwd=ROOT, env=environ, text=True, **pipes)
        self.stderr = ""
        self.lines: queue.Queue[str | None] = queue.Queue()
        self._readers = [threading.Thread(target=each, daemon=True) for each in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            if line.endswith("\n"):
                self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr
        self.stderr = self._process.stderr.read()

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def say(self, line: str = "") -> None:
        """Write a line to its standard input."""
        assert self._process.stdin
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def line(self, timeout: float = 240) -> str:
        """Return the next line it prints."""
        line = self.lines.get(timeout=timeout)
        assert line is not None, self.wait() and self.stderr
        return line

    def wait(self, timeout: float = 240) -> int:
        """Wait for its end; return its exit status, below 0 a signal's number."""
        with self._process:
            status = self._process.wait(timeout)
            for reader in self._readers:
                reader.join(timeout)
        return status

    def kill(self) -> list[str]:
        """Kill it with signal 9, if it still runs; return the printed lines that were not read."""
        with suppress(ProcessLookupError):
            self._process.kill()
        self.wait()
        return [line for line in iter(self.lines.get, None) if line is not None]


def run(code: str, *argv: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    child = Child(code, *argv)
    status = child.wait()
    printed = "".join(f"{line}\n" for line in iter(child.lines.get, None))
    return subprocess.CompletedProcess([code, *argv], status, printed, child.stderr)
