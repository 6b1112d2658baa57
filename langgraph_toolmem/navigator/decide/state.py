"""State of a run of the navigator: plain values only, so that every checkpointer and stream takes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from langgraph.managed import RemainingSteps
from typing_extensions import NotRequired, TypedDict

from langgraph_toolmem.base.checks import expect, is_count
from langgraph_toolmem.navigator.plan.chains import Chain, ChainStep, Feed, Gift, Plan, Question

WINDOW: Final = 3
"""Observation–action pairs before the current one that a decider sees (NaviAgent, arXiv 2506.19500)."""

Stop = Literal["", "answered", "unreadable", "limit", "no progress", "out of steps"]
"""Why a run ended; "" while it goes on."""


class DecidedCall(TypedDict):
    """A call that is about to be made; `intent`: the decider's words for what it is for."""

    id: str
    tool: str
    args: dict[str, Any]
    intent: str


class Search(TypedDict):
    """A search for tools that is about to be made."""

    recall: str
    intent: str


class Pending(TypedDict):
    """Requests of the last decision."""

    calls: list[DecidedCall]
    searches: list[Search]
    questions: list[str]
    gone: list[DecidedCall]


class Made(TypedDict):
    """A call that was made, or refused: it is not made again."""

    tool: str
    args: dict[str, Any]
    status: Literal["ok", "failed", "refused"]
    result: str


class Pair(TypedDict):
    """One decision as lines, and what was observed after it."""

    decided: list[str]
    observed: list[str]


class Route(TypedDict):
    """The way around a failed tool.

    Attributes:
        failed: the tool.
        way: an equivalent tool by inputs and outputs, another way from upstream, what comes closest, or none.
        fallback: the equivalent tool, "" otherwise.
        chain: the chain that goes on.
        similar: tools that are described most like it, the most similar first.
    """

    failed: str
    way: Literal["equivalent", "upstream", "fresh", "none"]
    fallback: str
    chain: list[str]
    similar: list[str]


class NaviRecord(TypedDict):
    """The record of one request.

    Attributes:
        request: the user's words.
        candidates: names of the APIs that may be called, the most fitting first.
        chains, subgraph: the last search, without the chains that failed (see `plan.chains`).
        pairs: the last decisions with what was observed.
        made: all calls.
        failed: tool -> why; never called again.
        routes: what was done about each failure.
        waiting: parts of the last decision that come later.
        sought: descriptions that were searched with.
        decisions: how often the decider decided.
        idle: decisions in a row that led to nothing new.
        pending: what the last decision asks for.
        stop: why the run ended.
    """

    request: str
    candidates: list[str]
    chains: list[dict[str, Any]]
    subgraph: dict[str, Any]
    pairs: list[Pair]
    made: list[Made]
    failed: dict[str, str]
    routes: list[Route]
    waiting: list[str]
    sought: list[str]
    decisions: int
    idle: int
    pending: Pending
    stop: Stop


class Retrieved(TypedDict):
    """The result of one search."""

    recall: str
    chains: list[dict[str, Any]]
    subgraph: dict[str, Any]
    tools: list[str]


class NaviState(TypedDict):
    """The private keys of the subgraph; the messages come beside them."""

    toolmem_navi: NotRequired[NaviRecord]
    toolmem_navi_retrieved: NotRequired[list[Retrieved]]
    toolmem_navi_said: NotRequired[list[str]]
    remaining_steps: NotRequired[RemainingSteps]


@dataclass(frozen=True)
class NaviLimits:
    """Bounds of one request.

    Attributes:
        decisions: how often the decider may decide.
        idle: decisions in a row that lead to nothing new.
        candidates: APIs that the first decision is shown; searches may bring as many again.
        chains: chains that are searched for each target.
        result: characters of a tool's answer that the decider sees as the current observation; more than six long
            ones share the room of six.
        digest: characters of it that it sees later.
    """

    decisions: int = 24
    idle: int = 3
    candidates: int = 24
    chains: int = 3
    result: int = 6_000
    digest: int = 400

    def __post_init__(self) -> None:
        """Checks types and ranges. Raises ConfigurationError that names the field and what is expected."""
        for name in ("decisions", "idle", "candidates", "chains", "result", "digest"):
            expect(self, name, "a whole number from 1", lambda value: is_count(value, 1))


def nothing_pending() -> Pending:
    """Nothing to be done."""
    return Pending(calls=[], searches=[], questions=[], gone=[])


def new_record(request: str) -> NaviRecord:
    """The record at the beginning of a request."""
    return NaviRecord(
        request=request,
        candidates=[],
        chains=[],
        subgraph={"nodes": [], "edges": []},
        pairs=[],
        made=[],
        failed={},
        routes=[],
        waiting=[],
        sought=[],
        decisions=0,
        idle=0,
        pending=nothing_pending(),
        stop="",
    )


def retrieved_of(recall: str, plan: Plan | None, hits: Iterable[str] = ()) -> Retrieved:
    """A plan in plain values, with further tools that fit."""
    nothing: dict[str, Any] = {"chains": [], "subgraph": {"nodes": [], "edges": []}}
    plain = nothing if plan is None else plan.to_dict()
    tools = [*(() if plan is None else plan.tools), *hits]
    return Retrieved(
        recall=recall,
        chains=list(plain["chains"]),
        subgraph=plain["subgraph"],
        tools=list(dict.fromkeys(tools)),
    )


def chain_of(plain: Mapping[str, Any]) -> Chain:
    """A chain from its plain values."""

    def step(value: Mapping[str, Any]) -> ChainStep:
        feeds = tuple(Feed(**feed) for feed in value["feeds"])
        return ChainStep(value["tool"], feeds, tuple(Gift(**gift) for gift in value["gives"]))

    def ask(value: Mapping[str, Any]) -> Question:
        return Question(**{**value, "also": tuple((tool, path) for tool, path in value["also"])})

    steps = tuple(step(value) for value in plain["steps"])
    return Chain(plain["target"], steps, tuple(ask(value) for value in plain["asks"]), plain["score"])


def tools_of(chain: Mapping[str, Any]) -> list[str]:
    """The tools of a plain chain, in order."""
    return [step["tool"] for step in chain["steps"]]


def merged(graphs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Subgraphs in one: a node that several have is there once."""
    nodes = {node["id"]: dict(node) for graph in graphs for node in graph["nodes"]}
    edges = {(edge["source"], edge["target"], edge["path"]): dict(edge) for graph in graphs for edge in graph["edges"]}
    return {"nodes": list(nodes.values()), "edges": list(edges.values())}
