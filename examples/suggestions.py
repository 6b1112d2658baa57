"""Suggestions: which tools came next in similar situations of past successful runs, told to the model before it acts.

Run it: ``python -m examples.suggestions``. "The shop does not load" has three causes, and only the logs tell which.
By frequency alone it is the cache; the state after the logs were read says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from examples.desk import calling
from langgraph_toolmem import SIT, SITPolicy, ToolMemory, default_methods
from langgraph_toolmem.nodes import MemoryState, Recorder, SITSummary, memory_prompt
from langgraph_toolmem.testing import ScriptedChatModel

REQUEST = "The shop does not load"
CURES = {"cache full": "clear_cache", "worker stuck": "restart_worker", "certificate expired": "renew_certificate"}
ERROR = "certificate expired"
PAST = ["cache full"] * 7 + ["worker stuck"] * 3 + ["certificate expired"] * 2


@tool
def read_logs() -> dict[str, str]:
    """The last error in the shop's logs."""
    return {"last_error": ERROR}


def cure(name: str) -> BaseTool:
    """A tool that helps against one of the errors."""
    return tool(name, description=name.replace("_", " "))(lambda: {"loads": CURES[ERROR] == name})


TOOLS: list[BaseTool] = [read_logs, *map(cure, CURES.values())]


def past_run(error: str) -> list[BaseMessage]:
    """A run of somebody who knew what to do."""
    looked, cured = calling("read_logs"), calling(CURES[error])
    found = ToolMessage(f'{{"last_error": "{error}"}}', tool_call_id=looked.tool_calls[0]["id"])
    done = ToolMessage('{"loads": true}', tool_call_id=cured.tool_calls[0]["id"])
    return [HumanMessage(REQUEST), looked, found, cured, done, AIMessage("It loads again.")]


def reply(messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]]) -> AIMessage:
    """The model: looks, writes down where it stands if it can, then does what it was told or tries all in turn."""
    results = [m for m in messages if isinstance(m, ToolMessage)]
    called = [m.name for m in results]
    if not results:
        return calling("read_logs")
    if '"loads": true' in results[-1].text:
        return AIMessage("It loads again.")
    if "summarize_state" in {each["function"]["name"] for each in tools} - set(called):
        return calling("summarize_state", summary=f"The shop does not load. The logs were read: {results[0].text}")
    hints = "\n".join(m.text for m in reversed(messages) if m.type in ("system", "tool"))
    told = [name for name in re.findall(r"^- (\w+):", hints, re.MULTILINE) if name in CURES.values()]
    return calling(next(name for name in [*told, *CURES.values()] if name not in called))


def make_graph(memory: ToolMemory | None, *, policy: SITPolicy | None = None, asks: bool = False) -> Any:
    """An agent; with a memory it gets suggestions, and if it `asks`, the summary tool."""
    builder: StateGraph[MemoryState, Any, Any, Any] = StateGraph(MemoryState)  # has room for the hints
    tools, first, last = list(TOOLS), "agent", END
    if memory is not None:
        sit, first, last = SITSummary(memory, policy=policy), "sit", "record"
        tools += [sit.tool] if asks else []
        builder.add_node("sit", sit)  # stands before the model
        builder.add_edge("sit", "agent")
        builder.add_node("record", Recorder(memory))  # keeps the record: was the suggestion followed, was it right
    model = ScriptedChatModel(script=reply).bind_tools(tools)

    def call_model(state: MemoryState) -> dict[str, Any]:
        return {"messages": [model.invoke([*memory_prompt(state), *state["messages"]])]}  # the hint, if there is one

    builder.add_node("agent", call_model)
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, first)
    builder.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: last})
    builder.add_edge("tools", first)
    return builder.compile()


def main() -> None:
    """Learns past runs, asks for suggestions, and gives three agents the same problem."""
    memory = ToolMemory.ephemeral(tools=TOOLS, methods=default_methods(SIT(SITPolicy())))
    for i, error in enumerate(PAST):
        memory.finish(past_run(error), thread_id=f"past-{i}", success=True)  # only successful runs teach
    print(f"{REQUEST}; the logs say: {ERROR}. What next?")
    for name, policy in (("by frequency alone", SITPolicy.paper()), ("by the state", None)):
        best = memory.sit.suggest(past_run(ERROR)[:3], policy=policy)[0]
        print(f"  {name}: {best.tool} ({best.evidence})")
    for name, agent in (
        ("without a memory", make_graph(None)),
        ("told what came next in similar states", make_graph(memory)),
        ("asks by itself, with a summary", make_graph(memory, policy=SITPolicy.paper(), asks=True)),
    ):
        messages = agent.invoke({"messages": [("user", REQUEST)]})["messages"]
        steps = [call["name"] for m in messages if isinstance(m, AIMessage) for call in m.tool_calls]
        print(f"\n{name}: {len(steps)} calls\n  {' -> '.join(steps)}")
    print(f"\n{memory.report()}")


if __name__ == "__main__":
    main()
