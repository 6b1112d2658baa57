"""Does the search find all the tools a request needs? Ours against what one would use instead, on real APIs.

``python -m benchmarks.tool_search``; what is measured and how: README.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.replay import DATA
from benchmarks.sit import embedder_named, missing
from benchmarks.tool_search_data import (
    CATALOGUE,
    CHAINS,
    OTHERS,
    Request,
    requests,
    tools_of,
)
from benchmarks.tool_search_fit import fit_chains, fit_search
from benchmarks.tool_search_rivals import DEPTH, Rank, Remembering, graph_tool_call, yardsticks
from benchmarks.tool_search_runs import BUILT_IN, OURS, ChainScore, HistoryScore, measure_chains, measure_history
from langgraph_toolmem.navigator.tool_search.search import ToolSearch
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.embedders import Embedder, resolve_embedder

TARGETS: Final = {"ours, built-in": (72, 53, 68, 78, 10), "ours, MiniLM": (78, 60, 76, 86, 60)}
"""R@5, C@5, C@10, C@20 in percent, and p50 in milliseconds."""
CHAIN_TARGETS: Final = {"nestful": (93, 98), "bfcl_v3_multi_turn": (88, 97)}
SEEDS: Final = (1, 2, 3)


@dataclass(frozen=True)
class Score:
    """Percent of one method on one part of the requests, and the p50 of a query in milliseconds."""

    method: str
    part: str
    r5: float
    c5: float
    c10: float
    c20: float
    p50: float


# --- requests ---------------------------------------------------------------------------------------------------


def ours(tools: Sequence[ToolSpec], embedder: Embedder | None) -> Rank:
    """Our search as a ranking."""
    search = ToolSearch(tools, embedder=embedder)
    return lambda query: [found.name for found in search.search(query, DEPTH)]


def measure(method: str, rank: Rank, asked: Sequence[Request]) -> list[Score]:
    """A method on all requests, and on those from which no constant was fitted."""
    rank(asked[0].text)
    rows = []
    for each in asked:
        begun = time.perf_counter()
        found = rank(each.text)
        taken = 1000 * (time.perf_counter() - begun)
        r5 = len(each.relevant & set(found[:5])) / len(each.relevant)
        rows.append((each.held_out, r5, *(each.relevant <= set(found[:k]) for k in (5, 10, 20)), taken))
    answer = []
    for part, kept in (("all", rows), ("held out", [row for row in rows if row[0]])):
        if kept:
            r5, c5, c10, c20 = (100 * fmean(float(row[place]) for row in kept) for place in (1, 2, 3, 4))
            answer.append(Score(method, part, r5, c5, c10, c20, median(row[5] for row in kept)))
    return answer


# --- time at size -----------------------------------------------------------------------------------------------


def times(tools: Sequence[ToolSpec], asked: Sequence[Request], size: int) -> dict[str, float]:
    """Seconds to build, milliseconds to add a tool and to search, with so many tools, words alone.

    The catalogue is repeated with other names and toolkits until it is large enough; its words stay the same, so
    each word has the longest lists that it can have.
    """
    many = []
    for place in range(size):
        each, turn = tools[place % len(tools)], place // len(tools)
        many.append(replace(each, name=f"{each.name}_{turn}", toolkit=f"{each.toolkit} {turn}"))
    begun = time.perf_counter()
    search = ToolSearch(many[:-50])
    built = time.perf_counter() - begun
    adding, searching = [], []
    for tool in many[-50:]:
        begun = time.perf_counter()
        search.add([tool])
        search.search("status of the server", 5)
        adding.append(1000 * (time.perf_counter() - begun))
    for request in asked[:: max(1, len(asked) // 200)]:
        begun = time.perf_counter()
        search.search(request.text, 10)
        searching.append(1000 * (time.perf_counter() - begun))
    return {
        "tools": float(size),
        "build s": built,
        "add and search p50 ms": median(adding),
        "search p50 ms": median(searching),
        "search p95 ms": sorted(searching)[int(0.95 * len(searching))],
    }


# --- what is printed --------------------------------------------------------------------------------------------


def table(scores: Sequence[Score], tools: int, asked: int) -> Table:
    """All methods side by side."""
    answer = Table(title=f"{asked} requests over {tools} tools, percent", title_justify="left")
    answer.add_column("method", no_wrap=True)
    answer.add_column("requests")
    for label in ("R@5", "C@5", "C@10", "C@20", "p50 ms"):
        answer.add_column(label, justify="right")
    for score in scores:
        figures = [f"{value:.1f}" for value in (score.r5, score.c5, score.c10, score.c20)]
        answer.add_row(score.method if score.part == "all" else "", score.part, *figures, f"{score.p50:.1f}")
    return answer


def chain_table(scores: Sequence[ChainScore]) -> Table:
    """Completion of chains."""
    answer = Table(title="chains completed, percent (C@5 / C@10)", title_justify="left")
    answer.add_column("method", no_wrap=True)
    columns = list(dict.fromkeys((score.name, score.part) for score in scores))
    for name, part in columns:
        n = next(score.chains for score in scores if (score.name, score.part) == (name, part))
        answer.add_column(f"{name}\n{part} ({n})", justify="right")
    found = {(score.method, score.name, score.part): score for score in scores}
    for method in dict.fromkeys(score.method for score in scores):
        cells = [found.get((method, *column)) for column in columns]
        answer.add_row(method, *("" if cell is None else f"{cell.c5:.1f} / {cell.c10:.1f}" for cell in cells))
    return answer


def history_table(scores: Sequence[HistoryScore]) -> Table:
    """Searches without and with recorded runs."""
    answer = Table(title="with the runs of the other half, percent (R@5 / C@5)", title_justify="left")
    for label in ("set", "method", "requests of the other half", "without", "with"):
        answer.add_column(label, no_wrap=True)
    for s in scores:
        without, with_runs = f"{s.r5:.1f} / {s.c5:.1f}", f"{s.r5_with:.1f} / {s.c5_with:.1f}"
        answer.add_row(s.name, s.method, s.split, without, with_runs)
    return answer


def verdicts(scores: Sequence[Score], chains: Sequence[ChainScore]) -> list[tuple[bool, str]]:
    """Whether what is asked holds."""
    found = []
    for score in scores:
        if score.method not in TARGETS:
            continue
        *least, most = TARGETS[score.method]
        for label, value, bound in zip(
            ("R@5", "C@5", "C@10", "C@20"), (score.r5, score.c5, score.c10, score.c20), least, strict=True
        ):
            found.append((value >= bound, f"{score.method}, {score.part}: {label} {value:.1f} >= {bound}"))
        if score.part == "all":
            found.append((score.p50 <= most, f"{score.method}: p50 {score.p50:.1f} ms <= {most}"))
    for chain in chains:
        if chain.method == OURS and chain.part == "all":
            for label, value, bound in zip(
                ("C@5", "C@10"), (chain.c5, chain.c10), CHAIN_TARGETS[chain.name], strict=True
            ):
                found.append((value >= bound, f"chains of {chain.name}: {label} {value:.1f} >= {bound}"))
    return found


def show_fit(data: Path, embedder: Embedder | None) -> None:
    """Prints the weights as they come out of a fit."""

    def make(tools: Sequence[ToolSpec]) -> ToolSearch:
        return ToolSearch(tools, embedder=embedder)

    for what, fit in (("search", fit_search), ("chains", fit_chains)):
        weights, line = fit(data, make)
        how = "by words" if embedder is None else "by words and meaning"
        print(f"{what} {how}: {[round(float(w), 2) for w in weights]}, odds {line[0]:.2f}, {line[1]:.2f}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tool_search", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--data", type=Path, default=DATA, help="where the sets are")
    parser.add_argument("--no-model", action="store_true", help="without all-MiniLM-L6-v2")
    parser.add_argument(
        "--graph-tool-call", type=int, default=0, metavar="N", help="ask it about N of the requests; slow"
    )
    parser.add_argument("--tools", type=int, default=16_000, help="tools when times are taken; 0: no times")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="splits of the runs for the chains")
    parser.add_argument("--fit", action="store_true", help="fit the weights and print them")
    parser.add_argument("--json", type=Path, dest="json_file", help="write every figure there")
    options = parser.parse_args(arguments)

    embedder = None
    if not options.no_model:
        if why := missing("MiniLM"):
            print(f"skipped: MiniLM: {why}")
        else:
            embedder = embedder_named("MiniLM")
    remembering = None if embedder is None else resolve_embedder(Remembering(embedder))
    if options.fit:
        show_fit(options.data, None)
        if remembering is not None:
            show_fit(options.data, remembering)
        return 0

    scores: list[Score] = []
    chains: list[ChainScore] = []
    taken: dict[str, float] = {}
    output = Console(width=None if sys.stdout.isatty() else 180)
    if (options.data / CATALOGUE).is_dir():
        tools, asked = tools_of(options.data, CATALOGUE), requests(options.data, CATALOGUE)
        methods = yardsticks(tools, embedder)
        methods["ours, built-in"] = ours(tools, None)
        if embedder is not None:
            methods[OURS] = ours(tools, embedder)
        for method, rank in methods.items():
            scores += measure(method, rank, asked)
        if options.graph_tool_call:
            some = asked[:: max(1, len(asked) // options.graph_tool_call)]
            how = "" if embedder is None else " with MiniLM"
            rival = graph_tool_call(options.data / CATALOGUE, embedder)
            scores += measure(f"graph-tool-call{how}, {len(some)} requests", rival, some)
            scores += measure(f"{OURS if embedder else BUILT_IN}, the same requests", ours(tools, embedder), some)
        output.print(table(scores, len(tools), len(asked)))
        if options.tools:
            taken = times(tools, asked, options.tools)
            print(", ".join(f"{name} {value:.2f}" for name, value in taken.items()))
    else:
        print(f"skipped: no {CATALOGUE} (looked for ../shared/data/{CATALOGUE})")
    for name in CHAINS:
        if (options.data / name).is_dir():
            chains += measure_chains(options.data, name, remembering, SEEDS[: options.seeds])
    if chains:
        output.print(chain_table(chains))
    histories = [
        score
        for name in (CATALOGUE, *OTHERS)
        if (options.data / name).is_dir()
        for model in ((None,) if remembering is None else (None, remembering))
        for score in measure_history(options.data, name, model)
    ]
    if histories:
        output.print(history_table(histories))
    checks = verdicts(scores, chains)
    if taken:
        checks.append(
            (taken["search p50 ms"] <= 10, f"{options.tools} tools: p50 {taken['search p50 ms']:.1f} ms <= 10")
        )
        checks.append((taken["add and search p50 ms"] <= 50, f"add {taken['add and search p50 ms']:.1f} ms <= 50"))
    for holds, text in checks:
        print(f"{'holds' if holds else 'MISSED'}  {text}")
    if options.json_file is not None:
        plain = {
            "scores": [asdict(score) for score in scores],
            "chains": [asdict(score) for score in chains],
            "histories": [asdict(score) for score in histories],
            "times": taken,
            "targets": [{"holds": holds, "target": text} for holds, text in checks],
        }
        options.json_file.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
