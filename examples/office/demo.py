"""200 office tasks without and with a tool memory, side by side.

    python -m examples.office.demo
    python -m examples.office.demo --model openai:gpt-4.1-mini --tasks 40

By default the model is scripted: a real `ChatOpenAI` talks over HTTP to a server on this machine that answers
with `examples.office.assistant`. Calls, tokens and final states are counted the same way with a real model.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.office import assistant
from examples.office.office import Office
from examples.office.runs import Outcome, Totals, lost, run_tasks, totals
from examples.office.tasks import Task, make_tasks
from langgraph_toolmem.base.errors import MissingExtraError
from langgraph_toolmem.testing import OpenAIStubServer, make_chat_model

WARM_UP = 50  # tasks after which the second table starts
SCRIPTED = "scripted"


@contextmanager
def chat_model(name: str, *, seed: int, latency_s: float, variation: float) -> Iterator[BaseChatModel]:
    """The model of one pass: the scripted one behind a server of its own, or a real one by its name."""
    if name == SCRIPTED:
        reply = partial(assistant.reply, variation=variation)
        with OpenAIStubServer(reply=reply, seed=seed, latency_s=latency_s) as server:
            yield make_chat_model(server)
        return
    try:
        from langchain.chat_models import init_chat_model
    except ImportError as error:
        raise MissingExtraError(f"--model {name}", "agents,openai") from error
    yield init_chat_model(name)


def compare(
    tasks: Sequence[Task], *, model: str, seed: int, latency_s: float, variation: float, console: Console
) -> tuple[list[Outcome], list[Outcome], Any]:
    """Both passes: outcomes without, outcomes with, and the memory's report."""
    from langgraph_toolmem import ToolMemory

    with _progress(console) as progress:
        bar = progress.add_task("without memory", total=len(tasks))
        with chat_model(model, seed=2 * seed, latency_s=latency_s, variation=variation) as llm:
            without = run_tasks(llm, tasks, Office(0), done=lambda _: progress.advance(bar))
        second = progress.add_task("with memory", total=len(tasks))
        with tempfile.TemporaryDirectory(prefix="toolmem-demo-") as folder:
            office = Office(0)
            with (
                chat_model(model, seed=2 * seed + 1, latency_s=latency_s, variation=variation) as llm,
                ToolMemory(Path(folder) / "memory", tools=office.tools()) as memory,
            ):
                remembered = run_tasks(llm, tasks, office, memory, done=lambda _: progress.advance(second))
                report = memory.report()
    return without, remembered, report


def table(title: str, without: Totals, remembered: Totals) -> Table:
    """Both passes side by side."""
    grid = Table(title=title, title_justify="left")
    grid.add_column("")
    for heading in ("without memory", "with memory", "change"):
        grid.add_column(heading, justify="right")
    rows: list[tuple[str, float, float, str]] = [
        ("LLM calls", without.llm_calls, remembered.llm_calls, ",.0f"),
        ("tokens (prompt + completion)", without.tokens, remembered.tokens, ",.0f"),
        ("  prompt", without.prompt_tokens, remembered.prompt_tokens, ",.0f"),
        ("  completion", without.completion_tokens, remembered.completion_tokens, ",.0f"),
        ("wall time in s", without.seconds, remembered.seconds, ",.1f"),
    ]
    for name, before, after, form in rows:
        change = f"{(after - before) / before:+.0%}" if before else ""
        grid.add_row(name, format(before, form), format(after, form), change)
    grid.add_row("calls made by the memory", "", str(remembered.shortcuts), "")
    right = [f"{part.right} of {part.tasks}" for part in (without, remembered)]
    grid.add_row("tasks with the right final state", *right, f"{remembered.right - without.right:+d}")
    return grid


def saved_by_block(without: Sequence[Outcome], remembered: Sequence[Outcome]) -> list[float]:
    """Share of the LLM calls saved in each WARM_UP tasks."""
    saved = []
    for start in range(0, len(without), WARM_UP):
        before = totals(without[start : start + WARM_UP]).llm_calls
        after = totals(remembered[start : start + WARM_UP]).llm_calls
        saved.append((before - after) / before if before else 0.0)
    return saved


def show(console: Console, without: Sequence[Outcome], remembered: Sequence[Outcome], report: Any, note: str) -> None:
    """Print everything."""
    console.print(f"\n{note}\n")
    console.print(table(f"All {len(without)} tasks", totals(without), totals(remembered)))
    if len(without) > WARM_UP:
        late = totals(without[WARM_UP:]), totals(remembered[WARM_UP:])
        console.print(table(f"After the first {WARM_UP} tasks", *late))
    curve = "  ".join(f"{share:.0%}" for share in saved_by_block(without, remembered))
    console.print(f"LLM calls saved in each {WARM_UP} tasks, as the memory learns: {curve}")
    gone = lost(without, remembered)
    console.print(f"Tasks that succeed without the memory only: {len(gone)}")
    for outcome in gone:
        console.print(f"  {outcome.id} {outcome.kind} {outcome.error}", markup=False)
    console.print()
    console.print(str(report), markup=False)


def to_dict(without: Sequence[Outcome], remembered: Sequence[Outcome], report: Any, note: str) -> Any:
    """The same for `--json`."""
    return {
        "note": note,
        "all": {"without": totals(without).to_dict(), "with": totals(remembered).to_dict()},
        f"after_{WARM_UP}": {
            "without": totals(without[WARM_UP:]).to_dict(),
            "with": totals(remembered[WARM_UP:]).to_dict(),
        },
        f"saved_by_{WARM_UP}": [round(share, 4) for share in saved_by_block(without, remembered)],
        "lost": [asdict(outcome) for outcome in lost(without, remembered)],
        "report": report.to_dict(),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m examples.office.demo", description=__doc__.split("\n")[0])
    parser.add_argument("--model", default=SCRIPTED, help='"scripted" (default) or "provider:model"')
    parser.add_argument("--tasks", type=int, default=200, help="number of tasks")
    parser.add_argument("--seed", type=int, default=0, help="seed of the tasks")
    parser.add_argument("--latency-ms", type=float, default=20.0, help="wait of the scripted model per call")
    parser.add_argument(
        "--variation",
        type=float,
        default=assistant.OPTION_PERCENT,
        metavar="PERCENT",
        help="share of the requests that make the scripted model fill an optional argument (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    if options.tasks < 1 or options.latency_ms < 0:
        parser.error("--tasks must be at least 1 and --latency-ms must not be negative")
    if not 0 <= options.variation <= 100:
        parser.error("--variation must be from 0 to 100")
    if options.model == SCRIPTED:
        note = (
            f"The model is the {assistant.LABEL}, behind a local OpenAI-protocol server that waits "
            f"{options.latency_ms:g} ms before each answer; tokens are counted as four characters each. It fills an "
            f"optional argument in {options.variation:g} % of the requests (--variation)."
        )
        _no_proxy_for_loopback()
    else:
        note = f"The model is {options.model}."
    tasks = make_tasks(options.tasks, options.seed)
    without, remembered, report = compare(
        tasks,
        model=options.model,
        seed=options.seed,
        latency_s=options.latency_ms / 1000,
        variation=options.variation,
        console=Console(stderr=True),
    )
    if options.json:
        print(json.dumps(to_dict(without, remembered, report, note), indent=2))
    else:
        show(Console(), without, remembered, report, note)
    return 0


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description:15}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


def _no_proxy_for_loopback() -> None:
    # A proxy of the environment cannot reach the server on this machine.
    for name in ("NO_PROXY", "no_proxy"):
        known = os.environ.get(name, "")
        os.environ[name] = f"{known},127.0.0.1" if known else "127.0.0.1"


if __name__ == "__main__":
    sys.exit(main())
