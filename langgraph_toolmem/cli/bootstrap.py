"""`toolmem bootstrap`: a cold start. Requests are invented, run in the user's sandbox, and become entries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langgraph_toolmem.base.errors import ConfigurationError, InputError
from langgraph_toolmem.base.models import resolve_model
from langgraph_toolmem.base.text import count, printable
from langgraph_toolmem.cli.inputs import check_folder, open_memory, read_tools_file
from langgraph_toolmem.cli.options import Embeddings, Json, MemoryFolder, Namespace, UserId
from langgraph_toolmem.cli.terminal import answer_json, at_a_terminal, described_progress, note

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from langgraph_toolmem.memory import ToolMemory
    from langgraph_toolmem.offline.coldstart import Bootstrap, Budget, Progress, Sandbox

WARNING = (
    "The agent's tools are really executed: whatever they can send, book, pay or delete, they may. Go on only if they "
    "act on a sandbox"
)


@dataclass(frozen=True)
class _Wanted:
    """What a person asked for, read and checked."""

    agent: str
    budget: Budget
    model: BaseChatModel | None
    judge: BaseChatModel | None
    tools: list[dict[str, Any]] | None
    about: str | None
    user_id: str | None
    seed: int
    several: float
    safe: bool
    retry_failed: bool
    only_invent: bool


def bootstrap(
    memory: MemoryFolder,
    agent: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FACTORY",
            help="The agent in its sandbox: a factory of a compiled graph, or of anything with `ainvoke` or `invoke` "
            "as a graph has it, and optionally `tools`, `reset()`, `verdict(query, messages)` and `about`.",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="SPEC", help="The chat model that invents requests, `provider:model`.")
    ] = None,
    tools: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Tool schemas (JSON) [default: the sandbox's, or those of its tool nodes]."),
    ] = None,
    queries: Annotated[int, typer.Option(min=1, help="Requests to invent and run, at most.")] = 50,
    several: Annotated[
        float, typer.Option(min=0.0, max=1.0, metavar="SHARE", help="Share of requests that need several tools.")
    ] = 0.5,
    about: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A text on what there is in the sandbox: names, ids, dates for requests."),
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(metavar="SPEC", help="A chat model that judges runs for which the sandbox has no verdict."),
    ] = None,
    critic: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC", help="A chat model that writes critiques of runs that went wrong (not in the budget)."
        ),
    ] = None,
    user_id: UserId = None,
    namespace: Namespace = None,
    embeddings: Embeddings = "builtin",
    max_model_calls: Annotated[
        int, typer.Option(min=1, help="Model calls at most: to invent, of the agent, to judge.")
    ] = 1000,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens at most, as models report them.")] = None,
    calls_per_run: Annotated[int, typer.Option(min=1, help="A run is broken off after so many model calls.")] = 40,
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="A run is broken off after so long.")
    ] = 300,
    seed: Annotated[int, typer.Option(help="Draws which tools the next requests are about.")] = 0,
    sandbox_is_safe: Annotated[
        bool, typer.Option("--sandbox-is-safe", help="Do not ask: the agent's tools act on a sandbox.")
    ] = False,
    invent_only: Annotated[
        bool, typer.Option("--invent-only", help="Invent requests and show them; run nothing yet.")
    ] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run again what failed.")] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Take all entries of a cold start away, and stop.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --drop: do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Fill an empty memory: invented requests are run by your agent in a sandbox.

    THE AGENT'S TOOLS ARE REALLY EXECUTED. Requests are invented by a chat model from what the tools say they do, each
    is run in a fresh thread, and becomes an entry with the verdict of the sandbox or of a judge. All bounds count over
    all sessions: interrupted or killed, it goes on where it was when it is begun again.
    """
    from langgraph_toolmem.offline.coldstart import Budget

    if drop:
        _drop(memory, user_id, namespace, embeddings, asks=not yes, as_json=as_json)
        return
    if agent is None:
        raise ConfigurationError("--agent MODULE:FACTORY is missing: which agent, in which sandbox?")
    if not (sandbox_is_safe or invent_only or at_a_terminal()):
        raise ConfigurationError(f"{WARNING}, and say so with --sandbox-is-safe")
    wanted = _Wanted(
        agent=agent,
        budget=Budget(queries, max_model_calls, max_tokens, calls_per_run, timeout),
        model=None if model is None else resolve_model(model, name="--model"),
        judge=None if judge is None else resolve_model(judge, name="--judge"),
        tools=read_tools_file(tools),
        about=None if about is None else _read_text(about),
        user_id=user_id,
        seed=seed,
        several=several,
        safe=sandbox_is_safe,
        retry_failed=retry_failed,
        only_invent=invent_only,
    )
    from langgraph_toolmem.entries import Entries

    methods = [] if critic is None else [Entries(critic=resolve_model(critic, name="--critic"))]
    with open_memory(memory, tools=wanted.tools, namespace=namespace, embeddings=embeddings, methods=methods) as opened:
        done, invented = _start(opened, wanted, show=not as_json)
    if as_json:
        answer_json({"memory": str(memory), **done.to_dict(), **({"queries": invented} if invent_only else {})})
        return
    if invent_only:
        for text in invented:
            typer.echo(printable(text))
    for line in _sentences(done, memory, only_invented=invent_only):
        typer.echo(line)


def _start(memory: ToolMemory, wanted: _Wanted, *, show: bool) -> tuple[Progress, list[str]]:
    from langgraph_toolmem.offline.coldstart import Sandbox, load_sandbox

    found = load_sandbox(wanted.agent, memory=memory)
    # A person is asked before the event loop is there, which would swallow the first Ctrl-C.
    if isinstance(found, Sandbox):
        _about(found, wanted)
        _confirm(wanted, found)
        return asyncio.run(_go(memory, found, wanted, show=show))
    try:
        _confirm(wanted, None)
    except typer.Abort:
        found.close()
        raise

    async def made_first() -> tuple[Progress, list[str]]:
        sandbox = await found
        _about(sandbox, wanted)
        return await _go(memory, sandbox, wanted, show=show)

    return asyncio.run(made_first())


async def _go(memory: ToolMemory, sandbox: Sandbox, wanted: _Wanted, *, show: bool) -> tuple[Progress, list[str]]:
    from langgraph_toolmem.offline.coldstart import Bootstrap

    with Bootstrap(
        memory,
        sandbox,
        wanted.model,
        tools=wanted.tools,
        judge=wanted.judge,
        budget=wanted.budget,
        user_id=wanted.user_id,
        seed=wanted.seed,
        several=wanted.several,
    ) as made:
        if wanted.retry_failed:
            made.retry_failed()
        if wanted.model is None and not made.progress().waiting + made.progress().unfinished:
            raise ConfigurationError("no requests are waiting; name the model that invents some with --model")
        try:
            with progress_bar(wanted.budget, show=show, inventing=wanted.only_invent) as update:
                done = await made.arun(update, only_invent=wanted.only_invent)
        except BaseException:
            _leave(made)
            raise
        return done, [query.text for query in made.queries()]


def _leave(made: Bootstrap) -> None:
    """What a person wants to know who interrupts it, or whose agent failed."""
    now = made.progress()
    note(f"{now.run} of {count(now.wanted, 'request')} were run; the same command again goes on from there")


def _confirm(wanted: _Wanted, sandbox: Sandbox | None) -> None:
    """Asks a person at a terminal; without one, the flag was asked for before."""
    if wanted.safe or wanted.only_invent:
        return
    note(f"{wanted.agent} is going to be run on up to {count(wanted.budget.queries, 'invented request')}.")
    if risky := _destructive(wanted, sandbox):
        note(f"Marked destructive: {', '.join(risky)}.")
    if not typer.confirm(f"{WARNING}. Go on?", err=True):
        raise typer.Abort


def _destructive(wanted: _Wanted, sandbox: Sandbox | None) -> list[str]:
    from langgraph_toolmem.offline.coldstart.sandbox import tools_of
    from langgraph_toolmem.runs.tools import read_tools, side_effects

    given: Any = wanted.tools
    if given is None and sandbox is not None:
        given = sandbox.tools if sandbox.tools is not None else tools_of(sandbox.agent)
    given = given() if callable(given) else given
    return sorted(name for name, spec in read_tools(given or []).items() if side_effects(spec) == "destroys")


def _about(sandbox: Sandbox, wanted: _Wanted) -> None:
    from langgraph_toolmem.offline.coldstart.sandbox import MAX_ABOUT

    if wanted.about is not None:
        sandbox.about = wanted.about
    if len(sandbox.about) > MAX_ABOUT:
        raise InputError(f"what is told about the sandbox has {len(sandbox.about):,} characters, at most {MAX_ABOUT:,}")


def _drop(
    folder: Path, user_id: str | None, namespace: str | None, embeddings: str, *, asks: bool, as_json: bool
) -> None:
    from langgraph_toolmem.offline.coldstart import drop

    check_folder(folder)
    question = f"Take all entries of a cold start out of {folder}, and begin anew the next time?"
    if asks and at_a_terminal() and not typer.confirm(question, err=True):
        raise typer.Abort
    with open_memory(folder, namespace=namespace, embeddings=embeddings) as memory:
        dropped = drop(memory, user_id=user_id)
    if as_json:
        answer_json({"memory": str(folder), "dropped": dropped})
    else:
        typer.echo(f"Dropped {dropped:,} {'entry' if dropped == 1 else 'entries'}.")


def _sentences(done: Progress, folder: Path, *, only_invented: bool) -> Iterator[str]:
    spent = f"It took {count(done.model_calls, 'model call')} and {done.tokens:,} tokens so far"
    if only_invented:
        yield f"{count(done.waiting, 'request')} wait to be run, with the same command without --invent-only. {spent}."
    else:
        yield (
            f"Of {count(done.run, 'invented request')} that were run, {done.entries:,} became entries: {done.good:,} "
            f"went well, {done.wrong:,} went wrong, {done.unjudged:,} nobody judged. {spent}."
        )
    if done.unjudged and not done.good + done.wrong:
        yield "An agent shows its model only runs with a verdict: give the sandbox a `verdict`, or name a --judge."
    if done.empty:
        yield f"In {count(done.empty, 'run')} no tool was called; there is nothing to remember of these."
    if done.failed:
        yield f"{count(done.failed, 'run')} failed; --retry-failed runs them again."
    if done.left_out:
        reasons = ", ".join(f"{times:,} {why}" for why, times in sorted(done.left_out.items()))
        yield f"Invented requests that were not taken: {reasons}."
    for error in done.errors:
        yield f"Error in the sandbox: {printable(error)}"
    if done.unwritten:
        yield f"Entries and critiques still to be written, by the next process with this memory: {done.unwritten:,}."
    if done.stopped:
        yield f"Stopped early: {printable(done.stopped)}."
    if done.entries and not only_invented:
        yield f"To take them all away: toolmem bootstrap --drop --memory {folder}"


@contextmanager
def progress_bar(budget: Budget, *, show: bool, inventing: bool = False) -> Iterator[Callable[[Progress], None]]:
    """A progress bar on stderr while it is a terminal, with what became of the runs."""
    with described_progress(budget.queries, show=show) as update:
        yield lambda now: update(
            now.invented if inventing else now.run,
            f"{now.good} well, {now.wrong} wrong, {now.failed} failed; {now.model_calls:,} model calls",
        )


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
