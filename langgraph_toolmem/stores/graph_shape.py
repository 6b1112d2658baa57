"""Whether a snapshot that was read has the shape of an evidence graph.

Its checksum says that it is what was written, not who wrote it: a file from elsewhere must not make the host's
program stumble over a number where a dict should be, on the next prediction or a week later.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from langgraph_toolmem.base.errors import GraphFileError
from langgraph_toolmem.graph.evidence import EvidenceGraph
from langgraph_toolmem.graph.evolving import check_evolving
from langgraph_toolmem.graph.fields import well_formed


def check_state(state: dict[str, Any]) -> None:
    """Compares a state with that of an empty graph, and the tables cell by cell.

    Raises:
        GraphFileError: something is missing or of another type; the message says what.
    """
    for name, empty in EvidenceGraph().to_state().items():
        found: Any = state.get(name)
        _require(type(found) is type(empty), name)
        if not isinstance(empty, dict) or not empty:
            continue
        for part, value in empty.items():
            _require(type(found.get(part)) is type(value), f"{name}.{part}")
        if "rows" in empty:
            _check_rows(name, found)
    _require(len(state["seen"]) % 8 == 0, "seen")
    for name in ("tools", "by_tool", "open_turns", "periods"):
        _require(_texts(state[name]) and all(type(entry) is dict for entry in state[name].values()), name)
    for entry in state["tools"].values():
        _require(well_formed(entry.get("outputs", {})) and type(entry.get("given", {})) is dict, "tools")
        _require(_texts(entry.get("given", {})) and _numbers(entry.get("given", {}).values()), "tools")
    check_evolving(state["evolving"])
    for name in ("counters", *state["by_tool"]):
        _require(_numbers((state["by_tool"].get(name) or state["counters"]).values()), f"counters of {name}")
    for period, amounts in state["periods"].items():
        _require(period.isdigit() and _numbers(amounts.values()), "periods")
    for payload in state["open_turns"].values():
        _require(all(part in payload for part in ("windows", "rules", "judged", "would_act", "user")), "open_turns")
    _require(
        _texts(state["runs"]) and all(_list_of(run, 5) and _numbers(run[:1]) for run in state["runs"].values()), "runs"
    )
    edges, walks = state["walks"]["edges"], state["walks"]["runs"]
    _require(type(edges.get("rows")) is dict and edges.get("width") == 4, "walks.edges")
    _check_rows("walks.edges", edges)
    _require(
        _texts(walks) and all(_list_of(walk, 2) and type(walk[1]) is dict for walk in walks.values()), "walks.runs"
    )
    _require(all(_list_of(step, 2) for walk in walks.values() for step in walk[1].values()), "walks.runs")
    drafts, offers = state["drafts"], state["offers"]
    _require(_texts(drafts) and all(type(waiting) is dict and _texts(waiting) for waiting in drafts.values()), "drafts")
    _require(
        all(_list_of(draft, 5) and _texts(draft) for waiting in drafts.values() for draft in waiting.values()), "drafts"
    )
    _require(
        _texts(offers) and all(_list_of(o, 3) and type(o[1]) is type(o[2]) is list for o in offers.values()), "offers"
    )
    recalls = state["recalls"]
    _require(
        _texts(recalls)
        and all(_list_of(r, 2) and type(r[0]) is str and type(r[1]) is dict for r in recalls.values())
        and all(_texts(r[1]) and all(booked in (None, 0, 1) for booked in r[1].values()) for r in recalls.values()),
        "recalls",
    )
    for case in state["cases"]["cases"].values():
        _require(_list_of(case, 4) and isinstance(case[0], str), "cases.cases")


def _check_rows(name: str, table: dict[str, Any]) -> None:
    rows = table["rows"]
    _require(_texts(rows) and all(type(row) is dict for row in rows.values()), f"{name}.rows")
    width = table.get("width")
    for row in rows.values():
        for cell in row.values():
            if width is None:
                _require(_list_of(cell, 2) and type(cell[0]) is type(cell[1]) is list, f"{name}.rows")
            else:
                _require(_list_of(cell, width) and _numbers(cell), f"{name}.rows")


def _texts(keys: Iterable[Any]) -> bool:
    return all(type(key) is str for key in keys)


def _numbers(values: Iterable[Any]) -> bool:
    return all(type(value) in (int, float, bool) for value in values)


def _list_of(value: Any, length: int) -> bool:
    return type(value) is list and len(value) == length


def _require(fact: bool, what: str) -> None:
    if not fact:
        raise GraphFileError(f"{what} has not the shape of an evidence graph")
