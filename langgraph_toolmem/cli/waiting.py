"""What lies beside the graph in a memory folder: entries, verdicts and critiques still to be written, a cold start
under way, recorded decisions.

Looking changes nothing; `retry` has what was given up tried again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.stores.database import held_in
from langgraph_toolmem.stores.database import look as ask

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


_ASKED: Final = {
    "reflections": "SELECT kind, given_up, attempts, error FROM jobs",
    "bootstrap": "SELECT stage, count(*) FROM queries GROUP BY stage",
    "decisions": "SELECT count(*) FROM turns",
}
"""What is asked of the database, by part of what is told."""


def look(folder: Path) -> dict[str, Any]:
    """What waits in a folder.

    Returns:
        ``reflections``, ``bootstrap`` and ``decisions``, each None if there is nothing of the kind, else a dict with
        ``file``, ``bytes``, ``readable`` and ``why``. The first also has ``pending``, ``failing`` and ``given_up``,
        lists of ``{"kind", "times", "error"}``; failing ones are pending too. The second has the number of requests by
        ``stages``, the third that of ``turns``.
    """
    return {name: _part(folder, name) for name in _ASKED}


def judge(folder: Path, found: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Problems and notes, one sentence each, with what to do."""
    notes: list[str] = []
    parts = [found[name] for name in _ASKED if found[name] is not None]
    problems = list(dict.fromkeys(part["why"] for part in parts if not part["readable"]))
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
        kept = f"{decisions['turns']:,} decisions are kept with their prompts in {decisions['file']}"
        notes.append(f"{kept}, for toolmem export --sft")
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


def _part(folder: Path, name: str) -> dict[str, Any] | None:
    path = held_in(folder)
    if path is None:
        return None
    report: dict[str, Any] = {"file": path.name, "bytes": path.stat().st_size, "readable": True, "why": ""}
    try:
        rows = ask(path, _ASKED[name])
    except StorageError as error:
        return report | {"readable": False, "why": str(error)}
    if rows is None:
        return None
    if name == "bootstrap":
        return report | {"stages": dict(rows)}
    if name == "decisions":
        return report | {"turns": rows[0][0]}
    waits, lost = ([row for row in rows if bool(row[1]) is given_up] for given_up in (False, True))
    return report | {
        "pending": _grouped((kind, "") for kind, *_ in waits),
        "failing": _grouped((kind, error) for kind, _, attempts, error in waits if attempts),
        "given_up": _grouped((kind, error) for kind, _, _, error in lost),
    }


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
