"""APIs, parameters and links between tools, by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_navigator_schema import anything

from langgraph_toolmem.navigator.dependencies.graph import MAX_PRODUCERS, ToolDependencyGraph
from langgraph_toolmem.navigator.dependencies.links import Link, RecordScorer
from langgraph_toolmem.navigator.history import Flow, History, plain_path
from langgraph_toolmem.navigator.plan.planner import plan
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.schema import paths_of

TEXT = {"type": "string"}


def tool(name: str, takes: Any = (), gives: Any = (), **more: Any) -> ToolSpec:
    """All inputs without a question mark are required; values are texts."""
    properties = {key.rstrip("?"): TEXT for key in takes}
    parameters = {"type": "object", "properties": properties, "required": [k for k in takes if not k.endswith("?")]}
    returns = {"type": "object", "properties": dict.fromkeys(gives, TEXT)} if gives else None
    return ToolSpec(name, "", parameters, returns, **more)


def links(graph: ToolDependencyGraph, name: str, path: str, **more: Any) -> dict[tuple[str, str], Link]:
    port = next(port for port in graph.apis[name].inputs if port.path == path)
    return {(link.producer, link.output): link for link in graph.links_into(port, **more)}


def test_a_bare_id_of_nothing_hardly_links():
    graph = ToolDependencyGraph([tool("x", [], ["id", "code_word"]), tool("y", ["id", "code_word"])])
    bare, named = links(graph, "y", "id")["x", "id"], links(graph, "y", "code_word")["x", "code_word"]
    assert bare.fit == pytest.approx(0.3 * named.fit)


def test_reading_is_better_than_writing_and_that_than_destroying():
    graph = ToolDependencyGraph(
        [
            tool("find_ticket", ["title"], ["ticket_id"]),
            tool("create_ticket", ["title"], ["ticket_id"]),
            tool("purge_ticket", ["title"], ["ticket_id"], destructive=True),
            tool("close", ["ticket_id"]),
        ]
    )
    fits = [
        links(graph, "close", "ticket_id")[name, "ticket_id"].fit
        for name in ("find_ticket", "create_ticket", "purge_ticket")
    ]
    assert fits == sorted(fits, reverse=True)
    assert len(set(fits)) == 3


def test_of_many_producers_the_akin_ones_are_looked_at():
    many = [tool(f"source{chr(97 + i // 26)}{chr(97 + i % 26)}", [], ["city"]) for i in range(3 * MAX_PRODUCERS)]
    graph = ToolDependencyGraph([*many, tool("list_spam", [], ["city"]), tool("use_spam", ["city"])])
    found = links(graph, "use_spam", "city")
    assert len(found) == MAX_PRODUCERS
    assert ("list_spam", "city") in found


def test_flows_seen_in_runs_are_links_though_nothing_looks_alike():
    graph = ToolDependencyGraph([tool("weather", [], ["place"]), tool("forecast", ["q"])])
    history = History(
        uses={"forecast": 4},
        flows={Flow("weather", "place", "forecast", "q"): 3, Flow("gone", "x", "forecast", "q"): 9},
    )

    assert links(graph, "forecast", "q") == {}
    (link,) = links(graph, "forecast", "q", history=history).values()
    assert (link.producer, link.output, link.kind, link.fit) == ("weather", "place", "flow", 0.0)
    assert RecordScorer(history).known(link).weight == pytest.approx(3 / 6)


def test_the_weight_is_of_the_targets_uses():
    history = History(uses={"i": 90, "j": 10}, transitions={("i", "j"): 4, ("k", "j"): 20})
    assert history.weight("i", "j") == 4 / 10
    assert history.weight("j", "i") == 0
    assert history.weight("i", "never used") == 0
    assert history.weight("k", "j") == 1, "never more than all uses"
    assert History(weights={("i", "j"): 0.7}, uses={"j": 1}).weight("i", "j") == 0.7


def test_structure_counts_as_much_as_two_uses():
    history = History(uses={"j": 8}, transitions={("i", "j"): 6})
    scorer = RecordScorer(history)
    assert scorer.known(Link("i", "x", "j", "x", 1.0)).weight == pytest.approx((6 + 2 * 0.6) / 10)
    assert scorer.known(Link("other", "x", "j", "x", 1.0)).weight == pytest.approx(2 * 0.6 / 10)
    assert RecordScorer().known(Link("i", "x", "j", "x", 0.5)).weight == pytest.approx(0.3)


def test_observed_results_add_outputs_and_keep_no_values():
    graph = ToolDependencyGraph([tool("get_order_details", ["order_id"]), tool("refund", ["payment_method_id"])])
    assert links(graph, "refund", "payment_method_id") == {}

    result = {"payment_history": [{"payment_method_id": "card_77", "amount": 3}]}
    graph.note_outputs("get_order_details", paths_of(result))
    assert set(links(graph, "refund", "payment_method_id")) == {
        ("get_order_details", "payment_history[].payment_method_id")
    }
    assert "card_77" not in repr(graph.apis) + repr(graph.observed)

    graph.update([graph.apis["get_order_details"].spec])
    assert links(graph, "refund", "payment_method_id"), "a newer schema keeps what was seen"
    kept = json.loads(json.dumps(graph.observed))
    again = ToolDependencyGraph([api.spec for api in graph.apis.values()], observed=kept)
    assert links(again, "refund", "payment_method_id")
    graph.remove("get_order_details")
    graph.update([tool("get_order_details", ["order_id"])])
    assert not links(graph, "refund", "payment_method_id")


schemas = st.dictionaries(
    st.sampled_from(["type", "properties", "items", "anyOf", "required", "description"]), anything
)
names = st.text(max_size=8) | st.sampled_from(["get.user", "_", "by", "find_", "x" * 300, "日本語", "a b", "💥"])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(names, schemas, st.none() | schemas), max_size=4))
@pytest.mark.slow
def test_no_tool_breaks_the_graph(given_tools: list[tuple[str, dict[str, Any], dict[str, Any] | None]]):
    made = [ToolSpec(name, "long " * 2_000, takes, gives) for name, takes, gives in given_tools]
    graph = ToolDependencyGraph(made)
    for name in list(graph.apis):
        answer = plan(graph, name, ["city", ""])
        assert answer.chains[0].target == name
        graph.note_outputs(name, paths_of({"id": [{}], "": 1}))
    for name in list(graph.apis):
        graph.remove(name)
    assert len(graph.clusters) == 0


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("$", ""),
        ("$.user.id", "user.id"),
        ("$.orders[*].id next", "orders[].id"),
        ("$[*].id all@$[*].name", "[].id"),
        ("$.Exchange Rate", "Exchange Rate"),
        ("$.*~ next", "[]"),
    ],
    ids=str,
)
def test_paths_of_the_evidence_graph(theirs: str, ours: str):
    assert plain_path(theirs) == ours
