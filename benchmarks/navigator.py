"""The tool dependency graph and its search: how fast, how large, and how much of real data flow it holds.

``python -m benchmarks.navigator``; what is measured and how: README.md beside this file.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from statistics import median, quantiles
from time import perf_counter
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.navigator_data import (
    GoldFlow,
    catalogue,
    measured,
    nestful_flows,
    nestful_histories,
    recorded_flows,
    recorded_histories,
    specs_of,
)
from benchmarks.replay import DATA
from benchmarks.scale import rss_mib
from benchmarks.sit import embedder_named, missing
from langgraph_toolmem.navigator import fields
from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.dependencies.vectors import ParameterVectors
from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.navigator.plan.planner import Strategy, plan
from langgraph_toolmem.text.embedders import Embedder
from langgraph_toolmem.text.schema import paths_of

SIZES: Final = (1_000, 4_000, 16_000)
STRATEGIES: Final[tuple[Strategy, ...]] = ("alpha_beta", "annealing")
RECORDED: Final = (
    "bfcl_v3_multi_turn",
    "tau_retail_gold",
    "tau_airline_gold",
    "tau2_retail_gpt41mini",
    "tau2_airline_gpt54",
    "tau2_telecom_gpt41",
)
BUILD_S, ADD_MS, PLAN_P50_MS, PLAN_P99_MS, MEMORY_MIB = 60.0, 50.0, 50.0, 200.0, 1024.0
"""What is asked for at 16,000 tools."""
_ROOT: Final = Path(__file__).resolve().parents[1]
_ADDED: Final = 100
BY_MEANING: Final = ", MiniLM"
"""Behind what a graph is called whose parameters are merged by meaning, too."""


# --- time and memory ----------------------------------------------------------------------------------------


def scale(folder: Path, count: int, *, own_parameters: bool, samples: int) -> dict[str, Any]:
    """Building, adding and planning at one size."""
    base = list(specs_of(folder).values())
    specs = catalogue(base, count + _ADDED, own_parameters=own_parameters)
    Random(0).shuffle(specs)
    specs, added = specs[:count], specs[count:]
    gc.collect()
    before, start = rss_mib(), perf_counter()
    graph = ToolDependencyGraph(specs)
    build = perf_counter() - start
    result: dict[str, Any] = {
        "tools": count,
        "own_parameters": own_parameters,
        "parameters": len(graph.clusters),
        "build_s": build,
        "memory_mib": rss_mib() - before,
    }
    adding = []
    for spec in added:
        start = perf_counter()
        graph.update([spec])
        adding.append(perf_counter() - start)
        graph.remove(spec.name)
    result["add_ms"] = {"p50": median(adding) * 1e3, "p99": p99(adding) * 1e3}
    result["add_ms"]["most"] = max(adding) * 1e3
    targets = Random(1).sample(specs, min(samples, len(specs)))
    needy = [spec.name for spec in specs if _has_choice(graph, spec.name)]
    chosen = {
        "any target": [s.name for s in targets],
        "targets with choices": Random(2).sample(needy, min(samples, len(needy))),
    }
    for strategy in STRATEGIES:
        for kind, names in chosen.items():
            times, steps, cut = [], [], 0
            for name in names:
                start = perf_counter()
                answer = plan(graph, name, ("email", "city"), strategy=strategy, clock=perf_counter)
                times.append((perf_counter() - start) * 1e3)
                steps.append(len(answer.chains[0].steps))
                cut += answer.cut_short
            result[f"plan {strategy}, {kind}"] = {
                "p50_ms": median(times),
                "p99_ms": p99(times),
                "mean_steps": sum(steps) / len(steps),
                "cut_short": cut,
            }
    return {**result, "load": os.getloadavg()[0]}


def p99(values: Sequence[float]) -> float:
    """99th percentile."""
    return quantiles([*values, *values], n=100, method="inclusive")[-1]


def _has_choice(graph: ToolDependencyGraph, tool: str) -> bool:
    """Whether something produces a required input."""
    return any(graph.links_into(port) for port in graph.apis[tool].needs)


# --- data flow ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Share:
    """How many of the gold flows a graph has.

    Attributes:
        graph: what the graph knew.
        group: part of the data.
        flows: gold flows.
        listed: of those, how many come out of a value that the graph has a port for.
        found: how many have a link from one of the tools that gave the value into the parameter that took it.
    """

    graph: str
    group: str
    flows: int
    listed: int
    found: int


def shares(graph: ToolDependencyGraph, flows: Iterable[GoldFlow], name: str, *, near: int = 0) -> list[Share]:
    """The share of gold flows among the structural links, by group and in all."""
    tally: dict[str, Counter[str]] = defaultdict(Counter)
    for flow in flows:
        producers: set[str] = set()
        for port in graph.apis[flow.consumer].inputs:
            if port.parameter == flow.parameter:
                producers |= {link.producer for link in graph.links_into(port, near=near)}
        listed = any(_is_listed(graph, tool, path) for tool, path in flow.sources)
        found = any(tool in producers for tool, _ in flow.sources)
        for group in (flow.group, "all"):
            tally[group].update(flows=1, listed=listed, found=found)
    return [Share(name, group, c["flows"], c["listed"], c["found"]) for group, c in sorted(tally.items())]


def _is_listed(graph: ToolDependencyGraph, tool: str, path: str) -> bool:
    return any(port.path.replace("[]", "") == path.replace("[]", "") for port in graph.apis[tool].outputs)


def density(graph: ToolDependencyGraph, *, near: int = 0) -> tuple[float, float]:
    """Links per input, and other tools per tool that are linked into it: the fewer, the more each of them says."""
    inputs = [port for api in graph.apis.values() for port in api.inputs]
    links = [link for port in inputs for link in graph.links_into(port, near=near)]
    pairs = {(link.producer, link.consumer) for link in links}
    return len(links) / max(1, len(inputs)), len(pairs) / max(1, len(graph))


@dataclass(frozen=True)
class Chains:
    """How often the chains to a target hold all tools that really gave it values; nothing but the target is known.

    Where several tools had given a value, one of them is enough.

    Attributes:
        best: share of targets for which the best chain does, in %.
        any: for which the up to three chains together do.
        further: other tools in the best chain, per target.
    """

    graph: str
    strategy: str
    knows: str
    group: str
    targets: int
    best: float
    any: float
    further: float


def chains(
    name: str, graph: ToolDependencyGraph, flows: Sequence[GoldFlow], halves: Mapping[bool, History]
) -> list[Chains]:
    """Cold, and with the history of the half of the tasks that the target is not in."""
    found = []
    upstream_of: dict[tuple[str, str, str], set[frozenset[str]]] = defaultdict(set)
    for flow in flows:
        if (tools := frozenset(tool for tool, _ in flow.sources) - {flow.consumer}) and flow.consumer in graph:
            upstream_of[flow.task, flow.group, flow.consumer].add(tools)
    for knows in ("nothing", "the other half"):
        for strategy in STRATEGIES:
            tally: dict[str, Counter[str]] = defaultdict(Counter)
            for (task, group, target), wanted in upstream_of.items():
                half = not measured(task)
                history = halves[half] if knows != "nothing" else None
                answer = plan(graph, target, history=history, strategy=strategy)
                best, some = set(answer.chains[0].tools), set(answer.tools)
                row = {"targets": 1, "best": all(best & each for each in wanted)}
                row["any"] = all(some & each for each in wanted)
                for of in {group, "all"} - {name}:
                    tally[of].update(row)
                    tally[of]["further"] += len(best.difference(*wanted)) - 1
            found += _means(name, strategy, knows, tally)
    return found


def _means(graph: str, strategy: str, knows: str, tally: Mapping[str, Counter[str]]) -> list[Chains]:
    found = []
    for group, c in sorted(tally.items()):
        n = c["targets"]
        found.append(
            Chains(graph, strategy, knows, group, n, 100 * c["best"] / n, 100 * c["any"] / n, c["further"] / n)
        )
    return found


def flow_report(data: Path, embedder: Embedder | None = None) -> dict[str, Any]:
    """All figures about data flow, with an embedder also of graphs whose parameters are merged by meaning.

    Sets that are not there are left out.
    """
    report: dict[str, Any] = {"shares": [], "density": [], "chains": []}
    folder = data / "nestful"
    if (folder / "queries.jsonl").exists():
        graph, flows = ToolDependencyGraph(specs_of(folder).values()), nestful_flows(folder)
        halves = nestful_histories(folder)
        for near in (0, 5):
            name = f"nestful, {'same meaning' if not near else f'else {near} near clusters'}"
            report["shares"] += map(asdict, shares(graph, flows, name, near=near))
            report["density"].append(_dense(name, graph, near=near))
        report["chains"] += map(asdict, chains("nestful", graph, flows, halves))
        if embedder is not None:
            graph = ToolDependencyGraph(specs_of(folder).values(), vectors=ParameterVectors(embedder))
            report["shares"] += map(asdict, shares(graph, flows, f"nestful{BY_MEANING}"))
            report["density"].append(_dense(f"nestful{BY_MEANING}", graph))
            report["chains"] += map(asdict, chains(f"nestful{BY_MEANING}", graph, flows, halves))
    for name in RECORDED:
        folder = data / name
        if not (folder / "trajectories.jsonl").exists():
            continue
        recorded, outputs = recorded_flows(folder)
        halves = recorded_histories(folder, recorded)
        report["chains"] += map(asdict, chains(name, ToolDependencyGraph(specs_of(folder).values()), recorded, halves))
        flows = [flow for flow in recorded if measured(flow.task)]
        seen: dict[str, fields.Row] = defaultdict(dict)
        for task, tool, output in outputs:
            if not measured(task):
                fields.add(seen[tool], paths_of(output), None)
        for by, vectors in {"": None, BY_MEANING: None if embedder is None else ParameterVectors(embedder)}.items():
            if by and vectors is None:
                continue
            graph = ToolDependencyGraph(specs_of(folder).values(), vectors=vectors)
            for knows in ("schemas", "schemas and outputs of the other half"):
                report["shares"] += map(asdict, shares(graph, flows, f"{name}, {knows}{by}")[:1])
                report["density"].append(_dense(f"{name}, {knows}{by}", graph))
                for tool, row in seen.items():
                    graph.note_outputs(tool, fields.usable(row))
    return report


def _dense(name: str, graph: ToolDependencyGraph, *, near: int = 0) -> dict[str, Any]:
    per_input, per_tool = density(graph, near=near)
    return {"graph": name, "links_per_input": per_input, "producers_per_tool": per_tool}


# --- what is printed ----------------------------------------------------------------------------------------


def show(scales: Sequence[Mapping[str, Any]], flow: Mapping[str, Any]) -> None:
    """Everything, on stdout."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    table = Table(title="time and memory", title_justify="left")
    for head in (
        "tools",
        "copies' parameters",
        "parameter nodes",
        "build s",
        "MiB",
        "add p50 / p99 / most ms",
        "plan p50 / p99 ms",
    ):
        table.add_column(head, justify="right")
    for row in scales:
        plans = "\n".join(
            f"{name.removeprefix('plan ')}: {value['p50_ms']:.2f} / {value['p99_ms']:.1f}"
            for name, value in row.items()
            if name.startswith("plan ")
        )
        kind = "their own" if row["own_parameters"] else "shared"
        figures = (
            f"{row['build_s']:.1f}",
            f"{row['memory_mib']:.0f}",
            " / ".join(f"{row['add_ms'][k]:.2f}" for k in ("p50", "p99", "most")),
            plans,
        )
        table.add_row(str(row["tools"]), kind, str(row["parameters"]), *figures)
    console.print(table)
    dense = {row["graph"]: row for row in flow["density"]}
    table = Table(title="gold data flows that are links of the graph", title_justify="left")
    for head in (
        "graph",
        "group",
        "flows",
        "output listed %",
        "found %",
        "found of listed %",
        "links per input",
        "producers per tool",
    ):
        table.add_column(head, justify="left" if head in ("graph", "group") else "right")
    for row in flow["shares"]:
        n, listed, near = row["flows"], row["listed"], dense[row["graph"]]
        of_listed = f"{100 * row['found'] / listed:.1f}" if listed else ""
        cells = (f"{100 * listed / n:.1f}", f"{100 * row['found'] / n:.1f}", of_listed)
        tail = (
            (f"{near['links_per_input']:.1f}", f"{near['producers_per_tool']:.1f}")
            if row["group"] == "all"
            else ("", "")
        )
        table.add_row(row["graph"], row["group"], str(n), *cells, *tail)
    console.print(table)
    table = Table(title="all tools that gave the target values are in …", title_justify="left")
    for head in (
        "set",
        "strategy",
        "knows",
        "group",
        "targets",
        "best chain %",
        "three chains %",
        "further tools in the best",
    ):
        table.add_column(head, justify="left" if head in ("set", "strategy", "knows", "group") else "right")
    for row in flow["chains"]:
        in_percent = [f"{row['best']:.1f}", f"{row['any']:.1f}", f"{row['further']:.2f}"]
        table.add_row(row["graph"], row["strategy"], row["knows"], row["group"], str(row["targets"]), *in_percent)
    console.print(table)
    busy, cores = max((row["load"] for row in scales), default=0.0), os.cpu_count() or 1
    if busy > cores:
        print(f"Others used the processors too (load {busy:.1f} on {cores}): times are longer than they need be.")
    for holds, text in verdicts(scales):
        print(f"{'holds' if holds else 'MISSED'}  {text}")


def verdicts(scales: Sequence[Mapping[str, Any]]) -> list[tuple[bool, str]]:
    """Whether what is asked for holds at the largest size."""
    found: list[tuple[bool, str]] = []
    for row in scales:
        if row["tools"] != max(other["tools"] for other in scales):
            continue
        plans = [value for name, value in row.items() if name.startswith("plan ")]
        p50, late = max(value["p50_ms"] for value in plans), max(value["p99_ms"] for value in plans)
        where = f"{row['tools']} tools, parameters {'of their own' if row['own_parameters'] else 'shared'}"
        found += [
            (row["build_s"] <= BUILD_S, f"{where}: built in {row['build_s']:.1f} s <= {BUILD_S:g}"),
            (row["memory_mib"] <= MEMORY_MIB, f"{where}: {row['memory_mib']:.0f} MiB <= {MEMORY_MIB:g}"),
            (
                row["add_ms"]["p99"] <= ADD_MS,
                f"{where}: one tool added in {row['add_ms']['p99']:.2f} ms <= {ADD_MS:g}, p99",
            ),
            (p50 <= PLAN_P50_MS, f"{where}: plan p50 {p50:.2f} ms <= {PLAN_P50_MS:g}"),
            (late <= PLAN_P99_MS, f"{where}: plan p99 {late:.1f} ms <= {PLAN_P99_MS:g}"),
        ]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.navigator", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES), help="numbers of tools")
    parser.add_argument("--samples", type=int, default=300, help="plans that each time is taken over")
    parser.add_argument("--no-model", action="store_true", help="without all-MiniLM-L6-v2")
    parser.add_argument("--data", type=Path, default=DATA, help="where the sets are")
    parser.add_argument("--json", type=Path, dest="json_file", help="write every figure there")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)

    base = options.data / "toolbench_catalog"
    if options.worker is not None:
        count, own = options.worker.split(",")
        print(json.dumps(scale(base, int(count), own_parameters=own == "own", samples=options.samples)))
        return 0
    scales = []
    if (base / "tools.json").exists():
        for size in options.sizes:
            for kind in ("shared", "own"):
                print(f"{size} tools, parameters {kind} …", file=sys.stderr)
                command = [sys.executable, "-m", "benchmarks.navigator", "--worker", f"{size},{kind}"]
                command += ["--samples", str(options.samples), "--data", str(options.data)]
                done = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, check=True)
                scales.append(json.loads(done.stdout))
    else:
        print("skipped: no tools in toolbench_catalog (looked for ../shared/data/toolbench_catalog/tools.json)")
    embedder = None
    if not options.no_model:
        if why := missing("MiniLM"):
            print(f"skipped: MiniLM: {why}")
        else:
            embedder = embedder_named("MiniLM")
    flow = flow_report(options.data, embedder)
    show(scales, flow)
    if options.json_file is not None:
        options.json_file.write_text(json.dumps({"scale": scales, **flow}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
