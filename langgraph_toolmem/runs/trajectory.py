"""Chat messages to runs with their tool calls.

The only module that reads LangChain messages (`messages` makes them from dicts). :func:`parse_run` turns any list that
``langchain_core.messages.convert_to_messages`` accepts into a :class:`Run`: user messages and model turns in order,
with one :class:`ExecutedCall` per tool call.

Messages contain the model's requests. The real execution may differ (a person edited the call, a limit blocked it):
:class:`Execution` is a recorder's observation, and takes precedence over the messages.

Every step and every turn has a key that is the same whenever the same history is read again: whole, resumed, forked,
trimmed at the head or summarised. Learning is idempotent because of these keys. A call is identified by its thread, the
user message before it, and its id (for counted ids also its tool and arguments), counted within that message: ids alone
repeat, even those that look random.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import is_, itemgetter
from typing import Any, Final, NamedTuple

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.prompt_values import PromptValue

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.caches import drop_oldest, put_latest
from langgraph_toolmem.base.errors import MessageError, first_line
from langgraph_toolmem.base.text import canonical, digest, identity_of, looks_unique
from langgraph_toolmem.runs.run import (
    ACCEPTED_MESSAGES,
    OWN_TOOLS,
    STOPPED,
    SUMMARY_TOOL,
    Chooser,
    ExecutedCall,
    Execution,
    Run,
    Turn,
    UserMessage,
    describe,
    edited_call,
    entries_of,
    media_of,
    message_of,
    opens,
    output_of,
    status_of,
    text_of,
    was_answered_by_a_person,
    was_refused_by_a_person,
)
from langgraph_toolmem.runs.values import readable

_SUMMARY_HUMAN = "Here is a summary of the conversation to date:"  # SummarizationMiddleware
_SUMMARY_SYSTEM = "Summary of the conversation so far:"  # langmem
# Words in the model's place, put there when the model was not asked or did not answer.
_NOT_THE_MODEL = re.compile(
    r"Model call limits exceeded: "  # ModelCallLimitMiddleware
    r"|(?:Tool|'[^'\n]*' tool) call limit reached: .* limit exceeded"  # ToolCallLimitMiddleware
    r"|Model call failed after \d+ attempt"  # ModelRetryMiddleware
    rf"|{re.escape(STOPPED)}"
)


def parse_run(messages: Iterable[Any] | PromptValue, *, thread_id: str | None = None) -> Run:
    """Read a history of messages.

    Args:
        messages: In any form that ``convert_to_messages`` accepts. ``RemoveMessage`` entries, answers to no call, and
            calls whose arguments are broken JSON are left out.
        thread_id: Makes keys of counter-like call ids (``call_0``) unique per run.

    Raises:
        MessageError: An entry cannot be read; the message names its index and the expected form.
    """
    return Reading(ThreadKnowledge(thread_id)).extend(list(entries_of(messages)))


class KnownMessage(NamedTuple):
    """A user message that was read before: its key and its episode."""

    key: str
    episode: str


@dataclass(frozen=True, slots=True)
class ThreadKnowledge:
    """Facts about a thread that are not in its messages.

    Attributes:
        thread_id: id of the thread; None if the host does not name it.
        executions: calls as recorders saw them, by the keys of their steps.
        watched: keys of turns that a recorder watched. A failed call without an execution was never executed there.
        episodes: episodes of the thread's user messages that were read before, by the messages' keys, in order.
        heads: the user message before a call, by the call's id. Used if the thread is not named.
    """

    thread_id: str | None = None
    executions: Mapping[str, Execution] = field(default_factory=dict)
    watched: Container[str] = ()
    episodes: Mapping[str, str] = field(default_factory=dict)
    heads: Mapping[str, KnownMessage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prefix:
    """A thread's messages before its latest model turn, read: later readings of the thread begin with it.

    `reader` and `timeline` are never changed; `keys` are identities of the turns and steps in it. `known` is the number
    of user messages of the thread with known episodes: these are never changed, so the reader compares their number.
    """

    parts: _TurnParts
    reader: _TurnReader
    timeline: _Timeline
    keys: set[str]
    known: int

    def of(self, entries: list[Any], episodes: Mapping[str, str]) -> Prefix | None:
        """Return the prefix for a history that begins with these messages, or equal ones, or None."""
        if len(episodes) != self.known and self._contradicts(episodes):
            return None
        # Messages are mutable: the host may have replaced a content in place.
        if not self.parts.are_there():
            return None
        messages = self.parts.messages
        head = entries[: len(messages)]
        is_same = len(head) == len(messages) and all(map(is_, head, messages))
        if is_same:
            return self
        # A checkpointer loaded equal messages, or the host edited some. Their fields are compared in C: a message's
        # own `==` costs four times as much.
        try:
            fields = list(map(vars, head))
        except TypeError:
            return None  # the thread in another form (dicts, pairs): it is read from the beginning
        if fields != self.parts.fields:
            return None
        return replace(self, parts=_TurnParts.of(head), known=len(episodes))

    def _contradicts(self, episodes: Mapping[str, str]) -> bool:
        for key, episode in self.timeline.asked.items():
            if episodes.get(key, episode) != episode:
                return True
        return False


@dataclass(frozen=True, slots=True)
class _TurnParts:
    """The contents of some messages and the tool calls of the answers among them: each may be replaced in its place.

    The lists are built and compared in C, as every model call compares the whole thread once.
    """

    messages: list[BaseMessage]
    fields: list[dict[str, Any]]
    contents: list[Any]
    answers: list[dict[str, Any]]
    calls: list[Any]

    @classmethod
    def of(cls, messages: list[BaseMessage]) -> _TurnParts:
        fields = list(map(vars, messages))
        answers = [vars(message) for message in messages if isinstance(message, AIMessage)]
        return cls(messages, fields, list(map(_content, fields)), answers, _calls_of(answers))

    def are_there(self) -> bool:
        """Return True if the messages still have the same parts."""
        return self.contents == list(map(_content, self.fields)) and self.calls == _calls_of(self.answers)

    def plus(self, messages: list[BaseMessage]) -> _TurnParts:
        new = _TurnParts.of(messages)
        return _TurnParts(
            self.messages + new.messages,
            self.fields + new.fields,
            self.contents + new.contents,
            self.answers + new.answers,
            self.calls + new.calls,
        )


_content = itemgetter("content")


def _calls_of(answers: Iterable[dict[str, Any]]) -> list[Any]:
    return list(chain.from_iterable(map(itemgetter("tool_calls"), answers)))


class Reading:
    """One reading of a thread's history, of which a prefix may have been read before.

    Args:
        thread: facts about the thread that are not in its messages.
        prefix: the part that was read before. The history must begin with it (`Prefix.of`).

    Attributes:
        prefix: after `extend`, the prefix that the next reading may begin with. None if the head of the history is
            missing, or the history has no answer.
    """

    def __init__(self, thread: ThreadKnowledge, prefix: Prefix | None = None) -> None:
        self.prefix = prefix
        self._thread = thread
        if prefix is None:
            self._reader = _TurnReader(thread.thread_id, "")
        else:
            self._reader = prefix.reader.copy()
        self._before: _TurnReader | None = None  # the reader as it was before the latest answer
        self._first_changed = sys.maxsize  # the first event that a message before the latest answer changed

    def extend(self, entries: list[Any]) -> Run:
        """Read a history; return a run that is equal to one read from the beginning."""
        start = 0
        if self.prefix is not None:
            start = len(self.prefix.parts.messages)
        latest = _latest_answer(entries, start)
        self._read_both_sides(entries, start, latest)
        episodes = self._thread.episodes
        head = self._missing_head()
        if head is not None:
            # Identities depend on the preceding user message: those of the first reading lack it.
            episodes = {head.key: head.episode, **episodes}
            self._read_again_after(head, entries)
        timeline = self._timeline(episodes)
        if self._before is not None:
            self._keep_prefix(self._before, entries[start:latest], timeline)
        timeline.extend(self._reader, len(self._reader.events), self._thread)
        return self._reader.run(timeline)

    def _read_both_sides(self, entries: list[Any], start: int, latest: int | None) -> None:
        """Read the new messages, and keep the reader as it was before the latest answer."""
        reader = self._reader
        for index in range(start, len(entries)):
            if index == latest:
                self._first_changed = reader.changed
                self._before = reader.copy()
                reader.changed = sys.maxsize
            _read(reader, entries, index)

    def _missing_head(self) -> KnownMessage | None:
        if self.prefix is not None or not (self._thread.episodes or self._thread.heads):
            return None
        return self._reader.missing_head(self._thread)

    def _read_again_after(self, head: KnownMessage, entries: list[Any]) -> None:
        self._reader = _TurnReader(self._thread.thread_id, head.key)
        self._before = None
        for index in range(len(entries)):
            _read(self._reader, entries, index)

    def _timeline(self, episodes: Mapping[str, str]) -> _Timeline:
        """Return the timeline of the prefix; an empty one if a late answer changed an event in it."""
        first_changed = min(self._first_changed, self._reader.changed)
        if self.prefix is None or first_changed < self.prefix.timeline.read:
            return _Timeline(episodes, self._reader.user_before)
        return self.prefix.timeline.copy(episodes)

    def _keep_prefix(self, before: _TurnReader, new: list[Any], timeline: _Timeline) -> None:
        """Let the prefix end before the latest answer, if it can no longer change."""
        if not self._is_final(before, new):
            return
        if self.prefix is None:
            parts, keys = _TurnParts.of(new), set[str]()
        else:
            parts, keys = self.prefix.parts.plus(new), self.prefix.keys
        timeline.extend(self._reader, len(before.events), self._thread)
        for event in timeline.new:
            if isinstance(event, Turn):
                keys.add(event.key)
                keys.update([step.key for step in event.steps])
        self.prefix = Prefix(parts, before, timeline.copy({}), keys, len(self._thread.episodes))

    def _is_final(self, before: _TurnReader, new: list[Any]) -> bool:
        """Return True if the events before the latest answer can no longer change."""
        reader = self._reader
        answer_is_event = len(before.events) < len(reader.events)
        answered_late = reader.changed < len(before.events)
        # A truncated history may begin elsewhere at the next reading.
        if not answer_is_event or answered_late or reader.truncated:
            return False
        # Entries in other forms are converted at each reading, so they cannot be compared with those read before.
        return all(isinstance(message, BaseMessage) for message in new)


def _latest_answer(entries: Sequence[Any], start: int) -> int | None:
    """Return the index of the latest answer of the model after `start`."""
    for index in range(len(entries) - 1, start, -1):
        if isinstance(entries[index], AIMessage):
            return index
    return None


def _read(reader: _TurnReader, entries: Sequence[Any], index: int) -> None:
    entry = entries[index]
    try:
        reader.read(message_of(entry))
    except (TypeError, ValueError, LookupError, AttributeError, RuntimeError) as error:
        reason = first_line(error)[:300]
        raise MessageError(f"messages[{index}] ({describe(entry)}): {reason}. {ACCEPTED_MESSAGES}") from error


class _Call(NamedTuple):
    step: ExecutedCall
    answered: bool = False


class _MessagePlace(NamedTuple):
    """The place of a call: its draft among the events, and its position in the draft."""

    event: int
    position: int


class _Tokens(NamedTuple):
    """Usage of model calls; 0 if unknown."""

    sent: int = 0
    received: int = 0
    cached: int = 0

    def plus(self, turn: Turn) -> _Tokens:
        return _Tokens(
            self.sent + turn.input_tokens, self.received + turn.output_tokens, self.cached + turn.cached_tokens
        )


@dataclass(frozen=True, slots=True)
class _RunDraft:
    """A model turn whose calls may still be answered."""

    text: str
    chosen_by: Chooser
    key: str
    tokens: _Tokens
    identity: str = ""  # identity of the message itself, if it makes no calls
    calls: tuple[_Call, ...] = ()

    def position(self) -> str:
        if not self.calls:
            return self.identity
        return digest("calls", *[call.step.key for call in self.calls])

    @property
    def stays(self) -> bool:
        """True if it called only the memory's own tools, so that the run has not advanced."""
        return bool(self.calls) and OWN_TOOLS.issuperset([call.step.tool for call in self.calls])


class _TurnReader:
    """State while a list is read once, front to back. A prefix of the list gives a prefix of the keys.

    Drafts in `events` are replaced, not changed, when their answers come; `changed` is the first that was.
    """

    def __init__(self, thread_id: str | None, head: str) -> None:
        self._thread_id = thread_id
        self.user_before = self._asked = head  # the user message before the first event, and the latest one
        self._scope = ""
        if thread_id is not None:
            self._scope = digest("run", thread_id)
        self.events: list[UserMessage | _RunDraft] = []
        self.changed = sys.maxsize
        self._pending: dict[str, tuple[_MessagePlace, ...]] = {}  # call id -> places of calls without an answer
        self._seen: dict[tuple[str, ...], int] = {}
        self.truncated = False
        self._headless = True  # no user message, model turn or summary so far

    def copy(self) -> _TurnReader:
        other = _TurnReader.__new__(_TurnReader)
        other.__dict__.update(self.__dict__)
        other.events, other._pending, other._seen = self.events.copy(), self._pending.copy(), self._seen.copy()
        other.changed = sys.maxsize
        return other

    def read(self, message: BaseMessage) -> None:
        if isinstance(message, ToolMessage):
            self._answer(message)
        elif isinstance(message, AIMessage):
            self._turn(message)
        elif isinstance(message, HumanMessage):
            self._user(message)
        elif isinstance(message, SystemMessage) and self._headless:
            self.truncated |= text_of(message.content).startswith(_SUMMARY_SYSTEM)

    def run(self, timeline: _Timeline) -> Run:
        latest = timeline.latest
        is_pending = isinstance(latest, Turn) and not latest.settled
        next_key = None
        if not is_pending:
            next_key = self._next_key()
        return Run(tuple(timeline.events), self._thread_id, self.truncated, next_key)

    def _user(self, message: BaseMessage) -> None:
        marks = message.additional_kwargs
        text = text_of(message.content, separator="\n")
        summary = marks.get("lc_source") == "summarization"
        if summary or (self._headless and text.startswith(_SUMMARY_HUMAN)):
            self.truncated = True
            self._headless = False
            return
        if isinstance(marks.get("toolmem"), dict):  # a hint of ours, put in as a user message
            return
        self._headless = False
        if not self._scope:
            self._scope = digest("text", text)
        self._asked = self._identity("user", message, text)
        self.events.append(UserMessage(text, self._asked, media=media_of(message.content)))

    def _turn(self, message: AIMessage) -> None:
        if self._headless:
            self.truncated = True
            self._headless = False
        text = text_of(message.content)
        if _NOT_THE_MODEL.match(text) and not message.tool_calls:
            return
        chosen_by = _chooser_of(message)
        key = self._next_key()
        calls = self._calls(message, chosen_by)
        identity = ""
        if not calls:
            identity = self._identity("words", message, text)
        self.events.append(_RunDraft(text, chosen_by, key, _tokens_of(message), identity, calls))
        self._await_answers(calls)

    def _calls(self, message: AIMessage, chosen_by: Chooser) -> tuple[_Call, ...]:
        origin = self._origin(message)
        return tuple([self._call(origin, chosen_by, asked) for asked in message.tool_calls])

    def _await_answers(self, calls: Sequence[_Call]) -> None:
        """Record the places of the calls of the latest event; equal ids in one message are answered in order."""
        event = len(self.events) - 1
        places: dict[str, tuple[_MessagePlace, ...]] = {}
        for position, call in enumerate(calls):
            call_id = call.step.call_id
            places[call_id] = (*places.get(call_id, ()), _MessagePlace(event, position))
        self._pending.update(places)

    def _answer(self, message: ToolMessage) -> None:
        waiting = self._pending.pop(message.tool_call_id, None)
        if not waiting:
            self.truncated = self.truncated or self._headless
            return
        place, *rest = waiting
        if rest:
            self._pending[message.tool_call_id] = tuple(rest)
        draft = self.events[place.event]
        assert isinstance(draft, _RunDraft)
        calls = list(draft.calls)
        calls[place.position] = self._read_answer(calls[place.position].step, message)
        self.events[place.event] = replace(draft, calls=tuple(calls))
        self.changed = min(self.changed, place.event)

    def _read_answer(self, call: ExecutedCall, message: ToolMessage) -> _Call:
        content = message.content
        edit = edited_call(content)
        if edit is not None:
            content = edit.answer
            call = _reviewed(call, edit.tool, readable(edit.args))
        status = status_of(content, error=message.status == "error")
        review = call.review
        if status == "rejected" and was_refused_by_a_person(content):
            review = "rejected"
        if status == "ok" and was_answered_by_a_person(message):
            status = "rejected"  # the tool never ran, but the call was not refused, so it is not a review
        output = None
        if status != "unanswered":
            output = output_of(content)
        return _Call(replace(call, status=status, output=output, review=review), answered=True)

    def _call(self, origin: str, chosen_by: Chooser, asked: ToolCall) -> _Call:
        tool, args, call_id = asked["name"], readable(asked["args"]), asked.get("id") or ""
        # With the user message before it: ids alone repeat, even those that look random.
        if looks_unique(call_id):
            identity: tuple[str, ...] = (self._asked or self._scope, call_id)
        else:
            identity = (origin, call_id, tool, canonical(args))
        key = digest(*identity, self._count(identity))
        return _Call(ExecutedCall(tool, args, None, "unanswered", chosen_by, call_id, key))

    def _origin(self, message: BaseMessage) -> str:
        """Return the scope of counter-like call ids: the user message in its thread, or the message of the call."""
        if self._thread_id is not None or not message.id:
            return self._asked or self._scope
        scope = self._scope
        if looks_unique(message.id):
            scope = ""
        return digest("message", message.id, scope)

    def _identity(self, kind: str, message: BaseMessage, text: str) -> str:
        """Return the identity of a message: its id, or its text and the number of equal ones before."""
        if message.id and looks_unique(message.id):
            identity: tuple[str, ...] = (kind, self._thread_id or "", message.id)
        else:
            # An answer belongs to the user message before it; a user message belongs only to the thread.
            asked = self._asked
            if kind == "user":
                asked = ""
            identity = (kind, self._scope, asked, message.id or text)
        return digest(*identity, self._count(identity))

    def missing_head(self, thread: ThreadKnowledge) -> KnownMessage | None:
        """Return the user message before a history without its head; None if unknown, or if no head is missing."""
        leading: list[_RunDraft] = []
        first: UserMessage | None = None
        for event in self.events:
            if isinstance(event, UserMessage):
                first = event
                break
            leading.append(event)
        if not leading:
            return None
        asked = list(thread.episodes)
        if first is not None and first.key in thread.episodes:
            position = asked.index(first.key)
            if position == 0:
                return None
            before = asked[position - 1]
            return KnownMessage(before, thread.episodes[before])
        if asked:
            return KnownMessage(asked[-1], thread.episodes[asked[-1]])
        return _first_known(leading, thread.heads)

    def _next_key(self) -> str:
        if not self.events:
            return digest("turn", self._scope, "start")
        last = self.events[-1]
        if isinstance(last, UserMessage):
            return digest("turn", last.key)
        # A search among the tools is not a step: the turn after it has the position of the searching turn.
        if last.stays:
            return last.key
        return digest("turn", last.position())

    def _count(self, identity: tuple[str, ...]) -> int:
        before = self._seen.get(identity, 0)
        self._seen[identity] = before + 1
        return before


def _first_known(drafts: Sequence[_RunDraft], heads: Mapping[str, KnownMessage]) -> KnownMessage | None:
    """Return the user message before the first call that has a known one."""
    for draft in drafts:
        for call in draft.calls:
            if call.step.call_id in heads:
                return heads[call.step.call_id]
    return None


def _reviewed(call: ExecutedCall, tool: str, args: dict[str, Any]) -> ExecutedCall:
    """Return a call with the tool and arguments that were executed, marked as edited if they differ."""
    if (tool, canonical(args)) == (call.tool, canonical(call.args)):
        return replace(call, tool=tool, args=args)
    return replace(call, tool=tool, args=args, review="edited")


class _Timeline:
    """The events of a run, made one after the other, each with its episode.

    Calls are as recorders saw them executed. Calls of the memory's own tools are not steps: their texts and costs are
    added to the next turn.

    Attributes:
        events: the events so far.
        new: the events that the latest `extend` added.
        read: number of the reader's events that are in it.
        latest: the latest event as it was read.
        asked: the user messages' episodes.
    """

    def __init__(self, episodes: Mapping[str, str], before: str = "") -> None:
        self.events: list[UserMessage | Turn] = []
        self.new: list[UserMessage | Turn] = []
        self.read = 0
        self.latest: UserMessage | Turn | None = None
        self.asked: dict[str, str] = {}
        self._known = episodes
        self._episode = episodes.get(before, "")
        self._start = 0  # the first event of the current episode
        self._summary: str | None = None  # of the memory's own calls since the latest turn
        self._spent = _Tokens()

    def copy(self, episodes: Mapping[str, str]) -> _Timeline:
        other = _Timeline.__new__(_Timeline)
        other.__dict__.update(self.__dict__)
        other._known, other.events, other.asked = episodes, self.events.copy(), self.asked.copy()
        other.new = []
        return other

    def extend(self, reader: _TurnReader, upto: int, thread: ThreadKnowledge) -> None:
        """Add the reader's events up to a place."""
        self.new = []
        last = len(reader.events) - 1
        for index in range(self.read, upto):
            event = reader.events[index]
            if isinstance(event, _RunDraft):
                self.latest = _finish(event, thread, gone_on=index < last)
                self._add_turn(self.latest)
            else:
                self.latest = event
                self._summary, self._spent = None, _Tokens()
                self._add(event)
        self.read = max(self.read, upto)

    def _add_turn(self, turn: Turn) -> None:
        steps = tuple([step for step in turn.steps if step.tool not in OWN_TOOLS])
        # Costs and texts of the memory's own calls are kept for the next turn.
        called_own = len(steps) < len(turn.steps)
        if not called_own and self._summary is None and not any(self._spent):
            self._add(turn)
            return
        self._spent = self._spent.plus(turn)
        if steps or not called_own:
            self._add(self._with_earlier(turn, steps))
            self._summary, self._spent = None, _Tokens()
        self._summary = _latest_summary(turn) or self._summary

    def _with_earlier(self, turn: Turn, steps: tuple[ExecutedCall, ...]) -> Turn:
        """Return a turn with the texts and costs of the memory's own calls before it."""
        return replace(
            turn,
            steps=steps,
            summary=self._summary,
            input_tokens=self._spent.sent,
            output_tokens=self._spent.received,
            cached_tokens=self._spent.cached,
        )

    def _add(self, event: UserMessage | Turn) -> None:
        if isinstance(event, UserMessage):
            self._place(event)
        elif not self._episode and not self.events:
            self._episode = digest("episode", event.key)  # its question is unknown
        placed = replace(event, episode=self._episode)
        self.events.append(placed)
        self.new.append(placed)

    def _place(self, message: UserMessage) -> None:
        """Open an episode if the message does, or if it did when it was read before."""
        episode = self._known.get(message.key)
        if episode is None and (not self._episode or opens(message.text, self.events[self._start :])):
            episode = digest("episode", message.key)
        if episode is not None and episode != self._episode:
            self._episode = episode
            self._start = len(self.events)
        self.asked[message.key] = self._episode


def _latest_summary(turn: Turn) -> str | None:
    """Return the latest text that a turn wrote with the summary tool."""
    for step in reversed(turn.steps):
        if step.tool == SUMMARY_TOOL:
            text = step.args.get("summary")
            if isinstance(text, str) and text.strip():
                return text
    return None


def _finish(draft: _RunDraft, thread: ThreadKnowledge, *, gone_on: bool) -> Turn:
    watched = draft.key in thread.watched
    steps = []
    settled = True
    for call in draft.calls:
        executed = _as_executed(call, thread.executions.get(call.step.key), watched=watched)
        steps.append(executed.step)
        # a search that the memory answers itself does not have to be awaited, unless it is the only call
        if not executed.answered and (draft.stays or executed.step.tool not in OWN_TOOLS):
            settled = False
    return Turn(
        tuple(steps),
        draft.text,
        draft.chosen_by,
        draft.key,
        settled or gone_on,
        input_tokens=draft.tokens.sent,
        output_tokens=draft.tokens.received,
        cached_tokens=draft.tokens.cached,
        answer=draft.identity,
    )


def _as_executed(call: _Call, seen: Execution | None, *, watched: bool) -> _Call:
    """Return a call as a recorder saw it: executions take precedence over messages."""
    step = call.step
    if seen is None:
        if watched and step.status == "failed":
            return call._replace(step=replace(step, status="rejected"))
        return call
    if (seen.tool, canonical(seen.args)) != (step.tool, canonical(step.args)):
        step = replace(step, tool=seen.tool, args=seen.args, review="edited")
    if seen.over or call.answered:
        return _Call(replace(step, status=seen.status), answered=True)
    return _Call(step)


def _chooser_of(message: AIMessage) -> Chooser:
    """Return the author of a message, by the mark on the memory's own messages."""
    mark = message.additional_kwargs.get("toolmem")
    if not isinstance(mark, dict):
        return "model"
    if mark.get("by") == "context":
        return "context"
    return "shortcut"


def _tokens_of(message: AIMessage) -> _Tokens:
    usage = message.usage_metadata
    if not usage:
        return _Tokens()
    cached = usage.get("input_token_details", {}).get("cache_read", 0)
    return _Tokens(int(usage["input_tokens"]), int(usage["output_tokens"]), int(cached or 0))


# --- threads as read so far, and the executed calls that recorders saw ---


class ThreadHistory(list[Any]):
    """The messages of one model call: they do not change during the call, and are compared with the thread once.

    The host's own list may change between two readings, so each reading compares it.

    Attributes:
        turn: identity of the latest user message, once it was asked for (`turn.hints.turn_of`).
    """

    reading: tuple[Any, ...] = ()
    run: Run
    prefix: Prefix | None = None
    turn: str | None = None

    def plus(self, messages: Iterable[Any]) -> ThreadHistory:
        longer = ThreadHistory(self)
        longer.extend(messages)
        longer.prefix = self.prefix
        return longer


def _nothing_known(_thread_id: str | None) -> Mapping[str, str]:
    return {}


class ExecutionLog:
    """Parses messages with the calls as they were executed; in RAM, as turns are learned once they settle.

    Attributes:
        executions: by the key of their step.
        turns: keys of the turns that a recorder watches.
        heads: see `ThreadKnowledge`.
        prefixes: the parsed prefix of each thread.
        max_kept: limit of executions and turns in RAM; the oldest are dropped.
        max_threads: limit of threads with a parsed prefix; the least recently read are dropped.
    """

    max_kept: Final = 4_096
    max_threads: Final = 128

    def __init__(self, known: Callable[[str | None], Mapping[str, str]] = _nothing_known) -> None:
        self.executions: dict[str, Execution] = {}
        self.turns: dict[str, None] = {}
        self._known = known
        self.heads: dict[str, KnownMessage] = {}
        self.prefixes: dict[Hashable, Prefix] = {}
        self._changes = 0
        self._lock = threads.lock()

    def read(self, messages: Any, thread_id: str | None = None) -> Run:
        """Parse messages into a run, with calls as recorders saw them. Only the new part of a thread is parsed."""
        history = messages
        if not isinstance(history, ThreadHistory):
            history = ThreadHistory(entries_of(messages))
        # Several steps read the history of one model call; an execution in between causes another reading.
        mark = self, self._changes, thread_id
        if history.reading == mark:
            return history.run
        thread = self._thread(thread_id)
        key = _key_of(history, thread_id)
        kept = prefix = self.prefixes.get(key)
        if prefix is not None and history.prefix is not prefix:
            prefix = prefix.of(history, thread.episodes)
        reading = Reading(thread, prefix)
        run = reading.extend(history)
        history.reading, history.run, history.prefix = mark, run, reading.prefix
        if reading.prefix is not None and reading.prefix is not kept:
            with self._lock:
                put_latest(self.prefixes, key, reading.prefix, self.max_threads)
        if thread_id is None:  # without a thread id, its calls identify the thread
            self._note_heads(run)
        return run

    def _thread(self, thread_id: str | None) -> ThreadKnowledge:
        heads: Mapping[str, KnownMessage] = {}
        if thread_id is None:
            heads = self.heads
        return ThreadKnowledge(thread_id, self.executions, self.turns, self._known(thread_id), heads)

    def forget(self) -> None:
        """Drop the messages and arguments of all threads; unlearned turns are read from the messages again."""
        with self._lock:
            self._changes += 1
            self.prefixes.clear()
            self.executions.clear()
            self.turns.clear()

    def _drop_prefixes_with(self, key: str) -> None:
        with self._lock:
            for thread, prefix in list(self.prefixes.items()):
                if key in prefix.keys:
                    self._changes += 1
                    del self.prefixes[thread]

    def _note_heads(self, run: Run) -> None:
        asked: KnownMessage | None = None
        for event in run.events:
            if isinstance(event, UserMessage):
                asked = KnownMessage(event.key, event.episode)
            elif asked is not None:
                self._note_calls(event, asked)

    def _note_calls(self, turn: Turn, asked: KnownMessage) -> None:
        for step in turn.steps:
            if looks_unique(step.call_id) and step.call_id not in self.heads:
                self.heads[step.call_id] = asked
                drop_oldest(self.heads, self.max_kept)

    def saw(self, step: str, execution: Execution) -> None:
        """Record an execution, by the key of its step: the next reading of the thread shows it."""
        self._changes += 1
        self._drop_prefixes_with(step)
        put_latest(self.executions, step, execution, self.max_kept)

    def begins(self, turn: str) -> None:
        """Record that a recorder watches this turn from its beginning, before any history contains it."""
        if turn not in self.turns:
            self._drop_prefixes_with(turn)
            self.turns[turn] = None
            drop_oldest(self.turns, self.max_kept)


def _key_of(history: Sequence[Any], thread_id: str | None) -> Hashable:
    """Return the key of a thread's prefix: its id, or the first message without an id."""
    if thread_id is not None or not history:
        return thread_id
    first = history[0]
    return getattr(first, "id", None), identity_of(getattr(first, "content", ""))


class LastStep(NamedTuple):
    """A call of the latest turn, and the turn."""

    turn: Turn
    step: ExecutedCall


def last_step(run: Run, call_id: str) -> LastStep | None:
    """Return the call of the latest turn with this id, or None."""
    for event in reversed(run.events):
        if isinstance(event, Turn):
            for step in event.steps:
                if step.call_id == call_id:
                    return LastStep(event, step)
            return None
    return None
