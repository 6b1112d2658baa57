"""Calls of the memory's own tools are no steps: they are taken out of a history, what they say is kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from langgraph_toolmem.runs.run import OWN_TOOLS, SUMMARY_TOOL, Turn, UserMessage


def summaries_aside(events: list[UserMessage | Turn]) -> Iterator[UserMessage | Turn]:
    """Calls of the memory's tools are no steps: a turn of nothing else goes, its text and tokens to the next turn."""
    written: str | None = None
    spent = [0, 0, 0]
    for event in events:
        if isinstance(event, UserMessage):
            written, spent = None, [0, 0, 0]
            yield event
            continue
        steps = tuple(step for step in event.steps if step.tool not in OWN_TOOLS)
        own = len(steps) < len(event.steps)
        if not own and written is None and not any(spent):
            yield event
            continue
        summaries = [step.args.get("summary") for step in event.steps if step.tool == SUMMARY_TOOL]
        more = (event.input_tokens, event.output_tokens, event.cached_tokens)
        spent = [before + new for before, new in zip(spent, more, strict=True)]
        if steps or not own:
            read, said, cached = spent
            used = replace(event, input_tokens=read, output_tokens=said, cached_tokens=cached)
            yield replace(used, steps=steps, summary=written)
            written, spent = None, [0, 0, 0]
        texts = [text for text in summaries if isinstance(text, str) and text.strip()]
        written = texts[-1] if texts else written
