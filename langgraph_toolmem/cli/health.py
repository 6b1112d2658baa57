"""Installed packages, and the files of a memory: `toolmem doctor`."""

from __future__ import annotations

import os
import platform
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from langgraph_toolmem._version import __version__
from langgraph_toolmem.base.errors import StorageError, install_extra
from langgraph_toolmem.base.text import count
from langgraph_toolmem.cli.terminal import progress, say, table

DEFAULT_FOLDER: Final = Path(".toolmem")
DISTRIBUTION: Final = "langgraph-toolmem"
MAX_NAMED: Final = 5
LITTLE: Final = 16_000_000
"""Free bytes below which a disk has no room for another copy of a memory."""
RESTORE: Final = "Restore it from a backup, or import the logs again"
_INTERNAL: Final = ("all", "bench", "dev", "dev-all")
"""Extras that no application needs."""
_WRITERS: Final = {
    "critique": "critiques are written only by a memory whose method Entries has a critic: Entries(critic=...)",
    "wording": "atoms are worded only by a memory whose method Atoms has a model: Atoms(model=...)",
}
Found = tuple[str, str]
"""("problem" or "note", its sentence without a full stop)."""


def packages() -> list[dict[str, Any]]:
    """Return the packages that the installed distribution names, required ones first, each with its smallest extra."""
    from packaging.requirements import Requirement

    def extra_of(requirement: str) -> str:
        return requirement.partition("extra ==")[2].strip(" \"'")

    found = dict[str, dict[str, Any]]()
    for text in sorted(metadata.requires(DISTRIBUTION) or (), key=extra_of):
        need, extra = Requirement(text), extra_of(text)
        if extra in _INTERNAL or need.name == DISTRIBUTION:
            continue
        try:
            version = metadata.version(need.name)
        except metadata.PackageNotFoundError:
            version = None
        install = f'pip install --upgrade ".{f"[{extra}]" if extra else ""}"'
        problem = None
        if version is None and not extra:
            problem = f"{need.name} is not installed; in the checkout, type: {install}"
        elif version is not None and not need.specifier.contains(version, prereleases=True):
            problem = f"{need.name} {version} does not fit {need.specifier}; in the checkout, type: {install}"
        found[need.name] = {
            "name": need.name,
            "needed": str(need.specifier),
            "version": version,
            "extra": extra,
            "install": install,
            "problem": problem,
        }
    return list(found.values())


def examine(folder: Path | None) -> dict[str, Any]:
    """Check the installed packages and a memory folder (`.toolmem` if None and it exists).

    Returns:
        JSON values; ``problems`` has a sentence for each problem that says what to do.
    """
    known = packages()
    found: list[Found] = [("problem", each["problem"]) for each in known if each["problem"] is not None]
    memory, size = None, 0
    if folder is None and not DEFAULT_FOLDER.is_dir():
        found.append(("note", f"there is no {DEFAULT_FOLDER} here; name a memory with --memory FOLDER"))
    else:
        folder = (folder or DEFAULT_FOLDER).absolute()
        if not folder.exists():
            found.append(("problem", f"there is no memory at {folder}; it is made when an agent first uses it"))
        elif not folder.is_dir():
            found.append(("problem", f"{folder} is a file; a memory is a folder"))
        elif not os.access(folder, os.R_OK | os.X_OK):
            text = f"{folder} cannot be read: give the agent's user its folder back (chown, chmod u+rwX)"
            found.append(("problem", text))
        else:
            from langgraph_toolmem.stores.events import inspect_folder

            memory, size = {**inspect_folder(folder), "jobs": _queue(folder)}, _size(folder)
            found += [*_files(folder, memory), *_jobs(folder, memory["jobs"]), *_chroma(folder)]
    problems, notes = ([text for kind, text in found if kind == wanted] for wanted in ("problem", "note"))
    return {
        "ok": not problems,
        "problems": problems,
        "notes": notes,
        "toolmem": __version__,
        "python": platform.python_version(),
        "packages": known,
        "folder": None if folder is None else str(folder),
        "bytes": size,
        "memory": memory,
    }


def _files(folder: Path, memory: dict[str, Any]) -> Iterator[Found]:
    if (file := memory["snapshot"]) is not None and file["why"]:
        yield (
            "problem",
            f"graph.pickle cannot be used: {file['why']}. The next opening renames it and uses the snapshot before it "
            "with the event log; nothing is lost",
        )
    if (file := memory["events"]) is not None and file["why"]:
        yield (
            "problem",
            f"memory.db cannot be used: {file['why']}. If it is damaged, the next opening renames it and keeps the "
            "rows that can be read",
        )
    if (file := memory["events"]) is not None and file["damaged"]:
        numbers = ", ".join(map(str, file["damaged"][:MAX_NAMED]))
        yield (
            "problem",
            f"memory.db has {count(len(file['damaged']), 'damaged event')} (number {numbers}"
            f"{', ...' if len(file['damaged']) > MAX_NAMED else ''}), which the memory leaves out; the others are used",
        )
    if _empty(folder / "memory.db"):
        yield "problem", f"memory.db is empty: jobs and what was learned after the last snapshot are lost. {RESTORE}"
    for aside in memory["quarantined"]:
        yield (
            "problem",
            f"{aside['file']} ({_words(aside['bytes'])}) could not be read and is quarantined; the memory "
            "works without it. Move it away or delete it",
        )
    if not os.access(folder, os.W_OK):
        yield "problem", f"{folder} cannot be written to: a memory there learns in RAM only; make it writable"
    if (left := shutil.disk_usage(folder).free) < LITTLE:
        yield "problem", f"the disk of {folder} has {_words(left)} left: a memory there learns in RAM only; make room"
    if memory["snapshot"] is None and memory["events"] is None:
        yield "note", "nothing has been learned there yet"


def _jobs(folder: Path, queue: dict[str, Any]) -> Iterator[Found]:
    if queue["why"]:
        yield "problem", queue["why"]
    if lost := queue["dead"]:
        yield (
            "problem",
            f"jobs that failed too often: {_counted(lost)}. When the cause is gone, type: toolmem doctor --memory "
            f"{folder} --retry",
        )
    if waits := queue["pending"]:
        yield "note", f"jobs that wait for the next process that uses the memory: {_counted(waits)}"
        yield from (("note", _WRITERS[each["kind"]]) for each in waits if each["kind"] in _WRITERS)
    if failing := queue["failing"]:
        yield "note", f"of these, tried without success: {_counted(failing)}"


def _chroma(folder: Path) -> Iterator[Found]:
    from langgraph_toolmem.stores.chroma_repair import inspect

    if _empty(folder / "chroma/chroma.sqlite3"):  # Chroma would make it a new one
        yield "problem", f"chroma/chroma.sqlite3 is empty: its texts are lost. {RESTORE}"
        return
    damage = inspect(folder)
    if damage is None:
        yield "note", "another process writes to Chroma; its collections were not checked"
    elif damage:
        yield from (("problem", each) for each in damage)
        yield "problem", f"to rebuild Chroma from its texts, type: toolmem doctor --memory {folder} --rebuild"


def _empty(file: Path) -> bool:
    return file.is_file() and not file.stat().st_size


def _queue(folder: Path) -> dict[str, Any]:
    """Return the jobs in a folder by their state; failing ones are pending too."""
    from langgraph_toolmem.stores.database import NAME, query_readonly

    why, rows = "", None
    try:
        rows = query_readonly(folder / NAME, "SELECT kind, dead, attempts, error FROM jobs")
    except StorageError as error:
        why = str(error)
    waits, lost = ([row for row in rows or () if bool(row[1]) is dead] for dead in (False, True))
    return {
        "why": why,
        "pending": _grouped((kind, "") for kind, *_ in waits),
        "failing": _grouped((kind, error) for kind, _, attempts, error in waits if attempts),
        "dead": _grouped((kind, error) for kind, _, _, error in lost),
    }


def _grouped(jobs: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    return [{"kind": kind, "times": times, "error": error} for (kind, error), times in Counter(jobs).most_common()]


def _counted(groups: list[dict[str, Any]]) -> str:
    """Return `critique: 3 (TimeoutError at …), write: 1`."""
    return ", ".join(
        f"{each['kind']}: {each['times']:,}" + (f" ({each['error']})" if each["error"] else "") for each in groups
    )


def retry(folder: Path) -> int:
    """Queue jobs again that failed too often; return how many."""
    import time

    from langgraph_toolmem.core.jobs import JobQueue

    with JobQueue(folder, now=time.time) as queue:
        return 0 if queue.empty else queue.requeue()


def rebuild(folder: Path, embeddings: str | None, *, damaged: bool, show: bool) -> tuple[str, int]:
    """Rebuild Chroma from the texts that can be read; return the embedder's name and the number of texts.

    Args:
        folder: of the memory.
        embeddings: the embedder. Defaults to the one that Chroma was built with.
        damaged: If True, keep the old files under another name.
        show: If True, show progress.

    Raises:
        ConfigurationError: no embedder has that name.
    """
    from langgraph_toolmem.stores.chroma_repair import embedder_of
    from langgraph_toolmem.stores.indexed import IndexedVectors
    from langgraph_toolmem.text.embedders import resolve_embedder

    spec = embeddings or embedder_of(folder)
    embedder = resolve_embedder(None if spec in (None, "builtin") else spec)
    with (
        progress("embedding", 1, show=show) as update,
        IndexedVectors(folder, embedder=embedder, namespace=()) as store,
    ):
        return embedder.name, store.rebuild(update, keep=damaged)


def show_health(found: dict[str, Any]) -> None:
    """Print the result of `examine`, problems last."""
    say(f"{DISTRIBUTION} {__version__} on Python {found['python']}")
    rows = [
        (each["name"], each["version"] or ("–" if each["extra"] else "missing"), each["needed"], each["extra"])
        for each in found["packages"]
    ]
    table("Packages", ("package", "installed", "needed", "extra"), rows, len(rows))
    extras = {each["extra"] for each in found["packages"] if each["extra"] and each["version"] is None}
    if extras:
        say(f"{count(len(extras), 'extra')} not installed. {install_extra('NAME')}")
    say("")
    if found["folder"] is not None:
        say(f"Memory: {found['folder']}")
    if (memory := found["memory"]) is not None:
        parts = (_file(part, memory[part]) for part in ("snapshot", "events"))
        say(f"On disk: {_words(found['bytes'])} ({'; '.join(parts)})")
    for note in found["notes"]:
        say(f"Note: {note}.")
    for problem in found["problems"]:
        say(f"Problem: {problem}.")
    if not found["problems"]:
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
            except OSError:  # deleted in the meantime
                continue
    return total
