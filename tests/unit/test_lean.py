"""What runs with the core's own packages alone: an import of anything else fails, as where it is not installed."""

from __future__ import annotations

import json
import subprocess
import sys

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
import json, logging
logging.basicConfig(format="%(message)s", stream=sys.stdout, level=logging.WARNING)
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph_toolmem import Bound, Entries, Inertia, InertiaPolicy, MissingExtraError, ToolMemory, default_methods
from langgraph_toolmem.nodes import InertiaShortcut, Recorder, shortcut_condition

@tool
def find_order(name: str) -> str:
    "Finds an order."
    return json.dumps({"order": "A7"})

@tool
def track(order: str) -> str:
    "Where a parcel is."
    return "on its way"

asked = 0
def model(state):
    global asked
    asked += 1
    last = state["messages"][-1]
    if isinstance(last, HumanMessage):
        call = {"name": "find_order", "args": {"name": "Ada"}, "id": f"a{asked}"}
    elif last.name == "find_order":
        call = {"name": "track", "args": {"order": "A7"}, "id": f"b{asked}"}
    else:
        return {"messages": [AIMessage("It is on its way.")]}
    return {"messages": [AIMessage("", tool_calls=[call])]}

free = Bound(min_precision=0.5, max_wrong_per_100=None)
policy = InertiaPolicy(reads=free, writes=free, audit_rate=0.0)
tools = [find_order, track]
methods = default_methods(Inertia(policy))
with ToolMemory(sys.argv[1], tools=tools, reads={"find_order", "track"}, methods=methods) as memory:
    graph = StateGraph(MessagesState)
    graph.add_node("inertia", InertiaShortcut(memory, tools))
    graph.add_node("agent", model)
    graph.add_node("tools", ToolNode(tools))
    graph.add_node("recorder", Recorder(memory))
    graph.add_edge(START, "inertia")
    graph.add_edge("tools", "inertia")
    graph.add_edge("recorder", "__end__")
    graph.add_conditional_edges("inertia", shortcut_condition, ["tools", "agent"])
    graph.add_conditional_edges("agent", tools_condition, {"tools": "tools", "__end__": "recorder"})
    app = graph.compile()
    for n in range(25):
        app.invoke({"messages": [HumanMessage("Where is Ada's parcel?", id=f"u{n}")]},
                   {"configurable": {"thread_id": str(n)}})
    report = memory.report()
    assert report.turns == 75 and report.skipped == 75 - asked > 0, (asked, str(report))
    assert memory.navigator.search("where is my parcel")[0].name == "track"
    for refused in (lambda: memory.entries, lambda: ToolMemory.ephemeral(methods=[Entries()])):
        try:
            refused()
        except MissingExtraError as error:
            assert 'pip install ".[memory]"' in str(error)
        else:
            raise AssertionError("a method whose extra is missing was not refused")
    memory.finish([("user", "hello"), ("assistant", "Hi!")], thread_id="x", wait=True)
ToolMemory(None, tools=tools).close()  # told once
try:
    import langgraph_toolmem.middleware
except MissingExtraError as error:
    assert 'pip install ".[agents]"' in str(error)
else:
    raise AssertionError("agents without langchain were not refused")
print(f"skipped {report.skipped}")
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
    done = subprocess.run(
        [sys.executable, "-c", LEAN + code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_a_graph_skips_calls_without_any_extra(tmp_path):
    said = _lean(APP, tmp_path)

    off = 'Off: entries, atoms. In the checkout of langgraph-toolmem, type: pip install ".[memory]"'
    assert said.count(off) == 1
    assert "skipped " in said


def test_the_command_line_works_without_any_extra(tmp_path):
    log = tmp_path / "log.jsonl"
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    asked, answer = {"role": "user", "content": "go"}, {"role": "tool", "tool_call_id": "1", "content": "x"}
    said = {"role": "assistant", "content": "Done."}
    messages = [asked, {"role": "assistant", "content": "", "tool_calls": [call]}, answer, said]
    log.write_text(json.dumps({"messages": messages, "success": True}) + "\n")

    assert "learned 1 new tool call" in _lean(COMMANDS, tmp_path / "memory", log)
