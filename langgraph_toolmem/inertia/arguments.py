"""Filling a call's arguments from the sources with the best record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import compress
from typing import Any, Final, NamedTuple

from langgraph_toolmem.graph.cases import Neighbour
from langgraph_toolmem.graph.learning import constants, decode_value, may_be_from_output, pattern_of
from langgraph_toolmem.graph.sources import MISSING, evaluate, is_template
from langgraph_toolmem.graph.state import PARALLEL, RunState, slot_key
from langgraph_toolmem.graph.tool_graph import HIT, MISS, ToolGraph
from langgraph_toolmem.runs.values import ABSENT, canon, fit
from langgraph_toolmem.text.values import shape_of

ID_DIGITS: Final = 6
"""Digits from which a number is an id."""
MAX_AT_ONCE: Final = 8
"""Calls of one turn that are made without the model, at most."""
FILLINGS: Final = 3
"""Fillings of one tool's parameters that are weighed."""
LEAST: Final = 0.2
"""Share of the likeliest value's probability from which another is weighed too."""
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
    graph: ToolGraph,
    state: RunState,
    tool: str,
    properties: Mapping[str, Any],
    required: Iterable[str],
    neighbours: Iterable[Neighbour],
    user: str | None,
) -> list[dict[str, Filled]] | str:
    """The likeliest fillings of a tool's parameters, best first: FILLINGS of them at most.

    A filling maps a parameter to a value (ABSENT for an optional one that is best left out). Every one but the first
    differs from it in one argument, the one that is doubted most.

    Returns:
        The fillings, or the name of a required parameter for which nothing is known.
    """
    same_tool = [n for n in neighbours if n.tool == tool]
    needed = set(required)
    best: dict[str, Filled] = {}
    others: list[tuple[float, str, Filled]] = []
    for parameter, schema in properties.items():
        offered = _offers(graph, state, tool, parameter, schema, parameter in needed, same_tool, user)
        if not offered:
            if parameter in needed:
                return parameter
            continue
        best[parameter] = offered[0]
        first = max(offered[0].probability, 0.01)
        others += [
            (other.probability / first, parameter, other)
            for other in offered[1:FILLINGS]
            if other.probability >= LEAST * first
        ]
    others.sort(key=lambda o: -o[0])
    return [best, *({**best, parameter: other} for _, parameter, other in others[: FILLINGS - 1])]


def _offers(
    graph: ToolGraph,
    state: RunState,
    tool: str,
    parameter: str,
    schema: Any,
    is_required: bool,
    same_tool: list[Neighbour],
    user: str | None,
) -> list[Filled]:
    """The values that may be meant, likeliest first."""
    slot = slot_key(tool, parameter)
    previous = state.symbols[-1]
    overall = graph.sources.row(slot)
    here = graph.sources.row(f"{slot}\x1e{previous}")
    witnesses = [n for n in same_tool if parameter in n.sources]
    carried = [n.carried.get(parameter, ABSENT) for n in same_tool]
    texts = list(map(canon, carried))
    forms = _Forms(graph.values.row(slot))
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
            weight = _near_by(weight, witnesses, [descriptor in n.sources[parameter] for n in witnesses])
        else:
            weight = _near_by(weight, same_tool, [text == each for each in texts])
        offers.setdefault(text, (value, []))[1].append((weight * forms.likelihood(value), descriptor))

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
    for value in carried:
        if _may_use(graph, state, slot, value, schema, user):
            offer("n", value)
    ranked = sorted(offers.values(), key=lambda o: (max(o[1])[0], len(o[1]), max(o[1])[1]), reverse=True)
    return [_filled(value, backing, parameter, same_tool, texts) for value, backing in ranked[:FILLINGS]]


def fill_each(graph: ToolGraph, state: RunState, group: str, properties: Mapping[str, Any]) -> list[tuple[str, Filled]]:
    """The values with which one tool is called several times at once, likeliest parameter first.

    Args:
        graph: the evidence.
        state: the run before the model's turn.
        group: the tool, as `parallel` writes it.
        properties: its parameters.

    Returns:
        Parameter and its values: a list with one for each call, from the source with the best record.
    """
    tool = group.removeprefix(PARALLEL)
    found: list[tuple[str, Filled]] = []
    for parameter, schema in properties.items():
        slot = slot_key(group, parameter)
        here = graph.sources.row(f"{slot}\x1e{state.symbols[-1]}")
        best: Filled | None = None
        for descriptor, cell in graph.sources.row(slot).items():
            offered = evaluate(descriptor, state, (tool, parameter))
            if offered is MISSING or not isinstance(offered, list):
                continue
            values = [fit(value, schema) for value in offered[: MAX_AT_ONCE + 1]]
            weight = _precision(cell, here.get(descriptor))
            if ABSENT not in values and len(values) <= MAX_AT_ONCE and (best is None or weight > best.probability):
                best = Filled(values, weight, descriptor, 0, 0)
        if best is not None:
            found.append((parameter, best))
    return sorted(found, key=lambda item: -item[1].probability)[:1]


def may_offer(
    graph: ToolGraph, state: RunState, tool: str, parameter: str, value: Any, schema: Any, user: str | None
) -> bool:
    """Return True if a value of another run may stand in a call of this one: shown in this run, or a constant of the
    tool, not of somebody (see `_may_use`)."""
    text = canon(value)
    if not isinstance(value, (list, dict)) and may_be_from_output(value, text, state):
        return True
    return _may_use(graph, state, slot_key(tool, parameter), value, schema, user)


def _filled(
    value: Any, backing: list[tuple[float, str]], parameter: str, same_tool: list[Neighbour], texts: list[str]
) -> Filled:
    probability, source = max(backing)
    text = canon(value)
    named = {descriptor for _, descriptor in backing}
    backed = sum(
        text == was or not named.isdisjoint(n.sources.get(parameter, ()))
        for n, was in zip(same_tool, texts, strict=True)
    )
    return Filled(value, probability, source, len(backing) - 1, backed)


class _Forms:
    """Forms that the values of a slot had: a word where ids have stood is hardly meant."""

    def __init__(self, values: Mapping[str, list[float]]) -> None:
        seen = [_form_of_text(text) for text in values if text]
        self._seen = set(seen)
        self._unseen = len(self._seen) / (len(seen) + len(self._seen)) if seen else 1.0

    def likelihood(self, value: Any) -> float:
        """1 for a form that was seen, else the share of new forms among the values seen (Witten-Bell)."""
        return 1.0 if value is ABSENT or form_of(value) in self._seen else self._unseen


@lru_cache(maxsize=8192)
def _form_of_text(text: str) -> str:
    return form_of(decode_value(text))


def form_of(value: Any) -> str:
    """The form of a value, coarsely: the shape of an id, how many words and how they are written, or its type."""
    if isinstance(value, list):
        return f"[{form_of(value[0]) if value else ''}]"
    return _form_of_string(value) if isinstance(value, str) else type(value).__name__


@lru_cache(maxsize=8192)
def _form_of_string(value: str) -> str:
    words = value.split()
    if len(words) > 3:
        return "text"
    return " ".join(shape_of(word) or ("Aa" if word.istitle() else "A" if word.isupper() else "a") for word in words)


def _near_by(weight: float, neighbours: list[Neighbour], agree: list[bool]) -> float:
    """A source's record, moved towards what held after the nearest past requests."""
    if not neighbours:
        return weight
    near = sum([n.similarity for n in neighbours])
    agreeing = sum([n.similarity for n in compress(neighbours, agree)])
    return (NEAR * agreeing + weight) / (NEAR * near + 1)


def _precision(overall: list[float] | None, here: list[float] | None) -> float:
    """Return how often a source was right, shrunk from this point in the run towards its overall record."""
    p = 0.5
    if overall is not None:
        p = (overall[HIT] + 0.5) / (overall[HIT] + overall[MISS] + 1.0)
    if here is not None:
        p = (here[HIT] + 2 * p) / (here[HIT] + here[MISS] + 2)
    return p


def _may_use(graph: ToolGraph, state: RunState, slot: str, value: Any, schema: Any, user: str | None) -> bool:
    """No leaks: a value that is not this run's own must be a constant of the tool or of enough other runs."""
    if value is ABSENT or isinstance(value, bool):
        return True
    if isinstance(schema, Mapping) and (value in schema.get("enum", ()) or value == schema.get("default", ABSENT)):
        return True
    pattern = pattern_of(value, state)
    if pattern.isdigit() and len(pattern) >= ID_DIGITS:
        return False  # an id that nothing in this run shows, whoever had it before
    return not pattern or graph.pattern_contributors.is_public(slot, pattern, user)
