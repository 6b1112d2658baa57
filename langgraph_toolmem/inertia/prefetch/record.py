"""Counts of prefetched look-ups, tool by tool, and their report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from langgraph_toolmem.core.method import TextTable
from langgraph_toolmem.graph.events import Record, ToolCount
from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.runs.run import Turn

SERVED: Final = "ahead_served"
WASTED: Final = "ahead_wasted"
SECONDS: Final = "ahead_seconds"
"""Saved: by how much the call would have been over later."""
UNCLAIMED: Final = "ahead_unclaimed"
"""The model asked for it, and its call was never executed: something held it back."""
REVIEWED: Final = "reviewed"
"""A person was asked, refused it or edited it, or the call was stopped."""
RARE: Final = 20
"""A tool is prefetched while so many of its calls were served for each unclaimed one."""

_FIGURES: Final = {"served": SERVED, "wasted": WASTED, "seconds_saved": SECONDS}


def held_back(graph: ToolGraph, tool: str, *, named: bool = False) -> bool:
    """Return True if something holds back calls of a tool; `named`: the developer says that it may be prefetched."""
    record = graph.by_tool.get(tool, {})
    if record.get(REVIEWED, 0.0):
        return True
    return not named and record.get(UNCLAIMED, 0.0) * RARE > record.get(SERVED, 0.0)


def credit_reviews(turn: Turn) -> Record:
    """Count the calls of a turn that a person looked at and did not let pass."""
    return [ToolCount(step.tool, REVIEWED) for step in turn.steps if step.review]


def figures(graph: ToolGraph) -> dict[str, Any]:
    """Return what was prefetched, in all and by tool, under "prefetch"; {} if nothing ever was."""
    by_tool = {
        tool: _started({name: record.get(counter, 0.0) for name, counter in _FIGURES.items()})
        for tool, record in sorted(graph.by_tool.items())
        if record.get(SERVED) or record.get(WASTED)
    }
    if not by_tool:
        return {}
    sums = _started({name: sum(each[name] for each in by_tool.values()) for name in _FIGURES})
    return {"prefetch": {**sums, "by_tool": by_tool}}


def _started(counts: Mapping[str, float]) -> dict[str, float]:
    counts = {"started": counts["served"] + counts["wasted"], **counts}
    return {name: int(each) if each == int(each) else round(each, 3) for name, each in counts.items()}


def in_words(found: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the figures as a sentence."""
    if (of := found.get("prefetch")) is None:
        return ()
    return (
        f"Look-ups prefetched while the model was asked: {of['started']:,}; {of['served']:,} of them were what it "
        f"asked for, {of['wasted']:,} were thrown away; {of['seconds_saved']:,.1f} seconds of waiting saved.",
    )


def tables(found: Mapping[str, Any]) -> tuple[TextTable, ...]:
    """Return the figures by tool."""
    if (of := found.get("prefetch")) is None:
        return ()
    columns = ("tool", "prefetched", "served", "thrown away", "seconds saved")
    counted = ("started", "served", "wasted")
    rows = (
        (tool, *(f"{row[name]:,}" for name in counted), f"{row['seconds_saved']:,.1f}")
        for tool, row in of["by_tool"].items()
    )
    return (TextTable("Look-ups prefetched", columns, tuple(rows)),)
