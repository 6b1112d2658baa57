"""Plans over public OpenAPI documents: would a careful engineer have written these chains?

``python -m benchmarks.apis FILE...`` plans for every operation of each document, without a record and with nothing
known. Documents are not in the repository; those that docs/figures.md has are named there with their commits.

An id in a path (``/orders/{order_id}``) has a natural producer: the GET on the path in front of it (``/orders``), where
the document has one. Its natural field is the one that is called as the id is (``order_id``, ``id``), or as another
operation calls it there, or as its name says without what the path says (``number`` for ``pull_number``); then an id of
the element; only elements without one may give a name.

The content of a POST, PUT or PATCH (no ids) that a plan takes from a record of the same collection is counted: a new
message would say what an old one said.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from benchmarks import command, conclude, show
from langgraph_toolmem.navigator.dependencies import ToolDependencyGraph
from langgraph_toolmem.navigator.evidence import History
from langgraph_toolmem.navigator.openapi import read_openapi
from langgraph_toolmem.navigator.plan.planner import InputSource, plan
from langgraph_toolmem.navigator.plan.search import Producers
from langgraph_toolmem.text.meaning import Port, canonical, resource
from langgraph_toolmem.text.words import LEXICON


def measure(file: Path) -> tuple[Counter[str], list[float]]:
    """Plan for every operation of a document: counts, and the CPU seconds of each plan."""
    start = time.process_time()
    graph = ToolDependencyGraph(read_openapi(file))
    found: Counter[str] = Counter(operations=len(graph), build_ms=round(1e3 * (time.process_time() - start)))
    plans: list[float] = []
    # A watch is natural for nothing: it never answers.
    routes = {
        node.route.path: name
        for name, node in graph.apis.items()
        if node.route and node.route.method == "GET" and not node.route.streams
    }
    for name, node in graph.apis.items():
        start = time.process_time()
        chain = plan(graph, name, k=1).chain
        plans.append(time.process_time() - start)
        assert chain is not None
        found["incomplete"] += not chain.complete
        found["writes"] += sum(not graph.apis[tool].spec.read_only for tool in chain.tools[:-1])
        feeds = [feed for step in chain.steps for feed in step.feeds]
        of_target = [feed for feed in chain.steps[-1].feeds if feed.source in ("step", "done")]
        found["contents"] += sum(is_old_content(graph, name, feed) for feed in of_target)
        found["optional"] += sum(feed.source in ("step", "done") and not feed.required for feed in feeds)
        producers = Producers(graph, History())
        for port in node.inputs:
            collection = node.route.slots.get(port.path) if node.route is not None else None
            natural = routes.get(collection) if collection else None
            if natural is None or natural == name:
                continue
            givers = [each for each in producers.of(port) if each.origin != name]
            found["ids"] += 1
            right = bool(givers) and givers[0].origin == natural
            found["first"] += right
            found["field"] += right and has_natural_field(graph, port, givers[0].output)
            found["in_chain"] += natural in chain.tools
    return found, plans


def is_old_content(graph: ToolDependencyGraph, tool: str, feed: InputSource) -> bool:
    """Return True for content of a changing call (no id) that comes from a record of the same collection."""
    route, source = graph.apis[tool].route, graph.apis[feed.origin].route
    if route is None or source is None or route.method not in ("POST", "PUT", "PATCH") or feed.input in route.slots:
        return False
    port = next(port for port in graph.apis[tool].inputs if port.path == feed.input)
    same = resource(source.path)[-1:] == resource(route.path)[-1:]
    # An update repeats the version of what it changes.
    return same and not port.meaning.words & {*LEXICON.identifiers, "version", "etag", "revision"}


def has_natural_field(graph: ToolDependencyGraph, port: Port, output: str) -> bool:
    """Return True if an output names an element as the document does, see the module."""
    node, tools = graph.apis[port.tool], graph.apis.values()
    collection = node.route.slots[port.path] if node.route is not None else ""
    names = {port.path}
    for other in tools:
        slots = other.route.slots if other.route is not None else {}
        names |= {name for name, place in slots.items() if place == collection}
    level = output.replace("[]", "").rsplit(".", 1)[-1]
    bare = set(resource(collection))
    said = canonical(level)  # Box's scope is called $scope in an element
    if any(canonical(name) == said for name in names) and not set(said) <= bare:
        return True
    if set(said) == set(canonical(port.path)) - bare:  # the number of a pull, a pull_number
        return True
    return level.lower().endswith("id") or bool(
        set(canonical(level)) & LEXICON.identifiers
    )  # Asana's ids are called gid


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each document."""
    parser = command("apis", __doc__, recorded=False)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="OpenAPI documents, JSON or YAML")
    table = Table(
        "document",
        "operations",
        "ids",
        "first",
        "and field",
        "in chain",
        "incomplete",
        "writes",
        "old contents",
        "optional",
        "build",
        "plan",
    )
    options, figures = parser.parse_args(arguments), {}
    for file in options.files:
        found, plans = measure(file)
        times, figures[str(file)] = sorted(plans), found
        share = [
            f"{100 * each / max(1, found['ids']):.0f} %" for each in (found["first"], found["field"], found["in_chain"])
        ]
        table.add_row(
            file.stem,
            str(found["operations"]),
            str(found["ids"]),
            *share,
            f"{100 * found['incomplete'] / max(1, found['operations']):.0f} %",
            str(found["writes"]),
            str(found["contents"]),
            str(found["optional"]),
            f"{found['build_ms'] / 1e3:.2f} s",
            f"{1e3 * times[len(times) // 2]:.1f} / {1e3 * times[int(0.99 * len(times))]:.0f} ms",
        )
    show(table)
    return conclude([], figures, options.json)


if __name__ == "__main__":
    sys.exit(main())
