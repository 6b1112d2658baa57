"""Installed packages, and the files of a memory: `toolmem doctor`."""

from __future__ import annotations

import os
import platform
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from langgraph_toolmem._version import __version__
from langgraph_toolmem.base.errors import StorageError, install_extra
from langgraph_toolmem.base.text import count
from langgraph_toolmem.cli.terminal import progress, say, table

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from langgraph_toolmem.graph.tool_graph import Table

DEFAULT_FOLDER: Final = Path(".toolmem")
DISTRIBUTION: Final = "langgraph-toolmem"
LITTLE: Final = 16_000_000
"""Free bytes below which a disk has no room for another copy of a memory."""
RESTORE: Final = "Restore it from a backup, or import the logs again"
_INTERNAL: Final = ("all", "bench", "dev", "dev-all")
"""Extras that no application needs."""
_WRITERS: Final = {
    "critique": "critiques are written only by a memory whose method Entries has a critic: Entries(critic=...)",
    "wording": "atoms are worded only by a memory whose method Atoms has a model: Atoms(model=...)",
}


class Finding(NamedTuple):
    """A problem or a note; `text` is its sentence without a full stop."""

    kind: Literal["problem", "note"]
    text: str


def _problem(text: str) -> Finding:
    return Finding("problem", text)


def _note(text: str) -> Finding:
    return Finding("note", text)


def packages() -> list[dict[str, Any]]:
    """Return the packages that the installed distribution names, required ones first, each with its smallest extra: the
    one to install for it.
    """
    from packaging.requirements import Requirement

    named = list[tuple[str, Requirement]]()
    sizes = Counter[str]()
    for text in metadata.requires(DISTRIBUTION) or ():
        extra = _extra_of(text)
        sizes[extra] += 1
        if extra not in _INTERNAL:
            named.append((extra, Requirement(text)))
    sizes[""] = 0  # a package that is always needed belongs to no extra, although an extra may name it too
    described = dict[str, dict[str, Any]]()
    for extra, need in sorted(named, key=itemgetter(0)):
        known = described.get(need.name)
        if need.name != DISTRIBUTION and (known is None or sizes[extra] < sizes[known["extra"]]):
            described[need.name] = _package(need, extra)
    return list(described.values())


def _extra_of(requirement: str) -> str:
    return requirement.partition("extra ==")[2].strip(" \"'")


def _package(need: Requirement, extra: str) -> dict[str, Any]:
    version = _version_of(need.name)
    target = "."
    if extra:
        target = f".[{extra}]"
    install = f'pip install --upgrade "{target}"'
    problem = None
    if version is None and not extra:
        problem = f"{need.name} is not installed; in the checkout, type: {install}"
    # Without `prereleases` every installed pre-release would count as unfit.
    elif version is not None and not need.specifier.contains(version, prereleases=True):
        problem = f"{need.name} {version} does not fit {need.specifier}; in the checkout, type: {install}"
    return {
        "name": need.name,
        "needed": str(need.specifier),
        "version": version,
        "extra": extra,
        "install": install,
        "problem": problem,
    }


def _version_of(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def examine(folder: Path | None) -> dict[str, Any]:
    """Check the installed packages and a memory folder (`.toolmem` if None and it exists).

    Returns:
        JSON values; ``problems`` has a sentence for each problem that says what to do.
    """
    known = packages()
    findings = []
    for package in known:
        if package["problem"] is not None:
            findings.append(_problem(package["problem"]))
    examined = ExaminedFolder()
    if folder is None and not DEFAULT_FOLDER.is_dir():
        findings.append(_note(f"there is no {DEFAULT_FOLDER} here; name a memory with --memory FOLDER"))
    else:
        examined = _examine_folder((folder or DEFAULT_FOLDER).absolute())
        findings += examined.findings
    texts: dict[str, list[str]] = {"problem": [], "note": []}
    for finding in findings:
        texts[finding.kind].append(finding.text)
    return {
        "ok": not texts["problem"],
        "problems": texts["problem"],
        "notes": texts["note"],
        "toolmem": __version__,
        "python": platform.python_version(),
        "packages": known,
        "folder": examined.folder,
        "bytes": examined.size,
        "memory": examined.memory,
    }


class ExaminedFolder(NamedTuple):
    """A memory's folder, its size in bytes and the description of its files; None if it cannot be read."""

    folder: str | None = None
    size: int = 0
    memory: dict[str, Any] | None = None
    findings: Sequence[Finding] = ()


def _examine_folder(folder: Path) -> ExaminedFolder:
    obstacle = _obstacle(folder)
    if obstacle:
        return ExaminedFolder(str(folder), findings=[_problem(obstacle)])
    from langgraph_toolmem.stores.events import inspect_folder

    memory = {**inspect_folder(folder, _tables()), "jobs": _queue(folder)}
    size = _size(folder)
    findings = [*_files(folder, memory), *_jobs(folder, memory["jobs"]), *_chroma(folder)]
    return ExaminedFolder(str(folder), size, memory, findings)


def _tables() -> Iterator[type[Table]]:
    """Yield the tables of the core and of the package's methods."""
    from langgraph_toolmem.core.ledger import LedgerTable
    from langgraph_toolmem.core.lifecycle import Episodes
    from langgraph_toolmem.core.trials import HoldoutTable, TrialTable
    from langgraph_toolmem.core.users import Ages
    from langgraph_toolmem.memory import default_methods

    yield from (LedgerTable, Episodes, TrialTable, HoldoutTable, Ages)
    for method in default_methods():
        yield from method.tables


def _obstacle(folder: Path) -> str:
    """Return why a folder cannot be read, or ""."""
    if not folder.exists():
        return f"there is no memory at {folder}; it is made when an agent first uses it"
    if not folder.is_dir():
        return f"{folder} is a file; a memory is a folder"
    if not os.access(folder, os.R_OK | os.X_OK):
        return f"{folder} cannot be read: give the agent's user its folder back (chown, chmod u+rwX)"
    return ""


def _files(folder: Path, memory: dict[str, Any]) -> Iterator[Finding]:
    snapshot, events = memory["snapshot"], memory["events"]
    if snapshot is not None:
        yield from _snapshot(snapshot)
    if events is not None:
        yield from _event_log(events)
    # To SQLite an empty file is a new database, so this check reports the loss.
    if _empty(folder / "memory.db"):
        yield _problem(f"memory.db is empty: jobs and what was learned after the last snapshot are lost. {RESTORE}")
    for aside in memory["quarantined"]:
        yield _problem(
            f"{aside['file']} ({_words(aside['bytes'])}) could not be read and is quarantined; the memory "
            "works without it. Move it away or delete it"
        )
    yield from _room(folder)
    if snapshot is None and events is None:
        yield _note("nothing has been learned there yet")
    if memory["mixes_users"]:
        from langgraph_toolmem.core.users import NO_USERS

        yield _note(NO_USERS)


def _snapshot(snapshot: dict[str, Any]) -> Iterator[Finding]:
    if snapshot["why"]:
        yield _problem(
            f"graph.pickle cannot be used: {snapshot['why']}. The next opening renames it and uses the snapshot before "
            "it with the event log; nothing is lost"
        )
    elif snapshot["left_out"]:
        from langgraph_toolmem.stores.events import left_out_in_words

        yield _problem(left_out_in_words(snapshot["left_out"]))


def _room(folder: Path) -> Iterator[Finding]:
    if not os.access(folder, os.W_OK):
        yield _problem(f"{folder} cannot be written to: a memory there learns in RAM only; make it writable")
    left = shutil.disk_usage(folder).free
    if left < LITTLE:
        yield _problem(f"the disk of {folder} has {_words(left)} left: a memory there learns in RAM only; make room")


def _event_log(events: dict[str, Any]) -> Iterator[Finding]:
    if events["why"]:
        yield _problem(
            f"memory.db cannot be used: {events['why']}. If it is damaged, the next opening renames it and keeps the "
            "rows that can be read"
        )
    damaged = events["damaged"]
    if damaged:
        named = 5
        numbers = ", ".join(map(str, damaged[:named]))
        if len(damaged) > named:
            numbers += ", ..."
        yield _problem(
            f"memory.db has {count(len(damaged), 'damaged event')} (number {numbers}), which the memory leaves out; "
            "the others are used"
        )


def _jobs(folder: Path, queue: dict[str, Any]) -> Iterator[Finding]:
    if queue["why"]:
        yield _problem(queue["why"])
    if queue["dead"]:
        yield _problem(
            f"jobs that failed too often: {_counted(queue['dead'])}. When the cause is gone, type: toolmem doctor "
            f"--memory {folder} --retry"
        )
    if queue["pending"]:
        yield _note(f"jobs that wait for the next process that uses the memory: {_counted(queue['pending'])}")
    for group in queue["pending"]:
        if group["kind"] in _WRITERS:
            yield _note(_WRITERS[group["kind"]])
    if queue["failing"]:
        yield _note(f"of these, tried without success: {_counted(queue['failing'])}")


def _chroma(folder: Path) -> Iterator[Finding]:
    from langgraph_toolmem.stores.inspection import inspect_chroma

    if _empty(folder / "chroma/chroma.sqlite3"):  # Chroma would make a new one of it
        yield _problem(f"chroma/chroma.sqlite3 is empty: its texts are lost. {RESTORE}")
        return
    damage = inspect_chroma(folder)
    if damage is None:
        yield _note("another process writes to Chroma; its collections were not checked")
        return
    for text in damage:
        yield _problem(text)
    if damage:
        yield _problem(f"to rebuild Chroma from its texts, type: toolmem doctor --memory {folder} --rebuild")


def _empty(file: Path) -> bool:
    return file.is_file() and not file.stat().st_size


def _queue(folder: Path) -> dict[str, Any]:
    """Return the jobs in a folder by their state; failing ones are pending too."""
    from langgraph_toolmem.stores.database import NAME, query_readonly

    why, rows = "", None
    try:
        # Read-only: opening the queue itself would create its tables, and this command must not change files.
        rows = query_readonly(folder / NAME, "SELECT kind, dead, attempts, error FROM jobs")
    except StorageError as error:
        why = str(error)
    pending: list[tuple[str, str]] = []
    failing: list[tuple[str, str]] = []
    dead: list[tuple[str, str]] = []
    for kind, is_dead, attempts, error_text in rows or ():
        if is_dead:
            dead.append((kind, error_text))
            continue
        pending.append((kind, ""))
        if attempts:
            failing.append((kind, error_text))
    return {"why": why, "pending": _grouped(pending), "failing": _grouped(failing), "dead": _grouped(dead)}


def _grouped(jobs: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    counted = Counter(jobs).most_common()
    return [{"kind": kind, "times": times, "error": error} for (kind, error), times in counted]


def _counted(groups: list[dict[str, Any]]) -> str:
    """Return `critique: 3 (TimeoutError at …), write: 1`."""
    texts = []
    for group in groups:
        text = f"{group['kind']}: {group['times']:,}"
        if group["error"]:
            text += f" ({group['error']})"
        texts.append(text)
    return ", ".join(texts)


def retry(folder: Path) -> int:
    """Queue jobs again that failed too often; return their number."""
    import time

    from langgraph_toolmem.core.jobs import JobQueue

    with JobQueue(folder, now=time.time) as queue:
        if queue.empty:
            return 0
        return queue.requeue()


def rebuild(folder: Path, embeddings: str | None, *, damaged: bool, show: bool) -> tuple[str, int]:
    """Rebuild Chroma from the texts that can be read; return the embedder's name and the number of texts.

    Args:
        folder: of the memory.
        embeddings: the embedder. Defaults to the one that Chroma was built with.
        damaged: If True, keep the old files under another name.
        show: If True, show progress.

    Raises:
        ConfigurationError: the embedder is unknown.
    """
    from langgraph_toolmem.stores.indexed import IndexedVectors
    from langgraph_toolmem.stores.inspection import embedder_of
    from langgraph_toolmem.text.embedders import resolve_embedder

    spec = embeddings or embedder_of(folder)
    if spec == "builtin":
        spec = None
    embedder = resolve_embedder(spec)
    # All namespaces are rebuilt, whichever the store has.
    with (
        progress("embedding", 1, show=show) as update,
        IndexedVectors(folder, embedder=embedder, namespace=()) as store,
    ):
        return embedder.name, store.rebuild(update, keep=damaged)


def show_health(found: dict[str, Any]) -> None:
    """Print the result of `examine`, problems last."""
    say(f"{DISTRIBUTION} {__version__} on Python {found['python']}")
    _show_packages(found["packages"])
    say("")
    if found["folder"] is not None:
        say(f"Memory: {found['folder']}")
    memory = found["memory"]
    if memory is not None:
        snapshot, events = _file("snapshot", memory["snapshot"]), _file("events", memory["events"])
        say(f"On disk: {_words(found['bytes'])} ({snapshot}; {events})")
    # The end of the output is read first: problems come last.
    for note in found["notes"]:
        say(f"Note: {note}.")
    for problem in found["problems"]:
        say(f"Problem: {problem}.")
    if not found["problems"]:
        say("No problem found.")


def _show_packages(packages: Iterable[dict[str, Any]]) -> None:
    rows = []
    extras = set()
    for package in packages:
        version = package["version"]
        if version is None and package["extra"]:
            version = "–"
            extras.add(package["extra"])
        elif version is None:
            version = "missing"
        rows.append((package["name"], version, package["needed"], package["extra"]))
    table("Packages", ("package", "installed", "needed", "extra"), rows, len(rows))
    if extras:
        say(f"{count(len(extras), 'extra')} not installed. {install_extra('NAME')}")


def _file(part: str, file: dict[str, Any] | None) -> str:
    if file is None:
        return f"no {part}"
    text = f"{part} {_words(file['bytes'])}"
    if file.get("rows") is not None:
        text += f" with {file['rows']:,} rows"
    if file["why"]:
        return f"{text}, NOT readable"
    return f"{text}, readable"


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
