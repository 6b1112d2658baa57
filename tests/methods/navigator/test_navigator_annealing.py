"""The annealing itself: the best ever seen is the answer, and it cools down."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest

from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.navigator.plan import annealing
from langgraph_toolmem.navigator.plan.annealing import fitness
from langgraph_toolmem.navigator.plan.problem import PlanSearch, PlanSettings, Producers
from langgraph_toolmem.runs.tools import ToolSpec

NOUNS = (("order", "parcel", "invoice"), ("customer", "ticket", "device"), ("contract", "room", "vendor"))
VERBS = ("get", "find", "fetch", "read", "lookup")


def problem(**changes: Any) -> PlanSearch:
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
    return PlanSearch(Producers(ToolDependencyGraph(specs), history), "use", settings=PlanSettings(**changes))


def takes(*names: str) -> dict[str, Any]:
    return {"type": "object", "properties": {n: {"type": "string"} for n in names}, "required": list(names)}


def test_it_cools_until_it_is_cold_and_answers_with_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    scores: list[float] = []

    def noted(draft: Any, problem: PlanSearch) -> float:
        scores.append(fitness(draft, problem))
        return scores[-1]

    monkeypatch.setattr(annealing, "fitness", noted)
    found = annealing.anneal(problem(max_nodes=10**6), Random(1))
    generations = math.ceil(math.log(annealing.COLDEST / annealing.START) / math.log(annealing.COOLING))
    assert not found.cut_short
    assert found.score == max(scores)
    assert found.nodes == 16 * (1 + generations)
