"""When a predicted call may be made without asking the model.

Two policies. *calibrated* (the default) acts on the track record of whole predicted calls; *paper* is AutoTool
as published (arXiv 2511.14650).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from langgraph_toolmem.base.checks import check_fields, expect, is_count, is_number, is_share
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.runs.trajectory import ExecutedCall


@runtime_checkable
class EnvironmentAdapter(Protocol):
    """What the environment knows that no message says: current location, logged-in user …"""

    def parameters(self, tool: str, steps: Sequence[ExecutedCall]) -> Mapping[str, Any]:
        """Values for the tool's parameters, given the run's calls and outputs so far."""
        ...


Environment: TypeAlias = EnvironmentAdapter | Callable[[str, Sequence[ExecutedCall]], Mapping[str, Any]]


@dataclass(frozen=True)
class InertiaPolicy:
    """When to act on a predicted call.

    Attributes:
        kind: "calibrated" or "paper".
        min_precision: calibrated: the probability, judged by the record, that tool and all arguments are
            exactly what the model would have done, from which a call is proposed.
        max_wrong_per_100: hard budget: no call is made while one more miss would bring the misses per 100
            model turns above this. Misses are counted on shadow and audited turns and, as a rate, extended
            to the calls made. None: no budget.
        audit_rate: share of the proposals that are checked against the model instead of acted on.
        shadow: predict and keep the record, but never act.
        max_in_a_row: shortcuts in a row before the model is asked; None: no limit. Paper: 1.
        max_share: largest share of a run's calls that the shortcut may make; None: no limit. Paper: 0.3.
        witnesses_for_writes: calibrated: a call that may change something is made only if so many of the four
            nearest past requests back it: they went on with the same tool, its arguments from the same sources.
            A tool may change something if it is not marked read-only while others are (or is marked as writing).
        never: tools that are never shortcut.
        allow_destructive: destructive tools (MCP annotation or tag) that may be shortcut all the same.
        needs_approval: tools that a human must approve; they are never shortcut.
        allow_repeats: tools for which a call identical to an earlier one of the run is fine. Without it, history
            decides: repeats are made if at least a third of the tool's calls repeated one, and only while the
            answer stays the same.
        announce: tell the model in the call's message that the shortcut chose it. None: as the paper does with
            the paper's policy, not with the calibrated one.
        window: paper: tools looked back on (k = 2).
        threshold: paper: θ, the least score (CIPS) of a proposal.
        alpha: paper: α, weight of the match between thought and tool description.
        kappa: paper: κ, how fast evidence counts, ICF = 1 − κ^(−W).
        recovery_tool: paper: called after `recovery_after` failed calls in a row ("what is possible here?").
        recovery_after: paper: 2.
        environment: paper: an `EnvironmentAdapter`, or a plain callable (tool, steps) → parameters.
    """

    kind: Literal["calibrated", "paper"] = "calibrated"
    min_precision: float = 0.9
    max_wrong_per_100: float | None = 1.0
    audit_rate: float = 0.05
    shadow: bool = False
    max_in_a_row: int | None = None
    max_share: float | None = None
    witnesses_for_writes: int = 3
    never: frozenset[str] = frozenset()
    allow_destructive: frozenset[str] = frozenset()
    needs_approval: frozenset[str] = frozenset()
    allow_repeats: frozenset[str] = frozenset()
    announce: bool | None = None
    window: int = 2
    threshold: float = 0.1
    alpha: float = 0.5
    kappa: float = 1.1
    recovery_tool: str | None = None
    recovery_after: int = 2
    environment: Environment | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Checks types and ranges. Raises ConfigurationError that names the field and what is expected."""
        for name in ("never", "allow_destructive", "needs_approval", "allow_repeats"):
            object.__setattr__(self, name, _names(name, getattr(self, name)))
        expect(self, "kind", "'calibrated' or 'paper'", lambda v: v in ("calibrated", "paper"))
        for name in ("min_precision", "audit_rate", "alpha"):
            expect(self, name, "a share from 0 to 1", is_share)
        expect(self, "max_share", "a share from 0 to 1 or None", lambda v: v is None or is_share(v))
        expect(
            self,
            "max_wrong_per_100",
            "a number from 0 to 100 or None",
            lambda v: v is None or (is_number(v) and 0 <= v <= 100),
        )
        expect(self, "max_in_a_row", "a whole number from 0 or None", lambda v: v is None or is_count(v, 0))
        expect(self, "witnesses_for_writes", "a whole number from 0", lambda v: is_count(v, 0))
        expect(self, "window", "1, 2 or 3", lambda v: is_count(v, 1) and v <= 3)
        expect(self, "threshold", "a number", is_number)
        expect(self, "kappa", "a number above 1", lambda v: is_number(v) and v > 1)
        expect(self, "recovery_after", "a whole number from 1", lambda v: is_count(v, 1))
        expect(self, "recovery_tool", "a tool name or None", lambda v: v is None or isinstance(v, str))
        expect(self, "shadow", "True or False", lambda v: isinstance(v, bool))
        expect(self, "announce", "True, False or None", lambda v: v is None or isinstance(v, bool))
        expect(
            self,
            "environment",
            "an EnvironmentAdapter, a callable (tool, steps) → parameters, or None",
            lambda v: v is None or callable(v) or isinstance(v, EnvironmentAdapter),
        )

    @property
    def announces(self) -> bool:
        """Whether a shortcut is announced to the model in its history."""
        return self.kind == "paper" if self.announce is None else self.announce

    @classmethod
    def paper(cls, **changes: Any) -> InertiaPolicy:
        """AutoTool as published: θ 0.1, α 0.5, κ 1.1, k 2, at most 30 % of a run's calls, never two in a row.

        It has no budget and no audits; give `max_wrong_per_100` and `audit_rate` to put it under them as well.
        """
        defaults: dict[str, Any] = {
            "kind": "paper",
            "max_in_a_row": 1,
            "max_share": 0.3,
            "max_wrong_per_100": None,
            "audit_rate": 0.0,
        }
        return cls(**{**defaults, **changes})

    def with_(self, **changes: Any) -> InertiaPolicy:
        """A copy with some fields changed."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain values; the environment adapter is left out."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "environment"}
        return {k: sorted(v) if isinstance(v, frozenset) else v for k, v in plain.items()}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> InertiaPolicy:
        """The inverse of `to_dict`. ``{"kind": "paper"}`` alone means `paper()`.

        Raises:
            ConfigurationError: an unknown field, named.
        """
        known = {f.name for f in fields(cls)}
        check_fields("InertiaPolicy", set(plain), known)
        return cls.paper(**plain) if plain.get("kind") == "paper" else cls(**plain)


def _names(field_name: str, value: Any) -> frozenset[str]:
    expected = f"InertiaPolicy.{field_name} is a set of tool names"
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise ConfigurationError(f"{expected}, not {value!r}.")
    names = list(value)
    if odd := [name for name in names if not isinstance(name, str)]:
        raise ConfigurationError(f"{expected}, but it holds {odd[0]!r}.")
    return frozenset(names)


__all__ = ["Environment", "EnvironmentAdapter", "InertiaPolicy"]
