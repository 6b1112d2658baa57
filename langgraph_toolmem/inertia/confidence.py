"""The confidence of a call, and the number of calls that may be wrong: the estimator and the budget of misses.

The estimator is one ridge logistic regression. It has the columns of `COLUMNS`, is fitted by Newton's method to the
latest candidates with a known outcome, and is regularised towards `PRIOR_WEIGHTS`, fitted to recorded runs of other
agents: without evidence they alone decide.

The budget is a bucket of misses that fills with the model's turns. Each kind of call (reading, changing) has a bucket
with room for CAPACITY misses. INFLOW of the allowed misses per turn flow in; one miss takes out one, and an empty
bucket stops all calls. So *any* window of n turns has less than CAPACITY + 1 + INFLOW n/100 times the allowed misses
(6 in 300 turns at one per 100), whatever their order (the bound of a leaky bucket needs no assumption), and old misses
are forgiven. Together the two kinds stay within the larger bound.

A shortcut that acts never learns what the model would have done. So its expected misses, by its own confidence, are
taken out of the bucket. An audited miss is harmless but costs one as well.

*Audits* measure how often a call is wrong: calls that the memory would have made, drawn at random and compared with the
model. They are a fair sample of the calls made, because they follow the same calls of the memory. Predictions in shadow
mode are not a fair sample, because only the model acts there. Calls that the model corrected right after count as wrong
audits, so the reported rate is too low rather than too high.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

from langgraph_toolmem.base.intervals import interval, lower_limit
from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.cases import Neighbour
from langgraph_toolmem.graph.events import Event, PlainRecord, plain_of, records_of
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.graph.tool_graph import CountTable, Handler, Table, ToolGraph
from langgraph_toolmem.inertia.decision import Option, Refusal
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.runs.values import canon

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from langgraph_toolmem.inertia.calibrated import Candidate, Situation


# --- the estimator ---


# Right and wrong look-ups per 100 turns in the shop, of 8 APIs, and in the airline (recordings as in
# `inertia.calibrated`) are 8.2 / .37, 4.1 / .16 and 4.0 / .21. Next to each column: the same without it. The record of
# the tool right after the event before it pays in the office only: without this column the right look-ups at one wrong
# call per 100 turns fall from 1.9 to 1.3.
COLUMNS: Final = (
    "share of the tool, log-odds",  # 8.5 / .47, 3.8 / .16, 4.8 / .21
    "record of the arguments' sources, log-odds",  # 8.5 / .63, 4.1 / .16, 3.6 / .42
    "vote of the nearest requests for the whole call, log-odds",  # 7.7 / .42, 2.7 / .16, 3.4 / 0
    "share of the whole call among those that followed the latest calls, log-odds",  # 8.0 / .37, 3.3 / .16, 3.6 / .21
    "best vote for another candidate",  # 8.1 / .47, 4.1 / .31, 4.8 / .21
    "record of the tool, log-odds",  # 8.3 / .37, 3.8 / .16, 4.2 / .21
    "record of the tool right after the event before it, log-odds",  # 8.3 / .37, 4.3 / .16, 4.2 / 0
    "share of the tool's requests with as many new words",  # 8.2 / .37, 3.5 / .16, 3.6 / .21
)
"""The columns; an intercept comes after them."""
# Fitted once, to six sets of recorded runs that were read cold. Fits without one of the sets are almost equal.
PRIOR_WEIGHTS: Final = (0.28, 0.19, 0.18, 0.03, -1.28, 0.19, 0.28, 0.61, -0.62)
"""The coefficients of a memory without evidence."""

Floats: TypeAlias = "npt.NDArray[np.float64]"


EXAMPLE_COLUMNS: Final = shapes.ListOf(shapes.NUMBER, (0, len(COLUMNS)))
"""The columns of a candidate; empty for one that was not weighed."""
_EXAMPLE: Final = (shapes.numbers(len(COLUMNS)), shapes.WHOLE)


@dataclass(slots=True)
class ExamplesSeen(Event):
    """Candidates were weighed, and the model's turn is known.

    Attributes:
        turn: number of the model turn.
        examples: per candidate its columns, and 1 if the model's turn equals it, else 0.
        stands_for: weight of the examples in the fit: the turn itself, and the unchecked turns that it represents.
    """

    kind = "examples_seen"
    cells: ClassVar = {"examples": shapes.ListOf(shapes.RecordOf(_EXAMPLE))}
    turn: int
    examples: list[list[Any]]
    stands_for: int = 1


@dataclass(slots=True)
class LookupNeeded(Event):
    """The model made a look-up that it did not make in the turn in which it was weighed.

    Attributes:
        turn: number of the model turn in which it was weighed.
        columns: of its example.
        checked: number of look-ups that it represents if it was held out then (`context.ContextHeldOut`), else 0.
    """

    kind = "lookup_needed"
    turn: int
    columns: list[float]
    checked: int


class Example(NamedTuple):
    """A weighed candidate whose outcome is known. The order of examples is that of their fields.

    Attributes:
        turn: number of the model turn.
        columns: of `COLUMNS`.
        hit: 1 if the model's turn equals it, else 0.
        amount: the number of candidates that it represents, itself included.
        needed: 1 if the model's turn equals it, or the model makes its calls before something changes
            (`inertia.needed`), else 0.
    """

    turn: int
    columns: list[float]
    hit: int
    amount: int
    needed: int

    def to_plain(self) -> list[Any]:
        """Return the fields in their order, as a snapshot has them."""
        return list(self)

    @classmethod
    def from_plain(cls, fields: Sequence[Any]) -> Example:
        """Return the inverse of `to_plain`."""
        return cls(*fields)


Outcome: TypeAlias = Literal["hit", "needed"]
"""The event that is estimated: the model's turn equals a candidate, or the model makes its calls before something
changes.
"""


class _Settled(NamedTuple):
    """The turn before which examples are used in a fit, and their number."""

    turn: int
    examples: int


class _Fit(NamedTuple):
    """The coefficients, and the examples that they were fitted to."""

    settled: _Settled
    weights: Floats


class Estimator(Table):
    """The latest candidates whose outcome is known, and the coefficients fitted to them.

    A fit takes the examples before the latest turn number that is a multiple of `every`: so memories with the same
    examples decide alike, for any order of their arrival, and after opening too.

    Attributes:
        examples: the oldest first.
        most_examples: limit of the latest examples in a fit.
        every: model turns between two fits; a quarter of it before the first `every` turns are over.
    """

    # A fit takes 1 to 2 ms, on the path of a model call. Fitted to the latest 500 examples, look-ups in the shop were
    # wrong .47 times per 100 turns in place of .37 (`inertia.calibrated` says on which recordings). With the prior
    # alone they were wrong .52 times, and those of 8 APIs right 2.8 times in place of 4.1.
    most_examples: ClassVar[int] = 4_000
    every: ClassVar[int] = 20

    name = "estimator"
    parts: ClassVar = {
        "examples": shapes.ListOf(shapes.RecordOf((shapes.WHOLE, *_EXAMPLE, shapes.WHOLE, shapes.WHOLE))),
    }

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.examples: list[Example] = []
        self._fitted: dict[Outcome, _Fit] = {}

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {ExamplesSeen: self._add, LookupNeeded: self._need}

    def load(self, state: dict[str, Any]) -> None:
        examples = state["examples"]
        self.examples = [Example.from_plain(fields) for fields in examples]

    def to_state(self) -> dict[str, Any]:
        return {"examples": [example.to_plain() for example in self.examples]}

    def _add(self, turn: int, examples: list[list[Any]], stands_for: int) -> None:
        for columns, hit in examples:
            insort(self.examples, Example(turn, columns, hit, max(1, stands_for), hit))
        del self.examples[: max(0, self._settled().examples - self.most_examples)]

    def _settled(self) -> _Settled:
        """Return the turn before which examples are used in a fit, and their number."""
        latest = self.examples[-1].turn if self.examples else 0
        every = self.every
        # A new memory is a few turns old: with the first fit after 20 turns, it would not learn from its first runs.
        if latest < every:
            every //= 4
        until = latest - latest % every
        return _Settled(until, bisect_left(self.examples, (until,)))

    def _need(self, turn: int, columns: list[float], checked: int) -> None:
        """Note that the model made a look-up after the turn in which it was weighed."""
        del checked
        first = bisect_left(self.examples, (turn, columns))
        for position in range(first, len(self.examples)):
            example = self.examples[position]
            if (example.turn, example.columns) != (turn, columns):
                return
            self.examples[position] = example._replace(needed=1)
            # A fit takes 1 to 2 ms, and uses only the settled examples.
            if position < self._settled().examples:
                self._fitted.pop("needed", None)

    def weights(self, outcome: Outcome) -> Floats:
        """Return the (columns + 1,) coefficients, the intercept last."""
        import numpy as np

        settled = self._settled()
        fitted = self._fitted.get(outcome)
        if fitted is not None and fitted.settled == settled:
            return fitted.weights
        known = self.examples[: settled.examples]
        if known:
            columns = np.array([example.columns for example in known], dtype=np.float64)
            hits = np.array([getattr(example, outcome) for example in known], dtype=np.float64)
            amounts = np.array([example.amount for example in known], dtype=np.float64)
            weights = fit(columns, hits, amounts)
        else:
            weights = np.array(PRIOR_WEIGHTS)
        self._fitted[outcome] = _Fit(settled, weights)
        return weights

    def probabilities(self, columns: Floats, outcome: Outcome = "hit") -> Floats:
        """Return the (candidates,) probabilities of (candidates, columns), at most 0.999."""
        import numpy as np

        most = 0.999
        weights = self.weights(outcome)
        return np.minimum(_sigmoid(columns @ weights[:-1] + weights[-1]), most)


def fit(columns: Floats, hits: Floats, amounts: Floats) -> Floats:
    """Return the (columns + 1,) coefficients that maximise likelihood - ridge/2 |w - PRIOR_WEIGHTS|², intercept last.

    Each example is weighted by its entry in `amounts`.
    """
    import numpy as np

    ridge = 0.5
    x, prior = np.column_stack((columns, np.ones(len(columns)))), np.array(PRIOR_WEIGHTS)

    def loss(w: Floats) -> float:
        odds = x @ w
        misfit = (amounts * np.logaddexp(0, odds)).sum() - (amounts * hits) @ odds
        return float(misfit + ridge / 2 * ((w - prior) ** 2).sum())

    weights, least = prior, loss(prior)
    newton_steps = 12  # a bound: if columns separate hits and misses completely, the iteration would not end
    for _ in range(newton_steps):
        p = _sigmoid(x @ weights)
        gradient = x.T @ (amounts * (hits - p)) - ridge * (weights - prior)
        curvature = (x * (amounts * p * (1 - p))[:, None]).T @ x + ridge * np.eye(x.shape[1])
        step = np.linalg.solve(curvature, gradient)
        now = loss(weights + step)
        # A whole Newton step may overshoot where probabilities are near 0 or 1.
        while now > least and np.abs(step).max() > 1e-6:
            step = step / 2
            now = loss(weights + step)
        if least - now < 1e-3:
            break
        weights, least = weights + step, now
    return weights


def _sigmoid(odds: Floats) -> Floats:
    import numpy as np

    # Beyond 30 the exponential is negligible, and far beyond it overflows.
    return np.asarray(1 / (1 + np.exp(-np.clip(odds, -30, 30))), dtype=np.float64)


class RecordKeys(NamedTuple):
    """The keys of a candidate's two records: of its tool, and of its tool right after the event before it."""

    of_tool: str
    of_tool_here: str


def record_keys(candidate: Candidate, state: RunState) -> RecordKeys:
    """Return the keys of a candidate's records."""
    # The record is kept by levels: how often a backing of this strength was right, for this tool.
    product = candidate.p_tool * candidate.p_args
    kind = "=" * candidate.whole + ">" * bool(candidate.each)
    level = bisect_right((0.1, 0.3, 0.5, 0.7, 0.9), product)
    backing = f"{level}{candidate.nearest_agrees}"
    after = str(bisect_right((0.5, 0.8), product))
    return RecordKeys(
        of_tool=f"{kind}D{candidate.tool}\x1f{backing}",
        of_tool_here=f"{kind}E{state.symbols[-1]}\x1f{candidate.tool}\x1f{after}",
    )


def columns_of(
    weighed: Sequence[Candidate],
    keys: Sequence[RecordKeys],
    shares: Sequence[float],
    neighbours: Sequence[Neighbour],
    records: CountTable,
) -> Floats:
    """Return the (candidates, columns) of `COLUMNS`, given per candidate the `keys` of its records.

    The neighbours vote for a candidate if their own call is the same in this run's terms.
    """
    import numpy as np

    votes = _votes(weighed, neighbours)
    rows = []
    for position, candidate in enumerate(weighed):
        other_votes = votes[:position] + votes[position + 1 :]
        rows.append(
            (
                _log_odds(candidate.p_tool),
                _log_odds(candidate.p_args),
                _log_odds(votes[position]),
                _log_odds(candidate.here.of_calls.get(candidate.key, 0.0)),
                max(other_votes, default=0.0),
                _record(records, keys[position].of_tool),
                _record(records, keys[position].of_tool_here),
                shares[position],
            )
        )
    return np.array(rows, dtype=np.float64)


def _record(records: CountTable, key: str) -> float:
    """Return the log-odds of a record, which begins with one hit and one miss."""
    hits, misses = records.row(key).get("", (0.0, 0.0))
    return _log_odds((hits + 1) / (hits + misses + 2))


def _log_odds(p: float) -> float:
    # A share of 0 or 1 from few counts is not certain, and its log-odds would be infinite.
    p = min(max(p, 0.005), 0.995)
    return math.log(p / (1 - p))


def _votes(weighed: Sequence[Candidate], neighbours: Sequence[Neighbour]) -> list[float]:
    """Return the share of the nearest requests, by squared similarity, that continued with exactly this call."""
    alone = 0.05  # weight of the doubt that all past requests differ from this one
    weights = [neighbour.similarity**2 for neighbour in neighbours]
    total = sum(weights) + alone
    carried = _CarriedValues(neighbours)
    votes = []
    for candidate in weighed:
        agreeing = []
        for position, neighbour in enumerate(neighbours):
            if neighbour.tool == candidate.following and carried.agree(position, candidate):
                agreeing.append(weights[position])
        votes.append(sum(agreeing) / total)
    return votes


class _CarriedValues:
    """The values of past calls, translated to this run, as texts: each neighbour is read once for all candidates."""

    def __init__(self, neighbours: Sequence[Neighbour]) -> None:
        self._neighbours = neighbours
        self._texts: dict[int, dict[str, str]] = {}

    def agree(self, position: int, candidate: Candidate) -> bool:
        """Return True if a neighbour's call has the values of a candidate, or takes them from the same sources."""
        # An answer in words has no values, and those of several calls are the elements of one list.
        if candidate.following is None or candidate.each:
            return True
        texts = self._texts_of(position)
        if candidate.given.keys() != texts.keys():
            return False
        sources = self._neighbours[position].sources
        # The same place with another value is the same call for this run: another customer, the same look-up.
        for name, filled in candidate.given.items():
            if filled.source not in sources.get(name, ()) and texts[name] != canon(filled.value):
                return False
        return True

    def _texts_of(self, position: int) -> dict[str, str]:
        texts = self._texts.get(position)
        if texts is None:
            carried = self._neighbours[position].carried
            texts = self._texts[position] = {name: canon(value) for name, value in carried.items()}
        return texts


# --- the budget of misses ---


# With these, any 300 turns have at most six wrong calls at one per 100, in any order. With room for one miss, look-ups
# are right 7.6 times per 100 turns in place of 8.2 (shop), and 3.6 in place of 4.0 (airline).
CAPACITY: Final = 3.0
"""Misses that a full bucket allows: as many as 300 turns at one per 100."""
FIRST: Final = 1.0
"""Misses in the bucket before the first turn."""
INFLOW: Final = 0.9
"""Share of the allowed misses that flows in; the rest was in the bucket before the first turn."""
BLOCK: Final = 10
"""Model turns that are counted together."""
SUREST: Final = 0.98
"""Confidence asked for when the bucket is nearly empty."""

READS: Final = "reads"
WRITES: Final = "writes"

SHADOWED, AUDITED, CORRECTED = 1, 2, 3
"""Kinds of checks: of a call that would have been made, in shadow mode or drawn at random while the memory acts; and of
a call that the memory made and the model corrected right after (`inertia.corrections`).
"""


@dataclass(slots=True)
class Checked(Event):
    """A call that would have been made was compared with the model's act.

    Attributes:
        turn: number of the model turn.
        changes: 1 if it may change something, else 0.
        wrong: 1 if the model did something else, else 0.
        counts: AUDITED, SHADOWED or CORRECTED.
    """

    kind = "shortcut_checked"
    turn: int
    changes: int
    wrong: int
    counts: int


@dataclass(slots=True)
class Acted(Event):
    """A call was made without the model.

    Attributes:
        turn: number of the model turn.
        changes: 1 if it may change something, else 0.
        risk: how probable it is that the model would have done something else.
        failed: share of a miss for a call that failed, which is reported later than the risk. Negative if the model
            repeated the call and it failed again.
    """

    kind = "shortcut_acted"
    turn: int
    changes: int
    risk: float
    failed: float = 0


@dataclass(slots=True)
class BlockCosts(PlainRecord):
    """Misses of one kind of call in one block of turns.

    Attributes:
        wrong: misses seen.
        expected: misses expected of the calls made.
        failed: calls made that failed.
    """

    wrong: float = 0.0
    expected: float = 0.0
    failed: float = 0.0


@dataclass(slots=True)
class CheckCounts(PlainRecord):
    """The checks of one kind of call.

    Attributes:
        audits, right: audits, and those that were right.
        shadowed, shadowed_right: checks in shadow mode, and those that were right.
        corrected: calls that the model corrected.
    """

    audits: float = 0
    right: float = 0
    shadowed: float = 0
    shadowed_right: float = 0
    corrected: float = 0

    def plus(self, other: CheckCounts) -> CheckCounts:
        """Return the counts of both."""
        return CheckCounts(
            self.audits + other.audits,
            self.right + other.right,
            self.shadowed + other.shadowed,
            self.shadowed_right + other.shadowed_right,
            self.corrected + other.corrected,
        )


@dataclass(frozen=True, slots=True)
class FoldedBucket:
    """The bucket at the latest block with a cost.

    Attributes:
        room: misses left in it.
        at: first turn of that block.
    """

    room: float
    at: int


class Budget(Table):
    """Misses by blocks of turns, and the results of checks.

    Attributes:
        blocks: kind of call -> block of turns -> its misses.
        record: kind of call -> its checks.
        most_blocks: limit of kept blocks of each kind, the latest.
        in_flight: model turns that may run at the same time without counting as unreported.
    """

    name = "budget"
    parts: ClassVar = {
        "blocks": shapes.RowsOf(shapes.RowsOf(shapes.numbers(3), shapes.DIGITS), needs=frozenset({READS, WRITES})),
        "record": shapes.RowsOf(shapes.numbers(5), needs=frozenset({READS, WRITES})),
    }
    most_blocks: ClassVar[int] = 512
    in_flight: ClassVar[int] = 16

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.blocks: dict[str, dict[str, BlockCosts]] = {READS: {}, WRITES: {}}
        self.record = {READS: CheckCounts(), WRITES: CheckCounts()}
        self._folded: dict[tuple[tuple[str, ...], float], FoldedBucket] = {}  # until a cell changes

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {Checked: self._check, Acted: self._act}

    def to_state(self) -> dict[str, Any]:
        blocks = {kind: plain_of(costs) for kind, costs in self.blocks.items()}
        return {"blocks": blocks, "record": plain_of(self.record)}

    def load(self, state: dict[str, Any]) -> None:
        blocks = {kind: records_of(BlockCosts, costs) for kind, costs in state["blocks"].items()}
        self.record = records_of(CheckCounts, state["record"])
        self.blocks = blocks
        self._folded.clear()

    def _costs(self, turn: int, changes: int) -> BlockCosts:
        # Each cost changes a block, and later blocks were folded with it.
        self._folded.clear()
        blocks = self.blocks[WRITES if changes else READS]
        block = str(turn // BLOCK)
        costs = blocks.get(block)
        if costs is None:
            costs = blocks[block] = BlockCosts()
            # At one miss per 100 turns 46 misses flow into the bucket meanwhile: older misses are forgiven.
            if len(blocks) > self.most_blocks:
                del blocks[min(blocks, key=int)]
        return costs

    def _check(self, turn: int, changes: int, wrong: int, counts: int) -> None:
        self._costs(turn, changes).wrong += wrong
        # Shadow mode is not a sample of the calls made, because only the model acts there. So its checks are counted
        # separately.
        record = self.record[WRITES if changes else READS]
        if counts == CORRECTED:
            record.corrected += 1
        elif counts == AUDITED:
            record.audits += 1
            record.right += 1 - wrong
        else:
            record.shadowed += 1
            record.shadowed_right += 1 - wrong

    def _act(self, turn: int, changes: int, risk: float, failed: float) -> None:
        costs = self._costs(turn, changes)
        costs.expected += risk
        costs.failed += failed

    def room(self, policy: InertiaPolicy, *, changes: bool) -> float:
        """Return how many misses are left for a call: at 0 calls are not made. `inf` without a budget."""
        allowed = policy.bound_of(changes).max_wrong_per_100
        if allowed is None:
            return math.inf
        room = self._left((WRITES if changes else READS,), allowed)
        # With only a bucket for each kind, both together could have twice the stated misses.
        reads, writes = policy.reads.max_wrong_per_100, policy.writes.max_wrong_per_100
        if reads is None or writes is None:
            return room
        return min(room, self._left((READS, WRITES), max(reads, writes)))

    def _left(self, kinds: tuple[str, ...], allowed: float) -> float:
        """Return the content of the bucket now, folded over the blocks."""
        flow = INFLOW * allowed / 100
        if (kinds, allowed) not in self._folded:
            self._folded[kinds, allowed] = self._fold(kinds, FIRST if allowed else 0.0, flow)
        bucket = self._folded[kinds, allowed]
        # A checked turn without a reported end was answered with text: all but the latest count as misses. A host that
        # answers many users at once has running turns, which are not misses yet.
        unreported = max(0.0, self.graph.counters.get("would_act_open", 0) - self.in_flight)
        return min(CAPACITY, bucket.room + (self.graph.turns - bucket.at) * flow) - unreported

    def _fold(self, kinds: tuple[str, ...], room: float, flow: float) -> FoldedBucket:
        """Return the bucket at the latest block with a cost."""
        costs: dict[int, float] = {}
        for kind in kinds:
            for block, cost in self.blocks[kind].items():
                nth = int(block)
                costs[nth] = costs.get(nth, 0.0) + cost.wrong + cost.failed + cost.expected
        # A decision reads this at each model turn, so it is kept until a block changes.
        at = 0
        for nth, total in sorted(costs.items()):
            room = min(CAPACITY, room + (nth * BLOCK - at) * flow) - total
            at = nth * BLOCK
        return FoldedBucket(room, at)

    def bar(self, policy: InertiaPolicy, *, changes: bool) -> float:
        """Return the confidence asked for now: `min_precision` with a full bucket, up to SUREST with an empty one."""
        # The last of the bucket is reserved for the most confident calls. Without the rise, calls just above the bound
        # would use it up, and then even certain calls would wait for the inflow. Wrong look-ups rose from .37 to .47
        # per 100 turns in the shop, and from .21 to .42 in the airline (recordings as in `inertia.calibrated`).
        least, room = policy.bound_of(changes).min_precision, self.room(policy, changes=changes)
        if math.isinf(room):
            return least
        used = min(1.0, max(0.0, (CAPACITY - room) / CAPACITY))
        return least + max(0.0, SUREST - least) * used

    def refuse(self, candidate: Option, situation: Situation) -> Refusal | None:
        """Hold a proposal back if the budget is used up, and if the model's answer is to check it."""
        policy = situation.policy
        # Before shadow mode and audits: only a call that would be made may count as a check of calls made.
        used_up = self.used_up(policy, candidate.probability, changes=candidate.changes)
        if used_up is not None:
            return used_up
        if policy.shadow:
            return Refusal("shadow", "shadow mode: the model is asked and the answer compared")
        if situation.draw < policy.audit_rate:
            return Refusal("audit", "audit: the model is asked and the answer compared")
        return None

    def used_up(self, policy: InertiaPolicy, p: float, *, changes: bool) -> Refusal | None:
        """Return why the budget has no room for a call that the model would make with probability `p`."""
        bound = policy.bound_of(changes)
        if self.room(policy, changes=changes) <= 0:
            allowed, seen = f"{bound.max_wrong_per_100:g} wrong call(s) per 100 model turns", self.graph.turns
            return Refusal("budget", f"the budget of {allowed} has no room yet ({seen} turns seen)")
        bar = self.bar(policy, changes=changes)
        if bar > bound.min_precision and p < bar:  # the paper's policy has no threshold until the budget raises one
            text = f"some of the budget of wrong calls is used up, and confidence {p:.2f} is below {bar:.2f}"
            return Refusal("budget", text)
        return None

    # --- reported ---

    def figures(self, policy: InertiaPolicy) -> dict[str, Any]:
        """Return the outcome of the checks, and whether the bucket has room."""
        total = CheckCounts()
        by_kind = {}
        for kind, counts in self.record.items():
            total = total.plus(counts)
            checks = counts.audits + counts.shadowed + counts.corrected
            by_kind[kind] = _checked(checks, counts.right + counts.shadowed_right)
        return {
            "audits": _checked(total.audits + total.corrected, total.right),
            "corrected": int(total.corrected),
            "shadow_checks": _checked(total.shadowed, total.shadowed_right),
            "checks_by_kind": by_kind,
            "budget_open": self.room(policy, changes=False) > 0,
        }


def _checked(checks: float, right: float) -> dict[str, Any]:
    """Return the number of checks and of right checks, with the exact 95 % interval of the share of right calls.

    `at_least` is the one-sided limit: the share is higher with 95 % confidence.
    """
    of, hits = int(checks), int(right)
    low, high = interval(hits, of)
    return {"checks": of, "right": hits, "low": low, "high": high, "at_least": lower_limit(hits, of)}
