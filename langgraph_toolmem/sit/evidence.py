"""SIT's table in the evidence graph: the transitions between tools with their states; and similar past states.

Each run keeps its *transitions*: from the tool called before to the tool called next, with the state in between. A
state is the request (known to `graph.cases`) and the words of its latest result, or of the summary that the agent
wrote. Only hashes of the words are kept. The transitions of a run do not depend on the order of arrival.

- A call that was never executed (rejected, unanswered) is skipped. A failed call is not a target, but the next
  transition begins at it.
- Calls of one turn were chosen in the same state: they have the same source. The next transition begins at the last.
- The first call of an episode has the source START. In a history without its head the source of the first call is
  unknown, so it has no transition.
- Calls of the summary tool are not steps (`runs.trajectory`): their text comes with the next turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from reprlib import Repr
from typing import Any, ClassVar, NamedTuple
from zlib import crc32

from langgraph_toolmem.core.method import LearnedTurn
from langgraph_toolmem.graph import shapes
from langgraph_toolmem.graph.events import Event, Forgotten
from langgraph_toolmem.graph.state import START, RunState
from langgraph_toolmem.graph.tool_graph import Handler, Table, ToolGraph
from langgraph_toolmem.runs.run import ExecutedCall
from langgraph_toolmem.text.words import STOP_WORDS, stem, words


@dataclass(slots=True)
class TransitionSeen(Event):
    """In a run, `target` was called right after `source`.

    Attributes:
        run: digest of the run.
        step: key of the target's call.
        request: key of the user message that the call serves.
        asked: True if the target is the first call after that message.
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
    """Transitions of runs.

    On disk a run is ``{step: [source, target, request, asked, words, written]}``: the fields of `TransitionSeen` after
    `run` and `step`, which are the keys.

    Attributes:
        max_runs: limit of runs with kept transitions. The oldest are dropped.
    """

    name = "sit"
    parts: ClassVar = {"runs": shapes.RowsOf(shapes.RowsOf(shapes.fields_of(TransitionSeen, 2)))}
    max_runs = 10_000

    def __init__(self, graph: ToolGraph) -> None:
        super().__init__(graph)
        self.runs: dict[str, dict[str, TransitionSeen]] = {}
        self._by_request: dict[str, dict[str, TransitionSeen]] = {}  # request -> step -> its transition

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {TransitionSeen: self._add_values}

    def _add_values(self, *values: Any) -> None:
        self.add(TransitionSeen(*values))

    def add(self, seen: TransitionSeen) -> None:
        """Add a transition of a run; the same step twice counts once."""
        # Two processes may learn the same step: it counts once, in any order of the events.
        known = self.runs.setdefault(seen.run, {})
        if seen.step not in known:
            known[seen.step] = seen
            self._by_request.setdefault(seen.request, {})[seen.step] = seen
        if len(self.runs) > self.max_runs:
            self._drop(next(iter(self.runs)))

    def transitions(self) -> Iterator[TransitionSeen]:
        for known in self.runs.values():
            yield from known.values()

    def transitions_of(self, request: str) -> list[TransitionSeen]:
        """Return the transitions that served a request."""
        return list(self._by_request.get(request, {}).values())

    def _drop(self, run: str) -> None:
        for step, seen in self.runs.pop(run).items():
            steps = self._by_request.get(seen.request, {})
            steps.pop(step, None)
            # The key of a request is made of a user's words, so it is deleted with the last run that had it.
            if not steps:
                self._by_request.pop(seen.request, None)

    def forget(self, gone: Forgotten) -> int:
        """Delete the transitions of runs."""
        for run in gone.runs:
            if run in self.runs:
                self._drop(run)
        return 0

    def to_state(self) -> dict[str, Any]:
        plain_runs: dict[str, dict[str, list[Any]]] = {}
        for run, known in self.runs.items():
            # Run and step are the keys, and are not stored twice.
            plain_runs[run] = {step: list(seen.values()[2:]) for step, seen in known.items()}
        return {"runs": plain_runs}

    def load(self, state: dict[str, Any]) -> None:
        self.runs, self._by_request = {}, {}
        for run, known in state["runs"].items():
            seen_in_run = self.runs[run] = {}
            for step, values in known.items():
                seen = TransitionSeen(run, step, *values)
                seen_in_run[step] = seen
                self._by_request.setdefault(seen.request, {})[step] = seen


# --- states ---


class NearState(NamedTuple):
    """A past state with its similarity to the present one, 0 to 1."""

    similarity: float
    seen: TransitionSeen


def near_states(
    state: RunState,
    source: str | None,
    known: SITEvidence,
    *,
    summary: str = "",
) -> list[NearState]:
    """Return the past states of runs at the same place, the most similar first.

    The similarity of two states is that of their requests, times 1 − 0.8·(1 − Dice coefficient of their words). Right
    after a user's message the place is the start, after any tool.
    """
    # Between .5 and .8, the share of the words moves hit@2 by less than a point.
    share_of_words = 0.8
    asked = just_asked(state)
    here = frozenset(state_words(state, summary))
    near = []
    # Chroma, with summaries of states, found no better ones: hit@2 bfcl 77.1 %, office 90.9, shop 82.5; here 78.4, 90.2
    # and 84.0 (`python -m benchmarks.sit --seeds 2`).
    for of_requests, request in known.graph.cases.similar(state.user.raw, state.asked):
        # The present request is learned turn by turn: it would find itself, and suggest its own last call.
        if request == state.user_key:
            continue
        for seen in known.transitions_of(request):
            if _begins_there(seen, source, asked=asked):
                of_words = dice(here, seen.words)
                near.append(NearState(of_requests * (1 - share_of_words * (1 - of_words)), seen))
    return sorted(near, key=attrgetter("similarity"), reverse=True)


def _begins_there(seen: TransitionSeen, source: str | None, *, asked: bool) -> bool:
    """Return True if a transition begins at the present place: at a user's message if `asked`, or after `source`."""
    # After a user's message the tool before it is irrelevant: all transitions that begin at a message are compared.
    if asked or seen.asked:
        return asked and seen.asked
    return seen.source == source


def transitions(learned: LearnedTurn) -> Iterator[TransitionSeen]:
    """Yield the transitions that a turn makes."""
    state = learned.state
    source = source_of(state)
    if source is None:
        return
    summary = learned.turn.summary or ""
    hashed = state_words(state, summary)
    asked = just_asked(state)
    written = bool(summary.strip())
    for step in learned.turn.steps:
        # A failed call is not a target: it may have been the wrong next step.
        if step.status == "ok":
            # A list of its own: no snapshot can be written of a list that two transitions share. After calls that were
            # made at once behind a result, a folder memory wrote no snapshot any more, and `forget` raised.
            words_here = list(hashed)
            yield TransitionSeen(learned.run, step.key, source, step.tool, state.user_key, asked, words_here, written)


def source_of(state: RunState) -> str | None:
    """Return the place where the next transition begins; None if it is unknown.

    It is the episode's latest executed call; before the first one it is START.
    """
    for step in reversed(state.since_episode):
        if step.status in ("ok", "failed"):
            return step.tool
    # If the head of a history is missing, and the beginning of the episode is unknown, a call may be cut off.
    begins_here = state.symbols[0] == START or len(state.since_episode) < len(state.steps) or state.user.raw
    if begins_here:
        return START
    return None


def just_asked(state: RunState) -> bool:
    """Return True if no call was made since the latest user message."""
    return not state.since_user and (bool(state.user.raw) or not state.steps)


def state_words(state: RunState, summary: str = "") -> list[int]:
    """Return hashes of the words of the agent's summary, otherwise of the latest result for the request."""
    if summary.strip():
        return hashes(summary)
    if state.since_user:
        return hashes(result_in_words(state.since_user[-1]))
    return []


class _Beginning(Repr):
    """Writes the beginning of a value: its first items, three levels deep."""

    # Bounded, so that a list of a thousand rows costs as much as one row, and has a similar state.
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxdict = 12
        self.maxlist = 1
        self.maxstring = 100


def result_in_words(step: ExecutedCall) -> str:
    """Return the beginning of a result, without words that have a digit: ids and numbers differ in every run."""
    telling: list[str] = [step.status]
    if step.output is not None:
        for word in _Beginning().repr(step.output).split():
            if not _has_digit(word):
                telling.append(word)
    return " ".join(telling)


def _has_digit(word: str) -> bool:
    return any(map(str.isdigit, word))


def hashes(text: str) -> list[int]:
    """Return hashes of the words of a state: the 24 smallest, so that similar states keep the same ones."""
    # Hashes, not words: past states do not contain the words of other users.
    hashed: set[int] = set()
    for word in words(text):
        if word not in STOP_WORDS:
            hashed.add(crc32(stem(word).encode("utf-8", "replace")))
    return sorted(hashed)[:24]


def dice(here: frozenset[int], there: Sequence[int]) -> float:
    """Return the Dice coefficient of two sets of words; 1 if both are empty."""
    words_of_both = len(here) + len(there)
    # Two states without words, as right after a request, do not differ.
    if not words_of_both:
        return 1.0
    return 2 * len(here.intersection(there)) / words_of_both
