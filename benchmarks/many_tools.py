"""What does it cost to have many tools? Tokens and cached tokens a model turn, and whether the needed tools are found.

    python -m benchmarks.many_tools [--tools 500] [--threads 20] [--seeds 2] [--no-model] [--data FOLDER] [--json FILE]

Real requests over real APIs (`toolbench_catalog`), in threads of ten; each thread's agent has so many tools, those that
its requests need among them. A scripted agent searches with the user's words, searches once more if a needed tool is
missing, calls each tool once and answers. The prompts are those that the model would get: tools first, then messages;
cached is what a prompt has in common with the beginning of the one before. An LLM that selects tools for each call is
given the right choice, and pays for reading all descriptions. `revealed` adds runs of the other half of the recorded
sets: how often tools are shown without a search, and are right.
"""

from __future__ import annotations

import json
import random
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from rich.table import Table

from benchmarks import command, conclude, present, show
from benchmarks.recall import embedder_named, missing
from benchmarks.tool_search import CATALOGUE, Rank, Request, episodes, halves, requests, tools_of, yardsticks
from langgraph_toolmem import ToolMemory
from langgraph_toolmem.navigator.deferred import LEAST_VOTE, DeferredTools, ToolSearch, described, find_tools
from langgraph_toolmem.navigator.precedents import Precedents
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.embedders import Embedder

REQUESTS: Final = 10
K: Final = 5
SYSTEM: Final = "s" * 6_000
"""Of the host: about 1,500 tokens."""
ANSWER: Final = "a" * 240
TAU2: Final = ("tau2_retail_gpt41mini", "tau2_airline_gpt54", "tau2_telecom_gpt41")
RUNS: Final = ("bfcl_v3_multi_turn", "workbench_gpt4", *TAU2)
REUSE: Final = 0.98
CONSTANT: Final = 2_000
CPU_MS: Final = 6.0

Search = Callable[[str, Sequence[str]], list[str]]
"""From words and the names that may be found to names."""


@dataclass
class Score:
    """Of one way: tokens and uncached tokens a model turn, the part of a prompt that the next one reuses, and the share
    of requests with all needed tools after the first and the second search."""

    way: str
    tokens: float
    paid: float
    reuse: float
    first: float
    second: float


class Thread:
    """The prompts of one thread."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.prompts: list[str] = []
        self.before: list[str] = []
        self._last = {"model": "", "aside": ""}

    def ask(self, tools: Sequence[Any], messages: Sequence[Any] | None = None, *, asides: str = "") -> None:
        """A model turn; `asides`: a prompt that another model reads for it, with a cache of its own."""
        if asides:
            self._add("aside", asides)
        shown = [convert_to_openai_tool(tool) for tool in tools]
        said = [
            [m.type, m.text, getattr(m, "tool_calls", None), getattr(m, "name", None)]
            for m in (self.messages if messages is None else messages)
        ]
        self._add("model", json.dumps([shown, SYSTEM, *said]))

    def _add(self, whose: str, prompt: str) -> None:
        self.prompts.append(prompt)
        self.before.append(self._last[whose])
        self._last[whose] = prompt

    def call(self, name: str, arguments: dict[str, Any], answer: str, artifact: Any = None) -> None:
        """A call with its answer."""
        made = f"call_{len(self.messages)}"
        self.messages.append(AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": made}]))
        self.messages.append(ToolMessage(answer, tool_call_id=made, name=name, artifact=artifact))


def tool_of(spec: ToolSpec) -> BaseTool:
    """A tool that can be offered."""
    return StructuredTool(
        name=spec.name,
        description=spec.description or spec.name,
        args_schema=dict(spec.parameters),
        func=lambda **_: "",
    )


def in_common(before: str, after: str) -> int:
    """Characters of the common beginning."""
    low, high = 0, min(len(before), len(after))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if before[:middle] == after[:middle] else (low, middle - 1)
    return low


def offered_all(thread: Thread, asked: Request, tools: dict[str, BaseTool]) -> tuple[bool, bool]:
    """All tools in each prompt."""
    for name in sorted(asked.relevant):
        thread.ask([*tools.values()])
        thread.call(name, {}, ANSWER)
    thread.ask([*tools.values()])
    return True, True


def selected(thread: Thread, asked: Request, tools: dict[str, BaseTool]) -> tuple[bool, bool]:
    """`LLMToolSelectorMiddleware`, whose model always chooses right: another prompt before each model call."""
    menu = json.dumps([*(f"{tool.name}: {tool.description}" for tool in tools.values()), asked.text])
    chosen = [tools[name] for name in sorted(asked.relevant)]
    for name in sorted(asked.relevant):
        thread.ask(chosen, asides=menu)
        thread.call(name, {}, ANSWER)
    thread.ask(chosen, asides=menu)
    return True, True


def searched(search: Search, bind: Callable[[Thread, dict[str, BaseTool], list[str]], None], text: Any) -> Any:
    """A way with a search tool: `bind` makes the prompt from the names found so far in the thread."""

    def run(thread: Thread, asked: Request, tools: dict[str, BaseTool]) -> tuple[bool, bool]:
        there = [name for m in thread.messages if isinstance(m, ToolMessage) and m.artifact for name in m.artifact]
        seen: list[bool] = []
        for _ in range(2):
            if seen and seen[-1]:
                break
            bind(thread, tools, there)
            found = search(asked.text, [name for name in tools if name not in there])
            thread.call("search_tools", {"query": asked.text}, text(found), found)
            there += found
            seen.append(asked.relevant <= {*there})
        for name in sorted(asked.relevant & {*there}):
            bind(thread, tools, there)
            thread.call(name, {}, ANSWER)
        bind(thread, tools, there)
        return seen[0], seen[-1]

    return run


def ways(specs: dict[str, ToolSpec], memory: ToolMemory, embedder: Embedder | None) -> dict[str, Any]:
    """Each way to have these tools."""
    ranks: dict[str, Rank] = yardsticks([*specs.values()], embedder)
    way = DeferredTools(memory.navigator, ToolSearch(k=K, mode="portable"))

    def ranked(rank: Rank) -> Search:
        return lambda query, names: [name for name in rank(query) if name in {*names}][:K]

    def ours(query: str, names: Sequence[str]) -> list[str]:
        return [*find_tools(memory.navigator, query, names, K, request=query)]

    def portable(thread: Thread, tools: dict[str, BaseTool], _: list[str]) -> None:
        thread.ask(*way.offer([*tools.values(), *way.tools], thread.messages, None)[:2])

    def bound(thread: Thread, tools: dict[str, BaseTool], there: list[str]) -> None:
        thread.ask([way.search_tool, *(tools[name] for name in dict.fromkeys(there))])

    def with_schemas(found: Sequence[str]) -> str:
        return "\n".join(described(specs[name]) for name in found)

    bigtool = "MiniLM, name + description (bigtool's way)"
    return {
        "all tools in the prompt": offered_all,
        "LLM selector, always right": selected,
        "langgraph-bigtool's way": searched(ranked(ranks.get(bigtool, ranks["BM25"])), bound, "\n".join),
        "BM25, portable": searched(ranked(ranks["BM25"]), portable, with_schemas),
        "ours, portable": searched(ours, portable, with_schemas),
    }


def measure(options: Namespace, embedder: Embedder | None) -> tuple[list[Score], dict[str, float]]:
    """All ways on the same threads; and milliseconds of CPU of a search, tokens of the constant part."""
    catalogue = {each.name: each for each in tools_of(options.data, CATALOGUE)}
    asked = [each for each in requests(options.data) if each.held_out]
    sums: dict[str, list[tuple[int, int, int, int, bool, bool]]] = {}
    times: list[float] = []
    constant = 0
    for seed in range(1, options.seeds + 1):
        draw = random.Random(seed)
        for _ in range(options.threads):
            chosen = draw.sample(asked, REQUESTS)
            needed = sorted({name for each in chosen for name in each.relevant})
            others = [name for name in catalogue if name not in {*needed}]
            names = needed + draw.sample(others, max(0, options.tools - len(needed)))
            draw.shuffle(names)
            specs = {name: catalogue[name] for name in names}
            tools = {name: tool_of(spec) for name, spec in specs.items()}
            with ToolMemory.ephemeral(tools=[*specs.values()], embeddings=embedder) as memory:
                for way, run in ways(specs, memory, embedder).items():
                    thread = Thread()
                    for each in chosen:
                        turns = len(thread.prompts)
                        thread.messages.append(HumanMessage(each.text))
                        first, second = run(thread, each, tools)
                        thread.messages.append(AIMessage("Done."))
                        new = thread.prompts[turns:]
                        before = thread.before[turns:]
                        cached = [in_common(a, b) for a, b in zip(before, new, strict=True)]
                        row = (sum(map(len, new)), sum(cached), sum(map(len, before)), len(new), first, second)
                        sums.setdefault(way, []).append(row)
                    if way == "ours, portable":
                        constant = max(constant, thread.prompts[0].index(SYSTEM) // 4)
                for each in chosen:
                    begun = time.thread_time()
                    find_tools(memory.navigator, each.text, names, K, request=each.text)
                    times.append(1e3 * (time.thread_time() - begun))
    scores = []
    for way, rows in sums.items():
        total, same, reusable, turns, first, second = (int(sum(part)) for part in zip(*rows, strict=True))
        tokens, paid = total / turns / 4, (total - same) / turns / 4
        scores.append(
            Score(way, tokens, paid, same / max(1, reusable), 100 * first / len(rows), 100 * second / len(rows))
        )
    return scores, {"cpu_ms": median(times), "constant_tokens": constant}


@dataclass(frozen=True)
class Revealed:
    """Percent of episodes of a set that are shown a tool without a search, of shown tools that are called, and of
    episodes that need no search."""

    name: str
    shown: float
    right: float
    whole: float


def revealed(data: Path, name: str) -> Revealed:
    """Half of the tasks with the other half as past runs."""
    found = episodes(data, name)
    rows = []
    for seed in (1, 2):
        first, second = halves(found, seed)
        for asked, known in ((first, second), (second, first)):
            past = Precedents()
            for each in known:
                past.add(list(each.tools), each.request)
            for each in asked:
                votes = past.votes(each.request)
                sure = sorted((tool for tool in votes if votes[tool] >= LEAST_VOTE), key=lambda t: -votes[t])[:K]
                rows.append((bool(sure), len(sure), len({*sure} & {*each.tools}), {*each.tools} <= {*sure}))
    shown, tools, right, whole = (sum(part) for part in zip(*rows, strict=True))
    return Revealed(name, 100 * shown / len(rows), 100 * right / max(1, tools), 100 * whole / len(rows))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = command("many_tools", __doc__)
    parser.add_argument("--tools", type=int, default=500)
    parser.add_argument("--threads", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--no-model", action="store_true", help="by words alone, without an embedding model")
    options = parser.parse_args(arguments)
    if not present(options, [CATALOGUE], queries=True):
        return 0
    embedder = None if options.no_model or missing("MiniLM") else embedder_named("MiniLM")
    scores, facts = measure(options, embedder)
    table = Table("way", "tokens a turn", "paid", "reuse", "all found: 1st", "2nd search")
    for each in scores:
        found = f"{each.first:.0f} %", f"{each.second:.0f} %"
        table.add_row(each.way, f"{each.tokens:,.0f}", f"{each.paid:,.0f}", f"{each.reuse:.1%}", *found)
    show(table)
    shown = [revealed(options.data, name) for name in present(options, RUNS)]
    table = Table("recorded runs", "shown without a search", "right", "no search needed")
    for row in shown:
        table.add_row(row.name, f"{row.shown:.0f} %", f"{row.right:.0f} %", f"{row.whole:.0f} %")
    show(table)
    ours = next(each for each in scores if each.way == "ours, portable")
    checks = [
        (ours.reuse >= REUSE, f"portable: {ours.reuse:.1%} of the reusable prompt >= {REUSE:.0%}"),
        (facts["constant_tokens"] <= CONSTANT, f"constant tools: {facts['constant_tokens']:,} tokens <= {CONSTANT:,}"),
        (facts["cpu_ms"] <= CPU_MS, f"search: {facts['cpu_ms']:.1f} ms of CPU <= {CPU_MS:.0f}"),
    ]
    figures = {"scores": [*map(asdict, scores)], "revealed": [*map(asdict, shown)], **facts}
    return conclude(checks, figures, options.json)


if __name__ == "__main__":
    sys.exit(main())
