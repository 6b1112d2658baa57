"""Path recombination in the office: a fifth of the tools fails for good, and another route exists.

    python -m benchmarks.navi
    python -m benchmarks.navi --tasks 60 --json navi.json

For each task a fifth of the tools, drawn from the seed, fails at every call. Tasks count for which the scripted
decider's own knowledge of stand-ins could finish with the other tools (tried out with all tools at hand). Compared:
the single path (the ideal calls and no others), and the navigator with a memory that saw some runs or none; first
over all such tasks, then over those whose single path is broken.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from langchain_core.messages import AIMessage, ToolMessage

from examples.office.assistant import understand
from examples.office.decider import OfficeDecider
from examples.office.office import Office
from examples.office.plan import GaveUp, Pending, Replay, Result
from examples.office.tasks import Task, make_tasks
from langgraph_toolmem import ToolMemory
from langgraph_toolmem.navi.state import NaviLimits, NaviRecord
from langgraph_toolmem.nodes.navi import create_navi_subgraph
from langgraph_toolmem.testing import ScriptedChatModel

SHARE = 0.2
WARM = 60
MOST_CALLS = 200
Which = Literal["route", "broken", "none"]


@dataclass(frozen=True)
class Row:
    """One task under failures.

    Attributes:
        single: whether the single path finishes it.
        done: whether the navigator did.
        model_calls, tool_calls: what that took.
        repeated: calls of tools that had failed before.
        routes: what was done about each failure, in order.
        honest: the answer of an unfinished task says so.
    """

    task: str
    kind: str
    single: bool
    done: bool
    model_calls: int
    tool_calls: int
    repeated: int
    routes: tuple[str, ...]
    honest: bool


@dataclass(frozen=True)
class Totals:
    """Sums over rows; `silent` counts answers of unfinished tasks that do not say so."""

    tasks: int
    single: int
    done: int
    repeated: int
    over_budget: int
    silent: int
    model_calls: float
    ways: dict[str, int]


def solvable(task: Task, office: Office, failing: Collection[str]) -> bool:
    """Whether the decider's knowledge finishes the task with the tools that work."""
    office.reset(task.seed)
    tools = {tool.name: tool for tool in office.tools() if tool.name not in failing}
    found = understand(task.request)
    if found is None:
        return False
    kind, slots = found
    results: list[Result] = []
    while len(results) < MOST_CALLS:
        try:
            kind.plan(Replay(results, frozenset(tools)), slots)
        except Pending as pending:
            results += [Result(c.tool, c.args, True, tools[c.tool].invoke(c.args)) for c in pending.calls]
        except (GaveUp, LookupError, TypeError, StopIteration, ValueError):
            return False
        else:
            return task.checker(office)
    return False


def draws(n: int, seed: int, which: Which) -> Iterator[tuple[Task, tuple[str, ...]]]:
    """`n` tasks, each with the tools that fail.

    Args:
        n: how many.
        seed: of tasks and failures.
        which: "route": another route exists, or none is needed; "broken": another route exists and is needed;
            "none": there is no route.
    """
    rng = random.Random(seed)
    office = Office(0)
    names = sorted(tool.name for tool in office.tools())
    made = 0
    for round_ in range(100):
        for task in make_tasks(200, seed=seed + round_):
            failing = tuple(sorted(rng.sample(names, round(SHARE * len(names)))))
            if which != "route" and not any(call.tool in failing for call in task.script()):
                continue
            if solvable(task, office, failing) == (which != "none"):
                yield task, failing
                made += 1
                if made == n:
                    return


def run_one(
    task: Task, failing: Sequence[str], memory: ToolMemory, office: Office, *, limits: NaviLimits | None = None
) -> Row:
    """A task through the navigator, with failures."""
    office.reset(task.seed)
    for tool in failing:
        office.inject(tool, probability=1.0)
    model = ScriptedChatModel(script=OfficeDecider())
    graph = create_navi_subgraph(model, office.tools(), memory, record=False, limits=limits)
    state = graph.invoke({"messages": [("user", task.request)]})
    record: NaviRecord = state["toolmem_navi"]
    broken: set[str] = set()
    repeated = 0
    for message in state["messages"]:
        if isinstance(message, AIMessage):  # calls of one decision run side by side: none is known as failed yet
            repeated += sum(call["name"] in broken for call in message.tool_calls)
        elif isinstance(message, ToolMessage) and message.status == "error":
            broken.add(str(message.name))
    says_so = "could not" in state["messages"][-1].text
    done = task.checker(office) and not says_so  # a task that only asks leaves the office as it was
    return Row(
        task=task.id,
        kind=task.kind,
        single=not any(call.tool in failing for call in task.script()),
        done=done,
        model_calls=len(model.calls),
        tool_calls=len(record["made"]),
        repeated=repeated,
        routes=tuple(route["way"] for route in record["routes"]),
        honest=done or says_so,
    )


def warmed(runs: int, seed: int) -> ToolMemory:
    """A memory that saw so many tasks without failures, through the navigator itself."""
    office = Office(0)
    memory = ToolMemory.ephemeral(tools=office.tools(), entries=False)
    for task in make_tasks(runs, seed=seed) if runs else ():
        office.reset(task.seed)
        model = ScriptedChatModel(script=OfficeDecider())
        create_navi_subgraph(model, office.tools(), memory).invoke({"messages": [("user", task.request)]})
    return memory


def totals(rows: Sequence[Row]) -> Totals:
    """Add up. Over budget: tasks without a failure that took more than 1 + tool calls + 1 model calls."""
    calm = [row for row in rows if not row.routes]
    return Totals(
        tasks=len(rows),
        single=sum(row.single for row in rows),
        done=sum(row.done for row in rows),
        repeated=sum(row.repeated for row in rows),
        over_budget=sum(row.model_calls > row.tool_calls + 2 for row in calm),
        silent=sum(not row.honest for row in rows),
        ways=dict(Counter(way for row in rows for way in row.routes)),
        model_calls=sum(row.model_calls for row in rows) / max(1, len(rows)),
    )


def measure(tasks: int, warm: int, seed: int, which: Which = "broken", limits: NaviLimits | None = None) -> list[Row]:
    """Rows of one setting."""
    office = Office(0)
    with warmed(warm, seed + 1000) as memory:
        return [run_one(task, failing, memory, office, limits=limits) for task, failing in draws(tasks, seed, which)]


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tasks", type=int, default=200, help="tasks of each setting")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--candidates", type=int, default=NaviLimits().candidates, help="APIs the decider is shown")
    parser.add_argument("--json", type=Path, help="write the rows here")
    options = parser.parse_args()
    written: dict[str, Any] = {}
    settings: list[tuple[str, int, Which]] = [
        ("a route exists", WARM, "route"),
        ("single path broken", WARM, "broken"),
        ("single path broken, no runs seen", 0, "broken"),
        ("no route", WARM, "none"),
    ]
    for name, warm, which in settings:
        rows = measure(options.tasks, warm, options.seed, which, NaviLimits(candidates=options.candidates))
        sums = totals(rows)
        written[name] = {"totals": asdict(sums), "rows": [asdict(row) for row in rows]}
        print(
            f"{name}: {sums.tasks} tasks; finished by the single path {sums.single / sums.tasks:.1%}, by the navigator "
            f"{sums.done / sums.tasks:.1%}; calls to failed tools {sums.repeated}; model calls a task "
            f"{sums.model_calls:.2f}; over budget {sums.over_budget}; answers that say nothing of it {sums.silent}; "
            f"ways {sums.ways}"
        )
    if options.json:
        options.json.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
