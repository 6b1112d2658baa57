"""Settings of prefetch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from langgraph_toolmem.base.checks import (
    checks_options,
    expect,
    is_positive,
    is_positive_count,
    is_share,
    names_given,
    or_none,
)


@checks_options
@dataclass(frozen=True)
class Prefetch:
    """Settings of look-ups that run while the model is thinking.

    Only tools that are declared to read are prefetched (``ToolMemory(reads=...)``, tag or metadata ``read_only``, MCP's
    ``readOnlyHint``), and only those that take nothing from the host (state, store, runtime, call id). A tag
    ``no_prefetch``, or that key in the metadata, excludes a tool that costs money.

    Attributes:
        tools: only these tools; they may be prefetched even if the host's middleware wraps tool calls. If None, all
            tools that qualify, unless such middleware exists.
        min_probability: of a predicted call, by the record.
        max_wasted: predicted look-ups discarded for each one served, in the long run: after many discarded look-ups a
            call needs a higher probability. If None, there is no limit.
        timeout: seconds after which a prefetched call is given up.
        workers: limit of prefetched calls at the same time, over all runs.

    Raises:
        ConfigurationError: a value is invalid; the message names the field.
    """

    tools: frozenset[str] | None = None
    min_probability: float = 0.08
    max_wasted: float | None = 1.5
    timeout: float = 10.0
    workers: int = 32

    def __post_init__(self) -> None:
        """Checks types and ranges."""
        given: Any = self.tools
        if given is not None:
            object.__setattr__(self, "tools", frozenset(names_given("Prefetch.tools", given)))
        expect(self, "min_probability", "a share from 0 to 1", is_share)
        expect(self, "max_wasted", "a number above 0 or None", or_none(is_positive))
        expect(self, "timeout", "a number of seconds above 0", is_positive)
        expect(self, "workers", "a whole number from 1", is_positive_count)
