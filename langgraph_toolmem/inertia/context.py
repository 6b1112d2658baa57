"""Pre-fetched context: likely look-ups are executed before the model is asked, and the model continues from their
results.

The request carries each look-up as an exchange: a call and its result, after the last message (``exchange``). This
module has the settings, the choice of the next look-up, and the record of look-ups in vain.

Such a look-up is not learned by itself, because the model did not choose it. A share of the look-ups is held out: the
model is asked without them, and its calls are compared. Together with the model's answers to requests with look-ups
they say how many look-ups are in vain, and the budget `max_in_vain` bounds those.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from langchain_core.messages import AIMessage

from langgraph_toolmem.base.caches import drop_oldest
from langgraph_toolmem.base.checks import (
    expect,
    is_bool,
    is_positive,
    is_positive_count,
    is_share,
    names_given,
    or_none,
)
from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.events import (
    Event,
    Forgotten,
    PlainRecord,
    Record,
    events_of,
    plain_of,
    records_of,
    rows_of,
)
from langgraph_toolmem.graph.state import WORDS
from langgraph_toolmem.graph.tool_graph import Handler, Table, ToolGraph
from langgraph_toolmem.inertia.confidence import LookupNeeded
from langgraph_toolmem.inertia.decision import Decision, Option, call_digests, digests_of_turn
from langgraph_toolmem.inertia.policy import is_rate
from langgraph_toolmem.runs.run import Turn

_HARD: Final = frozenset(
    {
        *("invalid_arguments", "repeat", "unknown_tool", "excluded", "destructive"),
        *("steers_the_run", "not_named", "stopped", "source_withdrawn", "picture", "denied"),
    }
)
"""Reasons against a call that are independent of its probability."""


@dataclass(frozen=True)
class PrefetchedContext:
    """Settings of look-ups that are made before the model is asked.

    Only tools that are declared to read are looked up, and only those that take nothing from the host, as for
    `Prefetch`.

    Attributes:
        tools: only these tools; they may be looked up even if the host's middleware wraps tool calls or rewrites
            messages. If None, all tools that qualify, unless such middleware exists.
        min_probability: of all look-ups of a request together, by the record. As the budget is used up, they must be
            more probable.
        max_in_vain: the budget: look-ups per 100 model turns that the model would not make by itself.
        max_steps: look-ups one after the other before one request.
        max_wait: seconds that the look-ups of one request may take together.
        max_characters: of a result; a longer one is not used.
        held_out: share of the look-ups that are predicted and not made, to keep the record honest. More are held out at
            first. 0 switches holding out off.
        as_data: If True, the request has the results as quoted data in place of an exchange, also for models that are
            known to refuse turns they did not make. If None, only after the provider has refused an exchange. If False,
            never: the model is then asked without look-ups.

    Raises:
        ConfigurationError: a value is invalid; the message names the field.
    """

    tools: frozenset[str] | None = None
    # At .3 the shop saves 12.5 in place of 11.8 calls per 100 turns, and 5.2 in place of 2.0 look-ups are in vain.
    min_probability: float = 0.5
    max_in_vain: float = 4.0
    # Steps after the first pay in the shop, and hardly on telecom. The probabilities are multiplied, so a fourth one is
    # rare: no recorded turn was lost for lack of a fifth.
    max_steps: int = 4
    max_wait: float = 5.0
    # Results go past middleware that moves long ones away: with deepagents the model read 240,016 characters in place
    # of 1,634.
    max_characters: int = 16_000
    # Recordings saved as much without a share and with .1; without one, nothing would show that the record is wrong.
    held_out: float = 0.05
    as_data: bool | None = None

    def __post_init__(self) -> None:
        """Checks types and ranges."""
        given: Any = self.tools
        if given is not None:
            object.__setattr__(self, "tools", frozenset(names_given("PrefetchedContext.tools", given)))
        expect(self, "min_probability", "a share from 0 to 1", is_share)
        expect(self, "max_in_vain", "a number from 0 to 100", is_rate)
        expect(self, "max_steps", "a whole number from 1", is_positive_count)
        expect(self, "max_wait", "a number of seconds above 0", is_positive)
        expect(self, "max_characters", "a whole number from 1", is_positive_count)
        expect(self, "held_out", "a share from 0 to 1", is_share)
        expect(self, "as_data", "True, False or None", or_none(is_bool))


# --- the choice of the next look-up ---


def next_lookup(options: Sequence[Option], may: Callable[[str, Mapping[str, Any]], bool]) -> Option | None:
    """Return the most likely predicted turn that consists of permitted look-ups, or None.

    Args:
        options: the predicted turns, most likely first (`Inertia.lookups`).
        may: returns True if this call of a tool may be made.
    """
    # Turns that call several tools at once are no candidates yet: by that the airline loses 5.1 per 100 turns, and the
    # other sets .5 at most.
    # One turn at a time: a second and a third candidate, the value expected by the size of a result, and corrections
    # for each tool brought no gain that was worth their code.
    for option in options:
        # After a change or a handoff the result may differ when the model asks: such a call stays with the shortcut.
        if option.tool == WORDS or option.changes or option.stale or not option.calls:
            continue
        if is_forbidden(option):
            continue
        if all(may(option.tool, args) for args in option.calls):
            return option
    return None


def is_forbidden(option: Option) -> bool:
    """Return True if no look-up is made for this reason against the call.

    A low probability, too few cases or a used budget of the shortcut do not forbid it: the model reads it and decides
    itself.
    """
    # Without look-ups for unfamiliar requests telecom, airline and shop saved 7.2, 4.1 and 9.9 calls per 100 turns (.9,
    # 1.3 and 2.4 in vain), with those of at least .7 they save 7.6, 4.2 and 10.7 (.7, 1.5 and 2.2). With .5 in place of
    # .7 the desks saved 36.0 in place of 37.0 % of the calls. Means of eight and three shuffles (docs/figures.md): one
    # shuffle of 475 turns differs by 1 from the next.
    least_if_unfamiliar = 0.7
    if option.refused is None:
        return False
    if option.refused.code == "unfamiliar":
        return option.probability < least_if_unfamiliar
    return option.refused.code in _HARD


def shares_made(decisions: Sequence[Decision], own: Sequence[float], answer: AIMessage) -> list[float]:
    """Return per step of look-ups the probability that the model would have made it by itself, given its answer.

    By Bayes' rule over the number of steps that it would have made: if it would have made only the first j steps, its
    answer is likely by `decisions[j]`. Answers are compared by their tools.

    Args:
        decisions: before each step, and after the last one.
        own: the probability of each step, given those before it.
        answer: of the model, which has read all of them.
    """
    tools = {call["name"] for call in answer.tool_calls} or {WORDS}
    # Per number of steps: the probability of just these and of the answer.
    weights: list[float] = []
    reached = 1.0
    for probability, decision in zip([*own, 0.0], decisions, strict=True):
        weights.append(reached * _share_of_tools(decision, tools))
        reached *= probability
    total = sum(weights)
    return [sum(weights[step:]) / total for step in range(1, len(weights))]


def _share_of_tools(decision: Decision, tools: Collection[str]) -> float:
    """Return how likely a turn with these tools is."""
    # The candidates are not all that a model may do, so no answer is impossible.
    least, unlisted = 0.005, 0.05
    likely, others = 0.0, 1.0
    for option in decision.predicted:
        others -= option.probability
        if option.tool in tools:
            likely += option.probability
    return max(likely, unlisted * others, least)


def used_steps(steps: Sequence[Sequence[str]], answer: AIMessage) -> int:
    """Return how many of the looked-up steps stay in the history: all except the last ones that the model makes again.

    A step before one that stays is kept too: the model has read its results.

    Args:
        steps: per step the digests of its calls, as `call_digests` writes them.
        answer: of the model.
    """
    # All other steps stay, because the model has read them. A model whose look-ups were dropped changed an invoice,
    # looked it up again, read its own change, reported "done before" and left out the rest: with only those steps kept
    # whose values were visibly used, 60 changes were missing in 800 requests, and 17.4 % of the calls were saved in
    # place of 40.6 %. The use of a value says little: `find_user_id_by_name_zip` was next in .99 and used in .29.
    # A call of the same tool with other arguments says little too, because the next order of a list is one: without
    # the steps before such calls, shop and telecom saved 11.2 and 7.9 in place of 11.9 and 8.8 calls per 100 turns.
    asked: set[str] = set()
    for call in answer.tool_calls:
        asked.update(call_digests(call["name"], [call["args"]]))
    kept = len(steps)
    while kept and not asked.isdisjoint(steps[kept - 1]):
        kept -= 1
    return kept


# --- the record ---


@dataclass(slots=True)
class ContextMade(Event):
    """Look-ups were made before a model call, and the model has answered.

    Attributes:
        turn: number of the model turn.
        made: number of look-ups.
        risk: how many of them were in vain by their probability.
        vain: how many of them the model made again.
    """

    kind = "context_made"
    turn: int
    made: int
    risk: float
    vain: int


@dataclass(slots=True)
class ContextHeldOut(Event):
    """A look-up was predicted, and the model is asked without it.

    Attributes:
        turn: key of the model turn.
        calls: digests of the look-up, as `call_digests` writes them.
        stands_for: number of look-ups that it represents, itself and those that were made.
    """

    kind = "context_held_out"
    turn: str
    calls: list[str]
    stands_for: int
    user: str | None


@dataclass(slots=True)
class ContextShown(Event):
    """The model answered after it had read the predicted look-up: the prediction is neither right nor wrong."""

    kind = "context_shown"
    turn: str
    user: str | None


@dataclass(slots=True)
class ContextChecked(Event):
    """The model's answer to a request whose look-up was held out.

    Attributes:
        turn: key of the model turn.
        right: 1 if the model made that look-up, else 0.
        stands_for: number of look-ups that it represents.
    """

    kind = "context_checked"
    turn: str
    right: int
    stands_for: int


@dataclass(slots=True)
class ContextSaved(Event):
    """A look-up that was made before the model call is in the history in place of the model's own call."""

    kind = "context_saved"
    turn: int


@dataclass(slots=True)
class LookupCounts(PlainRecord):
    """The look-ups of one block of turns, or of several.

    Attributes:
        made: their number.
        risk: how many of them were in vain by their probability.
        vain: how many of them the model made again.
    """

    made: float = 0.0
    risk: float = 0.0
    vain: float = 0.0

    def add(self, made: float, risk: float, vain: float) -> None:
        """Add further look-ups."""
        self.made += made
        self.risk += risk
        self.vain += vain


@dataclass(slots=True)
class HeldOutCounts(PlainRecord):
    """Results of look-ups before the model.

    Attributes:
        checks: held-out look-ups whose turn is known.
        right: those of them that the model made.
        saved: model turns saved by look-ups that were made.
        weight, weight_right: look-ups that the checks represent, and those of the right ones.
        squares: sum of the squares of these weights.
    """

    checks: float = 0
    right: float = 0
    saved: float = 0
    weight: float = 0
    weight_right: float = 0
    squares: float = 0

    def add(self, right: int, weight: int) -> None:
        """Add a check."""
        self.checks += 1
        self.right += right
        self.weight += weight
        self.weight_right += right * weight
        self.squares += weight * weight


class ContextRecord(Table):
    """Look-ups made before model calls, and the results of held-out ones.

    Attributes:
        blocks: block of turns -> its look-ups.
        pending: key of a turn -> the look-up that was held out; it has no calls if the model read the look-up.
        checks: results of look-ups.
        block: model turns that are counted together.
        window: model turns over which the budget counts.
        first: look-ups in vain that are allowed beyond the budget in each window: a new memory begins with them.
        free: share of the budget up to which only `min_probability` decides.
        surest: probability that look-ups need when the budget is nearly used up.
        prior_checks: number of held-out look-ups that the probabilities count for, in the estimate of look-ups in vain.
        most_blocks: limit of kept blocks, the latest.
        most_pending: limit of held-out look-ups that wait for the end of their turn.
    """

    name = "context"
    parts: ClassVar = {
        "blocks": shapes.RowsOf(shapes.numbers(3), shapes.DIGITS),
        "pending": shapes.RowsOf(shapes.fields_of(ContextHeldOut, 1)),
        "checks": shapes.numbers(6),
    }
    block: ClassVar[int] = 10
    window: ClassVar[int] = 300
    # Without a first allowance the desks saved 36.0 in place of 37.0 % of the calls, with half of it 36.4 %. Telecom
    # and the airline stayed as they were: few of their look-ups are in vain, so the budget hardly decides there.
    first: ClassVar[float] = 2.0
    # With a threshold that rises from the first look-up in vain, 150 runs of the shop saved 7.5 calls per 100 turns,
    # with .6 of 4 in vain; without a budget 10.5, with 3.6 in vain. The .8 was chosen with shop, telecom and airline in
    # view.
    free: ClassVar[float] = 0.8
    surest: ClassVar[float] = 0.98
    prior_checks: ClassVar[float] = 10.0
    most_blocks: ClassVar[int] = 512
    most_pending: ClassVar[int] = 1_024

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.blocks: dict[str, LookupCounts] = {}
        self.pending: dict[str, ContextHeldOut] = {}
        self.checks = HeldOutCounts()

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {
            ContextMade: self._made,
            ContextHeldOut: self._hold_out,
            ContextShown: self._show,
            ContextChecked: self._check,
            ContextSaved: self._save,
            LookupNeeded: self._need,
        }

    def to_state(self) -> dict[str, Any]:
        return {
            "blocks": plain_of(self.blocks),
            "pending": rows_of(self.pending),
            "checks": self.checks.to_plain(),
        }

    def load(self, state: dict[str, Any]) -> None:
        blocks = records_of(LookupCounts, state["blocks"])
        pending = events_of(ContextHeldOut, state["pending"])
        self.checks = HeldOutCounts.from_plain(state["checks"])
        self.blocks, self.pending = blocks, pending

    def _made(self, turn: int, made: int, risk: float, vain: int) -> None:
        block = str(turn // self.block)
        self.blocks.setdefault(block, LookupCounts()).add(made, risk, vain)
        if len(self.blocks) > self.most_blocks:
            del self.blocks[min(self.blocks, key=int)]

    def _show(self, turn: str, user: str | None) -> None:
        self._hold_out(turn, [], 0, user)

    def _hold_out(self, turn: str, calls: list[str], stands_for: int, user: str | None) -> None:
        self.pending[turn] = ContextHeldOut(turn, calls, stands_for, user)
        drop_oldest(self.pending, self.most_pending)

    def _check(self, turn: str, right: int, stands_for: int) -> None:
        self.pending.pop(turn, None)
        self.checks.add(right, stands_for)

    def _need(self, turn: int, columns: list[float], checked: int) -> None:
        # The check counted as wrong at the end of its turn.
        del turn, columns
        self.checks.right += bool(checked)
        self.checks.weight_right += checked

    def _save(self, turn: int) -> None:
        del turn
        self.checks.saved += 1

    def forget(self, gone: Forgotten) -> int:
        if not gone.user:
            return 0
        of_user = [turn for turn, held_out in self.pending.items() if held_out.user == gone.user]
        for turn in of_user:
            del self.pending[turn]
        return len(of_user)

    # --- read ---

    def _total(self, first_block: int = 0) -> LookupCounts:
        """Return the look-ups of the kept blocks, from one block on."""
        total = LookupCounts()
        for block, counts in self.blocks.items():
            if int(block) >= first_block:
                total.add(counts.made, counts.risk, counts.vain)
        return total

    def least_probability(self, settings: PrefetchedContext) -> float:
        """Return the probability from which look-ups are made now.

        It is `min_probability` until the free part of the budget is used, and grows with the rest; above 1 look-ups
        stop. So the most likely look-ups continue after less likely ones have used the budget up.
        """
        turns = self.graph.turns
        allowed = settings.max_in_vain * min(turns, self.window) / 100 + self.first
        used = self.in_vain(turns) / allowed
        if used >= 1:
            return math.inf
        beyond = max(0.0, used - self.free) / (1 - self.free)
        return settings.min_probability + max(0.0, self.surest - settings.min_probability) * beyond

    def in_vain(self, turns: int) -> float:
        """Return an estimate of the look-ups in vain in the window.

        It comes from the share of misses among the held-out look-ups, which starts at the predicted probabilities, and
        is at least the number of look-ups that the model made again.
        """
        # Checks of all turns count, not only of the window, because 5 % of the look-ups are few. More are held out at
        # first, when more are wrong, so each counts for the look-ups that it represents. Together they are worth as
        # many as independent ones of equal weight (Kish's effective sample size).
        total = self._total((turns - self.window) // self.block + 1)
        if not total.made:
            return total.vain
        checks, share_wrong = 0.0, 0.0
        if self.checks.weight:
            checks = self.checks.weight**2 / self.checks.squares
            share_wrong = 1 - self.checks.weight_right / self.checks.weight
        wrong = checks * share_wrong + self.prior_checks * total.risk / total.made
        return max(total.made * wrong / (checks + self.prior_checks), total.vain)

    def held_out_share(self, settings: PrefetchedContext) -> float:
        """Return the share of the look-ups that are held out now; 0 if the settings switch holding out off."""
        if not settings.held_out:
            return 0.0
        # After n look-ups, 1 / (1 + n) are held out: at first this is the only check of the probabilities.
        known = self._total().made + self.checks.checks
        return max(settings.held_out, 1.0 / (1.0 + known))

    def stands_for(self, turn: str) -> int:
        """Return how many look-ups the prediction at a turn represents; 0 if the model read the look-up."""
        held_out = self.pending.get(turn)
        if held_out is None:
            return 1
        return int(held_out.stands_for)

    def learned(self, turn: Turn) -> Record:
        """Return the record of a turn whose end is known."""
        # The memory chose these calls. When windows, sources and following calls were learned from them, look-ups of an
        # estimated .87 were right in .44, and 7.6 in place of 3.6 per 100 turns were in vain. The model's answer as a
        # label (by Bayes' rule) gave telecom 8.5 and the airline 5.2 in place of 7.6 and 4.2 saved calls, and the desks
        # 3.4 in place of 2.2 needless look-ups per 100 turns.
        if turn.chosen_by == "context":
            return [ContextSaved(self.graph.turns)]
        held_out = self.pending.get(turn.key)
        if held_out is None or not held_out.calls or turn.chosen_by != "model":
            return []
        right = set(held_out.calls).issubset(digests_of_turn(turn))
        return [ContextChecked(turn.key, int(right), held_out.stands_for)]

    def figures(self) -> dict[str, Any]:
        """Return the figures for the report."""
        total = self._total()
        return {
            "made": int(total.made),
            "saved": int(self.checks.saved),
            "made_again": int(total.vain),
            "in_vain_estimated": round(total.risk, 1),
            "held_out": int(self.checks.checks),
            "held_out_right": int(self.checks.right),
        }
