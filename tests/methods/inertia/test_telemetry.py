"""What the memory tells of itself: attributes on spans and LangSmith runs, and log records without users' words."""

from __future__ import annotations

import email
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from desk import EAGER, Desk, build, request, run, script, warm
from histories import FAILED, Learner, call, history, reading, schema, state_of, user, words
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.messages import HumanMessage
from langgraph.store.memory import InMemoryStore
from langsmith import Client
from langsmith.run_helpers import tracing_context
from langsmith.run_trees import RunTree
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import INVALID_SPAN, NonRecordingSpan, use_span

from langgraph_toolmem import Decision, Inertia, InertiaPolicy, Proposal, ToolMemory
from langgraph_toolmem.base.errors import ConfigurationError, StorageError
from langgraph_toolmem.base.failures import describe_error, log_failure
from langgraph_toolmem.core.events import Events
from langgraph_toolmem.graph.evidence import EvidenceGraph
from langgraph_toolmem.inertia import calibrated, guards, paper
from langgraph_toolmem.inertia.budget import Budget, Checked
from langgraph_toolmem.inertia.novelty import NoveltyRecord, Unlike
from langgraph_toolmem.inertia.proposal import Option
from langgraph_toolmem.inertia.settings import SWITCHED_OFF
from langgraph_toolmem.inertia.step import Shortcut
from langgraph_toolmem.inertia.traces import OTHER, REASONS, attributes, note_decision, reason_code
from langgraph_toolmem.nodes import InertiaShortcut
from langgraph_toolmem.runs.tools import read_tools
from langgraph_toolmem.stores.graph_file import GraphFile
from langgraph_toolmem.testing import OpenAIStubServer, ScriptedChatModel, make_chat_model
from langgraph_toolmem.turn.call import Call
from langgraph_toolmem.turn.node import MemoryNode
from langgraph_toolmem.turn.providers import PROVIDER_RULES, refusal_text

SECRET = "Rumpelstiltskin"
"""A name that users say, tools are called with and answer with, and that errors quote."""
NAMES = {
    "toolmem.node",
    "toolmem.decision",
    "toolmem.reason",
    "toolmem.candidates",
    "toolmem.tool",
    "toolmem.confidence",
    "toolmem.audit",
    "gen_ai.tool.name",
}


# --- attributes ---


def proposal(**changes: Any) -> Proposal:
    return Proposal(**{"tool": "open", "args": {"id": SECRET}, "confidence": 0.98765, "evidence": SECRET, **changes})


def test_a_call_that_is_made():
    decision = Decision(proposal(), SECRET, (Option("open", {"id": SECRET}, 0.9), Option("find", {}, 0.1, SECRET)))

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


def test_a_proposal_that_is_held_is_no_call():
    hold = "audit: the model is asked and the answer compared"
    told = attributes("inertia", Decision(proposal(act=False, hold=hold, audit=True), hold))

    assert (told["toolmem.decision"], told["toolmem.reason"], told["toolmem.audit"]) == ("ask_model", "audit", True)
    assert told["toolmem.tool"] == "open"
    assert "gen_ai.tool.name" not in told


def test_a_refusal_has_no_tool():
    assert set(attributes("inertia", Decision(None, "whatever"))) == {
        "toolmem.node",
        "toolmem.decision",
        "toolmem.reason",
        "toolmem.candidates",
    }


@given(
    before=st.sampled_from(["", "arguments of a break its schema: ", "confidence 0.1 is below ", "budget of "]),
    after=st.sampled_from(
        ["", " is excluded by the policy", " is not among the tools", "\nmay change something, and "]
    ),
    act=st.booleans(),
    proposed=st.booleans(),
)
def test_no_word_of_a_user_is_in_the_attributes(before: str, after: str, act: bool, proposed: bool):
    made = proposal(act=act, hold=SECRET, sources={SECRET: SECRET}) if proposed else None
    told = attributes(
        "inertia", Decision(made, before + SECRET + after, (Option("open", {SECRET: SECRET}, 1, SECRET),))
    )

    assert SECRET not in repr(told)
    assert set(told) <= NAMES
    assert all(type(value) in (str, int, float, bool) for value in told.values())
    assert told["toolmem.reason"] in REASONS


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


def narrowed() -> Decision:
    digits = schema("open", "id")
    digits["parameters"]["properties"]["id"]["pattern"] = "^[0-9]+$"
    return before_open(practised(), TOOLS[0], digits)


def refused(text: str) -> Decision:
    assert text
    return Decision(None, text)


def repeated(*answers: Any) -> Decision:
    learner = practised(FREE.with_(allow_repeats={"open"}) if len(answers) > 1 else FREE)
    learner.policy = FREE
    if len(answers) > 1:
        learner.graph.tools["open"]["repeats"] = 99
    state = state_of(user("Go."), *[call("open", {"id": SECRET}, answer) for answer in answers])
    specs, graph = learner.specs, learner.graph
    return refused(guards.refusal("open", {"id": SECRET}, specs=specs, policy=FREE, graph=graph, state=state))


def held(missed: int, p: float, *, counts: int = 1) -> Decision:
    graph = EvidenceGraph()
    graph.counters["turns"] = 300
    budget = graph.register(Budget)
    graph.apply(None, [Checked(300, "open", 0, 1, 0.3, counts, 0.0)] * missed)
    policy = InertiaPolicy(audit_rate=0.0)
    return refused(budget.held_back(policy, p, 0.5, tool="open", changes=False)[0])


def strange(spread: int) -> Decision:
    novelty = EvidenceGraph().register(NoveltyRecord)
    return refused(novelty.refusal("open", Unlike(0.5) if spread else None))


def explained(*messages: Any) -> Decision:
    with ToolMemory.ephemeral() as memory:
        return memory.inertia.explain(history(*messages))


def forbidden(tool_choice: str) -> Decision:
    return Shortcut(practised().inertia).look(Call(BEFORE_OPEN, tool_choice=tool_choice)).decision


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: before_open(practised()), "record_is_sure"),
        (lambda: before_open(practised(PAPER)), "record_is_sure"),
        (lambda: before_open(practised(FREE.with_(audit_rate=1.0))), "audit"),
        (lambda: before_open(practised(FREE.with_(shadow=True))), "shadow"),
        (lambda: held(3, 0.99), "budget"),
        (lambda: held(1, 0.75), "budget"),
        (lambda: held(9, 0.99, counts=0), "drift"),
        (lambda: strange(0), "unfamiliar"),
        (lambda: strange(1), "unfamiliar"),
        (lambda: before_open(Learner(TOOLS, FREE)), "nothing_seen"),
        (lambda: before_open(Learner(TOOLS, PAPER)), "nothing_seen"),
        (lambda: before_open(practised(FREE.with_(min_precision=1.0))), "low_confidence"),
        (lambda: before_open(practised(PAPER.with_(threshold=1.0))), "low_confidence"),
        (lambda: before_open(practised(PAPER.with_(max_share=0.0))), "pace"),
        (lambda: refused(paper.pace(PAPER.with_(max_in_a_row=1), ["shortcut"])), "pace"),
        (lambda: before_open(practised(FREE.with_(never={"open"}))), "excluded"),
        (lambda: before_open(practised(FREE.with_(needs_approval={"open"}))), "needs_approval"),
        (lambda: before_open(practised(tags=["destructive"])), "destructive"),
        (lambda: before_open(practised(read_only=None)), "not_named"),
        (lambda: before_open(practised(), TOOLS[0], STEERS), "steers_the_run"),
        (narrowed, "invalid_arguments"),
        (lambda: before_open(practised(PAPER), TOOLS[0], schema("open", "id more")), "no_value"),
        (lambda: before_open(practised(PAPER), TOOLS[0]), "unknown_tool"),
        (lambda: repeated("busy"), "repeat"),
        (lambda: repeated("busy", "done"), "repeat"),
        (lambda: refused(guards.twice("save", [{}, {}], specs={}, policy=FREE)), "repeat"),
        (lambda: explained(user("Go."), words()), "not_the_models_turn"),
        (lambda: explained(user("Go."), call("find", {"name": "x"})[0]), "not_the_models_turn"),
        (lambda: Decision(None, SWITCHED_OFF), "switched_off"),
        (lambda: Decision(proposal(), "").held(refusal_text(PROVIDER_RULES[0])), "provider"),
        (lambda: forbidden("find"), "tool_choice"),
        (lambda: Decision(None, "never heard of"), OTHER),
    ],
)
def test_each_reason_has_its_code(make: Callable[[], Decision], code: str):
    decision = make()

    assert reason_code(decision) == code, decision.reason


def test_a_reason_may_quote_an_argument_and_its_code_does_not():
    decision = narrowed()

    assert SECRET in decision.reason
    assert SECRET not in repr(attributes("inertia", decision))


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


def told(spans: Spans, name: str, key: str) -> list[Any]:
    return [span.attributes.get(key) for span in spans[name]]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.slow
async def test_a_span_around_the_run_keeps_each_decision(desk: Desk, memory: ToolMemory, asynchronous: bool):
    graph, spans = eager_graph(desk, memory), Spans()
    feed = {"messages": [HumanMessage(request(SECRET))]}
    with spans.tracer.start_as_current_span("request"):
        _ = await graph.ainvoke(feed) if asynchronous else graph.invoke(feed)

    (span,) = spans["request"]
    events = [dict(event.attributes) for event in span.events if event.name == "toolmem"]
    decisions = [event for event in events if event["toolmem.node"] == "inertia"]
    assert [event["toolmem.decision"] for event in decisions] == DECISIONS
    assert [event.get("gen_ai.tool.name") for event in decisions] == TOOL_NAMES
    assert events[-1] == {"toolmem.node": "recorder", "toolmem.learned_turns": 1}
    assert span.attributes["toolmem.node"] == "recorder", "as attributes the last one wins"
    assert SECRET not in span.to_json()


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_spans_around_the_nodes(
    desk: Desk, memory: ToolMemory, monkeypatch: pytest.MonkeyPatch, asynchronous: bool
):
    graph, spans = eager_graph(desk, memory), Spans()
    plain, plain_async = MemoryNode.invoke, MemoryNode.ainvoke

    def invoke(node: MemoryNode, *args: Any, **options: Any) -> Any:
        with spans.tracer.start_as_current_span(node.role):
            return plain(node, *args, **options)

    async def ainvoke(node: MemoryNode, *args: Any, **options: Any) -> Any:
        with spans.tracer.start_as_current_span(node.role):
            return await plain_async(node, *args, **options)

    monkeypatch.setattr(MemoryNode, "invoke", invoke)
    monkeypatch.setattr(MemoryNode, "ainvoke", ainvoke)
    feed = {"messages": [HumanMessage(request(SECRET))]}
    with spans.tracer.start_as_current_span("request"):
        _ = await graph.ainvoke(feed) if asynchronous else graph.invoke(feed)

    assert told(spans, "inertia", "toolmem.decision") == DECISIONS
    assert told(spans, "inertia", "gen_ai.tool.name") == TOOL_NAMES
    assert told(spans, "inertia", "toolmem.reason") == ["record_is_sure"] * 3 + ["answer_in_words"]
    assert told(spans, "recorder", "toolmem.learned_turns") == [1]
    assert not spans["request"][0].attributes
    assert all(SECRET not in span.to_json() for span in spans.exporter.get_finished_spans())


def test_a_node_that_steps_aside_tells_the_kind_of_error(
    desk: Desk, memory: ToolMemory, monkeypatch: pytest.MonkeyPatch
):
    graph, spans = eager_graph(desk, memory), Spans()
    monkeypatch.setattr(memory.inertia, "begin_turn", quoting(KeyError))
    with spans.tracer.start_as_current_span("request"):
        run(graph, 0)

    (span,) = spans["request"]
    assert dict(span.events[0].attributes) == {"toolmem.failed": "InertiaShortcut", "toolmem.error": "KeyError"}
    assert SECRET not in span.to_json()


def test_a_span_that_is_not_recorded_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(NonRecordingSpan, "set_attributes", quoting(AssertionError), raising=False)
    monkeypatch.setattr(NonRecordingSpan, "add_event", quoting(AssertionError))
    problems = Listener("langgraph_toolmem.turn.telemetry")
    with problems.listening(), Spans(sampler=ALWAYS_OFF).tracer.start_as_current_span("request"):
        note_decision("inertia", Decision(None, "why not"))
    with problems.listening():
        note_decision("inertia", Decision(None, "why not"))

    assert problems.records == []


# --- never in the way ---


class BrokenSpan(NonRecordingSpan):
    def is_recording(self) -> bool:
        return True

    def set_attributes(self, attributes: Any) -> None:
        raise RuntimeError(f"no room for {attributes}")


def test_tracers_that_fail_stop_nothing(
    desk: Desk, memory: ToolMemory, langsmith: LangSmithStub, monkeypatch: pytest.MonkeyPatch
):
    graph = eager_graph(desk, memory)
    monkeypatch.setattr(RunTree, "add_metadata", quoting(RuntimeError))
    problems = Listener("langgraph_toolmem.turn.telemetry")
    span = use_span(BrokenSpan(INVALID_SPAN.get_span_context()))
    with problems.listening(), span, tracing_context(enabled=True, client=langsmith.client):
        state = run(graph, 0)

    assert state["messages"][-1].text == "The order of Ann is checked."
    assert len(desk.done) == 3
    assert {record.getMessage() for record in problems.records} == {"_to_span failed", "_to_langsmith failed"}
    assert {record.levelno for record in problems.records} == {logging.DEBUG}


def test_a_decision_that_cannot_be_told_of_stops_nothing():
    problems = Listener("langgraph_toolmem.inertia.traces")
    with problems.listening():
        note_decision("inertia", Decision(proposal(confidence="high"), "why"))

    assert [record.getMessage() for record in problems.records] == ["a decision was not told of"]


def test_it_imports_no_tracer():
    code = (
        "import sys, langgraph_toolmem.turn.telemetry as telemetry; telemetry.annotate({'toolmem.node': 'inertia'}); "
        "print([m for m in ('opentelemetry', 'langsmith', 'langchain_core', 'langgraph') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


# --- LangSmith ---


class LangSmithStub:
    """Takes what the LangSmith client posts, on loopback, and puts the runs together."""

    def __init__(self) -> None:
        bodies = self._bodies = []  # type: list[tuple[str, bytes]]

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                bodies.append((self.headers.get("Content-Type", ""), raw))
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            do_GET = do_POST = do_PATCH = answer  # noqa: N815 - the base class's names

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.client = Client(api_url=url, api_key="x", info={}, tracing_error_callback=self._refused)
        self.errors: list[Exception] = []

    def _refused(self, error: Exception) -> None:
        self.errors.append(error)

    def runs(self) -> list[dict[str, Any]]:
        """The runs as they stand after posts and patches, in the order of their start."""
        self.client.flush()
        found: dict[str, dict[str, Any]] = {}
        for content_type, raw in self._bodies:
            form = email.message_from_bytes(f"Content-Type: {content_type}\r\n\r\n".encode() + raw)
            for part in form.get_payload():
                _, thread_id, *field = str(part.get_param("name", header="content-disposition")).split(".")
                body = json.loads(part.get_payload(decode=True))
                found.setdefault(thread_id, {}).update({field[0]: body} if field else body)
        assert not self.errors
        return sorted(found.values(), key=lambda r: r["dotted_order"])

    def close(self) -> None:
        self.client.cleanup()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def langsmith() -> Iterator[LangSmithStub]:
    stub = LangSmithStub()
    yield stub
    stub.close()


def ours(run: dict[str, Any]) -> dict[str, Any]:
    """What the memory added to a run."""
    metadata = run.get("extra", {}).get("metadata", {})
    return {key: value for key, value in metadata.items() if key.startswith(("toolmem.", "gen_ai."))}


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_the_nodes_runs_in_langsmith_carry_the_decision(
    desk: Desk, memory: ToolMemory, langsmith: LangSmithStub, asynchronous: bool
):
    graph = eager_graph(desk, memory)
    feed = {"messages": [HumanMessage(request(SECRET))]}
    with tracing_context(enabled=True, client=langsmith.client):
        _ = await graph.ainvoke(feed) if asynchronous else graph.invoke(feed)

    runs = langsmith.runs()
    inertia = [ours(r) for r in runs if r["name"] == "inertia"]
    assert [r["toolmem.decision"] for r in inertia] == DECISIONS
    assert [r.get("gen_ai.tool.name") for r in inertia] == TOOL_NAMES
    assert all(r["toolmem.confidence"] > 0.9 for r in inertia[:3])
    assert [ours(r) for r in runs if r["name"] == "recorder"] == [
        {"toolmem.node": "recorder", "toolmem.learned_turns": 1}
    ]
    others = [r for r in runs if r["name"] not in ("inertia", "recorder")]
    assert {"LangGraph", "agent", "tools"} <= {r["name"] for r in others}
    assert not any(ours(r) for r in others), "only the node's own run"
    assert SECRET in repr(runs), "the host's own inputs and outputs"
    assert SECRET not in repr([ours(r) for r in runs])


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_middleware_tells_on_the_run_of_its_hook(desk: Desk, langsmith: LangSmithStub, asynchronous: bool):
    class Teller(AgentMiddleware):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            note_decision("inertia", Decision(None, SECRET))
            return handler(request)

        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            note_decision("inertia", Decision(None, SECRET))
            return await handler(request)

    agent = create_agent(ScriptedChatModel(script=script), desk.tools, middleware=[Teller()])
    feed: Any = {"messages": [HumanMessage(request("Ann"))]}
    with tracing_context(enabled=True, client=langsmith.client):
        _ = await agent.ainvoke(feed) if asynchronous else agent.invoke(feed)

    runs = langsmith.runs()
    hook = "Teller.awrap_model_call" if asynchronous else "Teller.wrap_model_call"
    assert [ours(r).get("toolmem.reason") for r in runs if r["name"] == hook] == [OTHER] * 4
    assert not any(ours(r) for r in runs if r["name"] != hook)


def test_without_tracing_nothing_is_posted(desk: Desk, memory: ToolMemory, langsmith: LangSmithStub):
    graph = eager_graph(desk, memory)
    with tracing_context(enabled=False, client=langsmith.client):
        run(graph, 0)

    assert langsmith.runs() == []


# --- logs ---


class Listener(logging.Handler):
    """Hears everything of a logger, DEBUG included."""

    def __init__(self, name: str = "langgraph_toolmem") -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []
        self._logger = logging.getLogger(name)

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @contextmanager
    def listening(self) -> Iterator[Listener]:
        level = self._logger.level
        self._logger.setLevel(logging.DEBUG)
        self._logger.addHandler(self)
        try:
            yield self
        finally:
            self._logger.removeHandler(self)
            self._logger.setLevel(level)

    def text(self, *, at_least: int = logging.DEBUG, below: int = 1000) -> str:
        """Everything of the records of some levels: messages, tracebacks, extras, and what hangs on them."""
        chosen = [record for record in self.records if at_least <= record.levelno < below]
        return "\n".join(logging.Formatter().format(record) + repr(vars(record)) for record in chosen)


@pytest.fixture
def heard() -> Iterator[Listener]:
    with Listener().listening() as listener:
        yield listener


def assert_discreet(heard: Listener, *, warned: str) -> None:
    """The failure is told of, without the secret; at DEBUG with it."""
    assert warned in heard.text(at_least=logging.WARNING)
    assert SECRET not in heard.text(at_least=logging.INFO)
    assert SECRET in heard.text(below=logging.INFO)


def quoting(kind: type[Exception]) -> Callable[..., Any]:
    """A piece that fails with an error that quotes a user, as does the error behind it."""

    def fail(*_: Any, **__: Any) -> Any:
        try:
            raise ValueError(f"no such customer: {SECRET}")
        except ValueError as error:
            raise kind(f"cannot go on with {SECRET}") from error

    return fail


def test_each_decision_is_one_record_at_debug(desk: Desk, memory: ToolMemory, heard: Listener):
    graph = eager_graph(desk, memory)
    run(graph, 0)

    records = [record for record in heard.records if record.name == "langgraph_toolmem.decisions"]
    assert [vars(record)["toolmem.decision"] for record in records] == DECISIONS
    assert [vars(record).get("gen_ai.tool.name") for record in records] == TOOL_NAMES
    assert {record.levelno for record in records} == {logging.DEBUG}
    assert records[-1].getMessage() == "inertia: ask_model: the model is likely to answer in words"


async def test_what_users_say_and_tools_answer_is_in_no_record(desk: Desk, memory: ToolMemory, heard: Listener):
    graph = eager_graph(desk, memory)
    feed = {"messages": [HumanMessage(request(SECRET))]}
    graph.invoke(feed)
    await graph.ainvoke(feed)

    assert desk.done[0] == ("find_customer", {"name": SECRET})
    assert heard.records
    assert SECRET not in heard.text(at_least=logging.INFO)


PIECES = [
    (Inertia, "begin_turn"),
    (Inertia, "decide"),
    (Events, "observe"),
    (Events, "learn"),
    (EvidenceGraph, "apply"),
    (calibrated, "decide"),
    (Decision, "to_event"),
    (MemoryNode, "call_of"),
]


@pytest.mark.parametrize(("owner", "piece"), PIECES, ids=[f"{owner.__name__}.{piece}" for owner, piece in PIECES])
@pytest.mark.parametrize("kind", [RuntimeError, KeyError, StorageError])
async def test_pieces_that_fail(
    desk: Desk, memory: ToolMemory, heard: Listener, monkeypatch: pytest.MonkeyPatch, owner: Any, piece: str, kind: Any
):
    graph = eager_graph(desk, memory)
    monkeypatch.setattr(owner, piece, quoting(kind))
    feed = {"messages": [HumanMessage(request(SECRET))]}
    for state in (graph.invoke(feed), await graph.ainvoke(feed)):
        assert state["messages"][-1].text == f"The order of {SECRET} is checked."
    assert [name for name, _ in desk.done] == ["find_customer", "latest_order", "add_note"] * 2
    assert_discreet(heard, warned=f"{kind.__name__} at test_telemetry:")
    assert ", caused by ValueError" in heard.text(at_least=logging.WARNING)


def test_messages_that_cannot_be_read(desk: Desk, memory: ToolMemory, heard: Listener):
    node = InertiaShortcut(memory)
    assert node.invoke({"messages": [{"role": "user", "content": "hi"}, (SECRET, SECRET, SECRET)]}) is None

    assert "InertiaShortcut failed and is passed over (logged once): MessageError at langgraph_toolmem." in heard.text(
        at_least=logging.WARNING
    )
    assert SECRET not in heard.text(at_least=logging.INFO)


class QuotingStore(InMemoryStore):
    """A store whose driver quotes what it was given, as databases do."""

    def batch(self, ops: Any) -> Any:
        raise RuntimeError(f"DETAIL: failing row contains ({SECRET})")


def test_a_shared_store_that_quotes_the_record(desk: Desk, heard: Listener):
    with ToolMemory(None, tools=desk.tools, store=QuotingStore()) as memory:
        run(build(memory, desk.tools)[0], 0)

    assert_discreet(heard, warned="the store failed (RuntimeError)")


def test_a_folder_that_takes_no_record(desk: Desk, tmp_path: Path, heard: Listener, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(GraphFile, "append", quoting(ValueError))
    with ToolMemory(tmp_path, tools=desk.tools) as memory:
        run(build(memory, desk.tools)[0], 0)
        assert any("records cannot be kept" in problem for problem in memory.report().problems)

    assert_discreet(heard, warned="records cannot be kept at present (ValueError at test_telemetry:")


def test_stored_records_that_cannot_be_applied(desk: Desk, tmp_path: Path, heard: Listener):
    with GraphFile(tmp_path) as file:
        file.load()
        file.append([SECRET, [["count", "turns", 1]]])
    with ToolMemory(tmp_path, tools=desk.tools):
        pass

    assert_discreet(
        heard, warned="a record could not be applied and is left out: ValueError at langgraph_toolmem.graph."
    )


def test_a_snapshot_that_cannot_be_used(desk: Desk, tmp_path: Path, heard: Listener, monkeypatch: pytest.MonkeyPatch):
    with ToolMemory(tmp_path, tools=desk.tools) as memory:
        warm(memory, 2)
    monkeypatch.setattr(EvidenceGraph, "load", quoting(KeyError))
    with ToolMemory(tmp_path, tools=desk.tools):
        pass

    assert_discreet(heard, warned="cannot be used (KeyError at test_telemetry:")


class QuotingEmbeddings(DeterministicFakeEmbedding):
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise RuntimeError(f"400: cannot embed {SECRET}")

    def embed_query(self, text: str) -> list[float]:
        raise RuntimeError(f"400: cannot embed {SECRET}")


def test_an_embedder_that_quotes_the_thought(desk: Desk, heard: Listener):
    with ToolMemory.ephemeral(tools=desk.tools, embeddings=QuotingEmbeddings(size=4)) as memory:
        warm(memory, 4)
        memory.inertia.predict(history(user("Go."), call("find_customer", {"name": "x"}, text=SECRET)), policy=PAPER)

    assert_discreet(heard, warned="the built-in embedder is used for thoughts from here on: StorageError at ")


def test_an_embedder_that_quotes_the_query(desk: Desk, heard: Listener):
    with ToolMemory.ephemeral(tools=desk.tools, embeddings=QuotingEmbeddings(size=4)) as memory:
        assert [hit.name for hit in memory.navigator.search("latest order", k=1)] == ["latest_order"]

    assert_discreet(heard, warned="tools are searched by words alone: StorageError at ")


def test_an_environment_that_quotes_arguments(heard: Listener):
    def room(tool: str, steps: Sequence[Any]) -> dict[str, Any]:
        raise LookupError(f"{tool} after {steps}")

    learner = practised(PAPER.with_(environment=room))
    before_open(learner)
    learner.learn(user("Go."), call("find", {"name": SECRET}, FAILED), call("open", {"id": SECRET}), words())

    (warning,) = [record.getMessage() for record in heard.records if record.levelno >= logging.WARNING]
    assert "room failed, which is logged once: LookupError at test_telemetry:" in warning
    assert "Ann" not in heard.text(at_least=logging.INFO)
    assert "Ann" in heard.text(below=logging.INFO)


def test_a_stub_whose_script_quotes_the_request(heard: Listener):
    def reply(asked: dict[str, Any]) -> Any:
        raise LookupError(f"no answer to {asked['messages']}")

    with OpenAIStubServer(reply) as server, pytest.raises(Exception, match="the stub could not answer"):
        make_chat_model(server).invoke(SECRET)

    assert_discreet(heard, warned="the stub could not answer: LookupError at test_telemetry:")


def test_settings_that_cannot_work_are_told_in_full(desk: Desk, memory: ToolMemory, heard: Listener):
    InertiaShortcut(memory, messages_key="talk").invoke({"messages": [HumanMessage(SECRET)]})

    assert "Pass messages_key=… to InertiaShortcut." in heard.text(at_least=logging.ERROR)
    assert SECRET not in heard.text()


def test_an_error_in_short():
    with pytest.raises(KeyError) as raised:
        quoting(KeyError)()

    assert describe_error(raised.value) == "KeyError at test_telemetry:LINE, caused by ValueError".replace(
        "LINE", str(raised.traceback[-1].lineno + 1)
    )
    assert describe_error(ValueError(SECRET)) == "ValueError"
    assert describe_error(ConfigurationError("k is a number")) == "ConfigurationError: k is a number"


def test_a_failure_is_logged_for_the_line_that_reports_it(heard: Listener):
    log_failure(logging.getLogger("langgraph_toolmem.x"), logging.ERROR, "%s is off", "it", error=ValueError(SECRET))

    assert [(r.levelno, r.getMessage(), r.funcName) for r in heard.records] == [
        (logging.ERROR, "it is off: ValueError", "test_a_failure_is_logged_for_the_line_that_reports_it"),
        (logging.DEBUG, "it is off", "test_a_failure_is_logged_for_the_line_that_reports_it"),
    ]


@pytest.mark.slow
def test_where_logging_was_never_configured_a_failure_still_shows():
    code = f"""
from langgraph_toolmem import ToolMemory
from langgraph_toolmem.nodes import InertiaShortcut

def fail(*_, **__):
    raise RuntimeError("{SECRET}")

with ToolMemory.ephemeral() as memory:
    memory.inertia.begin_turn = fail
    node = InertiaShortcut(memory)
    for _ in range(3):
        node.invoke({{"messages": [("user", "hi")]}})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    said = "InertiaShortcut failed and is passed over (logged once): RuntimeError at __main__:6"
    assert done.stderr.strip().splitlines() == [said]


def test_no_module_logs_elsewhere():
    package = Path(sys.modules["langgraph_toolmem"].__file__ or "").parent
    named = [line.strip() for path in package.rglob("*.py") for line in path.read_text().splitlines()]
    loggers = [line for line in named if "getLogger(" in line]

    assert len(loggers) > 10
    assert all('getLogger("langgraph_toolmem.' in line for line in loggers)
    assert not logging.getLogger("langgraph_toolmem").handlers
