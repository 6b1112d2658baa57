"""Copies of an agent use the same memory: it stands for a folder and its background work, which nobody can copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


class SharedByCopies:
    """A class whose objects are not copied: a copy of what holds one, shallow or deep, holds the same one."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self
