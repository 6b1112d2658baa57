"""How far a cold start is, as a value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Progress:
    """How far a cold start is.

    Attributes:
        wanted: requests it is to run.
        waiting: requests that were not run yet.
        unfinished: runs that are over and wait for the judge.
        good: runs that went well.
        wrong: runs that went wrong.
        unjudged: runs that nobody judged; recalled only where `unjudged` is set.
        empty: runs in which no tool was called, and nobody said that this was wrong; they become no entries.
        failed: runs that raised or were broken off.
        model_calls: calls of models so far, of all sessions.
        tokens: tokens so far.
        left_out: invented requests that were not taken, by reason, in this session.
        unwritten: entries and critiques that the memory has still to write; it does so by itself, now or later.
        stopped: why it ended before all was done, or "".
        errors: why runs failed, latest last, at most five.
    """

    wanted: int
    waiting: int = 0
    unfinished: int = 0
    good: int = 0
    wrong: int = 0
    unjudged: int = 0
    empty: int = 0
    failed: int = 0
    model_calls: int = 0
    tokens: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    unwritten: int = 0
    stopped: str = ""
    errors: tuple[str, ...] = ()

    @property
    def entries(self) -> int:
        """Runs that became entries."""
        return self.good + self.wrong + self.unjudged

    @property
    def run(self) -> int:
        """Requests whose run is over, well or not."""
        return self.entries + self.empty + self.failed + self.unfinished

    @property
    def invented(self) -> int:
        """Requests there are."""
        return self.run + self.waiting

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        values = {name: getattr(self, name) for name in ("invented", "run", "entries")}
        return {**values, **vars(self), "errors": list(self.errors), "left_out": dict(self.left_out)}
