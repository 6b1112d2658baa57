"""What the confidence in a candidate looks at, besides the record of its rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from langgraph_toolmem.graph.cases import Neighbour
from langgraph_toolmem.graph.sources import MARKS
from langgraph_toolmem.graph.state import WORDS, RunState
from langgraph_toolmem.graph.tables import CountTable
from langgraph_toolmem.graph.tool_graph import HIT, MISS
from langgraph_toolmem.inertia.candidates import Candidate
from langgraph_toolmem.inertia.confidence import Floats, log_odds
from langgraph_toolmem.runs.values import ABSENT, canon

ALONE: Final = 0.05
"""Weight of the doubt whether any past request is like this one."""
_KINDS: Final = ("n", "c", "ux", "olm", "i", "t", "w")
"""First letters of sources (`graph.sources`) that are counted together."""

Weighed = tuple[float, Candidate, tuple[str, ...]]
"""The probability by the record, the candidate, its rules."""


def features_of(
    weighed: Sequence[Weighed],
    state: RunState,
    neighbours: Sequence[Neighbour],
    rules: CountTable,
    strange: Sequence[tuple[float, float]],
) -> Floats:
    """(candidates, features): the log-odds that the record gives come first.

    Args:
        weighed: the candidates.
        state: the run before the model's turn.
        neighbours: the nearest past requests, which vote for a candidate if their own call is the same in this run's
            terms.
        rules: the record of rules.
        strange: per candidate how strange the request is to it, and the share of its requests that were as strange.
    """
    import numpy as np

    votes = _Votes(neighbours)
    words = next((c.p_tool for _, c, _ in weighed if c.tool == WORDS), 0.0)
    parallel = max((c.p_tool for _, c, _ in weighed if c.each), default=0.0)
    backed = [votes.of(candidate) for _, candidate, _ in weighed]
    rows = []
    for i, (p, candidate, named) in enumerate(weighed):
        rival = max((other for k, (other, _, _) in enumerate(weighed) if k != i), default=0.0)
        rival_backed = max((other[0] for k, other in enumerate(backed) if k != i), default=0.0)
        row = [log_odds(p), p - rival, rival, words, parallel, *_about_record(candidate, named, rules)]
        rows.append(
            [*row, *backed[i], rival_backed, *_about_arguments(candidate), *strange[i], float(state.last_is_user)]
        )
    return np.array(rows, dtype=np.float64)


def _about_record(candidate: Candidate, named: tuple[str, ...], rules: CountTable) -> list[float]:
    found: list[float] = []
    for rule in named[-2:]:
        cell = rules.row(rule).get("", (0.0, 0.0))
        seen = cell[HIT] + cell[MISS]
        found += [seen, (cell[HIT] + 0.5) / (seen + 1)]
    return [
        *found,
        candidate.p_tool,
        candidate.p_args,
        candidate.p_tool * candidate.p_args,
        candidate.p_call,
        min(candidate.support, 50.0),
        candidate.similarity,
        float(candidate.neighbour_agrees),
        candidate.agreeing_neighbours,
        float(candidate.witnesses),
        float(candidate.rank),
        float(bool(candidate.each)),
    ]


def _about_arguments(candidate: Candidate) -> list[float]:
    given = [f for f in candidate.filled.values() if f.value is not ABSENT]
    kinds = [f.source.lstrip(MARKS)[:1] for f in given]
    return [
        float(len(given)),
        float(len(candidate.filled) - len(given)),
        min((f.probability for f in given), default=1.0),
        float(min((min(f.agreeing, 4) for f in given), default=4)),
        *(float(sum(kind in letters for kind in kinds)) for letters in _KINDS),
    ]


class _Votes:
    """How many of the nearest past requests went on with just this call, in this run's terms."""

    def __init__(self, neighbours: Sequence[Neighbour]) -> None:
        self._near = [(near, near.similarity**2) for near in neighbours]
        self._all = sum(weight for _, weight in self._near) + ALONE
        self._carried: dict[int, Mapping[str, str]] = {}

    def of(self, candidate: Candidate) -> list[float]:
        """The share of the vote for the call and for its tool, weighted by likeness, and the votes for each."""
        following = candidate.following
        whole = tool = 0.0
        whole_votes = tool_votes = 0
        for i, (near, weight) in enumerate(self._near):
            if near.tool == following:
                tool, tool_votes = tool + weight, tool_votes + 1
                if following is None or candidate.each or self._same(i, near, candidate):
                    whole, whole_votes = whole + weight, whole_votes + 1
        return [whole / self._all, tool / self._all, float(whole_votes), float(tool_votes)]

    def _same(self, i: int, near: Neighbour, candidate: Candidate) -> bool:
        carried = self._carried.get(i)
        if carried is None:
            carried = self._carried[i] = {name: canon(value) for name, value in near.carried.items()}
        given = {name: f for name, f in candidate.filled.items() if f.value is not ABSENT}
        return given.keys() == carried.keys() and all(
            f.source in near.sources.get(name, ()) or carried[name] == canon(f.value) for name, f in given.items()
        )
