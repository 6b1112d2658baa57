"""What is forgotten by its thread or by its age: from RAM, from every file, from a shared store; and nothing else."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kept import episode, kept_in
from langchain_core.messages import AIMessage
from langgraph.store.memory import InMemoryStore
from typer.testing import CliRunner

from langgraph_toolmem import Atoms, NamespaceError, ToolMemory, default_methods
from langgraph_toolmem.cli.app import app

DAY = 86_400.0
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
    for thread, words in (("private", " ".join(SECRETS)), ("other", "")):
        memory.sit.suggest(run_of(thread, words)[:1], summary=f"wants {words} {thread}")
        memory.observe(run_of(thread, words)[:-1], thread_id=thread)
        memory.finish(run_of(thread, words), thread_id=thread, success=True, comment=f"fine {words}")
        memory.navigator.decisions.add(first(thread, words), 1, [], {"sub_intents": [words]})
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


@pytest.mark.parametrize("way", ["async", "cli"])
def test_a_thread_goes_from_every_file_and_the_others_stay(way: str, tmp_path: Path) -> None:
    memory = taught(tmp_path)
    assert found(files(tmp_path)) == list(SECRETS)
    assert kept(memory) == (2, 2, 2, 2)
    if way == "cli":
        memory.close()
        said = CliRunner().invoke(app, ["forget", "--thread", "private", "--memory", str(tmp_path), "--yes"])
        assert (said.exit_code, said.output[:9]) == (0, "Forgotten"), said.output
        memory = ToolMemory(tmp_path, methods=default_methods(Atoms(keep=True)))
    else:
        assert asyncio.run(memory.aforget(thread_id="private")) > 3
    assert found(files(tmp_path)) == []
    assert not found(repr(memory.core.graph.to_state()))
    assert kept(memory) == (1, 1, 1, 1)
    assert memory.core.graph.score(first("private", " ".join(SECRETS))) is None
    memory.feedback("other", score=0.0)
    assert memory.forget(thread_id="private") == memory.forget(thread_id="never there") == 0
    memory.close()
    assert found(files(tmp_path)) == []


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
        memory.core.lifecycle.finish(messages, thread_id=f"{user}-{number}", user_id=user)

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
