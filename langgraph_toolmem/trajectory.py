"""Runs as values: what a list of chat messages says about tool calls.

The only module that reads LangChain messages. :func:`parse_run` turns any list that
``langchain_core.messages.convert_to_messages`` takes into a :class:`Run`: user messages and model turns in
order, with one :class:`Step` per tool call. OpenAI logs whose arguments are broken JSON are read too.

Every step and every turn has a key that stays the same whenever the same history is read again: whole,
resumed, forked, trimmed at the head or summarised. Learning is idempotent because of these keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    InvalidToolCall,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
)
from langchain_core.prompt_values import PromptValue

from langgraph_toolmem.errors import MessageError
from langgraph_toolmem.keys import canonical, digest, looks_unique
from langgraph_toolmem.outputs import Status, output_of, status_of, text_of

Chooser = Literal["model", "shortcut"]

_SUMMARY_HUMAN = "Here is a summary of the conversation to date:"  # SummarizationMiddleware
_SUMMARY_SYSTEM = "Summary of the conversation so far:"  # langmem


_HOW = (
    "Pass a list of LangChain messages, OpenAI-style dicts with 'role' and 'content', or (role, text) pairs, "
    'for example state["messages"].'
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


@dataclass(frozen=True, slots=True)
class Step:
    """One tool call.

    Attributes:
        tool: Name of the tool.
        args: Arguments as the model gave them, JSON values. Shared with the message: not to be changed.
        output: Parsed JSON if the answer is a JSON object, array, number or boolean, else its text; None if
            unanswered. Shared by all readers of the same text: not to be changed.
        status: ``ok``: executed. ``failed``: executed and raised, or answered with ``status="error"``.
            ``rejected``: never executed as written (a human rejected or replaced it, a limit blocked it,
            unknown tool, arguments refused by the schema). ``unanswered``: no answer (yet).
        chosen_by: Who chose the call.
        call_id: Id of the call in its message, "" if it has none.
        key: Identity of the executed call, 16 hexadecimal digits.
    """

    tool: str
    args: dict[str, Any]
    output: Any
    status: Status
    chosen_by: Chooser
    call_id: str
    key: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One assistant message.

    Attributes:
        steps: Its calls in order; empty if the model answered in words.
        text: Its thought or answer; reasoning blocks excluded.
        chosen_by: Who made the message.
        key: Identity of the turn's position (what precedes it), known before the model answers.
        settled: Every call has its answer, or the history went on past it.
        tokens: Tokens of the model call, prompt and answer, as its usage says; 0 if it says nothing.
    """

    steps: tuple[Step, ...]
    text: str
    chosen_by: Chooser
    key: str
    settled: bool
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What the user said: its text and the message's identity."""

    text: str
    key: str


@dataclass(frozen=True, slots=True)
class Run:
    """A history of messages, read.

    Attributes:
        events: User messages and model turns in order; system messages left out.
        run_id: As given to :func:`parse_run`.
        truncated: The head is missing (trimmed) or replaced by a summary.
        next_key: Key of the model turn that would come next; None while calls of the last turn are pending.
        thought: The latest text the model stated in the current user turn, "" if none.
    """

    events: tuple[UserMessage | Turn, ...]
    run_id: str | None
    truncated: bool
    next_key: str | None
    thought: str

    @property
    def awaiting_model(self) -> bool:
        """Whether the model moves next: no call is pending and it has not just answered in words."""
        if self.next_key is None:
            return False
        last = self.events[-1] if self.events else None
        return not (isinstance(last, Turn) and not last.steps)


def parse_run(messages: Iterable[Any] | PromptValue, *, run_id: str | None = None) -> Run:
    """Read a history of messages.

    Args:
        messages: What ``convert_to_messages`` takes. ``RemoveMessage`` entries are dropped; answers to no
            call are ignored; a call whose arguments are broken JSON counts (as rejected, with no arguments)
            only if it was answered.
        run_id: Identity of the run, if known. It makes keys of counter-like call ids (``call_0``) unique
            per run; without it the id of the assistant message is used, or else the first user text.

    Raises:
        MessageError: An entry cannot be read; the message names its index and what to pass.
    """
    reader = _Reader(run_id)
    for index, message in enumerate(_entries(messages)):
        try:
            reader.read(message if isinstance(message, BaseMessage) else _message(message))
        except _UNREADABLE as error:
            reason = (str(error).strip() or repr(error)).splitlines()[0]
            raise MessageError(f"messages[{index}] ({_describe(message)}): {reason[:300]}. {_HOW}") from error
    return reader.run()


@dataclass(slots=True)
class _Call:
    tool: str
    args: dict[str, Any]
    call_id: str
    key: str
    status: Status = "unanswered"
    output: Any = None
    answered: bool = False


@dataclass(slots=True)
class _Draft:
    text: str
    chosen_by: Chooser
    key: str
    origin: str  # scope of the keys of its calls
    tokens: int = 0
    said: str = ""  # identity of the message itself, if it makes no calls
    calls: list[_Call] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)  # id -> tool of calls with unreadable arguments

    def position(self) -> str:
        return digest("calls", *(call.key for call in self.calls)) if self.calls else self.said


class _Reader:
    """State while a list is read once, front to back. A prefix of the list gives a prefix of the keys."""

    def __init__(self, run_id: str | None) -> None:
        self._run_id = run_id
        self._scope = digest("run", run_id) if run_id is not None else ""
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
        events = tuple(
            event if isinstance(event, UserMessage) else _finish(event, gone_on=index < last)
            for index, event in enumerate(self._events)
        )
        tail = events[-1] if events else None
        pending = isinstance(tail, Turn) and not tail.settled
        return Run(
            events=events,
            run_id=self._run_id,
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
        self._events.append(UserMessage(text, self._said("user", message, text)))
        self._thought = ""

    def _turn(self, message: BaseMessage) -> None:
        if self._headless:
            self._truncated = True
            self._headless = False
        text = text_of(message.content)
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
            call.status = status_of(message.content, error=message.status == "error")
            call.output = None if call.status == "unanswered" else output_of(message.content)
        elif isinstance(last, _Draft) and call_id in last.refused:
            call = self._call(last, last.refused.pop(call_id), {}, call_id)
            call.answered = True
            call.status = "rejected"
            call.output = output_of(message.content)
        elif self._headless:
            self._truncated = True

    def _call(self, draft: _Draft, tool: str, args: dict[str, Any], call_id: str) -> _Call:
        if looks_unique(call_id):
            identity: tuple[str, ...] = (call_id,)
        else:
            identity = (draft.origin, call_id, tool, canonical(args))
        call = _Call(tool, args, call_id, digest(*identity, self._count(identity)))
        draft.calls.append(call)
        return call

    def _origin(self, message: BaseMessage) -> str:
        """Scope of counter-like call ids: the run, else the message, else the first user text so far."""
        if self._run_id is not None or not message.id:
            return self._scope
        return digest("message", message.id, "" if looks_unique(message.id) else self._scope)

    def _said(self, kind: str, message: BaseMessage, text: str) -> str:
        """Identity of a message: its id, or else its text and how often that came before."""
        if message.id and looks_unique(message.id):
            again = self._count((message.id,))
            return digest(message.id, again) if again else message.id
        identity = (kind, self._scope, message.id or text)
        return digest(*identity, self._count(identity))

    def _next_key(self) -> str:
        if not self._events:
            return digest("turn", self._scope, "start")
        last = self._events[-1]
        return digest("turn", last.key if isinstance(last, UserMessage) else last.position())

    def _count(self, identity: tuple[str, ...]) -> int:
        before = self._seen.get(identity, 0)
        self._seen[identity] = before + 1
        return before


def _finish(draft: _Draft, *, gone_on: bool) -> Turn:
    return Turn(
        steps=tuple(
            Step(call.tool, call.args, call.output, call.status, draft.chosen_by, call.call_id, call.key)
            for call in draft.calls
        ),
        text=draft.text,
        chosen_by=draft.chosen_by,
        key=draft.key,
        settled=gone_on or all(call.answered for call in draft.calls),
        tokens=draft.tokens,
    )


def _tokens(message: BaseMessage) -> int:
    usage = message.usage_metadata if isinstance(message, AIMessage) else None
    return int(usage["total_tokens"]) if usage else 0


def _entries(messages: Iterable[Any] | PromptValue) -> Iterable[Any]:
    if isinstance(messages, (list, tuple)):
        return messages
    if isinstance(messages, PromptValue):
        return messages.to_messages()
    if isinstance(messages, (str, bytes, Mapping, BaseMessage)) or not isinstance(messages, Iterable):
        raise MessageError(f"messages is {_describe(messages)}, not a list of messages. {_HOW}")
    return list(messages)


def _describe(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"dict with keys {', '.join(map(repr, list(value)[:8])) or 'none'}"
    return type(value).__name__


def _message(entry: Any) -> BaseMessage:
    """One entry that is no message object yet: mended where logs are sloppy, then converted."""
    if not isinstance(entry, dict):
        return convert_to_messages([entry])[0]
    fields = dict(entry)
    if isinstance(fields.get("data"), dict) and "content" not in fields:  # messages_to_dict
        fields = {**fields["data"], "type": fields.get("type")}
    role = fields.get("role", fields.get("type"))
    if isinstance(role, str) and role != "constructor":
        content = fields.get("content")
        if content is None:
            fields["content"] = ""
        elif role == "tool" and not _is_content(content):
            fields["content"] = json.dumps(content, default=str)
    for name in ("additional_kwargs", "response_metadata", "tool_calls", "invalid_tool_calls"):
        if fields.get(name, 0) is None:
            del fields[name]
    refused: list[InvalidToolCall] = []
    if role in ("assistant", "ai"):
        refused = list(fields.pop("invalid_tool_calls", ()))
        calls, broken = _calls(fields.pop("tool_calls", ()))
        refused += broken
        if calls:
            fields["tool_calls"] = calls
    message = convert_to_messages([fields])[0]
    if refused and isinstance(message, AIMessage):
        message.invalid_tool_calls = refused
    return message


def _is_content(content: Any) -> bool:
    if isinstance(content, list):
        return all(isinstance(part, (str, dict)) for part in content)
    return isinstance(content, str)


def _calls(raw: Any) -> tuple[list[dict[str, Any]], list[InvalidToolCall]]:
    """Tool calls of an assistant dict in OpenAI's or LangChain's form; those with unreadable arguments."""
    calls: list[dict[str, Any]] = []
    broken: list[InvalidToolCall] = []
    for call in raw:
        function = call.get("function") or call
        name, call_id = function.get("name"), call.get("id")
        args = function.get("arguments", function.get("args"))
        if isinstance(args, str):
            try:
                args = json.loads(args, strict=False) if args.strip() else {}
            except (ValueError, RecursionError):
                args = function.get("arguments")
        if args is None:
            args = {}
        if isinstance(args, dict) and isinstance(name, str):
            calls.append({"name": name, "args": args, "id": call_id, "type": "tool_call"})
        else:
            broken.append(
                InvalidToolCall(type="invalid_tool_call", name=name, args=str(args), id=call_id, error="no JSON object")
            )
    return calls, broken
