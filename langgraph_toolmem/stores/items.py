"""What goes into the vector store and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class VectorItem:
    """One text to keep.

    Attributes:
        id: not empty; the same id again replaces text and vector.
        metadata: str, int, float, bool or lists of them. Merged into what is there; a value ``None`` takes
            its key away.
        part: texts of one part are found together, apart from those of others; always one, or "" for all of a kind.
        owners: digests of the users and runs it comes from, so that it is found when one is forgotten; None: of the
            user who is named when it is kept.
    """

    id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    part: str = ""
    owners: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """One text found. `similarity` is the cosine, -1 to 1; 1.0 where nothing was compared, as in `get`."""

    id: str
    text: str
    metadata: dict[str, Any]
    similarity: float = 1.0
