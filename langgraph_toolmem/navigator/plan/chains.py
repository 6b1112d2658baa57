"""Parts of a plan: chains of calls from what is known to a target.

A search gives a draft of choices (`problem`); `chain_of` makes an ordered chain of it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic_core import to_jsonable_python

from langgraph_toolmem.navigator.plan.problem import Assignment, Choice, PlanSearch, step_depths
from langgraph_toolmem.text.meaning import Port


@dataclass(frozen=True, slots=True)
class InputSource:
    """The source of one input of a step.

    Attributes:
        input: path of the input.
        source: "known": a value that was given; "step": an output of an earlier step; "done": an output of a call that
            was made before; "user": nobody but the user can say it, or nothing found produces it.
        origin: name of the known value, or of the tool; "" for the user.
        output: path in that tool's output, "" otherwise.
        weight: how sure that is, 0 to 1.
        required: whether the call must have it.
        reason: why it is the user's, "" otherwise.
        predicted: a suggestion: neither structure nor any run links the two, a scorer does, with `weight`.
    """

    input: str
    source: Literal["known", "step", "done", "user"]
    origin: str = ""
    output: str = ""
    weight: float = 1.0
    required: bool = True
    reason: str = ""
    predicted: bool = False


@dataclass(frozen=True, slots=True)
class OutputUse:
    """A part of a step's output that a later step takes."""

    output: str
    tool: str
    input: str


@dataclass(frozen=True, slots=True)
class ChainStep:
    """One call of a chain.

    Attributes:
        tool: what is called.
        feeds: where its inputs come from: all required ones, and the optional ones for which something is there.
        gives: what later steps take from it.
    """

    tool: str
    feeds: tuple[InputSource, ...] = ()
    gives: tuple[OutputUse, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """A value the user must supply.

    Attributes:
        tool: the step that needs it.
        input: path of the input.
        description: what its schema says of it.
        reason: why the user is asked.
        system_value: no person is expected to know it, yet nothing was found that produces it.
        also: (tool, input) of further steps that take the same value: it is asked for once.
    """

    tool: str
    input: str
    description: str
    reason: str
    system_value: bool
    also: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Chain:
    """Calls in an order in which each has what it needs.

    Attributes:
        target: the last call's tool.
        steps: the calls; the target is the last one.
        asks: what the user must supply.
        score: how good it is by the strategy's own measure; comes without a unit, more is better.
    """

    target: str
    steps: tuple[ChainStep, ...]
    asks: tuple[Question, ...]
    score: float

    @property
    def tools(self) -> tuple[str, ...]:
        """Return the tools in order."""
        return tuple(step.tool for step in self.steps)

    @property
    def complete(self) -> bool:
        """Return True if the user is asked for nothing but what a user can know."""
        return not any(ask.system_value for ask in self.asks)


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer of a search.

    Attributes:
        chains: best first; those of other targets and other routes follow.
        cut_short: a limit on time or nodes ended the search; there may be better chains.
    """

    chains: tuple[Chain, ...]
    cut_short: bool = False

    @property
    def chain(self) -> Chain | None:
        """Return the best chain; None if there is none."""
        return self.chains[0] if self.chains else None

    @property
    def tools(self) -> tuple[str, ...]:
        """Return the tools of all chains, best chain first, each once."""
        return tuple(dict.fromkeys(tool for chain in self.chains for tool in chain.tools))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for a state or a stream."""
        found: dict[str, Any] = to_jsonable_python(self)
        return found


def tree(chain: Chain) -> str:
    """Return a chain as an indented tree, the target at the top and what it needs below it.

    A step that several others need is written out once.
    """
    steps = {step.tool: step for step in chain.steps}
    lines: list[str] = []
    written: set[str] = set()

    def write(tool: str, depth: int, gives: str) -> None:
        step = steps[tool]
        lines.append(f"{'  ' * depth}{gives}{tool}")
        if tool in written:
            lines[-1] += " (see above)"
            return
        written.add(tool)
        for feed in step.feeds:
            head = f"{feed.input}{'' if feed.required else '?'} <- "
            if feed.source == "step":
                said = f"predicted, {feed.weight:.0%}: " if feed.predicted else ""
                write(feed.origin, depth + 1, f"{head}{said}{feed.output or 'result'} of ")
            elif feed.source == "done":
                lines.append(f"{'  ' * (depth + 1)}{head}{feed.output or 'result'} of {feed.origin} (done)")
            else:
                lines.append(f"{'  ' * (depth + 1)}{head}{feed.origin or 'ask the user'}")

    write(chain.target, 0, "")
    return "\n".join(lines)


def chain_of(draft: Assignment, problem: PlanSearch, score: float) -> Chain:
    """Return the steps of a valid draft in an order in which each has what it needs, the target last."""
    levels = step_depths(draft, problem.target, problem.settings.depth) or {problem.target: 0}
    order = sorted(levels, key=lambda tool: (-levels[tool], tool))
    feeds: dict[str, tuple[InputSource, ...]] = {}
    gifts: dict[str, list[OutputUse]] = {tool: [] for tool in order}
    asks: dict[tuple[object, ...], Question] = {}
    for tool in order:
        found = [(port, _feed(port, draft.get(port.key), problem, feeds)) for port in problem.graph.apis[tool].inputs]
        feeds[tool] = tuple(feed for _, feed in found if feed is not None)
        for port, feed in found:
            if feed is not None and feed.source == "step":
                gifts[feed.origin].append(OutputUse(feed.output, tool, feed.input))
            elif feed is not None and feed.source == "user":
                choice = draft[port.key]
                system_value, asked = choice.sort == "produced", asks.get(choice.question)
                if asked is None:
                    asks[choice.question] = Question(
                        tool, port.path, port.leaf.description, choice.reason, system_value
                    )
                else:
                    also = (*asked.also, (tool, port.path))
                    asks[choice.question] = replace(asked, also=also, system_value=asked.system_value or system_value)
    steps = tuple(ChainStep(tool, feeds[tool], tuple(gifts[tool])) for tool in order)
    return Chain(problem.target, steps, tuple(asks.values()), score)


def _feed(port: Port, choice: Choice | None, problem: PlanSearch, earlier: Collection[str]) -> InputSource | None:
    """Return the source of an input.

    Optional ones take known values, and outputs that they took in past runs of calls that are made anyway.
    """
    if choice is None and not port.required:
        choice = _optional(port, problem, earlier)
    if choice is None:
        return None
    weight = round(choice.value, 6)
    return InputSource(
        port.path, choice.kind, choice.origin, choice.output, weight, port.required, choice.reason, choice.predicted
    )


def _optional(port: Port, problem: PlanSearch, earlier: Collection[str]) -> Choice | None:
    name = problem.known_for(port)
    if name is not None:
        return Choice("known", name, "", 1.0)
    seen = {flow.source for flow, _ in problem.history.flows_into(port.tool, port.parameter)}
    if not seen.intersection((*earlier, *problem.done)):
        return None
    there = (
        choice
        for choice in problem.options(port)
        if choice.origin in seen and (choice.origin in earlier or choice.kind == "done")
    )
    return max(there, key=lambda choice: choice.value, default=None)
