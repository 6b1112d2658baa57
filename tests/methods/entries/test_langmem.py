"""langmem and the memory share a store: its real tools and managers find entries of past runs."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from kept import give_records
from langchain_core.messages import AIMessage
from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from parcels import past_run, rate, request
from shells import WAYS

from langgraph_toolmem import ConfigurationError, Entries, ToolMemory
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.core.ledger import ItemStats
from langgraph_toolmem.entries.langmem import ENTRY_KEY, EntryBaseStore
from langgraph_toolmem.testing import ScriptedChatModel

ANN, BOB = "ann@example", "bob/ann@example"
OF_ANN, OF_BOB = ("memories", ANN), ("memories", BOB)
QUERY = request("Zoe")
FAST, CHEAP = ["find_parcel", "fast_courier"], ["find_parcel", "cheap_courier"]

pytestmark = pytest.mark.usefixtures("nothing_failed")


@pytest.fixture
def memory() -> Iterator[ToolMemory]:
    """Ann sent parcels twice, once badly, and Bob once."""
    with ToolMemory.ephemeral(methods=[Entries()], namespace=("toolmem", "{user_id}")) as made:
        rate(made, False, "fast_courier", user=ANN)
        rate(made, True, "cheap_courier", user=ANN)
        rate(made, True, "fast_courier", user=BOB)
        yield made


@pytest.fixture
def langmem() -> Any:
    return pytest.importorskip("langmem", reason="needs langmem")


def tools(store: EntryBaseStore, *args: Any, **options: Any) -> list[list[str]]:
    """The tools of the entries that a search finds; of other memories the key."""
    return [item.value.get("tools") or [item.key] for item in store.search(*args, **options)]


def test_a_search_finds_the_users_entries_and_nobody_elses(memory: ToolMemory) -> None:
    with pytest.raises(ConfigurationError, match="must have a place for users"):
        EntryBaseStore(memory, ("memories",), inner=InMemoryStore())
    store = EntryBaseStore(memory, inner=InMemoryStore())
    found = store.search(OF_ANN, query=QUERY)
    assert {(*item.value["tools"], item.value["verdict"]) for item in found} == {(*FAST, "failed"), (*CHEAP, "good")}
    assert {(item.namespace, item.score) for item in found} == {(OF_ANN, None)}
    json.dumps([item.dict() for item in found])
    assert tools(store, OF_BOB, query=QUERY) == [FAST]
    others: list[Any] = [("carl",), ("ann",), (ANN, "other"), ("{langgraph_user_id}",), ()]
    for namespace in [*(("memories", *each) for each in others), (), ("other", ANN), (ANN,)]:
        assert store.search(namespace, query=QUERY) == store.search(namespace) == []
    memory.forget(user_id=ANN)
    assert store.search(OF_ANN) == []


def test_in_a_shared_namespace_only_the_users_runs_count_and_others_take_no_room() -> None:
    with ToolMemory.ephemeral(methods=[Entries()]) as memory:
        for i in range(4):
            run = past_run(i, "fast_courier", name="Zoe")
            memory.finish(run, thread_id=str(i), success=True, user_id="bob", wait=True)
        rate(memory, True, "cheap_courier", user="ann")
        store = EntryBaseStore(memory, inner=InMemoryStore())
        assert tools(store, ("memories", "bob"), query=QUERY)[0] == FAST
        assert tools(store, ("memories", "ann"), query=QUERY, limit=1) == tools(store, ("memories", "ann")) == [CHEAP]
        assert len(EntryBaseStore(memory, ("memories",), inner=InMemoryStore()).search(("memories",))) == 5


def test_what_a_search_finds(memory: ToolMemory) -> None:
    store = EntryBaseStore(memory, inner=InMemoryStore())
    assert tools(store, OF_ANN) == [CHEAP, FAST]  # the newest first
    assert [tools(store, OF_ANN, limit=1, offset=offset) for offset in (0, 1, 2)] == [[CHEAP], [FAST], []]
    for query in (None, QUERY):
        assert tools(store, OF_ANN, query=query, filter={"verdict": "good"}) == [CHEAP]
        assert tools(store, OF_ANN, query=query, filter={"verdict": "good", "tools": FAST}) == []
    assert tools(store, OF_ANN, query="How many people live in Lisbon?") == []
    words = "how did sending parcels by courier go"
    assert len(store.search(OF_ANN, query=words)) == 2
    [first, second] = store.search(OF_ANN)
    assert store.get(OF_ANN, first.key) == first
    assert store.get(OF_BOB, first.key) is store.get(("memories",), first.key) is None
    give_records(
        memory,
        "entries",
        {memory.entries.rows.key(first.key.removeprefix(ENTRY_KEY), memory.core.users.of(ANN)): ItemStats(hurt=6)},
    )
    assert [item.key for item in store.search(OF_ANN)] == [second.key]  # the other one is retired
    assert store.get(OF_ANN, first.key) is None


@pytest.mark.parametrize("way", WAYS)
async def test_everything_else_goes_to_the_store_behind(memory: ToolMemory, way: str) -> None:
    store = EntryBaseStore(memory, inner=InMemoryStore())
    [entry, _] = store.search(OF_ANN)
    store.put(OF_ANN, "1", {"content": "tea"})
    ops: list[Any] = [
        GetOp(entry.namespace, entry.key),
        PutOp(OF_ANN, "2", {"content": "milk"}),
        GetOp(OF_ANN, "1"),
        SearchOp(OF_BOB),
        ListNamespacesOp((MatchCondition("prefix", ("memories",)),)),
        SearchOp(OF_ANN, limit=1),
    ]
    got: list[Any] = store.batch(ops) if way == "sync" else await store.abatch(ops)
    assert (got[0], got[1], got[2].value, len(got[3]), got[4]) == (entry, None, {"content": "tea"}, 1, [OF_ANN])
    assert [item.key for item in got[5]] == ["1"]
    both = [["1"], CHEAP, ["2"], FAST]
    assert [tools(store, OF_ANN, limit=2, offset=offset) for offset in range(3)] == [both[i : i + 2] for i in range(3)]
    store.delete(OF_ANN, "1")
    assert store.get(OF_ANN, "1") is None


def test_entries_that_cannot_be_read_hide_nothing_else(
    memory: ToolMemory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def gone(*_: Any, **__: Any) -> Any:
        raise StorageError("gone")

    store = EntryBaseStore(memory, inner=InMemoryStore())
    store.put(OF_ANN, "1", {"content": "tea"})
    monkeypatch.setattr(memory.entries, "ranked", gone)
    assert [tools(store, OF_ANN, query=QUERY) for _ in range(2)] == [[["1"]]] * 2
    assert len([r for r in caplog.records if r.levelno >= logging.ERROR]) == 1


# --- langmem ---


async def test_langmems_tools_find_entries_of_their_user(memory: ToolMemory, langmem: Any) -> None:
    store = EntryBaseStore(memory, inner=InMemoryStore())
    search = langmem.create_search_memory_tool(store.namespace, store=store)
    manage = langmem.create_manage_memory_tool(store.namespace, store=store)
    for user, taste in ((ANN, "tea"), (BOB, "milk")):
        await manage.ainvoke({"content": f"likes {taste}"}, {"configurable": {"langgraph_user_id": user}})
    for user, own, runs in ((ANN, ["likes tea"], 2), (BOB, ["likes milk"], 1), ("carl", [], 0)):
        said = json.loads(await search.ainvoke({"query": QUERY}, {"configurable": {"langgraph_user_id": user}}))
        assert [item["value"]["content"] for item in said if not item["key"].startswith(ENTRY_KEY)] == own
        assert len(said) - len(own) == runs
        assert all(item["namespace"][1] == user for item in said)


async def test_a_manager_sees_entries_and_what_it_makes_of_one_is_a_memory_of_its_own(
    memory: ToolMemory, langmem: Any
) -> None:
    shown: list[str] = []

    def rewrites(messages: Any, tools: Any) -> AIMessage:
        shown.append("\n".join(m.text for m in messages))
        key = shown[-1].split("<instance id=")[1].split()[0]
        patch = {"op": "replace", "path": "/content", "value": "Ann was happy."}
        args = {"json_doc_id": key, "planned_edits": "say it better", "patches": [patch]}
        return AIMessage("", tool_calls=[{"name": "PatchDoc", "args": args, "id": "call_1"}])

    store = EntryBaseStore(memory, inner=InMemoryStore())
    before = store.search(OF_ANN)
    manager = langmem.create_memory_store_manager(ScriptedChatModel(script=rewrites), store=store)
    feed = {"messages": [{"role": "user", "content": QUERY}]}
    await manager.ainvoke(feed, {"configurable": {"langgraph_user_id": ANN}})
    assert "cheap_courier" in shown[0]
    made, other = store.search(OF_ANN)
    assert {made.key, other.key} == {item.key for item in before}, "it is found in the place of the entry"
    assert made.value == {"kind": "Memory", "content": {"content": "Ann was happy."}}
    assert other in before
