"""From one format of the graph file to the next.

========  ==========================================================================
format 2  ``periods`` (the counters by the hour), ``walks``, ``drafts``, ``offers``; tokens of prompt and answer apart
format 3  ``recalls``
format 4  ``evolving`` (recent uses, what was pruned); outputs and given parameters among what is known of a tool
========  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langgraph_toolmem.graph.evolving import Evolving
from langgraph_toolmem.graph.walks import Walks


def _second(value: dict[str, Any]) -> dict[str, Any]:
    """What was counted before has no hour, and its tokens cannot be told apart."""
    state = value["state"]
    counters = {name: n for name, n in state["counters"].items() if name not in ("tokens", "turns_with_tokens")}
    return {
        **value,
        "state": {
            **state,
            "counters": counters,
            "periods": {},
            "walks": Walks().to_state(),
            "drafts": {},
            "offers": {},
        },
    }


def _third(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, "state": {**value["state"], "recalls": {}}}


def _fourth(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, "state": {**value["state"], "evolving": Evolving().to_state()}}


def _same(entry: Any) -> Any:
    return entry


def _no_tokens(entry: Any) -> Any:
    key, record = entry
    return [key, [op for op in record if op[:2] not in (["n", "tokens"], ["n", "turns_with_tokens"])]]


MIGRATIONS: dict[int, Callable[[Any], Any]] = {1: _second, 2: _third, 3: _fourth}
"""From the value as format version n stored it to the value of version n + 1."""

RECORD_MIGRATIONS: dict[int, Callable[[Any], Any]] = {1: _no_tokens, 2: _same, 3: _same}
"""The same for a record of the journal."""
