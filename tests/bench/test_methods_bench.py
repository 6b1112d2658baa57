"""The benchmarks of single methods: figures by hand, each command on a small set whose answer is known, and targets."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from histories import call, history, run_of, schema, user, words

from benchmarks import DATA, apis, large_values, many_tools, prefetch, recall, sga, sit, tool_search, yardsticks
from benchmarks.recall import Request, Split
from benchmarks.yardsticks import Hits
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.runs.logs import LoggedRun
from langgraph_toolmem.runs.run import Run
from tests.methods.navigator.openapi_documents import SHOP

NAMES = ("Ann", "Ben", "Cleo", "Dora", "Emil", "Finn", "Gita", "Hugo", "Iris", "Jona")
KINDS = {
    "refund": ("find_order", "refund_order", "Please give me my money back for order #W{n}A"),
    "track": ("find_order", "track_parcel", "Where is the parcel of order #W{n}A right now"),
    "greet": ("find_person", "send_card", "Congratulate colleague {name} on the birthday"),
}
ABOUT = {
    "find_order": "Look an order up.", "refund_order": "Give the money back for an order.",
    "track_parcel": "Tell where a parcel is.", "find_person": "Look a colleague up.", "send_card": "Send a card.",
}  # fmt: skip


def task(kind: str, number: int, *, failing: bool = False) -> list[Any]:
    first, second, text = KINDS[kind]
    name = NAMES[number % len(NAMES)]
    key = {"key": name if kind == "greet" else f"#W{100 + number}A"}
    asked = user(text.format(name=name, n=100 + number))
    return [asked, *call(first, key, {"id": f"row-{number}"}), *call(first if failing else second, key)]


def run(kind: str, number: int) -> Run:
    return run_of(*task(kind, number))


def lines(path: Path, *rows: dict[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A set whose second call hangs on the request, not on the call before; a fifth of the runs fail."""
    folder, rows = tmp_path / "shop", []
    for number in range(len(NAMES)):
        for kind in KINDS:
            failing = number % 5 == 0
            messages = task(kind, number, failing=failing)
            about = {"id": f"{kind}{number}", "task": messages[0]["content"], "template": kind, "success": not failing}
            rows.append({**about, "messages": messages})
    lines(folder / "trajectories.jsonl", *rows)
    tools = [schema(name, "key") | {"description": about} for name, about in ABOUT.items()]
    (folder / "tools.json").write_text(json.dumps(tools), encoding="utf-8")
    (folder / "nature.json").write_text(json.dumps({"reads": ["find_order", "find_person"]}), encoding="utf-8")
    (tmp_path / "workbench_gpt4").symlink_to(folder)
    catalogue = tmp_path / tool_search.CATALOGUE
    pairs = [(one, other) for one in ABOUT for other in ABOUT if one < other]
    asked = ({"query": f"{ABOUT[one]} {ABOUT[other]}", "relevant": [one, other]} for one, other in pairs)
    lines(catalogue / "queries.jsonl", *asked)
    (catalogue / "tools.json").write_text(json.dumps([{"type": "function", "function": each} for each in tools]))
    return tmp_path


# --- each command ---

SHOPS = ("--sets", "shop", "absent", "--seeds", "1")


def of_sit(found: Any) -> None:
    assert {split["good"] for split in found["splits"]} == {False, True}
    assert {mean["method"] for mean in found["means"]} == set(sit.METHODS)


def of_sga(found: Any) -> None:
    assert {split["names"] for split in found["splits"]} == set(sga.NAMES)
    assert all(split["hits"]["hybrid"] == 100.0 for split in found["splits"])


def of_prefetch(found: Any) -> None:
    (figures,) = found["shop"]
    assert figures["reads"] == 36
    assert figures["ready"] >= 50
    assert figures["wasted"] < 20


def of_recall(found: Any) -> None:
    by_method = {score["method"]: score["all"] for score in found["scores"] if score["name"] == "workbench_gpt4"}
    assert 0 < by_method["TF-IDF: fixed 3"] <= by_method["TF-IDF: best n with hindsight"]


def of_tool_search(found: Any) -> None:
    rows = {(score["method"], score["part"]): score for score in found["scores"]}
    assert rows["ours, built-in", "all"]["c5"] == 100.0


@pytest.mark.parametrize(
    ("bench", "options", "check"),
    [
        (sit, SHOPS, of_sit),
        (sga, SHOPS, of_sga),
        (prefetch, (*SHOPS, "--processes", "1"), of_prefetch),
        (recall, ("--seeds", "2", "--embedders"), of_recall),
        (tool_search, ("--no-model",), of_tool_search),
    ],
    ids=lambda value: getattr(value, "__name__", "").rpartition(".")[2],
)
def test_a_command_prints_and_writes_its_figures(
    bench: Any, options: tuple[str, ...], check: Callable[[Any], None], data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = data / "figures.json"
    assert bench.main(["--data", str(data), *options, "--json", str(file)]) == 0
    check(json.loads(file.read_text(encoding="utf-8")))
    assert "skipped: no recorded runs in" in capsys.readouterr().out or bench is tool_search


# --- large values ---


def test_a_run_with_a_large_value_is_that_of_the_agent_alone() -> None:
    """Else the two processes of the measurement would not do the same."""
    with large_values.opened() as memory:
        for kind, values_of in large_values.KINDS.items():
            values = values_of(20_000)
            alone = large_values.ask(large_values.agent_of(values, None), values, kind)
            assert large_values.ask(large_values.agent_of(values, memory), values, kind) == alone, kind
            in_messages = not kind.endswith(("prompt", "context"))
            assert (len(str(alone)) > 15_000) is in_messages, kind


# --- suggestions ---


def last(run: Run) -> yardsticks.Point:
    *_, point = yardsticks.points(run)
    return point


def test_yardsticks_of_suggestions() -> None:
    order_1 = yardsticks.successors([run("refund", 1), run("refund", 2), run("track", 3)], 1)
    assert order_1(last(run("track", 9))) == ["refund_order", "track_parcel"]
    assert order_1(next(yardsticks.points(run("greet", 9)))) == ["find_order"]
    assert order_1(last(run("greet", 9))) == []
    nearest = yardsticks.nearest_request([run(kind, number) for number in (1, 2) for kind in KINDS])
    for kind, (first, second, _) in KINDS.items():
        begun, done = yardsticks.points(run(kind, 77))
        assert (begun.tool, nearest(begun)[0], nearest(done)[0]) == (first, first, second)
    assert yardsticks.nearest_request([])(last(run("greet", 1))) == []


def test_the_request_says_more_than_the_tool_before(data: Path) -> None:
    hits = sit.work(sit.Job(str(data), "shop", 0, good=True))
    assert hits["order 1"].first < 80  # two kinds go on from find_order
    assert hits["combined"] == hits["nearest request"] == Hits(100.0, 100.0)


# --- atoms ---


def test_successful_runs_that_do_something_are_read_and_can_have_other_names(data: Path, tmp_path: Path) -> None:
    loaded = sga.load(data / "shop")
    assert loaded is not None
    assert len(loaded[0]) == 24
    assert sga.load(data / "absent") is None
    runs, tools = sga.renamed(sga.read(loaded[0]), loaded[1])
    assert {spec.description for spec in tools.values()} == set(ABOUT.values())
    assert not set(tools) & set(ABOUT)
    assert {step.tool for each in runs for step in RunState.of(each).steps} <= set(tools)
    gold = [{"id": "g", "success": True, "messages": [user("y")]}]  # the right answer is to do nothing
    lines(data / "workbench_gold" / "trajectories.jsonl", *gold)
    rows = [
        {"id": f"r{gold_id}", "gold_id": gold_id, "success": True, "messages": task("greet", 1)} for gold_id in "gh"
    ]
    lines(data / "shop" / "trajectories.jsonl", *rows)
    left = sga.load(data / "workbench_gpt4")
    assert left is not None
    assert [each.thread_id for each in left[0]] == ["rh"]


# --- look-ups ahead ---


def test_the_best_threshold_with_hindsight_by_hand() -> None:
    scored = [(0.9, True), (0.8, False), (0.8, True), (0.5, False), (0.4, True), (0.3, False)]
    # from 0.9: 1 ready, 0 wasted; from 0.8: 2, 1; from 0.5: 2, 2; from 0.4: 3, 2; from 0.3: 3, 3
    assert prefetch.hindsight(scored, 10) == {0.5: 20.0, 1.0: 30.0, 1.5: 30.0}
    assert prefetch.hindsight([(0.9, False)], 10) == {0.5: 0.0, 1.0: 0.0, 1.5: 0.0}


def test_two_deep_saves_where_the_tool_is_between_two_model_calls_in_speed() -> None:
    messages, reads = history(user("x"), call("find"), call("open"), words()), frozenset({"find", "open"})
    # The model takes 4, 1 and 5 seconds.
    # T = 2.5 would save min(4 - T, T - 1) = 1.5 s; 1 and 4, which are tried, save nothing.
    runs = [LoggedRun(1, "r", messages, times=(0.0, 4.0, 4.0, 5.0, 5.0, 10.0))]
    assert prefetch.two_deep(runs, reads) == 0.0
    uneven = [*runs, LoggedRun(2, "s", messages, times=(0.0, 2.0, 2.0, 4.0, 4.0, 5.0))]
    # T = 2: 1 s in the first run; model 10 + 5 s, four tool calls of 2 s
    assert prefetch.two_deep(uneven, reads) == pytest.approx(100 * 1 / (15 + 8))


# --- recall ---


def test_figures_of_recall_by_hand() -> None:
    assert recall.f1([], frozenset()) == 1.0
    assert recall.f1([3], frozenset()) == recall.f1([], frozenset({1})) == 0.0
    assert recall.f1([1, 2, 3], frozenset({1})) == pytest.approx(2 * 1 / (3 + 1))
    memory = [Request("red door red", "", ()), Request("blue door", "", ())]
    found = recall.tf_idf(Split(memory, [Request("a red unknown door", "", ())]))
    rare, usual = math.log(3 / 2) + 1, math.log(3 / 3) + 1
    first, query = np.array([(1 + math.log(2)) * rare, usual]), np.array([rare, usual])
    assert found[0, 0] == pytest.approx(first @ query / np.linalg.norm(first) / np.linalg.norm(query))
    assert found[0, 1] == pytest.approx(usual * usual / math.hypot(rare, usual) ** 2)


def test_a_split_asks_what_the_memory_does_not_have() -> None:
    requests = [Request(f"do {g} with {i}", f"g{g}", (f"tool{g}",)) for g in range(40) for i in range(10)]
    made = recall.split(requests, seed=3)
    assert recall.split(requests, seed=3) == made
    assert not {each.text for each in made.memory} & {each.text for each in made.queries}
    assert {sum(each.group == f"g{g}" for each in made.memory) for g in range(40)} == {0, 1, 2, 3, 5, 9}
    query = made.queries[0]
    assert all(made.memory[place].group == query.group for place in made.relevant(query))


# --- plans ---


def test_natural_producers_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "shop.json"
    file.write_text(json.dumps(SHOP), encoding="utf-8")
    found, plans = apis.measure(file)
    assert [found[name] for name in ("operations", "ids", "first", "in_chain")] == [7, 9, 9, 9]
    assert (found["writes"], found["optional"], len(plans)) == (0, 0, 7)


# --- targets on recorded runs ---


@pytest.mark.skipif(not (DATA / "workbench_gpt4").is_dir(), reason="the recorded runs are not there")
def test_recall_on_one_split() -> None:
    made = recall.split(recall.requests_of(DATA / "workbench_gpt4"), seed=0)
    figures = [
        (recall.f1(chosen, made.relevant(query)), recall.held_out(query.group))
        for query, chosen in zip(made.queries, recall.calibrated(made), strict=True)
    ]
    assert fmean(f for f, _ in figures) >= 0.78
    assert fmean(f for f, left_out in figures if left_out) >= 0.78


@pytest.mark.skipif(not (DATA / tool_search.CATALOGUE).is_dir(), reason="the catalogue is not there")
def test_tool_search_without_a_model_on_requests_that_were_held_out() -> None:
    asked = [each for each in tool_search.requests(DATA) if each.held_out]
    rank = tool_search.ours(tool_search.tools_of(DATA, tool_search.CATALOGUE), None)
    scores = {score.part: score for score in tool_search.measure("ours, built-in", rank, asked)}["held out"]
    assert len(asked) > 300
    assert min(scores.r5 - 72, scores.c5 - 53, scores.c10 - 68, scores.c20 - 78) >= 0


@pytest.mark.skipif(not (DATA / tool_search.CATALOGUE).is_dir(), reason="the catalogue is not there")
def test_the_prefix_stays_with_many_tools(capsys: pytest.CaptureFixture[str]) -> None:
    assert many_tools.main(["--no-model", "--tools", "60", "--threads", "1", "--seeds", "1"]) == 0
    said = capsys.readouterr().out
    assert "holds   portable" in said
    assert "holds   constant tools" in said
