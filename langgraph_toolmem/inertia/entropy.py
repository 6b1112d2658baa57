"""Does a workload have inertia: how many bits of the next tool do the previous tools tell?

Three views of the same tool sequences, for contexts of 0, 1 and 2 previous tools (the run's start is one more
symbol):

* **fitted**: conditional entropy with the data's own frequencies put in (plug-in). It can only fall as
  contexts grow, even on pure noise: rare contexts are described by the very calls that are being
  measured.
* **honest**: online code length. Each call is coded with what came before it only, so learning is paid for.
* **likelihood-ratio tests** of order 1 against 0 and of order 2 against 1, as in section 3 of AutoTool
  (arXiv 2511.14650).

The honest estimator. With n calls seen in a context, n_s of them tool s, and d distinct tools among them,

    P_k(s | context) = max(n_s − ½, 0) / n  +  d / (2n) · P_{k−1}(s | one tool less)
    P_0(s)           = (n_s − ½) / n  for a tool seen before,      P_0(new tool) = d / (2n)

that is interpolated absolute discounting (Ney, Essen and Kneser, "On structuring probabilistic
dependences in stochastic language modelling", Computer Speech and Language 8, 1994) with the discount ½
of PPM's method D (Howard, "The design and analysis of efficient lossless data compression systems",
Brown University CS-93-28, 1993). The ½ is that of Krichevsky and Trofimov (IEEE Trans. Inf. Theory 27,
1981), whose own estimator needs to know the number of tools beforehand. The event "a tool never seen" is
coded; its name is not, since that costs the same at every order. So an honest figure can lie below the
fitted one where many tools occur once or twice only.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

ORDERS = (0, 1, 2)
SURE_BITS = math.log2(100)
"""An honest gain smaller than this in total (6.6 bits) is called too small to tell.

A code that beats another by b bits does so with probability of at most 2^−b where the other one is the truth.
"""

_DISCOUNT = 0.5
_PRECISION = 1e-14  # of the tail of chi-squared, relative
_START = None  # no tool name equals it

_Context = tuple[str | None, ...]
_Table = Mapping[_Context, Counter[str]]


@dataclass(frozen=True, slots=True)
class LikelihoodRatio:
    """Test of "the next tool depends on `order` previous tools" against "on `order` − 1 of them".

    Attributes:
        order: the longer context, in tools.
        g: G statistic, 2 ln 2 · N · (H_{order−1} − H_order) with H in bits.
        df: degrees of freedom, counted from contexts and tools that occurred:
            Σ over shorter contexts of (tools seen after it − 1) · (longer contexts it splits into − 1).
        p: probability of a G at least as large if the shorter context were enough; 1 where there is nothing
            to test. From the χ² tail, which is a poor approximation where most contexts occurred a few times.
    """

    order: int
    g: float
    df: int
    p: float


@dataclass(frozen=True, slots=True)
class InertiaTest:
    """Answer of `measure_inertia`.

    Attributes:
        runs: number of runs, also those without a tool call.
        calls: number of tool calls.
        tools: number of distinct tools called.
        fitted: plug-in conditional entropy in bits per call, knowing 0, 1 and 2 previous tools.
        honest: online code length in bits per call, knowing 0, 1 and 2 previous tools.
        tests: order 1 against 0, and order 2 against 1.
    """

    runs: int
    calls: int
    tools: int
    fitted: tuple[float, float, float]
    honest: tuple[float, float, float]
    tests: tuple[LikelihoodRatio, LikelihoodRatio]

    @property
    def best_order(self) -> int:
        """How many previous tools are worth knowing: one more only if it saves over `SURE_BITS` in all."""
        best = 0
        for order in ORDERS[1:]:
            if (self.honest[best] - self.honest[order]) * self.calls > SURE_BITS:
                best = order
        return best

    @property
    def honest_gain(self) -> float:
        """Bits per call saved by the better of one and two previous tools; not positive: nothing is told."""
        return self.honest[0] - min(self.honest[1:])

    @property
    def has_inertia(self) -> bool:
        """True if the honest gain over all calls is more than chance gives (`SURE_BITS`)."""
        return self.best_order > 0

    @property
    def verdict(self) -> str:
        """The answer in one sentence of plain words."""
        if self.calls == 0:
            return "There are no tool calls to judge by."
        told, whole = self.honest_gain, self.honest[0]
        if told <= 0:
            return (
                f"No inertia: over {_count(self.calls, 'tool call')}, knowing the previous tools did not "
                "help to guess the next one."
            )
        share = f"{told:.2f} of the {whole:.2f} bits ({told / whole:.0%})"
        if not self.has_inertia:
            return (
                f"Too little to tell: the previous tools tell {share} that name the next one, which over "
                f"{_count(self.calls, 'tool call')} may be chance."
            )
        by = "the previous tool tells" if self.best_order == 1 else "the previous two tools tell"
        return f"This workload has inertia: {by} {share} that name the next one."

    def to_dict(self) -> dict[str, Any]:
        """JSON values, with the verdict."""
        return {
            "runs": self.runs,
            "calls": self.calls,
            "tools": self.tools,
            "fitted_bits": list(self.fitted),
            "honest_bits": list(self.honest),
            "honest_gain_bits": self.honest_gain,
            "best_order": self.best_order,
            "has_inertia": self.has_inertia,
            "verdict": self.verdict,
            "likelihood_ratio_tests": [asdict(test) for test in self.tests],
        }


class InertiaMeter:
    """Incremental form of `measure_inertia`: constant time a call, memory per distinct triple of tools."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self._runs = 0
        self._calls = 0
        self._code_bits = [0.0, 0.0, 0.0]
        self._seen: dict[_Context, Counter[str]] = {}
        self._totals: Counter[_Context] = Counter()

    def add(self, sequence: Iterable[str]) -> None:
        """Take one run: the names of its tools in the order of the calls, possibly none."""
        self._runs += 1
        before: tuple[str | None, str | None] = (_START, _START)
        for tool in sequence:
            contexts: tuple[_Context, ...] = ((), before[1:], before)
            p = 0.0
            for order, context in enumerate(contexts):
                p = self._probability(context, tool, shorter=p, order=order)
                self._code_bits[order] -= math.log2(p)
            for context in contexts:
                self._seen.setdefault(context, Counter())[tool] += 1
                self._totals[context] += 1
            self._calls += 1
            before = (before[1], tool)

    def _probability(self, context: _Context, tool: str, *, shorter: float, order: int) -> float:
        counts = self._seen.get(context)
        if counts is None:
            return shorter if order else 1.0
        n, n_tool = self._totals[context], counts[tool]
        escape = len(counts) * _DISCOUNT / n
        if order == 0:
            return (n_tool - _DISCOUNT) / n if n_tool else escape
        return max(n_tool - _DISCOUNT, 0.0) / n + escape * shorter

    def result(self) -> InertiaTest:
        """The measurement so far."""
        tables = [{c: t for c, t in self._seen.items() if len(c) == order} for order in ORDERS]
        bits = [math.fsum(_ideal_bits(table) for table in tables[order].values()) for order in ORDERS]
        n = max(self._calls, 1)
        return InertiaTest(
            runs=self._runs,
            calls=self._calls,
            tools=len(self._seen.get((), ())),
            fitted=(bits[0] / n, bits[1] / n, bits[2] / n),
            honest=(self._code_bits[0] / n, self._code_bits[1] / n, self._code_bits[2] / n),
            tests=(
                _likelihood_ratio(1, bits[0] - bits[1], tables[0], tables[1]),
                _likelihood_ratio(2, bits[1] - bits[2], tables[1], tables[2]),
            ),
        )


def measure_inertia(sequences: Iterable[Iterable[str]]) -> InertiaTest:
    """Measure how far the previous tools tell the next one.

    Args:
        sequences: one iterable of tool names per run. Runs go in the order they happened: the honest measure
            learns from the earlier ones.

    Example:
        >>> measure_inertia([["search", "open"]] * 50).fitted
        (1.0, 0.0, 0.0)
    """
    meter = InertiaMeter()
    for sequence in sequences:
        meter.add(sequence)
    return meter.result()


def _ideal_bits(counts: Counter[str]) -> float:
    """Bits that all calls of one context take when coded with the context's own final frequencies."""
    n = counts.total()
    return math.fsum(c * math.log2(n / c) for c in counts.values())


def _likelihood_ratio(order: int, bits: float, shorter: _Table, longer: _Table) -> LikelihoodRatio:
    splits = Counter(context[1:] for context in longer)
    df = sum((len(tools) - 1) * (splits[context] - 1) for context, tools in shorter.items())
    g = max(2 * math.log(2) * bits, 0.0)
    if df == 0:
        return LikelihoodRatio(order=order, g=g, df=0, p=1.0)
    return LikelihoodRatio(order=order, g=g, df=df, p=chi_squared_tail(g, df))


def chi_squared_tail(x: float, df: int) -> float:
    """P(χ² ≥ x) with df degrees of freedom: the upper incomplete gamma function Q(df/2, x/2).

    Below df/2 + 1 the series of 1 − Q, above it the continued fraction of Q by Lentz's method.

    Args:
        x: from 0.
        df: from 1.
    """
    a, z = df / 2, x / 2
    if z <= 0:
        return 1.0
    scale = math.exp(a * math.log(z) - z - math.lgamma(a))
    if z < a + 1:
        term = total = 1 / a
        while term > total * _PRECISION:
            a += 1
            term *= z / a
            total += term
        return max(0.0, 1 - scale * total)
    b, c, d = z + 1 - a, math.inf, 1 / (z + 1 - a)
    fraction, change, n = d, 0.0, 0
    while abs(change - 1) > _PRECISION:
        n += 1
        b += 2
        step = n * (a - n)
        d = 1 / (step * d + b)
        c = b + step / c
        change = c * d
        fraction *= change
    return scale * fraction


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
