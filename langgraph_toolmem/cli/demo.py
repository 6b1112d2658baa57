"""`toolmem demo`: an office agent without the memory and with it, on this machine, with a scripted model."""

from __future__ import annotations

import importlib
import json
import shlex
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langgraph_toolmem.cli.terminal import progress, say, table

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage


def demo(
    tasks: Annotated[int, typer.Option(min=1, help="Number of requests to the office agent.")] = 120,
    seed: Annotated[int, typer.Option(help="Seed of the requests.")] = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Folder for log, memory and page [default: a new one]."),
    ] = None,
) -> None:
    """Watch an office agent without the memory and with it. Its model is scripted: no key, no network."""
    from langgraph_toolmem.inertia import Inertia
    from langgraph_toolmem.memory import ToolMemory
    from langgraph_toolmem.page import render_page
    from langgraph_toolmem.runs.tools import read_tools, side_effects

    scene = _office()
    office, requests = scene.Office(), scene.make_tasks(tasks, seed)
    specs = read_tools(office.tools())
    changing = {name for name, spec in specs.items() if side_effects(spec) != "reads"}
    folder = out or Path(tempfile.mkdtemp(prefix="toolmem-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    with progress("requests", 2 * tasks, show=True) as update:
        number = count(1)

        def done(_outcome: Any) -> None:
            update(next(number))

        work: dict[str, Any] = {"tasks": requests, "office": office, "done": done}
        alone = scene.run_tasks(scene.scripted_model(), **work)
        # The shortcut alone: a scripted model does not read hints.
        with ToolMemory(
            folder / "memory", tools=office.tools(), methods=[Inertia()], namespace=("toolmem", "{user_id}")
        ) as memory:
            helped = scene.run_tasks(scene.scripted_model(), memory=memory, **work)
            report, view = memory.report(), memory.view()
    # The changes without a memory are the right ones: the scripted model does not make mistakes.
    asked = {outcome.task.id: _changes(outcome.messages, changing) for outcome in alone}
    without, with_memory = _total(alone, changing, asked), _total(helped, changing, asked)
    # A call of the memory that did not save a model call was in vain.
    saved = without.calls - with_memory.calls
    rows = [without.row("without", 0, tasks), with_memory.row("with", saved, tasks)]
    log = folder / "runs.jsonl"
    _write_log(log, alone)

    columns = ("memory", "model calls", "saved", "unasked", "time", "done right")
    table(f"{tasks} requests to an office agent (scripted, not a language model)", columns, rows)
    say("Unasked: changes that the run without a memory does not make.")
    made, useless = with_memory.shortcuts, with_memory.shortcuts - saved
    if useless > 0:
        say(f"The memory made {made:,} look-ups without the model; {useless} of them did not save a model call.")
    say("Time: one second for each model call, and the measured time of tools, graph and memory.")
    say("\n".join(report.lines()))
    # A log does not say which tools only read.
    reads = " ".join([f"--reads {name}" for name in specs if name not in changing])
    say(f"\nThe log of the runs without it: {log}\n  toolmem replay {shlex.quote(str(log))} {reads}")
    page = folder / "report.html"
    page.write_text(render_page(report, view, title="toolmem demo", generated=time.time()), encoding="utf-8")
    say(f"What the memory did, as a page: {page.resolve()}")
    say("With your logs: toolmem replay your.jsonl --reads NAME, for each tool that only looks something up")


@dataclass(slots=True)
class _Total:
    """Sums over the runs of one side of the comparison."""

    calls: int = 0
    shortcuts: int = 0
    right: int = 0
    unasked: int = 0
    seconds: float = 0.0

    def add(self, outcome: Any, *, unasked: int) -> None:
        self.calls += outcome.llm_calls
        self.shortcuts += outcome.shortcuts
        self.right += outcome.right
        self.unasked += unasked
        self.seconds += outcome.seconds + outcome.llm_calls  # one second for each model call

    def row(self, name: str, saved: int, tasks: int) -> tuple[str, ...]:
        return (
            name,
            f"{self.calls:,}",
            f"{saved:,}",
            str(self.unasked),
            f"{self.seconds:,.0f} s",
            f"{self.right} of {tasks}",
        )


def _total(outcomes: Iterable[Any], changing: set[str], asked: Mapping[str, Counter[str]]) -> _Total:
    """Return the sums over some runs; `asked`: by task, the changes that are right."""
    total = _Total()
    for outcome in outcomes:
        changes = _changes(outcome.messages, changing)
        total.add(outcome, unasked=(changes - asked[outcome.task.id]).total())
    return total


def _write_log(file: Path, outcomes: Iterable[Any]) -> None:
    """Write runs as `toolmem replay` reads them."""
    from langchain_core.messages import convert_to_openai_messages

    lines = []
    for outcome in outcomes:
        run = {"thread_id": outcome.task.id, "messages": convert_to_openai_messages(outcome.messages)}
        lines.append(json.dumps(run) + "\n")
    file.write_text("".join(lines), encoding="utf-8")


def _changes(messages: list[BaseMessage], changing: set[str]) -> Counter[str]:
    """Count the calls of changing tools, by tool and arguments."""
    changes = Counter[str]()
    for message in messages:
        for call in getattr(message, "tool_calls", ()):
            if call["name"] in changing:
                changes[json.dumps([call["name"], call["args"]], sort_keys=True)] += 1
    return changes


def _office() -> Any:
    """Return the office's module: the wheel contains it, and a checkout has it in the examples."""
    try:
        return importlib.import_module("langgraph_toolmem.office")
    except ModuleNotFoundError:
        return importlib.import_module("examples.office")
