"""Calls with the values of the day taken out, without a model.

A value becomes a slot where it came from the user or from an earlier answer, where only a system can know it, or where
it is written for the occasion. It stays as it is where it steers the call: truth values, choices from a list, numbers
such as limits, and what never varies from run to run. Secrets and persons' own data never stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from langgraph_toolmem.atoms.known import Known, leaves_of
from langgraph_toolmem.atoms.slots import MONEY, Parameter, Slots, alternatives, is_identifier, satisfied, words_of
from langgraph_toolmem.atoms.words import is_in, names_in
from langgraph_toolmem.runs.run import Run, Turn
from langgraph_toolmem.runs.values import canon
from langgraph_toolmem.text.values import EMAIL, KINDS, PLAIN, TEXT, kind_of

MAX_LITERAL: Final = 40
"""Characters of a value that stays as it is."""
ENOUGH: Final = 3
"""Runs in which a value has to be the only one, for it to be taken for one that never varies."""
FEW: Final = 6
"""Different values at most of a parameter whose values are a list of choices that nobody declared …"""
OFTEN: Final = 4
"""… each given in so many runs on average, at least."""
MAX_DEPTH: Final = 8


LARGE: Final = 1000
"""From this size on, and with digits behind the point, a number is a value of the day rather than a setting."""


@dataclass(frozen=True, slots=True)
class Masked:
    """A call without its values.

    Attributes:
        arguments: its arguments, a slot in place of each value.
        required: the types that had to be known for it, sorted.
        values: the texts that were taken out, with their types.
    """

    arguments: dict[str, Any]
    required: tuple[str, ...]
    values: dict[str, str] = field(repr=False)


class Habits:
    """Values that the parameters of tools were given in recorded runs.

    Attributes:
        names: words of mail addresses that may be persons' names, in lower case: who is written to in one run is named
            in the request of another.
    """

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self.names: set[str] = set()
        self._given: dict[tuple[str, str], dict[str, int]] = {}
        for run in runs:
            self.learn(run)

    def learn(self, run: Run) -> None:
        """Takes a run in; a value counts once a run."""
        seen: set[tuple[str, str, str]] = set()
        for event in run.events:
            for step in event.steps if isinstance(event, Turn) else ():
                if step.status == "ok":
                    seen |= {(step.tool, path, canon(value)) for path, value in leaves_of(step.args)}
        for tool, path, text in seen:
            if kind_of(text) == EMAIL:
                self.names.update(names_in(text))
            counts = self._given.setdefault((tool, path), {})
            if len(text) <= MAX_LITERAL:
                counts[text] = counts.get(text, 0) + 1
            else:
                counts[""] = counts.get("", 0) + 1  # prose: it varies

    def varies(self, tool: str, path: str) -> bool:
        """Return True if different values were given, as far as is known."""
        return len(self._given.get((tool, path), ())) > 1

    def constant(self, tool: str, path: str, value: Any) -> bool:
        """Return True if this value never varies, or is one of a few that come again and again."""
        counts = self._given.get((tool, path))
        text = canon(value)
        if not counts or text not in counts:
            return False
        if len(counts) == 1:
            return counts[text] >= ENOUGH
        return "" not in counts and len(counts) <= FEW and sum(counts.values()) >= OFTEN * len(counts)


def mask(
    tool: str,
    args: Mapping[str, Any],
    slots: Slots,
    known: Known,
    *,
    habits: Habits,
    text: str = "",
    answered: Collection[str] = (),
) -> Masked:
    """The arguments of a call with slots for values.

    Args:
        tool: name of the tool.
        args: of the call, JSON values.
        slots: types by the tools' schemas.
        known: what was known before the call.
        habits: what such calls were given before.
        text: what the user has said so far.
        answered: values that tools have answered with so far, as canonical texts in lower case.

    Returns:
        Arguments, and what had to be known: values that only a system knows (identifiers, and what came out of an
        answer), and those with a form of their own (mail addresses, dates …). The user's own words are always there.
    """
    masker = _Masker(tool, slots, known, habits, text.lower(), answered)
    arguments = {name: masker.value(inner, str(name), 0) for name, inner in args.items()}
    return Masked(arguments, tuple(sorted(masker.required)), masker.values)


class _Masker:
    def __init__(
        self, tool: str, slots: Slots, known: Known, habits: Habits, text: str, answered: Collection[str]
    ) -> None:
        self._tool, self._slots, self._known, self._habits, self._text = tool, slots, known, habits, text
        self._answered = answered
        self.required: set[str] = set()
        self.values: dict[str, str] = {}

    def value(self, value: Any, path: str, depth: int) -> Any:
        if depth > MAX_DEPTH:
            self.values |= {inner: TEXT for _, inner in leaves_of(value) if isinstance(inner, str)}
            return "<TEXT>"
        if isinstance(value, Mapping):
            return {name: self.value(inner, f"{path}.{name}", depth + 1) for name, inner in value.items()}
        if isinstance(value, (list, tuple)):
            inner = [self.value(each, f"{path}[]", depth + 1) for each in value]
            # Three ids are the same pattern as one, and so are three flights.
            return inner[:1] if inner and all(each == inner[0] and _has_slot(each) for each in inner) else inner
        return self._scalar(value, path)

    def _scalar(self, value: Any, path: str) -> Any:
        if value is None or isinstance(value, bool) or value == "":
            return value
        parameter = self._slots.parameter(self._tool, path)
        if self._literal(value, path, parameter):
            return value
        label = parameter.type_of(value)
        if types := self._known.types_of(value):
            answered = canon(value).lower() in self._answered
            by_chance = not isinstance(value, str) and canon(value) in _COMMON_NUMBERS
            if by_chance and not _SUMS.isdisjoint(words_of(label)):
                sums = tuple(each for each in types if not _SUMS.isdisjoint(words_of(each)))
                types, by_chance = sums or types, not sums
            if answered and not by_chance:
                label = _label(label, types)
            said = answered or is_in(canon(value).lower(), self._text)
            if said and (answered or label in PLAIN or is_identifier(label)) and satisfied([label], types):
                self.required.add(label)
        if isinstance(value, str):
            self.values[value] = label
        return f"<{label}>"

    def _literal(self, value: Any, path: str, parameter: Parameter) -> bool:
        if parameter.secret or parameter.identifier:
            return False
        if isinstance(value, str):
            if len(value) > MAX_LITERAL:
                return False
            if value.lower() in parameter.choices:
                return True
            if parameter.someone or kind_of(value) in KINDS:
                return False
            if not self._carried(value, parameter) and self._habits.constant(self._tool, path, value):
                return True
            word = " " not in value and value.isalpha() and value.islower()
            return word and not parameter.text and not self._came_from_somewhere(value)
        if parameter.control:
            return True
        if not self._carried(value, parameter) and self._habits.constant(self._tool, path, value):
            return True
        if (isinstance(value, float) and not value.is_integer()) or abs(value) >= LARGE:
            return False
        return not self._habits.varies(self._tool, path) and not self._came_from_somewhere(value)

    def _carried(self, value: Any, parameter: Parameter) -> bool:
        """Return True if an earlier answer gave it as what the parameter asks for: then it is of the day."""
        text = canon(value)
        if text.lower() not in self._answered or (not isinstance(value, str) and text in _COMMON_NUMBERS):
            return False
        return bool(satisfied([parameter.type_of(value)], self._known.types_of(value)))

    def _came_from_somewhere(self, value: Any) -> bool:
        return bool(self._known.types_of(value)) or is_in(canon(value).lower(), self._text)


_COMMON_NUMBERS: Final = frozenset(map(str, range(101)))
"""Numbers that are often the same by chance …"""
_SUMS: Final = MONEY | {"total", "sum", "charge", "due", "refund"}
"""… unless both are sums of money."""


def _label(own: str, types: tuple[str, ...]) -> str:
    """The type of a value of an answer: as its parameter is called, unless it was called something else there."""
    others = alternatives(own)
    specific = [each for each in types if each not in KINDS or each in PLAIN]
    if own in types or not specific or any(each in others for each in specific):
        return own
    return specific[0]


def _has_slot(value: Any) -> bool:
    return any(isinstance(each, str) and each[:1] == "<" and each[-1:] == ">" for _, each in leaves_of(value))
