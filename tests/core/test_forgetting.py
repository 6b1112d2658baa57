"""Forgetting by user, thread or age: from RAM, every file and a shared store, and nothing else."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from desk import NAMES, Desk, call_id, history, request
from kept import episode, inertia, kept_in
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.store.memory import InMemoryStore
from typer.testing import CliRunner

from langgraph_toolmem import Atoms, InertiaPolicy, NamespaceError, StorageError, ToolMemory, default_methods
from langgraph_toolmem.cli.app import app
from langgraph_toolmem.core.users import Owner
from langgraph_toolmem.stores import snapshot

DAY = 86_400.0
PER_USER = ("toolmem", "{user_id}")
SHADOW = InertiaPolicy(shadow=True)
SECRETS = ("Xanthippe", "quetzalcoatl", "4929-1111")


def run_of(thread: str, words: str = "") -> list[Any]:
    """One request with two calls, its words in the request, an argument, an output and the answer."""
    calls = [
        {"name": name, "args": {"query": f"{words} {thread}".strip()}, "id": f"{thread}-{name}"}
        for name in ("search", "read")
    ]
    messages: list[Any] = [("user", f"Look for {words} {thread} please")]
    for call in calls:
        result = json.dumps({"found": f"{words} {thread}"})
        messages += [AIMessage("", tool_calls=[call]), {"role": "tool", "tool_call_id": call["id"], "content": result}]
    return [*messages, ("assistant", f"Here is {words}.")]


def first(thread: str, words: str = "") -> str:
    """The digest of its episode."""
    return episode(thread, run_of(thread, words)[0][1])


def taught(path: Path | None, **options: Any) -> ToolMemory:
    memory = ToolMemory(path, methods=default_methods(Atoms(keep=True)), **options)
    for thread, words, user in (("private", " ".join(SECRETS), "ann"), ("other", "", "bob")):
        memory.sit.suggest(run_of(thread, words)[:1], summary=f"wants {words} {thread}", user_id=user)
        memory.observe(run_of(thread, words)[:-1], thread_id=thread, user_id=user)
        memory.finish(run_of(thread, words), thread_id=thread, success=True, comment=f"fine {words}", user_id=user)
        memory.inertia.begin_turn(run_of(f"open {thread}", words)[:1], owner=Owner(f"open {thread}", user))
        memory.navigator.decisions.add(first(thread, words), 1, [], {"sub_intents": [words]}, user_id=user)
    memory.flush()
    memory.core.jobs.put("nobody does it", {"text": SECRETS[0]}, run=first("private", " ".join(SECRETS)))
    return memory


def files(folder: Path) -> bytes:
    return b"\n".join(each.read_bytes() for each in sorted(folder.rglob("*")) if each.is_file())


def found(content: bytes | str) -> list[str]:
    return [secret for secret in SECRETS if (secret.encode() if isinstance(content, bytes) else secret) in content]


def kept(memory: ToolMemory) -> tuple[int, int, int, int]:
    """Requests, entries, supports of atoms, decisions."""
    user, rows = memory.core.users.of(None), memory.atoms.keeping.rows
    supports = {each.run for atom in rows.all(user, retired=True) for each in atom.supports}
    return (
        len(memory.core.graph.cases.cases),
        memory.entries.rows.count(user),
        len(supports),
        len(memory.navigator.decisions),
    )


@pytest.mark.parametrize("way", ["here", "cli"])
@pytest.mark.parametrize("whose", ["user", "thread"])
def test_it_goes_from_every_file_and_the_others_stay(whose: str, way: str, tmp_path: Path) -> None:
    memory = taught(tmp_path)
    assert found(files(tmp_path)) == list(SECRETS)
    assert kept(memory) == (2, 2, 2, 2)
    turns = memory.report().turns
    gone = {"user_id": "ann"} if whose == "user" else {"thread_id": "private"}
    if way == "cli":
        memory.close()
        named = (f"--{whose.replace('user', 'user-id')}", *gone.values())
        said = CliRunner().invoke(app, ["forget", *named, "--memory", str(tmp_path), "--yes"])
        assert (said.exit_code, said.output[:9]) == (0, "Forgotten"), said.output
        memory = ToolMemory(tmp_path, methods=default_methods(Atoms(keep=True)))
    else:
        assert asyncio.run(memory.aforget(**gone)) > 3
    assert found(files(tmp_path)) == []
    assert not found(repr(memory.core.graph.to_state()))
    assert kept(memory) == (1, 1, 1, 1)
    assert memory.report().turns == turns - (whose == "user"), "counts stay; turns that had only begun are undone"
    assert memory.core.graph.score(first("private", " ".join(SECRETS))) is None
    memory.feedback("other", score=0.0)
    assert memory.forget(**gone) == memory.forget(thread_id="never there") == 0
    memory.close()
    assert found(files(tmp_path)) == []


def test_forgetting_needs_the_disk_and_says_if_it_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with taught(tmp_path) as memory:
        with monkeypatch.context() as patch:
            patch.setattr(snapshot, "write_draft", no_space)
            with pytest.raises(StorageError, match="still holds"):
                memory.forget(user_id="ann")
        memory.forget(user_id="ann")
        assert found(files(tmp_path)) == []


def test_files_that_were_quarantined_are_named(tmp_path: Path) -> None:
    with taught(tmp_path) as memory:
        memory.core.store.snapshot()
    file = tmp_path / "graph.pickle"
    file.write_bytes(file.read_bytes()[:-1])
    with ToolMemory(tmp_path) as memory:
        memory.forget(user_id="ann")
        assert "graph.pickle.corrupt-1" in memory.report().problems[-1]
        assert "forgotten" in memory.report().problems[-1]


def test_a_thread_that_two_users_share_is_forgotten_for_the_one_who_is_named(tmp_path: Path) -> None:
    with ToolMemory(tmp_path, namespace=("toolmem", "{user_id}")) as memory:
        for user, words in (("ann", SECRETS[0]), ("bob", "wedgwood")):
            memory.finish(run_of("main", words), thread_id="main", success=True, user_id=user, wait=True)
        with pytest.raises(NamespaceError, match="2 users"):
            memory.forget(thread_id="main")
        assert memory.forget(thread_id="main", user_id="ann") > 1
        assert not found(files(tmp_path))
        assert [each.query for each in memory.entries.recall("Look for wedgwood main please", user_id="bob")]
        assert memory.forget(thread_id="main") > 1, "whose it is was kept"
        assert b"wedgwood" not in files(tmp_path)
        with pytest.raises(NamespaceError, match="user id, or the thread id"):
            memory.forget()


def accounts(number: int, names: Sequence[str], asked: str) -> list[BaseMessage]:
    """A run in which outputs have people's names as JSON keys, and a path through one gives an argument."""
    owned = {name: {"balance_id": f"B-{number}-{name}", "overdrawn": [1] * i} for i, name in enumerate(names)}
    output = {**owned, f"{names[0]}_is_new": True, f"{names[0]}_orders": [1, 2]}
    found = {"name": "find_customer", "args": {"name": "all"}, "id": call_id("a", number), "type": "tool_call"}
    order = {"customer_id": owned[asked]["balance_id"]}
    used = {"name": "latest_order", "args": order, "id": call_id("b", number), "type": "tool_call"}
    return [
        HumanMessage(f"Go on, {number}", id=call_id("u", number)),
        AIMessage("", tool_calls=[found]),  # type: ignore[list-item]
        ToolMessage(json.dumps(output), tool_call_id=found["id"]),
        AIMessage("", tool_calls=[used]),  # type: ignore[list-item]
        ToolMessage("shipped", tool_call_id=used["id"]),
        AIMessage("Done.", id=call_id("w", number)),
    ]


@pytest.mark.slow
def test_json_keys_that_name_a_person_are_forgotten(desk: Desk, tmp_path: Path) -> None:
    with ToolMemory(tmp_path, tools=desk.tools, namespace=PER_USER) as memory:
        for i in range(4):
            memory.finish(accounts(i, [SECRETS[0], "shop"], SECRETS[0]), thread_id=f"a{i}", user_id="ann")
            memory.finish(accounts(10 + i, ["shop", "bank"], "shop"), thread_id=f"b{i}", user_id="bob")
        memory.finish(accounts(20, [SECRETS[0], "shop"], "shop"), thread_id="both", user_id="ann")
        assert f"$.{SECRETS[0]}.balance_id" in repr(memory.core.graph.sources.rows)
        memory.forget(user_id="ann")
        assert SECRETS[0] not in repr(memory.core.graph.to_state())
        assert SECRETS[0].encode() not in files(tmp_path)
        assert "o|find_customer|$.shop.balance_id" in repr(memory.core.graph.sources.rows), "bob was seen with it too"


def test_turns_that_had_only_begun_are_undone_by_forgetting(desk: Desk) -> None:
    with ToolMemory.ephemeral(tools=desk.tools, namespace=PER_USER) as memory:
        for i in range(30):
            memory.finish(history(i), thread_id=f"bob-{i}", user_id="bob")
        before = copy.deepcopy(
            (memory.core.graph.counters, memory.core.graph.successors.rows, inertia(memory).rules.rows)
        )
        for i in range(5):
            feed = [HumanMessage(request(NAMES[i]), id=call_id("ann", i))]
            assert memory.inertia.begin_turn(feed, owner=Owner(f"ann-{i}", "ann"), policy=SHADOW).options
        memory.core.costs.forked()  # seconds of the processor are nobody's data
        assert memory.report().turns == before[0]["turns"] + 5
        memory.forget(user_id="ann")
        counters, successors, rules = (
            memory.core.graph.counters,
            memory.core.graph.successors.rows,
            inertia(memory).rules.rows,
        )
        assert {k: v for k, v in counters.items() if v} == before[0]
        for now, then in ((successors, before[1]), (rules, before[2])):
            assert {
                k: {i: c for i, c in row.items() if any(c)} for k, row in now.items() if any(map(any, row.values()))
            } == then


def spoken(number: int, secret: str, *, name: str = "Ann") -> list[BaseMessage]:
    """A run whose note holds something that is not in the request."""
    messages = history(number, name)
    for message in messages:
        if isinstance(message, AIMessage):
            for call in message.tool_calls:
                if call["name"] == "add_note":
                    call["args"]["note"] = secret
        if isinstance(message, ToolMessage) and "saved" in message.text:
            message.content = json.dumps({"saved": True, "text": secret})
    messages[0] = HumanMessage(f"{request(name)} with {secret} please", id=messages[0].id)
    return messages


def test_a_value_told_often_by_one_user_is_forgotten_although_many_others_came_after(desk: Desk) -> None:
    with ToolMemory.ephemeral(tools=desk.tools, namespace=PER_USER) as memory:
        one = [m for i in range(10) for m in spoken(i, SECRETS[1])]
        memory.finish(one, thread_id="one", user_id="ann")
        for i in range(70):
            memory.finish(spoken(100 + i, f"word{i}"), thread_id=f"bob-{i}", user_id="bob")
        memory.forget(user_id="ann")
        assert SECRETS[1] not in repr(memory.core.graph.to_state())


# --- what is old ---


def test_what_is_older_than_the_retention_goes_in_the_background(tmp_path: Path) -> None:
    clock = [1_000 * DAY]
    options: dict[str, Any] = {"retention": timedelta(days=30), "now": lambda: clock[0]}
    methods = lambda: default_methods(Atoms(keep=True))  # noqa: E731 - one line
    with taught(tmp_path, **options) as memory:
        clock[0] += 29 * DAY
        memory.finish(run_of("late"), thread_id="late", success=True, wait=True)
        assert found(files(tmp_path)) == list(SECRETS)
        clock[0] += 2 * DAY + 3600
        memory.observe(run_of("today")[:1], thread_id="today")  # any step will do
        memory.flush()
        assert not found(files(tmp_path))
        assert not found(repr(memory.core.graph.to_state()))
        assert kept(memory) == (1, 1, 1, 0), "what came later stays"
        memory.feedback("late", score=1.0)
    clock[0] += 40 * DAY
    with ToolMemory(tmp_path, methods=methods(), **options) as memory:  # at the opening
        memory.flush()
        assert kept(memory) == (0, 0, 0, 0)
        assert b"late" not in files(tmp_path)


def test_what_was_learned_before_there_was_a_retention_is_as_old_as_the_retention(tmp_path: Path) -> None:
    clock = [1_000 * DAY]
    taught(tmp_path, now=lambda: clock[0]).close()
    for days, requests in ((100, 2), (29, 2), (2, 0)):
        clock[0] += days * DAY
        with ToolMemory(tmp_path, retention=30 * DAY, now=lambda: clock[0]) as memory:
            memory.flush()
            assert kept(memory)[:2] == (requests, 0), "rows and decisions have times of their own"
            assert kept(memory)[3] == 0


def test_argument_names_that_only_one_user_s_calls_showed_go_with_the_user(tmp_path: Path) -> None:
    def called(user: str, number: int, **args: Any) -> None:
        call = {"name": "note", "args": args, "id": f"{user}-{number}"}
        result = {"role": "tool", "tool_call_id": call["id"], "content": "{}"}
        messages = [("user", f"{user} {number}"), AIMessage("", tool_calls=[call]), result, ("assistant", "done")]
        memory.core.lifecycle.finish(messages, owner=Owner(f"{user}-{number}", user))

    store = InMemoryStore()
    for kept_with in ({"path": tmp_path}, {"path": None, "store": store}):
        with ToolMemory(**kept_with, namespace=("toolmem", "{user_id}"), methods=[]) as memory:  # type: ignore[arg-type]
            called("ann", 1, text="a", xanthippe="b")
            called("ann", 2, text="a", xanthippe="b")
            called("bob", 1, text="a", wedgwood="b")
            memory.forget(user_id="ann")
            known = memory.core.graph.tools["note"]
            assert set(known["parameters_seen"]) == {"text", "wedgwood"}
            memory.forget(user_id="bob")
            assert set(known["parameters_seen"]) == {"text"}
            assert "xanthippe" not in repr(memory.core.graph.to_state())
            assert "xanthippe" not in kept_in(store)
    assert b"xanthippe" not in files(tmp_path)
