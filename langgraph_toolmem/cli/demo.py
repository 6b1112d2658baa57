"""`toolmem demo`: an office agent without the memory and with it, on this machine, with a scripted model."""

from __future__ import annotations

import importlib
import json
import shlex
import tempfile
import time
from collections import Counter
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langgraph_toolmem.cli.terminal import progress, say, table

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage


SECONDS_PER_CALL = 1.0


def demo(
    tasks: Annotated[int, typer.Option(min=1, help="Number of requests to the office agent.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed of the requests.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Folder for log, memory and page [default: a new one]."),
    ] = None,
) -> None:
    """Watch an office agent without the memory and with it. Its model is scripted: no key, no network."""
    from langchain_core.messages import convert_to_openai_messages

    from langgraph_toolmem.inertia import Inertia
    from langgraph_toolmem.memory import ToolMemory
    from langgraph_toolmem.page import render_page
    from langgraph_toolmem.runs.tools import read_tools, side_effects

    scene = _office()
    office, requests = scene.Office(), scene.make_tasks(tasks, seed)
    specs = read_tools(office.tools())
    changing = {name for name, spec in specs.items() if side_effects(spec) != "reads"}
    folder = Path(tempfile.mkdtemp(prefix="toolmem-demo-")) if out is None else out
    folder.mkdir(parents=True, exist_ok=True)
    with progress("requests", 2 * tasks, show=True) as update:
        number = count(1)
        work: dict[str, Any] = {"tasks": requests, "office": office, "done": lambda _: update(next(number))}
        alone = scene.run_tasks(scene.scripted_model(), **work)
        how: dict[str, Any] = {"tools": office.tools(), "methods": [Inertia()], "namespace": ("toolmem", "{user_id}")}
        with ToolMemory(folder / "memory", **how) as memory:
            helped = scene.run_tasks(scene.scripted_model(), memory=memory, **work)
            report, view = memory.report(), memory.view()
    asked = {each.task.id: _changes(each.messages, changing) for each in alone}
    rows = []
    before = sum(each.llm_calls for each in alone)
    for name, outcomes in (("without", alone), ("with", helped)):
        calls, made, right = (sum(getattr(each, of) for each in outcomes) for of in ("llm_calls", "shortcuts", "right"))
        unasked = sum((_changes(each.messages, changing) - asked[each.task.id]).total() for each in outcomes)
        seconds = SECONDS_PER_CALL * calls + sum(each.seconds for each in outcomes)
        rows.append(
            (name, f"{calls:,}", f"{before - calls:,}", str(unasked), f"{seconds:,.0f} s", f"{right} of {tasks}")
        )
    lines = (
        json.dumps({"thread_id": each.task.id, "messages": convert_to_openai_messages(each.messages)}) for each in alone
    )
    (log := folder / "runs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")

    columns = ("memory", "model calls", "saved", "unasked", "time", "done right")
    table(f"{tasks} requests to an office agent (scripted, not a language model)", columns, rows)
    say("Unasked: changes that the run without a memory does not make.")
    if (extra := made - (before - calls)) > 0:
        say(f"The memory made {made:,} calls without the model; {extra} of them, look-ups all, were in vain.")
    say("Time: one second for each model call, and the measured time of tools, graph and memory.")
    say("\n".join(report.lines()))
    reads = " ".join(f"--reads {name}" for name in specs if name not in changing)  # a log does not say what only reads
    say(f"\nThe log of the runs without it: {log}\n  toolmem replay {shlex.quote(str(log))} {reads}")
    shown_as = render_page(report, view, title="toolmem demo", generated=time.time())
    (page := folder / "report.html").write_text(shown_as, encoding="utf-8")
    say(f"What the memory did, as a page: {page.resolve()}")
    say("With your logs: toolmem replay your.jsonl --reads NAME, for each tool that only looks something up")


def _changes(messages: list[BaseMessage], changing: set[str]) -> Counter[str]:
    calls = [call for each in messages for call in getattr(each, "tool_calls", ()) if call["name"] in changing]
    return Counter(json.dumps([call["name"], call["args"]], sort_keys=True) for call in calls)


def _office() -> Any:
    """Return the office's module: the wheel contains it, and a checkout has it in the examples."""
    try:
        return importlib.import_module("langgraph_toolmem.office")
    except ModuleNotFoundError:
        return importlib.import_module("examples.office")
