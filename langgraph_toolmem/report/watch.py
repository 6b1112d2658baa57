"""Looking on while another process writes to a memory: the figures, and each step as it is learned.

Beside the writer nothing is written, and nothing is read twice: a look costs what is new (see `stores.tail`). Kept
are the counters and what belongs to them, not the evidence: of a memory of 100,000 runs a few megabytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from langgraph_toolmem.base.errors import GraphFileError
from langgraph_toolmem.graph.evidence import EvidenceGraph, Record
from langgraph_toolmem.inertia.policy import InertiaPolicy
from langgraph_toolmem.report.report import Report, make_report
from langgraph_toolmem.stores.folder_lock import holder, is_held
from langgraph_toolmem.stores.graph_shape import check_state
from langgraph_toolmem.stores.tail import GraphTail

_EVIDENCE: Final = frozenset(
    {
        "successors",
        "sources",
        "values",
        "value_witnesses",
        "pattern_witnesses",
        "descriptor_witnesses",
        "rules",
        "cases",
        "evolving",
        "seen",
    }
)
"""Parts of a snapshot that are not kept."""
_EVIDENCE_CODES: Final = frozenset({"s", "e", "a", "v", "w", "co", "cc", "ce", "r", "p", "d", "ou", "dy", "sh", "gr"})
"""Operations that add to these (see `graph.evidence`)."""
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
        problems: what cannot be read at present, one sentence each.
    """

    def __init__(self, folder: str | Path, *, policy: InertiaPolicy | None = None) -> None:
        self.folder: Final = Path(folder)
        self.problems: tuple[str, ...] = ()
        self._limit = (policy or InertiaPolicy()).max_wrong_per_100
        self._tail = GraphTail(self.folder)
        self._graph = EvidenceGraph()
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
            FormatVersionError: a newer release writes there.
        """
        news = self._tail.look()
        problems = list(news.problems)
        if news.fresh:
            try:
                self._graph = _counters_of(news.state)
            except (GraphFileError, LookupError, TypeError, ValueError, AttributeError) as error:
                self._graph = EvidenceGraph()
                problems.append(f"the snapshot cannot be used ({type(error).__name__})")
        for entry in news.records:
            self._apply(entry)
        if self._left_out:
            problems.append(f"{self._left_out:,} records cannot be understood and are left out")
        self.problems = tuple(problems)
        time = now if self._looked else None
        told: Iterable[Event] = (event for entry in news.events if (event := _read_event(entry, time)) is not None)
        if not self._looked:
            told = deque(told, maxlen=_EARLIER)
        self._looked = True
        return list(told)

    def report(self) -> Report:
        """The figures; `rules` is empty, as the evidence is not kept."""
        return make_report(self._graph, self._limit, self.problems)

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
            self._graph.apply(
                None, [_light(operation) for operation in entry[1] if operation[0] not in _EVIDENCE_CODES]
            )
        except (LookupError, TypeError, ValueError, AttributeError):
            self._left_out += 1


def _light(operation: list[Any]) -> list[Any]:
    """The operation without the evidence that it carries."""
    code, *rest = operation
    if code == "o+":
        return [code, rest[0], _light_payload(rest[1])]
    if code == "tr":  # that a run is there, whatever it did
        return [code, rest[0], "", "", ""]
    if code == "sm":
        return [code, *rest[:2], _NO_DRAFT, rest[3]]
    return operation


_NO_DRAFT: Final = ["", "", "", ""]


def _light_payload(payload: dict[str, Any]) -> dict[str, Any]:
    return {**payload, "windows": [], "rules": [], "judged": []}


def _counters_of(state: dict[str, Any] | None) -> EvidenceGraph:
    """A graph with the counters of a snapshot and without its evidence."""
    if state is None:
        return EvidenceGraph()
    check_state(state)
    light = EvidenceGraph().to_state() | {name: part for name, part in state.items() if name not in _EVIDENCE}
    light["open_turns"] = {turn: _light_payload(payload) for turn, payload in state["open_turns"].items()}
    edges = light["walks"]["edges"]
    runs = {run: [score, {}] for run, (score, _) in state["walks"]["runs"].items()}
    light["walks"] = {"edges": {**edges, "rows": {}}, "runs": runs}
    light["drafts"] = {
        run: {step: [*_NO_DRAFT, draft[-1]] for step, draft in drafts.items()}
        for run, drafts in state["drafts"].items()
    }
    return EvidenceGraph.from_state(light)


def _read_event(entry: Any, time: float | None) -> Event | None:
    """What a stored record tells of; None for one that nothing happened in, and for one that is not understood."""
    try:
        told = read_record(entry[1])
    except (LookupError, TypeError, ValueError, AttributeError):
        return None
    return None if told is None else Event(*told, time)


def read_record(record: Record) -> tuple[tuple[str, ...], str] | None:
    """Tools and what happened to them, from the operations of one record (codes: see `graph.evidence`).

    What the record holds of arguments, values and words of people is left alone.
    """
    counted = {op[1] for op in record if op[0] == "n"}
    outcomes = {op[2]: str(op[1]) for op in record if op[0] == "nt"}  # what came of the proposal → its tool
    ended = {op[2]: str(op[1]) for op in record if op[0] == "t"}
    tools = tuple(str(op[1]) for op in record if op[0] == "p" or (op[0] == "t" and op[2] == "rejected"))
    for op in record:
        if op[0] == "vd":
            return (), f"verdict on a run: {'good' if op[2] >= 0.5 else 'bad'} ({op[2]:g})"
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
    followed = [bool(op[2]) for op in record if op[0] == "of-"]
    return (", as suggested" if any(followed) else ", not as suggested") if followed else ""


def _ending(ended: dict[str, str]) -> str:
    if "rejected" in ended:
        return "; a person rejected it"
    return "; it failed" if "failed" in ended else ""
