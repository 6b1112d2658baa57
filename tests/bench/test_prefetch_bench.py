"""The benchmarks of what is run ahead: figures by hand, and the command on a little."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from histories import call, history, schema, user, words

from benchmarks import prefetch as bench
from langgraph_toolmem.runs.logs import LoggedRun

READS = frozenset({"find", "open"})


def test_the_best_threshold_with_hindsight_by_hand():
    scored = [(0.9, True), (0.8, False), (0.8, True), (0.5, False), (0.4, True), (0.3, False)]
    # from 0.9: 1 ready, 0 wasted; from 0.8: 2, 1; from 0.5: 2, 2; from 0.4: 3, 2; from 0.3: 3, 3
    assert bench.hindsight(scored, 10) == {0.5: 20.0, 1.0: 30.0, 1.5: 30.0}
    assert bench.hindsight([(0.9, False)], 10) == {0.5: 0.0, 1.0: 0.0, 1.5: 0.0}


def test_two_deep_saves_where_the_tool_is_between_two_model_calls_in_speed():
    messages = history(user("x"), call("find"), call("open"), words())
    times = (0.0, 4.0, 4.0, 5.0, 5.0, 10.0)  # the model takes 4, 1 and 5 seconds
    runs = [LoggedRun(1, "r", messages, times=times)]
    # T = 2.5 would save min(4 - T, T - 1) = 1.5 s; of those tried, 1 and 4 save nothing
    assert bench.two_deep(runs, READS) == 0.0
    uneven = [*runs, LoggedRun(2, "s", messages, times=(0.0, 2.0, 2.0, 4.0, 4.0, 5.0))]
    # T = 2: 1 s in the first run; model 10 + 5 s, four tool calls of 2 s
    assert bench.two_deep(uneven, READS) == pytest.approx(100 * 1 / (15 + 8))


def test_the_command_runs_on_recorded_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    name, folder = "shop", tmp_path / "shop"
    folder.mkdir()
    messages = history(user("look"), call("find", {"name": "x"}), words())
    lines = [json.dumps({"id": f"r{n}", "task": f"t{n}", "messages": messages}) for n in range(20)]
    (folder / "trajectories.jsonl").write_text("\n".join(lines))
    (folder / "tools.json").write_text(json.dumps([schema("find", "name")]))
    (folder / "nature.json").write_text(json.dumps({"reads": ["find"]}))
    out = tmp_path / "figures.json"
    arguments = ["--data", str(tmp_path), "--sets", name, "gone", "--seeds", "1", "--processes", "1"]
    assert bench.main([*arguments, "--json", str(out)]) == 0
    (figures,) = json.loads(out.read_text())[name]
    assert figures["reads"] == 20
    assert figures["ready"] >= 75
    assert figures["wasted"] == 0
    assert "skipped: no recorded runs in gone" in capsys.readouterr().out
