"""OpenTelemetry spans, as OTLP, Tempo, Jaeger and the console exporter write them, with the facts of agents in them.

Attributes follow the GenAI conventions (messages, the events before them, or `gen_ai.prompt.0.role`) or OpenInference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final

from langgraph_toolmem.runs.logs.observed import ObservedSpan, messages_of, read_observations
from langgraph_toolmem.runs.logs.shapes import LogFormat, NumberedRecord, dicts, objects_of
from langgraph_toolmem.runs.logs.transcript import Fields, decoded, first_of, inner_object, is_text, joined_text

_EVENT_ROLES: Final = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.choice": "assistant",
}


def _read_spans(records: list[NumberedRecord]) -> Iterator[tuple[int, Fields]]:
    logged: defaultdict[str, list[Fields]] = defaultdict(list)  # log records by the span they belong to
    spans: list[tuple[int, Fields]] = []
    for line, record in objects_of(records):
        for event in _log_records(record):
            logged[str(event.get("spanId") or event.get("span_id"))].append(event)
        for span in _unwrap(record):
            spans.append((line, span))
    # A log record may come after its span, so all records are read first.
    yield from read_observations([_observation(line, span, logged) for line, span in spans])


def _unwrap(record: Fields) -> Iterator[Fields]:
    """Yield the spans of a record, in any envelope."""
    inner = inner_object(record, "trace")
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


def _observation(line: int, span: Fields, logged: dict[str, list[Fields]]) -> ObservedSpan:
    # OTLP's JSON writes `traceId`, Jaeger `traceID`, and the console exporter a `context` with `trace_id`.
    context = span.get("context") or {}
    trace = first_of(span, "traceId", "traceID", "trace_id") or context.get("trace_id") or line
    span_id = first_of(span, "spanId", "spanID", "span_id") or context.get("span_id")
    events = [*(first_of(span, "events", "logs") or ()), *logged.get(str(span_id), ())]
    facts = _facts_of(span, events)
    operation = _at(facts, "gen_ai.operation.name")
    kind = str(_at(facts, "openinference.span.kind") or span.get("span_kind") or operation or span.get("name"))
    history = _conventions(facts) or _events(events, facts) or _openinference(facts)
    frame: list[Any] = []
    if operation is not None and operation not in ("chat", "generate_content", "text_completion"):
        # the span of a whole agent repeats the first and the last message of its model calls
        history, frame = [], history
    return ObservedSpan(
        line=line,
        trace=str(trace),
        start=str(first_of(span, "startTimeUnixNano", "start_time", "startTime") or ""),
        history=history,
        frame=frame,
        tool=_tool_of(span, facts, kind),
        call_id=_first(facts, "gen_ai.tool.call.id", "tool.id"),
        arguments=_first(facts, "gen_ai.tool.call.arguments", "gcp.vertex.agent.tool_call_args", "input.value"),
        result=_first(facts, "gen_ai.tool.call.result", "gcp.vertex.agent.tool_response", "output.value"),
        kind=kind,
        facts={
            "thread_id": _first(facts, "gen_ai.conversation.id", "session.id"),
            "user_id": _first(facts, "user.id", "enduser.id"),
        },
    )


def _facts_of(span: Fields, events: Iterable[Fields]) -> Fields:
    """Return the attributes of a span and its events as nested objects; the span's own come first."""
    # Jaeger calls attributes "tags", and those of an event "fields".
    flat = _pairs(span.get("attributes", span.get("tags")))
    for event in events:
        flat = {**_pairs(event.get("attributes", event.get("fields"))), **flat}
    facts: Fields = nested(flat)
    return facts


def _tool_of(span: Fields, facts: Fields, kind: str) -> str:
    if kind not in ("TOOL", "execute_tool"):
        return ""
    return str(_first(facts, "gen_ai.tool.name", "tool.name") or span.get("name"))


def _first(facts: Fields, *paths: str) -> Any:
    for path in paths:
        value = _at(facts, path)
        if value is not None:
            return value
    return None


# --- attributes ---


def _pairs(given: Any) -> Fields:
    """Return attributes by name: a dict of the console exporter, pairs of OTLP or tags of Jaeger."""
    if isinstance(given, dict):
        return given
    attributes: Fields = {}
    for pair in dicts(given):
        if "key" in pair:
            attributes[str(pair["key"])] = _plain_value(pair.get("value"))
    return attributes


def _plain_value(value: Any) -> Any:
    """Return a value of OTLP, which wraps it in an object with its type: ``{"stringValue": "x"}``."""
    if not isinstance(value, dict) or not value:
        return value
    kind, inner = next(iter(value.items()))
    if kind == "arrayValue":
        elements = (inner or {}).get("values") or ()
        return [_plain_value(element) for element in elements]
    if kind == "kvlistValue":
        return _pairs((inner or {}).get("values"))
    return inner


def nested(value: Any) -> Any:
    """Return a value with dotted keys as nested objects: ``{"a.b": 1}`` becomes ``{"a": {"b": 1}}``.

    A value whose name is also the beginning of other names goes under "".
    """
    if isinstance(value, list):
        return [nested(element) for element in value]
    if not isinstance(value, dict):
        return value
    tree: Fields = {}
    for key, inner in value.items():
        *path, last = key.split(".")
        _put(_node_at(tree, path), last, nested(inner))
    return tree


def _node_at(tree: Fields, path: Iterable[str]) -> Fields:
    """Return the object at a path; missing ones are made."""
    node = tree
    for name in path:
        below = node.get(name)
        if below is None:
            below = node[name] = {}
        elif not isinstance(below, dict):
            below = node[name] = {"": below}
        node = below
    return node


def _put(node: Fields, name: str, value: Any) -> None:
    known = node.get(name)
    if not isinstance(known, dict):
        node[name] = value
    elif isinstance(value, dict):
        known.update(value)
    else:
        known[""] = value


def _at(facts: Any, path: str) -> Any:
    for key in path.split("."):
        if not isinstance(facts, dict):
            return None
        facts = facts.get(key)
    if isinstance(facts, dict) and "" in facts:
        return facts[""]
    return facts


def _elements(node: Any) -> list[Fields]:
    """Return the elements of a list, of its JSON, or of an object with the keys 0, 1, 2."""
    node = decoded(node)
    if isinstance(node, dict):
        numbers = [key for key in node if key.isdecimal()]
        numbers.sort(key=int)  # "10" comes before "2" as a text
        node = [node[number] for number in numbers]
    return dicts(node)


# --- messages ---


def _conventions(facts: Fields) -> list[Any]:
    """Return the messages of the GenAI conventions: in their present form, or in the numbered attributes of
    OpenLLMetry.
    """
    messages: list[Any] = []
    for path in ("gen_ai.input.messages", "gen_ai.output.messages"):
        messages += messages_of(_at(facts, path))
    for path in ("gen_ai.prompt", "gen_ai.completion"):
        for message in _elements(_at(facts, path)):
            messages.append(_numbered(message))
    return messages


def _numbered(message: Fields) -> Fields:
    """Return a message whose lists may be written as JSON or as numbered attributes."""
    content = decoded(message.get("content"))
    if not isinstance(content, list):
        content = message.get("content") or ""
    read = {**message, "content": content}
    calls = [_call(call) for call in _elements(message.get("tool_calls"))]
    if calls:
        read["tool_calls"] = calls
    return read


def _call(call: Fields) -> Fields:
    function = inner_object(call, "function")
    name, arguments = function.get("name"), function.get("arguments")
    return {"id": call.get("id"), "type": "function", "function": {"name": name, "arguments": arguments}}


def _events(events: Iterable[Any], facts: Fields) -> list[Any]:
    """Return the messages of the events of older GenAI conventions: span events, logs or an attribute."""
    messages = []
    listed = decoded(facts.get("events"))
    for event in [*events, *dicts(listed)]:
        fields = nested(_pairs(event.get("attributes", event.get("fields"))))
        named = first_of(event, "eventName", "event.name") or _at(fields, "event.name") or event.get("name")
        name = str(named)
        if name not in _EVENT_ROLES:
            continue
        message = _kept(_event_fields(event, fields, is_listed=bool(listed)))
        message = {"role": _EVENT_ROLES[name], **message}
        if name == "gen_ai.tool.message":
            messages.append(_tool_message(message))
        else:
            messages.append(_numbered(message))
    return messages


def _event_fields(event: Fields, fields: Fields, *, is_listed: bool) -> Fields:
    """Return the fields of an event's message, for all versions of the conventions."""
    merged = dict(fields)
    if is_listed:
        merged.update(event)
    body = event.get("body")
    content = decoded(_at(fields, "gen_ai.event.content"))
    for more in (_plain_value(body), content):
        if isinstance(more, dict):
            merged.update(more)
    inner = decoded(merged.get("message"))
    if isinstance(inner, dict):
        merged.update(inner)
    return merged


def _kept(message: Fields) -> Fields:
    kept: Fields = {}
    for key in ("role", "content", "tool_calls", "id", "name"):
        if message.get(key):
            kept[key] = message[key]
    if "tool_calls" in kept:
        kept["tool_calls"] = decoded(kept["tool_calls"])
    return kept


def _tool_message(message: Fields) -> Fields:
    return {"role": "tool", "tool_call_id": message.get("id") or "", "content": message.get("content") or ""}


def _openinference(facts: Fields) -> list[Any]:
    messages = []
    for path, author in (("llm.input_messages", "user"), ("llm.output_messages", "assistant")):
        for element in _elements(_at(facts, path)):
            messages.append(_openinference_message(element.get("message", element), author))
    return messages


def _openinference_message(fields: Fields, author: str) -> Fields:
    message: Fields = {"content": _text_of(fields), "tool_call_id": fields.get("tool_call_id")}
    role = fields.get("role") or author
    if role in _CHAT_ROLES:  # agents that write their calls as code have roles of their own
        message["role"] = role
    calls = [_call(call.get("tool_call", call)) for call in _elements(fields.get("tool_calls"))]
    if calls:
        message["tool_calls"] = calls
    return message


_CHAT_ROLES: Final = ("user", "assistant", "system", "tool", "developer", "human", "ai", "model", "function")


def _text_of(message: Fields) -> Any:
    content = message.get("content")
    if isinstance(content, dict):  # numbered attributes: `content.0.text`
        blocks = [content[key] for key in sorted(content)]
    elif content is None:
        blocks = [block.get("message_content", block) for block in _elements(message.get("contents"))]
    else:
        return content
    return joined_text(filter(is_text, blocks))


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
