"""One body for sync and async: a generator that yields what it wants done, and is sent what came of it.

As httpx does authentication. What is wanted is a model's answer (`Ask`), that the host goes on (`Proceed`), or that
something under way is waited for (`Wait`). Between two of them the body may block: where it is awaited, it runs in a
worker thread. What it waits for remote stores is counted over the whole body (`base.threads`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tracers.context import register_configure_hook
from langgraph.errors import GraphBubbleUp

from langgraph_toolmem.base.threads import StepBudget, step

R = TypeVar("R")

ASIDE: Final = RunnableConfig(tags=["nostream"])
"""``langgraph.constants.TAG_NOSTREAM``: what is asked aside is not for the user's eyes."""


class Ask(NamedTuple):
    """A question to a model; an error of the model is raised where it is asked.

    Attributes:
        model: what is asked: anything with ``invoke`` and ``ainvoke``.
        input: the prompt.
        config: of the call.
    """

    model: Runnable[Any, Any]
    input: Any
    config: RunnableConfig = ASIDE


class Proceed(NamedTuple):
    """The host goes on with a request: its handler is called, and its error raised here.

    Attributes:
        request: what the handler gets.
        listener: hears the models that are asked meanwhile; None: nobody, or whoever does so already.
    """

    request: Any
    listener: BaseCallbackHandler | None = None


class Wait(NamedTuple):
    """Something under way is waited for, but not for longer than this many seconds; what came of it, it says itself."""

    future: concurrent.futures.Future[Any]
    seconds: float


StepGenerator: TypeAlias = Generator[Any, Any, R]
"""A body that may ask."""

_LOOP: ContextVar[asyncio.AbstractEventLoop | None] = ContextVar("toolmem_loop", default=None)
_LISTENER: ContextVar[BaseCallbackHandler | None] = ContextVar("toolmem_listener", default=None)
register_configure_hook(_LISTENER, inheritable=False)


def loop_of_run() -> asyncio.AbstractEventLoop | None:
    """Of a body that is awaited: the event loop that awaits it."""
    return _LOOP.get()


def drive(body: Callable[[], R | StepGenerator[R]], handler: Callable[[Any], Any] | None = None) -> R:
    """Runs a body.

    Args:
        body: a function, or one that makes a generator.
        handler: of the host, for `Proceed`.
    """
    waits = StepBudget()
    with step(waits):
        found = body()
    if not isinstance(found, Generator):
        return found
    move: Callable[[], Any] = partial(next, found)
    while True:
        try:
            with step(waits):
                wanted = move()
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        try:
            if isinstance(wanted, Ask):
                answer = wanted.model.invoke(wanted.input, wanted.config)
            elif isinstance(wanted, Wait):
                answer = None
                _waited(wanted)
            else:
                assert handler is not None
                with _heard(wanted.listener):
                    answer = handler(wanted.request)
        except GraphBubbleUp:
            found.close()
            raise
        except Exception as error:  # noqa: BLE001 - the body has its own ways with errors
            move = partial(found.throw, error)
        else:
            move = partial(found.send, answer)


async def adrive(body: Callable[[], R | StepGenerator[R]], handler: Callable[[Any], Awaitable[Any]] | None = None) -> R:
    """Runs a body, what blocks in it in a worker thread."""
    loop, waits = asyncio.get_running_loop(), StepBudget()
    found, wanted = await asyncio.to_thread(_on, loop, waits, partial(_begun, body))
    while found is not None:
        try:
            if isinstance(wanted, Ask):
                answer = await wanted.model.ainvoke(wanted.input, wanted.config)
            elif isinstance(wanted, Wait):
                answer = None
                await _awaited(wanted)
            else:
                assert handler is not None
                with _heard(wanted.listener):
                    answer = await handler(wanted.request)
        except GraphBubbleUp:
            found.close()
            raise
        except Exception as error:  # noqa: BLE001 - the body has its own ways with errors
            move: Callable[[], Any] = partial(found.throw, error)
        else:
            move = partial(found.send, answer)
        found, wanted = await asyncio.to_thread(_on, loop, waits, partial(_moved, found, move))
    return wanted  # type: ignore[no-any-return]


@contextmanager
def _heard(listener: BaseCallbackHandler | None) -> Iterator[None]:
    before = _LISTENER.get()
    _LISTENER.set(listener or before)
    try:
        yield
    finally:
        _LISTENER.set(before)  # not by a token: a cancelled run may end in another context


def _begun(body: Callable[[], Any]) -> tuple[Generator[Any, Any, Any] | None, Any]:
    """The generator and what it wants first; or no generator and the result."""
    found = body()
    return _moved(found, partial(next, found)) if isinstance(found, Generator) else (None, found)


def _moved(found: Generator[Any, Any, Any], move: Callable[[], Any]) -> tuple[Generator[Any, Any, Any] | None, Any]:
    """A StopIteration cannot leave a thread as the exception of a future."""
    try:
        return found, move()
    except StopIteration as end:
        return None, end.value


def _on(loop: asyncio.AbstractEventLoop, waits: StepBudget, do: Callable[[], R]) -> R:
    _LOOP.set(loop)  # in the copy of the context that the thread works in
    with step(waits):
        return do()


def _waited(wanted: Wait) -> None:
    """StepBudget, but never where that would stop an event loop: a sync hook in an async run."""
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
