"""How tools are used lately, and what was decided about them: which are left out, how links weigh, what is one.

A decision carries its time, and the latest one counts, so that the order in which several workers' records arrive does
not matter. What a decision is made of (counts at that time) is kept with it: a replay gives the same.

Recent uses are counted by the day (UTC) for `MAX_DAYS` days, one number per link and day. Older days leave.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from langgraph_toolmem.base.errors import GraphFileError

MAX_DAYS: Final = 32
MAX_TARGETS: Final = 5_000
MAX_SOURCES: Final = 64
"""Tools counted per day, and links into each; where there are more, those that come first."""
DAY: Final = 86_400


class Evolving:
    """Recent uses, and the latest decisions.

    Attributes:
        days: number of the day since 1970, as text -> target -> [uses, {source: good uses of source→target}].
        left: tool -> [when it was left out or put back, its good calls then]; None in place of the calls: put back.
        shifts: [when, {target: {source: uses}}]: what a link counts more (or less) than it was used.
        groups: [when, what a user says about clusters of parameters, in plain values; None: nothing].
    """

    def __init__(self) -> None:
        self.days: dict[str, dict[str, list[Any]]] = {}
        self.left: dict[str, list[Any]] = {}
        self.shifts: list[Any] = [0.0, {}]
        self.groups: list[Any] = [0.0, None]

    # --- the operations ---

    def count(self, day: int, uses: Mapping[str, int], links: Iterable[tuple[str, str, int]]) -> None:
        """Uses of tools on a day, and how often a link into one of them was used well."""
        counted = self.days.setdefault(str(day), {})
        for target, number in uses.items():
            if target in counted or len(counted) < MAX_TARGETS:
                counted.setdefault(target, [0, {}])[0] += number
        for source, target, number in links:
            sources = counted[target][1] if target in counted else {}
            if source in sources or len(sources) < MAX_SOURCES:
                sources[source] = sources.get(source, 0) + number
        if len(self.days) > MAX_DAYS:
            del self.days[min(self.days, key=int)]

    def leave_out(self, calls: Mapping[str, int], when: float) -> None:
        """These tools are left out from now on, each until it has more good calls than these."""
        for tool, good in calls.items():
            self._decide(tool, good, when)

    def put_back(self, tools: Iterable[str], when: float) -> None:
        """These tools are there again."""
        for tool in tools:
            self._decide(tool, None, when)

    def shift(self, shifts: dict[str, dict[str, float]], when: float) -> None:
        """What links count more or less than they were used; takes the place of what was said before."""
        if when >= self.shifts[0]:
            self.shifts = [when, shifts]

    def group(self, plain: Any, when: float) -> None:
        """What a user says about clusters; takes the place of what was said before."""
        if when >= self.groups[0]:
            self.groups = [when, plain]

    def _decide(self, tool: str, good: int | None, when: float) -> None:
        before = self.left.get(tool)
        if before is None or when >= before[0]:
            self.left[tool] = [when, good]

    # --- reading ---

    def out(self, good: Mapping[str, int]) -> frozenset[str]:
        """The tools that are left out; one that went well since then has come back by itself.

        Args:
            good: tool -> good calls so far; missing: none.
        """
        return frozenset(
            tool for tool, (_, then) in self.left.items() if then is not None and good.get(tool, 0) <= then
        )

    def recent(self, now: float, days: float) -> tuple[dict[tuple[str, str], float], dict[str, float]]:
        """Good uses of each link (source, target), and uses of each target, on the last `days` days, today included."""
        first = int(now // DAY) - max(1, round(days)) + 1
        successes: dict[tuple[str, str], float] = {}
        uses: dict[str, float] = {}
        for day, counted in self.days.items():
            if first <= int(day) <= int(now // DAY):
                for target, (number, sources) in counted.items():
                    uses[target] = uses.get(target, 0) + number
                    for source, good in sources.items():
                        successes[source, target] = successes.get((source, target), 0) + good
        return successes, uses

    # --- persistence ---

    def to_state(self) -> dict[str, Any]:
        """Plain containers."""
        return {"days": self.days, "left": self.left, "shifts": self.shifts, "groups": self.groups}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Evolving:
        """The inverse of `to_state`."""
        found = cls()
        found.days, found.left = state["days"], state["left"]
        found.shifts, found.groups = state["shifts"], state["groups"]
        return found


def check_evolving(state: Mapping[str, Any]) -> None:
    """Whether a state that was read has the shape that `Evolving.to_state` gives it.

    Raises:
        GraphFileError: it has not.
    """
    fine = (
        all(
            type(day) is str and day.isdigit() and type(counted) is dict and _all_rows(counted)
            for day, counted in state["days"].items()
        )
        and all(
            type(tool) is str
            and type(decided) is list
            and len(decided) == 2
            and _number(decided[0])
            and (decided[1] is None or type(decided[1]) is int)
            for tool, decided in state["left"].items()
        )
        and len(state["shifts"]) == len(state["groups"]) == 2
        and _number(state["shifts"][0])
        and _number(state["groups"][0])
        and type(state["shifts"][1]) is dict
        and all(_numbers(sources) for sources in state["shifts"][1].values())
    )
    if not fine:
        raise GraphFileError("evolving has not the shape of an evidence graph")


def _all_rows(counted: Mapping[Any, Any]) -> bool:
    return all(type(row) is list and len(row) == 2 and _number(row[0]) and _numbers(row[1]) for row in counted.values())


def _numbers(row: Any) -> bool:
    return type(row) is dict and all(type(name) is str for name in row) and all(map(_number, row.values()))


def _number(value: Any) -> bool:
    return type(value) in (int, float)
