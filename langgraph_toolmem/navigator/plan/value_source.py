"""Who gives a parameter its value: the user, or another call [O].

Judged by the record first: a value that came out of earlier outputs in most of at least `ENOUGH` recorded uses is
*produced*, one that did in few of them is the user's. Without a record by type and name:

- *user*: choices from a list, truth values, free text, secrets, persons' own data, dates and quantities.
- *produced*: ids, tokens, cursors, hashes: only a system knows them.
- *either*: everything else; it is looked for, and asked for where nothing produces it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.text.meaning import FREE_TEXT, IDENTIFIERS, PERSONAL, QUANTITIES, SECRETS, Port

Source = Literal["user", "produced", "either"]

ENOUGH = 3
_MOSTLY, _SELDOM = 0.5, 0.2
_COMPACT_FORMATS = {"uuid"}
_TIME_FORMATS = {"date", "date-time", "time", "duration"}


@dataclass(frozen=True, slots=True)
class ValueSource:
    """Where a parameter's value comes from, and why that is believed.

    `firm` is False where a kin tool that gives just this value would be a reason to think otherwise: departure times
    are the user's wish, unless there is a timetable.
    """

    kind: Source
    reason: str
    firm: bool = True


def value_source(port: Port, history: History | None = None) -> ValueSource:
    """Who gives an input its value; see the module."""
    if history is not None and (judged := _by_record(port, history)) is not None:
        return judged
    words, leaf = port.meaning.words, port.leaf
    if port.meaning.shape == "flag":
        return ValueSource("user", "a truth value is a wish")
    if leaf.choices:
        return ValueSource("user", "a choice from a list")
    if words & SECRETS:
        return ValueSource("user", "a secret")
    if words & IDENTIFIERS or leaf.format in _COMPACT_FORMATS:
        return ValueSource("produced", "an identifier that only a system knows")
    if words & PERSONAL:
        return ValueSource("user", "a person's own data")
    if leaf.format in _TIME_FORMATS:
        return ValueSource("user", "a date or time", firm=False)
    if words & FREE_TEXT:
        return ValueSource("user", "free text")
    if words & QUANTITIES:
        return ValueSource("user", "a date, a measure or a wish", firm=False)
    if leaf.has_default:
        return ValueSource("user", "it has a default")
    return ValueSource("either", "nothing says so")


def _by_record(port: Port, history: History) -> ValueSource | None:
    produced = sum(count for _, count in history.flows_into(port.tool, port.parameter))
    given = history.given.get((port.tool, port.parameter), 0.0)
    total = max(produced + given, history.uses.get(port.tool, 0.0) if produced or given else 0.0)
    if total < ENOUGH:
        return None
    share = min(1.0, produced / total)
    told = f"in {share:.0%} of {total:.0f} recorded uses it came out of another call"
    if share >= _MOSTLY:
        return ValueSource("produced", told)
    return ValueSource("user", told) if share < _SELDOM else ValueSource("either", told)
