"""The commands of `toolmem` and their options. What is heavy is imported by the command that needs it."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from langgraph_toolmem._version import __version__
from langgraph_toolmem.base.errors import ConfigurationError, InputError, StorageError
from langgraph_toolmem.base.text import count, printable
from langgraph_toolmem.cli.demo import demo
from langgraph_toolmem.cli.inputs import (
    POLICY_HELP,
    Embeddings,
    Json,
    Lenient,
    LogFile,
    MemoryFolder,
    Namespace,
    ToolsFile,
    UserId,
    check_folder,
    load_log,
    log_in_plain,
    open_memory,
    read_policy,
    read_price,
    read_tools_file,
)
from langgraph_toolmem.cli.terminal import Commands, answer_json, note, progress, say, write_text

PATIENCE_SECONDS = 5.0
"""`feedback` waits so long for what the run's entries need."""
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


def main() -> None:
    """Entry point of the `toolmem` program."""
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


app.command()(demo)


@app.command()
def replay(
    file: LogFile,
    tools: ToolsFile = None,
    reads: Annotated[
        list[str] | None,
        typer.Option(
            "--reads", metavar="NAME", help="A tool that only reads, or a pattern such as `list_*`; repeatable."
        ),
    ] = None,
    policy: Annotated[str, typer.Option(metavar="POLICY", help=POLICY_HELP)] = "calibrated",
    seed: Annotated[int, typer.Option(help="Seed of what the memory draws by chance.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many runs.")] = None,
    prefetch: Annotated[
        bool, typer.Option("--prefetch", help="Say what running look-ups while the model thinks would have saved.")
    ] = False,
    tool_seconds: Annotated[
        float, typer.Option("--tool-seconds", min=0.0, help="With --prefetch: how long a tool call takes, in seconds.")
    ] = 1.0,
    lenient: Lenient = False,
    as_json: Json = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one web page, to put beside a pull request.")
    ] = None,
) -> None:
    """Show what the memory would have saved on recorded runs.

    Feeds the runs in order, predicts before each model turn what the memory would have done, then shows it
    the truth. Needs no key and calls no model.
    """
    from langgraph_toolmem.cli.tables import replay_in_words, show_replay
    from langgraph_toolmem.offline.prefetch import PrefetchTally
    from langgraph_toolmem.offline.replay import replay as run_replay

    if html is not None and as_json:
        raise ConfigurationError("choose one of --json and --html")
    chosen = read_policy(policy)
    schemas = read_tools_file(tools)
    kept: list[Any] = []
    log = load_log(file, lenient=lenient, limit=limit)
    with progress("replaying", len(log.runs), show=not as_json) as update:
        done = itertools.count(1)
        report = run_replay(
            log.runs,
            tools=schemas,
            reads=reads or (),
            policy=chosen,
            seed=seed,
            on_run=lambda _: update(next(done)),
            on_end=lambda memory: kept.extend((memory.report(), memory.view())),
            prefetch=PrefetchTally(tool_seconds=tool_seconds) if prefetch else None,
        )
    read = log_in_plain(file, log)
    if as_json:
        answer_json({**read, "policy": chosen.to_dict(), **report.to_dict()})
    elif html is not None:
        from langgraph_toolmem.page import render_page

        lead = [*replay_in_words(report), *([report.inertia.verdict] if report.inertia else [])]
        title = f"toolmem replay: {Path(read['file']).name}"
        write_text(html, render_page(*kept, title=title, generated=time.time(), lead=lead))
    else:
        show_replay(report)


@app.command("import")
def import_(
    file: LogFile,
    memory: MemoryFolder,
    tools: ToolsFile = None,
    max_model_calls: Annotated[int, typer.Option(min=1, help="At most so many calls of the chat model.")] = 500,
    entries: Annotated[bool, typer.Option(" /--no-entries", help="Keep no runs for recall.")] = True,
    atoms: Annotated[bool, typer.Option(" /--no-atoms", help="Make no atoms of successful runs.")] = True,
    atom_model: Annotated[
        str | None,
        typer.Option(
            "--atom-model",
            metavar="SPEC",
            help="The chat model that words atoms, `provider:model` [default: read off runs and schemas, no model].",
        ),
    ] = None,
    namespace: Namespace = None,
    embeddings: Embeddings = "builtin",
    lenient: Lenient = False,
    as_json: Json = False,
) -> None:
    """Warm a memory from recorded runs.

    The whole file is checked before anything is learned. Importing it again teaches nothing twice. Which tools to
    suggest is learned from all runs but those with "success": false; what their agents wrote with `summarize_state` is
    used. Each run is kept for recall, with its verdict, and the steps of successful ones become atoms for planning.
    """
    from langgraph_toolmem.base.models import resolve_model
    from langgraph_toolmem.cli.imports import Wanted, import_runs

    schemas, writer = read_tools_file(tools), None
    if atom_model is not None:
        from langgraph_toolmem.atoms.writer import AtomWriter

        writer = AtomWriter(resolve_model(atom_model, name="--atom-model"), most=max_model_calls)
    log = load_log(file, lenient=lenient)
    wanted = Wanted(entries, atoms, writer)
    with open_memory(memory, tools=schemas, namespace=namespace, embeddings=embeddings) as opened:
        before = opened.view().calls
        done = import_runs(opened, log.runs, wanted, show=not as_json)
        view, problems = opened.view(), opened.report().problems
    with open_memory(memory, read_only=True) as stored:
        kept = stored.view().calls
    if kept < view.calls:  # a memory goes on in RAM when the disk fails; an import is for what is stored
        why = "; ".join(problems) or "the reason is not known"
        raise StorageError(f"only {kept} of {view.calls} tool calls are stored in {memory}: {why}")
    learned = view.calls - before
    if as_json:
        told = {"memory": str(memory), "runs": len(log.runs), "calls_learned": learned, "calls_known": view.calls}
        answer_json({**log_in_plain(file, log), **told, **vars(done)})
        return
    say(f"Read {count(len(log.runs), 'run')} and learned {count(learned, 'new tool call')} from them.")
    say(f"The memory in {memory} now knows {count(view.calls, 'tool call')} of {count(len(view.tools), 'tool')}.")
    for line in done.sentences():
        say(line)


@app.command()
def report(
    memory: MemoryFolder,
    price: Annotated[
        str | None,
        typer.Option(metavar="IN:OUT[:CACHED]", help="Money per million input, output and cached tokens: 2.5:10:1.25."),
    ] = None,
    currency: Annotated[str, typer.Option(metavar="NAME", help="Of the price.")] = "USD",
    as_json: Json = False,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write one web page, with the graph to explore (- for stdout)."),
    ] = None,
) -> None:
    """Show what a memory did so far, and how often it was right.

    Skipped calls, precision, tokens and money saved: as a whole, per tool, per kind of prediction.
    """
    if html is not None and as_json:
        raise ConfigurationError("choose one of --json and --html")
    paid = read_price(price, currency)
    with open_memory(memory, read_only=True) as opened:
        result, view = opened.report(price=paid), opened.view()
    if as_json:
        answer_json(result.to_dict())
    elif html is not None:
        from langgraph_toolmem.page import render_page

        page = render_page(result, view, title=f"toolmem: {memory.resolve().name}", generated=time.time())
        if str(html) == "-":
            typer.echo(page, nl=False)
        else:
            write_text(html, page)
    else:
        from langgraph_toolmem.cli.tables import show_report

        show_report(result)


@app.command()
def explain(
    request: Annotated[str, typer.Argument(metavar="REQUEST", help="What a user says.")],
    memory: Annotated[
        Path | None, typer.Option("--memory", "--path", metavar="FOLDER", help="The folder of a memory.")
    ] = None,
    tools: Annotated[
        Path | None,
        typer.Option(
            "--tools",
            metavar="FILE",
            help="Tool schemas (JSON) or an OpenAPI document, besides those the memory saw, or without a memory.",
        ),
    ] = None,
    user_id: UserId = None,
    namespace: Namespace = None,
    embeddings: Embeddings = "builtin",
    as_json: Json = False,
) -> None:
    """Show what a memory would say to a request, and why.

    The next call, the next tools, the tools that fit and a plan of their calls, past runs and their steps. Writes
    nothing, calls no model and does not disturb a process that writes.
    """
    if not request.strip():
        raise InputError("the request is empty")
    if memory is None and tools is None:
        raise ConfigurationError("name a memory with --memory, or tools with --tools")
    from langgraph_toolmem.cli.explain import explain as explained
    from langgraph_toolmem.cli.explain import show_explanation

    schemas = read_tools_file(tools)
    if memory is None:
        from langgraph_toolmem.memory import ToolMemory

        opened = ToolMemory.ephemeral(tools=schemas)
    else:
        opened = open_memory(memory, read_only=True, namespace=namespace, embeddings=embeddings)
    with opened:
        if memory is not None and schemas is not None:
            from langgraph_toolmem.runs.tools import read_tools

            opened.core.refresh()
            opened.core.catalogue.adopt({**opened.core.catalogue.known, **read_tools(schemas)})
        found = explained(opened, request, user_id)
    if as_json:
        answer_json(found)
    else:
        show_explanation(found)


@app.command()
def doctor(
    memory: Annotated[
        Path | None,
        typer.Option("--memory", metavar="FOLDER", help="The folder of a memory [default: .toolmem if there]."),
    ] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Have entries and critiques that were given up tried again.")
    ] = False,
    reembed: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help='Make stored vectors again with another embedder: "builtin", "provider:model" or '
            '"sentence-transformers:<name or folder>".',
        ),
    ] = None,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild",
            help="Make a damaged Chroma again from its texts, with the embedder it had or that of --reembed.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Is everything installed, and the memory readable?

    Also says where the memory is, how big, what was set aside, and what is still to be written or was given up. The
    exit code is 1 if there is a problem.
    """
    from langgraph_toolmem.cli import health

    folder = health.DEFAULT_FOLDER if memory is None else memory
    if retry or rebuild or reembed is not None:
        check_folder(folder)
    if retry:
        note(f"to be tried again, by the process that works with the memory: {health.retry(folder):,}")
    if rebuild or reembed is not None:
        name, texts = health.rebuild(folder, reembed, damaged=rebuild, show=not as_json)
        note(f"{'Chroma was rebuilt: ' if rebuild else ''}{texts:,} texts were embedded again with {name}")
    found = health.examine(memory)
    if as_json:
        answer_json(found.to_dict())
    else:
        health.show_health(found)
    if found.problems:
        raise typer.Exit(1)


@app.command()
def feedback(
    thread_id: Annotated[str, typer.Argument(metavar="THREAD", help="The run: its thread id, as the agent had it.")],
    memory: MemoryFolder,
    score: Annotated[float, typer.Option(min=0.0, max=1.0, help="From 0 (bad) to 1 (good).", show_default=False)],
    comment: Annotated[str | None, typer.Option(metavar="TEXT", help="A word on it.")] = None,
    episode: Annotated[
        str | None,
        typer.Option(
            metavar="N|ID",
            help="The request in the thread: its number from 1, or the id of the user's message. Else the latest.",
        ),
    ] = None,
    user_id: UserId = None,
    namespace: Namespace = None,
    embeddings: Embeddings = "builtin",
    as_json: Json = False,
) -> None:
    """Say how a run went, also an hour later and from another process.

    Entries and summaries of the run follow in the background; while another process works with the folder, it writes
    them.
    """
    check_folder(memory)
    which = int(episode) if episode is not None and episode.isdecimal() else episode
    given: dict[str, Any] = {"score": score, "comment": comment, "episode": which, "user_id": user_id}
    with open_memory(memory, namespace=namespace, embeddings=embeddings) as opened:
        opened.feedback(thread_id, **given)
        queued = not opened.flush(timeout=PATIENCE_SECONDS)
    if as_json:
        answer_json({"thread_id": thread_id, "score": score, "comment": comment, "queued": queued})
    elif queued:
        say(
            f"Noted on {thread_id}. What is kept of the run is written by the process that works with {memory}, within "
            "a minute, or at its next start."
        )
    else:
        say(f"Noted: {thread_id} {'went well' if score >= 0.5 else 'went wrong'} (score {score:g}).")


@app.command()
def forget(
    memory: MemoryFolder,
    thread: Annotated[
        str | None,
        typer.Option(metavar="THREAD", help="Its id, as the agent had it; else all of the user goes."),
    ] = None,
    user_id: UserId = None,
    namespace: Namespace = None,
    embeddings: Embeddings = "builtin",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Take everything of a thread, or of a user, out of a memory and off the disk.

    No other process may write to the folder meanwhile.
    """
    check_folder(memory)
    if thread is None and not user_id:
        raise typer.BadParameter("Name a thread (--thread) or a user (--user-id).")
    what = f"the thread {printable(thread)}" if thread is not None else f"the user {printable(user_id or '')}"
    if not yes:
        typer.confirm(f"Forget all that {memory} keeps of {what}?", abort=True)
    with open_memory(memory, namespace=namespace, embeddings=embeddings) as opened:
        removed = opened.forget(thread_id=thread, user_id=user_id)
    if as_json:
        answer_json({"thread_id": thread, "user_id": user_id, "removed": removed})
    else:
        say(f"Forgotten: {removed:,} pieces of {what}." if removed else f"Nothing was kept of {what}.")
