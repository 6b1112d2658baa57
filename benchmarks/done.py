"""When planning says that the work is done, was it? Recorded runs, split by task.

``python -m benchmarks.done``; what is measured and how: README.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from langchain_core.messages import AIMessage, ToolMessage, convert_to_messages
from rich.console import Console
from rich.table import Table

from benchmarks.next_tool import runs_of
from benchmarks.replay import DATA, arrange
from langgraph_toolmem import Atoms, ToolMemory
from langgraph_toolmem.atoms.planning import Planned
from langgraph_toolmem.atoms.step import PlanHints
from langgraph_toolmem.runs.logs import LoggedRun
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.turn.ask import StepGenerator, drive
from langgraph_toolmem.turn.call import Call

SETS: Final = ("workbench_gpt4", "tau2_retail_gpt41mini", "tau2_telecom_gpt41", "tau2_airline_gpt54")
LEAST_RIGHT: Final = 0.8


@dataclass
class Told:
    """Model calls after a call that went well, those that were answered in words, and those at which it was said."""

    asked: int = 0
    ended: int = 0
    said: int = 0
    right: int = 0

    def __add__(self, other: Told) -> Told:
        return Told(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


def measure(runs: Sequence[LoggedRun], tools: Sequence[dict[str, Any]], cut: int) -> Told:
    """Runs before `cut` are learned, the others asked of."""
    specs, told = read_tools(tools), Told()
    with ToolMemory.ephemeral(methods=[Atoms(keep=True)]) as memory:
        memory.core.catalogue.adopt(specs)
        for run in runs[:cut]:
            memory.finish(run.messages, thread_id=run.thread_id, success=run.success)
        memory.flush()
        step = PlanHints(memory.atoms)
        for run in runs[cut:]:
            messages = convert_to_messages(run.messages)
            for place, answer in enumerate(messages):
                latest = messages[place - 1] if place else None
                if isinstance(answer, AIMessage) and isinstance(latest, ToolMessage) and latest.status == "success":
                    call = Call(messages[:place], f"asked {run.thread_id}", tools=specs, offered=tools)
                    said, ended = _looked(step, call).done is not None, not answer.tool_calls
                    told += Told(1, ended, said, said and ended)
    return told


def table(found: dict[str, Told]) -> Table:
    """One line for each set."""
    answer = Table(title="The work is done: said after a call, right if the model answered", title_justify="left")
    for column in ("set", "after a call", "answered", "said", "right", "of the answers"):
        answer.add_column(column, justify="left" if column == "set" else "right")
    for name, told in found.items():
        shares = [(told.ended, told.asked), (told.said, told.asked), (told.right, told.said), (told.right, told.ended)]
        answer.add_row(name, str(told.asked), *(f"{100 * part / max(whole, 1):.1f} %" for part, whole in shares))
    return answer


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.done", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, default=3, help="number of splits (0, 1, …)")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--limit", type=int, help="only the first so many runs of each set")
    parser.add_argument("--data", type=Path, default=DATA, help="where the sets are")
    parser.add_argument("--json", type=Path, dest="json_file", help="write every figure there")
    options = parser.parse_args(arguments)
    found: dict[str, Told] = {}
    for name in options.sets:
        folder = options.data / name
        runs = runs_of(folder, limit=options.limit)
        if runs is None:
            print(f"skipped: no recorded runs in {name} (looked for ../shared/data/{name})")
            continue
        tools = json.loads((folder / "tools.json").read_text(encoding="utf-8"))
        with Console(stderr=True).status(name):
            splits = [measure(*_arranged(runs, tools, seed)) for seed in range(options.seeds)]
        found[name] = sum(splits, start=Told())
    if not found:
        return 0
    Console(width=None if sys.stdout.isatty() else 160).print(table(found))
    for name, told in found.items():
        right = told.right / max(told.said, 1)
        print(f"{'holds' if right >= LEAST_RIGHT else 'MISSED'}  {name}: right {right:.2f} >= {LEAST_RIGHT}")
    if options.json_file is not None:
        plain = {name: asdict(told) for name, told in found.items()}
        options.json_file.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    return 0


def _looked(step: PlanHints, call: Call) -> Planned:
    body: Callable[[], Planned | StepGenerator[Planned]] = partial(step.compute, call)
    return drive(body)


def _arranged(
    runs: Sequence[LoggedRun], tools: Sequence[dict[str, Any]], seed: int
) -> tuple[list[LoggedRun], Sequence[dict[str, Any]], int]:
    order, cut = arrange(runs, "warm", seed)
    return order, tools, cut


if __name__ == "__main__":
    sys.exit(main())
