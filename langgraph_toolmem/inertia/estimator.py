"""The probability that the model's next turn is exactly a candidate: one ridge logistic regression.

It has the columns of `COLUMNS`, is fitted by Newton's method to the latest candidates with a known outcome, and is
regularised towards `PRIOR_WEIGHTS`, fitted to recorded runs of other agents: without evidence they alone decide.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias

from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.cases import Neighbour
from langgraph_toolmem.graph.events import Event
from langgraph_toolmem.graph.state import RunState
from langgraph_toolmem.graph.tool_graph import CountTable, Handler, Table, ToolGraph
from langgraph_toolmem.inertia.candidates import Candidate
from langgraph_toolmem.runs.values import canon

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

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
# Fitted once, to six sets of recorded runs that were read cold. Fits without one of the sets are almost equal.
PRIOR_WEIGHTS: Final = (0.28, 0.19, 0.18, 0.03, -1.28, 0.19, 0.28, 0.61, -0.62)
"""The coefficients of a memory without evidence."""

Floats: TypeAlias = "npt.NDArray[np.float64]"


EXAMPLE_COLUMNS: Final = shapes.ListOf(shapes.NUMBER, (0, len(COLUMNS)))
"""The columns of a candidate; empty for one that was not weighed."""
_EXAMPLE: Final = (shapes.numbers(len(COLUMNS)), shapes.WHOLE)


@dataclass(slots=True)
class ExamplesSeen(Event):
    """Candidates were weighed, and the model's turn is known.

    Attributes:
        turn: number of the model turn.
        examples: per candidate its columns, and 1 if the model's turn equals it, else 0.
        stands_for: weight of the examples in the fit: the turn itself, and the unchecked turns that it represents.
    """

    kind = "examples_seen"
    cells: ClassVar = {"examples": shapes.ListOf(shapes.RecordOf(_EXAMPLE))}
    turn: int
    examples: list[list[Any]]
    stands_for: int = 1


class Example(NamedTuple):
    """A weighed candidate whose outcome is known. The order of examples is that of their fields.

    Attributes:
        turn: number of the model turn.
        columns: of `COLUMNS`.
        hit: 1 if the model's turn equals it, else 0.
        amount: the number of candidates that it represents, itself included.
    """

    turn: int
    columns: list[float]
    hit: int
    amount: int = 1

    def to_plain(self) -> list[Any]:
        """Return the fields in their order, as a snapshot has them; the amount only if it is more than one."""
        fields: list[Any] = [self.turn, self.columns, self.hit]
        if self.amount > 1:
            fields.append(self.amount)
        return fields

    @classmethod
    def from_plain(cls, fields: Sequence[Any]) -> Example:
        """Return the inverse of `to_plain`."""
        return cls(*fields)


class _Settled(NamedTuple):
    """The turn before which examples are used in a fit, and their number."""

    turn: int
    examples: int


class _Fit(NamedTuple):
    """The coefficients, and the examples that they were fitted to."""

    settled: _Settled
    weights: Floats


class Estimator(Table):
    """The latest candidates whose outcome is known, and the coefficients fitted to them.

    A fit takes the examples before the latest turn number that is a multiple of `every`: so memories with the same
    examples decide alike, for any order of their arrival, and after opening too.

    Attributes:
        examples: the oldest first.
        most_examples: limit of the latest examples in a fit.
        every: model turns between two fits; a quarter of it before the first `every` turns are over.
    """

    # A fit takes 1 to 2 ms, on the path of a model call.
    most_examples: ClassVar[int] = 4_000
    every: ClassVar[int] = 20

    name = "estimator"
    parts: ClassVar = {
        "examples": shapes.ListOf(shapes.RecordOf((shapes.WHOLE, *_EXAMPLE, shapes.WHOLE), least=3)),
    }

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.examples: list[Example] = []
        self._fitted: _Fit | None = None

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {ExamplesSeen: self._add}

    def load(self, state: dict[str, Any]) -> None:
        examples = state["examples"]
        self.examples = [Example.from_plain(fields) for fields in examples]

    def to_state(self) -> dict[str, Any]:
        return {"examples": [example.to_plain() for example in self.examples]}

    def _add(self, turn: int, examples: list[list[Any]], stands_for: int) -> None:
        for columns, hit in examples:
            insort(self.examples, Example(turn, columns, hit, max(1, stands_for)))
        del self.examples[: max(0, self._settled().examples - self.most_examples)]

    def _settled(self) -> _Settled:
        """Return the turn before which examples are used in a fit, and their number."""
        latest = self.examples[-1].turn if self.examples else 0
        every = self.every
        # A new memory is a few turns old: with the first fit after 20 turns, it would not learn from its first runs.
        if latest < every:
            every //= 4
        until = latest - latest % every
        return _Settled(until, bisect_left(self.examples, (until,)))

    def weights(self) -> Floats:
        """Return the (columns + 1,) coefficients, the intercept last."""
        import numpy as np

        settled = self._settled()
        if self._fitted is not None and self._fitted.settled == settled:
            return self._fitted.weights
        known = self.examples[: settled.examples]
        if known:
            columns = np.array([example.columns for example in known], dtype=np.float64)
            hits = np.array([example.hit for example in known], dtype=np.float64)
            amounts = np.array([example.amount for example in known], dtype=np.float64)
            weights = fit(columns, hits, amounts)
        else:
            weights = np.array(PRIOR_WEIGHTS)
        self._fitted = _Fit(settled, weights)
        return weights

    def probabilities(self, columns: Floats) -> Floats:
        """Return the (candidates,) probabilities of (candidates, columns), at most 0.999."""
        import numpy as np

        most = 0.999
        weights = self.weights()
        return np.minimum(_sigmoid(columns @ weights[:-1] + weights[-1]), most)


def fit(columns: Floats, hits: Floats, amounts: Floats) -> Floats:
    """Return the (columns + 1,) coefficients that maximise likelihood - ridge/2 |w - PRIOR_WEIGHTS|², intercept last.

    Each example is weighted by its entry in `amounts`.
    """
    import numpy as np

    ridge = 0.5
    x, prior = np.column_stack((columns, np.ones(len(columns)))), np.array(PRIOR_WEIGHTS)

    def loss(w: Floats) -> float:
        odds = x @ w
        misfit = (amounts * np.logaddexp(0, odds)).sum() - (amounts * hits) @ odds
        return float(misfit + ridge / 2 * ((w - prior) ** 2).sum())

    weights, least = prior, loss(prior)
    newton_steps = 12  # a bound: if columns separate hits and misses completely, the iteration would not end
    for _ in range(newton_steps):
        p = _sigmoid(x @ weights)
        gradient = x.T @ (amounts * (hits - p)) - ridge * (weights - prior)
        curvature = (x * (amounts * p * (1 - p))[:, None]).T @ x + ridge * np.eye(x.shape[1])
        step = np.linalg.solve(curvature, gradient)
        # A whole Newton step may overshoot where probabilities are near 0 or 1.
        while (now := loss(weights + step)) > least and np.abs(step).max() > 1e-6:
            step = step / 2
        if least - now < 1e-3:
            break
        weights, least = weights + step, now
    return weights


def _sigmoid(odds: Floats) -> Floats:
    import numpy as np

    # Beyond 30 the exponential is negligible, and far beyond it overflows.
    return np.asarray(1 / (1 + np.exp(-np.clip(odds, -30, 30))), dtype=np.float64)


def record_keys(candidate: Candidate, state: RunState) -> tuple[str, str]:
    """Return the keys of a candidate's two records: of its tool, and of its tool after the event before it."""
    # The record is kept by levels: how often a backing of this strength was right, for this tool.
    product = candidate.p_tool * candidate.p_args
    kind = "=" * candidate.whole + ">" * bool(candidate.each)
    level = bisect_right((0.1, 0.3, 0.5, 0.7, 0.9), product)
    backing = f"{level}{candidate.nearest_agrees}"
    after = str(bisect_right((0.5, 0.8), product))
    return (
        f"{kind}D{candidate.tool}\x1f{backing}",
        f"{kind}E{state.symbols[-1]}\x1f{candidate.tool}\x1f{after}",
    )


def columns_of(
    weighed: Sequence[Candidate],
    keys: Sequence[tuple[str, str]],
    shares: Sequence[float],
    neighbours: Sequence[Neighbour],
    records: CountTable,
) -> Floats:
    """Return the (candidates, columns) of `COLUMNS`, given per candidate the `keys` of its records.

    The neighbours vote for a candidate if their own call is the same in this run's terms.
    """
    import numpy as np

    votes = _votes(weighed, neighbours)
    rows = []
    for position, candidate in enumerate(weighed):
        other_votes = votes[:position] + votes[position + 1 :]
        of_tool, of_tool_here = keys[position]
        rows.append(
            (
                _log_odds(candidate.p_tool),
                _log_odds(candidate.p_args),
                _log_odds(votes[position]),
                _log_odds(candidate.here.of_calls.get(candidate.key, 0.0)),
                max(other_votes, default=0.0),
                _record(records, of_tool),
                _record(records, of_tool_here),
                shares[position],
            )
        )
    return np.array(rows, dtype=np.float64)


def _record(records: CountTable, key: str) -> float:
    """Return the log-odds of a record, which begins with one hit and one miss."""
    hits, misses = records.row(key).get("", (0.0, 0.0))
    return _log_odds((hits + 1) / (hits + misses + 2))


def _log_odds(p: float) -> float:
    # A share of 0 or 1 from few counts is not certain, and its log-odds would be infinite.
    p = min(max(p, 0.005), 0.995)
    return math.log(p / (1 - p))


def _votes(weighed: Sequence[Candidate], neighbours: Sequence[Neighbour]) -> list[float]:
    """Return the share of the nearest requests, by squared similarity, that continued with exactly this call."""
    alone = 0.05  # weight of the doubt that all past requests differ from this one
    weights = [neighbour.similarity**2 for neighbour in neighbours]
    total = sum(weights) + alone
    carried = _CarriedValues(neighbours)
    votes = []
    for candidate in weighed:
        agreeing = []
        for position, neighbour in enumerate(neighbours):
            if neighbour.tool == candidate.following and carried.agree(position, candidate):
                agreeing.append(weights[position])
        votes.append(sum(agreeing) / total)
    return votes


class _CarriedValues:
    """The values of past calls, translated to this run, as texts: each neighbour is read once for all candidates."""

    def __init__(self, neighbours: Sequence[Neighbour]) -> None:
        self._neighbours = neighbours
        self._texts: dict[int, dict[str, str]] = {}

    def agree(self, position: int, candidate: Candidate) -> bool:
        """Return True if a neighbour's call has the values of a candidate, or takes them from the same sources."""
        # An answer in words has no values, and those of several calls are the elements of one list.
        if candidate.following is None or candidate.each:
            return True
        texts = self._texts.get(position)
        if texts is None:
            carried = self._neighbours[position].carried
            texts = self._texts[position] = {name: canon(value) for name, value in carried.items()}
        if candidate.given.keys() != texts.keys():
            return False
        sources = self._neighbours[position].sources
        # The same place with another value is the same call for this run: another customer, the same look-up.
        for name, filled in candidate.given.items():
            if filled.source not in sources.get(name, ()) and texts[name] != canon(filled.value):
                return False
        return True
