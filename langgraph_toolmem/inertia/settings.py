"""Settings of one run, read from the host's context: what LangGraph Studio and an assistant can change.

`InertiaSettings` is made to be a ``context_schema``; the nodes and the middleware read the same keys from any
other context too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from langgraph_toolmem.base.checks import nearest
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.inertia.decision import Reason
from langgraph_toolmem.inertia.policy import Bound, InertiaPolicy, PaperPolicy
from langgraph_toolmem.turn import env_mode

logger = logging.getLogger("langgraph_toolmem.inertia.settings")

SWITCHED_OFF: Final = Reason("switched_off", "switched off for this run (inertia_mode)")
"""The reason of a decision under mode "off"."""

_AT_NODES: Final[dict[str, Any]] = {"langgraph_nodes": ["inertia", "model"]}

# None is left out of the schema, so that a form shows a list to choose from or a number, not "any of".
_Absent = SkipJsonSchema[None]
_Share = Annotated[float, Field(ge=0, le=1)]
_Percent = Annotated[float, Field(ge=0, le=100)]


class InertiaSettings(BaseModel):
    """A ``context_schema`` with the settings of the shortcut; what is not given stays as the code says.

    A setting can only tighten the policy of the code: whoever starts a run chooses it. One that would loosen the policy
    is ignored, unless the developer trusts the context: ``InertiaShortcut(memory, tools, trust_context=True)``.

    For ``StateGraph(State, context_schema=InertiaSettings)`` and ``create_agent(…, context_schema=InertiaSettings)``.
    Subclass it to add fields of your own. Studio shows each setting at the nodes named "inertia" and "model".
    A value out of its range, and a misspelt key, are refused before the run begins.
    """

    user_id: str | _Absent = Field(
        default=None,
        title="User id",
        description="Whose run it is: keeps personal memory apart where the namespace has a place for the user.",
        json_schema_extra=_AT_NODES,
    )
    inertia_mode: Literal["act", "shadow", "off"] | _Absent = Field(
        default=None,
        title="Shortcut",
        description="act: may make a call without asking the model. shadow: predicts and keeps the record, never "
        "acts. off: the model is asked and the shortcut does nothing.",
        json_schema_extra=_AT_NODES,
    )
    inertia_policy: Literal["calibrated", "paper"] | _Absent = Field(
        default=None,
        title="Policy",
        description="calibrated: acts on the record of whole predicted calls. paper: AutoTool as published. The "
        "tools that may not be shortcut stay the same. Needs trust_context.",
        json_schema_extra=_AT_NODES,
    )
    inertia_min_precision: _Share | _Absent = Field(
        default=None,
        title="Least precision",
        description="Calibrated policy: the probability of being exactly right from which a call is proposed, "
        "whether it reads or changes something.",
        json_schema_extra=_AT_NODES,
    )
    inertia_max_wrong_per_100: _Percent | _Absent = Field(
        default=None,
        title="Wrong calls per 100 turns",
        description="Budget: no call is made while one more miss would bring the misses per 100 model turns above it.",
        json_schema_extra=_AT_NODES,
    )
    inertia_audit_rate: _Share | _Absent = Field(
        default=None,
        title="Share of audits",
        description="Share of the proposals that are checked against the model instead of acted on.",
        json_schema_extra=_AT_NODES,
    )
    inertia_never: list[str] | _Absent = Field(
        default=None,
        title="Never shortcut",
        description="Names of tools that are not shortcut in this run, besides those that the code names.",
        json_schema_extra=_AT_NODES,
    )

    @model_validator(mode="before")
    @classmethod
    def _misspelt(cls, given: Any) -> Any:
        """A key that is nearly one of these is refused; others are ignored."""
        for key in given if isinstance(given, Mapping) else ():
            if key not in cls.model_fields and (meant := nearest(str(key), cls.model_fields)):
                raise ValueError(f"{cls.__name__} has no {key!r}; did you mean {meant!r}?")
        return given

    @field_validator(
        "user_id",
        "inertia_mode",
        "inertia_policy",
        "inertia_min_precision",
        "inertia_max_wrong_per_100",
        "inertia_audit_rate",
        "inertia_never",
        mode="before",
    )
    @classmethod
    def _left_empty(cls, value: Any) -> Any:
        """A field of a form that was left empty is not given."""
        return None if value == "" else value


def settings_policy(context: Any, policy: InertiaPolicy, *, trusted: bool = False) -> InertiaPolicy | None:
    """Return the policy of this run: the one in the code, with what the host's context tightens.

    A number holds for each bound (reads, writes) where it is the tighter one. Another kind of policy, a precision or a
    share of audits below the code's, a budget above it and a mode that does more are ignored, and logged once. No
    setting ever takes a tool out of `never`, `needs_approval` or any other guard of the policy.

    Args:
        context: ``runtime.context`` of any kind: None, a mapping, an object with attributes. Keys that
            `InertiaSettings` does not have are the host's own and mean nothing here. A bad value is logged
            once and changes nothing.
        policy: the one in the code.
        trusted: the context may loosen as well.

    Returns:
        The policy, the very same object if nothing is changed; None if the shortcut is switched off. ``TOOLMEM`` in
        the environment goes before all of it.
    """
    if switched := env_mode.mode():
        return None if switched == "off" else _mode(policy, switched)
    if context is None:
        return policy
    for key, change in _CHANGES.items():
        try:
            value = _read(context, key)
            if value is None or (isinstance(value, str) and not value):
                continue
            changed = change(policy, value)
        except Exception as error:  # noqa: BLE001 - whatever the host has in its context is its own affair
            _log_once(f"{key} in the context is no use and is ignored (logged once).")
            logger.debug("%s: %s", type(error).__name__, error)
            continue
        if changed is None:
            return None
        if not trusted:
            changed, loosens = _tightened(policy, changed)
            if loosens:
                _log_once(f"{key} in the context would loosen the policy and is ignored; see trust_context.")
        policy = changed
    return policy


def _tightened(policy: InertiaPolicy, wanted: InertiaPolicy) -> tuple[InertiaPolicy, bool]:
    """Return the policy with what is tighter in the wanted one, and if that is nothing although they differ."""
    if wanted == policy or wanted.kind != policy.kind:
        return policy, wanted != policy
    tighter = replace(
        wanted,
        shadow=policy.shadow or wanted.shadow,
        audit_rate=max(policy.audit_rate, wanted.audit_rate),
        reads=_tighter(policy.reads, wanted.reads),
        writes=_tighter(policy.writes, wanted.writes),
    )
    return (policy, True) if tighter == policy else (tighter, False)


def _tighter(one: Bound, other: Bound) -> Bound:
    budgets = [each for each in (one.max_wrong_per_100, other.max_wrong_per_100) if each is not None]
    return Bound(
        min_precision=max(one.min_precision, other.min_precision), max_wrong_per_100=min(budgets, default=None)
    )


def _read(context: Any, key: str) -> Any:
    return context.get(key) if isinstance(context, Mapping) else getattr(context, key, None)


def _mode(policy: InertiaPolicy, mode: Any) -> InertiaPolicy | None:
    if not isinstance(mode, str) or mode not in ("act", "shadow", "off"):
        raise ConfigurationError(f"inertia_mode is 'act', 'shadow' or 'off', not {mode!r}.")
    return None if mode == "off" else _with(policy, "shadow", mode == "shadow")


_OF_KIND: Final = {policy.kind: policy for policy in (InertiaPolicy(), PaperPolicy())}


def _kind(policy: InertiaPolicy, kind: Any) -> InertiaPolicy:
    """Another kind of policy: its defaults take the place of the old defaults, what the code set itself stays."""
    if not isinstance(kind, str) or kind not in _OF_KIND:
        raise ConfigurationError(f"inertia_policy is 'calibrated' or 'paper', not {kind!r}.")
    if kind == policy.kind:
        return policy
    old, new = _OF_KIND[policy.kind], _OF_KIND[kind]
    return replace(new, **_set_by_code(policy, old, new))


def _set_by_code(policy: Any, old: Any, new: Any) -> dict[str, Any]:
    """Return what a policy, or one of its bounds, has otherwise than `old`, as far as `new` has such fields."""
    changes: dict[str, Any] = {}
    for name in (each.name for each in fields(new)):
        mine, default = getattr(policy, name, None), getattr(old, name, None)
        if isinstance(mine, Bound) and mine != default:
            bound = getattr(new, name)
            changes[name] = replace(bound, **_set_by_code(mine, default, bound))
        elif mine != default:
            changes[name] = mine
    return changes


def _never(policy: InertiaPolicy, names: Any) -> InertiaPolicy:
    return _with(policy, "never", policy.never | policy.with_(never=names).never)


def _field(name: str) -> Callable[[InertiaPolicy, Any], InertiaPolicy]:
    return lambda policy, value: _with(policy, name, value)


def _with(policy: InertiaPolicy, name: str, value: Any) -> InertiaPolicy:
    changed = policy.with_(**{name: value})
    return policy if changed == policy else changed


_CHANGES: Final[dict[str, Callable[[InertiaPolicy, Any], InertiaPolicy | None]]] = {
    "inertia_mode": _mode,
    "inertia_policy": _kind,  # before the numbers, which are then put over its defaults
    "inertia_min_precision": _field("min_precision"),
    "inertia_max_wrong_per_100": _field("max_wrong_per_100"),
    "inertia_audit_rate": _field("audit_rate"),
    "inertia_never": _never,
}

logged: Final[set[str]] = set()


def _log_once(line: str) -> None:
    if line not in logged:
        logged.add(line)
        logger.warning(line)


__all__ = ["SWITCHED_OFF", "InertiaSettings", "settings_policy"]
