"""A policy that asks a chat model: Plan, Act and Reflect, each one structured answer.

Arguments are JSON texts, because strict schemas of some providers forbid free objects. Calls of unknown tools, or with
arguments that a tool's schema rejects, are dropped before the execution.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from pydantic import BaseModel, Field

from langgraph_toolmem.base.text import as_text, shortened
from langgraph_toolmem.entries.entry import bounded, describe_tools
from langgraph_toolmem.offline.coldstart import MATERIAL
from langgraph_toolmem.papers.sga_mcts.search import ActionProposal, EnvironmentCall, Goal, State, Transition
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.turn.structured import StructuredModel, sections

Form = TypeVar("Form", bound=BaseModel)

MAX_STEP: Final = 1_200
"""Characters of a call with its answer."""
MAX_HISTORY: Final = 12_000
"""Characters of all calls so far."""
MAX_ACTIONS: Final = 5
"""Limit of calls of one answer."""

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
A call of a tool failed. Say what was tried and with what result; say what was wrong; propose what to do instead, the \
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

    context: str = Field(description="What was tried, and the result.")
    critique: str = Field(description="What was wrong with it.")
    alternatives: list[ProposedCall] = Field(description="What to do instead, the best first.")


class ModelPolicy:
    """A `Policy` that asks a chat model.

    Args:
        model: the chat model.
        specs: the tools by name.
        config: makes the config of each call.
    """

    def __init__(
        self, model: BaseChatModel, specs: Mapping[str, ToolSpec], config: Callable[[], RunnableConfig]
    ) -> None:
        self._specs, self._config = dict(specs), config
        self._planner, self._actor = StructuredModel(model, PlanAnswer), StructuredModel(model, ActAnswer)
        self._reflector = StructuredModel(model, ReflectAnswer)

    def plan(self, state: State) -> Goal:
        """See `Policy`. One question."""
        # The first state has no sub-goal yet.
        number = 0
        if state.goal.text:
            number = state.goal.number + 1
        answer = self._ask(self._planner, _PLANNER, self._parts(state, tuple(self._specs)))
        if answer is None or not answer.focus.strip():
            return Goal(state.goal.text or state.task.request, number, number + 1)
        # The model may name tools that do not exist, and one tool twice.
        known = [name for name in answer.tools if name in self._specs]
        tools = tuple(dict.fromkeys(known))
        return Goal(" ".join(answer.focus.split()), number, number + max(1, len(answer.steps)), tools)

    def propose(self, state: State) -> Sequence[ActionProposal]:
        """See `Policy`. One question; an unreadable answer gives no proposals."""
        answer = self._ask(self._actor, _ACTOR, self._parts(state, state.goal.tools or tuple(self._specs)))
        if answer is None:
            return []
        # The model may be wrong about the end, so its calls stay actions of the state.
        if answer.finished:
            return [ActionProposal("finish", 1.0, answer=answer.answer), *self._calls(answer.calls, state)]
        if answer.completed and state.goal.number + 1 < state.goal.of:
            return [ActionProposal("plan")]
        return self._calls(answer.calls, state)

    def reflect(self, state: State, failed: Transition) -> Sequence[ActionProposal]:
        """See `Policy`. One question."""
        parts = self._parts(state, (failed.call.tool, *state.goal.tools)) | {"The call that failed": _line(failed)}
        answer = self._ask(self._reflector, _REFLECTOR, parts)
        if answer is None:
            return []
        # The failed call is not on the path, so `_calls` accepts it.
        alternatives = self._calls(answer.alternatives, state)
        return [proposal for proposal in alternatives if proposal.call != failed.call]

    def _ask(self, model: StructuredModel[Form], rules: str, parts: Mapping[str, str]) -> Form | None:
        return model.ask([SystemMessage(rules), HumanMessage(sections(parts))], self._config()).value

    def _calls(self, proposed: Sequence[ProposedCall], state: State) -> list[ActionProposal]:
        made = {transition.call.key for transition in state.path}
        proposals = []
        for action in proposed[:MAX_ACTIONS]:
            call = _read(action, self._specs)
            if call is not None and call.key not in made:
                # Above 0: a proposal without weight would not be tried at all.
                weight = min(1.0, max(0.05, action.likely))
                proposals.append(ActionProposal("call", weight, call))
        return proposals

    def _parts(self, state: State, first: Sequence[str]) -> dict[str, str]:
        shown: dict[str, ToolSpec] = {}
        for name in first:
            if name in self._specs:
                shown[name] = self._specs[name]
        lines = []
        for number, transition in enumerate(state.path, start=1):
            lines.append(f"{number}. {_line(transition)}")
        return {
            "Request": state.task.request,
            "Tools": describe_tools(shown or self._specs, tuple(first)),
            "Sub-goal": state.goal.text or "(not planned yet)",
            "Calls so far, with the tools' answers": bounded(lines, MAX_HISTORY) or "(none)",
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


def _line(transition: Transition) -> str:
    call, observation = transition.call, transition.observation
    asked = shortened(f"{call.tool}({as_text(dict(call.args))})", MAX_STEP)
    if not observation.ok:
        asked += " [failed]"
    return shortened(f"{asked} → {as_text(observation.output)}", MAX_STEP)
