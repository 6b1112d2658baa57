"""Texts in RAM have one home: bounded in bytes, emptied at once, and nothing is kept outside of it."""

from __future__ import annotations

import ast
import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from modules import PACKAGE, modules, one_worker

from langgraph_toolmem.base import caches
from langgraph_toolmem.base.caches import KeptTexts, cached, forget_texts
from langgraph_toolmem.graph.cases import replacements
from langgraph_toolmem.runs.run import output_of_text
from langgraph_toolmem.text.values import kind_of, read_text, values_in
from langgraph_toolmem.text.wording import terms_of
from langgraph_toolmem.text.words import stem

NO_TEXTS = {
    "atoms/extract.py": "an expression and a list of words",
    "atoms/retrieve.py": "for one search",
    "atoms/slots.py": "an expression and lists of words",
    "graph/sources.py": "expressions of dates",
    "inertia/review.py": "policies of agents",
    "inertia/speculative.py": "classes of tools",
    "inertia/step.py": "names of settings that a program wrote",
    "models/wrapped.py": "classes of models",
    "navigator/openapi/documents.py": "a loader of YAML",
    "stores/chroma.py": "Chroma's settings",
    "stores/database.py": "factors of a checksum",
    "stores/vectors.py": "names of parts of a collection",
    "text/values.py": "sets of kinds",
}
"""Modules with caches outside the home, and what those keep."""


def imports_a_cache(tree: ast.AST) -> bool:
    """Return True if a module imports a cache of the standard library."""
    taken = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "functools"]
    return any(name.name in ("cache", "lru_cache") for node in taken for name in node.names)


@one_worker
def test_caches_of_texts_are_in_the_home() -> None:
    others = [module for module in modules() if module.path != Path(caches.__file__)]
    trees = {module.path.relative_to(PACKAGE).as_posix(): module.tree for module in others}
    assert {name for name, tree in trees.items() if imports_a_cache(tree)} == set(NO_TEXTS)
    assert len(caches.budgets) > 30


def test_a_full_cache_is_emptied_and_counts_what_it_holds() -> None:
    made: list[str] = []

    @cached(mebibytes=0.01)
    def doubled(text: str) -> str:
        made.append(text)
        return text + text

    texts = [f"{number}".zfill(1000) for number in range(30)]
    for text in texts:
        assert doubled(text) == text * 2
    budget = next(budget for budget in caches.budgets if budget.name.endswith("doubled"))
    assert 0 < budget.used <= budget.most == 2**20 // 100
    assert 0 < doubled.cache_info().currsize < 4
    assert doubled(texts[-1]) == texts[-1] * 2
    assert len(made) == 30
    forget_texts()
    assert (doubled.cache_info().currsize, budget.used) == (0, 0)
    name = budget.name
    del doubled, budget
    gc.collect()
    assert name not in {budget.name for budget in caches.budgets}, "an object's cache goes with the object"


def line(number: int) -> str:
    """Return a request of some length, unlike the others."""
    return " ".join(f"Order {number} of Anne{number * part} for {part}.50 dollars" for part in range(1, 40))


def rows(number: int) -> str:
    return str([{"id": f"O-{number}", "n": part} for part in range(40)]).replace("'", '"')


@pytest.mark.parametrize(
    ("function", "argument", "calls"),
    [
        (values_in, line, 240),
        (read_text, line, 240),
        (terms_of, line, 240),
        (output_of_text, rows, 600),
        (kind_of, lambda number: f"{number}-" * 20, 600),
        (stem, lambda number: f"word{number}ing" * 10, 600),
        (lambda text: replacements(text, text[9:400]), line, 240),
    ],
)
def test_a_cache_takes_no_more_bytes_than_it_may(
    function: Callable[[str], Any], argument: Callable[[int], str], calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for budget in caches.budgets:
        monkeypatch.setattr(budget, "most", budget.most // 16)  # the full ones take a while to fill
    forget_texts()
    most = max(budget.most for budget in caches.budgets)
    tracemalloc.start()
    try:
        begun, _ = tracemalloc.get_traced_memory()
        for number in range(calls):
            function(argument(number))
        grown = tracemalloc.get_traced_memory()[0] - begun
        held = sum(budget.used for budget in caches.budgets)
    finally:
        tracemalloc.stop()
    forget_texts()
    assert held > 0.2 * most or grown < most
    assert grown <= 1.5 * held + 100_000


class Holder:
    def __init__(self, home: KeptTexts) -> None:
        self.dropped = 0
        home.register(self.drop)

    def drop(self) -> None:
        self.dropped += 1


def test_holders_are_asked_as_long_as_they_live() -> None:
    home = KeptTexts()
    holder, gone = Holder(home), Holder(home)
    stem("wanting")
    del gone
    home.forget()
    assert (holder.dropped, home.purges, stem.cache_info().currsize) == (1, 1, 0)
