"""Does a workload have inertia: how many bits of the next tool do the previous tools tell?

Measured by online code length for contexts of 0, 1 and 2 previous tools (the run's start is one more symbol): each call
is coded with what came before it only, so learning is paid for. The question is that of section 3 of AutoTool (arXiv
2511.14650). With n calls seen in a context, n_s of them tool s, and d distinct tools among them,

    P_k(s | context) = max(n_s − ½, 0) / n  +  d / (2n) · P_{k−1}(s | one tool less)
    P_0(s)           = (n_s − ½) / n  for a tool seen before,      P_0(new tool) = d / (2n)

that is interpolated absolute discounting (Ney, Essen and Kneser, Computer Speech and Language 8, 1994) with the
discount ½ of PPM's method D (Howard, Brown University CS-93-28, 1993). The event "a tool never seen" is coded; its name
is not, since that costs the same at every order.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from langgraph_toolmem.base.text import count

ORDERS: Final = (0, 1, 2)
SURE_BITS: Final = math.log2(100)
"""A gain smaller than this in total (6.6 bits) is too small to tell.

A code that beats another by b bits does so with probability of at most 2^−b where the other one is the truth.
"""
_DISCOUNT: Final = 0.5

_Context = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class InertiaTest:
    """The result of an `InertiaMeter`.

    Attributes:
        runs: number of runs, also those without a tool call.
        calls: number of tool calls.
        bits: online code length in bits per call, knowing 0, 1 and 2 previous tools.
    """

    runs: int
    calls: int
    bits: tuple[float, float, float]

    @property
    def best_order(self) -> int:
        """Return how many previous tools are worth knowing: one more only if it saves over `SURE_BITS` in all."""
        best = 0
        for order in ORDERS[1:]:
            if (self.bits[best] - self.bits[order]) * self.calls > SURE_BITS:
                best = order
        return best

    @property
    def gain(self) -> float:
        """Bits per call saved by the better of one and two previous tools; not positive: previous tools say nothing."""
        return self.bits[0] - min(self.bits[1:])

    @property
    def has_inertia(self) -> bool:
        """True if the gain over all calls is more than chance gives (`SURE_BITS`), else False."""
        return self.best_order > 0

    @property
    def verdict(self) -> str:
        """The answer in one sentence of plain words."""
        if self.calls == 0:
            return "There are no tool calls to judge by."
        calls = count(self.calls, "tool call")
        if self.gain <= 0:
            return f"No inertia: over {calls}, knowing the previous tools did not help to guess the next one."
        share = f"{self.gain:.2f} of the {self.bits[0]:.2f} bits ({self.gain / self.bits[0]:.0%})"
        if not self.has_inertia:
            return (
                f"Too little to tell: the previous tools tell {share} that name the next one, which over {calls} may "
                "be chance."
            )
        by = "the previous tool tells" if self.best_order == 1 else "the previous two tools tell"
        return f"This workload has inertia: {by} {share} that name the next one."

    def to_dict(self) -> dict[str, Any]:
        """JSON values, with the verdict."""
        told = {name: getattr(self, name) for name in ("gain", "best_order", "has_inertia", "verdict")}
        return {**asdict(self), **told, "bits": list(self.bits)}


class InertiaMeter:
    """Takes runs one after another: constant time a call, memory per distinct triple of tools."""

    def __init__(self) -> None:
        self._runs = self._calls = 0
        self._bits = [0.0, 0.0, 0.0]
        self._seen: dict[_Context, Counter[str]] = {}

    def add(self, sequence: Iterable[str]) -> None:
        """Take one run: the names of its tools in the order of the calls, possibly none."""
        self._runs += 1
        before: tuple[str | None, str | None] = (None, None)
        for tool in sequence:
            contexts: tuple[_Context, ...] = ((), before[1:], before)
            p = 0.0
            for order, context in enumerate(contexts):
                p = self._probability(context, tool, shorter=p, order=order)
                self._bits[order] -= math.log2(p)
            for context in contexts:
                self._seen.setdefault(context, Counter())[tool] += 1
            self._calls += 1
            before = (before[1], tool)

    def _probability(self, context: _Context, tool: str, *, shorter: float, order: int) -> float:
        counts = self._seen.get(context)
        if counts is None:
            return shorter if order else 1.0
        n, n_tool = counts.total(), counts[tool]
        escape = len(counts) * _DISCOUNT / n
        if order == 0:
            return (n_tool - _DISCOUNT) / n if n_tool else escape
        return max(n_tool - _DISCOUNT, 0.0) / n + escape * shorter

    def result(self) -> InertiaTest:
        """Return the measurement so far."""
        n = max(self._calls, 1)
        return InertiaTest(self._runs, self._calls, (self._bits[0] / n, self._bits[1] / n, self._bits[2] / n))
