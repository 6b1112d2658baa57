"""The page itself: figures, tables and script put into one file that asks the network for nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from datetime import datetime, timezone
from functools import lru_cache
from importlib import resources
from typing import Any

from langgraph_toolmem._version import __version__
from langgraph_toolmem.base.errors import MissingExtraError
from langgraph_toolmem.base.intervals import percentage
from langgraph_toolmem.base.text import printable
from langgraph_toolmem.core.method import TextTable
from langgraph_toolmem.graph.view import MAX_NEWEST, GraphView
from langgraph_toolmem.inertia.prefetch.record import in_words as ahead_in_words
from langgraph_toolmem.page.picture import after_in_words, clip, picture, shown, sources_in_words
from langgraph_toolmem.page.series import NAMES, RUN, over_time
from langgraph_toolmem.report.report import Report

_SCRIPTS = ("tables.js", "geometry.js", "panel.js", "explorer.js", "start.js")


def render_page(
    report: Report,
    view: GraphView,
    *,
    title: str = "toolmem",
    generated: float | None = None,
    lead: Sequence[str | TextTable] = (),
) -> str:
    """One HTML page with the record and the tool graph to explore.

    Fonts, styles, scripts and data are in the file; its content security policy forbids everything else. The same
    input gives the same page.

    Args:
        report: the record of a memory.
        view: its graph, from the same moment.
        title: heading of the page.
        generated: when the record was read, in seconds since 1970; left out if None.
        lead: sentences and tables in place of the figures and of what happened when: those of a replay.

    Raises:
        MissingExtraError: Bokeh, which draws, is not installed (extra `html`).
    """
    try:
        from bokeh.resources import Resources
        from jinja2 import Environment

        from langgraph_toolmem.page.figures import chart_items, graph_item
    except ImportError as error:
        raise MissingExtraError("The HTML page", "html") from error

    inertia, (found, size) = report["inertia"], over_time(report)
    rules = [(after_in_words(r.after), shown(r.tool), sources_in_words(r), r) for r in inertia.get("rules", ())]
    data = picture(report, view)
    drawings = {"graph": graph_item(len(data["tools"]))} if data["tools"] else {}
    data["items"] = {**drawings, **chart_items(() if lead else found, size)}
    bokeh = Resources(mode="inline", components=["bokeh"], minified=True, log_level="warn")
    scripts = [*bokeh.js_raw, _asset("script")]
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(count=_count, share=_share, name=clip, tool=shown)
    return environment.from_string(_asset("page.html")).render(
        title=printable(title),
        generated=_time(generated),
        version=__version__,
        report=report,
        currency=clip(report.currency or ""),
        tools=sorted(report.tools.items(), key=lambda item: (-item[1].calls, item[0])),
        inertia=inertia,
        rules=rules,
        right=[rule for rule in rules if rule[-1].hits or not rule[-1].misses],
        wrong=[rule for rule in rules if rule[-1].misses and not rule[-1].hits],
        hints=[(clip(title), figures) for title, figures in report.hints()],
        sums=_sums(report),
        told=[
            printable(line)
            for name, each in report.sections.items()
            for line in (each.sentences if name != "inertia" else ahead_in_words(each.figures))
        ],
        problems=[clip(problem) for problem in report.problems],
        lead=[(isinstance(each, str), printable(each) if isinstance(each, str) else each) for each in lead],
        unit=NAMES[size],
        by_run=size == RUN,
        most_runs=MAX_NEWEST,
        buckets=found,
        drawn={tool["name"] for tool in data["tools"]},
        style=_asset("page.css"),
        scripts=scripts,
        hashes=[_hash(script) for script in scripts],
        data=_inside_script(data),
    )


def _sums(report: Report) -> dict[str, float]:
    """Return what all methods showed the model, and how runs ended that were shown something."""
    figures = [section.figures for name, section in report.sections.items() if name != "inertia"]
    names = ("shown", "followed", "right", "helped", "hurt")
    return {name: sum(n for of in figures if isinstance(n := of.get(name), (int, float))) for name in names}


def _inside_script(value: Any) -> str:
    """JSON that a script element can hold: nothing in it can end the element or open a comment."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(script: str) -> str:
    """The source expression that lets this script run under the content security policy, and no other one."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@lru_cache
def _asset(name: str) -> str:
    folder = resources.files("langgraph_toolmem.page") / "assets"
    if name == "script":
        return "\n".join((folder / part).read_text(encoding="utf-8") for part in _SCRIPTS)
    return (folder / name).read_text(encoding="utf-8")


def _time(seconds: float | None) -> str:
    return "" if seconds is None else f"{datetime.fromtimestamp(seconds, tz=timezone.utc):%Y-%m-%d %H:%M} UTC"


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _share(part: float, whole: float) -> str:
    return percentage(part, whole, 1)
