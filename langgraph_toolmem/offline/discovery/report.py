"""How far a discovery is, and what it came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from langgraph_toolmem.atoms.atoms import Atom
from langgraph_toolmem.offline.discovery.harvest import Found


@dataclass(frozen=True)
class DiscoveryProgress:
    """How far a discovery is.

    Attributes:
        tasks: how many there are.
        done: tasks whose search is over.
        solved: of these, such as ended well.
        failed: tasks whose search raised.
        model_calls: calls of models so far, of all sessions.
        tokens: tokens so far.
    """

    tasks: int
    done: int = 0
    solved: int = 0
    failed: int = 0
    model_calls: int = 0
    tokens: int = 0


@dataclass(frozen=True)
class DiscoveryReport:
    """What a discovery came to.

    Attributes:
        progress: how far it is.
        already: tasks that were done before anything was.
        unsolved: ids of the tasks whose search is over, and none of whose paths ended well.
        iterations: paths walked, per searched task.
        branching: actions tried per state in which any was.
        depth: calls of the best path, per solved task.
        deepest: calls on the longest path of all.
        shared: how often a path came to a state that was known already.
        explored: calls made for the first time, all searches together.
        replayed: calls made again in order to come back to a state.
        diverged: how often one of these answered something else than before.
        atoms: how many atoms the solved tasks gave.
        unread: answers of models that could not be read; calls without a model took their place.
        others: outcomes in the same folder that were found with other tools, seeds, settings or models, or in another
            environment: they are not counted, and are there again when those are.
        stopped: why it ended before all was done, or "".
        errors: why searches failed, latest last, at most five.
    """

    progress: DiscoveryProgress
    already: int = 0
    unsolved: tuple[str, ...] = ()
    iterations: float = 0.0
    branching: float = 0.0
    depth: float = 0.0
    deepest: int = 0
    shared: int = 0
    explored: int = 0
    replayed: int = 0
    diverged: int = 0
    atoms: int = 0
    unread: int = 0
    others: int = 0
    stopped: str = ""
    errors: tuple[str, ...] = field(default=())

    @property
    def compression(self) -> float:
        """Calls explored per atom; 0 without atoms."""
        return self.explored / self.atoms if self.atoms else 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        rest = {name: value for name, value in vars(self).items() if name != "progress"}
        lists = {"unsolved": list(self.unsolved), "errors": list(self.errors)}
        return {**vars(self.progress), **rest, **lists, "compression": self.compression}


def summed_up(
    found: Sequence[Found],
    atoms: Sequence[Atom],
    progress: DiscoveryProgress,
    *,
    others: int = 0,
    stopped: str = "",
    errors: Sequence[str] = (),
) -> DiscoveryReport:
    """The report on searches that are over."""
    total: Counter[str] = Counter()
    for each in found:
        total.update({name: count for name, count in each.counts.items() if name != "depth"})
    searched = sum(not each.counts.get("already") for each in found)
    solved = [each for each in found if each.path]
    return DiscoveryReport(
        progress,
        already=total["already"],
        unsolved=tuple(each.task for each in found if not each.path and not each.counts.get("already")),
        iterations=total["iterations"] / searched if searched else 0.0,
        branching=total["tried"] / total["inner"] if total["inner"] else 0.0,
        depth=sum(len(each.path) for each in solved) / len(solved) if solved else 0.0,
        deepest=max((each.counts.get("depth", 0) for each in found), default=0),
        shared=total["shared"],
        explored=total["steps"],
        replayed=total["replayed"],
        diverged=total["diverged"],
        atoms=len(atoms),
        unread=total["unread"],
        others=others,
        stopped=stopped,
        errors=tuple(errors[-5:]),
    )
