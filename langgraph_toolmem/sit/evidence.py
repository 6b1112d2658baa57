"""SIT's table in the evidence graph: which tool came after which, and in which state; and past states like the present.

Each run keeps its *transitions*: from the tool called before to the tool called next, with the state in between. Over
all runs they add up to weighted edges; an edge gets N + Σ 1/n, with N the successful runs' uses of it and n the
number of transitions of each such run (SIT-Graph, arXiv 2512.07287). Feedback may come before or after them.

A state is the request (known to `graph.cases`) and the words of its latest result, or of the summary that the agent
wrote. Only hashes of the words are kept. What a run adds does not depend on the order of arrival.

- A call that was never executed (rejected, unanswered) is passed over. A failed call is no target, but the next edge
  begins at it.
- Calls of one turn were chosen in the same state: they have the same source. The next edge begins at the last of them.
- The first call of an episode has the source START. In a history whose head is missing the source of the first call is
  unknown, so there is no transition to it.
- Calls of the summary tool are no steps (`runs.trajectory`): their text comes with the turn after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from reprlib import Repr
from typing import Any, Final, NamedTuple
from zlib import crc32

from langgraph_toolmem.core.method import LearnedTurn
from langgraph_toolmem.graph.cases import CaseIndex
from langgraph_toolmem.graph.events import GOOD, Event, Forgotten, Verdict
from langgraph_toolmem.graph.state import START, RunState
from langgraph_toolmem.graph.tool_graph import CountTable, Handler, Table, ToolGraph
from langgraph_toolmem.runs.run import ExecutedCall
from langgraph_toolmem.text.words import STOP_WORDS, stem, words

MAX_RUNS: Final = 10_000
"""Runs whose transitions are kept. The oldest leave; what they added to the edges stays."""
MAX_SOURCES: Final = 20_000
MAX_TARGETS: Final = 64
MAX_WORDS: Final = 24
"""Words of a state that are kept: those with the smallest hashes, so that similar states keep the same ones."""
_LOOK: Final = Repr()
_LOOK.maxlevel, _LOOK.maxdict, _LOOK.maxlist, _LOOK.maxstring = 3, 12, 1, 100
SHARE: Final = 0.8
"""Share of the similarity of two states that their words decide; the rest is the request's."""
_GOOD, _BONUS, _BAD, _OPEN = range(4)
_SCORE, _TRANSITIONS, _WEIGHT = range(3)


@dataclass(slots=True)
class TransitionSeen(Event):
    """In a run, `target` was called right after `source`.

    Attributes:
        run: digest of the run.
        step: key of the target's call.
        request: key of the user message that the call serves.
        asked: True if no call lies between that message and the target.
        words: the state after `source`: hashes of words.
        written: True if the agent wrote the state with the summary tool.
    """

    kind = "transition"
    run: str
    step: str
    source: str
    target: str
    request: str = ""
    asked: bool = False
    words: list[int] = field(default_factory=list)
    written: bool = False


class Edge(NamedTuple):
    """Evidence for one edge: uses in good runs, Σ 1/n over these, uses in bad runs and in runs without feedback."""

    good: float
    bonus: float
    bad: float
    open: float

    def weight(self, unlabelled: float = 0.0) -> float:
        """Return N + Σ 1/n over the successful runs; uses without feedback count `unlabelled`·`trust` each."""
        return self.good + self.bonus + unlabelled * self.trust * self.open

    @property
    def trust(self) -> float:
        """Worth of uses without feedback, by those with feedback: 1 if none of these was bad."""
        return (self.good + 1) / (self.good + self.bad + 1)


class SITEvidence(Table):
    """Transitions of runs, and the edges that they add up to."""

    name = "sit"
    parts = ("edges", "runs")

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.edges = CountTable(MAX_SOURCES, width=4, max_items=MAX_TARGETS)
        #: run -> [score or None, {step: [source, target, request, asked, words, written]}, weight of the score]
        self.runs: dict[str, list[Any]] = {}
        self._by_request: dict[str, dict[str, TransitionSeen]] = {}  # request -> step -> its transition

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {TransitionSeen: self.add, Verdict: lambda run, *_: self._judge(run)}

    def add(
        self,
        run: str,
        step: str,
        source: str,
        target: str,
        request: str = "",
        asked: bool = False,
        words: Sequence[int] = (),
        written: bool = False,
    ) -> None:
        """Add a transition of a run; the same step twice counts once."""
        if run not in self.runs:
            self._judge(run)  # feedback may have come first
        known = self._run(run)
        if step in known[_TRANSITIONS]:
            return
        if known[_SCORE] is None:
            self.edges.add(source, target, _OPEN)
        else:  # the length of the run changes
            self._count(known, -1)
        made: list[Any] = [source, target, request, asked, [*words], written]
        known[_TRANSITIONS][step] = made
        if known[_SCORE] is not None:
            self._count(known, 1)
        self._by_request.setdefault(request, {})[step] = TransitionSeen(run, step, *made)

    def judge(self, run: str, score: float, weight: float = 1.0) -> None:
        """Apply the score of a run, from 0 (bad) to 1 (good), in place of an earlier one.

        If its weight is below 1, the rest of each use counts as without feedback.
        """
        known = self._run(run)
        self._count(known, -1)
        known[_SCORE], known[_WEIGHT] = float(score), float(weight)
        self._count(known, 1)

    def out_of(self, source: str) -> dict[str, Edge]:
        """Return the edges out of a tool (or START), by target."""
        return {target: Edge(*cell) for target, cell in self.edges.row(source).items() if any(cell)}

    def edge(self, source: str, target: str) -> Edge:
        return Edge(*self.edges.row(source).get(target, (0, 0, 0, 0)))

    def transitions(self) -> Iterator[TransitionSeen]:
        for run, known in self.runs.items():
            for step, each in known[_TRANSITIONS].items():
                yield TransitionSeen(run, step, *each)

    def transitions_of(self, request: str) -> list[TransitionSeen]:
        """Return the transitions that served a request."""
        return list(self._by_request.get(request, {}).values())

    def figures(self) -> dict[str, int]:
        """Return how many states are kept, and how many runs have no feedback."""
        return {
            "states": sum(len(known[_TRANSITIONS]) for known in self.runs.values()),
            "runs_waiting": sum(known[_SCORE] is None for known in self.runs.values()),
        }

    def _run(self, run: str) -> list[Any]:
        known = self.runs.get(run)
        if known is None:
            known = self.runs[run] = [None, {}, 1.0]
            if len(self.runs) > MAX_RUNS:
                self._drop(next(iter(self.runs)))
        return known

    def _drop(self, run: str) -> None:
        for step, (_, _, request, *_) in self.runs.pop(run)[_TRANSITIONS].items():
            steps = self._by_request.get(request, {})
            steps.pop(step, None)
            if not steps:
                self._by_request.pop(request, None)

    def _judge(self, run: str) -> None:
        if (stands := self.graph.verdict(run)) is not None:
            self.judge(run, stands.score, stands.weight)

    def _count(self, known: list[Any], sign: int) -> None:
        score, transitions, weight = known
        for source, target, *_ in transitions.values():
            if score is None:
                self.edges.add(source, target, _OPEN, sign)
                continue
            if weight < 1:
                self.edges.add(source, target, _OPEN, sign * (1 - weight))
            if score >= GOOD:
                self.edges.add(source, target, _GOOD, sign * weight)
                self.edges.add(source, target, _BONUS, sign * weight / len(transitions))
            else:
                self.edges.add(source, target, _BAD, sign * weight)

    def forget(self, gone: Forgotten) -> int:
        """Delete the transitions of runs; what they added to the edges stays."""
        for run in gone.runs:
            if run in self.runs:
                self._drop(run)
        return 0

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        self._by_request = {}
        for each in self.transitions():
            self._by_request.setdefault(each.request, {})[each.step] = each


# --- states ---


class Near(NamedTuple):
    """A past state similar to the present one (0 to 1), and what came next in it."""

    similarity: float
    transition: TransitionSeen


def near_states(
    state: RunState,
    source: str | None,
    index: CaseIndex,
    known: Callable[[str], Iterable[TransitionSeen]],
    *,
    summary: str | None = None,
) -> list[Near]:
    """Return past states in which a run stood at the same place, the most similar first.

    The similarity of two states is that of their requests, times 1 − SHARE·(1 − Dice coefficient of their words). Right
    after a user's message the place is the start, whatever tool came before.
    """
    asked, here = just_asked(state), frozenset(state_words(state, summary))
    found = [
        Near(similarity * (1 - SHARE * (1 - _dice(here, each.words))), each)
        for similarity, request in index.similar(state.user.raw, state.asked)
        if request != state.user_key
        for each in known(request)
        if (each.asked if asked else each.source == source and not each.asked)
    ]
    return sorted(found, key=lambda near: -near.similarity)


def written_states(source: str | None, known: Iterable[TransitionSeen], summary: str) -> list[Near]:
    """Return past states that an agent summarised, on the edges out of a tool, the most similar first."""
    here = frozenset(_hashes(summary))
    found = [Near(_dice(here, each.words), each) for each in known if each.written and each.source == source]
    return sorted(found, key=lambda near: -near.similarity)


def transitions(learned: LearnedTurn) -> Iterator[TransitionSeen]:
    """Yield the transitions that a turn makes."""
    state, turn = learned.state, learned.turn
    if (source := source_of(state)) is None:
        return
    said = state_words(state, turn.summary)
    for step in turn.steps:
        if step.status == "ok":
            yield TransitionSeen(
                learned.run,
                step.key,
                source,
                step.tool,
                state.user_key,
                just_asked(state),
                said,
                bool(turn.summary and turn.summary.strip()),
            )


def source_of(state: RunState) -> str | None:
    """Return where the next edge begins: the episode's latest executed call, else START; None if unknown."""
    latest = next((step.tool for step in reversed(state.since_episode) if step.status in ("ok", "failed")), None)
    whole = state.symbols[0] == START or len(state.since_episode) < len(state.steps) or state.user.raw
    return latest if latest is not None else START if whole else None


def just_asked(state: RunState) -> bool:
    """Return True if no call was made since the latest user message."""
    return not state.since_user and (bool(state.user.raw) or not state.steps)


def state_words(state: RunState, summary: str | None = None) -> list[int]:
    """Return hashes of the words of the agent's summary, or else of the latest result for the request."""
    if summary and summary.strip():
        return _hashes(summary)
    return _hashes(result_in_words(state.since_user[-1])) if state.since_user else []


def result_in_words(step: ExecutedCall) -> str:
    """Return the beginning of a result, without what has a digit: ids and numbers are different in every run."""
    text = "" if step.output is None else _LOOK.repr(step.output)
    return " ".join([step.status, *(word for word in text.split() if not any(map(str.isdigit, word)))])


def _hashes(text: str) -> list[int]:
    told = {crc32(stem(word).encode("utf-8", "replace")) for word in words(text) if word not in STOP_WORDS}
    return sorted(told)[:MAX_WORDS]


def _dice(here: frozenset[int], there: Sequence[int]) -> float:
    """Return the Dice coefficient of two sets of words; 1 if both are empty."""
    return 2 * len(here.intersection(there)) / (len(here) + len(there)) if here or there else 1.0
