"""The evidence graph: everything the memory has learned, and the increments by which it learns.

An observation is turned into a *record*: a list of small operations in plain containers. Applying a record
is the only way the graph changes; `apply` skips records whose key it has seen. So learning live, recovering
from the journal, merging other workers and replaying logs are one mechanism.

Operations (first element is the code):
    ["s", contexts, next, column]            successor counts (columns: see COLUMNS)
    ["t", tool, status]                      outcome of a call
    ["e", tool, was_repeat]                  whether an identical call had been made in the run
    ["a", slot, previous, {descriptor: hit}] argument sources that were right (1) or wrong (0)
    ["v", slot, previous, value, pattern, run, user]   a value that a slot took
    ["w", slot, [descriptors], user]         who was seen with descriptors; their words and paths may be a person's
    ["co", case, text, user]                 a request
    ["cc", case, position, tool, args, status, sources, look, beside] ["ce", case, position, look]
    ["r", rules, hit]                        track record of predicted calls, per rule, coarse to fine
    ["n", counter, amount]                   a plain counter; ["nt", tool, counter, amount] one of a tool
    ["h", hour, {counter: amount}]           the same counters in the hour (since 1970, UTC) in which they were counted
    ["p", tool, {parameter: JSON type}, [parameters]]   the arguments of a call, for tools whose schema nobody gave;
                                             the last: those whose value no earlier output of the run had
    ["ou", tool, {path: [JSON types]}, user] what a result showed that was not known of the tool's results yet
    ["dy", day, {tool: uses}, [[source, target, good uses]]]   the uses of a day (since 1970, UTC)
    ["lo", {tool: good calls}, when] ["lo-", tools, when]   tools are left out of plans; they are put back
    ["sh", {target: {source: uses}}, when]   what links count more or less than they were used
    ["gr", groups, when]                     what the user says about clusters of parameters
    ["d", tool, plain description]           what is known of a tool itself
    ["o+", turn, payload] ["o-", turn]       a model turn begins that nobody may ever report the end of
    ["tr", run, step, source, target]        in a run, `target` was called right after `source`; step: its key
    ["sm", run, step, [place, target, text, made_by], user]   a state's summary, until its run has a verdict
                                             (step "": there is none, but earlier ones of the run are to be looked at)
    ["sm-", run, steps]                      these summaries of a run are taken elsewhere, or dropped
    ["of+", turn, method, tools, ids]        tools were suggested to the model for this turn
    ["of-", turn, followed tools, right]     which of them it called, and whether that went well
    ["rc", run, entries, user]               past runs (ids of entries) were shown to the model in this run
    ["rv", run, good]                        whether that run went well was added to their record
                                             (both with a further kind of counter: other things it was shown)
    ["ru", run, shortcuts, user]             shortcuts taken in a run, and whose run it is
    ["vd", run, score, comment, user]        a verdict on a run, and who gave it
    ["fu", user, when]                       a user is forgotten (time in seconds since 1970)
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import takewhile
from operator import attrgetter
from typing import Any, Final

from langgraph_toolmem.graph import fields
from langgraph_toolmem.graph.cases import CaseIndex
from langgraph_toolmem.graph.evolving import Evolving
from langgraph_toolmem.graph.tables import CountTable, WitnessTable
from langgraph_toolmem.graph.walks import Walks

COLUMNS: Final = ("model_ok", "model_failed", "shortcut_ok", "shortcut_failed")
HIT, MISS = 0, 1

MAX_CONTEXTS: Final = 60_000
MAX_SLOTS: Final = 20_000
MAX_RULES: Final = 40_000
MAX_SEEN: Final = 2_000_000
MAX_SOURCES: Final = 32
MAX_OPEN: Final = 4_096
MAX_RUNS: Final = 50_000
MAX_PERIODS: Final = 20_000
MAX_DRAFTS: Final = 5_000
"""Runs whose summaries wait for a verdict."""
MAX_RECALLS: Final = 10_000
"""Runs whose shown entries are remembered; a verdict on an older one counts for their record no more."""
SHORTCUTS, SCORE, COMMENT, OWNER, AUTHOR = range(5)
"""Columns of a run: shortcuts taken, verdict, the word on it, whose run it is, who gave the verdict."""
OPEN: Final = "?"
"""Successor of a context whose model turn began and whose end has not been seen."""

Record = list[list[Any]]
"""One observation's operations."""


class EvidenceGraph:
    """Tools, successor statistics, argument sources, past requests and the track record.

    Bounds: MAX_CONTEXTS successor contexts, MAX_SLOTS rows of argument sources and of values (32 and 12 items
    each), MAX_RULES rules, 20,000 past requests, MAX_PERIODS hours, MAX_SEEN keys of observations. At a bound the
    rows with the least evidence leave (requests, hours and keys: the oldest).
    """

    def __init__(self) -> None:
        self.tools: dict[str, dict[str, Any]] = {}
        self.successors = CountTable(MAX_CONTEXTS, width=len(COLUMNS))
        self.sources = CountTable(MAX_SLOTS, width=2, max_items=MAX_SOURCES)
        self.values = CountTable(MAX_SLOTS, max_items=12)
        self.value_witnesses = WitnessTable(MAX_SLOTS)
        self.pattern_witnesses = WitnessTable(MAX_SLOTS)
        self.descriptor_witnesses = WitnessTable(MAX_SLOTS)
        self.rules = CountTable(MAX_RULES, width=2, max_items=1)
        self.cases = CaseIndex()
        self.counters: dict[str, float] = {}
        self.by_tool: dict[str, dict[str, float]] = {}
        self.open_turns: dict[str, dict[str, Any]] = {}
        self.closed_turns: dict[str, None] = {}
        self.runs: dict[str, list[Any]] = {}
        self.periods: dict[str, dict[str, float]] = {}
        self.walks = Walks()
        self.evolving = Evolving()
        #: tool -> number of the change; see `outputs_since`
        self._outputs_changed: dict[str, int] = {}
        self._output_changes = 0
        #: run -> {step: [place, target, text, made_by, user or ""]}
        self.drafts: dict[str, dict[str, list[str]]] = {}
        #: turn -> [method, tools, ids]
        self.offers: dict[str, list[Any]] = {}
        #: run -> [user or "", {entry: what was added to its record: None, 0 (hurt) or 1 (helped)}]
        self.recalls: dict[str, list[Any]] = {}
        self._seen: dict[int, None] = {}

    # --- what has been seen ---

    def has_seen(self, key: str) -> bool:
        """Whether an observation with this key (16 hex digits) was applied already."""
        return int(key, 16) in self._seen

    def apply(self, key: str | None, record: Record) -> bool:
        """Applies a record once.

        Returns:
            False if its key was seen before; nothing changes then. A record without a key is always applied.
        """
        if key is not None:
            number = int(key, 16)
            if number in self._seen:
                return False
            self._seen[number] = None
            if len(self._seen) > MAX_SEEN:
                del self._seen[next(iter(self._seen))]
        for code, *rest in record:
            _HANDLERS[code](self)(*rest)
        return True

    # --- the operations ---

    def _add_successor(self, contexts: list[str], item: str, column: int, amount: int = 1) -> None:
        for context in contexts:
            self.successors.add(context, item, column, amount)

    def _add_outcome(self, tool: str, status: str) -> None:
        entry = self.tools.setdefault(tool, {})
        entry[status] = entry.get(status, 0) + 1

    def _add_repeat(self, tool: str, was_repeat: int) -> None:
        entry = self.tools.setdefault(tool, {})
        entry["repeats"] = entry.get("repeats", 0) + was_repeat

    def _add_sources(self, slot: str, previous: str, judged: dict[str, int]) -> None:
        narrow = f"{slot}\x1e{previous}"
        for descriptor, hit in judged.items():
            column = HIT if hit else MISS
            self.sources.add(slot, descriptor, column)
            self.sources.add(narrow, descriptor, column)

    def _add_value(self, slot: str, previous: str, value: str, pattern: str, run: str, user: str | None) -> None:
        if value is not None:
            self.values.add(slot, value)
            self.values.add(f"{slot}\x1e{previous}", value)
            self.value_witnesses.add(slot, value, run, user)
        if pattern:
            self.pattern_witnesses.add(slot, pattern, run, user)

    def _add_descriptor_witness(self, slot: str, descriptors: list[str], user: str) -> None:
        for descriptor in descriptors:
            self.descriptor_witnesses.add(slot, descriptor, "", user)

    def _add_rules(self, rules: list[str], hit: int, amount: int = 1) -> None:
        for rule in rules:
            self.rules.add(rule, "", HIT if hit else MISS, amount)

    def _count(self, name: str, amount: float = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + amount

    def _count_period(self, hour: int, amounts: dict[str, float]) -> None:
        period = self.periods.setdefault(str(hour), {})
        for name, amount in amounts.items():
            period[name] = period.get(name, 0) + amount
        if len(self.periods) > MAX_PERIODS:
            del self.periods[min(self.periods, key=int)]

    def _count_tool(self, tool: str, name: str, amount: float = 1) -> None:
        entry = self.by_tool.setdefault(tool, {})
        entry[name] = entry.get(name, 0) + amount

    def _add_parameters(self, tool: str, types: dict[str, str], given: Sequence[str] = ()) -> None:
        entry = self.tools.setdefault(tool, {})
        for parameter in given:
            counts = entry.setdefault("given", {})
            counts[parameter] = counts.get(parameter, 0) + 1
        entry["calls_read"] = entry.get("calls_read", 0) + 1
        known = entry.setdefault("parameters_seen", {})
        for parameter, kind in types.items():
            kinds = known.setdefault(parameter, {})
            kinds[kind] = kinds.get(kind, 0) + 1

    def _add_outputs(self, tool: str, paths: dict[str, list[str]], user: str | None) -> None:
        fields.add(self.tools.setdefault(tool, {}).setdefault("outputs", {}), paths, user)
        self._outputs_change(tool)

    def outputs_since(self, number: int) -> tuple[int, list[str]]:
        """The number of the latest change of known outputs, and the tools whose outputs changed after the given one."""
        found = takewhile(lambda pair: pair[1] > number, reversed(self._outputs_changed.items()))
        return self._output_changes, [tool for tool, _ in found]

    def _outputs_change(self, tool: str) -> None:
        self._output_changes += 1
        self._outputs_changed.pop(tool, None)  # the latest comes last
        self._outputs_changed[tool] = self._output_changes

    def _open_turn(self, turn: str, payload: dict[str, Any]) -> None:
        """Until its end is seen, a turn that began counts as "the model did something else".

        A closed turn stays closed: another worker's log may tell of the end before the beginning.
        """
        if turn in self.open_turns or turn in self.closed_turns:
            return
        self.open_turns[turn] = payload
        self._count_open(payload, 1)
        if len(self.open_turns) > MAX_OPEN:
            del self.open_turns[next(iter(self.open_turns))]

    def _close_turn(self, turn: str) -> None:
        payload = self.open_turns.pop(turn, None)
        if payload is not None:
            self._count_open(payload, -1)
        self.closed_turns[turn] = None
        if len(self.closed_turns) > MAX_OPEN:
            del self.closed_turns[next(iter(self.closed_turns))]

    def _count_open(self, payload: dict[str, Any], amount: int) -> None:
        self._add_successor(payload["windows"], OPEN, 0, amount)
        for rules in payload["rules"]:
            self._add_rules(rules, 0, amount)
        if payload["would_act"]:
            self._count("would_act_open", amount)

    def _add_run(self, run: str, shortcuts: int, user: str | None) -> None:
        entry = self.runs.setdefault(run, [0, None, None, None, None])
        entry[SHORTCUTS] += shortcuts
        if user is not None:
            # The smaller one, so that the order of arrival does not matter.
            entry[OWNER] = user if entry[OWNER] is None else min(entry[OWNER], user)
        if len(self.runs) > MAX_RUNS:
            del self.runs[next(iter(self.runs))]

    def _add_draft(self, run: str, step: str, draft: list[str], user: str | None) -> None:
        self.drafts.setdefault(run, {})[step] = [*draft, user or ""]
        if len(self.drafts) > MAX_DRAFTS:
            del self.drafts[next(iter(self.drafts))]

    def _drop_drafts(self, run: str, steps: list[str]) -> None:
        waiting = self.drafts.get(run, {})
        for step in steps:
            waiting.pop(step, None)
        if not waiting:
            self.drafts.pop(run, None)

    def _add_offer(self, turn: str, method: str, tools: list[str], ids: list[str]) -> None:
        if turn not in self.offers:
            self._count(f"{method}_offered")
        self.offers[turn] = [method, tools, ids]
        if len(self.offers) > MAX_OPEN:
            del self.offers[next(iter(self.offers))]

    def _close_offer(self, turn: str, followed: list[str], right: int) -> None:
        offer = self.offers.pop(turn, None)
        if offer is not None:
            self._count(f"{offer[0]}_followed", int(bool(followed)))
            self._count(f"{offer[0]}_right", right)

    def _add_recall(self, run: str, entries: list[str], user: str | None, kind: str = "recall") -> None:
        shown = self.recalls.setdefault(run, [user or "", {}])[1]
        if not shown:
            self._count(f"{kind}_runs")
        for entry in entries:
            shown.setdefault(entry, None)
        if len(self.recalls) > MAX_RECALLS:
            del self.recalls[next(iter(self.recalls))]

    def _judge_recall(self, run: str, good: int, kind: str = "recall") -> None:
        shown: dict[str, int | None] = self.recalls[run][1] if run in self.recalls else {}
        before = {booked for booked in shown.values() if booked is not None}
        if shown and before != {good}:
            for booked in before:
                self._count(f"{kind}_helped" if booked else f"{kind}_hurt", -1)
            self._count(f"{kind}_helped" if good else f"{kind}_hurt")
        for entry in shown:
            shown[entry] = good

    def _add_verdict(self, run: str, score: float, comment: str | None, user: str | None) -> None:
        self._add_run(run, 0, None)
        self.walks.judge(run, score)
        entry = self.runs[run]
        entry[SCORE], entry[COMMENT], entry[AUTHOR] = score, comment, user

    def belongings(self, user: str) -> set[str]:
        """Ids of a user's requests and runs (digests)."""
        return self.cases.of_user(user) | {run for run, entry in self.runs.items() if entry[OWNER] == user}

    def owner(self, run: str) -> str | None:
        """Whose run it is (digests), if that is known."""
        entry = self.runs.get(run)
        return None if entry is None else entry[OWNER]

    def left_out(self) -> frozenset[str]:
        """Tools that were pruned and did not go well since: they are in no plan."""
        left = self.evolving.left
        return self.evolving.out({tool: int(self.tools.get(tool, {}).get("ok", 0)) for tool in left})

    def _describe_tool(self, tool: str, plain: dict[str, Any]) -> None:
        self.tools.setdefault(tool, {}).update(plain)

    # --- forgetting ---

    def forget_user(self, user: str) -> int:
        """Takes out what came from one user: requests, and values and wordings nobody else was seen with.

        Turns of the user that began and were never reported count no more.

        Returns:
            How many pieces were removed. Pure counts (which tool follows which) hold nothing of a person
            and stay. Names of output fields that only this user's runs showed go, uncounted.
        """
        removed = self.cases.forget_user(user)
        for witnesses, table in (
            (self.value_witnesses, self.values),
            (self.descriptor_witnesses, self.sources),
        ):
            before = {(slot, item) for slot, row in witnesses.rows.items() for item in row if user in row[item][1]}
            # Where witnesses had to leave, an item without one may be anybody's.
            full = {slot for slot, row in witnesses.rows.items() if len(row) >= witnesses.max_items}
            removed += witnesses.forget_user(user)
            gone = {(slot, item) for slot, item in before if item not in witnesses.rows.get(slot, {})}
            if gone or full:
                for key, row in table.rows.items():
                    slot = key.partition("\x1e")[0]
                    known = witnesses.rows.get(slot, {})
                    for item in list(row):
                        lost = slot in full and item not in known and (table is self.values or "|" in item)
                        if lost or (slot, item) in gone:
                            del row[item]
                            removed += lost
        removed += self.pattern_witnesses.forget_user(user)
        mine = [run for run, entry in self.runs.items() if entry[OWNER] == user]
        for run in mine:
            del self.runs[run]
        for entry in self.runs.values():
            if entry[AUTHOR] == user:
                entry[COMMENT], entry[AUTHOR] = None, None
                removed += 1
        drafts = [
            (run, step)
            for run, waiting in self.drafts.items()
            for step, draft in waiting.items()
            if draft[-1] == user or (run in mine and not draft[-1])
        ]
        for run, step in drafts:
            self._drop_drafts(run, [step])
        for run in [run for run, (whose, _) in self.recalls.items() if whose == user or run in mine]:
            del self.recalls[run]
        for tool, entry_of_tool in self.tools.items():
            if fields.forget(entry_of_tool.get("outputs", {}), user):
                self._outputs_change(tool)
        begun = [turn for turn, payload in self.open_turns.items() if payload["user"] == user]
        for turn in begun:
            self._close_turn(turn)
            self._count("turns", -1)
        return removed + len(mine) + len(begun) + len(drafts)

    def _forget(self, user: str, _when: float) -> None:
        self.forget_user(user)

    # --- persistence ---

    def to_state(self) -> dict[str, Any]:
        """Plain containers only; see `from_state`."""
        state: dict[str, Any] = {name: getattr(self, name).to_state() for name in _TABLES}
        state |= {name: getattr(self, name) for name in _PLAIN}
        state["closed_turns"] = list(self.closed_turns)
        state["seen"] = struct.pack(f"<{len(self._seen)}Q", *self._seen)
        return state

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> EvidenceGraph:
        """The inverse of `to_state`."""
        graph = cls()
        for name, kind in _TABLES.items():
            setattr(graph, name, kind.from_state(state[name]))
        for name in _PLAIN:
            setattr(graph, name, state[name])
        graph.closed_turns = dict.fromkeys(state.get("closed_turns", ()))
        seen: Iterable[int] = struct.unpack(f"<{len(state['seen']) // 8}Q", state["seen"])
        graph._seen = dict.fromkeys(seen)
        return graph


_TABLES: Final[dict[str, Any]] = {
    "successors": CountTable,
    "sources": CountTable,
    "values": CountTable,
    "value_witnesses": WitnessTable,
    "pattern_witnesses": WitnessTable,
    "descriptor_witnesses": WitnessTable,
    "rules": CountTable,
    "cases": CaseIndex,
    "walks": Walks,
    "evolving": Evolving,
}

_PLAIN: Final = ("tools", "counters", "by_tool", "open_turns", "runs", "periods", "drafts", "offers", "recalls")

_HANDLERS: Final[dict[str, attrgetter[Any]]] = {
    code: attrgetter(name)
    for code, name in {
        "s": "_add_successor",
        "t": "_add_outcome",
        "e": "_add_repeat",
        "a": "_add_sources",
        "v": "_add_value",
        "w": "_add_descriptor_witness",
        "co": "cases.open",
        "cc": "cases.add_call",
        "ce": "cases.end",
        "r": "_add_rules",
        "n": "_count",
        "nt": "_count_tool",
        "h": "_count_period",
        "p": "_add_parameters",
        "d": "_describe_tool",
        "o+": "_open_turn",
        "o-": "_close_turn",
        "tr": "walks.add",
        "sm": "_add_draft",
        "sm-": "_drop_drafts",
        "of+": "_add_offer",
        "of-": "_close_offer",
        "rc": "_add_recall",
        "rv": "_judge_recall",
        "ru": "_add_run",
        "vd": "_add_verdict",
        "fu": "_forget",
        "ou": "_add_outputs",
        "dy": "evolving.count",
        "lo": "evolving.leave_out",
        "lo-": "evolving.put_back",
        "sh": "evolving.shift",
        "gr": "evolving.group",
    }.items()
}
"""Code of an operation -> what applies it, looked up in a graph."""
