"""The contract of a method: alone in a memory, beside others, broken, forgotten, closed, only looking, left out."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, ClassVar

import pytest
from plugs import APART, KINDS, NOW, files, make, memory_of, rows, run_of, work

from langgraph_toolmem import StorageError, ToolMemory, default_methods
from langgraph_toolmem.core.jobs import Jobs
from langgraph_toolmem.core.rows import Rows
from langgraph_toolmem.extend import Method, Section
from langgraph_toolmem.stores.chroma import ChromaAccess

EVENTS = ("turn", "ended", "judged", "imported", "report", "forget", "close")
"""What every method is told of in `live`."""
QUIET = ("ended", "judged", "report")
"""What may fail in a method without stopping anybody."""
WITH_TABLES = {"inertia", "sit", "navigator"}
WITH_ROWS = {"navigator", "entries", "atoms", "lessons"}
each_method = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
each_way = pytest.mark.parametrize("way", ["sync", "async"])


async def live(memory: ToolMemory, way: str = "sync", *, until: str = "aclose") -> list[Any]:
    """All that happens to a memory, and what it says to it."""

    async def told(name: str, *args: Any, **options: Any) -> Any:
        return (
            getattr(memory, name)(*args, **options)
            if way == "sync"
            else await getattr(memory, f"a{name}")(*args, **options)
        )

    async def report() -> dict[str, Any]:
        memory.flush()
        return without_cpu((await told("report")).to_dict())

    bad: dict[str, Any] = {"success": False, "comment": "Not this one.", "thread_id": "b"}
    imported = [(memory.core.read(run_of(number), f"i-{number}"), 1.0, "ann") for number in (7, 8)]
    found = [
        await told("observe", run_of(0)[:-1], thread_id="a", user_id="ann"),
        await told("finish", run_of(0), thread_id="a", success=True, user_id="ann"),
        await told("finish", run_of(1), user_id="bob", wait=True, **bad),
        await told("feedback", "a", score=0.0, comment="It was late.", user_id="ann", wait=True),
        await told("import_runs", imported),
        await report(),
        await told("import_runs", imported),
        await told("flush"),
        await report(),
        await told("view"),
        await told("forget", user_id="ann"),
        await report(),
    ]
    if until == "aclose":
        found.append(await told("close"))
    return found


def without_cpu(report: dict[str, Any]) -> dict[str, Any]:
    """Leave out the processor time, which no two runs share."""
    return {name: figure for name, figure in report.items() if not name.startswith("cpu_seconds")}


def test_every_built_in_method_is_among_them() -> None:
    assert {type(each) for each in default_methods()} < set(KINDS)


# --- alone ---


@each_method
@pytest.mark.slow
async def test_a_method_alone_takes_all_that_happens_and_its_async_twins_the_same(
    kind: type[Method], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "langgraph_toolmem")
    sync = await live(memory_of(tmp_path / "sync", make(kind)), "sync")
    aside = await live(memory_of(tmp_path / "async", make(kind)), "async")
    assert sync == aside
    seen, new, _, _, kept, once, _, flushed, twice, *_ = sync
    assert (seen, new, flushed) == (3, 1, True)
    assert kept.keys() == {kind.name}
    assert twice == once
    assert not [each.getMessage() for each in caplog.records if "user id" not in each.getMessage()]


@each_method
def test_its_report_is_a_section_of_plain_figures(kind: type[Method]) -> None:
    with memory_of(None, make(kind)) as memory:
        work(memory)
        section, report = memory.method(kind.name).report(), memory.report()
        assert json.loads(json.dumps(report.to_dict()))["sections"].keys() == report.sections.keys() <= {kind.name}
        if section is None:
            assert report[kind.name] == {}
            return
        assert isinstance(section, Section)
        assert section.title
        assert section.figures.keys() == report.to_dict()["sections"][kind.name].keys()
        assert all(sentence in str(report) for sentence in section.sentences)
        for table in section.tables:
            assert all(len(row) == len(table.columns) and {type(cell) for cell in row} == {str} for row in table.rows)


# --- beside others ---


class Told:
    """Notes what it is told, in the order in which all are."""

    name: ClassVar[str]
    said: list[tuple[str, str]]


def _noting(event: str) -> Any:
    def told(self: Any, *args: Any) -> Any:
        self.said.append((event, self.name))
        return getattr(super(Told, self), event)(*args)

    return told


for _event in EVENTS:
    setattr(Told, _event, _noting(_event))


class First(Method):
    name: ClassVar[str] = "first"


class Last(Method):
    name: ClassVar[str] = "last"


def noting(kind: Any, said: list[tuple[str, str]]) -> Any:
    made = type(f"Told{kind.__name__}", (Told, kind), {}) if kind in (First, Last) else None
    method = make(kind, Told) if made is None else made()
    method.said = said
    return method


@pytest.mark.parametrize("way_round", [1, -1])
async def test_methods_are_told_in_the_order_of_the_list(way_round: int, tmp_path: Path) -> None:
    said: list[tuple[str, str]] = []
    kinds = [First, *KINDS, Last][::way_round]
    await live(memory_of(tmp_path / "memory", *(noting(each, said) for each in kinds)))
    events = [event for event, _ in said]
    assert set(events) == set(EVENTS)
    names = [each.name for each in kinds]
    assert [name for _, name in said] == names * (len(said) // len(kinds))
    assert all(len(set(events[at : at + len(kinds)])) == 1 for at in range(0, len(events), len(kinds)))


class Broken:
    """Fails in whatever may fail."""

    failures: int = 0


def _failing(event: str) -> Any:
    def fail(self: Any, *args: Any) -> Any:
        self.failures += 1
        raise RuntimeError(f"{event} is broken")

    return fail


for _event in QUIET:
    setattr(Broken, _event, _failing(_event))


@each_method
@each_way
async def test_what_fails_in_a_method_stops_neither_the_memory_nor_the_others(
    kind: type[Method], way: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said: list[tuple[str, str]] = []
    alone: list[tuple[str, str]] = []
    whole = await live(memory_of(tmp_path / "whole", noting(First, alone), noting(Last, alone)), way)
    caplog.clear()
    broken = make(kind, Broken)
    found = await live(memory_of(tmp_path / "broken", noting(First, said), broken, noting(Last, said)), way)
    assert said == alone
    assert found[:4] == whole[:4]
    assert found[5]["sections"] == found[8]["sections"] == found[11]["sections"] == {}
    assert broken.failures == sum(event in QUIET and name == "first" for event, name in said)
    warned = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    told = sorted(each.partition(" at ")[0] for each in warned if kind.name in each and "RuntimeError" in each)
    assert told == [f"{kind.name} could not {what}: RuntimeError" for what in ("report", "take in a run")]


@each_method
def test_one_that_cannot_forget_or_close_keeps_no_other_from_it(kind: type[Method], tmp_path: Path) -> None:
    class Stuck(Method):
        name: ClassVar[str] = "stuck"

        def forget(self, *_: Any) -> int:
            raise RuntimeError("no")

        def close(self) -> None:
            raise RuntimeError("no")

    memory = memory_of(tmp_path / "memory", Stuck(), make(kind), namespace=APART)
    work(memory, user="ann", word="zanzibar")
    before = rows(memory, "ann")
    with pytest.raises(RuntimeError, match="no"):
        memory.forget(user_id="ann")
    assert (rows(memory, "ann"), bool(before)) == ({}, kind.name in WITH_ROWS)
    memory.close()
    assert not any(b"zanzibar" in content for content in files(tmp_path / "memory").values())


# --- left out ---

CORE_TABLES = {"ledger", "episodes", "holdout", "trials"}


@each_method
def test_a_memory_without_it_has_nothing_of_it(kind: type[Method], tmp_path: Path) -> None:
    with memory_of(tmp_path / "alone", make(kind)) as memory:
        work(memory)
        tables, kept = (
            set(memory.core.graph.to_state()["tables"]) - CORE_TABLES,
            set(rows(memory)),
        )
    with memory_of(tmp_path / "others", *(make(each) for each in KINDS if each is not kind)) as memory:
        work(memory)
        assert not tables & set(memory.core.graph.to_state()["tables"])
        assert not kept & set(rows(memory))
    assert bool(tables) == (kind.name in WITH_TABLES)
    assert bool(kept) == (kind.name in WITH_ROWS)


def test_a_memory_without_methods_has_its_graph_and_no_other_file(tmp_path: Path) -> None:
    with memory_of(tmp_path / "memory") as memory:
        work(memory, user="ann")
        memory.forget(user_id="ann")
        assert memory.core.graph.to_state()["tables"].keys() == CORE_TABLES
    assert files(tmp_path / "memory").keys() == {"graph.pickle", "memory.db"}


# --- forgotten ---


@each_method
@pytest.mark.parametrize("namespace", [APART, ("toolmem",)], ids=["apart", "shared"])
@pytest.mark.slow
def test_forget_removes_what_it_kept_of_a_user_and_nothing_of_another(
    kind: type[Method], namespace: tuple[str, ...], tmp_path: Path
) -> None:
    keeps = kind.name in WITH_ROWS
    with memory_of(tmp_path / "both", make(kind), namespace=namespace) as memory:
        work(memory, user="ann", word="zanzibar")
        work(memory, user="bob", word="quixotic", first=20)
        anns = (str(memory.core.users.of("ann").digest), memory.core.read([], "ann-d").digest)
        before = marked(rows(memory, "bob"), anns)
        assert bool(marked(rows(memory, "ann"), anns)[True]) == bool(before[False]) == keeps
        assert memory.forget(user_id="ann")
        after = marked(rows(memory, "bob"), anns)
        assert not after[True]
        assert not marked(rows(memory, "ann"), anns)[True]
        assert before[False].items() <= after[False].items()
        assert memory.forget(user_id="ann") == 0
    words = [
        word for word in (b"zanzibar", b"quixotic") if any(word in each for each in files(tmp_path / "both").values())
    ]
    assert words == [b"quixotic"]


def marked(kept: dict[str, Any], marks: tuple[str, ...]) -> dict[bool, dict[tuple[str, str], Any]]:
    """The rows that have a mark in them, and the others."""
    found: dict[bool, dict[tuple[str, str], Any]] = {True: {}, False: {}}
    for kind, each in ((kind, each) for kind, held in kept.items() for each in held.items()):
        found[any(mark in str(each) for mark in marks)][kind, each[0]] = each[1]
    return found


# --- closed, and only looking ---


@each_method
@each_way
async def test_a_closed_memory_learns_nothing_and_writes_nothing(kind: type[Method], way: str, tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    memory = memory_of(folder, make(kind))
    work(memory)
    memory.close()
    before = files(folder)
    turns = memory.report().turns
    for number in (30, 31):
        how: dict[str, Any] = {"thread_id": f"late-{number}", "success": number == 30, "comment": "late"}
        assert (
            memory.finish(run_of(number), **how) if way == "sync" else await memory.afinish(run_of(number), **how)
        ) == 0
    with pytest.raises(StorageError, match="closed"):
        memory.feedback("late-30", score=0.0, comment="late")
    assert memory.report().turns == turns
    assert memory.flush() == memory.core.jobs.queue.empty
    memory.close()
    assert files(folder) == before


def beside_chroma(folder: Path) -> dict[str, bytes]:
    """Chroma counts in its file how often it was opened, SQLite makes files to read; `rows` sees what is in them."""
    return {
        name: content
        for name, content in files(folder).items()
        if not name.startswith("chroma") and not name.endswith(("-shm", "-wal"))
    }


@each_method
async def test_a_read_only_memory_looks_and_keeps_nothing(kind: type[Method], tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    with memory_of(folder, make(kind)) as memory:
        work(memory, user="ann")
        kept = rows(memory)
        before_runs = memory.report().runs_judged
    before = beside_chroma(folder)
    with memory_of(folder, make(kind), read_only=True) as looking:
        assert looking.report().runs_judged == before_runs
        assert rows(looking) == kept
        looking.finish(run_of(40), thread_id="new", success=False, comment="zanzibar", user_id="ann")
        with pytest.raises(StorageError):
            looking.forget(user_id="ann")
        assert rows(looking) == kept
        assert beside_chroma(folder) == before
        looking.feedback("ann-1", score=0.0, comment="left in the queue", user_id="ann")
    assert {name for name, content in beside_chroma(folder).items() if before.get(name) != content} == {"memory.db"}
    with memory_of(folder, make(kind), now=lambda: NOW + 1) as memory:
        run = memory.core.read(run_of(1), "ann-1").digest
        assert memory.flush()
        assert memory.core.graph.score(run) == 0.0


def test_a_shortcut_decision_touches_neither_chroma_nor_any_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = [make(kind) for kind in KINDS]
    with memory_of(tmp_path / "memory", *everything) as memory:
        work(memory)
    with memory_of(tmp_path / "memory", *[make(kind) for kind in KINDS]) as memory:
        begun = run_of(0)[:-1]
        with monkeypatch.context() as patch:
            for owner, name in ((ChromaAccess, "opened"), (Rows, "_space"), (Jobs, "settle")):
                patch.setattr(owner, name, lambda *_, **__: pytest.fail("it was asked"))
            assert all(memory.inertia.explain(begun[:upto]).options for upto in (1, 3))  # it weighed what it knows
