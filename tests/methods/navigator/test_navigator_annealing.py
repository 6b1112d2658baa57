"""The annealing itself: the best ever seen is the answer, and it cools down."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest

from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.navigator.plan import annealing
from langgraph_toolmem.navigator.plan.problem import Problem
from langgraph_toolmem.navigator.plan.settings import PlanSettings
from langgraph_toolmem.runs.tools import ToolSpec

NOUNS = (("order", "parcel", "invoice"), ("customer", "ticket", "device"), ("contract", "room", "vendor"))
VERBS = ("get", "find", "fetch", "read", "lookup")


def problem(**changes: Any) -> Problem:
    """Three ids are needed; each comes from five tools, and all but the last ones need an id of the next three."""
    specs = [ToolSpec("use", "", takes(*(f"{noun}_id" for noun in NOUNS[0])))]
    for level, nouns in enumerate(NOUNS):
        for place, noun in enumerate(nouns):
            for i, verb in enumerate(VERBS):
                below = [f"{NOUNS[level + 1][(place + i) % 3]}_id"] if level < 2 else []
                gives = {"type": "object", "properties": {f"{noun}_id": {"type": "string"}}}
                specs.append(ToolSpec(f"{verb}_{noun}_{'vwxyz'[i]}", "", takes(*below), gives))
    random = Random(5)
    seen = {(source.name, target.name): random.random() * 10 for source in specs for target in specs}
    history = History(uses={spec.name: 10.0 for spec in specs}, transitions=seen)
    chosen = PlanSettings(**changes)
    graph = ToolDependencyGraph(specs)
    return Problem(graph, "use", (), history=history, settings=chosen)


def takes(*names: str) -> dict[str, Any]:
    return {"type": "object", "properties": {n: {"type": "string"} for n in names}, "required": list(names)}


class Watched(annealing.Population):
    """Notes how much each child was changed."""

    def __init__(self, problem: Problem, seed: int) -> None:
        super().__init__(problem, Random(seed), lambda: False)
        self.changes: list[float] = []

    def born(self, genes: annealing.Genes, changed: float = 0.0) -> tuple[annealing.Genes, float]:
        self.changes.append(changed)
        return super().born(genes, changed)


@pytest.mark.parametrize(("temperature", "cooling"), [(1.0, 0.9), (1.0, 0.5), (0.2, 0.8)])
def test_it_cools_until_it_is_cold(temperature: float, cooling: float) -> None:
    made = Watched(problem(temperature=temperature, cooling=cooling, max_nodes=10**6), 1)
    found = made.run()
    generations = math.ceil(math.log(0.05 / temperature) / math.log(cooling))
    assert not found.cut_short
    assert found.score == max(made.seen.values())
    assert made.nodes == 16 * (1 + generations)
    children = made.changes[16:]
    for generation in range(generations):
        part = children[16 * generation : 16 * (generation + 1)]
        assert part == pytest.approx([0.3 * temperature * cooling**generation] * 16)
