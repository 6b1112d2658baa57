"""The prefetched calls of a memory, until they are served or discarded."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from time import monotonic
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.prebuilt.tool_node import ToolCallRequest

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.copies import SharedByCopies
from langgraph_toolmem.core.core import Core
from langgraph_toolmem.core.users import Owner
from langgraph_toolmem.graph.events import Count, Record, ToolCount
from langgraph_toolmem.inertia.counters import REVIEWED, SECONDS, SERVED, UNCLAIMED, WASTED
from langgraph_toolmem.inertia.prefetch.batch import Branch, Position, PrefetchBatch, last_answer, position_of
from langgraph_toolmem.inertia.prefetch.choice import Lookup
from langgraph_toolmem.inertia.prefetch.task import Host, PrefetchTask, Ran, standing_in
from langgraph_toolmem.inertia.prefetch.tools import is_same
from langgraph_toolmem.runs.values import canon_args
from langgraph_toolmem.turn.ask import StepGenerator, Wait
from langgraph_toolmem.turn.host import emit


class Registry(SharedByCopies):
    """The prefetched calls of a memory, in batches by the answer of the model that asks for them. Safe for threads.

    Each call has a thread or an asyncio task of its own, without a queue.

    In an agent a batch belongs to the object of the answer: ids of threads, runs, calls and messages repeat, and a
    result must not reach another run. In a plain graph it is found by its `Position`.

    Attributes:
        watched: True after the first tool call that could have been served.
        unseen: number of model calls with prefetching so far; only graphs without an agent's tool hooks use it.
    """

    def __init__(self, core: Core) -> None:
        self.core = core
        self.watched, self.unseen = False, 0
        self._lock = threads.lock()
        self._batches: dict[int | Position, PrefetchBatch] = {}
        self._live: set[PrefetchTask] = set()
        threads.at_fork(self)

    def forked(self) -> None:
        """Drop the parent's calls: a fork does not have the parent's threads."""
        self._live.clear()

    def begin(self, task: PrefetchTask, host: Host, most: int) -> bool:
        """Begin a call if fewer than so many run."""
        # Without a free worker the call is not begun: a look-up that waits in a queue is late, and the model makes it
        # itself.
        with self._lock:
            if len(self._live) >= most:
                return False
            task.begin(host)
            self._live.add(task)

        # Runs in the thread that ends the call, maybe within `begin`: it takes no lock. `discard` is atomic.
        def ended(_: Future[Ran]) -> None:
            self._live.discard(task)

        task.future.add_done_callback(ended)
        return True

    def keep(self, batch: PrefetchBatch, at: AIMessage | Position) -> None:
        """Keep a batch for the calls of an answer."""
        # The listener keeps the model call, and the answer is a weak reference: a batch disappears with its run.
        batch.listener = None
        if isinstance(at, AIMessage):
            batch.answer = weakref.ref(at)
        key = id(at) if isinstance(at, AIMessage) else at
        with self._lock:
            self._batches[key] = batch

    def waste_over(self, branch: Branch) -> None:
        """Discard results that can no longer be requested, when the next model call of a branch begins."""
        with self._lock:
            over = [key for key, batch in self._batches.items() if _is_over(batch, branch)]
            batches = [self._batches.pop(key) for key in over]
        # Counting takes the memory's lock: it is done outside this lock, so that neither waits within the other.
        for batch in batches:
            self.waste(batch.tasks.values(), unclaimed=batch.matched)

    def waste(self, tasks: Iterable[PrefetchTask], *, unclaimed: bool = False) -> None:
        """Discard calls, and count them; `unclaimed`: the model asked for them."""
        for task in tasks:
            task.future.cancel()
            self._count(task.lookup, {WASTED: 1, UNCLAIMED: int(unclaimed)})

    def serve(self, request: ToolCallRequest, messages: Sequence[Any], owner: Owner) -> StepGenerator[ToolCallRequest]:
        """Return the request with a tool that has the result, if it was prefetched; otherwise the request."""
        self.watched = True
        task = self._task_of(request, messages, owner)
        asked_at = monotonic()
        if task is None:
            return request
        # A running look-up is awaited: a second one would take the whole time again.
        if not task.future.done():
            yield Wait(task.future, task.deadline - asked_at)
        ran = task.ready
        if ran is None:
            self.waste([task])
            return request
        # At most the duration of the call, and at most its head start on this request.
        saved = max(min(ran.seconds, asked_at - task.started), 0.0)
        self._count(task.lookup, {SERVED: 1, SECONDS: saved})
        event = {"node": "prefetch", "served": task.lookup.tool, "seconds_saved": round(saved, 3)}
        emit(request.runtime, event, on=self.core.events)  # type: ignore[arg-type]
        return request.override(tool=standing_in(task.tool, ran))

    def _task_of(self, request: ToolCallRequest, messages: Sequence[Any], owner: Owner) -> PrefetchTask | None:
        """Return the prefetched call that a tool call asks for; the others of its answer are discarded."""
        call, answered_at = request.tool_call, last_answer(messages)
        if not self._batches or answered_at is None:
            return None
        answer = messages[answered_at]
        # The host may give a tool node a call of its own, which is not in an answer.
        if all(asked["id"] != call["id"] for asked in answer.tool_calls):
            return None
        before = messages[answered_at - 1] if answered_at else None
        batch = self._batch_of(answer, before, owner)
        if batch is None or batch.branch.owner != owner:
            return None
        with self._lock:
            wasted = [] if batch.matched else batch.match(answer)
            task = batch.tasks.pop((call["name"], canon_args(call["args"])), None)
        if task is not None and not is_same(task.tool, request.tool):
            wasted.append(task)
            task = None
        self.waste(wasted)
        return task

    def _batch_of(self, answer: AIMessage, before: Any, owner: Owner) -> PrefetchBatch | None:
        """Return the batch of an answer: in an agent by the object, in a plain graph by the message before it."""
        batch = self._batches.get(id(answer))
        # Python reuses the id of a deleted object, so the object itself is compared.
        if batch is not None and batch.answer is not None and batch.answer() is answer:
            return batch
        position = None if before is None else position_of(owner, before)
        if position is None:
            return None
        return self._batches.get(position)

    def _count(self, lookup: Lookup, counts: Mapping[str, float]) -> None:
        if self.core.read_only:
            return
        record: Record = []
        for name, amount in counts.items():
            if amount:
                record.append(ToolCount(lookup.tool, name, amount))
        if lookup.probability < 1:  # streamed calls are not evidence about predictions
            for name in (SERVED, WASTED):
                if counts.get(name):
                    record.append(Count(name, counts[name]))
        with self.core.lock:
            self.core.apply(None, record)


def count_pause(core: Core, tool: str) -> None:
    """Record that the run paused before a call of a tool: from now on the tool is not looked up apart from the run."""
    if not core.read_only:
        with core.lock:
            core.apply(None, [ToolCount(tool, REVIEWED, 1)])


def _is_over(batch: PrefetchBatch, branch: Branch) -> bool:
    """Return True if a batch is too old, its answer was deleted, or its branch has continued."""
    # A plain graph has no answer to watch: the next step of its branch ends the batch. A thread may have other branches
    # at the same time, whose look-ups are kept.
    now = monotonic()
    if all(task.deadline < now for task in batch.tasks.values()):
        return True
    if batch.answer is None:
        return batch.branch == branch
    return batch.answer() is None
