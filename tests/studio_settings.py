"""A graph that only the test of ``langgraph dev`` exposes: its nodes are described, and settings can be changed."""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import BaseChatModel
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.runtime import Runtime
from order_desk import TOOLS, make_model, warm_memory
from pydantic import Field

from langgraph_toolmem import ToolMemory
from langgraph_toolmem.inertia.settings import InertiaSettings
from langgraph_toolmem.nodes import InertiaShortcut, Recorder, shortcut_condition

AT_AGENT: dict[str, Any] = {"langgraph_nodes": ["agent"]}
"""Where Studio shows a setting."""


class Settings(InertiaSettings):
    """What Studio offers to change: the memory's settings, and one of this app's own."""

    signature: str = Field(default="", description="Put under each answer.", json_schema_extra=AT_AGENT)


def make_graph(
    model: BaseChatModel, memory: ToolMemory
) -> CompiledStateGraph[MessagesState, Settings, MessagesState, MessagesState]:
    """The graph of `examples.state_graph`; `add_to` describes the nodes and labels the edges."""
    bound = model.bind_tools(TOOLS)

    def call_model(state: MessagesState, runtime: Runtime[Settings]) -> dict[str, Any]:
        signature = getattr(runtime.context, "signature", "")  # there is no context if the caller gave none
        answer = bound.invoke(state["messages"])
        if not answer.tool_calls:
            answer.content = f"{answer.text} {signature}".rstrip()
        return {"messages": [answer]}

    builder: StateGraph[MessagesState, Settings, MessagesState, MessagesState] = StateGraph(
        MessagesState, context_schema=Settings
    )
    builder.add_node("agent", call_model)
    builder.add_node("tools", ToolNode(TOOLS))
    InertiaShortcut(memory, TOOLS).add_to(builder)
    builder.add_conditional_edges("inertia", shortcut_condition, ["tools", "agent"])
    Recorder(memory).add_to(builder, "record")
    builder.add_edge(START, "inertia")
    builder.add_edge("tools", "inertia")
    builder.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: "record"})
    builder.add_edge("record", END)
    return builder.compile()


graph = make_graph(make_model(), warm_memory())
