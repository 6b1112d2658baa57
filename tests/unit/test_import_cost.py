"""What an import of the package loads, and how long it takes beside LangGraph itself."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = (
    "torch",
    "chromadb",
    "langchain",
    "numpy",
    "scipy",
    "networkx",
    "rich",
    "typer",
    "opentelemetry",
    "sentence_transformers",
    "mcp",
)
CODE = """
import json, sys, time
import langgraph.graph, langgraph.prebuilt, langchain_core.messages, langchain_core.tools
began, before = time.perf_counter(), set(sys.modules)
{statement}
print(json.dumps([time.perf_counter() - began, sorted({{m.split(".")[0] for m in set(sys.modules) - before}})]))
"""


@pytest.mark.parametrize(
    "statement",
    [
        "import langgraph_toolmem",
        "from langgraph_toolmem import ToolMemory, InertiaPolicy",
        "from langgraph_toolmem.nodes import InertiaShortcut, Recorder",
        "from langgraph_toolmem import ToolMemory; m = ToolMemory.ephemeral(); m.inertia.predict([('user', 'hello')])",
    ],
)
@pytest.mark.slow
def test_an_import_loads_nothing_heavy(statement: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(statement=statement)], capture_output=True, text=True, check=True
    )
    _, loaded = json.loads(done.stdout)
    assert "langgraph_toolmem" in loaded
    assert not set(HEAVY) & set(loaded)
