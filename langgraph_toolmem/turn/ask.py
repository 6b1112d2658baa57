"""One body for sync and async: a generator that yields a request, and is sent the answer, as in httpx's authentication.

A request asks a model (`Ask`), lets the host go on (`Proceed`), or waits for work under way (`Wait`). Between two
requests the body may block: in async code it runs in a worker thread. Its waits for remote stores share one budget
(`base.threads`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.runnables import Runnable, RunnableConfig, ensure_config
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tracers.context import register_configure_hook
from langgraph.errors import GraphBubbleUp

from langgraph_toolmem.base.threads import StepBudget, step
from langgraph_toolmem.core.costs import Costs
from langgraph_toolmem.turn.host import env_mode

R = TypeVar("R")
C = TypeVar("C")

ASIDE: Final = RunnableConfig(tags=["nostream"])
"""``langgraph.constants.TAG_NOSTREAM``: the user does not see the memory's own questions."""


def unheard(config: RunnableConfig) -> RunnableConfig:
    """Return a config whose run no stream of the host shows: ``astream_events`` listens by a callback of its own.

    Tracers and other callbacks stay.
    """
    whole = ensure_config(config)
    callbacks = whole.get("callbacks")
    if not isinstance(callbacks, BaseCallbackManager):
        return config
    quiet = callbacks.copy()
    for handler in [handler for handler in quiet.handlers if hasattr(handler, "tap_output_iter")]:
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
        streams: False: the answer is not streamed to the user while it is made.
    """

    request: Any
    listener: BaseCallbackHandler | None = None
    streams: bool = True


class Wait(NamedTuple):
    """A wait for a future, for some seconds at most; the body reads the result itself."""

    future: concurrent.futures.Future[Any]
    seconds: float


StepGenerator: TypeAlias = Generator[Any, Any, R]
"""A body that yields requests."""

_LOOP: ContextVar[asyncio.AbstractEventLoop | None] = ContextVar("toolmem_loop", default=None)
_LISTENER: ContextVar[BaseCallbackHandler | None] = ContextVar("toolmem_listener", default=None)
register_configure_hook(_LISTENER, inheritable=False)


def loop_of_run() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that awaits this body; None in sync code."""
    return _LOOP.get()


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
    budget = StepBudget()
    with _at_work(budget, costs):
        found, wanted = _begun(body)
    while found is not None:
        try:
            if isinstance(wanted, Ask):
                answer = wanted.model.invoke(wanted.input, unheard(wanted.config))
            elif isinstance(wanted, Wait):
                answer = None
                _waited(wanted)
            else:
                assert handler is not None
                with _heard(wanted.listener), _streamed(wanted.streams):
                    answer = handler(wanted.request)
        except GraphBubbleUp:
            found.close()
            raise
        except Exception as error:  # noqa: BLE001 - the body has its own ways with errors
            move: Callable[[], Any] = partial(found.throw, error)
        else:
            move = partial(found.send, answer)
        with _at_work(budget, costs):
            found, wanted = _moved(found, move)
    return wanted  # type: ignore[no-any-return]


async def adrive(
    body: Callable[[], R | StepGenerator[R]],
    handler: Callable[[Any], Awaitable[Any]] | None = None,
    *,
    costs: Costs | None = None,
) -> R:
    """Run a body in async code; it runs in a worker thread. See `drive`."""
    loop, budget = asyncio.get_running_loop(), StepBudget()
    found, wanted = await asyncio.to_thread(_on, loop, budget, costs, partial(_begun, body))
    while found is not None:
        try:
            if isinstance(wanted, Ask):
                answer = await wanted.model.ainvoke(wanted.input, unheard(wanted.config))
            elif isinstance(wanted, Wait):
                answer = None
                await _awaited(wanted)
            else:
                assert handler is not None
                with _heard(wanted.listener), _streamed(wanted.streams):
                    answer = await handler(wanted.request)
        except GraphBubbleUp:
            found.close()
            raise
        except Exception as error:  # noqa: BLE001 - the body has its own ways with errors
            move: Callable[[], Any] = partial(found.throw, error)
        else:
            move = partial(found.send, answer)
        found, wanted = await asyncio.to_thread(_on, loop, budget, costs, partial(_moved, found, move))
    return wanted  # type: ignore[no-any-return]


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
    budget = StepBudget()
    with _at_work(budget, costs):
        found, wanted = _begun(body)
    try:
        while found is not None:
            try:
                if isinstance(wanted, Proceed):
                    answer: Any = None
                    for chunk in handler(wanted.request):
                        answer = joined(answer, chunk)
                        if wanted.streams:
                            yield chunk
                elif isinstance(wanted, Ask):
                    answer = wanted.model.invoke(wanted.input, unheard(wanted.config))
                else:
                    answer = None
                    _waited(wanted)
            except GraphBubbleUp:
                raise
            except Exception as error:  # noqa: BLE001 - the body has its own ways with errors
                move: Callable[[], Any] = partial(found.throw, error)
            else:
                move = partial(found.send, answer)
            with _at_work(budget, costs):
                found, wanted = _moved(found, move)
    finally:
        if found is not None:  # an interrupt, or nobody reads on
            found.close()
    return wanted  # type: ignore[no-any-return]


async def adrive_stream(
    body: Callable[[], Any],
    handler: Callable[[Any], AsyncIterator[C]],
    joined: Callable[[C | None, C], C],
    finished: Callable[[Any], object],
    *,
    costs: Costs | None = None,
) -> AsyncIterator[C]:
    """Run a body in async code whose host streams; `finished` is given the result. See `drive_stream`."""
    loop, budget = asyncio.get_running_loop(), StepBudget()
    found, wanted = await asyncio.to_thread(_on, loop, budget, costs, partial(_begun, body))
    try:
        while found is not None:
            try:
                if isinstance(wanted, Proceed):
                    answer: Any = None
                    async for chunk in handler(wanted.request):
                        answer = joined(answer, chunk)
                        if wanted.streams:
                            yield chunk
                elif isinstance(wanted, Ask):
                    answer = await wanted.model.ainvoke(wanted.input, unheard(wanted.config))
                else:
                    answer = None
                    await _awaited(wanted)
            except GraphBubbleUp:
                raise
            except Exception as error:  # noqa: BLE001 - the body has its own ways with errors
                move: Callable[[], Any] = partial(found.throw, error)
            else:
                move = partial(found.send, answer)
            found, wanted = await asyncio.to_thread(_on, loop, budget, costs, partial(_moved, found, move))
    finally:
        if found is not None:
            found.close()
    finished(wanted)


@contextmanager
def _heard(listener: BaseCallbackHandler | None) -> Iterator[None]:
    before = _LISTENER.get()
    _LISTENER.set(listener or before)
    try:
        yield
    finally:
        _LISTENER.set(before)  # not by a token: a cancelled run may end in another context


@contextmanager
def _streamed(streams: bool) -> Iterator[None]:
    """Keep the tokens of models that are asked meanwhile from the user, unless they are streamed."""
    config = var_child_runnable_config.get()
    if streams or config is None:
        yield
        return
    tags = [*(config.get("tags") or ()), *(ASIDE["tags"] or ())]
    var_child_runnable_config.set({**config, "tags": tags})
    try:
        yield
    finally:
        var_child_runnable_config.set(config)  # not by a token: a cancelled run may end in another context


def _begun(body: Callable[[], Any]) -> tuple[Generator[Any, Any, Any] | None, Any]:
    """Return the generator and its first request, or None and the result."""
    found = body()
    return _moved(found, partial(next, found)) if isinstance(found, Generator) else (None, found)


def _moved(found: Generator[Any, Any, Any], move: Callable[[], Any]) -> tuple[Generator[Any, Any, Any] | None, Any]:
    """Return the generator and its next request, or None and the result: a future cannot carry a StopIteration."""
    try:
        return found, move()
    except StopIteration as end:
        return None, end.value


@contextmanager
def _at_work(budget: StepBudget, costs: Costs | None) -> Iterator[None]:
    """Run a part of a body: its waits share a budget, and its processor time is counted.

    A memory that is switched off (``TOOLMEM=off``) writes nothing, so it counts nothing.
    """
    if env_mode() == "off":
        costs = None
    with step(budget), nullcontext() if costs is None else costs.working():
        yield


def _on(loop: asyncio.AbstractEventLoop, budget: StepBudget, costs: Costs | None, do: Callable[[], R]) -> R:
    _LOOP.set(loop)  # in the copy of the context that the thread works in
    with _at_work(budget, costs):
        return do()


def _waited(wanted: Wait) -> None:
    """Wait, but not where that would stop an event loop: a sync hook in an async run."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        concurrent.futures.wait([wanted.future], max(wanted.seconds, 0.0))


async def _awaited(wanted: Wait) -> None:
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    def wake(_: object) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(woken.set)

    wanted.future.add_done_callback(wake)
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(woken.wait(), max(wanted.seconds, 0.0))
