"""Questions to the navigator: tools for a description, and another way after a failure. Fails open."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from langgraph_toolmem.navigator.decide.decision import (
    DecidedCall,
    NaviRecord,
    Retrieved,
    Route,
    chain_of,
    retrieved_of,
    tools_of,
)
from langgraph_toolmem.navigator.decide.rounds import succeeded
from langgraph_toolmem.navigator.plan.planner import Chain, Plan, Recombination, same_effects
from langgraph_toolmem.runs.tools import ToolSpec, side_effects
from langgraph_toolmem.text.similarity import LexicalIndex
from langgraph_toolmem.text.tools import tool_text
from langgraph_toolmem.turn.host import ErrorLog

if TYPE_CHECKING:
    from langgraph_toolmem.navigator import Navigator

T = TypeVar("T")
MAX_QUERY: Final = 4_000
FEW_HITS: Final = 8
"""New tools that a search for one imagined API, or a failure, brings next to those of the chains."""
FEW_TOOLS: Final = 100
"""With so many tools or fewer, a search that finds too little brings others too: words may fail to tell."""


class CallContext(NamedTuple):
    """Names of the tools that may be called at this moment, and the user of the run, if known."""

    allowed: Collection[str]
    user_id: str | None


class Retriever:
    """The searches of one subgraph. A search that raises is logged once and finds nothing."""

    def __init__(self, navigator: Navigator, specs: Mapping[str, ToolSpec], errors: ErrorLog) -> None:
        self._navigator, self._specs, self._errors = navigator, specs, errors
        self._index: LexicalIndex | None = None

    def search(self, record: NaviRecord, query: str, context: CallContext, *, most: int = FEW_HITS) -> Retrieved:
        """Return the tools for a request or an imagined API: complete chains, then at most `most` others that are new.

        Where hardly any tool fits, others fill up, but in a large catalogue only if there is no candidate yet.
        """
        plan = self._plan(record, context, query)
        planned = () if plan is None else plan.tools
        had = {*record["failed"], *record["candidates"], *planned}
        hits = [name for name in self._hits(query, context, most + len(had)) if name not in had]
        if len(context.allowed) <= FEW_TOOLS or not (hits or planned or record["candidates"]):
            hits += [name for name in self._specs if name in context.allowed and name not in {*had, *hits}]
        return retrieved_of(query, plan, hits[:most])

    def reroute(
        self, before: NaviRecord, after: NaviRecord, call: DecidedCall, context: CallContext
    ) -> tuple[Route, Retrieved | None]:
        """Return the way around a failed call: an equivalent tool, another way from upstream, or a fresh search."""
        tool = call["tool"]
        similar = self._similar(tool, {name for name in context.allowed if name not in after["failed"]})
        chain, way = self._broken(before, tool, context), None
        if chain is not None:
            how: dict[str, Any] = {"available": context.allowed, "done": succeeded(after)}
            way = self._asked(partial(self._navigator.reroute, chain, after["failed"], **how))
        way = way or Recombination("none")
        had = set() if chain is None else {*chain.tools, way.fallback}
        if way.way != "none" and way.chain is not None and self._careful(way.chain.tools, had):
            tools = list(way.chain.tools)
            others = [name for name in similar if name not in tools]
            route = Route(failed=tool, way=way.way, fallback=way.fallback, chain=tools, similar=others)
            return route, retrieved_of(f"in place of {tool}", way.plan, others)
        found = self._fresh(after, call, context, similar)
        if not found["tools"]:
            return Route(failed=tool, way="none", fallback="", chain=[], similar=[]), None
        chains = [each for each in found["chains"] if self._careful(tools_of(each), had)]
        first = tools_of(chains[0]) if chains else []
        return Route(failed=tool, way="fresh", fallback="", chain=first, similar=similar), {**found, "chains": chains}

    def _careful(self, tools: Sequence[str], had: Collection[str]) -> bool:
        """Return True if no new step changes something only to get a value for the target."""
        new = (self._specs[name] for name in tools[:-1] if name not in had and name in self._specs)
        return all(side_effects(spec) == "reads" for spec in new)

    def _similar(self, tool: str, allowed: Collection[str]) -> list[str]:
        """Return tools with a similar text and the same side effects; this needs no schema of outputs and no runs."""
        spec = self._specs.get(tool)
        if spec is None:
            return []
        if self._index is None:
            self._index = LexicalIndex((name, tool_text(each)) for name, each in self._specs.items())
        found = (name for name, _ in self._index.search(tool_text(spec), len(self._specs)) if name in allowed)
        return [name for name in found if name != tool and same_effects(spec, self._specs[name])][:FEW_HITS]

    def _broken(self, before: NaviRecord, tool: str, context: CallContext) -> Chain | None:
        """Return the chain of the failed tool; a new one to it if it was in none."""
        for chain in before["chains"]:
            if tool in tools_of(chain):
                return chain_of(chain)
        if tool not in self._specs:
            return None
        there = CallContext({*context.allowed, tool}, context.user_id)
        plan = self._plan(before, there, target=tool)
        return None if plan is None else plan.chain

    def _fresh(self, record: NaviRecord, call: DecidedCall, context: CallContext, similar: list[str]) -> Retrieved:
        """Search for the failed tool's description, the purpose of the call, or the request, until a tool is new."""
        spec = self._specs.get(call["tool"])
        found = retrieved_of("", None)
        for text in ("" if spec is None else spec.description, call["intent"], record["request"]):
            if text.strip():
                found = self.search(record, text.strip(), context, most=FEW_HITS - len(similar))
                if any(tool not in record["candidates"] for tool in (*similar, *found["tools"])):
                    break
        return {**found, "tools": list(dict.fromkeys([*similar, *found["tools"]]))}

    def _plan(
        self, record: NaviRecord, context: CallContext, query: str = "", *, target: str | None = None
    ) -> Plan | None:
        out = set(record["failed"]) - {target}
        ask = partial(
            self._navigator.plan,
            (query or record["request"])[:MAX_QUERY],
            target=target,
            available=context.allowed,
            avoid=out,
            done=[name for name in succeeded(record) if name not in out],
            user_id=context.user_id,
        )
        return self._asked(ask)

    def _hits(self, query: str, context: CallContext, most: int) -> list[str]:
        who: dict[str, Any] = {"available": context.allowed, "user_id": context.user_id}
        hits = self._asked(partial(self._navigator.search, query[:MAX_QUERY], k=most, **who))
        return [hit.name for hit in hits or ()]

    def _asked(self, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
            return None
