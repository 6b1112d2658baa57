"""Conversations from observations of model calls and tools, a shape that several tracing programs share."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from langgraph_toolmem.runs.logs.dialects import transcribe
from langgraph_toolmem.runs.logs.transcript import (
    Fields,
    Transcript,
    TranscriptSnapshot,
    arguments_of,
    decoded,
    function_of,
    latest_snapshots,
    result_text,
)


@dataclass(frozen=True, slots=True)
class ObservedSpan:
    """One observed step of an agent.

    Attributes:
        line: line of the record.
        trace: id of the trace it belongs to.
        start: time of its start as the log has it; texts or numbers, of one kind in a log.
        history: messages of a model's call, its answer included; empty for other steps.
        frame: input and output of a whole agent's step, as messages.
        tool: name of the tool, for a step that executed one.
        call_id: id of the call that the tool answered, if the log has it.
        arguments: arguments of the tool.
        result: result of the tool; None if it is not in the log.
        failed: True if the tool failed.
        kind: kind of the step, for the count of left-out parts.
        facts: facts about its run: ``thread_id`` of the conversation if the log has one, ``user_id``, ``success``.
    """

    line: int
    trace: str
    start: str
    history: list[Any] = field(default_factory=list)
    frame: list[Any] = field(default_factory=list)
    tool: str = ""
    call_id: Any = None
    arguments: Any = None
    result: Any = None
    failed: bool = False
    kind: str = ""
    facts: Fields = field(default_factory=dict)


def read_observations(observations: Iterable[ObservedSpan]) -> Iterator[tuple[int, Fields]]:
    """Yield the conversations of observations.

    The histories of model calls are used if they have calls, because they group the calls of one answer. Otherwise (a
    log of only tools, or of texts) each executed tool is one call of the model.
    """
    for thread, steps in _by_thread(observations).items():
        # Exporters write a span when it ends: a whole agent would come after its model calls.
        steps.sort(key=attrgetter("start"))
        executed = _Executed(steps)
        for line, fields in latest_snapshots(_snapshots(thread, steps)):
            executed.add_results(fields["messages"])
            yield line, fields


def _by_thread(observations: Iterable[ObservedSpan]) -> dict[str, list[ObservedSpan]]:
    """Group steps by conversation: all steps of a trace belong to the thread that one of them names."""
    traces: defaultdict[str, list[ObservedSpan]] = defaultdict(list)
    named: dict[str, str] = {}
    for step in observations:
        traces[step.trace].append(step)
        if step.facts.get("thread_id"):
            named.setdefault(step.trace, str(step.facts["thread_id"]))
    threads: defaultdict[str, list[ObservedSpan]] = defaultdict(list)
    for trace, steps in traces.items():
        threads[named.get(trace, trace)].extend(steps)
    return threads


def _snapshots(thread: str, steps: Sequence[ObservedSpan]) -> list[TranscriptSnapshot]:
    facts: Fields = {"thread_id": thread}
    for step in steps:
        for key, value in step.facts.items():
            if value is not None and value != "":
                facts[key] = value
    snapshots = []
    has_messages = has_calls = has_tools = False
    for step in steps:
        has_tools = has_tools or bool(step.tool)
        if step.history:
            transcript = transcribe(step.history)
            has_messages = has_messages or bool(transcript.messages)
            has_calls = has_calls or _has_calls(transcript)
            snapshots.append(TranscriptSnapshot(step.line, facts, transcript))
    if not has_messages or (has_tools and not has_calls):
        return [TranscriptSnapshot(steps[0].line, facts, _tools_alone(steps))]
    return snapshots


class _Executed:
    """Results of executed tools, for calls without a result in the model calls (the instrumentation leaves them
    out).
    """

    def __init__(self, steps: Iterable[ObservedSpan]) -> None:
        self._results: dict[str, deque[ObservedSpan]] = {}
        for step in steps:
            if step.tool and step.result is not None:
                for key in (str(step.call_id), _signature(step.tool, step.arguments)):
                    self._results.setdefault(key, deque()).append(step)

    def add_results(self, transcript: Transcript) -> None:
        """Put the results after the calls without one."""
        answered = {message.get("tool_call_id") for message in transcript.messages}
        messages = []
        for message in transcript.messages:
            messages.append(message)
            for call in message.get("tool_calls") or ():
                if call.get("id") in answered:
                    continue
                result = self._take(call)
                if result is not None:
                    messages.append({"role": "tool", "tool_call_id": call.get("id") or "", "content": result})
        transcript.messages = messages

    def _take(self, call: Fields) -> str | None:
        function = function_of(call)
        for key in (str(call.get("id")), _signature(function.name, function.arguments)):
            steps = self._results.get(key)
            if steps:
                return result_text(_unwrapped(steps.popleft().result))
        return None


def _signature(tool: Any, arguments: Any) -> str:
    return json.dumps([tool, arguments_of(arguments)], sort_keys=True, default=str)


def _unwrapped(result: Any) -> Any:
    # LangChain's instrumentation logs the whole message of the tool.
    fields = decoded(result)
    if isinstance(fields, dict) and "content" in fields and "tool_call_id" in fields:
        return fields["content"]
    return result


def _has_calls(transcript: Transcript) -> bool:
    return any(message.get("tool_calls") for message in transcript.messages)


def _tools_alone(steps: Sequence[ObservedSpan]) -> Transcript:
    """Return a conversation of executed tools, between the input and the output of the agent that executed them."""
    asked, answered = _frame_of(steps)
    transcript = transcribe(asked)
    for step in steps:
        if step.tool:
            _add_executed(step, transcript)
        elif not step.frame and not step.history:
            transcript.leave_out(f"{step.kind!r} steps without messages")
    answer = transcribe(answered)
    transcript.messages += answer.messages
    transcript.dialects |= answer.dialects
    return transcript


def _frame_of(steps: Sequence[ObservedSpan]) -> tuple[list[Any], list[Any]]:
    """Return the user's messages and the other messages, of the step with the most messages."""
    frame: list[Any] = []
    for step in steps:
        messages = step.frame or step.history
        if len(messages) > len(frame):
            frame = messages
    asked: list[Any] = []
    answered: list[Any] = []
    for message in frame:
        if isinstance(message, dict) and message.get("role") in ("user", "system", "human"):
            asked.append(message)
        else:
            answered.append(message)
    return asked, answered


def _add_executed(step: ObservedSpan, transcript: Transcript) -> None:
    if step.arguments is None:
        transcript.leave_out("calls without arguments in the log")
        return
    transcript.end_answer()
    call_id = transcript.call(step.tool, decoded(step.arguments))
    if call_id and step.result is not None:
        transcript.answer(_unwrapped(step.result), call_id, failed=step.failed)


def messages_of(value: Any) -> list[Any]:
    """Return the messages in the input or output of a model's call: a list, one message, or a text of the user."""
    value = decoded(value)
    if isinstance(value, list):
        return [_message_in(entry) for entry in value]
    if isinstance(value, dict):
        return _messages_in(value)
    if not value:
        return []
    return [value]


def _messages_in(value: Fields) -> list[Any]:
    if "role" not in value:
        for key in ("messages", "input", "contents", "choices", "output", "content"):
            if isinstance(value.get(key), list):
                return messages_of(value[key])
    if isinstance(value.get("message"), dict):
        return [value["message"]]
    return [value]


def _message_in(entry: Any) -> Any:
    # OpenAI's choices wrap their message.
    if isinstance(entry, dict) and "message" in entry:
        return entry["message"]
    return entry


def history_of(asked: Any, answered: Any) -> list[Any]:
    """Return prompt and answer of a model's call as messages; bare texts are the user's and the model's."""
    return _with_roles(messages_of(asked), "user") + _with_roles(messages_of(answered), "assistant")


def _with_roles(messages: Iterable[Any], role: str) -> list[Any]:
    history = []
    for message in messages:
        if isinstance(message, str):
            message = {"role": role, "content": message}
        history.append(message)
    return history
