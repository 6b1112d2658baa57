"""Whole calls, tool and arguments, by the concrete calls before them: loops, devices and menus repeat them.

A back-off n-gram over concrete calls, next to the counts of tools (`graph.state.windows`) and the sources of single
arguments. A call of one user is offered to others only once enough of them made it (`ContributorTable`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from langgraph_toolmem.base.text import digest
from langgraph_toolmem.graph.events import Event, Forgotten
from langgraph_toolmem.graph.state import START, WORDS, RunState, parallel
from langgraph_toolmem.graph.tool_graph import ContributorTable, CountTable, Handler, Table, ToolGraph
from langgraph_toolmem.runs.run import Turn
from langgraph_toolmem.runs.values import canon_args

MAX_CONTEXTS: Final = 60_000
MAX_KNOWN: Final = 20_000
MAX_CALL_CHARS: Final = 1_000
ORDERS: Final = (1, 2, 3)
"""Numbers of the latest calls in a context."""
MAX_OFFERED: Final = 3
MIN_SHARE: Final = 0.1
"""Least share of a call among what followed."""


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
