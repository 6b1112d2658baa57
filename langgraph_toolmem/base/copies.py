"""Copies of an agent use the same memory: a memory owns a folder and background work, which cannot be copied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


class SharedByCopies:
    """A class whose objects are not copied: a shallow or deep copy of their container shares them."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self
