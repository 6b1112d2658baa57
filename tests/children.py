"""Processes of their own for tests; what they print is read as it comes."""

from __future__ import annotations

import atexit
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from functools import cache
from typing import Any

import pytest
from nursery import NUMBER
from places import ROOT, TESTS

FRESH = "import os, sys; os.execv(sys.executable, [sys.executable, '-W', 'ignore', '-c', *sys.argv[1:]])"


def environment() -> dict[str, str]:
    """Return the environment of a process that imports the package and the tests' helpers."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(TESTS)])}


@cache
def nursery() -> socket.socket:
    """Start the process that forks programs; it ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-W", "ignore", str(TESTS / "nursery.py"), str(theirs.fileno())]
    given: dict[str, Any] = {"cwd": ROOT, "env": environment(), "stdin": subprocess.DEVNULL}
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()], **given)
    theirs.close()
    atexit.register(process.wait)
    atexit.register(ours.close)  # the last one registered is called first
    return ours


class Child:
    """A process that runs a program.

    Args:
        code: the program.
        argv: its arguments.
        fresh: it starts in an interpreter that has imported nothing.
    """

    def __init__(self, code: str, *argv: Any, fresh: bool = False) -> None:
        if not hasattr(os, "fork"):
            pytest.skip("programs are forked")
        pipes = [os.pipe() for _ in range(4)]
        theirs = [pipes[0][0], *(writer for _, writer in pipes[1:])]
        code, *arguments = [FRESH, code, *map(str, argv)] if fresh else [code, *map(str, argv)]
        request = {"code": code, "argv": arguments, "environ": environment()}
        socket.send_fds(nursery(), [json.dumps(request).encode()], theirs)
        for descriptor in theirs:
            os.close(descriptor)
        self._stdin = os.fdopen(pipes[0][1], "w")
        self._stdout, self._stderr, self._numbers = (os.fdopen(reader, "rb") for reader, _ in pipes[1:])
        self.pid = self._number()
        self.returncode: int | None = None
        self.stderr = ""
        self.lines: queue.Queue[str | None] = queue.Queue()
        to_read = (self._read, self._read_errors, self._read_status)
        self._readers = [threading.Thread(target=each, daemon=True) for each in to_read]
        for reader in self._readers:
            reader.start()

    def _number(self) -> int:
        return int(NUMBER.unpack(self._numbers.read(NUMBER.size))[0])

    def _read(self) -> None:
        for line in self._stdout:
            if line.endswith(b"\n"):
                self.lines.put(line.decode().rstrip("\n"))
        self.lines.put(None)

    def _read_errors(self) -> None:
        self.stderr = self._stderr.read().decode(errors="replace")

    def _read_status(self) -> None:
        self.returncode = self._number()

    def say(self, line: str = "") -> None:
        """Write a line to its standard input."""
        self._stdin.write(f"{line}\n")
        self._stdin.flush()

    def line(self, timeout: float = 240) -> str:
        """Return the next line it prints."""
        line = self.lines.get(timeout=timeout)
        assert line is not None, self.wait() and self.stderr
        return line

    def wait(self, timeout: float = 240) -> int:
        """Wait for its end; return its exit status, below 0 a signal's number."""
        for reader in reversed(self._readers):
            reader.join(timeout)
        assert self.returncode is not None, "it has not ended"
        with suppress(BrokenPipeError):
            self._stdin.close()
        for file in (self._stdout, self._stderr, self._numbers):
            file.close()
        return self.returncode

    def kill(self) -> list[str]:
        """Kill it with signal 9, if it still runs; return the printed lines that were not read."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self.wait()
        return [line for line in iter(self.lines.get, None) if line is not None]


def run(code: str, *argv: Any, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    child = Child(code, *argv)
    status = child.wait(timeout)
    printed = "".join(f"{line}\n" for line in iter(child.lines.get, None))
    return subprocess.CompletedProcess([code, *argv], status, printed, child.stderr)
