"""The papers' comparisons as arms: each plays, and the papers' own figures stand beside the result."""

from __future__ import annotations

import minitau
import pytest

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.cli import main
from langgraph_toolmem.evaluation import EvalSettings, Evaluation
from langgraph_toolmem.evaluation.arms import comparison_of
from langgraph_toolmem.evaluation.tau2.source import TaskLimits, Tau2Source


@pytest.mark.parametrize("paper", ["sit-graph", "sga-mcts", "memtoolagent"])
def test_each_arm_plays_and_spoils_nothing(paper, tmp_path, monkeypatch):
    minitau.install(monkeypatch)
    comparison = comparison_of(paper)
    assert not comparison.arms[0].remembers
    source = Tau2Source("library", limits=TaskLimits(1, 1))
    result = Evaluation(source, EvalSettings(arms=comparison.arms), tmp_path / "out").run()

    assert {record.error for record in result.records} == {""}
    assert [figures.success for figures in result.figures] == [1.0] * len(comparison.arms)


def test_the_command_prints_the_papers_figures(tmp_path, monkeypatch, capsys):
    minitau.install(monkeypatch)
    few = ["--test-tasks", "1", "--train-tasks", "1"]
    with pytest.raises(SystemExit) as done:
        main(
            ["eval", "tau2", "--domain", "library", "--stub", "--like", "autotool", *few, "--out", str(tmp_path / "o")]
        )
    printed = capsys.readouterr().out
    assert not done.value.code
    assert "Reported by AutoTool" in printed
    assert "23.3" in printed
    assert "window 3" in printed


@pytest.mark.parametrize(
    ("paper", "said"), [("auto-tool", "Did you mean 'autotool'"), ("naviagent", "an agent of its own")]
)
def test_other_papers_get_a_sentence(paper, said):
    with pytest.raises(ConfigurationError, match=said):
        comparison_of(paper)
