"""Memories that are trained once in a process; each test opens a copy of the folder.

Training with 24 runs takes 210 ms of the processor with `Inertia` alone and 440 ms with all methods; copying a folder
and opening it takes 15 ms.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

from desk import Desk, warm

from langgraph_toolmem import ToolMemory

_folders: dict[Hashable, Path] = {}
_opened: dict[Path, ToolMemory] = {}
_numbers = count()


def trained(name: Hashable, make: Callable[[Path], ToolMemory], teach: Callable[[ToolMemory], object]) -> ToolMemory:
    """Return a memory in a copy of the folder in which `teach` trained one.

    Args:
        name: equal for calls with an equal `make` and `teach`.
        make: opens a memory in a folder.
        teach: trains it, with the first call of a name.
    """
    if name not in _folders:
        folder = Path(tempfile.mkdtemp(prefix="toolmem-trained-"))
        with make(folder / "memory") as first:
            teach(first)
            assert first.flush()
        _folders[name] = folder
    copy = _folders[name] / str(next(_numbers))
    shutil.copytree(_folders[name] / "memory", copy)
    memory = _opened[copy] = make(copy)
    return memory


def of_desk(folder: Path) -> ToolMemory:
    """Make a memory with the desk's tools, and all methods."""
    return ToolMemory(folder, Desk().tools)


def knowing_desk(
    runs: int = 12, make: Callable[[Path], ToolMemory] = of_desk, name: Hashable = "all methods"
) -> ToolMemory:
    """Return a memory with this number of runs of the desk; `name` identifies `make`."""
    return trained(("desk", runs, name), make, partial(warm, runs=runs))


def close_copies() -> None:
    """Close the memories that a test got, and remove their folders."""
    for folder, memory in _opened.items():
        with suppress(Exception):  # what a test broke
            memory.close()
        shutil.rmtree(folder, ignore_errors=True)
    _opened.clear()


def remove_folders() -> None:
    """Remove the folders in which memories were trained."""
    close_copies()
    for folder in _folders.values():
        shutil.rmtree(folder, ignore_errors=True)
    _folders.clear()
