"""The tool graph as a networkx graph."""

from __future__ import annotations

import sys

import pytest

from langgraph_toolmem.base.errors import MissingExtraError
from langgraph_toolmem.graph.view import START, EdgeView, FlowView, GraphView, ToolCounts

VIEW = GraphView(
    {"find": ToolCounts(3, 1), "open": ToolCounts(2, 0)},
    [EdgeView(START, "find", 4, 3, 1), EdgeView("find", "open", 2, 2, 0)],
    [FlowView("find", "out", "[].id", "open", "id", 2, 1)],
)


def test_tools_order_and_dataflow_are_edges() -> None:
    networkx = pytest.importorskip("networkx")
    graph = VIEW.to_networkx()
    assert graph.nodes["find"] == {"ok": 3, "failed": 1}
    assert graph.edges["find", "open", "next"] == {"count": 2, "ok": 2, "failed": 0}
    (data,) = [each for *_, key, each in graph.edges(keys=True, data=True) if key != "next"]
    assert (data["parameter"], data["path"], data["hits"]) == ("id", "[].id", 2)
    assert networkx.shortest_path(graph, START, "open") == [START, "find", "open"]


def test_without_networkx_the_line_to_type_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(MissingExtraError, match=r"\[graph\]"):
        VIEW.to_networkx()
