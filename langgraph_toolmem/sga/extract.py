"""Atoms straight from recorded runs, without search and without a model: one per successful step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.graph.values import canon
from langgraph_toolmem.run import Run, Step, UserMessage
from langgraph_toolmem.sga.atoms import Atom, make_atom, merge_all
from langgraph_toolmem.sga.known import Known, told
from langgraph_toolmem.sga.mask import Habits, mask
from langgraph_toolmem.sga.situation import Abouts, Situation, part_of, situation
from langgraph_toolmem.sga.slots import Slots
from langgraph_toolmem.sga.words import KINDS
from langgraph_toolmem.tools import ToolSpec

MAX_PRODUCED = 12


class Extracted(NamedTuple):
    """An atom and the step it is of: `key` is `Step.key`, so that no step is counted twice."""

    key: str
    atom: Atom


class Extractor:
    """Reads runs over one set of tools.

    Args:
        specs: the tools, by name.
        habits: which values their parameters are given; see `Habits`. Without them only the schema and the run
            itself tell what is a literal.
    """

    def __init__(self, specs: Mapping[str, ToolSpec], *, habits: Habits | None = None) -> None:
        self.slots, self.abouts, self.habits = Slots(specs), Abouts(specs), habits or Habits()

    def steps(
        self, run: Run, *, value: float = 1.0, origin: str = "runs", source: str | None = None
    ) -> list[Extracted]:
        """The atoms of a run that went well, one per successful step, in order, not merged.

        Args:
            run: a history that was read.
            value: the run's reward, 0 to 1.
            origin: "runs", or "search" for the path of a search.
            source: what the atoms name as their source; the run's id by default.
        """
        named = run.run_id if source is None else source
        found: list[Extracted] = []
        state, known, said, answered = RunState(cut=run.truncated), Known(), "", set[str]()
        for event in run.events:
            if isinstance(event, UserMessage):
                said += "\n" + event.text
            elif event.steps:
                where = situation(state, known, self.abouts)
                found += [
                    Extracted(step.key, self._atom(step, where, known, said, answered, value, origin, named or ""))
                    for step in event.steps
                    if step.status == "ok"
                ]
                for step in event.steps:
                    if step.status == "ok":
                        answered |= {canon(value).lower() for _, value in told(step, self.slots)}
            state.push(event)
            known.push(event, self.slots)
        return found

    def before(self, run: Run) -> tuple[Situation, Known]:
        """Where a run stands now, and what it knows: what the next call's atoms are looked up by."""
        state, known = RunState(cut=run.truncated), Known()
        for event in run.events:
            state.push(event)
            known.push(event, self.slots)
        return situation(state, known, self.abouts), known

    def _atom(
        self,
        step: Step,
        where: Situation,
        known: Known,
        said: str,
        answered: set[str],
        value: float,
        origin: str,
        source: str,
    ) -> Atom:
        masked = mask(step.tool, step.args, self.slots, known, habits=self.habits, text=said, answered=answered)
        produced = dict.fromkeys(label for label, _ in told(step, self.slots) if label not in KINDS or label == "EMAIL")
        return make_atom(
            state=where.state,
            goal=goal_of(step, where, self.abouts.short(step.tool)),
            tool=step.tool,
            arguments=masked.arguments,
            required_slots=masked.required,
            about=self.abouts.whole(step.tool),
            value=value,
            origin=origin,
            sources=[source],
            produces=list(produced)[:MAX_PRODUCED],
        )


def goal_of(step: Step, where: Situation, about: str) -> str:
    """The sub-goal a call served: the part of the request that it was about, else all that was open."""
    place = part_of(step, where.raw, about)
    return where.goals[place] if place is not None else " ".join(where.goals)


def atoms_of(
    run: Run,
    specs: Mapping[str, ToolSpec],
    *,
    value: float = 1.0,
    origin: str = "runs",
    source: str | None = None,
    habits: Habits | None = None,
) -> list[Atom]:
    """The atoms of one run; see `Extractor.steps`. For many runs make one `Extractor`."""
    read = Extractor(specs, habits=habits).steps(run, value=value, origin=origin, source=source)
    return [each.atom for each in read]


def distil(runs: Iterable[Run], specs: Mapping[str, ToolSpec], *, values: Sequence[float] | None = None) -> list[Atom]:
    """The merged atoms of runs that went well; what never varies among them stays literal.

    Args:
        runs: successful runs.
        specs: the tools, by name.
        values: the runs' rewards; all 1 by default.
    """
    given = list(runs)
    extractor = Extractor(specs, habits=Habits(given))
    rewards = values or [1.0] * len(given)
    steps = (extractor.steps(run, value=value) for run, value in zip(given, rewards, strict=True))
    return merge_all(each.atom for found in steps for each in found)
