"""Parts of a collection: texts that are searched apart from others, without a filter.

Chroma's filters on metadata get slow with size. So a vector v of a part p is kept as (v, 2·r(p)) / √5 with r(p) a
direction of `WIDTH` numbers that the part's name decides. Of two vectors of one part the cosine is (c + 4) / 5 for the
cosine c of their texts; those of different parts are farther apart, since two directions are nearly at right angles.
So the nearest of all are the nearest of the part, in their order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final

KEY: Final = "part"
"""Of a row's metadata: its part; not there if it has none."""
WIDTH: Final = 64
PULL: Final = 4.0
_LENGTH: Final = math.sqrt(1 + PULL)


@lru_cache(maxsize=4096)
def _direction(part: str) -> tuple[float, ...]:
    bits = int.from_bytes(blake2b(part.encode("utf-8", "surrogatepass"), digest_size=WIDTH // 8).digest(), "big")
    size = math.sqrt(PULL / WIDTH) / _LENGTH
    return tuple(size if bits >> place & 1 else -size for place in range(WIDTH))


def in_part(vector: Sequence[float], part: str) -> list[float]:
    """The vector as it is kept, of length 1; as it is without a part."""
    return [value / _LENGTH for value in vector] + list(_direction(part)) if part else list(vector)


def cosine(similarity: float, part: str) -> float:
    """The cosine of two texts of a part, from that of their vectors as they are kept; below −1 for other parts."""
    return (1 + PULL) * similarity - PULL if part else similarity


def moved(vector: Sequence[float], width: int, part: str) -> list[float]:
    """A vector as it was kept, now of another part; `width`: numbers of the text's own vector."""
    scale = _LENGTH if len(vector) > width else 1.0
    return in_part([float(value) * scale for value in vector[:width]], part)
