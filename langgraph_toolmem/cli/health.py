"""Installed packages, and the files of a memory: `toolmem doctor`."""

from __future__ import annotations

import os
import platform
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from langgraph_toolmem._version import __version__
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.base.text import count
from langgraph_toolmem.cli.terminal import progress, say, table

DEFAULT_FOLDER: Final = Path(".toolmem")
DISTRIBUTION: Final = "langgraph-toolmem"
LITTLE: Final = 16_000_000
"""Bytes on a disk below which there is no room to write a memory anew."""
_INTERNAL: Final = ("all", "bench", "dev", "dev-all")
"""Extras that are no part of an application."""
_WRITERS: Final = {
    "critique": "critiques are written only by a memory whose method Entries has a critic: Entries(critic=...)",
    "wording": "atoms are worded only by a memory whose method Atoms has a model: Atoms(model=...)",
}


@dataclass(frozen=True, slots=True)
class Package:
    """One package; `extra` brings it, or "" if it is required. `version` is None if it is not installed."""

    name: str
    needed: str
    version: str | None
    extra: str
    fits: bool

    @property
    def install(self) -> str:
        """The line to type."""
        return f'pip install --upgrade "{DISTRIBUTION}{f"[{self.extra}]" if self.extra else ""}"'

    @property
    def problem(self) -> str | None:
        """None if there is none; an optional package may be missing."""
        if self.version is None:
            return None if self.extra else f"{self.name} is not installed; type: {self.install}"
        if self.fits:
            return None
        return f"{self.name} {self.version} does not fit {self.needed}; type: {self.install}"


def packages() -> list[Package]:
    """Return the packages that the installed distribution names, required ones first, each with its smallest extra."""
    from packaging.requirements import Requirement

    found = dict[str, Package]()
    for text in sorted(metadata.requires(DISTRIBUTION) or (), key=_extra):
        need, extra = Requirement(text), _extra(text)
        if extra in _INTERNAL or need.name == DISTRIBUTION:
            continue
        try:
            version = metadata.version(need.name)
        except metadata.PackageNotFoundError:
            version = None
        fits = version is not None and need.specifier.contains(version, prereleases=True)
        found[need.name] = Package(need.name, str(need.specifier), version, extra, fits)
    return list(found.values())


def _extra(requirement: str) -> str:
    return requirement.partition("extra ==")[2].strip(" \"'")


@dataclass(frozen=True, slots=True)
class Health:
    """Everything that was found; `problems` has one sentence each, with what to do."""

    packages: list[Package]
    folder: Path | None = None
    memory: dict[str, Any] | None = None
    size: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "ok": not self.problems,
            "problems": self.problems,
            "notes": self.notes,
            "toolmem": __version__,
            "python": platform.python_version(),
            "packages": [{**asdict(each), "install": each.install, "problem": each.problem} for each in self.packages],
            "folder": None if self.folder is None else str(self.folder),
            "bytes": self.size,
            "memory": self.memory,
        }


def examine(folder: Path | None) -> Health:
    """Look at the installed packages and at a memory folder (`.toolmem` if None and there is one)."""
    health = Health(packages())
    health.problems.extend(each.problem for each in health.packages if each.problem is not None)
    if folder is None and not DEFAULT_FOLDER.is_dir():
        health.notes.append(
            f"no memory was looked at: there is no {DEFAULT_FOLDER} here; name one with --memory FOLDER"
        )
        return health
    folder = (folder or DEFAULT_FOLDER).absolute()
    wrong = ""
    if not folder.exists():
        wrong = f"there is no memory at {folder}; it is made when an agent first uses it"
    elif not folder.is_dir():
        wrong = f"{folder} is a file; a memory is a folder"
    elif not os.access(folder, os.R_OK | os.X_OK):
        wrong = f"{folder} cannot be read: give the agent's user its folder back (chown, chmod u+rwX)"
    if wrong:
        return Health(health.packages, folder, problems=[*health.problems, wrong])
    from langgraph_toolmem.stores.events import inspect_folder

    memory = {**inspect_folder(folder), "jobs": _queue(folder)}
    found = Health(health.packages, folder, memory, _size(folder), health.problems, health.notes)
    for judge in (_judge_graph, _judge_jobs, _judge_chroma):
        judge(folder, memory, found)
    return found


def _judge_graph(folder: Path, memory: dict[str, Any], found: Health) -> None:
    if (file := memory["snapshot"]) is not None and file["why"]:
        found.problems.append(
            f"graph.pickle cannot be used: {file['why']}. The next opening renames it and uses the snapshot before it "
            "with the event log; nothing is lost"
        )
    if (file := memory["events"]) is not None and file["why"]:
        found.problems.append(
            f"memory.db cannot be used: {file['why']}. If it is damaged, the next opening renames it and keeps the "
            "rows that can be read"
        )
    found.problems.extend(
        f"{aside['file']} ({_words(aside['bytes'])}) could not be read and was set aside; the memory "
        "went on without it. Move it away or delete it when you are done with it"
        for aside in memory["set_aside"]
    )
    if not os.access(folder, os.W_OK):
        found.problems.append(f"{folder} cannot be written to: a memory opened there would learn in RAM only")
    if (left := shutil.disk_usage(folder).free) < LITTLE:
        found.problems.append(f"the disk of {folder} has {_words(left)} left: a memory there goes on in RAM; make room")
    if memory["snapshot"] is None and memory["events"] is None:
        found.notes.append("nothing has been learned there yet")


def _judge_jobs(folder: Path, memory: dict[str, Any], found: Health) -> None:
    queue = memory["jobs"]
    if queue["why"]:
        found.problems.append(queue["why"])
    if lost := queue["given_up"]:
        found.problems.append(
            f"given up after repeated failures: {_jobs(lost)}. When the cause is mended, type: "
            f"toolmem doctor --memory {folder} --retry"
        )
    if waits := queue["pending"]:
        found.notes.append(f"jobs that wait for the next process that works with the memory: {_jobs(waits)}")
        found.notes.extend(_WRITERS[each["kind"]] for each in waits if each["kind"] in _WRITERS)
    if failing := queue["failing"]:
        found.notes.append(f"of these, tried without success: {_jobs(failing)}")


def _judge_chroma(folder: Path, _memory: dict[str, Any], found: Health) -> None:
    from langgraph_toolmem.stores.chroma_repair import inspect

    damage = inspect(folder)
    if damage is None:
        found.notes.append("another process writes to Chroma; its collections were not checked")
    elif damage:
        found.problems.extend(damage)
        found.problems.append(f"to rebuild Chroma from its texts, type: toolmem doctor --memory {folder} --rebuild")


def _queue(folder: Path) -> dict[str, Any]:
    """Return the jobs in a folder by their state; failing ones are pending too."""
    from langgraph_toolmem.stores.database import held_in, query_readonly

    path, why, rows = held_in(folder), "", None
    if path is not None:
        try:
            rows = query_readonly(path, "SELECT kind, given_up, attempts, error FROM jobs")
        except StorageError as error:
            why = str(error)
    waits, lost = ([row for row in rows or () if bool(row[1]) is given_up] for given_up in (False, True))
    return {
        "why": why,
        "pending": _grouped((kind, "") for kind, *_ in waits),
        "failing": _grouped((kind, error) for kind, _, attempts, error in waits if attempts),
        "given_up": _grouped((kind, error) for kind, _, _, error in lost),
    }


def _grouped(jobs: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    return [{"kind": kind, "times": times, "error": error} for (kind, error), times in Counter(jobs).most_common()]


def _jobs(groups: list[dict[str, Any]]) -> str:
    """Return `critique: 3 (TimeoutError at …), write: 1`."""
    return ", ".join(
        f"{each['kind']}: {each['times']:,}" + (f" ({each['error']})" if each["error"] else "") for each in groups
    )


def retry(folder: Path) -> int:
    """Have jobs that were given up tried again, by whatever process works with the memory; return how many."""
    import time

    from langgraph_toolmem.core.jobs import JobQueue

    with JobQueue(folder, now=time.time) as queue:
        return 0 if queue.empty else queue.requeue()


def rebuild(folder: Path, embeddings: str | None, *, damaged: bool, show: bool) -> tuple[str, int]:
    """Make Chroma again from the texts that can be read; return the embedder's name and how many texts.

    Args:
        folder: of the memory.
        embeddings: the embedder; the one it had if None.
        damaged: keep the old files, under another name.
        show: show progress.

    Raises:
        ConfigurationError: the embedder cannot be found by its name.
    """
    from langgraph_toolmem.stores import chroma_repair
    from langgraph_toolmem.text.embedders import resolve_embedder

    spec = embeddings or chroma_repair.embedder_of(folder)
    embedder = resolve_embedder(None if spec in (None, "builtin") else spec)
    with progress("embedding", 1, show=show) as update:
        return embedder.name, chroma_repair.rebuild(folder, embedder, update, keep=damaged)


def show_health(health: Health) -> None:
    """Print what was found, problems last."""
    say(f"{DISTRIBUTION} {__version__} on Python {platform.python_version()}")
    rows = [
        (each.name, each.version or ("–" if each.extra else "missing"), each.needed, each.extra)
        for each in health.packages
    ]
    table("Packages", ("package", "installed", "needed", "extra"), rows, len(rows))
    extras = dict.fromkeys(each.extra for each in health.packages if each.extra and each.version is None)
    if extras:
        say(f'{count(len(extras), "extra")} not installed; to have some: pip install "{DISTRIBUTION}[NAME]"')
    say("")
    if health.folder is not None:
        say(f"Memory: {health.folder}")
    if health.memory is not None:
        parts = (_file(part, health.memory[part]) for part in ("snapshot", "events"))
        say(f"On disk: {_words(health.size)} ({'; '.join(parts)})")
    for note in health.notes:
        say(f"Note: {note}.")
    for problem in health.problems:
        say(f"Problem: {problem}.")
    if not health.problems:
        say("No problem found.")


def _file(part: str, file: dict[str, Any] | None) -> str:
    if file is None:
        return f"no {part}"
    rows = f" with {file['rows']:,} rows" if file.get("rows") is not None else ""
    return f"{part} {_words(file['bytes'])}{rows}, {'NOT readable' if file['why'] else 'readable'}"


def _words(size: int) -> str:
    from rich.filesize import decimal

    return decimal(size)


def _size(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(root) / name).lstat().st_size
            except OSError:  # gone in the meantime
                continue
    return total
