"""What a search asks a policy for: a plan, the next actions, and what to try after a call that failed.

`asking.ModelPolicy` asks any chat model; another one is given to `Discovery` as ``policy=``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from langgraph_toolmem.offline.discovery.environment import EnvironmentCall, Taken
from langgraph_toolmem.offline.discovery.states import Goal, State

Action = Literal["call", "plan", "finish"]


@dataclass(frozen=True)
class Proposal:
    """One action that could come next.

    Attributes:
        action: ``call`` a tool; ``plan``: the sub-goal is completed, what comes next is to be planned; ``finish``: the
            task is done, and `answer` is the last word.
        weight: how promising, above 0; those of one state are compared with each other.
        call: of a ``call``.
        answer: of a ``finish``.
    """

    action: Action
    weight: float = 1.0
    call: EnvironmentCall | None = None
    answer: str = ""


def call(tool: str, args: dict[str, object], weight: float = 1.0) -> Proposal:
    """A tool call as a proposal."""
    return Proposal("call", weight, EnvironmentCall(tool, args))


@dataclass(frozen=True)
class Reflection:
    """What is made of a call that failed: it says what was tried, what was wrong with it, and what else there is.

    Attributes:
        context: what was tried, and what came of it.
        critique: what was wrong.
        alternatives: what to do instead; the first is the pivot, tried before anything else in this state.
    """

    context: str
    critique: str
    alternatives: tuple[Proposal, ...] = ()


class Policy(Protocol):
    """What guides a search. It may be asked again about a state it was asked about before."""

    def plan(self, state: State) -> Goal:
        """The sub-goal to work on in this state, with the tools that have to do with it."""
        ...

    def propose(self, state: State, possible: Sequence[EnvironmentCall] | None) -> Sequence[Proposal]:
        """Return what could be done next, the most promising first; nothing if the state is hopeless.

        Args:
            state: where the search is.
            possible: the calls that the environment knows to be possible; None: it does not tell.
        """
        ...

    def widen(self, state: State) -> Sequence[Proposal]:
        """Return what else could be done, once all that was proposed in this state led nowhere."""
        ...

    def reflect(self, state: State, failed: Taken) -> Reflection:
        """Return what to do instead of a call that failed in this state."""
        ...
