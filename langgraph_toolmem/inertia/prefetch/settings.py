"""What is run ahead of the model, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from langgraph_toolmem.base.checks import expect, is_count, is_number, is_share, names_given, options_named


@options_named
@dataclass(frozen=True)
class Prefetch:
    """Which look-ups run while the model is thinking.

    Only tools that are declared to read are run ahead (``ToolMemory(reads=...)``, tag or metadata ``read_only``, MCP's
    ``readOnlyHint``), and only those that take
    nothing from the host (state, store, runtime, call id). What costs money or counts against a quota is taken out by
    a tag ``no_prefetch``, or by that word or ``"prefetch": False`` in the metadata.

    Attributes:
        tools: nothing but these tools; they may be run ahead although something of the host's wraps tool calls.
            None: all that qualify, where nothing wraps tool calls.
        at_most: calls that are run ahead of one model call.
        min_probability: from which a call is run ahead, judged by the record.
        max_wasted: look-ups thrown away for each one served, in the long run: what is run ahead must be the likelier,
            the more were thrown away so far. None: no such limit.
        timeout: seconds after which a call that runs ahead is given up.
        workers: calls that run ahead at the same time, over all runs; where none is free, none is begun.
        stable: tools whose answer does not change within a run: they are run ahead a second time, right after a call
            that changes something, and beside one.

    Raises:
        ConfigurationError: a value cannot be right; the message names the field.
    """

    tools: frozenset[str] | None = None
    at_most: int = 6
    min_probability: float = 0.08
    max_wasted: float | None = 1.5
    timeout: float = 10.0
    workers: int = 32
    stable: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Checks types and ranges."""
        for name in ("tools", "stable"):
            given: Any = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, frozenset(names_given(f"Prefetch.{name}", given)))
        expect(self, "at_most", "a whole number from 1", lambda v: is_count(v, 1))
        expect(self, "min_probability", "a share from 0 to 1", is_share)
        expect(self, "max_wasted", "a number above 0 or None", lambda v: v is None or (is_number(v) and v > 0))
        expect(self, "timeout", "a number of seconds above 0", lambda v: is_number(v) and v > 0)
        expect(self, "workers", "a whole number from 1", lambda v: is_count(v, 1))


__all__ = ["Prefetch"]
