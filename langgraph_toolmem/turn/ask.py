"""One body for sync and async: a generator that yields a request, and is sent the answer, as in httpx's authentication.

A request asks a model (`Ask`), lets the host go on (`Proceed`), or waits for work under way (`Wait`). Between two
requests the body may block: in async code it runs in a worker thread. Its waits for remote stores share one budget
(`base.threads`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tracers.context import register_configure_hook
from langgraph.errors import GraphBubbleUp

from langgraph_toolmem.base.threads import StepBudget, step
from langgraph_toolmem.core.core import Costs
from langgraph_toolmem.turn.host import env_mode

R = TypeVar("R")
V = TypeVar("V")
C = TypeVar("C")

ASIDE: Final = RunnableConfig(tags=["nostream"])
"""``langgraph.constants.TAG_NOSTREAM``: the user does not see the memory's own questions."""


def unheard(config: RunnableConfig) -> RunnableConfig:
    """Return a config whose run is hidden from the host's streams: ``astream_events`` listens by a callback of its own.

    Tracers and other callbacks are kept.
    """
    whole = ensure_config(config)
    callbacks = whole.get("callbacks")
    if not isinstance(callbacks, BaseCallbackManager):
        return config
    quiet = callbacks.copy()
    for handler in list(quiet.handlers):
        # Only handlers of `astream_events` and `astream_log` have this method; their classes are private.
        if hasattr(handler, "tap_output_iter"):
            quiet.remove_handler(handler)
    return {**config, "callbacks": quiet}


class Ask(NamedTuple):
    """A question to a model: anything with ``invoke`` and ``ainvoke``. Its errors are raised in the body."""

    model: Runnable[Any, Any]
    input: Any
    config: RunnableConfig = ASIDE


class Proceed(NamedTuple):
    """A call of the host's handler with a request; its errors are raised in the body.

    Attributes:
        request: for the handler.
        listener: a callback for the models that are asked meanwhile; None keeps the present one.
        streams: If False, the answer is not streamed to the user while it is made.
    """

    request: Any
    listener: BaseCallbackHandler | None = None
    streams: bool = True


class Wait(NamedTuple):
    """A wait for a future, for some seconds at most; the body reads the result itself.

    Attributes:
        loop: the event loop that does the work; None if a thread does it.
    """

    future: concurrent.futures.Future[Any]
    seconds: float
    loop: asyncio.AbstractEventLoop | None = None


StepGenerator: TypeAlias = Generator[Any, Any, R]
"""A body that yields requests."""

_LOOP: ContextVar[asyncio.AbstractEventLoop | None] = ContextVar("toolmem_loop", default=None)
_LISTENER: ContextVar[BaseCallbackHandler | None] = ContextVar("toolmem_listener", default=None)
register_configure_hook(_LISTENER, inheritable=False)


def loop_of_run() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that awaits this body; None in sync code."""
    # A body that a loop awaits runs in a worker thread. In the loop's own thread, sync code was called by async code:
    # work for the loop would begin only after that code.
    if _loop_of_thread() is not None:
        return None
    return _LOOP.get()


def _loop_of_thread() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


# --- a body under way ---


class _RunningBody(Generic[R]):
    """A running body, for the loops that answer its requests.

    Args:
        body: a function, or one that makes a generator.
        costs: count the processor time of the body.

    Attributes:
        request: the request that it waits for.
        over: True if it has ended.
        result: its result, once it has ended.
    """

    def __init__(self, body: Callable[[], R | StepGenerator[R]], costs: Costs | None) -> None:
        self._body, self._costs, self._budget = body, costs, StepBudget()
        self._generator: Generator[Any, Any, R] | None = None
        self.request: Any = None
        self.over = False
        self.result: Any = None

    def begin(self) -> None:
        """Run the body until its first request, or its end."""
        with self._at_work():
            made = self._body()
            if isinstance(made, Generator):
                self._generator = made
                self._move(made.send, None)
            else:
                self._end(made)

    def go_on(self, answer: Any, error: Exception | None) -> None:
        """Run the body from a request to the next one, or its end; an error of the request is raised in the body."""
        assert self._generator is not None
        with self._at_work():
            if error is None:
                self._move(self._generator.send, answer)
            else:
                self._move(self._generator.throw, error)

    def close(self) -> None:
        """Stop a body that is not over: after an interrupt, or if its reader stopped."""
        if not self.over and self._generator is not None:
            self._generator.close()

    def _move(self, move: Callable[[Any], Any], value: Any) -> None:
        try:
            self.request = move(value)
        except StopIteration as end:  # a future cannot carry it
            self._end(end.value)

    def _end(self, result: Any) -> None:
        self.request, self.result, self.over = None, result, True

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Run a part of the body: its waits share a budget, and its processor time is counted.

        A memory that is switched off (``TOOLMEM=off``) writes nothing, so it counts nothing.
        """
        working: AbstractContextManager[object] = nullcontext()
        if self._costs is not None and env_mode() != "off":
            working = self._costs.working()
        with step(self._budget), working:
            yield


async def _in_thread(part: Callable[..., None], *given: Any) -> None:
    """Run a part of a body in a worker thread, which knows the event loop that awaits it."""
    loop = asyncio.get_running_loop()

    def run() -> None:
        _LOOP.set(loop)  # in the copy of the context that the thread works in
        part(*given)

    await asyncio.to_thread(run)


# --- sync and async code, and hosts that stream ---


def drive(
    body: Callable[[], R | StepGenerator[R]],
    handler: Callable[[Any], Any] | None = None,
    *,
    costs: Costs | None = None,
) -> R:
    """Run a body in sync code.

    Args:
        body: a function, or one that makes a generator.
        handler: of the host, for `Proceed`.
        costs: count the processor time of the body.
    """
    running = _RunningBody(body, costs)
    running.begin()
    while not running.over:
        answer, failed = None, None
        try:
            request = running.request
            if isinstance(request, Proceed):
                assert handler is not None
                with _proceeding(request):
                    answer = handler(request.request)
            else:
                answer = _answered(request)
        except GraphBubbleUp:
            # An interrupt: the host's run stops here, and LangGraph runs the node again from its beginning.
            running.close()
            raise
        except Exception as error:  # noqa: BLE001 - the body has its own ways with errors
            failed = error
        running.go_on(answer, failed)
    return running.result  # type: ignore[no-any-return]


async def adrive(
    body: Callable[[], R | StepGenerator[R]],
    handler: Callable[[Any], Awaitable[Any]] | None = None,
    *,
    costs: Costs | None = None,
) -> R:
    """Run a body in async code; it runs in a worker thread. See `drive`."""
    running = _RunningBody(body, costs)
    await _in_thread(running.begin)
    while not running.over:
        answer, failed = None, None
        try:
            request = running.request
            if isinstance(request, Proceed):
                assert handler is not None
                with _proceeding(request):
                    answer = await handler(request.request)
            else:
                answer = await _aanswered(request)
        except GraphBubbleUp:
            running.close()
            raise
        except Exception as error:  # noqa: BLE001 - the body has its own ways with errors
            failed = error
        await _in_thread(running.go_on, answer, failed)
    return running.result  # type: ignore[no-any-return]


def drive_stream(
    body: Callable[[], R | StepGenerator[R]],
    handler: Callable[[Any], Iterator[C]],
    joined: Callable[[C | None, C], C],
    *,
    costs: Costs | None = None,
) -> Generator[C, None, R]:
    """Run a body in sync code whose host streams: yield the host's chunks, and return the body's result.

    Args:
        body: a function, or one that makes a generator.
        handler: of the host, for `Proceed`; returns its chunks.
        joined: adds a chunk to those before it. The body is sent all chunks joined.
        costs: see `drive`.
    """
    running = _RunningBody(body, costs)
    running.begin()
    try:
        while not running.over:
            answer: Any = None
            failed = None
            try:
                request = running.request
                if isinstance(request, Proceed):
                    for chunk in handler(request.request):
                        answer = joined(answer, chunk)
                        if request.streams:
                            yield chunk
                else:
                    answer = _answered(request)
            except GraphBubbleUp:
                raise
            except Exception as error:  # noqa: BLE001 - the body has its own ways with errors
                failed = error
            running.go_on(answer, failed)
    finally:
        running.close()
    return running.result  # type: ignore[no-any-return]


async def adrive_stream(
    body: Callable[[], Any],
    handler: Callable[[Any], AsyncIterator[C]],
    joined: Callable[[C | None, C], C],
    finished: Callable[[Any], object],
    *,
    costs: Costs | None = None,
) -> AsyncIterator[C]:
    """Run a body in async code whose host streams, and pass the result to `finished`. See `drive_stream`."""
    running = _RunningBody(body, costs)
    await _in_thread(running.begin)
    try:
        while not running.over:
            answer: Any = None
            failed = None
            try:
                request = running.request
                if isinstance(request, Proceed):
                    async for chunk in handler(request.request):
                        answer = joined(answer, chunk)
                        if request.streams:
                            yield chunk
                else:
                    answer = await _aanswered(request)
            except GraphBubbleUp:
                raise
            except Exception as error:  # noqa: BLE001 - the body has its own ways with errors
                failed = error
            await _in_thread(running.go_on, answer, failed)
    finally:
        running.close()
    finished(running.result)


def _answered(request: Ask | Wait) -> Any:
    """Ask a model, or wait for work under way."""
    if isinstance(request, Ask):
        return request.model.invoke(request.input, unheard(request.config))
    _waited(request)
    return None


async def _aanswered(request: Ask | Wait) -> Any:
    """See `_answered`."""
    if isinstance(request, Ask):
        return await request.model.ainvoke(request.input, unheard(request.config))
    await _awaited(request)
    return None


@contextmanager
def setting(variable: ContextVar[V], value: V) -> Iterator[None]:
    """Give a context variable a value for a while."""
    before = variable.get()
    variable.set(value)
    try:
        yield
    finally:
        # Not by a token: a cancelled run may end in another context, where the token is invalid.
        variable.set(before)


@contextmanager
def _proceeding(request: Proceed) -> Iterator[None]:
    """Have the listener hear the host's model; hide tokens from the user, unless the request streams them."""
    tagged: AbstractContextManager[None] = nullcontext()
    config = var_child_runnable_config.get()
    if not request.streams and config is not None:
        tags = [*(config.get("tags") or ()), *(ASIDE["tags"] or ())]
        aside: RunnableConfig | None = {**config, "tags": tags}
        tagged = setting(var_child_runnable_config, aside)
    with setting(_LISTENER, request.listener or _LISTENER.get()), tagged:
        yield


def _waited(wanted: Wait) -> None:
    """Wait, unless the event loop of this thread does the work: it would wait for itself.

    Work of a thread is awaited also where sync code runs in an event loop (``agent.invoke`` in a notebook or an async
    handler): its model and tools block the loop as well. Without the wait, each look-up was executed twice.
    """
    if wanted.loop is None or wanted.loop is not _loop_of_thread():
        concurrent.futures.wait([wanted.future], max(wanted.seconds, 0.0))


async def _awaited(wanted: Wait) -> None:
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    # Not `wrap_future`: a wait that times out would cancel the work, which another call may still need.
    def wake(_: object) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(woken.set)

    wanted.future.add_done_callback(wake)
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(woken.wait(), max(wanted.seconds, 0.0))
