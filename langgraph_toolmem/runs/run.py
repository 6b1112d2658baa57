"""Runs as values: user messages, model turns, the tool calls in them, and the episodes of a thread.

A *thread* is a conversation. An *episode* is one request in it: from the message that asks for something to its answer,
including the model's questions, the user's replies and confirmations. A user message opens an episode, unless

1. it asks for nothing (thanks, "yes", a greeting, a mark such as ``###STOP###``) and a request precedes it;
2. the episode has only greetings so far, or the previous message is unanswered;
3. the model's last words ask the user for something ("Which one?", "Please confirm …"; not "Anything else?") and the
   message replies: it begins with yes or no, or asks for nothing new, or shares the topic.

No model decides this. `core.episodes` keeps the result, so that it stays when the thread is trimmed later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

from langgraph_toolmem.base.text import digest
from langgraph_toolmem.runs.messages import Status
from langgraph_toolmem.runs.talk import asks_nothing, replies, request_in

Chooser = Literal["model", "shortcut"]
Review = Literal["", "edited", "rejected"]

SUMMARY_TOOL: Final = "summarize_state"
"""The tool that writes a summary. Its calls are no steps; its text belongs to the next turn."""
SEARCH_TOOL: Final = "search_more_tools"
"""The tool with which the model asks for more tools. Its calls are no steps either."""
OWN_TOOLS: Final = frozenset({SUMMARY_TOOL, SEARCH_TOOL})
"""The memory's own tools. Nothing is learned from their calls."""


@dataclass(frozen=True, slots=True)
class ExecutedCall:
    """One tool call.

    Attributes:
        tool: Name of the executed tool.
        args: Arguments as executed, JSON values: the model's, or those of a person who edited the call. Shared with
            the message; do not change them.
        output: Parsed JSON if the answer is a JSON object, array, number or boolean, otherwise its text; None if
            unanswered. Shared by all readers of this text; do not change it.
        status: ``ok``: executed. ``failed``: raised, or answered with ``status="error"``. ``rejected``: not executed
            as written (a person rejected or replaced it, a limit blocked it, unknown tool, arguments that do not fit
            the schema). ``unanswered``: no answer (yet).
        chosen_by: The author of the call.
        call_id: Id of the call in its message, "" if it has none.
        key: Identity of the executed call, 16 hexadecimal digits.
        review: ``edited`` if tool and arguments are a person's, ``rejected`` if a person rejected the call, or "".
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
    """One tool call as a recorder saw it.

    Attributes:
        tool: Name of the executed tool.
        args: Its arguments, without those that the host injects.
        status: ``ok`` or ``failed``, of the latest attempt.
        over: True if no further attempt comes.
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
        text: Its thought or answer, without reasoning blocks.
        chosen_by: The author of the message.
        key: Identity of the turn's position (of what precedes it), known before the model answers.
        settled: True if every call has its answer, or the history continues behind the turn.
        input_tokens, output_tokens: Usage of the model call; 0 if unknown.
        cached_tokens: Input tokens that the provider read from its cache.
        summary: Text that the agent wrote with the summary tool right before this turn, if any.
        episode: Digest of its episode.
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
    """A message of the user: its text, its identity, and the digest of its episode."""

    text: str
    key: str
    episode: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """A parsed history of messages: a thread, or one episode of it (`episodes`).

    Attributes:
        events: User messages and model turns in order, without system messages.
        thread_id: As given to `parse_run`.
        truncated: True if the head is missing (trimmed) or replaced by a summary.
        next_key: Key of the model turn that would come next; None while calls of the last turn are pending.
        thought: Latest text of the model since the last user message, "" if none.
        earlier: Events of the thread before this episode.
    """

    events: tuple[UserMessage | Turn, ...]
    thread_id: str | None
    truncated: bool
    next_key: str | None
    thought: str
    earlier: tuple[UserMessage | Turn, ...] = ()

    @property
    def digest(self) -> str:
        """Name of the current episode. It hides the thread's id, which may name a person."""
        return (self.events[-1].episode if self.events else "") or digest("run", self.thread_id or self.scope)

    @property
    def scope(self) -> str:
        """Key of the first event, in place of a missing thread id."""
        return self.events[0].key if self.events else ""

    def episodes(self) -> list[Run]:
        """Return the episodes of a thread in order, each with the events before it."""
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
        """Return the episodes (digests) that end with words of the model."""
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
        """The request of the current episode; "" if there is none. See `talk.request_in`."""
        episode = self.current
        earlier = [event.text for event in episode.earlier if isinstance(event, UserMessage)]
        return request_in(episode.said, earlier)

    @property
    def said(self) -> tuple[str, ...]:
        """Texts of the user's messages."""
        texts = (event.text.strip() for event in self.events if isinstance(event, UserMessage))
        return tuple(text for text in texts if text)

    @property
    def awaiting_model(self) -> bool:
        """True if the model moves next: no call is pending and it has not just answered in words."""
        if self.next_key is None:
            return False
        last = self.events[-1] if self.events else None
        return not (isinstance(last, Turn) and not last.steps)


def opens(text: str, before: Sequence[UserMessage | Turn]) -> bool:
    """Return True if a user message opens an episode, given the events of the current one (see the module)."""
    said = [event.text for event in before if isinstance(event, UserMessage)]
    if asks_nothing(text) or (said and all(map(asks_nothing, said))):
        return False
    last = before[-1] if before else None
    if not isinstance(last, Turn):
        return last is None
    return bool(last.steps) or not replies(text, last.text, said)
