"""Logs of runs: accepted lines, malformed ones, and one conversation as other programs write it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langchain_core.tracers.langchain import LangChainTracer
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langsmith import Client
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from typing_extensions import TypedDict

from langgraph_toolmem import InputError, LogError, MissingExtraError
from langgraph_toolmem.runs.logs import load_runs
from langgraph_toolmem.runs.logs.files import without_password
from langgraph_toolmem.runs.run import Run, Turn
from langgraph_toolmem.runs.trajectory import parse_run
from langgraph_toolmem.testing import ScriptedChatModel

# --- lines ---


MESSAGES = [
    {"role": "user", "content": "Delete the mail from Ann"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"query": "Ann"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": '[{"id": 7}]'},
    {"role": "assistant", "content": "Done."},
]
LINE = json.dumps({"id": "run-1", "task": "tidy up", "success": True, "user_id": "ann", "messages": MESSAGES})


@pytest.fixture
def write(tmp_path):
    def write(*lines: str | bytes, name: str = "runs.jsonl") -> Path:
        path = tmp_path / name
        path.write_bytes(b"\n".join(x if isinstance(x, bytes) else x.encode() for x in lines))
        return path

    return write


def test_a_full_line(write):
    (run,) = load_runs(write(LINE)).runs

    assert (run.line, run.thread_id, run.success, run.user_id, run.task) == (1, "run-1", True, "ann", "tidy up")
    assert run.messages == MESSAGES


def test_a_bare_list_of_messages_and_blank_lines_and_windows_line_ends(write):
    runs = load_runs(write(b"", b"  \r", json.dumps(MESSAGES).encode() + b"\r", b"", b"\t")).runs

    assert [(run.line, run.messages, run.success, run.user_id) for run in runs] == [(3, MESSAGES, None, None)]


def test_only_a_line_feed_ends_a_line(write):
    text = json.dumps([{"role": "user", "content": "one\u2028two\u0085three"}], ensure_ascii=False)
    (run,) = load_runs(write(text)).runs

    assert run.messages[0]["content"] == "one\u2028two\u0085three"


def test_byte_order_mark_and_gzip(write, tmp_path):
    assert [run.thread_id for run in load_runs(write(b"\xef\xbb\xbf" + LINE.encode())).runs] == ["run-1"]
    packed = tmp_path / "runs.jsonl.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + LINE.encode() + b"\n\n" + LINE.encode()))
    assert [(run.line, run.thread_id) for run in load_runs(packed).runs] == [(1, "run-1"), (3, "run-1")]


def test_run_id_wins_over_id_and_numbers_become_text(write):
    lines = [
        json.dumps({"id": "a", "thread_id": "b", "messages": MESSAGES}),
        json.dumps({"id": 7, "user_id": 8, "messages": MESSAGES}),
        json.dumps({"id": 0, "messages": MESSAGES}),
    ]
    assert [(run.thread_id, run.user_id) for run in load_runs(write(*lines)).runs] == [
        ("b", None),
        ("7", "8"),
        ("0", None),
    ]


def test_lines_without_an_id_get_one_that_survives_a_copy_of_the_file(write):
    plain = json.dumps(MESSAGES)
    first = load_runs(write(plain, plain))
    second = load_runs(write(plain, plain, name="copy.jsonl"))

    ids = [run.thread_id for run in first.runs]
    assert ids == [run.thread_id for run in second.runs]
    assert len(set(ids)) == 2
    assert first.shared_ids == 0


@pytest.mark.parametrize(
    ("value", "expected"), [(True, True), (False, False), (None, None), (1, True), (0, False), (1.0, True)]
)
def test_success(write, value, expected):
    (run,) = load_runs(write(json.dumps({"success": value, "messages": MESSAGES}))).runs

    assert run.success is expected


BAD = [
    ("not json", "not JSON"),
    ('{"messages": [', "not JSON"),
    ("[", "one run a line"),
    ("{}", "no 'messages'"),
    ('{"prompt": "x", "completion": "y"}', "no 'messages' in the object (it has 'prompt', 'completion')"),
    ('{"messages": "hello"}', "must be a list, found a text"),
    ('{"messages": []}', "empty"),
    ("[]", "empty"),
    ("3", "found a number"),
    ('"text"', "found a text"),
    ("null", "found null"),
    ("true", "found true"),
    ('["hello"]', "message 0 must be an object, found a text"),
    ('[{"role": "user", "content": "x"}, null]', "message 1 must be an object, found null"),
    (f"[{LINE}]", "a list of runs"),
    ('[{"content": "no role"}]', "message"),
    ('[{"role": "nobody", "content": "x"}]', "message"),
    (json.dumps({"messages": MESSAGES, "success": "yes"}), "'success' must be true, false or null"),
    (json.dumps({"messages": MESSAGES, "id": ["a"]}), "'id' must be a string, found a list"),
    (json.dumps({"messages": MESSAGES, "user_id": True}), "'user_id' must be a string"),
    (b'{"messages": "\xff"}', "not UTF-8"),
    ("[" * 100_000, "nested too deeply"),
    ('{"id": ' + "9" * 10_000 + ', "messages": []}', "not JSON"),
]


@pytest.mark.parametrize(("line", "said"), BAD, ids=range(len(BAD)))
def test_a_malformed_line_is_named_and_nothing_is_returned(write, line, said):
    with pytest.raises(LogError) as caught:
        load_runs(write(LINE, "", line, LINE))

    assert caught.value.line == 3
    assert str(caught.value).startswith("runs.jsonl, line 3: ")
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    log = load_runs(write(LINE, "", line, LINE), lenient=True)
    assert [run.line for run in log.runs] == [1, 4]
    assert [error.line for error in log.skipped] == [3]
    assert log.shared_ids == 1


def test_damaged_gzip(tmp_path):
    path = tmp_path / "runs.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join([LINE] * 2000).encode())[:-20])

    with pytest.raises(InputError, match="gzip file is damaged"):
        load_runs(path)


def test_a_missing_file_and_a_folder_are_input_errors(tmp_path):
    with pytest.raises(InputError, match="cannot be read: No such file"):
        load_runs(tmp_path / "none.jsonl")
    with pytest.raises(InputError, match="cannot be read"):
        load_runs(tmp_path)


@settings(max_examples=80)
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode), st.integers(0, 200))
def test_any_bytes_are_runs_or_log_errors(tmp_path_factory, noise, at):
    text = LINE.encode()
    text = text[:at] + noise + text[at:]
    assume(not text.startswith(b"\x1f\x8b"))  # what looks like gzip is one, or an error of the whole file
    path = tmp_path_factory.mktemp("log") / "runs.jsonl"
    path.write_bytes(text)

    log = load_runs(path, lenient=True)
    if log.skipped:
        with pytest.raises(LogError):
            load_runs(path)
    else:
        assert load_runs(path) == log


# --- formats of other programs ---


ASKED = "Where is Ada's parcel?"
EXPECTED = [("find_order", {"name": "Ada"}, '{"order": "A7"}'), ("track", {"order": "A7"}, "on its way")]


@tool
def find_order(name: str) -> str:
    """Finds an order."""
    return '{"order": "A7"}'


@tool
def track(order: str) -> str:
    """Where a parcel is."""
    return "on its way"


def said(messages: list[BaseMessage], _tools: Any = None) -> AIMessage:
    made = [call for message in messages if isinstance(message, AIMessage) for call in message.tool_calls]
    if len(made) == len(EXPECTED):
        return AIMessage("It is on its way.")
    name, args, _ = EXPECTED[len(made)]
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"c{len(made)}"}])


def app(saver: Any = None) -> Any:
    model = ScriptedChatModel(script=said).bind_tools([find_order, track])
    graph = StateGraph(MessagesState)
    graph.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([find_order, track]))
    graph.add_edge(START, "agent")
    graph.add_edge("tools", "agent")
    graph.add_conditional_edges("agent", tools_condition)
    return graph.compile(checkpointer=saver)


def config(thread: str = "t1") -> dict[str, Any]:
    return {"configurable": {"thread_id": thread, "user_id": "ada"}, "metadata": {"user_id": "ada"}}


GIVEN = {"messages": [HumanMessage(ASKED)]}


def plain(value: Any) -> Any:
    return json.loads(
        json.dumps(value, default=lambda o: o.model_dump(mode="json") if hasattr(o, "model_dump") else str(o))
    )


class Recorded(Client):
    """LangSmith's client, whose runs stay here."""

    def __init__(self) -> None:
        super().__init__(api_url="http://127.0.0.1:9", api_key="none", auto_batch_tracing=False)
        self.kept: dict[str, dict[str, Any]] = {}

    def create_run(self, name: str, inputs: Any, run_type: Any, **kwargs: Any) -> None:
        self.kept[str(kwargs["id"])] = plain({"name": name, "inputs": inputs, "run_type": run_type, **kwargs})

    def update_run(self, run_id: Any, **kwargs: Any) -> None:
        self.kept[str(run_id)] |= plain({key: value for key, value in kwargs.items() if value is not None})


def langsmith(path: Path, *, kept: Callable[[dict[str, Any]], bool] = lambda _: True) -> None:
    client = Recorded()
    tracer = LangChainTracer(client=client)
    app().invoke(GIVEN, {"callbacks": [tracer], "metadata": {"thread_id": "t1", "user_id": "ada"}})
    tracer.wait_for_futures()
    runs = list(client.kept.values())
    assert {run["run_type"] for run in runs} >= {"chain", "llm", "tool"}
    (root,) = [run for run in runs if not run.get("parent_run_id")]
    root["feedback_stats"] = {"verbosity": {"n": 1, "avg": 0.1}, "correctness": {"n": 2, "avg": 1.0}}
    path.write_text("\n".join(json.dumps(run) for run in runs[::-1] if kept(run)))


def wire() -> list[dict[str, Any]]:
    """The conversation as OpenAI's chat completions have it."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": ASKED}]
    for n, (name, args, output) in enumerate(EXPECTED):
        call = {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(args)}}
        messages += [{"role": "assistant", "content": None, "tool_calls": [call]}]
        messages += [{"role": "tool", "tool_call_id": f"c{n}", "content": output}]
    return [*messages, {"role": "assistant", "content": "It is on its way."}]


def parts(message: dict[str, Any]) -> dict[str, Any]:
    """A message of the GenAI conventions."""
    if message["role"] == "tool":
        found = [{"type": "tool_call_response", "id": message["tool_call_id"], "response": message["content"]}]
    else:
        found = [{"type": "text", "content": message["content"]}] if message["content"] else []
        for call in message.get("tool_calls", ()):
            arguments = json.loads(call["function"]["arguments"])
            found.append(
                {"type": "tool_call", "id": call["id"], "name": call["function"]["name"], "arguments": arguments}
            )
    return {"role": message["role"], "parts": found}


def conventions(messages: list[dict[str, Any]]) -> dict[str, Any]:
    asked, answer = [[parts(each) for each in some] for some in (messages[:-1], messages[-1:])]
    return {"gen_ai.input.messages": json.dumps(asked), "gen_ai.output.messages": json.dumps(answer)}


def spans(facts: Callable[[list[dict[str, Any]]], dict[str, Any]]) -> Any:
    """A span for each call of the model, and one for each tool, by the real SDK."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer, messages = provider.get_tracer("app"), wire()
    with tracer.start_as_current_span("invoke_agent", attributes={"gen_ai.operation.name": "invoke_agent"}):
        for end in (2, 4, 6):
            more = {"gen_ai.operation.name": "chat", "gen_ai.conversation.id": "t1", "user.id": "ada"}
            with tracer.start_as_current_span("chat", attributes={**more, **facts(messages[:end])}):
                pass
            with tracer.start_as_current_span("tool", attributes={"gen_ai.operation.name": "execute_tool"}):
                pass
    return exporter.get_finished_spans()


def console(path: Path) -> None:
    path.write_text("".join(span.to_json() + "\n" for span in spans(conventions)))


def otlp(path: Path) -> None:
    path.write_text(json.dumps(MessageToDict(encode_spans(spans(conventions)))))


def anthropic(path: Path) -> None:
    made: list[dict[str, Any]] = []
    for message in wire():
        if message["role"] == "tool":
            text = [{"type": "text", "text": message["content"]}]
            block = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": text}
            made.append({"role": "user", "content": [block]})
        else:
            content = [{"type": "text", "text": message["content"]}] if message["content"] else []
            for call in message.get("tool_calls", ()):
                arguments = json.loads(call["function"]["arguments"])
                content.append(
                    {"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": arguments}
                )
            made.append({"role": message["role"], "content": content})
    path.write_text(json.dumps({"id": "t1", "user_id": "ada", "system": "Be kind.", "messages": made}))


def sqlite(path: Path) -> None:
    with SqliteSaver.from_conn_string(str(path)) as saver:
        app(saver).invoke(GIVEN, config())


def only_models(path: Path) -> None:
    langsmith(path, kept=lambda run: run["run_type"] == "llm")


WRITERS = [langsmith, only_models, console, otlp, anthropic, sqlite]


def steps(run: Run) -> list[tuple[str, Any, Any]]:
    return [(step.tool, step.args, step.output) for turn in run.events if isinstance(turn, Turn) for step in turn.steps]


EXPECTED_STEPS = steps(parse_run(wire(), thread_id="t1"))


@pytest.mark.parametrize("write", WRITERS)
def test_the_conversation_is_one_run_with_its_steps(write, tmp_path):
    write(path := tmp_path / "log")
    (logged,) = load_runs(path).runs

    assert logged.thread_id == "t1"
    assert logged.user_id == "ada"
    run = parse_run(logged.messages, thread_id="t1")
    assert steps(run) == EXPECTED_STEPS
    assert all(step.status == "ok" for turn in run.events if isinstance(turn, Turn) for step in turn.steps)
    assert run.events[-1].text == "It is on its way."


def test_verdicts_of_a_log_are_used(tmp_path):
    langsmith(path := tmp_path / "log")
    assert load_runs(path).runs[0].success is True


def test_a_checkpointer_is_read_thread_by_thread_at_its_latest():
    saver = InMemorySaver()
    for thread in ("t1", "t2"):
        app(saver).invoke(GIVEN, config(thread))
    app(saver).invoke({"messages": [HumanMessage("Thanks!")]}, config("t1"))

    runs = load_runs(saver).runs
    assert [run.thread_id for run in runs] == ["t2", "t1"]
    assert [len(run.messages) for run in runs] == [6, 8]


class Chat(TypedDict):
    chat: Annotated[list[Any], add_messages]
    notes: list[str]


@pytest.mark.parametrize("kept", ["list", "dict", "other key"])
def test_a_checkpointers_conversation_may_have_another_name(kept):
    """The functional API keeps what an entrypoint saves, and a graph has its own keys."""
    saver = InMemorySaver()
    said = [HumanMessage("Hello!"), AIMessage("Hello, Ada.")]

    @entrypoint(checkpointer=saver)
    def agent(given: str, previous: Any = None) -> Any:
        return entrypoint.final(value=given, save=said if kept == "list" else {"conversation": said, "notes": ["a"]})

    if kept == "other key":
        builder = StateGraph(Chat)
        builder.add_node("answer", lambda state: {"chat": said, "notes": ["a"]})
        builder.add_edge(START, "answer")
        builder.compile(checkpointer=saver).invoke({"chat": []}, config())
    else:
        agent.invoke("Hello!", config())
    (run,) = load_runs(saver).runs
    assert [message["data"]["content"] for message in run.messages] == ["Hello!", "Hello, Ada."]


def test_a_database_without_checkpoints_and_a_missing_package_say_so(tmp_path, monkeypatch):
    import sqlite3

    with sqlite3.connect(tmp_path / "other.db") as database:
        database.execute("CREATE TABLE a (b)")
    with pytest.raises(InputError, match="cannot be read as LangGraph's checkpoints"):
        load_runs(tmp_path / "other.db")
    monkeypatch.setitem(__import__("sys").modules, "langgraph.checkpoint.postgres", None)
    with pytest.raises(MissingExtraError, match=r"\[checkpoints\]"):
        load_runs("postgresql://me:secret@host/db")
    assert without_password("postgresql://me:secret@host/db") == "postgresql://host/db"


def test_an_array_of_runs_over_many_lines_is_a_log(tmp_path):
    path = tmp_path / "log.json"
    path.write_text(json.dumps([{"id": n, "messages": wire()} for n in (1, 2)], indent=2))
    assert [run.thread_id for run in load_runs(path).runs] == ["1", "2"]
    path.write_text(json.dumps(wire(), indent=2))
    assert len(load_runs(path).runs) == 1


def test_a_failed_call_of_anthropics_is_known_as_failed(tmp_path):
    anthropic(path := tmp_path / "log")
    path.write_text(path.read_text().replace('"type": "tool_result",', '"type": "tool_result", "is_error": true,', 1))

    (logged,) = load_runs(path).runs
    run = parse_run(logged.messages)
    assert [step.status for turn in run.events if isinstance(turn, Turn) for step in turn.steps] == ["failed", "ok"]


@pytest.mark.parametrize(
    "broken",
    [{"resourceSpans": [3]}, {"traceId": "a", "attributes": [3]},
     {"inputs": {"messages": 3}, "outputs": {"messages": "x"}}, {"inputs": {}, "outputs": {"messages": [3]}}],
)  # fmt: skip
def test_a_record_that_cannot_be_is_a_log_error_or_no_run(tmp_path, broken):
    path = tmp_path / "log.json"
    path.write_text(json.dumps(broken))
    log = load_runs(path, lenient=True)
    assert not log.runs
    if log.skipped:
        with pytest.raises(LogError, match=r"log\.json, line 1: "):
            load_runs(path)
