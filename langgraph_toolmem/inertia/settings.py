"""Settings of one run, read from the host's context. LangGraph Studio and an assistant can change them.

`InertiaSettings` is made to be a ``context_schema``; the nodes and the middleware read the same keys from any
other context too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import lru_cache
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from langgraph_toolmem.base.checks import nearest
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.inertia.decision import Refusal
from langgraph_toolmem.inertia.policy import Bound, InertiaPolicy
from langgraph_toolmem.turn.host import env_mode, warn_once

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
        for key in given if isinstance(given, Mapping) else ():
            if key not in cls.model_fields and (meant := nearest(str(key), cls.model_fields)):
                raise ValueError(f"{cls.__name__} has no {key!r}; did you mean {meant!r}?")
        return given

    @field_validator("*", mode="before")
    @classmethod
    def _left_empty(cls, value: Any, info: Any) -> Any:
        """Treat an empty field of a form as missing; fields of subclasses are unchanged."""
        return None if value == "" and info.field_name in InertiaSettings.model_fields else value


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
        try:
            value = _value_of(context, key)
            if value is None:
                continue
            if key == "inertia_mode" and value == "off":
                return None
            wanted = _wanted(policy, key.removeprefix(_PREFIX), value)
        except Exception as error:  # noqa: BLE001 - whatever the host has in its context is its own affair
            warn_once("%s in the context is no use and is ignored (logged once).", key)
            logger.debug("%s: %s", type(error).__name__, error)
            continue
        # The person who starts a run chooses its context, and may be an end user. So a setting only tightens.
        tightened = _tightened(policy, wanted)
        if tightened == policy != wanted:
            warn_once("%s in the context would loosen the policy and is ignored.", key)
        policy = tightened
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
            raise ConfigurationError(f"inertia_mode is 'act', 'shadow' or 'off', not {value!r}.")
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


__all__ = ["SWITCHED_OFF", "InertiaSettings", "settings_policy"]
