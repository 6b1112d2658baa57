"""The probability that a candidate is exactly what the model does next: one ridge logistic regression.

It has the columns of `COLUMNS`, is fitted by Newton's method to the latest candidates whose outcome is known, and is
drawn towards `PRIOR`, which recorded runs of other agents gave: without evidence `PRIOR` alone decides.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.cases import Neighbour
from langgraph_toolmem.graph.events import Event
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.graph.tool_graph import CountTable, Handler, Table, ToolGraph
from langgraph_toolmem.inertia.candidates import Candidate
from langgraph_toolmem.runs.values import ABSENT, canon

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_EXAMPLES: Final = 4_000
EVERY: Final = 20
"""Model turns between two fits; a quarter of it before the first EVERY turns are over."""
RIDGE: Final = 0.5
"""Weight that pulls a fit towards `PRIOR`."""
MOST: Final = 0.999
STEPS: Final = 12
"""Newton steps at most."""
ALONE: Final = 0.05
"""Weight of the doubt that no past request is like this one."""

COLUMNS: Final = (
    "share of the tool, log-odds",
    "record of the arguments' sources, log-odds",
    "vote of the nearest requests for the whole call, log-odds",
    "share of the whole call among those that followed the latest calls, log-odds",
    "best vote for another candidate",
    "record of the tool, log-odds",
    "record of the tool right after the event before it, log-odds",
    "share of the tool's requests with as many new words",
)
"""The columns; an intercept comes after them."""
PRIOR: Final = (0.28, 0.19, 0.18, 0.03, -1.28, 0.19, 0.28, 0.61, -0.62)
"""Fitted once, to six sets of recorded runs that were read cold. Fits without one of the sets hardly differ."""

_FIVE: Final = (0.1, 0.3, 0.5, 0.7, 0.9)
_TWO: Final = (0.5, 0.8)

Floats: TypeAlias = "npt.NDArray[np.float64]"


EXAMPLE_COLUMNS: Final = shapes.ListOf(shapes.NUMBER, (0, len(COLUMNS)))
"""The columns of a candidate; none of one that was not weighed."""
_EXAMPLE: Final = (shapes.numbers(len(COLUMNS)), shapes.WHOLE)


@dataclass(slots=True)
class ExamplesSeen(Event):
    """Candidates were weighed, and what the model did is known.

    Attributes:
        turn: number of the model turn.
        examples: per candidate its columns, and 1 if it was what the model did, else 0.
        stands_for: weight of the examples in the fit: the turn itself, and the unchecked turns that it represents.
    """

    kind = "examples_seen"
    cells: ClassVar = {"examples": shapes.ListOf(shapes.RecordOf(_EXAMPLE))}
    turn: int
    examples: list[list[Any]]
    stands_for: int = 1


class Estimator(Table):
    """The latest candidates whose outcome is known, and the coefficients fitted to them.

    A fit takes the examples before the latest turn number that is a multiple of EVERY: so memories with the same
    examples decide alike, whatever the order in which they came, and after opening too.

    Attributes:
        examples: [model turn, columns, hit], the oldest first; MAX_EXAMPLES at most that are fitted to. One that stands
            for others has their number, itself included, as a fourth value.
    """

    name = "estimator"
    parts: ClassVar = {
        "examples": shapes.ListOf(shapes.RecordOf((shapes.WHOLE, *_EXAMPLE, shapes.WHOLE), least=3)),
    }

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.examples: list[list[Any]] = []
        self._fitted: tuple[tuple[int, int], Floats] | None = None

    def handlers(self) -> Mapping[type[Event], Handler]:
        """See `Table`."""
        return {ExamplesSeen: self._add}

    def _add(self, turn: int, examples: list[list[Any]], stands_for: int) -> None:
        others = [stands_for] if stands_for > 1 else []
        for example in examples:
            insort(self.examples, [turn, *example, *others])
        del self.examples[: max(0, self._settled()[1] - MAX_EXAMPLES)]

    def _settled(self) -> tuple[int, int]:
        """Return the turn before which examples are fitted to, and how many there are."""
        latest = self.examples[-1][0] if self.examples else 0
        until = latest - latest % (EVERY if latest >= EVERY else EVERY // 4)
        return until, bisect_left(self.examples, [until])

    def weights(self) -> Floats:
        """Return the (columns + 1,) coefficients, the intercept last."""
        import numpy as np

        settled = self._settled()
        if self._fitted is None or self._fitted[0] != settled:
            known = self.examples[: settled[1]]
            weights = np.array(PRIOR)
            if known:
                columns, hits = (np.array([example[part] for example in known], dtype=np.float64) for part in (1, 2))
                amounts = np.array([example[3] if len(example) > 3 else 1 for example in known], dtype=np.float64)
                weights = fit(columns, hits, amounts)
            self._fitted = settled, weights
        return self._fitted[1]

    def probabilities(self, columns: Floats) -> Floats:
        """Return the (candidates,) probabilities of (candidates, columns), MOST at most: nothing is certain."""
        import numpy as np

        weights = self.weights()
        return np.minimum(_sigmoid(columns @ weights[:-1] + weights[-1]), MOST)


def fit(columns: Floats, hits: Floats, amounts: Floats) -> Floats:
    """Return the (columns + 1,) coefficients that maximise likelihood - RIDGE/2 |w - PRIOR|², the intercept last.

    Each example counts as often as its `amounts` says.
    """
    import numpy as np

    x, prior = np.column_stack((columns, np.ones(len(columns)))), np.array(PRIOR)

    def loss(w: Floats) -> float:
        odds = x @ w
        misfit = (amounts * np.logaddexp(0, odds)).sum() - (amounts * hits) @ odds
        return float(misfit + RIDGE / 2 * ((w - prior) ** 2).sum())

    weights, least = prior, loss(prior)
    for _ in range(STEPS):
        p = _sigmoid(x @ weights)
        gradient = x.T @ (amounts * (hits - p)) - RIDGE * (weights - prior)
        curvature = (x * (amounts * p * (1 - p))[:, None]).T @ x + RIDGE * np.eye(x.shape[1])
        step = np.linalg.solve(curvature, gradient)
        while (now := loss(weights + step)) > least and np.abs(step).max() > 1e-6:
            step = step / 2
        if least - now < 1e-3:
            break
        weights, least = weights + step, now
    return weights


def _sigmoid(odds: Floats) -> Floats:
    import numpy as np

    return np.asarray(1 / (1 + np.exp(-np.clip(odds, -30, 30))), dtype=np.float64)


def record_keys(candidate: Candidate, state: RunState) -> tuple[str, str]:
    """Return the keys of a candidate's two records: of its tool, and of its tool after the event before it."""
    product = candidate.p_tool * candidate.p_args
    kind = "=" * candidate.whole + ">" * bool(candidate.each)
    backing = f"{bisect_right(_FIVE, product)}{candidate.nearest_agrees}"
    after = str(bisect_right(_TWO, product))
    return (
        f"{kind}D{candidate.tool}\x1f{backing}",
        f"{kind}E{state.symbols[-1]}\x1f{candidate.tool}\x1f{after}",
    )


def columns_of(
    found: Sequence[Candidate],
    keys: Sequence[tuple[str, str]],
    shares: Sequence[float],
    neighbours: Sequence[Neighbour],
    records: CountTable,
) -> Floats:
    """Return the (candidates, columns) of `COLUMNS`, given per candidate the `keys` of its records.

    The neighbours vote for a candidate if their own call is the same in this run's terms.
    """
    import numpy as np

    votes = _votes(found, neighbours)
    rows = [
        (
            _log_odds(candidate.p_tool),
            _log_odds(candidate.p_args),
            _log_odds(votes[i]),
            _log_odds(candidate.here.of_calls.get(candidate.key, 0.0)),
            max((vote for k, vote in enumerate(votes) if k != i), default=0.0),
            *(_record(records, key) for key in keys[i]),
            shares[i],
        )
        for i, candidate in enumerate(found)
    ]
    return np.array(rows, dtype=np.float64)


def _record(records: CountTable, key: str) -> float:
    """Return the log-odds of a record, which begins with one hit and one miss."""
    hits, misses = records.row(key).get("", (0.0, 0.0))
    return _log_odds((hits + 1) / (hits + misses + 2))


def _log_odds(p: float) -> float:
    p = min(max(p, 0.005), 0.995)
    return math.log(p / (1 - p))


def _votes(found: Sequence[Candidate], neighbours: Sequence[Neighbour]) -> list[float]:
    """Return the share of the nearest requests, by squared similarity, that went on with just this call."""
    near = [(each, each.similarity**2) for each in neighbours]
    total = sum(weight for _, weight in near) + ALONE
    carried: dict[int, dict[str, str]] = {}

    def same(i: int, each: Neighbour, candidate: Candidate) -> bool:
        if candidate.following is None or candidate.each:
            return True
        was = carried.get(i)
        if was is None:
            was = carried[i] = {name: canon(value) for name, value in each.carried.items()}
        given = {name: f for name, f in candidate.filled.items() if f.value is not ABSENT}
        return given.keys() == was.keys() and all(
            f.source in each.sources.get(name, ()) or was[name] == canon(f.value) for name, f in given.items()
        )

    return [
        sum(
            weight
            for i, (each, weight) in enumerate(near)
            if each.tool == candidate.following and same(i, each, candidate)
        )
        / total
        for candidate in found
    ]
