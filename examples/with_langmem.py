"""langmem and this memory in one agent: what the user said is langmem's, what was done and how it went is ours.

Run it: ``python -m examples.with_langmem`` (needs the extra `langmem`). One search tool finds both. The user id stands
in ``config["configurable"]``, where langmem looks for it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langmem import create_manage_memory_tool, create_search_memory_tool  # type: ignore[import-untyped]

from examples.desk import calling
from langgraph_toolmem import ToolMemory
from langgraph_toolmem.entries.langmem import EntryBaseStore
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel


@tool
def fast_courier(customer: str) -> str:
    """Have a customer's parcel fetched within the hour."""
    return f"The parcel of {customer} is fetched at 10:00; 25 EUR."


@tool
def cheap_courier(customer: str) -> str:
    """Have a customer's parcel fetched tomorrow."""
    return f"The parcel of {customer} is fetched tomorrow; 4 EUR."


TOOLS: list[BaseTool] = [fast_courier, cheap_courier]
MEMORY_TOOLS = (create_search_memory_tool, create_manage_memory_tool)


def reply(messages: Sequence[BaseMessage], _: Sequence[dict[str, Any]]) -> AIMessage:
    """The model: writes down what it is told to remember; else looks into its memory, then chooses a courier."""
    start = max(i for i, m in enumerate(messages) if m.type == "human")
    said, results = messages[start].text, [m for m in messages[start:] if isinstance(m, ToolMessage)]
    if said.startswith("Remember: "):
        return AIMessage("Noted.") if results else calling("manage_memory", content=said.removeprefix("Remember: "))
    if not results:
        return calling("search_memory", query=said)
    if len(results) == 2:
        return AIMessage(results[1].text)
    found = results[0].text
    warned = "no fast courier" in found or ("fast_courier(" in found and "went wrong" in found)
    return calling("cheap_courier" if warned else "fast_courier", customer=said.split()[-1])


class Desk:
    """An agent with both memories, for several users."""

    def __init__(self, memory: ToolMemory) -> None:
        self.memory = memory
        # langmem's own memories go to `inner` (in production a PostgresStore); entries of past runs are read-only.
        self.store = EntryBaseStore(memory, ("memories", "{langgraph_user_id}"), inner=InMemoryStore())
        self.model = ScriptedChatModel(script=reply)
        self.agent: Any = create_agent(
            self.model,
            [*TOOLS, *(make(self.store.namespace, store=self.store) for make in MEMORY_TOOLS)],
            middleware=tool_memory_middleware(memory, reflect=True, shortcut=False),
            checkpointer=InMemorySaver(),
        )

    def ask(self, user: str, text: str, thread: str) -> None:
        """One request of a user; prints what is found and done."""
        config = {"configurable": {"thread_id": thread, "langgraph_user_id": user}}
        messages = self.agent.invoke({"messages": [HumanMessage(text)]}, config)["messages"]
        print(f"\n{user}: {text}")
        for message in messages:
            if isinstance(message, ToolMessage) and message.name == "search_memory":
                for item in json.loads(message.text):
                    content = item["value"]["content"]
                    lines = (content if isinstance(content, str) else content["content"]).splitlines()
                    print(f"  found in {item['namespace'][-1]}: {' '.join(lines[1:] or lines)}")
            elif isinstance(message, AIMessage):
                print(*(f"  calls {call['name']}" for call in message.tool_calls), sep="\n", end="")
                print(f"  {message.text}" if message.text else "")


def main() -> None:
    """Ann teaches both memories; Bob gets nothing of it."""
    with ToolMemory.ephemeral(tools=TOOLS, namespace=("toolmem", "{user_id}")) as memory:
        desk = Desk(memory)
        desk.ask("ann", "Please send the parcel of Zoe", "1")
        memory.feedback("1", score=0, comment="25 EUR is far too dear", user_id="ann", wait=True)
        desk.ask("ann", "Please send the parcel of Yan", "2")
        desk.ask("ann", "Remember: no fast courier for me", "3")
        desk.ask("ann", "Please send the parcel of Kim", "4")
        desk.ask("bob", "Please send the parcel of Kim", "5")


if __name__ == "__main__":
    main()
