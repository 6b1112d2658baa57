"""One large value in a run: how much time and memory does the memory add to the request?

    python -m benchmarks.large_values [--megabytes 20] [--requests 3] [--kinds KIND ...] [--json FILE]

An agent with one tool is asked a few times. One value of the run is large: an argument, an output, the request, the
system prompt, the context or the answer. Each kind of value is measured in two processes of its own, without the memory
and with all methods and features, which have learned small runs before. Counted are the time of the slowest request,
with the work that it leaves to the background, and the most memory of the process. Times are of the processor.
"""

from __future__ import annotations

import gc
import json
import logging
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from rich.table import Table

from benchmarks import command, conclude, show
from benchmarks.apart import in_child, in_child_with_imports
from langgraph_toolmem import Atoms, ToolMemory, default_methods
from langgraph_toolmem.middleware import tool_memory_middleware
from langgraph_toolmem.testing import ScriptedChatModel, call_tool

MOST_MS, MOST_MB = 250.0, 100.0
"""Targets: what the memory adds to the slowest request, and to the memory of the process."""
SMALL_RUNS: Final = 6


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a run."""

    argument: Any = 1
    output: Any = "ok"
    request: Any = "Store the file 7"
    system: str = "Help."
    context: Any = "short"
    answer: str = "Done."


@dataclass(slots=True)
class Cost:
    """Seconds of the processor for each request, and the most memory of the process in MB."""

    seconds: list[float] = field(default_factory=list)
    megabytes: float = 0.0


# --- values ---


def text_of(size: int) -> str:
    words = "".join(f"word{number % 9973} " for number in range(size // 8))
    return words[:size]


def rows_of(size: int) -> list[dict[str, Any]]:
    return [{"id": f"O-{number}", "state": "open", "n": number} for number in range(size // 45)]


def deep(size: int) -> dict[str, Any]:
    """Return objects in each other, 60 deep, each with a text and a list."""
    levels = 60
    value: dict[str, Any] = {"end": 1}
    for level in range(levels):
        value = {"inner": value, "text": text_of(size // levels), "others": [level, {"a": level}]}
    return value


KINDS: Final[Mapping[str, Callable[[int], Values]]] = {
    "text as argument": lambda size: Values(argument=text_of(size)),
    "numbers as argument": lambda size: Values(argument=list(range(size // 7))),
    "texts as argument": lambda size: Values(argument=text_of(size).split()),
    "rows as argument": lambda size: Values(argument=rows_of(size)),
    "deep object as argument": lambda size: Values(argument=deep(size)),
    "object of many keys as argument": lambda size: Values(argument={f"k{n}": n for n in range(size // 16)}),
    "text as output": lambda size: Values(output=text_of(size)),
    "JSON rows as output": lambda size: Values(output=json.dumps(rows_of(size))),
    "JSON object of many keys as output": lambda size: Values(
        output=json.dumps({f"k{n}": n for n in range(size // 16)})
    ),
    "deep JSON as output": lambda size: Values(output=json.dumps(deep(size))),
    "lines as output": lambda size: Values(output=text_of(size).replace(" ", "\n")),
    "blocks as output": lambda size: Values(output=[{"type": "text", "text": text_of(size)}]),
    "request": lambda size: Values(request=text_of(size)),
    "blocks of a request": lambda size: Values(
        request=[{"type": "text", "text": text_of(size // 1000)} for _ in range(1000)]
    ),
    "image of a request": lambda size: Values(
        request=[
            {"type": "text", "text": "Store the file 7"},
            {"type": "image", "base64": "iVBORw0K" * (size // 8), "mime_type": "image/png"},
        ]
    ),
    "system prompt": lambda size: Values(system=text_of(size)),
    "context": lambda size: Values(context=text_of(size)),
    "rows of the context": lambda size: Values(context=rows_of(size)),
    "answer": lambda size: Values(answer=text_of(size)),
}


# --- a process ---


def opened() -> ToolMemory:
    return ToolMemory.ephemeral(reads={"load"}, methods=default_methods(Atoms(keep=True)))


def agent_of(values: Values, memory: ToolMemory | None) -> Any:
    def store(value: object) -> Any:
        """Store a value."""
        del value
        return values.output

    def load(name: str) -> str:
        """Load a value."""
        return f"value of {name}"

    def answered(messages: Sequence[Any], tools: Any) -> AIMessage:
        del tools
        if messages[-1].type == "human":
            return call_tool("load", name="7")
        if messages[-1].name == "load":
            return call_tool("store", value=values.argument)
        return AIMessage(values.answer)

    middleware: list[Any] = []
    if memory is not None:
        names = ("recall", "suggest", "planning", "reflect", "prefetch", "preferences")
        features: Any = dict.fromkeys(names, True)
        middleware = tool_memory_middleware(memory, outer=[], loop_guard=True, **features)
    return create_agent(
        ScriptedChatModel(script=answered),
        [store, load],
        system_prompt=values.system,
        context_schema=dict,
        middleware=middleware,
    )


def ask(agent: Any, values: Values, thread: str) -> list[Any]:
    """Ask for a run with these values, and return the contents and the arguments in its messages."""
    state = agent.invoke(
        {"messages": [{"role": "user", "content": values.request}]},
        {"configurable": {"thread_id": thread}},
        context={"document": values.context},
    )
    read: list[Any] = []
    for message in state["messages"]:
        read.append(message.content)
        read += [call["args"] for call in getattr(message, "tool_calls", ())]
    return read


def measure(kind: str, size: int, requests: int, *, with_memory: bool) -> Cost:
    """Ask for a run with a large value a few times, in this process."""
    memory = None
    if with_memory:
        memory = opened()
    values, cost = Values(), Cost()
    agent = agent_of(values, memory)
    for number in range(SMALL_RUNS):
        ask(agent, values, f"small {number}")
    if memory is not None:
        memory.flush()
    values = KINDS[kind](size)
    agent = agent_of(values, memory)
    gc.collect()
    for number in range(requests):
        begun = time.process_time()
        ask(agent, values, f"large {number}")
        if memory is not None:
            memory.flush()
        cost.seconds.append(time.process_time() - begun)
    cost.megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return cost


def in_process(place: Path, kind: str, size: int, requests: int, *, with_memory: bool) -> Cost:
    """Measure in a process of its own."""
    answer = place / "cost.json"
    answer.unlink(missing_ok=True)

    def do() -> None:
        cost = measure(kind, size, requests, with_memory=with_memory)
        answer.write_text(json.dumps([cost.seconds, cost.megabytes]))

    in_child(do)
    seconds, megabytes = json.loads(answer.read_text())
    return Cost(seconds, megabytes)


def first_use() -> None:
    """Import what a run imports."""
    measure("request", 1_000, 1, with_memory=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = command("large_values", __doc__, recorded=False)
    parser.add_argument("--megabytes", type=float, default=20.0)
    parser.add_argument("--requests", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND")
    options = parser.parse_args(arguments)
    size = int(options.megabytes * 1e6)
    logging.disable(logging.CRITICAL)
    table = Table("value", "without, ms", "with, ms", "added, ms", "added, MB")
    figures, checks = dict[str, Any](), []
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        in_child_with_imports(first_use, place / "modules.json")
        for kind in options.kinds:
            bare = in_process(place, kind, size, options.requests, with_memory=False)
            costs = in_process(place, kind, size, options.requests, with_memory=True)
            # Of the first request it is not known how much the process itself added, so the slowest is compared.
            added = 1e3 * (max(costs.seconds) - max(bare.seconds))
            megabytes = costs.megabytes - bare.megabytes
            times = (1e3 * max(bare.seconds), 1e3 * max(costs.seconds), added)
            table.add_row(kind, *(f"{value:.0f}" for value in (*times, megabytes)))
            figures[kind] = {"added_ms": added, "added_mb": megabytes}
            fits = added <= MOST_MS and megabytes <= MOST_MB
            checks.append((fits, f"{kind}: {added:.0f} ms <= {MOST_MS:.0f}, {megabytes:.0f} MB <= {MOST_MB:.0f}"))
    show(table)
    return conclude(checks, figures, options.json)


if __name__ == "__main__":
    sys.exit(main())
