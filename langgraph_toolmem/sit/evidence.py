"""SIT's table in the evidence graph: which tool came after which, in which state; and past states like the present.

Each run keeps its *transitions*: from the tool called before to the tool called next, with the state in between. A
state is the request (known to `graph.cases`) and the words of its latest result, or of the summary that the agent
wrote. Only hashes of the words are kept. What a run adds does not depend on the order of arrival.

- A call that was never executed (rejected, unanswered) is passed over. A failed call is no target, but the next
  transition begins at it.
- Calls of one turn were chosen in the same state: they have the same source. The next transition begins at the last.
- The first call of an episode has the source START. In a history whose head is missing the source of the first call is
  unknown, so there is no transition to it.
- Calls of the summary tool are no steps (`runs.trajectory`): their text comes with the turn after.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from reprlib import Repr
from typing import Any, Final
from zlib import crc32

from langgraph_toolmem.core.method import LearnedTurn
from langgraph_toolmem.graph.events import Event, Forgotten
from langgraph_toolmem.graph.state import START, RunState
from langgraph_toolmem.graph.tool_graph import Handler, Table, ToolGraph
from langgraph_toolmem.runs.run import ExecutedCall
from langgraph_toolmem.text.words import STOP_WORDS, stem, words

MAX_RUNS: Final = 10_000
"""Runs whose transitions are kept. The oldest leave."""
MAX_WORDS: Final = 24
"""Words of a state that are kept: those with the smallest hashes, so that similar states keep the same ones."""
_LOOK: Final = Repr()
_LOOK.maxlevel, _LOOK.maxdict, _LOOK.maxlist, _LOOK.maxstring = 3, 12, 1, 100
SHARE: Final = 0.8
"""Share of the similarity of two states that their words decide; the rest is the request's."""


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


class SITEvidence(Table):
    """Transitions of runs."""

    name = "sit"
    parts = ("runs",)

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        #: run -> {step: [source, target, request, asked, words, written]}
        self.runs: dict[str, dict[str, list[Any]]] = {}
        self._by_request: dict[str, dict[str, TransitionSeen]] = {}  # request -> step -> its transition

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {TransitionSeen: self.add}

    def add(self, run: str, step: str, *values: Any) -> None:
        """Add a transition of a run, with the further fields of `TransitionSeen`; the same step twice counts once."""
        known = self.runs.setdefault(run, {})
        if step not in known:
            made = TransitionSeen(run, step, *values)
            known[step] = [*made.values()[2:]]
            self._by_request.setdefault(made.request, {})[step] = made
        if len(self.runs) > MAX_RUNS:
            self._drop(next(iter(self.runs)))

    def transitions(self) -> Iterator[TransitionSeen]:
        for run, known in self.runs.items():
            for step, values in known.items():
                yield TransitionSeen(run, step, *values)

    def transitions_of(self, request: str) -> list[TransitionSeen]:
        """Return the transitions that served a request."""
        return list(self._by_request.get(request, {}).values())

    def _drop(self, run: str) -> None:
        for step, (_, _, request, *_) in self.runs.pop(run).items():
            steps = self._by_request.get(request, {})
            steps.pop(step, None)
            if not steps:
                self._by_request.pop(request, None)

    def forget(self, gone: Forgotten) -> int:
        """Delete the transitions of runs."""
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


def near_states(
    state: RunState,
    source: str | None,
    known: SITEvidence,
    *,
    summary: str = "",
) -> list[tuple[float, TransitionSeen]]:
    """Return past states in which a run stood at the same place with their similarity, 0 to 1, the most similar first.

    The similarity of two states is that of their requests, times 1 − SHARE·(1 − Dice coefficient of their words). Right
    after a user's message the place is the start, whatever tool came before.
    """
    asked, here = just_asked(state), frozenset(state_words(state, summary))
    found = [
        (similarity * (1 - SHARE * (1 - dice(here, each.words))), each)
        for similarity, request in known.graph.cases.similar(state.user.raw, state.asked)
        if request != state.user_key
        for each in known.transitions_of(request)
        if (each.asked if asked else each.source == source and not each.asked)
    ]
    return sorted(found, key=lambda near: -near[0])


def transitions(learned: LearnedTurn) -> Iterator[TransitionSeen]:
    """Yield the transitions that a turn makes."""
    state, summary = learned.state, learned.turn.summary or ""
    if (source := source_of(state)) is None:
        return
    said, asked, written = state_words(state, summary), just_asked(state), bool(summary.strip())
    for step in learned.turn.steps:
        if step.status == "ok":
            yield TransitionSeen(learned.run, step.key, source, step.tool, state.user_key, asked, said, written)


def source_of(state: RunState) -> str | None:
    """Return where the next transition begins: the episode's latest executed call, else START; None if unknown."""
    latest = next((step.tool for step in reversed(state.since_episode) if step.status in ("ok", "failed")), None)
    whole = state.symbols[0] == START or len(state.since_episode) < len(state.steps) or state.user.raw
    return latest if latest is not None else START if whole else None


def just_asked(state: RunState) -> bool:
    """Return True if no call was made since the latest user message."""
    return not state.since_user and (bool(state.user.raw) or not state.steps)


def state_words(state: RunState, summary: str = "") -> list[int]:
    """Return hashes of the words of the agent's summary, or else of the latest result for the request."""
    if summary.strip():
        return hashes(summary)
    return hashes(result_in_words(state.since_user[-1])) if state.since_user else []


def result_in_words(step: ExecutedCall) -> str:
    """Return the beginning of a result, without what has a digit: ids and numbers are different in every run."""
    text = "" if step.output is None else _LOOK.repr(step.output)
    return " ".join([step.status, *(word for word in text.split() if not any(map(str.isdigit, word)))])


def hashes(text: str) -> list[int]:
    found = {crc32(stem(word).encode("utf-8", "replace")) for word in words(text) if word not in STOP_WORDS}
    return sorted(found)[:MAX_WORDS]


def dice(here: frozenset[int], there: Sequence[int]) -> float:
    """Return the Dice coefficient of two sets of words; 1 if both are empty."""
    return 2 * len(here.intersection(there)) / (len(here) + len(there)) if here or there else 1.0
