"""A policy that asks a chat model: Plan, Act and Reflect, each one structured call.

Arguments of calls come as JSON texts, since strict schemas of some providers allow no free objects. Calls of unknown
tools, or with arguments that a tool's schema refuses, are left out before anything is executed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from pydantic import BaseModel, Field

from langgraph_toolmem.base.text import as_text, shortened
from langgraph_toolmem.entries.critique import bounded, describe_tools
from langgraph_toolmem.offline.coldstart import MATERIAL
from langgraph_toolmem.offline.discovery.search import Goal, Proposal, Reflection, State
from langgraph_toolmem.offline.discovery.world import EnvironmentCall, Taken
from langgraph_toolmem.runs.tools import ToolSpec

Answer = TypeVar("Answer", bound=BaseModel)

MAX_STEP: Final = 1_200
"""Characters of one call with its answer."""
MAX_HISTORY: Final = 12_000
MAX_ACTIONS: Final = 5
"""Calls taken of one answer."""

_PLANNER: Final = f"""\
You plan how a request is carried out by calling tools, one step after the other. Look at what was done so far. Break \
what is still to be done into ordered sub-goals, say which one comes next, and name the tools that have to do with \
that one. A sub-goal is a result, in words that name no tool. {MATERIAL}"""
_ACTOR: Final = f"""\
You carry out a request by calling tools, one call at a time. Look at the sub-goal and at what tools have answered. \
Propose up to {MAX_ACTIONS} different calls that could come next, the best first. Use only values that stand in the \
request or in an answer. Never propose a call that was made already with the same arguments. Say if the sub-goal is \
completed; if the whole request is carried out, say so and give the last word to the user, which must rest on the \
answers alone. {MATERIAL}"""
_REFLECTOR: Final = f"""\
A call of a tool failed. Say what was tried and what came of it; say what was wrong; propose what to do instead, the \
best first: another tool, or clearly different arguments. {MATERIAL}"""


class PlanAnswer(BaseModel):
    """A plan for a request."""

    analysis: str = Field(description="What is wanted, and what is known.")
    strategy: str = Field(description="How it can be reached.")
    steps: list[str] = Field(description="The sub-goals that are still open, in order, without names of tools.")
    focus: str = Field(description="The one sub-goal to work on next.")
    tools: list[str] = Field(description="Names of the tools that have to do with that one.")


class ProposedCall(BaseModel):
    """A call of a tool."""

    tool: str = Field(description="Name of the tool.")
    arguments: str = Field(description="The arguments, as a JSON object.")
    likely: float = Field(description="How likely it is the right next call, from 0 to 1.")


class ActAnswer(BaseModel):
    """The next step."""

    thought: str = Field(description="What is known now, in one sentence.")
    completed: bool = Field(description="Whether the sub-goal is completed.")
    finished: bool = Field(description="Whether the whole request is carried out.")
    answer: str = Field(description="If it is: the last word to the user; else empty.")
    calls: list[ProposedCall] = Field(description="Calls that could come next, the best first.")


class ReflectAnswer(BaseModel):
    """The next step after a call that failed."""

    context: str = Field(description="What was tried, and what came of it.")
    critique: str = Field(description="What was wrong with it.")
    alternatives: list[ProposedCall] = Field(description="What to do instead, the best first.")


class Ask(Protocol):
    """Asks a model once, with rules and material; None if its answer cannot be read. May raise what it raises."""

    def __call__(self, schema: type[Answer], rules: str, parts: Mapping[str, str], /) -> Answer | None:
        """The answer, as the schema has it."""
        ...


class ModelPolicy:
    """A `Policy` that asks a chat model.

    Args:
        ask: asks it.
        specs: the tools, by name.
    """

    def __init__(self, ask: Ask, specs: Mapping[str, ToolSpec]) -> None:
        self._ask, self._specs = ask, dict(specs)

    def plan(self, state: State) -> Goal:
        """See `Policy`. One model call."""
        number = state.goal.number + 1 if state.goal.text else 0
        said = self._ask(PlanAnswer, _PLANNER, self._parts(state, tuple(self._specs)))
        if said is None or not said.focus.strip():
            return Goal(state.goal.text or state.task.request, number, number + 1)
        tools = tuple(dict.fromkeys(name for name in said.tools if name in self._specs))
        return Goal(" ".join(said.focus.split()), number, number + max(1, len(said.steps)), tools)

    def propose(self, state: State) -> Sequence[Proposal]:
        """See `Policy`. One model call; an answer that cannot be read proposes nothing."""
        said = self._ask(ActAnswer, _ACTOR, self._parts(state, state.goal.tools or tuple(self._specs)))
        if said is None:
            return []
        if said.finished:
            return [Proposal("finish", 1.0, answer=said.answer), *self._calls(said.calls, state)]
        if said.completed and state.goal.number + 1 < state.goal.of:
            return [Proposal("plan")]
        return self._calls(said.calls, state)

    def reflect(self, state: State, failed: Taken) -> Reflection:
        """See `Policy`. One model call."""
        parts = self._parts(state, (failed.call.tool, *state.goal.tools)) | {"The call that failed": _taken(failed)}
        said = self._ask(ReflectAnswer, _REFLECTOR, parts)
        if said is None:
            return Reflection("", "")
        others = [each for each in self._calls(said.alternatives, state) if each.call != failed.call]
        return Reflection(said.context, said.critique, tuple(others))

    def _calls(self, proposed: Sequence[ProposedCall], state: State) -> list[Proposal]:
        made = {taken.call.key for taken in state.taken}
        found: list[Proposal] = []
        for each in proposed[:MAX_ACTIONS]:
            call = _read(each, self._specs)
            if call is not None and call.key not in made:
                found.append(Proposal("call", min(1.0, max(0.05, each.likely)), call))
        return found

    def _parts(self, state: State, first: Sequence[str]) -> dict[str, str]:
        shown = {name: self._specs[name] for name in first if name in self._specs} or self._specs
        return {
            "Request": state.task.request,
            "Tools": describe_tools(shown, tuple(first)),
            "Sub-goal": state.goal.text or "(not planned yet)",
            "Calls so far, and what the tools answered": bounded(
                [f"{number}. {_taken(taken)}" for number, taken in enumerate(state.taken, start=1)], MAX_HISTORY
            )
            or "(none)",
        }


def _read(proposed: ProposedCall, specs: Mapping[str, ToolSpec]) -> EnvironmentCall | None:
    spec = specs.get(proposed.tool)
    try:
        args: Any = json.loads(proposed.arguments or "{}")
    except (ValueError, RecursionError):
        return None
    if spec is None or not isinstance(args, dict) or spec.problem(args) is not None:
        return None
    return EnvironmentCall(proposed.tool, args)


def _call(call: EnvironmentCall) -> str:
    return shortened(f"{call.tool}({as_text(dict(call.args))})", MAX_STEP)


def _taken(taken: Taken) -> str:
    said = "" if taken.observation.ok else " [failed]"
    return shortened(f"{_call(taken.call)}{said} → {as_text(taken.observation.output)}", MAX_STEP)
