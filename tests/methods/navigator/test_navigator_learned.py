"""Scores of links: a scorer that somebody gives, the table that training writes and its checks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from langgraph_toolmem import Navigator, ToolMemory
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.dependencies.links import EdgeScorer, Known, Link, likeness
from langgraph_toolmem.navigator.dependencies.weigh import Weigher
from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.navigator.learned import TABLE, LinkTable, digest_of
from langgraph_toolmem.navigator.plan.chains import tree
from langgraph_toolmem.navigator.plan.planner import plan
from langgraph_toolmem.runs.tools import ToolSpec, read_tools

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


def table(specs: dict[str, ToolSpec], **more: Any) -> dict[str, Any]:
    rows = [(min(specs), "receipt", "read_order", "reference", 0.1)]
    rows.append(("search_orders", "hits", "read_order", "reference", 0.9))
    digests = {name: digest_of(spec) for name, spec in specs.items()}
    return {"links": 50, "learned": 0.9, "structural": 0.6, "digests": digests, "rows": rows, **more}


def test_a_table_weighs_proposes_and_tells_what_comes_before():
    specs = world()
    learned = LinkTable(json.loads(json.dumps(table(specs))), specs)
    assert list(learned.before("read_order")) == ["search_orders", min(specs)]
    assert learned.before("mail_order") == {}
    (port,) = ToolDependencyGraph(specs.values()).apis["read_order"].inputs
    assert learned.propose(port, 3) == ["search_orders"]
    link = Link("search_orders", "hits", "read_order", "reference", 0.0, "predicted")
    assert learned.weigh([link], [Known(0.1, 3, 4)]) == [pytest.approx((3 + 2 * 0.9) / 6)]
    assert learned.weigh([link], [Known(0.9, 3, 4)]) == [0.9]  # it lifts and never lowers
    assert learned.weigh([link._replace(producer="mail_order")], [Known(0.1, 0, 0)]) == [None]


def test_a_tool_that_changed_has_no_scores_and_a_table_of_another_form_is_refused():
    specs = world()
    changed = read_tools([tool("search_orders", ["x"], ["y"], "other")])
    assert "search_orders" not in LinkTable(table(specs), {**specs, **changed}).before("read_order")
    for wrong in ({}, table(specs, rows=[1]), table(specs, digests=[]), []):
        with pytest.raises(StorageError, match="Train again"):
            LinkTable(wrong, specs)  # type: ignore[arg-type]


def test_a_memory_uses_a_table_that_is_better_than_structure(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    specs = world()
    for worth, used in ((0.9, True), (0.5, False)):
        (tmp_path / TABLE).write_text(json.dumps(table(specs, learned=worth)))
        with ToolMemory(tmp_path, tools=specs.values(), methods=[Navigator()]) as memory:
            assert (memory.navigator.scorer is not None) is used
            chain = memory.navigator.plan(target="read_order").chain
            assert chain is not None
            assert (chain.tools == ("search_orders", "read_order")) is used
            if used:
                assert chain.steps[1].feeds[0].predicted
                assert memory.report()["navigator"]["learned"] == 0.9
    (tmp_path / TABLE).write_bytes(b"damaged")
    with ToolMemory(tmp_path, tools=specs.values(), methods=[Navigator()]) as hurt:
        assert hurt.navigator.scorer is None
        assert hurt.navigator.plan(target="read_order").chain is not None
    assert caplog.text.count("learned links are not used") == 1
