"""The adapter of tau2-bench on a small environment in its shape: rewards in every mode, and what it notices."""

from __future__ import annotations

from typing import Any

import minitau
import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.messages.tool import tool_call

from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.cli import main
from langgraph_toolmem.evaluation import EvalSettings, Evaluation, RunRecord, arms_named
from langgraph_toolmem.evaluation.journal import Usage
from langgraph_toolmem.evaluation.tau2.source import LookUps, Tau2Source, safety_of
from langgraph_toolmem.evaluation.tau2.stub import Rates, StubModel, StubPlan

ARMS = ["without", "shadow", "with", "changes", "prefetch", "hints", "tool_search"]


@pytest.fixture(autouse=True)
def _benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    minitau.install(monkeypatch)


def test_in_every_mode_the_rewards_and_the_changes_stay(tmp_path):
    source = Tau2Source("library", rates=Rates(follow=1.0, err=0.2))
    settings = EvalSettings(arms=arms_named(ARMS, may_write=source.changing_tools), learn_from_tests=True, trials=3)
    result = Evaluation(source, settings, tmp_path / "out").run()

    assert {record.error for record in result.records} == {""}
    assert [figures.success for figures in result.figures] == [1.0] * len(ARMS)
    for arm in ARMS[1:]:
        found = safety_of(arm, "without", result.records)
        assert (found.pairs, found.rewards_changed, found.changes_differ, found.wrong_results) == (6, [], [], 0), arm
    unlocking = [record for record in result.records if record.task == "4"]
    assert all("user unlock_card {}" in record.details["changes"] for record in unlocking)


def test_two_starts_ask_the_model_the_same(tmp_path, monkeypatch):
    """Otherwise an interrupted evaluation does not find its kept answers. Hints depend on background work."""
    asked: list[str] = []
    answer = StubModel.__call__

    def noted(self: StubModel, messages: Any, tools: Any) -> Any:
        asked.append(str([message.text for message in messages]))
        return answer(self, messages, tools)

    monkeypatch.setattr(StubModel, "__call__", noted)
    source = Tau2Source("library", rates=Rates(follow=0.6, err=0.3, again=0.3, failed=0.3))
    settings = EvalSettings(arms=arms_named(["hints"]), learn_from_tests=True, trials=1)
    both = []
    for name in ("one", "two"):
        Evaluation(source, settings, tmp_path / name).run()
        both.append(list(asked))
        asked.clear()
    assert "Records of past runs" in str(both[0]), "no hint was shown"
    assert both[0] == both[1]


def test_the_command_by_stub(tmp_path, capsys):
    few = ["--test-tasks", "1", "--train-tasks", "1"]
    command = ["eval", "tau2", "--domain", "library", "--stub", *few, "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as done:
        main(command)
    assert not done.value.code
    assert "Against without" in capsys.readouterr().out
    with pytest.raises(ConfigurationError, match="cannot load 'bank'"):
        Tau2Source("bank")


def exchange(identity: str, order: str, result: str) -> list[Any]:
    call = tool_call(name="get_order_details", args={"order_id": order}, id=identity)
    return [AIMessage("", tool_calls=[call]), ToolMessage(result, tool_call_id=identity)]


def test_a_result_that_is_not_the_environments_is_noticed():
    environment = minitau.Environment()
    right = environment.get_response(minitau.ToolCall(name="get_order_details", arguments={"order_id": "#W1"})).content
    checks = LookUps(environment)
    checks.given("a", right)
    checks.check([*exchange("a", "#W1", right), *exchange("b", "#W1", right)])
    assert (checks.wrong, len(checks.early)) == ([], 1)
    checks.check([*exchange("c", "#W2", right)])
    assert checks.wrong == ['get_order_details {"order_id":"#W2"}']


def test_the_stub_reads_again_where_a_result_is_another_customers():
    task = minitau.TASKS[0].evaluation_criteria
    reads = {name for name, kind in minitau.Tools.kinds.items() if kind == "read"}
    stub = StubModel(StubPlan(task.actions[2:3], ["x"], reads, set(minitau.Tools.kinds)), Rates(follow=0), seed=1)
    offered = [tool.openai_schema for tool in minitau.Environment().get_tools()]
    other, own = '{"order_id": "#W1"}', '{"order_id": "#W0"}'

    again = stub(exchange("a", "#W0", other), offered)
    assert [call["args"] for call in again.tool_calls] == [{"order_id": "#W0"}]
    assert stub(exchange("a", "#W0", own), offered).text.startswith("x All done.")


def test_a_changed_reward_and_a_missing_change_are_reported():
    def record(arm: str, score: float, changes: list[str]) -> RunRecord:
        return RunRecord(arm, "t", "test", 0, 0, score, Usage(3), 1.0, details={"changes": changes})

    found = safety_of("with", "without", [record("without", 1.0, ["a", "a"]), record("with", 0.0, ["a"])])
    assert (found.rewards_changed, found.changes_differ, (found.model_calls_before, found.model_calls)) == (
        ["t"],
        ["t"],
        (3, 3),
    )
