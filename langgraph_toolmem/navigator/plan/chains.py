"""What a search answers: chains of calls from what is known to a target, and the part of the graph they lie in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Feed:
    """Where one input of a step gets its value.

    Attributes:
        input: path of the input.
        source: "known": a value that was given; "step": an output of an earlier step; "done": an output of a call that
            was made before; "user": nobody but the user can say it, or nothing found produces it.
        origin: name of the known value, or of the tool; "" for the user.
        output: path in that tool's output, "" otherwise.
        weight: how sure that is, 0 to 1.
        required: whether the call must have it.
        reason: why it is the user's, "" otherwise.
    """

    input: str
    source: Literal["known", "step", "done", "user"]
    origin: str = ""
    output: str = ""
    weight: float = 1.0
    required: bool = True
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Gift:
    """A part of a step's output that a later step takes."""

    output: str
    tool: str
    input: str


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a chain.

    Attributes:
        tool: what is called.
        feeds: where its inputs come from: all required ones, and the optional ones for which something is there.
        gives: what later steps take from it.
        calls: how often it has to be called: twice if one output becomes an origin and a destination.
    """

    tool: str
    feeds: tuple[Feed, ...] = ()
    gives: tuple[Gift, ...] = ()
    calls: int = 1


@dataclass(frozen=True, slots=True)
class Ask:
    """A value the user must supply.

    Attributes:
        tool: the step that needs it.
        input: path of the input.
        description: what its schema says of it.
        reason: why the user is asked.
        findable: no person is expected to know it, yet nothing was found that produces it.
        instead: (tool, output) of a step of this chain that could give it too, if there is one.
        also: (tool, input) of further steps that take the same value: it is asked for once.
    """

    tool: str
    input: str
    description: str
    reason: str
    findable: bool
    instead: tuple[str, str] | None = None
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
    steps: tuple[Step, ...]
    asks: tuple[Ask, ...]
    score: float

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools in order."""
        return tuple(step.tool for step in self.steps)

    @property
    def complete(self) -> bool:
        """Whether the user is asked for nothing but what a user can know."""
        return not any(ask.findable for ask in self.asks)


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the pruned graph.

    Attributes:
        id: ``api:NAME`` or ``parameter:NUMBER``.
        kind: "api" or "parameter".
        label: the tool's name, or what the parameter is called.
        state: "target", "step", "done", "known", "produced" or "asked".
    """

    id: str
    kind: Literal["api", "parameter"]
    label: str
    state: str


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge of the pruned graph: parameter → API or API → parameter, with the path it stands for."""

    source: str
    target: str
    path: str
    weight: float


@dataclass(frozen=True, slots=True)
class Subgraph:
    """What is left of the dependency graph: the nodes and edges of the chains."""

    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer of a search.

    Attributes:
        chains: best first; those of other targets and other routes follow.
        subgraph: all of them together.
        strategy: which search made it.
        cut_short: a limit on time or nodes ended the search; there may be better chains.
    """

    chains: tuple[Chain, ...]
    subgraph: Subgraph
    strategy: str
    cut_short: bool = False

    @property
    def chain(self) -> Chain | None:
        """The best chain; None if there is none."""
        return self.chains[0] if self.chains else None

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools of all chains, best chain first, each once."""
        return tuple(dict.fromkeys(tool for chain in self.chains for tool in chain.tools))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a state or a stream."""
        return _plain(asdict(self))  # type: ignore[no-any-return]


def tree(chain: Chain) -> str:
    """A chain as an indented tree, the target at the top and what it needs below it.

    A step that several others need is written out once.
    """
    steps = {step.tool: step for step in chain.steps}
    lines: list[str] = []
    written: set[str] = set()

    def write(tool: str, depth: int, gives: str) -> None:
        step = steps[tool]
        times = f" ({step.calls} calls)" if step.calls > 1 else ""
        lines.append(f"{'  ' * depth}{gives}{tool}{times}")
        if tool in written:
            lines[-1] += " (see above)"
            return
        written.add(tool)
        for feed in step.feeds:
            head = f"{feed.input}{'' if feed.required else '?'} <- "
            if feed.source == "step":
                write(feed.origin, depth + 1, f"{head}{feed.output or 'result'} of ")
            elif feed.source == "done":
                lines.append(f"{'  ' * (depth + 1)}{head}{feed.output or 'result'} of {feed.origin} (done)")
            else:
                lines.append(f"{'  ' * (depth + 1)}{head}{feed.origin or 'ask the user'}")

    write(chain.target, 0, "")
    return "\n".join(lines)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value
