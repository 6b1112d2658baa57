"""Decision rules on proposed calls: no identical repeat, a material change after a failure.

Pure functions of a run and the calls the model proposes; what to do with a complaint is for others to decide. A call
is the same as another if it has the same tool and the same arguments, whatever the order of keys and however numbers
and white space are written; an argument that has its default may be left out. A call is no repeat if the user has
spoken since, or if a tool was called since that is said to change something: what was read before may read otherwise
now. Nor is a call one that was answered in different ways before, such as the state of a job.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from langgraph_toolmem.runs.run import ExecutedCall, Run, UserMessage
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import ABSENT, canon
from langgraph_toolmem.words.meaning import canonical
from langgraph_toolmem.words.vocabulary import STRICT_VERBS, word_set

Rule = Literal["repeat", "unchanged after failure", "twice"]


_CHANGING: Final = word_set(
    "create update delete add remove send put patch set buy cancel insert upsert edit modify change submit upload "
    "install enable disable start stop close open write append subscribe unsubscribe follow unfollow post book order "
    "reserve exchange return purchase copy move share transfer invite place assign schedule rename mark save store "
    "pay refund approve reject reset clear apply execute run push commit merge archive restore grant revoke"
)


class Complaint(NamedTuple):
    """What is wrong with a proposed call: its place among the calls, the rule, and a sentence for the model."""

    call: int
    rule: Rule
    text: str


def complaints(
    run: Run,
    calls: Sequence[tuple[str, Mapping[str, Any]]],
    specs: Mapping[str, ToolSpec] | None = None,
    *,
    by_name: bool = False,
) -> list[Complaint]:
    """What the decision rules say against proposed calls, in the order of the calls; at most one each.

    Args:
        run: the history so far.
        calls: tool and arguments of each proposed call.
        specs: the tools, by name: which of them change something (``read_only`` is False), and their defaults.
        by_name: a tool of which nothing is said changes something if its name says so: ``rename_file``.
    """
    done = _since_change(run, specs or {}, by_name)
    found: list[Complaint] = []
    proposed: set[str] = set()
    for place, (tool, args) in enumerate(calls):
        key = _same(tool, args, specs or {})
        before = done.get(key)
        if key in proposed:
            found.append(Complaint(place, "twice", f"{tool} is called twice with the same arguments; call it once."))
        elif before is not None and before.status == "ok":
            text = f"{tool} was already called with these arguments and answered. Use that answer, or go on."
            found.append(Complaint(place, "repeat", text))
        elif before is not None:
            text = f"{tool} failed with these arguments. Change an argument that matters, or call another tool."
            found.append(Complaint(place, "unchanged after failure", text))
        proposed.add(key)
    return found


def _since_change(run: Run, specs: Mapping[str, ToolSpec], by_name: bool) -> dict[str, ExecutedCall]:
    """The executed calls since the user spoke or something may have changed, by what makes them the same."""
    found: dict[str, ExecutedCall] = {}
    varies: set[str] = set()
    for event in run.events:
        if isinstance(event, UserMessage):
            found.clear()
            continue
        for step in event.steps:
            if step.status not in ("ok", "failed"):
                continue
            key = _same(step.tool, step.args, specs)
            before = found.get(key)
            if before is not None and before.status == step.status == "ok" and before.output != step.output:
                varies.add(key)
            if step.status == "ok" and _changes(step.tool, specs, by_name):
                found.clear()
            found[key] = step
    return {key: step for key, step in found.items() if step.status == "failed" or key not in varies}


def _changes(tool: str, specs: Mapping[str, ToolSpec], by_name: bool) -> bool:
    spec = specs.get(tool)
    if spec is not None and spec.read_only is not None:
        return not spec.read_only
    return by_name and _says_so(tool)


def _says_so(tool: str) -> bool:
    """Whether the verb of a name says that something is changed: at its begin, or one that is nothing but a verb."""
    words = canonical(tool)
    return any(word in _CHANGING for place, word in enumerate(words) if place == 0 or word in STRICT_VERBS)


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
