"""From paths that ended well to atoms: a path becomes a run, and each of its steps an atom."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from langgraph_toolmem.atoms.atoms import Atom, merge_all
from langgraph_toolmem.atoms.extract import Extracted, Extractor
from langgraph_toolmem.atoms.known import leaves_of
from langgraph_toolmem.atoms.mask import Habits
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.offline.discovery.environment import EnvironmentCall, Observation, Taken, Task
from langgraph_toolmem.offline.discovery.states import told
from langgraph_toolmem.runs.messages import Status
from langgraph_toolmem.runs.run import ExecutedCall, Run, Turn, UserMessage
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import canon, canon_args

SHORTEST_PART: Final = 3
"""Characters from which a value is recognised inside of a longer text."""
MAX_PROSE: Final = 200_000
"""Characters of a text in which values are looked for."""


@dataclass(frozen=True)
class Found:
    """The best path of a task, and what it took to find it.

    Attributes:
        task: id of the task.
        request: the user's words.
        path: calls and what came back; empty if none ended well.
        reward: R of the path, 0 if none ended well.
        answer: the last word, if one was needed.
        counts: iterations, steps, replayed, nodes, inner, tried, shared, depth, paths, diverged, unread; already: 1 if
            the task was done before anything was.
    """

    task: str
    request: str
    path: tuple[Taken, ...] = ()
    reward: float = 0.0
    answer: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)

    def to_plain(self) -> dict[str, Any]:
        """JSON values."""
        path = [
            {
                "tool": taken.call.tool,
                "args": dict(taken.call.args),
                "output": taken.observation.output,
                "ok": taken.observation.ok,
            }
            for taken in self.path
        ]
        return {**vars(self), "path": path, "counts": dict(self.counts)}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Found:
        """The inverse of `to_plain`."""
        path = tuple(
            Taken(EnvironmentCall(each["tool"], each["args"]), Observation(each["output"], each["ok"]))
            for each in plain["path"]
        )
        return cls(**{**plain, "path": path})


def run_of(task: Task, path: Sequence[Taken], *, answer: str = "") -> Run:
    """A path as a run: one turn for each call."""
    events: list[UserMessage | Turn] = [UserMessage(task.request, digest("task", task.id))]
    for number, taken in enumerate(path):
        key = digest("search", task.id, number, taken.call.tool, canon_args(taken.call.args))
        status: Status = "ok" if taken.observation.ok else "failed"
        args = dict(taken.call.args)
        step = ExecutedCall(taken.call.tool, args, taken.observation.output, status, "model", f"call_{key}", key)
        events.append(Turn((step,), "", "model", digest("turn", key), settled=True))
    if answer:
        events.append(Turn((), answer, "model", digest("words", task.id), settled=True))
    return Run(tuple(events), task.id, truncated=False, next_key=None, thought="")


def steps_of_paths(found: Iterable[Found], specs: Mapping[str, ToolSpec]) -> list[Extracted]:
    """The steps of the paths that ended well with their atoms, not merged, in the order in which they are given."""
    good = [each for each in found if each.path]
    runs = [run_of(Task(each.task, each.request), each.path) for each in good]
    extractor = Extractor(specs, habits=Habits(runs))
    read = (
        extractor.steps(run, value=each.reward, origin="search", source=each.task)
        for run, each in zip(runs, good, strict=True)
    )
    return [step for steps in read for step in steps]


def atoms_of_paths(found: Iterable[Found], specs: Mapping[str, ToolSpec]) -> list[Atom]:
    """The merged atoms of the paths that ended well, without a model."""
    return merge_all(each.atom for each in steps_of_paths(found, specs))


def needed(path: Sequence[Taken], reads: Mapping[str, bool], request: str) -> tuple[Taken, ...]:
    """The path without calls that only read and whose answers nothing behind them was made of.

    Args:
        path: calls that led to success.
        reads: by tool, whether it changes nothing.
        request: what the user said; values in it need no call.
    """
    kept = list(path)
    for index in range(len(kept) - 1, -1, -1):
        if not reads.get(kept[index].call.tool, False) or index == len(kept) - 1:
            continue
        if not is_used(kept, index, request):
            del kept[index]
    return tuple(kept)


def is_used(path: Sequence[Taken], index: int, request: str) -> bool:
    """Return True if a call of a path needed what the one at `index` told: nothing before it had told that."""
    before = _texts(path[:index])
    known = request.lower() + "\n" + "\n".join(sorted(before))
    later = [canon(value).lower() for taken in path[index + 1 :] for _, value in leaves_of(taken.call.args)]
    used = (value for value in _texts([path[index]]) - before if len(value) >= SHORTEST_PART or value.isdigit())
    if any(_is_in(value, text) for value in used if value not in known for text in later):
        return True
    said = _prose(path[index])
    return any(_stands_in(text, said) and not _stands_in(text, known) for text in later if said)


def _texts(path: Iterable[Taken]) -> set[str]:
    """The values that calls told, in small letters."""
    values = (value for taken in path for value in told(taken) if value[0] != "[")
    return {(value[1:] if value[0] == "'" else value.rsplit("=", 1)[-1]).lower() for value in values}


def _prose(taken: Taken) -> str:
    """The answer of a call that answered with a text, in small letters."""
    output = taken.observation.output
    return output[:MAX_PROSE].lower() if isinstance(output, str) else ""


def _stands_in(value: str, text: str) -> bool:
    """Return True if a value stands in a text as a word of its own."""
    if len(value) < SHORTEST_PART and not value.isdigit():
        return False
    return re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text) is not None


def _is_in(value: str, text: str) -> bool:
    return value == text or (len(value) >= SHORTEST_PART and value in text) or (len(text) > 1 and text in value.split())
