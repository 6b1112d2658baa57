"""Vectors as they are kept: parts of a collection are searched apart without a filter, and equal texts stay findable.

Two weaknesses of the index are cured by numbers that stand behind a text's own:

- Filters on metadata get slow with size. So all rows of a part p have a direction r(p) in common that its name decides.
- Where many texts are equal, their neighbours are all alike, and what is beyond them is not reached any more: of 5,000
  rows with 3 texts 1,000 times each, a tenth of the others were not found by their own text. So each row has a small
  direction n of its own, at right angles to r.

A vector v is kept as (v, 2·r + ε·n), scaled to length 1, and a question q asked as (q, 2·r): from the cosine s of these
follows that of the texts, c = s·√5·√(5 + ε²) − 4. Rows of other parts are farther than any of the part, since two
directions are nearly at right angles.
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
SPREAD: Final = 0.2
_ASKED: Final = math.sqrt(1 + PULL)
_KEPT: Final = math.sqrt(1 + PULL + SPREAD**2)


@lru_cache(maxsize=4096)
def _direction(name: str) -> tuple[float, ...]:
    """Of length 1; another one for another name."""
    bits = int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=WIDTH // 8).digest(), "big")
    size = 1 / math.sqrt(WIDTH)
    return tuple(size if bits >> place & 1 else -size for place in range(WIDTH))


def kept(vector: Sequence[float], row: str, part: str) -> list[float]:
    """A text's vector of length 1 as it is kept for a row."""
    common, own = _direction(f"part {part}"), _direction.__wrapped__(f"row {row}")
    along = sum(a * b for a, b in zip(common, own, strict=True))
    rest = SPREAD / (math.sqrt(max(1 - along * along, 1e-6)))
    pull = math.sqrt(PULL) - rest * along
    behind = [(pull * a + rest * b) / _KEPT for a, b in zip(common, own, strict=True)]
    return [value / _KEPT for value in vector] + behind


def asked(vector: Sequence[float], part: str) -> list[float]:
    """A question's vector of length 1, as the rows of a part are compared with it."""
    size = math.sqrt(PULL) / _ASKED
    return [value / _ASKED for value in vector] + [size * value for value in _direction(f"part {part}")]


def own(vector: Sequence[float]) -> list[float]:
    """The text's own vector, of length 1, from one that is kept."""
    return [float(value) * _KEPT for value in vector[:-WIDTH]]


def cosine(similarity: float) -> float:
    """The cosine of question and text, from that of their vectors as they are asked and kept."""
    return similarity * _ASKED * _KEPT - PULL
