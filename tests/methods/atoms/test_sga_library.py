"""Atoms in Chroma: what they stand on, how they are found, booked, retired and forgotten."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from langgraph_toolmem.atoms.library import AtomLibrary
from langgraph_toolmem.atoms.store import AtomStore
from langgraph_toolmem.atoms.store_rows import KIND, TEXTS, AtomRow, AtomRows

from langgraph_toolmem import ConfigurationError, StorageError
from langgraph_toolmem.atoms.atoms import Atom, make_atom, wordings_of
from langgraph_toolmem.atoms.record import FAILED_AFTER, AtomRecord
from langgraph_toolmem.atoms.support import MAX_SUPPORTS, Support, added, from_text, judged, to_text, total, without
from langgraph_toolmem.base.errors import EmbedderChangedError, InputError
from langgraph_toolmem.search.embedders import resolve_embedder
from langgraph_toolmem.stores.vectors import VectorStore

NAMESPACE = ("toolmem",)


class Letters(Embeddings):
    """How often each letter comes; another embedder with another name."""

    model = "letters"

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        low = text.lower()
        return [0.01 + low.count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"]


class Clock:
    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        self.time += 1
        return self.time


def atom(goal: str = "cancel the order", tool: str = "cancel_order", **more: Any) -> Atom:
    given: dict[str, Any] = {
        "state": "known: order id. done: nothing yet",
        "goal": goal,
        "tool": tool,
        "arguments": {"order_id": "<ORDER_ID>"},
        "required_slots": ["ORDER_ID"],
        "about": f"{tool.replace('_', ' ')}.",
    }
    return make_atom(**{**given, **more})


def support(
    part: Atom | None = None, run: str = "run1", score: float | None = 1.0, user: str = "", time: float = 0.0
) -> Support:
    return Support(part or atom(), run, user, score, time)


class Opened:
    """Makes stores of one folder, each as if by a new process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.vectors = VectorStore(None, embedder=resolve_embedder(None), namespace=NAMESPACE)

    def __call__(self, embeddings: Any = None, **options: Any) -> AtomStore:
        self.vectors.close()
        self.vectors = VectorStore(self.folder, embedder=resolve_embedder(embeddings), namespace=NAMESPACE)
        return AtomStore(self.vectors, now=Clock(), **options)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    made = Opened(tmp_path)
    yield made
    made.vectors.close()


def goals(store: AtomStore, goal: str = "cancel the order", **how: Any) -> list[str]:
    return [hit.atom.goal for hit in store.search("", [goal], ["ORDER_ID"], **how)]


# --- supports ---


def test_an_atom_is_the_sum_of_its_good_supports() -> None:
    bad, open_ = support(run="b", score=0.2), support(run="c", score=None)
    two = [support(run="a", score=1.0), support(atom("call it off"), run="d", score=0.5), bad, open_]
    whole = total(two)
    assert whole is not None
    assert (whole.visits, whole.value) == (2, 0.75)
    assert {wording.goal for wording in wordings_of(whole)} == {"cancel the order", "call it off"}
    assert total([bad, open_]) is None


def test_a_run_told_again_takes_the_place_of_what_it_gave_and_never_gives_less() -> None:
    once = added((), support(score=None))
    good = added(once, support(score=1.0))
    assert [each.score for each in good] == [1.0]
    assert added(good, support(score=None)) == good  # nobody's verdict takes none away
    assert added(good, support(score=1.0, time=9.0)) == good
    more = added(good, support(atom(visits=3)))
    assert [each.part.visits for each in more] == [3]
    assert added(more, support(atom(visits=2))) == more
    assert [each.user for each in added(good, support(user="ann"))] == ["ann"]
    assert len(added(added(good, support(user="ann")), support(user="bob"))) == 2


def test_what_a_search_hands_over_again_takes_the_place_of_what_it_handed_over() -> None:
    first = Support(atom(origin="search", sources=["t1"]), score=1.0)
    grown = Support(atom(origin="search", sources=["t1", "t2"], visits=2), score=1.0)
    other = Support(atom(origin="search", sources=["t9"]), score=1.0)
    assert added(added((), first), grown) == (grown,)
    assert added(added((), grown), other) == (grown, other)
    assert added(added((), grown), replace(grown, user="ann")) == (grown, replace(grown, user="ann"))
    assert total([grown, other]).visits == 3  # type: ignore[union-attr]


def test_supports_are_bounded_and_good_ones_stay() -> None:
    kept: tuple[Support, ...] = ()
    for number in range(MAX_SUPPORTS + 5):
        kept = added(kept, support(run=f"r{number}", score=None if number < 3 else 1.0, time=number))
    assert len(kept) == MAX_SUPPORTS
    assert {each.run for each in kept} == {f"r{number}" for number in range(5, MAX_SUPPORTS + 5)}


def test_supports_survive_being_written() -> None:
    both = (
        support(user="ann", score=0.75, time=3.5),
        Support(atom("x", origin="search", sources=["t"], produces=["A"])),
    )
    read = from_text(both[0].part.id, to_text(both))
    assert read == both


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"tool": "x"}'], ids=["empty", "list", "object", "half"])
def test_what_is_damaged_is_told(text: str) -> None:
    with pytest.raises(InputError):
        from_text("a", text)
    with pytest.raises(InputError, match="not ffff"):
        from_text("ffff", to_text([support()]))


def test_verdicts_and_leaving_touch_only_their_run() -> None:
    two = (support(run="a", user="ann"), support(run="b", user="bob"))
    assert [each.good for each in judged(two, "a", 0.0)] == [False, True]
    assert [each.good for each in judged(two, "a", 0.0, "bob")] == [True, True]
    assert [each.run for each in without(two, run="a")] == ["b"]
    assert [each.run for each in without(two, user="bob")] == ["a"]


# --- the store ---


@pytest.mark.parametrize("embeddings", [None, Letters()], ids=["builtin", "dense"])
def test_atoms_are_found_after_a_restart_with_all_they_are(opened: Opened, embeddings: Any) -> None:
    store = opened(embeddings)
    mail = atom("mail the receipt", "send_mail", arguments={"to": "<EMAIL>"}, required_slots=["EMAIL"])
    assert store.put([support(), support(atom("call the order off"), run="run2"), support(mail)]) == 2
    before = store.all()
    again = opened(embeddings)
    assert len(again) == 2
    assert again.all() == before
    (hit,) = again.search("known: order id. done: nothing yet", ["call the order off"], ["ORDER_ID"], k=1)
    assert hit.atom.tool == "cancel_order"
    assert hit.atom.visits == 2
    assert hit.similarity > 0.9
    assert {found.atom.tool for found in again.search("", ["mail"], ["EMAIL"])} == {"cancel_order", "send_mail"}


def test_runs_without_a_verdict_wait_and_a_verdict_decides(opened: Opened) -> None:
    store = opened()
    store.put([support(score=None)])
    assert goals(store) == []
    assert len(store) == 1
    assert store.judge("run1", 1.0) == 1
    assert goals(store) == ["cancel the order"]
    store = opened()
    assert goals(store) == ["cancel the order"]
    assert store.judge("run1", 0.0) == 1
    assert goals(store) == goals(opened()) == []
    assert store.judge("nobody", 1.0) == 0


def test_a_bad_run_takes_its_wording_back_and_leaves_that_of_others(opened: Opened) -> None:
    store = opened()
    store.put([support(atom("call it off", visits=2), run="a"), support(run="b")])
    assert goals(store) == ["call it off"]
    store.judge("a", 0.0)
    (left,) = store.all()
    assert [wording.goal for wording in wordings_of(left)] == ["cancel the order"]
    assert left.sources == ()
    assert opened().all() == [left]


def test_records_are_booked_written_and_retire_what_misleads(opened: Opened) -> None:
    store = opened(flush_every=3)
    store.put([support(), support(atom("cancel the order", "stop_order"), run="b")])
    key = atom().id
    store.credit(key, AtomRecord(2, 1, 0))
    store.credit(["unknown", key], AtomRecord(1, 1, 1))
    assert store.record(key) == AtomRecord(3, 2, 1)
    fresh = opened()
    assert fresh.record(key) == AtomRecord(3, 2, 1)
    fresh.credit(key, AtomRecord(0, 0, 0, 2 * FAILED_AFTER))
    assert {hit.tool for hit in fresh.search("", ["cancel the order"], ["ORDER_ID"])} == {"stop_order"}
    fresh.close()
    store = opened()
    assert store.record(key) == AtomRecord(3, 2, 1, 2 * FAILED_AFTER)
    store.put([support(run="new")])
    assert {hit.tool for hit in store.search("", ["cancel the order"], ["ORDER_ID"])} == {"stop_order"}


def test_what_is_booked_before_anything_is_read_is_written(opened: Opened) -> None:
    opened().put([support()])
    store = opened()
    store.credit(atom().id, AtomRecord(1, 1))
    assert store.in_ram == 0
    store.close()
    assert opened().record(atom().id) == AtomRecord(1, 1)


def test_records_decide_between_atoms_that_fit_alike(opened: Opened) -> None:
    store = opened()
    store.put([support(atom(tool="one_tool", about="")), support(atom(tool="two_tool", about=""))])
    first = [hit.tool for hit in store.search("", ["cancel the order"], ["ORDER_ID"])]
    worse = {hit.tool: hit.atom.id for hit in store.search("", ["cancel the order"], ["ORDER_ID"])}[first[0]]
    store.credit(worse, AtomRecord(15, 0, 0))
    assert [hit.tool for hit in store.search("", ["cancel the order"], ["ORDER_ID"])] == first[::-1]


def test_beyond_the_bound_those_leave_that_say_least(opened: Opened) -> None:
    store = opened(max_atoms=4)
    store.put([support(atom(f"do the thing {name}", f"tool_{name}")) for name in "abcd"])
    store.put([support(atom("do another", "tool_open"), score=None)])
    assert {each.tool for each in store.all()} == {"tool_a", "tool_b", "tool_c", "tool_d"}
    store.credit(atom(tool="tool_b").id, AtomRecord(60, 0, 0))
    store.put([support(atom("do one more", "tool_e"))])
    assert {each.tool for each in store.all()} == {"tool_a", "tool_c", "tool_d", "tool_e"}
    assert {each.tool for each in opened().all()} == {"tool_a", "tool_c", "tool_d", "tool_e"}


@pytest.mark.parametrize("embeddings", [None, Letters()], ids=["builtin", "dense"])
def test_forgetting_takes_a_user_out_of_merged_atoms_and_off_the_disk(
    opened: Opened, tmp_path: Path, embeddings: Any
) -> None:
    store = opened(embeddings)
    store.put(
        [
            support(atom("cancel what Zebulon ordered"), run="a", user="ann"),
            support(run="b", user="bob"),
            support(atom("greet Zebulon", "greet"), run="a", user="ann"),
        ]
    )
    assert store.forget_user("ann") == 2
    store.scrub()
    assert [each.goal for each in store.all()] == ["cancel the order"]
    assert [each.goal for each in opened(embeddings).all()] == ["cancel the order"]
    with pytest.raises(InputError):
        store.forget_user("")
    opened.vectors.close()  # while it is open, the room for rows to come holds anything
    assert [path for path in tmp_path.rglob("*") if path.is_file() and b"Zebulon" in path.read_bytes()] == []


def test_damaged_rows_are_left_out_and_go_with_the_next_forgetting(opened: Opened) -> None:
    store = opened()
    store.put([support(user="ann"), support(atom("x", "other"), run="b")])
    row = next(each for each in AtomRows(opened.vectors).read() if isinstance(each, AtomRow))
    AtomRows(opened.vectors).amend([row._replace(rest='{"ann": 1')])
    store = opened()
    assert len(store) == 1
    assert store.forget_user("ann") == 0
    assert AtomRows(opened.vectors).ids() == [each for each in (atom().id, atom("x", "other").id) if each != row.id]


def test_forgetting_that_did_not_work_is_told(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened()
    store.put([support(user="ann")])
    monkeypatch.setattr(AtomRows, "remove", lambda self, ids: None)
    with pytest.raises(StorageError, match="could not be deleted"):
        store.forget_user("ann")


def test_a_dense_embedder_has_a_vector_for_each_of_the_usual_wordings(opened: Opened) -> None:
    store = opened(Letters())
    said = ["cancel it", "zzz qqq", "the vvv www", "a jjj", "kkk kkk", "bbb"]
    store.put([support(atom(goal, visits=9 - place), run=f"r{place}") for place, goal in enumerate(said)])
    assert opened.vectors.count(KIND) == 1
    assert opened.vectors.count(TEXTS) == 3
    assert store.search("known: order id. done: nothing yet", ["zzz qqq"], [], k=1)[0].similarity > 0.99
    store.judge("r0", 0.0)  # another wording is the most usual now, and a fifth one comes in
    assert opened.vectors.count(TEXTS) <= 4
    assert opened(Letters()).search("known: order id. done: nothing yet", ["kkk kkk"], [], k=1)[0].similarity > 0.99


def test_another_embedder_is_refused_and_embedding_again_helps(opened: Opened) -> None:
    opened().put([support(), support(atom("call it off"), run="b")])
    dense = opened(Letters())
    with pytest.raises(EmbedderChangedError):
        len(dense)
    assert opened.vectors.reembed() == {KIND: 1}
    assert dense.search("known: order id. done: nothing yet", ["call it off"], [], k=1)[0].similarity > 0.99
    back = opened()
    assert opened.vectors.reembed() == {KIND: 1, TEXTS: 1}
    assert goals(back, "call it off") == ["call it off"]


def test_atoms_are_read_in_the_background_and_not_waited_for(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    opened().put([support()])
    store = opened()
    go, read = threading.Event(), AtomRows.read
    monkeypatch.setattr(AtomRows, "read", lambda *args, **more: go.wait(20) and read(*args, **more))
    assert not store.loaded(0.0)
    assert not store.loaded(0.01)
    go.set()
    assert store.loaded(20.0)
    assert goals(store) == ["cancel the order"]


def test_a_failed_reading_is_told_and_tried_again(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    opened().put([support()])
    store = opened()

    def broken(*_: object, **__: object) -> Any:
        raise StorageError("away")

    with monkeypatch.context() as patch:
        patch.setattr(AtomRows, "read", broken)
        with pytest.raises(StorageError, match="away"):
            store.loaded(20.0)
    assert store.loaded(20.0)


def test_what_another_process_wrote_is_taken_over(tmp_path: Path) -> None:
    vectors = VectorStore(tmp_path, embedder=resolve_embedder(None), namespace=NAMESPACE)
    clock = Clock()
    with vectors:
        one, two = (AtomStore(vectors.scoped(NAMESPACE), now=clock, refresh=0.0) for _ in range(2))
        assert len(one) == len(two) == 0
        one.put([support(run="a")])
        two.put([support(atom("call it off"), run="b"), support(atom("x", "other"), run="b")])
        assert one.all() == two.all()
        assert one.all()[0].visits == 2
        one.judge("b", 0.0)
        assert [each.visits for each in two.all()] == [1] * len(one.all()) == [1]
        one.forget_run("a")
        assert len(two) == len(one) == 2
        assert two.all() == []


@pytest.mark.parametrize("bound", ["max_atoms", "flush_every"])
def test_bounds_that_cannot_be(opened: Opened, bound: str) -> None:
    with pytest.raises(ConfigurationError, match=bound):
        opened(**{bound: 0})


# --- namespaces ---


def test_namespaces_are_apart_and_those_not_used_leave_the_ram(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langgraph_toolmem.atoms.library.MAX_ATOMS", 1)
    vectors = VectorStore(tmp_path, embedder=resolve_embedder(None), namespace=NAMESPACE)
    with vectors:
        library = AtomLibrary(vectors, now=Clock())
        ann, bob = ("toolmem", "ann"), ("toolmem", "bob")
        library.store(ann).put([support()])
        library.store(bob).put([support(atom("mail it", "send_mail"))])
        kept = library.store(ann)
        library.store(ann).credit(atom().id, AtomRecord(1))
        for who, tool in ((ann, "cancel_order"), (bob, "send_mail")):
            found = library.search(who, "", ["cancel the order, mail it"], [], wait=None)
            assert [hit.tool for hit in found or ()] == [tool]
        assert kept.in_ram == 0
        assert library.store(ann) is kept
        assert library.store(ann).record(atom().id) == AtomRecord(1)
        library.close()


def test_atoms_are_added_without_reading_all_of_them(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    opened().put([support(run="a"), support(atom("x", "other"), run="a")])
    store = opened()
    assert store.put([support(run="b"), support(atom("y", "third"), run="b")]) == 1
    assert store.in_ram == 0
    assert {each.tool: each.visits for each in store.all()} == {"cancel_order": 2, "other": 1, "third": 1}


def test_closing_does_not_wait_for_a_long_reading(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    opened().put([support(), support(atom("x", "other"))])
    store = opened()
    monkeypatch.setattr("langgraph_toolmem.atoms.mirror.PAGE", 1)
    read, begun, go = AtomRows.read, threading.Event(), threading.Event()

    def slow(*args: Any, **more: Any) -> Any:
        begun.set()
        go.wait(20)
        yield from read(*args, **more)

    monkeypatch.setattr(AtomRows, "read", slow)
    assert not store.loaded(0.0)
    assert begun.wait(20)
    closing = threading.Thread(target=store.close)
    closing.start()
    while not store.closing:
        closing.join(0.01)
    go.set()
    closing.join(20)
    assert store.in_ram == 0
    assert len(store) == 2


def test_looking_on_writes_nothing(opened: Opened) -> None:
    opened().put([support(), support(atom("call it off"), run="b")])
    opened(Letters())
    opened.vectors.reembed()
    store = opened(Letters(), read_only=True)
    assert goals(store, "call it off")
    assert opened.vectors.count(TEXTS) == 0
    assert len(opened(Letters())) == 1
    assert opened.vectors.count(TEXTS) == 1
