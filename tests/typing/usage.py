"""The package as a user types it; read by mypy, never run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import BaseTool, tool
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode

from langgraph_toolmem import (
    Decision,
    Inertia,
    InertiaPolicy,
    Proposal,
    Report,
    ToolMemory,
    default_methods,
)
from langgraph_toolmem.nodes import InertiaShortcut, shortcut_condition
from langgraph_toolmem.runs.run import ExecutedCall


@tool
def search(query: str) -> str:
    """Search for something."""
    return query


def plain(city: str, days: int = 1) -> str:
    """A plain function is a tool as well."""
    return city * days


TOOLS: list[BaseTool] = [search]


def make() -> list[ToolMemory]:
    return [
        ToolMemory("./.toolmem", tools=TOOLS, namespace=("toolmem", "{user_id}")),
        ToolMemory(Path("elsewhere"), tools=[search, plain, {"name": "raw", "parameters": {"type": "object"}}]),
        ToolMemory.ephemeral(tools=TOOLS, methods=default_methods(Inertia(InertiaPolicy(shadow=True), seed=3))),
    ]


def learn(memory: ToolMemory, messages: list[BaseMessage]) -> int:
    new: int = memory.observe(messages, thread_id="thread-1", user_id="ann")
    new += memory.finish(messages, thread_id="thread-1", success=True, comment="fine")
    memory.feedback("thread-1", score=1.0)
    forgotten: int = memory.forget(user_id="ann")
    return new + forgotten


def look(memory: ToolMemory) -> Report:
    proposal: Proposal | None = memory.inertia.predict([{"role": "user", "content": "hello"}])
    if proposal is not None:
        name: str = proposal.tool
        args: Mapping[str, Any] = proposal.args
        confidence: float = proposal.confidence
        evidence: str = proposal.evidence
        print(name, args, confidence, evidence, proposal.act)  # noqa: T201
    decision: Decision = memory.inertia.explain([HumanMessage("hello")])
    event: dict[str, Any] = decision.to_event()
    names: list[str] = [hit.name for hit in memory.navigator.search("find mails", k=2)]
    report: Report = memory.report()
    saved: int | None = report.saved.input_tokens
    rate: float | None = report.precision
    plain_report: dict[str, Any] = report.to_dict()
    print(event, names, saved, rate, plain_report, str(report))  # noqa: T201
    return report


async def asynchronously(messages: list[BaseMessage]) -> None:
    async with ToolMemory.ephemeral(tools=TOOLS) as memory:
        new: int = await memory.aobserve(messages)
        proposal: Proposal | None = await memory.inertia.apredict(messages)
        report: Report = await memory.areport()
        print(new, proposal, report)  # noqa: T201


def rooms(tool: str, steps: Sequence[ExecutedCall]) -> Mapping[str, Any]:
    return {"room": steps[-1].output} if steps else {}


def policies() -> list[InertiaPolicy]:
    return [
        InertiaPolicy().with_(min_precision=0.95, max_wrong_per_100=0.5, audit_rate=0.1, never=frozenset({"pay"})),
        InertiaPolicy().with_(max_wrong_per_100=None).with_(shadow=True),
        InertiaPolicy.paper(environment=rooms, recovery_tool="look"),
        InertiaPolicy.paper(environment=lambda tool, steps: {"step": len(steps)}),
        InertiaPolicy.from_dict({"kind": "paper"}),
    ]


class Chat(TypedDict):
    """A state with another key."""

    chat: Annotated[list[BaseMessage], add_messages]


def graph_with_other_names(memory: ToolMemory) -> Any:
    builder = StateGraph(Chat)
    shortcut = InertiaShortcut(memory, TOOLS, policy=InertiaPolicy.paper(), messages_key="chat")
    builder.add_node("shortcut", shortcut)
    builder.add_node("act", ToolNode(TOOLS, messages_key="chat"))
    builder.add_node("think", lambda state: {"chat": [AIMessage("Done.")]})
    builder.add_edge(START, "shortcut")
    builder.add_edge("act", "shortcut")
    way_on = partial(shortcut_condition, messages_key="chat", tools="act", agent="think")
    builder.add_conditional_edges("shortcut", way_on)
    return builder.compile()
