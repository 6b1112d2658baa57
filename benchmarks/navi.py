"""The decider in the office: path recombination when a fifth of the tools fails for good, and model calls.

    python -m benchmarks.navi
    python -m benchmarks.navi --tasks 20 --seeds 1 --candidates 12 --json navi.json

For each task a fifth of the office's 40 tools, drawn from the seed, fails at every call. Tasks count for which another
route exists and is needed: the ideal calls are broken, and the scripted decider's own knowledge of alternatives could
finish with the tools that work, were they all at hand. What it may call is what the navigator shows it. Measured with
the office's tools alone and with 300 of other departments beside them, with a memory that saw runs without failures
and with an empty one.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from examples.many_tools import generated
from examples.office.assistant import understand
from examples.office.decider import OfficeDecider, value_of
from examples.office.office import Office
from examples.office.plan import GaveUp, Pending, Replay, Result
from examples.office.tasks import Task, make_tasks
from langgraph_toolmem import ToolMemory
from langgraph_toolmem.navigator.decide.state import NaviLimits, NaviRecord
from langgraph_toolmem.nodes.navi import create_navi_subgraph
from langgraph_toolmem.testing import ScriptedChatModel, count_tokens

SHARE = 0.2
WARM = 60
MOST_CALLS = 200
LEAST_DONE = 0.95
SPARE = 2
"""Model calls that a task without failures may take beyond its tool calls: one to search, one to answer."""
Which = Literal["all", "broken", "none"]
MissingKnowledge = (GaveUp, LookupError, TypeError, StopIteration, ValueError)


@dataclass(frozen=True)
class Rival:
    """A task without the navigator: a loop of model and tools, with the same knowledge of alternatives.

    Attributes:
        done: whether it was finished.
        repeated: calls of tools that had failed before.
        tokens: of tool descriptions in all prompts, about.
    """

    done: bool
    repeated: int
    tokens: int


@dataclass(frozen=True)
class Row:
    """One task under failures.

    Attributes:
        single: whether the single path finishes it.
        retrieved, everything: a loop with the tools that one search brings, and with all tools.
        done: whether the navigator finished it.
        model_calls, tool_calls: what that took.
        repeated: calls of tools that had failed before.
        routes: what was done about each failure, in order.
        honest: the answer of an unfinished task says so.
        tokens: of all prompts, about.
        shown: most candidates in one prompt.
    """

    task: str
    kind: str
    single: bool
    retrieved: Rival
    everything: Rival
    done: bool
    model_calls: int
    tool_calls: int
    repeated: int
    routes: tuple[str, ...]
    honest: bool
    tokens: int
    shown: int


@dataclass(frozen=True)
class Totals:
    """Sums over rows; `silent` counts answers of unfinished tasks that do not say so, `tokens` is the mean a task."""

    tasks: int
    single: int
    retrieved: int
    retrieved_repeated: int
    everything: int
    everything_tokens: float
    done: int
    repeated: int
    over_budget: int
    silent: int
    model_calls: float
    tokens: float
    shown: int
    ways: dict[str, int]


class Desk:
    """An office, a memory and the navigator over both.

    Args:
        warm: runs without failures that the memory sees first, through the navigator itself.
        others: tools of other departments.
        seed: of these runs, and of the order of the tools.
        limits: of the navigator.
    """

    def __init__(
        self, warm: int = 0, *, others: Sequence[BaseTool] = (), seed: int = 0, limits: NaviLimits | None = None
    ) -> None:
        self.office = Office(0)
        self.tools: list[BaseTool] = [*self.office.tools(), *others]
        random.Random(seed).shuffle(self.tools)  # where hardly anything fits, the first tools fill up
        self.limits = limits or NaviLimits()
        self.memory = ToolMemory.ephemeral(tools=self.tools)
        self.model = ScriptedChatModel(script=OfficeDecider())
        for task in make_tasks(warm, seed=seed) if warm else ():
            self.office.reset(task.seed)
            self.graph(record=True).invoke({"messages": [("user", task.request)]})
        self._graph = self.graph(record=False)
        self._tokens = {tool.name: count_tokens(convert_to_openai_tool(tool)) for tool in self.tools}

    def graph(self, *, record: bool) -> Any:
        """The navigator."""
        return create_navi_subgraph(self.model, self.tools, self.memory, record=record, limits=self.limits)

    def close(self) -> None:
        """Closes the memory."""
        self.memory.close()

    def run(self, task: Task, failing: Sequence[str] = ()) -> Row:
        """A task through the navigator and its rivals, with failures."""
        found = [hit.name for hit in self.memory.navigator.search(task.request, k=self.limits.candidates)]
        retrieved = self._rival(task, failing, found)
        everything = self._rival(task, failing, [tool.name for tool in self.tools])
        self._prepare(task, failing)
        before = len(self.model.calls)
        state = self._graph.invoke({"messages": [("user", task.request)]})
        asked = self.model.calls[before:]
        record: NaviRecord = state["toolmem_navi"]
        broken: set[str] = set()
        repeated = 0
        for message in state["messages"]:
            if isinstance(message, AIMessage):  # calls of one decision run side by side: none is known as failed yet
                repeated += sum(call["name"] in broken for call in message.tool_calls)
            elif isinstance(message, ToolMessage) and message.status == "error":
                broken.add(str(message.name))
        says_so = "could not" in state["messages"][-1].text
        done = task.checker(self.office) and not says_so  # a task that only asks leaves the office as it was
        prompts = [[message.text for message in call.messages] for call in asked]
        return Row(
            task=task.id,
            kind=task.kind,
            single=not any(call.tool in failing for call in task.script()),
            retrieved=retrieved,
            everything=everything,
            done=done,
            model_calls=len(asked),
            tool_calls=len(record["made"]),
            repeated=repeated,
            routes=tuple(route["way"] for route in record["routes"]),
            honest=done or says_so,
            tokens=sum(count_tokens(text) for texts in prompts for text in texts),
            shown=max(sum(line.startswith("- ") for line in _candidates(texts[-1])) for texts in prompts),
        )

    def _prepare(self, task: Task, failing: Sequence[str]) -> None:
        self.office.reset(task.seed)
        for tool in failing:
            self.office.inject(tool, probability=1.0)

    def _rival(self, task: Task, failing: Sequence[str], offered: Sequence[str]) -> Rival:
        self._prepare(task, failing)
        tools = {tool.name: tool for tool in self.tools}
        known, turns, repeated = understand(task.request), 0, 0
        results: list[Result] = []
        while known is not None and len(results) < MOST_CALLS:
            turns += 1
            try:
                known[0].plan(Replay(results, frozenset(offered)), known[1])
            except Pending as pending:
                failed = {result.tool for result in results if not result.ok}
                repeated += sum(call.tool in failed for call in pending.calls)
                for call in pending.calls:
                    asked = {"name": call.tool, "args": call.args, "id": "call", "type": "tool_call"}
                    answer = tools[call.tool].invoke(asked)
                    results.append(Result(call.tool, call.args, answer.status != "error", value_of(answer.text)))
            except MissingKnowledge:
                break
            else:
                return Rival(task.checker(self.office), repeated, turns * sum(self._tokens[name] for name in offered))
        return Rival(False, repeated, turns * sum(self._tokens[name] for name in offered))


def _candidates(prompt: str) -> list[str]:
    _, _, rest = prompt.partition("## Candidate APIs\n---\n")
    return rest.partition("\n---")[0].splitlines()


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
        except MissingKnowledge:
            return False
        else:
            return task.checker(office)
    return False


def draws(n: int, seed: int, which: Which) -> Iterator[tuple[Task, tuple[str, ...]]]:
    """`n` tasks, each with the tools that fail.

    Args:
        n: how many.
        seed: of tasks and failures.
        which: "all": no tool fails; "broken": a tool of the ideal calls fails, and another route exists; "none": one
            fails, and there is no other route.
    """
    rng = random.Random(seed)
    office = Office(0)
    names = sorted(tool.name for tool in office.tools())
    made = 0
    for round_ in range(100):
        for task in make_tasks(200, seed=1_000 * seed + round_):
            failing = tuple(sorted(rng.sample(names, round(SHARE * len(names))))) if which != "all" else ()
            if which != "all":
                if not any(call.tool in failing for call in task.script()):
                    continue
                if solvable(task, office, failing) != (which == "broken"):
                    continue
            yield task, failing
            made += 1
            if made == n:
                return


def totals(rows: Sequence[Row]) -> Totals:
    """Add up. Over budget: tasks without a failure that took more than tool calls + 2 model calls."""
    many = max(1, len(rows))
    calm = [row for row in rows if not row.routes]
    return Totals(
        tasks=len(rows),
        single=sum(row.single for row in rows),
        retrieved=sum(row.retrieved.done for row in rows),
        retrieved_repeated=sum(row.retrieved.repeated for row in rows),
        everything=sum(row.everything.done for row in rows),
        everything_tokens=sum(row.everything.tokens for row in rows) / many,
        done=sum(row.done for row in rows),
        repeated=sum(row.repeated for row in rows),
        over_budget=sum(row.model_calls > row.tool_calls + SPARE for row in calm),
        silent=sum(not row.honest for row in rows),
        model_calls=sum(row.model_calls for row in rows) / many,
        tokens=sum(row.tokens for row in rows) / many,
        shown=max((row.shown for row in rows), default=0),
        ways=dict(Counter(way for row in rows for way in row.routes)),
    )


@dataclass(frozen=True)
class Setting:
    """One line of the table."""

    others: int
    warm: int
    which: Which

    @property
    def name(self) -> str:
        """As it is printed."""
        what = {"all": "no failures", "broken": "another route exists", "none": "no route exists"}[self.which]
        return f"{40 + self.others} tools, {'warm' if self.warm else 'cold'}, {what}"


SETTINGS = [
    Setting(others, warm, which) for which in ("broken", "none", "all") for others in (0, 300) for warm in (WARM, 0)
]


def measure(
    tasks: int, seeds: int, limits: NaviLimits, settings: Sequence[Setting] = tuple(SETTINGS)
) -> dict[Setting, list[Row]]:
    """The rows of each setting, `tasks` of each seed."""
    found: dict[Setting, list[Row]] = {setting: [] for setting in settings}
    for seed in range(seeds):
        for others, warm in dict.fromkeys((setting.others, setting.warm) for setting in settings):
            desk = Desk(warm, others=generated()[:others], seed=50_000 + seed, limits=limits)
            try:
                for setting in settings:
                    if (setting.others, setting.warm) == (others, warm):
                        print(f"seed {seed}: {setting.name}", file=sys.stderr)
                        found[setting] += [desk.run(task, out) for task, out in draws(tasks, seed, setting.which)]
            finally:
                desk.close()
    return found


def verdicts(sums: dict[Setting, Totals]) -> list[tuple[bool, str]]:
    """Whether what is asked of the navigator holds."""
    found = []
    for setting, total in sums.items():
        done, many = total.done / max(1, total.tasks), total.tasks
        if setting.which == "broken":
            found.append((done >= LEAST_DONE, f"{setting.name}: {done:.1%} of {many} finished >= {LEAST_DONE:.0%}"))
        if setting.which == "none":
            found.append((total.silent == 0, f"{setting.name}: {total.silent} of {many} answers do not say so = 0"))
        if setting.which == "all":
            text = f"{setting.name}: {total.over_budget} of {many} took more than tool calls + {SPARE} model calls = 0"
            found.append((total.over_budget == 0, text))
    repeated = sum(total.repeated for total in sums.values())
    return [*found, (repeated == 0, f"all: {repeated} calls of tools that had failed = 0")]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.navi", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tasks", type=int, default=70, help="tasks of each seed and setting (default: 70)")
    parser.add_argument("--seeds", type=int, default=3, help="how many seeds (default: 3)")
    parser.add_argument("--candidates", type=int, default=NaviLimits().candidates, help="APIs of the first decision")
    parser.add_argument("--json", type=Path, help="write every row here")
    options = parser.parse_args(arguments)
    rows = measure(options.tasks, options.seeds, NaviLimits(candidates=options.candidates))
    sums = {setting: totals(found) for setting, found in rows.items()}
    print(
        f"{options.candidates} candidates in the first decision; {options.seeds} seeds; the share of tasks finished by"
    )
    print(f"{'':42} {'tasks':>5} {'single':>7} {'top ' + str(options.candidates):>7} {'all':>7} {'navi':>7}", end="")
    print(f" {'says so':>8} {'calls':>6} {'shown':>6} {'tokens':>7} {'all':>7}  ways")
    for setting, total in sums.items():
        parts = (total.single, total.retrieved, total.everything, total.done)
        shares = " ".join(f"{part / max(1, total.tasks):>7.1%}" for part in parts)
        undone = total.tasks - total.done
        honest = f"{1 - total.silent / undone:.0%}" if undone else "-"
        print(
            f"{setting.name:42} {total.tasks:>5} {shares} {honest:>8} {total.model_calls:>6.2f} {total.shown:>6}",
            end="",
        )
        print(f" {total.tokens:>7.0f} {total.everything_tokens:>7.0f}  {total.ways or ''}")
    print()
    checks = verdicts(sums)
    for holds, text in checks:
        print(f"{'holds' if holds else 'MISSED'}  {text}")
    if options.json:
        written = {
            "candidates": options.candidates,
            "settings": {
                setting.name: {"totals": asdict(sums[setting]), "rows": [asdict(row) for row in found]}
                for setting, found in rows.items()
            },
            "targets": [{"holds": holds, "target": text} for holds, text in checks],
        }
        options.json.write_text(json.dumps(written, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
