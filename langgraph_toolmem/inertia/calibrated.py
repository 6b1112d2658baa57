"""The default decision: list the calls that may come, weigh them by their record, and propose the most likely one.

One model turn, in this order: `candidates` lists the calls that may come, the estimator (`inertia.confidence`) gives
each its probability, and the likeliest call is proposed unless a veto refuses it. The budget of misses comes last.

Tools come from the successors of similar windows and from the nearest past requests. Arguments come from the sources
with the best record (`graph.sources`). Whole calls come from the concrete calls before them: loops, devices and menus
repeat them. So a back-off n-gram over these stands next to the counts of tools (`graph.state.windows`). Every value
passes `graph.provenance`. A call is complete or not made: an argument that the model mostly gave is never left out for
lack of a value.

Comments give figures of ablations, measured once: one cold shuffle of the first 100 to 350 runs of recorded sets (the
shop of GPT-4.1 mini, 8 APIs, the airline), with the functions of `benchmarks.replay`. *Known*: share of the turns whose
exact call is among the candidates.

To add a rule: write a class with `refuse` (`decision.Veto`) and name it in one of the two tuples of `Calibrated`. A
rule that learns is a `Table`, in a file of its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeAlias

from langgraph_toolmem.base.text import digest
from langgraph_toolmem.core.core import Core
from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.cases import Neighbour
from langgraph_toolmem.graph.events import Event, Forgotten
from langgraph_toolmem.graph.provenance import Provenance, usual_values
from langgraph_toolmem.graph.sources import describe, from_input
from langgraph_toolmem.graph.state import PARALLEL, START, WORDS, RunState, parallel, slot_key, tool_of, windows
from langgraph_toolmem.graph.tool_graph import HIT, MISS, ContributorTable, CountTable, Handler, Table, ToolGraph
from langgraph_toolmem.inertia.cases import Cases, Media
from langgraph_toolmem.inertia.confidence import Budget, Estimator, columns_of, record_keys
from langgraph_toolmem.inertia.corrections import Corrections
from langgraph_toolmem.inertia.decision import Decision, Option, Proposal, Refusal, calls_text
from langgraph_toolmem.inertia.novelty import DecidingWords, Denial, Familiar, Novelty
from langgraph_toolmem.inertia.policy import Guards, InertiaPolicy, may_be_stale, may_write
from langgraph_toolmem.inertia.record import InertiaEvidence
from langgraph_toolmem.inertia.selection import InsertedWord, OtherRow, Selection
from langgraph_toolmem.runs.run import ExecutedCall, Turn
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import ABSENT, canon, canon_args, fit

Similarity: TypeAlias = Callable[[str, str], float]
"""(thought of the model, name of a tool) -> cosine with the tool's description."""


@dataclass(frozen=True)
class Situation:
    """A model turn before the model has answered, with all evidence about it.

    Attributes:
        graph: the tool graph, locked by the caller.
        state: the run so far, with what the model sees besides the messages.
        neighbours: past requests that went the same way, nearest first.
        specs: the tools that may be called now.
        policy: the policy of this run.
        constants: parameters whose values are declared (`ToolMemory(constants=...)`).
        today: days since 1970, by the memory's clock.
        draw: a number from 0 to 1; below the policy's `audit_rate` it means an audit.
        evidence: the record of predictions.
        budget: the misses that are left.
        chosen_by: who chose the calls of the run so far, for published rules.
        similarity: of a thought and a tool, for published rules.
    """

    graph: ToolGraph
    state: RunState
    neighbours: Sequence[Neighbour]
    specs: Mapping[str, ToolSpec]
    policy: InertiaPolicy
    constants: Collection[str]
    today: int
    draw: float
    evidence: InertiaEvidence
    budget: Budget
    chosen_by: Sequence[str]
    similarity: Similarity

    @cached_property
    def novelty(self) -> Novelty:
        """The wording of the request, next to that of past requests."""
        return Novelty(self.state, self.neighbours, self.graph.cases)

    @cached_property
    def selection(self) -> Selection:
        """The words of the request that select one of several values."""
        return Selection(self.graph, self.state)


class Veto(Protocol):
    """A rule that may leave a call to the model. A rule that learns is a `Table` as well."""

    def refuse(self, candidate: Option, situation: Situation) -> Refusal | None:
        """Return why the call is not made; None if this rule has nothing against it."""


class Calibrated:
    """The rule of the default policy.

    Attributes:
        vetoes: asked about every candidate, in this order. The first refusal is the one that traces name, so those
            that no record changes come first.
        vetoes_of_the_best: asked about the likeliest candidate alone: they compare outputs and sources, which are read
            for each comparison.
    """

    def __init__(self, core: Core) -> None:
        cases = core.register(Cases)
        self._contexts, self._estimator = core.register(CallContexts), core.register(Estimator)
        self._familiar = core.register(Familiar)
        # On recordings, where a wrong call does no harm, the vetoes on wording, outputs and short records cost up to 7
        # points of the right calls. On 100 desks they reduce hundreds of unasked changes to 0 (docs/figures.md).
        # `Media` before `Familiar`, which does not see pictures: the words of such a request may all be known. `Denial`
        # comes before the bar of confidence: look-ups before the model are below it, and behind it "don't" did not stop
        # one with a confidence of .6. Without it wrong look-ups rise from .05 to .10 per 100 turns, without `Familiar`
        # to .30 (12 desks of `benchmarks.closed_loop`, 1,800 requests). `DecidingWords` looks each new word up in the
        # past requests, so it comes after the bar.
        self.vetoes: tuple[Veto, ...] = (
            NoCall(),
            Guards(),
            Media(cases),
            Denial(),
            OtherRow(),
            InsertedWord(),
            self._familiar,
            Proven(),
            Bar(),
            DecidingWords(),
        )
        self.vetoes_of_the_best: tuple[Veto, ...] = (core.register(Corrections), cases)

    def decide(self, situation: Situation) -> Decision:
        """Weigh the likeliest calls by their record, and propose the first unless something refuses it."""
        listed = candidates(situation, self._contexts)
        # The answer in words is always a candidate: alone and without a share it says that nothing was seen.
        if not any(candidate.tool != WORDS or candidate.p_tool for candidate in listed):
            return Decision(None, Refusal("nothing_seen", "nothing like this has been seen yet"))
        options = [_asked(option, self.vetoes, situation) for option in self._weigh(listed, situation)]
        # If the likeliest call is refused, the second is not made: the model would more likely do the first.
        options[0] = best = _asked(options[0], self.vetoes_of_the_best, situation)
        if best.tool == WORDS:
            options[0] = best = replace(best, refused=_why_no_call(listed, situation.specs) or best.refused)
        if best.refused is not None:
            return Decision(None, best.refused, tuple(options), best.probability)
        hold = situation.budget.refuse(best, situation)
        proposal = Proposal(
            tool=best.tool,
            args=best.calls[0],
            beside=best.calls[1:],
            confidence=best.probability,
            evidence=best.evidence,
            act=hold is None,
            hold=hold,
            audit=hold is not None and hold.is_check,
            sources={name: describe(source) for name, source in best.sources.items()},
        )
        return Decision(proposal, hold, tuple(options), best.probability)

    def _weigh(self, listed: Sequence[Candidate], situation: Situation) -> list[Option]:
        """Return the candidates with their probabilities, likeliest first."""
        records, new_words, familiar = [], [], []
        for candidate in listed:
            new = situation.novelty.new_words(candidate)
            new_words.append(new)
            familiar.append(self._familiar.share(candidate.tool, new))
            records.append(record_keys(candidate, situation.state))
        columns = columns_of(listed, records, familiar, situation.neighbours, situation.evidence.rules)
        probabilities = self._estimator.probabilities(columns)
        specs, options = situation.specs, []
        # The columns are written with the open turn, for each candidate: rounded, they are short.
        for position, row in enumerate(columns.round(3).tolist()):
            candidate, probability = listed[position], float(probabilities[position])
            option = Option(
                candidate.tool,
                candidate.calls,
                probability,
                changes=candidate.tool in specs and may_write(candidate.tool, specs),
                stale=may_be_stale(candidate.tool, candidate.calls, specs, situation.state),
                following=candidate.following,
                evidence=_evidence(candidate, probability),
                records=records[position],
                columns=row,
                new_words=new_words[position],
                sources=candidate.sources,
            )
            options.append(option)
        return sorted(options, key=least_likely)


def _why_no_call(listed: Sequence[Candidate], specs: Mapping[str, ToolSpec]) -> Refusal | None:
    """Return the reason if a tool is likelier than an answer in words, and is not among the candidates."""
    # Without this reason `explain` and traces said that the model was likely to answer in words, though the likeliest
    # call was known and only one of its values was not in the run.
    shares = listed[-1].here.shares
    likeliest = min(sorted(shares), key=lambda item: -shares[item], default=WORDS)
    tool = likeliest.removeprefix(PARALLEL)
    if tool == WORDS or any(candidate.tool == tool for candidate in listed):
        return None
    if tool not in specs:
        return Refusal("unknown_tool", f"{tool_of(tool)} is likely, and is not among the tools of this step")
    return Refusal("no_value", f"{tool_of(tool)} is likely, and this run does not show the values of its arguments")


def least_likely(option: Option) -> float:
    return -option.probability


def _asked(option: Option, vetoes: Sequence[Veto], situation: Situation) -> Option:
    """Return an option with the first refusal, if there is one."""
    if option.refused is None:
        for veto in vetoes:
            refused = veto.refuse(option, situation)
            if refused is not None:
                return replace(option, refused=refused)
    return option


def _evidence(candidate: Candidate, probability: float) -> str:
    """Return the evidence for a call as a text."""
    parts = [f"In runs like this one {candidate.tool} came next {candidate.p_tool:.0%} of the time."]
    for name, filled in candidate.given.items():
        parts.append(f"{name}: {describe(filled.source)} (right {filled.probability:.0%} of the time).")
    parts.append(f"Confidence {probability:.2f}.")
    return " ".join(parts)


# --- vetoes without a record of their own ---


class NoCall:
    """Leaves an answer in words to the model: the shortcut makes calls only."""

    def refuse(self, candidate: Option, situation: Situation) -> Refusal | None:
        if candidate.tool != WORDS:
            return None
        return Refusal("answer_in_words", "the model is likely to answer in words")


class Proven:
    """Leaves a change to the model whose tool was hardly ever predicted right."""

    def refuse(self, candidate: Option, situation: Situation) -> Refusal | None:
        # The estimator's columns have no tool, so its estimate of a new tool rests on the record of others.
        proven = 2
        hits = situation.graph.by_tool.get(candidate.tool, {}).get("hits", 0)
        if not candidate.changes or hits >= proven:
            return None
        return Refusal("unproven", f"too few predictions of {candidate.tool} were right so far")


class Bar:
    """Leaves a call to the model that is below the bound's precision."""

    def refuse(self, candidate: Option, situation: Situation) -> Refusal | None:
        least = situation.policy.bound_of(candidate.changes).min_precision
        if candidate.probability >= least:
            return None
        return Refusal("low_confidence", f"confidence {candidate.probability:.2f} is below {least:.2f}")


# --- candidates ---

# Known with one tool: 21.2, 23.8 and 10.5 % (shop, 8 APIs, airline), with three 24.0, 26.5 and 13.5. Six tools add .2
# to 2 points, and cost 7 to 23 % more time for a turn.
MAX_TOOLS: Final = 3
"""Tools whose calls are weighed."""
# From a share of .3 on, 20.7, 25.7 and 12.0 % are known.
LEAST_SHARE: Final = 0.05
"""Share of the most likely tool's share from which another is weighed too."""
# 4 or 16 are right and wrong as often; 16 take .5 to 1.2 ms more for a turn.
NEIGHBOURS: Final = 8
"""Nearest past requests that vote for a call."""
# With one alone 23.6, 25.7 and 12.6 % are known; with all eight, look-ups in the shop are wrong .52 times per 100 turns
# in place of .37.
NEAREST: Final = 4
"""Of these, the number that votes for the next tool and its values."""


class FollowingCall(NamedTuple):
    """A call that followed the run's latest calls, and its share of the successors."""

    tool: str
    args: dict[str, Any]
    share: float


class Filled(NamedTuple):
    """One argument's value and its source."""

    value: Any
    probability: float
    source: str


UNDECIDED: Final = Filled(ABSENT, 0.0, "")
"""Marks a value that the record cannot determine: the model is asked."""
Filling = Mapping[str, Filled]
"""Parameter -> its value, ABSENT for an optional one that is best left out."""


@dataclass(frozen=True)
class CallEvidence:
    """The evidence that all candidates of one decision share.

    Attributes:
        situation: the decision is about it.
        nearest: the NEAREST past requests.
        shares: of what comes next, as `next_tools` returns them.
        of_calls: shares of the calls that followed the run's latest calls, by digest.
        provenance: decides which values may be used.
    """

    situation: Situation
    nearest: Sequence[Neighbour]
    shares: Mapping[str, float]
    of_calls: Mapping[str, float]
    provenance: Provenance


@dataclass(frozen=True)
class Candidate:
    """One possible next turn of the model: a call, several calls of one tool, or an answer in words (tool WORDS).

    Attributes:
        p_tool: share of the tool among the successors of similar contexts, backed off over their length.
        p_args: product of the records of the argument sources.
        whole: True if the call as a whole followed the latest calls.
        each: the parameter whose value is a list with one element for each of several calls; "" for one call.
    """

    here: CallEvidence
    tool: str
    filled: Filling
    p_tool: float
    p_args: float
    whole: bool = False
    each: str = ""

    @property
    def following(self) -> str | None:
        """Return the next tool of a past request that votes for this candidate (`Neighbour.tool`)."""
        if self.tool == WORDS:
            return None
        return PARALLEL + self.tool if self.each else self.tool

    @property
    def nearest_agrees(self) -> int:
        """2 if the nearest past request continued with this tool, 0 if it continued differently, 1 without such a
        request.
        """
        near = self.here.nearest
        if not near:
            return 1
        return 2 if near[0].tool == self.following else 0

    @cached_property
    def calls(self) -> tuple[dict[str, Any], ...]:
        """The arguments of each call, without optional ones that are best left out. None for an answer in words."""
        if self.tool == WORDS:
            return ()
        args = {name: filled.value for name, filled in self.given.items()}
        if not self.each:
            return (args,)
        return tuple({**args, self.each: value} for value in args[self.each])

    @cached_property
    def given(self) -> dict[str, Filled]:
        """The values of a call, without optional ones that are best left out."""
        given = {}
        for name, filled in self.filled.items():
            if filled.value is not ABSENT:
                given[name] = filled
        return given

    @cached_property
    def sources(self) -> dict[str, str]:
        """The source of each argument's value."""
        return {name: filled.source for name, filled in self.given.items()}

    @cached_property
    def text(self) -> str:
        """The arguments as one text (`calls_text`)."""
        return calls_text(self.calls)

    @cached_property
    def key(self) -> str:
        """Its digest among the calls that follow others (`call_key`)."""
        if self.each:
            return call_key(PARALLEL + self.tool, "")
        return call_key(self.tool, self.text)


def candidates(situation: Situation, contexts: CallContexts) -> list[Candidate]:
    """Return the possible next turns, most likely tools first: calls, several calls of one tool at once, an answer in
    words.

    Tools that may not be called now are left out.
    """
    state, neighbours = situation.state, situation.neighbours
    provenance = Provenance(situation.graph, state, situation.constants, neighbours)
    shares = next_tools(situation.graph, state, neighbours[:NEAREST])
    calls = contexts.after(state)
    here = CallEvidence(situation, neighbours[:NEAREST], shares, calls.shares, provenance)
    listed = _calls_of_likely_tools(here)
    listed += _whole_calls(here, calls.likeliest, {candidate.key for candidate in listed})
    # "Where is the order of C820?" was answered with the customer in the prompt: such a candidate is removed before it
    # is weighed, because its record as a call is good.
    listed = [candidate for candidate in listed if not _is_distracted(candidate)]
    # An answer in words competes with the calls: in conversations with users more than half of the turns are text.
    # Without its share look-ups in the shop are wrong .58 times per 100 turns in place of .37.
    listed.append(Candidate(here, WORDS, {}, shares.get(WORDS, 0.0), 1.0))
    return listed


def _calls_of_likely_tools(here: CallEvidence) -> list[Candidate]:
    """Return the calls of the tools that follow most often, with the most likely arguments."""
    listed = []
    for item in _likeliest_tools(here.shares, here.situation.specs):
        tool, share = item.removeprefix(PARALLEL), here.shares[item]
        spec = here.situation.specs[tool]
        filled = Filler(here, spec).fill()
        if filled is None:
            continue
        if item == tool:
            listed.append(Candidate(here, tool, filled, share, _product(filled)))
            continue
        # Several calls of one tool differ in one parameter ("each order of the customer") and share the others.
        differing = _fill_each(here, item, spec)
        if differing is not None:
            of_each = {**filled, differing.parameter: differing.values}
            listed.append(Candidate(here, tool, of_each, share, _product(of_each), each=differing.parameter))
    return listed


def _likeliest_tools(shares: Mapping[str, float], specs: Mapping[str, ToolSpec]) -> list[str]:
    """Return the tools that follow most often, also as `parallel` writes them; ties are sorted by name."""
    least = LEAST_SHARE * max(shares.values(), default=0.0)
    likely = []
    # Sorted by name first: a set of texts has another order in each process, and equal shares would be cut at random.
    for item in sorted(shares):
        if shares[item] >= least and item.removeprefix(PARALLEL) in specs:
            likely.append(item)
    return sorted(likely, key=shares.__getitem__, reverse=True)[:MAX_TOOLS]


def _product(filled: Filling) -> float:
    return math.prod(value.probability for value in filled.values())


def _whole_calls(here: CallEvidence, following: Sequence[FollowingCall], known: Collection[str]) -> list[Candidate]:
    """Return the calls that followed the run's latest calls as a whole, without those that are `known`, by key."""
    specs, whole = here.situation.specs, []
    for call in following:
        tool, args = call.tool, call.args
        if tool not in specs or call_key(tool, canon_args(args)) in known:
            continue
        # A whole call comes from other runs. Each of its values must be in this run too; otherwise another customer's
        # id would be used.
        if here.provenance.may_repeat(tool, args, specs[tool].properties):
            filled = {name: Filled(value, 1.0, "w") for name, value in args.items()}
            p_tool = max(here.shares.get(tool, 0.0), call.share)
            whole.append(Candidate(here, tool, filled, p_tool, call.share, whole=True))
    return whole


def _is_distracted(candidate: Candidate) -> bool:
    """Return True if a value comes from prompt or context, and the request has a name or number that is not among the
    values.
    """
    if not any(from_input(filled.source) for filled in candidate.filled.values()):
        return False
    here = candidate.here
    return here.provenance.distracts(candidate.tool, candidate.calls, here.nearest)


def next_tools(graph: ToolGraph, state: RunState, neighbours: Sequence[Neighbour]) -> dict[str, float]:
    """Return the distribution of the next turn: tools, WORDS, PARALLEL.

    Windows are backed off by Witten-Bell interpolation, P_k(c) = (n_k(c) + T_k P_{k-1}(c)) / (N_k + T_k), with
    T_k the number of different successors; the nearest requests are a last context weighted by similarity.
    """
    shares: dict[str, float] = {}
    for key in windows(state):
        counts = {}
        for item, cell in graph.successors.row(key).items():
            # Only successes and failures of the model's own calls: with its own calls, the memory would confirm itself.
            chosen_by_model = cell[0] + cell[1]
            if chosen_by_model > 0:
                counts[item] = chosen_by_model
        if counts:
            shares = interpolated(counts, shares)
    # Without these votes 23.2, 24.1 and 12.8 % are known, and look-ups in the shop are wrong .58 times per 100 turns.
    votes: dict[str, float] = {}
    for near in neighbours:
        item = WORDS if near.tool is None else near.tool
        # An equal request (similarity 1) counts like four turns in the same window.
        votes[item] = votes.get(item, 0.0) + 4 * near.similarity**2
    return interpolated(votes, shares) if votes else shares


# --- arguments ---


class Backing(NamedTuple):
    """A source that gives a value, and its record; the best record is the largest."""

    probability: float
    source: str


@dataclass(slots=True)
class _Offer:
    """A value that an argument may have, and the sources that give it."""

    value: Any
    usable: bool = False
    backing: list[Backing] = field(default_factory=list)

    @property
    def rank(self) -> tuple[float, int, str]:
        """The best record counts, then the number of sources."""
        strongest = max(self.backing)
        return strongest.probability, len(self.backing), strongest.source


class Filler:
    """Fills the parameters of one tool with the likeliest values."""

    def __init__(self, here: CallEvidence, spec: ToolSpec) -> None:
        self._graph, self._state = here.situation.graph, here.situation.state
        self._spec, self._provenance = spec, here.provenance
        self._same_tool = [near for near in here.nearest if near.tool == spec.name]

    def fill(self) -> Filling | None:
        """Return the most likely values; None if a parameter that every complete call needs has no value."""
        filling: dict[str, Filled] = {}
        for parameter, schema in self._spec.properties.items():
            is_required = parameter in self._spec.required
            likeliest = self._likeliest(parameter, schema, is_required)
            # With another value in place of the undecided one the call would be complete and wrong.
            if likeliest is UNDECIDED:
                return None
            if likeliest is not None:
                filling[parameter] = likeliest
            elif is_required or self._is_mostly_given(parameter):
                return None
        return filling

    def _is_mostly_given(self, parameter: str) -> bool:
        """Return True if most calls of the tool gave an argument, or most of the nearest requests' calls."""
        # An optional filter that is left out finds too much. Without this rule 160 office runs (522 turns) had look-ups
        # right 1.92 and wrong .77 times per 100 turns, with it 1.34 and .57.
        most = 0.5
        known = self._graph.tools.get(self._spec.name, {})
        given = sum(known.get("parameters_seen", {}).get(parameter, {}).values())
        if given > most * known.get("calls_read", 0):
            return True
        near = 0
        for neighbour in self._same_tool:
            near += parameter in neighbour.args
        return near > most * len(self._same_tool)

    def _likeliest(self, parameter: str, schema: Any, is_required: bool) -> Filled | None:
        """Return the value with the best record; None without a value.

        UNDECIDED if its extent in the request is open, or if it comes from a place that does not count yet.
        """
        offers = self._offers(parameter, schema, is_required)
        if not offers:
            return None
        best = max(offers, key=lambda offer: offer.rank)
        # "New" or "New York": if two extents compete and the record does not prefer one, the model is asked. Without
        # this rule look-ups of 8 APIs are wrong .31 times per 100 turns in place of .16.
        if best.value is not ABSENT and not self._is_decided(parameter, best, offers):
            return UNDECIDED
        strongest = max(best.backing)
        return Filled(best.value, strongest.probability, strongest.source)

    def _offers(self, parameter: str, schema: Any, is_required: bool) -> Collection[_Offer]:
        """Return the values that a parameter may have, each with the records of its sources."""
        graph, slot = self._graph, slot_key(self._spec.name, parameter)
        overall = graph.sources.row(slot)
        here = graph.sources.row(f"{slot}\x1e{self._state.symbols[-1]}")
        by_text, by_source = _Support(), _Support()
        for near in self._same_tool:
            by_text.add(near.similarity, [canon(near.carried.get(parameter, ABSENT))])
            if parameter in near.sources:
                by_source.add(near.similarity, near.sources[parameter])
        offers: dict[str, _Offer] = {}
        for descriptor, given, usable in self._offered(parameter, schema, [*overall, *by_source]):
            value = fit(given, schema)
            # A value that the schema rejects is ignored, unless the source is "the argument is left out".
            if value is ABSENT and (is_required or given is not ABSENT):
                continue
            text = canon(value)
            weight = _precision(overall.get(descriptor), here.get(descriptor))
            # A place ("|") votes by name: its value differs from run to run. A usual value votes as text.
            moved = by_source.moved(weight, descriptor) if "|" in descriptor else by_text.moved(weight, text)
            offer = offers.setdefault(text, _Offer(value))
            offer.usable = offer.usable or usable
            offer.backing.append(Backing(moved, descriptor))
        return offers.values()

    def _is_decided(self, parameter: str, best: _Offer, offers: Iterable[_Offer]) -> bool:
        if not best.usable:
            return False
        others = {}
        for offer in offers:
            if offer is not best:
                for backing in offer.backing:
                    others[backing.source] = canon(offer.value)
        own = [backing.source for backing in best.backing]
        return not self._provenance.is_contested(self._spec.name, parameter, best.value, own, others)

    def _offered(self, parameter: str, schema: Any, descriptors: Iterable[str]) -> Iterator[tuple[str, Any, bool]]:
        """Yield the values of a parameter: the source, the value, and False for one that counts only later.

        The latter compete with the others: if "tomorrow" is probably meant, "today" is wrong.
        """
        tool, provenance = self._spec.name, self._provenance
        for descriptor in dict.fromkeys(descriptors):
            if "|" in descriptor:
                value = provenance.value_of(descriptor, tool, parameter)
                # A place counts once two different values agreed. Until then it is yielded as unusable, not left out.
                if value is not ABSENT:
                    yield descriptor, value, not provenance.is_early(descriptor, tool, parameter, value)
        usual = usual_values(self._graph, slot_key(tool, parameter), self._state.symbols[-1])
        carried = [("n", near.carried.get(parameter, ABSENT)) for near in self._same_tool]
        for descriptor, value in [*usual.items(), *carried]:
            if provenance.may_use(tool, parameter, value, schema):
                yield descriptor, value, True


class DifferingParameter(NamedTuple):
    """The parameter in which several calls of one tool differ, and the list of its values, one for each call."""

    parameter: str
    values: Filled


def _fill_each(here: CallEvidence, group: str, spec: ToolSpec) -> DifferingParameter | None:
    """Return the parameter in which several calls of a tool differ; `group` is the tool as `parallel` writes it.

    The values come from the source with the best record.
    """
    most_at_once = 8  # calls of one turn that are made without the model
    sources, symbol = here.situation.graph.sources, here.situation.state.symbols[-1]
    best: DifferingParameter | None = None
    highest = -1.0
    for parameter, schema in spec.properties.items():
        slot = slot_key(group, parameter)
        at_this_point = sources.row(f"{slot}\x1e{symbol}")
        for descriptor, cell in sources.row(slot).items():
            offered = here.provenance.value_of(descriptor, spec.name, parameter)
            if not isinstance(offered, list) or len(offered) > most_at_once:
                continue
            # One invalid value drops the whole list: the user did not ask for half of the orders.
            values = [fit(value, schema) for value in offered]
            weight = _precision(cell, at_this_point.get(descriptor))
            if ABSENT not in values and weight > highest:
                best, highest = DifferingParameter(parameter, Filled(values, weight, descriptor)), weight
    return best


class _Support(dict[str, float]):
    """Similarities of the nearest past requests, summed by the sources (or values) that they had; `total` of all."""

    total = 0.0

    def add(self, similarity: float, items: Iterable[str]) -> None:
        self.total += similarity
        for item in items:
            self[item] = self.get(item, 0.0) + similarity

    def moved(self, weight: float, item: str) -> float:
        """Return a source's record, moved towards its record after the nearest past requests."""
        # By the record alone, look-ups of the 8 APIs are right 3.3 times per 100 turns in place of 4.1.
        return (self.get(item, 0.0) + weight) / (self.total + 1)


def _precision(overall: list[float] | None, here: list[float] | None) -> float:
    """Return how often a source was right, shrunk from this point in the run towards its overall record."""
    # One trial at this point proves little, so the overall record counts there like two trials.
    p = 0.5
    if overall is not None:
        p = (overall[HIT] + 0.5) / (overall[HIT] + overall[MISS] + 1.0)
    if here is not None:
        p = (here[HIT] + 2 * p) / (here[HIT] + here[MISS] + 2)
    return p


# --- whole calls, by the calls before them ---


@dataclass(slots=True)
class CallFollowed(Event):
    """A call was made after these contexts.

    Attributes:
        contexts: their keys, as `contexts_of` makes them.
        call: digest of the successor.
        text: the call as JSON; "" for an answer in words and for several calls.
        run: digest of the thread, which counts as one contributor if the user is unknown.
    """

    kind = "call_followed"
    contexts: list[str]
    call: str
    text: str
    run: str
    user: str | None


class CallsAfter(NamedTuple):
    """The calls that followed the run's latest calls.

    Attributes:
        likeliest: three at most, the most frequent first.
        shares: of every call among the successors, by `call_key`.
    """

    likeliest: list[FollowingCall]
    shares: dict[str, float]


class CallContexts(Table):
    """Counts of whole calls that follow each other.

    Attributes:
        followed: context -> digest of the call -> [count].
        known: digest of a call -> its text -> its contributors.
        most_contexts: limit of kept contexts.
        most_calls: limit of kept calls.
        most_characters: length of a call whose text is kept.
    """

    most_contexts: ClassVar[int] = 60_000
    most_calls: ClassVar[int] = 20_000
    most_characters: ClassVar[int] = 1_000

    name = "calls"
    parts: ClassVar = {
        "followed": shapes.counts(1),
        "known": shapes.RowsOf(
            shapes.RowsOf(
                shapes.RecordOf((shapes.ListOf(shapes.TEXT),) * 2),
                shapes.AnyText('["', "}]"),  # tool and arguments as JSON
            )
        ),
    }

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.followed = CountTable(self.most_contexts)
        self.known = ContributorTable(self.most_calls, max_items=1)

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {CallFollowed: self._add}

    def _add(self, contexts: list[str], call: str, text: str, run: str, user: str | None) -> None:
        for context in contexts:
            self.followed.add(context, call)
        if text:
            self.known.add(call, text, run, user)

    def after(self, state: RunState) -> CallsAfter:
        """Return the calls that followed the run's latest calls."""
        # Without whole calls 22.4, 25.7 and 13.3 % are known.
        most_offered, least_share = 3, 0.1
        shares: dict[str, float] = {}
        for context in contexts_of(state):
            row = self.followed.row(context)
            if row:
                shares = interpolated({call: cell[0] for call, cell in row.items()}, shares)
        ranked = sorted((-share, call) for call, share in shares.items() if share >= least_share)
        following: list[FollowingCall] = []
        for negative_share, call in ranked:
            for text in self.known.rows.get(call, ()):
                if len(following) == most_offered:
                    return CallsAfter(following, shares)
                tool, args = json.loads(text)
                following.append(FollowingCall(tool, args, -negative_share))
        return CallsAfter(following, shares)

    def forget(self, gone: Forgotten) -> int:
        """Delete calls without another contributor."""
        # The counts by digest are kept, because they contain no personal data. The texts contain arguments.
        lost = self.known.forget(gone)
        without_text = [call for call, texts in self.known.rows.items() if not texts]
        for call in without_text:
            del self.known.rows[call]
        return lost


def interpolated(counts: Mapping[str, float], shorter: Mapping[str, float]) -> dict[str, float]:
    """Return the shares of the successors of a context, backed off to those of the shorter context (Witten-Bell)."""
    total, kinds = sum(counts.values()), float(len(counts))
    shares = {}
    for item in {*shorter, *counts}:
        shares[item] = (counts.get(item, 0.0) + kinds * shorter.get(item, 0.0)) / (total + kinds)
    return shares


def call_key(tool: str, args: str) -> str:
    """Return the digest of a call, with its arguments as `canon_args` writes them."""
    return digest("followed", tool, args)


def followed(state: RunState, turn: Turn, thread: str, user: str | None) -> list[Event]:
    """Return the event that records the model's turn after the calls before it."""
    # A call of the memory is not evidence about the model.
    if turn.chosen_by != "model":
        return []
    contexts = contexts_of(state)
    if not turn.steps:
        return [CallFollowed(contexts, call_key(WORDS, ""), "", thread, user)]
    if len(turn.steps) > 1:
        together = parallel([step.tool for step in turn.steps])
        return [CallFollowed(contexts, call_key(together, ""), "", thread, user)]
    [step] = turn.steps
    text = json.dumps([step.tool, step.args], sort_keys=True, default=str)
    # A long call (a letter, a program) is counted by its digest, and never proposed as a whole.
    kept = text if len(text) <= CallContexts.most_characters else ""
    return [CallFollowed(contexts, call_key(step.tool, canon_args(step.args)), kept, thread, user)]


def contexts_of(state: RunState) -> list[str]:
    """Return the keys of a run's contexts, the least specific first.

    One to three latest calls with their outcome, and the request with all calls since.
    """
    orders = (1, 2, 3)  # numbers of the latest calls in a context
    calls = _parts_of(state.steps[-orders[-1] :])
    spoken = int(state.symbols[-1] == WORDS)
    keys = []
    for order in orders:
        if order <= len(calls):
            keys.append(digest("calls", spoken, *chain.from_iterable(calls[-order:])))
        elif order == len(calls) + 1:
            # The run's first calls are a context of their own: START distinguishes them from the same calls later on.
            keys.append(digest("calls", spoken, START, *chain.from_iterable(calls)))
    # The most specific context: an equal request with equal calls since. Its words are kept as a digest.
    if state.user.raw:
        since = _parts_of(state.since_user)
        keys.append(digest("request", state.user.raw, *chain.from_iterable(since)))
    return keys


def _parts_of(steps: Sequence[ExecutedCall]) -> list[tuple[str, str, str]]:
    """Return tool, arguments and outcome of each call."""
    return [(step.tool, canon_args(step.args), step.status) for step in steps]
