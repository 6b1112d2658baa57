"""The benchmark of links: its figures by hand, its negatives, and its targets on one set where that is there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import links as bench
from benchmarks.links_data import Catalogue, Task, figures, folds_of, interval, negatives
from benchmarks.replay import DATA
from langgraph_toolmem.runs.tools import read_tools

TOOLS = 24


def made() -> list[Task]:
    tasks = []
    for number in range(60):
        a, b, c = (f"tool_{(7 * number + step) % TOOLS}" for step in (0, 1, 3))
        tasks.append(Task(f"do {number}", frozenset({(a, b), (b, c)} if number % 3 else {(a, b)}), (a, b, c)))
    return tasks


def two_folds():
    names = [f"tool_{number}" for number in range(TOOLS)]
    tools = [{"name": name, "description": name, "parameters": {"type": "object", "properties": {}}} for name in names]
    specs = read_tools([{"type": "function", "function": each} for each in tools])
    return folds_of(Catalogue(specs, made(), []), bench.embedding("built-in"))


def test_what_one_fold_learns_the_other_is_asked():
    one, other = two_folds()
    assert set(map(tuple, one.known.tolist())) == set(other.asked)
    assert set(map(tuple, other.known.tolist())) == set(one.asked)
    assert one.barred == other.barred == {*one.asked, *other.asked}
    for seed in range(3):
        drawn = negatives(one, seed)
        assert len(drawn) == len(one.asked)
        assert not set(map(tuple, drawn.tolist())) & one.barred
        assert (drawn[:, 0] != drawn[:, 1]).all()
        np.testing.assert_array_equal(drawn, negatives(one, seed))


def test_known_links_come_first_and_a_perfect_ranking_is_one():
    fold, _ = two_folds()
    draws = [negatives(fold, seed) for seed in range(2)]
    asked = set(fold.asked)

    best = figures(fold, lambda pairs: np.array([float(tuple(pair) in asked) for pair in pairs.tolist()]), draws)
    assert 0 < fold.unseen.sum() < len(fold.asked)
    assert best.all == best.unseen == 1.0
    flat = figures(fold, lambda pairs: np.zeros(len(pairs)), draws)
    share = 1 - fold.unseen.mean()
    assert flat.all == pytest.approx(share + (1 - share) * 0.5)  # co-occurrence first, then a coin
    assert set(flat.within) == {0.5}
    assert set(best.reciprocal) == {1.0}


def test_an_interval_holds_the_mean():
    low, high = interval([0.0, 1.0] * 50)
    assert low < 0.5 < high
    assert 0.05 < high - low < 0.4


def test_a_set_that_is_not_there_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert bench.main(["--data", str(tmp_path), "--embedders", "built-in"]) == 0
    assert "skipped: nestful is not there" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(not (DATA / "nestful").is_dir(), reason="needs ../shared/data/nestful")
@pytest.mark.long
def test_the_plain_scorer_reaches_its_target(capsys: pytest.CaptureFixture[str]):
    assert bench.main(["--sets", "nestful", "--embedders", "built-in", "--seeds", "1"]) == 0
    said = capsys.readouterr().out
    assert said.count("holds ") == 4
    assert "MISSED" not in said
