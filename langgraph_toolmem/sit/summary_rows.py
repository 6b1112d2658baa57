"""State summaries as rows of a Chroma collection: written with vectors made before, read with them.

A summary is one row. A retired one moves to a row of another id, without its text: so another worker that
compares ids sees it go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from langgraph_toolmem.search.embedders import clean
from langgraph_toolmem.sit.summary import Merged, StoredSummary

if TYPE_CHECKING:
    from langgraph_toolmem.stores.vectors import VectorStore

KIND = "summaries"
PAGE = 500  # rows read or written at once: the quickest of 500, 1000 and 5000 where 10,000 were read
_GONE = "gone-"


def row_id(summary: StoredSummary) -> str:
    """The id of a summary's row."""
    return _GONE + summary.id if summary.retired else summary.id


def summary_id(row: str) -> str:
    """The id of the summary in a row."""
    return row.removeprefix(_GONE)


def rows_of(summary: StoredSummary) -> list[str]:
    """All rows a summary can have left: a process may have been killed between writing one and deleting one."""
    return [summary.id, _GONE + summary.id]


def standing(rows: Sequence[str]) -> list[str]:
    """Of the two rows a summary may have only the retired one."""
    retired = {summary_id(row) for row in rows if row.startswith(_GONE)}
    return [row for row in rows if row not in retired]


def to_metadata(summary: StoredSummary) -> dict[str, Any]:
    """What is kept beside text and vector. ``None`` stands for a key that is not there."""
    return {
        "source": clean(summary.source),
        "target": clean(summary.target),
        "run": summary.run or None,
        "user": summary.user or None,
        "time": summary.time,
        "made_by": summary.made_by or None,
        "seen": summary.seen,
        "offered": summary.offered,
        "followed": summary.followed,
        "right": summary.right,
        "merged": " ".join(":".join(each) for each in summary.merged) or None,
        "retired": summary.retired,
    }


def from_row(key: str, text: str, metadata: Mapping[str, Any], vector: Any) -> StoredSummary | None:
    """The summary in a row; ``None`` if the row is damaged."""
    try:
        merged = (entry.split(":") for entry in str(metadata.get("merged") or "").split())
        return StoredSummary(
            id=summary_id(key),
            text="" if metadata["retired"] else text,
            source=str(metadata["source"]),
            target=str(metadata["target"]),
            run=str(metadata.get("run") or ""),
            time=float(metadata["time"]),
            made_by=str(metadata.get("made_by") or ""),
            vector=np.asarray(vector, dtype=np.float32),
            seen=int(metadata["seen"]),
            offered=int(metadata["offered"]),
            followed=int(metadata["followed"]),
            right=int(metadata["right"]),
            user=str(metadata.get("user") or ""),
            merged=tuple(Merged(entry[0], entry[1], entry[2]) for entry in merged),
            retired=bool(metadata["retired"]),
        )
    except (KeyError, IndexError, TypeError, ValueError):
        return None


class SummaryRows:
    """The collection of summaries of one `VectorStore`. Every method raises `StorageError` if Chroma fails."""

    def __init__(self, vectors: VectorStore) -> None:
        self._vectors = vectors

    def read(self, rows: Sequence[str] | None = None) -> Iterator[StoredSummary | None]:
        """Summaries of these rows, or of all, page by page; ``None`` for each damaged row."""
        offset = 0
        while rows is None or offset < len(rows):
            which: dict[str, Any] = {"limit": PAGE, "offset": offset}
            if rows is not None:
                which = {"ids": list(rows[offset : offset + PAGE])}
            page = self._get(which, ["embeddings", "documents", "metadatas"])
            if page is None or (rows is None and not page["ids"]):
                return
            columns = (page[name] for name in ("ids", "documents", "metadatas", "embeddings"))
            for key, text, metadata, vector in zip(*columns, strict=True):
                yield from_row(key, text or "", metadata or {}, vector)
            offset += PAGE

    def ids(self, where: Mapping[str, str] | None = None) -> list[str]:
        """Ids of the rows with this metadata, or of all."""
        page = self._get({} if where is None else {"where": dict(where)}, [])
        return [] if page is None else list(page["ids"])

    def metadata(self, rows: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Metadata of those of the rows that are there."""
        found: dict[str, dict[str, Any]] = {}
        for start in range(0, len(rows), PAGE):
            page = self._get({"ids": list(rows[start : start + PAGE])}, ["metadatas"])
            if page is not None:
                found.update(zip(page["ids"], page["metadatas"], strict=True))
        return found

    def write(self, summaries: Sequence[StoredSummary]) -> None:
        """Keeps summaries with their vectors, whole."""
        for start in range(0, len(summaries), PAGE):
            part = summaries[start : start + PAGE]
            arguments: dict[str, Any] = {
                "ids": [row_id(each) for each in part],
                "embeddings": [each.vector for each in part],
                # A row without text could not be embedded again by every embedder.
                "documents": [f"{each.source} {each.target}" if each.retired else each.text for each in part],
                "metadatas": [to_metadata(each) for each in part],
            }
            self._do("write", "upsert", arguments, dimension=len(part[0].vector))

    def amend(self, changes: Mapping[str, Mapping[str, Any]]) -> None:
        """Changes metadata of rows; what is not named stays, and a row that is gone stays gone."""
        rows = list(changes)
        for start in range(0, len(rows), PAGE):
            part = rows[start : start + PAGE]
            self._do("write", "update", {"ids": part, "metadatas": [dict(changes[row]) for row in part]})

    def remove(self, rows: Sequence[str]) -> None:
        """Takes rows away; one that is not there is no error."""
        for start in range(0, len(rows), PAGE):
            self._do("delete", "delete", {"ids": list(rows[start : start + PAGE])})

    def drop(self) -> None:
        """Deletes the collection."""
        self._vectors.drop(KIND)

    def scrub(self) -> None:
        """What was deleted goes from the disk too."""
        self._vectors.scrub(KIND)

    # What `VectorStore` offers embeds every text again; here the vector is known before the row is written,
    # and wanted when it is read. So these two use its parts.

    def _get(self, which: Mapping[str, Any], include: list[str]) -> Mapping[str, Any] | None:
        def ask(collection: Any) -> Mapping[str, Any] | None:
            answer: Mapping[str, Any] = collection.get(**which, include=include)
            return answer

        return self._vectors._on(KIND, "read", ask, None)

    def _do(self, doing: str, method: str, arguments: Mapping[str, Any], dimension: int | None = None) -> None:
        opened = None if dimension is None else (lambda: self._vectors._made(KIND, dimension))
        self._vectors._on(KIND, doing, lambda found: getattr(found, method)(**arguments), None, opened=opened)
