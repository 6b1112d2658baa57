"""Filling a call's arguments from the sources with the best record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from langgraph_toolmem.graph.cases import Neighbour, carry_over
from langgraph_toolmem.graph.evidence import HIT, MISS, EvidenceGraph
from langgraph_toolmem.graph.learning import constants, pattern_of
from langgraph_toolmem.graph.sources import MISSING, evaluate, is_template
from langgraph_toolmem.graph.state import RunState, slot_key
from langgraph_toolmem.runs.values import ABSENT, canon, fit

NEAR: Final = 1.0
"""How much the sources used after the nearest past requests weigh against a source's own record."""


class Filled(NamedTuple):
    """One argument's value and why."""

    value: Any
    probability: float
    source: str
    agreeing: int
    """Further sources that offer the same value."""
    witnesses: int
    """Of the nearest past requests that went on with this tool: how many took the value from such a source."""


def fill(
    graph: EvidenceGraph,
    state: RunState,
    tool: str,
    properties: Mapping[str, Any],
    required: Iterable[str],
    neighbours: Iterable[Neighbour],
    user: str | None,
) -> dict[str, Filled] | str:
    """Every parameter's best value.

    Returns:
        Parameter → value (ABSENT for an optional one that is best left out), or the name of a required
        parameter for which nothing is known.
    """
    same_tool = [n for n in neighbours if n.tool == tool]
    needed = set(required)
    filled: dict[str, Filled] = {}
    for parameter, schema in properties.items():
        best = _best(graph, state, tool, parameter, schema, parameter in needed, same_tool, user)
        if best is None:
            if parameter in needed:
                return parameter
            continue
        filled[parameter] = best
    return filled


def _best(
    graph: EvidenceGraph,
    state: RunState,
    tool: str,
    parameter: str,
    schema: Any,
    is_required: bool,
    same_tool: list[Neighbour],
    user: str | None,
) -> Filled | None:
    slot = slot_key(tool, parameter)
    previous = state.symbols[-1]
    overall = graph.sources.row(slot)
    here = graph.sources.row(f"{slot}\x1e{previous}")
    witnesses = [n for n in same_tool if parameter in n.sources]
    carried = [carry_over(n.args.get(parameter, ABSENT), n.text, state.user.raw)[0] for n in same_tool]
    offers: dict[str, tuple[Any, list[tuple[float, str]]]] = {}

    def offer(descriptor: str, value: Any) -> None:
        if value is not ABSENT:
            value = fit(value, schema)
            if value is ABSENT:
                return
        elif is_required:
            return
        weight = _precision(overall.get(descriptor), here.get(descriptor))
        text = canon(value)
        if "|" in descriptor:
            weight = _near_by(weight, [(n, descriptor in n.sources[parameter]) for n in witnesses])
        else:
            weight = _near_by(weight, [(n, text == canon(v)) for n, v in zip(same_tool, carried, strict=True)])
        offers.setdefault(text, (value, []))[1].append((weight, descriptor))

    for descriptor in dict.fromkeys([*overall, *(d for n in witnesses for d in n.sources[parameter])]):
        if "|" in descriptor:
            value = evaluate(descriptor, state, (tool, parameter))
            if value is MISSING:
                continue
            # the year and the time of day in a date's format are another run's
            if not is_template(descriptor) or _may_use(graph, state, slot, value, schema, user):
                offer(descriptor, value)
    for descriptor, value in constants(graph, slot, previous).items():
        if _may_use(graph, state, slot, value, schema, user):
            offer(descriptor, value)
    if carried and _may_use(graph, state, slot, carried[0], schema, user):
        offer("n", carried[0])
    if not offers:
        return None
    value, backing = max(offers.values(), key=lambda o: (max(o[1])[0], len(o[1]), max(o[1])[1]))
    probability, source = max(backing)
    text = canon(value)
    named = {descriptor for _, descriptor in backing}
    backed = sum(
        text == canon(was) or not named.isdisjoint(n.sources.get(parameter, ()))
        for n, was in zip(same_tool, carried, strict=True)
    )
    return Filled(value, probability, source, len(backing) - 1, backed)


def _near_by(weight: float, witnesses: list[tuple[Neighbour, bool]]) -> float:
    """A source's record, moved towards what held after the nearest past requests."""
    near = sum(n.similarity for n, _ in witnesses)
    agreeing = sum(n.similarity for n, agrees in witnesses if agrees)
    return (NEAR * agreeing + weight) / (NEAR * near + 1)


def _precision(overall: list[float] | None, here: list[float] | None) -> float:
    """How often a source was right, shrunk from this point in the run towards its overall record."""
    p = 0.5
    if overall is not None:
        p = (overall[HIT] + 0.5) / (overall[HIT] + overall[MISS] + 1.0)
    if here is not None:
        p = (here[HIT] + 2 * p) / (here[HIT] + here[MISS] + 2)
    return p


def _may_use(graph: EvidenceGraph, state: RunState, slot: str, value: Any, schema: Any, user: str | None) -> bool:
    """No leaks: a value that is not this run's own must be a constant of the tool or of enough other runs."""
    if value is ABSENT or isinstance(value, bool):
        return True
    if isinstance(schema, Mapping) and (value in schema.get("enum", ()) or value == schema.get("default", ABSENT)):
        return True
    pattern = pattern_of(value, state)
    return not pattern or graph.pattern_witnesses.is_public(slot, pattern, user)
