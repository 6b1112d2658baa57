"""What runs with the core's own packages alone: an import of anything else fails, as where it is not installed."""

from __future__ import annotations

import json
import subprocess
import sys

from places import ROOT

MISSING = ("chromadb", "langchain", "scipy", "networkx", "torch", "langchain_openai", "pandas")
LEAN = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {MISSING!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""
APP = """
import logging
logging.basicConfig(format="%(message)s", stream=sys.stdout, level=logging.WARNING)
from examples.state_graph import graph, memory, model
from langgraph_toolmem import Entries, MissingExtraError, ToolMemory

for number in range(40):
    graph.invoke({"messages": [("user", f"What is the id of customer{number}")]})
report = memory.report()
assert report.turns == 80 and report.skipped == 80 - len(model.calls) > 0, str(report)
assert memory.navigator.search("what is the id of a customer")[0].name == "find_customer"
ToolMemory(None).close()  # reported once

def agents():
    import langgraph_toolmem.middleware

for extra, refused in (
    ("memory", lambda: memory.entries),
    ("memory", lambda: ToolMemory.ephemeral(methods=[Entries()])),
    ("agents", agents),
):
    try:
        refused()
    except MissingExtraError as error:
        assert f'pip install ".[{extra}]"' in str(error)
    else:
        raise AssertionError("what needs an extra that is missing was not refused")
"""
COMMANDS = """
from langgraph_toolmem.cli import app
for arguments in (["replay", sys.argv[2]], ["import", sys.argv[2], "--memory", sys.argv[1]],
                  ["report", "--memory", sys.argv[1]], ["explain", "go", "--memory", sys.argv[1]]):
    try:
        app(arguments)
    except SystemExit as done:
        assert not done.code, arguments
"""


def _lean(code: str, *arguments: object) -> str:
    command = [sys.executable, "-c", LEAN + code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_a_graph_skips_calls_without_any_extra() -> None:
    off = 'Off: entries, atoms. In the checkout of langgraph-toolmem, type: pip install ".[memory]"'
    assert _lean(APP).count(off) == 1


def test_the_command_line_works_without_any_extra(tmp_path):
    log = tmp_path / "log.jsonl"
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    asked, answer = {"role": "user", "content": "go"}, {"role": "tool", "tool_call_id": "1", "content": "x"}
    said = {"role": "assistant", "content": "Done."}
    messages = [asked, {"role": "assistant", "content": "", "tool_calls": [call]}, answer, said]
    log.write_text(json.dumps({"messages": messages, "success": True}) + "\n")

    assert "learned 1 new tool call" in _lean(COMMANDS, tmp_path / "memory", log)
