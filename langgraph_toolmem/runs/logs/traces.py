"""Records of tracing programs: Langfuse, LangSmith, the OpenAI Agents SDK and OpenTelemetry.

All but LangSmith, whose runs nest their messages, log a step of an agent as a span. `ObservedSpan` is the shape that
these share, and `read_observations` makes conversations of it.

OpenTelemetry spans are read as OTLP, Tempo, Jaeger and the console exporter write them. Their attributes follow the
GenAI conventions (messages, the events before them, or `gen_ai.prompt.0.role`) or OpenInference.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Final

from langgraph_toolmem.runs.logs.dialects import message_of_pair, transcribe
from langgraph_toolmem.runs.logs.transcript import (
    Fields,
    LogFormat,
    NumberedFields,
    NumberedRecord,
    Transcript,
    TranscriptSnapshot,
    arguments_of,
    decoded,
    dicts,
    first_of,
    function_of,
    inner_object,
    is_text,
    joined_text,
    latest_snapshots,
    objects_of,
    result_text,
)


@dataclass(frozen=True, slots=True)
class ObservedSpan:
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
        kind: kind of the step, for the count of left-out parts.
        facts: facts about its run: ``thread_id`` of the conversation if the log has one, ``user_id``, ``success``.
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


def read_observations(observations: Iterable[ObservedSpan]) -> Iterator[NumberedFields]:
    """Yield the conversations of observations.

    The histories of model calls are used if they have calls, because they group the calls of one answer. Otherwise (a
    log of only tools, or of texts) each executed tool is one call of the model.
    """
    for thread, steps in _by_thread(observations).items():
        # Exporters write a span when it ends: a whole agent would come after its model calls.
        steps.sort(key=attrgetter("start"))
        executed = _Executed(steps)
        for line, fields in latest_snapshots(_snapshots(thread, steps)):
            executed.add_results(fields["messages"])
            yield line, fields


def _by_thread(observations: Iterable[ObservedSpan]) -> dict[str, list[ObservedSpan]]:
    """Group steps by conversation: all steps of a trace belong to the thread that one of them names."""
    traces: defaultdict[str, list[ObservedSpan]] = defaultdict(list)
    named: dict[str, str] = {}
    for step in observations:
        traces[step.trace].append(step)
        if step.facts.get("thread_id"):
            named.setdefault(step.trace, str(step.facts["thread_id"]))
    threads: defaultdict[str, list[ObservedSpan]] = defaultdict(list)
    for trace, steps in traces.items():
        threads[named.get(trace, trace)].extend(steps)
    return threads


def _snapshots(thread: str, steps: Sequence[ObservedSpan]) -> list[TranscriptSnapshot]:
    facts = _joined_facts(thread, steps)
    snapshots = []
    has_messages = has_calls = has_tools = False
    for step in steps:
        has_tools = has_tools or bool(step.tool)
        if step.history:
            transcript = transcribe(step.history)
            has_messages = has_messages or bool(transcript.messages)
            has_calls = has_calls or _has_calls(transcript)
            snapshots.append(TranscriptSnapshot(step.line, facts, transcript))
    if not has_messages or (has_tools and not has_calls):
        return [TranscriptSnapshot(steps[0].line, facts, _tools_alone(steps))]
    return snapshots


def _joined_facts(thread: str, steps: Iterable[ObservedSpan]) -> Fields:
    """Return what the steps of a thread say of it; a later step counts before an earlier one."""
    facts: Fields = {"thread_id": thread}
    for step in steps:
        for key, value in step.facts.items():
            if value is not None and value != "":
                facts[key] = value
    return facts


class _Executed:
    """Results of executed tools, for calls without a result in the model calls (the instrumentation leaves them
    out).
    """

    def __init__(self, steps: Iterable[ObservedSpan]) -> None:
        self._results: dict[str, deque[ObservedSpan]] = {}
        for step in steps:
            if step.tool and step.result is not None:
                for key in (str(step.call_id), _signature(step.tool, step.arguments)):
                    self._results.setdefault(key, deque()).append(step)

    def add_results(self, transcript: Transcript) -> None:
        """Put the results after the calls without one."""
        answered = {message.get("tool_call_id") for message in transcript.messages}
        messages = []
        for message in transcript.messages:
            messages.append(message)
            for call in message.get("tool_calls") or ():
                if call.get("id") in answered:
                    continue
                result = self._take(call)
                if result is not None:
                    messages.append({"role": "tool", "tool_call_id": call.get("id") or "", "content": result})
        transcript.messages = messages

    def _take(self, call: Fields) -> str | None:
        function = function_of(call)
        for key in (str(call.get("id")), _signature(function.name, function.arguments)):
            steps = self._results.get(key)
            if steps:
                return result_text(_unwrapped(steps.popleft().result))
        return None


def _signature(tool: Any, arguments: Any) -> str:
    return json.dumps([tool, arguments_of(arguments)], sort_keys=True, default=str)


def _unwrapped(result: Any) -> Any:
    # LangChain's instrumentation logs the whole message of the tool.
    fields = decoded(result)
    if isinstance(fields, dict) and "content" in fields and "tool_call_id" in fields:
        return fields["content"]
    return result


def _has_calls(transcript: Transcript) -> bool:
    return any(message.get("tool_calls") for message in transcript.messages)


def _tools_alone(steps: Sequence[ObservedSpan]) -> Transcript:
    """Return a conversation of executed tools, between the input and the output of the agent that executed them."""
    asked, answered = _frame_of(steps)
    transcript = transcribe(asked)
    for step in steps:
        if step.tool:
            _add_executed(step, transcript)
        elif not step.frame and not step.history:
            transcript.leave_out(f"{step.kind!r} steps without messages")
    answer = transcribe(answered)
    transcript.messages += answer.messages
    transcript.dialects |= answer.dialects
    return transcript


def _frame_of(steps: Sequence[ObservedSpan]) -> tuple[list[Any], list[Any]]:
    """Return the user's messages and the other messages, of the step with the most messages."""
    frame: list[Any] = []
    for step in steps:
        messages = step.frame or step.history
        if len(messages) > len(frame):
            frame = messages
    asked: list[Any] = []
    answered: list[Any] = []
    for message in frame:
        if isinstance(message, dict) and message.get("role") in ("user", "system", "human"):
            asked.append(message)
        else:
            answered.append(message)
    return asked, answered


def _add_executed(step: ObservedSpan, transcript: Transcript) -> None:
    if step.arguments is None:
        transcript.leave_out("calls without arguments in the log")
        return
    transcript.end_answer()
    call_id = transcript.call(step.tool, decoded(step.arguments))
    if call_id and step.result is not None:
        transcript.answer(_unwrapped(step.result), call_id, failed=step.failed)


def messages_of(value: Any) -> list[Any]:
    """Return the messages in the input or output of a model's call: a list, one message, or a text of the user."""
    value = decoded(value)
    if isinstance(value, list):
        return [_message_in(entry) for entry in value]
    if isinstance(value, dict):
        return _messages_in(value)
    if not value:
        return []
    return [value]


def _messages_in(value: Fields) -> list[Any]:
    if "role" not in value:
        for key in ("messages", "input", "contents", "choices", "output", "content"):
            if isinstance(value.get(key), list):
                return messages_of(value[key])
    if isinstance(value.get("message"), dict):
        return [value["message"]]
    return [value]


def _message_in(entry: Any) -> Any:
    # OpenAI's choices wrap their message.
    if isinstance(entry, dict) and "message" in entry:
        return entry["message"]
    return entry


def history_of(asked: Any, answered: Any) -> list[Any]:
    """Return prompt and answer of a model's call as messages; bare texts are the user's and the model's."""
    return _with_roles(messages_of(asked), "user") + _with_roles(messages_of(answered), "assistant")


def _with_roles(messages: Iterable[Any], role: str) -> list[Any]:
    history = []
    for message in messages:
        if isinstance(message, str):
            message = {"role": role, "content": message}
        history.append(message)
    return history


# --- Langfuse: traces and observations, from its API and its exports ---


def _read_langfuse_traces(records: list[NumberedRecord]) -> Iterator[NumberedFields]:
    yield from read_observations(_langfuse_spans(records))


def _langfuse_spans(records: list[NumberedRecord]) -> Iterator[ObservedSpan]:
    for line, record in objects_of(records):
        trace = inner_object(record, "trace")
        steps = record.get("observations", trace.get("observations"))
        if not isinstance(steps, list):  # an export of only the observations
            yield _langfuse_span(line, record, {})
            continue
        facts = {
            "thread_id": first_of(trace, "sessionId", "session_id", "id"),
            "user_id": first_of(trace, "userId", "user_id"),
            "success": _success_by_scores(trace.get("scores")),
        }
        for step in dicts(steps):
            yield _langfuse_span(line, step, facts)


def _langfuse_span(line: int, step: Fields, facts: Fields) -> ObservedSpan:
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


def _success_by_scores(scores: Any) -> bool | None:
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
    _read_langfuse_traces,
)


# --- LangSmith (``client.list_runs()``, an export of a project): whole agents, or only model calls ---


def _read_langsmith_runs(records: list[NumberedRecord]) -> Iterator[NumberedFields]:
    traces: dict[str, _LangsmithTrace] = {}
    for line, run in objects_of(records):
        trace_id = str(run.get("trace_id") or run.get("id") or line)
        traces.setdefault(trace_id, _LangsmithTrace(trace_id, line)).runs.append(run)
    for trace in traces.values():
        trace.runs.sort(key=_start_of)
    for trace in sorted(traces.values(), key=_LangsmithTrace.start):
        yield from _read_langsmith_trace(trace)


@dataclass(slots=True)
class _LangsmithTrace:
    """The runs of a trace, and the line of the first one."""

    trace_id: str
    line: int
    runs: list[Fields] = field(default_factory=list)

    def start(self) -> str:
        return _start_of(self.runs[0])


def _read_langsmith_trace(trace: _LangsmithTrace) -> Iterator[NumberedFields]:
    roots = [run for run in trace.runs if not run.get("parent_run_id")]
    metadata: Fields = {}
    # The roots last: their facts about the conversation take precedence over those of a step.
    for run in [*trace.runs, *roots]:
        metadata |= (run.get("extra") or {}).get("metadata") or run.get("metadata") or {}
    facts: Fields = {
        "thread_id": str(first_of(metadata, "thread_id", "session_id", "conversation_id") or trace.trace_id),
        "user_id": metadata.get("user_id"),
        "success": _success_of_roots(roots),
    }
    snapshots = []
    for history in _histories(trace, roots):
        snapshots.append(TranscriptSnapshot(trace.line, facts, transcribe(history)))
    yield from latest_snapshots(snapshots)


def _histories(trace: _LangsmithTrace, roots: list[Fields]) -> list[list[Any]]:
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


def _success_of_roots(roots: list[Fields]) -> bool | None:
    for run in roots:
        success = _score_of(run)
        if success is not None:
            return success
    return None


def _start_of(run: Fields) -> str:
    return str(run.get("start_time") or "")


def _root_history(run: Fields) -> list[Any]:
    """Return input and output of an agent's run, if these are messages."""
    given = _listed_messages(_inputs_of(run))
    gave = _output_messages(run.get("outputs") or {})
    if not gave or run.get("run_type") == "llm":
        return []
    # LangGraph's output repeats the input.
    contents = {_content_of(message) for message in gave}
    if given and _content_of(given[0]) in contents:
        return gave
    return [*given, *gave]


def _output_messages(outputs: Fields) -> list[Any]:
    """Return the messages in the output of an agent's run, which may be inside an object "output"."""
    messages = _listed_messages(outputs.get("messages"))
    inner = outputs.get("output")
    if not messages and isinstance(inner, dict):
        return _listed_messages(inner.get("messages") or inner)
    return messages


def _model_call(run: Fields) -> list[Any]:
    """Return the prompt of a model's call and its answer, as LangChain or OpenAI's client gave it."""
    given = _listed_messages(_inputs_of(run))
    outputs = run.get("outputs") or {}
    answer: Any = outputs.get("generations") or outputs.get("choices")
    # LangChain lists the generations of each prompt of a batch: a list of lists.
    while isinstance(answer, list) and answer:
        answer = answer[0]
    if isinstance(answer, dict) and "message" in answer:
        return [*given, answer["message"]]
    return given


def _inputs_of(run: Fields) -> Any:
    asked = (run.get("inputs") or {}).get("messages")
    if isinstance(asked, str):
        return {"role": "user", "content": asked}
    return asked


def _listed_messages(messages: Any) -> list[Any]:
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


def _score_of(run: Fields) -> bool | None:
    """Return LangSmith's feedback on a whole run."""
    stats = run.get("feedback_stats") or {}
    for key in ("success", "correctness", "correct", "user_score", "score"):
        score = stats.get(key)
        if isinstance(score, dict) and isinstance(score.get("avg"), (int, float)):
            return bool(score["avg"] >= 0.5)
    return None


LANGSMITH: Final = LogFormat(
    "LangSmith runs", (("inputs", "outputs", "run_type"), ("inputs", "outputs")), _read_langsmith_runs
)


# --- OpenAI Agents SDK: spans as its processors export them ---


def _read_sdk_traces(records: list[NumberedRecord]) -> Iterator[NumberedFields]:
    groups: dict[str, Any] = {}
    # By trace and span: if a span is logged at its start and its end, the end counts, which has the output.
    spans: dict[Any, NumberedFields] = {}
    for line, record in objects_of(records):
        for item in [record, *dicts(record.get("spans")), *dicts(record.get("data"))]:
            if item.get("object") == "trace":
                groups[str(item.get("id"))] = item.get("group_id")
            elif item.get("object") == "trace.span":
                spans[item.get("trace_id"), item.get("id") or len(spans)] = (line, item)
    yield from read_observations(_sdk_span(line, span, groups) for line, span in spans.values())


def _sdk_span(line: int, span: Fields, groups: Fields) -> ObservedSpan:
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
    _read_sdk_traces,
)

# --- OpenTelemetry ---

_EVENT_ROLES: Final = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.choice": "assistant",
}


def _read_spans(records: list[NumberedRecord]) -> Iterator[NumberedFields]:
    logged: defaultdict[str, list[Fields]] = defaultdict(list)  # log records by the span they belong to
    spans: list[NumberedFields] = []
    for line, record in objects_of(records):
        for event in _log_records(record):
            logged[str(event.get("spanId") or event.get("span_id"))].append(event)
        for span in _unwrap(record):
            spans.append((line, span))
    # A log record may come after its span, so all records are read first.
    yield from read_observations([_otel_span(line, span, logged) for line, span in spans])


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


def _otel_span(line: int, span: Fields, logged: dict[str, list[Fields]]) -> ObservedSpan:
    span_id = _id_of(span, "spanId", "spanID", "span_id")
    events = [*(first_of(span, "events", "logs") or ()), *logged.get(str(span_id), ())]
    facts = _facts_of(span, events)
    operation = _at(facts, "gen_ai.operation.name")
    kind = str(_at(facts, "openinference.span.kind") or span.get("span_kind") or operation or span.get("name"))
    messages = _conventions(facts) or _event_messages(events, facts) or _openinference(facts)
    step = ObservedSpan(
        line=line,
        trace=str(_id_of(span, "traceId", "traceID", "trace_id") or line),
        start=str(first_of(span, "startTimeUnixNano", "start_time", "startTime") or ""),
        tool=_tool_of(span, facts, kind),
        call_id=_first_fact(facts, "gen_ai.tool.call.id", "tool.id"),
        arguments=_first_fact(facts, "gen_ai.tool.call.arguments", "gcp.vertex.agent.tool_call_args", "input.value"),
        result=_first_fact(facts, "gen_ai.tool.call.result", "gcp.vertex.agent.tool_response", "output.value"),
        kind=kind,
        facts={
            "thread_id": _first_fact(facts, "gen_ai.conversation.id", "session.id"),
            "user_id": _first_fact(facts, "user.id", "enduser.id"),
        },
    )
    if operation in (None, "chat", "generate_content", "text_completion"):
        return replace(step, history=messages)
    # The span of a whole agent repeats the first and the last message of its model calls.
    return replace(step, frame=messages)


def _id_of(span: Fields, *names: str) -> Any:
    """Return an id of a span under one of its names, of which the last is that of the console exporter."""
    # OTLP's JSON writes `traceId`, Jaeger `traceID`, and the console exporter a `context` with `trace_id`.
    context = span.get("context") or {}
    return first_of(span, *names) or context.get(names[-1])


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
    return str(_first_fact(facts, "gen_ai.tool.name", "tool.name") or span.get("name"))


def _first_fact(facts: Fields, *paths: str) -> Any:
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
    if kind not in ("arrayValue", "kvlistValue"):
        return inner
    elements = (inner or {}).get("values") or ()
    if kind == "kvlistValue":
        return _pairs(elements)
    return [_plain_value(element) for element in elements]


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
        _put_node(_node_at(tree, path), last, nested(inner))
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


def _put_node(node: Fields, name: str, value: Any) -> None:
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
    calls = [_otel_call(call) for call in _elements(message.get("tool_calls"))]
    if calls:
        read["tool_calls"] = calls
    return read


def _otel_call(call: Fields) -> Fields:
    function = inner_object(call, "function")
    name, arguments = function.get("name"), function.get("arguments")
    return {"id": call.get("id"), "type": "function", "function": {"name": name, "arguments": arguments}}


def _event_messages(events: Iterable[Any], facts: Fields) -> list[Any]:
    """Return the messages of the events of older GenAI conventions: span events, logs or an attribute."""
    messages = []
    listed = decoded(facts.get("events"))
    for event in [*events, *dicts(listed)]:
        fields = nested(_pairs(event.get("attributes", event.get("fields"))))
        named = first_of(event, "eventName", "event.name") or _at(fields, "event.name") or event.get("name")
        name = str(named)
        if name not in _EVENT_ROLES:
            continue
        message = _kept_message(_event_fields(event, fields, is_listed=bool(listed)))
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


def _kept_message(message: Fields) -> Fields:
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
    calls = [_otel_call(call.get("tool_call", call)) for call in _elements(fields.get("tool_calls"))]
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
