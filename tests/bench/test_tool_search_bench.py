"""The benchmark of tool search: its figures by hand, and its targets on the recorded requests."""

from __future__ import annotations

import json

import pytest

from benchmarks import many_tools
from benchmarks import tool_search as bench
from benchmarks.replay import DATA
from benchmarks.tool_search import (
    CATALOGUE,
    Episode,
    Request,
    best_ranks,
    fused,
    halves,
    requests,
    tools_of,
)


def test_figures_of_a_ranking_by_hand():
    asked = [Request("one", "g", frozenset("ab")), Request("two", "g", frozenset("c"))]
    ranked = {"one": list("axxxxxxb"), "two": list("c")}
    scores = {score.part: score for score in bench.measure("m", ranked.__getitem__, asked)}
    figures = scores["all"]
    assert (figures.r5, figures.c5, figures.c10, figures.c20) == (75.0, 50.0, 100.0, 100.0)
    assert set(scores) <= {"all", "held out"}


def test_rankings_are_joined_by_hand():
    assert fused([[0, 1, 2], [1, 0, 2]]) == [0, 1, 2]
    assert fused([[0, 1, 2], [1, 2, 0], [2, 1, 0]]) == [1, 2, 0]
    assert best_ranks([[0, 1, 2], [2, 1, 0]]) == [0, 2, 1]


def test_halves_are_split_by_task():
    given = [Episode(f"t{i % 7}", "", ("a",)) for i in range(30)]
    first, second = halves(given, seed=2)
    assert len(first) + len(second) == 30
    assert not {each.task for each in first} & {each.task for each in second}
    assert halves(given, seed=2) == (first, second)


def write(folder, tools, **files):
    folder.mkdir()
    rows = [{"type": "function", "function": {"name": name, "description": said}} for name, said in tools.items()]
    (folder / "tools.json").write_text(json.dumps(rows), encoding="utf-8")
    for name, lines in files.items():
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")


def test_the_command_runs_on_a_small_set(tmp_path, capsys):
    tools = {"find_hotel": "Find a hotel", "book_room": "Book a room", "send_mail": "Send an email"}
    asked = [
        {"query": f"Find a hotel in town {i} and send an email", "relevant": ["find_hotel", "send_mail"]}
        for i in range(6)
    ]
    write(tmp_path / CATALOGUE, tools, queries=asked)
    out = tmp_path / "figures.json"
    options = ["--data", str(tmp_path), "--no-model", "--json", str(out)]
    assert bench.main(options) == 0
    figures = json.loads(out.read_text(encoding="utf-8"))
    rows = {(score["method"], score["part"]): score for score in figures["scores"]}
    assert rows["ours, built-in", "all"]["c5"] == 100.0
    assert "R@5" in capsys.readouterr().out
    assert bench.main(["--data", str(tmp_path / "nowhere"), "--no-model"]) == 0
    assert "skipped" in capsys.readouterr().out


@pytest.mark.skipif(not (DATA / CATALOGUE).is_dir(), reason="the catalogue is not there")
def test_the_targets_without_a_model_hold_on_the_requests_that_were_held_out():
    asked = [each for each in requests(DATA) if each.held_out]
    rank = bench.ours(tools_of(DATA, CATALOGUE), None)
    scores = {score.part: score for score in bench.measure("ours, built-in", rank, asked)}["held out"]
    assert len(asked) > 300
    assert min(scores.r5 - 72, scores.c5 - 53, scores.c10 - 68, scores.c20 - 78) >= 0


@pytest.mark.skipif(not (DATA / CATALOGUE).is_dir(), reason=f"no {CATALOGUE}")
def test_the_prefix_stays_with_many_tools(capsys: pytest.CaptureFixture[str]) -> None:
    assert many_tools.main(["--no-model", "--tools", "60", "--threads", "1", "--seeds", "1"]) == 0
    said = capsys.readouterr().out
    assert "holds   portable" in said
    assert "holds   constant tools" in said
