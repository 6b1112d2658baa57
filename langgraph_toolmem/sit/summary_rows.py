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
        include = ["documents", "metadatas", "embeddings"]
        for page in self._vectors.pages(KIND, include, ids=rows, size=PAGE):
            columns = (page[name] for name in ("ids", "documents", "metadatas", "embeddings"))
            for key, text, metadata, vector in zip(*columns, strict=True):
                yield from_row(key, text or "", metadata or {}, vector)

    def ids(self, where: Mapping[str, str] | None = None) -> list[str]:
        """Ids of the rows with this metadata, or of all."""
        return self._vectors.ids(KIND, where)

    def metadata(self, rows: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Metadata of those of the rows that are there."""
        pages = self._vectors.pages(KIND, ["metadatas"], ids=rows, size=PAGE)
        return {key: metadata for page in pages for key, metadata in zip(page["ids"], page["metadatas"], strict=True)}

    def write(self, summaries: Sequence[StoredSummary]) -> None:
        """Keeps summaries with their vectors, whole."""
        self._vectors.write(
            KIND,
            [row_id(each) for each in summaries],
            embeddings=[each.vector for each in summaries],
            # A row without text could not be embedded again by every embedder.
            documents=[f"{each.source} {each.target}" if each.retired else each.text for each in summaries],
            metadatas=[to_metadata(each) for each in summaries],
        )

    def amend(self, changes: Mapping[str, Mapping[str, Any]]) -> None:
        """Changes metadata of rows; what is not named stays, and a row that is gone stays gone."""
        self._vectors.amend(KIND, changes)

    def remove(self, rows: Sequence[str]) -> None:
        """Takes rows away; one that is not there is no error."""
        self._vectors.delete(KIND, rows)

    def drop(self) -> None:
        """Deletes the collection."""
        self._vectors.drop(KIND)

    def scrub(self) -> None:
        """What was deleted goes from the disk too."""
        self._vectors.scrub(KIND)
