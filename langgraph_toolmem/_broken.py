"""Runs that ended with an error: kept as entries, so that they are found; never with a verdict that nobody gave."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from langgraph_toolmem.graph.evidence import SCORE
from langgraph_toolmem.inertia.engine import run_scope
from langgraph_toolmem.keys import digest
from langgraph_toolmem.namespaces import resolve, user_digest

if TYPE_CHECKING:
    from langgraph_toolmem.memory import ToolMemory


def keep_broken(
    memory: ToolMemory, messages: Sequence[Any], error: str, *, run_id: str | None = None, user_id: str | None = None
) -> bool:
    """The entry of a run that an error ended, with what was done so far. Reported again, it replaces itself.

    Nothing is learned from it that was not learned as it happened: the thread may be resumed, and its pending calls
    executed then.

    Args:
        memory: the memory.
        messages: the history up to the error.
        error: its kind; its text may quote somebody.
        run_id: identity of the run (a thread id).
        user_id: whose run it is.

    Returns:
        Whether there is an entry; there is none if nothing was called, or the memory keeps none.

    Raises:
        MessageError: `messages` cannot be read.
        NamespaceError: the namespace needs a user id.
        StorageError: the queue cannot be written.
    """
    from langgraph_toolmem.reflection.entry import entry_of

    if not memory._keeps_entries or memory._store.read_only:
        return False
    run = memory._read(messages, run_id)
    namespace = resolve(memory.namespace, user_id)
    name = digest("run", run_id or run_scope(run))
    with memory._lock:
        verdict = memory._graph.runs.get(name)
    if verdict is not None and verdict[SCORE] is not None:
        memory._put_entry(run, user_id)  # somebody judged an earlier turn of it
        return True
    comment = f"the run ended with {error}"
    entry = entry_of(run, run_digest=name, now=memory._now(), user=user_digest(user_id), comment=comment)
    if entry is None:
        return False
    memory._worker.write(entry, namespace=namespace)
    memory._noted(entry, namespace)
    return True


async def akeep_broken(
    memory: ToolMemory, messages: Sequence[Any], error: str, *, run_id: str | None = None, user_id: str | None = None
) -> bool:
    """Async twin of `keep_broken`."""
    return await asyncio.to_thread(keep_broken, memory, messages, error, run_id=run_id, user_id=user_id)
