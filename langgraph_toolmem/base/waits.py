"""The time that one step of a host has waited for remote stores: one budget for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Waits:
    """Seconds that a step has waited, and functions to call before the host continues."""

    def __init__(self) -> None:
        self.waited = 0.0
        self.last: dict[Callable[[], None], None] = {}


_STEP: ContextVar[Waits | None] = ContextVar("toolmem_step", default=None)


@contextmanager
def step(waits: Waits) -> Iterator[None]:
    """Count waits in the block for a step."""
    token = _STEP.set(waits)
    try:
        yield
    finally:
        last, waits.last = waits.last, {}
        for each in last:
            each()
        _STEP.reset(token)


def this_step() -> Waits | None:
    """Return the current step, if any."""
    return _STEP.get()
