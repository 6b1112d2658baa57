"""Logs of other programs: one conversation, written by each of them, is read as the same run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langchain_core.tracers.langchain import LangChainTracer
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langsmith import Client
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from langgraph_toolmem import InputError, LogError, MissingExtraError
from langgraph_toolmem.runs.logs import load_runs, without_password
from langgraph_toolmem.runs.trajectory import Run, Turn, parse_run
from langgraph_toolmem.testing import ScriptedChatModel

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


def numbered(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Attributes as OpenLLMetry writes them."""
    facts: dict[str, Any] = {}
    for name, which in (("gen_ai.prompt", messages[:-1]), ("gen_ai.completion", messages[-1:])):
        for n, message in enumerate(which):
            facts |= {
                f"{name}.{n}.{key}": message[key] for key in ("role", "content", "tool_call_id") if message.get(key)
            }
            for i, call in enumerate(message.get("tool_calls", ())):
                facts |= {f"{name}.{n}.tool_calls.{i}.{key}": value for key, value in call["function"].items()}
                facts[f"{name}.{n}.tool_calls.{i}.id"] = call["id"]
    return facts


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


def openllmetry(path: Path) -> None:
    path.write_text(json.dumps(MessageToDict(encode_spans(spans(numbered)))) + "\n")


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
    line = {"id": "t1", "user_id": "ada", "system": "Be kind.", "messages": made[:-1], "response": made[-1]}
    path.write_text(json.dumps({**line, "response": {"type": "message", **line["response"]}}))


def completions(path: Path) -> None:
    request = {"model": "m", "messages": wire()[:-1]}
    response = {"choices": [{"index": 0, "message": wire()[-1], "finish_reason": "stop"}]}
    path.write_text(json.dumps({"thread_id": "t1", "user_id": "ada", "request": request, "response": response}))


def responses(path: Path) -> None:
    items: list[dict[str, Any]] = []
    for message in wire():
        for call in message.get("tool_calls", ()):
            items += [{"type": "reasoning", "summary": []}]
            items += [{"type": "function_call", "call_id": call["id"], **call["function"]}]
        if message["role"] == "tool":
            items.append(
                {"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}
            )
        elif message["content"]:
            text = {"type": "output_text", "text": message["content"]}
            items.append({"type": "message", "role": message["role"], "content": [text]})
    path.write_text(json.dumps({"thread_id": "t1", "user_id": "ada", "input": items[:-1], "output": items[-1:]}))


def tau2(path: Path) -> None:
    messages = [{"role": "assistant", "content": "Hi!", "timestamp": "2026-01-01T10:00:00"}]
    for n, message in enumerate(wire()):
        calls = [{"id": c["id"], "name": c["function"]["name"], "arguments": json.loads(c["function"]["arguments"]),
                  "requestor": "assistant"} for c in message.get("tool_calls", ())]  # fmt: skip
        stamp = f"2026-01-01T10:00:{n + 1:02}"
        messages.append({**message, "tool_calls": calls or None, "timestamp": stamp})
        if message["role"] == "tool":
            messages[-1] |= {"id": message["tool_call_id"], "requestor": "assistant", "error": False}
        if message["role"] == "user":
            own = {"id": "u", "name": "look", "arguments": {}, "requestor": "user"}
            messages.append({"role": "user", "content": None, "tool_calls": [own], "timestamp": stamp})
            messages.append({"role": "tool", "id": "u", "content": "dark", "requestor": "user", "timestamp": stamp})
    run = {"id": "t1", "task_id": "7", "messages": messages, "reward_info": {"reward": 1.0}}
    path.write_text(json.dumps({"info": {}, "tasks": [], "simulations": [run]}, indent=2))


def sqlite(path: Path) -> None:
    with SqliteSaver.from_conn_string(str(path)) as saver:
        app(saver).invoke(GIVEN, config())


def only_models(path: Path) -> None:
    langsmith(path, kept=lambda run: run["run_type"] == "llm")


WRITERS = [langsmith, only_models, console, otlp, openllmetry, anthropic, completions, responses, tau2, sqlite]
ANONYMOUS = (tau2,)


def steps(run: Run) -> list[tuple[str, Any, Any]]:
    return [(step.tool, step.args, step.output) for turn in run.events if isinstance(turn, Turn) for step in turn.steps]


EXPECTED_STEPS = steps(parse_run(wire(), thread_id="t1"))


@pytest.mark.parametrize("write", WRITERS)
def test_the_conversation_is_one_run_with_its_steps(write, tmp_path):
    write(path := tmp_path / "log")
    (logged,) = load_runs(path).runs

    assert logged.thread_id == "t1"
    assert logged.user_id == (None if write in ANONYMOUS else "ada")
    run = parse_run(logged.messages, thread_id="t1")
    assert steps(run) == EXPECTED_STEPS
    assert all(step.status == "ok" for turn in run.events if isinstance(turn, Turn) for step in turn.steps)
    assert run.events[-1].text == "It is on its way."


def test_verdicts_and_times_of_a_log_are_used(tmp_path):
    tau2(tmp_path / "a")
    langsmith(tmp_path / "b")

    (first,), (second,) = (load_runs(tmp_path / name).runs for name in "ab")
    assert first.success is second.success is True
    assert first.times is not None
    assert (first.times[0], first.times[-1]) == (0.0, 6.0)


def test_a_checkpointer_is_read_thread_by_thread_at_its_latest():
    saver = InMemorySaver()
    for thread in ("t1", "t2"):
        app(saver).invoke(GIVEN, config(thread))
    app(saver).invoke({"messages": [HumanMessage("Thanks!")]}, config("t1"))

    runs = load_runs(saver).runs
    assert [run.thread_id for run in runs] == ["t2", "t1"]
    assert [len(run.messages) for run in runs] == [6, 8]


def test_a_database_without_checkpoints_and_a_missing_package_say_so(tmp_path, monkeypatch):
    import sqlite3

    with sqlite3.connect(tmp_path / "other.db") as database:
        database.execute("CREATE TABLE a (b)")
    with pytest.raises(InputError, match="cannot be read as LangGraph's checkpoints"):
        load_runs(tmp_path / "other.db")
    monkeypatch.setitem(__import__("sys").modules, "langgraph.checkpoint.postgres", None)
    with pytest.raises(MissingExtraError, match=r"langgraph-toolmem\[checkpoints\]"):
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
    [{"simulations": [3]}, {"simulations": {"a": 1}}, {"resourceSpans": [3]}, {"traceId": "a", "attributes": [3]},
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
