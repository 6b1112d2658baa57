"""Inertia's tables in the evidence graph: the record of its rules, and the model turns that began."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from langgraph_toolmem.graph.events import Event, Forgotten
from langgraph_toolmem.graph.state import SEPARATOR
from langgraph_toolmem.graph.tool_graph import HIT, MISS, OPEN, TURNS_OPEN, CountTable, Handler, Table, ToolGraph
from langgraph_toolmem.inertia.proposal import RULE_PREFIX

MAX_RULES: Final = 40_000
MAX_OPEN: Final = 4_096


@dataclass(slots=True)
class RulesJudged(Event):
    """A predicted call was exactly what the model did, or not.

    Attributes:
        rules: the records that it counts in.
        hit: 1 if it was, else 0.
        amount: how many such calls it stands for.
    """

    kind = "rules_judged"
    rules: list[str]
    hit: int
    amount: int = 1


@dataclass(slots=True)
class TurnOpened(Event):
    """A model turn begins that nobody may ever report the end of.

    Attributes:
        turn: its key.
        windows: the contexts it began in.
        rules: of each predicted call.
        judged: the predicted calls, as `inertia.crediting.plain_judged` writes them.
        would_act: AUDITED or SHADOWED (`inertia.budget`) if the best of them would be made, else 0.
        user: digest of the user, if known.
        hour: since 1970.
    """

    kind = "turn_opened"
    turn: str
    windows: list[str]
    rules: list[list[str]]
    judged: list[list[Any]]
    would_act: int
    user: str | None
    hour: int | None = None


@dataclass(slots=True)
class TurnClosed(Event):
    """The end of a turn was seen, or nobody waits for it any more."""

    kind = "turn_closed"
    turn: str


@dataclass(frozen=True, slots=True)
class RuleRecord:
    """The record of one kind of prediction: after `after`, `tool` with arguments from `sources`."""

    after: str
    tool: str
    sources: str
    hits: int
    misses: int

    @property
    def sources_in_words(self) -> str:
        """Return where the arguments come from: their kinds of sources (`graph.sources`)."""
        kinds = self.sources.split("+") if self.sources else []
        words = (_SOURCES.get(kind) or _SOURCES.get(kind[:1], kind) for kind in kinds)
        return ", ".join(dict.fromkeys(words)) or "–"


_SOURCES: Final = {
    "c": "usual value",
    "cp": "usual value",
    "n": "nearest request",
    "i": "earlier argument",
    "o": "earlier output",
    "l": "output list",
    "u": "user's words",
    "t": "template",
    "env": "environment",
    "goal": "user's goal",
    "paper": "paper policy",
    "w": "whole call",
}


class InertiaEvidence(Table):
    """The track record of rules, and open turns.

    Attributes:
        rules: rule -> "" -> [hits, misses]; MAX_RULES of them.
        open_turns: turn -> how it began; MAX_OPEN of them.
        closed_turns: the latest that ended, MAX_OPEN of them too.
    """

    name = "inertia"
    parts = (
        "rules",
        "open_turns",
        "closed_turns",
    )

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.rules = CountTable(MAX_RULES, width=2, max_items=1)
        self.open_turns: dict[str, TurnOpened] = {}
        self.closed_turns: dict[str, None] = {}

    def handlers(self) -> Mapping[type[Event], Handler]:
        """See `Table`."""
        return {RulesJudged: self._judge, TurnOpened: self._open, TurnClosed: self._close}

    def most_used_rules(self, most: int | None = None) -> list[RuleRecord]:
        """The record of kinds of predictions, the most used first."""
        found = []
        for key, cells in self.rules.rows.items():
            if key.startswith(RULE_PREFIX) and (cell := cells.get("")):
                after, tool, sources = key[len(RULE_PREFIX) :].split(SEPARATOR)
                found.append(RuleRecord(after, tool, sources, int(cell[HIT]), int(cell[MISS])))
        return sorted(found, key=lambda r: (-(r.hits + r.misses), r.after, r.tool, r.sources))[:most]

    def knows(self, turn: str) -> bool:
        """Return True if a turn began or ended already."""
        return turn in self.open_turns or turn in self.closed_turns

    def _judge(self, rules: list[str], hit: int, amount: int = 1) -> None:
        for rule in rules:
            self.rules.add(rule, "", HIT if hit else MISS, amount)

    def _open(self, turn: str, *begun: Any) -> None:
        """Until its end is seen, a turn that began counts as "the model did something else".

        A closed turn stays closed: another worker's log may tell of the end before the beginning.
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
        for rules in opened.rules:
            self._judge(rules, 0, amount)
        self.graph.count(TURNS_OPEN, amount, opened.hour)
        if opened.would_act:
            self.graph.count("would_act_open", amount)

    def forget(self, gone: Forgotten) -> int:
        """Turns of the user that began and were never reported count no more."""
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
