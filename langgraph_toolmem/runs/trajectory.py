"""Chat messages to runs with their tool calls.

The only module that reads LangChain messages (`messages` makes them out of dicts). :func:`parse_run` turns any
list that ``langchain_core.messages.convert_to_messages`` takes into a :class:`Run`: user messages and model turns
in order, with one :class:`ExecutedCall` per tool call.

Messages say what the model asked for. What was really done may differ (a person edited the call, a limit blocked
it): :class:`Execution` carries what a recorder saw, and goes before what the messages say.

Every step and every turn has a key that stays the same whenever the same history is read again: whole,
resumed, forked, trimmed at the head or summarised. Learning is idempotent because of these keys. A call is known by
its thread, the user message before it, and its id (where that is counted: also its tool and arguments), counted within
that message: ids alone repeat, even those that look drawn at random.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from operator import add, is_, itemgetter
from typing import Any, Final, NamedTuple

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.prompt_values import PromptValue

from langgraph_toolmem.base import threads
from langgraph_toolmem.base.errors import MessageError
from langgraph_toolmem.base.text import canonical, digest, identity_of, looks_unique
from langgraph_toolmem.runs.messages import (
    HOW,
    STOPPED,
    describe,
    edited_call,
    entries_of,
    message_of,
    output_of,
    status_of,
    text_of,
    was_answered_by_a_person,
    was_refused_by_a_person,
)
from langgraph_toolmem.runs.run import (
    OWN_TOOLS,
    SUMMARY_TOOL,
    Chooser,
    ExecutedCall,
    Execution,
    Run,
    Turn,
    UserMessage,
    opens,
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


_UNREADABLE = (TypeError, ValueError, LookupError, AttributeError, RuntimeError)


def parse_run(messages: Iterable[Any] | PromptValue, *, thread_id: str | None = None) -> Run:
    """Read a history of messages.

    Args:
        messages: What ``convert_to_messages`` takes. ``RemoveMessage`` entries, answers to no call, and calls whose
            arguments are broken JSON are left out.
        thread_id: Makes keys of counter-like call ids (``call_0``) unique per run.

    Raises:
        MessageError: An entry cannot be read; the message names its index and what to pass.
    """
    return read_on(None, list(entries_of(messages)), thread_id, {}, (), {}, {})[0]


@dataclass(frozen=True, slots=True)
class Prefix:
    """A thread's messages before its latest model turn, read: later readings of the thread begin with it.

    `reader` and `events` are never changed; `keys` are identities of the turns and steps in it. `known` is the number
    of user messages of the thread whose episodes were known: they are never changed, so more of them are looked at.
    """

    parts: _Parts
    reader: _Reader
    events: _Events
    keys: set[str]
    known: int

    def of(self, entries: list[Any], known: Mapping[str, str]) -> Prefix | None:
        """Return the prefix for a history that begins with these messages, or equal ones; None if it does not."""
        messages = self.parts.messages
        if len(known) != self.known and any(known.get(key, it) != it for key, it in self.events.asked.items()):
            return None
        head = entries[: len(messages)]
        loaded = len(head) < len(messages) or not all(map(is_, head, messages))  # from a checkpoint, or edited
        # Their fields are compared in C; a message's own `==` costs four times as much.
        if (loaded and list(map(vars, head)) != self.parts.fields) or not self.parts.are_there():
            return None
        return replace(self, parts=_Parts.of(head), known=len(known)) if loaded else self


class _Parts(NamedTuple):
    """The contents of some messages and the tool calls of the answers among them: each may be replaced in its place."""

    messages: list[BaseMessage]
    fields: list[dict[str, Any]]
    contents: list[Any]
    answers: list[dict[str, Any]]
    calls: list[Any]

    @classmethod
    def of(cls, messages: list[BaseMessage]) -> _Parts:
        fields, answers = list(map(vars, messages)), [vars(each) for each in messages if isinstance(each, AIMessage)]
        return cls(messages, fields, list(map(_content, fields)), answers, _calls_of(answers))

    def are_there(self) -> bool:
        """Return True if the messages have these very parts still."""
        return self.contents == list(map(_content, self.fields)) and self.calls == _calls_of(self.answers)

    def and_of(self, messages: list[BaseMessage]) -> _Parts:
        return _Parts(*map(add, self, _Parts.of(messages)))


_content = itemgetter("content")


def _calls_of(answers: Iterable[dict[str, Any]]) -> list[Any]:
    return list(chain.from_iterable(map(itemgetter("tool_calls"), answers)))


def read_on(
    prefix: Prefix | None,
    entries: list[Any],
    thread_id: str | None,
    executions: Mapping[str, Execution],
    watched: Container[str],
    known: Mapping[str, str],
    heads: Mapping[str, tuple[str, str]],
    *,
    compared: bool = False,
) -> tuple[Run, Prefix | None]:
    """Read a history of which a prefix may have been read before (`compared`: it is known to begin with it).

    `known` are user messages of the thread that were read before, with their episodes, in order.
    `executions` is what recorders saw, by the keys of steps. `watched` are turns that a recorder watched: a failed call
    without an execution was never executed there. `heads` has the user message before a call, and its episode, by the
    call's id, where nobody names the thread.

    Returns:
        The run, equal to one read from the beginning, and the prefix that the next reading may begin with; None if
        there is none: the head of the history is missing, or no model answered in it.
    """
    prefix = prefix if prefix is None or compared else prefix.of(entries, known)
    reader = _Reader(thread_id, "") if prefix is None else prefix.reader.copy()
    start = 0 if prefix is None else len(prefix.parts.messages)
    last = next((i for i in range(len(entries) - 1, start, -1) if isinstance(entries[i], AIMessage)), None)
    before, changed = None, len(entries)
    for index in range(start, len(entries)):
        if index == last:
            changed, before = reader.changed, reader.copy()
            reader.changed = len(entries)
        _read(reader, entries, index)
    found, head = known, None
    if prefix is None and (known or heads) and (head := reader.head(known, heads)):
        found = {head[0]: head[1], **known}
        reader, before = _Reader(thread_id, head[0]), None
        for index in range(len(entries)):
            _read(reader, entries, index)
    if prefix is None or min(changed, reader.changed) < prefix.events.read:  # an answer that came late
        events = _Events(found, reader.user_before)
    else:
        events = prefix.events.copy(found)
    after = prefix
    new = entries[start:last]
    # True if nothing before the latest model turn can change
    settled = before and len(before.events) < len(reader.events) and reader.changed >= len(before.events)
    if before and settled and not reader.truncated and all(isinstance(each, BaseMessage) for each in new):
        events.take(reader, len(before.events), executions, watched)
        kept = _NOTHING if prefix is None else prefix
        keys = set[str]() if prefix is None else kept.keys
        for turn in events.new:
            if isinstance(turn, Turn):
                keys.update((turn.key, *(step.key for step in turn.steps)))
        after = Prefix(kept.parts.and_of(list(new)), before, events.copy({}), keys, len(known))
    events.take(reader, len(reader.events), executions, watched)
    return reader.run(events), after


def _read(reader: _Reader, entries: Sequence[Any], index: int) -> None:
    message = entries[index]
    try:
        reader.read(message if isinstance(message, BaseMessage) else message_of(message))
    except _UNREADABLE as error:
        reason = (str(error).strip() or repr(error)).splitlines()[0]
        raise MessageError(f"messages[{index}] ({describe(message)}): {reason[:300]}. {HOW}") from error


class _Call(NamedTuple):
    step: ExecutedCall
    answered: bool = False


@dataclass(frozen=True, slots=True)
class _Draft:
    text: str
    chosen_by: Chooser
    key: str
    tokens: tuple[int, int, int] = (0, 0, 0)
    identity: str = ""  # identity of the message itself, if it makes no calls
    calls: tuple[_Call, ...] = ()

    def position(self) -> str:
        return digest("calls", *(call.step.key for call in self.calls)) if self.calls else self.identity

    @property
    def stays(self) -> bool:
        """True if it called only the memory's own tools: the run is where it was before."""
        return bool(self.calls) and all(call.step.tool in OWN_TOOLS for call in self.calls)


class _Reader:
    """State while a list is read once, front to back. A prefix of the list gives a prefix of the keys.

    Drafts in `events` are replaced, not changed, when their answers come; `changed` is the first that was.
    """

    def __init__(self, thread_id: str | None, head: str) -> None:
        self._thread_id = thread_id
        self.user_before = self._asked = head  # the user message before the first event, and the latest one
        self._scope = digest("run", thread_id) if thread_id is not None else ""
        self.events: list[UserMessage | _Draft] = []
        self.changed = sys.maxsize
        self._pending: dict[str, tuple[tuple[int, int], ...]] = {}  # call id -> places of calls without an answer
        self._seen: dict[tuple[str, ...], int] = {}
        self.truncated = False
        self._headless = True  # no user message, model turn or summary so far

    def copy(self) -> _Reader:
        other = _Reader.__new__(_Reader)
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

    def run(self, events: _Events) -> Run:
        pending = isinstance(events.tail, Turn) and not events.tail.settled
        return Run(
            events=tuple(events.found),
            thread_id=self._thread_id,
            truncated=self.truncated,
            next_key=None if pending else self._next_key(),
        )

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
        self.events.append(UserMessage(text, self._asked))

    def _turn(self, message: AIMessage) -> None:
        if self._headless:
            self.truncated = True
            self._headless = False
        text = text_of(message.content)
        if _NOT_THE_MODEL.match(text) and not message.tool_calls:
            return
        chosen_by = _chooser_of(message)
        key, origin = self._next_key(), self._origin(message)
        given = message.tool_calls
        calls = tuple(self._call(origin, chosen_by, each["name"], each["args"], each.get("id") or "") for each in given)
        identity = "" if calls else self._identity("words", message, text)
        self.events.append(_Draft(text, chosen_by, key, _tokens(message), identity, calls))
        at = len(self.events) - 1
        for call_id in {call.step.call_id for call in calls}:
            self._pending[call_id] = tuple((at, i) for i, call in enumerate(calls) if call.step.call_id == call_id)

    def _answer(self, message: ToolMessage) -> None:
        call_id = message.tool_call_id
        if waiting := self._pending.pop(call_id, None):
            (at, place), *rest = waiting
            if rest:
                self._pending[call_id] = tuple(rest)
            draft = self.events[at]
            assert isinstance(draft, _Draft)
            call = self._read_answer(draft.calls[place].step, message)
            self.events[at] = replace(draft, calls=(*draft.calls[:place], call, *draft.calls[place + 1 :]))
            self.changed = min(self.changed, at)
        elif self._headless:
            self.truncated = True

    def _read_answer(self, call: ExecutedCall, message: ToolMessage) -> _Call:
        content = message.content
        tool, args, review = call.tool, call.args, call.review
        if edit := edited_call(content):
            tool, content = edit[0], edit[2]
            args = readable(edit[1])
            if (tool, canonical(args)) != (call.tool, canonical(call.args)):  # else it was let pass as it was
                review = "edited"
        status = status_of(content, error=message.status == "error")
        if status == "rejected" and was_refused_by_a_person(content):
            review = "rejected"
        if status == "ok" and was_answered_by_a_person(message):
            status = "rejected"  # the tool never ran; nobody refused the call, so it is no review
        output = None if status == "unanswered" else output_of(content)
        return _Call(replace(call, tool=tool, args=args, status=status, output=output, review=review), True)

    def _call(self, origin: str, chosen_by: Chooser, tool: str, args: dict[str, Any], call_id: str) -> _Call:
        args = readable(args)
        if looks_unique(call_id):
            identity: tuple[str, ...] = (self._asked or self._scope, call_id)
        else:
            identity = (origin, call_id, tool, canonical(args))
        key = digest(*identity, self._count(identity))
        return _Call(ExecutedCall(tool, args, None, "unanswered", chosen_by, call_id, key))

    def _origin(self, message: BaseMessage) -> str:
        """Return the scope of counter-like call ids: the user message in its thread, else the message of the call."""
        if self._thread_id is not None or not message.id:
            return self._asked or self._scope
        return digest("message", message.id, "" if looks_unique(message.id) else self._scope)

    def _identity(self, kind: str, message: BaseMessage, text: str) -> str:
        """Return the identity of a message: its id, or else its text and the number of equal ones before."""
        thread = self._thread_id or ""
        if message.id and looks_unique(message.id):
            identity: tuple[str, ...] = (kind, thread, message.id)
        else:
            identity = (kind, self._scope, "" if kind == "user" else self._asked, message.id or text)
        return digest(*identity, self._count(identity))

    def head(self, known: Mapping[str, str], heads: Mapping[str, tuple[str, str]]) -> tuple[str, str] | None:
        """Return the user message before a history without its head, and its episode; None if unknown."""
        before = list(takewhile(lambda event: isinstance(event, _Draft), self.events))
        if not before:
            return None
        asked, first = list(known.items()), self.events[len(before)] if len(before) < len(self.events) else None
        if isinstance(first, UserMessage) and first.key in known:
            place = list(known).index(first.key)
            return asked[place - 1] if place else None
        if asked:
            return asked[-1]
        calls = (call.step.call_id for event in before if isinstance(event, _Draft) for call in event.calls)
        return next((heads[call] for call in calls if call in heads), None)

    def _next_key(self) -> str:
        if not self.events:
            return digest("turn", self._scope, "start")
        last = self.events[-1]
        if isinstance(last, UserMessage):
            return digest("turn", last.key)
        return last.key if last.stays else digest("turn", last.position())

    def _count(self, identity: tuple[str, ...]) -> int:
        before = self._seen.get(identity, 0)
        self._seen[identity] = before + 1
        return before


class _Events:
    """The events of a run, made one after the other: calls as they were seen executed, calls of the memory's own tools
    aside (they are no steps: what they say and cost goes with the next turn), each with its episode.

    Attributes:
        read: how many of the reader's events are in it.
        new: what the latest `take` added.
        tail: the latest event as it was read.
        asked: the user messages' episodes.
    """

    def __init__(self, known: Mapping[str, str], before: str = "") -> None:
        self._known = known
        self.found: list[UserMessage | Turn] = []
        self.new: list[UserMessage | Turn] = []
        self.read = 0
        self.tail: UserMessage | Turn | None = None
        self.asked: dict[str, str] = {}
        self._episode, self._start = known.get(before, ""), 0
        self._written: str | None = None
        self._spent = (0, 0, 0)

    def copy(self, known: Mapping[str, str]) -> _Events:
        other = _Events.__new__(_Events)
        other.__dict__.update(self.__dict__)
        other._known, other.found, other.asked = known, self.found.copy(), self.asked.copy()
        other.new = []
        return other

    def take(self, reader: _Reader, upto: int, executions: Mapping[str, Execution], watched: Container[str]) -> None:
        self.new = []
        last = len(reader.events) - 1
        for index in range(self.read, upto):
            event = reader.events[index]
            if isinstance(event, _Draft):
                self.tail = _finish(event, executions, watched, gone_on=index < last)
                self._turn(self.tail)
            else:
                self.tail, self._written, self._spent = event, None, (0, 0, 0)
                self._add(event)
        self.read = max(self.read, upto)

    def _turn(self, turn: Turn) -> None:
        steps = tuple(step for step in turn.steps if step.tool not in OWN_TOOLS)
        own = len(steps) < len(turn.steps)
        if not own and self._written is None and not any(self._spent):
            self._add(turn)
            return
        summaries = [step.args.get("summary") for step in turn.steps if step.tool == SUMMARY_TOOL]
        tokens_in, tokens_out, cached = self._spent
        self._spent = (tokens_in + turn.input_tokens, tokens_out + turn.output_tokens, cached + turn.cached_tokens)
        if steps or not own:
            tokens_in, tokens_out, cached = self._spent
            used = replace(turn, input_tokens=tokens_in, output_tokens=tokens_out, cached_tokens=cached)
            self._add(replace(used, steps=steps, summary=self._written))
            self._written, self._spent = None, (0, 0, 0)
        texts = [text for text in summaries if isinstance(text, str) and text.strip()]
        self._written = texts[-1] if texts else self._written

    def _add(self, event: UserMessage | Turn) -> None:
        index = len(self.found)
        if isinstance(event, UserMessage):
            known = self._known.get(event.key)
            if known is None and (not self._episode or opens(event.text, self.found[self._start : index])):
                known = digest("episode", event.key)
            if known is not None and known != self._episode:
                self._episode, self._start = known, index
            self.asked[event.key] = self._episode
        elif not self._episode and not self.found:
            self._episode = digest("episode", event.key)  # nobody knows what it answered
        made = replace(event, episode=self._episode)
        self.found.append(made)
        self.new.append(made)


_NOTHING: Final = Prefix(_Parts([], [], [], [], []), _Reader(None, ""), _Events({}), set(), 0)


def _finish(draft: _Draft, executions: Mapping[str, Execution], watched: Container[str], *, gone_on: bool) -> Turn:
    calls = [_corrected(call, executions.get(call.step.key), watched=draft.key in watched) for call in draft.calls]
    settled = gone_on or all(call.answered for call in calls if draft.stays or call.step.tool not in OWN_TOOLS)
    return Turn(tuple(call.step for call in calls), draft.text, draft.chosen_by, draft.key, settled, *draft.tokens)


def _corrected(call: _Call, seen: Execution | None, *, watched: bool) -> _Call:
    # executions take precedence over messages
    step, answered = call
    if seen is None:
        return _Call(replace(step, status="rejected"), answered) if watched and step.status == "failed" else call
    if (seen.tool, canonical(seen.args)) != (step.tool, canonical(step.args)):
        step = replace(step, tool=seen.tool, args=seen.args, review="edited")
    return _Call(replace(step, status=seen.status), True) if seen.over or answered else _Call(step, answered)


def _chooser_of(message: AIMessage) -> Chooser:
    """Return the author of a message, by the mark that the memory puts on its own."""
    mark = message.additional_kwargs.get("toolmem")
    if not isinstance(mark, dict):
        return "model"
    return "context" if mark.get("by") == "context" else "shortcut"


def _tokens(message: AIMessage) -> tuple[int, int, int]:
    usage = message.usage_metadata
    if not usage:
        return 0, 0, 0
    cached = usage.get("input_token_details", {}).get("cache_read", 0)
    return int(usage["input_tokens"]), int(usage["output_tokens"]), int(cached or 0)


# --- threads as read so far, and the executed calls that recorders saw ---

MAX_KEPT: Final = 4_096
"""Executions and turns kept in RAM; the oldest leave."""
MAX_THREADS: Final = 128
"""Threads whose parsed prefix is kept; the least recently read leave."""


class History(list[Any]):
    """The messages of one model call: while it lasts they stay as they are, and are compared with the thread once.

    A list of the host's may change between two readings, so each reading compares it.
    """

    reading: tuple[Any, ...] = ()
    run: Run
    prefix: Prefix | None = None

    def plus(self, messages: Iterable[Any]) -> History:
        longer = History(self)
        longer.extend(messages)
        longer.prefix = self.prefix
        return longer


class ExecutionLog:
    """Parses messages with the calls as they were executed; in RAM, as turns are learned once they settle.

    Attributes:
        executions: by the key of their step.
        turns: keys of the turns that a recorder watches.
        heads: see `read_on`.
        prefixes: the parsed prefix of each thread.
    """

    def __init__(self, known: Callable[[str | None], Mapping[str, str]] = lambda _thread: {}) -> None:
        self.executions: dict[str, Execution] = {}
        self.turns: dict[str, None] = {}
        self._known = known
        self.heads: dict[str, tuple[str, str]] = {}
        self.prefixes: dict[Any, Prefix] = {}
        self._changes = 0
        self._lock = threads.lock()

    def read(self, messages: Any, thread_id: str | None = None) -> Run:
        """Parse messages into a run, with calls as recorders saw them. Only what is new in a thread is parsed."""
        history = messages if isinstance(messages, History) else History(entries_of(messages))
        reading = self, self._changes, thread_id
        if history.reading == reading:
            return history.run
        known = self._known(thread_id)
        heads = self.heads if thread_id is None else {}
        first = history[0] if thread_id is None and history else None
        key = thread_id if first is None else (getattr(first, "id", None), identity_of(getattr(first, "content", "")))
        prefix = self.prefixes.get(key)
        how: dict[str, Any] = {"compared": history.prefix is prefix}
        run, after = read_on(prefix, history, thread_id, self.executions, self.turns, known, heads, **how)
        history.reading, history.run, history.prefix = reading, run, after
        if after is not None and after is not prefix:
            with self._lock:
                self.prefixes.pop(key, None)
                self.prefixes[key] = after
                _bound(self.prefixes, MAX_THREADS)
        if thread_id is None:  # where nobody names the thread, its calls tell
            self._note_heads(run)
        return run

    def forget(self) -> None:
        """Drop the messages and arguments of all threads; what is not learned yet is read off the messages."""
        with self._lock:
            self._changes += 1
            for kept in (self.prefixes, self.executions, self.turns):
                kept.clear()

    def _drop_prefixes_with(self, key: str) -> None:
        with self._lock:
            for thread in [thread for thread, prefix in self.prefixes.items() if key in prefix.keys]:
                self._changes += 1
                del self.prefixes[thread]

    def _note_heads(self, run: Run) -> None:
        asked = None
        for event in run.events:
            if isinstance(event, UserMessage):
                asked = event.key, event.episode
            elif asked:
                for step in event.steps:
                    if looks_unique(step.call_id) and step.call_id not in self.heads:
                        self.heads[step.call_id] = asked
                        _bound(self.heads)

    def saw(self, step: str, execution: Execution) -> None:
        self._changes += 1
        self._drop_prefixes_with(step)
        self.executions.pop(step, None)
        self.executions[step] = execution
        _bound(self.executions)

    def begins(self, turn: str) -> None:
        """Note that a recorder watches this turn from its beginning: no history that is being read has it yet."""
        if turn not in self.turns:
            self._drop_prefixes_with(turn)
            self.turns[turn] = None
            _bound(self.turns)


def last_step(run: Run, call_id: str) -> tuple[Turn, ExecutedCall] | None:
    last = next((event for event in reversed(run.events) if isinstance(event, Turn)), None)
    step = None if last is None else next((step for step in last.steps if step.call_id == call_id), None)
    return None if last is None or step is None else (last, step)


def _bound(kept: dict[Any, Any], most: int = MAX_KEPT) -> None:
    if len(kept) > most:
        del kept[next(iter(kept))]
