"""How long one step of a host has waited for something remote: a step waits for all of it together, not for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Waits:
    """Seconds that a step has waited, and what it waits for before the host goes on."""

    def __init__(self) -> None:
        self.waited = 0.0
        self.last: dict[Callable[[], None], None] = {}


_STEP: ContextVar[Waits | None] = ContextVar("toolmem_step", default=None)


@contextmanager
def step(waits: Waits) -> Iterator[None]:
    """What is done inside belongs to a step."""
    token = _STEP.set(waits)
    try:
        yield
    finally:
        last, waits.last = waits.last, {}
        for each in last:
            each()
        _STEP.reset(token)


def this_step() -> Waits | None:
    """The step that is under way here; None outside of one."""
    return _STEP.get()
