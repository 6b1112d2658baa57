"""The ablation: its figures by hand, and that each part is really taken out."""

from __future__ import annotations

import pytest

from benchmarks.ablation import WITHOUT, calibration_error, reliability
from benchmarks.measures import Row
from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.inertia import arguments, candidates
from langgraph_toolmem.inertia.contexts import CallContexts
from langgraph_toolmem.inertia.novelty import NoveltyRecord, Unlike


def row(confidence: float | None, right: bool) -> Row:
    return Row(confidence, right, False, right, False)


def test_reliability_and_calibration_error_by_hand():
    rows = [row(0.95, True), row(0.95, False), row(0.25, False), row(None, False), row(1.0, True)]

    assert reliability(rows) == [(1, 0.25, 0.0), (3, pytest.approx(2.9 / 3), pytest.approx(2 / 3))]
    assert calibration_error(rows) == pytest.approx(100 * (0.25 + 0.9) / 4)
    assert calibration_error([row(None, True)]) == 0


def test_each_part_is_taken_out_and_put_back():
    graph = ToolGraph()
    whole = (candidates.MAX_TOOLS, arguments.FILLINGS, candidates.fill_each, NoveltyRecord.refusal)
    with WITHOUT["second and third tool"](), WITHOUT["second and third filling"](), WITHOUT["several calls at once"]():
        assert (candidates.MAX_TOOLS, arguments.FILLINGS) == (1, 1)
        assert candidates.fill_each(graph, None, "", {}) == []
    with WITHOUT["nearest requests"](), WITHOUT["calls after calls"](), WITHOUT["the test of novelty"]():
        graph.cases.open("1", "Find Ann", None)
        assert graph.cases.nearest("Find Ann", [], look="") == []
        assert CallContexts(graph).after(None) == ([], {})
        assert NoveltyRecord(graph).refusal("find", Unlike(1.0)) == ""
    assert whole == (
        candidates.MAX_TOOLS,
        arguments.FILLINGS,
        candidates.fill_each,
        NoveltyRecord.refusal,
    )
