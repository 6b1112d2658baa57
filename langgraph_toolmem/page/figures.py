"""The drawings, as Bokeh models turned to JSON: an empty graph for the script to fill, and charts over time.

Colours are set by the script from the page's style sheet, so that light and dark are told in one place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bokeh.embed import json_item
from bokeh.model import Model
from bokeh.models import (
    BasicTicker,
    ColumnDataSource,
    DataRange1d,
    DatetimeTicker,
    DatetimeTickFormatter,
    HoverTool,
    NumeralTickFormatter,
    PanTool,
    Range1d,
    ResetTool,
    SaveTool,
    TapTool,
    WheelZoomTool,
    ZoomInTool,
    ZoomOutTool,
)
from bokeh.models.glyphs import MultiLine, Patches, Scatter, Text
from bokeh.plotting import figure

from langgraph_toolmem.graph.events import HOUR
from langgraph_toolmem.page.series import DAY, NAMES, RUN, Bucket

_DASH = (5, 4)
GRAPH_HEIGHTS = ((8, 420), (16, 540))
"""Up to so many tools, so many pixels."""
GRAPH_HEIGHT = 640
CHART_HEIGHT = 220
_TOOLTIP = """<div style="max-width: 360px; padding: 2px 4px; font: 13px/1.45 system-ui, sans-serif">
<div style="font-weight: 600; overflow-wrap: anywhere">{head}</div>
<div style="white-space: pre-line; overflow-wrap: anywhere">{body}</div></div>"""
_GRAPH_TOOLTIP = _TOOLTIP.format(head="@head", body="@body")


def graph_item(tools: int) -> dict[str, Any]:
    """The figure of a graph of so many tools, its sources empty: `flows`, `edges`, `heads`, `nodes`, `labels`."""
    plot = figure(
        name="graph",
        height=next((height for most, height in GRAPH_HEIGHTS if tools <= most), GRAPH_HEIGHT),
        sizing_mode="stretch_width",
        x_range=Range1d(start=0, end=1),
        y_range=Range1d(start=0, end=1),
        tools=[],
        toolbar_location="right",
        output_backend="canvas",
        min_border=0,
        min_width=0,
    )
    plot.axis.visible = False
    plot.grid.visible = False
    _clear(plot)

    lines = ["xs", "ys", "width", "colour", "alpha", "head", "body"]
    flows = ColumnDataSource({key: [] for key in lines}, name="flows")
    edges = ColumnDataSource({key: [] for key in lines}, name="edges")
    heads = ColumnDataSource({key: [] for key in ("xs", "ys", "colour", "alpha")}, name="heads")
    node_keys = ("x", "y", "size", "marker", "colour", "alpha", "line", "line_width", "head", "body", "tool")
    nodes = ColumnDataSource({key: [] for key in node_keys}, name="nodes")
    labels = ColumnDataSource({key: [] for key in ("x", "y", "text", "offset", "alpha", "head", "body")}, name="labels")

    drawn = plot.add_glyph(edges, _lines(), hover_glyph=_lines(alpha=1.0))
    streams = plot.add_glyph(flows, _lines(dash=_DASH), hover_glyph=_lines(dash=_DASH, alpha=1.0))
    plot.add_glyph(
        heads,
        Patches(xs="xs", ys="ys", fill_color="colour", fill_alpha="alpha", line_color=None),
        selection_glyph=None,
        nonselection_glyph=None,
    )
    written = plot.add_glyph(
        labels,
        Text(
            x="x",
            y="y",
            text="text",
            y_offset="offset",
            text_alpha="alpha",
            text_align="center",
            text_baseline="top",
            text_font_size="12px",
            background_fill_alpha=0.75,
        ),
    )
    dots = Scatter(
        x="x",
        y="y",
        size="size",
        marker="marker",
        fill_color="colour",
        fill_alpha="alpha",
        line_color="line",
        line_alpha="alpha",
        line_width="line_width",
    )
    points = plot.add_glyph(nodes, dots, nonselection_glyph=dots, selection_glyph=dots)
    wheel = WheelZoomTool(modifiers="ctrl", description="Wheel zoom (hold Ctrl)")
    pan, tap = PanTool(), TapTool(renderers=[points])
    plot.add_tools(
        pan,
        wheel,
        ZoomInTool(factor=0.25),
        ZoomOutTool(factor=0.25),
        ResetTool(),
        SaveTool(filename="toolmem-graph"),
        tap,
        HoverTool(renderers=[drawn, streams], tooltips=_GRAPH_TOOLTIP, line_policy="interp", visible=False),
        HoverTool(renderers=[points, written], tooltips=_GRAPH_TOOLTIP, visible=False),
    )
    plot.toolbar.active_drag = pan
    plot.toolbar.active_scroll = wheel
    plot.toolbar.active_tap = tap
    plot.toolbar.logo = None
    plot.toolbar.stylesheets = [".bk-divider { opacity: 0.3; }"]
    return _item(plot)


def _lines(alpha: str | float = "alpha", dash: Sequence[int] = ()) -> MultiLine:
    return MultiLine(
        xs="xs", ys="ys", line_color="colour", line_alpha=alpha, line_width="width", line_cap="round", line_dash=dash
    )


def chart_items(found: Sequence[Bucket], size: int) -> dict[str, dict[str, Any]]:
    """The charts over time, by name: `turns`, `saved`, `precision`. None of them where nothing happened."""
    if not found:
        return {}
    unit = 1 if size == RUN else 1000 * size  # runs stand side by side, whatever the time between them
    starts = [i + 0.5 for i in range(len(found))] if size == RUN else [1000 * b.start for b in found]
    gap = math.nan  # None would be drawn as 0
    columns: dict[str, list[Any]] = {
        "time": [start + unit / 2 for start in starts],
        "label": [_label(b.start, size, i) for i, b in enumerate(found, 1)],
        "turns": [b.turns for b in found],
        "asked": [b.turns - b.skipped for b in found],
        "ok": [b.skipped - b.skipped_failed for b in found],
        "failed": [b.skipped_failed for b in found],
        "so_far": [b.skipped_so_far for b in found],
        "precision": [gap if b.precision is None else b.precision for b in found],
        "precision_so_far": [gap if b.precision_so_far is None else b.precision_so_far for b in found],
        "checked": [_checked(b) for b in found],
        "zero": [0] * len(found),
    }
    margin = max(0.6 * unit, 0.02 * (starts[-1] - starts[0]))
    span = (starts[0] - margin / 2, starts[-1] + unit + margin / 2)

    source = ColumnDataSource(columns)  # each figure is a document of its own and shares nothing
    turns = _chart(
        "turns", span, unit, source, "@turns turns\n@ok skipped, call went well\n@failed skipped, call failed"
    )
    renderers = turns.vbar_stack(["ok", "failed", "asked"], x="time", width=unit * 0.8, source=source)
    for name, renderer in zip(("skipped", "failed", "asked"), renderers, strict=True):
        renderer.name = name
        renderer.glyph.line_color = None

    source = ColumnDataSource(columns)
    saved = _chart("saved", span, unit, source, "@so_far model calls skipped so far")
    saved.varea(x="time", y1=0, y2="so_far", source=source, name="skipped", fill_alpha=0.15)
    saved.line(x="time", y="so_far", source=source, name="skipped", line_width=2)
    if len(found) <= 40:
        saved.scatter(x="time", y="so_far", source=source, name="skipped", size=5, line_color=None)

    source = ColumnDataSource(columns)
    precision = _chart("precision", span, unit, source, "@checked", share=True)
    precision.yaxis.formatter = NumeralTickFormatter(format="0%")
    precision.yaxis.ticker = [0, 0.25, 0.5, 0.75, 1]
    precision.scatter(x="time", y="precision", source=source, name="asked", size=6, line_color=None)
    precision.line(x="time", y="precision_so_far", source=source, name="skipped", line_width=2)
    if sum(b.precision_so_far is not None for b in found) == 1:
        precision.scatter(x="time", y="precision_so_far", source=source, name="skipped", size=6, line_color=None)
    return {name: _item(plot) for name, plot in (("turns", turns), ("saved", saved), ("precision", precision))}


def _chart(
    name: str, span: tuple[float, float], unit: int, source: ColumnDataSource, text: str, *, share: bool = False
) -> figure:
    plot = figure(
        name=name,
        height=CHART_HEIGHT,
        sizing_mode="stretch_width",
        min_width=0,
        x_axis_type="linear" if unit == 1 else "datetime",
        x_range=Range1d(start=span[0], end=span[1]),
        y_range=Range1d(start=0, end=1.05) if share else DataRange1d(start=0),
        tools=[],
        toolbar_location=None,
        min_border_left=44,
        min_border_right=12,
    )
    tooltip = _TOOLTIP.format(head="@label", body=text)
    # Unseen columns of a bucket's width: whatever is drawn there, pointing anywhere above or below it tells.
    unseen = plot.vbar(x="time", top="zero", width=unit, source=source, alpha=0, name="unseen")
    plot.add_tools(HoverTool(renderers=[unseen], tooltips=tooltip, mode="vline", point_policy="follow_mouse"))
    plot.xgrid.visible = False
    _clear(plot)
    plot.axis.minor_tick_line_color = None
    plot.axis.axis_label = None
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0")
    if unit == 1:
        plot.xaxis.formatter, plot.xaxis.ticker = NumeralTickFormatter(format="0,0"), BasicTicker(min_interval=1)
        return plot
    plot.xaxis.formatter = DatetimeTickFormatter(
        hours="%H:%M", days="%d %b", months="%b", years="%Y", hourmin="%H:%M", minutes="%H:%M", context="%Y"
    )
    plot.xaxis.ticker = DatetimeTicker(desired_num_ticks=5)
    return plot


def _checked(bucket: Bucket) -> str:
    checked = bucket.right + bucket.wrong
    return f"{bucket.right:,} of {checked:,} right" if checked else "nothing checked"


def _clear(plot: figure) -> None:
    """Lets the page's own ground show through, in light and dark."""
    plot.background_fill_color = None
    plot.border_fill_color = None
    plot.outline_line_color = None


def _label(start: int, size: int, number: int) -> str:
    from datetime import datetime, timezone

    at = datetime.fromtimestamp(start, tz=timezone.utc)
    if size == RUN:
        return f"run {number}, {at:%Y-%m-%d %H:%M} UTC"
    if size == HOUR:
        return f"{at:%Y-%m-%d %H:%M} to {(at.hour + 1) % 24:02}:00 UTC"
    return f"{at:%Y-%m-%d}" if size == DAY else f"{NAMES[size]} of {at:%Y-%m-%d}"


def _item(plot: Model) -> dict[str, Any]:
    """The model as JSON, its ids numbered from 1: Bokeh numbers them through the life of the process."""
    numbers: dict[str, str] = {}
    item: dict[str, Any] = _renumber(dict(json_item(plot)), numbers)
    return {**item, "root_id": numbers[item["root_id"]], "target_id": None}


def _renumber(value: Any, numbers: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {
            key: numbers.setdefault(inner, f"m{len(numbers) + 1}")
            if key == "id" and isinstance(inner, str)
            else _renumber(inner, numbers)
            for key, inner in value.items()
        }
    return [_renumber(inner, numbers) for inner in value] if isinstance(value, list) else value
