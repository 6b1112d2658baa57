"""What does the memory add to a model turn, in processor time, as a thread grows?

    python -m benchmarks.turn_cost [--lengths 120 1140] [--requests 12] [--json FILE]

A real `create_agent` with a checkpointer continues a thread of so many messages, with the memory's middleware and
without. The table has the difference of the calling thread's processor time per turn, whoever made it: the model or
the shortcut. Tools run in other threads.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from statistics import median
from typing import Any, Final

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, convert_to_messages
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from rich.table import Table

from benchmarks import command, conclude, show
from benchmarks.workload import Workload
from langgraph_toolmem import InertiaPolicy, ToolMemory
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel

TOOLS: Final = 20
HISTORY: Final = 300
"""Runs that the memory has learned before."""
MODES: Final[dict[str, dict[str, Any]]] = {
    "shadow": {"shortcut": InertiaPolicy(shadow=True)},
    "default": {},
    "all hints": {"recall": True, "suggest": True, "planning": True, "reflect": True},
}
TARGET_MS: Final = {"shadow": 4.0, "default": 4.0, "all hints": 12.0}
GROWTH: Final = 1.5
"""The longest thread may cost so many times what the shortest does."""


def tools_of(workload: Workload) -> list[BaseTool]:
    """Tools that answer what the workload's recorded calls were answered."""
    made: list[BaseTool] = []
    for schema in workload.schemas():
        function = schema["function"]
        answer = json.dumps({"id": f"{function['name'][:3].upper()}-1", "items": [{"id": "a"}, {"id": "b"}]})
        tool = StructuredTool.from_function(
            func=lambda _answer=answer, **_: _answer,
            name=function["name"],
            description=function["description"],
            args_schema=function["parameters"],
        )
        tool.tags = ["read_only"] if schema["read_only"] else []
        made.append(tool)
    return made


def thread_of(workload: Workload, length: int) -> list[BaseMessage]:
    """A conversation of at least so many messages."""
    messages: list[BaseMessage] = []
    while len(messages) < length:
        (_, run), *_ = workload.runs(1)
        for message in convert_to_messages(run):
            message.id = f"m-{len(messages)}"
            messages.append(message)
    return messages


class Next:
    """The scripted model: makes the calls of the runs it was given, in order."""

    def __init__(self, runs: Sequence[Sequence[BaseMessage]]) -> None:
        self._runs = {run[0].text: [each for each in run if isinstance(each, AIMessage)] for run in runs}

    def __call__(self, messages: list[BaseMessage], tools: list[dict[str, Any]]) -> AIMessage:
        """The next answer of the run that was asked for last."""
        at = max(i for i, each in enumerate(messages) if isinstance(each, HumanMessage))
        done = sum(isinstance(each, ToolMessage) for each in messages[at:])
        answers = self._runs[messages[at].text]
        return answers[min(done, len(answers) - 1)].model_copy(update={"id": None})


def measured(mode: str, length: int, requests: int) -> tuple[float, float]:
    """Milliseconds of processor time that the memory adds to a model turn, and those of a turn without it."""
    spent: dict[bool, list[float]] = {}
    for remembers in (False, True):
        workload = Workload(TOOLS, seed=1)
        memory = ToolMemory(None)
        middleware = tool_memory_middleware(memory, **MODES[mode]) if remembers else []  # what it keeps is kept of all
        for thread, messages in workload.runs(HISTORY if remembers else 0):
            memory.finish(messages, thread_id=thread, success=True)
        memory.flush()
        workload = Workload(TOOLS, seed=2)
        history = thread_of(workload, length)
        runs = [convert_to_messages(run) for _, run in workload.runs(requests)]
        tools = tools_of(workload)
        model: Any = ScriptedChatModel(script=Next(runs))
        agent: Any = create_agent(model, tools, middleware=middleware, checkpointer=InMemorySaver())
        config: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 100}
        agent.update_state(config, {"messages": history})
        per_turn = spent[remembers] = []
        for run in runs:
            begun = time.thread_time()
            messages = agent.invoke({"messages": [run[0]]}, config)["messages"]
            taken = time.thread_time() - begun
            asked = max(i for i, each in enumerate(messages) if isinstance(each, HumanMessage))
            per_turn.append(1e3 * taken / sum(isinstance(each, AIMessage) for each in messages[asked:]))
        memory.close()
    return median(spent[True]) - median(spent[False]), median(spent[False])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = command("turn_cost", __doc__, recorded=False)
    parser.add_argument("--lengths", type=int, nargs="+", default=[120, 1140])
    parser.add_argument("--requests", type=int, default=12)
    options = parser.parse_args(arguments)
    table = Table("mode", "messages", "added ms a turn", "without")
    found = []
    for mode in MODES:
        for length in options.lengths:
            added, without = measured(mode, length, options.requests)
            found.append({"mode": mode, "messages": length, "added_ms": added, "without_ms": without})
            table.add_row(mode, f"{length:,}", f"{added:.2f}", f"{without:.2f}")
    show(table)
    checks = []
    for mode in MODES:
        of = {each["messages"]: each["added_ms"] for each in found if each["mode"] == mode}
        short, long = of[min(of)], of[max(of)]
        checks.append((short <= TARGET_MS[mode], f"{mode}: {short:.1f} <= {TARGET_MS[mode]} ms"))
        checks.append((long <= GROWTH * short, f"{mode}: {long:.1f} <= {GROWTH} x {short:.1f}"))
    return conclude(checks, found, options.json)


if __name__ == "__main__":
    sys.exit(main())
