"""What is in a memory folder, for ``toolmem doctor``. Reads only; takes no lock for longer than a look."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from langgraph_toolmem.base.errors import GraphFileError
from langgraph_toolmem.stores import folder_lock, journal, plain_pickle
from langgraph_toolmem.stores.graph_file import JOURNAL, SNAPSHOT


def inspect_folder(folder: str | Path) -> dict[str, Any]:
    """Files of the evidence graph, whether each can be read, and who writes to them.

    Returns:
        ``exists``; ``snapshot`` and ``journal``, each None if there is no such file, else a dict with
        ``bytes``, ``readable``, ``why`` (what is wrong, "" if nothing), ``format_version`` and ``generation``
        (None if unknown), the journal also with ``records``; ``locked`` (None if that cannot be told) and
        ``holder`` (pid, None if unknown or not locked); ``set_aside``, a list of ``{"file", "bytes"}``.
    """
    path = Path(folder)
    locked = folder_lock.is_held(path)
    return {
        "exists": path.is_dir(),
        "snapshot": _file(path / SNAPSHOT, _snapshot),
        "journal": _file(path / JOURNAL, _journal),
        "locked": locked,
        "holder": None if locked is False else folder_lock.holder(path),
        "set_aside": [{"file": file.name, "bytes": _size(file)} for file in sorted(path.glob("*.corrupt-*"))],
    }


def _size(path: Path) -> int:
    return sum(each.stat().st_size for each in [path, *path.rglob("*")] if each.is_file())


def _file(path: Path, read: Callable[[bytes], dict[str, Any]]) -> dict[str, Any] | None:
    """What one file says; `read` takes its bytes and raises GraphFileError if they cannot be used."""
    report: dict[str, Any] = {
        "bytes": None,
        "readable": False,
        "why": "",
        "format_version": None,
        "generation": None,
    }
    try:
        report["bytes"] = path.stat().st_size
        if report["bytes"] > plain_pickle.MAX_BYTES:
            report["why"] = "larger than is ever read"
        else:
            report |= {"readable": True, **read(path.read_bytes())}
    except FileNotFoundError:
        return None
    except plain_pickle.FormatVersionError as error:
        report |= {"readable": False, "why": str(error), "format_version": error.version}
    except (OSError, GraphFileError) as error:
        report |= {"readable": False, "why": str(error)}
    return report


def _snapshot(data: bytes) -> dict[str, Any]:
    return {"format_version": plain_pickle.FORMAT_VERSION, "generation": plain_pickle.snapshot(data)[1]}


def _journal(data: bytes) -> dict[str, Any]:
    found = journal.parse(data)
    return {
        "readable": found.ending != "corrupt" and not found.damaged,
        "why": found.why,
        "format_version": plain_pickle.FORMAT_VERSION,
        "generation": found.generation,
        "records": len(found.records),
    }
