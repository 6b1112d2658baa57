"""`toolmem feedback`: a verdict on a run, from any process."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langgraph_toolmem.base.errors import LockedError
from langgraph_toolmem.base.text import printable, shortened
from langgraph_toolmem.cli.inputs import check_folder, open_memory
from langgraph_toolmem.cli.options import Embeddings, Json, MemoryFolder, Namespace, UserId
from langgraph_toolmem.cli.terminal import answer_json

if TYPE_CHECKING:
    from langgraph_toolmem.entries.entry import Entry
    from langgraph_toolmem.memory import ToolMemory


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

    While another process writes to the folder, the verdict waits there in a queue: that process takes it in within a
    minute, or at the next start.
    """
    check_folder(memory)
    which = int(episode) if episode is not None and episode.isdecimal() else episode
    given: dict[str, Any] = {"score": score, "comment": comment, "episode": which, "user_id": user_id}
    said = {"thread_id": thread_id, "score": score, "comment": comment}
    opening = partial(open_memory, memory, namespace=namespace, embeddings=embeddings)
    try:
        opened = opening()
    except LockedError:
        with opening(read_only=True) as beside:
            beside.feedback(thread_id, **given)
        if as_json:
            answer_json({**said, "queued": True, "entry": None})
            return
        typer.echo(
            f"Another process is writing to {memory}. The verdict on {printable(thread_id)} waits in its queue; it is "
            "taken in within a minute while that process works, or at the next start."
        )
        return
    with opened:
        run = opened.core.verdicts.feedback(thread_id, **given)
        opened.flush()
        entry = _entry_of(opened, run, user_id)
    if as_json:
        answer_json({**said, "queued": False, "entry": None if entry is None else entry.to_dict()})
        return
    typer.echo(f"Noted: {printable(thread_id)} {'went well' if score >= 0.5 else 'went wrong'} (score {score:g}).")
    if entry is None:
        typer.echo("There is no entry of that run, so nothing about it is recalled; is the run id right?")
    else:
        request = " ".join(entry.query.split())
        typer.echo(f"Its entry: {printable(shortened(request, 300))}")


def _entry_of(memory: ToolMemory, run: str, user_id: str | None) -> Entry | None:
    from langgraph_toolmem.core.users import User
    from langgraph_toolmem.entries.entry import entry_id

    core = memory.core
    namespace = core.place_of(run, user_id)
    if namespace is None or core.vectors.empty:
        return None
    return next(iter(memory.entries.rows.get([entry_id(run)], User(None, None, namespace))), None)
