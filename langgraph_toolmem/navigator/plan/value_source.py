"""The giver of a parameter's value: the user, or another call [O].

The record tells first: a value that came out of earlier outputs in most of at least `ENOUGH` recorded uses is
*produced*, one that did in few of them is the user's. Without a record, choices from a list and truth values are the
user's, ids, tokens and hashes are produced, and everything else is *either*: it is looked for, and asked for where
nothing produces it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.text.meaning import IDENTIFIERS, Port

Source = Literal["user", "produced", "either"]

ENOUGH = 3
_MOSTLY, _SELDOM = 0.5, 0.2


@dataclass(frozen=True, slots=True)
class ValueSource:
    """The giver of a parameter's value, and the reason."""

    kind: Source
    reason: str


def value_source(port: Port, history: History | None = None) -> ValueSource:
    """Return who gives an input its value; see the module."""
    if history is not None and (judged := _by_record(port, history)) is not None:
        return judged
    if port.meaning.shape == "flag":
        return ValueSource("user", "a truth value is a wish")
    if port.leaf.choices:
        return ValueSource("user", "a choice from a list")
    if port.meaning.words & IDENTIFIERS:
        return ValueSource("produced", "an identifier that only a system knows")
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
