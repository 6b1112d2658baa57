"""The contract of rows: any kind, on disk and in RAM, per user and shared, reopened, only looked at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
from plugs import APART, files, memory_of

from examples.own_method.lessons import Lesson, LessonRows
from langgraph_toolmem import StorageError
from langgraph_toolmem.extend import Hit, Near, RowKind, VectorItem


class Place(NamedTuple):
    name: str
    what: str
    visits: int


class PlaceRows(RowKind[Place]):
    """Another kind, with a number and without words of its own in the id."""

    name: ClassVar[str] = "place"

    def row(self, item: Place) -> VectorItem:
        return VectorItem(item.name, item.what, {"visits": item.visits})

    def item(self, row: Hit) -> Place:
        return Place(row.id, row.text, row.metadata["visits"])


Make = Callable[[str, str, int], Any]
KINDS = [
    pytest.param(LessonRows, lambda key, text, number: Lesson(key, text, f"said {number}"), id="lesson"),
    pytest.param(PlaceRows, Place, id="place"),
]
each_kind = pytest.mark.parametrize(("kind", "make"), KINDS)
on_disk_and_not = pytest.mark.parametrize("on_disk", [True, False], ids=["disk", "ephemeral"])
ORDER, MAIL = "send the order to the warehouse", "answer the mail of the press"


@each_kind
@on_disk_and_not
def test_what_is_put_is_got_found_counted_and_removed(kind: Any, make: Make, on_disk: bool, tmp_path: Path) -> None:
    order, mail, again = make("a", ORDER, 1), make("b", MAIL, 2), make("a", ORDER, 3)
    with memory_of(tmp_path / "memory" if on_disk else None) as memory:
        rows, user = memory.core.rows(kind()), memory.core.users.of(None)
        assert rows.put([order, mail], user) == 2
        assert (rows.count(user), rows.get(["b", "nobody", "a"], user)) == (2, [mail, order])
        found = rows.near("the order to the warehouse", user)
        assert [(each.item, each.id) for each in found] == [(order, "a"), (mail, "b")]
        assert 1 >= found[0].similarity > found[1].similarity >= -1
        assert isinstance(found[0], Near)
        assert len(rows.near(ORDER, user, k=1)) == 1
        rows.put([again], user)  # in the place of the one with its id
        assert (rows.count(user), rows.get(["a"], user)) == (2, [again])
        rows.put([make("c", MAIL, 4), make("c", MAIL, 5)], user)
        assert rows.get(["c"], user) == [make("c", MAIL, 5)]
        rows.remove(["a", "nobody"], user)
        assert (rows.count(user), rows.get(["a", "b"], user)) == (2, [mail])


@each_kind
def test_reopened_it_is_there_and_a_memory_that_only_looks_keeps_nothing(kind: Any, make: Make, tmp_path: Path) -> None:
    order = make("a", ORDER, 1)
    with memory_of(tmp_path / "memory") as memory:
        memory.core.rows(kind()).put([order], memory.core.users.of(None))
    with memory_of(tmp_path / "memory", read_only=True) as memory:
        rows, user = memory.core.rows(kind()), memory.core.users.of(None)
        with pytest.raises(StorageError, match="read-only"):
            rows.put([make("b", MAIL, 2)], user)
        assert (rows.get(["a", "b"], user), rows.count(user)) == ([order], 1)
        assert [each.item for each in rows.near(ORDER, user)] == [order]
    with memory_of(tmp_path / "memory") as memory:
        assert memory.core.rows(kind()).get(["a", "b"], memory.core.users.of(None)) == [order]


@each_kind
@on_disk_and_not
@pytest.mark.parametrize("namespace", [APART, ("toolmem",)], ids=["apart", "shared"])
@pytest.mark.slow
def test_a_user_is_forgotten_and_the_others_are_not(
    kind: Any, make: Make, on_disk: bool, namespace: tuple[str, ...], tmp_path: Path
) -> None:
    of_ann, of_bob = make("a", f"{ORDER} zanzibar", 1), make("b", f"{ORDER} quixotic", 2)
    with memory_of(tmp_path / "memory" if on_disk else None, namespace=namespace) as memory:
        rows, ann, bob = memory.core.rows(kind()), memory.core.users.of("ann"), memory.core.users.of("bob")
        rows.put([of_ann], ann)
        rows.put([of_bob], bob)
        seen = {each.id for each in rows.near(ORDER, bob)}
        assert seen == ({"b"} if namespace == APART else {"a", "b"})
        assert rows.count(bob) == len(rows.get(["a", "b"], bob)) == len(seen)
        assert (rows.forget(ann), rows.forget(ann)) == (1, 0)
        assert (rows.get(["a"], ann), rows.get(["a", "b"], bob), rows.count(bob)) == ([], [of_bob], 1)
    if on_disk:
        left = [word for word in (b"zanzibar", b"quixotic") if any(word in each for each in files(tmp_path).values())]
        assert left == [b"quixotic"]


def test_kinds_are_kept_apart() -> None:
    with memory_of(None) as memory:
        user = memory.core.users.of(None)
        lessons, places = memory.core.rows(LessonRows()), memory.core.rows(PlaceRows())
        lessons.put([Lesson("a", ORDER, "late")], user)
        places.put([Place("a", MAIL, 1)], user)
        assert (lessons.count(user), places.count(user)) == (1, 1)
        assert lessons.forget(user) == 1
        assert places.get(["a"], user) == [Place("a", MAIL, 1)]


@each_kind
def test_looking_makes_nothing(kind: Any, make: Make, tmp_path: Path) -> None:
    with memory_of(tmp_path / "memory") as memory:
        rows, user = memory.core.rows(kind()), memory.core.users.of("ann")
        found = (rows.near(ORDER, user), rows.count(user), rows.get(["a"], user), rows.forget(user))
        assert found == ([], 0, [], 0)
        rows.remove(["a"], user)
        assert not {name for name in files(tmp_path / "memory") if not name.startswith("graph.")}
        rows.put([make("a", ORDER, 1)], user)
        assert any(name.startswith("chroma") for name in files(tmp_path / "memory"))
