"""Finding tools by the words of what they are for: quick, coarse, and without anything stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from langgraph_toolmem.base import threads
from langgraph_toolmem.search.lexical import LexicalIndex
from langgraph_toolmem.words.split import words

if TYPE_CHECKING:
    from langgraph_toolmem.runs.tools import ToolSpec


def tool_text(spec: ToolSpec) -> str:
    """What is searched of a tool: the words of its name, its description, the names of its parameters."""
    parts = [" ".join(words(spec.name)) + "."]
    if spec.description.strip():
        parts.append(spec.description.strip())
    names = [" ".join(words(name)) for name in spec.properties]
    if names:
        parts.append(f"({', '.join(names)})")
    return " ".join(parts)


class ToolIndex:
    """Words of the tools' descriptions, for suggestions: scores grow with the share of a text's weight that fits.

    `ToolSearch` finds more and needs numpy. Safe for threads; the index is made at the first search.
    """

    def __init__(self) -> None:
        self._specs: tuple[ToolSpec, ...] = ()
        self._words: LexicalIndex | None = None
        self._lock = threads.lock()

    def declare(self, specs: Mapping[str, ToolSpec]) -> None:
        """These are the tools now."""
        with self._lock:
            self._specs, self._words = tuple(specs.values()), None

    def search(self, query: str, k: int = 5) -> list[tuple[str, float]]:
        """The k best tools with how much of the query's weight their texts cover (BM25), 0 to 1, best first.

        Fewer than k if fewer share anything with the query.
        """
        return self._known().search(query, k)

    def _known(self) -> LexicalIndex:
        with self._lock:
            if self._words is None:
                self._words = LexicalIndex((spec.name, tool_text(spec)) for spec in self._specs)
            return self._words
