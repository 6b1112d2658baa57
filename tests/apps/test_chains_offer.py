"""What is offered, from plans and hits by hand: chains whole or not at all, the bound, the order, the reasons."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import histories as h
import pytest

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.navigator.plan.chains import Chain, ChainStep, Gift, Plan, Subgraph
from langgraph_toolmem.navigator.select.candidates import (
    Candidates,
    find_candidates,
    find_reroutes,
    progress_of,
    turn_candidates,
)
from langgraph_toolmem.navigator.select.selection import Reroute, Selection, searched_for, select_tools
from langgraph_toolmem.navigator.tool_search.hit import ToolHit
from langgraph_toolmem.runs.run import SEARCH_TOOL
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.turn.hints import SELECTED, merge_selected, new_selected, selected_now


def chain(*tools: str) -> Chain:
    """A chain in which each tool gives its id to the next."""
    made = [ChainStep(tool, gives=(Gift("id", after, "id"),)) for tool, after in pairwise(tools)]
    return Chain(tools[-1], (*made, ChainStep(tools[-1])), (), 1.0)


def planned(*chains: Chain) -> Plan:
    return Plan(chains, Subgraph(), "alpha_beta")


def hits(*names: str) -> list[ToolHit]:
    return [ToolHit(name, 1 - index / 10, name) for index, name in enumerate(names)]


def test_chains_come_before_isolated_hits_and_whole() -> None:
    found = select_tools(planned(chain("a", "b", "c"), chain("d", "e")), hits("c", "x", "e", "y"), most=6)
    assert [*found.tools] == ["c", "b", "a", "e", "d", "x"]
    assert found.chains == (("a", "b", "c"), ("d", "e"))
    assert found.cut == ()
    assert found.tools["c"] == "fits the request (1.00); needs 2 others first"
    assert found.tools["e"] == "fits the request (0.80); needs 1 other first"
    assert found.tools["b"] == "gives id to c"
    assert found.tools["a"] == "gives id to b on the way to c"
    assert found.tools["x"] == "fits the request (0.90)"


def test_a_chain_that_does_not_fit_is_left_and_its_target_is_a_hit() -> None:
    found = select_tools(planned(chain("a", "b", "c"), chain("d", "e")), hits("c", "x", "e"), most=2)
    assert [*found.tools] == ["e", "d"]
    assert found.chains == (("d", "e"),)
    assert found.cut == (("a", "b", "c"),)
    found = select_tools(planned(chain("a", "b", "c")), hits("c", "x", "e"), most=2)
    assert [*found.tools] == ["c", "x"]
    shared = select_tools(planned(chain("a", "b"), chain("a", "b", "c")), hits("b", "c"), most=3)
    assert [*shared.tools] == ["b", "a", "c"]


def test_what_is_always_offered_counts_and_stays() -> None:
    found = select_tools(planned(chain("a", "b")), hits("b", "x"), most=3, always=["z", "w"])
    assert [*found.tools] == ["z", "w", "b"]
    assert found.cut == (("a", "b"),)
    assert [*select_tools(planned(chain("a")), hits("a"), most=1, always=["z", "w"]).tools] == ["z", "w"]


def test_earlier_calls_come_before_hits() -> None:
    found = select_tools(planned(chain("a")), hits("a", "x"), most=3, earlier=["s", "t", "u"])
    assert [*found.tools] == ["a", "s", "t"]
    assert found.tools["s"] == "called earlier in this run"


def test_what_the_turn_brings_comes_on_top_and_pushes_nothing_out() -> None:
    asked = searched_for(Selection({"k": "fits the request (0.50)"}), "pay  the\nbill" + "!" * 200)
    plan, found_hits = planned(chain("a", "b")), hits("b", "x", "y")
    before = select_tools(plan, found_hits, most=3)
    after = select_tools(plan, found_hits, most=3, called={"a": True, "q": True, "r": False}, asked=asked)
    assert [*before.tools] == ["b", "a", "x"]
    assert [*after.tools] == ["b", "a", "x", "k", "q", "r"]
    assert before.tools.items() <= after.tools.items()
    assert after.tools["q"] == "called in this turn"
    assert after.tools["r"] == "called in this turn, and it failed"
    reason = after.tools["k"]
    assert reason.startswith('the model searched for "pay the bill!!!')
    assert reason.endswith('…": fits the request (0.50)')
    assert len(reason) < 200


def test_another_way_joins_with_its_reason() -> None:
    fallback = Reroute("b", chain("n", "b2", "c"), "b2")
    found = select_tools(planned(chain("a", "b", "c")), hits("c"), most=3, called={"b": False}, reroutes=[fallback])
    assert [*found.tools] == ["c", "b", "a", "b2", "n"]
    assert found.tools["b2"] == "can stand in for b, which failed"
    assert found.tools["n"] == "gives id to b2 on the way to c, without b, which failed"
    assert found.chains == (("a", "b", "c"), ("n", "b2", "c"))
    round_it = Reroute("b", chain("n", "c"))
    found = select_tools(None, [], most=4, called={"b": False}, reroutes=[round_it])
    assert found.tools["c"] == "ends another way; needs 1 other first, without b, which failed"
    assert select_tools(None, [], most=4, reroutes=[round_it], available={"c"}) == Selection()


def test_tools_that_are_not_there_are_not_offered() -> None:
    found = select_tools(
        planned(chain("a", "b"), chain("d", "e")),
        hits("b", "e", "x"),
        most=9,
        always=["z"],
        called={"q": True},
        asked={"k": "why"},
        earlier=["s"],
        available={"b", "d", "e"},
    )
    assert {*found.tools} == {"b", "d", "e"}
    assert found.chains == (("d", "e"),)


def test_an_empty_offer_is_one() -> None:
    assert select_tools(None, [], most=3) == Selection()
    assert Selection({"a": "r"}, (("a",),)).to_event(7) == {
        "offered": {"a": "r"},
        "of": 7,
        "chains": [["a"]],
        "cut": [],
    }


# --- through a memory ---

SCHEMAS = [
    h.schema("find_customer", "name"),
    h.schema("search_customers", "name"),
    h.schema("list_orders", "customer_id"),
    h.schema("refund_order", "order_id"),
    h.schema("water_plants", "litres"),
]
NAMES = {schema["name"] for schema in SCHEMAS}


@pytest.fixture
def memory() -> ToolMemory:
    made = ToolMemory.ephemeral(tools=SCHEMAS)
    for i in range(3):
        found = {"customer_id": f"c{i}77"}
        made.finish(
            h.history(
                h.user(f"refund the order of N{i}"),
                h.call("find_customer", {"name": f"N{i}"}, found),
                h.call("list_orders", found, [{"order_id": f"o{i}88"}]),
                h.call("refund_order", {"order_id": f"o{i}88"}),
                h.words(),
            ),
            thread_id=str(i),
            success=True,
        )
    return made


def test_a_request_brings_the_whole_chain(memory: ToolMemory) -> None:
    found = find_candidates(memory.navigator, "refund an order", NAMES, most=3, targets=1)
    assert found.hits[0].name == "refund_order"
    assert found.plan is not None
    chosen = select_tools(found.plan, found.hits, most=3, available=NAMES)
    assert {*chosen.tools} == {"find_customer", "list_orders", "refund_order"}
    assert find_candidates(memory.navigator, "quantum chromodynamics", NAMES, most=3, targets=1) == Candidates()
    assert find_candidates(memory.navigator, "   ", NAMES, most=3, targets=1) == Candidates()
    assert find_candidates(memory.navigator, "refund an order", (), most=3, targets=1) == Candidates()


def test_only_tools_that_are_there_are_found(memory: ToolMemory) -> None:
    left = NAMES - {"refund_order", "find_customer"}
    found = find_candidates(memory.navigator, "refund an order", left, most=1, targets=1)
    assert [hit.name for hit in found.hits] == ["list_orders"]
    assert found.plan is not None
    assert "find_customer" not in found.plan.tools
    assert "search_customers" in found.plan.tools


def test_words_that_say_nothing_are_read_with_those_before(memory: ToolMemory) -> None:
    messages = [h.user("refund an order"), h.words("Really?"), h.user("go ahead")]
    where = progress_of(parse_run(h.history(*messages)))
    assert where.request == "go ahead"
    found = turn_candidates(memory.navigator, where, NAMES, most=3, targets=1)
    assert found.hits[0].name == "refund_order"


def test_a_failure_brings_another_way(memory: ToolMemory) -> None:
    found = find_candidates(memory.navigator, "refund an order", NAMES, most=5, targets=1)
    ways = find_reroutes(memory.navigator, found, {"find_customer": False}, NAMES)
    assert [(way.failed, way.fallback, way.chain.tools) for way in ways] == [
        ("find_customer", "search_customers", ("search_customers", "list_orders", "refund_order"))
    ]
    assert find_reroutes(memory.navigator, found, {"find_customer": True}, NAMES) == ()
    assert find_reroutes(memory.navigator, found, {"somebody_else": False}, NAMES | {"somebody_else"}) == ()
    assert find_reroutes(memory.navigator, found, {"refund_order": False}, NAMES) == ()
    alone = find_reroutes(memory.navigator, Candidates(), {"find_customer": False}, NAMES)
    assert [way.fallback for way in alone] == ["search_customers"]


def test_where_a_run_stands() -> None:
    run = parse_run(
        h.history(
            h.user("one"),
            h.call("a", {}, {}),
            h.call("b", {}, {}),
            h.call("a", {}, {}),
            h.words(),
            h.user("two"),
            h.call("c", {}, h.FAILED),
            h.call("d", {}, h.FAILED),
            h.call("d", {}, {}),
        )
    )
    where = progress_of(run)
    assert (where.request, where.before) == ("two", "one\ntwo")
    assert dict(where.called) == {"c": False, "d": True}
    assert where.earlier == ("a", "b")
    assert where.failed == {"c"}
    nothing = progress_of(parse_run([]))
    assert (nothing.request, nothing.called, nothing.earlier) == ("", {}, ())


# --- the memory's own tools ---


def test_calls_of_the_search_tool_are_no_steps() -> None:
    plain = h.history(h.user("go"), h.call("a", {"x": 1}, {"y": 2}), h.call("b", {"y": 2}, {}), h.words())
    searched = h.history(
        h.user("go"),
        h.call(SEARCH_TOOL, {"query": "q"}, "found"),
        h.call("a", {"x": 1}, {"y": 2}),
        h.call(SEARCH_TOOL, {"query": "q"}, "found"),
        h.call(SEARCH_TOOL, {"query": "r"}, "found"),
        h.call("b", {"y": 2}, {}),
        h.words(),
    )

    def said(messages: Any) -> list[Any]:
        events = parse_run(messages).events
        return [[step.tool for step in event.steps] for event in events[1:]]  # type: ignore[union-attr]

    assert said(searched) == said(plain) == [["a"], ["b"], []]
    with ToolMemory.ephemeral() as memory:
        memory.finish(searched, thread_id="r")
        view = memory.view()
        assert {*view.tools} == {"a", "b"}
        assert ("a", "b") in {(edge.source, edge.target) for edge in view.edges}
        memory.core.catalogue.adopt(read_tools([h.schema(SEARCH_TOOL, "query"), h.schema("c", "z")]))
        assert SEARCH_TOOL not in [hit.name for hit in memory.navigator.search("search tools query", k=9)]


def test_a_part_of_known_tools_is_nothing_new(memory: ToolMemory) -> None:
    catalogue = memory.core.catalogue
    before = catalogue.specs
    catalogue.adopt(read_tools(SCHEMAS[:2]))
    assert catalogue.specs is before, "or every step of a run would have the indices made anew"
    for names in (["new_tool"], ["new_tool", "newer_tool"]):
        catalogue.adopt(read_tools([h.schema(name, "x") for name in names]))
        assert {*catalogue.specs} == {*before, *names}
    assert [hit.name for hit in memory.navigator.search("newer tool", k=1)] == ["newer_tool"]


# --- the state ---


def test_offers_of_a_turn_add_up_and_another_turn_begins_anew() -> None:
    first = [h.user("one")]
    one = new_selected({"a": "r"}, first)[SELECTED]
    two = new_selected({"b": "s", "a": "other"}, first)[SELECTED]
    both = merge_selected(one, two)
    assert both is not None
    assert both["tools"] == {"a": "r", "b": "s"}
    assert merge_selected({}, one) == one  # type: ignore[typeddict-item]
    assert merge_selected(one, None) == one
    later = [*first, h.words(), h.user("two")]
    three = new_selected({"c": "t"}, later)[SELECTED]
    assert merge_selected(both, three) == three
    assert selected_now({"messages": first, SELECTED: both}) == both
    assert selected_now({"messages": later, SELECTED: both}) is None
    assert selected_now({"messages": first}) is None
    assert selected_now(first) is None
