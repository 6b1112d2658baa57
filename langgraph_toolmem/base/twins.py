"""Async variants of blocking methods, in a worker thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")


def twin(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Return the async variant of a method (``afinish = twin(finish)``): it runs the method in a worker thread.

    The method is looked up by name at each call, so that an override is followed.
    """
    name = method.__name__

    async def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        found: R = await asyncio.to_thread(getattr(self, name), *args, **kwargs)
        return found

    update_wrapper(run, method, assigned=())  # the signature
    run.__name__ = f"a{name}"
    run.__qualname__ = f"{method.__qualname__.rpartition('.')[0]}.a{name}"
    run.__doc__ = f"Async variant of `{name}`: the same arguments, result and errors, in a worker thread."
    return run
