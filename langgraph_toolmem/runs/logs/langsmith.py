"""Runs of LangSmith (``client.list_runs()``, an export of a project): whole agents, or calls of models alone."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from langgraph_toolmem.runs.logs.chat import message_of_pair
from langgraph_toolmem.runs.logs.dialects import transcribe
from langgraph_toolmem.runs.logs.shapes import LogFormat, Value, objects_of
from langgraph_toolmem.runs.logs.transcript import Fields, Snapshot, latest_snapshots

_THREADS: Final = ("thread_id", "session_id", "conversation_id")
_SCORES: Final = ("success", "correctness", "correct", "user_score", "score")
"""Keys of LangSmith's feedback on a whole run."""


def _read_runs(records: list[Value]) -> Iterator[tuple[int, Fields]]:
    traces: defaultdict[str, list[tuple[int, Fields]]] = defaultdict(list)
    for line, run in objects_of(records):
        traces[str(run.get("trace_id") or run.get("id") or line)].append((line, run))
    for trace, numbered in sorted(traces.items(), key=lambda item: min(_start(run) for _, run in item[1])):
        yield from _read_trace(trace, numbered)


def _read_trace(trace: str, numbered: list[tuple[int, Fields]]) -> Iterator[tuple[int, Fields]]:
    runs = sorted((run for _, run in numbered), key=_start)
    roots = [run for run in runs if not run.get("parent_run_id")]
    metadata: Fields = {}
    for run in [*runs, *roots]:
        metadata |= (run.get("extra") or {}).get("metadata") or run.get("metadata") or {}
    histories = [history for history in map(_root_history, roots) if history]
    if not histories:
        histories = [_model_call(run) for run in runs if run.get("run_type") == "llm"]
    facts: Fields = {
        "thread_id": next((str(metadata[key]) for key in _THREADS if metadata.get(key)), trace),
        "user_id": metadata.get("user_id"),
        "success": next((score for score in map(_score, roots) if score is not None), None),
    }
    yield from latest_snapshots([Snapshot(numbered[0][0], facts, transcribe(history)) for history in histories])


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
    return gave if given and _content_of(given[0]) in contents else [*given, *gave]


def _model_call(run: Fields) -> list[Any]:
    """Return the prompt of a model's call and its answer, as LangChain or OpenAI's client gave it."""
    given = _messages_of(_asked(run))
    outputs = run.get("outputs") or {}
    answers = outputs.get("generations") or outputs.get("choices") or []
    while isinstance(answers, list) and answers and isinstance(answers[0], list):
        answers = answers[0]
    said = [answer["message"] for answer in answers[:1] if isinstance(answer, dict) and "message" in answer]
    return [*given, *said]


def _asked(run: Fields) -> Any:
    asked = (run.get("inputs") or {}).get("messages")
    return {"role": "user", "content": asked} if isinstance(asked, str) else asked


def _messages_of(messages: Any) -> list[Any]:
    """Return messages given as a list, a list of lists, one message, or pairs of role and text."""
    if isinstance(messages, dict):
        return [messages] if {"role", "type"} & messages.keys() else []
    if not isinstance(messages, list) or not messages:
        return []
    if isinstance(messages[0], list) and isinstance(message_of_pair(messages[0]), list):
        messages = messages[0]
    return [message_of_pair(message) for message in messages]


def _content_of(message: Any) -> str:
    if isinstance(message, dict):
        for key in ("kwargs", "data"):
            message = message[key] if isinstance(message.get(key), dict) else message
        return json.dumps(message.get("content"), sort_keys=True)
    return json.dumps(message)


def _score(run: Fields) -> bool | None:
    stats = run.get("feedback_stats") or {}
    for key in _SCORES:
        mean = stats[key].get("avg") if isinstance(stats.get(key), dict) else None
        if isinstance(mean, (int, float)):
            return mean >= 0.5
    return None


LANGSMITH: Final = LogFormat("LangSmith runs", (("inputs", "outputs", "run_type"), ("inputs", "outputs")), _read_runs)
