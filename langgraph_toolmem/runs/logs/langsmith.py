"""Runs of LangSmith (``client.list_runs()``, an export of a project): whole agents, or only model calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from langgraph_toolmem.runs.logs.chat import message_of_pair
from langgraph_toolmem.runs.logs.dialects import transcribe
from langgraph_toolmem.runs.logs.shapes import LogFormat, NumberedRecord, objects_of
from langgraph_toolmem.runs.logs.transcript import Fields, TranscriptSnapshot, first_of, latest_snapshots


def _read_runs(records: list[NumberedRecord]) -> Iterator[tuple[int, Fields]]:
    traces: dict[str, _Trace] = {}
    for line, run in objects_of(records):
        trace_id = str(run.get("trace_id") or run.get("id") or line)
        traces.setdefault(trace_id, _Trace(trace_id, line)).runs.append(run)
    for trace in traces.values():
        trace.runs.sort(key=_start)
    for trace in sorted(traces.values(), key=_Trace.start):
        yield from _read_trace(trace)


@dataclass(slots=True)
class _Trace:
    """The runs of a trace, and the line of the first one."""

    trace_id: str
    line: int
    runs: list[Fields] = field(default_factory=list)

    def start(self) -> str:
        return _start(self.runs[0])


def _read_trace(trace: _Trace) -> Iterator[tuple[int, Fields]]:
    roots = [run for run in trace.runs if not run.get("parent_run_id")]
    metadata: Fields = {}
    # The roots last: their facts about the conversation take precedence over those of a step.
    for run in [*trace.runs, *roots]:
        metadata |= (run.get("extra") or {}).get("metadata") or run.get("metadata") or {}
    facts: Fields = {
        "thread_id": str(first_of(metadata, "thread_id", "session_id", "conversation_id") or trace.trace_id),
        "user_id": metadata.get("user_id"),
        "success": _success(roots),
    }
    snapshots = []
    for history in _histories(trace, roots):
        snapshots.append(TranscriptSnapshot(trace.line, facts, transcribe(history)))
    yield from latest_snapshots(snapshots)


def _histories(trace: _Trace, roots: list[Fields]) -> list[list[Any]]:
    """Return the histories of whole agents, otherwise of model calls."""
    histories = []
    for root in roots:
        history = _root_history(root)
        if history:
            histories.append(history)
    if histories:
        return histories
    for run in trace.runs:
        if run.get("run_type") == "llm":
            histories.append(_model_call(run))
    return histories


def _success(roots: list[Fields]) -> bool | None:
    for run in roots:
        success = _score(run)
        if success is not None:
            return success
    return None


def _start(run: Fields) -> str:
    return str(run.get("start_time") or "")


def _root_history(run: Fields) -> list[Any]:
    """Return input and output of an agent's run, if these are messages."""
    given = _messages_of(_asked(run))
    outputs = run.get("outputs") or {}
    gave = _messages_of(outputs.get("messages"))
    if not gave and isinstance(outputs.get("output"), dict):
        gave = _messages_of(outputs["output"].get("messages") or outputs["output"])
    if not gave or run.get("run_type") == "llm":
        return []
    contents = {_content_of(message) for message in gave}
    if given and _content_of(given[0]) in contents:  # LangGraph's output repeats the input
        return gave
    return [*given, *gave]


def _model_call(run: Fields) -> list[Any]:
    """Return the prompt of a model's call and its answer, as LangChain or OpenAI's client gave it."""
    given = _messages_of(_asked(run))
    outputs = run.get("outputs") or {}
    answers = outputs.get("generations") or outputs.get("choices") or []
    # LangChain lists the generations of each prompt of a batch: a list of lists.
    while isinstance(answers, list) and answers and isinstance(answers[0], list):
        answers = answers[0]
    if answers and isinstance(answers[0], dict) and "message" in answers[0]:
        return [*given, answers[0]["message"]]
    return given


def _asked(run: Fields) -> Any:
    asked = (run.get("inputs") or {}).get("messages")
    if isinstance(asked, str):
        return {"role": "user", "content": asked}
    return asked


def _messages_of(messages: Any) -> list[Any]:
    """Return messages given as a list, a list of lists, one message, or pairs of role and text."""
    if isinstance(messages, dict) and {"role", "type"} & messages.keys():
        return [messages]
    if not isinstance(messages, list) or not messages:
        return []
    if isinstance(messages[0], list) and isinstance(message_of_pair(messages[0]), list):
        messages = messages[0]
    return [message_of_pair(message) for message in messages]


def _content_of(message: Any) -> str:
    if not isinstance(message, dict):
        return json.dumps(message)
    for key in ("kwargs", "data"):  # LangChain's dumps, and `messages_to_dict`
        if isinstance(message.get(key), dict):
            message = message[key]
    return json.dumps(message.get("content"), sort_keys=True)


def _score(run: Fields) -> bool | None:
    """Return LangSmith's feedback on a whole run."""
    stats = run.get("feedback_stats") or {}
    for key in ("success", "correctness", "correct", "user_score", "score"):
        score = stats.get(key)
        if isinstance(score, dict) and isinstance(score.get("avg"), (int, float)):
            return bool(score["avg"] >= 0.5)
    return None


LANGSMITH: Final = LogFormat("LangSmith runs", (("inputs", "outputs", "run_type"), ("inputs", "outputs")), _read_runs)
