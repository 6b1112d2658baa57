"""What is searched: a world that can be reset, called and asked whether the task succeeded; and how to get back.

An `Environment` is small on purpose: it lists its tools, is reset to a task, executes a call, and says whether the task
is done. One that can also take a snapshot is brought back to a state at no cost; any other is reset and the calls on
the way are made again (`Cursor`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from langgraph_toolmem.base.checks import is_share
from langgraph_toolmem.base.errors import ConfigurationError, InputError, ToolMemoryError
from langgraph_toolmem.offline.discovery.plain import as_plain
from langgraph_toolmem.runs.values import canon, canon_args

if TYPE_CHECKING:
    from langgraph_toolmem.runs.tools import ToolLike

MAX_SNAPSHOTS: Final = 32
"""Snapshots kept per search, the latest used."""


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        id: its identity, unique among the tasks of a discovery.
        request: what the user says.
        data: what else its line said; for the environment.
    """

    id: str
    request: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EnvironmentCall:
    """A tool call. Equal calls have equal keys."""

    tool: str
    args: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, str]:
        """Tool and canonical arguments."""
        return self.tool, canon_args(self.args)


@dataclass(frozen=True)
class Observation:
    """What came back.

    Attributes:
        output: JSON values or a text; anything else is made such (`plain`).
        ok: False if the call failed or was refused; nothing is believed to have changed then.
    """

    output: Any
    ok: bool = True


@dataclass(frozen=True)
class Taken:
    """A call that was made, and what came back."""

    call: EnvironmentCall
    observation: Observation


@runtime_checkable
class Environment(Protocol):
    """A world with tools. One search at a time works with it; it is made, used and closed in one thread.

    Optional methods: ``snapshot()`` and ``restore(snapshot)``, to come back to a state without making calls again;
    ``possible()``, the calls that can be made now, where the environment knows; ``close()``.
    """

    @property
    def tools(self) -> Iterable[ToolLike]:
        """The tools."""
        ...

    def reset(self, task: Task) -> None:
        """Brings the world to where the task begins."""
        ...

    def step(self, call: EnvironmentCall) -> Observation:
        """Executes a call. A call that fails is told as such, and not raised."""
        ...

    def success(self) -> bool | float | None:
        """Return True if the task is done in the present state (or a score from 0 to 1); None if it cannot tell."""
        ...


class Cursor:
    """An environment, and where it stands: the calls made since the last reset.

    Args:
        environment: the world.
        task: what it is reset to.
        most: calls that may be made, those made again included; None: any number.

    Attributes:
        steps: calls made for the first time.
        replayed: calls made again in order to come back to a state.
        resets: how often the world was reset.
        diverged: how often a call that was made again answered something else.
    """

    def __init__(self, environment: Environment, task: Task, *, most: int | None = None) -> None:
        self.environment, self.task, self.most = environment, task, most
        self.steps = self.replayed = self.resets = self.diverged = 0
        self._at: tuple[Taken, ...] | None = None
        self._snapshots: OrderedDict[tuple[tuple[str, str], ...], Any] = OrderedDict()
        self._can_restore = all(callable(getattr(environment, name, None)) for name in ("snapshot", "restore"))

    @property
    def spent(self) -> bool:
        """Return True if no further call may be made."""
        return self.most is not None and self.steps + self.replayed >= self.most

    def reset(self) -> None:
        """Brings the world to where the task begins."""
        self.environment.reset(self.task)
        self.resets += 1
        self._at = ()

    def begin_again(self) -> None:
        """Resets the world, and forgets all snapshots."""
        self._snapshots.clear()
        self.reset()

    def go(self, path: Sequence[Taken]) -> bool:
        """Comes to the state behind these changes; False if one of them answered something else than before.

        Args:
            path: the calls on the way that may have changed something; those that only read need not be made again.
        """
        wanted = tuple(path)
        if self._at is not None and self._at == wanted:
            return True
        if self._at is None or self._at != wanted[: len(self._at)]:
            self._back(wanted)
        assert self._at is not None
        for taken in wanted[len(self._at) :]:
            found = self._step(taken.call)
            self.replayed += 1
            if not _alike(found, taken.observation):
                self.diverged += 1
                self._at = None
                return False
            self._at = (*self._at, taken)
        return True

    def make(self, call: EnvironmentCall, *, reads: bool) -> Taken:
        """Makes a call where the environment stands.

        Args:
            call: the call.
            reads: it changes nothing, whatever it answers. Any other call that fails leaves a state behind that is not
                relied upon.
        """
        assert self._at is not None
        taken = Taken(call, self._step(call))
        self.steps += 1
        if not reads:
            self._at = (*self._at, taken) if taken.observation.ok else None
        return taken

    def _step(self, call: EnvironmentCall) -> Observation:
        """Return what the environment answers, in JSON values.

        Raises:
            ConfigurationError: it is no observation.
            ToolMemoryError: the environment raised something.
        """
        try:
            found: Any = self.environment.step(call)
        except ToolMemoryError:
            raise
        except Exception as error:
            self._at = None
            raise ToolMemoryError(
                f"step() raised {type(error).__name__} on a call of {call.tool} ({error}); a call that fails is told "
                "with Observation(what went wrong, ok=False)"
            ) from error
        if not isinstance(found, Observation):
            raise ConfigurationError(
                f"step() of an environment gives an Observation(output, ok), and not {type(found).__name__}."
            )
        plain = as_plain(found.output)
        return found if plain is found.output else Observation(plain, found.ok)

    def again(self, calls: Iterable[EnvironmentCall]) -> tuple[Taken, ...] | None:
        """Makes calls from the beginning, whatever they answer; None if one fails or no further call may be made."""
        self.reset()
        made: list[Taken] = []
        for call in calls:
            taken = None if self.spent else Taken(call, self._step(call))
            self.replayed += taken is not None
            self._at = None
            if taken is None or not taken.observation.ok:
                return None
            made.append(taken)
        return tuple(made)

    def success(self) -> float | None:
        """The environment's word on the present state, from 0 to 1; None if it has none.

        Raises:
            InputError: it is neither true, false, None nor a number from 0 to 1.
        """
        said = self.environment.success()
        if said is None:
            return None
        score = int(said) if isinstance(said, bool) else said
        if not is_share(score):
            raise InputError(f"success() gives true, false, None or a score from 0 to 1, not {said!r:.60}.")
        return float(score)

    def keep(self) -> None:
        """Takes a snapshot of the present state, if the environment can."""
        if not self._can_restore or self._at is None:
            return
        key = _keys(self._at)
        if key not in self._snapshots:
            self._snapshots[key] = (self.environment.snapshot(), self._at)  # type: ignore[attr-defined]
            if len(self._snapshots) > MAX_SNAPSHOTS:
                self._snapshots.popitem(last=False)

    def _back(self, wanted: tuple[Taken, ...]) -> None:
        """To the longest part of the way that a snapshot is of, or to the beginning."""
        for length in range(len(wanted), -1, -1) if self._snapshots else ():
            kept = self._snapshots.get(_keys(wanted[:length]))
            if kept is not None and kept[1] == wanted[:length]:
                self._snapshots.move_to_end(_keys(wanted[:length]))
                self.environment.restore(kept[0])  # type: ignore[attr-defined]
                self._at = wanted[:length]
                return
        self.reset()


def _keys(path: Sequence[Taken]) -> tuple[tuple[str, str], ...]:
    return tuple(taken.call.key for taken in path)


def _alike(one: Observation, other: Observation) -> bool:
    return one.ok == other.ok and canon(one.output) == canon(other.output)
