"""Suggestions as a model reads them, and as a stream event shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from langgraph_toolmem.base.text import printable, quoted
from langgraph_toolmem.sit.suggest import Suggestion
from langgraph_toolmem.turn.shown import Line

MAX_SUMMARY: Final = 240
"""Characters of a past state that the model is shown."""


HEAD: Final = "Likely next tools, from past runs:"


def to_prompt(suggestions: Sequence[Suggestion], *, missing: str = "", with_states: bool = True) -> str:
    """Advice in a few lines, as the summary tool answers; "" if there is nothing to say.

    Args:
        suggestions: best first.
        missing: what could not be read, with the error in brackets, which is not for the model.
        with_states: quote the past state that speaks for a tool.
    """
    lines = [line.text for line in to_lines(suggestions, with_states=with_states)]
    if missing:
        lines.append(f"Not looked at: {missing.partition(' (')[0]}.")
    return "\n".join([HEAD, *lines] if suggestions else lines)


def to_lines(suggestions: Sequence[Suggestion], *, with_states: bool = False) -> list[Line]:
    """A line for each suggestion; what other runs said stands in quotes."""
    lines = []
    for suggestion in suggestions:
        # The tool's answer says it all and stays in the thread; a hint says the strongest reason, and goes.
        said = suggestion.evidence if with_states else suggestion.evidence.partition("; ")[0]
        if with_states and suggestion.summary:
            said += f". A past state that led to it: {quoted(suggestion.summary, MAX_SUMMARY)}"
        lines.append(Line(f"- {printable(suggestion.tool)}: {said}.", suggestion.tool))
    return lines


def to_event(suggestions: Sequence[Suggestion], *, missing: str = "", **more: Any) -> dict[str, Any]:
    """Plain values for a stream event."""
    plain = [{**asdict(s), "score": round(s.score, 4)} for s in suggestions]
    return {"suggestions": plain, "missing": missing, **more}
