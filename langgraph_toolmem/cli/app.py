"""The nine commands of `toolmem`, and their options: logs, tools, policies, memories.

Each command imports the heavy modules that it needs.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from langgraph_toolmem._version import __version__
from langgraph_toolmem.base.errors import ConfigurationError, InputError, NamespaceError, StorageError, ToolMemoryError
from langgraph_toolmem.base.text import count, printable
from langgraph_toolmem.cli.demo import demo
from langgraph_toolmem.cli.evaluate import evaluate
from langgraph_toolmem.cli.prices import read_price
from langgraph_toolmem.cli.terminal import answer_json, note, progress, say, write_text

if TYPE_CHECKING:
    from langgraph_toolmem.core.method import Method
    from langgraph_toolmem.graph.view import GraphView
    from langgraph_toolmem.inertia.policy import InertiaPolicy
    from langgraph_toolmem.memory import ToolMemory
    from langgraph_toolmem.report.report import Report
    from langgraph_toolmem.runs.logs import LoggedRun, RunLog
    from langgraph_toolmem.runs.run import Run

BAD_INPUT: Final = 2
INTERRUPTED: Final = 130
BATCH: Final = 200
"""Runs that `import` learns at a time."""
FLUSH_SECONDS: Final = 5.0
"""Seconds that `feedback` waits until the entries of the run are written."""
PROBLEMS_SHOWN: Final = 5
OWN_METHODS: Final = "TOOLMEM_METHODS"
"""Environment variable with methods of your own, ``package.module:Class``, commas between them."""

LogFile = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="Recorded runs: messages of OpenAI, Anthropic or LangChain (JSONL, may be gzipped), LangSmith's export, "
        "OpenTelemetry spans, or LangGraph's checkpoints (sqlite:///FILE, postgresql://…).",
    ),
]
MemoryFolder = Annotated[
    Path, typer.Option("--memory", "--path", metavar="FOLDER", help="The folder of a memory.", show_default=False)
]
ToolsFile = Annotated[
    Path | None,
    typer.Option("--tools", metavar="FILE", help="Tool schemas (JSON) or an OpenAPI document (JSON or YAML)."),
]
UserId = Annotated[
    str | None, typer.Option("--user-id", metavar="ID", help="The user, if the memory is kept apart by user.")
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace", metavar="A/B", help="Of personal memory, such as toolmem/{user_id} [default: the folder's]."
    ),
]
Embeddings = Annotated[str, typer.Option("--embeddings", metavar="SPEC", help="The embedder that the agent uses.")]
Lenient = Annotated[bool, typer.Option("--lenient", help="Leave malformed lines out instead of stopping.")]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]

# Without typer's own tracebacks: they print local variables, which may hold texts of users.
app = typer.Typer(
    name="toolmem",
    help="Tool-use memory for LangGraph agents.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the `toolmem` program: an error is one line on stderr and exit code 2."""
    _replace_unknown_letters()
    try:
        # In its standalone mode typer would print errors in several lines, and end the process itself.
        code = app(arguments, standalone_mode=False)
        if code == INTERRUPTED:
            _failed("interrupted", INTERRUPTED)
    except NamespaceError as error:
        code = _failed(f"{error} Here: --user-id ID.", BAD_INPUT)
    except (ToolMemoryError, OSError) as error:
        code = _failed(str(error), BAD_INPUT)
    except typer.Abort:
        code = _failed("interrupted", INTERRUPTED)
    except Exception as error:
        # Usage errors: their class moved between releases of typer, their interface did not.
        if not hasattr(error, "format_message"):
            raise
        code = _failed(error.format_message(), BAD_INPUT)
    if not isinstance(code, int):  # the value that a command returned
        code = 0
    sys.exit(code)


def _replace_unknown_letters() -> None:
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a letter shows "?".
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _failed(message: str, code: int) -> int:
    """Print an error on stderr; return the exit code."""
    note(f"error: {message}")
    return code


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
app.command("eval")(evaluate)


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
    policy: Annotated[
        str,
        typer.Option(metavar="POLICY", help="`calibrated`, `paper` (AutoTool as published), or a JSON file."),
    ] = "calibrated",
    seed: Annotated[int, typer.Option(help="Seed of what the memory draws by chance.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="Read only the first N runs.")] = None,
    prefetch: Annotated[bool, typer.Option("--prefetch", help="Also show what prefetch would have saved.")] = False,
    tool_seconds: Annotated[
        float, typer.Option("--tool-seconds", min=0.0, help="With --prefetch: how long a tool call takes, in seconds.")
    ] = 1.0,
    lenient: Lenient = False,
    as_json: Json = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the result as a web page.")] = None,
) -> None:
    """Show the possible savings of the memory on recorded runs.

    Reads the runs in order and predicts each model turn before it is shown. Needs no key and calls no model.
    """
    from langgraph_toolmem.cli.tables import replay_in_words, show_replay
    from langgraph_toolmem.offline.replay import PrefetchTally
    from langgraph_toolmem.offline.replay import replay as run_replay

    if html is not None and as_json:
        raise ConfigurationError("choose one of --json and --html")
    chosen = read_policy(policy)
    schemas = read_tools_file(tools)
    log = load_log(file, lenient=lenient, limit=limit)  # after options and tools: reading a log takes longest
    tally = None
    if prefetch:
        tally = PrefetchTally(tool_seconds=tool_seconds)
    done = itertools.count(1)
    replayed: list[tuple[Report, GraphView]] = []
    with progress("replaying", len(log.runs), show=not as_json) as update:

        def on_run(_run: LoggedRun) -> None:
            update(next(done))

        def on_end(memory: ToolMemory) -> None:
            # The page shows the memory of the replay, which is deleted when the replay returns.
            replayed.append((memory.report(), memory.view()))

        report = run_replay(
            log.runs,
            tools=schemas,
            reads=reads or (),
            policy=chosen,
            seed=seed,
            on_run=on_run,
            on_end=on_end,
            prefetch=tally,
        )
    read = log_in_plain(file, log)
    if as_json:
        answer_json({**read, "policy": chosen.to_dict(), **report.to_dict()})
    elif html is not None:
        from langgraph_toolmem.page import render_page

        lead = replay_in_words(report)
        if report.inertia is not None:
            lead.append(report.inertia.verdict)
        title = f"toolmem replay: {Path(read['file']).name}"
        done_by_memory, view = replayed[0]
        write_text(html, render_page(done_by_memory, view, title=title, generated=time.time(), lead=lead))
    else:
        show_replay(report)


@app.command("import")
def import_(
    file: LogFile,
    memory: MemoryFolder,
    tools: ToolsFile = None,
    namespace: Namespace = None,
    embeddings: Embeddings = "builtin",
    lenient: Lenient = False,
    as_json: Json = False,
) -> None:
    """Warm a memory from recorded runs.

    The whole file is checked before the first run is learned. Importing it again has no effect. Each run is kept for
    recall with its score, and the steps of successful runs for planning. Runs with "success": false suggest no tools.
    """
    schemas = read_tools_file(tools)
    log = load_log(file, lenient=lenient)
    with open_memory(memory, tools=schemas, namespace=namespace, embeddings=embeddings) as opened:
        # Both before the first run: an import that cannot end leaves the memory as it was.
        if opened.core.users.apart:
            check_user_ids(log)
        opened.core.vectors.check()
        before = opened.view().calls
        pieces = learn_log(opened, log, show=not as_json)
        view, problems = opened.view(), opened.report().problems
    check_stored(memory, view.calls, problems)
    # A call that the memory knew, from this log or another, is not learned again.
    learned = view.calls - before
    if as_json:
        unlabelled = [run for run in log.runs if run.success is None]
        answer_json(
            {
                **log_in_plain(file, log),
                "memory": str(memory),
                "runs": len(log.runs),
                "unlabelled": len(unlabelled),
                "calls_learned": learned,
                "calls_known": view.calls,
                "entries": pieces["entries"],
                "atom_steps": pieces["atoms"],
            }
        )
        return
    say(f"Read {count(len(log.runs), 'run')} and learned {count(learned, 'new tool call')} from them.")
    say(f"The memory in {memory} now knows {count(view.calls, 'tool call')} of {count(len(view.tools), 'tool')}.")
    say(
        f"Kept for recall: {count(pieces['entries'], 'run')}; for planning: {count(pieces['atoms'], 'step')} of "
        "successful runs."
    )


def check_user_ids(log: RunLog) -> None:
    """Raise InputError with the first line of a log without a user."""
    for run in log.runs:
        if run.user_id is None:
            raise InputError(f"line {run.line} of the log has no 'user_id', which the namespace needs")


def learn_log(memory: ToolMemory, log: RunLog, *, show: bool) -> dict[str, int]:
    """Learn the runs of a log, BATCH at a time; return the number of items that each method keeps.

    Raises:
        StorageError: a batch could not be kept; the batches before it are.
    """
    pieces = {"entries": 0, "atoms": 0}
    with progress("learning", len(log.runs), show=show) as update:
        for start in range(0, len(log.runs), BATCH):
            batch = log.runs[start : start + BATCH]
            try:
                new = memory.import_runs([judged_run(run) for run in batch])
            except StorageError as error:
                raise StorageError(f"not all runs could be kept; import the log again: {error}") from error
            for name, number in new.items():
                pieces[name] = pieces.get(name, 0) + number
            update(start + len(batch))
    return pieces


def judged_run(logged: LoggedRun) -> tuple[Run, float | None, str | None]:
    """Return a run of a log with its score and its user, as `ToolMemory.import_runs` takes it."""
    from langgraph_toolmem.runs.trajectory import parse_run

    run = parse_run(logged.messages, thread_id=logged.thread_id)
    if logged.success is None:
        return run, None, logged.user_id
    return run, float(logged.success), logged.user_id


def check_stored(folder: Path, calls: int, problems: Sequence[str]) -> None:
    """Raise StorageError if a memory in a folder has fewer calls than were learned."""
    # A memory continues in RAM if the disk fails, which does not help an import.
    with open_memory(folder, read_only=True) as reopened:
        stored = reopened.view().calls
    if stored < calls:
        why = "; ".join(problems) or "the reason is not known"
        raise StorageError(f"only {stored} of {calls} tool calls are stored in {folder}: {why}")


@app.command()
def report(
    memory: MemoryFolder,
    price: Annotated[
        str | None,
        typer.Option(metavar="IN:OUT[:CACHED]", help="Money per million input, output and cached tokens: 2.5:10:1.25."),
    ] = None,
    currency: Annotated[str, typer.Option(metavar="NAME", help="Currency of the price.")] = "USD",
    as_json: Json = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as a web page.")] = None,
) -> None:
    """Show the record of a memory: calls made, savings, and the share of right calls."""
    if html is not None and as_json:
        raise ConfigurationError("choose one of --json and --html")
    paid = read_price(price, currency)  # an error in it comes before those of the memory
    with open_memory(memory, read_only=True) as opened:
        result, view = opened.report(price=paid), opened.view()
    if as_json:
        answer_json(result.to_dict())
    elif html is not None:
        from langgraph_toolmem.page import render_page

        title = f"toolmem: {memory.resolve().name}"
        write_text(html, render_page(result, view, title=title, generated=time.time()))
    else:
        from langgraph_toolmem.cli.tables import show_report

        show_report(result)


@app.command()
def explain(
    request: Annotated[str, typer.Argument(metavar="REQUEST", help="A user's words.")],
    memory: Annotated[
        Path | None, typer.Option("--memory", "--path", metavar="FOLDER", help="The folder of a memory.")
    ] = None,
    tools: ToolsFile = None,
    user_id: UserId = None,
    namespace: Namespace = None,
    embeddings: Embeddings = "builtin",
    as_json: Json = False,
) -> None:
    """Show a memory's answer to a request, with the reasons.

    Shows the next call, the next tools, the tools that fit and a plan of their calls, past runs and their steps. It
    does not write, and calls no model. With --tools it works without a memory.
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

            # A memory with given tools would store them, and this command must not write.
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
        typer.Option("--memory", metavar="FOLDER", help="The folder of a memory [default: .toolmem if it exists]."),
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Queue failed background jobs again.")] = False,
    reembed: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help='Embed all stored texts again with "builtin", "provider:model" or "sentence-transformers:NAME".',
        ),
    ] = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Rebuild a damaged Chroma folder from its texts.")] = False,
    as_json: Json = False,
) -> None:
    """Check the installed packages and the files of a memory.

    Names a remedy for each problem. The exit code is 1 if there is a problem.
    """
    from langgraph_toolmem.cli import health

    folder = memory or health.DEFAULT_FOLDER
    # Repairs come first, so that the report is of their result.
    changes_texts = rebuild or reembed is not None
    if retry or changes_texts:
        check_folder(folder)
    if retry:
        note(f"{count(health.retry(folder), 'job')} queued again, for the process that uses the memory")
    if changes_texts:
        name, texts = health.rebuild(folder, reembed, damaged=rebuild, show=not as_json)
        message = f"{texts:,} texts were embedded again with {name}"
        if rebuild:
            message = f"Chroma was rebuilt: {message}"
        note(message)
    found = health.examine(memory)
    if as_json:
        answer_json(found)
    else:
        health.show_health(found)
    if found["problems"]:
        raise typer.Exit(1)


@app.command()
def feedback(
    thread_id: Annotated[str, typer.Argument(metavar="THREAD", help="The thread id that the agent used.")],
    memory: MemoryFolder,
    score: Annotated[float, typer.Option(min=0.0, max=1.0, help="From 0 (bad) to 1 (good).", show_default=False)],
    comment: Annotated[str | None, typer.Option(metavar="TEXT", help="A reason for the score.")] = None,
    episode: Annotated[
        str | None,
        typer.Option(
            metavar="N|ID",
            help="The request in the thread: its number from 1, or the id of the user's message [default: the latest].",
        ),
    ] = None,
    user_id: UserId = None,
    namespace: Namespace = None,
    embeddings: Embeddings = "builtin",
    as_json: Json = False,
) -> None:
    """Score a run, also an hour later and from another process.

    If another process uses the folder, that process writes the entries and summaries of the run.
    """
    check_folder(memory)
    which: str | int | None = episode
    if episode is not None and episode.isdecimal():
        which = int(episode)
    with open_memory(memory, namespace=namespace, embeddings=embeddings) as opened:
        opened.feedback(thread_id, score=score, comment=comment, episode=which, user_id=user_id)
        # If the process of an agent on the folder writes the entries, they may be pending when this command ends.
        queued = not opened.flush(timeout=FLUSH_SECONDS)
    if as_json:
        answer_json({"thread_id": thread_id, "score": score, "comment": comment, "queued": queued})
    else:
        outcome = "went wrong"
        if score >= 0.5:
            outcome = "went well"
        say(f"Noted: {thread_id} {outcome} (score {score:g}).")
        if queued:
            say(f"The process that uses {memory} writes its entries within a minute, or when it starts next.")


@app.command()
def forget(
    memory: MemoryFolder,
    thread: Annotated[
        str | None,
        typer.Option(metavar="THREAD", help="The thread id that the agent used [default: all threads of the user]."),
    ] = None,
    user_id: UserId = None,
    namespace: Namespace = None,
    embeddings: Embeddings = "builtin",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Delete everything of a thread, or of a user, from a memory and from the disk.

    No other process may write to the folder meanwhile.
    """
    check_folder(memory)
    if thread is not None:
        forgotten = f"the thread {printable(thread)}"
    elif user_id:
        forgotten = f"the user {printable(user_id)}"
    else:
        raise ConfigurationError("name a thread with --thread, or a user with --user-id")
    # Before the memory is opened, which may write to the folder.
    if not yes:
        typer.confirm(f"Forget all that {memory} keeps of {forgotten}?", abort=True)
    with open_memory(memory, namespace=namespace, embeddings=embeddings) as opened:
        removed = opened.forget(thread_id=thread, user_id=user_id)
    if as_json:
        answer_json({"thread_id": thread, "user_id": user_id, "removed": removed})
    elif removed:
        say(f"Forgotten: {removed:,} pieces of {forgotten}.")
    else:
        say(f"Nothing was kept of {forgotten}.")


# --- values of options ---


def read_tools_file(path: Path | None) -> list[dict[str, Any]] | None:
    """Read tool schemas: a list of tools, an object with `tools`, or an OpenAPI document (JSON or YAML).

    Raises:
        InputError: the file cannot be read, or has another form.
    """
    if path is None:
        return None
    # Lists of tools are JSON: a file in YAML is an OpenAPI document.
    if path.suffix in (".yaml", ".yml"):
        return _tools_of_openapi(path)
    value = _read_json(path)
    if _is_openapi(value):
        return _tools_of_openapi(path)
    if isinstance(value, dict):
        value = value.get("tools")
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise InputError(f"{path} must hold a list of tool schemas, an object with 'tools', or an OpenAPI document")
    return value


def _tools_of_openapi(path: Path) -> list[dict[str, Any]]:
    from langgraph_toolmem.navigator.openapi import read_openapi
    from langgraph_toolmem.runs.tools import changes_of

    return [{"name": spec.name, **changes_of(spec, {})} for spec in read_openapi(path)]


def _is_openapi(value: Any) -> bool:
    return isinstance(value, dict) and "tools" not in value and isinstance(value.get("paths"), dict)


def read_policy(text: str) -> InertiaPolicy:
    """Return the policy that `--policy` names.

    Raises:
        ConfigurationError: it is no policy, or a setting is invalid.
        InputError: the file cannot be read.
    """
    from langgraph_toolmem.inertia.policy import InertiaPolicy

    if text == "calibrated":
        return InertiaPolicy()
    if text == "paper":
        return InertiaPolicy.paper()
    # A misspelt policy would be reported as a missing file.
    if Path(text).suffix != ".json":
        raise ConfigurationError(f"--policy must be calibrated, paper or a file that ends in .json, got {text!r}")
    settings = _read_json(Path(text))
    if not isinstance(settings, dict):
        raise ConfigurationError(f"{text} must hold one JSON object with the policy's settings")
    return InertiaPolicy.from_dict(settings)


def own_methods() -> list[type[Method]]:
    """Return the methods that the environment names, so that their rows are learned, reported and forgotten.

    Raises:
        ConfigurationError: a method cannot be imported, or is none.
    """
    from langgraph_toolmem.core.method import Method

    kinds = []
    for place in os.environ.get(OWN_METHODS, "").split(","):
        if not place:
            continue
        module, _, name = place.strip().partition(":")
        try:
            kind = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigurationError(f"{OWN_METHODS} names {place!r}, which cannot be imported: {error}") from error
        if not (isinstance(kind, type) and issubclass(kind, Method)):
            raise ConfigurationError(f"{OWN_METHODS} names {place!r}, which is no method of a memory")
        kinds.append(kind)
    return kinds


def open_memory(
    folder: Path,
    *,
    tools: list[dict[str, Any]] | None = None,
    read_only: bool = False,
    namespace: str | None = None,
    embeddings: str = "builtin",
) -> ToolMemory:
    """Open the memory in a folder; with `read_only`, it must exist.

    The namespace has slashes between its labels; it defaults to that of the folder.
    """
    # A memory that writes makes its folder; one that only reads would answer from an empty memory.
    if read_only or folder.exists():
        check_folder(folder)
    from langgraph_toolmem.core.core import DEFAULT_NAMESPACE
    from langgraph_toolmem.core.users import namespace_kept
    from langgraph_toolmem.memory import ToolMemory, default_methods

    if namespace:
        labels = tuple(namespace.split("/"))
    else:
        labels = namespace_kept(folder) or DEFAULT_NAMESPACE
    embedder: str | None = embeddings
    if embeddings == "builtin":
        embedder = None
    own = [kind() for kind in own_methods()]
    return ToolMemory(
        folder,
        tools=tools,
        read_only=read_only,
        namespace=labels,
        embeddings=embedder,
        methods=default_methods(*own),
    )


def check_folder(folder: Path) -> None:
    """Raise `InputError` if the folder of a memory does not exist or is a file."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; --memory takes the folder of a memory")
    if not folder.is_dir():
        raise InputError(f"there is no memory at {folder}")


def load_log(file: str, *, lenient: bool, limit: int | None = None) -> RunLog:
    """Read the runs of a log file, or of a checkpointer's database; note on stderr what was left out.

    Raises:
        InputError: the source cannot be read, or has no runs.
        LogError: a line is malformed, and `lenient` is False.
    """
    from langgraph_toolmem.runs.logs import load_runs
    from langgraph_toolmem.runs.logs.files import without_password

    log = load_runs(file, lenient=lenient, limit=limit)
    for error in log.skipped[:PROBLEMS_SHOWN]:
        note(f"left out: {error}")
    more = len(log.skipped) - PROBLEMS_SHOWN
    if more > 0:
        note(f"left out: {more:,} more malformed lines")
    if log.shared_ids:
        note(f"{count(log.shared_ids, 'line')} had the id of an earlier line and counted as a later state of that run")
    # The formats are named too: in an unknown one nothing looks like a run.
    if not log.runs:
        runs = "no runs"
        if log.skipped:
            runs = "no runs that can be read"
        raise InputError(f"{without_password(file)} holds {runs} (read as {log.summary()})")
    for kind, number in log.left_out.items():
        note(f"left out: {number:,} {kind}")
    return log


def log_in_plain(file: str, log: RunLog) -> dict[str, Any]:
    """Return the read log, and the parts that were left out of it, for JSON."""
    from langgraph_toolmem.runs.logs.files import without_password

    lines = [{"line": error.line, "problem": str(error)} for error in log.skipped]
    return {
        "file": without_password(file),
        "formats": list(log.formats),
        "calls_read": log.calls,
        "results_read": log.results,
        "left_out": dict(log.left_out),
        "skipped_lines": lines,
        "shared_ids": log.shared_ids,
    }


def _read_json(path: Path) -> Any:
    try:
        # Editors on Windows begin a file with a byte order mark, which JSON does not allow.
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error})") from error
