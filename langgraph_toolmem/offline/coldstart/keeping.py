"""Where a cold start meets the memory: its entries go in, and are taken away again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.entries.entry import Entry
from langgraph_toolmem.offline.coldstart.state import BootstrapState

if TYPE_CHECKING:
    from langgraph_toolmem.memory import ToolMemory

BOOTSTRAP: Final = "bootstrap"
"""`Entry.made_by` of what a cold start made."""


def keep_entry(memory: ToolMemory, entry: Entry, user_id: str | None) -> None:
    """Hands an entry to the memory's background worker: it is on disk when this returns."""
    memory.entries.keeping.put(entry, memory.core.users.of(user_id))


def drop(memory: ToolMemory, *, user_id: str | None = None) -> int:
    """Takes all entries of a cold start away, and what is known of its progress; returns how many entries.

    Args:
        memory: the memory.
        user_id: whose entries they are.

    Raises:
        NamespaceError: the namespace needs a user id.
        StorageError: something could not be deleted; do it again.
    """
    with open_state(memory, user_id) as state:
        return drop_with(memory, state, user_id=user_id)


def drop_with(memory: ToolMemory, state: BootstrapState, *, user_id: str | None) -> int:
    """As `drop`, with the state at hand."""
    if not memory.flush():
        raise StorageError("Entries are still being written. Do it again.")
    # An agent with this very memory plugged in writes entries of its own, with no sign of where they come from.
    runs = {run for query in state.all() for run in memory.core.episodes.of(query.thread_id).values()}
    rows, user = memory.entries.rows, memory.core.users.of(user_id)
    found = rows.all(user, retired=True)
    gone = {entry.id: entry.run for entry in found if entry.made_by == BOOTSTRAP or entry.run in runs}
    rows.remove(list(gone), user, scrub=True)
    state.clear()
    return len(gone)


def open_state(memory: ToolMemory, user_id: str | None) -> BootstrapState:
    """Return how far the cold start of a memory is, for one user."""
    core = memory.core
    if core.read_only:
        raise StorageError("The memory is read-only; a cold start writes to it.")
    user = core.users.of(user_id)
    return BootstrapState(core.folder, user.namespace, user=user.digest or "")
