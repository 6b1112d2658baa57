"""The budget of wrong shortcuts: a bucket of misses that fills with the model's turns.

Each kind of call (reading, changing) has a bucket with room for CAPACITY misses. INFLOW of the allowed misses per turn
flow in; one miss takes out one, and an empty bucket stops all calls. So *any* window of n turns has less than CAPACITY
+ 1 + INFLOW n/100 times the allowed misses (6 in 300 turns at one per 100), whatever their order (the bound of a leaky
bucket needs no assumption), and old misses are forgiven. Together the two kinds stay within the larger bound.

A shortcut that acts never learns what the model would have done. So its expected misses, by its own confidence, are
taken out of the bucket. An audited miss is harmless but costs one as well.

*Audits* measure how often a call is wrong: calls that the memory would have made, drawn at random and compared with the
model. They are a fair sample of the calls made, because they follow the same calls of the memory. Predictions in shadow
mode are not a fair sample, because only the model acts there. Calls that the model corrected right after count as wrong
audits, so the reported rate is too low rather than too high.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from langgraph_toolmem.base.intervals import interval, lower_limit
from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.events import Event, PlainRecord, plain_of, records_of
from langgraph_toolmem.graph.tool_graph import Handler, Table, ToolGraph
from langgraph_toolmem.inertia.decision import Option, Refusal
from langgraph_toolmem.inertia.policy import InertiaPolicy

if TYPE_CHECKING:
    from langgraph_toolmem.inertia.situation import Situation

# With these, any 300 turns have at most six wrong calls at one per 100, in any order.
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
        # would use it up, and then even certain calls would wait for the inflow.
        least, room = policy.bound_of(changes).min_precision, self.room(policy, changes=changes)
        if math.isinf(room):
            return least
        used = min(1.0, max(0.0, (CAPACITY - room) / CAPACITY))
        return least + max(0.0, SUREST - least) * used

    def refuse(self, best: Option, situation: Situation) -> Refusal | None:
        """Hold a proposal back if the budget is used up, and if the model's answer is to check it."""
        policy = situation.policy
        # Before shadow mode and audits: only a call that would be made may count as a check of calls made.
        used_up = self.used_up(policy, best.probability, changes=best.changes)
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
