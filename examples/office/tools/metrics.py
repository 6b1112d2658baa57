"""Daily figures of the product."""

from __future__ import annotations

from typing import Any

from langchain_core.tools import ToolException

from .base import Access, same, tool


def _values(office: Access, metric: str, start: str, end: str) -> dict[str, int]:
    for name, series in office.metrics().items():
        if same(name, metric):
            values = {day: value for day, value in series.items() if start <= day <= end}
            if values:
                return values
            raise ToolException(f"Error: no values of {metric!r} from {start} to {end}.")
    raise ToolException(f"Error: there is no metric {metric!r}.")


def get_metric(office: Access, metric: str, start: str, end: str) -> str:
    """Sum up a metric over some days.

    Args:
        metric: Name, for example "active users".
        start: First day, ISO date.
        end: Last day, ISO date.
    """
    values = list(_values(office, metric, start, end).values())
    change = values[-1] - values[0]
    trend = "rose" if change > 0 else "fell" if change < 0 else "did not change"
    return (
        f"{metric.capitalize()} from {start} to {end}: average {sum(values) / len(values):.1f}, "
        f"lowest {min(values)}, highest {max(values)}; it {trend} by {abs(change)}."
    )


def query_metric(office: Access, metric: str, start: str, end: str) -> dict[str, Any]:
    """The daily values of a metric.

    Args:
        metric: Name of the metric.
        start: First day, ISO date.
        end: Last day, ISO date.
    """
    points = [{"day": day, "value": value} for day, value in _values(office, metric, start, end).items()]
    return {"metric": metric, "points": points}


def plot_metric(office: Access, metric: str, start: str, end: str, style: str = "line") -> dict[str, Any]:
    """Draw a metric and save the picture in the folder Reports.

    Args:
        metric: Name of the metric.
        start: First day, ISO date.
        end: Last day, ISO date.
        style: "line" or "bar".
    """
    _values(office, metric, start, end)
    file = office.add(
        "files",
        "fil",
        name=f"{metric.replace(' ', '_')}_{start}_{end}.png",
        folder="Reports",
        owner="plots",
        modified=end,
        style=style,
    )
    return {"plot": {"file_id": file["id"], "name": file["name"]}}


TOOLS = (
    tool(get_metric, "read_only"),
    tool(query_metric, "read_only"),
    tool(plot_metric),
)
