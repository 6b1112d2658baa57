"""Atoms as rows of a Chroma collection: an atom's most usual wording is the document, everything else is metadata.

Where an embedder makes vectors, the other wordings of an atom are texts of a second collection: each has a vector of
its own, and both are embedded again like any other text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from langgraph_toolmem.atoms.record import NO_RECORD, AtomRecord
from langgraph_toolmem.base.keys import digest

if TYPE_CHECKING:
    from langgraph_toolmem.stores.vectors import VectorStore

KIND: Final = "atoms"
TEXTS: Final = "atom_texts"
PAGE: Final = 500
"""Rows read or written at once."""

Vector = npt.NDArray[np.float32]


class AtomRow(NamedTuple):
    """An atom as it is kept.

    Attributes:
        id: of the atom.
        text: the document.
        rest: `support.to_text`.
        record: what became of it; what is credited and not written yet left aside.
        changed: when the row was last written, by the clock of who wrote it.
    """

    id: str
    text: str
    rest: str
    record: AtomRecord = NO_RECORD
    changed: float = 0.0


class AtomRows:
    """The collections of one `VectorStore`. Every method raises `StorageError` if Chroma or the embedder fails."""

    def __init__(self, vectors: VectorStore) -> None:
        self._vectors = vectors

    def read(self, ids: Sequence[str] | None = None, *, since: float | None = None) -> Iterator[AtomRow | str]:
        """Rows with these ids, or written since then, or all, page by page; of a damaged row its id."""
        if ids is None and since is None:
            ids = self.ids()  # pages by number are slow in large collections, and skip rows when others go
        for page in self._pages(KIND, ids, ["documents", "metadatas"], since):
            for key, text, metadata in zip(page["ids"], page["documents"], page["metadatas"], strict=True):
                yield _row(key, text or "", metadata or {}) or key

    def ids(self, kind: str = KIND) -> list[str]:
        """Ids of all rows."""
        return self._vectors.ids(kind)

    def write(self, rows: Sequence[AtomRow]) -> None:
        """Keeps rows, whole; their texts are embedded."""
        for start in range(0, len(rows), PAGE):
            part = rows[start : start + PAGE]
            texts = [row.text for row in part]
            self._upsert(KIND, [row.id for row in part], texts, metadatas=[_metadata(row) for row in part])

    def amend(self, rows: Sequence[AtomRow]) -> None:
        """Writes everything of rows but text and vector; a row that is gone stays gone."""
        self._vectors.amend(KIND, {row.id: _metadata(row) for row in rows})

    def remove(self, ids: Sequence[str]) -> None:
        """Takes rows away; one that is not there is no error."""
        self._vectors.delete(KIND, ids)

    def vectors(self, texts: Mapping[str, Sequence[str]], *, write: bool = True) -> dict[str, list[Vector]]:
        """The vectors of atoms' texts (by id of the atom), as they are stored; those that are missing are made.

        Args:
            texts: by id of the atom; its row has the first one, or another.
            write: those that are made are kept.
        """
        wanted = {text_id(key, text): text for key, each in texts.items() for text in each}
        known = self._known(list(texts), wanted)
        if missing := [key for key in wanted if key not in known]:
            for start in range(0, len(missing), PAGE):
                part = missing[start : start + PAGE]
                said = [wanted[key] for key in part]
                made = self._upsert(TEXTS, part, said) if write else self._vectors.embedder.embed_documents(said)
                known.update(zip(part, (np.asarray(vector, dtype=np.float32) for vector in made), strict=True))
        return {key: [known[text_id(key, text)] for text in each] for key, each in texts.items()}

    def remove_texts(self, ids: Sequence[str]) -> None:
        """Takes texts (ids of `text_id`) away."""
        if ids:
            self._vectors.delete(TEXTS, ids)

    def keep_only(self, ids: Collection[str]) -> None:
        """Takes all texts away but these (ids of `text_id`)."""
        self.remove_texts([key for key in self.ids(TEXTS) if key not in ids])

    def drop(self) -> None:
        """Deletes the collections."""
        for kind in (KIND, TEXTS):
            self._vectors.drop(kind)

    def scrub(self) -> None:
        """What was deleted goes from the disk too."""
        for kind in (TEXTS, KIND):
            self._vectors.scrub(kind)

    def _known(self, atoms: Sequence[str], wanted: Mapping[str, str]) -> dict[str, Vector]:
        known: dict[str, Vector] = {}
        for page in self._pages(KIND, atoms, ["documents", "embeddings"], None):
            for key, text, vector in zip(page["ids"], page["documents"], page["embeddings"], strict=True):
                known[text_id(key, text or "")] = _length_one(vector)
        for page in self._pages(TEXTS, [key for key in wanted if key not in known], ["embeddings"], None):
            known.update(zip(page["ids"], map(_length_one, page["embeddings"]), strict=True))
        return known

    def _pages(
        self, kind: str, ids: Sequence[str] | None, include: list[str], since: float | None
    ) -> Iterator[Mapping[str, Any]]:
        where = None if since is None else {"changed": {"$gte": since}}
        return self._vectors.pages(kind, include, ids=ids, where=where, size=PAGE)

    def _upsert(self, kind: str, ids: Sequence[str], texts: Sequence[str], **more: Any) -> list[list[float]]:
        vectors = self._vectors.embedder.embed_documents(texts)
        self._vectors.write(kind, ids, embeddings=vectors, documents=texts, **more)
        return vectors


def text_id(atom: str, text: str) -> str:
    """The id of one text of an atom."""
    return f"{atom}-{digest(text)}"


def _length_one(vector: Any) -> Vector:
    found = np.asarray(vector, dtype=np.float32)
    return found / max(float(np.linalg.norm(found)), 1e-12)


def _metadata(row: AtomRow) -> dict[str, Any]:
    return {"atom": row.rest, "changed": row.changed, **row.record._asdict()}


def _row(key: str, text: str, metadata: Mapping[str, Any]) -> AtomRow | None:
    try:
        record = AtomRecord(*(int(metadata.get(name, 0)) for name in AtomRecord._fields))
        return AtomRow(key, text, str(metadata["atom"]), record, float(metadata["changed"]))
    except (KeyError, TypeError, ValueError):
        return None
