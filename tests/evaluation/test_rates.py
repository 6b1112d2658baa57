"""The stub's rates, counted in recorded runs, and what it does at them."""

from __future__ import annotations

import json
from typing import Any

import minitau
import pytest

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.cli import main
from langgraph_toolmem.evaluation import EvalSettings, Evaluation, arms_named
from langgraph_toolmem.evaluation.tau2.source import Tau2Source, safety_of
from langgraph_toolmem.evaluation.tau2.stub import Rates, fitted_rates
from langgraph_toolmem.runs.logs import load_runs

READS = {"get_order_details"}


def recorded(task: str, success: bool, calls: list[tuple[str, dict[str, Any], str]]) -> dict[str, Any]:
    """Return a run of calls: the tool, its arguments, and its result or "error"."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Please see to task {task}"}]
    for number, (name, args, result) in enumerate(calls):
        call = {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
        answer = {"role": "tool", "tool_call_id": f"c{number}", "content": result}
        failed = {"status": "error"} if result == "error" else {}
        messages += [{"role": "assistant", "content": "", "tool_calls": [call]}, {**answer, **failed}]
    messages.append({"role": "assistant", "content": "Done."})
    return {"task": task, "success": success, "messages": messages}


def test_rates_are_counted_in_recorded_runs(tmp_path):
    def look(order: str, result: str = "found") -> tuple[str, dict[str, Any], str]:
        return "get_order_details", {"order_id": order}, result

    change = ("renew_loan", {"order_id": "#W1"}, "renewed")
    runs = [
        recorded("a", True, [look("#W1"), change, look("#W1")]),  # after a change it is not made again
        recorded("a", True, [look("#W1"), look("#W1"), change]),  # again
        recorded("a", False, [look("#W10", "error"), look("#W2")]),  # one failed, one that no good run makes
        recorded("b", True, [look("#W7")]),  # one good run says nothing about what is needless
    ]
    log = tmp_path / "runs.jsonl"
    log.write_text("".join(json.dumps(run) + "\n" for run in runs))
    rates = fitted_rates(load_runs(log).runs, READS, follow=0.3)
    assert rates == Rates(follow=0.3, err=1 / 5, again=1 / 7, failed=1 / 7)
    with pytest.raises(ConfigurationError, match="no look-up by these tools: find_author"):
        fitted_rates(load_runs(log).runs, {"find_author"})


def test_a_stub_that_errs_makes_more_calls_and_the_same_changes(tmp_path, monkeypatch):
    minitau.install(monkeypatch)

    def calls_of(rates: Rates, folder: str) -> int:
        source = Tau2Source("library", rates=rates)
        settings = EvalSettings(
            arms=arms_named(["without", "context"], may_write=source.changing_tools), learn_from_tests=True
        )
        result = Evaluation(source, settings, tmp_path / folder).run()
        assert [figures.success for figures in result.figures] == [1.0, 1.0]
        found = safety_of("context", "without", result.records)
        assert (found.rewards_changed, found.changes_differ, found.wrong_results) == ([], [], 0)
        return result.figures[0].usage.model_calls

    assert calls_of(Rates(again=1.0, failed=1.0), "erring") > calls_of(Rates(), "exact")


def test_the_command_takes_rates_from_a_log(tmp_path, monkeypatch, capsys):
    minitau.install(monkeypatch)
    log = tmp_path / "runs.jsonl"
    run = recorded("a", True, [("get_order_details", {"order_id": "#W1"}, "error")])
    log.write_text(json.dumps(run) + "\n")
    few = ["--test-tasks", "1", "--train-tasks", "1", "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as done:
        main(["eval", "tau2", "--domain", "library", "--stub", "--rates-of", str(log), *few])
    printed = capsys.readouterr()
    assert not done.value.code
    assert "failed=1.0" in printed.out + printed.err
