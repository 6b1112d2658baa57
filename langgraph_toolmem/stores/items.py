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
    """

    id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hit:
    """One text found. `similarity` is the cosine, -1 to 1; 1.0 where nothing was compared, as in `get`."""

    id: str
    text: str
    metadata: dict[str, Any]
    similarity: float = 1.0
