"""LangChain's ``create_agent``: two lines more, and the model is asked less often.

Run it: ``python -m examples.agent``.
"""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from examples.desk import POLICY, TOOLS, make_model, requests, show, warm_memory
from langgraph_toolmem import Inertia, ToolMemory, default_methods
from langgraph_toolmem.middleware import tool_memory_middleware

REQUESTS = requests(120)


def make_graph(model: BaseChatModel, memory: ToolMemory, checkpointer: BaseCheckpointSaver[Any] | None = None) -> Any:
    """An agent with a memory."""
    return create_agent(
        model,
        TOOLS,
        middleware=tool_memory_middleware(memory),  # new; with middleware of yours: (memory, inside=[yours, ...])
        checkpointer=checkpointer,
    )


# For LangGraph Studio, which brings its own checkpointer. The memory has seen runs, so it acts at once.
graph = make_graph(make_model(), warm_memory())


def main() -> None:
    """Starts with an empty memory, and shows the first run and the last one."""
    model = make_model()
    memory = ToolMemory.ephemeral(
        tools=TOOLS, methods=default_methods(Inertia(POLICY))
    )  # new; ToolMemory("./.toolmem", tools=TOOLS) keeps it
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
