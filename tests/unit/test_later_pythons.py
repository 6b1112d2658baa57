"""Code that a later release of Python refuses, found with the present one."""

from __future__ import annotations

import ast
import re

from modules import modules, one_worker

pytestmark = one_worker
NUMBERED = re.compile(r"[=(,]\s*\?\d|\bSELECT \?\d|LIMIT \?\d")


def test_no_statement_has_numbered_placeholders():
    """Python 3.12 warns of `?1` with a sequence, 3.14 raises: every event would have stayed in RAM."""
    found = []
    for path, _, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and NUMBERED.search(node.value):
                found.append(f"{path.name}:{node.lineno}")
    assert found == []
