"""A real Chroma server, and clients of it."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def chroma_run(folder: Path, port: int | None = None) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A real ``chroma run`` on a port of loopback: the port and the process."""
    chroma = Path(sys.executable).parent / "chroma"
    if not chroma.exists():
        pytest.skip("the chroma executable is not beside this Python")
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
