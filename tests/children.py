"""Processes of their own for tests, forked from one that has imported the package: a start takes no two seconds."""

from __future__ import annotations

import array
import atexit
import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any

from places import ROOT

TESTS = Path(__file__).parent
SERVER = """
import array, json, os, signal, socket, sys, threading
import chromadb, langchain.agents, langgraph_toolmem.middleware, langgraph_toolmem.nodes

def child(said, fds):
    for place, fd in enumerate(fds):
        os.dup2(fd, place)
        os.close(fd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(said["environ"])
    os.chdir(said["cwd"])
    sys.argv = ["-c", *said["argv"]]
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")
    sys.path[:0] = said["path"]
    main = type(sys)("__main__")
    sys.modules["__main__"] = main
    exec(compile(said["code"], "<child>", "exec"), vars(main))

def wait(pid, to):
    _, status = os.waitpid(pid, 0)
    to.sendall(json.dumps(os.waitstatus_to_exitcode(status)).encode() + b"\\n")
    to.close()

listening = socket.socket(fileno=0)
while True:
    to, _ = listening.accept()
    data, ancillary, _, _ = to.recvmsg(1 << 16, socket.CMSG_LEN(12))
    fds = array.array("i", ancillary[0][2][:12]).tolist()
    while not data.endswith(b"\\n"):
        data += to.recv(1 << 16)
    if (pid := os.fork()) == 0:
        listening.close()
        to.close()
        child(json.loads(data), fds)
        break
    for fd in fds:
        os.close(fd)
    to.sendall(b"%d\\n" % pid)
    threading.Thread(target=wait, args=(pid, to), daemon=True).start()
"""


@cache
def _server() -> str:
    """The address of this test process's server."""
    listening = socket.socket(socket.AF_UNIX)
    address = f"\0toolmem-tests-{os.getpid()}"
    listening.bind(address)
    listening.listen(64)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(TESTS)])}
    server = subprocess.Popen([sys.executable, "-W", "ignore", "-c", SERVER], stdin=listening, env=environ)
    listening.close()
    atexit.register(lambda: (server.kill(), server.wait()))
    return address


class Child:
    """A process that runs a program; what it prints is read as it comes.

    Args:
        code: the program.
        argv: its arguments.
        cwd: its folder; the repository if not given.
        environ: added to its environment.
    """

    def __init__(self, code: str, *argv: Any, cwd: Path = ROOT, environ: dict[str, str] | None = None) -> None:
        stdin, self._stdin = os.pipe()
        self._stdout, stdout = os.pipe()
        self._stderr, stderr = os.pipe()
        said = {"code": code, "argv": [str(each) for each in argv], "cwd": str(cwd), "path": [str(TESTS)]}
        said["environ"] = {**os.environ, **(environ or {})}
        self._told = socket.socket(socket.AF_UNIX)
        self._told.connect(_server())
        data = json.dumps(said).encode() + b"\n"
        fds = array.array("i", [stdin, stdout, stderr])
        sent = self._told.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        self._told.sendall(data[sent:])
        for each in fds:
            os.close(each)
        self._answers = self._told.makefile("r")
        self.pid = int(self._answers.readline())
        self.returncode: int | None = None
        self.stderr = ""
        self.lines: queue.Queue[str | None] = queue.Queue()
        self._readers = [threading.Thread(target=each, daemon=True) for each in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        with os.fdopen(self._stdout) as out:
            for line in out:
                if line.endswith("\n"):
                    self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def _read_errors(self) -> None:
        with os.fdopen(self._stderr) as err:
            self.stderr = err.read()

    def say(self, line: str = "") -> None:
        """Writes a line to its standard input."""
        os.write(self._stdin, f"{line}\n".encode())

    def line(self, timeout: float = 60) -> str:
        """The next line it prints."""
        line = self.lines.get(timeout=timeout)
        assert line is not None, self.wait() and self.stderr
        return line

    def wait(self, timeout: float = 60) -> int:
        """Its exit status, below 0 a signal's number, when it ended."""
        if self.returncode is None:
            self._told.settimeout(timeout)
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._told.close()
            os.close(self._stdin)
            for reader in self._readers:
                reader.join(timeout)
        return self.returncode

    def kill(self) -> list[str]:
        """Kills it, if it runs yet, with signal 9; what it had printed that was not read."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.wait()
        return [line for line in iter(self.lines.get, None) if line is not None]


def run(code: str, *argv: Any, **how: Any) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end."""
    child = Child(code, *argv, **how)
    status = child.wait()
    printed = "".join(f"{line}\n" for line in iter(child.lines.get, None))
    return subprocess.CompletedProcess([code, *argv], status, printed, child.stderr)
