"""Plans over public OpenAPI documents: would a careful engineer have written these chains?

``python -m benchmarks.apis FILE...`` plans for every operation of each document, without a record and with nothing
known. Documents are not in the repository; those that docs/figures.md has are named there with their commits.

An id in a path (``/orders/{order_id}``) has a natural producer: the GET on the path in front of it (``/orders``), where
the document has one.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from benchmarks import command, conclude, show
from langgraph_toolmem.navigator.dependencies.graph import ToolDependencyGraph
from langgraph_toolmem.navigator.history import History
from langgraph_toolmem.navigator.openapi import read_openapi
from langgraph_toolmem.navigator.plan.planner import plan
from langgraph_toolmem.navigator.plan.problem import Producers


def measure(file: Path) -> tuple[Counter[str], list[float]]:
    """Plan for every operation of a document: counts, and the CPU seconds of each plan."""
    start = time.process_time()
    graph = ToolDependencyGraph(read_openapi(file))
    found: Counter[str] = Counter(operations=len(graph), build_ms=round(1e3 * (time.process_time() - start)))
    plans: list[float] = []
    routes = {node.route.path: name for name, node in graph.apis.items() if node.route and node.route.method == "GET"}
    for name, node in graph.apis.items():
        start = time.process_time()
        chain = plan(graph, name, k=1).chain
        plans.append(time.process_time() - start)
        assert chain is not None
        found["incomplete"] += not chain.complete
        found["writes"] += sum(not graph.apis[tool].spec.read_only for tool in chain.tools[:-1])
        feeds = [feed for step in chain.steps for feed in step.feeds]
        found["optional"] += sum(feed.source in ("step", "done") and not feed.required for feed in feeds)
        producers = Producers(graph, History())
        for port in node.inputs:
            collection = node.route.slots.get(port.path) if node.route is not None else None
            natural = routes.get(collection) if collection else None
            if natural is None or natural == name:
                continue
            givers = [each for each in producers.of(port) if each.origin != name]
            found["ids"] += 1
            found["first"] += bool(givers) and givers[0].origin == natural
            found["in_chain"] += natural in chain.tools
    return found, plans


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each document."""
    parser = command("apis", __doc__, recorded=False)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="OpenAPI documents, JSON or YAML")
    table = Table(
        "document", "operations", "ids", "first", "in chain", "incomplete", "writes", "optional", "build", "plan"
    )
    options, figures = parser.parse_args(arguments), {}
    for file in options.files:
        found, plans = measure(file)
        times, figures[str(file)] = sorted(plans), found
        share = [f"{100 * each / max(1, found['ids']):.0f} %" for each in (found["first"], found["in_chain"])]
        table.add_row(
            file.stem,
            str(found["operations"]),
            str(found["ids"]),
            *share,
            f"{100 * found['incomplete'] / max(1, found['operations']):.0f} %",
            str(found["writes"]),
            str(found["optional"]),
            f"{found['build_ms'] / 1e3:.2f} s",
            f"{1e3 * times[len(times) // 2]:.1f} / {1e3 * times[int(0.99 * len(times))]:.0f} ms",
        )
    show(table)
    return conclude([], figures, options.json)


if __name__ == "__main__":
    sys.exit(main())
