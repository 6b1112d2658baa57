"""Calls that run ahead, and whose answer of the model they hang on.

Nothing waits here: a call begins only if a worker is free, a thread of its own (daemon: it holds nobody up at the end)
or, for a tool with async code in an async run, a task of that run's loop.
"""

from __future__ import annotations

import asyncio
import os
import sys
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Final, NamedTuple

from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool

from langgraph_toolmem.base import threads
from langgraph_toolmem.inertia.prefetch.choice import Guess
from langgraph_toolmem.inertia.prefetch.inside import Ran, arun_ahead, is_async, run_ahead
from langgraph_toolmem.inertia.prefetch.surroundings import config_apart, context_apart

MAX_FLIGHTS: Final = 1_024
"""Model calls of plain graphs whose answer is waited for at the same time."""
IDLE: Final = 30.0
"""Seconds that a thread waits for another call."""


class Host(NamedTuple):
    """The run that a call is made ahead for.

    Attributes:
        config: of the node that runs now.
        runtime: of that node.
        loop: of an async run; None if the run is sync.
    """

    config: Any
    runtime: Any
    loop: asyncio.AbstractEventLoop | None


@dataclass(eq=False)
class Handle:
    """One call that runs ahead.

    Attributes:
        guess: the call.
        tool: the very tool.
        started: when it began, in seconds of `monotonic`.
        deadline: when it is given up.
        future: what came of it.
    """

    guess: Guess
    tool: BaseTool
    started: float
    deadline: float
    future: Future[Ran] = field(default_factory=Future)
    _stop: Callable[[], object] | None = field(default=None, init=False)

    def begin(self, host: Host, workers: Workers) -> None:
        """Begins the call with a worker that was taken for it."""
        written: list[Any] = []
        config = config_apart(host.config, host.runtime, written.append)
        context = context_apart(config)
        if host.loop is not None and is_async(self.tool):
            self._begin_task(host.loop, context, config, written, workers.free)
        else:
            workers.do(partial(context.run, self._work, config, written, workers.free))

    def _work(self, config: Any, written: list[Any], free: Callable[[], object]) -> None:
        try:
            value = run_ahead(self.tool, self.guess.args, config)
            self._done(Ran(value, written, monotonic() - self.started))
        except BaseException as error:  # noqa: BLE001 - the call is made again if the model asks for it
            self._failed(error)
        finally:
            free()

    def _begin_task(
        self,
        loop: asyncio.AbstractEventLoop,
        context: Any,
        config: Any,
        written: list[Any],
        free: Callable[[], object],
    ) -> None:
        async def work() -> None:
            try:
                value = await arun_ahead(self.tool, self.guess.args, config)
                self._done(Ran(value, written, monotonic() - self.started))
            except BaseException as error:
                self._failed(error)
                if not isinstance(error, (Exception, asyncio.CancelledError)):
                    raise

        def start() -> None:
            if self.future.cancelled():
                free()
                return
            task = context.run(loop.create_task, work())
            timer = loop.call_later(max(self.deadline - monotonic(), 0.0), task.cancel)
            self._stop = lambda: loop.call_soon_threadsafe(task.cancel)

            def over(_: object) -> None:
                timer.cancel()
                free()

            task.add_done_callback(over)
            if self.future.cancelled():
                task.cancel()

        loop.call_soon_threadsafe(start)

    def _done(self, ran: Ran) -> None:
        if self.future.set_running_or_notify_cancel():
            self.future.set_result(ran)

    def _failed(self, error: BaseException) -> None:
        if not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    @property
    def ready(self) -> Ran | None:
        """What came of it; None if it is not over yet, failed, or is too old."""
        if not self.future.done() or self.future.cancelled() or monotonic() > self.deadline:
            return None
        return None if self.future.exception() else self.future.result()

    def cancel(self) -> None:
        """Nobody wants it any more. What cannot be stopped ends unheard."""
        self.future.cancel()
        if self._stop is not None:
            with suppress(RuntimeError):  # its loop is closed
                self._stop()


class Workers:
    """Does calls at the same time, so many at most; nothing queues.

    Its threads are kept for a while: a new one would hold its maker up until it runs.
    """

    def __init__(self, many: int) -> None:
        self._many = many
        self._reset()

    def _reset(self) -> None:
        self._lock, self._process, self._busy = threads.lock(), os.getpid(), 0
        self._idle: list[SimpleQueue[Callable[[], object]]] = []

    def begin(self, handle: Handle, host: Host) -> bool:
        """Begins a call if a worker is free."""
        if self._process != os.getpid():  # a fork has no threads
            self._reset()
        with self._lock:
            if self._busy >= self._many:
                return False
            self._busy += 1
        try:
            handle.begin(host, self)
        except BaseException:
            self.free()
            raise
        return True

    def free(self) -> None:
        """A call is over."""
        with self._lock:
            self._busy -= 1

    def do(self, job: Callable[[], object]) -> None:
        """Does it in a thread."""
        with self._lock:
            mine = self._idle.pop() if self._idle else None
        if mine is not None:
            mine.put(job)
            return
        mine = SimpleQueue()
        mine.put(job)
        threads.start("toolmem-prefetch", partial(self._work, mine))
        threads.at_exit(self)

    def stop(self, end: float) -> None:
        """End idle threads at the end of the interpreter, and begin nothing more."""
        with self._lock:
            self._busy = self._many
            idle, self._idle = self._idle, []
        for mine in idle:
            mine.put(sys.exit)

    def _work(self, mine: SimpleQueue[Callable[[], object]]) -> None:
        while True:
            try:
                mine.get(timeout=IDLE)()
            except Empty:
                with self._lock:
                    if mine in self._idle:
                        self._idle.remove(mine)
                        return
                continue  # a job is on its way
            with self._lock:
                self._idle.append(mine)


Owner = tuple[str | None, str | None]
"""Thread and user of a run."""


@dataclass(eq=False)
class Flight:
    """The calls that run ahead of one model call.

    Attributes:
        handles: not yet served, thrown away or given up.
        owner: thread and user of the run; nobody else is served.
        over: told of the handles that nobody came for, once it is clear that nobody will.
        changes: whether a tool may change something.
        is_stable: whether the answer of a tool stays the same all the same.
        matched: the model has answered, and asks for those that are left.
    """

    handles: list[Handle]
    owner: Owner
    over: Callable[[Flight, Sequence[Handle]], object]
    changes: Callable[[str], bool]
    is_stable: Callable[[str], bool]
    matched: bool = False

    @property
    def deadline(self) -> float:
        """When the last of its calls is given up."""
        return max((each.deadline for each in self.handles), default=0.0)


class Place(NamedTuple):
    """Where the answer of the model will stand in a plain graph: thread, user, and id of the message before it."""

    thread: str
    user: str
    message: str


class Flights:
    """Calls that run ahead, by the answer of the model that asks for them. Safe to use from several threads.

    Where the answer is at hand, they hang on that very object: ids of threads, runs, calls and messages repeat, and
    what one user is told must not come to another. In a plain graph they are found by thread, user and the message
    before the answer, all three known.

    Attributes:
        told: what the log was told once.
        watched: whether a tool call came by that could have been served.
        placed: flights of plain graphs so far.
    """

    def __init__(self) -> None:
        self._lock = threads.rlock()
        self._hung: dict[int, tuple[weakref.ref[AIMessage], Flight]] = {}
        self._placed: OrderedDict[Place, Flight] = OrderedDict()
        self._kept: dict[int, tuple[Any, Flight]] = {}
        self._gone: deque[Flight] = deque()
        self._workers: dict[int, Workers] = {}
        self.told: set[str] = set()
        self.watched, self.placed = False, 0

    def workers(self, many: int) -> Workers:
        """The memory's workers; those who want as many share them: an app may make an agent for each request."""
        return self._workers.setdefault(many, Workers(many))

    def hang(self, message: AIMessage, flight: Flight) -> None:
        """Hangs a flight on the answer that asks for its calls; they go with it."""
        key = id(message)

        def gone(_: object) -> None:  # wherever the last reference goes; no lock is taken here
            if (entry := self._hung.pop(key, None)) is not None:
                self._gone.append(entry[1])

        self._hung[key] = weakref.ref(message, gone), flight

    def place(self, at: Place, flight: Flight) -> None:
        """Keeps a flight whose answer will not be seen before its calls come."""
        with self._lock:
            self.placed += 1
            old = self._placed.pop(at, None)
            self._placed[at] = flight
            surplus = [self._placed.popitem(last=False)[1]] if len(self._placed) > MAX_FLIGHTS else []
        for each in (old, *surplus):
            if each is not None:
                self._end(each)

    def keep(self, runtime: Any, flight: Flight) -> None:
        """Keeps a flight whose model call failed: a retry has the same runtime."""
        self._kept[id(runtime)] = runtime, flight

    def again(self, runtime: Any) -> Flight | None:
        """The flight of a model call that failed, if this is a retry of it."""
        kept = self._kept.pop(id(runtime), None) if self._kept else None
        return kept[1] if kept is not None and kept[0] is runtime and kept[1].deadline > monotonic() else None

    def __bool__(self) -> bool:
        """Whether anything is under way."""
        return bool(self._hung or self._placed)

    def on(self, message: AIMessage) -> Flight | None:
        """The flight that hangs on this very message."""
        entry = self._hung.get(id(message))
        return entry[1] if entry is not None and entry[0]() is message else None

    def at(self, at: Place) -> Flight | None:
        """The flight of a place."""
        with self._lock:
            return self._placed.get(at)

    def take(self, flight: Flight, tool: str, text: str) -> Handle | None:
        """The handle of a call: each is given out once."""
        with self._lock:
            for handle in flight.handles:
                if handle.guess.tool == tool and handle.guess.text == text:
                    flight.handles.remove(handle)
                    return handle
        return None

    def sweep(self, owner: Owner) -> None:
        """Ends what nobody will ask for any more: its answer is gone, it is too old, or its thread has gone on."""
        now = monotonic()
        ended: list[Flight] = []
        tables: tuple[dict[int, tuple[Any, Flight]], ...] = (self._hung, self._kept)
        for table in tables:
            late = [key for key, (_, flight) in list(table.items()) if flight.deadline < now]
            ended += [entry[1] for key in late if (entry := table.pop(key, None)) is not None]
        with self._lock:
            for at, flight in list(self._placed.items()):
                if flight.deadline < now or flight.owner == owner:
                    ended.append(self._placed.pop(at))
        while self._gone:
            ended.append(self._gone.popleft())
        for flight in ended:
            self._end(flight)

    def _end(self, flight: Flight) -> None:
        with self._lock:
            left, flight.handles = flight.handles, []
        for handle in left:
            handle.cancel()
        if left:
            flight.over(flight, left)
