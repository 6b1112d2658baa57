"""Every example runs as it stands, can be pasted whole, and prints what its page says."""

from __future__ import annotations

import ast
import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph.state import CompiledStateGraph
from places import ROOT

EXAMPLES = ROOT / "examples"
NAMES = sorted({path.stem for path in EXAMPLES.glob("*.py")} - {"__init__", "office"})
LONGEST = 63
PRINTED = {
    "agent": (r"request 1: 3 model calls", r"request 100: 1 model calls", r"Saved 1\d\d of 300"),
    "state_graph": (r"called 1\d\d times, not 240",),
    "human_approval": (
        r"'O-700'\} waits",
        r"approve: \['O-700 is refunded.'\]",
        r"reject: \['User rejected",
        r"Withdrawn: refund",
        r"Changed by the memory: refund\(.*O-700.*: ok",
    ),
    "several_users": (
        r"ann: The parcels of A-ann are on their way. \(2 model calls\)\nann: .*\(1 model calls\)\n"
        r"bob: The parcels of A-bob are on their way. \(2 model calls\)\nForgetting Ann removes \d\d+ pieces.\n"
        r"ann: .*\(2 model calls\)",
    ),
    "remembering": (r"at 9:00 UTC.\n.*at 7:00 UTC.", r"he was asleep|Ask for the time zone"),
    "many_tools": (r"tool: - refund: .*\n- find_customer: .*gives customer_id to refund",),
    "mcp_tools": (r"find_ticket +60 calls +[45]\d skipped", r"delete_ticket +60 calls +0 skipped"),
    "replay_logs": (
        r"120 runs, 240 model turns: 1\d\d calls made right, 0 wrong",
        r"find_customer\(\{'name': 'Zoe'\}\)",
    ),
}


@pytest.mark.parametrize("name", [*NAMES[:2], *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[2:])])
def test_an_example_prints_what_it_says(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    out = capfd.readouterr().out
    for line in PRINTED[name]:
        assert re.search(line, out), out
    assert name == "human_approval" or "Changed by the memory" not in out, "a declared look-up changes nothing"


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_short_and_needs_no_other_one(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    assert 40 <= len(text.splitlines()) <= LONGEST
    imported = [node.module for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    assert not any((module or "").startswith("examples") for module in imported)


def test_langgraph_json_names_graphs_without_a_checkpointer_of_their_own() -> None:
    graphs: dict[str, Any] = json.loads((ROOT / "langgraph.json").read_text(encoding="utf-8"))["graphs"]
    for entry in graphs.values():
        path, _, attribute = entry["path"].partition(":")
        graph = runpy.run_path(str(ROOT / path))[attribute]
        assert isinstance(graph, CompiledStateGraph)
        assert graph.checkpointer is None, "langgraph dev refuses it"


def test_the_table_names_every_example() -> None:
    table = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\((\w+)\.py\)", table)) == {Path(path).stem for path in NAMES} | {"office"}
