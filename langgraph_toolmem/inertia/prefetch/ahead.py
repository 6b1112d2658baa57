"""The three moments of a look-up that runs ahead: the model is asked, it answers, the call is executed."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, Final, NamedTuple

from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool
from langgraph.prebuilt.tool_node import ToolCallRequest

from langgraph_toolmem.core.core import Core
from langgraph_toolmem.graph.events import Count, Record, ToolCount
from langgraph_toolmem.inertia.guards import may_write
from langgraph_toolmem.inertia.policy import InertiaPolicy, PaperPolicy
from langgraph_toolmem.inertia.prefetch.choice import Guess, choose, least_probability
from langgraph_toolmem.inertia.prefetch.handles import Flight, Flights, Handle, Host, Owner, Place
from langgraph_toolmem.inertia.prefetch.inside import is_async, is_sync, standing_in
from langgraph_toolmem.inertia.prefetch.qualify import Gates, Qualified, qualified
from langgraph_toolmem.inertia.prefetch.record import (
    IN_TIME,
    REVIEWED,
    SECONDS,
    SERVED,
    STARTED,
    UNCLAIMED,
    WASTED,
    held_back,
)
from langgraph_toolmem.inertia.prefetch.settings import Prefetch
from langgraph_toolmem.inertia.proposal import Foreseen
from langgraph_toolmem.runs.tools import ToolSpec
from langgraph_toolmem.runs.values import canon_args
from langgraph_toolmem.turn.ask import Asking, Wait, loop_of_run
from langgraph_toolmem.turn.call import Call
from langgraph_toolmem.turn.host import ErrorLog, config_of, emit, read_key, thread_id_of, user_id_of

logger = logging.getLogger("langgraph_toolmem.prefetch")

MAX_TOOL_SETS: Final = 64
_FREE_CHOICE: Final = (None, "auto", "any", "required")
NO_CONFIG: Final = (
    "Nothing is run ahead in async runs here: before Python 3.11 the config of an async run cannot be read."
)
PAPER: Final = "Nothing is run ahead under the paper's policy: its scores are no probabilities."
UNWATCHED: Final = (
    "Nothing is run ahead in this graph: its tools are not executed by a ToolNode(tools, wrap_tool_call="
    "recorder.wrap_tool_call, awrap_tool_call=recorder.awrap_tool_call), so that no result could be served."
)
PATIENCE: Final = 32
"""Model calls of plain graphs for which look-ups are run ahead before a watched tool call has been seen."""
NO_PLACE: Final = (
    "Nothing is run ahead in a graph without a thread id (a checkpointer), a user id or ids of messages: without all "
    "three it cannot be told whose result it is."
)


class Foresight(NamedTuple):
    """What the shortcut leaves to whoever works ahead: its candidates, and the policy that they were weighed under."""

    foreseen: Sequence[Foreseen]
    policy: InertiaPolicy


class Served:
    """Serves what is there in the place of a call's inside, and books it.

    Args:
        core: of the memory.
        flights: where the calls under way are kept.
        errors: where failures of its own are logged.
        messages_key: key of the messages in the host's state.
    """

    def __init__(self, core: Core, flights: Flights, errors: ErrorLog, *, messages_key: str = "messages") -> None:
        self.core, self.flights, self.errors, self.messages_key = core, flights, errors, messages_key

    def serve(self, request: ToolCallRequest) -> Asking[ToolCallRequest]:
        """The request with a tool that has the result already, if it was run ahead; else the request as it is."""
        try:
            handle, asked = self._taken(request), monotonic()
            if handle is None:
                return request
            in_time = handle.future.done()
            if not in_time:
                yield Wait(handle.future, handle.deadline - asked)
            ran = handle.ready
            if ran is None:
                handle.cancel()
                self.book(handle.guess.tool, {WASTED: 1})
                return request
            saved = max(min(ran.seconds, asked - handle.started), 0.0)
            self.book(handle.guess.tool, {SERVED: 1, IN_TIME: int(in_time), SECONDS: saved})
            event = {"node": "prefetch", "served": handle.guess.tool, "seconds_saved": round(saved, 3)}
            runtime: Any = request.runtime
            emit(runtime, event)
            return request.override(tool=standing_in(handle.tool, ran))
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self.errors.failed(error)
            return request

    def paused(self, request: ToolCallRequest) -> None:
        """A call that somebody stops is not to be run before that."""
        try:
            self.book(request.tool_call["name"], {REVIEWED: 1})
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self.errors.failed(error)

    def book(self, tool: str, counts: Mapping[str, float]) -> None:
        """Adds to the record of a tool."""
        record: Record = [ToolCount(tool, name, amount) for name, amount in counts.items() if amount]
        record += [Count(name, counts[name]) for name in (SERVED, WASTED) if counts.get(name)]
        if record and not self.core.read_only:
            with self.core.lock:
                self.core.apply(None, record)

    def _taken(self, request: ToolCallRequest) -> Handle | None:
        self.flights.watched = True
        if not self.flights:
            return None
        call = request.tool_call
        messages = list(read_key(request.state, self.messages_key) or ())
        at = next((n for n in reversed(range(len(messages))) if isinstance(messages[n], AIMessage)), None)
        if at is None or all(each["id"] != call["id"] for each in messages[at].tool_calls):
            return None
        runtime: Any = request.runtime
        config = getattr(runtime, "config", None)
        owner = (thread_id_of(config), user_id_of(config, runtime))
        flight = self.flights.on(messages[at])
        if flight is None and at and (place := place_of(owner, messages[at - 1])) is not None:
            flight = self.flights.at(place)
            if flight is not None and not flight.matched:
                self.match(flight, messages[at])
        if flight is None or flight.owner != owner:
            return None
        handle = self.flights.take(flight, call["name"], canon_args(call["args"]))
        if handle is not None and not _is_same(handle.tool, request.tool):
            handle.cancel()
            self.book(handle.guess.tool, {WASTED: 1})
            return None
        return handle

    def match(self, flight: Flight, answer: AIMessage) -> None:
        """Keeps the calls that the model asks for, each once; the others are thrown away."""
        asked = [(call["name"], canon_args(call["args"])) for call in answer.tool_calls]
        changes = any(flight.changes(name) for name, _ in asked)
        left: list[Handle] = []
        for handle in flight.handles:
            wanted = (handle.guess.tool, handle.guess.text)
            if wanted in asked and (not changes or flight.is_stable(handle.guess.tool)):
                asked.remove(wanted)
                left.append(handle)
            else:
                handle.cancel()
                self.book(handle.guess.tool, {WASTED: 1})
        flight.handles, flight.matched = left, True

    def over(self, flight: Flight, left: Sequence[Handle]) -> None:
        """Nobody came for these: if the model asked for them, something held them back."""
        try:
            for handle in left:
                self.book(handle.guess.tool, {WASTED: 1, UNCLAIMED: int(flight.matched)})
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self.errors.failed(error)


class Prefetcher(Served):
    """Runs look-ups ahead of model calls.

    Args:
        core: of the memory.
        flights: of the memory: where a tool call finds its result.
        settings: which, and how many.
        gates: what of the host stands between a call and its execution.
        messages_key: key of the messages in the host's state.
    """

    def __init__(
        self,
        core: Core,
        flights: Flights,
        settings: Prefetch,
        *,
        gates: Gates = Gates(),  # noqa: B008 - a tuple
        messages_key: str = "messages",
    ) -> None:
        super().__init__(core, flights, ErrorLog("prefetch", logger), messages_key=messages_key)
        self._settings, self._gates = settings, gates
        self._workers = flights.workers(settings.workers)
        self._known: dict[Any, tuple[list[BaseTool], Qualified]] = {}

    # --- the model is asked ---

    def begin(self, call: Call) -> Flight | None:
        """Begins the likeliest look-ups."""
        try:
            return self._begun(call)
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self.errors.failed(error)
            return None

    def _begun(self, call: Call) -> Flight | None:
        owner: Owner = (call.thread_id, call.user_id)
        self.flights.sweep(owner)
        if (kept := self.flights.again(call.runtime)) is not None:
            return kept  # the same model call is tried once more
        foresight: Foresight | None = call.foresight
        if foresight is not None and isinstance(foresight.policy, PaperPolicy):
            self._tell_once(PAPER)
        if foresight is None or not foresight.foreseen or call.tool_choice not in _FREE_CHOICE:
            return None
        loop, config = loop_of_run(), config_of()
        if loop is not None and config is None:
            self._tell_once(NO_CONFIG)
            return None
        core = self.core
        with core.lock:
            specs = core.catalogue.marked(call.tools)
            tools = self._qualified(call, specs, foresight.policy)

            def may(tool: str, args: Mapping[str, Any]) -> bool:
                return self._may(tools.get(tool), specs, call, tool, args, loop is not None)

            counters = core.graph.counters
            least = least_probability(self._settings, counters.get(SERVED, 0.0), counters.get(WASTED, 0.0))
            guesses = choose(foresight.foreseen, self._settings, least, may)
        handles = self._started(guesses, tools, Host(config, call.runtime, loop))
        if not handles:
            return None

        told = [
            {"tool": h.guess.tool, "args": dict(h.guess.args), "probability": round(h.guess.probability, 4)}
            for h in handles
        ]
        emit(call.runtime, {"node": "prefetch", "started": told})

        def changes(name: str) -> bool:
            return name not in specs or may_write(name, specs, foresight.policy)

        return Flight(handles, owner, self.over, changes, self._settings.stable.__contains__)

    def _may(
        self,
        tool: BaseTool | None,
        specs: Mapping[str, ToolSpec],
        call: Call,
        name: str,
        args: Mapping[str, Any],
        in_loop: bool,
    ) -> bool:
        if tool is None or not call.allows(name) or not (is_sync(tool) or (in_loop and is_async(tool))):
            return False
        named = self._settings.tools is not None
        return not held_back(self.core.graph, name, named=named) and specs[name].problem(args) is None

    def _started(self, guesses: Sequence[Guess], tools: Mapping[str, BaseTool], host: Host) -> list[Handle]:
        handles: list[Handle] = []
        for guess in guesses:
            now = monotonic()
            handle = Handle(guess, tools[guess.tool], now, now + self._settings.timeout)
            if not self._workers.begin(handle, host):
                break
            handles.append(handle)
            self.book(guess.tool, {STARTED: 1})
        return handles

    def _qualified(self, call: Call, specs: Mapping[str, ToolSpec], policy: InertiaPolicy) -> Mapping[str, BaseTool]:
        offered = [tool for tool in call.offered if isinstance(tool, BaseTool)]
        key = (tuple(map(id, offered)), policy)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MAX_TOOL_SETS:
                self._known.clear()
            found = qualified({tool.name: tool for tool in offered}, specs, policy, self._settings, self._gates)
            known = self._known[key] = offered, found
            self._tell_once(found.in_words)
        return known[1].may

    def _tell_once(self, what: str) -> None:
        told = self.flights.told
        if what not in told and len(told) < MAX_TOOL_SETS:
            told.add(what)
            logger.warning("%s", what)

    # --- it answers, or does not ---

    def answered(self, under_way: Flight | None, answer: Sequence[Any]) -> list[Any]:
        """Throws away what it does not ask for; the rest hangs on the answer, of which this run gets its own copy."""
        messages = list(answer)
        if under_way is None:
            return messages
        try:
            at = next((n for n in reversed(range(len(messages))) if isinstance(messages[n], AIMessage)), None)
            self.match(under_way, AIMessage("") if at is None else messages[at])
            if under_way.handles and at is not None:
                messages[at] = messages[at].model_copy()  # a cache gives the same object to everybody
                self.flights.hang(messages[at], under_way)
        except Exception as error:  # noqa: BLE001 - the memory must never hurt the host
            self.errors.failed(error)
        return messages

    def failed(self, under_way: Flight | None, call: Call) -> None:
        """Keeps what is under way for the next attempt, which has the same runtime; it is given up at its deadline."""
        if under_way is not None and call.runtime is not None:
            self.flights.keep(call.runtime, under_way)

    def dropped(self, under_way: Flight | None) -> None:
        """Stops what is under way. Nothing is locked or booked: this may happen anywhere."""
        for handle in under_way.handles if under_way is not None else ():
            handle.cancel()

    # --- in a plain graph, where the answer is not seen ---

    def begin_unseen(self, call: Call) -> None:
        """Begins the likeliest look-ups of a model call whose answer will be seen when its calls are executed."""
        if call.foresight is None:
            return
        place = place_of((call.thread_id, call.user_id), call.messages[-1] if call.messages else None)
        if place is None:
            self._tell_once(NO_PLACE)
        elif not self.flights.watched and self.flights.placed >= PATIENCE:
            self._tell_once(UNWATCHED)
        elif (flight := self.begin(call)) is not None:
            self.flights.place(place, flight)


def place_of(owner: Owner, before: Any) -> Place | None:
    """Where an answer will stand; None if that cannot be told for sure."""
    thread, user = owner
    message = getattr(before, "id", None)
    return Place(thread, user, message) if thread and user and message else None


def _is_same(one: BaseTool, other: BaseTool | None) -> bool:
    """Return True unless another tool was put in its place; each ``ToolNode`` makes its own tool of a function."""
    if one is other:
        return True
    bodies = [(getattr(each, "func", None), getattr(each, "coroutine", None)) for each in (one, other)]
    return bodies[0] == bodies[1] != (None, None)
