"""Damage of the embedded Chroma in a memory's folder, for ``toolmem doctor``.

A damaged index may end the process that opens it, so a child process opens the collections one by one: this module, run
with the folder as its argument.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.stores.chroma import DATABASE, LOCK_ADVICE, CollectionLabel
from langgraph_toolmem.stores.database import opened_readonly
from langgraph_toolmem.stores.indexed import IndexedVectors
from langgraph_toolmem.stores.row_table import RowTable
from langgraph_toolmem.text.embedders import BUILTIN, resolve_embedder


def inspect_chroma(memory: Path) -> list[str] | None:
    """Return the damage of the Chroma in a memory's folder, in sentences; None if another process writes there.

    Counts, reads and searches each collection once, in a child process, up to the first that crashes it. Counts are
    compared with the rows.
    """
    folder = memory / "chroma"
    with IndexedVectors(memory, embedder=resolve_embedder(None), namespace=()) as store:
        if not store.chroma.may_write():
            return [f"{problem}. {LOCK_ADVICE[:-1]}" for problem in store.chroma.problems] or None
    if not (folder / DATABASE).exists():
        return _lost(memory, {})
    damage = _damage_of_database(folder / DATABASE)
    if damage is not None:
        return [damage]
    opened = _open_in_child(folder)
    sentences = [f"{name} in {folder} is damaged: {why}" for name, why in opened.damaged.items()]
    if sentences:
        return sentences
    try:
        return _lost(memory, opened.counts)
    # A damaged memory.db is named where that file is examined.
    except StorageError:
        return []


def _damage_of_database(path: Path) -> str | None:
    try:
        with closing(opened_readonly(path)) as database:
            # One damage is enough to know: the check stops at the first.
            result = str(database.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.DatabaseError as error:
        result = str(error)
    if result == "ok":
        return None
    return f"{path} is damaged: {result}"


@dataclass(frozen=True, slots=True)
class OpenedCollections:
    """Collections that a child process opened: the number of their texts, or their damage."""

    counts: dict[str, int]
    damaged: dict[str, str]


def _open_in_child(folder: Path) -> OpenedCollections:
    ended = _run_child(folder)
    opened = OpenedCollections({}, {})
    for name, result in _results_in(ended.output).items():
        if result.isdecimal():
            opened.counts[name] = int(result)
        elif result == "?":
            opened.damaged[name] = (
                f"opening it ended the process (status {ended.status}); those after it were not opened"
            )
        else:
            opened.damaged[name] = result
    if ended.status and not opened.damaged:
        lines = ended.errors.strip().splitlines() or ["no error"]
        opened.damaged[DATABASE] = f"it cannot be opened: {lines[-1]}"
    return opened


@dataclass(frozen=True, slots=True)
class _EndedChild:
    """A child process that ended or was ended, with its status and its texts."""

    status: int
    output: str
    errors: str


def _run_child(folder: Path) -> _EndedChild:
    minutes = 5.0
    command = [sys.executable, "-m", __name__, str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 * minutes, check=False)
    except subprocess.TimeoutExpired as error:
        return _EndedChild(1, str(error.stdout or b"", "utf-8", "replace"), f"no answer in {minutes:.0f} minutes")
    return _EndedChild(done.returncode, done.stdout, done.stderr)


def _results_in(output: str) -> dict[str, str]:
    """Return the last result of each collection that `_say` printed."""
    results: dict[str, str] = {}
    for line in output.splitlines():
        name, tab, result = line.partition("\t")
        if tab:
            results[name] = result
    return results


def _lost(memory: Path, counts: Mapping[str, int]) -> list[str]:
    """Return a sentence for each collection with fewer texts than its rows have."""
    lost = []
    with RowTable(memory, read_only=True) as table:
        for collection in table.collections():
            name, texts = collection.name, 0
            # An index that was never written lacks nothing: its first writer fills it.
            if collection.progress.indexed:
                texts = table.count_keys(name, indexed=True)
            missing = texts - counts.get(name, 0)
            if missing > 0:
                lost.append(
                    f"{collection.kind}: {missing:,} of {texts:,} texts are missing in {name}; they are found again "
                    "once a process that uses the memory has written to it"
                )
    return lost


def _check(folder: Path) -> None:
    """Print each collection before it is opened, and the result; runs in the child process."""
    import chromadb
    from chromadb.config import Settings

    client: Any = chromadb.PersistentClient(path=folder, settings=Settings(anonymized_telemetry=False))
    with closing(client):
        for listed in client.list_collections():
            # Before it is opened: if that crashes the process, the parent sees at which collection.
            _say(listed.name, "?")
            try:
                count = _count_and_search(client.get_collection(listed.name, embedding_function=None))
            except BaseException as error:  # noqa: BLE001 - a panic of Chroma's is no Exception
                lines = str(error).strip().splitlines() or [type(error).__name__]
                _say(listed.name, lines[0])
            else:
                _say(listed.name, count)


def _count_and_search(collection: Any) -> int:
    # A search too: counting reads only the database, and a damaged index shows only when it is loaded.
    count = int(collection.count())
    page = collection.get(limit=1, include=["metadatas", "embeddings"])
    if count != 0:
        vectors = [[float(value) for value in page["embeddings"][0]]]
        collection.query(query_embeddings=vectors, n_results=min(count, 10), include=["distances"])
    return count


def _say(name: str, result: object) -> None:
    print(name, result, sep="\t", flush=True)  # noqa: T201 - to the parent


def embedder_of(memory: Path) -> str | None:
    """Return the name of the embedder of the stored vectors; None for the built-in one or an empty store."""
    names = set()
    try:
        with closing(opened_readonly(memory / "chroma" / DATABASE)) as database:
            labels = database.execute("SELECT str_value FROM collection_metadata WHERE key = 'toolmem'").fetchall()
    except sqlite3.Error:
        return None
    for (text,) in labels:
        label = CollectionLabel.from_metadata({"toolmem": text})
        if label is not None and not label.embedder.startswith(BUILTIN):
            names.add(label.embedder)
    return min(names, default=None)


if __name__ == "__main__":
    _check(Path(sys.argv[1]))
