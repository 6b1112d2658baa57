"""The record of predictions: turns that begin, hits and misses, calls made, and changes for a person to review."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from langgraph_toolmem.base.text import as_text, canonical, digest, shortened
from langgraph_toolmem.core.method import LearnedTurn
from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.events import HOUR, Count, Event, Forgotten, Record, ToolCount
from langgraph_toolmem.graph.seen_input import NOTHING_SEEN, SeenDigests, from_input
from langgraph_toolmem.graph.state import SEPARATOR, START, WORDS, RunState, slot_key, windows
from langgraph_toolmem.graph.tool_graph import HIT, MISS, OPEN, TURNS_OPEN, CountTable, Handler, Table, ToolGraph
from langgraph_toolmem.inertia.budget import AUDITED, SHADOWED, Acted, Checked
from langgraph_toolmem.inertia.corrections import SOURCED, CallMade, values_of
from langgraph_toolmem.inertia.decision import Decision, calls_text
from langgraph_toolmem.inertia.estimator import EXAMPLE_COLUMNS, ExamplesSeen
from langgraph_toolmem.inertia.guards import may_write
from langgraph_toolmem.inertia.novelty import RequestCompared
from langgraph_toolmem.runs.run import Turn

MAX_RULES: Final = 40_000
MAX_OPEN: Final = 4_096
MOST_STANDS_FOR: Final = 20
"""Calls that one audit stands for at most, however few are audited."""
SERVED: Final = "ahead_served"
"""Counter of a tool: prefetched look-ups that the model asked for."""
WASTED: Final = "ahead_wasted"
SECONDS: Final = "ahead_seconds"
"""Counter of a tool: seconds of waiting saved."""
UNCLAIMED: Final = "ahead_unclaimed"
"""Counter of a tool: the model asked for it, and its call was never executed because something held it back."""
REVIEWED: Final = "reviewed"
"""Counter of a tool: a person was asked, refused it or edited it, or the call was stopped."""
MAX_CHANGES: Final = 100
"""Changes that are kept, the newest ones."""
MAX_TEXT: Final = 300
"""Characters of a change's arguments, and of its result."""


JUDGED: Final = shapes.RecordOf(
    (
        shapes.TEXT,
        shapes.TEXT,
        shapes.ListOf(shapes.TEXT),
        shapes.NUMBER,
        EXAMPLE_COLUMNS,
        shapes.WHOLE,
        shapes.OrNone(shapes.NUMBER),
        shapes.RowsOf(SOURCED),
    )
)
"""A judged candidate, as `plain_judged` writes it."""


@dataclass(slots=True)
class RulesJudged(Event):
    """A predicted call was exactly what the model did, or not.

    Attributes:
        rules: the records that it counts in.
        hit: 1 if it was, else 0.
        amount: the number of calls that it stands for.
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
        judged: the predicted calls, as `plain_judged` writes them.
        would_act: AUDITED or SHADOWED (`inertia.budget`) if the best of them would be made, else 0.
        user: digest of the user, if known.
        seen: prompt and context, as `SeenDigests.plain` writes them.
    """

    kind = "turn_opened"
    cells: ClassVar = {
        "judged": shapes.ListOf(JUDGED),
        "seen": shapes.RecordOf((shapes.RowsOf(shapes.TEXT),)),
    }
    turn: str
    windows: list[str]
    judged: list[list[Any]]
    would_act: int
    user: str | None
    seen: list[Any] = field(default_factory=NOTHING_SEEN.plain)


@dataclass(slots=True)
class TurnClosed(Event):
    """The end of a turn was seen, or nobody waits for it any more."""

    kind = "turn_closed"
    turn: str


class InertiaEvidence(Table):
    """The record of predictions by their kind, and open turns.

    Attributes:
        rules: rule -> "" -> [hits, misses]; MAX_RULES of them.
        open_turns: turn -> its `TurnOpened`; MAX_OPEN of them.
        closed_turns: the latest that ended, MAX_OPEN of them too.
    """

    name = "inertia"
    parts: ClassVar = {
        "rules": shapes.counts(2),
        "open_turns": shapes.RowsOf(shapes.fields_of(TurnOpened, 1)),
        "closed_turns": shapes.RowsOf(shapes.NOTHING),
    }

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.rules = CountTable(MAX_RULES, width=2, max_items=1)
        self.open_turns: dict[str, TurnOpened] = {}
        self.closed_turns: dict[str, None] = {}

    def handlers(self) -> Mapping[type[Event], Handler]:
        """See `Table`."""
        return {RulesJudged: self._judge, TurnOpened: self._open, TurnClosed: self._close}

    def knows(self, turn: str) -> bool:
        """Return True if a turn began or ended already."""
        return turn in self.open_turns or turn in self.closed_turns

    def _judge(self, rules: list[str], hit: int, amount: int = 1) -> None:
        for rule in rules:
            self.rules.add(rule, "", HIT if hit else MISS, amount)

    def _open(self, turn: str, *begun: Any) -> None:
        """Count a turn as "the model did something else" until its end is seen.

        A closed turn stays closed: another worker may report the end before the beginning.
        """
        if self.knows(turn):
            return
        opened = TurnOpened(turn, *begun)
        self._count(opened, 1)
        self.open_turns[turn] = opened
        if len(self.open_turns) > MAX_OPEN:
            del self.open_turns[next(iter(self.open_turns))]

    def _close(self, turn: str) -> None:
        opened = self.open_turns.pop(turn, None)
        if opened is not None:
            self._count(opened, -1)
        self.closed_turns[turn] = None
        if len(self.closed_turns) > MAX_OPEN:
            del self.closed_turns[next(iter(self.closed_turns))]

    def _count(self, opened: TurnOpened, amount: int) -> None:
        for context in opened.windows:
            self.graph.successors.add(context, OPEN, 0, amount)
        for _, _, rules, *_ in opened.judged:
            self._judge(rules, 0, amount)
        self.graph.count(TURNS_OPEN, amount)
        if opened.would_act:
            self.graph.count("would_act_open", amount)

    def forget(self, gone: Forgotten) -> int:
        """Close the turns of the user whose end was never reported."""
        begun = [turn for turn, opened in self.open_turns.items() if gone.user and opened.user == gone.user]
        for turn in begun:
            self._close(turn)
        return len(begun)

    def to_state(self) -> dict[str, Any]:
        """See `Table`."""
        opened = {turn: list(opened.values()[1:]) for turn, opened in self.open_turns.items()}
        return super().to_state() | {"open_turns": opened}

    def load(self, state: dict[str, Any]) -> None:
        """See `Table`."""
        super().load(state)
        self.open_turns = {turn: TurnOpened(turn, *begun) for turn, begun in state["open_turns"].items()}


def open_turn(
    graph: ToolGraph, state: RunState, turn: str, decision: Decision, user: str | None, *, audit: bool = False
) -> Record:
    """Return the record of a model turn that begins now; one whose end is never reported counts too.

    With `audit` the call would have been made, and the model is asked by chance.
    """
    checked = 0 if not decision.would_act else AUDITED if audit else SHADOWED
    seen = _known_places(graph, state, decision).plain()
    return [TurnOpened(turn, windows(state), plain_judged(decision), checked, user, seen)]


def _known_places(graph: ToolGraph, state: RunState, decision: Decision) -> SeenDigests:
    """Return the digests of what stands at the places in prompt and context that are known for the weighed tools."""
    if isinstance(state.seen, SeenDigests):
        return state.seen
    known: list[str] = []
    for tool in {option.tool for option in decision.options}:
        for parameter in graph.tools.get(tool, {}).get("parameters_seen", ()):
            known += filter(from_input, graph.places.rows.get(slot_key(tool, parameter), ()))
    return state.seen.digests(known)


def begin_shortcut(decision: Decision, turn: int) -> Record:
    """Return the record of a call that is made now, in model turn number `turn`: the misses to expect from it."""
    record: Record = []
    for option in decision.options[:1]:
        record.append(Acted(turn, int(option.changes), 1 - decision.confidence))
        if option.new_words == 0:  # usual wording stays the measure, though the model is asked ever less
            record.append(RequestCompared(turn, option.tool, 0.0))
    return record


def plain_judged(decision: Decision) -> list[list[Any]]:
    """Return the judged candidates in plain containers.

    Per candidate: tool, digest of the call, keys of its records, confidence (0 for an unfamiliar request), columns, 1
    if it may change something, the share of new words in the request, and of the likeliest the sources of its values
    (`corrections.values_of`). No argument's text is kept.
    """
    return [
        [
            option.tool,
            digest("call", option.tool, calls_text(option.calls)),
            list(option.records),
            0.0 if option.refused is not None and option.refused.code == "unfamiliar" else option.probability,
            option.columns,
            int(option.changes),
            option.new_words,
            {} if position else values_of(option),
        ]
        for position, option in enumerate(decision.options)
        if option.records
    ]


def credit_judged(
    turn: Turn,
    judged: list[list[Any]],
    *,
    would_act: int,
    audit_rate: float,
    number: int,
    stands_for: int = 1,
) -> Record:
    """Return hit or miss for every candidate of model turn `number`.

    A call that a person rejected is a miss, and the one put in its place is the truth. `would_act` is AUDITED or
    SHADOWED if the best candidate would have been made, otherwise 0. `stands_for`: predictions that the best one stands
    for at least, itself and those whose truth stays unknown.
    """
    record: Record = []
    truth = _truth(turn)
    examples = [[columns, int(call == truth)] for _, call, _, _, columns, *_ in judged if columns]
    if examples:
        record.append(ExamplesSeen(number, examples, stands_for))
    for position, (tool, call, rules, _, _, changes, new, _) in enumerate(judged):
        hit = int(call == truth)
        # Of the calls that are made, a share is audited: each audit stands for the others, which nobody checks.
        if audit_rate and would_act == AUDITED:
            stands_for = max(stands_for, min(MOST_STANDS_FOR, round(1 / audit_rate)))
        record.append(RulesJudged(list(rules), hit, 1 if position else stands_for))
        if position:
            continue
        if tool != WORDS:
            record.append(ToolCount(tool, "hits" if hit else "misses"))
            if hit and new is not None:
                record.append(RequestCompared(number, tool, new))
            if would_act:
                outcome = "right" if hit else "wrong"
                record += [Count(outcome), ToolCount(tool, outcome)]
                record.append(Checked(number, changes, 1 - hit, would_act))
    return record


def credit_correction(call: CallMade, number: int) -> Record:
    """Return the miss of a call of the memory that the model corrected in model turn `number`."""
    record: Record = [RulesJudged(call.rules, 0), ToolCount(call.tool, "misses")]
    if call.columns:
        record.append(ExamplesSeen(number, [[call.columns, 0]]))
    return record


def _truth(turn: Turn) -> str:
    """Return the digest of the turn as a candidate may predict it; "" for a turn that none can."""
    if not turn.steps:
        return digest("call", WORDS, "")
    tools = {step.tool for step in turn.steps}
    if len(tools) > 1 or any(step.review == "rejected" for step in turn.steps):
        return ""
    return digest("call", tools.pop(), calls_text(step.args for step in turn.steps))


def credit_shortcut(
    turn: Turn, asked: Sequence[str], *, changes: int, number: int, fails_anyway: float = 0.0
) -> Record:
    """Return the outcome of a turn that the shortcut took, for the tools that it asked for.

    `fails_anyway` is the share of the model's own calls of the tool that fail. A look-up that fails is a miss only as
    far as the model's look-ups succeed; a change that fails is always one.
    """
    statuses = {step.status for step in turn.steps}
    # Stopped: a person or a limit kept the call from being executed.
    outcome = "acted_ok" if statuses == {"ok"} else "acted_stopped" if "rejected" in statuses else "acted_failed"
    miss = 1.0 if changes else 1.0 - fails_anyway
    failed = [Acted(number, changes, 0.0, miss)] if outcome == "acted_failed" and miss else []
    return [Count(outcome), *failed, *(ToolCount(tool, outcome) for tool in asked)]


def failing_share(graph: ToolGraph, tool: str) -> float:
    """Return the share of the model's own calls of a tool that failed; 0 if the model never called the tool."""
    ok = failed = 0.0
    for key, targets in graph.successors.rows.items():
        kind, _, source = key.partition(SEPARATOR)
        if tool in targets and (kind == "p1" or (kind == "w1" and source == START)):  # each call is in one of them
            model_ok, model_failed, *_ = targets[tool]
            ok, failed = ok + model_ok, failed + model_failed
    return failed / (ok + failed) if failed else 0.0


def credit_repeated_failure(state: RunState, turn: Turn, *, graph: ToolGraph, number: int) -> Record:
    """Take a miss back: the model repeated the shortcut's failed look-up, and the look-up failed again."""
    last = state.steps[-1] if state.steps else None
    if last is None or last.chosen_by != "shortcut" or last.status != "failed" or len(turn.steps) != 1:
        return []
    step = turn.steps[0]
    same = (step.tool, canonical(step.args)) == (last.tool, canonical(last.args))
    if not same or step.status != "failed":
        return []
    charged = 1.0 - failing_share(graph, step.tool)
    return [Acted(number, 0, 0.0, -charged)] if charged else []


# --- changes that the memory made ---


@dataclass(slots=True)
class ChangeMade(Event):
    """A call that may have changed something was made without the model; `hour` is since 1970."""

    kind = "change_made"
    call: str
    run: str
    user: str | None
    hour: int
    thread: str
    tool: str
    args: str
    status: str
    result: str


class Changes(Table):
    """The newest changes.

    Attributes:
        made: id of the call -> the other fields of its `ChangeMade`, oldest first.
    """

    name = "changes"
    parts: ClassVar = {"made": shapes.RowsOf(shapes.fields_of(ChangeMade, 1))}

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.made: dict[str, list[Any]] = {}

    def handlers(self) -> Mapping[type[Event], Handler]:
        """See `Table`."""
        return {ChangeMade: self._add}

    def _add(self, call: str, *fields: Any) -> None:
        self.made[call] = list(fields)
        if len(self.made) > MAX_CHANGES:
            del self.made[next(iter(self.made))]

    def forget(self, gone: Forgotten) -> int:
        """See `Table`."""
        kept = {
            call: fields
            for call, fields in self.made.items()
            if not gone.has(fields[0], fields[1]) and (gone.before is None or fields[2] * HOUR >= gone.before)
        }
        removed, self.made = len(self.made) - len(kept), kept
        return removed

    def figures(self) -> list[dict[str, Any]]:
        """Return the changes for the report, newest first."""
        names = ("hour", "thread", "tool", "args", "status", "result")
        return [dict(zip(names, fields[2:], strict=True)) for fields in reversed(self.made.values())]

    def record(self, learned: LearnedTurn) -> Record:
        """Return the changes of a turn that the memory took, if they are new or have a result now."""
        if learned.turn.chosen_by != "shortcut":
            return []
        found: Record = []
        for step in learned.turn.steps:
            if step.tool in learned.specs and not may_write(step.tool, learned.specs):
                continue
            args, result = shortened(canonical(step.args), MAX_TEXT), shortened(as_text(step.output or ""), MAX_TEXT)
            known = self.made.get(step.key)
            if known is None or (result and not known[-1]):
                run, user, hour, thread = (
                    known[:4] if known else (learned.run, learned.user, learned.hour, learned.thread_id)
                )
                found.append(ChangeMade(step.key, run, user, hour, thread, step.tool, args, step.status, result))
        return found
