"""When a predicted call may be made without asking the model: the default policy, and AutoTool's as published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

from langgraph_toolmem.base.checks import check_fields, checks_options, expect, is_count, is_number, is_share
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.graph.records import ToolRecords
from langgraph_toolmem.runs.run import ExecutedCall

Environment: TypeAlias = Callable[[str, Sequence[ExecutedCall]], Mapping[str, Any]]
P = TypeVar("P", bound="InertiaPolicy")


@checks_options
@dataclass(frozen=True)
class Bound:
    """The required certainty of a call, and the allowed share of wrong ones.

    Attributes:
        min_precision: the probability (0 to 1), judged by the record, that tool and all arguments are exactly what
            the model would have done, from which a call is proposed.
        max_wrong_per_100: hard budget: no call is made while one more miss would bring the misses per 100 model
            turns above this. Misses are counted on shadow and audited turns and, as a rate, extended to the calls
            made. None: no budget.

    Raises:
        ConfigurationError: a value is out of its range; the message names the field.
    """

    min_precision: float = 0.7
    max_wrong_per_100: float | None = 1.0

    def __post_init__(self) -> None:
        """Checks types and ranges."""
        expect(self, "min_precision", "a share from 0 to 1", is_share)
        expect(
            self,
            "max_wrong_per_100",
            "a number from 0 to 100 or None",
            lambda v: v is None or (is_number(v) and 0 <= v <= 100),
        )


_BOUNDS: Final = ("reads", "writes")
NAMES_OF_TOOLS: Final = ("may_write", "allow_destructive", "never", "allow_repeats")
_OF_BOUNDS: Final = tuple(f.name for f in fields(Bound))


@checks_options
@dataclass(frozen=True)
class InertiaPolicy:
    """When to act on a predicted call.

    Attributes:
        reads: the bound for calls that only read.
        writes: the bound for calls that may change something.
        may_write: tools that may change something and may be called without the model all the same. Tools that only
            read need no name here: they are declared to the memory, by ``ToolMemory(reads=...)`` or by their marks.
        allow_destructive: destructive tools (MCP annotation, tag or metadata) that may be called without the model,
            besides being in `may_write`.
        only: nothing but these tools is shortcut; None: no such limit.
        never: tools that are never shortcut nor prefetched, such as those that a human must approve or that end the
            run. Tools that return a ``Command`` or have ``return_direct`` need no name here.
        allow_repeats: tools for which a call identical to an earlier one of the run is fine. Without it, history
            decides: repeats are made if at least a third of the tool's calls repeated one, and only while the
            answer stays the same.
        shadow: predict and keep the record, but never act.
        audit_rate: share (0 to 1) of the proposals that are checked against the model instead of acted on.

    Raises:
        ConfigurationError: a value cannot be right; the message names the field and what is expected.
    """

    reads: Bound = Bound()
    writes: Bound = Bound(min_precision=0.8, max_wrong_per_100=0.5)
    may_write: frozenset[str] = frozenset()
    allow_destructive: frozenset[str] = frozenset()
    only: frozenset[str] | None = None
    never: frozenset[str] = frozenset()
    allow_repeats: frozenset[str] = frozenset()
    shadow: bool = False
    audit_rate: float = 0.05

    kind: ClassVar[str] = "calibrated"
    """The policy's name in settings, files and on the command line."""

    def __post_init__(self) -> None:
        """Checks types and ranges."""
        for name in _BOUNDS:
            expect(self, name, "a Bound, such as Bound(min_precision=0.9)", lambda v: isinstance(v, Bound))
        for name in NAMES_OF_TOOLS:
            object.__setattr__(self, name, _names(name, getattr(self, name)))
        if self.only is not None:
            object.__setattr__(self, "only", _names("only", self.only))
        expect(self, "audit_rate", "a share from 0 to 1", is_share)
        expect(self, "shadow", "True or False", lambda v: isinstance(v, bool))

    def bound_of(self, changes: bool) -> Bound:
        """The bound that holds for a call that may change something, or for one that only reads."""
        return self.writes if changes else self.reads

    @classmethod
    def paper(cls, **changes: Any) -> PaperPolicy:
        """AutoTool as published, with some fields changed as by `with_`.

        It has no budget and no audits; give `max_wrong_per_100` and `audit_rate` to put it under them as well.
        """
        return PaperPolicy().with_(**changes)

    def with_(self: P, **changes: Any) -> P:
        """A copy with some fields changed. `min_precision` and `max_wrong_per_100` change both bounds.

        Raises:
            ConfigurationError: an unknown field, or a value that cannot be right.
        """
        known = {f.name for f in fields(self)}
        check_fields(type(self).__name__, set(changes), known | set(_OF_BOUNDS))
        both = {name: changes.pop(name) for name in _OF_BOUNDS if name in changes}
        for name in _BOUNDS if both else ():
            bound = changes.get(name, getattr(self, name))
            changes[name] = replace(bound, **both) if isinstance(bound, Bound) else bound
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain values; the environment adapter is left out."""
        plain: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "environment"}
        plain |= {name: vars(plain[name]).copy() for name in _BOUNDS}
        return {"kind": self.kind} | {k: sorted(v) if isinstance(v, frozenset) else v for k, v in plain.items()}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> InertiaPolicy:
        """The inverse of `to_dict`. What is not there is as in the defaults of the kind ("calibrated" or "paper").

        Raises:
            ConfigurationError: an unknown kind or field, named, or a value that cannot be right.
        """
        given = dict(plain)
        kind = given.pop("kind", cls.kind)
        if kind not in ("calibrated", "paper"):
            raise ConfigurationError(f"InertiaPolicy.kind is 'calibrated' or 'paper', not {kind!r}.")
        policy = InertiaPolicy() if kind == "calibrated" else InertiaPolicy.paper()
        for name in _BOUNDS:
            if isinstance(said := given.get(name), Mapping):
                check_fields("Bound", set(said), set(_OF_BOUNDS))
                given[name] = replace(getattr(policy, name), **said)
        return policy.with_(**given)


@checks_options
@dataclass(frozen=True)
class PaperPolicy(InertiaPolicy):
    """AutoTool as published: θ 0.1, α 0.5, κ 1.1, k 2, at most 30 % of a run's calls, never two in a row.

    `InertiaPolicy.paper()` makes one. What guards any shortcut guards this one too: tools that change something need
    their name.

    Attributes:
        max_in_a_row: shortcuts in a row before the model is asked; None: no limit.
        max_share: largest share (0 to 1) of a run's calls that the shortcut may make; None: no limit.
        announce: tell the model in the call's message that the shortcut chose it.
        window: tools looked back on (k).
        threshold: θ, the least score (CIPS) of a proposal.
        alpha: α, weight of the match between thought and tool description.
        kappa: κ, how fast evidence counts, ICF = 1 − κ^(−W).
        recovery_tool: called after `recovery_after` failed calls in a row ("what is possible here?"). It has to be
            declared to only read, or be in `may_write`.
        recovery_after: failed calls in a row.
        environment: returns parameters that no message says (current location, logged-in user), given the tool and the
            run's calls so far.
    """

    reads: Bound = Bound(max_wrong_per_100=None)
    writes: Bound = Bound(max_wrong_per_100=None)
    audit_rate: float = 0.0
    max_in_a_row: int | None = 1
    max_share: float | None = 0.3
    announce: bool = True
    window: int = 2
    threshold: float = 0.1
    alpha: float = 0.5
    kappa: float = 1.1
    recovery_tool: str | None = None
    recovery_after: int = 2
    environment: Environment | None = field(default=None, repr=False, compare=False)

    kind: ClassVar[str] = "paper"

    def __post_init__(self) -> None:
        """Checks types and ranges."""
        super().__post_init__()
        expect(self, "max_in_a_row", "a whole number from 0 or None", lambda v: v is None or is_count(v, 0))
        expect(self, "max_share", "a share from 0 to 1 or None", lambda v: v is None or is_share(v))
        expect(self, "announce", "True or False", lambda v: isinstance(v, bool))
        expect(self, "window", "1, 2 or 3", lambda v: is_count(v, 1) and v <= 3)
        expect(self, "threshold", "a number", is_number)
        expect(self, "alpha", "a share from 0 to 1", is_share)
        expect(self, "kappa", "a number above 1", lambda v: is_number(v) and v > 1)
        expect(self, "recovery_after", "a whole number from 1", lambda v: is_count(v, 1))
        expect(self, "recovery_tool", "a tool name or None", lambda v: v is None or isinstance(v, str))
        expect(
            self,
            "environment",
            "a callable (tool, steps) → parameters, or None",
            lambda v: v is None or callable(v),
        )


def with_records(policy: P, names: ToolRecords) -> P:
    """Return a policy that names the records of tools where it names the tools."""
    if not names.apart:
        return policy
    named = [name for name in (*NAMES_OF_TOOLS, "only") if getattr(policy, name)]
    changes: dict[str, Any] = {name: names.with_records(getattr(policy, name)) for name in named}
    return replace(policy, **changes)


def _names(field_name: str, value: Any) -> frozenset[str]:
    expected = f"InertiaPolicy.{field_name} is a set of tool names"
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise ConfigurationError(f"{expected}, not {value!r}.")
    names = list(value)
    if odd := [name for name in names if not isinstance(name, str)]:
        raise ConfigurationError(f"{expected}, but it holds {odd[0]!r}.")
    return frozenset(names)


__all__ = ["Bound", "Environment", "InertiaPolicy", "PaperPolicy", "with_records"]
