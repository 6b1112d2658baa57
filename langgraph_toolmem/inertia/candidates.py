"""Candidates for the next call, each with the evidence for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from langgraph_toolmem.graph.cases import Neighbour
from langgraph_toolmem.graph.state import PARALLEL, WORDS, RunState, windows
from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.inertia.arguments import Filled, fill, fill_each, may_offer
from langgraph_toolmem.inertia.contexts import CallContexts, call_key
from langgraph_toolmem.inertia.decision import calls_text
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import ABSENT, canon_args

MAX_TOOLS: Final = 3
LEAST_SHARE: Final = 0.05
"""Share of the likeliest tool's share from which another is weighed too."""
NEIGHBOURS: Final = 8
"""Nearest past requests that are asked how sure a call is."""
NEAREST: Final = 4
"""Of these, how many say what comes next and with which values."""
FROM_CONTEXT: Final = 3
"""Rank of a whole call that followed the run's latest calls before."""
WHOLE: Final = "w"
"""Source of its arguments."""


@dataclass(frozen=True)
class Candidate:
    """One possible next turn of the model: a call, several calls of one tool, or an answer in words (tool WORDS).

    Attributes:
        p_tool: share of the tool among what followed in contexts like this one, backed off over their length.
        p_args: product of the records of the argument sources.
        witnesses: how many of the nearest past requests went on with this tool and took every argument from a
            source that gives the same value now.
        support: how often the longest known context was seen.
        rank: 0 for a tool's best filling, then 1 …; FROM_CONTEXT for a whole call as it followed the latest calls.
        each: the parameter whose value is a list with one element for each of several calls; "" for one call.
        of_calls: shares of the calls that followed the run's latest calls, by digest.
    """

    tool: str
    filled: Mapping[str, Filled]
    p_tool: float
    p_args: float
    support: float
    window: str
    similarity: float
    neighbour_agrees: int
    """2: the nearest past request went on with this tool, 1: no near request, 0: it went on otherwise."""
    agreeing_neighbours: float
    witnesses: int
    rank: int = 0
    each: str = ""
    of_calls: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def p_call(self) -> float:
        """Share of this very call among what followed the run's latest calls."""
        return self.of_calls.get(self.key, 0.0) if self.of_calls else 0.0

    @cached_property
    def calls(self) -> tuple[dict[str, Any], ...]:
        """The arguments of each call; optional ones that are best left out are absent. None for an answer in words."""
        if self.tool == WORDS:
            return ()
        args = {name: f.value for name, f in self.filled.items() if f.value is not ABSENT}
        return tuple({**args, self.each: value} for value in args[self.each]) if self.each else (args,)

    @property
    def following(self) -> str | None:
        """Return what a past request must have gone on with to be a witness (`Neighbour.tool`)."""
        return _following(self.tool, self.each)

    @cached_property
    def text(self) -> str:
        """The arguments as one text: see `calls_text`."""
        return calls_text(self.calls)

    @cached_property
    def key(self) -> str:
        """Its digest among the calls that follow others (`contexts.call_key`)."""
        return call_key(PARALLEL + self.tool, "") if self.each else call_key(self.tool, self.text)


def _following(tool: str, each: str) -> str | None:
    return None if tool == WORDS else PARALLEL + tool if each else tool


def next_tools(
    graph: ToolGraph, state: RunState, neighbours: Sequence[Neighbour]
) -> tuple[dict[str, float], float, str]:
    """The distribution of what comes next: tools, WORDS, PARALLEL.

    Windows are backed off by Witten–Bell interpolation, P_k(c) = (n_k(c) + T_k P_{k−1}(c)) / (N_k + T_k), with
    T_k the number of different successors; the nearest requests are a last context weighted by similarity.

    Returns:
        The distribution, how often the longest known window was seen, and that window's key.
    """
    shares: dict[str, float] = {}
    support, longest = 0.0, ""
    for key in windows(state):
        row = graph.successors.row(key)
        counts = {item: n for item, cell in row.items() if (n := cell[0] + cell[1]) > 0}
        total = sum(counts.values())
        if total <= 0:
            continue
        support, longest = total, key
        kinds = float(len(counts))
        shares = {
            item: (counts.get(item, 0.0) + kinds * shares.get(item, 0.0)) / (total + kinds)
            for item in {*shares, *counts}
        }
    if neighbours:
        votes: dict[str, float] = {}
        for near in neighbours:
            item = WORDS if near.tool is None else near.tool
            votes[item] = votes.get(item, 0.0) + 4 * near.similarity**2
        total, kinds = sum(votes.values()), float(len(votes))
        shares = {
            item: (votes.get(item, 0.0) + kinds * shares.get(item, 0.0)) / (total + kinds) for item in {*shares, *votes}
        }
    return shares, support, longest


def candidates(
    graph: ToolGraph,
    contexts: CallContexts,
    state: RunState,
    neighbours: Sequence[Neighbour],
    *,
    specs: Mapping[str, ToolSpec],
    user: str | None,
) -> list[Candidate]:
    """Return what may come next, likeliest tools first: calls, several calls of one tool at once, an answer in words.

    Tools that are not among `specs` are left out.

    Args:
        graph: the evidence.
        contexts: which whole calls follow which.
        state: the run before the model's turn.
        neighbours: the nearest past requests that went the same way so far, nearest first.
        specs: the tools that may be called.
        user: digest of the user, if known; decides which constants may be used.
    """
    nearest = neighbours[:NEAREST]
    shares, support, window = next_tools(graph, state, nearest)
    following, of_calls = contexts.after(state)
    base = _Base(state, nearest, support, window, of_calls)
    found: list[Candidate] = []
    ranked = sorted(shares, key=lambda item: (-shares[item], item))  # by name where equal: a set has no fixed order
    least = LEAST_SHARE * max(shares.values(), default=0.0)
    known = [item for item in ranked if shares[item] >= least and item.removeprefix(PARALLEL) in specs][:MAX_TOOLS]
    for item in known:
        tool = item.removeprefix(PARALLEL)
        spec = specs[tool]
        fillings = fill(graph, state, tool, spec.properties, spec.required, nearest, user)
        if isinstance(fillings, str):
            continue
        if item == tool:
            found += [base.candidate(tool, filled, shares[item], rank) for rank, filled in enumerate(fillings)]
            continue
        for parameter, each in fill_each(graph, state, item, spec.properties):
            found.append(base.candidate(tool, {**fillings[0], parameter: each}, shares[item], 0, each=parameter))
    there = {candidate.key for candidate in found} if following else set()
    for tool, args, share, _ in following:
        if tool not in specs or call_key(tool, canon_args(args)) in there:
            continue
        properties = specs[tool].properties
        if all(may_offer(graph, state, tool, name, value, properties.get(name), user) for name, value in args.items()):
            filled = {name: Filled(value, share, WHOLE, 0, 0) for name, value in args.items()}
            found.append(base.candidate(tool, filled, max(shares.get(tool, 0.0), share), FROM_CONTEXT, p_args=share))
    found.append(base.candidate(WORDS, {}, shares.get(WORDS, 0.0), 0))
    return found


@dataclass(frozen=True)
class _Base:
    """Values that all candidates of one decision share."""

    state: RunState
    neighbours: Sequence[Neighbour]
    support: float
    window: str
    of_calls: Mapping[str, float]

    def candidate(
        self,
        tool: str,
        filled: Mapping[str, Filled],
        share: float,
        rank: int,
        *,
        each: str = "",
        p_args: float | None = None,
    ) -> Candidate:
        following = _following(tool, each)
        agreeing = sum(n.tool == following for n in self.neighbours)
        return Candidate(
            tool=tool,
            filled=filled,
            p_tool=share,
            p_args=math.prod(f.probability for f in filled.values()) if p_args is None else p_args,
            support=self.support,
            window=self.window,
            similarity=self.neighbours[0].similarity if self.neighbours else 0.0,
            neighbour_agrees=1 if not self.neighbours else (2 if self.neighbours[0].tool == following else 0),
            agreeing_neighbours=agreeing / len(self.neighbours) if self.neighbours else 0.0,
            witnesses=min((f.witnesses for name, f in filled.items() if name != each), default=agreeing),
            rank=rank,
            each=each,
            of_calls=self.of_calls,
        )
