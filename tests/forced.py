"""Versions of the shortcut that do too much: a measurement that finds nothing must find something in them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from langgraph_toolmem import Inertia
from langgraph_toolmem.graph.state import WORDS
from langgraph_toolmem.inertia.calibrated import Situation
from langgraph_toolmem.inertia.confidence import COLUMNS
from langgraph_toolmem.inertia.decision import Decision, Option, Proposal
from langgraph_toolmem.runs.values import canon_args


class Forced(Inertia):
    """Makes the likeliest call that was not made yet, whatever speaks against it."""

    def decide(self, situation: Situation) -> Decision:
        decision = super().decide(situation)
        tools = [each for each in decision.options if each.tool != WORDS]
        new = [each for each in tools if (each.tool, canon_args(each.args)) not in situation.state.called]
        if not new:
            return decision
        return replace(decision, proposal=Proposal(new[0].tool, new[0].args, 1.0, "forced"))


def fixed(tool: str, args: dict[str, Any], *, acts: bool = True) -> type[Inertia]:
    """Return a version that predicts one call in every run, whatever the run is about, and makes it if it `acts`."""

    class Fixed(Inertia):
        def decide(self, situation: Situation) -> Decision:
            decision = super().decide(situation)
            options = (Option(tool, (args,), 0.95, columns=(0.0,) * len(COLUMNS)),)
            new = (tool, canon_args(args)) not in situation.state.called
            proposal = Proposal(tool, args, 1.0, "fixed") if acts and new else None
            return replace(decision, options=options, proposal=proposal)

    return Fixed
