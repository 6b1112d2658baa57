"""What is public: `__all__` tells it all, everything is documented, and the first example runs."""

from __future__ import annotations
import __future__

import doctest
import importlib
import inspect
import subprocess
import sys
from types import ModuleType

import pytest

import langgraph_toolmem
from langgraph_toolmem.base import errors

PUBLIC = [
    "langgraph_toolmem",
    "langgraph_toolmem.extend",
    "langgraph_toolmem.middleware",
    "langgraph_toolmem.nodes",
    "langgraph_toolmem.page",
    "langgraph_toolmem.testing",
]


def public_names(module: ModuleType) -> set[str]:
    return {
        name
        for name, value in ((name, getattr(module, name)) for name in dir(module))  # dir: some come when asked for
        if not name.startswith("_") and not isinstance(value, (ModuleType, type(__future__.annotations)))
    }


def _rank(name: str) -> tuple[bool, bool, str]:
    """Constants and acronyms, classes, functions."""
    return not name.isupper(), not name[0].isupper(), name


@pytest.mark.parametrize("name", PUBLIC)
def test_all_is_what_is_public(name: str):
    module = importlib.import_module(name)

    assert set(module.__all__) - {"__version__"} == public_names(module)
    assert len(module.__all__) == len(set(module.__all__))
    assert sorted(module.__all__, key=_rank) == list(module.__all__)


@pytest.mark.parametrize("name", PUBLIC)
def test_everything_public_is_documented(name: str):
    module = importlib.import_module(name)
    assert module.__doc__
    bare = []
    for public in module.__all__:
        value = getattr(module, public)
        if not (inspect.isclass(value) or inspect.isroutine(value)):
            continue
        if not (value.__doc__ or "").strip() or value.__doc__.startswith(f"{public}("):
            bare.append(public)
        if inspect.isclass(value) and value.__module__.startswith("langgraph_toolmem"):
            members = {n: m for n, m in vars(value).items() if not n.startswith("_") and _is_method(m)}
            bare += [f"{public}.{n}" for n, m in members.items() if not inspect.getdoc(getattr(value, n))]

    assert bare == []


def _is_method(member: object) -> bool:
    return inspect.isroutine(member) or isinstance(member, (property, classmethod, staticmethod))


def test_every_error_is_exported():
    defined = {n for n, v in vars(errors).items() if inspect.isclass(v) and issubclass(v, errors.ToolMemoryError)}

    assert defined <= set(langgraph_toolmem.__all__)
    assert all(name in (errors.__doc__ or "") for name in defined)


def test_the_first_example_runs():
    result = doctest.testmod(langgraph_toolmem)

    assert result.attempted > 0
    assert result.failed == 0


HEAVY = ("torch", "chromadb", "langchain", "numpy", "scipy", "networkx", "typer", "mcp")


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import langgraph_toolmem, langgraph_toolmem.cli", (*HEAVY[:-2], "rich", "langgraph", "langchain_core")),
        ("from langgraph_toolmem.nodes import InertiaShortcut, Recorder", HEAVY),
        ("from langgraph_toolmem import ToolMemory as M; M.ephemeral().inertia.predict([('user', 'hello')])", HEAVY),
    ],
)
def test_an_import_loads_nothing_heavy(code: str, heavy: tuple[str, ...]):
    code = f"import sys; {code}; print({{m.split('.')[0] for m in sys.modules}} & {set(heavy)})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_name_that_is_not_there_is_refused():
    with pytest.raises(AttributeError, match="no attribute 'ToolMemroy'"):
        _ = langgraph_toolmem.ToolMemroy
    with pytest.raises(ImportError):
        exec("from langgraph_toolmem import nothing")
    assert set(langgraph_toolmem.__all__) <= set(dir(langgraph_toolmem))


TWINS = {
    "ToolMemory": "observe finish feedback import_runs report view forget flush close",
    "Inertia": "predict explain",
    "SIT": "suggest",
    "Navigator": "search plan reroute prune pruned restore propagate",
    "Entries": "recall preferences",
    "Atoms": "search all keep records",
}


@pytest.mark.parametrize("kind", TWINS)
def test_async_twins_take_the_same_and_return_the_same(kind: str):
    owner = getattr(langgraph_toolmem, kind)
    made = {n for n, m in inspect.getmembers(owner) if inspect.iscoroutinefunction(m) and not n.startswith("_")}
    assert made == {f"a{name}" for name in TWINS[kind].split()}
    for name in TWINS[kind].split():
        assert inspect.signature(getattr(owner, f"a{name}")) == inspect.signature(getattr(owner, name)), name
