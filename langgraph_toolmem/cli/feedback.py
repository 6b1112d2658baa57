"""`toolmem feedback`: a verdict on a run, from any process. `toolmem recall`: which past runs a request brings up."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated

import typer

from langgraph_toolmem.base.errors import LockedError
from langgraph_toolmem.cli.inputs import check_folder, open_memory
from langgraph_toolmem.cli.options import Embeddings, Json, MemoryFolder, Namespace, UserId
from langgraph_toolmem.cli.tables import count
from langgraph_toolmem.cli.terminal import answer_json, console
from langgraph_toolmem.graph.export import printable

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from langgraph_toolmem import ToolMemory
    from langgraph_toolmem.entries.entry import Entry
    from langgraph_toolmem.entries.recollection import RecalledEntry


def feedback(
    thread_id: Annotated[str, typer.Argument(metavar="THREAD", help="The run: its thread id, as the agent had it.")],
    memory: MemoryFolder,
    score: Annotated[float, typer.Option(min=0.0, max=1.0, help="From 0 (bad) to 1 (good).", show_default=False)],
    comment: Annotated[str | None, typer.Option(metavar="TEXT", help="A word on it.")] = None,
    user_id: UserId = None,
    namespace: Namespace = "toolmem",
    embeddings: Embeddings = "builtin",
    as_json: Json = False,
) -> None:
    """Say how a run went, also an hour later and from another process.

    While another process writes to the folder, the verdict waits there in a queue: that process takes it in within a
    minute, or at the next start.
    """
    check_folder(memory)
    said = {"thread_id": thread_id, "score": score, "comment": comment}
    try:
        opened = _opened(memory, namespace, embeddings)
    except LockedError:
        with _opened(memory, namespace, embeddings, read_only=True) as beside:
            beside.feedback(thread_id, score=score, comment=comment, user_id=user_id)
        if as_json:
            answer_json({**said, "queued": True, "entry": None})
            return
        typer.echo(
            f"Another process is writing to {memory}. The verdict on {printable(thread_id)} waits in its queue; it is "
            "taken in within a minute while that process works, or at the next start."
        )
        return
    with opened:
        opened.feedback(thread_id, score=score, comment=comment, user_id=user_id, wait=True)
        entry = _entry_of(opened, thread_id, user_id)
    if as_json:
        answer_json({**said, "queued": False, "entry": None if entry is None else entry.to_dict()})
        return
    typer.echo(f"Noted: {printable(thread_id)} {'went well' if score >= 0.5 else 'went wrong'} (score {score:g}).")
    if entry is None:
        typer.echo("There is no entry of that run, so nothing about it is recalled; is the run id right?")
    else:
        typer.echo(f"Its entry: {printable(_line(entry.query))}")


def recall(
    query: Annotated[str, typer.Argument(metavar="REQUEST", help="What a user says.")],
    memory: MemoryFolder,
    user_id: UserId = None,
    nearest: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Show the N most similar ones, whether they are worth recalling or not."),
    ] = None,
    namespace: Namespace = "toolmem",
    embeddings: Embeddings = "builtin",
    as_json: Json = False,
) -> None:
    """Show which past runs would be recalled for a request, and why.

    Runs that nobody judged are among them; an agent shows those to its model only if it was told to. Writes nothing
    and does not disturb a process that does.
    """
    from langgraph_toolmem import RecallPolicy

    policy = None if nearest is None else RecallPolicy(kind="fixed", n=nearest, max_n=nearest)
    with _opened(memory, namespace, embeddings, read_only=True) as opened:
        found = opened.entries.ranked(query, user_id=user_id, policy=policy, k=nearest)
        known = _known(opened, user_id)
        waiting = opened.report().jobs.pending
    if as_json:
        shown = [{"score": each.score, "evidence": each.evidence, "entry": each.entry.to_dict()} for each in found]
        answer_json({"query": query, "entries": known, "waiting": waiting, "recalled": shown})
        return
    out = console()
    if not found:
        what = "worth recalling for this" if nearest is None else "like this at all"
        out.print(f"None of {count(known, 'past run')} is {what}." if known else "No past runs yet.")
    for number, each in enumerate(found, start=1):
        _show(out, number, each, of_fixed=nearest is not None)
    if waiting:
        out.print(f"Not looked at: {waiting:,} entries and verdicts that still have to be written.", soft_wrap=True)


def verdict_in_words(entry: Entry) -> str:
    """`went well (score 1)`, `went wrong (score 0)`, `nobody judged it`."""
    if entry.score is None:
        return "nobody judged it"
    return f"{'went well' if entry.good else 'went wrong'} (score {entry.score:g})"


def _show(out: Console, number: int, each: RecalledEntry, *, of_fixed: bool) -> None:
    entry = each.entry
    lines = [
        f"{number}. {_line(entry.query)}",
        f"   {verdict_in_words(entry)}{f': {_line(entry.comment)}' if entry.comment else ''}",
        f"   {'similarity' if of_fixed else 'probably relevant'}: {each.score:.2f}; {each.evidence}",
        f"   calls: {' → '.join(call.tool for call in entry.calls) or 'none'}",
    ]
    if entry.critique:
        lines += [f"   {line}" for line in entry.critique.splitlines()]
    record = f"shown {entry.recalled:,} times, helped {entry.helped:,}, hurt {entry.hurt:,}"
    when = datetime.fromtimestamp(entry.time, tz=timezone.utc)
    lines.append(f"   {record}; from {when:%Y-%m-%d %H:%M} UTC, made by: {entry.made_by}")
    for line in lines:
        out.print(printable(line), soft_wrap=True)


def _opened(folder: Path, namespace: str, embeddings: str, *, read_only: bool = False) -> ToolMemory:
    return open_memory(folder, read_only=read_only, namespace=namespace, embeddings=embeddings)


def _known(memory: ToolMemory, user_id: str | None) -> int:
    core = memory.core
    namespace = core.users.of(user_id).namespace
    return 0 if core.vectors.empty else len(memory.entries.library.store(namespace).all())


def _entry_of(memory: ToolMemory, thread_id: str, user_id: str | None) -> Entry | None:
    from langgraph_toolmem.base.keys import digest

    core, run = memory.core, digest("run", thread_id)
    namespace = core.place_of(run, user_id)
    if namespace is None or core.vectors.empty:
        return None
    return memory.entries.library.store(namespace).of_run(run)


def _line(text: str) -> str:
    from langgraph_toolmem.base.text import shortened

    return shortened(" ".join(text.split()), 300)
