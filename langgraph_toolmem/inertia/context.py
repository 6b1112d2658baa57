"""Pre-fetched context: likely look-ups are executed before the model is asked, and it goes on from their results.

The request carries each look-up as an exchange: a call and its result, behind the last message (``exchange``). Here:
the settings, the choice of the next look-up, and the record of how often look-ups were in vain.

A look-up of this kind teaches nothing by itself: the model did not choose it. A share of the look-ups is held out: the
model is asked without them, and its answer is compared. Together with the calls that the model makes again or with
other arguments they say how many look-ups are in vain, and the budget `max_in_vain` bounds those.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from langchain_core.messages import AIMessage

from langgraph_toolmem.base.checks import expect, is_count, is_number, is_share, names_given
from langgraph_toolmem.base.text import digest
from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.events import Event, Forgotten, Record
from langgraph_toolmem.graph.state import WORDS
from langgraph_toolmem.graph.tool_graph import Handler, Table, ToolGraph
from langgraph_toolmem.inertia.decision import Decision, Option, calls_text
from langgraph_toolmem.runs.run import Turn
from langgraph_toolmem.runs.values import canon_args

HARD: Final = frozenset(
    {
        *("invalid_arguments", "repeat", "unknown_tool", "excluded", "destructive"),
        *("steers_the_run", "not_named", "stopped", "source_withdrawn", "picture", "unfamiliar"),
    }
)
"""Reasons against a call that hold however likely it is. On the desks, 21 of 46 look-ups that were `unfamiliar` were
wrong: without them 37.2 % in place of 36.5 % of the model calls are saved, with 2.2 in place of 3.1 extra look-ups per
100 turns."""
FEW: Final = 1.0
"""While n look-ups were made, FEW / (FEW + n) of them are held out, and never less than the stated share."""
SUREST: Final = 0.98
"""Probability that look-ups need when the budget is nearly used up."""
FREE: Final = 0.8
"""Share of the budget up to which `min_probability` alone decides; from there on the bar rises. With a bar that rises
from the first look-up in vain, 150 runs of the shop saved 7.5 calls per 100 turns, with .6 of 4 in vain; without a
budget 10.5, with 3.6 in vain."""
WINDOW: Final = 300
"""Model turns over which the budget counts."""
FIRST: Final = 2.0
"""Look-ups in vain that are allowed beyond the budget in each window: a new memory begins with them."""
BLOCK: Final = 10
"""Model turns that are counted together."""
MAX_BLOCKS: Final = 512
MAX_PENDING: Final = 1_024
PRIOR_CHECKS: Final = 10.0
"""Held-out look-ups that the probabilities of the look-ups stand for, in the estimate of what was in vain."""


@dataclass(frozen=True)
class PrefetchedContext:
    """Settings of look-ups that are made before the model is asked.

    Only tools that are declared to read are looked up, and only those that take nothing from the host, as for
    `Prefetch`.

    Attributes:
        tools: nothing but these tools; they may be looked up although something of the host's wraps tool calls or
            rewrites messages. None: all that qualify, where nothing does.
        min_probability: of all look-ups of a request together, by the record. The more of the budget is used, the more
            probable they must be.
        max_in_vain: the budget: look-ups per 100 model turns that the model does not make by itself.
        max_steps: look-ups one after the other before one request.
        max_wait: seconds that the look-ups of one request may take together.
        max_characters: of a result; a longer one is not used.
        held_out: share of the look-ups that are predicted and not made, to keep the record honest. More are held out
            at first; with 0 none ever are.
        as_data: True: the request has the results as quoted data in place of an exchange, also for models that are
            known to refuse turns they did not make. None: only after the provider has refused an exchange. False:
            never; then the model is asked without look-ups.

    Raises:
        ConfigurationError: a value cannot be right; the message names the field.
    """

    tools: frozenset[str] | None = None
    min_probability: float = 0.5
    max_in_vain: float = 4.0
    max_steps: int = 4
    max_wait: float = 5.0
    max_characters: int = 16_000
    held_out: float = 0.05
    as_data: bool | None = None

    def __post_init__(self) -> None:
        """Checks types and ranges."""
        given: Any = self.tools
        if given is not None:
            object.__setattr__(self, "tools", frozenset(names_given("PrefetchedContext.tools", given)))
        expect(self, "min_probability", "a share from 0 to 1", is_share)
        expect(self, "max_in_vain", "a number from 0 to 100", lambda v: is_number(v) and 0 <= v <= 100)
        expect(self, "max_steps", "a whole number from 1", lambda v: is_count(v, 1))
        expect(self, "max_wait", "a number of seconds above 0", lambda v: is_number(v) and v > 0)
        expect(self, "max_characters", "a whole number from 1", lambda v: is_count(v, 1))
        expect(self, "held_out", "a share from 0 to 1", is_share)
        expect(self, "as_data", "True, False or None", lambda v: v is None or isinstance(v, bool))


# --- the choice of the next look-up ---


def next_lookup(decision: Decision, may: Callable[[str, Mapping[str, Any]], bool]) -> Option | None:
    """Return the likeliest of the predicted turns that consists of look-ups which may be made; None if there is none.

    Args:
        decision: about the model turn.
        may: return True if this call of a tool may be made.
    """
    for option in decision.predicted:
        if option.tool == WORDS or option.changes or option.stale or not option.calls:
            continue
        if option.refused is not None and option.refused.code in HARD:
            continue
        if all(may(option.tool, args) for args in option.calls):
            return option
    return None


def used_steps(steps: Sequence[Sequence[tuple[str, str]]], answer: AIMessage) -> int:
    """Return how many of the looked-up steps stay in the history: those before the last ones that were in vain.

    A step was in vain if the model, having read its results, makes one of its calls again, or calls its tool with
    other arguments. A step before one that stays is kept too: the model has read its results.

    Args:
        steps: per step its calls, each as the tool and `canon_args`.
        answer: of the model.
    """
    asked = {(call["name"], canon_args(call["args"])) for call in answer.tool_calls}
    tools = {tool for tool, _ in asked}
    kept = len(steps)
    while kept and any(tool in tools for tool, _ in steps[kept - 1]):
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
        vain: how many of them the model made again or with other arguments.
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
        call: digest of the look-up, as `call_digest` writes it.
        stands_for: number of look-ups that it stands for, itself and those that were made.
        user: digest of the user, if known.
    """

    kind = "context_held_out"
    turn: str
    call: str
    stands_for: int
    user: str | None


@dataclass(slots=True)
class ContextShown(Event):
    """The model answered at a turn whose predicted look-up it had read: the prediction is neither right nor wrong."""

    kind = "context_shown"
    turn: str
    user: str | None


@dataclass(slots=True)
class ContextChecked(Event):
    """The model's answer to a request whose look-up was held out; `right` is 1 if it made exactly that look-up."""

    kind = "context_checked"
    turn: str
    right: int


@dataclass(slots=True)
class ContextSaved(Event):
    """A look-up that was made before the model call is in the history in place of a call of the model's."""

    kind = "context_saved"
    turn: int


_MADE, _RISK, _VAIN = range(3)


class ContextRecord(Table):
    """Look-ups made before model calls, and how held-out ones turned out.

    Attributes:
        blocks: block of turns -> [made, in vain by their probability, seen to be in vain]; the latest MAX_BLOCKS.
        pending: key of a turn -> [digest of the look-up that was held out, number of look-ups that it stands for,
            user]; "" and 0 where the model read the look-up. MAX_PENDING of them.
        checks: [held-out look-ups whose turn is known, those that the model made, model turns saved].
    """

    name = "context"
    parts: ClassVar = {
        "blocks": shapes.RowsOf(shapes.numbers(3), shapes.DIGITS),
        "pending": shapes.RowsOf(shapes.RecordOf((shapes.TEXT, shapes.WHOLE, shapes.OrNone(shapes.TEXT)))),
        "checks": shapes.numbers(3),
    }

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.blocks: dict[str, list[float]] = {}
        self.pending: dict[str, list[Any]] = {}
        self.checks: list[float] = [0, 0, 0]

    def handlers(self) -> Mapping[type[Event], Handler]:
        """See `Table`."""
        return {
            ContextMade: self._made,
            ContextHeldOut: self._hold_out,
            ContextShown: self._show,
            ContextChecked: self._check,
            ContextSaved: self._save,
        }

    def _made(self, turn: int, made: int, risk: float, vain: int) -> None:
        block = str(turn // BLOCK)
        cell = self.blocks.setdefault(block, [0.0] * 3)
        cell[_MADE] += made
        cell[_RISK] += risk
        cell[_VAIN] += vain
        if len(self.blocks) > MAX_BLOCKS:
            del self.blocks[min(self.blocks, key=int)]

    def _show(self, turn: str, user: str | None) -> None:
        self._hold_out(turn, "", 0, user)

    def _hold_out(self, turn: str, call: str, stands_for: int, user: str | None) -> None:
        self.pending[turn] = [call, stands_for, user]
        if len(self.pending) > MAX_PENDING:
            del self.pending[next(iter(self.pending))]

    def _check(self, turn: str, right: int) -> None:
        self.pending.pop(turn, None)
        self.checks[0] += 1
        self.checks[1] += right

    def _save(self, turn: int) -> None:
        del turn
        self.checks[2] += 1

    def forget(self, gone: Forgotten) -> int:
        """See `Table`."""
        of_user = [turn for turn, (*_, user) in self.pending.items() if gone.user and user == gone.user]
        for turn in of_user:
            del self.pending[turn]
        return len(of_user)

    # --- read ---

    @property
    def made(self) -> float:
        """Return the number of look-ups made in the blocks that are kept."""
        return sum(cell[_MADE] for cell in self.blocks.values())

    def least_probability(self, settings: PrefetchedContext) -> float:
        """Return the probability from which look-ups are made now.

        It is `min_probability` until FREE of the budget is used, and grows with the rest; above 1 nothing is made. So
        the likelier look-ups go on where the less likely ones used the budget up.
        """
        turns = self.graph.turns
        allowed = settings.max_in_vain * min(turns, WINDOW) / 100 + FIRST
        used = self.in_vain(turns) / allowed
        if used >= 1:
            return math.inf
        beyond = max(0.0, used - FREE) / (1 - FREE)
        return settings.min_probability + max(0.0, SUREST - settings.min_probability) * beyond

    def in_vain(self, turns: int) -> float:
        """Return how many look-ups of the last WINDOW turns were in vain, as far as that can be known.

        It is the share of misses among the held-out look-ups, which begins with what the probabilities say, and at
        least what the model made again.
        """
        first = (turns - WINDOW) // BLOCK
        made = risk = vain = 0.0
        for block, cell in self.blocks.items():
            if int(block) > first:
                made, risk, vain = made + cell[_MADE], risk + cell[_RISK], vain + cell[_VAIN]
        checks, right, _ = self.checks
        share = (checks - right + PRIOR_CHECKS * risk / made) / (checks + PRIOR_CHECKS) if made else 0.0
        return max(made * share, vain)

    def held_out_share(self, settings: PrefetchedContext) -> float:
        """Return the share of the look-ups that are held out now; 0 if the settings hold out none."""
        at_first = FEW / (FEW + self.made + self.checks[0])
        return max(settings.held_out, at_first) if settings.held_out else 0.0

    def stands_for(self, turn: str) -> int:
        """Return how many look-ups the prediction at a turn stands for; 0 where the model read the look-up."""
        known = self.pending.get(turn)
        return 1 if known is None else int(known[1])

    def learned(self, turn: Turn) -> Record:
        """Return the record of a turn whose end is known."""
        if turn.chosen_by == "context":
            return [ContextSaved(self.graph.turns)]
        known = self.pending.get(turn.key)
        if known is None or not known[0] or turn.chosen_by != "model":
            return []
        tools = {step.tool for step in turn.steps}
        made = call_digest(tools.pop(), [step.args for step in turn.steps]) if len(tools) == 1 else ""
        return [ContextChecked(turn.key, int(made == known[0]))]

    def figures(self) -> dict[str, Any]:
        """Return the figures for the report."""
        checks, right, saved = self.checks
        made = sum(cell[_MADE] for cell in self.blocks.values())
        again = sum(cell[_VAIN] for cell in self.blocks.values())
        return {
            "made": int(made),
            "saved": int(saved),
            "made_again": int(again),
            "in_vain_estimated": round(sum(cell[_RISK] for cell in self.blocks.values()), 1),
            "held_out": int(checks),
            "held_out_right": int(right),
        }


def call_digest(tool: str, calls: Sequence[Mapping[str, Any]]) -> str:
    """Return the identity of one turn's calls of a tool, in any order."""
    return digest("context", tool, calls_text(calls))
