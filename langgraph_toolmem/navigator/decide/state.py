"""State of a run of the decider: plain values only, so that every checkpointer and stream takes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from langgraph.managed import RemainingSteps
from pydantic import TypeAdapter
from typing_extensions import NotRequired, TypedDict

from langgraph_toolmem.navigator.plan.chains import Chain, Plan

WINDOW: Final = 3
"""Earlier decisions with their observations that a decider sees (NaviAgent, arXiv 2506.19500)."""

Stop = Literal["", "answered", "unreadable", "limit", "no progress", "out of steps"]
"""Why a run ended; "" while it goes on."""


class DecidedCall(TypedDict):
    """A call to make; `intent`: the decider's words for its purpose."""

    id: str
    tool: str
    args: dict[str, Any]
    intent: str


class Pending(TypedDict):
    """Requests of the last decision: calls, searches for tools and questions to the user."""

    calls: list[DecidedCall]
    queries: list[str]
    questions: list[str]


class CallOutcome(TypedDict):
    """A call that was made or refused; it is not made again."""

    tool: str
    args: dict[str, Any]
    status: Literal["ok", "failed", "refused"]
    result: str


class DecisionRecord(TypedDict):
    """One decision in lines, and the observations after it."""

    decided: list[str]
    observed: list[str]


class Route(TypedDict):
    """The way around a failed tool.

    Attributes:
        failed: the tool.
        way: an equivalent tool by inputs and outputs, another way from upstream, a fresh search, or none.
        fallback: the equivalent tool, "" otherwise.
        chain: tools of the chain to go on with.
        similar: tools with a similar description, the most similar first.
    """

    failed: str
    way: Literal["equivalent", "upstream", "fresh", "none"]
    fallback: str
    chain: list[str]
    similar: list[str]


class Retrieved(TypedDict):
    """The result of one search."""

    query: str
    chains: list[dict[str, Any]]
    tools: list[str]


class NaviRecord(TypedDict):
    """The record of one request.

    Attributes:
        request: the user's words.
        candidates: names of the tools that may be called, the most fitting first.
        chains: of the last searches, without those that failed (see `plan.chains`).
        history: the last decisions with their observations.
        outcomes: all calls.
        failed: tool -> reason; such a tool is not called again.
        routes: the reaction to each failure.
        waiting: parts of the last decision that come later.
        queries: all searches for tools.
        decisions: number of decisions so far.
        idle: decisions in a row without a new call, question or tool.
        pending: requests of the last decision.
        stop: why the run ended.
    """

    request: str
    candidates: list[str]
    chains: list[dict[str, Any]]
    history: list[DecisionRecord]
    outcomes: list[CallOutcome]
    failed: dict[str, str]
    routes: list[Route]
    waiting: list[str]
    queries: list[str]
    decisions: int
    idle: int
    pending: Pending
    stop: Stop


class NaviState(TypedDict):
    """Private keys of the subgraph, next to the messages."""

    toolmem_navi: NotRequired[NaviRecord]
    toolmem_navi_retrieved: NotRequired[list[Retrieved]]
    toolmem_navi_said: NotRequired[list[str]]
    remaining_steps: NotRequired[RemainingSteps]


def nothing_pending() -> Pending:
    return Pending(calls=[], queries=[], questions=[])


def new_record(request: str) -> NaviRecord:
    return NaviRecord(
        request=request,
        candidates=[],
        chains=[],
        history=[],
        outcomes=[],
        failed={},
        routes=[],
        waiting=[],
        queries=[],
        decisions=0,
        idle=0,
        pending=nothing_pending(),
        stop="",
    )


def retrieved_of(query: str, plan: Plan | None, hits: Iterable[str] = ()) -> Retrieved:
    """Return a plan as plain values, with further tools."""
    if plan is None:
        return Retrieved(query=query, chains=[], tools=list(dict.fromkeys(hits)))
    return Retrieved(query=query, chains=plan.to_dict()["chains"], tools=list(dict.fromkeys([*plan.tools, *hits])))


chain_of: Final = TypeAdapter(Chain).validate_python
"""Returns the chain of plain values."""


def tools_of(chain: Mapping[str, Any]) -> list[str]:
    """Return the tools of a plain chain, in order."""
    return [step["tool"] for step in chain["steps"]]


def subgraph_of(chains: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return plain chains as one graph of tools and the values they exchange; each node and edge is in it once."""
    nodes: dict[str, dict[str, Any]] = {}
    edges: dict[tuple[str, str], dict[str, Any]] = {}
    for chain in chains:
        for step in chain["steps"]:
            tool = f"api:{step['tool']}"
            nodes[tool] = {"id": tool, "kind": "api", "label": step["tool"]}
            for feed in step["feeds"]:
                value = f"parameter:{step['tool']}.{feed['input']}"
                nodes[value] = {"id": value, "kind": "parameter", "label": feed["input"], "source": feed["source"]}
                edges[value, tool] = {"source": value, "target": tool}
                if feed["source"] in ("step", "done"):
                    giver = f"api:{feed['origin']}"
                    nodes.setdefault(giver, {"id": giver, "kind": "api", "label": feed["origin"]})
                    edges[giver, value] = {"source": giver, "target": value, "weight": feed["weight"]}
    return {"nodes": [*nodes.values()], "edges": [*edges.values()]}
