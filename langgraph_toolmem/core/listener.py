"""What a method is told, and what it is told about: turns that are learned, runs that end, verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from langgraph_toolmem.core.contributions import Section
from langgraph_toolmem.core.users import User
from langgraph_toolmem.runs.run import Run, Turn

if TYPE_CHECKING:
    from langgraph_toolmem.graph.cases import Neighbour
    from langgraph_toolmem.graph.evidence import Table
    from langgraph_toolmem.graph.operations import Forgotten, Record
    from langgraph_toolmem.graph.state import RunState
    from langgraph_toolmem.runs.tools import ToolSpec


@dataclass(slots=True)
class LearnedTurn:
    """A model turn that is being learned.

    Attributes:
        state: the run before the turn.
        turn: the turn.
        run: digest of the run: an episode.
        thread: digest of its thread and user, a witness of values.
        thought: the agent's latest stated thought before the turn.
        user: digest of the user; None if nobody is named.
        specs: the tools at hand in the run.
        hour: now, in hours since 1970.
        options: what the caller of this pass changes, by name of the method.
        scratch: what methods remember from turn to turn of this pass, by their name.
        neighbours: past requests that a method compared this one with: how well their values carry over is learned.
    """

    state: RunState
    turn: Turn
    run: str
    thread: str
    thought: str
    user: str | None
    specs: Mapping[str, ToolSpec]
    hour: int
    options: Mapping[str, Any]
    scratch: dict[str, Any]
    neighbours: Sequence[Neighbour] = ()


class EndedRun(NamedTuple):
    """A run that is over.

    Attributes:
        run: as read.
        user: whose it is.
        score: its verdict from 0 (bad) to 1 (good); None if nobody gave one.
        comment: a word on it.
    """

    run: Run
    user: User
    score: float | None = None
    comment: str | None = None


class JudgedRun(NamedTuple):
    """A verdict on a run.

    Attributes:
        run: digest of the run.
        score: 0 (bad) to 1 (good).
        comment: a word on it.
        user_id: whose run it is; None if nobody is named (`Core.place_of` may know).
    """

    run: str
    score: float
    comment: str | None
    user_id: str | None


@dataclass(frozen=True)
class Import:
    """Recorded runs to be taken in; they were learned already.

    Attributes:
        runs: read, with their verdicts.
        options: what the caller asks of this method.
    """

    runs: Sequence[EndedRun]
    options: Mapping[str, Any] = field(default_factory=dict)

    def by_namespace(self) -> Iterator[tuple[tuple[str, ...], list[EndedRun]]]:
        """The runs of each namespace."""
        found: dict[tuple[str, ...], list[EndedRun]] = {}
        for each in self.runs:
            found.setdefault(each.user.namespace, []).append(each)
        yield from found.items()


class Listener:
    """Hears what happens, in the order of the memory's list. Override what you need; every default does nothing.

    `learned`, `ended`, `judged`, `close` and `report` are called without the lock, and what one of them raises stops
    nobody; what `forget` raises, the caller gets once everybody else has forgotten.

    Attributes:
        name: who listens.
        tables: what it keeps in the evidence graph; `Evidence.register` gives its table.
    """

    name: ClassVar[str]
    tables: ClassVar[tuple[type[Table], ...]] = ()

    # --- learning; under the lock: what is returned joins the record ---

    def turn(self, learned: LearnedTurn) -> Record:
        """A model turn is learned."""
        return []

    def repeated(self, learned: LearnedTurn) -> Record:
        """A turn that was learned before is met again: the thread goes on, or was forked and the model did the same."""
        return []

    def verdict(self, run: str, score: float) -> Record:
        """A run (its digest) gets a verdict."""
        return []

    # --- learning; quietly ---

    def learned(self, run: Run, user: User) -> None:
        """Turns of a run were learned."""

    def ended(self, ended: EndedRun) -> None:
        """A run is over."""

    def judged(self, judged: JudgedRun) -> None:
        """A run has its verdict, or another one; at its end `ended` is told of it instead."""

    def imported(self, given: Import) -> int:
        """Takes recorded runs in, which were learned already; returns how many pieces it keeps of them.

        Raises:
            StorageError: something could not be stored.
        """
        return 0

    # --- keeping ---

    def forget(self, user: User, gone: Forgotten) -> int:
        """Removes everything of a user, of runs, or of a time, that is not in the evidence graph.

        Args:
            user: who is to be forgotten, or whose runs they are (if anybody is named).
            gone: what goes; with a user their runs, as the graph knew them.

        Returns:
            How many pieces.

        Raises:
            StorageError: something is left.
        """
        return 0

    def close(self) -> None:
        """The memory is being closed; its lock is not held."""

    # --- being looked at ---

    def report(self) -> Section | None:
        """What it did, in figures and words."""
        return None
