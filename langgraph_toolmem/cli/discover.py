"""`toolmem discover`: tool calls are searched in a sandbox, and what won becomes atoms."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from langgraph_toolmem.base.errors import ConfigurationError, InputError, LockedError, StorageError, ToolMemoryError
from langgraph_toolmem.base.models import resolve_model
from langgraph_toolmem.base.text import count, printable
from langgraph_toolmem.cli.inputs import open_memory
from langgraph_toolmem.cli.options import AtomModel, Embeddings, Json, MemoryFolder, Namespace, UserId
from langgraph_toolmem.cli.terminal import answer_json, note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langgraph_toolmem.atoms.atoms import Atom
    from langgraph_toolmem.memory import ToolMemory
    from langgraph_toolmem.offline.discovery import AtomSink, DiscoveryProgress, DiscoveryReport
    from langgraph_toolmem.stores.folder_lock import FolderLock

WARNING = (
    "The environment's tools are really executed, many times over: whatever they can send, book, pay or delete, they "
    "may. Go on only if they act on a sandbox"
)
ATOMS = "atoms.jsonl"
MOST_NAMED = 20
"""Unsolved tasks that are named in the text."""


class Rule(str, Enum):
    """Which action of a state is taken next."""

    PRIOR = "prior"
    UCB = "ucb"


def discover(
    memory: MemoryFolder,
    env: Annotated[
        str,
        typer.Option(
            "--env",
            metavar="MODULE:FACTORY",
            help="The world that is searched: a factory of an environment (`tools`, `reset(task)`, `step(call)`, "
            "`success()`), or of a sandbox as `bootstrap` takes it.",
        ),
    ],
    tasks: Annotated[
        Path,
        typer.Option(metavar="FILE", help='Tasks (JSONL): objects with "request", "id", and what the factory needs.'),
    ],
    model: Annotated[
        str | None,
        typer.Option(metavar="SPEC", help="The chat model that plans and acts, `provider:model` [default: no model]."),
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(metavar="SPEC", help="A chat model that says whether a task is done, where the world does not."),
    ] = None,
    atom_model: AtomModel = None,
    iterations: Annotated[int, typer.Option(min=1, help="Paths walked per task, at most.")] = 50,
    depth: Annotated[int, typer.Option(min=1, help="Calls on a path, at most.")] = 10,
    patience: Annotated[int, typer.Option(min=0, help="Paths walked in search of a shorter one than the best.")] = 3,
    all_iterations: Annotated[
        bool, typer.Option("--all-iterations", help="Walk all --iterations, whatever is found; goes before --patience.")
    ] = False,
    selection: Annotated[
        Rule, typer.Option(help="Which action is taken next: UCB with the policy's prior, or plain UCB1 as published.")
    ] = Rule.PRIOR,
    calls: Annotated[int, typer.Option(min=1, help="Model calls at most, over all tasks and sessions.")] = 1000,
    tokens: Annotated[int | None, typer.Option(min=1, help="Tokens at most, as models report them.")] = None,
    seed: Annotated[int, typer.Option(help="Draws between actions that look alike.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Tasks searched at a time, each in a world of its own.")] = 1,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help=f"The atoms in a file, too (JSONL) [default: {ATOMS} in the folder]."
        ),
    ] = None,
    file_only: Annotated[
        bool, typer.Option("--file-only", help="Write the file, and leave the memory as it is.")
    ] = False,
    user_id: UserId = None,
    namespace: Namespace = None,
    embeddings: Embeddings = "builtin",
    sandbox_is_safe: Annotated[
        bool, typer.Option("--sandbox-is-safe", help="Do not ask: the tools act on a sandbox.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Search again where the search itself failed.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Search your own tools offline, and keep what worked as atoms in the memory.

    THE TOOLS ARE REALLY EXECUTED, AGAIN AND AGAIN. Each task is searched by a Monte Carlo tree search; each step of the
    best path that ended well becomes an atom, which agents with this memory are shown when they plan. Interrupted or
    killed, it goes on where it was when it is begun again; the same seed gives the same atoms, for any number of
    workers. The memory is open at the start, for a check, and at the end; in between, agents may use it.
    """
    from langgraph_toolmem.offline.coldstart import Budget
    from langgraph_toolmem.offline.discovery import Discovery, JsonLines, SearchSettings, load_environment, read_tasks
    from langgraph_toolmem.offline.discovery.runner import FOLDER

    if not (sandbox_is_safe or sys.stdin.isatty()):
        raise ConfigurationError(f"{WARNING}, and say so with --sandbox-is-safe")
    if memory.exists() and not memory.is_dir():
        raise InputError(f"{memory} is a file; --memory takes the folder of a memory")
    wanted = read_tasks(tasks)
    found = load_environment(env)
    planner = None if model is None else resolve_model(model, name="--model")
    judged = None if judge is None else resolve_model(judge, name="--judge")
    wording = None if atom_model is None else resolve_model(atom_model, name="--atom-model")
    if not sandbox_is_safe:
        note(f"The tools of {env} are going to be called for {count(len(wanted), 'task')}.")
        if not typer.confirm(f"{WARNING}. Go on?", err=True):
            raise typer.Abort
    open_it = partial(open_memory, memory, namespace=namespace, embeddings=embeddings)
    if not file_only:
        with open_it() as opened:  # a search takes long: what would fail at its end fails now
            opened.atoms.keep((), user_id=user_id)
    folder = memory / FOLDER
    lock = _locked(folder)
    kept = None
    try:
        with Discovery(
            found,
            wanted,
            model=planner,
            judge=judged,
            atom_model=wording,
            settings=SearchSettings(
                iterations=iterations,
                depth=depth,
                patience=None if all_iterations else patience,
                selection="ucb" if selection is Rule.UCB else "prior",
            ),
            budget=Budget(queries=len(wanted), model_calls=calls, tokens=tokens),
            seed=seed,
            workers=workers,
            folder=folder,
        ) as discovery:
            if retry_failed:
                discovery.retry_failed()
            target = folder / ATOMS if output is None else output
            sink: AtomSink = JsonLines(target)
            if not file_only:
                sink = kept = _IntoMemory(sink, open_it, user_id)
            try:
                with _bar(len(wanted), show=not as_json) as update:
                    report = discovery.run(update, sink=sink)
            except BaseException:
                now = discovery.progress()
                note(
                    f"{now.done} of {count(now.tasks, 'task')} are searched; the same command again goes on from there"
                )
                raise
    finally:
        lock.release()
    if kept is not None and kept.failed is not None:
        raise StorageError(
            f"{kept.failed} The atoms are in {target}, and not in the memory yet: the same command again keeps them"
        ) from kept.failed
    if as_json:
        known = None if kept is None else kept.count
        answer_json({"memory": str(memory), "atoms_file": str(target), "kept": known, **report.to_dict()})
        return
    for line in sentences(report, target):
        typer.echo(line)
    if kept is not None and kept.count:
        typer.echo("The memory keeps them: agents that plan with it are shown them (README, Plan with what worked).")


def _locked(folder: Path) -> FolderLock:
    from langgraph_toolmem.stores.folder_lock import FolderLock, holder

    try:
        return FolderLock(folder)
    except LockedError:
        pid = holder(folder)
        which = "" if pid is None else f" (pid {pid})"
        raise LockedError(
            f"Another `toolmem discover`{which} is at work in {folder}. Wait for its end, or search in another --memory"
        ) from None


class _IntoMemory:
    """Writes the file first; then the memory gets the atoms, and is open for that alone."""

    def __init__(self, file: AtomSink, open_it: Callable[[], ToolMemory], user_id: str | None) -> None:
        self._file, self._open, self._user_id = file, open_it, user_id
        self.count = 0
        self.failed: ToolMemoryError | None = None

    def put(self, atoms: Sequence[Atom]) -> None:
        """See `AtomSink`; what the memory raises is kept for the end, as the search may have more to say."""
        from langgraph_toolmem.offline.discovery import IntoMemory

        self._file.put(atoms)
        try:
            with self._open() as memory:
                into = IntoMemory(memory, user_id=self._user_id)
                into.put(atoms)
            self.count = into.kept
        except ToolMemoryError as error:
            self.failed = error


def sentences(report: DiscoveryReport, target: Path) -> Iterator[str]:
    """What a discovery came to, in words."""
    now = report.progress
    yield f"Of {count(now.tasks, 'task')}, {now.done:,} are searched: {now.solved:,} were solved" + (
        f", {report.already:,} were done before anything was." if report.already else "."
    )
    if report.unsolved:
        more = len(report.unsolved) - MOST_NAMED
        names = ", ".join(map(printable, report.unsolved[:MOST_NAMED]))
        yield f"Not solved: {names}{f' and {more:,} more, which --json names' if more > 0 else ''}."
    yield (
        f"Per search {report.iterations:.1f} paths were walked, {report.branching:.2f} actions tried in a state; the "
        f"best paths have {report.depth:.1f} calls, the longest one tried {report.deepest:,}."
    )
    if report.atoms:
        yield (
            f"{report.explored:,} calls were explored and became {count(report.atoms, 'atom')}, "
            f"{report.compression:.1f} calls each, in {target}."
        )
    else:
        yield f"{report.explored:,} calls were explored; no atoms came of them."
    if now.model_calls:
        yield f"It took {count(now.model_calls, 'model call')} and {now.tokens:,} tokens so far."
    if report.diverged:
        yield (
            f"{count(report.diverged, 'call')} answered something else when made again: the world does not come back "
            "to the same state, and what was searched behind such calls was given up. snapshot() and restore() of the "
            "environment cure this."
        )
    if report.unread:
        yield f"{count(report.unread, 'answer')} of models could not be read: plain calls took their place."
    if report.others:
        yield f"{count(report.others, 'outcome')} of other settings are in the folder and not counted."
    if now.failed:
        yield f"{count(now.failed, 'search')} failed; --retry-failed tries them again."
    for error in report.errors:
        yield f"Error in the environment: {printable(error)}"
    if report.stopped:
        yield f"Stopped early: {printable(report.stopped)}. The same command with a larger budget goes on from there."


@contextmanager
def _bar(total: int, *, show: bool) -> Iterator[Callable[[DiscoveryProgress], None]]:
    """A progress bar on stderr while it is a terminal, with what became of the tasks."""
    from langgraph_toolmem.cli.terminal import described_progress

    with described_progress(total, show=show) as update:
        yield lambda now: update(
            now.done + now.failed,
            f"{now.solved} solved, {now.failed} failed; {now.model_calls:,} model calls",
        )
