"""Calls that repeat: a hint does not show them.

A call is the same as another if it has the same tool and the same arguments, whatever the order of keys and however
numbers and white space are written; an argument that has its default may be left out. A call is no repeat if the user
has spoken since. After a call of a tool that is not declared to only read, earlier reads may give another result, and
a failed call may succeed. A call that was answered in different ways before, such as the state of a job, is no repeat
either.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from langgraph_toolmem.runs.run import ExecutedCall, Run, UserMessage
from langgraph_toolmem.runs.tools import ToolSpec, side_effects
from langgraph_toolmem.runs.values import ABSENT, canon


class CallsMade:
    """The executed calls of a run since the user spoke that a change does not excuse; see the module.

    Args:
        run: the history so far.
        specs: the tools, by name, with their marks and defaults.
    """

    def __init__(self, run: Run, specs: Mapping[str, ToolSpec] | None = None) -> None:
        self._run, self._specs = run, specs or {}
        self._made: dict[str, ExecutedCall] = {}
        start = next((i for i in range(len(run.events) - 1, -1, -1) if isinstance(run.events[i], UserMessage)), 0)
        for step in filter(None, self._executed(start)):
            if self._changes(step):
                self._made = {key: made for key, made in self._made.items() if self._changes(made)}
            self._made[_same(step.tool, step.args, self._specs)] = step

    def repeats(self, tool: str, args: Mapping[str, Any]) -> bool:
        """Return True if the call was made already and nothing has changed since, or if it failed, else False."""
        key = _same(tool, args, self._specs)
        before = self._made.get(key)
        return before is not None and (before.status == "failed" or not self._varies(tool, key))

    def _varies(self, tool: str, key: str) -> bool:
        """Return True if a call was answered otherwise when it was made again, with no change in between."""
        before: ExecutedCall | None = None
        for step in self._executed(0):
            if step is None:
                before = None
            elif step.tool == tool and _same(tool, step.args, self._specs) == key:
                if before is not None and before.status == step.status == "ok" and before.output != step.output:
                    return True
                before = step
            elif self._changes(step) and before is not None and not self._changes(before):
                before = None
        return False

    def _executed(self, start: int) -> Iterator[ExecutedCall | None]:
        """Yield the executed calls from an event on; None where the user speaks."""
        for event in self._run.events[start:]:
            if isinstance(event, UserMessage):
                yield None
            else:
                yield from (step for step in event.steps if step.status in ("ok", "failed"))

    def _changes(self, step: ExecutedCall) -> bool:
        return step.status == "ok" and not _reads(step.tool, self._specs)


def _reads(tool: str, specs: Mapping[str, ToolSpec]) -> bool:
    return tool in specs and side_effects(specs[tool]) == "reads"


def _same(tool: str, args: Mapping[str, Any], specs: Mapping[str, ToolSpec]) -> str:
    spec = specs.get(tool)
    plain = _plain(args)
    for name, schema in (spec.properties if spec is not None else {}).items():
        default = schema.get("default", ABSENT)
        if default is not ABSENT and name in plain and plain[name] == _plain(default):
            del plain[name]
    return json.dumps([tool, plain], sort_keys=True, default=str)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return " ".join(canon(value).split())
