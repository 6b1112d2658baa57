"""The tools of a model request, read once per set of tools."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from langchain_core.tools import BaseTool

from langgraph_toolmem.runs.tools import ToolSpec, read_tools

MAX_TOOL_SETS: Final = 64


class OfferedTools:
    """Remembers the sets of tools it has read: reading schemas at every step would cost more than a decision."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], tuple[list[BaseTool], dict[str, ToolSpec]]] = {}

    def of(self, tools: Iterable[Any]) -> dict[str, ToolSpec]:
        """The tools of this step that the agent itself executes, by name; the same dict for the same tools."""
        executed = [tool for tool in tools if isinstance(tool, BaseTool)]
        key = tuple(map(id, executed))
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MAX_TOOL_SETS:
                self._known.clear()
            # The tools are kept with it: an id may be used again once its object is gone.
            found = self._known[key] = (executed, read_tools(executed))
        return found[1]
