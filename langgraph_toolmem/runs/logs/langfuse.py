"""Traces and observations of Langfuse, from its API and its exports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from langgraph_toolmem.runs.logs.observed import ObservedSpan, history_of, read_observations
from langgraph_toolmem.runs.logs.shapes import LogFormat, NumberedRecord, dicts, objects_of
from langgraph_toolmem.runs.logs.transcript import Fields, decoded, first_of, inner_object


def _read_traces(records: list[NumberedRecord]) -> Iterator[tuple[int, Fields]]:
    yield from read_observations(_observations(records))


def _observations(records: list[NumberedRecord]) -> Iterator[ObservedSpan]:
    for line, record in objects_of(records):
        trace = inner_object(record, "trace")
        steps = record.get("observations", trace.get("observations"))
        if not isinstance(steps, list):  # an export of only the observations
            yield _observation(line, record, {})
            continue
        facts = {
            "thread_id": first_of(trace, "sessionId", "session_id", "id"),
            "user_id": first_of(trace, "userId", "user_id"),
            "success": _success(trace.get("scores")),
        }
        for step in dicts(steps):
            yield _observation(line, step, facts)


def _observation(line: int, step: Fields, facts: Fields) -> ObservedSpan:
    kind = str(step.get("type"))
    history: list[Any] = []
    tool = ""
    if kind == "GENERATION":
        history = history_of(step.get("input"), step.get("output"))
    elif kind == "TOOL":
        tool = str(step.get("name") or "")
    # The API writes names as `traceId`, an export of the project as `trace_id`.
    return ObservedSpan(
        line=line,
        trace=str(first_of(step, "traceId", "trace_id") or facts.get("thread_id") or line),
        start=str(first_of(step, "startTime", "start_time") or ""),
        history=history,
        tool=tool,
        arguments=decoded(step.get("input")),
        result=step.get("output"),
        failed=step.get("level") == "ERROR",
        kind=kind,
        facts=facts or {"thread_id": step.get("sessionId"), "user_id": step.get("userId")},
    )


def _success(scores: Any) -> bool | None:
    for score in dicts(scores):
        if score.get("name") in ("success", "correctness") and isinstance(score.get("value"), (int, float)):
            return bool(score["value"] >= 0.5)
    return None


_OBSERVATION_TYPES: Final = "type=GENERATION|SPAN|EVENT|AGENT|TOOL|CHAIN|RETRIEVER|EVALUATOR|EMBEDDING|GUARDRAIL"
LANGFUSE: Final = LogFormat(
    "Langfuse traces",
    (
        ("observations[].type", "observations[].input"),
        ("trace.observations[].type",),
        ("traceId", _OBSERVATION_TYPES, "input"),
        ("trace_id", _OBSERVATION_TYPES, "input"),
    ),
    _read_traces,
)
