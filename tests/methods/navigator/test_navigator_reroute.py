"""Another way when a call failed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.plan.planner import equivalents, plan, recombine, same_effects
from langgraph_toolmem.runs.tools import ToolSpec

TEXT = {"type": "string"}


def tool(name: str, takes: Any = (), gives: Any = ()) -> ToolSpec:
    parameters = {"type": "object", "properties": dict.fromkeys(takes, TEXT), "required": list(takes)}
    return ToolSpec(name, "", parameters, {"type": "object", "properties": dict.fromkeys(gives, TEXT)})


FLIGHTS = [
    tool("search_airport", ["city"], ["airport_code", "airport_name"]),
    tool("lookup_airport", ["city"], ["airport_code", "timezone"]),
    tool("read_itinerary", ["email"], ["airport_code"]),
    tool("create_airport", ["city"], ["airport_code", "airport_name"]),
    tool("find_flights", ["airport_code"], ["flight_id"]),
    tool("list_departures", ["airport_code"], ["flight_id"]),
    tool("book_flight", ["flight_id"], ["booking_id"]),
]


def test_equivalents_give_the_same_from_the_same():
    graph = ToolDependencyGraph(FLIGHTS)
    assert equivalents(graph, "search_airport", needed=["airport_code"]) == ["lookup_airport", "read_itinerary"]
    assert equivalents(graph, "search_airport", needed=["airport_name"]) == [], "writing is no reading"
    assert equivalents(graph, "find_flights") == ["list_departures"]
    assert equivalents(graph, "find_flights", avoid=["list_departures"]) == []


READS, WRITES, DESTROYS = (True, False), (False, False), (None, True)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("get_x",), ("list_x",), True),
        (("get_x",), ("send_x",), False),  # of undeclared tools the verbs have to agree
        (("get_x",), ("zorb_x",), True),
        (("get_x", READS), ("send_x", READS), True),  # a declaration goes before a verb
        (("get_x", READS), ("list_x",), False),
        (("get_x",), ("list_x", READS), False),
        (("send_x", WRITES), ("mail_x",), True),
        (("drop_x", DESTROYS), ("erase_x",), False),
        (("drop_x", DESTROYS), ("erase_x", DESTROYS), True),
    ],
)
def test_only_a_tool_with_the_same_side_effects_stands_in(one: Any, other: Any, same: bool):
    def spec(name: str, declared: tuple[bool | None, bool] = (None, False)) -> ToolSpec:
        return replace(tool(name), read_only=declared[0], destructive=declared[1])

    assert same_effects(spec(*one), spec(*other)) is same


def test_an_equivalent_takes_the_place_of_what_failed_and_nothing_is_done_again():
    graph = ToolDependencyGraph(FLIGHTS)
    chain = plan(graph, "book_flight", ["city"], avoid=["lookup_airport", "list_departures"]).chains[0]
    assert chain.tools == ("search_airport", "find_flights", "book_flight")
    for failed, done, fallback, first in (
        ("search_airport", [], "lookup_airport", "lookup_airport"),
        ("find_flights", ["search_airport"], "list_departures", "list_departures"),
    ):
        found = recombine(graph, chain, [failed], ["city"], done=done)
        assert (found.way, found.fallback) == ("equivalent", fallback)
        assert found.chain is not None
        assert (found.chain.tools[0], found.chain.tools[-1]) == (first, "book_flight")
    (spec,) = [spec for spec in FLIGHTS if spec.name == "find_flights"]
    alone = ToolDependencyGraph([spec])
    short = plan(alone, "find_flights").chains[0]
    assert recombine(alone, short, ["find_flights"]).chain is None


def test_without_an_equivalent_the_way_goes_upstream():
    graph = ToolDependencyGraph(
        [
            tool("find_user", ["email"], ["user_id"]),
            tool("get_card", ["user_id"], ["card_id"]),
            tool("find_phone", ["email"], ["phone_key"]),
            tool("get_wallet", ["phone_key"], ["wallet_id", "card_id"]),
            tool("pay", ["card_id"]),
        ]
    )
    chain = plan(graph, "pay", ["email"], avoid=["get_wallet"]).chains[0]
    assert chain.tools == ("find_user", "get_card", "pay")

    found = recombine(graph, chain, ["find_user"], ["email"])
    assert found.way == "upstream"
    assert found.chain is not None
    assert found.chain.tools == ("find_phone", "get_wallet", "pay")


def test_a_target_that_failed_is_replaced_by_its_equivalent():
    graph = ToolDependencyGraph(
        [
            tool("send_mail", ["recipient", "subject", "body"], ["status"]),
            tool("post_mail", ["recipient", "subject", "body"], ["status"]),
            tool("read_mail", ["recipient", "subject", "body"], ["status"]),
        ]
    )
    chain = plan(graph, "send_mail").chains[0]
    found = recombine(graph, chain, ["send_mail"])
    assert (found.way, found.fallback) == ("equivalent", "post_mail")
    assert recombine(graph, chain, ["send_mail", "post_mail"]).way == "none"
