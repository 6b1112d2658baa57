"""A ratchet for how densely the package is written: each figure may only get better.

httpx, starlette, structlog and langgraph have 2 to 9 comprehensions and 2 to 9 conditional expressions per 1,000
lines, and comments on 4 to 5 % of their lines. After a change that lowers a figure, lower its limit here.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from functools import cache

import pytest
from modules import PACKAGE, modules, one_worker

pytestmark = one_worker
PER_1_000_LINES = {
    "comprehensions": 12.2,
    "conditional expressions": 1.8,
    "lambdas": 0.1,
    "constants": 8.8,
}
LEAST_COMMENTS_PERCENT = 4.0
MOST_COMPLEX = 15
"""A function with more branches than this is read twice."""
MEAN_COMPLEXITY = 3.5
MOST_COMPLEX_FUNCTIONS = 0
MOST_SHARED_CLASS_NAMES = 0
MOST_SHARED_CONSTANT_NAMES = 0

COMPREHENSIONS = (ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BRANCHES = (
    ast.If,
    ast.For,
    ast.While,
    ast.ExceptHandler,
    ast.IfExp,
    ast.comprehension,
    ast.Assert,
    ast.With,
)


@cache
def counts() -> Counter[str]:
    total: Counter[str] = Counter()
    for _, text, tree in modules():
        total["lines"] += text.count("\n")
        total["comments"] += comments(text)
        total["constants"] += constants(tree)
        for node in ast.walk(tree):
            if isinstance(node, COMPREHENSIONS):
                total["comprehensions"] += 1
            elif isinstance(node, ast.IfExp):
                total["conditional expressions"] += 1
            elif isinstance(node, ast.Lambda):
                total["lambdas"] += 1
    return total


def comments(text: str) -> int:
    """Count the comments that say something to a reader."""
    number = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        for_tools = "noqa" in token.string or "type: ignore" in token.string
        if token.type == tokenize.COMMENT and not for_tools:
            number += 1
    return number


def constants(tree: ast.Module) -> int:
    """Count the constants of a module and of its classes."""
    return len(constant_names(tree))


def constant_names(tree: ast.Module) -> list[str]:
    """Return the names of the constants of a module and of its classes."""
    names = []
    bodies = [tree.body]
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            bodies.append(node.body)
    for body in bodies:
        for statement in body:
            for target in targets(statement):
                type_variable = len(target.id) == 1
                if target.id.isupper() and not type_variable:
                    names.append(target.id)
    return names


def targets(statement: ast.stmt) -> list[ast.Name]:
    if isinstance(statement, ast.AnnAssign):
        assigned: list[ast.expr] = [statement.target]
    elif isinstance(statement, ast.Assign):
        assigned = statement.targets
    else:
        assigned = []
    return [target for target in assigned if isinstance(target, ast.Name)]


def complexity(function: ast.AST) -> int:
    number = 1
    for node in ast.walk(function):
        if isinstance(node, BRANCHES):
            number += 1
        elif isinstance(node, ast.BoolOp):
            number += len(node.values) - 1
    return number


@pytest.mark.parametrize("kind", PER_1_000_LINES)
def test_density_does_not_grow(kind: str) -> None:
    total = counts()
    assert 1000 * total[kind] / total["lines"] <= PER_1_000_LINES[kind]


def test_comments_do_not_get_fewer() -> None:
    total = counts()
    assert 100 * total["comments"] / total["lines"] >= LEAST_COMMENTS_PERCENT


def test_complex_functions_do_not_get_more() -> None:
    complex_ones = []
    for path, _, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, FUNCTIONS) and complexity(node) > MOST_COMPLEX:
                complex_ones.append(f"{path.relative_to(PACKAGE)}: {node.name} has {complexity(node)}")
    assert len(complex_ones) <= MOST_COMPLEX_FUNCTIONS, "\n".join(complex_ones)


def test_functions_do_not_get_more_complex() -> None:
    numbers = []
    for _, _, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, FUNCTIONS):
                numbers.append(complexity(node))
    assert sum(numbers) / len(numbers) <= MEAN_COMPLEXITY


def test_a_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = {}
    for path, _, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    shared = {}
    for name, where in places.items():
        if len(where) > 1:
            shared[name] = where
    assert len(shared) <= MOST_SHARED_CLASS_NAMES, shared


def test_a_constant_name_means_one_thing() -> None:
    places: dict[str, list[str]] = {}
    for path, _, tree in modules():
        for name in constant_names(tree):
            # A reader does not tell `_MARK` from `MARK` either.
            places.setdefault(name.lstrip("_"), []).append(str(path.relative_to(PACKAGE)))
    shared = {}
    for name, where in places.items():
        if len(where) > 1:
            shared[name] = where
    assert len(shared) <= MOST_SHARED_CONSTANT_NAMES, shared
