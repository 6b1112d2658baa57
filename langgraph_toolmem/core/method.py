"""The protocol of a method: its hooks, the values that they get, and its part of the report.

The core calls the hooks in the order of the memory's list (`Method`). The five built-in methods use only names that a
method of your own may use.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol

from langgraph_toolmem.base.errors import ConfigurationError, MissingExtraError, has_package, install_extra
from langgraph_toolmem.base.threads import SharedByCopies
from langgraph_toolmem.core.users import User
from langgraph_toolmem.graph.learning import LearnedTurn as LearnedTurn
from langgraph_toolmem.runs.run import Run

if TYPE_CHECKING:
    from langgraph_toolmem.core.core import Core
    from langgraph_toolmem.graph.events import Forgotten, Record
    from langgraph_toolmem.graph.tool_graph import Table

logger = logging.getLogger("langgraph_toolmem.core.method")

# --- values that the hooks get ---


class EndedRun(NamedTuple):
    """A finished run, its user, and its score from 0 (bad) to 1 (good) with a comment, if there is feedback."""

    run: Run
    user: User
    score: float | None = None
    comment: str | None = None


class JudgedRun(NamedTuple):
    """Feedback on a run (its digest), from 0 (bad) to 1 (good); `Core.namespace_of` may know its user."""

    run: str
    score: float
    comment: str | None
    user_id: str | None


@dataclass(frozen=True)
class Import:
    """Recorded runs with their scores, which were learned already, and the caller's options for the method."""

    runs: Sequence[EndedRun]
    options: Mapping[str, Any] = field(default_factory=dict)


# --- a method's part of the report, as data: all are printed in one place ---


@dataclass(frozen=True)
class TextTable:
    """Rows of texts under a title; a terminal shows `most` of them."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    most: int = 20


@dataclass(frozen=True)
class Section:
    """One method's part of the report.

    Attributes:
        title: its topic.
        figures: JSON values by name, or dataclasses of them, which `Report.to_dict` turns into dicts.
        sentences: the figures for a person.
        tables: printed after the sentences of all methods.
    """

    title: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    sentences: tuple[str, ...] = ()
    tables: tuple[TextTable, ...] = ()


def shown_in_words(what: str, sums: Mapping[str, int]) -> tuple[str, ...]:
    """Return a sentence on how often hints were shown and followed; empty without shown hints."""
    if not sums["shown"]:
        return ()
    return (
        f"{what}: suggested before {sums['shown']:,} model turns, followed in {sums['followed']:,} of them, and "
        f"{sums['right']:,} of these calls went well.",
    )


def outcome_in_words(sums: Mapping[str, int]) -> str:
    """Return how runs with shown items ended; "" without feedback."""
    helped, hurt = sums["helped"], sums["hurt"]
    if not helped + hurt:
        return ""
    return f"; of these went well {helped:,}, badly {hurt:,}"


# --- finished runs: one method keeps them, others read them ---


class PastRun(NamedTuple):
    id: str
    request: str
    tools: tuple[str, ...]  # called with success
    failed: bool
    time: float  # of its end, in seconds since 1970


class PastRunChanges(NamedTuple):
    """Changes since a version; if `whole`, they replace all earlier data."""

    version: int
    whole: bool
    runs: Sequence[PastRun]
    gone: Sequence[str]


class PastRuns(Protocol):
    """The finished runs of one user scope. Two are equal if they share their versions."""

    def changes(self, since: int, most: int) -> PastRunChanges:
        """Return the changes since a version; the latest `most` runs if that was too long ago, or 0."""
        ...


KEEP_RUNS: Final = (
    "No finished run was kept. Leave `reflect` out in tool_memory_middleware (it is then on), put a ReflectionWriter "
    "before END in a graph, or call memory.finish(messages, thread_id=...)."
)


# --- methods ---


class Method(SharedByCopies):
    """A method of a memory. Override the hooks that you need; by default they do nothing.

    `ended`, `judged`, `close`, `report` and `problems` run without the lock; an error in one method does not keep the
    others from running. An error in `forget` reaches the caller after all other methods have deleted their data.

    Attributes:
        name: attribute of the memory; prefix of the names in its stores.
        tables: its tables in the evidence graph; `Evidence.register` returns one of them.
        steps: its steps at a model call (`langgraph_toolmem.extend.Step`).
        package: the package that it needs and the extra that installs it, if any.
        core: the memory's core, from `open` on.
    """

    name: ClassVar[str]
    tables: ClassVar[tuple[type[Table], ...]] = ()
    steps: ClassVar[tuple[type[Any], ...]] = ()
    package: ClassVar[tuple[str, str] | None] = None

    core: Core

    def open(self, core: Core) -> None:
        """Register tables and kinds of jobs with the core. Do not read from disk here."""
        self.core = core

    # under the lock: the returned record joins the turn's

    def turn(self, learned: LearnedTurn) -> Record:
        """Learn from a model turn."""
        return []

    def repeated(self, learned: LearnedTurn) -> Record:
        """Learn from a turn that was learned before: the thread continues, or a fork of it took the same turn."""
        return []

    # without the lock

    def ended(self, ended: EndedRun) -> None:
        """Handle a finished run."""

    def judged(self, judged: JudgedRun) -> None:
        """Handle feedback on a run, new or changed; feedback given at its end comes with `ended` instead."""

    def imported(self, given: Import) -> int:
        """Import recorded runs, which were learned already; return the number of items kept."""
        return 0

    def forget(self, user: User, gone: Forgotten) -> int:
        """Delete the method's data outside the evidence graph; return the number of items. Raise StorageError if data
        is left.

        Args:
            user: the user to forget, or the owner of the runs (if known).
            gone: the data to delete; for a user their runs as well, as the graph knew them.
        """
        return 0

    def close(self) -> None:
        """Release resources; the memory closes."""

    def report(self) -> Section | None:
        """Return its part of the report, if it has any."""
        return None

    def problems(self) -> list[str]:
        """Return the settings that keep it from working, one sentence each."""
        return []


def check_methods(methods: Iterable[Any]) -> list[Method]:
    """Return the methods of a memory; raise ConfigurationError (`MissingExtraError`) if one of them cannot be used."""
    checked: dict[str, Method] = {}
    for method in methods:
        _check_method(method)
        if method.name in checked:
            raise ConfigurationError(
                f"Two methods in `methods` are called {method.name!r}. Drop or rename one of them."
            )
        checked[method.name] = method
    return list(checked.values())


def _check_method(method: Any) -> None:
    if not isinstance(method, Method):
        hint = f": give an instance, {method.__name__}()" if isinstance(method, type) else ""
        raise ConfigurationError(f"`methods` has {method!r}, which is not a Method{hint}.")
    if method.package is not None:
        module, extra = method.package
        if not has_package(module):
            raise MissingExtraError(type(method).__name__, extra)
    if hasattr(method, "core"):
        raise ConfigurationError(f"The method {method.name!r} belongs to another memory. Make a new one for this one.")


_off: Final = dict[str, str]()  # names of built-in methods that are not installed, and the extras that install them


def installed(methods: Iterable[Method]) -> list[Method]:
    """Return the methods whose packages are installed; log the others once."""
    there: list[Method] = []
    new: dict[str, str] = {}
    for method in methods:
        module, extra = method.package or ("", "")
        if not module or has_package(module):
            there.append(method)
        elif method.name not in _off:
            new[method.name] = extra
    if new:
        _off.update(new)
        extras = ",".join(dict.fromkeys(new.values()))
        logger.warning("Off: %s. %s", ", ".join(new), install_extra(extras))
    return there


def check_installed(name: str) -> None:
    """Raise `MissingExtraError` if `installed` left out the method of that name."""
    if name in _off:
        raise MissingExtraError(f"The method {name!r}", _off[name])
