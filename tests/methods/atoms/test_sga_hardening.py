"""Atoms under hard conditions: what cannot be stored, what others write or delete meanwhile, what is looked at only."""

from __future__ import annotations

import itertools
import json
import random
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import chromadb
import histories as h
import numpy as np
import pytest
from chromadb.config import Settings
from langgraph_toolmem.atoms.postings import Postings
from langgraph_toolmem.atoms.store import AtomStore
from langgraph_toolmem.atoms.store_rows import AtomRow, AtomRows
from test_sga_library import Clock, Letters, atom, support
from test_sga_memory import TOOLS, found, order, refund

from langgraph_toolmem import Atoms, ConfigurationError, ToolMemory, default_methods
from langgraph_toolmem.atoms import bags, postings, store_rows, term_numbers, texts
from langgraph_toolmem.atoms.atoms import MAX_SOURCES, Wording
from langgraph_toolmem.atoms.support import MAX_DEPTH, from_text
from langgraph_toolmem.atoms.texts import TextRows
from langgraph_toolmem.search.embedders import resolve_embedder
from langgraph_toolmem.stores.vectors import VectorStore
from langgraph_toolmem.words import split, wording
from langgraph_toolmem.words.values import RANKED, values_in

NAMESPACE = ("toolmem",)


@pytest.fixture(params=[None, Letters()], ids=["builtin", "dense"])
def vectors(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[VectorStore]:
    with VectorStore(tmp_path, embedder=resolve_embedder(request.param), namespace=NAMESPACE) as opened:
        yield opened


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


# --- what is handed over ---

GARBAGE: dict[str, Any] = {
    "NaN": {"value": float("nan")},
    "value above 1": {"value": 7.0},
    "no visits": {"visits": 0},
    "visits below 0": {"visits": -5},
    "visits in words": {"visits": "many"},
    "origin": {"origin": "elsewhere"},
    "bytes": {"arguments": {"a": b"x"}},
    "a set": {"arguments": {"a": {1}}},
    "an object": {"arguments": {"a": object()}},
    "deep": {"arguments": {"a": nested(MAX_DEPTH)}},
    "very deep": {"arguments": {"a": nested(20_000)}},
    "a number for a tool": {"tool": 3},
    "numbers for sources": {"sources": (3,)},
}


@pytest.mark.parametrize("wrong", GARBAGE.values(), ids=GARBAGE.keys())
def test_what_is_no_atom_is_refused_and_nothing_is_kept(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with ToolMemory(tmp_path) as memory:
        with pytest.raises(ConfigurationError, match="Atom 2 cannot be kept"):
            memory.atoms.keep([refund(), replace(refund(), **wrong)])
        assert memory.atoms.search("refund the order") == []


def test_something_else_than_atoms_is_refused() -> None:
    with ToolMemory.ephemeral() as memory, pytest.raises(ConfigurationError, match="not int"):
        memory.atoms.keep(3)  # type: ignore[arg-type]


ODD: dict[str, Any] = {
    "half a pair in an argument": {"arguments": {"mode": "\ud83d"}},
    "half a pair in a name": {"arguments": {"\ud83d": "x"}},
    "half a pair in the tool": {"tool": "re\ud83dfund"},
    "half a pair in a slot": {"required_slots": ["A\ud83d"]},
    "half a pair in a source": {"sources": ["\ud83d"]},
    "NUL": {"tool": "re\0fund", "goal": "refund\0order", "arguments": {"a\0": "b\0"}},
    "numbers as names": {"arguments": {1: 2}},
    "NaN in an argument": {"arguments": {"a": float("nan")}},
    "many slots": {"required_slots": [f"S{number}" for number in range(10_000)]},
    "long texts": {"goal": "refund " * 50_000, "about": "x" * 100_000, "tool": "t" * 10_000},
    "deep": {"arguments": {"a": nested(MAX_DEPTH - 2)}},
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_odd_atoms_are_found_now_and_after_a_restart(tmp_path: Path, odd: dict[str, Any]) -> None:
    with ToolMemory(tmp_path) as memory:
        assert memory.atoms.keep([refund(**odd)]) == 1
        (before,) = memory.atoms.search("refund the order")
    with ToolMemory(tmp_path) as memory:
        (after,) = memory.atoms.search("refund the order")
        assert (after.atom.id, repr(after.atom)) == (before.atom.id, repr(before.atom))


def test_an_id_is_what_the_call_and_its_needs_say(tmp_path: Path) -> None:
    changed = replace(refund(), id="feedfeedfeedfeed", wordings=(Wording("s", "refund \ud83d it", 1),))
    with ToolMemory(tmp_path) as memory:
        memory.atoms.keep([changed])
        assert [hit.atom.id for hit in memory.atoms.search("refund it")] == [refund().id]


def test_a_call_with_half_a_pair_leaves_its_atom(tmp_path: Path) -> None:
    run = h.history(h.user("greet them"), h.call("greet", {"sign": "\ud83d"}), h.words())
    with ToolMemory(tmp_path, methods=default_methods(Atoms(keep=True))) as memory:
        memory.finish(run, thread_id="1", success=True)
        assert [hit.tool for hit in memory.atoms.search("greet them")] == ["greet"]


def test_a_search_that_grew_takes_its_place_though_its_first_tasks_are_named_only(tmp_path: Path) -> None:
    late = [f"t{number:02}" for number in range(50, 50 + MAX_SOURCES)]
    every = [f"t{number:02}" for number in range(50 + MAX_SOURCES)]
    with ToolMemory(tmp_path) as memory:
        memory.atoms.keep([refund(sources=late, visits=8, origin="search")])
        memory.atoms.keep([refund(sources=every, visits=58, origin="search")])
        assert [hit.atom.visits for hit in memory.atoms.search("refund the order")] == [58]
        others = [f"u{number}" for number in range(MAX_SOURCES)]
        memory.atoms.keep([refund(sources=others, visits=8, origin="search")])
        assert [hit.atom.visits for hit in memory.atoms.search("refund the order")] == [66]


# --- verdicts, and memories that only look ---


def test_a_memory_that_keeps_no_atoms_judges_those_that_are_there(tmp_path: Path) -> None:
    with ToolMemory(tmp_path, tools=TOOLS, methods=default_methods(Atoms(keep=True))) as memory:
        memory.finish(order(), thread_id="1", success=True, wait=True)
    with ToolMemory(tmp_path, tools=TOOLS, methods=default_methods(Atoms(keep=False))) as memory:
        memory.finish(order(18), thread_id="2", success=True)
        assert [hit.atom.visits for hit in found(memory)] == [1, 1]
        memory.finish(order(), thread_id="1", success=False)
        assert found(memory) == []
        memory.finish(order(), thread_id="1", success=True)
        assert [hit.atom.visits for hit in found(memory)] == [1, 1]


def test_who_only_looks_sees_what_is_written_later(tmp_path: Path) -> None:
    time = [1000.0]
    with ToolMemory(tmp_path, tools=TOOLS, methods=default_methods(Atoms(keep=True))) as memory:
        memory.finish(order(), thread_id="1", success=True, wait=True)
        with ToolMemory(tmp_path, tools=TOOLS, read_only=True, now=lambda: time[0]) as looking:
            assert len(found(looking)) == 2
            memory.atoms.keep([refund(goal="find order <ID>")])
            memory.feedback("1", score=0.0, wait=True)
            time[0] += 60
            assert [hit.tool for hit in found(looking)] == ["refund"]


# --- what others do meanwhile ---


def test_what_is_deleted_while_all_is_read_hides_nothing_else(
    vectors: VectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = AtomRows(vectors)
    AtomStore(vectors, now=Clock()).put([support(atom(tool=f"tool_{number}")) for number in range(8)])
    ids = rows.ids()
    monkeypatch.setattr(store_rows, "PAGE", 2)
    read = rows.read()
    first = next(read)
    assert isinstance(first, AtomRow)
    rows.remove(ids[:2])
    assert [row.id for row in read if isinstance(row, AtomRow)][-6:] == ids[2:]


def test_a_support_that_another_process_wrote_over_comes_back(
    vectors: VectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (AtomStore(vectors.scoped(NAMESPACE), now=Clock(), refresh=0.0) for _ in range(2))
    one.put([support(run="a")])
    mine, theirs = support(run="mine"), support(run="theirs")
    amend = AtomRows.amend

    def between(self: AtomRows, rows: Any) -> None:
        monkeypatch.setattr(AtomRows, "amend", amend)
        two.put([theirs])
        amend(self, rows)

    monkeypatch.setattr(AtomRows, "amend", between)
    one.put([mine])
    assert {each.run for each in one.supports(atom().id)} == {"a", "mine"}
    one.judge("a", 0.0)
    assert two.put([theirs, support(run="a")], missing=True) == 1
    assert two.put([theirs, support(run="a")], missing=True) == 0
    assert {each.run: each.score for each in one.supports(atom().id)} == {"a": 0.0, "mine": 1.0, "theirs": 1.0}


def test_on_a_shared_chroma_what_was_written_is_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("langgraph_toolmem.atoms.keeping.CHECK_SECONDS", 0.5)
    client = chromadb.EphemeralClient(settings=Settings(anonymized_telemetry=False))
    namespace = (f"toolmem-{uuid.uuid4().hex}",)
    with ToolMemory(
        tmp_path, tools=TOOLS, methods=default_methods(Atoms(keep=True)), chroma=client, namespace=namespace
    ) as memory:
        memory.finish(order(), thread_id="1", success=True)
        assert len(found(memory)) == 2
        rows = AtomRows(memory.core.vectors.scoped(namespace))
        rows.remove(rows.ids())  # as if another process had written over it
        assert memory.flush()
        read = [row for row in rows.read() if isinstance(row, AtomRow)]
        assert [len(from_text(row.id, row.rest)) for row in read] == [1, 1]
        memory.core.vectors.scoped(namespace).drop()


def test_closing_interrupts_neither_writing_nor_who_waits_for_an_answer(
    vectors: VectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    AtomStore(vectors.scoped(NAMESPACE), now=Clock()).put([support(), support(atom("x", "other"))])
    store = AtomStore(vectors.scoped(NAMESPACE), now=Clock())
    read = AtomRows.read
    closing: list[threading.Thread] = []

    def closed_meanwhile(*args: Any, **more: Any) -> Any:
        for row in read(*args, **more):
            if not closing:
                closing.append(threading.Thread(target=store.close))
                closing[0].start()
                while not store.closing:
                    closing[0].join(0.01)
            yield row

    monkeypatch.setattr(AtomRows, "read", closed_meanwhile)
    assert len(store.all()) == 2
    closing.pop().join(20)
    amend = AtomRows.amend

    def closed_while_written(self: AtomRows, rows: Any) -> None:
        if not closing:
            closing.append(threading.Thread(target=store.close))
            closing[0].start()
            while not store.closing:
                closing[0].join(0.01)
        amend(self, rows)

    monkeypatch.setattr(AtomRows, "amend", closed_while_written)
    assert store.put([support(run="b")]) == 0
    closing.pop().join(20)
    assert [each.run for each in store.supports(atom().id)] == ["run1", "b"]


# --- the index of words ---


def test_the_index_is_the_same_in_whatever_portions_it_grew(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(5)
    vocabulary = ["".join(letters) for letters in itertools.product("bdfgk", "aeiou", "lmnprt", "o")]
    vocabulary += ["the", "please"]
    states = [" ".join(draw.choices(vocabulary, k=6)) for _ in range(40)]
    said = [
        (draw.choice(states), " ".join(draw.choices(vocabulary, k=9)), " ".join(draw.choices(vocabulary[:9], k=3)))
        for _ in range(600)
    ]
    gone = draw.sample(range(600), 150)
    asked = [(draw.choice(states), [draw.choice(said)[1] + " zorblax", draw.choice(said)[1]]) for _ in range(20)]
    monkeypatch.setattr(texts, "LONGLIST", 50)
    whole = TextRows()
    for row in said:
        whole.add(*row)
    for number in gone:
        whole.remove(number)
    answers = [whole.near(*each) for each in asked]
    for module, name, value in (
        (bags, "MOST_WAITING", 40),
        (bags, "CHUNK", 7),
        (postings, "WAITING", 50),
        (postings, "SEGMENT", 2_000),
        (term_numbers, "MERGED", 100),
    ):
        monkeypatch.setattr(module, name, value)
    segments: list[int] = []
    sort = Postings.sort

    def noted(posts: Postings) -> None:
        sort(posts)
        segments.append(len(posts.segments))

    monkeypatch.setattr(Postings, "sort", noted)
    bit_by_bit = TextRows()
    for number, row in enumerate(said):
        assert bit_by_bit.add(*row) == number
        if number % 37 == 0:
            bit_by_bit.near(row[0], [row[1]])
        if number % 41 == 0:
            bit_by_bit.settle()
        if number - 10 in gone:
            bit_by_bit.remove(number - 10)
    for number in gone:
        bit_by_bit.remove(number)
    assert len(bit_by_bit) == len(whole) == 450
    assert max(segments) > 1
    for one, each in zip(answers, asked, strict=True):
        other = bit_by_bit.near(*each)
        assert one.rows.tolist() == other.rows.tolist()
        assert one.cosines.tolist() == other.cosines.tolist()
        assert len(one.rows) == 50
        assert not set(one.rows.tolist()) & set(gone)

    monkeypatch.setattr(texts, "LONGLIST", 600)
    left = [number for number in range(600) if number not in gone]
    fresh = TextRows()
    for number in left:
        fresh.add(*said[number])
    for each in asked:
        one, other = fresh.near(*each), bit_by_bit.near(*each)
        assert other.rows.tolist() == left
        assert other.cosines.tolist() == pytest.approx(one.cosines.tolist(), abs=1e-12)


def test_sums_are_the_same_to_the_last_digit_in_whatever_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(7)
    posts = Postings()
    for _ in range(40):
        rows = [draw.permutation(30)[: draw.integers(1, 12)].astype(np.int32) for _ in range(10)]
        posts.add(np.concatenate(rows), np.array([len(row) for row in rows], dtype=np.int64))
    terms, weights = np.arange(0, 30, 2, dtype=np.int32), draw.random(15)
    looked_through = posts.sums(terms, weights, 10**6)
    assert not posts.segments
    monkeypatch.setattr(postings, "WAITING", 0)
    assert posts.sums(terms, weights, 10**6).tolist() == looked_through.tolist()
    assert posts.segments
    owner, has = posts.entries(np.arange(len(posts)))
    by_hand = np.bincount(owner, np.where(has % 2 == 0, weights[has // 2], 0.0))
    assert looked_through.tolist() == pytest.approx(by_hand.tolist())
    # A term that has more entries than are left is passed over, the one that gives most never is.
    of_one = [int(each) for each in np.flatnonzero(posts.sums(terms, weights, 1))]
    assert of_one == sorted({int(row) for row, term in zip(owner, has, strict=True) if term == terms[weights.argmax()]})


def test_the_reading_does_what_the_first_search_would_have_to(
    vectors: VectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = AtomStore(vectors, now=Clock())
    store.put([support(atom(tool=f"tool{number}")) for number in range(5)])
    store.close()
    counted: list[str] = []
    count = bags.Bags.count

    def noted(self: bags.Bags, rows: int) -> None:
        counted.append(threading.current_thread().name)
        count(self, rows)

    monkeypatch.setattr(bags.Bags, "count", noted)
    while not store.loaded(5.0):
        pass
    assert set(counted) == {"toolmem-atoms"}
    before = len(counted)
    assert store.search("known: order id", ["cancel the order"], ())
    assert len(counted) == before


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ann@x.org", "EMAIL"),
        ("see http://x", "URL"),
        ("2024-01-02", "DATE"),
        ("March 3rd", "DATE"),
        ("on Sundays", "DAY"),
        ("at 9:30", "TIME"),
        ("5 pm", "TIME"),
        ("7 %", "PERCENT"),
        ("$12", "AMOUNT"),
        ("a1b", "ID"),
        ("#17", "NUMBER"),
    ],
)
def test_values_are_found_by_their_signs(text: str, kind: str) -> None:
    assert [value.kind for value in values_in(text, RANKED)] == [kind]


def test_stems_are_those_of_the_whole_text_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "getUserName(order_id) Creating HTTPServers, wie schön naïve 東京"
    assert wording.tokens(text) == [split.stem(word) for word in split.words(text)]
    assert wording.tokens("getUserName creating HTTPServers") == ["get", "user", "nam", "creat", "http", "server"]
    made: list[str] = []
    stem = split.stem
    monkeypatch.setattr(split, "stem", lambda word: made.append(word) or stem(word))
    wording.tokens("creating")
    assert made == []
    wording.forget()
    wording.tokens("creating")
    assert made == ["creating"]


def test_a_stored_atom_is_plain_json(tmp_path: Path) -> None:
    with ToolMemory(tmp_path) as memory:
        memory.atoms.keep([refund()])
        (row,) = AtomRows(memory.core.vectors.scoped(memory.core.users.namespace)).read()
        assert isinstance(row, AtomRow)
        assert json.loads(row.rest)["tool"] == "refund"
