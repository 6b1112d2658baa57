"""Looking on while another process writes to a memory: the figures, and each step as it is learned.

Beside the writer nothing is written, and nothing is read twice: a look costs what is new (see `stores.tail`). Kept
are the counters and what belongs to them, not the evidence: of a memory of 100,000 runs a few megabytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from langgraph_toolmem.base.errors import GraphFileError
from langgraph_toolmem.core.contributions import Section
from langgraph_toolmem.core.ledger import Followed, LedgerTable, Shown
from langgraph_toolmem.graph import operations as op
from langgraph_toolmem.graph.evidence import FIGURES, EvidenceGraph
from langgraph_toolmem.graph.newest import NewestRuns, RunCounted
from langgraph_toolmem.graph.operations import GOOD, Operation, Record
from langgraph_toolmem.inertia.budget import Budget, figures_in_words
from langgraph_toolmem.inertia.evidence import InertiaEvidence, TurnClosed, TurnOpened
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.inertia.prefetch import record as prefetch
from langgraph_toolmem.report.report import Report, make_report
from langgraph_toolmem.sit.evidence import Draft, DraftsTaken, SITEvidence, TransitionSeen
from langgraph_toolmem.sit.section import section
from langgraph_toolmem.stores import wire
from langgraph_toolmem.stores.folder_lock import holder, is_held
from langgraph_toolmem.stores.tail import GraphTail

_TABLES: Final = (InertiaEvidence, SITEvidence, LedgerTable, NewestRuns)
_COUNTS: Final = (op.Count, op.ToolCount, op.Outcome, op.RunSeen, op.Verdict, op.UserForgotten, op.RunsForgotten)
_COUNTED: Final[Mapping[type[Operation], Mapping[str, Any]]] = {
    **{kind: {} for kind in (*_COUNTS, RunCounted, TurnClosed, DraftsTaken, Shown, Followed)},
    TurnOpened: {"windows": [], "rules": [], "judged": []},
    TransitionSeen: {"step": "", "source": "", "target": ""},  # that a run is there, whatever it did
    Draft: {"place": "", "target": "", "text": "", "made_by": ""},
}
"""Operations that figures are made of, with what they carry beside that."""
_EARLIER: Final = 20


@dataclass(frozen=True)
class Event:
    """One thing that was learned.

    Attributes:
        tools: the tools called; () for an answer in words and for a verdict.
        what: what happened, for a person: "skipped, ok", "asked the model: foreseen".
        time: when it was read, in seconds since 1970; None if it was there before.
    """

    tools: tuple[str, ...]
    what: str
    time: float | None = None


class Watcher:
    """Follows the memory in a folder.

    Args:
        folder: of the memory; it must be there.
        policy: whose budget is shown.

    Attributes:
        graph: what is kept of the evidence.
        problems: what cannot be read at present, one sentence each.
    """

    def __init__(self, folder: str | Path, *, policy: InertiaPolicy | None = None) -> None:
        self.folder: Final = Path(folder)
        self.problems: tuple[str, ...] = ()
        self._policy = policy or InertiaPolicy()
        self._tail = GraphTail(self.folder)
        self.graph = EvidenceGraph(_TABLES)
        self._looked = False
        self._left_out = 0

    def look(self, now: float) -> list[Event]:
        """Takes in what is new and tells what happened; at the first look, the latest events from before.

        A writer that replaces its snapshot more than once between two looks leaves events untold; the figures are
        right all the same.

        Args:
            now: seconds since 1970.

        Raises:
            StorageError: the folder is gone or cannot be read.
            FormatVersionError: a release with another format writes there.
        """
        changes = self._tail.look()
        problems = list(changes.problems)
        if changes.fresh:
            try:
                self.graph = _counters_of(changes.state)
            except (GraphFileError, LookupError, TypeError, ValueError, AttributeError) as error:
                self.graph = EvidenceGraph(_TABLES)
                problems.append(f"the snapshot cannot be used ({type(error).__name__})")
        for entry in changes.records:
            self._apply(entry)
        if self._left_out:
            problems.append(f"{self._left_out:,} records cannot be understood and are left out")
        self.problems = tuple(problems)
        time = now if self._looked else None
        told: Iterable[Event] = (event for entry in changes.events if (event := self._read(entry, time)) is not None)
        if not self._looked:
            told = deque(told, maxlen=_EARLIER)
        self._looked = True
        return list(told)

    def _read(self, entry: Any, time: float | None) -> Event | None:
        """What a stored record tells of; None where nothing happened, and for one that is not understood."""
        try:
            told = read_record(wire.read(entry, self.graph)[1])
        except (LookupError, TypeError, ValueError, AttributeError):
            return None
        return None if told is None else Event(*told, time)

    def report(self) -> Report:
        """The figures of the core, of the shortcut's budget and of suggestions."""
        counters, ledger = self.graph.counters, self.graph.register(LedgerTable)
        figures = self.graph.register(Budget).figures(self._policy)
        sums = {name: int(number) for name, number in ledger.figures_of("sit").items()}
        told = section(self.graph.register(SITEvidence), counters, sums)
        ahead = prefetch.figures(self.graph)
        lines = (*figures_in_words(figures), *prefetch.in_words(ahead))
        sections = {
            "inertia": Section("Kinds of predictions", {**figures, **ahead, "rules": []}, lines),
            "sit": replace(told, figures={**told.figures, "edges": []}, tables=()),
        }
        return make_report(self.graph, sections, {}, self.problems)

    def writer(self) -> str:
        """Who writes to the memory, in words; "" where that cannot be told."""
        held = is_held(self.folder)
        if held is None:
            return ""
        if not held:
            return "nobody at present"
        pid = holder(self.folder)
        return "a process" if pid is None else f"process {pid}"

    def close(self) -> None:
        """Lets go of the files."""
        self._tail.close()

    def __enter__(self) -> Watcher:
        """The watcher itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes it."""
        self.close()

    def _apply(self, entry: Any) -> None:
        try:
            # Without its key: the writer kept no record twice, and the keys of 100,000 runs are not needed here.
            record = wire.read(entry, self.graph)[1]
            light = [replace(each, **_COUNTED[type(each)]) for each in record if type(each) in _COUNTED]
            self.graph.apply(None, light)
        except (LookupError, TypeError, ValueError, AttributeError):
            self._left_out += 1


def _counters_of(state: dict[str, Any] | None) -> EvidenceGraph:
    """A graph with the counters of a snapshot and without its evidence."""
    graph = EvidenceGraph(_TABLES)
    if state is None:
        return graph
    empty = graph.to_state()
    tables = {name: {**part, **state["tables"].get(name, {})} for name, part in empty["tables"].items()}
    inertia, sit = tables["inertia"], tables["sit"]
    inertia["rules"], sit["edges"] = (
        empty["tables"][name][part] for name, part in (("inertia", "rules"), ("sit", "edges"))
    )
    inertia["open_turns"] = {turn: [[], [], [], *begun[3:]] for turn, begun in inertia["open_turns"].items()}
    sit["walks"] = {run: [score, {}, counts] for run, (score, _, counts) in sit["walks"].items()}
    sit["drafts"] = {
        run: {step: ["", "", "", "", draft[-1]] for step, draft in drafts.items()}
        for run, drafts in sit["drafts"].items()
    }
    graph.load({**empty, **{name: state[name] for name in FIGURES}, "tables": tables})
    return graph


def read_record(record: Record) -> tuple[tuple[str, ...], str] | None:
    """Tools and what happened to them, from the operations of one record; None: nothing did.

    What the record holds of arguments, values and words of people is left alone.
    """
    counted = {each.counter for each in record if isinstance(each, op.Count)}
    # What came of the proposal → its tool.
    outcomes = {each.counter: each.tool for each in record if isinstance(each, op.ToolCount)}
    ended = {each.status: each.tool for each in record if isinstance(each, op.Outcome)}
    tools = tuple(
        each.tool
        for each in record
        if isinstance(each, op.Arguments) or (isinstance(each, op.Outcome) and each.status == "rejected")
    )
    for each in record:
        if isinstance(each, op.Verdict):
            return (), f"verdict on a run: {'good' if each.score >= GOOD else 'bad'} ({each.score:g})"
    if taken := counted & {"acted_ok", "acted_failed", "acted_stopped"}:
        return tools or (outcomes[taken.pop()],), _shortcut(counted)
    if "answers" in counted:
        instead = f": something else than {outcomes['wrong']}" if "wrong" in outcomes else ""
        return (), f"the model answered in words{instead}"
    if "calls" in counted:
        return tools, f"asked the model: {_foresight(outcomes, tools)}{_advice(record)}{_ending(ended)}"
    if "failed" in ended and not counted:
        return (ended["failed"],), "failed, and is tried again"
    return None


def _shortcut(counted: set[str]) -> str:
    if "acted_stopped" in counted:
        return f"skipped, but {'a person rejected the call' if 'wrong' in counted else 'the call was not executed'}"
    if "wrong" in counted:
        return "skipped, but a person changed the call"
    return "skipped, failed" if "acted_failed" in counted else "skipped, ok"


def _foresight(outcomes: dict[str, str], tools: tuple[str, ...]) -> str:
    if "right" in outcomes:
        return "foreseen"
    if "wrong" in outcomes:
        expected = outcomes["wrong"]
        return "something else: other arguments" if tools == (expected,) else f"something else than {expected}"
    return "foreseen, but not surely enough" if "hits" in outcomes else "not foreseen"


def _advice(record: Record) -> str:
    """Whether the model took up what was suggested to it, if something was."""
    followed = [bool(each.ids) for each in record if isinstance(each, Followed)]
    return (", as suggested" if any(followed) else ", not as suggested") if followed else ""


def _ending(ended: dict[str, str]) -> str:
    if "rejected" in ended:
        return "; a person rejected it"
    return "; it failed" if "failed" in ended else ""
