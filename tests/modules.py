"""The modules of the package, read and parsed once for the tests that look at the code.

Parsing takes longer than most of these tests: they have the mark `one_worker`.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import langgraph_toolmem

PACKAGE = Path(langgraph_toolmem.__file__).parent
one_worker = pytest.mark.xdist_group("modules")


class Module(NamedTuple):
    path: Path
    text: str
    tree: ast.Module


@cache
def modules() -> list[Module]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.append(Module(path, text, ast.parse(text)))
    return found
