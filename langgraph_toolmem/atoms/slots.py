"""Slot types: what a value is called, in the words of the tools' own schemas.

The type of a parameter is what its name, place and description say (``order_id``, ``id`` of ``orders[]``: ORDER_ID);
where a value's looks or the declared format tell more (EMAIL, DATE, URL …), that is its type, whatever its parameter
is called: a mail address fits ``recipient`` as well as ``assigned_to``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.meaning import (
    FREE_TEXT,
    GENERIC,
    IDENTIFIERS,
    NOISE,
    PERSONAL,
    SECRETS,
    Meaning,
    canonical,
    inputs_of,
    meaning_of,
)
from langgraph_toolmem.text.schema import Leaf
from langgraph_toolmem.text.values import (
    DATE,
    EMAIL,
    FILE,
    ID,
    KINDS,
    NAME,
    NUMBER,
    PHONE,
    PLAIN,
    TEXT,
    TIME,
    URL,
    kind_of,
    quotes_in,
)
from langgraph_toolmem.text.words import word_set

CONTROL: Final = word_set(
    "limit offset page size count precision decimal depth level maximum minimum top per cursor timeout retry digit "
    "length width height step round order sort mode format unit language locale direction type style flag index "
    "line column version"
)
"""Words of parameters that steer a call; numbers in them mean the same in every task."""
PERSONS: Final = PERSONAL | word_set(
    "person user username customer client employee colleague friend contact recipient sender author owner assignee "
    "participant attendee guest passenger patient member cardholder mention receiver"
)
"""Words of parameters whose values are persons."""
MONEY: Final = word_set("amount budget price cost fee balance payment salary credit fund deposit bill")
"""Words of parameters in which a number is a value, even if it is called a limit or a maximum."""
_FILLERS: Final = word_set("will can must may should would could be is are was has have do does not only used")
"""Words that descriptions have in the place of a noun."""
_FORMATS: Final = {
    "email": EMAIL, "uri": URL, "url": URL, "date": DATE, "date-time": DATE, "time": TIME, "phone": PHONE, "uuid": ID,
}  # fmt: skip
_LONGEST_CHOICE: Final = 60
_EXAMPLE = re.compile(r"(?:such as|e\.g\.|example|like|format(?: is)?|for instance)[^.;]{0,20}$", re.IGNORECASE)


def label_of(meaning: Meaning, path: str = "") -> str:
    """The type with this meaning, its words in the order of the name at the end of the path.

    >>> label_of(meaning_of(Leaf("payment_method_id"), ""), "payment_method_id")
    'PAYMENT_METHOD_ID'
    """
    place = {word: index for index, word in enumerate(canonical(path.replace("[]", "").rpartition(".")[2]))}
    told = sorted(
        (word for word in meaning.words if len(word) > 1 and word.isalpha() and word not in _FILLERS),
        key=lambda word: (word in GENERIC, place.get(word, -1), word),
    )
    return "_".join(told).upper() or TEXT


class Parameter:
    """One value that a tool takes.

    Attributes:
        label: its type by its schema alone.
        choices: what it may be, if its schema or its description lists it.
        control: a number in it steers the call.
        text: it is meant for the user's or the model's own words.
        identifier: only a system knows its values.
        secret: its values are never kept.
        someone: its values are persons, or what they are called.
        required: whether a call must have it.
    """

    __slots__ = ("choices", "control", "identifier", "label", "required", "secret", "someone", "text")

    def __init__(self, leaf: Leaf, meaning: Meaning) -> None:
        self.label = _FORMATS.get(leaf.format) or label_of(meaning, leaf.path)
        self.choices = frozenset(choice.lower() for choice in (*leaf.choices, *listed_choices(leaf.description)))
        steering = meaning.words & CONTROL
        if canonical(leaf.path.replace("[]", "").rpartition(".")[2])[-1:] != ("order",):
            steering -= {"order"}  # what is ordered steers nothing, the order of a list does
        self.control = bool(steering) and not meaning.words & (IDENTIFIERS | MONEY)
        self.text = bool(meaning.words & FREE_TEXT)
        self.identifier = bool(meaning.words & IDENTIFIERS)
        self.secret = bool(meaning.words & (SECRETS | PERSONAL | {"accesstoken", "token"}))
        self.someone = bool(meaning.words & PERSONS)
        self.required = leaf.required

    def type_of(self, value: Any) -> str:
        """The type of one of its values."""
        kind = kind_of(value) if isinstance(value, str) else ""
        return kind if kind in PLAIN else self.label


@lru_cache(maxsize=4096)
def listed_choices(description: str) -> tuple[str, ...]:
    """The values that a description lists in quotes; examples and single values are no list.

    >>> listed_choices('Type of plot. Can be "bar", "line" or "scatter"')
    ('bar', 'line', 'scatter')
    """
    quoted = quotes_in(description, _LONGEST_CHOICE)
    found = [description[start:end] for start, end in quoted if not _EXAMPLE.search(description[: start - 1])]
    return tuple(found) if len(found) > 1 else ()


class Slots:
    """The types of the values that a set of tools takes and gives. Safe to share: what it learns is a cache.

    Args:
        specs: the tools, by name. Values of other tools are typed by their names and looks alone.
    """

    def __init__(self, specs: Mapping[str, ToolSpec] | None = None) -> None:
        self.specs = dict(specs or {})
        self._parameters: dict[str, dict[str, Parameter]] = {}
        self._other: dict[tuple[str, str], Parameter] = {}
        self._labels: dict[frozenset[str], str] | None = None

    def parameter(self, tool: str, path: str) -> Parameter:
        """Return what a tool takes at a path: ``city``, ``items[].id``."""
        known = self._of(tool).get(path) or self._other.get((tool, path))
        if known is None:
            leaf = Leaf(path)
            known = self._other[tool, path] = Parameter(leaf, meaning_of(leaf, tool))
        return known

    def parameters(self, tool: str) -> Mapping[str, Parameter]:
        """All that a tool takes, by path; nothing if it is not known."""
        return self._of(tool)

    def output(self, tool: str, path: str, value: Any) -> str:
        """The type of a value in a tool's answer, at a path such as ``orders[].id``."""
        kind = kind_of(value) if isinstance(value, str) else ""
        return kind if kind in PLAIN else _output_label(tool, path)

    @property
    def labels(self) -> Mapping[frozenset[str], str]:
        """The types that parameters name by something of their own, by the words that make them up."""
        if self._labels is None:
            self._labels = {}
            for name, spec in self.specs.items():
                for port in inputs_of(spec):
                    words = port.meaning.words
                    if not port.meaning.vague and not words & FREE_TEXT and all(map(_tells, words)):
                        self._labels.setdefault(words, self.parameter(name, port.path).label)
        return self._labels

    def _of(self, tool: str) -> dict[str, Parameter]:
        known = self._parameters.get(tool)
        if known is None:
            spec = self.specs.get(tool)
            ports = () if spec is None else inputs_of(spec)
            known = self._parameters[tool] = {port.path: Parameter(port.leaf, port.meaning) for port in ports}
        return known


@lru_cache(maxsize=16_384)
def _output_label(tool: str, path: str) -> str:
    return label_of(meaning_of(Leaf(path), tool), path) if path.strip("[]") else TEXT


def _tells(word: str) -> bool:
    return len(word) > 1 and word.isalpha() and word not in NOISE


@lru_cache(maxsize=4096)
def is_identifier(label: str) -> bool:
    """Return True if values of a type are known to a system only."""
    return not IDENTIFIERS.isdisjoint(words_of(label))


def words_of(label: str) -> list[str]:
    """The words of a type, in lower case."""
    return label.lower().split("_")


@lru_cache(maxsize=4096)
def alternatives(label: str) -> frozenset[str]:
    """Other types whose values may stand for one of this type: common ones, and what it is the id, name … of.

    >>> sorted(alternatives("ORDER_ID")), sorted(alternatives("CITY")), sorted(alternatives("EMAIL"))
    (['ID', 'ORDER'], ['FILE', 'NAME', 'NUMBER', 'TEXT'], [])
    """
    if label in KINDS:
        return frozenset()
    words = words_of(label)
    own = [word for word in words if word not in GENERIC]
    shorter = {"_".join(own).upper()} if own and len(own) < len(words) else set()
    return frozenset(shorter | ({ID} if is_identifier(label) else {TEXT, NAME, NUMBER, FILE}))


def satisfied(required: Iterable[str], known: Collection[str]) -> int:
    """Return how many of the required types are known, themselves or by one of their `alternatives`."""
    return sum(label in known or not alternatives(label).isdisjoint(known) for label in required)
