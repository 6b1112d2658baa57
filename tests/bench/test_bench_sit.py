"""The benchmark of suggestions: yardsticks by hand, a small workload whose answer is known, the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from histories import call, run_of, schema, user

from benchmarks import sit as bench
from benchmarks import yardsticks
from benchmarks.sit import Job
from benchmarks.yardsticks import Hits
from langgraph_toolmem.runs.run import Run

KINDS = {
    "refund": ("find_order", "refund_order", "Please give me my money back for order {n}"),
    "track": ("find_order", "track_parcel", "Where is the parcel of order {n} right now"),
    "greet": ("find_person", "send_card", "Congratulate colleague {n} on the birthday"),
}


def task(kind: str, number: int) -> Run:
    first, second, text = KINDS[kind]
    return run_of(user(text.format(n=number)), call(first, {"n": number}, {"id": number}), call(second, {"id": number}))


def last(run: Run) -> yardsticks.Point:
    *_, point = yardsticks.points(run)
    return point


def all_kinds(*numbers: int) -> list[Run]:
    return [task(kind, number) for number in numbers for kind in KINDS]


def test_the_most_frequent_successor():
    history = [task("refund", 1), task("refund", 2), task("track", 3)]
    order_1 = yardsticks.successors(history, 1)
    assert order_1(last(task("track", 9))) == ["refund_order", "track_parcel"]
    assert order_1(next(yardsticks.points(task("greet", 9)))) == ["find_order"]
    assert order_1(last(task("greet", 9))) == []


def test_the_nearest_request_is_followed_step_by_step():
    method = yardsticks.nearest_request(all_kinds(1, 2))
    for kind, (first, second, _) in KINDS.items():
        begun, done = yardsticks.points(task(kind, 77))
        assert begun.tool == first
        assert method(begun)[0] == first
        assert method(done)[0] == second
    assert yardsticks.nearest_request([])(last(task("greet", 1))) == []


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A set whose second call hangs on the request, not on the call before; a fifth of the runs fail."""
    folder = tmp_path / "shop"
    folder.mkdir()
    names = sorted({name for first, second, _ in KINDS.values() for name in (first, second)})
    (folder / "tools.json").write_text(json.dumps([schema(name, "n:integer") for name in names]), encoding="utf-8")
    lines: list[dict[str, Any]] = []
    for number in range(10):
        for kind, (first, second, text) in KINDS.items():
            request = text.format(n=100 + number)
            failing = number % 5 == 0
            messages = [user(request), *call(first, {"n": number}), *call(first if failing else second, {"n": number})]
            lines.append({"id": f"{kind}{number}", "task": request, "success": not failing, "messages": messages})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "trajectories.jsonl").write_text(text, encoding="utf-8")
    return tmp_path


def test_what_was_asked_tells_more_than_the_tool_before(data: Path):
    hits = bench.work(Job(str(data), "shop", 0, good=True))
    assert set(hits) == set(bench.METHODS)
    assert hits["order 1"].first < 80  # two kinds go on from find_order
    for method in ("combined", "nearest request"):
        assert hits[method] == Hits(100.0, 100.0)
    assert hits["combined"].two >= max(hits[method].two for method in bench.SINGLE)


def test_the_command(data: Path, capsys: pytest.CaptureFixture[str]):
    file = data / "figures.json"
    code = bench.main(["--data", str(data), "--sets", "shop", "absent", "--seeds", "1", "--json", str(file)])
    printed = capsys.readouterr().out
    assert code == 0
    assert "skipped: no recorded runs in absent" in printed
    assert "shop, successful" in printed
    plain = json.loads(file.read_text(encoding="utf-8"))
    assert {split["good"] for split in plain["splits"]} == {False, True}
    assert {mean["method"] for mean in plain["means"]} == set(bench.METHODS)
