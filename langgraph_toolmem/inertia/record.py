"""The record of predictions: the beginnings of turns, and the comparison of predicted calls with the model's
answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from langgraph_toolmem.base.caches import drop_oldest
from langgraph_toolmem.base.text import canonical
from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.events import Count, Event, Forgotten, PlainRecord, Record, ToolCount, events_of, rows_of
from langgraph_toolmem.graph.sources import NOTHING_SEEN, SeenDigests, from_input
from langgraph_toolmem.graph.state import SEPARATOR, START, WORDS, RunState, slot_key, windows
from langgraph_toolmem.graph.tool_graph import HIT, MISS, OPEN, TURNS_OPEN, CountTable, Handler, Table, ToolGraph
from langgraph_toolmem.inertia.confidence import AUDITED, EXAMPLE_COLUMNS, SHADOWED, Acted, Checked, ExamplesSeen
from langgraph_toolmem.inertia.corrections import SOURCED, CallMade, values_of
from langgraph_toolmem.inertia.decision import Decision, Option, call_digests, digests_of_turn
from langgraph_toolmem.inertia.novelty import RequestCompared
from langgraph_toolmem.runs.run import Turn

# With 1, the calls that are made and not checked count nowhere, and their record is too cautious: 21.6 % of the model
# calls are saved in place of 22.9 (12 desks of `benchmarks.closed_loop`).
MOST_STANDS_FOR: Final = 20
"""Limit of the calls that one audit represents, for any audit rate."""


@dataclass(slots=True)
class JudgedCall(PlainRecord):
    """A predicted call (or answer in words), kept until the model's answer checks it. Texts of arguments are not
    kept.

    Attributes:
        calls: of tool and arguments, as `call_digests` writes them; empty for an answer in words.
        rules: keys of the records that it counts in.
        confidence: the probability, 0 for an unfamiliar request.
        columns: the estimator's columns.
        changes: 1 if it may change something, else 0.
        new_words: share of new words in the request.
        values: the sources of its values (`corrections.values_of`); only for the most likely call.
    """

    cells: ClassVar = {"columns": EXAMPLE_COLUMNS, "values": shapes.RowsOf(SOURCED)}
    tool: str
    calls: list[str]
    rules: list[str]
    confidence: float = 0.0
    columns: Sequence[float] = ()
    changes: int = 0
    new_words: float | None = None
    values: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, option: Option, *, likeliest: bool) -> JudgedCall:
        """Return an option of a decision as it is kept."""
        # The shortcut would not have made the call, because of the request's words: as a case, its miss is explained.
        refused_by_words = option.refused is not None and option.refused.code in ("unfamiliar", "denied")
        return cls(
            option.tool,
            call_digests(option.tool, option.calls),
            list(option.records),
            0.0 if refused_by_words else option.probability,
            option.columns,
            int(option.changes),
            option.new_words,
            values_of(option) if likeliest else {},
        )


def judged_calls(decision: Decision) -> list[JudgedCall]:
    """Return the options of a decision that the model's answer will check, most likely first."""
    judged = []
    for position, option in enumerate(decision.options):
        if option.records:
            judged.append(JudgedCall.of(option, likeliest=position == 0))
    return judged


@dataclass(slots=True)
class PredictionOutcome:
    """The prediction before a model turn, compared with the turn.

    Attributes:
        record: the events about it.
        judged: the predicted calls that the turn checked, most likely first.
        would_act: True if the most likely of them would have been made.
        acts: True if it is made: a log is replayed, and its turn counts as a shortcut.
        stopped: the tool whose call of the memory a person stopped, or "".
    """

    record: Record = field(default_factory=list)
    judged: Sequence[JudgedCall] = ()
    would_act: bool = False
    acts: bool = False
    stopped: str = ""


# --- events and their table ---


@dataclass(slots=True)
class RulesJudged(Event):
    """A predicted call equalled the model's turn, or did not.

    Attributes:
        rules: the records that it counts in.
        hit: 1 if it did, else 0.
        amount: the number of calls that it represents.
    """

    kind = "rules_judged"
    rules: list[str]
    hit: int
    amount: int = 1


@dataclass(slots=True)
class TurnOpened(Event):
    """A model turn begins; its end may never be reported.

    Attributes:
        turn: its key.
        windows: the contexts it began in.
        judged: the predicted calls, as `JudgedCall.to_plain` writes them.
        would_act: AUDITED or SHADOWED (`inertia.confidence`) if the best of them would be made, else 0.
        seen: prompt and context, as `SeenDigests.plain` writes them.
    """

    kind = "turn_opened"
    cells: ClassVar = {
        "judged": shapes.ListOf(shapes.fields_of(JudgedCall)),
        "seen": shapes.RecordOf((shapes.RowsOf(shapes.TEXT),)),
    }
    turn: str
    windows: list[str]
    judged: list[list[Any]]
    would_act: int
    user: str | None
    seen: list[Any] = field(default_factory=NOTHING_SEEN.plain)

    def judged_calls(self) -> list[JudgedCall]:
        """Return the predicted calls, likeliest first."""
        return [JudgedCall.from_plain(fields) for fields in self.judged]


@dataclass(slots=True)
class TurnClosed(Event):
    """The end of a turn was seen, or is no longer awaited."""

    kind = "turn_closed"
    turn: str


class InertiaEvidence(Table):
    """The record of predictions by their kind, and open turns.

    Attributes:
        rules: rule -> "" -> [hits, misses].
        open_turns: turn -> its `TurnOpened`.
        closed_turns: the latest ended turns.
        most_rules: limit of kept rules.
        most_turns: limit of kept open turns, and of closed turns.
    """

    name = "inertia"
    parts: ClassVar = {
        "rules": shapes.counts(2),
        "open_turns": shapes.RowsOf(shapes.fields_of(TurnOpened, 1)),
        "closed_turns": shapes.RowsOf(shapes.NOTHING),
    }
    most_rules: ClassVar[int] = 40_000
    most_turns: ClassVar[int] = 4_096

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.rules = CountTable(self.most_rules, width=2, max_items=1)
        self.open_turns: dict[str, TurnOpened] = {}
        self.closed_turns: dict[str, None] = {}

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {RulesJudged: self._judge, TurnOpened: self._open, TurnClosed: self._close}

    def knows(self, turn: str) -> bool:
        """Return True if a turn began or ended already."""
        return turn in self.open_turns or turn in self.closed_turns

    def _judge(self, rules: list[str], hit: int, amount: int = 1) -> None:
        column = HIT if hit else MISS
        for rule in rules:
            self.rules.add(rule, "", column, amount)

    def _open(self, turn: str, *begun: Any) -> None:
        """Count a turn as "the model did something else" until its end is seen.

        A closed turn is not opened again: another worker may report the end before the beginning.
        """
        # Retries and other workers report a beginning twice. Counted twice, it would be subtracted only once.
        if self.knows(turn):
            return
        opened = TurnOpened(turn, *begun)
        self._count(opened, 1)
        self.open_turns[turn] = opened
        drop_oldest(self.open_turns, self.most_turns)

    def _close(self, turn: str) -> None:
        opened = self.open_turns.pop(turn, None)
        if opened is not None:
            self._count(opened, -1)
        self.closed_turns[turn] = None
        drop_oldest(self.closed_turns, self.most_turns)

    def _count(self, opened: TurnOpened, amount: int) -> None:
        for context in opened.windows:
            self.graph.successors.add(context, OPEN, 0, amount)
        for judged in opened.judged_calls():
            self._judge(judged.rules, 0, amount)
        self.graph.count(TURNS_OPEN, amount)
        if opened.would_act:
            self.graph.count("would_act_open", amount)

    def forget(self, gone: Forgotten) -> int:
        """Close the turns of the user whose end was never reported."""
        if not gone.user:
            return 0
        of_user = [turn for turn, opened in self.open_turns.items() if opened.user == gone.user]
        for turn in of_user:
            self._close(turn)
        return len(of_user)

    def to_state(self) -> dict[str, Any]:
        return super().to_state() | {"open_turns": rows_of(self.open_turns)}

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        self.open_turns = events_of(TurnOpened, state["open_turns"])


# --- a turn begins ---


def open_turn(
    graph: ToolGraph, state: RunState, turn: str, decision: Decision, user: str | None, *, audit: bool = False
) -> Record:
    """Return the record of a model turn that begins now; it counts even if its end is never reported.

    With `audit` the call would have been made, and the model is asked at random.
    """
    if not decision.would_act:
        would_act = 0
    else:
        would_act = AUDITED if audit else SHADOWED
    judged = [call.to_plain() for call in judged_calls(decision)]
    # The log keeps only digests of the places in prompt and context that are compared later.
    seen = _known_places(graph, state, decision).plain()
    return [TurnOpened(turn, windows(state), judged, would_act, user, seen)]


def _known_places(graph: ToolGraph, state: RunState, decision: Decision) -> SeenDigests:
    """Return the digests of the values at the places in prompt and context that are known for the weighed tools."""
    if isinstance(state.seen, SeenDigests):
        return state.seen
    known: list[str] = []
    for tool in {option.tool for option in decision.options}:
        for parameter in graph.tools.get(tool, {}).get("parameters_seen", ()):
            for source in graph.places.rows.get(slot_key(tool, parameter), ()):
                if from_input(source):
                    known.append(source)
    return state.seen.digests(known)


def begin_shortcut(decision: Decision, turn: int) -> Record:
    """Return the record of a call that is made now, in model turn number `turn`: its expected misses."""
    record: Record = []
    for option in decision.options[:1]:
        # The shortcut never learns the model's own choice, so the expected miss is charged at once.
        record.append(Acted(turn, int(option.changes), 1 - decision.confidence))
        # Only turns of the model make words familiar, although the model is asked less and less. Calls of the memory
        # must not, because that would be circular.
        if option.new_words == 0:
            record.append(RequestCompared(turn, option.tool, 0.0))
    return record


# --- a turn is known ---


def credit_judged(
    turn: Turn,
    judged: Sequence[JudgedCall],
    *,
    would_act: int,
    audit_rate: float,
    number: int,
    stands_for: int = 1,
) -> Record:
    """Return hit or miss for every candidate of model turn `number`.

    A call that a person rejected is a miss, and the person's replacement is the truth.

    Args:
        turn: the model turn.
        judged: the candidates, most likely first.
        would_act: AUDITED or SHADOWED if the best candidate would have been made, otherwise 0.
        audit_rate: of the policy.
        number: of the model turn.
        stands_for: least number of predictions that the best one represents, itself and those without a known outcome.
    """
    truth = truth_of(turn)
    record = _examples(judged, truth, number, stands_for)
    if audit_rate and would_act == AUDITED:
        # A share of the calls made is audited: each audit represents the others, which are not checked.
        stands_for = max(stands_for, min(MOST_STANDS_FOR, round(1 / audit_rate)))
    for position, call in enumerate(judged):
        # Only the most likely call would have been made, so only it represents others.
        hit = int(call.calls == truth)
        record.append(RulesJudged(list(call.rules), hit, 1 if position else stands_for))
        if position == 0 and call.tool != WORDS:
            record += _credit_likeliest(call, hit, would_act, number)
    return record


def _examples(judged: Sequence[JudgedCall], truth: list[str] | None, number: int, stands_for: int) -> Record:
    """Return the checked calls as examples of the estimator."""
    examples = []
    for call in judged:
        if call.columns:
            examples.append([call.columns, int(call.calls == truth)])
    if not examples:
        return []
    return [ExamplesSeen(number, examples, stands_for)]


def _credit_likeliest(call: JudgedCall, hit: int, would_act: int, number: int) -> Record:
    """Return the counts of the most likely call: of its tool, of the request's wording, and of the check."""
    record: Record = [ToolCount(call.tool, "hits" if hit else "misses")]
    if hit and call.new_words is not None:
        record.append(RequestCompared(number, call.tool, call.new_words))
    if would_act:
        outcome = "right" if hit else "wrong"
        record += [Count(outcome), ToolCount(call.tool, outcome)]
        record.append(Checked(number, call.changes, 1 - hit, would_act))
    return record


def credit_correction(call: CallMade, number: int) -> Record:
    """Return the miss of a call of the memory that the model corrected in model turn `number`."""
    record: Record = [RulesJudged(call.rules, 0), ToolCount(call.tool, "misses")]
    if call.columns:
        record.append(ExamplesSeen(number, [[call.columns, 0]]))
    return record


def truth_of(turn: Turn) -> list[str] | None:
    """Return the calls of the turn in the form of a candidate; None if they are not the model's."""
    # A person did not let the call pass: the model's own choice must not be learned as the truth.
    if any(step.review == "rejected" for step in turn.steps):
        return None
    return digests_of_turn(turn)


def credit_shortcut(
    turn: Turn, asked: Sequence[str], *, changes: int, number: int, fails_anyway: float = 0.0
) -> Record:
    """Return the outcome of a turn that the shortcut took, for the tools that it asked for.

    `fails_anyway` is the share of the model's own calls of the tool that fail. A look-up that fails is a miss only as
    far as the model's look-ups succeed; a change that fails is always one.
    """
    outcome = _outcome_in(turn)
    # If a look-up fails for the model too, the shortcut is not at fault. A change that failed may be half done.
    record: Record = [Count(outcome)]
    miss = 1.0 if changes else 1.0 - fails_anyway
    if outcome == "acted_failed" and miss:
        record.append(Acted(number, changes, 0.0, miss))
    for tool in asked:
        record.append(ToolCount(tool, outcome))
    return record


def _outcome_in(turn: Turn) -> str:
    """Return the counter of a turn that the shortcut took."""
    statuses = {step.status for step in turn.steps}
    if statuses == {"ok"}:
        return "acted_ok"
    if "rejected" in statuses:  # a person or a limit kept the call from being executed
        return "acted_stopped"
    return "acted_failed"


def failing_share(graph: ToolGraph, tool: str) -> float:
    """Return the share of the model's own calls of a tool that failed; 0 if the model never called the tool."""
    ok = failed = 0.0
    for key, successors in graph.successors.rows.items():
        # A call is counted in windows of several lengths: the shortest has each call once, and a run's first call is in
        # the window of its start.
        kind, _separator, source = key.partition(SEPARATOR)
        counts_each_call_once = kind == "p1" or (kind == "w1" and source == START)
        if counts_each_call_once and tool in successors:
            model_ok, model_failed, *_ = successors[tool]
            ok += model_ok
            failed += model_failed
    if not failed:
        return 0.0
    return failed / (ok + failed)


def credit_repeated_failure(state: RunState, turn: Turn, *, graph: ToolGraph, number: int) -> Record:
    """Subtract a miss: the model repeated the shortcut's failed look-up, and the look-up failed again."""
    if not state.steps or len(turn.steps) != 1:
        return []
    # The model wanted the same call, so it was not a miss, but it was charged as one when it failed.
    last, step = state.steps[-1], turn.steps[0]
    shortcut_failed = last.chosen_by == "shortcut" and last.status == "failed"
    same_call = (step.tool, canonical(step.args)) == (last.tool, canonical(last.args))
    if not shortcut_failed or not same_call or step.status != "failed":
        return []
    charged = 1.0 - failing_share(graph, step.tool)
    if not charged:
        return []
    return [Acted(number, 0, 0.0, -charged)]
