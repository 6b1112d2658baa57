"""Suggestions as a model reads them, and as a stream event shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from langgraph_toolmem.sit.suggest import Suggestion

MAX_SUMMARY: Final = 400
"""Characters of a past state that the model is shown."""


def to_prompt(suggestions: Sequence[Suggestion], *, missing: str = "", with_states: bool = True) -> str:
    """Advice in a few lines; "" if there is nothing to say.

    Args:
        suggestions: best first.
        missing: what could not be looked at.
        with_states: quote the past state that speaks for a tool.
    """
    if not suggestions:
        return f"No suggestion: {missing}." if missing else ""
    lines = ["Likely next tools, from past successful runs (advice only: call what fits best):"]
    for number, suggestion in enumerate(suggestions, start=1):
        lines.append(f"{number}. {suggestion.tool}: {suggestion.evidence}.")
        if with_states and suggestion.summary:
            lines.append(f"   A past state that led to it: {_short(suggestion.summary)}")
    if missing:
        lines.append(f"Not looked at: {missing}.")
    return "\n".join(lines)


def to_event(suggestions: Sequence[Suggestion], *, missing: str = "", **more: Any) -> dict[str, Any]:
    """Plain values for a stream event."""
    plain = [{**asdict(s), "score": round(s.score, 4)} for s in suggestions]
    return {"suggestions": plain, "missing": missing, **more}


def _short(text: str) -> str:
    flat = " / ".join(line.strip() for line in text.splitlines() if line.strip())
    return flat if len(flat) <= MAX_SUMMARY else flat[: MAX_SUMMARY - 1] + "…"
