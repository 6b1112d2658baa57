"""Traces and observations of Langfuse, as its API and its exports have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from langgraph_toolmem.runs.logs.observed import Observation, history_of, read_observations
from langgraph_toolmem.runs.logs.shapes import LogFormat, Value, dicts, objects_of
from langgraph_toolmem.runs.logs.transcript import Fields, decoded


def _read_traces(records: list[Value]) -> Iterator[tuple[int, Fields]]:
    yield from read_observations(_observations(records))


def _observations(records: list[Value]) -> Iterator[Observation]:
    for line, record in objects_of(records):
        trace = record["trace"] if isinstance(record.get("trace"), dict) else record
        if not isinstance(listed := record.get("observations", trace.get("observations")), list):
            yield _observation(line, record, {})
            continue
        facts = {
            "thread_id": trace.get("sessionId") or trace.get("session_id") or trace.get("id"),
            "user_id": trace.get("userId") or trace.get("user_id"),
            "success": _success(trace.get("scores")),
        }
        for step in dicts(listed):
            yield _observation(line, step, facts)


def _observation(line: int, step: Fields, facts: Fields) -> Observation:
    kind = str(step.get("type"))
    trace = step.get("traceId") or step.get("trace_id") or facts.get("thread_id") or line
    is_model_call = kind == "GENERATION"
    return Observation(
        line=line,
        trace=str(trace),
        start=str(step.get("startTime") or step.get("start_time") or ""),
        history=history_of(step.get("input"), step.get("output")) if is_model_call else [],
        tool=str(step.get("name") or "") if kind == "TOOL" else "",
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


_KINDS: Final = "type=GENERATION|SPAN|EVENT|AGENT|TOOL|CHAIN|RETRIEVER|EVALUATOR|EMBEDDING|GUARDRAIL"
LANGFUSE: Final = LogFormat(
    "Langfuse traces",
    (
        ("observations[].type", "observations[].input"),
        ("trace.observations[].type",),
        ("traceId", _KINDS, "input"),
        ("trace_id", _KINDS, "input"),
    ),
    _read_traces,
)
