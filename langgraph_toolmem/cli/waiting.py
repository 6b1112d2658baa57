"""What lies beside the graph in a memory folder: entries, verdicts and critiques still to be written, a cold start
under way, recorded decisions.

Looking changes nothing; `retry` has what was given up tried again.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

REFLECTIONS: Final = "reflections.db"
BOOTSTRAP: Final = "bootstrap.db"
DECISIONS: Final = "decisions.db"
KINDS: Final = {
    "write": "entry",
    "judge": "verdict",
    "verdict": "verdict",
    "critique": "critique",
    "atoms": "atoms of a run",
    "wording": "wording of atoms",
}
"""Kinds of jobs, as a person calls what they write."""
_MANY: Final = {
    "entry": "entries",
    "verdict": "verdicts",
    "critique": "critiques",
    "atoms of a run": "times atoms of a run",
    "wording of atoms": "wordings of atoms",
}


def look(folder: Path) -> dict[str, Any]:
    """What waits in a folder.

    Returns:
        ``reflections``, ``bootstrap`` and ``decisions``, each None if there is no such file, else a dict with
        ``bytes``, ``readable`` and ``why``. The first also has ``pending``, ``failing`` and ``given_up``, lists of
        ``{"kind", "times", "error"}``; failing ones are pending too. The second has the number of requests by
        ``stages``, the third that of ``turns``.
    """
    parts = ((REFLECTIONS, _jobs), (BOOTSTRAP, _stages), (DECISIONS, _turns))
    return {name.removesuffix(".db"): _file(folder / name, read) for name, read in parts}


def judge(folder: Path, found: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Problems and notes, one sentence each, with what to do."""
    problems: list[str] = []
    notes: list[str] = []
    for name in (REFLECTIONS, BOOTSTRAP, DECISIONS):
        file = found[name.removesuffix(".db")]
        if file is not None and not file["readable"]:
            problems.append(f"{name} cannot be read: {file['why']}")
    queue, cold, decisions = found["reflections"], found["bootstrap"], found["decisions"]
    if queue is not None and queue["readable"]:
        if queue["given_up"]:
            problems.append(
                f"given up after repeated failures: {_in_words(queue['given_up'], why=True)}. When the cause is "
                f"mended, type: toolmem doctor --memory {folder} --retry"
            )
        if queue["pending"]:
            notes.append(
                f"still to be written, by the next process that works with the memory: {_in_words(queue['pending'])}"
            )
        if queue["failing"]:
            notes.append(f"of these, tried before without success: {_in_words(queue['failing'], why=True)}")
        if any(each["kind"] == "critique" for each in queue["pending"]):
            notes.append(
                "critiques are written only by a memory whose method Entries has a critic: Entries(critic=...)"
            )
        if any(each["kind"] == KINDS["wording"] for each in queue["pending"]):
            notes.append("atoms are worded only by a memory whose method Atoms has a model: Atoms(model=...)")
    if cold is not None and cold["readable"]:
        stages = cold["stages"]
        if left := sum(stages.get(stage, 0) for stage in ("waiting", "running", "ran")):
            over = stages.get("done", 0) + stages.get("failed", 0)
            notes.append(
                f"a cold start was not ended: {over:,} requests were run, {left:,} wait; toolmem bootstrap goes on"
            )
    if decisions is not None and decisions["readable"] and decisions["turns"]:
        notes.append(
            f"{decisions['turns']:,} decisions are kept with their prompts in {DECISIONS}, for toolmem export --sft"
        )
    return problems, notes


def retry(folder: Path) -> int:
    """Has what was given up tried again, by whatever process works with the memory; returns how many jobs.

    Raises:
        StorageError: the queue cannot be written.
    """
    import time

    from langgraph_toolmem.stores.job_queue import JobQueue

    with JobQueue(folder, now=time.time) as queue:
        return queue.revive()


def _file(path: Path, read: Callable[[sqlite3.Connection], dict[str, Any]]) -> dict[str, Any] | None:
    try:
        report: dict[str, Any] = {"bytes": path.stat().st_size, "readable": True, "why": ""}
    except FileNotFoundError:
        return None
    # While nobody has it open there is no log beside it, and looking must not begin one.
    quiet = "" if Path(f"{path}-wal").exists() else "&immutable=1"
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro{quiet}", uri=True)) as database:
            return report | read(database)
    except sqlite3.Error as error:
        return report | {"readable": False, "why": str(error)}


def _jobs(database: sqlite3.Connection) -> dict[str, Any]:
    rows = database.execute("SELECT kind, given_up, attempts, error FROM jobs").fetchall()
    return {
        "pending": _grouped((kind, "") for kind, lost, _, _ in rows if not lost),
        "failing": _grouped((kind, error) for kind, lost, attempts, error in rows if not lost and attempts),
        "given_up": _grouped((kind, error) for kind, lost, _, error in rows if lost),
    }


def _stages(database: sqlite3.Connection) -> dict[str, Any]:
    return {"stages": dict(database.execute("SELECT stage, count(*) FROM queries GROUP BY stage").fetchall())}


def _turns(database: sqlite3.Connection) -> dict[str, Any]:
    return {"turns": database.execute("SELECT count(*) FROM turns").fetchone()[0]}


def _grouped(jobs: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    counted = Counter((KINDS.get(kind, kind), error) for kind, error in jobs)
    return [{"kind": kind, "times": times, "error": error} for (kind, error), times in counted.most_common()]


def _in_words(groups: list[dict[str, Any]], *, why: bool = False) -> str:
    """`3 critiques (TimeoutError at …), 1 entry`."""
    parts = []
    for each in groups[:5]:
        name = each["kind"] if each["times"] == 1 else _MANY.get(each["kind"], each["kind"])
        parts.append(f"{each['times']:,} {name}" + (f" ({each['error']})" if why and each["error"] else ""))
    if len(groups) > 5:
        parts.append(f"and {sum(each['times'] for each in groups[5:]):,} more")
    return ", ".join(parts)
