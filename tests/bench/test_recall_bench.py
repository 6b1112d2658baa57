"""The recall benchmark: its figures by hand, and its target on one split of the recorded runs."""

from __future__ import annotations

import json
import math
from statistics import fmean

import numpy as np
import pytest

from benchmarks import DATA
from benchmarks import recall as bench
from benchmarks.recall import Request, Split, f1, held_out, requests_of, split


def requests(groups: int, each: int) -> list[Request]:
    return [Request(f"do {g} with {i}", f"g{g}", (f"tool{g}",)) for g in range(groups) for i in range(each)]


def test_f1_of_a_recalled_set():
    assert f1([], frozenset()) == 1.0
    assert f1([3], frozenset()) == 0.0
    assert f1([], frozenset({1})) == 0.0
    assert f1([1, 2, 3], frozenset({1})) == pytest.approx(2 * 1 / (3 + 1))


def test_a_split_asks_what_the_memory_does_not_have():
    made = split(requests(40, 10), seed=3)
    assert split(requests(40, 10), seed=3) == made
    assert not {each.text for each in made.memory} & {each.text for each in made.queries}
    sizes = {sum(each.group == f"g{g}" for each in made.memory) for g in range(40)}
    assert sizes == {0, 1, 2, 3, 5, 9}
    query = made.queries[0]
    assert all(made.memory[place].group == query.group for place in made.relevant(query))


def test_tf_idf_by_hand():
    memory = [Request("red door red", "", ()), Request("blue door", "", ())]
    found = bench.tf_idf(Split(memory, [Request("a red unknown door", "", ())]))
    rare, usual = math.log(3 / 2) + 1, math.log(3 / 3) + 1
    first = np.array([(1 + math.log(2)) * rare, usual])
    query = np.array([rare, usual])
    assert found[0, 0] == pytest.approx(first @ query / np.linalg.norm(first) / np.linalg.norm(query))
    assert found[0, 1] == pytest.approx(usual * usual / math.hypot(rare, usual) ** 2)


def test_the_command_runs_on_a_small_set(tmp_path, capsys):
    folder = tmp_path / "workbench_gpt4"
    folder.mkdir()
    rows = [
        {
            "task": f"{verb} the {i}th report of {name}",
            "template": verb,
            "messages": [{"role": "user", "content": f"{verb} the {i}th report of {name}"}],
        }
        for verb in ("open", "close", "print", "mail")
        for i, name in enumerate(("amir", "bela", "chen", "dana", "emil", "farah", "goran", "hana", "ines", "jon"))
    ]
    (folder / "trajectories.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    out = tmp_path / "figures.json"
    options = ["--data", str(tmp_path), "--seeds", "2", "--embedders"]
    assert bench.main([*options, "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "skipped: no recorded runs in nestful" in printed
    figures = json.loads(out.read_text(encoding="utf-8"))
    by_method = {score["method"]: score for score in figures["scores"]}
    hindsight = by_method["TF-IDF: best n with hindsight"]["all"]
    assert 0 < by_method["TF-IDF: fixed 3"]["all"] <= hindsight


@pytest.mark.skipif(not (DATA / "workbench_gpt4").is_dir(), reason="the recorded runs are not there")
def test_the_target_holds_on_one_split_of_recorded_runs():
    made = split(requests_of(DATA / "workbench_gpt4"), seed=0)
    recalled = bench.calibrated(made)
    figures = [
        (f1(chosen, made.relevant(query)), held_out(query.group))
        for query, chosen in zip(made.queries, recalled, strict=True)
    ]
    assert fmean(f for f, _ in figures) >= 0.78
    assert fmean(f for f, left_out in figures if left_out) >= 0.78
