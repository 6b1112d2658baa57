"""`toolmem eval`: figures by hand, pairs in the same order, budgets, and interruptions at any call."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import clerk
import pytest

from langgraph_toolmem import ConfigurationError
from langgraph_toolmem.base.errors import InputError
from langgraph_toolmem.cli import main
from langgraph_toolmem.evaluation import (
    EvalSettings,
    EvalStoppedError,
    Evaluation,
    Result,
    RunRecord,
    TaskFile,
    arms_named,
    compared,
    figures_of,
    pass_hat_k,
)
from langgraph_toolmem.evaluation.figures import page_of
from langgraph_toolmem.evaluation.journal import EvalBudget, Usage
from langgraph_toolmem.report.report import TokenPrice

READS = {"reads": {"find_person", "open_file"}}


def task(name: str, split: str, **more: Any) -> dict[str, Any]:
    said = [f"Please open the file of {name}", "Thank you."]
    return {"id": name, "split": split, "messages": said, "check": {"says": [f"blue {name[-1]}"]}, **more}


def task_file(folder: Path, train: int, test: int) -> Path:
    tasks = [task(f"Train{n}", "train") for n in range(train)] + [task(f"Test{n}", "test") for n in range(test)]
    path = folder / "tasks.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in tasks))
    return path


@pytest.fixture(autouse=True)
def _fresh_model() -> None:
    renew_model()


def renew_model() -> None:
    clerk.CALLS.clear()
    clerk.FAIL.clear()
    clerk.LOST.clear()


def evaluation(folder: Path, tasks: Path, *, budget: EvalBudget | None = None, **settings: Any) -> Evaluation:
    given = EvalSettings(arms=arms_named(["without", "with"]), memory=READS, **settings)
    return Evaluation(TaskFile(tasks, clerk.agent), given, folder, budget)


def comparable(result: Result) -> list[RunRecord]:
    return [replace(r, seconds=0.0, usage=replace(r.usage, seconds=0.0)) for r in result.records]


def record(arm: str, task: str, trial: int, success: bool, calls: int) -> RunRecord:
    return RunRecord(arm, task, "test", trial, 0, float(success), Usage(calls), 1.0)


def test_figures_by_hand():
    runs = [("a", 0, True, 4), ("a", 1, True, 4), ("b", 0, True, 6), ("b", 1, False, 6)]
    without = [record("without", *run) for run in runs]
    with_it = [record("with", name, trial, success and name == "a", calls - 2) for name, trial, success, calls in runs]

    found = figures_of("without", without)
    assert (found.tasks, found.runs, found.success, found.usage.model_calls) == (2, 4, 0.75, 20)
    assert found.pass_k == {1: 0.75, 2: 0.5}  # task a: 1 and 1; task b: 1/2 and 0
    assert pass_hat_k(3, 4, 2) == 0.5

    pairs = compared("with", "without", [*without, *with_it], resamples=2_000)
    assert (pairs.tasks, pairs.changed) == (2, [("b", 0)])
    assert pairs.differences["model calls"].value == pairs.differences["model calls"].low == -2
    success = pairs.differences["success"]
    assert (success.value, success.low, success.high) == (-0.25, -0.5, 0.0)  # two tasks: one lost half, one nothing


def test_both_arms_get_the_same_tasks_and_the_memory_saves_calls(tmp_path):
    price = TokenPrice(1.0, 10.0, cached=0.1)
    result = evaluation(tmp_path / "out", task_file(tmp_path, 8, 3), trials=2, budget=EvalBudget(price=price)).run()

    without, with_it = result.figures
    assert (without.success, with_it.success, with_it.tasks, with_it.runs) == (1.0, 1.0, 3, 6)
    assert without.usage.model_calls == 24  # two look-ups and two answers in each run
    assert with_it.memory_calls == 24 - with_it.usage.model_calls > 0
    assert without.cost == pytest.approx(24 * (40 * 1.0 + 60 * 0.1 + 10 * 10.0) / 1e6)
    order = {
        arm: [(r.task, r.trial, r.seed) for r in result.records if r.arm == arm and r.split == "test"]
        for arm in ("without", "with")
    }
    assert order["without"] == order["with"]
    assert len({r.seed for r in result.records if r.task == "Test0"}) == 2  # by trial
    plain = result.to_dict()
    assert plain["comparisons"][0]["differences"]["model calls"]["high"] < 0
    assert json.loads(json.dumps(plain)) == plain
    page = page_of(result)
    assert "model calls" in page
    assert "<script" not in page


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """Records of an evaluation, and how often it asked the model."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    renew_model()
    records = comparable(evaluation(folder / "whole", task_file(folder, 4, 2)).run())
    return records, len(clerk.CALLS)


@pytest.mark.parametrize("happens", ["FAIL", "LOST"])
@pytest.mark.parametrize("at", [0, 7, 13, 22, 27])
def test_an_interrupted_evaluation_goes_on_with_at_most_one_call_paid_twice(uninterrupted, tmp_path, at, happens):
    whole, calls = uninterrupted
    clerk.CALLS.clear()
    tasks = task_file(tmp_path, 4, 2)
    getattr(clerk, happens)[at] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        evaluation(tmp_path / "cut", tasks).run()
    again = comparable(evaluation(tmp_path / "cut", tasks).run())

    assert len(clerk.CALLS) == calls + (happens == "LOST")
    assert again == whole


def test_a_rate_limit_and_a_budget_stop_it_and_nothing_is_lost(tmp_path):
    tasks = task_file(tmp_path, 0, 3)

    class RateLimitError(Exception):
        status_code = 429

    clerk.FAIL[5] = RateLimitError("slow down")
    with pytest.raises(EvalStoppedError, match=r"Test0/0: slow down"):
        evaluation(tmp_path / "out", tasks).run()
    assert len(clerk.CALLS) == 5
    with pytest.raises(EvalStoppedError, match="budget of 10 model calls"):
        evaluation(tmp_path / "out", tasks, budget=EvalBudget(max_model_calls=10)).run()
    assert len(clerk.CALLS) == 10
    result = evaluation(tmp_path / "out", tasks, budget=EvalBudget(max_model_calls=100)).run()
    assert [each.success for each in result.figures] == [1.0, 1.0]
    assert len(clerk.CALLS) == sum(r.usage.model_calls for r in result.records)


def test_a_failing_agent_fails_its_task(tmp_path):
    settings = EvalSettings(arms=arms_named(["without"]))
    result = Evaluation(TaskFile(task_file(tmp_path, 0, 1), clerk.broken), settings, tmp_path / "out").run()
    assert (result.figures[0].success, result.figures[0].errors) == (0.0, 1)
    assert result.records[0].error == "ValueError: no such world"


def test_the_folder_of_another_evaluation_is_refused(tmp_path):
    tasks = task_file(tmp_path, 0, 1)
    evaluation(tmp_path / "out", tasks)
    with pytest.raises(ConfigurationError, match="another trials"):
        evaluation(tmp_path / "out", tasks, trials=2)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"id": 1}', "`messages` of task 1"),
        ('{"messages": "hi", "check": 3}', "`check` of task 1"),
        ('{"messages": "hi", "check": {"say": []}}', "no field 'say'"),
        ('{"messages": "hi", "check": {}, "split": "train"}', "no test tasks"),
        ("{", "is not JSON"),
    ],
)
def test_malformed_tasks_are_named(tmp_path, line, problem):
    path = tmp_path / "tasks.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(InputError, match=problem) as raised:
        TaskFile(path, clerk.agent)
    assert str(path) in str(raised.value)


def test_the_command_writes_its_result_and_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps(task("Ann1", "test", check="clerk:thanks")))
    command = ["eval", str(path), "--agent", "clerk:agent", "--out", str(tmp_path / "out"), "--json"]
    with pytest.raises(SystemExit) as stopped:
        main([*command, "--max-model-calls", "3"])
    assert stopped.value.code == 3
    assert json.loads(capsys.readouterr().out)["missing"] == 2
    with pytest.raises(SystemExit) as done:
        main([*command, "--async"])
    assert not done.value.code
    found = json.loads(capsys.readouterr().out)
    assert [each["success"] for each in found["figures"]] == [1.0, 1.0]
    assert json.loads((tmp_path / "out" / "result.json").read_text()) == found
    assert len(clerk.CALLS) == 8
