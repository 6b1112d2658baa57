"""The tracker K of typed slots and their values in a run so far, without a model.

Values come from what the user said, from the arguments of calls and from the answers of tools; each is known under
one or more types (Λ). "order #W17" is an ID by its looks, and an ORDER_ID because the word stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from langgraph_toolmem.atoms.slots import Slots
from langgraph_toolmem.atoms.words import labelled
from langgraph_toolmem.base.errors import ConfigurationError, InputError
from langgraph_toolmem.runs.run import ExecutedCall, Turn, UserMessage
from langgraph_toolmem.runs.values import canon
from langgraph_toolmem.text.schema import is_table
from langgraph_toolmem.text.values import FILE, ID, NAME, NUMBER, PLAIN, TEXT, Value, kind_of, number_of, values_in

MAX_SLOTS: Final = 64
MAX_PER_SLOT: Final = 8
"""Values kept per type, the latest."""
MAX_VALUE: Final = 200
"""Characters of a value; longer ones are prose."""
MAX_LEAVES: Final = 200
"""Values read of one answer."""
MAX_ROWS: Final = 8
"""Elements read of a list."""
MAX_DEPTH: Final = 6

COMMON: Final = frozenset({TEXT, NUMBER, NAME, FILE, ID})
"""Types that a value has by its looks and that say little of what it is."""


class Known:
    """Typed slots with their values, in the order in which they came. A value, not shared: `push` changes it.

    Args:
        slots: types and values to begin with.
    """

    __slots__ = ("_slots", "_types")

    def __init__(self, slots: Mapping[str, Iterable[Any]] | None = None) -> None:
        self._slots: dict[str, dict[str, Any]] = {}
        self._types: dict[str, dict[str, None]] = {}
        for label, values in (slots or {}).items():
            for value in values:
                self.add(label, value)

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, label: object) -> bool:
        return label in self._slots

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Known) and self.to_plain() == other.to_plain()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Known({', '.join(self._slots)})"

    @property
    def types(self) -> frozenset[str]:
        """Λ: the types of which a value is known.

        ID is among them only if nothing more is known of one of the ids: an ORDER_ID is no USER_ID.
        """
        named = self._slots.keys() - COMMON
        loose = any(ID in labels and named.isdisjoint(labels) for labels in self._types.values())
        return frozenset(self._slots) if loose else frozenset(self._slots) - {ID}

    def values(self, label: str) -> list[Any]:
        """The values of a type, the oldest first."""
        return list(self._slots.get(label, {}).values())

    def latest(self, label: str) -> Any:
        """The latest value of a type; None if there is none."""
        found = self._slots.get(label)
        return None if not found else next(reversed(found.values()))

    def types_of(self, value: Any) -> tuple[str, ...]:
        """The types under which a value is known, in the order in which they were given."""
        return tuple(self._types.get(canon(value).lower(), ()))

    def texts(self) -> Mapping[str, str]:
        """The values that are texts, each with the type that says most about it."""
        found: dict[str, str] = {}
        for label, values in self._slots.items():
            for value in values.values():
                if isinstance(value, str) and (value not in found or found[value] in COMMON):
                    found[value] = label
        return found

    def add(self, label: str, value: Any) -> None:
        """One more value of a type; a known one becomes the latest. Empty and long values are passed over."""
        if not label or value is None or isinstance(value, (bool, dict, list)) or value == "":
            return
        text = canon(value)
        if len(text) > MAX_VALUE:
            return
        key = text.lower()
        values = self._slots.setdefault(label, {})
        values.pop(key, None)
        values[key] = value
        self._types.setdefault(key, {})[label] = None
        if len(values) > MAX_PER_SLOT:
            self._drop(label, next(iter(values)))
        if len(self._slots) > MAX_SLOTS:
            first = next(iter(self._slots))
            for each in list(self._slots[first]):
                self._drop(first, each)

    def _drop(self, label: str, key: str) -> None:
        del self._slots[label][key]
        self._types[key].pop(label, None)
        if not self._types[key]:
            del self._types[key]
        if not self._slots[label]:
            del self._slots[label]

    def push(self, event: UserMessage | Turn, slots: Slots) -> None:
        """Takes in what the user said or what a turn's calls were given and gave."""
        if isinstance(event, UserMessage):
            for label, value in said(event.text, slots):
                self.add(label, value)
            return
        for step in event.steps:
            if step.status == "ok":
                self.take(step, slots, told(step, slots))

    def take(self, step: ExecutedCall, slots: Slots, answered: Iterable[tuple[str, Any]]) -> None:
        """Takes in what a call was given, and the values of its answer (`told`)."""
        for label, value in (*given(step, slots), *answered):
            self.add(label, value)

    def copy(self) -> Known:
        """The same values, to be changed apart."""
        made = Known()
        made._slots = {label: dict(values) for label, values in self._slots.items()}
        made._types = {key: dict(labels) for key, labels in self._types.items()}
        return made

    def to_plain(self) -> dict[str, list[Any]]:
        """JSON values: type to values."""
        return {label: list(values.values()) for label, values in self._slots.items()}

    @classmethod
    def from_plain(cls, plain: Any) -> Known:
        """The inverse of `to_plain`.

        Raises:
            InputError: it is no mapping of types to lists.
        """
        if not isinstance(plain, Mapping) or not all(isinstance(values, list) for values in plain.values()):
            raise InputError("What is known is a dict of types to lists of values.")
        return cls(plain)


def said(text: str, slots: Slots) -> Iterator[tuple[str, Any]]:
    """Types and values in what the user said: by its looks, and by the words beside it."""
    for value in values_in(text):
        read = _number(value)
        yield value.kind, read
        if label := labelled(text, value, slots.labels):
            yield label, read


def given(step: ExecutedCall, slots: Slots) -> Iterator[tuple[str, Any]]:
    """Types and values of a call's arguments."""
    for path, value in leaves_of(step.args):
        parameter = slots.parameter(step.tool, path)
        if not parameter.text and not (isinstance(value, str) and value.lower() in parameter.choices):
            yield parameter.type_of(value), value


def told(step: ExecutedCall, slots: Slots) -> list[tuple[str, Any]]:
    """Types and values of a call's answer."""
    output = step.output
    if isinstance(output, str):
        return [(v.kind, v.text) for v in values_in(output[:1000]) if v.kind in PLAIN or v.kind == ID]
    leaves: list[tuple[str, Any]] = []
    _read_answer(output, "", 0, leaves)
    found: list[tuple[str, Any]] = []
    for path, value in leaves[:MAX_LEAVES]:
        found.append((slots.output(step.tool, path, value), value))
        if isinstance(value, str) and kind_of(value) == FILE:
            found.append((FILE, value))
    return found


def _read_answer(value: Any, path: str, depth: int, leaves: list[tuple[str, Any]]) -> None:
    """Adds the scalars of an answer with their paths; the keys of a table are ids of its rows."""
    if depth > MAX_DEPTH or len(leaves) >= MAX_LEAVES:
        return
    if isinstance(value, dict):
        table = bool(value) and is_table(value)
        for key, inner in islice(value.items(), MAX_ROWS if table else None):
            if table:
                leaves.append((f"{path}[].id", str(key)))
            _read_answer(inner, f"{path}[]" if table else f"{path}.{key}" if path else str(key), depth + 1, leaves)
    elif isinstance(value, (list, tuple)):
        for inner in value[:MAX_ROWS]:
            _read_answer(inner, f"{path}[]", depth + 1, leaves)
    else:
        leaves.append((path, value))


def leaves_of(args: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The scalars of arguments with their paths: ``city``, ``items[].id``."""
    if isinstance(args, Mapping):
        for name, value in args.items():
            yield from leaves_of(value, f"{path}.{name}" if path else str(name))
    elif isinstance(args, (list, tuple)):
        for value in args:
            yield from leaves_of(value, f"{path}[]")
    else:
        yield path, args


def _number(value: Value) -> Any:
    """A number as such; "#12", "007" and "30-minute" stay texts."""
    number = number_of(value.text) if value.kind == NUMBER and value.text[-1:].isdigit() else None
    told = number is None or value.text[:1] == "#" or (value.text[:1] == "0" and isinstance(number, int))
    return value.text if told else number


def several_texts(given: Any) -> list[str] | None:
    """Several texts; None if that is not what was given."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        return None
    texts = list(given)
    return texts if all(isinstance(each, str) for each in texts) else None


def known_given(slots: Any) -> Any:
    """Types, or what is known of them. Raises ConfigurationError if it is neither."""
    if isinstance(slots, Known):
        return slots
    if isinstance(slots, Mapping):
        return Known({label: each if isinstance(each, (list, tuple)) else [each] for label, each in slots.items()})
    names = several_texts(slots)
    if names is None:
        raise ConfigurationError("slots are names of types, or what is known of them by type.")
    return names
