"""Atoms as rows: what they stand on, how they are found, by which record they are not, and who leaves first."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from histories import schema
from kept import give_records
from langchain_core.embeddings import Embeddings

from langgraph_toolmem import Atoms, ToolMemory
from langgraph_toolmem.atoms import retrieve
from langgraph_toolmem.atoms.atoms import Atom, make_atom, wordings_of
from langgraph_toolmem.atoms.record import FAILED_AFTER, AtomRecord
from langgraph_toolmem.atoms.retrieve import AtomHit
from langgraph_toolmem.atoms.rows import AtomKind, judge, put, reword, stored
from langgraph_toolmem.atoms.support import (
    MAX_SUPPORTS,
    Support,
    added,
    from_plain_supports,
    judged,
    to_plain_supports,
    total,
    without,
)
from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.core.ledger import ItemStats
from langgraph_toolmem.stores.vectors import Hit

NEVER_FOLLOWED = ItemStats(shown=60)


class Letters(Embeddings):
    """How often each letter comes; another embedder with another name."""

    model = "letters"

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        low = text.lower()
        return [0.01 + low.count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"]


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


class Kept:
    """The atoms of a memory."""

    def __init__(self, memory: ToolMemory, user_id: str | None = None) -> None:
        self.memory, self.user_id = memory, user_id
        self.rows, self.user = memory.atoms.keeping.rows, memory.core.users.of(user_id)

    def put(self, *supports: Support, **how: Any) -> int:
        return put(self.rows, supports, self.user, **how)

    def judge(self, run: str, score: float) -> int:
        return judge(self.rows, run, score, self.user)

    def note(self, of: Atom, track: ItemStats) -> None:
        give_records(self.memory, "atoms", {self.rows.key(of.id, self.user): track})

    def record(self, of: Atom) -> AtomRecord:
        return self.memory.atoms.records([of.id], user_id=self.user_id)[of.id]

    def supports(self, of: Atom) -> tuple[Support, ...]:
        return tuple(each for found in self.rows.get([of.id], self.user) for each in found.supports)

    def all(self) -> list[Atom]:
        return self.memory.atoms.all(user_id=self.user_id)

    def search(self, *goals: str, state: str = "", **how: Any) -> list[AtomHit]:
        asked = goals or ("cancel the order",)
        return self.memory.atoms.search(asked, state=state, slots=["ORDER_ID"], user_id=self.user_id, **how)

    def tools(self, *goals: str, **how: Any) -> list[str]:
        return [hit.tool for hit in self.search(*goals, **how)]

    def goals(self, *goals: str, **how: Any) -> list[str]:
        return [hit.atom.goal for hit in self.search(*goals, **how)]


class Opened:
    """Opens the memory of a folder, each time as if by a new process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.memory: ToolMemory | None = None

    def __call__(self, embeddings: Any = None, user_id: str | None = None) -> Kept:
        self.close()
        self.memory = ToolMemory(self.folder, methods=[Atoms(keep=True)], embeddings=embeddings)
        return Kept(self.memory, user_id)

    def close(self) -> None:
        if self.memory is not None:
            self.memory.core.store.snapshot()  # tests write records into the table
            self.memory.close()


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    made = Opened(tmp_path / "memory")
    yield made
    made.close()


@pytest.fixture
def kept() -> Iterator[Kept]:
    with ToolMemory.ephemeral(methods=[Atoms(keep=True)]) as memory:
        yield Kept(memory)


embedders = pytest.mark.parametrize("embeddings", [None, Letters()], ids=["builtin", "dense"])


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


@pytest.mark.parametrize(
    "change", [dict.clear, lambda plain: plain.pop("tool"), lambda plain: plain.update(supports=[[]])]
)
def test_what_is_damaged_is_told(change: Callable[[dict[str, Any]], object]) -> None:
    plain = to_plain_supports([support()])
    with pytest.raises(InputError, match="not ffff"):
        from_plain_supports("ffff", plain)
    change(plain)
    with pytest.raises(InputError, match="no stored atom"):
        from_plain_supports(atom().id, plain)
    with pytest.raises(InputError):
        AtomKind().item(Hit(atom().id, "", plain))


def test_verdicts_and_leaving_touch_only_their_run() -> None:
    two = (support(run="a", user="ann"), support(run="b", user="bob"))
    assert [each.good for each in judged(two, "a", 0.0)] == [False, True]
    assert [each.good for each in judged(two, "a", 0.0, "bob")] == [True, True]
    assert [each.run for each in without(two, run="a")] == ["b"]
    assert [each.run for each in without(two, user="bob")] == ["a"]


# --- rows ---


def test_an_atom_is_a_row_and_a_row_an_atom() -> None:
    item = stored(atom().id, (support(user="ann"), support(atom("call it off"), run="b", score=None)))
    row = AtomKind().row(item)
    assert set(row.owners or ()) == {"ann", "run1", "b"}
    plain = json.loads(json.dumps(row.metadata))
    read = AtomKind().item(Hit(row.id, row.text, plain))
    assert (read, read.atom, read.supports) == (item, item.atom, item.supports)


@embedders
def test_atoms_that_wait_hide_none_that_is_good(
    opened: Opened, embeddings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrieve, "LONGLIST", 8)
    kept = opened(embeddings)
    kept.put(*(support(atom(f"cancel order {number}", f"tool{number}"), score=None) for number in range(40)))
    kept.put(support(atom("do something else", "other")))
    assert kept.tools() == ["other"]
    assert kept.judge("run1", 1.0) == 41
    assert len(kept.tools(k=50)) == 41
    assert kept.judge("run1", 0.0) == 41
    assert kept.tools() == []


def test_a_bad_run_takes_its_wording_back_and_leaves_that_of_others(opened: Opened) -> None:
    kept = opened()
    kept.put(support(atom("call it off", visits=2), run="a"), support(run="b"))
    assert kept.goals() == ["call it off"]
    kept.judge("a", 0.0)
    (left,) = kept.all()
    assert [wording.goal for wording in wordings_of(left)] == ["cancel the order"]
    assert left.sources == ()
    assert opened().all() == [left]


def test_a_run_is_worded_anew_and_what_others_gave_stays(kept: Kept) -> None:
    other = atom("x", "other")
    kept.put(support(atom(visits=2), run="a", user="ann"), support(run="b"), support(other, run="a"))
    finer, same = atom("call it off", arguments={"order_id": "<ORDER_ID>", "why": "late"}), replace(other, about="new")
    assert reword(kept.rows, "a", {atom().id: finer, other.id: same}, kept.user) == 2
    assert [(each.run, each.user, each.part.visits) for each in kept.supports(finer)] == [("a", "ann", 2)]
    assert [each.run for each in kept.supports(atom())] == ["b"]
    assert [each.part.about for each in kept.supports(other)] == ["new"]
    assert reword(kept.rows, "b", {atom().id: finer}, kept.user) == 1
    assert {each.id for each in kept.all()} == {finer.id, other.id}
    assert reword(kept.rows, "nobody", {atom().id: finer}, kept.user) == 0


# --- records ---


def test_what_misleads_is_found_no_longer_and_not_brought_back(opened: Opened) -> None:
    kept = opened()
    kept.put(support(), support(atom("cancel the order", "stop_order"), run="b"))
    kept.note(atom(), ItemStats(shown=2, followed=1))
    kept.note(atom(), ItemStats(1, 1, 1, helped=1))
    assert kept.record(atom()) == AtomRecord(3, 2, 1, 0)
    kept = opened()
    kept.note(atom(), ItemStats(hurt=2 * FAILED_AFTER))
    assert kept.record(atom()) == AtomRecord(3, 2, 1, 2 * FAILED_AFTER)
    assert kept.tools() == ["stop_order"]
    kept = opened()
    kept.put(support(run="new"))
    assert kept.tools() == ["stop_order"]
    assert len(kept.all()) == 2
    kept.note(atom(), ItemStats(helped=9))
    assert sorted(kept.tools()) == ["cancel_order", "stop_order"]


def test_beyond_the_bound_those_leave_that_say_least(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AtomKind, "most", 4)
    kept = opened()
    kept.put(*(support(atom(f"do the thing {name}", f"tool_{name}")) for name in "abcd"))
    kept.put(support(atom("do another", "tool_open"), score=None))
    assert {each.tool for each in kept.all()} == {"tool_a", "tool_b", "tool_c", "tool_d"}
    misleads = next(each for each in kept.all() if each.tool == "tool_b")
    kept.note(misleads, NEVER_FOLLOWED)
    kept.put(support(atom("do one more", "tool_e")))
    assert {each.tool for each in kept.all()} == {"tool_a", "tool_c", "tool_d", "tool_e"}
    assert kept.record(misleads) == AtomRecord()
    kept.put(support(atom("worth less", "tool_f", value=0.5), score=0.5))
    assert {each.tool for each in opened().all()} == {"tool_a", "tool_c", "tool_d", "tool_e"}


# --- who is forgotten ---


# --- among many ---


@embedders
def test_other_tools_are_found_behind_many_atoms_of_one(
    opened: Opened, embeddings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrieve, "LONGLIST", 16)
    kept = opened(embeddings)
    usual = [atom(f"do the thing {number}", "usual", arguments={"n": number}) for number in range(120)]
    others = [atom("another matter", f"rare{number}") for number in range(4)]
    kept.put(*map(support, (*usual, *others)))
    hits = kept.search("do the thing 7", k=5)
    assert (hits[0].tool, {hit.tool for hit in hits[1:]}) == ("usual", {f"rare{number}" for number in range(4)})
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    kept.note(hits[0].atom, NEVER_FOLLOWED)
    again = kept.search("do the thing 7", k=5)
    assert {hit.tool for hit in again} == {hit.tool for hit in hits}
    assert hits[0].atom not in [hit.atom for hit in again]


def test_tools_without_atoms_are_not_looked_for_among_ever_more(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrieve, "LONGLIST", 4)
    kept.put(*(support(atom(f"do the thing {number}", f"tool{number % 2}")) for number in range(2)))
    kept.put(*(support(atom(f"do the thing {number}", "tool0", arguments={"n": number})) for number in range(40)))
    asked: list[int] = []
    near = kept.rows.near
    monkeypatch.setattr(kept.rows, "near", lambda *args, k, **more: asked.append(k) or near(*args, k=k, **more))
    tools = [schema("tool0", "order_id"), schema("never_called", "text"), schema("hand_over")]
    assert kept.tools("do the thing 7", tools=tools) == ["tool0"]
    assert asked == [4]
    assert kept.tools("do the thing 7", tools=[*tools, schema("tool1", "order_id")]) == ["tool0", "tool1"]
    assert len(asked) > 2
