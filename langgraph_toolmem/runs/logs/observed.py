"""Conversations from observations of model calls and tools, which several tracing programs write in one shape."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from langgraph_toolmem.runs.logs.dialects import transcribe
from langgraph_toolmem.runs.logs.transcript import (
    Fields,
    Snapshot,
    Transcript,
    arguments_of,
    decoded,
    latest_snapshots,
    result_text,
)


@dataclass(frozen=True, slots=True)
class Observation:
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
        kind: kind of the step, for the count of what is left out.
        facts: facts about its run: ``thread_id`` of the conversation where the log has one, ``user_id``, ``success``.
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


def read_observations(observations: Iterable[Observation]) -> Iterator[tuple[int, Fields]]:
    """Yield the conversations of observations.

    The histories of model calls are used where they have calls: they say which calls belong to one answer. Otherwise
    (a log of tools alone, or of texts) each executed tool is one call of the model.
    """
    traces: defaultdict[str, list[Observation]] = defaultdict(list)
    for observation in observations:
        traces[observation.trace].append(observation)
    threads: defaultdict[str, list[Observation]] = defaultdict(list)
    for trace, steps in traces.items():
        named = next((step.facts["thread_id"] for step in steps if step.facts.get("thread_id")), trace)
        threads[str(named)].extend(steps)
    for thread, steps in threads.items():
        steps.sort(key=lambda step: step.start)
        facts: Fields = {"thread_id": thread}
        for step in steps:
            facts |= {key: value for key, value in step.facts.items() if value not in (None, "")}
        snapshots = [Snapshot(step.line, facts, transcribe(step.history)) for step in steps if step.history]
        if any(step.tool for step in steps) and not any(_has_calls(snapshot.transcript) for snapshot in snapshots):
            snapshots = [Snapshot(steps[0].line, facts, _tools_alone(steps))]
        if not any(snapshot.transcript.messages for snapshot in snapshots):
            snapshots = [Snapshot(steps[0].line, facts, _tools_alone(steps))]
        executed = _Executed(steps)
        for line, fields in latest_snapshots(snapshots):
            executed.add_results(fields["messages"])
            yield line, fields


class _Executed:
    """Results of executed tools, for calls whose result no model's call has (the instrumentation leaves them out)."""

    def __init__(self, steps: Iterable[Observation]) -> None:
        self._results: dict[str, deque[Observation]] = {}
        for step in steps:
            if step.tool and step.result is not None:
                for key in (str(step.call_id), _signature(step.tool, step.arguments)):
                    self._results.setdefault(key, deque()).append(step)

    def add_results(self, transcript: Transcript) -> None:
        """Put the results after the calls that have none."""
        answered = {message.get("tool_call_id") for message in transcript.messages}
        messages = []
        for message in transcript.messages:
            messages.append(message)
            for call in message.get("tool_calls") or ():
                result = None if call.get("id") in answered else self._take(call)
                if result is not None:
                    messages.append({"role": "tool", "tool_call_id": call.get("id") or "", "content": result})
        transcript.messages = messages

    def _take(self, call: Fields) -> str | None:
        function = call.get("function") or call
        arguments = function.get("arguments", function.get("args"))
        for key in (str(call.get("id")), _signature(function.get("name"), arguments)):
            if steps := self._results.get(key):
                return result_text(_unwrapped(steps.popleft().result))
        return None


def _signature(tool: Any, arguments: Any) -> str:
    return json.dumps([tool, arguments_of(arguments)], sort_keys=True, default=str)


def _unwrapped(result: Any) -> Any:
    # LangChain's instrumentation logs the whole message of the tool.
    fields = decoded(result)
    return fields["content"] if isinstance(fields, dict) and {"content", "tool_call_id"} <= fields.keys() else result


def _has_calls(transcript: Transcript) -> bool:
    return any(message.get("tool_calls") for message in transcript.messages)


def _tools_alone(steps: Sequence[Observation]) -> Transcript:
    """Return a conversation of executed tools, between the input and the output of the agent that executed them."""
    frame = max((step.frame or step.history for step in steps), key=len, default=[])
    transcript = transcribe([message for message in frame if _is_of_user(message)])
    for step in steps:
        if not step.tool:
            transcript.leave_out(f"{step.kind!r} steps without messages", not (step.frame or step.history))
        elif step.arguments is None:
            transcript.leave_out("calls without arguments in the log")
        else:
            transcript.end_answer()
            call_id = transcript.call(step.tool, decoded(step.arguments))
            if call_id and step.result is not None:
                transcript.answer(_unwrapped(step.result), call_id, failed=step.failed)
    answer = transcribe([message for message in frame if not _is_of_user(message)])
    transcript.messages += answer.messages
    transcript.dialects |= answer.dialects
    return transcript


def _is_of_user(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") in ("user", "system", "human")


def messages_of(value: Any) -> list[Any]:
    """Return the messages in the input or output of a model's call: a list, one message, or a text of the user."""
    value = decoded(value)
    if isinstance(value, dict):
        for key in ("messages", "input", "contents", "choices", "output", "content"):
            if isinstance(value.get(key), list) and "role" not in value:
                return messages_of(value[key])
        return [value["message"]] if isinstance(value.get("message"), dict) else [value]
    if isinstance(value, list):
        return [entry["message"] if isinstance(entry, dict) and "message" in entry else entry for entry in value]
    return [value] if value else []


def history_of(asked: Any, answered: Any) -> list[Any]:
    """Return prompt and answer of a model's call as messages; bare texts are of the user and the model."""
    history: list[Any] = []
    for role, value in (("user", asked), ("assistant", answered)):
        messages = messages_of(value)
        history += [{"role": role, "content": message} if isinstance(message, str) else message for message in messages]
    return history
