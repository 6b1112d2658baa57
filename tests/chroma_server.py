"""A real Chroma server, and clients of it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import servers


@contextmanager
def chroma_run(folder: Path, port: int | None = None) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A real ``chroma run`` on a port of loopback: the port and the process."""
    try:
        with servers.chroma_run(folder, port) as found:
            yield found
    except servers.MissingError as why:
        pytest.skip(str(why))


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
