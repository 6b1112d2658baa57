"""When a predicted call may be made without asking the model: the default policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from langgraph_toolmem.base.checks import check_fields, checks_options, expect, is_bool, is_number, is_share, or_none
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.graph.records import ToolRecords

if TYPE_CHECKING:
    from langgraph_toolmem.inertia.decision import Decision
    from langgraph_toolmem.inertia.situation import Situation
    from langgraph_toolmem.papers.autotool import PaperPolicy

P = TypeVar("P", bound="InertiaPolicy")


@checks_options
@dataclass(frozen=True)
class Bound:
    """The required confidence of a call, and the allowed share of wrong calls.

    Attributes:
        min_precision: least probability (0 to 1), by the record, that tool and all arguments equal the model's.
        max_wrong_per_100: hard budget: calls stop while one more miss would bring the misses per 100 model turns above
            this. Misses are counted on shadow and audited turns and, as a rate, extended to the calls made. If None,
            there is no budget.

    Raises:
        ConfigurationError: a value is out of its range; the message names the field.
    """

    min_precision: float = 0.7
    max_wrong_per_100: float | None = 1.0

    def __post_init__(self) -> None:
        """Checks types and ranges."""
        expect(self, "min_precision", "a share from 0 to 1", is_share)
        expect(self, "max_wrong_per_100", "a number from 0 to 100 or None", or_none(_is_rate))


def _is_rate(value: Any) -> bool:
    return is_number(value) and 0 <= value <= 100


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
        may_write: tools that may change something and may still be called without the model. Tools that only read need
            no name here: they are declared to the memory, by ``ToolMemory(reads=...)`` or by their marks.
        allow_destructive: destructive tools (MCP annotation, tag or metadata) that may be called without the model,
            besides being in `may_write`.
        only: the shortcut calls only these tools. If None, there is no such limit.
        never: tools that are neither called by the shortcut nor prefetched, such as those that a human must approve or
            that end the run. Tools that return a ``Command`` or have ``return_direct`` need no name here.
        allow_repeats: tools whose call may repeat an identical one of the run. For other tools, history decides:
            repeats are made if at least a third of the tool's calls repeated one, and only while the answer stays the
            same.
        shadow: predict and keep the record, but never act.
        audit_rate: share (0 to 1) of the proposals that are checked against the model instead of acted on.

    Raises:
        ConfigurationError: a value is invalid; the message names the field and the expected value.
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
            expect(self, name, "a Bound, such as Bound(min_precision=0.9)", _is_bound)
        for name in NAMES_OF_TOOLS:
            object.__setattr__(self, name, _names(name, getattr(self, name)))
        if self.only is not None:
            object.__setattr__(self, "only", _names("only", self.only))
        expect(self, "audit_rate", "a share from 0 to 1", is_share)
        expect(self, "shadow", "True or False", is_bool)

    def bound_of(self, changes: bool) -> Bound:
        """Return the bound for a call that may change something, or for one that only reads."""
        return self.writes if changes else self.reads

    def published_rule(self) -> Callable[[Situation], Decision] | None:
        """Return the rule of a paper that decides under this policy; None under the default policy."""
        return None

    def announces(self) -> bool:
        """Return True if a call's message says that the shortcut chose it."""
        return False

    @classmethod
    def paper(cls, **changes: Any) -> PaperPolicy:
        """Return AutoTool's policy as published (`papers.autotool`), with some fields changed as by `with_`.

        It has neither a budget nor audits; pass `max_wrong_per_100` and `audit_rate` to add them.
        """
        from langgraph_toolmem.papers.autotool import PaperPolicy

        return PaperPolicy().with_(**changes)

    def with_(self: P, **changes: Any) -> P:
        """Return a copy with some fields changed. `min_precision` and `max_wrong_per_100` change both bounds.

        Raises:
            ConfigurationError: an unknown field, or an invalid value.
        """
        known = {f.name for f in fields(self)}
        check_fields(type(self).__name__, set(changes), known | set(_OF_BOUNDS))
        of_both_bounds = {name: changes.pop(name) for name in _OF_BOUNDS if name in changes}
        if of_both_bounds:
            for name in _BOUNDS:
                bound = changes.get(name, getattr(self, name))
                if isinstance(bound, Bound):  # anything else is refused by the policy itself
                    bound = replace(bound, **of_both_bounds)
                changes[name] = bound
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        plain: dict[str, Any] = {"kind": self.kind}
        for of in fields(self):
            value = getattr(self, of.name)
            if isinstance(value, frozenset):
                value = sorted(value)
            elif isinstance(value, Bound):
                value = vars(value).copy()
            plain[of.name] = value
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> InertiaPolicy:
        """Return the inverse of `to_dict`. Missing fields have the defaults of the kind ("calibrated" or "paper").

        Raises:
            ConfigurationError: an unknown kind or field, or an invalid value; the message names it.
        """
        given = dict(plain)
        kind = given.pop("kind", cls.kind)
        if kind not in ("calibrated", "paper"):
            raise ConfigurationError(f"InertiaPolicy.kind is 'calibrated' or 'paper', not {kind!r}.")
        policy = InertiaPolicy() if kind == "calibrated" else InertiaPolicy.paper()
        for name in _BOUNDS:
            bound = given.get(name)
            if isinstance(bound, Mapping):
                check_fields("Bound", set(bound), set(_OF_BOUNDS))
                given[name] = replace(getattr(policy, name), **bound)
        return policy.with_(**given)


def with_records(policy: P, names: ToolRecords) -> P:
    """Return a policy that names the records of tools where it names the tools."""
    # Tools of one name with different parameters have separate records, and the policy names tools: a rule for the name
    # applies to each of its records.
    if not names.apart:
        return policy
    changes: dict[str, Any] = {}
    for name in (*NAMES_OF_TOOLS, "only"):
        tools = getattr(policy, name)
        if tools:
            changes[name] = names.with_records(tools)
    return replace(policy, **changes)


def _is_bound(value: Any) -> bool:
    return isinstance(value, Bound)


def _names(field_name: str, value: Any) -> frozenset[str]:
    expected = f"InertiaPolicy.{field_name} is a set of tool names"
    # A text is iterable: "send_email" would become names of one letter.
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise ConfigurationError(f"{expected}, not {value!r}.")
    names = list(value)
    for name in names:
        if not isinstance(name, str):
            raise ConfigurationError(f"{expected}, but it holds {name!r}.")
    return frozenset(names)


__all__ = ["Bound", "InertiaPolicy", "with_records"]
