"""Another way when a call failed, and how the graph changes with time."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.evolve.evolution import propagate, prunable, prune_score
from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.navigator.plan.planner import plan
from langgraph_toolmem.navigator.plan.reroute import equivalents, recombine
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
    found = equivalents(graph, "search_airport", needed=["airport_code"])

    assert [(e.tool, e.needs) for e in found] == [("lookup_airport", ()), ("read_itinerary", ("email",))]
    assert found[0].score > found[1].score
    assert [e.tool for e in equivalents(graph, "search_airport", needed=["airport_name"])] == [], (
        "writing is no reading"
    )
    assert [e.tool for e in equivalents(graph, "find_flights")] == ["list_departures"]
    assert equivalents(graph, "find_flights", avoid=["list_departures"]) == []


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


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_the_prune_score_by_hand():
    assert prune_score(3, 1) == pytest.approx(0.5 * sigmoid(0.25) + 0.5 * sigmoid(0.25))
    assert prune_score(8, 2, lam=0.9) == pytest.approx(0.9 * sigmoid(0.2) + 0.1 * sigmoid(0.1))
    assert prune_score(0, 0) == pytest.approx(0.5 * 0.5 + 0.5)


HISTORY = History(
    uses={"find_flights": 50, "search_airport": 2, "list_departures": 5},
    failures={"list_departures": 5, "search_airport": 1},
)


def test_the_tools_with_the_highest_scores_leave_first():
    graph = ToolDependencyGraph(FLIGHTS)
    found = prunable(graph, HISTORY, above=0.55)
    assert [(leaving.tool, leaving.calls, leaving.failure_rate, leaving.gone) for leaving in found] == [
        ("list_departures", 5, 1.0, False),
        ("search_airport", 2, 0.5, False),
    ]
    assert prunable(graph, HISTORY, above=0.55, most=1) == found[:1]
    assert len(graph) == len(FLIGHTS)


def test_tools_never_called_leave_only_if_asked_and_some_never():
    graph = ToolDependencyGraph(FLIGHTS)
    called = {"find_flights", "list_departures", "search_airport"}
    assert {leaving.tool for leaving in prunable(graph, HISTORY, most=99)} == called
    found = prunable(graph, HISTORY, most=99, unused=True, keep=["book_flight"])
    assert {leaving.tool for leaving in found} == {spec.name for spec in FLIGHTS} - {"book_flight"}
    assert found[0].calls == 0
    with pytest.raises(ConfigurationError, match="needs a bound"):
        prunable(graph, HISTORY)


def test_weights_follow_recent_use_slowly():
    found = propagate({("a", "b"): 0.5, ("x", "y"): 0.4}, {("a", "b"): 1, ("c", "b"): 2}, {"b": 4})
    assert found == pytest.approx({("a", "b"): 0.9 * 0.5 + 0.1 * 0.25, ("c", "b"): 0.1 * 0.5, ("x", "y"): 0.4})


share = st.floats(0, 1)


@given(st.dictionaries(st.tuples(*[st.sampled_from("ab")] * 2), share), st.integers(0, 9), st.integers(0, 9), share)
def test_weights_stay_shares(weights: dict[tuple[str, str], float], good: int, uses: int, eta: float):
    found = propagate(weights, {("a", "b"): good}, {"b": uses}, eta=eta)
    assert all(0 <= weight <= 1 + 1e-12 for weight in found.values())
    assert weights.keys() <= found.keys()
