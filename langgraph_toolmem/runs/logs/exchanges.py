"""Logged calls of a model's API: requests with their responses, of OpenAI, Anthropic or Gemini."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from langgraph_toolmem.runs.logs.dialects import transcribe
from langgraph_toolmem.runs.logs.observed import history_of
from langgraph_toolmem.runs.logs.shapes import LogFormat, Value, objects_of
from langgraph_toolmem.runs.logs.transcript import Fields, Snapshot, decoded, latest_snapshots

_THREADS: Final = ("thread_id", "session_id", "conversation_id")


def _read_exchanges(records: list[Value]) -> Iterator[tuple[int, Fields]]:
    snapshots = []
    histories: dict[str, list[Any]] = {}  # by the id of the response that ends them
    for line, record in objects_of(records):
        request, response = decoded(record.get("request")), decoded(record.get("response"))
        request = request if isinstance(request, dict) else record
        response = response if isinstance(response, dict) else record
        request, response = _body(request), _body(response)
        asked: Any = next((request[key] for key in ("messages", "input", "contents") if key in request), [])
        previous = request.get("previous_response_id") or response.get("previous_response_id")
        history = history_of(asked, _answer_of(response))
        if previous:
            history = [*histories.get(str(previous), ()), *history]
        if response.get("id"):
            histories[str(response["id"])] = history
        facts = {"thread_id": next((record[key] for key in _THREADS if record.get(key)), None)}
        facts["user_id"] = record.get("user_id") or record.get("user")
        snapshots.append(Snapshot(line, facts, transcribe(history)))
    yield from latest_snapshots(snapshots)


def _body(message: Fields) -> Fields:
    body = decoded(message.get("body"))
    return body if isinstance(body, dict) else message


def _answer_of(response: Fields) -> Any:
    """Return the model's messages in a response."""
    if isinstance(response.get("candidates"), list):
        candidates = [each.get("content") for each in response["candidates"][:1] if isinstance(each, dict)]
        return [content for content in candidates if content]
    if isinstance(response.get("choices"), list):
        return response["choices"][:1]
    if response.get("type") == "message":
        return [response]
    return response.get("output")


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
