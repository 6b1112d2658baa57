"""200 office tasks without and with a tool memory in each of its gears, side by side.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from langgraph_toolmem.base.errors import MissingExtraError
from langgraph_toolmem.testing import OpenAIStubServer, make_chat_model

from . import assistant
from .office import Office
from .runs import Outcome, Totals, lost, run_tasks, totals
from .tasks import Task, make_tasks

if TYPE_CHECKING:
    from langgraph_toolmem import InertiaPolicy

WARM_UP = 50  # tasks after which the second table starts
SCRIPTED = "scripted"
PREFETCH = "prefetch"
GEARS = ("shadow", PREFETCH, "reads", "reads and named writes")


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


@dataclass(frozen=True)
class Pass:
    """All tasks once: in which gear, what each cost, and the memory's report at the end (None without a memory)."""

    gear: str
    outcomes: list[Outcome]
    report: Any = None

    @property
    def late(self) -> list[Outcome]:
        """The tasks after the first WARM_UP."""
        return self.outcomes[WARM_UP:]


def gears(tools: Sequence[BaseTool]) -> dict[str, InertiaPolicy]:
    """How far the memory may go, by the name that the tables give it."""
    from langgraph_toolmem import InertiaPolicy

    named = frozenset(tool.name for tool in tools)
    return {
        "shadow": InertiaPolicy(shadow=True),
        PREFETCH: InertiaPolicy(shadow=True),
        "reads": InertiaPolicy(),
        "reads and named writes": InertiaPolicy(may_write=named, allow_destructive=named),
    }


def compare(
    tasks: Sequence[Task],
    *,
    model: str,
    seed: int,
    latency_s: float,
    variation: float,
    wanted: Sequence[str],
    console: Console,
) -> list[Pass]:
    """All tasks without a memory, then in each gear with a memory of its own that begins empty."""
    from langgraph_toolmem import Inertia, ToolMemory, default_methods

    llm = partial(chat_model, model, latency_s=latency_s, variation=variation)
    with _progress(console) as progress:

        def one_pass(name: str, policy: InertiaPolicy | None, number: int) -> Pass:
            bar = progress.add_task(name, total=len(tasks))
            office = Office(0)
            run = partial(run_tasks, tasks=tasks, office=office, done=lambda _: progress.advance(bar))
            with llm(seed=5 * seed + number) as chat:
                if policy is None:
                    return Pass(name, run(chat))
                with tempfile.TemporaryDirectory(prefix="toolmem-demo-") as folder:
                    methods = default_methods(Inertia(policy))
                    home: dict[str, Any] = {"namespace": ("toolmem", "{user_id}"), "tools": office.tools()}
                    with ToolMemory(Path(folder) / "memory", methods=methods, **home) as memory:
                        return Pass(name, run(chat, memory=memory, prefetch=name == PREFETCH), memory.report())

        known = gears(Office(0).tools())
        passes = {"without memory": None, **{gear: known[gear] for gear in known if gear in wanted}}
        return [one_pass(name, policy, number) for number, (name, policy) in enumerate(passes.items())]


def table(title: str, shown: Mapping[str, Totals]) -> Table:
    """The passes side by side, the one without a memory first."""
    grid = Table(title=title, title_justify="left")
    grid.add_column("")
    for gear in shown:
        grid.add_column(gear, justify="right")
    before = next(iter(shown.values()))

    def row(name: str, of: Callable[[Totals], float], form: str) -> None:
        cells = [format(of(each), form) for each in shown.values()]
        changes = [f" ({of(each) / of(before) - 1:+.0%})" if of(before) else "" for each in shown.values()]
        grid.add_row(name, cells[0], *(cell + change for cell, change in zip(cells[1:], changes[1:], strict=True)))

    row("LLM calls", lambda t: t.llm_calls, ",.0f")
    row("tokens (prompt + completion)", lambda t: t.tokens, ",.0f")
    row("wall time in s", lambda t: t.seconds, ",.1f")
    grid.add_row("calls made by the memory", *(f"{each.shortcuts:,}" for each in shown.values()))
    grid.add_row("tasks with the right final state", *(f"{t.right} of {t.tasks}" for t in shown.values()))
    return grid


def saved_by_block(without: Sequence[Outcome], remembered: Sequence[Outcome]) -> list[float]:
    """Share of the LLM calls saved in each WARM_UP tasks."""
    saved = []
    for start in range(0, len(without), WARM_UP):
        before = totals(without[start : start + WARM_UP]).llm_calls
        after = totals(remembered[start : start + WARM_UP]).llm_calls
        saved.append((before - after) / before if before else 0.0)
    return saved


def show(console: Console, passes: Sequence[Pass], note: str) -> None:
    """Print everything."""
    without, *remembered = passes
    console.print(f"\n{note}\n")
    console.print(table(f"All {len(without.outcomes)} tasks", {p.gear: totals(p.outcomes) for p in passes}))
    if without.late:
        console.print(table(f"After the first {WARM_UP} tasks", {p.gear: totals(p.late) for p in passes}))
    console.print(f"LLM calls saved in each {WARM_UP} tasks, as the memory learns:")
    for each in remembered:
        curve = "  ".join(f"{share:.0%}" for share in saved_by_block(without.outcomes, each.outcomes))
        gone = lost(without.outcomes, each.outcomes)
        console.print(f"  {each.gear}: {curve}; tasks that succeed without the memory only: {len(gone)}")
        if ahead := each.report["inertia"].get("prefetch"):
            console.print(f"    look-ups prefetched: {ahead['started']}, asked for and served: {ahead['served']}")
        for outcome in gone:
            console.print(f"    {outcome.id} {outcome.kind} {outcome.error}", markup=False)
    console.print(f"\nThe report of the last pass ({remembered[-1].gear}):\n")
    console.print(str(remembered[-1].report), markup=False)


def to_dict(passes: Sequence[Pass], note: str) -> Any:
    """The same for `--json`."""
    without, *remembered = passes
    return {
        "note": note,
        "all": {each.gear: totals(each.outcomes).to_dict() for each in passes},
        f"after_{WARM_UP}": {each.gear: totals(each.late).to_dict() for each in passes},
        f"saved_by_{WARM_UP}": {
            each.gear: [round(share, 4) for share in saved_by_block(without.outcomes, each.outcomes)]
            for each in remembered
        },
        "lost": {each.gear: [asdict(task) for task in lost(without.outcomes, each.outcomes)] for each in remembered},
        "reports": {each.gear: each.report.to_dict() for each in remembered},
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
    parser.add_argument("--gears", nargs="+", default=GEARS, choices=GEARS, help="how far the memory goes")
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
    passes = compare(
        tasks,
        model=options.model,
        seed=options.seed,
        latency_s=options.latency_ms / 1000,
        variation=options.variation,
        wanted=options.gears,
        console=Console(stderr=True),
    )
    if options.json:
        print(json.dumps(to_dict(passes, note), indent=2))
    else:
        show(Console(), passes, note)
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
