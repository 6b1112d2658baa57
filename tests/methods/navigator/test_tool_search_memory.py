"""Searching the tools of a memory: what is found, what is kept for the next process, and what happens when it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import histories as h
import pytest
from test_tool_search import Concepts

from langgraph_toolmem import Navigator, ToolMemory
from langgraph_toolmem.base.errors import ConfigurationError, EmbedderChangedError
from langgraph_toolmem.navigator.tool_search.hit import ToolHit, targets_of
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.stores.chroma_repair import rebuild
from langgraph_toolmem.stores.vectors import TOOLS as KIND
from langgraph_toolmem.stores.vectors import TextVectors, VectorStore
from langgraph_toolmem.text.embedders import resolve_embedder
from langgraph_toolmem.text.tools import ToolIndex


def tool(name: str, description: str, *parameters: str, **more: Any) -> dict[str, Any]:
    return h.schema(name, *parameters) | {"description": description} | more


TOOLS = [
    tool("reserve_room", "Reserve a room in a hotel", "hotel_id", toolkit="Bedfinder", category="Travel"),
    tool("search_flights", "Find flights between two airports", "origin"),
    tool("send_mail", "Send an email", "to"),
    tool("rotateImage", "Turn a picture", "recipientAddress"),
]


def names(found: Any) -> list[str]:
    return [hit.name for hit in found]


def test_the_words_need_no_chroma(tmp_path: Path) -> None:
    with ToolMemory(tmp_path, tools=TOOLS) as memory:
        assert memory.navigator.search("reserve a room")
    assert not (tmp_path / "chroma").exists()


@pytest.mark.parametrize("read_only", [False, True], ids=["writing", "reading"])
def test_a_memory_without_tools_finds_those_it_was_told_of_before(tmp_path: Path, read_only: bool) -> None:
    with ToolMemory(tmp_path, tools=TOOLS) as memory:
        expected = memory.navigator.search("reserve a room and send an email")
    with ToolMemory(tmp_path, read_only=read_only) as memory:
        assert memory.navigator.search("reserve a room and send an email") == expected
        assert memory.navigator.tool_search.current() is memory.navigator.tool_search.current()
    if not read_only:
        with ToolMemory(tmp_path) as memory:
            memory.core.catalogue.adopt(read_tools([tool("paint_wall", "Paint a wall")]))
            assert names(memory.navigator.search("reserve a room or paint a wall")) == ["paint_wall"]


def test_the_next_process_embeds_the_request_only(tmp_path: Path) -> None:
    first, second = Concepts(), Concepts()
    with ToolMemory(tmp_path, tools=TOOLS, embeddings=first) as memory:
        expected = memory.navigator.search("lodging")
        assert len(first.texts) == 5
    with ToolMemory(tmp_path, tools=TOOLS, embeddings=second) as memory:
        found = memory.navigator.search("lodging")
        assert second.texts == ["lodging"]
        assert names(found) == names(expected)
        assert [hit.score for hit in found] == pytest.approx([hit.score for hit in expected], abs=1e-5)


def test_a_read_only_memory_keeps_no_vectors(tmp_path: Path) -> None:
    model = Concepts()
    with ToolMemory(tmp_path, tools=TOOLS, embeddings=model) as memory:
        memory.navigator.search("lodging", available=["send_mail"])
    extra = [*TOOLS, tool("new", "Show an image")]
    with ToolMemory(tmp_path, tools=extra, embeddings=model, read_only=True) as memory:
        assert "new" in names(memory.navigator.search("picture", k=9))
        assert sorted(hit.id for hit in memory.core.vectors.get(KIND)) == sorted(each["name"] for each in TOOLS)


async def test_vectors_are_made_in_parts_and_what_was_made_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langgraph_toolmem.stores.vectors.BATCH", 2)
    model = Concepts()
    made: list[list[str]] = []
    real = model.embed_documents

    def counted(texts: list[str]) -> list[list[float]]:
        made.append(texts)
        if len(made) == 2:
            raise TimeoutError("no answer")
        return real(texts)

    monkeypatch.setattr(model, "embed_documents", counted)
    texts = {name: f"text of {name}" for name in "abcde"}
    with VectorStore(None, embedder=resolve_embedder(model), namespace=("toolmem",)) as store:
        vectors = TextVectors(store, KIND)
        with pytest.raises(Exception, match="no answer"):
            vectors.of(texts)
        found = vectors.of(texts)
        one, two, three = ["text of a", "text of b"], ["text of c", "text of d"], ["text of e"]
        assert made == [one, two, two, three]
        assert list(found["a"]) == pytest.approx([0, 0, 0, 0, 1])
        again = await vectors.aof({**texts, "f": "text of f", "a": "another text"})
        assert made[4:] == [["another text", "text of f"]] or made[4:] == [["text of f", "another text"]]
        assert {*again} == {*texts, "f"}


# --- finished runs ----------------------------------------------------------------------------------------------

PAST = [tool("alpha", "Does this"), tool("beta", "Does that"), tool("gamma", "Books"), tool("delta", "Trip")]
TRIP = "Organise the Oslo trip of team {}"


def went(memory: ToolMemory, number: int, *tools: str, user: str | None = None, success: bool | None = True) -> None:
    messages = h.history(h.user(TRIP.format(number)), *(h.call(name, {}, {"n": number}) for name in tools), h.words())
    memory.finish(messages, thread_id=f"{user}-{number}", user_id=user, success=success)


def lifted(found: Any, before: dict[str, float]) -> set[str]:
    return {hit.name for hit in found if hit.score > 2 * before.get(hit.name, 0.0)}


async def test_finished_runs_lift_the_tools_they_called(tmp_path: Path) -> None:
    embeddings = Concepts()
    query = TRIP.format(99)
    with ToolMemory(tmp_path, tools=PAST, embeddings=embeddings) as memory:
        before = {hit.name: hit.score for hit in memory.navigator.search(query)}
        for number in range(8):
            went(memory, number, "alpha", "beta")
        memory.entries.recall(query)  # waits until they are written
        found = memory.navigator.search(query)
        assert lifted(found, before) == {"alpha", "beta"}
        assert await memory.navigator.asearch(query) == found
        assert memory.navigator.search("Books") != []
    with ToolMemory(tmp_path, tools=PAST, embeddings=embeddings) as memory:
        assert lifted(memory.navigator.search(query), before) == {"alpha", "beta"}
    with ToolMemory(tmp_path, tools=PAST, embeddings=embeddings, methods=[Navigator()]) as memory:
        assert {hit.name: hit.score for hit in memory.navigator.search(query)} == pytest.approx(before, abs=1e-5)


def test_failed_runs_lift_nothing_and_forgotten_ones_neither() -> None:
    query = TRIP.format(99)
    with ToolMemory.ephemeral(tools=PAST, namespace=("toolmem", "{user_id}")) as memory:
        plain = names(memory.navigator.search(query))
        for number in range(6):
            went(memory, number, "alpha", user="ann")
            went(memory, number, "beta", user="bob", success=False)
        for user in ("ann", "bob"):
            memory.entries.recall(query, user_id=user)  # waits until they are written
        assert {*names(memory.navigator.search(query, user_id="ann"))} == {"alpha", *plain}
        assert names(memory.navigator.search(query, user_id="bob")) == plain
        assert names(memory.navigator.search(query)) == plain, "nobody's runs are nobody's"
        precedents = memory.navigator.tool_search.precedents("ann")
        assert precedents is not None
        assert len(precedents) == 6
        memory.forget(user_id="ann")
        precedents = memory.navigator.tool_search.precedents("ann")
        assert precedents is not None
        assert len(precedents) == 0
        assert names(memory.navigator.search(query, user_id="ann")) == plain


def test_only_the_latest_runs_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langgraph_toolmem.navigator.tool_search.precedents.MOST", 3)
    with ToolMemory.ephemeral(tools=PAST, now=iter(range(10**6)).__next__) as memory:
        for number in range(9):
            went(memory, number, "alpha" if number < 6 else "beta")
        assert memory.flush()
        assert "alpha" not in names(memory.navigator.search(TRIP.format(9)))
        past = memory.navigator.tool_search.precedents(None)
        assert past is not None
        assert len(past) == 3
        went(memory, 9, "gamma")
        assert memory.flush()
        assert memory.navigator.tool_search.precedents(None) is past
        assert len(past) == 3
        assert past.votes(TRIP.format(5)).keys() == {"beta", "gamma"}


async def test_what_is_called_before_a_target() -> None:
    with ToolMemory.ephemeral(tools=PAST) as memory:
        for number in range(8):
            went(memory, number, "alpha", "gamma", "delta")
        memory.entries.recall("trip")
        found = memory.navigator.search("Organise the trip", target="delta", k=2)
        assert {*names(found)} == {"alpha", "gamma"}
        assert found == await memory.navigator.asearch("Organise the trip", target="delta", k=2)
        assert found[0].parts["came before"] != 0
        assert names(memory.navigator.search("", target="delta", available=["beta", "gamma"])) == ["gamma", "beta"]
        with pytest.raises(ConfigurationError, match="knows no tool 'omega'"):
            memory.navigator.search("trip", target="omega")
        with pytest.raises(ConfigurationError, match="knows no tool 'omega'"):
            await memory.navigator.asearch("trip", target="omega")


async def test_a_changed_embedder_is_not_hidden_by_the_words(tmp_path: Path) -> None:
    with ToolMemory(tmp_path, tools=TOOLS, embeddings=Concepts("one")) as memory:
        memory.navigator.search("lodging")
    with ToolMemory(tmp_path, tools=TOOLS, embeddings=Concepts("two")) as memory:
        with pytest.raises(EmbedderChangedError):
            memory.navigator.search("lodging")
        with pytest.raises(EmbedderChangedError):
            await memory.navigator.asearch("lodging")
    rebuild(tmp_path, resolve_embedder(Concepts("two")), keep=False)
    with ToolMemory(tmp_path, tools=TOOLS, embeddings=Concepts("two")) as memory:
        assert names(memory.navigator.search("lodging", k=1)) == ["reserve_room"]
    with ToolMemory(tmp_path, tools=TOOLS) as memory:
        assert names(memory.navigator.search("room", k=1)) == ["reserve_room"]


def test_the_quick_index_ranks_by_words() -> None:
    index = ToolIndex()
    assert index.search("anything", 3) == []
    hits = [ToolHit(name, score, "") for name, score in (("a", 0.4), ("b", 0.5), ("c", 0.16), ("d", 0.1))]
    assert targets_of(hits) == ["a", "b", "c"]
    index.declare(read_tools(TOOLS))
    [(name, score), *_] = index.search("rotating the images", 2)
    assert name == "rotateImage"
    assert 0 < score <= 1
    assert index.search("xylophone", 5) == index.search("image", 0) == []
    index.declare(read_tools([tool("paint", "Paint a wall")]))
    assert index.search("rotate", 2) == []
