"""Atoms in the memory: as values, as rows, kept of runs that went well, found, followed, and forgotten."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import histories as h
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kept import give_records
from letters import Letters

from langgraph_toolmem import Atoms, ConfigurationError, InputError, ToolMemory
from langgraph_toolmem.atoms.atoms import (
    Atom,
    AtomRecord,
    make_atom,
    merge_all,
    to_plain,
)
from langgraph_toolmem.atoms.extract import Extractor, sparse
from langgraph_toolmem.atoms.keeping import AtomKind, AtomSearch, StoredAtom, Support
from langgraph_toolmem.atoms.retrieve import AtomHit, AtomQuestion, NearAtom, Resolver, ranked, to_goal
from langgraph_toolmem.atoms.slots import Known
from langgraph_toolmem.core.ledger import ItemStats
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.stores.vectors import Hit

NOTHING = "known: only what the user said. done: nothing yet"
TOOLS = [
    {**h.schema("find_order", "order_id"), "description": "Look an order up."},
    {**h.schema("send_mail", "to subject"), "description": "Send a mail to somebody."},
]


def atom(tool: str = "refund", goal: str = "refund the order", *needs: str, **more: Any) -> Atom:
    given: dict[str, Any] = {"state": NOTHING, "goal": goal, "tool": tool, "required_slots": needs}
    return make_atom(**{**given, "arguments": {need.lower(): f"<{need}>" for need in needs}, **more})


CANCEL = atom("cancel_order", "cancel the order <ORDER_ID>", "ORDER_ID", about="Cancel a pending order.")
RETURN = atom("return_order", "return the order <ORDER_ID>", "ORDER_ID", "USER_ID", about="Return a delivered order.")
LIST = atom("list_orders", "show all the orders", about="List all orders of the shop.")
ATOMS = (CANCEL, RETURN, LIST)


def known(*types: str, **values: Any) -> Known:
    found = Known({name: [value] for name, value in values.items()})
    found.name(types)
    return found


def asked(atoms: Any, goal: str, k: Known | None = None, state: str = NOTHING, **how: Any) -> list[AtomHit]:
    near = [NearAtom(each, to_goal(goal, each)) for each in atoms]
    return ranked(near, AtomQuestion(state, (goal,), k or Known()), **how)


# --- as values ---


def test_words_call_and_needs_make_the_identity() -> None:
    assert atom().id == atom(value=0.5, about="y").id
    one = atom(arguments={"a": 1, "b": 2})
    assert one.id == atom(arguments={"b": 2, "a": 1}).id
    others = [atom(goal="x"), atom(state="x"), atom("x"), one, atom(arguments={"a": True}), atom(required_slots=["A"])]
    assert len({each.id for each in (atom(), *others)}) == 7
    assert atom().call == atom(goal="x", state="y").call != one.call


DRAWN = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.integers(1, 3)), min_size=1, max_size=8)


@settings(max_examples=60)
@given(DRAWN, st.permutations(range(8)))
def test_merging_does_not_depend_on_the_order(drawn: list[tuple[str, str, int]], order: list[int]) -> None:
    def made(tool: str, goal: str, n: int) -> Atom:
        arguments = {"p": 1, "q": 2} if n % 2 else {"q": 2, "p": 1}
        return atom(tool, goal, visits=n, value=n / 3, arguments=arguments)

    atoms = [made(*each) for each in drawn]
    shuffled = [atoms[i] for i in order if i < len(atoms)]
    one, other = (sorted(json.dumps(to_plain(each)) for each in merge_all(some)) for some in (atoms, shuffled))
    assert one == other
    assert len(one) == len({(tool, goal) for tool, goal, _ in drawn})


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "wrong",
    [
        {"value": float("nan")},
        {"value": 7.0},
        {"visits": -5},
        {"visits": "many"},
        {"arguments": {"a": b"x"}},
        {"arguments": {"a": {1}}},
        {"arguments": {"a": nested(64)}},
        {"arguments": {"a": nested(20_000)}},
        {"tool": 3},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_what_is_no_atom_is_not_kept(wrong: dict[str, Any]) -> None:
    with ToolMemory.ephemeral(methods=[Atoms()]) as memory:
        with pytest.raises(ConfigurationError, match="Atom 2 cannot be kept"):
            memory.atoms.keep([atom(), replace(atom(), **wrong)])
        assert memory.atoms.search("refund the order") == []


ODD: dict[str, Any] = {
    "half a pair in an argument": {"arguments": {"mode": "\ud83d", "\ud83d": "x"}},
    "half a pair in a text": {"tool": "re\ud83dfund", "required_slots": ["A\ud83d"]},
    "NUL": {"tool": "re\0fund", "goal": "refund\0order", "arguments": {"a\0": "b\0"}},
    "numbers as names": {"arguments": {1: 2}},
    "NaN in an argument": {"arguments": {"a": float("nan")}},
    "many slots": {"required_slots": [f"S{number}" for number in range(10_000)]},
    "long texts": {"goal": "refund " * 50_000, "about": "x" * 100_000, "tool": "t" * 10_000},
    "deep": {"arguments": {"a": nested(64 - 2)}},
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_odd_atoms_are_found_now_and_after_a_restart(tmp_path: Path, odd: dict[str, Any]) -> None:
    with ToolMemory(tmp_path, methods=[Atoms()]) as memory:
        assert memory.atoms.keep([atom(**odd)]) == 1
        (before,) = memory.atoms.search("refund the order")
    with ToolMemory(tmp_path, methods=[Atoms()]) as memory:
        (after,) = memory.atoms.search("refund the order")
        assert (after.atom.id, repr(after.atom)) == (before.atom.id, repr(before.atom))


# --- the score ---


def test_the_score_is_the_papers_and_likeness_is_weighed() -> None:
    for hit in asked(ATOMS, "cancel the order", known("ORDER_ID"), beta=0.3):
        needed = len(hit.atom.required_slots)
        feasible = sum(slot == "ORDER_ID" for slot in hit.atom.required_slots) / (needed + 1e-5) if needed else 1.0
        assert hit.feasibility == pytest.approx(feasible)
        assert hit.score == pytest.approx(0.7 * hit.similarity + 0.3 * hit.feasibility)
    given = [atom("a", "alpha", state="beta", about="gamma")]
    assert asked(given, "alpha", state="beta")[0].similarity == pytest.approx(0.5 + 0.4)
    assert asked(given, "gamma", state="alpha")[0].similarity == pytest.approx(0.1), "no word of the goal"
    assert to_goal("x", given[0], 0.9) == pytest.approx(0.45), "of an embedding model"


def test_the_published_score_compares_whole_texts_and_takes_several_of_a_tool() -> None:
    other = atom("cancel_order", "cancel the order", "ORDER_ID")
    atoms, has = [CANCEL, other, LIST], known("ORDER_ID")
    assert [hit.tool for hit in asked(atoms, "cancel the order", has)] == ["cancel_order", "list_orders"]
    hits = asked(atoms, "cancel the order", has, plain=True)
    assert [hit.tool for hit in hits] == ["cancel_order", "cancel_order", "list_orders"]
    assert hits[0].similarity == pytest.approx(1.0)
    assert [hit.feasibility for hit in hits] == [pytest.approx(1 / (1 + 1e-5))] * 2 + [0.0], "nothing needed: 0 / ε"


RENAMED = [
    h.schema("fn_1", "order_id") | {"description": "Cancel a pending order."},
    h.schema("fn_2", "order_id user_id") | {"description": "Return a delivered order."},
    h.schema("fn_3") | {"description": "The weather of a place."},
]
LIKE = [
    h.schema("fn_a", "query page") | {"description": "Cancel a pending order."},
    h.schema("fn_b", "order_id") | {"description": "Cancel a pending order."},
]


@pytest.mark.parametrize(
    ("one", "tools", "found"),
    [
        (CANCEL, RENAMED, "fn_1"),
        (RETURN, RENAMED, "fn_2"),
        (CANCEL, [*RENAMED, h.schema("cancel_order", "x")], "cancel_order"),  # a name goes before a description
        (CANCEL, LIKE, "fn_b"),  # parameters tell tools with equal descriptions apart
        (LIST, RENAMED, None),
        (atom("unknown", "x"), RENAMED, None),
        (CANCEL, [], None),
    ],
)
def test_the_tool_of_an_atom_among_the_available_ones(one: Atom, tools: list[Any], found: str | None) -> None:
    resolved = Resolver(Extractor(read_tools(tools)))(one)
    assert (None if resolved is None else resolved.tool) == found
    if resolved is not None:
        assert resolved.likeness == 1.0 if found == one.tool else 0.5 <= resolved.likeness <= 1.0


def test_an_atom_without_a_description_does_not_hide_the_tool_of_one_that_has() -> None:
    resolve, bare = Resolver(Extractor(read_tools(RENAMED))), replace(CANCEL, about="")
    assert bare.call == CANCEL.call
    assert resolve(bare) is None
    assert resolve(CANCEL) is not None
    assert resolve(bare) is None


# --- records ---


@pytest.mark.parametrize(
    ("record", "misleads"),
    [
        ((0, 0, 0, 0), False),
        ((19, 0, 0, 0), False),
        ((20, 0, 0, 0), True),  # shown 20 times, never followed
        ((39, 1, 1, 0), False),
        ((40, 1, 1, 0), True),
        ((500, 400, 0, 0), False),  # no feedback
        ((500, 400, 0, 5), False),
        ((500, 400, 0, 6), True),
        ((500, 400, 4, 29), False),
        ((500, 400, 4, 30), True),
    ],
)
def test_an_atom_misleads_that_fails_too_often_or_is_never_followed(record: tuple[int, ...], misleads: bool) -> None:
    assert AtomRecord(*record).misleads is misleads


# --- as rows ---

KIND = AtomKind()


def stored(*supports: Support, part: Atom | None = None) -> StoredAtom:
    return StoredAtom(part or atom(), supports)


def run(name: str, score: float | None = 1.0, **more: Any) -> Support:
    return Support(name, score=score, **more)


def test_an_atom_is_the_sum_of_its_good_supports() -> None:
    item = stored(run("a", 1.0), run("d", 0.5, visits=3), run("b", 0.2), run("c", None))
    assert item.atom is not None
    assert (item.atom.visits, item.atom.value) == (4, 0.625)
    assert stored(run("b", 0.2), run("c", None)).atom is None
    row = KIND.row(stored(run("a", user="ann"), run("b", None)))
    assert (row.owners, row.part, row.text) == (("a", "ann", "b"), "good", "refund the order")
    assert KIND.item(Hit(row.id, row.text, json.loads(json.dumps(row.metadata)))).supports[0].user == "ann"
    # A cell of another type raised where all atoms are read, not here: one row took the others along.
    wrong_cell = [["a", "ann", 1.0, 0.0, {"visits": 1}]]
    for wrong in (
        {**row.metadata, "supports": []},
        {**row.metadata, "supports": wrong_cell},
        {**row.metadata, "atom": to_plain(LIST)},
    ):
        with pytest.raises(InputError, match="damaged"):
            KIND.item(Hit(row.id, row.text, wrong))


@pytest.mark.parametrize(
    ("old", "new", "joined"),
    [
        (run("a", None), run("a"), run("a")),
        (run("a"), run("a", None), run("a")),  # no score takes none away
        (run("a", visits=3), run("a", visits=2, time=9.0), run("a", visits=3)),  # a trimmed history gives no less
        (run("a"), run("a", 0.0, visits=2), run("a", 0.0, visits=2)),
        (run("", 1.0), run("", 0.5, visits=4), run("", 0.5, visits=4)),  # a search hands over all it has again
    ],
)
def test_a_run_put_again_replaces_what_it_gave(old: Support, new: Support, joined: Support) -> None:
    assert KIND.joined(stored(old), stored(new)).supports == (joined,)


def test_supports_are_bounded_and_good_ones_stay() -> None:
    item = stored(run("r0", None))
    for number in range(1, AtomKind.max_supports + 5):
        item = KIND.joined(item, stored(run(f"r{number}", None if number < 3 else 1.0, time=number)))
    assert {each.run for each in item.supports} == {f"r{number}" for number in range(5, AtomKind.max_supports + 5)}


@pytest.mark.parametrize("embeddings", [None, Letters("abcdefghijklmnopqrstuvwxyz")], ids=["builtin", "dense"])
def test_other_tools_are_found_behind_many_atoms_of_one(embeddings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AtomSearch, "longlist", 40)
    with ToolMemory.ephemeral(methods=[Atoms()], embeddings=embeddings) as memory:
        usual = [atom("usual", f"do the thing {number}", arguments={"n": number}) for number in range(120)]
        memory.atoms.keep([*usual, *(atom(f"rare{number}", "another matter") for number in range(4))])
        hits = memory.atoms.search("do the thing 7", k=5)
        assert (hits[0].tool, {hit.tool for hit in hits[1:]}) == ("usual", {f"rare{number}" for number in range(4)})
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        gone = {memory.atoms.keeping.rows.key(hits[0].atom.call, memory.core.users.of(None)): ItemStats(shown=60)}
        give_records(memory, "atoms", gone)
        again = memory.atoms.search("do the thing 7", k=5)
        assert hits[0].atom.call not in {hit.atom.call for hit in again}
        assert len(again) == 5


# --- runs become atoms ---


def order(number: int = 17, whom: str = "ann@example.org") -> list[Any]:
    """A run that looks an order up and mails about it."""
    found = h.call("find_order", {"order_id": f"W{number}"}, {"order_id": f"W{number}", "email": whom})
    mail = h.call("send_mail", {"to": whom, "subject": "order"}, "sent")
    return h.history(asking(number), found, mail, h.words())


def asking(number: int = 17) -> list[Any]:
    return [h.user(f"Find order W{number} and mail the customer about it")]


def found(memory: ToolMemory, goal: str = "find order <ID>", **how: Any) -> list[AtomHit]:
    return memory.atoms.search(goal, slots=["ORDER_ID", "EMAIL"], **how)


def show(memory: ToolMemory, messages: list[Any], hits: list[AtomHit], thread_id: str) -> None:
    """The model gets to see these atoms before its next turn."""
    memory.atoms.note_shown(memory.core.read(messages, thread_id), hits, None)


def tools_of(hits: list[AtomHit]) -> list[str]:
    return sorted(hit.tool for hit in hits)


def test_nothing_is_kept_until_atoms_are_wanted(tmp_path: Path) -> None:
    with ToolMemory(tmp_path / "off", tools=TOOLS, methods=[Atoms(keep=False)]) as memory:
        assert found(memory) == []
        memory.finish(order(), thread_id="1", success=True, wait=True)
        assert found(memory) == []
    assert not (tmp_path / "off" / "chroma").exists()
    with ToolMemory(tmp_path / "default", tools=TOOLS) as memory:
        memory.finish(order(), thread_id="1", success=True)
        assert found(memory) == []  # from here on
        memory.finish(order(18), thread_id="2", success=True)
        assert tools_of(found(memory)) == ["find_order", "send_mail"]


def test_feedback_decides_and_may_change(tmp_path: Path) -> None:
    with ToolMemory(tmp_path, tools=TOOLS, methods=[Atoms(keep=True)]) as memory:
        memory.finish(order(), thread_id="1")
        assert found(memory) == []
        for score, count in ((1.0, 2), (0.0, 0), (0.9, 2)):
            memory.feedback("1", score=score)
            assert len(found(memory)) == count
        memory.finish(order(), thread_id="1", success=False)
        memory.finish(order(), thread_id="2", success=False)
        with pytest.raises(InputError, match="No thread 'unknown'"):
            memory.feedback("unknown", score=1.0)
        assert found(memory) == []
        memory.feedback("1", score=0.9)
    with ToolMemory(tmp_path, tools=TOOLS, methods=[Atoms(keep=False)]) as memory:  # keeps none, judges what is there
        assert {hit.atom.value for hit in found(memory)} == {0.9}
        memory.finish(order(18), thread_id="3", success=True)
        assert [hit.atom.visits for hit in found(memory)] == [1, 1]
        memory.finish(order(), thread_id="1", success=False)
        assert found(memory) == []


def test_a_thread_that_goes_on_counts_each_step_once(tmp_path: Path) -> None:
    with ToolMemory(tmp_path, tools=TOOLS, methods=[Atoms(keep=True)]) as memory:
        first = order(17)
        memory.finish(first, thread_id="1", success=True)
        memory.finish(first, thread_id="1", success=True)
        assert [hit.atom.visits for hit in found(memory)] == [1, 1]
        memory.finish([*first, *order(18)], thread_id="1", success=True)
        memory.finish(order(19), thread_id="2", success=True)
        assert found(memory)
        assert sum(each.visits for each in memory.atoms.all() if each.tool == "find_order") == 3
        assert memory.report()["atoms"]["learned"] == 3


def test_recorded_runs_become_atoms_in_one_go() -> None:
    scores = {1: 1.0, 2: 1.0, 3: 0.0, 4: None}
    runs = [(parse_run(order(n), thread_id=f"r{n}"), score, None) for n, score in scores.items()]
    with ToolMemory.ephemeral(tools=TOOLS, methods=[Atoms()]) as memory:
        assert memory.import_runs(runs)["atoms"] == memory.import_runs(runs)["atoms"] == 4
        assert [hit.atom.visits for hit in found(memory)] == [2, 2]
        for thread, score in (("r4", 1.0), ("r1", 0.0), ("r2", 0.0)):
            memory.feedback(thread, score=score)
        assert [hit.atom.visits for hit in found(memory)] == [1, 1]


def test_hints_are_booked_when_shown_followed_and_led_to_success(tmp_path: Path) -> None:
    with ToolMemory(tmp_path, tools=TOOLS, methods=[Atoms(keep=True)]) as memory:
        memory.finish(order(), thread_id="1", success=True)
        hits = found(memory)
        calls = {hit.tool: hit.atom.call for hit in hits}
        for number, success in ((2, True), (3, False)):
            show(memory, asking(number), hits, str(number))
            show(memory, asking(number), hits, str(number))  # asked again: the same turn
            memory.finish(order(number), thread_id=str(number), success=success)
        assert memory.atoms.records(calls.values()) == {
            calls["find_order"]: AtomRecord(2, 2, 1, 1),
            calls["send_mail"]: AtomRecord(2, 0, 0),
        }
        memory.feedback("2", score=0.0)
        memory.feedback("3", score=1.0)
        report = memory.report()
        figures = {"shown": 2, "followed": 2, "right": 2, "runs": 2, "helped": 1, "hurt": 1}
        assert figures.items() <= report["atoms"].items()
        assert json.loads(json.dumps(report.to_dict()))["sections"]["atoms"]["helped"] == 1
    with ToolMemory(tmp_path, tools=TOOLS, methods=[Atoms()]) as memory:
        memory.feedback("3", score=0.0)  # in another process
    with ToolMemory(tmp_path, tools=TOOLS, methods=[Atoms()]) as memory:
        assert memory.atoms.records(calls.values())[calls["find_order"]] == AtomRecord(2, 2, 0, 2)


def test_no_word_of_an_atom_stays_in_ram_when_its_user_is_forgotten() -> None:
    with ToolMemory.ephemeral(methods=[Atoms()]) as memory:
        memory.atoms.keep([atom(goal="refund zorblax quickly")], user_id="zeb")
        assert memory.atoms.search("refund zorblax")
        assert sparse.cache_info().currsize
        memory.forget(user_id="zeb")
        assert not sparse.cache_info().currsize
        assert memory.atoms.search("refund zorblax") == []
