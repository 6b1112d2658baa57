"""Parameters of one meaning become one node, by words, surroundings, an embedder, or the user's word."""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.embeddings import Embeddings

from langgraph_toolmem import Navigator, ToolMemory
from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.dependencies.vectors import ParameterVectors
from langgraph_toolmem.navigator.plan.planner import plan
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.embedders import resolve_embedder

TEXT = {"type": "string"}


def tool(name: str, takes: dict[str, Any] | None = None, gives: dict[str, Any] | None = None) -> ToolSpec:
    returns = None if gives is None else {"type": "object", "properties": gives}
    return ToolSpec(name, "", {"type": "object", "properties": takes or {}, "required": list(takes or {})}, returns)


def node(graph: ToolDependencyGraph, name: str, direction: str, path: str) -> int:
    api = graph.apis[name]
    port = next(p for p in (api.inputs if direction == "in" else api.outputs) if p.path == path)
    return graph.cluster_of(port).id


def test_spellings_and_places_of_one_meaning_are_one_node():
    graph = ToolDependencyGraph(
        [
            tool("get_weather", {"city": TEXT}),
            tool("find_hotels", {"cityName": TEXT}),
            tool("get_forecast", {"name": {**TEXT, "description": "Name of the city"}}),
            tool("locate", None, {"place": {"properties": {"city_name": TEXT}}}),
        ]
    )
    nodes = {
        node(graph, "get_weather", "in", "city"),
        node(graph, "find_hotels", "in", "cityName"),
        node(graph, "get_forecast", "in", "name"),
        node(graph, "locate", "out", "place.city_name"),
    }
    assert len(nodes) == 1


def test_ids_of_different_things_stay_apart():
    graph = ToolDependencyGraph(
        [tool("get_user", {"id": TEXT}), tool("get_order", {"id": TEXT}), tool("list_orders", None, {"order_id": TEXT})]
    )
    assert node(graph, "get_order", "in", "id") == node(graph, "list_orders", "out", "order_id")
    assert node(graph, "get_order", "in", "id") != node(graph, "get_user", "in", "id")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"type": "boolean"}, TEXT),
        ({"type": "object"}, TEXT),
    ],
    ids=["flag", "object"],
)
def test_values_that_cannot_be_the_same_stay_apart(one: dict[str, Any], other: dict[str, Any]):
    graph = ToolDependencyGraph([tool("a", {"colour": one}), tool("b", {"colour": other})])
    assert node(graph, "a", "in", "colour") != node(graph, "b", "in", "colour")


VECTORS = {"client": (1.0, 0.0), "customer": (0.96, 0.28), "invoice": (0.0, 1.0)}


class Synonyms(Embeddings):
    """Meanings in a plane: a client is a customer."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.broken = False

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.asked.append(texts)
        if self.broken:
            raise OSError("the model is away")
        return [list(next(vector for word, vector in VECTORS.items() if word in text)) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


def meanings(model: Embeddings, **options: float) -> ParameterVectors:
    return ParameterVectors(resolve_embedder(model), **options)


def test_an_embedder_joins_what_words_do_not():
    specs = [
        tool("a", {"client_id": TEXT}),
        tool("b", {"customer_id": TEXT}),
        tool("c", {"customer": TEXT}),
        tool("d", {"invoice_id": TEXT}),
    ]
    plain, dense = ToolDependencyGraph(specs), ToolDependencyGraph(specs, vectors=meanings(Synonyms()))

    assert node(plain, "a", "in", "client_id") != node(plain, "b", "in", "customer_id")
    assert node(dense, "a", "in", "client_id") == node(dense, "b", "in", "customer_id")
    assert node(dense, "c", "in", "customer") != node(dense, "b", "in", "customer_id"), "a thing is not its id"
    assert node(dense, "d", "in", "invoice_id") != node(dense, "b", "in", "customer_id")
    strict = ToolDependencyGraph(specs, vectors=meanings(Synonyms(), threshold=0.97))
    assert node(strict, "a", "in", "client_id") != node(strict, "b", "in", "customer_id")


def test_without_its_embedder_words_tell_and_the_log_says_so_once(caplog: pytest.LogCaptureFixture):
    model = Synonyms()
    model.broken = True
    specs = [tool("a", {"client_id": TEXT}), tool("b", {"client_id": TEXT})]
    graph = ToolDependencyGraph(specs, vectors=meanings(model))
    graph.update([tool("c", {"invoice_id": TEXT})])
    assert node(graph, "a", "in", "client_id") == node(graph, "b", "in", "client_id")
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["parameters are merged by words alone"]

    asked = len(model.asked)
    chain = plan(graph, "a", ["customer_id"]).chain
    assert chain is not None
    assert chain.asks
    assert len(model.asked) == asked, "a known value is no reason to ask an embedder that just failed"
    model.broken = False
    graph.update([tool("d", {"client_id": TEXT}), tool("e", {"customer_id": TEXT})])
    assert node(graph, "a", "in", "client_id") == node(graph, "e", "in", "customer_id"), "new tools are"


def test_known_values_are_embedded_while_the_graph_is_free():
    model, specs = Synonyms(), [tool("a", {"client_id": TEXT})]
    with ToolMemory.ephemeral(tools=specs, methods=[Navigator()], embeddings=model) as memory:
        memory.navigator.plan(target="a")
        free: list[bool] = []
        embed = model.embed_documents

        def look() -> None:
            with memory.navigator.dependencies():
                pass

        def watched(texts: list[str]) -> list[list[float]]:
            other = Thread(target=look, daemon=True)
            other.start()
            other.join(2)
            free.append(not other.is_alive())
            return embed(texts)

        model.embed_documents = watched  # type: ignore[method-assign]
        memory.navigator.plan(target="a", known=["customer_id"])
        assert free == [True]


def test_aliases_join_and_split():
    aliases = {"get_weather.q": "place", "find.hit.name": "place", "invoice.city": "billing city"}
    specs = [
        tool("get_weather", {"q": TEXT}),
        tool("find", None, {"hit": {"properties": {"name": TEXT, "city": TEXT}}}),
        tool("invoice", {"city": TEXT}),
        tool("travel", {"city": TEXT}),
    ]
    graph = ToolDependencyGraph(specs, aliases=aliases)
    assert node(graph, "get_weather", "in", "q") == node(graph, "find", "out", "hit.name")
    assert graph.clusters.by_id[node(graph, "get_weather", "in", "q")].label == "place"
    assert node(graph, "travel", "in", "city") == node(graph, "find", "out", "hit.city")
    assert node(graph, "invoice", "in", "city") != node(graph, "travel", "in", "city")
    graph.remove("invoice")
    graph.update(specs[2:3])
    assert graph.clusters.by_id[node(graph, "invoice", "in", "city")].label == "billing city"


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
    """The partition of all ports, and what the indexes say of it."""
    for cluster in graph.clusters.by_id.values():
        keys = {p.key for side in (cluster.producers, cluster.consumers) for row in side.values() for p in row}
        assert keys == set(cluster.members)
        assert all(graph.clusters.of_port[key] is cluster for key in keys)
    assert sum(len(c.members) for c in graph.clusters.by_id.values()) == len(graph.clusters.of_port)
    return {frozenset(cluster.members) for cluster in graph.clusters.by_id.values()}


@settings(max_examples=80, deadline=None)
@given(specs, st.randoms())
def test_clusters_are_the_same_in_whatever_order_tools_come(given_specs: list[ToolSpec], random: Any):
    mixed = random.sample(given_specs, len(given_specs))
    assert shape(ToolDependencyGraph(given_specs)) == shape(ToolDependencyGraph(mixed))


@settings(max_examples=80, deadline=None)
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
    assert not any([grown.apis, grown.clusters.by_id, grown.clusters.of_port])
