"""Formats of logs: one conversation as each program writes it, and the account of what was read and left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from langgraph_toolmem import LogError
from langgraph_toolmem.runs.logs import RunLog, load_runs
from langgraph_toolmem.runs.run import Turn
from langgraph_toolmem.runs.trajectory import parse_run

Json = dict[str, Any]

ASKED, SAID = "Weather in Bern and Rome?", "20 and 25 degrees."
CALLS = [("c1", "weather", {"city": "Bern"}, {"t": 20}), ("c2", "weather", {"city": "Rome"}, {"t": 25})]
STEPS = [(name, args, result, "ok") for _, name, args, result in CALLS]


def chat(*, sequential: bool = False) -> list[Json]:
    """The conversation as OpenAI's chat completions have it: two calls in one answer, or one after the other."""
    calls = [
        {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
        for id_, name, args, _ in CALLS
    ]
    results = [{"role": "tool", "tool_call_id": id_, "content": json.dumps(result)} for id_, _, _, result in CALLS]
    asked, said = {"role": "user", "content": ASKED}, {"role": "assistant", "content": SAID}
    if sequential:
        pairs = [
            [{"role": "assistant", "content": "", "tool_calls": [call]}, result]
            for call, result in zip(calls, results, strict=True)
        ]
        return [asked, *pairs[0], *pairs[1], said]
    return [asked, {"role": "assistant", "content": "", "tool_calls": calls}, *results, said]


def function_call() -> Any:
    made: list[Json] = [{"role": "user", "content": ASKED}]
    for _, name, args, result in CALLS:
        made.append(
            {"role": "assistant", "content": None, "function_call": {"name": name, "arguments": json.dumps(args)}}
        )
        made.append({"role": "function", "name": name, "content": json.dumps(result)})
    return {"messages": [*made, {"role": "assistant", "content": SAID}]}


def responses_items() -> list[Json]:
    calls = [
        {"type": "function_call", "call_id": id_, "id": f"fc_{id_}", "name": name, "arguments": json.dumps(args)}
        for id_, name, args, _ in CALLS
    ]
    results = [{"type": "function_call_output", "call_id": id_, "output": json.dumps(out)} for id_, _, _, out in CALLS]
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": SAID}]}
    return [{"role": "user", "content": ASKED}, {"type": "reasoning", "summary": []}, *calls, *results, said]


def stored_responses() -> Any:
    items = responses_items()
    first = {"object": "response", "id": "r1", "input": ASKED, "output": items[1:4]}
    rest = {"object": "response", "id": "r2", "previous_response_id": "r1", "input": items[4:6], "output": items[6:]}
    return [first, rest]


def codex() -> Any:
    lines = [{"type": "session_meta", "payload": {"id": "s1"}}]
    return [*lines, *({"type": "response_item", "payload": item} for item in responses_items())]


def anthropic_blocks() -> list[Json]:
    thought: Json = {"type": "thinking", "thinking": "Two calls.", "signature": "x"}
    uses = [{"type": "tool_use", "id": id_, "name": name, "input": args} for id_, name, args, _ in CALLS]
    results = [{"type": "tool_result", "tool_use_id": id_, "content": json.dumps(out)} for id_, _, _, out in CALLS]
    return [
        {"role": "user", "content": ASKED},
        {"role": "assistant", "content": [thought, *uses]},
        {"role": "user", "content": results},
        {"role": "assistant", "content": [{"type": "text", "text": SAID}]},
    ]


def claude_code() -> Any:
    """Lines of a session: one for each block, with parts of one answer apart from each other."""
    lines: list[Json] = [{"type": "summary", "summary": "Weather"}]
    for number, message in enumerate(anthropic_blocks()):
        blocks = message["content"]
        for block in blocks if isinstance(blocks, list) else [blocks]:
            content = [block] if isinstance(block, dict) else block
            inner = {"role": message["role"], "content": content, "id": f"m{number}"}
            kept = inner if message["role"] == "assistant" else {"role": "user", "content": content}
            uuid = f"u{len(lines)}"
            lines.append(
                {"type": message["role"], "sessionId": "s1", "uuid": uuid, "parentUuid": None, "message": kept}
            )
    return [*lines, lines[-1]]  # a resumed session repeats a line


def gemini() -> list[Json]:
    calls = [{"functionCall": {"name": name, "args": args}} for _, name, args, _ in CALLS]
    results = [{"functionResponse": {"name": name, "response": out}} for _, name, _, out in CALLS]
    return [
        {"role": "user", "parts": [{"text": ASKED}]},
        {"role": "model", "parts": [{"text": "hm", "thought": True}, *calls]},
        {"role": "user", "parts": results},
        {"role": "model", "parts": [{"text": SAID}]},
    ]


def adk() -> Any:
    events = [{"author": "user" if part["role"] == "user" else "agent", "content": part} for part in gemini()]
    return {"id": "s1", "events": events}


def ui_messages() -> Any:
    tools = [
        {"type": f"tool-{name}", "toolCallId": id_, "state": "output-available", "input": args, "output": out}
        for id_, name, args, out in CALLS
    ]
    parts = [{"type": "step-start"}, *tools, {"type": "step-start"}, {"type": "text", "text": SAID}]
    asked = {"id": "a", "role": "user", "parts": [{"type": "text", "text": ASKED}]}
    return {"id": "s1", "messages": [asked, {"id": "b", "role": "assistant", "parts": parts}]}


def old_ui_messages() -> Any:
    invocations = [
        {"state": "result", "toolCallId": id_, "toolName": name, "args": args, "result": out}
        for id_, name, args, out in CALLS
    ]
    said = {"role": "assistant", "content": SAID, "toolInvocations": invocations}
    return {"messages": [{"role": "user", "content": ASKED}, said]}


def model_messages() -> Any:
    calls = [{"type": "tool-call", "toolCallId": id_, "toolName": name, "input": args} for id_, name, args, _ in CALLS]
    results = [
        {"type": "tool-result", "toolCallId": id_, "toolName": name, "output": {"type": "json", "value": out}}
        for id_, name, _, out in CALLS
    ]
    messages = [{"role": "user", "content": ASKED}, {"role": "assistant", "content": calls}]
    return {"messages": [*messages, {"role": "tool", "content": results}, {"role": "assistant", "content": SAID}]}


def autogen() -> Any:
    calls = [{"id": id_, "name": name, "arguments": json.dumps(args)} for id_, name, args, _ in CALLS]
    results = [{"call_id": id_, "name": name, "content": json.dumps(out)} for id_, name, _, out in CALLS]
    messages = [
        {"source": "user", "type": "TextMessage", "content": ASKED},
        {"source": "agent", "type": "ToolCallRequestEvent", "content": calls},
        {"source": "agent", "type": "ToolCallExecutionEvent", "content": results},
        {"source": "agent", "type": "TextMessage", "content": SAID},
    ]
    return {"messages": messages, "stop_reason": None}


def autogen_state() -> Any:
    calls = [{"id": id_, "name": name, "arguments": json.dumps(args)} for id_, name, args, _ in CALLS]
    results = [{"call_id": id_, "name": name, "content": json.dumps(out)} for id_, name, _, out in CALLS]
    messages = [
        {"type": "UserMessage", "source": "user", "content": ASKED},
        {"type": "AssistantMessage", "source": "agent", "content": calls},
        {"type": "FunctionExecutionResultMessage", "content": results},
        {"type": "AssistantMessage", "source": "agent", "content": SAID},
    ]
    return {"type": "TeamState", "agent_states": {"agent": {"agent_state": {"llm_context": {"messages": messages}}}}}


def toolbench() -> Any:
    history = function_call()["messages"]
    return {"win": True, "answer_generation": {"query": ASKED, "train_messages": [history[:2], history[:4], history]}}


def toolbench_text() -> Any:
    turns: list[Json] = [{"from": "user", "value": ASKED}]
    for _, name, args, out in CALLS:
        action = f"\nThought: look\nAction: {name}\nAction Input: {json.dumps(args)}\n"
        turns += [{"from": "assistant", "value": action}, {"from": "function", "value": json.dumps(out)}]
    return {"id": "s1", "conversations": [*turns, {"from": "assistant", "value": SAID}]}


def state_bench() -> Any:
    calls = [{"name": name, "arguments": args, "result": out} for _, name, args, out in CALLS]
    said = {"role": "assistant", "content": SAID, "tool_calls": calls}
    return {"conversation": [{"role": "user", "content": ASKED}, said]}


def swe_agent() -> Any:
    history = [
        {**message, "message_type": "x", "agent": "main"}
        | ({"tool_call_ids": [message["tool_call_id"]]} if message["role"] == "tool" else {})
        for message in chat()
    ]
    return {"trajectory": [], "history": history, "info": {}}


def agents_sdk() -> Any:
    trace = {"object": "trace", "id": "tr", "group_id": "s1"}
    data = [
        {"type": "generation", "input": chat()[:1], "output": chat()[1:2]},
        {"type": "generation", "input": chat()[:4], "output": chat()[4:]},
    ]
    spans = [
        {"object": "trace.span", "trace_id": "tr", "started_at": str(n), "span_data": d} for n, d in enumerate(data)
    ]
    return [trace, *spans]


def agents_sdk_functions() -> Any:
    spans = []
    for number, (_, name, args, out) in enumerate(CALLS):
        data = {"type": "function", "name": name, "input": json.dumps(args), "output": json.dumps(out)}
        spans.append({"object": "trace.span", "trace_id": "tr", "started_at": str(number), "span_data": data})
    return {"data": spans}


def agents_sdk_events() -> Any:
    """A processor's own log: each span at its start, without an output, and at its end."""
    events = []
    for number, span in enumerate(agents_sdk_functions()["data"]):
        whole = {**span, "id": f"span_{number}"}
        begun = {**whole, "span_data": {**whole["span_data"], "output": None}}
        events += [{"event": "span_start", "item": begun}, {"event": "span_end", "item": whole}]
    return events


def langfuse() -> Any:
    generations = [
        {"type": "GENERATION", "startTime": "1", "input": chat()[:1], "output": chat()[1]},
        {"type": "GENERATION", "startTime": "2", "input": {"messages": chat()[:4]}, "output": SAID},
        {"type": "SPAN", "startTime": "0", "input": None, "output": None},
    ]
    return {"data": [{"id": "tr", "sessionId": "s1", "input": ASKED, "observations": generations}], "meta": {}}


def langfuse_answer() -> Any:
    (trace,) = langfuse()["data"]
    return {"message": "Request Successful.", "data": trace}


def langfuse_rows() -> Any:
    return [
        {"traceId": "tr", "type": "TOOL", "startTime": id_, "name": name, "input": args, "output": out}
        for id_, name, args, out in CALLS
    ]


def attributes(prefix: str, messages: list[Json], *, message: str = "") -> Json:
    """Messages in numbered attributes, as OpenInference and OpenLLMetry have them."""
    found: Json = {}
    for number, each in enumerate(messages):
        at = f"{prefix}.{number}{message}"
        found |= {f"{at}.role": each["role"], f"{at}.content": each.get("content") or ""}
        if "tool_call_id" in each:
            found[f"{at}.tool_call_id"] = each["tool_call_id"]
        for place, call in enumerate(each.get("tool_calls", ())):
            inner = f"{at}.tool_calls.{place}" + (".tool_call" if message else "")
            function = f"{inner}.function" if message else inner
            found[f"{inner}.id"] = call["id"]
            found |= {f"{function}.{key}": call["function"][key] for key in ("name", "arguments")}
    return found


def span(number: int, facts: Json, **more: Any) -> Json:
    return {
        "context": {"trace_id": "tr", "span_id": str(number)},
        "start_time": str(number),
        "attributes": facts,
        **more,
    }


def openinference() -> Any:
    spans = []
    for number, end in enumerate((1, 4)):
        asked = attributes("llm.input_messages", chat()[:end], message=".message")
        said = attributes("llm.output_messages", chat()[end : end + 1], message=".message")
        spans.append(span(number, {"openinference.span.kind": "LLM", **asked, **said}))
    return spans


def openllmetry() -> Any:
    return [span(0, attributes("gen_ai.prompt", chat()[:4]) | attributes("gen_ai.completion", chat()[4:]))]


def genai_events() -> Any:
    names = {"user": "gen_ai.user.message", "assistant": "gen_ai.assistant.message", "tool": "gen_ai.tool.message"}
    events: list[Json] = []
    for message in chat()[:4]:
        kept = {"content": message["content"], "id": message.get("tool_call_id")}
        calls = {"tool_calls": json.dumps(message["tool_calls"])} if "tool_calls" in message else {}
        events.append({"name": names[message["role"]], "attributes": {**kept, **calls}})
    events.append({"name": "gen_ai.choice", "attributes": {"message": json.dumps(chat()[4]), "index": 0}})
    return [span(0, {"gen_ai.operation.name": "chat"}, events=events)]


def tools_without_results() -> Any:
    """Histories without results, which only the tools' own spans have."""
    histories = [[chat()[0]], [chat()[0], chat()[1]]]
    answers = [chat()[1:2], chat()[4:]]
    spans = []
    for number, (history, answer) in enumerate(zip(histories, answers, strict=True)):
        facts = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(history)}
        spans.append(span(number, {**facts, "gen_ai.output.messages": json.dumps(answer)}))
    for id_, name, args, out in CALLS:
        facts = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, "gen_ai.tool.call.id": id_}
        facts |= {"gen_ai.tool.call.arguments": json.dumps(args), "gen_ai.tool.call.result": json.dumps(out)}
        spans.append(span(3, facts))
    return spans


def pairs(facts: Json) -> list[Json]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in facts.items()]


def tempo() -> Any:
    spans = [
        {"traceId": "tr", "spanId": each["context"]["span_id"], "startTimeUnixNano": each["start_time"],
         "attributes": pairs(each["attributes"])}
        for each in openinference()
    ]  # fmt: skip
    return {"batches": [{"resource": {}, "instrumentationLibrarySpans": [{"spans": spans}]}]}


def jaeger() -> Any:
    spans = [
        {"traceID": "tr", "spanID": each["context"]["span_id"], "startTime": int(each["start_time"]), "logs": [],
         "tags": [{"key": key, "type": "string", "value": value} for key, value in each["attributes"].items()]}
        for each in openinference()
    ]  # fmt: skip
    return {"data": [{"traceID": "tr", "spans": spans, "processes": {}}]}


def exchange() -> Any:
    request = {"model": "m", "messages": chat()[:4]}
    return [
        {"request": {"messages": chat()[:1]}, "response": {"choices": [{"message": chat()[1]}]}},
        {"request": request, "response": {"choices": [{"message": chat()[4]}]}},
    ]


def plain(messages: Callable[[], list[Json]]) -> Callable[[], Any]:
    def write() -> Any:
        return {"id": "s1", "messages": messages()}

    write.__name__ = messages.__name__
    return write


FORMATS: list[tuple[Callable[[], Any], str, dict[str, int]]] = [
    (function_call, "OpenAI function_call messages", {}),
    (plain(responses_items), "OpenAI Responses items", {"'reasoning' items": 1}),
    (stored_responses, "requests and responses", {"'reasoning' items": 1}),
    (codex, "Codex sessions", {"'reasoning' items": 1}),
    (plain(anthropic_blocks), "Anthropic messages", {"'thinking' blocks": 1}),
    (claude_code, "Claude Code sessions", {"'thinking' blocks": 1, "'summary' lines": 1}),
    (plain(gemini), "Gemini contents", {"thoughts": 1}),
    (adk, "ADK sessions", {"thoughts": 1}),
    (ui_messages, "AI SDK UI messages", {}),
    (old_ui_messages, "AI SDK UI messages", {}),
    (model_messages, "AI SDK model messages", {}),
    (autogen, "AutoGen messages", {}),
    (autogen_state, "AutoGen states", {}),
    (toolbench, "ToolBench answers", {}),
    (toolbench_text, "ShareGPT conversations", {}),
    (state_bench, "calls with results", {}),
    (swe_agent, "SWE-agent trajectories", {}),
    (agents_sdk, "OpenAI Agents SDK traces", {}),
    (agents_sdk_functions, "OpenAI Agents SDK traces", {}),
    (agents_sdk_events, "OpenAI Agents SDK traces", {}),
    (langfuse, "Langfuse traces", {}),
    (langfuse_answer, "Langfuse traces", {}),
    (langfuse_rows, "Langfuse traces", {}),
    (openinference, "OpenTelemetry spans", {}),
    (openllmetry, "OpenTelemetry spans", {}),
    (genai_events, "OpenTelemetry spans", {}),
    (tools_without_results, "OpenTelemetry spans", {}),
    (tempo, "OpenTelemetry spans", {}),
    (jaeger, "OpenTelemetry spans", {}),
    (exchange, "requests and responses", {}),
]


def read(path: Path, value: Any, *, indent: int | None = None) -> RunLog:
    path.write_text(json.dumps(value, indent=indent))
    return load_runs(path)


def steps(log: RunLog) -> list[tuple[str, Any, Any, str]]:
    (logged,) = log.runs
    run = parse_run(logged.messages, thread_id=logged.thread_id)
    return [
        (step.tool, step.args, step.output, step.status)
        for turn in run.events
        if isinstance(turn, Turn)
        for step in turn.steps
    ]


@pytest.mark.parametrize(("write", "name", "left_out"), FORMATS, ids=[write.__name__ for write, _, _ in FORMATS])
@pytest.mark.parametrize("indent", [None, 1])
def test_every_call_is_read_with_its_result_and_the_rest_is_counted(tmp_path, write, name, left_out, indent):
    log = read(tmp_path / "log.json", write(), indent=indent)

    assert steps(log) == STEPS
    assert name in log.formats
    assert (log.calls, log.results, dict(log.left_out)) == (2, 2, left_out)


def test_lines_are_read_as_a_list_is(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in claude_code()))

    log = load_runs(path)
    assert steps(log) == STEPS
    assert [run.thread_id for run in log.runs] == ["s1"]


@pytest.mark.parametrize("runs", [1, 2])
def test_runs_may_have_their_messages_under_another_name(tmp_path, runs):
    # tau-bench writes `traj`; a file of one such run was always read.
    record = {"task_id": 3, "reward": 1.0, "info": {"task": {"actions": []}}, "traj": chat()}
    path = tmp_path / "runs.json"
    path.write_text(json.dumps([record] * runs), encoding="utf-8")
    log = load_runs(path)
    assert (len(log.runs), log.calls, log.results) == (runs, 2 * runs, 2 * runs)
    # With two lists of messages, either may be the conversation.
    path.write_text(json.dumps([{**record, "other": chat()}] * 2), encoding="utf-8")
    with pytest.raises(LogError, match="no 'messages' in the object"):
        load_runs(path)


def test_calls_of_one_answer_stay_one_turn(tmp_path):
    for write in (claude_code, plain(responses_items), ui_messages, plain(gemini), openinference):
        (logged,) = read(tmp_path / "log.json", write()).runs
        turns = [event for event in parse_run(logged.messages).events if isinstance(event, Turn)]
        assert [len(turn.steps) for turn in turns] == [2, 0], write.__name__


def test_agents_in_one_trace_are_runs_of_their_own_and_states_of_one_are_not(tmp_path):
    other = [{"role": "user", "content": "Say hello"}, {"role": "assistant", "content": "hello"}]
    ends = [(chat(), 1), (other, 1), (chat(), 4)]
    spans = [
        span(
            n,
            {
                "gen_ai.input.messages": json.dumps(all_[:end]),
                "gen_ai.output.messages": json.dumps(all_[end : end + 1]),
            },
        )
        for n, (all_, end) in enumerate(ends)
    ]
    log = read(tmp_path / "log.json", spans)

    assert [len(run.messages) for run in log.runs] == [2, 5]
    assert log.calls == 2


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ({"role": "model", "parts": [{"text": "see"}, {"inlineData": {"data": "x"}}]}, "'inlineData' parts"),
        ({"role": "assistant", "parts": [{"type": "tool-f", "toolCallId": "1", "state": "input-streaming"},
                                         {"type": "text", "text": "see"}]},
         "calls in state 'input-streaming' without a result"),
        ({"role": "assistant", "content": [{"type": "server_tool_use", "name": "web_search"},
                                           {"type": "text", "text": "see"}]}, "'server_tool_use' blocks"),
        ({"role": "assistant", "content": "see", "tool_calls": [{"id": "1", "name": "f", "args": "{"}]},
         "calls whose arguments are not a JSON object"),
        ({"role": "function", "name": "f", "content": "1"}, "results of no call"),
        ({"type": "web_search_call", "id": "1"}, "'web_search_call' items"),
    ],
)  # fmt: skip
def test_a_part_that_is_not_read_is_counted_by_its_kind(tmp_path, message, kind):
    log = read(tmp_path / "log.json", {"messages": [{"role": "user", "content": "go"}, message]})

    assert dict(log.left_out) == {kind: 1}
    assert len(log.runs) == 1


@pytest.mark.parametrize(
    ("record", "nearest", "place"),
    [
        ({"answer_generation": {"chain": []}}, "ToolBench answers", "answer_generation.train_messages"),
        ({"conversations": [{"from": "user", "text": "x"}]}, "ShareGPT conversations", "conversations[].value"),
        ({"messages": [{"parts": [{"video": "x"}]}]}, "Gemini contents", "parts[].text"),
        ({"object": "trace.span", "id": "x"}, "OpenAI Agents SDK traces", "span_data.type"),
    ],
)
def test_an_unknown_record_names_the_nearest_format_and_the_place_that_differs(tmp_path, record, nearest, place):
    with pytest.raises(LogError) as caught:
        read(tmp_path / "log.json", record)

    assert nearest in str(caught.value)
    assert place in str(caught.value)


def test_a_log_without_conversations_says_what_is_in_it(tmp_path):
    log = read(tmp_path / "log.json", [span(0, {"http.method": "GET"}, name="GET")])

    assert log.runs == ()
    assert dict(log.left_out) == {"'GET' steps without messages": 1}


class CountedText(str):
    """A text that counts the characters copied out of it."""

    copied = 0

    def __getitem__(self, key: Any) -> str:
        part = super().__getitem__(key)
        CountedText.copied += len(part)
        return part


def test_texts_of_many_lines_are_read_in_one_pass(tmp_path):
    from langgraph_toolmem.runs.logs.files import read_documents

    document = json.dumps({"id": "x", "messages": chat()}, indent=1)
    for number in (10, 40):
        text = CountedText("\n".join([document] * number))
        CountedText.copied = 0
        assert len(read_documents(text)) == number
        assert CountedText.copied <= len(text)
