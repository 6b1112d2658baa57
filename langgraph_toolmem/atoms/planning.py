"""One step of online planning: from messages to hints, with or without a planner's model.

The tracker K goes on, the question is made, atoms are looked up, and those with room in the prompt are in the ledger.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from langchain_core.language_models import BaseChatModel

from langgraph_toolmem.atoms.done import Done, done
from langgraph_toolmem.atoms.extract import Extractor
from langgraph_toolmem.atoms.fit import fits, nearest
from langgraph_toolmem.atoms.known import Known
from langgraph_toolmem.atoms.material import called, material_of, said_in
from langgraph_toolmem.atoms.planner import MAX_FACTS, MAX_SAID, PlannedStep, PlannerModel, PlannerOutcome
from langgraph_toolmem.atoms.record import AtomRecord
from langgraph_toolmem.atoms.render import pattern, render
from langgraph_toolmem.atoms.retrieve import AtomHit, filled
from langgraph_toolmem.atoms.rules import CallsMade
from langgraph_toolmem.atoms.settings import SGASettings
from langgraph_toolmem.atoms.situation import SHORTEST, Abouts, Situation, situation
from langgraph_toolmem.atoms.traces import event_of, why_not
from langgraph_toolmem.atoms.tracker import add_facts, mark_of, to_kept, tracked, type_named
from langgraph_toolmem.atoms.words import slots_in
from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.runs.run import Run
from langgraph_toolmem.runs.tools import ToolSpec, side_effects
from langgraph_toolmem.runs.values import canon
from langgraph_toolmem.text.requests import is_small_talk
from langgraph_toolmem.text.tools import USUAL
from langgraph_toolmem.text.values import delexicalised
from langgraph_toolmem.turn.hints import Planning, turn_of

if TYPE_CHECKING:
    from langgraph_toolmem.atoms import Atoms
    from langgraph_toolmem.turn.ask import StepGenerator

logger = logging.getLogger("langgraph_toolmem.atoms")

LEAST_LIKE: Final = 0.05
LEAST_SCORE: Final = 0.4
SHARE_OF_BEST: Final = 0.7
"""Cosine and score of a hint at least, and its share of the best one's: on recorded runs 99 of 100 right tools stay."""
"""Likeness of question and atom from which it is shown."""
MORE: Final = 2
"""Atoms that an event tells of beside those that are shown."""
MISSES: Final = 2
"""Times in a row without a usable answer after which a planner's model is left alone until the user speaks."""
CHARS_PER_TOKEN: Final = 4
MAX_EXTRACTORS: Final = 16
MAX_CLAIMS: Final = 32
NOTHING_ASKED: Final = "nothing is asked for"
NOTHING_FOUND: Final = "no atom of a tool at hand was found"
NOT_OUR_TURN: Final = "it is not the model's turn"
DONE: Final = "the work is done, as past requests went"
LEFT_ALONE: Final = "not asked: it gave no usable answer before in this turn"


class Question(NamedTuple):
    """A question to the atoms.

    Attributes:
        state: where the run stands, without values.
        goals: what may be next, without values.
        known: K, with the types that a planner says are available.
    """

    state: str
    goals: tuple[str, ...]
    known: Known


class Planned(NamedTuple):
    """A step's hints.

    Attributes:
        text: for the prompt; "" if there is nothing to say.
        shown: the atoms in it.
        record: for the private state.
        event: for the stream.
        done: said in place of patterns where past requests like this one ended here.
    """

    text: str
    shown: tuple[AtomHit, ...]
    record: Planning
    event: dict[str, Any]
    done: Done | None = None


class _Look(NamedTuple):
    """A run before a step."""

    run: Run
    where: Situation
    known: Known
    goals: tuple[str, ...]
    record: Planning
    specs: Mapping[str, ToolSpec] | None
    abouts: Abouts
    asks: bool
    why: str
    begins: bool
    """Nothing was called since the user spoke."""
    refused: frozenset[str]
    """Tools of which a person rejected a call since the user spoke."""
    state: RunState


class HintPlanner:
    """Plans steps of runs. Safe to use from several threads.

    Args:
        method: it has the atoms.
        settings: how they are looked up and shown; their model is asked if there is one.
        failed: told of errors that are passed over.
    """

    def __init__(self, method: Atoms, settings: SGASettings, *, failed: Callable[[Exception], None]) -> None:
        self._method, self._settings, self._failed = method, settings, failed
        self._model = PlannerModel(settings.model) if isinstance(settings.model, BaseChatModel) else None
        self._extractors: dict[tuple[int, ...], tuple[list[ToolSpec], Extractor]] = {}
        self._lock = threads.lock()
        self._warned = False
        method.begin()

    def planning(
        self,
        messages: Sequence[Any],
        specs: Mapping[str, ToolSpec] | None,
        kept: Planning | None,
        *,
        thread_id: str | None = None,
        user_id: str | None = None,
    ) -> StepGenerator[Planned]:
        """The hints for the model call that comes now.

        Args:
            messages: the history as far as it is still there.
            specs: the tools at hand at this step; None: nobody knows.
            kept: the record that an earlier step made.
            thread_id: the thread.
            user_id: whose run it is.

        Raises:
            MessageError: `messages` cannot be read.
            NamespaceError: the namespace needs a user id.
        """
        look = self._look(messages, specs, kept or {}, thread_id)
        outcome = None
        if self._model is not None and look.asks:
            outcome = yield from self._model.asking(_material(look))
        return self._found(look, outcome, user_id)

    def _look(
        self, messages: Sequence[Any], specs: Mapping[str, ToolSpec] | None, kept: Planning, thread_id: str | None
    ) -> _Look:
        core = self._method.core
        if specs:
            core.catalogue.adopt(specs)
        run = core.read(messages, thread_id)
        extractor = self._extractor(run, specs)
        known = tracked(run, extractor.slots, kept.get("slots"), kept.get("read", ""))
        state = core.state_of(run)
        where = situation(state, known, extractor.abouts)
        # "Yes, please" goes on with what was asked before.
        asked = bool(where.raw) and not is_small_talk(state.user.raw, USUAL)
        goals = where.goals if asked else tuple(kept.get("goals", ()))
        why = NOT_OUR_TURN if not run.awaiting_model else "" if goals else NOTHING_ASKED
        turn = turn_of(messages) or kept.get("turn", "")
        last = state.since_user[-1] if state.since_user else None
        parts = where.raw if asked else goals
        open_now = digest(turn, *parts, last.key if last is not None and last.status != "ok" else "")
        due = {
            "step": True,
            "goal": open_now != kept.get("open", ""),
            "turn": turn != kept.get("turn", ""),
        }[self._settings.when]
        said = "" if due else kept.get("said", "")
        missed = kept.get("missed", 0) if turn == kept.get("turn", "") else 0
        record = Planning(slots=to_kept(known), read=mark_of(run), goals=list(goals), turn=turn, open=open_now)
        record |= {"said": said, "missed": missed}
        # Where there is nothing to find, a model call would be for nothing.
        asks = self._model is not None and due and not why and specs != {} and not core.vectors.empty
        asks = asks and missed < MISSES
        refused = frozenset(step.tool for step in state.since_user if step.review == "rejected")
        return _Look(run, where, known, goals, record, specs, extractor.abouts, asks, why, last is None, refused, state)

    def _found(self, look: _Look, outcome: PlannerOutcome | None, user_id: str | None) -> Planned:
        record = look.record
        if outcome is not None:
            record["missed"] = 0 if outcome.step is not None else record["missed"] + 1
            self._note(outcome)
        question, told = self._question(look, outcome)
        record["slots"] = to_kept(question.known)
        if told.get("planned_by") == "model":
            record["said"] = question.goals[0]
        if look.why:
            return Planned(
                "", (), record, event_of(question.state, question.goals, question.known, [], 0, look.why, told)
            )
        found, why = self._search(look, question, user_id)
        records = self._records(found, user_id)
        made = CallsMade(look.run, look.specs)
        hits = [refilled(hit, made, question.known) for hit in found]
        next_of_list = any(hit is not before for hit, before in zip(hits, found, strict=True))
        best = max((hit.score for hit in hits), default=0.0)
        unlike = {hit.atom.id for hit in hits if not self._is_like(hit, best, look, question)}
        hits = [self._harmless(hit, look) for hit in hits]
        fine = [
            hit
            for hit in hits
            if hit.atom.id not in unlike and hit.tool not in look.refused and not is_repeat(hit, made)
        ]
        over = None if self._settings.plain or outcome is not None or next_of_list else self._done(look.state)
        if over is not None:
            event = event_of(question.state, question.goals, question.known, hits, 0, DONE, told, None, records)
            return Planned(over.text, (), record, event, over)
        chosen = fine[: self._settings.k]
        if not self._settings.plain:
            chosen = [replace(hit, goal=nearest(question.goals, hit.atom)) for hit in chosen]
        shown = chosen[: fitting(chosen, self._settings.budget)]
        if shown:
            self._method.note_shown(look.run, shown, user_id)
        text = render(shown, max_chars=self._settings.budget * CHARS_PER_TOKEN)
        reasons = {hit.atom.id: why_not(hit, fine, chosen, shown, look.refused, unlike) for hit in hits}
        return Planned(
            text,
            tuple(shown),
            record,
            event_of(question.state, question.goals, question.known, hits, len(shown), why, told, reasons, records),
        )

    def _done(self, state: RunState) -> Done | None:
        core = self._method.core
        with core.lock:
            return done(core.graph.cases, state)

    def _note(self, outcome: PlannerOutcome) -> None:
        """Logs once what a planner's model could not do."""
        if outcome.error is not None:
            self._failed(outcome.error)
        elif outcome.step is None and not self._warned:
            self._warned = True
            logger.warning("planning goes on without its model where %s (logged once)", outcome.why)

    def _question(self, look: _Look, outcome: PlannerOutcome | None) -> tuple[Question, dict[str, Any]]:
        """Return what to look up by, and what an event tells of how it was made."""
        told: dict[str, Any] = {"planned_by": "messages", "model_calls": 0}
        said = look.record.get("said", "")
        if outcome is None:
            if look.record["missed"] >= MISSES:
                told["planner"] = LEFT_ALONE
            if not said:
                return Question(look.where.state, look.goals, look.known), told
            told["planned_by"] = "model, before"
            return Question(look.where.state, (said, *look.goals), look.known), told
        told |= {"model_calls": outcome.calls, "tokens": list(outcome.tokens)}
        if outcome.step is None:
            told["planner"] = outcome.why
            return Question(look.where.state, look.goals, look.known), told
        return _of_model(look, outcome.step, told)

    def _search(self, look: _Look, question: Question, user_id: str | None) -> tuple[list[AtomHit], str]:
        try:
            hits = self._method.search(
                question.goals,
                state=question.state,
                slots=question.known,
                k=self._settings.k + MORE,
                tools=look.specs,
                beta=self._settings.beta,
                user_id=user_id,
                settle=False,
                plain=self._settings.plain,
            )
        except StorageError as error:
            self._failed(error)
            return [], f"the atoms could not be read ({type(error).__name__})"
        return hits, "" if hits else NOTHING_FOUND

    def _harmless(self, hit: AtomHit, look: _Look) -> AtomHit:
        """A call that may destroy something is never shown ready to be made."""
        spec = self._method.core.catalogue.marked(look.specs).get(hit.tool)
        destroys = spec is not None and side_effects(spec) == "destroys"
        return replace(hit, filled=hit.atom.arguments) if destroys else hit

    def _is_like(self, hit: AtomHit, best: float, look: _Look, question: Question) -> bool:
        if self._settings.plain:
            return True
        if hit.similarity < LEAST_LIKE or hit.score < max(LEAST_SCORE, SHARE_OF_BEST * best):
            return False
        # An embedder of one's own may find what has no word in common.
        by_words = look.begins and self._method.core.vectors.embedder.builtin
        return not by_words or fits(question.goals, hit.atom)

    def _records(self, hits: Sequence[AtomHit], user_id: str | None) -> dict[str, AtomRecord]:
        try:
            return self._method.records([hit.atom.id for hit in hits], user_id=user_id) if hits else {}
        except StorageError as error:
            self._failed(error)
            return {}

    def _extractor(self, run: Run, specs: Mapping[str, ToolSpec] | None) -> Extractor:
        """For the tools at hand and those that the run called; others would only blur what is said of them."""
        there = self._method.core.catalogue.specs
        at_hand = dict(there if specs is None else specs)
        for name in called(run):
            if name not in at_hand and name in there:
                at_hand[name] = there[name]
        key = tuple(map(id, at_hand.values()))
        with self._lock:
            found = self._extractors.get(key)
            if found is None:
                if len(self._extractors) >= MAX_EXTRACTORS:
                    del self._extractors[next(iter(self._extractors))]
                # The specs are kept with it: an id may be used again once its object is gone.
                found = self._extractors[key] = list(at_hand.values()), Extractor(at_hand)
            return found[1]


def _material(look: _Look) -> dict[str, str]:
    return material_of(look.run, look.where, look.known, look.goals, look.specs or (), look.abouts)


def _of_model(look: _Look, step: PlannedStep, told: dict[str, Any]) -> tuple[Question, dict[str, Any]]:
    """The question as a model's answer has it, checked."""
    given = [(fact.slot, fact.value) for fact in step.new_facts[:MAX_FACTS]]
    known = look.known.copy()
    added, refused = add_facts(known, given, said_in(look.run))
    claims = frozenset(filter(None, map(type_named, step.available_slots[:MAX_CLAIMS])))
    types = {text: label for text, label in known.texts().items() if len(text) >= SHORTEST}
    state, goal = (
        delexicalised(" ".join(text.split())[:MAX_SAID], types, also=types) for text in (step.state, step.next_goal)
    )
    told |= {
        "planned_by": "model",
        "thought": " ".join(step.thought.split())[:MAX_SAID],
        "facts": [{"slot": slot, "value": value} for slot, value in added],
        "facts_refused": refused,
    }
    return Question(state or look.where.state, (goal,), _claimed(known, claims)), told


class _Claimed(Known):
    """Known types, with further ones that a planner names."""

    __slots__ = ("claims",)

    claims: frozenset[str]

    @property
    def types(self) -> frozenset[str]:
        return super().types | self.claims


def _claimed(known: Known, claims: frozenset[str]) -> Known:
    made = _Claimed(known.to_plain())
    made.claims = claims
    return made


def is_repeat(hit: AtomHit, made: CallsMade) -> bool:
    """Return True if the call that a hint shows was made already, and nothing has changed since."""
    return made.repeats(hit.tool, hit.filled)


def refilled(hit: AtomHit, made: CallsMade, known: Known) -> AtomHit:
    """A hint with another known value where the latest one would repeat a call: the next one of a list."""
    if not is_repeat(hit, made):
        return hit
    for label in dict.fromkeys(slots_in(canon(dict(hit.atom.arguments)))):
        for value in known.values(label):
            trial = known.copy()
            trial.add(label, value)
            other = replace(hit, filled=filled(hit.atom.arguments, trial))
            if not is_repeat(other, made):
                return other
    return hit


def fitting(hits: Sequence[AtomHit], budget: int) -> int:
    """Return how many hints, the best first, a budget of tokens has room for; see `render.render`."""
    room, count = budget * CHARS_PER_TOKEN, 0
    for hit in hits:
        room -= len(pattern(hit)) + 1
        if room < 0:
            break
        count += 1
    return count
