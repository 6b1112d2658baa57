"""Prefetch: look-ups that the model is likely to ask for, or is asking for, run before its answer is complete.

A look-up begins when it is likely by the record (the candidates of the shortcut's decision), or when the streamed
answer of the model holds all of its arguments. If the model asks for exactly that tool with exactly those arguments,
the result is ready; otherwise it is thrown away. (Speculative Actions, arXiv 2510.04371; PASTE, arXiv 2603.18897.)

``qualify`` says which tools and which calls may be prefetched, ``executor`` runs a call without the host's callbacks,
and ``serve`` follows a model call: the model is asked, it streams, it answers, a tool is called.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from langgraph_toolmem.base.checks import expect, is_count, is_number, is_share, names_given


@dataclass(frozen=True)
class Prefetch:
    """Settings of look-ups that run while the model is thinking.

    Only tools that are declared to read are prefetched (``ToolMemory(reads=...)``, tag or metadata ``read_only``, MCP's
    ``readOnlyHint``), and only those that take nothing from the host (state, store, runtime, call id). A tag
    ``no_prefetch``, or that key in the metadata, excludes what costs money.

    Attributes:
        tools: nothing but these tools; they may be prefetched although something of the host's wraps tool calls.
            None: all that qualify, where nothing wraps tool calls.
        at_most: predicted calls for one model call; those of a streamed answer have no limit.
        min_probability: of a predicted call, by the record.
        max_wasted: predicted look-ups thrown away for each one served, in the long run: the more were thrown away so
            far, the likelier a call must be. None: no such limit.
        timeout: seconds after which a prefetched call is given up.
        workers: prefetched calls at the same time, over all runs; where none is free, none is begun.

    Raises:
        ConfigurationError: a value cannot be right; the message names the field.
    """

    tools: frozenset[str] | None = None
    at_most: int = 6
    min_probability: float = 0.08
    max_wasted: float | None = 1.5
    timeout: float = 10.0
    workers: int = 32

    def __post_init__(self) -> None:
        """Checks types and ranges."""
        given: Any = self.tools
        if given is not None:
            object.__setattr__(self, "tools", frozenset(names_given("Prefetch.tools", given)))
        expect(self, "at_most", "a whole number from 1", lambda v: is_count(v, 1))
        expect(self, "min_probability", "a share from 0 to 1", is_share)
        expect(self, "max_wasted", "a number above 0 or None", lambda v: v is None or (is_number(v) and v > 0))
        expect(self, "timeout", "a number of seconds above 0", lambda v: is_number(v) and v > 0)
        expect(self, "workers", "a whole number from 1", lambda v: is_count(v, 1))


__all__ = ["Prefetch"]
