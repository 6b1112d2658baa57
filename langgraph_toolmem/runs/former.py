"""Keys of turns as the version before made them: an id that looks drawn at random was the whole identity of a call."""

from __future__ import annotations

from collections import Counter

from langgraph_toolmem.base.keys import canonical, digest, looks_unique
from langgraph_toolmem.runs.run import Run, Turn


def former_keys(run: Run) -> dict[int, str]:
    """The former key of each turn with calls, by its place among the events of a thread."""
    seen: Counter[tuple[str, ...]] = Counter()
    found: dict[int, str] = {}
    scope = digest("run", run.thread_id or "")
    for index, event in enumerate(run.events):
        if isinstance(event, Turn) and event.steps:
            keys = []
            for step in event.steps:
                identity: tuple[str, ...] = (step.call_id,)
                if not looks_unique(step.call_id):
                    identity = (scope, step.call_id, step.tool, canonical(step.args))
                keys.append(digest(*identity, seen[identity]))
                seen[identity] += 1
            found[index] = keys[0] if len(keys) == 1 else digest("calls", *keys)
    return found
