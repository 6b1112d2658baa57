"""Learned links: features by hand, the regression, the table and its checks, and a memory that learns its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from langgraph_toolmem import Navigator, ToolMemory
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.dependencies.links import EdgeScorer, Known, Link, likeness
from langgraph_toolmem.navigator.dependencies.weigh import Weigher
from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.navigator.learned import arrays, plain
from langgraph_toolmem.navigator.learned.arrays import dumped, loaded
from langgraph_toolmem.navigator.learned.features import KERNELS, NAMES, PairFeatures
from langgraph_toolmem.navigator.learned.scorer import LearnedLinks, StructuralFits, digest_of, table_of
from langgraph_toolmem.navigator.learned.trained import HGT
from langgraph_toolmem.navigator.learned.views import Views
from langgraph_toolmem.navigator.plan.chains import tree
from langgraph_toolmem.navigator.plan.planner import plan
from langgraph_toolmem.runs.tools import ToolSpec, read_tools
from langgraph_toolmem.text.embedders import resolve_embedder

BUILTIN = resolve_embedder(None)
THINGS = ("order", "flight", "invoice", "parcel", "contract", "recipe", "ticket", "meeting", "camera", "garden")


def tool(name: str, inputs: Sequence[str], outputs: Sequence[str], description: str = "") -> dict[str, Any]:
    def schema(names: Sequence[str]) -> dict[str, Any]:
        return {"type": "object", "properties": {n: {"type": "string"} for n in names}, "required": list(names)}

    parameters = {"parameters": schema(inputs), "returns": schema(outputs)}
    return {"type": "function", "function": {"name": name, "description": description, **parameters}}


def world() -> dict[str, ToolSpec]:
    """Tools in which a search is followed by what reads, and that by what mails, whatever names their values have."""
    made = []
    for thing in THINGS:
        made += [
            tool(f"search_{thing}s", ["text"], ["hits"], f"Search {thing}s by text"),
            tool(f"read_{thing}", ["reference"], ["content"], f"Read a {thing}"),
            tool(f"mail_{thing}", ["body"], ["receipt"], f"Mail a {thing} to somebody"),
        ]
    return read_tools(made)


def planted(things: Sequence[str]) -> set[tuple[str, str]]:
    both = ((f"search_{t}s", f"read_{t}", f"mail_{t}") for t in things)
    return {link for a, b, c in both for link in ((a, b), (b, c))}


def views_of(graph: ToolDependencyGraph) -> Views:
    def embed(texts: Any) -> Any:
        return dict(zip(texts, BUILTIN.embed_documents(list(texts.values())), strict=True))

    return Views(graph.apis, embed)


def setting(things: Sequence[str]) -> tuple[ToolDependencyGraph, Views, Any, np.ndarray]:
    graph = ToolDependencyGraph(world().values())
    views = views_of(graph)
    links = np.array(sorted((views.places[a], views.places[b]) for a, b in planted(things)))
    return graph, views, StructuralFits(graph, views), links


def test_propagated_links_are_the_sum_of_products_of_likenesses():
    _, views, fits, links = setting(THINGS[:4])
    pair = np.array([[views.places["search_cameras"], views.places["read_camera"]]])
    found = PairFeatures(views, fits, links).of(pair)[0]
    for number, (one, other, sharp) in enumerate(KERNELS):
        a, b = views.of[one], views.of[other]
        by_hand = sum(
            np.exp(sharp * (a[pair[0, 0]] @ a[u] - 1)) * np.exp(sharp * (b[pair[0, 1]] @ b[v] - 1)) for u, v in links
        )
        assert found[NAMES.index(f"like {number} ")] == pytest.approx(np.log(by_hand + 1e-3), abs=1e-4)


def test_the_regression_finds_what_labels_were_drawn_from():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4_000, 3))
    labels = (rng.random(4_000) < plain.sigmoid(rows @ [1.5, -1.0, 0.0] + 0.5)).astype(float)
    found = plain.regression(rows, labels, np.ones(4_000), penalty=1e-3)
    np.testing.assert_allclose(found, [1.5, -1.0, 0.0, 0.5], atol=0.15)


def test_links_between_tools_like_those_seen_are_foreseen():
    _, views, fits, links = setting(THINGS[:7])
    model = plain.fit(views, fits, links)
    places = views.places
    for thing in THINGS[7:]:  # of which no link was seen
        rows = {c: (p, w) for c, p, w in model.rows([places[f"read_{thing}"], places[f"mail_{thing}"]])}
        for producer, consumer in ((f"search_{thing}s", f"read_{thing}"), (f"read_{thing}", f"mail_{thing}")):
            producers, likely = rows[places[consumer]]
            assert views.names[producers[likely.argmax()]] == producer


class Says(EdgeScorer):
    """Proposes what it is told to, with a probability."""

    def __init__(self, **likely: float) -> None:
        self.likely = likely

    def weigh(self, links: Sequence[Link], known: Sequence[Known]) -> list[float | None]:
        found = (self.likely.get(link.producer) for link in links)
        return [None if p is None else of.joined(p) for p, of in zip(found, known, strict=True)]

    def propose(self, port: Any, k: int) -> list[str]:
        return list(self.likely)[:k] if port.tool == "read_order" else []


def test_a_proposed_link_is_in_the_plan_and_shown_as_a_suggestion():
    graph = ToolDependencyGraph(world().values())
    assert plan(graph, "read_order").chains[0].tools == ("read_order",)
    chain = plan(graph, "read_order", scorer=Says(search_orders=0.8)).chains[0]
    assert chain.tools == ("search_orders", "read_order")
    (feed,) = chain.steps[1].feeds
    assert feed.predicted
    assert feed.weight == pytest.approx(0.8)
    assert "reference <- predicted, 80%: hits of search_orders" in tree(chain)


def test_what_was_seen_since_still_counts_and_no_opinion_is_what_is_known():
    graph = ToolDependencyGraph(world().values())
    (port,) = graph.apis["read_order"].inputs
    history = History(uses={"read_order": 8}, transitions={("search_orders", "read_order"): 6})
    found = {
        each.link: each.weight for each in Weigher(graph, history, Says(search_orders=0.5, read_flight=0.5)).into(port)
    }
    weights = {link.producer: weight for link, weight in found.items()}
    assert weights["search_orders"] == pytest.approx((6 + 2 * 0.5) / (8 + 2))
    assert weights["read_flight"] == pytest.approx(2 * 0.5 / (8 + 2))
    unknown = Weigher(graph, history, EdgeScorer()).into(port)
    assert unknown == Weigher(graph, history).into(port)


class Broken(EdgeScorer):
    def weigh(self, links: Sequence[Link], known: Sequence[Known]) -> list[float | None]:
        return [float("nan")] * len(links)

    def propose(self, port: Any, k: int) -> list[str]:
        return ["search_orders"]


def test_a_scorer_that_fails_is_told_once_and_passed_over(caplog: pytest.LogCaptureFixture):
    graph = ToolDependencyGraph(world().values())
    assert plan(graph, "read_order", scorer=Broken(), k=1) == plan(graph, "read_order", k=1)
    assert caplog.text.count("by structure and record alone") == 1


def test_a_proposed_output_looks_like_the_input_and_may_become_it():
    made = [tool("give", [], ["colour", "city_name"]), tool("take", ["city"], []), tool("nothing", [], [])]
    flag = tool("flag", [], ["done"])
    flag["function"]["returns"]["properties"]["done"] = {"type": "boolean"}
    graph = ToolDependencyGraph(read_tools([*made, flag]).values())
    (port,) = graph.apis["take"].inputs
    found = graph.predicted(port, ["give", "flag", "nothing", "take", "unknown"])
    assert [(link.producer, link.output, link.kind) for link in found] == [("give", "city_name", "predicted")]
    assert likeness(found[0]) == pytest.approx(2 / 3)  # "city name" and "city"
    assert likeness(Link("a", "x", "b", "y", 0.4)) == 1.0  # of one cluster


def table(specs: dict[str, ToolSpec], **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    names = sorted(specs)
    rows = [(names.index("read_order"), np.array([0, names.index("search_orders")]), np.array([0.1, 0.9]))]
    said = {"model": "plain", "embedder": BUILTIN.name, "links": 50, "learned": 0.9, "structural": 0.6, **more}
    return said, table_of(names, rows, specs)


def test_a_table_weighs_proposes_and_tells_what_comes_before():
    specs = world()
    learned = LearnedLinks(*loaded(dumped(*table(specs)), "here"), specs, BUILTIN.name)
    assert list(learned.before("read_order")) == ["search_orders", min(specs)]
    assert learned.before("mail_order") == {}
    graph = ToolDependencyGraph(specs.values())
    (port,) = graph.apis["read_order"].inputs
    assert learned.propose(port, 3) == ["search_orders"]
    link = Link("search_orders", "hits", "read_order", "reference", 0.0, "predicted")
    assert learned.weigh([link], [Known(0.1, 3, 4)]) == [pytest.approx((3 + 2 * 0.9 * 0.5) / 6)]
    assert learned.weigh([link], [Known(0.8, 3, 4)]) == [0.8]  # it lifts and never lowers
    assert learned.weigh([link._replace(producer="mail_order")], [Known(0.1, 0, 0)]) == [None]
    assert learned.likeliest(set(), 5) == [("search_orders", "read_order", pytest.approx(0.9))]
    assert learned.likeliest({("search_orders", "read_order")}, 5) == []


def test_parameters_count_by_the_geometric_mean():
    specs = world()
    said, kept = table(specs)
    inputs = json.dumps({"read_order\nreference": 0}).encode()
    kept |= {"inputs": np.frombuffer(inputs, dtype=np.uint8), "by_input": np.full((len(specs), 1), 0.4, np.float32)}
    learned = LearnedLinks(said, kept, specs, BUILTIN.name)
    link = Link("search_orders", "hits", "read_order", "reference", 0.0, "predicted")
    assert learned.weigh([link], [Known(0.0, 0, 0)]) == [pytest.approx(np.sqrt(0.9 * 0.4) * 0.5)]


def test_a_table_that_does_not_fit_is_refused():
    specs = world()
    said, kept = table(specs)
    with pytest.raises(StorageError, match="the embedder is another"):
        LearnedLinks(said, kept, specs, "another")
    changed = read_tools([tool(name, ["x"], ["y"], "other") for name in specs])
    with pytest.raises(StorageError, match="0 of 30 tools"):
        LearnedLinks(said, kept, changed, BUILTIN.name)
    one = {**specs, "search_orders": changed["search_orders"]}
    assert digest_of(one["search_orders"]) != digest_of(specs["search_orders"])
    assert "search_orders" not in LearnedLinks(said, kept, one, BUILTIN.name).before("read_order")
    with pytest.raises(StorageError, match="cannot be read"):
        LearnedLinks(said, {k: v for k, v in kept.items() if k != "starts"}, specs, BUILTIN.name)


def test_damage_and_newer_formats_are_told(monkeypatch: pytest.MonkeyPatch):
    data = dumped(*table(world()))
    hurt = [data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :] for place in range(0, len(data), 97)]
    for each in (*hurt, *(data[:length] for length in (0, 3, 16, len(data) - 1))):
        with pytest.raises(StorageError, match="damaged"):
            loaded(each, "here")
    strange = blake2b(b"no zip", digest_size=16).digest() + b"no zip"
    with pytest.raises(StorageError, match="cannot be read"):
        loaded(strange, "here")
    monkeypatch.setattr(arrays, "FORMAT", 2)
    newer = dumped(*table(world()))
    monkeypatch.undo()
    with pytest.raises(StorageError, match="Update"):
        loaded(newer, "here")


def test_a_memory_uses_a_trained_table_that_is_better_than_structure(tmp_path: Path):
    specs = world()
    for worth, used in ((0.9, True), (0.5, False)):
        (tmp_path / HGT).write_bytes(dumped(*table(specs, learned=worth)))
        with ToolMemory(tmp_path, tools=specs.values(), methods=[Navigator()]) as memory:
            assert (memory.navigator.scorer is not None) is used
            chain = memory.navigator.plan(target="read_order").chain
            assert chain is not None
            assert (chain.tools == ("search_orders", "read_order")) is used
            if used:
                assert chain.steps[1].feeds[0].predicted
                hits = {hit.name: hit for hit in memory.navigator.search("orders", target="read_order", k=99)}
                assert hits["search_orders"].parts["learned link"] > 0.3
                assert memory.report()["navigator"]["predicted"][0]["producer"] == "search_orders"
    (tmp_path / HGT).write_bytes(b"damaged")
    with ToolMemory(tmp_path, tools=specs.values(), methods=[Navigator()]) as hurt:
        assert hurt.navigator.scorer is None
        assert hurt.navigator.plan(target="read_order").chain is not None
