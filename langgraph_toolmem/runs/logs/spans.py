"""OpenTelemetry spans, as OTLP, Tempo, Jaeger and the console exporter write them, with the facts of agents in them.

Attributes follow the GenAI conventions (messages, the events before them, or `gen_ai.prompt.0.role`) or OpenInference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final

from langgraph_toolmem.runs.logs.observed import Observation, messages_of, read_observations
from langgraph_toolmem.runs.logs.shapes import LogFormat, Value, dicts, objects_of
from langgraph_toolmem.runs.logs.transcript import Fields, decoded, is_text, joined_text

_MODEL_CALLS: Final = ("chat", "generate_content", "text_completion")
_EVENT_ROLES: Final = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.choice": "assistant",
}


def _read_spans(records: list[Value]) -> Iterator[tuple[int, Fields]]:
    logged: defaultdict[str, list[Fields]] = defaultdict(list)  # log records by the span they belong to
    spans: list[tuple[int, Fields]] = []
    for line, record in objects_of(records):
        for event in _log_records(record):
            logged[str(event.get("spanId") or event.get("span_id"))].append(event)
        spans.extend((line, span) for span in _unwrap(record))
    yield from read_observations(_observation(line, span, logged) for line, span in spans)


def _unwrap(record: Fields) -> Iterator[Fields]:
    """Yield the spans of a record, whatever wraps them."""
    inner = record["trace"] if isinstance(record.get("trace"), dict) else record
    resources = dicts(inner.get("resourceSpans")) + dicts(inner.get("resource_spans")) + dicts(inner.get("batches"))
    for resource in resources:
        for key in ("scopeSpans", "scope_spans", "instrumentationLibrarySpans"):
            for scope in dicts(resource.get(key)):
                yield from dicts(scope.get("spans"))
    for trace in [inner, *dicts(inner.get("data"))]:  # Jaeger's API has a list of traces
        yield from dicts(trace.get("spans"))
    if "attributes" in record and not resources:
        yield record


def _log_records(record: Fields) -> Iterator[Fields]:
    for resource in dicts(record.get("resourceLogs")):
        for scope in dicts(resource.get("scopeLogs")):
            yield from dicts(scope.get("logRecords"))


def _observation(line: int, span: Fields, logged: dict[str, list[Fields]]) -> Observation:
    context = span.get("context") or {}
    trace = span.get("traceId") or span.get("traceID") or span.get("trace_id") or context.get("trace_id") or line
    span_id = span.get("spanId") or span.get("spanID") or span.get("span_id") or context.get("span_id")
    flat = _pairs(span.get("attributes", span.get("tags")))
    events = [*(span.get("events") or span.get("logs") or ()), *logged.get(str(span_id), ())]
    for event in events:
        flat = {**_pairs(event.get("attributes", event.get("fields"))), **flat}
    facts = nested(flat)
    operation = _at(facts, "gen_ai.operation.name")
    kind = str(_at(facts, "openinference.span.kind") or span.get("span_kind") or operation or span.get("name"))
    history = _conventions(facts) or _events(events, facts) or _openinference(facts)
    is_model_call = operation is None or operation in _MODEL_CALLS
    executed = kind in ("TOOL", "execute_tool")
    return Observation(
        line=line,
        trace=str(trace),
        start=str(span.get("startTimeUnixNano") or span.get("start_time") or span.get("startTime") or ""),
        history=history if is_model_call else [],
        frame=[] if is_model_call else history,
        tool=str(_first(facts, _TOOL_NAMES) or span.get("name")) if executed else "",
        call_id=_first(facts, ("gen_ai.tool.call.id", "tool.id")),
        arguments=_first(facts, _ARGUMENTS),
        result=_first(facts, _RESULTS),
        kind=kind,
        facts={"thread_id": _first(facts, _THREADS), "user_id": _first(facts, ("user.id", "enduser.id"))},
    )


_TOOL_NAMES: Final = ("gen_ai.tool.name", "tool.name")
_ARGUMENTS: Final = ("gen_ai.tool.call.arguments", "gcp.vertex.agent.tool_call_args", "input.value")
_RESULTS: Final = ("gen_ai.tool.call.result", "gcp.vertex.agent.tool_response", "output.value")
_THREADS: Final = ("gen_ai.conversation.id", "session.id")


def _first(facts: Fields, paths: Iterable[str]) -> Any:
    return next((value for value in (_at(facts, path) for path in paths) if value is not None), None)


# --- attributes ---


def _pairs(given: Any) -> Fields:
    """Return attributes by name: a dict of the console exporter, pairs of OTLP or tags of Jaeger."""
    if isinstance(given, dict):
        return given
    return {str(pair["key"]): _plain_value(pair.get("value")) for pair in dicts(given) if "key" in pair}


def _plain_value(value: Any) -> Any:
    if not isinstance(value, dict) or not value:
        return value
    kind, inner = next(iter(value.items()))
    if kind == "arrayValue":
        return [_plain_value(element) for element in (inner or {}).get("values") or ()]
    return _pairs((inner or {}).get("values")) if kind == "kvlistValue" else inner


def nested(value: Any) -> Any:
    """Return a value whose dotted keys are objects in each other: ``{"a.b": 1}`` becomes ``{"a": {"b": 1}}``."""
    if isinstance(value, list):
        return [nested(element) for element in value]
    if not isinstance(value, dict):
        return value
    tree: Fields = {}
    for key, inner in value.items():
        *path, last = key.split(".")
        node = tree
        for name in path:
            below = node.get(name)
            if not isinstance(below, dict):
                below = node[name] = {} if below is None else {"": below}
            node = below
        inner = nested(inner)
        known = node.get(last)
        if isinstance(known, dict):
            known.update(inner if isinstance(inner, dict) else {"": inner})
        else:
            node[last] = inner
    return tree


def _at(facts: Any, path: str) -> Any:
    for key in path.split("."):
        facts = facts.get(key) if isinstance(facts, dict) else None
    return facts.get("") if isinstance(facts, dict) and "" in facts else facts


def _elements(node: Any) -> list[Fields]:
    """Return the elements of a list, of its JSON, or of an object with the keys 0, 1, 2."""
    node = decoded(node)
    if isinstance(node, dict):
        numbered = sorted((int(key), inner) for key, inner in node.items() if key.isdecimal())
        node = [inner for _, inner in numbered]
    return dicts(node)


# --- messages ---


def _conventions(facts: Fields) -> list[Any]:
    """Return the messages of the GenAI conventions: of today, or in the numbered attributes of OpenLLMetry."""
    messages: list[Any] = []
    for path in ("gen_ai.input.messages", "gen_ai.output.messages"):
        messages += messages_of(_at(facts, path))
    for path in ("gen_ai.prompt", "gen_ai.completion"):
        messages += [_numbered(message) for message in _elements(_at(facts, path))]
    return messages


def _numbered(message: Fields) -> Fields:
    calls = [_call(call) for call in _elements(message.get("tool_calls"))]
    content = decoded(message.get("content")) if isinstance(decoded(message.get("content")), list) else None
    text = {"content": message.get("content") or "" if content is None else content}
    return {**message, **text, "tool_calls": calls} if calls else {**message, **text}


def _call(call: Fields) -> Fields:
    function = call.get("function") if isinstance(call.get("function"), dict) else call
    assert isinstance(function, dict)
    name, arguments = function.get("name"), function.get("arguments")
    return {"id": call.get("id"), "type": "function", "function": {"name": name, "arguments": arguments}}


def _events(events: Iterable[Any], facts: Fields) -> list[Any]:
    """Return the messages of the events that the GenAI conventions had before: span events, logs or an attribute."""
    messages = []
    listed = decoded(facts.get("events"))
    for event in [*events, *dicts(listed)]:
        fields = nested(_pairs(event.get("attributes", event.get("fields"))))
        body = event.get("body")
        body = _plain_value(body) if isinstance(body, dict) else body
        name = str(event.get("eventName") or event.get("event.name") or _at(fields, "event.name") or event.get("name"))
        if name not in _EVENT_ROLES:
            continue
        given = decoded(_at(fields, "gen_ai.event.content"))
        message: Fields = {**fields, **event} if listed else fields
        for more in (body, given):
            message = {**message, **more} if isinstance(more, dict) else message
        inner = decoded(message.get("message"))
        message = {**message, **inner} if isinstance(inner, dict) else message
        message = {"role": _EVENT_ROLES[name], **_kept(message)}
        messages.append(_tool_message(message) if name == "gen_ai.tool.message" else _numbered(message))
    return messages


def _kept(message: Fields) -> Fields:
    return {key: decoded(message[key]) if key == "tool_calls" else message[key] for key in _KEYS if message.get(key)}


_KEYS: Final = ("role", "content", "tool_calls", "id", "name")


def _tool_message(message: Fields) -> Fields:
    return {"role": "tool", "tool_call_id": message.get("id") or "", "content": message.get("content") or ""}


def _openinference(facts: Fields) -> list[Any]:
    messages = []
    for path, author in (("llm.input_messages", "user"), ("llm.output_messages", "assistant")):
        for element in _elements(_at(facts, path)):
            message = element.get("message", element)
            calls = [_call(call.get("tool_call", call)) for call in _elements(message.get("tool_calls"))]
            role = message.get("role") or author
            kept = {"content": _text_of(message), "tool_call_id": message.get("tool_call_id")}
            if role in _ROLES:  # agents that write their calls as code have roles of their own
                kept["role"] = role
            messages.append({**kept, "tool_calls": calls} if calls else kept)
    return messages


_ROLES: Final = ("user", "assistant", "system", "tool", "developer", "human", "ai", "model", "function")


def _text_of(message: Fields) -> Any:
    content = message.get("content")
    if isinstance(content, dict):
        return joined_text([content[key] for key in sorted(content) if is_text(content[key])])
    if content is None:
        blocks = [block.get("message_content", block) for block in _elements(message.get("contents"))]
        return joined_text([block for block in blocks if is_text(block)])
    return content


_ATTRIBUTES: Final = (
    ("context", "attributes"),
    ("traceId", "attributes"),
    ("trace_id", "span_id", "attributes"),
    ("spans[].attributes",),
    ("trace_id", "span_events", "attributes"),
)
SPANS: Final = LogFormat(
    "OpenTelemetry spans",
    (
        ("resourceSpans",),
        ("resource_spans",),
        ("trace.resourceSpans",),
        ("batches[].scopeSpans",),
        ("batches[].instrumentationLibrarySpans",),
        ("trace.batches",),
        ("data[].spans[].tags",),
        ("spans[].tags", "traceID"),
        ("resourceLogs",),
        *_ATTRIBUTES,
    ),
    _read_spans,
)
