"""`toolmem forget`: everything of a thread, or of a user, goes."""

from __future__ import annotations

from typing import Annotated

import typer

from langgraph_toolmem.base.text import printable
from langgraph_toolmem.cli.inputs import check_folder, open_memory
from langgraph_toolmem.cli.options import Embeddings, Json, MemoryFolder, Namespace, UserId
from langgraph_toolmem.cli.terminal import answer_json


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
        typer.echo(f"Forgotten: {removed:,} pieces of {what}." if removed else f"Nothing was kept of {what}.")
