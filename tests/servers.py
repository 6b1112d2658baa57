"""Real servers on loopback, which can be stopped and go on: Postgres and ``chroma run``."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest


class MissingError(Exception):
    """A server cannot be started here; the text says why."""


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Postgres:
    """A Postgres server of its own; see `postgres_run`.

    Attributes:
        dsn: its connection string.
    """

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs, self._data = programs, str(folder / "data")
        port = free_port()
        self.dsn = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        options = f"-h 127.0.0.1 -p {port} -c fsync=off -c unix_socket_directories={folder}"
        self._starting = ("pg_ctl", "-D", self._data, "-w", "-l", str(folder / "log"), "-o", options, "start")

    def make(self) -> None:
        """The database, empty."""
        self._run("initdb", "-D", self._data, "-A", "trust", "-E", "UTF8", "--no-sync")

    def start(self) -> None:
        """Starts the server and waits for it."""
        self._run(*self._starting)

    def stop(self) -> None:
        """Ends it at once, whoever is connected."""
        self._run("pg_ctl", "-D", self._data, "-w", "-m", "immediate", "stop")

    def signal(self, number: int) -> None:
        """Sends a signal to all of its processes: SIGSTOP, and it accepts calls and answers none; SIGCONT."""
        main = int((Path(self._data) / "postmaster.pid").read_text().split()[0])
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(main)], capture_output=True, text=True, check=True)
        for process in (main, *map(int, children.stdout.split())):
            with suppress(ProcessLookupError):
                os.kill(process, number)

    def _run(self, program: str, *arguments: str) -> None:
        command = ["runuser", "-u", "postgres", "--", str(self._programs / program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=90)
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)


@contextmanager
def postgres_run() -> Iterator[Postgres]:
    """A real Postgres server on a port of loopback.

    Raises:
        MissingError: there is none on this machine, or this is not root on a POSIX system.
    """
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if os.name != "posix" or os.getuid() != 0 or not found or shutil.which("runuser") is None:
        raise MissingError("a Postgres server of our own takes Debian's package, and root on a POSIX system")
    folder = Path(tempfile.mkdtemp(prefix="toolmem-pg-"))
    shutil.chown(folder, "postgres", "postgres")
    server = Postgres(found[-1].parent, folder)
    try:
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.signal(signal.SIGCONT)
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def chroma_run(folder: Path, port: int | None = None) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A real ``chroma run`` on a port of loopback: the port and the process."""
    chroma = Path(sys.executable).parent / "chroma"
    if not chroma.exists():
        pytest.skip("the chroma executable is not next to this Python")
    port = port or free_port()
    command = [str(chroma), "run", "--path", str(folder), "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        assert process.poll() is None, (folder / "log").read_text()
        yield port, process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait(timeout=20)


@contextmanager
def chroma_clients() -> Iterator[Callable[[int], Any]]:
    """Makes HTTP clients and closes them."""
    import chromadb
    from chromadb.config import Settings

    clients: list[Any] = []

    def client(port: int) -> Any:
        settings = Settings(anonymized_telemetry=False)
        clients.append(chromadb.HttpClient(host="127.0.0.1", port=port, settings=settings))
        return clients[-1]

    yield client
    for each in clients:
        each.close()
        # chromadb 1.5 leaves its sockets open in Client.close(), and an open socket is a warning here.
        for part in (each, each._admin_client):
            part._server._session.close()
