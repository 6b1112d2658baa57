"""Tools, parameters and links between them, by hand: one parameter for one meaning, weights, a table of scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_navigator_meaning import anything

from langgraph_toolmem import Navigator, ToolMemory
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.navigator.dependencies import MAX_PRODUCERS, Link, ToolDependencyGraph, weight_of
from langgraph_toolmem.navigator.evidence import LINK_TABLE, History, ToolCalls, plain_path
from langgraph_toolmem.navigator.plan.planner import plan
from langgraph_toolmem.navigator.plan.search import Producers
from langgraph_toolmem.papers.naviagent.learned import LinkTable, digest_of
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.schema import paths_of

TEXT = {"type": "string"}


def tool(name: str, takes: Any = (), gives: Any = (), **more: Any) -> ToolSpec:
    """A tool. Names are texts; all inputs without a question mark are required."""
    taken, given_out = (dict.fromkeys(each, TEXT) if not isinstance(each, dict) else each for each in (takes, gives))
    parameters: dict[str, Any] = {"type": "object", "properties": {k.rstrip("?"): each for k, each in taken.items()}}
    parameters["required"] = [key for key in taken if not key.endswith("?")]
    returns = {"type": "object", "properties": given_out} if given_out else None
    return ToolSpec(name, "", parameters, returns, **more)


def node(graph: ToolDependencyGraph, name: str, direction: str, path: str) -> str:
    api = graph.apis[name]
    port = next(p for p in (api.inputs if direction == "in" else api.outputs) if p.path == path)
    return graph.cluster_of(port).id


NAMES = ["city", "city_name", "id", "order_id", "sku", "product_sku", "name", "origin_city", "status"]
values = st.dictionaries(
    st.sampled_from(NAMES), st.sampled_from([TEXT, {"type": "boolean"}, {**TEXT, "format": "email"}]), max_size=3
)
specs = st.lists(
    st.builds(tool, st.sampled_from(["get_order", "find_product", "list_users", "buy", "x.y"]), values, values),
    min_size=1,
    max_size=5,
    unique_by=lambda spec: spec.name,
)


def shape(graph: ToolDependencyGraph) -> set[frozenset[tuple[str, str, str]]]:
    """The partition of all ports, by tool, direction and path."""
    found = set()
    for cluster in graph.clusters.values():
        sides = (("out", cluster.producers), ("in", cluster.consumers))
        found.add(frozenset((tool, side, path) for side, row in sides for tool in row for path in row[tool]))
    ports = [port for api in graph.apis.values() for port in (*api.inputs, *api.outputs)]
    assert sum(map(len, found)) == len(ports)
    assert {key for each in found for key in each} == {port.key for port in ports}
    return found


@settings(max_examples=80)
@given(specs, st.randoms())
def test_clusters_are_the_same_in_whatever_order_tools_come(given_specs: list[ToolSpec], random: Any):
    mixed = random.sample(given_specs, len(given_specs))
    assert shape(ToolDependencyGraph(given_specs)) == shape(ToolDependencyGraph(mixed))


@settings(max_examples=80)
@given(specs)
def test_adding_the_last_tool_is_building_with_it_and_removing_it_undoes_that(given_specs: list[ToolSpec]):
    *first, last = given_specs
    built = ToolDependencyGraph(given_specs)
    grown = ToolDependencyGraph(first)
    before = shape(grown)
    for _ in range(2):
        grown.update([last])
        assert shape(grown) == shape(built)
    for _ in range(2):
        grown.remove(last.name)
        assert shape(grown) == before
    for spec in first:
        grown.remove(spec.name)
    assert not any([grown.apis, grown.clusters])


# --- links ---


def links(graph: ToolDependencyGraph, name: str, path: str, **more: Any) -> dict[tuple[str, str], Link]:
    port = next(port for port in graph.apis[name].inputs if port.path == path)
    return {(link.producer, link.output): link for link in graph.links_into(port, **more)}


def test_of_many_producers_the_akin_ones_are_looked_at():
    many = [tool(f"source{chr(97 + i // 26)}{chr(97 + i % 26)}", [], ["city"]) for i in range(3 * MAX_PRODUCERS)]
    graph = ToolDependencyGraph([*many, tool("list_spam", [], ["city"]), tool("use_spam", ["city"])])
    found = links(graph, "use_spam", "city")
    assert len(found) == MAX_PRODUCERS
    assert ("list_spam", "city") in found


def test_the_weight_is_of_the_targets_uses():
    history = History(uses={"i": 90, "j": 10}, transitions={("i", "j"): 4, ("k", "j"): 20})
    assert history.weight("i", "j") == 4 / 10
    assert history.weight("j", "i") == 0
    assert history.weight("i", "never used") == 0
    assert history.weight("k", "j") == 1, "never more than all uses"
    assert History(weights={("i", "j"): 0.7}, uses={"j": 1}).weight("i", "j") == 0.7


def test_structure_counts_as_much_as_two_uses():
    history = History(uses={"j": 8}, transitions={("i", "j"): 6})
    assert weight_of(Link("i", "x", "j", "x", 1.0), history, {}) == pytest.approx((6 + 2 * 0.6) / 10)
    assert weight_of(Link("other", "x", "j", "x", 1.0), history, {}) == pytest.approx(2 * 0.6 / 10)
    assert weight_of(Link("i", "x", "j", "x", 0.5), History(), {}) == pytest.approx(0.3)


def test_recent_calls_say_more_of_whether_a_tool_works():
    works = History({"a": 10, "b": 10}, {"a": 5, "b": 5}, {"a": ToolCalls(5, 0), "b": ToolCalls(5, 5)}).works
    assert works("a") > works("b") > 0
    assert works("never called") == 1


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
    assert not links(graph, "refund", "payment_method_id")


schemas = st.dictionaries(
    st.sampled_from(["type", "properties", "items", "anyOf", "required", "description"]), anything
)
names = st.text(max_size=8) | st.sampled_from(["get.user", "_", "by", "find_", "x" * 300, "日本語", "a b", "💥"])


@settings(max_examples=100)
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
    assert not graph.clusters


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


# --- scores of links ---


def world() -> dict[str, ToolSpec]:
    """Two tools give what a third takes; by structure the first is likelier."""
    made = [tool(name, (), ["order_code"]) for name in ("list_order", "find_parcel")]
    return {each.name: each for each in [*made, tool("read_order", ["order_code"])]}


def test_what_was_seen_since_still_counts():
    graph = ToolDependencyGraph(world().values())
    (port,) = graph.apis["read_order"].inputs
    history = History(uses={"read_order": 8}, transitions={("list_order", "read_order"): 6})
    learned = {(name, "order_code", "read_order", "order_code"): 0.9 for name in ("list_order", "find_parcel")}
    producers = Producers(graph, history, learned=learned)
    found = {link.producer: producers.weight(link) for link in graph.links_into(port, history)}
    assert found["list_order"] == pytest.approx((6 + 2 * 0.9) / (8 + 2))
    assert found["find_parcel"] == pytest.approx(2 * 0.9 / (8 + 2))


def table(specs: dict[str, ToolSpec], **more: Any) -> dict[str, Any]:
    rows = [("find_parcel", "order_code", "read_order", "order_code", 0.9)]
    digests = {name: digest_of(spec) for name, spec in specs.items()}
    return {"links": 50, "learned": 0.9, "structural": 0.6, "digests": digests, "rows": rows, **more}


def test_a_table_has_scores_of_tools_that_are_as_they_were():
    specs = world()
    key = ("find_parcel", "order_code", "read_order", "order_code")
    assert LinkTable(json.loads(json.dumps(table(specs))), specs).scores == {key: 0.9}
    assert LinkTable(table(specs), {**specs, "find_parcel": tool("find_parcel", ["x"], ["y"])}).scores == {}
    link = Link(*key, fit=1.0)
    assert weight_of(link, History(), {key: 0.1}) == weight_of(link, History(), {}), "it lifts and never lowers"
    for wrong in ({}, table(specs, rows=[1]), table(specs, digests=[]), []):
        with pytest.raises(StorageError, match="Train again"):
            LinkTable(wrong, specs)  # type: ignore[arg-type]


def test_a_memory_uses_a_table_that_is_better_than_structure(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    specs = world()
    for worth, first in ((0.9, "find_parcel"), (0.5, "list_order")):
        (tmp_path / LINK_TABLE).write_text(json.dumps(table(specs, learned=worth)))
        with ToolMemory(tmp_path, tools=specs.values(), methods=[Navigator()]) as memory:
            assert (memory.navigator.learned is not None) is (worth == 0.9)
            assert memory.navigator.plan(target="read_order").tools[0] == first
            if worth == 0.9:
                assert memory.report()["navigator"]["learned"] == 0.9
    (tmp_path / LINK_TABLE).write_bytes(b"damaged")
    with ToolMemory(tmp_path, tools=specs.values(), methods=[Navigator()]) as hurt:
        assert hurt.navigator.learned is None
        assert hurt.navigator.plan(target="read_order").tools[0] == "list_order"
    assert caplog.text.count("learned links are not used") == 1
