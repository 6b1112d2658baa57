"""How records and snapshots of the evidence graph are written: the one place that knows older formats.

A record is written as ``[key, [[kind, *fields], ...]]``, the snapshot as ``{"generation": g, "state": ...}`` with what
`EvidenceGraph.to_state` gives. What an older release wrote is read once and written in the present form.

========  ==========================================================================
format 2  ``periods`` (the counters by the hour), ``walks``, ``drafts``, ``offers``; tokens of prompt and answer apart
format 3  ``recalls``
format 4  ``evolving`` (recent uses, what was pruned); outputs and given parameters among what is known of a tool
format 5  operations by name in place of codes; what belongs to one method in a table of its own; the ledger
format 6  episodes; how much a verdict counts
========  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.graph.evidence import EvidenceGraph
from langgraph_toolmem.graph.operations import FORMER_KEYS, Record


def write(key: str | None, record: Record) -> list[Any]:
    """A record as journal and shared log hold it."""
    return [key, [operation.plain() for operation in record]]


def read(entry: Any, graph: EvidenceGraph) -> tuple[str | None, Record]:
    """Key and record of what was written, in whatever format.

    Raises:
        TypeError, ValueError, LookupError, AttributeError: it is no record.
    """
    key, record = _fifth_record(entry)
    return key, [graph.operation(operation) for operation in record]


# --- formats 1 to 3 ---


def _second(value: dict[str, Any]) -> dict[str, Any]:
    """What was counted before has no hour, and its tokens cannot be told apart."""
    state = value["state"]
    counters = {name: n for name, n in state["counters"].items() if name not in ("tokens", "turns_with_tokens")}
    edges = {"max_rows": 20_000, "width": 4, "max_items": 64, "rows": {}}
    new = {"counters": counters, "periods": {}, "walks": {"edges": edges, "runs": {}}, "drafts": {}, "offers": {}}
    return {**value, "state": {**state, **new}}


def _third(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, "state": {**value["state"], "recalls": {}}}


def _fourth(value: dict[str, Any]) -> dict[str, Any]:
    evolving = {"days": {}, "left": {}, "shifts": [0.0, {}], "groups": [0.0, None]}
    return {**value, "state": {**value["state"], "evolving": evolving}}


def _same(entry: Any) -> Any:
    return entry


def _second_record(entry: Any) -> Any:
    key, record = entry
    return [key, [op for op in record if op[:2] not in (["n", "tokens"], ["n", "turns_with_tokens"])]]


# --- format 4: codes in place of names, one table of all methods ---

_NAMES: Final = {
    "s": "successor",
    "t": "outcome",
    "e": "repeat",
    "p": "arguments",
    "d": "tool_described",
    "a": "sources",
    "v": "value",
    "co": "request",
    "cc": "request_call",
    "ce": "request_end",
    "n": "count",
    "nt": "tool_count",
    "ru": "run_seen",
    "vd": "verdict",
    "fu": "user_forgotten",
    "r": "rules_judged",
    "o-": "turn_closed",
    "tr": "transition",
    "sm-": "drafts_taken",
    "ou": "outputs_seen",
    "lo": "left_out",
    "lo-": "put_back",
    "sh": "links_shifted",
    "gr": "clusters_grouped",
}
"""Operations that had the same fields."""
CODES: Final = {*_NAMES, "w", "h", "dy", "o+", "sm", "of+", "of-", "rc", "rv"}
"""Operations of format 4 and before."""
_METHODS: Final = {"sga": "atoms", "hints": "atoms", "recall": "entries"}
_COUNTERS: Final = {
    "sit": ("sit_offered", "sit_followed", "sit_right", "", "", ""),
    "atoms": ("sga_offered", "sga_followed", "sga_right", "hints_runs", "hints_helped", "hints_hurt"),
    "entries": ("", "", "", "recall_runs", "recall_helped", "recall_hurt"),
}
"""Counters of what became the figures of the ledger: shown, followed, right; runs, helped, hurt."""


def _fifth_record(entry: Any) -> Any:
    """A record by names; as it is, if it was written so."""
    key, record = entry
    if not record or record[0][0] not in CODES:
        return entry
    hour: int | None = None
    counted: dict[str, float] = {}
    before: dict[str, list[str]] = {}  # tool -> the tools that calls of it came after
    runs: dict[str, str] = {}  # what runs that followed atoms were noted under -> the run
    for code, *rest in record:
        if code == "h":
            hour, counted = rest
        elif code == "dy":
            hour = rest[0] * 24 if hour is None else hour
            for source, target, number in rest[2]:
                before.setdefault(target, []).extend([source] * number)
        elif code in ("tr", "v"):
            run = rest[0 if code == "tr" else 4]
            runs[digest("hints", run)] = run
    new: list[Any] = []
    for code, *rest in record:
        if code == "t":
            after = before[rest[0]].pop(0) if rest[1] == "ok" and before.get(rest[0]) else None
            new.append(["outcome", *rest, after, hour if rest[1] in ("ok", "failed") else None])
        elif code == "n":
            new.append(["count", *rest, hour if rest[0] in counted else None])
        elif code == "o+":
            # The turn is in the counter of turns already.
            new += [["turn_opened", rest[0], *_opened(rest[1])], ["count", "turns_open", -1]]
        elif code == "o-":
            new += [["turn_closed", *rest], ["count", "turns_open", 1]]
        elif code == "w":
            new[-1].append(rest[2])  # who was seen with the sources right before it
        elif code == "sm":
            new.append(["draft", *rest[:2], *rest[2], rest[3]])
        elif code == "of+":
            new.append(["shown", _METHODS.get(rest[1], rest[1]), "", rest[0], _items(*rest[2:]), None])
        elif code == "of-":
            new.append(["followed", "", "", *rest, None])
        elif code == "rc":
            method = _METHODS[rest[3] if len(rest) > 3 else "recall"]
            new.append(["shown", method, runs.get(rest[0], rest[0]), None, dict.fromkeys(rest[1]), rest[2]])
        elif code in _NAMES:
            new.append([_NAMES[code], *rest])
    return [key, new]


def _opened(payload: dict[str, Any]) -> list[Any]:
    return [*(payload[name] for name in ("windows", "rules", "judged", "would_act", "user")), None]


def _items(tools: list[str], ids: list[str]) -> dict[str, str]:
    return {key or f"edge {tool}": tool for tool, key in zip(tools, ids, strict=True)}


def _fifth(value: dict[str, Any]) -> dict[str, Any]:
    """Each method's part in a table of its own."""
    old = value["state"]
    counters = dict(old["counters"])
    figures = {}
    for method, names in _COUNTERS.items():
        found = [counters.pop(name, 0) for name in names]
        if any(found):
            figures[method] = dict(zip(("shown", "followed", "right", "runs", "helped", "hurt"), found, strict=True))
    followed = {digest("hints", run): run for run in {*old["runs"], *old["walks"]["runs"]}}
    shown: dict[str, list[Any]] = {}
    for name, (user, items) in old["recalls"].items():
        by_method = shown.setdefault(followed.get(name, name), [user, {}])[1]
        by_method["atoms" if name in followed else "entries"] = items
    turns = {
        turn: {_METHODS.get(method, method): ["", "", _items(tools, ids)]}
        for turn, (method, tools, ids) in old["offers"].items()
    }
    opened = {turn: _opened(payload) for turn, payload in old["open_turns"].items()}
    outputs = {tool: entry["outputs"] for tool, entry in old["tools"].items() if "outputs" in entry}
    tables = {
        "inertia": {"rules": old["rules"], "open_turns": opened, "closed_turns": old.get("closed_turns", [])},
        "sit": {"edges": old["walks"]["edges"], "walks": old["walks"]["runs"], "drafts": old["drafts"]},
        "navigator": {**old["evolving"], "outputs": outputs},
        "ledger": {"turns": turns, "runs": shown, "figures": figures},
    }
    tools = {tool: {k: v for k, v in entry.items() if k != "outputs"} for tool, entry in old["tools"].items()}
    kept = {name: part for name, part in old.items() if name not in _MOVED}
    return {**value, "state": {**kept, "counters": counters, "tools": tools, "tables": tables, "waiting": []}}


_MOVED: Final = ("rules", "open_turns", "closed_turns", "walks", "drafts", "evolving", "offers", "recalls")


def _sixth(value: dict[str, Any]) -> dict[str, Any]:
    """A verdict says how much it counts and when it was given; calls are known by other keys."""
    old = value["state"]
    runs = {run: [*entry, 0.0 if entry[1] is None else 1.0, 0.0] for run, entry in old["runs"].items()}
    tables = dict(old["tables"])
    if "sit" in tables:
        walks = {run: [score, steps, 1.0] for run, (score, steps) in tables["sit"]["walks"].items()}
        tables["sit"] = {**tables["sit"], "walks": walks}
    counters = {**old["counters"], FORMER_KEYS: 1}
    return {**value, "state": {**old, "runs": runs, "tables": tables, "counters": counters}}


def _sixth_record(record: list[Any]) -> list[Any]:
    key, operations = record
    return [key, [*operations, ["count", FORMER_KEYS, 1]]]


MIGRATIONS: dict[int, Callable[[Any], Any]] = {1: _second, 2: _third, 3: _fourth, 4: _fifth, 5: _sixth}
"""From the value as format version n stored it to the value of version n + 1."""

RECORD_MIGRATIONS: dict[int, Callable[[Any], Any]] = {
    1: _second_record,
    2: _same,
    3: _same,
    4: _fifth_record,
    5: _sixth_record,
}
"""The same for a record of the journal."""
