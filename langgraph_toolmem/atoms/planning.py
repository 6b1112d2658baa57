"""One step of online planning: from messages to hints, with or without a planner's model."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from langchain_core.language_models import BaseChatModel

from langgraph_toolmem.atoms.extract import Extractor, StepSituation
from langgraph_toolmem.atoms.models import plan_prompt, planned, planner_of
from langgraph_toolmem.atoms.retrieve import AtomHit, AtomQuestion, Resolver, by_name
from langgraph_toolmem.atoms.slots import SLOT, Known, filled
from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.base.text import digest, quoted
from langgraph_toolmem.core.precedents import ending
from langgraph_toolmem.graph.provenance import Provenance
from langgraph_toolmem.graph.records import tool_of
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.runs.run import Run, Turn, UserMessage
from langgraph_toolmem.runs.tools import ToolSpec, side_effects
from langgraph_toolmem.runs.values import canon
from langgraph_toolmem.text.requests import is_small_talk
from langgraph_toolmem.text.words import STOP_WORDS
from langgraph_toolmem.turn.hints import Line, turn_of

if TYPE_CHECKING:
    from langgraph_toolmem.atoms import Atoms
    from langgraph_toolmem.atoms.step import SGASettings
    from langgraph_toolmem.turn.ask import StepGenerator

logger = logging.getLogger("langgraph_toolmem.atoms")

LEAST_SCORE: Final = 0.4
SHARE_OF_BEST: Final = 0.7
"""Score of a hint at least, and its share of the best one's."""
LEAST_TO_GOAL: Final = 0.06
"""Likeness to a goal of a hint before the first call at least: then all runs are in the same state."""
MORE: Final = 2
"""Atoms that an event reports next to those that are shown."""
MISSES: Final = 2
"""Useless answers in a row after which a planner's model is not asked until the user speaks."""
CHARS_PER_TOKEN: Final = 4
MAX_TOOL_SETS: Final = 16
MAX_THREADS: Final = 256
"""Threads whose record is kept; the least recently planned leave."""
MAX_CALL: Final = 400
MAX_GOAL: Final = 100
MAX_VALUE: Final = 210
"""Characters of a value as JSON. Known values are shown whole, since a part of an address is none."""
HEAD: Final = "Steps that worked in similar situations (<…>: not known yet):"


@dataclass
class Planning:
    """Knowledge of a thread; it outlives the messages that it was read from.

    Attributes:
        known: K after the last step.
        begins: key of the first event of the messages that were read.
        read: identity of their last event.
        goals: open goals at the last call, without values.
        turn: the user turn.
        missed: unusable answers of the planner's model in this turn, one after the other.
    """

    known: Known = field(default_factory=Known)
    begins: str = ""
    read: str = ""
    goals: tuple[str, ...] = ()
    turn: str = ""
    missed: int = 0


class Planned(NamedTuple):
    """A step's hints.

    Attributes:
        record: what is known of the thread from now on.
        event: for the stream.
        shown: the atoms in the hints.
        lines: for the prompt: one for each atom, or that the work is done.
        sure: how sure the surest one is, 0 to 1.
        run: the run that they are for; None where there are no hints.
    """

    record: Planning
    event: dict[str, Any]
    shown: tuple[AtomHit, ...] = ()
    lines: tuple[Line, ...] = ()
    sure: float = 0.0
    run: Run | None = None


class _Tools(NamedTuple):
    """The tools of one step, read once."""

    specs: tuple[ToolSpec, ...]  # kept, since an id may be used again once its object is gone
    read: Extractor
    resolve: Resolver


class _PlanLook(NamedTuple):
    """A run before a step."""

    run: Run
    state: RunState
    where: StepSituation
    question: AtomQuestion
    record: Planning
    specs: Mapping[str, ToolSpec] | None
    tools: _Tools
    why: str


class HintPlanner:
    """Plans steps of runs; `failed` gets errors that are passed over. Safe to use from several threads."""

    def __init__(self, method: Atoms, settings: SGASettings, *, failed: Callable[[Exception], None]) -> None:
        self._method, self._settings, self._failed = method, settings, failed
        self._model = planner_of(settings.model) if isinstance(settings.model, BaseChatModel) else None
        self._known_tools: dict[tuple[int, ...], _Tools] = {}
        self._records: dict[tuple[str | None, str | None], Planning] = {}
        self._lock = threads.lock()
        self._warned = False
        method.begin()
        method.core.texts.register(self.forget)

    def forget(self) -> None:
        """Drop what is known of threads: it holds values of users."""
        with self._lock:
            self._records.clear()

    def planning(
        self,
        messages: Sequence[Any],
        specs: Mapping[str, ToolSpec] | None,
        *,
        thread_id: str | None = None,
        user_id: str | None = None,
    ) -> StepGenerator[Planned]:
        """Return the hints for the model call that comes now.

        Raises:
            MessageError: `messages` cannot be read.
            NamespaceError: the namespace needs a user id.
        """
        self._method.asked += 1
        thread, purges = (thread_id, user_id), self._method.core.texts.purges
        look = self._look(messages, specs, self._records.get(thread) or Planning(), thread_id)
        planned = yield from self._planned(look, user_id)
        with self._lock:
            if thread_id is not None and purges == self._method.core.texts.purges:
                self._records.pop(thread, None)
                self._records[thread] = planned.record
                if len(self._records) > MAX_THREADS:
                    del self._records[next(iter(self._records))]
        return planned

    def _planned(self, look: _PlanLook, user_id: str | None) -> StepGenerator[Planned]:
        specs = look.specs
        question, told = look.question, {"planned_by": "messages", "model_calls": 0}
        if look.why:
            return Planned(look.record, _event(question, [], look.why, told))
        if self._model is not None and specs != {} and not self._method.core.vectors.empty:
            if look.record.missed < MISSES:
                question, told = yield from self._asked(look, told)
            else:
                told["planner"] = "not asked: it gave no usable answer before in this turn"
        return self._hints(look, question, told, user_id)

    def _look(
        self, messages: Sequence[Any], specs: Mapping[str, ToolSpec] | None, kept: Planning, thread_id: str | None
    ) -> _PlanLook:
        core = self._method.core
        if specs:
            core.catalogue.adopt(specs)
        run = core.read(messages, thread_id)
        tools = self._tools(run, specs)
        known = tracked(run, tools.read, kept)
        state = core.state_of(run)
        where = tools.read.situation(state, known)
        # "Yes, please" goes on with what was asked before.
        asked = bool(where.raw) and not is_small_talk(state.user.raw, STOP_WORDS)
        goals = where.goals if asked else kept.goals
        why = "it is not the model's turn" if not run.awaiting_model else "" if goals else "nothing is asked for"
        turn = turn_of(messages) or kept.turn
        missed = kept.missed if turn == kept.turn else 0
        record = Planning(known, run.scope, mark_of(run), goals, turn, missed)
        return _PlanLook(run, state, where, AtomQuestion(where.state, goals, known), record, specs, tools, why)

    def _asked(self, look: _PlanLook, told: dict[str, Any]) -> StepGenerator[tuple[AtomQuestion, dict[str, Any]]]:
        """Ask the planner's model; without a usable answer the question stays as it is."""
        assert self._model is not None
        names = list(look.specs or look.tools.read.specs)
        prompt = plan_prompt(look.run, look.where, look.question, look.tools.read, names)
        try:
            answer = yield from self._model.asking(prompt)
        except Exception as error:  # noqa: BLE001 - whatever a provider raises: there is a question without it
            self._failed(error)
            look.record.missed += 1
            return look.question, {**told, "model_calls": 1, "planner": type(error).__name__}
        usage = answer.usage or {"input_tokens": 0, "output_tokens": 0}
        told = {**told, "model_calls": answer.calls, "tokens": [usage["input_tokens"], usage["output_tokens"]]}
        if answer.value is None:
            if not self._warned:
                self._warned = True
                logger.warning(
                    "planning without its model, whose answer cannot be used: %s (logged once)", answer.reason
                )
            look.record.missed += 1
            return look.question, {**told, "planner": answer.reason or "it refused"}
        question, more = planned(answer.value, look.question, look.run)
        look.record.missed, look.record.known = 0, question.known
        return question, {**told, "planned_by": "model", **more}

    def _hints(self, look: _PlanLook, question: AtomQuestion, told: dict[str, Any], user_id: str | None) -> Planned:
        settings = self._settings
        how: dict[str, Any] = {"k": settings.k + MORE, "beta": settings.beta, "plain": settings.plain}
        resolve = by_name if look.specs is None else look.tools.resolve
        try:
            found = self._method.find(question, user_id, resolve=resolve, **how)
        except StorageError as error:
            self._failed(error)
            why = f"the atoms could not be read ({type(error).__name__})"
            return Planned(look.record, _event(question, [], why, told))
        executed = [step for step in look.state.since_user if step.status in ("ok", "failed")]
        made = {_call(tool_of(step.tool), step.args) for step in executed}
        hits = [refilled(hit, made, question.known) for hit in found]
        next_of_list = any(hit is not before for hit, before in zip(hits, found, strict=True))
        provenance = Provenance(self._method.core.graph, look.state, self._method.core.constants)
        hits = [sourced(hit, provenance, look.specs or self._method.core.catalogue.specs) for hit in hits]
        over = None if settings.plain or "thought" in told or next_of_list else self._done(look.state)
        reasons = {hit.atom.id: self._why_not(hit, hits, look, made) for hit in hits}
        room, shown, lines = settings.budget * CHARS_PER_TOKEN, list[AtomHit](), list[Line]()
        for hit in hits if over is None else ():
            if reasons[hit.atom.id]:
                continue
            line = Line(pattern(hit), hit.tool)
            room -= len(line.text) + 1
            if len(shown) == settings.k:
                reasons[hit.atom.id] = "others fit better"
            elif room < 0:
                reasons[hit.atom.id] = "no room in the prompt"
            else:
                shown.append(hit)
                lines.append(line)
        why = "" if shown else "no atom of an available tool was found" if not hits else "no atom is worth showing"
        sure = max((hit.similarity for hit in shown), default=0.0)
        if over is not None:
            why, sure = "the work is done, as past requests went", over[1]
            lines = [Line(over[0])]
        event = _event(question, hits, why, told, reasons)
        return Planned(look.record, event, tuple(shown), tuple(lines), sure, look.run)

    def _why_not(self, hit: AtomHit, hits: Sequence[AtomHit], look: _PlanLook, made: set[str]) -> str:
        """Return why a hint must not be shown; "" if it may."""
        if any(tool_of(step.tool) == hit.tool and step.review == "rejected" for step in look.state.since_user):
            return "a person rejected it"
        if not self._settings.plain:
            if not self._reads(hit.tool, look):
                return "nobody declared that it only reads"
            # An embedder of one's own may find what has no word in common.
            by_words = not look.state.since_user and self._method.core.vectors.embedder.builtin
            enough = max(LEAST_SCORE, SHARE_OF_BEST * max(each.score for each in hits))
            if hit.score < enough or (by_words and hit.to_goal < LEAST_TO_GOAL):
                return "too unlike"
        return "called already" if _call(hit.tool, hit.filled) in made else ""

    def _done(self, state: RunState) -> tuple[str, float] | None:
        """Return a line for the model if most past requests like this one ended after the same calls, and how sure."""
        found = ending(self._method.core, state)
        if found is None:
            return None
        many = f"In {found.ended} of {found.past} past requests like this one"
        return f"{many} nothing more was called after these calls: the answer came.", found.share

    def _reads(self, tool: str, look: _PlanLook) -> bool:
        spec = self._method.core.catalogue.marked(look.specs).get(tool)
        return spec is not None and side_effects(spec) == "reads"

    def _tools(self, run: Run, specs: Mapping[str, ToolSpec] | None) -> _Tools:
        """Return the available tools and those called for the request; others would only blur what is said of them."""
        there = self._method.core.catalogue.specs
        available = dict(there if specs is None else specs)
        called = (step.tool for event in run.current.events if isinstance(event, Turn) for step in event.steps)
        with_called = available | {name: there[name] for name in called if name in there and name not in available}
        key = (len(available), *map(id, with_called.values()))
        with self._lock:
            found = self._known_tools.get(key)
            if found is None:
                if len(self._known_tools) >= MAX_TOOL_SETS:
                    del self._known_tools[next(iter(self._known_tools))]
                read = Extractor(with_called)
                resolve = Resolver(read if len(available) == len(with_called) else Extractor(available))
                found = self._known_tools[key] = _Tools(tuple(with_called.values()), read, resolve)
            return found


def tracked(run: Run, tools: Extractor, kept: Planning) -> Known:
    """Return K of a run: what an earlier step knew, and what is new in the messages.

    If the last event that was read is gone, all messages are read again: they were trimmed, and what was known stays;
    or the thread went back to an earlier point, and only what they say is known.
    """
    events = run.events
    new = next((index + 1 for index in range(len(events) - 1, -1, -1) if _mark(events[index]) == kept.read), 0)
    known = kept.known.copy() if new or run.scope != kept.begins else Known()
    for event in events[new:]:
        known.push(event, tools.slots)
    return known


def mark_of(run: Run) -> str:
    """Return the identity of the last event of a run with all that is known of it; "" if there is none."""
    return _mark(run.events[-1]) if run.events else ""


def _mark(event: UserMessage | Turn) -> str:
    if isinstance(event, UserMessage):
        return digest("said", event.key, event.text)
    return digest("turn", event.key, *(f"{step.key} {step.status}" for step in event.steps))


def refilled(hit: AtomHit, made: set[str], known: Known) -> AtomHit:
    """Return a hint with another known value where the latest one would repeat a call: the next one of a list."""
    if _call(hit.tool, hit.filled) not in made:
        return hit
    for label in dict.fromkeys(SLOT.findall(canon(dict(hit.atom.arguments)))):
        for value in known.values(label):
            trial = known.copy()
            trial.add(label, value)
            other = replace(hit, filled=filled(hit.atom.arguments, trial))
            if _call(hit.tool, other.filled) not in made:
                return other
    return hit


def sourced(hit: AtomHit, provenance: Provenance, specs: Mapping[str, ToolSpec]) -> AtomHit:
    """Return a hint in which a literal of other runs that this run does not show is the parameter's slot."""
    properties = specs[hit.tool].properties if hit.tool in specs else {}
    given = dict(hit.filled or hit.atom.arguments)
    for name, value in given.items():
        is_literal = value == hit.atom.arguments.get(name) and not SLOT.search(canon(value))
        if is_literal and not provenance.may_use(hit.tool, name, value, properties.get(name)):
            given[name] = f"<{name.upper()}>"
    return hit if given == (hit.filled or hit.atom.arguments) else replace(hit, filled=given)


def _call(tool: str, args: Mapping[str, Any]) -> str:
    """Return a call as a text, equal if only the order of keys or the writing of numbers differ."""
    return canon([tool, {name: canon(value) for name, value in args.items() if value is not None}])


def pattern(hit: AtomHit) -> str:
    """Return one hint: what for, and the call with known values in place. One line of printable characters."""
    given = hit.filled or hit.atom.arguments
    call = f"{_line(hit.tool)}({', '.join(f'{_line(name)}={_value(value)}' for name, value in given.items())})"
    if len(call) > MAX_CALL:
        call = f"{call[: MAX_CALL - 1]}…"
    goal = _line(hit.atom.goal).rstrip(".:;, ")
    return f"- To {quoted(goal, MAX_GOAL)}: {call}" if goal else f"- {call}"


def _line(text: str) -> str:
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c in _JOINERS else " " for c in text)
    return " ".join(text.split())


def _value(value: Any) -> str:
    """Return a value as JSON; slots as they are. Values come from tools: none may look like anything else."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_line(str(name))}: {_value(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, str) and SLOT.fullmatch(value):
        return value
    text = json.dumps(value, ensure_ascii=False, default=str)
    if not text.isprintable():
        text = "".join(c if c.isprintable() or c in _JOINERS else json.dumps(c)[1:-1] for c in text)
    return text if len(text) <= MAX_VALUE else f'{text[: MAX_VALUE - 1]}…"'


_JOINERS: Final = "\u200c\u200d"
"""Parts of words in some scripts, though they count as control characters."""


def _event(
    question: AtomQuestion,
    hits: Sequence[AtomHit],
    why: str,
    told: Mapping[str, Any],
    reasons: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the values of a stream event: the question, what was found, and why a hint is not shown."""
    why_not = reasons or {}
    return {
        "state": question.state,
        "goals": list(question.goals),
        "slots": sorted(question.known.types),
        "shown": 0 if why else sum(not why_not.get(hit.atom.id) for hit in hits),
        "why": why,
        "candidates": [
            {
                "atom": hit.atom.id,
                "tool": hit.tool,
                "learned_as": hit.atom.tool,
                "goal": hit.atom.goal,
                "score": round(hit.score, 4),
                "similarity": round(hit.similarity, 4),
                "feasibility": round(hit.feasibility, 4),
                "likeness": round(hit.likeness, 4),
                "filled": {name: value for name, value in hit.filled.items() if value != hit.atom.arguments.get(name)},
                "why_not": why_not.get(hit.atom.id, ""),
            }
            for hit in hits
        ],
        **told,
    }
