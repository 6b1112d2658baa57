"""The record of what was run ahead, tool by tool, and how it is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from langgraph_toolmem.core.method import TextTable
from langgraph_toolmem.graph.tool_graph import ToolGraph

STARTED: Final = "ahead_started"
SERVED: Final = "ahead_served"
IN_TIME: Final = "ahead_in_time"
"""Served, and over when the model asked."""
WASTED: Final = "ahead_wasted"
SECONDS: Final = "ahead_seconds"
"""Saved: by how much the call would have been over later."""
UNCLAIMED: Final = "ahead_unclaimed"
"""The model asked for it, and nobody came: something held the call back."""
REVIEWED: Final = "reviewed"
"""A person was asked, refused it or edited it, or the call was stopped."""
RARE: Final = 20
"""A tool goes on being run ahead while so many of its calls were served for each that nobody came for."""

_FIGURES: Final = {"started": STARTED, "served": SERVED, "in_time": IN_TIME, "wasted": WASTED, "seconds_saved": SECONDS}


def held_back(graph: ToolGraph, tool: str, *, named: bool = False) -> bool:
    """Whether somebody stands between the model's call of a tool and its execution.

    Args:
        graph: the record.
        tool: its name.
        named: the developer says that it may be run ahead.
    """
    record = graph.by_tool.get(tool, {})
    if record.get(REVIEWED, 0.0):
        return True
    return not named and record.get(UNCLAIMED, 0.0) * RARE > record.get(SERVED, 0.0)


def figures(graph: ToolGraph) -> dict[str, Any]:
    """What was run ahead, in all and by tool, under "prefetch"; {} if nothing ever was."""
    by_tool = {
        tool: {name: _plain(record.get(counter, 0.0)) for name, counter in _FIGURES.items()}
        for tool, record in sorted(graph.by_tool.items())
        if record.get(STARTED)
    }
    if not by_tool:
        return {}
    sums = {name: _plain(sum(each[name] for each in by_tool.values())) for name in _FIGURES}
    return {"prefetch": {**sums, "by_tool": by_tool}}


def _plain(number: float) -> float:
    return int(number) if number == int(number) else round(number, 3)


def in_words(found: Mapping[str, Any]) -> tuple[str, ...]:
    """The same for a person."""
    return tuple(
        f"Look-ups run while the model was asked: {of['started']:,}; {of['served']:,} of them were what it asked for "
        f"({of['in_time']:,} were over by then), {of['wasted']:,} were thrown away; {of['seconds_saved']:,.1f} seconds "
        "of waiting saved."
        for of in _found(found)
    )


def _found(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [figures["prefetch"]] if "prefetch" in figures else []


def tables(found: Mapping[str, Any]) -> tuple[TextTable, ...]:
    """The same by tool."""
    columns = ("tool", "run ahead", "served", "in time", "thrown away", "seconds saved")
    counted = ("started", "served", "in_time", "wasted")
    return tuple(
        TextTable(
            "Look-ups run ahead",
            columns,
            tuple(
                (tool, *(f"{row[name]:,}" for name in counted), f"{row['seconds_saved']:,.1f}")
                for tool, row in of["by_tool"].items()
            ),
        )
        for of in _found(found)
    )
