"""The benchmark of tool search: its figures by hand, and its targets on the recorded requests."""

from __future__ import annotations

import json

import pytest

from benchmarks import DATA, many_tools
from benchmarks import tool_search as bench
from benchmarks.tool_search import CATALOGUE, requests, tools_of


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
