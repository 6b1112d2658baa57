"""Directions that separate the parts of a collection in an index of vectors.

Texts of one part of a collection are searched separately. Chroma's metadata filter gets slow with size (p50 of a search
among 5,000 rows: 14.6 ms, without it 3.0 ms), so all rows of a part p share a direction r(p). The index also loses rows
among many equal texts, so each row has a small direction n of its own, orthogonal to r. A vector v is stored as (v, 2·r
+ ε·n), scaled to length 1, and a question q asked as (q, 2·r). From the cosine s of these follows that of the texts, c
= s·√5·√(5 + ε²) − 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class PartDirections:
    """Conversion of a text's vector of length 1 to the stored one, and back.

    Attributes:
        width: numbers that are appended to a vector.
        pull: square of the length of a part's direction, 2² in the formula.
        spread: length of a row's own direction, ε in the formula.
    """

    width: int = 64
    pull: float = 4.0
    spread: float = 0.2

    @property
    def question_length(self) -> float:
        """Length of a question with its part's direction, before it is scaled."""
        return math.sqrt(1 + self.pull)

    @property
    def row_length(self) -> float:
        """Length of a row's vector with its directions, before it is scaled."""
        return math.sqrt(1 + self.pull + self.spread**2)

    def stored(self, vectors: Sequence[Sequence[float]], ids: Sequence[str], parts: Sequence[str]) -> NDArray[Any]:
        """Return texts' vectors of length 1 as they are stored for rows of some parts."""
        import numpy as np  # imported where it is used

        of_parts = np.array([_part_direction(part, self.width) for part in parts])
        of_rows = np.array([_direction(f"row {key}", self.width) for key in ids])
        along = (of_parts * of_rows).sum(axis=1, keepdims=True)
        across = self.spread / np.sqrt(np.maximum(1 - along**2, 1e-6))
        appended = (math.sqrt(self.pull) - across * along) * of_parts + across * of_rows
        stored: NDArray[Any] = np.hstack([np.asarray(vectors, dtype=np.float64), appended]) / self.row_length
        return stored

    def question(self, vector: Sequence[float], part: str) -> list[float]:
        """Return a question's vector of length 1 as the rows of a part are compared with it."""
        pull, length = math.sqrt(self.pull), self.question_length
        asked = [value / length for value in vector]
        for value in _part_direction(part, self.width).tolist():
            asked.append(pull * value / length)
        return asked

    def text_vector(self, stored: Sequence[float]) -> list[float]:
        """Return the text's own vector, of length 1, from a stored one."""
        length = self.row_length
        return [float(value) * length for value in stored[: -self.width]]

    def text_cosine(self, distance: float) -> float:
        """Return the cosine of two texts, -1 to 1, from the distance of a question and a stored vector."""
        cosine = (1.0 - distance) * self.question_length * self.row_length - self.pull
        return max(-1.0, min(1.0, cosine))


DIRECTIONS: Final = PartDirections()


def _direction(name: str, width: int) -> NDArray[Any]:
    import numpy as np  # imported where it is used

    bits = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=width // 8).digest()
    direction: NDArray[Any] = (np.unpackbits(np.frombuffer(bits, np.uint8)) * 2.0 - 1.0) / math.sqrt(width)
    return direction


@lru_cache(maxsize=1024)
def _part_direction(part: str, width: int) -> NDArray[Any]:
    return _direction(f"part {part}", width)
