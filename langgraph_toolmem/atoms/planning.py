"""One step of online planning: from messages to hints, with or without a planner's model."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from langchain_core.language_models import BaseChatModel

from langgraph_toolmem.atoms.extract import Extractor, StepSituation
from langgraph_toolmem.atoms.models import PlannedQuestion, PlannedStep, plan_prompt, planned, planner_of
from langgraph_toolmem.atoms.retrieve import AtomHit, AtomQuestion, Resolve, Resolver, by_name
from langgraph_toolmem.atoms.slots import SLOT, Known, filled
from langgraph_toolmem.base import threads
from langgraph_toolmem.base.caches import put_latest
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.base.text import digest, one_line, quoted
from langgraph_toolmem.core.users import Owner
from langgraph_toolmem.graph.provenance import Provenance
from langgraph_toolmem.graph.state import RunState, tool_of
from langgraph_toolmem.runs.run import Run, Turn, UserMessage
from langgraph_toolmem.runs.tools import ToolSpec, side_effects
from langgraph_toolmem.runs.values import canon
from langgraph_toolmem.text.wording import is_small_talk
from langgraph_toolmem.text.words import STOP_WORDS
from langgraph_toolmem.turn.hints import Line, turn_of
from langgraph_toolmem.turn.structured import StructuredModel

if TYPE_CHECKING:
    from langgraph_toolmem.atoms import Atoms
    from langgraph_toolmem.atoms.step import SGASettings
    from langgraph_toolmem.turn.ask import StepGenerator

logger = logging.getLogger("langgraph_toolmem.atoms")

ATOMS_HEAD: Final = "Steps that worked in similar situations (<…>: not known yet):"


@dataclass(frozen=True, slots=True)
class HintRules:
    """Rules for showing an atom, and limits of the kept records.

    Attributes:
        least_score: least score of a hint, and
        share_of_best: its least share of the best score. Chosen on recorded runs: 99 of 100 right tools stay.
        least_to_goal: least similarity to a goal of a hint before the first call, when all runs are in the same state.
        more: atoms that an event reports in addition to the shown ones.
        misses: useless answers in a row after which a planner's model is not asked until the user speaks.
        max_threads: limit of threads with a record; the least recently planned are dropped.
        max_tool_sets: limit of the tool sets that are kept.
    """

    least_score: float = 0.4
    share_of_best: float = 0.7
    least_to_goal: float = 0.06
    more: int = 2
    misses: int = 2
    max_threads: int = 256
    max_tool_sets: int = 16


HINT_RULES: Final = HintRules()


@dataclass
class Planning:
    """Knowledge of a thread; it survives the messages that it was read from.

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
        record: the new knowledge of the thread.
        event: for the stream.
        shown: the atoms in the hints.
        lines: for the prompt: one for each atom, or that the work is done.
        sure: highest confidence of a hint, 0 to 1.
        run: the run that they are for; None without hints.
    """

    record: Planning
    event: dict[str, Any]
    shown: tuple[AtomHit, ...] = ()
    lines: tuple[Line, ...] = ()
    sure: float = 0.0
    run: Run | None = None


class WorkDone(NamedTuple):
    """A line for the model that the work is done, and its confidence."""

    line: str
    sure: float


class _Tools(NamedTuple):
    """The tools of one step, read once."""

    specs: tuple[ToolSpec, ...]  # kept, because an id may be reused after its object is deleted
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
    """Plans steps of runs; `failed` gets suppressed errors. Safe to use from several threads."""

    def __init__(self, method: Atoms, settings: SGASettings, *, failed: Callable[[Exception], None]) -> None:
        self._method, self._settings, self._failed = method, settings, failed
        self._model: StructuredModel[PlannedStep] | None = None
        if isinstance(settings.model, BaseChatModel):
            self._model = planner_of(settings.model)
        self._known_tools: dict[tuple[int, ...], _Tools] = {}
        self._records: dict[Owner, Planning] = {}
        # Never locked while a model or Chroma is called.
        self._lock = threads.lock()
        self._warned = False
        # A planner needs atoms, so runs are kept from its first use on.
        method.begin()
        method.core.texts.register(self.forget)

    def forget(self) -> None:
        """Drop the knowledge of threads, because it contains values of users."""
        with self._lock:
            self._records.clear()

    def planning(
        self,
        messages: Sequence[Any],
        specs: Mapping[str, ToolSpec] | None,
        owner: Owner,
    ) -> StepGenerator[Planned]:
        """Return the hints for the model call that comes now; raise MessageError or NamespaceError."""
        self._method.asked += 1
        # By user too: two users may have threads of one name.
        purges = self._method.core.texts.purges
        look = self._look(messages, specs, self._records.get(owner) or Planning(), owner.thread_id)
        planned = yield from self._planned(look, owner.user_id)
        with self._lock:
            # After a forgetting meanwhile, the record would bring the values of a forgotten user back into RAM.
            if owner.thread_id is not None and purges == self._method.core.texts.purges:
                put_latest(self._records, owner, planned.record, HINT_RULES.max_threads)
        return planned

    def _planned(self, look: _PlanLook, user_id: str | None) -> StepGenerator[Planned]:
        asked = PlannedQuestion(look.question, {"planned_by": "messages", "model_calls": 0})
        if look.why:
            return Planned(look.record, _event(asked, [], look.why))
        # Without atoms a model call would be wasted.
        if self._model is not None and look.specs != {} and not self._method.core.vectors.empty:
            # A model without usable answers was once asked again at every step.
            if look.record.missed < HINT_RULES.misses:
                asked = yield from self._asked(look, asked.notes)
            else:
                asked.notes["planner"] = "not asked: it gave no usable answer before in this turn"
        return self._hints(look, asked, user_id)

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
        goals = where.goals
        # "Yes, please" continues the earlier request.
        if not where.raw or is_small_talk(state.user.raw, STOP_WORDS):
            goals = kept.goals
        why = ""
        if not run.awaiting_model:
            why = "it is not the model's turn"
        elif not goals:
            why = "nothing is asked for"
        turn = turn_of(messages) or kept.turn
        missed = 0
        if turn == kept.turn:
            missed = kept.missed
        record = Planning(known, run.scope, mark_of(run), goals, turn, missed)
        return _PlanLook(run, state, where, AtomQuestion(where.state, goals, known), record, specs, tools, why)

    def _asked(self, look: _PlanLook, notes: dict[str, Any]) -> StepGenerator[PlannedQuestion]:
        """Ask the planner's model; without a usable answer the question stays as it is."""
        assert self._model is not None
        names = list(look.specs or look.tools.read.specs)
        prompt = plan_prompt(look.run, look.where, look.question, look.tools.read, names)
        try:
            answer = yield from self._model.asking(prompt)
        except Exception as error:  # noqa: BLE001 - whatever a provider raises: there is a question without it
            self._failed(error)
            # An error counts as a useless answer: an unavailable model would delay every step.
            look.record.missed += 1
            return PlannedQuestion(look.question, {**notes, "model_calls": 1, "planner": type(error).__name__})
        usage = answer.usage or {"input_tokens": 0, "output_tokens": 0}
        notes = {**notes, "model_calls": answer.calls, "tokens": [usage["input_tokens"], usage["output_tokens"]]}
        if answer.value is None:
            if not self._warned:
                self._warned = True
                logger.warning(
                    "planning without its model, whose answer cannot be used: %s (logged once)", answer.reason
                )
            look.record.missed += 1
            return PlannedQuestion(look.question, {**notes, "planner": answer.reason or "it refused"})
        plan = planned(answer.value, look.question, look.run)
        look.record.missed, look.record.known = 0, plan.question.known
        return PlannedQuestion(plan.question, {**notes, "planned_by": "model", **plan.notes})

    def _hints(self, look: _PlanLook, asked: PlannedQuestion, user_id: str | None) -> Planned:
        try:
            candidates = self._candidates(look, asked.question, user_id)
        except StorageError as error:
            self._failed(error)
            return Planned(look.record, _event(asked, [], f"the atoms could not be read ({type(error).__name__})"))
        made = _calls_made(look.state)
        hits, next_of_list = [], False
        for candidate in candidates:
            hit = refilled(candidate, made, asked.question.known)
            next_of_list = next_of_list or hit is not candidate
            hits.append(hit)
        hits = self._sourced(hits, look)
        reasons = self._reasons(hits, look, made)
        # A half-finished list is not done, and a planner's model has named the next goal.
        if not self._settings.plain and "thought" not in asked.notes and not next_of_list:
            done = self._done(look.state)
            if done is not None:
                event = _event(asked, hits, "the work is done, as past requests went", reasons)
                return Planned(look.record, event, (), (Line(done.line),), done.sure, look.run)
        return self._planned_hints(look, asked, hits, reasons)

    def _candidates(self, look: _PlanLook, question: AtomQuestion, user_id: str | None) -> list[AtomHit]:
        """Return the atoms that may be shown, and some more for the event; raise StorageError."""
        resolve: Resolve = by_name
        if look.specs is not None:
            resolve = look.tools.resolve
        settings = self._settings
        most = settings.k + HINT_RULES.more
        return self._method.find(question, user_id, k=most, beta=settings.beta, plain=settings.plain, resolve=resolve)

    def _sourced(self, hits: Sequence[AtomHit], look: _PlanLook) -> list[AtomHit]:
        core = self._method.core
        provenance = Provenance(core.graph, look.state, core.constants)
        specs = look.specs or core.catalogue.specs
        return [sourced(hit, provenance, specs) for hit in hits]

    def _planned_hints(
        self, look: _PlanLook, asked: PlannedQuestion, hits: Sequence[AtomHit], reasons: dict[str, str]
    ) -> Planned:
        """Return a line for each of the best hits without a reason not to show it, as many as fit."""
        room = 4 * self._settings.budget  # characters: tokens have about four
        shown: list[AtomHit] = []
        lines: list[Line] = []
        for hit in hits:
            if reasons[hit.atom.id]:
                continue
            line = Line(pattern(hit), hit.tool)
            # Also if it does not fit: the following hits are worse, and do not replace it.
            room -= len(line.text) + 1
            if len(shown) == self._settings.k:
                reasons[hit.atom.id] = "others fit better"
            elif room < 0:
                reasons[hit.atom.id] = "no room in the prompt"
            else:
                shown.append(hit)
                lines.append(line)
        why = ""
        if not hits:
            why = "no atom of an available tool was found"
        elif not shown:
            why = "no atom is worth showing"
        sure = max((hit.similarity for hit in shown), default=0.0)
        event = _event(asked, hits, why, reasons)
        return Planned(look.record, event, tuple(shown), tuple(lines), sure, look.run)

    def _reasons(self, hits: Sequence[AtomHit], look: _PlanLook, made: set[str]) -> dict[str, str]:
        """Return, by id of the atom, why a hint must not be shown, or ""."""
        enough = HINT_RULES.least_score
        for hit in hits:
            enough = max(enough, HINT_RULES.share_of_best * hit.score)
        return {hit.atom.id: self._why_not(hit, enough, look, made) for hit in hits}

    def _why_not(self, hit: AtomHit, enough: float, look: _PlanLook, made: set[str]) -> str:
        for step in look.state.since_user:
            if tool_of(step.tool) == hit.tool and step.review == "rejected":
                return "a person rejected it"
        if not self._settings.plain:
            # Models tend to follow any step that they are shown, so hints never propose a change.
            if not self._reads(hit.tool, look):
                return "it is not declared to only read"
            if hit.score < enough or self._is_about_something_else(hit, look):
                return "too unlike"
        if _call(hit.tool, hit.filled) in made:
            return "called already"
        return ""

    def _is_about_something_else(self, hit: AtomHit, look: _PlanLook) -> bool:
        """Return True if an atom for a run's first call has too few words of the request."""
        # Before the first call all runs are in the same state: without this rule any request got the first step of any
        # task.
        if look.state.since_user:
            return False
        # A custom embedder may find texts without a common word.
        if not self._method.core.vectors.embedder.builtin:
            return False
        return hit.to_goal < HINT_RULES.least_to_goal

    def _done(self, state: RunState) -> WorkDone | None:
        """Return a line for the model if most past requests like this one ended after the same calls."""
        # Recorded models answered in words in 84 to 95 of 100 such turns, and in 41 to 66 of 100 turns after any call.
        ended = self._method.core.ending(state)
        if ended is None:
            return None
        many = f"In {ended.ended} of {ended.past} past requests like this one"
        return WorkDone(f"{many} nothing more was called after these calls: the answer came.", ended.share)

    def _reads(self, tool: str, look: _PlanLook) -> bool:
        spec = self._method.core.catalogue.marked(look.specs).get(tool)
        return spec is not None and side_effects(spec) == "reads"

    def _tools(self, run: Run, specs: Mapping[str, ToolSpec] | None) -> _Tools:
        """Return the available tools and those called for the request; others would only blur their descriptions."""
        known = self._method.core.catalogue.specs
        available = dict(known)
        if specs is not None:
            available = dict(specs)
        with_called = dict(available)
        for event in run.current.events:
            if isinstance(event, Turn):
                for step in event.steps:
                    if step.tool in known:
                        with_called.setdefault(step.tool, known[step.tool])
        # Objects, not names: a tool with a changed schema is another object. The length separates the two sets.
        key = (len(available), *map(id, with_called.values()))
        with self._lock:
            tools = self._known_tools.get(key)
            if tools is None:
                tools = _read_tools(available, with_called)
                put_latest(self._known_tools, key, tools, HINT_RULES.max_tool_sets)
            return tools


def _read_tools(available: Mapping[str, ToolSpec], with_called: Mapping[str, ToolSpec]) -> _Tools:
    """Read the tools of a step; hints name available ones only."""
    read = Extractor(with_called)
    offered = read
    if len(available) < len(with_called):
        offered = Extractor(available)
    return _Tools(tuple(with_called.values()), read, Resolver(offered))


def _calls_made(state: RunState) -> set[str]:
    """Return the calls that were executed since the user spoke."""
    made = set()
    for step in state.since_user:
        if step.status in ("ok", "failed"):
            made.add(_call(tool_of(step.tool), step.args))
    return made


def tracked(run: Run, tools: Extractor, kept: Planning) -> Known:
    """Return K of a run: the knowledge of an earlier step, and the new messages.

    If the last read event is missing, all messages are read again: either they were trimmed, and the knowledge is kept;
    or the thread went back to an earlier point, and only the messages count.
    """
    new = 0
    for index in range(len(run.events) - 1, -1, -1):
        if _mark(run.events[index]) == kept.read:
            new = index + 1
            break
    known = Known()
    goes_on = new > 0 or run.scope != kept.begins
    if goes_on:
        known = kept.known.copy()
    for event in run.events[new:]:
        known.push(event, tools.slots)
    return known


def mark_of(run: Run) -> str:
    """Return the identity of the last event of a run with all of its content; "" without one."""
    if not run.events:
        return ""
    return _mark(run.events[-1])


def _mark(event: UserMessage | Turn) -> str:
    if isinstance(event, UserMessage):
        return digest("said", event.key, event.text)
    # With the status: a turn whose calls were answered since is read again.
    steps = [f"{step.key} {step.status}" for step in event.steps]
    return digest("turn", event.key, *steps)


def refilled(hit: AtomHit, made: set[str], known: Known) -> AtomHit:
    """Return a hint with another known value if the latest one would repeat a call: the next one of a list."""
    if _call(hit.tool, hit.filled) not in made:
        return hit
    slots = SLOT.findall(canon(dict(hit.atom.arguments)))
    for label in dict.fromkeys(slots):
        for value in known.values(label):
            # Adding a known value makes it the latest, and `filled` takes the latest.
            trial = known.copy()
            trial.add(label, value)
            other = replace(hit, filled=filled(hit.atom.arguments, trial))
            if _call(hit.tool, other.filled) not in made:
                return other
    return hit


def sourced(hit: AtomHit, provenance: Provenance, specs: Mapping[str, ToolSpec]) -> AtomHit:
    """Return a hint in which the parameter's slot replaces a literal of other runs that this run does not show."""
    properties: Mapping[str, Any] = {}
    if hit.tool in specs:
        properties = specs[hit.tool].properties
    filled_in = hit.filled or hit.atom.arguments
    given = dict(filled_in)
    for name, value in filled_in.items():
        is_literal = value == hit.atom.arguments.get(name) and not SLOT.search(canon(value))
        # A literal of other runs is a value of other users, unless it is declared or this run shows it.
        if is_literal and not provenance.may_use(hit.tool, name, value, properties.get(name)):
            given[name] = f"<{name.upper()}>"
    if given == filled_in:
        return hit
    return replace(hit, filled=given)


def _call(tool: str, args: Mapping[str, Any]) -> str:
    """Return a call as a text, equal if only the order of keys or the writing of numbers differ."""
    given = {}
    for name, value in args.items():
        # An argument of None is one that was left out.
        if value is not None:
            given[name] = canon(value)
    return canon([tool, given])


def pattern(hit: AtomHit) -> str:
    """Return one hint: the goal, and the call with known values filled in. One line of printable characters."""
    arguments = _members(hit.filled or hit.atom.arguments, "=")
    call = f"{_line(hit.tool)}({arguments})"
    longest_call, longest_goal = 400, 100
    if len(call) > longest_call:
        call = f"{call[: longest_call - 1]}…"
    goal = _line(hit.atom.goal).rstrip(".:;, ")
    if not goal:
        return f"- {call}"
    return f"- To {quoted(goal, longest_goal)}: {call}"


def _line(text: str) -> str:
    """Return a text on one line, with blanks for characters that are not printable."""
    if not text.isprintable():
        text = _with_hidden_as(text, _blank)
    return one_line(text)


def _value(value: Any) -> str:
    """Return a value as JSON; slots as they are."""
    if isinstance(value, Mapping):
        members = _members(value, ": ")
        return f"{{{members}}}"
    if isinstance(value, (list, tuple)):
        items = ", ".join([_value(item) for item in value])
        return f"[{items}]"
    if isinstance(value, str) and SLOT.fullmatch(value):
        return value
    # Values come from tools. A line break in one could look like the end of the hint and a new instruction.
    text = json.dumps(value, ensure_ascii=False, default=str)
    if not text.isprintable():
        text = _with_hidden_as(text, _escaped)
    # Known values (`Known.max_value`) are shown whole, with their quotes: a part of an address is not an address.
    longest = 210
    if len(text) <= longest:
        return text
    return f'{text[: longest - 1]}…"'


def _members(members: Mapping[str, Any], mark: str) -> str:
    """Return names and values on one line, with a mark between each name and its value."""
    written = []
    for name, value in members.items():
        written.append(f"{_line(str(name))}{mark}{_value(value)}")
    return ", ".join(written)


def _with_hidden_as(text: str, written: Callable[[str], str]) -> str:
    """Return a text in which characters that are not printable are written otherwise."""
    shown = []
    for char in text:
        # Joiners are parts of words in some scripts, and are kept.
        if char.isprintable() or char in "\u200c\u200d":
            shown.append(char)
        else:
            shown.append(written(char))
    return "".join(shown)


def _blank(_char: str) -> str:
    return " "


def _escaped(char: str) -> str:
    return json.dumps(char)[1:-1]


def _event(
    asked: PlannedQuestion, hits: Sequence[AtomHit], why: str, reasons: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the values of a stream event: the question, the found atoms, and why a hint is not shown."""
    why_not = reasons or {}
    shown = 0
    candidates = []
    for hit in hits:
        reason = why_not.get(hit.atom.id, "")
        if not why and not reason:
            shown += 1
        candidates.append(_candidate_event(hit, reason))
    return {
        "state": asked.question.state,
        "goals": list(asked.question.goals),
        "slots": sorted(asked.question.known.types),
        "shown": shown,
        "why": why,
        "candidates": candidates,
        **asked.notes,
    }


def _candidate_event(hit: AtomHit, why_not: str) -> dict[str, Any]:
    # Arguments as learned can be looked up by the atom's id.
    changed = {}
    for name, value in hit.filled.items():
        if value != hit.atom.arguments.get(name):
            changed[name] = value
    return {
        "atom": hit.atom.id,
        "tool": hit.tool,
        "learned_as": hit.atom.tool,
        "goal": hit.atom.goal,
        "score": round(hit.score, 4),
        "similarity": round(hit.similarity, 4),
        "feasibility": round(hit.feasibility, 4),
        "likeness": round(hit.likeness, 4),
        "filled": changed,
        "why_not": why_not,
    }
