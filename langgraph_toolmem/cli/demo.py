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
    tasks: Annotated[int, typer.Option(min=1, help="So many requests to the office agent.")] = 200,
    seed: Annotated[int, typer.Option(help="Of the requests.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Where log, memory and page go [default: a new one].")
    ] = None,
) -> None:
    """Watch an office agent with and without the memory. No key, no network, no model: its model is scripted."""
    from langchain_core.messages import AIMessage, convert_to_openai_messages

    from langgraph_toolmem.inertia import Inertia
    from langgraph_toolmem.inertia.policy import InertiaPolicy
    from langgraph_toolmem.memory import ToolMemory
    from langgraph_toolmem.page import render_page
    from langgraph_toolmem.runs.tools import read_tools, side_effects

    scene = _office()
    office, requests = scene.Office(), scene.make_tasks(tasks, seed)
    changing = frozenset(name for name, spec in read_tools(office.tools()).items() if side_effects(spec) != "reads")
    folder = Path(tempfile.mkdtemp(prefix="toolmem-demo-")) if out is None else out
    folder.mkdir(parents=True, exist_ok=True)
    named = InertiaPolicy(may_write=changing, allow_destructive=changing)
    ways = {"none": None, "reads": InertiaPolicy(), "writes": named}
    rows: list[tuple[str, ...]] = []
    lines: list[str] = []
    asked: dict[str, Counter[str]] = {}

    def changes_of(messages: list[BaseMessage]) -> Counter[str]:
        calls = [call for each in messages if isinstance(each, AIMessage) for call in each.tool_calls]
        changes = [[call["name"], call["args"]] for call in calls if call["name"] in changing]
        return Counter(json.dumps(change, sort_keys=True) for change in changes)

    with progress("requests", len(ways) * tasks, show=True) as update:
        number = count(1)
        for way, policy in ways.items():
            where = folder / ("memory" if policy is not named else "memory-writes")
            work: dict[str, Any] = {"tasks": requests, "office": office, "done": lambda _: update(next(number))}
            if policy is None:
                outcomes = scene.run_tasks(scene.scripted_model(), **work)
            else:
                how: dict[str, Any] = {"tools": office.tools(), "methods": [Inertia(policy)]}
                with ToolMemory(where, namespace=("toolmem", "{user_id}"), **how) as memory:
                    outcomes = scene.run_tasks(scene.scripted_model(), memory=memory, **work)
                    if policy is not named:
                        report, view = memory.report(), memory.view()
            made = {each.task.id: changes_of(each.messages) for each in outcomes}
            if policy is None:
                asked = made
                for each in outcomes:
                    line = {"thread_id": each.task.id, "messages": convert_to_openai_messages(each.messages)}
                    lines.append(json.dumps(line))
            unasked = sum((made[task] - asked[task]).total() for task in asked)
            calls = sum(each.llm_calls for each in outcomes)
            seconds = SECONDS_PER_CALL * calls + sum(each.seconds for each in outcomes)
            saved, right = (sum(getattr(each, name) for each in outcomes) for name in ("shortcuts", "right"))
            rows.append((way, f"{calls:,}", f"{saved:,}", str(unasked), f"{seconds:,.0f} s", f"{right} of {tasks}"))
    (log := folder / "runs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")

    columns = ("memory", "model calls", "saved", "unasked", "time", "done right")
    table(f"{tasks} requests to an office agent (scripted, not a language model)", columns, rows)
    say("reads: declared look-ups are made without the model; writes: changing tools, all named, as well.")
    say("Unasked: changes that the run without a memory does not make.")
    say("Time: one second for each model call, and what tools, graph and memory really took.")
    say("\n".join(report.lines()))
    say(f"\nThe log of the runs without it: {log}\n  toolmem replay {shlex.quote(str(log))}")
    shown_as = render_page(report, view, title="toolmem demo", generated=time.time())
    (page := folder / "report.html").write_text(shown_as, encoding="utf-8")
    say(f"What the memory did, as a page: {page.resolve()}")
    say("Your turn: toolmem replay your.jsonl")


def _office() -> Any:
    """Return the office's module: it lies in the wheel, and in a checkout among the examples."""
    try:
        return importlib.import_module("langgraph_toolmem.office")
    except ModuleNotFoundError:
        return importlib.import_module("examples.office")
