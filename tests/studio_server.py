"""The real ``langgraph dev`` on a free loopback port, in a folder of its own, without network and key."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from langgraph_sdk import get_sync_client
from langgraph_sdk.client import SyncLangGraphClient
from servers import free_port

ROOT = Path(__file__).parent.parent
CLOSED_PORT = "http://127.0.0.1:9"
"""Where everything goes that would leave the machine."""


@dataclass
class StudioServer:
    """A server that is up."""

    url: str
    folder: Path
    client: SyncLangGraphClient
    log_file: Path
    process: subprocess.Popen[bytes]

    def log(self, start: int = 0) -> str:
        """What the server wrote, from a byte on."""
        return self.log_file.read_bytes()[start:].decode(errors="replace")


def project(folder: Path, more_graphs: Mapping[str, str], *files: Path) -> Path:
    """A copy of what ``langgraph.json`` needs, with more graphs in it. Returns the folder."""
    import json

    config: dict[str, Any] = json.loads((ROOT / "langgraph.json").read_text())
    config["graphs"].update(more_graphs)
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    for file in files:
        shutil.copy(file, folder)
    (folder / "langgraph.json").write_text(json.dumps(config))
    return folder


@contextmanager
def langgraph_dev(folder: Path, *, patience: float = 90) -> Iterator[StudioServer]:
    """Starts the server in `folder`, waits until it is ready, and stops all its processes in the end."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    log_file = folder / "server.log"
    command = [sys.executable, "-m", "langgraph_cli", "dev", "--no-browser", "--no-reload"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=environment(), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        wait_until_ready(process, url, log_file, patience)
        with get_sync_client(url=url, timeout=60) as client:
            yield StudioServer(url, folder, client, log_file, process)
    finally:
        stop(process)


def environment() -> dict[str, str]:
    """The environment without keys and tracing; whatever would go out ends at a closed port."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("LANGSMITH_", "LANGCHAIN_", "LANGGRAPH_"))}
    proxies = {f"{scheme}_proxy": CLOSED_PORT for scheme in ("http", "https", "all")}
    proxies |= {name.upper(): value for name, value in proxies.items()}
    return {
        **kept,
        **proxies,
        "no_proxy": "127.0.0.1",
        "NO_PROXY": "127.0.0.1",
        "LANGGRAPH_CLI_NO_ANALYTICS": "1",
        "LANGSMITH_TRACING": "false",
        "NO_COLOR": "1",
        "PYTHONUNBUFFERED": "1",
    }


def wait_until_ready(process: subprocess.Popen[bytes], url: str, log_file: Path, patience: float) -> None:
    end = time.monotonic() + patience
    with httpx.Client(trust_env=False) as http:
        while time.monotonic() < end and process.poll() is None:
            with suppress(httpx.TransportError):
                if http.get(f"{url}/ok").is_success:
                    return
            time.sleep(0.2)
    raise RuntimeError(f"langgraph dev is not ready:\n{log_file.read_text(errors='replace')[-4000:]}")


def stop(process: subprocess.Popen[bytes], patience: float = 15) -> None:
    """Stops the server and whatever it started: they are one process group."""
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)
            break
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
