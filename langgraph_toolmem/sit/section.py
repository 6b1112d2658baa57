"""What a memory tells of suggestions, to its owner and to who looks on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from langgraph_toolmem.base.intervals import percentage
from langgraph_toolmem.core.method import Section, TextTable, shown_in_words
from langgraph_toolmem.graph.view import START
from langgraph_toolmem.sit.evidence import SITEvidence

MAX_EDGES: Final = 50
"""Edges that are told, those of most weight."""


def section(evidence: SITEvidence, counters: Mapping[str, float], sums: Mapping[str, int]) -> Section:
    """What was suggested and followed, and how many states are stored and wait.

    Args:
        evidence: the walks and drafts.
        counters: of the evidence graph.
        sums: of the ledger.
    """
    stored, waiting, unjudged = int(counters.get("summaries", 0)), evidence.waiting(), evidence.walks.waiting()
    edges = evidence.walks.records()[:MAX_EDGES]
    figures = {**sums, "summaries": stored, "summaries_waiting": waiting, "runs_waiting": unjudged, "edges": edges}
    lines = list(shown_in_words("Next tools", sums))
    if stored or (waiting and lines):  # who only looks on, or asks for no suggestions, is not told of drafts
        more = f"; waiting for a verdict: {waiting:,}" if waiting else ""
        lines.append(f"States of runs stored in words, for suggestions: {stored:,}{more}.")
    if unjudged and (lines or counters.get("runs_judged")):
        lines.append(f"Runs without a verdict: {unjudged:,}; successful ones teach suggestions more than these.")
    rows = tuple(
        (
            "(start of a run)" if edge.source == START else edge.source,
            edge.target,
            f"{edge.good:,} of {edge.good + edge.bad:,}",
            f"{edge.weight:,.2f}",
            percentage(edge.good, edge.good + edge.bad),
        )
        for edge in edges
        if edge.success is not None
    )
    title = "What came next in whole runs (weight: N + Σ 1/n over the successful ones)"
    table = TextTable(title, ("after", "comes", "in good runs", "weight", "success"), rows)
    return Section("Next tools", figures, tuple(lines), (table,))
