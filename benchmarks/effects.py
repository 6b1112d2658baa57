"""Does a request that asks find a tool that reads? Requests over public OpenAPI documents, with and without effects.

``python -m benchmarks.effects FILE...``: documents whose name begins like a key of ``api_requests.json``. The requests
and their operations were written down before any search was run. The weight is fitted by the likelihood of the
operations on all other documents: a document's row shows what it does where it was not fitted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from rich.table import Table

from benchmarks import command, conclude, load, show
from langgraph_toolmem.navigator import tool_search
from langgraph_toolmem.navigator.openapi import read_openapi
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.text.wording import effect_of

REQUESTS: Final = Path(__file__).parent / "api_requests.json"
GRID: Final = tuple(step / 4 for step in range(13))
DEPTHS: Final = (1, 5, 10)


@dataclass(frozen=True, slots=True)
class Document:
    """A document with its requests, each with the operations that it needs."""

    name: str
    specs: dict[str, ToolSpec]
    searcher: tool_search.ToolSearcher
    requests: list[tuple[str, list[str]]]


@dataclass(frozen=True, slots=True)
class Found:
    """Requests whose operation is among the first hits, by depth; reading ones, and those whose first hit changes."""

    within: tuple[int, ...]
    reading: int
    changing_first: int


def read_document(file: Path) -> Document | None:
    """Return a document that has requests; None for another one."""
    requests = next((rows for name, rows in load(REQUESTS).items() if file.stem.startswith(name)), None)
    if requests is None:
        return None
    specs = {spec.name: spec for spec in read_openapi(file)}
    return Document(
        file.stem, specs, tool_search.ToolSearcher(specs.values()), [(text, wanted) for text, wanted in requests]
    )


def likelihood(documents: Sequence[Document], weight: float) -> float:
    """Return the logarithm of the probability of the needed operations, by a softmax over all of a document."""
    total = 0.0
    with_weight(weight)
    for document in documents:
        for text, wanted in document.requests:
            scores = document.searcher.scores(text)
            values = np.exp(np.array([*scores.values()]) - max(scores.values()))
            needed = np.isin([*scores], wanted)
            total += float(np.log(values[needed].sum() / values.sum()))
    return total


def with_weight(weight: float) -> None:
    """Set both weights of the search in their proportion."""
    tool_search.EFFECT, tool_search.REMOVAL = weight, weight * DEFAULT[1] / DEFAULT[0]  # type: ignore[misc]


DEFAULT: Final = (tool_search.EFFECT, tool_search.REMOVAL)


def measure(document: Document, weight: float) -> Found:
    """Search every request of a document."""
    with_weight(weight)
    within = [0] * len(DEPTHS)
    reading = changing_first = 0
    for text, wanted in document.requests:
        hits = [hit.name for hit in document.searcher.search(text, max(DEPTHS))]
        for place, depth in enumerate(DEPTHS):
            within[place] += not set(wanted).isdisjoint(hits[:depth])
        if all(document.specs[name].read_only for name in wanted):
            reading += 1
            changing_first += bool(hits) and effect_of(document.specs[hits[0]]) < 0
    return Found(tuple(within), reading, changing_first)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each document: without the effects, and with a weight fitted on the others."""
    parser = command("effects", __doc__, recorded=False)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="OpenAPI documents, JSON or YAML")
    options = parser.parse_args(arguments)
    documents = [document for file in options.files if (document := read_document(file)) is not None]
    table = Table("document", "requests", "first 1 / 5 / 10 without", "with", "weight", "reading", "change first")
    figures = {}
    for document in documents:
        others = [other for other in documents if other is not document]
        weight = max(GRID, key=lambda weight: likelihood(others, weight)) if others else DEFAULT[0]
        before, after = measure(document, 0.0), measure(document, weight)
        figures[document.name] = {"before": before.within, "after": after.within, "weight": weight}
        first = f"{before.changing_first} -> {after.changing_first}"
        counts = [" / ".join(map(str, found.within)) for found in (before, after)]
        requests = str(len(document.requests))
        table.add_row(document.name, requests, *counts, f"{weight:.2f}", str(after.reading), first)
    with_weight(DEFAULT[0])
    show(table)
    return conclude([], figures, options.json)


if __name__ == "__main__":
    sys.exit(main())
