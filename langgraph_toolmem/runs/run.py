"""Runs as values: user messages, model turns, and the tool calls in them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

from langgraph_toolmem.base.keys import digest
from langgraph_toolmem.runs.outputs import Status
from langgraph_toolmem.runs.talk import request_in

Chooser = Literal["model", "shortcut"]
Review = Literal["", "edited", "rejected"]

SUMMARY_TOOL: Final = "summarize_state"
"""A tool that acts on the memory, not on the world: its calls are no steps, its text goes with the next turn."""
SEARCH_TOOL: Final = "search_more_tools"
"""A tool with which the model asks for more tools: its calls are no steps either."""
OWN_TOOLS: Final = frozenset({SUMMARY_TOOL, SEARCH_TOOL})
"""The memory's own tools: nothing is learned of their calls."""


@dataclass(frozen=True, slots=True)
class ExecutedCall:
    """One tool call.

    Attributes:
        tool: Name of the tool that was executed.
        args: Arguments as executed, JSON values: the model's, or a person's who edited the call. Shared with the
            message: not to be changed.
        output: Parsed JSON if the answer is a JSON object, array, number or boolean, else its text; None if
            unanswered. Shared by all readers of the same text: not to be changed.
        status: ``ok``: executed. ``failed``: executed and raised, or answered with ``status="error"``.
            ``rejected``: never executed as written (a human rejected or replaced it, a limit blocked it,
            unknown tool, arguments refused by the schema). ``unanswered``: no answer (yet).
        chosen_by: Who chose the call.
        call_id: Id of the call in its message, "" if it has none.
        key: Identity of the executed call, 16 hexadecimal digits.
        review: What a person did to it: ``edited`` (tool and arguments are the person's), ``rejected``, or "".
    """

    tool: str
    args: dict[str, Any]
    output: Any
    status: Status
    chosen_by: Chooser
    call_id: str
    key: str
    review: Review = ""


@dataclass(frozen=True, slots=True)
class Execution:
    """What a recorder saw of one tool call.

    Attributes:
        tool: Name of the tool that was executed.
        args: Arguments it was given, those that the host injects left out.
        status: ``ok`` or ``failed``, of the latest attempt.
        over: No further attempt comes.
    """

    tool: str
    args: dict[str, Any]
    status: Literal["ok", "failed"]
    over: bool = True


@dataclass(frozen=True, slots=True)
class Turn:
    """One assistant message.

    Attributes:
        steps: Its calls in order; empty if the model answered in words.
        text: Its thought or answer; reasoning blocks excluded.
        chosen_by: Who made the message.
        key: Identity of the turn's position (what precedes it), known before the model answers.
        settled: Every call has its answer, or the history went on past it.
        input_tokens: Tokens of the model call's prompt, as its usage says; 0 if it says nothing.
        output_tokens: Tokens of its answer.
        cached_tokens: Of the prompt's, those that the provider read from its cache.
        summary: What the agent wrote down with the summary tool right before this turn, if it did.
        episode: Digest of the episode it belongs to.
    """

    steps: tuple[ExecutedCall, ...]
    text: str
    chosen_by: Chooser
    key: str
    settled: bool
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    summary: str | None = None
    episode: str = ""


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What the user said: its text, the message's identity, and the digest of the episode it belongs to."""

    text: str
    key: str
    episode: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """A history of messages, read: a thread, or one episode of it (`episodes`).

    Attributes:
        events: User messages and model turns in order; system messages left out.
        thread_id: As given to :func:`parse_run`.
        truncated: The head is missing (trimmed) or replaced by a summary.
        next_key: Key of the model turn that would come next; None while calls of the last turn are pending.
        thought: The latest text the model stated in the current user turn, "" if none.
        earlier: Of an episode, what came before it in its thread.
    """

    events: tuple[UserMessage | Turn, ...]
    thread_id: str | None
    truncated: bool
    next_key: str | None
    thought: str
    earlier: tuple[UserMessage | Turn, ...] = ()

    @property
    def digest(self) -> str:
        """What the current episode is called: the thread's id, which may name a person, must not be told."""
        return (self.events[-1].episode if self.events else "") or digest("run", self.thread_id or self.scope)

    @property
    def scope(self) -> str:
        """What stands for the run when no thread id was given: its first event."""
        return self.events[0].key if self.events else ""

    def episodes(self) -> list[Run]:
        """The episodes of a thread, in order; each knows what came before it."""
        bounds = [index for index, (one, two) in enumerate(pairwise(self.events), 1) if one.episode != two.episode]
        if not bounds:
            return [self]
        return [
            Run(
                self.events[start:end],
                self.thread_id,
                self.truncated and not start,
                self.next_key if end == len(self.events) else None,
                self.thought if end == len(self.events) else "",
                self.events[:start],
            )
            for start, end in pairwise([0, *bounds, len(self.events)])
        ]

    def answered(self) -> list[str]:
        """The episodes (digests) that end with words of the model."""
        nexts = (*(event.episode for event in self.events[1:]), None)
        ends = (event for event, after in zip(self.events, nexts, strict=True) if event.episode != after)
        return [event.episode or self.digest for event in ends if isinstance(event, Turn) and not event.steps]

    @property
    def current(self) -> Run:
        """The latest episode."""
        start, events = len(self.events), self.events
        while start and events[start - 1].episode == events[-1].episode:
            start -= 1
        if not start:
            return self
        return Run(events[start:], self.thread_id, False, self.next_key, self.thought, events[:start])

    @property
    def request(self) -> str:
        """What the current episode asks for; "" if nothing. See `talk.request_in`."""
        episode = self.current
        earlier = [event.text for event in episode.earlier if isinstance(event, UserMessage)]
        return request_in(episode.said, earlier)

    @property
    def said(self) -> tuple[str, ...]:
        """The messages of the user."""
        texts = (event.text.strip() for event in self.events if isinstance(event, UserMessage))
        return tuple(text for text in texts if text)

    @property
    def awaiting_model(self) -> bool:
        """Whether the model moves next: no call is pending and it has not just answered in words."""
        if self.next_key is None:
            return False
        last = self.events[-1] if self.events else None
        return not (isinstance(last, Turn) and not last.steps)
