"""The step of inertia at a model call: it makes the call if past runs leave little doubt, or lets the model answer."""

from __future__ import annotations

import json
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, TypeVar

from langchain_core.messages import AIMessage, ToolCall
from langchain_core.tools import BaseTool

from langgraph_toolmem.base.checks import policy_given
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.core.episodes import HELD_OUT
from langgraph_toolmem.inertia import Inertia
from langgraph_toolmem.inertia.agents import AgentPolicy
from langgraph_toolmem.inertia.apart import Interceptors
from langgraph_toolmem.inertia.context import PrefetchedContext
from langgraph_toolmem.inertia.decision import Decision, Proposal, Refusal, note_decision
from langgraph_toolmem.inertia.exchange import ContextLookups
from langgraph_toolmem.inertia.forecast import InertiaForecast
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.prefetch import FREE_CHOICE, Prefetch, Prefetcher
from langgraph_toolmem.inertia.quoted import marked
from langgraph_toolmem.inertia.settings import SWITCHED_OFF, settings_policy
from langgraph_toolmem.runs.messages import no_usage
from langgraph_toolmem.turn.hints import StepOutput
from langgraph_toolmem.turn.host import config_of
from langgraph_toolmem.turn.providers import refusal_of
from langgraph_toolmem.turn.step import Call, Step

S = TypeVar("S", Prefetch, PrefetchedContext)


class Shortcut(Step[Inertia]):
    """Makes the next call without asking the model, if the record permits it.

    Args:
        method: owner of the step.
        policy: when to act. Defaults to the method's own.
        models: models that may get the history, besides the one of the call. If the API of one of them refuses turns
            that it did not make, no shortcut is taken.
    """

    role: ClassVar[str] = "inertia"
    about: ClassVar[str] = "makes the next tool call if past calls are clear enough, else asks the model"
    learns: ClassVar[bool] = True

    def __init__(self, method: Inertia, *, policy: InertiaPolicy | None = None, models: Iterable[Any] = ()) -> None:
        super().__init__(method)
        self.policy = policy_given(policy, InertiaPolicy)
        self.prefetcher: Prefetcher | None = None
        self.context: ContextLookups | None = None
        self.models = tuple(models)
        self._decided: OrderedDict[str, InertiaForecast] = OrderedDict()
        self.core.texts.register(self.forget_decisions)

    def forget_decisions(self) -> None:
        """Drop the decisions that are kept for a retry, because they contain arguments."""
        self._decided.clear()

    def enable_prefetch(self, prefetch: bool | Prefetch, interceptors: Interceptors, *, recorded: bool = False) -> None:
        """Prefetch likely look-ups while the model is asked, unless `prefetch` is False.

        Args:
            prefetch: True, False or the settings.
            interceptors: the host's code around tool calls.
            recorded: True if results are certainly served, because the memory is at the tools too.
        """
        settings = _settings_given("prefetch", prefetch, Prefetch)
        if settings is not None:
            self.prefetcher = Prefetcher(self.method.prefetched, settings, interceptors, recorded=recorded)

    def enable_context(
        self, context: bool | PrefetchedContext, interceptors: Interceptors, *, recorded: bool = False
    ) -> None:
        """Make likely look-ups before the model is asked, unless `context` is False.

        Args:
            context: True, False or the settings.
            interceptors: the host's code around tool calls.
            recorded: True if results are certainly served, because the memory is at the tools too.
        """
        settings = _settings_given("context", context, PrefetchedContext)
        if settings is not None:
            self.context = ContextLookups(self.method, settings, interceptors, self.models, recorded=recorded)

    def compute(self, call: Call) -> InertiaForecast:
        """The decision about this model call; the model turn begins with it.

        A retry by the host is the same turn, and gets the same decision as long as the turn's end is unknown.
        """
        # A second decision would draw another audit and open the turn twice. With other offered tools it is a new
        # decision.
        turn = self.core.read(call.messages, call.thread_id).next_key or ""
        decided = self._decided.get(turn)
        if decided is not None and decided.offered == frozenset(call.tools or ()) and self.method.is_open(turn):
            return decided
        decided = self._decide(call)
        most = 256  # decisions that are kept for a retry
        self._decided[turn] = decided
        if len(self._decided) > most:
            self._decided.popitem(last=False)
        return decided

    def _decide(self, call: Call) -> InertiaForecast:
        offered = frozenset(call.tools or ())
        given = self.policy or self.method.policy
        policy = settings_policy(call.context, given)
        if policy is None:
            return InertiaForecast(Decision(None, SWITCHED_OFF), self.method.policy, offered)
        lookups: Mapping[str, BaseTool] = {}
        # A host that puts one run into shadow mode wants the plain run, also without look-ups before the model.
        shadow_for_this_run = policy.shadow and not given.shadow
        if self.context is not None and not shadow_for_this_run:
            lookups = self.context.tools_of(call)
        agent = AgentPolicy(self._agent_name(), policy, prefetch=self.prefetcher is not None)
        never = self._left_out(call)
        if never:
            policy = policy.with_(never=policy.never | never)
        decision = self.method.begin_turn(
            call.messages,
            call.owner,
            policy=policy,
            tools=call.tools,
            recorded=call.recorded,
            forbidden=self._forbidden(call),
            model_input=call.model_input,
            agent=agent,
            lookups=lookups,
        )
        return InertiaForecast(decision, policy, offered, lookups)

    def _left_out(self, call: Call) -> set[str]:
        """Return the tools that an earlier step removed from the request."""
        # A tool that tool search or another step did not offer is not called without the model.
        left_out = set(call.left_out)
        for name in self.core.catalogue.specs:
            if not call.allows(name):
                left_out.add(name)
        return left_out

    @staticmethod
    def _agent_name() -> str:
        """Return the name that ``create_agent(name=...)`` gives the agent; "" if it has none."""
        metadata = (config_of() or {}).get("metadata") or {}
        return str(metadata.get("lc_agent_name") or "")

    def render(self, call: Call, found: InertiaForecast) -> StepOutput:
        """Return the call in the model's place, or an empty output."""
        decision = found.decision
        call.forecast = None if call.held_out else found
        note_decision(self.role, decision)
        answer = None
        if decision.acts and decision.proposal is not None:
            answer = shortcut_message(decision.proposal, announce=found.policy.announces())
        return StepOutput(answer=answer, event=decision.to_event())

    def _forbidden(self, call: Call) -> Refusal | None:
        if call.held_out:
            return Refusal("held_out", HELD_OUT)
        if call.tool_choice not in FREE_CHOICE:
            return Refusal("tool_choice", "the request settles which tools may be called: the model is asked")
        # Also the models that the host may fall back to: they get the same history.
        for model in (call.model, *self.models):
            if model is not None and (rule := refusal_of(model, call.settings)):
                text = f"{rule}: its API refuses turns that the model did not make"
                return Refusal("provider", text)
        return None


def _settings_given(option: str, given: bool | S, kind: type[S]) -> S | None:
    """Return the settings of a feature; None if it is off."""
    if given is False:
        return None
    settings = kind() if given is True else given
    if not isinstance(settings, kind):
        raise ConfigurationError(f"{option} is True, False or a {kind.__name__}, not {given!r}.")
    return settings


def shortcut_message(proposal: Proposal, *, announce: bool) -> AIMessage:
    """Return the message in the model's place: a call, or several of one tool, marked as made by the shortcut.

    Args:
        proposal: the call.
        announce: say in the text, for the model to read, that the shortcut chose the call (as the paper does).
    """
    # Through JSON, like a model's own arguments, so that the record shares no objects with the host's state.
    calls = json.loads(json.dumps([dict(args) for args in proposal.calls], default=str))
    text = ""
    if announce:
        arguments = [json.dumps(args, ensure_ascii=False) for args in calls]
        text = f"[inertia shortcut] The tool graph chose {proposal.tool} with {', then '.join(arguments)}."
    mark = {
        "by": "inertia",
        "confidence": round(float(proposal.confidence), 4),
        "evidence": proposal.evidence,
    }
    made = []
    for args in calls:
        call_id = f"call_{uuid.uuid4().hex[:24]}"
        made.append(ToolCall(name=proposal.tool, args=args, id=call_id, type="tool_call"))
    return AIMessage(content=text, tool_calls=made, usage_metadata=no_usage(), **marked(mark))
