"""Typed slots: the types of values, and the tracker K of a run's known values.

The type of a parameter or of a part of an answer is its meaning (`text.meaning`): ``order_id``, or ``id`` in
``orders[]``, is an ORDER_ID. If the form of a value is certain (EMAIL, DATE, URL ...), that is its type in any
parameter. In a user's words, "order #W17" is an ID by its form and an ORDER_ID by the word before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import islice
from types import MappingProxyType
from typing import Any, ClassVar, Final

from langgraph_toolmem.atoms.atoms import placed_scalars
from langgraph_toolmem.base.caches import cached, drop_oldest
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.runs.run import ExecutedCall, Turn, UserMessage
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import canon
from langgraph_toolmem.text.embedders import clean
from langgraph_toolmem.text.meaning import Meaning, canonical, canonical_words, inputs_of, meaning_of
from langgraph_toolmem.text.schema import Leaf, is_table
from langgraph_toolmem.text.values import KINDS, PLAIN, TextValue, kind_of, values_in
from langgraph_toolmem.text.wording import SENTENCE_END
from langgraph_toolmem.text.words import LEXICON, word_set, words

COMMON: Final = frozenset({"TEXT", "NUMBER", "NAME", "FILE", "ID"})
"""Generic types that a value has by its form."""
PERSONS: Final = LEXICON.personal | word_set(
    "person user username customer client employee colleague friend contact recipient sender author owner assignee "
    "participant attendee guest passenger patient member cardholder mention receiver"
)
"""Words of parameters whose values are persons."""
HIDDEN: Final = LEXICON.secrets | {"token", "accesstoken", "authorization"}
"""Words of types whose values are never kept."""
SLOT: Final = re.compile(r"<([A-Z][A-Z0-9_]*)>")
"""A type in angle brackets, in place of a value."""


def label_of(meaning: Meaning, path: str = "") -> str:
    """Return the type with this meaning, its words in the order of the name at the end of the path.

    >>> label_of(meaning_of(Leaf("payment_method_id"), ""), "payment_method_id")
    'PAYMENT_METHOD_ID'
    """
    last_name = path.replace("[]", "").rpartition(".")[2]
    place: dict[str, int] = {}
    for index, word in enumerate(canonical(last_name)):
        place[word] = index

    def generic_last(word: str) -> tuple[bool, int, str]:
        return word in LEXICON.generic, place.get(word, -1), word

    telling = []
    for word in meaning.words:
        if len(word) > 1 and word.isalpha() and word not in _fillers():
            telling.append(word)
    return "_".join(sorted(telling, key=generic_last)).upper() or "TEXT"


@cache
def _fillers() -> frozenset[str]:
    # The words of a meaning may come from a description: in "Terms will be matched", "will" names no type.
    return word_set("will can must may should would could be is are was has have do does not only used")


def words_of(label: str) -> list[str]:
    """Return the words of a type, in lower case."""
    return label.lower().split("_")


def type_named(name: str) -> str:
    """Return a type in K's form, from any spelling of a model; "" if it is not a type.

    >>> type_named("<order id>"), type_named("2nd address1")
    ('ORDER_ID', 'ND_ADDRESS_1')
    """
    ascii_words = [word for word in words(name) if word.isascii()]
    label = "_".join(ascii_words).upper().lstrip("_0123456789")
    longest = 40  # characters; a longer answer is a sentence
    if len(label) > longest:
        return ""
    return label


class Parameter:
    """A parameter of a tool.

    Attributes:
        label: its type, by its schema only.
        choices: the values that its schema lists, in lower case.
        hidden: its values are always slots, because only a system knows them or they are secrets.
        person: its texts name persons.
        text: it is meant for the user's or the model's own words.
    """

    __slots__ = ("choices", "hidden", "label", "person", "text")

    def __init__(self, leaf: Leaf, meaning: Meaning) -> None:
        self.label = label_of(meaning, leaf.path)
        self.choices = frozenset(choice.lower() for choice in leaf.choices)
        self.hidden = not meaning.words.isdisjoint(LEXICON.identifiers | HIDDEN)
        self.person = not meaning.words.isdisjoint(PERSONS)
        self.text = not meaning.words.isdisjoint(LEXICON.free_text)

    def type_of(self, value: Any) -> str:
        """Return the type of one of its values."""
        # A parameter `recipient` takes an address or a name: the form of the value decides.
        if isinstance(value, str):
            kind = kind_of(value)
            if kind in PLAIN:
                return kind
        return self.label


class Slots:
    """The types of the inputs and outputs of a set of tools. Safe to share: it only caches.

    Args:
        specs: the tools, by name. Values of other tools are typed only by their names and forms.
    """

    def __init__(self, specs: Mapping[str, ToolSpec] | None = None) -> None:
        self._parameters: dict[tuple[str, str], Parameter] = {}
        self.labels: dict[frozenset[str], str] = {}
        """Types with a specific name, by the words of the name."""
        for name, spec in (specs or {}).items():
            for port in inputs_of(spec):
                parameter = self._parameters[name, port.path] = Parameter(port.leaf, port.meaning)
                # In a user's words, "x 5" does not name a parameter `x`.
                shortest_word = min(map(len, port.meaning.words), default=0)
                if shortest_word > 1 and not port.meaning.vague and not parameter.text:
                    self.labels.setdefault(port.meaning.words, parameter.label)

    def parameter(self, tool: str, path: str) -> Parameter:
        """Return the parameter of a tool at a path: ``city``, ``items[].id``."""
        known = self._parameters.get((tool, path))
        if known is None:
            leaf = Leaf(path)
            known = self._parameters[tool, path] = Parameter(leaf, meaning_of(leaf, tool))
        return known


@cached(mebibytes=4)
def _output_label(tool: str, path: str) -> str:
    # An answer that is one value, or a list of values, has no name.
    if not path.strip("[]"):
        return "TEXT"
    return label_of(meaning_of(Leaf(path), tool), path)


class Known:
    """Typed slots with their values, in the order in which they came. `push` and `add` change it.

    Secrets are left out, under any type.

    Attributes:
        max_slots: limit of kept types, the latest.
        max_per_slot: limit of values per type, the latest.
        max_value: characters of a value; longer ones are prose.

    Args:
        slots: initial types and values.
    """

    __slots__ = ("_named", "_secrets", "_slots")
    max_slots: ClassVar[int] = 64
    max_per_slot: ClassVar[int] = 8
    max_value: ClassVar[int] = 200

    def __init__(self, slots: Mapping[str, Iterable[Any]] = MappingProxyType({})) -> None:
        self._slots: dict[str, dict[str, Any]] = {}
        self._secrets: set[str] = set()
        self._named: frozenset[str] = frozenset()
        for label, values in slots.items():
            for value in values:
                self.add(label, value)

    def __contains__(self, label: object) -> bool:
        return label in self._slots

    def __repr__(self) -> str:
        return f"Known({', '.join(self._slots)})"

    @property
    def types(self) -> frozenset[str]:
        """Λ: the types with a known value, and the named types."""
        return self._named.union(self._slots)

    def values(self, label: str) -> list[Any]:
        """Return the values of a type, the oldest first."""
        return list(self._slots.get(label, {}).values())

    def latest(self, label: str) -> Any:
        """Return the latest value of a type, or None."""
        values = self._slots.get(label)
        if not values:
            return None
        return next(reversed(values.values()))

    def near(self, label: str) -> list[str]:
        """Return the types that may replace a type: ORDER_TOTAL and TOTAL replace each other, an ID an ORDER_ID."""
        # Not for a generic type: every TRAVEL_DATE would do for a DATE. Exact types alone cost .6 points of hit@3.
        if label in KINDS:
            return []
        near = []
        for other in self.types:
            # An ID may be any id, but a NAME or a TEXT is too generic for an ORDER_NAME.
            is_looser = label.endswith(f"_{other}") and (other == "ID" or other not in KINDS)
            if is_looser or other.endswith(f"_{label}"):
                near.append(other)
        return near

    def has(self, label: str) -> bool:
        """Return True if a value of a type, or of a near type, is known."""
        return label in self.types or bool(self.near(label))

    def types_of(self, value: Any) -> list[str]:
        """Return the types under which a value is known."""
        key = _key(value)
        return [label for label, values in self._slots.items() if key in values]

    def texts(self) -> dict[str, str]:
        """Return the text values, each with its most specific type."""
        texts: dict[str, str] = {}
        for label, values in self._slots.items():
            for value in values.values():
                if isinstance(value, str) and (value not in texts or texts[value] in COMMON):
                    texts[value] = label
        return texts

    def add(self, label: str, value: Any) -> None:
        """Add a value of a type; a known one becomes the latest. Secrets, empty and long values are left out."""
        is_scalar = not isinstance(value, (bool, dict, list, bytes))
        if not label or value is None or value == "" or not is_scalar:
            return
        if isinstance(value, str):
            value = clean(value)
        # Values are compared as texts: a number in a result may be a text in the next call.
        key = _key(value)
        if _is_secret(label):
            self._hide(key, value)
        if key in self._secrets or len(key) > self.max_value:
            return
        # Removed first: a repeated value is the latest, which `filled` takes and the limits keep.
        values = self._slots.setdefault(label, {})
        values.pop(key, None)
        values[key] = value
        if len(values) > self.max_per_slot:
            self._drop(label, next(iter(values)))
        drop_oldest(self._slots, self.max_slots)

    def _hide(self, key: str, value: Any) -> None:
        """Never keep a value again, and drop it from the types that had it."""
        # The user may have said the password before the login call identifies it.
        self._secrets.add(key)
        for label in self.types_of(value):
            self._drop(label, key)

    def _drop(self, label: str, key: str) -> None:
        del self._slots[label][key]
        if not self._slots[label]:
            del self._slots[label]

    def name(self, types: Iterable[str]) -> None:
        """Add types to Λ whose values are unknown here."""
        self._named = frozenset(types)

    def push(self, event: UserMessage | Turn, slots: Slots) -> None:
        """Add the values of a user message, or the inputs and outputs of a turn's calls."""
        if isinstance(event, UserMessage):
            for value in values_in(event.text):
                read = _number(value)
                self.add(value.kind, read)
                self.add(named(event.text, value, slots.labels), read)
            return
        for step in event.steps:
            if step.status == "ok":
                self.take(step, slots, answered(step))

    def take(self, step: ExecutedCall, slots: Slots, answer: Iterable[tuple[str, Any]]) -> None:
        """Add the inputs of a call, and the types and values of its answer."""
        for path, value in placed_scalars(step.args):
            parameter = slots.parameter(step.tool, path)
            # A choice of the schema and the text of a mail are not needed by another call.
            is_choice = isinstance(value, str) and value.lower() in parameter.choices
            if not parameter.text and not is_choice:
                self.add(parameter.type_of(value), value)
        for label, value in answer:
            self.add(label, value)

    def copy(self) -> Known:
        """Return a copy."""
        copy = Known()
        for label, values in self._slots.items():
            copy._slots[label] = dict(values)
        copy._secrets, copy._named = set(self._secrets), self._named
        return copy

    def to_plain(self) -> dict[str, list[Any]]:
        """Return types to values."""
        return {label: list(values.values()) for label, values in self._slots.items()}


def known_given(slots: Any) -> Known:
    """Return K from a developer's argument: K itself, values by type, or only types; raise ConfigurationError for
    others.
    """
    if isinstance(slots, Known):
        return slots
    if isinstance(slots, Mapping):
        return _known_values_given(slots)
    wrong = "`slots` must be names of types, or values by type."
    if isinstance(slots, str) or not isinstance(slots, Iterable):
        raise ConfigurationError(wrong)
    names = list(slots)
    if not all(isinstance(name, str) for name in names):
        raise ConfigurationError(wrong)
    known = Known()
    known.name(names)
    return known


def _known_values_given(slots: Mapping[str, Any]) -> Known:
    """Return K from values by type: one value, or a list of them."""
    known = Known()
    for label, given in slots.items():
        values = [given]
        if isinstance(given, (list, tuple)):
            values = list(given)
        for value in values:
            known.add(label, value)
    return known


def named(text: str, value: TextValue, labels: Mapping[frozenset[str], str]) -> str:
    """Return the type, of `Slots.labels`, that the words before a value in a text name, or ""."""
    if value.kind in PLAIN or not labels:
        return ""
    # Without these types, 3.7 points fewer arguments were right (bfcl).
    before = _words_before(text, value.start)
    # Of four words before a quoted text, some name another thing: "a task, and mail 'Improve it'".
    most_words = 2
    if value.kind in ("ID", "NUMBER"):
        most_words = 4
    near = frozenset(before[-most_words:])
    said = near
    if value.kind == "ID":
        said |= {"id"}
    longest: frozenset[str] = frozenset()
    for parts in labels:
        # "id" alone is the form of the value, not a word of the sentence.
        is_said = parts <= said and parts & near
        if is_said and len(parts) > len(longest):
            longest = parts
    return labels.get(longest, "")


def _words_before(text: str, place: int) -> list[str]:
    """Return the words before a value in its sentence, without those that link a name to its value."""
    most_chars = 60
    # The sentence before is unrelated to this value.
    sentence = re.split(SENTENCE_END, text[max(0, place - most_chars) : place])[-1]
    before = canonical_words(words(sentence))
    while before and before[-1] in _links():
        before.pop()
    return before


@cache
def _links() -> frozenset[str]:
    """Return words between a name and its value: "order number is W17"."""
    return word_set("is are was be as of number nr no to the a an my his her their")


def answered(step: ExecutedCall) -> list[tuple[str, Any]]:
    """Return the types and values of a call's answer."""
    if isinstance(step.output, str):
        return _typed_in_prose(step.output)
    typed: list[tuple[str, Any]] = []
    for path, leaf in _AnswerReader().read(step.output):
        kind = ""
        if isinstance(leaf, str):
            kind = kind_of(leaf)
        if kind in PLAIN:
            typed.append((kind, leaf))
        else:
            typed.append((_output_label(step.tool, path), leaf))
        # The name of a file is also a FILE, under any name in the answer.
        if kind == "FILE":
            typed.append(("FILE", leaf))
    return typed


def _typed_in_prose(output: str) -> list[tuple[str, Any]]:
    most_chars = 1_000
    typed: list[tuple[str, Any]] = []
    # In prose only the form is certain: numbers and capitals have many meanings there.
    for value in values_in(output[:most_chars]):
        if value.kind in PLAIN or value.kind == "ID":
            typed.append((str(value.kind), value.text))
    return typed


class _AnswerReader:
    """Reads the scalars of an answer with their paths; the keys of a table are ids of its rows.

    Attributes:
        max_leaves: read values of one answer.
        max_rows: read elements of a list.
        max_depth: levels of nesting.
    """

    max_leaves = 200
    max_rows = 8
    max_depth = 6

    def __init__(self) -> None:
        self._leaves: list[tuple[str, Any]] = []

    def read(self, answer: Any) -> list[tuple[str, Any]]:
        self._read(answer, "", 0)
        return self._leaves[: self.max_leaves]

    def _read(self, value: Any, path: str, depth: int) -> None:
        if depth > self.max_depth or len(self._leaves) >= self.max_leaves:
            return
        if isinstance(value, dict):
            # Keys of tables as ids: without them, .8 points fewer steps were among the three shown (bfcl).
            if value and is_table(value):
                for key, row in islice(value.items(), self.max_rows):
                    self._leaves.append((f"{path}[].id", str(key)))
                    self._read(row, f"{path}[]", depth + 1)
            else:
                self._read_fields(value, path, depth)
        elif isinstance(value, (list, tuple)):
            for inner in value[: self.max_rows]:
                self._read(inner, f"{path}[]", depth + 1)
        else:
            self._leaves.append((path, value))

    def _read_fields(self, value: Mapping[str, Any], path: str, depth: int) -> None:
        prefix = ""
        if path:
            prefix = f"{path}."
        for key, inner in value.items():
            self._read(inner, f"{prefix}{key}", depth + 1)


def filled(arguments: Mapping[str, Any], known: Known) -> dict[str, Any]:
    """Return arguments with the latest known value in place of each slot.

    If a type has no known value, the only near type may replace it: the TOTAL of one answer for an ORDER_TOTAL, the
    only ID for an ORDER_ID.
    """
    return {name: _filled(value, known) for name, value in arguments.items()}


def _filled(value: Any, known: Known) -> Any:
    if isinstance(value, Mapping):
        return filled(value, known)
    if isinstance(value, (list, tuple)):
        return [_filled(inner, known) for inner in value]
    slot = None
    if isinstance(value, str):
        slot = SLOT.fullmatch(value)
    if slot is None:
        return value
    label = slot[1]
    latest = known.latest(label)
    if latest is not None:
        return latest
    # Of two values of near types the right one is unknown.
    near = known.near(label)
    if len(near) == 1:
        values = known.values(near[0])
        if len(values) == 1:
            return values[0]
    return value


def _number(value: TextValue) -> Any:
    """Return a number as such; "#12", "007" and "30-minute" are texts."""
    plain_number = r"(?!0\d)(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
    if value.kind != "NUMBER" or not re.fullmatch(plain_number, value.text):
        return value.text
    plain = value.text.replace(",", "")
    if "." in plain:
        return float(plain)
    return int(plain)


@cached(mebibytes=1)
def _is_secret(label: str) -> bool:
    return not HIDDEN.isdisjoint((*words_of(label), label.lower().replace("_", "")))


def _key(value: Any) -> str:
    return clean(canon(value)).lower()
