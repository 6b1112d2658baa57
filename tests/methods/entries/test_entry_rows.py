"""Entries as rows: how reports of one run join, verdicts and critiques, when an entry is retired, who leaves first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from kept import give_records
from langchain_core.embeddings import Embeddings

from langgraph_toolmem import Entries, ToolMemory
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.core.ledger import ItemStats
from langgraph_toolmem.core.rows import Rows
from langgraph_toolmem.core.users import User
from langgraph_toolmem.entries.entry import JUDGED, UNJUDGED, Entry, EntryCall, EntryKind, entry_id, hurts

ME = User(None, None, ("toolmem",))


class Axes(Embeddings):
    """How often each of a few letters occurs, so that cosines can be worked out by hand."""

    model = "abcd"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.asked += texts
        return [[text.count(letter) or 1e-9 for letter in self.model] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


def entry(name: str, query: str = "find ann", **fields: Any) -> Entry:
    run = digest("run", name)
    fields.setdefault("calls", (EntryCall("find", {"name": name}, "ok", "7"),))
    return Entry(entry_id(run), run, query, **fields)


def ids(*names: str) -> set[str]:
    return {entry(name).id for name in names}


@pytest.fixture
def memory() -> Iterator[ToolMemory]:
    with ToolMemory.ephemeral(methods=[Entries()]) as made:
        yield made


@pytest.fixture
def rows(memory: ToolMemory) -> Rows[Entry]:
    return memory.entries.rows


@pytest.fixture
def credit(memory: ToolMemory) -> Callable[..., None]:
    return lambda key, **counts: give_records(memory, "entries", {key: ItemStats(**counts)})


def test_the_same_run_again_changes_nothing_and_embeds_nothing() -> None:
    embeddings = Axes()
    with ToolMemory.ephemeral(methods=[Entries()], embeddings=embeddings) as memory:
        rows, first = memory.entries.rows, entry("1", "ab", time=5.0)
        rows.put([first], ME)
        version = rows.written(ME)
        embeddings.asked.clear()
        assert rows.put([replace(first, time=9.0)], ME) == [first]
        assert rows.put([first, first], ME) == [first, first]
        assert (rows.written(ME), rows.count(ME)) == (version, 1)
        [judged] = rows.put([replace(first, score=0.0, comment="no")], ME)
        assert judged is not None
        assert judged.failed
        assert embeddings.asked == []  # a verdict changes no text
        assert [near.id for near in rows.near([1.0, 1.0, 0.0, 0.0], ME, part=JUDGED)] == [first.id]
        assert rows.near([1.0, 1.0, 0.0, 0.0], ME, part=UNJUDGED) == []
        assert rows.put([replace(first, query="cd")], ME) == [replace(judged, query="cd")]
        assert embeddings.asked == ["cd"]
        [near] = rows.near("d", ME, part=JUDGED)
        assert near.similarity == pytest.approx(0.5**0.5, abs=1e-5)


def test_a_run_of_another_user_is_not_overwritten(rows: Rows[Entry], caplog: pytest.LogCaptureFixture) -> None:
    mine = entry("1", user="u", score=1.0)
    rows.put([mine], ME)
    assert rows.put([replace(mine, user="v", score=0.0)], ME) == [None]
    assert list(rows.all(ME)) == [mine]
    assert "two users" in caplog.text


@pytest.mark.parametrize(
    ("helped", "hurt", "usual", "retired"),
    [
        (0, 0, 0.5, False),
        (0, 5, 0.1, False),  # 2.24 deviations
        (0, 6, 0.1, True),  # 2.45
        (1, 7, 0.1, False),  # 2.12
        (1, 8, 0.1, True),  # 2.33
        (0, 21, 0.8, False),  # where nearly all fail: 2.29
        (0, 22, 0.8, True),  # 2.35
        (0, 99, 1.0, False),  # all fail
        (50, 50, 0.5, False),
        (5000, 10000, 0.5, True),
    ],
)
def test_when_an_entry_hurts(helped: int, hurt: int, usual: float, retired: bool) -> None:
    assert hurts(helped, hurt, usual) == retired


def test_an_entry_that_hurts_is_retired_and_stays_so(rows: Rows[Entry], credit: Callable[..., None]) -> None:
    bad, good = entry("1", score=1.0), entry("2", score=1.0)
    rows.put([bad, good], ME)
    credit(good.id, helped=20)
    for _ in range(6):
        assert bad.id in {each.id for each in rows.all(ME)}
        credit(bad.id, shown=1, hurt=1)
    assert (
        {each.id for each in rows.all(ME)} == {near.id for near in rows.near("find ann", ME, part=JUDGED)} == ids("2")
    )
    assert {each.id for each in rows.all(ME, retired=True)} == ids("1", "2")
    rows.put([bad], ME)
    [kept] = rows.get([bad.id], ME)
    assert (kept.retired, kept.recalled, kept.hurt) == (True, 6, 6)


def test_the_least_useful_go_when_there_is_no_room(
    rows: Rows[Entry], credit: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EntryKind, "most", 4)
    rows.put([entry("judged", score=0.0, time=1), entry("old", time=2), entry("useful", time=3)], ME)
    credit(entry("useful").id, shown=3, helped=3)
    rows.put([entry("hurting", time=4, score=1.0)], ME)
    credit(entry("hurting").id, hurt=6)
    rows.put([entry("new", time=5)], ME)
    assert {each.id for each in rows.all(ME, retired=True)} == ids("judged", "old", "useful", "new")
    rows.put([entry("newer", time=6)], ME)
    assert {each.id for each in rows.all(ME)} == ids("judged", "useful", "new", "newer")
