"""A graph of your own: two nodes and their edges more, and the model is asked less often.

Run it: ``python -m examples.state_graph``. Without the marked lines it is the agent as it was before.
"""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import BaseChatModel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from examples.desk import POLICY, TOOLS, make_model, requests, show, warm_memory
from langgraph_toolmem import Inertia, ToolMemory, default_methods
from langgraph_toolmem.nodes import InertiaShortcut, Recorder, shortcut_condition

REQUESTS = requests(120)


def make_graph(
    model: BaseChatModel, memory: ToolMemory, checkpointer: BaseCheckpointSaver[Any] | None = None
) -> CompiledStateGraph[MessagesState, Any, Any, Any]:
    """An agent loop with a memory in it."""
    bound = model.bind_tools(TOOLS)

    def call_model(state: MessagesState) -> dict[str, Any]:
        return {"messages": [bound.invoke(state["messages"])]}

    builder: StateGraph[MessagesState, Any, Any, Any] = StateGraph(MessagesState)
    builder.add_node("agent", call_model)
    builder.add_node("tools", ToolNode(TOOLS))
    builder.add_node("inertia", InertiaShortcut(memory, TOOLS))  # new: stands before the model
    builder.add_node("record", Recorder(memory))  # new: sees the last answer
    builder.add_edge(START, "inertia")  # was: to "agent"
    builder.add_edge("tools", "inertia")  # was: to "agent"
    builder.add_conditional_edges("inertia", shortcut_condition, ["tools", "agent"])  # new
    builder.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: "record"})
    builder.add_edge("record", END)  # new
    return builder.compile(checkpointer=checkpointer)


# For LangGraph Studio, which brings its own checkpointer. The memory has seen runs, so it acts at once.
graph = make_graph(make_model(), warm_memory())


def main() -> None:
    """Starts with an empty memory, and shows the first run and the last one."""
    model = make_model()
    memory = ToolMemory.ephemeral(
        tools=TOOLS, methods=default_methods(Inertia(POLICY))
    )  # ToolMemory("./.toolmem", tools=TOOLS) keeps it
    agent = make_graph(model, memory, InMemorySaver())
    turns = 0
    for i, text in enumerate(REQUESTS):
        state = agent.invoke({"messages": [("user", text)]}, {"configurable": {"thread_id": f"thread-{i}"}})
        turns += sum(message.type == "ai" for message in state["messages"])
        if i in (0, len(REQUESTS) - 1):
            show(state["messages"])
    print(f"\nThe model was called {len(model.calls)} times, not {turns} times.")
    print(memory.report())


if __name__ == "__main__":
    main()
