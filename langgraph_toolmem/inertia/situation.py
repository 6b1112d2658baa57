"""The situation that a decision is about, and the shape of the rules that look at it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeAlias

from langgraph_toolmem.graph.cases import Neighbour
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.graph.tool_graph import ToolGraph
from langgraph_toolmem.inertia.budget import Budget
from langgraph_toolmem.inertia.decision import Option, Refusal
from langgraph_toolmem.inertia.novelty import Novelty
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.record import InertiaEvidence
from langgraph_toolmem.runs.tools import ToolSpec

Similarity: TypeAlias = Callable[[str, str], float]
"""(thought of the model, name of a tool) -> cosine with the tool's description."""


@dataclass(frozen=True)
class Situation:
    """A model turn before the model has answered, with all evidence about it.

    Attributes:
        graph: the tool graph, locked by the caller.
        state: the run so far, with what the model sees besides the messages.
        neighbours: past requests that went the same way, nearest first.
        specs: the tools that may be called now.
        policy: the policy of this run.
        constants: parameters whose values are declared (`ToolMemory(constants=...)`).
        today: days since 1970, by the memory's clock.
        draw: a number from 0 to 1; below the policy's `audit_rate` it means an audit.
        evidence: the record of predictions.
        budget: the misses that are left.
        chosen_by: who chose the calls of the run so far, for published rules.
        similarity: of a thought and a tool, for published rules.
    """

    graph: ToolGraph
    state: RunState
    neighbours: Sequence[Neighbour]
    specs: Mapping[str, ToolSpec]
    policy: InertiaPolicy
    constants: Collection[str]
    today: int
    draw: float
    evidence: InertiaEvidence
    budget: Budget
    chosen_by: Sequence[str]
    similarity: Similarity

    @cached_property
    def novelty(self) -> Novelty:
        """The wording of the request, next to that of past requests."""
        return Novelty(self.state, self.neighbours, self.graph.cases)


class Veto(Protocol):
    """A rule that may leave a call to the model. A rule that learns is a `Table` as well."""

    def refuse(self, best: Option, situation: Situation) -> Refusal | None:
        """Return why the call is not made; None if this rule has nothing against it."""
