"""From runs to atoms, without a model: where a run stands, what is open in its request, and its calls without values.

A *situation* is the state of a run in words that hold for other runs too (the types that are known, and what was done
since the user spoke, by the descriptions of the tools), and its sub-goals: the parts of the request that no call so far
was about, values replaced by their types. Atoms are stored under both and found by both.

In a call, a value becomes a slot, except what steers the call: truth values, declared choices, and values that never
vary. Secrets, identifiers and persons are always slots.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from langgraph_toolmem.atoms.atoms import Atom, leaves_of, make_atom, merge_all
from langgraph_toolmem.atoms.slots import COMMON, PERSONS, SLOT, Known, Parameter, Slots, answered, words_of
from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.runs.run import ExecutedCall, Run, Turn, UserMessage
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import canon
from langgraph_toolmem.text.embedders import LexicalEmbedder
from langgraph_toolmem.text.looks import KINDS, PLAIN
from langgraph_toolmem.text.meaning import ACTS
from langgraph_toolmem.text.requests import NEXT, SENTENCE_END, is_usual
from langgraph_toolmem.text.tools import Wording
from langgraph_toolmem.text.values import delexicalised, kind_of, values_in
from langgraph_toolmem.text.words import similarity, word_set

Habits: TypeAlias = Callable[[str, str], Mapping[str, tuple[float, int]]]
"""Values that a parameter (tool, path) was given, as canonical texts: how often, and in how many runs."""

MAX_DONE: Final = 3
"""Latest calls that the state names."""
MAX_ABOUT: Final = 100
"""Characters said of a call."""
MAX_KNOWN: Final = 4
MAX_GOALS: Final = 12
MAX_GOAL: Final = 300
"""Characters of a sub-goal."""
MAX_CHARS: Final = 6000
LEAST_FIT: Final = 0.1
"""Least similarity of a request's clause to a call that carries it out."""
SHORTEST: Final = 3
"""Characters of a value that tells which part of a request a call was about."""
EARLIER: Final = 100
"""Events of a thread before an episode whose values are known in it."""
MAX_LITERAL: Final = 40
"""Characters of a literal."""
ENOUGH: Final = 3
"""Runs in which a value has to be the only one, for it to be a literal."""
FEW, OFTEN = 6, 4
"""A parameter has choices that nobody declared if it has at most so many values, each given so often on average."""

_JOINED: Final = re.compile(rf"^(?:{NEXT})\b[, ]*", re.IGNORECASE)
_BREAK: Final = re.compile(
    rf"{SENTENCE_END}|(?:,|(?<!\s))\s+(?:{NEXT})\b[, ]*"
    r"|(?:[,;]|(?<!\s))\s+and\s+(?=(?:" + "|".join(sorted(ACTS)) + r")\b)",
    re.IGNORECASE,
)
_WORD: Final = re.compile(r"\w")
_MAILBOXES: Final = word_set(
    "info mail email support help sales contact admin office team service news newsletter billing hello noreply reply "
    "customer user test example order booking account marketing finance legal press job career security root webmaster"
)
sparse = cached(mebibytes=16)(LexicalEmbedder().sparse)


class StepSituation(NamedTuple):
    """A run before the next call.

    Attributes:
        state: in words, without values.
        goals: open parts of the request in order, without values; the whole request if no part is open.
        raw: the same parts as the user said them.
    """

    state: str
    goals: tuple[str, ...]
    raw: tuple[str, ...]


class Extracted(NamedTuple):
    """An atom and its step, with what a chat model has to know to word it.

    Attributes:
        atom: the atom, worded without a model.
        args: arguments of the call.
        request: what the user said last before it.
        known: types of the values that were known before it.
    """

    atom: Atom
    args: Mapping[str, Any]
    request: str = ""
    known: Sequence[str] = ()


class Extractor:
    """Reads runs over one set of tools.

    Args:
        specs: the tools, by name.
        habits: values of their parameters in other runs; without them only schema and run tell what is a literal.
    """

    def __init__(self, specs: Mapping[str, ToolSpec], *, habits: Habits = lambda *_: {}) -> None:
        self.specs, self.slots, self._habits = specs, Slots(specs), habits
        self._wording, self._abouts = Wording(), dict[str, str]()
        for spec in specs.values():
            self._wording.learn(spec)

    def about(self, tool: str) -> str:
        """Return the description of a tool without sentences that other tools share; "" if nothing is known."""
        if tool not in self._abouts:
            spec = self.specs.get(tool)
            text = "" if spec is None else self._wording.own_words(spec)
            self._abouts[tool] = text.removeprefix("Tool description:").strip()
        return self._abouts[tool]

    def does(self, tool: str) -> str:
        """Return the first sentence of `about`, cut."""
        first = self.about(tool).partition(". ")[0].rstrip(".")
        return first if len(first) <= MAX_ABOUT else first[:MAX_ABOUT].rpartition(" ")[0]

    def situation(self, state: RunState, known: Known, hidden: Mapping[str, str] | None = None) -> StepSituation:
        """Return where a run stands before its next turn; `hidden` are further values that no text may tell."""
        raw = open_parts(state)
        types = {text: label for text, label in known.texts().items() if len(text) >= SHORTEST}
        for mail in known.values("EMAIL"):
            types = dict.fromkeys(names_in(str(mail)), "NAME") | types
        types = {**(hidden or {}), **types}
        goals = tuple(delexicalised(part, types)[:MAX_GOAL] for part in raw)
        telling = [label for label in known.to_plain() if label not in KINDS or label == "EMAIL"]
        knows = (
            ", ".join(label.lower().replace("_", " ") for label in telling[-MAX_KNOWN:]) or "only what the user said"
        )
        done = [
            self.does(step.tool) if step.status == "ok" else f"{step.status}: {self.does(step.tool)}"
            for step in state.since_user[-MAX_DONE:]
        ]
        return StepSituation(f"known: {knows}. done: {'; '.join(filter(None, done)) or 'nothing yet'}", goals, raw)

    def before(self, run: Run) -> tuple[StepSituation, Known]:
        """Return where a run stands now, and K: the question that finds atoms for its next call."""
        state, known = RunState(cut=run.truncated), Known()
        for event in run.events:
            state.push(event)
            known.push(event, self.slots)
        return self.situation(state, known), known

    def steps(self, run: Run, *, value: float = 1.0) -> list[Extracted]:
        """Return the atoms of a run with this reward, one per successful step, in order, not merged."""
        earlier = run.earlier[-EARLIER:]
        masks, hidden, knew = self._masked(run.events, earlier)
        found: list[Extracted] = []
        state, asked = RunState(cut=run.truncated), ""
        for event in earlier:
            state.push(event)
        for event in run.events:
            if isinstance(event, UserMessage):
                asked = event.text
            elif event.steps:
                known = knew[id(event)]
                where, types = self.situation(state, known, hidden), tuple(sorted(known.types))
                for step in event.steps:
                    if step.status == "ok":
                        arguments, required = masks[id(step)]
                        atom = make_atom(
                            state=where.state,
                            goal=goal_of(step, where, self.does(step.tool)),
                            tool=step.tool,
                            arguments=arguments,
                            required_slots=required,
                            about=self.about(step.tool),
                            value=value,
                        )
                        found.append(Extracted(atom, step.args, asked, types))
            state.push(event)
        return found

    def _masked(
        self, events: Sequence[UserMessage | Turn], earlier: Sequence[UserMessage | Turn]
    ) -> tuple[dict[int, tuple[dict[str, Any], set[str]]], dict[str, str], dict[int, Known]]:
        """Return each call without its values, by `id` of the step; values that no atom may tell; K, by `id` of a turn.

        Of the `earlier` events only the values count. A request names what only later calls use, so all calls are read
        before the first sub-goal is worded.
        """
        masks: dict[int, tuple[dict[str, Any], set[str]]] = {}
        hidden: dict[str, str] = {}
        known, knew = Known(), dict[int, Known]()
        for number, event in enumerate((*earlier, *events), -len(earlier)):
            if isinstance(event, UserMessage):
                known.push(event, self.slots)
                continue
            if number >= 0:
                knew[id(event)] = known.copy()
                for step in event.steps:
                    masker = Masker(step.tool, self.slots, known, self._habits)
                    arguments = {name: masker.value(inner, str(name)) for name, inner in step.args.items()}
                    masks[id(step)] = arguments, masker.required
                    hidden |= masker.values
            for step in event.steps:
                if step.status == "ok":
                    answer = answered(step)
                    known.take(step, self.slots, answer)
                    for label, value in answer:
                        if isinstance(value, str) and (label == "EMAIL" or not PERSONS.isdisjoint(words_of(label))):
                            hidden.setdefault(value, label)
        for name in (name for value in list(hidden) if "@" in value for name in names_in(value)):
            hidden.setdefault(name, "NAME")
        return masks, {text: label for text, label in hidden.items() if len(text) >= SHORTEST}, knew


class Masker:
    """The arguments of one call with slots for values.

    Attributes:
        required: types that had to be known, as K names them.
        values: texts that were taken out, with their types.
    """

    def __init__(self, tool: str, slots: Slots, known: Known, habits: Habits = lambda *_: {}) -> None:
        self._tool, self._slots, self._known, self._habits = tool, slots, known, habits
        self.required: set[str] = set()
        self.values: dict[str, str] = {}

    def value(self, value: Any, path: str) -> Any:
        """Return a value of an argument, masked."""
        if isinstance(value, Mapping):
            return {name: self.value(inner, f"{path}.{name}") for name, inner in value.items()}
        if isinstance(value, (list, tuple)):
            inner = [self.value(each, f"{path}[]") for each in value]
            # Three ids are the same pattern as one, and so are three flights.
            return inner[:1] if inner and all(each == inner[0] and _has_slot(each) for each in inner) else inner
        return self._scalar(value, path)

    def _scalar(self, value: Any, path: str) -> Any:
        if value is None or isinstance(value, bool) or value == "":
            return value
        parameter = self._slots.parameter(self._tool, path)
        if self._is_literal(value, path, parameter):
            return value
        label, types = parameter.type_of(value), self._known.types_of(value)
        if types:
            telling = [each for each in types if each not in KINDS or each in PLAIN]
            if label not in types and telling:
                label = telling[0]
            if label in types or types[0] not in COMMON - {"ID"}:
                self.required.add(label if label in types else types[0])
        if isinstance(value, str):
            self.values[value] = label
        return f"<{label}>"

    def _is_literal(self, value: Any, path: str, parameter: Parameter) -> bool:
        if isinstance(value, str):
            if value.lower() in parameter.choices and not parameter.hidden:
                return True
            if parameter.person or len(value) > MAX_LITERAL or kind_of(value) in KINDS:
                return False
        return not parameter.hidden and is_constant(self._habits(self._tool, path), value)


def is_constant(given: Mapping[str, tuple[float, int]], value: Any) -> bool:
    """Return True if a value never varies, or is one of a few that come again and again."""
    mine = given.get(canon(value))
    if mine is None or len(given) > FEW:
        return False
    if len(given) == 1:
        return mine[1] >= ENOUGH
    return sum(often for often, _ in given.values()) >= OFTEN * len(given)


def habits_of(runs: Iterable[Run]) -> Habits:
    """Return the values of all parameters in some runs; a value counts once a run."""
    counts: dict[tuple[str, str], dict[str, tuple[float, int]]] = {}
    for run in runs:
        turns = (event for event in run.events if isinstance(event, Turn))
        steps = [step for turn in turns for step in turn.steps if step.status == "ok"]
        for tool, path, text in {(s.tool, path, canon(value)) for s in steps for path, value in leaves_of(s.args)}:
            given = counts.setdefault((tool, path), {})
            often, times = given.get(text, (0.0, 0))
            given[text] = often + 1, times + 1
    return lambda tool, path: counts.get((tool, path), {})


def distil(runs: Iterable[Run], specs: Mapping[str, ToolSpec]) -> list[Atom]:
    """Return the merged atoms of runs that went well; what never varies among them is a literal."""
    given = list(runs)
    extractor = Extractor(specs, habits=habits_of(given))
    return merge_all(each.atom for run in given for each in extractor.steps(run))


def parts_of(text: str) -> tuple[str, ...]:
    """Return a request in parts that may be sub-goals: sentences, and what "and" or "then" joins to them.

    Values are not taken apart.

    >>> parts_of("Cancel order #W17 and mail me the receipt. If it is late, then tell Ann and Bob.")
    ('Cancel order #W17', 'mail me the receipt', 'If it is late', 'tell Ann and Bob')
    """
    text = text[:MAX_CHARS]
    values = values_in(text)
    pieces: list[str] = []
    begin = 0
    for match in _BREAK.finditer(text):
        if not any(value.start <= match.start() and match.end() <= value.end for value in values):
            pieces.append(text[begin : match.start()])
            begin = match.end()
    found = (_JOINED.sub("", part.strip(" ,.;:")) for part in (*pieces, text[begin:]))
    return tuple(dict.fromkeys(part for part in found if _WORD.search(part)))[:MAX_GOALS]


def open_parts(state: RunState) -> tuple[str, ...]:
    """Return the parts of the latest request of which a value was not used yet, or that name none; all, if none is
    left."""
    parts = parts_of(state.user.raw)
    used = {
        text.lower()
        for step in state.since_user
        if step.status == "ok"
        for _, value in leaves_of(step.args)
        if not isinstance(value, bool) and value is not None and len(text := canon(value)) >= SHORTEST
    }
    return tuple(part for part in parts if not _is_used(part, used)) or parts


def _is_used(part: str, used: Collection[str]) -> bool:
    low = part.lower()
    if not any(value in low for value in used):
        return False
    named = [
        value.text.lower() for value in values_in(part) if value.kind == "ID" or value.kind in PLAIN - {"DATE", "TIME"}
    ]
    return all(any(text in value or value in text for value in used) for text in named)


def goal_of(step: ExecutedCall, where: StepSituation, does: str) -> str:
    """Return the sub-goal of a call: the part of the request that has most of its values, then most of its tool's
    words; all that was open, if no part fits."""
    texts = {canon(value).lower() for _, value in leaves_of(step.args) if isinstance(value, (str, int, float))}
    values = [text for text in texts if len(text) >= SHORTEST]
    fits = [sum(v in part.lower() for v in values) + similarity(sparse(does), sparse(part)) for part in where.raw]
    best = max(fits, default=0.0)
    return where.goals[fits.index(best)] if best >= LEAST_FIT else " ".join(where.goals)


def names_in(mail: str) -> list[str]:
    """Return the words of a mail address that may be a person's names.

    >>> names_in("ann.lee2@x.org"), names_in("info@x.org")
    (['ann', 'lee'], [])
    """
    found = re.findall(r"[^\W\d_]{3,}", mail.partition("@")[0].lower())
    return [word for word in found if word not in _MAILBOXES and not is_usual(word)]


def _has_slot(value: Any) -> bool:
    return any(isinstance(each, str) and SLOT.fullmatch(each) for _, each in leaves_of(value))
