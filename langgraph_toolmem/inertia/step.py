"""The shortcut at a model call: it makes the call if past runs leave little doubt, or lets the model answer.

The step (`Shortcut`) comes first, then the settings of one run, which it reads from the host's context. LangGraph
Studio and an assistant can change them: `InertiaSettings` is made to be a ``context_schema``. The nodes and the
middleware read the same keys from any other context too.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

from langchain_core.messages import AIMessage, ToolCall
from langchain_core.tools import BaseTool
from pydantic import BaseModel, Field, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from langgraph_toolmem.base.caches import drop_oldest
from langgraph_toolmem.base.checks import nearest, policy_given
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.core.trials import HELD_OUT
from langgraph_toolmem.inertia import Inertia
from langgraph_toolmem.inertia.context import PrefetchedContext
from langgraph_toolmem.inertia.decision import Decision, InertiaForecast, Proposal, Refusal, note_decision
from langgraph_toolmem.inertia.exchange import ContextLookups, marked
from langgraph_toolmem.inertia.policy import Bound, InertiaPolicy
from langgraph_toolmem.inertia.prefetch import FREE_CHOICE, Prefetch, Prefetcher
from langgraph_toolmem.inertia.review import AgentPolicy
from langgraph_toolmem.inertia.speculative import Interceptors
from langgraph_toolmem.runs.run import no_usage
from langgraph_toolmem.turn.hints import StepOutput
from langgraph_toolmem.turn.host import config_of, env_mode, warn_once
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
        self._decided: dict[str, InertiaForecast] = {}
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
        drop_oldest(self._decided, most)
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
        # A held-out episode runs without the memory, so nothing is prefetched in it.
        call.forecast = None
        if not call.held_out:
            call.forecast = found
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
            if model is None:
                continue
            rule = refusal_of(model, call.settings)
            if rule:
                return Refusal("provider", f"{rule}: its API refuses turns that the model did not make")
        return None


def _settings_given(option: str, given: bool | S, kind: type[S]) -> S | None:
    """Return the settings of a feature; None if it is off."""
    if given is False:
        return None
    settings = kind() if given is True else given
    if not isinstance(settings, kind):
        raise ConfigurationError(f"`{option}` must be True, False or a {kind.__name__}, got {given!r}.")
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


# --- settings of one run ---


logger = logging.getLogger("langgraph_toolmem.inertia.settings")

SWITCHED_OFF: Final = Refusal("switched_off", "switched off for this run (inertia_mode)")
"""The reason of a decision under mode "off"."""
_PREFIX: Final = "inertia_"
_MODES: Final = ("shadow",)
"""Modes that are written as a key of their own: ``{"shadow": True}``."""

# None is left out of the schema, so that a form shows a list or a number instead of "any of".
_Absent = SkipJsonSchema[None]
_Share = Annotated[float, Field(ge=0, le=1)]
_Percent = Annotated[float, Field(ge=0, le=100)]


def _setting(title: str, description: str) -> Any:
    extra: Any = {"langgraph_nodes": ["inertia", "model"]}
    return Field(default=None, title=title, description=description, json_schema_extra=extra)


class InertiaSettings(BaseModel):
    """A ``context_schema`` with the settings of the shortcut; missing settings keep the values of the code.

    A setting can only tighten the policy of the code, because the person who starts a run chooses it. A setting that
    would loosen the policy is ignored.

    For ``StateGraph(State, context_schema=InertiaSettings)`` and ``create_agent(…, context_schema=InertiaSettings)``.
    Subclass it to add fields of your own. Studio shows each setting at the nodes named "inertia" and "model".
    A value out of its range, and a misspelt key, are refused before the run begins.
    """

    user_id: str | _Absent = _setting(
        "User id", "Whose run it is: keeps personal memory apart where the namespace has a place for the user."
    )
    inertia_mode: Literal["act", "shadow", "off"] | _Absent = _setting(
        "Shortcut",
        "act: may make a call without asking the model. shadow: predicts and keeps the record, never acts. "
        "off: the model is asked and the shortcut does nothing.",
    )
    inertia_min_precision: _Share | _Absent = _setting(
        "Least precision",
        "The probability of being exactly right from which a call is proposed, whether it reads or changes something.",
    )
    inertia_max_wrong_per_100: _Percent | _Absent = _setting(
        "Wrong calls per 100 turns",
        "Budget: no call is made while one more miss would bring the misses per 100 model turns above it.",
    )
    inertia_audit_rate: _Share | _Absent = _setting(
        "Share of audits", "Share of the proposals that are checked against the model instead of acted on."
    )
    inertia_never: list[str] | _Absent = _setting(
        "Never shortcut", "Names of tools that are not shortcut in this run, besides those that the code names."
    )

    @model_validator(mode="before")
    @classmethod
    def _misspelt(cls, given: Any) -> Any:
        """Refuse a misspelt key of these settings; ignore others."""
        if not isinstance(given, Mapping):
            return given
        for key in given:
            if key in cls.model_fields:
                continue
            meant = nearest(str(key), cls.model_fields)
            if meant is not None:
                raise ValueError(f"{cls.__name__} has no {key!r}; did you mean {meant!r}?")
        return given

    @field_validator("*", mode="before")
    @classmethod
    def _left_empty(cls, value: Any, info: Any) -> Any:
        """Treat an empty field of a form as missing; fields of subclasses are unchanged."""
        if value == "" and info.field_name in InertiaSettings.model_fields:
            return None
        return value


def settings_policy(context: Any, policy: InertiaPolicy) -> InertiaPolicy | None:
    """Return the policy of this run: the one in the code, tightened by the host's context.

    A number applies to each bound (reads, writes) that it tightens. Settings that loosen the policy, and bad values,
    are logged once and ignored. ``TOOLMEM`` in the environment precedes the context.

    Args:
        context: ``runtime.context`` of any kind: None, a mapping, an object with attributes. Keys that
            `InertiaSettings` does not have belong to the host.
        policy: the policy in the code.

    Returns:
        The policy; None if the shortcut is switched off.
    """
    # The operator's switch in the environment outranks the settings of a run.
    mode = env_mode()
    if mode == "off":
        return None
    if mode:
        return policy.with_(shadow=mode == "shadow")
    _warn_of_misspelt_keys(context)
    for key in InertiaSettings.model_fields:
        if not key.startswith(_PREFIX):
            continue
        wanted = _wanted_by(context, key, policy)
        if wanted is None:
            return None
        if wanted is policy:
            continue
        # The person who starts a run chooses its context, and may be an end user. So a setting only tightens.
        tightened = _tightened(policy, wanted)
        if tightened == policy != wanted:
            warn_once("%s in the context would loosen the policy and is ignored.", key)
        policy = tightened
    return policy


def _wanted_by(context: Any, key: str, policy: InertiaPolicy) -> InertiaPolicy | None:
    """Return the policy with one setting of a context: the same one without the setting; None for mode "off"."""
    try:
        value = _value_of(context, key)
        if value is None:
            return policy
        if key == "inertia_mode" and value == "off":
            return None
        return _wanted(policy, key.removeprefix(_PREFIX), value)
    except Exception as error:  # noqa: BLE001 - whatever the host has in its context is its own affair
        warn_once("%s in the context cannot be used and is ignored (logged once).", key)
        logger.debug("%s: %s", type(error).__name__, error)
        return policy


def _warn_of_misspelt_keys(context: Any) -> None:
    for key in _keys_of(context):
        meant = _meant(key)
        if meant:
            warn_once("%r in the context is no setting of the memory and is ignored; did you mean %s?", key, meant)


def _value_of(context: Any, key: str) -> Any:
    """Return the value of a key in a context of any kind; None if it is missing, or an empty text."""
    value = context.get(key) if isinstance(context, Mapping) else getattr(context, key, None)
    # A form sends "" for a field that was left empty.
    if isinstance(value, str) and not value:
        return None
    return value


def _keys_of(context: Any) -> Iterable[str]:
    """Return the keys of a context: of a mapping, a dataclass, a pydantic model or another object."""
    keys = context if isinstance(context, Mapping) else getattr(context, "__dict__", ())
    return [key for key in keys if isinstance(key, str)]


@lru_cache(maxsize=1024)
def _meant(key: str) -> str:
    """Return the setting that a misspelt key of the context means; "" if the key is a setting, or belongs to the
    host.
    """
    if key in InertiaSettings.model_fields:
        return ""
    if key in _MODES:
        return f"inertia_mode={key!r}"
    plain = key.lower()
    # The context belongs to the host: only a key that resembles one of these is logged as a mistake.
    is_near = plain.startswith(_PREFIX.rstrip("_")) or get_close_matches(plain.split("_")[0], ["inertia"], cutoff=0.8)
    if not is_near:
        return ""
    known = [field for field in InertiaSettings.model_fields if field.startswith(_PREFIX)]
    return nearest(plain, known) or f"one of {', '.join(known)}"


def _wanted(policy: InertiaPolicy, name: str, value: Any) -> InertiaPolicy:
    if name == "mode":
        if value not in ("act", "shadow"):
            raise ConfigurationError(f"inertia_mode must be 'act', 'shadow' or 'off', got {value!r}.")
        return policy.with_(shadow=value == "shadow")
    # Added to the names in the code.
    if name == "never":
        value = policy.never | policy.with_(never=value).never
    return policy.with_(**{name: value})


def _tightened(policy: InertiaPolicy, wanted: InertiaPolicy) -> InertiaPolicy:
    """Return the policy of the settings, as far as it is tighter than the one in the code."""
    return replace(
        wanted,
        shadow=policy.shadow or wanted.shadow,
        audit_rate=max(policy.audit_rate, wanted.audit_rate),
        reads=_tighter(policy.reads, wanted.reads),
        writes=_tighter(policy.writes, wanted.writes),
    )


def _tighter(one: Bound, other: Bound) -> Bound:
    budgets = []
    for bound in (one, other):
        if bound.max_wrong_per_100 is not None:
            budgets.append(bound.max_wrong_per_100)
    return Bound(max(one.min_precision, other.min_precision), min(budgets, default=None))
