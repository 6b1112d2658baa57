"""Where atoms go, a memory or a file, and where tasks come from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from langgraph_toolmem.atoms.atoms import Atom, to_plain
from langgraph_toolmem.base.errors import InputError, LogError
from langgraph_toolmem.offline.discovery.environment import Task
from langgraph_toolmem.stores.snapshot import replace_file

if TYPE_CHECKING:
    from langgraph_toolmem.memory import ToolMemory


class AtomSink(Protocol):
    """Takes the atoms of a discovery.

    It is given all of them each time, those of former sessions too, and in the same order for the same tasks: what it
    was given before is replaced, not added to.
    """

    def put(self, atoms: Sequence[Atom]) -> None:
        """All atoms found so far."""
        ...


class JsonLines:
    """A file with one atom a line; replaced as a whole.

    Args:
        path: of the file; its folder is made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def put(self, atoms: Sequence[Atom]) -> None:
        """See `AtomSink`.

        Raises:
            OSError: the file could not be written; the old one is still there.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps(to_plain(atom), sort_keys=True, ensure_ascii=False, default=str) for atom in atoms)
        replace_file(self.path, "".join(f"{line}\n" for line in lines).encode(), fsync=True)


class IntoMemory:
    """A memory: its agents are shown the atoms when they plan.

    Args:
        memory: open for writing; it is not closed.
        user_id: whose the atoms are, where the memory is kept apart by user.

    Attributes:
        kept: how many different atoms were handed over the last time.
    """

    def __init__(self, memory: ToolMemory, *, user_id: str | None = None) -> None:
        self.memory, self.user_id = memory, user_id
        self.kept = 0

    def put(self, atoms: Sequence[Atom]) -> None:
        """See `AtomSink`.

        Raises:
            NamespaceError: the namespace needs a user id.
            StorageError: they could not be stored, or the memory is read-only.
        """
        self.kept = self.memory.atoms.keep(atoms, user_id=self.user_id)


def read_tasks(path: Path) -> list[Task]:
    """Tasks from a file: one JSON object a line with ``request``, and where known ``id``; other keys are `Task.data`.

    Raises:
        InputError: the file cannot be read, or holds no tasks.
        LogError: a line is no task, or an id comes twice.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")  # a JSON text may have other line ends in it
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    tasks: dict[str, Task] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        task = _task(line, number)
        if task.id in tasks:
            raise LogError(f"{path}, line {number}: there is a task {task.id!r} already", line=number)
        tasks[task.id] = task
    if not tasks:
        raise InputError(f"{path} holds no tasks")
    return list(tasks.values())


def _task(line: str, number: int) -> Task:
    try:
        read: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LogError(f"line {number} is not JSON ({error})", line=number) from error
    request = read.get("request") if isinstance(read, Mapping) else None
    if not isinstance(request, str) or not request.strip():
        raise LogError(f'line {number} is no task: an object with a text "request", and "id" where known', line=number)
    key = read.get("id", f"line-{number}")
    if not isinstance(key, (str, int)) or isinstance(key, bool) or key == "":
        raise LogError(f"line {number}: the id of a task is a text or a number", line=number)
    return Task(str(key), request, {name: value for name, value in read.items() if name not in ("id", "request")})
