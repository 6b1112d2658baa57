"""What `toolmem doctor` looks at: installed packages, and the files of a memory. It changes nothing."""

from __future__ import annotations

import os
import platform
import re
import shutil
from dataclasses import asdict, dataclass, field
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langgraph_toolmem._version import __version__

if TYPE_CHECKING:
    from rich.console import Console

LITTLE = 16_000_000
"""Bytes on a disk below which there is no room to write a memory anew."""
DEFAULT_FOLDER = Path(".toolmem")

REQUIRED = {
    "langgraph": "1.2.11",
    "langchain-core": "1.6.3",
    "jsonschema-rs": "0.29",
    "filelock": "3.16",
    "numpy": "1.26",
    "pyyaml": "6",
    "typer": "0.16",
    "rich": "13.9",
}
"""Packages the core needs, with their lowest releases, as in pyproject.toml."""

OPTIONAL = {
    "memory": ("chromadb", "1.5.2", "suggestions, recall and planning: text that is searched by meaning"),
    "openai": ("langchain-openai", "1.0", "models behind OpenAI's protocol"),
    "agents": ("langchain", "1.4.2", "middleware for create_agent"),
    "html": ("bokeh", "3.9", "the page of `toolmem report --html`"),
    "mcp": ("langchain-mcp-adapters", "0.3", "tools of MCP servers"),
    "studio": ("langgraph-cli", "0.4", "LangGraph Studio (`langgraph dev`)"),
    "langmem": ("langmem", "0.0.30", "langmem's memory manager"),
    "embeddings": ("sentence-transformers", "3.3", "local embedding models"),
    "hgt": ("torch", "2.4", "training the navigator's graph model (`toolmem train`)"),
}
"""Extras: the package each brings, its lowest release, and what it is for."""


@dataclass(frozen=True, slots=True)
class Package:
    """One package, installed or not.

    Attributes:
        name: its name on the package index.
        version: None if it is not installed.
        needed: lowest release that works.
        extra: the extra that brings it, None for a required package.
        purpose: what it is for.
    """

    name: str
    version: str | None
    needed: str
    extra: str | None = None
    purpose: str = "the core"

    @property
    def install(self) -> str:
        """The line to type."""
        target = f"langgraph-toolmem[{self.extra}]" if self.extra else "langgraph-toolmem"
        return f'pip install --upgrade "{target}"'

    @property
    def problem(self) -> str | None:
        """None if there is none; an optional package may be missing."""
        if self.version is None:
            return None if self.extra else f"{self.name} is not installed; type: {self.install}"
        if _numbers(self.version) < _numbers(self.needed):
            return f"{self.name} {self.version} is older than {self.needed}; type: {self.install}"
        return None


@dataclass(frozen=True, slots=True)
class Health:
    """Everything that was found; `problems` has one sentence each, with what to do."""

    packages: list[Package]
    folder: Path | None
    memory: dict[str, Any] | None
    size: int
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "ok": not self.problems,
            "problems": self.problems,
            "notes": self.notes,
            "toolmem": __version__,
            "python": platform.python_version(),
            "packages": [
                {**asdict(package), "install": package.install, "problem": package.problem} for package in self.packages
            ],
            "folder": None if self.folder is None else str(self.folder),
            "bytes": self.size,
            "memory": self.memory,
        }


def examine(folder: Path | None) -> Health:
    """Look at the installed packages and at a memory folder (`.toolmem` if None and there is one)."""
    packages = [Package(name, _installed(name), needed) for name, needed in REQUIRED.items()]
    packages += [
        Package(name, _installed(name), needed, extra, purpose) for extra, (name, needed, purpose) in OPTIONAL.items()
    ]
    problems = [package.problem for package in packages if package.problem is not None]
    if folder is None:
        if not DEFAULT_FOLDER.is_dir():
            note = f"no memory was looked at: there is no {DEFAULT_FOLDER} here; name one with --memory FOLDER"
            return Health(packages, None, None, 0, problems, [note])
        folder = DEFAULT_FOLDER
    folder = folder.absolute()
    if not folder.exists():
        problems.append(f"there is no memory at {folder}; it is made when an agent first uses it")
        return Health(packages, folder, None, 0, problems)
    if not folder.is_dir():
        problems.append(f"{folder} is a file; a memory is a folder")
        return Health(packages, folder, None, 0, problems)
    if not os.access(folder, os.R_OK | os.X_OK):
        problems.append(f"{folder} cannot be read: give the agent's user its folder back (chown, chmod u+rwX)")
        return Health(packages, folder, None, 0, problems)
    from langgraph_toolmem.cli import waiting
    from langgraph_toolmem.stores.graph_report import inspect_folder

    memory = {**inspect_folder(folder), **waiting.look(folder)}
    judged = (
        _judge(folder, memory),
        waiting.judge(folder, memory),
        _judge_indexes(folder, memory),
    )
    found, notes = (list(chain(*parts)) for parts in zip(*judged, strict=True))
    return Health(packages, folder, memory, _folder_size(folder), problems + found, notes)


def _judge(folder: Path, memory: dict[str, Any]) -> tuple[list[str], list[str]]:
    problems: list[str] = []
    notes: list[str] = []
    for part in ("snapshot", "journal"):
        file = memory[part]
        if file is None:
            continue
        if not file["readable"]:
            problems.append(f"the {part} of the graph cannot be read: {file['why']}")
        elif file["why"]:
            notes.append(f"the {part} of the graph: {file['why']}")
    problems += [
        f"{aside['file']} ({size_in_words(aside['bytes'])}) could not be read and was set aside; the memory "
        "went on without it. Move it away or delete it when you are done with it"
        for aside in memory["set_aside"]
    ]
    if not os.access(folder, os.W_OK):
        problems.append(f"{folder} cannot be written to: a memory opened there would learn in RAM only")
    if (left := shutil.disk_usage(folder).free) < LITTLE:
        problems.append(
            f"the disk of {folder} has {size_in_words(left)} left: a memory there goes on in RAM; make room"
        )
    if memory["snapshot"] is None and memory["journal"] is None:
        notes.append("nothing has been learned there yet")
    if memory["locked"]:
        holder = "another process" if memory["holder"] is None else f"process {memory['holder']}"
        notes.append(f"{holder} is writing to it; others may open it with read_only=True")
    return problems, notes


def _judge_indexes(folder: Path, memory: dict[str, Any]) -> tuple[list[str], list[str]]:
    from langgraph_toolmem.stores.integrity import inspect, set_aside

    notes = [
        f"{aside.relative_to(folder)} ({size_in_words(_folder_size(aside))}) is an index of Chroma's that was damaged "
        "and set aside; it is made again from its texts. Delete it when you are done with it"
        for aside in set_aside(folder)
    ]
    if memory["locked"]:
        return [], notes  # while somebody writes, the files do not have to agree
    try:
        return inspect(folder), notes
    except OSError as error:
        return [f"the indexes in {folder / 'chroma'} cannot be read: {error}"], notes


def show_health(out: Console, health: Health) -> None:
    """Print what was found, problems last."""
    from rich.table import Table

    out.print(f"langgraph-toolmem {__version__} on Python {platform.python_version()}")
    table = Table()
    for column in ("package", "installed", "needed", "for"):
        table.add_column(column, overflow="fold")
    for package in health.packages:
        state = package.version or ("missing" if package.extra is None else "–")
        table.add_row(package.name, state, f"≥ {package.needed}", package.purpose)
    out.print()
    out.print(table)
    for package in health.packages:
        if package.extra is not None and package.version is None:
            out.print(f"For {package.purpose}, type: {package.install}", soft_wrap=True)
    out.print()
    if health.folder is not None:
        out.print(f"Memory: {health.folder}", soft_wrap=True)
    if health.memory is not None:
        out.print(f"On disk: {size_in_words(health.size)} ({_parts(health.memory)})", soft_wrap=True)
    for note in health.notes:
        out.print(f"Note: {note}.", soft_wrap=True)
    for problem in health.problems:
        out.print(f"Problem: {problem}.", soft_wrap=True)
    if not health.problems:
        out.print("No problem found.")


def size_in_words(size: int) -> str:
    """`512 bytes`, `1.5 MB` (decimal units)."""
    if size < 1000:
        return f"{size} bytes"
    value = float(size)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 999.95 or unit == "TB":
            return f"{value:.1f} {unit}"
    raise AssertionError("the last unit always returns")


def _parts(memory: dict[str, Any]) -> str:
    parts = []
    for part in ("snapshot", "journal"):
        file = memory[part]
        if file is None:
            parts.append(f"no {part}")
            continue
        records = f" with {file['records']:,} records" if file.get("records") is not None else ""
        state = "readable" if file["readable"] else "NOT readable"
        parts.append(f"{part} {size_in_words(file['bytes'] or 0)}{records}, {state}")
    return "; ".join(parts)


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """The release numbers in front: `1.3.5rc1` → (1, 3, 5). Trailing zeros do not count."""
    head = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(number) for number in head.group().split(".")] if head else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _folder_size(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(root) / name).lstat().st_size
            except OSError:  # gone in the meantime
                continue
    return total
