"""Graphs that only the test of ``langgraph dev`` exposes.

The server runs a file once for each graph that it exposes.
"""

from __future__ import annotations

from typing import Any

from desk import EAGER, Desk, asker, script, warm
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from navi_script import ask, decision, do, say
from pydantic import Field

from examples.office import PROMPT, Office, make_database
from langgraph_toolmem import ToolMemory
from langgraph_toolmem.inertia.settings import InertiaSettings
from langgraph_toolmem.middleware import tool_memory_middleware
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

# --- a person approves the memory's note ---

_gate: Any = HumanInTheLoopMiddleware({"add_note": {"allowed_decisions": ["approve", "edit", "reject"]}})
_policy = EAGER.with_(never={"find_customer", "latest_order"})
_middleware = tool_memory_middleware(warm_memory(), inside=[_gate], shortcut=_policy)
approval = create_agent(ScriptedChatModel(script=script), TOOLS, middleware=_middleware)

# --- the office's navigator, which asks back and waits ---

_tools = Office().tools()
_sender, _person = list(make_database(0)["people"].values())[:2]
_email = Office().list_emails(_sender["email"])["emails"][0]["id"]
_rounds = (
    do("find_person", name=_sender["name"]),
    do("list_emails", sender=_sender["email"]),
    do("find_person", name=_person["name"]),
    do("forward_email", email_id=_email, to=_person["email"]),
    say("I forwarded it."),
)
_made: list[int] = []


def _decide(messages: list[BaseMessage], _: list[dict[str, Any]]) -> AIMessage:
    """Ask back first, then decide one call a round."""
    _made.append(len(messages))
    return decision(ask("To whom shall it be forwarded?") if len(_made) == 1 else _rounds[len(_made) - 2])


navigator = create_navi_subgraph(
    ScriptedChatModel(script=_decide), _tools, ToolMemory.ephemeral(tools=_tools), instructions=PROMPT
)
