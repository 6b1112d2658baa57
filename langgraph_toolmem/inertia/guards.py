"""Guards for every shortcut, under any policy: the shortcut never makes a call that the host would not allow."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from langgraph_toolmem.base.checks import nearest, unknown_name
from langgraph_toolmem.graph.events import Record, ToolCount
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.inertia.decision import Option, Refusal
from langgraph_toolmem.inertia.policy import NAMES_OF_TOOLS, InertiaPolicy
from langgraph_toolmem.runs.loops import comparable
from langgraph_toolmem.runs.run import ExecutedCall
from langgraph_toolmem.runs.tools import SideEffects, ToolSpec, side_effects
from langgraph_toolmem.runs.values import canon_args

if TYPE_CHECKING:
    from langgraph_toolmem.inertia.situation import Situation

VARIED: Final = "varied"
"""Counter of a tool: an equal call gave another result, without a change in between."""
_WHY: Final[dict[SideEffects, str]] = {
    "reads": "it is declared to only read",
    "changes": "nobody declared that it only reads",
    "destroys": "it is marked destructive",
    "controls": "it returns a Command, or directly to the user",
}


class Guards:
    """Leaves a call to the model that the host would not allow at any probability."""

    def refuse(self, best: Option, situation: Situation) -> Refusal | None:
        # A person refused the last call, or a limit did: another call in its place would get round the refusal.
        if situation.state.stopped:
            return Refusal("stopped", "the last call was not let through: the model is to read why")
        # The record knows tools of other agents too, and tools that an earlier step took out of this request.
        spec, policy = situation.specs.get(best.tool), situation.policy
        if spec is None:
            return Refusal("unknown_tool", f"{best.tool} is not among the tools")
        never = why_never(spec, policy)
        if never is not None:
            return never
        # If one of several calls breaks the schema none is made: the model would have made all of them or others.
        for args in best.calls:
            problem = spec.problem(args)
            if problem:
                return Refusal("invalid_arguments", f"arguments of {best.tool} break its schema: {problem}")
        if best.tool in policy.allow_repeats:
            return None
        # Two equal look-ups in one turn cost a call. Two equal changes refund twice.
        changes, texts = side_effects(spec) != "reads", [canon_args(args) for args in best.calls]
        if changes and len(set(texts)) < len(texts):
            return Refusal("repeat", f"{best.tool} would be called twice with the same arguments")
        for text in texts:
            repeat = _repeats(spec, text, changes, situation)
            if repeat is not None:
                return repeat
        return None


def _repeats(spec: ToolSpec, args: str, changes: bool, situation: Situation) -> Refusal | None:
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
        nobody_declared = spec.read_only is None and side_effects(spec) == "changes"
        if nobody_declared and name not in named:
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
    # Two settings are needed: pasting a list into `may_write` must not permit a deletion.
    if effects == "destroys":
        missing = []
        if tool not in policy.may_write:
            missing.append("may_write")
        if tool not in policy.allow_destructive:
            missing.append("allow_destructive")
        if not missing:
            return None
        text = f"{tool} is destructive ({_WHY[effects]}) and not named in {' and in '.join(missing)}"
        return Refusal("destructive", text)
    if effects == "reads" or tool in policy.may_write:
        return None
    return Refusal("not_named", f"{tool} may change something ({_WHY[effects]}) and is not named in may_write")


def misnamed(policy: InertiaPolicy, tools: Collection[str], *, whole: bool) -> Iterator[tuple[int, str]]:
    """Yield lines for the log, with their levels, on names in a policy without a tool.

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
        text = canon_args(step.args)
        for before in reversed(earlier):
            if before.tool == step.tool and canon_args(before.args) == text:
                # A failed call and its repetition differ only by the error, which is unrelated to the tool.
                both_ok = before.status == step.status == "ok"
                if both_ok and comparable(before.output) != comparable(step.output):
                    record.append(ToolCount(step.tool, VARIED))
                break
            # A change between the two explains the other result.
            if before.tool not in specs or may_write(before.tool, specs):
                break
    return record
