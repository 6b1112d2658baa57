"""The commands of `toolmem` and their options. What they do is elsewhere; here is how they are called."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from langgraph_toolmem._version import __version__
from langgraph_toolmem.base.errors import ConfigurationError, InputError, StorageError, ToolMemoryError
from langgraph_toolmem.cli import atoms, evolve, graph, recall
from langgraph_toolmem.cli.bootstrap import bootstrap
from langgraph_toolmem.cli.demo import demo
from langgraph_toolmem.cli.derived import add_commands
from langgraph_toolmem.cli.discover import discover
from langgraph_toolmem.cli.export import export
from langgraph_toolmem.cli.feedback import feedback
from langgraph_toolmem.cli.forget import forget
from langgraph_toolmem.cli.inputs import (
    By,
    check_folder,
    load_log,
    open_memory,
    own_methods,
    read_atom_writer,
    read_model,
    read_price,
    read_tools_file,
    skipped_in_plain,
)
from langgraph_toolmem.cli.options import (
    AtomModel,
    Embeddings,
    Json,
    Lenient,
    LogFile,
    MemoryFolder,
    Namespace,
    ToolsFile,
)
from langgraph_toolmem.cli.replay import replay
from langgraph_toolmem.cli.tables import Format, form_of, render
from langgraph_toolmem.cli.terminal import Commands, answer_json, console, fail, note, progress, write_text
from langgraph_toolmem.cli.train import train
from langgraph_toolmem.runs.checkpoints import without_password

if TYPE_CHECKING:
    pass

app = typer.Typer(
    name="toolmem",
    cls=Commands,
    help="Tool-use memory for LangGraph agents: what do past runs tell about the next tool call?",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_UNLABELLED_HELP = (
    "Runs without a label teach which tools to suggest, too; give the agent's memory SITPolicy(unlabelled=WEIGHT)."
)


def main() -> None:
    """Entry point of the `toolmem` program."""
    try:
        for method in own_methods():
            add_commands(app, _groups, method.name, method.commands)
    except ToolMemoryError as error:
        sys.exit(fail(str(error)))
    app()


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"toolmem {__version__}")
        raise typer.Exit


@app.callback()
def _toolmem(
    context: typer.Context,
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command()(replay)


@app.command("import")
def import_(
    file: LogFile,
    memory: MemoryFolder,
    tools: ToolsFile = None,
    summaries: Annotated[
        str,
        typer.Option(
            metavar="BY",
            help="Who puts states of successful runs into words, where the agent did not: `extractive` (built in), "
            "a chat model `provider:model`, or `none`.",
        ),
    ] = "extractive",
    max_model_calls: Annotated[int, typer.Option(min=1, help="At most so many calls of each chat model.")] = 500,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before a chat model is called.")] = False,
    unlabelled: Annotated[float, typer.Option(min=0.0, max=1.0, metavar="WEIGHT", help=_UNLABELLED_HELP)] = 0.0,
    entries: Annotated[bool, typer.Option(" /--no-entries", help="Keep no runs for recall.")] = True,
    atoms: Annotated[bool, typer.Option(" /--no-atoms", help="Make no atoms of successful runs.")] = True,
    atom_model: AtomModel = None,
    namespace: Namespace = None,
    embeddings: Embeddings = "builtin",
    lenient: Lenient = False,
    as_json: Json = False,
) -> None:
    """Warm a memory from recorded runs.

    The whole file is checked before anything is learned. Importing it again teaches nothing twice. Which tools to
    suggest is learned from runs with "success": true; what their agents wrote with `summarize_state` is used. Each run
    is kept for recall, with its verdict, and the steps of successful ones become atoms for planning.
    """
    from langgraph_toolmem.cli.imports import Summaries, import_runs

    schemas = read_tools_file(tools)
    model = read_model(summaries)
    writer = None if atom_model is None or not atoms else read_atom_writer(atom_model, max_model_calls)
    log = load_log(file, lenient=lenient, quiet=as_json)
    wanted = Summaries(summaries, model, max_model_calls, asks=not yes, unlabelled=unlabelled)
    with open_memory(memory, tools=schemas, namespace=namespace, embeddings=embeddings) as opened:
        before = opened.view().calls
        done = import_runs(opened, log.runs, wanted, entries=entries, atoms=atoms, writer=writer, show=not as_json)
        view, problems = opened.view(), opened.report().problems
    with open_memory(memory, read_only=True) as stored:
        kept = stored.view().calls
    if kept < view.calls:  # a memory goes on in RAM when the disk fails; an import is for what is stored
        why = "; ".join(problems) or "the reason is not known"
        raise StorageError(f"only {kept} of {view.calls} tool calls are stored in {memory}: {why}")
    learned = view.calls - before
    if as_json:
        runs = {"file": without_password(file), "memory": str(memory), "runs": len(log.runs)}
        calls = {"calls_learned": learned, "calls_known": view.calls, "entries": done.entries}
        calls |= {"atom_steps": done.atom_steps, "atom_model_calls": done.atom_calls}
        answer_json({**runs, **calls, "states": {"by": summaries, **done.states()}, **skipped_in_plain(log)})
        return
    from langgraph_toolmem.base.text import count

    known, of = count(view.calls, "tool call"), count(len(view.tools), "tool")
    typer.echo(f"Read {count(len(log.runs), 'run')} and learned {count(learned, 'new tool call')} from them.")
    typer.echo(f"The memory in {memory} now knows {known} of {of}.")
    for line in done.sentences(wanted):
        typer.echo(line)


@app.command()
def report(
    memory: MemoryFolder,
    price: Annotated[
        str | None,
        typer.Option(metavar="IN:OUT[:CACHED]", help="Money per million input, output and cached tokens: 2.5:10:1.25."),
    ] = None,
    currency: Annotated[str | None, typer.Option(metavar="NAME", help="Of the price [default: USD].")] = None,
    by: Annotated[
        By | None, typer.Option(help="Periods over time, in UTC [default: what fits; hours with --json].")
    ] = None,
    as_json: Json = False,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write one web page, with the graph to explore (- for stdout)."),
    ] = None,
) -> None:
    """What did a memory do so far, and how often was it right?

    Skipped calls, precision, tokens and money saved: as a whole, per tool, per kind of prediction, over time.
    """
    if html is not None and (as_json or by is not None):
        raise ConfigurationError("--html has everything on one page; leave out --json and --by")
    paid = read_price(price, currency)
    with open_memory(memory, read_only=True) as opened:
        result, view = opened.report(price=paid), opened.view()
    if html is not None:
        from langgraph_toolmem.page import render_page

        page = render_page(result, view, title=f"toolmem: {memory.resolve().name}", generated=time.time())
        if str(html) == "-":
            typer.echo(page, nl=False)
        else:
            write_text(html, page)
        return
    from langgraph_toolmem.cli.record import report_in_plain, show_report

    if as_json:
        answer_json(report_in_plain(result, by or By.HOUR))
    else:
        show_report(console(), result, by)


@app.command()
def watch(
    memory: MemoryFolder,
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="From look to look.")] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Show the state, and what came since the last snapshot, and stop.")
    ] = False,
    plain: Annotated[
        bool, typer.Option("--plain", help="One line per event instead of a panel, as into a pipe.")
    ] = False,
) -> None:
    """Follow a memory while another process writes to it.

    Each step appears as it is learned: skipped, or asked of the model and foreseen or not. Writes nothing and
    does not disturb the writer. Times are UTC. Ctrl-C ends it, with exit code 0, as there is no other end.
    """
    check_folder(memory)
    from langgraph_toolmem.cli.live import follow, show_once
    from langgraph_toolmem.cli.watch import Watcher

    with Watcher(memory) as watcher:
        if once:
            show_once(watcher, now=time.time())
        else:
            follow(watcher, every=every, plain=plain)


@app.command()
def inspect(
    memory: MemoryFolder,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="As a Mermaid flowchart.")] = False,
    as_json: Json = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write to a file instead.")
    ] = None,
    min_count: Annotated[int, typer.Option(min=1, help="Mermaid: leave out arrows seen less often.")] = 1,
    max_edges: Annotated[int, typer.Option(min=1, help="Mermaid: draw at most so many arrows.")] = 60,
) -> None:
    """Show what a memory knows.

    Which tools, what follows what, and where arguments come from: as tables, Mermaid or JSON.
    """
    if mermaid and as_json:
        raise ConfigurationError("choose one of --mermaid and --json")
    form = Format.MERMAID if mermaid else Format.JSON if as_json else None
    if form is None:
        form = form_of(output) if output else Format.TABLES
    with open_memory(memory, read_only=True) as opened:
        view = opened.view()
    if form is Format.TABLES:
        from langgraph_toolmem.cli.tables import show_graph

        show_graph(console(), view)
        return
    text = render(view, form, min_count=min_count, max_edges=max_edges)
    if output is None:
        typer.echo(text, nl=False)
        return
    write_text(output, text)


@app.command()
def reembed(
    memory: MemoryFolder,
    embeddings: Annotated[
        str,
        typer.Option(
            metavar="SPEC",
            help='The new embedder: "builtin", "provider:model" or "sentence-transformers:<name or folder>".',
        ),
    ],
    as_json: Json = False,
) -> None:
    """Make stored vectors again after the embedder was changed. Texts stay; a crash half-way loses nothing."""
    if not memory.is_dir():
        raise InputError(f"there is no memory at {memory}")
    from langgraph_toolmem.search.embedders import resolve_embedder
    from langgraph_toolmem.stores.folder_lock import FolderLock
    from langgraph_toolmem.stores.vectors import VectorStore

    embedder = resolve_embedder(None if embeddings == "builtin" else embeddings)
    lock = FolderLock(memory)  # no agent may write meanwhile
    try:
        with VectorStore(memory, embedder=embedder, namespace=("toolmem",)) as vectors:
            total = sum(vectors.size()["kinds"].values())
            with progress("embedding", max(total, 1), show=not as_json) as update:
                done = vectors.reembed(progress=lambda texts, _of: update(texts))
    finally:
        lock.release()
    if as_json:
        answer_json({"embedder": embedder.name, "texts": done})
        return
    typer.echo(f"{sum(done.values()):,} texts were embedded again with {embedder.name}.")


@app.command()
def doctor(
    memory: Annotated[
        Path | None,
        typer.Option("--memory", metavar="FOLDER", help="The folder of a memory [default: .toolmem if there]."),
    ] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Have entries and critiques that were given up tried again.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Is everything installed, and the memory readable?

    Also says where the memory is, how big, what was set aside, and what is still to be written or was given up. The
    exit code is 1 if there is a problem.
    """
    from langgraph_toolmem.cli.health import DEFAULT_FOLDER, examine, show_health

    if retry:
        from langgraph_toolmem.cli import waiting

        folder = DEFAULT_FOLDER if memory is None else memory
        check_folder(folder)
        note(f"to be tried again, by the process that works with the memory: {waiting.retry(folder):,}")
    health = examine(memory)
    if as_json:
        answer_json(health.to_dict())
    else:
        show_health(console(), health)
    if health.problems:
        raise typer.Exit(1)


app.command()(demo)
app.command()(export)
_groups = {"graph": graph.app}
app.add_typer(graph.app, name="graph")
for _name, _commands in (("navigator", evolve.COMMANDS), ("atoms", atoms.COMMANDS), ("entries", recall.COMMANDS)):
    add_commands(app, _groups, _name, _commands)
app.command()(bootstrap)
app.command()(discover)
app.command()(feedback)
app.command()(forget)
app.command()(train)
