"""Traces of the OpenAI Agents SDK: spans as its processors export them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from langgraph_toolmem.runs.logs.observed import ObservedSpan, history_of, read_observations
from langgraph_toolmem.runs.logs.shapes import LogFormat, NumberedRecord, dicts, objects_of
from langgraph_toolmem.runs.logs.transcript import Fields


def _read_traces(records: list[NumberedRecord]) -> Iterator[tuple[int, Fields]]:
    groups: dict[str, Any] = {}
    # By trace and span: if a span is logged at its start and its end, the end counts, which has the output.
    spans: dict[Any, tuple[int, Fields]] = {}
    for line, record in objects_of(records):
        for item in [record, *dicts(record.get("spans")), *dicts(record.get("data"))]:
            if item.get("object") == "trace":
                groups[str(item.get("id"))] = item.get("group_id")
            elif item.get("object") == "trace.span":
                spans[item.get("trace_id"), item.get("id") or len(spans)] = (line, item)
    yield from read_observations(_observation(line, span, groups) for line, span in spans.values())


def _observation(line: int, span: Fields, groups: Fields) -> ObservedSpan:
    trace = str(span.get("trace_id"))
    data = span.get("span_data") or {}
    kind = str(data.get("type"))
    answer = data.get("output")
    # A span of the Responses API has no output of its own: the answer is in its response.
    if kind == "response" and isinstance(data.get("response"), dict):
        answer = data["response"].get("output")
    history: list[Any] = []
    tool = ""
    if kind in ("generation", "response"):
        history = history_of(data.get("input"), answer)
    elif kind == "function":
        tool = str(data.get("name") or "")
    return ObservedSpan(
        line=line,
        trace=trace,
        start=str(span.get("started_at") or ""),
        history=history,
        tool=tool,
        arguments=data.get("input"),
        result=data.get("output"),
        failed=bool(span.get("error")),
        kind=kind,
        facts={"thread_id": groups.get(trace)},
    )


AGENTS_SDK: Final = LogFormat(
    "OpenAI Agents SDK traces",
    (
        ("object=trace.span", "span_data.type"),
        ("spans[].object=trace.span", "spans[].span_data.type"),
        ("data[].object=trace.span", "data[].span_data.type"),
    ),
    _read_traces,
)
