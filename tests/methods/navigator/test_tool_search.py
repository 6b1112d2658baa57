"""Searching a catalogue: what is found, what is indexed, and that coming and going tools leave no trace."""

from __future__ import annotations

import asyncio
import math
import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.embeddings import Embeddings
from langchain_core.tools import tool

from langgraph_toolmem.navigator.tool_search.index import DESCRIPTION, K1, NAME, TOOLKIT, B, WordIndex
from langgraph_toolmem.navigator.tool_search.ranking import (
    completing,
)
from langgraph_toolmem.navigator.tool_search.request import read
from langgraph_toolmem.navigator.tool_search.search import ToolSearch
from langgraph_toolmem.runs.tools import ToolSpec, read_tools
from langgraph_toolmem.text.tools import Fields, Wording, embedded_text, kit_name, kit_of


def spec(name: str, description: str = "", *parameters: str, said: str = "") -> ToolSpec:
    properties = {each: {"type": "string", "description": said} for each in parameters}
    return ToolSpec(name, description, {"type": "object", "properties": properties})


def of_kit(tool: ToolSpec, toolkit: str) -> ToolSpec:
    return replace(tool, toolkit=toolkit)


def travel() -> list[ToolSpec]:
    kits = {
        "Skyways": [
            ("search_flights", "Find flights between two airports", "origin", "destination"),
            ("flight_status", "Whether a flight is delayed", "flight_number"),
            ("list_airports", "Airports of a country", "country"),
        ],
        "Bedfinder": [
            ("search_hotels", "Find hotels in a city", "city", "check_in"),
            ("reserve_room", "Reserve a room in a hotel", "hotel_id"),
            ("hotel_reviews", "What guests say about a hotel", "hotel_id"),
        ],
        "Postman": [
            ("send_mail", "Send an email", "to", "body"),
            ("list_inbox", "Messages in the inbox", "folder"),
        ],
    }
    return [
        of_kit(spec(name, description, *parameters), kit)
        for kit, tools in kits.items()
        for name, description, *parameters in tools
    ]


def names(found):
    return [each.name for each in found]


def test_a_compound_request_finds_a_tool_for_each_of_its_clauses():
    found = ToolSearch(travel()).search("Find flights to Oslo, reserve a hotel room and email me the plan.", 5)
    assert {"search_flights", "reserve_room", "send_mail"} <= set(names(found))
    by_name = {each.name: each for each in found}
    assert by_name["search_flights"].piece == "Find flights to Oslo"
    assert by_name["send_mail"].piece == "email me the plan"
    assert by_name["reserve_room"].toolkit == "Bedfinder"


def test_the_name_of_a_toolkit_in_the_request_counts():
    kits = [of_kit(spec(f"shorten_{i}", "Shorten a link"), kit) for i, kit in enumerate(("Bitly", "Tiny", "Cut"))]
    assert names(ToolSearch(kits).search("Shorten a link using bitly", 3))[0] == "shorten_0"
    assert names(ToolSearch(kits).search("Shorten a link using cut", 3))[0] == "shorten_2"


@pytest.mark.parametrize(
    "query", ["", "   ", "?!", "the of and", "\ud800"], ids=["empty", "blank", "marks", "stop", "bad"]
)
def test_requests_that_say_nothing(query):
    search = ToolSearch(travel())
    assert search.search(query, 5) == []
    found, sums = search.sums(query)
    assert len(found) == len(sums) == 8
    assert not sums.any()


SMALL_TALK = [
    "thanks!", "good morning", "Hey there, how are you today?", "yes, please go ahead", "That's all for today, bye",
    "Thank you so much for your help, have a great day!", "ok", "I don't understand", "👍 sounds good", "Guten Tag",
    "merci beaucoup", "never mind", "Sorry, just a moment", "you’re amazing",
]  # fmt: skip


def test_small_talk_finds_nothing_and_requests_something():
    cards = [
        spec("thanks_card", "Good morning and thanks, a great day: yes"), spec("understand", "go ahead, bye, sorry"),
        spec("guten_tag", "merci, amazing moment"), spec("sounds", "good sounds, never mind today"),
    ]  # fmt: skip
    for query in SMALL_TALK:
        assert ToolSearch(cards).search(query, 5) == []
        assert ToolSearch(cards, embedder=Concepts()).search(query, 5) == []
    for query in ("What day is it today?", "play music", "send thanks to Ann", "Wetter morgen"):
        assert read(query).texts
    assert read("thanks " * 60).sentences == 1


def test_awkward_schemas_are_indexed():
    tools = [
        {"name": "a.b", "description": "x" * 10_000 + " hidden", "parameters": {"$ref": "#/$defs/P", "$defs": {"P": {
            "type": "object", "properties": {"zebra_id": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}}}},
        {"name": "c", "parameters": {"properties": {"p": True, "q": {"description": 5}}}},
        {"name": "d", "description": None},
    ]  # fmt: skip
    search = ToolSearch(read_tools(tools).values())
    assert names(search.search("zebra", 3))[0] == "a.b"
    assert search.search("hidden", 3) == []
    assert "c" in search


def test_toolkits_from_dicts_metadata_and_names():
    @tool
    def find_page(query: str) -> str:
        """Find a page."""
        return query

    find_page.metadata = {"toolkit": "Wiki", "category": "Reference"}
    given = [
        find_page,
        {"type": "function", "function": {"name": "n", "description": "", "toolkit": "Kit", "category": 3}},
        {"name": "calendar.create_event"},
        {"name": "plain"},
    ]
    listed = list(read_tools(given).values())
    assert [(kit_name(each), each.category) for each in listed] == [
        ("Wiki", "Reference"), ("Kit", ""), ("calendar", ""), ("", ""),
    ]  # fmt: skip
    assert [kit_of(each) for each in listed] == ["Reference\nWiki", "\nKit", "\ncalendar", ""]
    named = {"a/b": "a", "mcp__server__tool": "mcp__server", "get_it": "", ".x": "", "x.": ""}
    assert {name: kit_name(spec(name)) for name in named} == named


def test_glued_words_are_split_by_the_words_of_others():
    wording = Wording()
    for i in range(3):
        wording.learn(spec(f"t{i}", "search the web with a request and get the list"))
    assert wording.pieces("searchwebrequest") == ("search", "web", "request")
    assert wording.pieces("getlist") == ("get", "list")
    assert wording.pieces("request") == ()
    assert wording.pieces("websearcher") == ()
    assert wording.plain("searchwebrequest.getList") == "search web request get list"
    assert ToolSearch([*(spec(f"t{i}", "search the web with a request") for i in range(3)), spec("webrequest")]).search(
        "web request", 4
    )


def test_what_all_tools_of_a_server_say_is_not_embedded():
    wording = Wording()
    tools = [of_kit(spec(f"t{i}", f"This is part of the Math API. Does thing {i}.", "x"), "Math") for i in range(3)]
    for each in tools:
        wording.learn(each)
    assert embedded_text(tools[1], wording) == "Math: t 1. Does thing 1.. x"
    wording.forget(tools[2])
    assert "part of the Math API" in embedded_text(tools[1], wording)


def fields(**given: str) -> Fields:
    return Fields(*(tuple(given.get(field, "").split()) for field in Fields._fields))


def test_bm25_by_hand():
    index = WordIndex()
    index.add(fields(name="red door", description="red"), 0)
    index.add(fields(name="door"), 1)
    answer = index.ask([("red", "red", "blue")])
    idf = math.log(1 + (2 - 1 + 0.5) / 1.5)
    rest = K1 * (1 - B + B * 3 / 2)
    assert answer.texts[0] == pytest.approx([math.sqrt(2) * idf * (K1 + 1) * 2 / (2 + rest), 0])
    blue = math.log(1 + 2.5 / 0.5)
    assert answer.most == pytest.approx([(K1 + 1) * (math.sqrt(2) * idf + blue)])


def test_coverage_and_pairs_by_hand():
    index = WordIndex()
    index.add(fields(name="red door", description="red", toolkit="house"), 0)
    index.add(fields(name="door", toolkit="barn"), 1)
    answer = index.ask([("red", "door")])
    red, door = math.log(1 + 1.5 / 1.5), math.log(1 + 0.5 / 2.5)
    assert answer.covered[NAME] == pytest.approx([1, 1])
    assert answer.covered[DESCRIPTION] == pytest.approx([1, 0])
    assert answer.covered[TOOLKIT] == pytest.approx([0, 0])
    assert index.ask([("red",)]).covered[NAME] == pytest.approx([red / (red + door), 0])
    assert answer.pairs == pytest.approx([math.log(3), 0])


def test_what_no_tool_so_far_answers_moves_up():
    scores = np.array([3.0, 2.9, 2.1], dtype=np.float32)
    near = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 0.9]], dtype=np.float32)
    assert completing(scores, near, 3) == [0, 2, 1]
    assert completing(scores - np.array([0, 0, 1], dtype=np.float32), near, 3) == [0, 1, 2]
    assert completing(scores, near, 1) == [0]
    assert completing(scores, near[:0], 9) == [0, 1, 2]


def told(search: ToolSearch, query: str):
    return {each.name: pytest.approx(each.score, abs=1e-5) for each in search.search(query, 20)}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 7), max_size=12), st.randoms(use_true_random=False))
def test_tools_added_one_by_one_or_removed_are_as_if_they_had_come_at_once(gone, draw):
    tools = travel()
    draw.shuffle(tools)
    search = ToolSearch()
    for listing in tools:
        search.add([listing])
    for place in gone:
        search.remove([tools[place].name])
    for place in gone[::2]:
        search.add([tools[place]])
    left = [listing for listing in tools if listing.name in search]
    query = "find a hotel and mail the flight status"
    assert told(search, query) == {each.name: each.score for each in ToolSearch(left).search(query, 20)}
    assert len(search) == len(left)


@pytest.fixture
def sizes(monkeypatch):
    """How many tools each question went through, removed ones too."""
    found: list[int] = []
    ask = WordIndex.ask
    monkeypatch.setattr(WordIndex, "ask", lambda index, pieces: found.append(len(index)) or ask(index, pieces))
    return found


def test_searching_while_tools_come_and_go():
    search = ToolSearch(travel())
    errors: list[BaseException] = []

    def change():
        try:
            for i in range(60):
                search.add([spec(f"x{i}", "hotel extra")])
                search.remove([f"x{i - 5}"])
        except BaseException as error:  # noqa: BLE001 - shown by the assertion
            errors.append(error)

    thread = threading.Thread(target=change)
    thread.start()
    while thread.is_alive():
        assert search.search("find a hotel", 3)
    thread.join()
    assert errors == []


class Concepts(Embeddings):
    """Knows that lodging is a hotel, and keeps what it is asked."""

    def __init__(self, model: str = "concepts") -> None:
        self.model = model
        self.texts: list[str] = []
        self.batches: list[int] = []
        self.broken = False

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if self.broken:
            raise RuntimeError("no connection")
        self.texts += texts
        self.batches.append(len(texts))
        return [self._one(text.lower()) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]

    def _one(self, text: str) -> list[float]:
        groups = (
            ("hotel", "lodging", "room"),
            ("flight", "airport", "plane"),
            ("mail", "inbox", "letter"),
            ("image", "picture"),
        )
        return [float(sum(word in text for word in group)) for group in groups] + [0.1]


def test_meaning_finds_what_no_word_does():
    assert ToolSearch(travel()).search("lodging", 3) == []
    found = ToolSearch(travel(), embedder=Concepts()).search("lodging", 3)
    assert {each.toolkit for each in found} == {"Bedfinder"}
    assert "meaning" in found[0].parts


def test_vectors_stay_when_many_removals_rebuild_the_index(sizes):
    model = Concepts()
    search = ToolSearch([*travel(), *(spec(f"t{i}", f"thing {i}") for i in range(200))], embedder=model)
    before = search.search("lodging", 3)
    model.batches.clear()
    search.remove([f"t{i}" for i in range(200)])
    assert names(search.search("lodging", 3)) == names(before)
    assert sizes[-1] == 8
    assert model.batches == [1]


def test_following_a_catalogue(monkeypatch):
    search = ToolSearch(travel())
    left = {each.name: each for each in travel()[:3]}
    other = {**left, "list_airports": spec("list_airports", "ride a horse"), "new": spec("new", "paint a wall")}
    search.follow(other)
    alone = ToolSearch(other.values())
    assert len(search) == 4
    for query in ("horse", "paint", "find flights"):
        assert told(search, query) == {each.name: each.score for each in alone.search(query, 20)}
    read, fields = [], Wording.fields
    with monkeypatch.context() as patch:
        patch.setattr(Wording, "fields", lambda wording, each: read.append(each.name) or fields(wording, each))
        search.follow({**other, "one more": spec("one more", "x")})
    assert read == ["one more"]
    search.follow({})
    assert len(search) == 0
    assert search.search("paint", 3) == []


def test_only_what_is_available_is_found():
    search = ToolSearch(travel())
    found = search.search("find a hotel and mail me", 8, available=["send_mail", "search_flights", "nowhere"])
    assert set(names(found)) <= {"send_mail", "search_flights"}
    assert search.search("find a hotel", 5, available=[]) == []


async def test_async_search_is_the_same():
    search = ToolSearch(travel(), embedder=Concepts())
    query = "Find lodging and mail me"
    assert await search.asearch(query, 4) == search.search(query, 4)
    ours, theirs = await search.asums(query), search.sums(query)
    assert ours[0] == theirs[0]
    assert np.array_equal(ours[1], theirs[1])
    plain = ToolSearch(travel())
    assert await plain.asearch(query, 4) == plain.search(query, 4)
    assert await plain.asearch("", 4) == []


def test_an_embedder_that_fails_leaves_the_words(caplog):
    model = Concepts()
    search = ToolSearch(travel(), embedder=model)
    model.broken = True
    with caplog.at_level("WARNING", "langgraph_toolmem"):
        assert names(search.search("hotel reviews", 2)) == names(ToolSearch(travel()).search("hotel reviews", 2))
        assert asyncio.run(search.asearch("hotel reviews", 2))
    assert sum("words alone" in record.message for record in caplog.records) == 1
    model.broken = False
    assert search.search("lodging", 3)
