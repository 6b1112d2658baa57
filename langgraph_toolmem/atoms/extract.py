"""Atoms straight from recorded runs, without search and without a model: one per successful step."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from langgraph_toolmem.atoms.atoms import Atom, make_atom, merge_all
from langgraph_toolmem.atoms.known import Known, told
from langgraph_toolmem.atoms.mask import Habits, Masked, mask
from langgraph_toolmem.atoms.situation import SHORTEST, Abouts, Situation, part_of, situation
from langgraph_toolmem.atoms.slots import PERSONS, Slots, words_of
from langgraph_toolmem.atoms.words import names_in
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.runs.run import ExecutedCall, Run, UserMessage
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import canon
from langgraph_toolmem.text.values import EMAIL, KINDS, NAME
from langgraph_toolmem.text.words import words

MAX_PRODUCED = 12


class Extracted(NamedTuple):
    """An atom and the step it is of: `key` is `ExecutedCall.key`, so that no step is counted twice.

    `request` is what the user said last before it, `known` the types of what was known then: what a chat model has to
    know to word it (`atoms.writer`).
    """

    key: str
    atom: Atom
    step: ExecutedCall
    request: str = ""
    known: tuple[str, ...] = ()


EARLIER: Final = 100
"""Events of a thread before an episode whose values are known in it: a long thread costs no more than a short one."""


class Extractor:
    """Reads runs over one set of tools.

    Args:
        specs: the tools, by name.
        habits: which values their parameters are given; see `Habits`. Without them only the schema and the run
            itself tell what is a literal.
    """

    def __init__(self, specs: Mapping[str, ToolSpec], *, habits: Habits | None = None) -> None:
        self.slots, self.abouts, self.habits = Slots(specs), Abouts(specs), habits or Habits()
        self._ordinary = _vocabulary(specs.values())

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
        named = run.thread_id if source is None else source
        masked, hidden, knew = self._masked(run)
        found: list[Extracted] = []
        state, asked = RunState(cut=run.truncated), ""
        for event in run.earlier[-EARLIER:]:
            state.push(event)
        for event in run.events:
            if isinstance(event, UserMessage):
                asked = event.text
            elif event.steps:
                known = knew[id(event)]
                where, types = situation(state, known, self.abouts, hidden), tuple(sorted(known.types))
                for step in event.steps:
                    if step.status == "ok":
                        atom = self._atom(step, where, masked[id(step)], value, origin, named or "")
                        found.append(Extracted(step.key, atom, step, asked, types))
            state.push(event)
        return found

    def _masked(self, run: Run) -> tuple[dict[int, Masked], dict[str, str], dict[int, Known]]:
        """Each call without its values, by `id` of the step; the values of all calls, which no atom may tell; and what
        the thread knew before each turn of the episode, by `id` of the turn.

        A request names what only later calls use, so all of them are read before the first sub-goal is worded.
        """
        masked: dict[int, Masked] = {}
        hidden: dict[str, str] = {}
        known, said, answered, knew = Known(), "", set[str](), dict[int, Known]()
        earlier = run.earlier[-EARLIER:]
        for index, event in enumerate((*earlier, *run.events)):
            if isinstance(event, UserMessage):
                said += "\n" + event.text
                known.push(event, self.slots)
                continue
            if event.steps and index >= len(earlier):
                knew[id(event)] = known.copy()
            for step in event.steps:
                masked[id(step)] = mask(
                    step.tool, step.args, self.slots, known, habits=self.habits, text=said, answered=answered
                )
                hidden |= masked[id(step)].values
            for step in event.steps:
                if step.status == "ok":
                    values = told(step, self.slots)
                    for label, value in values:
                        answered.add(canon(value).lower())
                        if isinstance(value, str) and (label == EMAIL or not PERSONS.isdisjoint(words_of(label))):
                            hidden.setdefault(value, label)
                    known.take(step, self.slots, values)
        for name in (name for value in list(hidden) if "@" in value for name in names_in(value)):
            hidden.setdefault(name, NAME)
        hidden = dict.fromkeys(sorted(self.habits.names), NAME) | hidden
        return masked, {text: label for text, label in hidden.items() if self._private(text)}, knew

    def _private(self, text: str) -> bool:
        """Return True if a value says more than the tools' own words do."""
        said = set(words(text))
        return len(text) >= SHORTEST and not said <= self._ordinary

    def before(self, run: Run) -> tuple[Situation, Known]:
        """Return where a run stands now, and what it knows: what the next call's atoms are looked up by."""
        state, known = RunState(cut=run.truncated), Known()
        for event in run.events:
            state.push(event)
            known.push(event, self.slots)
        return situation(state, known, self.abouts), known

    def _atom(
        self,
        step: ExecutedCall,
        where: Situation,
        masked: Masked,
        value: float,
        origin: str,
        source: str,
    ) -> Atom:
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


def _vocabulary(specs: Iterable[ToolSpec]) -> frozenset[str]:
    """The words of descriptions, parameters and choices: what they say is nobody's secret."""
    texts = (text for spec in specs for text in (spec.description, json.dumps(spec.parameters, default=str)))
    return frozenset(word for text in texts for word in words(text))


def goal_of(step: ExecutedCall, where: Situation, about: str) -> str:
    """The sub-goal a call served: the part of the request that it was about, else all that was open."""
    place = part_of(step, where.raw, about)
    return where.goals[place] if place is not None else " ".join(where.goals)


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
