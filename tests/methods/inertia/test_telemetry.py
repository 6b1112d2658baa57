"""What the memory tells of itself: attributes on spans and LangSmith runs, and log records without users' words."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from desk import EAGER, Desk, build, request, run, warm
from histories import Learner, call, history, reading, user, words
from langchain_core.messages import HumanMessage
from langgraph.store.memory import InMemoryStore
from langsmith import Client
from langsmith.run_helpers import tracing_context
from langsmith.run_trees import RunTree
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import INVALID_SPAN, NonRecordingSpan, use_span

from langgraph_toolmem import Decision, Inertia, InertiaPolicy, Proposal, ToolMemory
from langgraph_toolmem.base.errors import StorageError
from langgraph_toolmem.inertia.calibrated import Calibrated
from langgraph_toolmem.inertia.decision import Option, Refusal, attributes, note_decision
from langgraph_toolmem.inertia.step import SWITCHED_OFF
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.stores.events import EventLog
from langgraph_toolmem.turn.step import MemoryNode

Heard = pytest.LogCaptureFixture
SECRET = "Rumpelstiltskin"
"""A name that users say, tools are called with and answer with, and that errors quote."""

# --- attributes ---


def proposal(**changes: Any) -> Proposal:
    return Proposal(**{"tool": "open", "args": {"id": SECRET}, "confidence": 0.98765, "evidence": SECRET, **changes})


def test_a_call_that_is_made():
    refused = Refusal("other", SECRET)
    decision = Decision(proposal(), None, (Option("open", ({"id": SECRET},), 0.9), Option("find", (), 0.1, refused)))

    assert attributes("inertia", decision) == {
        "toolmem.node": "inertia",
        "toolmem.decision": "shortcut",
        "toolmem.reason": "record_is_sure",
        "toolmem.candidates": 2,
        "toolmem.tool": "open",
        "toolmem.confidence": 0.9877,
        "toolmem.audit": False,
        "gen_ai.tool.name": "open",
    }

    hold = Refusal("audit", "audit: the model is asked and the answer compared")
    held_back = attributes("inertia", Decision(proposal(act=False, hold=hold, audit=True), hold))
    named = ("toolmem.decision", "toolmem.reason", "toolmem.audit", "toolmem.tool")
    assert [held_back[name] for name in named] == ["ask_model", "audit", True, "open"]
    assert "gen_ai.tool.name" not in held_back
    assert attributes("inertia", Decision(None, Refusal("other", SECRET))) == {
        "toolmem.node": "inertia",
        "toolmem.decision": "ask_model",
        "toolmem.reason": "other",
        "toolmem.candidates": 0,
    }


TOOLS = [reading("find", "name"), reading("open", "id")]
STEERS = replace(read_tools(TOOLS)["open"], controls=True)
FREE = InertiaPolicy().with_(max_wrong_per_100=None, audit_rate=0.0)
PAPER = InertiaPolicy.paper(max_share=None, max_in_a_row=None, window=1)


def practised(policy: InertiaPolicy = FREE, **marks: Any) -> Learner:
    """Has seen one chain many times: find by the user's word, open by the answer."""
    learner = Learner([TOOLS[0], {**TOOLS[1], **marks}], policy)
    for i in range(30):
        name, ask = f"Ann{i}", user(f"Find the file of Ann{i} and open it")
        found = call("find", {"name": name}, {"id": f"id-{name}"})
        learner.learn(history(ask, found, call("open", {"id": f"id-{name}"}), words()), thread_id=str(i))
    return learner


BEFORE_OPEN = history(
    user(f"Find the file of {SECRET} and open it"), call("find", {"name": SECRET}, {"id": f"id-{SECRET}"})
)


def before_open(learner: Learner, *tools: Any) -> Decision:
    """The decision before the second call, with other tools than those given to the memory."""
    specs = read_tools(tools) if tools else None
    decision: Decision = learner.decide(BEFORE_OPEN, thought="t", specs=specs)
    return decision


def explained(*messages: Any) -> Decision:
    with ToolMemory.ephemeral() as memory:
        return memory.inertia.explain(history(*messages))


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: before_open(practised()), "record_is_sure"),
        (lambda: before_open(practised(PAPER)), "record_is_sure"),
        (lambda: before_open(practised(FREE.with_(audit_rate=1.0))), "audit"),
        (lambda: before_open(practised(FREE.with_(shadow=True))), "shadow"),
        (lambda: before_open(Learner(TOOLS, FREE)), "nothing_seen"),
        (lambda: before_open(Learner(TOOLS, PAPER)), "nothing_seen"),
        (lambda: before_open(practised(FREE.with_(min_precision=1.0))), "low_confidence"),
        (lambda: before_open(practised(PAPER.with_(threshold=1.0))), "low_confidence"),
        (lambda: before_open(practised(FREE.with_(never={"open"}))), "excluded"),
        (lambda: before_open(practised(FREE.with_(only={"find"}))), "excluded"),
        (lambda: before_open(practised(FREE.with_(only={"open"}))), "record_is_sure"),
        (lambda: before_open(practised(tags=["destructive"])), "destructive"),
        (lambda: before_open(practised(read_only=None)), "not_named"),
        (lambda: before_open(practised(), TOOLS[0], STEERS), "steers_the_run"),
        (lambda: explained(user("Go."), words()), "not_the_models_turn"),
        (lambda: explained(user("Go."), call("find", {"name": "x"})[0]), "not_the_models_turn"),
        (lambda: Decision(None, SWITCHED_OFF), "switched_off"),
    ],
)
def test_each_reason_has_its_code(make: Callable[[], Decision], code: str):
    decision = make()

    assert decision.code == code, decision.reason


# --- OpenTelemetry ---


class Spans:
    """A tracer of its own, and the spans it finished."""

    def __init__(self, **options: Any) -> None:
        provider = TracerProvider(**options)
        self.exporter = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("tests")

    def __getitem__(self, name: str) -> list[Any]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]


def eager_graph(desk: Desk, memory: ToolMemory) -> Any:
    """A graph whose three tool calls are all shortcuts; the model only answers."""
    warm(memory)
    return build(memory, desk.tools, policy=EAGER)[0]


DECISIONS = ["shortcut", "shortcut", "shortcut", "ask_model"]
TOOL_NAMES = ["find_customer", "latest_order", "add_note", None]


@pytest.mark.slow
def test_a_span_around_the_run_keeps_each_decision(desk: Desk, memory: ToolMemory):
    graph, spans = eager_graph(desk, memory), Spans()
    with spans.tracer.start_as_current_span("request"):
        graph.invoke({"messages": [HumanMessage(request(SECRET))]})

    (span,) = spans["request"]
    events = [dict(event.attributes) for event in span.events if event.name == "toolmem"]
    decisions = [event for event in events if event["toolmem.node"] == "inertia"]
    assert [event["toolmem.decision"] for event in decisions] == DECISIONS
    assert [event.get("gen_ai.tool.name") for event in decisions] == TOOL_NAMES
    assert [event["toolmem.reason"] for event in decisions] == ["record_is_sure"] * 3 + ["answer_in_words"]
    assert events[-1] == {"toolmem.node": "recorder", "toolmem.learned_turns": 1}
    assert span.attributes["toolmem.node"] == "recorder", "as attributes the last one wins"
    assert SECRET not in span.to_json()


class BrokenSpan(NonRecordingSpan):
    def is_recording(self) -> bool:
        return True

    def set_attributes(self, attributes: Any) -> None:
        raise RuntimeError(f"no room for {attributes}")


def test_tracers_that_fail_stop_nothing(desk: Desk, memory: ToolMemory, heard: Heard, monkeypatch: pytest.MonkeyPatch):
    graph = eager_graph(desk, memory)
    monkeypatch.setattr(RunTree, "add_metadata", quoting(RuntimeError))
    span = BrokenSpan(INVALID_SPAN.get_span_context())
    with use_span(span), tracing_context(enabled=True, client=Mock(spec=Client)):
        run(graph, 0)
        note_decision("inertia", Decision(proposal(confidence="high"), None))

    assert len(desk.done) == 3
    turns = [record for record in heard.records if record.name == "langgraph_toolmem.turn"]
    problems = [record for record in turns if "system prompt" not in record.getMessage()]
    assert len({record.getMessage() for record in problems}) == 2, "of each tracer"
    assert {record.levelno for record in problems} == {logging.DEBUG}


# --- logs ---


@pytest.fixture
def heard(caplog: Heard) -> Heard:
    """Everything of the package's loggers, DEBUG included."""
    caplog.set_level(logging.DEBUG, "langgraph_toolmem")
    return caplog


def text_of(heard: Heard, *, at_least: int = logging.DEBUG, below: int = 1000) -> str:
    """Everything of the records of some levels: messages, tracebacks, extras, and what hangs on them."""
    chosen = [record for record in heard.records if at_least <= record.levelno < below]
    return "\n".join(logging.Formatter().format(record) + repr(vars(record)) for record in chosen)


def assert_discreet(heard: Heard, *, warned: str) -> None:
    """The failure is reported, without the secret; at DEBUG with it."""
    assert warned in text_of(heard, at_least=logging.WARNING)
    assert SECRET not in text_of(heard, at_least=logging.INFO)
    assert SECRET in text_of(heard, below=logging.INFO)


def quoting(kind: type[Exception]) -> Callable[..., Any]:
    """A piece that fails with an error that quotes a user, as does the error behind it."""

    def fail(*_: Any, **__: Any) -> Any:
        try:
            raise ValueError(f"no such customer: {SECRET}")
        except ValueError as error:
            raise kind(f"cannot go on with {SECRET}") from error

    return fail


PIECES = [
    (Inertia, "begin_turn", RuntimeError),
    (Calibrated, "decide", StorageError),
    (Decision, "to_event", RuntimeError),
    (MemoryNode, "call_of", KeyError),
]


@pytest.mark.parametrize(("owner", "piece", "kind"), PIECES, ids=[piece for _, piece, _ in PIECES])
def test_a_piece_that_fails_is_told_of_without_the_users_words(
    desk: Desk, memory: ToolMemory, heard: Heard, monkeypatch: pytest.MonkeyPatch, owner: Any, piece: str, kind: Any
):
    graph, spans = eager_graph(desk, memory), Spans()
    monkeypatch.setattr(owner, piece, quoting(kind))
    with spans.tracer.start_as_current_span("request"):
        state = graph.invoke({"messages": [HumanMessage(request(SECRET))]})
    assert state["messages"][-1].text == f"The order of {SECRET} is checked."
    assert [name for name, _ in desk.done] == ["find_customer", "latest_order", "add_note"]
    assert_discreet(heard, warned=f"{kind.__name__} at test_telemetry:")
    assert ", caused by ValueError" in text_of(heard, at_least=logging.WARNING)
    (span,) = spans["request"]
    assert SECRET not in span.to_json()
    if piece == "begin_turn":
        assert dict(span.events[0].attributes) == {"toolmem.failed": "InertiaShortcut", "toolmem.error": "RuntimeError"}


class QuotingStore(InMemoryStore):
    """A store whose driver quotes what it was given, as databases do."""

    def batch(self, ops: Any) -> Any:
        raise RuntimeError(f"DETAIL: failing row contains ({SECRET})")


def shared_store(desk: Desk, _: Path, __: pytest.MonkeyPatch) -> None:
    with ToolMemory(None, tools=desk.tools, store=QuotingStore()) as memory:
        run(build(memory, desk.tools)[0], 0)


def full_folder(desk: Desk, folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EventLog, "writing", quoting(StorageError))
    with ToolMemory(folder, tools=desk.tools) as memory:
        run(build(memory, desk.tools)[0], 0)
        assert memory.report().problems


def test_the_text_of_a_damaged_event_is_not_quoted_at_any_level(desk: Desk, tmp_path: Path, heard: Heard) -> None:
    with ToolMemory(tmp_path, tools=desk.tools) as memory:
        warm(memory, 1)
    with EventLog(tmp_path) as log, log.writing() as rows:
        body = f'["{SECRET}"]'
        rows.execute("INSERT INTO events (key, user, run, body, checksum) VALUES ('k', '', '', ?, 0)", (body,))
    ToolMemory(tmp_path, tools=desk.tools).close()
    assert "(key k, damaged)" in text_of(heard, at_least=logging.WARNING)
    assert SECRET not in text_of(heard)


def environment(_: Desk, __: Path, ___: pytest.MonkeyPatch) -> None:
    def room(tool: str, steps: Sequence[Any]) -> dict[str, Any]:
        raise LookupError(f"{tool} after {SECRET}")

    before_open(practised(PAPER.with_(environment=room)))


@pytest.mark.parametrize(
    ("place", "error"),
    [
        (shared_store, "RuntimeError"),
        (full_folder, "StorageError"),
        (environment, "LookupError"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_what_fails_beside_the_run_is_told_of_without_the_users_words(
    desk: Desk, tmp_path: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch, place: Any, error: str
):
    place(desk, tmp_path, monkeypatch)

    assert_discreet(heard, warned=error)
