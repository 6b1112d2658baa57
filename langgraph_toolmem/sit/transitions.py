"""The edges a run walked: which tool was called after which, and what state the agent was in.

- A call that was never executed (rejected, unanswered) is passed over. A failed one is no target, since nothing
  is learned by suggesting it, but what was called after it is: its edge starts at the failed tool.
- Calls of one turn were chosen in the same state: they have the same source. What follows them starts at the last.
- The first call of an episode has the source START. In a history whose head is missing, the call before the first is
  unknown, so there is no transition to it.
- Calls of the summary tool are no steps (`langgraph_toolmem.runs.trajectory`): their text comes with the turn after.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from langgraph_toolmem.graph.state import START, RunState
from langgraph_toolmem.runs.run import SUMMARY_TOOL, ExecutedCall, Run, Turn, UserMessage

__all__ = ["START", "SUMMARY_TOOL", "MadeBy", "Transition", "last_calls", "transitions"]

MadeBy = Literal["tool", "extractive", ""]
"""Who wrote a summary: the agent with the summary tool, or `extract`; "": there is none."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One edge of a run, and the state before its target.

    Attributes:
        source: tool called before, or START.
        target: tool called next, successfully.
        summary: the state before the target, in words.
        key: identity of the target's call (`ExecutedCall.key`).
        made_by: who wrote the summary.
        asked: a user had just spoken: no call lies between the message and the target.
    """

    source: str
    target: str
    summary: str | None
    key: str
    made_by: MadeBy
    asked: bool = False

    @property
    def place(self) -> str:
        """Return where the summary is kept: after a user's message what was asked decides, not the tool before it."""
        return START if self.asked else self.source


def transitions(run: Run, *, summarise: Callable[[RunState], str] | None = None) -> list[Transition]:
    """The transitions of a run, in order.

    Args:
        run: a history that was read.
        summarise: makes the summary of a state that the agent wrote none for; None: it has none then.
    """
    found: list[Transition] = []
    state = RunState(cut=run.truncated)
    source = None if run.truncated else START
    for event in run.events:
        if isinstance(event, UserMessage) and event.episode and event.episode != state.episode:
            source = START
        steps = executed(event) if isinstance(event, Turn) else []
        if isinstance(event, Turn) and steps and source is not None:
            targets = [step for step in steps if step.status == "ok"]
            summary = (event.summary or "").strip()
            author: MadeBy = "tool" if summary else "extractive"
            if not summary and targets and summarise is not None:
                summary = summarise(state).strip()
            found += [
                Transition(source, step.tool, summary or None, step.key, author if summary else "", just_asked(state))
                for step in targets
            ]
        state.push(event)
        source = steps[-1].tool if steps else source
    return found


def last_calls(run: Run) -> tuple[str, ...]:
    """The tools executed in the latest turn that executed any: where the next call's edges begin.

    Returns:
        Several if the turn made several calls; START if the episode has called nothing yet; none if that is unknown.
    """
    episode = run.current
    for event in reversed(episode.events):
        if isinstance(event, Turn) and (steps := executed(event)):
            return tuple(dict.fromkeys(step.tool for step in reversed(steps)))
    return () if episode.truncated else (START,)


def source_of(state: RunState) -> str | None:
    """Return where the next edge begins: the episode's latest executed call, else START; None if unknown."""
    latest = next((step.tool for step in reversed(state.since_episode) if step.status in ("ok", "failed")), None)
    whole = state.symbols[0] == START or len(state.since_episode) < len(state.steps) or state.user.raw
    return latest if latest is not None else START if whole else None


def just_asked(state: RunState) -> bool:
    """Return True if no call was made since the latest user message."""
    return not state.since_user and (bool(state.user.raw) or not state.steps)


def executed(turn: Turn) -> list[ExecutedCall]:
    """The calls of a turn that were executed."""
    return [step for step in turn.steps if step.status in ("ok", "failed")]
