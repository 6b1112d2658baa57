"""Candidates for the model's next turn: which tools may come, with which arguments, and the evidence for each.

Tools come from what followed windows like this one and from the nearest past requests. Arguments come from the sources
with the best record (`graph.sources`). Whole calls come from the concrete calls before them: loops, devices and menus
repeat them. So a back-off n-gram over these stands next to the counts of tools (`graph.state.windows`). A call of one
user is offered to others only once enough of them made it (`ContributorTable`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Final, NamedTuple

from langgraph_toolmem.base.text import digest
from langgraph_toolmem.graph.cases import Neighbour
from langgraph_toolmem.graph.events import Event, Forgotten
from langgraph_toolmem.graph.learning import constants, may_be_from_output, pattern_of
from langgraph_toolmem.graph.sources import evaluate, is_template
from langgraph_toolmem.graph.state import PARALLEL, START, WORDS, RunState, parallel, slot_key, windows
from langgraph_toolmem.graph.tool_graph import HIT, MISS, ContributorTable, CountTable, Handler, Table, ToolGraph
from langgraph_toolmem.inertia.decision import calls_text
from langgraph_toolmem.runs.run import Turn
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import ABSENT, canon, canon_args, fit

MAX_TOOLS: Final = 3
LEAST_SHARE: Final = 0.05
"""Share of the likeliest tool's share from which another is weighed too."""
NEIGHBOURS: Final = 8
"""Nearest past requests that vote for a call."""
NEAREST: Final = 4
"""Of these, the number that says what comes next and with which values."""
ID_DIGITS: Final = 6
"""Digits from which a number is an id."""
MAX_AT_ONCE: Final = 8
"""Calls of one turn that are made without the model, at most."""
MAX_CONTEXTS: Final = 60_000
MAX_KNOWN: Final = 20_000
MAX_CALL_CHARS: Final = 1_000
ORDERS: Final = (1, 2, 3)
"""Numbers of the latest calls in a context."""
MAX_OFFERED: Final = 3
MIN_SHARE: Final = 0.1
"""Least share of a call among what followed."""


class Filled(NamedTuple):
    """One argument's value and its source."""

    value: Any
    probability: float
    source: str


Filling = Mapping[str, Filled]
"""Parameter -> its value, ABSENT for an optional one that is best left out."""


@dataclass(frozen=True)
class Situation:
    """The evidence that all candidates of one decision share.

    Attributes:
        neighbours: the NEAREST past requests.
        of_calls: shares of the calls that followed the run's latest calls, by digest.
    """

    neighbours: Sequence[Neighbour]
    of_calls: Mapping[str, float]


@dataclass(frozen=True)
class Candidate:
    """One possible next turn of the model: a call, several calls of one tool, or an answer in words (tool WORDS).

    Attributes:
        p_tool: share of the tool among what followed in contexts like this one, backed off over their length.
        p_args: product of the records of the argument sources.
        whole: whether it is a call that followed the latest calls as a whole.
        each: the parameter whose value is a list with one element for each of several calls; "" for one call.
    """

    here: Situation
    tool: str
    filled: Filling
    p_tool: float
    p_args: float
    whole: bool = False
    each: str = ""

    @property
    def following(self) -> str | None:
        """Return what a past request must have gone on with to vote for this (`Neighbour.tool`)."""
        return None if self.tool == WORDS else PARALLEL + self.tool if self.each else self.tool

    @property
    def nearest_agrees(self) -> int:
        """2 if the nearest past request went on with this tool, 0 if it went on otherwise, 1 without such a request."""
        near = self.here.neighbours
        return 1 if not near else 2 if near[0].tool == self.following else 0

    @cached_property
    def calls(self) -> tuple[dict[str, Any], ...]:
        """The arguments of each call, without optional ones that are best left out. None for an answer in words."""
        if self.tool == WORDS:
            return ()
        args = {name: f.value for name, f in self.filled.items() if f.value is not ABSENT}
        return tuple({**args, self.each: value} for value in args[self.each]) if self.each else (args,)

    @cached_property
    def text(self) -> str:
        """The arguments as one text (`calls_text`)."""
        return calls_text(self.calls)

    @cached_property
    def key(self) -> str:
        """Its digest among the calls that follow others (`call_key`)."""
        return call_key(PARALLEL + self.tool, "") if self.each else call_key(self.tool, self.text)


def candidates(
    graph: ToolGraph,
    contexts: CallContexts,
    state: RunState,
    neighbours: Sequence[Neighbour],
    *,
    specs: Mapping[str, ToolSpec],
    user: str | None,
) -> list[Candidate]:
    """Return what may come next, likeliest tools first: calls, several calls of one tool at once, an answer in words.

    Tools that are not among `specs` are left out. The digest of the user decides which constants may be used.
    """
    shares = next_tools(graph, state, neighbours[:NEAREST])
    following, of_calls = contexts.after(state)
    here = Situation(neighbours[:NEAREST], of_calls)
    found: list[Candidate] = []

    def add(tool: str, filled: Filling, share: float, each: str = "") -> None:
        p_args = math.prod(f.probability for f in filled.values())
        found.append(Candidate(here, tool, filled, share, p_args, each=each))

    ranked = sorted(shares, key=lambda item: (-shares[item], item))  # by name where equal: a set has no fixed order
    least = LEAST_SHARE * max(shares.values(), default=0.0)
    for item in [i for i in ranked if shares[i] >= least and i.removeprefix(PARALLEL) in specs][:MAX_TOOLS]:
        tool = item.removeprefix(PARALLEL)
        filled = fill(graph, state, specs[tool], here.neighbours, user)
        if filled is None:
            continue
        if item != tool:
            if each := fill_each(graph, state, item, specs[tool].properties):
                add(tool, {**filled, each[0]: each[1]}, shares[item], each=each[0])
            continue
        add(tool, filled, shares[item])
    there = {candidate.key for candidate in found} if following else set()
    for tool, args, share in following:
        if tool not in specs or call_key(tool, canon_args(args)) in there:
            continue
        properties = specs[tool].properties
        if all(_may_offer(graph, state, tool, name, value, properties.get(name), user) for name, value in args.items()):
            filled = {name: Filled(value, 1.0, "w") for name, value in args.items()}
            found.append(Candidate(here, tool, filled, max(shares.get(tool, 0.0), share), share, whole=True))
    add(WORDS, {}, shares.get(WORDS, 0.0))
    return found


def next_tools(graph: ToolGraph, state: RunState, neighbours: Sequence[Neighbour]) -> dict[str, float]:
    """Return the distribution of what comes next: tools, WORDS, PARALLEL.

    Windows are backed off by Witten-Bell interpolation, P_k(c) = (n_k(c) + T_k P_{k-1}(c)) / (N_k + T_k), with
    T_k the number of different successors; the nearest requests are a last context weighted by similarity.
    """
    shares: dict[str, float] = {}
    for key in windows(state):
        row = graph.successors.row(key)
        if counts := {item: n for item, cell in row.items() if (n := cell[0] + cell[1]) > 0}:
            shares = interpolated(counts, shares)
    votes: dict[str, float] = {}
    for near in neighbours:
        item = WORDS if near.tool is None else near.tool
        votes[item] = votes.get(item, 0.0) + 4 * near.similarity**2
    return interpolated(votes, shares) if votes else shares


# --- arguments ---


def fill(
    graph: ToolGraph, state: RunState, spec: ToolSpec, neighbours: Iterable[Neighbour], user: str | None
) -> Filling | None:
    """Return the likeliest values of a tool's parameters; None if nothing is known for a required one."""
    same_tool = [n for n in neighbours if n.tool == spec.name]
    found: dict[str, Filled] = {}
    for parameter, schema in spec.properties.items():
        is_required = parameter in spec.required
        likeliest = _likeliest(graph, state, spec.name, parameter, schema, is_required, same_tool, user)
        if likeliest is not None:
            found[parameter] = likeliest
        elif is_required:
            return None
    return found


def _likeliest(
    graph: ToolGraph,
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
    carried = [n.carried.get(parameter, ABSENT) for n in same_tool]
    texts = list(map(canon, carried))
    by_text, by_source = _Support(), _Support()
    for near, text in zip(same_tool, texts, strict=True):
        by_text.add(near.similarity, [text])
        if parameter in near.sources:
            by_source.add(near.similarity, near.sources[parameter])
    sourced: dict[tuple[type, str], tuple[Any, list[str]]] = {}

    def offer(descriptor: str, value: Any) -> None:
        sourced.setdefault((type(value), canon(value)), (value, []))[1].append(descriptor)

    for descriptor in dict.fromkeys([*overall, *by_source]):
        if "|" in descriptor:
            value = evaluate(descriptor, state, (tool, parameter))
            if value is ABSENT:
                continue
            # the year and the time of day in a date's format are another run's
            if not is_template(descriptor) or _may_use(graph, state, slot, value, schema, user):
                offer(descriptor, value)
    for descriptor, value in [*constants(graph, slot, previous).items(), *(("n", each) for each in carried)]:
        if _may_use(graph, state, slot, value, schema, user):
            offer(descriptor, value)
    offers: dict[str, tuple[Any, list[tuple[float, str]]]] = {}
    for given, descriptors in sourced.values():
        value = fit(given, schema)
        if value is ABSENT and (is_required or given is not ABSENT):
            continue
        text = canon(value)
        backing = offers.setdefault(text, (value, []))[1]
        for descriptor in descriptors:
            weight = _precision(overall.get(descriptor), here.get(descriptor))
            moved = by_source.moved(weight, descriptor) if "|" in descriptor else by_text.moved(weight, text)
            backing.append((moved, descriptor))
    if not offers:
        return None
    value, backing = max(offers.values(), key=lambda o: (max(o[1])[0], len(o[1]), max(o[1])[1]))
    probability, source = max(backing)
    return Filled(value, probability, source)


def fill_each(
    graph: ToolGraph, state: RunState, group: str, properties: Mapping[str, Any]
) -> tuple[str, Filled] | None:
    """Return the parameter in which several calls of one tool differ, and its values, one for each call.

    The values come from the source with the best record. `group` is the tool as `parallel` writes it.
    """
    tool = group.removeprefix(PARALLEL)
    best: tuple[str, Filled] | None = None
    for parameter, schema in properties.items():
        slot = slot_key(group, parameter)
        here = graph.sources.row(f"{slot}\x1e{state.symbols[-1]}")
        for descriptor, cell in graph.sources.row(slot).items():
            offered = evaluate(descriptor, state, (tool, parameter))
            if not isinstance(offered, list) or len(offered) > MAX_AT_ONCE:
                continue
            values = [fit(value, schema) for value in offered]
            weight = _precision(cell, here.get(descriptor))
            if ABSENT not in values and (best is None or weight > best[1].probability):
                best = parameter, Filled(values, weight, descriptor)
    return best


class _Support(dict[str, float]):
    """Similarities of the nearest past requests, summed by the sources (or values) that they had; `total` of all."""

    total = 0.0

    def add(self, similarity: float, items: Iterable[str]) -> None:
        self.total += similarity
        for item in items:
            self[item] = self.get(item, 0.0) + similarity

    def moved(self, weight: float, item: str) -> float:
        """Return a source's record, moved towards what held after the nearest past requests."""
        return (self.get(item, 0.0) + weight) / (self.total + 1)


def _precision(overall: list[float] | None, here: list[float] | None) -> float:
    """Return how often a source was right, shrunk from this point in the run towards its overall record."""
    p = 0.5
    if overall is not None:
        p = (overall[HIT] + 0.5) / (overall[HIT] + overall[MISS] + 1.0)
    if here is not None:
        p = (here[HIT] + 2 * p) / (here[HIT] + here[MISS] + 2)
    return p


def _may_offer(
    graph: ToolGraph, state: RunState, tool: str, parameter: str, value: Any, schema: Any, user: str | None
) -> bool:
    """Return True if a value of another run may stand in a call of this one: this run shows it, or it is public."""
    text = canon(value)
    if not isinstance(value, (list, dict)) and may_be_from_output(value, text, state):
        return True
    return _may_use(graph, state, slot_key(tool, parameter), value, schema, user)


def _may_use(graph: ToolGraph, state: RunState, slot: str, value: Any, schema: Any, user: str | None) -> bool:
    """Return True if a value that is not this run's own is a constant of the tool or of enough other runs."""
    if value is ABSENT or isinstance(value, bool):
        return True
    if isinstance(schema, Mapping) and (value in schema.get("enum", ()) or value == schema.get("default", ABSENT)):
        return True
    pattern = pattern_of(value, state)
    if pattern.isdigit() and len(pattern) >= ID_DIGITS:
        return False  # an id that nothing in this run shows, whoever had it before
    return not pattern or graph.pattern_contributors.is_public(slot, pattern, user)


# --- whole calls, by the calls before them ---


@dataclass(slots=True)
class CallFollowed(Event):
    """A call was made after these contexts.

    Attributes:
        contexts: their keys, as `contexts_of` makes them.
        call: digest of what followed.
        text: the call as JSON; "" for an answer in words and for several calls.
        run: digest of the thread, which counts as one contributor where no user is known.
        user: digest of the user, if known.
    """

    kind = "call_followed"
    contexts: list[str]
    call: str
    text: str
    run: str
    user: str | None


class CallContexts(Table):
    """Counts of whole calls that follow each other.

    Attributes:
        followed: context -> digest of the call -> [count]; MAX_CONTEXTS contexts.
        known: digest of a call -> its text -> its contributors; MAX_KNOWN calls.
    """

    name = "calls"
    parts = ("followed", "known")

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.followed = CountTable(MAX_CONTEXTS)
        self.known = ContributorTable(MAX_KNOWN, max_items=1)

    def handlers(self) -> Mapping[type[Event], Handler]:
        """See `Table`."""
        return {CallFollowed: self._add}

    def _add(self, contexts: list[str], call: str, text: str, run: str, user: str | None) -> None:
        for context in contexts:
            self.followed.add(context, call)
        if text:
            self.known.add(call, text, run, user)

    def after(self, state: RunState) -> tuple[list[tuple[str, dict[str, Any], float]], dict[str, float]]:
        """Return the calls that followed the run's latest calls most often, and the share of every call by `call_key`.

        The first are MAX_OFFERED at most, best first, with tool, arguments and share.
        """
        shares: dict[str, float] = {}
        for context in contexts_of(state):
            if row := self.followed.row(context):
                shares = interpolated({call: cell[0] for call, cell in row.items()}, shares)
        ranked = sorted((-share, call) for call, share in shares.items() if share >= MIN_SHARE)
        known = ((text, -share) for share, call in ranked for text in self.known.rows.get(call, ()))
        return [(*json.loads(text), share) for text, share in islice(known, MAX_OFFERED)], shares

    def forget(self, gone: Forgotten) -> int:
        """Delete calls that nobody else made."""
        lost = self.known.forget(gone)
        for call in [call for call, texts in self.known.rows.items() if not texts]:
            del self.known.rows[call]
        return lost


def interpolated(counts: Mapping[str, float], shorter: Mapping[str, float]) -> dict[str, float]:
    """Return the shares of what followed a context, backed off to those of the shorter context (Witten-Bell)."""
    total, kinds = sum(counts.values()), float(len(counts))
    return {
        item: (counts.get(item, 0.0) + kinds * shorter.get(item, 0.0)) / (total + kinds) for item in {*shorter, *counts}
    }


def call_key(tool: str, args: str) -> str:
    """Return the digest of a call, with its arguments as `canon_args` writes them."""
    return digest("followed", tool, args)


def followed(state: RunState, turn: Turn, thread: str, user: str | None) -> list[Event]:
    """Return the event that teaches what a turn of the model did after the calls before it."""
    if turn.chosen_by != "model":
        return []
    if len(turn.steps) != 1:
        what = parallel([step.tool for step in turn.steps]) if turn.steps else WORDS
        return [CallFollowed(contexts_of(state), call_key(what, ""), "", thread, user)]
    [step] = turn.steps
    text = json.dumps([step.tool, step.args], sort_keys=True, default=str)
    kept = text if len(text) <= MAX_CALL_CHARS else ""
    return [CallFollowed(contexts_of(state), call_key(step.tool, canon_args(step.args)), kept, thread, user)]


def contexts_of(state: RunState) -> list[str]:
    """Return the keys of a run's contexts, the least telling first.

    One to three latest calls with their outcome, and the request with all calls since.
    """
    calls = [(step.tool, canon_args(step.args), step.status) for step in state.steps[-max(ORDERS) :]]
    spoken = int(state.symbols[-1] == WORDS)
    keys = []
    for order in ORDERS:
        if order <= len(calls):
            keys.append(digest("calls", spoken, *(part for call in calls[-order:] for part in call)))
        elif order == len(calls) + 1:
            keys.append(digest("calls", spoken, START, *(part for call in calls for part in call)))
    if state.user.raw:
        since = [part for step in state.since_user for part in (step.tool, canon_args(step.args), step.status)]
        keys.append(digest("request", state.user.raw, *since))
    return keys
