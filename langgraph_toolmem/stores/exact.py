"""Rows compared one by one, where Chroma's index gives fewer than are there.

The index loses rows whose vectors were changed, as when a verdict moves them to another part: of 41 rows that
were moved 7 were not found any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

MOST: Final = 2_000
"""Rows that are compared; where there are more, what the index gives is all."""


def nearest(
    collection: Any, vector: Sequence[float], k: int, where: Mapping[str, Any] | None, found: int
) -> list[Any] | None:
    """Ids, texts, metadata and distances as Chroma answers; None if there are only so many, or too many to compare."""
    count = len(collection.get(where=where, limit=MOST + 1, include=[])["ids"])
    if not found < count <= MOST:
        return None
    import numpy as np  # only where it is used

    rows = collection.get(where=where, include=["documents", "metadatas", "embeddings"])
    kept, asked = np.asarray(rows["embeddings"], dtype=float), np.asarray(vector, dtype=float)
    lengths = np.linalg.norm(kept, axis=1) * np.linalg.norm(asked)
    distances = 1.0 - kept @ asked / np.maximum(lengths, 1e-12)
    places = np.argsort(distances, kind="stable")[:k]
    columns = (rows["ids"], rows["documents"], rows["metadatas"], distances.tolist())
    return [[column[place] for place in places] for column in columns]
