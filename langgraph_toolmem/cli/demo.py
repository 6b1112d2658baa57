"""`toolmem demo`: an office agent without the memory and with it, on this machine, with a scripted model."""

from __future__ import annotations

import importlib
import json
import shlex
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langgraph_toolmem.base.errors import MissingExtraError, has_package
from langgraph_toolmem.cli.terminal import progress, say, table

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage


def demo(
    tasks: Annotated[int, typer.Option(min=1, help="So many requests to the office agent.")] = 100,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Where log, memory and page go [default: a new one].")
    ] = None,
) -> None:
    """Watch an office agent with and without the memory. No key, no network, no model: its model is scripted."""
    from langgraph_toolmem.inertia import Inertia
    from langgraph_toolmem.memory import ToolMemory

    runs, office = _office("runs"), _office("office").Office(0)
    requests = _office("tasks").make_tasks(tasks, 0)
    folder = Path(tempfile.mkdtemp(prefix="toolmem-demo-")) if out is None else out
    folder.mkdir(parents=True, exist_ok=True)
    passes: list[tuple[str, Any]] = []
    lines: list[str] = []

    def keep(task: Any, messages: list[BaseMessage]) -> None:
        from langchain_core.messages import convert_to_openai_messages

        lines.append(json.dumps({"thread_id": task.id, "messages": convert_to_openai_messages(messages)}))

    with progress("requests", 2 * tasks, show=True) as update:
        number = count(1)
        work: dict[str, Any] = {"tasks": requests, "office": office, "done": lambda _: update(next(number))}
        passes.append(("without", runs.run_tasks(runs.scripted_model(), kept=keep, **work)))
        how: dict[str, Any] = {"tools": office.tools(), "methods": [Inertia()]}
        how["namespace"] = ("toolmem", "{user_id}")
        with ToolMemory(folder / "memory", **how) as memory:
            passes.append(("with", runs.run_tasks(runs.scripted_model(), memory=memory, **work)))
            report, view = memory.report(), memory.view()
    (log := folder / "runs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")

    shown = [(name, runs.totals(outcomes)) for name, outcomes in passes]
    columns = ("memory", "model calls", "skipped", "tokens", "done right")
    rows = [
        (name, f"{t.llm_calls:,}", f"{t.shortcuts:,}", f"{t.tokens:,}", f"{t.right} of {t.tasks}") for name, t in shown
    ]
    table(f"{tasks} requests to an office agent (scripted, not a language model)", columns, rows)
    say("\n".join(report.sentences()))
    say(f"\nThe log of the runs without it: {log}\n  toolmem replay {shlex.quote(str(log))}")
    if has_package("bokeh"):
        from langgraph_toolmem.page import render_page

        shown_as = render_page(report, view, title="toolmem demo", generated=time.time())
        (page := folder / "report.html").write_text(shown_as, encoding="utf-8")
        say(f"What the memory did, as a page: {page.resolve()}")
    else:
        say(str(MissingExtraError("The page", "html")))
    say("Your turn: toolmem replay your.jsonl")


def _office(part: str) -> Any:
    """A module of the office: it lies in the wheel, and in a checkout among the examples."""
    try:
        return importlib.import_module(f"langgraph_toolmem.office.{part}")
    except ModuleNotFoundError:
        return importlib.import_module(f"examples.office.{part}")
