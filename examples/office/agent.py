"""The office agent as a LangGraph app, without a memory and with one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import SystemMessage
from langchain_core.tools import BaseTool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from .data import ME, TODAY

if TYPE_CHECKING:
    from langgraph_toolmem import ToolMemory

PROMPT = (
    f"You are the office assistant of {ME}. Today is Monday, {TODAY}. Carry out the request with the tools, "
    "do nothing that was not asked for, and close with one sentence."
)

Builder = StateGraph[MessagesState, Any, Any, Any]


def build_graph(
    model: BaseChatModel, tools: list[BaseTool], memory: ToolMemory | None = None, *, prefetch: bool = False
) -> Builder:
    """The agent loop: model, tools, model, … until the model answers in words.

    Args:
        model: any chat model that can call tools.
        tools: the office's tools.
        memory: a tool memory to plug in; None leaves the graph as somebody had it before.
        prefetch: likely look-ups run while the model is asked.

    Returns:
        The graph, not compiled yet: give it a checkpointer.
    """
    bound = model.bind_tools(tools)

    def call_model(state: MessagesState) -> dict[str, Any]:
        return {"messages": [bound.invoke([SystemMessage(PROMPT), *state["messages"]])]}

    builder: Builder = StateGraph(MessagesState)
    builder.add_node("agent", call_model)
    if memory is None:
        builder.add_node("tools", ToolNode(tools))
        builder.add_edge(START, "agent")
        builder.add_edge("tools", "agent")
        builder.add_conditional_edges("agent", tools_condition)
    else:
        _plug_in(builder, tools, memory, prefetch)
    return builder


def _plug_in(builder: Builder, tools: list[BaseTool], memory: ToolMemory, prefetch: bool) -> None:
    """The memory's two nodes and their edges; all that a user adds."""
    from langgraph_toolmem.nodes import InertiaShortcut, Recorder, shortcut_condition

    recorder = Recorder(memory)
    builder.add_node("tools", ToolNode(tools, wrap_tool_call=recorder.wrap_tool_call))
    builder.add_node("inertia", InertiaShortcut(memory, tools, prefetch=prefetch))
    builder.add_node("record", recorder)
    builder.add_edge(START, "inertia")
    builder.add_edge("tools", "inertia")
    builder.add_conditional_edges("inertia", shortcut_condition, ["tools", "agent"])
    builder.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: "record"})
    builder.add_edge("record", END)
