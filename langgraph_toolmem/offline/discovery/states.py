"""States of a search: what is known, what was changed, and the sub-goal; and when two of them are the same.

Two paths lead to the same state if the same values are known, the same changes were made, and the sub-goal is the
same. Calls that only read may come in any order. Changes that have an identifier in common keep their order; others
may be swapped (they commute as traces do). So a call that tells nothing new and changes nothing leads back to where
it was made, and a path that goes round meets itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from langgraph_toolmem.atoms.known import leaves_of
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.offline.discovery.environment import EnvironmentCall, Observation, Taken, Task
from langgraph_toolmem.runs.tools import ToolSpec, side_effects
from langgraph_toolmem.runs.values import canon, flatten
from langgraph_toolmem.text.values import shape_of

MAX_PROSE: Final = 400
"""Characters of a text that count as one value; of longer ones only the digest is kept."""


@dataclass(frozen=True)
class Goal:
    """The sub-goal that is worked on.

    Attributes:
        text: what is to be done next.
        number: from 0.
        of: how many there are.
        tools: names of the tools that have to do with it, the most relevant first; empty: any.
    """

    text: str
    number: int = 0
    of: int = 1
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class State:
    """Where a search is: s = ⟨history, what is known, sub-goal⟩.

    Attributes:
        task: what is to be done.
        taken: the calls on the way that went well, without those that told nothing.
        goal: the sub-goal.
        known: values that reading told, in a comparable form.
        changes: digest of each change by the identifiers in it, in order.
        changed: the calls on the way that may have changed something.
    """

    task: Task
    taken: tuple[Taken, ...] = ()
    goal: Goal = Goal("")
    known: frozenset[str] = frozenset()
    changes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    changed: tuple[Taken, ...] = ()

    @cached_property
    def key(self) -> str:
        """Equal for equal states."""
        return digest("state", self.goal.text, self.goal.number, "\x1f".join(sorted(self.known)), self.world)

    @cached_property
    def world(self) -> str:
        """Equal where the same changes were made: there, reading the same tells the same."""
        return digest("world", *(f"{of}\x1e{'|'.join(marks)}" for of, marks in sorted(self.changes.items())))

    def after(self, taken: Taken, *, reads: bool) -> State:
        """The state after a call that went well; its key is this one's if the call told and changed nothing.

        Args:
            taken: the call.
            reads: it changes nothing.
        """
        gone = replace(self, taken=(*self.taken, taken))
        if reads:
            new = {each for each in told(taken) - self.known if is_new(each)}
            values = frozenset(_values(taken.call, taken.observation)) if new else frozenset()
            return replace(gone, known=self.known | values)
        changes = dict(self.changes)
        mark = digest("change", *taken.call.key)
        for resource in resources_of(taken.call) or ("",):
            changes[resource] = (*changes.get(resource, ()), mark)
        return replace(gone, changes=changes, changed=(*self.changed, taken))

    def at(self, goal: Goal) -> State:
        """The same state with another sub-goal."""
        return replace(self, goal=goal)


def told(taken: Taken) -> frozenset[str]:
    """The values in an answer, without those that were asked with. Numbers and truth values keep their place."""
    asked = {canon(value) for _, value in leaves_of(taken.call.args)}
    return frozenset(found for found in _values(taken.call, taken.observation) if found[1:] not in asked)


def is_new(value: str) -> bool:
    """Return True if a value tells something: an empty answer's "total: 0" does not."""
    return not (value.startswith("#") and value.endswith("=0"))


def resources_of(call: EnvironmentCall) -> tuple[str, ...]:
    """The identifiers in a call's arguments, each once: what it is done to."""
    values = (value for _, value in leaves_of(call.args) if isinstance(value, str))
    return tuple(sorted({value for value in values if value and " " not in value and shape_of(value) is not None}))


def only_reads(spec: ToolSpec | None) -> bool:
    """Return True if a tool is declared to change nothing."""
    return spec is not None and side_effects(spec) == "reads"


def _values(call: EnvironmentCall, observation: Observation) -> Iterator[str]:
    output: Any = observation.output
    if isinstance(output, str):
        yield "'" + (output if len(output) <= MAX_PROSE else digest(output))
        return
    flat = flatten(output)
    leaves = [*flat.scalars.items(), *((path, value) for path, values in flat.lists.items() for value in values)]
    for path, values in flat.lists.items():
        yield f"[{digest(path, *map(canon, values))}"  # which rows there are is known too
    for path, value in leaves:
        if isinstance(value, str):
            yield "'" + (value if len(value) <= MAX_PROSE else digest(value))
        else:
            yield f"#{call.tool}{path}={canon(value)}"
