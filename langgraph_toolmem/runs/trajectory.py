"""What a list of chat messages says about tool calls.

The only module that reads LangChain messages (`messages` makes them out of dicts). :func:`parse_run` turns any
list that ``langchain_core.messages.convert_to_messages`` takes into a :class:`Run`: user messages and model turns
in order, with one :class:`ExecutedCall` per tool call. OpenAI logs whose arguments are broken JSON are read too.

Messages say what the model asked for. What was really done may differ (a person edited the call, a limit blocked
it): :class:`Execution` carries what a recorder saw, and goes before what the messages say.

Every step and every turn has a key that stays the same whenever the same history is read again: whole,
resumed, forked, trimmed at the head or summarised. Learning is idempotent because of these keys. A call is known by
its thread, the user message before it, and its id (where that is counted: also its tool and arguments), counted within
that message: ids alone repeat, even those that look drawn at random.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.prompt_values import PromptValue

from langgraph_toolmem.base.errors import MessageError
from langgraph_toolmem.base.keys import canonical, digest, looks_unique
from langgraph_toolmem.runs.episodes import in_episodes
from langgraph_toolmem.runs.messages import HOW, describe, entries_of, message_of
from langgraph_toolmem.runs.outputs import Status, edited_call, output_of, status_of, text_of, was_refused_by_a_person
from langgraph_toolmem.runs.own_calls import summaries_aside
from langgraph_toolmem.runs.run import (
    OWN_TOOLS,
    SUMMARY_TOOL,
    Chooser,
    ExecutedCall,
    Execution,
    Review,
    Run,
    Turn,
    UserMessage,
)

__all__ = [
    "SUMMARY_TOOL",
    "Chooser",
    "ExecutedCall",
    "Execution",
    "Review",
    "Run",
    "Status",
    "Turn",
    "UserMessage",
    "parse_run",
]

_SUMMARY_HUMAN = "Here is a summary of the conversation to date:"  # SummarizationMiddleware
_SUMMARY_SYSTEM = "Summary of the conversation so far:"  # langmem
# Words in the model's place, put there when the model was not asked or did not answer.
_NOT_THE_MODEL = re.compile(
    r"Model call limits exceeded: "  # ModelCallLimitMiddleware
    r"|(?:Tool|'.*' tool) call limit reached: .* limit exceeded"  # ToolCallLimitMiddleware
    r"|Model call failed after \d+ attempt"  # ModelRetryMiddleware
)


_UNREADABLE = (
    TypeError,
    ValueError,
    KeyError,
    AttributeError,
    IndexError,
    NotImplementedError,
    RecursionError,
)


def parse_run(
    messages: Iterable[Any] | PromptValue,
    *,
    thread_id: str | None = None,
    executions: Mapping[str, Execution] | None = None,
    watched: Container[str] = (),
    known: Mapping[str, str] | None = None,
    heads: Mapping[str, tuple[str, str]] | None = None,
) -> Run:
    """Read a history of messages.

    Args:
        messages: What ``convert_to_messages`` takes. ``RemoveMessage`` entries are dropped; answers to no
            call are ignored; a call whose arguments are broken JSON counts (as rejected, with no arguments)
            only if it was answered.
        thread_id: Identity of the run, if known. It makes keys of counter-like call ids (``call_0``) unique
            per run; without it the id of the assistant message is used, or else the first user text.
        executions: What recorders saw, by the keys of steps.
        watched: Keys of turns that a recorder watched from the beginning: there, a call that was answered with
            an error and of which no execution is known was never executed.
        known: User messages of the thread that were read before (their keys) with their episodes, in order: what a
            history without its head belongs to.
        heads: The user message before a call, and its episode, by the call's id: where nobody names the thread.

    Raises:
        MessageError: An entry cannot be read; the message names its index and what to pass.
    """
    entries = list(entries_of(messages))
    reader = _read(entries, thread_id, executions or {}, watched, "")
    found = dict(known or {})
    if (known or heads) and (head := reader.head(found, heads or {})):
        found.setdefault(*head)
        reader = _read(entries, thread_id, executions or {}, watched, head[0])
    run = reader.run()
    return replace(run, events=in_episodes(run.events, found, reader.user_before))


def _read(
    entries: Iterable[Any],
    thread_id: str | None,
    executions: Mapping[str, Execution],
    watched: Container[str],
    head: str,
) -> _Reader:
    reader = _Reader(thread_id, executions, watched, head)
    for index, message in enumerate(entries):
        try:
            reader.read(message if isinstance(message, BaseMessage) else message_of(message))
        except _UNREADABLE as error:
            reason = (str(error).strip() or repr(error)).splitlines()[0]
            raise MessageError(f"messages[{index}] ({describe(message)}): {reason[:300]}. {HOW}") from error
    return reader


@dataclass(slots=True)
class _Call:
    tool: str
    args: dict[str, Any]
    call_id: str
    key: str
    status: Status = "unanswered"
    output: Any = None
    answered: bool = False
    review: Review = ""


@dataclass(slots=True)
class _Draft:
    text: str
    chosen_by: Chooser
    key: str
    origin: str  # scope of the keys of its calls
    tokens: tuple[int, int, int] = (0, 0, 0)
    said: str = ""  # identity of the message itself, if it makes no calls
    calls: list[_Call] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)  # id -> tool of calls with unreadable arguments

    def position(self) -> str:
        return digest("calls", *(call.key for call in self.calls)) if self.calls else self.said

    @property
    def stays(self) -> bool:
        """Whether it called nothing but the memory's own tools: the run is where it was before."""
        return bool(self.calls) and all(call.tool in OWN_TOOLS for call in self.calls)


class _Reader:
    """State while a list is read once, front to back. A prefix of the list gives a prefix of the keys."""

    def __init__(
        self, thread_id: str | None, executions: Mapping[str, Execution], watched: Container[str], head: str
    ) -> None:
        self._thread_id = thread_id
        self.user_before = self._asked = head  # the user message before the first event, and the latest one
        self._executions = executions
        self._watched = watched
        self._scope = digest("run", thread_id) if thread_id is not None else ""
        self._events: list[UserMessage | _Draft] = []
        self._pending: dict[str, list[_Call]] = {}
        self._seen: dict[tuple[str, ...], int] = {}
        self._truncated = False
        self._headless = True  # no user message, model turn or summary so far
        self._thought = ""

    def read(self, message: BaseMessage) -> None:
        if isinstance(message, ToolMessage):
            self._answer(message)
        elif isinstance(message, AIMessage):
            self._turn(message)
        elif isinstance(message, HumanMessage):
            self._user(message)
        elif isinstance(message, SystemMessage):
            if self._headless and text_of(message.content).startswith(_SUMMARY_SYSTEM):
                self._truncated = True
        elif isinstance(message, ChatMessage):
            role = message.role.lower()
            if role in ("user", "human"):
                self._user(message)
            elif role in ("assistant", "ai"):
                self._turn(message)

    def run(self) -> Run:
        last = len(self._events) - 1
        for event in self._events:
            if not isinstance(event, UserMessage):
                for call in event.calls:
                    self._correct(call, watched=event.key in self._watched)
        events = [
            event if isinstance(event, UserMessage) else _finish(event, gone_on=index < last)
            for index, event in enumerate(self._events)
        ]
        tail = events[-1] if events else None
        pending = isinstance(tail, Turn) and not tail.settled
        return Run(
            events=tuple(summaries_aside(events)),
            thread_id=self._thread_id,
            truncated=self._truncated,
            next_key=None if pending else self._next_key(),
            thought=self._thought,
        )

    def _user(self, message: BaseMessage) -> None:
        marks = message.additional_kwargs
        text = text_of(message.content, separator="\n")
        summary = marks.get("lc_source") == "summarization"
        if summary or (self._headless and text.startswith(_SUMMARY_HUMAN)):
            self._truncated = True
            self._headless = False
            return
        if isinstance(marks.get("toolmem"), dict):  # a hint of ours, put in as a user message
            return
        self._headless = False
        if not self._scope:
            self._scope = digest("text", text)
        self._asked = self._said("user", message, text)
        self._events.append(UserMessage(text, self._asked))
        self._thought = ""

    def _turn(self, message: BaseMessage) -> None:
        if self._headless:
            self._truncated = True
            self._headless = False
        text = text_of(message.content)
        if _NOT_THE_MODEL.match(text) and not (isinstance(message, AIMessage) and message.tool_calls):
            return
        chosen_by: Chooser = "shortcut" if isinstance(message.additional_kwargs.get("toolmem"), dict) else "model"
        if text and chosen_by == "model":
            self._thought = text
        draft = _Draft(text, chosen_by, self._next_key(), self._origin(message), _tokens(message))
        for call in message.tool_calls if isinstance(message, AIMessage) else ():
            self._call(draft, call["name"], call["args"], call.get("id") or "")
        if not draft.calls:
            draft.said = self._said("words", message, text)
        self._events.append(draft)
        if not isinstance(message, AIMessage):
            return
        for call_id in {call.call_id for call in draft.calls}:
            self._pending[call_id] = [call for call in draft.calls if call.call_id == call_id]
        for invalid in message.invalid_tool_calls:
            name, refused_id = invalid.get("name"), invalid.get("id")
            if name and refused_id:
                draft.refused[refused_id] = name

    def _answer(self, message: ToolMessage) -> None:
        call_id = message.tool_call_id
        waiting = self._pending.get(call_id)
        last = self._events[-1] if self._events else None
        if waiting:
            call = waiting.pop(0)
            call.answered = True
            self._read_answer(call, message)
        elif isinstance(last, _Draft) and call_id in last.refused:
            call = self._call(last, last.refused.pop(call_id), {}, call_id)
            call.answered = True
            call.status = "rejected"
            call.output = output_of(message.content)
        elif self._headless:
            self._truncated = True

    def _read_answer(self, call: _Call, message: ToolMessage) -> None:
        content = message.content
        if edit := edited_call(content):
            tool, args, content = edit
            if (tool, canonical(args)) != (call.tool, canonical(call.args)):  # else it was let pass as it was
                call.tool, call.args, call.review = tool, args, "edited"
        call.status = status_of(content, error=message.status == "error")
        call.output = None if call.status == "unanswered" else output_of(content)
        if call.status == "rejected" and was_refused_by_a_person(content):
            call.review = "rejected"

    def _correct(self, call: _Call, *, watched: bool) -> None:
        """What was seen goes before what the messages say."""
        seen = self._executions.get(call.key)
        if seen is None:
            if watched and call.status == "failed":
                call.status = "rejected"
            return
        if (seen.tool, canonical(seen.args)) != (call.tool, canonical(call.args)):
            call.tool, call.args, call.review = seen.tool, seen.args, "edited"
        if seen.over or call.answered:
            call.answered = True
            call.status = seen.status

    def _call(self, draft: _Draft, tool: str, args: dict[str, Any], call_id: str) -> _Call:
        if looks_unique(call_id):
            identity: tuple[str, ...] = (self._asked or self._scope, call_id)
        else:
            identity = (draft.origin, call_id, tool, canonical(args))
        call = _Call(tool, args, call_id, digest(*identity, self._count(identity)))
        draft.calls.append(call)
        return call

    def _origin(self, message: BaseMessage) -> str:
        """Scope of counter-like call ids: the user message in its thread, else the message of the call."""
        if self._thread_id is not None or not message.id:
            return self._asked or self._scope
        return digest("message", message.id, "" if looks_unique(message.id) else self._scope)

    def _said(self, kind: str, message: BaseMessage, text: str) -> str:
        """Identity of a message: its id, or else its text and how often that came before."""
        thread = self._thread_id or ""
        if message.id and looks_unique(message.id):
            identity: tuple[str, ...] = (kind, thread, message.id)
        else:
            identity = (kind, self._scope, "" if kind == "user" else self._asked, message.id or text)
        return digest(*identity, self._count(identity))

    def head(self, known: Mapping[str, str], heads: Mapping[str, tuple[str, str]]) -> tuple[str, str] | None:
        """The user message before a history that begins without one, and its episode; None if that is unknown."""
        before = list(takewhile(lambda event: isinstance(event, _Draft), self._events))
        if not before:
            return None
        said, first = list(known.items()), self._events[len(before)] if len(before) < len(self._events) else None
        if isinstance(first, UserMessage) and first.key in known:
            place = list(known).index(first.key)
            return said[place - 1] if place else None
        if said:
            return said[-1]
        calls = (call.call_id for event in before if isinstance(event, _Draft) for call in event.calls)
        return next((heads[call] for call in calls if call in heads), None)

    def _next_key(self) -> str:
        if not self._events:
            return digest("turn", self._scope, "start")
        last = self._events[-1]
        if isinstance(last, UserMessage):
            return digest("turn", last.key)
        return last.key if last.stays else digest("turn", last.position())

    def _count(self, identity: tuple[str, ...]) -> int:
        before = self._seen.get(identity, 0)
        self._seen[identity] = before + 1
        return before


def _finish(draft: _Draft, *, gone_on: bool) -> Turn:
    return Turn(
        steps=tuple(
            ExecutedCall(
                call.tool,
                call.args,
                call.output,
                call.status,
                draft.chosen_by,
                call.call_id,
                call.key,
                call.review,
            )
            for call in draft.calls
        ),
        text=draft.text,
        chosen_by=draft.chosen_by,
        key=draft.key,
        settled=gone_on or all(call.answered for call in draft.calls if draft.stays or call.tool not in OWN_TOOLS),
        input_tokens=draft.tokens[0],
        output_tokens=draft.tokens[1],
        cached_tokens=draft.tokens[2],
    )


def _tokens(message: BaseMessage) -> tuple[int, int, int]:
    usage = message.usage_metadata if isinstance(message, AIMessage) else None
    if not usage:
        return 0, 0, 0
    cached = usage.get("input_token_details", {}).get("cache_read", 0)
    return int(usage["input_tokens"]), int(usage["output_tokens"]), int(cached or 0)
