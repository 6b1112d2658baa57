"""A graph of your own with a memory: two nodes and their edges more.

Run it: ``python -m examples.state_graph``. Without the lines marked "new" it is the agent as it was before.
"""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from langgraph_toolmem import InertiaSettings, ToolMemory
from langgraph_toolmem.nodes import InertiaShortcut, Recorder, shortcut_condition
from langgraph_toolmem.testing import ScriptedChatModel, call_tool


def find_customer(name: str) -> str:
    """Return the id of a customer."""
    return f"C-{name}"


def reply(messages: list[BaseMessage], _: Any) -> AIMessage:
    """Answer as a model would: find the customer, then say the id."""
    if messages[-1].type == "tool":
        return AIMessage(f"It is {messages[-1].text}.")
    return call_tool("find_customer", name=messages[0].text.split()[-1])


tools = [find_customer]
model = ScriptedChatModel(script=reply)
memory = ToolMemory.ephemeral(reads={"find_*"})  # new; ToolMemory("./.toolmem", ...) keeps it


def call_model(state: MessagesState) -> dict[str, Any]:
    """Ask the model."""
    return {"messages": [model.bind_tools(tools).invoke(state["messages"])]}


builder = StateGraph(MessagesState, context_schema=InertiaSettings)  # new: settings of a run, as Studio shows them
builder.add_node("agent", call_model)
builder.add_node("tools", ToolNode(tools))
InertiaShortcut(memory, tools).add_to(builder, "inertia")  # new: decides whether to ask the model
Recorder(memory).add_to(builder, "record")  # new: learns from the last answer
builder.add_edge(START, "inertia")  # was: to "agent"
builder.add_edge("tools", "inertia")  # was: to "agent"
builder.add_conditional_edges("inertia", shortcut_condition, ["tools", "agent"])  # new
builder.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: "record"})
builder.add_edge("record", END)  # new
graph: Any = builder.compile()


if __name__ == "__main__":  # handle 120 requests, and show that the model was called less often
    for number in range(120):
        graph.invoke({"messages": [("user", f"What is the id of customer{number}")]})
    print(f"The model was called {len(model.calls)} times, not 240 times.\n{memory.report()}")
