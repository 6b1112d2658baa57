"""From runs to atoms, without a model: the state of a run, the open parts of its request, and its calls without
values.

A *situation* is the state of a run in words that apply to other runs too (the known types, and the work since the user
spoke, by the descriptions of the tools), and its sub-goals: the parts of the request without a call so far, values
replaced by their types. Atoms are stored under both and found by both.

In a call, a value becomes a slot, except values that steer the call: truth values, declared choices, and values that
never vary. Secrets, identifiers and persons are always slots.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

from langgraph_toolmem.atoms.atoms import Atom, make_atom, merge_all, placed_scalars, scalars_of
from langgraph_toolmem.atoms.slots import COMMON, PERSONS, SLOT, Known, Parameter, Slots, answered, words_of
from langgraph_toolmem.base.caches import cached
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.runs.run import ExecutedCall, Run, Turn, UserMessage
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import canon
from langgraph_toolmem.text.embedders import LexicalEmbedder
from langgraph_toolmem.text.values import KINDS, PLAIN, TextValue, delexicalised, kind_of, values_in
from langgraph_toolmem.text.wording import NEXT, SENTENCE_END, Wording, is_usual
from langgraph_toolmem.text.words import LEXICON, similarity, word_set


class GivenValue(NamedTuple):
    """Times that a parameter was given a value, and the number of runs."""

    times: float
    runs: int


Habits: TypeAlias = Callable[[str, str], Mapping[str, GivenValue]]
"""Values that a parameter (tool, path) was given, as canonical texts."""

MOST_CHOICES: Final = 6
"""Different values of a parameter up to which they count as its choices, even if the schema does not list them."""
SHORTEST: Final = 3
"""Least characters of a value that identifies the part of a request that a call was about."""

# A search compares each question with the texts of up to 256 atoms, mostly those of the search before.
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
    """An atom and its step, with the facts that a chat model needs to word it.

    Attributes:
        atom: the atom, worded without a model.
        args: arguments of the call.
        request: the latest user message before it.
        known: types of the values that were known before it.
    """

    atom: Atom
    args: Mapping[str, Any]
    request: str = ""
    known: Sequence[str] = ()


class CallPattern(NamedTuple):
    """A call without its values, and the types that had to be known for it."""

    arguments: dict[str, Any]
    required: set[str]


@dataclass(slots=True)
class MaskedRun:
    """The calls of a run without their values.

    Attributes:
        patterns: by `id` of the step.
        hidden: values that must not be in an atom, with their types.
        known: K before a turn, by `id` of the turn.
    """

    # By identity: two equal calls of a run have different known values before them.
    patterns: dict[int, CallPattern] = field(default_factory=dict)
    hidden: dict[str, str] = field(default_factory=dict)
    known: dict[int, Known] = field(default_factory=dict)

    def hide_persons(self, answer: Iterable[tuple[str, Any]]) -> None:
        """Hide the persons in an answer."""
        for label, value in answer:
            if isinstance(value, str) and (label == "EMAIL" or not PERSONS.isdisjoint(words_of(label))):
                self.hidden.setdefault(value, label)

    def hide_names_in_addresses(self) -> None:
        """Hide the names in mail addresses: a request says "tell lena" of lena@x.org."""
        for value in list(self.hidden):
            if "@" in value:
                for name in names_in(value):
                    self.hidden.setdefault(name, "NAME")

    def telling(self) -> dict[str, str]:
        """Return the hidden values that are long enough to identify a person."""
        telling = {}
        for text, label in self.hidden.items():
            if len(text) >= SHORTEST:
                telling[text] = label
        return telling


def no_habits(_tool: str, _path: str) -> Mapping[str, GivenValue]:
    """Return an empty record: the parameter's values in other runs are unknown."""
    return {}


class Extractor:
    """Reads runs over one set of tools.

    Args:
        specs: the tools, by name.
        habits: values of their parameters in other runs; without them literals are recognised only by schema and run.
    """

    def __init__(self, specs: Mapping[str, ToolSpec], *, habits: Habits = no_habits) -> None:
        self.specs, self.slots, self._habits = specs, Slots(specs), habits
        self._wording, self._abouts = Wording(), dict[str, str]()
        for spec in specs.values():
            self._wording.learn(spec)

    def about(self, tool: str) -> str:
        """Return the description of a tool without sentences that other tools share; "" if it is unknown."""
        if tool not in self._abouts:
            text = ""
            if tool in self.specs:
                text = self._wording.own_words(self.specs[tool])
            # Descriptions of BFCL's tools begin with these words, which are not specific.
            self._abouts[tool] = text.removeprefix("Tool description:").strip()
        return self._abouts[tool]

    def does(self, tool: str) -> str:
        """Return the first sentence of `about`, cut."""
        most_chars = 100
        first = self.about(tool).partition(". ")[0].rstrip(".")
        if len(first) <= most_chars:
            return first
        return first[:most_chars].rpartition(" ")[0]

    def situation(self, state: RunState, known: Known, hidden: Mapping[str, str] | None = None) -> StepSituation:
        """Return the situation of a run before its next turn; `hidden` are further values that must not be in a
        text.
        """
        raw = open_parts(state)
        types = dict(hidden or {})
        # Without such rules, sub-goals kept names, handles or pieces of mails in 42 % of the steps of one log; now 7 %.
        for mail in known.values("EMAIL"):
            for name in names_in(str(mail)):
                types[name] = "NAME"
        # Types of known values come last: they are more specific than NAME.
        for text, label in known.texts().items():
            if len(text) >= SHORTEST:
                types[text] = label
        most_chars = 300
        # Values in place of types cost 3.0 points of hit@3, and an atom would contain a user's words.
        goals = tuple([delexicalised(part, types)[:most_chars] for part in raw])
        return StepSituation(f"known: {_known_in_words(known)}. done: {self._done_in_words(state)}", goals, raw)

    def _done_in_words(self, state: RunState) -> str:
        done = []
        for step in state.since_user[-3:]:
            does = self.does(step.tool)
            if step.status != "ok":
                done.append(f"{step.status}: {does}")
            elif does:
                done.append(does)
        return "; ".join(done) or "nothing yet"

    def before(self, run: Run) -> tuple[StepSituation, Known]:
        """Return the situation of a run now, and K: the question that finds atoms for its next call."""
        state, known = RunState(cut=run.truncated), Known()
        for event in run.events:
            state.push(event)
            known.push(event, self.slots)
        return self.situation(state, known), known

    def steps(self, run: Run, *, value: float = 1.0) -> list[Extracted]:
        """Return the atoms of a run with this reward, one per successful step, in order, not merged."""
        earlier = run.earlier[-100:]  # in a long thread only the latest values are still relevant
        masked = self._masked(run.events, earlier)
        hidden = masked.telling()
        steps: list[Extracted] = []
        state, asked = RunState(cut=run.truncated), ""
        for event in earlier:
            state.push(event)
        for event in run.events:
            if isinstance(event, UserMessage):
                asked = event.text
            elif event.steps:
                known = masked.known[id(event)]
                where, types = self.situation(state, known, hidden), tuple(sorted(known.types))
                for step in event.steps:
                    if step.status == "ok":
                        atom = self._atom(step, where, masked.patterns[id(step)], value)
                        steps.append(Extracted(atom, step.args, asked, types))
            # Pushed last: the calls of one turn were chosen in the same state.
            state.push(event)
        return steps

    def _atom(self, step: ExecutedCall, where: StepSituation, pattern: CallPattern, value: float) -> Atom:
        return make_atom(
            state=where.state,
            goal=goal_of(step, where, self.does(step.tool)),
            tool=step.tool,
            arguments=pattern.arguments,
            required_slots=pattern.required,
            about=self.about(step.tool),
            value=value,
        )

    def _masked(self, events: Sequence[UserMessage | Turn], earlier: Sequence[UserMessage | Turn]) -> MaskedRun:
        """Return the calls of events without their values.

        Of the `earlier` events only the values count. A request names values that only later calls use, so all calls
        are read before the first sub-goal is worded.
        """
        masked, known = MaskedRun(), Known()
        for number, event in enumerate((*earlier, *events)):
            if isinstance(event, UserMessage):
                known.push(event, self.slots)
                continue
            if number >= len(earlier):
                self._mask(event, known, masked)
            for step in event.steps:
                if step.status == "ok":
                    # Read once for both: `Known.push` would read the answer again.
                    answer = answered(step)
                    known.take(step, self.slots, answer)
                    masked.hide_persons(answer)
        masked.hide_names_in_addresses()
        return masked

    def _mask(self, turn: Turn, known: Known, masked: MaskedRun) -> None:
        masked.known[id(turn)] = known.copy()
        for step in turn.steps:
            masker = Masker(step.tool, self.slots, known, self._habits)
            masked.patterns[id(step)] = CallPattern(masker.arguments(step.args), masker.required)
            masked.hidden |= masker.values


def _known_in_words(known: Known) -> str:
    """Return the latest types that are more specific than the form of a value."""
    telling = []
    for label in known.to_plain():
        if label not in KINDS or label == "EMAIL":
            telling.append(label.lower().replace("_", " "))
    most_types = 4  # chosen on recorded runs: with more types, states of one kind differ
    return ", ".join(telling[-most_types:]) or "only what the user said"


class Masker:
    """The arguments of one call with slots for values.

    Attributes:
        required: types that had to be known, as K names them.
        values: texts that were taken out, with their types.
    """

    def __init__(self, tool: str, slots: Slots, known: Known, habits: Habits = no_habits) -> None:
        self._tool, self._slots, self._known, self._habits = tool, slots, known, habits
        self.required: set[str] = set()
        self.values: dict[str, str] = {}

    def arguments(self, args: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
        """Return arguments, or the members of an object, masked; their paths begin with `prefix`."""
        masked = {}
        for name, value in args.items():
            masked[name] = self.value(value, f"{prefix}{name}")
        return masked

    def value(self, value: Any, path: str) -> Any:
        """Return a value of an argument, masked."""
        if isinstance(value, Mapping):
            return self.arguments(value, f"{path}.")
        if isinstance(value, (list, tuple)):
            items = [self.value(item, f"{path}[]") for item in value]
            # Three ids are the same pattern as one, and so are three flights.
            if items and items.count(items[0]) == len(items) and _has_slot(items[0]):
                return items[:1]
            return items
        return self._scalar(value, path)

    def _scalar(self, value: Any, path: str) -> Any:
        # Truth values and empty values are not personal, and steer the call.
        if value is None or isinstance(value, bool) or value == "":
            return value
        parameter = self._slots.parameter(self._tool, path)
        if self._is_literal(value, path, parameter):
            return value
        label = parameter.type_of(value)
        # A value without a source is a slot too, but it is not a required one.
        known_as = self._known.types_of(value)
        if known_as:
            label = self._known_label(label, known_as)
        if isinstance(value, str):
            self.values[value] = label
        return f"<{label}>"

    def _known_label(self, label: str, known_as: Sequence[str]) -> str:
        """Return the type of a known value, and record it as required."""
        # K's name for a value fills the slot in another run; the parameter's own name may not.
        if label not in known_as:
            for known_label in known_as:
                if known_label not in KINDS or known_label in PLAIN:
                    label = known_label
                    break
        if label in known_as:
            self.required.add(label)
        # Every run knows some text or number: requiring one would not be specific.
        elif known_as[0] not in COMMON - {"ID"}:
            self.required.add(known_as[0])
        return label

    def _is_literal(self, value: Any, path: str, parameter: Parameter) -> bool:
        if parameter.hidden:
            return False
        if isinstance(value, str):
            if value.lower() in parameter.choices:
                return True
            longest = 40  # characters; a longer text is written by a person
            if parameter.person or len(value) > longest or kind_of(value) in KINDS:
                return False
        # Without these literals, 3.6 points fewer arguments of hints were right on multi-turn calls (bfcl).
        return is_constant(self._habits(self._tool, path), value)


def is_constant(given: Mapping[str, GivenValue], value: Any) -> bool:
    """Return True if a value never varies, or is one of a few that come again and again.

    A single value of a parameter has to come from 3 runs; several have to be given 4 times each on average.
    """
    mine = given.get(canon(value))
    if mine is None or len(given) > MOST_CHOICES:
        return False
    # One thread may repeat a person's value many times, so runs count here, not calls.
    if len(given) == 1:
        return mine.runs >= 3
    # Without literals that are one of a few values, 3.7 points fewer arguments of hints were right.
    times = 0.0
    for choice in given.values():
        times += choice.times
    return times >= 4 * len(given)


def habits_of(runs: Iterable[Run]) -> Habits:
    """Return the values of all parameters in some runs; a value counts once a run."""
    counts: dict[tuple[str, str], dict[str, GivenValue]] = {}
    for run in runs:
        for tool, path, text in _values_given(run):
            given = counts.setdefault((tool, path), {})
            before = given.get(text, GivenValue(0.0, 0))
            given[text] = GivenValue(before.times + 1, before.runs + 1)

    def habits(tool: str, path: str) -> Mapping[str, GivenValue]:
        return counts.get((tool, path), {})

    return habits


def _values_given(run: Run) -> set[tuple[str, str, str]]:
    """Return tool, path and canonical text of each argument of a run's successful calls."""
    values = set()
    for event in run.events:
        if not isinstance(event, Turn):
            continue
        for step in event.steps:
            if step.status == "ok":
                for path, value in placed_scalars(step.args):
                    values.add((step.tool, path, canon(value)))
    return values


def distil(runs: Iterable[Run], specs: Mapping[str, ToolSpec]) -> list[Atom]:
    """Return the merged atoms of good runs; values that never vary among them are literals."""
    given = list(runs)
    extractor = Extractor(specs, habits=habits_of(given))
    atoms: list[Atom] = []
    for run in given:
        for step in extractor.steps(run):
            atoms.append(step.atom)
    return merge_all(atoms)


# --- the parts of a request ---


@cache
def _breaks() -> re.Pattern[str]:
    """Return the positions at which a request is split: at the end of a sentence, before "then", and before "and" with
    a verb.
    """
    # "and" splits a request only before a verb: "tell Ann and Bob" is one goal.
    verbs = "|".join(sorted(LEXICON.acts))
    return re.compile(
        rf"{SENTENCE_END}|(?:,|(?<!\s))\s+(?:{NEXT})\b[, ]*"
        rf"|(?:[,;]|(?<!\s))\s+and\s+(?=(?:{verbs})\b)",
        re.IGNORECASE,
    )


def parts_of(text: str) -> tuple[str, ...]:
    """Return a request in parts that may be sub-goals: sentences, and parts joined by "and" or "then".

    Values are not split.

    >>> parts_of("Cancel order #W17 and mail me the receipt. If it is late, then tell Ann and Bob.")
    ('Cancel order #W17', 'mail me the receipt', 'If it is late', 'tell Ann and Bob')
    """
    # Each part is a question to the index at every step: a pasted document must not become a hundred of them.
    most_chars, most_parts = 6_000, 12
    text = text[:most_chars]
    values = values_in(text)
    pieces: list[str] = []
    begin = 0
    for match in _breaks().finditer(text):
        if not _in_value(match, values):
            pieces.append(text[begin : match.start()])
            begin = match.end()
    pieces.append(text[begin:])
    # A dict: equal parts are one goal, and the order of the request is the likely order of the work.
    parts: dict[str, None] = {}
    for piece in pieces:
        part = re.sub(rf"^(?:{NEXT})\b[, ]*", "", piece.strip(" ,.;:"), flags=re.IGNORECASE)
        if re.search(r"\w", part):
            parts[part] = None
    return tuple(parts)[:most_parts]


def _in_value(match: re.Match[str], values: Iterable[TextValue]) -> bool:
    """Return True if a break is inside a value, such as the "and" of a quoted title."""
    return any(value.start <= match.start() and match.end() <= value.end for value in values)


def open_parts(state: RunState) -> tuple[str, ...]:
    """Return the parts of the latest request with an unused value or without a value; all parts, if none is left."""
    # Measured on turns of recorded runs (hit@3): requests not split -3.2 points, every part left open -3.0.
    parts = parts_of(state.user.raw)
    used: set[str] = set()
    for step in state.since_user:
        if step.status != "ok":
            continue
        for value in scalars_of(step.args):
            text = canon(value)
            # "true" or "null" in a request is a word, and a short value occurs in other words.
            if value is not None and not isinstance(value, bool) and len(text) >= SHORTEST:
                used.add(text.lower())
    left = [part for part in parts if not _is_used(part, used)]
    return tuple(left) or parts


def _is_used(part: str, used: Collection[str]) -> bool:
    """Return True if a part names a value that was used, and no identifying value that was not."""
    low = part.lower()
    if not any(value in low for value in used):
        return False
    for value in values_in(part):
        # One date or time serves several parts of a request, so it does not show which part is open.
        identifies = value.kind == "ID" or value.kind in PLAIN - {"DATE", "TIME"}
        if identifies and not _is_among(value.text.lower(), used):
            return False
    return True


def _is_among(text: str, used: Iterable[str]) -> bool:
    """Return True if a value was used, whole or as a part: "#W17" is also written as "W17"."""
    return any(text in other or other in text for other in used)


def goal_of(step: ExecutedCall, where: StepSituation, does: str) -> str:
    """Return the sub-goal of a call: the part of the request with most of its values, then with most of its tool's
    words; all open parts, if none fits.
    """
    # Measured on turns of recorded runs (hit@3): one goal for all calls of a request -2.5 points.
    values = _identifying(step.args)
    best_fit, best_goal = 0.0, ""
    for part, goal in zip(where.raw, where.goals, strict=True):
        low = part.lower()
        named = 0
        for text in values:
            named += text in low
        # The similarity of words is at most 1: it decides between parts with equally many values.
        fit = named + similarity(sparse(does), sparse(part))
        if fit > best_fit:
            best_fit, best_goal = fit, goal
    # Without a least fit, and without the words between a name and its value (`slots`), hit@3 falls by .8 on bfcl.
    least_fit = 0.1
    if best_fit >= least_fit:
        return best_goal
    return " ".join(where.goals)


def _identifying(args: Mapping[str, Any]) -> set[str]:
    """Return the values of arguments, in lower case, that are long enough to identify a part of a request."""
    values: set[str] = set()
    for value in scalars_of(args):
        if isinstance(value, (str, int, float)):
            text = canon(value).lower()
            if len(text) >= SHORTEST:
                values.add(text)
    return values


def names_in(mail: str) -> list[str]:
    """Return the words of a mail address that may be a person's names.

    >>> names_in("ann.lee2@x.org"), names_in("info@x.org")
    (['ann', 'lee'], [])
    """
    names = []
    for word in re.findall(r"[^\W\d_]{3,}", mail.partition("@")[0].lower()):
        if word not in _mailboxes() and not is_usual(word):
            names.append(word)
    return names


@cache
def _mailboxes() -> frozenset[str]:
    """Return words of addresses of a team or a program."""
    return word_set(
        "info mail email support help sales contact admin office team service news newsletter billing hello noreply "
        "reply customer user test example order booking account marketing finance legal press job career security "
        "root webmaster"
    )


def _has_slot(value: Any) -> bool:
    for scalar in scalars_of(value):
        if isinstance(scalar, str) and SLOT.fullmatch(scalar):
            return True
    return False
