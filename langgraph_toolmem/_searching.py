"""The part of `ToolMemory` that finds tools by what is to be done."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from langgraph_toolmem._recalling import Recalling
from langgraph_toolmem.stores.vectors import ToolHit

TARGETS: Final = 3
"""Tools that a request is taken to be about (NaviAgent, arXiv 2506.19500)."""


class Searching(Recalling):
    """Finds the tools that a request needs."""

    def search_tools(self, query: str, *, k: int = 5) -> list[ToolHit]:
        """The tools whose descriptions fit a query, best first.

        The first search writes the descriptions to Chroma, so that the next process has them too.

        Raises:
            StorageError: Chroma failed.
            EmbedderChangedError: stored vectors were made by another embedder.
        """
        if self._tools_to_sync:
            self._tool_index.sync()
            self._tools_to_sync = False
        return self._tool_index.search(query, k)

    def _targets(self, query: str, out: Collection[str]) -> list[str]:
        """The tools that a request is about, best first; none of those in `out`."""
        hits = [hit.name for hit in self.search_tools(query, k=TARGETS + len(out)) if hit.name not in out]
        return hits[:TARGETS]
