"""Async twins: a blocking method once more, in a worker thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")


def twin(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """The async twin of a method: the same arguments, result and errors, without blocking the event loop.

    ::

        afinish = twin(finish)

    The method is looked up by its name when the twin is called, so that it follows one that is put in its place.
    """
    name = method.__name__

    async def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        found: R = await asyncio.to_thread(getattr(self, name), *args, **kwargs)
        return found

    update_wrapper(run, method, assigned=())  # the signature
    run.__name__ = f"a{name}"
    run.__qualname__ = f"{method.__qualname__.rpartition('.')[0]}.a{name}"
    run.__doc__ = f"Async twin of `{name}`: the same arguments, result and errors, in a worker thread."
    return run
