"""Entries as rows of a Chroma collection: the user's words are the document, everything else is metadata."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.entries.entry import Entry
from langgraph_toolmem.search.embedders import clean

if TYPE_CHECKING:
    from langgraph_toolmem.stores.vectors import VectorStore

KIND: Final = "entries"
PAGE: Final = 500
"""Rows read or written at once."""
RECORD: Final = ("recalled", "helped", "hurt")
_ASIDE: Final = ("id", "query", "run", "user", "time", "score", *RECORD, "retired")

Vector = npt.NDArray[np.float32]


class EntryRow(NamedTuple):
    """An entry as it is kept in RAM: what is often asked for, and the rest as JSON.

    A hundred thousand of them have to fit; calls as Python objects would take three times the room.
    """

    id: str
    run: str
    user: str
    time: float
    score: float | None
    recalled: int
    helped: int
    hurt: int
    retired: bool
    query: str
    rest: str
    changed: float  # when the row was last written, by the clock of who wrote it

    @property
    def record(self) -> tuple[int, int, int]:
        """Recalled, helped, hurt."""
        return self.recalled, self.helped, self.hurt

    @property
    def content(self) -> tuple[object, ...]:
        """Everything but the record and the time of the last writing."""
        return self.run, self.user, self.time, self.score, self.retired, self.query, self.rest

    def credited(self, counts: Sequence[int]) -> EntryRow:
        """With (recalled, helped, hurt) added; no count goes below 0."""
        recalled, helped, hurt = (max(0, a + b) for a, b in zip(self.record, counts, strict=True))
        return self._replace(recalled=recalled, helped=helped, hurt=hurt)

    def entry(self) -> Entry:
        """The entry. Raises InputError if the row is damaged."""
        plain = json.loads(self.rest)
        plain.update({name: getattr(self, name) for name in _ASIDE})
        return Entry.from_dict(plain)


def row_of(entry: Entry, changed: float) -> EntryRow:
    """The row of an entry."""
    plain = entry.to_dict()
    aside = {name: plain.pop(name) for name in _ASIDE}
    rest = clean(json.dumps(plain, ensure_ascii=False, separators=(",", ":")))
    return EntryRow(**aside, rest=rest, changed=changed)


class EntryRows:
    """The collection of entries of one `VectorStore`. Every method raises `StorageError` if Chroma fails."""

    def __init__(self, vectors: VectorStore) -> None:
        self._vectors = vectors

    def read(
        self, ids: Sequence[str] | None = None, *, since: float | None = None, vectors: bool = False
    ) -> Iterator[tuple[EntryRow | None, Vector | None]]:
        """Rows with these ids, or written since then, or all, page by page; None for each damaged row."""
        include = ["documents", "metadatas", *(["embeddings"] if vectors else [])]
        where = None if since is None else {"changed": {"$gte": since}}
        for page in self._vectors.pages(KIND, include, ids=ids, where=where, size=PAGE):
            found: Sequence[Any] = page["embeddings"] if vectors else [None] * len(page["ids"])
            for key, text, metadata, vector in zip(
                page["ids"], page["documents"], page["metadatas"], found, strict=True
            ):
                yield _row(key, text or "", metadata or {}), _vector(vector)

    def ids(self, where: Mapping[str, str] | None = None) -> list[str]:
        """Ids of the rows with this metadata, or of all."""
        return self._vectors.ids(KIND, where)

    def write(self, rows: Sequence[EntryRow], vectors: Sequence[Sequence[float]]) -> None:
        """Keeps rows with their vectors, whole."""
        documents, metadatas = [row.query for row in rows], [_metadata(row) for row in rows]
        self._vectors.write(
            KIND, [row.id for row in rows], embeddings=vectors, documents=documents, metadatas=metadatas
        )

    def amend(self, rows: Sequence[EntryRow]) -> None:
        """Writes everything of rows but text and vector; a row that is gone stays gone."""
        self._vectors.amend(KIND, {row.id: _metadata(row) for row in rows})

    def credit(self, rows: Sequence[EntryRow]) -> None:
        """Writes the records of rows and nothing else of them."""
        names = (*RECORD, "retired", "changed")
        self._vectors.amend(KIND, {row.id: {name: getattr(row, name) for name in names} for row in rows})

    def remove(self, ids: Sequence[str]) -> None:
        """Takes rows away; one that is not there is no error."""
        self._vectors.delete(KIND, ids)

    def drop(self) -> None:
        """Deletes the collection."""
        self._vectors.drop(KIND)

    def scrub(self) -> None:
        """What was deleted goes from the disk too."""
        self._vectors.scrub(KIND)


def _metadata(row: EntryRow) -> dict[str, Any]:
    """What is kept beside text and vector. ``None`` stands for a key that is not there."""
    return {
        "run": row.run,
        "user": row.user or None,
        "time": row.time,
        "score": row.score,
        "recalled": row.recalled,
        "helped": row.helped,
        "hurt": row.hurt,
        "retired": row.retired,
        "changed": row.changed,
        "entry": row.rest,
    }


def _row(key: str, text: str, metadata: Mapping[str, Any]) -> EntryRow | None:
    try:
        score = metadata.get("score")
        row = EntryRow(
            id=key,
            run=str(metadata["run"]),
            user=str(metadata.get("user") or ""),
            time=float(metadata["time"]),
            score=None if score is None else float(score),
            recalled=int(metadata["recalled"]),
            helped=int(metadata["helped"]),
            hurt=int(metadata["hurt"]),
            retired=bool(metadata["retired"]),
            query=text,
            rest=str(metadata["entry"]),
            changed=float(metadata["changed"]),
        )
        row.entry()
    except (KeyError, TypeError, ValueError, InputError):
        return None
    return row


def _vector(vector: Any) -> Vector | None:
    return None if vector is None else np.asarray(vector, dtype=np.float32)
