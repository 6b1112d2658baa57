"""`toolmem replay`: what the memory would have saved on recorded runs."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.cli.inputs import POLICY_HELP, load_log, read_policy, read_tools_file, skipped_in_plain
from langgraph_toolmem.cli.options import Json, Lenient, LogFile, Reads, ToolSeconds, ToolsFile, WithPrefetch
from langgraph_toolmem.cli.tables import replay_in_words, show_replay
from langgraph_toolmem.cli.terminal import answer_json, console, progress, write_text
from langgraph_toolmem.runs.checkpoints import without_password


def replay(
    file: LogFile,
    tools: ToolsFile = None,
    reads: Reads = None,
    policy: Annotated[str, typer.Option(metavar="POLICY", help=POLICY_HELP)] = "calibrated",
    min_precision: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Act only from this probability on.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of what the memory draws by chance.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many runs.")] = None,
    prefetch: WithPrefetch = False,
    tool_seconds: ToolSeconds = 1.0,
    lenient: Lenient = False,
    as_json: Json = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one web page, to put beside a pull request.")
    ] = None,
) -> None:
    """What would the memory have saved on recorded runs?

    Feeds the runs in order, predicts before each model turn what the memory would have done, then shows it
    the truth. Needs no key and calls no model.
    """
    from langgraph_toolmem.offline.prefetch import PrefetchTally
    from langgraph_toolmem.offline.replay import replay as run_replay

    if html is not None and as_json:
        raise ConfigurationError("choose one of --json and --html")
    chosen = read_policy(policy, min_precision=min_precision)
    schemas = read_tools_file(tools)
    kept: list[Any] = []
    log = load_log(file, lenient=lenient, limit=limit, quiet=as_json)
    with progress("replaying", len(log.runs), show=not as_json) as update:
        done = count(1)
        ahead = PrefetchTally(tool_seconds=tool_seconds) if prefetch else None
        told: dict[str, Any] = {"on_run": lambda _: update(next(done)), "prefetch": ahead}
        told["on_end"] = lambda memory: kept.extend((memory.report(), memory.view()))
        report = run_replay(log.runs, tools=schemas, reads=reads or (), policy=chosen, seed=seed, **told)
    if as_json:
        read = {"file": without_password(file), "policy": chosen.to_dict(), **skipped_in_plain(log)}
        answer_json({**read, **report.to_dict()})
        return
    if html is not None:
        from langgraph_toolmem.page import render_page

        lead = [*replay_in_words(report), *([report.inertia.verdict] if report.inertia else [])]
        title = f"toolmem replay: {Path(without_password(file)).name}"
        write_text(html, render_page(*kept, title=title, generated=time.time(), lead=lead))
        return
    show_replay(console(), report)
