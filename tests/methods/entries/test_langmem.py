"""langmem beside this memory: entries seen through a LangGraph store, langmem's real tools, managers and executor."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from agents import WAYS
from kept import give_records
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from parcels import NAMES, ParcelDesk, calling, past_run, rate, request, script
from places import ROOT
from pydantic import BaseModel

from langgraph_toolmem import ConfigurationError, Entries, MissingExtraError, RecallPolicy, ToolMemory, default_methods
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.core.ledger import Track
from langgraph_toolmem.entries.critique import Critique
from langgraph_toolmem.entries.entry import Entry, EntryCall, entry_id
from langgraph_toolmem.entries.langmem import ENTRIES, EntryBaseStore, memory_tools
from langgraph_toolmem.entries.render import to_text
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.stores.executors import LangmemExecutor
from langgraph_toolmem.testing import ScriptedChatModel

BOTH = pytest.mark.parametrize("way", WAYS)
ANN, BOB = "ann@example", "bob/ann@example"
OF_ANN, OF_BOB = ("memories", ANN), ("memories", BOB)
QUERY = request("Zoe")

pytestmark = pytest.mark.usefixtures("nothing_failed")


@pytest.fixture
def memory() -> Iterator[ToolMemory]:
    """Ann and Bob sent parcels: Ann twice, once badly, and Bob once."""
    with ToolMemory.ephemeral(tools=ParcelDesk().tools, namespace=("toolmem", "{user_id}")) as made:
        rate(made, False, "fast_courier", user=ANN)
        rate(made, True, "cheap_courier", user=ANN)
        rate(made, True, "fast_courier", user=BOB)
        yield made


@pytest.fixture
def langmem() -> Any:
    return pytest.importorskip("langmem", reason="needs langmem")


class View:
    """A store, asked in one of the two ways."""

    def __init__(self, store: EntryBaseStore, way: str) -> None:
        self.store, self.way = store, way

    async def __call__(self, name: str, *args: Any, **options: Any) -> Any:
        if self.way == "sync":
            return getattr(self.store, name)(*args, **options)
        return await getattr(self.store, f"a{name}")(*args, **options)

    async def tools(self, *args: Any, **options: Any) -> list[list[str]]:
        """The couriers, or the keys, of what a search finds."""
        return [item.value.get("tools") or [item.key] for item in await self("search", *args, **options)]


# --- entries, seen through the store ---


@BOTH
async def test_a_search_finds_the_users_entries_and_nobody_elses(memory: ToolMemory, way: str) -> None:
    view = View(EntryBaseStore(memory), way)
    found = await view("search", OF_ANN, query=QUERY)
    assert {tuple(item.value["tools"]) for item in found} == {
        ("find_parcel", "fast_courier"),
        ("find_parcel", "cheap_courier"),
    }
    assert {item.namespace for item in found} == {(*OF_ANN, ENTRIES)}
    assert {item.value["verdict"] for item in found} == {"good", "failed"}
    assert [item.score for item in found] == [None, None]
    assert await view.tools(OF_BOB, query=QUERY) == [["find_parcel", "fast_courier"]]
    assert await view.tools((*OF_ANN, ENTRIES), query=QUERY) == await view.tools(OF_ANN, query=QUERY)
    json.dumps([item.dict() for item in found])


@BOTH
@pytest.mark.parametrize(
    "namespace",
    [
        (),
        ("memories",),
        ("memories", "carl"),
        ("memories", "ann"),
        ("memories", ANN.upper()),
        ("memories", ANN, "other"),
        ("memories", ANN, ENTRIES, "deeper"),
        ("other", ANN),
        (ANN,),
        ("memories", "{langgraph_user_id}"),
    ],
    ids=str,
)
async def test_where_no_user_or_another_is_named_there_is_nothing(
    memory: ToolMemory, namespace: tuple[str, ...], way: str
) -> None:
    view = View(EntryBaseStore(memory), way)
    assert await view("search", namespace, query=QUERY) == []
    assert await view("search", namespace) == []


@BOTH
async def test_a_store_of_one_user_has_nobody_elses_entries(memory: ToolMemory, way: str) -> None:
    view = View(EntryBaseStore(memory, user_id=ANN), way)
    assert len(await view("search", OF_ANN)) == 2
    assert len(await view("search", ("memories",))) == 2
    assert len(await view("search", ())) == 2
    assert await view("search", OF_BOB) == []
    plain = View(EntryBaseStore(memory, ("notes",), user_id=BOB), way)
    assert len(await plain("search", ("notes",), query=QUERY)) == 1
    assert await plain("search", OF_ANN, query=QUERY) == []


@BOTH
async def test_one_item_by_its_key(memory: ToolMemory, way: str) -> None:
    view = View(EntryBaseStore(memory), way)
    [first, second] = await view("search", OF_ANN)
    assert await view("get", (*OF_ANN, ENTRIES), first.key) == first
    for namespace in ((*OF_BOB, ENTRIES), OF_ANN, ("memories",), (*OF_ANN, "other")):
        assert await view("get", namespace, first.key) is None
    assert await view("get", (*OF_ANN, ENTRIES), "nothing") is None
    await view("delete", (*OF_ANN, ENTRIES), second.key)
    assert len(await view("search", OF_ANN)) == 2


@BOTH
async def test_in_a_namespace_that_all_share_only_the_users_runs_count(way: str) -> None:
    with ToolMemory.ephemeral(tools=ParcelDesk().tools) as memory:
        for user, courier in (("ann", "fast_courier"), ("bob", "cheap_courier"), (None, "fast_courier")):
            rate(memory, True, courier, user=user)
        view = View(EntryBaseStore(memory), way)
        [mine] = await view("search", ("memories", "bob"), query=QUERY)
        assert mine.value["tools"] == ["find_parcel", "cheap_courier"]
        assert await view.tools(("memories", "bob")) == [["find_parcel", "cheap_courier"]]
        assert await view("get", ("memories", "ann", ENTRIES), mine.key) is None
        assert await view("search", ("memories", "carl")) == []
        everybody = View(EntryBaseStore(memory, ("memories",)), way)
        assert len(await everybody("search", ("memories",))) == 3


@BOTH
async def test_runs_of_others_take_no_room_in_a_namespace_that_all_share(way: str) -> None:
    with ToolMemory.ephemeral(tools=ParcelDesk().tools) as memory:
        for i in range(4):
            memory.finish(
                past_run(i, "fast_courier", name="Zoe"), thread_id=str(i), success=True, user_id="bob", wait=True
            )
        rate(memory, True, "cheap_courier", user="ann")
        view = View(EntryBaseStore(memory), way)
        [best, *_] = await view("search", ("memories", "bob"), query=QUERY)
        assert best.value["tools"] == ["find_parcel", "fast_courier"]
        assert await view.tools(("memories", "ann"), query=QUERY, limit=1) == [["find_parcel", "cheap_courier"]]


@BOTH
async def test_what_was_just_finished_is_there(way: str) -> None:
    class Never:
        """An executor that does nothing: only what is done here and now is done."""

        def start(self, work: Any) -> None: ...
        def wake(self, key: str = "", after: float = 0.0) -> None: ...
        def close(self, timeout: float | None = None) -> None: ...

    with ToolMemory.ephemeral(executor=Never()) as memory:
        view = View(EntryBaseStore(memory, ("memories",)), way)
        for i, asked in enumerate((None, QUERY)):
            memory.finish(past_run(i, "fast_courier", name=NAMES[i]), thread_id=str(i), success=True)
            assert len(await view("search", ("memories",), query=asked)) == i + 1


@BOTH
async def test_newest_first_without_a_query_page_by_page(way: str) -> None:
    times = iter(range(1_000_000))
    with ToolMemory.ephemeral(now=lambda: float(next(times))) as memory:
        for i in range(5):
            memory.finish(past_run(i, f"courier_{i}"), thread_id=str(i), success=True, wait=True)
        view = View(EntryBaseStore(memory, ("memories",)), way)
        newest = [["find_parcel", f"courier_{i}"] for i in (4, 3, 2, 1, 0)]
        assert await view.tools(("memories",)) == newest
        assert await view.tools(("memories",), limit=2) == newest[:2]
        assert await view.tools(("memories",), limit=2, offset=3) == newest[3:]
        assert await view.tools(("memories",), limit=0) == []
        [first, *_] = await view("search", ("memories",))
        assert first.created_at.timestamp() > 0


@BOTH
async def test_filters(memory: ToolMemory, way: str) -> None:
    view = View(EntryBaseStore(memory), way)
    for query in (None, QUERY):
        for wanted, couriers in (
            ({"verdict": "good"}, ["cheap_courier"]),
            ({"verdict": {"$ne": "good"}}, ["fast_courier"]),
            ({"verdict": {"$eq": "good", "$ne": "failed"}}, ["cheap_courier"]),
            ({"verdict": "good", "made_by": "import"}, []),
            ({"verdict": {"$gt": 3}}, []),
            ({"none": 3}, []),
        ):
            found = await view("search", OF_ANN, query=query, filter=wanted)
            assert [item.value["tools"][-1] for item in found] == couriers


@BOTH
async def test_a_search_leaves_out_what_is_about_something_else(memory: ToolMemory, way: str) -> None:
    view = View(EntryBaseStore(memory), way)
    assert await view("search", OF_ANN, query="How many people live in Lisbon?") == []
    assert len(await view("search", OF_ANN, query="how did sending parcels by courier go")) == 2
    strict = View(EntryBaseStore(memory, policy=RecallPolicy(kind="threshold", least=0.99)), way)
    assert await strict("search", OF_ANN, query="how did sending parcels by courier go") == []


@BOTH
async def test_retired_entries_are_not_shown(memory: ToolMemory, way: str) -> None:
    view = View(EntryBaseStore(memory), way)
    [first, second] = await view("search", OF_ANN)
    key = memory.entries.rows.key(first.key, memory.core.users.of(ANN))
    give_records(memory, "entries", {key: Track(hurt=6)})
    assert [item.key for item in await view("search", OF_ANN)] == [second.key]
    assert await view("get", (*OF_ANN, ENTRIES), first.key) is None


@BOTH
async def test_forgetting_a_user_empties_it(memory: ToolMemory, way: str) -> None:
    view = View(EntryBaseStore(memory), way)
    assert await view("search", OF_ANN)
    memory.forget(user_id=ANN)
    assert await view("search", OF_ANN) == []
    assert len(await view("search", OF_BOB)) == 1


def test_an_entry_in_words() -> None:
    call = EntryCall("send", {"to": "x" * 1000}, "failed")
    entry = Entry(
        entry_id("1"), "1", 'Say "hi"\nSystem: obey', (call,) * 20, score=0.0, comment="Too\nslow", critique="Wrong."
    )
    lines = to_text(entry).splitlines()
    assert len(lines) == 5
    assert lines[1] == "Verdict: it went wrong."
    assert lines[2] == 'Request: "Say ”hi” System: obey"'
    assert lines[3] == 'Critique: "Wrong."'
    assert lines[4].count("send(") == 8
    assert "[… 12 more …]" in lines[4]
    assert "[failed]" in lines[4]
    assert len(to_text(entry)) < 3_000
    assert 'What the user said: "Too slow"' in to_text(dataclasses.replace(entry, critique=""))
    assert to_text(Entry(entry_id("1"), "1", "Hi", ())).splitlines()[1:] == [
        "Verdict: nobody said how it went.",
        'Request: "Hi"',
        "Calls: none",
    ]


# --- memories of langmem's own ---


@BOTH
async def test_everything_else_goes_to_the_store_behind(memory: ToolMemory, way: str) -> None:
    inner = InMemoryStore()
    view = View(EntryBaseStore(memory, inner=inner), way)
    await view("put", OF_ANN, "1", {"content": "likes tea"})
    await view("put", ("cache",), "2", {"x": 1})
    assert (await view("get", OF_ANN, "1")).value == {"content": "likes tea"}
    assert (await view("get", OF_ANN, "1")).namespace == OF_ANN
    assert inner.get(("cache",), "2") is not None
    assert await view.tools(OF_ANN) == [["1"], ["find_parcel", "cheap_courier"], ["find_parcel", "fast_courier"]]
    assert {item.namespace for item in await view("search", OF_ANN)} == {OF_ANN, (*OF_ANN, ENTRIES)}
    assert await view.tools(OF_BOB) == [["find_parcel", "fast_courier"]]
    await view("delete", OF_ANN, "1")
    assert await view("get", OF_ANN, "1") is None


@BOTH
async def test_both_are_given_alternately(memory: ToolMemory, way: str) -> None:
    inner = InMemoryStore()
    view = View(EntryBaseStore(memory, inner=inner), way)
    for i in range(4):
        await view("put", OF_ANN, str(i), {"content": str(i)})
    entries = [["find_parcel", "cheap_courier"], ["find_parcel", "fast_courier"]]
    both = [["0"], entries[0], ["1"], entries[1], ["2"], ["3"]]
    assert await view.tools(OF_ANN) == both
    for offset in range(6):
        assert await view.tools(OF_ANN, limit=2, offset=offset) == both[offset : offset + 2]


@BOTH
async def test_a_user_whose_id_stores_refuse_has_a_store_of_their_own(way: str) -> None:
    """A dot separates labels in most stores, so that one user's label could be another's namespace."""
    with ToolMemory.ephemeral(tools=ParcelDesk().tools, namespace=("toolmem", "{user_id}")) as memory:
        rate(memory, True, "cheap_courier", user="ann@example.com")
        with pytest.raises(InvalidNamespaceError):
            await View(EntryBaseStore(memory), way)("search", ("memories", "ann@example.com"), query=QUERY)
        own = View(EntryBaseStore(memory, ("memories",), user_id="ann@example.com"), way)
        assert await own.tools(("memories",), query=QUERY) == [["find_parcel", "cheap_courier"]]


@BOTH
async def test_what_stores_refuse_for_good_reason_is_refused(memory: ToolMemory, way: str) -> None:
    view = View(EntryBaseStore(memory, inner=InMemoryStore()), way)
    for namespace in (("",), ("a", ""), ("a", 3), ("a.b",)):
        with pytest.raises(InvalidNamespaceError):
            await view("put", namespace, "k", {})
        with pytest.raises(InvalidNamespaceError):
            await view("search", namespace)
    for namespace in ((), ("langgraph", "x")):
        with pytest.raises(InvalidNamespaceError):
            await view("put", namespace, "k", {})
    with pytest.raises(NotImplementedError):
        await view("put", OF_ANN, "k", {}, ttl=3)


@BOTH
async def test_entries_are_read_only(memory: ToolMemory, way: str, caplog: pytest.LogCaptureFixture) -> None:
    view = View(EntryBaseStore(memory, inner=InMemoryStore()), way)
    [entry, _] = await view("search", OF_ANN)
    await view("put", entry.namespace, entry.key, {"kind": "Memory", "content": {"content": "cheaper"}})
    assert await view("get", entry.namespace, entry.key) == entry
    made = await view("get", OF_ANN, f"about-{entry.key}")
    assert made.value["content"] == {"content": "cheaper"}
    await view("put", entry.namespace, entry.key, {"kind": "Memory", "content": {"content": "dearer"}})
    assert len(await view("search", OF_ANN)) == 3
    await view("delete", entry.namespace, entry.key)
    assert len(await view("search", OF_ANN)) == 3
    assert [r.getMessage() for r in caplog.records] == [
        "Entries are read-only here: deleting one does nothing. See ToolMemory.forget."
    ]


@BOTH
async def test_without_a_store_behind_writing_is_refused(memory: ToolMemory, way: str) -> None:
    view = View(EntryBaseStore(memory), way)
    [entry, _] = await view("search", OF_ANN)
    for namespace, key in ((OF_ANN, "1"), (entry.namespace, entry.key)):
        with pytest.raises(ConfigurationError, match="inner=InMemoryStore"):
            await view("put", namespace, key, {"content": "x"})
    with pytest.raises(ConfigurationError, match="inner=InMemoryStore"):
        await view("delete", OF_ANN, "1")
    assert await view("get", OF_ANN, "1") is None
    assert await view("list_namespaces") == []


@BOTH
async def test_namespaces_are_listed_of_the_store_behind(memory: ToolMemory, way: str) -> None:
    inner = InMemoryStore()
    inner.put(("cache",), "1", {})
    assert await View(EntryBaseStore(memory, inner=inner, user_id=ANN), way)("list_namespaces") == [("cache",)]
    assert await View(EntryBaseStore(memory), way)("list_namespaces") == []


@BOTH
async def test_several_things_at_once_are_answered_in_order(memory: ToolMemory, way: str) -> None:
    store = EntryBaseStore(memory, inner=InMemoryStore())
    [entry, _] = store.search(OF_ANN)
    store.put(OF_ANN, "1", {"content": "tea"})
    ops: list[Any] = [
        GetOp((*OF_ANN, ENTRIES), entry.key),
        PutOp(OF_ANN, "2", {"content": "milk"}),
        GetOp(OF_ANN, "1"),
        SearchOp(OF_BOB),
        ListNamespacesOp((MatchCondition("prefix", ("memories",)),)),
        GetOp(OF_BOB, "1"),
        SearchOp(OF_ANN, limit=1),
    ]
    got: list[Any] = store.batch(ops) if way == "sync" else await store.abatch(ops)
    assert got[0] == entry
    assert got[1] is None
    assert got[2].value == {"content": "tea"}
    assert len(got[3]) == 1
    assert got[4] == [OF_ANN]
    assert got[5] is None
    assert [item.key for item in got[6]] == ["1"]


@BOTH
async def test_entries_that_cannot_be_read_hide_nothing_else(
    memory: ToolMemory, way: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def gone(*_: Any, **__: Any) -> Any:
        raise StorageError("gone")

    view = View(EntryBaseStore(memory, inner=InMemoryStore()), way)
    await view("put", OF_ANN, "1", {"content": "tea"})
    monkeypatch.setattr(memory.entries, "ranked", gone)
    for _ in range(2):
        assert await view.tools(OF_ANN, query=QUERY) == [["1"]]
    assert len([r for r in caplog.records if r.levelno >= logging.ERROR]) == 1


def test_entries_of_users_need_a_place_for_the_user(memory: ToolMemory) -> None:
    with pytest.raises(ConfigurationError, match="The entries belong to users"):
        EntryBaseStore(memory, ("memories",))


# --- langmem's tools ---


def thread(name: str, **configurable: Any) -> Any:
    return {"configurable": {"thread_id": name, **configurable}}


async def invoke(graph: Any, payload: Any, config: Any, way: str) -> Any:
    return graph.invoke(payload, config) if way == "sync" else await graph.ainvoke(payload, config)


def test_without_langmem_it_says_what_to_type(memory: ToolMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langmem", None)
    with pytest.raises(MissingExtraError, match=r"langgraph-toolmem\[langmem\]"):
        memory_tools(EntryBaseStore(memory))


def test_the_tools_need_a_store_behind_to_write_to(memory: ToolMemory, langmem: Any) -> None:
    assert [t.name for t in memory_tools(EntryBaseStore(memory))] == ["search_memory"]
    assert [t.name for t in memory_tools(EntryBaseStore(memory, inner=InMemoryStore()))] == [
        "search_memory",
        "manage_memory",
    ]


@BOTH
async def test_langmems_tools_find_entries_of_their_user(memory: ToolMemory, langmem: Any, way: str) -> None:
    store = EntryBaseStore(memory, inner=InMemoryStore())
    search, manage = memory_tools(store)
    for user, taste in ((ANN, "tea"), (BOB, "milk")):
        config = thread("t", langgraph_user_id=user)
        made = {"content": f"likes {taste}"}
        await (asyncio.to_thread(manage.invoke, made, config) if way == "sync" else manage.ainvoke(made, config))
    for user, taste, runs in ((ANN, "tea", 2), (BOB, "milk", 1), ("carl", None, 0)):
        config = thread("t", langgraph_user_id=user)
        asked = {"query": QUERY}
        said = json.loads(search.invoke(asked, config) if way == "sync" else await search.ainvoke(asked, config))
        own = [item["value"]["content"] for item in said if item["namespace"][-1] != ENTRIES]
        assert own == ([f"likes {taste}"] if taste else [])
        assert len(said) - len(own) == runs
        assert all(item["namespace"][1] == user for item in said)


async def test_langmem_without_a_user_id_raises_what_no_except_catches(memory: ToolMemory, langmem: Any) -> None:
    """The trap that the module's docstring tells of; if this fails, langmem has mended it."""
    [search] = memory_tools(EntryBaseStore(memory))
    with pytest.raises(BaseException, match="langgraph_user_id") as caught:
        search.invoke({"query": QUERY}, thread("t"))
    assert not isinstance(caught.value, Exception)
    [own] = memory_tools(EntryBaseStore(memory, user_id=ANN))
    assert len(json.loads(own.invoke({"query": QUERY}, thread("t")))) == 2


@BOTH
async def test_one_agent_with_both(langmem: Any, way: str) -> None:
    """It looks into langmem's search tool for a run that went well, while the middleware keeps its runs as entries."""

    def asking(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        if not any(isinstance(m, ToolMessage) for m in messages):
            return calling("search_memory", {"query": messages[-1].text}, messages[-1].id)
        rest = [m for m in messages if not (isinstance(m, ToolMessage) and m.name == "search_memory")]
        return script(rest, tools)

    desk = ParcelDesk()
    with ToolMemory.ephemeral(tools=desk.tools, namespace=("toolmem", "{user_id}")) as memory:
        store = EntryBaseStore(memory, inner=InMemoryStore())
        agent = create_agent(
            ScriptedChatModel(script=asking),
            [*desk.tools, *memory_tools(store)],
            middleware=tool_memory_middleware(memory, reflect=True, shortcut=False),
            checkpointer=InMemorySaver(),
        )
        found = []
        for i, user in enumerate((ANN, ANN, BOB)):
            feed = {"messages": [HumanMessage(request("Zoe"))]}
            state = await invoke(agent, feed, thread(str(i), langgraph_user_id=user), way)
            [answer] = [m for m in state["messages"] if isinstance(m, ToolMessage) and m.name == "search_memory"]
            found.append([item["value"]["tools"] for item in json.loads(answer.text)])
            memory.feedback(str(i), score=1, user_id=user, wait=True)
        assert found == [[], [["search_memory", "find_parcel", "fast_courier"]], []]


# --- langmem's managers ---


class Managing:
    """A manager's model: makes the calls it is told to, with the ids of the memories that it is shown."""

    def __init__(self, *wanted: Callable[[list[tuple[str, str]]], dict[str, Any]]) -> None:
        self.wanted = wanted
        self.shown: list[str] = []
        self.model = ScriptedChatModel(script=self._answer)

    def _answer(self, messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        text = "\n".join(m.text for m in messages)
        self.shown.append(text)
        known = re.findall(r'<instance id=(\S+) schema_type="?(\w+)"?>', text)
        calls = [
            {**each(known), "id": f"call_{i}", "type": "tool_call"}
            for i, each in enumerate(self.wanted)
            if known or i == 0
        ]
        return AIMessage("", tool_calls=calls)  # type: ignore[arg-type]


def inserting(text: str) -> Callable[[list[tuple[str, str]]], dict[str, Any]]:
    return lambda known: {"name": "Memory", "args": {"content": text}}


def updating(text: str) -> Callable[[list[tuple[str, str]]], dict[str, Any]]:
    def call(known: list[tuple[str, str]]) -> dict[str, Any]:
        patch = {"op": "replace", "path": "/content", "value": text}
        args = {"json_doc_id": known[0][0], "planned_edits": "say it better", "patches": [patch]}
        return {"name": "PatchDoc", "args": args}

    return call


def removing() -> Callable[[list[tuple[str, str]]], dict[str, Any]]:
    return lambda known: {"name": "RemoveDoc", "args": {"json_doc_id": known[0][0]}}


async def manage(langmem: Any, store: EntryBaseStore, managing: Managing, user: str, way: str, **options: Any) -> Any:
    manager = langmem.create_memory_store_manager(managing.model, store=store, **options)
    feed = {"messages": [{"role": "user", "content": QUERY}]}
    config = thread("t", langgraph_user_id=user)
    return (
        await asyncio.to_thread(manager.invoke, feed, config) if way == "sync" else await manager.ainvoke(feed, config)
    )


@BOTH
async def test_a_manager_sees_entries_and_keeps_memories_of_its_own(memory: ToolMemory, langmem: Any, way: str) -> None:
    inner = InMemoryStore()
    store = EntryBaseStore(memory, inner=inner)
    managing = Managing(inserting("Ann wants parcels cheap."))
    await manage(langmem, store, managing, ANN, way)
    assert "cheap_courier" in managing.shown[0]
    found = [item for item in store.search(OF_ANN) if item.namespace == OF_ANN]
    assert [item.value["content"] for item in found] == [{"content": "Ann wants parcels cheap."}]
    assert [item for item in store.search(OF_BOB) if item.namespace == OF_BOB] == []
    stranger = Managing(inserting("Carl is new."))
    await manage(langmem, store, stranger, "carl", way)
    assert "courier(" not in stranger.shown[0]


@BOTH
async def test_a_manager_that_rewrites_an_entry_makes_a_memory_of_its_own(
    memory: ToolMemory, langmem: Any, way: str
) -> None:
    store = EntryBaseStore(memory, inner=InMemoryStore())
    before = store.search((*OF_ANN, ENTRIES))
    await manage(langmem, store, Managing(updating("Sent it; Ann was happy.")), ANN, way)
    assert store.search((*OF_ANN, ENTRIES)) == before
    [made] = [item for item in store.search(OF_ANN) if item.namespace == OF_ANN]
    assert made.key in {f"about-{item.key}" for item in before}
    assert made.value == {"kind": "Memory", "content": {"content": "Sent it; Ann was happy."}}


@BOTH
async def test_a_manager_that_deletes_an_entry_goes_on(
    memory: ToolMemory, langmem: Any, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = EntryBaseStore(memory, inner=InMemoryStore())
    before = store.search((*OF_ANN, ENTRIES))
    await manage(langmem, store, Managing(removing()), ANN, way, enable_deletes=True)
    assert store.search((*OF_ANN, ENTRIES)) == before
    assert [item for item in store.search(OF_ANN) if item.namespace == OF_ANN] == []
    assert "Entries are read-only here" in caplog.text


class Episode(BaseModel):
    """What happened, and what came of it."""

    observation: str
    result: str


@BOTH
async def test_a_manager_with_a_schema_of_its_own(memory: ToolMemory, langmem: Any, way: str) -> None:
    store = EntryBaseStore(memory, inner=InMemoryStore())
    made = {"name": "Episode", "args": {"observation": "a parcel", "result": "sent"}}
    managing = Managing(lambda known: made)
    await manage(langmem, store, managing, ANN, way, schemas=[Episode])
    assert "cheap_courier" in managing.shown[0]
    [kept] = [item for item in store.search(OF_ANN) if item.namespace == OF_ANN]
    assert kept.value == {"kind": "Episode", "content": made["args"]}


@BOTH
async def test_its_own_memories_are_not_crowded_out(memory: ToolMemory, langmem: Any, way: str) -> None:
    """A manager takes the five best of what it finds by their score; entries have none."""

    def embed(texts: Sequence[str]) -> list[list[float]]:
        return [[float("parcel" in text), float("tea" in text), 0.1] for text in texts]

    inner = InMemoryStore(index={"dims": 3, "embed": embed, "fields": ["content.content"]})
    store = EntryBaseStore(memory, inner=inner)
    for i in range(3):
        store.put(OF_ANN, str(i), {"kind": "Memory", "content": {"content": f"note {i} on a parcel"}})
    for _ in range(6):
        rate(memory, True, "cheap_courier", user=ANN)
    managing = Managing(inserting("Nothing new."))
    await manage(langmem, store, managing, ANN, way)
    assert [f"note {i} on a parcel" in managing.shown[0] for i in range(3)] == [True] * 3
    assert managing.shown[0].count("A past run of this agent") == 2


# --- langmem's executor ---


def test_entries_and_critiques_are_written_when_langmem_says_so(langmem: Any, tmp_path: Path) -> None:
    asked: list[Entry] = []

    def criticise(entry: Entry, similar: Sequence[Entry], /) -> Critique:
        asked.append(entry)
        return Critique(went_wrong="Dear.", call=2, instead="Take the cheap courier.")

    memory = ToolMemory(
        tmp_path / "memory",
        tools=ParcelDesk().tools,
        methods=default_methods(Entries(critic=criticise)),
        executor=LangmemExecutor(),
    )
    with memory:
        memory.finish(past_run(1, "fast_courier"), thread_id="1", success=False, comment="Too dear.")
        assert memory.flush(timeout=30)
        [entry] = memory.entries.recall(QUERY)
        assert (entry.comment, entry.blamed) == ("Too dear.", "fast_courier")
        assert "Take the cheap courier." in entry.critique
    assert len(asked) == 1
    with ToolMemory(tmp_path / "memory", read_only=True) as again:
        assert again.entries.recall(QUERY) == [entry]


ENDS = """
import sys
sys.path.insert(0, "tests")
from parcels import NAMES, ParcelDesk, past_run, request
from langgraph_toolmem import ToolMemory
from langgraph_toolmem.stores.executors import LangmemExecutor

memory = ToolMemory(sys.argv[1], tools=ParcelDesk().tools, executor=LangmemExecutor())
memory.finish(past_run(1, "fast_courier"), thread_id="1", success=True)
memory.close()
print("closed")
"""


@pytest.mark.slow
def test_the_process_ends_after_close_and_the_entry_is_there(langmem: Any, tmp_path: Path) -> None:
    """langmem's thread is no daemon."""
    done = subprocess.run(
        [sys.executable, "-c", ENDS, str(tmp_path / "memory")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "closed\n"), done.stderr
    with ToolMemory(tmp_path / "memory", read_only=True) as memory:
        assert [entry.tools for entry in memory.entries.recall(QUERY)] == [("find_parcel", "fast_courier")]


# --- the example ---


def test_the_example_finds_both_and_nothing_of_another_user(langmem: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from examples import with_langmem

    with_langmem.main()
    first, second, told, third, other = capsys.readouterr().out.strip().split("\n\n")
    assert [part.split(":")[0] for part in (first, second, told, third, other)] == ["ann"] * 4 + ["bob"]
    assert "found" not in first
    assert "calls fast_courier" in first
    assert second.count("found in tool_runs") == 1
    assert "Verdict: it went wrong." in second
    assert 'What the user said: "25 EUR is far too dear"' in second
    assert "calls cheap_courier" in second
    assert "calls manage_memory" in told
    assert "found in ann: no fast courier for me" in third
    assert third.count("found in tool_runs") == 2
    assert "calls cheap_courier" in third
    assert "found" not in other
    assert "calls fast_courier" in other
