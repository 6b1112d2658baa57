"""A graph that only the test of ``langgraph dev`` exposes: its node writes to disk on the event loop."""

from __future__ import annotations

from pathlib import Path

from langgraph.graph import END, START, MessagesState, StateGraph
from studio_graphs import TOOLS

from langgraph_toolmem import ToolMemory

memory = ToolMemory(Path(__file__).parent / "careless", tools=TOOLS)


async def careless(state: MessagesState) -> None:
    memory.inertia.begin_turn(state["messages"])


builder = StateGraph(MessagesState)
builder.add_node("careless", careless)
builder.add_edge(START, "careless")
builder.add_edge("careless", END)
graph = builder.compile()
