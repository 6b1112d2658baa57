"""The files of an embedded Chroma: `inspect` names damaged collections, `rebuild` makes all again from their texts.

A damaged index may end the process that opens it. So `inspect` has a child process open the collections one by one:
this module, run with the folder as its argument.
"""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.stores.database import opened_readonly, readable_rows
from langgraph_toolmem.stores.snapshot import free_name
from langgraph_toolmem.stores.vectors import (
    DATABASE,
    PART,
    REBUILT,
    Label,
    VectorItem,
    VectorStore,
    batches,
    finish_rebuild,
)
from langgraph_toolmem.text.embedders import BUILTIN, Embedder, resolve_embedder

MINUTES: Final = 5.0
TEXT: Final = "chroma:document"
PAGE: Final = 500
_VALUES: Final = "string_value, int_value, float_value, bool_value"


def inspect(memory: Path) -> list[str] | None:
    """Return the damage of the Chroma in a memory's folder, in sentences; None if another process writes there.

    Counts, reads and searches each collection once, in a child process, up to the first that ends it.
    """
    folder = memory / "chroma"
    if not (folder / DATABASE).exists():
        return []
    try:
        with closing(opened_readonly(folder / DATABASE)) as database:
            result = str(database.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.DatabaseError as error:
        result = str(error)
    if result != "ok":
        return [f"{folder / DATABASE} is damaged: {result}"]
    with VectorStore(memory, embedder=resolve_embedder(None), namespace=()) as store:
        if not store.may_write():
            return None
    command = [sys.executable, "-m", __name__, str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 * MINUTES, check=False)
        out, status, err = done.stdout, done.returncode, done.stderr
    except subprocess.TimeoutExpired as error:
        out, status, err = str(error.stdout or b"", "utf-8", "replace"), 1, f"no answer in {MINUTES:.0f} minutes"
    results = dict(line.split("\t", 1) for line in out.splitlines() if "\t" in line)
    ended = f"opening it ended the process (status {status}); those after it were not opened"
    found = {name: ended if why == "?" else why for name, why in results.items() if why != "ok"}
    if status and not found:
        found[DATABASE] = f"it cannot be opened: {(err.strip().splitlines() or ['no error'])[-1]}"
    return [f"{name} in {folder} is damaged: {why}" for name, why in found.items()]


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
                page = collection.get(limit=1, include=["documents", "metadatas", "embeddings"])
                if count != 0:
                    vectors = [[float(value) for value in page["embeddings"][0]]]
                    collection.query(query_embeddings=vectors, n_results=min(count, 10), include=["distances"])
            except BaseException as error:  # noqa: BLE001 - a panic of Chroma's is no Exception
                say(each.name, error)
            else:
                say(each.name, "ok")


def rebuild(
    memory: Path, embedder: Embedder, progress: Callable[[int], None] = lambda _: None, *, keep: bool = True
) -> int:
    """Make a new Chroma from all texts that can be read of the old one; return how many.

    The old folder is renamed to ``chroma.corrupt-N``; it is deleted at the end if `keep` is False. A crash
    before that leaves the old folder as it was, or the next opening puts the new one in its place.
    """
    folder, made, done = memory / "chroma", memory / REBUILT, 0
    held = VectorStore(memory, embedder=embedder, namespace=())
    try:
        held.begin_write()
        shutil.rmtree(made, ignore_errors=True)
        with VectorStore(made, embedder=embedder, namespace=()) as store:
            for label, rows in _collections(folder / DATABASE):
                for some in batches(rows, PAGE):
                    items = [VectorItem(*row) for row in some]
                    store.scoped(label.namespace).upsert(label.kind, items)
                    done += len(items)
                    progress(done)
        old = free_name(folder)
        folder.rename(old)
        if (made / "chroma").exists():
            (made / "chroma").rename(folder)
        shutil.rmtree(made, ignore_errors=True)
        if not keep:
            shutil.rmtree(old)
    except OSError as error:
        raise StorageError(f"{folder} could not be rebuilt: {error}") from error
    finally:
        held.close()
    return done


def embedder_of(memory: Path) -> str | None:
    """Return the name of the embedder of the stored vectors; None if it is the built-in one, or nothing is stored."""
    finish_rebuild(memory)
    found = {label.embedder for label, _ in _collections(memory / "chroma" / DATABASE)}
    names = [name for name in found if not name.startswith(BUILTIN)]
    return names[0] if names else None


def _collections(file: Path) -> Iterator[tuple[Label, list[tuple[str, str, dict[str, Any], str]]]]:
    """Yield the label and rows of each collection of this package, as far as they can be read."""
    with closing(opened_readonly(file)) as database:
        of: dict[str, dict[str, Any]] = defaultdict(dict)
        columns = "collection_id, key, str_value, int_value"
        for owner, key, *values in readable_rows(database, "collection_metadata", columns):
            of[owner][key] = _value(values)
        segments = dict(readable_rows(database, "segments", "id, collection"))
        metadata: dict[int, dict[str, Any]] = defaultdict(dict)
        for number, key, *values in readable_rows(database, "embedding_metadata", f"id, key, {_VALUES}"):
            metadata[number][key] = _value(values)
        for number, key, *values in readable_rows(database, "embedding_metadata_array", f"id, key, {_VALUES}"):
            metadata[number].setdefault(key, []).append(_value(values))
        found: dict[str, list[tuple[str, str, dict[str, Any], str]]] = defaultdict(list)
        for number, segment, key in readable_rows(database, "embeddings", "id, segment_id, embedding_id"):
            if TEXT in (rest := metadata.get(number, {})):
                found[segments.get(segment, "")].append((key, rest.pop(TEXT), rest, rest.pop(PART, "")))
        for owner, labels in of.items():
            if (label := Label.from_metadata(labels)) is not None and found[owner]:
                yield label, found[owner]


def _value(values: list[Any]) -> Any:
    if len(values) == 4 and values[3] is not None:
        return bool(values[3])
    return next((each for each in values if each is not None), None)


if __name__ == "__main__":
    _check(Path(sys.argv[1]))
