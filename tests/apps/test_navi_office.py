"""The office through the navigator: a slice of ``benchmarks.navi``, and no more model calls than it may take."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks import navi
from examples.many_tools import generated
from examples.office.decider import foreseen
from examples.office.kinds import KINDS
from examples.office.tasks import make_tasks

pytestmark = pytest.mark.usefixtures("nothing_failed")


@pytest.fixture(scope="module")
def warm() -> Iterator[navi.Desk]:
    desk = navi.Desk(30, seed=1)
    yield desk
    desk.close()


@pytest.fixture(scope="module")
def crowded() -> Iterator[navi.Desk]:
    """With 300 tools of other departments, and nothing known."""
    desk = navi.Desk(others=generated())
    yield desk
    desk.close()


def test_without_failures_every_task_is_done_within_its_calls(warm: navi.Desk) -> None:
    rows = [warm.run(task) for task in make_tasks(40, seed=3)]
    sums = navi.totals(rows)
    assert (sums.done, sums.over_budget, sums.repeated, sums.ways) == (40, 0, 0, {})
    assert all(row.everything.done for row in rows)


def test_where_the_single_path_is_broken_another_one_is_found(warm: navi.Desk) -> None:
    sums = navi.totals([warm.run(task, failing) for task, failing in navi.draws(25, 7, "broken")])
    assert (sums.tasks, sums.single, sums.repeated) == (25, 0, 0)
    assert sums.done >= 24
    assert sum(sums.ways.values()) >= 15


def test_among_many_tools_and_without_history_too(crowded: navi.Desk) -> None:
    sums = navi.totals([crowded.run(task, failing) for task, failing in navi.draws(25, 7, "broken")])
    assert (sums.tasks, sums.single, sums.repeated) == (25, 0, 0)
    assert sums.done >= 24
    assert sums.retrieved < sums.done, "a search with the request alone does not bring what stands in"
    assert sums.shown <= 2 * crowded.limits.candidates
    assert sums.tokens < sums.everything_tokens


def test_where_there_is_no_route_the_answer_says_so(warm: navi.Desk) -> None:
    rows = [warm.run(task, failing) for task, failing in navi.draws(15, 8, "none")]
    sums = navi.totals(rows)
    assert (sums.done, sums.silent, sums.repeated) == (0, 0, 0)
    assert all(row.routes for row in rows if row.tool_calls), "another way was looked for"


def test_what_was_measured_is_judged() -> None:
    setting = navi.Setting(0, 0, "broken")
    assert setting.name == "40 tools, cold, another route exists"
    rows = navi.measure(1, 1, navi.NaviLimits(), [setting])[setting]
    checks = navi.verdicts({setting: navi.totals(rows)})
    assert [text.split(":")[0] for _, text in checks] == [setting.name, "all"]
    assert checks == [(True, checks[0][1]), (True, "all: 0 calls of tools that had failed = 0")]
    missed = navi.verdicts({setting: navi.totals([])})
    assert missed[0][0] is False


def test_the_decider_thinks_ahead_of_what_it_knows() -> None:
    task = next(task for task in make_tasks(60, seed=2) if task.kind == "forward_latest")
    kind = next(kind for kind in KINDS if kind.name == task.kind)
    assert foreseen(kind, task.slots) == ["find_person", "list_emails", "find_person", "forward_email"]
