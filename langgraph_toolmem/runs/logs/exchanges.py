"""Logged calls of a model's API: requests with their responses, of OpenAI, Anthropic or Gemini."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from langgraph_toolmem.runs.logs.dialects import transcribe
from langgraph_toolmem.runs.logs.observed import history_of
from langgraph_toolmem.runs.logs.shapes import LogFormat, NumberedRecord, objects_of
from langgraph_toolmem.runs.logs.transcript import Fields, TranscriptSnapshot, decoded, first_of, latest_snapshots


def _read_exchanges(records: list[NumberedRecord]) -> Iterator[tuple[int, Fields]]:
    snapshots = []
    histories: dict[str, list[Any]] = {}  # by the id of the response that ends them
    for line, record in objects_of(records):
        request, response = _side(record, "request"), _side(record, "response")
        history = history_of(_asked(request), _answer_of(response))
        # The Responses API keeps the history: a request has only the new messages, and the id of the previous response.
        previous = request.get("previous_response_id") or response.get("previous_response_id")
        if previous:
            history = [*histories.get(str(previous), ()), *history]
        if response.get("id"):
            histories[str(response["id"])] = history
        facts = {
            "thread_id": first_of(record, "thread_id", "session_id", "conversation_id"),
            "user_id": first_of(record, "user_id", "user"),
        }
        snapshots.append(TranscriptSnapshot(line, facts, transcribe(history)))
    yield from latest_snapshots(snapshots)


def _side(record: Fields, key: str) -> Fields:
    """Return the body of a request or response; the record itself if it has the fields of both."""
    fields = record
    side = decoded(record.get(key))
    if isinstance(side, dict):
        fields = side
    body = decoded(fields.get("body"))
    if isinstance(body, dict):
        return body
    return fields


def _asked(request: Fields) -> Any:
    for key in ("messages", "input", "contents"):
        if key in request:
            return request[key]
    return []


def _answer_of(response: Fields) -> Any:
    """Return the model's messages in a response."""
    if isinstance(response.get("candidates"), list):
        return _first_candidate(response["candidates"])
    # Further choices are alternatives, which the conversation does not continue.
    if isinstance(response.get("choices"), list):
        return response["choices"][:1]
    if response.get("type") == "message":
        return [response]
    return response.get("output")


def _first_candidate(candidates: list[Any]) -> list[Any]:
    """Return the content of Gemini's first candidate; [] if it was blocked."""
    if not candidates or not isinstance(candidates[0], dict):
        return []
    content = candidates[0].get("content")
    if not content:
        return []
    return [content]


EXCHANGES: Final = LogFormat(
    "requests and responses",
    (
        ("messages", "response.choices[].message"),
        ("messages", "choices[].message"),
        ("request.messages", "response.choices[].message"),
        ("request.messages", "response.content"),
        ("request.body.messages", "response.body.choices[].message"),
        ("request.contents", "response.candidates"),
        ("request.input", "response.output"),
        ("input", "output", "object=response"),
        ("object=response", "output"),
        ("contents[].parts",),
    ),
    _read_exchanges,
)
