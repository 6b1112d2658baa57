"""What a cold start may cost."""

from __future__ import annotations

from dataclasses import dataclass

from langgraph_toolmem.base.checks import expect, is_count, is_number


@dataclass(frozen=True)
class Budget:
    """Bounds of a cold start, over all of its sessions.

    Attributes:
        queries: requests that are invented and run, at most.
        model_calls: calls of models, at most: to invent, those of the agent, to judge and to criticise.
        tokens: prompt and answer tokens, as models report their usage, after which no further call is made. The last
            call may go beyond. None: any number.
        calls_per_run: model calls of one run of the agent, after which it is broken off.
        seconds_per_run: seconds of one run of the agent, after which it is broken off.
    """

    queries: int = 50
    model_calls: int = 1000
    tokens: int | None = None
    calls_per_run: int = 40
    seconds_per_run: float = 300.0

    def __post_init__(self) -> None:
        """Checks types and ranges. Raises ConfigurationError that names the field and what is expected."""
        for name in ("queries", "model_calls", "calls_per_run"):
            expect(self, name, "a whole number from 1", lambda v: is_count(v, 1))
        expect(self, "tokens", "None or a whole number from 1", lambda v: v is None or is_count(v, 1))
        expect(self, "seconds_per_run", "a number above 0", lambda v: is_number(v) and v > 0)

    def spent(self, calls: int, tokens: int) -> str:
        """Why no further model call may be made; "" if one may."""
        if calls >= self.model_calls:
            return f"all of {self.model_calls:,} model calls are made"
        if self.tokens is not None and tokens >= self.tokens:
            return f"all of {self.tokens:,} tokens are used"
        return ""
