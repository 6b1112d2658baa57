"""Atoms as hints in a prompt: patterns to adapt, not commands, with what is known already in place."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from langgraph_toolmem.atoms.retrieve import AtomHit
from langgraph_toolmem.atoms.words import SLOT
from langgraph_toolmem.base.text import quoted
from langgraph_toolmem.turn.call import Line

MAX_CHARS: Final = 1_600
"""Characters of all hints."""
MAX_HINT: Final = 400
MAX_GOAL: Final = 100
MAX_VALUE: Final = 210
"""Of a value as JSON. What is known is shown whole: a part of an address is none."""
HEAD: Final = "Steps that worked in similar situations (<…>: not known yet):"

_JOINERS: Final = "\u200c\u200d"
"""Parts of words in some scripts, though they count as control characters."""


def render(hits: Sequence[AtomHit], *, max_chars: int = MAX_CHARS) -> str:
    """The hints as one text; "" if there are none.

    Args:
        hits: the atoms found, the best first.
        max_chars: of the patterns; those that do not fit are left out, the worst first.
    """
    lines: list[str] = []
    room = max_chars
    for hit in hits:
        line = pattern(hit)
        if len(line) + 1 > room:
            break
        room -= len(line) + 1
        lines.append(line)
    if not lines:
        return ""
    return "\n".join([HEAD, *lines])


def to_lines(hits: Sequence[AtomHit]) -> list[Line]:
    """Return a line for each hint."""
    return [Line(pattern(hit), hit.tool) for hit in hits]


def pattern(hit: AtomHit) -> str:
    """One hint: what for, and the call with what is known in place. One line of printable characters."""
    given = hit.filled or hit.atom.arguments
    arguments = ", ".join(f"{_plain(name)}={_value(value)}" for name, value in given.items())
    goal = _plain(hit.goal or hit.atom.goal).rstrip(".:;, ")
    call = f"{_plain(hit.tool)}({arguments})"
    if len(call) > MAX_HINT:
        call = f"{call[: MAX_HINT - 1]}…"
    return f"- To {quoted(goal, MAX_GOAL)}: {call}" if goal else f"- {call}"


def _plain(text: str) -> str:
    """Words on one line; what cannot be printed is left out."""
    return " ".join("".join(c if _is_shown(c) else " " for c in text).split())


def _value(value: Any) -> str:
    """A value as JSON; slots as they are. Values come from tools: none may look like anything else."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_plain(str(name))}: {_value(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, str) and SLOT.fullmatch(value):
        return value
    text = json.dumps(value, ensure_ascii=False, default=str)
    text = "".join(c if _is_shown(c) else json.dumps(c)[1:-1] for c in text)
    return text if len(text) <= MAX_VALUE else f'{text[: MAX_VALUE - 1]}…"'


def _is_shown(character: str) -> bool:
    return character.isprintable() or character in _JOINERS
