"""Searching for tools: what is found, tools that come and go, meaning, past runs, and the tools before a target."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import histories as h
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.embeddings import Embeddings

from langgraph_toolmem import Navigator, ToolMemory
from langgraph_toolmem.navigator import targets_of
from langgraph_toolmem.navigator.deferred import MAX_ABOUT, MAX_CHOICES, described
from langgraph_toolmem.navigator.precedents import Precedents, called_before
from langgraph_toolmem.navigator.tool_search import K1, B, ToolHit, ToolSearcher, WordIndex, completing, read
from langgraph_toolmem.runs.tools import ToolSpec, read_tools
from langgraph_toolmem.text.wording import (
    ASKS,
    ORDERS,
    UNCLEAR,
    Wording,
    effect_of,
    embedded_text,
    kit_name,
    kit_of,
    split_clauses,
    wanted_by,
    wanted_effect,
)


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
    query = "Find flights to Oslo, reserve a hotel room and email me the plan."
    found = {each.name: each for each in ToolSearcher(travel()).search(query, 5)}
    assert {"search_flights", "reserve_room", "send_mail"} <= found.keys()
    assert found["reserve_room"].toolkit == "Bedfinder"
    assert {*names(ToolSearcher(travel()).search(query, 8, available=["send_mail", "x"]))} == {"send_mail"}


def test_small_talk_finds_nothing_and_requests_something():
    cards = [spec("thanks_card", "Good morning and thanks, a great day: yes"), spec("sounds", "good sounds today")]
    for query in (
        "",
        " ?!",
        "the of and",
        "\ud800",
        "Hey there, how are you today?",
        "That's all for today, bye",
        "👍 ok",
    ):
        assert ToolSearcher(cards).search(query, 5) == []
        assert ToolSearcher(cards, embedder=Concepts()).search(query, 5) == []
    for query in ("play music", "send thanks to Ann", "thanks " * 60):
        assert read(query) is not None


def test_awkward_schemas_are_indexed():
    tools = [
        {"name": "a.b", "description": "x" * 10_000 + " hidden", "parameters": {"$ref": "#/$defs/P", "$defs": {"P": {
            "type": "object", "properties": {"zebra_id": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}}}},
        {"name": "c", "parameters": {"properties": {"p": True, "q": {"description": 5}}}},
        {"name": "d", "description": None},
    ]  # fmt: skip
    search = ToolSearcher(read_tools(tools).values())
    assert names(search.search("zebra", 3))[0] == "a.b"
    assert search.search("hidden", 3) == []
    assert "c" in search.specs


def test_toolkits_are_declared_or_stand_in_names():
    declared = replace(spec("find_page"), toolkit="Wiki", category="Reference")
    assert (kit_name(declared), kit_of(declared)) == ("Wiki", "Reference\nWiki")
    named = {
        "a/b": "a",
        "mcp__server__tool": "mcp__server",
        "calendar.create": "calendar",
        "get_it": "",
        ".x": "",
        "x.": "",
    }
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
    assert ToolSearcher(
        [*(spec(f"t{i}", "search the web with a request") for i in range(3)), spec("webrequest")]
    ).search("web request", 4)


def test_what_all_tools_of_a_server_say_is_not_embedded():
    wording = Wording()
    tools = [of_kit(spec(f"t{i}", f"This is part of the Math API. Does thing {i}.", "x"), "Math") for i in range(3)]
    for each in tools:
        wording.learn(each)
    assert embedded_text(tools[1], wording) == "Math: t 1. Does thing 1.. x"
    wording.forget(tools[2])
    assert "part of the Math API" in embedded_text(tools[1], wording)


def test_what_no_tool_so_far_answers_moves_up():
    scores = np.array([3.0, 2.9, 2.1], dtype=np.float32)
    near = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 0.9]], dtype=np.float32)
    assert completing(scores, near, 3) == [0, 2, 1]
    assert completing(scores - np.array([0, 0, 1], dtype=np.float32), near, 3) == [0, 1, 2]
    assert completing(scores, near, 1) == [0]
    assert completing(scores, near[:0], 9) == [0, 1, 2]


def scores(search: ToolSearcher, query: str) -> dict[str, Any]:
    return {each.name: pytest.approx(each.score, abs=1e-4) for each in search.search(query, 20)}


def test_tools_that_come_or_leave_are_as_if_they_had_come_at_once():
    tools = {each.name: each for each in travel()}
    searcher, query = ToolSearcher(), "find a hotel and mail the flight status"
    for count in range(1, 9):
        searcher.follow(dict([*tools.items()][:count]))
    assert scores(searcher, query) == scores(ToolSearcher(travel()), query)
    other = {**tools, "list_airports": spec("list_airports", "ride a horse"), "new": spec("new", "paint a wall")}
    del other["send_mail"]
    searcher.follow(other)
    assert names(searcher.search("horse", 1)) == ["list_airports"]
    assert "send_mail" not in names(searcher.search(query, 20))
    searcher.follow({**other, **{f"t{i}": spec(f"t{i}", f"hotel {i}") for i in range(200)}})
    searcher.follow(other)  # so many left that the index is rebuilt
    assert scores(searcher, query) == scores(ToolSearcher(other.values()), query)
    searcher.follow({})
    assert searcher.search("paint", 3) == []


def test_bm25_by_hand():
    index = WordIndex()
    assert index.add(["red", "door", "red"]) == 0
    assert index.add(["door"]) == 1
    assert index.counts(["red", "blue", "door"]).tolist() == [[2, 0], [0, 0], [1, 1]]
    red, blue = math.log(1 + 1.5 / 1.5), math.log(1 + 2.5 / 0.5)
    assert index.rarity(["red", "blue"]) == pytest.approx([red, blue])
    own = (K1 + 1) * 2 / (2 + K1 * (1 - B + B * 3 / 2))
    share = math.sqrt(2) * red * own / (math.sqrt(2) * red + blue)
    assert index.nearest(["red", "red", "blue"]) == pytest.approx([share, 0])


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
    assert ToolSearcher(travel()).search("lodging", 3) == []
    found = ToolSearcher(travel(), embedder=Concepts()).search("lodging", 3)
    assert {each.toolkit for each in found} == {"Bedfinder"}


def test_an_embedder_that_fails_leaves_the_words(caplog):
    model = Concepts()
    search = ToolSearcher(travel(), embedder=model)
    model.broken = True
    with caplog.at_level("WARNING", "langgraph_toolmem"):
        assert names(search.search("hotel reviews", 2)) == names(ToolSearcher(travel()).search("hotel reviews", 2))
    assert sum("words alone" in record.message for record in caplog.records) == 1
    model.broken = False
    assert search.search("lodging", 3)


# --- precedents, and the tools before a target ---


def test_votes_come_from_similar_requests():
    precedents = Precedents()
    for i in range(6):
        precedents.add(["book", "pay"], f"book a hotel room for {i} nights")
        precedents.add(["plot"], f"draw a chart of sales in region {i}")
    votes = precedents.votes("please book a room in a hotel")
    assert votes["book"] == votes["pay"] > 3 * votes.get("plot", 0)
    assert all(0 <= share <= 1 for share in votes.values())
    assert precedents.votes("") == precedents.votes("xylophone") == {}
    assert precedents.company("book") == {"pay": pytest.approx(6 / 7)}


def test_an_episode_that_is_removed_or_replaced_leaves_no_count():
    one, two = Precedents(), Precedents()
    for key, tools, request in (("x", "ab", "book a hotel room"), ("y", "bc", "draw a chart"), ("z", "c", "book it")):
        one.add(tools, request, key=key)
    one.remove(["x", "never there"])
    one.add("ac", "draw a chart", key="y")
    two.add("c", "book it")
    two.add("ac", "draw a chart")
    for name in "abc":
        assert one.company(name) == two.company(name)
    assert one.votes("book a hotel").keys() == two.votes("book a hotel").keys() == {"c"}
    assert len(one) == 2
    for number in range(300):
        one.add("d", f"request {number}", key="again")
    assert one.votes("request 299").keys() == {"d"}
    one.add([], "draw a chart", key="y")
    one.keep_latest(1)
    assert len(one) == 1


def test_what_was_called_with_a_target_or_is_of_its_toolkit_comes_before_it():
    precedents = Precedents()
    for _ in range(20):
        precedents.add(["list_inbox", "reserve_room"])
    searcher = ToolSearcher(travel())
    known = called_before(searcher, "a bed please", "reserve_room", 2, precedents=precedents)
    assert names(known)[0] == "list_inbox"
    alone = called_before(searcher, "", "reserve_room", 9, precedents=Precedents())
    assert {*names(alone)[:2]} == {"search_hotels", "hotel_reviews"}
    assert len(alone) == 7
    assert called_before(searcher, "", "reserve_room", 9, precedents=precedents, available=["send_mail"])[0].score < 0.5


# --- in a memory ---


def told(name: str, description: str, *parameters: str, **more: Any) -> dict[str, Any]:
    return h.schema(name, *parameters) | {"description": description} | more


TOOLS = [
    told("reserve_room", "Reserve a room in a hotel", "hotel_id", toolkit="Bedfinder", category="Travel"),
    told("search_flights", "Find flights between two airports", "origin"),
    told("send_mail", "Send an email", "to"),
    told("rotateImage", "Turn a picture", "recipientAddress"),
]


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
    extra = [*TOOLS, told("new", "Show an image")]
    with ToolMemory(tmp_path, tools=extra, embeddings=model, read_only=True) as memory:
        assert "new" in names(memory.navigator.search("picture", k=9))
        assert sorted(hit.id for hit in memory.core.vectors.get("tools")) == sorted(each["name"] for each in TOOLS)


# --- finished runs ----------------------------------------------------------------------------------------------

PAST = [told("alpha", "Does this"), told("beta", "Does that"), told("gamma", "Books"), told("delta", "Trip")]
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


def test_the_best_hits_are_targets() -> None:
    hits = [ToolHit(name, score) for name, score in (("a", 0.4), ("b", 0.5), ("c", 0.16), ("d", 0.1))]
    assert targets_of(hits) == ["a", "b", "c"]


# --- requests in pieces ---


@pytest.mark.parametrize(
    "text",
    [
        "Convert 3.5 miles at example.com/a.b",
        "Compare e.g. Oslo with Rome",
        "Find the android handbook",
        "Etsi lento ja varaa hotelli",
    ],
    ids=["dots inside", "abbreviation", "join inside a word", "language not known"],
)
def test_what_stays_together(text):
    assert split_clauses(text).clauses == (text,)


def test_sentences_and_clauses():
    found = split_clauses("I plan a trip. Find a flight to Oslo, book a hotel and then mail me the plan!")
    assert found.sentences == ("I plan a trip.", "Find a flight to Oslo, book a hotel and then mail me the plan!")
    assert found.clauses == ("I plan a trip", "Find a flight to Oslo", "book a hotel", "mail me the plan")
    assert split_clauses("查找航班，预订酒店。发送邮件").clauses == ("查找航班", "预订酒店", "发送邮件")
    assert split_clauses("Tasks:\n1. find a flight\n- mail me").sentences == ("Tasks:", "find a flight", "mail me")
    assert split_clauses("go home. go home. go home.").sentences == ("go home.",)
    many = split_clauses(". ".join(f"do {i}, see {i}" for i in range(1000)))
    assert len(many.sentences) == 8
    assert len(many.clauses) <= 16


@given(st.text(max_size=300))
def test_any_text_is_split_into_parts_of_itself(text):
    found = split_clauses(text)
    assert all(piece in text for piece in (*found.sentences, *found.clauses))
    assert bool(found.sentences) == bool(found.clauses)


# --- effects ---


@pytest.mark.parametrize(
    ("text", "effect"),
    [
        ("How much credit is left on our account?", ASKS),
        ("Could you please show me the invoices", ASKS),
        ("Is Tom online", ASKS),
        ("the tickets of yesterday?", ASKS),
        ("Zeige mir alle Rechnungen", ASKS),
        ("¿Cuántos pedidos hay?", ASKS),
        ("Montrez les factures", ASKS),
        ("注文はありますか？", ASKS),
        ("Please cancel the order", ORDERS),
        ("Can you send it to Ann?", ORDERS),
        ("Mute the call", ORDERS),
        ("Get rid of the old file", ORDERS),
        ("Storniere die Bestellung", ORDERS),
        ("Hoeveel bestellingen zijn er", ASKS),
        ("Visa fakturorna", ASKS),
        ("Hvor mange ordrer", ASKS),
        ("Pokaż faktury", ASKS),
        ("Kaç sipariş var", ASKS),
        ("Faturaları göster", ASKS),
        ("Сколько заказов", ASKS),
        ("Покажіть рахунки", ASKS),
        ("哪些订单还没有发货", ASKS),
        ("显示余额", ASKS),
        ("請求書を見せて", ASKS),
        ("송장 보여줘", ASKS),
        ("मुझे चालान दिखाओ", ASKS),
        ("كم عدد الطلبات", ASKS),
        ("Verwijder de factuur", ORDERS),
        ("Avbryt beställningen", ORDERS),
        ("Usuń fakturę", ORDERS),
        ("Siparişi iptal et", ORDERS),
        ("Удали заказ", ORDERS),
        ("Створи рахунок", ORDERS),
        ("取消订单", ORDERS),
        ("注文を取り消してください", ORDERS),
        ("주문을 취소해 주세요", ORDERS),
        ("ऑर्डर रद्द करें", ORDERS),
        ("ألغ الطلب", ORDERS),
        ("in the evening", UNCLEAR),
        ("", UNCLEAR),
    ],
)
def test_what_a_request_wants(text: str, effect: float) -> None:
    assert wanted_effect(text) == effect


def test_a_clause_that_says_nothing_wants_what_the_one_before_does() -> None:
    wanted = wanted_by("Find the order, the invoice and delete them", ["Find the order", "the invoice", "delete them"])

    assert [each.effect for each in wanted] == [ASKS, ASKS, ORDERS]
    assert [each.removal for each in wanted] == [0.0, 0.0, 1.0]
    (wanted_in_chinese,) = wanted_by("取消订单", ["取消订单"])
    assert wanted_in_chinese.removal == 1.0


@pytest.mark.parametrize(
    ("name", "read_only", "route", "effect"),
    [
        ("balance", True, "GET /balance", 1.0),
        ("accountsBalanceGet", False, "POST /accounts/balance/get", 1.0),
        ("transactionsSync", False, "POST /transactions/sync", 0.0),
        ("transferCancel", False, "POST /transfer/cancel", -1.0),
        ("putSettings", False, "PUT /settings", -1.0),
        ("balance", None, "", 0.0),
        ("watchPods", True, "GET /api/v1/watch/pods", 0.0),
    ],
)
def test_the_effect_of_a_tool(name: str, read_only: bool | None, route: str, effect: float) -> None:
    assert effect_of(ToolSpec(name, "", {}, read_only=read_only, route=route)) == effect


def test_the_effect_decides_between_tools_of_the_same_words() -> None:
    searcher = ToolSearcher(
        ToolSpec(f"order{method}", "The order of a customer.", {}, read_only=method == "GET", route=f"{method} /orders")
        for method in ("GET", "POST", "DELETE")
    )
    requests = ("Which order has the customer?", "Make an order for the customer", "Cancel the customer's order")

    assert [searcher.search(text, 1)[0].name for text in requests] == ["orderGET", "orderPOST", "orderDELETE"]


@pytest.mark.parametrize(
    ("request_text", "first"),
    [
        ("Which pods are in the shop?", "poda"),
        ("Show me the pod web-1", "podb"),
        ("Create a pod", "podc"),
        ("Change the pod", "podd"),
    ],
)
def test_the_number_and_the_verb_decide_between_operations_on_one_thing(request_text: str, first: str) -> None:
    routes = {
        "poda": "GET /shops/{shop}/pods",
        "podb": "GET /shops/{shop}/pods/{pod}",
        "podc": "POST /shops/{shop}/pods",
        "podd": "PATCH /shops/{shop}/pods/{pod}",
    }
    specs = [
        ToolSpec(name, "A pod of the shop.", {}, read_only=route.startswith("GET"), route=route)
        for name, route in routes.items()
    ]
    for ordered in (specs, specs[::-1]):
        assert ToolSearcher(ordered).search(request_text, 1)[0].name == first


def test_the_choices_that_a_long_description_lists_by_name_are_kept() -> None:
    listed = ["- tax-expert: Knows tax law.", "- payroll-expert: Knows payroll."]
    advice = ["- Use it for work of several steps, never for one call.", "Then wait."]
    about = "\n".join(["Launch a subagent. " * 12, "Available agent types:", *listed, *advice])
    text = described(ToolSpec("task", about, {"type": "object", "properties": {"subagent_type": {"type": "string"}}}))
    assert all(item in text for item in listed)
    assert "never for one call" not in text
    many = "\n".join(["Launch a subagent. " * 12, *(f"- agent-{number}: Knows a thing." for number in range(500))])
    assert len(described(ToolSpec("task", many, {}))) < MAX_ABOUT + MAX_CHOICES + 100
