"""What SIT-Graph keeps in the evidence graph: the walks of runs, and summaries that wait for their run's verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from langgraph_toolmem.graph.events import Event, Forgotten, Verdict
from langgraph_toolmem.graph.tool_graph import Handler, Table, ToolGraph
from langgraph_toolmem.sit.walks import Walks

MAX_DRAFTS: Final = 5_000
"""Runs whose summaries wait for a verdict."""


@dataclass(slots=True)
class TransitionSeen(Event):
    """In a run, `target` was called right after `source`; step: the key of its call."""

    kind = "transition"
    run: str
    step: str
    source: str
    target: str


@dataclass(slots=True)
class Draft(Event):
    """A state's summary, until its run has a verdict.

    Attributes:
        run: digest of the run.
        step: key of the call that came next.
        place, target, text, made_by: see `sit.summary.NewSummary`.
        user: digest of the user, if known.
    """

    kind = "draft"
    run: str
    step: str
    place: str
    target: str
    text: str
    made_by: str
    user: str | None


@dataclass(slots=True)
class DraftsTaken(Event):
    """Summaries of a run are stored elsewhere, or dropped."""

    kind = "drafts_taken"
    run: str
    steps: list[str]


class SITEvidence(Table):
    """Walks and drafts.

    Attributes:
        walks: which tool came after which in whole runs.
        drafts: run -> step -> [place, target, text, made_by, user or ""].
    """

    name = "sit"
    parts = ("drafts",)

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.walks = Walks()
        self.drafts: dict[str, dict[str, list[str]]] = {}

    def handlers(self) -> Mapping[type[Event], Handler]:
        """See `Table`."""
        return {
            TransitionSeen: self._add_transition,
            Draft: self._add_draft,
            DraftsTaken: self._drop_drafts,
            Verdict: lambda run, *_: self._judge(run),
        }

    def _add_transition(self, run: str, step: str, source: str, target: str) -> None:
        if run not in self.walks.runs:
            self._judge(run)  # before this table was there
        self.walks.add(run, step, source, target)

    def _judge(self, run: str) -> None:
        """The verdict that stands."""
        if (stands := self.graph.verdict(run)) is not None:
            score, _, _, weight, _ = stands
            self.walks.judge(run, score, weight)

    def _add_draft(self, run: str, step: str, *draft: str) -> None:
        self.drafts.setdefault(run, {})[step] = [*draft[:-1], draft[-1] or ""]
        if len(self.drafts) > MAX_DRAFTS:
            del self.drafts[next(iter(self.drafts))]

    def _drop_drafts(self, run: str, steps: list[str]) -> None:
        waiting = self.drafts.get(run, {})
        for step in steps:
            waiting.pop(step, None)
        if not waiting:
            self.drafts.pop(run, None)

    def waiting(self) -> int:
        """Summaries that wait for the verdict on their run."""
        return sum(map(len, self.drafts.values()))

    def forget(self, gone: Forgotten) -> int:
        """Takes out the summaries of a user, and those in the user's runs that are nobody's; or those of runs."""
        mine = [
            (run, step)
            for run, drafts in self.drafts.items()
            for step, draft in drafts.items()
            if gone.has(run, draft[-1])
        ]
        for run, step in mine:
            self._drop_drafts(run, [step])
        for run in gone.runs:
            self.walks.runs.pop(run, None)  # what they added stays
        return len(mine)

    def to_state(self) -> dict[str, Any]:
        """See `Table`."""
        return super().to_state() | {"edges": self.walks.edges.rows, "walks": self.walks.runs}

    def load(self, state: dict[str, Any]) -> None:
        """See `Table`."""
        super().load(state)
        self.walks.edges.rows, self.walks.runs = state["edges"], state["walks"]
