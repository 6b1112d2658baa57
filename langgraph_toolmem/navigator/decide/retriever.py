"""Questions to the navigator: tools for a description, and another way after a failure. Fails open."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal

from langgraph_toolmem.navigator.decide.fallbacks import Fallbacks
from langgraph_toolmem.navigator.decide.rounds import given_values, succeeded
from langgraph_toolmem.navigator.decide.state import (
    DecidedCall,
    NaviLimits,
    NaviRecord,
    Retrieved,
    Route,
    chain_of,
    retrieved_of,
    tools_of,
)
from langgraph_toolmem.navigator.plan.chains import Chain, Plan
from langgraph_toolmem.runs.tools import ToolSpec, side_effects
from langgraph_toolmem.turn.host import ErrorLog

if TYPE_CHECKING:
    from langgraph_toolmem.navigator import Navigator
    from langgraph_toolmem.navigator.plan.planner import Strategy
    from langgraph_toolmem.navigator.plan.reroute import Recombination

MAX_QUERY: Final = 4_000
FEW_HITS: Final = 8
"""Tools that are no candidates yet and that a search for one imagined API brings, besides those of the chains."""
FEW_TOOLS: Final = 100
"""With so many tools or fewer, a search that finds too little brings others, too: words may fail to tell."""


@dataclass(frozen=True, slots=True)
class Now:
    """Facts at a moment of a run.

    Attributes:
        allowed: names of the tools that may be called.
        user_id: whose run it is, if anybody knows.
        known: name -> value of what the user's words and the results tell.
    """

    allowed: Collection[str]
    user_id: str | None = None
    known: Mapping[str, Any] = field(default_factory=dict)


class Retriever:
    """The searches of one subgraph.

    Whatever goes wrong in them is logged once: then a search finds nothing, and the first search finds the
    tools in their order.

    Args:
        navigator: searches and plans.
        specs: the tools by name.
        limits: bounds.
        strategy, seed, budget: of its `plan`.
        errors: where failures are logged.
    """

    def __init__(
        self,
        navigator: Navigator,
        specs: Mapping[str, ToolSpec],
        *,
        limits: NaviLimits,
        strategy: Strategy,
        seed: int,
        budget: float,
        errors: ErrorLog,
    ) -> None:
        self._navigator, self._specs, self._limits, self._errors = navigator, specs, limits, errors
        self._strategy, self._seed, self._budget = strategy, seed, budget
        self._fallbacks = Fallbacks(specs, lambda text, most: self._hits(text, Now(specs), most))

    def first(self, record: NaviRecord, now: Now) -> Retrieved:
        """The tools that the first decision sees: complete chains, then what else fits; others if hardly any fits.

        Others stand in a small catalogue only, or where nothing was found: in a large one they would be noise.
        """
        most, request = self._limits.candidates, record["request"]
        plan = self._plan(request, record, now)
        hits = self._hits(request, now, most)
        if len(now.allowed) <= FEW_TOOLS or not (hits or (plan is not None and plan.tools)):
            hits += islice((name for name in self._specs if name in now.allowed), most)
        return retrieved_of(request, plan, hits)

    def search(self, record: NaviRecord, recall: str, now: Now) -> Retrieved:
        """Return what fits an imagined API: complete chains, then what is no candidate yet."""
        plan = self._plan(recall, record, now)
        had = set(record["failed"]).union(record["candidates"], () if plan is None else plan.tools)
        hits = [name for name in self._hits(recall, now, FEW_HITS + len(had)) if name not in had]
        if len(now.allowed) <= FEW_TOOLS:
            hits += [name for name in self._specs if name in now.allowed and name not in had and name not in hits]
        return retrieved_of(recall, plan, hits[:FEW_HITS])

    def reroute(
        self, before: NaviRecord, after: NaviRecord, call: DecidedCall, now: Now
    ) -> tuple[Route, Retrieved | None]:
        """Return what can be done about a failed call: an equivalent tool, another way from upstream, a fresh search.

        Args:
            before: the record with the chains that the call belonged to.
            after: the record with all that failed.
            call: the call.
            now: what holds now.
        """
        tool, out = call["tool"], set(after["failed"])
        similar = self._fallbacks.of(tool, {name for name in now.allowed if name not in out})
        chain = self._broken(before, tool, now, out)
        way = None if chain is None else self._rerouted(chain, after, now)
        if way is not None and way.chain is not None:
            plan = self._around(way.chain, after, now)
            tools = list(way.chain.tools)
            others = [name for name in similar if name not in tools]
            kind: Literal["equivalent", "upstream"] = "equivalent" if way.way == "equivalent" else "upstream"
            route = Route(failed=tool, way=kind, fallback=way.fallback, chain=tools, similar=others)
            return route, retrieved_of(f"in place of {tool}", plan, [*tools, *others])
        found = self._fresh(after, call, now, similar)
        if found is None:
            return Route(failed=tool, way="none", fallback="", chain=[], similar=[]), None
        first = tools_of(found["chains"][0]) if found["chains"] else []
        return Route(failed=tool, way="fresh", fallback="", chain=first, similar=similar), found

    def _rerouted(self, chain: Chain, record: NaviRecord, now: Now) -> Recombination | None:
        """Another chain to the same end by the graph; None if there is none that does no harm."""
        out = set(record["failed"])
        try:
            way = self._navigator.reroute(
                chain,
                out,
                known={**now.known, **given_values(record)},
                available=now.allowed,
                done=[name for name in succeeded(record) if name not in out],
                strategy=self._strategy,
                seed=self._seed,
                budget=self._budget,
            )
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
            return None
        return None if way.way == "none" or self._careless(way, chain) else way

    def _careless(self, way: Recombination, broken: Chain) -> bool:
        """Return True if the new way calls what may change something, to get what the failed tool did not give."""
        steps = () if way.chain is None else way.chain.tools[:-1]
        new = (name for name in steps if name not in broken.tools and name != way.fallback)
        return any(name in self._specs and side_effects(self._specs[name]) != "reads" for name in new)

    def _broken(self, before: NaviRecord, tool: str, now: Now, out: set[str]) -> Chain | None:
        """The chain that the failed tool was in; a new one to it if it was in none."""
        chain = next((chain for chain in before["chains"] if tool in tools_of(chain)), None)
        if chain is not None:
            return chain_of(chain)
        if tool not in self._specs:
            return None
        there = Now({*now.allowed, tool}, now.user_id, now.known)
        plan = self._plan(None, before, there, out=out - {tool}, target=tool)
        return None if plan is None else plan.chain

    def _around(self, chain: Chain, record: NaviRecord, now: Now) -> Plan | None:
        """A plan whose best chain is this one, with the part of the graph it lies in."""
        plan = self._plan(None, record, now, target=chain.target)
        if plan is None:
            return None
        others = tuple(other for other in plan.chains if other.tools != chain.tools)
        return Plan((chain, *others), plan.subgraph, plan.strategy, plan.cut_short)

    def _fresh(self, record: NaviRecord, call: DecidedCall, now: Now, similar: list[str]) -> Retrieved | None:
        """Return what is most like the failed tool, else other targets, by what it was called for.

        What is no candidate yet goes before what the decider could have taken all along.
        """
        spec = self._specs.get(call["tool"])
        about = "" if spec is None else spec.description.strip()
        near: Retrieved | None = None
        if similar:
            plan = self._plan(about, record, now) if about else None
            near = retrieved_of(about or call["intent"], plan, similar)
        for text in (about, call["intent"].strip(), record["request"].strip()):
            if near is not None and any(tool not in record["candidates"] for tool in near["tools"]):
                return near
            if text:
                found = self.search(record, text, now)
                if any(tool not in record["candidates"] for tool in found["tools"]):
                    return {**found, "tools": list(dict.fromkeys([*similar, *found["tools"]]))}
                near = near or (found if found["chains"] else None)
        return near

    def _plan(
        self,
        query: str | None,
        record: NaviRecord,
        now: Now,
        *,
        out: Collection[str] | None = None,
        target: str | None = None,
    ) -> Plan | None:
        out = set(record["failed"]) if out is None else out
        try:
            return self._navigator.plan(
                (record["request"] if query is None else query)[:MAX_QUERY],
                target=target,
                known={**now.known, **given_values(record)},
                k=self._limits.chains,
                available=now.allowed,
                avoid=out,
                done=[name for name in succeeded(record) if name not in out],
                strategy=self._strategy,
                seed=self._seed,
                budget=self._budget,
                user_id=now.user_id,
            )
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
            return None

    def _hits(self, query: str, now: Now, most: int) -> list[str]:
        try:
            hits = self._navigator.search(query[:MAX_QUERY], k=most, available=now.allowed, user_id=now.user_id)
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self._errors.failed(error)
            return []
        return [hit.name for hit in hits]
