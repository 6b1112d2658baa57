"""Trees over the record: they correct it where it is wrong, shrink to nothing without evidence, and may be missing."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from histories import call, history, reading, user, words

from langgraph_toolmem import Inertia, InertiaPolicy, ToolMemory, default_methods
from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.inertia import confidence as of
from langgraph_toolmem.inertia.confidence import Confidence, Examples, Trees, Weighed, at_once, log_odds, pack, unpack


def examples(count: int, seed: int = 0) -> tuple[Any, Any]:
    """A record that always says 0.7, where the truth is told by the second feature: 0.95 or 0.2."""
    chance = random.Random(seed)
    rows, hits = [], []
    for _ in range(count):
        good = chance.random() < 0.5
        rows.append([log_odds(0.7), float(good), chance.random()])
        hits.append(float(chance.random() < (0.95 if good else 0.2)))
    return np.array(rows), np.array(hits)


def table(count: int, seed: int = 0) -> Examples:
    graph = ToolGraph()
    kept = graph.register(Examples)
    rows, hits = examples(count, seed)
    graph.apply(
        None, [Weighed(i, [[pack(row), int(hit)]]) for i, (row, hit) in enumerate(zip(rows, hits, strict=True))]
    )
    return kept


AT = np.array([[log_odds(0.7), 1.0, 0.5], [log_odds(0.7), 0.0, 0.5]])


def given(kept: Examples, start: Any = at_once) -> Confidence:
    confidence = Confidence(lambda: kept, start)
    confidence.look()
    return confidence


def test_trees_correct_a_record_that_is_wrong_in_a_known_way():
    good, bad = given(table(1500)).probabilities(AT)

    assert good == pytest.approx(0.95, abs=0.04)
    assert bad == pytest.approx(0.2, abs=0.06)


def test_with_few_examples_the_record_hardly_moves():
    trees = Trees(*examples(8))
    assert np.abs(trees.correction(AT)).max() < np.abs(Trees(*examples(1500)).correction(AT)).max() / 2

    flat = np.zeros((50, 3)), np.array([0.0, 1.0] * 25)
    assert Trees(*flat).correction(np.zeros((1, 3))) == pytest.approx(0, abs=1e-9)


def test_a_record_that_is_right_is_left_alone():
    chance = np.random.default_rng(0)
    p = chance.choice([0.1, 0.5, 0.9], 3000)
    rows = np.stack([np.log(p / (1 - p)), chance.random(3000)], 1)
    trees = Trees(rows, (chance.random(3000) < p).astype(float))

    at = np.array([[log_odds(each), 0.5] for each in (0.1, 0.5, 0.9)])
    assert 1 / (1 + np.exp(-at[:, 0] - trees.correction(at))) == pytest.approx([0.1, 0.5, 0.9], abs=0.06)


def test_with_trees_missing_the_record_decides():
    assert given(table(of.FIRST_FIT - 1)).probabilities(AT) == pytest.approx([0.7, 0.7])
    assert given(table(1500)).probabilities(AT)[0] > 0.8
    wider = np.hstack([AT, AT[:, :1]])
    assert given(table(1500)).probabilities(wider) == pytest.approx([0.7, 0.7]), "trees over other features"


def test_fitted_anew_only_when_the_examples_have_grown():
    kept, fits = table(of.FIRST_FIT), []
    learn = kept.handlers()[of.Weighed]
    confidence = Confidence(lambda: kept, lambda fit: (fits.append(kept.seen), fit())[0])
    confidence.look()
    for _ in range(40):
        learn(kept.seen, [[pack(AT[0]), 1]])
        confidence.look()

    assert fits == [of.FIRST_FIT, round(of.FIRST_FIT * of.GROWTH)]


def test_a_fit_that_fails_leaves_the_record_and_lets_the_next_one_begin():
    kept = table(200)
    kept.examples[-1][1] = "not base64!"
    confidence = Confidence(lambda: kept, at_once)
    with pytest.raises(ValueError, match=r"buffer|padding|base64"):
        confidence.look()
    assert confidence.probabilities(AT) == pytest.approx([0.7, 0.7])

    kept.examples[-1][1] = pack(AT[0])
    kept.seen *= 2
    confidence.look()
    assert confidence.probabilities(AT)[0] > 0.75


def test_features_survive_packing_and_another_width_is_left_out():
    rows = np.array([[0.5, 2.0, -1.25], [1.0, 0.0, 3.0]])
    old = [[0, pack([1.0]), 1]]
    features, hits = unpack([*old, [1, pack(rows[0]), 0], [2, pack(rows[1]), 1]])

    assert (features == rows).all()
    assert hits.tolist() == [0, 1]


def test_the_latest_examples_are_kept_in_the_order_of_turns(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(of, "MAX_EXAMPLES", 5)
    graph = ToolGraph()
    kept = graph.register(Examples)
    for turn in (8, 3, 1, 5, 9, 2, 7):
        graph.apply(None, [Weighed(turn, [["AAAA", 1]])])

    assert [turn for turn, *_ in kept.examples] == [3, 5, 7, 8, 9]
    assert kept.seen == 7


def test_tables_survive_saving_and_opening(tmp_path: Path):
    tools = [reading("find", "name"), reading("open", "id")]
    policy = InertiaPolicy(audit_rate=0.0)
    asked = history(user("Open the file of Zoe"), call("find", {"name": "Zoe"}, {"id": "id-Zoe"}))

    def tables(memory: ToolMemory) -> list[Any]:
        return [memory.core.graph.register(kind).to_state() for kind in Inertia.tables]

    with ToolMemory(tmp_path, tools=tools, methods=default_methods(Inertia(policy, background=False))) as memory:
        for i in range(60):
            found = call("find", {"name": f"N{i}"}, {"id": f"id-N{i}"})
            asked_for = call("open", {"id": f"id-N{i}"} if i % 9 else {"id": "else"})
            memory.finish(history(user(f"Open the file of N{i}"), found, asked_for, words()), thread_id=str(i))
        before, told = tables(memory), memory.inertia.explain(asked)
    assert all(any(state.values()) for state in before)

    with ToolMemory(tmp_path, tools=tools, methods=default_methods(Inertia(policy, background=False))) as memory:
        assert tables(memory) == before
        again = memory.inertia.explain(asked)  # by the record alone: trees are fitted with the next turn
        assert again.options[0][:2] == told.options[0][:2] == ("open", {"id": "id-Zoe"})
