"""When a call may be made without asking the model: the host's policy, and guards that no record excuses.

`InertiaPolicy` is the default policy. The guards apply under any policy: the shortcut never makes a call that the host
would not allow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from langgraph_toolmem.base.checks import (
    LogLine,
    check_fields,
    checks_options,
    expect,
    is_bool,
    is_number,
    is_share,
    nearest,
    or_none,
    unknown_name,
)
from langgraph_toolmem.base.errors import ConfigurationError
from langgraph_toolmem.graph.events import Record, ToolCount
from langgraph_toolmem.graph.state import RunState, ToolRecords
from langgraph_toolmem.inertia.decision import Option, Refusal
from langgraph_toolmem.runs.loops import comparable
from langgraph_toolmem.runs.run import ExecutedCall
from langgraph_toolmem.runs.tools import SideEffects, ToolSpec, side_effects
from langgraph_toolmem.runs.values import canon_args

if TYPE_CHECKING:
    from langgraph_toolmem.inertia.calibrated import Situation
    from langgraph_toolmem.inertia.decision import Decision
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
        expect(self, "max_wrong_per_100", "a number from 0 to 100 or None", or_none(is_rate))


def is_rate(value: Any) -> bool:
    """Return True for a number per 100 turns."""
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

    # With these bounds every shuffle of six recorded sets has at most one wrong call per 100 turns (worst: .99), and at
    # most 5 in any 300 turns (docs/figures.md).
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
            raise ConfigurationError(f"InertiaPolicy.kind must be 'calibrated' or 'paper', got {kind!r}.")
        policy = InertiaPolicy()
        if kind == "paper":
            policy = InertiaPolicy.paper()
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
    expected = f"InertiaPolicy.{field_name} must be a set of tool names"
    # A text is iterable: "send_email" would become names of one letter.
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise ConfigurationError(f"{expected}, got {value!r}.")
    names = list(value)
    for name in names:
        if not isinstance(name, str):
            raise ConfigurationError(f"{expected}, got {name!r} in it.")
    return frozenset(names)


# --- guards ---


VARIED: Final = "varied"
"""Counter of a tool: an equal call gave another result, without a change in between."""
_WHY: Final[dict[SideEffects, str]] = {
    "reads": "it is declared to only read",
    "changes": "it is not declared to only read",
    "destroys": "it is marked destructive",
    "controls": "it returns a Command, or directly to the user",
}


class Guards:
    """Leaves a call to the model that the host would not allow at any probability."""

    def refuse(self, candidate: Option, situation: Situation) -> Refusal | None:
        # A person refused the last call, or a limit did: another call in its place would get round the refusal.
        if situation.state.stopped:
            return Refusal("stopped", "the last call was not let through: the model is to read why")
        # The record knows tools of other agents too, and tools that an earlier step took out of this request.
        spec, policy = situation.specs.get(candidate.tool), situation.policy
        if spec is None:
            return Refusal("unknown_tool", f"{candidate.tool} is not among the tools")
        never = why_never(spec, policy)
        if never is not None:
            return never
        invalid = _invalid(spec, candidate)
        if invalid is not None:
            return invalid
        if candidate.tool in policy.allow_repeats:
            return None
        return _repeated(spec, candidate, situation)


def _invalid(spec: ToolSpec, candidate: Option) -> Refusal | None:
    """Return why the arguments of a call are not valid."""
    # If one of several calls breaks the schema none is made: the model would have made all of them or others.
    for args in candidate.calls:
        problem = spec.problem(args)
        if problem:
            return Refusal("invalid_arguments", f"arguments of {candidate.tool} break its schema: {problem}")
    return None


def _repeated(spec: ToolSpec, candidate: Option, situation: Situation) -> Refusal | None:
    """Return why a call must not repeat another one of the turn or of the run."""
    changes = side_effects(spec) != "reads"
    texts = [canon_args(args) for args in candidate.calls]
    # Two equal look-ups in one turn cost a call. Two equal changes refund twice.
    if changes and len(set(texts)) < len(texts):
        return Refusal("repeat", f"{candidate.tool} would be called twice with the same arguments")
    for text in texts:
        repeat = _repeats_in_run(spec, text, changes, situation)
        if repeat is not None:
            return repeat
    return None


def _repeats_in_run(spec: ToolSpec, args: str, changes: bool, situation: Situation) -> Refusal | None:
    """Return why an equal call of this run forbids another one; a loop that polls waits until the answer changes."""
    tool, state = spec.name, situation.state
    if (tool, args) not in state.called:
        return None
    # An idempotent change may be made again once the user spoke ("set it back to 5"), any other change never.
    if changes and (_equal_calls(state.since_user, tool, args) or not spec.idempotent):
        text = f"{tool} may change something and was already called with the same arguments in this run"
        return Refusal("repeat", text)
    normal = 1 / 3  # share of a tool's calls that repeat an earlier one of their run: such a tool is polled
    known = situation.graph.tools.get(tool, {})
    calls = known.get("ok", 0) + known.get("failed", 0)
    if known.get("repeats", 0) < normal * max(calls, 1):
        return Refusal("repeat", f"{tool} was already called with the same arguments in this run")
    # With a long history of polls, only this rule ended the loop when a job was done early: without it the run failed
    # at the recursion limit.
    earlier = _equal_calls(state.steps, tool, args)
    if len(earlier) > 1 and earlier[-1].output == earlier[-2].output:
        return None
    return Refusal("repeat", f"{tool} was called like this before in this run, and its answer did not stay the same")


def _equal_calls(steps: Iterable[ExecutedCall], tool: str, args: str) -> list[ExecutedCall]:
    """Return the calls of a tool with these arguments, as `canon_args` writes them."""
    return [step for step in steps if step.tool == tool and canon_args(step.args) == args]


def may_be_stale(tool: str, calls: Iterable[Mapping[str, Any]], specs: Mapping[str, ToolSpec], state: RunState) -> bool:
    """Return True if the answer to a look-up may change while the model thinks.

    This is the case after a change, and for a call that was made since the user spoke: an agent that repeats such a
    call is waiting for a new answer.
    """
    # A tool without a current description may have changed something, like every undeclared tool.
    for step in state.latest:
        if step.tool not in specs or may_write(step.tool, specs):
            return True
    made = {canon_args(step.args) for step in state.since_user if step.tool == tool}
    if not made:
        return False
    return not made.isdisjoint(canon_args(args) for args in calls)


def may_write(tool: str, specs: Mapping[str, ToolSpec]) -> bool:
    """Return True if a tool may change something, which is assumed unless it is declared to only read."""
    # A name is not a declaration: `get_refund` issues a refund, and `get_or_create_cart` creates a cart.
    return side_effects(specs[tool]) != "reads"


def changing(specs: Mapping[str, ToolSpec]) -> dict[str, str]:
    """Return the tools that may change something, each with the reason."""
    reasons = {}
    for name, spec in sorted(specs.items()):
        effect = side_effects(spec)
        if effect != "reads":
            reasons[name] = _WHY[effect]
    return reasons


def undeclared(specs: Mapping[str, ToolSpec], policy: InertiaPolicy) -> list[str]:
    """Return the tools that are never called without the model because they are neither declared nor named."""
    named = policy.may_write | policy.never
    if policy.only is not None:
        specs = {name: spec for name, spec in specs.items() if name in policy.only}
    names = []
    for name, spec in sorted(specs.items()):
        # A mark such as MCP's `readOnlyHint: false` is a declaration too: its tool is held back on purpose.
        is_undeclared = spec.read_only is None and side_effects(spec) == "changes"
        if is_undeclared and name not in named:
            names.append(name)
    return names


def why_never(spec: ToolSpec, policy: InertiaPolicy) -> Refusal | None:
    """Return why a tool may not be called without the model, for any record; None if it may.

    It depends on the tool and the policy only.
    """
    tool = spec.name
    if tool in policy.never or (policy.only is not None and tool not in policy.only):
        return Refusal("excluded", f"{tool} is excluded by the policy")
    effects = side_effects(spec)
    # A handoff or a final answer ends the model's turn. So policies cannot permit it, even by name.
    if spec.controls:
        return Refusal("steers_the_run", f"{tool} ends the run or steers it ({_WHY['controls']})")
    if effects == "destroys":
        return _destructive(tool, policy)
    if effects == "reads" or tool in policy.may_write:
        return None
    return Refusal("not_named", f"{tool} may change something ({_WHY[effects]}) and is not named in may_write")


def _destructive(tool: str, policy: InertiaPolicy) -> Refusal | None:
    """Return why a destructive tool may not be called without the model; None if both settings name it."""
    # Two settings are needed: pasting a list into `may_write` must not permit a deletion.
    missing = []
    if tool not in policy.may_write:
        missing.append("may_write")
    if tool not in policy.allow_destructive:
        missing.append("allow_destructive")
    if not missing:
        return None
    text = f"{tool} is destructive ({_WHY['destroys']}) and not named in {' and in '.join(missing)}"
    return Refusal("destructive", text)


def misnamed(policy: InertiaPolicy, tools: Collection[str], *, whole: bool) -> Iterator[LogLine]:
    """Yield lines for the log on names in a policy without a tool.

    Yields nothing until tools are known. Unless the tools are the `whole` set, another agent may have such a tool: then
    only a name that is close to a known one, which the policy does not name, gets a warning.
    """
    # Before the first turn the tools may be unknown, and each name of the policy would get a warning.
    if not tools:
        return
    for field in (*NAMES_OF_TOOLS, "only"):
        names = getattr(policy, field) or frozenset()
        for name in sorted(names - set(tools)):
            meant = nearest(name, set(tools) - names)
            owner = f"{type(policy).__name__}({field}=...)"
            yield unknown_name(owner, name, meant, whole=whole)


# --- calls that repeat ---


def credit_varied(state: RunState, specs: Mapping[str, ToolSpec]) -> Record:
    """Count the calls of the previous turn whose results differ from the result of an equal call, with only reads in
    between.
    """
    record: Record = []
    # Results are often reported after the turn is learned, so the previous turn is compared.
    earlier = state.since_user[: len(state.since_user) - len(state.latest)]
    for step in state.latest:
        before = _equal_call_before(step, earlier, specs)
        # A failed call and its repetition differ only by the error, which is unrelated to the tool.
        if before is None or not before.status == step.status == "ok":
            continue
        if comparable(before.output) != comparable(step.output):
            record.append(ToolCount(step.tool, VARIED))
    return record


def _equal_call_before(
    step: ExecutedCall, earlier: Sequence[ExecutedCall], specs: Mapping[str, ToolSpec]
) -> ExecutedCall | None:
    """Return the latest equal call since which nothing was changed, or None."""
    text = canon_args(step.args)
    for before in reversed(earlier):
        if before.tool == step.tool and canon_args(before.args) == text:
            return before
        # A change between the two explains the other result.
        if before.tool not in specs or may_write(before.tool, specs):
            return None
    return None
