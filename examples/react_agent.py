"""``create_react_agent`` of langgraph.prebuilt: the memory stands where the agent asks for its model.

Run it: ``python -m examples.react_agent``. LangGraph has deprecated ``create_react_agent`` in favour of LangChain's
``create_agent`` and says so with a warning; for new code see `examples.agent`. A graph that runs async takes
`ashortcut_model`. Where a wrapper edits or retries tool calls, let the recorder see what is really executed:
``ToolNode(TOOLS, wrap_tool_call=recorder.wrap_tool_call, awrap_tool_call=recorder.awrap_tool_call)``.
"""

from __future__ import annotations

import warnings
from typing import Any

from langchain_core.language_models import BaseChatModel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import create_react_agent
from langgraph.warnings import LangGraphDeprecatedSinceV10

from examples.desk import POLICY, TOOLS, make_model, requests, show
from langgraph_toolmem import Inertia, ToolMemory, default_methods
from langgraph_toolmem.nodes import Recorder, shortcut_model

REQUESTS = requests(120)


def make_graph(model: BaseChatModel, memory: ToolMemory, checkpointer: BaseCheckpointSaver[Any] | None = None) -> Any:
    """An agent with a memory."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LangGraphDeprecatedSinceV10)
        return create_react_agent(
            shortcut_model(memory, model, TOOLS),  # was: model
            TOOLS,
            post_model_hook=Recorder(memory),  # new: sees the last answer
            checkpointer=checkpointer,
        )


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
