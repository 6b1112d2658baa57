"""Several users, one memory: what follows what is shared; nobody's values turn up in another's call.

Run it: ``python -m examples.several_users``. The namespace has a place for the user id, so a run without one
is refused by the memory (and the model asked) instead of being mixed up with somebody's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.tools import BaseTool, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.runtime import Runtime

from examples.desk import calling, show
from langgraph_toolmem import Inertia, InertiaPolicy, ToolMemory, default_methods
from langgraph_toolmem.nodes import InertiaShortcut, Recorder, shortcut_condition
from langgraph_toolmem.testing import ScriptedChatModel

ADDRESSES = {"ann": "12 Rose Lane", "bob": "7 Mill Road"}


@dataclass
class Context:
    """Who is asking; passed as ``graph.invoke(..., context=Context("ann"))``."""

    user_id: str


@tool
def open_parcels() -> dict[str, Any]:
    """The parcels that are on their way to the user."""
    return {"parcels": 1, "state": "on its way"}


@tool
def redirect(address: str) -> dict[str, Any]:
    """Send the user's parcels to another address."""
    return {"goes_to": address}


open_parcels.tags = ["read_only"]
TOOLS: list[BaseTool] = [open_parcels, redirect]
POLICY = InertiaPolicy(may_write=frozenset({"redirect"}))


def reply(messages: list[BaseMessage], _: list[dict[str, Any]]) -> AIMessage:
    """The model: it knows the address from the system message, which the memory never reads."""
    address = messages[0].text.removeprefix("The user's second address: ")
    results = [m for m in messages if m.type == "tool"]
    if not results:
        return calling("open_parcels")
    return calling("redirect", address=address) if len(results) == 1 else AIMessage("It goes to your second address.")


def make_graph(model: ScriptedChatModel, memory: ToolMemory) -> CompiledStateGraph[MessagesState, Context, Any, Any]:
    """The graph of `examples.state_graph`, with a context."""
    bound = model.bind_tools(TOOLS)

    def call_model(state: MessagesState, runtime: Runtime[Context]) -> dict[str, Any]:
        profile = SystemMessage(f"The user's second address: {ADDRESSES[runtime.context.user_id]}")
        return {"messages": [bound.invoke([profile, *state["messages"]])]}

    builder: StateGraph[MessagesState, Context, Any, Any] = StateGraph(MessagesState, context_schema=Context)
    builder.add_node("agent", call_model)
    builder.add_node("tools", ToolNode(TOOLS))
    builder.add_node("inertia", InertiaShortcut(memory, TOOLS))
    builder.add_node("record", Recorder(memory))
    builder.add_edge(START, "inertia")
    builder.add_edge("tools", "inertia")
    builder.add_conditional_edges("inertia", shortcut_condition, ["tools", "agent"])
    builder.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: "record"})
    builder.add_edge("record", END)
    return builder.compile()


def main() -> None:
    """Ann works with it for a while; then Bob asks for the first time; then Ann is forgotten."""
    methods = default_methods(Inertia(POLICY))
    memory = ToolMemory.ephemeral(tools=TOOLS, namespace=("toolmem", "{user_id}"), methods=methods)
    agent = make_graph(ScriptedChatModel(script=reply), memory)

    def ask(user: str) -> list[BaseMessage]:
        feed: Any = {"messages": [("user", "My parcels, to my second address please")]}
        messages: list[BaseMessage] = agent.invoke(feed, context=Context(user))["messages"]
        return messages

    for _ in range(60):
        anns = ask("ann")
    print("Ann's 60th request. Her address is hers, so the memory may use it:")
    show(anns)
    print("\nBob's first request. What comes next is known from Ann's runs; the address is not, the model is asked:")
    show(ask("bob"))
    print("\nForgetting Ann removes", memory.forget(user_id="ann"), "pieces. Her next request:")
    show(ask("ann"))
    print(f"\n{memory.report()}")


if __name__ == "__main__":
    main()
