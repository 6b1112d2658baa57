"""Every regular expression of the package takes time in proportion to its text, whatever the text is."""

from __future__ import annotations

import ast
import importlib
import itertools
import re
import time
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

import langgraph_toolmem
from langgraph_toolmem.text import values

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it is private from Python 3.11 on
    import sre_parse

ROOT: Final = Path(langgraph_toolmem.__file__).parent
METHODS: Final = ("match", "fullmatch", "search", "finditer", "findall", "sub", "split")
MADE_AT_RUN_TIME: Final = {
    "evaluation/tau2/stub.py",
    "graph/cases.py",
    "graph/sources.py",
    "navigator/openapi/documents.py",
    "turn/providers.py",
    "turn/structured.py",
}
"""Modules with expressions of which a part is not known before: words around a value of a bounded length, values of
past calls, scalars of YAML, names of models, names of fields, names of an environment's tools and fields."""
SHORT, LONG = 250, 2000
MOST: Final = 24
"""A text 8 times as long may take so many times as long; a quadratic expression takes 64 times as long."""
WORTH_A_LOOK: Final = 0.001
"""Seconds for LONG characters. A quadratic expression takes more than 0.008 even where a step is done in 4 ns."""
MAX_UNITS: Final = 14


@cache
def sources() -> dict[str, str]:
    """Return the text of each module that is looked at, by its place."""
    texts: dict[str, str] = {}
    for path in sorted(ROOT.rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        if not place.startswith(("hgt/", "papers/")):
            texts[place] = path.read_text()
    return texts


def with_expressions() -> list[str]:
    """Return the places of modules with expressions."""
    # Each worker collects the tests, and parsing all modules takes seconds.
    names = re.compile(rf"\bre\.({'|'.join(METHODS)}|compile)\b")
    return [place for place, text in sources().items() if names.search(text)] + ["text/values.py kinds"]


@cache
def expressions(place: str) -> dict[str, tuple[re.Pattern[str], set[str]]]:
    """Return the expressions of a module by name, with the methods that are called."""
    found: dict[str, tuple[re.Pattern[str], set[str]]] = {}
    if place == "text/values.py kinds":
        for kinds in (values.KINDS, values.RANKED, values.WHOLE_VALUES):
            found[f"{len(kinds)} kinds"] = (values.scanner(kinds).pattern, {"finditer"})
        return found
    source = sources()[place]
    name = ".".join(("langgraph_toolmem", *place.removesuffix(".py").split("/"))).removesuffix(".__init__")
    module = vars(importlib.import_module(name))
    for constant, pattern in module.items():
        if isinstance(pattern, re.Pattern) and re.search(rf"(?m)^{constant}\b.*= re\.compile", source):
            users = [source] if constant.startswith("_") else list(sources().values())
            named = [text for text in users if f"{constant}." in text]
            used = {m for text in named for m in METHODS if re.search(rf"\b{constant}\.{m}\b", text)}
            found[constant] = (pattern, used or {"search"})
    for number, (method, text, flags) in enumerate(inline(source, place, module)):
        found[f"{number}:{method}"] = (re.compile(text, flags), {method})
    return found


NOT_KNOWN: Final[set[str]] = set()
"""Modules with an expression that only a run makes."""


def inline(source: str, place: str, module: dict[str, Any]) -> Iterator[tuple[str, str, int]]:
    """Yield method, text and flags of the expressions that are given where they are used, or made in a function."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        known = {**module, **known_texts(function, module)}
        for node in ast.walk(function):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
                continue
            of, method = node.func.value, node.func.attr
            if not isinstance(of, ast.Name) or of.id != "re" or method not in (*METHODS, "compile"):
                continue
            given = [argument.value for argument in node.keywords if argument.arg == "flags"]
            takes = {"compile": 1, "sub": 4, "split": 3}.get(method, 2)
            given += node.args[takes : takes + 1]
            text = value_of(node.args[0], known)
            if not isinstance(text, str):
                NOT_KNOWN.add(place)
                continue
            flags = value_of(given[0], known) if given else 0
            for used in methods_of(node, function) if method == "compile" else (method,):
                yield used, text, int(flags)


def methods_of(compiled: ast.Call, function: ast.AST) -> set[str]:
    """Return the methods that a function calls of an expression that it compiles; ``finditer`` if it leaves it."""
    names = {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and node.value is compiled
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    used = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
            used.add(node.attr)
    return used & {*METHODS} or {"finditer"}


def known_texts(function: ast.AST, module: dict[str, Any]) -> dict[str, str]:
    """Return the local names of a function that are texts whatever its arguments are."""
    texts: dict[str, str] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            value = value_of(node.value, {**module, **texts})
            if isinstance(value, str):
                texts[node.targets[0].id] = value
    return texts


SAFE: Final = (ast.Constant, ast.JoinedStr, ast.FormattedValue, ast.Name, ast.Load, ast.Attribute, ast.BinOp, ast.Add)
SAFE_CALLS: Final = ("join", "sorted", "escape")


def value_of(node: ast.expr, known: dict[str, Any]) -> Any:
    """Return the value of an expression of names, constants and joined texts; None for any other."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call):
            called = part.func.attr if isinstance(part.func, ast.Attribute) else getattr(part.func, "id", "")
            if called not in SAFE_CALLS:
                return None
        elif not isinstance(part, (*SAFE, ast.BitOr)):
            return None
    try:
        return eval(compile(ast.Expression(node), "<expression>", "eval"), dict(known))
    except (NameError, AttributeError, TypeError):
        return None


def units(pattern: re.Pattern[str]) -> list[str]:
    """Return characters and words that the expression looks for, each of which may be repeated."""
    found: dict[str, None] = {}
    read(sre_parse.parse(pattern.pattern, pattern.flags), found)
    for common in "a1- .'\n":
        found.setdefault(common)
    singles, longer = [u for u in found if len(u) == 1], [u for u in found if len(u) > 1]
    return (singles[: MAX_UNITS - 4] + sorted(longer, key=len, reverse=True))[:MAX_UNITS]


def read(parts: Any, found: dict[str, None]) -> None:
    run = ""
    for kind, argument in parts:
        name = str(kind)
        if name == "LITERAL":
            found.setdefault(chr(argument))
            run += chr(argument)
            continue
        if len(run) > 1:
            found.setdefault(run)
        run = ""
        if name == "IN":
            for inner, value in argument:
                representative(str(inner), value, found)
        else:
            for inner in nested(argument):
                read(inner, found)
    if len(run) > 1:
        found.setdefault(run)


def nested(argument: Any) -> Iterator[Any]:
    if isinstance(argument, sre_parse.SubPattern):
        yield argument
    elif isinstance(argument, (tuple, list)):
        for inner in argument:
            yield from nested(inner)


def representative(kind: str, value: Any, found: dict[str, None]) -> None:
    known = {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "a"}
    if kind == "LITERAL":
        found.setdefault(chr(value))
    elif kind == "RANGE":
        found.setdefault(chr(value[0]))
    elif kind == "CATEGORY":
        found.setdefault(known.get(str(value), "!"))


def seconds(do: Callable[[str], Any], text: str, repeats: int) -> float:
    took = []
    for _ in range(repeats):
        begun = time.thread_time()
        do(text)
        took.append(time.thread_time() - begun)
    return min(took)


def worst(pattern: re.Pattern[str], method: str) -> tuple[float, str]:
    """Return the highest growth from SHORT to LONG characters, and the repeated part of the text."""
    function = getattr(pattern, method)
    call = (lambda text: function("", text)) if method == "sub" else function
    do = (lambda text: sum(1 for _ in call(text))) if method == "finditer" else call
    parts = units(pattern)
    heads = ["", *parts] if method in ("match", "fullmatch") else [""]
    growth, by = 0.0, ""
    pairs = list(map("".join, itertools.permutations(parts, 2)))
    texts = [*itertools.product(heads, parts), *itertools.product(heads[:4], pairs)]
    for head, pump in texts:
        short, long = (head + (pump * size)[:size] + "\0" for size in (SHORT, LONG))
        if seconds(do, long, 1) < WORTH_A_LOOK or (after := seconds(do, long, 3)) < WORTH_A_LOOK:
            continue
        if (ratio := after / max(seconds(do, short, 5), 1e-5)) > growth:
            growth, by = ratio, f"{head!r} {pump!r}"
    return growth, by


def test_all_expressions_are_looked_at() -> None:
    found = {place: expressions(place) for place in with_expressions()}
    assert NOT_KNOWN - {"text/values.py"} <= MADE_AT_RUN_TIME
    assert sum(map(len, found.values())) > 80
    assert found["atoms/extract.py"], "it makes one of the verbs of the lexicon"


@pytest.mark.parametrize("place", with_expressions())
def test_expressions_are_linear(place: str) -> None:
    for name, (pattern, methods) in expressions(place).items():
        for method in methods:
            growth, by = worst(pattern, method)
            assert growth <= MOST, f"{place}:{name}.{method}: {growth:.0f} times for a text 8 times as long: {by}"
