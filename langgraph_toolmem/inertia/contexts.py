"""Whole calls, tool and arguments, by the concrete calls before them: what loops, devices and menus repeat.

A back-off n-gram over calls as they stand, beside the counts of tools (`graph.state.windows`) and the sources of single
arguments. What one user's call held is offered to others only once enough of them made it (`ContributorTable`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

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
"""How many of the latest calls a context holds."""
MAX_STATUS_CHARS: Final = 24
"""An output's text of one word up to this length tells what state something is in ("delivered")."""
MAX_OFFERED: Final = 3
MIN_SHARE: Final = 0.1
"""Least share of a call among what followed."""


@dataclass(slots=True)
class CallFollowed(Event):
    """A call was made after these contexts.

    Attributes:
        contexts: their keys, as `contexts_of` makes them.
        call: digest of what followed.
        text: the call, as `known_call` writes it; "" for an answer in words and for several calls.
        run: digest of the thread, the witness where no user is known.
        user: digest of the user, if known.
    """

    kind = "call_followed"
    contexts: list[str]
    call: str
    text: str
    run: str
    user: str | None


class FollowingCall(NamedTuple):
    """A call that followed the latest calls of a run before."""

    tool: str
    args: dict[str, Any]
    share: float
    """Of all that followed, backed off over the lengths of the context (Witten-Bell)."""
    seen: float
    """How often the longest known context was seen."""


class CallContexts(Table):
    """Counts of whole calls that follow each other.

    Attributes:
        followed: context -> digest of the call -> [how often]; MAX_CONTEXTS contexts.
        known: digest of a call -> its text -> who made it; MAX_KNOWN calls.
    """

    name = "calls"
    parts = (
        "followed",
        "known",
    )

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

    def after(self, state: RunState) -> tuple[list[FollowingCall], dict[str, float]]:
        """The calls that followed the run's latest calls most often, best first: MAX_OFFERED of them at most.

        Returns:
            The calls, and the share of every call that was seen there, by digest (`call_key`).
        """
        shares: dict[str, float] = {}
        seen = 0.0
        for context in contexts_of(state):
            row = self.followed.row(context)
            if not row:
                continue
            seen = sum(cell[0] for cell in row.values())
            kinds = float(len(row))
            shares = {
                call: ((row[call][0] if call in row else 0.0) + kinds * shares.get(call, 0.0)) / (seen + kinds)
                for call in {*shares, *row}
            }
        ranked = sorted((-share, call) for call, share in shares.items() if share >= MIN_SHARE)
        offered = (
            FollowingCall(*_read_call(text), -share, seen)
            for share, call in ranked
            for text in self.known.rows.get(call, ())
        )
        return list(islice(offered, MAX_OFFERED)), shares

    def forget(self, gone: Forgotten) -> int:
        """See `Table`: calls nobody else made go."""
        lost = self.known.forget(gone)
        for call in [call for call, texts in self.known.rows.items() if not texts]:
            del self.known.rows[call]
        return lost


def call_key(tool: str, args: str) -> str:
    """Digest of a call, with its arguments as `canon_args` writes them."""
    return digest("followed", tool, args)


def followed(state: RunState, turn: Turn, thread: str, user: str | None) -> list[Event]:
    """The operations that teach what a turn of the model did after the calls before it."""
    if turn.chosen_by != "model":
        return []
    contexts = contexts_of(state)
    if len(turn.steps) == 1:
        step = turn.steps[0]
        args = canon_args(step.args)
        text = json.dumps([step.tool, step.args], sort_keys=True, default=str)
        kept = text if len(text) <= MAX_CALL_CHARS else ""
        return [CallFollowed(contexts, call_key(step.tool, args), kept, thread, user)]
    what = parallel([step.tool for step in turn.steps]) if turn.steps else WORDS
    return [CallFollowed(contexts, call_key(what, ""), "", thread, user)]


def contexts_of(state: RunState) -> list[str]:
    """Keys of the contexts of a run, the least telling first.

    The latest tool with the state its output tells of, one to three latest calls, and the request with all calls since.
    """
    latest = state.steps[-max(ORDERS) :]
    calls = [(step.tool, canon_args(step.args), step.status) for step in latest]
    spoken = state.symbols[-1] == WORDS
    keys = []
    if calls:
        keys.append(digest("state", calls[-1][0], calls[-1][2], _states(state)))
    for order in ORDERS:
        if order <= len(calls):
            keys.append(digest("calls", int(spoken), *(part for call in calls[-order:] for part in call)))
        elif order == len(calls) + 1:
            keys.append(digest("calls", int(spoken), START, *(part for call in calls for part in call)))
    if state.user.raw:
        keys.append(_request_key(state))
    return keys


def _request_key(state: RunState) -> str:
    since = [part for step in state.since_user for part in (step.tool, canon_args(step.args), step.status)]
    return digest("request", state.user.raw, *since)


def _states(state: RunState) -> str:
    """Return what state the latest output tells of: its flags and texts of one short word, by their places."""
    if not state.steps or state.steps[-1].output is None:
        return ""
    found = []
    for path, value in state.observation(len(state.steps) - 1).scalars.items():
        if isinstance(value, bool) or (
            isinstance(value, str) and len(value) <= MAX_STATUS_CHARS and value.replace("_", "").isalpha()
        ):
            found.append(f"{path}={value}")
    return "\x1f".join(found[:MAX_OFFERED])


def _read_call(text: str) -> tuple[str, dict[str, Any]]:
    tool, args = json.loads(text)
    return tool, args
