"""The state of a run at a model turn: where it stands, and what came back; and the past states similar to it.

- A call that was never executed (rejected, unanswered) is passed over. A failed call is no target, but the next edge
  begins at it.
- Calls of one turn were chosen in the same state: they have the same source. The next edge begins at the last of them.
- The first call of an episode has the source START. In a history whose head is missing the source of the first call is
  unknown, so there is no transition to it.
- Calls of the summary tool are no steps (`runs.trajectory`): their text comes with the turn after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from reprlib import Repr
from typing import Final, NamedTuple
from zlib import crc32

from langgraph_toolmem.core.method import LearnedTurn
from langgraph_toolmem.graph.cases import CaseIndex
from langgraph_toolmem.graph.state import START, RunState
from langgraph_toolmem.runs.run import ExecutedCall
from langgraph_toolmem.sit.evidence import TransitionSeen
from langgraph_toolmem.text.words import STOP_WORDS, stem, words

MAX_WORDS: Final = 24
"""Words of a state that are kept: those with the smallest hashes, so that similar states keep the same ones."""
_LOOK: Final = Repr()
_LOOK.maxlevel, _LOOK.maxdict, _LOOK.maxlist, _LOOK.maxstring = 3, 12, 1, 100
SHARE: Final = 0.8
"""Share of the similarity of two states that their words decide; the rest is the request's."""


class Near(NamedTuple):
    """A past state similar to the present one, and what came next in it.

    Attributes:
        similarity: 0 to 1.
        transition: what came next, and in which run.
    """

    similarity: float
    transition: TransitionSeen


Known = Callable[[str], Iterable[TransitionSeen]]
"""From a request to the transitions that served it."""


def near_states(
    state: RunState, source: str | None, index: CaseIndex, known: Known, *, summary: str | None = None
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
