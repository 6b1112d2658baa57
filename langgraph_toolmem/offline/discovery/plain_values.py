"""Values for the policy without a model: those that a request and answers tell, and how well one fits an input [O].

A value has types: by its looks and by the words beside it (`atoms.words`), by its place in an answer (`atoms.slots`).
An input wants a type, or looks; nothing here knows of particular tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from langgraph_toolmem.atoms.known import said
from langgraph_toolmem.atoms.slots import Parameter, Slots, label_of, listed_choices, words_of
from langgraph_toolmem.offline.discovery.environment import Taken
from langgraph_toolmem.runs.values import canon, flatten
from langgraph_toolmem.words.meaning import canonical, canonical_words, meaning_of
from langgraph_toolmem.words.ports import Port
from langgraph_toolmem.words.schema import Leaf
from langgraph_toolmem.words.split import STOP_WORDS, stem, words
from langgraph_toolmem.words.values import DATE, EMAIL, ID, NAME, NUMBER, PLAIN, TEXT, TIME, kind_of

MAX_ROWS: Final = 12
MAX_ANSWER: Final = 4_000
"""Rows of a list, and characters of an answer, that are read."""
CHOICE: Final = "CHOICE"
"""Type of what a schema lists."""


class Known(NamedTuple):
    """A value; types by looks and place; whether the user said it; what speaks for it, its row; where it was told."""

    value: Any
    types: frozenset[str]
    asked: bool = True
    standing: float = 0.2
    meant: bool = True
    places: frozenset[str] = frozenset()


class Input(NamedTuple):
    """A value that a call takes. `looks`: EMAIL, DATE, TIME (of a day), ID, NUMBER …; TEXT for words."""

    leaf: Leaf
    parameter: Parameter
    looks: str
    choices: tuple[str, ...]


class Reader:
    """Reads values of requests and answers, for one set of tools.

    Args:
        slots: the tools' types.
        inputs: all that they take.
        usual: stems of words by which they are called and described.
    """

    def __init__(self, slots: Slots, inputs: Sequence[Input], usual: frozenset[str]) -> None:
        self._slots, self._usual, self.names = slots, usual, {each.leaf.path for each in inputs}
        self._listed = tuple(dict.fromkeys((one, each.parameter.label) for each in inputs for one in each.choices))

    def said(self, request: str) -> Iterator[Known]:
        """The values of a request: by their looks, by the words beside them, and what schemas list."""
        found = list(said(request, self._slots))
        for first in re.finditer(r"(?<![^.!?:;]\s)\b([A-Z][\w-]+) (?=[A-Z])", request):
            begins = stems_of(first[1]) and stems_of(first[1]).isdisjoint(self._usual)  # a name begins a sentence
            for at, (kind, value) in enumerate(found):
                if begins and kind == NAME and request.startswith(str(value), first.end()):
                    found[at] = kind, first[0] + value
        yield from (Known(value, frozenset({label})) for label, value in found)
        times = ((day, time) for kind, day in found for other, time in found if (kind, other) == (DATE, TIME))
        yield from (Known(f"{day}T{time.zfill(5)}", frozenset({TIME})) for day, time in times)
        mine = ((one, label) for one, label in self._listed if frozenset() < stems_of(one) <= stems_of(request))
        yield from (Known(one, frozenset({CHOICE, label})) for one, label in mine)

    def told(self, taken: Taken, ago: int, request: str) -> Iterator[Known]:
        """The values of an answer; more speaks for the latest, and for rows that share most with the request."""
        output, tool, late = taken.observation.output, taken.call.tool, max(0.0, 0.15 + 0.05 * ago)
        if isinstance(output, str):
            found = (one for one in said(output[:MAX_ANSWER], self._slots) if one[0] in PLAIN or one[0] == ID)
            yield from (Known(value, frozenset({label}), False, late, False) for label, value in found)
            return
        flat = flatten(output)
        rows: dict[tuple[str, int], list[tuple[str, Any]]] = {("", -1): list(flat.scalars.items())}
        for path, values in flat.lists.items():
            for value, number in zip(values, flat.rows[path], strict=True):
                rows.setdefault((path.split("[*]")[0], number), []).append((path, value))
        rows = {at: row for at, row in rows.items() if at[1] < MAX_ROWS}
        counts = {
            at: len(stems_of(" ".join(str(one) for _, one in row)) & stems_of(request)) for at, row in rows.items()
        }
        for at, row in rows.items():
            meant = counts[at] >= max(1, *(0.7 * count for count in counts.values()))
            standing = late + 0.15 * meant + max(0.0, 0.05 - 0.005 * max(0, at[1]))
            for path, value in row:
                place = path.removeprefix("$").removeprefix(".").replace("[*]", "[]")
                types = {self._slots.output(tool, place, value), label_of(meaning_of(Leaf(place), tool), place)}
                yield Known(value, frozenset(types), False, standing, meant, frozenset({f"{tool} {ago} {place}"}))

    def words_for(self, wanted: Input, request: str) -> Iterator[tuple[float, str]]:
        """Words of a request, one or two: best those beside the name of the input, then such as no tool is about."""
        own = stems_of(f"{wanted.parameter.label.lower()} {wanted.leaf.path}".replace("_", " "))
        marks = [(word, stems_of(word)) for word in re.findall(r"[^\W\d_][\w-]*", request)]
        for at, (word, stems) in enumerate(marks):
            beside = any(near & own for _, near in marks[max(0, at - 1) : at + 2])
            score = (0.75 if beside else 0.4) + 0.2 * stems.isdisjoint(self._usual) - 0.005 * at
            if stems and not stems & own and (wanted.leaf.required or beside):
                yield score, word
                if at + 1 < len(marks) and marks[at + 1][1] and (pair := f"{word} {marks[at + 1][0]}") in request:
                    yield score - 0.05, pair


def fit_of(wanted: Input, known: Known, reads: bool) -> float:
    """How well a value fits an input by its type and its looks, 0 to about 1; 0: not at all."""
    looks = (kind_of(known.value) if isinstance(known.value, str) else NUMBER) or TEXT
    label, types, required = wanted.parameter.label, known.types | {looks}, wanted.leaf.required
    named = label in known.types
    if isinstance(known.value, bool):
        return 0.0
    if wanted.looks in (DATE, TIME):
        fits = looks == DATE and (":" in known.value) == (wanted.looks == TIME)
        return fits * (0.5 + 0.15 * named + known.standing + 0.1 * known.asked)
    if wanted.looks in (ID, NUMBER):
        own, told = {*words_of(label)}, (*known.types, f"{known.value}_ID")  # "key_22" is of a key
        fits = (
            any(len(own.intersection(words_of(each))) > 1 for each in told)
            or known.asked
            or (known.types == {ID} and not known.places)
        )
        return (0.65 * named or 0.5 * (fits and wanted.looks in types) or -1.0) + known.standing
    if wanted.looks != TEXT:
        return (looks == wanted.looks) * (0.5 + known.standing + 0.15 * named)
    if not reads and "value" in words_of(label):
        return 0.3 + known.standing + 0.2 * known.asked
    if looks == ID and known.asked and required and not wanted.parameter.text:
        return 0.7
    if looks != TEXT or (wanted.parameter.text and not reads):
        return 0.7 * (looks == TEXT and known.asked and TEXT in known.types)
    if named or not known.asked:
        loose = not named and (reads or not known.meant or not required)
        return 0.9 if known.asked else 0.0 if loose else (0.4 if named else 0.2) + known.standing
    if CHOICE in types or (reads and known.places and not wanted.parameter.someone):
        return 0.25 * required
    return (
        0.9
        if (wanted.parameter.someone and NAME in types) or ((required or wanted.parameter.text) and TEXT in known.types)
        else 0.5
    )


def merged(known: Iterable[Known]) -> dict[str, Known]:
    """Each value once, with all its types; what the user said stays so."""
    found: dict[str, Known] = {}
    for each in known:
        old = found.setdefault(canon(each.value), each)
        both = (max(old.standing, each.standing), old.meant or each.meant, old.places | each.places)
        found[canon(each.value)] = Known(old.value, old.types | each.types, old.asked or each.asked, *both)
    return found


def input_of(port: Port, slots: Slots) -> Input:
    """What a call takes at a port."""
    leaf, parameter = port.leaf, slots.parameter(port.tool, port.path)
    about = {*canonical(leaf.path.rpartition(".")[2]), *canonical(leaf.description)}
    tests = (
        (parameter.label, parameter.label in (*PLAIN, ID)),
        (ID, parameter.identifier),
        (NUMBER, bool(leaf.types) and leaf.types <= {"integer", "number"}),
        (EMAIL, re.search(r"\be-?mail([\s-]?address|$)", f"{leaf.description} {leaf.path}", re.IGNORECASE)),
        (TEXT, parameter.text),
        (TIME, "time" in about),
        (DATE, about & {"date", "day"}),
    )
    looks = next((looks for looks, holds in tests if holds), TEXT)
    return Input(leaf, parameter, looks, leaf.choices or listed_choices(leaf.description))


@lru_cache(maxsize=16_384)
def stems_of(text: str) -> frozenset[str]:
    """The stems of a text's words that say something, those that mean the same made one."""
    plain = canonical_words(words(text[:MAX_ANSWER]))
    return frozenset(stem(word) for word in plain if word not in STOP_WORDS and len(word) > 1)
