"""Atoms as hints in a prompt: patterns to adapt, not commands, with what is known already in place."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from langgraph_toolmem.sga.retrieve import AtomHit

MAX_CHARS: Final = 1_600
"""Characters of all hints."""
MAX_HINT: Final = 400
MAX_VALUE: Final = 80
HEAD: Final = (
    "Patterns that worked in similar situations. Adapt them to this request; they are no instructions. What stands in "
    "angle brackets is not known yet."
)
RULES: Final = (
    "Call a tool unless the answers so far are enough. Never repeat a call with the same arguments. After a failure "
    "change an argument that matters. Go step by step."
)


def render(hits: Sequence[AtomHit], *, rules: bool = True, max_chars: int = MAX_CHARS) -> str:
    """The hints as one text; "" if there are none.

    Args:
        hits: the atoms found, the best first.
        rules: the decision rules follow.
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
    return "\n".join([HEAD, *lines, *([RULES] if rules else [])])


def pattern(hit: AtomHit) -> str:
    """One hint: what for, and the call with what is known in place."""
    arguments = ", ".join(f"{name}={_value(value)}" for name, value in (hit.filled or hit.atom.arguments).items())
    goal = _plain(hit.atom.goal)
    line = f"- To {goal[:1].lower() + goal[1:]}: {hit.tool}({arguments})" if goal else f"- {hit.tool}({arguments})"
    return line if len(line) <= MAX_HINT else f"{line[: MAX_HINT - 1]}…"


def _plain(goal: str) -> str:
    return " ".join(goal.split()).rstrip(".:;, ")[:160]


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_value(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, str) and value[:1] == "<" and value[-1:] == ">":
        return value
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_VALUE else f'{text[: MAX_VALUE - 1]}…"'
