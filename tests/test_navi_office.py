"""The office through the navigator: a slice of ``benchmarks.navi``, and no more model calls than it may take."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks import navi
from examples.office.decider import make_decider
from examples.office.office import Office
from examples.office.tasks import make_tasks
from langgraph_toolmem import ToolMemory
from langgraph_toolmem.nodes.navi import create_navi_subgraph

pytestmark = pytest.mark.usefixtures("nothing_failed")


@pytest.fixture(scope="module")
def warm() -> Iterator[ToolMemory]:
    with navi.warmed(30, seed=1) as memory:
        yield memory


def test_without_failures_every_task_is_done_within_its_calls(warm: ToolMemory) -> None:
    office = Office(0)
    for task in make_tasks(40, seed=3):
        office.reset(task.seed)
        model = make_decider()
        graph = create_navi_subgraph(model, office.tools(), warm, record=False)
        state = graph.invoke({"messages": [("user", task.request)]})
        made = state["toolmem_navi"]["made"]
        assert task.checker(office), task.request
        assert len(model.calls) <= 1 + len(made) + 1
        assert all(call["status"] == "ok" for call in made)


def test_where_the_single_path_is_broken_another_one_is_found(warm: ToolMemory) -> None:
    office = Office(0)
    rows = [navi.run_one(task, failing, warm, office) for task, failing in navi.draws(25, 7, "broken")]
    sums = navi.totals(rows)
    assert (sums.tasks, sums.single, sums.repeated) == (25, 0, 0)
    assert sums.done >= 24
    assert sum(sums.ways.values()) >= 15


def test_where_there_is_no_route_the_answer_says_so(warm: ToolMemory) -> None:
    office = Office(0)
    rows = [navi.run_one(task, failing, warm, office) for task, failing in navi.draws(15, 8, "none")]
    sums = navi.totals(rows)
    assert (sums.done, sums.silent, sums.repeated) == (0, 0, 0)
    assert all(row.routes for row in rows if row.tool_calls), "another way was looked for"
