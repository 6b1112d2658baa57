"""The files of an embedded Chroma, for ``toolmem doctor``: `inspect` names damaged and incomplete collections.

A damaged index may end the process that opens it. So `inspect` has a child process open the collections one by one:
this module, run with the folder as its argument.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.stores.database import opened_readonly
from langgraph_toolmem.stores.indexed import IndexedVectors
from langgraph_toolmem.stores.row_table import RowTable
from langgraph_toolmem.stores.vectors import DATABASE, LOCK_ADVICE, Label
from langgraph_toolmem.text.embedders import BUILTIN, resolve_embedder

MINUTES: Final = 5.0


def inspect(memory: Path) -> list[str] | None:
    """Return the damage of the Chroma in a memory's folder, in sentences; None if another process writes there.

    Counts, reads and searches each collection once, in a child process, up to the first that ends it. Counts are
    compared with the rows.
    """
    folder = memory / "chroma"
    with IndexedVectors(memory, embedder=resolve_embedder(None), namespace=()) as store:
        if not store.may_write():
            return [f"{problem}. {LOCK_ADVICE[:-1]}" for problem in store.problems] or None
    if not (folder / DATABASE).exists():
        return _lost(memory, {})
    try:
        with closing(opened_readonly(folder / DATABASE)) as database:
            result = str(database.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.DatabaseError as error:
        result = str(error)
    if result != "ok":
        return [f"{folder / DATABASE} is damaged: {result}"]
    command = [sys.executable, "-m", __name__, str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 * MINUTES, check=False)
        out, status, err = done.stdout, done.returncode, done.stderr
    except subprocess.TimeoutExpired as error:
        out, status, err = str(error.stdout or b"", "utf-8", "replace"), 1, f"no answer in {MINUTES:.0f} minutes"
    results = dict(line.split("\t", 1) for line in out.splitlines() if "\t" in line)
    ended = f"opening it ended the process (status {status}); those after it were not opened"
    found = {name: ended if why == "?" else why for name, why in results.items() if not why.isdecimal()}
    if status and not found:
        found[DATABASE] = f"it cannot be opened: {(err.strip().splitlines() or ['no error'])[-1]}"
    damage = [f"{name} in {folder} is damaged: {why}" for name, why in found.items()]
    try:
        return damage or _lost(memory, {name: int(number) for name, number in results.items()})
    except StorageError:  # a damaged memory.db is named where that file is examined
        return damage


def _lost(memory: Path, counts: dict[str, int]) -> list[str]:
    """Return a sentence for each collection with fewer texts than its rows have."""
    lost = []
    with RowTable(memory, read_only=True) as table:
        for name, kind, _, progress in table.collections():
            texts = table.count_keys(name, indexed=True) if progress.indexed else 0
            if counts.get(name, 0) < texts:
                lost.append(
                    f"{kind}: {texts - counts.get(name, 0):,} of {texts:,} texts are missing in {name}; they are found "
                    "again once a process that uses the memory has written to it"
                )
    return lost


def _check(folder: Path) -> None:
    """Print each collection before it is opened, and the result; runs in the child process."""
    import chromadb
    from chromadb.config import Settings

    def say(name: str, what: object) -> None:
        print(name, (str(what).strip().splitlines() or [type(what).__name__])[0], sep="\t", flush=True)  # noqa: T201 - to the parent

    client: Any = chromadb.PersistentClient(path=folder, settings=Settings(anonymized_telemetry=False))
    with closing(client):
        for each in client.list_collections():
            say(each.name, "?")
            try:
                collection = client.get_collection(each.name, embedding_function=None)
                count = collection.count()
                page = collection.get(limit=1, include=["metadatas", "embeddings"])
                if count != 0:
                    vectors = [[float(value) for value in page["embeddings"][0]]]
                    collection.query(query_embeddings=vectors, n_results=min(count, 10), include=["distances"])
            except BaseException as error:  # noqa: BLE001 - a panic of Chroma's is no Exception
                say(each.name, error)
            else:
                say(each.name, count)


def embedder_of(memory: Path) -> str | None:
    """Return the name of the embedder of the stored vectors; None if it is the built-in one, or nothing is stored."""
    names = set()
    try:
        with closing(opened_readonly(memory / "chroma" / DATABASE)) as database:
            labels = database.execute("SELECT str_value FROM collection_metadata WHERE key = 'toolmem'").fetchall()
    except sqlite3.Error:
        return None
    for (text,) in labels:
        label = Label.from_metadata({"toolmem": text})
        if label is not None and not label.embedder.startswith(BUILTIN):
            names.add(label.embedder)
    return min(names, default=None)


if __name__ == "__main__":
    _check(Path(sys.argv[1]))
