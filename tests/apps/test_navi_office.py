"""The office through the navigator: a slice of ``benchmarks.navi``, and no more model calls than it may take."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks import navi
from examples.many_tools import generated
from examples.office.tasks import make_tasks

pytestmark = pytest.mark.usefixtures("nothing_failed")


@pytest.fixture(scope="module")
def warm() -> Iterator[navi.Desk]:
    desk = navi.Desk(20, seed=1)
    yield desk
    desk.close()


def test_without_failures_every_task_is_done_within_its_calls(warm: navi.Desk) -> None:
    sums = navi.totals([warm.run(task) for task in make_tasks(20, seed=3)])
    assert (sums.done, sums.over_budget, sums.repeated, sums.ways) == (20, 0, 0, {})


def test_where_there_is_no_route_the_answer_says_so(warm: navi.Desk) -> None:
    rows = [warm.run(task, failing) for task, failing in navi.draws(10, 8, "none")]
    sums = navi.totals(rows)
    assert (sums.done, sums.silent, sums.repeated) == (0, 0, 0)
    assert all(row.routes for row in rows if row.tool_calls), "another way was looked for"


def test_another_path_is_found_among_many_tools_and_without_history() -> None:
    crowded = navi.Desk(others=generated()[:200])
    try:
        sums = navi.totals([crowded.run(task, failing) for task, failing in navi.draws(12, 7, "broken")])
    finally:
        crowded.close()
    assert (sums.tasks, sums.single, sums.repeated) == (12, 0, 0)
    assert sums.done >= 11
    assert sums.shown <= 2 * crowded.limits.candidates
