"""Graphs that only the test of ``langgraph dev`` exposes.

The server runs a file once for each graph that it exposes.
"""

from __future__ import annotations

from desk import EAGER, Desk, asker, script, warm
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from navi_script import ask, decisions, do, say
from pydantic import Field

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.inertia.step import InertiaSettings
from langgraph_toolmem.nodes import InertiaShortcut, Recorder, create_navi_subgraph, shortcut_condition
from langgraph_toolmem.testing import ScriptedChatModel

TOOLS = Desk().tools


def warm_memory() -> ToolMemory:
    """Return a memory that has seen the desk at work."""
    memory = ToolMemory.ephemeral(tools=TOOLS)
    warm(memory, 24)
    return memory


class Settings(InertiaSettings):
    """Settings that Studio shows: those of the memory, and one of the app."""

    signature: str = Field(default="", json_schema_extra={"langgraph_nodes": ["agent"]})


def make_graph(memory: ToolMemory) -> CompiledStateGraph[MessagesState, Settings, MessagesState, MessagesState]:
    """Return the graph of `examples.state_graph`; `add_to` describes the nodes and labels the edges."""
    builder: StateGraph[MessagesState, Settings, MessagesState, MessagesState] = StateGraph(
        MessagesState, context_schema=Settings
    )
    builder.add_node("agent", asker(ScriptedChatModel(script=script).bind_tools(TOOLS)))
    builder.add_node("tools", ToolNode(TOOLS))
    InertiaShortcut(memory, TOOLS, policy=EAGER).add_to(builder)
    builder.add_conditional_edges("inertia", shortcut_condition, ["tools", "agent"])
    Recorder(memory).add_to(builder, "record")
    builder.add_edge(START, "inertia")
    builder.add_edge("tools", "inertia")
    builder.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: "record"})
    builder.add_edge("record", END)
    return builder.compile()


settings = make_graph(warm_memory())

# --- a navigator, which asks back and waits ---

_decisions = ScriptedChatModel(script=decisions(ask("Whose order?"), do("find_customer", name="Zoe"), say("Found.")))
navigator = create_navi_subgraph(_decisions, TOOLS, ToolMemory.ephemeral(tools=TOOLS))
