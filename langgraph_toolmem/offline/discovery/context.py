"""What a state knows, put together for all inputs of all tools: facts, and what became of the request's own values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from langgraph_toolmem.atoms.known import leaves_of
from langgraph_toolmem.atoms.words import DATE, EMAIL, TEXT, URL
from langgraph_toolmem.offline.discovery.environment import Taken
from langgraph_toolmem.offline.discovery.facts import REQUEST, Fact, Request
from langgraph_toolmem.offline.discovery.states import State
from langgraph_toolmem.offline.discovery.toolbox import Toolbox
from langgraph_toolmem.runs.values import canon

FEW_ROWS: Final = 2
"""Rows up to which an answer is about the one thing that was asked about."""


@dataclass(frozen=True)
class Candidate:
    """A value for an input.

    Attributes:
        value: a JSON value of the input's type.
        fit: how well it fits, 0 to 1.
        fact: where it comes from; None: put together.
    """

    value: Any
    fit: float
    fact: Fact | None = None


@dataclass
class Context:
    """What a state knows, for all inputs of all tools."""

    state: State
    request: Request
    facts: Sequence[Fact]
    toolbox: Toolbox
    wide: bool = False
    """Any word of the request may be what a text is, where a tool that reads must have one."""
    used: set[str] = field(default_factory=set)
    used_by: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    found: dict[object, list[Candidate]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reads what the calls so far were given."""
        self._told = "\n".join(
            fact.value.lower()
            for fact in self.facts
            if fact.step != REQUEST and isinstance(fact.value, str) and fact.kind not in (EMAIL, URL)
        )
        for taken in self.state.taken:
            for path, value in leaves_of(taken.call.args):
                self.used.add(canon(value))
                self.used_by.setdefault((taken.call.tool, path), set()).add(canon(value))

    def is_told(self, fact: Fact) -> bool:
        """Whether a name of the request was found in an answer."""
        return str(fact.value).lower() in self._told

    @cached_property
    def unexplained(self) -> list[Fact]:
        """Names in the request that no answer was about and no call was given; of two that overlap neither was."""
        given = "\n".join(_plain(each) for each in self.used)
        names = self.request.names()
        clear = [fact for fact in names if self.is_told(fact) or _plain(str(fact.value)) in given]
        return [fact for fact in names if not any(_overlap(fact, other) for other in clear)]

    @cached_property
    def waiting(self) -> frozenset[str]:
        """Dates and quoted parts of the request that no call was given yet, but for those in what is to be told."""
        return (
            frozenset(
                canon(fact.value)
                for fact in self.request.facts
                if fact.kind in (DATE, TEXT) and str(fact.value) not in self.request.message
            )
            - self.used
        )

    @cached_property
    def idle(self) -> list[frozenset[str]]:
        """For each name that was asked about: the values of the answer, if none of them was used since."""
        names = {canon(fact.value) for fact in self.request.names()}
        found: list[frozenset[str]] = []
        for index, taken in enumerate(self.state.taken):
            if not self.toolbox.reads.get(taken.call.tool) or not names & _given(taken):
                continue
            facts = [fact for fact in self.facts if fact.step == index]
            if max((fact.row for fact in facts), default=0) >= FEW_ROWS:
                continue  # a list of things, and not the one that was asked about
            told = frozenset(canon(fact.value) for fact in facts if fact.kind) - names
            if not any(told & _given(later) for later in self.state.taken[index + 1 :]):
                found.append(told)
        return found

    @cached_property
    def addresses(self) -> tuple[str, ...]:
        """The mail addresses of those whom the user named, as far as answers told them, in the order of the names."""
        rows: dict[tuple[int, str, int], list[Fact]] = {}
        for fact in self.facts:
            if fact.step != REQUEST and isinstance(fact.value, str):
                rows.setdefault((fact.step, fact.path.split("[*]")[0] if fact.row >= 0 else "", fact.row), []).append(
                    fact
                )
        of: dict[str, str] = {}
        for row in rows.values():
            mails = [str(fact.value) for fact in row if fact.kind == EMAIL]
            if len(mails) == 1:
                of |= {str(fact.value).lower(): mails[0] for fact in row if fact.kind != EMAIL}
        found = (of.get(str(name.value).lower()) for name in self.request.names())
        return tuple(dict.fromkeys(filter(None, found)))

    @cached_property
    def called(self) -> frozenset[str]:
        """Stems by which known values and the tools called so far go."""
        found = {word for fact in self.facts if fact.step != REQUEST for word in fact.words}
        return frozenset(found)

    @cached_property
    def fresh(self) -> frozenset[str]:
        """Values of the request that no call was given yet."""
        return frozenset(canon(fact.value) for fact in self.request.facts if fact.sure) - self.used

    @property
    def latest(self) -> int:
        """Index of the latest call."""
        return len(self.state.taken) - 1


def _given(taken: Taken) -> set[str]:
    return {canon(value) for _, value in leaves_of(taken.call.args)}


def _plain(text: str) -> str:
    """Letters and digits alone: ``ann.lee@x.org`` has "annlee" in it."""
    return re.sub(r"\W|_", "", text.lower())


def _overlap(one: Fact, other: Fact) -> bool:
    """Whether two names stand at the same place of the request, or are the same."""
    ends = one.order + len(str(one.value)), other.order + len(str(other.value))
    return one.value == other.value or (one.order < ends[1] and other.order < ends[0])
