"""The benchmarks: yardsticks and figures by hand, the simulated budget against the real one, both commands."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from histories import call, history, reading, schema, user, words

from benchmarks import replay as bench_replay
from benchmarks import scale as bench_scale
from benchmarks.measures import Row, acted, best_yield, live, with_budget
from benchmarks.workload import Workload
from benchmarks.yardsticks import BackOffNGram, ExactCache, Guess, Yardstick
from langgraph_toolmem import InertiaPolicy
from langgraph_toolmem.offline.replay import is_right, replay
from langgraph_toolmem.runs.logs import LoggedRun, load_runs
from langgraph_toolmem.runs.trajectory import parse_run

A, B = ("a", "{}"), ("b", "{}")
TOOLS = [reading("find", "name"), schema("open", "id")]


def guesses(yardstick: Yardstick, *runs: list[Any]) -> list[list[Guess]]:
    return [[guess for _, guess in yardstick.replay(parse_run(run, thread_id=str(i)))] for i, run in enumerate(runs)]


def seen(guess: Guess) -> tuple[Any, float]:
    return guess.call, guess.confidence


# --- yardsticks -----------------------------------------------------------------------------------------------


def test_the_n_gram_backs_off_to_the_longest_context_it_knows():
    first = history(user("x"), call("a"), call("b"), words())
    second = history(user("y"), call("a"), call("c"), call("b"), words())
    third = history(user("z"), call("c"), words())
    one, two, three = guesses(BackOffNGram(), first, second, third)

    assert one[0] == Guess(None, 0.0, frozenset())  # nothing is known
    assert seen(one[1]) == (A, 1 / 2)  # "a" alone says nothing yet: any tool, seen once
    assert seen(two[0]) == (A, 1 / 2)  # the start of a run
    assert seen(two[1]) == (B, 1 / 2)  # start, a
    # After start, a, c nothing longer than "any point" is known: a twice, b, c and words once.
    assert seen(two[2]) == (A, 2 / 6)
    assert two[2].known == {A, B, ("c", "{}")}
    # After a, c, b: "b" alone was followed by words, so nothing is proposed.
    assert seen(two[3]) == (None, 0.0)
    assert seen(three[0]) == (A, 2 / 3)
    assert seen(three[1]) == (B, 1 / 2)  # after c


def test_the_exact_cache_wants_the_same_words_and_the_same_calls():
    run = history(user("x"), call("a"), call("b"), words())
    other = history(user("y"), call("a"), call("b"), words())
    detour = history(user("x"), call("b"), call("b"), words())
    found = guesses(ExactCache(), run, run, other, detour)

    assert [guess.call for guess in found[0]] == [None, None, None]
    assert [seen(guess) for guess in found[1]] == [(A, 1 / 2), (B, 1 / 2), (None, 0.0)]
    assert [guess.call for guess in found[2]] == [None, None, None]
    assert [guess.call for guess in found[3]] == [A, None, None]


# --- figures --------------------------------------------------------------------------------------------------


def row(confidence: float | None, right: bool = False) -> Row:
    return Row(confidence, right, acted=confidence is not None, known=right, words=False)


def test_y1_and_y3_by_hand():
    rows = [row(0.9, True)] * 4 + [row(0.8)] + [row(0.7, True)] * 3 + [row(0.6)] * 2 + [row(0.5, True)] * 2
    rows += [row(None)] * 88

    assert len(rows) == 100
    assert best_yield(rows, 1) == 7  # down to 0.7, with the one miss at 0.8
    assert best_yield(rows, 3) == 9  # down to 0.5, with three misses
    assert best_yield(rows, 0) == 4
    assert best_yield(rows[:50], 1) == 8  # of 50 turns one miss is too many


def test_what_was_done_and_the_worst_window():
    outcomes: list[bool | None] = [False, True, True, None] * 30 + [None] * 80
    found = live(outcomes)

    assert (found.right, found.wrong, found.window) == (30, 15, 30)
    assert live(outcomes * 3).window == 55  # 120 turns with 30 misses, 80 without any, 100 with 25
    assert live([]).window == 0
    assert acted([row(0.9, True), row(None), row(0.1)]) == [True, None, False]


def test_the_budget_by_hand():
    hits, misses = [row(0.99, True)] * 400, [row(0.99)] * 60
    rows = [*hits, *misses]

    def done(min_precision: float, max_wrong: float | None) -> list[bool | None]:
        return with_budget(rows, InertiaPolicy().with_(min_precision=min_precision, max_wrong_per_100=max_wrong))

    assert done(0.9, 1.0).count(True) == done(0.9, None).count(True) == 400
    assert done(0.9, 1.0).count(False) == 4  # what the bucket holds
    assert done(0.9, None).count(False) == 60
    assert done(0.9, 0.0).count(True) == 0
    assert done(1.0, None).count(True) == 0


# --- the simulated budget is the real one -----------------------------------------------------------------------


def visits(count: int, seed: int) -> list[LoggedRun]:
    """A habit that is broken now and then, so that there are hits and misses at many confidences."""
    draw = random.Random(seed)
    runs = []
    for i in range(count):
        name, other = f"Name{draw.randrange(9)}", draw.random() < 0.15
        first = call("find", {"name": name}, {"id": f"id-{name}", "next": f"other-{name}"})
        then = call("open", {"id": f"other-{name}" if other else f"id-{name}"})
        run = history(user(f"Open the file of {name}"), first, *([then] if draw.random() < 0.9 else []), words())
        runs.append(LoggedRun(line=i + 1, thread_id=f"run{i}", messages=run, task=name))
    return runs


def rows_of(runs: list[LoggedRun], policy: InertiaPolicy) -> list[Row]:
    return [row for rows in bench_replay.policy_rows(runs, policy, tools=TOOLS) for row in rows]


@pytest.fixture(scope="module")
def one_pass() -> list[Row]:
    return rows_of(visits(120, seed=3), bench_replay.free(InertiaPolicy()))


@pytest.mark.parametrize(
    ("min_precision", "max_wrong"), [(0.5, 1.0), (0.9, 1.0), (0.5, 4.0), (0.8, 4.0), (0.8, None)]
)  # fmt: skip
def test_one_pass_tells_what_every_threshold_would_have_done(
    one_pass: list[Row], min_precision: float, max_wrong: float | None
):
    policy = InertiaPolicy().with_(min_precision=min_precision, max_wrong_per_100=max_wrong)
    done: list[bool | None] = []
    report = replay(
        visits(120, seed=3),
        tools=TOOLS,
        policy=policy,
        on_turn=lambda turn, decision: done.append(is_right(turn, decision) if decision.acts else None),
    )

    assert with_budget(one_pass, policy) == done
    assert (done.count(True), done.count(False)) == (report.right, report.wrong)
    assert report.right > 0


# --- how runs are arranged --------------------------------------------------------------------------------------


def test_warm_puts_whole_tasks_into_the_history():
    runs = visits(60, seed=1)
    arranged, history_runs = bench_replay.arrange(runs, "warm", 0)
    before = {run.task for run in arranged[:history_runs]}
    after = {run.task for run in arranged[history_runs:]}

    assert {run.thread_id for run in arranged} == {run.thread_id for run in runs}
    assert not before & after
    assert abs(len(before) - len(after)) <= 1


# --- both commands ----------------------------------------------------------------------------------------------


def test_the_replay_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = tmp_path / "visits"
    folder.mkdir()
    lines = [json.dumps({"id": r.thread_id, "task": r.task, "messages": r.messages}) for r in visits(30, seed=2)]
    (folder / "trajectories.jsonl").write_text("\n".join(lines))
    (folder / "tools.json").write_text(json.dumps(TOOLS))
    file = tmp_path / "figures.json"
    options = ["--data", str(tmp_path), "--sets", "visits", "elsewhere", "--seeds", "2", "--processes", "1"]

    assert bench_replay.main([*options, "--json", str(file)]) == 0

    printed = capsys.readouterr().out
    assert "skipped: no recorded runs in elsewhere" in printed
    assert printed.count("live wrong 0.") >= 2
    figures = json.loads(file.read_text())
    assert {(m["mode"], m["method"]) for m in figures["means"]} == {
        (mode, method) for mode in bench_replay.MODES for method in bench_replay.METHODS
    }
    turns = sum(message["role"] == "assistant" for run in load_runs(folder / "trajectories.jsonl").runs
                for message in run.messages)  # fmt: skip
    assert all(m["turns"] == turns for m in figures["means"] if m["mode"] == "cold")
    assert len(figures["shuffles"]) == 4


def test_the_scale_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "figures.json"
    assert bench_scale.main(["--tools", "12", "--events", "60", "--samples", "5", "--json", str(file)]) == 0
    assert "append with apply" in capsys.readouterr().out
    [entry] = json.loads(file.read_text())
    assert entry["events"] >= 60
    assert entry["open_s"] > 0


# --- the synthetic workload -------------------------------------------------------------------------------------


def test_runs_pass_values_on_and_keep_to_the_schemas():
    workload = Workload(500, seed=0)
    names = [tool["function"]["name"] for tool in workload.schemas()]

    assert len(set(names)) == 500
    for thread_id, messages in workload.runs(50):
        steps = [step for event in parse_run(messages, thread_id=thread_id).events[1:] for step in event.steps]
        assert 2 <= len(steps) <= 4
        assert steps[0].args["target"] in messages[0]["content"]
        assert {step.tool for step in steps} <= set(names)
        assert [step.args["target"] for step in steps[1:]] == [step.output["id"] for step in steps[:-1]]
