"""Layers: imports go down, no method imports another, no private name crosses a folder.

Ruff's SLF001 holds the last of these outside the package.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cache

import modules as parsed
from modules import PACKAGE, one_worker

pytestmark = one_worker
NAME = "langgraph_toolmem"
FLOORS = [
    {"_version", "base"},
    {"text"},
    {"runs"},
    {"graph"},
    {"stores"},
    {"core"},
    {"turn", "report"},
    {"inertia", "sit", "navigator", "entries", "atoms"},
    {"memory", "extend"},
    {"nodes"},
    {"models"},
    {"middleware"},
    {"offline"},
    {"papers"},
    {"hgt"},
    {"page"},
    {"evaluation"},
    {"cli"},
    {"__main__"},
]
APART = {"testing", "__init__"}
"""Test doubles stand alone; the package's face hands names on when they are asked for."""
PUBLISHED = {
    "__init__": {"papers.autotool"},  # PaperPolicy, for type checkers; at run time when it is asked for
    "inertia.policy": {"papers.autotool"},  # InertiaPolicy.paper()
    "navigator": {
        "papers.naviagent.evolution",
        "papers.naviagent.learned",
    },  # prune, propagate; a table that was trained
    "navigator.plan.planner": {"papers.naviagent.annealing"},  # strategy="annealing"
    "sit": {"papers.sit_graph"},  # SITPolicy.paper()
}
"""Module of the default -> published rules that its named constructors and operations import when they are called."""
NAMED_TUPLE = {"_replace", "_asdict", "_fields", "_make"}

FLOOR = {room: number for number, floor in enumerate(FLOORS) for room in floor}


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the package by its dotted name below it."""
    found = {}
    for path, _, tree in parsed.modules():
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)
        found[name] = tree
    return found


def room(module: str) -> str:
    return module.split(".")[0]


def at_run_time(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that are outside `if TYPE_CHECKING:`."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            yield node
            yield from at_run_time(node)


def imports(module: str, nodes: Callable[[ast.AST], Iterator[ast.AST]] = ast.walk) -> Iterator[tuple[str, list[str]]]:
    """Yield the package's modules that a module imports, wherever it does so, and the names taken."""
    for node in nodes(modules()[module]):
        if isinstance(node, ast.Import):
            for each in node.names:
                if each.name.startswith(f"{NAME}."):
                    yield each.name.removeprefix(f"{NAME}."), []
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == NAME:
            below = node.module.removeprefix(NAME).lstrip(".")
            names = [each.name for each in node.names]
            for name in names:
                inside = f"{below}.{name}" if below else name
                yield (inside, []) if inside in modules() else (below or "__init__", [name])


def test_imports_go_down() -> None:
    wrong = []
    for module, tree in modules().items():
        for target, _ in imports(module):
            here, there = room(module), room(target)
            if here == "testing":
                down = there in {"testing", "base", "text"}
            else:
                down = here in APART or here == there or FLOOR.get(there, len(FLOORS)) < FLOOR[here]
            if not down and target not in PUBLISHED.get(module, ()):
                wrong.append(f"{module} imports {target}")
        names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
        names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        if room(module) != "papers" and any(name.split(".")[0] == "torch" for name in names):
            wrong.append(f"{module} imports torch")
    assert not wrong, "\n".join(wrong)


def test_nothing_imports_the_papers_before_a_published_rule_is_named() -> None:
    used: dict[str, set[str]] = {}
    for module, tree in modules().items():
        if room(module) in ("papers", "hgt"):
            continue
        for target, _ in imports(module, at_run_time):
            if room(target) == "papers":
                used.setdefault(module, set()).add(target)
        at_import = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
        assert not [node for node in at_import if f"{NAME}.papers" in ast.unparse(node)], f"{module} imports papers"
    assert used == PUBLISHED


def test_there_is_no_circle() -> None:
    below: dict[str, set[str]] = {}
    for module in modules():
        targets = {target for target, _ in imports(module, at_run_time) if target in modules()}
        # A named constructor imports a published rule when it is called: the paper's policy derives from the default's.
        below[module] = targets - {module} - PUBLISHED.get(module, set())
    below["__init__"] = set()
    while free := [module for module, targets in below.items() if not targets]:
        for module in free:
            del below[module]
        for targets in below.values():
            targets.difference_update(free)
    assert not below, f"circles among {sorted(below)}"


def _private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


@cache
def private_names(folder: str) -> set[str]:
    """Names with an underscore that are defined in a folder of the package."""
    found: set[str] = set()
    for module, tree in modules().items():
        if module.rpartition(".")[0] == folder or module == folder:
            for node in ast.walk(tree):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    found.add(node.name)
                elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    found.add(node.id)
                elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    found.add(node.attr)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _private(node.value):
                    found.add(node.value)  # __slots__
    return found


def _folder(module: str) -> str:
    return module if (PACKAGE / module.replace(".", "/")).is_dir() else module.rpartition(".")[0]


def test_no_private_name_crosses_a_folder() -> None:
    wrong = []
    for module, tree in modules().items():
        for target, names in imports(module):
            if _folder(target) != _folder(module):
                crossed = [name for name in names if _private(name) and name != "_version"]
                wrong += [f"{module} takes {name} from {target}" for name in crossed]
        mine = private_names(_folder(module)) | NAMED_TUPLE
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and _private(node.attr) and node.attr not in mine:
                wrong.append(f"{module}:{node.lineno} reaches for {node.attr}")
    assert not wrong, "\n".join(wrong)
